//! States of the sender.

use tidegate_core::trace::Event;
use tidegate_record::Run;

use super::super::chart::{Chart, Mark, Panel, Reading, Sample};
use super::super::states::{States, moments, states};
use super::super::view::{FlowView, View};

pub(super) fn draw(view: &View<'_>, chart: &mut Chart) -> bool {
    let all: Vec<(&FlowView<'_>, Vec<Strip>)> = view
        .flows
        .iter()
        .map(|flow| (flow, strips(view.run, flow)))
        .filter(|(_, strips)| !strips.is_empty())
        .collect();
    if all.is_empty() {
        return false;
    }
    let strips = || all.iter().flat_map(|(_, strips)| strips);
    let mut entries = vec![(Sample::of(Mark::Square, "steady"), "steady")];
    for (class, name, spans) in LOOKS {
        if strips().any(|strip| !spans(&strip.states).is_empty()) {
            entries.push((Sample::of(Mark::Square, class), name));
        }
    }
    let stroked = |moments: for<'a> fn(&'a Strip) -> &'a [f64]| {
        let alone = all.iter().filter(|(_, strips)| strips.len() == 1);
        alone
            .flat_map(|(_, strips)| strips)
            .any(|strip| !moments(strip).is_empty())
    };
    for (class, name, moments) in STROKES {
        if stroked(moments) {
            entries.push((Sample::of(Mark::Tick, class), name));
        }
    }
    if all.iter().any(|(flow, _)| !flow.outages.is_empty()) {
        entries.push((Sample::of(Mark::Square, "outage"), "outage of the link"));
    }
    chart.legend(&entries);
    for (flow, strips) in &all {
        chart.set_outages(&flow.outages);
        match &strips[..] {
            [one] => single(chart, flow, one),
            several => many(chart, flow, several),
        }
    }
    chart.time_axis();
    true
}

/// States of a flow that recorded events.
struct Strip {
    /// Time of the first event, in seconds.
    began: f64,
    /// Time at which the flow stopped, in seconds.
    until: f64,
    states: States,
    /// Times of key frame requests, in seconds.
    ordered: Vec<f64>,
    /// Times at which frames were dropped, in seconds.
    given_up: Vec<f64>,
}

fn strips<'a>(run: &'a Run, flow: &FlowView<'a>) -> Vec<Strip> {
    let members = flow.members.iter();
    let strips = members.filter_map(|member| {
        let name = member.flow.info.name.as_str();
        let began = run.events_of(name).next()?.at.as_secs_f64();
        let states = states(run, member.flow, member.until);
        Some(Strip {
            began,
            until: member.until,
            states,
            ordered: moments(run, name, |e| matches!(e, Event::KeyFrameOrdered { .. })),
            given_up: moments(run, name, |e| matches!(e, Event::FrameDropped { .. })),
        })
    });
    strips.collect()
}

fn single(chart: &mut Chart, flow: &FlowView<'_>, strip: &Strip) {
    let panel = chart.strip(flow.title(), 16.0);
    shade(chart, &panel, strip);
    let steady = [(strip.began, strip.until, "steady")];
    let other = LOOKS.iter().flat_map(|(_, name, spans)| {
        let spans = spans(&strip.states).iter();
        spans.map(move |(from, to)| (*from, *to, *name))
    });
    let reading = Reading::spans("state", steady.into_iter().chain(other));
    chart.read(&panel, flow.name, reading);
    let strokes = STROKES.iter();
    if flow.outages.is_empty() && strokes.clone().all(|s| (s.2)(strip).is_empty()) {
        return;
    }
    let lane = chart.lane(2.0, 9.0);
    for (class, _, moments) in strokes.rev() {
        chart.strokes(&lane, class, moments(strip).iter().copied());
    }
}

/// Draws thin strips one below the other, without strokes.
fn many(chart: &mut Chart, flow: &FlowView<'_>, strips: &[Strip]) {
    let (colour, name, more) = flow.title();
    let shown = strips.len().min(MAX_STRIPS);
    let more = match strips.len() - shown {
        0 => more.to_owned(),
        _ => format!("{more}, the first {shown} shown"),
    };
    for (i, strip) in strips[..shown].iter().enumerate() {
        let panel = match i {
            0 => chart.strip((colour, name, &more), THIN),
            _ => chart.lane(1.0, THIN),
        };
        shade(chart, &panel, strip);
    }
    if !flow.outages.is_empty() {
        chart.lane(2.0, THIN);
    }
}

fn shade(chart: &mut Chart, panel: &Panel, strip: &Strip) {
    chart.shade(panel, "steady", &[(strip.began, strip.until)]);
    for (class, _, spans) in LOOKS {
        chart.shade(panel, class, spans(&strip.states));
    }
}

/// Class, name and intervals of a state; the most severe is last, since it is drawn over the
/// others.
type Look = (&'static str, &'static str, fn(&States) -> &[(f64, f64)]);

const LOOKS: [Look; 5] = [
    ("start", "slow start", |s| &s.slow_start),
    ("others", "queue of competing flows", |s| &s.contested),
    ("tight", "no rate meets the bound", |s| &s.infeasible),
    ("dead", "blackout", |s| &s.blackout),
    ("stopped", "stopped by the circuit breaker", |s| &s.stopped),
];

/// Class, name and times of events that are drawn as strokes below a strip.
type Stroke = (
    &'static str,
    &'static str,
    for<'a> fn(&'a Strip) -> &'a [f64],
);

const STROKES: [Stroke; 2] = [
    ("note", "key frame requested", |s| &s.ordered),
    ("bad", "frame dropped", |s| &s.given_up),
];

/// Maximum number of flows of a class that get a strip.
const MAX_STRIPS: usize = 20;

/// Height of a strip in a class of several flows.
const THIN: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::super::super::chart::Form;
    use super::super::super::testing;
    use super::*;

    #[test]
    fn legend_has_only_drawn_states() {
        let drawn = |run: &Run| {
            let view = View::new(run);
            let mut chart = Chart::new("c", Form::Wide, view.span, &view.outages);
            assert!(draw(&view, &mut chart));
            let (svg, height) = chart.finish();
            svg.into_element(height, "", "")
        };
        let mut run = testing::run();
        let entries = ["key frame requested", "frame dropped"];
        let whole = drawn(&run);
        assert!(entries.iter().all(|entry| whole.contains(entry)));
        let of_frames = |e: &Event| {
            matches!(
                e,
                Event::KeyFrameOrdered { .. } | Event::FrameDropped { .. }
            )
        };
        run.events.retain(|row| !of_frames(&row.event));
        let bare = drawn(&run);
        assert!(!entries.iter().any(|entry| bare.contains(entry)));
    }
}
