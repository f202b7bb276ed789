//! Streams over kernel TCP as processes: server, transcoder and player, over the loopback
//! interface.

mod calm;
#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

mod daemon;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::{fs, io};

use calm::judged;
use daemon::{ANYTHING, Daemon, client};
use program::{Program, Scratch, load, player, text, to};
use tidegate_core::trace::Event;
use tidegate_record::FrameKind;

/// A sender of small pictures.
fn server(address: &str, options: &str) -> Program {
    let size = "--size 320x180 --preset ultrafast --adapt no --codec mpeg2 --rate 1Mb/s";
    Program::tidegate(&format!("send --transport tcp {address} {size} {options}"))
}

/// Figure 7 of the first paper. The rate is read from a file, as the papers' `rate.par`, and
/// written to a socket.
#[test]
fn a_transcoder_between_server_and_player_follows_the_rate() {
    let scratch = Scratch::new("figure-7");
    let [seen, made, film, par, socket] =
        ["seen", "made", "film.m2v", "rate.par", "rate.sock"].map(|n| scratch.path(n));
    fs::write(&par, "1000000\n").unwrap();
    let (player, port) = player(&format!(
        "--reference scene --json --run {} --out {}",
        text(&seen),
        text(&film)
    ));
    let mut transcoder = Program::tidegate(&format!(
        "transcode --listen 127.0.0.1:0 {} --rate-from file:{} --rate-to unix:{} --run {}",
        to(port),
        text(&par),
        text(&socket),
        text(&made)
    ));
    let port = transcoder.number("waiting for a stream at port ");
    let server = server(&to(port), "");
    transcoder.wait_for_line("transcoding");
    transcoder.wait_for_line(" of 1.00 Mb/s");
    let mut rates = BufReader::new(UnixStream::connect(&socket).unwrap()).lines();
    assert_eq!(rates.next().unwrap().unwrap(), "1000000");
    fs::write(&par, "250000\n").unwrap();
    assert_eq!(rates.next().unwrap().unwrap(), "250000");
    transcoder.wait_for_line(" of 250 kb/s");
    transcoder.wait_for_line(" of 250 kb/s");
    server.interrupt();
    for program in [server, transcoder] {
        program.wait().succeeded();
    }
    let player = player.wait();
    player.succeeded();
    let json: serde_json::Value = serde_json::from_str(&player.output).unwrap();
    assert_eq!(json["flows"][0]["name"], "stream", "{}", player.output);

    let (seen, made) = (load(&seen), load(&made));
    let sent = &made.flows[0].sent;
    let step = sent.iter().position(|f| f.target_bits == 250_000 / 30);
    let step = step.expect("the new rate is used");
    // The number of coded and skipped frames depends on the machine.
    let coded = sent[step + 3..].iter().filter(|f| f.left.is_some());
    let coded: Vec<u64> = coded.map(|f| f.bits).collect();
    let whole = coded.len() as f64 * 250_000.0 / 30.0;
    let share = coded.iter().sum::<u64>() as f64 / whole;
    assert!((0.85..=1.15).contains(&share), "{share:.2} of the new rate");
    let changed = |e: &&tidegate_record::EventRow| matches!(e.event, Event::RateChanged { .. });
    assert_eq!(made.events.iter().filter(changed).count(), 1);
    let received = &seen.flows[0].received;
    let whole = received
        .iter()
        .filter(|f| f.decodable && f.complete.is_some());
    assert_eq!(
        whole.count(),
        sent.iter().filter(|f| f.left.is_some()).count()
    );
    // Received frames only: frames repeated on the screen are older on a busy machine.
    let compared = received.iter().filter_map(|f| f.quality);
    let psnr: Vec<f64> = compared.map(|quality| quality.psnr_y).collect();
    let psnr = psnr.iter().sum::<f64>() / psnr.len() as f64;
    assert!((25.0..60.0).contains(&psnr), "PSNR {psnr} dB");
    let film = fs::read(film).unwrap();
    assert!(film.starts_with(&[0, 0, 1, 0xb3]), "a sequence header");
    let bits: u64 = received
        .iter()
        .filter(|f| f.kind == FrameKind::Key)
        .map(|f| f.bits)
        .sum();
    assert!(bits > 0, "a key frame was received");
}

