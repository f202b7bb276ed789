//! Fate of the blocks that were sent: which lost packets the receiver can restore.

use std::collections::VecDeque;

use super::ParityPacket;
use crate::session::history::Content;

/// Recent blocks. A lost packet waits for the outcome of the parity packets of its block, and needs
/// a retransmission only if they do not suffice.
#[derive(Debug, Default)]
pub(crate) struct SentBlocks {
    blocks: VecDeque<SentBlock>,
}

#[derive(Debug)]
struct SentBlock {
    /// Sequence numbers of its media packets.
    first: u64,
    end: u64,
    /// Path sequence numbers of its parity packets that have no outcome yet.
    open: Vec<u64>,
    /// Parity packets to be sent, and those that have arrived.
    unsent: u8,
    arrived: usize,
    /// Lost media packets, and how many of them were released for retransmission.
    lost: Vec<Content>,
    released: usize,
}

impl SentBlock {
    /// Lost packets that the receiver cannot restore.
    fn release(&mut self) -> &[Content] {
        let is_decided = self.open.is_empty() && self.unsent == 0;
        if !is_decided || self.lost.len() <= self.arrived {
            return &[];
        }
        let from = core::mem::replace(&mut self.released, self.lost.len());
        &self.lost[from..]
    }
}

impl SentBlocks {
    /// A parity packet was sent as number `seq` of the path.
    pub(crate) fn on_parity(&mut self, packet: &ParityPacket, seq: u64) {
        if self
            .blocks
            .back()
            .is_none_or(|last| last.first != packet.first)
        {
            self.blocks.push_back(SentBlock {
                first: packet.first,
                end: packet.first + u64::from(packet.block.media),
                open: Vec::new(),
                unsent: packet.block.parity,
                arrived: 0,
                lost: Vec::new(),
                released: 0,
            });
            if self.blocks.len() > MAX_BLOCKS {
                self.blocks.pop_front();
            }
        }
        if let Some(last) = self.blocks.back_mut() {
            last.open.push(seq);
            last.unsent = last.unsent.saturating_sub(1);
        }
    }

    /// The parity packets that were not sent are discarded.
    pub(crate) fn interrupt(&mut self) {
        if let Some(last) = self.blocks.back_mut() {
            last.unsent = 0;
        }
    }

    /// Outcome of packet `seq` of the path. Adds lost media packets that cannot be restored any more
    /// to `hopeless`.
    pub(crate) fn on_outcome(&mut self, seq: u64, received: bool, hopeless: &mut Vec<Content>) {
        for block in &mut self.blocks {
            if let Some(at) = block.open.iter().position(|&open| open == seq) {
                block.open.swap_remove(at);
                block.arrived += usize::from(received);
                hopeless.extend_from_slice(block.release());
                return;
            }
        }
    }

    /// A media packet was lost. Adds it to `hopeless` unless its block may restore it.
    pub(crate) fn on_lost(&mut self, content: Content, hopeless: &mut Vec<Content>) {
        let seq = content.media_seq;
        let of_block = |block: &&mut SentBlock| (block.first..block.end).contains(&seq);
        match self.blocks.iter_mut().rev().find(of_block) {
            Some(block) if block.lost.contains(&content) => {}
            Some(block) => {
                block.lost.push(content);
                hopeless.extend_from_slice(block.release());
            }
            None => hopeless.push(content),
        }
    }

    /// A media packet that counted as lost has arrived.
    pub(crate) fn on_spurious(&mut self, media_seq: u64) {
        for block in &mut self.blocks {
            let at = block
                .lost
                .iter()
                .position(|lost| lost.media_seq == media_seq);
            if let Some(at) = at.filter(|&at| at >= block.released) {
                block.lost.remove(at);
            }
        }
    }
}

/// Several round trips of any path: a block takes a third of a frame interval at least.
const MAX_BLOCKS: usize = 256;

#[cfg(test)]
mod tests {
    use super::super::ParityEncoder;
    use super::*;
    use crate::units::Time;
    use crate::wire::parity::MediaShard;
    use core::time::Duration;

    fn content(media_seq: u64) -> Content {
        Content {
            frame: 0,
            fragment: 0,
            media_seq,
        }
    }

    /// A block of the media packets 100 to 103 and two parity packets, 7 and 8 of the path.
    fn sent() -> SentBlocks {
        let mut encoder = ParityEncoder::default();
        for seq in 100..104 {
            let media = MediaShard {
                marker: false,
                timestamp: 0,
                payload: &[1; 50],
            };
            encoder.on_media(Time::ZERO, seq, media, Duration::ZERO);
        }
        encoder.close(2);
        let mut blocks = SentBlocks::default();
        for seq in [7, 8] {
            blocks.on_parity(&encoder.next().unwrap(), seq);
        }
        blocks
    }

    #[test]
    fn losses_within_the_parity_need_no_retransmission() {
        let (mut blocks, mut hopeless) = (sent(), Vec::new());
        blocks.on_lost(content(101), &mut hopeless);
        blocks.on_outcome(7, true, &mut hopeless);
        blocks.on_outcome(8, true, &mut hopeless);
        blocks.on_lost(content(103), &mut hopeless);
        assert_eq!(hopeless, []);
        // The third loss is one too many: all of them are needed.
        blocks.on_lost(content(100), &mut hopeless);
        assert_eq!(hopeless, [101, 103, 100].map(content));
    }

    #[test]
    fn lost_parity_restores_nothing() {
        let (mut blocks, mut hopeless) = (sent(), Vec::new());
        blocks.on_lost(content(101), &mut hopeless);
        blocks.on_outcome(7, false, &mut hopeless);
        assert_eq!(hopeless, []);
        blocks.on_outcome(8, false, &mut hopeless);
        assert_eq!(hopeless, [content(101)]);
        // A packet of no block.
        blocks.on_lost(content(99), &mut hopeless);
        assert_eq!(hopeless.len(), 2);
    }

    #[test]
    fn a_spurious_loss_does_not_count() {
        let (mut blocks, mut hopeless) = (sent(), Vec::new());
        for seq in [100, 101, 102] {
            blocks.on_lost(content(seq), &mut hopeless);
        }
        blocks.on_spurious(101);
        blocks.on_outcome(7, true, &mut hopeless);
        blocks.on_outcome(8, true, &mut hopeless);
        assert_eq!(hopeless, []);
    }
}
