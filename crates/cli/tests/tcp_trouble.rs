//! Streams over kernel TCP as processes, when something is not as it should be.

mod calm;
#[expect(dead_code, reason = "the other tests use the rest")]
mod party;

use std::fs;
use std::io::Write as _;
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use calm::judged;
use party::{GUARD, Party, Scratch, load, player, text, to};
use tidegate_core::media::{Codec, Encoded, FrameRate};
use tidegate_core::session::tcp::{Capture, Classic, Place, TcpSender, TcpSenderConfig};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_core::wire::ntp::Ntp;
use tidegate_core::wire::rtcp::Cname;

/// Of a player for a server at this port.
fn from(port: u16, options: &str) -> Party {
    Party::tidegate(&format!(
        "recv --transport tcp --from 127.0.0.1:{port} --discard-threshold 30s {options}"
    ))
}

/// A sender of small pictures.
fn server(way: &str, options: &str) -> Party {
    Party::tidegate(&format!("send --transport tcp {way} {SMALL} {options}"))
}

const SMALL: &str = "--size 160x90 --preset ultrafast --codec mpeg2 --rate 500kb/s";

/// Two pictures of a stream of which 384 between them never came, as bytes, and what comes behind them:
/// a goodbye.
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
            data: vec![0, 0, 1, 0xb3, 1, 0, 0, 1, 0, 0, 8, 9, 9, 9, 0, 0, 1, 1],
            quality: None,
        };
        sender.on_encoded(now, Duration::ZERO, Ok(coded));
        pictures.extend(write(&mut sender));
    }
    sender.stop_capture();
    (pictures, write(&mut sender))
}

/// `tidegate` with what a shell makes of standard input and output.
fn with_shell(arguments: &str) -> Party {
    let line = format!("exec {} {arguments}", env!("CARGO_BIN_EXE_tidegate"));
    Party::start(Command::new("sh").args(["-c", &line]))
}

/// Comes and goes at once, as a scan of ports does, before the program has looked.
fn scan(party: &Party, port: u16) {
    look(party, port, reset);
}

/// The same in the way that is told.
fn look(party: &Party, port: u16, go: impl FnOnce(TcpStream)) {
    signal(party, libc::SIGSTOP);
    let status = format!("/proc/{}/stat", party.id());
    while !fs::read_to_string(&status).unwrap().contains(") T ") {
        thread::yield_now();
    }
    go(TcpStream::connect(("127.0.0.1", port)).unwrap());
    signal(party, libc::SIGCONT);
}

/// Until the other end, on this host, has it from the system: then it has an inode.
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
        assert!(Instant::now() < guard, "nobody takes the connection");
        thread::yield_now();
    }
}

