//! Conversion of a scenario to link configurations and to the manifest.

use core::time::Duration;

use tidegate_core::endpoint::OVERHEAD;
use tidegate_core::link::{
    Capacity, CoDelConfig, DropTailConfig, DualPi2Config, Limit, LinkConfig, LossConfig,
    PriorityConfig, QueueConfig, Steps, StepsError,
};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_record::{CapacityStep, FlowInfo, FlowPath, LinkInfo, Span};

use super::{
    BaselinePlan, BaselineSender, FlowPlan, LinkPlan, MediaPlan, RatePlan, Scenario, TcpPlan,
    TcpSender, topology_text,
};
use crate::coordination::Answers;
use crate::offline_optimum::{Hop, Service};
use crate::tcp::SinkConfig;
use crate::tcp::classic::Flavour;
use crate::tcp::modern::CongestionConfig;

impl Scenario {
    /// The links from the sender of a flow to its receiver, as input of the offline optimum.
    pub fn path_hops(&self, flow: &FlowPlan) -> Vec<Hop> {
        let links = flow.path.iter().filter_map(|link| self.links.get(*link));
        links.map(LinkPlan::hop).collect()
    }

    /// Manifest entries of the links.
    pub fn link_infos(&self) -> Vec<LinkInfo> {
        let infos = self.links.iter().map(|link| link.info(self.duration));
        infos.collect()
    }

    /// Manifest entries of the flows and, after them, of the baselines.
    pub fn flow_infos(&self) -> Vec<FlowInfo> {
        let flow = |plan: &FlowPlan| {
            let info = self.flow_info(plan);
            let named = |number| FlowInfo {
                name: plan.name_of(number),
                ..info.clone()
            };
            (1..=plan.count).map(named).collect::<Vec<_>>()
        };
        let flows = self.flows.iter().flat_map(flow);
        let baseline = |plan: &BaselinePlan| {
            let info = self.flow_info(&self.baseline_flow(plan));
            FlowInfo {
                name: plan.name.clone(),
                class: plan.name.clone(),
                control: match plan.sender {
                    BaselineSender::Fixed(_) | BaselineSender::Mean => "fixed".to_owned(),
                    BaselineSender::Control(_) | BaselineSender::Transport(_) => info.control,
                },
                baseline: true,
                ..info
            }
        };
        flows.chain(self.baselines.iter().map(baseline)).collect()
    }

    /// Manifest entry of a flow. Sender and receiver share the clock of the simulation.
    fn flow_info(&self, plan: &FlowPlan) -> FlowInfo {
        let video = plan.media.video();
        let names = |links: &[usize]| {
            let links = links.iter().filter_map(|link| self.links.get(*link));
            links.map(|link| link.name.clone()).collect()
        };
        let own = plan.access.iter().chain(&plan.exit);
        FlowInfo {
            name: plan.name.clone(),
            class: plan.name.clone(),
            control: plan.control_name().to_owned(),
            baseline: false,
            delay_bound: video.map(|video| video.delay_bound),
            floor: video.map_or(Rate::ZERO, |video| video.floor),
            frame_rate: video.map(|video| video.frame_rate),
            one_clock: true,
            active: None,
            way: FlowPath {
                path: names(&plan.path),
                back: names(&plan.back),
                access: own.filter_map(|link| link.rate).min(),
            },
        }
    }
}

impl LinkPlan {
    /// Link configuration.
    ///
    /// # Errors
    /// As [`topology::network`](crate::topology::network).
    pub fn config(&self) -> Result<LinkConfig, StepsError> {
        let standard = LinkConfig::default();
        Ok(LinkConfig {
            capacity: self.capacity()?,
            queue: self.queue.unwrap_or(standard.queue),
            outages: self.outages.clone(),
            loss: self.loss.clone(),
            delay: self.delay,
            delay_variation: self.delay_variation.clone(),
            jitter: self.jitter,
            lower_effort: self.lower_effort,
        })
    }

