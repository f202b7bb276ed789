//! Sender of a media session: consumes frames and RTCP, produces RTP.

use core::time::Duration;
use std::collections::VecDeque;

use rand_core::Rng;

use self::capture::Capture;
use self::chain::ReferenceChain;
pub use self::frames::SentFrame;
use self::frames::{Frames, HEADERS, OutFrame};
use self::protection::Protection;
use self::repair_budget::RepairBudget;

use super::breaker::Breaker;
use super::config::{KnownPath, SenderConfig};
use super::feedback::{FeedbackReader, reject};
use super::history::{Content, History, PacketRow};
use super::pacer::Pacer;
use super::path::PathView;
use super::probes::ProbeStream;
use super::receiver_reports::ReceiverReports;
use crate::control::{Context, LowerEffort, RateControl, Report, Target, TimerReason, sooner};
use crate::delay_bound::PlannerConfig;
use crate::endpoint::{Check, Datagram, Endpoint, Input, Output};
use crate::media::{EncodeError, Encoded, FrameOrder, MEDIA_CLOCK};
use crate::trace::{BreakerCause, DropCause, Event, FeedbackFault, KeyCause};
use crate::units::{Bytes, Rate, Time};
use crate::wire::ntp::NtpShort;
use crate::wire::rtp::RtpHeader;
use crate::wire::{payload, rtx};

mod capture;
mod chain;
mod delay_budget;
mod feedback;
mod frame_dropping;
mod frames;
pub mod held;
mod probing;
mod protection;
mod repair_budget;
mod transmit;

/// Sends one stream. Orders frames at a rate that meets the delay bound, packetises and paces them,
/// retransmits lost packets that can still be in time, and drops frames that cannot.
///
/// An [`Endpoint`] without its encoder, as [`Streamer`](super::stream::Streamer) joins them: after each
/// input, the caller answers [`poll_order`](Self::poll_order) with [`on_encoded`](Self::on_encoded)
/// until it returns `None`, and then [polls](Endpoint::poll). The encoder may be asynchronous; one
/// order is open at a time.
#[derive(Debug)]
pub struct MediaSender {
    config: SenderConfig,
    control: RateControl,
    phase: Phase,
    peer: Peer,
    capture: Capture,
    frames: Frames,
    repairs: VecDeque<Content>,
    repair_budget: RepairBudget,
    protection: Protection,
    /// `Some` if the controller uses them.
    probes: Option<ProbeStream>,
    history: History,
    pacer: Pacer,
    path: PathView,
    breaker: Breaker,
    /// Media rate above which the breaker would trip, headers included.
    ceiling: Option<Rate>,
    reports: ReceiverReports,
    reader: FeedbackReader,
    /// Time of the last transport-wide feedback, and its maximum interval.
    transport: Option<(Time, Duration)>,
    /// Outcomes since the breaker was last updated from per-packet feedback: lost and received
    /// packets.
    outcomes: [u32; 2],
    /// Path sequence number of the newest arrival.
    newest_arrival: u64,
    /// Time of that update.
    breaker_updated: Time,
    chain: ReferenceChain,
    media_seq: u64,
    repair_seq: u64,
    timestamp_base: u32,
    counts: Counts,
    /// Last feedback that reported an arrival.
    last_progress: Time,
    first_media: Option<Time>,
    next_report: Option<Time>,
    /// BYEs that are still to be sent.
    byes: u8,
    /// Middle of the NTP timestamps of the last sender reports.
    sent_reports: VecDeque<NtpShort>,
    /// Last RTCP about one of the sender's streams.
    last_rtcp: Time,
    last_media: Time,
    /// Departure time of the last packet of the newest key frame; `None` until it has left.
    last_key_left: Option<Time>,
    /// Frame that is sent as a probe, even if late.
    probe_frame: Option<u64>,
    /// Departure time of the first sender report of the handshake.
    started: Time,
    /// Whether a report block about the media stream was received.
    has_report_block: bool,
    /// Whether the datagram being processed held a report about packets or sender reports of this
    /// session.
    is_believed: bool,
    /// SSRC of the receiver that sent the latest such block.
    reporter: Option<u32>,
    /// Arrival of the reporter's BYE, until feedback disproves it or [`BYE_DELAY`] has passed.
    bye: Option<Time>,
    last_sample: Time,
    /// The session ends immediately.
    closing: bool,
    outgoing: VecDeque<Vec<u8>>,
    rows: Vec<SentFrame>,
}

