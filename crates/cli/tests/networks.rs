//! `tidegate send` and `tidegate recv` on networks other than IPv4 loopback, each in a network and
//! mount namespace of its own.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;
mod skip;

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use program::{Program, Scratch, text};

/// Streams in a namespace after `setup`, in the language of the shell; returns what both ends print.
fn stream(test: &str, setup: &str, recv: &str, send: &str) -> Option<String> {
    stream_through(test, setup, recv, send, ("", ""))
}

/// As [`stream`], with these words of the shell before and after the sender.
fn stream_through(
    test: &str,
    setup: &str,
    recv: &str,
    send: &str,
    (before, after): (&str, &str),
) -> Option<String> {
    if skip::is_without_lab(test) {
        return None;
    }
    let scratch = Scratch::new(test);
    let script = format!(
        "set -e
        cd {folder}
        ip link set lo up
        {setup}
        mkfifo said
        {program} recv {recv} 2>said &
        receiver=$!
        trap 'kill $receiver 2>/dev/null || :' EXIT
        exec 3<said
        while read -r line <&3; do
            case $line in *'waiting for'*) break ;; esac
        done
        {before} {program} send {send} --size 320x180 --preset ultrafast 2>&1 {after}
        wait $receiver
        cat <&3",
        folder = text(&scratch.path("")),
        program = env!("CARGO_BIN_EXE_tidegate"),
    );
    fs::create_dir_all(scratch.path("")).unwrap();
    let mut unshare = Command::new("unshare");
    let made = unshare.args(["--map-root-user", "--net", "--mount", "sh", "-c", &script]);
    let made = made.output().unwrap();
    let [said, errors] = [made.stdout, made.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(made.status.success(), "{said}\n{errors}");
    Some(said)
}

/// Frames that the receiver counts.
fn whole(said: &str) -> u64 {
    let (_, rest) = said.split_once("\nreceived ").expect(said);
    let (count, _) = rest.split_once(" whole").expect(said);
    count.parse().unwrap()
}

#[test]
fn the_address_where_the_receiver_listens_is_found() {
    let setup = "printf '::1 both.example\\n127.0.0.1 both.example\\n' >hosts
        mount --bind hosts /etc/hosts";
    for (name, at) in [("first-v6", "127.0.0.1:5660"), ("first-v4", "[::1]:5660")] {
        let (recv, send) = (
            format!("--listen {at}"),
            "--to both.example:5660 --duration 2s --ceiling 1Mb/s",
        );
        let Some(said) = stream(name, setup, &recv, send) else {
            return;
        };
        assert!(whole(&said) >= 40, "{said}");
    }
}

#[test]
fn addresses_of_a_link_have_a_zone() {
    let setup = "ip link add va type veth peer name vb
        ip addr add fe80::1:1/64 dev va nodad
        ip link set va up
        ip link set vb up";
    let at = "[fe80::1:1%va]:5004 --insecure";
    for (name, transport, rate) in [
        ("zone", "", "--ceiling 1Mb/s"),
        ("zone-tcp", "--transport tcp", "--rate 1Mb/s"),
    ] {
        let recv = format!("{transport} --listen {at}");
        let send = format!("{transport} --to {at} --duration 2s {rate}");
        let Some(said) = stream(name, setup, &recv, &send) else {
            return;
        };
        assert!(whole(&said) >= 40, "{said}");
    }
}

#[test]
fn groups_are_joined() {
    let setup = "ip route add 224.0.0.0/4 dev lo src 127.0.0.1
        printf 'v=0\\no=- 1 1 IN IP4 127.0.0.1\\ns=-\\nc=IN IP4 239.7.7.7/4\\nt=0 0\\nm=video 5662 RTP/AVP 96\\n\
        a=rtpmap:96 H264/90000\\na=source-filter: incl IN IP4 239.7.7.7 127.0.0.1\\n' >group.sdp";
    let send = "--to 239.7.7.7:5662 --insecure --one-way --duration 3s --ceiling 1Mb/s";
    for (name, recv) in [
        ("group", "--listen 239.7.7.7:5662"),
        ("described", "--sdp group.sdp"),
    ] {
        let Some(said) = stream(name, setup, &format!("{recv} --insecure"), send) else {
            return;
        };
        assert!(whole(&said) >= 60, "{said}");
    }
}

/// The sender's host has two interfaces. It loses the address of the first one, and gets one of the second
/// when the sender has noticed that the path is dead.
#[test]
fn a_stream_goes_on_from_another_address_of_the_sender() {
    let setup = "ip addr add 10.9.0.1/32 dev lo
        unshare --net sleep 120 &
        far=$!
        until [ $(readlink /proc/$far/ns/net) != $(readlink /proc/$$/ns/net) ]; do :; done
        for link in 1 2; do
            ip link add r$link type veth peer name s$link netns $far
            ip link set r$link up
            ip route add 10.$link.0.0/24 dev r$link src 10.9.0.1
            nsenter -t $far -n ip link set s$link up
        done
        inside() { nsenter -t $far -n \"$@\"; }
        take() { inside ip addr add 10.$1.0.2/24 dev s$1; inside ip route add default dev s$1; }
        take 1
        change() {
            while read -r line; do
                echo \"$line\"
                case $line in
                    2.*' s '*) inside ip addr flush dev s1 ;;
                    *'waiting for the path') take 2 ;;
                esac
            done
            kill $far
        }";
    for (name, security) in [("roaming", "--insecure"), ("roaming-key", "--key-file key")] {
        let recv = format!("--listen 5004 {security}");
        let send = format!("--to 10.9.0.1:5004 {security} --duration 6s --ceiling 1Mb/s");
        let setup = format!(
            "{program} key key 2>said.key\n{setup}",
            program = env!("CARGO_BIN_EXE_tidegate")
        );
        let Some(said) = stream_through(name, &setup, &recv, &send, ("inside", "| change")) else {
            return;
        };
        assert!(said.contains("from the new address of this host"), "{said}");
        assert!(said.contains("answers again"), "{said}");
        // Of 180: without the second address there are those of the first two seconds only.
        assert!(whole(&said) >= 150, "{said}");
    }
}

