//! Figures of a report.

mod counted;
mod delay;
mod network;
mod quality;
mod queues;
mod rates;
mod states;

use super::chart::{Chart, Form};
use super::view::View;

/// One figure of a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    /// Name of the files.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// How to read the figure.
    pub(super) caption: &'static str,
    /// Text in place of a figure without data.
    pub(super) missing: &'static str,
    draw: fn(&View<'_>, &mut Chart) -> bool,
}

impl Figure {
    /// Draws the figure; `None` if the run has no data for it. `id` is unique on the page.
    pub(super) fn draw(&self, view: &View<'_>, id: &str, form: Form) -> Option<Chart> {
        let id = format!("{id}-{}", self.name);
        let mut chart = Chart::new(&id, form, view.span, &view.outages);
        (self.draw)(view, &mut chart).then_some(chart)
    }
}

/// Figures in the order of the page.
pub(super) const FIGURES: [Figure; 6] = [
    Figure {
        name: "rates",
        title: "Rates over time",
        caption: "What the slowest link on the flow's way could carry (grey area), what the \
                  controller allowed on the wire (dashed; a thin line where no flow is a video), what the encoder of a video was told to \
                  make (thin), and what arrived with all headers (thick). What \
                  was merely allowed may lie above the panel.",
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
                  and the share of packets lost, or dropped by links where packets are only counted. \
                  Triangles mark what leaves a panel, with its height.",
        missing: "No packets were recorded.",
        draw: network::draw,
    },
    Figure {
        name: "queues",
        title: "Queues of the links",
        caption: "How long the queue of each link would take to drain: mean of short spans, with the \
                  range from the shortest to the longest. Strokes below: packets that the link \
                  dropped or lost, and such that it marked. Each link has an axis of its own.",
        missing: "Blackhole did more than a packet wait, or links were not sampled.",
        draw: queues::draw,
    },
    Figure {
        name: "states",
        title: "States of the controller",
        caption: "A strip for each flow that recorded events. Strokes below: key frames that were \
                  ordered, and frames that the sender gave up.",
        missing: "No events were recorded.",
        draw: states::draw,
    },
];
