//! Statements about a reproduction, and its distance to published values.

use serde::Serialize;

/// A statement of the paper, or a related one about the reproduction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// Text of the statement.
    pub text: String,
    /// Published number, if any.
    pub published: Option<f64>,
    /// Reproduced number.
    pub ours: Option<f64>,
    /// Whether the reproduction confirms the statement. `None` if its subject, such as a
    /// retransmission timeout, did not occur in any run.
    pub holds: Option<bool>,
    /// Origin of the verdict.
    pub basis: Basis,
}

/// Origin of the verdict of a [`Claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Measured: another outcome was possible.
    Measured,
    /// The setup of the experiment decides the outcome.
    Construction,
    /// Another claim judges the same numbers.
    Repeated,
}

impl Claim {
    /// Creates a claim about a measured number. NaN, such as a ratio of zeros, means that the subject of
    /// the claim did not occur.
    pub fn new(text: String, published: Option<f64>, ours: f64, holds: bool) -> Self {
        Self {
            text,
            published,
            ours: (!ours.is_nan()).then_some(ours),
            holds: (!ours.is_nan()).then_some(holds),
            basis: Basis::Measured,
        }
    }

    /// Creates a claim whose subject did not occur.
    pub fn no_event(text: String, published: Option<f64>) -> Self {
        Self::new(text, published, f64::NAN, false)
    }

    /// Marks the claim as decided by the setup of the experiment.
    pub fn by_construction(self) -> Self {
        Self {
            basis: Basis::Construction,
            ..self
        }
    }

    /// Marks the claim as a repetition of another one.
    pub fn repeated(self) -> Self {
        Self {
            basis: Basis::Repeated,
            ..self
        }
    }

    /// Verdict in the text output.
    pub fn verdict(&self) -> &'static str {
        match (self.holds, self.basis) {
            (None, _) => "no event",
            (Some(false), Basis::Repeated) => "FAILS, repeated",
            (Some(false), _) => "FAILS",
            (Some(true), Basis::Measured) => "holds",
            (Some(true), Basis::Construction) => "by construction",
            (Some(true), Basis::Repeated) => "repeated",
        }
    }
}

/// Tolerance of a comparison with published values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tolerance {
    /// Largest accepted difference, in the unit of the quantity.
    Absolute(f64),
    /// Largest accepted difference, as a share of the published value.
    Relative(f64),
}

impl Tolerance {
    fn distance(self, published: f64, ours: f64) -> f64 {
        match self {
            Self::Absolute(_) => (ours - published).abs(),
            Self::Relative(_) => ((ours - published) / published).abs(),
        }
    }

    fn limit(self) -> f64 {
        match self {
            Self::Absolute(limit) | Self::Relative(limit) => limit,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Absolute(limit) => format!("{limit}"),
            Self::Relative(limit) => format!("{} %", limit * 100.0),
        }
    }
}

/// A published value and its reproduction.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Cell of the published table.
    pub at: String,
    /// Published value.
    pub published: f64,
    /// Reproduced value.
    pub ours: f64,
}

/// Distance of a quantity of a table to its published values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distance {
    /// Quantity with its unit.
    pub quantity: String,
    /// Accepted distance of each value.
    pub tolerance: Tolerance,
    /// Number of compared values.
    pub values: usize,
    /// Number of values within the tolerance.
    pub within: usize,
    /// Median distance, in the unit of the tolerance.
    pub median: f64,
    /// Largest distance, in the unit of the tolerance.
    pub largest: f64,
    /// Cell with the largest distance.
    pub largest_at: String,
}

impl Distance {
    /// Compares `pairs`; `None` without pairs.
    pub fn of(
        quantity: impl Into<String>,
        tolerance: Tolerance,
        pairs: impl IntoIterator<Item = Pair>,
    ) -> Option<Self> {
        let distance = |pair: Pair| (tolerance.distance(pair.published, pair.ours), pair.at);
        let mut sorted: Vec<(f64, String)> = pairs.into_iter().map(distance).collect();
        sorted.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let values = sorted.len();
        let middle = |from_end: usize| sorted.get(from_end / 2).map(|(distance, _)| *distance);
        let median = f64::midpoint(middle(values)?, middle(values - 1)?);
        let within = sorted.partition_point(|(distance, _)| *distance <= tolerance.limit());
        let (largest, largest_at) = sorted.pop()?;
        Some(Self {
            quantity: quantity.into(),
            tolerance,
            values,
            within,
            median,
            largest,
            largest_at,
        })
    }

    /// Claim that every value is within the tolerance.
    pub fn claim(&self) -> Claim {
        Claim::new(
            format!(
                "{}: within {} of every published value (largest distance, at {})",
                self.quantity,
                self.tolerance.text(),
                self.largest_at
            ),
            None,
            self.largest,
            self.within == self.values,
        )
    }

