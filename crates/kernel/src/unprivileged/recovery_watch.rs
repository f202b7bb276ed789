//! When to be awake because recovery may be about to begin.
//!
//! Duplicate ACKs leave no time stamp, but what the kernel sends for them does (limited transmit, RFC
//! 3042), and the connection is in disorder then. Recovery follows with the next duplicates or after a
//! quarter of the round trip (RFC 8985), unless it was a reordering. It leaves a stamp when it sends a
//! segment again, which is not always at once, so the state is asked for as well.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Which sockets to be awake for.
#[derive(Debug)]
pub(super) struct RecoveryWatch<'a> {
    /// Until when to be awake for each socket in disorder; once for each time that it is.
    until: BTreeMap<u64, Duration>,
    /// None where there is no second processor.
    budget: Option<&'a Mutex<SpinBudget>>,
    /// When the state was asked for.
    asked: Duration,
}

/// For how long all threads of a process together may be awake: on a path that reorders all the time
/// that is a twentieth of the time, and what was saved.
#[derive(Debug)]
pub(super) struct SpinBudget {
    saved: Duration,
    /// As of then.
    counted: Duration,
}

/// That of this process.
pub(super) static SPIN_BUDGET: Mutex<SpinBudget> = Mutex::new(SpinBudget::full());

impl SpinBudget {
    pub(super) const fn full() -> Self {
        Self {
            saved: MOST,
            counted: Duration::ZERO,
        }
    }

    /// Takes as much of `wish` as is there.
    fn take(&mut self, wish: Duration, now: Duration) -> Duration {
        let earned = now.saturating_sub(self.counted) / SHARE;
        self.counted = self.counted.max(now);
        self.saved = (self.saved + earned).min(MOST);
        let taken = wish.min(self.saved);
        self.saved -= taken;
        taken
    }

    fn give_back(&mut self, rest: Duration) {
        self.saved = (self.saved + rest).min(MOST);
    }
}

impl<'a> RecoveryWatch<'a> {
    /// Never awake without a budget.
    pub(super) fn new(now: Duration, budget: Option<&'a Mutex<SpinBudget>>) -> Self {
        Self {
            until: BTreeMap::new(),
            budget,
            asked: now,
        }
    }

    /// A socket was looked at. `rtt` is its smoothed round trip if it is in disorder and somebody wants
    /// to hear of recoveries.
    pub(super) fn saw(&mut self, cookie: u64, rtt: Option<Duration>, now: Duration) {
        let Some(rtt) = rtt else {
            self.forget(now, |other| other == cookie);
            return;
        };
        if self.until.contains_key(&cookie) {
            return;
        }
        let patience = (rtt / 4).clamp(SHORTEST, LONGEST);
        // The time for which it is awake anyway costs nothing.
        let awake = self.latest(now);
        let more = (now + patience).saturating_sub(awake);
        let mut until = now;
        if let Some(mut budget) = self.budget() {
            let taken = budget.take(more, now);
            until = (awake + taken).min(now + patience);
            if until < now + SHORTEST {
                budget.give_back(taken);
                until = now;
            }
        }
        self.until.insert(cookie, until);
    }

    /// Whether the thread is awake for a socket.
    pub(super) fn awake(&self, cookie: u64, now: Duration) -> bool {
        self.until.get(&cookie).is_some_and(|&until| now < until)
    }

    /// Whether it is awake for any.
    pub(super) fn any(&self, now: Duration) -> bool {
        self.until.values().any(|&until| now < until)
    }

    /// Those for which it is awake whose state should be asked for now.
    pub(super) fn asks(&mut self, now: Duration) -> Vec<u64> {
        if now.saturating_sub(self.asked) < PAUSE {
            return Vec::new();
        }
        self.asked = now;
        let awake = self.until.iter().filter(|&(_, &until)| now < until);
        awake.map(|(&cookie, _)| cookie).collect()
    }

    /// Forgets sockets that are not among these.
    pub(super) fn keep(&mut self, sockets: &[u64], now: Duration) {
        self.forget(now, |cookie| !sockets.contains(&cookie));
    }

    /// What it need not be awake for any more is saved.
    fn forget(&mut self, now: Duration, which: impl Fn(u64) -> bool) {
        let before = self.latest(now);
        self.until.retain(|&cookie, _| !which(cookie));
        let rest = before.saturating_sub(self.latest(now));
        if !rest.is_zero()
            && let Some(mut budget) = self.budget()
        {
            budget.give_back(rest);
        }
    }

