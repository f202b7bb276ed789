//! Adapter from an endpoint to an agent.

use core::mem;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{Context, TimerReason};
use tidegate_core::endpoint::{Datagram, Endpoint, Input, OVERHEAD, Output};
use tidegate_core::trace::Trace;
use tidegate_core::units::{Bytes, Time};

use super::MAX_PACKETS;
use crate::packet_agent::{Agent, AgentCx, Arrival, Body, Outgoing};

/// Runs an [`Endpoint`] as an agent: its datagrams are packet bodies, and IP and UDP headers are
/// added to their sizes.
#[derive(Clone, Debug)]
pub struct EndpointAgent<E> {
    /// The endpoint.
    pub endpoint: E,
    /// The output with which the last poll ended.
    last: Output,
}

impl<E: Endpoint> EndpointAgent<E> {
    /// Runs `endpoint`, from a timeout at the start of its activity on.
    pub fn new(endpoint: E) -> Self {
        Self {
            endpoint,
            last: Output::Wait(Some((Time::ZERO, TimerReason::Schedule))),
        }
    }

    fn drain(&mut self, cx: &mut AgentCx<'_>) {
        let mut inner = context(cx.now, cx.rng, cx.trace);
        while cx.out.len() <= MAX_PACKETS {
            let mut payload = cx.out.buffers.pop().unwrap_or_default();
            payload.clear();
            let output = self.endpoint.poll(&mut inner, &mut payload);
            let Some(transmit) = output.transmit() else {
                cx.out.buffers.push(payload);
                self.last = output;
                return;
            };
            let size = Bytes(payload.len() as u64) + OVERHEAD;
            cx.out.push(Outgoing {
                size: size.get() as u32,
                ecn: transmit.ecn,
                dscp: Some(transmit.dscp),
                body: Body::Datagram(payload),
            });
        }
    }
}

impl<E: Endpoint> Agent for EndpointAgent<E> {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        let Body::Datagram(payload) = body else {
            return;
        };
        let datagram = Datagram {
            ecn: arrival.ecn,
            dscp: arrival.dscp,
            payload,
        };
        let mut inner = context(cx.now, cx.rng, cx.trace);
        self.endpoint.handle(&mut inner, Input::Datagram(datagram));
        cx.out.buffers.push(mem::take(payload));
        self.drain(cx);
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        let mut inner = context(cx.now, cx.rng, cx.trace);
        self.endpoint.handle(&mut inner, Input::Timeout);
        self.drain(cx);
    }

    fn next_timer(&self) -> Time {
        self.last.timer().map_or(Time::FAR, |(at, _)| at)
    }

    fn why(&self) -> Option<TimerReason> {
        self.last.timer().map(|(_, why)| why)
    }

    fn is_done(&self) -> bool {
        self.last.is_done()
    }
}

fn context<'a>(now: Time, rng: &'a mut Pcg64Mcg, trace: &'a mut dyn Trace) -> Context<'a> {
    Context { now, rng, trace }
}
