//! Largest packet that the path carries: datagram packetisation layer path MTU discovery (RFC 8899).
//!
//! The stream begins with the configured size, and its own packets confirm it. A black hole loses
//! all packets above some size, and no message tells the sender. It shows as losses of large packets
//! between which smaller ones arrive. The size then falls to one that is known to arrive, and probes
//! of a receiver that reports on each packet search for the largest one. The rate control never
//! learns of a probe, so that its loss is no congestion (RFC 8899 section 3).

use core::time::Duration;
use std::collections::VecDeque;

use crate::units::{Bytes, Time};

/// State of the discovery. Sizes are those of IP packets.
#[derive(Debug)]
pub(super) struct PacketSize {
    /// The configured size.
    largest: Bytes,
    current: Bytes,
    /// Size and arrival of the last packets whose fate is known, in sending order.
    recent: VecDeque<(Bytes, bool)>,
    search: Option<Search>,
    /// Time of the next search.
    raise: Option<Time>,
    /// Sequence number of the next probe.
    next: u16,
}

/// A search for the largest size that arrives.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// Largest size that may arrive.
    most: Bytes,
    /// Size of the next probe, or of the one in flight.
    size: Bytes,
    /// Probes of this size so far (`PROBE_COUNT`).
    count: u32,
    /// Sequence number and departure time of the probe in flight.
    flight: Option<(u16, Time)>,
}

/// A probe to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeProbe {
    pub(super) sequence: u16,
    pub(super) size: Bytes,
}

impl PacketSize {
    /// Starts with `largest`, the configured size.
    pub(super) fn new(largest: Bytes) -> Self {
        Self {
            largest,
            current: largest,
            recent: VecDeque::new(),
            search: None,
            raise: None,
            next: 0,
        }
    }

    /// Maximum size of packets of the stream (`PLPMTU`).
    pub(super) fn current(&self) -> Bytes {
        self.current
    }

    /// The size below the configured one that a completed search has found, or that no search can
    /// raise as the receiver reports no probes.
    pub(super) fn found(&self, reports_probes: bool) -> Option<Bytes> {
        let is_final = self.search.is_none() || !reports_probes;
        (self.current < self.largest && is_final).then_some(self.current)
    }

    /// The fate of a packet of the stream.
    pub(super) fn on_outcome(&mut self, size: Bytes, arrived: bool) {
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((size, arrived));
    }

    /// Forgets all outcomes.
    pub(super) fn forget(&mut self) {
        self.recent.clear();
    }

    /// Reduces the size if larger packets vanish in a black hole. Returns whether it has.
    pub(super) fn detect(&mut self) -> bool {
        let Some(arriving) = self.hole() else {
            return false;
        };
        self.current = arriving.clamp(FLOOR.min(self.largest), self.largest);
        true
    }

    /// The largest size that arrives, if all packets above it are lost.
    fn hole(&self) -> Option<Bytes> {
        // Sizes that arrived later than all larger ones.
        let mut arriving = FLOOR;
        for (begin, (size, arrived)) in self.recent.iter().enumerate().rev() {
            if *arrived && *size > arriving {
                if self.is_hole_since(begin + 1, arriving) {
                    return Some(arriving);
                }
                arriving = *size;
            }
        }
        self.is_hole_since(0, arriving).then_some(arriving)
    }

    /// Whether the losses of all packets above `arriving` since `begin` are no accident. Smaller
    /// packets give the loss rate of the path. Packets between two smaller arrivals may share a
    /// burst, so that only some of them count, and a single burst is no hole.
    fn is_hole_since(&self, begin: usize, arriving: Bytes) -> bool {
        let (mut lost, mut small) = (0_i32, [0_u32; 2]);
        let (mut bursts, mut length) = (0, 0);
        for (size, arrived) in self.recent.range(begin..) {
            if *size <= arriving || *arrived {
                small[usize::from(*arrived)] += 1;
                if *arrived && length > 0 {
                    (bursts, length) = (bursts + 1, 0);
                }
            } else if length < BURST {
                (lost, length) = (lost + 1, length + 1);
            }
        }
        // Laplace's rule of succession.
        let rate = f64::from(small[0] + 1) / f64::from(small[0] + small[1] + 2);
        bursts >= BURSTS && libm::pow(rate, f64::from(lost)) < ACCIDENT
    }