/// Ends a connection as a scan of ports does.
fn reset(stream: TcpStream) {
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: reads the structure, which is whole.
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

fn signal(party: &Party, signal: libc::c_int) {
    let id = libc::pid_t::try_from(party.id()).unwrap();
    // SAFETY: a system call that takes numbers. The child has not been waited for, so the id is its
    // own.
    assert_eq!(unsafe { libc::kill(id, signal) }, 0);
}

#[test]
fn frames_that_never_came_were_not_on_the_screen() {
    let scratch = Scratch::new("gap");
    let seen = scratch.path("seen");
    let (player, port) = player(&format!("--run {}", text(&seen)));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (pictures, goodbye) = with_a_gap();
    stream.write_all(&[pictures, goodbye].concat()).unwrap();
    player.ends().succeeded();
    let seen = load(&seen);
    let flow = &seen.flows[0];
    assert!(flow.shown.iter().map(|row| row.frame).eq(0..=385));
    let on_time = flow.shown.iter().filter(|row| row.on_time);
    assert!(on_time.map(|row| row.frame).eq([0, 385]));
    assert_eq!(seen.summary.unwrap().flows[0].freezes, Some(1));
}

#[test]
fn who_resets_a_connection_at_once_ends_nothing() {
    let (player, seen_at) = player("");
    scan(&player, seen_at);
    let mut transcoder =
        Party::tidegate(&format!("transcode --listen 127.0.0.1:0 {}", to(seen_at)));
    let port = transcoder.number("waiting for a stream at port ");
    scan(&transcoder, port);
    server(&to(port), "--duration 1s").ends().succeeded();
    transcoder.ends().succeeded();
    player.ends().succeeded();

    let mut server = server("--serve 127.0.0.1:0", "--duration 1s");
    let port = server.number("waiting for players at port ");
    scan(&server, port);
    from(port, "").ends().succeeded();
    scan(&server, port);
    from(port, "").ends().succeeded();
    server.interrupt();
    let server = server.ends();
    let told = server
        .succeeded()
        .said
        .matches("connected and accepted no data");
    assert_eq!(told.count(), 2, "{}", server.said);
}

/// Also when the program has seen it, and it was not reset, or spoke another protocol.
#[test]
fn who_connects_and_sends_no_stream_does_not_end_the_wait() {
    let scratch = Scratch::new("nothing");
    let seen = scratch.path("seen");
    let (mut player, seen_at) = player(&format!("--run {}", text(&seen)));
    let mut transcoder =
        Party::tidegate(&format!("transcode --listen 127.0.0.1:0 {}", to(seen_at)));
    let port = transcoder.number("waiting for a stream at port ");
    for (party, port) in [(&mut player, seen_at), (&mut transcoder, port)] {
        for go in [reset, drop] {
            let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let name = stream.local_addr().unwrap();
            wait_until_accepted(&stream);
            go(stream);
            party.says(&format!("{name} connected and sent nothing"));
        }
        let mut scan = TcpStream::connect(("127.0.0.1", port)).unwrap();
        scan.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let name = scan.local_addr().unwrap();
        party.says(&format!(
            "{name} connected and sent no stream of RTP packets"
        ));
    }
    server(&to(port), "--duration 1s").ends().succeeded();
    transcoder.ends().succeeded();
    player.ends().succeeded();
    assert_eq!(load(&seen).manifest.notes.len(), 1);
}

/// What came is kept and summed up; the exit code and the words tell of the end.
#[test]
fn who_is_reset_in_mid_stream_keeps_what_came_and_says_so() {
    let scratch = Scratch::new("reset");
    let [seen, film] = ["seen", "film.m2v"].map(|n| scratch.path(n));
    let (mut player, port) = player(&format!(
        "--json --run {} --out {}",
        text(&seen),
        text(&film)
    ));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let name = stream.local_addr().unwrap();
    let (pictures, _) = with_a_gap();
    stream.write_all(&pictures).unwrap();
    player.says("the stream has started");
    reset(stream);
    let player = player.ends();
    player.failed_with(&format!("the connection to {name} broke in mid-stream"));
    player.failed_with("reset by peer");
    player.failed_with("received 2 whole frames");
    let json: serde_json::Value = serde_json::from_str(&player.output).unwrap();
    assert_eq!(json["flows"][0]["name"], "stream");
    assert_eq!(load(&seen).flows[0].received.len(), 2);
    assert!(fs::read(film).unwrap().starts_with(&[0, 0, 1, 0xb3]));
}

/// A server that ends at once, or a port that is another's, is not a stream that broke.
#[test]
fn a_server_that_goes_without_a_word_has_sent_nothing() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = server.local_addr().unwrap();
    let player = from(name.port(), "");
    drop(server.accept().unwrap());
    player
        .ends()
        .failed_with(&format!("{name} closed the connection before sending any data"));
    let player = from(name.port(), "");
    reset(server.accept().unwrap().0);
    player.ends().failed_with(&format!(
        "{name} closed the connection before sending any data (Connection reset"
    ));
}

