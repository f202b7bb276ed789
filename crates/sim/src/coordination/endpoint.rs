//! Endpoints of a cluster-to-cluster application.

use core::time::Duration;

use tidegate_core::aggregate::sender::{CpContent, CpSender, CpSenderConfig};
use tidegate_core::control::{Ecn, TimerReason};
use tidegate_core::endpoint::OVERHEAD;
use tidegate_core::random::unit;
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::cp::{Cp, LEN, Role};

use super::{Answers, CpPlan};
use crate::packet_agent::{Agent, AgentCx, Arrival, Body};

/// Sender and receiver of flow number `flow`, active from `start` to `stop`.
pub fn ends(plan: &CpPlan, flow: u16, ecn: Ecn, start: Time, stop: Time) -> [CpEndpoint; 2] {
    let sender = || Kind::Sender {
        sender: CpSender::new(CpSenderConfig {
            application: plan.application,
            flow,
            shares: plan.shares,
            part: plan.part,
            packet_size: plan.packet,
            start,
        }),
        held: Duration::ZERO,
    };
    let receiver = match plan.answers {
        Answers::Data => sender(),
        Answers::Each(size) => Kind::Receiver {
            header: Cp {
                application: plan.application,
                flow,
                shares: plan.shares,
                role: Role::Origin,
            },
            size,
        },
    };
    let endpoint = |kind| CpEndpoint {
        kind,
        packet: plan.packet,
        overhead: plan.overhead,
        ecn,
        stop,
        is_stopped: false,
    };
    [endpoint(sender()), endpoint(receiver)]
}

/// Sends or answers the packets of a flow.
#[derive(Clone, Debug)]
pub struct CpEndpoint {
    kind: Kind,
    packet: Bytes,
    overhead: Duration,
    ecn: Ecn,
    stop: Time,
    is_stopped: bool,
}

#[derive(Clone, Debug)]
enum Kind {
    Sender {
        sender: CpSender,
        /// Random delay of the next packet.
        held: Duration,
    },
    /// Answers each packet.
    Receiver { header: Cp, size: Bytes },
}

impl CpEndpoint {
    /// The sender, if the endpoint is one.
    pub fn sender(&self) -> Option<&CpSender> {
        match &self.kind {
            Kind::Sender { sender, .. } => Some(sender),
            Kind::Receiver { .. } => None,
        }
    }
}

impl Agent for CpEndpoint {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, _: &Arrival, body: &mut Body) {
        let Body::Coordinated { header, .. } = body else {
            return;
        };
        match &mut self.kind {
            Kind::Sender { sender, .. } => {
                if let Ok((header, _)) = Cp::parse(header) {
                    sender.on_header(cx.now, &header);
                }
            }
            Kind::Receiver { header, size } => {
                let body = Body::Coordinated {
                    header: header.to_bytes(),
                    sent: cx.now,
                };
                cx.send(*size, self.ecn, body);
            }
        }
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        self.is_stopped |= cx.now >= self.stop;
        let Kind::Sender { sender, held } = &mut self.kind else {
            return;
        };
        if self.is_stopped || sender.next_timeout() + *held > cx.now {
            return;
        }
        // The random delay does not change the schedule.
        let due = sender.next_timeout();
        let Some(packet) = sender.poll(due) else {
            return;
        };
        let size = match packet.content {
            CpContent::Data => self.packet,
            CpContent::KeepAlive => OVERHEAD + Bytes(LEN as u64),
        };
        let body = Body::Coordinated {
            header: packet.header.to_bytes(),
            sent: cx.now,
        };
        cx.send(size, self.ecn, body);
        *held = self.overhead.mul_f64(unit(cx.rng));
    }

    fn next_timer(&self) -> Time {
        match &self.kind {
            Kind::Sender { sender, held } if !self.is_stopped => {
                (sender.next_timeout() + *held).min(self.stop)
            }
            Kind::Sender { .. } | Kind::Receiver { .. } => Time::FAR,
        }
    }

    fn why(&self) -> Option<TimerReason> {
        Some(TimerReason::Pacing)
    }

    fn is_done(&self) -> bool {
        self.is_stopped || matches!(self.kind, Kind::Receiver { .. })
    }
}
