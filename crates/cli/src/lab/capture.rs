//! Packets of kernel TCP flows in the emulator's log: send and arrival times, stream segments.

use std::collections::BTreeMap;

use tidegate_core::control::{Ecn, Kind, Outcome};
use tidegate_core::link::RouteId;
use tidegate_core::session::history::PacketRow;
use tidegate_core::units::{Bytes, RemoteTime, Time};
use tidegate_live::emulator::{EmulatorLog, Segment};
use tidegate_sim::interactive::StreamSegment;
use tidegate_sim::meter::Meter;

/// A packet of a kernel TCP flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CapturedPacket {
    /// Time at which the host sent it.
    pub(super) sent: Time,
    /// Time of delivery to the other host, and the ECN mark. `None` if the packet was lost.
    pub(super) arrived: Option<(Time, Ecn)>,
    pub(super) size: Bytes,
    pub(super) segment: Option<Segment>,
}

/// Packets of `route`, in sending order.
pub(super) fn passings(log: &EmulatorLog, route: RouteId) -> Vec<CapturedPacket> {
    let departures: BTreeMap<u64, (Time, Ecn)> = log
        .departures
        .iter()
        .map(|departure| (departure.id, (departure.written, departure.ecn)))
        .collect();
    let arrivals = log.arrivals.iter().filter(|a| a.route == route);
    arrivals
        .map(|arrival| CapturedPacket {
            sent: arrival.at,
            arrived: departures.get(&arrival.id).copied(),
            size: arrival.size,
            segment: arrival.segment,
        })
        .collect()
}

/// Segments of the stream in stream order. Each has the time of its first transmission and the time
/// at which it and all data before it had arrived. Segments that never arrived are left out.
pub(super) fn slots(passings: &[CapturedPacket]) -> Vec<StreamSegment> {
    let Some(first) = passings
        .iter()
        .find_map(|p| Some(p.segment.filter(|s| s.syn)?.sequence))
    else {
        return Vec::new();
    };
    // Byte range of a packet in the stream.
    let span = |passing: &CapturedPacket| {
        let segment = passing.segment.filter(|s| s.payload > 0 && !s.syn)?;
        let from = segment.sequence.wrapping_sub(first.wrapping_add(1));
        Some((from, from.saturating_add(u32::from(segment.payload))))
    };
    let progress = progress(passings, span);
    let mut progress = progress.into_iter().peekable();
    let (mut slots, mut next) = (Vec::new(), 0);
    for passing in passings {
        let Some((from, to)) = span(passing).filter(|(_, to)| *to > next) else {
            continue;
        };
        let payload = to - next.max(from);
        next = to;
        while progress.next_if(|(_, all)| *all < to).is_some() {}
        let Some((arrived, _)) = progress.peek() else {
            break;
        };
        slots.push(StreamSegment {
            sent: passing.sent,
            arrived: *arrived,
            payload,
        });
    }
    slots
}

/// Steps of the in-order delivery: from each time on, all bytes below the number have arrived.
fn progress(
    passings: &[CapturedPacket],
    span: impl Fn(&CapturedPacket) -> Option<(u32, u32)>,
) -> Vec<(Time, u32)> {
    let came = |p: &CapturedPacket| Some((p.arrived?.0, span(p)?));
    let mut came: Vec<(Time, (u32, u32))> = passings.iter().filter_map(came).collect();
    came.sort_unstable();
    let (mut all, mut beyond) = (0, BTreeMap::new());
    let mut steps = Vec::new();
    for (at, (from, to)) in came {
        let end = beyond.entry(from).or_insert(to);
        *end = to.max(*end);
        let before = all;
        while let Some(entry) = beyond.first_entry().filter(|e| *e.key() <= all) {
            all = all.max(entry.remove());
        }
        if all > before {
            steps.push((at, all));
        }
    }
    steps
}

/// Adds a kernel TCP flow to the meter.
pub(super) fn meter(
    meter: &mut Meter,
    flow: usize,
    there: &[CapturedPacket],
    back: &[CapturedPacket],
) {
    for passing in there {
        meter.sent(flow, passing.sent, passing.size);
        match passing.arrived {
            Some((at, _)) => meter.arrived(flow, at, passing.size, passing.sent),
            None => meter.dropped(flow, passing.sent),
        }
    }
    for passing in back {
        if let Some((at, _)) = passing.arrived {
            meter.count_returned(flow, at, passing.sent);
        }
    }
}

/// The flow's packets as rows of a run folder.
pub(super) fn packets(there: &[CapturedPacket]) -> Vec<PacketRow> {
    let row = |(seq, passing): (usize, &CapturedPacket)| PacketRow {
        seq: seq as u64,
        kind: Kind::Media,
        size: passing.size,
        sent: passing.sent,
        outcome: Some(match passing.arrived {
            Some((at, ecn)) => Outcome::Received {
                at: RemoteTime(at.as_nanos()),
                ecn,
            },
            None => Outcome::Lost,
        }),
    };
    there.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment of `payload` bytes at `offset` in a stream whose sequence numbers wrap soon.
    fn data(sent: u64, arrived: Option<u64>, offset: u32, payload: u16) -> CapturedPacket {
        CapturedPacket {
            sent: Time::from_millis(sent),
            arrived: arrived.map(|ms| (Time::from_millis(ms), Ecn::NotEct)),
            size: Bytes(u64::from(payload) + 52),
            segment: Some(Segment {
                sequence: (SYN + 1).wrapping_add(offset),
                payload,
                syn: false,
            }),
        }
    }

    fn syn() -> CapturedPacket {
        let mut syn = data(0, Some(10), 0, 0);
        syn.segment = Some(Segment {
            sequence: SYN,
            payload: 0,
            syn: true,
        });
        syn
    }

    fn slot_times(passings: &[CapturedPacket]) -> Vec<(u64, u64, u32)> {
        let ms = |at: Time| at.as_nanos() / 1_000_000;
        let slots = slots(passings);
        slots
            .iter()
            .map(|s| (ms(s.sent), ms(s.arrived), s.payload))
            .collect()
    }

    #[test]
    fn segment_arrives_when_all_data_before_it_has() {
        // The second segment is lost and retransmitted together with the next one.
        let passings = [
            syn(),
            data(20, Some(30), 0, 1_000),
            data(21, None, 1_000, 1_000),
            data(22, Some(32), 2_000, 500),
            data(60, Some(70), 1_000, 1_448),
            data(61, Some(71), 2_448, 52),
            data(80, Some(90), 2_500, 100),
        ];
        let expected = [
            (20, 30, 1_000),
            (21, 70, 1_000),
            (22, 70, 500),
            (80, 90, 100),
        ];
        assert_eq!(slot_times(&passings), expected);
    }

    #[test]
    fn overlap_counts_once_and_lost_data_not_at_all() {
        // The retransmission carries more data.
        let grown = [
            syn(),
            data(20, None, 0, 100),
            data(40, Some(50), 0, 300),
            data(60, None, 300, 10),
        ];
        assert_eq!(slot_times(&grown), [(20, 50, 100), (40, 50, 200)]);
        assert_eq!(slot_times(&grown[1..]), []);
        // Reordering: the last packet arrives first.
        let reordered = [syn(), data(20, Some(60), 0, 10), data(21, Some(31), 10, 10)];
        assert_eq!(slot_times(&reordered), [(20, 60, 10), (21, 60, 10)]);
    }

    const SYN: u32 = u32::MAX - 1_200;
}
