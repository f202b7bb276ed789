//! Measures the queue and the capacity of the path from reports.

use core::time::Duration;
use std::collections::VecDeque;

use super::delays::Delays;
use super::jitter::Jitter;
use crate::control::{Outcome, PacketOutcome, Report, Sent};
use crate::path::window::WindowMin;
use crate::units::{Bytes, Rate, Time, nanos};

/// Derives queueing delay and capacity from per-packet arrival times.
///
/// One-way delays are differences of two clocks, so only their changes are meaningful. The minimum
/// of the last minute is the path without a queue. A delay that has not been lower for three
/// seconds is no queue of this sender, since the planner drains its own in less. It counts as
/// *standing* delay (a longer route, another flow's queue, a clock step) and is subtracted from the
/// budget instead of being drained. A drift of 100 ppm changes three seconds by 0.3 ms.
///
/// Jitter ([`jitter_bound`](Self::jitter_bound)) is no queue either: only delay beyond it counts as queueing.
#[derive(Clone, Debug)]
pub(super) struct PathMeter {
    one_way: Delays,
    round_trip: Delays,
    /// Negated one-way delays of the last half second, for the maximum.
    largest: WindowMin,
    /// Competing flows hold the queue.
    contested: bool,
    /// Queueing delay at packet losses, ns.
    full: WindowMin,
    /// The newest packet known to have arrived.
    last: Option<Last>,
    /// Packets sent after `last` without a report.
    unknown: VecDeque<(u64, Time, Bytes)>,
    /// Bits and seconds in which the path was busy, not yet enough for a sample.
    busy: Busy,
    jitter: Jitter,
    /// Delays of the newest packets that count for the jitter, oldest first.
    leaders: VecDeque<i64>,
    /// Medians of `leaders`.
    levels: WindowMin,
    /// The queue grew and its service rate is not measured yet.
    growing: bool,
}

/// Measurements of one report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    /// Delivery rate while this sender had a queue; with `grew`, that of this report alone.
    pub(super) capacity: Option<Sample>,
    /// Bytes of this report over the time in which they arrived.
    pub(super) delivered: Rate,
    /// With `grew` and without `capacity`: a first estimate from two packets or more. It may be
    /// wrong by a third and is valid until there is a sample.
    pub(super) hint: Option<Rate>,
    /// This sender had a queue throughout the report.
    pub(super) queued: bool,
    /// The queue grew by more than noise: the sending rate exceeds the capacity.
    pub(super) grew: bool,
}

/// A delivery rate of the busy path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Measured rate.
    pub(super) rate: Rate,
    /// Lower bound of the rate, if jitter shortened the measured time; used to raise an estimate.
    pub(super) lower_bound: Rate,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    seq: u64,
    sent: Time,
    arrived: u64,
    /// Arrival minus departure; only differences of two delays are meaningful.
    delay: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    bits: u64,
    nanos: u64,
    packets: u32,
}

impl PathMeter {
    /// A meter without measurements.
    pub(super) fn new() -> Self {
        Self {
            one_way: Delays::new(),
            round_trip: Delays::new(),
            largest: WindowMin::new(Duration::from_millis(100)),
            contested: false,
            full: WindowMin::new(Duration::from_secs(10)),
            last: None,
            unknown: VecDeque::new(),
            busy: Busy::default(),
            jitter: Jitter::new(),
            leaders: VecDeque::with_capacity(LEADERS),
            levels: WindowMin::new(RISING),
            growing: false,
        }
    }

    /// Records a sent packet.
    pub(super) fn on_sent(&mut self, now: Time, packet: &Sent) {
        if self.unknown.len() == MAX_UNKNOWN {
            self.unknown.pop_front();
        }
        self.unknown.push_back((packet.seq, now, packet.size));
    }

