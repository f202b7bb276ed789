//! Receivers of other projects: rates from receiver reports and from transport-wide feedback, on a
//! path of 4 Mb/s that becomes one of 1 and then of 3 Mb/s.

mod session_lab;

use std::time::Duration;

use session_lab::{PlainFeedback, SessionRun, SessionSetup};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::rap::RapConfig;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::controller::tide::TideConfig;
use tidegate_core::link::{Capacity, Steps};
use tidegate_core::trace::{BreakerCause, Event};
use tidegate_core::units::{Rate, Time};

const SECOND: Duration = Duration::from_secs(1);

/// A setup with this receiver, and a path with these rates, in kb/s, from these seconds on.
fn setup(reports: u64, transport: Option<u64>, path: &[(u64, u64)]) -> SessionSetup {
    let steps: Vec<_> = path
        .iter()
        .map(|&(second, kbps)| (Time::from_secs(second), Rate::kbps(kbps)))
        .collect();
    let mut setup = SessionSetup::new();
    setup.uplink.capacity = Capacity::Steps(Steps::new(&steps).unwrap());
    setup.plain = Some(PlainFeedback {
        reports: Duration::from_millis(reports),
        transport: transport.map(Duration::from_millis),
    });
    setup.seconds = 90;
    setup
}

fn trips(run: &SessionRun) -> Vec<(Time, BreakerCause)> {
    run.events(|event| match event {
        Event::BreakerTripped { cause } => Some(cause),
        _ => None,
    })
}

/// Asserts a minimum arrival rate in each span of seconds.
fn arrives(run: &SessionRun, wanted: &[(u64, u64, u64)]) {
    assert_eq!(trips(run), []);
    for &(from, to, kbps) in wanted {
        let rate = run.arrival_rate(from, to);
        assert!(rate >= Rate::kbps(kbps), "{from} to {to} s: {rate}");
    }
}

/// Reports at 2.5, 7.5 and 12.5 s double the rate from 1 to 4 Mb/s, without a burst before.
#[test]
fn slow_reports_reach_the_rate_of_a_free_path() {
    for (ceiling, kbps) in [(4_000, 3_200), (2_000, 1_600)] {
        let mut setup = setup(5_000, None, &[(0, 8_000)]);
        setup.ceiling = Rate::kbps(ceiling);
        setup.seconds = 30;
        let run = setup.run(SECOND);
        arrives(&run, &[(15, 30, kbps)]);
        assert!(run.wire_rate(0, 2) < Rate::kbps(250));
        assert!(run.wire_rate(3, 7) < Rate::kbps(1_200));
        assert_eq!(run.links[0].queue_drops, 0);
    }
}

#[test]
fn slow_reports_follow_the_path() {
    let run = setup(5_000, None, &[(0, 4_000), (45, 1_000), (65, 3_000)]).run(SECOND);
    // Each report doubles the rate that has arrived, the fourth one to what the path carries.
    arrives(
        &run,
        &[
            (20, 25, 3_200),
            (35, 45, 3_200),
            (55, 65, 350),
            (80, 90, 1_000),
        ],
    );
    // One interval at 4 Mb/s on a path of 1 Mb/s, and the next at a rate that it carries.
    let lost = run.wire_rate(50, 65).as_bps() as f64 / run.arrival_rate(50, 65).as_bps() as f64;
    assert!(lost < 1.5, "{lost}");
}

/// The doubling that fills the path costs losses for a part of an interval, and no cut of the circuit
/// breaker: it would be to a tenth.
#[test]
fn slow_reports_neither_overload_the_path_nor_collapse() {
    for (interval, kbps) in [
        (2_500, 4_000),
        (5_000, 3_000),
        (5_000, 4_000),
        (5_000, 5_500),
    ] {
        let mut setup = setup(interval, None, &[(0, kbps)]);
        setup.control = ControllerConfig::from(TideConfig::default());
        (setup.ceiling, setup.seconds) = (Rate::kbps(8_000), 60);
        let run = setup.run(SECOND);
        assert_eq!(trips(&run), []);
        let rates: Vec<_> = (0..60).map(|s| run.wire_rate(s, s + 1)).collect();
        let over = rates
            .iter()
            .filter(|rate| **rate > Rate::kbps(kbps * 5 / 4));
        assert!(over.count() <= 1, "{interval} ms, {kbps} kb/s: {rates:?}");
        let least = rates[20..].iter().min().unwrap();
        assert!(
            *least >= Rate::kbps(kbps / 2),
            "{interval} ms, {kbps} kb/s: {rates:?}"
        );
        // The rate of each second is at most twice the highest that has arrived before.
        for second in 3..60 {
            let arrived = (0..second)
                .map(|s| run.arrival_rate(s, s + 1))
                .max()
                .unwrap();
            let most = arrived.scale(21, 10).max(Rate::kbps(1_050));
            assert!(rates[second as usize] <= most, "{second} s: {rates:?}");
        }
    }
}

#[test]
fn fast_reports_follow_the_path() {
    for control in [
        ControllerConfig::from(TfrcConfig::default()),
        ControllerConfig::from(TideConfig::default()),
        ControllerConfig::from(RapConfig::default()),
    ] {
        let mut setup = setup(1_000, None, &[(0, 4_000), (30, 1_000), (60, 3_000)]);
        setup.control = control;
        let run = setup.run(SECOND);
        arrives(&run, &[(10, 30, 3_200), (35, 60, 800), (75, 90, 2_400)]);
        // 4 Mb/s for the second until the first report from the path of 1 Mb/s.
        assert!(run.wire_rate(33, 60) < Rate::kbps(1_300));
    }
}

#[test]
fn transport_wide_feedback_is_as_good_as_our_own() {
    let path = [(0, 4_000), (30, 1_000), (60, 3_000)];
    let tide = ControllerConfig::from(TideConfig::default());
    for control in [ControllerConfig::from(TfrcConfig::default()), tide] {
        let mut run = setup(5_000, Some(50), &path);
        run.control = control.clone();
        let run = run.run(SECOND);
        let mut ours = setup(5_000, None, &path);
        (ours.plain, ours.control) = (None, control.clone());
        let ours = ours.run(SECOND);
        for (from, to) in [(10, 30), (35, 60), (70, 90)] {
            let (rate, own) = (run.arrival_rate(from, to), ours.arrival_rate(from, to));
            assert!(
                rate >= own.scale(9, 10),
                "{control:?}, {from} to {to} s: {rate} of {own}"
            );
        }
        assert_eq!(trips(&run), []);
        let lost = run.links[0].queue_drops;
        assert!(lost <= ours.links[0].queue_drops + 50, "{lost} packets");
    }
}

/// Random losses of 2 %, for which TCP would send 0.8 Mb/s with packets of 1200 B and 90 ms.
#[test]
fn persistent_losses_lower_the_rate_to_that_of_tcp() {
    let mut setup = setup(1_000, None, &[(0, 8_000)]);
    setup.uplink.loss = tidegate_core::link::LossConfig::Bernoulli(0.02);
    let run = setup.run(SECOND);
    let rate = run.wire_rate(30, 90);
    assert!(rate > Rate::kbps(300) && rate < Rate::kbps(1_600), "{rate}");
}
