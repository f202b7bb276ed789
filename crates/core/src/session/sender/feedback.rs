//! The way of a report: incoming RTCP, the kind of feedback, and the receiver that reports.

use core::time::Duration;

use super::MediaSender;
use super::starvation::Starvation;
use super::status::Phase;
use super::wire::{CONGESTED, FAST_REPORTS, Peer};
use crate::control::Context;
use crate::path::window::WindowMin;
use crate::session::breaker::ReportView;
use crate::session::config::KnownPath;
use crate::session::feedback::{FeedbackReader, reject};
use crate::session::history::{Content, FeedbackResult};
use crate::session::receiver_reports::{ReceiverReports, ReportedInterval};
use crate::trace::{Event, FeedbackFault, KeyCause};
use crate::units::{Rate, Time};
use crate::wire::rtcp::{self, Nack, ReportBlock, Rtcp};

/// State of the feedback.
#[derive(Debug)]
pub(super) struct Feedback {
    reader: FeedbackReader,
    /// Time of the last transport-wide feedback, and its maximum interval.
    transport: Option<(Time, Duration)>,
    starvation: Starvation,
    /// Negated receive rates of the last minute, in bits per second, without those after contradictions.
    receive_rates: WindowMin,
    /// Last feedback that reported an arrival.
    pub(super) last_progress: Time,
    /// Last RTCP about one of the sender's streams.
    pub(super) last_rtcp: Time,
    /// Whether a report block about the media stream was received.
    has_report_block: bool,
    /// Extended highest sequence number of the last such block.
    highest: Option<u32>,
    /// Departure time of the newest sender report that such a block has answered.
    pub(super) last_answered: Time,
    /// Whether the datagram being processed held a report about packets or sender reports of this
    /// session.
    pub(super) is_believed: bool,
    /// SSRC of the receiver that sent the latest such block.
    reporter: Option<u32>,
    /// Arrival of the reporter's BYE, until feedback disproves it or [`BYE_DELAY`] has passed.
    pub(super) bye: Option<Time>,
}

impl Default for Feedback {
    fn default() -> Self {
        Self {
            reader: FeedbackReader::default(),
            transport: None,
            starvation: Starvation::default(),
            receive_rates: WindowMin::new(Duration::from_secs(10)),
            last_progress: Time::ZERO,
            last_rtcp: Time::ZERO,
            has_report_block: false,
            highest: None,
            last_answered: Time::ZERO,
            is_believed: false,
            reporter: None,
            bye: None,
        }
    }
}

impl Feedback {
    /// Highest rate that the path has carried in the last minute.
    fn carried(&self) -> Option<Rate> {
        let negated = self.receive_rates.min();
        negated.map(|rate| Rate::bps(rate.unsigned_abs()))
    }

    /// A report shows a receive rate.
    fn on_rate(&mut self, now: Time, rate: Rate) {
        if self.reader.contradictions.are_past(now) {
            let rate = i64::try_from(rate.as_bps()).unwrap_or(i64::MAX);
            self.receive_rates.insert(now, -rate);
        }
    }

    /// Time at which a BYE takes effect.
    pub(super) fn leaves_at(&self) -> Option<Time> {
        self.bye.map(|bye| bye + BYE_DELAY)
    }

    /// Feedback has arrived. Unless it was reordered with the BYE, the receiver has not left.
    fn disprove_bye(&mut self, now: Time) {
        if self.bye.is_some_and(|bye| now.since(bye) >= REORDERED_BYE) {
            self.bye = None;
        }
    }

    /// The stream restarts.
    pub(super) fn restart(&mut self, now: Time) {
        self.reader.forget_reporters();
        self.transport = None;
        self.last_progress = now;
    }
}