/// State of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Handshake: sender reports request a first round-trip sample. Without one, the first frame
    /// would be paced at one packet per second (RFC 5348 section 4.2).
    Greeting { since: Time },
    /// Media is sent.
    Open,
    /// No feedback: frames wait before the encoder, and sender reports probe the path.
    Blackout { since: Time, no_rtcp: bool },
    /// The circuit breaker has tripped, or the receiver has left.
    Stopped,
    /// Everything was sent, and the BYE was queued.
    Closed(Option<SenderFailure>),
}

/// Reason why the session ended before the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SenderFailure {
    /// The circuit breaker stopped the stream, or the receiver sent a BYE, and no answer arrived
    /// within [`SenderConfig::patience`].
    ReceiverGone(BreakerCause),
}

/// Kind of feedback that the peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Unknown,
    /// No feedback about media in the time in which a peer with per-packet feedback answers.
    Silent,
    PerPacket {
        /// With ECN fields.
        ecn: bool,
    },
    ReceiverReports,
}

impl Peer {
    fn is_per_packet(self) -> bool {
        matches!(self, Self::PerPacket { .. })
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    packets: u32,
    octets: u32,
}

impl MediaSender {
    /// A sender that starts its handshake at the first timeout. `rng` draws the random initial
    /// values of RFC 3550 section 5.1.
    pub fn new(
        config: SenderConfig,
        control: RateControl,
        planner: Option<PlannerConfig>,
        rng: &mut dyn Rng,
    ) -> Self {
        let control = bounded(control, planner, &config);
        let mut history = History::new(config.log);
        let probe_ssrc = config.streams.probe_ssrc;
        let probes = ProbeStream::new(probe_ssrc, (probe_ssrc & 0x7fff) as u16, config.log);
        if config.transport_cc {
            history.number_transport((rng.next_u32() & 0x7fff) as u16);
        }
        Self {
            probes: control.uses_dummies().then_some(probes),
            control,
            phase: Phase::Greeting { since: Time::FAR },
            peer: Peer::Unknown,
            capture: Capture::new(config.frame_rate, config.frames, &config.pauses),
            frames: Frames::default(),
            repairs: VecDeque::new(),
            repair_budget: RepairBudget::default(),
            protection: Protection::new(u64::from(config.streams.parity_ssrc & 0x7fff)),
            history,
            pacer: Pacer::default(),
            path: PathView::default(),
            breaker: Breaker::new(SLOW_REPORTS),
            ceiling: None,
            reports: ReceiverReports::new(),
            reader: FeedbackReader::default(),
            transport: None,
            outcomes: [0; 2],
            newest_arrival: 0,
            breaker_updated: Time::ZERO,
            chain: ReferenceChain::default(),
            media_seq: u64::from(rng.next_u32() & 0x7fff),
            repair_seq: u64::from(rng.next_u32() & 0x7fff),
            timestamp_base: rng.next_u32(),
            counts: Counts::default(),
            last_progress: Time::ZERO,
            first_media: None,
            next_report: None,
            byes: feedback::BYES,
            sent_reports: VecDeque::new(),
            last_rtcp: Time::ZERO,
            last_media: Time::ZERO,
            last_key_left: None,
            probe_frame: None,
            started: Time::ZERO,
            has_report_block: false,
            is_believed: false,
            reporter: None,
            bye: None,
            last_sample: Time::ZERO,
            closing: false,
            outgoing: VecDeque::new(),
            rows: Vec::new(),
            config,
        }
    }

