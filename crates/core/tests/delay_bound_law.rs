//! The law of the delay bound, compared with independent simulations.

use std::f64::consts::SQRT_2;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::delay_bound::{
    Binding, Burst, Frames, Plan, PlanProblem, Segment, ServiceCurve, TcpPath, plan,
    smallest_budget,
};
use tidegate_core::tcp_rate::{CongestionEvent, Law};
use tidegate_core::units::{Bytes, Rate};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A curve with stalls, steps, increasing and decreasing rates of up to a few Mb/s. The last piece
/// starts within about 3 s.
fn curve() -> impl Strategy<Value = ServiceCurve> {
    let rate = prop_oneof![1 => Just(0_u64), 4 => 50_000_u64..4_000_000];
    let slope = prop_oneof![2 => Just(0.0), 3 => -8e6_f64..8e6];
    let segment = (1_u64..400, rate.clone(), slope).prop_map(|(d, r, slope)| Segment {
        duration: ms(d),
        rate: Rate::bps(r),
        slope,
    });
    let tail = prop_oneof![3 => Just(0.0), 1 => 1e4_f64..4e6];
    (proptest::collection::vec(segment, 0..7), rate, tail).prop_map(|(mut list, rate, slope)| {
        list.push(Segment {
            duration: ms(1),
            rate: Rate::bps(rate),
            slope,
        });
        ServiceCurve::from_segments(&list).expect("the last slope is not negative")
    })
}

#[derive(Clone, Debug)]
struct Problem {
    curve: ServiceCurve,
    backlog: Bytes,
    bound: Duration,
    lag: Duration,
    burst: Burst,
}

impl Problem {
    fn case(&self) -> PlanProblem<'_> {
        PlanProblem {
            curve: &self.curve,
            backlog: self.backlog,
            budget: self.bound.saturating_sub(self.lag),
            burst: self.burst,
            floor: Rate::bps(1),
            ceiling: Rate::MAX,
            frames: Frames {
                next: Duration::ZERO,
                interval: ms(33),
            },
        }
    }

    fn rate(&self) -> Option<f64> {
        plan(&self.case()).rate().map(Rate::as_f64)
    }
}

fn problem() -> impl Strategy<Value = Problem> {
    let burst =
        (0_u64..3_000, prop_oneof![1 => Just(0_u64), 3 => 1_u64..60]).prop_map(|(packet, span)| {
            Burst {
                fixed: Bytes(packet),
                span: ms(span),
            }
        });
    (
        curve(),
        prop_oneof![1 => Just(0), 3 => 0_u64..60_000],
        10_u64..800,
        0_u64..50,
        burst,
    )
        .prop_map(|(curve, backlog, bound, lag, burst)| Problem {
            curve,
            backlog: Bytes(backlog),
            bound: ms(bound),
            lag: ms(lag),
            burst,
        })
}

/// Far enough after the last breakpoint that the backlog of the other pieces has drained.
const HORIZON_MS: u64 = 12_000;

/// Maximum delay in seconds of any fluid source of rate `h` with burst `b`. The source sends at the
/// rate of the transport up to a start time, then its burst, then at h. The result is the maximum
/// over a grid of start times and byte times.
fn worst_fluid_delay(problem: &Problem, h: f64, step_ms: u64) -> f64 {
    let w = |t: u64| problem.curve.at(ms(t));
    let burst = problem.burst.fixed.bits() as f64 + h * problem.burst.span.as_secs_f64();
    let mut worst = 0.0_f64;
    // Bits that leave before the byte produced at t: running maximum over the start times.
    let mut base = problem.backlog.bits() as f64;
    let mut t = 0;
    while t < HORIZON_MS {
        let at = t as f64 / 1e3;
        base = base.max(w(t) - h * at);
        let served = problem.curve.inverse(base + h * at + burst);
        let delay = served.map_or(f64::INFINITY, |s| s.as_secs_f64() - at);
        worst = worst.max(delay);
        t += step_ms;
    }
    worst
}