impl MediaSender {
    pub(super) fn on_rtcp(&mut self, cx: &mut Context<'_>, payload: &[u8]) {
        if rtcp::form(payload).is_err() {
            return reject(cx, FeedbackFault::Malformed);
        }
        // The blocks before per-packet feedback give a round-trip time only.
        let is_detailed = rtcp::packets(payload)
            .flatten()
            .any(|packet| matches!(packet, Rtcp::Ccfb(_) | Rtcp::Twcc(_)));
        let streams = self.config.streams;
        for packet in rtcp::packets(payload).flatten() {
            let reordering = self.wire.least_reordering();
            match packet {
                Rtcp::ReceiverReport(report) => {
                    let from = report.sender();
                    let blocks = report.reports();
                    blocks.for_each(|block| self.on_block(cx, from, &block, is_detailed));
                }
                Rtcp::SenderReport(report) => {
                    let from = report.info().ssrc;
                    let blocks = report.reports();
                    blocks.for_each(|block| self.on_block(cx, from, &block, is_detailed));
                }
                Rtcp::Ccfb(report) if self.on_size_probes(cx, &report) => {}
                Rtcp::Ccfb(report) if !self.on_probe_feedback(cx, &report) => {}
                Rtcp::Ccfb(report) => {
                    let (reader, history) = (&mut self.feedback.reader, &mut self.wire.history);
                    let feedback = reader.read(cx, &report, streams, history, reordering);
                    self.on_per_packet(cx, feedback, true);
                }
                Rtcp::Twcc(report) => {
                    let (reader, history) = (&mut self.feedback.reader, &mut self.wire.history);
                    let feedback = reader.read_transport(cx, &report, streams, history, reordering);
                    let feedback = feedback.map(|feedback| self.on_transport(cx, feedback));
                    self.on_per_packet(cx, feedback, false);
                }
                Rtcp::ArrivedDscp(report) => self.on_arrived_dscp(cx, &report),
                Rtcp::Nack(nack) => self.on_nack(cx, &nack),
                Rtcp::Pli(pli) if pli.media == streams.media_ssrc => self.on_pli(cx),
                Rtcp::Pli(_) => reject(cx, FeedbackFault::UnknownSource),
                Rtcp::Bye(bye) => self.on_bye(cx, bye.ssrcs()),
                _ => {}
            }
        }
    }

    /// A report block of a receiver or sender report (RFC 3550 section 6.4.1).
    /// `is_detailed`: per-packet feedback follows in the same datagram.
    fn on_block(
        &mut self,
        cx: &mut Context<'_>,
        from: u32,
        block: &ReportBlock,
        is_detailed: bool,
    ) {
        let streams = self.config.streams;
        if [streams.repair_ssrc, streams.parity_ssrc].contains(&block.ssrc) {
            //= rfc8083-4.1-other-streams
            return self.wire.breaker.on_rtcp(cx.now);
        }
        if block.ssrc != streams.media_ssrc {
            return reject(cx, FeedbackFault::UnknownSource);
        }
        let sample = self.reports.round_trip(cx.now, block);
        // Before the first packet, the highest sequence number of a receiver has no meaning.
        let history = &self.wire.history;
        let highest = match self.wire.first_media {
            Some(_) => history.check_highest(block.highest_sequence as u16),
            None => Ok(None),
        };
        // A quoted sender report proves that the source receives this stream. Without one, the
        // highest sequence number must be that of a packet that was sent.
        if let (Err(fault), None) = (highest, sample) {
            return reject(cx, fault);
        }
        self.feedback.is_believed |= sample.is_some() || matches!(highest, Ok(Some(_)));
        if sample.is_some() || self.feedback.reporter.is_none() {
            self.feedback.reporter = Some(from);
        }
        // A report that does not advance tells of no arrival since the last one.
        let arrived = highest.ok().flatten();
        let arrived = (self.feedback.highest.replace(block.highest_sequence)
            != Some(block.highest_sequence))
        .then_some(arrived);
        self.feedback.disprove_bye(cx.now);
        let first = core::mem::replace(&mut self.feedback.has_report_block, true);
        match self.wire.peer {
            Peer::PerPacket { .. } => {
                self.wire.breaker.on_rtcp(cx.now);
                match sample {
                    Some(rtt) if first => self.wire.control.on_rtt(cx.now, rtt),
                    Some(rtt) => self.wire.report_rtt(cx, rtt),
                    None => {}
                }
            }
            Peer::Unknown | Peer::Silent | Peer::ReceiverReports => {
                self.on_receiver_report(cx, from, block, sample, is_detailed);
            }
        }
        let answered = sample.map(|rtt| {
            let delay = block.delay_since_last_sr.as_span();
            (cx.now.before(rtt + delay), rtt)
        });
        let is_dark = matches!(self.phase, Phase::Blackout { .. });
        self.on_sign_of_life(cx, answered);
        if let Some((at, _)) = answered
            && (is_dark || !self.wire.peer.is_per_packet())
        {
            self.on_small_arrival(cx, at, arrived.flatten());
        }
    }

