//! Offline optimum of a video over TCP, from the segments that the connection carried.
//!
//! A connection is more limited than a sender of packets. Data in flight at the start of an outage
//! goes first, the retransmission timer decides when transmission resumes, and it resumes in slow
//! start. The optimum may therefore place frames, at the encoder's lowest rate, only where the
//! recorded connection carried segments, or would have carried more.

use core::time::Duration;

use tidegate_core::units::{Bytes, Time};

use super::FloorSender;
use crate::interactive::Slot;

/// Record of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Connection<'a> {
    /// Segments in the order of the stream.
    pub slots: &'a [Slot],
    /// Periods in which the connection accepted no data, in order.
    pub blocked: &'a [(Time, Time)],
    /// What the stream has beside the access unit of each frame, in order of capture. None of
    /// frames that are not in it.
    pub framing: &'a [Bytes],
    /// The access unit of each frame, as it was made; none of those that are not in the stream.
    pub units: &'a [Option<Bytes>],
}

impl Connection<'_> {
    /// The fastest that a segment came.
    fn transit(&self) -> Duration {
        let transits = self.slots.iter().map(|slot| slot.arrived.since(slot.sent));
        transits.min().unwrap_or_default()
    }

    /// Spans from the sending of a segment to its arrival, where that took more than two round
    /// trips: it had to be repaired, and nothing behind it was delivered before. In order and
    /// apart from each other.
    fn repairs(&self) -> Vec<(Time, Time)> {
        let patience = self.transit().saturating_mul(4);
        let slow = self.slots.iter();
        let slow = slow.filter(|slot| slot.arrived.since(slot.sent) > patience);
        merged(slow.map(|slot| (slot.sent, slot.arrived)))
    }

    /// When nothing could be sent that would arrive a transit later.
    fn troubled(&self) -> Vec<(Time, Time)> {
        let mut spans: Vec<(Time, Time)> = self.blocked.to_vec();
        spans.extend(self.repairs());
        spans.sort_unstable();
        merged(spans.into_iter())
    }
}

impl FloorSender {
    /// Which of the frames that were captured at these moments, in order, could have been saved
    /// over `connection`. The headers of TCP's segments are the connection's; the stream has the
    /// frame at the floor, or as it was made where that is smaller, as sizes scatter, and the framing
    /// that the one in its place had.
    pub fn savable_over(&self, connection: &Connection<'_>, captured: &[Time]) -> Vec<bool> {
        let floor: Bytes = self.packets().iter().map(|p| *p - self.overhead).sum();
        let (transit, troubled) = (connection.transit(), connection.troubled());
        let slots = connection.slots;
        // The first segment with room, and what is used of it.
        let mut cursor = (0, 0);
        let mut save = |(number, captured): (usize, &Time)| {
            let framing = connection.framing.get(number).copied().unwrap_or_default();
            let unit = connection.units.get(number).copied().flatten();
            let size = unit.map_or(floor, |unit| unit.min(floor)) + framing;
            let deadline = *captured + self.bound;
            let made = made(slots, *captured);
            let free = first_outside(&troubled, made);
            if free + transit <= deadline && free == made {
                return true;
            }
            let found = place(slots, cursor, *captured, size.get());
            if let Some((next, arrival)) = found
                && arrival <= deadline
            {
                cursor = next;
                return true;
            }
            free + transit <= deadline
        };
        captured.iter().enumerate().map(&mut save).collect()
    }

    /// The same for an oracle that only reads when the path was dead and when the time-outs let
    /// the connection find out that it is not: as if it then carried all at once, what was in
    /// flight included. No sender over this connection can be as good.
    pub fn savable_after_time_outs(
        &self,
        connection: &Connection<'_>,
        captured: &[Time],
    ) -> Vec<bool> {
        let transit = connection.transit();
        let dead: Vec<(Time, Time)> = connection
            .repairs()
            .into_iter()
            .map(|(from, to)| {
                let mut slots = connection.slots.iter();
                let first = slots.find(|slot| slot.sent >= from);
                (from, first.map_or(to, |slot| slot.arrived))
            })
            .collect();
        let save =
            |captured: &Time| first_outside(&dead, *captured) + transit <= *captured + self.bound;
        captured.iter().map(save).collect()
    }
}

/// When a frame can leave that was captured then: with the segment that left at once. A real
/// encoder and a real kernel need a moment, and what they lost in that moment no oracle can save.
fn made(slots: &[Slot], captured: Time) -> Time {
    let next = slots.partition_point(|slot| slot.sent < captured);
    let sent = slots.get(next).map(|slot| slot.sent);
    sent.filter(|sent| sent.since(captured) <= AT_ONCE)
        .unwrap_or(captured)
}

