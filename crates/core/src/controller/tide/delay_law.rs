//! Rate that keeps the queue short. It does not react to losses.

use crate::path::{Path, Queue};

/// State of the law.
#[derive(Clone, Debug)]
pub(super) struct DelayLaw {
    /// Whether the rate of the path is still being found.
    pub(super) is_start: bool,
    /// Rate that the start has found, until it is measured.
    found: Option<(f64, f64)>,
    /// Last fall of the rate of the path.
    fall: Option<Fall>,
    /// Additional growth per update while the queue is short, and since when it is.
    growth: f64,
    short_since: Option<f64>,
    /// Since when the queue is being emptied, so that all flows learn the base delay.
    drain_since: Option<f64>,
    /// Delay at which a queue that this flow has for itself overflowed.
    overflow: Option<f64>,
    /// Time of the last such loss without doubt.
    overflowed: f64,
    /// Delay in the queue that is aimed at.
    pub(super) target: f64,
    /// The target without regard to the size of the queue.
    pub(super) full_target: f64,
    /// Rate of the path at the last update.
    pub(super) path_rate: f64,
    /// Terms of the last update, for updates between reports.
    terms: Option<Terms>,
}

/// A fall of the rate of the path.
#[derive(Clone, Copy, Debug)]
struct Fall {
    /// Rate before, and the time of the fall.
    before: f64,
    at: f64,
    /// Earliest time at which the queue of the fall is empty.
    drained: f64,
}

#[derive(Clone, Copy, Debug)]
struct Terms {
    rate: f64,
    carried: f64,
    error: f64,
    time: f64,
}

/// Input of an update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    /// Seconds.
    pub(super) now: f64,
    /// Seconds since the last update.
    pub(super) span: f64,
    /// Delay in the queue.
    pub(super) queue: Queue,
    /// Time since the newest received packet was sent.
    pub(super) age: f64,
    /// Whether a packet of the last two round trips was lost by congestion, without doubt.
    pub(super) is_congested: bool,
}

impl DelayLaw {
    pub(super) fn new() -> Self {
        Self {
            is_start: true,
            found: None,
            fall: None,
            growth: START_GROWTH,
            short_since: None,
            drain_since: None,
            overflow: None,
            overflowed: f64::NEG_INFINITY,
            target: FIRST_TARGET,
            full_target: FIRST_TARGET,
            path_rate: 0.0,
            terms: None,
        }
    }

    /// A queue that this flow has for itself lost a packet at the delay `queue`.
    pub(super) fn on_overflow(&mut self, now: f64, queue: f64, is_strong: bool) {
        self.overflow = Some(queue.max(MIN_OVERFLOW));
        if is_strong {
            self.overflowed = now;
        }
    }

    /// The path fell to `rate` with `in_flight` bytes on their way. Returns when these have left the
    /// queue, at the latest.
    pub(super) fn on_fall(&mut self, now: f64, in_flight: f64, rate: f64, rtt: f64) -> f64 {
        let drains = in_flight / rate.max(1.0);
        let before = self.fall.map_or(self.path_rate, |fall| fall.before);
        self.fall = Some(Fall {
            before,
            at: now,
            drained: now + 0.5 * drains,
        });
        self.is_start = false;
        (self.growth, self.found, self.short_since) = (0.0, None, None);
        now + 2.0 * drains + rtt
    }

