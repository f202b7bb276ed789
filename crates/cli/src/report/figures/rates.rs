//! Capacity, allowance, target and what arrived.

use tidegate_core::trace::Event;
use tidegate_core::units::Time;
use tidegate_sim::run::{FlowRun, LinkInfo, Run};

use super::super::chart::{Chart, Panel, Sample, Vertical};
use super::super::scale::round_top;
use super::super::series::{Bins, steps, thin};
use super::super::svg::polyline;
use super::super::view::{FlowView, Member, View};
use super::counted;

pub(super) fn draw(view: &View<'_>, chart: &mut Chart) -> bool {
    let curves: Vec<Curves> = view.flows.iter().map(|flow| curves(view, flow)).collect();
    if curves.iter().all(Curves::is_empty) {
        return false;
    }
    let capacity = view.bottleneck.map(|link| capacity(link, view.span.1));
    let capacity = capacity.unwrap_or_default();
    legend(view, chart, &curves, !capacity.is_empty());
    let shared = vertical(&curves, &capacity);
    for (flow, curves) in view.flows.iter().zip(&curves) {
        let own = vertical(core::slice::from_ref(curves), &[]);
        // What would be a line along the foot of a panel like the others.
        let small = own.to > 0.0 && own.to < shared.to / 20.0;
        let vertical = if small { &own } else { &shared };
        let (colour, name, more) = flow.title();
        let scale = if small { "axis of its own" } else { "" };
        let parts = [more, scale].into_iter().filter(|part| !part.is_empty());
        let more = parts.collect::<Vec<_>>().join(", ");
        let panel = chart.panel(Some((colour, name, &more)), HEIGHT, vertical);
        chart.begin_clip(&panel);
        draw_capacity(chart, &panel, &capacity);
        draw_curves(chart, &panel, flow.colour, curves);
        chart.svg().end_clip();
    }
    chart.time_axis();
    true
}

fn legend(view: &View<'_>, chart: &mut Chart, curves: &[Curves], limited: bool) {
    let any = |has: fn(&Curves) -> bool| curves.iter().any(has);
    let several = any(|c| !c.range.is_empty());
    let arrived = if several {
        "arrived, of several flows their sum"
    } else {
        "arrived (in the flow's colour)"
    };
    let entries = [
        (limited, Sample::Square("cap"), "capacity of the link"),
        (
            any(|c| !c.allowed.is_empty()),
            Sample::Line("allowed"),
            "allowed to send",
        ),
        (
            any(|c| !c.target.is_empty()),
            Sample::Line("target"),
            "encoder told",
        ),
        (!view.outages.is_empty(), Sample::Square("outage"), "outage"),
        (true, Sample::Flow("note"), arrived),
        (
            several,
            Sample::Square("note band"),
            "slowest to fastest of several",
        ),
    ];
    let present = entries.into_iter().filter(|entry| entry.0);
    let entries: Vec<_> = present.map(|(_, sample, text)| (sample, text)).collect();
    chart.legend(&entries);
}

fn draw_curves(chart: &mut Chart, panel: &Panel, colour: &str, curves: &Curves) {
    let width = chart.resolution();
    // Far above the panel is as good as infinite, and keeps numbers short.
    let most = 2.0 * panel.y.to;
    let line = |points: &[(f64, f64)]| {
        let capped = points.iter().map(|(t, v)| (*t, v.min(most)));
        vec![thin(&capped.collect::<Vec<_>>(), width)]
    };
    let lower = curves.range.iter().map(|(t, least, _)| (*t, *least));
    let upper = curves.range.iter().rev().map(|(t, _, most)| (*t, *most));
    let mut band = String::new();
    polyline(&mut band, lower.chain(upper).map(|p| panel.at(p)));
    chart.svg().path(&format!("{colour} band"), &band);
    chart.line(panel, "allowed", &line(&curves.allowed));
    chart.line(panel, &format!("{colour} line"), &line(&curves.arrived));
    chart.line(panel, "target", &line(&curves.target));
}

