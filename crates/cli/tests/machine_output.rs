//! Output for other programs: the numbers of `--json`, `--json-lines`, and recordings on standard
//! output.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::thread;

use program::{Program, ProgramResult, Scratch, load, player, text, to};
use serde_json::{Value, json};

/// A receiver on a free port with these options.
fn receiver(options: &str) -> (Program, u16) {
    let mut receiver = Program::tidegate(&format!("recv --listen 127.0.0.1:0 {options}"));
    let port = receiver.number("waiting for a stream at port ");
    (receiver, port)
}

fn send(port: u16, options: &str) -> ProgramResult {
    Program::tidegate(&format!("send {} {options}", to(port))).wait()
}

/// The objects of a standard output.
fn objects(result: &ProgramResult) -> Vec<Value> {
    let lines = result.output.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn number(value: &Value, at: &str) -> f64 {
    let found = value.pointer(at).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no {at} in {value}"))
}

#[test]
fn both_ends_have_the_rate_the_loss_and_the_frames() {
    let (receiver, port) = receiver("--json");
    let sent = send(port, "--duration 3s --json");
    sent.succeeded();
    let received = receiver.wait();
    received.succeeded();
    let whole = f64::from(received.whole_frames());
    let sent = &objects(&sent)[0];
    let received = &objects(&received)[0];
    let flow = "/flows/0";
    let of = |value: &Value, key: &str| number(value, &format!("{flow}/{key}"));
    // Nothing is lost on the loopback interface, so both ends count the same packets. The intervals
    // differ by the round trip, the last report and the time between two packets.
    let rate = of(sent, "rate_bps");
    for value in [
        of(sent, "receive_bps"),
        of(received, "receive_bps"),
        of(received, "rate_bps"),
    ] {
        assert!(
            (0.8 * rate..=1.2 * rate).contains(&value),
            "{value} of {rate}"
        );
    }
    assert_eq!((of(sent, "loss"), of(received, "loss")), (0.0, 0.0));
    // Frames later than the bound on a busy machine are counted as such.
    let in_time = of(received, "frames/on_time");
    assert!(
        (in_time + of(received, "frames/late") - whole).abs() < 0.1,
        "{received}"
    );
    assert!(in_time > 0.0 && of(received, "frames/made") >= whole);
    // A receiver has no delays of packets, and no frames that were dropped before they were sent.
    assert!(
        received
            .pointer("/flows/0/packet_delay_ms/p50")
            .unwrap()
            .is_null()
    );
    assert!(
        received
            .pointer("/flows/0/frames/dropped")
            .unwrap()
            .is_null()
    );
}

#[test]
fn both_ends_over_tcp_have_the_rate_and_the_frames() {
    let (player, port) = player("--json");
    let sent = send(port, "--transport tcp --rate 1M --duration 2 --json");
    let sent = &objects(sent.succeeded())[0];
    let received = player.wait();
    let received = &objects(received.succeeded())[0];
    for end in [sent, received] {
        for rate in ["/flows/0/rate_bps", "/flows/0/receive_bps"] {
            let rate = number(end, rate);
            assert!((0.5e6..1.5e6).contains(&rate), "{rate}");
        }
        assert_eq!(end.pointer("/flows/0/loss"), Some(&json!(0.0)));
        assert_eq!(end.pointer("/flows/0/frames/made"), Some(&json!(60)));
    }
    // The player has acknowledged all of it.
    let of = |key: &str| number(sent, &format!("/flows/0/{key}"));
    assert!(of("receive_bps") >= 0.99 * of("rate_bps"), "{sent}");
}

#[test]
fn json_lines_have_an_object_per_second_and_the_summary_at_the_end() {
    for transport in ["rtp", "tcp"] {
        let options = format!("--transport {transport} --json-lines");
        let (receiver, port) = receiver(&options);
        let sent = send(port, &format!("--duration 4s {options}"));
        let ends = [sent, receiver.wait()];
        for end in &ends {
            let mut objects = objects(end.succeeded());
            let summary = objects.pop().unwrap();
            assert!(summary.get("flows").is_some(), "{summary}");
            // One at 1 s, 2 s and 3 s; a stall of the machine may skip one.
            assert!(objects.len() >= 2, "{}", end.output);
            let times: Vec<f64> = objects.iter().map(|o| number(o, "/time_s")).collect();
            assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
            assert!(times[0] >= 1.0, "{times:?}");
            let last = objects.last().unwrap();
            assert!(
                number(last, "/rate_bps") > 0.0 && number(last, "/frames") > 0.0,
                "{last}"
            );
        }
    }
}

#[test]
fn a_recording_on_standard_output_is_that_of_a_file() {
    let scratch = Scratch::new("stdout");
    let run = scratch.path("run");
    let command = |out: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let options = format!("recv --listen 127.0.0.1:0 --run {} --out {out}", text(&run));
        command.args(options.split(' '));
        command
    };
    let mut child = command("-")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let recording = thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    let port = line.split("port ").nth(1).unwrap();
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    send(port.parse().unwrap(), "--duration 1s").succeeded();
    said.read_to_string(&mut line).unwrap();
    assert!(child.wait().unwrap().success(), "{line}");
    let recording = recording.join().unwrap();
    // H.264 in byte-stream format. The rows count the payload of packets, in which a fragment has a
    // header of 2 bytes in about 1,150 (RFC 6184 section 5.8).
    assert_eq!(recording[..4], [0, 0, 0, 1]);
    let received = &load(&run).flows[0].received;
    let bits: u64 = received.iter().map(|row| row.bits).sum();
    assert!(
        recording.len() as f64 * 8.0 >= 0.99 * bits as f64,
        "{} of {bits}",
        recording.len() * 8
    );
}

