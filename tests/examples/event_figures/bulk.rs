//! Cost of events for a bulk transfer over veth without offloads, by paired windows.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{io, mem};

use tidegate_kernel::{EventRequest, Events, set_congestion_control};
use tidegate_live::netns::{Interface, Namespace};

use crate::verdict::Verdict;
use crate::{median, wait_until};

/// Throughput without programs, compared with attached programs: for an unsubscribed socket and for
/// one subscribed to all events.
pub(crate) fn run() -> Vec<Verdict> {
    let pair = Pair::new();
    let listen = || TcpListener::bind((RIGHT, 5_002)).unwrap();
    let listener = pair.right.within(listen).unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    let sink = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut buffer = vec![0; 1 << 17];
        while let Ok(many @ 1..) = stream.read(&mut buffer) {
            counter.fetch_add(many as u64, Ordering::Relaxed);
        }
    });
    let connect = || TcpStream::connect((RIGHT, 5_002)).unwrap();
    let mut stream = pair.left.within(connect).unwrap();
    set_congestion_control(&stream, "cubic").unwrap();
    let mut copy = stream.try_clone().unwrap();
    let chunk = vec![0; 1 << 16];
    let writing = thread::spawn(move || while copy.write_all(&chunk).is_ok() {});
    let window = || Window::measure(&count);
    // The first windows include slow start.
    for _ in 0..WARM_UP {
        window();
    }
    let mut plain = Vec::new();
    let mut noise = Ratios::default();
    let mut attached = Ratios::default();
    let mut watched = Ratios::default();
    let mut whole = Ratios::default();
    let home = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let other = TcpStream::connect(home.local_addr().unwrap()).unwrap();
    for _ in 0..ROUNDS {
        // Each window is measured between two windows of its reference, which cancels drift.
        let before = window();
        let events = Events::in_process().unwrap();
        // The programs are attached while there is any subscription.
        events.subscribe(&other, EventRequest::default()).unwrap();
        let unsubscribed = window();
        let id = events.subscribe(&stream, EventRequest::ALL).unwrap();
        let all = window();
        let mut seen = 0;
        while events.try_next().is_some() {
            seen += 1;
        }
        events.cancel(id).unwrap();
        let unsubscribed = unsubscribed.between(window());
        drop(events);
        let after = window();
        let base = before.between(after);
        noise.push(after, before);
        attached.push(unsubscribed, base);
        watched.push(all, unsubscribed);
        whole.push(all, base);
        plain.push(base.rate);
        assert!(seen > 0, "the subscription has no events");
    }
    stream.flush().unwrap();
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    writing.join().unwrap();
    sink.join().unwrap();
    println!(
        "plain: median {:.3} Gb/s over {ROUNDS} rounds",
        median(&mut plain)
    );
    let noise = noise.print("plain repeated, relative to plain");
    let attached = attached.print("another socket subscribed, relative to plain");
    watched.print("all events subscribed, relative to another socket subscribed");
    let whole = whole.print("all events subscribed, relative to plain");
    verdicts(noise, attached, whole)
}

fn verdicts(noise: Spread, attached: Spread, whole: Spread) -> Vec<Verdict> {
    vec![
        Verdict {
            aim: "throughput with all events subscribed at least 0.97 of without",
            measured: format!("{:.3}", whole.middle),
            holds: whole.middle >= 0.97,
        },
        Verdict {
            aim: "throughput of an unsubscribed socket within noise, as half of plain relative to plain",
            measured: format!(
                "{:.3} with noise of {:.3} to {:.3}",
                attached.middle, noise.low, noise.high
            ),
            holds: (noise.low..=noise.high).contains(&attached.middle),
        },
    ]
}

/// Quartiles of throughput ratios.
#[derive(Clone, Copy)]
struct Spread {
    /// Lower quartile.
    low: f64,
    middle: f64,
    /// Upper quartile.
    high: f64,
}

/// A time window of the transfer.
#[derive(Clone, Copy)]
struct Window {
    /// Throughput in Gb/s.
    rate: f64,
    /// Gb per second of processor time of this process, which runs both ends.
    per_cpu: f64,
}

