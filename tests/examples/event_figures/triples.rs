//! Statistics of triples: whether the third value differs from the first two by more than noise.

/// Two reference values and one that may differ.
pub(crate) type Triple = [f64; 3];

/// Mean distance between the two reference values, and between a reference value and the third one.
pub(crate) fn apart(triples: &[Triple]) -> [f64; 2] {
    let rounds = triples.len() as f64;
    let plain = triples.iter().map(|[a, b, _]| (a - b).abs());
    let mixed = triples.iter().map(|t| excess(*t) + (t[0] - t[1]).abs());
    [plain.sum::<f64>() / rounds, mixed.sum::<f64>() / rounds]
}

/// Distance of the third value from the reference values minus the distance between those.
fn excess([a, b, different]: Triple) -> f64 {
    f64::midpoint((a - different).abs(), (b - different).abs()) - (a - b).abs()
}

/// Significance of the difference.
pub(crate) struct Significance {
    /// Probability of a difference at least as large if the third value had the same distribution:
    /// a one-sided permutation test.
    pub(crate) p: f64,
    /// 95 % confidence interval of the difference of the means of [`apart`], by bootstrap over
    /// rounds.
    pub(crate) interval: [f64; 2],
}

/// Computed with random numbers from `random`, in `0.0..1.0`.
pub(crate) fn significance(triples: &[Triple], mut random: impl FnMut() -> f64) -> Significance {
    let mut below = |many: usize| ((random() * many as f64) as usize).min(many - 1);
    let measured: f64 = triples.iter().copied().map(excess).sum();
    // Sums of the same numbers in another order differ in the last bits.
    let near = 1e-9 * measured.abs();
    let as_far = (0..DRAWS).filter(|_| {
        let drawn = triples.iter().map(|triple| {
            let mut triple = *triple;
            triple.swap(2, below(3));
            excess(triple)
        });
        drawn.sum::<f64>() >= measured - near
    });
    // The measured order is one of the draws.
    let p = (as_far.count() + 1) as f64 / (DRAWS + 1) as f64;
    let mut means: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let drawn = triples
                .iter()
                .map(|_| excess(triples[below(triples.len())]));
            drawn.sum::<f64>() / triples.len() as f64
        })
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    Significance {
        p,
        interval: [means[DRAWS / 40], means[DRAWS - 1 - DRAWS / 40]],
    }
}

const DRAWS: usize = 20_000;

#[cfg(test)]
mod tests {
    use tidegate_core::random::{Seed, unit};

    use super::*;

    /// Forty rounds of noise, with `added` added to the third value.
    fn judge(added: impl Fn(usize) -> f64) -> (f64, Significance) {
        let mut stream = Seed(1).stream("triples");
        let mut random = || unit(&mut stream);
        let triples: Vec<Triple> = (0..40)
            .map(|round| [random(), random(), random() + added(round)])
            .collect();
        let [plain, mixed] = apart(&triples);
        (mixed - plain, significance(&triples, random))
    }

    #[test]
    fn equal_values_have_no_difference() {
        let significance = significance(&[[3.0; 3]; 40], || 0.5);
        assert_eq!((significance.p, significance.interval), (1.0, [0.0; 2]));
    }

    #[test]
    fn noise_is_not_significant() {
        let (_, significance) = judge(|_| 0.0);
        assert!(significance.p > 0.05, "{}", significance.p);
        assert!(significance.interval[0] < 0.0 && significance.interval[1] > 0.0);
    }

    /// Also if the difference changes sign and has mean zero.
    #[test]
    fn a_difference_above_the_noise_is_significant() {
        let up = |_| 1.0;
        let both = |round: usize| if round.is_multiple_of(2) { 1.0 } else { -1.0 };
        for (difference, significance) in [judge(up), judge(both)] {
            assert!(significance.p < 0.001, "{}", significance.p);
            let [low, high] = significance.interval;
            assert!(0.0 < low && low < difference && difference < high);
        }
    }
}
