//! Sender of a media session: consumes frames and RTCP, produces RTP.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use rand_core::Rng;

use self::feedback::{Feedback, SILENCE};
pub use self::frames::SentFrame;
use self::packetise::Packetiser;
use self::protection::Protection;
use self::schedule::Schedule;
use self::sender_reports::SenderReports;
use self::status::Phase;
pub use self::status::{QueueLengths, SenderFailure, Status};
use self::wire::{Peer, Wire};

use super::config::SenderConfig;
use super::feedback::reject;
use super::history::PacketRow;
use super::probes::ProbeStream;
use crate::control::{Context, RateControl, TimerReason, sooner};
use crate::delay_bound::PlannerConfig;
use crate::endpoint::{Check, Datagram, Endpoint, Input, Output};
use crate::trace::{BreakerCause, Event, FeedbackFault, KeyCause};
use crate::units::{Rate, Time};

mod capture;
mod chain;
mod delay_budget;
mod feedback;
mod frames;
mod packet_sizes;
mod packetise;
mod probing;
mod protection;
mod repair_budget;
mod schedule;
mod sender_reports;
mod starvation;
mod status;
mod transmit;
mod wire;

/// Sends one stream. Orders frames at a rate that meets the delay bound, packetises and paces them,
/// retransmits lost packets that can still be in time, and drops frames that cannot.
///
/// An [`Endpoint`] without its encoder, as [`Streamer`](super::stream::Streamer) joins them: after each
/// input, the caller answers [`poll_order`](Self::poll_order) with [`on_encoded`](Self::on_encoded)
/// until it returns `None`, and then [polls](Endpoint::poll). The encoder may be asynchronous; one
/// order is open at a time.
///
/// Its parts are in the order of their distance from the wire.
#[derive(Debug)]
pub struct MediaSender {
    config: Arc<SenderConfig>,
    phase: Phase,
    schedule: Schedule,
    packetiser: Packetiser,
    protection: Protection,
    wire: Wire,
    /// `Some` if the controller uses them.
    probes: Option<ProbeStream>,
    feedback: Feedback,
    reports: SenderReports,
    outgoing: VecDeque<Vec<u8>>,
    /// Number of changes of the own address.
    path_changes: u32,
    /// The session ends immediately.
    is_closing: bool,
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
        let config = Arc::new(config);
        let probe_ssrc = config.streams.probe_ssrc;
        let probes = ProbeStream::new(probe_ssrc, (probe_ssrc & 0x7fff) as u16, config.log);
        let probes = control.uses_dummies().then_some(probes);
        let mut first = || rng.next_u32() & 0x7fff;
        let mut wire = Wire::new(&config, control, planner);
        if config.transport_cc {
            wire.history.number_transport(first() as u16);
        }
        let (media, repair) = (first(), first());
        Self {
            phase: Phase::New,
            schedule: Schedule::new(&config),
            packetiser: Packetiser::new(&config, media, rng.next_u32()),
            protection: Protection::new(&config, repair),
            wire,
            probes,
            feedback: Feedback::default(),
            reports: SenderReports::new(&config),
            outgoing: VecDeque::new(),
            path_changes: 0,
            is_closing: false,
            config,
        }
    }

    /// Processes a datagram of the peer. A datagram before the first timeout is rejected: nothing was
    /// sent yet that it could answer.
    fn on_datagram(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) {
        if self.phase == Phase::New {
            return reject(cx, FeedbackFault::UnknownSource);
        }
        self.on_rtcp(cx, datagram.payload);
        self.open_if_greeted(cx.now);
    }

    /// Processes the deadline of [`next_timeout`](Self::next_timeout).
    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        match self.phase {
            Phase::Closed(_) => return self.report_if_due(now),
            Phase::New => self.start(cx),
            _ => {}
        }
        self.open_if_greeted(now);
        self.detect_silence(cx);
        self.schedule.capture.advance(now);
        self.expire_captures(cx);
        self.wire.on_timeout(cx);
        if self.blackout_start().is_some_and(|at| at <= now) {
            self.begin_blackout(cx);
        }
        if self.feedback.leaves_at().is_some_and(|at| at <= now) {
            self.on_receiver_left(cx);
        }
        if self.expects_rtcp()
            && let Some(cause) = self.wire.breaker.on_timeout(now)
        {
            self.stop(cx, cause);
        }
        self.end_test(cx);
        self.packetiser.forget(now);
        self.protection.on_timeout(now, &mut self.wire);
        self.report_if_due(now);
        self.close_if_over(cx);
    }

    /// Time of the next [`on_timeout`](Self::on_timeout), and its reason.
    fn next_timeout(&self) -> Option<(Time, TimerReason)> {
        let (capture, departs) = (&self.schedule.capture, self.wire.departs());
        let mut next = self.reports.next.map(|at| (at, TimerReason::Feedback));
        let mut consider = |at: Option<Time>, why| next = sooner(next, at.map(|at| (at, why)));
        match self.phase {
            Phase::Closed(_) => return next,
            Phase::New => return Some((Time::ZERO, TimerReason::Schedule)),
            _ => {}
        }
        consider(capture.next(), TimerReason::Capture);
        consider(self.feedback.leaves_at(), TimerReason::Feedback);
        consider(self.blackout_start(), TimerReason::Silence);
        if self.expects_rtcp() {
            consider(self.wire.breaker.next_timeout(), TimerReason::Breaker);
        }
        if let Some((at, why)) = self.wire.control.next_timeout() {
            consider(Some(at), why);
        }
        match self.phase {
            Phase::Greeting { since } => {
                consider(Some(since + self.greeting()), TimerReason::Silence);
            }
            Phase::Open if self.has_packets() => {
                consider(Some(departs), TimerReason::Pacing);
            }
            Phase::Open if capture.waiting() > 0 && !capture.is_busy() => {
                consider(Some(departs), TimerReason::Capture);
            }
            Phase::Open => {}
            _ => {
                let travel = self.wire.one_way() + self.wire.queueing();
                let has_begun = self.wire.first_media.is_some();
                let deadline = self.schedule.oldest_deadline(has_begun, travel);
                consider(deadline, TimerReason::Deadline);
            }
        }
        consider(self.probes_due(), TimerReason::Probe);
        consider(self.size_probe_due(), TimerReason::Probe);
        consider(self.protection.closes(), TimerReason::Deadline);
        consider(self.closing_time(), TimerReason::Schedule);
        next
    }

    /// Suspends the stream: nothing is captured, and pending frames are discarded. Sender reports
    /// continue. The next frame after [`resume_capture`](Self::resume_capture) is a key frame.
    pub fn pause_capture(&mut self) {
        self.schedule.capture.pause();
        self.protection.interrupt();
        self.packetiser.clear();
        let next = self.schedule.capture.made();
        self.schedule.chain.break_at(next, KeyCause::Repair);
    }

    /// Continues a suspended stream: the next frame is captured at `now`.
    pub fn resume_capture(&mut self, now: Time) {
        self.schedule.capture.resume(now);
        self.feedback.last_progress = now;
        self.wire.on_pause(now);
    }

    /// RTP sequence number of the next media packet.
    pub fn next_sequence(&self) -> u16 {
        self.packetiser.seq as u16
    }

    /// RTP timestamp of a frame captured at `captured`.
    pub fn timestamp(&self, captured: Time) -> u32 {
        self.packetiser.timestamp(captured)
    }

    /// Stops capturing. Pending frames are still sent.
    pub fn stop_capture(&mut self) {
        self.schedule.capture.end();
    }

    /// Ends the session: discards pending frames and sends a BYE, three times within 100 ms, as one may
    /// be lost.
    pub fn close(&mut self) {
        self.stop_capture();
        self.is_closing = true;
    }

    /// Whether the session is closed and everything was sent.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Closed(_)) && self.reports.byes == 0 && self.outgoing.is_empty()
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
        let control = &self.wire.control;
        let path = control.path();
        Status {
            target: self.wire.target(),
            loss: path.loss(),
            rtt: path.srtt(),
            queueing: control.queueing_delay(),
            receive_rate: path.receive_rate(),
            reported: path.received(),
            blackout: matches!(self.phase, Phase::Blackout { .. }),
            stopped: self.phase == Phase::Stopped,
            left: self.is_left(),
            reports_only: self.wire.peer == Peer::ReceiverReports,
            has_answered: self.has_reported(),
            frames: self.schedule.capture.made(),
            path_changes: self.path_changes,
            lower_effort: self.treatment(),
            packet_size: self.found_size(),
        }
    }

    /// Final state of the controller, as input to a later session.
    pub fn summary(&self) -> crate::control::Summary {
        self.wire.control.summary()
    }

    /// Moves final rows: frames that were sent or dropped, and resolved packets.
    pub fn drain_rows(&mut self, frames: &mut Vec<SentFrame>, packets: &mut Vec<PacketRow>) {
        frames.append(&mut self.packetiser.rows);
        self.wire.history.drain_log(packets);
        if let Some(probes) = &mut self.probes {
            probes.drain_log(packets);
        }
    }

    /// Moves all remaining rows at the end of a run.
    pub fn finish_rows(&mut self, frames: &mut Vec<SentFrame>, packets: &mut Vec<PacketRow>) {
        self.packetiser.clear();
        frames.append(&mut self.packetiser.rows);
        self.wire.history.finish_log(packets);
        if let Some(probes) = &mut self.probes {
            probes.finish_log(packets);
        }
    }

    /// Queue lengths, for tests of memory bounds.
    pub fn held(&self) -> QueueLengths {
        QueueLengths {
            packets: self.wire.history.len(),
            in_flight: self.wire.history.in_flight(),
            kept: self.packetiser.kept(),
            backlog: self.packetiser.backlog(),
            repairs: self.protection.repairs.len(),
            captures: self.schedule.capture.waiting(),
            probes: self.probes.as_ref().map_or(0, ProbeStream::len),
            datagrams: self.outgoing.len(),
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Greeting { since: cx.now };
        self.schedule.capture.start(cx.now);
        self.reports.start(cx.now);
        self.start_probes(cx);
        if !self.config.greets {
            self.start_without_greeting(cx);
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

    fn open_if_greeted(&mut self, now: Time) {
        let Phase::Greeting { since } = self.phase else {
            return;
        };
        let answered = self.wire.has_rtt();
        if answered || now.since(since) >= self.greeting() {
            self.phase = Phase::Open;
            self.feedback.last_progress = now;
            if !answered {
                // The frames captured during the handshake would be late: the stream begins now.
                self.schedule.capture.restart(now);
            }
        }
    }

    /// Whether the stream stopped because of the receiver's BYE.
    fn is_left(&self) -> bool {
        let tripped = self.wire.breaker.tripped();
        self.phase == Phase::Stopped
            && tripped.is_some_and(|(_, cause)| cause == BreakerCause::Goodbye)
    }

    /// Start time of a blackout: packets have been in flight for longer than a round trip, and no
    /// feedback has reported an arrival for [`SILENCE`]. Other feedback than that of RFC 8888 has no
    /// fixed interval.
    fn blackout_start(&self) -> Option<Time> {
        if self.phase != Phase::Open || !self.wire.reports_packets() {
            return None;
        }
        let oldest = self.wire.history.oldest_unresolved()?;
        let answer = oldest + self.wire.srtt();
        Some(self.feedback.last_progress.max(answer) + SILENCE)
    }

    fn begin_blackout(&mut self, cx: &mut Context<'_>) {
        cx.trace.record(cx.now, Event::BlackoutBegan);
        self.phase = Phase::Blackout {
            since: cx.now,
            no_rtcp: cx.now.since(self.feedback.last_rtcp) >= SILENCE / 2,
            moved: None,
        };
        self.reports.next = Some(cx.now);
        self.protection.interrupt();
    }

    /// The own address has changed, e.g. from Wi-Fi to a cellular network. A sender report probes the new
    /// path at once. To a receiver that answers it, data and pictures wait for the answer, which proves
    /// that the path works both ways, and has its round-trip time; then they begin without an estimate
    /// of the path (RFC 9000 section 9.4).
    fn on_path_changed(&mut self, cx: &mut Context<'_>) {
        match self.phase {
            Phase::New | Phase::Closed(_) => return,
            Phase::Open if self.wire.reports_packets() => self.begin_blackout(cx),
            _ => {}
        }
        if let Phase::Blackout { since, .. } = self.phase {
            self.phase = Phase::Blackout {
                since,
                no_rtcp: false,
                moved: Some(cx.now),
            };
        }
        self.path_changes = self.path_changes.saturating_add(1);
        self.reports.next = Some(cx.now);
    }

    fn end_blackout(&mut self, cx: &mut Context<'_>, since: Time) {
        let lasted = cx.now.since(since);
        cx.trace.record(cx.now, Event::BlackoutEnded { lasted });
        self.phase = Phase::Open;
        self.feedback.last_progress = cx.now;
        self.wire.control.on_restored();
    }

    //= rfc8083-4.5-cease
    fn stop(&mut self, cx: &mut Context<'_>, cause: BreakerCause) {
        if let Phase::Closed(_) = self.phase {
            // Reports arrive between the BYEs as well.
            return;
        }
        cx.trace.record(cx.now, Event::BreakerTripped { cause });
        self.phase = Phase::Stopped;
        self.feedback.bye = None;
        self.reports.next = Some(cx.now);
        self.protection.interrupt();
    }

    /// Continues on another path, of which only the round-trip time is known. The receiver is the same.
    fn begin_on_path(&mut self, cx: &mut Context<'_>, rtt: Duration) {
        self.write_off(cx.now);
        self.wire.forget_path(cx, rtt, None);
        self.wire.breaker.restart(cx.now);
    }

    /// Gives up what is in flight.
    fn write_off(&mut self, now: Time) {
        for content in self.wire.history.write_off(now).lost {
            self.schedule
                .chain
                .break_at(content.frame, KeyCause::Repair);
        }
    }

    /// Restarts the stream after a trip. The receiver may be another one, with another kind of
    /// feedback.
    fn resume(&mut self, cx: &mut Context<'_>, rtt: Duration, carried: Option<Rate>) {
        cx.trace.record(cx.now, Event::BreakerResumed);
        self.restart(cx, rtt, carried);
        if !self.config.greets {
            self.fall_silent(cx);
        }
    }

    /// Begins again without state about the path, but that it has `carried` a rate.
    fn restart(&mut self, cx: &mut Context<'_>, rtt: Duration, carried: Option<Rate>) {
        self.write_off(cx.now);
        self.wire.restart(cx, rtt, carried);
        self.feedback.restart(cx.now);
        self.phase = Phase::Open;
    }

    /// Sends a sender report: every second, more often as a probe while the peer is silent, and with a
    /// BYE at the end.
    fn report_if_due(&mut self, now: Time) {
        if !self.reports.is_due(now) {
            return;
        }
        let wait = match self.phase {
            Phase::New | Phase::Greeting { .. } => GREETING_RETRY,
            Phase::Open => REPORT_INTERVAL,
            Phase::Blackout { .. } => (self.wire.srtt() / 4).clamp(PROBE_MIN, PROBE_MAX),
            Phase::Stopped => self.wire.breaker.probe_interval(now),
            Phase::Closed(_) => BYE_INTERVAL,
        };
        let mut report = self.reports.write(now, self.timestamp(now), wait);
        if let Phase::Closed(_) = self.phase {
            self.reports.add_bye(&mut report);
        }
        self.outgoing.push_back(report);
    }

    /// Earliest end of the session: everything was sent, and the time for retransmissions is over.
    fn closing_time(&self) -> Option<Time> {
        if self.is_closing {
            return Some(Time::ZERO);
        }
        let is_over = self.schedule.capture.is_over();
        if let (Phase::Stopped, Some((tripped, _))) = (self.phase, self.wire.breaker.tripped()) {
            // A receiver that has left needs nothing after the end of the stream.
            if self.is_left() && is_over {
                return Some(tripped);
            }
            // Answers count only after the pause of the breaker; `patience` starts then.
            let pause = self.wire.breaker.rests_until().filter(|_| !is_over);
            return Some(pause.unwrap_or(tripped) + self.config.patience);
        }
        let quiet = self.wire.last_media + self.config.delay_bound.unwrap_or(LAST_REPAIRS);
        let is_idle = !self.has_packets() || self.phase != Phase::Open;
        (is_over && is_idle).then_some(quiet)
    }

    fn close_if_over(&mut self, cx: &mut Context<'_>) {
        if self.closing_time().is_none_or(|at| at > cx.now) {
            return;
        }
        let failure = match (self.phase, self.wire.breaker.tripped()) {
            (Phase::Stopped, Some((_, cause))) => Some(SenderFailure::ReceiverGone(cause)),
            _ => None,
        };
        self.phase = Phase::Closed(failure);
        self.reports.next = Some(cx.now);
        self.report_if_due(cx.now);
    }
}

impl Endpoint for MediaSender {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Datagram(datagram) => self.on_datagram(cx, datagram),
            // Feedback tells by itself whether it is about this stream.
            Input::PeerChanged | Input::Stream(_) => {}
            Input::PathChanged => self.on_path_changed(cx),
            Input::Timeout => self.on_timeout(cx),
        }
        Check::believed(core::mem::take(&mut self.feedback.is_believed))
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        match self.next_packet(cx, buffer) {
            Some(transmit) => Output::Send(transmit),
            None if self.is_done() => Output::Done(self.next_timeout()),
            None => Output::Wait(self.next_timeout()),
        }
    }
}

/// Timeout of the handshake: three times the longest terrestrial round-trip time. A peer that is
/// silent for longer sends no per-packet feedback.
const GREETING: Duration = Duration::from_millis(600);
/// The same for a peer that sends no RTCP: time for a receiver that starts together with the sender, on
/// a busy machine too. It would miss the first key frame, and with it every frame until the next one.
const ONE_WAY_GREETING: Duration = Duration::from_secs(2);
const GREETING_RETRY: Duration = Duration::from_millis(100);
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const PROBE_MIN: Duration = Duration::from_millis(20);
const PROBE_MAX: Duration = Duration::from_millis(100);
const BYE_INTERVAL: Duration = Duration::from_millis(50);
/// Time for retransmissions at the end of a stream without a delay bound.
const LAST_REPAIRS: Duration = Duration::from_secs(1);
