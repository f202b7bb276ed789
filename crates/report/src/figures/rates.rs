//! Capacity, allowed rate, target rate and received rate.

use tidegate_core::trace::Event;
use tidegate_core::units::{Rate, Time};
use tidegate_record::{FlowRun, Run};

use super::super::chart::{Chart, Mark, Panel, Reading, Sample, Vertical};
use super::super::scale::round_top;
use super::super::series::{Bins, steps, thin};
use super::super::summary_text;
use super::super::svg::polyline;
use super::super::view::{FlowView, SimFlow, View};
use super::counted;

pub(super) fn draw(view: &View<'_>, chart: &mut Chart) -> bool {
    let curves: Vec<Curves> = view.flows.iter().map(|flow| curves(view, flow)).collect();
    if curves.iter().all(Curves::is_empty) {
        return false;
    }
    // Dashes distinguish it from the encoder's rate; alone, a solid line is more readable.
    let alone = curves.iter().all(|c| c.target.is_empty());
    let allowed = if alone { "allowed alone" } else { "allowed" };
    legend(view, chart, &curves, allowed);
    let shared = vertical(&curves);
    for (flow, curves) in view.flows.iter().zip(&curves) {
        let own = vertical(core::slice::from_ref(curves));
        // Otherwise the curve would be a flat line at the bottom of a panel with the common scale.
        let small = own.to > 0.0 && own.to < shared.to / 6.0;
        let vertical = if small { &own } else { &shared };
        let (colour, name, more) = flow.title();
        let scale = if small { "axis of its own" } else { "" };
        let above = above(&curves.capacity, vertical.to);
        let parts = [more, scale, &above];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let more = parts.collect::<Vec<_>>().join(", ");
        chart.set_outages(&flow.outages);
        let panel = chart.panel(Some((colour, name, &more)), HEIGHT, vertical);
        chart.begin_clip(&panel);
        draw_capacity(chart, &panel, &curves.capacity);
        draw_curves(chart, &panel, (flow.colour, allowed), curves);
        chart.svg().end_clip();
        read(chart, &panel, flow, curves);
    }
    chart.time_axis();
    true
}

fn read(chart: &mut Chart, panel: &Panel, flow: &FlowView<'_>, curves: &Curves) {
    let (least, most): (Vec<_>, Vec<_>) = curves
        .range
        .iter()
        .map(|(t, l, m)| ((*t, *l), (*t, *m)))
        .unzip();
    let lines = [
        ("arrived", flow.colour, vec![curves.arrived.clone()]),
        ("slowest flow", flow.colour, vec![least]),
        ("fastest flow", flow.colour, vec![most]),
        ("encoder target", "note", vec![curves.target.clone()]),
        ("allowed", "gone", vec![curves.allowed.clone()]),
        ("capacity", "limit", curves.capacity.clone()),
    ];
    for (name, colour, pieces) in lines {
        if pieces.iter().any(|piece| !piece.is_empty()) {
            chart.read(panel, flow.name, Reading::lines(name, colour, &pieces));
        }
    }
}

/// Text for the capacity of a link above the upper edge of the panel.
fn above(capacity: &[Vec<(f64, f64)>], top: f64) -> String {
    let rates = || capacity.iter().flatten().map(|point| point.1);
    let (least, most) = rates().fold((f64::INFINITY, 0.0_f64), |(least, most), rate| {
        (least.min(rate), most.max(rate))
    });
    if most <= top {
        String::new()
    } else if least < most {
        format!("capacity up to {}", summary_text::rate(most))
    } else {
        format!("capacity {}", summary_text::rate(most))
    }
}

