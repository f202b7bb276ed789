//! Senders and receivers of a run.

use tidegate_core::control::TimerReason;
use tidegate_core::media::{EncodeError, FrameEncoder};
use tidegate_core::random::Seed;
use tidegate_core::session::stream::Direct;
use tidegate_core::units::Time;

use super::PlayError;
use crate::coordination::{self, CpEndpoint, Port};
use crate::flow_endpoints::{Actor, FlowInstance, FlowResult, SimPlayer};
use crate::interactive;
use crate::packet_agent::{Agent, AgentCx, Arrival, Body};
use crate::scenario::VideoPlan;
use crate::tcp::{Sink, SinkConfig};
use crate::world::EndpointAgent;

/// Sender and receiver of a flow.
pub(super) fn members(
    role: &FlowInstance,
    number: usize,
    seed: Seed,
    encoder: impl Fn(&VideoPlan) -> Result<Box<dyn FrameEncoder>, EncodeError>,
) -> Result<(SimFlow, SimFlow), PlayError> {
    if let Some((sender, receiver)) = role.actors() {
        return Ok((SimFlow::Model(sender), SimFlow::Model(receiver)));
    }
    if let Some(cp) = role.plan.media.cp() {
        let (start, stop) = (role.plan.start, role.plan.stop);
        let ends = coordination::ends(
            cp,
            number as u16,
            role.plan.ecn,
            Time::ZERO + start,
            Time::ZERO + stop,
        );
        let [sender, receiver] = ends.map(|end| SimFlow::Coordinated(Box::new(end)));
        return Ok((sender, receiver));
    }
    let fault = |error| PlayError::Encoder {
        flow: role.name.clone(),
        error,
    };
    if let Some(video) = role.plan.media.video()
        && let Some(stream) = &video.stream
    {
        let encoder = encoder(video).map_err(fault)?;
        let sender = interactive::Sender::new(&role.plan, video, stream, encoder);
        let sink = Sink::new(&SinkConfig {
            keep_progress: true,
            ..stream.tcp.sink
        });
        return Ok((
            SimFlow::Stream(Box::new(sender)),
            SimFlow::Model(Actor::TcpSink(Box::new(sink))),
        ));
    }
    let sender = role.sender(seed, |video| encoder(video).map(Direct::new));
    let sender = sender.map_err(fault)?;
    let real = |player| SimFlow::Real(Box::new(EndpointAgent::new(player)));
    Ok((real(sender), real(role.receiver(seed))))
}

/// A node of the simulator: a model, an application on a model, or an endpoint with real wire
/// formats.
#[derive(Debug)]
pub(super) enum SimFlow {
    Model(Actor),
    /// Endpoint of a cluster-to-cluster application.
    Coordinated(Box<CpEndpoint>),
    /// Passage through an aggregation point.
    Port(Port),
    Real(Box<EndpointAgent<SimPlayer>>),
    /// Sends video over TCP.
    Stream(Box<interactive::Sender>),
}

impl SimFlow {
    pub(super) fn drain(&mut self, result: &mut FlowResult) {
        if let Self::Real(player) = self {
            player.endpoint.drain(result);
        }
    }
}

impl Agent for SimFlow {
    #[inline]
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        match self {
            Self::Model(actor) => actor.on_packet(cx, arrival, body),
            Self::Coordinated(end) => end.on_packet(cx, arrival, body),
            Self::Port(port) => port.on_packet(cx, arrival, body),
            Self::Real(player) => player.on_packet(cx, arrival, body),
            Self::Stream(sender) => sender.on_packet(cx, arrival, body),
        }
    }

    #[inline]
    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        match self {
            Self::Model(actor) => actor.on_timer(cx),
            Self::Coordinated(end) => end.on_timer(cx),
            Self::Port(port) => port.on_timer(cx),
            Self::Real(player) => player.on_timer(cx),
            Self::Stream(sender) => sender.on_timer(cx),
        }
    }

    #[inline]
    fn next_timer(&self) -> Time {
        match self {
            Self::Model(actor) => actor.next_timer(),
            Self::Coordinated(end) => end.next_timer(),
            Self::Port(port) => port.next_timer(),
            Self::Real(player) => player.next_timer(),
            Self::Stream(sender) => sender.next_timer(),
        }
    }

    #[inline]
    fn soon(&self) {
        match self {
            Self::Model(actor) => actor.soon(),
            Self::Coordinated(_) | Self::Port(_) | Self::Real(_) | Self::Stream(_) => {}
        }
    }

    fn is_alone(&self) -> bool {
        match self {
            Self::Model(actor) => actor.is_alone(),
            Self::Coordinated(_) | Self::Port(_) | Self::Real(_) | Self::Stream(_) => false,
        }
    }

    fn why(&self) -> Option<TimerReason> {
        match self {
            Self::Model(actor) => actor.why(),
            Self::Coordinated(end) => end.why(),
            Self::Port(port) => port.why(),
            Self::Real(player) => player.why(),
            Self::Stream(sender) => sender.why(),
        }
    }

    #[inline]
    fn is_done(&self) -> bool {
        match self {
            Self::Model(actor) => actor.is_done(),
            Self::Coordinated(end) => end.is_done(),
            Self::Port(port) => port.is_done(),
            Self::Real(player) => player.is_done(),
            Self::Stream(sender) => sender.is_done(),
        }
    }

    #[inline]
    fn outlook(&self) -> (Time, bool) {
        match self {
            Self::Model(actor) => actor.outlook(),
            Self::Coordinated(end) => end.outlook(),
            Self::Port(port) => port.outlook(),
            Self::Real(player) => player.outlook(),
            Self::Stream(sender) => sender.outlook(),
        }
    }

    #[inline]
    fn take(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) -> (Time, bool) {
        match self {
            Self::Model(actor) => actor.take(cx, arrival, body),
            Self::Coordinated(end) => end.take(cx, arrival, body),
            Self::Port(port) => port.take(cx, arrival, body),
            Self::Real(player) => player.take(cx, arrival, body),
            Self::Stream(sender) => sender.take(cx, arrival, body),
        }
    }

    #[inline]
    fn wake(&mut self, cx: &mut AgentCx<'_>) -> (Time, bool) {
        match self {
            Self::Model(actor) => actor.wake(cx),
            Self::Coordinated(end) => end.wake(cx),
            Self::Port(port) => port.wake(cx),
            Self::Real(player) => player.wake(cx),
            Self::Stream(sender) => sender.wake(cx),
        }
    }
}
