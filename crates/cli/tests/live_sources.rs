//! `tidegate send` of live sources without timestamps: the pictures are sent when they arrive.

mod calm;
#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read as _, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use calm::judged;
use program::{Program, Scratch, load, text};
use tidegate_core::media::FrameRate;
use tidegate_core::units::{Rate, Time};
use tidegate_live::clock::Clock;
use tidegate_media::{
    Picture, PictureEncoder as _, Preset, Scene, Size, X264Config, X264Encoder, jpeg,
};
use tidegate_record::{FrameKind, SentFrame};

const SECONDS: u64 = 6;

fn scene() -> (Scene, Picture) {
    let size = Size::new(320, 180).unwrap();
    (Scene::new(5, size), Picture::black(size))
}

/// Calls `write` with the number of each picture when it is due.
fn paced(rate: u64, mut write: impl FnMut(u64) -> io::Result<()>) -> io::Result<()> {
    let (clock, (_never, alarm)) = (Clock::start(), channel::<()>());
    for picture in 0..SECONDS * rate {
        let at = Time::from_millis(picture * 1_000 / rate);
        let _ = alarm.recv_timeout(clock.until(at));
        write(picture)?;
    }
    Ok(())
}

/// Streams from `input` and checks that each of the pictures is sent, and at the time of its arrival.
fn check(scratch: &Scratch, input: &str, options: &str, rate: u64) {
    let sent = scratch.path("sent");
    let mut receiver = Program::tidegate("recv --listen 127.0.0.1:0");
    let port = receiver.number("waiting for a stream at port ");
    let sender = Program::tidegate(&format!(
        "send --to 127.0.0.1:{port} --input {input} --adapt no --reconnect no --run {} {options}",
        text(&sent)
    ));
    let sender = sender.wait();
    receiver.wait().succeeded();
    let flow = load(&sent).flows.remove(0);
    let encoded = |row: &&SentFrame| row.kind != FrameKind::Skipped;
    let encoded: Vec<_> = flow.sent.iter().filter(encoded).collect();
    // FFmpeg's probing takes up to a second of them.
    let (least, most) = ((SECONDS - 2) * rate, SECONDS * rate + 2);
    let count = encoded.len() as u64;
    assert!(
        (least..=most).contains(&count),
        "{count} pictures: {}",
        sender.said
    );
    // A stream that falls behind goes on after the last picture.
    let span = encoded.last().unwrap().captured.since(encoded[0].captured);
    assert!(
        span <= Duration::from_millis(SECONDS * 1_000 + 200),
        "{span:?}: {}",
        sender.said
    );
}

#[test]
fn raw_h264_in_a_pipe() {
    for (rate, options) in [(50, ""), (30, "--fps 30"), (15, "")] {
        let test = format!("pipe{rate}");
        judged(&test, || {
            let scratch = Scratch::new(&test);
            let pipe = scratch.path("camera");
            let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
            // SAFETY: a system call that reads a string.
            assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
            let input = pipe.clone();
            let camera = thread::spawn(move || {
                let (scene, mut picture) = scene();
                let mut config = X264Config::new(scene.size(), FrameRate::fps(rate as u32));
                config.preset = Preset::Ultrafast;
                let mut encoder = X264Encoder::open(config).unwrap();
                let mut pipe = File::create(pipe).unwrap();
                paced(rate, |n| {
                    scene.render(n, &mut picture);
                    let coded = encoder.encode(&picture, Rate::kbps(800), n % rate == 0);
                    pipe.write_all(&coded.unwrap().data)
                })
            });
            check(&scratch, text(&input), options, rate);
            camera.join().unwrap().unwrap();
        });
    }
}

#[test]
fn jpeg_pictures_over_http() {
    judged("jpeg_pictures_over_http", || {
        let scratch = Scratch::new("http");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let input = format!("http://{}/video.mjpg", listener.local_addr().unwrap());
        let camera = thread::spawn(move || {
            let (scene, mut picture) = scene();
            let (mut viewer, _) = listener.accept()?;
            let _ = viewer.read(&mut [0; 4096])?;
            viewer.write_all(
                b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n",
            )?;
            paced(15, |n| {
                scene.render(n, &mut picture);
                let data = jpeg(&picture).unwrap();
                write!(
                    viewer,
                    "--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n",
                    data.len()
                )?;
                viewer.write_all(&data)?;
                viewer.write_all(b"\r\n")
            })
        });
        check(&scratch, &input, "", 15);
        camera.join().unwrap().unwrap();
    });
}

#[test]
fn a_camera_that_reboots_is_opened_again() {
    judged("a_camera_that_reboots_is_opened_again", || {
        let scratch = Scratch::new("reboot");
        let titles = scratch.path("titles");
        fs::create_dir_all(&titles).unwrap();
        let (scene, mut picture) = scene();
        let config = X264Config::new(scene.size(), FrameRate::fps(25));
        let mut encoder = X264Encoder::open(config).unwrap();
        let pictures = (0..500).flat_map(|n| {
            scene.render(n, &mut picture);
            let coded = encoder.encode(&picture, Rate::kbps(300), n % 25 == 0);
            coded.unwrap().data
        });
        fs::write(titles.join("camera.h264"), pictures.collect::<Vec<u8>>()).unwrap();
        let start = |port: u16| {
            let line = format!("serve {} --listen 127.0.0.1:{port}", text(&titles));
            let mut camera = Program::tidegate(&line);
            let port = camera.number(" at rtsp://127.0.0.1:");
            (camera, port)
        };
        let (camera, port) = start(0);
        let mut receiver = Program::tidegate("recv --listen 127.0.0.1:0");
        let to = receiver.number("waiting for a stream at port ");
        let mut sender = Program::tidegate(&format!(
            "send --to 127.0.0.1:{to} --input rtsp://127.0.0.1:{port}/camera.h264 --duration 15s"
        ));
        receiver.wait_for_line("the stream has started");
        camera.interrupt();
        camera.wait();
        sender.wait_for_line("the source stalls");
        let (camera, _) = start(port);
        sender.wait_for_line("the source continues after ");
        sender.wait_for_line(" of ");
        sender.interrupt();
        sender.wait().succeeded();
        let got = receiver.wait();
        let said = &got.succeeded().said;
        assert!(said.contains(", with a gap of "), "{said}");
        camera.interrupt();
        camera.wait();
    });
}
