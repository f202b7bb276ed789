//! UDP sockets with ECN, DSCP and arrival time per datagram.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _};
use std::time::Duration;
use std::{io, mem, ptr};

use rustix::net::sockopt::set_ip_add_source_membership;
use tidegate_core::control::Ecn;
use tidegate_core::endpoint::{SourceCheck, Transmit};
use tidegate_core::units::{Time, nanos};

use crate::clock::Clock;
use crate::netns::check;
use crate::sockaddr::SockAddr;
use crate::transport::Arrival;

mod learned;

pub use learned::{AMPLIFICATION, Recognition, SourceFilter, TAKEOVER};
use learned::{Admission, Learned};

/// A non-blocking UDP socket.
#[derive(Debug)]
pub struct Socket {
    udp: UdpSocket,
    peer: Peer,
}

/// Peer of a socket.
#[derive(Debug)]
enum Peer {
    /// One address and port. The kernel filters datagrams and reports refusals.
    Connected(SocketAddr),
    /// The same for RTCP alone.
    Rtcp(SocketAddr),
    /// Any port of one host; receive only.
    Host(IpAddr),
    /// Learnt from received datagrams.
    Learned(Box<Learned>),
}

/// Joins a multicast group, at the interface of its zone or of the route to it. If there are `sources`,
/// an IPv4 group is joined for them only (RFC 4607).
///
/// # Errors
///
/// The error of the system, e.g. that there is no route to the group.
pub fn join(udp: &UdpSocket, group: SocketAddr, sources: &[IpAddr]) -> io::Result<()> {
    let group = match group {
        SocketAddr::V6(group) => return udp.join_multicast_v6(group.ip(), group.scope_id()),
        SocketAddr::V4(group) => *group.ip(),
    };
    let any = Ipv4Addr::UNSPECIFIED;
    if sources.is_empty() {
        return udp.join_multicast_v4(&group, &any);
    }
    for source in sources {
        if let IpAddr::V4(source) = source {
            set_ip_add_source_membership(udp, &group, &any, source)?;
        }
    }
    Ok(())
}

impl Socket {
    /// Connects the socket to `peer`.
    ///
    /// # Errors
    ///
    /// The error of the system, e.g. that there is no route.
    pub fn connected(udp: UdpSocket, peer: SocketAddr) -> io::Result<Self> {
        udp.connect(peer)?;
        Self::new(udp, Peer::Connected(peer))
    }

    /// Connects the socket to the port of `peer` for RTCP, for a peer that does not multiplex RTCP
    /// with RTP. A driver sends all RTCP from it.
    ///
    /// # Errors
    ///
    /// As for [`connected`](Self::connected).
    pub fn rtcp(udp: UdpSocket, peer: SocketAddr) -> io::Result<Self> {
        udp.connect(peer)?;
        Self::new(udp, Peer::Rtcp(peer))
    }

