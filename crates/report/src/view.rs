//! A run, prepared for drawing: its flows by class.

use std::collections::BTreeMap;

use tidegate_core::units::Time;
use tidegate_record::BIN;
use tidegate_record::metrics::{FrameOutcome, frame_outcomes};
use tidegate_record::{BinRow, FlowInfo, FlowPath, FlowRun, LinkInfo, Run};

use super::chart::{Mark, Sample};
use super::states::joined;
use super::theme;

/// A run, prepared for drawing.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) run: &'a Run,
    /// Time span of the run, in seconds.
    pub(super) span: (f64, f64),
    pub(super) outages: Vec<(f64, f64)>,
    pub(super) flows: Vec<FlowView<'a>>,
}

/// A flow, or the flows of a class, prepared for drawing.
#[derive(Debug)]
pub(super) struct FlowView<'a> {
    /// Name of the flow or of the class.
    pub(super) name: &'a str,
    pub(super) colour: &'static str,
    /// Flows of the class; never empty.
    pub(super) members: Vec<SimFlow<'a>>,
    /// Links on the path to the receiver, as far as known.
    pub(super) path: Vec<&'a LinkInfo>,
    /// Outages of the links that it crosses in both directions; of all links if its path is
    /// unknown.
    pub(super) outages: Vec<(f64, f64)>,
    /// Text beside the name.
    more: String,
}

/// One flow.
#[derive(Debug)]
pub(super) struct SimFlow<'a> {
    pub(super) flow: &'a FlowRun,
    pub(super) stories: Vec<FrameOutcome>,
    /// Counters of the flow, in order of time.
    pub(super) bins: Vec<&'a BinRow>,
    /// Time at which the flow stopped or the run ended, in seconds.
    pub(super) until: f64,
}

impl<'a> FlowView<'a> {
    /// Manifest entry of the first member, for the properties that all members share.
    pub(super) fn info(&self) -> &'a FlowInfo {
        &self.members[0].flow.info
    }

    /// The flow, unless this is a class of several.
    pub(super) fn single(&self) -> Option<&SimFlow<'a>> {
        match &self.members[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Whether any frames are recorded.
    pub(super) fn has_stories(&self) -> bool {
        self.members.iter().any(|member| !member.stories.is_empty())
    }

    /// Outcomes of the frames of all members, in order of capture.
    pub(super) fn stories(&self) -> Vec<FrameOutcome> {
        let members = self.members.iter();
        let mut all: Vec<FrameOutcome> = members
            .flat_map(|member| member.stories.iter().copied())
            .collect();
        all.sort_by_key(|story| story.captured);
        all
    }

    /// Legend entry: colour, name and details.
    pub(super) fn title(&self) -> (&'static str, &str, &str) {
        (self.colour, self.name, &self.more)
    }
}

impl<'a> View<'a> {
    pub(super) fn new(run: &'a Run) -> Self {
        let end = run.end();
        // A run without any row and without a manifest has no end.
        let end = if end == Time::FAR {
            0.0
        } else {
            end.as_secs_f64()
        };
        Self {
            run,
            span: (0.0, if end > 0.0 { end } else { 1.0 }),
            outages: outages(&run.manifest.links, end),
            flows: flows(run, end),
        }
    }

    pub(super) fn duration(&self) -> f64 {
        self.span.1 - self.span.0
    }

    /// Names and colours of the flows that `with` selects.
    pub(super) fn legend(&self, with: impl Fn(&FlowView<'a>) -> bool) -> Vec<(Sample, &str)> {
        let flows = self.flows.iter().filter(|flow| with(flow));
        flows
            .map(|flow| (Sample::of(Mark::Flow, flow.colour), flow.name))
            .collect()
    }
}

/// Flows in the order of the manifest; a class has the place of its first member.
fn flows(run: &Run, end: f64) -> Vec<FlowView<'_>> {
    let mut bins: BTreeMap<&str, Vec<&BinRow>> = BTreeMap::new();
    for row in &run.bins {
        bins.entry(&row.flow).or_default().push(row);
    }
    let mut flows: Vec<FlowView<'_>> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for flow in &run.flows {
        let class = flow.info.class.as_str();
        let place = *places.entry(class).or_insert(flows.len());
        if place == flows.len() {
            flows.push(FlowView {
                name: class,
                colour: theme::flow(place),
                members: Vec::new(),
                path: links(&run.manifest.links, &flow.info.way.path),
                outages: outages_of(run, &flow.info.way, end),
                more: String::new(),
            });
        }
        let bins = bins.remove(flow.info.name.as_str()).unwrap_or_default();
        flows[place].members.push(SimFlow {
            flow,
            stories: frame_outcomes(flow),
            until: until(run, flow, &bins, end),
            bins,
        });
    }
    for flow in &mut flows {
        flow.more = more(flow);
    }
    flows
}

fn more(flow: &FlowView<'_>) -> String {
    let control = &flow.info().control;
    let control = (control != flow.name).then(|| control.clone());
    let count = flow.members.len();
    let count = (count > 1).then(|| format!("{count} flows"));
    let parts: Vec<String> = control.into_iter().chain(count).collect();
    parts.join(", ")
}

/// The links with these names; without names, the link of a network of one link.
fn links<'a>(all: &'a [LinkInfo], names: &[String]) -> Vec<&'a LinkInfo> {
    if let ([only], []) = (all, names) {
        return vec![only];
    }
    let named = |link: &&LinkInfo| names.contains(&link.name);
    all.iter().filter(named).collect()
}

fn outages_of(run: &Run, way: &FlowPath, end: f64) -> Vec<(f64, f64)> {
    let all = &run.manifest.links;
    if way.path.is_empty() {
        return outages(all, end);
    }
    let there = links(all, &way.path).into_iter();
    outages(there.chain(links(all, &way.back)), end)
}

/// Outages of any of `links` until `end`, in seconds and in order.
pub(super) fn outages<'a>(
    links: impl IntoIterator<Item = &'a LinkInfo>,
    end: f64,
) -> Vec<(f64, f64)> {
    let all = links.into_iter().flat_map(|link| &link.outages);
    let spans = all.map(|o| (o.from.as_secs_f64(), o.to.as_secs_f64()));
    joined(spans.filter(|(from, _)| *from < end).collect())
}

/// Time of the last record that shows the flow active, in seconds.
fn until(run: &Run, flow: &FlowRun, bins: &[&BinRow], end: f64) -> f64 {
    let packets = flow.packets.iter().map(|row| row.sent);
    let frames = flow.sent.iter().map(|row| row.captured);
    let busy = bins
        .iter()
        .filter(|row| row.bin.sent.packets + row.bin.received.packets > 0);
    let bins = busy.map(|row| row.at + BIN);
    let last = packets.chain(frames).chain(bins).max();
    // A folder without tables has only events.
    let last = last.or_else(|| run.events_of(&flow.info.name).map(|row| row.at).max());
    let last = last.map_or(end, Time::as_secs_f64);
    // A short pause at the end is not a stop.
    if last > end - REST { end } else { last }
}

/// In seconds.
const REST: f64 = 0.5;
