//! Files as sources: read, scaled, looped, and damaged.
#![cfg(all(feature = "ffmpeg", feature = "x264"))]

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_core::media::FrameRate;
use tidegate_core::units::Rate;
use tidegate_media::{
    FileOptions, FileSource, Motion, Picture, PictureEncoder as _, Scene, Size, SourceError,
    VideoSource, X264Config, X264Encoder, quality,
};

#[test]
fn file_source_returns_the_encoded_pictures() {
    let (path, scene) = (clip("plain", |_| {}), scene());
    let mut source = open(&path, FileOptions::default()).unwrap();
    assert_eq!(
        (source.size(), source.frame_rate()),
        (scene.size(), FRAME_RATE)
    );
    let (mut seen, mut wanted) = (Picture::black(source.size()), Picture::black(source.size()));
    for n in 0..FRAMES {
        assert_eq!(source.position(), n);
        assert_eq!(source.next(&mut seen), Ok(true), "frame {n}");
        scene.render(n, &mut wanted);
        let like = quality(&wanted, &seen).unwrap();
        assert!(like.psnr_y > 30.0, "frame {n}: {like:?}");
    }
    assert_eq!(source.next(&mut seen), Ok(false));
    assert_eq!(source.next(&mut seen), Ok(false));
}

#[test]
fn pictures_are_scaled_to_the_requested_size_and_rate() {
    let path = clip("scaled", |_| {});
    let size = Size::new(96, 64).unwrap();
    let read = |rate| {
        let options = FileOptions {
            size: Some(size),
            rate: Some(rate),
            looped: false,
        };
        let mut source = open(&path, options).unwrap();
        let mut pictures = vec![Picture::black(size)];
        while source.next(pictures.last_mut().unwrap()).unwrap() {
            let again = pictures.last().unwrap().clone();
            pictures.push(again);
        }
        pictures.pop();
        pictures
    };
    let (all, half, double) = (
        read(FRAME_RATE),
        read(FrameRate::fps(10)),
        read(FrameRate::fps(40)),
    );
    assert_eq!(
        (all.len(), half.len()),
        (FRAMES as usize, FRAMES as usize / 2)
    );
    assert!(double.len() as u64 >= 2 * FRAMES - 1, "{}", double.len());
    let changes = double.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(changes, all.len() - 1);
    assert!(
        half.iter()
            .all(|picture| all.contains(picture) && picture.size() == size)
    );
}

#[test]
fn looped_file_restarts() {
    let path = clip("looped", |_| {});
    let options = FileOptions {
        looped: true,
        ..FileOptions::default()
    };
    let mut source = open(&path, options).unwrap();
    let mut first = Picture::black(source.size());
    let mut later = first.clone();
    assert_eq!(source.advance_to(3, &mut first), Ok(true));
    assert_eq!(source.advance_to(3 + 2 * FRAMES, &mut later), Ok(true));
    assert!(first == later);
    let refused = FileSource::open("-", options).unwrap_err();
    assert!(
        refused.to_string().contains("cannot be looped"),
        "{refused}"
    );
}

#[test]
fn truncated_file_is_an_error_after_the_complete_pictures() {
    let path = clip("truncated", |bytes| bytes.truncate(bytes.len() - 300));
    let mut source = open(&path, FileOptions::default()).unwrap();
    let mut picture = Picture::black(source.size());
    let mut whole = 0;
    let error = loop {
        match source.next(&mut picture) {
            Ok(true) => whole += 1,
            Ok(false) => panic!("end of the file after {whole} pictures"),
            Err(error) => break error,
        }
    };
    assert_eq!(whole, FRAMES - 1);
    assert!(matches!(error, SourceError::Truncated { pictures, .. } if pictures == whole));
    assert!(error.to_string().contains("truncated.h264"), "{error}");
}

#[test]
fn damage_within_a_file_only_loses_pictures() {
    let path = clip("damaged", |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle..middle + 200].fill(0x55);
    });
    let mut source = open(&path, FileOptions::default()).unwrap();
    let mut picture = Picture::black(source.size());
    let mut count = 0;
    while source.next(&mut picture).unwrap() {
        count += 1;
    }
    // The damage may affect the start of a picture, which then has no timestamp.
    assert!((FRAMES - 2..=FRAMES).contains(&count), "{count}");
}

#[test]
fn errors_name_the_source_and_a_remedy() {
    let missing = open(&folder().join("missing.mp4"), FileOptions::default()).unwrap_err();
    let text = missing.to_string();
    assert!(matches!(missing, SourceError::Unreadable { .. }));
    assert!(
        text.contains("missing.mp4") && text.contains("No such file"),
        "{text}"
    );
    let noise = folder().join("noise.bin");
    fs::write(&noise, [0xa7_u8; 5000]).unwrap();
    let text = open(&noise, FileOptions::default())
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("noise.bin") && text.contains("ffprobe"),
        "{text}"
    );
    let sound = folder().join("sound.wav");
    fs::write(&sound, silence()).unwrap();
    let error = open(&sound, FileOptions::default()).unwrap_err();
    assert!(matches!(error, SourceError::NoVideo { .. }), "{error}");
    let zero = FileSource::open("a\0b", FileOptions::default()).unwrap_err();
    assert!(matches!(zero, SourceError::Unreadable { .. }), "{zero}");
}

fn scene() -> Scene {
    Scene::with_motion(2, Size::new(192, 112).unwrap(), Motion::Pan)
}

/// Encodes a clip, applies `change` to its bytes, and writes it to a file.
fn clip(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    let scene = scene();
    let mut encoder = X264Encoder::open(X264Config::new(scene.size(), FRAME_RATE)).unwrap();
    let mut picture = Picture::black(scene.size());
    let mut bytes = Vec::new();
    for n in 0..FRAMES {
        scene.render(n, &mut picture);
        let coded = encoder.encode(&picture, Rate::kbps(1000), false).unwrap();
        bytes.extend(coded.data);
    }
    change(&mut bytes);
    let path = folder().join(format!("{name}.h264"));
    fs::write(&path, bytes).unwrap();
    path
}

fn open(path: &Path, options: FileOptions) -> Result<FileSource, SourceError> {
    FileSource::open(path.to_str().unwrap(), options)
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// One second of silence: 8000 samples of 8 bits.
fn silence() -> Vec<u8> {
    let head: [&[u8]; 4] = [
        b"RIFF\x64\x1f\0\0WAVEfmt \x10\0\0\0",
        b"\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0",
        b"data\x40\x1f\0\0",
        &[128; 8000],
    ];
    head.concat()
}

const FRAME_RATE: FrameRate = FrameRate::fps(20);
const FRAMES: u64 = 24;
