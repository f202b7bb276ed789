//! Blocks of a sender: media packets and their parity packets.

use core::time::Duration;
use std::collections::VecDeque;

use crate::units::Time;
use crate::wire::parity::{Block, MAX_MEDIA, MediaShard, Parity};

/// Collects media packets to a block, and computes its parity packets.
#[derive(Debug, Default)]
pub(crate) struct ParityEncoder {
    /// Shards of the open block.
    shards: Vec<Vec<u8>>,
    /// Sequence number of its first packet, and the time at which it closes.
    first: u64,
    closes: Option<Time>,
    /// Parity packets that wait to be sent.
    waiting: VecDeque<ParityPacket>,
}

/// A parity packet.
#[derive(Clone, Debug)]
pub(crate) struct ParityPacket {
    /// Sequence number of the first media packet of its block, which it has modulo 2¹⁶.
    pub(crate) first: u64,
    pub(crate) block: Block,
    index: u8,
    shard: Vec<u8>,
}

impl ParityPacket {
    /// Appends the payload.
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let (block, index) = (self.block, self.index);
        Parity {
            block,
            index,
            shard: &self.shard,
        }
        .emit(out);
    }
}

impl ParityEncoder {
    /// A media packet was sent for the first time. A block closes `span` after its first packet.
    pub(crate) fn on_media(&mut self, now: Time, seq: u64, media: MediaShard<'_>, span: Duration) {
        if self.shards.is_empty() {
            self.first = seq;
            self.closes = Some(now + span);
        }
        let mut shard = Vec::with_capacity(media.len() + 1);
        media.emit(&mut shard);
        self.shards.push(shard);
    }

    /// Number of media packets of the open block.
    pub(crate) fn media(&self) -> usize {
        self.shards.len()
    }

    /// Length of its longest shard.
    pub(crate) fn longest(&self) -> usize {
        let longest = self.shards.iter().map(Vec::len).max().unwrap_or(0);
        longest.next_multiple_of(2)
    }

    /// Time at which the open block closes.
    pub(crate) fn closes(&self) -> Option<Time> {
        self.closes
    }

    /// Whether the open block has as many packets as possible.
    pub(crate) fn is_full(&self) -> bool {
        self.shards.len() >= MAX_MEDIA
    }

    /// Closes the open block, with `parity` parity packets.
    pub(crate) fn close(&mut self, parity: usize) {
        let length = self.longest();
        let mut shards = core::mem::take(&mut self.shards);
        self.closes = None;
        if parity == 0 || shards.is_empty() {
            return;
        }
        for shard in &mut shards {
            shard.resize(length, 0);
        }
        // The counts are within the limits of the code, and all lengths are equal and even.
        let coded = reed_solomon_simd::encode(shards.len(), parity, &shards).unwrap_or_default();
        let block = Block {
            first: self.first as u16,
            media: shards.len() as u8,
            parity: coded.len() as u8,
        };
        let first = self.first;
        let packets = (0..).zip(coded).map(|(index, shard)| ParityPacket {
            first,
            block,
            index,
            shard,
        });
        self.waiting.extend(packets);
    }

    /// Number of parity packets that wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The next parity packet.
    pub(crate) fn next(&mut self) -> Option<ParityPacket> {
        self.waiting.pop_front()
    }

    /// Discards the open block and all waiting packets, at an interruption.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