/// Forwards datagrams between a sender and a receiver on this host. From `since` after the first one
/// on, it loses those with more than `most` bytes, without a message.
struct Tunnel {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tunnel {
    fn to(receiver: u16, most: usize, since: Duration) -> Self {
        let open = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(TURN)).unwrap();
            socket
        };
        let (front, back) = (open(), open());
        back.connect(("127.0.0.1", receiver)).unwrap();
        let port = front.local_addr().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let answers = back.try_clone().unwrap();
            thread::scope(|scope| {
                let (mut buffer, mut begun) = ([0; 2_048], None);
                let mut answering = None;
                while !stopped.load(Ordering::Relaxed) {
                    let Some((size, from)) = received(front.recv_from(&mut buffer)) else {
                        continue;
                    };
                    let age = begun.get_or_insert_with(Instant::now).elapsed();
                    if size <= most || age < since {
                        let _ = back.send(&buffer[..size]);
                    }
                    answering.get_or_insert_with(|| {
                        let (front, answers, stopped) = (&front, &answers, &stopped);
                        scope.spawn(move || {
                            let mut buffer = [0; 2_048];
                            while !stopped.load(Ordering::Relaxed) {
                                if let Some(size) = received(answers.recv(&mut buffer)) {
                                    let _ = front.send_to(&buffer[..size], from);
                                }
                            }
                        })
                    });
                }
            });
        });
        let thread = Some(thread);
        Self { port, stop, thread }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// What a socket has received; nothing at a timeout, and if the receiver has left.
fn received<T>(result: std::io::Result<T>) -> Option<T> {
    let expected = [
        ErrorKind::WouldBlock,
        ErrorKind::TimedOut,
        ErrorKind::ConnectionRefused,
    ];
    match result {
        Ok(result) => Some(result),
        Err(error) if expected.contains(&error.kind()) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Time after which the tunnel looks whether it is to stop.
const TURN: Duration = Duration::from_millis(50);

/// Sends through a tunnel that loses datagrams of more than `most` bytes. Returns what the sender says, and
/// the number of whole frames.
fn through(most: usize, since: Duration, options: &str) -> (String, u64) {
    let mut receiver = Program::tidegate("recv --listen 127.0.0.1:0");
    let tunnel = Tunnel::to(
        receiver.number("waiting for a stream at port "),
        most,
        since,
    );
    let sender = Program::tidegate(&format!(
        "send --to 127.0.0.1:{} --size 320x180 --preset ultrafast --adapt no --ceiling 2Mb/s {options}",
        tunnel.port
    ));
    let [sent, got] = [sender.wait(), receiver.wait()];
    sent.succeeded();
    got.succeeded();
    (sent.said.clone(), got.whole_frames().into())
}

#[test]
fn packets_shrink_to_what_a_tunnel_carries() {
    for (most, since) in [(1_150, 0), (1_000, 3), (600, 0), (600, 3)] {
        let (said, frames) = through(most, Duration::from_secs(since), "--duration 9s");
        let named = format!("({most} bytes of UDP payload)");
        assert!(said.contains(&named), "{most} from {since} s: {said}");
        let messages = said.matches("loses large packets").count();
        assert_eq!(messages, 1, "{most} from {since} s: {said}");
        // Two thirds of 270: the others are those before the hole is found.
        assert!(frames >= 180, "{most} from {since} s: {frames}\n{said}");
    }
    let (said, frames) = through(1_100, Duration::ZERO, "--duration 3s --packet-size 1000B");
    assert!(!said.contains("loses large packets"), "{said}");
    assert!(frames >= 75, "{frames}\n{said}");
}

/// The host of the receiver sleeps: the stream stops after 3 s without a report, and `--patience` counts
/// from there.
#[test]
fn a_receiver_that_sleeps_gets_the_stream_again_within_patience() {
    let start = |options: &str| {
        let mut receiver = Program::tidegate("recv --listen 127.0.0.1:0");
        let port = receiver.number("waiting for a stream at port ");
        let mut sender = Program::tidegate(&format!(
            "send --to 127.0.0.1:{port} --size 320x180 --preset ultrafast --adapt no --ceiling 1Mb/s {options}"
        ));
        sender.wait_for_line("   2.");
        receiver.signal(libc::SIGSTOP);
        sender.wait_for_line("waiting for the path");
        sender.wait_for_line("the circuit breaker stopped the stream");
        (receiver, sender)
    };
    let (receiver, mut sender) = start("--patience 30s --duration 18s");
    sender.wait_for_line("  12.");
    receiver.signal(libc::SIGCONT);
    sender.wait_for_line("answers again: the stream continues");
    sender.wait().succeeded();
    let got = receiver.wait();
    // Eight of 18 s, at 30 frames per second.
    assert!(got.succeeded().whole_frames() >= 180, "{}", got.said);
    let (_receiver, sender) = start("--patience 1s --duration 18s");
    sender.wait().failed_with("a longer --patience");
}
