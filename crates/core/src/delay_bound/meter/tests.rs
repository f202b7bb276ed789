use super::*;
use crate::control::{Ecn, FlowId, Kind};
use crate::units::RemoteTime;

const SIZE: Bytes = Bytes(1_250);
const EPOCH: u64 = 9_000_000_000_000;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn fate(seq: u64, sent_ms: u64, arrived_ms: u64) -> Fate {
    let at = RemoteTime(EPOCH + arrived_ms * 1_000_000);
    let outcome = Outcome::Received {
        at,
        ecn: Ecn::NotEct,
    };
    Fate {
        flow: FlowId(0),
        seq,
        size: SIZE,
        sent: Time::from_millis(sent_ms),
        outcome,
    }
}

fn report(meter: &mut PathMeter, now_ms: u64, fates: &[Fate]) -> Reading {
    meter
        .on_report(Time::from_millis(now_ms), &Report::new(fates))
        .unwrap()
}

/// Every 10 ms a packet, on time: 1 Mb/s.
fn quiet(meter: &mut PathMeter, from: u64, to: u64) -> Reading {
    let fates: Vec<_> = (from..to).map(|n| fate(n, n * 10, n * 10 + 30)).collect();
    report(meter, to * 10 + 30, &fates)
}

#[test]
fn without_a_queue_there_is_no_capacity() {
    let mut meter = PathMeter::new();
    quiet(&mut meter, 0, 5);
    let reading = quiet(&mut meter, 5, 10);
    assert_eq!(
        (reading.capacity, reading.queued, reading.grew),
        (None, false, false)
    );
    assert_eq!(reading.delivered, Rate::kbps(1_000));
    assert_eq!(meter.queueing(), Duration::ZERO);
}

#[test]
fn a_path_that_slows_down_is_seen_in_the_first_report() {
    let mut meter = PathMeter::new();
    quiet(&mut meter, 0, 10);
    // From packet 10 on the path takes 40 ms for each: 250 kb/s.
    let fates: Vec<_> = (0..10)
        .map(|n| fate(10 + n, 100 + n * 10, 130 + n * 40))
        .collect();
    let reading = report(&mut meter, 520, &fates);
    assert!(reading.grew);
    let c = reading.capacity.unwrap().rate;
    assert!(c >= Rate::kbps(245) && c <= Rate::kbps(255), "{c:?}");
    assert_eq!(meter.queueing(), ms(270));
}

#[test]
fn a_fall_is_hinted_at_before_it_is_measured() {
    let mut meter = PathMeter::new();
    quiet(&mut meter, 0, 10);
    // Three packets at 40 ms each: 250 kb/s, and two gaps that say so.
    let fates: Vec<_> = (0..3)
        .map(|n| fate(10 + n, 100 + n * 10, 170 + n * 40))
        .collect();
    let reading = report(&mut meter, 270, &fates);
    assert!(reading.grew && reading.capacity.is_none());
    let hint = reading.hint.unwrap();
    assert!(hint > Rate::kbps(240) && hint < Rate::kbps(260), "{hint:?}");
}

#[test]
fn what_waits_drains_while_nothing_more_is_sent() {
    let mut meter = PathMeter::new();
    quiet(&mut meter, 0, 10);
    meter.on_report(Time::from_millis(135), &Report::new(&[]).rtt(ms(60)));
    let sent = |seq| Sent {
        flow: FlowId(0),
        seq,
        size: SIZE,
        kind: Kind::Media,
        app_limited: false,
    };
    // Sent at 100 ms, it waited 270 ms; one more left at 110 ms.
    meter.on_sent(Time::from_millis(100), &sent(10));
    meter.on_sent(Time::from_millis(110), &sent(11));
    report(&mut meter, 430, &[fate(10, 100, 400)]);
    assert_eq!(meter.queueing(), ms(270));
    // At 250 kb/s that other packet is through at 440 ms less propagation: 410 ms.
    let wait = |now| {
        meter
            .wait(Time::from_millis(now), Rate::kbps(250))
            .as_millis()
    };
    assert_eq!((wait(210), wait(300), wait(410)), (200, 110, 0));
    // By 545 ms it should have been heard of: the path is slower than that, or dead.
    assert_eq!(wait(546), 270);
}

