//! Receivers that disappear, dead or insufficient paths, peers with limited feedback: when the
//! stream stops, its traffic in the meantime, and its recovery.

mod session_lab;

use std::time::Duration;

use session_lab::{SessionSetup, dark};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::fixed::FixedConfig;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::controller::tide::TideConfig;
use tidegate_core::link::{Capacity, DropTailConfig, LossConfig, QueueConfig, Steps};
use tidegate_core::session::config::FeedbackMode;
use tidegate_core::session::sender::SenderFailure;
use tidegate_core::trace::{BreakerCause, DropCause, Event, KeyCause};
use tidegate_core::units::{Bytes, Rate, Time};

const SECOND: Duration = Duration::from_secs(1);

fn ms(at: Time) -> u64 {
    at.as_nanos() / 1_000_000
}

fn blackout_began(event: Event) -> Option<()> {
    (event == Event::BlackoutBegan).then_some(())
}

fn blackout_ended(event: Event) -> Option<()> {
    matches!(event, Event::BlackoutEnded { .. }).then_some(())
}

fn tripped(event: Event) -> Option<BreakerCause> {
    match event {
        Event::BreakerTripped { cause } => Some(cause),
        _ => None,
    }
}

fn key_frame(event: Event) -> Option<KeyCause> {
    match event {
        Event::KeyFrameOrdered { cause, .. } => Some(cause),
        _ => None,
    }
}

//= rfc8083-4.1-rtcp-timeout (test)
#[test]
fn stream_stops_when_the_receiver_disappears() {
    let mut play = SessionSetup::new();
    play.seconds = 40;
    play.away = Some((Time::from_secs(5), Time::FAR));
    let played = play.run(SECOND);
    let (dark, ()) = played.first(Time::ZERO, blackout_began).unwrap();
    assert!((5_100..5_300).contains(&ms(dark)), "{dark:?}");
    let last = played.log.rtp.iter().map(|p| p.at).max().unwrap();
    assert!(last <= dark, "media was sent into the outage");
    // Three reporting intervals of one second after the last report.
    let (trip, cause) = played.first(Time::ZERO, tripped).unwrap();
    assert_eq!(cause, BreakerCause::RtcpTimeout);
    assert!((7_900..8_300).contains(&ms(trip)), "{trip:?}");
    let failure = Some(SenderFailure::ReceiverGone(BreakerCause::RtcpTimeout));
    assert_eq!(played.failure, failure);
}

/// A peer that never reports is not stopped: it may send no RTCP, or a firewall may block it.
#[test]
fn unanswered_stream_continues_at_the_lowest_rate() {
    let mut play = SessionSetup::new();
    play.seconds = 40;
    play.away = Some((Time::ZERO, Time::FAR));
    for fps in [30, 5, 2] {
        play.fps = fps;
        let played = play.run(SECOND);
        assert_eq!(played.events(tripped), []);
        for second in (2..40).step_by(2) {
            let rate = played.wire_rate(second - 1, second + 1);
            assert!(
                rate > Rate::kbps(75) && rate < Rate::kbps(300),
                "{fps} frames per second, {second} s: {rate}"
            );
        }
        // Every frame leaves, and a key frame at least every two seconds.
        assert_eq!(played.sent.len(), 40 * fps as usize);
        let left = played.sent.iter().filter(|f| f.left.is_some()).count();
        assert!(
            left + 1 >= 40 * fps as usize,
            "{fps} frames per second: {left}"
        );
        assert!(played.sent[0].key && played.sent[0].left.is_some());
        let keys: Vec<_> = played.sent.iter().filter(|f| f.key).collect();
        let gaps = keys.windows(2).map(|w| w[1].captured.since(w[0].captured));
        assert!(gaps.max().unwrap() <= SECOND * 2);
        assert_eq!(played.failure, None);
    }
}

