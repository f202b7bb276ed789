//! Timers for a fixed number of slots.

use crate::units::Time;

use calendar_queue::CalendarQueue;
use tournament_tree::{MAX_SLOTS, TournamentTree};

mod calendar_queue;
mod tournament_tree;

/// A deadline per slot, with access to the earliest one.
///
/// Ties are broken by the lower slot, so the order is total and independent of the data structure.
#[derive(Clone, Debug)]
pub struct TimerQueue {
    form: Form,
    slots: usize,
}

#[derive(Clone, Debug)]
enum Form {
    Few(TournamentTree),
    Many(CalendarQueue),
}

impl TimerQueue {
    /// Queue of `slots` slots without deadlines; at most 2³¹.
    pub fn new(slots: usize) -> Self {
        let form = if slots <= MAX_SLOTS {
            Form::Few(TournamentTree::new(slots))
        } else {
            Form::Many(CalendarQueue::new(slots))
        };
        Self { form, slots }
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Earliest deadline and its slot; [`Time::FAR`] if there is none.
    #[inline]
    pub fn first(&self) -> (Time, usize) {
        match &self.form {
            Form::Few(tree) => tree.first(),
            Form::Many(calendar) => calendar.first(),
        }
    }

    /// Deadline of an existing slot; [`Time::FAR`] if it has none.
    #[inline]
    pub fn get(&self, slot: usize) -> Time {
        match &self.form {
            Form::Few(tree) => tree.get(slot),
            Form::Many(calendar) => calendar.get(slot),
        }
    }

    /// Sets the deadline of an existing slot; [`Time::FAR`] removes it.
    #[inline]
    pub fn set(&mut self, slot: usize, at: Time) {
        match &mut self.form {
            Form::Few(tree) => {
                if !tree.set(slot, at) {
                    self.turn().set(slot, at);
                }
            }
            Form::Many(calendar) => calendar.set(slot, at),
        }
    }

    /// Sets the deadline of the [`first`](Self::first) slot.
    #[inline]
    pub(crate) fn set_first(&mut self, slot: usize, at: Time) {
        match &mut self.form {
            Form::Few(_) => self.set(slot, at),
            Form::Many(calendar) => calendar.set_first(at),
        }
    }

    /// Whether the front was refilled since the last call.
    #[inline]
    pub(crate) fn begun(&mut self) -> bool {
        match &mut self.form {
            Form::Few(_) => false,
            Form::Many(calendar) => calendar.begun(),
        }
    }

    /// With many slots: time before which no deadline is [`coming`](Self::coming).
    #[inline]
    pub(crate) fn reached(&self) -> Time {
        match &self.form {
            Form::Few(_) => Time::ZERO,
            Form::Many(calendar) => calendar.reached(),
        }
    }

    /// With many slots: appends the slots of the next unreported day to `slots`, and returns the
    /// start of that day. A prefetch hint: deadlines may still change.
    #[inline]
    pub(crate) fn coming(&mut self, slots: &mut Vec<u32>) -> Option<Time> {
        match &mut self.form {
            Form::Few(_) => None,
            Form::Many(calendar) => calendar.coming(slots),
        }
    }

    /// Switches to a calendar queue, which supports any deadline.
    #[cold]
    fn turn(&mut self) -> &mut CalendarQueue {
        let mut calendar = CalendarQueue::new(self.slots);
        for slot in 0..self.slots {
            calendar.set(slot, self.get(slot));
        }
        self.form = Form::Many(calendar);
        match &mut self.form {
            Form::Many(calendar) => calendar,
            Form::Few(_) => unreachable!("it has just become a calendar"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Times that coincide, share a day, or are days and rings apart.
    fn time() -> impl Strategy<Value = Time> {
        let nanos = (0..20_u64, 0..5_u32).prop_map(|(n, scale)| n << (10 * scale));
        let end = tournament_tree::END.as_nanos();
        prop_oneof![
            10 => Just(Time::FAR),
            90 => nanos.prop_map(Time::from_nanos),
            1 => (end - 3..end + 3).prop_map(Time::from_nanos),
        ]
    }

    proptest! {
        /// Comparison with a linear search, for arbitrary deadlines.
        #[test]
        fn the_earliest_is_first(
            slots in prop_oneof![1..700_usize, MAX_SLOTS - 2..MAX_SLOTS + 300],
            changes in prop::collection::vec((any::<usize>(), time()), 0..400),
        ) {
            let mut timers = TimerQueue::new(slots);
            let mut plain = vec![Time::FAR; slots];
            for (slot, at) in changes {
                let slot = slot % slots;
                timers.set(slot, at);
                plain[slot] = at;
                let first = (0..slots).min_by_key(|slot| (plain[*slot], *slot)).unwrap();
                let first = if plain[first] == Time::FAR { 0 } else { first };
                prop_assert_eq!(timers.first(), (plain[first], first));
                prop_assert_eq!(timers.get(slot), at);
            }
        }

        /// Time advances in steps of very different magnitude, so that the day length changes.
        #[test]
        fn order_is_independent_of_the_day_length(
            slots in 1..90_usize,
            steps in prop::collection::vec((0..40_u32, any::<u64>()), 1..8),
        ) {
            let mut timers = TimerQueue::new(slots);
            let mut plain: Vec<Time> = (0..slots as u64).map(Time::from_nanos).collect();
            for (slot, at) in plain.iter().enumerate() {
                timers.set(slot, *at);
            }
            for (scale, luck) in steps {
                for i in 0..200 {
                    let first = (0..slots).min_by_key(|slot| (plain[*slot], *slot)).unwrap();
                    prop_assert_eq!(timers.first(), (plain[first], first));
                    let step = luck.wrapping_mul(i | 1) >> (64 - scale).min(63);
                    plain[first] = Time::from_nanos(plain[first].as_nanos() + step);
                    timers.set(first, plain[first]);
                }
            }
        }

        /// Behind the front, each slot is reported once and in order of time. Each group begins at
        /// the end of the previous one.
        #[test]
        fn coming_slots_are_reported_once(
            nanos in prop::collection::vec(0..1_u64 << 40, MAX_SLOTS + 1..MAX_SLOTS + 300),
        ) {
            let mut timers = TimerQueue::new(nanos.len());
            let at = |slot: u32| Time::from_nanos(nanos[slot as usize]);
            (0..nanos.len()).for_each(|slot| timers.set(slot, at(slot as u32)));
            let (mut shown, mut group, mut end) = (vec![], vec![], timers.reached());
            while let Some(begin) = timers.coming(&mut group) {
                prop_assert!(end <= begin);
                prop_assert!(group.iter().all(|slot| begin <= at(*slot)));
                end = group.iter().map(|slot| at(*slot)).max().unwrap();
                shown.append(&mut group);
            }
            shown.sort_unstable();
            prop_assert!(shown.windows(2).all(|pair| pair[0] < pair[1]));
            // The other slots are at the front or beyond the ring of days.
            let hidden = |slot: &u32| shown.binary_search(slot).is_err();
            for slot in (0..nanos.len() as u32).filter(hidden) {
                prop_assert!(at(slot) < timers.reached() || at(slot) > end);
            }
        }
    }
}