    /// Rate for the measured queue.
    pub(super) fn update(&mut self, path: &mut Path, input: Input) -> f64 {
        if let Some(rate) = self.end_start(path, input) {
            return rate;
        }
        let rate = self.find_rate(path, input);
        self.path_rate = rate;
        // If the application sends less than it is allowed, so does the path.
        let carried = if path.delivery().is_limited() {
            rate.min(path.rate().max(path.size()))
        } else {
            rate
        };
        self.set_target(path, input, rate);
        let (queue, now, alone) = (input.queue, input.now, path.is_alone());
        let (rtt, span) = (path.rtt(), path.delivery().span());
        if !self.is_start && queue.now > 2.0 * self.target && !alone {
            self.drain_since.get_or_insert(now);
        }
        let is_over = |since: f64| queue.least < EMPTY || now - since > 3.0 * rtt + 0.5;
        self.drain_since = self.drain_since.filter(|since| !is_over(*since));
        let target = if self.drain_since.is_some() {
            0.0
        } else {
            self.target
        };
        let error = target - queue.now;
        let time = 0.15 + path.recent_min_rtt() / 4.0;
        // Bytes that are queued or on their way are those in flight less those that the path
        // carries meanwhile (a Smith predictor).
        let mut ahead = path.in_flight() / carried - input.age;
        if queue.now < SHORT * self.target && !alone && ahead > 0.0 {
            ahead *= 0.3;
        }
        let mut gain = (error - ahead) / time;
        if self.drain_since.is_some() {
            gain = gain.min(-0.1);
        }
        self.grow(input, rtt + span / 2.0 + PERIOD);
        if self.is_start || self.growth > 0.0 {
            gain = gain.max(self.growth);
        }
        let most = if self.is_start { 1.0 } else { MAX_GAIN };
        self.terms = (!self.is_start && self.growth <= 0.0).then_some(Terms {
            rate,
            carried,
            error,
            time,
        });
        let wanted = rate * (1.0 + gain.clamp(-0.5, most));
        if self.is_start && path.delivery().is_limited() {
            // An application that pauses does not lower the rate.
            return wanted.max(path.allowed_then());
        }
        wanted
    }

    /// The same between two reports: more of what was in flight has left the queue.
    pub(super) fn between(&self, path: &Path, age: f64) -> Option<f64> {
        let Terms {
            rate,
            carried,
            error,
            time,
        } = self.terms?;
        let ahead = path.in_flight() / carried - age;
        let gain = ((error - ahead) / time).clamp(-0.5, MAX_GAIN);
        Some(rate * (1.0 + gain))
    }

    /// In the start the packets of a frame leave at [`TRAIN`] times the rate. Once they arrive more
    /// slowly, the capacity is known before the rate reaches it.
    fn end_start(&mut self, path: &Path, input: Input) -> Option<f64> {
        let (capacity, age) = path.capacity().filter(|_| self.is_start)?;
        if age > RECENT || capacity > DISPERSED * TRAIN * path.allowed_then() {
            return None;
        }
        self.is_start = false;
        self.growth = 0.0;
        let rate = FOUND * capacity;
        self.path_rate = rate;
        // One round trip until packets at this rate are reported, and the window of the rate.
        self.found = Some((rate, input.now + path.rtt() + 0.5));
        Some(rate)
    }

    /// Rate of the path for this flow.
    fn find_rate(&mut self, path: &mut Path, input: Input) -> f64 {
        let (alone, rtt) = (path.is_alone(), path.rtt());
        let recent = path.delivery().recent();
        let recent = if path.delivery().is_limited() {
            // Pauses of the application are not the path's.
            let served = path.capacity().filter(|(_, age)| *age < 0.1);
            served.map(|(rate, _)| rate)
        } else {
            recent
        };
        self.end_fall(input);
        let (largest, ceiling) = (path.delivery().largest(), path.delivery().ceiling());
        let mut rate = path.rate().max(path.size());
        if !self.is_start && path.delivery().is_limited() && input.queue.now <= self.target {
            // The application sent less than it was allowed, and there was room for more.
            rate = rate.max(path.allowed_then().min(ceiling));
        }
        self.found = self.found.filter(|(_, until)| input.now < *until);
        if let Some((found, _)) = self.found
            && input.queue.now <= self.target + 0.005
        {
            rate = rate.max(found);
        }
        if let Some((capacity, age)) = path.capacity()
            && alone
            && !self.is_start
            && age < f64::max(10.0, 10.0 * rtt)
        {
            rate = rate.max(capacity.min(1.25 * largest));
            if age < MOMENT && path.delivery().is_limited() {
                // What the application did not use is no evidence that there is more.
                rate = rate.min(1.05 * capacity);
            }
        }
        if alone && input.now - self.overflowed < f64::max(20.0, 20.0 * rtt) {
            rate *= HEADROOM;
        }
        if let Some(recent) = recent
            && input.queue.now > 1.5 * self.target + 0.008
        {
            // The path became slower.
            rate = rate.min(recent.max(0.3 * rate));
        }
        rate
    }

