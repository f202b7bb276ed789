//! C-UDP sockets in Rust and in C, with two aggregation points between them.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, io, thread};

use rand_core::Rng;
use tidegate_core::aggregate::estimates::PathState;
use tidegate_core::aggregate::{
    AggregateConfig, AggregationPoint, Direction, Packet, SiteId, Verdict,
};
use tidegate_core::control::{Context, Ecn};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_core::wire::cp::{ApplicationId, Shares};
use tidegate_live::clock::Clock;
use tidegate_live::cp::{CpLabel, CpSocket};

/// Delay of the path in each direction.
const DELAY: Duration = Duration::from_millis(5);
/// Interval in which threads notice their end.
const GLANCE: Duration = Duration::from_millis(1);

#[test]
fn estimates_come_from_the_points_and_end_with_one_of_them() {
    with_points(|near, clock, is_right_lost| {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut socket = CpSocket::connected(udp, near, label(4), clock).unwrap();
        let mut echoed = 0;
        while echoed < 20 || socket.estimates().is_none_or(|all| all.available.is_none()) {
            echoed += exchange(&mut socket, clock);
        }
        let known = socket.estimates().unwrap();
        assert!(known.rtt.unwrap() >= 2 * DELAY, "{known:?}");
        assert!((0.0..1.0).contains(&known.loss.unwrap()), "{known:?}");
        assert!(known.available.unwrap() > Rate::ZERO);
        assert_eq!((known.shares.get(), known.flows), (4, 1));
        assert_eq!(socket.state(), PathState::Current);
        assert!(socket.counters().reports >= 20);

        is_right_lost.store(true, Ordering::Relaxed);
        // A report of silence may come between two answers on a busy machine.
        while socket.state() != PathState::PeerLost {
            exchange(&mut socket, clock);
        }
        assert!(socket.state().is_alone());
        assert!(socket.estimates().unwrap().available.is_some());
        assert_eq!(socket.counters().refused(), 0);
    });
}

#[test]
fn a_c_program_has_a_socket() {
    with_points(|near, _, _| {
        let program = compile();
        let mut command = Command::new(program);
        succeeds(command.arg(near.port().to_string()));
    });
}

#[test]
fn the_header_has_the_numbers_of_the_library() {
    for (state, number) in [
        ("UNKNOWN", 0),
        ("CURRENT", 1),
        ("PEER_LOST", 2),
        ("SILENT", 3),
        ("STOPPED", 4),
    ] {
        let line = format!("    TG_CP_{state} = {number},");
        assert!(HEADER.lines().any(|l| l == line), "no line `{line}`");
    }
}

/// Sends a datagram, and receives those that come until a later time. Returns their number.
fn exchange(socket: &mut CpSocket, clock: Clock) -> usize {
    socket.send(b"endpoint").unwrap();
    let until = clock.now() + GLANCE;
    let mut received = 0;
    while clock.now() < until {
        let _ = socket.wait(until);
        while let Some(arrival) = socket.receive().unwrap() {
            // Notifications have no data.
            assert!(matches!(arrival.data, b"endpoint" | b""));
            received += usize::from(!arrival.data.is_empty());
        }
    }
    received
}

fn label(shares: u8) -> CpLabel {
    CpLabel {
        application: ApplicationId(7),
        flow: 3,
        shares: Shares::new(shares).unwrap(),
    }
}

/// Runs a test with two points on a path to an endpoint that sends all data back. The arguments are
/// the address on the near side, the clock, and whether the far point has failed.
fn with_points(test: impl FnOnce(SocketAddr, Clock, &AtomicBool)) {
    let (clock, is_over) = (Clock::start(), AtomicBool::new(false));
    let is_right_lost = AtomicBool::new(false);
    let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let ports = [bind(), bind()];
    let [near, far] = ports.each_ref().map(|port| port.local_addr().unwrap());
    let udp = bind();
    let mut path = Points {
        rewriters: [0; 2].map(|_| AggregationPoint::new(AggregateConfig::default())),
        peers: [None, udp.local_addr().ok()],
        ports,
        transit: VecDeque::new(),
        rng: Box::new(Seed(1).stream("points")),
    };
    let mut echo = CpSocket::connected(udp, far, label(4), clock).unwrap();
    let is_running = || !is_over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        // The threads end with this, also if the test fails.
        let _end = End(&is_over);
        scope.spawn(|| {
            while is_running() {
                path.pass(clock, is_right_lost.load(Ordering::Relaxed));
            }
        });
        scope.spawn(|| {
            while is_running() {
                let _ = echo.wait(clock.now() + GLANCE);
                while let Some(arrival) = echo.receive().unwrap() {
                    let data = arrival.data.to_vec();
                    if !data.is_empty() {
                        echo.send(&data).unwrap();
                    }
                }
            }
        });
        test(near, clock, &is_right_lost);
    });
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two points and the path between them, from the near port to the far one and back.
struct Points {
    rewriters: [AggregationPoint; 2],
    ports: [UdpSocket; 2],
    peers: [Option<SocketAddr>; 2],
    /// Departure from the path, the port of its end, and the payload.
    transit: VecDeque<(Time, usize, Vec<u8>)>,
    rng: Box<dyn Rng + Send>,
}