    /// Capacity of the link.
    pub(super) fn capacity(&self) -> Result<Capacity, StepsError> {
        Ok(match &self.rate {
            None => Capacity::Unlimited,
            Some(RatePlan::Fixed(rate)) => Capacity::Fixed(*rate),
            Some(RatePlan::Steps(steps)) => {
                let step = |(at, rate): &(Duration, Rate)| (Time::ZERO + *at, *rate);
                let steps: Vec<_> = steps.iter().map(step).collect();
                Capacity::Steps(Steps::new(&steps)?)
            }
            Some(RatePlan::Trace(trace)) => Capacity::Trace(trace.trace.clone()),
        })
    }

    fn hop(&self) -> Hop {
        Hop {
            service: match &self.rate {
                None => Service::Unlimited,
                Some(RatePlan::Fixed(rate)) => Service::Steps(vec![(Time::ZERO, *rate)]),
                Some(RatePlan::Steps(steps)) => {
                    let step = |(at, rate): &(Duration, Rate)| (Time::ZERO + *at, *rate);
                    Service::Steps(steps.iter().map(step).collect())
                }
                Some(RatePlan::Trace(trace)) => Service::Opportunities(trace.millis.clone()),
            },
            delay: self.delay,
            variation: self
                .delay_variation
                .as_ref()
                .map_or(Vec::new(), |steps| steps.as_slice().to_vec()),
            outages: self.dark(),
            queue: self.queue.as_ref().and_then(byte_limit),
        }
    }

    /// Periods in which no packet passes: outages, and times at which all packets are lost.
    fn dark(&self) -> Vec<(Time, Time)> {
        let outages = self.outages.iter().map(|dark| (dark.from, dark.to));
        let mut dark: Vec<(Time, Time)> = outages.collect();
        if let LossConfig::Steps(steps) = &self.loss {
            let steps = steps.as_slice();
            let ends = steps.iter().skip(1).map(|(at, _)| *at);
            let spans = steps.iter().zip(ends.chain([Time::FAR]));
            dark.extend(spans.filter_map(|((at, p), end)| (*p >= 1.0).then_some((*at, end))));
            dark.sort_unstable();
        }
        let mut merged: Vec<(Time, Time)> = Vec::new();
        for (from, to) in dark {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        merged
    }

    /// Manifest entry. A trace, or steps at shorter intervals, are summarised by the mean rate over
    /// half-seconds.
    fn info(&self, duration: Duration) -> LinkInfo {
        let step = |from: Duration, rate: Option<Rate>| CapacityStep {
            from: Time::ZERO + from,
            rate,
        };
        let halves = duration.as_nanos().div_ceil(WINDOW.as_nanos());
        let capacity = match &self.rate {
            None => vec![step(Duration::ZERO, None)],
            Some(RatePlan::Fixed(rate)) => vec![step(Duration::ZERO, Some(*rate))],
            Some(RatePlan::Steps(steps)) if steps.len() as u128 <= halves => {
                let steps = steps.iter().map(|(at, rate)| step(*at, Some(*rate)));
                steps.collect()
            }
            Some(RatePlan::Steps(_) | RatePlan::Trace(_)) => {
                let capacity = self.capacity().unwrap_or(Capacity::Unlimited);
                let mean = |half: u32| {
                    let from = WINDOW * half;
                    let end = Time::ZERO + from + WINDOW;
                    let bytes = capacity.offered(Time::ZERO + from, end);
                    step(from, bytes.map(|bytes| bytes / WINDOW))
                };
                // At most 172,800 entries, because a run lasts at most a day.
                (0..halves as u32).map(mean).collect()
            }
        };
        let outage = |outage: &tidegate_core::link::Outage| Span {
            from: outage.from,
            to: outage.to,
        };
        LinkInfo {
            name: self.name.clone(),
            capacity,
            queue: self
                .queue
                .as_ref()
                .map(topology_text::queue)
                .unwrap_or_default(),
            delay: self.delay,
            loss: self.loss.mean(),
            outages: self.outages.iter().map(outage).collect(),
        }
    }
}

/// Size of a queue, if it is configured in bytes.
pub(super) fn byte_limit(queue: &QueueConfig) -> Option<Bytes> {
    match queue {
        QueueConfig::DropTail(DropTailConfig { limit, .. })
        | QueueConfig::CoDel(CoDelConfig { limit, .. })
        | QueueConfig::DualPi2(DualPi2Config { limit, .. })
        | QueueConfig::Priority(PriorityConfig { limit }) => match limit {
            Limit::Bytes(bytes) => Some(*bytes),
            Limit::Packets(_) => None,
        },
        QueueConfig::FqCoDel(config) => Some(config.memory),
        QueueConfig::Red(_) => None,
    }
}

impl MediaPlan {
    /// Size of the largest packet to the receiver, including all headers.
    pub(super) fn largest_packet(&self) -> Bytes {
        match self {
            Self::Bulk(bulk) => bulk.packet,
            Self::Tcp(tcp) => tcp.packet_size(),
            Self::Cp(cp) => cp.packet,
            Self::Udp(config) => config.packet,
            Self::Web(config) => Bytes(config.tcp.packet_size.into()),
            Self::Video(video) => match &video.stream {
                Some(stream) => stream.tcp.packet_size(),
                None => video.packet,
            },
        }
    }

