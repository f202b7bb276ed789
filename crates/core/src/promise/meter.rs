//! What the reports say about the queue and the capacity of the path.

use core::time::Duration;
use std::collections::VecDeque;

use crate::control::{Fate, Outcome, Report, Sent};
use crate::units::{Bytes, Rate, Time, nanos};

/// Reads queueing delay and capacity from per-packet arrival times.
///
/// One-way delays are differences between two clocks, so only their growth means something: the
/// smallest of the last minute is the path without a queue. What has not been lower for three
/// seconds is no queue of ours, since the planner empties its own in less; it counts as
/// *standing* delay (a longer route, somebody else's queue, a clock that was set) and is taken
/// from the budget instead of being drained. A drift of 100 ppm moves three seconds by 0.3 ms.
#[derive(Clone, Debug)]
pub struct PathMeter {
    minute: WindowMin,
    recent: WindowMin,
    rtt_minute: WindowMin,
    rtt_recent: WindowMin,
    /// The newest packet known to have arrived.
    last: Option<Last>,
    /// Sent after that packet, and what became of it is not known yet.
    unknown: VecDeque<(u64, Time, Bytes)>,
    /// Bits and seconds in which the path was busy, not yet enough for a sample.
    busy: Busy,
}

/// What one report said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// What the path delivered while it had a queue of ours; with `grew` as the verdict of this
    /// report alone.
    pub capacity: Option<Rate>,
    /// Bytes of this report over the time in which they arrived.
    pub delivered: Rate,
    /// There was a queue of ours all through this report.
    pub queued: bool,
    /// The queue grew by more than noise does: what was sent is more than the path carries.
    pub grew: bool,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    seq: u64,
    sent: Time,
    arrived: u64,
    /// Arrival minus departure: means nothing but by comparison.
    delay: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    bits: u64,
    nanos: u64,
    packets: u32,
}

impl PathMeter {
    /// A meter that knows nothing.
    pub fn new() -> Self {
        Self {
            minute: WindowMin::new(Duration::from_secs(10)),
            recent: WindowMin::new(Duration::from_millis(500)),
            rtt_minute: WindowMin::new(Duration::from_secs(10)),
            rtt_recent: WindowMin::new(Duration::from_millis(500)),
            last: None,
            unknown: VecDeque::new(),
            busy: Busy::default(),
        }
    }

    /// A packet left.
    pub fn on_sent(&mut self, now: Time, packet: &Sent) {
        if self.unknown.len() == MOST_UNKNOWN {
            self.unknown.pop_front();
        }
        self.unknown.push_back((packet.seq, now, packet.size));
    }

    /// Feedback came. `None` when it says nothing about arrivals.
    pub fn on_report(&mut self, now: Time, report: &Report<'_>) -> Option<Reading> {
        if let Some(rtt) = report.rtt {
            let rtt = nanos(rtt).min(i64::MAX as u64) as i64;
            self.rtt_minute.insert(now, rtt);
            self.rtt_recent.insert(now, rtt);
        }
        let before = self.last;
        let mut seen = Seen::default();
        for fate in report.fates {
            self.on_fate(now, fate, &mut seen);
        }
        let (last, first) = (self.last?, seen.first?);
        while self
            .unknown
            .front()
            .is_some_and(|(seq, ..)| *seq <= last.seq)
        {
            self.unknown.pop_front();
        }
        let queue = self.above_recent(last.delay);
        let earlier = self.above_recent(before.map_or(first, |b| b.delay).min(first));
        let grew = queue > earlier + GROWTH;
        let queued = self.above_recent(seen.lowest) > NOISE;
        let capacity = if grew || queued {
            self.busy.take()
        } else {
            self.busy = Busy::default();
            None
        };
        let since = before.map_or(last.arrived, |b| b.arrived);
        let span = Duration::from_nanos(last.arrived.saturating_sub(since));
        let delivered = if span.is_zero() {
            Rate::ZERO
        } else {
            seen.size / span
        };
        Some(Reading {
            capacity,
            delivered,
            queued,
            grew,
        })
    }

