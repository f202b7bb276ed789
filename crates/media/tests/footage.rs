//! Sources as cameras and programs make them: turned, interlaced, with other pixels, rates and
//! colours. The program `ffmpeg` makes them.
#![cfg(all(feature = "ffmpeg", feature = "x264"))]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use tidegate_core::media::{Codec, EncodeError, FrameEncoder as _, FrameOrder, FrameRate};
use tidegate_core::units::{Rate, Time};
use tidegate_core::wire::h264;
use tidegate_media::{
    Colour, Decoded, Decoder, EncoderSession, FileOptions, FileSource, Picture,
    PictureEncoder as _, Preset, Size, SourceError, VideoSource as _, X264Config, X264Encoder,
    quality,
};

#[test]
fn a_portrait_film_is_upright() {
    let Some(plain) = film(
        "plain.mp4",
        "testsrc2=size=320x180:rate=30",
        "-t 1 -c:v libx264",
    ) else {
        return;
    };
    let turned = path("turned.mp4");
    // Later versions of FFmpeg state the turn by an option, which is counter-clockwise.
    let new = [
        "-display_rotation",
        "-90",
        "-i",
        text(&plain),
        "-c",
        "copy",
        text(&turned),
    ];
    let old = [
        "-i",
        text(&plain),
        "-c",
        "copy",
        "-metadata:s:v:0",
        "rotate=90",
        text(&turned),
    ];
    assert!(run(&new) || run(&old), "FFmpeg cannot turn a film");
    let mut source = open(&turned);
    assert_eq!(source.size(), Size::new(180, 320).unwrap());
    let [change] = source.changes() else {
        panic!("{:?}", source.changes());
    };
    assert!(change.starts_with("turned "), "{change}");
    let mut seen = Picture::black(source.size());
    assert_eq!(source.next(&mut seen), Ok(true));
    // As FFmpeg's program turns it.
    let raw = path("turned.yuv");
    let options = ["-frames:v", "1", "-pix_fmt", "yuv420p", "-f", "rawvideo"];
    let shown = [&["-i", text(&turned)], &options[..], &[text(&raw)]].concat();
    assert!(run(&shown));
    assert!(seen.as_i420() == fs::read(raw).unwrap(), "another turn");
}

#[test]
fn pixels_become_square() {
    let Some(path) = film(
        "pal.mpg",
        "testsrc2=size=360x288:rate=25",
        "-t 1 -vf setsar=64/45 -c:v mpeg2video -b:v 1M",
    ) else {
        return;
    };
    let source = open(&path);
    assert_eq!(source.size(), Size::new(512, 288).unwrap());
    assert_eq!(source.changes(), ["pixels of 64:45 made square"]);
    let options = FileOptions {
        size: Some(Size::new(360, 288).unwrap()),
        ..FileOptions::default()
    };
    let source = FileSource::open(text(&path), options).unwrap();
    assert!(source.changes().is_empty(), "{:?}", source.changes());
}

/// 30 pictures per second in the light, and 7.5 in the dark.
#[test]
fn each_picture_of_a_variable_rate_is_encoded_once_at_its_time() {
    let Some(path) = film(
        "phone.mp4",
        "testsrc2=size=320x180:rate=60",
        "-t 7 -vf select='if(lt(t,3),not(mod(n,2)),not(mod(n,8)))' -fps_mode vfr \
         -video_track_timescale 90000 -c:v libx264 -bf 2",
    ) else {
        return;
    };
    let source = open(&path);
    assert_eq!(source.frame_rate(), FrameRate::fps(30));
    let mut session = EncoderSession::open(Box::new(source), |_| {}).unwrap();
    let mut encoded = Vec::new();
    for frame in 0.. {
        let order = FrameOrder {
            frame,
            captured: Time::ZERO + FrameRate::fps(30).at(frame),
            rate: Rate::kbps(500),
            key: frame == 0,
        };
        match session.encode(&order) {
            Ok(coded) => encoded.push(coded.frame),
            Err(EncodeError::Unchanged) => {}
            Err(EncodeError::EndOfSource) => break,
            Err(other) => panic!("{other}"),
        }
    }
    let wanted: Vec<u64> = (0..90).chain((90..210).filter(|n| n % 4 == 0)).collect();
    let near = |a: &u64, b: &u64| a.abs_diff(*b) <= 2;
    assert_eq!(encoded.len(), wanted.len(), "{encoded:?}");
    assert!(
        encoded.iter().zip(&wanted).all(|(a, b)| near(a, b)),
        "{encoded:?}"
    );
}