#[test]
fn frames_are_dropped_by_a_command_through_a_socket() {
    let scratch = Scratch::new("drop");
    let [sent, socket] = ["sent", "rate.sock"].map(|n| scratch.path(n));
    let (player, port) = player("");
    let options = format!(
        "--rate-from unix:{} --duration 3s --run {}",
        text(&socket),
        text(&sent)
    );
    let mut server = server(&to(port), &options);
    server.wait_for_line(", follow");
    let mut commands = UnixStream::connect(&socket).unwrap();
    server.wait_for_line(" of 1.00 Mb/s");
    commands.write_all(b"500kb/s\ndrop\nnonsense\n").unwrap();
    server.wait_for_line("\"nonsense\" is not a rate");
    server.wait_for_line(" of 500 kb/s");
    server.wait().succeeded();
    player.wait().succeeded();
    assert_eq!(load(&sent).flows[0].sent.len(), 90);
}

/// The server continues when a player is killed.
#[test]
fn a_player_that_leaves_is_named_and_the_next_one_is_served() {
    let mut server = server("--serve 127.0.0.1:0", "");
    let port = server.number("waiting for players at port ");
    let from = format!("recv --transport tcp --from 127.0.0.1:{port}");
    let mut first = Program::tidegate(&from);
    first.wait_for_line("frames/s");
    first.kill();
    server.wait_for_line("mid-stream");
    let mut second = Program::tidegate(&from);
    second.wait_for_line("frames/s");
    server.interrupt();
    server.wait().succeeded();
    second.wait().succeeded();

    let (first, port) = player("");
    let mut server = self::server(&to(port), "");
    server.wait_for_line(" of 1.00 Mb/s");
    first.kill();
    server.wait().failed_with("in mid-stream");
}

#[test]
fn ctrl_c_is_a_clean_end_for_all_three() {
    let scratch = Scratch::new("tcp-interrupt");
    let [seen, made] = ["seen", "made"].map(|n| scratch.path(n));
    let (mut player, port) = player(&format!("--run {}", text(&seen)));
    let options = format!("--codec h264 --preset ultrafast --run {}", text(&made));
    let transcode = format!("transcode --listen 127.0.0.1:0 {} {options}", to(port));
    let mut transcoder = Program::tidegate(&transcode);
    let port = transcoder.number("waiting for a stream at port ");
    let server = server(&to(port), "");
    player.wait_for_line("the stream has started: h264");
    player.wait_for_line("frames/s");
    server.interrupt();
    for program in [server, transcoder, player] {
        program.wait().succeeded();
    }
    for run in [load(&seen), load(&made)] {
        assert!(run.summary.is_some(), "{:?}", run.notes);
    }

    let (mut player, port) = program::player("");
    let server = self::server(&to(port), "");
    player.wait_for_line("frames/s");
    player.interrupt();
    player.wait().succeeded();
    let server = server.wait();
    assert!(server.succeeded().said.contains("the player has left"));
}

#[test]
fn the_end_of_a_killed_server_is_an_error() {
    let (player, port) = player("");
    let mut transcoder = Program::tidegate(&format!("transcode --listen 127.0.0.1:0 {}", to(port)));
    let port = transcoder.number("waiting for a stream at port ");
    let server = server(&to(port), "");
    transcoder.wait_for_line("Mb/s");
    server.kill();
    transcoder.wait().failed_with("the input ended without BYE");
    // The player receives all remaining data and a BYE.
    player.wait().succeeded();
}

