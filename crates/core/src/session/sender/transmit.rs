//! The way of a frame: capture, encoder, and packets in the order retransmissions, parity, media.

use super::MediaSender;
use super::schedule::Candidate;
use super::status::Phase;
use super::wire::{Departure, Outlook};
use crate::control::Context;
use crate::endpoint::{OVERHEAD, Transmit};
use crate::media::{EncodeError, Encoded, FrameOrder};
use crate::session::history::{Content, Stream};
use crate::session::parity::ParityPacket;
use crate::trace::{DropCause, Event, KeyCause};
use crate::units::{Bytes, Time};
use crate::wire::parity::MediaShard;

impl MediaSender {
    /// The next frame to encode, if one is due and the encoder is free.
    pub fn poll_order(&mut self, cx: &mut Context<'_>) -> Option<FrameOrder> {
        if self.phase != Phase::Open || self.schedule.capture.is_busy() {
            return None;
        }
        self.schedule.capture.advance(cx.now);
        self.expire_captures(cx);
        if !self.packetiser.is_empty() {
            let outlook = self.outlook(cx.now);
            self.drop_hopeless(cx, &outlook);
        }
        while let Some((frame, captured)) = self.schedule.capture.front() {
            let is_queued = !self.packetiser.is_empty();
            if self.schedule.is_held(cx.now, captured, is_queued) {
                return None;
            }
            if self.schedule.is_passed_over(cx.now, captured) {
                self.skip(cx, frame, captured);
                continue;
            }
            self.replan(cx);
            let can_request = self.wire.peer.is_per_packet();
            let next = Candidate {
                frame,
                captured,
                key: self.schedule.key_cause(frame, can_request),
                is_probe_due: !is_queued && self.wire.is_idle(cx.now),
                ahead: self.packetiser.backlog(),
            };
            let Some(order) = self.schedule.order(next, &self.outlook(cx.now)) else {
                self.skip(cx, frame, captured);
                continue;
            };
            if let Some(cause) = next.key {
                cx.trace
                    .record(cx.now, Event::KeyFrameOrdered { frame, cause });
            }
            return Some(order);
        }
        None
    }

    /// Updates the plan of the delay bound before a frame is ordered.
    fn replan(&mut self, cx: &mut Context<'_>) {
        let parity = self.protection.is_parity_wanted(&self.wire);
        let backlog = self.packetiser.backlog() + self.schedule.backlog();
        let encoder = self.schedule.capture.lag();
        if let Some(budget) = self.wire.replan(cx, backlog, encoder, parity) {
            self.protection.block = budget.block;
        }
    }

    /// Result of the encoder for the open order.
    pub fn on_encoded(&mut self, now: Time, result: Result<Encoded, EncodeError>) {
        let Self {
            schedule,
            packetiser,
            ..
        } = self;
        match result {
            Err(EncodeError::Unchanged) => return schedule.capture.withdraw(now),
            Err(EncodeError::Restarted) => return schedule.restart(now),
            _ => {}
        }
        let Some((order, budget)) = schedule.capture.answer(now) else {
            return;
        };
        let Ok(encoded) = result else {
            return schedule.capture.end();
        };
        if schedule.capture.is_paused() {
            return schedule.chain.break_at(order.frame, KeyCause::Repair);
        }
        schedule.on_encoded(order.frame, &encoded);
        let parity = self.protection.overhead(&self.wire);
        let size = (self.wire.packet_size.current(), parity);
        if !packetiser.push(order, budget, &encoded, size) {
            schedule.chain.break_at(order.frame, KeyCause::Repair);
        }
    }

    /// Drops captured frames that can no longer be in time while nothing can be sent, except for the
    /// newest one before the first was sent: the stream begins with it, even if late. In the open
    /// state, limits the frames that accumulate behind a slow encoder or a suspended driver.
    pub(super) fn expire_captures(&mut self, cx: &mut Context<'_>) {
        // Without an answer, the stream begins after the handshake.
        let closed = !matches!(self.phase, Phase::Open | Phase::Greeting { .. });
        let kept = usize::from(self.wire.first_media.is_none());
        while let Some((frame, captured)) = self.schedule.capture.front()
            && (self.schedule.capture.is_crowded()
                || closed
                    && self.schedule.capture.waiting() > kept
                    && self
                        .schedule
                        .is_late(captured, Bytes::ZERO, &self.outlook(cx.now)))
        {
            self.skip(cx, frame, captured);
        }
    }

    /// The oldest captured frame is not encoded.
    fn skip(&mut self, cx: &mut Context<'_>, frame: u64, captured: Time) {
        self.schedule.capture.pop();
        let cause = DropCause::Skipped;
        cx.trace
            .record(cx.now, Event::FrameDropped { frame, cause });
        self.packetiser.log_skipped(frame, captured);
    }

    /// Drops waiting frames that cannot be in time, and their dependents.
    fn drop_hopeless(&mut self, cx: &mut Context<'_>, outlook: &Outlook) {
        while let Some(front) = self.packetiser.front() {
            let frame = front.row.frame;
            let Some(cause) = self.schedule.drop_cause(front, outlook) else {
                return;
            };
            self.packetiser.drop_front(cause);
            cx.trace
                .record(cx.now, Event::FrameDropped { frame, cause });
            self.schedule.chain.break_at(frame, KeyCause::Repair);
        }
    }

