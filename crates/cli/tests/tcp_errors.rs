//! Error cases of streams over kernel TCP, as processes.

mod calm;
#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::fs;
use std::io::Write as _;
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use calm::judged;
use program::{GUARD, Program, Scratch, load, player, text, to};
use tidegate_core::media::{Codec, Encoded, FrameRate};
use tidegate_core::session::tcp::{Capture, Classic, Place, TcpSender, TcpSenderConfig};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_core::wire::ntp::Ntp;
use tidegate_core::wire::rtcp::Cname;

/// A player of the server at `port`.
fn from(port: u16, options: &str) -> Program {
    Program::tidegate(&format!(
        "recv --transport tcp --from 127.0.0.1:{port} --discard-threshold 30s {options}"
    ))
}

/// A sender of small pictures.
fn server(way: &str, options: &str) -> Program {
    Program::tidegate(&format!("send --transport tcp {way} {SMALL} {options}"))
}

const SMALL: &str = "--size 160x90 --preset ultrafast --codec mpeg2 --rate 500kb/s";

/// Bytes of a stream with two frames and a gap of 384 frames between them, and of the BYE that
/// follows.
fn with_a_gap() -> (Vec<u8>, Vec<u8>) {
    let config = TcpSenderConfig {
        codec: Codec::Mpeg2,
        ssrc: 1,
        timestamp_base: 0,
        cname: Cname::new("test").unwrap(),
        epoch: Ntp(0),
        frame_rate: FrameRate::fps(30),
        capture: Capture::Source,
        packet_size: Bytes(1_200),
        most_queued: Bytes(1 << 20),
        place: Place::Frames,
        most_pictures: 1,
    };
    let now = Time::ZERO;
    let mut sender = TcpSender::new(config, Box::new(Classic::new(Rate::kbps(500))));
    let write = |sender: &mut TcpSender| {
        let bytes = sender.poll_write(now).to_vec();
        sender.on_written(now, bytes.len());
        bytes
    };
    let mut pictures = Vec::new();
    for frame in [0, 385] {
        sender.on_picture(now, frame, now);
        let order = sender.poll_order(now).unwrap();
        let coded = Encoded {
            frame: order.frame,
            captured: order.captured,
            key: true,
            leading: false,
            data: vec![0, 0, 1, 0xb3, 1, 0, 0, 1, 0, 0, 8, 9, 9, 9, 0, 0, 1, 1],
            quality: None,
        };
        sender.on_encoded(now, Duration::ZERO, Ok(coded));
        pictures.extend(write(&mut sender));
    }
    sender.stop_capture();
    (pictures, write(&mut sender))
}

/// `tidegate` run by a shell, for redirections.
fn with_shell(arguments: &str) -> Program {
    let line = format!("exec {} {arguments}", env!("CARGO_BIN_EXE_tidegate"));
    Program::start(Command::new("sh").args(["-c", &line]))
}

/// A port scan: connects and resets before the program accepts.
fn scan(program: &Program, port: u16) {
    connect_unseen(program, port, reset);
}

/// Connects while the program is stopped, and ends the connection by `go`.
fn connect_unseen(program: &Program, port: u16, go: impl FnOnce(TcpStream)) {
    signal(program, libc::SIGSTOP);
    let status = format!("/proc/{}/stat", program.id());
    while !fs::read_to_string(&status).unwrap().contains(") T ") {
        thread::yield_now();
    }
    go(TcpStream::connect(("127.0.0.1", port)).unwrap());
    signal(program, libc::SIGCONT);
}

/// Waits until the peer on this host has accepted the connection: then its socket has an inode.
fn wait_until_accepted(stream: &TcpStream) {
    let ports = [stream.peer_addr(), stream.local_addr()].map(|at| at.unwrap().port());
    let [here, there] = ports.map(|port| format!(":{port:04X}"));
    let is_accepted = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[1].ends_with(&here) && words[2].ends_with(&there) && words[9] != "0"
    };
    let guard = Instant::now() + GUARD;
    let accepted = || {
        let list = fs::read_to_string("/proc/net/tcp").unwrap();
        list.lines().any(is_accepted)
    };
    while !accepted() {
        assert!(Instant::now() < guard, "the connection is not accepted");
        thread::yield_now();
    }
}

