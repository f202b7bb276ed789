//! A run, prepared for drawing: its flows by class.

use std::collections::BTreeMap;

use tidegate_core::units::{Rate, Time};
use tidegate_sim::run::metrics::{FrameStory, stories};
use tidegate_sim::run::{BinRow, FlowInfo, FlowRun, LinkInfo, Run};

use super::chart::Sample;
use super::theme;

/// A run, prepared for drawing.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) run: &'a Run,
    /// In seconds.
    pub(super) span: (f64, f64),
    pub(super) outages: Vec<(f64, f64)>,
    /// The link that carries least, which is the one that matters.
    pub(super) bottleneck: Option<&'a LinkInfo>,
    pub(super) flows: Vec<FlowView<'a>>,
}

/// A flow, or those of a class, prepared for drawing.
#[derive(Debug)]
pub(super) struct FlowView<'a> {
    /// Of the class where there are several.
    pub(super) name: &'a str,
    pub(super) colour: &'static str,
    /// Never empty.
    pub(super) members: Vec<Member<'a>>,
    /// What stands beside the name.
    more: String,
}

/// One flow.
#[derive(Debug)]
pub(super) struct Member<'a> {
    pub(super) flow: &'a FlowRun,
    pub(super) stories: Vec<FrameStory>,
    /// What was counted of it, in order of time.
    pub(super) bins: Vec<&'a BinRow>,
}

impl<'a> FlowView<'a> {
    /// What is the same for all members.
    pub(super) fn info(&self) -> &'a FlowInfo {
        &self.members[0].flow.info
    }

    /// The flow, if it is no class of several.
    pub(super) fn single(&self) -> Option<&Member<'a>> {
        match &self.members[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Whether anything was recorded of frames.
    pub(super) fn has_stories(&self) -> bool {
        self.members.iter().any(|member| !member.stories.is_empty())
    }

    /// What became of the frames of all members, in order of capture.
    pub(super) fn stories(&self) -> Vec<FrameStory> {
        let members = self.members.iter();
        let mut all: Vec<FrameStory> = members
            .flat_map(|member| member.stories.iter().copied())
            .collect();
        all.sort_by_key(|story| story.captured);
        all
    }

    /// What stands where the colour is explained: colour, name, and a little more.
    pub(super) fn title(&self) -> (&'static str, &str, &str) {
        (self.colour, self.name, &self.more)
    }
}

impl<'a> View<'a> {
    pub(super) fn new(run: &'a Run) -> Self {
        let end = run.end();
        // A run without any row and without a manifest lasts for ever.
        let end = if end == Time::FAR {
            0.0
        } else {
            end.as_secs_f64()
        };
        let bottleneck = run
            .manifest
            .links
            .iter()
            .min_by(|a, b| mean_capacity(a, end).total_cmp(&mean_capacity(b, end)));
        let outages = run.manifest.links.iter().flat_map(|link| &link.outages);
        let outages = outages
            .map(|o| (o.from.as_secs_f64(), o.to.as_secs_f64()))
            .filter(|(from, _)| *from < end);
        Self {
            run,
            span: (0.0, if end > 0.0 { end } else { 1.0 }),
            outages: outages.collect(),
            bottleneck,
            flows: flows(run),
        }
    }

    pub(super) fn duration(&self) -> f64 {
        self.span.1 - self.span.0
    }

    /// Names and colours of the flows that `with` picks.
    pub(super) fn legend(&self, with: impl Fn(&FlowView<'a>) -> bool) -> Vec<(Sample, &str)> {
        let flows = self.flows.iter().filter(|flow| with(flow));
        flows
            .map(|flow| (Sample::Flow(flow.colour), flow.name))
            .collect()
    }
}

/// In the order of the manifest, a class where its first member is.
fn flows(run: &Run) -> Vec<FlowView<'_>> {
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
                more: String::new(),
            });
        }
        flows[place].members.push(Member {
            flow,
            stories: stories(flow),
            bins: bins.remove(flow.info.name.as_str()).unwrap_or_default(),
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

fn mean_capacity(link: &LinkInfo, end: f64) -> f64 {
    let mut sum = 0.0;
    for (i, step) in link.capacity.iter().enumerate() {
        let next = link.capacity.get(i + 1);
        let until = next.map_or(end, |next| next.from.as_secs_f64().min(end));
        let rate = step.rate.map_or(f64::INFINITY, Rate::as_f64);
        let lasts = until - step.from.as_secs_f64();
        if lasts > 0.0 {
            sum += rate * lasts;
        }
    }
    if link.capacity.is_empty() {
        f64::INFINITY
    } else {
        sum
    }
}
