use std::path::{Path, PathBuf};
use std::{env, fs, process};

use tidegate_core::units::Time;

use super::*;
use crate::picture::{Picture, Size};
use crate::scene::Scene;
use crate::session::PictureEncoder as _;
use crate::source::{SceneSource, VideoSource as _};
use crate::stored::StoredError;
use crate::x264::{X264Config, X264Encoder};

/// A folder, removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let dir = env::temp_dir().join(format!("tidegate-title-{test}-{}", process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Access units of 25 frames/s with a key frame per ten frames.
fn units(frames: u64, kbps: u64) -> Vec<Vec<u8>> {
    let size = Size::new(64, 48).unwrap();
    let rate = FrameRate::fps(25);
    let mut encoder = X264Encoder::open(X264Config::new(size, rate)).unwrap();
    let mut source = SceneSource::new(Scene::new(1, size), rate);
    let mut picture = Picture::black(size);
    let coded = (0..frames).map(|number| {
        source.next(&mut picture).unwrap();
        let coded = encoder.encode(&picture, Rate::kbps(kbps), number % GROUP == 0);
        coded.unwrap().data
    });
    coded.collect()
}

fn write(dir: &Path, name: &str, units: &[Vec<u8>]) -> StoredVideo {
    let path = dir.join(name);
    fs::write(&path, units.concat()).unwrap();
    StoredVideo::open(&path).unwrap()
}

fn order(frame: u64, kbps: u64, key: bool) -> FrameOrder {
    FrameOrder {
        frame,
        captured: Time::from_millis(frame * 40),
        rate: Rate::kbps(kbps),
        key,
    }
}

#[test]
fn every_access_unit_is_read_as_it_was_written() {
    let folder = Folder::new("units");
    let units = units(35, 200);
    let video = write(&folder.0, "a.h264", &units);
    assert_eq!(
        (video.frames(), video.key_frames(), video.size()),
        (35, 4, (64, 48))
    );
    assert_eq!(video.frame_rate(), FrameRate::fps(25));
    assert_eq!(video.duration(), Duration::from_millis(1_400));
    let size: usize = units.iter().map(Vec::len).sum();
    let rate = size as f64 * 8.0 / 1.4;
    assert!(
        (video.rate().as_f64() / rate - 1.0).abs() < 0.01,
        "{} {rate}",
        video.rate()
    );
    let mut stream = TitleStream::new(Arc::new(Title::new(vec![video]).unwrap()));
    for (number, unit) in (0..).zip(&units) {
        let frame = stream.encode(&order(number, 100, number == 0)).unwrap();
        assert_eq!(frame.key, number % GROUP == 0);
        assert_eq!(frame.captured, Time::from_millis(number * 40));
        let nals = |bytes: &[u8]| -> Vec<Vec<u8>> {
            let units = tidegate_core::wire::h264::nal_units(bytes);
            units
                .map(<[u8]>::to_vec)
                .filter(|nal| nal[0] & 0x1f != 9)
                .collect()
        };
        assert_eq!(nals(&frame.data), nals(unit), "frame {number}");
    }
    let end = stream.encode(&order(35, 100, false));
    assert_eq!(end, Err(EncodeError::EndOfSource));
    assert_eq!(
        stream.seek(Duration::from_millis(500)),
        Duration::from_millis(400)
    );
    let frame = stream.encode(&order(36, 100, true)).unwrap();
    assert!(frame.key && frame.frame == 36);
    assert_eq!(stream.position(), Duration::from_millis(440));
}

#[test]
fn renditions_change_at_key_frames_by_the_allowed_rate() {
    let folder = Folder::new("renditions");
    let low = write(&folder.0, "low.h264", &units(60, 100));
    let high = write(&folder.0, "high.h264", &units(60, 400));
    let ladder = [low.rate(), high.rate()].map(|rate| rate.as_bps() / 1_000);
    assert!(ladder[1] > 2 * ladder[0], "{ladder:?}");
    let title = Title::new(vec![high, low]).unwrap();
    assert_eq!(title.lowest_rate().as_bps() / 1_000, ladder[0]);
    let mut stream = TitleStream::new(Arc::new(title));
    let mut renditions = Vec::new();
    for number in 0..60 {
        // Plenty from frame 5 on, too little from frame 22 on.
        let kbps = if (5..22).contains(&number) { 5_000 } else { 50 };
        let frame = stream.encode(&order(number, kbps, number == 0)).unwrap();
        assert_eq!(frame.key, number % GROUP == 0);
        renditions.push(stream.rendition());
    }
    assert_eq!(renditions[..10], [0; 10]);
    assert_eq!(renditions[10..30], [1; 20]);
    assert_eq!(renditions[40..], [0; 20]);
}

