//! One-way delay: base, queue and jitter.

use std::collections::VecDeque;

use super::base::BaseDelay;
use super::window::WindowMax;

/// Delays in the queue of the bottleneck, in seconds: one-way delays above the base delay.
#[derive(Clone, Debug)]
pub(crate) struct Delays {
    base: BaseDelay,
    /// Times and delays of packets than which no later one waited less.
    recent: VecDeque<(f64, f64)>,
    /// Smallest and largest since the last call of [`take`](Self::take), sum and number.
    least: f64,
    most: f64,
    sum: f64,
    count: u32,
    /// Mean delay above the smallest of a report, and above that of [`VARIATION_SPAN`].
    jitter: f64,
    variation: f64,
    /// Begin, smallest and largest of the latest smallest delays that hardly differ.
    constant: (f64, f64, f64),
    /// Whether others fill the queue.
    is_shared: bool,
    /// Upper limit of the delay in the queue.
    limit: f64,
    /// Seconds that a byte takes at the bottleneck beyond those in the base delay.
    slowness: f64,
    /// Negated delays for the standing one, and delays for the largest.
    standing: WindowMax,
    largest: WindowMax,
}

/// Delays in the queue since the last call of [`Delays::take`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    /// Smallest of the last [`LATEST`] of arrivals, or more with jitter, to which the minimum is
    /// insensitive.
    pub(crate) now: f64,
    /// Smallest of all.
    pub(crate) least: f64,
    /// Mean.
    pub(crate) mean: f64,
}

impl Delays {
    pub(super) fn new() -> Self {
        Self {
            base: BaseDelay::new(),
            recent: VecDeque::with_capacity(RECENT),
            least: f64::INFINITY,
            most: 0.0,
            sum: 0.0,
            count: 0,
            jitter: 0.0,
            variation: 0.0,
            constant: (0.0, 0.0, 0.0),
            is_shared: false,
            limit: f64::INFINITY,
            slowness: 0.0,
            standing: WindowMax::new(STANDING_WINDOW),
            largest: WindowMax::new(LARGEST_WINDOW),
        }
    }

    /// The round trip is `excess` above its smallest: the queue is no longer. So a step or a drift
    /// of the receiver's clock is no queue.
    pub(super) fn set_limit(&mut self, excess: f64) {
        self.limit = excess.max(0.0) + LIMIT_NOISE;
    }

    /// Whether others have a share of the bottleneck without doubt. Variations of its queue that
    /// take longer than a report are theirs, otherwise they are jitter.
    pub(super) fn set_shared(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
    }

    /// The bottleneck takes `slowness` seconds longer for a byte than when it was fastest, and so
    /// than in the base delay: that is no queue. At 1 Mb/s a packet takes 10 ms.
    pub(super) fn set_slowness(&mut self, slowness: f64) {
        self.slowness = slowness.max(0.0);
    }

    /// A packet of `size` arrived at `at` with this one-way delay, of which the origin is arbitrary.
    /// Returns its delay in the queue.
    pub(super) fn on_packet(&mut self, at: f64, delay: f64, size: f64) -> f64 {
        let base = self.base.add(at, delay);
        let queue = (delay - base - size * self.slowness).max(0.0);
        self.keep(at, queue);
        self.least = self.least.min(queue);
        self.most = self.most.max(queue);
        self.sum += queue;
        self.count += 1;
        queue
    }

    /// All packets of a report are known.
    pub(super) fn close(&mut self) {
        self.base.close();
    }