    /// A block of a peer without per-packet feedback.
    fn on_receiver_report(
        &mut self,
        cx: &mut Context<'_>,
        from: u32,
        block: &ReportBlock,
        rtt: Option<Duration>,
        is_detailed: bool,
    ) {
        let rtt = match (rtt, self.wire.peer) {
            // A receiver that quotes no sender report does not receive any.
            (None, Peer::Silent | Peer::ReceiverReports) if !self.wire.has_rtt() => {
                Some(ASSUMED_RTT)
            }
            (rtt, _) => rtt,
        };
        match (self.wire.peer, self.wire.first_media) {
            (Peer::Silent | Peer::ReceiverReports, Some(started)) if !is_detailed => {
                if let Some(rtt) = rtt {
                    self.wire.control.on_rtt(cx.now, rtt);
                }
                let timing = (started, rtt.unwrap_or(self.wire.srtt()));
                let (reports, history) = (&mut self.wire.reports, &mut self.wire.history);
                let reported = reports.on_block(cx.now, from, block, timing, history);
                self.on_reported_interval(cx, reported, rtt);
            }
            // The report answers the handshake: the controller gets its first round-trip sample.
            _ => {
                if let Some(rtt) = rtt {
                    self.wire.report_rtt(cx, rtt);
                }
            }
        }
        let view = ReportView {
            highest: block.highest_sequence,
            loss: f64::from(block.fraction_lost) / 256.0,
            rtt: self.wire.srtt(),
        };
        self.update_breaker(cx, view);
    }

    fn on_reported_interval(
        &mut self,
        cx: &mut Context<'_>,
        mut reported: ReportedInterval,
        rtt: Option<Duration>,
    ) {
        if !reported.feedback.outcomes.is_empty() {
            if self.wire.peer == Peer::Silent {
                self.wire.peer = Peer::ReceiverReports;
                cx.trace.record(cx.now, Event::PeerReportsOnly);
            }
            let interval = self.wire.reports.interval();
            if interval > LONGEST_INTERVAL {
                // Some players report per number of bytes, seldom at a low rate (ffmpeg per 280 kB).
                self.wire.breaker.set_interval(interval);
            }
            self.wire.set_interval(cx, interval);
            self.feedback.last_progress = cx.now;
        }
        reported.feedback.rtt = rtt;
        self.on_outcomes(cx, &reported.feedback);
    }

    /// After [`SILENCE`] without feedback about the first packets, the controller must not expect
    /// more than the receiver reports of RFC 3550.
    pub(super) fn detect_silence(&mut self, cx: &mut Context<'_>) {
        let Some(first) = self.wire.first_media else {
            return;
        };
        let overdue = cx.now.since(first) >= self.wire.srtt() + SILENCE;
        if overdue && self.wire.peer == Peer::Unknown {
            self.fall_silent(cx);
        }
    }

