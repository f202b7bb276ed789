//! Cost of the decoder process: time to decode a picture in this process and in the other one, in
//! pairs, by the clock and of the processor.

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
    println!("                    in this process   in a process of its own   ratio");
    println!("size       rate       clock     CPU        clock     CPU        clock  CPU");
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
            let ids = [Some(std::process::id()), decoders[which].process_id()];
            let spent = || ids.into_iter().flatten().map(processor_time).sum::<f64>();
            let (start, before) = (Instant::now(), spent());
            let decoded = decoders[which].decode(unit);
            assert!(matches!(decoded, Decoded::Whole(_)), "{decoded:?}");
            let elapsed = start.elapsed();
            times[which].push((millis(elapsed), spent() - before));
        }
    }
    let [one, two] = times.map(|both| {
        let (clock, processor): (Vec<f64>, Vec<f64>) = both.into_iter().unzip();
        [median(clock), median(processor)]
    });
    println!(
        "{:9}  {:8}  {:6.2} ms {:6.2} ms  {:6.2} ms {:6.2} ms  {:8.2} {:6.2}",
        size.to_string(),
        rate.to_string(),
        one[0],
        one[1],
        two[0],
        two[1],
        two[0] / one[0],
        two[1] / one[1],
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

/// Processor time of a process, in ms.
fn processor_time(id: u32) -> f64 {
    let (mut clock, mut time) = (
        0,
        libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
    );
    // SAFETY: both pointers are valid during the calls.
    let failed = unsafe {
        libc::clock_getcpuclockid(id as libc::pid_t, &raw mut clock)
            | libc::clock_gettime(clock, &raw mut time)
    };
    assert_eq!(failed, 0, "the process has ended");
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

const FRAMES: u64 = 90;
