//! SACK scoreboard of the classic sender.

use super::super::Ranges;
use super::Ack;

/// Received segments beyond the first hole, and retransmitted holes, as in ns-2's `ScoreBoardRQ`:
/// each hole is retransmitted once, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    arrived: Ranges,
    /// Lower bound of the next hole to retransmit.
    next_repeat: u32,
    /// All segments before this one have arrived.
    low: u32,
}

impl Scoreboard {
    /// Adds the blocks of `ack`; all segments before `una` are acknowledged. Returns whether the
    /// blocks contain new information.
    pub(super) fn update(&mut self, una: u32, ack: &Ack) -> bool {
        let before = self.arrived.total();
        let mut changed = false;
        if self.low < una {
            self.low = una;
            if !self.arrived.is_empty() {
                self.arrived.clear_below(una);
                changed = true;
            }
        }
        for (from, to) in ack.sack {
            if from < to {
                self.arrived.insert(from, to);
            }
        }
        changed || self.arrived.total() != before
    }

    /// The next hole to retransmit, if a later segment has arrived.
    pub(super) fn next_gap(&mut self) -> Option<u32> {
        self.next_repeat = self.next_repeat.max(self.low);
        let gap = self.arrived.next_hole(self.next_repeat)?;
        self.next_repeat = gap;
        Some(gap)
    }

    /// Records the retransmission of segment `seq`.
    pub(super) fn repeated(&mut self, seq: u32) {
        self.next_repeat = self.next_repeat.max(seq + 1);
    }

    pub(super) fn clear(&mut self) {
        self.arrived.clear();
        self.next_repeat = 0;
    }
}
