//! Interface between the sender and congestion controls.

use core::fmt::Debug;
use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::units::{Bytes, Rate, Time, nanos};

use super::bbr::{Bbr, BbrConfig};
use super::cubic::{Cubic, CubicConfig};
use super::prague::{Prague, PragueConfig};
use super::reno::{Reno, RenoConfig};

/// A congestion control: a pure algorithm without packets or timers.
///
/// The sender owns the [`Window`]. A classic algorithm increases it in [`on_ack`](Self::on_ack),
/// which is called only outside of recovery, and returns the new threshold in
/// [`on_congestion`](Self::on_congestion); the sender then reduces the window by proportional rate
/// reduction. An algorithm that [owns the window](Self::owns_window) is called for every
/// acknowledgement and sets the window itself.
pub trait Congestion: Debug {
    /// Processes an acknowledgement.
    fn on_ack(&mut self, ack: &Acked, window: &mut Window, rng: &mut Pcg64Mcg);

    /// Responds to congestion. Returns the new slow start threshold, in segments.
    fn on_congestion(&mut self, now: Time, signal: Signal, window: &Window) -> u32;

    /// Undoes the last response, because the segments marked as lost had arrived. The sender has
    /// already restored the window.
    fn on_undo(&mut self, window: &mut Window);

    /// Sending resumes after no data was outstanding for `idle`.
    fn on_restart(&mut self, now: Time, idle: Duration, app_limited: bool);

    /// The pacing rate, for an algorithm that computes one.
    fn pacing(&self) -> Option<Rate> {
        None
    }

    /// Whether the algorithm sets the window itself, also in recovery.
    fn owns_window(&self) -> bool {
        false
    }

    /// Processes an acknowledgement that reports [`Acked::marked`] marked segments. Called before
    /// the other methods in every phase, for [scalable](Self::is_scalable) algorithms only. Returns
    /// whether the window was reduced.
    fn on_marks(&mut self, _: &Acked, _: &mut Window) -> bool {
        false
    }

    /// Whether the response to marks is proportional, so that segments are ECT(1) and the receiver
    /// counts marks (RFC 9331). A scalable flow is paced without slack.
    fn is_scalable(&self) -> bool {
        false
    }

    /// Whether it intentionally sends below the available rate, so that rate samples do not reflect
    /// the path.
    fn holds_back(&self) -> bool {
        false
    }
}

/// A congestion control with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CongestionConfig {
    /// BBR, version 1.
    Bbr(BbrConfig),
    /// CUBIC (RFC 9438).
    Cubic(CubicConfig),
    /// Prague (RFC 9331).
    Prague(PragueConfig),
    /// Reno (RFC 5681).
    Reno(RenoConfig),
}

impl CongestionConfig {
    /// CUBIC with its defaults.
    pub fn cubic() -> Self {
        Self::Cubic(CubicConfig::default())
    }

    /// BBR with its defaults.
    pub fn bbr() -> Self {
        Self::Bbr(BbrConfig::default())
    }

    /// Prague with its defaults.
    pub fn prague() -> Self {
        Self::Prague(PragueConfig::default())
    }

    /// Reno with its defaults.
    pub fn reno() -> Self {
        Self::Reno(RenoConfig::default())
    }

    /// Builds the algorithm. `packet` is the size of a full segment, `initial` the initial window
    /// in segments.
    pub fn build(&self, packet: Bytes, initial: u32) -> Algorithm {
        match self {
            Self::Bbr(config) => Algorithm::Bbr(Bbr::new(*config, packet, initial)),
            Self::Cubic(config) => Algorithm::Cubic(Cubic::new(*config)),
            Self::Prague(config) => Algorithm::Prague(Prague::new(*config)),
            Self::Reno(config) => Algorithm::Reno(Reno::new(*config)),
        }
    }
}

/// The congestion controls; an enum avoids a virtual call per packet.
#[derive(Clone, Debug)]
pub enum Algorithm {
    /// BBR, version 1.
    Bbr(Bbr),
    /// CUBIC.
    Cubic(Cubic),
    /// Prague.
    Prague(Prague),
    /// Reno.
    Reno(Reno),
}

macro_rules! each {
    ($self:ident, $inner:ident => $call:expr) => {
        match $self {
            Algorithm::Bbr($inner) => $call,
            Algorithm::Cubic($inner) => $call,
            Algorithm::Prague($inner) => $call,
            Algorithm::Reno($inner) => $call,
        }
    };
}

impl Congestion for Algorithm {
    fn on_ack(&mut self, ack: &Acked, window: &mut Window, rng: &mut Pcg64Mcg) {
        each!(self, it => it.on_ack(ack, window, rng));
    }

    fn on_congestion(&mut self, now: Time, signal: Signal, window: &Window) -> u32 {
        each!(self, it => it.on_congestion(now, signal, window))
    }

    fn on_undo(&mut self, window: &mut Window) {
        each!(self, it => it.on_undo(window));
    }

    fn on_restart(&mut self, now: Time, idle: Duration, app_limited: bool) {
        each!(self, it => it.on_restart(now, idle, app_limited));
    }

