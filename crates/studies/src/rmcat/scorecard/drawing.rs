//! Charts of a case: rates and delays with each controller, on common scales.

use core::ops::Range;

use crate::rmcat::{Case, FlowOutcome, Outcome, is_media};
use tidegate_core::units::Rate;
use tidegate_record::LinkInfo;
use tidegate_sim::scenario::{FlowPlan, LinkPlan, Scenario};

use tidegate_report::chart::{Chart, Form, Mark, Panel, Sample, Vertical};
use tidegate_report::scale::top_of;
use tidegate_report::series::steps;
use tidegate_report::svg::polyline;
use tidegate_report::{summary_text, theme};

/// Data that all charts of a case share.
pub(super) struct Stage<'a> {
    /// In seconds.
    end: f64,
    /// Flows without audio, which is a constant 36 kb/s per call.
    flows: Vec<&'a FlowPlan>,
    names: Vec<String>,
    capacities: Vec<Vec<(f64, f64)>>,
    outages: Vec<(f64, f64)>,
}

/// Axes of all charts of a case.
pub(super) struct Scales {
    rate: Vertical,
    delay: Vertical,
}

impl<'a> Stage<'a> {
    pub(super) fn new(case: &Case, scenario: &'a Scenario) -> Self {
        let end = scenario.duration.as_secs_f64();
        let flows = scenario.flows.iter();
        let flows: Vec<&FlowPlan> = flows
            .filter(|plan| !plan.name.starts_with("audio"))
            .collect();
        let names = flows.iter().map(|plan| match plan.count {
            1 => plan.name.clone(),
            many => format!("{} ({many} together)", plan.name),
        });
        Self {
            end,
            names: names.collect(),
            flows,
            capacities: capacities(scenario, case, end),
            outages: outages(scenario, case),
        }
    }

    pub(super) fn curves(&self, outcome: &Outcome) -> Vec<Curve> {
        let flows = self.flows.iter();
        flows
            .map(|plan| Curve::of(plan, outcome, self.end))
            .collect()
    }

    /// Scales that fit the curves of all controllers.
    pub(super) fn scales(&self, curves: &[Vec<Curve>]) -> Scales {
        let all = || curves.iter().flatten();
        let rates = all().flat_map(|curve| &curve.rates);
        let carried = self.capacities.iter().flatten();
        let rates = top_of(rates.map(|point| point.1), 5);
        let carried = top_of(carried.map(|point| point.1), 5);
        let delays = all().flat_map(|curve| curve.delays.iter().flatten());
        Scales {
            rate: Vertical {
                from: 0.0,
                to: rates.max(carried),
                unit: 1e6,
                name: "Mb/s",
                ticks: 5,
            },
            delay: Vertical {
                from: 0.0,
                to: top_of(delays.map(|point| point.1), 4),
                unit: 1.0,
                name: "ms",
                ticks: 4,
            },
        }
    }

    /// Draws rates in the upper panel and one-way delays in the lower.
    pub(super) fn draw(&self, id: &str, form: Form, curves: &[Curve], scales: &Scales) -> Chart {
        let mut chart = Chart::new(id, form, (0.0, self.end), &self.outages);
        let mut legend = vec![(Sample::of(Mark::Square, "cap"), "capacity")];
        for (i, (name, curve)) in self.names.iter().zip(curves).enumerate() {
            if !curve.rates.is_empty() {
                legend.push((Sample::of(Mark::Flow, theme::flow(i)), name.as_str()));
            }
        }
        if !self.outages.is_empty() {
            legend.push((Sample::of(Mark::Square, "outage"), "outage"));
        }
        chart.legend(&legend);
        let panel = chart.panel(Some(("", "Rate", "")), 130.0, &scales.rate);
        chart.begin_clip(&panel);
        for (i, capacity) in self.capacities.iter().enumerate() {
            area(&mut chart, &panel, capacity, i == 0);
        }
        for (i, curve) in curves.iter().enumerate() {
            let class = format!("{} line", theme::flow(i));
            chart.line(&panel, &class, core::slice::from_ref(&curve.rates));
        }
        chart.svg().end_clip();
        let rates = curves.iter().enumerate();
        let rates = rates.map(|(i, curve)| (theme::flow(i), &curve.rates[..]));
        chart.beyond(&panel, rates, summary_text::rate);
        let title = Some(("", "Delay above its minimum", ""));
        let panel = chart.panel(title, 110.0, &scales.delay);
        chart.begin_clip(&panel);
        for (i, curve) in curves.iter().enumerate() {
            chart.line(&panel, &format!("{} line", theme::flow(i)), &curve.delays);
        }
        chart.svg().end_clip();
        let delays = curves.iter().enumerate();
        let delays = delays.flat_map(|(i, curve)| {
            let pieces = curve.delays.iter();
            pieces.map(move |piece| (theme::flow(i), &piece[..]))
        });
        chart.beyond(&panel, delays, summary_text::millis);
        chart.time_axis();
        chart
    }
}

/// Drawn time series of the flows of one plan.
pub(super) struct Curve {
    /// Sum of the rates in b/s.
    rates: Vec<(f64, f64)>,
    /// Delay above the minimum in ms, in pieces between gaps. Several flows under test have their
    /// mean; several competing flows have none.
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
        // At most 300 points, the resolution of the chart.
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

/// Capacities of the bottlenecks, as corners of step functions.
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
    let spans_of = |link: &LinkPlan| -> Vec<(f64, f64)> {
        let spans = link.outages.iter();
        spans
            .map(|span| (span.from.as_secs_f64(), span.to.as_secs_f64()))
            .collect()
    };
    let links = scenario.links.iter();
    let used = links.filter(|link| case.bottlenecks.contains(&link.name.as_str()));
    used.flat_map(spans_of).collect()
}

/// Draws a capacity as a filled area, or as a line if another one is filled.
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
