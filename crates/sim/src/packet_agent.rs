//! Modelled flows: parties that exchange small packets instead of bytes.
//!
//! An [`Endpoint`](tidegate_core::endpoint::Endpoint) speaks real formats and runs anywhere. For
//! competing traffic by the thousand that is wasteful: an [`Agent`] sends [`Body`] values, which
//! are copied, not parsed, and whose size on the wire is a number. Both kinds share one world, its
//! links and its clock.

use core::fmt::Debug;

use prefetch_index::prefetch_index;
use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{Ecn, Why};
use tidegate_core::trace::{Event, Trace};
use tidegate_core::units::{Bytes, Time};

/// A party that sends and receives modelled packets.
///
/// The world gives one input, takes what was sent, and asks for the next timer. Sending is done
/// through [`AgentCx::send`] during any call.
pub trait Agent: Debug {
    /// A packet arrived. What its body owns may be taken out.
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body);

    /// The moment of [`next_timer`](Self::next_timer) has come. Earlier is harmless.
    fn on_timer(&mut self, cx: &mut AgentCx<'_>);

    /// When to call [`on_timer`](Self::on_timer); [`Time::FAR`] while nothing is pending.
    fn next_timer(&self) -> Time;

    /// A packet is likely to arrive soon: what that touches may be brought to the cache, with
    /// [`fetch`]. Of no other use, and only called where parties are many.
    #[inline]
    fn soon(&self) {}

    /// Whether what it does follows from its own inputs alone, so that it may get them before others
    /// get theirs of an earlier moment: it shares nothing with other parties.
    fn is_alone(&self) -> bool {
        false
    }

    /// Why it wants to be woken, for error messages.
    fn why(&self) -> Option<Why> {
        None
    }

    /// Whether this party has said everything that it will ever say.
    fn is_done(&self) -> bool {
        false
    }

    /// [`next_timer`](Self::next_timer) and [`is_done`](Self::is_done): for agents of many kinds,
    /// which look up once of which kind they are.
    #[inline]
    fn outlook(&self) -> (Time, bool) {
        (self.next_timer(), self.is_done())
    }

    /// [`on_packet`](Self::on_packet), and the [`outlook`](Self::outlook) from then on.
    #[inline]
    fn take(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) -> (Time, bool) {
        self.on_packet(cx, arrival, body);
        self.outlook()
    }

    /// The same of [`on_timer`](Self::on_timer).
    #[inline]
    fn wake(&mut self, cx: &mut AgentCx<'_>) -> (Time, bool) {
        self.on_timer(cx);
        self.outlook()
    }
}

/// Has the cache line brought to the cache that a value begins in.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is one instruction")]
pub fn fetch<T>(value: &T) {
    prefetch_index(core::slice::from_ref(value), 0);
}

/// What the header of a packet that arrived said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// On the wire, every header included.
    pub size: u32,
    /// As it arrived.
    pub ecn: Ecn,
}

/// What a packet carries. At most 40 bytes, so that a packet fits into a cache line.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Acknowledges segments.
    Ack(Ack),
    /// The bytes of an endpoint.
    Datagram(Vec<u8>),
    /// A packet of a paced or an uncontrolled flow.
    Data {
        /// Number in order of sending, from zero.
        seq: u64,
        /// When it left the sender.
        sent: Time,
        /// The sender's present round-trip time in ns, which a receiver that reports once per round
        /// trip needs (RFC 5348 section 3.2.1); zero while there is none.
        rtt: u64,
        /// The oldest packet whose fate the sender does not know is so many before this one: a receiver
        /// need not tell any more of those before it.
        open: u32,
    },
    /// What a receiver of [`Data`](Self::Data) saw since its last report, and again some of what
    /// it told before, because reports get lost.
    Report {
        /// When the report left, by the receiver's clock.
        sent: Time,
        /// In ascending order of numbers. The vector is given back to [`AgentCx::recycle`].
        seen: Vec<Seen>,
    },
    /// A browser asks for an object.
    Request(Request),
    /// A segment of a TCP model.
    Segment(Segment),
}

