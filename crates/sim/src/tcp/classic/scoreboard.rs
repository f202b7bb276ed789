//! SACK scoreboard of the classic sender.

use super::super::Ranges;
use super::Ack;

/// Which segments arrived beyond the first gap, and which gaps were repaired, as ns-2's
/// `ScoreBoardRQ` keeps it: each gap is repeated once, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    arrived: Ranges,
    /// The next gap to repeat is here or later.
    next_repeat: u32,
    /// Everything before this arrived.
    low: u32,
}

impl Scoreboard {
    /// Takes in the blocks of `ack`; everything before `una` is acknowledged. Says whether it
    /// told anything new.
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

    /// The next gap to repeat, if one lies before something that arrived.
    pub(super) fn next_gap(&mut self) -> Option<u32> {
        self.next_repeat = self.next_repeat.max(self.low);
        let gap = self.arrived.next_hole(self.next_repeat)?;
        self.next_repeat = gap;
        Some(gap)
    }

    /// Segment `seq` was repeated.
    pub(super) fn repeated(&mut self, seq: u32) {
        self.next_repeat = self.next_repeat.max(seq + 1);
    }

    pub(super) fn clear(&mut self) {
        self.arrived.clear();
        self.next_repeat = 0;
    }
}
