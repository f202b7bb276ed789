//! Service curves: forecasts of the cumulative capacity of a transport.

use core::time::Duration;

use crate::units::Rate;

/// Cumulative capacity W(t) in bits from now (t = 0), with a piecewise linear rate.
///
/// W is piecewise quadratic, so constant rates, steps, stalls, traces and the growth of TCP are
/// represented exactly. The last piece has no end and its rate does not decrease. Unused capacity
/// is lost: W is an upper bound of the bits that leave.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceCurve {
    /// Ordered by `start`; never empty; the first starts at zero.
    pieces: Vec<Piece>,
}

/// Segment of a curve, for [`ServiceCurve::from_segments`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Duration; ignored in the last segment, which has no end.
    pub duration: Duration,
    /// Rate at the start of the segment.
    pub rate: Rate,
    /// Growth of the rate, in b/s per second. A decreasing rate stops at zero.
    pub slope: f64,
}

/// Piece of a curve in seconds, bits and bits per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Piece {
    pub(super) start: f64,
    /// W at `start`.
    pub(super) bits: f64,
    pub(super) rate: f64,
    pub(super) slope: f64,
}

/// Error of [`ServiceCurve::from_segments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    /// There are no segments.
    #[error("a service curve needs at least one segment")]
    Empty,
    /// The slope of the last segment is negative. This segment has no end.
    #[error(
        "the last segment of a service curve has no end: give it a slope of zero or more, or \
         add a segment after it"
    )]
    NegativeFinalSlope,
    /// The slope of the segment with this index is not a finite number.
    #[error("the slope of segment {0} of the service curve is not a finite number of b/s²")]
    SlopeNotFinite(usize),
}

impl ServiceCurve {
    /// Constant rate, such as the pacing rate of a paced sender.
    pub fn constant(rate: Rate) -> Self {
        Builder::new().tail(rate.as_f64(), 0.0)
    }

    /// w(t) = m·t with `m` in b/s per second (at least zero): TCP that grows from a rate of zero,
    /// as in the paper.
    pub fn linear(m: f64) -> Self {
        Builder::new().tail(0.0, m)
    }

    /// Sequence of rates with their durations, such as a recorded trace. The last rate has no end.
    /// A zero rate is a stall. Without steps the capacity is zero.
    pub fn steps(steps: &[(Duration, Rate)]) -> Self {
        let Some(((_, last), before)) = steps.split_last() else {
            return Self::constant(Rate::ZERO);
        };
        let mut build = Builder::new();
        for (duration, rate) in before {
            build.push(duration.as_secs_f64(), rate.as_f64(), 0.0);
        }
        build.tail(last.as_f64(), 0.0)
    }

    /// Zero rate for `stall`, then `then` from its start.
    pub fn stall_then(stall: Duration, then: &Self) -> Self {
        let mut build = Builder::new();
        build.push(stall.as_secs_f64(), 0.0, 0.0);
        build.extend(&then.pieces);
        build.finish()
    }

    /// Builds a curve from segments.
    ///
    /// # Errors
    /// If there are no segments, a slope is not finite, or the last slope is negative.
    pub fn from_segments(segments: &[Segment]) -> Result<Self, CurveError> {
        let (last, before) = segments.split_last().ok_or(CurveError::Empty)?;
        if let Some(bad) = segments.iter().position(|s| !s.slope.is_finite()) {
            return Err(CurveError::SlopeNotFinite(bad));
        }
        if last.slope < 0.0 {
            return Err(CurveError::NegativeFinalSlope);
        }
        let mut build = Builder::new();
        for s in before {
            build.push(s.duration.as_secs_f64(), s.rate.as_f64(), s.slope);
        }
        Ok(build.tail(last.rate.as_f64(), last.slope))
    }

