//! The decoder process: its limits, its failures, and hostile streams.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use program::{GUARD, Program, Scratch, player, text};
use tidegate_core::media::{Codec, FrameEncoder as _, FrameOrder, FrameRate};
use tidegate_core::session::config::MEDIA_TYPE;
use tidegate_core::units::{Rate, Time};
use tidegate_core::wire::rtp::RtpHeader;
use tidegate_core::wire::{framing, h264};
use tidegate_media::sandbox::protocol::{Reply, Request};
use tidegate_media::sandbox::{Isolation, ProcessFailure};
use tidegate_media::{
    Decoded, Decoder, DecoderConfig, EncoderSession, Mpeg2Config, Mpeg2Encoder, Picture,
    PictureEncoder as _, PictureRefusal, Scene, SceneSource, Size, VideoSource as _,
};

/// Memory of a decoder process for the sizes of these tests: it has 48 MB at its start, nearly all of
/// it the program and FFmpeg's libraries.
const SMALL: u64 = 96 << 20;

#[test]
fn pictures_are_those_of_a_decoder_in_this_process() {
    for (codec, units) in [(Codec::H264, h264(12, 160)), (Codec::Mpeg2, mpeg2(12))] {
        let mut direct = Decoder::open(codec).unwrap();
        let mut sandboxed = sandboxed(codec);
        for unit in &units {
            let wanted = direct.decode(unit);
            assert!(matches!(wanted, Decoded::Whole(_)));
            assert_eq!(sandboxed.decode(unit), wanted);
        }
        let garbage = [&[0, 0, 1, 0x65][..], &[0x5a; 300]].concat();
        for decoder in [&mut direct, &mut sandboxed] {
            assert_eq!(decoder.decode(&garbage).picture(), None);
            decoder.reset();
            assert_eq!(decoder.decode(&units[1]).picture(), None);
            assert!(decoder.decode(&units[0]).picture().is_some());
        }
        assert_eq!(sandboxed.errors(), direct.errors());
    }
}

#[test]
fn process_has_a_filter_and_no_descriptors_but_its_own() {
    let decoder = sandboxed(Codec::H264);
    assert_eq!(decoder.isolation(), Isolation::Sandbox);
    let id = decoder.process_id().unwrap();
    // SECCOMP_MODE_FILTER
    assert_eq!(status(id, "Seccomp:"), 2);
    assert_eq!(status(id, "NoNewPrivs:"), 1);
    let descriptors = fs::read_dir(format!("/proc/{id}/fd")).unwrap();
    assert_eq!(descriptors.count(), 3);
    let variables = fs::read(format!("/proc/{id}/environ")).unwrap();
    assert!(variables.is_empty() || variables.starts_with(b"LD_LIBRARY_PATH="));
    drop(decoder);
    assert!(!PathBuf::from(format!("/proc/{id}")).exists());
}

/// 16,000 x 16,000 pictures were decoded once, with 1.27 GB.
#[test]
fn announced_sizes_beyond_the_limit_are_refused_before_decoding() {
    let mut decoder = sandboxed(Codec::H264);
    let units = h264(4, 160);
    assert!(decoder.decode(&units[0]).picture().is_some());
    for bomb in [bomb(false), bomb(true)] {
        let refused = PictureRefusal::TooLarge {
            width: 16_000,
            height: 16_000,
            max: Size::LEVEL_5_2,
        };
        assert_eq!(decoder.decode(&bomb), Decoded::Refused(refused));
    }
    // The stream goes on: its references are untouched.
    assert!(matches!(decoder.decode(&units[1]), Decoded::Whole(_)));
    let id = decoder.process_id().unwrap();
    assert!(peak_memory(id) < SMALL, "{}", peak_memory(id));
}

/// A cropping rectangle hides the size from FFmpeg's limit, and this process has no parent that
/// reads the parameter sets.
#[test]
fn memory_of_the_process_is_limited_without_the_check_of_its_parent() {
    for cropped in [false, true] {
        let mut child = RawChild::start();
        assert_eq!(child.reply(), Some(Reply::Ready { filtered: true }));
        let unit = bomb(cropped);
        child.send(&unit);
        assert_eq!(child.reply(), Some(Reply::Nothing));
        let peak = peak_memory(child.process.id());
        assert!(peak < SMALL + 42 * 9_437_184, "{peak}");
    }
}

