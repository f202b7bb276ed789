//! Restores lost media packets from parity packets.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use crate::units::Time;
use crate::wire::parity::{Block, MediaShard, Parity};

/// Recent media packets, and the parity packets of blocks that are not complete.
#[derive(Debug, Default)]
pub(crate) struct ParityDecoder {
    /// Shards of media packets by sequence number, since the first parity packet.
    media: BTreeMap<u64, Vec<u8>>,
    blocks: VecDeque<PartialBlock>,
    /// Last arrival of a parity packet.
    last: Option<Time>,
}

#[derive(Debug)]
struct PartialBlock {
    first: u64,
    block: Block,
    length: usize,
    parity: BTreeMap<u8, Vec<u8>>,
}

/// A restored media packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Restored {
    pub(crate) seq: u64,
    pub(crate) shard: Vec<u8>,
}

impl ParityDecoder {
    /// Whether parity packets have arrived recently.
    pub(crate) fn is_active(&self, now: Time) -> bool {
        self.last.is_some_and(|last| now.since(last) < IDLE)
    }

    /// A media packet has arrived. Returns the lost packets of its block if that suffices.
    pub(crate) fn on_media(&mut self, now: Time, seq: u64, media: MediaShard<'_>) -> Vec<Restored> {
        if !self.is_active(now) {
            self.media.clear();
            self.blocks.clear();
            return Vec::new();
        }
        let mut shard = Vec::with_capacity(media.len() + 1);
        media.emit(&mut shard);
        self.keep(seq, shard);
        let last = |block: &PartialBlock| block.first + u64::from(block.block.media);
        let of_block = |block: &PartialBlock| (block.first..last(block)).contains(&seq);
        let at = self.blocks.iter().position(of_block);
        at.map_or_else(Vec::new, |at| self.restore(at))
    }

    /// A parity packet has arrived, of the block that begins with media packet `first`. Returns the
    /// lost packets of the block if that suffices.
    pub(crate) fn on_parity(&mut self, now: Time, first: u64, parity: Parity<'_>) -> Vec<Restored> {
        self.last = Some(now);
        let (block, length) = (parity.block, parity.shard.len());
        let known = |known: &PartialBlock| known.first == first;
        let at = self.blocks.iter().position(known).unwrap_or_else(|| {
            if self.blocks.len() == MAX_BLOCKS {
                self.blocks.pop_front();
            }
            self.blocks.push_back(PartialBlock {
                first,
                block,
                length,
                parity: BTreeMap::new(),
            });
            self.blocks.len() - 1
        });
        let Some(partial) = self.blocks.get_mut(at) else {
            return Vec::new();
        };
        if partial.block != block || partial.length != length {
            return Vec::new();
        }
        partial.parity.insert(parity.index, parity.shard.to_vec());
        self.restore(at)
    }

    fn keep(&mut self, seq: u64, shard: Vec<u8>) {
        self.media.insert(seq, shard);
        if self.media.len() > MAX_MEDIA {
            self.media.pop_first();
        }
    }

    /// Restores the block with index `at`, if enough of it has arrived and something is missing.
    fn restore(&mut self, at: usize) -> Vec<Restored> {
        let Some(partial) = self.blocks.get(at) else {
            return Vec::new();
        };
        let (first, count) = (partial.first, usize::from(partial.block.media));
        let known = self.media.range(first..first + count as u64);
        let known: Vec<(usize, Vec<u8>)> = known
            .filter(|(_, shard)| shard.len() <= partial.length)
            .map(|(&seq, shard)| {
                let mut shard = shard.clone();
                shard.resize(partial.length, 0);
                ((seq - first) as usize, shard)
            })
            .collect();
        if known.len() + partial.parity.len() < count || known.len() == count {
            return Vec::new();
        }
        let parity = partial.parity.iter();
        let parity = parity.map(|(&index, shard)| (usize::from(index), shard));
        let restored =
            reed_solomon_simd::decode(count, usize::from(partial.block.parity), known, parity);
        self.blocks.remove(at);
        let mut restored: Vec<Restored> = restored
            .into_iter()
            .flatten()
            .map(|(index, shard)| Restored {
                seq: first + index as u64,
                shard,
            })
            .collect();
        restored.sort_unstable_by_key(|packet| packet.seq);
        // Further parity packets of the block restore nothing.
        for packet in &restored {
            self.keep(packet.seq, packet.shard.clone());
        }
        restored
    }
}

/// Time without parity packets after which media packets are not kept.
const IDLE: Duration = Duration::from_secs(5);
/// Media packets that are kept: several blocks.
const MAX_MEDIA: usize = 512;
/// Blocks that wait for further packets.
const MAX_BLOCKS: usize = 8;

