//! Streams over UDP with SRTP, and attacks on them.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use program::{GUARD, Program, Scratch, free_pair, text};
use tidegate_secure::handshake::MESSAGE;

/// A key file in a temporary folder.
fn key(scratch: &Scratch, name: &str) -> PathBuf {
    let file = scratch.path(name);
    let made = Program::tidegate(&format!("key {}", text(&file))).wait();
    made.succeeded();
    file
}

/// A receiver at a free port of all addresses.
fn receiver(key: &Path, options: &str) -> (Program, SocketAddr) {
    let key = text(key);
    let options = format!("recv --listen 0 --idle-timeout 10s --key-file {key} {options}");
    let mut receiver = Program::tidegate(&options);
    let port = receiver.number("waiting for a stream at port ");
    (receiver, ([127, 0, 0, 1], port).into())
}

fn sender(to: SocketAddr, key: &Path, options: &str) -> Program {
    let size = "--size 320x180 --ceiling 1Mb/s --preset ultrafast --adapt no";
    let key = text(key);
    Program::tidegate(&format!("send --to {to} {size} --key-file {key} {options}"))
}

#[test]
fn a_stream_with_a_key_file_arrives_and_a_sender_that_restarts_continues_at_once() {
    let scratch = Scratch::new("srtp-key");
    let key = key(&scratch, "stream.key");
    let (mut receiver, address) = receiver(&key, "");
    let mut first = sender(address, &key, "");
    receiver.wait_for_line("frames/s");
    first.wait_for_line(" of 400 ms");
    first.kill();
    let mut second = sender(address, &key, "");
    let began = Instant::now();
    receiver.wait_for_line("the timestamps restarted");
    // Without keys a receiver waits for two seconds of silence.
    assert!(began.elapsed() < Duration::from_secs(5));
    receiver.wait_for_line("frames/s");
    second.wait_for_line(" of 400 ms");
    second.interrupt();
    second.wait().succeeded();
    receiver.wait().succeeded();
}

#[test]
fn a_receiver_that_restarts_gets_the_stream_again() {
    let scratch = Scratch::new("srtp-receiver");
    let key = key(&scratch, "stream.key");
    let (mut first, address) = receiver(&key, "");
    let mut sender = sender(address, &key, "");
    first.wait_for_line("frames/s");
    first.kill();
    let port = address.port();
    let again = format!("recv --listen {port} --key-file {}", text(&key));
    let mut second = Program::tidegate(&again);
    second.wait_for_line("the stream has started");
    second.wait_for_line("frames/s");
    second.wait_for_line("frames/s");
    sender.wait_for_line(" of 400 ms");
    sender.interrupt();
    sender.wait().succeeded();
    let received = second.wait();
    received.succeeded();
    assert!(received.frames_per_second() >= 15, "{}", received.said);
}

#[test]
fn another_key_is_an_error_at_both_ends() {
    let scratch = Scratch::new("srtp-wrong");
    let (one, two) = (key(&scratch, "one.key"), key(&scratch, "two.key"));
    let (receiver, address) = receiver(&one, "--duration 22s");
    let sender = sender(address, &two, "--duration 5s").wait();
    sender.failed_with(&format!("no answer from {address} with this key"));
    receiver
        .wait()
        .failed_with("protected with the key of this receiver");
}

#[test]
fn key_files_that_others_can_read_are_refused() {
    let scratch = Scratch::new("srtp-mode");
    let file = key(&scratch, "stream.key");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let again = Program::tidegate(&format!("key {}", text(&file))).wait();
    again.failed_with("exists");
    let recv = |name: &str| {
        let name = scratch.path(name);
        Program::tidegate(&format!("recv --listen 0 --key-file {}", text(&name))).wait()
    };
    for mode in [0o640, 0o604, 0o620] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        recv("stream.key").failed_with("chmod 600");
    }
    recv("none.key").failed_with("tidegate key");
    let empty = scratch.path("empty.key");
    fs::write(&empty, "0123").unwrap();
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o600)).unwrap();
    recv("empty.key").failed_with("64 hexadecimal digits");
    let printed = Program::tidegate("key").wait();
    assert_eq!(printed.output.trim().len(), 64, "{}", printed.output);
}

