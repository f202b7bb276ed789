//! History of a connection, and the limits that follow from it.

use core::time::Duration;

use super::capacity::Capacity;
use super::outage_margin::OutageMargin;
use super::periodic_outages::PeriodicOutages;
use super::{TcpRateConfig, TcpView};
use crate::delay_bound::ServiceCurve;
use crate::delay_bound::window::WindowMin;
use crate::units::{Bytes, Rate, Time, nanos};

/// Measurements from the states of a connection, in order of time.
#[derive(Clone, Debug)]
pub(super) struct PathHistory {
    /// The smoothed round trips, in nanoseconds.
    round_trips: WindowMin,
    /// By how much the video might have been late when each outage began, without a frame of it
    /// missing the bound, in nanoseconds.
    arrears: WindowMin,
    /// At what rate frames could have met each outage that was shorter than the bound, in b/s.
    safe_rate: WindowMin,
    rhythm: PeriodicOutages,
    capacity: Capacity,
    /// Queueing delay on the forward path, and its time.
    queue: (Duration, Time),
    /// The smoothed round trip that said so, and how much was acknowledged by then.
    sampled: (Duration, Bytes),
    /// Bytes sent, and the time of the last increase.
    sent: (Bytes, Time),
    /// Time since the last acknowledgement, while the retransmission timer has expired.
    silent: Option<Time>,
    /// Behind an outage frames are tried until then.
    tries: Time,
}

impl PathHistory {
    pub(super) fn new() -> Self {
        Self {
            round_trips: WindowMin::new(BUCKET),
            arrears: WindowMin::new(BUCKET),
            safe_rate: WindowMin::new(BUCKET),
            rhythm: PeriodicOutages::default(),
            capacity: Capacity::default(),
            queue: (Duration::ZERO, Time::ZERO),
            sampled: (Duration::ZERO, Bytes::ZERO),
            sent: (Bytes::ZERO, Time::ZERO),
            silent: None,
            tries: Time::ZERO,
        }
    }

    /// Updates the history with the state of the connection.
    pub(super) fn look(&mut self, now: Time, view: &TcpView, config: &TcpRateConfig) {
        if !view.srtt.is_zero() {
            self.round_trips.insert(now, signed(view.srtt));
        }
        let fastest = self.fastest(view);
        self.capacity.look(now, view, fastest, config);
        if view.sent > self.sent.0 {
            self.sent = (view.sent, now);
        }
        let heard = (view.srtt, view.sent.saturating_sub(view.unacked));
        if heard != self.sampled {
            self.sampled = heard;
            let queue = view.srtt.saturating_sub(fastest);
            // Nothing was added since.
            self.queue = (queue.saturating_sub(now.since(self.sent.1)), now);
        }
        // Ages the others.
        self.arrears.insert(now, i64::MAX);
        self.safe_rate.insert(now, i64::MAX);
        if view.stalled {
            self.silent = self.silent.or(view.silent_since);
        } else if let Some(since) = self.silent.take() {
            // When the path was last heard of, however late this is.
            let end = view.silent_since.unwrap_or(now);
            self.survived(now, since, end.since(since), view, config);
        }
    }

    /// A frame that was captured at `captured` waits to be written.
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

