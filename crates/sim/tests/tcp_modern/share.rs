//! Several flows at one bottleneck, and BBR's cycle.

use tidegate_sim::tcp::modern::{Algorithm, BbrMode, CongestionConfig};
use tidegate_sim::tcp::{SinkConfig, SourceConfig};

use super::dumbbell::{Dumbbell, Path, delayed};
use super::{at, endless, ms, with};

/// Shares of the total delivery of two flows, the second of which starts two seconds later.
fn shares(path: &Path, sink: &SinkConfig, flows: [CongestionConfig; 2], span: u64) -> [f64; 2] {
    let late = SourceConfig {
        start: at(2),
        ..endless()
    };
    let [first, second] = flows.map(with);
    let mut dumbbell = Dumbbell::new(path, sink, &[(first, endless()), (second, late)]);
    dumbbell.run(at(20));
    let before = dumbbell.delivered();
    dumbbell.run(at(20 + span));
    let after = dumbbell.delivered();
    let got = [0, 1].map(|n| (after[n] - before[n]) as f64);
    got.map(|n| n / (got[0] + got[1]))
}

/// RFC 9438 section 4.3: with a small bandwidth-delay product CUBIC has the share of Reno. Several
/// queues, because synchronisation may favour one of two flows.
#[test]
fn cubic_and_reno_share_a_short_path_evenly() {
    for queue in [12, 16, 20, 24] {
        let path = Path {
            queue,
            ..Path::new(10, 20, 1.0)
        };
        let flows = [CongestionConfig::cubic(), CongestionConfig::reno()];
        let [cubic, reno] = shares(&path, &SinkConfig::default(), flows, 60);
        assert!((0.4..0.6).contains(&cubic), "{queue}: {cubic} {reno}");
    }
}

#[test]
fn cubic_takes_more_than_reno_where_the_product_is_large() {
    let flows = [CongestionConfig::cubic(), CongestionConfig::reno()];
    let [cubic, _] = shares(&Path::new(50, 100, 1.0), &delayed(), flows, 100);
    assert!(cubic > 0.7, "{cubic}");
}

#[test]
fn flows_of_a_kind_share_evenly() {
    for congestion in [
        CongestionConfig::reno(),
        CongestionConfig::cubic(),
        CongestionConfig::bbr(),
    ] {
        let [first, _] = shares(&Path::new(10, 40, 1.0), &delayed(), [congestion; 2], 60);
        assert!((0.4..0.6).contains(&first), "{congestion:?}: {first}");
    }
}

/// BBR version 1 fills a shallow queue regardless of loss, as is known; in a deep queue it keeps to
/// two bandwidth-delay products, and CUBIC gets its share.
#[test]
fn bbr_starves_cubic_in_a_shallow_queue_only() {
    let flows = [CongestionConfig::bbr(), CongestionConfig::cubic()];
    let [shallow, _] = shares(&Path::new(10, 40, 1.0), &delayed(), flows, 60);
    let [deep, _] = shares(&Path::new(10, 40, 8.0), &delayed(), flows, 60);
    assert!(shallow > 0.7, "{shallow}");
    assert!(deep < 0.5, "{deep}");
}

/// Once per ten seconds the window is four segments for 200 ms and a round trip; otherwise the rate
/// is that of the path and the queue is short.
#[test]
fn bbr_keeps_the_queue_short_and_probes_the_round_trip() {
    let path = Path::new(10, 40, 4.0);
    let mut dumbbell = Dumbbell::new(
        &path,
        &delayed(),
        &[(with(CongestionConfig::bbr()), endless())],
    );
    let mode = |dumbbell: &Dumbbell| match dumbbell.flows[0].sender.algorithm() {
        Algorithm::Bbr(bbr) => bbr.mode(),
        other => panic!("{other:?}"),
    };
    dumbbell.run(at(5));
    assert_eq!(mode(&dumbbell), BbrMode::ProbeBandwidth);
    let (mut probes, mut probing, mut last) = (0, 0, mode(&dumbbell));
    for n in 0..5_000 {
        dumbbell.run(at(5) + ms(10) * n);
        let now = mode(&dumbbell);
        probes += u32::from(now == BbrMode::ProbeRtt && last != now);
        probing += u32::from(now == BbrMode::ProbeRtt);
        last = now;
    }
    assert_eq!(probes, 5);
    // 200 ms, up to a round trip to reduce the window, and a round trip.
    assert!((22 * probes..=32 * probes).contains(&probing), "{probing}");
    let Algorithm::Bbr(bbr) = dumbbell.flows[0].sender.algorithm() else {
        panic!()
    };
    let bandwidth = bbr.bandwidth().as_f64();
    assert!((bandwidth / 1e7 - 1.0).abs() < 0.02, "{bandwidth}");
    let min_rtt = bbr.min_rtt().unwrap();
    assert!(min_rtt >= ms(40) && min_rtt < ms(43), "{min_rtt:?}");
    let measured = dumbbell.measure(at(100));
    // A bandwidth-delay product is 33 packets.
    assert!(measured.queue < 12.0, "{measured:?}");
    assert_eq!(measured.drops, 0);
    let rate = dumbbell.flows[0].sender.path().delivery_rate.unwrap();
    assert!((rate.as_f64() / 1e7 - 1.0).abs() < 0.05, "{rate:?}");
}
