//! The scenario language: links, flows, media and expectations.
//!
//! A scenario is a TOML file with the same meaning in the simulator and in the lab;
//! `docs/scenarios.md` is its reference. Reading it gives either a [`Scenario`], in which every
//! reference is resolved and every value is in range, or a [`ScenarioError`] that names the line
//! and the fix.

mod error;
mod network;
mod packets;
mod read;
pub mod recorded_path;
mod sweep;
mod table;
mod topology_text;
mod trace_file;

use core::time::Duration;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use tidegate_core::control::{Ecn, Prior};
use tidegate_core::controller::{ControllerConfig, Controllers};
use tidegate_core::link::{
    JitterConfig, LinkForm, LossConfig, LowerEffortPolicy, Outage, QueueConfig, Steps,
};
use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_record::Expectation;

use crate::coordination::{AggregationPlan, CpPlan};
use crate::interactive::StreamPlan;
use crate::model_flow::Workload;
use crate::tcp::{SinkConfig, SourceKind, classic, modern};
use crate::traffic::video::FrameTrace;
use crate::traffic::{Schedule, udp, web};

pub use error::{Fault, ScenarioError};
pub(crate) use network::MEDIA_PACKET;
pub use packets::PacketEstimate;
pub use sweep::{Axis, Point, Sweep};
pub use trace_file::CapacityTrace;

/// A scenario that can be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Short name, used for run folders.
    pub name: String,
    /// Description in one line.
    pub about: String,
    /// Duration of the run.
    pub duration: Duration,
    /// Random seed.
    pub seed: Seed,
    /// Interval over which totals are counted, from the start of the run.
    pub measure: (Duration, Duration),
    /// At least one. Flows refer to links by their index in this list.
    pub links: Vec<LinkPlan>,
    /// At least one. Baselines refer to flows by their index in this list.
    pub flows: Vec<FlowPlan>,
    /// Pairs of aggregation points. Cluster-to-cluster flows refer to them by their index in this
    /// list.
    pub aggregations: Vec<AggregationPlan>,
    /// Additional runs for comparison.
    pub baselines: Vec<BaselinePlan>,
    /// Conditions on the results, checked after the run. All names in them exist.
    pub expect: Vec<Expectation>,
    /// Implementation of the links in the simulator. No key of the file sets it, and results do not
    /// depend on it.
    pub link_form: LinkForm,
}

impl Scenario {
    /// Reads the file at `path`. Trace files are opened relative to its folder.
    ///
    /// # Errors
    /// [`ScenarioError`] with the first error of the file, its line and the fix.
    pub fn load(path: &Path, controllers: &Controllers) -> Result<Self, ScenarioError> {
        let (file, text) = read_file(path)?;
        Self::parse_with(&file, &text, &|name| beside(path, name), controllers)
    }

    /// Parses `text`; `file` is its name in errors. `open` returns the text of a trace file, or the
    /// reason why it cannot be read. The controllers are those of [`crate::controllers`].
    ///
    /// # Errors
    /// [`ScenarioError`] with the first error of the text, its line and the fix.
    pub fn parse(
        file: &str,
        text: &str,
        open: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, ScenarioError> {
        Self::parse_with(file, text, open, &crate::controllers())
    }

    /// [`parse`](Self::parse) with these controllers.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_with(
        file: &str,
        text: &str,
        open: &dyn Fn(&str) -> Result<String, String>,
        controllers: &Controllers,
    ) -> Result<Self, ScenarioError> {
        read::scenario(file, text, read::Sources { open, controllers })
    }

    /// Interval over which totals are counted.
    pub fn window(&self) -> (Time, Time) {
        let (from, to) = self.measure;
        (Time::ZERO + from, Time::ZERO + to)
    }

    /// The flow with this name.
    pub fn flow(&self, name: &str) -> Option<&FlowPlan> {
        self.flows.iter().find(|flow| flow.name == name)
    }

