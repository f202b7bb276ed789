//! Packets per second through aggregation points: plain forwarding of the kernel, the same with the
//! programs on the interface to the endpoints, in each direction, and the gateway in user space.
//!
//! Three namespaces: a sender, a router, a receiver. 10,000 flows of 100 applications send packets of
//! 548 bytes by a packet socket as fast as one thread can. The runs of a round follow each other, and
//! each is divided by the plain one of its round. Requires root:
//!
//! `cargo run --release -p tidegate-tests --example gateway_rate [ROUNDS]`

use std::error::Error;
use std::fs;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, io, mem};

use tidegate_core::aggregate::AggregateConfig;
use tidegate_core::aggregate::sites::{Numbers, SiteRule};
use tidegate_core::control::{Context, Ecn};
use tidegate_core::random::Seed;
use tidegate_core::units::Time;
use tidegate_core::wire::cp::{
    ApplicationId, Cp, Delay, Echo, LossCode, Probe, RateCode, Role, Shares, Stamp,
};
use tidegate_core::wire::udp::Datagram;
use tidegate_kernel::aggregate::{KernelConfig, KernelPoint};
use tidegate_kernel::monotonic;
use tidegate_live::clock::Clock;
use tidegate_live::driver::StopFlag;
use tidegate_live::gateway::{Gateway, GatewayConfig};
use tidegate_live::netns::{Interface, Namespace};

const PORT: u16 = 5_008;
const SENDER: &str = "10.8.1.2";
const RECEIVER: &str = "10.8.2.2";
const APPLICATIONS: u16 = 100;
const FLOWS: usize = 10_000;
const PAYLOAD: usize = 520;
const SPAN: Duration = Duration::from_millis(500);
/// Packets of a system call.
const BATCH: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Outbound,
    Inbound,
    Gateway,
}

const KINDS: [Kind; 4] = [Kind::Plain, Kind::Outbound, Kind::Inbound, Kind::Gateway];

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let rounds: usize = env::args().nth(1).map_or(Ok(7), |text| text.parse())?;
    println!(
        "state of an application: {} bytes",
        KernelPoint::state_size()
    );
    let mut rates: [Vec<f64>; 4] = Default::default();
    let mut costs: [Vec<f64>; 2] = Default::default();
    for round in 0..rounds {
        // Another order in each round, so that no kind always follows the same one.
        for place in 0..KINDS.len() {
            let number = (round + place) % KINDS.len();
            rates[number].push(measure(KINDS[number], false)?.0);
        }
        // The clock of the statistics costs time itself, so these are runs of their own.
        for (kind, costs) in [Kind::Outbound, Kind::Inbound].into_iter().zip(&mut costs) {
            costs.extend(measure(kind, true)?.1);
        }
        let of_round: Vec<_> = rates.iter().map(|of| (of[round] / 1e3).round()).collect();
        println!("round {round}: {of_round:?} thousand packets/s");
    }
    for (number, kind) in KINDS.into_iter().enumerate() {
        let ratios = rates[number]
            .iter()
            .zip(&rates[0])
            .map(|(rate, plain)| rate / plain);
        let mut ratios: Vec<f64> = ratios.collect();
        println!(
            "{kind:?}: median {:.0} packets/s, ratio to plain: median {:.3}, least {:.3}",
            median(&mut rates[number].clone()),
            median(&mut ratios),
            ratios[0],
        );
    }
    for (name, costs) in ["outbound", "inbound"].iter().zip(&mut costs) {
        println!("{name}: median {:.0} ns per packet", median(costs));
    }
    Ok(())
}