    /// A queue that empties early was that of a burst of others, not of a fall.
    fn end_fall(&mut self, input: Input) {
        let Some(fall) = self.fall else { return };
        let is_empty = input.queue.now <= self.target && input.now > fall.at + DELAYED;
        if input.now > fall.drained {
            self.fall = None;
        } else if is_empty {
            self.found = Some((0.9 * fall.before, input.now + 0.5));
            self.fall = None;
        }
    }

    fn set_target(&mut self, path: &mut Path, input: Input, rate: f64) {
        let scale = (path.recent_min_rtt() / 0.1).clamp(0.3, 1.0);
        let jitter = path.delays().jitter_allowance();
        self.full_target = scale * (0.005 + path.size() / rate) + jitter;
        self.overflow = self.overflow.map(|queue| queue * (1.0 + 0.02 * input.span));
        self.overflow = self.overflow.filter(|queue| *queue < 0.5);
        let limit = self.overflow.map_or(f64::INFINITY, |queue| 0.3 * queue);
        self.target = self.full_target.min(limit).max(0.25 * self.full_target);
    }

    /// Growth while the queue stays short for longer than the effect of a change takes.
    fn grow(&mut self, input: Input, delay: f64) {
        let queue = input.queue.now;
        if self.is_start {
            if queue > self.target + 0.005 || input.is_congested {
                self.is_start = false;
                self.growth = 0.0;
            }
            return;
        }
        if queue >= SHORT * self.target {
            (self.growth, self.short_since) = (0.0, None);
            return;
        }
        let since = *self.short_since.get_or_insert(input.now);
        if input.now - since > delay {
            self.short_since = Some(input.now);
            self.growth = if self.growth > 0.0 {
                (2.0 * self.growth).min(MAX_GAIN)
            } else {
                (self.target / delay).min(0.05)
            };
        }
    }
}

/// Rate of the packets of a frame in the start, as a multiple of the mean rate.
pub(super) const TRAIN: f64 = 2.0;
/// A train that arrives at this part of its rate has filled the queue of a bottleneck.
const DISPERSED: f64 = 0.85;
/// Age of a measurement of the capacity that ends the start, in seconds.
const RECENT: f64 = 0.25;
/// Part of the capacity to begin with.
const FOUND: f64 = 0.95;
/// Growth per update before the rate of the path is known.
const START_GROWTH: f64 = 0.5;
/// Target before the first update, in seconds.
const FIRST_TARGET: f64 = 0.02;
/// A queue is short below this part of the target.
const SHORT: f64 = 0.3;
/// A queue is empty below this delay, in seconds.
const EMPTY: f64 = 0.0015;
/// Largest increase per update.
const MAX_GAIN: f64 = 0.25;
/// Part of the rate of the path that is used after an overflow.
const HEADROOM: f64 = 0.96;
/// Age of a capacity that is the present one, in seconds.
const MOMENT: f64 = 0.5;
/// Time until the delay in the queue shows a fall, in seconds.
const DELAYED: f64 = 0.1;
/// Shorter queues are no limit of the target, in seconds.
const MIN_OVERFLOW: f64 = 0.004;
/// Nominal time between two updates, in seconds.
const PERIOD: f64 = 0.05;
