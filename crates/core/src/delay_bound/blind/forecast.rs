//! Forecast of the capacity of a path, from samples of its delivery rate.

use core::time::Duration;
use std::collections::VecDeque;

use crate::delay_bound::PlannerConfig;
use crate::delay_bound::planner::share;
use crate::units::{Rate, Time};

/// A low quantile of recent samples, which grows without a queue, when there are no samples.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    samples: VecDeque<(Time, f64)>,
    estimate: Option<f64>,
    /// Time of the last queue.
    queue_at: Time,
    /// Time of the last call of [`grow`](Self::grow).
    grown_at: Time,
    /// Estimate after that call.
    free: f64,
    /// First estimate of the capacity after a drop.
    hint: Option<Rate>,
    /// Upper limit of the capacity: the rate of the controller.
    upper: Rate,
}

impl Default for Forecast {
    fn default() -> Self {
        Self {
            samples: VecDeque::new(),
            estimate: None,
            queue_at: Time::ZERO,
            grown_at: Time::ZERO,
            free: 0.0,
            hint: None,
            upper: Rate::MAX,
        }
    }
}

impl Forecast {
    /// Adds a sample: the path delivered `rate` while this sender had a queue.
    pub(super) fn observe_capacity(&mut self, now: Time, rate: Rate, config: &PlannerConfig) {
        self.hint = None;
        self.observe(now, rate.as_f64(), config);
    }

    /// Adds a sample during growth of the queue: a higher estimate is replaced at once.
    pub(super) fn observe_drop(&mut self, now: Time, rate: Rate, config: &PlannerConfig) {
        self.hint = None;
        self.drop_to(now, rate.as_f64(), config);
    }

    /// Adds a first estimate during growth of the queue, which may be wrong by a third. If it is
    /// further than that below the estimate, it lowers the plan until there is a sample or no
    /// queue. The estimate itself is unchanged.
    pub(super) fn observe_hint(&mut self, rate: Rate) {
        let known = self.known();
        self.hint = Some(rate).filter(|hint| *hint < share(known, BELOW_DOUBT));
    }

    /// The path delivers `rate` with a constant queue. Either that is the capacity, or the delay is
    /// not a queue of this sender. The estimate moves there slowly.
    pub(super) fn observe_steady(&mut self, now: Time, rate: Rate) {
        self.lean(now, rate.as_f64());
    }

    /// The path carried `rate` without a queue, so the estimate may grow.
    pub(super) fn observe_idle(&mut self, now: Time, rate: Rate, config: &PlannerConfig) {
        self.hint = None;
        self.grow(now, rate.as_f64(), self.upper.as_f64(), config);
    }

    /// Sets the upper limit of the capacity.
    pub(super) fn set_upper(&mut self, upper: Rate) {
        self.upper = upper;
    }

    /// Discards all samples, for a new path.
    pub(super) fn forget_path(&mut self) {
        *self = Self {
            upper: self.upper,
            ..Self::default()
        };
    }

    /// Estimated capacity on the wire: the measured one, limited by the upper limit.
    pub(super) fn capacity(&self) -> Rate {
        let known = self.known();
        self.hint.map_or(known, |hint| hint.min(known))
    }

    /// Measured capacity; `None` before the first queue.
    pub(super) fn measured(&self) -> Option<Rate> {
        self.estimate.map(Rate::from_f64)
    }

    fn known(&self) -> Rate {
        self.measured().map_or(self.upper, |c| c.min(self.upper))
    }

    /// The recent queue belongs to competing flows, so the delivery rate was the sending rate. The
    /// earlier estimate is restored.
    pub(super) fn restore(&mut self, now: Time) {
        self.hint = None;
        self.samples.clear();
        if let Some(estimate) = &mut self.estimate
            && now.since(self.grown_at) < RESTORE_WITHIN
        {
            *estimate = estimate.max(self.free);
        }
    }

    fn observe(&mut self, now: Time, rate: f64, config: &PlannerConfig) {
        self.samples.push_back((now, rate));
        while self
            .samples
            .front()
            .is_some_and(|(at, _)| now.since(*at) > config.memory)
        {
            self.samples.pop_front();
        }
        let mut sorted: Vec<f64> = self.samples.iter().map(|(_, r)| *r).collect();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() - 1) as f64 * config.quantile.clamp(0.0, 1.0);
        self.estimate = Some(sorted[rank as usize]);
        self.queue_at = now;
    }

    fn drop_to(&mut self, now: Time, rate: f64, config: &PlannerConfig) {
        if self.estimate.is_none_or(|e| rate < e) {
            self.samples.clear();
        }
        self.observe(now, rate, config);
    }

    fn lean(&mut self, now: Time, rate: f64) {
        let dt = now.since(self.queue_at.max(self.grown_at)).as_secs_f64();
        if let Some(estimate) = &mut self.estimate
            && *estimate > rate
        {
            *estimate = rate.max(*estimate * (1.0 - LEAN * dt.min(1.0)));
        }
        self.queue_at = now;
    }

    fn grow(&mut self, now: Time, carried: f64, upper: f64, config: &PlannerConfig) {
        let dt = now.since(self.grown_at.max(self.queue_at)).as_secs_f64();
        self.grown_at = now;
        let Some(estimate) = self.estimate else {
            return;
        };
        let mut next = estimate.max(carried.min(estimate * MAX_GROWTH_PER_REPORT));
        // A source below its allowed rate does not test the estimate (cf. RFC 7661).
        let used = carried >= USED * config.least() * estimate;
        let quiet = now
            .since(self.queue_at)
            .saturating_sub(config.hold)
            .as_secs_f64();
        if used {
            // Adds one packet per frame interval to the proportional growth. The relative gain of
            // flows with a low rate is larger, so that flows on one path converge to equal shares.
            let step = (config.packet_size / config.frame_interval).as_f64();
            next += (next + step) * (config.acceleration * quiet).min(config.growth) * dt.min(0.2);
        }
        let next = next.min(estimate.max(upper));
        (self.estimate, self.free) = (Some(next), next);
    }
}

