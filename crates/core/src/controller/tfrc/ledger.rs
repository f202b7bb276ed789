//! Which packets are out, in constant memory.

/// Remembers of the last [`WINDOW`] packets whether they still await their fate, and whether the
/// application had more to send when they left.
///
/// It is also the guard against nonsense: a fate for a packet that never left, or a second fate
/// for the same packet, finds no open entry.
#[derive(Clone, Debug)]
pub(super) struct PacketLog {
    words: Box<[Word; WORDS]>,
    /// One above the highest sequence number that left.
    next: u64,
}

impl PacketLog {
    /// Nothing has left.
    pub(super) fn new() -> Self {
        Self {
            words: Box::new([Word::default(); WORDS]),
            next: 0,
        }
    }

    /// Packet `seq` left; `unlimited` says that more was waiting behind it.
    pub(super) fn send(&mut self, seq: u64, unlimited: bool) {
        let (word, bit) = place(seq);
        let word = &mut self.words[word];
        word.open |= bit;
        if unlimited {
            word.unlimited |= bit;
        } else {
            word.unlimited &= !bit;
        }
        self.next = self.next.max(seq.saturating_add(1));
    }

    /// Closes the entry of `seq` and says whether it left unlimited; `None` if there is no such
    /// entry.
    pub(super) fn settle(&mut self, seq: u64) -> Option<bool> {
        let (word, bit) = place(seq);
        let word = &mut self.words[word];
        if seq >= self.next || self.next - seq > WINDOW || word.open & bit == 0 {
            return None;
        }
        word.open &= !bit;
        Some(word.unlimited & bit != 0)
    }
}

/// A bit for each of 64 packets, side by side, since both are wanted together.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    open: u64,
    unlimited: u64,
}

fn place(seq: u64) -> (usize, u64) {
    let slot = seq % WINDOW;
    ((slot / 64) as usize, 1 << (slot % 64))
}

/// 16384 packets of 1200 bytes are a second at 157 Mb/s; the bits for them take 4 KiB. News of a
/// packet that is further back is ignored.
const WINDOW: u64 = 1 << 14;
const WORDS: usize = (WINDOW / 64) as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fate_counts_once_and_only_for_what_left() {
        let mut ledger = PacketLog::new();
        ledger.send(7, true);
        ledger.send(8, false);
        assert_eq!(ledger.settle(9), None);
        assert_eq!(ledger.settle(7), Some(true));
        assert_eq!(ledger.settle(7), None);
        assert_eq!(ledger.settle(8), Some(false));
        ledger.send(9, true);
        ledger.send(9 + WINDOW, false);
        assert_eq!(ledger.settle(9), None, "too far back");
        assert_eq!(ledger.settle(9 + WINDOW), Some(false));
        ledger.send(u64::MAX, true);
        assert_eq!(
            ledger.settle(u64::MAX),
            None,
            "beyond what a counter reaches"
        );
    }
}
