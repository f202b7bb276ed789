//! `tidegate serve`: players of other projects, several clients, and bad requests.

#[path = "../calm/mod.rs"]
mod calm;
#[path = "../program/mod.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

mod files;
mod interleaved;
mod players;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use calm::judged;
use program::{Program, Scratch, text};
use tidegate_core::media::FrameRate;
use tidegate_core::units::Rate;
use tidegate_core::wire::rtcp::{self, Rtcp};
use tidegate_media::{
    Picture, PictureEncoder as _, Preset, Scene, SceneSource, Size, VideoSource as _, X264Config,
    X264Encoder,
};

/// `ffmpeg` decodes every frame of a title with the content of the file.
#[test]
fn ffmpeg_plays_a_title_with_all_frames() {
    if !has("ffmpeg", &["-version"]) {
        return;
    }
    let folder = Scratch::new("serve-ffmpeg");
    write_video(&folder.path("clip.h264"), 125, 300);
    let server = Server::start(&folder.path("."), "");
    let played = ffmpeg(&["-rtsp_transport", "udp", "-i", &server.url("clip.h264")]);
    let stored = ffmpeg(&["-i", text(&folder.path("clip.h264"))]);
    assert_eq!(stored.len(), 125);
    assert_eq!(played, stored);
    let end = server.end();
    assert!(
        end.contains("clip.h264: 125 frames sent, 0 dropped"),
        "{end}"
    );
    assert!(end.contains("served 1 stream, 125 frames"), "{end}");
}

/// An MP4 with B-frames has decoding times apart from display times, and lengths instead of start codes.
#[test]
fn ffmpeg_plays_an_mp4_with_b_frames() {
    if !has("ffmpeg", &["-version"]) {
        return;
    }
    let folder = Scratch::new("serve-mp4");
    let file = folder.path("clip.mp4");
    let options =
        "testsrc2=size=320x180:rate=25 -t 3 -c:v libx264 -preset veryfast -bf 2 -g 25 -b:v 300k";
    make_video(options, &file);
    let server = Server::start(&folder.path("."), "");
    let played = ffmpeg(&["-rtsp_transport", "udp", "-i", &server.url("clip.mp4")]);
    assert_eq!(played, ffmpeg(&["-i", text(&file)]));
    assert_eq!(played.len(), 75);
    server.end();
}

/// Renditions of 1 and 5 Mb/s: the higher one is more than twice what a controller allows after the lower
/// one has arrived, so that only padding leads to it. ffmpeg shows every frame, and discards the padding.
#[test]
fn a_rendition_of_five_times_the_rate_is_reached() {
    if has("ffmpeg", &["-version"]) {
        judged("a_rendition_of_five_times_the_rate_is_reached", climb);
    }
}

fn climb() {
    let folder = Scratch::new("serve-climb");
    fs::create_dir(folder.path("clip")).unwrap();
    for (name, kbps) in [("low.h264", 1_000), ("high.h264", 5_000)] {
        let options = format!(
            "testsrc2=size=320x180:rate=25,noise=alls=40:allf=t -t 20 -c:v libx264 -preset ultrafast -g 25 \
             -sc_threshold 0 -b:v {kbps}k -maxrate {kbps}k -bufsize {kbps}k"
        );
        make_video(&options, &folder.path("clip").join(name));
    }
    let server = Server::start(&folder.path("."), "--json-lines");
    let played = ffmpeg(&["-rtsp_transport", "udp", "-i", &server.url("clip")]);
    assert_eq!(played.len(), 500);
    let end = server.finish();
    assert!(
        end.said.contains("500 frames sent, 0 dropped"),
        "{}",
        end.said
    );
    assert!(
        end.output.contains("\"rendition\":\"high.h264\""),
        "{}",
        end.output
    );
}

/// A live encode: the pictures differ from those of the file, and all arrive.
#[test]
fn ffmpeg_plays_a_title_that_is_encoded_for_it() {
    if !has("ffmpeg", &["-version"]) {
        return;
    }
    let folder = Scratch::new("serve-encode");
    write_video(&folder.path("clip.h264"), 75, 300);
    let server = Server::start(&folder.path("."), "--encode");
    let played = ffmpeg(&["-rtsp_transport", "udp", "-i", &server.url("clip.h264")]);
    let stored = ffmpeg(&["-i", text(&folder.path("clip.h264"))]);
    assert_eq!(played.len(), stored.len());
    assert!(
        played
            .iter()
            .zip(&stored)
            .all(|(played, stored)| played != stored)
    );
    let mut client = Client::connect(server.port);
    client.play("clip.h264");
    client.packet();
    let answer = client.ask("PLAY", "clip.h264", "Range: npt=1-\r\n");
    assert!(answer.starts_with("RTSP/1.0 457 "), "{answer}");
    server.end();
}

