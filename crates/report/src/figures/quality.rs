//! PSNR of displayed pictures.

use super::super::chart::{Chart, Mark, Reading, Sample, Vertical};
use super::super::series::{Bin, Bins};
use super::super::states::{frozen, joined};
use super::super::view::{FlowView, SimFlow, View};

pub(super) fn draw(view: &View<'_>, chart: &mut Chart) -> bool {
    let curves: Vec<(&FlowView<'_>, Bins)> = view
        .flows
        .iter()
        .map(|flow| (flow, bins(view, flow)))
        .filter(|(_, bins)| bins.iter().any(|(_, bin)| bin.count > 0))
        .collect();
    if curves.is_empty() {
        return false;
    }
    let mut entries = view.legend(|flow| flow.members.iter().any(|m| !m.flow.shown.is_empty()));
    if !view.outages.is_empty() {
        entries.push((Sample::of(Mark::Square, "outage"), "outage"));
    }
    chart.legend(&entries);
    let panel = chart.panel(None, HEIGHT, &vertical(&curves));
    chart.begin_clip(&panel);
    for (flow, bins) in &curves {
        let range = panel.band(bins);
        chart.svg().path(&format!("{} band", flow.colour), &range);
    }
    for (flow, bins) in &curves {
        let pieces = bins.pieces(Bin::mean);
        chart.line(&panel, &format!("{} line", flow.colour), &pieces);
        let reading = Reading::lines(flow.name, flow.colour, &pieces);
        chart.read(&panel, "PSNR", reading);
    }
    chart.svg().end_clip();
    for (i, (flow, _)) in curves.iter().enumerate() {
        let lane = chart.lane(if i == 0 { 6.0 } else { 2.0 }, 7.0);
        if i == 0 {
            chart.label(&lane, "frozen");
        }
        let members = flow.members.iter();
        let spans = members.flat_map(|member| frozen(member.flow, &member.stories));
        let spans = joined(spans.collect());
        chart.shade(&lane, &format!("{} solid", flow.colour), &spans);
    }
    chart.time_axis();
    true
}

fn bins(view: &View<'_>, flow: &FlowView<'_>) -> Bins {
    let width = (view.duration() / 150.0).max(SHORTEST_BIN);
    let shown = flow.members.iter().flat_map(shown);
    Bins::new(view.span.0, view.span.1, width, shown)
}

/// Time at which each frame was due for display, and the PSNR of the displayed picture.
fn shown<'a>(member: &'a SimFlow<'_>) -> impl Iterator<Item = (f64, f64)> + 'a {
    let rate = member.flow.info.frame_rate;
    let first = member.stories.first();
    // Pictures are drawn at the capture times of their frames, like all data about frames.
    let origin = rate.zip(first).map_or(0.0, |(rate, first)| {
        first.captured.as_secs_f64() - rate.at(first.frame).as_secs_f64()
    });
    member.flow.shown.iter().filter_map(move |row| {
        let at = origin + rate?.at(row.frame).as_secs_f64();
        Some((at, row.quality?.psnr_y))
    })
}

/// Lines must fit completely; single bad frames of the ranges may leave the panel.
fn vertical(curves: &[(&FlowView<'_>, Bins)]) -> Vertical {
    let filled = || {
        let bins = curves.iter().flat_map(|(_, bins)| bins.iter());
        bins.map(|(_, bin)| bin).filter(|bin| bin.count > 0)
    };
    let least = filled().map(Bin::mean).fold(f64::MAX, f64::min);
    let most = filled().map(|bin| bin.max).fold(0.0, f64::max);
    let from = ((least - 1.0) / 5.0).floor().max(0.0) * 5.0;
    Vertical {
        from,
        to: ((most + 0.5) / 5.0).ceil().max(from / 5.0 + 1.0) * 5.0,
        unit: 1.0,
        name: "dB",
        ticks: 6,
    }
}

const HEIGHT: f64 = 190.0;

/// In seconds: several frames.
const SHORTEST_BIN: f64 = 0.4;
