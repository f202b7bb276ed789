//! From a run to its numbers.

use serde::{Deserialize, Serialize};

/// The numbers of a run: `summary.json`. What does not apply is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name of the scenario.
    pub scenario: String,
    /// Of the run.
    pub seed: Option<u64>,
    /// One entry per flow, in the order of the manifest.
    pub flows: Vec<FlowSummary>,
    /// One entry per link, in the order of the manifest.
    pub links: Vec<LinkSummary>,
    /// What had to hold, and whether it does.
    pub expect: Vec<Verdict>,
}

/// The numbers of one flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Its name.
    pub name: String,
    /// Its rate control.
    pub control: String,
    /// What it put on the wire with all headers, in b/s, from its first packet to the end of
    /// the run.
    pub rate_bps: Option<f64>,
    /// Share of its packets that were lost, of those whose fate is known; dummies left aside.
    pub loss: Option<f64>,
    /// From capture to decodable, over the frames that became so. Without a common clock: above
    /// the smallest.
    pub delay_ms: DelaySummary,
    /// One-way delay of packets above the smallest of the flow.
    pub queue_ms: QueueSummary,
    /// What became of the frames.
    pub frames: FrameSummary,
    /// Mean PSNR of Y of what was shown, in dB.
    pub psnr_y_db: Option<f64>,
    /// Mean SSIM of what was shown, in 0..=1.
    pub ssim: Option<f64>,
    /// How often the picture stood still for more than max(3 frame intervals, 150 ms).
    pub freezes: Option<u64>,
}

/// Delay of frames in ms; percentiles by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelaySummary {
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
}

/// Queueing delay of packets in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueSummary {
    /// Mean.
    pub mean: Option<f64>,
    /// 95th percentile, by nearest rank.
    pub p95: Option<f64>,
}

/// Numbers of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameSummary {
    /// Captured, also those that were never encoded.
    pub made: Option<u64>,
    /// Left the sender whole.
    pub sent: Option<u64>,
    /// Decodable within the bound.
    pub on_time: Option<u64>,
    /// Could have been on time, says the oracle.
    pub savable: Option<u64>,
    /// Decodable, but too late.
    pub late: Option<u64>,
    /// Given up by the sender, also those that were never encoded.
    pub dropped: Option<u64>,
}

/// The numbers of one link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Its name.
    pub name: String,
    /// What it delivered over what it could have, outages left aside, in 0..=1.
    pub utilisation: Option<f64>,
    /// Packets dropped.
    pub drops: Option<u64>,
    /// Packets marked.
    pub marks: Option<u64>,
    /// 95th percentile over the samples of the time that the queue takes to drain, in ms.
    pub queue_p95_ms: Option<f64>,
}

/// What became of an expectation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// As in the scenario.
    pub text: String,
    /// The left-hand side; null if the run does not tell.
    pub measured: Option<f64>,
    /// Whether it holds; it does not if the run does not tell.
    pub holds: bool,
}