/// Resets a connection, as a port scan does.
fn reset(stream: TcpStream) {
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: reads the structure, which is initialised.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const at_once).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
    drop(stream);
}

fn signal(program: &Program, signal: libc::c_int) {
    let id = libc::pid_t::try_from(program.id()).unwrap();
    // SAFETY: a system call that takes numbers. The child has not been waited for, so the id is its
    // own.
    assert_eq!(unsafe { libc::kill(id, signal) }, 0);
}

#[test]
fn missing_frames_are_not_shown() {
    let scratch = Scratch::new("gap");
    let seen = scratch.path("seen");
    // A listening player would expect more frames of an unknown sender.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = format!("--run {}", text(&seen));
    let player = from(server.local_addr().unwrap().port(), &options);
    let (mut stream, _) = server.accept().unwrap();
    let (pictures, goodbye) = with_a_gap();
    stream.write_all(&[pictures, goodbye].concat()).unwrap();
    player.wait().succeeded();
    let seen = load(&seen);
    let flow = &seen.flows[0];
    assert!(flow.shown.iter().map(|row| row.frame).eq(0..=385));
    let on_time = flow.shown.iter().filter(|row| row.on_time);
    assert!(on_time.map(|row| row.frame).eq([0, 385]));
    assert_eq!(seen.summary.unwrap().flows[0].freezes, Some(1));
}

#[test]
fn immediately_reset_connections_are_ignored() {
    let (player, seen_at) = player("");
    scan(&player, seen_at);
    let mut transcoder =
        Program::tidegate(&format!("transcode --listen 127.0.0.1:0 {}", to(seen_at)));
    let port = transcoder.number("waiting for a stream at port ");
    scan(&transcoder, port);
    server(&to(port), "--duration 1s").wait().succeeded();
    transcoder.wait().succeeded();
    player.wait().succeeded();

    let mut server = server("--serve 127.0.0.1:0", "--duration 1s");
    let port = server.number("waiting for players at port ");
    scan(&server, port);
    from(port, "").wait().succeeded();
    scan(&server, port);
    from(port, "").wait().succeeded();
    server.interrupt();
    let server = server.wait();
    let messages = server
        .succeeded()
        .said
        .matches("connected and sent nothing");
    assert_eq!(messages.count(), 2, "{}", server.said);
}

/// Also if the program has accepted the connection, and it was closed or used another protocol.
#[test]
fn connections_without_a_stream_do_not_end_the_wait() {
    let scratch = Scratch::new("nothing");
    let seen = scratch.path("seen");
    let (mut player, seen_at) = player(&format!("--run {}", text(&seen)));
    let mut transcoder =
        Program::tidegate(&format!("transcode --listen 127.0.0.1:0 {}", to(seen_at)));
    let port = transcoder.number("waiting for a stream at port ");
    for (program, port) in [(&mut player, seen_at), (&mut transcoder, port)] {
        for go in [reset, drop] {
            let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let name = stream.local_addr().unwrap();
            wait_until_accepted(&stream);
            go(stream);
            program.wait_for_line(&format!("{name} connected and sent nothing"));
        }
        let mut scan = TcpStream::connect(("127.0.0.1", port)).unwrap();
        scan.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let name = scan.local_addr().unwrap();
        program.wait_for_line(&format!(
            "{name} connected and sent no stream of RTP packets"
        ));
    }
    server(&to(port), "--duration 1s").wait().succeeded();
    transcoder.wait().succeeded();
    player.wait().succeeded();
    assert_eq!(load(&seen).manifest.notes, Vec::<String>::new());
}

/// Received frames are kept and summarised; exit code and message report the error.
#[test]
fn a_reset_in_mid_stream_keeps_received_frames() {
    let scratch = Scratch::new("reset");
    let [seen, film] = ["seen", "film.m2v"].map(|n| scratch.path(n));
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = server.local_addr().unwrap();
    let options = format!("--json --run {} --out {}", text(&seen), text(&film));
    let mut player = from(name.port(), &options);
    let (mut stream, _) = server.accept().unwrap();
    let (pictures, _) = with_a_gap();
    stream.write_all(&pictures).unwrap();
    player.wait_for_line("the stream has started");
    reset(stream);
    let player = player.wait();
    player.failed_with(&format!("the connection to {name} broke in mid-stream"));
    player.failed_with("reset by peer");
    player.failed_with("received 2 whole frames");
    let json: serde_json::Value = serde_json::from_str(&player.output).unwrap();
    assert_eq!(json["flows"][0]["name"], "stream");
    assert_eq!(load(&seen).flows[0].received.len(), 2);
    assert!(fs::read(film).unwrap().starts_with(&[0, 0, 1, 0xb3]));
}

