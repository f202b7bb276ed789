//! Sets of segment numbers as ranges.

use std::collections::VecDeque;

/// A set of segment numbers, kept as sorted ranges that neither touch nor overlap.
///
/// A network that loses one packet in a hundred leaves a hundredth as many ranges as there are
/// segments in the window, so this is smaller than a bitmap and a lookup is a binary search. In
/// steady state it does not allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// First number, and one after the last.
    list: VecDeque<(u32, u32)>,
    total: u64,
}

impl Ranges {
    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Number of elements.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The lowest range: first number, and one after the last.
    pub fn first(&self) -> Option<(u32, u32)> {
        self.list.front().copied()
    }

    /// The highest range: first number, and one after the last.
    pub fn last(&self) -> Option<(u32, u32)> {
        self.list.back().copied()
    }

    /// All ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.list.iter().copied()
    }

    /// Whether the set contains `number`.
    pub fn contains(&self, number: u32) -> bool {
        self.covering(number).is_some()
    }

    /// The range that contains `number`.
    pub fn covering(&self, number: u32) -> Option<(u32, u32)> {
        let i = self.list.partition_point(|r| r.1 <= number);
        self.list.get(i).copied().filter(|r| r.0 <= number)
    }

    /// Adds `from..to` and returns the range that contains it afterwards. An empty range changes
    /// nothing and is returned unchanged.
    pub fn insert(&mut self, from: u32, to: u32) -> (u32, u32) {
        if from >= to {
            return (from, to);
        }
        // Ranges that touch or overlap: they end at or after `from` and begin at or before `to`.
        let low = match self.list.back() {
            Some(last) if last.1 < from => self.list.len(),
            Some(last) if last.0 <= from => self.list.len() - 1,
            _ => self.list.partition_point(|r| r.1 < from),
        };
        let mut high = low;
        let (mut left, mut right) = (from, to);
        while let Some(r) = self.list.get(high)
            && r.0 <= to
        {
            self.total -= u64::from(r.1 - r.0);
            left = left.min(r.0);
            right = right.max(r.1);
            high += 1;
        }
        self.total += u64::from(right - left);
        if high == low {
            self.list.insert(low, (left, right));
        } else {
            self.list[low] = (left, right);
            if high > low + 1 {
                self.list.drain(low + 1..high);
            }
        }
        (left, right)
    }

    /// Removes all numbers below `bound`.
    pub fn clear_below(&mut self, bound: u32) {
        while let Some(front) = self.list.front_mut()
            && front.0 < bound
        {
            let kept = front.1.max(bound);
            self.total -= u64::from(front.1.min(bound) - front.0);
            if front.1 <= bound {
                self.list.pop_front();
            } else {
                *front = (bound, kept);
            }
        }
    }

    /// Removes all numbers.
    pub fn clear(&mut self) {
        self.list.clear();
        self.total = 0;
    }

    /// The first missing number from `from` on that is below an element.
    pub fn next_hole(&self, from: u32) -> Option<u32> {
        let end = self.list.back()?.1;
        let hole = self.covering(from).map_or(from, |r| r.1);
        (hole < end).then_some(hole)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_set(steps in prop::collection::vec((0..4_u32, 0..60_u32, 0..12_u32), 1..60)) {
            let mut ranges = Ranges::default();
            let mut set = BTreeSet::new();
            for (kind, from, len) in steps {
                if kind == 0 {
                    ranges.clear_below(from);
                    set.retain(|n| *n >= from);
                } else {
                    let (left, right) = ranges.insert(from, from + len);
                    set.extend(from..from + len);
                    if len > 0 {
                        prop_assert!(left <= from && right >= from + len);
                        prop_assert!((left..right).all(|n| set.contains(&n)));
                        prop_assert!(!set.contains(&right));
                        prop_assert!(left == 0 || !set.contains(&(left - 1)));
                    }
                }
                prop_assert_eq!(ranges.total(), set.len() as u64);
                let all: BTreeSet<u32> = ranges.iter().flat_map(|r| r.0..r.1).collect();
                prop_assert_eq!(&all, &set);
                let apart = ranges.iter().zip(ranges.iter().skip(1)).all(|(a, b)| a.1 < b.0);
                prop_assert!(apart && ranges.iter().all(|r| r.0 < r.1));
                let top = set.last().copied().unwrap_or(0);
                let hole = (from..top).find(|n| !set.contains(n));
                prop_assert_eq!(ranges.next_hole(from), hole);
                prop_assert_eq!(ranges.contains(from), set.contains(&from));
            }
        }
    }
}
