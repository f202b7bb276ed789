//! One-way delay: base, queue and jitter.

/// Largest value of a sliding window, in two halves: of the last one to two spans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowMax {
    span: f64,
    began: f64,
    halves: [Option<f64>; 2],
}

impl WindowMax {
    /// A window of `span` to twice `span` seconds.
    pub(crate) fn new(span: f64) -> Self {
        Self {
            span,
            began: 0.0,
            halves: [None; 2],
        }
    }

    /// A value at `now` seconds.
    pub(crate) fn add(&mut self, now: f64, value: f64) {
        if now > self.began + self.span {
            self.halves = [None, self.halves[0]];
            self.began = now;
        }
        let largest = &mut self.halves[0];
        *largest = Some(largest.map_or(value, |most| most.max(value)));
    }

    /// The largest value.
    pub(crate) fn get(&self) -> Option<f64> {
        match self.halves {
            [Some(a), Some(b)] => Some(a.max(b)),
            [a, b] => a.or(b),
        }
    }
}

/// Delays in the queue of the bottleneck, in seconds: one-way delays above the smallest of the last
/// minutes.
#[derive(Clone, Debug)]
pub(crate) struct Delays {
    base: WindowMax,
    recent: [(f64, f64); RECENT],
    next: usize,
    least: f64,
    sum: f64,
    count: u32,
    newest: f64,
    jitter: f64,
    /// Upper limit of the delay in the queue.
    limit: f64,
    /// Seconds that a byte takes at the bottleneck beyond those in the base delay.
    slowness: f64,
}

/// Delays in the queue since the last call of [`Delays::take`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    /// Smallest of the last [`LATEST`] of arrivals. The minimum is insensitive to jitter.
    pub(crate) now: f64,
    /// Smallest of all.
    pub(crate) least: f64,
    /// Mean.
    pub(crate) mean: f64,
}

impl Delays {
    pub(super) fn new() -> Self {
        Self {
            base: WindowMax::new(BASE_WINDOW),
            recent: [(f64::NEG_INFINITY, 0.0); RECENT],
            next: 0,
            least: f64::INFINITY,
            sum: 0.0,
            count: 0,
            newest: 0.0,
            jitter: 0.0,
            limit: f64::INFINITY,
            slowness: 0.0,
        }
    }

    /// The round trip is `excess` above its smallest: the queue is no longer. So a step or a drift
    /// of the receiver's clock is no queue.
    pub(super) fn set_limit(&mut self, excess: f64) {
        self.limit = excess.max(0.0) + LIMIT_NOISE;
    }

    /// The bottleneck takes `slowness` seconds longer for a byte than when it was fastest, and so
    /// than in the base delay: that is no queue. At 1 Mb/s a packet takes 10 ms.
    pub(super) fn set_slowness(&mut self, slowness: f64) {
        self.slowness = slowness.max(0.0);
    }

    /// A packet of `size` arrived at `at` with this one-way delay, of which the origin is arbitrary.
    /// Returns its delay in the queue.
    pub(super) fn on_packet(&mut self, at: f64, delay: f64, size: f64) -> f64 {
        self.base.add(at, -delay);
        let queue = delay + self.base.get().unwrap_or(-delay);
        let queue = (queue - size * self.slowness).max(0.0);
        self.recent[self.next] = (at, queue);
        self.next = (self.next + 1) % RECENT;
        self.least = self.least.min(queue);
        self.sum += queue;
        self.count += 1;
        self.newest = self.newest.max(at);
        queue
    }

    /// Delays in the queue since the last call, `span` seconds ago. `None` if no packet arrived.
    pub(crate) fn take(&mut self, span: f64) -> Option<Queue> {
        if self.count == 0 {
            return None;
        }
        let latest = self
            .recent
            .iter()
            .filter(|(at, _)| *at > self.newest - LATEST);
        let now = latest
            .map(|(_, queue)| *queue)
            .fold(f64::INFINITY, f64::min);
        let queue = Queue {
            now: now.clamp(0.0, self.limit),
            least: self.least.clamp(0.0, self.limit),
            mean: (self.sum / f64::from(self.count)).min(self.limit),
        };
        (self.least, self.sum, self.count) = (f64::INFINITY, 0.0, 0);
        let spread = queue.mean - queue.least;
        let time = if spread > self.jitter {
            JITTER_UP
        } else {
            JITTER_DOWN
        };
        self.jitter += (spread - self.jitter) * (span / time).min(1.0);
        Some(queue)
    }

    /// Mean delay above the smallest, within a report.
    pub(crate) fn jitter(&self) -> f64 {
        self.jitter
    }
}

/// Half of the window of the base delay, in seconds. Flows on one queue must find it empty once in
/// this time; a route change to a longer path is unknown for as long.
pub(super) const BASE_WINDOW: f64 = 60.0;
/// Span of arrivals whose smallest delay is the present one, in seconds.
const LATEST: f64 = 0.06;
/// Variation of the round-trip time that is no queue, in seconds.
const LIMIT_NOISE: f64 = 0.001;
/// Packets that are kept for it.
const RECENT: usize = 64;
/// Time constants of the jitter, in seconds: single outliers raise it slowly.
const JITTER_UP: f64 = 2.5;
const JITTER_DOWN: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::*;

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
        delays.on_packet(0.0, 1.0, 1e3);
        for i in 0..130 {
            delays.on_packet(1.0 + f64::from(i), 2.0, 1e3);
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
}