#[test]
fn a_still_picture_is_repeated() {
    let Some(path) = film("still.png", "testsrc2=size=64x48", "-frames:v 1") else {
        return;
    };
    let mut source = open(&path);
    let (mut first, mut later) = (Picture::black(source.size()), Picture::black(source.size()));
    assert_eq!(source.next(&mut first), Ok(true));
    assert_eq!(source.advance_to(1_000, &mut later), Ok(true));
    assert!(first == later);
    assert_eq!(source.picture(), None, "each frame is encoded");
    assert_eq!(source.colour().matrix, 6, "of a small RGB picture");
}

/// A stream that begins between two key frames starts with the next one.
#[test]
fn a_transport_stream_is_joined_at_the_next_key_frame() {
    let Some(whole) = film(
        "whole.ts",
        "testsrc2=size=320x180:rate=25",
        "-t 4 -c:v libx264 -g 50 -x264-params scenecut=0 -bsf:v dump_extra -f mpegts",
    ) else {
        return;
    };
    let bytes = fs::read(&whole).unwrap();
    // A fifth of the stream, and a part of a packet.
    let joined = path("joined.ts");
    fs::write(&joined, &bytes[bytes.len() / 5 + 37..]).unwrap();
    let mut source = open(&joined);
    assert_eq!(source.size(), Size::new(320, 180).unwrap());
    let mut picture = Picture::black(source.size());
    let mut pictures = 0;
    while source.next(&mut picture).unwrap() {
        pictures += 1;
    }
    assert!((45..=50).contains(&pictures), "{pictures} pictures");
    // All of a stream without a key frame.
    let none = path("none.ts");
    fs::write(&none, &bytes[bytes.len() / 5..bytes.len() / 4]).unwrap();
    let error = FileSource::open(text(&none), FileOptions::default()).unwrap_err();
    assert!(matches!(error, SourceError::NoVideo { .. }), "{error}");
}

/// Half pictures of two times show combs at moving edges.
#[test]
fn interlaced_pictures_are_deinterlaced() {
    let Some(path) = film(
        "interlaced.mpg",
        "testsrc2=size=320x240:rate=50",
        "-t 1 -vf tinterlace=mode=interleave_top,setfield=tff -c:v mpeg2video -q:v 2 \
         -flags +ildct+ilme",
    ) else {
        return;
    };
    let mut source = open(&path);
    assert_eq!(source.changes(), ["deinterlaced"]);
    assert_eq!(source.frame_rate(), FrameRate::fps(25));
    let mut picture = Picture::black(source.size());
    let mut pictures = 0;
    let mut combs = 0.0;
    while source.next(&mut picture).unwrap() {
        pictures += 1;
        combs = comb(&picture);
    }
    assert!((24..=25).contains(&pictures), "{pictures} pictures");
    let Some(progressive) = film(
        "progressive.mpg",
        "testsrc2=size=320x240:rate=25",
        "-t 1 -c:v mpeg2video -q:v 2",
    ) else {
        return;
    };
    let mut source = open(&progressive);
    let mut picture = Picture::black(source.size());
    assert_eq!(source.advance_to(23, &mut picture), Ok(true));
    let natural = comb(&picture);
    assert!(combs < natural * 1.3, "{combs} {natural}");
}

/// Mean difference of a row to those above and below it, where these are alike.
fn comb(picture: &Picture) -> f64 {
    let width = picture.size().width() as usize;
    let y = picture.planes().y;
    let rows = y
        .chunks(width)
        .zip(y.chunks(width).skip(1))
        .zip(y.chunks(width).skip(2));
    let samples = rows.flat_map(|((a, b), c)| a.iter().zip(b).zip(c));
    let alike = samples.filter(|((a, _), c)| a.abs_diff(**c) < 8);
    let differences = alike.map(|((a, b), _)| f64::from(b.abs_diff(*a)));
    differences.sum::<f64>() / y.len() as f64
}

