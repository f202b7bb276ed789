//! Packet transmission: retransmissions first, then frames in order, paced.

use core::time::Duration;

use super::frames::OutFrame;
use super::{MediaSender, Peer, Phase};
use crate::control::{Context, Ecn, Kind, Spacing};
use crate::endpoint::{OVERHEAD, Transmit};
use crate::random::unit;
use crate::session::history::{Content, Stream};
use crate::session::jitter_buffer::LATE_REPAIR;
use crate::session::parity::ParityPacket;
use crate::trace::{DropCause, Event, KeyCause};
use crate::units::{Bytes, Rate, Time};
use crate::wire::parity::MediaShard;
use crate::wire::rtp::{PayloadType, RtpHeader};
use crate::wire::rtx::RtxPayload;
use crate::wire::sdp::TRANSPORT_SEQUENCE_ID;

impl MediaSender {
    /// Appends the next datagram to the empty `buffer`.
    pub(super) fn next_packet(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some(packet) = self.outgoing.pop_front() {
            buffer.extend_from_slice(&packet);
            return Some(Transmit::default());
        }
        self.write_data(cx, buffer)
            .or_else(|| self.write_probe(cx, buffer))
    }

    /// Writes the next packet of the stream, if it is due.
    fn write_data(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if self.phase != Phase::Open || !self.pacer.is_open(cx.now) {
            return None;
        }
        let (stream, kind, content, parity) = self.write_next(cx, buffer)?;
        let size = Bytes(buffer.len() as u64) + OVERHEAD;
        // A peer that does not report CE marks prevents a reaction to them (RFC 6679 section
        // 7.2.1).
        let reports_ecn = matches!(self.peer, Peer::Unknown | Peer::PerPacket { ecn: true });
        let ecn = if self.config.ecn && reports_ecn {
            Ecn::Ect0
        } else {
            Ecn::NotEct
        };
        let seq = match stream {
            Stream::Repair => &mut self.repair_seq,
            Stream::Parity => &mut self.protection.seq,
            _ => &mut self.media_seq,
        };
        let wire_seq = core::mem::replace(seq, *seq + 1);
        let kinds = (kind, ecn);
        let mut sent = self
            .history
            .on_sent(cx.now, stream, wire_seq, size, kinds, content);
        if let Some(packet) = parity {
            self.protection.on_sent(&packet, sent.seq);
        }
        sent.app_limited = !self.has_packets();
        self.control.on_sent(cx, &sent);
        let mut pace = self.pace();
        if self.target().spacing == Spacing::Dithered {
            pace = Rate::from_f64(pace.as_f64() / (0.5 + unit(cx.rng)));
        }
        self.pacer.on_sent(cx.now, size, pace);
        self.breaker.on_sent(cx.now, size);
        if stream == Stream::Media {
            let second = self.target().media * Duration::from_secs(1);
            self.repair_budget.on_media(size, second);
        }
        self.first_media.get_or_insert(cx.now);
        self.last_media = cx.now;
        self.counts.packets = self.counts.packets.wrapping_add(1);
        self.counts.octets = self
            .counts
            .octets
            .wrapping_add(buffer.len() as u32 - RtpHeader::LEN as u32);
        Some(Transmit { ecn, dscp: 0 })
    }

