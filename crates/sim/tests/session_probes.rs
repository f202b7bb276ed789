//! RCS in sessions of video: the test of lower effort, probes, and RAP on paths that do not honour
//! them.

mod session_lab;

use std::time::Duration;

use session_lab::{SessionRun, SessionSetup};
use tidegate_core::control::{Kind, LowerEffort};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::rcs::RcsConfig;
use tidegate_core::link::{
    Capacity, DropTailConfig, Limit, LossConfig, LowerEffortPolicy, PriorityConfig, QueueConfig,
};
use tidegate_core::session::config::FeedbackMode;
use tidegate_core::trace::{ControllerState, Event};
use tidegate_core::units::{Bytes, Rate, Time};

const SECOND: Duration = Duration::from_secs(1);

fn setup(queue: QueueConfig) -> SessionSetup {
    let mut setup = SessionSetup::new();
    setup.uplink.queue = queue;
    setup.control = ControllerConfig::from(RcsConfig::default());
    setup
}

fn priority() -> QueueConfig {
    let limit = Limit::Packets(50);
    QueueConfig::Priority(PriorityConfig { limit })
}

fn fifo() -> QueueConfig {
    QueueConfig::DropTail(DropTailConfig::bytes(Bytes(60_000)))
}

fn tested(run: &SessionRun) -> Vec<(Time, LowerEffort)> {
    run.events(|event| match event {
        Event::LowerEffortTested { treatment, .. } => Some(treatment),
        _ => None,
    })
}

fn dummies(run: &SessionRun) -> usize {
    run.packets
        .iter()
        .filter(|row| row.kind == Kind::Dummy)
        .count()
}

#[test]
fn probes_find_the_rate_where_lower_effort_is_honoured() {
    let run = setup(priority()).run(SECOND);
    let results = tested(&run);
    assert_eq!(results.len(), 1, "{results:?}");
    let (at, treatment) = results[0];
    assert_eq!(treatment, LowerEffort::Honoured);
    assert!(at < Time::from_millis(1_500), "{at:?}");
    let is_steady = |event| {
        matches!(event, Event::StateChanged { state, .. } if state == ControllerState::Steady)
            .then_some(())
    };
    // Two round trips of 80 ms later the rate is known.
    let (steady, ()) = run.first(at, is_steady).unwrap();
    assert!(steady < at + Duration::from_millis(300), "{steady:?}");
    // RAP takes 25 s for this.
    let rate = run.arrival_rate(3, 6);
    assert!(rate > Rate::kbps(3_000), "{rate}");
    assert!(dummies(&run) > 30, "{}", dummies(&run));
    assert!(run.on_time(3, 20) > 0.95, "{}", run.on_time(3, 20));
}

#[test]
fn probes_stop_after_the_test_where_lower_effort_is_ignored() {
    let run = setup(fifo()).run(SECOND);
    let results = tested(&run);
    assert!(
        matches!(results[..], [(_, LowerEffort::Ignored)]),
        "{results:?}"
    );
    // Two trains of 12 packets.
    assert_eq!(dummies(&run), 24);
    let states = run.events(|event| matches!(event, Event::StateChanged { .. }).then_some(()));
    assert_eq!(states, [], "RAP has no states");
}

#[test]
fn probes_restore_the_rate_after_losses_of_a_link() {
    let with = |queue| {
        let mut setup = setup(queue);
        setup.seconds = 60;
        setup.uplink.loss = LossConfig::Bernoulli(0.005);
        setup.uplink.delay = Duration::from_millis(150);
        setup.run(SECOND).arrival_rate(10, 60)
    };
    let (rcs, rap) = (with(priority()), with(fifo()));
    assert!(rcs.as_f64() > 1.5 * rap.as_f64(), "{rcs} and {rap}");
}

#[test]
fn a_path_without_queue_and_a_receiver_without_reports_are_no_reason_to_trust() {
    let mut free = setup(fifo());
    free.uplink.capacity = Capacity::Unlimited;
    assert_eq!(tested(&free.run(SECOND)), []);
    let mut plain = setup(priority());
    plain.feedback = FeedbackMode::ReceiverReports;
    let run = plain.run(SECOND);
    assert_eq!(tested(&run), []);
    // The first train leaves before the sender knows the kind of its peer.
    assert!(dummies(&run) <= 12, "{}", dummies(&run));
}

#[test]
fn each_treatment_is_found() {
    let treatments = [
        (LowerEffortPolicy::Honour, LowerEffort::Honoured, Some(1)),
        (LowerEffortPolicy::Ignore, LowerEffort::Ignored, Some(1)),
        (LowerEffortPolicy::Remark, LowerEffort::Remarked, Some(0)),
        (LowerEffortPolicy::Drop, LowerEffort::Dropped, None),
    ];
    for (policy, treatment, dscp) in treatments {
        let mut setup = setup(priority());
        setup.uplink.lower_effort = policy;
        let run = setup.run(SECOND);
        let found = run.events(|event| match event {
            Event::LowerEffortTested { treatment, dscp } => Some((treatment, dscp)),
            _ => None,
        });
        let found: Vec<_> = found.into_iter().map(|(_, found)| found).collect();
        assert_eq!(found, [(treatment, dscp)]);
    }
    // Feedback on probes has their priority, and may vanish alone.
    let mut setup = setup(priority());
    setup.downlink.lower_effort = LowerEffortPolicy::Drop;
    let found: Vec<_> = tested(&setup.run(SECOND))
        .into_iter()
        .map(|(_, found)| found)
        .collect();
    assert_eq!(found, [LowerEffort::Unanswered]);
}

#[test]
fn rates_are_bounded_for_any_target() {
    for target in [Rate::ZERO, Rate::kbps(4_000_000)] {
        let mut setup = setup(priority());
        setup.control = ControllerConfig::from(RcsConfig {
            target: Some(target),
            ..RcsConfig::default()
        });
        let run = setup.run(SECOND);
        let per_second = (0..20).map(|second| {
            let span = Time::from_secs(second)..Time::from_secs(second + 1);
            let sent = run.packets.iter().filter(|row| row.kind == Kind::Dummy);
            sent.filter(|row| span.contains(&row.sent)).count()
        });
        // 100 Mb/s in packets of 1,200 bytes.
        let most = per_second.max().unwrap();
        assert!(most <= 10_450, "{target}: {most}");
        assert!(run.wire_rate(0, 20) < Rate::kbps(110_000));
        // The stream goes on at its lowest rate at least, since the probes are served last.
        let on_time = run.on_time(3, 20);
        let least = if target == Rate::ZERO { 0.0 } else { 0.95 };
        assert!(on_time >= least, "{target}: {on_time}");
    }
}
