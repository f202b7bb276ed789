//! Random loss, independent from packet to packet.

use rand_pcg::Pcg64Mcg;

use crate::random::unit;

/// Loses each packet with the same probability.
#[derive(Clone, Debug)]
pub struct Bernoulli {
    probability: f64,
    rng: Pcg64Mcg,
}

impl Bernoulli {
    /// `probability` in 0..=1; `rng` is the stream of the link.
    pub fn new(probability: f64, rng: Pcg64Mcg) -> Self {
        Self { probability, rng }
    }

    /// Whether the next packet is lost. Draws once per call, whatever the probability, so that
    /// the luck of packet n is that of draw n.
    pub fn loses(&mut self) -> bool {
        unit(&mut self.rng) < self.probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    #[test]
    fn loses_its_share() {
        let share = |probability| {
            let mut loss = Bernoulli::new(probability, Seed(3).stream("link/l/loss"));
            (0..100_000).filter(|_| loss.loses()).count()
        };
        assert_eq!((share(0.0), share(1.0)), (0, 100_000));
        // Four standard deviations of a binomial with p = 0.02 are 177.
        assert!(share(0.02).abs_diff(2_000) < 177, "{}", share(0.02));
    }
}
