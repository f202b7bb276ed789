//! Log of packets in flight, in constant memory.

/// Stores for the last `WINDOW` packets whether their outcome is unknown, and whether the
/// application had more data to send when they were sent.
///
/// The log also rejects invalid feedback: a fate of a packet that was never sent, or a second fate
/// of the same packet, has no open entry.
#[derive(Clone, Debug)]
pub struct PacketLog {
    words: Box<[Word; WORDS]>,
    /// Highest sequence number sent, plus one.
    next: u64,
}

/// A log without packets.
impl Default for PacketLog {
    fn default() -> Self {
        Self {
            words: Box::new([Word::default(); WORDS]),
            next: 0,
        }
    }
}

impl PacketLog {
    /// Records that packet `seq` was sent; `unlimited` if more data was waiting.
    pub fn send(&mut self, seq: u64, unlimited: bool) {
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

    /// Closes the entry of `seq` and returns its `unlimited`; `None` if there is no open entry.
    pub fn settle(&mut self, seq: u64) -> Option<bool> {
        let (word, bit) = place(seq);
        let word = &mut self.words[word];
        if seq >= self.next || self.next - seq > WINDOW || word.open & bit == 0 {
            return None;
        }
        word.open &= !bit;
        Some(word.unlimited & bit != 0)
    }
}

/// State of 64 packets, one bit each. Both words share a cache line, as both are read together.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    open: u64,
    unlimited: u64,
}

fn place(seq: u64) -> (usize, u64) {
    let slot = seq % WINDOW;
    ((slot / 64) as usize, 1 << (slot % 64))
}

/// 16384 packets of 1200 bytes are one second at 157 Mb/s. Their bits take 4 KiB. Feedback on older
/// packets is ignored.
const WINDOW: u64 = 1 << 14;
const WORDS: usize = (WINDOW / 64) as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fate_counts_once_and_only_for_sent_packets() {
        let mut ledger = PacketLog::default();
        ledger.send(7, true);
        ledger.send(8, false);
        assert_eq!(ledger.settle(9), None);
        assert_eq!(ledger.settle(7), Some(true));
        assert_eq!(ledger.settle(7), None);
        assert_eq!(ledger.settle(8), Some(false));
        ledger.send(9, true);
        ledger.send(9 + WINDOW, false);
        assert_eq!(ledger.settle(9), None, "too old");
        assert_eq!(ledger.settle(9 + WINDOW), Some(false));
        ledger.send(u64::MAX, true);
        assert_eq!(
            ledger.settle(u64::MAX),
            None,
            "sequence number at the counter limit"
        );
    }
}