#[test]
fn unreadable_and_truncated_media_are_named() {
    let scratch = Scratch::new("truncated");
    let [film, cut, none] = ["film.m2v", "cut.mkv", "none.m2v"].map(|n| scratch.path(n));
    let (player, port) = player(&format!("--out {}", text(&film)));
    server(&to(port), "--duration 2s").wait().succeeded();
    player.wait().succeeded();
    fs::write(&none, "no video at all").unwrap();
    for missing in [text(&none), "/nowhere/film.mp4"] {
        let transcode = format!("transcode --input {missing} --to 127.0.0.1:9");
        Program::tidegate(&transcode)
            .wait()
            .failed_with("cannot read video");
    }
    if let Err(e) = Command::new("ffmpeg").arg("-version").output() {
        assert_eq!(e.kind(), io::ErrorKind::NotFound, "{e}");
        println!("left out: there is no ffmpeg on this machine");
        return;
    }
    let whole = scratch.path("whole.mkv");
    let remuxed = Command::new("ffmpeg")
        .args(["-loglevel", "error", "-f", "mpegvideo", "-i", text(&film)])
        .args(["-c", "copy", text(&whole)])
        .status()
        .unwrap();
    assert!(remuxed.success());
    let bytes = fs::read(&whole).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 3]).unwrap();
    let (player, port) = program::player("");
    let transcoder = Program::tidegate(&format!("transcode --input {} {}", text(&cut), to(port)));
    transcoder.wait().failed_with("truncated");
    // Complete frames arrive, followed by a BYE.
    let player = player.wait();
    player.succeeded();
    assert!(!player.said.contains("received 0 "), "{}", player.said);
}

#[test]
fn an_unwritable_file_is_rejected_before_a_connection() {
    let player = "recv --transport tcp --listen 127.0.0.1:0 --out /nosuch/film";
    let ended = Program::tidegate(player).wait();
    ended.failed_with("/nosuch/film: choose another file for --out");
    assert!(!ended.said.contains("waiting"), "{}", ended.said);
}

#[test]
fn a_player_that_is_not_served_in_time_reports_an_error() {
    let mut server = server("--serve 127.0.0.1:0", "");
    let port = server.number("waiting for players at port ");
    let from = |options: &str| {
        Program::tidegate(&format!(
            "recv --transport tcp --from 127.0.0.1:{port} {options}"
        ))
    };
    let mut first = from("");
    first.wait_for_line("the stream has started");
    let second = from("--duration 500ms").wait();
    second.failed_with("serves another player");
    first.interrupt();
    first.wait().succeeded();
    server.interrupt();
    server.wait().succeeded();
}

#[test]
fn data_of_another_protocol_is_rejected() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let player = Program::tidegate(&format!("recv --transport tcp --from 127.0.0.1:{port}"));
    let (mut stranger, _) = server.accept().unwrap();
    stranger.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
    player.wait().failed_with("no stream of RTP packets");
}

