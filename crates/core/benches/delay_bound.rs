//! Cost of a plan: target at most 2 µs for a constant rate and 50 µs for 20 segments.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate_core::delay_bound::{
    Burst, Frames, PlanInput, PlanProblem, Planner, PlannerConfig, QueueOwner, Segment,
    ServiceCurve, plan,
};
use tidegate_core::units::{Bytes, Rate, Time};

const FRAME: Duration = Duration::from_nanos(33_333_333);

fn case(curve: &ServiceCurve, backlog: u64) -> PlanProblem<'_> {
    PlanProblem {
        curve,
        backlog: Bytes(backlog),
        budget: Duration::from_millis(150),
        burst: Burst::frame(FRAME, Bytes(1_200)),
        floor: Rate::kbps(150),
        ceiling: Rate::kbps(8_000),
        frames: Frames {
            next: Duration::ZERO,
            interval: FRAME,
        },
    }
}

/// 20 segments with decreasing and increasing rates and stalls.
fn rough() -> ServiceCurve {
    let segments: Vec<_> = (0_u64..20)
        .map(|n| Segment {
            duration: Duration::from_millis(20 + 7 * n),
            rate: Rate::kbps(900 + n * 7_919 % 2_000),
            slope: (n * 104_729 % 4_000_000) as f64 - 1_999_999.0 + 1e5 * n as f64,
        })
        .collect();
    ServiceCurve::from_segments(&segments).unwrap_or_else(|_| ServiceCurve::constant(Rate::ZERO))
}

fn plans(c: &mut Criterion) {
    let constant = ServiceCurve::constant(Rate::kbps(2_000));
    c.bench_function("plan/constant", |b| {
        b.iter(|| plan(black_box(&case(&constant, 5_000))));
    });
    let rough = rough();
    assert!(
        rough.at(Duration::from_secs(1)) > 0.0,
        "the last slope must not be negative"
    );
    c.bench_function("plan/20 segments", |b| {
        b.iter(|| plan(black_box(&case(&rough, 2_000))));
    });
    assert!(
        plan(&case(&rough, 60_000)).rate().is_none(),
        "this case must be infeasible"
    );
    c.bench_function("plan/20 segments, infeasible", |b| {
        b.iter(|| plan(black_box(&case(&rough, 60_000))));
    });
}

fn planner(c: &mut Criterion) {
    let mut planner = Planner::new(PlannerConfig::new(Rate::kbps(150), Rate::kbps(8_000)));
    let capacity = Rate::kbps(2_000);
    let situation = PlanInput {
        backlog: Bytes(9_000),
        budget: Duration::from_millis(250),
        repair_reserve: Duration::from_millis(100),
        next_frame: Duration::from_millis(5),
        queue: QueueOwner::Own,
    };
    c.bench_function("planner/plan", |b| {
        b.iter(|| planner.plan(Time::ZERO, black_box(situation), capacity));
    });
}

criterion_group!(benches, plans, planner);
criterion_main!(benches);
