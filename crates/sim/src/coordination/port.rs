//! Passage of a flow through an aggregation point.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_core::aggregate::{
    AggregateConfig, AggregationPoint, Direction, Packet, SiteId, Verdict,
};
use tidegate_core::control::{Context, Ecn, TimerReason};
use tidegate_core::endpoint::OVERHEAD;
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::cp::LEN;

use crate::packet_agent::{Agent, AgentCx, Arrival, Body};
use crate::world::NodeId;

/// An aggregation point that several ports share.
#[derive(Clone, Debug)]
pub struct SharedPoint(Rc<RefCell<Point>>);

#[derive(Debug)]
struct Point {
    inner: AggregationPoint,
    /// Port that runs the timers, and their next time.
    timer: (usize, Time),
    ports: usize,
}

impl SharedPoint {
    /// A point without ports.
    pub fn new(config: AggregateConfig) -> Self {
        Self(Rc::new(RefCell::new(Point {
            inner: AggregationPoint::new(config),
            timer: (0, Time::FAR),
            ports: 0,
        })))
    }

    /// A further port, for the packets of one flow in one direction. `back` is the node of the port
    /// for the flow's packets to the endpoints of this site.
    pub fn port(&self, direction: Direction, back: NodeId) -> Port {
        let mut point = self.0.borrow_mut();
        let number = point.ports;
        point.ports += 1;
        Port {
            point: self.clone(),
            number,
            direction,
            back,
        }
    }
}

/// Passes packets through the point, to the peer of the port's node. A notification to an endpoint
/// leaves as a packet of the port in the opposite direction.
#[derive(Clone, Debug)]
pub struct Port {
    point: SharedPoint,
    number: usize,
    direction: Direction,
    back: NodeId,
}

impl Point {
    /// The port with the latest change of the deadline runs the timers. Earlier timers of other
    /// ports have no effect.
    fn set_timer(&mut self, number: usize) {
        let next = self.inner.next_timeout().map_or(Time::FAR, |(at, _)| at);
        if next != self.timer.1 {
            self.timer = (number, next);
        }
    }
}

impl Agent for Port {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        let Body::Coordinated { header, sent } = body else {
            return;
        };
        let mut point = self.point.0.borrow_mut();
        let mut inner = Context {
            now: cx.now,
            rng: cx.rng,
            trace: cx.trace,
        };
        let packet = Packet {
            site: SiteId(0),
            direction: self.direction,
            size: Bytes(arrival.size.into()),
            ecn: arrival.ecn,
            payload: header,
        };
        let verdict = point.inner.forward(&mut inner, packet);
        point.set_timer(self.number);
        if !matches!(verdict, Verdict::Drop(_)) {
            let body = Body::Coordinated {
                header: *header,
                sent: *sent,
            };
            cx.send(Bytes(arrival.size.into()), arrival.ecn, body);
        }
        if let Verdict::Notify(header) = verdict {
            let sent = cx.now;
            let body = Body::Coordinated { header, sent };
            cx.send_as(self.back.0, NOTICE, Ecn::NotEct, body);
        }
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        let mut point = self.point.0.borrow_mut();
        let mut inner = Context {
            now: cx.now,
            rng: cx.rng,
            trace: cx.trace,
        };
        point.inner.on_timeout(&mut inner);
        point.set_timer(self.number);
    }

    fn next_timer(&self) -> Time {
        let (number, at) = self.point.0.borrow().timer;
        if number == self.number { at } else { Time::FAR }
    }

    fn why(&self) -> Option<TimerReason> {
        Some(TimerReason::Silence)
    }

    fn is_done(&self) -> bool {
        true
    }
}

/// Size of a notification: a header without data.
const NOTICE: Bytes = Bytes(OVERHEAD.0 + LEN as u64);
