//! A sender whose host gets another address, as after a change from Wi-Fi to a cellular network.

mod session_lab;

use std::time::Duration;

use session_lab::{SessionRun, SessionSetup, dark};
use tidegate_core::controller::tide::TideConfig;
use tidegate_core::units::Time;

const ROUND_TRIP: Duration = Duration::from_millis(80);

fn setup() -> SessionSetup {
    let mut setup = SessionSetup::new();
    setup.control = TideConfig::default().into();
    setup
}

/// Departure of the first media packet at `from` or later.
fn first_media(run: &SessionRun, from: Time) -> Time {
    let departures = run.log.rtp.iter().map(|packet| packet.at);
    departures.filter(|at| *at >= from).min().unwrap()
}

/// Nothing is known of the new path, so media waits for the answer of a probe, and begins without the rate of
/// before.
#[test]
fn media_waits_for_the_proof_of_the_new_path_and_starts_again() {
    let at = Time::from_secs(10);
    let run = |moved| {
        let mut setup = setup();
        setup.moved = moved;
        setup.run(Duration::from_secs(1))
    };
    let (moved, same) = (run(Some(at)), run(None));
    let wait = |run: &SessionRun| first_media(run, at).since(at);
    assert!(wait(&same) < ROUND_TRIP / 2, "{:?}", wait(&same));
    let waited = wait(&moved);
    assert!(
        (ROUND_TRIP..ROUND_TRIP * 3 / 2).contains(&waited),
        "{waited:?}"
    );
    let sent = |run: &SessionRun| run.wire_rate(10, 11);
    assert!(
        sent(&moved) < sent(&same),
        "{} of {}",
        sent(&moved),
        sent(&same)
    );
    assert!(moved.on_time(10, 20) >= 0.98, "{}", moved.on_time(10, 20));
}

/// The address was lost for so long that the circuit breaker has stopped the stream.
#[test]
fn stream_is_back_within_two_round_trips_after_any_time_without_an_address() {
    for (lost, back) in [(10_000, 10_130), (10_000, 11_007), (10_000, 25_003)] {
        let mut setup = setup();
        setup.seconds = 30;
        setup.patience = Duration::from_mins(1);
        setup.uplink.outages = dark(lost, back);
        setup.downlink.outages = dark(lost, back);
        setup.moved = Some(Time::from_millis(back));
        let run = setup.run(Duration::from_secs(1));
        let first = first_media(&run, Time::from_millis(back));
        let waited = first.since(Time::from_millis(back));
        assert!(waited < ROUND_TRIP * 3 / 2, "{lost} to {back}: {waited:?}");
        assert!(run.on_time(28, 30) >= 0.95, "{lost} to {back}");
    }
}
