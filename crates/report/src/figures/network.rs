//! Queueing delay and losses.

use tidegate_core::control::Kind;
use tidegate_record::metrics::queueing_delays;
use tidegate_record::{PacketOutcome, Totals};

use super::super::chart::{Chart, Mark, Panel, Reading, Sample, Vertical};
use super::super::scale::{top_of, top_of_percent};
use super::super::series::{Bin, Bins};
use super::super::summary_text;
use super::super::svg::polyline;
use super::super::view::{FlowView, SimFlow, View};
use super::counted;

pub(super) fn draw(view: &View<'_>, chart: &mut Chart) -> bool {
    let width = (view.duration() / 240.0).max(QUEUE_BIN);
    let curves: Vec<(&FlowView<'_>, Bins)> = view
        .flows
        .iter()
        .map(|flow| (flow, queueing(view, flow, width)))
        .filter(|(_, bins)| bins.filled().next().is_some())
        .collect();
    if curves.is_empty() {
        return false;
    }
    let drawn = |flow: &FlowView<'_>| curves.iter().any(|(other, _)| other.name == flow.name);
    let mut entries = view.legend(drawn);
    if !view.outages.is_empty() {
        entries.push((Sample::of(Mark::Square, "outage"), "outage"));
    }
    chart.legend(&entries);
    draw_queue(chart, &curves);
    draw_losses(view, chart);
    chart.time_axis();
    true
}

/// Mean queueing delay over short intervals, from packets, or from counters if packets are not
/// recorded.
fn queueing(view: &View<'_>, flow: &FlowView<'_>, width: f64) -> Bins {
    let (from, to) = view.span;
    if flow.members.iter().any(|m| !m.flow.packets.is_empty()) {
        let members = flow.members.iter();
        let delays = members.flat_map(|member| queueing_delays(member.flow));
        let delays = delays.map(|(sent, nanos)| (sent.as_secs_f64(), nanos as f64 / 1e6));
        return Bins::new(from, to, width, delays);
    }
    let width = counted::whole(width);
    let waits = || {
        let members = flow.members.iter();
        members.flat_map(|m| counted::waits(&m.bins, least_delay(view, m)))
    };
    let packets = Bins::new(from, to, width, waits().map(|wait| (wait.at, wait.packets)));
    let sums = Bins::new(from, to, width, waits().map(|wait| (wait.at, wait.sum)));
    let both = packets.iter().zip(sums.iter());
    let means = both.filter(|((_, packets), _)| packets.count > 0);
    let means = means.map(|((at, packets), (_, sum))| (at, sum.sum / packets.sum));
    Bins::new(from, to, width, means)
}

/// Minimum known one-way delay of a flow, in seconds.
fn least_delay(view: &View<'_>, member: &SimFlow<'_>) -> f64 {
    let means = member.bins.iter().filter_map(|row| row.bin.delay_mean());
    let measured = view.run.totals_of(&member.flow.info.name);
    let has_delays = |totals: &&Totals| totals.received.packets > 0 && member.flow.info.one_clock;
    let measured = measured.filter(has_delays);
    let least = means.chain(measured.map(|totals| totals.delay_min)).min();
    least.unwrap_or_default().as_secs_f64()
}

fn draw_queue(chart: &mut Chart, curves: &[(&FlowView<'_>, Bins)]) {
    let bins = curves.iter().flat_map(|(_, bins)| bins.filled());
    let vertical = Vertical {
        from: 0.0,
        to: top_of(bins.map(|(_, bin)| bin.mean()), 5),
        unit: 1.0,
        name: "ms",
        ticks: 5,
    };
    let title = Some(("", "Queueing delay", ""));
    let panel = chart.panel(title, 150.0, &vertical);
    chart.begin_clip(&panel);
    let mut lines = Vec::new();
    for (flow, bins) in curves {
        let pieces = bins.pieces(Bin::mean);
        chart.line(&panel, &format!("{} line", flow.colour), &pieces);
        let reading = Reading::lines(flow.name, flow.colour, &pieces);
        chart.read(&panel, "Queueing delay", reading);
        lines.extend(pieces.into_iter().map(|piece| (flow.colour, piece)));
    }
    chart.svg().end_clip();
    let lines = lines.iter().map(|(colour, piece)| (*colour, &piece[..]));
    chart.beyond(&panel, lines, summary_text::millis);
}

fn draw_losses(view: &View<'_>, chart: &mut Chart) {
    let width = (view.duration() / 120.0).max(LOSS_BIN);
    let curves: Vec<(&FlowView<'_>, Bins, f64)> = view
        .flows
        .iter()
        .map(|flow| (flow, losses(view, flow, width)))
        .filter(|(_, bins)| bins.filled().next().is_some())
        .map(|(flow, bins)| (flow, top_of_percent(usual(flow, &bins)), bins))
        .map(|(flow, top, bins)| (flow, bins, top))
        .collect();
    let shared = curves.iter().map(|(.., top)| *top).fold(0.0, f64::max);
    for (flow, bins, top) in &curves {
        // Otherwise the curve would be a flat line at the bottom of a panel with the common scale.
        let small = *top < shared / 4.0;
        let vertical = Vertical {
            from: 0.0,
            to: if small { *top } else { shared },
            unit: 1.0,
            name: "% lost",
            ticks: 1,
        };
        let (colour, name, more) = flow.title();
        let scale = if small { "axis of its own" } else { "" };
        let parts = [more, scale].into_iter().filter(|part| !part.is_empty());
        let more = parts.collect::<Vec<_>>().join(", ");
        chart.set_outages(&flow.outages);
        let panel = chart.panel(Some((colour, name, &more)), 44.0, &vertical);
        bars(chart, &panel, colour, bins);
        let shares = bins.filled().map(|(at, bin)| (at, bin.mean()));
        let reading = Reading::bars("packets", colour, bins.width() / 2.0, shares);
        chart.read(&panel, name, reading);
    }
}

/// Losses that determine the scale: outages are excluded, since they lose all packets.
fn usual<'a>(flow: &'a FlowView<'_>, bins: &'a Bins) -> impl Iterator<Item = f64> + 'a {
    let half = bins.width() / 2.0;
    let dark = move |at: f64| {
        let mut outages = flow.outages.iter();
        outages.any(|(from, to)| at + half > *from && at - half < *to)
    };
    let lit = bins.filled().filter(move |(at, _)| !dark(*at));
    lit.map(|(_, bin)| bin.mean())
}

/// Percent lost of the packets with a known outcome, dummies excluded. If packets are not recorded:
/// packets dropped by links relative to packets sent in the same interval.
fn losses(view: &View<'_>, flow: &FlowView<'_>, width: f64) -> Bins {
    if flow.members.iter().all(|m| m.flow.packets.is_empty()) {
        let rows = || flow.members.iter().flat_map(|m| &m.bins);
        return counted::dropped(rows, view.span, counted::whole(width));
    }
    let packets = flow.members.iter().flat_map(|m| &m.flow.packets);
    let packets = packets.filter(|row| row.kind != Kind::Dummy);
    let outcomes = packets.filter_map(|row| {
        let percent = match row.outcome {
            PacketOutcome::Lost => 100.0,
            PacketOutcome::Received => 0.0,
            PacketOutcome::Unknown => return None,
        };
        Some((row.sent.as_secs_f64(), percent))
    });
    Bins::new(view.span.0, view.span.1, width, outcomes)
}

/// Adjacent bars as one shape, so that no seams are visible.
fn bars(chart: &mut Chart, panel: &Panel, colour: &str, bins: &Bins) {
    let half = bins.width() / 2.0;
    let foot = panel.area.bottom();
    let mut d = String::new();
    for piece in bins
        .pieces(Bin::mean)
        .iter()
        .flat_map(|p| p.split(|(_, lost)| *lost <= 0.0))
    {
        let (Some(first), Some(last)) = (piece.first(), piece.last()) else {
            continue;
        };
        let corners = piece.iter().flat_map(|(at, lost)| {
            // A single lost packet of many stays visible.
            let y = panel.y.at(*lost).clamp(panel.area.y, foot - 1.0);
            [(panel.x.at(at - half), y), (panel.x.at(at + half), y)]
        });
        let ends = [panel.x.at(last.0 + half), panel.x.at(first.0 - half)];
        polyline(&mut d, corners.chain(ends.map(|x| (x, foot))));
        d.push('z');
    }
    chart.svg().path(&format!("{colour} solid"), &d);
    let points: Vec<(f64, f64)> = bins.filled().map(|(at, bin)| (at, bin.mean())).collect();
    let show = |percent: f64| format!("{percent:.0} %");
    chart.beyond(panel, [(colour, &points[..])], show);
}

/// In seconds: several packets at video rates.
const QUEUE_BIN: f64 = 0.1;
const LOSS_BIN: f64 = 0.5;
