//! The MPEG-2 encoder, its rate control, and its decoder.
#![cfg(feature = "ffmpeg")]

use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::units::Rate;
use tidegate_media::{
    Decoded, Decoder, Motion, Mpeg2Config, Mpeg2Encoder, Picture, PictureEncoder as _, Scene, Size,
    quality,
};

const FPS: FrameRate = FrameRate::fps(30);

fn size() -> Size {
    Size::new(640, 360).unwrap()
}

fn encoder() -> Mpeg2Encoder {
    Mpeg2Encoder::open(Mpeg2Config::new(size(), FPS)).unwrap()
}

/// Bits of each frame divided by its share, at 2, 0.5 and 2 Mb/s for two seconds each. A mixed
/// scene has a cut in the last part.
fn shares(motion: Motion, seed: u64) -> Vec<f64> {
    played((size(), FPS), Rate::kbps(2_000), motion, seed)
}

/// Format of the papers.
fn small() -> (Size, FrameRate) {
    (Size::new(176, 120).unwrap(), FrameRate::fps(10))
}

/// The same at `high`, a quarter of it, and `high`.
fn played((size, fps): (Size, FrameRate), high: Rate, motion: Motion, seed: u64) -> Vec<f64> {
    let scene = Scene::with_motion(seed, size, motion);
    let mut encoder = Mpeg2Encoder::open(Mpeg2Config::new(size, fps)).unwrap();
    let mut picture = Picture::black(size);
    let part = 2 * fps.as_f64() as u64;
    let shares = (0..3 * part).map(|n| {
        scene.render(n, &mut picture);
        let target = if n / part == 1 {
            high.scale(1, 4)
        } else {
            high
        };
        let coded = encoder.encode(&picture, target, false).unwrap();
        assert_eq!(coded.key, n == 0, "frame {n}");
        coded.data.len() as f64 * 8.0 / (target.as_f64() / fps.as_f64())
    });
    shares.collect()
}

fn mean(shares: &[f64]) -> f64 {
    shares.iter().sum::<f64>() / shares.len() as f64
}

/// Without the static scene, which soon has all details of the finest quantiser and is then smaller
/// than its budget.
const MOVING: [Motion; 4] = [Motion::Mix, Motion::Pan, Motion::Zoom, Motion::Busy];

#[test]
fn half_seconds_match_a_stepped_rate() {
    let moving = MOVING
        .into_iter()
        .flat_map(|m| (1..=3).map(move |seed| (m, seed)));
    for (motion, seed) in moving.chain([(Motion::Static, 1)]) {
        for (n, half) in shares(motion, seed).chunks(15).enumerate() {
            let mean = mean(half);
            assert!(
                (0.9..=1.1).contains(&mean),
                "{} {seed}, half second {n}: {mean:.3} of the rate",
                motion.name()
            );
        }
    }
}

#[test]
fn rate_is_settled_three_frames_after_a_step() {
    for seed in 1..=3 {
        let shares = shares(Motion::Mix, seed);
        for (n, share) in shares.iter().enumerate() {
            let most = if n == 0 { 3.0 } else { 2.2 };
            assert!(*share <= most, "seed {seed}, frame {n}: {share:.2} shares");
        }
        for step in [60, 120] {
            // From the third frame on, until the scene cut, any half second has its share.
            for from in step + 3..=step + 15 {
                let mean = mean(&shares[from..from + 15]);
                assert!(
                    (0.9..=1.1).contains(&mean),
                    "seed {seed}, half a second from frame {from}: {mean:.2} of the rate"
                );
            }
        }
    }
    // A fifth of a second shows that it is settled immediately.
    for (motion, seed) in MOVING
        .into_iter()
        .flat_map(|m| (1..=3).map(move |s| (m, s)))
    {
        let shares = shares(motion, seed);
        for step in [60, 120] {
            let mean = mean(&shares[step + 3..step + 9]);
            assert!(
                (0.85..=1.15).contains(&mean),
                "{} {seed}, six frames from {step} + 3 on: {mean:.2} of the rate",
                motion.name()
            );
        }
    }
}

/// Half a second has five pictures here, and the quantiser steps are coarse relative to their size.
#[test]
fn half_seconds_of_small_pictures_match_a_stepped_rate() {
    for (motion, seed) in MOVING
        .into_iter()
        .flat_map(|m| (1..=3).map(move |s| (m, s)))
    {
        for kbps in [200, 400] {
            let shares = played(small(), Rate::kbps(kbps), motion, seed);
            for (n, half) in shares.chunks(5).map(mean).enumerate() {
                assert!(
                    (0.9..=1.1).contains(&half),
                    "{} {seed}, {kbps} kb/s, half second {n}: {half:.3} of the rate",
                    motion.name()
                );
            }
        }
    }
}

/// Before the drop every picture uses the finest quantiser and is smaller than its budget.
#[test]
fn rate_drop_from_the_finest_quantiser_applies_immediately() {
    for (motion, seed) in MOVING
        .into_iter()
        .flat_map(|m| (1..=3).map(move |s| (m, s)))
    {
        let shares = played(small(), Rate::kbps(2_000), motion, seed);
        let name = motion.name();
        assert!(
            (0.7..=1.0).contains(&shares[20]),
            "{name} {seed}: {:.2} shares at the drop",
            shares[20]
        );
        for (n, half) in shares[20..40].chunks(5).map(mean).enumerate() {
            assert!((0.9..=1.1).contains(&half), "{name} {seed}, {n}: {half:.2}");
        }
    }
}

