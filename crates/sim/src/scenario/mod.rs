//! The scenario language: links, flows, media and expectations.
//!
//! A scenario is a TOML file with the same meaning in the simulator and in the lab;
//! `docs/scenarios.md` is its reference. Reading it gives either a [`Scenario`], in which every
//! reference is resolved and every value is in range, or a [`ScenarioError`] that names the line
//! and the fix.

mod error;
mod network;
mod packets;
mod picture;
pub mod quantity;
mod read;
mod sweep;
mod table;
mod trace_file;

use core::time::Duration;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use tidegate_core::control::Ecn;
use tidegate_core::controller::ControllerConfig;
use tidegate_core::link::{JitterConfig, LossConfig, Outage, QueueConfig};
use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};

use crate::interactive::StreamPlan;
use crate::model_flow::Workload;
use crate::run::Expectation;
use crate::tcp::{SinkConfig, SourceKind, classic, modern};
use crate::traffic::video::FrameTrace;
use crate::traffic::{Schedule, udp, web};

pub use error::{Fault, ScenarioError};
pub(crate) use network::MEDIA_PACKET;
pub use packets::Logged;
pub use sweep::{Axis, Point, Sweep};
pub use trace_file::CapacityTrace;

/// A scenario that can be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Short, for run folders.
    pub name: String,
    /// One line for people.
    pub about: String,
    /// How long it runs.
    pub duration: Duration,
    /// Random seed.
    pub seed: Seed,
    /// Measured interval, from the start of the run.
    pub measure: (Duration, Duration),
    /// At least one. Flows refer to links by their place in this list.
    pub links: Vec<LinkPlan>,
    /// At least one. Baselines refer to flows by their place in this list.
    pub flows: Vec<FlowPlan>,
    /// Runs of their own to compare with.
    pub baselines: Vec<BaselinePlan>,
    /// What must hold in the end; all names in them exist.
    pub expect: Vec<Expectation>,
}

impl Scenario {
    /// Reads the file at `path`; trace files are looked up beside it.
    ///
    /// # Errors
    /// [`ScenarioError`] with the first fault of the file, its line and the mend.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let (file, text) = read_file(path)?;
        Self::parse(&file, &text, &|name| beside(path, name))
    }

    /// Reads `text`, which is called `file` in errors. `open` gives the text of a trace file, or
    /// the reason why it cannot be had.
    ///
    /// # Errors
    /// [`ScenarioError`] with the first fault of the text, its line and the mend.
    pub fn parse(
        file: &str,
        text: &str,
        open: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, ScenarioError> {
        read::scenario(file, text, open)
    }

    /// When totals are counted.
    pub fn window(&self) -> (Time, Time) {
        let (from, to) = self.measure;
        (Time::ZERO + from, Time::ZERO + to)
    }

    /// The flow called `name`.
    pub fn flow(&self, name: &str) -> Option<&FlowPlan> {
        self.flows.iter().find(|flow| flow.name == name)
    }

    /// The propagation delay of `flow` there and back.
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
    /// What it carries, with all headers; absent when it has no limit.
    pub rate: Option<RatePlan>,
    /// Propagation, one way.
    pub delay: Duration,
    /// How packets are lost at random.
    pub loss: LossConfig,
    /// Delay beyond propagation, which differs from packet to packet.
    pub jitter: Option<JitterConfig>,
    /// Present exactly when there is a rate.
    pub queue: Option<QueueConfig>,
    /// In order of time, without overlap, within the run.
    pub outages: Vec<Outage>,
}

/// What a link carries.
#[derive(Clone, Debug, PartialEq)]
pub enum RatePlan {
    /// The same all the time; above zero.
    Fixed(Rate),
    /// From these moments on. The first is at zero, the moments increase; a rate may be zero.
    Steps(Vec<(Duration, Rate)>),
    /// Recorded moments of delivery, repeated for ever.
    Trace(CapacityTrace),
}

/// One stream.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPlan {
    /// Unique among links, flows and baselines. With a count above one it names the class, and
    /// the flows are `name-1`, `name-2` and so on.
    pub name: String,
    /// How many flows these are; at least one.
    pub count: u32,
    /// Links to the receiver, in order; at least one, none twice.
    pub path: Vec<usize>,
    /// Links back to the sender; at least one, none twice.
    pub back: Vec<usize>,
    /// A link of each flow's own before the path, and one behind the way back.
    pub access: Option<AccessPlan>,
    /// A link of each flow's own behind the path, and one before the way back.
    pub exit: Option<AccessPlan>,
    /// What decides about its rate; none where the flow's kind does.
    pub control: Option<ControllerConfig>,
    /// What it carries.
    pub media: MediaPlan,
    /// The codepoint of its packets, which may be marked rather than dropped if it is ECT(0) or ECT(1).
    pub ecn: Ecn,
    /// Whether the delay bound of a video keeps its small margin beside competing traffic in the
    /// queue.
    pub yielding: bool,
    /// When it starts.
    pub start: Duration,
    /// Each flow starts up to so much later, uniformly.
    pub start_spread: Duration,
    /// When it stops, after `start` and not after the end of the run.
    pub stop: Duration,
}

