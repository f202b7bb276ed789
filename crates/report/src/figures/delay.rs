//! Delay of each frame relative to the delay bound.

use core::fmt::Write as _;
use std::collections::BTreeSet;

use tidegate_record::metrics::{FrameOutcome, FrameState, has_one_clock};

use super::super::chart::{Chart, Mark, Panel, Reading, Sample, Vertical, cross, title_width};
use super::super::scale::round_top;
use super::super::svg::{Anchor, number, text_width};
use super::super::view::{FlowView, View};

pub(super) fn draw(view: &View<'_>, chart: &mut Chart) -> bool {
    let flows = || view.flows.iter().filter(|flow| flow.has_stories());
    if flows().next().is_none() {
        return false;
    }
    let members = || flows().flat_map(|flow| &flow.members);
    let any = |fate| members().any(|m| m.stories.iter().any(|s| s.fate == fate));
    let colours = flows().map(|flow| flow.colour);
    let mut entries = vec![(Sample::each(Mark::Dot, colours), "frame")];
    if any(FrameState::Late) {
        entries.push((Sample::of(Mark::Cross, "bad"), "late"));
    }
    if any(FrameState::Lost) {
        entries.push((Sample::of(Mark::Tick, "bad"), "lost"));
    }
    if any(FrameState::Dropped) {
        entries.push((Sample::of(Mark::Tick, "gone"), "given up by the sender"));
    }
    if flows().any(|flow| bound(flow).is_some()) {
        entries.push((Sample::of(Mark::Line, "bound"), "bound"));
    }
    if flows().any(|flow| !flow.outages.is_empty()) {
        entries.push((Sample::of(Mark::Square, "outage"), "outage"));
    }
    chart.legend(&entries);
    let vertical = vertical(view);
    for flow in flows() {
        draw_flow(chart, flow, &vertical);
    }
    chart.time_axis();
    true
}

fn draw_flow(chart: &mut Chart, flow: &FlowView<'_>, vertical: &Vertical) {
    let (colour, name, control) = flow.title();
    let variation = if flow.members.iter().all(|m| has_one_clock(m.flow)) {
        ""
    } else {
        "variation above the minimum, clocks differ"
    };
    let parts: Vec<&str> = [control, variation]
        .into_iter()
        .filter(|p| !p.is_empty())
        .collect();
    let more = parts.join(", ");
    chart.set_outages(&flow.outages);
    let panel = chart.panel(Some((colour, name, &more)), HEIGHT, vertical);
    chart.begin_clip(&panel);
    let stories = flow.stories();
    let (dots, crosses) = marks(&panel, &stories, vertical.to);
    chart.svg().path(&format!("{colour} dots"), &dots);
    chart.svg().path("bad cross", &crosses);
    if let Some(bound) = bound(flow) {
        let y = panel.y.at(bound);
        let ends = ((panel.area.x, y), (panel.area.right(), y));
        chart.svg().line("bound", ends.0, ends.1);
    }
    chart.svg().end_clip();
    chart.read(&panel, name, frames(chart.resolution(), colour, &stories));
    label_bound(chart, &panel, flow);
    let room = panel.area.width - title_width(name, &more);
    label_beyond(chart, &panel, &stories, vertical.to, room);
    let lane = chart.lane(3.0, 9.0);
    for (class, fate) in [("gone", FrameState::Dropped), ("bad", FrameState::Lost)] {
        let ended = stories.iter().filter(|s| s.fate == fate);
        chart.strokes(&lane, class, ended.map(|s| s.captured.as_secs_f64()));
    }
}