    /// The peer will report on media only, seldom as a rule.
    pub(super) fn start_without_greeting(&mut self, cx: &mut Context<'_>) {
        self.fall_silent(cx);
        if let Some(KnownPath { rtt, rate }) = self.config.known_path {
            self.wire.report_rtt(cx, rtt);
            self.wire.reports = ReceiverReports::starting_at(rate);
        }
    }

    /// The peer sends no per-packet feedback, as far as is known.
    pub(super) fn fall_silent(&mut self, cx: &mut Context<'_>) {
        self.wire.peer = Peer::Silent;
        self.wire.set_interval(cx, LONGEST_INTERVAL);
    }

    /// Transport-wide feedback: its interval is that of the peer's RTCP (RFC 3550 section 6.3.1),
    /// which depends on the rate of the stream. The time for which feedback waits for the next
    /// RTCP packet is unknown, so sender reports give the round-trip time where there are any.
    fn on_transport(
        &mut self,
        cx: &mut Context<'_>,
        mut feedback: FeedbackResult,
    ) -> FeedbackResult {
        if self.wire.has_rtt() {
            feedback.rtt = None;
        }
        let transport = self.feedback.transport;
        let (last, interval) = transport.unwrap_or((cx.now, FIRST_INTERVAL));
        let gap = cx.now.since(last);
        // A receiver may send several packets at once.
        if gap >= SAME_TIME || transport.is_none() {
            let interval = gap.max(interval * 3 / 4);
            self.feedback.transport = Some((cx.now, interval));
            self.wire.set_interval(cx, interval);
        }
        feedback
    }

    /// Processes valid per-packet feedback, with ECN fields or without; `None` was rejected.
    fn on_per_packet(&mut self, cx: &mut Context<'_>, feedback: Option<FeedbackResult>, ecn: bool) {
        let Some(feedback) = feedback else {
            return;
        };
        self.feedback.is_believed = true;
        if ecn && self.wire.peer != (Peer::PerPacket { ecn }) {
            self.wire.breaker.set_interval(FAST_REPORTS);
            self.wire.set_interval(cx, Duration::ZERO);
        }
        self.wire.peer = Peer::PerPacket { ecn };
        self.wire.breaker.on_rtcp(cx.now);
        let progress = feedback.outcomes.iter().any(|f| f.outcome.is_received());
        let progress = progress || !feedback.spurious.is_empty();
        if progress {
            self.feedback.disprove_bye(cx.now);
            self.feedback.last_progress = cx.now;
            if let Phase::Blackout {
                since, moved: None, ..
            } = self.phase
            {
                // The path held the packets and lost none: nothing is written off.
                self.end_blackout(cx, since);
            }
        }
        if let Some(rtt) = feedback.rtt {
            if self.feedback.reader.contradictions.have_ended(cx.now) {
                return self.on_contradictions(cx, rtt);
            }
            let is_free = feedback.lost.is_empty() && rtt <= self.wire.one_way() * 2 + CONGESTED;
            let probes = self.schedule.probes;
            if is_free && self.phase == Phase::Open && self.feedback.starvation.ends(cx.now, probes)
            {
                return self.restart(cx, rtt, self.feedback.carried());
            }
        }
        self.on_outcomes(cx, &feedback);
        let rate = self.wire.control.path().receive_rate();
        self.feedback.on_rate(cx.now, rate);
        self.update_size_search(cx.now, &feedback);
        if let Some(view) = self.wire.take_report(cx.now) {
            self.update_breaker(cx, view);
        }
    }

    /// Some of the reports were forged, and those that go on are honest. The estimates of the path, and a
    /// trip of the breaker, may follow from the forged ones.
    fn on_contradictions(&mut self, cx: &mut Context<'_>, rtt: Duration) {
        cx.trace.record(cx.now, Event::ReportsContradicted);
        self.wire.breaker.restart(cx.now);
        match self.phase {
            Phase::Closed(_) => {}
            Phase::Stopped => self.resume(cx, rtt, self.feedback.carried()),
            _ => self.restart(cx, rtt, self.feedback.carried()),
        }
    }

