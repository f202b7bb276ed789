use tidegate_core::units::Rate;

use super::*;

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

#[test]
fn totals_cover_the_window_and_bins_the_run() {
    let mut meter = Meter::new(2, (ms(1_000), ms(2_000)), Duration::from_millis(200));
    for i in 0..30 {
        let at = ms(i * 100);
        meter.sent(1, at, Bytes(1_000));
        meter.arrived(1, at + Duration::from_millis(10 + i), Bytes(1_000), at);
        meter.count_returned(1, at + Duration::from_millis(30), at);
    }
    for at in [900, 1_200, 1_210, 1_300, 2_500] {
        meter.dropped(1, ms(at));
    }
    for at in [900, 1_200, 1_999, 2_000] {
        meter.overflowed(1, ms(at));
    }
    assert_eq!((meter.queue_drops(0), meter.queue_drops(1)), (0, 2));
    assert_eq!(
        (meter.returned_packets(0), meter.returned_packets(1)),
        (0, 10)
    );
    let totals = meter.totals(1);
    assert_eq!((totals.sent.packets, totals.received.packets), (10, 10));
    assert_eq!(totals.receive_rate(), Rate::bps(80_000));
    // Although it is before the window.
    assert_eq!(totals.first_sent, Some(ms(0)));
    assert_eq!(totals.delay_max, Duration::from_millis(29));
    assert_eq!(totals.delay_mean, Duration::from_micros(24_500));
    assert_eq!(totals.rtt, Some(Duration::from_micros(54_500)));
    let off = totals.delay_p50.abs_diff(Duration::from_millis(24));
    assert!(off <= Duration::from_millis(24).mul_f64(0.032));
    // Two of the three drops are within a round trip.
    assert_eq!((totals.dropped, totals.loss_events), (3, 2));
    assert_eq!(totals.loss(), Some(0.3));
    assert_eq!(meter.bins(1).len(), 15);
    let bins: Vec<Bin> = meter.bins(1).collect();
    assert_eq!(bins[3].sent.packets, 2);
    let dropped: Vec<u64> = bins.iter().filter_map(|bin| bin.dropped).collect();
    assert_eq!(dropped, [0, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(bins[0].delay_mean(), Some(Duration::from_micros(10_500)));
    assert_eq!(
        meter.totals(0),
        Totals {
            span: Duration::from_secs(1),
            ..Totals::default()
        }
    );
}

#[test]
fn flow_without_answers_has_no_round_trip() {
    let mut meter = Meter::new(1, (ms(0), ms(2_000)), Duration::from_millis(200));
    meter.sent(0, ms(0), Bytes(1_000));
    meter.arrived(0, ms(50), Bytes(1_000), ms(0));
    // A round trip of twice the 50 ms of one direction combines the first two drops.
    for at in [100, 190, 210] {
        meter.dropped(0, ms(at));
    }
    let totals = meter.totals(0);
    assert_eq!((totals.rtt, totals.loss_events), (None, 2));
}
