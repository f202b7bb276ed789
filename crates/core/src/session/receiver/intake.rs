//! Acceptance of RTP and RTCP packets: source validation, sequence and timestamp jumps, takeovers.

use core::time::Duration;

use super::probation::LastPacket;
use super::{MediaReceiver, Source, StreamState};
use crate::endpoint::{Datagram, OVERHEAD};
use crate::media::{Codec, MEDIA_CLOCK};
use crate::session::config::FeedbackMode;
use crate::session::history::Stream;
use crate::session::jitter_buffer::MediaPacket;
use crate::session::parity::Restored;
use crate::session::pauses::TAKEOVER;
use crate::units::{Bytes, Time};
use crate::wire::ccfb::Received;
use crate::wire::ntp::NtpShort;
use crate::wire::parity::{MediaShard, Parity};
use crate::wire::payload;
use crate::wire::rtcp::{self, Rtcp};
use crate::wire::rtp::{RtpHeader, RtpPacket};
use crate::wire::rtx::RtxPayload;
use crate::wire::seq::nearest16;

/// A source that has announced itself by a sender report while it may take over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer {
    pub(super) ssrc: u32,
    /// Middle 32 bits of the NTP timestamp of its last sender report, and its arrival time.
    pub(super) last_sr: (NtpShort, Time),
}

impl MediaReceiver {
    pub(super) fn on_rtp(&mut self, now: Time, datagram: &Datagram<'_>) {
        let Ok(packet) = RtpPacket::new_checked(datagram.payload) else {
            self.rejected += 1;
            return;
        };
        let (media, repair) = self.config.payload_types;
        match packet.header().payload_type {
            pt if pt == media => self.on_media(now, datagram, &packet),
            pt if pt == repair => self.on_repair(now, datagram, &packet),
            pt if Some(pt) == self.config.parity_type => self.on_parity(now, datagram, &packet),
            pt if Some(pt) == self.config.probe_type => self.on_probe(now, datagram, &packet),
            _ => self.rejected += 1,
        }
    }

    fn on_media(&mut self, now: Time, datagram: &Datagram<'_>, packet: &RtpPacket<'_>) {
        let header = packet.header();
        let is_current = self.stream.media.is(header.ssrc);
        if is_current && self.continues(now, &header) {
            return self.accept_media(now, datagram, packet);
        }
        let may_replace = is_current || self.may_take_over(now, header.ssrc);
        self.rejected += u64::from(!may_replace);
        // A jump of the current source follows its own packets.
        let current = self.last_arrival.filter(|_| !is_current);
        let evidence = self
            .probation
            .hold(now, &header, datagram, !may_replace, current);
        let is_announced = self.newcomer.is_some_and(|n| n.ssrc == header.ssrc) && !is_current;
        let is_successor = if is_current {
            let silence = self.last_arrival.map(|last| now.since(last));
            silence >= Some(JUMP) || self.skips_ahead(now, &header, MAX_DROPOUT)
        } else {
            may_replace || self.stream.pauses.is_followed_by(evidence.began, now)
        };
        if !is_successor || !(evidence.is_proven || is_announced) {
            return;
        }
        let held = self.probation.take(header.ssrc);
        if !is_current {
            self.take_over(now, header.ssrc);
        } else if !self.skips_ahead(now, &header, i16::MAX) {
            self.start_over();
            self.stream.media.ssrc = Some(header.ssrc);
        }
        for packet in held {
            self.rejected -= u64::from(packet.is_rejected);
            let datagram = Datagram {
                ecn: packet.ecn,
                dscp: 0,
                payload: &packet.datagram,
            };
            if let Ok(parsed) = RtpPacket::new_checked(datagram.payload) {
                self.accept_media(packet.at, &datagram, &parsed);
            }
        }
    }

    /// Whether a packet of the current source is near the ones before it.
    //= rfc3550-A.1-probation
    fn continues(&self, now: Time, header: &RtpHeader) -> bool {
        self.stream.last_media.is_none_or(|last| {
            (-MAX_DROPOUT..last.most_ahead(now)).contains(&last.ahead(header.sequence))
                && last.is_in_order(header)
                && last.is_timestamp_near(now, header.timestamp)
        })
    }