    fn update_breaker(&mut self, cx: &mut Context<'_>, view: ReportView) {
        if let Some(cause) = self.wire.update_breaker(cx.now, view) {
            self.stop(cx, cause);
        }
    }

    /// Passes new packet outcomes to the controller and the path statistics, and schedules retransmissions.
    fn on_outcomes(&mut self, cx: &mut Context<'_>, feedback: &FeedbackResult) {
        if feedback.outcomes.is_empty() && feedback.spurious.is_empty() {
            return;
        }
        self.wire.on_outcomes(cx, feedback);
        self.protection.on_spurious(&feedback.restored);
        let queueing = self.wire.srtt().saturating_sub(self.wire.one_way() * 2);
        let (outcomes, lost) = (&feedback.outcomes, &feedback.lost);
        for content in self.protection.on_outcomes(outcomes, lost, queueing) {
            self.on_lost(content);
        }
        self.detect_hole(cx);
    }

    /// Retransmits a lost packet if the receiver still needs it and it can be in time; otherwise
    /// breaks the reference chain at its frame.
    fn on_lost(&mut self, content: Content) {
        if !self.schedule.chain.is_current(content.frame) {
            return;
        }
        let frame = self.packetiser.sent_mut(content.frame);
        let is_known = frame.is_some();
        if frame.is_some_and(|frame| frame.on_lost(content.fragment)) {
            return;
        }
        if is_known && self.config.retransmit {
            self.protection.repairs.push_back(content);
        } else {
            self.schedule
                .chain
                .break_at(content.frame, KeyCause::Repair);
        }
    }

    /// Generic NACK (RFC 4585 section 6.2.1). The per-packet feedback of a Tidegate receiver
    /// reports the same losses slightly later, and has precedence: what it reported as received,
    /// or has not reported yet, is not repaired.
    fn on_nack(&mut self, cx: &mut Context<'_>, nack: &Nack<'_>) {
        if nack.media() != self.config.streams.media_ssrc {
            return reject(cx, FeedbackFault::UnknownSource);
        }
        self.wire.breaker.on_rtcp(cx.now);
        // On a path with reordering, most NACKs are premature.
        if self.wire.peer.is_per_packet() && self.wire.history.is_reordered() {
            return;
        }
        for seq in nack.lost().take(MAX_NACKS) {
            let Some(content) = self.wire.history.missing_content(seq) else {
                continue;
            };
            if self.protection.is_new(&content) {
                for content in self.protection.on_outcomes(&[], &[content], Duration::ZERO) {
                    self.on_lost(content);
                }
            }
        }
    }

    /// Picture loss indication (RFC 4585 section 6.3.1). A request sent before the newest key frame
    /// could arrive is already answered.
    fn on_pli(&mut self, cx: &mut Context<'_>) {
        self.wire.breaker.on_rtcp(cx.now);
        let news = self.wire.srtt() + KEY_NEWS;
        self.schedule.on_key_request(cx.now, news);
    }

    /// BYE of receivers. That of the reporting one takes effect after [`BYE_DELAY`], unless feedback shows
    /// that the stream is still received.
    fn on_bye(&mut self, cx: &mut Context<'_>, mut ssrcs: impl Iterator<Item = u32>) {
        let stands = matches!(self.phase, Phase::Stopped | Phase::Closed(_));
        let is_reporter = ssrcs.any(|ssrc| self.feedback.reporter == Some(ssrc));
        if is_reporter && !stands && !self.config.one_way {
            self.feedback.bye.get_or_insert(cx.now);
        }
    }

    /// The reporting receiver has left. It, or another one, may join later: sender reports continue
    /// as probes, as after a trip of the breaker.
    //= rfc3550-6.6-leaves
    pub(super) fn on_receiver_left(&mut self, cx: &mut Context<'_>) {
        (self.feedback.bye, self.feedback.reporter) = (None, None);
        self.feedback.reader.forget_reporters();
        let cause = self.wire.breaker.on_goodbye(cx.now);
        self.stop(cx, cause);
    }