#[test]
fn other_hosts_need_a_key_or_the_option_insecure() {
    for arguments in [
        "send --to 192.0.2.1:5004",
        "recv --listen 0.0.0.0:0",
        "recv --listen [::]:0 --from 192.0.2.1",
    ] {
        let ended = Program::tidegate(arguments).wait();
        ended.failed_with("--key-file").failed_with("--insecure");
    }
    let mut local = Program::tidegate("recv --listen 0 --duration 30s");
    let line = local.wait_for_line("waiting for a stream at port ");
    assert!(
        line.contains("of this host") && line.contains("--insecure"),
        "{line}"
    );
    local.interrupt();
    local.wait().succeeded();
    let mut open = Program::tidegate("recv --listen 0 --insecure --duration 30s");
    let line = open.wait_for_line("waiting for a stream at port ");
    assert!(!line.contains("of this host"), "{line}");
    open.interrupt();
    open.wait().succeeded();
}

/// A relay between sender and receiver that records the sender's datagrams.
struct Relay {
    front: SocketAddr,
    recorded: thread::JoinHandle<Vec<Vec<u8>>>,
}

impl Relay {
    /// Passes on what `change` returns, until the sender is silent for two seconds.
    fn start(to: SocketAddr, change: impl Fn(u64, &[u8]) -> Vec<u8> + Send + 'static) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let back = UdpSocket::bind("127.0.0.1:0").unwrap();
        back.connect(to).unwrap();
        let address = front.local_addr().unwrap();
        let answers = (front.try_clone().unwrap(), back.try_clone().unwrap());
        let recorded = thread::spawn(move || {
            let (mut recorded, mut buffer, mut answering) = (Vec::new(), [0; 2_048], None);
            front.set_read_timeout(Some(GUARD)).unwrap();
            while let Ok((length, source)) = front.recv_from(&mut buffer) {
                front
                    .set_read_timeout(Some(Duration::from_secs(2)))
                    .unwrap();
                recorded.push(buffer[..length].to_vec());
                let passed = change(recorded.len() as u64, &buffer[..length]);
                // The receiver may have left.
                let _ = back.send(&passed);
                answering.get_or_insert_with(|| {
                    let (front, back) = (
                        answers.0.try_clone().unwrap(),
                        answers.1.try_clone().unwrap(),
                    );
                    back.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
                    thread::spawn(move || {
                        let mut buffer = [0; 2_048];
                        while let Ok(length) = back.recv(&mut buffer) {
                            front.send_to(&buffer[..length], source).unwrap();
                        }
                    })
                });
            }
            recorded
        });
        Self {
            front: address,
            recorded,
        }
    }
}

#[test]
fn recorded_packets_from_another_address_change_nothing() {
    let scratch = Scratch::new("srtp-replay");
    let key = key(&scratch, "stream.key");
    let (mut receiver, address) = receiver(&key, "");
    let relay = Relay::start(address, |_, datagram| datagram.to_vec());
    sender(relay.front, &key, "--duration 1s --one-way").wait();
    let recorded = relay.recorded.join().unwrap();
    assert!(recorded.len() > 30);
    receiver.wait_for_line("received ");

    let (mut receiver, address) = self::receiver(&key, "");
    let mut sender = sender(address, &key, "--duration 5s");
    receiver.wait_for_line("frames/s");
    let observer = UdpSocket::bind("127.0.0.1:0").unwrap();
    observer.set_nonblocking(true).unwrap();
    let (mut sent, mut got, mut buffer) = (0, 0, [0; 2_048]);
    for round in 0..3 {
        for datagram in &recorded {
            sent += observer.send_to(datagram, address).unwrap();
        }
        receiver.wait_for_line("frames/s");
        while let Ok(length) = observer.recv(&mut buffer) {
            got += length;
        }
        assert!(got <= 3 * sent, "round {round}: {got} bytes for {sent}");
    }
    sender.wait_for_line("sent ");
    sender.wait().succeeded();
    let received = receiver.wait();
    received.succeeded();
    assert!(received.frames_per_second() >= 15, "{}", received.said);
    assert!(
        received.said.contains("were not protected with its key"),
        "{}",
        received.said
    );
}