/// What a browser asks of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Counts the requests of the browser. A number that the connection has seen is the same
    /// request again.
    pub number: u32,
    /// Connections that are open together are of one group; the next group ends them.
    pub group: u32,
    /// Number of the first segment of the connection that has to answer. Another one than before
    /// asks for a new connection. It is higher than all numbers of those opened earlier, so that
    /// nothing of theirs is mistaken for it.
    pub first: u32,
    /// Size of the object, in bytes of payload. The browser knows it, since both ends are models.
    pub bytes: u64,
}

/// A segment of a TCP model. Segments are numbered, as in ns-2, rather than their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number, from zero.
    pub seq: u32,
    /// When this copy left the sender: the time stamp of RFC 7323.
    pub sent: Time,
    /// Whether it was sent before.
    pub again: bool,
    /// Congestion window reduced (RFC 3168).
    pub cwr: bool,
}

/// What a TCP receiver answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The first segment that is missing: everything before it has come.
    pub next: u32,
    /// The time stamp of the segment that made it (RFC 7323).
    pub echo: Time,
    /// Selective acknowledgements (RFC 2018): first, and one after the last; the newest first.
    /// Empty ranges are unused. Wide enough for three, as beside time stamps.
    pub sack: [(u32, u32); 3],
    /// Congestion was experienced (RFC 3168).
    pub ece: bool,
    /// The segment that made it had been sent before.
    pub again: bool,
    /// How many segments had come with congestion experienced, modulo 2^16, if the receiver is one
    /// that counts (RFC 9768); else zero.
    pub marks: u16,
}

/// Packets that arrived, as their receiver reports them: a run without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Number of the last of them.
    pub seq: u64,
    /// How many there are, itself included: `seq - run + 1` is the first.
    pub run: u32,
    /// When the last of them came.
    pub at: Time,
    /// As each of them arrived.
    pub ecn: Ecn,
}

/// The world, as an agent sees it during one call.
pub struct AgentCx<'a> {
    /// The present moment.
    pub now: Time,
    /// The agent's own random stream.
    pub rng: &'a mut Pcg64Mcg,
    /// Where it says what happened.
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

    /// Sends `body`, which is `size` on the wire with every header, to the peer.
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

    /// Says what happened.
    pub fn record(&mut self, event: Event) {
        self.trace.record(self.now, event);
    }

    /// An empty list for a report, with its room from earlier ones.
    pub fn report(&mut self) -> Vec<Seen> {
        self.out.spare.pop().unwrap_or_default()
    }

    /// Takes back the list of a report that was read.
    pub fn recycle(&mut self, mut list: Vec<Seen>) {
        list.clear();
        self.out.spare.push(list);
    }
}

/// What an agent sent during a call.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The first packet, which is mostly the only one: a list would have to be able to grow, for which
    /// a packet would be put together elsewhere, in pieces that a processor then waits for.
    first: Option<Outgoing>,
    others: Vec<Outgoing>,
    /// For datagrams.
    pub(crate) buffers: Vec<Vec<u8>>,
    /// For reports.
    spare: Vec<Vec<Seen>>,
}

impl Outbox {
    /// What was sent since the last call of this, in order.
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

    /// How many packets wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    /// All but the oldest so many of them.
    pub(crate) fn since(&mut self, oldest: usize) -> impl Iterator<Item = &mut Outgoing> {
        self.first.iter_mut().chain(&mut self.others).skip(oldest)
    }

    /// Where the packet is that waits, if it is the only one.
    #[inline]
    pub(crate) fn only(&mut self) -> Option<&mut Option<Outgoing>> {
        let alone = self.others.is_empty() && self.first.is_some();
        alone.then_some(&mut self.first)
    }
}

/// A packet on its way out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// On the wire, every header included.
    pub size: u32,
    /// The ECN field.
    pub ecn: Ecn,
    /// The DSCP, where it is not that of the party.
    pub dscp: Option<u8>,
    /// What it carries.
    pub body: Body,
}
