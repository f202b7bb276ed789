//! Calendar queue with fixed deadlines and array buckets.
//!
//! In [`TimerQueue`](crate::timer_queue::TimerQueue) deadlines change. Here entries are only added
//! and removed in order.

use core::mem;

use crate::units::{Time, nanos};

/// Entry of a calendar queue. `Ord` sorts by deadline first.
pub(super) trait Due: Copy + Ord {
    /// Deadline.
    fn due(&self) -> Time;
}

/// A sorted front and a ring of unsorted days (buckets). The length of a day adapts to the entries.
#[derive(Debug)]
pub(super) struct CalendarQueue<E> {
    /// Earliest deadline; [`Time::FAR`] if there is none.
    due: Time,
    /// Entries before the day `cursor`, sorted; those before `next` have been removed.
    front: Vec<E>,
    next: usize,
    /// Ring of days. The length is zero or a power of two.
    ring: Vec<Vec<E>>,
    /// Bitmap of the non-empty days of the ring.
    full: Vec<u64>,
    /// Spare allocations for days.
    spare: Vec<Vec<E>>,
    /// First day of the ring. The number of a day is the time in ns shifted right by `shift`.
    cursor: u64,
    shift: u32,
    /// Entries beyond the ring, and the day of the earliest one.
    beyond: Vec<E>,
    beyond_from: u64,
    /// Number of entries in the ring or beyond it.
    waiting: usize,
    /// Minimum number of sorted entries, and desired number of entries per day.
    known: usize,
    wanted: u64,
    /// Entries moved to the front since the last check of the day length, and the time of that
    /// check.
    passed: usize,
    looked: Time,
}

impl<E> Default for CalendarQueue<E> {
    /// Empty, without allocation.
    fn default() -> Self {
        Self {
            due: Time::FAR,
            front: Vec::new(),
            next: 0,
            ring: Vec::new(),
            full: Vec::new(),
            spare: Vec::new(),
            cursor: 0,
            shift: FIRST_SHIFT,
            beyond: Vec::new(),
            beyond_from: u64::MAX,
            waiting: 0,
            known: 1,
            wanted: 1,
            passed: 0,
            looked: Time::ZERO,
        }
    }
}

impl<E: Due> CalendarQueue<E> {
    /// Empty queue. At least `known` + 1 of the next entries are sorted at any time. `wanted` is
    /// the desired number of entries per day.
    pub(super) fn new(known: usize, wanted: u64) -> Self {
        Self {
            known: known.max(1),
            wanted,
            ring: (0..DAYS).map(|_| Vec::new()).collect(),
            full: vec![0; DAYS / 64],
            ..Self::default()
        }
    }

    /// Earliest deadline; [`Time::FAR`] if there is none.
    #[inline]
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// The earliest entry.
    #[inline]
    pub(super) fn first(&self) -> Option<&E> {
        self.front.get(self.next)
    }

    #[inline]
    pub(super) fn put(&mut self, entry: E) {
        let day = entry.due().as_nanos() >> self.shift;
        self.due = self.due.min(entry.due());
        if day < self.cursor {
            self.jump_in(entry);
            return;
        }
        self.keep(day, entry);
        if self.front.len() == self.next {
            self.refill();
        }
    }

    /// Removes the earliest entry.
    #[inline]
    pub(super) fn take(&mut self) -> Option<E> {
        let entry = *self.front.get(self.next)?;
        self.next += 1;
        if self.front.len() - self.next < self.known && self.waiting > 0 {
            self.refill();
        }
        self.due = self.first().map_or(Time::FAR, E::due);
        Some(entry)
    }

    /// Up to `count` sorted entries in order, from index `from` on.
    #[inline]
    pub(super) fn coming(&self, from: usize, count: usize) -> &[E] {
        let from = self.next + from;
        let end = self.front.len().min(from + count);
        self.front.get(from..end).unwrap_or_default()
    }

    /// All entries, unordered.
    pub(super) fn into_all(mut self) -> Vec<E> {
        self.front.drain(..self.next);
        let rest = self.ring.into_iter().flatten().chain(self.beyond);
        self.front.into_iter().chain(rest).collect()
    }

    /// Removes the entries for which `are` holds, and returns them in order.
    pub(super) fn take_those(&mut self, mut are: impl FnMut(&E) -> bool) -> Vec<E> {
        self.front.drain(..self.next);
        self.next = 0;
        let mut are = |entry: &mut E| are(entry);
        let mut own: Vec<_> = self.front.extract_if(.., &mut are).collect();
        let known = own.len();
        for list in self.ring.iter_mut().chain([&mut self.beyond]) {
            own.extend(list.extract_if(.., &mut are));
        }
        own.sort_unstable();
        self.waiting -= own.len() - known;
        if self.front.len() == self.next && self.waiting > 0 {
            self.refill();
        }
        self.due = self.first().map_or(Time::FAR, E::due);
        own
    }

    /// Inserts into the sorted front. A long front indicates that days are too long.
    #[inline(never)]
    fn jump_in(&mut self, entry: E) {
        let soon = &self.front[self.next..];
        let place = soon.partition_point(|other| *other < entry);
        if soon.len() > MAX_SOON {
            let shift = shift_of(soon, self.wanted);
            if shift + 1 < self.shift {
                self.change_day_length(shift);
                return self.put(entry);
            }
        }
        self.front.insert(self.next + place, entry);
    }