    /// The next frame to encode, if one is due and the encoder is free.
    pub fn poll_order(&mut self, cx: &mut Context<'_>) -> Option<FrameOrder> {
        if self.phase != Phase::Open || self.capture.is_busy() {
            return None;
        }
        self.capture.advance(cx.now);
        self.expire_captures(cx);
        self.drop_hopeless(cx);
        while let Some((frame, captured)) = self.capture.front() {
            if self.is_held(cx.now, captured) {
                return None;
            }
            if self.is_passed_over(cx.now, captured) {
                self.capture.pop();
                self.skip(cx, frame, captured, DropCause::Skipped);
                continue;
            }
            let waiting = self.waiting_raw();
            let backlog = self.frames.backlog() + waiting;
            self.replan(cx, backlog);
            let key = self.key_cause(frame);
            let rate = self.frame_rate(cx.now, captured, key.is_some());
            let budget = rate * self.config.frame_rate.interval();
            let least = self.config.rates.0 * self.config.frame_rate.interval();
            let full = self.frames.backlog() >= MAX_BACKLOG;
            // If more frames wait, a later one may be in time and serve as the probe.
            let probe = self.capture.waiting() == 1 && self.is_probe_due(cx.now);
            let late = self.is_late(cx.now, captured, self.frames.backlog() + least);
            if full || late && !probe {
                self.capture.pop();
                self.skip(cx, frame, captured, DropCause::Skipped);
                continue;
            }
            if let Some(cause) = key {
                cx.trace
                    .record(cx.now, Event::KeyFrameOrdered { frame, cause });
            }
            if probe {
                self.probe_frame = Some(frame);
            }
            let order = FrameOrder {
                frame,
                captured,
                rate,
                key: key.is_some(),
            };
            self.capture.order(cx.now, order, budget);
            return Some(order);
        }
        None
    }

    /// Result of the encoder for the open order.
    pub fn on_encoded(&mut self, now: Time, result: Result<Encoded, EncodeError>) {
        if result == Err(EncodeError::Unchanged) {
            return self.capture.withdraw(now);
        }
        let Some((order, budget)) = self.capture.answer(now) else {
            return;
        };
        let Ok(encoded) = result else {
            self.capture.end();
            return;
        };
        if self.capture.is_paused() {
            return self.chain.break_at(order.frame, KeyCause::Repair);
        }
        if encoded.key {
            self.chain.on_key(order.frame);
            self.last_key_left = None;
        }
        let row = SentFrame {
            frame: order.frame,
            timestamp: self.timestamp(encoded.captured),
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
        let headers = self.headers();
        let overhead = rtx::OSN.max(self.parity_overhead());
        let max_payload = (self.config.packet_size.get() - headers - overhead as u64) as usize;
        let codec = payload::codec(self.config.streams.media_type);
        match OutFrame::new(codec, &encoded.data, row, deadline, (headers, max_payload)) {
            Ok(frame) if self.is_buffer_full() => self.overflow(frame.row),
            Ok(frame) => self.frames.push(frame),
            // The access unit is invalid: no receiver could decode it.
            Err(_) => self.chain.break_at(order.frame, KeyCause::Repair),
        }
    }

    /// Processes a datagram of the peer. A datagram before the first timeout is rejected: nothing was
    /// sent yet that it could answer.
    fn on_datagram(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) {
        if self.phase == (Phase::Greeting { since: Time::FAR }) {
            return reject(cx, FeedbackFault::UnknownSource);
        }
        self.on_rtcp(cx, datagram.payload);
        self.open_if_greeted(cx.now);
    }

    /// Processes the deadline of [`next_timeout`](Self::next_timeout).
    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        if let Phase::Closed(_) = self.phase {
            return self.repeat_bye(now);
        }
        if let Phase::Greeting { since: Time::FAR } = self.phase {
            self.phase = Phase::Greeting { since: now };
            self.capture.start(now);
            self.started = now;
            self.next_report = Some(now);
            self.start_probes(cx);
            if !self.config.greets {
                self.start_without_greeting(cx);
            }
        }
        self.open_if_greeted(now);
        self.detect_silence(cx);
        self.capture.advance(now);
        self.expire_captures(cx);
        if self.control.next_timeout().is_some_and(|(at, _)| at <= now) {
            self.control.on_timeout(cx);
        }
        if self.blackout_start().is_some_and(|at| at <= now) {
            self.begin_blackout(cx);
        }
        if self.leaves_at().is_some_and(|at| at <= now) {
            self.on_receiver_left(cx);
        }
        if self.expects_rtcp()
            && let Some(cause) = self.breaker.on_timeout(now)
        {
            self.stop(cx, cause);
        }
        self.end_test(cx);
        self.frames.forget(now);
        self.close_block_if_due(now);
        self.report_if_due(now);
        self.close_if_over(cx);
    }