    /// Receives from all ports of `host` and does not send: for RTCP of a peer that sends it from
    /// another port than it receives RTP at.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn from_host(udp: UdpSocket, host: IpAddr) -> io::Result<Self> {
        Self::new(udp, Peer::Host(host.to_canonical()))
    }

    /// Learns its peer from received datagrams: the source of the first plausible one, subject to
    /// the rules of [`TAKEOVER`], if `filter` accepts it. At most [`AMPLIFICATION`] times the bytes
    /// received from an address are sent to it.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn listening(
        udp: UdpSocket,
        recognition: Recognition,
        filter: SourceFilter,
    ) -> io::Result<Self> {
        let learned = Learned::new(recognition, filter);
        Self::new(udp, Peer::Learned(Box::new(learned)))
    }

    /// Connects the socket again, from the address that the route to the peer has now. The port stays.
    ///
    /// # Errors
    ///
    /// The error of the system, e.g. that there is no route.
    pub(crate) fn reconnect(&self) -> io::Result<()> {
        let (Peer::Connected(peer) | Peer::Rtcp(peer)) = self.peer else {
            return Ok(());
        };
        let mut local = self.udp.local_addr()?;
        local.set_ip(match local {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        });
        // The address that the last `connect` has chosen is kept until then, and after it a port that
        // the kernel has chosen is lost.
        rustix::net::connect_unspec(&self.udp)?;
        match rustix::net::bind(&self.udp, &local) {
            // The port was given, and is still bound.
            Ok(()) | Err(rustix::io::Errno::INVAL) => self.udp.connect(peer),
            Err(e) => Err(e.into()),
        }
    }

    fn new(udp: UdpSocket, peer: Peer) -> io::Result<Self> {
        udp.set_nonblocking(true)?;
        let is_v6 = udp.local_addr()?.is_ipv6();
        option(&udp, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)
            // An IPv6-only socket may reject the option of IPv4.
            .or_else(|e| if is_v6 { Ok(()) } else { Err(e) })?;
        if is_v6 {
            option(&udp, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        }
        option(&udp, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // The kernel limits the size to rmem_max without an error.
        option(&udp, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER)?;
        Ok(Self { udp, peer })
    }

    /// Local address.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// Destination of the next datagram, if known.
    pub fn peer(&self) -> Option<SocketAddr> {
        match self.peer {
            Peer::Connected(peer) | Peer::Rtcp(peer) => Some(peer),
            Peer::Host(_) => None,
            Peer::Learned(ref learned) => learned.address(),
        }
    }

    /// Whether this socket only receives RTCP of peers that do not multiplex it with RTP.
    pub(crate) fn is_rtcp_fallback(&self) -> bool {
        matches!(self.peer, Peer::Host(_))
    }

    /// Whether all RTCP is sent from this socket.
    pub(crate) fn is_for_rtcp(&self) -> bool {
        matches!(self.peer, Peer::Rtcp(_))
    }

    /// Reads the next datagram into `buffer`, truncated to its size; `None` if there is none.
    /// Datagrams of other sources are discarded. After `MAX_DISCARDED` of them, `None` is
    /// returned although more may be waiting, so that a flood does not delay the caller's timers.
    ///
    /// # Errors
    ///
    /// The error of the system. Errors such as `ConnectionRefused` concern a datagram sent earlier.
    pub fn receive(&mut self, clock: Clock, buffer: &mut [u8]) -> io::Result<Option<Arrival>> {
        if let Some(arrival) = self.replay(buffer) {
            return Ok(Some(arrival));
        }
        for _ in 0..MAX_DISCARDED {
            let Some((arrival, source)) = self.read(clock, buffer)? else {
                return Ok(None);
            };
            let payload = &buffer[..arrival.length];
            match (self.admit(source, arrival.at, payload), &mut self.peer) {
                (Admission::Received, _) => return Ok(Some(arrival)),
                (Admission::Held, Peer::Learned(learned)) => learned.hold(arrival, payload),
                (Admission::Replaced, Peer::Learned(learned)) => {
                    learned.replay_before(arrival, payload);
                    let first = self.replay(buffer);
                    return Ok(first.map(|arrival| Arrival {
                        is_new_peer: true,
                        ..arrival
                    }));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Reads a datagram that arrived before its source was the peer.
    fn replay(&mut self, buffer: &mut [u8]) -> Option<Arrival> {
        let Peer::Learned(learned) = &mut self.peer else {
            return None;
        };
        let held = learned.next_replay()?;
        let length = held.payload.len().min(buffer.len());
        buffer[..length].copy_from_slice(&held.payload[..length]);
        let arrival = held.arrival;
        Some(Arrival { length, ..arrival })
    }

    /// Applies the endpoint's check of the last received datagram, for a socket with
    /// [`Recognition::Endpoint`]. Other sockets ignore it.
    pub fn on_check(&mut self, check: SourceCheck) {
        if let Peer::Learned(learned) = &mut self.peer {
            learned.on_check(check);
        }
    }

    /// Sends a datagram. It is discarded without an error if there is no peer, or if the peer has
    /// not sent enough for it.
    ///
    /// # Errors
    ///
    /// The error of `sendmsg`, which may concern an earlier datagram that was refused.
    pub fn send(&mut self, payload: &[u8], how: Transmit) -> io::Result<()> {
        let peer = match &mut self.peer {
            Peer::Connected(peer) | Peer::Rtcp(peer) => Some(*peer),
            Peer::Host(_) => None,
            Peer::Learned(learned) => learned.spend(payload.len()),
        };
        peer.map_or(Ok(()), |peer| self.send_to(peer, payload, how))
    }

    /// Sends an answer to the source of the last received datagram, which need not be the peer. It
    /// is discarded without an error if it exceeds [`AMPLIFICATION`] times that datagram.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub fn answer(&self, payload: &[u8]) -> io::Result<()> {
        let source = match &self.peer {
            Peer::Connected(peer) | Peer::Rtcp(peer) => Some(*peer),
            Peer::Host(_) => None,
            Peer::Learned(learned) => learned.answer_to(payload.len()),
        };
        let how = Transmit::default();
        source.map_or(Ok(()), |source| self.send_to(source, payload, how))
    }

    fn send_to(&self, peer: SocketAddr, payload: &[u8], how: Transmit) -> io::Result<()> {
        let mut name = SockAddr::from(peer);
        let mut part = libc::iovec {
            iov_base: payload.as_ptr().cast_mut().cast(),
            iov_len: payload.len(),
        };
        // SAFETY: a msghdr consists of integers and pointers, for which zero is valid.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        if matches!(self.peer, Peer::Learned(_)) {
            message.msg_name = (&raw mut name.storage).cast();
            message.msg_namelen = name.length;
        }
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        let mut control = Control::default();
        let octet = how.dscp << 2 | how.ecn.bits();
        if octet != 0 {
            control.set(&mut message, is_plain_v6(peer), octet);
        }
        let send = || {
            // SAFETY: all buffers that `message` points to outlive the call and are only read.
            let sent = unsafe { libc::sendmsg(self.udp.as_raw_fd(), &raw const message, 0) };
            check(sent as libc::c_int).map(drop)
        };
        match send() {
            // A router has reported a smaller MTU since the last call: the kernel fragments from now
            // on. A datagram that is too large for it fails again.
            Err(e) if e.raw_os_error() == Some(libc::EMSGSIZE) => send(),
            sent => sent,
        }
    }

    fn read(&self, clock: Clock, buffer: &mut [u8]) -> io::Result<Option<(Arrival, SocketAddr)>> {
        let mut name = SockAddr::empty();
        let mut control = Control::default();
        let mut part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: a msghdr consists of integers and pointers, for which zero is valid.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_name = (&raw mut name.storage).cast();
        message.msg_namelen = name.length;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = mem::size_of_val(&control.0);
        // SAFETY: all buffers that `message` points to outlive the call and have the given lengths.
        let length = unsafe { libc::recvmsg(self.udp.as_raw_fd(), &raw mut message, 0) };
        let length = match check(length as libc::c_int) {
            Ok(length) => length as usize,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(None),
            Err(e) => return Err(e),
        };
        let Some(source) = name.address() else {
            return Ok(None);
        };
        let (octet, stamp) = control_of(&message);
        // The wall clock is read first: a delay between the two reads makes the datagram appear
        // newer, never older.
        let (wall, now) = (wall(), clock.now());
        let at = stamp.map_or(now, |stamp| on_clock(stamp, wall, now));
        let arrival = Arrival {
            at,
            ecn: Ecn::from_bits(octet),
            dscp: octet >> 2,
            length,
            is_new_peer: false,
        };
        Ok(Some((arrival, source)))
    }

    fn admit(&mut self, source: SocketAddr, at: Time, payload: &[u8]) -> Admission {
        let is_accepted = match &mut self.peer {
            Peer::Connected(_) | Peer::Rtcp(_) => true,
            Peer::Host(host) => source.ip().to_canonical() == *host,
            Peer::Learned(learned) => return learned.admit(source, at, payload),
        };
        if is_accepted {
            Admission::Received
        } else {
            Admission::Refused
        }
    }
}

/// Binds two sockets at an even port and the one above it, for RTP and RTCP (RFC 3550 section 11).
/// `bind` binds the lower one, to any port if its argument has port zero; `local` names another
/// lower port, which may be odd.
///
/// # Errors
///
/// The error of the system, e.g. that a port is in use.
pub fn bind_pair(
    address: IpAddr,
    local: Option<u16>,
    bind: impl Fn(SocketAddr) -> io::Result<UdpSocket>,
) -> io::Result<(UdpSocket, UdpSocket)> {
    let mut tries = 0;
    loop {
        let media = bind((address, local.unwrap_or(0)).into())?;
        let port = media.local_addr()?.port();
        if local.is_some() || port.is_multiple_of(2) {
            let next = port.checked_add(1).ok_or(io::ErrorKind::AddrNotAvailable)?;
            match UdpSocket::bind((address, next)) {
                Ok(control) => return Ok((media, control)),
                Err(e) if local.is_some() || tries >= TRIES => return Err(e),
                Err(_) => {}
            }
        }
        tries += 1;
    }
}

/// Binds a socket that shares its port with others of this user (`SO_REUSEPORT`). The kernel passes
/// the datagrams of a connected peer to the connected socket, and all others to the last one.
///
/// # Errors
///
/// The error of the system, e.g. that the port is in use.
pub fn bind_shared(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: creates a socket from integers.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new and owned by no other object.
    let udp = unsafe { UdpSocket::from_raw_fd(fd) };
    option(&udp, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    let name = SockAddr::from(address);
    // SAFETY: the address outlives the call and has the given length.
    check(unsafe { libc::bind(fd, (&raw const name.storage).cast(), name.length) })?;
    Ok(udp)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

/// Buffer for control messages with the alignment of their headers.
#[derive(Debug, Default)]
struct Control([u64; 16]);

impl Control {
    /// Sets the traffic class of a message.
    fn set(&mut self, message: &mut libc::msghdr, is_v6: bool, octet: u8) {
        let (level, kind) = if is_v6 {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        } else {
            (libc::IPPROTO_IP, libc::IP_TOS)
        };
        message.msg_control = self.0.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE and CMSG_LEN only compute. The first header is in `self`, which has
        // room for far more than one integer after it.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(OCTET) as usize;
            let header = libc::CMSG_FIRSTHDR(message);
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = libc::CMSG_LEN(OCTET) as usize;
            ptr::write_unaligned(libc::CMSG_DATA(header).cast(), libc::c_int::from(octet));
        }
    }
}

/// Traffic class and kernel timestamp (`CLOCK_REALTIME`) of a received message.
fn control_of(message: &libc::msghdr) -> (u8, Option<Duration>) {
    let (mut octet, mut stamp) = (0, None);
    // SAFETY: the kernel has filled in the control messages, and the macros stay within them.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            let data = libc::CMSG_DATA(header);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                // One octet for IPv4, an integer for IPv6.
                (libc::IPPROTO_IP, libc::IP_TOS) => octet = *data,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    let class: libc::c_int = ptr::read_unaligned(data.cast());
                    octet = class as u8;
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let at: libc::timespec = ptr::read_unaligned(data.cast());
                    stamp = Some(Duration::new(at.tv_sec as u64, at.tv_nsec as u32));
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    (octet, stamp)
}

/// Converts a timestamp of `CLOCK_REALTIME`, which may be stepped at any time. `wall` and `now` are
/// the same time on both clocks. If the resulting age exceeds [`LONGEST_WAIT`], the result is
/// `now`.
fn on_clock(stamp: Duration, wall: Duration, now: Time) -> Time {
    let age = wall.saturating_sub(stamp);
    if age <= LONGEST_WAIT {
        Time::from_nanos(now.as_nanos().saturating_sub(nanos(age)))
    } else {
        now
    }
}

/// Time of `CLOCK_REALTIME`, the clock of the kernel timestamps.
fn wall() -> Duration {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `ts` is a valid output buffer, and the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut ts) };
    Duration::new(ts.tv_sec as u64, ts.tv_nsec as u32)
}

fn is_plain_v6(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_none())
}

fn option(udp: &UdpSocket, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    // SAFETY: reads the integer `value`.
    check(unsafe {
        libc::setsockopt(
            udp.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            mem::size_of_val(&value) as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Half of the free ports are odd, and few have their neighbour in use.
const TRIES: u32 = 64;
/// Datagrams of other sources that one call discards: about 100 µs.
const MAX_DISCARDED: usize = 32;
/// The kernel expects the traffic class as an integer.
const OCTET: libc::c_uint = mem::size_of::<libc::c_int>() as libc::c_uint;
/// One second at 8 Mb/s: key frames arrive as bursts while the reader may be delayed.
const BUFFER: libc::c_int = 1 << 20;
/// Maximum time that a datagram waits in the socket of a running process.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(any: &str) -> (Socket, Socket) {
        let here = UdpSocket::bind(any).unwrap();
        let there = UdpSocket::bind(any).unwrap();
        let (near, far) = (here.local_addr().unwrap(), there.local_addr().unwrap());
        (
            Socket::connected(here, far).unwrap(),
            Socket::connected(there, near).unwrap(),
        )
    }

    fn wait(socket: &mut Socket, clock: Clock, buffer: &mut [u8]) -> Arrival {
        loop {
            if let Some(arrival) = socket.receive(clock, buffer).unwrap() {
                return arrival;
            }
            let mut poll = libc::pollfd {
                fd: socket.udp.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one whole pollfd.
            let ready = unsafe { libc::poll(&raw mut poll, 1, GUARD_MS) };
            assert_eq!(ready, 1, "no datagram");
        }
    }

    /// Ends a test that hangs. No result depends on it.
    const GUARD_MS: i32 = 300_000;

    #[test]
    fn timestamp_is_used_unless_the_wall_clock_was_stepped() {
        let (secs, now) = (Duration::from_secs, Time::from_secs(5));
        for (stamp, at) in [
            (secs(1_000), now),
            (secs(999), Time::from_secs(4)),
            (secs(998), now),
            // The wall clock was set back since.
            (secs(2_000), now),
        ] {
            assert_eq!(on_clock(stamp, secs(1_000), now), at, "{stamp:?}");
        }
    }

    #[test]
    fn ecn_dscp_and_arrival_time_are_received() {
        let clock = Clock::start();
        let mut addresses = vec!["127.0.0.1:0"];
        // IPv6 may be disabled.
        addresses.extend(UdpSocket::bind("[::1]:0").is_ok().then_some("[::1]:0"));
        for address in addresses {
            let (mut a, mut b) = pair(address);
            for (ecn, dscp) in [
                (Ecn::NotEct, 0),
                (Ecn::Ect0, 1),
                (Ecn::Ect1, 46),
                (Ecn::Ce, 0),
            ] {
                let before = clock.now();
                a.send(b"tide", Transmit { ecn, dscp }).unwrap();
                let mut buffer = [0; 16];
                let arrival = wait(&mut b, clock, &mut buffer);
                assert_eq!(
                    (arrival.ecn, arrival.dscp, &buffer[..arrival.length]),
                    (ecn, dscp, &b"tide"[..])
                );
                // The two clocks are read one after the other, with interrupts in between.
                let slack = Duration::from_millis(5);
                assert!(arrival.at + slack >= before && arrival.at <= clock.now());
            }
        }
    }

    #[test]
    fn listener_keeps_the_learnt_peer() {
        let clock = Clock::start();
        let any = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let hello = Recognition::payload(|payload| payload.starts_with(b"hello"));
        let mut listener = Socket::listening(any(), hello, SourceFilter::default()).unwrap();
        let address = listener.local_addr().unwrap();
        let (friend, stranger) = (any(), any());
        listener.send(b"nobody", Transmit::default()).unwrap();
        // Loopback delivers in order, so the second datagram of `friend` is read last.
        stranger.send_to(b"junk", address).unwrap();
        friend.send_to(b"hello there", address).unwrap();
        stranger.send_to(b"hello", address).unwrap();
        friend.send_to(b"again", address).unwrap();
        let mut buffer = [0; 16];
        for word in [&b"hello there"[..], b"again"] {
            let arrival = wait(&mut listener, clock, &mut buffer);
            assert_eq!(&buffer[..arrival.length], word);
            assert_eq!(listener.peer(), Some(friend.local_addr().unwrap()));
        }
        listener.send(b"answer", Transmit::default()).unwrap();
        assert_eq!(friend.recv(&mut buffer).unwrap(), 6);
    }
}
