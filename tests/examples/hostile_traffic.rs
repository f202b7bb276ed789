//! Memory, descriptors and processor time of receivers under hostile traffic.
//!
//! ```console
//! $ cargo build --release -p tidegate
//! $ cargo run --release -p tidegate-tests --example hostile_traffic -- target/release/tidegate 1800
//! ```
//!
//! Two pairs of sender and receiver on loopback, one with a key and one without, play for the given
//! number of seconds, while 10,000 packets per second arrive at the receivers: noise, RTP and RTCP
//! of invented sources, and hellos of the key handshake. Prints resident memory, descriptors and
//! processor time of each process per minute. Exit code 1 if memory or descriptors grow after the
//! first quarter, or if a stream does not arrive.

use std::io::Write as _;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (Some(program), Some(seconds)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: hostile_traffic PROGRAM SECONDS");
        return ExitCode::from(2);
    };
    let Ok(seconds) = seconds.parse::<u64>() else {
        eprintln!("hostile_traffic: \"{seconds}\" is not a number of seconds");
        return ExitCode::from(2);
    };
    let dir = env::temp_dir().join(format!("hostile-traffic-{}", process::id()));
    let key = dir.join("key");
    fs::create_dir_all(&dir).expect("a temporary folder");
    run(&program, &format!("key {}", key.display()))
        .wait()
        .expect("tidegate key");
    let pairs = [
        Pair::start(&program, seconds, Some(&key)),
        Pair::start(&program, seconds, None),
    ];
    let mut samples = Vec::new();
    flood(&pairs, seconds, |elapsed| {
        let usage: Vec<Usage> = pairs.iter().flat_map(Pair::usage).collect();
        let line = usage.iter().map(|u| {
            format!(
                "{:6} kB {:3} {:6.1} s",
                u.kilobytes, u.descriptors, u.seconds
            )
        });
        println!("{elapsed:5} s  {}", line.collect::<Vec<_>>().join("   "));
        samples.push(usage);
    });
    let arrived = pairs.map(Pair::finish);
    let _ = fs::remove_dir_all(&dir);
    verdict(&samples, &arrived)
}

/// A sender and its receiver.
struct Pair {
    port: u16,
    receiver: Child,
    sender: Child,
}

impl Pair {
    fn start(program: &str, seconds: u64, key: Option<&PathBuf>) -> Self {
        let port = UdpSocket::bind("127.0.0.1:0")
            .and_then(|s| s.local_addr())
            .expect("a port")
            .port();
        let key = key.map_or(String::new(), |key| format!("--key-file {}", key.display()));
        let to = format!("127.0.0.1:{port}");
        let receiver = run(program, &format!("recv --listen {to} --json {key}"));
        let media = "--size 320x180 --ceiling 1Mb/s --preset ultrafast";
        let sender = run(
            program,
            &format!("send --to {to} {media} --duration {seconds}s {key}"),
        );
        Self {
            port,
            receiver,
            sender,
        }
    }

    fn usage(&self) -> [Usage; 2] {
        [&self.receiver, &self.sender].map(|child| Usage::of(child.id()))
    }

    /// Summary of the receiver.
    fn finish(mut self) -> String {
        let _ = self.sender.wait();
        let output = self.receiver.wait_with_output().expect("the receiver ends");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn run(program: &str, arguments: &str) -> Child {
    let mut command = Command::new(program);
    command
        .args(arguments.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}"))
}

/// Sends 10,000 packets per second, and calls `sample` every minute, at least four times.
fn flood(pairs: &[Pair; 2], seconds: u64, mut sample: impl FnMut(u64)) {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let sockets: Vec<UdpSocket> = (0..4)
        .map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"))
        .collect();
    let every = (seconds / 8).clamp(1, 60);
    let (began, mut next, mut sent) = (Instant::now(), 0, 0_u64);
    while began.elapsed().as_secs() < seconds {
        let due = began.elapsed().as_millis() as u64 * RATE / 1_000;
        while sent < due {
            let socket = &sockets[random.next_u32() as usize % sockets.len()];
            let to = ("127.0.0.1", pairs[(sent % 2) as usize].port);
            // A full socket buffer of the receiver is not the sender's error.
            let _ = socket.send_to(&packet(&mut random), to);
            sent += 1;
        }
        let elapsed = began.elapsed().as_secs();
        if elapsed >= next {
            sample(elapsed);
            next += every;
        }
        thread::sleep(Duration::from_millis(1));
    }
    let _ = std::io::stdout().flush();
}

/// Noise, RTP and RTCP of invented sources, or a hello.
fn packet(random: &mut Pcg64Mcg) -> Vec<u8> {
    let mut packet = vec![0; 12 + random.next_u32() as usize % 600];
    random.fill_bytes(&mut packet);
    let length = packet.len() as u16 / 4;
    let head: &[u8] = match random.next_u32() % 6 {
        0 => &[],
        1 => &[0x80, 96],
        2 => &[0x80, 97],
        3 => &[0x80, 200],
        4 => &[0x81, 203],
        _ => &[0x08],
    };
    packet[..head.len()].copy_from_slice(head);
    if head.get(1).is_some_and(|kind| *kind >= 200) {
        packet.truncate(usize::from(length) * 4);
        packet[2..4].copy_from_slice(&(length - 1).to_be_bytes());
    }
    packet
}

/// Resources of a process and its decoder process.
#[derive(Clone, Copy)]
struct Usage {
    kilobytes: u64,
    descriptors: usize,
    /// Processor time.
    seconds: f64,
}

impl Usage {
    fn of(pid: u32) -> Self {
        let process = Path::new("/proc").join(pid.to_string());
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = |text: &str| text.split_whitespace().next()?.parse().ok();
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        // Fields 14 and 15 of proc_pid_stat(5), in ticks of 10 ms.
        let ticks = |place: usize| {
            fields
                .get(place)
                .and_then(|f| f.parse::<f64>().ok())
                .unwrap_or(0.0)
        };
        Self {
            kilobytes: resident.and_then(number).unwrap_or(0),
            descriptors: fs::read_dir(process.join("fd")).map_or(0, Iterator::count),
            seconds: (ticks(11) + ticks(12)) / 100.0,
        }
    }
}

/// Compares the last sample with that after a quarter of the time.
fn verdict(samples: &[Vec<Usage>], arrived: &[String; 2]) -> ExitCode {
    let (early, late) = (
        &samples[samples.len() / 4],
        samples.last().expect("samples"),
    );
    let mut failed = false;
    for (name, (early, late)) in NAMES.iter().zip(early.iter().zip(late)) {
        let grown = late.kilobytes > early.kilobytes + early.kilobytes / 20
            || late.descriptors > early.descriptors + 1;
        failed |= grown;
        println!(
            "{}  {name}: {} -> {} kB, {} -> {} descriptors",
            if grown { "FAILS" } else { "holds" },
            early.kilobytes,
            late.kilobytes,
            early.descriptors,
            late.descriptors
        );
    }
    for (name, summary) in ["with a key", "without a key"].iter().zip(arrived) {
        println!("{name}: {}", summary.trim());
        failed |= summary.trim().is_empty();
    }
    ExitCode::from(u8::from(failed))
}

const NAMES: [&str; 4] = [
    "receiver with a key",
    "sender with a key",
    "receiver without a key",
    "sender without a key",
];
/// Packets per second.
const RATE: u64 = 10_000;