/// Decrease of the estimate per second while the queue is constant. A queue of this sender drains
/// in one or two seconds. A delay of other origin costs a quarter of the rate in the three seconds
/// until it counts as standing delay.
const LEAN: f64 = 0.1;
/// Older measurements without a queue are not valid for the present path.
const RESTORE_WITHIN: Duration = Duration::from_secs(5);
/// A hint consists of two gaps or more. A packet of another flow in one of two gaps makes it a
/// third too low.
const BELOW_DOUBT: f64 = 2.0 / 3.0;
/// At 30 frames per second a report of 50 ms covers one or two frames, and two exceed the mean by a
/// third. Without this limit, jitter that bunched the packets of a low-rate stream raised the
/// estimate to two or three times the capacity, and the queue grew to 200 ms.
const MAX_GROWTH_PER_REPORT: f64 = 4.0 / 3.0;
/// Frames differ in size, and the rate of a report of 50 ms covers one or two of them.
const USED: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Time {
        Time::from_millis(n)
    }

    fn config() -> PlannerConfig {
        PlannerConfig::new(Rate::kbps(150), Rate::kbps(4_000))
    }

    /// A forecast with a sample of 2 Mb/s.
    fn forecast() -> Forecast {
        let mut f = Forecast::default();
        f.set_upper(Rate::kbps(8_000));
        f.observe_capacity(at(0), Rate::kbps(2_000), &config());
        f
    }

    #[test]
    fn before_the_first_queue_the_upper_limit_is_the_forecast() {
        let mut f = Forecast::default();
        f.set_upper(Rate::kbps(1_000));
        assert_eq!((f.capacity(), f.measured()), (Rate::kbps(1_000), None));
    }

    #[test]
    fn one_report_raises_the_estimate_by_a_third() {
        let mut f = forecast();
        f.observe_idle(at(50), Rate::kbps(2_400), &config());
        assert_eq!(f.capacity(), Rate::kbps(2_400));
        f.observe_idle(at(100), Rate::kbps(7_000), &config());
        assert_eq!(f.capacity(), Rate::kbps(3_200));
    }

    #[test]
    fn a_drop_counts_at_once_and_a_lower_sample_does_not() {
        let (mut f, c) = (forecast(), config());
        for n in 1..10 {
            f.observe_capacity(at(n * 50), Rate::kbps(2_000), &c);
        }
        f.observe_capacity(at(500), Rate::kbps(600), &c);
        assert_eq!(f.capacity(), Rate::kbps(2_000));
        f.observe_drop(at(550), Rate::kbps(500), &c);
        assert_eq!(f.capacity(), Rate::kbps(500));
    }

    #[test]
    fn a_hint_lowers_the_plan_and_leaves_the_estimate() {
        let (mut f, c) = (forecast(), config());
        f.observe_capacity(at(0), Rate::kbps(2_000), &c);
        // Within the error of a hint.
        f.observe_hint(Rate::kbps(1_400));
        assert_eq!(f.capacity(), Rate::kbps(2_000));
        f.observe_hint(Rate::kbps(500));
        assert_eq!(f.capacity(), Rate::kbps(500));
        assert_eq!(f.measured(), Some(Rate::kbps(2_000)));
        f.observe_idle(at(50), Rate::kbps(100), &c);
        assert_eq!(f.capacity(), Rate::kbps(2_000));
        f.observe_hint(Rate::kbps(500));
        f.observe_drop(at(100), Rate::kbps(800), &c);
        assert_eq!(f.capacity(), Rate::kbps(800));
    }

    #[test]
    fn the_forecast_grows_while_it_is_used_and_no_queue_forms() {
        let (mut f, mut lazy, c) = (forecast(), forecast(), config());
        for n in 0..80 {
            f.observe_idle(at(n * 50), Rate::kbps(1_800), &c);
            lazy.observe_idle(at(n * 50), Rate::kbps(300), &c);
        }
        assert!(f.capacity() > Rate::kbps(2_300), "{:?}", f.capacity());
        assert_eq!(lazy.capacity(), Rate::kbps(2_000));
        for n in 80..400 {
            let all = f.capacity();
            f.observe_idle(at(n * 50), all, &c);
        }
        assert_eq!(f.capacity(), Rate::kbps(8_000));
    }
}