    /// Round-trip propagation delay of `flow` over the shared links.
    pub fn round_trip(&self, flow: &FlowPlan) -> Duration {
        let hops = flow.path.iter().chain(&flow.back);
        hops.filter_map(|link| self.links.get(*link))
            .map(|link| link.delay)
            .sum()
    }
}

/// One direction of a link: a queue, a server, a delay, and loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkPlan {
    /// Unique among links, flows and baselines.
    pub name: String,
    /// Capacity, including all headers; absent if unlimited.
    pub rate: Option<RatePlan>,
    /// One-way propagation delay; its minimum if it varies.
    pub delay: Duration,
    /// Delay over time, added to the propagation delay.
    pub delay_variation: Option<Steps<Duration>>,
    /// Random loss.
    pub loss: LossConfig,
    /// Random delay per packet, in addition to the propagation delay.
    pub jitter: Option<JitterConfig>,
    /// Present if and only if the link has a rate.
    pub queue: Option<QueueConfig>,
    /// In order of time, without overlap, within the run.
    pub outages: Vec<Outage>,
    /// Treatment of packets of lower effort.
    pub lower_effort: LowerEffortPolicy,
}

/// Capacity of a link.
#[derive(Clone, Debug, PartialEq)]
pub enum RatePlan {
    /// A constant rate above zero.
    Fixed(Rate),
    /// Rates, each with the time from which it applies. The first time is zero, and times increase.
    /// A rate may be zero.
    Steps(Vec<(Duration, Rate)>),
    /// Recorded delivery times, repeated until the end of the run.
    Trace(CapacityTrace),
}

/// A flow, or a group of identical flows.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPlan {
    /// Unique among links, flows and baselines. With a count above one it names the group, and the
    /// flows are `name-1`, `name-2` and so on.
    pub name: String,
    /// Number of flows in the group; at least one.
    pub count: u32,
    /// Links to the receiver, in order; at least one, without repetition.
    pub path: Vec<usize>,
    /// Links back to the sender; at least one, without repetition.
    pub back: Vec<usize>,
    /// Access link of each flow: before the path, and after the return path.
    pub access: Option<AccessPlan>,
    /// Exit link of each flow: after the path, and before the return path.
    pub exit: Option<AccessPlan>,
    /// Rate controller; absent if the kind of the flow includes one.
    pub control: Option<ControllerConfig>,
    /// What the controller knows about the path at the start.
    pub prior: Option<Prior>,
    /// Payload of the flow.
    pub media: MediaPlan,
    /// ECN codepoint of its packets. Queues may mark ECT(0) and ECT(1) packets instead of dropping
    /// them.
    pub ecn: Ecn,
    /// DSCP of the packets of both directions.
    pub dscp: u8,
    /// Whether the delay bound of a video keeps its small margin while competing traffic shares the
    /// queue.
    pub yielding: bool,
    /// Time without an answer after which a video over RTP ends, from the pause of the circuit breaker
    /// on.
    pub patience: Duration,
    /// Whether a video sends parity packets while a retransmission cannot meet its delay bound.
    pub parity: bool,
    /// Start time.
    pub start: Duration,
    /// Each flow starts later by a uniform random time up to this.
    pub start_spread: Duration,
    /// Each flow of a group starts later than the one before by this.
    pub start_step: Duration,
    /// Stop time; after `start`, at most the end of the run.
    pub stop: Duration,
}

impl FlowPlan {
    /// Name of the `number`th instance of the flow, counted from one.
    pub fn name_of(&self, number: u32) -> String {
        match self.count {
            1 => self.name.clone(),
            _ => format!("{}-{number}", self.name),
        }
    }

    /// Rate of a flow with a controller that has a constant rate.
    pub fn fixed_rate(&self) -> Option<Rate> {
        self.control.as_ref()?.properties().fixed_rate
    }
}

