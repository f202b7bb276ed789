//! Discovery of the largest packet that the path carries: what arrives, what follows from it, and the
//! probes. The rules are those of [`PacketSize`](crate::session::packet_size::PacketSize).

use super::status::Phase;
use super::wire::Peer;
use super::{GREETING_RETRY, MediaSender};
use crate::control::Context;
use crate::endpoint::{OVERHEAD, Transmit};
use crate::session::history::FeedbackResult;
use crate::trace::{Event, KeyCause};
use crate::units::{Bytes, Time};
use crate::wire::ccfb::{Arrival, Ccfb};
use crate::wire::rtp::RtpHeader;

impl MediaSender {
    /// A sender report that left at `at` was answered, by a receiver that reports on no packets, or
    /// while none arrived. `media` is the newest media packet that has arrived since the last answer.
    /// If none has, all that left in between were larger, and lost.
    pub(super) fn on_small_arrival(&mut self, cx: &mut Context<'_>, at: Time, media: Option<Time>) {
        let last = core::mem::replace(&mut self.feedback.last_answered, at);
        // Before the first report on packets is overdue, silence means nothing.
        let is_early = self.wire.first_media.is_none() || self.wire.peer == Peer::Unknown;
        if at <= last || is_early {
            return;
        }
        let wire = &mut self.wire;
        if !wire.peer.is_per_packet() {
            if media.is_some() {
                // Which other ones have arrived is unknown.
                return wire.packet_size.forget();
            }
            let mut is_suspect = false;
            for size in wire.history.unresolved_between(last, at) {
                wire.packet_size.on_outcome(size, false);
                is_suspect = true;
            }
            if is_suspect {
                // A receiver that answers at once shows soon whether anything arrives.
                let soon = cx.now + GREETING_RETRY;
                self.reports.next = self.reports.next.map(|next| next.min(soon));
            }
        }
        wire.packet_size.on_outcome(SENDER_REPORT, true);
        self.detect_hole(cx);
    }

    /// Continues with smaller packets if larger ones vanish. What was sent and what waits is too
    /// large. The losses were no congestion: the estimates of the path restart.
    pub(super) fn detect_hole(&mut self, cx: &mut Context<'_>) {
        if self.phase != Phase::Open || !self.wire.packet_size.detect() {
            return;
        }
        let size = self.wire.packet_size.current();
        cx.trace.record(cx.now, Event::PacketSizeChanged { size });
        self.protection.interrupt();
        self.packetiser.clear();
        self.write_off(cx.now);
        let next = self.schedule.capture.made();
        self.schedule.chain.break_at(next, KeyCause::Repair);
        let rtt = self.wire.srtt();
        self.wire.restart(cx, rtt, None);
        self.wire.breaker.restart(cx.now);
        self.feedback.restart(cx.now);
        if !self.config.greets {
            self.fall_silent(cx);
        }
    }

    /// Whether the receiver may report probes of the size: one that reports on each packet (RFC 8888).
    /// The stream of probes of lower effort has the same numbers.
    pub(super) fn may_probe_sizes(&self) -> bool {
        self.phase == Phase::Open && self.wire.reports_packets() && self.probes.is_none()
    }

    /// The size on a path that loses larger packets, once its search has ended, or can have no result.
    pub(super) fn found_size(&self) -> Option<Bytes> {
        let reports_probes = self.wire.reports_packets() && self.probes.is_none();
        let is_known = !matches!(self.wire.peer, Peer::Unknown | Peer::Silent);
        let found = self.wire.packet_size.found(reports_probes);
        found.filter(|_| is_known)
    }

    /// Time of the next probe of the size.
    pub(super) fn size_probe_due(&self) -> Option<Time> {
        let due = self.wire.packet_size.next_timeout();
        due.filter(|_| self.may_probe_sizes())
    }

    /// Writes the next probe of the size, if one is due.
    pub(super) fn write_size_probe(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if !self.may_probe_sizes() {
            return None;
        }
        let probe = self.wire.packet_size.poll_probe(now)?;
        let streams = self.config.streams;
        RtpHeader {
            payload_type: streams.probe_type,
            sequence: probe.sequence,
            timestamp: self.timestamp(now),
            ssrc: streams.probe_ssrc,
            marker: false,
        }
        .emit(buffer);
        buffer.resize((probe.size - OVERHEAD).get() as usize, 0);
        Some(Transmit::default())
    }

    /// Reads a report about probes of the size. Returns whether it is about nothing else.
    pub(super) fn on_size_probes(&mut self, cx: &mut Context<'_>, report: &Ccfb<'_>) -> bool {
        if self.probes.is_some() {
            return false;
        }
        let ssrc = self.config.streams.probe_ssrc;
        let (mut has_others, mut has_probes) = (false, false);
        let before = self.wire.packet_size.current();
        for block in report.blocks() {
            if block.ssrc != ssrc {
                has_others = true;
                continue;
            }
            has_probes = true;
            for packet in block.packets() {
                if packet.arrival != Arrival::NotReceived {
                    let sequence = packet.sequence;
                    self.feedback.is_believed |= self.wire.packet_size.on_arrival(cx.now, sequence);
                }
            }
        }
        let size = self.wire.packet_size.current();
        if size != before {
            cx.trace.record(cx.now, Event::PacketSizeChanged { size });
        }
        has_probes && !has_others
    }

    /// Per-packet feedback has arrived: a probe before the packets that it reports may be lost.
    pub(super) fn update_size_search(&mut self, now: Time, feedback: &FeedbackResult) {
        let arrived = feedback.outcomes.iter().filter(|p| p.outcome.is_received());
        if let Some(sent) = arrived.map(|packet| packet.sent).max() {
            self.wire.packet_size.on_progress(now, sent);
        }
    }
}

/// Less than a sender report with its headers.
const SENDER_REPORT: Bytes = Bytes(64);