    /// Time of the next [`on_timeout`](Self::on_timeout), and its reason.
    fn next_timeout(&self) -> Option<(Time, TimerReason)> {
        match self.phase {
            Phase::Closed(_) => return self.next_report.map(|at| (at, TimerReason::Feedback)),
            Phase::Greeting { since: Time::FAR } => {
                return Some((Time::ZERO, TimerReason::Schedule));
            }
            _ => {}
        }
        let mut next = self.next_report.map(|at| (at, TimerReason::Feedback));
        let mut consider = |at: Option<Time>, why| next = sooner(next, at.map(|at| (at, why)));
        consider(self.capture.next(), TimerReason::Capture);
        consider(self.leaves_at(), TimerReason::Feedback);
        consider(self.blackout_start(), TimerReason::Silence);
        if self.expects_rtcp() {
            consider(self.breaker.next_timeout(), TimerReason::Breaker);
        }
        if let Some((at, why)) = self.control.next_timeout() {
            consider(Some(at), why);
        }
        match self.phase {
            Phase::Greeting { since } => {
                consider(Some(since + self.greeting()), TimerReason::Silence);
            }
            Phase::Open if self.has_packets() => {
                consider(Some(self.pacer.next()), TimerReason::Pacing);
            }
            Phase::Open if self.capture.waiting() > 0 && !self.capture.is_busy() => {
                consider(Some(self.pacer.next()), TimerReason::Capture);
            }
            Phase::Open => {}
            _ => consider(self.oldest_capture_deadline(), TimerReason::Deadline),
        }
        consider(self.probes_due(), TimerReason::Probe);
        consider(self.protection.closes(), TimerReason::Deadline);
        consider(self.closing_time(), TimerReason::Schedule);
        next
    }

    /// Whether packets wait to be sent.
    fn has_packets(&self) -> bool {
        !self.frames.is_empty() || !self.repairs.is_empty() || self.protection.is_waiting()
    }

    /// Suspends the stream: nothing is captured, and pending frames are discarded. Sender reports
    /// continue. The next frame after [`resume_capture`](Self::resume_capture) is a key frame.
    pub fn pause_capture(&mut self) {
        self.capture.pause();
        self.repairs.clear();
        self.protection.interrupt();
        while let Some(row) = self.frames.drop_front() {
            self.log(SentFrame {
                dropped: Some(DropCause::Ended),
                ..row
            });
        }
        self.chain.break_at(self.capture.made(), KeyCause::Repair);
    }

    /// Continues a suspended stream: the next frame is captured at `now`.
    pub fn resume_capture(&mut self, now: Time) {
        self.capture.resume(now);
        // The peer may have sent no reports in between.
        self.breaker.on_rtcp(now);
        self.last_progress = now;
        if let Some(first) = self.first_media {
            let timing = (first, self.path.srtt());
            self.reports.on_pause(now, self.last_media, timing);
        }
    }

    /// RTP sequence number of the next media packet.
    pub fn next_sequence(&self) -> u16 {
        self.media_seq as u16
    }

    /// Stops capturing. Pending frames are still sent.
    pub fn stop_capture(&mut self) {
        self.capture.end();
    }

    /// Ends the session: discards pending frames and sends a BYE, three times within 100 ms, as one may
    /// be lost.
    pub fn close(&mut self) {
        self.capture.end();
        self.closing = true;
    }

    /// Whether the session is closed and everything was sent.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Closed(_)) && self.byes == 0 && self.outgoing.is_empty()
    }

    /// Reason why the session ended before the stream; `None` if it did not.
    pub fn failure(&self) -> Option<SenderFailure> {
        match self.phase {
            Phase::Closed(failure) => failure,
            _ => None,
        }
    }

    /// Snapshot of rates, loss, delay and state, for a progress line.
    pub fn status(&self) -> Status {
        Status {
            target: self.target(),
            loss: self.path.loss(),
            rtt: self.path.has_rtt().then(|| self.path.srtt()),
            queueing: self.control.queueing(),
            receive_rate: self.path.receive_rate(),
            reported: self.path.reported(),
            blackout: matches!(self.phase, Phase::Blackout { .. }),
            stopped: self.phase == Phase::Stopped,
            left: self.is_left(),
            reports_only: self.peer == Peer::ReceiverReports,
            has_answered: self.has_reported(),
            frames: self.capture.made(),
            lower_effort: self.treatment(),
        }
    }

    /// Final state of the controller, as input to a later session.
    pub fn summary(&self) -> crate::control::Summary {
        self.control.summary()
    }