#[test]
fn other_formats_become_4_2_0_with_8_bits() {
    let Some(path) = film(
        "deep.mkv",
        "testsrc2=size=320x180:rate=25",
        "-t 1 -pix_fmt yuv444p10le -c:v ffv1",
    ) else {
        return;
    };
    let mut source = open(&path);
    assert_eq!(source.changes(), ["yuv444p10le to 4:2:0 with 8 bits"]);
    let Some(shallow) = film(
        "shallow.mkv",
        "testsrc2=size=320x180:rate=25",
        "-t 1 -pix_fmt yuv420p -c:v ffv1",
    ) else {
        return;
    };
    let mut plain = open(&shallow);
    assert!(plain.changes().is_empty(), "{:?}", plain.changes());
    let (mut seen, mut wanted) = (Picture::black(source.size()), Picture::black(plain.size()));
    assert_eq!(source.next(&mut seen), Ok(true));
    assert_eq!(plain.next(&mut wanted), Ok(true));
    let like = quality(&wanted, &seen).unwrap();
    assert!(like.psnr_y > 45.0 && like.psnr_u > 30.0, "{like:?}");
}

#[test]
fn full_range_becomes_limited() {
    let Some(path) = film(
        "full.mkv",
        "color=white:size=64x48:rate=25",
        "-t 1 -vf scale=out_range=full,format=yuvj420p -c:v mjpeg -q:v 2",
    ) else {
        return;
    };
    let mut source = open(&path);
    assert_eq!(source.changes(), ["full range to limited"]);
    let mut picture = Picture::black(source.size());
    assert_eq!(source.next(&mut picture), Ok(true));
    let white = picture.planes().y[1_000];
    assert!((234..=236).contains(&white), "{white}");
}

#[test]
fn received_pictures_of_full_range_become_limited() {
    for (colour, luma) in [("white", 235), ("black", 16)] {
        let source = format!("color={colour}:size=64x48:rate=25");
        let options =
            "-frames:v 1 -vf scale=out_range=full,format=yuvj420p -c:v libx264 -bf 0 -qp 1";
        let Some(path) = film(&format!("{colour}.h264"), &source, options) else {
            return;
        };
        let mut decoder = Decoder::open(Codec::H264).unwrap();
        let unit = fs::read(path).unwrap();
        let picture = decoder.decode(&unit).picture().unwrap();
        let planes = picture.planes();
        assert!(planes.y[1_000].abs_diff(luma) <= 1, "{}", planes.y[1_000]);
        assert!(planes.u[100].abs_diff(128) <= 1, "{}", planes.u[100]);
    }
}

#[test]
fn the_colour_description_is_kept_in_the_stream() {
    let Some(path) = film(
        "tagged.mp4",
        "testsrc2=size=320x180:rate=25",
        "-t 1 -c:v libx264 -color_primaries bt470bg -color_trc bt709 -colorspace smpte170m",
    ) else {
        return;
    };
    let source = open(&path);
    let colour = Colour {
        primaries: 5,
        transfer: 1,
        matrix: 6,
    };
    assert_eq!(source.colour(), colour);
    let mut session = EncoderSession::open(Box::new(source), |_| {}).unwrap();
    let order = FrameOrder {
        frame: 0,
        captured: Time::ZERO,
        rate: Rate::kbps(500),
        key: true,
    };
    let sent = crate::path("sent.h264");
    let data = session.encode(&order).unwrap().data;
    fs::write(&sent, &data).unwrap();
    assert_eq!(open(&sent).colour(), colour);
    let mut decoder = Decoder::open(Codec::H264).unwrap();
    assert!(decoder.decode(&data).picture().is_some());
    assert_eq!(decoder.colour(), colour);
}

#[test]
fn high_dynamic_range_is_refused() {
    for (transfer, name) in [("smpte2084", "PQ"), ("arib-std-b67", "HLG")] {
        let options = format!(
            "-t 1 -pix_fmt yuv420p10le -c:v ffv1 -color_primaries bt2020 -color_trc {transfer} \
             -colorspace bt2020nc"
        );
        let file = format!("{name}.mkv");
        let Some(path) = film(&file, "testsrc2=size=320x180:rate=25", &options) else {
            return;
        };
        let error = FileSource::open(text(&path), FileOptions::default()).unwrap_err();
        assert!(
            matches!(error, SourceError::HighDynamicRange { .. }),
            "{error}"
        );
        let said = error.to_string();
        assert!(
            said.contains(&file) && said.contains(name) && said.contains("tonemap"),
            "{said}"
        );
    }
}