/// Without requested key frames, and for any previous rate.
#[test]
fn no_picture_exceeds_its_share_and_the_savings() {
    let scene = Scene::with_motion(3, size(), Motion::Busy);
    let mut encoder = encoder();
    let mut picture = Picture::black(size());
    for n in 0..120_u64 {
        scene.render(n, &mut picture);
        // From 0.8 to 6 Mb/s, a different rate per frame.
        let rate = Rate::kbps(800 + n * 2_377 % 5_200);
        let coded = encoder.encode(&picture, rate, false).unwrap();
        let shares = coded.data.len() as f64 * 8.0 / (rate.as_f64() / 30.0);
        let most = if coded.key { 3.0 } else { 2.2 };
        assert!(shares <= most, "frame {n} at {rate}: {shares:.2} shares");
    }
}

#[test]
fn sequence_header_has_an_unlimited_bit_rate() {
    let mut encoder = encoder();
    let picture = Picture::black(size());
    let coded = encoder
        .encode(&picture, Rate::kbps(1_000), false)
        .unwrap()
        .data;
    assert_eq!(coded[..4], [0, 0, 1, 0xb3], "a sequence header");
    let field = |from: usize, bits: usize| {
        (from..from + bits).fold(0_u32, |n, at| {
            n << 1 | u32::from(coded[at / 8] >> (7 - at % 8) & 1)
        })
    };
    // ITU-T H.262 section 6.2.2.1: width, height, aspect, frame rate, bit rate, marker, buffer.
    assert_eq!((field(32, 12), field(44, 12)), (640, 360));
    assert_eq!((field(64, 18), field(82, 1)), ((1 << 18) - 1, 1));
    assert_eq!(
        field(83, 10),
        112,
        "16 kbit each, main profile at main level"
    );
}

#[test]
fn requested_key_frames_stay_within_their_bound() {
    let scene = Scene::with_motion(2, size(), Motion::Busy);
    let mut encoder = encoder();
    let mut decoder = Decoder::open(Codec::Mpeg2).unwrap();
    let mut picture = Picture::black(size());
    for n in 0..30 {
        scene.render(n, &mut picture);
        let coded = encoder
            .encode(&picture, Rate::kbps(1_000), n == 20)
            .unwrap();
        assert_eq!(coded.key, n == 0 || n == 20);
        let shares = coded.data.len() as f64 * 8.0 / (1e6 / 30.0);
        assert!(shares <= if coded.key { 3.0 } else { 2.2 }, "{n}: {shares}");
        // The decoder starts at the second key frame.
        if n < 20 {
            continue;
        }
        let Decoded::Whole(seen) = decoder.decode(&coded.data) else {
            panic!("frame {n} does not decode");
        };
        assert_eq!(quality(&picture, seen).unwrap(), coded.quality, "frame {n}");
    }
}

#[test]
fn arbitrary_sizes_and_frame_rates_are_accepted() {
    for (width, height, num, den) in [
        (16, 16, 7, 1),
        (176, 120, 30_000, 1_001),
        (322, 182, 1_000, 67),
    ] {
        let size = Size::new(width, height).unwrap();
        let rate = FrameRate { num, den };
        let scene = Scene::with_motion(1, size, Motion::Pan);
        let mut encoder = Mpeg2Encoder::open(Mpeg2Config::new(size, rate)).unwrap();
        let mut picture = Picture::black(size);
        for n in 0..4 {
            scene.render(n, &mut picture);
            let coded = encoder.encode(&picture, Rate::kbps(300), false).unwrap();
            assert!(coded.quality.psnr_y > 20.0, "{size}: {:?}", coded.quality);
        }
        let other = Picture::black(Size::new(64, 64).unwrap());
        let error = encoder.encode(&other, Rate::kbps(300), false).unwrap_err();
        assert!(error.to_string().contains("64x64"), "{error}");
    }
}

#[test]
fn other_data_decodes_to_no_picture() {
    let mut decoder = Decoder::open(Codec::Mpeg2).unwrap();
    let mut state = 1_u64;
    for length in 0..400 {
        let junk: Vec<u8> = (0..length)
            .map(|_| {
                state = state * 48_271 % 2_147_483_647;
                // Zeros and ones are likely to form start codes.
                if state.is_multiple_of(3) {
                    (state >> 8) as u8
                } else {
                    (state >> 4 & 1) as u8
                }
            })
            .collect();
        assert!(!matches!(decoder.decode(&junk), Decoded::Whole(_)));
    }
    assert!(decoder.errors() > 300);
}

#[test]
fn invalid_configurations_are_rejected() {
    let wrong = |config| Mpeg2Encoder::open(config).unwrap_err().to_string();
    let config = Mpeg2Config::new(size(), FPS);
    let shares = Mpeg2Config {
        key_shares: 0.5,
        ..config
    };
    assert!(wrong(shares).contains("0.5 shares"));
    let rate = FrameRate { num: 30, den: 0 };
    assert!(wrong(Mpeg2Config { rate, ..config }).contains("30/0"));
}