#[test]
fn invalid_options_are_rejected_with_the_fix() {
    for (arguments, fix) in [
        (
            "send --transport tcp --to 127.0.0.1:9",
            "connection refused by 127.0.0.1:9",
        ),
        ("send --transport tcp --to nowhere", "HOST:PORT"),
        (
            "send --to 127.0.0.1:9 --transport tcp --mode follow",
            "--rate-from",
        ),
        ("send --serve 0", "--to"),
        (
            "recv --listen 127.0.0.1:0 --window",
            "--window requires --transport tcp",
        ),
        (
            "recv --listen 127.0.0.1:0 --transport tcp --key-file x",
            "--key-file is for streams over UDP",
        ),
        (
            "recv --from 127.0.0.1:9",
            "--from needs the port to listen at",
        ),
        (
            "send --transport tcp --to 127.0.0.1:9 --control tfrc",
            "--control requires --transport rtp",
        ),
        (
            "send --transport tcp --to 127.0.0.1:9 --rate 2Mb/s --ceiling 1Mb/s",
            "lower --rate",
        ),
        (
            "recv --transport tcp --listen 127.0.0.1:0 --duration 100ms",
            "no sender connected in 0.1 s",
        ),
        (
            "transcode --input scene.mp4 --to 127.0.0.1:9 --rate 0b/s",
            "--rate",
        ),
        (
            "transcode --input scene.mp4 --to 127.0.0.1:9 --fps 25",
            "--fps requires a stream over TCP",
        ),
        (
            "recv --transport tcp --listen 127.0.0.1:0 --duration 100ms --codec mpeg2",
            "and --codec require --transport rtp",
        ),
    ] {
        Program::tidegate(arguments).wait().failed_with(fix);
    }
    // Before a connection is accepted.
    let scratch = Scratch::new("foreign");
    std::fs::write(scratch.path("thesis.txt"), "years").unwrap();
    let folder = scratch.path("");
    for arguments in [
        "recv --transport tcp --listen 127.0.0.1:0",
        "send --transport tcp --serve 127.0.0.1:0",
        "transcode --listen 127.0.0.1:0 --serve 127.0.0.1:0",
    ] {
        let line = format!("{arguments} --run {}", text(&folder));
        let refused = Program::tidegate(&line).wait();
        refused.failed_with("holds something other than a run");
        assert!(!refused.said.contains("waiting"), "{}", refused.said);
    }
}

/// Errors that would end every connection are reported at the start.
#[test]
fn unavailable_resources_are_reported_before_a_connection() {
    let serve = "--transport tcp --serve 127.0.0.1:0";
    for (arguments, culprit) in [
        (
            format!("send {serve} --congestion nosuch"),
            "--congestion nosuch",
        ),
        (
            format!("send {serve} --rate-to file:/nosuch/x"),
            "/nosuch/x",
        ),
        (
            "transcode --input /nosuch/film --serve 127.0.0.1:0".to_owned(),
            "/nosuch/film",
        ),
        (
            "recv --transport tcp --listen 127.0.0.1:0 --discard-threshold 0s".to_owned(),
            "give a longer one",
        ),
    ] {
        let ended = Program::tidegate(&arguments).wait();
        ended.failed_with(culprit);
        assert!(!ended.said.contains("waiting"), "{}", ended.said);
    }
}

/// Likewise for an absent event daemon. The program looks for it at the same path as the library.
#[test]
fn an_absent_daemon_is_reported_before_a_connection() {
    let scratch = Scratch::new("no-daemon");
    let absent = scratch.path("events.sock");
    for verb in SERVERS {
        let line = format!("{verb} --serve 127.0.0.1:0 --mode iopt --events-from daemon");
        let ended = Program::start(&mut client(&line, &absent)).wait();
        ended.failed_with(text(&absent));
        // The message does not suggest the source that has just failed.
        ended.failed_with(
            "--events-from daemon is unavailable: leave it out, or choose in-process or unprivileged",
        );
        assert!(!ended.said.contains("waiting"), "{}", ended.said);
    }
}

const SERVERS: [&str; 2] = ["send --transport tcp", "transcode --listen 127.0.0.1:0"];

/// The policy lacks events of the mode. The error is reported before a connection is accepted.
#[test]
fn a_policy_that_is_too_narrow_is_reported_before_a_connection() {
    let Some(daemon) = Daemon::start("narrow", NARROW, "") else {
        return;
    };
    for verb in SERVERS {
        let line = format!("{verb} --serve 127.0.0.1:0 --mode iopt --events-from daemon");
        let ended = Program::start(&mut client(&line, &daemon.socket())).wait();
        ended.failed_with(&format!(
            "the policy of the event daemon at {} does not allow this user recovery, recovered",
            text(&daemon.socket())
        ));
        ended.failed_with("ask the administrator");
        ended.failed_with("--subscribe timed-out");
        assert!(!ended.said.contains("waiting"), "{}", ended.said);
    }
    daemon.interrupted();
}

