//! Scene, encoder, decoder and quality as a chain.
#![cfg(all(feature = "ffmpeg", feature = "x264"))]

use tidegate_core::media::{Codec, EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};
use tidegate_core::units::{Rate, Time};
use tidegate_media::{
    Decoded, Decoder, EncoderSession, Motion, Picture, Preset, Scene, SceneSource, Size, quality,
};

/// 2 to 0.5 to 2 Mb/s, two seconds each, with a cut in the last.
#[test]
fn new_rate_applies_from_the_next_frame() {
    let mut session = session(360, Motion::Mix, Preset::Superfast);
    let target = |n: u64| Rate::kbps(if (60..120).contains(&n) { 500 } else { 2000 });
    let sizes: Vec<(f64, f64, bool)> = (0..180)
        .map(|n| {
            let frame = order(&mut session, n, target(n), false);
            (
                frame.data.len() as f64 * 8.0,
                target(n).as_f64() / 30.0,
                frame.key,
            )
        })
        .collect();
    for (n, (bits, share, key)) in sizes.iter().enumerate() {
        assert_eq!(*key, n == 0, "frame {n}");
        let most = if *key { 3.5 } else { 1.5 };
        assert!(
            *bits <= most * share,
            "frame {n}: {:.2} shares",
            bits / share
        );
    }
    for (n, half) in sizes.chunks(15).enumerate() {
        let (bits, wanted) = half
            .iter()
            .fold((0.0, 0.0), |(bits, wanted), f| (bits + f.0, wanted + f.1));
        let ratio = bits / wanted;
        assert!(
            (0.9..=1.1).contains(&ratio),
            "half second {n}: {ratio:.3} of the rate"
        );
    }
}

/// A frame after one at a low rate starts with the buffer of that frame. After a tenfold increase
/// the rate is therefore not fully used, but it is never exceeded.
#[test]
fn rate_that_changes_with_every_frame_is_not_exceeded() {
    let mut session = session(360, Motion::Busy, Preset::Ultrafast);
    let mut state = 1_u64;
    let frames: Vec<(f64, f64)> = (0..120)
        .map(|n| {
            state = state * 48_271 % 2_147_483_647;
            let rate = Rate::kbps(300 + state % 2_700);
            let bits = order(&mut session, n, rate, false).data.len() as f64 * 8.0;
            (bits, rate.as_f64() / 30.0)
        })
        .collect();
    for (n, (bits, share)) in frames.iter().enumerate().skip(1) {
        assert!(
            *bits <= 1.5 * share,
            "frame {n}: {:.2} shares",
            bits / share
        );
    }
    for (n, half) in frames.chunks(15).enumerate() {
        let sum = |part: fn(&(f64, f64)) -> f64| half.iter().map(part).sum::<f64>();
        let ratio = sum(|f| f.0) / sum(|f| f.1);
        assert!(
            (0.6..=1.1).contains(&ratio),
            "half second {n}: {ratio:.3} of the rate"
        );
    }
}

#[test]
fn decoded_quality_matches_the_report_of_the_encoder() {
    let mut session = session(180, Motion::Pan, Preset::Veryfast);
    let mut decoder = Decoder::open(Codec::H264).unwrap();
    for n in 0..30 {
        let coded = order(&mut session, n, Rate::kbps(1500), false);
        let Decoded::Whole(seen) = decoder.decode(&coded.data) else {
            panic!("frame {n} does not decode");
        };
        let ours = quality(session.picture(), seen).unwrap();
        let theirs = coded.quality.unwrap();
        // The SSIM windows of x264 are offset by two samples.
        assert!(
            (ours.psnr_y - theirs.psnr_y).abs() < 0.01,
            "{n}: {ours:?} {theirs:?}"
        );
        assert!(
            (ours.psnr_v - theirs.psnr_v).abs() < 0.01,
            "{n}: {ours:?} {theirs:?}"
        );
        assert!(
            (ours.ssim - theirs.ssim).abs() < 2e-3,
            "{n}: {ours:?} {theirs:?}"
        );
        assert!(n < 10 || ours.psnr_y > 34.0, "{n}: {ours:?}");
    }
    assert_eq!(decoder.errors(), 0);
}

#[test]
fn lost_frame_is_visible_until_the_next_key_frame() {
    let mut session = session(180, Motion::Busy, Preset::Superfast);
    let mut decoder = Decoder::open(Codec::H264).unwrap();
    let mut psnr = Vec::new();
    for n in 0..20 {
        let coded = order(&mut session, n, Rate::kbps(1000), n == 14);
        assert_eq!(coded.key, n == 0 || n == 14);
        if n == 7 {
            continue;
        }
        let shown = decoder.decode(&coded.data).picture();
        psnr.push((
            n,
            shown.map_or(0.0, |p| quality(session.picture(), p).unwrap().psnr_y),
        ));
    }
    for (n, psnr) in psnr {
        let broken = (8..14).contains(&n);
        assert_eq!(psnr < 26.0, broken, "frame {n}: {psnr:.1} dB");
    }
}

