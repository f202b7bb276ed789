//! Bandwidth filtered loss detection (section V-C of the paper).

use crate::units::Rate;

/// Packets of an application that are in its virtual packet stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Sampling {
    /// All of them, for comparison. With several flowshares the loss event rate is then too small and
    /// the available bandwidth too large (section V-A, the naive approach), unless the controller is
    /// MulTFRC, which controls the flowshares together.
    All,
    /// A sample with the bandwidth of one flowshare: one packet at random of each `1/F`. As in a paced
    /// flow, packets follow each other at similar distances.
    #[default]
    Bfld,
    /// The paper's sample: each packet by an independent draw. The distances between packets are then
    /// exponential, so a flowshare of few packets per round trip seems to receive less than it does,
    /// and its controller limits the rate. For comparison.
    BfldIndependent,
}

/// Selects packets for the virtual stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampler {
    sampling: Sampling,
    /// Packets of the virtual stream that are due beyond the latest one, and how many have to be for
    /// the next one.
    due: f64,
    next: f64,
}

impl Sampler {
    pub(super) fn new(sampling: Sampling) -> Self {
        Self {
            sampling,
            due: 0.0,
            next: 0.0,
        }
    }

    /// Whether the next packet is in the stream.
    pub(super) fn select(&mut self, fraction: f64, draw: impl FnOnce() -> f64) -> bool {
        match self.sampling {
            Sampling::All => true,
            Sampling::BfldIndependent => fraction >= 1.0 || is_sampled(draw(), fraction),
            Sampling::Bfld => {
                self.due += fraction;
                if self.due < self.next {
                    return false;
                }
                // One packet in each unit, at a random position in 0..1.
                self.due -= 1.0;
                self.next = draw();
                true
            }
        }
    }
}

/// Sampling fraction `F`: the available bandwidth of one flowshare over the bandwidth that the
/// application sends; at most 1.
pub fn fraction(available: Rate, arriving: Rate) -> f64 {
    if available >= arriving {
        1.0
    } else {
        available.as_f64() / arriving.as_f64()
    }
}

/// Whether an arrival or a loss is in the virtual packet stream; `draw` is a uniform random number
/// in 0..=1.
pub fn is_sampled(draw: f64, fraction: f64) -> bool {
    draw <= fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 9: of the 13 packets from one lost packet to the next, 8 are sampled, and the interval
    /// between the losses falls from 12 to 7.
    #[test]
    fn interval_of_figure_9_falls_from_12_to_7() {
        let fraction = fraction(Rate::kbps(700), Rate::kbps(1_200));
        assert!((fraction - 7.0 / 12.0).abs() < 1e-12);
        let (low, high) = (0.3, 0.9);
        let draws = [
            low, high, low, low, high, low, high, low, high, low, high, low, low,
        ];
        let lost = |packet: usize| packet == 0 || packet == 12;
        let mut next = 0_u64;
        let mut losses = Vec::new();
        for (packet, draw) in draws.into_iter().enumerate() {
            if is_sampled(draw, fraction) {
                if lost(packet) {
                    losses.push(next);
                }
                next += 1;
            }
        }
        assert_eq!(losses, [0, 7]);
    }

    /// Positions of the selected packets of 10,000, with a generator of the golden ratio.
    fn selected(sampling: Sampling, fraction: f64) -> Vec<usize> {
        let mut sampler = Sampler::new(sampling);
        let mut draw = 0.0;
        let select = |_: &usize| {
            sampler.select(fraction, || {
                draw = (draw + 0.618_033_988_749_895) % 1.0;
                draw
            })
        };
        (0..10_000).filter(select).collect()
    }

    #[test]
    fn samples_have_the_fraction_of_the_packets() {
        for fraction in [0.01, 0.1, 0.37, 0.5, 0.9, 1.0] {
            for sampling in [Sampling::Bfld, Sampling::BfldIndependent] {
                let count = selected(sampling, fraction).len() as f64 / 10_000.0;
                assert!(
                    (count - fraction).abs() < 0.01,
                    "{sampling:?} {fraction} {count}"
                );
            }
        }
        assert_eq!(selected(Sampling::All, 0.1).len(), 10_000);
    }

    #[test]
    fn distances_between_samples_are_at_most_twice_the_mean() {
        let chosen = selected(Sampling::Bfld, 0.1);
        let distances = chosen.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(distances.max().unwrap() <= 20);
    }

    #[test]
    fn bounds_of_the_interval_are_sampled() {
        assert!(is_sampled(0.0, 0.0) && is_sampled(1.0, 1.0) && !is_sampled(0.51, 0.5));
    }

    #[test]
    fn fraction_is_at_most_one() {
        let one =
            |available, arriving| fraction(available, arriving).to_bits() == 1.0_f64.to_bits();
        assert!(one(Rate::kbps(2), Rate::kbps(1)));
        assert!(one(Rate::ZERO, Rate::ZERO));
        assert!(fraction(Rate::ZERO, Rate::kbps(1)) <= 0.0);
    }
}