#[test]
fn several_clients_are_served_at_the_same_time() {
    let folder = Scratch::new("serve-several");
    write_video(&folder.path("one.h264"), 50, 200);
    fs::create_dir(folder.path("two")).unwrap();
    write_video(&folder.path("two/low.h264"), 50, 200);
    write_video(&folder.path("two/high.h264"), 50, 600);
    let server = Server::start(&folder.path("."), "--json-lines");
    let port = server.port;
    let clients = ["one.h264", "two", "one.h264", "two"].map(|title| {
        thread::spawn(move || {
            let mut client = Client::connect(port);
            client.play(title);
            client.packets_to_the_end()
        })
    });
    for packets in clients.map(|client| client.join().unwrap()) {
        assert!(packets >= 50, "{packets} packets");
    }
    let end = server.finish();
    assert!(
        end.said.contains("served 4 streams, 200 frames"),
        "{}",
        end.said
    );
    assert!(end.output.contains("\"title\":\"two\""), "{}", end.output);
    assert!(
        end.output.contains("\"rendition\":\"low.h264\""),
        "{}",
        end.output
    );
}

#[test]
fn a_stream_pauses_seeks_and_continues() {
    let folder = Scratch::new("serve-pause");
    write_video(&folder.path("clip.h264"), 100, 200);
    let server = Server::start(&folder.path("."), "");
    let mut client = Client::connect(server.port);
    client.play("clip.h264");
    client.packet();
    let answer = client.ask("PAUSE", "clip.h264", "");
    assert!(answer.starts_with("RTSP/1.0 200 "), "{answer}");
    // Key frames are 25 frames apart.
    let answer = client.ask("PLAY", "clip.h264", "Range: npt=3.2-\r\n");
    assert!(answer.contains("Range: npt=3.000-4.000\r\n"), "{answer}");
    let packets = client.packets_to_the_end();
    assert!(
        (25..80).contains(&packets),
        "{packets} packets of the last second"
    );
    let answer = client.ask("PLAY", "clip.h264", "");
    assert!(answer.starts_with("RTSP/1.0 455 "), "{answer}");
    server.end();
}

#[test]
fn bad_requests_have_their_status_and_harm_no_stream() {
    let folder = Scratch::new("serve-bad");
    write_video(&folder.path("clip.h264"), 75, 200);
    fs::write(folder.path("broken.mp4"), "no video").unwrap();
    fs::write(folder.path("notes.txt"), "no video").unwrap();
    let server = Server::start(&folder.path("."), "--max-streams-per-client 2");
    let mut viewer = Client::connect(server.port);
    viewer.play("clip.h264");
    let mut client = Client::connect(server.port);
    let setup = "Transport: RTP/SAVP;unicast;client_port=5000-5001\r\n";
    let elsewhere = "Transport: RTP/AVP;unicast;destination=127.0.0.2;client_port=5000-5001\r\n";
    for (method, title, headers, status) in [
        ("DESCRIBE", "none.h264", "", 404),
        ("DESCRIBE", "notes.txt", "", 404),
        ("DESCRIBE", "..%2fclip.h264", "", 404),
        ("DESCRIBE", "broken.mp4", "", 415),
        ("SETUP", "clip.h264", setup, 461),
        ("SETUP", "clip.h264", elsewhere, 463),
        ("PLAY", "clip.h264", "", 454),
        (
            "SETUP",
            "clip.h264",
            "Transport: RTP/AVP;unicast;client_port=5000-5001\r\n",
            200,
        ),
        (
            "SETUP",
            "clip.h264",
            "Transport: RTP/AVP;unicast;client_port=5000-5001\r\n",
            503,
        ),
    ] {
        let session = client.session.take();
        let answer = client.ask(method, title, headers);
        assert!(
            answer.starts_with(&format!("RTSP/1.0 {status} ")),
            "{status}: {answer}"
        );
        client.session = session;
    }
    let mut garbage = Client::connect(server.port);
    garbage.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    garbage.stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("RTSP/1.0 400 "), "{answer}");
    // A file that appears later is served.
    write_video(&folder.path("later.h264"), 25, 200);
    let answer = client.ask("DESCRIBE", "later.h264", "");
    assert!(answer.starts_with("RTSP/1.0 200 "), "{answer}");
    assert!(viewer.packets_to_the_end() >= 75);
    let end = server.end();
    for words in [
        "broken.mp4: cannot read",
        "asks for \"none.h264\": there is no such title",
    ] {
        assert!(end.contains(words), "{end}");
    }
}

