//! Incoming RTCP, blackouts, circuit breaker, and outgoing sender reports.

use core::time::Duration;

use super::{MediaSender, Peer, Phase, SLOW_REPORTS, SenderFailure};
use crate::control::{Change, Context, Report};
use crate::session::breaker::ReportView;
use crate::session::feedback::reject;
use crate::session::history::{Content, Learnt};
use crate::session::path::{MAX_RTT, PathView};
use crate::session::receiver_reports::ReportedInterval;
use crate::trace::{BreakerCause, Event, FeedbackFault, KeyCause};
use crate::units::{Rate, Time};
use crate::wire::ntp::round_trip;
use crate::wire::rtcp::{self, Nack, ReportBlock, Rtcp, SenderInfo};

impl MediaSender {
    pub(super) fn on_rtcp(&mut self, cx: &mut Context<'_>, payload: &[u8]) {
        if rtcp::form(payload).is_err() {
            return reject(cx, FeedbackFault::Malformed);
        }
        // The blocks before per-packet feedback give a round-trip time only.
        let is_detailed = rtcp::packets(payload)
            .flatten()
            .any(|packet| matches!(packet, Rtcp::Ccfb(_) | Rtcp::Twcc(_)));
        for packet in rtcp::packets(payload).flatten() {
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
                Rtcp::Ccfb(report) if !self.on_probe_feedback(cx, &report) => {}
                Rtcp::Ccfb(report) => {
                    let (streams, reordering) = (self.config.streams, self.path.least_reordering());
                    let (reader, history) = (&mut self.reader, &mut self.history);
                    let learnt = reader.read(cx, &report, streams, history, reordering);
                    self.on_per_packet(cx, learnt, true);
                }
                Rtcp::Twcc(report) => {
                    let (streams, reordering) = (self.config.streams, self.path.least_reordering());
                    let (reader, history) = (&mut self.reader, &mut self.history);
                    let learnt = reader.read_transport(cx, &report, streams, history, reordering);
                    let learnt = learnt.map(|learnt| self.on_transport(cx, learnt));
                    self.on_per_packet(cx, learnt, false);
                }
                Rtcp::ArrivedDscp(report) => self.on_arrived_dscp(cx, &report),
                Rtcp::Nack(nack) => self.on_nack(cx, &nack),
                Rtcp::Pli(pli) if pli.media == self.config.streams.media_ssrc => self.on_pli(cx),
                Rtcp::Pli(_) => reject(cx, FeedbackFault::UnknownSource),
                Rtcp::Bye(bye) if bye.ssrcs().any(|s| self.reporter == Some(s)) => self.on_bye(cx),
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
            return self.breaker.on_rtcp(cx.now);
        }
        if block.ssrc != streams.media_ssrc {
            return reject(cx, FeedbackFault::UnknownSource);
        }
        let now = self.config.epoch.at(cx.now).middle();
        let sample = round_trip(now, block.last_sr, block.delay_since_last_sr);
        // Another sender report than those of this session is forged, or of another session.
        let sample = sample.filter(|&rtt| {
            let is_possible = rtt <= cx.now.since(self.started).min(MAX_RTT);
            is_possible && self.sent_reports.contains(&block.last_sr)
        });
        // Before the first packet, the highest sequence number of a receiver has no meaning.
        let highest = match self.first_media {
            Some(_) => self.history.check_highest(block.highest_sequence as u16),
            None => Ok(None),
        };
        // A quoted sender report proves that the source receives this stream. Without one, the
        // highest sequence number must be that of a packet that was sent.
        if let (Err(fault), None) = (highest, sample) {
            return reject(cx, fault);
        }
        self.is_believed |= sample.is_some() || matches!(highest, Ok(Some(_)));
        if let Some(rtt) = sample {
            self.path.on_rtt(cx.now, rtt);
        }
        if sample.is_some() || self.reporter.is_none() {
            self.reporter = Some(from);
        }
        self.disprove_bye(cx.now);
        let first = core::mem::replace(&mut self.has_report_block, true);
        match self.peer {
            Peer::PerPacket { .. } => {
                self.breaker.on_rtcp(cx.now);
                if let Some(rtt) = sample.filter(|_| !first) {
                    self.control.on_report(cx, &Report::default().rtt(rtt));
                }
            }
            Peer::Unknown | Peer::Silent | Peer::ReceiverReports => {
                self.on_receiver_report(cx, from, block, sample, is_detailed);
            }
        }
        let answered = sample.map(|rtt| {
            let asked = cx.now.before(rtt + block.delay_since_last_sr.as_span());
            (asked, rtt)
        });
        self.on_sign_of_life(cx, answered);
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
        let rtt = match (rtt, self.peer) {
            // A receiver that quotes no sender report does not receive any.
            (None, Peer::Silent | Peer::ReceiverReports) if !self.path.has_rtt() => {
                self.path.on_rtt(cx.now, ASSUMED_RTT);
                Some(ASSUMED_RTT)
            }
            (rtt, _) => rtt,
        };
        match (self.peer, self.first_media) {
            (Peer::Silent | Peer::ReceiverReports, Some(started)) if !is_detailed => {
                let delay = rtt.unwrap_or(self.path.srtt());
                let (now, history) = (cx.now, &mut self.history);
                let timing = (started, delay);
                let reported = self.reports.on_block(now, from, block, timing, history);
                self.on_reported_interval(cx, reported, rtt);
            }
            // The report answers the handshake: the controller gets its first round-trip sample.
            _ => {
                if let Some(rtt) = rtt {
                    self.control.on_report(cx, &Report::default().rtt(rtt));
                }
            }
        }
        let view = ReportView {
            highest: block.highest_sequence,
            loss: f64::from(block.fraction_lost) / 256.0,
            rtt: self.path.srtt(),
        };
        self.update_breaker(cx, view);
    }

