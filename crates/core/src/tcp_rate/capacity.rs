//! Measures the capacity of the path where it is less than the congestion window allows.
//!
//! The window of a loss-based TCP limits the bytes in flight, not the rate. It grows while a queue
//! builds up at the bottleneck. Once the queue is gone, window / RTT is many times the capacity.
//! The capacity is therefore measured during overload: while there is a queue and more bytes are
//! sent than acknowledged, the acknowledged rate is the capacity. In a queue of competing flows the
//! acknowledged rate is equal to the sending rate, which gives no measurement. If the video raises
//! its rate, the path looks overloaded for one round trip. Then more bytes are acknowledged, and
//! the estimate rises to a rate that the path does carry.
//!
//! If the buffer is short, segments are lost before a standing queue forms, and a forecast from the
//! remaining window is soon too high. While frames wait for longer than the frame interval, the
//! connection is not application-limited. Then any queue counts as overload, and so does a loss:
//! the acknowledged rate until then is the capacity, or the share of it that competing flows leave.

use core::time::Duration;
use std::collections::VecDeque;

use super::{CongestionControl, TcpRateConfig, TcpView};
use crate::units::{Bytes, Rate, Time};

/// Capacity estimate from the states of a connection, in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacity {
    /// Bytes sent and acknowledged in the last round trip or a little more.
    marks: VecDeque<Mark>,
    /// Capacity in bits per second, at least the floor; `None` if unknown.
    known: Option<f64>,
    /// Whether the capacity was ever known.
    measured: bool,
    /// Time of the last state.
    seen: Time,
    /// Bytes acknowledged, and the time of the last increase.
    last_ack: (Bytes, Time),
    /// No acknowledgement for too long to continue the measurement.
    silent: bool,
    /// Time when the path last resumed with the packets in flight.
    resumed: Option<Time>,
    /// Packets held by the path during that outage and not yet acknowledged.
    held: Option<OutageFlight>,
    /// Time since which frames have waited for longer than two frame intervals.
    busy: Option<Time>,
}

/// Bytes in flight at the end of an outage: their range in the stream, and the time.
#[derive(Clone, Copy, Debug)]
struct OutageFlight {
    from: Bytes,
    to: Bytes,
    at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Time,
    sent: Bytes,
    acknowledged: Bytes,
}

impl Capacity {
    /// Updates the estimate with the state of the connection; `fastest` is the minimum RTT.
    pub(super) fn look(
        &mut self,
        now: Time,
        view: &TcpView,
        fastest: Duration,
        config: &TcpRateConfig,
    ) {
        self.forget(now, is_queued(view, fastest, config));
        self.measured |= self.known.is_some();
        let acknowledged = view.sent.saturating_sub(view.unacked);
        if view.resumed > self.resumed {
            self.resumed = view.resumed;
            self.known = Some(config.floor.as_f64());
            self.held = Some(OutageFlight {
                from: acknowledged,
                to: view.sent,
                at: now,
            });
        }
        self.look_at_held(now, acknowledged, view.mss);
        // Loss recovery delays the acknowledgements by a round trip or more, and then acknowledges
        // many bytes at once. Neither is a measurement.
        if acknowledged > self.last_ack.0 {
            self.last_ack = (acknowledged, now);
            self.silent = false;
        } else if view.stalled || now.since(self.last_ack.1) > (view.srtt / 2).max(SPACING) {
            self.silent = true;
            self.marks.clear();
        }
    }

    /// Packets held during an outage leave the queue at the capacity of the path. The estimate is
    /// half of that rate, because the capacity after an outage is usually different and not yet
    /// constant.
    fn look_at_held(&mut self, now: Time, acknowledged: Bytes, mss: Bytes) {
        let Some(held) = self.held else {
            return;
        };
        let carried = acknowledged.min(held.to).saturating_sub(held.from);
        let span = now.since(held.at);
        if carried >= mss.scale(HELD, 1) && span >= HELD_SPAN {
            let rate = (carried / span).as_f64() / 2.0;
            self.known = self.known.map(|known| known.max(rate));
        }
        if acknowledged >= held.to {
            self.held = None;
        }
    }

