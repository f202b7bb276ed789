//! Rate accuracy of the encoders at a variable rate, and speed of all components.
//!
//! `cargo run --release -p tidegate-media --example steps [WIDTHxHEIGHT]`
//!
//! For MPEG-2, for each preset of x264 and for each motion of the scene, the rate changes from 2 to
//! 0.5 to 2 Mb/s (scaled with the picture size). A key frame is requested in the middle of the last
//! part.

use std::time::{Duration, Instant};

use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::units::Rate;
use tidegate_media::{
    Decoded, Decoder, Motion, Mpeg2Config, Mpeg2Encoder, Picture, PictureEncoder, Preset, Scene,
    Size, X264Config, X264Encoder, quality,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let size: Size = std::env::args()
        .nth(1)
        .as_deref()
        .unwrap_or("640x360")
        .parse()?;
    let clips: Vec<(Motion, Vec<Picture>)> = Motion::ALL.map(|motion| clip(size, motion)).into();
    println!(
        "\n{:<10} {:<7} {:>15} {:>11} {:>10} {:>10} {:>8} {:>7} {:>7} {:>9} {:>10} {:>11}",
        "encoder",
        "scene",
        "half seconds of",
        "largest",
        "first key",
        "later key",
        "key, dB",
        "PSNR Y",
        "SSIM",
        "encode",
        "decode",
        "quality"
    );
    println!(
        "{:<10} {:<7} {:>15} {:>11} {:>10} {:>10} {:>8} {:>7} {:>7} {:>9} {:>10} {:>11}",
        "",
        "",
        "the rate",
        "P, shares",
        "shares",
        "shares",
        "PSNR Y",
        "dB",
        "",
        "frames/s",
        "frames/s",
        "ms a frame"
    );
    let rate = FrameRate::fps(30);
    for (motion, pictures) in &clips {
        let mut encoder = Mpeg2Encoder::open(Mpeg2Config::new(size, rate))?;
        row("mpeg2", Codec::Mpeg2, &mut encoder, *motion, pictures)?;
    }
    for preset in Preset::ALL {
        for (motion, pictures) in &clips {
            let mut encoder = X264Encoder::open(X264Config {
                preset,
                ..X264Config::new(size, rate)
            })?;
            row(preset.name(), Codec::H264, &mut encoder, *motion, pictures)?;
        }
    }
    Ok(())
}

fn clip(size: Size, motion: Motion) -> (Motion, Vec<Picture>) {
    let start = Instant::now();
    let scene = Scene::with_motion(1, size, motion);
    let painted = start.elapsed();
    let mut picture = Picture::black(size);
    let mut pictures = Vec::new();
    let mut rendering = Duration::ZERO;
    for n in 0..FRAMES {
        let start = Instant::now();
        scene.render(n, &mut picture);
        rendering += start.elapsed();
        pictures.push(picture.clone());
    }
    println!(
        "scene {}: painted in {:.0} ms, {:.0} frames/s",
        motion.name(),
        painted.as_secs_f64() * 1e3,
        FRAMES as f64 / rendering.as_secs_f64()
    );
    (motion, pictures)
}

fn row(
    name: &str,
    codec: Codec,
    encoder: &mut dyn PictureEncoder,
    motion: Motion,
    pictures: &[Picture],
) -> Result<(), Box<dyn std::error::Error>> {
    let rate = FrameRate::fps(30);
    let mut decoder = Decoder::open(codec)?;
    let mut spent = [Duration::ZERO; 3];
    let (mut shares, mut psnr, mut ssim, mut key_psnr) = (Vec::new(), 0.0, 0.0, 0.0);
    for (n, picture) in (0_u64..).zip(pictures) {
        let kbps = if (60..120).contains(&n) { 500 } else { 2000 };
        let target = Rate::kbps(kbps).scale(picture.size().luma() as u64, 640 * 360);
        let start = Instant::now();
        let coded = encoder.encode(picture, target, n == LATER_KEY)?;
        spent[0] += start.elapsed();
        let start = Instant::now();
        let seen = decoder.decode(&coded.data);
        spent[1] += start.elapsed();
        let Decoded::Whole(seen) = seen else {
            return Err(format!("frame {n} does not decode").into());
        };
        let start = Instant::now();
        let seen = quality(picture, seen)?;
        spent[2] += start.elapsed();
        psnr += seen.psnr_y;
        if n == LATER_KEY {
            key_psnr = seen.psnr_y;
        }
        ssim += seen.ssim;
        shares.push(coded.data.len() as f64 * 8.0 / (target.as_f64() / rate.as_f64()));
    }
    let count = pictures.len() as f64;
    let halves: Vec<f64> = shares
        .chunks_exact(15)
        .map(|h| h.iter().sum::<f64>() / 15.0)
        .collect();
    let least = halves.iter().copied().fold(f64::MAX, f64::min);
    let most = halves.iter().copied().fold(0.0, f64::max);
    let is_key = |n: usize| n == 0 || n as u64 == LATER_KEY;
    let largest = shares.iter().enumerate().filter(|(n, _)| !is_key(*n));
    let per_second = |d: Duration| count / d.as_secs_f64();
    println!(
        "{:<10} {:<7} {:>15} {:>11.2} {:>10.2} {:>10.2} {:>8.1} {:>7.1} {:>7.3} {:>9.0} {:>10.0} {:>11.2}",
        name,
        motion.name(),
        format!("{least:.2} to {most:.2}"),
        largest.map(|(_, s)| *s).fold(0.0, f64::max),
        shares[0],
        shares[LATER_KEY as usize],
        key_psnr,
        psnr / count,
        ssim / count,
        per_second(spent[0]),
        per_second(spent[1]),
        1e3 / per_second(spent[2])
    );
    Ok(())
}

const FRAMES: u64 = 180;
const LATER_KEY: u64 = 135;
