//! Maximum of recent samples, in constant memory.

/// Maximum over a sliding window; with [`Reverse`](core::cmp::Reverse), the minimum.
///
/// Keeps the best value, the best of those after it, and the best of those after that one, so that
/// there is a successor when the best expires (Nichols' method, as in Linux). A value between two
/// better ones is discarded, so the result is never above the maximum of the window and may be
/// below it for a while after the maximum has expired.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windowed<T> {
    span: u64,
    kept: Option<[Sample<T>; 3]>,
}

#[derive(Clone, Copy, Debug)]
struct Sample<T> {
    at: u64,
    value: T,
}

impl<T: Copy + PartialOrd> Windowed<T> {
    /// A window of length `span`, in the time unit of the samples.
    pub(super) fn new(span: u64) -> Self {
        Self { span, kept: None }
    }

    /// The best value; `None` before the first sample.
    pub(super) fn get(&self) -> Option<T> {
        self.kept.map(|[best, ..]| best.value)
    }

    /// Adds a sample that is no older than those before it.
    pub(super) fn add(&mut self, at: u64, value: T) {
        let new = Sample { at, value };
        let Some([first, second, third]) = &mut self.kept else {
            self.kept = Some([new; 3]);
            return;
        };
        if value >= first.value || at.saturating_sub(third.at) > self.span {
            self.kept = Some([new; 3]);
            return;
        }
        if value >= second.value {
            (*second, *third) = (new, new);
        } else if value >= third.value {
            *third = new;
        }
        if at.saturating_sub(first.at) > self.span {
            (*first, *second, *third) = (*second, *third, new);
            if at.saturating_sub(first.at) > self.span {
                (*first, *second, *third) = (*second, *third, new);
            }
        } else if second.at == first.at && at.saturating_sub(first.at) > self.span / 4 {
            // A successor from the second quarter, and one from the second half.
            (*second, *third) = (new, new);
        } else if third.at == second.at && at.saturating_sub(first.at) > self.span / 2 {
            *third = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reverse_yields_the_minimum() {
        use core::cmp::Reverse;
        let mut low = Windowed::new(10);
        for (at, value) in [(0, 5), (3, 7), (4, 6), (9, 8)] {
            low.add(at, Reverse(value));
        }
        assert_eq!(low.get(), Some(Reverse(5)));
        low.add(11, Reverse(9));
        assert_eq!(low.get(), Some(Reverse(6)));
    }

    #[test]
    fn falling_values_are_followed_with_a_lag_of_half_to_a_full_span() {
        let mut max = Windowed::new(100);
        for at in 0..1_000 {
            max.add(at, 1_000 - at as i64);
            let lag = max.get().unwrap() - (1_000 - at as i64);
            assert!(lag <= 100 && (at < 100 || lag >= 49), "{at} {lag}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn never_above_the_best_of_the_span(values in prop::collection::vec(0_u32..100, 1..200)) {
            let mut max = Windowed::new(20);
            for (at, value) in values.iter().enumerate() {
                max.add(at as u64, *value);
                let over = |span: usize| values[at.saturating_sub(span)..=at].iter().max().copied();
                prop_assert!(max.get() <= over(20));
                prop_assert!(max.get() >= over(2));
            }
        }
    }
}
