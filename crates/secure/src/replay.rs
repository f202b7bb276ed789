//! Replay protection (RFC 3711 section 3.3.2).

/// Indices that were received, up to [`SIZE`] below the highest.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayWindow {
    /// Highest index received plus one; 0 before the first.
    next: u64,
    /// Bit `index % SIZE` of each index in the window.
    seen: [u64; WORDS],
}

impl ReplayWindow {
    /// Highest index received.
    pub(crate) fn highest(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }

    /// Whether the packet of `index` was not received before. An index below the window counts as
    /// received.
    pub(crate) fn is_new(&self, index: u64) -> bool {
        if index >= self.next {
            return true;
        }
        index + SIZE >= self.next && self.seen[word(index)] & bit(index) == 0
    }

    /// Marks an index of an authentic packet, for which [`is_new`](Self::is_new) holds.
    pub(crate) fn insert(&mut self, index: u64) {
        if index >= self.next {
            let gone = self.next..=index;
            if index - self.next >= SIZE {
                self.seen = [0; WORDS];
            } else {
                gone.for_each(|passed| self.seen[word(passed)] &= !bit(passed));
            }
            self.next = index + 1;
        }
        self.seen[word(index)] |= bit(index);
    }
}

fn word(index: u64) -> usize {
    (index % SIZE / 64) as usize
}

fn bit(index: u64) -> u64 {
    1 << (index % 64)
}

/// A second of video at 10 Mb/s: packets of a path with several queues may arrive that late. The
/// minimum is 64.
const SIZE: u64 = 1_024;
const WORDS: usize = SIZE as usize / 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_index_is_accepted_once(steps in proptest::collection::vec(-1_500_i64..1_500, 1..300)) {
            let (mut window, mut accepted, mut index) = (ReplayWindow::default(), BTreeSet::new(), 5_000_i64);
            for step in steps {
                index = (index + step).max(0);
                let index = index as u64;
                let is_new = window.is_new(index);
                let highest = accepted.last().copied();
                let is_old = highest.is_some_and(|highest| index + SIZE <= highest);
                prop_assert_eq!(is_new, !accepted.contains(&index) && !is_old);
                if is_new {
                    window.insert(index);
                    accepted.insert(index);
                }
                prop_assert_eq!(window.highest(), accepted.last().copied());
            }
        }
    }
}
