//! Repair of lost packets: retransmissions on request, parity packets in advance, and their budgets.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use super::frames::OutFrame;
use super::packetise::emit;
use super::repair_budget::RepairBudget;
use super::wire::{CONGESTED, Wire};
use crate::control::PacketOutcome;
use crate::endpoint::OVERHEAD;
use crate::session::config::SenderConfig;
use crate::session::history::Content;
use crate::session::parity::{LossModel, ParityEncoder, ParityPacket, SentBlocks};
use crate::units::{Bytes, Rate, Time};
use crate::wire::parity::{MAX_PARITY, MediaShard};
use crate::wire::rtp::RtpHeader;
use crate::wire::rtx::RtxPayload;

/// Retransmissions and parity packets of a stream.
#[derive(Debug)]
pub(super) struct Protection {
    config: Arc<SenderConfig>,
    /// Queued retransmissions.
    pub(super) repairs: VecDeque<Content>,
    /// Further copies of retransmissions that have no second chance.
    copies: VecDeque<Content>,
    pub(super) repair_budget: RepairBudget,
    /// Sequence number of the next retransmission.
    repair_seq: u64,
    encoder: ParityEncoder,
    pub(super) blocks: SentBlocks,
    losses: LossModel,
    /// Whether the round-trip time has set the losses that are expected.
    is_prepared: bool,
    parity_budget: RepairBudget,
    /// Duration of a block of media packets with parity packets; `None` if they are of no use.
    pub(super) block: Option<Duration>,
    /// Sequence number of the next parity packet.
    parity_seq: u64,
}

impl Protection {
    pub(super) fn new(config: &Arc<SenderConfig>, repair_seq: u32) -> Self {
        Self {
            repairs: VecDeque::new(),
            copies: VecDeque::new(),
            repair_budget: RepairBudget::default(),
            repair_seq: u64::from(repair_seq),
            encoder: ParityEncoder::default(),
            blocks: SentBlocks::default(),
            losses: LossModel::default(),
            is_prepared: false,
            parity_budget: RepairBudget::of(SHARE),
            block: None,
            parity_seq: u64::from(config.streams.parity_ssrc & 0x7fff),
            config: Arc::clone(config),
        }
    }

    /// Whether packets wait to be sent.
    pub(super) fn is_waiting(&self) -> bool {
        !self.repairs.is_empty() || !self.copies.is_empty() || self.encoder.waiting() > 0
    }

    /// The next packet to retransmit, and whether it is a further copy. Copies are last: a burst of
    /// losses that takes the first ones then spares them.
    pub(super) fn next_repair(&mut self) -> Option<(Content, bool)> {
        let first = self.repairs.pop_front().map(|content| (content, false));
        first.or_else(|| self.copies.pop_front().map(|content| (content, true)))
    }

    /// Number of copies of a retransmission at `queueing` that cannot be repeated in time: so many that
    /// losing all of them interrupts the stream for too long as rarely as permitted. `rate` is that of
    /// the media, and a loss interrupts it for `outage`.
    pub(super) fn copies(&self, queueing: Duration, rate: Rate, outage: Duration) -> u8 {
        // More packets would add to congestion.
        if queueing >= CONGESTED {
            return 1;
        }
        let packets = rate.as_f64() / self.config.packet_size.bits().max(1) as f64;
        let interrupted = packets * outage.as_secs_f64();
        self.losses.copies(INTERRUPTED / interrupted.max(1e-3))
    }

    /// Queues the copies of a retransmission after the first, as far as the budget permits. Returns the
    /// number of all.
    pub(super) fn copy(&mut self, content: Content, size: Bytes, wanted: u8) -> u8 {
        let affordable = (1..wanted).take_while(|_| self.repair_budget.spend(size));
        let more = affordable.count();
        self.copies.extend(core::iter::repeat_n(content, more));
        more as u8 + 1
    }

    /// Time at which the open block closes.
    pub(super) fn closes(&self) -> Option<Time> {
        self.encoder.closes()
    }

    /// Whether a requested packet does not wait already.
    pub(super) fn is_new(&self, content: &Content) -> bool {
        self.repairs.len() < MAX_REPAIRS && !self.repairs.contains(content)
    }

    /// A media packet of `size` was sent at the media rate `rate`.
    pub(super) fn on_media(&mut self, size: Bytes, rate: Rate) {
        let second = rate * Duration::from_secs(1);
        self.repair_budget.on_media(size, second);
    }

    /// Writes the retransmission of a packet of `frame`. Returns its sequence number.
    pub(super) fn write_repair(
        &mut self,
        content: Content,
        frame: &OutFrame,
        transport: Option<u16>,
        buffer: &mut Vec<u8>,
    ) -> u64 {
        let seq = self.repair_seq;
        self.repair_seq += 1;
        let header = RtpHeader {
            payload_type: self.config.streams.repair_type,
            sequence: seq as u16,
            timestamp: frame.row.timestamp,
            ssrc: self.config.streams.repair_ssrc,
            marker: frame.is_last(content.fragment),
        };
        emit(header, transport, buffer);
        RtxPayload {
            original_sequence: content.media_seq as u16,
            payload: frame.payload(content.fragment),
        }
        .emit(buffer);
        seq
    }