    fn on_fate(&mut self, now: Time, fate: &Fate, seen: &mut Seen) {
        let Outcome::Received { at, .. } = fate.outcome else {
            return;
        };
        // The clocks' epochs are arbitrary, so the difference may wrap; a later difference of two
        // such differences is right all the same.
        let delay = at.0.wrapping_sub(fate.sent.as_nanos()) as i64;
        self.minute.insert(now, delay);
        self.recent.insert(now, delay);
        seen.first.get_or_insert(delay);
        seen.lowest = seen.lowest.min(delay);
        seen.size += fate.size;
        let Some(last) = self.last else {
            self.last = Some(Last {
                seq: fate.seq,
                sent: fate.sent,
                arrived: at.0,
                delay,
            });
            return;
        };
        if fate.seq <= last.seq {
            return;
        }
        let gap = at.0.saturating_sub(last.arrived);
        // It reached the queue before the packet ahead of it had left: so the gap between the two
        // is time in which the path worked, and worked for this packet.
        let waited = (last.arrived.wrapping_sub(fate.sent.as_nanos()) as i64)
            .saturating_sub(self.recent.min().unwrap_or(delay));
        if waited > NOISE && gap < OUTAGE {
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

    /// How long the newest packet that arrived had waited in a queue of ours.
    pub fn queueing(&self) -> Duration {
        let waited = self.last.map_or(0, |l| self.above_recent(l.delay));
        Duration::from_nanos(waited as u64)
    }

    /// Delay above the smallest of the last minute that nothing we do has lowered in three
    /// seconds. Round trips, where there are samples, are the second witness: a remote clock
    /// that was set moves the one-way delays only.
    ///
    /// Zero when nothing has arrived for three seconds: then nobody knows, and a stream that
    /// stands still because of an old reading would never get a new one.
    pub fn standing(&self, now: Time) -> Duration {
        let one_way = self.recent.above(&self.minute, now);
        let round_trip = self.rtt_recent.above(&self.rtt_minute, now);
        Duration::from_nanos(
            round_trip
                .map_or(one_way, |r| one_way.map(|o| o.min(r)))
                .unwrap_or(0),
        )
    }

    /// What waits in the network now, if the path carries `capacity`: the queue that the newest
    /// arrival saw, and everything sent since, played through a queue that is served at that rate.
    pub fn in_network(&self, now: Time, capacity: Rate) -> Bytes {
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

    fn above_recent(&self, delay: i64) -> i64 {
        self.recent
            .min()
            .map_or(0, |low| delay.saturating_sub(low).max(0))
    }
}

impl Default for PathMeter {
    fn default() -> Self {
        Self::new()
    }
}

impl Busy {
    /// A sample, if there is enough for one.
    fn take(&mut self) -> Option<Rate> {
        if self.packets < ENOUGH_PACKETS || self.nanos < ENOUGH_NANOS {
            return None;
        }
        let sum = core::mem::take(self);
        Some(Bytes(sum.bits / 8) / Duration::from_nanos(sum.nanos))
    }
}

struct Seen {
    first: Option<i64>,
    lowest: i64,
    size: Bytes,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            first: None,
            lowest: i64::MAX,
            size: Bytes::ZERO,
        }
    }
}

/// The smallest value of the last five to six buckets of time.
#[derive(Clone, Copy, Debug)]
struct WindowMin {
    bucket: u64,
    /// Number of the bucket and its minimum.
    minima: [(u64, i64); BUCKETS],
}

impl WindowMin {
    fn new(bucket: Duration) -> Self {
        Self {
            bucket: nanos(bucket).max(1),
            minima: [(0, i64::MAX); BUCKETS],
        }
    }

    fn insert(&mut self, now: Time, value: i64) {
        let number = now.as_nanos() / self.bucket;
        for slot in &mut self.minima {
            if slot.0 + BUCKETS as u64 <= number {
                *slot = (number, i64::MAX);
            }
        }
        let slot = &mut self.minima[(number % BUCKETS as u64) as usize];
        let kept = if slot.0 == number { slot.1 } else { i64::MAX };
        *slot = (number, kept.min(value));
    }

    fn min(&self) -> Option<i64> {
        let low = self.minima.iter().map(|(_, v)| *v).min()?;
        (low < i64::MAX).then_some(low)
    }

    /// By how much the minimum of this window is above that of a longer one; `None` if there is
    /// no value of the last buckets before `now`.
    fn above(&self, longer: &Self, now: Time) -> Option<u64> {
        let oldest = (now.as_nanos() / self.bucket).saturating_sub(BUCKETS as u64 - 1);
        let fresh = self.minima.iter().filter(|(n, _)| *n >= oldest);
        let low = fresh.map(|(_, v)| *v).min().filter(|v| *v < i64::MAX)?;
        Some(low.saturating_sub(longer.min()?).max(0) as u64)
    }
}

const BUCKETS: usize = 6;
/// Waiting shorter than this is jitter, not a queue.
const NOISE: i64 = 4_000_000;
/// A queue that grows by more within one report is no jitter either: at 50 ms per report this is
/// a path that carries a sixth less than what is sent.
const GROWTH: i64 = 8_000_000;
/// A gap this long between two arrivals is an outage and says nothing about the rate.
const OUTAGE: u64 = 150_000_000;
/// Fewer packets, or less time, and the grain of packets shows: 5 packets are 20 %.
const ENOUGH_PACKETS: u32 = 5;
const ENOUGH_NANOS: u64 = 10_000_000;
/// One second at 80 Mb/s in packets of 1,200 bytes.
const MOST_UNKNOWN: usize = 8_192;