fn legend(view: &View<'_>, chart: &mut Chart, curves: &[Curves], allowed: &'static str) {
    let any = |has: fn(&Curves) -> bool| curves.iter().any(has);
    let several = any(|c| !c.range.is_empty());
    let arrived = if several {
        "arrived, of several flows their sum"
    } else {
        "arrived"
    };
    let flows = || view.flows.iter().zip(curves);
    let colours = |mark, has: fn(&Curves) -> bool| {
        let with = flows().filter(|(_, curves)| has(curves));
        Sample::each(mark, with.map(|(flow, _)| flow.colour))
    };
    let paths = view.flows.iter().map(|flow| flow.path.len());
    let capacity = if paths.max() > Some(1) {
        "capacity of the flow's path"
    } else {
        "capacity of the link"
    };
    let entries = [
        (
            any(|c| !c.capacity.is_empty()),
            Sample::of(Mark::Square, "cap"),
            capacity,
        ),
        (
            any(|c| !c.allowed.is_empty()),
            Sample::of(Mark::Line, allowed),
            "allowed rate",
        ),
        (
            any(|c| !c.target.is_empty()),
            Sample::of(Mark::Line, "target"),
            "encoder target",
        ),
        (
            !view.outages.is_empty(),
            Sample::of(Mark::Square, "outage"),
            "outage",
        ),
        (
            any(|c| !c.arrived.is_empty()),
            colours(Mark::Flow, |c| !c.arrived.is_empty()),
            arrived,
        ),
        (
            several,
            colours(Mark::Band, |c| !c.range.is_empty()),
            "slowest to fastest of several",
        ),
    ];
    let present = entries.into_iter().filter(|entry| entry.0);
    let entries: Vec<_> = present.map(|(_, sample, text)| (sample, text)).collect();
    chart.legend(&entries);
}

fn draw_curves(chart: &mut Chart, panel: &Panel, (colour, allowed): (&str, &str), curves: &Curves) {
    let width = chart.resolution();
    // Values far above the panel are limited, which keeps numbers short.
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
    chart.line(panel, allowed, &line(&curves.allowed));
    chart.line(panel, &format!("{colour} line"), &line(&curves.arrived));
    chart.line(panel, "target", &line(&curves.target));
}

/// Rates of one flow in b/s over seconds.
#[derive(Default)]
struct Curves {
    /// Capacity of the slowest link of its path, in pieces between times without a limit.
    capacity: Vec<Vec<(f64, f64)>>,
    allowed: Vec<(f64, f64)>,
    target: Vec<(f64, f64)>,
    /// Sum of the rates of the flows.
    arrived: Vec<(f64, f64)>,
    /// Rates of the slowest and of the fastest of several flows.
    range: Vec<(f64, f64, f64)>,
}

impl Curves {
    fn is_empty(&self) -> bool {
        self.allowed.is_empty() && self.target.is_empty() && self.arrived.is_empty()
    }
}

fn curves(view: &View<'_>, flow: &FlowView<'_>) -> Curves {
    let Some(member) = flow.single() else {
        return together(view, flow);
    };
    let SimFlow {
        flow: rows, bins, ..
    } = member;
    let (run, end) = (view.run, member.until);
    let samples = |pick: fn(&Event) -> Option<f64>| {
        let rows = run.events_of(&rows.info.name);
        let values = rows.filter_map(|row| Some((row.at.as_secs_f64(), pick(&row.event)?)));
        steps(values, end)
    };
    let first = |one: Vec<(f64, f64)>, other: &dyn Fn() -> Vec<(f64, f64)>| {
        if one.is_empty() { other() } else { one }
    };
    // Counters at the receiver use the clock of the run, whichever clock the packets have.
    let arrived = if bins.is_empty() {
        first(arrived(view, run, rows), &|| samples(sampled_receive))
    } else {
        counted::received(bins, view.span, rate_bin(view)).totals()
    };
    let target = || first(samples(sampled_media), &|| frame_targets(rows, end));
    Curves {
        capacity: capacity(view, flow),
        allowed: first(samples(sampled_send), &|| samples(changed_rate)),
        // Other flows have no encoder.
        target: if rows.info.has_video() {
            target()
        } else {
            Vec::new()
        },
        arrived,
        range: Vec::new(),
    }
}

/// Sum of the rates of the flows of a class, and the rates of the slowest and the fastest flow.
fn together(view: &View<'_>, flow: &FlowView<'_>) -> Curves {
    let width = rate_bin(view);
    let all = flow.members.iter().flat_map(|member| &member.bins);
    // Over short intervals the slowest flow is nearly always idle.
    let wide = counted::whole((view.duration() / 60.0).max(MIN_RANGE));
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
    // Nothing is drawn where all flows are idle.
    let (first, last) = (arrived.first(), arrived.last());
    let there = |at: f64| {
        let begun = first.is_some_and(|(first, _)| *first <= at);
        begun && last.is_some_and(|(last, _)| at <= *last)
    };
    range.retain(|(at, _, _)| there(*at));
    Curves {
        range,
        arrived,
        capacity: capacity(view, flow),
        ..Curves::default()
    }
}

