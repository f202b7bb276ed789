//! C-UDP: a UDP socket of an endpoint of the Coordination Protocol.
//!
//! A [`CpSocket`] labels each datagram with its application and flow, and reads the estimates of the
//! path from the header of each received one. The application adapts its sending rate to them.
//!
//! Source: D. E. Ott, T. Sparks, K. Mayer-Patel, *Aggregate Congestion Control for Distributed
//! Multimedia Applications*, INFOCOM 2004, sections III-E and VI-A.

mod ffi;
pub mod source;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidegate_core::aggregate::estimates::{EstimateMonitor, Estimates, PathState};
use tidegate_core::endpoint::Transmit;
use tidegate_core::units::Time;
use tidegate_core::wire::cp::{ApplicationId, Cp, CpError, LEN, Role, Shares};

use crate::clock::Clock;
use crate::transport::Arrival;
use crate::udp::Socket;

/// Labels of the datagrams of a [`CpSocket`]. Of the flags, a sending endpoint has none (bits A and
/// B are those of aggregation points).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpLabel {
    /// Application, unique between two sites.
    pub application: ApplicationId,
    /// Flow within the application.
    pub flow: u16,
    /// Flowshares that the application asks for.
    pub shares: Shares,
}

/// A non-blocking UDP socket with CP headers, connected to one peer.
#[derive(Debug)]
pub struct CpSocket {
    socket: Socket,
    clock: Clock,
    label: CpLabel,
    monitor: EstimateMonitor,
    counters: CpCounters,
    read: Box<[u8]>,
    written: Vec<u8>,
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct CpArrival<'a> {
    /// Receive timestamp of the kernel.
    pub at: Time,
    /// Header, a report unless an aggregation point is missing.
    pub header: Cp,
    /// Data of the application. Empty in keep-alives and in notifications of an aggregation point.
    pub data: &'a [u8],
}

/// Numbers of received datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpCounters {
    /// With a report.
    pub reports: u64,
    /// With the header of an endpoint or of the other site's aggregation point: this site has no
    /// point. The data are delivered.
    pub unreported: u64,
    /// Refused, shorter than a header.
    pub short: u64,
    /// Refused, another version.
    pub other_version: u64,
    /// Refused, a role or a number of flowshares that is not defined.
    pub invalid: u64,
    /// Refused, another application.
    pub other_application: u64,
}

impl CpSocket {
    /// Connects `udp` to the endpoint `peer`. The kernel discards datagrams of all other sources.
    ///
    /// # Errors
    ///
    /// The error of the system, e.g. that there is no route.
    pub fn connected(
        udp: UdpSocket,
        peer: SocketAddr,
        label: CpLabel,
        clock: Clock,
    ) -> io::Result<Self> {
        Ok(Self {
            socket: Socket::connected(udp, peer)?,
            clock,
            label,
            monitor: EstimateMonitor::default(),
            counters: CpCounters::default(),
            read: vec![0; LARGEST].into_boxed_slice(),
            written: Vec::new(),
        })
    }

    /// Labels of the following datagrams.
    pub fn label(&self) -> CpLabel {
        self.label
    }

    /// Changes the flowshares that the application asks for.
    pub fn set_shares(&mut self, shares: Shares) {
        self.label.shares = shares;
    }

    /// Sends a datagram with these data after the header. Without data it only asks for the state
    /// of the path.
    ///
    /// # Errors
    ///
    /// The error of `sendmsg`: `WouldBlock` if the send buffer is full, `EMSGSIZE` if the data are
    /// too long, or `ConnectionRefused` for an earlier datagram.
    pub fn send(&mut self, data: &[u8]) -> io::Result<()> {
        let header = Cp {
            application: self.label.application,
            flow: self.label.flow,
            shares: self.label.shares,
            role: Role::Origin,
        };
        self.written.clear();
        header.emit(&mut self.written);
        self.written.extend_from_slice(data);
        self.socket.send(&self.written, Transmit::default())
    }

    /// Receives the next datagram, and its estimates; `None` if there is none. After
    /// `MAX_REFUSED` invalid ones, `None` is returned although more may be waiting, so that a flood
    /// does not delay the caller's timers.
    ///
    /// # Errors
    ///
    /// The error of the system. `ConnectionRefused` concerns a datagram sent earlier.
    pub fn receive(&mut self) -> io::Result<Option<CpArrival<'_>>> {
        for _ in 0..MAX_REFUSED {
            let Some(arrival) = self.socket.receive(self.clock, &mut self.read)? else {
                return Ok(None);
            };
            if let Some(header) = self.admit(&arrival) {
                let data = &self.read[LEN..arrival.length];
                let at = arrival.at;
                return Ok(Some(CpArrival { at, header, data }));
            }
        }
        Ok(None)
    }

    /// Waits for a datagram or an error, until `limit` and at most until the state of the path
    /// changes by silence. Returns whether there is one.
    ///
    /// # Errors
    ///
    /// The error of the system, e.g. `Interrupted`.
    pub fn wait(&self, limit: Time) -> io::Result<bool> {
        let limit = self.next_timeout().map_or(limit, |at| at.min(limit));
        wait(self.as_fd(), self.clock.until(limit))
    }

    /// Values of the newest report, whether current or not; `None` until an aggregation point has
    /// written one.
    pub fn estimates(&self) -> Option<Estimates> {
        self.monitor.estimates()
    }

    /// Whether the application may follow the estimates. If not, it falls back to a controller of
    /// its own.
    pub fn state(&self) -> PathState {
        self.monitor.state(self.clock.now())
    }

    /// Time at which the state becomes [`PathState::Silent`] without another report.
    pub fn next_timeout(&self) -> Option<Time> {
        self.monitor.next_timeout(self.clock.now())
    }

    /// Numbers of received datagrams.
    pub fn counters(&self) -> CpCounters {
        self.counters
    }

    /// Reads the header, unless the datagram is refused.
    fn admit(&mut self, arrival: &Arrival) -> Option<Cp> {
        let counters = &mut self.counters;
        let header = match Cp::parse(&self.read[..arrival.length]) {
            Ok((header, _)) => header,
            Err(error) => {
                *match error {
                    CpError::Short => &mut counters.short,
                    CpError::Version(_) => &mut counters.other_version,
                    _ => &mut counters.invalid,
                } += 1;
                return None;
            }
        };
        if header.application != self.label.application {
            counters.other_application += 1;
            return None;
        }
        *match header.role {
            Role::Report(_) => &mut counters.reports,
            Role::Origin | Role::Probe(_) => &mut counters.unreported,
        } += 1;
        self.monitor.on_header(arrival.at, &header);
        Some(header)
    }
}