/// A store that expects 4 Mb/s, and one that expects 100 kb/s.
#[test]
fn streams_start_from_predictions_and_hopeless_titles_are_refused() {
    let folder = Scratch::new("serve-knowledge");
    fs::create_dir(folder.path("titles")).unwrap();
    fs::create_dir(folder.path("titles/clip")).unwrap();
    write_video(&folder.path("titles/clip/low.h264"), 50, 200);
    write_video(&folder.path("titles/clip/high.h264"), 50, 900);
    let dir = folder.path("titles");
    for (name, bps, options) in [
        ("fast", 4_000_000, ""),
        ("slow", 100_000, "--admission 0.9"),
    ] {
        let store = write_store(&folder, name, bps);
        let options = format!("--knowledge {} {options} --json-lines", text(&store));
        let server = Server::start(&dir, &options);
        let mut client = Client::connect(server.port);
        if name == "slow" {
            for method in ["DESCRIBE", "SETUP"] {
                let headers = "Transport: RTP/AVP;unicast;client_port=5000-5001\r\n";
                let answer = client.ask(method, "clip", headers);
                assert!(
                    answer.starts_with("RTSP/1.0 453 Not Enough Bandwidth: "),
                    "{answer}"
                );
                assert!(answer.contains("100 kb/s expected"), "{answer}");
            }
            let end = server.end();
            assert!(
                end.contains("asks for \"clip\": ") && end.contains(": refused"),
                "{end}"
            );
            continue;
        }
        client.play("clip");
        client.packets_to_the_end();
        let end = server.finish();
        assert!(
            end.output.contains("\"knowledge\":\"hit\""),
            "{}",
            end.output
        );
        if end.said.contains("plays clip, informed start (hit)") {
            // Half of the expected rate carries the higher rendition.
            let low = "\"rendition\":\"low.h264\"";
            assert!(!end.output.contains(low), "{}", end.output);
        } else {
            // The round-trip time of loopback depends on the machine.
            let other = "plays clip, slow start (hit, another round-trip time)";
            assert!(end.said.contains(other), "{}", end.said);
        }
    }
}

/// A store with ten minutes of samples of this host.
fn write_store(folder: &Scratch, name: &str, bps: u64) -> std::path::PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = u64::try_from(now.as_millis()).unwrap();
    let mut rows = b"at_ms,client,scale,rate_bps,rtt_us,loss\n".to_vec();
    for sample in 1..=120 {
        let at = now - 5_000 * sample;
        writeln!(rows, "{at},127.0.0.1,round-trip,{bps},30,0").unwrap();
    }
    let (csv, store) = (folder.path("in.csv"), folder.path(name));
    fs::write(&csv, rows).unwrap();
    let line = format!("knowledge import {} --store {}", text(&csv), text(&store));
    Program::tidegate(&line).wait().succeeded();
    store
}

#[test]
fn wrong_options_are_refused() {
    let folder = Scratch::new("serve-options");
    let dir = folder.path(".");
    for (options, words) in [
        ("--listen 0.0.0.0:0", "--insecure"),
        ("--listen 127.0.0.1:0 --packet-size 10B", "--packet-size"),
        ("--listen 127.0.0.1:0 --delay-bound 0s", "--delay-bound"),
        ("--listen 127.0.0.1:0 --control rcs", "--control rcs"),
        ("--listen 127.0.0.1:0 --admission 0.5", "--knowledge"),
        ("--knowledge k.db --admission 2", "is not a quantile"),
        (
            "--knowledge k.db --control fixed:1Mb/s",
            "requires rate control",
        ),
    ] {
        let run = Program::tidegate(&format!("serve {} {options}", text(&dir))).wait();
        run.failed_with(words);
    }
    let missing = folder.path("none");
    let run = Program::tidegate(&format!("serve {}", text(&missing))).wait();
    run.failed_with("cannot read the folder");
}

/// A running server.
struct Server {
    program: Program,
    port: u16,
}

impl Server {
    fn start(dir: &Path, options: &str) -> Self {
        let line = format!("serve {} --listen 127.0.0.1:0 {options}", text(dir));
        let mut program = Program::tidegate(&line);
        let port = program.number(" at rtsp://127.0.0.1:");
        Self { program, port }
    }

    fn url(&self, title: &str) -> String {
        format!("rtsp://127.0.0.1:{}/{title}", self.port)
    }

    /// Interrupts the server and returns its messages.
    fn end(self) -> String {
        self.finish().said
    }

    fn finish(self) -> program::ProgramResult {
        self.program.interrupt();
        let result = self.program.wait();
        result.succeeded();
        result
    }
}

/// An RTSP client.
struct Client {
    stream: TcpStream,
    media: UdpSocket,
    /// Kept open, so that reports are not refused.
    control: UdpSocket,
    port: u16,
    session: Option<String>,
}

