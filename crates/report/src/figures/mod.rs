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
        caption: "Capacity of the slowest link on the flow's path (grey area), sending rate allowed by \
                  the controller (dashed; a thin line if no flow is a video), target rate of the video \
                  encoder (thin), and receiving rate with all headers (thick). The allowed rate may lie \
                  above the panel.",
        missing: "Neither packets nor controller samples were recorded.",
        draw: rates::draw,
    },
    Figure {
        name: "delay",
        title: "Delay of each frame",
        caption: "Time from capture until the frame is decodable; one dot per frame. Frames above the \
                  bound are late and drawn as crosses, at the upper edge if they are beyond it. \
                  Strokes below are frames that never became decodable.",
        missing: "Arrival times of frames were not recorded.",
        draw: delay::draw,
    },
    Figure {
        name: "quality",
        title: "Quality of displayed frames",
        caption: "Similarity of the displayed picture to the original, including frozen pictures: mean \
                  of short intervals, with the range from the worst to the best frame. Bars below \
                  are freezes.",
        missing: "Displayed pictures were not recorded.",
        draw: quality::draw,
    },
    Figure {
        name: "network",
        title: "Queue and losses",
        caption: "One-way delay of packets above the minimum of the flow, mean of short intervals, \
                  and the share of packets lost, or dropped by links if packets are only counted. \
                  Triangles mark values beyond the panel.",
        missing: "No packets were recorded.",
        draw: network::draw,
    },
    Figure {
        name: "queues",
        title: "Queues of the links",
        caption: "Time to drain the queue of each link: mean of short intervals, with the range from \
                  minimum to maximum. Strokes below are packets that the link dropped, lost or \
                  marked. Each link has its own axis.",
        missing: "No queue held more than one packet, or links were not sampled.",
        draw: queues::draw,
    },
    Figure {
        name: "states",
        title: "States of the controller",
        caption: "A strip for each flow with recorded events. Strokes below are requested key frames, \
                  and frames that the sender dropped.",
        missing: "No events were recorded.",
        draw: states::draw,
    },
];
