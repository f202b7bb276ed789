//! Sockets that may enter recovery soon, which the observing thread polls.
//!
//! Duplicate ACKs have no time stamp, but the segments that the kernel sends for them do (limited
//! transmit, RFC 3042). The connection is in disorder then. Recovery follows with the next
//! duplicates, or after a quarter of the round trip (RFC 8985), unless segments were reordered. Its
//! first retransmission has a stamp, which may come late, so the thread polls the state as well.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The sockets to poll.
#[derive(Debug)]
pub(super) struct RecoveryWatch<'a> {
    /// End of the polling of each socket in disorder. Each disorder is polled once.
    until: BTreeMap<u64, Duration>,
    /// `None` if there is no second processor.
    budget: Option<&'a Mutex<SpinBudget>>,
    /// Time of the last poll.
    polled: Duration,
}

/// Busy-wait budget of the process, which its threads share: a token bucket with a duty cycle of 5
/// %.
#[derive(Debug)]
pub(super) struct SpinBudget {
    saved: Duration,
    /// Time of the last refill.
    refilled: Duration,
}

/// The budget of this process.
pub(super) static SPIN_BUDGET: Mutex<SpinBudget> = Mutex::new(SpinBudget::full());

impl SpinBudget {
    pub(super) const fn full() -> Self {
        Self {
            saved: CAPACITY,
            refilled: Duration::ZERO,
        }
    }

    /// Takes up to `wish`.
    fn take(&mut self, wish: Duration, now: Duration) -> Duration {
        let earned = now.saturating_sub(self.refilled) / SHARE;
        self.refilled = self.refilled.max(now);
        self.give_back(earned);
        let taken = wish.min(self.saved);
        self.saved -= taken;
        taken
    }

    fn give_back(&mut self, rest: Duration) {
        self.saved = (self.saved + rest).min(CAPACITY);
    }
}

impl<'a> RecoveryWatch<'a> {
    /// Without a budget no socket is polled.
    pub(super) fn new(now: Duration, budget: Option<&'a Mutex<SpinBudget>>) -> Self {
        Self {
            until: BTreeMap::new(),
            budget,
            polled: now,
        }
    }

    /// The state of a socket was read. `rtt` is its smoothed round trip if it is in disorder and
    /// has a subscription to recoveries.
    pub(super) fn on_state(&mut self, cookie: u64, rtt: Option<Duration>, now: Duration) {
        let Some(rtt) = rtt else {
            self.forget(now, |other| other == cookie);
            return;
        };
        if self.until.contains_key(&cookie) {
            return;
        }
        let end = now + (rtt / 4).clamp(SHORTEST, LONGEST);
        // The time in which the thread is awake for another socket costs nothing.
        let awake = self.latest(now);
        let mut until = now;
        if let Some(mut budget) = self.budget() {
            let taken = budget.take(end.saturating_sub(awake), now);
            until = (awake + taken).min(end);
            if until < now + SHORTEST {
                budget.give_back(taken);
                until = now;
            }
        }
        self.until.insert(cookie, until);
    }

    /// Whether the thread polls a socket.
    pub(super) fn is_watching(&self, cookie: u64, now: Duration) -> bool {
        self.until.get(&cookie).is_some_and(|&until| now < until)
    }

    /// Whether the thread polls any socket.
    pub(super) fn is_active(&self, now: Duration) -> bool {
        self.until.values().any(|&until| now < until)
    }

    /// The sockets to poll now.
    pub(super) fn due(&mut self, now: Duration) -> Vec<u64> {
        if now.saturating_sub(self.polled) < PAUSE {
            return Vec::new();
        }
        self.polled = now;
        let active = self.until.iter().filter(|&(_, &until)| now < until);
        active.map(|(&cookie, _)| cookie).collect()
    }

    /// Forgets all other sockets.
    pub(super) fn retain(&mut self, sockets: &[u64], now: Duration) {
        self.forget(now, |cookie| !sockets.contains(&cookie));
    }

    /// Forgets sockets and returns their unused time to the budget.
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

    /// The end of all polling, from now on.
    fn latest(&self, now: Duration) -> Duration {
        let latest = self.until.values().max().copied();
        latest.unwrap_or_default().max(now)
    }

