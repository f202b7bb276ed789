//! The scorecard of the RMCAT cases: which controller keeps which limits, and what it did.

mod tables;

use core::fmt::Write as _;
use core::ops::Range;

use tidegate_core::units::Rate;
use tidegate_sim::rmcat::{Case, FlowOutcome, Metric, Outcome, is_media};
use tidegate_sim::run::LinkInfo;
use tidegate_sim::scenario::{FlowPlan, LinkPlan, Scenario};

use super::chart::{Chart, Form, Panel, Sample, Vertical};
use super::scale::round_top;
use super::series::steps;
use super::svg::{escape, polyline};
use super::theme;
use crate::rmcat::{Entry, passes};

/// The whole page. Entries of one case stand together.
pub(super) fn page(entries: &[Entry]) -> String {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>RMCAT scorecard · Tidegate</title><style>{}{}{}</style></head><body><main>",
        include_str!("page.css"),
        include_str!("scorecard.css"),
        theme::page_style()
    );
    html.push_str(
        "<h1>RMCAT scorecard</h1><p class=\"facts\">Test cases of RFC 8867, and of RFC 8869 as far as \
         links can carry them; metrics of RFC 8868 in bins of 200 ms. Numbers in red break a limit \
         of the case; the limits stand below each heading, and all but one, that of RFC 8868 on \
         least over most, are ours.</p>",
    );
    let cases = entries.chunk_by(|a, b| a.case.id == b.case.id);
    let cases: Vec<&[Entry]> = cases.collect();
    matrix(&mut html, &cases);
    for (number, entries) in cases.iter().enumerate() {
        chapter(&mut html, number, entries);
    }
    html.push_str("</main></body></html>\n");
    html
}