    fn pacing(&self) -> Option<Rate> {
        each!(self, it => it.pacing())
    }

    fn owns_window(&self) -> bool {
        each!(self, it => it.owns_window())
    }

    fn on_marks(&mut self, ack: &Acked, window: &mut Window) -> bool {
        each!(self, it => it.on_marks(ack, window))
    }

    fn is_scalable(&self) -> bool {
        each!(self, it => it.is_scalable())
    }

    fn holds_back(&self) -> bool {
        each!(self, it => it.holds_back())
    }
}

/// The congestion window and its threshold, in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    cwnd: u32,
    /// Slow start below this value.
    pub ssthresh: u32,
    limit: u32,
}

impl Window {
    /// A window of `initial`, at most `limit` segments, with an unlimited threshold.
    pub fn new(initial: u32, limit: u32) -> Self {
        let limit = limit.max(1);
        Self {
            cwnd: initial.clamp(1, limit),
            ssthresh: u32::MAX,
            limit,
        }
    }

    /// Congestion window, in 1..=limit.
    pub fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// Upper limit of the window.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets the window, clamped to 1..=limit.
    pub fn set(&mut self, cwnd: u32) {
        self.cwnd = cwnd.clamp(1, self.limit);
    }

    /// Whether the window is in slow start.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Increases the window by one segment per acknowledged segment, up to the threshold. Returns
    /// the part of `acked` that is left for congestion avoidance.
    pub fn slow_start(&mut self, acked: u32) -> u32 {
        let grown = self.cwnd.saturating_add(acked).min(self.ssthresh);
        let used = grown.saturating_sub(self.cwnd);
        self.set(grown);
        acked - used
    }
}

/// Congestion signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A segment was lost, and later ones arrived.
    Loss,
    /// The receiver reported a CE mark (RFC 3168).
    Mark,
    /// The retransmission timer expired.
    Timeout,
}

/// State of loss recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// No loss or mark is pending.
    #[default]
    Open,
    /// The window is being reduced after a mark.
    Reduced,
    /// Losses are being repaired.
    Recovery,
    /// After a retransmission timeout, until all data outstanding at that time has arrived.
    Loss,
}

/// Contents of an acknowledgement, and the state of the sender after it.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Arrival time.
    pub now: Time,
    /// State of loss recovery, including this acknowledgement.
    pub phase: Phase,
    /// First unacknowledged segment.
    pub una: u32,
    /// Next new segment.
    pub next: u32,
    /// Segments acknowledged in sequence.
    pub acked: u32,
    /// Newly delivered segments, in sequence or not.
    pub delivered: u32,
    /// Marked segments since the last acknowledgement that reported any; only for scalable
    /// congestion controls.
    pub marked: u32,
    /// Segments newly marked as lost.
    pub lost: u32,
    /// Segments in flight before the acknowledgement.
    pub prior_in_flight: u32,
    /// Segments in flight after the acknowledgement.
    pub in_flight: u32,
    /// Round-trip time of the newest acknowledged segment, if it was sent only once.
    pub rtt: Option<Duration>,
    /// Whether the receiver may have delayed the acknowledgement.
    pub delayed: bool,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// Segments delivered since the start.
    pub total: u64,
    /// Delivery rate.
    pub rate: RateSample,
    /// Whether the window, rather than the application, limits the sender.
    pub window_limited: bool,
}

/// Delivery rate between the sending of a segment and its acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// [`Acked::total`] when the segment was sent.
    pub prior: u64,
    /// Segments delivered since then.
    pub delivered: u64,
    /// Length of the interval: the longer of its send and acknowledgement phases. Zero if there is
    /// no sample.
    pub interval: Duration,
    /// The application sent less than the window allowed.
    pub app_limited: bool,
}

impl RateSample {
    /// Segments per second; `None` without a sample.
    pub fn per_second(&self) -> Option<f64> {
        let nanos = nanos(self.interval);
        (nanos > 0).then(|| self.delivered as f64 * 1e9 / nanos as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_stops_at_its_threshold() {
        let mut window = Window::new(10, 1_000);
        window.ssthresh = 14;
        assert_eq!((window.slow_start(3), window.cwnd()), (0, 13));
        assert_eq!((window.slow_start(3), window.cwnd()), (2, 14));
        assert!(!window.in_slow_start());
        assert_eq!((window.slow_start(3), window.cwnd()), (3, 14));
    }

    #[test]
    fn window_stays_within_its_limits() {
        let mut window = Window::new(0, 20);
        assert_eq!(window.cwnd(), 1);
        window.set(30);
        assert_eq!(window.cwnd(), 20);
        window.slow_start(u32::MAX);
        assert_eq!(window.cwnd(), 20);
    }

    #[test]
    fn rate_requires_an_interval() {
        let mut sample = RateSample {
            delivered: 10,
            ..RateSample::default()
        };
        assert_eq!(sample.per_second(), None);
        sample.interval = Duration::from_millis(100);
        assert_eq!(sample.per_second(), Some(100.0));
    }
}