/// A link between a host and the shared links, with the same properties in both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessPlan {
    /// Capacity; absent if unlimited.
    pub rate: Option<Rate>,
    /// One-way propagation delay.
    pub delay: Duration,
    /// The delay of each flow is longer by a uniform random time up to this.
    pub delay_spread: Duration,
    /// Queue in front of the link.
    pub queue: QueueConfig,
}

/// Payload of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum MediaPlan {
    /// A flow of a cluster-to-cluster application.
    Cp(CpPlan),
    /// As many packets as the controller allows.
    Bulk(BulkPlan),
    /// A TCP transfer.
    Tcp(TcpPlan),
    /// Packets without rate control.
    Udp(udp::SourceConfig),
    /// Live video.
    Video(VideoPlan),
    /// Web browsing, with one browser per flow.
    Web(Arc<web::Config>),
}

impl MediaPlan {
    /// Whether the flow has a fixed amount of data to send.
    pub fn is_finite(&self) -> bool {
        match self {
            Self::Bulk(bulk) => matches!(bulk.workload, Workload::Packets(_)),
            Self::Tcp(tcp) => matches!(tcp.amount, SourceKind::Packets(_) | SourceKind::Bytes(_)),
            Self::Cp(_) | Self::Udp(_) | Self::Video(_) | Self::Web(_) => false,
        }
    }

    /// The TCP configuration, if the flow uses TCP and the scenario selects the variant.
    pub fn tcp(&self) -> Option<&TcpPlan> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Video(video) => video.stream.as_deref().map(|stream| &stream.tcp),
            Self::Bulk(_) | Self::Cp(_) | Self::Udp(_) | Self::Web(_) => None,
        }
    }

    /// The video configuration, if the flow carries video.
    pub fn video(&self) -> Option<&VideoPlan> {
        match self {
            Self::Video(video) => Some(video),
            Self::Bulk(_) | Self::Cp(_) | Self::Tcp(_) | Self::Udp(_) | Self::Web(_) => None,
        }
    }

    /// The configuration of a flow of a cluster-to-cluster application.
    pub fn cp(&self) -> Option<&CpPlan> {
        match self {
            Self::Cp(cp) => Some(cp),
            _ => None,
        }
    }
}

/// Packets paced by a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct BulkPlan {
    /// Packet size, including headers.
    pub packet: Bytes,
    /// Data to send.
    pub workload: Workload,
    /// Maximum of the random processing delay of each packet.
    pub overhead: Duration,
}

/// Configuration of a TCP transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpPlan {
    /// Sender. Its use of ECN is configured by the flow.
    pub sender: TcpSender,
    /// Receiver.
    pub sink: SinkConfig,
    /// Amount of data to send.
    pub amount: SourceKind,
    /// Application that writes the data into a socket; `None`: all data is available from the
    /// start.
    pub socket: Option<SocketPlan>,
}

/// Application that writes through a socket buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct SocketPlan {
    /// Write rate, including the headers of full segments; `None`: as fast as the buffer allows. If
    /// the buffer is full, up to 16 segments wait in the application, and further data is not
    /// generated.
    pub demand: Option<Schedule>,
    /// Maximum payload that is written and not yet acknowledged; at least one segment.
    pub buffer: Bytes,
}

/// Model of a TCP sender with its configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum TcpSender {
    /// The models of ns-2.
    Classic(classic::Config),
    /// The models of current Linux.
    Modern(Box<modern::Config>),
}

/// Live video.
#[derive(Clone, Debug, PartialEq)]
pub struct VideoPlan {
    /// In pixels; even.
    pub width: u32,
    /// In pixels; even.
    pub height: u32,
    /// Frames per second.
    pub frame_rate: FrameRate,
    /// Source of the frames.
    pub encoder: EncoderKind,
    /// Minimum rate of the encoder; above zero.
    pub floor: Rate,
    /// Maximum rate of the encoder; at least `floor`.
    pub ceiling: Rate,
    /// Maximum time from capture until the frame can be decoded completely; above zero.
    pub delay_bound: Duration,
    /// Size of a full packet over RTP, including headers.
    pub packet: Bytes,
    /// Buffer between the encoder and the network, over RTP.
    pub buffer: SendBuffer,
    /// Start and end of each pause of the camera, from the start of the run: in order, without
    /// overlap, within the life of the flow.
    pub pauses: Vec<(Duration, Duration)>,
    /// Transport over TCP; `None`: RTP.
    pub stream: Option<Box<StreamPlan>>,
}

