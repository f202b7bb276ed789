//! Parity packets on paths whose round-trip time is too long for retransmissions.

mod session_lab;

use std::num::NonZeroU32;
use std::time::Duration;

use session_lab::{SessionRun, SessionSetup};
use tidegate_core::control::Kind;
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::fixed::FixedConfig;
use tidegate_core::controller::tide::TideConfig;
use tidegate_core::link::{Capacity, GilbertElliott, LossConfig};
use tidegate_core::units::Rate;

/// A geostationary satellite: 5 Mb/s, a round-trip time of 550 ms, a bound of half of that and
/// 300 ms.
fn geo(seed: u64, loss: LossConfig, kbps: u64) -> SessionSetup {
    let mut setup = SessionSetup::new();
    setup.seed = seed;
    setup.seconds = 60;
    setup.uplink.capacity = Capacity::Fixed(Rate::kbps(5_000));
    setup.uplink.loss = loss;
    setup.uplink.delay = Duration::from_millis(275);
    setup.downlink.delay = Duration::from_millis(275);
    setup.bound = Some(Duration::from_millis(575));
    let rate = Rate::kbps(kbps);
    setup.control = ControllerConfig::from(FixedConfig { rate });
    setup.ceiling = rate;
    setup
}

/// Bytes of parity packets and retransmissions, as a share of the media.
fn repair_share(run: &SessionRun) -> f64 {
    let bytes = |is: fn(Kind) -> bool| -> u64 {
        let packets = run.packets.iter().filter(|packet| is(packet.kind));
        packets.map(|packet| packet.size.get()).sum()
    };
    bytes(|kind| kind != Kind::Media) as f64 / bytes(|kind| kind == Kind::Media) as f64
}

/// Shares of frames in time of ten seeds at a fixed rate, in ascending order, and the largest share
/// of repairs.
fn measure(loss: &LossConfig, kbps: u64, parity: bool) -> (Vec<f64>, f64) {
    let rate = Rate::kbps(kbps);
    measure_with(
        &ControllerConfig::from(FixedConfig { rate }),
        loss,
        kbps,
        parity,
    )
}

/// The same with a controller and this ceiling.
fn measure_with(
    control: &ControllerConfig,
    loss: &LossConfig,
    kbps: u64,
    parity: bool,
) -> (Vec<f64>, f64) {
    let runs = (1..=10).map(|seed| {
        let setup = SessionSetup {
            parity,
            control: control.clone(),
            ..geo(seed, loss.clone(), kbps)
        };
        let run = setup.run(Duration::from_secs(1));
        (run.on_time(2, 60), repair_share(&run))
    });
    let (mut on_time, repairs): (Vec<f64>, Vec<f64>) = runs.unzip();
    on_time.sort_by(f64::total_cmp);
    (on_time, repairs.into_iter().fold(0.0, f64::max))
}

/// Half of the capacity, in kb/s.
const HALF: u64 = 2_500;

#[test]
fn parity_saves_the_frames_that_a_retransmission_cannot() {
    let loss = LossConfig::Bernoulli(0.01);
    let (with, repairs) = measure(&loss, HALF, true);
    let mean = with.iter().sum::<f64>() / 10.0;
    assert!(mean >= 0.995 && with[0] >= 0.98, "{with:?}");
    assert!(repairs <= 0.2, "{repairs}");
    let (without, _) = measure(&loss, HALF, false);
    assert!(without[9] <= 0.8, "{without:?}");
}

#[test]
fn tide_shows_nearly_all_frames_with_little_parity() {
    let tide = ControllerConfig::from(TideConfig::default());
    let (on_time, repairs) = measure_with(&tide, &LossConfig::Bernoulli(0.01), HALF, true);
    let mean = on_time.iter().sum::<f64>() / 10.0;
    assert!(mean >= 0.995 && repairs <= 0.2, "{repairs} {on_time:?}");
}

/// One percent in bursts of three packets. From 1.2 Mb/s on, ten times the rate of TCP, the circuit
/// breaker would trip.
#[test]
fn bursts_get_more_parity() {
    let bursts = GilbertElliott::bursts(0.01, 3.0).map(LossConfig::GilbertElliott);
    let bursts = bursts.expect("a valid channel");
    let (with, repairs) = measure(&bursts, 1_000, true);
    let (without, _) = measure(&bursts, 1_000, false);
    let missed = |shares: &[f64]| 1.0 - shares.iter().sum::<f64>() / 10.0;
    assert!(
        missed(&with) <= 0.67 * missed(&without),
        "{with:?} {without:?}"
    );
    // A fifth of parity, and retransmissions for the sake of later frames.
    assert!(repairs <= 0.22, "{repairs}");
}

#[test]
fn a_path_without_losses_gets_little_parity_and_a_short_one_none() {
    let (on_time, repairs) = measure(&LossConfig::NONE, HALF, true);
    assert!(on_time[0] >= 0.999 && repairs <= 0.1, "{repairs}");
    let mut short = geo(1, LossConfig::Every(NonZeroU32::new(100).unwrap()), HALF);
    for link in [&mut short.uplink, &mut short.downlink] {
        link.delay = Duration::from_millis(40);
    }
    let run = short.run(Duration::from_secs(1));
    assert!(run.packets.iter().all(|packet| packet.kind != Kind::Parity));
    assert!(run.on_time(2, 60) >= 0.999);
}
