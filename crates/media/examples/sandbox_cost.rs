//! Cost of the decoder process: time to decode a picture in this process and in the other one, in
//! pairs.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tidegate_core::media::{Codec, FrameEncoder as _, FrameOrder, FrameRate};
use tidegate_core::units::{Rate, Time};
use tidegate_media::{
    Decoded, Decoder, DecoderConfig, EncoderSession, Motion, Preset, Scene, SceneSource, Size,
    sandbox,
};

fn main() -> ExitCode {
    if let Some(code) = sandbox::run_child() {
        return code;
    }
    println!("size       rate      one process  two processes  ratio  difference");
    for (width, height, rate) in [
        (640, 360, Rate::kbps(2_000)),
        (1_920, 1_080, Rate::kbps(8_000)),
        (1_920, 1_080, Rate::kbps(24_000)),
        (3_840, 2_160, Rate::kbps(32_000)),
    ] {
        measure(Size::new(width, height).expect("the sizes are valid"), rate);
    }
    ExitCode::SUCCESS
}

fn measure(size: Size, rate: Rate) {
    let units = units(size, rate);
    let open = |program| {
        let config = DecoderConfig {
            program,
            ..Codec::H264.into()
        };
        Decoder::open(config).expect("there is a decoder")
    };
    let mut decoders = [open(None), open(Some(sandbox::this_program()))];
    let mut times = [Vec::new(), Vec::new()];
    for (n, unit) in units.iter().cycle().take(4 * units.len()).enumerate() {
        // The first of a pair finds the access unit in no cache: take turns.
        for which in [n % 2, 1 - n % 2] {
            let start = Instant::now();
            let decoded = decoders[which].decode(unit);
            assert!(matches!(decoded, Decoded::Whole(_)), "{decoded:?}");
            times[which].push(start.elapsed());
        }
    }
    let [one, two] = times.map(median);
    println!(
        "{:9}  {:8}  {:8.2} ms  {:10.2} ms  {:5.3}  {:7.2} ms",
        size.to_string(),
        rate.to_string(),
        millis(one),
        millis(two),
        two.as_secs_f64() / one.as_secs_f64(),
        millis(two) - millis(one),
    );
}

fn units(size: Size, rate: Rate) -> Vec<Vec<u8>> {
    let scene = Scene::with_motion(1, size, Motion::Mix);
    let source = SceneSource::new(scene, FrameRate::fps(30));
    let mut session = EncoderSession::open(Box::new(source), |config| {
        config.preset = Preset::Superfast;
    })
    .expect("there is an encoder");
    let unit = |frame| {
        let order = FrameOrder {
            frame,
            captured: Time::ZERO,
            rate,
            key: frame == 0,
        };
        session.encode(&order).expect("the scene has no end").data
    };
    (0..FRAMES).map(unit).collect()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

const FRAMES: u64 = 90;
