//! The sending end of a session: frames in, RTP out, RTCP in.

use core::time::Duration;
use std::collections::VecDeque;

use rand_core::Rng;

use self::capture::Capture;
use self::chain::Chain;
use self::control::Control;
pub use self::frames::SentFrame;
use self::frames::{Frames, HEADERS, OutFrame};

use super::breaker::Breaker;
use super::config::SenderConfig;
use super::feedback::{FeedbackReader, reject};
use super::history::{Content, History, PacketRow};
use super::pacer::Pacer;
use super::path::PathView;
use super::rr_fallback::RrFallback;
use crate::control::{Cx, RateController, Target, Why, sooner};
use crate::delay_bound::PlannerConfig;
use crate::endpoint::Datagram;
use crate::media::{EncodeError, Encoded, FrameOrder, MEDIA_CLOCK};
use crate::trace::{BreakerCause, DropCause, Event, FeedbackFault, KeyCause};
use crate::units::{Bytes, Rate, Time};
use crate::wire::{payload, rtx};

mod capture;
mod chain;
mod control;
mod feedback;
mod frame_dropping;
mod frames;
mod held;
mod transmit;

/// Sends one stream: asks for frames at the rate that keeps the delay bound, cuts them into
/// packets, paces them, repairs what can still be in time and drops what cannot.
///
/// Contract, as for [`crate::endpoint::Endpoint`]: after each input, answer
/// [`poll_order`](Self::poll_order) by [`on_encoded`](Self::on_encoded) until it is `None` (the
/// encoder may take its time; one order is open at a time), drain
/// [`poll_transmit`](Self::poll_transmit), and sleep until [`next_timeout`](Self::next_timeout).
#[derive(Debug)]
pub struct MediaSender {
    config: SenderConfig,
    control: Control,
    phase: Phase,
    peer: Peer,
    capture: Capture,
    frames: Frames,
    repairs: VecDeque<Content>,
    history: History,
    pacer: Pacer,
    path: PathView,
    breaker: Breaker,
    /// Media above this would trip the breaker, headers included.
    ceiling: Option<Rate>,
    cautious: RrFallback,
    reader: FeedbackReader,
    chain: Chain,
    media_seq: u64,
    repair_seq: u64,
    timestamp_base: u32,
    counts: Counts,
    /// Feedback that shows packets arriving came last at this time.
    last_progress: Time,
    first_media: Option<Time>,
    next_report: Option<Time>,
    /// RTCP about our streams came last at this time.
    last_rtcp: Time,
    last_media: Time,
    /// When the last packet of the newest key frame left; `None` while it has not.
    last_key_left: Option<Time>,
    /// A frame that leaves although it will be late.
    scout: Option<u64>,
    /// When the first greeting left.
    started: Time,
    /// A report block about our media came.
    answered: bool,
    /// Who sent the latest of these.
    reporter: Option<u32>,
    last_sample: Time,
    /// The session is to end at once.
    hurried: bool,
    outgoing: VecDeque<Vec<u8>>,
    rows: Vec<SentFrame>,
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Sender reports ask for a first round-trip time, so that the first frame is not paced
    /// blindly at one packet per second (RFC 5348 section 4.2).
    Greeting { since: Time },
    /// Media flows.
    Open,
    /// No sign of life: media waits uncoded, sender reports probe.
    Blackout { since: Time, deaf: bool },
    /// The circuit breaker is open, or the receiver has left.
    Stopped,
    /// Everything has left; a goodbye is said.
    Closed(Option<SenderFailure>),
}

/// Why a session ended before its stream did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SenderFailure {
    /// The circuit breaker stopped the stream, or the receiver said goodbye, and nobody answered
    /// for [`SenderConfig::patience`].
    NobodyThere(BreakerCause),
}

/// What kind of feedback the peer gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Unknown,
    PerPacket,
    RrFallback,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    packets: u32,
    octets: u32,
}