/// Rates of one flow in b/s over seconds.
#[derive(Default)]
struct Curves {
    allowed: Vec<(f64, f64)>,
    target: Vec<(f64, f64)>,
    /// Of several flows together.
    arrived: Vec<(f64, f64)>,
    /// What arrived of the slowest and of the fastest of several flows.
    range: Vec<(f64, f64, f64)>,
}

impl Curves {
    fn is_empty(&self) -> bool {
        self.allowed.is_empty() && self.target.is_empty() && self.arrived.is_empty()
    }
}

fn curves(view: &View<'_>, flow: &FlowView<'_>) -> Curves {
    let Some(Member {
        flow: rows, bins, ..
    }) = flow.single()
    else {
        return together(view, flow);
    };
    let (run, end) = (view.run, view.span.1);
    let samples = |pick: fn(&Event) -> Option<f64>| {
        let rows = run.events_of(&rows.info.name);
        let values = rows.filter_map(|row| Some((row.at.as_secs_f64(), pick(&row.event)?)));
        steps(values, end)
    };
    let first = |one: Vec<(f64, f64)>, other: &dyn Fn() -> Vec<(f64, f64)>| {
        if one.is_empty() { other() } else { one }
    };
    let arrived = if rows.packets.is_empty() && !bins.is_empty() {
        counted::received(bins, view.span, rate_bin(view)).totals()
    } else {
        first(arrived(view, run, rows), &|| samples(sampled_receive))
    };
    Curves {
        allowed: first(samples(sampled_send), &|| samples(changed_rate)),
        target: first(samples(sampled_media), &|| frame_targets(rows, end)),
        arrived,
        range: Vec::new(),
    }
}

/// What the flows of a class did together, and how much the slowest and the fastest of them.
fn together(view: &View<'_>, flow: &FlowView<'_>) -> Curves {
    let width = rate_bin(view);
    let all = flow.members.iter().flat_map(|member| &member.bins);
    // Of short spans the slowest is nearly always at rest.
    let wide = counted::whole((view.duration() / 60.0).max(LEAST_RANGE));
    let each = flow.members.iter();
    let each = each.map(|member| counted::received(&member.bins, view.span, wide));
    let mut range: Vec<(f64, f64, f64)> = Vec::new();
    for bins in each {
        for (i, (at, bin)) in bins.iter().enumerate() {
            match range.get_mut(i) {
                Some((_, least, most)) => {
                    (*least, *most) = (least.min(bin.sum), most.max(bin.sum));
                }
                None => range.push((at, bin.sum, bin.sum)),
            }
        }
    }
    let arrived = counted::received(all, view.span, width).totals();
    Curves {
        range: if arrived.is_empty() {
            Vec::new()
        } else {
            range
        },
        arrived,
        ..Curves::default()
    }
}

/// In seconds.
fn rate_bin(view: &View<'_>) -> f64 {
    counted::whole((view.duration() / 240.0).max(SHORTEST_BIN))
}

fn sampled_send(event: &Event) -> Option<f64> {
    match event {
        Event::Sample { send, .. } => Some(send.as_f64()),
        _ => None,
    }
}

fn sampled_media(event: &Event) -> Option<f64> {
    match event {
        Event::Sample { media, .. } => Some(media.as_f64()),
        _ => None,
    }
}

fn sampled_receive(event: &Event) -> Option<f64> {
    match event {
        Event::Sample { receive, .. } => Some(receive.as_f64()),
        _ => None,
    }
}

fn changed_rate(event: &Event) -> Option<f64> {
    match event {
        Event::RateChanged { to, .. } => Some(to.as_f64()),
        _ => None,
    }
}

fn frame_targets(flow: &FlowRun, end: f64) -> Vec<(f64, f64)> {
    let Some(rate) = flow.info.frame_rate else {
        return Vec::new();
    };
    let rows = flow.sent.iter();
    let values = rows.map(|row| {
        let bps = row.target_bits as f64 * rate.as_f64();
        (row.captured.as_secs_f64(), bps)
    });
    steps(values, end)
}

