//! Result of a run, in a format that other programs write as well.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Time};
use tidegate_record::Bin;

use super::{Source, is_media};
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};
use tidegate_sim::meter::Meter;
use tidegate_sim::runner::RunResult;
use tidegate_sim::scenario::{MediaPlan, Scenario};

/// Run of a scenario with one controller. Unknown fields are ignored when read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the scenario.
    pub scenario: String,
    /// Controller of the flows under test.
    pub control: String,
    /// Library of the controller, with its version. Empty for Tidegate's controllers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub library: String,
    /// Random seed of the run.
    #[serde(default)]
    pub seed: u64,
    /// Source of the flows under test [default: video].
    #[serde(default)]
    pub source: Source,
    /// The flows in the order of the scenario.
    pub flows: Vec<FlowOutcome>,
}

/// Time series of a flow, one value per bin. Rates include all headers of an IP packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowOutcome {
    /// Name as in the scenario, with a number if the plan has several flows.
    pub name: String,
    /// Width of a bin in milliseconds. The first bin starts with the run.
    pub bins_ms: u64,
    /// Sending rate in b/s; empty if unknown.
    #[serde(default)]
    pub sent_bps: Vec<u64>,
    /// Receiving rate in b/s.
    pub rate_bps: Vec<u64>,
    /// Typical one-way delay in milliseconds of the packets that arrived; Tidegate writes the mean.
    /// None if no packet arrived.
    pub delay_ms: Vec<Option<f64>>,
    /// Share of the packets sent in the bin that were lost. None if no packet was sent.
    pub loss: Vec<Option<f64>>,
    /// Share of the sent video frames that could not be decoded, even after repair. None if the
    /// flow has no repair or the share is unknown.
    #[serde(default)]
    pub frames_lost: Option<f64>,
}

impl Outcome {
    /// Outcome from the meter of `run`.
    pub(super) fn of(scenario: &Scenario, control: &str, seed: Seed, run: &RunResult) -> Self {
        let flow = |(i, (role, result)): (usize, &(FlowInstance, FlowResult))| FlowOutcome {
            frames_lost: frames_lost(result),
            ..FlowOutcome::of(&role.name, &run.meter, i)
        };
        let mut media = scenario.flows.iter().filter(|plan| is_media(&plan.name));
        let greedy = media.any(|plan| matches!(plan.media, MediaPlan::Bulk(_)));
        Self {
            scenario: scenario.name.clone(),
            control: control.to_owned(),
            library: String::new(),
            seed: seed.0,
            source: if greedy {
                Source::Greedy
            } else {
                Source::Video
            },
            flows: run.flows.iter().enumerate().map(flow).collect(),
        }
    }

    /// The flow of this name.
    pub fn flow(&self, name: &str) -> Option<&FlowOutcome> {
        self.flows.iter().find(|flow| flow.name == name)
    }

    /// File name. It begins with the scenario, so that sorting groups the files by scenario.
    pub fn file_name(&self) -> String {
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let control = self.control.chars().map(|c| if safe(c) { c } else { '_' });
        format!("{}.{}.json", self.scenario, control.collect::<String>())
    }
}

impl FlowOutcome {
    fn of(name: &str, meter: &Meter, index: usize) -> Self {
        let width = meter.bin_length();
        let mut flow = Self {
            name: name.to_owned(),
            bins_ms: width.as_millis() as u64,
            ..Self::default()
        };
        let bins = meter.bins(index);
        let dropped = drops(meter, index);
        let bps = |bytes: Bytes| (bytes / width).as_bps();
        for (bin, dropped) in bins.zip(dropped) {
            flow.sent_bps.push(bps(bin.sent.bytes));
            flow.rate_bps.push(bps(bin.received.bytes));
            flow.delay_ms.push(bin.delay_mean().map(|delay| {
                // A resolution of 1 µs is enough for plots and keeps files short.
                (delay.as_secs_f64() * 1e6).round() / 1e3
            }));
            flow.loss.push(share(dropped, &bin));
        }
        flow
    }
}

/// Share of lost frames. Frames are matched by their RTP time stamps.
fn frames_lost(result: &FlowResult) -> Option<f64> {
    let whole = result.received.iter();
    let whole = whole.filter(|frame| frame.complete.is_some());
    let whole: BTreeSet<u32> = whole.map(|frame| frame.timestamp as u32).collect();
    let left = result.sent.iter().filter(|frame| frame.left.is_some());
    let (mut sent, mut lost) = (0_u32, 0_u32);
    for frame in left {
        sent += 1;
        lost += u32::from(!whole.contains(&frame.timestamp));
    }
    (sent > 0).then(|| f64::from(lost) / f64::from(sent))
}

/// Drops by bin. A packet is dropped some time after it was sent, in an outage maybe when none is sent:
/// drops beyond those that were sent in a bin count in the bins before.
fn drops(meter: &Meter, index: usize) -> Vec<u64> {
    let mut dropped = vec![0_u64; meter.bins(index).len()];
    let last = dropped.len().saturating_sub(1);
    for at in meter.drops(index) {
        let bin = at.since(Time::ZERO).as_nanos() / meter.bin_length().as_nanos();
        if let Some(count) = dropped.get_mut((bin as usize).min(last)) {
            *count += 1;
        }
    }
    let sent: Vec<u64> = meter.bins(index).map(|bin| bin.sent.packets).collect();
    let mut left = 0;
    for (count, sent) in dropped.iter_mut().zip(sent).rev() {
        left += *count;
        *count = left.min(sent);
        left -= *count;
    }
    dropped
}

/// Loss ratio of a bin.
fn share(dropped: u64, bin: &Bin) -> Option<f64> {
    let sent = bin.sent.packets;
    (sent > 0).then(|| (dropped as f64 / sent as f64 * 1e6).round() / 1e6)
}
