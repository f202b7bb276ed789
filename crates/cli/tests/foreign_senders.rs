//! `tidegate recv` with streams as other senders make them, over loopback.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use program::{Program, Scratch, free_pair, text};
use tidegate_core::wire::rtcp;
use tidegate_core::wire::rtp::{PayloadType, RtpHeader};

#[test]
fn parameter_sets_of_the_description_are_used() {
    let scratch = Scratch::new("described");
    let film = scratch.path("film.h264");
    let mut sender = Sender::new();
    // Base64 of the two sets below.
    let sdp = sender.description(&scratch, ";sprop-parameter-sets=Z0IAH9o=,aM4=");
    let receiver = format!("recv --sdp {} --out {}", text(&sdp), text(&film));
    let said = sender.play(&receiver, &[SLICES]);
    assert!(said.contains("received 10 whole frames"), "{said}");
    let film = fs::read(film).unwrap();
    let begin = [&[0, 0, 0, 1], SPS, &[0, 0, 0, 1], PPS].concat();
    assert!(film.starts_with(&begin), "{film:?}");
}

#[test]
fn missing_parameter_sets_are_named_once() {
    let mut sender = Sender::new();
    let receiver = format!("recv --listen 127.0.0.1:{}", sender.port);
    let said = sender.play(&receiver, &[SLICES; 3]);
    assert!(said.contains("received no complete frame"), "{said}");
    assert_eq!(said.matches("has no parameter sets").count(), 1, "{said}");
}

#[test]
fn another_payload_type_is_named_and_accepted_by_an_option() {
    let mut sender = Sender::new();
    sender.payload_type = 99;
    let listen = format!("recv --listen 127.0.0.1:{}", sender.port);
    let mut receiver = Program::tidegate(&format!("{listen} --duration 2s"));
    receiver.wait_for_line("waiting for a stream");
    sender.group(SLICES);
    receiver
        .wait()
        .failed_with("RTP of payload type 99 arrives, and 96 is expected");
    let units: &[&[u8]] = &[SPS, PPS, SLICES[0], SLICES[1]];
    let said = sender.play(&format!("{listen} --payload-type 99"), &[units]);
    assert!(said.contains("received 10 whole frames"), "{said}");
    for wrong in ["32", "72", "128", "x"] {
        let options = format!("{listen} --payload-type {wrong}");
        Program::tidegate(&options)
            .wait()
            .failed_with("payload type");
    }
}

#[test]
fn h265_is_named() {
    let mut sender = Sender::new();
    // Parameter sets, and the first fragment of a key frame.
    let units: &[&[u8]] = &[
        &[0x40, 1, 12],
        &[0x42, 1, 1],
        &[0x44, 1, 0xc0],
        &[0x62, 1, 0x93],
    ];
    let said = sender.play(
        &format!("recv --listen 127.0.0.1:{}", sender.port),
        &[units; 3],
    );
    assert_eq!(said.matches("the stream is H.265").count(), 1, "{said}");
    assert!(!said.contains("--fps"), "{said}");
}

/// A sender that describes no feedback cannot be asked for a key frame.
#[test]
fn frames_after_a_loss_have_blemishes_or_are_left_out() {
    let scratch = Scratch::new("blemishes");
    let units: &[&[u8]] = &[SPS, PPS, SLICES[0], SLICES[1]];
    for (options, is_shown) in [("", true), ("--conceal=no", false)] {
        let mut sender = Sender::new();
        let sdp = sender.description(&scratch, "");
        let mut receiver = Program::tidegate(&format!("recv --sdp {} {options}", text(&sdp)));
        receiver.wait_for_line("waiting for a stream");
        sender.group(units);
        sender.seq += 1;
        sender.deltas();
        sender.bye();
        let said = receiver.wait().said;
        assert!(said.contains("received 10 whole frames"), "{said}");
        assert_eq!(
            said.contains("10 frames with blemishes"),
            is_shown,
            "{said}"
        );
    }
}

/// FFmpeg sends I pictures with recovery points, without the only IDR picture of the file. The
/// recording begins with one, without the pictures that refer to those before it.
#[test]
fn a_stream_with_open_groups_is_received_from_a_recovery_point_on() {
    let scratch = Scratch::new("open");
    let (file, film) = (scratch.path("open.mp4"), scratch.path("film.h264"));
    let ffmpeg = |arguments: &str| {
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-v", "error"]);
        command.args(arguments.split(' ')).output()
    };
    // One reference picture, so that no I picture has a command about others.
    let made = ffmpeg(&format!(
        "-f lavfi -i testsrc2=size=320x180:rate=30 -t 3 -c:v libx264 -preset ultrafast -g 30 -bf 3 \
         -b:v 300k -x264-params open-gop=1:scenecut=0:b-pyramid=none {}",
        text(&file)
    ));
    let Ok(made) = made else {
        return;
    };
    assert!(made.status.success());
    let port = free_pair();
    let out = text(&film);
    let listen = format!("recv --listen 127.0.0.1:{port} --idle-timeout 1s --out {out}");
    let mut receiver = Program::tidegate(&listen);
    receiver.wait_for_line("waiting for a stream");
    let sent = ffmpeg(&format!(
        "-re -i {} -c copy -bsf:v h264_mp4toannexb,dump_extra,noise=drop=lt(n\\,20) -f rtp \
         rtp://127.0.0.1:{port}",
        text(&file)
    ));
    assert!(sent.unwrap().status.success());
    let said = receiver.wait().said;
    let hashes = |path: &Path| {
        let path = text(path);
        let decoded = ffmpeg(&format!("-i {path} -fps_mode passthrough -f framemd5 -"));
        let decoded = decoded.unwrap();
        let errors = String::from_utf8(decoded.stderr).unwrap();
        assert_eq!(errors, "", "{path}");
        let rows = String::from_utf8(decoded.stdout).unwrap();
        let rows = rows.lines().filter(|row| !row.starts_with('#'));
        let hashes = rows.filter_map(|row| Some(row.rsplit_once(' ')?.1.to_owned()));
        hashes.collect::<Vec<_>>()
    };
    let (stored, received) = (hashes(&file), hashes(&film));
    assert_eq!((stored.len(), received.len()), (90, 60), "{said}");
    assert!(stored.ends_with(&received));
    assert!(said.contains("received 60 whole frames"), "{said}");
    assert!(!said.contains("blemishes"), "{said}");
}

