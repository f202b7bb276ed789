//! The receiving end of a session: RTP in, frames and RTCP out.

use core::time::Duration;
use std::collections::VecDeque;

use super::config::{FeedbackMode, ReceiverConfig};
use super::jitter_buffer::{JitterBuffer, MediaPacket, ReceivedFrame};
use super::receiver_stats::{Arrivals, ReceiverStats};
use super::slowdown_detector::SlowdownDetector;
use crate::control::{Cx, Why, sooner};
use crate::endpoint::{Datagram, Endpoint, Transmit};
use crate::media::MEDIA_CLOCK;
use crate::units::Time;
use crate::wire::ccfb::{CcfbBuilder, Received};
use crate::wire::ntp::NtpShort;
use crate::wire::payload;
use crate::wire::rtcp::{self, ReportBlock, Rtcp};
use crate::wire::rtp::RtpPacket;
use crate::wire::rtx::RtxPayload;
use crate::wire::seq::{Unwrap16, Unwrap32, nearest16};

/// Receives one stream and its retransmissions.
///
/// It knows nothing of rate control: it says when each packet came (RFC 8888), what is missing
/// and when it cannot decode (RFC 4585), and the statistics of RFC 3550.
#[derive(Debug)]
pub struct MediaReceiver {
    config: ReceiverConfig,
    media: Source,
    repair: Source,
    timestamps: Unwrap32,
    assembler: JitterBuffer,
    /// Middle of the last sender report's NTP time stamp, and when it came.
    last_sr: Option<(NtpShort, Time)>,
    last_arrival: Option<Time>,
    slowing: SlowdownDetector,
    feedback_due: Option<Time>,
    feedback_sent: Time,
    report_due: Option<Time>,
    /// Missing packets up to here were asked for.
    asked: u64,
    want_nack: bool,
    want_key: Option<Time>,
    outgoing: VecDeque<Vec<u8>>,
    ended: bool,
    /// Whether anything was ever said.
    spoke: bool,
    presence: Presence,
    rejected: u64,
    /// How often another sender took over.
    restarts: u64,
}

impl MediaReceiver {
    /// A receiver that waits for a stream.
    pub fn new(config: ReceiverConfig) -> Self {
        Self {
            assembler: JitterBuffer::new(payload::codec(config.payload_types.0), config.hold),
            config,
            media: Source::default(),
            repair: Source::default(),
            timestamps: Unwrap32::new(),
            last_sr: None,
            last_arrival: None,
            slowing: SlowdownDetector::default(),
            feedback_due: None,
            feedback_sent: Time::ZERO,
            report_due: None,
            asked: 0,
            want_nack: false,
            want_key: None,
            outgoing: VecDeque::new(),
            ended: false,
            spoke: false,
            presence: Presence::Here,
            rejected: 0,
            restarts: 0,
        }
    }

    /// The next frame in decoding order; those given up are among them, without data.
    pub fn poll_frame(&mut self) -> Option<ReceivedFrame> {
        self.assembler.poll()
    }

    /// Hands out what is left at the end of a run.
    pub fn finish(&mut self) {
        self.assembler.finish();
    }

    /// The decoder failed on a frame: asks for a key frame, and hands out no other until it comes.
    pub fn on_decoder_trouble(&mut self, now: Time) {
        self.assembler.break_chain();
        self.want_key.get_or_insert(now);
        self.feedback_soon(now, Duration::ZERO);
    }

    /// Statistics of the media stream so far: packets received and lost (RFC 3550 section A.3).
    pub fn counts(&self) -> (u64, i64) {
        (self.media.reception.received(), self.media.reception.lost())
    }

    /// Datagrams that were not believed.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// When the last media packet came.
    pub fn last_arrival(&self) -> Option<Time> {
        self.last_arrival
    }

    /// Whether the sender said goodbye.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Leaves: says goodbye behind a last report, if it has ever said anything, and nothing more.
    pub fn close(&mut self) {
        if self.presence == Presence::Here {
            self.presence = Presence::Leaving;
        }
    }

    /// How much is held, for those who check that it is bounded.
    pub(super) fn held(&self) -> Held {
        let (packets, bytes) = self.assembler.held();
        Held {
            packets,
            bytes,
            arrivals: self.media.arrivals.len() + self.repair.arrivals.len(),
            restarts: self.restarts,
        }
    }