    fn outlook(&self, now: Time) -> Outlook {
        self.wire.outlook(now, self.phase == Phase::Open)
    }

    /// Whether packets wait to be sent.
    pub(super) fn has_packets(&self) -> bool {
        !self.packetiser.is_empty() || self.protection.is_waiting()
    }

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
            .or_else(|| self.write_size_probe(cx.now, buffer))
            .or_else(|| self.write_probe(cx, buffer))
    }

    /// Writes the next packet of the stream, if it is due.
    fn write_data(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let is_open = self.phase == Phase::Open && self.wire.departs() <= cx.now;
        if !is_open || !self.has_packets() {
            return None;
        }
        let (packet, parity) = self.write_next(cx, buffer)?;
        let size = Bytes(buffer.len() as u64) + OVERHEAD;
        let ecn = self.wire.ecn();
        let seq = self.wire.on_sent(cx, &packet, size, !self.has_packets());
        if let Some(parity) = parity {
            self.protection.blocks.on_parity(&parity, seq);
        }
        if packet.stream == Stream::Media {
            let target = self.wire.target();
            self.protection.on_media(size, target.media);
        }
        self.reports.on_sent(buffer);
        Some(Transmit { ecn, dscp: 0 })
    }

    /// Writes the next packet: a retransmission, a parity packet or a media packet.
    fn write_next(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Option<(Departure, Option<ParityPacket>)> {
        let outlook = self.outlook(cx.now);
        if let Some(repair) = self.write_repair(cx, &outlook, buffer) {
            return Some((repair, None));
        }
        let transport = self.wire.history.next_transport();
        let timestamp = self.timestamp(cx.now);
        if let Some((seq, packet)) = self.protection.write_parity(timestamp, transport, buffer) {
            let parity = Departure {
                stream: Stream::Parity,
                seq,
                content: None,
            };
            return Some((parity, Some(packet)));
        }
        self.drop_hopeless(cx, &outlook);
        let written = self.packetiser.write(cx.now, transport, buffer)?;
        let media = MediaShard {
            marker: written.row.left.is_some(),
            timestamp: written.row.timestamp,
            payload: buffer.get(written.start..).unwrap_or_default(),
        };
        let content = written.content;
        let seq = content.media_seq;
        self.protection.protect(cx.now, seq, media, &mut self.wire);
        self.schedule.on_left(&written.row);
        let media = Departure {
            stream: Stream::Media,
            seq,
            content: Some(content),
        };
        Some((media, None))
    }

    fn write_repair(
        &mut self,
        cx: &mut Context<'_>,
        outlook: &Outlook,
        buffer: &mut Vec<u8>,
    ) -> Option<Departure> {
        while let Some((content, is_copy)) = self.protection.next_repair() {
            // It was reordered, and not lost, or a copy has arrived.
            if self.wire.history.has_arrived(content.media_seq as u16) {
                continue;
            }
            if !is_copy && !self.prepare_repair(cx.now, content, outlook) {
                continue;
            }
            let Some(frame) = self.packetiser.sent_mut(content.frame) else {
                continue;
            };
            let transport = self.wire.history.next_transport();
            let protection = &mut self.protection;
            let repair_seq = protection.write_repair(content, frame, transport, buffer);
            let seq = content.media_seq;
            cx.trace.record(cx.now, Event::Retransmitted { seq });
            return Some(Departure {
                stream: Stream::Repair,
                seq: repair_seq,
                content: Some(content),
            });
        }
        None
    }

    /// Decides whether to retransmit a packet, and in how many copies.
    fn prepare_repair(&mut self, now: Time, content: Content, outlook: &Outlook) -> bool {
        let Some(frame) = self.packetiser.sent_mut(content.frame) else {
            return false;
        };
        let (captured, size) = (frame.row.captured, frame.size_of(content.fragment));
        let lost = self.protection.repairs.len() as u64 + 1;
        let (schedule, protection) = (&mut self.schedule, &mut self.protection);
        let is_late = schedule.is_late(captured, size, outlook);
        if is_late && !schedule.is_worth_repairing(captured, lost, outlook) {
            schedule.chain.break_at(content.frame, KeyCause::Repair);
            return false;
        }
        if !frame.may_repair(content.fragment, now, self.wire.srtt()) {
            return false;
        }
        if !protection.repair_budget.spend(size) {
            // Without feedback per packet, the request is no proof of a loss.
            if self.wire.peer.is_per_packet() {
                schedule.chain.break_at(content.frame, KeyCause::Repair);
            }
            return false;
        }
        let again = self.wire.repair_time();
        let is_last = !is_late && schedule.is_late_after(captured, size, again, outlook);
        let copies = if is_last && self.wire.peer.is_per_packet() {
            let wanted = protection.copies(self.wire.queueing(), outlook.media, again);
            protection.copy(content, size, wanted)
        } else {
            1
        };
        frame.on_repair(content.fragment, now, copies);
        true
    }
}