/// Including the option that the message suggests.
#[test]
fn allowed_events_are_subscribed_and_the_default_source_falls_back() {
    let Some(daemon) = Daemon::start("narrower", NARROW, "") else {
        return;
    };
    for (options, words) in [
        (
            "--events-from daemon --subscribe timed-out",
            "events come from the kernel",
        ),
        ("", "events without privilege (the event daemon refuses: "),
    ] {
        let (player, port) = player("");
        let line = format!(
            "send --transport tcp {} --size 320x180 --preset ultrafast --codec mpeg2 --rate 1Mb/s \
             --mode iopt --duration 1s {options}",
            to(port)
        );
        let server = Program::start(&mut client(&line, &daemon.socket())).wait();
        server.succeeded();
        assert!(server.said.contains(words), "{}", server.said);
        player.wait().succeeded();
    }
    daemon.interrupted();
}

/// Players are served after the end of the daemon.
#[test]
fn players_are_served_after_the_end_of_the_daemon() {
    let Some(daemon) = Daemon::start("gone", ANYTHING, "") else {
        return;
    };
    let line = "send --transport tcp --serve 127.0.0.1:0 --size 320x180 --preset ultrafast \
                --codec mpeg2 --rate 1Mb/s --mode iopt --events-from daemon";
    let mut server = Program::start(&mut client(line, &daemon.socket()));
    let port = server.number("waiting for players at port ");
    let from = format!("recv --transport tcp --from 127.0.0.1:{port}");
    let mut first = Program::tidegate(&from);
    server.wait_for_line("events come from the kernel");
    first.wait_for_line("frames/s");
    first.kill();
    server.wait_for_line("mid-stream");
    daemon.interrupted();
    let mut second = Program::tidegate(&from);
    server.wait_for_line("events without privilege (");
    second.wait_for_line("frames/s");
    server.interrupt();
    server.wait().succeeded();
    second.wait().succeeded();
}

const NARROW: &str = "[[allow]]\neverybody = true\nevents = ['timeout']\nvariables = ['all']\n";

#[test]
fn all_connection_options_are_named() {
    for (arguments, options) in [
        ("send --transport tcp", &["--to", "--serve"][..]),
        (
            "transcode --to 127.0.0.1:9",
            &["--listen", "--from", "--input"],
        ),
        ("recv --transport tcp", &["--listen", "--from"]),
    ] {
        let ended = Program::tidegate(arguments).wait();
        assert!(!ended.status.success(), "{arguments}");
        let (error, _) = ended.said.split_once("Usage").unwrap();
        for option in options {
            assert!(error.contains(option), "{arguments}: {error}");
        }
    }
}

/// MPEG-2 over RTP and UDP (RFC 2250).
#[test]
fn mpeg_2_over_rtp_arrives_with_good_quality() {
    judged("mpeg_2_over_rtp_arrives_with_good_quality", mpeg_2_over_rtp);
}

fn mpeg_2_over_rtp() {
    let options = "--listen 127.0.0.1:0 --codec mpeg2 --reference scene --delay-bound 1s";
    let mut receiver = Program::tidegate(&format!("recv {options}"));
    let port = receiver.number("waiting for a stream at port ");
    let size = "--size 320x180 --ceiling 2Mb/s --codec mpeg2 --delay-bound 1s --duration 3s";
    let sender = Program::tidegate(&format!("send {} {size}", to(port))).wait();
    sender.succeeded();
    let receiver = receiver.wait();
    receiver.succeeded();
    let (_, psnr) = receiver
        .said
        .split_once("PSNR ")
        .expect("the summary has a PSNR");
    let psnr: f64 = psnr.split(' ').next().unwrap().parse().unwrap();
    assert!((28.0..80.0).contains(&psnr), "{}", receiver.said);
}
