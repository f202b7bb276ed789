//! What the sender was up to.

use tidegate_core::trace::Event;

use super::super::chart::{Chart, Sample};
use super::super::states::{States, moments, states};
use super::View;

pub(super) fn draw(view: &View<'_>, chart: &mut Chart) -> bool {
    if view.run.events.is_empty() {
        return false;
    }
    let end = view.span.1;
    let all: Vec<States> = view
        .flows
        .iter()
        .map(|flow| states(view.run, flow.flow, end))
        .collect();
    let mut entries = vec![(Sample::Square("steady"), "steady")];
    for (class, name, spans) in LOOKS {
        if all.iter().any(|states| !spans(states).is_empty()) {
            entries.push((Sample::Square(class), name));
        }
    }
    entries.push((Sample::Tick("note"), "key frame ordered"));
    entries.push((Sample::Tick("bad"), "frame given up"));
    if !view.outages.is_empty() {
        entries.push((Sample::Square("outage"), "outage of the link"));
    }
    chart.legend(&entries);

    for (flow, states) in view.flows.iter().zip(&all) {
        let strip = chart.strip(flow.title(), 16.0);
        let began = view.run.events_of(flow.name()).next();
        let began = began.map(|row| (row.at.as_secs_f64(), end));
        chart.shade(&strip, "steady", began.as_slice());
        for (class, _, spans) in LOOKS {
            chart.shade(&strip, class, spans(states));
        }
        let lane = chart.lane(2.0, 9.0);
        let given_up = |e: &Event| matches!(e, Event::FrameDropped { .. });
        let ordered = |e: &Event| matches!(e, Event::KeyFrameOrdered { .. });
        let given_up = moments(view.run, flow.name(), given_up);
        chart.strokes(&lane, "bad", given_up.into_iter());
        let ordered = moments(view.run, flow.name(), ordered);
        chart.strokes(&lane, "note", ordered.into_iter());
    }
    chart.time_axis();
    true
}

/// Class, name and spans of a state, the gravest last since it is drawn over the others.
type Look = (&'static str, &'static str, fn(&States) -> &[(f64, f64)]);

const LOOKS: [Look; 4] = [
    ("start", "slow start", |s| &s.slow_start),
    ("tight", "no rate keeps the bound", |s| &s.infeasible),
    ("dead", "blackout", |s| &s.blackout),
    ("stopped", "stopped by the circuit breaker", |s| &s.stopped),
];