impl Window {
    fn measure(count: &AtomicU64) -> Self {
        let (start, before, cpu) = (Instant::now(), count.load(Ordering::Relaxed), cpu());
        // Sleeps for the window: this thread must not use the processor meanwhile.
        wait_until(start, WINDOW);
        let gigabits = (count.load(Ordering::Relaxed) - before) as f64 * 8.0 / 1e9;
        Self {
            rate: gigabits / start.elapsed().as_secs_f64(),
            per_cpu: gigabits / (self::cpu() - cpu),
        }
    }

    fn between(self, other: Self) -> Self {
        Self {
            rate: f64::midpoint(self.rate, other.rate),
            per_cpu: f64::midpoint(self.per_cpu, other.per_cpu),
        }
    }
}

#[derive(Default)]
struct Ratios {
    rate: Vec<f64>,
    per_cpu: Vec<f64>,
}

impl Ratios {
    fn push(&mut self, one: Window, other: Window) {
        self.rate.push(one.rate / other.rate);
        self.per_cpu.push(one.per_cpu / other.per_cpu);
    }

    /// Prints both ratios. Returns the one of throughput.
    fn print(mut self, what: &str) -> Spread {
        let [rate, _] = [
            (&mut self.rate, "throughput"),
            (&mut self.per_cpu, "per processor time"),
        ]
        .map(|(values, unit)| {
            let middle = median(values);
            let (low, high) = (values[values.len() / 4], values[values.len() * 3 / 4]);
            println!("{what}, {unit}: median {middle:.3}, quartiles {low:.3} and {high:.3}");
            Spread { low, middle, high }
        });
        rate
    }
}

/// Processor time of this process, in seconds.
fn cpu() -> f64 {
    // SAFETY: a timespec is two integers, for which zero is a value, and a valid place.
    let time = unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time);
        time
    };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Two namespaces connected by veth without offloads.
struct Pair {
    left: Namespace,
    right: Namespace,
    /// A process in the right namespace, by which `ip` refers to it.
    anchor: Child,
}

impl Pair {
    fn new() -> Self {
        let [left, right] = [(); 2].map(|()| Namespace::new().unwrap());
        let anchor = || Command::new("sleep").arg("3600").spawn().unwrap();
        let anchor = right.within(anchor).unwrap();
        let id = anchor.id().to_string();
        let join = || {
            let made = Command::new("ip")
                .args(["link", "add", "tgl", "type", "veth", "peer", "name", "tgr"])
                .args(["netns", &id])
                .status();
            assert!(made.unwrap().success());
        };
        left.within(join).unwrap();
        for (namespace, name, address) in [(&left, "tgl", LEFT), (&right, "tgr", RIGHT)] {
            let interface = Interface {
                address,
                prefix: 24,
                mtu: 1_500,
                queue: 1_000,
            };
            namespace.configure(name, interface).unwrap();
            namespace.within(|| offload_nothing(name)).unwrap();
        }
        Self {
            left,
            right,
            anchor,
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.anchor.kill();
        let _ = self.anchor.wait();
    }
}

/// Equivalent to `ethtool -K NAME tso off gso off gro off tx off sg off`.
fn offload_nothing(name: &str) {
    // SAFETY: takes numbers and touches no memory.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0);
    // SAFETY: the descriptor is new, so it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // ETHTOOL_STSO, SGSO, SGRO, STXCSUM, SSG of linux/ethtool.h.
    for command in [0x1f_u32, 0x24, 0x2c, 0x17, 0x19] {
        let mut value = [command, 0];
        // SAFETY: a request is integers and a pointer, for which zero is a value; the pointer
        // refers to a command with its value.
        let result = unsafe {
            let mut request: libc::ifreq = mem::zeroed();
            for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
            libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request)
        };
        assert_eq!(result, 0, "{command:#x}: {}", io::Error::last_os_error());
    }
}

const LEFT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const WINDOW: Duration = Duration::from_millis(250);
/// One second: slow start is shorter here.
const WARM_UP: usize = 4;
const ROUNDS: usize = 81;
