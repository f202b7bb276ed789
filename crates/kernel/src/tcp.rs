//! The state of a TCP socket that the kernel reports to its owner.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::time::Duration;

use rustix::net::sockopt::set_tcp_congestion;

use crate::system::{monotonic, option, option_into};
use crate::variables::{Snapshot, Variable};

/// Checks that a socket is a TCP socket that can have events.
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

/// The present state of a connection, as far as the kernel reports it to every owner of a socket.
///
/// # Errors
///
/// The socket is not a TCP socket.
pub fn probe(socket: impl AsFd) -> Result<Snapshot, NotTcp> {
    check(socket.as_fd())?;
    let (_, state) = read(socket.as_fd()).map_err(NotTcp::NoSocket)?;
    Ok(state)
}

/// Sets the congestion control of a socket, by its name in
/// `net.ipv4.tcp_available_congestion_control`.
///
/// # Errors
///
/// The kernel has no such congestion control, or does not allow it.
pub fn set_congestion_control(socket: impl AsFd, name: &str) -> io::Result<()> {
    Ok(set_tcp_congestion(socket, name)?)
}

/// `TCP_INFO`, and the state of the same moment with sequence numbers. The kernel does not report
/// those, so they count from zero here.
pub(crate) fn read(socket: BorrowedFd<'_>) -> io::Result<(Info, Snapshot)> {
    let (info, written) = settle(|| Info::read(socket), || waiting(socket))?;
    let mut state = info.snapshot();
    let acked = state.get(Variable::BytesAcked);
    if let (Some(acked), Some(written), Some(unsent)) = (acked, written, info.unsent()) {
        for (variable, place) in [
            (Variable::SndUna, acked),
            (Variable::SndNxt, written.saturating_sub(unsent)),
            (Variable::WriteSeq, written),
        ] {
            state.set(variable, place & u64::from(u32::MAX));
        }
    }
    Ok((info, state))
}

/// Bytes that are written and not acknowledged (`SIOCOUTQ`).
fn waiting(socket: BorrowedFd<'_>) -> Option<u64> {
    let mut waiting = 0_i32;
    // SAFETY: `waiting` is a place for the result.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
    (asked == 0).then_some(waiting as u64)
}

/// `TCP_INFO`, and the number of bytes written, if the kernel reports enough for it. The number
/// takes two system calls, and an acknowledgement or a write of another thread between them would
/// falsify it. So `TCP_INFO` is read before and after the other, until both are the same. If they
/// never are the result is a lower bound.
fn settle(
    mut info: impl FnMut() -> io::Result<Info>,
    mut waiting: impl FnMut() -> Option<u64>,
) -> io::Result<(Info, Option<u64>)> {
    let mut before = info()?;
    let mut left = MAX_LOOKS;
    loop {
        let (Some(waits), Some(acked)) = (waiting(), before.acked()) else {
            return Ok((before, None));
        };
        let after = info()?;
        left -= 1;
        if after.progress() == before.progress() {
            return Ok((after, Some(acked + waits)));
        }
        if left == 0 {
            let out = after.acked().zip(after.unsent());
            let least = out.map(|(acked, unsent)| acked + unsent);
            return Ok((after, least.max(Some(acked + waits))));
        }
        before = after;
    }
}

/// The kernel's `struct tcp_info`, which grows with its versions. Fields that a kernel does not
/// have are zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    bytes: [u8; SIZE],
    filled: usize,
    /// Time after the call, on `CLOCK_MONOTONIC`.
    pub(crate) at: Duration,
}

impl Info {
    pub(crate) fn read(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut bytes = [0; SIZE];
        let filled = option_into(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
        Ok(Self {
            bytes,
            filled,
            at: monotonic(),
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
        // The kernel reports a rate in bytes per second; a sample has segments and a time.
        if let (Some(rate), Some(mss)) = (self.number(160, 8), self.number(16, 4)) {
            let segments = 1_000_000_u64;
            if let Some(us) = (segments * mss * 1_000_000).checked_div(rate) {
                state.set(V::RateDelivered, segments);
                state.set(V::RateInterval, us);
            }
        }
        state
    }

    /// Bytes acknowledged, unsent and sent: any progress changes one of them.
    fn progress(&self) -> [Option<u64>; 3] {
        [self.acked(), self.unsent(), self.number(200, 8)]
    }

    /// Acknowledged bytes.
    fn acked(&self) -> Option<u64> {
        self.number(120, 8)
    }

    /// Written bytes that were never sent.
    pub(crate) fn unsent(&self) -> Option<u64> {
        self.number(144, 4)
    }

    /// Times in µs in which the sender was busy, limited by the receiver, and limited by the send
    /// buffer.
    pub(crate) fn waits(&self) -> Option<[u64; 3]> {
        Some([
            self.number(168, 8)?,
            self.number(176, 8)?,
            self.number(184, 8)?,
        ])
    }

    /// Time since the last segment with data, including retransmissions.
    pub(crate) fn since_sent(&self) -> Duration {
        Duration::from_millis(self.number(44, 4).unwrap_or_default())
    }

    /// Time since the last acknowledgement.
    pub(crate) fn since_heard(&self) -> Duration {
        Duration::from_millis(self.number(56, 4).unwrap_or_default())
    }

    /// Time-outs in total.
    pub(crate) fn timeouts(&self) -> Option<u64> {
        self.number(240, 2)
    }

    fn number(&self, at: usize, size: usize) -> Option<u64> {
        if at + size > self.filled {
            return None;
        }
        let mut number = [0; 8];
        // The crate supports little-endian machines only; see `lib.rs`.
        number[..size].copy_from_slice(&self.bytes[at..at + size]);
        Some(u64::from_le_bytes(number))
    }
}

/// Reason why a descriptor cannot have subscriptions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotTcp {
    /// It listens for connections.
    #[error("this socket waits for connections: subscribe to the sockets that it accepts")]
    Listening,
    /// It is an MPTCP socket.
    #[error(
        "this is an MPTCP socket, whose subflows the service does not see: create it with IPPROTO_TCP"
    )]
    Multipath,
    /// It is not a socket, or is closed.
    #[error("this is no open socket ({0}): give a connected TCP socket")]
    NoSocket(io::Error),
    /// It has another protocol.
    #[error(
        "this is not a TCP socket (address family {domain}, protocol {protocol}): give a \
         connected TCP socket"
    )]
    Other {
        /// Address family.
        domain: i32,
        /// Protocol.
        protocol: i32,
    },
}

