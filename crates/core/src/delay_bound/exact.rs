//! The exact throttling law: the highest rate at which no byte is late.

use core::time::Duration;

use super::curve::ServiceCurve;
use crate::units::{Bytes, Rate};

/// Input of the law. Times count from now.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// Forecast of the transport.
    pub curve: &'a ServiceCurve,
    /// Q: bytes queued already.
    pub backlog: Bytes,
    /// d: how long a byte that is made now may take to leave. The bound less propagation,
    /// playout and the encoder's own lag.
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

/// A source at rate h makes at most `fixed + h·span + h·(t − s)` in any interval (s, t].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// The part that does not depend on the rate: one packet, as packets leave whole.
    pub fixed: Bytes,
    /// The part that does: a frame comes at once and holds this much time's worth of bits.
    pub span: Duration,
}

/// Frame timing of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// From now to the next frame.
    pub next: Duration,
    /// From one to the next; zero counts as one nanosecond.
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
        /// When everything that was late is made up for; `None` if it never is at this rate.
        recovery: Option<Duration>,
    },
    /// Not even the floor meets the bound.
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
    /// The byte made at `made` leaves exactly in time.
    Byte {
        /// When it is made.
        made: Duration,
        /// The transport has had work without a break since then; `None`: since before now,
        /// so the backlog has a part in it.
        busy_since: Option<Duration>,
    },
    /// Long-run rate of the forecast.
    LongRun,
}

/// Which of the next 64 frames to skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Late even if each were the only one made, at the floor. All others are savable.
    pub hopeless: FrameSet,
    /// Leave these out, make the others at the floor, and those arrive in time. Admitting in
    /// order keeps the most frames, since all are equally large and equally urgent. May be
    /// empty when the promise fails only for a source that bursts at the worst moment.
    pub skip: FrameSet,
    /// When the first frame after the last gap is made; `None` if the gaps reach the end of the set.
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

    /// The same where a key frame of `frames` times the mean may come.
    pub fn key_frame(interval: Duration, packet: Bytes, frames: u32) -> Self {
        Self {
            fixed: packet,
            span: interval.saturating_mul(frames),
        }
    }
}

impl FrameSet {
    /// How many frames a set can speak of.
    pub const SIZE: u32 = u64::BITS;

    /// Whether frame `n` from now is in it; never for frames beyond [`SIZE`](Self::SIZE).
    pub const fn contains(self, n: u32) -> bool {
        n < Self::SIZE && self.0 >> n & 1 == 1
    }

