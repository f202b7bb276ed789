//! UDP sockets with ECN, DSCP and arrival time per datagram.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::time::Duration;
use std::{fmt, io, mem, ptr};

use tidegate_core::control::Ecn;
use tidegate_core::endpoint::Transmit;
use tidegate_core::units::{Time, nanos};

use crate::clock::Clock;
use crate::netns::check;
use crate::sockaddr::SockAddr;

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
    /// Any port of one host; receive only.
    Host(IpAddr),
    /// The source of the first plausible datagram, until it is silent for [`TAKEOVER`].
    Learned {
        is_plausible: Plausibility,
        known: Option<(SocketAddr, Time)>,
    },
}

/// Whether a datagram of an unknown peer is plausible.
struct Plausibility(Box<Plausible>);

type Plausible = dyn Fn(&[u8]) -> bool + Send;

impl fmt::Debug for Plausibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Judge").finish_non_exhaustive()
    }
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Receive timestamp of the kernel, or the time of reading without one.
    pub at: Time,
    /// ECN field at arrival.
    pub ecn: Ecn,
    /// Length of the payload.
    pub length: usize,
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

    /// Receives from all ports of `host` and does not send: for RTCP at the port after that of RTP.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn from_host(udp: UdpSocket, host: IpAddr) -> io::Result<Self> {
        Self::new(udp, Peer::Host(host.to_canonical()))
    }

    /// Receives from and sends to the source of the first datagram that `is_plausible`. After a
    /// silence of [`TAKEOVER`] another source may replace it.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn listening(
        udp: UdpSocket,
        is_plausible: impl Fn(&[u8]) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let peer = Peer::Learned {
            is_plausible: Plausibility(Box::new(is_plausible)),
            known: None,
        };
        Self::new(udp, peer)
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
            Peer::Connected(peer) => Some(peer),
            Peer::Host(_) => None,
            Peer::Learned { known, .. } => known.map(|(peer, _)| peer),
        }
    }

    /// Reads the next datagram into `buffer`, truncated to its size; `None` if there is none.
    /// Datagrams of other sources are discarded.
    ///
    /// # Errors
    ///
    /// The error of the system. Errors such as `ConnectionRefused` concern a datagram sent earlier.
    pub fn receive(&mut self, clock: Clock, buffer: &mut [u8]) -> io::Result<Option<Arrival>> {
        loop {
            let Some((arrival, source)) = self.read(clock, buffer)? else {
                return Ok(None);
            };
            if self.is_welcome(source, arrival.at, &buffer[..arrival.length]) {
                return Ok(Some(arrival));
            }
        }
    }

    /// Sends a datagram. Without a known peer it is discarded, which is not an error.
    ///
    /// # Errors
    ///
    /// The error of `sendmsg`, which may concern an earlier datagram that was refused.
    pub fn send(&self, payload: &[u8], how: Transmit) -> io::Result<()> {
        let Some(peer) = self.peer() else {
            return Ok(());
        };
        let mut name = SockAddr::from(peer);
        let mut part = libc::iovec {
            iov_base: payload.as_ptr().cast_mut().cast(),
            iov_len: payload.len(),
        };
        // SAFETY: a msghdr consists of integers and pointers, for which zero is valid.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        if matches!(self.peer, Peer::Learned { .. }) {
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
        // SAFETY: all buffers that `message` points to outlive the call and are only read.
        let sent = unsafe { libc::sendmsg(self.udp.as_raw_fd(), &raw const message, 0) };
        check(sent as libc::c_int).map(drop)
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
        let (ecn, stamp) = control_of(&message);
        // The wall clock is read first: a delay between the two reads makes the datagram appear
        // newer, never older.
        let (wall, now) = (wall(), clock.now());
        let at = stamp.map_or(now, |stamp| on_clock(stamp, wall, now));
        Ok(Some((Arrival { at, ecn, length }, source)))
    }

    fn is_welcome(&mut self, source: SocketAddr, at: Time, payload: &[u8]) -> bool {
        match &mut self.peer {
            Peer::Connected(_) => true,
            Peer::Host(host) => source.ip().to_canonical() == *host,
            Peer::Learned {
                is_plausible,
                known,
            } => {
                let is_known = known.is_some_and(|(peer, _)| peer == source);
                let is_silent = known.is_none_or(|(_, last)| at.since(last) > TAKEOVER);
                let is_welcome = is_known || is_silent && (is_plausible.0)(payload);
                if is_welcome {
                    *known = Some((source, at));
                }
                is_welcome
            }
        }
    }
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

/// ECN field and kernel timestamp (`CLOCK_REALTIME`) of a received message.
fn control_of(message: &libc::msghdr) -> (Ecn, Option<Duration>) {
    let (mut ecn, mut stamp) = (Ecn::NotEct, None);
    // SAFETY: the kernel has filled in the control messages, and the macros stay within them.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            let data = libc::CMSG_DATA(header);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                // One octet for IPv4, an integer for IPv6.
                (libc::IPPROTO_IP, libc::IP_TOS) => ecn = Ecn::from_bits(*data),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    let class: libc::c_int = ptr::read_unaligned(data.cast());
                    ecn = Ecn::from_bits(class as u8);
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
    (ecn, stamp)
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

/// Silence of a learnt peer after which another one may replace it. Equal to the time after which
/// the receiver of a session accepts another SSRC.
pub const TAKEOVER: Duration = Duration::from_secs(2);
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
            let (a, mut b) = pair(address);
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
                    (arrival.ecn, &buffer[..arrival.length]),
                    (ecn, &b"tide"[..])
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
        let mut listener = Socket::listening(any(), |payload| payload == b"hello").unwrap();
        let address = listener.local_addr().unwrap();
        let (friend, stranger) = (any(), any());
        listener.send(b"nobody", Transmit::default()).unwrap();
        // Loopback delivers in order, so the second datagram of `friend` is read last.
        stranger.send_to(b"junk", address).unwrap();
        friend.send_to(b"hello", address).unwrap();
        stranger.send_to(b"hello", address).unwrap();
        friend.send_to(b"again", address).unwrap();
        let mut buffer = [0; 16];
        for word in [&b"hello"[..], b"again"] {
            let arrival = wait(&mut listener, clock, &mut buffer);
            assert_eq!(&buffer[..arrival.length], word);
            assert_eq!(listener.peer(), Some(friend.local_addr().unwrap()));
        }
        listener.send(b"answer", Transmit::default()).unwrap();
        assert_eq!(friend.recv(&mut buffer).unwrap(), 6);
    }

    #[test]
    fn listener_accepts_another_peer_after_silence() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut listener = Socket::listening(udp, |_| true).unwrap();
        let [old, new] = [1, 2].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        assert!(listener.is_welcome(old, Time::from_secs(1), b""));
        assert!(!listener.is_welcome(new, Time::from_secs(3), b""));
        assert!(listener.is_welcome(new, Time::from_millis(3_001), b""));
        assert!(!listener.is_welcome(old, Time::from_millis(3_002), b""));
    }
}