    /// Records that a frame captured at `captured` waits to be written. Frames are sent in bursts,
    /// so the sending rate is measured from before one frame to before another. An interval that
    /// ends after a frame would look like overload.
    pub(super) fn frame_waits(
        &mut self,
        now: Time,
        captured: Time,
        view: &TcpView,
        fastest: Duration,
        config: &TcpRateConfig,
    ) {
        // BBR limits its pacing rate to its own estimate, so waiting frames do not indicate a limit
        // of the path.
        let by_window = !matches!(view.control, CongestionControl::Bbr { .. });
        let busy = by_window && now.since(captured) > config.interval * 2;
        self.busy = busy.then(|| self.busy.unwrap_or(now));
        let mark = Mark {
            at: now,
            sent: view.sent,
            acknowledged: self.last_ack.0,
        };
        let span = view.srtt.max(SPAN);
        let is_old = |mark: &Mark| now.since(mark.at) >= span;
        while self.marks.get(1).is_some_and(is_old) {
            self.marks.pop_front();
        }
        // During loss recovery more bytes are sent, and none are acknowledged.
        let flows = now.since(self.last_ack.1) <= span / 4;
        let first = self.marks.front().copied().filter(is_old);
        let queued = |first: &Mark| {
            is_queued(view, fastest, config) || self.was_busy(first) && has_queue(view, fastest)
        };
        if let Some(first) = first.filter(|first| flows && queued(first)) {
            let sent = mark.sent.saturating_sub(first.sent);
            let carried = mark.acknowledged.saturating_sub(first.acknowledged);
            let rate = (carried / now.since(first.at)).max(config.floor).as_f64();
            let overloaded =
                self.was_busy(&first) || sent > carried.scale(11, 10) + view.mss.scale(2, 1);
            if overloaded || self.known.is_some_and(|known| rate > known) {
                self.known = Some(rate);
            }
        }
        let enough = config.ceiling.as_f64() * ENOUGH;
        self.known = self.known.filter(|rate| *rate < enough);
        let last = self.marks.back();
        if !self.silent && last.is_none_or(|last| now.since(last.at) >= MARKS) {
            self.marks.push_back(mark);
        }
    }

    /// Records a lost segment while others arrived: the queue may be full, even if it is short.
    pub(super) fn lost(&mut self, view: &TcpView, config: &TcpRateConfig) {
        let (acknowledged, at) = self.last_ack;
        let span = view.srtt.max(SPAN);
        let is_old = |mark: &&Mark| at.since(mark.at) >= span;
        let first = self.marks.iter().rev().find(is_old);
        if let Some(first) = first.filter(|first| self.was_busy(first)) {
            let carried = acknowledged.saturating_sub(first.acknowledged);
            let rate = (carried / at.since(first.at)).max(config.floor);
            self.known = Some(rate.as_f64());
        }
    }

    /// Whether frames have waited without interruption since `first`.
    fn was_busy(&self, first: &Mark) -> bool {
        self.busy.is_some_and(|since| since <= first.at)
    }

    /// Capacity of the path, if it limits the connection.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.known.map(Rate::from_f64)
    }

    /// Whether the capacity was ever measured.
    pub(super) fn was_measured(&self) -> bool {
        self.measured
    }

    /// Lets the estimate grow: only a higher sending rate can detect an increase of the capacity.
    fn forget(&mut self, now: Time, queued: bool) {
        let passed = now.since(core::mem::replace(&mut self.seen, now));
        let doubles = if queued { DOUBLES_QUEUED } else { DOUBLES };
        let growth = libm::exp2(passed.as_secs_f64() / doubles.as_secs_f64());
        self.known = self.known.map(|rate| rate * growth);
    }
}

fn is_queued(view: &TcpView, fastest: Duration, config: &TcpRateConfig) -> bool {
    view.srtt.saturating_sub(fastest) > QUEUE.max(config.bound / 10)
}

/// Whether there is any queue beyond the variation of the round-trip time.
fn has_queue(view: &TcpView, fastest: Duration) -> bool {
    view.srtt.saturating_sub(fastest) > SHORT_QUEUE.max(fastest / 4)
}