/// Level 5.2 of ITU-T H.264 table A-1 permits 3840x2160 at 60 frames per second.
#[test]
fn ultra_high_definition_is_encoded_and_decoded() {
    let size = Size::new(3840, 2160).unwrap();
    let mut config = X264Config::new(size, FrameRate::fps(60));
    config.preset = Preset::Ultrafast;
    let mut encoder = X264Encoder::open(config).unwrap();
    let coded = encoder.encode(&Picture::black(size), Rate::kbps(8_000), true);
    let data = coded.unwrap().data;
    let (sps, _) = h264::parameter_sets(&data).unwrap();
    assert_eq!(sps[3], 52);
    let mut decoder = Decoder::open(Codec::H264).unwrap();
    assert!(
        decoder
            .decode(&data)
            .picture()
            .is_some_and(|picture| picture.size() == size)
    );
}

/// The decoder returns pictures in display order, each with the place of its access unit.
#[test]
fn b_pictures_are_decoded_in_display_order() {
    let options = "-t 2 -c:v libx264 -bf 2 -x264-params aud=1:b-adapt=0:scenecut=0";
    let Some(path) = film("order.h264", "testsrc2=size=320x180:rate=30", options) else {
        return;
    };
    let (bytes, raw) = (fs::read(&path).unwrap(), crate::path("order.yuv"));
    assert!(run(&[
        "-i",
        text(&path),
        "-pix_fmt",
        "yuv420p",
        "-f",
        "rawvideo",
        text(&raw)
    ]));
    let wanted = fs::read(raw).unwrap();
    let wanted: Vec<&[u8]> = wanted.chunks(320 * 180 * 3 / 2).collect();
    let mut decoder = Decoder::open(Codec::H264).unwrap();
    let (mut shown, mut units, mut delayed) = (0, Vec::new(), 0);
    for (n, unit) in access_units(&bytes).into_iter().enumerate() {
        match decoder.decode(unit) {
            Decoded::Delayed => delayed += 1,
            Decoded::Whole(picture) => {
                assert!(picture.as_i420() == wanted[shown], "picture {shown}");
                shown += 1;
                units.push(n - usize::from(decoder.behind()));
            }
            other => panic!("unit {n}: {other:?}"),
        }
    }
    assert_eq!((shown, delayed, decoder.errors()), (58, 2, 0));
    // I, then each P before the two B pictures that are shown before it.
    assert_eq!(units[..7], [0, 2, 3, 1, 5, 6, 4]);
    units.sort_unstable();
    units.dedup();
    assert_eq!(units.len(), shown, "each unit has one picture");
}

/// Access units, each of which begins with a delimiter (NAL unit type 9).
fn access_units(bytes: &[u8]) -> Vec<&[u8]> {
    let is_start = |at: &usize| bytes[*at..].starts_with(&[0, 0, 0, 1, 9]);
    let mut starts: Vec<usize> = (0..bytes.len()).filter(is_start).collect();
    starts.push(bytes.len());
    starts
        .windows(2)
        .map(|pair| &bytes[pair[0]..pair[1]])
        .collect()
}

/// Makes a film of a generated picture; `None` without the program.
fn film(name: &str, source: &str, options: &str) -> Option<PathBuf> {
    let path = path(name);
    let mut words = vec!["-f", "lavfi", "-i", source];
    words.extend(options.split_whitespace());
    words.push(text(&path));
    match Command::new("ffmpeg").arg("-version").output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        _ => {
            assert!(run(&words), "ffmpeg {words:?}");
            Some(path)
        }
    }
}

fn run(arguments: &[&str]) -> bool {
    let mut command = Command::new("ffmpeg");
    command
        .args(["-nostdin", "-loglevel", "error", "-y"])
        .args(arguments);
    command.output().is_ok_and(|output| output.status.success())
}

fn open(path: &Path) -> FileSource {
    FileSource::open(text(path), FileOptions::default()).unwrap()
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