    fn on_reported_interval(
        &mut self,
        cx: &mut Context<'_>,
        mut reported: ReportedInterval,
        rtt: Option<Duration>,
    ) {
        if !reported.learnt.fates.is_empty() {
            if self.peer == Peer::Silent {
                self.peer = Peer::ReceiverReports;
                cx.trace.record(cx.now, Event::PeerReportsOnly);
            }
            let interval = self.reports.interval();
            if interval > LONGEST_INTERVAL {
                // Some players report per number of bytes, seldom at a low rate (ffmpeg per 280 kB).
                self.breaker.set_interval(interval);
            }
            self.set_interval(cx, interval);
            self.last_progress = cx.now;
        }
        reported.learnt.rtt = rtt;
        self.take(cx, &reported.learnt);
    }

    /// After [`SILENCE`] without feedback about the first packets, the controller must not expect
    /// more than the receiver reports of RFC 3550.
    pub(super) fn detect_silence(&mut self, cx: &mut Context<'_>) {
        let wait = self.path.srtt() + SILENCE;
        let overdue = self.first_media.is_some_and(|at| cx.now.since(at) >= wait);
        if self.peer == Peer::Unknown && overdue {
            self.fall_silent(cx);
        }
    }

    /// The peer sends no per-packet feedback, as far as is known.
    pub(super) fn fall_silent(&mut self, cx: &mut Context<'_>) {
        self.peer = Peer::Silent;
        self.set_interval(cx, LONGEST_INTERVAL);
    }

    /// The maximum interval between two reports has changed; zero for per-packet feedback.
    fn set_interval(&mut self, cx: &mut Context<'_>, interval: Duration) {
        self.control.on_change(cx, &Change::Reports { interval });
    }

    fn update_breaker(&mut self, cx: &mut Context<'_>, view: ReportView) {
        let cause = self.breaker.on_report(cx.now, view);
        self.ceiling = self.breaker.ceiling(view.rtt);
        let Some(cause) = cause.filter(|_| self.config.circuit_breaker) else {
            return;
        };
        // Reports, and a path that fell to a fraction of its rate, come too late to avoid losses of
        // a round trip at the rate before.
        let is_slow = self.peer == Peer::ReceiverReports;
        let floor = if is_slow {
            Rate::ZERO
        } else {
            self.config.rates.0
        };
        match self.breaker.reduce(floor) {
            Some(_) if is_slow => self.reports.cut(),
            Some(tenth) => self.ceiling = Some(tenth),
            None => self.stop(cx, cause),
        }
    }