    /// The minimum of the two *rates* at every time.
    ///
    /// This is exact if two limits act at once (a window and a pacer). It is conservative if either
    /// forecast may be correct: no interval carries more than in either curve.
    pub fn min(&self, other: &Self) -> Self {
        let mut build = Builder::new();
        let (mut i, mut j, mut at) = (0, 0, 0.0_f64);
        loop {
            let (a, b) = (self.pieces[i], other.pieces[j]);
            let end = self.end(i).min(other.end(j));
            let (gap, closing) = (a.rate_at(at) - b.rate_at(at), b.slope - a.slope);
            // If the two rates cross inside the cell, the lower one changes. A crossing just ahead
            // of `at` is a rounding error of the crossing that ended the last cell.
            let cross = at + gap / closing;
            let ahead = cross > at + 1e-12 * (1.0 + at) && cross < end;
            let stop = if ahead { cross } else { end };
            let inside = if stop.is_finite() {
                0.5 * (at + stop)
            } else {
                at + 1.0
            };
            let low = if a.rate_at(inside) <= b.rate_at(inside) {
                a
            } else {
                b
            };
            if stop.is_infinite() {
                return build.tail(low.rate_at(at), low.slope);
            }
            build.push(stop - at, low.rate_at(at), low.slope);
            at = stop;
            i += usize::from(at >= self.end(i));
            j += usize::from(at >= other.end(j));
        }
    }

    /// All rates multiplied by `factor` (at least zero).
    pub fn scaled(&self, factor: f64) -> Self {
        let mut build = Builder::new();
        build.pieces.clone_from(&self.pieces);
        for p in &mut build.pieces {
            p.rate *= factor;
            p.slope *= factor;
            p.bits *= factor;
        }
        build.finish()
    }

    /// A pessimistic forecast: all rates multiplied by `factor`, after a stall of `stall`.
    pub fn pessimistic(&self, factor: f64, stall: Duration) -> Self {
        Self::stall_then(stall, &self.scaled(factor))
    }

    /// The same forecast with its origin at `t`. Bits carried before `t` are excluded.
    pub fn from(&self, t: Duration) -> Self {
        let t = t.as_secs_f64();
        let first = self.index(t);
        let mut build = Builder::new();
        let p = self.pieces[first];
        let end = self.end(first);
        if end.is_infinite() {
            return build.tail(p.rate_at(t), p.slope);
        }
        build.push(end - t, p.rate_at(t), p.slope);
        build.extend(&self.pieces[first + 1..]);
        build.finish()
    }

    /// W(t) in bits.
    pub fn at(&self, t: Duration) -> f64 {
        self.bits_at(t.as_secs_f64())
    }

    /// The first time at which W reaches `bits`; `None` if it never does.
    pub fn inverse(&self, bits: f64) -> Option<Duration> {
        Duration::try_from_secs_f64(self.time_of(bits)).ok()
    }

    /// Long-run rate; infinite if the rate grows without limit.
    pub(super) fn tail_rate(&self) -> f64 {
        let last = self.pieces[self.pieces.len() - 1];
        if last.slope > 0.0 {
            f64::INFINITY
        } else {
            last.rate
        }
    }

    /// Bits carried before the last piece: the scale of rounding errors.
    pub(super) fn tail_bits(&self) -> f64 {
        self.pieces[self.pieces.len() - 1].bits
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Index of the piece that contains `t`.
    pub(super) fn index(&self, t: f64) -> usize {
        self.pieces.partition_point(|p| p.start <= t).max(1) - 1
    }

    /// End of piece `i`; infinite for the last.
    pub(super) fn end(&self, i: usize) -> f64 {
        self.pieces.get(i + 1).map_or(f64::INFINITY, |p| p.start)
    }

    pub(super) fn bits_at(&self, t: f64) -> f64 {
        self.pieces[self.index(t)].bits_at(t)
    }

    /// [`inverse`](Self::inverse) in seconds; infinite if W never reaches `bits`.
    pub(super) fn time_of(&self, bits: f64) -> f64 {
        if bits <= 0.0 {
            return 0.0;
        }
        let p = self.pieces[self.pieces.partition_point(|p| p.bits < bits).max(1) - 1];
        let want = bits - p.bits;
        // The numerically stable form of the root of rate·x + slope·x²/2 = want, which avoids
        // cancellation.
        let root = (p.rate * p.rate + 2.0 * p.slope * want).max(0.0).sqrt();
        let x = 2.0 * want / (p.rate + root);
        if x.is_finite() {
            p.start + x
        } else {
            f64::INFINITY
        }
    }
}

impl Piece {
    pub(super) fn rate_at(&self, t: f64) -> f64 {
        (self.rate + self.slope * (t - self.start)).max(0.0)
    }

