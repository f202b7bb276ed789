//! History of a connection, and the limits that follow from it.

use core::time::Duration;

use super::capacity::Capacity;
use super::outage_margin::OutageMargin;
use super::periodic_outages::PeriodicOutages;
use super::{TcpRateConfig, TcpView};
use crate::delay_bound::ServiceCurve;
use crate::path::window::WindowMin;
use crate::units::{Bytes, Rate, Time, nanos};

/// Measurements from the states of a connection, in order of time.
#[derive(Clone, Debug)]
pub(super) struct PathHistory {
    /// Smoothed round-trip times, in ns.
    round_trips: WindowMin,
    /// Tolerable delay of the video at the start of each outage, in ns.
    tolerable_delay: WindowMin,
    /// Safe rate of each outage shorter than the bound, in b/s.
    safe_rate: WindowMin,
    periodic_outages: PeriodicOutages,
    capacity: Capacity,
    /// Queueing delay on the forward path, and its time.
    queue: (Duration, Time),
    /// Smoothed round-trip time of that measurement, and the bytes acknowledged by then.
    sampled: (Duration, Bytes),
    /// Bytes sent, and the time of the last increase.
    sent: (Bytes, Time),
    /// Time since the last acknowledgement, while the retransmission timer has expired.
    silent: Option<Time>,
    /// After an outage, frames without a feasible plan are sent at the floor until this time.
    probing_until: Time,
}

impl PathHistory {
    pub(super) fn new() -> Self {
        Self {
            round_trips: WindowMin::new(BUCKET),
            tolerable_delay: WindowMin::new(BUCKET),
            safe_rate: WindowMin::new(BUCKET),
            periodic_outages: PeriodicOutages::default(),
            capacity: Capacity::default(),
            queue: (Duration::ZERO, Time::ZERO),
            sampled: (Duration::ZERO, Bytes::ZERO),
            sent: (Bytes::ZERO, Time::ZERO),
            silent: None,
            probing_until: Time::ZERO,
        }
    }

    /// Updates the history with the state of the connection.
    pub(super) fn on_view(&mut self, now: Time, view: &TcpView, config: &TcpRateConfig) {
        if !view.srtt.is_zero() {
            self.round_trips.insert(now, signed(view.srtt));
        }
        let fastest = self.fastest(view);
        self.capacity.look(now, view, fastest, config);
        if view.sent > self.sent.0 {
            self.sent = (view.sent, now);
        }
        let sample = (view.srtt, view.sent.saturating_sub(view.unacked));
        if sample != self.sampled {
            self.sampled = sample;
            let queue = view.srtt.saturating_sub(fastest);
            // The queue has drained since the last packet was sent.
            self.queue = (queue.saturating_sub(now.since(self.sent.1)), now);
        }
        // Expires old values.
        self.tolerable_delay.insert(now, i64::MAX);
        self.safe_rate.insert(now, i64::MAX);
        if view.stalled {
            self.silent = self.silent.or(view.unacked_since);
        } else if let Some(since) = self.silent.take() {
            // Time of the last acknowledgement, which may be earlier than this call.
            let end = view.unacked_since.unwrap_or(now);
            self.survived(now, since, end.since(since), view, config);
        }
    }

    /// Records that a frame captured at `captured` waits to be written.
    pub(super) fn frame_waits(
        &mut self,
        now: Time,
        captured: Time,
        view: &TcpView,
        config: &TcpRateConfig,
    ) {
        let fastest = self.fastest(view);
        self.capacity
            .frame_waits(now, captured, view, fastest, config);
    }

    /// Records that a segment was lost while others arrived.
    pub(super) fn lost(&mut self, view: &TcpView, config: &TcpRateConfig) {
        self.capacity.lost(view, config);
    }

    /// Records the end of an outage that began at `onset` and lasted for `silence`; `view` is the
    /// state of the connection after it.
    fn survived(
        &mut self,
        now: Time,
        onset: Time,
        silence: Duration,
        view: &TcpView,
        config: &TcpRateConfig,
    ) {
        // Timeouts without an outage are ignored.
        if silence < SHORTEST + view.srtt * 2 {
            return;
        }
        let restart = self.forecast(now, view, config.bound.saturating_mul(2));
        let margin = OutageMargin {
            config,
            silence,
            round_trip: view.srtt,
            rate: self
                .carries()
                .map_or(config.ceiling, |rate| rate.min(config.ceiling)),
            restart: &restart,
        };
        self.tolerable_delay
            .insert(now, signed(margin.tolerable_delay()));
        if let Some(rate) = margin.safe_rate() {
            self.safe_rate.insert(now, rate.as_bps().cast_signed());
        }
        let repaired = now + config.bound;
        self.periodic_outages
            .on_outage(onset, config.interval, repaired);
        self.probing_until = now + config.bound;
    }