    /// Transport-wide feedback: its interval is that of the peer's RTCP (RFC 3550 section 6.3.1),
    /// which depends on the rate of the stream. The time for which feedback waits for the next
    /// RTCP packet is unknown, so sender reports give the round-trip time where there are any.
    fn on_transport(&mut self, cx: &mut Context<'_>, mut learnt: Learnt) -> Learnt {
        if self.path.has_rtt() {
            learnt.rtt = None;
        }
        let (last, interval) = self.transport.unwrap_or((cx.now, FIRST_INTERVAL));
        let gap = cx.now.since(last);
        // A receiver may send several packets at once.
        if gap >= SAME_TIME || self.transport.is_none() {
            let interval = gap.max(interval * 3 / 4);
            self.transport = Some((cx.now, interval));
            self.set_interval(cx, interval);
        }
        learnt
    }

    /// Processes valid per-packet feedback, with ECN fields or without; `None` was rejected.
    fn on_per_packet(&mut self, cx: &mut Context<'_>, learnt: Option<Learnt>, ecn: bool) {
        let Some(learnt) = learnt else {
            return;
        };
        self.is_believed = true;
        if ecn && self.peer != (Peer::PerPacket { ecn }) {
            self.breaker.set_interval(FAST_REPORTS);
            self.set_interval(cx, Duration::ZERO);
        }
        self.peer = Peer::PerPacket { ecn };
        self.breaker.on_rtcp(cx.now);
        let progress = learnt.fates.iter().any(|f| f.outcome.is_received());
        let progress = progress || !learnt.spurious.is_empty();
        if progress {
            self.disprove_bye(cx.now);
            self.last_progress = cx.now;
            if let Phase::Blackout { since, .. } = self.phase {
                // The path held the packets and lost none: nothing is written off.
                self.end_blackout(cx, since);
            }
        }
        self.take(cx, &learnt);
        self.report_outcomes(cx);
    }

    /// Gives the breaker one report per [`FAST_REPORTS`] from the per-packet feedback. Loss counts
    /// of receiver reports need no proof of an arrival.
    //= rfc8083-5-early
    fn report_outcomes(&mut self, cx: &mut Context<'_>) {
        if cx.now.since(self.breaker_updated) < FAST_REPORTS {
            return;
        }
        self.breaker_updated = cx.now;
        let [lost, received] = core::mem::take(&mut self.outcomes).map(f64::from);
        let view = ReportView {
            highest: self.newest_arrival as u32,
            // Errors of links are no reason to stop: the rate of TCP would be that of the errors.
            loss: self.control.path().congestion_share() * lost / (lost + received).max(1.0),
            rtt: self.path.srtt(),
        };
        self.update_breaker(cx, view);
    }

    /// Passes new packet outcomes to the controller and the path statistics, and schedules retransmissions.
    fn take(&mut self, cx: &mut Context<'_>, learnt: &Learnt) {
        if learnt.fates.is_empty() && learnt.spurious.is_empty() {
            return;
        }
        if let Some(rtt) = learnt.rtt {
            self.path.on_rtt(cx.now, rtt);
        }
        self.path.on_fates(&learnt.fates);
        self.path.on_spurious(learnt.spurious.len());
        for fate in &learnt.fates {
            let received = fate.outcome.is_received();
            self.outcomes[usize::from(received)] += 1;
            if received {
                self.newest_arrival = self.newest_arrival.max(fate.seq);
            }
        }
        let mut report = Report::new(&learnt.fates).spurious(&learnt.spurious);
        report.rtt = learnt.rtt;
        //= rfc8083-7-ecn
        self.control.on_report(cx, &report);
        self.pacer.on_rate(cx.now, self.pace());
        self.protection.on_spurious(&learnt.restored);
        let queueing = self.path.srtt().saturating_sub(self.path.one_way() * 2);
        let hopeless = self
            .protection
            .on_outcomes(&learnt.fates, &learnt.lost, queueing);
        for content in hopeless {
            self.on_lost(content);
        }
        if cx.now.since(self.last_sample) >= SAMPLE_INTERVAL {
            self.last_sample = cx.now;
            let target = self.target();
            let sample = Event::Sample {
                rtt: self.path.srtt(),
                queue: self.control.queueing(),
                loss: self.path.loss(),
                loss_event_rate: self.control.summary().loss_event_rate,
                send: target.send,
                media: target.media,
                receive: self.path.receive_rate(),
            };
            cx.trace.record(cx.now, sample);
        }
    }