/// A link between one host and the shared links, the same in both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessPlan {
    /// What it carries; absent when it has no limit.
    pub rate: Option<Rate>,
    /// Propagation, one way.
    pub delay: Duration,
    /// Each flow's is up to so much longer, uniformly.
    pub delay_spread: Duration,
    /// What may wait.
    pub queue: QueueConfig,
}

/// What a flow carries.
#[derive(Clone, Debug, PartialEq)]
pub enum MediaPlan {
    /// As many packets as the controller allows.
    Bulk(BulkPlan),
    /// A model of TCP.
    Tcp(TcpPlan),
    /// Packets without rate control.
    Udp(udp::SourceConfig),
    /// Live video.
    Video(VideoPlan),
    /// Browsers, one for each flow, and what they look at.
    Web(Arc<web::Config>),
}

impl MediaPlan {
    /// Whether there is so much to send and no more.
    pub fn is_finite(&self) -> bool {
        match self {
            Self::Bulk(bulk) => matches!(bulk.workload, Workload::Packets(_)),
            Self::Tcp(tcp) => matches!(tcp.amount, SourceKind::Packets(_) | SourceKind::Bytes(_)),
            Self::Udp(_) | Self::Video(_) | Self::Web(_) => false,
        }
    }

    /// The TCP that it goes over, if that is one that a scenario chooses.
    pub fn tcp(&self) -> Option<&TcpPlan> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Video(video) => video.stream.as_deref().map(|stream| &stream.tcp),
            Self::Bulk(_) | Self::Udp(_) | Self::Web(_) => None,
        }
    }

    /// The video, if it is one.
    pub fn video(&self) -> Option<&VideoPlan> {
        match self {
            Self::Video(video) => Some(video),
            Self::Bulk(_) | Self::Tcp(_) | Self::Udp(_) | Self::Web(_) => None,
        }
    }
}

/// Packets paced by a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct BulkPlan {
    /// Of one packet, headers included.
    pub packet: Bytes,
    /// What there is to send.
    pub workload: Workload,
    /// Each packet is held back by up to so much, at random.
    pub overhead: Duration,
}

/// A model of TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpPlan {
    /// How the sender is set; whether it uses ECN is told by the flow.
    pub sender: TcpSender,
    /// How the receiver is set.
    pub sink: SinkConfig,
    /// How much there is to send.
    pub amount: SourceKind,
    /// An application that writes it into a socket; `None`: the sender has it all from the start.
    pub socket: Option<SocketPlan>,
}

/// What a TCP model sends as an application writes it, through a socket buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct SocketPlan {
    /// How fast it writes, with the headers of full segments; `None`: as fast as there is room.
    /// What finds no room waits in the application up to 16 segments, and is not made beyond.
    pub demand: Option<Schedule>,
    /// Payload that was written and is not acknowledged, at most; holds a segment at least.
    pub buffer: Bytes,
}

/// Which model of a TCP sender, and how it is set.
#[derive(Clone, Debug, PartialEq)]
pub enum TcpSender {
    /// As in ns-2.
    Classic(classic::Config),
    /// As in Linux today.
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
    /// What makes the bits.
    pub encoder: EncoderKind,
    /// The lowest rate that the encoder can be asked for; above zero.
    pub floor: Rate,
    /// The highest; at least `floor`.
    pub ceiling: Rate,
    /// From capture to the moment when a frame can be decoded whole; above zero.
    pub delay_bound: Duration,
    /// From when until when the camera is off, from the start of the run: in order, without
    /// overlap, within the life of the flow.
    pub pauses: Vec<(Duration, Duration)>,
    /// How it is sent, if that is over TCP rather than RTP.
    pub stream: Option<Box<StreamPlan>>,
}

/// What makes the bits of a video.
#[derive(Clone, Debug, PartialEq)]
pub enum EncoderKind {
    /// A model of frame sizes and quality, without pictures; fast.
    Model,
    /// The sizes of a recorded encode, between its rates.
    Trace(Arc<FrameTrace>),
    /// A real encoder on a generated scene.
    Real(Codec),
}

impl EncoderKind {
    /// What goes over the network. Models make frames that look like H.264.
    pub const fn codec(&self) -> Codec {
        match self {
            Self::Model | Self::Trace(_) => Codec::H264,
            Self::Real(codec) => *codec,
        }
    }
}

/// The same stream with another rate control, in a run of its own with the same path and
/// randomness.
#[derive(Clone, Debug, PartialEq)]
pub struct BaselinePlan {
    /// Unique among links, flows and baselines.
    pub name: String,
    /// The flow that it stands in for, which carries video.
    pub of: usize,
    /// At which rate it sends.
    pub rate: BaselineRate,
}

/// The rate of a baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineRate {
    /// Always this media rate, above zero.
    Fixed(Rate),
    /// Always the mean media rate that the flow used.
    Mean,
}

/// The file's name in errors, and its text.
fn read_file(path: &Path) -> Result<(String, String), ScenarioError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| ScenarioError {
        file: file.clone(),
        line: None,
        place: String::new(),
        key: String::new(),
        fault: Box::new(Fault::Unreadable {
            file: "the file".to_owned(),
            why: match error.kind() {
                ErrorKind::InvalidData => "it is no text (UTF-8)".to_owned(),
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
