//! What the kernel tells of a socket to whoever has it.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::time::Duration;
use std::{fmt, io};

use crate::system::{check as succeeded, option};
use crate::variables::{Snapshot, Variable};

/// Sees that it is a TCP socket that events can come from.
pub(crate) fn check(socket: BorrowedFd<'_>) -> Result<(), NotTcp> {
    let ask = |name| option::<i32>(socket, libc::SOL_SOCKET, name);
    let domain = ask(libc::SO_DOMAIN).map_err(NotTcp::NoSocket)?;
    let protocol = ask(libc::SO_PROTOCOL).map_err(NotTcp::NoSocket)?;
    match (domain, protocol) {
        (libc::AF_INET | libc::AF_INET6, libc::IPPROTO_TCP) => {}
        (_, libc::IPPROTO_MPTCP) => return Err(NotTcp::Multipath),
        _ => return Err(NotTcp::Other { domain, protocol }),
    }
    if ask(libc::SO_ACCEPTCONN).map_err(NotTcp::NoSocket)? != 0 {
        return Err(NotTcp::Listening);
    }
    Ok(())
}

/// The state of a connection at this moment, as far as the kernel tells every owner of a socket.
///
/// # Errors
///
/// It is not a TCP socket.
pub fn probe(socket: impl AsFd) -> Result<Snapshot, NotTcp> {
    check(socket.as_fd())?;
    let info = Info::read(socket.as_fd()).map_err(NotTcp::NoSocket)?;
    Ok(with_sequence(socket.as_fd(), &info))
}

/// Chooses the congestion control of one socket, by its name in
/// `net.ipv4.tcp_available_congestion_control`.
///
/// # Errors
///
/// The kernel has none of this name, or does not allow it.
pub fn set_congestion_control(socket: impl AsFd, name: &str) -> io::Result<()> {
    // SAFETY: the name is passed with its length.
    succeeded(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// With sequence numbers, which the kernel does not tell: here they count from zero.
pub(crate) fn with_sequence(socket: BorrowedFd<'_>, info: &Info) -> Snapshot {
    let mut state = info.snapshot();
    let mut waiting = 0_i32;
    // SAFETY: `waiting` is a valid place for the answer.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
    let acked = state.get(Variable::BytesAcked);
    if let (0, Some(acked), Some(unsent)) = (asked, acked, info.unsent()) {
        let written = acked + waiting as u64;
        for (variable, place) in [
            (Variable::SndUna, acked),
            (Variable::SndNxt, written.saturating_sub(unsent)),
            (Variable::WriteSeq, written),
        ] {
            state.set(variable, place & u64::from(u32::MAX));
        }
    }
    state
}

/// The kernel's `struct tcp_info`, which only ever grows; what this kernel does not fill is zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    bytes: [u8; SIZE],
    filled: usize,
}

impl Info {
    pub(crate) fn read(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut bytes = [0; SIZE];
        let mut size = SIZE as libc::socklen_t;
        // SAFETY: `bytes` is passed with its size.
        succeeded(unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut size,
            )
        })?;
        Ok(Self {
            bytes,
            filled: size as usize,
        })
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        use Variable as V;
        let mut state = Snapshot::new();
        for (variable, at, size) in [
            (V::State, 0, 1),
            (V::CaState, 1, 1),
            (V::Retransmits, 2, 1),
            (V::Backoff, 4, 1),
            (V::Rto, 8, 4),
            (V::Mss, 16, 4),
            (V::PacketsOut, 24, 4),
            (V::SackedOut, 28, 4),
            (V::LostOut, 32, 4),
            (V::RetransOut, 36, 4),
            (V::Srtt, 68, 4),
            (V::RttVar, 72, 4),
            (V::Ssthresh, 76, 4),
            (V::Cwnd, 80, 4),
            (V::TotalRetrans, 100, 4),
            (V::PacingRate, 104, 8),
            (V::BytesAcked, 120, 8),
            (V::MinRtt, 148, 4),
            (V::Delivered, 192, 4),
            (V::BytesSent, 200, 8),
            (V::BytesRetrans, 208, 8),
            (V::SendWindow, 228, 4),
        ] {
            if let Some(value) = self.number(at, size) {
                state.set(variable, value);
            }
        }
        // Bit 0 of byte 7.
        if let Some(flags) = self.number(7, 1) {
            state.set(V::RateAppLimited, flags & 1);
        }
        // The kernel tells a rate in bytes per second; samples are segments in a time.
        if let (Some(rate), Some(mss)) = (self.number(160, 8), self.number(16, 4)) {
            let segments = 1_000_000_u64;
            if let Some(us) = (segments * mss * 1_000_000).checked_div(rate) {
                state.set(V::RateDelivered, segments);
                state.set(V::RateInterval, us);
            }
        }
        state
    }

    /// Bytes that are written and were never sent.
    pub(crate) fn unsent(&self) -> Option<u64> {
        self.number(144, 4)
    }

    /// How long the sender was kept waiting: by anything, by the receiver, by the send buffer, in
    /// µs.
    pub(crate) fn waits(&self) -> Option<[u64; 3]> {
        Some([
            self.number(168, 8)?,
            self.number(176, 8)?,
            self.number(184, 8)?,
        ])
    }

    /// Since the last segment with data was sent, retransmissions included.
    pub(crate) fn since_sent(&self) -> Duration {
        Duration::from_millis(self.number(44, 4).unwrap_or_default())
    }

    /// Since the last acknowledgement came.
    pub(crate) fn since_heard(&self) -> Duration {
        Duration::from_millis(self.number(56, 4).unwrap_or_default())
    }

    /// Time-outs ever.
    pub(crate) fn timeouts(&self) -> Option<u64> {
        self.number(240, 2)
    }

    fn number(&self, at: usize, size: usize) -> Option<u64> {
        if at + size > self.filled {
            return None;
        }
        let mut number = [0; 8];
        // This crate is for machines that keep the lowest byte first; see `lib.rs`.
        number[..size].copy_from_slice(&self.bytes[at..at + size]);
        Some(u64::from_le_bytes(number))
    }
}

/// Why a descriptor cannot be subscribed to.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotTcp {
    /// It waits for connections.
    Listening,
    /// It is MPTCP.
    Multipath,
    /// It is no socket at all, or closed.
    NoSocket(io::Error),
    /// It is a socket of another protocol.
    Other {
        /// Address family.
        domain: i32,
        /// Protocol.
        protocol: i32,
    },
}

impl fmt::Display for NotTcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listening => f.write_str(
                "this socket waits for connections: subscribe to those that it accepts",
            ),
            Self::Multipath => f.write_str(
                "this is an MPTCP socket, whose subflows the service does not see: make it with IPPROTO_TCP",
            ),
            Self::NoSocket(e) => write!(f, "this is no open socket ({e}): give a connected TCP socket"),
            Self::Other { domain, protocol } => write!(
                f,
                "this is not a TCP socket (address family {domain}, protocol {protocol}): give a connected TCP socket"
            ),
        }
    }
}

impl std::error::Error for NotTcp {}

const SIZE: usize = 280;
