//! Repairs, and a backlog in the sender, within the delay bound.

mod session_lab;

use std::time::Duration;

use session_lab::{SessionRun, SessionSetup};
use tidegate_core::control::Kind;
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::tide::TideConfig;
use tidegate_core::link::{Capacity, DropTailConfig, LossConfig, QueueConfig};
use tidegate_core::units::{Bytes, Rate};

/// Tide on 10 Mb/s with a queue of 300 ms, a round trip in ms and independent losses, for 40 s with a
/// bound of 400 ms and this ceiling of the encoder.
fn path(rtt: u64, loss: f64, ceiling: Rate) -> SessionSetup {
    let mut setup = SessionSetup::new();
    setup.control = ControllerConfig::from(TideConfig::default());
    setup.ceiling = ceiling;
    setup.seconds = 40;
    setup.uplink.capacity = Capacity::Fixed(Rate::kbps(10_000));
    setup.uplink.queue = QueueConfig::DropTail(DropTailConfig::bytes(Bytes(375_000)));
    setup.uplink.loss = LossConfig::Bernoulli(loss);
    setup.uplink.delay = Duration::from_millis(rtt / 2);
    setup.downlink.delay = Duration::from_millis(rtt / 2);
    setup
}

/// 95th percentile of the delay of the frames, from capture to completion.
fn delay(run: &SessionRun) -> Duration {
    let whole = run.whole();
    let delays = whole.values().map(|(sent, at)| at.since(sent.captured));
    let mut delays: Vec<Duration> = delays.collect();
    delays.sort();
    delays[delays.len() * 95 / 100]
}

/// Headers, retransmissions and parity come on top of the rate of the encoder. If the sender were
/// limited to that rate, frames would wait in it: for 250 ms here.
#[test]
fn an_encoder_at_its_ceiling_leaves_no_backlog() {
    for ceiling in [3_000, 6_000, 8_000].map(Rate::kbps) {
        for (rtt, most) in [(20, 60), (100, 95)] {
            let p95 = delay(&path(rtt, 0.0, ceiling).run(Duration::from_secs(1)));
            assert!(
                p95 <= Duration::from_millis(most),
                "{ceiling} {rtt} {p95:?}"
            );
        }
    }
    let p95 = delay(&path(100, 0.01, Rate::kbps(8_000)).run(Duration::from_secs(1)));
    assert!(p95 <= Duration::from_millis(200), "{p95:?}");
}

/// A retransmission takes 300 to 350 ms here, so that a second one is late.
#[test]
fn retransmissions_without_a_second_chance_are_sent_in_copies() {
    for loss in [0.01, 0.03, 0.05] {
        for seed in 1..=5 {
            let setup = SessionSetup {
                seed,
                ..path(200, loss, Rate::kbps(6_000))
            };
            let run = setup.run(Duration::from_secs(1));
            let on_time = run.on_time(2, 40);
            assert!(on_time >= 0.99, "{loss} {seed} {on_time}");
        }
    }
}

/// A longer bound leaves time for a retransmission, and for a second one.
#[test]
fn a_longer_bound_saves_no_fewer_frames() {
    let shares = [300, 350, 400, 500, 700, 1_000].map(|ms| {
        let runs = (1..=3).map(|seed| {
            let mut setup = path(200, 0.05, Rate::kbps(6_000));
            (setup.seed, setup.bound) = (seed, Some(Duration::from_millis(ms)));
            setup.run(Duration::from_secs(1)).on_time(2, 40)
        });
        runs.sum::<f64>() / 3.0
    });
    for pair in shares.windows(2) {
        assert!(pair[1] >= pair[0] - 0.005, "{shares:?}");
    }
}

/// Where a second retransmission is in time, a first one is not repeated.
#[test]
fn copies_are_sent_only_where_they_are_needed() {
    let repairs = |rtt| {
        let run = path(rtt, 0.05, Rate::kbps(6_000)).run(Duration::from_secs(1));
        let of = |kind| run.packets.iter().filter(move |packet| packet.kind == kind);
        of(Kind::Repair).count() as f64 / of(Kind::Media).count() as f64
    };
    let (short, long) = (repairs(40), repairs(200));
    assert!(
        short <= 0.06 && (0.08..=0.2).contains(&long),
        "{short} {long}"
    );
}
