//! Files with other properties than those of this project's encoder.

use std::fs;

use super::program::{Scratch, text};
use super::{Server, ffmpeg, has, make_video};

/// One IDR picture, and then I pictures with a recovery point, whose leading pictures refer to the
/// group before. The decoder that starts at one shows the same pictures as for the whole file.
#[test]
fn recovery_points_are_indexed_and_found() {
    if !has("ffmpeg", &["-version"]) {
        return;
    }
    let folder = Scratch::new("serve-open");
    let clip = "testsrc2=size=320x180:rate=25 -t 6 -c:v libx264 -preset ultrafast -g 25 -b:v 300k";
    for (name, options) in [
        ("open.mp4", "-bf 3 -x264-params open-gop=1:scenecut=0"),
        ("raw.h264", "-bf 3 -x264-params open-gop=1:scenecut=0"),
        ("refresh.mp4", "-x264-params intra-refresh=1:scenecut=0"),
    ] {
        make_video(&format!("{clip} {options}"), &folder.path(name));
    }
    let server = Server::start(&folder.path("."), "");
    let stored = ffmpeg(&["-i", text(&folder.path("open.mp4"))]);
    let rtsp = ["-rtsp_transport", "udp"];
    let played = ffmpeg(&[&rtsp[..], &["-i", &server.url("open.mp4")]].concat());
    assert_eq!(played, stored);
    // FFmpeg shows the access point, and drops some pictures behind it, as behind an IDR picture.
    let seek = |name| {
        let rest = ffmpeg(&[&rtsp[..], &["-ss", "4", "-i", &server.url(name)]].concat());
        assert!((40..=50).contains(&rest.len()), "{name}: {}", rest.len());
        rest
    };
    let rest = seek("open.mp4");
    assert!(rest[0] == stored[100] && stored.ends_with(&rest[1..]));
    let stored = ffmpeg(&["-i", text(&folder.path("raw.h264"))]);
    assert!(stored.ends_with(&seek("raw.h264")[1..]));
    // The recovery takes up to a second, and begins before the requested position.
    seek("refresh.mp4");
    let end = server.end();
    for name in ["open.mp4", "raw.h264", "refresh.mp4"] {
        let is_named = |line: &str| line.contains(name) && line.contains(", 6 key frames");
        assert!(end.lines().any(is_named), "{end}");
    }
}

#[test]
fn files_that_cannot_be_served_are_named_with_the_fix() {
    if !has("ffmpeg", &["-version"]) {
        return;
    }
    let folder = Scratch::new("serve-others");
    let clip = "testsrc2=size=64x48:rate=25 -t 1 -c:v libx264 -preset ultrafast";
    make_video(clip, &folder.path("clip.mp4"));
    make_video(clip, &folder.path("film.mkv"));
    fs::create_dir(folder.path("talk")).unwrap();
    make_video(clip, &folder.path("talk/low.ts"));
    let mut turned = fs::read(folder.path("clip.mp4")).unwrap();
    let header = turned.windows(4).position(|name| name == b"tkhd").unwrap();
    // The matrix of the track (ISO/IEC 14496-12 section 8.3.2), for a quarter of a turn.
    let matrix = [0, 1 << 16, 0, -1 << 16, 0, 0, 0, 0, 1 << 30].map(i32::to_be_bytes);
    turned[header + 44..][..36].copy_from_slice(matrix.as_flattened());
    fs::write(folder.path("turned.mp4"), turned).unwrap();
    let list = "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:1,\nclip.mp4\n#EXT-X-ENDLIST\n";
    fs::write(folder.path("list.mp4"), list).unwrap();
    let end = Server::start(&folder.path("."), "").end();
    assert!(
        end.contains("passed over 2 files: film.mkv, talk/low.ts: "),
        "{end}"
    );
    assert!(end.contains("serving 1 title at"), "{end}");
    assert!(end.contains("list.mp4: cannot read "), "{end}");
    assert!(
        end.contains("turned.mp4 have to be turned clockwise"),
        "{end}"
    );
    let end = Server::start(&folder.path("."), "--encode").end();
    assert!(!end.contains("have to be turned"), "{end}");
}
