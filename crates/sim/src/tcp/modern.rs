//! A TCP sender as in current Linux: selective acknowledgements, RACK-TLP, proportional rate
//! reduction, delivery rate samples, with Reno, CUBIC, BBR or Prague.
//!
//! `docs/tcp-modern.md` describes the validation. The receiver is the common [`Sink`](super::Sink)
//! with three SACK blocks. Sequence numbers and windows count segments instead of bytes.

use core::time::Duration;

use tidegate_core::units::{Bytes, Rate, Time};

use super::source::Sizes;
use super::{Counters, Source, SourceConfig, State, Written};
use crate::packet_agent::{Agent, AgentCx, Arrival, Body};

pub mod bbr;
mod config;
pub mod congestion;
pub mod cubic;
pub mod hystart;
mod input;
mod output;
pub mod prague;
mod prr;
mod rack;
mod rate;
pub mod reno;
mod rtt;
mod scoreboard;
#[cfg(test)]
mod testing;
mod timers;
mod windowed;

pub use bbr::{Bbr, BbrConfig, BbrMode};
pub use config::{Config, ConfigError, Detection};
pub use congestion::{Algorithm, Congestion, CongestionConfig, Phase, RateSample};
pub use cubic::{Cubic, CubicConfig};
pub use hystart::HyStartConfig;
pub use prague::{Prague, PragueConfig};
pub use reno::{Reno, RenoConfig};
pub use rtt::TimeoutConfig;

use congestion::Window;
use output::{Pacer, Usage};
use prr::Reduction;
use rack::{Duplicates, Rack};
use rate::Sampler;
use rtt::Rtt;
use scoreboard::Scoreboard;
use timers::{Probe, Timers};

/// A TCP sender.
#[derive(Clone, Debug)]
pub struct Sender {
    config: Config,
    source: Source,
    life: Life,
    board: Scoreboard,
    rtt: Rtt,
    sampler: Sampler,
    rack: Rack,
    duplicates: Duplicates,
    window: Window,
    algorithm: Algorithm,
    recovery: Recovery,
    timers: Timers,
    probe: Option<Probe>,
    pacer: Pacer,
    usage: Usage,
    ecn: EcnState,
    last_sent: Time,
    /// The source has stopped.
    stopped: bool,
    last_rate: RateSample,
    counts: Counts,
}

/// Loss recovery.
#[derive(Clone, Debug, Default)]
struct Recovery {
    phase: Phase,
    /// The phase ends when all segments before this one are acknowledged.
    end: u32,
    reduction: Reduction,
    undo: Option<Undo>,
}

/// State of ECN.
#[derive(Clone, Copy, Debug, Default)]
struct EcnState {
    /// The next new segment carries CWR.
    cwr: bool,
    /// Marks that the receiver has counted up to the newest acknowledgement, modulo 2^16.
    marks: u16,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    common: Counters,
    recovery: RecoveryCounters,
}

impl Sender {
    /// A sender that opens its connection at the start time of the source.
    ///
    /// # Errors
    /// The parameter that is out of range.
    pub fn new(config: &Config, source: &SourceConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let sizes = Sizes {
            packet: config.packet_size,
            header: config.header_size,
            syn: config.syn.then_some(config.header_size),
        };
        let packet = Bytes(u64::from(config.packet_size));
        let initial = config.initial_window.segments(sizes.payload());
        Ok(Self {
            config: *config,
            source: Source::new(source, sizes),
            life: Life::Waiting,
            board: Scoreboard::new(),
            rtt: Rtt::new(config.timeout),
            sampler: Sampler::new(),
            rack: Rack::new(),
            duplicates: Duplicates::default(),
            window: Window::new(initial, config.window),
            algorithm: config.congestion.build(packet, initial),
            recovery: Recovery::default(),
            timers: Timers::new(),
            probe: None,
            pacer: Pacer::new(),
            usage: Usage::default(),
            ecn: EcnState::default(),
            last_sent: Time::ZERO,
            stopped: false,
            last_rate: RateSample::default(),
            counts: Counts::default(),
        })
    }

