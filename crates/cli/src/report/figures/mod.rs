//! What a report draws of a run.

mod delay;
mod network;
mod quality;
mod rates;
mod states;

use tidegate_core::units::{Rate, Time};
use tidegate_sim::run::metrics::{FrameStory, stories};
use tidegate_sim::run::{FlowRun, LinkInfo, Run};

use super::chart::{Chart, Form};
use super::theme;

/// One drawing of a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    /// In file names.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// How to read it.
    pub(super) caption: &'static str,
    /// What is said where there is nothing to draw.
    pub(super) missing: &'static str,
    draw: fn(&View<'_>, &mut Chart) -> bool,
}

impl Figure {
    /// The drawing, or `None` if the run has nothing for it. `id` is unique on the page.
    pub(super) fn draw(&self, view: &View<'_>, id: &str, form: Form) -> Option<Chart> {
        let id = format!("{id}-{}", self.name);
        let mut chart = Chart::new(&id, form, view.span, &view.outages);
        (self.draw)(view, &mut chart).then_some(chart)
    }
}

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

/// A flow, prepared for drawing.
#[derive(Debug)]
pub(super) struct FlowView<'a> {
    pub(super) flow: &'a FlowRun,
    pub(super) colour: &'static str,
    pub(super) stories: Vec<FrameStory>,
}

impl FlowView<'_> {
    pub(super) fn name(&self) -> &str {
        &self.flow.info.name
    }

    /// What stands beside the name where the colour is explained.
    pub(super) fn title(&self) -> (&'static str, &str, &str) {
        let info = &self.flow.info;
        let more = if info.control == info.name {
            ""
        } else {
            &info.control
        };
        (self.colour, &info.name, more)
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
        let flows = run.flows.iter().enumerate().map(|(i, flow)| FlowView {
            flow,
            colour: theme::flow(i),
            stories: stories(flow),
        });
        Self {
            run,
            span: (0.0, if end > 0.0 { end } else { 1.0 }),
            outages: outages.collect(),
            bottleneck,
            flows: flows.collect(),
        }
    }

    pub(super) fn duration(&self) -> f64 {
        self.span.1 - self.span.0
    }

    /// Names and colours of the flows that `with` picks.
    fn legend(&self, with: impl Fn(&FlowView<'_>) -> bool) -> Vec<(super::chart::Sample, &str)> {
        let flows = self.flows.iter().filter(|flow| with(flow));
        let entry = |flow: &'_ FlowView<'a>| {
            let sample = super::chart::Sample::Flow(flow.colour);
            (sample, flow.flow.info.name.as_str())
        };
        flows.map(entry).collect()
    }
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

/// In the order of the page.
pub(super) const FIGURES: [Figure; 5] = [
    Figure {
        name: "rates",
        title: "Rates over time",
        caption: "What the link could carry (grey area), what the controller allowed on the wire \
                  (dashed), what the encoder was told to make (thin), and what arrived with all \
                  headers (thick).",
        missing: "Neither packets nor samples of the controller were recorded.",
        draw: rates::draw,
    },
    Figure {
        name: "delay",
        title: "Delay of each frame",
        caption: "From capture until the frame could be decoded whole; one dot per frame. Frames \
                  above the bound are late and drawn as crosses, at the upper edge if they are \
                  beyond it. Strokes below are frames that never became decodable.",
        missing: "It was not recorded when frames arrived.",
        draw: delay::draw,
    },
    Figure {
        name: "quality",
        title: "Quality of what was shown",
        caption: "Likeness of the picture on the screen and the original, a frozen picture \
                  included: mean of short spans, with the range from the worst to the best frame. \
                  Bars below: the picture stood still.",
        missing: "Nothing was recorded about the pictures on the screen.",
        draw: quality::draw,
    },
    Figure {
        name: "network",
        title: "Queue and losses",
        caption: "One-way delay of packets above the smallest of the flow, mean of short spans, \
                  and the share of packets lost.",
        missing: "No packets were recorded.",
        draw: network::draw,
    },
    Figure {
        name: "states",
        title: "States of the controller",
        caption: "Strokes below each strip: key frames that were ordered, and frames that the \
                  sender gave up.",
        missing: "No events were recorded.",
        draw: states::draw,
    },
];