    /// Whether a confirmed jump skips up to `most` packets of the same stream, as after an outage, instead
    /// of starting another one.
    fn skips_ahead(&self, now: Time, header: &RtpHeader, most: i16) -> bool {
        self.stream.last_media.is_some_and(|last| {
            (1..=most).contains(&last.ahead(header.sequence))
                && last.is_timestamp_near(now, header.timestamp)
        })
    }

    fn accept_media(&mut self, now: Time, datagram: &Datagram<'_>, packet: &RtpPacket<'_>) {
        let header = packet.header();
        let seq = self.stream.media.unwrap.unwrap(header.sequence);
        let Some(timestamp) = self.on_arrival(now, datagram, &header, seq, Stream::Media) else {
            return;
        };
        self.last_arrival = Some(now);
        self.stream.pauses.on_packet(now);
        let last = self.stream.last_media;
        self.stream.last_media = Some(match last {
            Some(last) if last.ahead(header.sequence) <= 0 => last,
            Some(last) => last.next(now, &header),
            None => LastPacket::new(now, &header),
        });
        if self
            .stream
            .bye
            .is_some_and(|bye| now.since(bye) > REORDERED_BYE)
        {
            (self.stream.bye, self.stream.ended) = (None, false);
        }
        if self.stream.slowdown.on_packet(now, seq, timestamp) {
            self.feedback_soon(now, Duration::ZERO);
        }
        self.assemble(
            now,
            &MediaPacket {
                seq,
                timestamp,
                marker: header.marker,
                repaired: false,
                payload: packet.payload(),
            },
        );
        let media = MediaShard {
            marker: header.marker,
            timestamp: header.timestamp,
            payload: packet.payload(),
        };
        let restored = self.stream.decoder.on_media(now, seq, media);
        self.assemble_restored(now, &restored);
    }

    /// A parity packet. Each one is reported; only one that protects packets near the newest one is
    /// used. Its SSRC is that of the first one, until it is silent.
    fn on_parity(&mut self, now: Time, datagram: &Datagram<'_>, packet: &RtpPacket<'_>) {
        let header = packet.header();
        let Ok(parity) = Parity::parse(packet.payload()) else {
            self.rejected += 1;
            return;
        };
        let newest = self.stream.media.unwrap.highest();
        let first = newest.and_then(|newest| nearest16(newest, parity.block.first));
        let is_near = |first: &u64| newest.is_some_and(|newest| first.abs_diff(newest) < NEAR);
        let Some(first) = first.filter(is_near) else {
            self.rejected += 1;
            return;
        };
        if self.stream.parity.is_other(header.ssrc) {
            if self.stream.decoder.is_active(now) {
                self.rejected += 1;
                return;
            }
            self.stream.parity = Source::default();
        }
        self.stream.parity.ssrc = Some(header.ssrc);
        let own = self.stream.parity.unwrap.unwrap(header.sequence);
        let arrived = self.on_arrival(now, datagram, &header, own, Stream::Parity);
        if arrived.is_some() {
            let restored = self.stream.decoder.on_parity(now, first, parity);
            self.assemble_restored(now, &restored);
        }
    }

    /// A probe of the sender. Only a receiver that reports on each packet answers.
    fn on_probe(&mut self, now: Time, datagram: &Datagram<'_>, packet: &RtpPacket<'_>) {
        let interval = self.config.feedback_interval;
        let is_answered =
            self.config.feedback == FeedbackMode::PerPacket && self.stream.media.ssrc.is_some();
        if !is_answered
            || !self
                .stream
                .probes
                .on_packet(now, packet, datagram, interval)
        {
            self.rejected += 1;
        }
    }

    fn assemble_restored(&mut self, now: Time, restored: &[Restored]) {
        for packet in restored {
            let Some(media) = MediaShard::parse(&packet.shard) else {
                self.rejected += 1;
                continue;
            };
            let is_near = self
                .stream
                .last_media
                .is_some_and(|last| last.is_timestamp_near(now, media.timestamp));
            if !is_near || self.stream.media.arrivals.has(packet.seq) {
                continue;
            }
            self.restored += 1;
            let packet = MediaPacket {
                seq: packet.seq,
                timestamp: self.stream.timestamps.peek(media.timestamp),
                marker: media.marker,
                repaired: true,
                payload: media.payload,
            };
            self.assemble(now, &packet);
        }
    }

