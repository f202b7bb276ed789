//! The exact throttling law: the highest rate at which no byte is late.

use core::time::Duration;

use super::curve::ServiceCurve;
use crate::units::{Bytes, Rate};

/// Input of the law. Times count from now.
#[derive(Clone, Copy, Debug)]
pub struct PlanProblem<'a> {
    /// Forecast of the transport.
    pub curve: &'a ServiceCurve,
    /// Q: bytes queued already.
    pub backlog: Bytes,
    /// d: maximum time for a byte produced now to leave. This is the bound minus propagation,
    /// playout and encoder delay.
    pub budget: Duration,
    /// Burst of the source.
    pub burst: Burst,
    /// Lowest rate of the encoder.
    pub floor: Rate,
    /// Highest rate of the encoder.
    pub ceiling: Rate,
    /// Times of the next frames; used to choose the frames to skip if there is no feasible rate.
    pub frames: Frames,
}

/// Burst of a source: at rate h it produces at most `fixed + h·span + h·(t − s)` in any interval
/// (s, t].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// The part that is independent of the rate: one packet, because packets leave as a whole.
    pub fixed: Bytes,
    /// The part in proportion to the rate: a frame is produced at once and has the bits of this
    /// time.
    pub span: Duration,
}

/// Frame timing of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Time from now to the next frame.
    pub next: Duration,
    /// Frame interval; zero counts as one nanosecond.
    pub interval: Duration,
}

/// Result of the law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Plan {
    /// Some rate meets the bound.
    Feasible {
        /// The highest such rate, rounded down, within floor and ceiling.
        rate: Rate,
        /// Constraint that limits the rate.
        binding: Binding,
        /// `T_recovery`, see [`recovery`]; `None` if the backlog never drains at this rate.
        recovery: Option<Duration>,
    },
    /// No rate meets the bound, not even the floor.
    Infeasible {
        /// Smallest budget that is sufficient at the floor; `None` if there is none.
        smallest_budget: Option<Duration>,
        /// Frames to skip.
        skip: Skip,
    },
}

/// Constraint that limits a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The ceiling of the source.
    Ceiling,
    /// The byte produced at `made` leaves exactly in time.
    Byte {
        /// Production time of the byte.
        made: Duration,
        /// Start of the busy period of the transport. `None`: it started before now, so the backlog
        /// contributes to the delay.
        busy_since: Option<Duration>,
    },
    /// Long-run rate of the forecast.
    LongRun,
}

/// Frames to skip among the next 64 frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Frames that are late at the floor even if all others are skipped.
    pub late: FrameSet,
    /// Frames to skip. The others arrive in time at the floor. Admission in order keeps the largest
    /// number of frames, because all have the same size and the same budget. The set may be empty
    /// if the bound is missed only by a source that bursts at the worst time.
    pub skip: FrameSet,
    /// Time of the first frame after the last skipped one; `None` if the last frame of the set is
    /// skipped.
    pub resume: Option<Duration>,
}

/// A set of the next 64 frames; 0 is the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameSet(u64);

impl Burst {
    /// One frame and one packet.
    pub const fn frame(interval: Duration, packet: Bytes) -> Self {
        Self {
            fixed: packet,
            span: interval,
        }
    }

    /// A key frame of `frames` times the mean size, and one packet.
    pub fn key_frame(interval: Duration, packet: Bytes, frames: u32) -> Self {
        Self {
            fixed: packet,
            span: interval.saturating_mul(frames),
        }
    }
}

impl FrameSet {
    /// Number of frames that a set covers.
    pub const SIZE: u32 = u64::BITS;

    /// Whether the set contains frame `n`; false from [`SIZE`](Self::SIZE) on.
    pub const fn contains(self, n: u32) -> bool {
        n < Self::SIZE && self.0 >> n & 1 == 1
    }

    /// Number of frames in the set.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Frames of the set in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..Self::SIZE).filter(move |n| self.contains(*n))
    }

    fn insert(&mut self, n: u32) {
        self.0 |= 1 << n;
    }
}