    /// Processes feedback; `None` if it reports no arrivals.
    pub(super) fn on_report(&mut self, now: Time, report: &Report<'_>) -> Option<Reading> {
        if let Some(rtt) = report.rtt {
            let rtt = nanos(rtt).min(i64::MAX as u64) as i64;
            self.round_trip.insert(now, rtt);
        }
        let before = self.last;
        let mut seen = Seen::default();
        for fate in report.packets {
            self.on_outcome(now, fate, &mut seen);
        }
        let (last, first) = (self.last?, seen.first?);
        while self
            .unknown
            .front()
            .is_some_and(|(seq, ..)| *seq <= last.seq)
        {
            self.unknown.pop_front();
        }
        let deviation = self.jitter.deviation();
        let earlier = before.map_or(first, |b| b.delay).min(first);
        let jumped = last.delay.saturating_sub(earlier) > GROWTH + JUMP_DEVIATIONS * deviation;
        if jumped {
            // This report signals the growth. The median of the leaders must not signal it again.
            self.leaders.clear();
            self.leaders.push_back(last.delay);
            self.levels = WindowMin::new(RISING);
        }
        let queued = self.level() > NOISE + deviation * 5 / 4;
        // Growth remains signalled until there is a sample for it or the queue is gone.
        self.growing = self.rose(now, deviation) || jumped || (self.growing && queued);
        let grew = self.growing;
        let capacity = if grew || queued {
            self.busy.take(deviation)
        } else {
            self.busy = Busy::default();
            None
        };
        let hint = (grew && capacity.is_none()).then(|| self.busy.hint(deviation));
        self.growing &= capacity.is_none();
        let since = before.map_or(last.arrived, |b| b.arrived);
        let span = Duration::from_nanos(last.arrived.saturating_sub(since));
        let delivered = if span.is_zero() {
            Rate::ZERO
        } else {
            seen.size / span
        };
        Some(Reading {
            capacity,
            hint: hint.flatten(),
            delivered,
            queued,
            grew,
        })
    }

    fn on_outcome(&mut self, now: Time, fate: &PacketOutcome, seen: &mut Seen) {
        let Outcome::Received { at, .. } = fate.outcome else {
            self.full.insert(now, nanos(self.recent_max_delay()) as i64);
            return;
        };
        // The epochs of the clocks are arbitrary, so the difference may wrap. The difference of two
        // delays is still correct.
        let delay = at.0.wrapping_sub(fate.sent.as_nanos()) as i64;
        self.one_way.insert(now, delay);
        self.largest.insert(now, delay.saturating_neg());
        seen.first.get_or_insert(delay);
        seen.size += fate.size;
        if self.last.is_some_and(|last| fate.seq <= last.seq) {
            return;
        }
        if self.jitter.add(fate.sent, delay) {
            if self.leaders.len() == LEADERS {
                self.leaders.pop_front();
            }
            self.leaders.push_back(delay);
        }
        let Some(last) = self.last else {
            self.last = Some(Last {
                seq: fate.seq,
                sent: fate.sent,
                arrived: at.0,
                delay,
            });
            return;
        };
        let gap = at.0.saturating_sub(last.arrived);
        // If this packet reached the queue before the previous one left, the path spent the gap
        // between the two arrivals on this packet.
        let waited = self.waited(
            (last.arrived.wrapping_sub(fate.sent.as_nanos())) as i64,
            delay,
            gap,
        );
        if waited > NOISE + self.jitter.deviation() * 7 / 4 && gap < OUTAGE {
            self.busy.bits += fate.size.bits();
            self.busy.nanos += gap;
            self.busy.packets += 1;
        }
        self.last = Some(Last {
            seq: fate.seq,
            sent: fate.sent,
            arrived: at.0.max(last.arrived),
            delay,
        });
    }

    /// Time that a packet waited behind the previous one. `behind` is the time from its departure
    /// to the arrival of the previous packet, with the jitter of the previous packet. The mean with
    /// the value from its own arrival avoids that busy periods begin and end at packets whose
    /// jitter makes the periods look short.
    fn waited(&self, behind: i64, delay: i64, gap: u64) -> i64 {
        let after = delay.saturating_sub(gap.min(OUTAGE) as i64);
        self.above_usual(behind.midpoint(after))
    }

    /// Queueing delay of the newest arrived packet in this sender's queue.
    pub(super) fn queueing(&self) -> Duration {
        let waited = self.last.map_or(0, |l| self.above_usual(l.delay));
        Duration::from_nanos(waited as u64)
    }

    /// Bound on the jitter above the smallest delay, up to 125 ms; hardly any packet exceeds it.
    /// Zero until about eight frames have arrived.
    pub(super) fn jitter_bound(&self) -> Duration {
        self.jitter.extent()
    }