/// Cases down, controllers across.
fn matrix(html: &mut String, cases: &[&[Entry]]) {
    let mut controls: Vec<(bool, &str)> = Vec::new();
    for entry in cases.iter().copied().flatten() {
        let control = (entry.peer, entry.control.as_str());
        if !controls.contains(&control) {
            controls.push(control);
        }
    }
    controls.sort_by_key(|(peer, _)| *peer);
    html.push_str("<div class=\"scroll\"><table class=\"matrix\"><thead><tr><th>case</th>");
    for (peer, control) in &controls {
        let small = if *peer { "<small>peer</small>" } else { "" };
        let _ = write!(html, "<th>{}{small}</th>", escape(control));
    }
    html.push_str("</tr></thead><tbody>");
    for (number, entries) in cases.iter().enumerate() {
        let case = entries[0].case;
        let _ = write!(
            html,
            "<tr><th><a href=\"#case-{number}\">{}</a><small>{}</small></th>",
            case.id, case.title
        );
        for (peer, control) in &controls {
            let mut own = entries.iter();
            match own.find(|entry| entry.control == *control && entry.peer == *peer) {
                Some(entry) => cell(html, entry),
                None => html.push_str("<td>–</td>"),
            }
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
}

fn cell(html: &mut String, entry: &Entry) {
    let all = entry.passes() == entry.runs.len();
    let (class, word) = match (all, entry.runs.len()) {
        (true, 1) => ("good", "✓ passes".to_owned()),
        (false, 1) => ("bad", "✗ fails".to_owned()),
        (true, _) => ("good", format!("✓ {}", passes(entry))),
        (false, _) => ("bad", format!("✗ {}", passes(entry))),
    };
    let _ = write!(html, "<td><b class=\"{class}\">{word}</b>");
    for limit in entry.case.limits {
        let value = entry.spread(limit.metric).map(|[mean, ..]| mean);
        let value = value.map_or_else(|| "–".to_owned(), |value| limit.metric.show(value));
        let class = if entry.keeps(limit.metric) {
            ""
        } else {
            " class=\"bad\""
        };
        let _ = write!(
            html,
            "<small{class}>{} {value}</small>",
            short(limit.metric)
        );
    }
    html.push_str("</td>");
}

fn short(metric: Metric) -> &'static str {
    match metric {
        Metric::Utilisation => "used",
        Metric::Queueing => "queue",
        Metric::Loss => "lost",
        Metric::Jain => "Jain",
        Metric::Ratio => "least/most",
        Metric::Share => "vs TCP",
        Metric::Least => "least",
    }
}

fn chapter(html: &mut String, number: usize, entries: &[Entry]) {
    let case = entries[0].case;
    let _ = write!(
        html,
        "<section id=\"case-{number}\"><h2>{} · {}</h2><p class=\"facts\">{}</p>",
        case.id, case.title, case.source
    );
    let Ok(scenario) = case.scenario() else {
        return;
    };
    let _ = write!(html, "<p>{}.</p>", escape(&scenario.about));
    tables::numbers(html, case, entries);
    html.push_str("<ul class=\"expect\">");
    for limit in case.limits {
        let _ = write!(
            html,
            "<li><code>{} {}</code> <span>{}</span></li>",
            limit.metric.name(),
            limit.bound.show(limit.metric),
            escape(limit.why)
        );
    }
    html.push_str("</ul>");
    tables::steadiness(html, entries);
    for (place, entry) in entries.iter().enumerate() {
        let played = &entry.runs[0];
        let label = format!("{} in case {}", entry.control, case.id);
        let peer = match (entry.peer, played.outcome.library.as_str()) {
            (false, _) => String::new(),
            (true, "") => " · peer".to_owned(),
            (true, library) => format!(" · peer, {library}"),
        };
        let seed = played.outcome.seed;
        let _ = write!(
            html,
            "<figure><h3>{}<small>{} · seed {seed}</small></h3>",
            escape(&entry.control),
            escape(&peer),
        );
        for (form, class) in [(Form::Wide, "wide"), (Form::Narrow, "narrow")] {
            let chart = draw(
                &format!("c{number}-{place}"),
                form,
                case,
                &scenario,
                &played.outcome,
            );
            let (svg, height) = chart.finish();
            html.push_str(&svg.into_element(height, class, &label));
        }
        html.push_str("</figure>");
    }
    let _ = write!(
        html,
        "<details><summary>The scenario</summary><pre>{}</pre></details></section>",
        escape(case.text)
    );
}

/// Rates above, one-way delays below.
fn draw(id: &str, form: Form, case: &Case, scenario: &Scenario, outcome: &Outcome) -> Chart {
    let end = scenario.duration.as_secs_f64();
    let mut chart = Chart::new(id, form, (0.0, end), &outages(scenario, case));
    let capacities: Vec<Vec<(f64, f64)>> = capacities(scenario, case, end);
    // Audio is a constant 36 kb/s beside each call: a line at the bottom.
    let flows: Vec<&FlowPlan> = scenario
        .flows
        .iter()
        .filter(|plan| !plan.name.starts_with("audio"))
        .collect();
    let names: Vec<String> = flows
        .iter()
        .map(|plan| match plan.count {
            1 => plan.name.clone(),
            many => format!("{} ({many} together)", plan.name),
        })
        .collect();
    let mut legend = vec![(Sample::Square("cap"), "capacity")];
    for (i, name) in names.iter().enumerate() {
        legend.push((Sample::Flow(theme::flow(i)), name.as_str()));
    }
    chart.legend(&legend);
    let curves: Vec<Curve> = flows
        .iter()
        .map(|plan| Curve::of(plan, outcome, end))
        .collect();
    let rates = curves
        .iter()
        .flat_map(|curve| &curve.rates)
        .map(|point| point.1);
    let carried = capacities.iter().flatten().map(|point| point.1);
    let top = carried
        .fold(0.0, f64::max)
        .max(percentile(rates.collect(), 0.995));
    let vertical = Vertical {
        from: 0.0,
        to: round_top(top * 1.05, 4),
        unit: 1e6,
        name: "Mb/s",
        ticks: 4,
    };
    let panel = chart.panel(Some(("", "Rate", "")), 130.0, &vertical);
    chart.begin_clip(&panel);
    for (i, capacity) in capacities.iter().enumerate() {
        area(&mut chart, &panel, capacity, i == 0);
    }
    for (i, curve) in curves.iter().enumerate() {
        let class = format!("{} line", theme::flow(i));
        chart.line(&panel, &class, core::slice::from_ref(&curve.rates));
    }
    chart.svg().end_clip();
    let delays = curves
        .iter()
        .flat_map(|curve| curve.delays.iter().flatten());
    let top = percentile(delays.map(|point| point.1).collect(), 0.995);
    let vertical = Vertical {
        from: 0.0,
        to: round_top(top * 1.05, 3),
        unit: 1.0,
        name: "ms",
        ticks: 3,
    };
    let panel = chart.panel(Some(("", "Delay above its least", "")), 90.0, &vertical);
    chart.begin_clip(&panel);
    for (i, curve) in curves.iter().enumerate() {
        chart.line(&panel, &format!("{} line", theme::flow(i)), &curve.delays);
    }
    chart.svg().end_clip();
    chart.time_axis();
    chart
}

/// The flows of one plan over time, as they are drawn.
struct Curve {
    /// Together, in b/s.
    rates: Vec<(f64, f64)>,
    /// Above the least, in ms; pieces between gaps. Of several flows under test their mean; of
    /// several others none is drawn.
    delays: Vec<Vec<(f64, f64)>>,
}

impl Curve {
    fn of(plan: &FlowPlan, outcome: &Outcome, end: f64) -> Self {
        let names = (1..=plan.count).map(|number| plan.name_of(number));
        let flows: Vec<_> = names.filter_map(|name| outcome.flow(&name)).collect();
        let Some(first) = flows.first() else {
            return Self {
                rates: Vec::new(),
                delays: Vec::new(),
            };
        };
        let width = first.bins_ms as f64 / 1e3;
        // As many points as can be told apart.
        let group = ((end / 300.0 / width).ceil() as usize).max(1);
        let bins = (end / width).ceil() as usize;
        let mut curve = Self {
            rates: Vec::new(),
            delays: vec![Vec::new()],
        };
        let above = |flow: &FlowOutcome, span: Range<usize>| -> Vec<f64> {
            let all = flow.delay_ms.iter().flatten().copied();
            let least = all.fold(f64::INFINITY, f64::min);
            let delays = flow.delay_ms.get(span).unwrap_or_default();
            delays.iter().flatten().map(|delay| delay - least).collect()
        };
        let with_delay = flows.len() == 1 || is_media(&plan.name);
        for from in (0..bins).step_by(group) {
            let span = from..(from + group).min(bins);
            let middle = (span.start + span.end) as f64 / 2.0 * width;
            let seconds = plan.start.as_secs_f64()..plan.stop.as_secs_f64();
            if !seconds.contains(&middle) {
                continue;
            }
            let count = span.len() as f64;
            let sum: u64 = flows
                .iter()
                .flat_map(|flow| flow.rate_bps.get(span.clone()).unwrap_or_default())
                .sum();
            curve.rates.push((middle, sum as f64 / count));
            if !with_delay {
                continue;
            }
            let delays = flows.iter().flat_map(|flow| above(flow, span.clone()));
            let delays: Vec<f64> = delays.collect();
            let last = curve.delays.last_mut().expect("never empty");
            if delays.is_empty() {
                if !last.is_empty() {
                    curve.delays.push(Vec::new());
                }
            } else {
                last.push((middle, delays.iter().sum::<f64>() / delays.len() as f64));
            }
        }
        curve.delays.retain(|piece| !piece.is_empty());
        curve
    }
}

/// Of the bottlenecks, as the corners of steps.
fn capacities(scenario: &Scenario, case: &Case, end: f64) -> Vec<Vec<(f64, f64)>> {
    let infos = scenario.link_infos();
    let named = |name: &&str| infos.iter().find(|link| link.name == **name);
    let corners = |link: &LinkInfo| {
        let values = link
            .capacity
            .iter()
            .map(|step| (step.from.as_secs_f64(), step.rate.map_or(0.0, Rate::as_f64)));
        steps(values, end)
    };
    case.bottlenecks
        .iter()
        .filter_map(named)
        .map(corners)
        .collect()
}

fn outages(scenario: &Scenario, case: &Case) -> Vec<(f64, f64)> {
    let dark = |link: &LinkPlan| -> Vec<(f64, f64)> {
        let spans = link.outages.iter();
        spans
            .map(|dark| (dark.from.as_secs_f64(), dark.to.as_secs_f64()))
            .collect()
    };
    let links = scenario.links.iter();
    let used = links.filter(|link| case.bottlenecks.contains(&link.name.as_str()));
    used.flat_map(dark).collect()
}

/// A capacity as a filled area, or as a line above those that are.
fn area(chart: &mut Chart, panel: &Panel, corners: &[(f64, f64)], filled: bool) {
    let (Some(first), Some(last)) = (corners.first(), corners.last()) else {
        return;
    };
    if filled {
        let mut d = String::new();
        let foot = [(last.0, 0.0), (first.0, 0.0)];
        let outline = corners.iter().chain(&foot).map(|point| panel.at(*point));
        polyline(&mut d, outline);
        d.push('Z');
        chart.svg().path("cap", &d);
    }
    chart.line(panel, "capline", &[corners.to_vec()]);
}

fn percentile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = ((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1));
    values.get(place).copied().unwrap_or(0.0)
}
