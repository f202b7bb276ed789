//! Parts of a path through gateways: endpoints, and the bottleneck in the middle.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::{Duration, UNIX_EPOCH};
use std::{fmt, fs, io, mem};

use tidegate_core::aggregate::sender::{CpContent, CpSender, CpSenderConfig};
use tidegate_core::control::Ecn;
use tidegate_core::link::{LinkConfig, LinkId, NamedLink, Network, NetworkConfig, Packet, RouteId};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::cp::{ApplicationId, Cp, LEN, Role, Shares};
use tidegate_core::wire::udp::{Checksum, Datagram};
use tidegate_live::clock::Clock;
use tidegate_live::driver::StopFlag;
use tidegate_live::gateway::{Port, PortFrame, Received};
use tidegate_live::netns::{Namespace, Worker};
use tidegate_live::realtime;

/// A sending and receiving endpoint of application 1.
pub(crate) struct Endpoint;

#[derive(Debug, Default)]
pub(crate) struct EndpointReport {
    pub(crate) received: u64,
    /// Payloads that differ from what was sent.
    pub(crate) damaged: u64,
    /// Packets whose header was not that of a report.
    pub(crate) not_reports: u64,
    /// Datagrams that the kernel dropped because of their checksum.
    pub(crate) checksum_errors: u64,
    /// Round-trip time of the last valid report, in seconds.
    pub(crate) rtt: f64,
    /// Sending rate before the loss of the peer, in bits per second.
    pub(crate) rate: f64,
    /// First report with a lost peer, after the last one without.
    pub(crate) peer_lost: Option<Time>,
}

impl Endpoint {
    /// Sends until `end` as the points report.
    pub(crate) fn start(
        namespace: &Namespace,
        own: &'static str,
        other: &str,
        clock: Clock,
        end: Time,
    ) -> Worker<EndpointReport> {
        let other: SocketAddr = (other.parse::<std::net::Ipv4Addr>().unwrap(), super::PORT).into();
        let exchange = move || exchange(own, other, clock, end).unwrap();
        namespace.run(exchange).unwrap()
    }
}

