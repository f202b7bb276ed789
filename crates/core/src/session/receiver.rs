//! Receiver of a media session: consumes RTP, produces frames and RTCP.

use core::time::Duration;
use std::collections::VecDeque;

use self::intake::Newcomer;
use self::nack_schedule::NackSchedule;
use self::probation::{LastPacket, Probation};
use self::probes::Probes;
use super::config::{FeedbackMode, ReceiverConfig};
use super::jitter_buffer::{JitterBuffer, ReceivedFrame};
use super::parity::ParityDecoder;
use super::pauses::Pauses;
use super::receiver_stats::{Arrivals, ReceivedTotal, ReceiverStats};
use super::slowdown_detector::SlowdownDetector;
use crate::control::{Context, TimerReason, sooner};
use crate::endpoint::{Check, Datagram, Endpoint, Input, Output, Transmit};
use crate::units::Time;
use crate::wire::ccfb::CcfbBuilder;
use crate::wire::ntp::NtpShort;
use crate::wire::rtcp::{self, ReportBlock};
use crate::wire::seq::{Unwrap16, Unwrap32};

mod intake;
mod nack_schedule;
mod probation;
mod probes;

/// Receives one media stream and its retransmission stream.
///
/// The receiver performs no rate control. It reports the arrival time of every packet (RFC 8888),
/// missing packets and undecodable pictures (RFC 4585), and the statistics of RFC 3550.
#[derive(Debug)]
pub struct MediaReceiver {
    config: ReceiverConfig,
    stream: StreamState,
    frames: JitterBuffer,
    last_arrival: Option<Time>,
    feedback_due: Option<Time>,
    feedback_sent: Time,
    report_due: Option<Time>,
    probation: Probation,
    newcomer: Option<Newcomer>,
    /// A source that was replaced while silent. It has precedence over its successor.
    displaced: Option<u32>,
    outgoing: VecDeque<Vec<u8>>,
    /// Whether any packet was sent.
    has_sent: bool,
    presence: Presence,
    rejected: u64,
    /// Packets of the stream that show H.265, since a frame was decodable.
    h265: u64,
    /// Packets received and lost in earlier streams.
    earlier: (u64, i64),
    /// Number of media packets restored from parity packets.
    restored: u64,
    received: ReceivedTotal,
    /// Number of restarts of the jitter buffer: takeovers, and jumps of the numbers.
    restarts: u64,
}

/// State that ends with the stream: the sequence numbers and timestamps of another one are unrelated.
#[derive(Debug, Default)]
struct StreamState {
    media: Source,
    repair: Source,
    parity: Source,
    probes: Probes,
    decoder: ParityDecoder,
    timestamps: Unwrap32,
    /// Middle 32 bits of the NTP timestamp of the last sender report, and its arrival time.
    last_sr: Option<(NtpShort, Time)>,
    slowdown: SlowdownDetector,
    last_media: Option<LastPacket>,
    pauses: Pauses,
    /// Since when packets have arrived and no frame was decodable.
    undecodable_since: Option<Time>,
    /// Since when the jitter buffer has refused all packets.
    refused_since: Option<Time>,
    nacks: NackSchedule,
    /// Packets to request in the next feedback.
    missing: Vec<u64>,
    want_key: Option<Time>,
    /// Arrival of the sender's BYE.
    bye: Option<Time>,
    /// The BYE has taken effect.
    ended: bool,
}

impl MediaReceiver {
    /// A receiver that has received no packet.
    pub fn new(config: ReceiverConfig) -> Self {
        Self {
            frames: JitterBuffer::of_receiver(&config),
            config,
            stream: StreamState::default(),
            last_arrival: None,
            feedback_due: None,
            feedback_sent: Time::ZERO,
            report_due: None,
            probation: Probation::default(),
            newcomer: None,
            displaced: None,
            outgoing: VecDeque::new(),
            has_sent: false,
            presence: Presence::Active,
            rejected: 0,
            h265: 0,
            earlier: (0, 0),
            restored: 0,
            received: ReceivedTotal::default(),
            restarts: 0,
        }
    }

    /// The next frame in decoding order. Frames that were discarded are included, without data.
    pub fn poll_frame(&mut self) -> Option<ReceivedFrame> {
        self.frames.poll()
    }

    /// Flushes the remaining frames at the end of a run.
    pub fn finish(&mut self) {
        self.frames.finish();
    }

    /// The decoder failed on a frame. Requests a key frame and holds back frames until it arrives.
    pub fn on_decoder_trouble(&mut self, now: Time) {
        self.frames.break_chain();
        self.stream.want_key.get_or_insert(now);
        self.feedback_soon(now, Duration::ZERO);
    }

