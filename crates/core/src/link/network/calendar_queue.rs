//! Entries by the moment at which they are due: a calendar whose days are arrays.
//!
//! Compare [`TimerQueue`](crate::timer_queue::TimerQueue), whose deadlines move. Here they stay, and come out in
//! order.

use core::mem;

use crate::units::{Time, nanos};

/// What a calendar keeps: in the order of time, and then in an order of its own.
pub(super) trait Due: Copy + Ord {
    /// When it is due.
    fn due(&self) -> Time;
}

/// The next entries are in order, the others by day. The length of a day follows the entries.
#[derive(Debug)]
pub(super) struct CalendarQueue<E> {
    /// When the next one is due; [`Time::FAR`] if there is none.
    due: Time,
    /// All before the day `cursor`, in order; those before `next` were taken.
    front: Vec<E>,
    next: usize,
    /// A ring of days, the length of which is zero or a power of two.
    ring: Vec<Vec<E>>,
    /// A bit for each of them that is not empty.
    full: Vec<u64>,
    /// Room for days.
    spare: Vec<Vec<E>>,
    /// The ring has the days from this one on. A day is a number of nanoseconds without its lower
    /// `shift` bits.
    cursor: u64,
    shift: u32,
    /// Later ones, and the day of the first of them.
    beyond: Vec<E>,
    beyond_from: u64,
    /// How many are in the ring or beyond it.
    waiting: usize,
    /// So many of the next ones are in order at least, and so many share a day.
    known: usize,
    wanted: u64,
    /// How many came to the front since the length of a day was looked at, and which moment that was.
    passed: usize,
    looked: Time,
}

impl<E> Default for CalendarQueue<E> {
    /// Empty, and without room for anything.
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
    /// Empty. At least `known` of the next ones, and one, are in order at any time; `wanted` share a
    /// day.
    pub(super) fn new(known: usize, wanted: u64) -> Self {
        Self {
            known: known.max(1),
            wanted,
            ring: (0..DAYS).map(|_| Vec::new()).collect(),
            full: vec![0; DAYS / 64],
            ..Self::default()
        }
    }

    /// When the next one is due; [`Time::FAR`] if there is none.
    #[inline]
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// The next one.
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

    /// Takes out the next one.
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

    /// The next ones but for the first `from`, `count` if so many are known.
    #[inline]
    pub(super) fn coming(&self, from: usize, count: usize) -> &[E] {
        let from = self.next + from;
        let end = self.front.len().min(from + count);
        self.front.get(from..end).unwrap_or_default()
    }

    /// All, in no order.
    pub(super) fn into_all(mut self) -> Vec<E> {
        self.front.drain(..self.next);
        let rest = self.ring.into_iter().flatten().chain(self.beyond);
        self.front.into_iter().chain(rest).collect()
    }

    /// Takes out those that `are` wanted, in order.
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

    /// Among those at the front. Where many are, days have become too long.
    #[inline(never)]
    fn jump_in(&mut self, entry: E) {
        let soon = &self.front[self.next..];
        let place = soon.partition_point(|other| *other < entry);
        if soon.len() > MOST_SOON {
            let shift = shift_of(soon, self.wanted);
            if shift + 1 < self.shift {
                self.cut_anew(shift);
                return self.put(entry);
            }
        }
        self.front.insert(self.next + place, entry);
    }

    /// In the ring or beyond it.
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

    /// Brings days to the front; there is something to bring.
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
            self.cut_anew(shift);
        }
    }

    /// Brings days to the front until enough is known.
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

    /// The next day of the ring that is not empty.
    fn next_day(&mut self) -> u64 {
        loop {
            let day = self.day_from(self.cursor);
            if let Some(day) = day.filter(|day| *day < self.beyond_from) {
                return day;
            }
            // The first that is beyond the ring is next.
            self.cursor = self.beyond_from;
            self.beyond_from = u64::MAX;
            let beyond = mem::take(&mut self.beyond);
            self.waiting -= beyond.len();
            for entry in beyond {
                self.keep(entry.due().as_nanos() >> self.shift, entry);
            }
        }
    }

    /// The first day of the ring from `cursor` on that is not empty.
    fn day_from(&self, cursor: u64) -> Option<u64> {
        let start = cursor as usize % DAYS;
        let words = DAYS / 64;
        // The word of the first day comes twice: its upper bits first, its lower ones last.
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

    /// Gives days another length.
    #[cold]
    fn cut_anew(&mut self, shift: u32) {
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

/// For so many entries a day, where these are some in a row.
fn shift_of<E: Due>(row: &[E], wanted: u64) -> u32 {
    let (Some(first), Some(last)) = (row.first(), row.last()) else {
        return FIRST_SHIFT;
    };
    shift_for(nanos(last.due().since(first.due())), row.len(), wanted)
}

/// The same where so many take so many ns.
fn shift_for(span: u64, count: usize, wanted: u64) -> u32 {
    let gap = span / count.max(1) as u64;
    let length = gap.saturating_mul(wanted).max(1);
    length.ilog2().clamp(LEAST_SHIFT, MOST_SHIFT)
}

/// Days of the ring.
const DAYS: usize = 1024;

/// Days of 66 us at first, and of 0.5 us to 18 minutes.
const FIRST_SHIFT: u32 = 16;
const LEAST_SHIFT: u32 = 9;
const MOST_SHIFT: u32 = 40;

/// After so many entries the length of a day is looked at, and where so many are at the front.
const PERIOD: usize = 512;
const MOST_SOON: usize = 1024;

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

    /// More than a ring holds, then as dense as can be, then at one moment.
    #[test]
    fn days_follow_the_packets() {
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
