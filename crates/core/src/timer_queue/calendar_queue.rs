//! Timer queue for many slots.

use core::mem;

use crate::units::Time;

/// Calendar queue (Brown, "Calendar queues: a fast O(1) priority queue implementation for the
/// simulation event set problem", CACM 31(10), 1988). Time is divided into days of equal length; a
/// ring of days has a list of slots per day. Only the current day is sorted. Deadlines beyond the
/// ring are in one more list. The day length adapts to the density of deadlines.
///
/// Ties are broken by the lower slot, so the order is total and independent of the day length.
/// Allocates only if a day has more deadlines than any before.
#[derive(Clone, Debug)]
pub(super) struct CalendarQueue {
    nodes: Vec<Node>,
    /// First slot of each list: one per day of the ring, then the one beyond it.
    lists: Vec<u32>,
    /// Bitmap of the non-empty days of the ring.
    full: Vec<u64>,
    /// All deadlines before the day `cursor`, the latest first; non-empty unless the queue is
    /// empty.
    front: Vec<(Time, u32)>,
    /// First day of the ring. The number of a day is the time in ns shifted right by `shift`.
    cursor: u64,
    shift: u32,
    /// Lower bound of the days beyond the ring.
    beyond: u64,
    /// Deadlines moved to the front since the last check of the day length, and the earliest one at
    /// that check.
    passed: u32,
    since: Time,
    /// Whether the front was refilled since the last query.
    begun: bool,
    /// Days before this one were reported by `coming`.
    seen: u64,
}

/// State of a slot.
#[derive(Clone, Copy, Debug)]
struct Node {
    at: Time,
    /// Next slot of the list, or [`NONE`].
    next: u32,
    /// Previous slot, or [`FRONT`], or [`LIST`] plus the number of the list that the slot heads.
    before: u32,
}

impl CalendarQueue {
    /// Queue of `slots` slots without deadlines; at most 2³¹.
    pub(super) fn new(slots: usize) -> Self {
        let days = slots.next_power_of_two().clamp(MIN_DAYS, MAX_DAYS);
        let node = Node {
            at: Time::FAR,
            next: NONE,
            before: FRONT,
        };
        Self {
            nodes: vec![node; slots],
            lists: vec![NONE; days + 1],
            full: vec![0; days / 64],
            front: Vec::new(),
            cursor: 0,
            shift: FIRST_SHIFT,
            beyond: days as u64,
            passed: 0,
            since: Time::ZERO,
            begun: false,
            seen: 0,
        }
    }

    /// Earliest deadline and its slot; [`Time::FAR`] if there is none.
    #[inline]
    pub(super) fn first(&self) -> (Time, usize) {
        match self.front.last() {
            Some((at, slot)) => (*at, *slot as usize),
            None => (Time::FAR, 0),
        }
    }

    /// Deadline of a slot; [`Time::FAR`] if it has none. Panics if the slot does not exist.
    #[inline]
    pub(super) fn get(&self, slot: usize) -> Time {
        self.nodes[slot].at
    }

    /// Sets the deadline of a slot; [`Time::FAR`] removes it. Panics if the slot does not exist.
    #[inline]
    pub(super) fn set(&mut self, slot: usize, at: Time) {
        let was = self.nodes[slot].at;
        if was == at {
            return;
        }
        if was != Time::FAR {
            self.remove(slot as u32);
        }
        self.nodes[slot].at = at;
        if at != Time::FAR {
            self.insert(slot as u32, at);
        }
        if self.front.is_empty() {
            self.refill();
        }
    }

    /// Sets the deadline of the [`first`](Self::first) slot. No effect on an empty queue.
    #[inline]
    pub(super) fn set_first(&mut self, at: Time) {
        let Some((_, slot)) = self.front.pop() else {
            return;
        };
        self.nodes[slot as usize].at = at;
        if at != Time::FAR {
            self.insert(slot, at);
        }
        if self.front.is_empty() {
            self.refill();
        }
    }

    /// Whether the front was refilled since the last call.
    #[inline]
    pub(super) fn begun(&mut self) -> bool {
        mem::take(&mut self.begun)
    }

    /// End of the current day.
    #[inline]
    pub(super) fn reached(&self) -> Time {
        Time::from_nanos(self.cursor << self.shift)
    }

    /// Appends the slots of the next unreported day to `slots`, and returns its start; `None` if
    /// there is none in the ring.
    pub(super) fn coming(&mut self, slots: &mut Vec<u32>) -> Option<Time> {
        let day = self.day_from(self.seen.max(self.cursor))?;
        self.seen = day + 1;
        let mut slot = self.lists[day as usize & (self.days() - 1)];
        while slot != NONE {
            slots.push(slot);
            slot = self.nodes[slot as usize].next;
        }
        Some(Time::from_nanos(day << self.shift))
    }

    #[inline]
    fn days(&self) -> usize {
        self.lists.len() - 1
    }

    #[inline]
    fn insert(&mut self, slot: u32, at: Time) {
        let day = at.as_nanos() >> self.shift;
        if day < self.cursor {
            self.insert_front(slot, at);
        } else {
            self.link(slot, day);
        }
    }

    /// Inserts into the sorted front.
    fn insert_front(&mut self, slot: u32, at: Time) {
        let entry = (at, slot);
        let place = self.front.partition_point(|other| *other > entry);
        self.front.insert(place, entry);
        self.nodes[slot as usize].before = FRONT;
        self.passed += 1;
        if self.passed as usize > self.period() {
            self.tune();
        }
    }