/// A server that closes at once, or a port of another program, is not an interrupted stream.
#[test]
fn a_server_that_closes_at_once_has_sent_nothing() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = server.local_addr().unwrap();
    let player = from(name.port(), "");
    drop(server.accept().unwrap());
    player.wait().failed_with(&format!(
        "{name} closed the connection before sending any data"
    ));
    let player = from(name.port(), "");
    reset(server.accept().unwrap().0);
    player.wait().failed_with(&format!(
        "{name} closed the connection before sending any data (Connection reset"
    ));
}

/// Times of each run start at zero.
#[test]
fn each_player_has_its_own_run_folder_or_none() {
    let scratch = Scratch::new("runs-of-players");
    let [run, second, third] = ["run", "run-2", "run-3"].map(|name| scratch.path(name));
    fs::create_dir(&second).unwrap();
    fs::write(second.join("thesis.txt"), "years").unwrap();
    let options = format!("--duration 3s --run {}", text(&run));
    let mut server = server("--serve 127.0.0.1:0", &options);
    let port = server.number("waiting for players at port ");
    from(port, "").wait().succeeded();
    let unnamed = from(port, "");
    server.wait_for_line("no run folder is written");
    unnamed.wait().succeeded();
    from(port, "").wait().succeeded();
    server.interrupt();
    server.wait().succeeded();
    let captured = |dir| {
        load(dir).flows[0]
            .sent
            .iter()
            .map(|f| f.captured)
            .collect::<Vec<_>>()
    };
    let (first, third) = (captured(&run), captured(&third));
    assert!(third.first() < first.last(), "{third:?}");
}

/// A health check of the server is no player: it has neither a run folder nor a summary.
#[test]
fn a_client_that_sends_nothing_has_no_run_folder() {
    let scratch = Scratch::new("no-player");
    let folder = |name| scratch.path(name);
    // A run folder of an earlier run.
    let before = folder("run-2");
    let (player, port) = player("");
    let earlier = format!("--duration 1s --run {}", text(&before));
    server(&to(port), &earlier).wait().succeeded();
    player.wait().succeeded();
    let earlier = load(&before).manifest.scenario;

    let options = format!("--duration 1s --json --run {}", text(&folder("run")));
    let mut server = server("--serve 127.0.0.1:0", &options);
    let port = server.number("waiting for players at port ");
    let health_check = |server: &mut Program| {
        connect_unseen(server, port, drop);
        let line = server.wait_for_line("connected and sent nothing");
        assert!(line.ends_with("waiting for the next player"), "{line}");
    };
    health_check(&mut server);
    from(port, "").wait().succeeded();
    health_check(&mut server);
    health_check(&mut server);
    assert_eq!(
        load(&before).manifest.scenario,
        earlier,
        "the earlier run folder is unchanged"
    );
    from(port, "").wait().succeeded();
    server.interrupt();
    let server = server.wait();
    let numbers = serde_json::Deserializer::from_str(&server.succeeded().output);
    let numbers = numbers.into_iter::<serde_json::Value>().map(Result::unwrap);
    assert_eq!(numbers.count(), 2);
    for run in ["run", "run-2"].map(folder) {
        assert!(load(&run).manifest.scenario.ends_with("over TCP"));
        assert_eq!(load(&run).flows[0].sent.len(), 30);
    }
    assert_ne!(load(&before).manifest.scenario, earlier);
    assert!(!folder("run-3").exists());
}

/// Unrepeatable input is rejected for servers before a connection.
#[test]
fn unseekable_input_is_read_once() {
    judged("unseekable_input_is_read_once", read_once);
}