/// Bin length in seconds.
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
    // The receiver's clock may be hours off: the first packet then counts as delivered immediately.
    let mut packets = flow.packets.iter();
    let first = packets.find_map(|row| Some((row.sent, row.arrived?)));
    let (left, came) = match first {
        Some(both) if !flow.info.one_clock => both,
        _ => (Time::ZERO, Time::ZERO),
    };
    let packets = flow.packets.iter().filter_map(|row| {
        let at = (left + row.arrived?.since(came)).as_secs_f64();
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

/// At each time the capacity of the slowest link of the path and of the flow's access links; for a
/// class the sum.
fn capacity(view: &View<'_>, flow: &FlowView<'_>) -> Vec<Vec<(f64, f64)>> {
    let end = view.span.1;
    let links = &flow.path;
    let mut edges = vec![Time::ZERO];
    edges.extend(links.iter().flat_map(|l| l.capacity.iter().map(|s| s.from)));
    let outages = links.iter().flat_map(|link| &link.outages);
    edges.extend(outages.flat_map(|o| [o.from, o.to]));
    edges.retain(|edge| edge.as_secs_f64() < end);
    edges.sort_unstable();
    edges.dedup();
    let own = flow.info().way.access.map(Rate::as_f64);
    let own = own.map(|rate| rate * flow.members.len() as f64);
    let least = |at: Time| {
        let rates = links.iter().filter_map(|link| link.capacity_at(at));
        rates.map(Rate::as_f64).chain(own).reduce(f64::min)
    };
    let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut open = false;
    for (i, edge) in edges.iter().enumerate() {
        let next = edges.get(i + 1).map_or(end, |next| next.as_secs_f64());
        let rate = least(*edge);
        if let Some(rate) = rate {
            if !open {
                pieces.push(Vec::new());
            }
            let piece = pieces.last_mut().expect("never empty");
            piece.extend([(edge.as_secs_f64(), rate), (next, rate)]);
        }
        open = rate.is_some();
    }
    pieces
}

fn draw_capacity(chart: &mut Chart, panel: &Panel, capacity: &[Vec<(f64, f64)>]) {
    let width = chart.resolution();
    let capped = |piece: &Vec<(f64, f64)>| {
        let points = piece.iter().map(|(t, v)| (*t, v.min(2.0 * panel.y.to)));
        thin(&points.collect::<Vec<_>>(), width)
    };
    let pieces: Vec<Vec<(f64, f64)>> = capacity.iter().map(capped).collect();
    let mut d = String::new();
    for piece in &pieces {
        let (Some(first), Some(last)) = (piece.first(), piece.last()) else {
            continue;
        };
        let foot = [(last.0, 0.0), (first.0, 0.0)];
        polyline(&mut d, piece.iter().chain(&foot).map(|p| panel.at(*p)));
        d.push('z');
    }
    chart.svg().path("cap", &d);
    chart.line(panel, "capline", &pieces);
}

/// Covers the measured rates. Allowed rates may leave the panel, and so may a capacity of which
/// little was used.
fn vertical(curves: &[Curves]) -> Vertical {
    let top = |points: &[(f64, f64)]| points.iter().map(|p| p.1).fold(0.0, f64::max);
    let capacity = |c: &Curves| {
        c.capacity
            .iter()
            .map(|piece| top(piece))
            .fold(0.0, f64::max)
    };
    let own = curves.iter().map(|c| {
        let (capacity, used) = (capacity(c), top(&c.arrived));
        if capacity <= UNUSED * used {
            capacity.max(used)
        } else {
            used
        }
    });
    let mut to = own.fold(0.0, f64::max);
    if to == 0.0 {
        to = curves.iter().map(capacity).fold(0.0, f64::max);
    }
    for curves in curves {
        to = to.max(top(&curves.target).min(2.0 * to));
        if to == 0.0 {
            to = top(&curves.target).max(top(&curves.allowed));
        }
    }
    let (unit, name) = if to >= 1e9 {
        (1e9, "Gb/s")
    } else if to >= 1e6 {
        (1e6, "Mb/s")
    } else {
        (1e3, "kb/s")
    };
    Vertical {
        from: 0.0,
        to: round_top(to * 1.04 / unit, 6) * unit,
        unit,
        name,
        ticks: 6,
    }
}

/// A capacity beyond this multiple of the received rate is written as text, since it would flatten
/// the curve.
const UNUSED: f64 = 5.0;

const HEIGHT: f64 = 132.0;

/// In seconds: a few frames, so that the thick line does not show the frame interval.
const SHORTEST_BIN: f64 = 0.25;

/// In seconds: interval over which ranges of rates are computed.
const MIN_RANGE: f64 = 1.0;

#[cfg(test)]
mod tests {
    use crate::testing;

    use super::*;

    fn pieces(pieces: &[Vec<(f64, f64)>]) -> Vec<(f64, f64)> {
        pieces.concat()
    }

    #[test]
    fn a_flow_has_the_capacity_of_its_own_path() {
        let mut run = testing::run();
        let mut other = run.manifest.links[0].clone();
        other.name = "other".to_owned();
        other.capacity.truncate(1);
        other.capacity[0].rate = Some(Rate::kbps(1_000));
        other.outages.clear();
        run.manifest.links.push(other);
        let paths: [&[&str]; 3] = [&["bottleneck"], &["bottleneck", "other"], &[]];
        for (flow, path) in run.flows.iter_mut().zip(paths) {
            flow.info.way.path = path.iter().map(|&link| link.to_owned()).collect();
        }
        let view = View::new(&run);
        let of = |flow: usize| pieces(&capacity(&view, &view.flows[flow]));
        let at = |corners: &[(f64, f64)], at: f64| {
            let piece = corners.chunks(2).find(|ends| at < ends[1].0);
            piece.map(|ends| ends[0].1)
        };
        assert_eq!(at(&of(0), 5.0), Some(2e6));
        assert_eq!(at(&of(0), 28.5), Some(0.0));
        // Capacity of the slower link.
        assert_eq!(at(&of(1), 5.0), Some(1e6));
        assert_eq!(at(&of(1), 20.0), Some(0.9e6));
        // The path is unknown.
        assert_eq!(of(2), []);
        let mut run = testing::run();
        run.flows[0].info.way.access = Some(Rate::kbps(100));
        let view = View::new(&run);
        let old = pieces(&capacity(&view, &view.flows[1]));
        assert_eq!(at(&old, 5.0), Some(2e6), "there is only one link");
        let own = pieces(&capacity(&view, &view.flows[0]));
        assert_eq!(at(&own, 5.0), Some(1e5));
    }

    #[test]
    fn lines_end_where_the_flow_stopped() {
        let mut run = testing::run();
        let stop = Time::from_secs(30);
        run.flows[1].packets.retain(|row| row.sent < stop);
        run.flows[1].sent.retain(|row| row.captured < stop);
        let view = View::new(&run);
        let curves = curves(&view, &view.flows[1]);
        for line in [&curves.allowed, &curves.target] {
            let last = line.last().expect("it had rates").0;
            assert!(last < 60.0, "{last}");
        }
        assert!((view.flows[1].members[0].until - 30.0).abs() < 0.1);
        assert!((view.flows[0].members[0].until - 60.0).abs() < 1e-9);
    }

    #[test]
    fn legend_has_no_encoder_without_video() {
        let mut run = testing::run();
        for flow in &mut run.flows {
            flow.info.frame_rate = None;
        }
        let view = View::new(&run);
        let mut chart = Chart::new("c", super::super::super::chart::Form::Wide, view.span, &[]);
        assert!(draw(&view, &mut chart));
        let (svg, height) = chart.finish();
        let drawn = svg.into_element(height, "", "");
        assert!(!drawn.contains("encoder target") && drawn.contains("allowed rate"));
    }

    #[test]
    fn curve_of_a_class_is_the_sum_of_its_flows() {
        let run = testing::crowd(4);
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
