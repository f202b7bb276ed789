//! Modelled flows: agents that exchange packets as values.
//!
//! An [`Endpoint`](tidegate_core::endpoint::Endpoint) produces real wire formats and runs anywhere.
//! That is wasteful for thousands of competing flows. An [`Agent`] sends [`Body`] values, which are
//! copied instead of parsed, and whose size on the wire is a number. Both kinds share one world
//! with its links and clock.

use core::fmt::Debug;

use prefetch_index::prefetch_index;
use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{Ecn, TimerReason};
use tidegate_core::endpoint::LOWER_EFFORT;
use tidegate_core::trace::{Event, Trace};
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::cp;

/// Sends and receives modelled packets.
///
/// After each input, the world collects the packets sent through [`AgentCx::send`] and reads the
/// next timer.
pub trait Agent: Debug {
    /// A packet arrived. The agent may take the contents of its body.
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body);

    /// The time of [`next_timer`](Self::next_timer) is reached. An earlier call is harmless.
    fn on_timer(&mut self, cx: &mut AgentCx<'_>);

    /// Time of the next call of [`on_timer`](Self::on_timer); [`Time::FAR`] if no timer is set.
    fn next_timer(&self) -> Time;

    /// A packet is likely to arrive soon. The agent may prefetch its state with [`fetch`]. Worlds
    /// with few nodes may skip this hint.
    #[inline]
    fn soon(&self) {}

    /// Whether the agent depends on its own inputs alone and shares no state with other agents. The
    /// world may then run it ahead of other nodes.
    fn is_alone(&self) -> bool {
        false
    }

    /// Reason for the timer, for error messages.
    fn why(&self) -> Option<TimerReason> {
        None
    }

    /// Whether the agent will send nothing more.
    fn is_done(&self) -> bool {
        false
    }

    /// [`next_timer`](Self::next_timer) and [`is_done`](Self::is_done) in one call, which saves
    /// enums of agents one dispatch.
    #[inline]
    fn outlook(&self) -> (Time, bool) {
        (self.next_timer(), self.is_done())
    }

    /// [`on_packet`](Self::on_packet), then [`outlook`](Self::outlook).
    #[inline]
    fn take(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) -> (Time, bool) {
        self.on_packet(cx, arrival, body);
        self.outlook()
    }

    /// [`on_timer`](Self::on_timer), then [`outlook`](Self::outlook).
    #[inline]
    fn wake(&mut self, cx: &mut AgentCx<'_>) -> (Time, bool) {
        self.on_timer(cx);
        self.outlook()
    }
}

/// Prefetches the cache line at the start of `value`.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is one instruction")]
pub fn fetch<T>(value: &T) {
    prefetch_index(core::slice::from_ref(value), 0);
}

/// Header of a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Size on the wire in bytes, all headers included.
    pub size: u32,
    /// ECN field at arrival.
    pub ecn: Ecn,
    /// DSCP at arrival.
    pub dscp: u8,
}

/// Content of a packet. At most 40 bytes, so that a packet fits into a cache line.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A TCP acknowledgement.
    Ack(Ack),
    /// A packet of a cluster-to-cluster application.
    Coordinated {
        /// Header of the Coordination Protocol.
        header: [u8; cp::LEN],
        /// Departure from the endpoint.
        sent: Time,
    },
    /// A datagram of an endpoint.
    Datagram(Vec<u8>),
    /// A data packet of a rate-controlled or uncontrolled flow.
    Data {
        /// Sequence number, from zero.
        seq: u64,
        /// Departure from the sender.
        sent: Time,
        /// The sender's round-trip time in ns, for receivers that report once per round trip (RFC
        /// 5348 section 3.2.1). Zero if unknown.
        rtt: u64,
        /// Distance to the oldest packet that is neither acknowledged nor lost. Reports need not
        /// cover packets before that.
        open: u32,
        /// Whether the packet only tests the path, at low priority.
        is_dummy: bool,
    },
    /// Packets of [`Data`](Self::Data) received since the last report, and some of earlier reports
    /// again, because reports may be lost.
    Report {
        /// Departure of the report, on the receiver's clock.
        sent: Time,
        /// Received packets in ascending order. [`AgentCx::recycle`] reuses the vector.
        seen: Vec<ReceivedRun>,
    },
    /// A web client requests an object.
    Request(Request),
    /// A segment of a TCP model.
    Segment(Segment),
}

/// Request of a web client to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Sequence number of the request at the client. A repeated number is a retransmission of the
    /// request.
    pub number: u32,
    /// Group of concurrently open connections. A new group ends the previous one.
    pub group: u32,
    /// First segment number of the answering connection. A different value opens a new connection.
    /// It is higher than all segment numbers of earlier connections, so that their segments cannot
    /// be mistaken for new ones.
    pub first: u32,
    /// Object size in bytes of payload. The client knows it, because both ends are models.
    pub bytes: u64,
}

/// A segment of a TCP model. Segments rather than bytes are numbered, as in ns-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Segment number, from zero.
    pub seq: u32,
    /// Departure of this copy: the timestamp of RFC 7323.
    pub sent: Time,
    /// Whether the segment is a retransmission.
    pub again: bool,
    /// Congestion window reduced (RFC 3168).
    pub cwr: bool,
}