/// Source of the frames of a video.
#[derive(Clone, Debug, PartialEq)]
pub enum EncoderKind {
    /// A model of frame sizes and quality, without pixels; fast.
    Model,
    /// Frame sizes of a recorded encode, interpolated between its rates.
    Trace(Arc<FrameTrace>),
    /// A real encoder that encodes a generated scene.
    Real(Codec),
}

impl EncoderKind {
    /// The codec of the packets. Models generate frames that look like H.264.
    pub const fn codec(&self) -> Codec {
        match self {
            Self::Model | Self::Trace(_) => Codec::H264,
            Self::Real(codec) => *codec,
        }
    }
}

/// Encoded frames between an encoder and the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendBuffer {
    /// Frames wait as long as the delay bound permits.
    #[default]
    Bound,
    /// A frame is dropped if more than this waits when it is encoded.
    Limit(Bytes),
    /// Frames do not wait: each leaves within 40 % of a frame interval.
    None,
}

/// The video of a flow, sent in another way in a separate run with the same path and random draws.
#[derive(Clone, Debug, PartialEq)]
pub struct BaselinePlan {
    /// Unique among links, flows and baselines.
    pub name: String,
    /// The flow that it replaces, which carries video.
    pub of: usize,
    /// What differs from the flow.
    pub sender: BaselineSender,
}

/// Sender of a baseline.
#[derive(Clone, Debug, PartialEq)]
pub enum BaselineSender {
    /// A fixed media rate, above zero, without a delay bound.
    Fixed(Rate),
    /// The mean media rate that the flow used, likewise.
    Mean,
    /// Another controller.
    Control(ControllerConfig),
    /// TCP.
    Transport(Box<StreamPlan>),
}

impl Scenario {
    /// The flow that a baseline replaces, with the controller or transport of the baseline. It keeps
    /// the name of the flow, and the controller if the baseline has a fixed rate.
    pub fn baseline_flow(&self, plan: &BaselinePlan) -> FlowPlan {
        let mut flow = self.flows[plan.of].clone();
        match (&plan.sender, &mut flow.media) {
            (BaselineSender::Control(control), _) => flow.control = Some(control.clone()),
            (BaselineSender::Transport(stream), MediaPlan::Video(video)) => {
                video.stream = Some(stream.clone());
                flow.control = None;
                // As for a flow over TCP without `ecn`; other kinds respond to marks as RTP does.
                if stream.tcp.is_scalable() {
                    flow.ecn = Ecn::Ect1;
                }
            }
            _ => {}
        }
        flow
    }

    /// All flows, and the flows of the baselines under the names of the baselines.
    pub fn flows_and_baselines(&self) -> Vec<FlowPlan> {
        let baselines = self.baselines.iter().map(|plan| FlowPlan {
            name: plan.name.clone(),
            ..self.baseline_flow(plan)
        });
        self.flows.iter().cloned().chain(baselines).collect()
    }
}

/// The file's name in errors, and its text.
fn read_file(path: &Path) -> Result<(String, String), ScenarioError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| ScenarioError {
        file: file.clone(),
        line: None,
        table: String::new(),
        key: String::new(),
        fault: Box::new(Fault::Unreadable {
            file: "the file".to_owned(),
            why: match error.kind() {
                ErrorKind::InvalidData => "the file is not valid UTF-8".to_owned(),
                _ => error.to_string(),
            },
        }),
    })?;
    Ok((file, text))
}

/// The text of the file `name` in the folder of the scenario at `path`.
fn beside(path: &Path, name: &str) -> Result<String, String> {
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