#[test]
fn a_recording_in_a_container_is_refused_before_the_stream() {
    for name in ["movie.mp4", "movie.MKV"] {
        Program::tidegate(&format!(
            "recv --listen 127.0.0.1:5004 --out /nowhere/{name}"
        ))
        .wait()
        .failed_with("give it the extension .h264");
    }
}

#[test]
fn a_stream_without_access_points_is_named() {
    let mut sender = Sender::new();
    let mut receiver = Program::tidegate(&format!("recv --listen 127.0.0.1:{}", sender.port));
    receiver.wait_for_line("waiting for a stream");
    let end = Instant::now() + Duration::from_secs(30);
    let advice = "no complete picture at which decoding can start";
    // Ten pictures at a time, until it is said.
    loop {
        sender.deltas();
        let said = receiver.line_within(advice, Duration::from_millis(333));
        if said.is_some() {
            break;
        }
        assert!(Instant::now() < end, "{}", receiver.wait().said);
    }
    sender.bye();
    receiver.wait();
}

/// A sender behind a NAT that chooses another port, or one that opens a socket of its own.
#[test]
fn a_stream_goes_on_from_another_port() {
    let mut sender = Sender::new();
    let mut receiver = Program::tidegate(&format!("recv --listen 127.0.0.1:{}", sender.port));
    receiver.wait_for_line("waiting for a stream");
    let whole: &[&[u8]] = &[SPS, PPS, SLICES[0], &LARGE];
    sender.group(whole);
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let first = std::mem::replace(&mut sender.socket, other);
    sender.group(whole);
    // RTCP of the other port has an effect once the first one is silent.
    sender.socket = first;
    sender.bye();
    let said = receiver.wait().said;
    assert!(said.contains("received 20 whole frames"), "{said}");
}

/// A sender of RTP to a port of the loopback.
struct Sender {
    socket: UdpSocket,
    port: u16,
    payload_type: u8,
    seq: u16,
    frames: u32,
}

impl Sender {
    fn new() -> Self {
        Self {
            socket: UdpSocket::bind("127.0.0.1:0").unwrap(),
            port: free_pair(),
            payload_type: 96,
            seq: 100,
            frames: 0,
        }
    }

    /// Writes a description with further parameters of the format.
    fn description(&self, scratch: &Scratch, parameters: &str) -> PathBuf {
        let path = scratch.path("stream.sdp");
        let port = self.port;
        let text = format!(
            "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {port} RTP/AVP \
             96\na=rtpmap:96 H264/90000\na=fmtp:96 packetization-mode=1{parameters}\n"
        );
        fs::write(&path, text).unwrap();
        path
    }

    /// Starts a receiver, sends frames and a BYE. Returns the messages of the receiver.
    fn play(&mut self, receiver: &str, groups: &[&[&[u8]]]) -> String {
        let mut receiver = Program::tidegate(receiver);
        receiver.wait_for_line("waiting for a stream");
        for group in groups {
            self.group(group);
        }
        self.bye();
        receiver.wait().said
    }

    fn bye(&self) {
        let mut bye = Vec::new();
        rtcp::emit_receiver_report(SSRC, &[], &mut bye);
        rtcp::emit_bye(&[SSRC], None, &mut bye);
        self.socket.send_to(&bye, ("127.0.0.1", self.port)).unwrap();
    }

    /// Ten frames of one slice, of which the first one is a key frame.
    fn group(&mut self, units: &[&[u8]]) {
        for frame in 0..10 {
            let key = frame == 0;
            let of_frame = units.iter().filter(|unit| key == (unit[0] & 0x1f != 1));
            let of_frame: Vec<_> = of_frame.collect();
            for (i, unit) in of_frame.iter().enumerate() {
                self.packet(i + 1 == of_frame.len(), unit);
            }
            self.frames += 1;
        }
    }

    /// Ten frames, none of them a key frame.
    fn deltas(&mut self) {
        for _ in 0..10 {
            self.packet(true, SLICES[1]);
            self.frames += 1;
        }
    }

    fn packet(&mut self, marker: bool, payload: &[u8]) {
        let header = RtpHeader {
            payload_type: PayloadType::new(self.payload_type).unwrap(),
            sequence: self.seq,
            timestamp: self.frames * 3_000,
            ssrc: SSRC,
            marker,
        };
        self.seq += 1;
        let mut out = Vec::new();
        header.emit(&mut out);
        out.extend(payload);
        self.socket.send_to(&out, ("127.0.0.1", self.port)).unwrap();
    }
}

const SSRC: u32 = 7;
const SPS: &[u8] = &[0x67, 0x42, 0, 0x1f, 0xda];
const PPS: &[u8] = &[0x68, 0xce];
/// The slice of a delta frame of half a packet: nine of them are proof of a sender.
const LARGE: [u8; 600] = {
    let mut slice = [0x88; 600];
    slice[0] = 0x41;
    slice
};
/// Slices of a key frame and of a delta frame.
const SLICES: &[&[u8]] = &[&[0x65, 0x88], &[0x41, 0x88]];
