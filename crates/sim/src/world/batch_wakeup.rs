//! Timer wheel for nodes, with the resolution of a slot.

use core::mem;

use tidegate_core::units::Time;

/// Timer wheel for callers that run all timers of a slot together in any order, which is cheaper
/// than a priority queue.
///
/// A timer that moves later keeps its slot. The caller reads the true deadline when that slot is
/// due.
#[derive(Debug, Default)]
pub(super) struct BatchWakeup {
    /// Entry of each node: its deadline or an earlier time. [`Time::FAR`] if there is none.
    planned: Vec<Time>,
    /// Nodes per slot from slot `next` on, as a ring. It may hold stale entries of nodes that have
    /// moved. The slot of a time is its nanoseconds without the lower `shift` bits.
    ring: Vec<Vec<u32>>,
    next: u64,
    shift: u32,
    /// Nodes of slots beyond the ring, and a lower bound of those slots.
    beyond: Vec<u32>,
    beyond_from: u64,
    /// Remaining nodes of the slot before `next`.
    open: Vec<u32>,
}

impl BatchWakeup {
    /// A wheel for `nodes` nodes without timers, with slots of at most `length` ns.
    pub(super) fn new(nodes: usize, length: u64) -> Self {
        Self {
            planned: vec![Time::FAR; nodes],
            ring: (0..ROUNDS).map(|_| Vec::new()).collect(),
            shift: length.max(1).ilog2(),
            beyond_from: u64::MAX,
            ..Self::default()
        }
    }

    /// Schedules a node at `due`; [`Time::FAR`] schedules nothing.
    #[inline]
    pub(super) fn plan(&mut self, node: usize, due: Time) {
        let planned = &mut self.planned[node];
        if due < *planned {
            *planned = due;
            self.put(node as u32, due);
        }
    }

    /// Slot of the time `at`.
    #[inline]
    pub(super) fn round_of(&self, at: Time) -> u64 {
        at.as_nanos() >> self.shift
    }

    /// Begin of the first slot that is not yet open.
    #[inline]
    pub(super) fn start(&self) -> Time {
        Time::from_nanos(self.next << self.shift)
    }

    /// Removes and returns a node of a slot before `end`. The caller [schedules](Self::plan) it
    /// again.
    #[inline]
    pub(super) fn take(&mut self, end: u64) -> Option<usize> {
        loop {
            while let Some(node) = self.open.pop() {
                let round = self.planned[node as usize].as_nanos() >> self.shift;
                // The node may have moved to another slot in the meantime.
                if round < self.next {
                    self.planned[node as usize] = Time::FAR;
                    return Some(node as usize);
                }
            }
            if self.next >= end {
                return None;
            }
            self.turn();
        }
    }

    /// Reopens a slot, so that nodes scheduled in it again are returned once more.
    pub(super) fn reopen(&mut self, round: u64) {
        self.next = self.next.min(round);
    }

    /// Skips empty slots up to `limit`. Returns the begin of the next slot.
    pub(super) fn skip_to(&mut self, limit: Time) -> Time {
        let limit = self.round_of(limit);
        let rounds = self.next..self.next + ROUNDS as u64;
        let mut full = rounds.filter(|round| !self.ring[*round as usize % ROUNDS].is_empty());
        let first = full.next().unwrap_or(u64::MAX).min(self.beyond_from);
        self.next = self.next.max(first.min(limit));
        self.start()
    }

    fn put(&mut self, node: u32, due: Time) {
        let round = self.round_of(due);
        // A node in the slot being drained goes to the ring, and is found if that slot is reopened.
        if round < self.next + ROUNDS as u64 - 1 {
            self.ring[round as usize % ROUNDS].push(node);
        } else {
            self.beyond.push(node);
            self.beyond_from = self.beyond_from.min(round);
        }
    }

    /// Opens the next slot.
    #[inline(never)]
    fn turn(&mut self) {
        if self.next >= self.beyond_from {
            self.beyond_from = u64::MAX;
            for node in mem::take(&mut self.beyond) {
                let due = self.planned[node as usize];
                if due < Time::FAR {
                    self.put(node, due);
                }
            }
        }
        mem::swap(&mut self.open, &mut self.ring[self.next as usize % ROUNDS]);
        self.next += 1;
    }
}

const ROUNDS: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each node is returned by the end of the slot of its deadline, and once per call of
        /// `plan`, for steps of any length.
        #[test]
        fn every_timer_runs_once_in_its_slot(
            length in 1..5_000_u64,
            steps in prop::collection::vec((0..40_000_u64, any::<bool>()), 1..60),
            plans in prop::collection::vec((0..9_usize, 0..17_u32, 0..900_u64), 300),
        ) {
            let mut rounds = BatchWakeup::new(9, length);
            let mut due = [Time::FAR; 9];
            let mut plans = plans.into_iter().cycle();
            let mut now = 0;
            for (step, last) in steps {
                for (node, scale, span) in plans.by_ref().take(4) {
                    // Not before the next slot.
                    let from = rounds.start().as_nanos().max(now);
                    let at = Time::from_nanos(from + (span << scale));
                    due[node] = due[node].min(at);
                    rounds.plan(node, at);
                }
                now += step;
                let limit = Time::from_nanos(now);
                let end = rounds.round_of(limit) + u64::from(last);
                while let Some(node) = rounds.take(end) {
                    prop_assert!(due[node] < Time::FAR);
                    // Some deadlines are later in the last slot.
                    let later = last && rounds.round_of(due[node]) == rounds.round_of(limit) && due[node] > limit;
                    let again = due[node];
                    due[node] = Time::FAR;
                    if later {
                        due[node] = again;
                        rounds.plan(node, again);
                    }
                }
                if last {
                    rounds.reopen(rounds.round_of(limit));
                }
                let left = if last { Time::from_nanos(now + 1) } else { rounds.start() };
                prop_assert!(due.iter().all(|due| *due >= left));
                let first = due.iter().min().unwrap();
                prop_assert!(rounds.skip_to((*first).min(Time::from_nanos(now + 9_000))) <= *first);
                now = now.max(rounds.start().as_nanos());
            }
        }
    }
}