impl MediaSender {
    /// A sender that greets its peer when first polled. `rng` gives the random starting points
    /// of RFC 3550 section 5.1.
    pub fn new(
        config: SenderConfig,
        controller: Box<dyn RateController>,
        planner: Option<PlannerConfig>,
        rng: &mut dyn Rng,
    ) -> Self {
        let control = Control::new(controller, planner, &config);
        Self {
            control,
            phase: Phase::Greeting { since: Time::FAR },
            peer: Peer::Unknown,
            capture: Capture::new(config.frame_rate, config.frames, &config.pauses),
            frames: Frames::default(),
            repairs: VecDeque::new(),
            history: History::new(config.log),
            pacer: Pacer::default(),
            path: PathView::default(),
            breaker: Breaker::new(SLOW_REPORTS),
            ceiling: None,
            cautious: RrFallback::new(config.rates.0),
            reader: FeedbackReader::default(),
            chain: Chain::default(),
            media_seq: u64::from(rng.next_u32() & 0x7fff),
            repair_seq: u64::from(rng.next_u32() & 0x7fff),
            timestamp_base: rng.next_u32(),
            counts: Counts::default(),
            last_progress: Time::ZERO,
            first_media: None,
            next_report: None,
            last_rtcp: Time::ZERO,
            last_media: Time::ZERO,
            last_key_left: None,
            scout: None,
            started: Time::ZERO,
            answered: false,
            reporter: None,
            last_sample: Time::ZERO,
            hurried: false,
            outgoing: VecDeque::new(),
            rows: Vec::new(),
            config,
        }
    }

    /// The next frame to encode, if one is due.
    pub fn poll_order(&mut self, cx: &mut Cx<'_>) -> Option<FrameOrder> {
        if self.phase != Phase::Open || self.capture.is_busy() {
            return None;
        }
        self.capture.advance(cx.now);
        self.drop_hopeless(cx);
        while let Some((frame, captured)) = self.capture.front() {
            if self.is_held(cx.now, captured) {
                return None;
            }
            let waiting = self.waiting_raw();
            let backlog = self.frames.backlog() + waiting;
            self.control
                .replan(cx, backlog, &self.path, self.capture.lag());
            let key = self.key_cause(frame);
            let rate = self.frame_rate(cx.now, captured);
            let budget = rate * self.config.frame_rate.interval();
            let floor = self.config.rates.0 * self.config.frame_rate.interval();
            let least = if key.is_some() {
                floor.scale(KEY_BUDGETS, 1)
            } else {
                floor
            };
            let full = self.frames.backlog() >= MAX_BACKLOG;
            // A frame behind it may be in time, and shows as much.
            let scout = self.capture.waiting() == 1 && self.is_scout_due(cx.now);
            let late = self.is_late(cx.now, captured, self.frames.backlog() + least);
            if full || late && !scout {
                self.capture.pop();
                self.skip(cx, frame, captured, DropCause::Skipped);
                continue;
            }
            if let Some(cause) = key {
                cx.trace
                    .record(cx.now, Event::KeyFrameOrdered { frame, cause });
            }
            if late {
                self.scout = Some(frame);
            }
            let order = FrameOrder {
                frame,
                captured,
                rate: if late { self.config.rates.0 } else { rate },
                key: key.is_some(),
            };
            self.capture.order(cx.now, order, budget);
            return Some(order);
        }
        None
    }

    /// The encoder's answer to the open order.
    pub fn on_encoded(&mut self, now: Time, result: Result<Encoded, EncodeError>) {
        let Some((order, budget)) = self.capture.answer(now) else {
            return;
        };
        let Ok(encoded) = result else {
            self.capture.end();
            return;
        };
        if encoded.key {
            self.chain.on_key(order.frame);
            self.last_key_left = None;
        }
        let row = SentFrame {
            frame: order.frame,
            timestamp: self.timestamp(order.captured),
            captured: order.captured,
            key: encoded.key,
            skipped: false,
            target_bits: budget.bits(),
            bits: encoded.data.len() as u64 * 8,
            wire: Bytes(0),
            left: None,
            dropped: None,
            quality: encoded.quality,
        };
        let deadline = self.config.delay_bound.map(|bound| order.captured + bound);
        let max_payload = (self.config.packet_size.get() - HEADERS - rtx::OSN as u64) as usize;
        let codec = payload::codec(self.config.streams.media_type);
        match OutFrame::new(codec, &encoded.data, row, deadline, max_payload) {
            Ok(frame) => self.frames.push(frame),
            // Nothing that a receiver could decode.
            Err(_) => self.chain.break_at(order.frame, KeyCause::Repair),
        }
    }

