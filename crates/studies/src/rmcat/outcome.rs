//! What a run leaves behind, in a form that other programs write as well.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Time};

use super::{Source, is_media};
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};
use tidegate_sim::meter::{Bin, Meter};
use tidegate_sim::runner::RunResult;
use tidegate_sim::scenario::{MediaPlan, Scenario};

/// A scenario that was played with one controller. Fields beyond these are passed over when read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the scenario.
    pub scenario: String,
    /// What controlled the flows under test.
    pub control: String,
    /// Where the controller comes from, with its version; empty for ours.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub library: String,
    /// Of the run.
    #[serde(default)]
    pub seed: u64,
    /// What the flows under test sent: video, unless told.
    #[serde(default)]
    pub source: Source,
    /// In the order of the scenario.
    pub flows: Vec<FlowOutcome>,
}

/// A flow over time, a number per bin. Rates count every header of an IP packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowOutcome {
    /// As in the scenario, with the number of those that stand for several.
    pub name: String,
    /// Width of a bin in milliseconds; the first begins with the run.
    pub bins_ms: u64,
    /// What entered the network, in bits per second; may be empty where that is not known.
    #[serde(default)]
    pub sent_bps: Vec<u64>,
    /// What arrived.
    pub rate_bps: Vec<u64>,
    /// A typical one-way delay in milliseconds of what arrived (ours: the mean), none where
    /// nothing did.
    pub delay_ms: Vec<Option<f64>>,
    /// Share of the packets sent in the bin that were lost, none where nothing was sent.
    pub loss: Vec<Option<f64>>,
    /// Of video, share of the frames that left and could never be decoded: what is lost after
    /// repair. None where nobody repairs, or nobody knows.
    #[serde(default)]
    pub frames_lost: Option<f64>,
}

impl Outcome {
    /// What the meter of `take` counted.
    pub(super) fn of(scenario: &Scenario, control: &str, seed: Seed, take: &RunResult) -> Self {
        let flow = |(i, (role, takings)): (usize, &(FlowInstance, FlowResult))| FlowOutcome {
            frames_lost: frames_lost(takings),
            ..FlowOutcome::of(&role.name, &take.meter, i)
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
            flows: take.flows.iter().enumerate().map(flow).collect(),
        }
    }

    /// The flow called `name`.
    pub fn flow(&self, name: &str) -> Option<&FlowOutcome> {
        self.flows.iter().find(|flow| flow.name == name)
    }

    /// As a file of it is called, so that those of one scenario stand together.
    pub fn file_name(&self) -> String {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let control = self.control.chars().map(|c| if fine(c) { c } else { '_' });
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
        let mut dropped = vec![0_u64; bins.len()];
        for at in meter.drops(index) {
            let bin = at.since(Time::ZERO).as_nanos() / width.as_nanos();
            if let Some(count) = dropped.get_mut(bin as usize) {
                *count += 1;
            }
        }
        let bps = |bytes: Bytes| (bytes / width).as_bps();
        for (bin, dropped) in bins.zip(dropped) {
            flow.sent_bps.push(bps(bin.sent.bytes));
            flow.rate_bps.push(bps(bin.received.bytes));
            flow.delay_ms.push(bin.delay_mean().map(|delay| {
                // Microseconds are more than a plot shows, and keep files short.
                (delay.as_secs_f64() * 1e6).round() / 1e3
            }));
            flow.loss.push(share(dropped, &bin));
        }
        flow
    }
}

/// Frames are found again by their RTP time stamps.
fn frames_lost(takings: &FlowResult) -> Option<f64> {
    let whole = takings.received.iter();
    let whole = whole.filter(|frame| frame.complete.is_some());
    let whole: BTreeSet<u32> = whole.map(|frame| frame.timestamp as u32).collect();
    let left = takings.sent.iter().filter(|frame| frame.left.is_some());
    let (mut sent, mut lost) = (0_u32, 0_u32);
    for frame in left {
        sent += 1;
        lost += u32::from(!whole.contains(&frame.timestamp));
    }
    (sent > 0).then(|| f64::from(lost) / f64::from(sent))
}

/// A packet is dropped hardly later than it was sent, so that at most a few are counted in the bin
/// after their own.
fn share(dropped: u64, bin: &Bin) -> Option<f64> {
    let sent = bin.sent.packets;
    (sent > 0).then(|| ((dropped as f64 / sent as f64).min(1.0) * 1e6).round() / 1e6)
}