/// Dots for frames on time and crosses for late ones, at most one per pixel.
fn marks(panel: &Panel, stories: &[FrameOutcome], top: f64) -> (String, String) {
    let (mut dots, mut crosses) = (String::new(), String::new());
    let (mut dotted, mut crossed) = (BTreeSet::new(), BTreeSet::new());
    for story in stories {
        let Some(delay) = millis(story) else {
            continue;
        };
        let place = panel.at((story.captured.as_secs_f64(), delay.min(top)));
        if story.fate == FrameState::Late {
            // Symbols beyond the upper edge are drawn completely inside it.
            let place = (place.0, place.1.max(panel.area.y + 4.0));
            if crossed.insert(grid(place, 2.0)) {
                cross(&mut crosses, place);
            }
        } else if dotted.insert(grid(place, 1.0)) {
            let _ = write!(dots, "M{} {}h0", number(place.0), number(place.1));
        }
    }
    (dots, crosses)
}

/// Delays and outcomes of the frames, for the pointer.
fn frames(resolution: f64, colour: &'static str, stories: &[FrameOutcome]) -> Reading {
    let dots = stories.iter().map(|story| {
        let fate = match story.fate {
            FrameState::Late => "late",
            FrameState::Lost => "lost",
            FrameState::Dropped => "given up by the sender",
            FrameState::Delivered => "",
        };
        (story.captured.as_secs_f64(), millis(story), fate)
    });
    // A pointer is accurate to a few pixels.
    Reading::dots("frame", colour, 3.0 * resolution, dots)
}

fn label_bound(chart: &mut Chart, panel: &Panel, flow: &FlowView<'_>) {
    if let Some(bound) = bound(flow) {
        let text = format!("bound {bound:.0} ms");
        let at = (panel.area.right() - 4.0, panel.y.at(bound) - 4.0);
        chart.svg().text("ink small halo", at, Anchor::End, &text);
    }
}

/// Writes beside the title how many frames lie beyond the upper edge and how far, in as many words
/// as fit into `room`.
fn label_beyond(chart: &mut Chart, panel: &Panel, stories: &[FrameOutcome], top: f64, room: f64) {
    let beyond = stories.iter().filter_map(millis).filter(|ms| *ms > top);
    let Some(worst) = beyond.clone().reduce(f64::max) else {
        return;
    };
    let (count, worst) = (beyond.count(), worst / 1e3);
    let texts = [
        format!("{count} above this edge, worst {worst:.1} s"),
        format!("worst {worst:.1} s"),
    ];
    let fits = |text: &&String| text_width(text, 11.0) + 8.0 < room;
    if let Some(text) = texts.iter().find(fits) {
        let at = (panel.area.right(), panel.area.y - 7.0);
        chart.svg().text("soft small", at, Anchor::End, text);
    }
}

fn vertical(view: &View<'_>) -> Vertical {
    let members = view.flows.iter().flat_map(|flow| &flow.members);
    let stories = members.flat_map(|member| &member.stories);
    let mut delays: Vec<f64> = stories.filter_map(millis).collect();
    delays.sort_unstable_by(f64::total_cmp);
    let bounds = view.flows.iter().filter_map(bound);
    let most = delays.last().copied().unwrap_or(0.0);
    let to = match bounds.reduce(f64::max) {
        // Beyond twice the bound only the number of late frames matters.
        Some(bound) => most.clamp(1.25 * bound, 2.0 * bound),
        None => delays
            .get(delays.len() * 99 / 100)
            .map_or(1.0, |p99| p99 * 1.2),
    };
    Vertical {
        from: 0.0,
        to: round_top(to, 4),
        unit: 1.0,
        name: "ms",
        ticks: 4,
    }
}

/// Delay bound in ms, if frames can be compared with it.
fn bound(flow: &FlowView<'_>) -> Option<f64> {
    let bound = flow.info().delay_bound?;
    let judged = flow.members.iter().any(|m| has_one_clock(m.flow));
    judged.then_some(bound.as_secs_f64() * 1e3)
}

fn millis(story: &FrameOutcome) -> Option<f64> {
    story.delay.map(|nanos| nanos as f64 / 1e6)
}

fn grid((x, y): (f64, f64), cell: f64) -> (i64, i64) {
    ((x / cell).round() as i64, (y / cell).round() as i64)
}

const HEIGHT: f64 = 130.0;