    /// Retransmits a lost packet if the receiver still needs it and it can be in time; otherwise
    /// breaks the reference chain at its frame.
    fn on_lost(&mut self, content: Content) {
        if !self.chain.is_current(content.frame) {
            return;
        }
        let known = self.frames.sent_mut(content.frame).is_some();
        if known && self.config.retransmit {
            self.repairs.push_back(content);
        } else {
            self.chain.break_at(content.frame, KeyCause::Repair);
        }
    }

    /// Generic NACK (RFC 4585 section 6.2.1). The per-packet feedback of a Tidegate receiver
    /// reports the same losses slightly later, and has precedence: what it reported as received,
    /// or has not reported yet, is not repaired.
    fn on_nack(&mut self, cx: &mut Context<'_>, nack: &Nack<'_>) {
        if nack.media() != self.config.streams.media_ssrc {
            return reject(cx, FeedbackFault::UnknownSource);
        }
        self.breaker.on_rtcp(cx.now);
        // On a path with reordering, most NACKs are premature.
        if self.peer.is_per_packet() && self.history.is_reordered() {
            return;
        }
        for seq in nack.lost().take(MAX_NACKS) {
            let Some(content) = self.history.missing_content(seq) else {
                continue;
            };
            if self.repairs.len() < MAX_REPAIRS && !self.repairs.contains(&content) {
                for content in self.protection.on_outcomes(&[], &[content], Duration::ZERO) {
                    self.on_lost(content);
                }
            }
        }
    }

    /// Picture loss indication (RFC 4585 section 6.3.1). A request sent before the newest key frame
    /// could arrive is already answered.
    fn on_pli(&mut self, cx: &mut Context<'_>) {
        self.breaker.on_rtcp(cx.now);
        let Some(key) = self.chain.last_key() else {
            return;
        };
        let news = self.path.srtt() + KEY_NEWS;
        if self.last_key_left.is_some_and(|left| cx.now >= left + news) {
            self.chain.break_at(key, KeyCause::Requested);
        }
    }

