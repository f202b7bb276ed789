//! What every driver drives: a sender, a receiver, an aggregation point, a cross-traffic source.

use core::fmt::Debug;

use crate::control::{Cx, Ecn, Why};
use crate::units::{Bytes, Time};

/// A party on the network, without the network.
///
/// The simulator, the emulator and the live drivers all run this loop and nothing else: give
/// one input, drain [`poll_transmit`](Self::poll_transmit) to `None`, sleep until
/// [`next_timeout`](Self::next_timeout).
pub trait Endpoint: Debug + Send {
    /// A datagram arrived.
    fn on_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>);

    /// The deadline of [`next_timeout`](Self::next_timeout) has passed. Earlier is harmless.
    fn on_timeout(&mut self, cx: &mut Cx<'_>);

    /// Writes the payload of the next datagram to `buffer`, which comes in empty.
    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buffer: &mut Vec<u8>) -> Option<Transmit>;

    /// When to call [`on_timeout`](Self::on_timeout), and why; `None` while nothing is pending.
    fn next_timeout(&self) -> Option<(Time, Why)>;

    /// Whether this party has said everything that it will ever say.
    fn is_done(&self) -> bool {
        false
    }
}

/// A UDP payload that arrived, with what the IP header said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// As it arrived.
    pub ecn: Ecn,
    /// The UDP payload.
    pub payload: &'a [u8],
}

/// How a datagram wants to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transmit {
    /// The ECN field.
    pub ecn: Ecn,
    /// The DSCP, in its six low bits (LE is 1, RFC 8622).
    pub dscp: u8,
}

/// IPv4 and UDP headers: what a datagram costs on the wire above its payload.
pub const OVERHEAD: Bytes = Bytes(28);
