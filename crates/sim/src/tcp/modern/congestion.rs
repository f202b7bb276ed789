//! What a congestion control is told, and what it decides.

use core::fmt::Debug;
use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::units::{Bytes, Rate, Time, nanos};

use super::bbr::{Bbr, BbrConfig};
use super::cubic::{Cubic, CubicConfig};
use super::prague::{Prague, PragueConfig};
use super::reno::{Reno, RenoConfig};

/// A congestion control: pure, without packets or timers.
///
/// The sender owns the [`Window`] and lends it out. An algorithm of the classic kind grows it in
/// [`on_ack`](Self::on_ack), which is called only while nothing is being recovered, and says in
/// [`on_congestion`](Self::on_congestion) how far to reduce it; the sender does that by
/// proportional rate reduction. An algorithm that
/// [owns the window](Self::owns_window) is called for every acknowledgement and sets it itself.
pub trait Congestion: Debug {
    /// An acknowledgement came.
    fn on_ack(&mut self, ack: &Acked, window: &mut Window, luck: &mut Pcg64Mcg);

    /// The path is congested. Returns the new slow start threshold, in segments.
    fn on_congestion(&mut self, now: Time, signal: Signal, window: &Window) -> u32;

    /// The last congestion was none: what was taken for lost had arrived. The sender has put the
    /// window back already.
    fn on_undo(&mut self, window: &mut Window);

    /// Something is sent again after nothing had been outstanding for `idle`.
    fn on_restart(&mut self, now: Time, idle: Duration, app_limited: bool);

    /// The rate at which to send, for an algorithm that has an opinion.
    fn pacing(&self) -> Option<Rate> {
        None
    }

    /// Whether it sets the window by itself, in recovery as well.
    fn owns_window(&self) -> bool {
        false
    }

    /// An acknowledgement came, of which [`Acked::marked`] tells how many segments were marked; asked
    /// of a [scalable](Self::is_scalable) one before anything else, in every phase. Returns whether
    /// it reduced the window for them.
    fn on_marks(&mut self, _: &Acked, _: &mut Window) -> bool {
        false
    }

    /// Whether it answers marks in proportion, so that its segments are ECT(1) and its receiver counts
    /// marks for it (RFC 9331); such a one is paced without slack.
    fn is_scalable(&self) -> bool {
        false
    }

    /// Whether it sends less than it could on purpose, so that the rates measured say nothing of
    /// the path.
    fn holds_back(&self) -> bool {
        false
    }
}

/// Which congestion control, with its parameters.
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

    /// Builds it. `packet` is a full segment on the wire, `initial` the first window in segments.
    pub fn build(&self, packet: Bytes, initial: u32) -> Algorithm {
        match self {
            Self::Bbr(config) => Algorithm::Bbr(Bbr::new(*config, packet, initial)),
            Self::Cubic(config) => Algorithm::Cubic(Cubic::new(*config)),
            Self::Prague(config) => Algorithm::Prague(Prague::new(*config)),
            Self::Reno(config) => Algorithm::Reno(Reno::new(*config)),
        }
    }
}

/// The congestion controls, without a virtual call per packet.
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
    fn on_ack(&mut self, ack: &Acked, window: &mut Window, luck: &mut Pcg64Mcg) {
        each!(self, it => it.on_ack(ack, window, luck));
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
    /// Slow start is below this.
    pub ssthresh: u32,
    limit: u32,
}

impl Window {
    /// `initial` and at most `limit` segments, and an unlimited threshold.
    pub fn new(initial: u32, limit: u32) -> Self {
        let limit = limit.max(1);
        Self {
            cwnd: initial.clamp(1, limit),
            ssthresh: u32::MAX,
            limit,
        }
    }

    /// What may be in flight, in 1..=limit.
    pub fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// The most that it may become.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets the window, clamped to 1..=limit.
    pub fn set(&mut self, cwnd: u32) {
        self.cwnd = cwnd.clamp(1, self.limit);
    }

    /// Whether it grows exponentially.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// One segment more per segment acknowledged, up to the threshold. Returns what is left of
    /// `acked` for congestion avoidance.
    pub fn slow_start(&mut self, acked: u32) -> u32 {
        let grown = self.cwnd.saturating_add(acked).min(self.ssthresh);
        let used = grown.saturating_sub(self.cwnd);
        self.set(grown);
        acked - used
    }
}

/// Why to slow down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A segment was lost, and later ones arrived.
    Loss,
    /// The receiver saw congestion experienced (RFC 3168).
    Mark,
    /// The retransmission timer expired.
    Timeout,
}

/// What the sender is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is amiss.
    Open,
    /// The window is being reduced after a mark.
    Reduced,
    /// Losses are being repaired.
    Recovery,
    /// A retransmission timer expired and not all that was outstanding then has arrived.
    Loss,
}

/// What one acknowledgement said, and how the sender stands after it.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When it came.
    pub now: Time,
    /// What the sender is busy with, this acknowledgement included.
    pub phase: Phase,
    /// The first segment that is not acknowledged.
    pub una: u32,
    /// The next segment that was never sent.
    pub next: u32,
    /// Segments acknowledged in sequence.
    pub acked: u32,
    /// Segments that arrived, in sequence or not, and were not known to have.
    pub delivered: u32,
    /// Segments that arrived with a mark since the last acknowledgement that told of any; told to
    /// scalable congestion controls only.
    pub marked: u32,
    /// Segments found to be lost.
    pub lost: u32,
    /// In flight before it.
    pub prior_in_flight: u32,
    /// In flight after it.
    pub in_flight: u32,
    /// Round trip of the newest segment that it acknowledges, if that was sent only once.
    pub rtt: Option<Duration>,
    /// Whether it may have waited for a second segment.
    pub delayed: bool,
    /// Smoothed round-trip time; zero while there is none.
    pub srtt: Duration,
    /// Segments delivered since the beginning.
    pub total: u64,
    /// Delivery rate.
    pub rate: RateSample,
    /// Whether the window, rather than the application, limits the sender.
    pub window_limited: bool,
}

/// How fast data was delivered between the sending of a segment and its acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// [`Acked::total`] when the segment was sent.
    pub prior: u64,
    /// Segments delivered since then.
    pub delivered: u64,
    /// In this time: the longer of the times that sending and acknowledging them took. Zero: there
    /// is no sample.
    pub interval: Duration,
    /// The application sent less than was allowed.
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
    fn a_window_keeps_within_its_limits() {
        let mut window = Window::new(0, 20);
        assert_eq!(window.cwnd(), 1);
        window.set(30);
        assert_eq!(window.cwnd(), 20);
        window.slow_start(u32::MAX);
        assert_eq!(window.cwnd(), 20);
    }

    #[test]
    fn a_rate_needs_an_interval() {
        let mut sample = RateSample {
            delivered: 10,
            ..RateSample::default()
        };
        assert_eq!(sample.per_second(), None);
        sample.interval = Duration::from_millis(100);
        assert_eq!(sample.per_second(), Some(100.0));
    }
}
