//! Sequence numbers of a stream, and those of the path.

use std::collections::VecDeque;

/// Maps sequence numbers of a stream to path sequence numbers.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Wire sequence number of the first entry.
    first: u64,
    paths: VecDeque<u64>,
}

/// Place of a sequence number.
pub(super) enum Found {
    At(u64),
    Forgotten,
    NeverSent {
        /// Distance from the last packet.
        ahead: u16,
    },
}

impl Index {
    pub(super) fn push(&mut self, wire_seq: u64, path_seq: u64) {
        if self.paths.is_empty() {
            self.first = wire_seq;
        }
        debug_assert_eq!(self.first + self.paths.len() as u64, wire_seq);
        self.paths.push_back(path_seq);
    }

    /// Number of stored packets.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.paths.len()
    }

    pub(super) fn find(&self, seq: u16) -> Found {
        let Some(last) = (self.first + self.paths.len() as u64).checked_sub(1) else {
            return Found::NeverSent { ahead: u16::MAX };
        };
        let ahead = seq.wrapping_sub(last as u16);
        if ahead != 0 && ahead < 0x8000 {
            return Found::NeverSent { ahead };
        }
        let back = u64::from((last as u16).wrapping_sub(seq));
        match last
            .checked_sub(back)
            .and_then(|s| s.checked_sub(self.first))
        {
            Some(at) => self
                .paths
                .get(at as usize)
                .map_or(Found::Forgotten, |&p| Found::At(p)),
            None => Found::Forgotten,
        }
    }

    pub(super) fn forget_before(&mut self, path_seq: u64) {
        while self.paths.front().is_some_and(|&p| p < path_seq) {
            self.paths.pop_front();
            self.first += 1;
        }
    }
}