/// Acknowledgement of a TCP receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The first missing segment; all segments before it have arrived.
    pub next: u32,
    /// Echoed timestamp of the acknowledged segment (RFC 7323).
    pub echo: Time,
    /// Selective acknowledgements (RFC 2018): half-open ranges of segments, the latest first.
    /// Unused ranges are empty. Three fit beside timestamps.
    pub sack: [(u32, u32); 3],
    /// ECN-Echo (RFC 3168).
    pub ece: bool,
    /// Whether the acknowledged segment was a retransmission.
    pub again: bool,
    /// Number of segments received with CE, modulo 2^16, if the receiver supports accurate ECN (RFC
    /// 9768); zero otherwise.
    pub marks: u16,
}

/// A contiguous run of received packets in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedRun {
    /// Sequence number of the last packet of the run.
    pub seq: u64,
    /// Length of the run; `seq - run + 1` is its first packet.
    pub run: u32,
    /// Arrival of the last packet.
    pub at: Time,
    /// ECN field of the packets at arrival.
    pub ecn: Ecn,
}

/// Context of one call of an agent.
pub struct AgentCx<'a> {
    /// Current time.
    pub now: Time,
    /// The agent's own random stream.
    pub rng: &'a mut Pcg64Mcg,
    /// Sink of the agent's events.
    pub trace: &'a mut dyn Trace,
    pub(crate) out: &'a mut Outbox,
}

impl Debug for AgentCx<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AgentCx")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

impl<'a> AgentCx<'a> {
    /// For drivers and tests.
    pub fn new(
        now: Time,
        rng: &'a mut Pcg64Mcg,
        trace: &'a mut dyn Trace,
        out: &'a mut Outbox,
    ) -> Self {
        Self {
            now,
            rng,
            trace,
            out,
        }
    }

    /// Sends `body` to the peer, with `size` bytes on the wire, all headers included.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "so that a body is written where it stays"
    )]
    pub fn send(&mut self, size: Bytes, ecn: Ecn, body: Body) {
        self.out.push(Outgoing {
            size: size.get() as u32,
            ecn,
            dscp: None,
            body,
        });
    }

    /// The same at the lowest priority (RFC 8622).
    pub fn send_low(&mut self, size: Bytes, ecn: Ecn, body: Body) {
        self.out.push(Outgoing {
            size: size.get() as u32,
            ecn,
            dscp: Some(LOWER_EFFORT),
            body,
        });
    }

    /// Sends `body` as node number `node` does: on its route and to its peer.
    pub fn send_as(&mut self, node: usize, size: Bytes, ecn: Ecn, body: Body) {
        let outgoing = Outgoing {
            size: size.get() as u32,
            ecn,
            dscp: None,
            body,
        };
        self.out.others_as.push((node, outgoing));
    }

    /// Records an event.
    pub fn record(&mut self, event: Event) {
        self.trace.record(self.now, event);
    }

    /// An empty list for a report, with the capacity of a recycled one.
    pub fn report(&mut self) -> Vec<ReceivedRun> {
        self.out.spare.pop().unwrap_or_default()
    }

    /// Recycles the list of a report.
    pub fn recycle(&mut self, mut list: Vec<ReceivedRun>) {
        list.clear();
        self.out.spare.push(list);
    }
}

/// Packets sent during a call.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The first and usually only packet. It is built in place; a `Vec` would need it assembled
    /// elsewhere and copied.
    first: Option<Outgoing>,
    others: Vec<Outgoing>,
    /// Packets on the routes of other nodes.
    others_as: Vec<(usize, Outgoing)>,
    /// Buffers for datagrams.
    pub(crate) buffers: Vec<Vec<u8>>,
    /// Lists for reports.
    spare: Vec<Vec<ReceivedRun>>,
}

impl Outbox {
    /// Removes and returns the packets on the routes of other nodes, with these nodes.
    pub fn drain_as(&mut self) -> impl Iterator<Item = (usize, Outgoing)> {
        self.others_as.drain(..)
    }

    /// Removes and returns the queued packets on the agent's own route in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Outgoing> {
        self.first.take().into_iter().chain(self.others.drain(..))
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "so that a packet is written where it stays"
    )]
    pub(crate) fn push(&mut self, packet: Outgoing) {
        if self.first.is_none() {
            self.first = Some(packet);
        } else {
            self.others.push(packet);
        }
    }

    /// Number of queued packets.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len() + self.others_as.len()
    }

    /// The queued packets except for the first `oldest`.
    pub(crate) fn since(&mut self, oldest: usize) -> impl Iterator<Item = &mut Outgoing> {
        self.first.iter_mut().chain(&mut self.others).skip(oldest)
    }

    /// Slot of the queued packet, if there is exactly one.
    #[inline]
    pub(crate) fn only(&mut self) -> Option<&mut Option<Outgoing>> {
        let alone = self.others.is_empty() && self.others_as.is_empty() && self.first.is_some();
        alone.then_some(&mut self.first)
    }
}

/// An outgoing packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// Size on the wire in bytes, all headers included.
    pub size: u32,
    /// ECN field.
    pub ecn: Ecn,
    /// DSCP, if it differs from that of the node.
    pub dscp: Option<u8>,
    /// Content.
    pub body: Body,
}