#[test]
fn stream_resumes_after_a_restart_of_the_receiver() {
    let mut play = SessionSetup::new();
    play.away = Some((Time::from_secs(5), Time::from_secs(11)));
    let played = play.run(SECOND);
    let resumed = |e| (e == Event::BreakerResumed).then_some(());
    let (back, ()) = played.first(Time::ZERO, resumed).unwrap();
    // Probes are at most three quarters of a second apart, three seconds after the trip.
    assert!((11_000..11_900).contains(&ms(back)), "{back:?}");
    assert!(played.first(back, key_frame).unwrap().0.since(back) < SECOND / 10);
    assert!(played.on_time(12, 20) >= 0.99, "{}", played.on_time(12, 20));
    let spent = played.wire_rate(12, 13);
    assert!(
        spent > Rate::kbps(500),
        "the rate after the restart is too low: {spent}"
    );
    assert_eq!(played.failure, None);
}

#[test]
fn peer_with_receiver_reports_only_gets_the_rate_of_the_path() {
    let mut play = SessionSetup::new();
    play.seconds = 40;
    play.feedback = FeedbackMode::ReceiverReports;
    let played = play.run(SECOND);
    let known = |e| (e == Event::PeerReportsOnly).then_some(());
    let (at, ()) = played.first(Time::ZERO, known).unwrap();
    assert!((1_000..2_500).contains(&ms(at)), "{at:?}");
    let first = played.wire_rate(0, 1);
    assert!(
        first < Rate::kbps(1_100),
        "no burst before the first report: {first}"
    );
    let rate = played.arrival_rate(10, 40);
    assert!(rate > Rate::kbps(3_200), "{rate}");
}

#[test]
fn outages_are_detected_and_the_stream_resumes_immediately() {
    for (forward, back) in [(true, true), (true, false), (false, true)] {
        let mut play = SessionSetup::new();
        if forward {
            play.uplink.outages = dark(8_000, 10_000);
        }
        if back {
            play.downlink.outages = dark(8_000, 10_000);
        }
        let played = play.run(SECOND);
        let (began, ()) = played.first(Time::ZERO, blackout_began).unwrap();
        let (ended, ()) = played.first(began, blackout_ended).unwrap();
        assert!((8_100..8_300).contains(&ms(began)), "{began:?}");
        assert!((10_000..10_200).contains(&ms(ended)), "{ended:?}");
        let between = played.log.rtp.iter();
        let blind = between.filter(|p| began < p.at && p.at < ended).count();
        assert_eq!(blind, 0, "media was sent into the outage");
        assert_eq!(played.events(blackout_began).len(), 1);
        let (key, cause) = played.first(began, key_frame).unwrap();
        assert!(key.since(ended) < Duration::from_millis(40), "{key:?}");
        assert_eq!(cause, KeyCause::Repair);
        // Frames captured during the outage, the last frames before it, and a few after it.
        let lost = 600 - played.whole().len();
        assert!(lost <= 62, "{lost} frames");
        let back_early = played.on_time(11, 20);
        assert!(back_early >= 0.99, "{back_early}");
    }
}

#[test]
fn path_below_the_floor_is_used_to_its_capacity() {
    let mut play = SessionSetup::new();
    play.uplink.capacity = Capacity::Fixed(Rate::kbps(80));
    let played = play.run(SECOND);
    assert_eq!(played.links[0].queue_drops, 0, "the queue overflowed");
    assert!(played.dropped(DropCause::Skipped) > 200);
    assert!(played.whole().len() > 100, "{}", played.whole().len());
    // Without a bound, packets wait in the queue, and the session continues.
    play.bound = None;
    play.uplink.queue = QueueConfig::DropTail(DropTailConfig::bytes(Bytes(1_000_000)));
    let played = play.run(SECOND);
    assert_eq!(played.sent.len(), 600);
    assert_eq!(played.events(tripped), []);
}