/// Also sorts.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Packets per second, and nanoseconds of the program.
fn measure(kind: Kind, counts: bool) -> Result<(f64, Option<f64>)> {
    let [sender, router, receiver] = [(); 3].map(|()| Namespace::new());
    let (sender, router, receiver) = (sender?, router?, receiver?);
    sender.connect("eth", &router, "left")?;
    receiver.connect("eth", &router, "right")?;
    let interface = |address: &str| Interface {
        address: address.parse().expect("an address"),
        prefix: 24,
        mtu: 1_500,
        queue: 1_000,
    };
    sender.configure("eth", interface(SENDER))?;
    receiver.configure("eth", interface(RECEIVER))?;
    if kind == Kind::Gateway {
        router.switch_on("left")?;
        router.switch_on("right")?;
    } else {
        router.configure("left", interface("10.8.1.1"))?;
        router.configure("right", interface("10.8.2.1"))?;
        router.within(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1"))??;
    }
    let hardware = router.within(|| hardware("left"))??;
    let stop = Arc::new(AtomicBool::new(false));
    let (flag, done) = (StopFlag::new()?, Arc::clone(&stop));
    let (tell, ready) = std::sync::mpsc::channel();
    let halt = flag.clone();
    let point = router.run(move || serve((kind, counts), &flag, &done, &tell))?;
    ready.recv()?;
    let rate = receiver.within(|| {
        // Without a socket the receiver would answer each packet.
        let _socket = UdpSocket::bind((RECEIVER, PORT))?;
        if kind != Kind::Gateway {
            // The router learns the hardware address.
            let neighbour = UdpSocket::bind((RECEIVER, 0))?;
            neighbour.send_to(&[0], "10.8.2.1:9")?;
        }
        let before = received()?;
        let start = monotonic();
        sender.within(|| flood(kind, hardware))??;
        let packets = received()? - before;
        Ok::<_, Box<dyn Error + Send + Sync>>(
            packets as f64 / monotonic().saturating_sub(start).as_secs_f64(),
        )
    })??;
    stop.store(true, Ordering::Relaxed);
    halt.set();
    let cost = point.join().map_err(|_| "the point panicked")??;
    Ok((rate, cost))
}

/// Runs the point until the end. Returns the nanoseconds per packet of a program.
fn serve(
    (kind, counts): (Kind, bool),
    stop: &StopFlag,
    done: &AtomicBool,
    ready: &std::sync::mpsc::Sender<()>,
) -> Result<Option<f64>> {
    let rule = |host: &str| SiteRule {
        hosts: vec![host.parse().expect("a prefix")],
        ports: vec![Numbers::new(PORT, PORT)],
        ..SiteRule::default()
    };
    let aggregation = AggregateConfig {
        max_applications: 1_024,
        ..AggregateConfig::default()
    };
    let mut rng = Seed(1).stream("gateway");
    match kind {
        Kind::Plain => {
            ready.send(())?;
            Ok(None)
        }
        Kind::Gateway => {
            let config = GatewayConfig {
                site_interface: "left".into(),
                path_interface: "right".into(),
                aggregation,
                remote: vec![rule(RECEIVER)],
            };
            let mut gateway = Gateway::open(&config, Clock::start())?;
            ready.send(())?;
            gateway.run(stop, None, &mut rng, || false, |_| {})?;
            Ok(None)
        }
        Kind::Outbound | Kind::Inbound => {
            let outbound = kind == Kind::Outbound;
            let (interface, other) = if outbound {
                ("left", RECEIVER)
            } else {
                ("right", SENDER)
            };
            let mut point = KernelPoint::load(&KernelConfig {
                aggregation,
                remote: vec![rule(other)],
                link_header: 14,
                manual_clock: false,
            })?;
            if !outbound {
                // Endpoints of the receiving site have sent a packet of each application.
                for application in 0..APPLICATIONS {
                    let packet = frame(RECEIVER, SENDER, [0; 6], &origin(application, 0));
                    point.test_run(true, &packet, 1)?;
                }
            }
            point.attach(interface)?;
            let measurement = counts.then(KernelPoint::measure).transpose()?;
            let before = point.run_time(outbound)?;
            ready.send(())?;
            while !done.load(Ordering::Relaxed) {
                let mut cx = Context {
                    now: Time::ZERO + monotonic(),
                    rng: &mut rng,
                    trace: &mut (),
                };
                point.run(&mut cx)?;
                point.take_notices();
                std::thread::sleep(Duration::from_millis(5));
            }
            let after = point.run_time(outbound)?;
            let counters = point.counters()?;
            let others = counters.invalid + counters.unknown + counters.refused + counters.failed;
            if counters.rewritten == 0 || others * 100 > counters.rewritten {
                return Err(format!("packets were not rewritten: {counters:?}").into());
            }
            let runs = after.1 - before.1;
            let cost = after.0.saturating_sub(before.0).as_nanos() as f64 / runs as f64;
            Ok(measurement.map(|_| cost))
        }
    }
}

/// Sends for [`SPAN`]. With each packet of an application, its sequence number increases.
fn flood(kind: Kind, hardware: [u8; 6]) -> io::Result<()> {
    let socket = packet_socket("eth")?;
    // The sender's thread forwards as well, in its soft interrupts. Other work of the machine would
    // otherwise delay these, and their queue would overflow.
    let priority = libc::sched_param { sched_priority: 30 };
    // SAFETY: zero is this thread, and the parameter outlives the call. Without it, rates vary more.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
    let mut frames: Vec<Vec<u8>> = (0..FLOWS)
        .map(|flow| {
            let application = (flow % usize::from(APPLICATIONS)) as u16;
            let header = match kind {
                Kind::Inbound => probe(application, flow as u16),
                _ => origin(application, flow as u16),
            };
            frame(SENDER, RECEIVER, hardware, &header)
        })
        .collect();
    let end = monotonic() + SPAN;
    let mut cycle = 0_u32;
    let mut sent = vec![0_u32; usize::from(APPLICATIONS)];
    while monotonic() < end {
        for batch in frames.chunks_mut(BATCH) {
            if kind == Kind::Inbound {
                let stamp = Stamp::at(Time::ZERO + monotonic()).bits().to_be_bytes();
                for frame in &mut *batch {
                    let application = usize::from(frame[HEADER + 3]);
                    let seq = sent[application].to_be_bytes();
                    sent[application] = (sent[application] + 1) & 0xff_ffff;
                    frame[HEADER + 6..HEADER + 9].copy_from_slice(&seq[1..]);
                    frame[HEADER + 12..HEADER + 15].copy_from_slice(&stamp[1..]);
                }
            }
            send(&socket, batch)?;
        }
        cycle += 1;
    }
    assert!(cycle > 0);
    Ok(())
}

fn send(socket: &OwnedFd, frames: &mut [Vec<u8>]) -> io::Result<()> {
    let mut parts: Vec<libc::iovec> = frames
        .iter_mut()
        .map(|frame| libc::iovec {
            iov_base: frame.as_mut_ptr().cast(),
            iov_len: frame.len(),
        })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = parts
        .iter_mut()
        .map(|part| {
            // SAFETY: a message consists of integers and pointers, for which zero is valid.
            let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect();
    // SAFETY: all parts outlive the call.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            messages.len() as u32,
            0,
        )
    };
    match sent {
        -1 if io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn packet_socket(name: &str) -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: takes integers; the descriptor is new.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let bypass = 1_i32;
    // SAFETY: an address consists of integers; option and address are passed with their lengths.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_QDISC_BYPASS,
            (&raw const bypass).cast(),
            4,
        );
        let mut address: libc::sockaddr_ll = mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let length = mem::size_of_val(&address) as u32;
        if libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(socket)
}

fn origin(application: u16, flow: u16) -> Vec<u8> {
    header(application, flow, Role::Origin)
}

fn probe(application: u16, flow: u16) -> Vec<u8> {
    let probe = Probe {
        seq: 0,
        stamp: Stamp::default(),
        echo: Some(Echo {
            stamp: Stamp::default(),
            delay: Delay::default(),
        }),
        loss: LossCode::default(),
        available: RateCode::default(),
        stop: false,
    };
    header(application, flow, Role::Probe(probe))
}

fn header(application: u16, flow: u16, role: Role) -> Vec<u8> {
    let header = Cp {
        application: ApplicationId(application),
        flow,
        shares: Shares::ONE,
        role,
    };
    let mut payload = header.to_bytes().to_vec();
    payload.resize(PAYLOAD, 7);
    payload
}

/// A frame with a UDP checksum, which is not updated with the sequence numbers: no one reads it.
fn frame(from: &str, to: &str, hardware: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let reply = Datagram {
        source: to.parse().expect("an address"),
        destination: from.parse().expect("an address"),
        source_port: PORT,
        destination_port: PORT,
        ecn: Ecn::NotEct,
        header: 0,
        payload: 0..0,
    };
    let mut frame = hardware.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 8, 0]);
    frame.extend(reply.answer(payload));
    frame
}

/// Packets that the interface of this namespace has received.
fn received() -> io::Result<u64> {
    let table = fs::read_to_string("/proc/thread-self/net/dev")?;
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix("eth:"));
    let count = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    count.ok_or_else(|| io::Error::other("no counter of eth"))
}

fn hardware(name: &str) -> io::Result<[u8; 6]> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    // SAFETY: an ifreq consists of integers, arrays and pointers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request has a name that ends in zero.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has written the address.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
    Ok(std::array::from_fn(|n| address[n] as u8))
}

/// Position of the CP header in a frame.
const HEADER: usize = 14 + 20 + 8;
