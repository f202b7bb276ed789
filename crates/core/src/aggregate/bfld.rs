//! Bandwidth filtered loss detection (section V-C of the paper).

use crate::units::Rate;

/// Packets of an application that are in its virtual packet stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Sampling {
    /// All of them. With several flowshares the loss event rate is then too small and the available
    /// bandwidth too large (section V-A, the naive approach). For comparison.
    All,
    /// A random sample with the bandwidth of one flowshare.
    #[default]
    Bfld,
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