    /// Writes the next packet: a retransmission, a parity packet or a media packet.
    fn write_next(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Option<(Stream, Kind, Option<Content>, Option<ParityPacket>)> {
        if let Some(content) = self.write_repair(cx, buffer) {
            return Some((Stream::Repair, Kind::Repair, Some(content), None));
        }
        if let Some(parity) = self.write_parity(cx.now, buffer) {
            return Some((Stream::Parity, Kind::Parity, None, Some(parity)));
        }
        let content = self.write_media(cx, buffer)?;
        Some((Stream::Media, Kind::Media, Some(content), None))
    }

    fn write_parity(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<ParityPacket> {
        let parity = self.protection.next()?;
        let streams = self.config.streams;
        let header = RtpHeader {
            payload_type: streams.parity_type,
            sequence: self.protection.seq as u16,
            timestamp: self.timestamp(now),
            ssrc: streams.parity_ssrc,
            marker: false,
        };
        emit(header, self.history.next_transport(), buffer);
        parity.emit(buffer);
        Some(parity)
    }

    fn write_repair(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Option<Content> {
        while let Some(content) = self.repairs.pop_front() {
            // It was reordered, and not lost.
            if self.history.has_arrived(content.media_seq as u16) {
                continue;
            }
            let (now, pause) = (cx.now, self.path.srtt());
            let Some(frame) = self.frames.sent_mut(content.frame) else {
                continue;
            };
            let (captured, size) = (frame.row.captured, frame.size_of(content.fragment));
            if self.is_late(now, captured, size) && !self.is_worth_repairing(now, captured) {
                self.chain.break_at(content.frame, KeyCause::Repair);
                continue;
            }
            let streams = self.config.streams;
            let sequence = self.repair_seq as u16;
            let transport = self.history.next_transport();
            let Some(frame) = self.frames.sent_mut(content.frame) else {
                continue;
            };
            if !frame.may_repair(content.fragment, now, pause) {
                continue;
            }
            if !self.repair_budget.spend(size) {
                // Without feedback per packet, the request is no proof of a loss.
                if self.peer.is_per_packet() {
                    self.chain.break_at(content.frame, KeyCause::Repair);
                }
                continue;
            }
            frame.on_repair(content.fragment, now);
            let last = frame.is_last(content.fragment);
            let header = header(
                frame,
                streams.repair_ssrc,
                streams.repair_type,
                sequence,
                last,
            );
            emit(header, transport, buffer);
            let original_sequence = content.media_seq as u16;
            let payload = frame.payload(content.fragment);
            RtxPayload {
                original_sequence,
                payload,
            }
            .emit(buffer);
            let seq = content.media_seq;
            cx.trace.record(now, Event::Retransmitted { seq });
            return Some(content);
        }
        None
    }

    /// Whether to retransmit a packet that is too late for its own frame, for the sake of its
    /// dependents: they can still be displayed in time, and a few packets arrive sooner than a key
    /// frame.
    fn is_worth_repairing(&self, now: Time, captured: Time) -> bool {
        let bound = self.config.delay_bound.unwrap_or(LATE_REPAIR);
        let rate = self.target().media.max(self.config.rates.0);
        let key_frame = rate * (self.config.frame_rate.interval() * KEY_SHARES);
        let lost = self
            .config
            .packet_size
            .scale(self.repairs.len() as u64 + 1, 1);
        now < captured + bound + LATE_REPAIR && lost <= key_frame
    }

    fn write_media(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Option<Content> {
        self.drop_hopeless(cx);
        let front = self.frames.front()?;
        let streams = self.config.streams;
        let (sequence, last) = (self.media_seq as u16, front.next_is_last());
        let header = header(
            front,
            streams.media_ssrc,
            streams.media_type,
            sequence,
            last,
        );
        emit(header, self.history.next_transport(), buffer);
        let start = buffer.len();
        let (row, fragment) = self.frames.take_next(cx.now, buffer)?;
        let media = MediaShard {
            marker: last,
            timestamp: header.timestamp,
            payload: buffer.get(start..).unwrap_or_default(),
        };
        self.protect(cx, media);
        if row.left.is_some() {
            if row.key {
                self.last_key_left = row.left;
            }
            self.log(row);
        }
        Some(Content {
            frame: row.frame,
            fragment,
            media_seq: self.media_seq,
        })
    }

    /// Drops waiting frames that cannot be in time, and their dependents.
    pub(super) fn drop_hopeless(&mut self, cx: &mut Context<'_>) {
        while let Some(front) = self.frames.front() {
            let row = front.row;
            let bound = self.probe_frame != Some(row.frame);
            let cause = if bound && self.is_late(cx.now, row.captured, front.left()) {
                DropCause::Late
            } else if !row.key && self.chain.is_orphan(row.frame) {
                DropCause::Reference
            } else {
                return;
            };
            self.frames.drop_front();
            let frame = row.frame;
            cx.trace
                .record(cx.now, Event::FrameDropped { frame, cause });
            self.log(super::SentFrame {
                dropped: Some(cause),
                ..row
            });
            self.chain.break_at(frame, KeyCause::Repair);
        }
    }
}

fn header(
    frame: &OutFrame,
    ssrc: u32,
    payload_type: PayloadType,
    sequence: u16,
    marker: bool,
) -> RtpHeader {
    RtpHeader {
        payload_type,
        sequence,
        timestamp: frame.row.timestamp,
        ssrc,
        marker,
    }
}

/// Writes the header, with the transport-wide sequence number if there is one.
fn emit(header: RtpHeader, transport: Option<u16>, buffer: &mut Vec<u8>) {
    match transport {
        Some(sequence) => {
            header.emit_with_element(TRANSPORT_SEQUENCE_ID, sequence.to_be_bytes(), buffer);
        }
        None => header.emit(buffer),
    }
}

/// Minimum size of a key frame, in frame budgets.
const KEY_SHARES: u32 = 3;
