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

    /// What the last datagram proves about its source. A driver whose socket learns its peer asks
    /// after each [`on_datagram`](Self::on_datagram).
    fn source_check(&self) -> SourceCheck {
        SourceCheck::Unchecked
    }

    /// Whether the last accepted datagram held a report about packets that this node has sent.
    fn is_believed(&self) -> bool {
        false
    }

    /// Writes an answer to the source of the last datagram, which need not be the peer, to the
    /// empty `buffer`. Returns whether there is one. An answer that is not fetched before
    /// [`poll_transmit`](Self::poll_transmit) is sent to the peer.
    fn poll_answer(&mut self, _cx: &mut Context<'_>, _buffer: &mut Vec<u8>) -> bool {
        false
    }

    /// The peer was replaced by another one, which has sent the next datagram.
    fn on_peer_change(&mut self, _cx: &mut Context<'_>) {}
}

/// What a datagram proves about its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceCheck {
    /// The endpoint does not authenticate datagrams.
    #[default]
    Unchecked,
    /// The datagram is not authentic.
    Rejected,
    /// The datagram was protected with the keys of the current session, and a later one was
    /// received before.
    Authenticated,
    /// The datagram was protected with the keys of the current session, and is the newest of its
    /// SSRC: its source is the present address of the peer.
    Newest,
    /// The datagram is the first that was protected with new keys: its source has received an
    /// answer of this endpoint, and is the peer from now on.
    NewSession,
}

/// A received UDP payload with the traffic class of the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// ECN field on arrival.
    pub ecn: Ecn,
    /// DSCP on arrival, in the six low bits.
    pub dscp: u8,
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

/// DSCP of packets below best effort, LE (RFC 8622 section 3).
pub const LOWER_EFFORT: u8 = 1;