/// Delay in seconds of the byte of the binding constraint, if the source sends at the rate of the
/// transport up to `busy_since`, then its burst, then at `h`.
fn delay_of(problem: &Problem, h: f64, binding: Binding) -> f64 {
    let (made, busy_since) = match binding {
        Binding::Byte { made, busy_since } => (made, busy_since),
        // The excess accumulates, and after a day it exceeds any bound.
        _ => (Duration::from_secs(100_000), None),
    };
    let burst = problem.burst.fixed.bits() as f64 + h * problem.burst.span.as_secs_f64();
    let before = busy_since.map_or(problem.backlog.bits() as f64, |s| problem.curve.at(s));
    let since = made.saturating_sub(busy_since.unwrap_or_default());
    let served = problem
        .curve
        .inverse(before + burst + h * since.as_secs_f64());
    served.map_or(f64::INFINITY, |s| s.as_secs_f64() - made.as_secs_f64())
}

/// Maximum delay of the last packet of a frame, in seconds. Frames have h/fps bits and consist of
/// packets that leave whole and in order. `phase` is the time of the first frame.
fn worst_frame_delay(problem: &Problem, h: f64, phase: Duration, packet: f64) -> f64 {
    let interval = problem.burst.span.as_secs_f64();
    let frame = h * interval;
    let mut queued = problem.backlog.bits() as f64;
    let mut worst = 0.0_f64;
    let mut made = phase.as_secs_f64();
    while made < HORIZON_MS as f64 / 1e3 {
        let mut left = frame;
        while left > 0.0 {
            let size = left.min(packet);
            left -= size;
            let from = queued.max(problem.curve.at(Duration::from_secs_f64(made)));
            queued = from + size;
        }
        let served = problem.curve.inverse(queued);
        worst = worst.max(served.map_or(f64::INFINITY, |s| s.as_secs_f64() - made));
        made += interval;
    }
    worst
}

/// w = m·t.
fn linear_case(curve: &ServiceCurve, backlog: Bytes, budget: Duration) -> PlanProblem<'_> {
    PlanProblem {
        curve,
        backlog,
        budget,
        burst: Burst::default(),
        floor: Rate::bps(1),
        ceiling: Rate::MAX,
        frames: Frames {
            next: Duration::ZERO,
            interval: ms(33),
        },
    }
}

/// Maximum delay divided by d for a source at the rate of `law`, with w = m·t.
fn overshoot(law: Law, backlog: Bytes, budget: Duration) -> f64 {
    let path = TcpPath {
        mss: Bytes(1_250),
        rtt: ms(100),
        limit: None,
    };
    let curve = ServiceCurve::linear(law.slope(path));
    let frames = Frames {
        next: Duration::ZERO,
        interval: ms(33),
    };
    let response = law.respond(&CongestionEvent {
        path,
        normal: Rate::kbps(1_000),
        reaction: Duration::ZERO,
        backlog: Some(backlog),
        budget,
        burst: Burst::default(),
        floor: Rate::bps(1),
        ceiling: Rate::MAX,
        curve: None,
        frames,
    });
    assert!(response.feasible, "{budget:?} is feasible under {law}");
    let (q, h) = (backlog.bits() as f64, response.rate.as_f64());
    let late = |t: f64| {
        curve
            .inverse(q + h * t)
            .map_or(f64::INFINITY, |s| s.as_secs_f64() - t)
    };
    let steps = (0..400_000_u32).map(|n| f64::from(n) * 1e-5);
    steps.map(late).fold(0.0, f64::max) / budget.as_secs_f64()
}

