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

fn planner() -> Planner {
    Planner::new(config())
}

/// Capacity of the path.
const C: Rate = Rate::kbps(2_000);

#[test]
fn rate_is_the_margin_of_the_capacity() {
    let got = planner().plan(at(0), idle(1_000), Rate::kbps(1_000));
    // 0.95 of the limit, minus the headers.
    assert_eq!(got.media, Rate::kbps(950).scale(1_160, 1_200));
}

#[test]
fn rate_stays_within_the_encoder_limits() {
    let media = |rate| planner().plan(at(1), idle(1_000), rate).media;
    assert_eq!(media(Rate::kbps(50)), Rate::kbps(150));
    assert_eq!(media(Rate::kbps(8_000)), Rate::kbps(4_000));
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
        planner().plan(at(0), situation, C).media
    };
    // One frame at 2 Mb/s is 8.3 kB.
    assert_eq!(media(0), media(8_000));
    // 62.5 kB are 250 ms at 2 Mb/s. All of it except for the reserve has to drain.
    assert!(media(62_500) < Rate::kbps(500), "{:?}", media(62_500));
}

#[test]
fn a_stall_longer_than_the_budget_skips_frames() {
    let mut p = planner();
    p.set_stall(Some(at(500)));
    let got = p.plan(at(0), idle(200), C);
    assert!(!got.feasible());
    let skip = got.skip().unwrap();
    // Frames before 300 ms are late. The next one is at 333 ms.
    assert!(skip.skip.contains(0) && skip.skip.contains(8) && !skip.skip.contains(10));
    assert_eq!(skip.resume.map(|t| t.as_millis()), Some(333));
    p.set_stall(None);
    assert!(p.plan(at(10), idle(200), C).feasible());
}

#[test]
fn noise_is_ignored_and_rises_are_gradual() {
    let mut p = planner();
    let first = p.plan(at(0), idle(1_000), C).media;
    assert_eq!(p.plan(at(50), idle(1_000), Rate::kbps(1_980)).media, first);
    // The capacity is four times as high. In 50 ms the rate rises by at most a tenth of it.
    let capacity = Rate::kbps(8_000);
    let loaded = PlanInput {
        backlog: Bytes(200_000),
        ..idle(1_000)
    };
    let low = p.plan(at(1_500), loaded, capacity).media;
    let next = p.plan(at(1_550), idle(1_000), capacity).media;
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
        p.plan(at(0), idle(budget), C).media.as_f64() / config().payload(Rate::kbps(2_000)).as_f64()
    };
    assert!((media(0.0, 150) - 0.95).abs() < 0.001);
    assert!((media(0.25, 150) - 0.70).abs() < 0.001);
    assert!((media(1.0, 150) - 0.65).abs() < 0.001);
    assert!((media(1.0, 600) - 0.95).abs() < 0.001);
}
