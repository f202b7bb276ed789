//! Transports: what carries the packets of a session over a network.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use tidegate_core::control::Ecn;
use tidegate_core::endpoint::{Check, Output};
use tidegate_core::units::Time;

use crate::clock::Clock;

mod udp;

pub use udp::UdpTransport;

/// Carries the datagrams of one session. A [`Driver`](crate::driver::Driver) connects it with an
/// endpoint.
pub trait Transport {
    /// Descriptors that are readable when a datagram has arrived, at most [`MAX_SOURCES`].
    fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>>;

    /// Reads the next datagram of source number `source` into `buffer`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The error of the system, which may concern a datagram sent earlier.
    fn receive(
        &mut self,
        source: usize,
        clock: Clock,
        buffer: &mut [u8],
    ) -> io::Result<Option<Arrival>>;

    /// The endpoint has processed the last received datagram.
    fn on_check(&mut self, check: Check, payload: &[u8]);

    /// Sends a datagram of the endpoint: [`Output::Send`] to the peer, [`Output::Answer`] to the source
    /// of the last received datagram. Other outputs send nothing.
    ///
    /// # Errors
    ///
    /// The error of the system, which may concern a datagram sent earlier.
    fn transmit(&mut self, output: Output, payload: &[u8]) -> io::Result<()>;

    /// Address of the peer, if known.
    fn peer(&self) -> Option<SocketAddr>;
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Receive timestamp of the kernel, or the time of reading without one.
    pub at: Time,
    /// ECN field at arrival.
    pub ecn: Ecn,
    /// DSCP at arrival.
    pub dscp: u8,
    /// Length of the payload.
    pub length: usize,
    /// The source has replaced another peer of a listening socket.
    pub is_new_peer: bool,
}

/// Maximum number of sources of a transport.
pub const MAX_SOURCES: usize = 3;