    /// How many.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// In order.
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

/// The law: the highest h with
///
/// - Q + b + h·t ≤ W(t + d) for all t ≥ 0, and
/// - b + h·(t − s) ≤ W(t + d) − W(s) for all 0 ≤ s ≤ t,
///
/// where b = fixed + h·span. The byte that *departs* when the backlog peaks is the one that
/// waited longest; the paper bounds the byte that arrives then (its equations 1a and 2).
///
/// The answer is on the safe side: the conditions hold with a thousandth of a bit to spare, plus
/// 1e-12 of all bits in the sum, which is ten thousand times what rounding of `f64` can lose.
/// Time O(n) per Newton step for n pieces; up to six steps are usual.
pub fn plan(case: &Case<'_>) -> Plan {
    //= itcp-4.1-problem
    //= itcp-4.2-exact
    //= itcp-4.4-exact
    //= itcp-4.4-infeasible
    let law = Law::of(case);
    let floor = case.floor.as_f64();
    let ceiling = case.ceiling.max(case.floor).as_f64();
    match law.highest(floor, ceiling) {
        Some((h, binding)) => {
            // `as` rounds towards zero. The floor has been found to be safe itself.
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

/// Whether the source may go to `rate` at the time `after` from now, the backlog being gone by then.
///
/// The paper returns to the normal rate at `T_recovery` without looking; with w = m·t and an
/// empty backlog a return to more than 8·m·d breaks the bound.
pub fn may_return(case: &Case<'_>, rate: Rate, after: Duration) -> bool {
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

/// The smallest budget with which `case` is feasible at its floor; `None` if no budget would do.
pub fn smallest_budget(case: &Case<'_>) -> Option<Duration> {
    let law = Law {
        budget: 0.0,
        ..Law::of(case)
    };
    law.smallest_budget(case.floor.as_f64())
}

/// `T_recovery` at `rate`: the first t > 0 with Q + b + h·t ≤ W(t); `None` if there is none.
pub fn recovery(case: &Case<'_>, rate: Rate) -> Option<Duration> {
    Law::of(case).recovery(rate.as_f64())
}

/// A [`Case`] in seconds and bits.
#[derive(Clone, Copy)]
struct Law<'a> {
    curve: &'a ServiceCurve,
    backlog: f64,
    budget: f64,
    /// With `guard` in it.
    fixed: f64,
    span: f64,
    /// Bits added to the burst; half of it may be given away again to rounding.
    guard: f64,
}

/// The constraint with the least slack at some rate.
#[derive(Clone, Copy)]
struct Tightest {
    /// Bits to spare; negative when it fails.
    slack: f64,
    /// Solved for h the condition says h ≤ bits / time.
    bits: f64,
    time: f64,
    made: f64,
    busy_since: Option<f64>,
}

impl<'a> Law<'a> {
    fn of(case: &Case<'a>) -> Self {
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

    /// Newton's method on the slack as a function of h. That is a minimum of straight lines that
    /// fall with h, so it is concave, and from above the steps go down and never pass h*.
    fn highest(&self, floor: f64, ceiling: f64) -> Option<(f64, Binding)> {
        // Two conditions to start from that cost nothing: the long run, and the byte made at d.
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
                // Not even nothing at all would be in time.
                return None;
            }
            best = (tightest.bits / tightest.time, tightest.binding());
        }
        // The steps ended below the floor or, by rounding, never: whether it is safe decides.
        let lasts = floor <= self.curve.tail_rate();
        let safe = lasts && self.tightest(floor).slack >= -0.5 * self.guard;
        safe.then_some((floor, best.1))
    }

    /// The tightest of all conditions at rate `h`, which is at most the rate of the long run.
    ///
    /// Both families are one: f(t) − max(Q, max over s ≤ t of g(s)) − b ≥ 0 with
    /// f(t) = W(t + d) − h·t and g(s) = W(s) − h·s. Between the breakpoints of f and g both are
    /// parabolas, so only the ends of such a cell, the minimum of f, the maximum of g and the
    /// minimum of f − g can matter.
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
            // By comparison with the very numbers that made `end`, so that no cell is empty for ever.
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

    /// Bisection on the budget, to the microsecond, rounded up.
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
            hopeless: FrameSet::default(),
            skip: FrameSet::default(),
            resume: None,
        };
        // The value of W at which the last admitted bit leaves.
        let mut queued = self.backlog;
        let mut after_gap = Some(frames.next);
        for n in 0..FrameSet::SIZE {
            let made = next + interval * f64::from(n);
            let (from, until) = (
                self.curve.bits_at(made),
                self.curve.bits_at(made + self.budget),
            );
            if self.backlog.max(from) + frame + self.fixed > until {
                answer.hopeless.insert(n);
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

/// The smallest x > 0 with c + b·x + a·x² = 0 on its way up, for c ≤ 0; infinite if there is none.
fn first_root(c: f64, b: f64, a: f64) -> f64 {
    let disc = b * b - 4.0 * a * c;
    if disc < 0.0 {
        return f64::INFINITY;
    }
    let root = disc.sqrt();
    // Both forms are the same root; each is used where it does not subtract like numbers.
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

/// Newton halves its distance in the worst case (a double root), and 64 halvings are all of an f64.
const MAX_STEPS: u32 = 80;
/// A day. No live medium waits longer.
const LONGEST_BUDGET: f64 = 86_400.0;

#[cfg(test)]
mod tests;
