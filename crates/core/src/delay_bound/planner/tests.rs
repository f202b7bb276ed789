use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Time {
    Time::from_millis(n)
}

fn config() -> PlannerConfig {
    PlannerConfig::new(Rate::kbps(150), Rate::kbps(4_000))
}

fn idle(budget: u64) -> PlanInput {
    PlanInput {
        backlog: Bytes::ZERO,
        budget: ms(budget),
        repair_reserve: Duration::ZERO,
        next_frame: Duration::ZERO,
        queue: QueueOwner::Own,
    }
}

/// A planner with a sample of 2 Mb/s.
fn planner() -> Planner {
    let mut p = Planner::new(config());
    p.set_upper(Rate::kbps(8_000));
    p.observe_capacity(at(0), Rate::kbps(2_000));
    p
}

#[test]
fn before_the_first_queue_the_upper_limit_is_the_forecast() {
    let mut p = Planner::new(config());
    p.set_upper(Rate::kbps(1_000));
    let got = p.plan(at(0), idle(1_000));
    assert_eq!((got.capacity, p.measured()), (Rate::kbps(1_000), None));
    // 0.95 of the limit, minus the headers.
    assert_eq!(got.media, Rate::kbps(950).scale(1_160, 1_200));
}

#[test]
fn rate_stays_within_the_encoder_limits() {
    let mut p = planner();
    p.observe_drop(at(1), Rate::kbps(50));
    assert_eq!(p.plan(at(1), idle(1_000)).media, Rate::kbps(150));
    let mut p = planner();
    p.observe_capacity(at(2_000), Rate::kbps(8_000));
    assert_eq!(p.plan(at(2_000), idle(1_000)).media, Rate::kbps(4_000));
    let c = config();
    assert!(c.payload(c.wire(Rate::kbps(777))) >= Rate::kbps(777));
}

#[test]
fn standing_queue_is_drained_except_for_one_frame() {
    let media = |backlog| {
        let situation = PlanInput {
            backlog: Bytes(backlog),
            ..idle(1_000)
        };
        planner().plan(at(0), situation).media
    };
    // One frame at 2 Mb/s is 8.3 kB.
    assert_eq!(media(0), media(8_000));
    // 62.5 kB are 250 ms at 2 Mb/s. All of it except for the reserve has to drain.
    assert!(media(62_500) < Rate::kbps(500), "{:?}", media(62_500));
}

#[test]
fn one_report_raises_the_estimate_by_a_third() {
    let mut p = planner();
    p.observe_idle(at(50), Rate::kbps(2_400));
    assert_eq!(p.capacity(), Rate::kbps(2_400));
    p.observe_idle(at(100), Rate::kbps(7_000));
    assert_eq!(p.capacity(), Rate::kbps(3_200));
}

#[test]
fn a_drop_counts_at_once_and_a_lower_sample_does_not() {
    let mut p = planner();
    for n in 1..10 {
        p.observe_capacity(at(n * 50), Rate::kbps(2_000));
    }
    p.observe_capacity(at(500), Rate::kbps(600));
    assert_eq!(p.capacity(), Rate::kbps(2_000));
    p.observe_drop(at(550), Rate::kbps(500));
    assert_eq!(p.capacity(), Rate::kbps(500));
    let before = p.plan(at(550), idle(400)).media;
    assert!(before < Rate::kbps(500), "{before:?}");
}

#[test]
fn a_hint_lowers_the_plan_and_leaves_the_estimate() {
    let mut p = planner();
    p.observe_capacity(at(0), Rate::kbps(2_000));
    // Within the error of a hint.
    p.observe_hint(Rate::kbps(1_400));
    assert_eq!(p.capacity(), Rate::kbps(2_000));
    p.observe_hint(Rate::kbps(500));
    assert_eq!(p.capacity(), Rate::kbps(500));
    assert_eq!(p.measured(), Some(Rate::kbps(2_000)));
    p.observe_idle(at(50), Rate::kbps(100));
    assert_eq!(p.capacity(), Rate::kbps(2_000));
    p.observe_hint(Rate::kbps(500));
    p.observe_drop(at(100), Rate::kbps(800));
    assert_eq!(p.capacity(), Rate::kbps(800));
}

#[test]
fn the_forecast_grows_while_it_is_used_and_no_queue_forms() {
    let mut p = planner();
    let mut lazy = planner();
    for n in 0..80 {
        p.observe_idle(at(n * 50), Rate::kbps(1_800));
        lazy.observe_idle(at(n * 50), Rate::kbps(300));
    }
    assert!(p.capacity() > Rate::kbps(2_300), "{:?}", p.capacity());
    assert_eq!(lazy.capacity(), Rate::kbps(2_000));
    for n in 80..400 {
        let all = p.capacity();
        p.observe_idle(at(n * 50), all);
    }
    assert_eq!(p.capacity(), Rate::kbps(8_000));
}

#[test]
fn a_stall_longer_than_the_budget_skips_frames() {
    let mut p = planner();
    p.set_stall(Some(at(500)));
    let got = p.plan(at(0), idle(200));
    assert!(!got.feasible());
    let skip = got.skip().unwrap();
    // Frames before 300 ms are late. The next one is at 333 ms.
    assert!(skip.skip.contains(0) && skip.skip.contains(8) && !skip.skip.contains(10));
    assert_eq!(skip.resume.map(|t| t.as_millis()), Some(333));
    p.set_stall(None);
    assert!(p.plan(at(10), idle(200)).feasible());
}

#[test]
fn noise_is_ignored_and_rises_are_gradual() {
    let mut p = planner();
    let first = p.plan(at(0), idle(1_000)).media;
    p.observe_drop(at(50), Rate::kbps(1_980));
    assert_eq!(p.plan(at(50), idle(1_000)).media, first);
    // The capacity is four times as high. In 50 ms the rate rises by at most a tenth of it.
    p.observe_capacity(at(1_500), Rate::kbps(8_000));
    p.plan(
        at(1_500),
        PlanInput {
            backlog: Bytes(200_000),
            ..idle(1_000)
        },
    );
    let low = p
        .plan(
            at(1_500),
            PlanInput {
                backlog: Bytes(200_000),
                ..idle(1_000)
            },
        )
        .media;
    let next = p.plan(at(1_550), idle(1_000)).media;
    assert!(
        next > low && next <= low + Rate::kbps(800),
        "{low:?} {next:?}"
    );
}

#[test]
fn headroom_costs_its_limit_and_nothing_with_a_long_budget() {
    let media = |headroom, budget| {
        let mut p = Planner::new(PlannerConfig {
            headroom,
            ..config()
        });
        p.set_upper(Rate::kbps(2_000));
        p.plan(at(0), idle(budget)).media.as_f64() / config().payload(Rate::kbps(2_000)).as_f64()
    };
    assert!((media(0.0, 150) - 0.95).abs() < 0.001);
    assert!((media(0.25, 150) - 0.70).abs() < 0.001);
    assert!((media(1.0, 150) - 0.65).abs() < 0.001);
    assert!((media(1.0, 600) - 0.95).abs() < 0.001);
}
