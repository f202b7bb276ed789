//! Records the frames of an encode at several rates as a trace for `encoder = { trace = .. }`.
//!
//! `cargo run --release -p tidegate --example record_frames [SECONDS [RATE..]] > frames.txt`
//!
//! libx264 encodes the generated scene, 640x360 at 30 frames a second, once for each rate in bits
//! per second, as in a session: with a rate for every frame, and a key frame every two seconds.
//! The same scene and version of libx264 give the same trace.

use anyhow::{Context, ensure};
use tidegate_core::media::{FrameEncoder as _, FrameOrder, FrameRate};
use tidegate_core::units::{Rate, Time};
use tidegate_media::{EncoderSession, Preset, Scene, SceneSource, Size};
use tidegate_sim::traffic::video::{FrameTrace, RecordedFrame, TraceFrame};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = match arguments.next() {
        Some(word) => word
            .parse()
            .with_context(|| format!("`{word}` is not a number of seconds"))?,
        None => 10,
    };
    let rates = arguments.map(|word| {
        let rate = word.parse().map(Rate::bps);
        rate.with_context(|| format!("`{word}` is not a rate in bits per second"))
    });
    let mut rates = rates.collect::<anyhow::Result<Vec<Rate>>>()?;
    if rates.is_empty() {
        rates = [300, 1_000, 3_000].map(Rate::kbps).to_vec();
    }
    let frames = FPS * seconds;
    ensure!(
        frames > 1,
        "the recording must have at least two frames: give more SECONDS"
    );
    let takes = rates.iter().map(|rate| take(*rate, frames));
    let takes = takes.collect::<anyhow::Result<Vec<_>>>()?;
    let frame = |n: usize| TraceFrame {
        is_key: (n as u64).is_multiple_of(KEY_EVERY),
        at_each_rate: takes.iter().map(|take| take[n]).collect(),
    };
    let frames: Vec<_> = (0..frames as usize).map(frame).collect();
    let trace = FrameTrace::from_frames(FrameRate::fps(FPS as u32), &rates, &frames)?;
    println!(
        "# H.264 of a generated scene (seed {SEED}) at {WIDTH}x{HEIGHT} by libx264, preset {}, its\n\
         # rate set before every frame, a key frame every {KEY_EVERY}. Each line is a frame, with\n\
         # bytes, PSNR of Y, U and V in dB and SSIM of Y for each rate. CreatedFolders by the example\n\
         # record_frames.",
        PRESET.name()
    );
    print!("{trace}");
    Ok(())
}

fn take(rate: Rate, frames: u64) -> anyhow::Result<Vec<RecordedFrame>> {
    let scene = Scene::new(SEED, Size::new(WIDTH, HEIGHT)?);
    let source = Box::new(SceneSource::new(scene, FrameRate::fps(FPS as u32)));
    let mut session = EncoderSession::open(source, |config| config.preset = PRESET)?;
    let frame = |n: u64| {
        let key = n.is_multiple_of(KEY_EVERY);
        let encoded = session.encode(&FrameOrder {
            frame: n,
            captured: Time::ZERO + FrameRate::fps(FPS as u32).at(n),
            rate,
            key,
        })?;
        ensure!(
            encoded.key == key,
            "frame {n} has another frame type than ordered"
        );
        Ok(RecordedFrame {
            size: u32::try_from(encoded.data.len())?,
            quality: encoded.quality,
        })
    };
    (0..frames).map(frame).collect()
}

const SEED: u64 = 1;
const WIDTH: u32 = 640;
const HEIGHT: u32 = 360;
const FPS: u64 = 30;
const KEY_EVERY: u64 = 60;
/// The preset of `tidegate sim`.
const PRESET: Preset = Preset::Superfast;
