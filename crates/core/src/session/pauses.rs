//! Silence of a source beyond its usual pauses.

use core::time::Duration;

use crate::units::Time;

/// Arrival of the last packet of a source, and its longest pause in the last 4 to 8 s.
///
/// A source that ends is followed by another one as soon as its silence is longer than its pauses,
/// and the other one began after it. Sources that exist at the same time wait for [`TAKEOVER`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Pauses {
    first: Option<Time>,
    last: Option<Time>,
    /// Longest pauses of the previous and the present span of [`MEMORY`].
    longest: (Duration, Duration),
    since: Time,
}

impl Pauses {
    /// A packet arrived.
    pub fn on_packet(&mut self, at: Time) {
        let pause = self.last.map_or(Duration::ZERO, |last| at.since(last));
        self.first.get_or_insert(at);
        self.last = self.last.max(Some(at));
        if at.since(self.since) > MEMORY {
            (self.longest, self.since) = ((self.longest.1, Duration::ZERO), at);
        }
        self.longest.1 = self.longest.1.max(pause);
    }

    /// Whether a source whose first packet arrived at `began` may be the successor of this one.
    pub fn is_followed_by(&self, began: Time, now: Time) -> bool {
        let (Some(first), Some(last)) = (self.first, self.last) else {
            return true;
        };
        let usual = self.longest.0.max(self.longest.1);
        let patience = if last.since(first) < KNOWN {
            TAKEOVER
        } else {
            (usual * PAUSES).clamp(SHORTEST, TAKEOVER)
        };
        began > last && now.since(last) > patience
    }
}

/// Silence of a source after which any other one may replace it.
pub const TAKEOVER: Duration = Duration::from_secs(2);
const MEMORY: Duration = Duration::from_secs(4);
/// Time after which the pauses of a source are known.
const KNOWN: Duration = Duration::from_secs(1);
/// Usual pauses that a silence must exceed.
const PAUSES: u32 = 4;
/// Seven frames at 30 frames per second: more than the delay of a packet in a queue that fills.
const SHORTEST: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_compared_with_usual_pauses() {
        let ms = Time::from_millis;
        for (pause, patience) in [(33, 250), (100, 400), (1_000, 2_000)] {
            let mut pauses = Pauses::default();
            let mut last = 0;
            // A pause of half a second is forgotten.
            for at in [0, 500]
                .into_iter()
                .chain((500 + pause..12_000).step_by(pause as usize))
            {
                pauses.on_packet(ms(at));
                last = at;
            }
            let began = ms(last + 1);
            assert!(
                !pauses.is_followed_by(began, ms(last + patience)),
                "{pause}"
            );
            assert!(
                pauses.is_followed_by(began, ms(last + patience + 1)),
                "{pause}"
            );
            assert!(
                !pauses.is_followed_by(ms(last), ms(last + 10_000)),
                "{pause}"
            );
        }
    }
    #[test]
    fn the_pauses_of_a_source_are_unknown_at_first() {
        let ms = Time::from_millis;
        for (packets, patience) in [(10, 2_000), (40, 250)] {
            let mut pauses = Pauses::default();
            (0..packets).for_each(|n| pauses.on_packet(ms(33 * n)));
            let last = 33 * (packets - 1);
            let began = ms(last + 1);
            assert!(!pauses.is_followed_by(began, ms(last + patience)));
            assert!(pauses.is_followed_by(began, ms(last + patience + 1)));
        }
    }
}
