//! When to be awake because recovery may be about to begin.
//!
//! Duplicate ACKs leave no time stamp, but what the kernel sends for them does (limited transmit, RFC
//! 3042), and the connection is in disorder then. Recovery follows with the next duplicates or after a
//! quarter of the round trip (RFC 8985), unless it was a reordering. It leaves a stamp when it sends a
//! segment again, which is not always at once, so the state is asked for as well.

use std::collections::BTreeMap;
use std::time::Duration;

/// Which sockets to be awake for. On a path that reorders all the time that is a twentieth of the
/// time at most.
#[derive(Debug, Default)]
pub(super) struct Disorders {
    /// Until when to be awake for each socket in disorder; once for each time that it is.
    until: BTreeMap<u64, Duration>,
    /// How long it may be awake, as of `counted`.
    saved: Duration,
    most: Duration,
    counted: Duration,
    /// When the state was asked for.
    asked: Duration,
}

impl Disorders {
    /// Never awake where there is no second processor for that.
    pub(super) fn new(now: Duration, second: bool) -> Self {
        let most = if second { MOST } else { Duration::ZERO };
        Self {
            until: BTreeMap::new(),
            saved: most,
            most,
            counted: now,
            asked: now,
        }
    }

    /// A socket was looked at. `rtt` is its smoothed round trip if it is in disorder and somebody wants
    /// to hear of recoveries.
    pub(super) fn saw(&mut self, cookie: u64, rtt: Option<Duration>, now: Duration) {
        self.count(now);
        let Some(rtt) = rtt else {
            self.until.remove(&cookie);
            return;
        };
        let patience = (rtt / 4).clamp(SHORTEST, LONGEST).min(self.saved);
        let until = now
            + Some(patience)
                .filter(|p| *p >= SHORTEST)
                .unwrap_or_default();
        self.until.entry(cookie).or_insert(until);
    }

    /// Whether the thread is awake for a socket.
    pub(super) fn awake(&self, cookie: u64, now: Duration) -> bool {
        self.until.get(&cookie).is_some_and(|&until| now < until)
    }

    /// Whether it is awake for any.
    pub(super) fn any(&mut self, now: Duration) -> bool {
        self.count(now);
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
    pub(super) fn keep(&mut self, sockets: &[u64]) {
        self.until.retain(|cookie, _| sockets.contains(cookie));
    }

    /// Takes what was spent since the last time from what is saved.
    fn count(&mut self, now: Duration) {
        let latest = self.until.values().max().copied().unwrap_or_default();
        let awake = latest.min(now).saturating_sub(self.counted);
        let asleep = now.saturating_sub(self.counted).saturating_sub(awake);
        self.saved = (self.saved.saturating_sub(awake) + asleep / SHARE).min(self.most);
        self.counted = now;
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
        let mut disorders = Disorders::new(ms(0), true);
        disorders.saw(ONE, Some(ms(40)), ms(100));
        assert!(disorders.any(ms(109)) && disorders.awake(ONE, ms(109)));
        // It is no longer for being seen again.
        disorders.saw(ONE, Some(ms(40)), ms(109));
        assert!(!disorders.any(ms(110)) && !disorders.awake(ONE, ms(110)));
        disorders.saw(ONE, Some(ms(40)), ms(111));
        assert!(!disorders.any(ms(112)));
        disorders.saw(ONE, None, ms(120));
        disorders.saw(ONE, Some(ms(4_000)), ms(130));
        assert!(disorders.awake(ONE, ms(154)) && !disorders.awake(ONE, ms(155)));
        assert!(!disorders.awake(2, ms(140)));
        disorders.keep(&[2]);
        assert!(!disorders.awake(ONE, ms(140)));
    }

    #[test]
    fn states_are_asked_for_now_and_then_while_it_is_awake() {
        let mut disorders = Disorders::new(ms(0), true);
        assert!(disorders.asks(ms(100)).is_empty());
        disorders.saw(ONE, Some(ms(40)), ms(100));
        assert_eq!(disorders.asks(ms(101)), [ONE]);
        assert!(disorders.asks(ms(101) + PAUSE / 2).is_empty());
        assert_eq!(disorders.asks(ms(101) + PAUSE), [ONE]);
        assert!(disorders.asks(ms(110)).is_empty());
    }

    #[test]
    fn one_processor_is_left_to_others() {
        let mut disorders = Disorders::new(ms(0), false);
        disorders.saw(ONE, Some(ms(40)), ms(100_000));
        assert!(!disorders.any(ms(100_000)) && !disorders.awake(ONE, ms(100_000)));
    }

    #[test]
    fn it_is_a_twentieth_of_the_time_at_most() {
        let tick = Duration::from_micros(100);
        let mut disorders = Disorders::new(ms(0), true);
        let mut awake = Duration::ZERO;
        for number in 0..100_000 {
            let now = tick * number;
            // A path that reorders a hundred times a second.
            let rtt = (number % 100 < 80).then_some(ms(400));
            disorders.saw(u64::from(number % 2), rtt, now);
            disorders.saw(u64::from((number + 1) % 2), rtt, now);
            awake += if disorders.any(now) {
                tick
            } else {
                Duration::ZERO
            };
        }
        assert!(awake <= ms(10_000) / SHARE + MOST + ms(20), "{awake:?}");
        assert!(awake >= ms(10_000) / SHARE, "{awake:?}");
    }
}