    #[inline]
    fn link(&mut self, slot: u32, day: u64) {
        let days = self.days();
        let list = if day - self.cursor < days as u64 {
            let list = day as usize & (days - 1);
            self.full[list / 64] |= 1 << (list % 64);
            list
        } else {
            days
        };
        let next = mem::replace(&mut self.lists[list], slot);
        let node = &mut self.nodes[slot as usize];
        (node.next, node.before) = (next, LIST | list as u32);
        if next != NONE {
            self.nodes[next as usize].before = slot;
        }
    }

    #[inline]
    fn remove(&mut self, slot: u32) {
        let Node { at, next, before } = self.nodes[slot as usize];
        if before == FRONT {
            if self.front.last() == Some(&(at, slot)) {
                self.front.pop();
                return;
            }
            let place = self.front.partition_point(|other| *other > (at, slot));
            self.front.remove(place);
            return;
        }
        if before & LIST == 0 {
            self.nodes[before as usize].next = next;
        } else {
            let list = (before & !LIST) as usize;
            self.lists[list] = next;
            if next == NONE && list < self.days() {
                self.full[list / 64] &= !(1 << (list % 64));
            }
        }
        if next != NONE {
            self.nodes[next as usize].before = before;
        }
    }

    /// Moves the next day to the empty front, if there is one.
    fn refill(&mut self) {
        if self.passed as usize > self.period() {
            self.tune();
            return;
        }
        loop {
            let day = self.day_from(self.cursor);
            if let Some(day) = day
                && day < self.beyond
            {
                self.begin(day);
                return;
            }
            if day.is_none() && self.lists[self.days()] == NONE {
                return;
            }
            self.draw_near(day);
        }
    }

    /// The first non-empty day of the ring from `from` on.
    #[inline]
    fn day_from(&self, from: u64) -> Option<u64> {
        let mask = self.days() - 1;
        let start = from as usize & mask;
        let last = self.full.len() - 1;
        // One full circle; the first word has days of the start and of the end.
        let mut word = start / 64;
        let mut bits = self.full[word] & (!0 << (start % 64));
        for _ in 0..=last {
            if bits != 0 {
                break;
            }
            word = (word + 1) & last;
            bits = self.full[word];
        }
        let list = word * 64 + bits.trailing_zeros() as usize;
        let day = from + (list.wrapping_sub(start) & mask) as u64;
        (bits != 0 && day - self.cursor <= mask as u64).then_some(day)
    }

    /// Moves the deadlines of a day to the front.
    fn begin(&mut self, day: u64) {
        let list = day as usize & (self.days() - 1);
        self.cursor = day + 1;
        self.full[list / 64] &= !(1 << (list % 64));
        let mut slot = mem::replace(&mut self.lists[list], NONE);
        while slot != NONE {
            let node = &mut self.nodes[slot as usize];
            self.front.push((node.at, slot));
            node.before = FRONT;
            slot = node.next;
        }
        self.passed += self.front.len() as u32;
        self.begun = true;
        match &mut self.front[..] {
            [_] => {}
            [one, other] => {
                if one < other {
                    mem::swap(one, other);
                }
            }
            all => all.sort_unstable_by(|a, b| b.cmp(a)),
        }
    }

    /// Advances the ring to `day` or earlier, and moves deadlines from beyond into it.
    fn draw_near(&mut self, day: Option<u64>) {
        let days = self.days();
        let far = mem::replace(&mut self.lists[days], NONE);
        let (mut slot, mut first) = (far, day.unwrap_or(u64::MAX));
        while slot != NONE {
            let node = &self.nodes[slot as usize];
            first = first.min(node.at.as_nanos() >> self.shift);
            slot = node.next;
        }
        self.cursor = first;
        self.beyond = first + days as u64;
        slot = far;
        while slot != NONE {
            let Node { at, next, .. } = self.nodes[slot as usize];
            self.link(slot, at.as_nanos() >> self.shift);
            slot = next;
        }
    }

    /// Number of deadlines after which the day length is checked.
    fn period(&self) -> usize {
        (4 * self.nodes.len()).max(MIN_PERIOD)
    }

    /// Adapts the day length if necessary, and refills an empty front.
    #[cold]
    fn tune(&mut self) {
        let live = |node: &&Node| node.at != Time::FAR;
        let first = self.nodes.iter().filter(live).map(|node| node.at).min();
        let Some(first) = first else {
            return;
        };
        let gap = first.as_nanos().saturating_sub(self.since.as_nanos()) / u64::from(self.passed);
        let shift = (gap * DAY).max(1).ilog2().clamp(MIN_SHIFT, MAX_SHIFT);
        (self.passed, self.since) = (0, first);
        if shift.abs_diff(self.shift) > 1 {
            self.shift = shift;
            self.front.clear();
            self.lists.fill(NONE);
            self.full.fill(0);
            self.cursor = first.as_nanos() >> shift;
            self.seen = 0;
            self.beyond = self.cursor + self.days() as u64;
            for slot in 0..self.nodes.len() {
                let at = self.nodes[slot].at;
                if at != Time::FAR {
                    self.link(slot as u32, at.as_nanos() >> shift);
                }
            }
        }
        if self.front.is_empty() {
            self.refill();
        }
    }
}

/// No slot.
const NONE: u32 = u32::MAX;
/// `before` of a slot at the front.
const FRONT: u32 = u32::MAX - 1;
/// Flag of a list number.
const LIST: u32 = 1 << 31;

/// Days of the ring, powers of two: at least the bits of a word, at most one megabyte.
const MIN_DAYS: usize = 64;
const MAX_DAYS: usize = 1 << 18;
/// Day length as a power of two in ns: initially 0.13 ms, from 64 ns to 17 s.
const FIRST_SHIFT: u32 = 17;
const MIN_SHIFT: u32 = 6;
const MAX_SHIFT: u32 = 34;
/// Average number of deadlines per day: at most this, at least half of it.
const DAY: u64 = 8;
const MIN_PERIOD: usize = 64;