    /// Whether the queue has grown by more than noise since its minimum in the last second, or
    /// since this was last true.
    fn rose(&mut self, now: Time, deviation: i64) -> bool {
        let level = self.level();
        self.levels.insert(now, level);
        let lowest = self.levels.min().unwrap_or(level);
        let rose = level - lowest > GROWTH + RISE_DEVIATIONS * deviation;
        if rose {
            self.levels = WindowMin::new(RISING);
            self.levels.insert(now, level);
        }
        rose
    }

    /// Queueing delay of this sender at the start of a frame, ns.
    pub(super) fn level(&self) -> i64 {
        self.leader().map_or(0, |middle| self.above_usual(middle))
    }

    /// Total queueing delay of all flows, ns. Negative where jitter is less than usual.
    pub(super) fn level_of_all(&self) -> i64 {
        let least = self.one_way.least().unwrap_or(0);
        let usual = least.saturating_add(self.jitter.usual());
        self.leader()
            .map_or(0, |middle| middle.saturating_sub(usual))
    }

    /// Median delay of the newest leaders; `None` before the first.
    fn leader(&self) -> Option<i64> {
        let mut delays: Vec<i64> = self.leaders.iter().copied().collect();
        delays.sort_unstable();
        delays.get(delays.len() / 2).copied()
    }

    /// Standard deviation of the jitter, ns.
    pub(super) fn deviation(&self) -> i64 {
        self.jitter.deviation()
    }

    /// Competing flows hold the queue. Until [`end_contention`](Self::end_contention) the current
    /// minimum delay counts as [`standing`](Self::standing) delay at once, and later after one
    /// second instead of three.
    pub(super) fn begin_contention(&mut self, now: Time) {
        self.contested = true;
        self.one_way.begin_contention(now);
        self.round_trip.begin_contention(now);
        self.growing = false;
        self.busy = Busy::default();
        self.levels = WindowMin::new(RISING);
    }

    /// Competing flows no longer hold the queue.
    pub(super) fn end_contention(&mut self) {
        self.contested = false;
    }

    /// Whether the queue is nearly as long as at a packet loss of the last minute.
    pub(super) fn is_nearly_full(&self) -> bool {
        let full = self.full.min().map_or(u64::MAX, i64::unsigned_abs);
        nanos(self.recent_max_delay()) > full - full / FULL_DIVISOR
    }

    /// Largest delay of the last half second above the minimum of the last minute: the delay of a
    /// packet next to competing flows.
    pub(super) fn recent_max_delay(&self) -> Duration {
        let height = self
            .largest
            .min()
            .zip(self.one_way.least())
            .map_or(0, |(largest, least)| {
                largest.saturating_neg().saturating_sub(least)
            });
        Duration::from_nanos(height.max(0) as u64)
    }

    /// Delay above the minimum of the last minute that lower sending rates have not reduced in
    /// three seconds. Round trips, where there are samples, confirm it: a step of the remote clock
    /// changes the one-way delays only.
    ///
    /// Zero when nothing has arrived for three seconds: an outdated value could stop the stream,
    /// and a stopped stream would never measure a new one.
    pub(super) fn standing(&self, now: Time) -> Duration {
        let one_way = self.one_way.standing(self.contested, now);
        let round_trip = self.round_trip.standing(self.contested, now);
        Duration::from_nanos(
            round_trip
                .map_or(one_way, |r| one_way.map(|o| o.min(r)))
                .unwrap_or(0),
        )
    }

    /// Bytes in the network now, if the path carries `capacity`: the queue at the newest arrival
    /// and everything sent since, served at that rate.
    pub(super) fn in_network(&self, now: Time, capacity: Rate) -> Bytes {
        let Some(last) = self.last else {
            return self.unknown.iter().map(|(.., size)| *size).sum();
        };
        let mut queue = capacity * self.queueing();
        let mut at = last.sent;
        for (_, sent, size) in &self.unknown {
            queue = queue - capacity * sent.since(at) + *size;
            at = *sent;
        }
        queue - capacity * now.since(at)
    }

