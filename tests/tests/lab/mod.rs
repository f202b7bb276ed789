//! Support for tests on the real network stack.

pub(crate) mod namespaces;

use std::io;
use std::mem;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use tidegate_core::control::Ecn;
use tidegate_core::units::Time;
use tidegate_live::clock::Clock;

/// Sets the ECN field of the packets that a socket sends.
pub(crate) fn set_ecn(socket: &UdpSocket, ecn: Ecn) {
    let tos = libc::c_int::from(ecn.bits());
    set_option(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_TOS, &tos);
}

/// Captures all IPv4 packets that an interface receives.
pub(crate) struct Capture {
    socket: OwnedFd,
    clock: Clock,
    /// Offset of `CLOCK_REALTIME`, by which the kernel stamps, from the clock.
    ahead: Duration,
}

impl Capture {
    /// Captures on the interface `name` in the namespace of this thread.
    pub(crate) fn start(name: &str, clock: Clock) -> Self {
        let name = std::ffi::CString::new(name).unwrap();
        let protocol = (libc::ETH_P_IP as u16).to_be();
        // SAFETY: the name ends in zero; the socket is new, so it has no other owner.
        let (index, socket) = unsafe {
            let socket = libc::socket(
                libc::AF_PACKET,
                libc::SOCK_DGRAM | libc::SOCK_CLOEXEC,
                protocol.into(),
            );
            assert!(socket >= 0, "{}", io::Error::last_os_error());
            (
                libc::if_nametoindex(name.as_ptr()),
                OwnedFd::from_raw_fd(socket),
            )
        };
        assert_ne!(index, 0, "no interface {name:?}");
        let fd = socket.as_raw_fd();
        set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32);
        // Room for a second without a wake-up. In a user namespace the usual limit applies.
        let room = 1_i32 << 24;
        if try_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &room).is_err() {
            set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &room);
        }
        let patience = libc::timeval {
            tv_sec: 0,
            tv_usec: 50_000,
        };
        set_option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &patience);
        // SAFETY: an address is integers, for which zero is a value; it is passed with its size.
        unsafe {
            let mut address: libc::sockaddr_ll = mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = index as i32;
            let bound = libc::bind(
                fd,
                (&raw const address).cast(),
                mem::size_of_val(&address) as u32,
            );
            assert_eq!(bound, 0, "{}", io::Error::last_os_error());
        }
        Self {
            socket,
            clock,
            ahead: realtime_ahead(clock),
        }
    }

    /// The next packet, with the kernel's time of reception. `None` after 50 ms of silence.
    pub(crate) fn next(&self) -> Option<(Time, Vec<u8>)> {
        loop {
            let (incoming, at, packet) = self.receive()?;
            if incoming {
                return Some((at, packet));
            }
        }
    }

    /// Change of the offset between the two clocks since the start.
    pub(crate) fn drift(&self) -> Duration {
        self.ahead.abs_diff(realtime_ahead(self.clock))
    }

    fn receive(&self) -> Option<(bool, Time, Vec<u8>)> {
        let mut packet = vec![0_u8; 2_048];
        let mut control = [0_u64; 8];
        // SAFETY: the message points to buffers that outlive the call, each with its size; the
        // kernel fills in control messages, whose data the macros find.
        unsafe {
            let mut address: libc::sockaddr_ll = mem::zeroed();
            let mut part = libc::iovec {
                iov_base: packet.as_mut_ptr().cast(),
                iov_len: packet.len(),
            };
            let mut message: libc::msghdr = mem::zeroed();
            message.msg_name = (&raw mut address).cast();
            message.msg_namelen = mem::size_of_val(&address) as u32;
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = mem::size_of_val(&control) as _;
            let length = libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0);
            packet.truncate(usize::try_from(length).ok()?);
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            assert!(!header.is_null() && (*header).cmsg_type == libc::SCM_TIMESTAMPNS);
            let stamp: libc::timespec = libc::CMSG_DATA(header)
                .cast::<libc::timespec>()
                .read_unaligned();
            let since_epoch = Duration::new(stamp.tv_sec as u64, stamp.tv_nsec as u32);
            let at = Time::ZERO + since_epoch.saturating_sub(self.ahead);
            Some((address.sll_pkttype != libc::PACKET_OUTGOING, at, packet))
        }
    }
}

/// Offset between the clocks, from the shortest of many readings.
fn realtime_ahead(clock: Clock) -> Duration {
    let reading = || {
        let before = clock.now();
        let wall = std::time::UNIX_EPOCH.elapsed().unwrap();
        let after = clock.now();
        let took = after.since(before);
        (
            took,
            wall.saturating_sub(before.since(Time::ZERO) + took / 2),
        )
    };
    (0..200).map(|_| reading()).min().unwrap().1
}

fn set_option<T>(fd: i32, level: i32, name: i32, value: &T) {
    try_option(fd, level, name, value).unwrap();
}

fn try_option<T>(fd: i32, level: i32, name: i32, value: &T) -> io::Result<()> {
    let size = mem::size_of::<T>() as u32;
    // SAFETY: `value` is initialised and passed with its size.
    match unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