fn arrived(view: &View<'_>, run: &Run, flow: &FlowRun) -> Vec<(f64, f64)> {
    let width = (view.duration() / 240.0).max(SHORTEST_BIN);
    // The receiver's clock may be hours away: then the arrivals are counted from the first one.
    let first = flow.packets.iter().find_map(|row| row.arrived);
    let offset = if flow.info.one_clock {
        Time::ZERO
    } else {
        first.unwrap_or(Time::ZERO)
    };
    let packets = flow.packets.iter().filter_map(|row| {
        let at = row.arrived?.since(offset).as_secs_f64();
        Some((at, row.size.bits() as f64 / width))
    });
    Bins::new(
        0.0,
        run.end().as_secs_f64().min(view.span.1),
        width,
        packets,
    )
    .totals()
}

fn capacity(link: &LinkInfo, end: f64) -> Vec<(f64, f64)> {
    let mut edges: Vec<Time> = link.capacity.iter().map(|step| step.from).collect();
    edges.extend(link.outages.iter().flat_map(|o| [o.from, o.to]));
    edges.push(Time::ZERO);
    edges.sort_unstable();
    edges.dedup();
    let unlimited = edges.iter().any(|at| link.capacity_at(*at).is_none());
    if unlimited || link.capacity.is_empty() {
        return Vec::new();
    }
    let values = edges.into_iter().filter_map(|at| {
        let rate = link.capacity_at(at)?;
        Some((at.as_secs_f64(), rate.as_f64()))
    });
    steps(values.filter(|(at, _)| *at < end), end)
}

fn draw_capacity(chart: &mut Chart, panel: &Panel, capacity: &[(f64, f64)]) {
    let (Some(first), Some(last)) = (capacity.first(), capacity.last()) else {
        return;
    };
    let mut d = String::new();
    let foot = [(last.0, 0.0), (first.0, 0.0)];
    polyline(&mut d, capacity.iter().chain(&foot).map(|p| panel.at(*p)));
    chart.svg().path("cap", &d);
    chart.line(panel, "capline", &[capacity.to_vec()]);
}

/// High enough for what happened; what was merely allowed may leave the panel.
fn vertical(curves: &[Curves], capacity: &[(f64, f64)]) -> Vertical {
    let top = |points: &[(f64, f64)]| points.iter().map(|p| p.1).fold(0.0, f64::max);
    let mut to = top(capacity);
    for curves in curves {
        to = to
            .max(top(&curves.arrived))
            .max(top(&curves.target).min(2.0 * to));
        if to == 0.0 {
            to = top(&curves.target).max(top(&curves.allowed));
        }
    }
    let (unit, name) = if to >= 1e6 {
        (1e6, "Mb/s")
    } else {
        (1e3, "kb/s")
    };
    Vertical {
        from: 0.0,
        to: round_top(to * 1.04 / unit, 3) * unit,
        unit,
        name,
        ticks: 4,
    }
}

const HEIGHT: f64 = 132.0;

/// In seconds: a few frames, so that the thick line is not the frames' own rhythm.
const SHORTEST_BIN: f64 = 0.25;

/// In seconds: what a range of rates is taken over.
const LEAST_RANGE: f64 = 1.0;

#[cfg(test)]
mod tests {
    use crate::report::fake;

    use super::*;

    #[test]
    fn the_curve_of_a_class_is_what_its_flows_received_together() {
        let run = fake::crowd(4);
        let view = View::new(&run);
        let web = view.flows.last().expect("four flows");
        assert_eq!((web.name, web.members.len()), ("web", 4));
        let curves = curves(&view, web);
        // 25, 50, 75 and 100 bytes in 200 ms.
        let near = |bps: f64, wanted: f64| (bps - wanted).abs() < 1e-6;
        assert!(curves.arrived.len() > 100 && curves.range.len() > 50);
        assert!(curves.arrived.iter().all(|(_, bps)| near(*bps, 10_000.0)));
        let ends =
            |(_, least, most): &(f64, f64, f64)| near(*least, 1_000.0) && near(*most, 4_000.0);
        assert!(curves.range.iter().all(ends), "{:?}", curves.range);
    }
}