/// The controller allows twice what it was given, and a path carries everything.
#[test]
fn filler_leads_to_a_rendition_out_of_reach() {
    let folder = Folder::new("climb");
    let low = write(&folder.0, "low.h264", &units(250, 60));
    let high = write(&folder.0, "high.h264", &units(250, 400));
    let ratio = high.rate().as_f64() / low.rate().as_f64();
    assert!(ratio > 4.0, "{ratio}");
    let title = Title::new(vec![high, low]).unwrap();
    let pictures = |data: &[u8]| {
        let nals = tidegate_core::wire::h264::nal_units(data);
        nals.filter(|nal| nal[0] & 0x1f != 12).count()
    };
    let mut stream = TitleStream::new(Arc::new(title));
    let (mut arrived, mut climbed, mut filled) = (0.0, None, 0);
    for number in 0..250 {
        // Never less than twice the lower rendition.
        let allowed = 2.0 * f64::max(arrived, 60.0);
        let frame = stream.encode(&order(number, allowed as u64, number == 0));
        let frame = frame.unwrap();
        let nals = tidegate_core::wire::h264::nal_units(&frame.data).count();
        let fillers = nals - pictures(&frame.data);
        assert!(pictures(&frame.data) > 0);
        if fillers > 0 {
            filled += 1;
            assert!(!frame.key && climbed.is_none(), "{number}");
            let rate = frame.data.len() as f64 * 8.0 * 25.0 / 1e3;
            assert!(rate <= allowed, "{rate} of {allowed}");
        }
        let rate = frame.data.len() as f64 * 8.0 * 25.0 / 1e3;
        arrived += 0.1 * (rate - arrived);
        if stream.rendition() == 1 {
            climbed.get_or_insert(number);
        }
    }
    // The first attempt is after two seconds.
    assert!(
        climbed.is_some_and(|at| (50..150).contains(&at)),
        "{climbed:?}"
    );
    assert!((10..100).contains(&filled), "{filled}");
    assert_eq!(stream.rendition(), 1);
}

#[test]
fn frames_without_their_references_are_left_out() {
    let folder = Folder::new("references");
    let video = write(&folder.0, "a.h264", &units(40, 200));
    let title = Arc::new(Title::new(vec![video]).unwrap());
    let mut stream = TitleStream::new(Arc::clone(&title));
    for number in 0..4 {
        assert!(stream.encode(&order(number, 100, number == 0)).is_ok());
    }
    // Frames 4 and 5 were never ordered.
    for number in 6..10 {
        let left_out = stream.encode(&order(number, 100, false));
        assert_eq!(left_out, Err(EncodeError::Unchanged), "{number}");
    }
    assert!(stream.encode(&order(10, 100, false)).unwrap().key);
    // The sender asks for a key frame, which comes with frame 20.
    for number in 11..20 {
        let left_out = stream.encode(&order(number, 100, number == 11));
        assert_eq!(left_out, Err(EncodeError::Unchanged), "{number}");
    }
    assert!(stream.encode(&order(20, 100, true)).unwrap().key);
}

#[test]
fn broken_files_are_errors() {
    let folder = Folder::new("broken");
    let path = |name: &str| folder.0.join(name);
    let error = StoredVideo::open(&path("none.h264")).unwrap_err();
    assert!(matches!(error, StoredError::Open { .. }), "{error}");
    fs::write(path("noise.mp4"), "no video").unwrap();
    let error = StoredVideo::open(&path("noise.mp4")).unwrap_err();
    assert!(matches!(error, StoredError::Unreadable { .. }), "{error}");
    let units = units(20, 200);
    fs::write(path("tail.h264"), units[1..10].concat()).unwrap();
    let error = StoredVideo::open(&path("tail.h264")).unwrap_err();
    let is_expected = matches!(
        error,
        StoredError::NoKeyFrame { .. } | StoredError::Unreadable { .. }
    );
    assert!(is_expected, "{error}");
    assert_eq!(Title::new(Vec::new()).unwrap_err(), TitleError::Empty);
    // The file shrinks while it is sent.
    let video = write(&folder.0, "a.h264", &units);
    let mut stream = TitleStream::new(Arc::new(Title::new(vec![video]).unwrap()));
    assert!(stream.encode(&order(0, 100, true)).is_ok());
    let file = fs::OpenOptions::new()
        .write(true)
        .open(path("a.h264"))
        .unwrap();
    file.set_len(10).unwrap();
    let gone = stream.encode(&order(1, 100, false)).unwrap_err();
    assert!(
        gone.is_failure() && gone.to_string().contains("has changed"),
        "{gone}"
    );
}

const GROUP: u64 = 10;
