//! `manifest.json`: description of a run.

pub(crate) mod moments;

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_core::media::FrameRate;
use tidegate_core::units::{Bytes, Rate, Time};

/// Description of a run, written before its first event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the folder's layout: [`FORMAT`].
    pub format: u32,
    /// Name and version of the writer: [`TOOL`].
    pub tool: String,
    /// Environment of the run.
    pub world: World,
    /// Name of the scenario, or the name that the user gave to the run.
    pub scenario: String,
    /// Content of the scenario file.
    pub scenario_text: Option<String>,
    /// Random seed; `None` in a live run.
    pub seed: Option<u64>,
    /// Start of the run, RFC 3339. `None` in the simulator, whose output must not depend on the
    /// date.
    pub started: Option<String>,
    /// Facts about the machine (kernel, processors, ..). `None` in the simulator.
    pub host: Option<BTreeMap<String, String>>,
    /// Planned duration of the run.
    #[serde(rename = "duration_s", with = "seconds")]
    pub duration: Duration,
    /// Measured interval; `None`: the whole run.
    #[serde(rename = "measure_s", default)]
    pub measure: Option<Span>,
    /// Warnings: what restricts the validity of the results. Empty if nothing is wrong.
    pub notes: Vec<String>,
    /// Timeliness of the emulator, one entry per emulated run; empty outside of the lab.
    #[serde(default)]
    pub timing: Vec<Timing>,
    /// The flows, in the order in which tables and legends show them.
    pub flows: Vec<FlowInfo>,
    /// The links.
    pub links: Vec<LinkInfo>,
}

impl Manifest {
    /// Creates a manifest of this version without flows, links or notes.
    pub fn new(world: World, scenario: &str, duration: Duration) -> Self {
        Self {
            format: FORMAT,
            tool: TOOL.to_owned(),
            world,
            scenario: scenario.to_owned(),
            scenario_text: None,
            seed: None,
            started: None,
            host: None,
            duration,
            measure: None,
            notes: Vec::new(),
            timing: Vec::new(),
            flows: Vec::new(),
            links: Vec::new(),
        }
    }

    /// Whether `at` lies in the measured interval.
    pub fn measures(&self, at: Time) -> bool {
        self.measure.is_none_or(|span| span.has(at))
    }

    /// Measured interval: at most the whole run as planned.
    pub fn measured(&self) -> Span {
        let whole = Span {
            from: Time::ZERO,
            to: Time::ZERO + self.duration,
        };
        self.measure.unwrap_or(whole)
    }

    /// Whether emulator and endpoints met their deadlines in all runs; `None` if no run was
    /// emulated.
    pub fn kept_up(&self) -> Option<bool> {
        let mut takes = self.timing.iter();
        (!self.timing.is_empty()).then(|| takes.all(Timing::all_kept_up))
    }

    /// Timing of the runs in which the emulator or an endpoint missed its deadlines, then the notes.
    pub fn warnings(&self) -> Vec<String> {
        let late = self.timing.iter().filter(|timing| !timing.all_kept_up());
        let late = late.map(Timing::to_string);
        late.chain(self.notes.iter().cloned()).collect()
    }
}

/// Timeliness of the emulator and of the endpoints in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// First flow of the run.
    pub run: String,
    /// Packets that the emulator delivered to all hosts.
    pub packets: u64,
    /// Median delay between the due time of a packet and its write.
    #[serde(rename = "p50_ms", with = "millis")]
    pub p50: Duration,
    /// 99th percentile of this delay.
    #[serde(rename = "p99_ms", with = "millis")]
    pub p99: Duration,
    /// Maximum of this delay.
    #[serde(rename = "worst_ms", with = "millis")]
    pub worst: Duration,
    /// 99th percentile of the delay between the last known empty state of the device and the read
    /// of a packet.
    #[serde(rename = "read_p99_ms", with = "millis")]
    pub read_p99: Duration,
    /// Packets that the kernel dropped before the emulator read them.
    pub lost_unread: u64,
    /// Whether the emulator had real-time priority.
    pub real_time: bool,
    /// Whether the emulator met its deadlines, so that the emulated network was the configured one.
    pub kept_up: bool,
    /// Processor time of the endpoints; `None` in folders of earlier versions.
    #[serde(default)]
    pub endpoints: Option<EndpointTiming>,
}