    /// Maximum rate of frames written now such that they survive the worst of the recent outages
    /// that were shorter than the bound. `None` if no outage is due, or if there was no such
    /// outage.
    pub(super) fn limit(&self, now: Time, view: &TcpView) -> Option<Rate> {
        let due = self.periodic_outages.is_due(now, view.srtt);
        let rate = self.safe_rate.min().filter(|_| due)?;
        Some(Rate::bps(rate.cast_unsigned()))
    }

    /// Records that there is a feasible plan again after an outage.
    pub(super) fn on_feasible_plan(&mut self) {
        self.probing_until = Time::ZERO;
    }

    /// Whether an outage ended less than a bound ago and no feasible plan was found since.
    pub(super) fn is_blind(&self, now: Time) -> bool {
        now < self.probing_until
    }

    /// One-way delay of data sent now: half of the minimum round-trip time of the last five
    /// minutes, plus the excess of the last round trip, because the queue of a video is on the
    /// forward path. The excess decreases while no data is sent or no acknowledgement arrives.
    pub(super) fn one_way(&self, now: Time, view: &TcpView) -> Duration {
        let (queue, at) = self.queue;
        self.fastest(view) / 2 + queue.saturating_sub(now.since(at))
    }

    fn fastest(&self, view: &TcpView) -> Duration {
        self.round_trips.min().map_or(view.srtt, unsigned)
    }

    /// Forecast of the connection, limited by the measured capacity of the path.
    pub(super) fn forecast(&self, now: Time, view: &TcpView, horizon: Duration) -> ServiceCurve {
        let mut view = *view;
        if self.capacity.was_measured() {
            // Startup serves to measure the capacity, which is known. A drop of the capacity does
            // not end startup.
            view.control = view.control.started();
        }
        let open = view.forecast(now, horizon);
        match self.carries() {
            Some(rate) => open.min(&ServiceCurve::constant(rate)),
            None => open,
        }
    }

    /// Capacity of the path, if known to be less than the window allows. The bandwidth estimate of
    /// BBR is the maximum of ten round trips and too high after a drop of the capacity.
    fn carries(&self) -> Option<Rate> {
        self.capacity.rate()
    }

    /// Whether the backlog of the connection corresponds to a queue of more than a quarter of the
    /// bound, on a path of known capacity. Data in that queue can neither be dropped nor reduced
    /// any more if the capacity drops. Frames that wait in the sender can.
    pub(super) fn is_full(&self, view: &TcpView, config: &TcpRateConfig) -> bool {
        let span = self.fastest(view) + config.bound / 4;
        self.carries()
            .is_some_and(|rate| view.backlog() > rate * span)
    }

    /// Maximum delay of the video such that all frames survive a repetition of the worst recent
    /// outage. Zero before the first outage.
    pub(super) fn tolerable_delay(&self) -> Duration {
        self.tolerable_delay.min().map_or(Duration::ZERO, unsigned)
    }
}

fn signed(span: Duration) -> i64 {
    i64::try_from(nanos(span)).unwrap_or(i64::MAX - 1)
}

fn unsigned(nanos: i64) -> Duration {
    Duration::from_nanos(nanos.unsigned_abs())
}