    fn on_rtp(&mut self, now: Time, datagram: &Datagram<'_>) {
        let Ok(packet) = RtpPacket::new_checked(datagram.payload) else {
            self.rejected += 1;
            return;
        };
        let header = packet.header();
        let (media, repair) = self.config.payload_types;
        let repaired = header.payload_type == repair;
        if !repaired && header.payload_type != media {
            self.rejected += 1;
            return;
        }
        if !repaired && self.media.is_other(header.ssrc) && self.is_forsaken(now) {
            self.start_over();
        }
        let source = if repaired {
            &mut self.repair
        } else {
            &mut self.media
        };
        if source.is_other(header.ssrc) {
            self.rejected += 1;
            return;
        }
        source.ssrc = Some(header.ssrc);
        let received = Received {
            ecn: datagram.ecn,
            at: now,
        };
        let seq = source.unwrap.unwrap(header.sequence);
        let fresh = source.arrivals.on_packet(seq, received);
        let timestamp = self.timestamps.unwrap(header.timestamp);
        let ticks = u128::from(now.as_nanos()) * u128::from(MEDIA_CLOCK) / 1_000_000_000;
        source
            .reception
            .on_packet(seq, timestamp as i64, ticks as i64);
        self.last_arrival = Some(now);
        self.ended = false;
        self.report_due
            .get_or_insert(now + self.config.report_interval);
        self.plan_feedback(now, seq, repaired);
        if !repaired && fresh && self.slowing.on_packet(now, seq, timestamp) {
            self.feedback_soon(now, Duration::ZERO);
        }
        if !fresh {
            return;
        }
        let original = if repaired {
            self.original(packet.payload())
        } else {
            Some((seq, packet.payload()))
        };
        let Some((seq, payload)) = original else {
            return;
        };
        self.assembler.on_packet(
            now,
            &MediaPacket {
                seq,
                timestamp,
                marker: header.marker,
                repaired,
                payload,
            },
        );
    }

