//! Who wants to be woken when, to the accuracy of a round.

use core::mem;

use tidegate_core::units::Time;

/// The deadline of each party, for callers who wake up all of a round together and in any order, which
/// costs less than to know who is first.
///
/// A deadline that moves away stays where it is until its round has come: who asks then finds it.
#[derive(Debug, Default)]
pub(super) struct BatchWakeup {
    /// What is written down for each party: its deadline, or an earlier moment; [`Time::FAR`] for none.
    planned: Vec<Time>,
    /// The parties of each round, and some that are no longer of that round, in a ring from the round
    /// `next` on. A round is a number of nanoseconds without its lower `shift` bits.
    ring: Vec<Vec<u32>>,
    next: u64,
    shift: u32,
    /// Those of later rounds, and a round that is not later than any of theirs.
    beyond: Vec<u32>,
    beyond_from: u64,
    /// What is left of the round before `next`.
    open: Vec<u32>,
}

impl BatchWakeup {
    /// Of so many parties that want nothing, with rounds of at most so many ns.
    pub(super) fn new(parties: usize, length: u64) -> Self {
        Self {
            planned: vec![Time::FAR; parties],
            ring: (0..ROUNDS).map(|_| Vec::new()).collect(),
            shift: length.max(1).ilog2(),
            beyond_from: u64::MAX,
            ..Self::default()
        }
    }

    /// A party wants to be woken then; [`Time::FAR`] for never.
    #[inline]
    pub(super) fn plan(&mut self, party: usize, due: Time) {
        let planned = &mut self.planned[party];
        if due < *planned {
            *planned = due;
            self.put(party as u32, due);
        }
    }

    /// The round that has `at`.
    #[inline]
    pub(super) fn round_of(&self, at: Time) -> u64 {
        at.as_nanos() >> self.shift
    }

    /// When the next round begins that nobody was taken of.
    #[inline]
    pub(super) fn start(&self) -> Time {
        Time::from_nanos(self.next << self.shift)
    }

    /// A party of a round before `end`, if there is any left. It is to be [planned](Self::plan) again.
    #[inline]
    pub(super) fn take(&mut self, end: u64) -> Option<usize> {
        loop {
            while let Some(party) = self.open.pop() {
                let round = self.planned[party as usize].as_nanos() >> self.shift;
                // It may have been moved to another round since.
                if round < self.next {
                    self.planned[party as usize] = Time::FAR;
                    return Some(party as usize);
                }
            }
            if self.next >= end {
                return None;
            }
            self.turn();
        }
    }

    /// A round was not over after all: those of it that were planned again are to be taken once more.
    pub(super) fn reopen(&mut self, round: u64) {
        self.next = self.next.min(round);
    }

    /// Nothing happens before `limit`: rounds without anybody are left out. When the next one begins.
    pub(super) fn skip_to(&mut self, limit: Time) -> Time {
        let limit = self.round_of(limit);
        let rounds = self.next..self.next + ROUNDS as u64;
        let mut full = rounds.filter(|round| !self.ring[*round as usize % ROUNDS].is_empty());
        let first = full.next().unwrap_or(u64::MAX).min(self.beyond_from);
        self.next = self.next.max(first.min(limit));
        self.start()
    }

    fn put(&mut self, party: u32, due: Time) {
        let round = self.round_of(due);
        // That of the round that is being taken has room, and is seen if that is reopened.
        if round < self.next + ROUNDS as u64 - 1 {
            self.ring[round as usize % ROUNDS].push(party);
        } else {
            self.beyond.push(party);
            self.beyond_from = self.beyond_from.min(round);
        }
    }

    /// Opens the next round.
    #[inline(never)]
    fn turn(&mut self) {
        if self.next >= self.beyond_from {
            self.beyond_from = u64::MAX;
            for party in mem::take(&mut self.beyond) {
                let due = self.planned[party as usize];
                if due < Time::FAR {
                    self.put(party, due);
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
        /// Parties plan as time goes on in steps of any length; each is taken by the end of the round of
        /// its deadline, and nobody is taken twice without a plan.
        #[test]
        fn nobody_is_left_out(
            length in 1..5_000_u64,
            steps in prop::collection::vec((0..40_000_u64, any::<bool>()), 1..60),
            plans in prop::collection::vec((0..9_usize, 0..17_u32, 0..900_u64), 300),
        ) {
            let mut rounds = BatchWakeup::new(9, length);
            let mut due = [Time::FAR; 9];
            let mut plans = plans.into_iter().cycle();
            let mut now = 0;
            for (step, last) in steps {
                for (party, scale, span) in plans.by_ref().take(4) {
                    // Never before the round that is next.
                    let from = rounds.start().as_nanos().max(now);
                    let at = Time::from_nanos(from + (span << scale));
                    due[party] = due[party].min(at);
                    rounds.plan(party, at);
                }
                now += step;
                let limit = Time::from_nanos(now);
                let end = rounds.round_of(limit) + u64::from(last);
                while let Some(party) = rounds.take(end) {
                    prop_assert!(due[party] < Time::FAR);
                    // Some of the last round want to be woken later.
                    let later = last && rounds.round_of(due[party]) == rounds.round_of(limit) && due[party] > limit;
                    let again = due[party];
                    due[party] = Time::FAR;
                    if later {
                        due[party] = again;
                        rounds.plan(party, again);
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