    /// Writes the next parity packet. Returns it and its sequence number.
    pub(super) fn write_parity(
        &mut self,
        timestamp: u32,
        transport: Option<u16>,
        buffer: &mut Vec<u8>,
    ) -> Option<(u64, ParityPacket)> {
        let parity = self.encoder.next()?;
        let seq = self.parity_seq;
        self.parity_seq += 1;
        let header = RtpHeader {
            payload_type: self.config.streams.parity_type,
            sequence: seq as u16,
            timestamp,
            ssrc: self.config.streams.parity_ssrc,
            marker: false,
        };
        emit(header, transport, buffer);
        parity.emit(buffer);
        Some((seq, parity))
    }

    /// Media packet number `seq` is sent. Adds it to the open block, if there is one, or if parity
    /// packets are of use on this path.
    pub(super) fn protect(&mut self, now: Time, seq: u64, media: MediaShard<'_>, wire: &mut Wire) {
        let Some(span) = self.span(wire) else {
            return;
        };
        self.encoder.on_media(now, seq, media, span);
        let second = wire.control.target().media * Duration::from_secs(1);
        let size = Bytes(media.payload.len() as u64) + headers();
        self.parity_budget.on_media(size, second);
        let next = now + self.config.frame_rate.interval();
        let is_last = media.marker && self.closes().is_some_and(|at| next > at);
        if is_last || self.encoder.is_full() {
            self.close(span, wire);
        }
    }

    /// Closes the open block if it is due, although no frame has ended.
    pub(super) fn on_timeout(&mut self, now: Time, wire: &mut Wire) {
        if self.closes().is_some_and(|at| at <= now) {
            let span = self.span(wire).unwrap_or(Duration::ZERO);
            self.close(span, wire);
        }
    }

    /// Whether parity packets may be of use: the path has link errors.
    pub(super) fn is_parity_wanted(&mut self, wire: &Wire) -> bool {
        if wire.has_rtt() && !self.is_prepared {
            self.is_prepared = true;
            if wire.one_way() * 2 >= SATELLITE {
                self.losses.expect_losses();
            }
        }
        self.config.parity && self.losses.has_losses()
    }

    /// Duration of a block; `None` while parity packets are of no use: a retransmission is in time,
    /// or the receiver does not report their outcome.
    fn span(&self, wire: &Wire) -> Option<Duration> {
        let is_used = self.config.parity && wire.reports_packets();
        self.block.filter(|_| is_used)
    }

    /// Bytes of a media packet that a parity packet needs for its own headers.
    pub(super) fn overhead(&self, wire: &Wire) -> usize {
        let used = self.span(wire).map(|_| crate::wire::parity::OVERHEAD);
        used.unwrap_or(0)
    }

    /// Outcomes of packets, and lost media packets. Returns those that need a retransmission. Losses
    /// at a long queue are congestion: a lower rate avoids them, and parity packets would add to it.
    pub(super) fn on_outcomes(
        &mut self,
        outcomes: &[PacketOutcome],
        lost: &[Content],
        queueing: Duration,
    ) -> Vec<Content> {
        let mut hopeless = Vec::new();
        for &content in lost {
            self.blocks.on_lost(content, &mut hopeless);
        }
        for packet in outcomes {
            let received = packet.outcome.is_received();
            let is_error = !received && queueing < CONGESTED;
            self.losses.on_outcome(is_error);
            self.blocks.on_outcome(packet.seq, received, &mut hopeless);
        }
        hopeless
    }

    /// Media packets that counted as lost and have arrived.
    pub(super) fn on_spurious(&mut self, arrived: &[Content]) {
        for content in arrived {
            self.losses.on_spurious();
            self.blocks.on_spurious(content.media_seq);
        }
    }

    /// The stream is interrupted: nothing that waits restores anything in time.
    pub(super) fn interrupt(&mut self) {
        self.repairs.clear();
        self.copies.clear();
        self.encoder.clear();
        self.blocks.interrupt();
    }

    /// Closes the open block, with the parity packets that make an interruption for too long as
    /// rare as permitted, within the budget. A block that cannot be restored interrupts the stream
    /// until a key frame arrives: for its own duration and a round trip.
    fn close(&mut self, span: Duration, wire: &mut Wire) {
        let outage = (wire.srtt() + span).as_secs_f64();
        let tolerance = INTERRUPTED * span.as_secs_f64() / outage.max(1e-3);
        let media = self.encoder.media();
        let size = headers() + Bytes((crate::wire::parity::HEADER + self.encoder.longest()) as u64);
        let fits = media > 0 && size <= wire.packet_size.current();
        let most = if fits { MAX_PARITY.min(media) } else { 0 };
        let wanted = self.losses.parity(media, most, tolerance);
        let parity = (0..wanted)
            .take_while(|_| self.parity_budget.spend(size))
            .count();
        self.encoder.close(parity);
        wire.on_block(parity as f64 / (media + parity).max(1) as f64);
    }
}

/// Headers of a parity packet on the wire.
fn headers() -> Bytes {
    OVERHEAD + Bytes(RtpHeader::LEN as u64)
}

/// Maximum number of requested packets.
const MAX_REPAIRS: usize = 1_024;
/// Most bytes of parity packets, as a share of the media bytes.
const SHARE: (u64, u64) = (1, 5);
/// Share of the time in which a stream may be interrupted by losses: a twentieth of the frames that
/// a viewer accepts to miss.
const INTERRUPTED: f64 = 0.001;
/// Round trips from here on are those of satellites, of which most lose packets.
const SATELLITE: Duration = Duration::from_millis(400);