impl Plan {
    /// The planned rate; `None` if there is none.
    pub const fn rate(&self) -> Option<Rate> {
        match self {
            Self::Feasible { rate, .. } => Some(*rate),
            Self::Infeasible { .. } => None,
        }
    }
}

/// Applies the law: the highest h with
///
/// - Q + b + h·t ≤ W(t + d) for all t ≥ 0, and
/// - b + h·(t − s) ≤ W(t + d) − W(s) for all 0 ≤ s ≤ t,
///
/// where b = fixed + h·span. The byte that *departs* at the peak of the backlog has the longest
/// delay. The paper bounds the byte that arrives then (its equations 1a and 2).
///
/// The result is conservative: the conditions hold with a margin of a thousandth of a bit plus
/// 1e-12 of all bits in the sum, which is ten thousand times the rounding error of `f64`. A Newton
/// step takes O(n) time for n pieces; up to six steps are usual.
pub fn plan(case: &PlanProblem<'_>) -> Plan {
    //= itcp-4.1-problem
    //= itcp-4.2-exact
    //= itcp-4.4-exact
    //= itcp-4.4-infeasible
    let law = Law::of(case);
    let floor = case.floor.as_f64();
    let ceiling = case.ceiling.max(case.floor).as_f64();
    match law.highest(floor, ceiling) {
        Some((h, binding)) => {
            // `as` rounds towards zero. The result may be less than the floor, which is feasible
            // itself.
            let rate = Rate::bps(h as u64).max(case.floor);
            Plan::Feasible {
                rate,
                binding,
                recovery: law.recovery(rate.as_f64()),
            }
        }
        None => Plan::Infeasible {
            smallest_budget: law.smallest_budget(floor),
            skip: law.skip(floor, case.frames),
        },
    }
}

/// Whether the source may change to `rate` at the time `after` from now, if the backlog is zero
/// then.
///
/// The paper returns to the normal rate at `T_recovery` without this check. With w = m·t and an
/// empty backlog, a return to more than 8·m·d violates the bound.
pub fn is_return_feasible(case: &PlanProblem<'_>, rate: Rate, after: Duration) -> bool {
    //= itcp-4.3-return
    let later = case.curve.from(after);
    let law = Law {
        curve: &later,
        backlog: 0.0,
        ..Law::of(case)
    };
    let h = rate.as_f64();
    h <= law.curve.tail_rate() && law.tightest(h).slack >= -0.5 * law.guard
}

/// The smallest budget with which `case` is feasible at its floor; `None` if there is none.
pub fn smallest_budget(case: &PlanProblem<'_>) -> Option<Duration> {
    let law = Law {
        budget: 0.0,
        ..Law::of(case)
    };
    law.smallest_budget(case.floor.as_f64())
}

/// `T_recovery` at `rate`: the first t > 0 with Q + b + h·t ≤ W(t); `None` if there is none.
pub fn recovery(case: &PlanProblem<'_>, rate: Rate) -> Option<Duration> {
    Law::of(case).recovery(rate.as_f64())
}

/// A [`PlanProblem`] in seconds and bits.
#[derive(Clone, Copy)]
struct Law<'a> {
    curve: &'a ServiceCurve,
    backlog: f64,
    budget: f64,
    /// Includes `guard`.
    fixed: f64,
    span: f64,
    /// Safety margin in bits, added to the burst. Rounding errors may use half of it.
    guard: f64,
}

/// The constraint with the least slack at some rate.
#[derive(Clone, Copy)]
struct Tightest {
    /// Slack in bits; negative if the constraint is violated.
    slack: f64,
    /// The constraint, solved for h, is h ≤ bits / time.
    bits: f64,
    time: f64,
    made: f64,
    busy_since: Option<f64>,
}

impl<'a> Law<'a> {
    fn of(case: &PlanProblem<'a>) -> Self {
        let backlog = case.backlog.bits() as f64;
        let fixed = case.burst.fixed.bits() as f64;
        let budget = case.budget.as_secs_f64();
        let sum = case.curve.tail_bits() + case.curve.bits_at(budget) + backlog + fixed;
        let guard = 1e-3 + 1e-12 * sum;
        Self {
            curve: case.curve,
            backlog,
            budget,
            fixed: fixed + guard,
            span: case.burst.span.as_secs_f64(),
            guard,
        }
    }