/// Whether the endpoints of a run got the processor time that they needed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointTiming {
    /// Part of the frames, in 0..=1, whose encoding took longer than the frame interval.
    pub slow_frames: f64,
    /// Largest part of its run time, in 0..=1, that the thread of an endpoint waited for a processor.
    pub waited: f64,
    /// Whether both are so small that the results are those of the network.
    pub kept_up: bool,
}

impl Timing {
    /// Whether the emulator and the endpoints met their deadlines.
    pub fn all_kept_up(&self) -> bool {
        self.kept_up && self.endpoints.is_none_or(|endpoints| endpoints.kept_up)
    }
}

impl fmt::Display for Timing {
    /// For a user, with a warning if the emulator did not meet its deadlines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        let [p50, p99, worst, read] = [self.p50, self.p99, self.worst, self.read_p99].map(ms);
        let (flow, packets) = (&self.run, self.packets);
        write!(
            f,
            "emulator, run of {flow}: {packets} packets, written p50 {p50:.3} ms, p99 {p99:.3} ms, \
             worst {worst:.2} ms after their time"
        )?;
        if !self.real_time {
            f.write_str("; without real-time priority")?;
        }
        if !self.kept_up {
            write!(
                f,
                "; IT COULD NOT KEEP UP (read p99 {read:.2} ms after the device was last seen \
                 empty, {} lost unread): this machine was too busy, the delays are unreliable",
                self.lost_unread
            )?;
        }
        if let Some(endpoints) = self.endpoints.filter(|endpoints| !endpoints.kept_up) {
            write!(
                f,
                "; THE ENDPOINTS COULD NOT KEEP UP ({:.1} % of the frames took longer to encode than \
                 the frame interval, a thread waited {:.1} % of the time for a processor): this \
                 machine was too busy, less was sent than the network permits",
                endpoints.slow_frames * 100.0,
                endpoints.waited * 100.0
            )?;
        }
        Ok(())
    }
}

/// Environment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// Network namespaces, the kernel's network stack and the link models of the simulator.
    Lab,
    /// Sockets on a real network.
    Live,
    /// The simulator.
    Sim,
}

/// One flow of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowInfo {
    /// Name of the flow and of its folder: letters, digits, `-` and `_` only.
    pub name: String,
    /// Class of flows that share one mean; the flow's own name if it is not part of a group.
    pub class: String,
    /// Rate control, as in scenario files.
    pub control: String,
    /// Whether the flow is a baseline for comparison.
    pub baseline: bool,
    /// Maximum delay of a frame from capture to decodable.
    #[serde(rename = "delay_bound_ms", with = "maybe_millis")]
    pub delay_bound: Option<Duration>,
    /// Minimum rate of the encoder.
    #[serde(rename = "floor_bps")]
    pub floor: Rate,
    /// `None` for a flow without video.
    pub frame_rate: Option<FrameRate>,
    /// Whether sender and receiver share a clock. Without a common clock only the variation of
    /// delays is meaningful.
    pub one_clock: bool,
    /// Interval in which the flow was scheduled to send; `None` without a schedule.
    #[serde(rename = "active_s", default)]
    pub active: Option<Span>,
    /// Links that the flow crosses.
    #[serde(flatten)]
    pub way: FlowPath,
}

impl FlowInfo {
    /// A flow of its own class, of which nothing else is known.
    pub fn new(name: String, control: &str) -> Self {
        Self {
            class: name.clone(),
            name,
            control: control.to_owned(),
            baseline: false,
            delay_bound: None,
            floor: Rate::ZERO,
            frame_rate: None,
            one_clock: false,
            active: None,
            way: FlowPath::default(),
        }
    }
}

/// Links that a flow crosses. Empty for live runs and for folders of earlier versions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowPath {
    /// Names of the links to the receiver, in order.
    pub path: Vec<String>,
    /// Names of the links back to the sender.
    pub back: Vec<String>,
    /// Rate of the flow's access links, before and behind the path; `None` without access links or
    /// without a limit.
    #[serde(rename = "access_bps")]
    pub access: Option<Rate>,
}

impl FlowInfo {
    /// Whether the flow carries video, each frame of which is recorded.
    pub fn has_video(&self) -> bool {
        self.frame_rate.is_some()
    }

    /// Whether its packets are recorded one by one. Packets of groups of flows are only counted,
    /// unless the flows carry video.
    pub fn logs_packets(&self) -> bool {
        self.has_video() || self.class == self.name
    }
}

