//! Interface of the drivers to a sender, a receiver, an aggregation point or a traffic source.

use core::fmt::Debug;

use crate::control::{Context, Ecn, TimerReason};
use crate::units::{Bytes, Time};

/// A network node, without the network.
///
/// The simulator, the emulator and the live drivers run the same loop: pass one input, call
/// [`poll_transmit`](Self::poll_transmit) until `None`, and sleep until
/// [`next_timeout`](Self::next_timeout).
pub trait Endpoint: Debug + Send {
    /// A datagram arrived.
    fn on_datagram(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>);

    /// The deadline of [`next_timeout`](Self::next_timeout) has passed. Earlier is harmless.
    fn on_timeout(&mut self, cx: &mut Context<'_>);

    /// Writes the payload of the next datagram to `buffer`, which is empty at the call.
    fn poll_transmit(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Option<Transmit>;

    /// Next call of [`on_timeout`](Self::on_timeout) and its reason; `None` while no timer is
    /// pending.
    fn next_timeout(&self) -> Option<(Time, TimerReason)>;

    /// Whether this node will send nothing more.
    fn is_done(&self) -> bool {
        false
    }
}

/// A received UDP payload with the ECN field of the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// ECN field on arrival.
    pub ecn: Ecn,
    /// The UDP payload.
    pub payload: &'a [u8],
}

/// IP header fields of a datagram to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transmit {
    /// The ECN field.
    pub ecn: Ecn,
    /// The DSCP, in the six low bits (LE is 1, RFC 8622).
    pub dscp: u8,
}

/// Overhead of a datagram on the wire: IPv4 and UDP headers.
pub const OVERHEAD: Bytes = Bytes(28);
