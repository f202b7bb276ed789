//! Players of other projects show a title of 30 s, side by side.

use std::process::Command;
use std::time::{Duration, Instant};

use super::program::{Program, ProgramResult, Scratch};
use super::{Server, has, not_judged, write_video};

/// 30 s at 25 frames per second.
const FRAMES: usize = 750;

/// A player that is installed here.
struct Player {
    name: &'static str,
    command: Command,
    /// Number of pictures that it has shown, if it says so.
    shown: fn(&ProgramResult) -> Option<usize>,
}

#[test]
fn players_show_a_title_of_30_seconds() {
    let folder = Scratch::new("serve-players");
    write_video(&folder.path("clip.h264"), FRAMES as u64, 300);
    let server = Server::start(&folder.path("."), "");
    let url = server.url("clip.h264");
    let players = [ffplay(&url), gstreamer(&url), vlc(&url)];
    let mut players: Vec<Player> = players.into_iter().flatten().collect();
    let begin = Instant::now();
    let start = |player: &mut Player| Program::start(&mut player.command);
    let running: Vec<Program> = players.iter_mut().map(start).collect();
    for (player, running) in players.iter().zip(running) {
        let played = running.wait();
        let (name, said) = (player.name, &played.said);
        assert!(played.status.success(), "{name}: {said}");
        if let Some(shown) = (player.shown)(&played) {
            assert_eq!(shown, FRAMES, "{name}: {said}");
        }
        // The last picture is due 29.96 s after the first one.
        let lasted = begin.elapsed();
        assert!(
            lasted >= Duration::from_millis(29_960),
            "{name}: {lasted:?}"
        );
    }
    let end = server.end();
    assert!(end.contains("clip.h264: 30.0 s, 25 frames/s"), "{end}");
    let whole = format!("clip.h264: {FRAMES} frames sent, 0 dropped");
    assert_eq!(end.matches(&whole).count(), players.len(), "{end}");
}

/// Without a display. A filter prints a line for each picture.
fn ffplay(url: &str) -> Option<Player> {
    if !has("ffplay", &["-version"]) {
        return None;
    }
    let mut command = Command::new("ffplay");
    command
        .env("SDL_VIDEODRIVER", "dummy")
        .args("-nostats -an -autoexit -noframedrop -vf showinfo -rtsp_transport udp -i".split(' '));
    command.arg(url);
    Some(Player {
        name: "ffplay",
        command,
        shown: |played| Some(played.said.matches(" pts_time:").count()),
    })
}

/// The sink waits until a picture is due, as one with a window does.
fn gstreamer(url: &str) -> Option<Player> {
    if !has("gst-inspect-1.0", &["rtspsrc"]) || !has("gst-inspect-1.0", &["avdec_h264"]) {
        return None;
    }
    let mut command = Command::new("gst-launch-1.0");
    command
        .args(["-v", "rtspsrc", &format!("location={url}"), "protocols=udp"])
        .args("! rtph264depay ! avdec_h264 ! fakesink name=seen silent=false sync=true".split(' '));
    Some(Player {
        name: "GStreamer",
        command,
        shown: |played| Some(played.output.matches("seen: last-message = chain").count()),
    })
}

/// VLC needs live555 for RTSP, which the packages of Debian lack, and does not run as root.
fn vlc(url: &str) -> Option<Player> {
    let modules = Command::new("cvlc").arg("--list").output();
    let is_capable = modules.is_ok_and(|modules| {
        modules.status.success() && String::from_utf8_lossy(&modules.stdout).contains("live555")
    });
    if !is_capable {
        not_judged("no VLC with live555 here");
        return None;
    }
    let mut command = Command::new("cvlc");
    command
        .args("--intf dummy --vout dummy --aout dummy --play-and-exit".split(' '))
        .arg(url);
    Some(Player {
        name: "VLC",
        command,
        shown: |_| None,
    })
}