#[cfg(test)]
mod tests {
    use super::super::ParityEncoder;
    use super::*;

    const FIRST: u64 = 65_530;

    fn payload(seq: u64) -> Vec<u8> {
        (0..40 + seq % 7).map(|i| (i * seq) as u8).collect()
    }

    fn shard(seq: u64, payload: &[u8]) -> MediaShard<'_> {
        MediaShard {
            marker: seq.is_multiple_of(3),
            timestamp: seq as u32 * 3_000,
            payload,
        }
    }

    /// Media packets from [`FIRST`] on, and the payloads of their parity packets.
    fn block(media: u64, parity: usize) -> Vec<Vec<u8>> {
        let mut encoder = ParityEncoder::default();
        for seq in FIRST..FIRST + media {
            encoder.on_media(Time::ZERO, seq, shard(seq, &payload(seq)), Duration::ZERO);
        }
        encoder.close(parity);
        core::iter::from_fn(|| encoder.next())
            .map(|packet| {
                let mut out = Vec::new();
                packet.emit(&mut out);
                out
            })
            .collect()
    }

    /// Restored packets if those of `lost` (media), and the first `lost_parity` parity packets, are
    /// lost. The decoder knows of parity packets from an earlier block.
    fn decode(media: u64, parity: usize, lost: &[u64], lost_parity: usize) -> Vec<Restored> {
        let mut decoder = ParityDecoder::default();
        let packets = block(media, parity);
        decoder.last = Some(Time::ZERO);
        let mut restored = Vec::new();
        for seq in (FIRST..FIRST + media).filter(|seq| !lost.contains(&(seq - FIRST))) {
            restored.extend(decoder.on_media(Time::ZERO, seq, shard(seq, &payload(seq))));
        }
        for packet in &packets[lost_parity..] {
            let parsed = Parity::parse(packet).unwrap();
            assert_eq!(u64::from(parsed.block.first), FIRST % 65_536);
            restored.extend(decoder.on_parity(Time::ZERO, FIRST, parsed));
        }
        restored
    }

    fn expect(restored: &[Restored], lost: &[u64]) {
        let seqs: Vec<u64> = restored.iter().map(|packet| packet.seq - FIRST).collect();
        assert_eq!(seqs, lost);
        for packet in restored {
            let own = payload(packet.seq);
            assert_eq!(
                MediaShard::parse(&packet.shard),
                Some(shard(packet.seq, &own))
            );
        }
    }

    #[test]
    fn any_losses_up_to_the_parity_are_restored() {
        for lost in [&[0][..], &[3, 4, 5], &[0, 7, 9]] {
            expect(&decode(10, 3, lost, 0), lost);
        }
        expect(&decode(10, 4, &[1, 8], 2), &[1, 8]);
        expect(&decode(1, 1, &[0], 0), &[0]);
        let many: Vec<u64> = (0..32).map(|i| i * 4).collect();
        expect(&decode(128, 32, &many, 0), &many);
    }

    #[test]
    fn more_losses_restore_nothing() {
        expect(&decode(10, 3, &[1, 2, 3, 4], 0), &[]);
        expect(&decode(10, 3, &[1, 2], 2), &[]);
        expect(&decode(10, 3, &[], 0), &[]);
    }

    #[test]
    fn a_late_media_packet_completes_a_block() {
        let packets = block(4, 1);
        let mut decoder = ParityDecoder::default();
        let parity = Parity::parse(&packets[0]).unwrap();
        assert_eq!(decoder.on_parity(Time::ZERO, FIRST, parity), []);
        for seq in [FIRST, FIRST + 2] {
            let payload = payload(seq);
            assert_eq!(decoder.on_media(Time::ZERO, seq, shard(seq, &payload)), []);
        }
        let last = FIRST + 3;
        let restored = decoder.on_media(Time::ZERO, last, shard(last, &payload(last)));
        expect(&restored, &[1]);
    }

    #[test]
    fn hostile_blocks_are_bounded() {
        let mut decoder = ParityDecoder::default();
        let shard_of = vec![0xa5; 1_200];
        for i in 0..10_000_u64 {
            let parity = Parity {
                block: Block {
                    first: i as u16,
                    media: (i % 128) as u8 + 1,
                    parity: 32,
                },
                index: (i % 32) as u8,
                shard: &shard_of,
            };
            for restored in decoder.on_parity(Time::ZERO, i * 3, parity) {
                let _ = MediaShard::parse(&restored.shard);
            }
            decoder.on_media(Time::ZERO, i, shard(i, &payload(i)));
            assert!(decoder.blocks.len() <= MAX_BLOCKS && decoder.media.len() <= MAX_MEDIA);
        }
    }
}