    /// BYE of the reporting receiver. It takes effect after [`BYE_DELAY`], unless feedback shows
    /// that the stream is still received.
    fn on_bye(&mut self, cx: &mut Context<'_>) {
        let stands = matches!(self.phase, Phase::Stopped | Phase::Closed(_));
        if !stands && !self.config.one_way {
            self.bye.get_or_insert(cx.now);
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

    /// The reporting receiver has left. It, or another one, may join later: sender reports continue
    /// as probes, as after a trip of the breaker.
    //= rfc3550-6.6-leaves
    pub(super) fn on_receiver_left(&mut self, cx: &mut Context<'_>) {
        (self.bye, self.reporter) = (None, None);
        self.reader.forget_reporters();
        let cause = self.breaker.on_goodbye(cx.now);
        self.stop(cx, cause);
    }

    /// Whether the stream stopped because of the receiver's BYE.
    pub(super) fn is_left(&self) -> bool {
        let tripped = self.breaker.tripped();
        self.phase == Phase::Stopped
            && tripped.is_some_and(|(_, cause)| cause == BreakerCause::Goodbye)
    }

    /// Start time of a blackout: packets have been in flight for longer than a round trip, and no
    /// feedback has reported an arrival for [`SILENCE`]. Other feedback than that of RFC 8888 has no
    /// fixed interval.
    pub(super) fn blackout_start(&self) -> Option<Time> {
        if self.phase != Phase::Open || self.peer != (Peer::PerPacket { ecn: true }) {
            return None;
        }
        let oldest = self.history.oldest_unresolved()?;
        Some(self.last_progress.max(oldest + self.path.srtt()) + SILENCE)
    }

    pub(super) fn begin_blackout(&mut self, cx: &mut Context<'_>) {
        cx.trace.record(cx.now, Event::BlackoutBegan);
        let no_rtcp = cx.now.since(self.last_rtcp) >= SILENCE / 2;
        self.phase = Phase::Blackout {
            since: cx.now,
            no_rtcp,
        };
        self.next_report = Some(cx.now);
        self.repairs.clear();
        self.protection.interrupt();
    }

    fn end_blackout(&mut self, cx: &mut Context<'_>, since: Time) {
        let lasted = cx.now.since(since);
        cx.trace.record(cx.now, Event::BlackoutEnded { lasted });
        self.phase = Phase::Open;
        self.last_progress = cx.now;
        self.path.forget_rates();
    }

    /// Any RTCP about one of the sender's streams was received. `answered` is the departure time of
    /// the sender report that it answers, and the round-trip time.
    fn on_sign_of_life(&mut self, cx: &mut Context<'_>, answered: Option<(Time, Duration)>) {
        self.last_rtcp = cx.now;
        match self.phase {
            Phase::Blackout { since, no_rtcp } => {
                // If no RTCP was received before, any RTCP proves that the path is restored. If
                // only the forward path failed, only an answer to a probe does.
                if no_rtcp || answered.is_some_and(|(at, _)| at > since) {
                    let learnt = self.history.write_off(cx.now);
                    self.end_blackout(cx, since);
                    self.pacer.allow_burst(cx.now, self.path.one_way() * 2);
                    self.take(cx, &learnt);
                }
            }
            Phase::Stopped => {
                let (tripped, _) = self
                    .breaker
                    .tripped()
                    .unwrap_or((cx.now, BreakerCause::RtcpTimeout));
                if let Some((at, rtt)) = answered
                    && at > tripped
                    && self.breaker.on_answer(cx.now)
                {
                    self.resume(cx, rtt);
                }
            }
            Phase::Greeting { .. } | Phase::Open | Phase::Closed(_) => {}
        }
    }

    //= rfc8083-4.5-cease
    pub(super) fn stop(&mut self, cx: &mut Context<'_>, cause: BreakerCause) {
        if let Phase::Closed(_) = self.phase {
            // Reports arrive between the BYEs as well.
            return;
        }
        cx.trace.record(cx.now, Event::BreakerTripped { cause });
        self.phase = Phase::Stopped;
        self.bye = None;
        self.next_report = Some(cx.now);
        self.repairs.clear();
        self.protection.interrupt();
    }

    /// Restarts the stream after a trip. All path estimates are reset except the new round-trip
    /// sample, without which the first packets would leave at one per second. The receiver may be
    /// another one, with another kind of feedback.
    fn resume(&mut self, cx: &mut Context<'_>, rtt: Duration) {
        cx.trace.record(cx.now, Event::BreakerResumed);
        let learnt = self.history.write_off(cx.now);
        for content in learnt.lost {
            self.chain.break_at(content.frame, KeyCause::Repair);
        }
        let route = Change::Path {
            packet_size: self.config.packet_size,
            prior: None,
        };
        self.control.on_change(cx, &route);
        self.control.on_report(cx, &Report::default().rtt(rtt));
        self.reader.forget_reporters();
        self.history.forget_reporters();
        self.reports.restart();
        self.breaker.set_interval(SLOW_REPORTS);
        (self.peer, self.first_media, self.transport) = (Peer::Unknown, None, None);
        if !self.config.greets {
            self.fall_silent(cx);
        }
        self.outcomes = [0; 2];
        self.path = PathView::default();
        self.path.on_rtt(cx.now, rtt);
        self.ceiling = None;
        self.phase = Phase::Open;
        self.last_progress = cx.now;
    }

    /// Sends a sender report: every second, more often as a probe while the peer is silent.
    pub(super) fn report_if_due(&mut self, now: Time) {
        if self.next_report.is_none_or(|at| at > now) {
            return;
        }
        let mut out = Vec::with_capacity(96);
        let ntp = self.config.epoch.at(now);
        self.sent_reports.push_back(ntp.middle());
        if self.sent_reports.len() > MAX_SENT_REPORTS {
            self.sent_reports.pop_front();
        }
        SenderInfo {
            ssrc: self.config.streams.media_ssrc,
            ntp,
            rtp_timestamp: self.timestamp(now),
            packets: self.counts.packets,
            octets: self.counts.octets,
        }
        .emit(&[], &mut out);
        rtcp::emit_sdes(self.config.streams.media_ssrc, &self.config.cname, &mut out);
        self.outgoing.push_back(out);
        let wait = match self.phase {
            Phase::Greeting { .. } => GREETING_RETRY,
            Phase::Open => REPORT_INTERVAL,
            Phase::Blackout { .. } => (self.path.srtt() / 4).clamp(PROBE_MIN, PROBE_MAX),
            Phase::Stopped => self.breaker.probe_interval(now),
            Phase::Closed(_) => BYE_INTERVAL,
        };
        self.next_report = Some(now + wait);
    }

    /// Earliest end of the session: everything was sent, and the time for retransmissions is over.
    pub(super) fn closing_time(&self) -> Option<Time> {
        if self.closing {
            return Some(Time::ZERO);
        }
        if let (Phase::Stopped, Some((tripped, _))) = (self.phase, self.breaker.tripped()) {
            // A receiver that has left needs nothing after the end of the stream.
            if self.is_left() && self.capture.is_over() {
                return Some(tripped);
            }
            // Answers count only after the pause of the breaker; `patience` starts then.
            let since = if self.capture.is_over() {
                tripped
            } else {
                self.breaker.rests_until().unwrap_or(tripped)
            };
            return Some(since + self.config.patience);
        }
        if !self.capture.is_over() {
            return None;
        }
        let idle = !self.has_packets();
        let quiet = self.last_media + self.config.delay_bound.unwrap_or(LAST_REPAIRS);
        (idle || self.phase != Phase::Open).then_some(quiet)
    }

    pub(super) fn close_if_over(&mut self, cx: &mut Context<'_>) {
        if self.closing_time().is_none_or(|at| at > cx.now) {
            return;
        }
        let failure = match (self.phase, self.breaker.tripped()) {
            (Phase::Stopped, Some((_, cause))) => Some(SenderFailure::ReceiverGone(cause)),
            _ => None,
        };
        self.phase = Phase::Closed(failure);
        self.next_report = Some(cx.now);
        self.repeat_bye(cx.now);
    }

    /// Sends the next BYE when it is due.
    pub(super) fn repeat_bye(&mut self, now: Time) {
        if self.next_report.is_none_or(|at| at > now) {
            return;
        }
        self.report_if_due(now);
        if let Some(last) = self.outgoing.back_mut() {
            rtcp::emit_bye(&self.config.streams.ssrcs(), None, last);
        }
        self.byes -= 1;
        if self.byes == 0 {
            self.next_report = None;
        }
    }
}

/// Report interval of a Tidegate receiver.
const FAST_REPORTS: Duration = Duration::from_secs(1);
/// Five seconds of probes, the longest reporting interval of a plain receiver.
const MAX_SENT_REPORTS: usize = 256;
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const GREETING_RETRY: Duration = Duration::from_millis(100);
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
const SILENCE: Duration = Duration::from_millis(150);
const PROBE_MIN: Duration = Duration::from_millis(20);
const PROBE_MAX: Duration = Duration::from_millis(100);
/// Time from the arrival of a key frame to the last request sent without knowledge of it.
const KEY_NEWS: Duration = Duration::from_millis(50);
/// BYEs of a sender: without one, the receiver waits for more until its timeout. With random losses of
/// 10 %, one of a thousand streams ends so.
pub(super) const BYES: u8 = 3;
const BYE_INTERVAL: Duration = Duration::from_millis(50);
/// Ten feedback intervals, or two frames at 10 frames per second.
const BYE_DELAY: Duration = Duration::from_millis(250);
/// Maximum reordering of a BYE and the feedback sent before it.
const REORDERED_BYE: Duration = Duration::from_millis(25);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Time for retransmissions at the end of a stream without a delay bound.
const LAST_REPAIRS: Duration = Duration::from_secs(1);
/// Maximum number of entries processed per NACK packet.
const MAX_NACKS: usize = 256;
const MAX_REPAIRS: usize = 1_024;
