//! Transports: what carries a session over a network.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use tidegate_core::control::Ecn;
use tidegate_core::endpoint::{Check, Input, Output};
use tidegate_core::units::Time;

use crate::clock::Clock;

mod udp;

pub use udp::UdpTransport;

/// Carries one session, as datagrams or as a byte stream. A [`Driver`](crate::driver::Driver) connects
/// it with an endpoint.
pub trait Transport {
    /// Descriptors that are readable when there is an input, at most [`MAX_SOURCES`].
    fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>>;

    /// Reads the next datagram or bytes of source number `source` into `buffer`; `None` if there are
    /// none.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    fn receive<'a>(
        &'a mut self,
        source: usize,
        clock: Clock,
        buffer: &'a mut [u8],
    ) -> Result<Option<Received<'a>>, Failure>;

    /// The endpoint has processed the last received datagram.
    fn on_check(&mut self, _check: Check) {}

    /// The next input that no source carries, as a part of the state of a byte stream, before each turn
    /// of the session and after each write; `None` if there are no more.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    fn poll_state(&mut self, _now: Time) -> Result<Option<Input<'_>>, Failure> {
        Ok(None)
    }

    /// Sends an output of the endpoint, and returns how many bytes of it were accepted.
    /// [`Output::Send`] goes to the peer, [`Output::Answer`] to the source of the last received
    /// datagram, [`Output::Write`] into the byte stream. Other outputs send nothing.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    fn transmit(&mut self, output: Output, payload: &[u8]) -> Result<usize, Failure>;

    /// Whether the first source is full. The session goes on when it is writable.
    fn is_full(&self) -> bool {
        false
    }

    /// Time of the next [`on_timer`](Self::on_timer), for a transport with timers of its own.
    fn timer(&self) -> Option<Time> {
        None
    }

    /// The time of [`timer`](Self::timer) has come. Earlier is harmless.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    fn on_timer(&mut self, _now: Time) -> Result<(), Failure> {
        Ok(())
    }

    /// Address of the peer, if known.
    fn peer(&self) -> Option<SocketAddr>;
}

/// A received input of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Received<'a> {
    /// Receive timestamp of the kernel, or the time of reading without one.
    pub at: Time,
    /// The source has replaced another peer of a listening socket.
    pub is_new_peer: bool,
    /// The input.
    pub input: Input<'a>,
}

/// A failure of a transport.
#[derive(Debug)]
pub enum Failure {
    /// A datagram is lost, perhaps one that was sent earlier.
    Lost(io::Error),
    /// Nothing can be carried any more: the peer has closed the stream, or it is broken.
    Broken(io::Error),
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
pub const MAX_SOURCES: usize = 4;