    /// Moves final rows: frames that were sent or dropped, and resolved packets.
    pub fn drain_rows(&mut self, frames: &mut Vec<SentFrame>, packets: &mut Vec<PacketRow>) {
        frames.append(&mut self.rows);
        self.history.drain_log(packets);
        if let Some(probes) = &mut self.probes {
            probes.drain_log(packets);
        }
    }

    /// Moves all remaining rows at the end of a run.
    pub fn finish_rows(&mut self, frames: &mut Vec<SentFrame>, packets: &mut Vec<PacketRow>) {
        while let Some(row) = self.frames.drop_front() {
            self.log(SentFrame {
                dropped: Some(DropCause::Ended),
                ..row
            });
        }
        frames.append(&mut self.rows);
        self.history.finish_log(packets);
        if let Some(probes) = &mut self.probes {
            probes.finish_log(packets);
        }
    }

    /// Timeout of the handshake.
    fn greeting(&self) -> Duration {
        match (self.config.greets, self.config.one_way) {
            (false, _) => Duration::ZERO,
            (true, true) => ONE_WAY_GREETING,
            (true, false) => GREETING,
        }
    }

    /// The peer will report on media only, seldom as a rule.
    fn start_without_greeting(&mut self, cx: &mut Context<'_>) {
        self.fall_silent(cx);
        if let Some(KnownPath { rtt, rate }) = self.config.known_path {
            self.path.on_rtt(cx.now, rtt);
            self.control.on_report(cx, &Report::default().rtt(rtt));
            self.reports = ReceiverReports::starting_at(rate);
        }
    }

    fn open_if_greeted(&mut self, now: Time) {
        let Phase::Greeting { since } = self.phase else {
            return;
        };
        let answered = self.path.has_rtt();
        if answered || now.since(since) >= self.greeting() {
            self.phase = Phase::Open;
            self.last_progress = now;
            if !answered {
                // The frames captured during the handshake would be late: the stream begins now.
                self.capture.restart(now);
            }
        }
    }

    /// Whether the circuit breaker requires RTCP of the peer. A peer that has never reported is
    /// served at the minimum rate for as long as the application asks. One with receiver reports
    /// only may report per number of bytes, and owes none before they have left.
    fn expects_rtcp(&self) -> bool {
        let is_expected = !self.config.one_way && !self.capture.is_paused();
        let is_owed = self.peer != Peer::ReceiverReports || self.breaker.has_missed_reports();
        self.config.circuit_breaker && is_expected && is_owed && self.has_reported()
    }

    /// Whether the peer has ever reported on this session.
    fn has_reported(&self) -> bool {
        self.has_report_block || self.peer.is_per_packet()
    }

    /// IPv4, UDP and RTP headers of a packet, with the header extension.
    fn headers(&self) -> u64 {
        let extension = RtpHeader::ELEMENT_LEN as u64;
        HEADERS + extension * u64::from(self.config.transport_cc)
    }

    fn log(&mut self, row: SentFrame) {
        if self.config.log {
            self.rows.push(row);
        }
    }

    /// RTP timestamp of a frame captured at `captured`.
    pub fn timestamp(&self, captured: Time) -> u32 {
        let ticks = u128::from(captured.as_nanos()) * u128::from(MEDIA_CLOCK) / 1_000_000_000;
        self.timestamp_base.wrapping_add(ticks as u32)
    }

    /// Target rates of the controller. Without per-packet feedback they are limited until the next
    /// receiver report, and at least the minimum rate.
    fn target(&self) -> Target {
        let target = match self.peer {
            Peer::PerPacket { .. } => {
                let target = self.under_ceiling(*self.control.target());
                let media = target.media.as_f64() * (1.0 - self.protection.share());
                return target.media(Rate::from_f64(media));
            }
            Peer::Unknown => *self.control.target(),
            Peer::Silent => self.within(*self.control.target(), self.reports.bounds()),
            Peer::ReceiverReports => {
                let target = self.within(*self.control.target(), self.reports.bounds());
                self.under_ceiling(target)
            }
        };
        // Until the kind of feedback is known, silence of the peer is not evidence about the path.
        let floor = self.config.rates.0;
        if self.path.has_rtt() && target.media > floor {
            target
        } else {
            Target::of(floor.scale(2, 1)).media(floor)
        }
    }