    /// Current state.
    pub fn state(&self) -> State {
        let srtt = self.rtt.smoothed();
        State {
            cwnd: f64::from(self.window.cwnd()),
            ssthresh: f64::from(self.window.ssthresh.min(self.config.window)),
            rto: self.rtt.timeout(),
            srtt: (!srtt.is_zero()).then_some(srtt),
            in_flight: self.board.in_flight(),
            recovering: self.recovery.phase == Phase::Recovery,
        }
    }

    /// Current measurements of the path.
    pub fn path(&self) -> PathState {
        let packet = Bytes(u64::from(self.config.packet_size)).bits() as f64;
        PathState {
            phase: self.recovery.phase,
            min_rtt: self.rtt.min(),
            delivered: self.sampler.delivered(),
            delivery_rate: self
                .last_rate
                .per_second()
                .map(|segments| Rate::from_f64(segments * packet)),
            app_limited: self.sampler.app_limited(),
            pacing: self.pacing_rate(),
        }
    }

    /// Counters.
    pub fn counters(&self) -> Counters {
        Counters {
            acked: self.board.una(),
            ..self.counts.common
        }
    }

    /// Additional counters.
    pub fn recovery_counters(&self) -> RecoveryCounters {
        self.counts.recovery
    }

    /// The congestion control.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// Expiry of the retransmission timer; none while no data is outstanding.
    pub fn next_timeout(&self) -> Option<Time> {
        (self.timers.timeout < Time::FAR).then_some(self.timers.timeout)
    }

    /// Data source.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Accepts up to `bytes` from an application, and sends what the window allows. Accepts none
    /// unless the source is a stream that has started and not stopped.
    pub fn write(&mut self, cx: &mut AgentCx<'_>, bytes: u64) -> Written {
        let written = self.source.write(bytes);
        if written.accepted > 0 {
            self.transmit(cx);
        }
        written
    }

    fn open(&mut self, cx: &mut AgentCx<'_>) {
        self.source.open();
        self.life = if self.config.syn {
            Life::Opening
        } else {
            Life::Open
        };
        self.transmit(cx);
    }
}

impl Agent for Sender {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, _: &Arrival, body: &mut Body) {
        if let Body::Ack(ack) = body {
            self.on_ack(cx, ack);
        }
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        if self.life == Life::Waiting {
            if cx.now >= self.source.start() {
                self.open(cx);
            }
            return;
        }
        if cx.now >= self.source.stop() && !self.stopped {
            self.stopped = true;
            self.source.close(self.board.next());
        }
        self.on_deadlines(cx);
    }

    fn next_timer(&self) -> Time {
        match self.life {
            Life::Waiting => self.source.start(),
            Life::Opening | Life::Open if self.is_done() => Time::FAR,
            Life::Opening | Life::Open => {
                let stop = if self.stopped {
                    Time::FAR
                } else {
                    self.source.stop()
                };
                self.timers.next().min(self.pacer.wake()).min(stop)
            }
        }
    }

    fn is_done(&self) -> bool {
        self.source.is_finished(self.board.una())
    }
}

/// A sender's measurements of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathState {
    /// State of loss recovery.
    pub phase: Phase,
    /// Minimum round-trip time of the last five minutes.
    pub min_rtt: Option<Duration>,
    /// Segments delivered since the start.
    pub delivered: u64,
    /// Latest sample of the delivery rate, including headers.
    pub delivery_rate: Option<Rate>,
    /// The application limits the rate, so that samples underestimate the path.
    pub app_limited: bool,
    /// Pacing rate; `None`: segments leave as soon as the window allows.
    pub pacing: Option<Rate>,
}

/// Counters of a sender that [`Counters`] does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCounters {
    /// Segments marked as lost; each copy counts.
    pub lost: u64,
    /// Marked segments, as reported by the receiver; zero unless the congestion control is
    /// scalable.
    pub marked: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Reductions that were undone because the segments marked as lost had arrived.
    pub undone: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Before the start of the source.
    Waiting,
    /// Until the SYN is acknowledged.
    Opening,
    Open,
}

/// State for undoing the last reduction.
#[derive(Clone, Copy, Debug)]
struct Undo {
    cwnd: u32,
    ssthresh: u32,
    /// The lowest segment that was marked as lost, and the time of its retransmission.
    head: u32,
    again: Option<Time>,
}
