//! What the sender was up to.

use tidegate_core::trace::Event;
use tidegate_sim::run::Run;

use super::super::chart::{Chart, Panel, Sample};
use super::super::states::{States, moments, states};
use super::super::view::{FlowView, View};

pub(super) fn draw(view: &View<'_>, chart: &mut Chart) -> bool {
    let end = view.span.1;
    let all: Vec<(&FlowView<'_>, Vec<Strip<'_>>)> = view
        .flows
        .iter()
        .map(|flow| (flow, strips(view.run, flow, end)))
        .filter(|(_, strips)| !strips.is_empty())
        .collect();
    if all.is_empty() {
        return false;
    }
    let strips = || all.iter().flat_map(|(_, strips)| strips);
    let mut entries = vec![(Sample::Square("steady"), "steady")];
    for (class, name, spans) in LOOKS {
        if strips().any(|strip| !spans(&strip.states).is_empty()) {
            entries.push((Sample::Square(class), name));
        }
    }
    entries.push((Sample::Tick("note"), "key frame ordered"));
    entries.push((Sample::Tick("bad"), "frame given up"));
    if !view.outages.is_empty() {
        entries.push((Sample::Square("outage"), "outage of the link"));
    }
    chart.legend(&entries);
    for (flow, strips) in &all {
        match &strips[..] {
            [one] => single(chart, flow, one, view.run, end),
            several => many(chart, flow, several, end),
        }
    }
    chart.time_axis();
    true
}

/// A flow that recorded events.
struct Strip<'a> {
    name: &'a str,
    /// When the first of them was, in seconds.
    began: f64,
    states: States,
}

fn strips<'a>(run: &'a Run, flow: &FlowView<'a>, end: f64) -> Vec<Strip<'a>> {
    let members = flow.members.iter();
    let strips = members.filter_map(|member| {
        let name = member.flow.info.name.as_str();
        let began = run.events_of(name).next()?.at.as_secs_f64();
        let states = states(run, member.flow, end);
        Some(Strip {
            name,
            began,
            states,
        })
    });
    strips.collect()
}

fn single(chart: &mut Chart, flow: &FlowView<'_>, strip: &Strip<'_>, run: &Run, end: f64) {
    let panel = chart.strip(flow.title(), 16.0);
    shade(chart, &panel, strip, end);
    let lane = chart.lane(2.0, 9.0);
    let given_up = |e: &Event| matches!(e, Event::FrameDropped { .. });
    let ordered = |e: &Event| matches!(e, Event::KeyFrameOrdered { .. });
    let given_up = moments(run, strip.name, given_up);
    chart.strokes(&lane, "bad", given_up.into_iter());
    let ordered = moments(run, strip.name, ordered);
    chart.strokes(&lane, "note", ordered.into_iter());
}

/// Thin strips one below the other, and no strokes.
fn many(chart: &mut Chart, flow: &FlowView<'_>, strips: &[Strip<'_>], end: f64) {
    let (colour, name, more) = flow.title();
    let shown = strips.len().min(MOST_STRIPS);
    let more = match strips.len() - shown {
        0 => more.to_owned(),
        _ => format!("{more}, the first {shown} shown"),
    };
    for (i, strip) in strips[..shown].iter().enumerate() {
        let panel = match i {
            0 => chart.strip((colour, name, &more), THIN),
            _ => chart.lane(1.0, THIN),
        };
        shade(chart, &panel, strip, end);
    }
}

fn shade(chart: &mut Chart, panel: &Panel, strip: &Strip<'_>, end: f64) {
    chart.shade(panel, "steady", &[(strip.began, end)]);
    for (class, _, spans) in LOOKS {
        chart.shade(panel, class, spans(&strip.states));
    }
}

/// Class, name and spans of a state, the gravest last since it is drawn over the others.
type Look = (&'static str, &'static str, fn(&States) -> &[(f64, f64)]);

const LOOKS: [Look; 5] = [
    ("start", "slow start", |s| &s.slow_start),
    ("others", "others hold the queue", |s| &s.contested),
    ("tight", "no rate keeps the bound", |s| &s.infeasible),
    ("dead", "blackout", |s| &s.blackout),
    ("stopped", "stopped by the circuit breaker", |s| &s.stopped),
];

/// Of the flows of a class that get a strip.
const MOST_STRIPS: usize = 20;

/// Height of the strip of one of many.
const THIN: f64 = 5.0;