/// A round trip of three quarters of the bound with losses leaves no time for repairs, so that key
/// frames may be late. Another one is requested while packets arrive without decodable frames.
#[test]
fn stream_is_never_black_for_long_while_packets_arrive() {
    for seed in 1..=10 {
        for kbps in [1_000, 3_000] {
            let mut play = SessionSetup::new();
            play.seed = seed;
            play.seconds = 30;
            play.control = ControllerConfig::from(FixedConfig {
                rate: Rate::kbps(kbps),
            });
            for link in [&mut play.uplink, &mut play.downlink] {
                link.delay = Duration::from_millis(150);
            }
            play.uplink.loss = LossConfig::Bernoulli(0.01);
            let played = play.run(SECOND);
            let mut times: Vec<u64> = played.whole().values().map(|(_, at)| ms(*at)).collect();
            times.extend([600, 30_000]);
            times.sort_unstable();
            let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
            assert!(
                longest <= Some(1_000),
                "seed {seed}, {kbps} kb/s: {longest:?} ms"
            );
        }
    }
}

/// Twice the capacity of the path, without frames that may be skipped: packets wait for six seconds
/// or are lost. TCP would send one packet per second.
#[test]
fn stream_that_floods_its_path_is_stopped() {
    let mut play = SessionSetup::new();
    play.uplink.capacity = Capacity::Fixed(Rate::kbps(80));
    play.bound = None;
    let played = play.run(SECOND);
    let (trip, cause) = played.first(Time::ZERO, tripped).unwrap();
    assert_eq!(cause, BreakerCause::Congestion);
    // Fifteen reports of one second, from the first feedback on.
    assert!((8_000..17_000).contains(&ms(trip)), "{trip:?}");
}

/// The pause of half a minute is longer than the time-out for a silent peer, but this peer answers
/// all the time.
#[test]
fn stream_stopped_for_congestion_resumes() {
    let mut play = SessionSetup::new();
    play.seconds = 60;
    let rates = [(0, 80), (20, 4_000)].map(|(s, kbps)| (Time::from_secs(s), Rate::kbps(kbps)));
    play.uplink.capacity = Capacity::Steps(Steps::new(&rates).unwrap());
    play.bound = None;
    let played = play.run(SECOND);
    let (trip, _) = played.first(Time::ZERO, tripped).unwrap();
    let resumed = |event| (event == Event::BreakerResumed).then_some(());
    let (back, ()) = played.first(trip, resumed).unwrap();
    assert!(
        (30_000..36_000).contains(&(ms(back) - ms(trip))),
        "{back:?}"
    );
    assert!(played.wire_rate(52, 60) > Rate::kbps(1_000));
    assert_eq!(played.failure, None);
}

/// A sender without timely data must not wait for reports that only new packets can cause.
#[test]
fn stream_recovers_from_a_temporary_lack_of_capacity() {
    let controls = [
        ControllerConfig::from(TfrcConfig::default()),
        ControllerConfig::from(TideConfig::default()),
    ];
    for (control, kbps) in controls
        .iter()
        .flat_map(|control| [5, 20, 80, 200].map(|kbps| (control, kbps)))
    {
        let mut play = SessionSetup::new();
        play.control = control.clone();
        play.seconds = 30;
        let rates = [(0, 4_000), (5, kbps), (15, 4_000)];
        let rates = rates.map(|(s, kbps)| (Time::from_secs(s), Rate::kbps(kbps)));
        play.uplink.capacity = Capacity::Steps(Steps::new(&rates).unwrap());
        let played = play.run(SECOND);
        let thin = played.wire_rate(7, 15);
        assert!(thin < Rate::kbps(200), "{thin} into {kbps} kb/s");
        let again = played.on_time(17, 30);
        // After ten seconds of 5 kb/s, TFRC allows less than the floor for a while.
        let least = if kbps < 10 { 0.8 } else { 0.95 };
        assert!(
            again >= least,
            "{} after {kbps} kb/s: {again}",
            control.name()
        );
    }
}