    fn budget(&self) -> Option<MutexGuard<'a, SpinBudget>> {
        let budget = self.budget?;
        Some(budget.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Three duplicates arrive within this time on a path of 1 Mb/s and more.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(25);
/// Pause between polls: each takes the socket's lock for a microsecond, for which the kernel may
/// wait.
const PAUSE: Duration = Duration::from_micros(10);
/// Divisor of the duty cycle.
const SHARE: u32 = 20;
/// Capacity of the token bucket.
const CAPACITY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: u64 = 1;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_disorder_is_polled_once_for_a_quarter_of_the_round_trip() {
        let budget = Mutex::new(SpinBudget::full());
        let mut watch = RecoveryWatch::new(ms(0), Some(&budget));
        watch.on_state(ONE, Some(ms(40)), ms(100));
        assert!(watch.is_active(ms(109)) && watch.is_watching(ONE, ms(109)));
        // A second look does not extend it.
        watch.on_state(ONE, Some(ms(40)), ms(109));
        assert!(!watch.is_active(ms(110)) && !watch.is_watching(ONE, ms(110)));
        watch.on_state(ONE, Some(ms(40)), ms(111));
        assert!(!watch.is_active(ms(112)));
        watch.on_state(ONE, None, ms(120));
        watch.on_state(ONE, Some(ms(4_000)), ms(130));
        assert!(watch.is_watching(ONE, ms(154)) && !watch.is_watching(ONE, ms(155)));
        assert!(!watch.is_watching(2, ms(140)));
        watch.retain(&[2], ms(140));
        assert!(!watch.is_watching(ONE, ms(140)));
    }

    #[test]
    fn polls_have_pauses_between_them() {
        let budget = Mutex::new(SpinBudget::full());
        let mut watch = RecoveryWatch::new(ms(0), Some(&budget));
        assert!(watch.due(ms(100)).is_empty());
        watch.on_state(ONE, Some(ms(40)), ms(100));
        assert_eq!(watch.due(ms(101)), [ONE]);
        assert!(watch.due(ms(101) + PAUSE / 2).is_empty());
        assert_eq!(watch.due(ms(101) + PAUSE), [ONE]);
        assert!(watch.due(ms(110)).is_empty());
    }

    #[test]
    fn a_single_processor_is_not_occupied() {
        let mut watch = RecoveryWatch::new(ms(0), None);
        watch.on_state(ONE, Some(ms(40)), ms(100_000));
        assert!(!watch.is_active(ms(100_000)) && !watch.is_watching(ONE, ms(100_000)));
    }

    #[test]
    fn the_duty_cycle_is_a_twentieth() {
        let tick = Duration::from_micros(100);
        let budget = Mutex::new(SpinBudget::full());
        let mut watch = RecoveryWatch::new(ms(0), Some(&budget));
        let mut awake = Duration::ZERO;
        for number in 0..100_000 {
            let now = tick * number;
            // A path that reorders a hundred times per second.
            let rtt = (number % 100 < 80).then_some(ms(400));
            watch.on_state(u64::from(number % 2), rtt, now);
            watch.on_state(u64::from((number + 1) % 2), rtt, now);
            awake += if watch.is_active(now) {
                tick
            } else {
                Duration::ZERO
            };
        }
        assert!(awake <= ms(10_000) / SHARE + CAPACITY + ms(20), "{awake:?}");
        assert!(awake + ms(20) >= ms(10_000) / SHARE, "{awake:?}");
    }

    #[test]
    fn threads_share_the_budget() {
        let budget = Mutex::new(SpinBudget::full());
        let mut all = [(); 20].map(|()| RecoveryWatch::new(ms(0), Some(&budget)));
        for watch in &mut all {
            watch.on_state(ONE, Some(ms(400)), ms(1));
        }
        let awake = |at| all.iter().filter(|w| w.is_active(ms(at))).count();
        assert_eq!((awake(1), awake(25)), (2, 2));
        // Another socket of the same thread costs nothing, and unused time returns to the budget.
        let [first, second, third, ..] = &mut all;
        first.on_state(2, Some(ms(400)), ms(1));
        assert!(first.is_watching(2, ms(25)));
        second.on_state(ONE, None, ms(6));
        third.on_state(2, Some(ms(400)), ms(6));
        assert!(third.is_watching(2, ms(25)) && !third.is_watching(2, ms(27)));
    }
}
