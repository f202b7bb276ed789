//! Loss, reordering, marks and key frame requests on a working path.

mod session_lab;

use std::collections::BTreeMap;
use std::time::Duration;

use session_lab::{SessionRun, SessionSetup};
use tidegate_core::control::Outcome;
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::tide::TideConfig;
use tidegate_core::link::{Capacity, LossConfig, QueueConfig, RedConfig};
use tidegate_core::session::jitter_buffer::LATE_REPAIR;
use tidegate_core::trace::{Event, KeyCause};
use tidegate_core::units::{Rate, Time};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn one_percent_loss_is_repaired_in_time() {
    for seed in 1..=3 {
        let mut play = SessionSetup::new();
        play.seed = seed;
        play.uplink.loss = LossConfig::Bernoulli(0.01);
        let played = play.run(SECOND);
        assert!(played.links[0].loss_drops >= 10);
        assert!(played.on_time(0, 20) >= 0.99, "{}", played.on_time(0, 20));
        // The link loses sender reports as well.
        let lost = played.packets.iter();
        let lost = lost.filter(|p| p.outcome == Some(Outcome::Lost)).count();
        let repairs = played.log.rtp.iter().filter(|p| p.repair).count();
        assert!(lost + 3 >= played.links[0].loss_drops as usize, "{lost}");
        assert!(
            repairs >= lost && repairs <= lost + 2,
            "{repairs} for {lost}"
        );
    }
}

/// If the bound is below three round trips, a packet that is lost twice cannot be recovered in
/// time. The same applies to packets that depend on it if it arrives [`LATE_REPAIR`] after its
/// deadline.
#[test]
fn expired_packets_are_not_retransmitted() {
    let mut play = SessionSetup::new();
    play.uplink.loss = LossConfig::Bernoulli(0.05);
    play.bound = Some(Duration::from_millis(220));
    play.seconds = 60;
    let played = play.run(SECOND);
    let captured: BTreeMap<u32, Time> = played
        .sent
        .iter()
        .map(|f| (f.timestamp, f.captured))
        .collect();
    let way = Duration::from_millis(40);
    let bound = play.bound.unwrap();
    let repairs: Vec<_> = played.log.rtp.iter().filter(|p| p.repair).collect();
    assert!(repairs.len() > 50, "{}", repairs.len());
    for repair in repairs {
        let captured = captured[&repair.timestamp];
        assert!(
            repair.at + way <= captured + bound + LATE_REPAIR,
            "{repair:?}"
        );
    }
}

/// In the median of ten seeds: the queue may overflow during the search for the rate, which costs
/// the frames of a round trip.
#[test]
fn reordered_packets_are_not_retransmitted() {
    for jitter in [2, 4, 6, 10] {
        let mut counts: Vec<(usize, usize)> = (1..=10)
            .map(|seed| {
                let mut play = SessionSetup::new();
                play.seed = seed;
                play.jitter = Duration::from_millis(jitter);
                let played = play.run(SECOND);
                assert!(played.on_time(0, 20) >= 0.96, "{jitter} ms, seed {seed}");
                let lost = played.packets.iter();
                let lost = lost.filter(|p| p.outcome == Some(Outcome::Lost)).count();
                let repairs = played.log.rtp.iter().filter(|p| p.repair).count();
                (repairs, 1_000 * lost / played.packets.len())
            })
            .collect();
        counts.sort_unstable();
        let (repairs, lost) = counts[counts.len() / 2];
        assert!(repairs <= 8 && lost <= 1, "{jitter} ms: {counts:?}");
    }
}

#[test]
fn same_seed_yields_same_packets() {
    let mut play = SessionSetup::new();
    play.seconds = 8;
    play.uplink.loss = LossConfig::Bernoulli(0.02);
    play.jitter = Duration::from_millis(3);
    let hash = |play: &SessionSetup| play.run(SECOND).log.hash;
    let first = hash(&play);
    assert_eq!(first, hash(&play));
    play.seed = 2;
    assert_ne!(first, hash(&play));
}

#[test]
fn key_frame_request_is_answered_within_a_round_trip() {
    let mut play = SessionSetup::new();
    play.trouble = Some(Time::from_secs(8));
    let played = play.run(SECOND);
    let key = |e| match e {
        Event::KeyFrameOrdered { frame, cause } => Some((frame, cause)),
        _ => None,
    };
    let keys = played.events(key);
    assert_eq!(
        keys.len(),
        2,
        "expected the first and the requested key frame: {keys:?}"
    );
    let (at, (frame, cause)) = keys[1];
    assert_eq!(cause, KeyCause::Requested);
    // Half a round trip, and the wait for the next capture.
    let wait = at.since(Time::from_secs(8));
    assert!(wait < Duration::from_millis(80), "{wait:?}");
    let whole = played.whole();
    assert!(whole[&frame].1.since(at) < Duration::from_millis(250));
    assert!(600 - whole.len() <= 8, "{}", whole.len());
}

//= rfc8083-7-ecn (test)
/// Without the delay bound, which would keep the queue too short for marks.
#[test]
fn marks_lower_the_rate_without_loss() {
    let red = |ecn| {
        let mut play = SessionSetup::new();
        play.bound = None;
        play.ecn = ecn;
        play.seconds = 30;
        play.uplink.capacity = Capacity::Fixed(Rate::kbps(2_000));
        play.uplink.queue = QueueConfig::Red(RedConfig {
            min_threshold: 5.0,
            max_threshold: 20.0,
            limit: 60,
            ecn: true,
            ..RedConfig::default()
        });
        play.run(SECOND)
    };
    let (with, without) = (red(true), red(false));
    // Slow start overshoots regardless of the average share of marks.
    let lost = |played: &SessionRun| {
        let packets = played.packets.iter();
        let lost = packets.filter(|p| p.outcome == Some(Outcome::Lost));
        lost.filter(|p| p.sent >= Time::from_secs(5)).count()
    };
    assert!(with.links[0].marks > 10 && without.links[0].marks == 0);
    assert!(lost(&without) > 10, "{}", lost(&without));
    assert_eq!(lost(&with), 0, "of {:?}", with.links[0]);
    let rate = with.wire_rate(10, 30);
    assert!(
        rate > Rate::kbps(1_400) && rate < Rate::kbps(2_020),
        "{rate}"
    );
}

/// Marks by a queue that never grows: without them, tide would use all of the link.
#[test]
fn tide_has_at_most_the_rate_of_tcp_where_packets_are_marked() {
    let red = |ecn| {
        let mut play = SessionSetup::new();
        play.control = ControllerConfig::from(TideConfig::default());
        play.bound = None;
        play.ecn = ecn;
        play.seconds = 30;
        play.uplink.queue = QueueConfig::Red(RedConfig {
            min_threshold: 0.1,
            max_threshold: 2.0,
            limit: 200,
            ecn: true,
            ..RedConfig::default()
        });
        play.run(SECOND)
    };
    let (with, without) = (red(true), red(false));
    let marks = with.links[0].marks as f64;
    let sent = with.packets.len() as f64;
    assert!(marks > 10.0 && without.links[0].marks == 0, "{marks}");
    // Equation of RFC 5348, with the square root term alone, at 80 ms and packets of 1,200 bytes.
    let most = 1_200.0 * 8.0 / (0.08 * (2.0 * marks / sent / 3.0).sqrt());
    let rate = with.wire_rate(10, 30);
    assert!(
        rate.as_f64() < 1.3 * most,
        "{rate}, {marks} of {sent} marked"
    );
    assert!(rate > Rate::kbps(1_000), "{rate}");
}