fn read_once() {
    let scratch = Scratch::new("once");
    let [film, fifo] = ["film.m2v", "fifo.m2v"].map(|name| scratch.path(name));
    let (recorder, port) = player(&format!("--out {}", text(&film)));
    server(&to(port), "--duration 2s").wait().succeeded();
    let frames = |said: &str| {
        let (_, rest) = said.split_once("received ").unwrap();
        rest.split(' ').next().unwrap().parse::<u32>().unwrap()
    };
    let all = frames(&recorder.wait().succeeded().said);
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let writer = {
        let (film, fifo) = (film.clone(), fifo.clone());
        thread::spawn(move || fs::write(fifo, fs::read(film).unwrap()))
    };
    for input in [
        format!("--input {}", text(&fifo)),
        format!("--input - < {}", text(&film)),
    ] {
        let (player, port) = player("");
        with_shell(&format!("transcode {} {input}", to(port)))
            .wait()
            .succeeded();
        let said = player.wait().said;
        // A busy machine skips some frames.
        let came = frames(&said);
        assert!(came > all / 2, "{input}: {came} of {all}: {said}");
    }
    writer.join().unwrap().unwrap();
    for verb in ["send --transport tcp", "transcode"] {
        let line = format!("{verb} --serve 127.0.0.1:0 --input -");
        let refused = Program::tidegate(&line).wait();
        refused.failed_with("give a file as --input, or --to");
    }
}

#[test]
fn a_transcoder_suggests_fps_at_another_frame_rate() {
    for fps in [25, 60] {
        let (player, port) = player("");
        let mut transcoder =
            Program::tidegate(&format!("transcode --listen 127.0.0.1:0 {}", to(port)));
        let port = transcoder.number("waiting for a stream at port ");
        let server = server(&to(port), &format!("--duration 2s --fps {fps}"));
        transcoder.wait_for_line("give the --fps of the sender");
        for program in [server, transcoder, player] {
            program.wait().succeeded();
        }
    }
}

#[test]
fn a_silent_server_is_an_error_after_the_idle_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let ended = from(port, "--idle-timeout 200ms").wait();
    ended.failed_with("give a longer --idle-timeout");
}

#[test]
fn ctrl_c_ends_a_connection_attempt() {
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: a system call that takes numbers. With a backlog of 0, later connection attempts get
    // no reply.
    assert_eq!(unsafe { libc::listen(full.as_raw_fd(), 0) }, 0);
    let at = full.local_addr().unwrap();
    let _first = TcpStream::connect(at).unwrap();
    for verb in [
        format!("send --transport tcp --to {at}"),
        format!("recv --transport tcp --from {at}"),
        format!("transcode --from {at} --serve 127.0.0.1:0"),
    ] {
        let program = Program::tidegate(&verb);
        program.catches_sigint();
        program.interrupt();
        program.wait().succeeded();
    }
    let late = Program::tidegate(&format!(
        "recv --transport tcp --from {at} --duration 100ms"
    ));
    late.wait().failed_with("did not answer in 0.");
}

#[test]
fn a_player_without_an_address_listens_on_both_families() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        println!("left out: this machine has no IPv6");
        return;
    }
    for host in ["127.0.0.1", "[::1]"] {
        let mut player =
            Program::tidegate("recv --transport tcp --listen 0 --insecure --discard-threshold 30s");
        let port = player.number("waiting for a stream at port ");
        let server = server(&format!("--to {host}:{port}"), "--duration 1s");
        server.wait().succeeded();
        player.wait().succeeded();
    }
}

#[test]
fn a_summary_that_cannot_be_written_is_an_error() {
    let (player, port) = player("");
    let line = format!(
        "send --transport tcp {} {SMALL} --duration 1s --json > /dev/full",
        to(port)
    );
    let ended = with_shell(&line).wait();
    ended.failed_with("cannot print the summary of --json");
    player.wait().succeeded();
}

#[test]
fn unreadable_files_are_reported_before_a_connection() {
    let scratch = Scratch::new("no-files");
    let fifo = scratch.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let fifo = text(&fifo);
    for (line, fix) in [
        (
            "recv --transport tcp --listen 127.0.0.1:0 --reference /nosuch".to_owned(),
            "/nosuch",
        ),
        (
            format!("send --transport tcp --serve 127.0.0.1:0 --rate-from {fifo}"),
            "unix:PATH",
        ),
        (
            format!("transcode --input x --serve 127.0.0.1:0 --rate-to {fifo}"),
            "unix:PATH",
        ),
    ] {
        let ended = Program::tidegate(&line).wait();
        ended.failed_with(fix);
        assert!(!ended.said.contains("waiting"), "{}", ended.said);
    }
}
