//! Interface of the drivers to a sender, a receiver, an aggregation point or a traffic source.

use core::fmt::Debug;

use crate::control::{Context, Ecn, TimerReason};
use crate::tcp_rate::{EventNotification, TcpView};
use crate::units::{Bytes, Time};

/// A network node, without the network.
///
/// The simulator and the live drivers run the same loop: pass one input, [`poll`](Self::poll) until
/// the output is [`Output::Wait`] or [`Output::Done`], and sleep until the next input. They poll first
/// of all, or pass [`Input::Timeout`]. After a change by other methods, as the end of the capture, they
/// poll again.
pub trait Endpoint: Debug + Send {
    /// Processes an input.
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check;

    /// The next output. The payload of a datagram, or the bytes of a stream, are written to `buffer`,
    /// which is empty at the call and stays empty without them.
    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output;
}

impl<E: Endpoint> Endpoint for &mut E {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        (**self).handle(cx, input)
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        (**self).poll(cx, buffer)
    }
}

/// Input of an [`Endpoint`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input<'a> {
    /// A datagram arrived.
    Datagram(Datagram<'a>),
    /// Something happened on the byte stream that carries the session.
    Stream(StreamInput<'a>),
    /// The peer was replaced by another one, which has sent the next datagram.
    PeerChanged,
    /// The own address has changed: datagrams take another path from now on.
    PathChanged,
    /// The time of the last [`Output::Wait`] has come. Earlier is harmless.
    Timeout,
}

/// Input of an [`Endpoint`] over a byte stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StreamInput<'a> {
    /// Bytes of the peer arrived.
    Bytes(&'a [u8]),
    /// The peer has closed the stream, or it broke. No bytes arrive or leave any more.
    Closed,
    /// An event occurred on the connection; the view is its state after the event.
    Event(EventNotification, &'a TcpView),
    /// Bytes in the send queue of the connection.
    Queue {
        /// Not sent yet.
        unsent: Bytes,
        /// Sent, and not acknowledged.
        unacknowledged: Bytes,
    },
    /// The state of the connection. It is also passed after each [`Output::Write`].
    View(&'a TcpView),
    /// The connection has accepted this many bytes of the last [`Output::Write`]. After zero it is full:
    /// the endpoint offers the bytes again after another input than this and a view.
    Written(usize),
}

/// What an [`Input::Datagram`] proves; the default for other inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// About its source. A driver whose socket learns the address of its peer needs it.
    pub source: SourceCheck,
    /// Whether it was accepted and held a report about packets that the endpoint has sent.
    pub is_believed: bool,
}

impl Check {
    /// Of an endpoint that does not authenticate datagrams.
    pub fn believed(is_believed: bool) -> Self {
        Self {
            source: SourceCheck::Unchecked,
            is_believed,
        }
    }
}

/// Output of an [`Endpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A datagram to the source of the last [`Input::Datagram`], which need not be the peer. A driver
    /// without addresses sends it to the peer.
    Answer,
    /// The session is over, and a driver may end. For one that goes on, as a simulator whose other nodes
    /// are not done, the rest is as in [`Wait`](Self::Wait).
    Done(Option<(Time, TimerReason)>),
    /// A datagram to the peer.
    Send(Transmit),
    /// Nothing is to be sent before the next input: [`Input::Timeout`] is due at this time, for this
    /// reason, or never.
    Wait(Option<(Time, TimerReason)>),
    /// As [`Wait`](Self::Wait), and data waits for room in the connection. A driver that gets no events
    /// of acknowledgements passes the state of the connection again soon.
    WaitForRoom(Option<(Time, TimerReason)>),
    /// Bytes for the peer on the byte stream. [`StreamInput::Written`] must follow.
    Write,
}

impl Output {
    /// Header fields of the datagram in the buffer; `None` if there is no datagram.
    #[inline]
    pub fn transmit(self) -> Option<Transmit> {
        match self {
            Self::Answer => Some(Transmit::default()),
            Self::Send(transmit) => Some(transmit),
            Self::Done(_) | Self::Wait(_) | Self::WaitForRoom(_) | Self::Write => None,
        }
    }

    /// Time and reason of the next [`Input::Timeout`], if there is one.
    #[inline]
    pub fn timer(self) -> Option<(Time, TimerReason)> {
        match self {
            Self::Done(timer) | Self::Wait(timer) | Self::WaitForRoom(timer) => timer,
            Self::Answer | Self::Send(_) | Self::Write => None,
        }
    }

    /// Whether the session is over.
    #[inline]
    pub fn is_done(self) -> bool {
        matches!(self, Self::Done(_))
    }
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
