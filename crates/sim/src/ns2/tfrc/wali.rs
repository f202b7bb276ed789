//! Weighted average of loss intervals, as in the receivers of ns-2.

use super::{Ns2TfrcConfig, share};

/// The recent loss intervals of one path, in packets.
///
/// There are three differences from RFC 5348. An interval ends with the first packet of the next
/// loss event rather than before it. A closed interval keeps the discount of the last evaluation.
/// The interval after the first loss begins with the first packet after the last evaluation before
/// that loss.
#[derive(Clone, Debug)]
pub(super) struct Wali {
    discounting: bool,
    floor: f64,
    intervals: usize,
    /// Highest sequence number with a known fate, plus one.
    next: u64,
    /// `next` at the last evaluation.
    evaluated: u64,
    /// First packet of the open interval.
    begins: u64,
    /// Lengths of the closed intervals, newest first.
    lengths: [f64; MAX],
    /// Discounts of the closed intervals.
    kept: [f64; MAX],
    known: usize,
    /// Additional discount of the closed intervals during the open interval.
    discount: f64,
}

impl Wali {
    /// A history without losses.
    pub(super) fn new(config: &Ns2TfrcConfig) -> Self {
        Self {
            discounting: config.discounting,
            floor: share(config.discount_floor),
            intervals: usize::from(config.intervals).clamp(2, MAX),
            next: 0,
            evaluated: 0,
            begins: 0,
            lengths: [0.0; MAX],
            kept: [1.0; MAX],
            known: 0,
            discount: 1.0,
        }
    }

    /// Whether there was no loss event yet.
    pub(super) fn is_empty(&self) -> bool {
        self.known == 0
    }

    /// Records that the fate of packet `seq` is known, lost or not.
    pub(super) fn on_outcome(&mut self, seq: u64) {
        self.next = self.next.max(seq.saturating_add(1));
    }

    /// Records the first loss, with an interval of 1/`p` before it.
    pub(super) fn seed(&mut self, p: f64) {
        self.close((1.0 / p).max(1.0) as u64);
        self.begins = self.evaluated;
    }

    /// Records a loss event that begins with packet `seq`; returns false if `seq` belongs to a
    /// closed interval.
    pub(super) fn begin(&mut self, seq: u64) -> bool {
        if seq < self.begins {
            return false;
        }
        self.close(seq - self.begins + 1);
        self.begins = seq + 1;
        true
    }

    /// The loss event rate in 0..=1; zero before the first loss.
    pub(super) fn event_rate(&mut self) -> f64 {
        self.evaluated = self.next;
        if self.known == 0 {
            return 0.0;
        }
        let open = self.next.saturating_sub(self.begins) as f64;
        let past = self.past_mean();
        if self.discounting && open > 2.0 * past {
            self.discount = (2.0 * past / open).max(self.floor);
        }
        let (mut total, mut weights) = (open, 1.0);
        for n in 1..=self.known.min(self.intervals - 1) {
            let weight = self.weight(n) * self.kept[n - 1] * self.discount;
            total += weight * self.lengths[n - 1];
            weights += weight;
        }
        (1.0 / (total / weights).max(past)).min(1.0)
    }

    fn past_mean(&self) -> f64 {
        let (mut total, mut weights) = (0.0, 0.0);
        for n in 0..self.known {
            let weight = self.weight(n) * self.kept[n];
            total += weight * self.lengths[n];
            weights += weight;
        }
        total / weights
    }

    /// Weight of interval `n`, where 0 is the newest: one for the newer half, then decreasing to
    /// slightly above zero.
    fn weight(&self, n: usize) -> f64 {
        let half = self.intervals / 2;
        let beyond = (n + 1).saturating_sub(half) as f64;
        1.0 - beyond / (half as f64 + 1.0)
    }

    fn close(&mut self, length: u64) {
        for kept in &mut self.kept {
            *kept *= self.discount;
        }
        self.lengths.rotate_right(1);
        self.kept.rotate_right(1);
        (self.lengths[0], self.kept[0]) = (length as f64, 1.0);
        self.known = (self.known + 1).min(self.intervals);
        self.discount = 1.0;
    }
}

/// Maximum number of intervals.
const MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn history(intervals: u8) -> Wali {
        let config = Ns2TfrcConfig {
            intervals,
            ..Ns2TfrcConfig::default()
        };
        Wali::new(&config)
    }

    fn until(wali: &mut Wali, seq: u64) -> f64 {
        wali.on_outcome(seq);
        wali.event_rate()
    }

    #[test]
    fn interval_ends_with_the_first_packet_of_the_next() {
        let mut wali = history(8);
        assert!(until(&mut wali, 89) <= 0.0 && wali.is_empty());
        wali.on_outcome(99);
        wali.seed(0.011_9);
        assert!(
            (until(&mut wali, 99) - 1.0 / 84.0).abs() < 1e-12,
            "a whole interval"
        );
        // The open interval began with the packet after the evaluation before the first loss.
        wali.on_outcome(149);
        assert!(wali.begin(149));
        assert!(!wali.begin(149) && !wali.begin(80), "not later");
        // 60 packets, 90 to 149, and 84.
        assert!((wali.event_rate() - 2.0 / 144.0).abs() < 1e-12);
    }

    #[test]
    fn history_is_discounted_to_a_half() {
        let mut wali = history(8);
        wali.seed(0.01);
        for n in 1..=8_u64 {
            wali.on_outcome(100 * n - 1);
            wali.begin(100 * n - 1);
        }
        assert!((wali.event_rate() - 0.01).abs() < 1e-12);
        // 300 open, 100 before: 200 / 300; the weights of seven closed intervals sum to 5.
        let two_thirds = (300.0 + 100.0 * 5.0 * 2.0 / 3.0) / (1.0 + 5.0 * 2.0 / 3.0);
        let p = until(&mut wali, 1_099);
        assert!((p - 1.0 / two_thirds).abs() < 1e-12, "{p}");
        let p = until(&mut wali, 1_799);
        assert!((p - 1.0 / ((1_000.0 + 250.0) / 3.5)).abs() < 1e-12, "{p}");
        // The discount persists when the interval is closed.
        wali.begin(1_799);
        let p = wali.event_rate();
        assert!((p - 1.0 / ((1_000.0 + 250.0) / 3.5)).abs() < 1e-12, "{p}");
    }

    #[test]
    fn more_intervals_have_more_weights() {
        let weights = |n: u8| -> Vec<f64> {
            let wali = history(n);
            (0..usize::from(n)).map(|i| wali.weight(i)).collect()
        };
        let eight = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];
        let same = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(same(&weights(8), &eight));
        let sixteen = weights(16);
        assert!(same(&sixteen[..8], &[1.0; 8]));
        assert!((sixteen[15] - 1.0 / 9.0).abs() < 1e-12);
    }
}