/// Puts `bytes` into the segments from `cursor` on that left at `from` or later; where it ends,
/// and when the last of it arrived.
fn place(
    slots: &[Slot],
    cursor: (usize, u64),
    from: Time,
    bytes: u64,
) -> Option<((usize, u64), Time)> {
    let first = slots.partition_point(|slot| slot.sent < from);
    let (mut at, mut used) = if first > cursor.0 { (first, 0) } else { cursor };
    let mut left = bytes;
    loop {
        let slot = slots.get(at)?;
        let room = u64::from(slot.payload).saturating_sub(used);
        if room >= left {
            return Some(((at, used + left), slot.arrived));
        }
        left -= room;
        (at, used) = (at + 1, 0);
    }
}

/// The first moment from `at` on that lies in none of the spans.
fn first_outside(spans: &[(Time, Time)], at: Time) -> Time {
    let after = spans.partition_point(|(from, _)| *from <= at);
    match after.checked_sub(1).map(|i| spans[i]) {
        Some((_, to)) if at < to => to,
        _ => at,
    }
}

/// Spans in order of their beginning, as few as they can be.
fn merged(spans: impl Iterator<Item = (Time, Time)>) -> Vec<(Time, Time)> {
    let mut merged: Vec<(Time, Time)> = Vec::new();
    for (from, to) in spans {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// From a capture until the first segment leaves; kernel and model encoder take 0.3 ms, 99 of 100
/// times less than 1 ms where nothing waits.
const AT_ONCE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use tidegate_core::media::FrameRate;
    use tidegate_core::units::{Bytes, Rate};

    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// Frames of 80 kb/s at ten a second are 1000 bytes, 1008 on the stream.
    fn sender(bound: u64) -> FloorSender {
        FloorSender {
            floor: Rate::kbps(80),
            frame_rate: FrameRate::fps(10),
            payload: Bytes(1_448),
            overhead: Bytes(52),
            bound: Duration::from_millis(bound),
        }
    }

    fn slot(sent: u64, arrived: u64) -> Slot {
        Slot {
            sent: at(sent),
            arrived: at(arrived),
            payload: 1_448,
        }
    }

    /// Frames of one segment each 100 ms that take 50 ms; the path is dead from 1000 ms to 1850,
    /// what was in flight is repaired until 2000, and from then on one segment passes per 100 ms
    /// until 2500.
    fn connection() -> (Vec<Slot>, Vec<(Time, Time)>) {
        let mut slots: Vec<Slot> = (0..10).map(|n| slot(100 * n, 100 * n + 50)).collect();
        slots.extend([slot(1_000, 1_900), slot(1_100, 2_000)]);
        slots.extend((0..5).map(|n| slot(2_000 + 100 * n, 2_050 + 100 * n)));
        slots.extend((0..5).map(|n| slot(2_500 + 100 * n, 2_550 + 100 * n)));
        (slots, vec![(at(1_150), at(2_500))])
    }

    fn lost(saved: &[bool]) -> Vec<usize> {
        (0..saved.len()).filter(|n| !saved[*n]).collect()
    }

    #[test]
    fn frames_take_the_places_that_the_connection_had() {
        let (slots, blocked) = connection();
        let connection = Connection {
            slots: &slots,
            blocked: &blocked,
            framing: &[Bytes(8); 30],
            units: &[],
        };
        let captured: Vec<Time> = (0..30).map(|n| at(100 * n)).collect();
        // Five segments from 2050 on hold seven frames (7,056 of 7,240 bytes). Those of 1000 and
        // 1100 are repaired, too late; 1200 to 1500 have passed by then. From 2500 all is well,
        // and those that wait since 2000 find no place before.
        let saved = sender(500).savable_over(&connection, &captured);
        assert_eq!(lost(&saved), [10, 11, 12, 13, 14, 15]);
        // With less time the frame of 2000 is too late for 2500, and so are those before 1950.
        let saved = sender(100).savable_over(&connection, &captured);
        assert_eq!(lost(&saved), (10..20).collect::<Vec<_>>());
        // A machine that takes a moment to make them changes nothing.
        let later: Vec<Slot> = slots
            .iter()
            .map(|slot| Slot {
                sent: slot.sent + Duration::from_micros(300),
                ..*slot
            })
            .collect();
        let real = Connection {
            slots: &later,
            ..connection
        };
        let saved = sender(500).savable_over(&real, &captured);
        assert_eq!(lost(&saved), [10, 11, 12, 13, 14, 15]);
        // At twice the floor that of 1600 needs two segments, unless it was made smaller.
        let large = FloorSender {
            floor: Rate::kbps(160),
            ..sender(500)
        };
        let small = Connection {
            units: &[Some(Bytes(1_000)); 30],
            ..connection
        };
        assert!(!large.savable_over(&connection, &captured)[16]);
        assert_eq!(
            lost(&large.savable_over(&small, &captured)),
            [10, 11, 12, 13, 14, 15]
        );
        // Whoever knows of the time-outs alone sends all at 1900.
        let saved = sender(500).savable_after_time_outs(&connection, &captured);
        assert_eq!(lost(&saved), [10, 11, 12, 13, 14]);
    }
}
