//! Response of the MPEG-2 encoder to a rate that drops to a quarter and recovers, over ten scenes
//! in two formats.
//!
//! `cargo run --release -p tidegate-media --example mpeg2_steps`
//!
//! The rate is settled after n frames if any half second from the n-th frame after a step on, until
//! two seconds or a cut later, is within a tenth of its share.

use std::time::{Duration, Instant};

use tidegate_core::media::FrameRate;
use tidegate_core::units::Rate;
use tidegate_media::{
    Motion, Mpeg2Config, Mpeg2Encoder, Picture, PictureEncoder as _, Scene, Size,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The second format is that of the papers. At 2 Mb/s its pictures use the finest quantiser, and
    // are smaller than their budget.
    let formats = [
        (Size::new(640, 360)?, 30, 2_000),
        (Size::new(176, 120)?, 10, 400),
        (Size::new(176, 120)?, 10, 2_000),
    ];
    for (size, fps, kbps) in formats {
        let rate = Rate::kbps(kbps);
        println!("{size}, {fps} frames/s, {rate}, a quarter of that, {rate}");
        format(size, fps, rate)?;
        println!();
    }
    Ok(())
}

fn format(size: Size, fps: u32, rate: Rate) -> Result<(), Box<dyn std::error::Error>> {
    println!("seed  half seconds  largest P  first key  settled, frames  PSNR Y  encode");
    println!("       of the rate     shares     shares      down      up      dB  ms a frame");
    let mut all = Vec::new();
    for seed in 1..=10 {
        let row = row(seed, size, fps, rate)?;
        println!("{seed:4}  {row}");
        all.push(row);
    }
    let of = |value: fn(&Row) -> f64| {
        let values: Vec<f64> = all.iter().map(value).collect();
        let least = values.iter().copied().fold(f64::MAX, f64::min);
        let most = values.iter().copied().fold(f64::MIN, f64::max);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        format!("{mean:.2} ({least:.2} to {most:.2})")
    };
    println!("mean (spread): least half second {}", of(|r| r.halves.0));
    println!("largest half second {}", of(|r| r.halves.1));
    println!(
        "settled after {} and {}",
        of(|r| r.settled.0 as f64),
        of(|r| r.settled.1 as f64)
    );
    println!("PSNR of Y {} dB", of(|r| r.psnr));
    Ok(())
}

struct Row {
    halves: (f64, f64),
    largest: f64,
    key: f64,
    settled: (usize, usize),
    psnr: f64,
    encode: Duration,
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.2} to {:.2}  {:9.2}  {:9.2}  {:8}  {:6}  {:6.1}  {:.2}",
            self.halves.0,
            self.halves.1,
            self.largest,
            self.key,
            self.settled.0,
            self.settled.1,
            self.psnr,
            self.encode.as_secs_f64() * 1e3
        )
    }
}

/// Two seconds at each rate.
fn row(seed: u64, size: Size, fps: u32, high: Rate) -> Result<Row, Box<dyn std::error::Error>> {
    let (part, half) = (2 * fps as usize, fps as usize / 2);
    let scene = Scene::with_motion(seed, size, Motion::Mix);
    let mut encoder = Mpeg2Encoder::open(Mpeg2Config::new(size, FrameRate::fps(fps)))?;
    let mut picture = Picture::black(size);
    let (mut shares, mut psnr, mut encode) = (Vec::new(), 0.0, Duration::ZERO);
    let frames = 3 * part;
    for n in 0..frames {
        scene.render(n as u64, &mut picture);
        let rate = if n / part == 1 {
            high.scale(1, 4)
        } else {
            high
        };
        let start = Instant::now();
        let coded = encoder.encode(&picture, rate, false)?;
        encode += start.elapsed();
        psnr += coded.quality.psnr_y;
        shares.push(coded.data.len() as f64 * 8.0 / (rate.as_f64() / f64::from(fps)));
    }
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let halves: Vec<f64> = shares.chunks_exact(half).map(mean).collect();
    let settled = |from: usize, to: usize| {
        let off = |n: &usize| (mean(&shares[*n..n + half]) - 1.0).abs() > 0.1;
        (from..=to - half)
            .rev()
            .find(off)
            .map_or(0, |n| n + 1 - from)
    };
    Ok(Row {
        halves: (
            halves.iter().copied().fold(f64::MAX, f64::min),
            halves.iter().copied().fold(0.0, f64::max),
        ),
        largest: shares[1..].iter().copied().fold(0.0, f64::max),
        key: shares[0],
        // At 30 frames per second there is a scene cut.
        settled: (
            settled(part, 2 * part),
            settled(2 * part, 2 * part + part / 2),
        ),
        psnr: psnr / frames as f64,
        encode: encode / frames as u32,
    })
}