    /// Packets received and lost so far (RFC 3550 section A.3), in all media streams.
    pub fn counts(&self) -> (u64, i64) {
        let (received, lost) = self.earlier;
        let stats = &self.stream.media.stats;
        (received + stats.received(), lost + stats.lost())
    }

    /// Number of access points without parameter sets: neither the stream nor the configuration has
    /// them, so nothing is decodable.
    pub fn without_parameter_sets(&self) -> u64 {
        self.frames.without_sets()
    }

    /// Since when packets have arrived and no frame was decodable, for lack of a complete picture at
    /// which decoding can start or of parameter sets; `None` if there is no such time.
    pub fn undecodable_since(&self) -> Option<Time> {
        self.stream.undecodable_since
    }

    /// Whether the stream is H.265 instead of H.264, so nothing is decodable.
    pub fn is_h265(&self) -> bool {
        self.h265 >= H265_PACKETS
    }

    /// Total of the accepted packets, with retransmissions, parity packets and the headers of RTP, UDP
    /// and IPv4.
    pub fn received(&self) -> ReceivedTotal {
        self.received
    }

    /// Number of rejected datagrams.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Number of lost media packets that were restored from parity packets.
    pub fn restored(&self) -> u64 {
        self.restored
    }

    /// Arrival time of the last media packet.
    pub fn last_arrival(&self) -> Option<Time> {
        self.last_arrival
    }

    /// Arrival time of the last packet that shows that the sender runs: media, or a sender report of
    /// the same source. A sender that pauses, as after a congestion trip of its circuit breaker, sends
    /// sender reports alone.
    ///
    /// Forged sender reports hold a session without protection no longer than forged media: they need
    /// the SSRC of the source, 32 random bits, with which two media packets of any numbers are accepted
    /// too. After two seconds without media, the media of any other SSRC is accepted.
    pub fn last_life(&self) -> Option<Time> {
        let report = self.stream.last_sr.map(|(_, at)| at);
        self.last_arrival.max(report)
    }

    /// Whether the sender has sent a BYE, and no media has arrived since.
    pub fn has_ended(&self) -> bool {
        self.stream.ended
    }

    /// Leaves the session: sends a last report with a BYE, unless nothing was ever sent.
    pub fn close(&mut self) {
        if self.presence == Presence::Active {
            self.presence = Presence::Leaving;
        }
    }

    /// Queue lengths, for tests of memory bounds.
    pub fn held(&self) -> QueueLengths {
        let (packets, bytes) = self.frames.held();
        QueueLengths {
            packets,
            bytes,
            arrivals: self.arrivals(),
            restarts: self.restarts,
        }
    }

    fn arrivals(&self) -> usize {
        let own = self.sources().map(|source| source.arrivals.len());
        own.sum::<usize>() + self.stream.probes.len()
    }

    fn sources(&self) -> impl Iterator<Item = &Source> {
        [&self.stream.media, &self.stream.repair, &self.stream.parity].into_iter()
    }

    fn feedback_soon(&mut self, now: Time, wait: Duration) {
        if self.config.feedback != FeedbackMode::PerPacket {
            return;
        }
        let due = (now + wait).max(self.feedback_sent + MIN_INTERVAL);
        self.feedback_due = Some(self.feedback_due.map_or(due, |d| d.min(due)));
    }

    /// Next time at which a missing packet may have to be requested.
    fn nacks_due(&self) -> Option<Time> {
        let due = self
            .stream
            .nacks
            .due()?
            .max(self.feedback_sent + MIN_INTERVAL);
        (self.config.feedback == FeedbackMode::PerPacket).then_some(due)
    }

    /// Next time of a key frame request without other feedback.
    fn key_request_due(&self) -> Option<Time> {
        let is_alone = self.config.feedback == FeedbackMode::KeyRequests;
        self.stream
            .want_key
            .filter(|_| is_alone && self.stream.media.ssrc.is_some())
    }

    fn is_silent(&self, now: Time) -> bool {
        let quiet = self.config.feedback_interval * 4;
        self.last_arrival.is_none_or(|last| now.since(last) > quiet)
    }

