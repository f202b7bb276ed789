//! Parity packets of a sender: blocks, their number of parity packets, and their share of the rate.

use core::time::Duration;

use super::MediaSender;
use super::repair_budget::RepairBudget;
use crate::control::{Context, PacketOutcome};
use crate::endpoint::OVERHEAD;
use crate::session::history::Content;
use crate::session::parity::{LossModel, ParityEncoder, ParityPacket, SentBlocks};
use crate::units::{Bytes, Time};
use crate::wire::parity::{MAX_PARITY, MediaShard};
use crate::wire::rtp::RtpHeader;

/// State of the forward error correction of a stream.
#[derive(Debug)]
pub(super) struct Protection {
    encoder: ParityEncoder,
    blocks: SentBlocks,
    losses: LossModel,
    /// Whether the round-trip time has set the losses that are expected.
    is_prepared: bool,
    budget: RepairBudget,
    /// Duration of a block of media packets with parity packets; `None` if they are of no use.
    block: Option<Duration>,
    /// Share of parity packets among media and parity packets, in 0..1.
    share: f64,
    /// Sequence number of the next parity packet.
    pub(super) seq: u64,
}

impl Protection {
    pub(super) fn new(seq: u64) -> Self {
        Self {
            encoder: ParityEncoder::default(),
            blocks: SentBlocks::default(),
            losses: LossModel::default(),
            is_prepared: false,
            budget: RepairBudget::of(SHARE),
            block: None,
            share: 0.0,
            seq,
        }
    }

    /// Sets the duration of the next blocks; `None` if a retransmission is in time, or nothing is.
    pub(super) fn set_block(&mut self, block: Option<Duration>) {
        self.block = block;
    }

    /// Share of the rate that parity packets take, in 0..1.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// Whether parity packets wait to be sent.
    pub(super) fn is_waiting(&self) -> bool {
        self.encoder.waiting() > 0
    }

    /// Time at which the open block closes.
    pub(super) fn closes(&self) -> Option<Time> {
        self.encoder.closes()
    }

    pub(super) fn next(&mut self) -> Option<ParityPacket> {
        self.encoder.next()
    }

    /// `packet` was sent as number `seq` of the path.
    pub(super) fn on_sent(&mut self, packet: &ParityPacket, seq: u64) {
        self.blocks.on_parity(packet, seq);
    }

    /// Outcomes of packets, and lost media packets. Returns those that need a retransmission. Losses
    /// at a long queue are congestion: a lower rate avoids them, and parity packets would add to it.
    pub(super) fn on_outcomes(
        &mut self,
        fates: &[PacketOutcome],
        lost: &[Content],
        queueing: Duration,
    ) -> Vec<Content> {
        let mut hopeless = Vec::new();
        for &content in lost {
            self.blocks.on_lost(content, &mut hopeless);
        }
        for fate in fates {
            let received = fate.outcome.is_received();
            let is_error = !received && queueing < CONGESTED;
            self.losses.on_outcome(is_error);
            self.blocks.on_outcome(fate.seq, received, &mut hopeless);
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

    /// The stream is interrupted: parity packets that were not sent restore nothing in time.
    pub(super) fn interrupt(&mut self) {
        self.encoder.clear();
        self.blocks.interrupt();
    }

    /// Closes the open block, with the parity packets that make an interruption for longer than
    /// `tolerance` (a probability) as rare, within the budget. Packets are at most `largest`.
    fn close(&mut self, tolerance: f64, largest: Bytes) {
        let media = self.encoder.media();
        let size = headers() + Bytes((crate::wire::parity::HEADER + self.encoder.longest()) as u64);
        let fits = media > 0 && size <= largest;
        let most = if fits { MAX_PARITY.min(media) } else { 0 };
        let wanted = self.losses.parity(media, most, tolerance);
        let parity = (0..wanted).take_while(|_| self.budget.spend(size)).count();
        self.encoder.close(parity);
        let share = parity as f64 / (media + parity).max(1) as f64;
        self.share += SHARE_GAIN * (share - self.share);
    }
}

impl MediaSender {
    /// The media packet in `payload` is sent. Adds it to the open block, if there is one, or if
    /// parity packets are of use on this path.
    pub(super) fn protect(&mut self, cx: &mut Context<'_>, media: MediaShard<'_>) {
        let Some(span) = self.protected_span() else {
            return;
        };
        let seq = self.media_seq;
        self.protection.encoder.on_media(cx.now, seq, media, span);
        let second = self.control.target().media * Duration::from_secs(1);
        let size = Bytes(media.payload.len() as u64) + headers();
        self.protection.budget.on_media(size, second);
        let closes = self.protection.closes();
        let next = cx.now + self.config.frame_rate.interval();
        let is_last = media.marker && closes.is_some_and(|at| next > at);
        if is_last || self.protection.encoder.is_full() {
            self.close_block(span);
        }
    }

    /// Whether parity packets may be of use: the path has link errors.
    pub(super) fn wants_parity(&mut self) -> bool {
        if self.path.has_rtt() && !self.protection.is_prepared {
            self.protection.is_prepared = true;
            if self.path.one_way() * 2 >= SATELLITE {
                self.protection.losses.expect_losses();
            }
        }
        self.config.parity && self.protection.losses.has_losses()
    }

    /// Closes the open block if it is due, although no frame has ended.
    pub(super) fn close_block_if_due(&mut self, now: Time) {
        if self.protection.closes().is_some_and(|at| at <= now) {
            let span = self.protected_span().unwrap_or(Duration::ZERO);
            self.close_block(span);
        }
    }

    /// A block that cannot be restored interrupts the stream until a key frame arrives: for its own
    /// duration and a round trip.
    fn close_block(&mut self, span: Duration) {
        let outage = (self.path.srtt() + span).as_secs_f64();
        let tolerance = INTERRUPTED * span.as_secs_f64() / outage.max(1e-3);
        let largest = self.config.packet_size;
        self.protection.close(tolerance, largest);
    }

    /// Duration of a block; `None` while parity packets are of no use: a retransmission is in time,
    /// or the receiver does not report their outcome.
    fn protected_span(&self) -> Option<Duration> {
        let reports = self.peer == super::Peer::PerPacket { ecn: true };
        let block = self.protection.block;
        block.filter(|_| self.config.parity && reports)
    }

    /// Bytes of a media packet that a parity packet needs for its own headers.
    pub(super) fn parity_overhead(&self) -> usize {
        let used = self.protected_span().map(|_| crate::wire::parity::OVERHEAD);
        used.unwrap_or(0)
    }
}

/// Headers of a parity packet on the wire.
fn headers() -> Bytes {
    OVERHEAD + Bytes(RtpHeader::LEN as u64)
}

/// Most bytes of parity packets, as a share of the media bytes.
const SHARE: (u64, u64) = (1, 5);
/// Share of the time in which a stream may be interrupted by losses: a twentieth of the frames that
/// a viewer accepts to miss.
const INTERRUPTED: f64 = 0.001;
/// Round trips from here on are those of satellites, of which most lose packets.
const SATELLITE: Duration = Duration::from_millis(400);
/// Round-trip time above the smallest one from which on a loss is congestion: more than most jitter,
/// and less than the queue that a TCP transfer fills on a long path.
const CONGESTED: Duration = Duration::from_millis(50);
/// Weight of a block in the mean share of parity packets.
const SHARE_GAIN: f64 = 0.125;