    /// One line of the text output.
    pub fn text(&self) -> String {
        let number = |distance: f64| match self.tolerance {
            Tolerance::Absolute(_) => format!("{distance:.3}"),
            Tolerance::Relative(_) => format!("{:.1} %", distance * 100.0),
        };
        format!(
            "{}: {} of {} values within {}, median {}, largest {} at {}",
            self.quantity,
            self.within,
            self.values,
            self.tolerance.text(),
            number(self.median),
            number(self.largest),
            self.largest_at
        )
    }
}

/// Number of claims of each verdict, and of values within their tolerance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Measured claims that hold.
    pub hold: usize,
    /// Claims that fail, by measurement or by construction.
    pub fail: usize,
    /// Claims whose subject did not occur.
    pub no_event: usize,
    /// Claims that hold by construction.
    pub by_construction: usize,
    /// Claims that repeat another claim.
    pub repeated: usize,
    /// Values compared with published ones.
    pub values: usize,
    /// Those within their tolerance.
    pub within: usize,
}

impl Tally {
    /// Counts claims and distances.
    pub fn of(claims: &[Claim], distances: &[Distance]) -> Self {
        let mut tally = Self::default();
        for claim in claims {
            let count = match (claim.holds, claim.basis) {
                (None, _) => &mut tally.no_event,
                (Some(_), Basis::Repeated) => &mut tally.repeated,
                (Some(false), _) => &mut tally.fail,
                (Some(true), Basis::Measured) => &mut tally.hold,
                (Some(true), Basis::Construction) => &mut tally.by_construction,
            };
            *count += 1;
        }
        for distance in distances {
            tally.values += distance.values;
            tally.within += distance.within;
        }
        tally
    }
}

impl core::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |sum, each| Self {
            hold: sum.hold + each.hold,
            fail: sum.fail + each.fail,
            no_event: sum.no_event + each.no_event,
            by_construction: sum.by_construction + each.by_construction,
            repeated: sum.repeated + each.repeated,
            values: sum.values + each.values,
            within: sum.within + each.within,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(at: &str, published: f64, ours: f64) -> Pair {
        Pair {
            at: at.to_owned(),
            published,
            ours,
        }
    }

    #[test]
    fn distances_have_median_largest_and_its_place() {
        let pairs = [
            pair("a", 1.0, 1.05),
            pair("b", 2.0, 1.0),
            pair("c", 10.0, 11.0),
        ];
        let absolute = Distance::of("rate", Tolerance::Absolute(0.1), pairs.clone()).unwrap();
        assert_eq!((absolute.values, absolute.within), (3, 1));
        assert!((absolute.largest - 1.0).abs() < 1e-9);
        let relative = Distance::of("rate", Tolerance::Relative(0.1), pairs).unwrap();
        assert_eq!(relative.within, 2);
        assert!((relative.largest - 0.5).abs() < 1e-9);
        assert_eq!(relative.largest_at, "b");
        assert!((relative.median - 0.1).abs() < 1e-9);
        assert_eq!(relative.claim().holds, Some(false));
        assert_eq!(
            relative.text(),
            "rate: 2 of 3 values within 10 %, median 10.0 %, largest 50.0 % at b"
        );
        let two = [pair("a", 1.0, 1.1), pair("b", 1.0, 1.3)];
        let even = Distance::of("share", Tolerance::Absolute(0.5), two).unwrap();
        assert!((even.median - 0.2).abs() < 1e-9);
        assert_eq!(even.claim().holds, Some(true));
        assert_eq!(Distance::of("none", Tolerance::Absolute(1.0), []), None);
    }

    #[test]
    fn claims_are_counted_by_verdict_and_basis() {
        let claim = |holds| Claim::new("a".to_owned(), None, 1.0, holds);
        let claims = [
            claim(true),
            claim(false),
            claim(true).by_construction(),
            claim(false).by_construction(),
            claim(true).repeated(),
            claim(false).repeated(),
            Claim::no_event("b".to_owned(), Some(1.0)),
            Claim::new("c".to_owned(), None, f64::INFINITY, false),
        ];
        let verdicts: Vec<&str> = claims.iter().map(Claim::verdict).collect();
        assert_eq!(
            verdicts,
            [
                "holds",
                "FAILS",
                "by construction",
                "FAILS",
                "repeated",
                "FAILS, repeated",
                "no event",
                "FAILS"
            ]
        );
        let tally = Tally::of(&claims, &[]);
        let expected = Tally {
            hold: 1,
            fail: 3,
            no_event: 1,
            by_construction: 1,
            repeated: 2,
            ..Tally::default()
        };
        assert_eq!(tally, expected);
        assert_eq!([tally, tally].into_iter().sum::<Tally>().fail, 6);
    }
}
