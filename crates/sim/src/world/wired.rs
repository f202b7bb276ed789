//! Adapter from an endpoint to an agent.

use core::mem;

use tidegate_core::control::{Context, TimerReason};
use tidegate_core::endpoint::{Datagram, Endpoint, OVERHEAD};
use tidegate_core::units::{Bytes, Time};

use super::MOST_PACKETS;
use crate::packet_agent::{Agent, AgentCx, Arrival, Body, Outgoing};

/// Runs an [`Endpoint`] as an agent: its datagrams are packet bodies, and IP and UDP headers are
/// added to their sizes.
#[derive(Clone, Debug)]
pub struct EndpointAgent<E>(pub E);

impl<E: Endpoint> EndpointAgent<E> {
    fn drain(&mut self, cx: &mut AgentCx<'_>) {
        while cx.out.len() <= MOST_PACKETS {
            let mut payload = cx.out.buffers.pop().unwrap_or_default();
            payload.clear();
            let mut inner = Context {
                now: cx.now,
                rng: cx.rng,
                trace: cx.trace,
            };
            let Some(transmit) = self.0.poll_transmit(&mut inner, &mut payload) else {
                cx.out.buffers.push(payload);
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
        let mut inner = Context {
            now: cx.now,
            rng: cx.rng,
            trace: cx.trace,
        };
        let datagram = Datagram {
            ecn: arrival.ecn,
            dscp: arrival.dscp,
            payload,
        };
        self.0.on_datagram(&mut inner, datagram);
        cx.out.buffers.push(mem::take(payload));
        self.drain(cx);
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        let mut inner = Context {
            now: cx.now,
            rng: cx.rng,
            trace: cx.trace,
        };
        self.0.on_timeout(&mut inner);
        self.drain(cx);
    }

    fn next_timer(&self) -> Time {
        self.0.next_timeout().map_or(Time::FAR, |(at, _)| at)
    }

    fn why(&self) -> Option<TimerReason> {
        self.0.next_timeout().map(|(_, why)| why)
    }

    fn is_done(&self) -> bool {
        self.0.is_done()
    }
}