#[test]
fn an_outage_is_not_a_rate() {
    let mut meter = PathMeter::new();
    quiet(&mut meter, 0, 10);
    // 300 ms without an arrival, then everything at 2 ms apart.
    let fates: Vec<_> = (0..30)
        .map(|n| fate(10 + n, 100 + n * 10, 430 + n * 2))
        .collect();
    let c = report(&mut meter, 500, &fates).capacity.unwrap().rate;
    assert_eq!(c, Rate::kbps(5_000));
}

#[test]
fn what_is_on_the_way_is_played_through_the_queue() {
    let mut meter = PathMeter::new();
    quiet(&mut meter, 0, 10);
    let sent = |seq| Sent {
        flow: FlowId(0),
        seq,
        size: SIZE,
        kind: Kind::Media,
        app_limited: false,
    };
    // The newest arrival was sent at 90 ms and saw no queue. Then 4 packets at once at 200 ms.
    for seq in 10..14 {
        meter.on_sent(Time::from_millis(200), &sent(seq));
    }
    // At 1 Mb/s one leaves per 10 ms; what the path could have carried before is lost.
    assert_eq!(
        meter.in_network(Time::from_millis(215), Rate::kbps(1_000)),
        Bytes(5_000 - 1_875)
    );
    assert_eq!(
        meter.in_network(Time::from_millis(300), Rate::kbps(1_000)),
        Bytes::ZERO
    );
    // A report takes what it speaks of from the list.
    report(&mut meter, 240, &[fate(10, 200, 230), fate(11, 200, 240)]);
    assert_eq!(meter.unknown.len(), 2);
}

#[test]
fn a_delay_that_stays_becomes_standing_delay() {
    let mut meter = PathMeter::new();
    quiet(&mut meter, 0, 100);
    meter.on_report(Time::from_millis(1_030), &Report::new(&[]).rtt(ms(60)));
    let longer = |meter: &mut PathMeter, from: u64, to: u64, rtt: u64| {
        for start in (from..to).step_by(10) {
            let fates: Vec<_> = (start..start + 10)
                .map(|n| fate(n, n * 10, n * 10 + 90))
                .collect();
            let now = Time::from_millis(start * 10 + 190);
            meter.on_report(now, &Report::new(&fates).rtt(ms(rtt)));
        }
    };
    let mut clock = meter.clone();
    longer(&mut meter, 100, 500, 120);
    // Nothing was lower for 3 s: the queue is not ours, and 60 ms are gone from the budget.
    assert_eq!(meter.queueing(), Duration::ZERO);
    assert_eq!(meter.standing(Time::from_millis(5_190)), ms(60));
    // Nor is an old reading believed for ever.
    assert_eq!(meter.standing(Time::from_secs(9)), Duration::ZERO);
    // If the round trip did not get longer, it is the clock that was set.
    longer(&mut clock, 100, 500, 60);
    assert_eq!(clock.standing(Time::from_millis(5_190)), Duration::ZERO);
}

/// A clock that is set may be as far ahead as it likes.
#[test]
fn delays_may_be_as_far_apart_as_numbers_are() {
    let mut meter = PathMeter::new();
    for seq in 0..200_u64 {
        let ahead = if seq % 50 < 25 { 0 } else { 5_000_000_000 };
        let sent = Time::from_millis(seq * 30);
        let outcome = if seq % 50 == 49 {
            Outcome::Lost
        } else {
            Outcome::Received {
                at: RemoteTime(i64::MAX as u64 + ahead + sent.as_nanos()),
                ecn: Ecn::NotEct,
            }
        };
        let one = Fate {
            sent,
            outcome,
            ..fate(seq, 0, 0)
        };
        let now = sent + ms(100);
        let _ = meter.on_report(now, &Report::new(&[one]));
        assert!(meter.height() <= Duration::from_nanos(i64::MAX as u64));
        let _ = (meter.level_of_all(), meter.is_nearly_full());
    }
}