    /// Newton's method on the slack as a function of h. The slack is the minimum of decreasing
    /// lines and therefore concave, so steps from above decrease and never pass h*.
    fn highest(&self, floor: f64, ceiling: f64) -> Option<(f64, Binding)> {
        // Two cheap upper bounds to start from: the long-run rate, and the byte produced at d.
        let made = self.budget.max(1e-3);
        let early = (self.curve.bits_at(made + self.budget) - self.backlog - self.fixed)
            / (made + self.span);
        let early_byte = Binding::Byte {
            made: duration(made),
            busy_since: None,
        };
        let mut best = (ceiling, Binding::Ceiling);
        for (h, binding) in [
            (self.curve.tail_rate(), Binding::LongRun),
            (early, early_byte),
        ] {
            if h < best.0 {
                best = (h, binding);
            }
        }
        for _ in 0..MAX_STEPS {
            if best.0 < floor {
                break;
            }
            let tightest = self.tightest(best.0);
            if tightest.slack >= -0.5 * self.guard {
                return Some(best);
            }
            if tightest.time <= 0.0 {
                // The constraint does not depend on h, so no rate is feasible.
                return None;
            }
            best = (tightest.bits / tightest.time, tightest.binding());
        }
        // The steps ended below the floor, or did not converge because of rounding. The result is
        // the floor if that is feasible.
        let lasts = floor <= self.curve.tail_rate();
        let safe = lasts && self.tightest(floor).slack >= -0.5 * self.guard;
        safe.then_some((floor, best.1))
    }

    /// The tightest constraint at rate `h`, which is at most the long-run rate.
    ///
    /// Both families of constraints are equal to f(t) − max(Q, max over s ≤ t of g(s)) − b ≥ 0 with
    /// f(t) = W(t + d) − h·t and g(s) = W(s) − h·s. Between the breakpoints of f and g both are
    /// parabolas. The candidates are therefore the ends of such a cell, the minimum of f, the
    /// maximum of g and the minimum of f − g.
    fn tightest(&self, h: f64) -> Tightest {
        let (curve, pieces, d) = (self.curve, self.curve.pieces(), self.budget);
        let burst = self.fixed + h * self.span;
        let (mut i, mut j, mut start) = (0, curve.index(d), 0.0_f64);
        let mut high = (self.backlog, self.backlog, None);
        let mut found = Tightest {
            slack: f64::INFINITY,
            bits: 0.0,
            time: 0.0,
            made: 0.0,
            busy_since: None,
        };
        loop {
            let (now, later) = (&pieces[i], &pieces[j]);
            let end = curve.end(i).min(curve.end(j) - d);
            let mut points = [start, f64::INFINITY, f64::INFINITY, f64::INFINITY];
            if later.slope > 0.0 {
                points[1] = later.when(h) - d;
            }
            if now.slope < 0.0 {
                points[2] = now.when(h);
            }
            if later.slope > now.slope {
                points[3] = start
                    - (later.rate_at(start + d) - now.rate_at(start)) / (later.slope - now.slope);
            }
            for x in in_order(points, start, end) {
                let carried = now.bits_at(x);
                if carried - h * x > high.0 {
                    high = (carried - h * x, carried, Some(x));
                }
                let reach = later.bits_at(x + d);
                let slack = reach - h * x - high.0 - burst;
                if slack < found.slack {
                    found = Tightest {
                        slack,
                        bits: reach - high.1 - self.fixed,
                        time: x - high.2.unwrap_or(0.0) + self.span,
                        made: x,
                        busy_since: high.2,
                    };
                }
            }
            if end.is_infinite() {
                return found;
            }
            // Compares the same expressions as `end` above, so that every step advances an index
            // despite rounding.
            i += usize::from(curve.end(i) <= end);
            j += usize::from(curve.end(j) - d <= end);
            start = end;
        }
    }

