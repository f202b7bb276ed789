//! Strangers at the listening ends of streams over TCP, as processes.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use program::{GUARD, Program, Scratch, load, player, text, to};
use tidegate_core::media::Codec;
use tidegate_core::session::tcp::first_report;
use tidegate_core::wire::rtp::RtpHeader;
use tidegate_core::wire::{framing, payload};

/// A sender of small pictures.
fn server(way: &str, options: &str) -> Program {
    let usual = "--size 160x90 --preset ultrafast --codec mpeg2";
    Program::tidegate(&format!("send --transport tcp {way} {usual} {options}"))
}

fn from(port: u16) -> Program {
    Program::tidegate(&format!(
        "recv --transport tcp --from 127.0.0.1:{port} --discard-threshold 30s"
    ))
}

fn connect(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).unwrap()
}

/// Connections that stay open: silent ones, and one that sends packets of 14 bytes without a frame
/// until it is closed.
struct Strangers {
    _silent: Vec<TcpStream>,
    drip: JoinHandle<()>,
}

impl Strangers {
    fn at(port: u16) -> Self {
        let silent = (0..10).map(|_| connect(port)).collect();
        let mut stream = connect(port);
        let packet = [0, 12, 0x80, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
        stream.write_all(&packet).unwrap();
        let drip = thread::spawn(move || {
            // Ends with the program, at the latest.
            while stream.write_all(&packet).is_ok() {
                thread::yield_now();
            }
        });
        Self {
            _silent: silent,
            drip,
        }
    }
}

#[test]
fn a_player_and_a_transcoder_pass_over_silent_and_slow_senders() {
    let (player, seen_at) = player("--idle-timeout 20s");
    let at_player = Strangers::at(seen_at);
    let mut transcoder =
        Program::tidegate(&format!("transcode --listen 127.0.0.1:0 {}", to(seen_at)));
    let port = transcoder.number("waiting for a stream at port ");
    let at_transcoder = Strangers::at(port);
    server(&to(port), "--duration 1s").wait().succeeded();
    transcoder.wait().succeeded();
    player.wait().succeeded();
    for strangers in [at_player, at_transcoder] {
        strangers.drip.join().unwrap();
    }
}

/// A key frame of MPEG-2 in one packet.
fn key_frame() -> Vec<u8> {
    let data = [0, 0, 1, 0xb3, 1, 0, 0, 1, 0, 0, 8, 9, 9, 9, 0, 0, 1, 1];
    let mut out = Vec::new();
    let cut = payload::packetise(Codec::Mpeg2, &data, 1_000, |payload, marker| {
        let header = RtpHeader {
            payload_type: payload::payload_type(Codec::Mpeg2),
            sequence: 1,
            timestamp: 0,
            ssrc: 1,
            marker,
        };
        let emitted = framing::emit(&mut out, |out| {
            header.emit(out);
            payload.emit(out);
        });
        emitted.unwrap();
    });
    cut.unwrap();
    out
}

/// One closes its connection after a key frame, and one keeps it.
#[test]
fn a_forged_key_frame_neither_ends_nor_holds_a_listener() {
    let attack = |program: &mut Program, port| {
        let mut closing = connect(port);
        closing.write_all(&key_frame()).unwrap();
        let stranger = closing.local_addr().unwrap();
        drop(closing);
        program.wait_for_line(&format!(
            "{stranger} connected and sent no stream of RTP packets (RFC 4571) in {} bytes; waiting \
             for another sender",
            key_frame().len()
        ));
        let mut holding = connect(port);
        holding.write_all(&key_frame()).unwrap();
        wait_until_arrived(&holding, true);
        holding
    };
    let (mut player, seen_at) = player("");
    let mut transcoder =
        Program::tidegate(&format!("transcode --listen 127.0.0.1:0 {}", to(seen_at)));
    let port = transcoder.number("waiting for a stream at port ");
    let _held = [attack(&mut player, seen_at), attack(&mut transcoder, port)];
    server(&to(port), "--duration 1s").wait().succeeded();
    transcoder.wait().succeeded();
    player.wait().succeeded();
}

#[test]
fn a_server_passes_over_silent_and_slow_players() {
    let mut server = server("--serve 127.0.0.1:0", "--duration 1s --idle-timeout 1s");
    let port = server.number("waiting for players at port ");
    let strangers = Strangers::at(port);
    server.wait_for_line("connected and sent no receiver report");
    strangers.drip.join().unwrap();
    from(port).wait().succeeded();
    server.interrupt();
    server.wait().succeeded();

    // Introduces itself and never reads.
    let mut endless = self::server("--serve 127.0.0.1:0", "--rate 8Mb/s --idle-timeout 1s");
    let port = endless.number("waiting for players at port ");
    let mut deaf = connect(port);
    deaf.write_all(&first_report(1)).unwrap();
    let mut waiting = from(port);
    endless.wait_for_line("has not acknowledged the data in the socket for 1 s");
    waiting.wait_for_line("the stream has started");
    waiting.interrupt();
    waiting.wait().succeeded();
    endless.interrupt();
    endless.wait().succeeded();
}

/// Waits until the data on a connection within this host has arrived, and the peer has read it if
/// `is_read`.
fn wait_until_arrived(stream: &TcpStream, is_read: bool) {
    let ports = [stream.local_addr(), stream.peer_addr()].map(|at| at.unwrap().port());
    // Bytes that are not acknowledged, and those that are not read, of the socket between two ports.
    let waiting = |here: u16, there: u16| {
        let list = fs::read_to_string("/proc/net/tcp").unwrap();
        let ends = [here, there].map(|port| format!(":{port:04X}"));
        list.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_own = words[1].ends_with(&ends[0]) && words[2].ends_with(&ends[1]);
            let (unacknowledged, unread) = words[4].split_once(':')?;
            is_own.then(|| (unacknowledged.to_owned(), unread.to_owned()))
        })
    };
    let guard = Instant::now() + GUARD;
    let [here, there] = ports;
    let has_none = |count: &str| count == "00000000";
    while !waiting(here, there).is_some_and(|(open, _)| has_none(&open))
        || is_read && !waiting(there, here).is_some_and(|(_, unread)| has_none(&unread))
    {
        assert!(Instant::now() < guard, "the data does not arrive");
        thread::yield_now();
    }
}