    /// A segment was lost while others arrived.
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
        // A time-out that no outage made says nothing of one.
        if silence < SHORTEST + view.srtt * 2 {
            return;
        }
        let restart = self.forecast(now, view, config.bound.saturating_mul(2));
        let ordeal = OutageMargin {
            config,
            silence,
            round_trip: view.srtt,
            rate: self
                .carries()
                .map_or(config.ceiling, |rate| rate.min(config.ceiling)),
            restart: &restart,
        };
        self.arrears.insert(now, signed(ordeal.tolerable_delay()));
        if let Some(rate) = ordeal.safe_rate() {
            self.safe_rate.insert(now, rate.as_bps().cast_signed());
        }
        let repaired = now + config.bound;
        self.rhythm.beat(onset, config.interval, repaired);
        self.tries = now + config.bound;
    }

    /// What frames that are written now may be made at to be ready for the worst of the last outages
    /// that were shorter than the bound. None while no outage is due, or none was so.
    pub(super) fn limit(&self, now: Time, view: &TcpView) -> Option<Rate> {
        let due = self.rhythm.is_due(now, view.srtt);
        let rate = self.safe_rate.min().filter(|_| due)?;
        Some(Rate::bps(rate.cast_unsigned()))
    }

    /// Called when the law finds a feasible plan again.
    pub(super) fn found_a_way(&mut self) {
        self.tries = Time::ZERO;
    }

    /// Whether an outage ended less than a bound ago and no feasible plan was found since.
    pub(super) fn is_blind(&self, now: Time) -> bool {
        now < self.tries
    }

    /// From the sender to the receiver, for what is sent now: half of the fastest round trip of the
    /// last five minutes, and what the last one took longer, as it is the way there on which a video
    /// makes a queue. That grows shorter while nothing is sent, or nothing heard.
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
            // What an end of start-up would have told is known, and a narrower path does not end it.
            view.control = view.control.started();
        }
        let open = view.forecast(now, horizon);
        match self.carries() {
            Some(rate) => open.min(&ServiceCurve::constant(rate)),
            None => open,
        }
    }

    /// What the path carries, if that is known to be less than the window lets through. BBR's own
    /// estimate is the most of ten round trips, which a path that has just become narrower does not
    /// keep.
    fn carries(&self) -> Option<Rate> {
        self.capacity.rate()
    }

    /// Whether what is out already makes a queue of a quarter of the bound, on a path whose rate is
    /// known. What is in that queue can neither be dropped nor made smaller any more, should the path
    /// become narrower; what waits here can.
    pub(super) fn is_full(&self, view: &TcpView, config: &TcpRateConfig) -> bool {
        let span = self.fastest(view) + config.bound / 4;
        self.carries()
            .is_some_and(|rate| view.backlog() > rate * span)
    }

    /// By how much the video may be late so that the worst outage of the last ones, if it came
    /// again, would find a budget that is large enough. Zero before there was any.
    pub(super) fn arrears(&self) -> Duration {
        self.arrears.min().map_or(Duration::ZERO, unsigned)
    }
}

fn signed(span: Duration) -> i64 {
    i64::try_from(nanos(span)).unwrap_or(i64::MAX - 1)
}

fn unsigned(nanos: i64) -> Duration {
    Duration::from_nanos(nanos.unsigned_abs())
}

