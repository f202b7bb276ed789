//! Own share of a busy bottleneck, from the spacing of own packets.
//!
//! While a FIFO queue is not empty, packets that are sent a time Δs apart leave it
//! Δa = s/C + o·Δs apart: the transmission of the second one, of size s, at the capacity C, and that
//! of others' packets that arrived between the two, which take the share o of the capacity. So the
//! regression of Δa on s and Δs gives the capacity and the own share 1 - o. It needs sending times
//! that vary, and is independent of the round-trip time.

/// Sums of a weighted regression with forgetting.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    count: f64,
    /// Sums of products of size, gap and spread.
    size_size: f64,
    size_gap: f64,
    gap_gap: f64,
    size_spread: f64,
    gap_spread: f64,
    spread_spread: f64,
    /// Arrival of the last pair.
    at: f64,
    /// Bytes, time and number of the pairs of the last moments.
    served: (f64, f64, f64),
    /// Whether others had no share before the capacity changed, until there are pairs since.
    was_alone: bool,
}

impl Share {
    /// Two consecutive packets of a busy queue. `pair`: size of the second one, and the times
    /// between their departures and arrivals. `scale` makes pairs at different rates comparable.
    pub(super) fn on_pair(&mut self, at: f64, pair: (f64, f64, f64), scale: f64, memory: f64) {
        let since = (at - self.at).max(0.0);
        self.at = self.at.max(at);
        let keep = libm::exp(-since / memory);
        for sum in [
            &mut self.count,
            &mut self.size_size,
            &mut self.size_gap,
            &mut self.gap_gap,
            &mut self.size_spread,
            &mut self.gap_spread,
            &mut self.spread_spread,
        ] {
            *sum *= keep;
        }
        let (bytes, gap, spread) = pair;
        // Kilobytes, so that the sums are of one order.
        let (size, gap, scaled) = (bytes * scale * 1e-3, gap * scale, spread * scale);
        self.count += 1.0;
        self.size_size += size * size;
        self.size_gap += size * gap;
        self.gap_gap += gap * gap;
        self.size_spread += size * scaled;
        self.gap_spread += gap * scaled;
        self.spread_spread += scaled * scaled;
        let keep = libm::exp(-since / MOMENT);
        let (all, time, count) = self.served;
        self.served = (all * keep + bytes, time * keep + spread, count * keep + 1.0);
    }

    /// The capacity changed: earlier pairs and later ones are not on one line.
    pub(super) fn restart(&mut self) {
        *self = Self {
            was_alone: self.is_alone(),
            at: self.at,
            ..Self::default()
        };
    }

    /// Share of others, and its standard error.
    fn others(&self) -> Option<(f64, f64)> {
        if self.count < MIN_PAIRS {
            return None;
        }
        let det = self.size_size * self.gap_gap - self.size_gap * self.size_gap;
        if det <= 1e-9 * self.size_size * self.gap_gap {
            return None;
        }
        let transmission =
            (self.size_spread * self.gap_gap - self.gap_spread * self.size_gap) / det;
        let others = (self.gap_spread * self.size_size - self.size_spread * self.size_gap) / det;
        let rest = self.spread_spread - transmission * self.size_spread - others * self.gap_spread;
        let variance = rest.max(0.0) / self.count * self.size_size / det;
        Some((others, variance.sqrt()))
    }

    /// Own share in 0..=1; `None` while there are too few pairs.
    pub(super) fn share(&self) -> Option<f64> {
        self.others()
            .map(|(others, _)| (1.0 - others).clamp(0.0, 1.0))
    }

    /// Whether others have no share, as far as the pairs tell.
    pub(super) fn is_alone(&self) -> bool {
        self.others().map_or(self.was_alone, |(others, error)| {
            let own = 1.0 - others;
            own > ALONE || (own + error > 0.95 && own > PROBABLY_ALONE)
        })
    }

    /// Whether others have a share without doubt.
    pub(super) fn is_shared(&self) -> bool {
        self.others()
            .is_some_and(|(others, error)| others - SURELY * error > 1.0 - ALONE)
    }

    /// Rate at which the last pairs left the queue, in bytes per second, and the last arrival.
    pub(super) fn capacity(&self) -> Option<(f64, f64)> {
        let (bytes, time, count) = self.served;
        (count > 5.0 && time > 0.02).then(|| (bytes / time, self.at))
    }
}

/// Pairs of which a share is computed.
const MIN_PAIRS: f64 = 20.0;
/// Time constant of the capacity, in seconds.
const MOMENT: f64 = 0.25;
/// Own shares from which on a flow is alone: surely, and within the error of the estimate.
const ALONE: f64 = 0.9;
const PROBABLY_ALONE: f64 = 0.7;

/// Standard errors of a share without doubt.
const SURELY: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Seed, unit};

    /// Shares that `pairs` packets find at a bottleneck of 1 MB/s of which others take `others`.
    fn share(others: f64, vary: bool, pairs: u32) -> Share {
        let mut rng = Seed(7).stream("share");
        let mut share = Share::default();
        for i in 0..pairs {
            let gap = 0.002 * (0.5 + unit(&mut rng));
            let size = if vary {
                400.0 + 800.0 * unit(&mut rng)
            } else {
                1_200.0
            };
            let noise = 2e-4 * (unit(&mut rng) - 0.5);
            let spread = size / 1e6 + others * gap + noise;
            share.on_pair(f64::from(i) * 0.002, (size, gap, spread), 500.0, 2.0);
        }
        share
    }

    #[test]
    fn the_share_follows_from_the_spacing() {
        for (others, vary) in [
            (0.0, false),
            (0.3, false),
            (0.8, false),
            (0.5, true),
            (0.0, true),
        ] {
            let found = share(others, vary, 400);
            let own = found.share().unwrap();
            assert!(
                (own - (1.0 - others)).abs() < 0.05,
                "{others} {vary}: {own}"
            );
            assert_eq!(found.is_alone(), others < 0.1, "{others} {vary}");
        }
        let (capacity, _) = share(0.0, true, 400).capacity().unwrap();
        assert!((capacity / 1e6 - 1.0).abs() < 0.05, "{capacity}");
    }

    #[test]
    fn a_few_pairs_tell_nothing() {
        assert_eq!(share(0.5, false, 10).share(), None);
        assert!(!share(0.0, false, 10).is_alone());
    }

    #[test]
    fn even_spacing_tells_nothing() {
        let mut even = Share::default();
        (0..100).for_each(|i| even.on_pair(f64::from(i) * 0.002, (1e3, 0.002, 0.002), 500.0, 2.0));
        assert_eq!(even.share(), None);
    }
}