    /// A retransmission. Each one is reported, but only one of a missing packet near the stream is
    /// used, and only such a one may change the SSRC of retransmissions.
    fn on_repair(&mut self, now: Time, datagram: &Datagram<'_>, packet: &RtpPacket<'_>) {
        let header = packet.header();
        let Some((seq, payload)) = self.original(packet) else {
            self.rejected += 1;
            return;
        };
        let is_near = self
            .stream
            .last_media
            .is_some_and(|last| last.is_timestamp_near(now, header.timestamp));
        let is_useful = is_near && !self.stream.media.arrivals.has(seq);
        if self.stream.repair.is_other(header.ssrc) {
            if !is_useful {
                self.rejected += 1;
                return;
            }
            self.stream.repair = Source::default();
        }
        self.stream.repair.ssrc = Some(header.ssrc);
        let own = self.stream.repair.unwrap.unwrap(header.sequence);
        let arrived = self.on_arrival(now, datagram, &header, own, Stream::Repair);
        let Some(timestamp) = arrived.filter(|_| is_useful) else {
            return;
        };
        self.last_arrival = Some(now);
        let repair = MediaPacket {
            seq,
            timestamp,
            marker: header.marker,
            repaired: true,
            payload,
        };
        self.assemble(now, &repair);
    }