/// A sixth of the five minutes over which Linux keeps its smallest round trip
/// (`tcp_min_rtt_wlen`).
const BUCKET: Duration = Duration::from_secs(50);
/// No outage is shorter than this and two round trips: a time-out of Linux makes a silence of two round
/// trips and 200 ms.
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
            silent_since: None,
            stalled: false,
            oldest_sent: None,
            resumed: None,
        }
    }

    fn at(secs: f64) -> Time {
        Time::ZERO + Duration::from_secs_f64(secs)
    }

    /// An outage from `from` that lasts for `silence`.
    fn suffer(past: &mut PathHistory, config: &TcpRateConfig, from: f64, silence: f64) {
        let stalled = TcpView {
            stalled: true,
            silent_since: Some(at(from)),
            ..view(0.166)
        };
        past.look(at(from + 1.0), &stalled, config);
        past.look(at(from + silence), &view(0.166), config);
    }

    #[test]
    fn what_a_round_trip_takes_longer_is_on_the_way_there() {
        let mut past = PathHistory::new();
        let mut acknowledged = 0;
        let mut after = |now, srtt, sent| {
            // Up to 5 s all is acknowledged, and from 6 s on.
            if !(5.0..6.0).contains(&now) {
                acknowledged = sent;
            }
            let view = TcpView {
                sent: Bytes(sent),
                unacked: Bytes(sent - acknowledged),
                ..view(srtt)
            };
            past.look(at(now), &view, &config(2.0));
            let way = past.one_way(at(now), &view);
            (way.as_secs_f64() * 1e3).round() as u64
        };
        assert_eq!(after(0.0, 0.1, 1_000), 50);
        assert_eq!(after(1.0, 1.1, 2_000), 1_050);
        // Nothing was sent for a while, and then for longer than the queue was.
        assert_eq!(after(1.4, 1.1, 2_000), 650);
        assert_eq!(after(5.0, 1.1, 2_000), 50);
        // Nothing was heard of it.
        assert_eq!(after(5.1, 1.1, 3_000), 50);
        // An acknowledgement says that the smoothed round trip is what it was.
        assert_eq!(after(6.1, 1.1, 3_500), 1_050);
        assert_eq!(after(290.0, 0.4, 4_000), 350);
        // The path is another one.
        assert_eq!(after(400.0, 0.4, 5_000), 200);
    }

    #[test]
    fn a_start_up_is_over_once_the_path_was_measured() {
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
            past.look(now, &view, &config);
            past.frame_waits(now, now, &view, &config);
            past.forecast(now, &view, secs(2.0)).at(secs(1.0)) as u64 / 1_000
        };
        // 1.2 Mb/s are sent, and arrive; then half of that, behind a queue.
        for ms in (0..1_000).step_by(50) {
            assert_eq!(carries(ms, 0.1, ms * 150), 1_584);
        }
        let last = (1_000..3_000)
            .step_by(50)
            .map(|ms| carries(ms, 0.5, 75_000 + ms * 75));
        assert_eq!(last.last(), Some(600));
        // What is known is forgotten, and the queue gone.
        assert_eq!(carries(9_000, 0.1, 1_350_000), 792);
    }

    #[test]
    fn the_longer_the_outage_the_less_may_be_owed() {
        let owed = |bound, silence| {
            let mut past = PathHistory::new();
            suffer(&mut past, &config(bound), 10.0, silence);
            past.arrears()
        };
        // Of six seconds 2.7 are left, less what is owed. The frames that are owed and the three that
        // follow unnoticed, 17 segments each, have to leave at one segment more per round trip.
        let six = owed(6.0, 3.2);
        assert!((secs(0.5)..secs(1.0)).contains(&six), "{six:?}");
        assert!(owed(6.0, 2.0) > six + secs(0.5) && owed(6.0, 4.0) < six);
        // 0.7 s are left: less than two frames, where three may be out.
        assert_eq!(owed(4.0, 3.2), Duration::ZERO);
        // Whatever was held back would be late.
        assert_eq!(owed(2.0, 3.2), secs(2.0));
    }

    #[test]
    fn the_worst_of_the_last_outages_counts() {
        let six = config(6.0);
        let mut past = PathHistory::new();
        assert_eq!(past.arrears(), Duration::ZERO);
        suffer(&mut past, &six, 10.0, 3.2);
        let long = past.arrears();
        suffer(&mut past, &six, 60.0, 1.2);
        assert_eq!(past.arrears(), long);
        // Five minutes later it is forgotten, and then the other one.
        past.look(at(315.0), &view(0.166), &six);
        assert!(past.arrears() > long);
        past.look(at(400.0), &view(0.166), &six);
        assert_eq!(past.arrears(), Duration::ZERO);
        // A time-out without an outage.
        suffer(&mut past, &six, 500.0, 0.8);
        assert_eq!(past.arrears(), Duration::ZERO);
        assert!(!past.is_blind(at(500.9)));
    }

    #[test]
    fn frames_are_ready_for_the_worst_of_the_last_outages() {
        let limit = |silences: [f64; 3], now: f64| {
            let mut past = PathHistory::new();
            for (n, silence) in silences.iter().enumerate() {
                suffer(&mut past, &config(4.0), 10.0 + 13.0 * n as f64, *silence);
            }
            past.look(at(now), &view(0.166), &config(4.0));
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
        // Against one that is longer than the bound nothing helps, and it changes nothing.
        assert_eq!(limit([3.2, 3.0, 5.0], 49.0), long);
        assert_eq!(limit([5.0; 3], 49.0), None);
        assert_eq!(limit([3.2; 3], 46.0), None);
        // Those from before the last five minutes are forgotten.
        let mut past = PathHistory::new();
        for (from, silence) in [(10.0, 3.2), (200.0, 5.0), (390.0, 5.0)] {
            suffer(&mut past, &config(4.0), from, silence);
        }
        past.look(at(580.0), &view(0.166), &config(4.0));
        assert_eq!(past.limit(at(580.0), &view(0.166)), None);
    }

    #[test]
    fn an_outage_ends_with_an_acknowledgement() {
        let six = config(6.0);
        let (mut past, mut seen_late) = (PathHistory::new(), PathHistory::new());
        suffer(&mut past, &six, 10.0, 3.2);
        let stalled = TcpView {
            stalled: true,
            silent_since: Some(at(10.0)),
            ..view(0.166)
        };
        seen_late.look(at(11.0), &stalled, &six);
        let alive = TcpView {
            silent_since: Some(at(13.2)),
            ..view(0.166)
        };
        seen_late.look(at(25.0), &alive, &six);
        assert_eq!(seen_late.arrears(), past.arrears());
    }

    #[test]
    fn it_is_blind_from_an_outage_to_the_next_way_or_for_a_bound() {
        let mut past = PathHistory::new();
        assert!(!past.is_blind(at(0.0)));
        suffer(&mut past, &config(2.0), 10.0, 3.2);
        assert!(past.is_blind(at(15.1)) && !past.is_blind(at(15.2)));
        past.found_a_way();
        assert!(!past.is_blind(at(13.3)));
    }
}