impl CpCounters {
    /// Datagrams that were refused.
    pub fn refused(&self) -> u64 {
        self.short + self.other_version + self.invalid + self.other_application
    }
}

impl AsFd for CpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until a socket has a datagram or an error, at most for a span.
fn wait(socket: BorrowedFd<'_>, span: Duration) -> io::Result<bool> {
    let mut source = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    // A span beyond the range of the clock is no limit.
    let span = Timespec::try_from(span).ok();
    Ok(poll(&mut source, span.as_ref())? > 0)
}

/// Longest UDP payload.
const LARGEST: usize = 65_535;
/// Invalid datagrams that one call discards.
const MAX_REFUSED: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn label() -> CpLabel {
        CpLabel {
            application: ApplicationId(7),
            flow: 3,
            shares: Shares::ONE,
        }
    }

    /// A socket, and its peer without one.
    fn pair() -> (CpSocket, UdpSocket) {
        let [here, there] = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let (near, far) = (here.local_addr().unwrap(), there.local_addr().unwrap());
        there.connect(near).unwrap();
        let clock = Clock::start();
        (
            CpSocket::connected(here, far, label(), clock).unwrap(),
            there,
        )
    }

    #[test]
    fn datagrams_have_the_labels() {
        let (mut socket, peer) = pair();
        socket.send(b"data").unwrap();
        socket.set_shares(Shares::new(9).unwrap());
        socket.send(b"").unwrap();
        let mut buffer = [0; 100];
        for (shares, data) in [(1, &b"data"[..]), (9, b"")] {
            let length = peer.recv(&mut buffer).unwrap();
            let (header, content) = Cp::parse(&buffer[..length]).unwrap();
            assert_eq!((header.application.0, header.flow), (7, 3));
            assert_eq!((header.shares.get(), header.role), (shares, Role::Origin));
            assert_eq!(content, data);
        }
        assert!(socket.send(&vec![0; LARGEST]).is_err());
    }

    #[test]
    fn invalid_datagrams_are_counted_and_refused() {
        let (mut socket, peer) = pair();
        let address = socket.socket.local_addr().unwrap();
        let valid = Cp {
            application: ApplicationId(7),
            flow: 1,
            shares: Shares::ONE,
            role: Role::Origin,
        };
        let sent = |change: fn(&mut Vec<u8>)| {
            let mut payload = valid.to_bytes().to_vec();
            payload.extend_from_slice(b"data");
            change(&mut payload);
            peer.send(&payload).unwrap();
        };
        // The kernel discards the datagram of another source.
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.send_to(&valid.to_bytes(), address).unwrap();
        sent(|payload| payload.truncate(LEN - 1));
        sent(Vec::clear);
        sent(|payload| payload[0] = 2 << 4);
        sent(|payload| payload[0] |= 3 << 2);
        sent(|payload| payload[1] = 65);
        sent(|payload| payload[3] = 8);
        sent(|_| {});
        // Loopback delivers in order, before `send` returns.
        let arrival = socket.receive().unwrap().expect("the valid one");
        assert_eq!((arrival.header.flow, arrival.data), (1, &b"data"[..]));
        let counters = CpCounters {
            reports: 0,
            unreported: 1,
            short: 2,
            other_version: 1,
            invalid: 2,
            other_application: 1,
        };
        assert_eq!(socket.counters(), counters);
        assert_eq!(counters.refused(), 6);
        assert_eq!(socket.estimates(), None);
        assert_eq!(socket.state(), PathState::Unknown);
        assert!(socket.receive().unwrap().is_none());
    }

    #[test]
    fn flood_of_invalid_datagrams_returns_to_the_caller() {
        let (mut socket, peer) = pair();
        for _ in 0..=MAX_REFUSED {
            peer.send(b"junk").unwrap();
        }
        assert!(socket.receive().unwrap().is_none());
        assert_eq!(socket.counters().short, MAX_REFUSED as u64);
        assert!(socket.wait(Time::ZERO).unwrap());
    }
}