    /// Writes a compound packet: report blocks, CNAME, and feedback.
    //= rfc5506-4.2-regular
    fn write_report(&mut self, now: Time) {
        let mut out = Vec::with_capacity(256);
        let answer = |last: Option<(NtpShort, Time)>| {
            last.map_or_else(Default::default, |(sr, at)| {
                (sr, NtpShort::from_span(now.since(at)))
            })
        };
        let (last_sr, delay) = answer(self.stream.last_sr);
        let mut blocks = Vec::with_capacity(4);
        for source in [
            &mut self.stream.media,
            &mut self.stream.repair,
            &mut self.stream.parity,
        ] {
            let Some(ssrc) = source.ssrc else { continue };
            let numbers = source.stats.report();
            blocks.push(ReportBlock {
                ssrc,
                fraction_lost: numbers.fraction_lost,
                cumulative_lost: numbers.cumulative_lost,
                highest_sequence: source.unwrap.highest_in_report(),
                jitter: numbers.jitter,
                last_sr,
                delay_since_last_sr: delay,
            });
        }
        if let Some(newcomer) = self.newcomer {
            let (last_sr, delay_since_last_sr) = answer(Some(newcomer.last_sr));
            blocks.push(ReportBlock {
                ssrc: newcomer.ssrc,
                last_sr,
                delay_since_last_sr,
                ..ReportBlock::default()
            });
        }
        //= rfc3550-6.1-first
        rtcp::emit_receiver_report(self.config.ssrc, &blocks, &mut out);
        rtcp::emit_sdes(self.config.ssrc, &self.config.cname, &mut out);
        match self.config.feedback {
            FeedbackMode::PerPacket => self.write_feedback(now, &mut out),
            FeedbackMode::KeyRequests => self.write_key_request(now, &mut out),
            FeedbackMode::ReceiverReports => {}
        }
        self.outgoing.push_back(out);
    }

    //= rfc3550-6.3.7-bye
    fn write_goodbye(&mut self, now: Time) {
        self.presence = Presence::Left;
        //= rfc3550-6.3.7-silent
        if !self.has_sent {
            return;
        }
        self.write_report(now);
        if let Some(last) = self.outgoing.back_mut() {
            rtcp::emit_bye(&[self.config.ssrc], None, last);
        }
    }

    fn write_feedback(&mut self, now: Time, out: &mut Vec<u8>) {
        if self.sources().any(|source| source.arrivals.is_fresh()) {
            let mut builder = CcfbBuilder::new(self.config.ssrc, now, out);
            let overlap = self.config.feedback_interval * OVERLAP;
            for source in [
                &mut self.stream.media,
                &mut self.stream.repair,
                &mut self.stream.parity,
            ] {
                if let Some(ssrc) = source.ssrc
                    && let Some((begin, lines)) = source.arrivals.report(now, overlap)
                {
                    // A report is far below the limits of the format.
                    let _ = builder.block(ssrc, begin as u16, lines);
                }
            }
            builder.finish(self.config.epoch);
        }
        let missing = core::mem::take(&mut self.stream.missing);
        if let Some(ssrc) = self.stream.media.ssrc.filter(|_| !missing.is_empty()) {
            let missing = missing.iter().map(|&seq| seq as u16);
            rtcp::emit_nack(self.config.ssrc, ssrc, missing, out);
        }
        self.write_key_request(now, out);
        (self.feedback_due, self.feedback_sent) = (None, now);
    }

    fn write_key_request(&mut self, now: Time, out: &mut Vec<u8>) {
        if let (Some(since), Some(media)) = (self.stream.want_key, self.stream.media.ssrc) {
            if self.frames.is_intact() {
                self.stream.want_key = None;
            } else if since <= now {
                let sender = self.config.ssrc;
                rtcp::Pli { sender, media }.emit(out);
                self.stream.want_key = Some(now + KEY_RETRY);
            }
        }
    }

    /// Time of the next keep-alive report. While no media arrives, reports let the sender of an
    /// interrupted stream detect at once that the path is restored. Their interval grows, and they
    /// end after 30 s or a BYE.
    fn keep_alive(&self) -> Option<Time> {
        let last = self.last_arrival?;
        if self.stream.ended || self.config.feedback != FeedbackMode::PerPacket {
            return None;
        }
        let silence = self.feedback_sent.since(last);
        let wait = match silence.as_millis() {
            ..5_000 => self.config.feedback_interval,
            5_000..30_000 => KEEP_ALIVE_SLOW,
            _ => return None,
        };
        Some((last + self.config.feedback_interval * 4).max(self.feedback_sent + wait))
    }