#[test]
fn altered_packets_count_as_lost() {
    let scratch = Scratch::new("srtp-altered");
    let key = key(&scratch, "stream.key");
    let (receiver, address) = receiver(&key, "");
    let relay = Relay::start(address, |number, datagram| {
        let mut datagram = datagram.to_vec();
        if number.is_multiple_of(10) {
            let last = datagram.len() - 1;
            datagram[last / 2] ^= 1;
        }
        datagram
    });
    sender(relay.front, &key, "--duration 4s")
        .wait()
        .succeeded();
    relay.recorded.join().unwrap();
    let received = receiver.wait();
    received.succeeded();
    assert!(
        received.said.contains("were not protected with its key"),
        "{}",
        received.said
    );
    assert!(received.whole_frames() >= 60, "{}", received.said);
}

/// Hellos of hosts without the key: random bytes with the first byte of a hello.
#[test]
fn a_flood_of_forged_hellos_gets_no_answer_and_costs_no_memory() {
    let scratch = Scratch::new("srtp-hello");
    let key = key(&scratch, "stream.key");
    let (mut receiver, address) = receiver(&key, "");
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    let resident = |program: &Program| {
        let status = fs::read_to_string(format!("/proc/{}/status", program.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse::<u64>().unwrap()
    };
    let flood = |count: u32| {
        for number in 0..count {
            let mut hello = [8; MESSAGE];
            hello[1] = 2;
            hello[2..6].copy_from_slice(&number.to_be_bytes());
            // The queue of the receiver may be full.
            let _ = stranger.send_to(&hello, address);
        }
    };
    flood(1_000);
    let sender = sender(address, &key, "--duration 4s");
    receiver.wait_for_line("frames/s");
    let before = resident(&receiver);
    flood(20_000);
    receiver.wait_for_line("frames/s");
    let after = resident(&receiver);
    assert!(after < before + 4_096, "{before} kB, then {after} kB");
    assert!(stranger.recv(&mut [0; 64]).is_err(), "no answer");
    sender.wait().succeeded();
    let received = receiver.wait();
    received.succeeded();
    // Half of the frames of four seconds: the last interval may be short on a busy machine.
    assert!(received.whole_frames() >= 60, "{}", received.said);
}

fn described(port: u16, description: &Path, options: &str) -> Program {
    let size = "--size 320x180 --ceiling 1Mb/s --floor 500kb/s --preset ultrafast --adapt no";
    let file = text(description);
    let arguments = format!("send --to 127.0.0.1:{port} {size} --sdp {file} {options}");
    Program::tidegate(&arguments)
}

#[test]
fn a_description_has_the_key_for_a_receiver_that_joins_late() {
    let scratch = Scratch::new("srtp-sdp");
    for suite in [
        "AES_CM_128_HMAC_SHA1_80",
        "AES_CM_128_HMAC_SHA1_32",
        "AEAD_AES_128_GCM",
        "AEAD_AES_256_GCM",
    ] {
        let description = scratch.path("stream.sdp");
        let options = format!("--duration 4s --crypto-suite {suite}");
        let mut sender = described(free_pair(), &description, &options);
        sender.wait_for_line("sending");
        let sdp = fs::read_to_string(&description).unwrap();
        assert!(
            sdp.contains(&format!("a=crypto:1 {suite} inline:")),
            "{sdp}"
        );
        let mode = fs::metadata(&description).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let received = Program::tidegate(&format!("recv --sdp {}", text(&description))).wait();
        received.succeeded();
        sender.wait().succeeded();
        assert!(received.frames_per_second() >= 15, "{}", received.said);
    }
}

#[test]
fn a_description_with_another_key_plays_nothing() {
    let scratch = Scratch::new("srtp-other");
    let (one, two) = (scratch.path("one.sdp"), scratch.path("two.sdp"));
    let port = free_pair();
    let mut sender = described(port, &one, "--one-way");
    sender.wait_for_line("sending");
    let sdp = fs::read_to_string(&one).unwrap();
    let (head, rest) = sdp.split_once("inline:").unwrap();
    let other = if rest.starts_with('A') { "B" } else { "A" };
    fs::write(&two, format!("{head}inline:{other}{}", &rest[1..])).unwrap();
    let received = Program::tidegate(&format!("recv --duration 2s --sdp {}", text(&two))).wait();
    received.failed_with("protected with the key of this receiver");
    sender.interrupt();
    sender.wait().succeeded();
}

/// Whether a program is installed.
fn has(program: &str) -> bool {
    match Command::new(program).arg("-version").output() {
        Ok(_) => true,
        Err(e) => {
            assert_eq!(e.kind(), io::ErrorKind::NotFound, "{e}");
            println!("skipped: there is no {program} on this machine");
            false
        }
    }
}

/// Lets FFmpeg decode 60 frames of a description.
fn ffmpeg(description: &Path) -> Command {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-hide_banner", "-nostdin", "-loglevel", "error"]);
    ffmpeg.args(["-protocol_whitelist", "file,udp,rtp,srtp", "-i"]);
    ffmpeg.arg(description).args(["-frames:v", "60"]);
    ffmpeg.args(["-progress", "pipe:1", "-f", "null", "-"]);
    ffmpeg
}

#[test]
fn ffmpeg_decodes_a_protected_stream() {
    if !has("ffmpeg") {
        return;
    }
    let scratch = Scratch::new("srtp-ffmpeg");
    for suite in ["AES_CM_128_HMAC_SHA1_80", "AES_CM_128_HMAC_SHA1_32"] {
        let description = scratch.path("stream.sdp");
        let options = format!("--one-way --crypto-suite {suite}");
        let mut sending = described(free_pair(), &description, &options);
        sending.wait_for_line("sending");
        let played = Program::start(&mut ffmpeg(&description)).wait();
        sending.interrupt();
        sending.wait().succeeded();
        played.succeeded();
        assert!(
            played.output.contains("frame=60"),
            "{}\n{}",
            played.output,
            played.said
        );
    }
}

#[test]
fn gstreamer_decodes_a_protected_stream() {
    let srtpdec = Command::new("gst-inspect-1.0").arg("srtpdec").output();
    let Ok(true) = srtpdec.map(|found| found.status.success()) else {
        println!("skipped: there is no GStreamer with srtpdec on this machine");
        return;
    };
    let scratch = Scratch::new("srtp-gstreamer");
    let (description, film) = (scratch.path("stream.sdp"), scratch.path("film.h264"));
    let port = free_pair();
    let mut sending = described(
        port,
        &description,
        "--one-way --crypto-suite AEAD_AES_128_GCM",
    );
    sending.wait_for_line("sending");
    let sdp = fs::read_to_string(&description).unwrap();
    let (_, key) = sdp.split_once("inline:").unwrap();
    let key = hex_of_base64(key.lines().next().unwrap());
    let (_, source) = sdp.split_once("a=ssrc:").unwrap();
    let (source, _) = source.split_once(' ').unwrap();
    let caps = format!(
        "caps=application/x-srtp,media=video,encoding-name=H264,payload=96,clock-rate=90000,\
         ssrc=(uint){source},roc=(uint)0,srtp-key=(buffer){key},srtp-cipher=aes-128-gcm,srtp-auth=null,srtcp-cipher=aes-128-gcm,\
         srtcp-auth=null"
    );
    let mut player = Command::new("gst-launch-1.0");
    player.args([
        "-q",
        "udpsrc",
        &format!("port={port}"),
        "num-buffers=200",
        &caps,
    ]);
    let location = format!("location={}", text(&film));
    player.args(["!", "srtpdec", "name=srtp", "!", "rtph264depay", "!"]);
    player.args(["filesink", &location]);
    // Sender reports come from the same port.
    player.args(["srtp.rtcp_src", "!", "tee", "allow-not-linked=true"]);
    let played = Program::start(&mut player).wait();
    sending.interrupt();
    sending.wait().succeeded();
    played.succeeded();
    assert!(
        fs::metadata(&film).unwrap().len() > 10_000,
        "{}",
        played.said
    );
}

fn hex_of_base64(text: &str) -> String {
    let bytes = tidegate_core::wire::base64::decode(text).unwrap();
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