#[test]
fn standard_output_is_for_one_purpose() {
    for json in ["--json", "--json-lines"] {
        let refused = Program::tidegate(&format!("recv --listen 127.0.0.1:0 --out - {json}"));
        let refused = refused.wait();
        refused.failed_with("both write standard output");
        assert_eq!(refused.status.code(), Some(2));
    }
}

/// As with `recv --out - | head -c 1000`.
#[test]
fn a_reader_that_leaves_ends_the_session_without_an_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let scratch = Scratch::new("unread");
    let errors = scratch.path("errors");
    let port = program::free_pair();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "recv",
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--out",
            "-",
        ])
        .stdout(writer)
        .stderr(File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    // The receiver may start after the sender. It ends on the first frame, so the sender waits for
    // another one until its video is over.
    send(port, "--duration 3s");
    let status = child.wait().unwrap();
    let said = fs::read_to_string(&errors).unwrap();
    assert!(status.success(), "{status}: {said}");
    assert!(
        !said.contains("cut short") && !said.contains("incomplete"),
        "{said}"
    );
}

/// The session goes on while the reader does not read, and Ctrl-C ends the wait for it.
#[test]
fn a_reader_that_does_not_read_holds_neither_the_session_nor_its_end() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["recv", "--listen", "127.0.0.1:0", "--out", "-"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut wait_for = |words: &str| {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "{words}");
        }
        line
    };
    let line = wait_for("waiting for a stream at port ");
    let port = line.split("port ").nth(1).unwrap();
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    // 500 kB, of which a pipe holds 64.
    send(port.parse().unwrap(), "--duration 4s --control fixed:1Mb/s").succeeded();
    let received = wait_for("received ");
    let frames = received.split(' ').nth(1).unwrap().parse::<u32>().unwrap();
    assert!(frames >= 100, "{received}");
    let id = libc::pid_t::try_from(child.id()).unwrap();
    // SAFETY: a system call that takes numbers. The child has not been waited for.
    assert_eq!(unsafe { libc::kill(id, libc::SIGINT) }, 0);
    wait_for("its reader does not read");
    assert_eq!(child.wait().unwrap().code(), Some(3));
    drop(reader);
}

/// As with `send --json | head -c 0`.
#[test]
fn a_reader_that_leaves_hides_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let to = format!("127.0.0.1:{}", program::free_pair());
    let sent = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["send", "--to", &to, "--json", "--duration", "20s"])
        .stdout(writer)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&sent.stderr);
    assert_eq!(sent.status.code(), Some(3), "{said}");
    assert!(said.contains("connection refused"), "{said}");
}

#[test]
fn a_recording_that_a_full_disk_cuts_short_is_an_error() {
    for transport in ["rtp", "tcp"] {
        let (receiver, port) = receiver(&format!("--transport {transport} --out /dev/full --json"));
        send(port, &format!("--transport {transport} --duration 1s")).succeeded();
        let received = receiver.wait();
        received.failed_with("the recording in /dev/full is cut short");
        received.failed_with("No space left on device");
        assert_eq!(received.status.code(), Some(3));
        // The stream goes on, and its numbers are complete.
        assert!(received.whole_frames() >= 20, "{}", received.said);
        assert_eq!(objects(&received).len(), 1);
    }
}