    /// Sequence number and payload of the original packet in a retransmission.
    fn original<'p>(&self, packet: &RtpPacket<'p>) -> Option<(u64, &'p [u8])> {
        let original = RtxPayload::parse(packet.payload()).ok()?;
        let newest = self.stream.media.unwrap.highest()?;
        Some((
            nearest16(newest, original.original_sequence)?,
            original.payload,
        ))
    }

    /// Counts a packet and schedules feedback. Returns its unwrapped timestamp, or `None` for a
    /// duplicate.
    fn on_arrival(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        header: &RtpHeader,
        seq: u64,
        stream: Stream,
    ) -> Option<u64> {
        let is_media = stream == Stream::Media;
        let source = match stream {
            Stream::Repair => &mut self.stream.repair,
            Stream::Parity => &mut self.stream.parity,
            _ => &mut self.stream.media,
        };
        let size = Bytes(datagram.payload.len() as u64) + OVERHEAD;
        self.received.add(now, size);
        let ecn = datagram.ecn;
        let fresh = source.arrivals.on_packet(seq, Received { ecn, at: now });
        let timestamp = if is_media {
            self.stream.timestamps.unwrap(header.timestamp)
        } else {
            self.stream.timestamps.peek(header.timestamp)
        };
        let ticks = u128::from(now.as_nanos()) * u128::from(MEDIA_CLOCK) / 1_000_000_000;
        source.stats.on_packet(seq, timestamp as i64, ticks as i64);
        self.report_due
            .get_or_insert(now + self.config.report_interval);
        if is_media && fresh {
            self.stream
                .nacks
                .on_packet(now, seq, &self.stream.media.arrivals);
        }
        self.feedback_soon(now, self.config.feedback_interval);
        fresh.then_some(timestamp)
    }

    /// Passes a packet to the jitter buffer. Requests a key frame if packets arrive and no frame is
    /// decodable, and restarts the buffer if it refuses all packets.
    fn assemble(&mut self, now: Time, packet: &MediaPacket<'_>) {
        let accepted = self.frames.on_packet(now, packet);
        if accepted {
            self.stream.refused_since = None;
        } else if now.since(*self.stream.refused_since.get_or_insert(now)) >= REFUSAL {
            self.stream.refused_since = None;
            self.frames.start_over();
            self.restarts += 1;
        }
        if self.frames.is_intact() {
            (self.stream.undecodable_since, self.h265) = (None, 0);
        } else {
            let is_h264 = payload::codec(self.config.payload_types.0) == Codec::H264;
            self.h265 += u64::from(is_h264 && payload::is_h265(packet.payload));
            let since = *self.stream.undecodable_since.get_or_insert(now);
            if now.since(since) >= KEY_PATIENCE && self.stream.want_key.is_none() {
                self.stream.want_key = Some(now);
                self.feedback_soon(now, Duration::ZERO);
            }
        }
    }

    pub(super) fn on_rtcp(&mut self, now: Time, datagram: &Datagram<'_>) {
        if rtcp::form(datagram.payload).is_err() {
            self.rejected += 1;
            return;
        }
        for packet in rtcp::packets(datagram.payload).flatten() {
            match packet {
                Rtcp::SenderReport(report) => {
                    let info = report.info();
                    self.on_sender_report(now, info.ssrc, info.ntp.middle());
                }
                Rtcp::Bye(bye) if bye.ssrcs().any(|s| self.stream.media.is(s)) => {
                    self.stream.bye.get_or_insert(now);
                }
                _ => {}
            }
        }
    }

    fn on_sender_report(&mut self, now: Time, ssrc: u32, timestamp: NtpShort) {
        if self.stream.media.is(ssrc) {
            let last = self.stream.last_sr.replace((timestamp, now));
            let is_next = last.is_some_and(|(_, at)| self.last_arrival < Some(at));
            // While no media arrives, a sender report is a probe that needs an answer. So is one that
            // follows another one without media in between, as on a path that is not proven yet.
            if is_next || self.is_silent(now) {
                self.report_due = Some(now);
            }
        } else if self.may_take_over(now, ssrc) {
            let last_sr = (timestamp, now);
            self.newcomer = Some(Newcomer { ssrc, last_sr });
            self.report_due = Some(now);
        }
    }

    /// Whether `ssrc` may replace the current source: there is none, it has sent a BYE, it has been
    /// silent for [`TAKEOVER`], as after a restart, or `ssrc` was replaced after a silence and is
    /// back.
    fn may_take_over(&self, now: Time, ssrc: u32) -> bool {
        let is_free =
            self.stream.media.ssrc.is_none() || self.stream.bye.is_some() || self.stream.ended;
        let is_silent = self
            .last_arrival
            .is_none_or(|last| now.since(last) > TAKEOVER);
        is_free || is_silent || self.displaced == Some(ssrc)
    }

    fn take_over(&mut self, now: Time, ssrc: u32) {
        let displaced = match self.displaced {
            Some(displaced) if displaced == ssrc => None,
            // The first of several displaced sources keeps its precedence.
            Some(displaced) => Some(displaced),
            None => self.stream.media.ssrc,
        };
        // A BYE that has not taken effect may be forged.
        self.displaced = displaced.filter(|_| !self.stream.ended);
        self.start_over();
        self.frames.forget_sets();
        self.stream.media.ssrc = Some(ssrc);
        let announced = self.newcomer.take().filter(|n| n.ssrc == ssrc);
        self.stream.last_sr = announced.map(|n| n.last_sr);
        self.report_due
            .get_or_insert(now + self.config.report_interval);
    }

    /// Resets the state for another stream, whose sequence numbers and timestamps are unrelated.
    pub(super) fn start_over(&mut self) {
        if self.stream.last_media.is_some() {
            self.restarts += 1;
        }
        self.earlier = self.counts();
        self.frames.start_over();
        self.stream = StreamState::default();
    }

    /// Time at which a BYE ends the session, unless media continues to arrive.
    pub(super) fn ends_at(&self) -> Option<Time> {
        self.stream
            .bye
            .filter(|_| !self.stream.ended)
            .map(|bye| bye + BYE_DELAY)
    }
}

/// RFC 3550 appendix A.1: maximum gap of sequence numbers within a stream.
const MAX_DROPOUT: i16 = 3_000;
/// Silence of the present numbers after which others of the same source are followed: three frames at 30
/// frames per second.
const JUMP: Duration = Duration::from_millis(100);
/// Distance of a block of parity packets from the newest media packet: more than the packets of a
/// round trip after which a block is of use.
const NEAR: u64 = 1_024;
/// Time without a decodable frame after which a key frame is requested: more than the transmission
/// of a key frame takes, and less than half of the second in which a stream must be back.
const KEY_PATIENCE: Duration = Duration::from_millis(400);
/// Time for which all packets precede the newest frame. More than any reordering.
const REFUSAL: Duration = Duration::from_millis(500);
/// Media that arrives after a BYE by more than its reordering, and before this time, disproves it.
const BYE_DELAY: Duration = Duration::from_millis(500);
const REORDERED_BYE: Duration = Duration::from_millis(200);