    fn on_datagram(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) {
        if self.presence == Presence::Left {
            return;
        }
        if rtcp::is_rtcp(datagram.payload) {
            self.on_rtcp(cx.now, &datagram);
        } else {
            self.on_rtp(cx.now, &datagram);
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        match self.presence {
            Presence::Active => {}
            Presence::Leaving => return self.write_goodbye(now),
            Presence::Left => return,
        }
        if self.ends_at().is_some_and(|at| at <= now) {
            self.stream.ended = true;
        }
        if self.frames.on_timeout(now) {
            self.stream.want_key.get_or_insert(now);
            self.feedback_soon(now, Duration::ZERO);
        }
        let is_due = |due: Option<Time>| due.is_some_and(|at| at <= now);
        let requests_key = is_due(self.key_request_due());
        if requests_key && self.frames.is_intact() {
            self.stream.want_key = None;
        } else if requests_key {
            self.write_report(now);
        }
        let overlap = self.config.feedback_interval * OVERLAP;
        let own = self.config.ssrc;
        self.stream
            .probes
            .on_timeout(now, own, overlap, self.config.epoch);
        if is_due(self.nacks_due()) {
            self.stream
                .missing
                .extend(self.stream.nacks.take(now, &self.stream.media.arrivals));
        }
        if is_due(self.report_due) || is_due(self.keep_alive()) {
            self.write_report(now);
            self.feedback_sent = now;
            self.report_due = (!self.stream.ended).then(|| now + self.config.report_interval);
        } else if is_due(self.feedback_due) || !self.stream.missing.is_empty() {
            let mut out = Vec::with_capacity(256);
            self.write_feedback(now, &mut out);
            if !out.is_empty() {
                self.outgoing.push_back(out);
            }
        }
    }

    fn on_peer_change(&mut self, cx: &mut Context<'_>) {
        if self.stream.media.ssrc.is_some() {
            self.start_over();
            self.frames.forget_sets();
            // A new stream begins with a key frame; one that continues must be asked for it.
            self.stream.want_key = Some(cx.now + KEY_RETRY);
        }
    }

    fn next_timeout(&self) -> Option<(Time, TimerReason)> {
        match self.presence {
            Presence::Active => {}
            Presence::Leaving => return Some((Time::ZERO, TimerReason::Schedule)),
            Presence::Left => return None,
        }
        let assembly = self
            .frames
            .next_timeout()
            .map(|at| (at, TimerReason::Playout));
        let reports = [
            self.feedback_due,
            self.nacks_due(),
            self.key_request_due(),
            self.report_due,
            self.keep_alive(),
            self.stream.probes.due(),
        ];
        let feedback = reports.into_iter().flatten().min();
        let next = sooner(assembly, feedback.map(|at| (at, TimerReason::Feedback)));
        sooner(next, self.ends_at().map(|at| (at, TimerReason::Silence)))
    }
}

impl Endpoint for MediaReceiver {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Datagram(datagram) => self.on_datagram(cx, datagram),
            Input::PeerChanged => self.on_peer_change(cx),
            Input::PathChanged | Input::Stream(_) => {}
            Input::Timeout => self.on_timeout(cx),
        }
        Check::default()
    }

    fn poll(&mut self, _cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        if let Some(packet) = self.outgoing.pop_front() {
            self.has_sent = true;
            buffer.extend_from_slice(&packet);
            return Output::Send(Transmit::default());
        }
        if let Some(transmit) = self.stream.probes.poll_transmit(buffer) {
            return Output::Send(transmit);
        }
        let timer = self.next_timeout();
        if self.stream.ended || self.presence == Presence::Left {
            Output::Done(timer)
        } else {
            Output::Wait(timer)
        }
    }
}

/// Queue lengths of a receiver, and the number of restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLengths {
    /// Media packets of incomplete frames.
    pub packets: usize,
    /// Payload bytes of these packets, and of frames not yet fetched.
    pub bytes: usize,
    /// Arrivals kept for reports.
    pub arrivals: usize,
    /// Number of restarts for another stream.
    pub restarts: u64,
}

/// Membership of the receiver in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Active,
    /// The session is to be left; no BYE has been sent yet.
    Leaving,
    Left,
}

/// Receive state of one SSRC.
#[derive(Debug, Default)]
struct Source {
    ssrc: Option<u32>,
    unwrap: Unwrap16,
    arrivals: Arrivals,
    stats: ReceiverStats,
}

impl Source {
    fn is(&self, ssrc: u32) -> bool {
        self.ssrc == Some(ssrc)
    }

    /// Whether the stream has another SSRC than `ssrc`.
    fn is_other(&self, ssrc: u32) -> bool {
        self.ssrc.is_some_and(|own| own != ssrc)
    }
}

/// Minimum interval between feedback packets; also the smallest reordering window before a NACK.
const MIN_INTERVAL: Duration = Duration::from_millis(4);
/// Packets that prove H.265: the parameter sets of one key frame.
const H265_PACKETS: u64 = 3;
/// Number of regular reports that contain each arrival.
const OVERLAP: u32 = 4;
/// Interval between key frame requests: one round trip of an intercontinental path.
const KEY_RETRY: Duration = Duration::from_millis(300);
const KEEP_ALIVE_SLOW: Duration = Duration::from_millis(250);