/// A sixth of five minutes, the window of the minimum round-trip time in Linux
/// (`tcp_min_rtt_wlen`).
const BUCKET: Duration = Duration::from_secs(50);
/// Minimum duration of an outage, in addition to two round trips. A timeout of Linux without an
/// outage causes a silence of two round trips and 200 ms.
const SHORTEST: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp_rate::{CongestionControl, Mode, tests};
    use crate::units::Rate;

    fn secs(n: f64) -> Duration {
        Duration::from_secs_f64(n)
    }

    fn config(bound: f64) -> TcpRateConfig {
        TcpRateConfig {
            bound: secs(bound),
            ..tests::config(Mode::Classic)
        }
    }

    fn view(srtt: f64) -> TcpView {
        TcpView {
            control: CongestionControl::Reno,
            mss: Bytes(1_460),
            srtt: secs(srtt),
            cwnd: Bytes(2_920),
            ssthresh: Bytes(2_920),
            unacked: Bytes(50_000),
            unsent: Bytes::ZERO,
            sent: Bytes(2_500_000),
            next_timeout: None,
            unacked_since: None,
            stalled: false,
            oldest_sent: None,
            resumed: None,
        }
    }

    fn at(secs: f64) -> Time {
        Time::ZERO + Duration::from_secs_f64(secs)
    }

    /// Simulates an outage from `from` that lasts for `silence`.
    fn outage(past: &mut PathHistory, config: &TcpRateConfig, from: f64, silence: f64) {
        let stalled = TcpView {
            stalled: true,
            unacked_since: Some(at(from)),
            ..view(0.166)
        };
        past.on_view(at(from + 1.0), &stalled, config);
        past.on_view(at(from + silence), &view(0.166), config);
    }

    #[test]
    fn excess_round_trip_time_counts_as_forward_queue() {
        let mut past = PathHistory::new();
        let mut acknowledged = 0;
        let mut after = |now, srtt, sent| {
            // All data is acknowledged, except between 5 s and 6 s.
            if !(5.0..6.0).contains(&now) {
                acknowledged = sent;
            }
            let view = TcpView {
                sent: Bytes(sent),
                unacked: Bytes(sent - acknowledged),
                ..view(srtt)
            };
            past.on_view(at(now), &view, &config(2.0));
            let way = past.one_way(at(now), &view);
            (way.as_secs_f64() * 1e3).round() as u64
        };
        assert_eq!(after(0.0, 0.1, 1_000), 50);
        assert_eq!(after(1.0, 1.1, 2_000), 1_050);
        // No data is sent for 400 ms, and then for longer than the queueing delay.
        assert_eq!(after(1.4, 1.1, 2_000), 650);
        assert_eq!(after(5.0, 1.1, 2_000), 50);
        // No acknowledgement.
        assert_eq!(after(5.1, 1.1, 3_000), 50);
        // An acknowledgement confirms the smoothed round-trip time.
        assert_eq!(after(6.1, 1.1, 3_500), 1_050);
        assert_eq!(after(290.0, 0.4, 4_000), 350);
        // The route has changed: the minimum expires.
        assert_eq!(after(400.0, 0.4, 5_000), 200);
    }

    #[test]
    fn bbr_startup_ends_once_the_capacity_was_measured() {
        let (mut past, config) = (PathHistory::new(), config(2.0));
        let seen = |ms: u64, srtt: f64, acknowledged: u64| TcpView {
            control: CongestionControl::Bbr {
                bandwidth: Rate::kbps(800),
                min_rtt: secs(0.1),
                next_probe: secs(9.0),
                starting: true,
            },
            sent: Bytes(10_000 + ms * 150),
            unacked: Bytes(10_000 + ms * 150 - acknowledged),
            ..view(srtt)
        };
        let mut carries = |ms: u64, srtt, acknowledged| {
            let view = seen(ms, srtt, acknowledged);
            let now = Time::from_millis(ms);
            past.on_view(now, &view, &config);
            past.frame_waits(now, now, &view, &config);
            past.forecast(now, &view, secs(2.0)).at(secs(1.0)) as u64 / 1_000
        };
        // 1.2 Mb/s are sent and arrive. Then half of that arrives, through a queue.
        for ms in (0..1_000).step_by(50) {
            assert_eq!(carries(ms, 0.1, ms * 150), 1_584);
        }
        let last = (1_000..3_000)
            .step_by(50)
            .map(|ms| carries(ms, 0.5, 75_000 + ms * 75));
        assert_eq!(last.last(), Some(600));
        // The estimate has expired, and the queue is empty.
        assert_eq!(carries(9_000, 0.1, 1_350_000), 792);
    }

    #[test]
    fn tolerable_delay_decreases_with_the_length_of_the_outage() {
        let tolerable = |bound, silence| {
            let mut past = PathHistory::new();
            outage(&mut past, &config(bound), 10.0, silence);
            past.tolerable_delay()
        };
        // Of six seconds 2.7 are left, minus the delay. The delayed frames and the three frames
        // written before detection, 17 segments each, leave at one segment more per round trip.
        let six = tolerable(6.0, 3.2);
        assert!((secs(0.5)..secs(1.0)).contains(&six), "{six:?}");
        assert!(tolerable(6.0, 2.0) > six + secs(0.5) && tolerable(6.0, 4.0) < six);
        // 0.7 s are left: less than two frames, but three may be in flight.
        assert_eq!(tolerable(4.0, 3.2), Duration::ZERO);
        // The outage is longer than the bound, so no reserve would help.
        assert_eq!(tolerable(2.0, 3.2), secs(2.0));
    }

    #[test]
    fn tolerable_delay_is_the_minimum_of_recent_outages() {
        let six = config(6.0);
        let mut past = PathHistory::new();
        assert_eq!(past.tolerable_delay(), Duration::ZERO);
        outage(&mut past, &six, 10.0, 3.2);
        let long = past.tolerable_delay();
        outage(&mut past, &six, 60.0, 1.2);
        assert_eq!(past.tolerable_delay(), long);
        // The first outage expires after five minutes, and then the second one.
        past.on_view(at(315.0), &view(0.166), &six);
        assert!(past.tolerable_delay() > long);
        past.on_view(at(400.0), &view(0.166), &six);
        assert_eq!(past.tolerable_delay(), Duration::ZERO);
        // A timeout without an outage.
        outage(&mut past, &six, 500.0, 0.8);
        assert_eq!(past.tolerable_delay(), Duration::ZERO);
        assert!(!past.is_blind(at(500.9)));
    }

    #[test]
    fn rate_limit_is_the_minimum_of_recent_outages() {
        let limit = |silences: [f64; 3], now: f64| {
            let mut past = PathHistory::new();
            for (n, silence) in silences.iter().enumerate() {
                outage(&mut past, &config(4.0), 10.0 + 13.0 * n as f64, *silence);
            }
            past.on_view(at(now), &view(0.166), &config(4.0));
            past.limit(at(now), &view(0.166))
        };
        let [long, short] = [[3.2; 3], [3.0; 3]].map(|silences| limit(silences, 49.0));
        assert!(
            long > Some(Rate::kbps(150)) && long < short,
            "{long:?} {short:?}"
        );
        for order in [[3.2, 3.0, 3.0], [3.0, 3.2, 3.0], [3.2, 3.8, 3.9]] {
            let expected = if order[1] < 3.5 {
                long
            } else {
                Some(Rate::kbps(150))
            };
            assert_eq!(limit(order, 49.0), expected, "{order:?}");
        }
        // An outage longer than the bound does not change the limit.
        assert_eq!(limit([3.2, 3.0, 5.0], 49.0), long);
        assert_eq!(limit([5.0; 3], 49.0), None);
        assert_eq!(limit([3.2; 3], 46.0), None);
        // Outages before the last five minutes have expired.
        let mut past = PathHistory::new();
        for (from, silence) in [(10.0, 3.2), (200.0, 5.0), (390.0, 5.0)] {
            outage(&mut past, &config(4.0), from, silence);
        }
        past.on_view(at(580.0), &view(0.166), &config(4.0));
        assert_eq!(past.limit(at(580.0), &view(0.166)), None);
    }

    #[test]
    fn outage_ends_with_an_acknowledgement() {
        let six = config(6.0);
        let (mut past, mut seen_late) = (PathHistory::new(), PathHistory::new());
        outage(&mut past, &six, 10.0, 3.2);
        let stalled = TcpView {
            stalled: true,
            unacked_since: Some(at(10.0)),
            ..view(0.166)
        };
        seen_late.on_view(at(11.0), &stalled, &six);
        let alive = TcpView {
            unacked_since: Some(at(13.2)),
            ..view(0.166)
        };
        seen_late.on_view(at(25.0), &alive, &six);
        assert_eq!(seen_late.tolerable_delay(), past.tolerable_delay());
    }

    #[test]
    fn path_is_blind_until_a_feasible_plan_or_for_one_bound() {
        let mut past = PathHistory::new();
        assert!(!past.is_blind(at(0.0)));
        outage(&mut past, &config(2.0), 10.0, 3.2);
        assert!(past.is_blind(at(15.1)) && !past.is_blind(at(15.2)));
        past.on_feasible_plan();
        assert!(!past.is_blind(at(13.3)));
    }
}
