//! Two of one kind and one of another, over and over: do the kinds differ by more than luck?

/// Two plain ones and the one that may be different.
pub(crate) type Triple = [f64; 3];

/// How far two plain ones are from each other, and a plain one from the different one, in the mean.
pub(crate) fn apart(triples: &[Triple]) -> [f64; 2] {
    let rounds = triples.len() as f64;
    let plain = triples.iter().map(|[a, b, _]| (a - b).abs());
    let mixed = triples.iter().map(|t| excess(*t) + (t[0] - t[1]).abs());
    [plain.sum::<f64>() / rounds, mixed.sum::<f64>() / rounds]
}

/// By how much further the different one is from the plain ones than they are from each other.
fn excess([a, b, different]: Triple) -> f64 {
    f64::midpoint((a - different).abs(), (b - different).abs()) - (a - b).abs()
}

/// What luck has to do with it.
pub(crate) struct Luck {
    /// How often it would be at least as far apart if it made no difference which of the three is
    /// the different one: a permutation test, one-sided.
    pub(crate) p: f64,
    /// Where the difference of the means of [`apart`] lies with 95 %: a bootstrap of rounds.
    pub(crate) interval: [f64; 2],
}

/// Tried out with numbers from `random`, which are in `0.0..1.0`.
pub(crate) fn luck(triples: &[Triple], mut random: impl FnMut() -> f64) -> Luck {
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
    // What was measured is one of the draws.
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
    Luck {
        p,
        interval: [means[DRAWS / 40], means[DRAWS - 1 - DRAWS / 40]],
    }
}

const DRAWS: usize = 20_000;

#[cfg(test)]
mod tests {
    use tidegate_core::random::{Seed, unit};

    use super::*;

    /// Forty rounds of noise, to which the different one has this added.
    fn judge(added: impl Fn(usize) -> f64) -> (f64, Luck) {
        let mut stream = Seed(1).stream("triples");
        let mut random = || unit(&mut stream);
        let triples: Vec<Triple> = (0..40)
            .map(|round| [random(), random(), random() + added(round)])
            .collect();
        let [plain, mixed] = apart(&triples);
        (mixed - plain, luck(&triples, random))
    }

    #[test]
    fn what_is_equal_is_never_further_apart() {
        let luck = luck(&[[3.0; 3]; 40], || 0.5);
        assert_eq!((luck.p, luck.interval), (1.0, [0.0; 2]));
    }

    #[test]
    fn noise_alone_is_luck() {
        let (_, luck) = judge(|_| 0.0);
        assert!(luck.p > 0.05, "{}", luck.p);
        assert!(luck.interval[0] < 0.0 && luck.interval[1] > 0.0);
    }

    /// Also where it is now more and now less, and equal in the mean.
    #[test]
    fn what_is_further_apart_than_noise_is_none() {
        let up = |_| 1.0;
        let both = |round: usize| if round.is_multiple_of(2) { 1.0 } else { -1.0 };
        for (difference, luck) in [judge(up), judge(both)] {
            assert!(luck.p < 0.001, "{}", luck.p);
            let [low, high] = luck.interval;
            assert!(0.0 < low && low < difference && difference < high);
        }
    }
}