    fn keep(&mut self, at: f64, queue: f64) {
        // Of packets that overtook others, the order of sending counts.
        let at = self.recent.back().map_or(at, |&(last, _)| at.max(last));
        while self.recent.back().is_some_and(|last| last.1 >= queue) {
            self.recent.pop_back();
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((at, queue));
    }

    /// Time of the newest arrival.
    fn newest(&self) -> f64 {
        self.recent.back().map_or(0.0, |&(at, _)| at)
    }

    /// The delay that has been constant for `span` seconds.
    pub(super) fn constant(&self, span: f64) -> Option<f64> {
        let newest = self.newest();
        let (since, least, _) = self.constant;
        (newest - since > span).then_some(least)
    }

    /// The route has become longer by the constant delay.
    pub(super) fn rebase(&mut self) {
        let (_, least, _) = self.constant;
        let newest = self.newest();
        self.base.rise(newest, least);
        for (_, queue) in &mut self.recent {
            *queue = (*queue - least).max(0.0);
        }
        self.constant = (newest, 0.0, 0.0);
        self.standing = WindowMax::new(STANDING_WINDOW);
        self.largest = WindowMax::new(LARGEST_WINDOW);
    }

    /// Delay that has not been lower in the last 2.5 to 5 s: the own queue drains in less.
    pub(super) fn standing(&self) -> f64 {
        let least = -self.standing.get().unwrap_or(0.0);
        least.clamp(0.0, self.limit)
    }

    /// Part of a delay in the queue that is the own one.
    pub(super) fn own(&self, queue: f64) -> f64 {
        (queue.min(self.limit) - self.standing() - self.beyond_own()).max(0.0)
    }

    /// Largest delay of the last quarter to half second.
    pub(super) fn largest(&self) -> f64 {
        self.largest.get().unwrap_or(0.0)
    }

    /// Delay that hardly any packet exceeds without a queue.
    pub(super) fn jitter_bound(&self) -> f64 {
        (BOUND_JITTERS * self.jitter).min(MAX_BOUND)
    }

    /// Jitter beyond that of own packets and short queues.
    fn beyond_own(&self) -> f64 {
        (self.jitter - OWN_JITTER).max(0.0)
    }

    /// Smallest delay of the last `span` seconds of arrivals.
    fn least_of(&self, span: f64) -> f64 {
        let newest = self.newest();
        let old = self.recent.partition_point(|&(at, _)| at <= newest - span);
        let least = self.recent.get(old).or(self.recent.back());
        least.map_or(0.0, |&(_, queue)| queue)
    }

    /// Delay in the queue that jitter does not explain.
    pub(super) fn steady(&self) -> f64 {
        self.least_of(STEADY_JITTERS * (self.variation - OWN_JITTER).max(0.0))
    }

    /// Variation beyond that of such a path. A link that fades varies the queue as much.
    fn long_excess(&self) -> f64 {
        (self.variation - OWN_VARIATION).clamp(0.0, MAX_VARIATION)
    }

    /// Jitter beyond that of a path without any: own packets and short queues.
    fn excess(&self) -> f64 {
        if self.is_shared {
            self.beyond_own()
        } else {
            self.long_excess()
        }
    }

    /// Delay that jitter adds to the queue, in seconds.
    pub(crate) fn jitter_allowance(&self) -> f64 {
        let within = SHORT_FACTOR * self.beyond_own();
        let beyond = self.long_excess();
        if self.is_shared {
            within
        } else {
            within.max(LONG_FACTOR * beyond)
        }
    }

    /// Delays in the queue since the last call, `span` seconds ago. `None` if no packet arrived.
    pub(crate) fn take(&mut self, span: f64) -> Option<Queue> {
        if self.count == 0 {
            return None;
        }
        let latest = (LATEST_JITTERS * self.excess()).clamp(LATEST, MAX_LATEST);
        let queue = Queue {
            now: self.least_of(latest).clamp(0.0, self.limit),
            least: self.least.clamp(0.0, self.limit),
            mean: (self.sum / f64::from(self.count)).min(self.limit),
        };
        self.follow(self.least);
        let newest = self.newest();
        self.standing.add(newest, -self.least);
        self.largest.add(newest, self.most);
        (self.least, self.most) = (f64::INFINITY, 0.0);
        (self.sum, self.count) = (0.0, 0);
        let long = self.least_of(VARIATION_SPAN).clamp(0.0, self.limit);
        smooth(&mut self.jitter, queue.mean - queue.least, span);
        smooth(&mut self.variation, queue.mean - long, span);
        Some(queue)
    }

    /// Follows the smallest delay of a report, as long as it is constant.
    fn follow(&mut self, delay: f64) {
        let (since, least, most) = self.constant;
        let (least, most) = (least.min(delay), most.max(delay));
        self.constant = if most - least > SAME_DELAY {
            let newest = self.recent.back().map_or(since, |&(at, _)| at);
            (newest, delay, delay)
        } else {
            (since, least, most)
        };
    }

    /// Mean delay above the smallest, within a report.
    pub(crate) fn jitter(&self) -> f64 {
        self.jitter
    }
}

/// Moves a jitter towards the `spread` of the last `span` seconds.
fn smooth(jitter: &mut f64, spread: f64, span: f64) {
    let time = if spread > *jitter {
        JITTER_UP
    } else {
        JITTER_DOWN
    };
    *jitter += (spread - *jitter) * (span / time).min(1.0);
}

/// Variation of the round-trip time that is no queue, in seconds.
const LIMIT_NOISE: f64 = 0.001;
/// Limits of the span of arrivals whose smallest delay is the present one, in seconds, and this span
/// in units of the jitter. Packets in order wait for those before them, so the delays of a jitter of
/// 10 ms are alike for 100 ms.
const LATEST: f64 = 0.06;
const MAX_LATEST: f64 = 0.25;
const LATEST_JITTERS: f64 = 40.0;
/// Span, in units of the jitter, in which a queue that is busy is never empty.
const STEADY_JITTERS: f64 = 20.0;
/// Span of arrivals in which jitter lets one packet through without delay, in seconds. The law takes
/// longer for a change of its own queue.
const VARIATION_SPAN: f64 = 0.3;
/// Jitter, and variation over the longer span, of a path without any, in seconds.
const OWN_JITTER: f64 = 0.002;
const OWN_VARIATION: f64 = 0.003;
/// Largest variation beyond it that counts as jitter. In `scenarios/field/cellular-fades` the queue is
/// 55 ms (95th percentile) at 0, 107 at 5 ms and 171 without a limit; `wifi` needs 4 ms.
const MAX_VARIATION: f64 = 0.005;
/// Delay that a jitter of 1 s, and such a variation, add to the queue, in seconds. Smaller values
/// take jitter for a queue, and the rate falls: 0.63 of it is left at 1.2 in the scenario of a
/// wireless network, 0.8 at 3.
const SHORT_FACTOR: f64 = 1.2;
const LONG_FACTOR: f64 = 3.0;
/// Half of the window of the standing delay, in seconds: the plan drains the own queue in a second or two.
const STANDING_WINDOW: f64 = 2.5;
/// Half of the window of the largest delay, in seconds: a few reports, so that a queue of others is seen
/// near its top.
const LARGEST_WINDOW: f64 = 0.25;
/// Five deviations of normal jitter: its mean is 1.9 deviations above the smallest of the twenty packets of
/// a report.
const BOUND_JITTERS: f64 = 2.7;
/// A path with more jitter cannot meet a delay bound of a few hundred milliseconds.
const MAX_BOUND: f64 = 0.125;
/// Smallest delays of reports that differ by so much are those of one route, in seconds.
const SAME_DELAY: f64 = 0.002;
/// Packets that are kept for these spans.
const RECENT: usize = 256;
/// Time constants of the jitter, in seconds: single outliers raise it slowly.
const JITTER_UP: f64 = 2.5;
const JITTER_DOWN: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Seed, unit};

    #[test]
    fn the_queue_is_the_delay_above_the_smallest() {
        let mut delays = Delays::new();
        for i in 0..10 {
            let queue = delays.on_packet(f64::from(i) * 0.01, 5.0 + f64::from(i) * 0.001, 1e3);
            assert!((queue - f64::from(i) * 0.001).abs() < 1e-9);
        }
        let queue = delays.take(0.1).unwrap();
        // Arrivals after 30 ms.
        assert!((queue.now - 0.004).abs() < 1e-9, "{queue:?}");
        assert!(queue.least.abs() < 1e-9 && (queue.mean - 0.0045).abs() < 1e-9);
        assert!(delays.take(0.1).is_none());
    }

    #[test]
    fn a_step_of_the_receivers_clock_is_no_queue() {
        let mut delays = Delays::new();
        delays.on_packet(0.0, 1.0, 1e3);
        delays.set_limit(0.003);
        delays.on_packet(0.1, 61.0, 1e3);
        assert!(delays.take(0.1).unwrap().now < 0.005);
    }

    #[test]
    fn the_base_of_a_longer_route_is_known_after_two_windows() {
        let mut delays = Delays::new();
        for at in [0.0, 0.1] {
            delays.on_packet(at, 1.0, 1e3);
            delays.close();
        }
        for i in 0..130 {
            delays.on_packet(1.0 + f64::from(i), 2.0, 1e3);
            delays.close();
        }
        assert!(delays.on_packet(140.0, 2.0, 1e3) < 1e-9);
    }

    #[test]
    fn the_transmission_at_a_slower_bottleneck_is_no_queue() {
        let mut delays = Delays::new();
        delays.on_packet(0.0, 1.0, 1e3);
        // From 8 Mb/s to 1 Mb/s.
        delays.set_slowness(8e-6 - 1e-6);
        assert!(delays.on_packet(0.1, 1.007, 1e3) < 1e-9);
        assert!((delays.on_packet(0.2, 1.017, 1e3) - 0.01).abs() < 1e-9);
    }

    #[test]
    fn jitter_of_a_wireless_link_is_no_queue() {
        let mut rng = Seed(3).stream("jitter");
        let mut delays = Delays::new();
        let (mut at, mut most) = (0.0_f64, 0.0_f64);
        for i in 0..5_000 {
            let sent = f64::from(i) * 0.002;
            // Packets stay in order, so each waits for the slowest before it.
            at = at.max(sent + 0.03 * unit(&mut rng));
            delays.on_packet(at, at - sent, 1e3);
            if i % 25 == 24 {
                let queue = delays.take(0.05).unwrap();
                if i > 2_500 {
                    most = most.max(queue.now - delays.jitter_allowance());
                }
            }
        }
        assert!(most < 0.01, "{most}");
        // Where others have a share, slow variations of the delay are those of their queue.
        let alone = delays.jitter_allowance();
        delays.set_shared(true);
        assert!(delays.jitter_allowance() < 0.5 * alone, "{alone}");
    }
}