    pub(super) fn bits_at(&self, t: f64) -> f64 {
        let x = t - self.start;
        self.bits + x * (self.rate + 0.5 * self.slope * x)
    }

    /// Time at which the line through this piece has the rate `rate`, even outside of the piece.
    /// NaN or infinite if the rate is constant.
    pub(super) fn when(&self, rate: f64) -> f64 {
        self.start + (rate - self.rate) / self.slope
    }
}

/// Builds a curve piece by piece and keeps the sums.
pub(super) struct Builder {
    pieces: Vec<Piece>,
    at: f64,
    bits: f64,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            pieces: Vec::new(),
            at: 0.0,
            bits: 0.0,
        }
    }

    /// Appends a piece of `duration` seconds, or none if that is zero or less.
    pub(super) fn push(&mut self, duration: f64, rate: f64, slope: f64) {
        if duration.is_nan() || duration <= 0.0 {
            return;
        }
        let to_zero = if slope < 0.0 {
            rate / -slope
        } else {
            f64::INFINITY
        };
        if to_zero < duration {
            self.push(to_zero, rate, slope);
            return self.push(duration - to_zero, 0.0, 0.0);
        }
        self.pieces.push(Piece {
            start: self.at,
            bits: self.bits,
            rate,
            slope,
        });
        self.at += duration;
        self.bits += duration * (rate + 0.5 * slope * duration);
    }

    /// Appends pieces; the last one has no end.
    fn extend(&mut self, pieces: &[Piece]) {
        let Some((last, _)) = pieces.split_last() else {
            return;
        };
        for pair in pieces.windows(2) {
            self.push(pair[1].start - pair[0].start, pair[0].rate, pair[0].slope);
        }
        self.pieces.push(Piece {
            start: self.at,
            bits: self.bits,
            ..*last
        });
    }

    /// Appends the last piece, which has no end.
    pub(super) fn tail(mut self, rate: f64, slope: f64) -> ServiceCurve {
        self.pieces.push(Piece {
            start: self.at,
            bits: self.bits,
            rate,
            slope,
        });
        self.finish()
    }

    /// Builds the curve; the last piece has no end.
    fn finish(self) -> ServiceCurve {
        ServiceCurve {
            pieces: self.pieces,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * (1.0 + a.abs().max(b.abs()))
    }

    #[test]
    fn constant_and_linear() {
        let c = ServiceCurve::constant(Rate::bps(1_000));
        assert!(near(c.at(ms(500)), 500.0));
        assert_eq!(c.inverse(250.0), Some(ms(250)));
        let l = ServiceCurve::linear(200.0);
        assert!(near(l.at(ms(3_000)), 900.0));
        assert_eq!(l.inverse(900.0), Some(ms(3_000)));
    }

    #[test]
    fn a_dead_link_never_delivers() {
        let dead = ServiceCurve::constant(Rate::ZERO);
        assert_eq!(dead.inverse(1.0), None);
        assert_eq!(dead.inverse(0.0), Some(Duration::ZERO));
        let dies = ServiceCurve::steps(&[(ms(1_000), Rate::bps(10)), (ms(1), Rate::ZERO)]);
        assert_eq!(dies.inverse(10.0), Some(ms(1_000)));
        assert_eq!(dies.inverse(10.5), None);
    }

    #[test]
    fn a_stall_shifts() {
        let c = ServiceCurve::stall_then(ms(300), &ServiceCurve::linear(2.0));
        assert!(near(c.at(ms(300)), 0.0));
        assert!(near(c.at(ms(2_300)), 4.0));
    }

    #[test]
    fn falling_rates_stop_at_zero() {
        let c = ServiceCurve::from_segments(&[
            Segment {
                duration: ms(2_000),
                rate: Rate::bps(100),
                slope: -100.0,
            },
            Segment {
                duration: ms(0),
                rate: Rate::bps(7),
                slope: 0.0,
            },
        ])
        .unwrap();
        assert!(near(c.at(ms(1_000)), 50.0));
        assert!(near(c.at(ms(2_000)), 50.0));
        assert!(near(c.at(ms(3_000)), 57.0));
    }

    #[test]
    fn invalid_segments_are_errors() {
        let bad = |slope| Segment {
            duration: ms(1),
            rate: Rate::bps(1),
            slope,
        };
        assert_eq!(ServiceCurve::from_segments(&[]), Err(CurveError::Empty));
        assert_eq!(
            ServiceCurve::from_segments(&[bad(-1.0)]),
            Err(CurveError::NegativeFinalSlope)
        );
        let err = ServiceCurve::from_segments(&[bad(0.0), bad(f64::NAN)]).unwrap_err();
        assert_eq!(err, CurveError::SlopeNotFinite(1));
        assert!(err.to_string().contains("segment 1"));
    }

    fn curve() -> impl Strategy<Value = ServiceCurve> {
        let segment =
            (1_u64..500, 0_u64..5_000, -9_000.0_f64..9_000.0).prop_map(|(d, r, slope)| Segment {
                duration: ms(d),
                rate: Rate::bps(r),
                slope,
            });
        (
            proptest::collection::vec(segment, 0..6),
            0_u64..5_000,
            0.0_f64..3_000.0,
        )
            .prop_map(|(mut list, rate, slope)| {
                list.push(Segment {
                    duration: ms(1),
                    rate: Rate::bps(rate),
                    slope,
                });
                ServiceCurve::from_segments(&list).unwrap()
            })
    }

    proptest! {
        #[test]
        fn capacity_grows_and_inverts(c in curve(), t in 0_u64..4_000, bits in 0.1_f64..8_000.0) {
            prop_assert!(c.at(ms(t + 1)) >= c.at(ms(t)) - 1e-9);
            if let Some(when) = c.inverse(bits) {
                // In one nanosecond these curves carry less than a bit.
                prop_assert!((c.at(when) - bits).abs() < 1e-3 || c.at(when) >= bits - 1e-3);
                prop_assert!(c.at(when.saturating_sub(Duration::from_micros(1))) < bits + 1e-6);
            }
        }

        #[test]
        fn minimum_is_below_both_and_tight(a in curve(), b in curve(), t in 0_u64..3_000, n in 1_u64..500) {
            let low = a.min(&b);
            let got = low.at(ms(t + n)) - low.at(ms(t));
            for c in [&a, &b] {
                prop_assert!(got <= c.at(ms(t + n)) - c.at(ms(t)) + 1e-6);
            }
            // Numerical integral of the minimum rate.
            let mut sum = 0.0;
            for k in 0..n * 20 {
                let at = (t as f64 + (k as f64 + 0.5) / 20.0) / 1e3;
                let rate = |c: &ServiceCurve| c.pieces[c.index(at)].rate_at(at);
                sum += rate(&a).min(rate(&b)) / 2e4;
            }
            prop_assert!((got - sum).abs() < 2.0, "{got} {sum}");
        }

        #[test]
        fn shift_keeps_the_remaining_bits(c in curve(), from in 0_u64..2_000, t in 0_u64..2_000) {
            let rest = c.at(ms(from + t)) - c.at(ms(from));
            prop_assert!(near(c.from(ms(from)).at(ms(t)), rest));
            let half = c.pessimistic(0.5, ms(from));
            prop_assert!(near(half.at(ms(from + t)), 0.5 * c.at(ms(t))));
        }
    }
}
