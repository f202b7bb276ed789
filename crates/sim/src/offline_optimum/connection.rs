//! Offline optimum of a video over TCP, from the segments that the connection carried.
//!
//! A connection is more limited than a sender of packets. Data in flight at the start of an outage
//! goes first, the retransmission timer decides when transmission resumes, and it resumes in slow
//! start. The optimum may therefore place frames, at the encoder's lowest rate, only where the
//! recorded connection carried segments, or would have carried more.

use core::time::Duration;

use tidegate_core::units::{Bytes, Time};

use super::FloorSender;
use crate::interactive::StreamSegment;

/// Record of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Connection<'a> {
    /// Segments in the order of the stream.
    pub slots: &'a [StreamSegment],
    /// Periods in which the connection accepted no data, in order.
    pub blocked: &'a [(Time, Time)],
    /// Bytes of the stream besides the access unit of each frame, in order of capture. Zero for
    /// frames that are not in the stream.
    pub framing: &'a [Bytes],
    /// Size of the access unit of each frame; none for frames that are not in the stream.
    pub units: &'a [Option<Bytes>],
}

impl Connection<'_> {
    /// Minimum delay of a segment.
    fn transit(&self) -> Duration {
        let transits = self.slots.iter().map(|slot| slot.arrived.since(slot.sent));
        transits.min().unwrap_or_default()
    }

    /// Intervals from transmission to arrival of segments that took more than two round trips.
    /// These segments were retransmitted, and blocked the delivery of later ones. Sorted and
    /// disjoint.
    fn repairs(&self) -> Vec<(Time, Time)> {
        let patience = self.transit().saturating_mul(4);
        let slow = self.slots.iter();
        let slow = slow.filter(|slot| slot.arrived.since(slot.sent) > patience);
        merged(slow.map(|slot| (slot.sent, slot.arrived)))
    }

    /// Intervals in which no segment could have been sent to arrive a transit time later.
    fn troubled(&self) -> Vec<(Time, Time)> {
        let mut spans: Vec<(Time, Time)> = self.blocked.to_vec();
        spans.extend(self.repairs());
        spans.sort_unstable();
        merged(spans.into_iter())
    }
}

impl FloorSender {
    /// Returns for each frame, captured at these times in order, whether it could have been saved
    /// over `connection`. TCP headers are those of the connection. The size of a frame is the share
    /// of the floor, or its actual size if that is smaller because sizes vary, plus the framing of
    /// the actual frame.
    pub fn savable_over(&self, connection: &Connection<'_>, captured: &[Time]) -> Vec<bool> {
        let floor: Bytes = self.packets().iter().map(|p| *p - self.overhead).sum();
        let (transit, troubled) = (connection.transit(), connection.troubled());
        let slots = connection.slots;
        // The first segment with free room, and its used bytes.
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

    /// The same for an optimum that only knows when the path was dead and when the first
    /// retransmission after a time-out arrived, as if the connection then delivered all data,
    /// including that in flight, at once. It is an upper bound for senders over this connection.
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

/// Send time of a frame: that of a segment that left shortly after the capture. A real encoder and
/// a real kernel need some time, and no sender can avoid losses in that time.
fn made(slots: &[StreamSegment], captured: Time) -> Time {
    let next = slots.partition_point(|slot| slot.sent < captured);
    let sent = slots.get(next).map(|slot| slot.sent);
    sent.filter(|sent| sent.since(captured) <= AT_ONCE)
        .unwrap_or(captured)
}

/// Places `bytes` into the segments from `cursor` on that left at `from` or later. Returns the end
/// position and the arrival of the last segment.
fn place(
    slots: &[StreamSegment],
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

/// The first time from `at` on that is outside of all intervals.
fn first_outside(spans: &[(Time, Time)], at: Time) -> Time {
    let after = spans.partition_point(|(from, _)| *from <= at);
    match after.checked_sub(1).map(|i| spans[i]) {
        Some((_, to)) if at < to => to,
        _ => at,
    }
}

/// Merges overlapping intervals, which must be sorted by start.
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

/// Maximum time from capture to transmission; kernel and model encoder take 0.3 ms, and below 1 ms
/// in 99 of 100 cases on an idle host.
const AT_ONCE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use tidegate_core::media::FrameRate;
    use tidegate_core::units::{Bytes, Rate};

    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// Frames of 80 kb/s at 10 frames per second have 1000 bytes, 1008 in the stream.
    fn sender(bound: u64) -> FloorSender {
        FloorSender {
            floor: Rate::kbps(80),
            frame_rate: FrameRate::fps(10),
            payload: Bytes(1_448),
            overhead: Bytes(52),
            bound: Duration::from_millis(bound),
        }
    }

    fn slot(sent: u64, arrived: u64) -> StreamSegment {
        StreamSegment {
            sent: at(sent),
            arrived: at(arrived),
            payload: 1_448,
        }
    }

    /// Frames of one segment every 100 ms that take 50 ms. The path is dead from 1000 ms to 1850
    /// ms, data in flight is retransmitted until 2000 ms, and then one segment passes per 100 ms
    /// until 2500 ms.
    fn connection() -> (Vec<StreamSegment>, Vec<(Time, Time)>) {
        let mut slots: Vec<StreamSegment> = (0..10).map(|n| slot(100 * n, 100 * n + 50)).collect();
        slots.extend([slot(1_000, 1_900), slot(1_100, 2_000)]);
        slots.extend((0..5).map(|n| slot(2_000 + 100 * n, 2_050 + 100 * n)));
        slots.extend((0..5).map(|n| slot(2_500 + 100 * n, 2_550 + 100 * n)));
        (slots, vec![(at(1_150), at(2_500))])
    }

    fn lost(saved: &[bool]) -> Vec<usize> {
        (0..saved.len()).filter(|n| !saved[*n]).collect()
    }

    #[test]
    fn frames_use_the_segments_of_the_connection() {
        let (slots, blocked) = connection();
        let connection = Connection {
            slots: &slots,
            blocked: &blocked,
            framing: &[Bytes(8); 30],
            units: &[],
        };
        let captured: Vec<Time> = (0..30).map(|n| at(100 * n)).collect();
        // Five segments from 2050 on hold seven frames (7,056 of 7,240 bytes). The frames of 1000
        // and 1100 are retransmitted too late; those of 1200 to 1500 have expired. From 2500 on the
        // path is free, and the frames that wait since 2000 fit.
        let saved = sender(500).savable_over(&connection, &captured);
        assert_eq!(lost(&saved), [10, 11, 12, 13, 14, 15]);
        // With a shorter bound, the frames until 1900 are too late.
        let saved = sender(100).savable_over(&connection, &captured);
        assert_eq!(lost(&saved), (10..20).collect::<Vec<_>>());
        // A short delay between capture and transmission has no effect.
        let later: Vec<StreamSegment> = slots
            .iter()
            .map(|slot| StreamSegment {
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
        // At twice the floor the frame of 1600 needs two segments, unless its actual size is
        // smaller.
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
        // An optimum that is only limited by the time-outs sends all waiting frames at 1900.
        let saved = sender(500).savable_after_time_outs(&connection, &captured);
        assert_eq!(lost(&saved), [10, 11, 12, 13, 14]);
    }
}
