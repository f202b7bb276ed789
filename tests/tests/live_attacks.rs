//! Running streams under an observer who replays, delays, alters and forges packets of both
//! directions. `fuzzing::session::live` asserts that the stream comes back.

use rand_pcg::rand_core::Rng as _;
use tidegate_core::random::Seed;
use tidegate_tests::fuzzing::session::live;

/// Streams with all controllers, plain and with a key. `TIDEGATE_LIVE_RUNS=NUMBER` draws more
/// attacks; each failure is printed as the bytes of its input.
#[test]
fn a_stream_comes_back_after_any_attack() {
    let runs = std::env::var("TIDEGATE_LIVE_RUNS").map_or(RUNS, |runs| {
        runs.parse()
            .expect("TIDEGATE_LIVE_RUNS is a number of runs")
    });
    let failures: Vec<String> = (0..runs).filter_map(|seed| failure(&input(seed))).collect();
    let count = failures.len();
    assert_eq!(count, 0, "{count} of {runs} runs:\n{}", failures.join("\n"));
}

/// Input of a run: the seed selects controller and protection in turn, the others are drawn.
fn input(seed: u64) -> Vec<u8> {
    let mut rng = Seed(seed).stream("live attack");
    let mut input: Vec<u8> = (0..4 + rng.next_u32() % 24)
        .map(|_| rng.next_u32() as u8)
        .collect();
    input[0] = input[0] & 0xf8 | (seed % 8) as u8;
    input
}

fn failure(input: &[u8]) -> Option<String> {
    let caught = std::panic::catch_unwind(|| live(input));
    let error = caught.err()?;
    let text = error.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = error.downcast_ref::<String>().cloned().or(text);
    let message = message.unwrap_or_default();
    Some(format!("{input:02x?}: {message}"))
}

const RUNS: u64 = 40;