    /// A datagram from the peer. Before the first [`on_timeout`](Self::on_timeout) nothing has
    /// been said that anybody could answer, so what comes then is not for this session.
    pub fn on_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if self.phase == (Phase::Greeting { since: Time::FAR }) {
            return reject(cx, FeedbackFault::UnknownSource);
        }
        self.on_rtcp(cx, datagram.payload);
        self.open_if_greeted(cx.now);
    }

    /// The deadline of [`next_timeout`](Self::next_timeout) has passed.
    pub fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        if let Phase::Greeting { since: Time::FAR } = self.phase {
            self.phase = Phase::Greeting { since: now };
            self.capture.start(now);
            self.started = now;
            self.next_report = Some(now);
        }
        self.open_if_greeted(now);
        self.capture.advance(now);
        self.expire_captures(cx);
        if self.control.next_timeout().is_some_and(|(at, _)| at <= now) {
            self.control.on_timeout(cx);
        }
        if self.silence().is_some_and(|at| at <= now) {
            self.begin_blackout(cx);
        }
        if self.expects_rtcp()
            && let Some(cause) = self.breaker.on_timeout(now)
        {
            self.stop(cx, cause);
        }
        self.frames.forget(now);
        self.report_if_due(now);
        self.close_if_over(cx);
    }

    /// When to call [`on_timeout`](Self::on_timeout), and why.
    pub fn next_timeout(&self) -> Option<(Time, Why)> {
        match self.phase {
            Phase::Closed(_) => return None,
            Phase::Greeting { since: Time::FAR } => return Some((Time::ZERO, Why::Schedule)),
            _ => {}
        }
        let mut next = self.next_report.map(|at| (at, Why::Feedback));
        let mut consider = |at: Option<Time>, why| next = sooner(next, at.map(|at| (at, why)));
        consider(self.capture.next(), Why::Capture);
        consider(self.silence(), Why::Silence);
        if self.expects_rtcp() {
            consider(self.breaker.next_timeout(), Why::Breaker);
        }
        if let Some((at, why)) = self.control.next_timeout() {
            consider(Some(at), why);
        }
        match self.phase {
            Phase::Greeting { since } => consider(Some(since + GREETING), Why::Silence),
            Phase::Open if !self.frames.is_empty() || !self.repairs.is_empty() => {
                consider(Some(self.pacer.next()), Why::Pacing);
            }
            Phase::Open if self.capture.waiting() > 0 && !self.capture.is_busy() => {
                consider(Some(self.pacer.next()), Why::Capture);
            }
            Phase::Open => {}
            _ => consider(self.oldest_capture_deadline(), Why::Deadline),
        }
        consider(self.closing_time(), Why::Schedule);
        next
    }

    /// Stops capturing; what waits is still sent.
    pub fn stop_capture(&mut self) {
        self.capture.end();
    }

    /// Ends the session: what waits is given up, a goodbye is all that is still said.
    pub fn close(&mut self) {
        self.capture.end();
        self.hurried = true;
    }

    /// Whether nothing more will be said.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Closed(_)) && self.outgoing.is_empty()
    }

    /// Why the session ended before its stream did.
    pub fn failure(&self) -> Option<SenderFailure> {
        match self.phase {
            Phase::Closed(failure) => failure,
            _ => None,
        }
    }

    /// For a progress line: wire rate allowed, media rate, loss, round trip, queueing delay.
    pub fn status(&self) -> Status {
        Status {
            target: self.target(),
            loss: self.path.loss(),
            rtt: self.path.has_rtt().then(|| self.path.srtt()),
            queueing: self.control.queueing(),
            receive_rate: self.path.receive_rate(),
            blackout: matches!(self.phase, Phase::Blackout { .. }),
            stopped: self.phase == Phase::Stopped,
            left: self.is_left(),
            reports_only: self.peer == Peer::RrFallback,
            heard: self.peer != Peer::Unknown || self.path.has_rtt(),
            frames: self.capture.made(),
        }
    }

    /// What the controller learnt, for a later session.
    pub fn summary(&self) -> crate::control::Summary {
        self.control.summary()
    }

    /// Rows that are final: frames that left or were given up, packets that are resolved.
    pub fn drain_rows(&mut self, frames: &mut Vec<SentFrame>, packets: &mut Vec<PacketRow>) {
        frames.append(&mut self.rows);
        self.history.drain_log(packets);
    }

    /// All rows that are left, at the end of a run.
    pub fn finish_rows(&mut self, frames: &mut Vec<SentFrame>, packets: &mut Vec<PacketRow>) {
        while let Some(row) = self.frames.drop_front() {
            self.log(SentFrame {
                dropped: Some(DropCause::Ended),
                ..row
            });
        }
        frames.append(&mut self.rows);
        self.history.finish_log(packets);
    }

    fn open_if_greeted(&mut self, now: Time) {
        if let Phase::Greeting { since } = self.phase
            && (self.path.has_rtt() || now.since(since) >= GREETING)
        {
            self.phase = Phase::Open;
            self.last_progress = now;
        }
    }

    fn expects_rtcp(&self) -> bool {
        self.config.circuit_breaker && !self.config.one_way
    }

    fn log(&mut self, row: SentFrame) {
        if self.config.log {
            self.rows.push(row);
        }
    }

    fn timestamp(&self, captured: Time) -> u32 {
        let ticks = u128::from(captured.as_nanos()) * u128::from(MEDIA_CLOCK) / 1_000_000_000;
        self.timestamp_base.wrapping_add(ticks as u32)
    }

    /// What the controller, or caution, allows.
    fn target(&self) -> Target {
        let cautious = |rate: Rate| Target::of(rate.scale(2, 1)).media(rate);
        match self.peer {
            Peer::PerPacket => self.under_ceiling(self.control.target()),
            // Until the peer shows what it can say, its silence says nothing about the path.
            Peer::Unknown
                if self.path.has_rtt() && self.control.target().media > self.cautious.rate() =>
            {
                self.control.target()
            }
            Peer::Unknown | Peer::RrFallback => cautious(self.cautious.rate()),
        }
    }

    fn skip(&mut self, cx: &mut Cx<'_>, frame: u64, captured: Time, cause: DropCause) {
        cx.trace
            .record(cx.now, Event::FrameDropped { frame, cause });
        self.log(SentFrame {
            frame,
            timestamp: self.timestamp(captured),
            captured,
            key: false,
            skipped: true,
            target_bits: 0,
            bits: 0,
            wire: Bytes(0),
            left: None,
            dropped: Some(cause),
            quality: None,
        });
    }

    /// While nothing can be sent, captures that can no longer be in time are let go; at any time
    /// those are that an encoder which is too slow, or a driver that slept, leaves lying.
    fn expire_captures(&mut self, cx: &mut Cx<'_>) {
        let closed = self.phase != Phase::Open;
        while let Some((frame, captured)) = self.capture.front()
            && (self.capture.is_crowded() || closed && self.is_late(cx.now, captured, Bytes::ZERO))
        {
            self.capture.pop();
            self.skip(cx, frame, captured, DropCause::Skipped);
        }
    }

    fn oldest_capture_deadline(&self) -> Option<Time> {
        let (_, captured) = self.capture.front()?;
        let margin = self.path.one_way() + self.queueing();
        let bound = self.config.delay_bound?.saturating_sub(margin);
        Some(captured + bound + Duration::from_nanos(1))
    }
}