    /// Any RTCP about one of the sender's streams was received. `answered` is the departure time of
    /// the sender report that it answers, and the round-trip time.
    fn on_sign_of_life(&mut self, cx: &mut Context<'_>, answered: Option<(Time, Duration)>) {
        self.feedback.last_rtcp = cx.now;
        match self.phase {
            Phase::Blackout {
                since,
                moved: Some(moved),
                ..
            } => {
                if let Some((at, rtt)) = answered
                    && at >= moved
                {
                    self.end_blackout(cx, since);
                    self.begin_on_path(cx, rtt);
                }
            }
            Phase::Blackout { since, no_rtcp, .. } => {
                // If no RTCP was received before, any RTCP proves that the path is restored. If
                // only the forward path failed, only an answer to a probe does.
                if no_rtcp || answered.is_some_and(|(at, _)| at > since) {
                    let feedback = self.wire.history.write_off(cx.now);
                    self.end_blackout(cx, since);
                    let wire = &mut self.wire;
                    wire.pacer.allow_burst(cx.now, wire.one_way() * 2);
                    self.on_outcomes(cx, &feedback);
                }
            }
            Phase::Stopped => {
                let tripped = self.wire.breaker.tripped().map_or(cx.now, |(at, _)| at);
                if let Some((at, rtt)) = answered
                    && at > tripped
                {
                    if self.feedback.reader.contradictions.have_ended(cx.now) {
                        self.on_contradictions(cx, rtt);
                    } else if self.wire.breaker.on_answer(cx.now) {
                        self.resume(cx, rtt, None);
                    }
                }
            }
            Phase::New | Phase::Greeting { .. } | Phase::Open | Phase::Closed(_) => {}
        }
    }

    /// Whether the circuit breaker requires RTCP of the peer. A peer that has never reported is
    /// served at the minimum rate for as long as the application asks. One with receiver reports
    /// only may report per number of bytes, and owes none before they have left.
    pub(super) fn expects_rtcp(&self) -> bool {
        let wire = &self.wire;
        let is_expected = !self.config.one_way && !self.schedule.capture.is_paused();
        let is_owed = wire.peer != Peer::ReceiverReports || wire.breaker.has_missed_reports();
        self.config.circuit_breaker && is_expected && is_owed && self.has_reported()
    }

    /// Whether the peer has ever reported on this session.
    pub(super) fn has_reported(&self) -> bool {
        self.feedback.has_report_block || self.wire.peer.is_per_packet()
    }
}

/// RFC 3550 section 6.3.1: 5 s times 1.5 / 1.21828.
const LONGEST_INTERVAL: Duration = Duration::from_millis(6_200);
/// Interval of transport-wide feedback before it is known: receivers report so
/// seldom in the first seconds.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// Less than the interval of any feedback.
const SAME_TIME: Duration = Duration::from_millis(10);
/// Round-trip time of a peer whose reports quote no sender report: a long terrestrial path.
const ASSUMED_RTT: Duration = Duration::from_millis(300);
/// Six feedback intervals: tolerates the loss of a few feedback packets, and sends at most five
/// frames into a failed path.
pub(super) const SILENCE: Duration = Duration::from_millis(150);
/// Time from the arrival of a key frame to the last request sent without knowledge of it.
const KEY_NEWS: Duration = Duration::from_millis(50);
/// Ten feedback intervals, or two frames at 10 frames per second.
const BYE_DELAY: Duration = Duration::from_millis(250);
/// Maximum reordering of a BYE and the feedback sent before it.
const REORDERED_BYE: Duration = Duration::from_millis(25);
/// Maximum number of entries processed per NACK packet.
const MAX_NACKS: usize = 256;