#[test]
fn frames_without_an_order_are_skipped() {
    let mut session = session(180, Motion::Pan, Preset::Ultrafast);
    let mut decoder = Decoder::open(Codec::H264).unwrap();
    let mut wanted = Picture::black(Size::new(320, 180).unwrap());
    let scene = Scene::with_motion(1, wanted.size(), Motion::Pan);
    for n in [0, 1, 5, 40] {
        let coded = order(&mut session, n, Rate::kbps(1000), false);
        let shown = decoder.decode(&coded.data).picture().unwrap();
        scene.render(n, &mut wanted);
        let seen = quality(&wanted, shown).unwrap();
        assert!(seen.psnr_y > 25.0, "frame {n}: {seen:?}");
    }
    let back = session.encode(&FrameOrder {
        frame: 40,
        captured: Time::ZERO,
        rate: Rate::kbps(1000),
        key: false,
    });
    assert!(matches!(back, Err(EncodeError::Source(why)) if why.contains("forwards")));
}

#[test]
fn arbitrary_rates_are_accepted() {
    let mut session = session(180, Motion::Zoom, Preset::Superfast);
    let mut decoder = Decoder::open(Codec::H264).unwrap();
    let rates = [
        Rate::kbps(800),
        Rate::ZERO,
        Rate::MAX,
        Rate::bps(1),
        Rate::kbps(800),
    ];
    for (n, rate) in (0..).zip(rates.into_iter().cycle().take(25)) {
        let coded = order(&mut session, n, rate, n % 7 == 0);
        assert!(
            matches!(decoder.decode(&coded.data), Decoded::Whole(_)),
            "{n}"
        );
    }
}

#[test]
fn requested_key_frame_is_larger_than_a_share_and_bounded() {
    let mut session = session(180, Motion::Zoom, Preset::Superfast);
    let share = 600_000.0 / 30.0;
    let sizes: Vec<f64> = (0..45)
        .map(|n| {
            order(&mut session, n, Rate::kbps(600), n == 25 || n == 26)
                .data
                .len() as f64
                * 8.0
        })
        .collect();
    for n in [25, 26] {
        assert!(
            (2.0..=3.5).contains(&(sizes[n] / share)),
            "frame {n}: {}",
            sizes[n] / share
        );
    }
    let after: f64 = sizes[25..45].iter().sum();
    assert!(
        (0.9..=1.15).contains(&(after / 20.0 / share)),
        "{}",
        after / 20.0 / share
    );
}

#[test]
fn decoder_does_not_panic_on_arbitrary_bytes() {
    let mut session = session(180, Motion::Pan, Preset::Ultrafast);
    let mut decoder = Decoder::open(Codec::H264).unwrap();
    assert_eq!(decoder.decode(&[]), Decoded::Nothing);
    assert_eq!(decoder.decode(&[0, 0, 1, 0x65, 1, 2, 3]), Decoded::Nothing);
    assert_eq!(decoder.decode(&[7; 100]), Decoded::Nothing);
    assert_eq!(decoder.errors(), 2);
    let key = order(&mut session, 0, Rate::kbps(1000), true);
    let mut bent = key.data.clone();
    for byte in bent.iter_mut().skip(900).step_by(97) {
        *byte ^= 0x55;
    }
    assert!(!matches!(decoder.decode(&bent), Decoded::Whole(_)));
    assert_eq!(decoder.errors(), 3);
    assert!(matches!(decoder.decode(&key.data), Decoded::Whole(_)));
    decoder.reset();
    let next = order(&mut session, 1, Rate::kbps(1000), false);
    assert!(!matches!(decoder.decode(&next.data), Decoded::Whole(_)));
}

fn session(height: u32, motion: Motion, preset: Preset) -> EncoderSession {
    let size = Size::new(height * 16 / 9, height).unwrap();
    let scene = Scene::with_motion(1, size, motion);
    let source = Box::new(SceneSource::new(scene, FrameRate::fps(30)));
    EncoderSession::open(source, |config| config.preset = preset).unwrap()
}

fn order(session: &mut EncoderSession, frame: u64, rate: Rate, key: bool) -> Encoded {
    let captured = Time::ZERO + session.frame_rate().at(frame);
    let order = FrameOrder {
        frame,
        captured,
        rate,
        key,
    };
    let coded = session.encode(&order).unwrap();
    assert_eq!((coded.frame, coded.captured), (frame, captured));
    coded
}