    /// The media packet within a retransmission; none if it is malformed, or of something older than
    /// all that is known of the media stream.
    fn original<'p>(&mut self, payload: &'p [u8]) -> Option<(u64, &'p [u8])> {
        let Ok(original) = RtxPayload::parse(payload) else {
            self.rejected += 1;
            return None;
        };
        let newest = self.media.unwrap.highest()?;
        let seq = nearest16(newest, original.original_sequence)?;
        Some((seq, original.payload))
    }

    /// Feedback goes out at regular times, and at once when a packet is missing.
    fn plan_feedback(&mut self, now: Time, seq: u64, repaired: bool) {
        let gap = !repaired && seq > self.asked + 1 && self.asked > 0;
        if !repaired {
            if gap
                && self
                    .media
                    .arrivals
                    .missing_since(self.asked)
                    .next()
                    .is_some()
            {
                self.want_nack = true;
            }
            if !self.want_nack {
                self.asked = self.asked.max(seq);
            }
        }
        let wait = if self.want_nack {
            EARLY
        } else {
            self.config.feedback_interval
        };
        self.feedback_soon(now, wait);
    }

    fn feedback_soon(&mut self, now: Time, wait: Duration) {
        if self.config.feedback == FeedbackMode::RrFallback {
            return;
        }
        let due = (now + wait).max(self.feedback_sent + EARLY);
        self.feedback_due = Some(self.feedback_due.map_or(due, |d| d.min(due)));
    }

    fn on_rtcp(&mut self, now: Time, datagram: &Datagram<'_>) {
        if rtcp::form(datagram.payload).is_err() {
            self.rejected += 1;
            return;
        }
        for packet in rtcp::packets(datagram.payload).flatten() {
            match packet {
                Rtcp::SenderReport(report) if self.media.is(report.info().ssrc) => {
                    self.last_sr = Some((report.info().ntp.middle(), now));
                    // While no media comes a sender report asks whether anybody is there.
                    if self.is_silent(now) {
                        self.report_due = Some(now);
                    }
                }
                Rtcp::SenderReport(report)
                    if self.media.ssrc.is_none() || self.is_forsaken(now) =>
                {
                    if self.media.ssrc.is_some() {
                        self.start_over();
                    }
                    self.last_sr = Some((report.info().ntp.middle(), now));
                    self.media.ssrc = Some(report.info().ssrc);
                    self.report_due = Some(now);
                }
                Rtcp::Bye(bye) if bye.ssrcs().any(|s| self.media.is(s)) => self.ended = true,
                _ => {}
            }
        }
    }

    /// Whether another sender may take the place of the one before: it said goodbye, or nothing
    /// came for a while, as after a restart.
    fn is_forsaken(&self, now: Time) -> bool {
        self.ended
            || self
                .last_arrival
                .is_none_or(|last| now.since(last) > TAKEOVER)
    }

    /// Another sender: its numbers have nothing to do with those of the one before.
    fn start_over(&mut self) {
        self.assembler.start_over();
        (self.media, self.repair) = Default::default();
        self.timestamps = Unwrap32::new();
        self.slowing = SlowdownDetector::default();
        (self.last_sr, self.want_key) = (None, None);
        (self.asked, self.want_nack) = (0, false);
        self.ended = false;
        self.restarts += 1;
    }

    fn is_silent(&self, now: Time) -> bool {
        let quiet = self.config.feedback_interval * 4;
        self.last_arrival.is_none_or(|last| now.since(last) > quiet)
    }

    /// A compound packet: report blocks, the name, and the feedback.
    //= rfc5506-4.2-regular
    fn write_report(&mut self, now: Time) {
        let mut out = Vec::with_capacity(256);
        let (last_sr, delay) = self.last_sr.map_or_else(Default::default, |(sr, at)| {
            (sr, NtpShort::from_span(now.since(at)))
        });
        let mut blocks = Vec::with_capacity(2);
        for source in [&mut self.media, &mut self.repair] {
            let Some(ssrc) = source.ssrc else { continue };
            let numbers = source.reception.report();
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
        //= rfc3550-6.1-first
        rtcp::emit_receiver_report(self.config.ssrc, &blocks, &mut out);
        rtcp::emit_sdes(self.config.ssrc, &self.config.cname, &mut out);
        if self.config.feedback == FeedbackMode::PerPacket {
            self.write_feedback(now, &mut out);
        }
        self.outgoing.push_back(out);
    }

    //= rfc3550-6.3.7-bye
    fn write_goodbye(&mut self, now: Time) {
        self.presence = Presence::Gone;
        //= rfc3550-6.3.7-silent
        if !self.spoke {
            return;
        }
        self.write_report(now);
        if let Some(last) = self.outgoing.back_mut() {
            rtcp::emit_bye(&[self.config.ssrc], None, last);
        }
    }

    fn write_feedback(&mut self, now: Time, out: &mut Vec<u8>) {
        if self.media.arrivals.is_fresh() || self.repair.arrivals.is_fresh() {
            let mut builder = CcfbBuilder::new(self.config.ssrc, now, out);
            let overlap = self.config.feedback_interval * OVERLAP;
            for source in [&mut self.media, &mut self.repair] {
                if let Some(ssrc) = source.ssrc
                    && let Some((begin, lines)) = source.arrivals.report(now, overlap)
                {
                    // A report is bounded far below the limits of the format.
                    let _ = builder.block(ssrc, begin as u16, lines);
                }
            }
            builder.finish(self.config.epoch);
        }
        if core::mem::take(&mut self.want_nack)
            && let Some(ssrc) = self.media.ssrc
        {
            let missing = self.media.arrivals.missing_since(self.asked);
            let missing: Vec<u16> = missing.take(MAX_NACKS).map(|s| s as u16).collect();
            self.asked = self.media.unwrap.highest().unwrap_or(0);
            if !missing.is_empty() {
                rtcp::emit_nack(self.config.ssrc, ssrc, missing, out);
            }
        }
        if let (Some(since), Some(media)) = (self.want_key, self.media.ssrc) {
            if self.assembler.is_intact() {
                self.want_key = None;
            } else if since <= now {
                let sender = self.config.ssrc;
                rtcp::Pli { sender, media }.emit(out);
                self.want_key = Some(now + KEY_RETRY);
            }
        }
        (self.feedback_due, self.feedback_sent) = (None, now);
    }

    /// While media is silent, reports go out as beacons, so that the sender of a stream that
    /// was cut off hears at once that the path is back; ever more rarely, and not after a goodbye.
    fn beacon(&self) -> Option<Time> {
        let last = self.last_arrival?;
        if self.ended || self.config.feedback == FeedbackMode::RrFallback {
            return None;
        }
        let silence = self.feedback_sent.since(last);
        let wait = match silence.as_millis() {
            ..5_000 => self.config.feedback_interval,
            5_000..30_000 => BEACON_SLOW,
            _ => return None,
        };
        Some((last + self.config.feedback_interval * 4).max(self.feedback_sent + wait))
    }
}