    /// The first t > 0 with Q + b + h·t ≤ W(t).
    fn recovery(&self, h: f64) -> Option<Duration> {
        //= itcp-4.3-recovery
        let need = self.backlog + self.fixed - self.guard + h * self.span;
        let pieces = self.curve.pieces();
        for (i, p) in pieces.iter().enumerate() {
            // y(x) = behind + (rate − h)·x + slope·x²/2, with x from the start of the piece.
            let (behind, rate) = (p.bits - h * p.start - need, p.rate - h);
            let first = if behind > 0.0 || (behind == 0.0 && rate >= 0.0) {
                0.0
            } else {
                first_root(behind, rate, 0.5 * p.slope)
            };
            if p.start + first <= self.curve.end(i) && first.is_finite() {
                return Duration::try_from_secs_f64(p.start + first).ok();
            }
        }
        None
    }

    /// Bisects the budget to a microsecond, rounded up.
    fn smallest_budget(&self, h: f64) -> Option<Duration> {
        let enough = |budget| Law { budget, ..*self }.tightest(h).slack >= -0.5 * self.guard;
        if h > self.curve.tail_rate() {
            return None;
        }
        let (mut low, mut high) = (self.budget, self.budget.max(1e-3) * 2.0);
        while !enough(high) {
            (low, high) = (high, high * 2.0);
            if high > LONGEST_BUDGET {
                return None;
            }
        }
        while high - low > 1e-6 {
            let middle = 0.5 * (low + high);
            if enough(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Duration::try_from_secs_f64(high + 1e-9).ok()
    }

    fn skip(&self, floor: f64, frames: Frames) -> Skip {
        let (next, interval) = (
            frames.next.as_secs_f64(),
            frames.interval.as_secs_f64().max(1e-9),
        );
        let frame = floor * interval;
        let mut answer = Skip {
            late: FrameSet::default(),
            skip: FrameSet::default(),
            resume: None,
        };
        // Value of W at which the last admitted bit leaves.
        let mut queued = self.backlog;
        let mut after_gap = Some(frames.next);
        for n in 0..FrameSet::SIZE {
            let made = next + interval * f64::from(n);
            let (from, until) = (
                self.curve.bits_at(made),
                self.curve.bits_at(made + self.budget),
            );
            if self.backlog.max(from) + frame + self.fixed > until {
                answer.late.insert(n);
            }
            let end = queued.max(from) + frame;
            if end + self.fixed > until {
                answer.skip.insert(n);
                after_gap = None;
            } else {
                queued = end;
                after_gap = after_gap.or(Some(duration(made)));
            }
        }
        answer.resume = after_gap;
        answer
    }
}

impl Tightest {
    fn binding(&self) -> Binding {
        Binding::Byte {
            made: duration(self.made),
            busy_since: self.busy_since.map(duration),
        }
    }
}

/// The points within `start..=end`, ascending. The first is `start` itself.
fn in_order(mut points: [f64; 4], start: f64, end: f64) -> impl Iterator<Item = f64> {
    for i in 1..4 {
        let mut k = i;
        while k > 1 && points[k] < points[k - 1] {
            points.swap(k, k - 1);
            k -= 1;
        }
    }
    points
        .into_iter()
        .filter(move |x| x.is_finite() && *x >= start && *x <= end)
}

/// The smallest x ≥ 0 at which c + b·x + a·x² rises through zero, for c ≤ 0; infinite if there is
/// none.
fn first_root(c: f64, b: f64, a: f64) -> f64 {
    let disc = b * b - 4.0 * a * c;
    if disc < 0.0 {
        return f64::INFINITY;
    }
    let root = disc.sqrt();
    // Both forms are the same root. Each is used where it avoids cancellation.
    let x = if b >= 0.0 {
        -2.0 * c / (b + root)
    } else {
        (root - b) / (2.0 * a)
    };
    if x >= 0.0 { x } else { f64::INFINITY }
}

fn duration(secs: f64) -> Duration {
    Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX)
}

/// In the worst case, a double root, a Newton step halves the distance. 64 halvings exhaust the
/// precision of an `f64`.
const MAX_STEPS: u32 = 80;
/// One day, in seconds. No live medium tolerates a longer delay.
const LONGEST_BUDGET: f64 = 86_400.0;

#[cfg(test)]
mod tests;
