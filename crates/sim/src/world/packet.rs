//! Packets in transit.

use tidegate_core::control::Ecn;
use tidegate_core::link::{Network, Packet, RouteId};
use tidegate_core::units::{Bytes, Time};

use super::node::NodeState;
use super::{Flight, NodeId, Observer};
use crate::packet_agent::{Body, Outgoing};

/// A packet in transit.
#[derive(Clone, Debug)]
pub struct SimPacket {
    pub(super) to: u32,
    flow: u32,
    pub(super) size: u32,
    pub(super) ecn: Ecn,
    pub(super) dscp: u8,
    pub(super) entered: Time,
    pub(super) body: Body,
}

impl Packet for SimPacket {
    #[inline]
    fn size(&self) -> Bytes {
        Bytes(u64::from(self.size))
    }
    #[inline]
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    #[inline]
    fn set_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }
    #[inline]
    fn flow(&self) -> u32 {
        self.flow
    }
    #[inline]
    fn dscp(&self) -> u8 {
        self.dscp
    }
    fn set_dscp(&mut self, dscp: u8) {
        self.dscp = dscp;
    }
}

impl SimPacket {
    #[inline]
    pub(super) fn flight(&self, node: NodeId) -> Flight<'_> {
        Flight {
            node,
            flow: self.flow,
            size: self.size(),
            ecn: self.ecn,
            entered: self.entered,
            body: &self.body,
        }
    }
}

/// Enqueues a packet on the first link of its route. With `AHEAD`, `at` may be later than the
/// clock.
#[inline(always)]
#[expect(clippy::inline_always, reason = "so that a packet is moved once")]
pub(super) fn put<const AHEAD: bool, A, O: Observer + ?Sized>(
    network: &mut Network<SimPacket>,
    node: &NodeState<A>,
    id: usize,
    at: Time,
    outgoing: &mut Option<Outgoing>,
    observer: &mut O,
) {
    let Some(sent) = outgoing else {
        return;
    };
    let size = Bytes(sent.size.into());
    let flight = Flight {
        node: NodeId(id),
        flow: node.flow,
        size,
        ecn: sent.ecn,
        entered: at,
        body: &sent.body,
    };
    observer.sent(at, flight);
    // The closure captures references only, to avoid a copy of the packet.
    let make = || {
        let sent = outgoing.take().expect("the outbox contains the packet");
        SimPacket {
            to: node.peer,
            flow: node.flow,
            size: sent.size,
            ecn: sent.ecn,
            dscp: sent.dscp.unwrap_or(node.dscp),
            entered: at,
            body: sent.body,
        }
    };
    let route = RouteId(node.route as usize);
    if AHEAD {
        network.push_ahead(at, route, size, make);
    } else {
        network.push_new(at, route, size, make);
    }
}
