//! Sequence numbers of an application's packets: arrivals and losses, in order.

use std::collections::VecDeque;

use crate::control::Ecn;
use crate::units::{Bytes, Time};

/// Arrival of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Time,
    /// On the wire, all headers included.
    pub size: Bytes,
    /// ECN field.
    pub ecn: Ecn,
}

/// Event of the packet stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketEvent {
    /// A packet was lost. It would have arrived at about this time.
    Lost(Time),
    /// A packet arrived.
    Received(Arrival),
}

/// Place of an arrival in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The newest packet so far, or an older one that still counts.
    Expected { is_newest: bool },
    /// A duplicate, or a packet that counts as lost.
    Late,
    /// Far from all others. Two in sequence begin a new stream.
    Jump,
}

/// Detects gaps in the sequence numbers of 24 bits.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    /// Arrivals after a gap that declare it lost.
    tolerance: usize,
    /// Next number whose fate is open. `None` before the first packet.
    next: Option<u32>,
    /// Time of the last event.
    last: Time,
    /// Arrivals after a gap, as distances from `next`, ascending; fewer than `tolerance`.
    held: VecDeque<(u32, Arrival)>,
    /// Number that would confirm a new stream.
    confirming: Option<u32>,
}

impl Gaps {
    pub(super) fn new(tolerance: u32) -> Self {
        Self {
            tolerance: tolerance as usize,
            next: None,
            last: Time::ZERO,
            held: VecDeque::new(),
            confirming: None,
        }
    }

    /// Processes the arrival of packet `seq`, and appends the events whose order is certain.
    pub(super) fn on_arrival(
        &mut self,
        seq: u32,
        arrival: Arrival,
        events: &mut Vec<PacketEvent>,
    ) -> Place {
        let Some(next) = self.next else {
            self.restart(seq, arrival, events);
            return Place::Expected { is_newest: true };
        };
        let ahead = seq.wrapping_sub(next) & MASK;
        if ahead > MASK - MAX_LATE {
            return Place::Late;
        }
        if ahead > MAX_MISSING {
            if self.confirming == Some(seq) {
                // The size of the gap is unknown, so it counts as a single loss.
                events.push(PacketEvent::Lost(arrival.at));
                self.restart(seq, arrival, events);
                return Place::Expected { is_newest: true };
            }
            self.confirming = Some(seq.wrapping_add(1) & MASK);
            return Place::Jump;
        }
        let place = self.held.partition_point(|(held, _)| *held < ahead);
        if self.held.get(place).is_some_and(|(held, _)| *held == ahead) {
            return Place::Late;
        }
        let is_newest = place == self.held.len();
        self.held.insert(place, (ahead, arrival));
        self.confirming = None;
        self.release(events);
        Place::Expected { is_newest }
    }

    fn restart(&mut self, seq: u32, arrival: Arrival, events: &mut Vec<PacketEvent>) {
        self.held.clear();
        self.confirming = None;
        self.next = Some(seq.wrapping_add(1) & MASK);
        self.last = arrival.at;
        events.push(PacketEvent::Received(arrival));
    }

    /// Releases arrivals without a gap before them, and gaps that count as lost.
    fn release(&mut self, events: &mut Vec<PacketEvent>) {
        while let Some(&(missing, arrival)) = self.held.front() {
            if missing > 0 && self.held.len() < self.tolerance {
                return;
            }
            // Lost packets would have arrived evenly between their neighbours (RFC 5348 section
            // 5.2).
            let gap = arrival.at.since(self.last) / (missing + 1);
            let lost = (1..=missing).map(|n| PacketEvent::Lost(self.last + gap * n));
            events.extend(lost);
            events.push(PacketEvent::Received(arrival));
            self.last = self.last.max(arrival.at);
            self.held.pop_front();
            for (ahead, _) in &mut self.held {
                *ahead -= missing + 1;
            }
            let next = self.next.unwrap_or(0);
            self.next = Some(next.wrapping_add(missing + 1) & MASK);
        }
    }
}

