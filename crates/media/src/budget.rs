//! Outer loop of the rate control: the bit budget of a frame, given the sizes of earlier frames.

use tidegate_core::media::{EncodeError, FrameRate};

/// Validates parameters common to all encoders.
///
/// # Errors
/// If shares or frame rate are out of range.
pub(crate) fn check(key_shares: f64, rate: FrameRate) -> Result<(), EncodeError> {
    if !(1.0..=20.0).contains(&key_shares) {
        return Err(EncodeError::Codec(format!(
            "invalid key frame size of {key_shares} shares: choose a value from 1 to 20"
        )));
    }
    if rate.num == 0 || rate.den == 0 {
        return Err(EncodeError::Codec(format!(
            "invalid frame rate {}/{}: both numbers must be above 0",
            rate.num, rate.den
        )));
    }
    Ok(())
}

/// Carries the difference between size and budget of each frame over to later frames.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Bits saved so far; negative when overdrawn.
    saved: f64,
    /// Share of the previous frame.
    #[cfg(feature = "ffmpeg")]
    last_share: f64,
}

impl Budget {
    /// Target size in bits of a frame whose share of the rate is `share`.
    pub(crate) fn target_bits(&mut self, share: f64) -> f64 {
        // Savings at a higher rate are not spent at a lower one, because the path cannot carry
        // them.
        self.saved = self.saved.clamp(-MAX_DEBT * share, MAX_SAVED * share);
        (share + self.saved / REPAID_IN).clamp(MIN * share, MAX * share)
    }

    /// Maximum size in bits of a frame whose share of the rate is `share`. Savings of up to
    /// `most_saved` shares are spent at once. Debts are repaid over several frames.
    #[cfg(feature = "ffmpeg")]
    pub(crate) fn max_bits(&mut self, share: f64, most_saved: f64) -> f64 {
        if share < self.last_share * FALL {
            self.saved = self.saved.min(0.0);
        }
        self.last_share = share;
        self.saved = self.saved.clamp(-MAX_DEBT * share, most_saved * share);
        if self.saved > 0.0 {
            share + self.saved
        } else {
            (share + self.saved / REPAID_IN).max(MIN * share)
        }
    }

    /// Records the size of a frame with the share `share`.
    pub(crate) fn spend(&mut self, share: f64, bits: f64) {
        self.saved += share - bits;
    }
}

/// Time constant of the correction, in frames.
const REPAID_IN: f64 = 4.0;
/// Maximum debt in shares. A key frame may take several at once. Larger debt is discarded, because
/// its bits are in the queue already.
const MAX_DEBT: f64 = 3.0;
/// Maximum savings in shares. More would allow a burst after a calm scene.
const MAX_SAVED: f64 = 2.0;
/// If the share drops below this fraction of the previous one, savings are discarded.
#[cfg(feature = "ffmpeg")]
const FALL: f64 = 0.7;
/// Minimum target in shares. Less would save little and degrade the picture severely.
const MIN: f64 = 0.3;
/// Maximum target in shares. The x264 target is a quarter higher, so frames stay below 1.5 shares.
const MAX: f64 = 1.2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn debt_is_repaid_and_the_mean_is_the_share() {
        let mut budget = Budget::default();
        budget.spend(1000.0, 3500.0);
        let mut sum = 3500.0;
        for _ in 1..30 {
            let asked = budget.target_bits(1000.0);
            budget.spend(1000.0, asked);
            sum += asked;
        }
        assert!((sum / 30_000.0 - 1.0).abs() < 0.01, "{sum}");
    }

    proptest! {
        #[test]
        fn mean_rate_is_kept_despite_size_errors_of_a_fifth(
            misses in prop::collection::vec(0.8_f64..1.2, 60),
            share in 500.0_f64..100_000.0,
        ) {
            let mut budget = Budget::default();
            let mut sum = 0.0;
            for miss in &misses {
                let bits = budget.target_bits(share) * miss;
                prop_assert!(bits <= 1.5 * share && bits >= 0.2 * share);
                budget.spend(share, bits);
                sum += bits;
            }
            prop_assert!((sum / (60.0 * share) - 1.0).abs() < 0.05, "{}", sum / share);
        }
    }
}