#[test]
fn the_process_ends_with_its_connection() {
    let mut child = RawChild::start();
    assert_eq!(child.reply(), Some(Reply::Ready { filtered: true }));
    child.socket.shutdown(Shutdown::Both).unwrap();
    let status = child.process.wait().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn sizes_may_change_within_the_limit_and_memory_stays_bounded() {
    let [small, large] = [160, 640].map(|height| h264(1, height).remove(0));
    let mut decoder = sandboxed(Codec::H264);
    let mut after_two = 0;
    for n in 0..40 {
        for (unit, height) in [(&small, 160), (&large, 640)] {
            let Decoded::Whole(picture) = decoder.decode(unit) else {
                panic!("a key frame of height {height} does not decode");
            };
            assert_eq!(picture.size().height(), height);
        }
        if n == 1 {
            after_two = peak_memory(decoder.process_id().unwrap());
        }
    }
    let grown = peak_memory(decoder.process_id().unwrap()) - after_two;
    assert!(grown < 4 << 20, "{grown}");
}

#[test]
fn a_killed_process_costs_pictures_until_the_next_key_frame() {
    let units = h264(6, 160);
    let mut decoder = sandboxed(Codec::H264);
    assert!(decoder.decode(&units[0]).picture().is_some());
    let first = decoder.process_id().unwrap();
    // SAFETY: a system call that takes numbers. The decoder has not waited for its process, so the
    // id is its own.
    assert_eq!(unsafe { libc::kill(first as i32, libc::SIGKILL) }, 0);
    let Decoded::Failed(ProcessFailure::Ended(status)) = decoder.decode(&units[1]) else {
        panic!("the process is alive");
    };
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    assert_eq!(decoder.process_id(), None);
    // Another process starts half a second after the first at the earliest.
    let end = Instant::now() + GUARD;
    while decoder.decode(&units[0]).picture().is_none() {
        assert!(Instant::now() < end, "no other process has started");
    }
    assert_ne!(decoder.process_id(), Some(first));
    for unit in &units[1..] {
        assert!(matches!(decoder.decode(unit), Decoded::Whole(_)));
    }
}

#[test]
fn hostile_and_missing_processes_are_typed_failures() {
    for (name, words) in [
        ("ends", "ended (exit status: 0)"),
        ("no-hello", "invalid reply 0x82"),
        ("unknown", "invalid reply 0x07"),
        ("large", "a picture of 8192x8192"),
        ("again", "invalid reply 0x81"),
    ] {
        let said = failure_of(name);
        assert!(said.contains(words), "{name}: {said}");
    }
    let config = DecoderConfig {
        program: Some("/nowhere/tidegate".into()),
        ..Codec::H264.into()
    };
    let error = Decoder::open(config).unwrap_err().to_string();
    assert!(error.contains("cannot be executed"), "{error}");
}

#[test]
fn a_process_that_answers_slowly_is_replaced() {
    let said = failure_of("slow");
    assert!(said.contains("did not answer in 5 s"), "{said}");
}

/// Over a socket: the receiver reports the size, shows the rest of the stream, and neither process
/// grows.
#[test]
fn a_receiver_survives_a_stream_of_huge_pictures() {
    let (mut receiver, port) = player("--reference scene");
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let units = h264(30, 160);
    let mut sequence = 0;
    for (n, unit) in units.iter().enumerate() {
        if n == 10 {
            send(&mut socket, &mut sequence, n, &bomb(true));
        }
        send(&mut socket, &mut sequence, n + usize::from(n >= 10), unit);
    }
    receiver.wait_for_line("not decoded: a picture of 16000x16000");
    let decoder = child_of(receiver.id());
    for id in [receiver.id(), decoder] {
        assert!(peak_memory(id) < 2 * SMALL, "{}", peak_memory(id));
    }
    drop(socket);
    let result = receiver.wait();
    assert!(result.said.contains("over 30 frames"), "{}", result.said);
}

#[test]
fn a_receiver_replaces_a_killed_decoder() {
    let scratch = Scratch::new("killed-decoder");
    let run = scratch.path("run");
    let mut receiver = Program::tidegate(&format!(
        "recv --listen 127.0.0.1:0 --reference scene --run {}",
        text(&run)
    ));
    let port = receiver.number("waiting for a stream at port ");
    let decoder = child_of(receiver.id());
    let sender = Program::tidegate(&format!(
        "send --to 127.0.0.1:{port} --size 320x180 --ceiling 1Mb/s --preset ultrafast --duration 4s"
    ));
    receiver.wait_for_line("the stream has started");
    // SAFETY: a system call that takes numbers. The receiver has not waited for its child, so the
    // id is its own.
    assert_eq!(unsafe { libc::kill(decoder as i32, libc::SIGKILL) }, 0);
    receiver.wait_for_line("signal: 9 (SIGKILL)): a picture is lost");
    sender.wait().succeeded();
    receiver.wait().succeeded();
    let run = program::load(&run);
    let last = run.flows[0].received.iter().rev().take(30);
    let shown = last.filter(|frame| frame.quality.is_some()).count();
    assert!(shown >= 25, "{shown} of the last 30 frames have a picture");
}

/// Sends an access unit as RTP over TCP (RFC 4571).
fn send(socket: &mut TcpStream, sequence: &mut u16, frame: usize, unit: &[u8]) {
    let mut out = Vec::new();
    for payload in h264::packetise(unit, 1_200).unwrap() {
        let header = RtpHeader {
            payload_type: MEDIA_TYPE,
            marker: payload.marker(),
            sequence: *sequence,
            timestamp: 3_000 * frame as u32,
            ssrc: 7,
        };
        *sequence += 1;
        framing::emit(&mut out, |out| {
            header.emit(out);
            payload.emit(out);
        })
        .unwrap();
    }
    socket.write_all(&out).unwrap();
}

/// Failure of a process with the behaviour `name` of `hostile_decoder.sh`.
fn failure_of(name: &str) -> String {
    let scratch = Scratch::new(&format!("decoder-{name}"));
    let program = scratch.path(name);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile_decoder.sh");
    std::os::unix::fs::symlink(script, &program).unwrap();
    let config = DecoderConfig {
        program: Some(program),
        ..Codec::H264.into()
    };
    let mut decoder = match Decoder::open(config) {
        Ok(decoder) => decoder,
        Err(error) => return error.to_string(),
    };
    match decoder.decode(&[0, 0, 1, 0x65, 7]) {
        Decoded::Failed(failure) => failure.to_string(),
        other => panic!("{name}: {other:?}"),
    }
}

fn sandboxed(codec: Codec) -> Decoder {
    let config = DecoderConfig {
        program: Some(env!("CARGO_BIN_EXE_tidegate").into()),
        ..codec.into()
    };
    Decoder::open(config).unwrap()
}

/// A decoder process without its usual parent.
struct RawChild {
    process: std::process::Child,
    socket: UnixStream,
}

impl RawChild {
    fn start() -> Self {
        let scratch = Scratch::new("raw-child");
        let mut file = File::options();
        let path = scratch.path("pictures");
        let pictures = file.read(true).write(true).create_new(true).open(path);
        let pictures = pictures.unwrap();
        pictures.set_len(4_096 * 2_304 / 2 * 3).unwrap();
        let (socket, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .arg0("tidegate-decoder")
            .args(["h264", "4096x2304"])
            .stdin(OwnedFd::from(theirs))
            .stdout(pictures);
        socket.set_read_timeout(Some(GUARD)).unwrap();
        Self {
            process: command.spawn().unwrap(),
            socket,
        }
    }

    fn send(&mut self, unit: &[u8]) {
        let len = unit.len() as u32;
        self.socket
            .write_all(&Request::Decode { len }.emit())
            .unwrap();
        self.socket.write_all(unit).unwrap();
    }

    /// `None` if the process has ended.
    fn reply(&mut self) -> Option<Reply> {
        let mut reply = [0; Reply::LEN];
        self.socket.read_exact(&mut reply).ok()?;
        Some(Reply::parse(reply, Size::LEVEL_5_2).unwrap())
    }
}

impl Drop for RawChild {
    fn drop(&mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }
}

/// Child process of a program.
fn child_of(id: u32) -> u32 {
    let end = Instant::now() + GUARD;
    loop {
        let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap();
        let children = tasks.filter_map(|task| {
            let text = fs::read_to_string(task.ok()?.path().join("children")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        });
        if let Some(child) = children.into_iter().next() {
            return child;
        }
        assert!(Instant::now() < end, "the receiver has no decoder process");
    }
}

/// Largest resident memory of a process in bytes.
fn peak_memory(id: u32) -> u64 {
    status(id, "VmHWM:") * 1_024
}

/// First number of a line of `/proc/<id>/status`.
fn status(id: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

fn scene(height: u32) -> SceneSource {
    let size = Size::new(height / 9 * 16, height).unwrap();
    SceneSource::new(Scene::new(1, size), FrameRate::fps(30))
}

/// Access units of which the first is a key frame.
fn h264(frames: u64, height: u32) -> Vec<Vec<u8>> {
    let mut session = EncoderSession::open(Box::new(scene(height)), |_| {}).unwrap();
    let unit = |frame| {
        let order = FrameOrder {
            frame,
            captured: Time::ZERO,
            rate: Rate::kbps(1_000),
            key: frame == 0,
        };
        session.encode(&order).unwrap().data
    };
    (0..frames).map(unit).collect()
}

fn mpeg2(frames: u64) -> Vec<Vec<u8>> {
    let mut scene = scene(160);
    let config = Mpeg2Config::new(scene.size(), FrameRate::fps(30));
    let mut encoder = Mpeg2Encoder::open(config).unwrap();
    let mut picture = Picture::black(scene.size());
    let unit = |frame| {
        assert!(scene.next(&mut picture).unwrap());
        let coded = encoder.encode(&picture, Rate::kbps(1_000), frame == 0);
        coded.unwrap().data
    };
    (0..frames).map(unit).collect()
}

/// Parameter sets of 16,000 x 16,000 pictures, of which 16 x 16 samples are shown if `cropped`, and
/// the beginning of a slice.
fn bomb(cropped: bool) -> Vec<u8> {
    let mut sps = Bits::default();
    // Baseline profile, level 5.1; numbers of frames have four bits, order is decoding order.
    sps.bits(66, 8).bits(51, 16).code(0).code(0).code(2);
    sps.code(1).bits(0, 1).code(999).code(999).bits(0b11, 2);
    if cropped {
        sps.bits(1, 1).code(0).code(7_992).code(0).code(7_992);
    } else {
        sps.bits(0, 1);
    }
    let mut pps = Bits::default();
    pps.code(0).code(0).bits(0, 2).code(0).code(0).code(0);
    pps.bits(0, 3).code(0).code(0).code(0).bits(0, 3);
    let mut slice = Bits::default();
    slice
        .code(0)
        .code(7)
        .code(0)
        .bits(0, 4)
        .code(0)
        .bits(0, 2)
        .code(0);
    // An intra 16x16 macroblock.
    slice.code(1).code(0).code(0).bits(1, 1);
    [sps.nal(0x67, 0), pps.nal(0x68, 0), slice.nal(0x65, 2_700)].concat()
}

/// Writer of the fields of a NAL unit.
#[derive(Default)]
struct Bits(Vec<bool>);

impl Bits {
    fn bits(&mut self, value: u32, count: u32) -> &mut Self {
        self.0.extend((0..count).rev().map(|n| value >> n & 1 == 1));
        self
    }

    /// An Exp-Golomb code.
    fn code(&mut self, value: u32) -> &mut Self {
        let len = 32 - (value + 1).leading_zeros();
        self.bits(0, len - 1).bits(value + 1, len)
    }

    /// The unit behind a start code, with emulation prevention, and `more` bytes of no meaning.
    fn nal(&mut self, first: u8, more: usize) -> Vec<u8> {
        self.bits(1, 1);
        let mut nal = vec![0, 0, 0, 1, first];
        for byte in self.0.chunks(8) {
            let bits = byte.iter().zip((0..8).rev());
            let byte = bits.fold(0, |all, (bit, n)| all | u8::from(*bit) << n);
            if byte <= 3 && nal.ends_with(&[0, 0]) {
                nal.push(3);
            }
            nal.push(byte);
        }
        nal.extend(std::iter::repeat_n(0x5a, more));
        nal
    }
}
