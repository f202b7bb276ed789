use super::*;

const FRAME: Duration = Duration::from_nanos(33_333_333);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn case(curve: &ServiceCurve, backlog: u64, budget: u64) -> PlanProblem<'_> {
    PlanProblem {
        curve,
        backlog: Bytes(backlog),
        budget: ms(budget),
        burst: Burst::default(),
        floor: Rate::kbps(100),
        ceiling: Rate::MAX,
        frames: Frames {
            next: Duration::ZERO,
            interval: FRAME,
        },
    }
}

#[test]
fn constant_capacity_is_the_planned_rate() {
    let curve = ServiceCurve::constant(Rate::kbps(1_000));
    let Plan::Feasible {
        rate,
        binding,
        recovery,
    } = plan(&case(&curve, 12_500, 200))
    else {
        panic!("100 ms of backlog fit into 200 ms");
    };
    assert_eq!(rate, Rate::kbps(1_000));
    assert_eq!(binding, Binding::LongRun);
    // At the full rate the backlog never drains.
    assert_eq!(recovery, None);
}

#[test]
fn a_frame_must_fit_into_the_budget() {
    // One frame at h and one packet of 10,000 bits in 20 ms at 1 Mb/s: h/30 <= 10,000.
    let curve = ServiceCurve::constant(Rate::kbps(1_000));
    let tight = PlanProblem {
        burst: Burst::frame(FRAME, Bytes(1_250)),
        ..case(&curve, 0, 20)
    };
    let rate = plan(&tight).rate().unwrap().as_f64();
    assert!((rate - 300_000.0).abs() < 5.0, "{rate}");
}

#[test]
fn ceiling_limits_the_planned_rate() {
    let curve = ServiceCurve::constant(Rate::kbps(1_000));
    let low = PlanProblem {
        ceiling: Rate::kbps(500),
        ..case(&curve, 12_500, 200)
    };
    let Plan::Feasible {
        rate,
        binding,
        recovery,
    } = plan(&low)
    else {
        panic!("feasible")
    };
    assert_eq!((rate, binding), (Rate::kbps(500), Binding::Ceiling));
    // 100,000 bits at 500 kb/s of spare capacity.
    assert_eq!(recovery, Some(ms(200)));
}

#[test]
fn stall_longer_than_the_budget_skips_its_frames() {
    //= itcp-4.4-infeasible (test)
    let full = ServiceCurve::constant(Rate::kbps(10_000));
    let curve = ServiceCurve::stall_then(ms(500), &full);
    let Plan::Infeasible {
        smallest_budget,
        skip,
    } = plan(&case(&curve, 0, 100))
    else {
        panic!("500 ms are more than 100 ms");
    };
    // The byte of t = 0 waits for the whole stall.
    let smallest = smallest_budget.unwrap();
    assert!(smallest >= ms(500) && smallest < ms(501), "{smallest:?}");
    // A frame at the floor takes a third of a millisecond, so frames up to 400 ms are hopeless.
    assert_eq!(
        skip.late.iter().collect::<Vec<_>>(),
        (0..13).collect::<Vec<_>>()
    );
    assert_eq!(skip.skip, skip.late);
    assert_eq!(skip.resume.map(|t| t.as_millis()), Some(433));
}

#[test]
fn half_of_the_frames_are_skipped_at_half_of_the_floor() {
    // The capacity is half of the floor, so every other frame fits.
    let curve = ServiceCurve::constant(Rate::kbps(50));
    let Plan::Infeasible {
        smallest_budget,
        skip,
    } = plan(&case(&curve, 0, 100))
    else {
        panic!("50 kb/s are less than the floor");
    };
    assert_eq!(smallest_budget, None);
    assert!(skip.late.is_empty());
    assert!((28..=34).contains(&skip.skip.len()), "{:?}", skip.skip);
}

#[test]
fn frames_behind_a_late_backlog_are_skipped() {
    let curve = ServiceCurve::constant(Rate::kbps(1_000));
    // 300 ms of backlog against a budget of 100 ms: frames from about 205 ms on are savable.
    let Plan::Infeasible {
        smallest_budget,
        skip,
    } = plan(&case(&curve, 37_500, 100))
    else {
        panic!("300 ms of backlog do not fit into 100 ms");
    };
    assert_eq!(smallest_budget.unwrap().as_millis(), 300);
    assert_eq!(skip.late.len(), 7);
    assert!(!skip.skip.contains(7) && !skip.skip.contains(64));
}

#[test]
fn return_to_a_rate_is_checked_with_the_later_curve() {
    //= itcp-4.3-return (test)
    // w = m·t and Q = 0: recovery at 4·d, and from there at most 8·m·d.
    let (m, d) = (1e6, 0.2);
    let curve = ServiceCurve::linear(m);
    let problem = case(&curve, 0, 200);
    let Plan::Feasible { rate, recovery, .. } = plan(&problem) else {
        panic!("feasible")
    };
    assert!((rate.as_f64() - 2.0 * m * d).abs() <= 1.0, "{rate:?}");
    let recovery = recovery.unwrap();
    assert!(
        (recovery.as_secs_f64() - 4.0 * d).abs() < 1e-5,
        "{recovery:?}"
    );
    assert!(is_return_feasible(
        &problem,
        Rate::from_f64(7.999 * m * d),
        recovery
    ));
    assert!(!is_return_feasible(
        &problem,
        Rate::from_f64(8.001 * m * d),
        recovery
    ));
}

#[test]
fn zero_budget_is_infeasible_with_a_backlog_or_a_burst() {
    let curve = ServiceCurve::constant(Rate::kbps(1_000));
    assert_eq!(plan(&case(&curve, 1, 0)).rate(), None);
    let packet = PlanProblem {
        burst: Burst::frame(FRAME, Bytes(1)),
        ..case(&curve, 0, 0)
    };
    assert_eq!(plan(&packet).rate(), None);
}