#[test]
fn players_that_leave_before_their_turn_are_not_counted() {
    let scratch = Scratch::new("left-early");
    let [run, second, third] = ["run", "run-2", "run-3"].map(|name| scratch.path(name));
    let options = format!("--run {}", text(&run));
    let mut server = server("--serve 127.0.0.1:0", &options);
    let port = server.number("waiting for players at port ");
    let mut first = from(port);
    first.wait_for_line("the stream has started");
    let waiting = || {
        let mut player = connect(port);
        player.write_all(&first_report(1)).unwrap();
        wait_until_arrived(&player, true);
        player
    };
    // One sends a BYE and stays, one closes its connection.
    let mut polite = waiting();
    polite
        .write_all(&[0, 8, 0x81, 203, 0, 1, 0, 0, 0, 1])
        .unwrap();
    wait_until_arrived(&polite, false);
    drop(waiting());
    first.interrupt();
    first.wait().succeeded();
    server.wait_for_line("the player has left");
    server.wait_for_line("connected and left before its turn; waiting for the next player");
    server.wait_for_line("the player has left");
    let mut last = from(port);
    last.wait_for_line("frames/s");
    last.interrupt();
    last.wait().succeeded();
    server.interrupt();
    server.wait().succeeded();
    for run in [&run, &second] {
        assert!(!load(run).flows[0].sent.is_empty());
    }
    assert!(!third.exists());
}

/// Leaves two descriptors to a running program.
fn limit_descriptors(program: &Program) {
    let open = format!("/proc/{}/fd", program.id());
    let most = fs::read_dir(open).unwrap().count() as u64 + 2;
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    let id = libc::pid_t::try_from(program.id()).unwrap();
    // SAFETY: reads the initialised structure. The child has not been waited for, so the id is its
    // own.
    let set = unsafe {
        libc::prlimit(
            id,
            libc::RLIMIT_NOFILE,
            &raw const limit,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(set, 0);
}

/// The oldest connections are closed for newer ones, also if the process has no descriptors left.
#[test]
fn a_thousand_connections_end_neither_player_nor_server() {
    let flood = |port| {
        let mut held = Vec::new();
        for _ in 0..1_000 {
            held.push(connect(port));
            if held.len() > 200 {
                held.remove(0);
            }
        }
        // The oldest one that is held has been closed.
        let closed = held.remove(0).read(&mut [0]);
        assert!(closed.map_or_else(|_| true, |count| count == 0));
        held
    };
    for is_short in [false, true] {
        let (player, port) = player("");
        if is_short {
            limit_descriptors(&player);
        }
        let _held = flood(port);
        server(&to(port), "--duration 1s").wait().succeeded();
        let ended = player.wait();
        let said = &ended.succeeded().said;
        let refusals = said.matches("waiting for another sender").count();
        assert!((1..100).contains(&refusals), "{said}");
    }
    let mut server = server("--serve 127.0.0.1:0", "--duration 1s");
    let port = server.number("waiting for players at port ");
    let _held = flood(port);
    from(port).wait().succeeded();
    server.interrupt();
    server.wait().succeeded();
}
