//! What a run leaves behind: one JSON file per scenario and peer.

use core::time::Duration;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// A scenario, played with one peer in place of our controllers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the scenario.
    pub scenario: String,
    /// The peer.
    pub control: String,
    /// Where it comes from, with the version.
    pub library: String,
    /// What it sent: `video`, no more than an encoder makes, or `greedy`.
    #[serde(default = "video")]
    pub source: String,
    /// Of the run.
    pub seed: u64,
    /// Of the run.
    pub duration_ms: u64,
    /// In the order of the scenario.
    pub flows: Vec<FlowOutcome>,
}

/// Results of before there was such a field are read as these.
fn video() -> String {
    "video".to_owned()
}

/// One flow of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowOutcome {
    /// As in the scenario.
    pub name: String,
    /// The peer, or `fixed` for background of a constant rate, which is ours.
    pub control: String,
    /// From the start of the run.
    pub start_ms: u64,
    /// From the start of the run.
    pub stop_ms: u64,
    /// One way, without queues and transmission.
    pub propagation_ms: f64,
    /// Width of a bin of the curves, whose first begins with the run.
    pub bins_ms: u64,
    /// Over time.
    #[serde(flatten)]
    pub curves: Curves,
    /// In one number each.
    pub summary: Summary,
}

/// A flow over time, a number per bin. Rates count every header of an IP packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// What entered the network.
    pub sent_bps: Vec<u64>,
    /// What arrived.
    pub rate_bps: Vec<u64>,
    /// Median one-way delay of what arrived, `None` where nothing did.
    pub delay_ms: Vec<Option<f64>>,
    /// Share of the packets sent in the bin that never arrived, `None` where there were none.
    pub loss: Vec<Option<f64>>,
}

/// A flow from 5 s after its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// What arrived.
    pub rate_bps: u64,
    /// One-way delay above propagation, mean over packets.
    pub queueing_mean_ms: Option<f64>,
    /// The same, 95th percentile.
    pub queueing_p95_ms: Option<f64>,
    /// Share of packets that never arrived.
    pub loss: Option<f64>,
}

impl Outcome {
    /// As a file is called, so that those of one scenario stand together.
    pub fn file_name(&self) -> String {
        format!("{}.{}.json", self.scenario, self.control)
    }
}

/// The summaries as a table in Markdown.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| scenario | flow | peer | kb/s | queueing mean, p95 (ms) | loss (%) |\n\
         |---|---|---|---|---|---|\n",
    );
    for outcome in outcomes {
        for flow in &outcome.flows {
            let summary = flow.summary;
            let number = |x: Option<f64>, scale: f64, digits: usize| {
                x.map_or_else(|| "–".to_owned(), |x| format!("{:.digits$}", x * scale))
            };
            writeln!(
                text,
                "| {} | {} | {} | {:.0} | {}, {} | {} |",
                outcome.scenario,
                flow.name,
                flow.control,
                summary.rate_bps as f64 / 1e3,
                number(summary.queueing_mean_ms, 1.0, 0),
                number(summary.queueing_p95_ms, 1.0, 0),
                number(summary.loss, 100.0, 1),
            )
            .expect("a string takes all");
        }
    }
    text
}

/// As RFC 8868 section 3 has rates measured.
pub const BIN: Duration = Duration::from_millis(200);