    /// Queueing delay of a packet sent now, if the path carries `capacity`; at most that of the
    /// newest arrival. If the report of the oldest packet in flight is overdue, the path carries
    /// less, and the result is the delay of the newest arrival.
    pub(super) fn queueing_delay(&self, now: Time, capacity: Rate) -> Duration {
        let seen = self.queueing();
        let (Some(last), Some((_, sent, size))) = (self.last, self.unknown.front()) else {
            return seen;
        };
        let rtt = self.round_trip.least().unwrap_or(0).unsigned_abs();
        let ahead = seen.saturating_sub(sent.since(last.sent));
        let due = *sent + Duration::from_nanos(rtt) + ahead + *size / capacity.max(Rate::bps(1));
        if now > due + REPORTED {
            return seen;
        }
        seen.min(self.in_network(now, capacity) / capacity.max(Rate::bps(1)))
    }

    /// Part of `delay` above the usual delay without a queue.
    fn above_usual(&self, delay: i64) -> i64 {
        self.one_way.low(self.contested).map_or(0, |low| {
            let usual = low.saturating_add(self.jitter.usual());
            delay.saturating_sub(usual).max(0)
        })
    }
}

impl Default for PathMeter {
    fn default() -> Self {
        Self::new()
    }
}

impl Busy {
    /// First estimate of the rate, if there are enough packets for one.
    fn hint(&self, deviation: i64) -> Option<Rate> {
        let enough = self.packets >= ENOUGH_FOR_A_HINT
            && self.nanos >= ENOUGH_NANOS + 5 * deviation.unsigned_abs();
        enough.then(|| Bytes(self.bits / 8) / Duration::from_nanos(self.nanos))
    }

    /// Sample of the rate, if there are enough packets for one.
    fn take(&mut self, deviation: i64) -> Option<Sample> {
        // The jitter of the first and the last packet adds up to an error of 1.4 (√2) deviations.
        let deviation = deviation.unsigned_abs();
        if self.packets < ENOUGH_PACKETS || self.nanos < ENOUGH_NANOS + 5 * deviation {
            return None;
        }
        let sum = core::mem::take(self);
        let over = |nanos| Bytes(sum.bits / 8) / Duration::from_nanos(nanos);
        Some(Sample {
            rate: over(sum.nanos),
            lower_bound: over(sum.nanos + 3 * deviation),
        })
    }
}

#[derive(Default)]
struct Seen {
    first: Option<i64>,
    size: Bytes,
}

/// A shorter queueing delay, in ns, may be due to the granularity of timers and packets.
const NOISE: i64 = 4_000_000;
/// Growth of the queue within one report, in ns, above which it is not jitter. At 50 ms per report
/// the path then carries a sixth less than the sending rate.
const GROWTH: i64 = 8_000_000;
/// Additional growth within one report, in deviations of the jitter. The difference of two packets
/// has 1.4 deviations itself, and a false detection is expensive.
const JUMP_DEVIATIONS: i64 = 4;
/// Additional growth of the median, in deviations of the jitter. The smallest median of a second is
/// one deviation below their mean, and one of a thousand medians is two deviations above it.
const RISE_DEVIATIONS: i64 = 3;
/// A sixth of the second in which the growth of a queue is measured.
const RISING: Duration = Duration::from_millis(170);
/// Covers a tenth to a seventh of a second. The median of five delays has half of the deviation of
/// one delay.
const LEADERS: usize = 5;
/// A TCP transfer adds a fourteenth to a queue of 300 ms in two to ten seconds.
const FULL_DIVISOR: u64 = 14;
/// A longer gap between two arrivals, in ns, is an outage and no sample of the rate.
const OUTAGE: u64 = 150_000_000;
/// Limits the error due to packet granularity: one of five packets is 20 %.
const ENOUGH_PACKETS: u32 = 5;
/// With two gaps, a packet of another flow affects only one.
const ENOUGH_FOR_A_HINT: u32 = 2;
/// Time from an arrival to its report: two intervals of 25 ms, and 25 ms for timers and jitter.
const REPORTED: Duration = Duration::from_millis(75);
/// See [`ENOUGH_PACKETS`].
const ENOUGH_NANOS: u64 = 10_000_000;
/// Packets of 1,200 bytes in one second at 80 Mb/s.
const MAX_UNKNOWN: usize = 8_192;

#[cfg(test)]
mod tests;