    /// Until when it is awake, from now on.
    fn latest(&self, now: Duration) -> Duration {
        let latest = self.until.values().max().copied();
        latest.unwrap_or_default().max(now)
    }

    fn budget(&self) -> Option<MutexGuard<'a, SpinBudget>> {
        let budget = self.budget?;
        Some(budget.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Three duplicates come within this time where a path carries a megabit in a second and more.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(25);
/// Asking takes the socket's lock for a microsecond, which is not to be in the kernel's way.
const PAUSE: Duration = Duration::from_micros(10);
/// One part of so many, but for what was saved.
const SHARE: u32 = 20;
const MOST: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: u64 = 1;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_disorder_is_watched_once_and_for_a_quarter_of_the_round_trip() {
        let budget = Mutex::new(SpinBudget::full());
        let mut recoveries = RecoveryWatch::new(ms(0), Some(&budget));
        recoveries.saw(ONE, Some(ms(40)), ms(100));
        assert!(recoveries.any(ms(109)) && recoveries.awake(ONE, ms(109)));
        // It is no longer for being seen again.
        recoveries.saw(ONE, Some(ms(40)), ms(109));
        assert!(!recoveries.any(ms(110)) && !recoveries.awake(ONE, ms(110)));
        recoveries.saw(ONE, Some(ms(40)), ms(111));
        assert!(!recoveries.any(ms(112)));
        recoveries.saw(ONE, None, ms(120));
        recoveries.saw(ONE, Some(ms(4_000)), ms(130));
        assert!(recoveries.awake(ONE, ms(154)) && !recoveries.awake(ONE, ms(155)));
        assert!(!recoveries.awake(2, ms(140)));
        recoveries.keep(&[2], ms(140));
        assert!(!recoveries.awake(ONE, ms(140)));
    }

    #[test]
    fn states_are_asked_for_now_and_then_while_it_is_awake() {
        let budget = Mutex::new(SpinBudget::full());
        let mut recoveries = RecoveryWatch::new(ms(0), Some(&budget));
        assert!(recoveries.asks(ms(100)).is_empty());
        recoveries.saw(ONE, Some(ms(40)), ms(100));
        assert_eq!(recoveries.asks(ms(101)), [ONE]);
        assert!(recoveries.asks(ms(101) + PAUSE / 2).is_empty());
        assert_eq!(recoveries.asks(ms(101) + PAUSE), [ONE]);
        assert!(recoveries.asks(ms(110)).is_empty());
    }

    #[test]
    fn one_processor_is_left_to_others() {
        let mut recoveries = RecoveryWatch::new(ms(0), None);
        recoveries.saw(ONE, Some(ms(40)), ms(100_000));
        assert!(!recoveries.any(ms(100_000)) && !recoveries.awake(ONE, ms(100_000)));
    }

    #[test]
    fn it_is_a_twentieth_of_the_time_at_most() {
        let tick = Duration::from_micros(100);
        let budget = Mutex::new(SpinBudget::full());
        let mut recoveries = RecoveryWatch::new(ms(0), Some(&budget));
        let mut awake = Duration::ZERO;
        for number in 0..100_000 {
            let now = tick * number;
            // A path that reorders a hundred times a second.
            let rtt = (number % 100 < 80).then_some(ms(400));
            recoveries.saw(u64::from(number % 2), rtt, now);
            recoveries.saw(u64::from((number + 1) % 2), rtt, now);
            awake += if recoveries.any(now) {
                tick
            } else {
                Duration::ZERO
            };
        }
        assert!(awake <= ms(10_000) / SHARE + MOST + ms(20), "{awake:?}");
        assert!(awake + ms(20) >= ms(10_000) / SHARE, "{awake:?}");
    }

    #[test]
    fn all_threads_have_one_purse() {
        let budget = Mutex::new(SpinBudget::full());
        let mut all = [(); 20].map(|()| RecoveryWatch::new(ms(0), Some(&budget)));
        for recoveries in &mut all {
            recoveries.saw(ONE, Some(ms(400)), ms(1));
        }
        let awake = |at| all.iter().filter(|d| d.any(ms(at))).count();
        assert_eq!((awake(1), awake(25)), (2, 2));
        // Who is awake for one socket is so for another at no cost, and who need not be any more leaves
        // it to others.
        let [first, second, third, ..] = &mut all;
        first.saw(2, Some(ms(400)), ms(1));
        assert!(first.awake(2, ms(25)));
        second.saw(ONE, None, ms(6));
        third.saw(2, Some(ms(400)), ms(6));
        assert!(third.awake(2, ms(25)) && !third.awake(2, ms(27)));
    }
}
