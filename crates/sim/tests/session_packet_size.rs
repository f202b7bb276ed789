//! Paths that lose large packets without a message (black holes): the stream goes on with smaller ones.

mod session_lab;

use std::time::Duration;

use session_lab::{SessionRun, SessionSetup};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::controller::tide::TideConfig;
use tidegate_core::link::LossConfig;
use tidegate_core::session::config::FeedbackMode;
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Rate, Time};

const SECOND: Duration = Duration::from_secs(1);

fn sizes(played: &SessionRun) -> Vec<(Time, Bytes)> {
    played.events(|event| match event {
        Event::PacketSizeChanged { size } => Some(size),
        _ => None,
    })
}

fn controllers() -> [ControllerConfig; 2] {
    [TideConfig::default().into(), TfrcConfig::default().into()]
}

/// A stream into a hole of this size from this second on.
fn into_hole(control: &ControllerConfig, from: u64, limit: u64) -> SessionSetup {
    let mut play = SessionSetup::new();
    play.control = control.clone();
    play.holes = vec![(Time::from_secs(from), Bytes(limit))];
    play
}

#[test]
fn stream_goes_on_with_smaller_packets() {
    for control in controllers() {
        for from in [0, 5] {
            for limit in [1_178, 1_028, 628] {
                let play = into_hole(&control, from, limit);
                let played = play.run(SECOND);
                let case = format!("{control:?} from {from} s, {limit} bytes");
                let (_, last) = *sizes(&played).last().expect(&case);
                assert_eq!(last, Bytes(limit), "{case}");
                let good = played.on_time(from + 3, 20);
                assert!(good > 0.97, "{case}: {good}");
                let rate = played.arrival_rate(from + 8, 20);
                assert!(rate > Rate::kbps(2_000), "{case}: {rate}");
                let large = played.log.rtp.iter().filter(|p| {
                    !p.probe && p.at > Time::from_secs(from + 6) && p.size > Bytes(limit)
                });
                assert_eq!(large.count(), 0, "{case}");
            }
        }
    }
}

#[test]
fn smaller_packets_know_no_hole() {
    for control in controllers() {
        let mut play = into_hole(&control, 0, 1_128);
        play.packet_size = Bytes(1_000);
        let played = play.run(SECOND);
        assert_eq!(sizes(&played), []);
        assert!(played.on_time(1, 20) > 0.98);
    }
}

/// Random losses, bursts, and a queue that a byte limit fills up to the last small packet.
#[test]
fn losses_are_not_taken_for_a_hole() {
    for control in controllers() {
        for loss in [0.0, 0.02, 0.2, 0.4] {
            for kbps in [300, 1_000, 4_000] {
                let mut play = SessionSetup::new();
                play.control = control.clone();
                play.uplink.loss = LossConfig::Bernoulli(loss);
                play.uplink.capacity = tidegate_core::link::Capacity::Fixed(Rate::kbps(kbps));
                play.seconds = 60;
                let played = play.run(SECOND);
                assert_eq!(sizes(&played), [], "{loss} {kbps}");
            }
        }
    }
}

/// The size is found in spite of other losses.
#[test]
fn hole_is_found_on_a_path_with_losses() {
    for control in controllers() {
        let mut play = into_hole(&control, 0, 1_028);
        play.uplink.loss = LossConfig::Bernoulli(0.05);
        let played = play.run(SECOND);
        let (_, last) = *sizes(&played).last().expect("smaller packets");
        assert!(played.log.rtp.iter().any(|packet| packet.probe));
        assert!((Bytes(900)..=Bytes(1_028)).contains(&last), "{last:?}");
        assert!(played.on_time(5, 20) > 0.9, "{}", played.on_time(5, 20));
    }
}

/// A path gets narrower twice, and wide again.
#[test]
fn size_follows_the_path() {
    let mut play = into_hole(&TideConfig::default().into(), 2, 1_100);
    play.holes.push((Time::from_secs(10), Bytes(700)));
    play.holes.push((Time::from_secs(20), Bytes(1_500)));
    play.seconds = 640;
    let played = play.run(SECOND);
    let at = |second| {
        let found = sizes(&played);
        let before = found.iter().rfind(|(at, _)| *at < Time::from_secs(second));
        before.map(|(_, size)| *size)
    };
    assert_eq!(at(9), Some(Bytes(1_100)));
    assert_eq!(at(19), Some(Bytes(700)));
    assert_eq!(at(590), Some(Bytes(700)));
    assert_eq!(at(639), Some(Bytes(1_200)));
}

/// A receiver that does not report on packets gets no probes.
#[test]
fn receiver_without_reports_on_packets_gets_no_probes() {
    for feedback in [FeedbackMode::ReceiverReports, FeedbackMode::KeyRequests] {
        let mut play = into_hole(&TideConfig::default().into(), 2, 1_000);
        play.feedback = feedback;
        let played = play.run(SECOND);
        let probes = played.log.rtp.iter().filter(|packet| packet.probe);
        assert_eq!(probes.count(), 0);
    }
}