impl Client {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let any = || UdpSocket::bind("127.0.0.1:0").unwrap();
        Self {
            stream,
            media: any(),
            control: any(),
            port,
            session: None,
        }
    }

    /// Sends a request and returns the header of the response.
    fn ask(&mut self, method: &str, title: &str, headers: &str) -> String {
        let session = self.session.as_ref();
        let session = session.map_or_else(String::new, |id| format!("Session: {id}\r\n"));
        let url = format!("rtsp://127.0.0.1:{}/{title}", self.port);
        let request = format!("{method} {url} RTSP/1.0\r\nCSeq: 1\r\n{session}{headers}\r\n");
        self.stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") {
            self.stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        let answer = String::from_utf8(answer).unwrap();
        let length = value(&answer, "Content-Length: ").map_or(0, |n| n.parse().unwrap());
        self.stream.read_exact(&mut vec![0; length]).unwrap();
        answer
    }

    fn play(&mut self, title: &str) {
        let [media, control] = [&self.media, &self.control];
        let [media, control] = [media, control].map(|s| s.local_addr().unwrap().port());
        let ports = format!("Transport: RTP/AVP;unicast;client_port={media}-{control}\r\n");
        let answer = self.ask("SETUP", title, &ports);
        let session = value(&answer, "Session: ").unwrap_or_else(|| panic!("{answer}"));
        self.session = session.split(';').next().map(str::to_owned);
        let answer = self.ask("PLAY", title, "Range: npt=0-\r\n");
        assert!(answer.starts_with("RTSP/1.0 200 "), "{answer}");
    }

    /// Waits for a media packet.
    fn packet(&self) {
        let mut buffer = [0; 2_048];
        self.media.recv(&mut buffer).unwrap();
    }

    /// Counts the media packets before the BYE.
    fn packets_to_the_end(&self) -> usize {
        let mut buffer = [0; 2_048];
        loop {
            let length = self.control.recv(&mut buffer).unwrap();
            let mut packets = rtcp::packets(&buffer[..length]).flatten();
            if packets.any(|packet| matches!(packet, Rtcp::Bye(_))) {
                break;
            }
        }
        self.media.set_nonblocking(true).unwrap();
        let mut packets = 0;
        while self.media.recv(&mut buffer).is_ok() {
            packets += 1;
        }
        packets
    }
}

/// Value of a header.
fn value<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = answer.split_once(name)?;
    rest.split("\r\n").next()
}

/// Encodes a generated video with ffmpeg.
fn make_video(options: &str, path: &Path) {
    let mut command = Command::new("ffmpeg");
    let command = command.args("-v error -y -f lavfi -i".split(' '));
    let made = command.args(options.split(' ')).arg(path).status();
    assert!(made.unwrap().success());
}

/// Hashes of the decoded pictures of an input.
fn ffmpeg(input: &[&str]) -> Vec<String> {
    let output = Command::new("ffmpeg")
        .args(["-v", "error"])
        .args(input)
        .args("-fps_mode passthrough -f framemd5 -".split(' '))
        .output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let lines = String::from_utf8(stdout).unwrap();
    let rows = lines.lines().filter(|line| !line.starts_with('#'));
    let hashes = rows.filter_map(|row| row.rsplit(' ').next());
    hashes.map(str::to_owned).collect()
}

/// Whether a program runs here; prints a message if it does not.
fn has(program: &str, arguments: &[&str]) -> bool {
    let found = Command::new(program).args(arguments).output();
    let found = found.is_ok_and(|found| found.status.success());
    if !found {
        not_judged(&format!("no {program} {} here", arguments.join(" ")));
    }
    found
}

/// Says why a test, or a part of it, is left out. The test harness captures the output of passing tests.
fn not_judged(why: &str) {
    let mut terminal = io::stderr();
    writeln!(terminal, "not judged: {why}").unwrap();
}

/// Writes an H.264 byte stream at 25 frames/s, with a key frame per second.
fn write_video(path: &Path, frames: u64, kbps: u64) {
    let size = Size::new(160, 96).unwrap();
    let rate = FrameRate::fps(25);
    let mut config = X264Config::new(size, rate);
    config.preset = Preset::Ultrafast;
    let mut encoder = X264Encoder::open(config).unwrap();
    let mut source = SceneSource::new(Scene::new(1, size), rate);
    let mut picture = Picture::black(size);
    let mut bytes = Vec::new();
    for number in 0..frames {
        source.next(&mut picture).unwrap();
        let coded = encoder.encode(&picture, Rate::kbps(kbps), number % 25 == 0);
        bytes.extend(coded.unwrap().data);
    }
    fs::write(path, bytes).unwrap();
}
