//! The outer loop of rate control: what a frame may cost, given what those before it did cost.

use tidegate_core::media::{EncodeError, FrameRate};

/// What every encoder is asked before it is opened.
///
/// # Errors
/// When shares or rate are out of range.
pub(crate) fn check(key_shares: f64, rate: FrameRate) -> Result<(), EncodeError> {
    if !(1.0..=20.0).contains(&key_shares) {
        return Err(EncodeError::Codec(format!(
            "a key frame of {key_shares} shares is not possible: choose within 1 to 20"
        )));
    }
    if rate.num == 0 || rate.den == 0 {
        return Err(EncodeError::Codec(format!(
            "a frame rate of {}/{} is not possible: both must be above 0",
            rate.num, rate.den
        )));
    }
    Ok(())
}

/// Carries what frames took above or below their budget into those that follow.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Bits saved so far; negative when overdrawn.
    saved: f64,
    /// Of the frame before.
    #[cfg(feature = "ffmpeg")]
    last_share: f64,
}

impl Budget {
    /// Bits to ask for when a frame's share of the rate is `share`.
    pub(crate) fn ask(&mut self, share: f64) -> f64 {
        // Savings at a higher rate are not spent at a lower one: the path no longer has them.
        self.saved = self.saved.clamp(-MOST_DEBT * share, MOST_SAVED * share);
        (share + self.saved / REPAID_IN).clamp(LEAST * share, MOST * share)
    }

    /// Bits that a frame may take at most when its share of the rate is `share`: savings, of no more
    /// than `most_saved` shares, are spent at once, and debts repaid over several frames.
    #[cfg(feature = "ffmpeg")]
    pub(crate) fn may(&mut self, share: f64, most_saved: f64) -> f64 {
        if share < self.last_share * FALL {
            self.saved = self.saved.min(0.0);
        }
        self.last_share = share;
        self.saved = self.saved.clamp(-MOST_DEBT * share, most_saved * share);
        if self.saved > 0.0 {
            share + self.saved
        } else {
            (share + self.saved / REPAID_IN).max(LEAST * share)
        }
    }

    /// A frame with the share `share` took `bits`.
    pub(crate) fn spend(&mut self, share: f64, bits: f64) {
        self.saved += share - bits;
    }
}

/// Frames over which a difference is made up, as a time constant.
const REPAID_IN: f64 = 4.0;
/// Shares. A key frame may take several at once; older debt is forgiven, as the queue has seen it.
const MOST_DEBT: f64 = 3.0;
/// Shares. More would let a calm scene save up for a burst.
const MOST_SAVED: f64 = 2.0;
/// A share that falls below this part of the one before leaves no savings.
#[cfg(feature = "ffmpeg")]
const FALL: f64 = 0.7;
/// Of a share: less ruins the picture for little.
const LEAST: f64 = 0.3;
/// Of a share. The encoder is asked for a quarter more and may use it all: frames stay below 1.5.
const MOST: f64 = 1.2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_debt_is_repaid_and_the_mean_is_the_share() {
        let mut budget = Budget::default();
        budget.spend(1000.0, 3500.0);
        let mut sum = 3500.0;
        for _ in 1..30 {
            let asked = budget.ask(1000.0);
            budget.spend(1000.0, asked);
            sum += asked;
        }
        assert!((sum / 30_000.0 - 1.0).abs() < 0.01, "{sum}");
    }

    proptest! {
        #[test]
        fn an_encoder_that_misses_by_a_fifth_is_held_to_its_rate(
            misses in prop::collection::vec(0.8_f64..1.2, 60),
            share in 500.0_f64..100_000.0,
        ) {
            let mut budget = Budget::default();
            let mut sum = 0.0;
            for miss in &misses {
                let bits = budget.ask(share) * miss;
                prop_assert!(bits <= 1.5 * share && bits >= 0.2 * share);
                budget.spend(share, bits);
                sum += bits;
            }
            prop_assert!((sum / (60.0 * share) - 1.0).abs() < 0.05, "{}", sum / share);
        }
    }
}
