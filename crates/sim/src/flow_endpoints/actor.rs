//! Modelled flows: from the plan of a flow to its two agents.

use core::time::Duration;

use tidegate_core::control::{Algorithm as _, Demand, FlowId, Start, TimerReason};
use tidegate_core::units::{Bytes, Rate, Time};

use super::FlowInstance;
use crate::packet_agent::{Agent, AgentCx, Arrival, Body};
use crate::scenario::{BulkPlan, MediaPlan, TcpPlan, TcpSender};
use crate::tcp::{Model, Sink, SourceConfig, SourceKind, Writer, WriterConfig, classic, modern};
use crate::traffic::{udp, web};
use crate::{model_flow, tcp};

/// An agent of any kind.
#[derive(Debug)]
pub enum Actor {
    /// Sender of a rate-controlled flow.
    Paced(Box<model_flow::Sender>),
    /// Receiver of a rate-controlled flow.
    PacedReceiver(Box<model_flow::Receiver>),
    /// TCP sender of ns-2.
    Tcp(Box<classic::Sender>),
    /// TCP sender of Linux.
    Modern(Box<modern::Sender>),
    /// TCP sender of either kind with a writing application.
    Writer(Box<Writer>),
    /// TCP receiver.
    TcpSink(Box<Sink>),
    /// Sender of a stream without rate control.
    Udp(Box<udp::Source>),
    /// Receiver of a stream without rate control.
    UdpSink(Box<udp::Sink>),
    /// Web client.
    Browser(Box<web::Client>),
    /// Web server.
    Server(Box<web::Server>),
}

impl FlowInstance {
    /// Sender and receiver of a modelled flow. None for a video flow, whose endpoints exchange
    /// datagrams: see [`sender`](Self::sender) and [`receiver`](Self::receiver). None for a
    /// cluster-to-cluster flow, which needs aggregation points.
    pub fn actors(&self) -> Option<(Actor, Actor)> {
        let stop = Time::ZERO + self.plan.stop;
        match &self.plan.media {
            MediaPlan::Bulk(bulk) => Some(self.paced(bulk)),
            MediaPlan::Tcp(tcp) => Some(self.tcp(tcp)),
            MediaPlan::Udp(config) => {
                let mut config = config.clone();
                config.ecn = self.plan.ecn;
                let source = udp::Source::new(config).expect(CHECKED).until(stop);
                Some((Actor::Udp(Box::new(source)), Actor::UdpSink(Box::default())))
            }
            MediaPlan::Web(config) => {
                let browser = web::browser(config);
                let (client, server) = browser.expect(CHECKED);
                Some((
                    Actor::Server(Box::new(server)),
                    Actor::Browser(Box::new(client.until(stop))),
                ))
            }
            MediaPlan::Cp(_) | MediaPlan::Video(_) => None,
        }
    }

    fn paced(&self, bulk: &BulkPlan) -> (Actor, Actor) {
        let demand = Demand {
            floor: Rate::ZERO,
            ceiling: Rate::MAX,
            shares: 1,
        };
        let start = Time::ZERO + self.plan.start;
        let control = self.controller();
        let mut known = Start::new(start, bulk.packet, demand);
        known.prior = self.plan.prior;
        known.report_interval = Some(Duration::ZERO);
        let controller = control.start(&known);
        let (sender, receiver) = model_flow::ends(control.properties(), bulk.packet);
        let sender = model_flow::SenderConfig {
            flow: FlowId(0),
            ecn: self.plan.ecn,
            start,
            stop: Time::ZERO + self.plan.stop,
            workload: bulk.workload.clone(),
            overhead: bulk.overhead,
            samples: self.plan.count == 1,
            ..sender
        };
        (
            Actor::Paced(Box::new(model_flow::Sender::new(sender, controller))),
            Actor::PacedReceiver(Box::new(model_flow::Receiver::new(receiver))),
        )
    }

    fn tcp(&self, plan: &TcpPlan) -> (Actor, Actor) {
        let kind = match &plan.socket {
            Some(socket) => SourceKind::Stream {
                buffer: socket.buffer.get(),
            },
            None => plan.amount,
        };
        let source = SourceConfig {
            kind,
            start: Time::ZERO + self.plan.start,
            stop: Time::ZERO + self.plan.stop,
        };
        let sender = match &plan.sender {
            TcpSender::Classic(config) => {
                let mut config = *config;
                config.ecn = self.plan.ecn.is_capable();
                Model::Classic(Box::new(classic::Sender::new(&config, &source)))
            }
            TcpSender::Modern(config) => {
                let mut config = **config;
                config.ecn = self.plan.ecn.is_capable();
                let sender = modern::Sender::new(&config, &source).expect(CHECKED);
                Model::Modern(Box::new(sender))
            }
        };
        let sender = match (&plan.socket, sender) {
            (Some(socket), sender) => Actor::Writer(Box::new(Writer::new(
                sender,
                &WriterConfig {
                    demand: socket.demand.clone(),
                    limit: match plan.amount {
                        SourceKind::Bytes(bytes) => Some(Bytes(bytes)),
                        _ => None,
                    },
                    segment: (plan.packet_size(), plan.payload()),
                },
            ))),
            (None, Model::Classic(sender)) => Actor::Tcp(sender),
            (None, Model::Modern(sender)) => Actor::Modern(sender),
        };
        (sender, Actor::TcpSink(Box::new(tcp::Sink::new(&plan.sink))))
    }
}

const CHECKED: &str = "the plan has been validated";

macro_rules! each {
    ($self:ident, $agent:ident => $do:expr) => {
        match $self {
            Actor::Paced($agent) => $do,
            Actor::PacedReceiver($agent) => $do,
            Actor::Tcp($agent) => $do,
            Actor::Writer($agent) => $do,
            Actor::TcpSink($agent) => $do,
            Actor::Udp($agent) => $do,
            Actor::UdpSink($agent) => $do,
            Actor::Modern($agent) => $do,
            Actor::Browser($agent) => $do,
            Actor::Server($agent) => $do,
        }
    };
}

impl Agent for Actor {
    #[inline]
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        each!(self, agent => agent.on_packet(cx, arrival, body));
    }

    #[inline]
    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        each!(self, agent => agent.on_timer(cx));
    }

    #[inline]
    fn next_timer(&self) -> Time {
        each!(self, agent => agent.next_timer())
    }

    #[inline]
    fn soon(&self) {
        each!(self, agent => agent.soon());
    }

    /// Each agent owns its state, and its controller if it has one.
    fn is_alone(&self) -> bool {
        true
    }

    fn why(&self) -> Option<TimerReason> {
        each!(self, agent => agent.why())
    }

    #[inline]
    fn is_done(&self) -> bool {
        each!(self, agent => agent.is_done())
    }

    #[inline]
    fn outlook(&self) -> (Time, bool) {
        each!(self, agent => agent.outlook())
    }

    #[inline]
    fn take(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) -> (Time, bool) {
        each!(self, agent => agent.take(cx, arrival, body))
    }

    #[inline]
    fn wake(&mut self, cx: &mut AgentCx<'_>) -> (Time, bool) {
        each!(self, agent => agent.wake(cx))
    }
}