    /// Minimum size of a packet to the sender; zero if there are none.
    pub(super) fn least_answer(&self) -> Bytes {
        let of_sink = |sink: &SinkConfig| Bytes(sink.ack_size.into());
        match self {
            Self::Bulk(_) => OVERHEAD,
            Self::Tcp(tcp) => of_sink(&tcp.sink),
            Self::Cp(cp) => match cp.answers {
                Answers::Data => OVERHEAD,
                Answers::Each(size) => size,
            },
            Self::Udp(_) => Bytes::ZERO,
            Self::Web(config) => of_sink(&config.sink),
            Self::Video(video) => match &video.stream {
                Some(stream) => of_sink(&stream.tcp.sink),
                None => OVERHEAD,
            },
        }
    }
}

impl FlowPlan {
    /// Name of the rate controller.
    pub fn control_name(&self) -> &'static str {
        match (&self.control, &self.media) {
            (Some(control), _) => control.name(),
            (None, MediaPlan::Tcp(tcp)) => tcp.name(),
            (None, MediaPlan::Cp(_)) => "cp",
            (None, MediaPlan::Udp(_)) => "udp",
            (None, MediaPlan::Web(_)) => "web",
            (None, MediaPlan::Video(video)) => match &video.stream {
                Some(stream) => stream.mode.name(),
                None => "none",
            },
            (None, MediaPlan::Bulk(_)) => "none",
        }
    }
}

impl TcpPlan {
    /// Size of a full segment, including all headers.
    pub fn packet_size(&self) -> Bytes {
        match &self.sender {
            TcpSender::Classic(config) => Bytes(config.packet_size.into()),
            TcpSender::Modern(config) => Bytes(config.packet_size.into()),
        }
    }

    /// Whether the sender responds to ECN marks in proportion, so that it sends ECT(1) (RFC 9331).
    pub fn is_scalable(&self) -> bool {
        match &self.sender {
            TcpSender::Classic(_) => false,
            TcpSender::Modern(config) => {
                matches!(config.congestion, CongestionConfig::Prague(_))
            }
        }
    }

    /// Payload of a full segment.
    pub fn payload(&self) -> Bytes {
        let header = match &self.sender {
            TcpSender::Classic(config) => config.header_size,
            TcpSender::Modern(config) => config.header_size,
        };
        self.packet_size().saturating_sub(Bytes(header.into()))
    }

    /// Name of the TCP variant.
    pub fn name(&self) -> &'static str {
        match &self.sender {
            TcpSender::Classic(config) => match config.flavour {
                Flavour::NewReno => "newreno",
                Flavour::Reno => "reno",
                Flavour::Sack => "sack",
            },
            TcpSender::Modern(config) => match config.congestion {
                CongestionConfig::Bbr(_) => "bbr",
                CongestionConfig::Cubic(_) => "cubic",
                CongestionConfig::Prague(_) => "prague",
                CongestionConfig::Reno(_) => "linux-reno",
            },
        }
    }
}

/// Size of a full RTP media packet, including all headers.
pub(crate) const MEDIA_PACKET: Bytes = Bytes(1_200);

/// Interval over which the rate of a trace is averaged for display.
const WINDOW: Duration = Duration::from_millis(500);