const SIZE: usize = 280;
/// The calls are so close together that few pairs differ.
const MAX_LOOKS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// `TCP_INFO` with these bytes acknowledged, unsent and sent.
    fn report(acked: u64, unsent: u32, sent: u64) -> Info {
        let mut bytes = [0; SIZE];
        bytes[120..128].copy_from_slice(&acked.to_le_bytes());
        bytes[144..148].copy_from_slice(&unsent.to_le_bytes());
        bytes[200..208].copy_from_slice(&sent.to_le_bytes());
        Info {
            bytes,
            filled: SIZE,
            at: Duration::ZERO,
        }
    }

    /// The result of these reports, and the number of calls for the bytes that wait.
    fn settled(infos: &[Info], waits: &[u64]) -> ([Option<u64>; 3], Option<u64>, usize) {
        let (mut infos, mut asked) = (infos.iter().copied(), 0);
        let waiting = || {
            asked += 1;
            Some(waits[asked - 1])
        };
        let (info, written) = settle(|| Ok(infos.next().unwrap()), waiting).unwrap();
        (info.progress(), written, asked)
    }

    /// 10,000 bytes are written, of which 6,000 are sent. 2,000 of these are acknowledged between
    /// the first two calls.
    #[test]
    fn an_acknowledgement_between_two_calls_loses_no_byte() {
        let (before, after) = (report(1_000, 4_000, 6_000), report(3_000, 4_000, 6_000));
        let got = settled(&[before, after, after], &[7_000, 7_000]);
        assert_eq!(got, (after.progress(), Some(10_000), 2));
        // Neither does one after the number of waiting bytes.
        let got = settled(&[before, after, after], &[9_000, 7_000]);
        assert_eq!(got, (after.progress(), Some(10_000), 2));
        // One round is enough without changes.
        assert_eq!(settled(&[after; 2], &[7_000]).2, 1);
    }

    /// Another thread writes 500 bytes, which leave at once or not.
    #[test]
    fn a_write_between_two_calls_counts_once() {
        let before = report(1_000, 4_000, 6_000);
        for after in [report(1_000, 4_500, 6_000), report(1_000, 4_000, 6_500)] {
            let got = settled(&[before, after, after], &[9_000, 9_500]);
            assert_eq!(got, (after.progress(), Some(10_500), 2));
        }
    }

    /// With acknowledgements in each round, the result is still consistent.
    #[test]
    fn a_state_that_never_settles_has_a_consistent_bound() {
        let infos: Vec<Info> = (0..=u64::from(MAX_LOOKS))
            .map(|n| report(1_000 * n, 4_000, 12_000))
            .collect();
        // Each comes before the number of waiting bytes.
        let waits: Vec<u64> = (1..=u64::from(MAX_LOOKS))
            .map(|n| 16_000 - 1_000 * n)
            .collect();
        let (places, written, asked) = settled(&infos, &waits);
        assert_eq!(asked, MAX_LOOKS as usize);
        assert_eq!(places, infos[asked].progress());
        assert_eq!(written, Some(15_000));
        // Everything is acknowledged at once; the report before has a part of it.
        let infos: Vec<Info> = (0..=u64::from(MAX_LOOKS))
            .map(|n| {
                report(
                    if n < u64::from(MAX_LOOKS) { n } else { 12_000 },
                    4_000,
                    12_000,
                )
            })
            .collect();
        let (_, written, _) = settled(&infos, &[4_000; MAX_LOOKS as usize]);
        assert_eq!(written, Some(16_000));
    }

    /// Kernels with fewer fields, and sockets without a connection.
    #[test]
    fn without_all_reports_there_is_no_sum() {
        let mut old = report(1_000, 4_000, 6_000);
        old.filled = 120;
        assert_eq!(settle(|| Ok(old), || Some(1)).unwrap().1, None);
        assert_eq!(settle(|| Ok(report(1, 1, 1)), || None).unwrap().1, None);
    }
}