#[test]
fn printed_law_violates_its_bound_and_the_exact_law_does_not() {
    // Without a backlog: (1 + √2)/2, 21 % late.
    for law in [Law::Paper, Law::PaperM] {
        let ratio = overshoot(law, Bytes::ZERO, ms(400));
        assert!((ratio - 1.207_107).abs() < 1e-3, "{law}: {ratio}");
    }
    // m = 10^6 b/s² for `paper-m`, so Q = 40,000 bits gives a d_min of 200 ms by (4): √2, 41 %
    // late.
    let ratio = overshoot(Law::PaperM, Bytes(5_000), ms(200));
    assert!((ratio - SQRT_2).abs() < 1e-3, "{ratio}");
    // d_min is too small by √2. The exact law accepts 283 ms and meets them.
    //= itcp-4.4-infeasible (test)
    let curve = ServiceCurve::linear(1e6);
    let smallest = smallest_budget(&linear_case(&curve, Bytes(5_000), ms(200))).unwrap();
    assert!(
        (smallest.as_secs_f64() - 0.08_f64.sqrt()).abs() < 2e-6,
        "{smallest:?}"
    );
    for budget in [ms(283), ms(300), ms(500)] {
        let ratio = overshoot(Law::Exact, Bytes(5_000), budget);
        assert!(ratio <= 1.0 && ratio > 0.999, "{ratio}");
    }
}