/// The times of each run begin with it.
#[test]
fn each_player_has_a_run_of_its_own_or_none() {
    let scratch = Scratch::new("runs-of-players");
    let [run, second, third] = ["run", "run-2", "run-3"].map(|name| scratch.path(name));
    fs::create_dir(&second).unwrap();
    fs::write(second.join("thesis.txt"), "years").unwrap();
    let options = format!("--duration 3s --run {}", text(&run));
    let mut server = server("--serve 127.0.0.1:0", &options);
    let port = server.number("waiting for players at port ");
    from(port, "").ends().succeeded();
    let unnamed = from(port, "");
    server.says("no run folder is written");
    unnamed.ends().succeeded();
    from(port, "").ends().succeeded();
    server.interrupt();
    server.ends().succeeded();
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

/// What looks whether a server lives is no player: it has neither a run folder nor numbers.
#[test]
fn who_takes_nothing_has_no_run() {
    let scratch = Scratch::new("no-player");
    let folder = |name| scratch.path(name);
    // Of an earlier time.
    let before = folder("run-2");
    let (player, port) = player("");
    let earlier = format!("--duration 1s --run {}", text(&before));
    server(&to(port), &earlier).ends().succeeded();
    player.ends().succeeded();
    let earlier = load(&before).manifest.scenario;

    let options = format!("--duration 1s --json --run {}", text(&folder("run")));
    let mut server = server("--serve 127.0.0.1:0", &options);
    let port = server.number("waiting for players at port ");
    let nobody = |server: &mut Party| {
        look(server, port, drop);
        let line = server.says("connected and accepted no data");
        assert!(line.ends_with("waiting for the next player"), "{line}");
    };
    nobody(&mut server);
    from(port, "").ends().succeeded();
    nobody(&mut server);
    nobody(&mut server);
    assert_eq!(
        load(&before).manifest.scenario,
        earlier,
        "it is not touched"
    );
    from(port, "").ends().succeeded();
    server.interrupt();
    let server = server.ends();
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

/// The input as well is known before anybody has come.
#[test]
fn what_can_be_read_once_is_read_once() {
    judged("what_can_be_read_once_is_read_once", read_once);
}

fn read_once() {
    let scratch = Scratch::new("once");
    let [film, fifo] = ["film.m2v", "fifo.m2v"].map(|name| scratch.path(name));
    let (taker, port) = player(&format!("--out {}", text(&film)));
    server(&to(port), "--duration 2s").ends().succeeded();
    let frames = |said: &str| {
        let (_, rest) = said.split_once("received ").unwrap();
        rest.split(' ').next().unwrap().parse::<u32>().unwrap()
    };
    let all = frames(&taker.ends().succeeded().said);
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
            .ends()
            .succeeded();
        let said = player.ends().said;
        // A busy machine leaves some out.
        let came = frames(&said);
        assert!(came > all / 2, "{input}: {came} of {all}: {said}");
    }
    writer.join().unwrap().unwrap();
    for verb in ["send --transport tcp", "transcode"] {
        let line = format!("{verb} --serve 127.0.0.1:0 --input -");
        let refused = Party::tidegate(&line).ends();
        refused.failed_with("give a file as --input, or --to");
    }
}

#[test]
fn a_transcoder_names_the_option_when_frames_come_at_another_rate() {
    for fps in [25, 60] {
        let (player, port) = player("");
        let mut transcoder =
            Party::tidegate(&format!("transcode --listen 127.0.0.1:0 {}", to(port)));
        let port = transcoder.number("waiting for a stream at port ");
        let server = server(&to(port), &format!("--duration 2s --fps {fps}"));
        transcoder.says("give the --fps of the sender");
        for party in [server, transcoder, player] {
            party.ends().succeeded();
        }
    }
}

#[test]
fn who_says_nothing_is_waited_for_as_long_as_told() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let ended = from(port, "--idle-timeout 200ms").ends();
    ended.failed_with("give a longer --idle-timeout");
}

#[test]
fn ctrl_c_ends_the_wait_for_who_does_not_answer() {
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: a system call that takes numbers. Whoever comes behind the first is not answered.
    assert_eq!(unsafe { libc::listen(full.as_raw_fd(), 0) }, 0);
    let at = full.local_addr().unwrap();
    let _first = TcpStream::connect(at).unwrap();
    for verb in [
        format!("send --transport tcp --to {at}"),
        format!("recv --transport tcp --from {at}"),
        format!("transcode --from {at} --serve 127.0.0.1:0"),
    ] {
        let party = Party::tidegate(&verb);
        party.heeds();
        party.interrupt();
        party.ends().succeeded();
    }
    let late = Party::tidegate(&format!(
        "recv --transport tcp --from {at} --duration 100ms"
    ));
    late.ends().failed_with("did not answer in 0.");
}

#[test]
fn a_player_without_an_address_hears_both_families() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        println!("left out: this machine has no IPv6");
        return;
    }
    for host in ["127.0.0.1", "[::1]"] {
        let mut player = Party::tidegate("recv --transport tcp --listen 0 --discard-threshold 30s");
        let port = player.number("waiting for a stream at port ");
        let server = server(&format!("--to {host}:{port}"), "--duration 1s");
        server.ends().succeeded();
        player.ends().succeeded();
    }
}

#[test]
fn numbers_that_nobody_takes_are_an_error_that_names_them() {
    let (player, port) = player("");
    let line = format!(
        "send --transport tcp {} {SMALL} --duration 1s --json > /dev/full",
        to(port)
    );
    let ended = with_shell(&line).ends();
    ended.failed_with("cannot print the summary of --json");
    player.ends().succeeded();
}

#[test]
fn what_cannot_be_read_is_named_before_anybody_connects() {
    let scratch = Scratch::new("no-files");
    let fifo = scratch.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let fifo = text(&fifo);
    for (line, mend) in [
        (
            "recv --transport tcp --listen 127.0.0.1:0 --reference /nosuch".to_owned(),
            "/nosuch",
        ),
        (
            format!("send --transport tcp --serve 127.0.0.1:0 --rate-from {fifo}"),
            "pipe:PATH",
        ),
        (
            format!("transcode --input x --serve 127.0.0.1:0 --rate-to {fifo}"),
            "pipe:PATH",
        ),
    ] {
        let ended = Party::tidegate(&line).ends();
        ended.failed_with(mend);
        assert!(!ended.said.contains("waiting"), "{}", ended.said);
    }
}