/// Range of sequence numbers.
const MASK: u32 = 0xff_ffff;
/// Largest gap that is certain to be losses, as in RFC 3550 appendix A.1. It bounds the work for a
/// packet.
const MAX_MISSING: u32 = 3_000;
/// Older packets belong to another stream.
const MAX_LATE: u32 = 3_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(ms: u64) -> Arrival {
        Arrival {
            at: Time::from_millis(ms),
            size: Bytes(1_000),
            ecn: Ecn::NotEct,
        }
    }

    /// Times of events in ms, lost packets negative; arrivals are a millisecond apart.
    fn events(gaps: &mut Gaps, seqs: &[u32]) -> Vec<i64> {
        let mut all = Vec::new();
        for (ms, seq) in seqs.iter().enumerate() {
            gaps.on_arrival(*seq, arrival(ms as u64 * 12), &mut all);
        }
        let ms = |at: Time| (at.as_nanos() / 1_000_000) as i64;
        let sign = |event: &PacketEvent| match event {
            PacketEvent::Lost(at) => -ms(*at),
            PacketEvent::Received(arrival) => ms(arrival.at),
        };
        all.iter().map(sign).collect()
    }

    #[test]
    fn a_gap_is_lost_after_three_later_packets() {
        let mut gaps = Gaps::new(3);
        assert_eq!(events(&mut gaps, &[7, 10, 11]), [0]);
        let mut gaps = Gaps::new(3);
        assert_eq!(events(&mut gaps, &[7, 10, 11, 12]), [0, -4, -8, 12, 24, 36]);
        // The paper's rule.
        let mut gaps = Gaps::new(1);
        assert_eq!(events(&mut gaps, &[7, 10]), [0, -4, -8, 12]);
    }

    #[test]
    fn reordered_packets_are_no_losses() {
        let mut gaps = Gaps::new(3);
        assert_eq!(events(&mut gaps, &[1, 3, 4, 2, 5]), [0, 36, 12, 24, 48]);
    }

    #[test]
    fn numbers_wrap() {
        let mut gaps = Gaps::new(1);
        assert_eq!(events(&mut gaps, &[MASK, 0, 2]), [0, 12, -18, 24]);
    }

    #[test]
    fn replays_and_jumps_change_nothing() {
        let mut gaps = Gaps::new(3);
        let mut out = Vec::new();
        for seq in 100..110 {
            gaps.on_arrival(seq, arrival(0), &mut out);
        }
        out.clear();
        for seq in [100, 109, 50] {
            assert_eq!(gaps.on_arrival(seq, arrival(1), &mut out), Place::Late);
        }
        for seq in [1_000_000, 2_000_000, 1_000_000] {
            assert_eq!(gaps.on_arrival(seq, arrival(1), &mut out), Place::Jump);
        }
        assert!(out.is_empty());
        let place = gaps.on_arrival(110, arrival(2), &mut out);
        assert_eq!(place, Place::Expected { is_newest: true });
        assert_eq!(out, [PacketEvent::Received(arrival(2))]);
    }

    #[test]
    fn two_packets_in_sequence_begin_a_new_stream() {
        let mut gaps = Gaps::new(3);
        let mut out = Vec::new();
        gaps.on_arrival(100, arrival(0), &mut out);
        gaps.on_arrival(9_000_000, arrival(1), &mut out);
        out.clear();
        gaps.on_arrival(9_000_001, arrival(2), &mut out);
        let restart = [
            PacketEvent::Lost(Time::from_millis(2)),
            PacketEvent::Received(arrival(2)),
        ];
        assert_eq!(out, restart);
    }

    #[test]
    fn work_per_packet_is_bounded() {
        let mut gaps = Gaps::new(3);
        let mut out = Vec::new();
        for n in 0..100_000_u32 {
            out.clear();
            gaps.on_arrival(
                n.wrapping_mul(2_999) & MASK,
                arrival(u64::from(n)),
                &mut out,
            );
            assert!(out.len() <= 3 * (MAX_MISSING as usize + 1) && gaps.held.len() < 3);
        }
    }
}