/// With the smallest budget, Newton's method ends a thousandth of a bit below the floor because of
/// rounding. The result is the floor.
#[test]
fn result_slightly_below_the_floor_is_the_floor() {
    let segment = Segment {
        duration: ms(1),
        rate: Rate::bps(81_939),
        slope: 2_741_964.986_520_567_4,
    };
    let curve = ServiceCurve::from_segments(&[segment]).unwrap();
    let burst = Burst {
        fixed: Bytes(1_179),
        span: ms(47),
    };
    let case = PlanProblem {
        burst,
        floor: Rate::bps(393_909),
        ..linear_case(&curve, Bytes::ZERO, ms(34))
    };
    let Plan::Infeasible {
        smallest_budget: Some(budget),
        ..
    } = plan(&case)
    else {
        panic!("34 ms are not feasible");
    };
    assert_eq!(
        plan(&PlanProblem { budget, ..case }).rate(),
        Some(case.floor)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_closed_form_for_linear_growth(m in 1e4_f64..1e8, budget in 5_u64..2_000, share in 0.0_f64..1.3) {
        //= itcp-4.4-exact (test)
        //= itcp-4.3-recovery (test)
        let d = budget as f64 / 1e3;
        let backlog = Bytes((share * m * d * d / 16.0) as u64);
        let q = backlog.bits() as f64;
        let curve = ServiceCurve::linear(m);
        let plan = plan(&linear_case(&curve, backlog, ms(budget)));
        let left = 1.0 - 2.0 * q / (m * d * d);
        // Near the double root half a byte decides.
        prop_assume!(left.abs() > 1e-4);
        let Plan::Feasible { rate, recovery, .. } = plan else {
            prop_assert!(left < 0.0, "{left}");
            return Ok(());
        };
        prop_assert!(left > 0.0, "{left}");
        let h = m * d * (1.0 + left.sqrt());
        prop_assert!((rate.as_f64() - h).abs() <= 1.0 + 1e-4 * h, "{rate:?} {h}");
        let h = rate.as_f64();
        let gone = h / m * (1.0 + (1.0 + 2.0 * q * m / (h * h)).sqrt());
        let recovery = recovery.unwrap().as_secs_f64();
        prop_assert!((recovery - gone).abs() < 1e-6 * gone, "{recovery} {gone}");
    }

    #[test]
    fn planned_rate_is_in_time_and_a_hundredth_more_is_late(problem in problem()) {
        //= itcp-4.1-problem (test)
        //= itcp-4.2-exact (test)
        //= itcp-4.4-budget (test)
        let budget = problem.case().budget.as_secs_f64();
        if let Plan::Feasible { rate, binding, .. } = plan(&problem.case()) {
            let h = rate.as_f64();
            let worst = worst_fluid_delay(&problem, h, 7);
            prop_assert!(worst <= budget + 2e-9, "{worst} > {budget} at {h}");
            // Truncation to whole b/s must be less than the hundredth.
            if h > 1e3 {
                let more = delay_of(&problem, 1.01 * h, binding);
                prop_assert!(more > budget, "{more} <= {budget} at 1.01 of {h}");
            }
        } else {
            // If 1 b/s is infeasible, the backlog or the burst is late, or a stall is longer than
            // the budget.
            let worst = worst_fluid_delay(&problem, 1.0, 1);
            prop_assert!(worst > budget - 1.1e-3, "{worst} <= {budget}: 1 b/s was feasible");
        }
    }

    #[test]
    fn frames_in_packets_keep_the_promise(
        mut problem in problem(), fps in 5_u64..61, phase in 0_u64..50, packet in 200_u64..1_500,
    ) {
        problem.burst = Burst::frame(Duration::from_nanos(1_000_000_000 / fps), Bytes(packet));
        if let Some(h) = problem.rate() {
            let bound = problem.bound.as_secs_f64() - problem.lag.as_secs_f64();
            let worst = worst_frame_delay(&problem, h, ms(phase), packet as f64 * 8.0);
            prop_assert!(worst <= bound + 2e-9, "{worst} > {bound} at {h}");
        }
    }

    #[test]
    fn rate_is_monotonic_in_time_and_load(problem in problem(), more in 1_u64..200) {
        let h = problem.rate();
        let at_most = |a: Option<f64>, b: Option<f64>| match (a, b) {
            // The safety margin grows with the sums and may cost one bit per second.
            (Some(a), Some(b)) => a <= b * (1.0 + 1e-9) + 2.0,
            (None, _) => true,
            (Some(_), None) => false,
        };
        let patient = Problem { bound: problem.bound + ms(more), ..problem.clone() };
        prop_assert!(at_most(h, patient.rate()));
        let loaded = Problem { backlog: problem.backlog + Bytes(more * 20), ..problem.clone() };
        prop_assert!(at_most(loaded.rate(), h));
        let mut bursty = problem.clone();
        bursty.burst.fixed += Bytes(more);
        prop_assert!(at_most(bursty.rate(), h));
        bursty.burst.span += ms(more);
        prop_assert!(at_most(bursty.rate(), h));
    }

    #[test]
    fn smallest_budget_is_minimal(problem in problem(), floor in 10_000_u64..500_000) {
        let case = PlanProblem { floor: Rate::bps(floor), ..problem.case() };
        let Plan::Infeasible { smallest_budget, .. } = plan(&case) else { return Ok(()) };
        if let Some(budget) = smallest_budget {
            prop_assert!(budget > case.budget);
            let at = |budget| plan(&PlanProblem { budget, ..case }).rate();
            prop_assert!(at(budget).is_some());
            prop_assert!(at(budget.saturating_sub(Duration::from_micros(3))).is_none());
        } else {
            let late = worst_fluid_delay(&problem, floor as f64, 10);
            prop_assert!(late > 1.0 || problem.curve.at(Duration::from_hours(25)) < floor as f64 * 9e4);
        }
    }

    #[test]
    fn frames_that_are_not_skipped_are_in_time(problem in problem(), floor in 50_000_u64..2_000_000, next in 0_u64..33) {
        let interval = ms(33);
        let case = PlanProblem {
            floor: Rate::bps(floor),
            burst: Burst::frame(interval, Bytes(0)),
            frames: Frames { next: ms(next), interval },
            ..problem.case()
        };
        let Plan::Infeasible { skip, .. } = plan(&case) else { return Ok(()) };
        let frame = floor as f64 * 0.033;
        let mut queued = problem.backlog.bits() as f64;
        for n in 0..64 {
            let made = ms(next + 33 * u64::from(n));
            let alone = problem.curve.at(made).max(problem.backlog.bits() as f64) + frame;
            let in_time = |end| problem.curve.inverse(end).is_some_and(|t| t <= made + case.budget);
            // Because of the safety margin a frame may be hopeless that is in time by less than a
            // bit.
            prop_assert!(skip.late.contains(n) || in_time(alone));
            prop_assert!(!skip.late.contains(n) || !in_time(alone + 1.0));
            prop_assert!(!skip.late.contains(n) || skip.skip.contains(n));
            if !skip.skip.contains(n) {
                queued = queued.max(problem.curve.at(made)) + frame;
                prop_assert!(in_time(queued), "frame {n}");
            }
        }
    }
}
