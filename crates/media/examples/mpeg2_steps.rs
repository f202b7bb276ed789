//! How the MPEG-2 encoder follows a rate that goes from 2 to 0.5 to 2 Mb/s, over ten scenes.
//!
//! `cargo run --release -p tidegate-media --example mpeg2_steps`
//!
//! Settled after n frames: from the n-th frame behind a step on, until two seconds or a cut later, any
//! half second in a row has its share of the rate, a tenth more or less.

use std::time::{Duration, Instant};

use tidegate_core::media::FrameRate;
use tidegate_core::units::Rate;
use tidegate_media::{
    Motion, Mpeg2Config, Mpeg2Encoder, Picture, PictureEncoder as _, Scene, Size,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("seed  half seconds  largest P  first key  settled, frames  PSNR Y  encode");
    println!("       of the rate     shares     shares      down      up      dB  ms a frame");
    let mut all = Vec::new();
    for seed in 1..=10 {
        let row = row(seed)?;
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
    println!("\nmean (spread): least half second {}", of(|r| r.halves.0));
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

fn row(seed: u64) -> Result<Row, Box<dyn std::error::Error>> {
    let (size, fps) = (Size::new(640, 360)?, FrameRate::fps(30));
    let scene = Scene::with_motion(seed, size, Motion::Mix);
    let mut encoder = Mpeg2Encoder::open(Mpeg2Config::new(size, fps))?;
    let mut picture = Picture::black(size);
    let (mut shares, mut psnr, mut encode) = (Vec::new(), 0.0, Duration::ZERO);
    for n in 0..FRAMES {
        scene.render(n, &mut picture);
        let rate = Rate::kbps(if (60..120).contains(&n) { 500 } else { 2000 });
        let start = Instant::now();
        let coded = encoder.encode(&picture, rate, false)?;
        encode += start.elapsed();
        psnr += coded.quality.psnr_y;
        shares.push(coded.data.len() as f64 * 8.0 / (rate.as_f64() / fps.as_f64()));
    }
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let halves: Vec<f64> = shares.chunks_exact(15).map(mean).collect();
    let settled = |from: usize, to: usize| {
        let off = |n: &usize| (mean(&shares[*n..n + 15]) - 1.0).abs() > 0.1;
        (from..=to - 15).rev().find(off).map_or(0, |n| n + 1 - from)
    };
    Ok(Row {
        halves: (
            halves.iter().copied().fold(f64::MAX, f64::min),
            halves.iter().copied().fold(0.0, f64::max),
        ),
        largest: shares[1..].iter().copied().fold(0.0, f64::max),
        key: shares[0],
        // The scene is cut at frame 150.
        settled: (settled(60, 120), settled(120, 150)),
        psnr: psnr / FRAMES as f64,
        encode: encode / FRAMES as u32,
    })
}

const FRAMES: u64 = 180;