    fn skip(&mut self, cx: &mut Context<'_>, frame: u64, captured: Time, cause: DropCause) {
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

    /// Drops captured frames that can no longer be in time while nothing can be sent, except for the
    /// newest one before the first was sent: the stream begins with it, even if late. In the open
    /// state, limits the frames that accumulate behind a slow encoder or a suspended driver.
    fn expire_captures(&mut self, cx: &mut Context<'_>) {
        // Without an answer, the stream begins after the handshake.
        let closed = !matches!(self.phase, Phase::Open | Phase::Greeting { .. });
        let kept = usize::from(self.first_media.is_none());
        while let Some((frame, captured)) = self.capture.front()
            && (self.capture.is_crowded()
                || closed
                    && self.capture.waiting() > kept
                    && self.is_late(cx.now, captured, Bytes::ZERO))
        {
            self.capture.pop();
            self.skip(cx, frame, captured, DropCause::Skipped);
        }
    }

    fn oldest_capture_deadline(&self) -> Option<Time> {
        let (_, captured) = self.capture.front()?;
        if self.first_media.is_none() && self.capture.waiting() == 1 {
            return None;
        }
        let margin = self.path.one_way() + self.queueing();
        let bound = self.config.delay_bound?.saturating_sub(margin);
        Some(captured + bound + Duration::from_nanos(1))
    }
}

impl Endpoint for MediaSender {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Datagram(datagram) => self.on_datagram(cx, datagram),
            // Feedback tells by itself whether it is about this stream.
            Input::PeerChanged => {}
            Input::Timeout => self.on_timeout(cx),
        }
        Check::believed(core::mem::take(&mut self.is_believed))
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        match self.next_packet(cx, buffer) {
            Some(transmit) => Output::Send(transmit),
            None if self.is_done() => Output::Done(self.next_timeout()),
            None => Output::Wait(self.next_timeout()),
        }
    }
}

/// Adds the delay bound if the configuration has both a bound and a planner.
fn bounded(
    control: RateControl,
    planner: Option<PlannerConfig>,
    config: &SenderConfig,
) -> RateControl {
    let (Some(planner), Some(bound)) = (planner, config.delay_bound) else {
        return control;
    };
    let planner = PlannerConfig {
        floor: config.rates.0,
        ceiling: config.rates.1,
        frame_interval: config.frame_rate.interval(),
        packet_size: config.packet_size,
        ..planner
    };
    control.with_bound(planner, bound)
}

/// Snapshot of a sender's state.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
pub struct Status {
    /// Target rates of the controller, limited by the delay bound.
    pub target: Target,
    /// Smoothed loss fraction, in 0..=1.
    pub loss: f64,
    /// Smoothed round-trip time; `None` before the first sample.
    pub rtt: Option<Duration>,
    /// One-way delay above its minimum.
    pub queueing: Duration,
    /// Receive rate according to the feedback.
    pub receive_rate: Rate,
    /// Packets whose arrival the receiver has reported, since the start.
    pub reported: u64,
    /// A blackout is in progress.
    pub blackout: bool,
    /// Stopped by the circuit breaker, or because the receiver has left.
    pub stopped: bool,
    /// The receiver has sent a BYE, and no other receiver has answered since.
    pub left: bool,
    /// The peer sends receiver reports only.
    pub reports_only: bool,
    /// The peer has answered at least once.
    pub has_answered: bool,
    /// Number of frames captured so far.
    pub frames: u64,
    /// How the path treats packets of lower effort; `None` if the controller sends none.
    pub lower_effort: Option<LowerEffort>,
}

/// Timeout of the handshake: three times the longest terrestrial round-trip time. A peer that is
/// silent for longer sends no per-packet feedback.
const GREETING: Duration = Duration::from_millis(600);
/// The same for a peer that sends no RTCP: time for a receiver that starts together with the sender, on
/// a busy machine too. It would miss the first key frame, and with it every frame until the next one.
const ONE_WAY_GREETING: Duration = Duration::from_secs(2);
/// Backlog limit without a delay bound: 15 minutes at the minimum rate.
const MAX_BACKLOG: Bytes = Bytes(16 << 20);
/// RFC 3550 section 6.2: reporting interval of a peer that is not known to report faster.
const SLOW_REPORTS: Duration = Duration::from_secs(5);