/// A sender at a glance.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "what is so or not, each by itself"
)]
pub struct Status {
    /// What the controller allows, as lowered by the delay promise.
    pub target: Target,
    /// Share of packets lost lately, in 0..=1.
    pub loss: f64,
    /// Smoothed round-trip time; `None` before the first sample.
    pub rtt: Option<Duration>,
    /// One-way delay above the smallest seen.
    pub queueing: Duration,
    /// What arrived, by the reports.
    pub receive_rate: Rate,
    /// No sign of life.
    pub blackout: bool,
    /// Stopped, by the circuit breaker or because the receiver has left.
    pub stopped: bool,
    /// The receiver has said goodbye, and nobody has come in its place.
    pub left: bool,
    /// The peer sends receiver reports only.
    pub reports_only: bool,
    /// The peer has answered at all.
    pub heard: bool,
    /// Frames captured so far.
    pub frames: u64,
}

/// How long a greeting waits for an answer. Three times the longest round trip on Earth's
/// surface; a peer that is silent for longer gives no per-packet feedback.
const GREETING: Duration = Duration::from_millis(600);
/// Budgets of a frame that a key frame takes, at most.
const KEY_BUDGETS: u64 = 4;
/// What may wait without a delay bound: a quarter of an hour at the lowest rate.
const MAX_BACKLOG: Bytes = Bytes(16 << 20);
/// RFC 3550 section 6.2: reporting interval of a peer that is not known to report faster.
const SLOW_REPORTS: Duration = Duration::from_secs(5);
