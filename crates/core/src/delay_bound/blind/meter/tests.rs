use super::*;
use crate::control::{Ecn, FlowId, Kind};
use crate::units::RemoteTime;

const SIZE: Bytes = Bytes(1_250);
const EPOCH: u64 = 9_000_000_000_000;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn fate(seq: u64, sent_ms: u64, arrived_ms: u64) -> PacketOutcome {
    let at = RemoteTime(EPOCH + arrived_ms * 1_000_000);
    let outcome = Outcome::Received {
        at,
        ecn: Ecn::NotEct,
    };
    PacketOutcome {
        flow: FlowId(0),
        seq,
        size: SIZE,
        sent: Time::from_millis(sent_ms),
        outcome,
    }
}

fn report(meter: &mut PathMeter, now_ms: u64, outcomes: &[PacketOutcome]) -> Reading {
    meter
        .on_report(Time::from_millis(now_ms), &Report::new(outcomes))
        .unwrap()
}

/// One packet per 10 ms without queueing: 1 Mb/s.
fn quiet(meter: &mut PathMeter, from: u64, to: u64) -> Reading {
    let outcomes: Vec<_> = (from..to).map(|n| fate(n, n * 10, n * 10 + 30)).collect();
    report(meter, to * 10 + 30, &outcomes)
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
fn capacity_drop_is_detected_in_the_first_report() {
    let mut meter = PathMeter::new();
    quiet(&mut meter, 0, 10);
    // From packet 10 on, the path takes 40 ms per packet: 250 kb/s.
    let outcomes: Vec<_> = (0..10)
        .map(|n| fate(10 + n, 100 + n * 10, 130 + n * 40))
        .collect();
    let reading = report(&mut meter, 520, &outcomes);
    assert!(reading.grew);
    let c = reading.capacity.unwrap().rate;
    assert!(c >= Rate::kbps(245) && c <= Rate::kbps(255), "{c:?}");
    assert_eq!(meter.queueing(), ms(270));
}

#[test]
fn capacity_drop_has_a_hint_before_a_sample() {
    let mut meter = PathMeter::new();
    quiet(&mut meter, 0, 10);
    // Three packets at 40 ms each: 250 kb/s, from two gaps.
    let outcomes: Vec<_> = (0..3)
        .map(|n| fate(10 + n, 100 + n * 10, 170 + n * 40))
        .collect();
    let reading = report(&mut meter, 270, &outcomes);
    assert!(reading.grew && reading.capacity.is_none());
    let hint = reading.hint.unwrap();
    assert!(hint > Rate::kbps(240) && hint < Rate::kbps(260), "{hint:?}");
}

#[test]
fn queue_drains_while_the_sender_is_idle() {
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
    // Sent at 100 ms, it waited for 270 ms. One more packet was sent at 110 ms.
    meter.on_sent(Time::from_millis(100), &sent(10));
    meter.on_sent(Time::from_millis(110), &sent(11));
    report(&mut meter, 430, &[fate(10, 100, 400)]);
    assert_eq!(meter.queueing(), ms(270));
    // At 250 kb/s that packet leaves the queue at 440 ms minus propagation: 410 ms.
    let wait = |now| {
        meter
            .queueing_delay(Time::from_millis(now), Rate::kbps(250))
            .as_millis()
    };
    assert_eq!((wait(210), wait(300), wait(410)), (200, 110, 0));
    // Its report is overdue at 545 ms: the path is slower than that, or interrupted.
    assert_eq!(wait(546), 270);
}

#[test]
fn outage_is_not_a_capacity_sample() {
    let mut meter = PathMeter::new();
    quiet(&mut meter, 0, 10);
    // 300 ms without an arrival, then packets at intervals of 2 ms.
    let outcomes: Vec<_> = (0..30)
        .map(|n| fate(10 + n, 100 + n * 10, 430 + n * 2))
        .collect();
    let c = report(&mut meter, 500, &outcomes).capacity.unwrap().rate;
    assert_eq!(c, Rate::kbps(5_000));
}

#[test]
fn packets_in_flight_count_as_queue_minus_service() {
    let mut meter = PathMeter::new();
    quiet(&mut meter, 0, 10);
    let sent = |seq| Sent {
        flow: FlowId(0),
        seq,
        size: SIZE,
        kind: Kind::Media,
        app_limited: false,
    };
    // The newest arrival was sent at 90 ms and had no queue. Four packets follow at 200 ms.
    for seq in 10..14 {
        meter.on_sent(Time::from_millis(200), &sent(seq));
    }
    // At 1 Mb/s one packet leaves per 10 ms. Unused earlier capacity is lost.
    assert_eq!(
        meter.in_network(Time::from_millis(215), Rate::kbps(1_000)),
        Bytes(5_000 - 1_875)
    );
    assert_eq!(
        meter.in_network(Time::from_millis(300), Rate::kbps(1_000)),
        Bytes::ZERO
    );
    // A report removes its packets from the list.
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
            let outcomes: Vec<_> = (start..start + 10)
                .map(|n| fate(n, n * 10, n * 10 + 90))
                .collect();
            let now = Time::from_millis(start * 10 + 190);
            meter.on_report(now, &Report::new(&outcomes).rtt(ms(rtt)));
        }
    };
    let mut clock = meter.clone();
    longer(&mut meter, 100, 500, 120);
    // No delay was lower for 3 s: it is not a queue of this sender, and 60 ms of it are standing.
    assert_eq!(meter.queueing(), Duration::ZERO);
    assert_eq!(meter.standing(Time::from_millis(5_190)), ms(60));
    // The value expires when nothing arrives.
    assert_eq!(meter.standing(Time::from_secs(9)), Duration::ZERO);
    // Without a longer round trip the delay is a step of the remote clock.
    longer(&mut clock, 100, 500, 60);
    assert_eq!(clock.standing(Time::from_millis(5_190)), Duration::ZERO);
}

/// The offset of the remote clock is arbitrary.
#[test]
fn extreme_delays_do_not_overflow() {
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
        let one = PacketOutcome {
            sent,
            outcome,
            ..fate(seq, 0, 0)
        };
        let now = sent + ms(100);
        let _ = meter.on_report(now, &Report::new(&[one]));
        assert!(meter.recent_max_delay() <= Duration::from_nanos(i64::MAX as u64));
        let _ = (meter.level_of_all(), meter.is_nearly_full());
    }
}