fn exchange(own: &str, other: SocketAddr, clock: Clock, end: Time) -> io::Result<EndpointReport> {
    // As the gateways: the wait for this thread is in the time until a notification arrives.
    realtime::ask(40);
    let socket = UdpSocket::bind((own, super::PORT))?;
    socket.set_nonblocking(true)?;
    let mut sender = CpSender::new(CpSenderConfig {
        application: ApplicationId(1),
        flow: 1,
        shares: Shares::new(4).unwrap(),
        part: 4.0,
        packet_size: Bytes(SIZE as u64 + 28),
        start: clock.now(),
    });
    let mut report = EndpointReport::default();
    let (mut number, mut buffer) = (0_u64, [0; 2_000]);
    while clock.now() < end {
        let now = clock.now();
        while let Some(packet) = sender.poll(now) {
            let mut payload = packet.header.to_bytes().to_vec();
            if packet.content == CpContent::Data {
                payload.extend(data(number));
                number += 1;
            }
            // Without a route to the hardware address the kernel may refuse.
            let _ = socket.send_to(&payload, other);
        }
        // A time limit of the socket has a resolution of up to 10 ms, by which the packet that is
        // answered with a notification would be late.
        let until = sender.next_timeout().min(end);
        wait([socket.as_fd()], clock.until(until));
        let Ok((length, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        assert_eq!(from, other);
        report.read(&mut sender, clock.now(), &buffer[..length]);
    }
    let table = fs::read_to_string("/proc/thread-self/net/snmp")?;
    report.checksum_errors = udp_checksum_errors(&table);
    Ok(report)
}

impl EndpointReport {
    fn read(&mut self, sender: &mut CpSender, now: Time, payload: &[u8]) {
        let Ok((header, content)) = Cp::parse(payload) else {
            self.damaged += 1;
            return;
        };
        self.received += u64::from(!content.is_empty());
        if let Some(number) = content.first_chunk() {
            let expected = data(u64::from_be_bytes(*number));
            self.damaged += u64::from(content != expected);
        }
        let Role::Report(path) = header.role else {
            self.not_reports += 1;
            return;
        };
        if path.peer_lost {
            self.peer_lost.get_or_insert(now);
        } else {
            self.rtt = path.rtt.to_duration().as_secs_f64();
            self.rate = sender.rate().as_f64();
            // Of a sparse application, an answer can be late.
            self.peer_lost = None;
        }
        sender.on_header(now, &header);
    }
}

/// Data of a packet: its number, and bytes that follow from it.
fn data(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = number.to_be_bytes().to_vec();
    while bytes.len() < SIZE - LEN {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        bytes.push((state >> 56) as u8);
    }
    bytes
}

/// `InCsumErrors` of UDP.
fn udp_checksum_errors(table: &str) -> u64 {
    let mut lines = table.lines().filter(|line| line.starts_with("Udp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split(' ').position(|name| name == "InCsumErrors");
    values
        .split(' ')
        .nth(place.unwrap())
        .unwrap()
        .parse()
        .unwrap()
}

/// The path: the core's link models between two interfaces.
pub(crate) struct Middle {
    stop: StopFlag,
    thread: Worker<MiddleReport>,
}

/// Packets of applications. The first number of each pair is that to the right.
#[derive(Debug, Default)]
pub(crate) struct MiddleReport {
    pub(crate) passed: [u64; 2],
    pub(crate) lost: [u64; 2],
    /// Times from the reception by the kernel to the write.
    transit: [Smoothed; 2],
    pub(crate) round_trip: RoundTrip,
    /// Time of the last packet to the left.
    pub(crate) last: Time,
    pub(crate) checksum_errors: u64,
}

impl Middle {
    /// The same link in both directions.
    pub(crate) fn start(namespace: &Namespace, link: &LinkConfig, clock: Clock) -> Self {
        let named = |name: &str| NamedLink {
            name: name.into(),
            config: link.clone(),
        };
        let config = NetworkConfig {
            links: vec![named("there"), named("back")],
            routes: vec![vec![LinkId(0)], vec![LinkId(1)]],
        };
        let stop = StopFlag::new().unwrap();
        let flag = stop.clone();
        let work = move || {
            // As the gateways, since the wait for this thread is in their round-trip time.
            realtime::ask(40);
            let ports = ["left", "right"].map(|name| Port::open(name).unwrap());
            let network = Network::new(&config, Seed(3)).unwrap();
            emulate(&ports, network, clock, &flag)
        };
        let thread = namespace.run(work).unwrap();
        Self { stop, thread }
    }

    pub(crate) fn end(self) -> MiddleReport {
        self.stop.set();
        self.thread.join().unwrap()
    }
}

fn emulate(
    ports: &[Port; 2],
    mut network: Network<Transit>,
    clock: Clock,
    stop: &StopFlag,
) -> MiddleReport {
    let mut report = MiddleReport::default();
    let mut read = [0_u64; 2];
    let (mut frame, mut spare) = (PortFrame::new(), Vec::new());
    while !stop.is_set() {
        let departure = network.next_departure().unwrap_or(Time::FAR);
        let sources = ports.each_ref().map(|port| port.as_fd());
        wait(sources, clock.until(departure));
        for (number, port) in ports.iter().enumerate() {
            while port.receive(&mut frame).unwrap() == Received::Frame {
                let at = received(port.as_fd(), clock);
                let is_cp = cp(&frame, &mut report.checksum_errors);
                read[number] += u64::from(is_cp);
                let frame = mem::replace(&mut frame, spare.pop().unwrap_or_default());
                let transit = Transit {
                    at,
                    is_cp,
                    to: 1 - number,
                    frame,
                };
                network.push(clock.now(), RouteId(number), transit);
            }
        }
        while let Some(delivery) = network.pop(clock.now()) {
            let Transit {
                at,
                is_cp,
                to,
                frame,
            } = delivery.packet;
            ports[to].send(&frame).unwrap();
            spare.push(frame);
            if is_cp {
                report.departed(1 - to, at, clock.now());
            }
        }
    }
    for (number, read) in read.into_iter().enumerate() {
        // Packets in flight at the end count as lost: a handful of thousands.
        report.lost[number] = read - report.passed[number];
    }
    report
}

impl MiddleReport {
    fn departed(&mut self, way: usize, received: Time, now: Time) {
        self.passed[way] += 1;
        self.transit[way].add(now, now.since(received).as_secs_f64());
        if way == 1 {
            let sum = self.transit.iter().map(|transit| transit.mean).sum();
            self.round_trip.0.push((now, sum));
            self.last = now;
        }
    }
}

/// Sum of both smoothed times in seconds at each packet to the left.
#[derive(Default)]
pub(crate) struct RoundTrip(Vec<(Time, f64)>);

impl RoundTrip {
    pub(crate) fn at(&self, time: Time) -> f64 {
        let next = self.0.partition_point(|(at, _)| *at <= time);
        self.0[next.saturating_sub(1)].1
    }
}

impl fmt::Debug for RoundTrip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.last())
    }
}

/// A time in seconds, smoothed as a point does: the mean of each round with the weight of RFC 6298.
#[derive(Clone, Copy, Debug, Default)]
struct Smoothed {
    mean: f64,
    /// Current round: its begin, and the sum and number of its times.
    began: Time,
    sum: f64,
    times: u32,
}

impl Smoothed {
    fn add(&mut self, now: Time, time: f64) {
        self.sum += time;
        self.times += 1;
        if now.since(self.began) < ROUND {
            return;
        }
        let round = self.sum / f64::from(self.times);
        let is_first = self.began == Time::ZERO;
        self.mean += if is_first { 1.0 } else { 0.125 } * (round - self.mean);
        (self.began, self.sum, self.times) = (now, 0.0, 0);
    }
}

/// Time at which the kernel received the packet that was read last from a socket.
fn received(socket: BorrowedFd<'_>, clock: Clock) -> Time {
    const SIOCGSTAMPNS: libc::Ioctl = 0x8907;
    let mut stamp = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let now = clock.now();
    // SAFETY: the kernel writes a timespec.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSTAMPNS, &raw mut stamp) };
    if result != 0 {
        // The first call makes the kernel stamp the packets that follow.
        return now;
    }
    // The age is a difference on the clock of the stamps, whose offset from ours may change.
    let stamp = Duration::new(stamp.tv_sec as u64, stamp.tv_nsec as u32);
    let age = UNIX_EPOCH.elapsed().unwrap().saturating_sub(stamp);
    now.before(age)
}

/// Whether the frame is a packet of an application, whose checksum must be right.
fn cp(frame: &PortFrame, checksum_errors: &mut u64) -> bool {
    let bytes = frame.bytes();
    if bytes.get(12..14) != Some(&[8, 0]) {
        return false;
    }
    let Ok(datagram) = Datagram::locate(&bytes[14..]) else {
        return false;
    };
    let is_wrong = frame.checksum() == Checksum::Complete && !datagram.is_intact(&bytes[14..]);
    *checksum_errors += u64::from(is_wrong);
    [datagram.source_port, datagram.destination_port].contains(&super::PORT)
}

/// A frame in the network.
#[derive(Debug)]
struct Transit {
    at: Time,
    is_cp: bool,
    to: usize,
    frame: PortFrame,
}

impl Packet for Transit {
    fn size(&self) -> Bytes {
        Bytes(self.frame.bytes().len() as u64)
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn set_ce(&mut self) {}

    fn flow(&self) -> u32 {
        0
    }

    fn dscp(&self) -> u8 {
        0
    }
}

/// Waits for a packet, at most for a span, or 10 ms.
fn wait<const N: usize>(sources: [BorrowedFd<'_>; N], span: Duration) {
    let mut sources = sources.map(|source| libc::pollfd {
        fd: source.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let span = libc::timespec {
        tv_sec: 0,
        tv_nsec: span.min(GLANCE).subsec_nanos().into(),
    };
    let number = N as libc::nfds_t;
    // SAFETY: the sources and the span outlive the call, and there is no mask of signals.
    unsafe {
        libc::ppoll(
            sources.as_mut_ptr(),
            number,
            &raw const span,
            std::ptr::null(),
        )
    };
}

/// Makes the kernel compute the checksums of packets that an interface of this namespace sends.
pub(crate) fn switch_off_checksums(name: &str) {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    const ETHTOOL_STXCSUM: u32 = 0x17;
    let mut value = Value {
        command: ETHTOOL_STXCSUM,
        data: 0,
    };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut request = request(name);
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request has a name that ends in zero, and points to a value of the command.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Connects interfaces of this namespace by a bridge of the kernel, named `bridge`.
pub(crate) fn bridge(interfaces: [&str; 2]) {
    const SIOCBRADDBR: libc::Ioctl = 0x89a0;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // SAFETY: the name ends in zero.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCBRADDBR, c"bridge".as_ptr()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    for interface in interfaces {
        const SIOCBRADDIF: libc::Ioctl = 0x89a2;
        let name = std::ffi::CString::new(interface).unwrap();
        let mut request = request("bridge");
        // SAFETY: the name ends in zero.
        request.ifr_ifru.ifru_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
        // SAFETY: the request has a name that ends in zero, and an interface.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCBRADDIF, &raw mut request) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: an ifreq consists of integers, arrays and pointers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// UDP payload of a data packet.
const SIZE: usize = 500;
/// Interval in which the end is noticed.
const GLANCE: Duration = Duration::from_millis(10);
/// Round of a point: the round-trip time of the link.
const ROUND: Duration = Duration::from_millis(40);