impl Endpoint for MediaReceiver {
    fn on_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if self.presence == Presence::Gone {
            return;
        }
        if rtcp::is_rtcp(datagram.payload) {
            self.on_rtcp(cx.now, &datagram);
        } else {
            self.on_rtp(cx.now, &datagram);
        }
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        match self.presence {
            Presence::Here => {}
            Presence::Leaving => return self.write_goodbye(now),
            Presence::Gone => return,
        }
        if self.assembler.on_timeout(now) {
            self.want_key.get_or_insert(now);
            self.feedback_soon(now, Duration::ZERO);
        }
        let is_due = |due: Option<Time>| due.is_some_and(|at| at <= now);
        if is_due(self.report_due) || is_due(self.beacon()) {
            self.write_report(now);
            self.feedback_sent = now;
            self.report_due = (!self.ended).then(|| now + self.config.report_interval);
        } else if is_due(self.feedback_due) {
            let mut out = Vec::with_capacity(256);
            self.write_feedback(now, &mut out);
            if !out.is_empty() {
                self.outgoing.push_back(out);
            }
        }
    }

    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let packet = self.outgoing.pop_front()?;
        self.spoke = true;
        buffer.extend_from_slice(&packet);
        Some(Transmit::default())
    }

    fn next_timeout(&self) -> Option<(Time, Why)> {
        match self.presence {
            Presence::Here => {}
            Presence::Leaving => return Some((Time::ZERO, Why::Schedule)),
            Presence::Gone => return None,
        }
        let assembly = self.assembler.next_timeout().map(|at| (at, Why::Playout));
        let reports = [self.feedback_due, self.report_due, self.beacon()];
        let feedback = reports.into_iter().flatten().min();
        sooner(assembly, feedback.map(|at| (at, Why::Feedback)))
    }

    fn is_done(&self) -> bool {
        (self.ended || self.presence == Presence::Gone) && self.outgoing.is_empty()
    }
}

/// Lengths of all queues of a receiver, and which of its senders filled them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// Media packets that wait for their frames.
    pub(super) packets: usize,
    /// Their payloads, and frames that wait for a reader.
    pub(super) bytes: usize,
    /// Arrivals kept for reports.
    pub(super) arrivals: usize,
    /// How often another sender took over.
    pub(super) restarts: u64,
}

/// Whether a receiver takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Here,
    /// It is asked to go, and has not said goodbye.
    Leaving,
    Gone,
}

/// One SSRC that is received.
#[derive(Debug, Default)]
struct Source {
    ssrc: Option<u32>,
    unwrap: Unwrap16,
    arrivals: Arrivals,
    reception: ReceiverStats,
}

impl Source {
    fn is(&self, ssrc: u32) -> bool {
        self.ssrc == Some(ssrc)
    }

    /// Whether it belongs to somebody else than `ssrc`. The first one wins.
    fn is_other(&self, ssrc: u32) -> bool {
        self.ssrc.is_some_and(|own| own != ssrc)
    }
}

/// Feedback packets are at least this far apart; reordering by less costs no request.
const EARLY: Duration = Duration::from_millis(4);
/// Each arrival is told in this many regular reports.
const OVERLAP: u32 = 4;
/// One NACK packet of at most 64 entries.
const MAX_NACKS: usize = 64;
/// A request for a key frame is repeated after a round trip of an intercontinental path.
const KEY_RETRY: Duration = Duration::from_millis(300);
const BEACON_SLOW: Duration = Duration::from_millis(250);
/// Silence after which another SSRC is believed.
const TAKEOVER: Duration = Duration::from_secs(2);