/// One link of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkInfo {
    /// Name of the link.
    pub name: String,
    /// Capacity over time, in order of time.
    pub capacity: Vec<CapacityStep>,
    /// Text description of the queue, such as `droptail 30 kB`.
    pub queue: String,
    /// Propagation delay.
    #[serde(rename = "delay_ms", with = "millis")]
    pub delay: Duration,
    /// Mean random loss ratio, in 0..=1.
    pub loss: f64,
    /// Intervals in which the link carried nothing.
    pub outages: Vec<Span>,
}

impl LinkInfo {
    /// Capacity at `at`: zero in an outage, `None` without a limit.
    pub fn capacity_at(&self, at: Time) -> Option<Rate> {
        if self.outages.iter().any(|o| o.from <= at && at < o.to) {
            return Some(Rate::ZERO);
        }
        self.nominal_capacity_at(at)
    }

    /// Capacity at `at`, ignoring outages; `None` without a limit.
    pub fn nominal_capacity_at(&self, at: Time) -> Option<Rate> {
        // Binary search: a trace of a day has 172,800 steps.
        let begun = self.capacity.partition_point(|step| step.from <= at);
        let step = self.capacity.get(begun.saturating_sub(1));
        step.and_then(|step| step.rate)
    }

    /// Time that `queue` takes to drain from `at` on, at the capacities of the link and ignoring
    /// outages. `None` without a limit at `at`, or if the queue never drains.
    pub fn drain_time(&self, at: Time, queue: Bytes) -> Option<Duration> {
        self.nominal_capacity_at(at)?;
        let begun = self.capacity.partition_point(|step| step.from <= at);
        let mut steps = self.capacity[begun.saturating_sub(1)..].iter().peekable();
        let (mut left, mut from) = (queue, at);
        while let Some(step) = steps.next() {
            let to = steps.peek().map_or(Time::FAR, |next| next.from);
            let Some(rate) = step.rate else {
                return Some(from.since(at));
            };
            let carried = rate * to.since(from);
            if rate.as_bps() > 0 && (left <= carried || to == Time::FAR) {
                return Some(from.since(at) + left / rate);
            }
            left = left.saturating_sub(carried);
            from = to;
        }
        None
    }
}

/// Step of a capacity: `rate` from `from` on. In the file: `[seconds, bits per second or null]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(f64, Option<Rate>)", into = "(f64, Option<Rate>)")]
pub struct CapacityStep {
    /// Start of the step.
    pub from: Time,
    /// Capacity; `None` without a limit.
    pub rate: Option<Rate>,
}

/// Interval from `from` until just before `to`. In the file: `[seconds, seconds]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(f64, f64)", into = "(f64, f64)")]
pub struct Span {
    /// Start, included.
    pub from: Time,
    /// End, excluded.
    pub to: Time,
}

impl Span {
    /// Whether `at` lies in the interval.
    pub fn has(self, at: Time) -> bool {
        self.from <= at && at < self.to
    }

    /// Intersection of both; an empty interval if they are disjoint.
    pub fn overlap(self, other: Self) -> Self {
        let from = self.from.max(other.from);
        let to = self.to.min(other.to).max(from);
        Self { from, to }
    }

    /// Length of the interval.
    pub fn length(self) -> Duration {
        self.to.since(self.from)
    }
}

impl From<(f64, Option<Rate>)> for CapacityStep {
    fn from((from, rate): (f64, Option<Rate>)) -> Self {
        let from = time(from);
        Self { from, rate }
    }
}

impl From<CapacityStep> for (f64, Option<Rate>) {
    fn from(step: CapacityStep) -> Self {
        (step.from.as_secs_f64(), step.rate)
    }
}

impl From<(f64, f64)> for Span {
    fn from((from, to): (f64, f64)) -> Self {
        Self {
            from: time(from),
            to: time(to),
        }
    }
}

impl From<Span> for (f64, f64) {
    fn from(span: Span) -> Self {
        (span.from.as_secs_f64(), span.to.as_secs_f64())
    }
}

/// Converts seconds to the nearest nanosecond; exact for 104 days (2^53 ns).
pub(super) fn time(seconds: f64) -> Time {
    // `as` maps NaN and negative numbers to zero and saturates.
    Time::from_nanos((seconds * 1e9 + 0.5) as u64)
}

mod seconds {
    use core::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(d.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(d)?;
        Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom)
    }
}

mod millis {
    use core::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(d.as_nanos() as f64 / 1e6)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        let ms = f64::deserialize(d)?;
        Duration::try_from_secs_f64(ms / 1e3).map_err(serde::de::Error::custom)
    }
}