/// Minimum queueing delay that indicates overload: more than a frame of 25 kB causes for itself at
/// 5 Mb/s. A tenth of the bound applies if that is longer.
const QUEUE: Duration = Duration::from_millis(50);
/// See [`has_queue`].
const SHORT_QUEUE: Duration = Duration::from_millis(10);
/// Minimum interval of a rate measurement: three frames at ten frames per second.
const SPAN: Duration = Duration::from_millis(300);
/// Minimum interval between marks.
const MARKS: Duration = Duration::from_millis(10);
/// Maximum distance of acknowledgements at 150 kb/s, with one per two segments.
const SPACING: Duration = Duration::from_millis(170);
/// Time in which an unconfirmed estimate doubles without a queue.
const DOUBLES: Duration = Duration::from_secs(2);
/// Time in which an unconfirmed estimate doubles with a queue.
const DOUBLES_QUEUED: Duration = Duration::from_secs(8);
/// Minimum number of segments for a measurement after an outage.
const HELD: u64 = 8;
/// Minimum interval of a measurement after an outage.
const HELD_SPAN: Duration = Duration::from_millis(50);
/// From this multiple of the ceiling on, the capacity is no limit.
const ENOUGH: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp_rate::{CongestionControl, Mode, Subscription};

    const FASTEST: Duration = Duration::from_millis(40);

    fn config() -> TcpRateConfig {
        TcpRateConfig {
            mode: Mode::Classic,
            subscribed: Subscription::NONE,
            floor: Rate::kbps(150),
            ceiling: Rate::kbps(2_000),
            bound: Duration::from_secs(1),
            interval: Duration::from_millis(100),
            encoder_delay: Duration::ZERO,
            default_response_latency: Duration::ZERO,
            margin: TcpRateConfig::MARGIN,
            drain: Duration::from_secs(3),
        }
    }

    /// A connection with a queueing delay of `queue` ms.
    fn view(queue: u64) -> TcpView {
        TcpView {
            control: CongestionControl::Cubic,
            mss: Bytes(1_448),
            srtt: FASTEST + Duration::from_millis(queue),
            cwnd: Bytes(200_000),
            ssthresh: Bytes(100_000),
            unacked: Bytes::ZERO,
            unsent: Bytes::ZERO,
            sent: Bytes::ZERO,
            next_timeout: None,
            unacked_since: None,
            stalled: false,
            oldest_sent: None,
            resumed: None,
        }
    }

    /// A simulated connection and its byte counters.
    #[derive(Default)]
    struct Played {
        it: Capacity,
        now: u64,
        sent: u64,
        acknowledged: u64,
        resumed: Option<Time>,
        /// Waiting time of the oldest frame, in ms.
        waits: u64,
        /// Bandwidth estimate of BBR; `None` for CUBIC.
        bbr: Option<Rate>,
    }

    impl Played {
        /// Sends and acknowledges at these rates, in kb/s, for `ms`, with a queueing delay of
        /// `queue` ms. Returns the estimate in kb/s.
        fn play(&mut self, ms: u64, queue: u64, rates: (u64, u64)) -> Option<u64> {
            for _ in 0..ms / 40 {
                self.now += 40;
                self.sent += rates.0 * 5;
                self.acknowledged += rates.1 * 5;
                self.look(queue);
            }
            self.it.rate().map(|rate| rate.as_bps() / 1_000)
        }

        fn look(&mut self, queue: u64) {
            let bbr = self.bbr.map(|bandwidth| CongestionControl::Bbr {
                bandwidth,
                min_rtt: FASTEST,
                next_probe: Duration::from_secs(9),
                starting: false,
            });
            let view = TcpView {
                control: bbr.unwrap_or(CongestionControl::Cubic),
                unacked: Bytes(self.sent - self.acknowledged + 10_000),
                sent: Bytes(self.sent + 10_000),
                resumed: self.resumed,
                ..view(queue)
            };
            let now = Time::from_millis(self.now);
            self.it.look(now, &view, FASTEST, &config());
            let captured = now.before(Duration::from_millis(self.waits));
            self.it
                .frame_waits(now, captured, &view, FASTEST, &config());
        }
    }

    #[test]
    fn capacity_is_measured_during_overload() {
        let none = |queue, rates| Played::default().play(2_000, queue, rates);
        assert_eq!(none(300, (1_200, 600)), Some(600));
        // A short queue, a queue of competing flows, and a slight overload.
        assert_eq!(none(90, (1_200, 600)), None);
        assert_eq!(none(300, (600, 600)), None);
        assert_eq!(none(300, (640, 600)), None);
        // Below the floor, and more than twice the ceiling.
        assert_eq!(none(300, (300, 100)), Some(150));
        assert_eq!(none(300, (9_000, 5_000)), None);
    }

    #[test]
    fn any_queue_is_overload_while_frames_wait() {
        let mut it = Played::default();
        // The acknowledged rate is equal to the sending rate, with a short standing queue.
        assert_eq!(it.play(2_000, 20, (600, 600)), None);
        it.waits = 300;
        // Frames have to wait for the interval of a measurement.
        assert_eq!(it.play(200, 20, (600, 600)), None);
        assert_eq!(it.play(400, 20, (600, 600)), Some(600));
        // A shorter queue may be a variation of the round-trip time.
        let mut it = Played {
            waits: 300,
            ..Played::default()
        };
        assert_eq!(it.play(2_000, 9, (600, 600)), None);
    }

    #[test]
    fn pacing_rate_of_bbr_is_not_a_capacity() {
        let mut it = Played {
            waits: 300,
            bbr: Some(Rate::kbps(600)),
            ..Played::default()
        };
        assert_eq!(it.play(2_000, 20, (600, 600)), None);
        it.it.lost(&view(0), &config());
        assert_eq!(it.it.rate(), None);
    }

    #[test]
    fn loss_is_overload_while_frames_wait() {
        let lost = |waits: u64, ms: u64| {
            let mut it = Played {
                waits,
                ..Played::default()
            };
            assert_eq!(it.play(ms, 0, (600, 600)), None);
            it.it.lost(&view(0), &config());
            it.it.rate().map(|rate| rate.as_bps() / 1_000)
        };
        assert_eq!(lost(300, 1_000), Some(600));
        assert_eq!(lost(0, 1_000), None);
        assert_eq!(lost(300, 200), None);
    }

    #[test]
    fn bursts_of_frames_are_not_overload() {
        // The acknowledged rate is equal to the sending rate, 75 kB/s, with a standing queue.
        let play = |always: bool| {
            let mut it = Capacity::default();
            for ms in (0..2_000_u64).step_by(20) {
                let sent = ms.div_ceil(100) * 7_500;
                let view = TcpView {
                    unacked: Bytes(30_000 + sent - ms * 75),
                    sent: Bytes(30_000 + sent),
                    ..view(280)
                };
                let now = Time::from_millis(ms);
                it.look(now, &view, FASTEST, &config());
                if always || ms % 100 == 0 {
                    it.frame_waits(now, now, &view, FASTEST, &config());
                }
            }
            it.rate().is_some()
        };
        assert!(!play(false));
        // An interval from before a frame to after another has one frame too many.
        assert!(play(true));
    }

    #[test]
    fn unconfirmed_estimate_expires() {
        let mut it = Played::default();
        assert_eq!(it.play(1_000, 0, (1_200, 1_200)), None);
        assert!(!it.it.was_measured());
        assert_eq!(it.play(2_000, 300, (1_200, 600)), Some(600));
        let later = it.play(2_000, 0, (500, 500)).unwrap();
        assert!((1_195..=1_205).contains(&later), "{later}");
        let queued = it.play(4_000, 300, (500, 500)).unwrap();
        assert!((1_690..=1_705).contains(&queued), "{queued}");
        assert_eq!(it.play(6_000, 0, (500, 500)), None);
        assert!(it.it.was_measured());
    }

    #[test]
    fn measurement_restarts_after_an_outage() {
        let mut it = Played::default();
        assert_eq!(it.play(2_000, 300, (1_200, 600)), Some(600));
        it.resumed = Some(Time::from_millis(2_000));
        let first = it.play(40, 0, (150, 0)).unwrap();
        assert_eq!(first, 150);
        // The held packets arrive at 1.2 Mb/s: 6 kB per call, which is enough from the second on.
        assert!(it.play(40, 0, (150, 1_200)).unwrap() < 155);
        let half = it.play(120, 0, (150, 1_200)).unwrap();
        assert!((600..=630).contains(&half), "{half}");
        // Packets sent after the outage do not count as held.
        let last = it.play(900, 0, (150, 1_200)).unwrap();
        assert!((600..=850).contains(&last), "{last}");
        let later = it.play(400, 0, (2_000, 2_000)).unwrap();
        assert!((last..=last * 6 / 5).contains(&later), "{later}");
    }

    #[test]
    fn rate_increase_in_a_queue_of_other_flows_raises_the_estimate() {
        let mut it = Played::default();
        assert_eq!(it.play(2_000, 200, (300, 300)), None);
        // For one round trip of 240 ms the acknowledgements are for the smaller frames.
        assert_eq!(it.play(240, 200, (2_000, 300)), Some(300));
        let known = it.play(320, 200, (2_000, 2_000)).unwrap();
        assert!(known >= 2_000, "{known}");
    }

    #[test]
    fn loss_recovery_is_not_a_measurement() {
        let mut it = Played::default();
        assert_eq!(it.play(600, 120, (600, 600)), None);
        // No bytes are acknowledged for 160 ms, and then all at once, while more is sent.
        assert_eq!(it.play(160, 120, (800, 0)), None);
        it.acknowledged += 160 * 75;
        assert_eq!(it.play(1_000, 120, (600, 600)), None);
        // The same for more than a round trip, and then a part of it.
        assert_eq!(it.play(400, 120, (600, 0)), None);
        it.acknowledged += 160 * 75;
        assert_eq!(it.play(1_000, 120, (600, 600)), None);
        // Such a burst of acknowledgements does not raise a known estimate either.
        it.acknowledged = it.sent;
        assert_eq!(it.play(2_000, 120, (1_200, 600)), Some(600));
        it.play(400, 120, (600, 0));
        it.acknowledged = it.sent;
        let known = it.play(400, 120, (600, 600)).unwrap();
        assert!(known < 650, "{known}");
    }
}