    /// The stream begins again, after a reduction or on another path: searches at once.
    pub(super) fn restart(&mut self) {
        self.recent.clear();
        (self.search, self.raise) = (None, None);
        if self.current < self.largest {
            // A false alarm ends with the first probe.
            self.search = Some(Search::at(self.largest, self.largest));
        }
    }

    /// Time of the next probe, or of the end of one without an answer.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self.search {
            Some(Search { flight, .. }) => {
                Some(flight.map_or(Time::ZERO, |(_, sent)| sent + PROBE_TIMER))
            }
            None => self.raise,
        }
    }

    /// The probe that leaves now, if one is due.
    pub(super) fn poll_probe(&mut self, now: Time) -> Option<SizeProbe> {
        if self.raise.is_some_and(|at| at <= now) {
            self.restart();
        }
        let search = self.search?;
        if let Some((_, sent)) = search.flight {
            if now.since(sent) < PROBE_TIMER {
                return None;
            }
            self.on_lost(now);
        }
        let search = self.search.as_mut()?;
        let sequence = self.next;
        search.flight = Some((sequence, now));
        search.count += 1;
        self.next = self.next.wrapping_add(1);
        let size = search.size;
        Some(SizeProbe { sequence, size })
    }

    /// The receiver reports the arrival of a probe. Returns whether it was in flight.
    pub(super) fn on_arrival(&mut self, now: Time, sequence: u16) -> bool {
        let Some(search) = self.search else {
            return false;
        };
        if search.flight.is_none_or(|(sent, _)| sent != sequence) {
            return false;
        }
        self.current = search.size;
        self.search_on(now, search.most);
        true
    }

    /// The receiver reports the arrival of a packet of the stream that left at `sent`.
    pub(super) fn on_progress(&mut self, now: Time, sent: Time) {
        let flight = self.search.and_then(|search| search.flight);
        if flight.is_some_and(|(_, probe)| sent.since(probe) >= OVERTAKEN) {
            self.on_lost(now);
        }
    }

    /// The probe in flight is lost.
    fn on_lost(&mut self, now: Time) {
        let Some(search) = &mut self.search else {
            return;
        };
        search.flight = None;
        if search.count >= MAX_PROBES {
            let most = search.size - Bytes(1);
            self.search_on(now, most);
        }
    }

    /// Continues the search between the present size and `most`.
    fn search_on(&mut self, now: Time, most: Bytes) {
        let range = most.saturating_sub(self.current).get();
        let size = self.current + Bytes(range.div_ceil(2));
        self.search = (range > 0).then(|| Search::at(size, most));
        let is_reduced = self.search.is_none() && self.current < self.largest;
        self.raise = is_reduced.then(|| now + RAISE_TIMER);
    }
}

impl Search {
    fn at(size: Bytes, most: Bytes) -> Self {
        Self {
            most,
            size,
            count: 0,
            flight: None,
        }
    }
}

/// Smallest size, whatever is reported: the datagram that every IPv4 host accepts (RFC 791 section
/// 3.1), and more than half of it is payload. Forged reports cannot make packets smaller.
const FLOOR: Bytes = Bytes(576);
/// Ten frames of 25 packets.
const REMEMBERED: usize = 256;
/// Losses that count of those between two smaller arrivals.
const BURST: u32 = 3;
/// An outage is one burst. The smallest number that is no coincidence of two.
const BURSTS: u32 = 3;
/// Probability of a false alarm, if losses were independent. Each report with losses tests many sizes.
const ACCIDENT: f64 = 1e-9;
/// `MAX_PROBES` of RFC 8899 section 5.1.2.
const MAX_PROBES: u32 = 3;
/// `PROBE_TIMER` of RFC 8899 section 5.1.1: at least one second.
const PROBE_TIMER: Duration = Duration::from_secs(1);
/// Reports show earlier that a probe is lost: a packet that left so much later has arrived. More than
/// the feedback on probes takes longer than that on other packets, and than most reordering.
const OVERTAKEN: Duration = Duration::from_millis(100);
/// `PMTU_RAISE_TIMER` of RFC 8899 section 5.1.1.
const RAISE_TIMER: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests;