    /// Inserts into the ring or beyond it.
    #[inline]
    fn keep(&mut self, day: u64, entry: E) {
        self.waiting += 1;
        if day - self.cursor >= DAYS as u64 {
            self.beyond_from = self.beyond_from.min(day);
            self.beyond.push(entry);
            return;
        }
        let place = day as usize % DAYS;
        let list = &mut self.ring[place];
        if list.is_empty() {
            self.full[place / 64] |= 1 << (place % 64);
            if list.capacity() == 0 {
                *list = self.spare.pop().unwrap_or_default();
            }
        }
        list.push(entry);
    }

    /// Moves days to the front. There must be entries in the ring or beyond it.
    #[inline(never)]
    fn refill(&mut self) {
        self.front.drain(..self.next);
        self.next = 0;
        self.fill();
        if self.passed < PERIOD {
            return;
        }
        let first = self.first().map_or(Time::ZERO, E::due);
        let shift = match self.front.len() {
            many if many >= PERIOD => shift_of(&self.front, self.wanted),
            _ => shift_for(nanos(first.since(self.looked)), self.passed, self.wanted),
        };
        (self.passed, self.looked) = (0, first);
        if shift.abs_diff(self.shift) > 1 {
            self.change_day_length(shift);
        }
    }

    /// Moves days to the front until `known` entries are sorted.
    fn fill(&mut self) {
        while self.front.len() - self.next < self.known && self.waiting > 0 {
            let day = self.next_day();
            let place = day as usize % DAYS;
            self.cursor = day + 1;
            self.full[place / 64] &= !(1 << (place % 64));
            let mut list = mem::take(&mut self.ring[place]);
            list.sort_unstable();
            self.waiting -= list.len();
            self.passed += list.len();
            self.front.append(&mut list);
            self.spare.push(list);
        }
    }

    /// The next non-empty day of the ring.
    fn next_day(&mut self) -> u64 {
        loop {
            let day = self.day_from(self.cursor);
            if let Some(day) = day.filter(|day| *day < self.beyond_from) {
                return day;
            }
            // The earliest entry beyond the ring is next.
            self.cursor = self.beyond_from;
            self.beyond_from = u64::MAX;
            let beyond = mem::take(&mut self.beyond);
            self.waiting -= beyond.len();
            for entry in beyond {
                self.keep(entry.due().as_nanos() >> self.shift, entry);
            }
        }
    }

    /// The first non-empty day of the ring from `cursor` on.
    fn day_from(&self, cursor: u64) -> Option<u64> {
        let start = cursor as usize % DAYS;
        let words = DAYS / 64;
        // The first word is visited twice: its upper bits first, its lower bits last.
        (0..=words).find_map(|i| {
            let word = (start / 64 + i) % words;
            let mask = match i {
                0 => u64::MAX << (start % 64),
                i if i == words => !(u64::MAX << (start % 64)),
                _ => u64::MAX,
            };
            let bits = self.full[word] & mask;
            (bits != 0).then(|| {
                let place = word * 64 + bits.trailing_zeros() as usize;
                cursor + ((place + DAYS - start) % DAYS) as u64
            })
        })
    }

    /// Changes the length of days.
    #[cold]
    fn change_day_length(&mut self, shift: u32) {
        let lists = self.ring.iter_mut().chain([&mut self.beyond]);
        let mut all: Vec<_> = lists.flat_map(|list| list.drain(..)).collect();
        all.extend(self.front.drain(..).skip(self.next));
        let first = all.iter().map(E::due).min();
        self.full.fill(0);
        (self.next, self.waiting) = (0, 0);
        (self.passed, self.looked) = (0, first.unwrap_or_default());
        self.beyond_from = u64::MAX;
        self.shift = shift;
        self.cursor = first.map_or(0, |first| first.as_nanos() >> shift);
        for entry in all {
            self.keep(entry.due().as_nanos() >> shift, entry);
        }
        self.fill();
    }
}

/// Shift for `wanted` entries per day, estimated from sorted entries.
fn shift_of<E: Due>(row: &[E], wanted: u64) -> u32 {
    let (Some(first), Some(last)) = (row.first(), row.last()) else {
        return FIRST_SHIFT;
    };
    shift_for(nanos(last.due().since(first.due())), row.len(), wanted)
}

/// Shift for `wanted` entries per day, given `count` entries in `span` ns.
fn shift_for(span: u64, count: usize, wanted: u64) -> u32 {
    let gap = span / count.max(1) as u64;
    let length = gap.saturating_mul(wanted).max(1);
    length.ilog2().clamp(MIN_SHIFT, MAX_SHIFT)
}

/// Number of days of the ring.
const DAYS: usize = 1024;

/// Initial length of a day: 2^16 ns = 66 us. The range is 0.5 us to 18 minutes.
const FIRST_SHIFT: u32 = 16;
const MIN_SHIFT: u32 = 9;
const MAX_SHIFT: u32 = 40;

/// Number of entries, in total or at the front, after which the day length is checked.
const PERIOD: usize = 512;
const MAX_SOON: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Leaving(Time, u32);

    impl Due for Leaving {
        fn due(&self) -> Time {
            self.0
        }
    }

    /// More entries than the ring holds, then maximum density, then equal deadlines.
    #[test]
    fn day_length_adapts_to_the_density() {
        let mut days = CalendarQueue::new(36, 128);
        let shifts = [10_000_000_000, 1_000_000, 10, 0].map(|gap| {
            let from = days.cursor << days.shift;
            for i in 0..40_000 {
                days.put(Leaving(Time::from_nanos(from + i * gap), i as u32));
            }
            let mut last = days.due();
            for _ in 0..40_000 {
                let next = days.take().unwrap();
                assert!(next.0 >= last);
                last = next.0;
            }
            assert_eq!(days.take(), None);
            assert_eq!(days.due(), Time::FAR);
            days.shift
        });
        assert_eq!(shifts, [40, 26, 10, 10]);
    }
}