mod maybe_millis {
    use core::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes the field by reference")]
    pub(super) fn serialize<S: Serializer>(d: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        match d {
            Some(d) => super::millis::serialize(d, s),
            None => s.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D>(d: D) -> Result<Option<Duration>, D::Error>
    where
        D: Deserializer<'de>,
    {
        let Some(ms) = Option::<f64>::deserialize(d)? else {
            return Ok(None);
        };
        let duration = Duration::try_from_secs_f64(ms / 1e3).map_err(serde::de::Error::custom)?;
        Ok(Some(duration))
    }
}

/// Version of the layout of run folders that this crate writes and reads.
pub const FORMAT: u32 = 1;

/// Name and version of the writer.
pub const TOOL: &str = concat!("tidegate ", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_follows_steps_and_outages() {
        let link = LinkInfo {
            name: "l".to_owned(),
            capacity: vec![
                CapacityStep {
                    from: Time::ZERO,
                    rate: Some(Rate::kbps(2_000)),
                },
                CapacityStep {
                    from: Time::from_secs(10),
                    rate: None,
                },
            ],
            queue: String::new(),
            delay: Duration::ZERO,
            loss: 0.0,
            outages: vec![Span {
                from: Time::from_secs(4),
                to: Time::from_secs(5),
            }],
        };
        let at = |s| link.capacity_at(Time::from_secs(s));
        assert_eq!(at(3), Some(Rate::kbps(2_000)));
        assert_eq!(at(4), Some(Rate::ZERO));
        assert_eq!(at(5), Some(Rate::kbps(2_000)));
        assert_eq!(at(10), None);
        let json = serde_json::to_string(&link).expect("serializable");
        assert!(
            json.contains(r#""capacity":[[0.0,2000000],[10.0,null]]"#),
            "{json}"
        );
        assert_eq!(
            serde_json::from_str::<LinkInfo>(&json).expect("valid JSON"),
            link
        );
    }

    #[test]
    fn queue_drains_at_the_following_capacities() {
        let link = |steps: &[(u64, Option<u64>)]| LinkInfo {
            name: "l".to_owned(),
            capacity: steps
                .iter()
                .map(|&(second, kbps)| CapacityStep {
                    from: Time::from_secs(second),
                    rate: kbps.map(Rate::kbps),
                })
                .collect(),
            queue: String::new(),
            delay: Duration::ZERO,
            loss: 0.0,
            outages: Vec::new(),
        };
        let drain = |link: &LinkInfo, second, bytes| {
            let wait = link.drain_time(Time::from_secs(second), Bytes(bytes));
            wait.map(|wait| wait.as_millis())
        };
        // 100 kB/s, a fade to 1 kB/s, nothing, and 200 kB/s.
        let fades = link(&[
            (0, Some(800)),
            (10, Some(8)),
            (12, Some(0)),
            (13, Some(1_600)),
        ]);
        assert_eq!(drain(&fades, 0, 50_000), Some(500));
        assert_eq!(drain(&fades, 9, 100_500), Some(1_500));
        assert_eq!(drain(&fades, 9, 142_000), Some(4_200));
        assert_eq!(drain(&fades, 12, 20_000), Some(1_100));
        assert_eq!(drain(&fades, 99, 20_000), Some(100));
        let ends = link(&[(0, Some(800)), (10, None), (11, Some(0))]);
        assert_eq!(drain(&ends, 9, 500_000), Some(1_000));
        assert_eq!((drain(&ends, 10, 1), drain(&ends, 11, 1)), (None, None));
        assert_eq!(drain(&link(&[]), 0, 1), None);
    }

    #[test]
    fn the_path_of_a_flow_is_optional() {
        let old = r#"{"name":"call","class":"call","control":"tfrc","baseline":false,
            "delay_bound_ms":400.0,"floor_bps":150000,"frame_rate":null,"one_clock":true}"#;
        let mut flow: FlowInfo = serde_json::from_str(old).expect("valid JSON of an older version");
        assert_eq!(flow.way, FlowPath::default());
        flow.way = FlowPath {
            path: vec!["up".to_owned(), "far".to_owned()],
            back: vec!["down".to_owned()],
            access: Some(Rate::kbps(800)),
        };
        let json = serde_json::to_string(&flow).expect("serializable");
        let end = r#""path":["up","far"],"back":["down"],"access_bps":800000}"#;
        assert!(json.ends_with(end), "{json}");
        assert_eq!(
            serde_json::from_str::<FlowInfo>(&json).expect("valid JSON"),
            flow
        );
    }
}