impl Points {
    /// Passes all packets that are due.
    fn pass(&mut self, clock: Clock, is_right_lost: bool) {
        let mut buffer = [0; 2_000];
        for side in 0..2 {
            self.ports[side].set_read_timeout(Some(GLANCE)).unwrap();
            while let Ok((length, source)) = self.ports[side].recv_from(&mut buffer) {
                self.peers[side] = Some(source);
                let mut payload = buffer[..length].to_vec();
                let is_lost = is_right_lost && side == 1;
                let notice = self.rewrite(clock, side, Direction::Outbound, &mut payload, is_lost);
                if let Some(notice) = notice {
                    self.ports[side].send_to(&notice, source).unwrap();
                }
                self.transit
                    .push_back((clock.now() + DELAY, 1 - side, payload));
                if self
                    .transit
                    .front()
                    .is_some_and(|next| next.0 <= clock.now())
                {
                    break;
                }
            }
        }
        while self
            .transit
            .front()
            .is_some_and(|next| next.0 <= clock.now())
        {
            let (_, side, mut payload) = self.transit.pop_front().unwrap();
            let is_lost = is_right_lost && side == 1;
            self.rewrite(clock, side, Direction::Inbound, &mut payload, is_lost);
            if let Some(peer) = self.peers[side] {
                // The endpoint may have ended.
                let _ = self.ports[side].send_to(&payload, peer);
            }
        }
    }

    /// Rewrites the header, unless the point is lost. Returns a notification.
    fn rewrite(
        &mut self,
        clock: Clock,
        side: usize,
        direction: Direction,
        payload: &mut [u8],
        is_lost: bool,
    ) -> Option<[u8; 20]> {
        let mut cx = Context {
            now: clock.now(),
            rng: &mut *self.rng,
            trace: &mut (),
        };
        if is_lost {
            return None;
        }
        self.rewriters[side].on_timeout(&mut cx);
        let packet = Packet {
            site: SiteId(0),
            direction,
            size: Bytes(payload.len() as u64 + 28),
            ecn: Ecn::NotEct,
            payload,
        };
        match self.rewriters[side].forward(&mut cx, packet) {
            Verdict::Notify(notice) => Some(notice),
            Verdict::Forward | Verdict::Drop(_) => None,
        }
    }
}

/// Compiles the program against the header and the shared library, which Cargo builds beside the
/// tests.
fn compile() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let libraries = env::current_exe().unwrap().parent().unwrap().to_owned();
    let version = match env!("CARGO_PKG_VERSION_MAJOR") {
        "0" => concat!("0.", env!("CARGO_PKG_VERSION_MINOR")),
        major => major,
    };
    // Programs load it by its soname.
    match symlink(LIBRARY, libraries.join(format!("{LIBRARY}.{version}"))) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.unwrap(),
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_cp");
    // Rust programs are linked with a C compiler, so there is one.
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror"])
        .arg(here.join("tests/c/cp.c"))
        .arg("-I")
        .arg(here.join("include"))
        .arg("-L")
        .arg(&libraries)
        .arg("-ltidegate_live")
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .arg("-o")
        .arg(&program);
    succeeds(&mut compiler);
    program
}

fn succeeds(command: &mut Command) {
    let out = command.output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {} {errors}", out.status);
}

const LIBRARY: &str = "libtidegate_live.so";
const HEADER: &str = include_str!("../include/tidegate_cp.h");
