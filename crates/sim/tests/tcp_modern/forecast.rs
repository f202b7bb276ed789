//! The service curves of the delay bound compared with the TCP model.

use core::time::Duration;

use tidegate_core::delay_bound::{BbrCycle, CubicEpoch, ServiceCurve, TcpPath};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_sim::tcp::SinkConfig;
use tidegate_sim::tcp::modern::{Algorithm, BbrMode, Config, CongestionConfig, CubicConfig, Phase};

use super::dumbbell::{Dumbbell, Path};
use super::wire::{Sent, Way, Wire};
use super::{at, endless, ms, with};

const MSS: u64 = 1_448;
/// In milliseconds, whole round trips.
const SPANS: [u64; 4] = [1_000, 2_000, 4_000, 8_000];

fn path(rtt: Duration) -> TcpPath {
    TcpPath {
        mss: Bytes(MSS),
        rtt,
        limit: None,
    }
}

/// CUBIC over 100 ms, with an initial window of 300; `lost` selects the lost packets.
fn cubic<'a>(lost: impl Fn(&Sent<'_>) -> bool + 'a) -> Wire<'a> {
    let plain = CubicConfig {
        hystart: None,
        ..CubicConfig::default()
    };
    let config = Config {
        initial_window: tidegate_sim::tcp::InitialWindow::Segments(300),
        ..with(CongestionConfig::Cubic(plain))
    };
    Wire::new(&config, &endless(), &SinkConfig::default(), move |sent| {
        (!lost(sent)).then_some(ms(50))
    })
}

/// Compares the data that the sender of the wire sends from now on with the curve, just before or
/// just after a window leaves in one burst.
fn compare(wire: &mut Wire<'_>, curve: &ServiceCurve, before_window: bool, tolerance: f64) {
    let (start, sent_before) = (wire.now, wire.sender.counters().sent);
    for span in SPANS {
        wire.run(start + ms(span - u64::from(before_window)));
        let sent = (wire.sender.counters().sent - sent_before) as f64 * (MSS * 8) as f64;
        let want = curve.at(ms(span));
        assert!(
            (sent / want - 1.0).abs() < tolerance,
            "{span} ms: {sent} {want}"
        );
    }
}

#[test]
fn cubic_after_recovery() {
    let mut wire = cubic(|sent| sent.way == Way::Data && sent.number == 200);
    while wire.sender.path().phase == Phase::Open {
        assert!(wire.step(at(1)));
    }
    while wire.sender.path().phase == Phase::Recovery {
        assert!(wire.step(at(1)));
    }
    let start = wire.sender.state().ssthresh;
    let epoch = CubicEpoch {
        w_max: Bytes((start / 0.7) as u64 * MSS),
        horizon: ms(9_000),
    };
    compare(
        &mut wire,
        &path(ms(100)).cubic_after_recovery(epoch),
        false,
        0.04,
    );
}

#[test]
fn cubic_after_a_timeout() {
    let dead = |sent: &Sent<'_>| sent.at >= ms_at(60) && sent.at < ms_at(1_000);
    let mut wire = cubic(dead);
    wire.run(ms_at(1_000));
    let w_max = wire.sender.state().ssthresh / 0.7;
    assert!(wire.sender.counters().timeouts > 0);
    let timeouts = wire.sender.counters().timeouts;
    while wire.sender.counters().timeouts == timeouts {
        assert!(wire.step(at(3)));
    }
    let epoch = CubicEpoch {
        w_max: Bytes(w_max as u64 * MSS),
        horizon: ms(9_000),
    };
    compare(
        &mut wire,
        &path(ms(100)).cubic_after_timeout(epoch),
        true,
        0.04,
    );
}

#[test]
fn bbr_in_steady_state() {
    let bbr = (with(CongestionConfig::bbr()), endless());
    let mut dumbbell = Dumbbell::new(&Path::new(10, 40, 2.0), &SinkConfig::default(), &[bbr]);
    let inside = |dumbbell: &Dumbbell| match dumbbell.flows[0].sender.algorithm() {
        Algorithm::Bbr(bbr) => (bbr.mode(), bbr.bandwidth(), bbr.min_rtt()),
        other => panic!("{other:?}"),
    };
    dumbbell.run(at(15));
    for mode in [BbrMode::ProbeRtt, BbrMode::ProbeBandwidth] {
        while inside(&dumbbell).0 != mode {
            let next = dumbbell.now + ms(1);
            dumbbell.run(next);
        }
    }
    let (_, bandwidth, rtt) = inside(&dumbbell);
    let cycle = BbrCycle {
        bandwidth: Rate::bps(bandwidth.as_bps() * MSS / 1_500),
        next_probe: Duration::from_secs(10),
        horizon: Duration::from_secs(40),
    };
    let curve = path(rtt.unwrap()).bbr_steady(cycle);
    let (start, mut carried) = (dumbbell.now, 0.0);
    for span in [1, 5, 10, 11, 20, 30] {
        let end = start + Duration::from_secs(span);
        let before = dumbbell.now;
        carried += dumbbell.measure(end).goodput * end.since(before).as_secs_f64();
        let want = curve.at(Duration::from_secs(span));
        assert!(
            (carried / want - 1.0).abs() < 0.03,
            "{span}: {carried} {want}"
        );
    }
}

fn ms_at(millis: u64) -> Time {
    Time::from_millis(millis)
}
