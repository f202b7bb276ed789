//! Number of parity packets for the measured losses.

/// Losses as a two-state Markov chain (Gilbert): the probability of a loss after an arrival, and
/// after a loss. Bursts need more parity packets than the same losses apart.
#[derive(Clone, Debug)]
pub(crate) struct LossModel {
    slow: Transitions,
    fast: Transitions,
    was_lost: bool,
}

impl Default for LossModel {
    fn default() -> Self {
        Self {
            slow: Transitions {
                counts: PRIOR,
                memory: SLOW,
            },
            fast: Transitions {
                counts: PRIOR,
                memory: FAST,
            },
            was_lost: false,
        }
    }
}

impl LossModel {
    /// Before any outcome, expects a loss in a hundred packets, as over satellites. A path that
    /// loses none is known after some seconds.
    pub(crate) fn expect_losses(&mut self) {
        self.fast.counts[0][1] += EXPECTED;
    }

    /// Outcome of the next packet in sending order.
    pub(crate) fn on_outcome(&mut self, is_lost: bool) {
        for counts in [&mut self.slow, &mut self.fast] {
            counts.on_outcome(self.was_lost, is_lost);
        }
        self.was_lost = is_lost;
    }

    /// A packet that counted as lost has arrived.
    pub(crate) fn on_spurious(&mut self) {
        for Transitions { counts, .. } in [&mut self.slow, &mut self.fast] {
            counts[0][1] = (counts[0][1] - 1.0).max(0.0);
        }
    }

    /// Probability of a loss after an arrival, and after a loss. The larger of both memories: a path
    /// that becomes worse needs more parity at once.
    fn probabilities(&self) -> (f64, f64) {
        let (slow, fast) = (&self.slow, &self.fast);
        let first = slow.loss_after(0).max(fast.loss_after(0));
        let next = slow.loss_after(1).max(fast.loss_after(1)).max(first);
        (first.min(MAX), next.min(MAX))
    }

    /// Whether losses are frequent enough for a reaction.
    pub(crate) fn has_losses(&self) -> bool {
        self.probabilities().0 >= MIN
    }

    /// Smallest number of copies, at most [`MAX_COPIES`], that are all lost, after the packet itself was,
    /// with a probability of at most `tolerance`.
    pub(crate) fn copies(&self, tolerance: f64) -> u8 {
        let (first, next) = self.probabilities();
        let stationary = first / (1.0 + first - next);
        let all = |copies: u8| libm::pow(stationary, 1.0 + f64::from(copies));
        let copies = (1..MAX_COPIES).find(|copies| all(*copies) <= tolerance);
        copies.unwrap_or(MAX_COPIES)
    }

    /// Smallest number of parity packets, at most `most`, with which `media` packets are restored
    /// with a probability of at least 1 - `tolerance`.
    pub(crate) fn parity(&self, media: usize, most: usize, tolerance: f64) -> usize {
        let (first, next) = self.probabilities();
        // Probability of `i` losses so far if the last packet arrived, or was lost.
        let mut counts = vec![[0.0; 2]; most + 1];
        let stationary = first / (1.0 + first - next);
        counts[0] = [1.0 - stationary, stationary];
        let step = |counts: &mut [[f64; 2]]| {
            for i in (0..counts.len()).rev() {
                let [arrived, lost] = counts[i];
                let before = i.checked_sub(1).map_or([0.0; 2], |before| counts[before]);
                counts[i] = [
                    arrived * (1.0 - first) + lost * (1.0 - next),
                    before[0] * first + before[1] * next,
                ];
            }
        };
        (0..media).for_each(|_| step(&mut counts));
        for parity in 0..most {
            let restored: f64 = counts[..=parity].iter().flatten().sum();
            if 1.0 - restored <= tolerance {
                return parity;
            }
            step(&mut counts);
        }
        most
    }
}

/// Numbers of packets by outcome of the packet before and own outcome: arrived, lost.
#[derive(Clone, Debug)]
struct Transitions {
    counts: [[f64; 2]; 2],
    memory: f64,
}

impl Transitions {
    fn on_outcome(&mut self, was_lost: bool, is_lost: bool) {
        let keep = 1.0 - 1.0 / self.memory;
        let row = &mut self.counts[usize::from(was_lost)];
        *row = row.map(|count| count * keep);
        row[usize::from(is_lost)] += 1.0;
    }

    fn loss_after(&self, row: usize) -> f64 {
        let [arrived, lost] = self.counts[row];
        lost / (arrived + lost).max(1e-9)
    }
}

/// Packets that the model remembers: a path that lost packets is expected to do so for minutes.
const SLOW: f64 = 5_000.0;
/// A few seconds: losses of a path that became worse.
const FAST: f64 = 300.0;
/// Before any outcome: no losses, and no bursts.
const PRIOR: [[f64; 2]; 2] = [[49.5, 0.0], [9.9, 0.1]];
const EXPECTED: f64 = 0.5;
/// A loss in 10,000 packets: one in half a minute at 3 Mb/s.
const MIN: f64 = 1e-4;
/// Of 5 % of the packets, 0.6 in 100,000 are lost four times.
const MAX_COPIES: u8 = 3;
/// No code helps above, and the stationary probability stays finite.
const MAX: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;

    fn trained(packets: usize, is_lost: impl Fn(usize) -> bool) -> LossModel {
        let mut model = LossModel::default();
        (0..packets).for_each(|i| model.on_outcome(is_lost(i)));
        model
    }

    /// Probability of more than `parity` losses of `n`, each with probability `p`.
    fn binomial_tail(n: u32, parity: u32, p: f64) -> f64 {
        let choose = |k: u32| (0..k).fold(1.0, |c, i| c * f64::from(n - i) / f64::from(i + 1));
        let power = |base: f64, exponent: u32| libm::pow(base, f64::from(exponent));
        let term = |k: u32| choose(k) * power(p, k) * power(1.0 - p, n - k);
        1.0 - (0..=parity).map(term).sum::<f64>()
    }

    #[test]
    fn independent_losses_need_as_many_as_the_binomial_distribution() {
        // A loss in a hundred packets, never two in a row: a lost packet tells nothing.
        let mut model = trained(20_000, |i| i % 100 == 0);
        model.slow.counts[1] = [99.0, 1.0];
        model.fast.counts = model.slow.counts;
        let (first, next) = model.probabilities();
        assert!((first - 0.01).abs() < 0.001 && (next - 0.01).abs() < 0.001);
        for (media, tolerance) in [(5, 1e-3), (25, 1e-3), (25, 1e-5), (100, 1e-3)] {
            let parity = model.parity(media, 32, tolerance) as u32;
            let tail = |parity: u32| binomial_tail(media as u32 + parity, parity, first);
            assert!(tail(parity) <= tolerance * 1.1 && tail(parity - 1) > tolerance * 0.9);
        }
    }

    #[test]
    fn bursts_need_more() {
        let apart = trained(20_000, |i| i % 100 == 0);
        let bursts = trained(20_000, |i| i % 500 < 5);
        assert!(bursts.parity(25, 32, 1e-3) > apart.parity(25, 32, 1e-3) + 2);
    }

    #[test]
    fn a_path_without_losses_needs_none_and_a_worse_one_more_at_once() {
        let clean = |packets| trained(packets, |_| false);
        assert_eq!(clean(0).parity(25, 32, 1e-3), 0);
        let mut satellite = clean(0);
        satellite.expect_losses();
        assert_eq!(satellite.parity(25, 32, 1e-3), 3);
        (0..3_000).for_each(|_| satellite.on_outcome(false));
        assert_eq!(satellite.parity(25, 32, 1e-3), 0);
        assert_eq!(clean(3_000).parity(25, 32, 1e-3), 0);
        let mut worse = clean(60_000);
        (0..400).for_each(|i| worse.on_outcome(i % 20 == 0));
        assert!(worse.parity(25, 32, 1e-3) >= 5);
    }

    #[test]
    fn the_number_is_limited() {
        let dead = trained(1_000, |_| true);
        assert_eq!(dead.parity(128, 32, 1e-3), 32);
        assert_eq!(dead.parity(1, 0, 1e-3), 0);
    }
}
