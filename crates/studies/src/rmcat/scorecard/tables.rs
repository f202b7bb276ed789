//! Tables of a case: metrics with limits, and the other metrics of RFC 8868.

use core::fmt::Write as _;

use crate::rmcat::{Case, Metric, Scores, is_media};

use super::verdict;
use crate::rmcat::comparison::{Entry, converged, passes, rate};
use tidegate_report::svg::escape;

/// Table of a case: a row per controller, a column per metric.
pub(super) fn numbers(html: &mut String, case: &Case, entries: &[Entry]) {
    let metrics = [
        Metric::Utilisation,
        Metric::Queueing,
        Metric::Loss,
        Metric::Jain,
        Metric::Ratio,
        Metric::Share,
        Metric::Least,
    ];
    let seen = |metric: &&Metric| entries.iter().any(|entry| entry.spread(**metric).is_some());
    let metrics: Vec<&Metric> = metrics.iter().filter(seen).collect();
    html.push_str(
        "<div class=\"scroll\"><table class=\"numbers\"><thead><tr><th>control</th><th>passes</th>\
         <th>rate<small>mean of flows</small></th><th>delay<small>50/95/99 %, worst</small></th>",
    );
    for metric in &metrics {
        let limit = case.limits.iter().find(|limit| limit.metric == **metric);
        let bound = limit.map_or_else(
            || "no limit".to_owned(),
            |limit| limit.bound.show(limit.metric),
        );
        let _ = write!(html, "<th>{}<small>{bound}</small></th>", metric.name());
    }
    html.push_str("<th>converged<small>median time</small></th></tr></thead><tbody>");
    for entry in entries {
        let (class, sign) = if entry.passes() == entry.runs.len() {
            ("good", '✓')
        } else {
            ("bad", '✗')
        };
        let _ = write!(
            html,
            "<tr><th>{}</th><td class=\"{class}\">{sign} {}</td><td>{:.2} Mb/s</td><td>{}</td>",
            escape(&entry.control),
            passes(entry),
            rate(entry) / 1e6,
            delays(entry),
        );
        for metric in &metrics {
            let (class, sign) = verdict(entry, **metric);
            let text = spread(entry, **metric);
            let _ = write!(html, "<td{class}>{sign}{text}</td>");
        }
        let text = match converged(entry) {
            (_, 0) => "–".to_owned(),
            (followed, of) => format!("{followed} of {of}"),
        };
        let time = entry.runs[0].scores.convergence_s();
        let time = time.map_or_else(String::new, |time| format!("<small>{time:.1} s</small>"));
        let _ = write!(html, "<td>{text}{time}</td></tr>");
    }
    html.push_str("</tbody></table></div>");
}

/// Mean of a metric, with its range if there are several runs.
fn spread(entry: &Entry, metric: Metric) -> String {
    match entry.spread(metric) {
        None => "–".to_owned(),
        Some([mean, least, most]) if entry.runs.len() > 1 => format!(
            "{}<small>{} – {}</small>",
            metric.show(mean),
            metric.show(least),
            metric.show(most)
        ),
        Some([mean, ..]) => metric.show(mean),
    }
}

/// Delay percentiles of the flow under test with the highest 95th percentile, in the first run.
fn delays(entry: &Entry) -> String {
    let flows = entry.runs[0].scores.flows.iter();
    let delays = flows
        .filter(|flow| is_media(&flow.name))
        .filter_map(|flow| flow.delay_ms);
    let worst = delays.max_by(|a, b| a[1].total_cmp(&b[1]));
    worst.map_or_else(
        || "–".to_owned(),
        |[p50, p95, p99]| format!("{p50:.0} / {p95:.0} / {p99:.0} ms"),
    )
}

/// Table of stability and fairness, which have no limits: a row per controller. Means over all
/// runs.
pub(super) fn steadiness(html: &mut String, entries: &[Entry]) {
    let shared = entries
        .iter()
        .any(|entry| !entry.runs[0].scores.fairness.is_empty());
    html.push_str(
        "<div class=\"scroll\"><table class=\"numbers\"><thead><tr><th>control</th>\
         <th>sent of capacity</th><th>sending rate varies<small>deviation over mean</small></th>\
         <th>swings<small>1 to 4 and back</small></th><th>frames lost<small>after repair</small></th>",
    );
    if shared {
        html.push_str("<th>least over most<small>in 1 / 5 / 20 s, median and worst</small></th>");
    }
    html.push_str("</tr></thead><tbody>");
    for entry in entries {
        let share = |of: fn(&Scores) -> Option<f64>| {
            mean(entry, of)
                .map_or_else(|| "–".to_owned(), |value| format!("{:.1} %", 100.0 * value))
        };
        let swings = mean(entry, |scores| scores.swings_per_min);
        let swings = swings.map_or_else(|| "–".to_owned(), |swings| format!("{swings:.1} /min"));
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{swings}</td><td>{}</td>",
            escape(&entry.control),
            share(|scores| scores.sent_of_capacity),
            share(|scores| scores.variation),
            share(|scores| scores.frames_lost),
        );
        if shared {
            let _ = write!(html, "<td>{}</td>", windows(entry));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
}

/// Median and worst window of each length, as means over all runs.
fn windows(entry: &Entry) -> String {
    let over = |pick: fn(&crate::rmcat::Fairness) -> f64| {
        let lengths = entry.runs[0].scores.fairness.iter().map(|f| f.window_s);
        let means = lengths.map(|length| {
            let all = entry.runs.iter().flat_map(|run| &run.scores.fairness);
            let same: Vec<f64> = all.filter(|f| f.window_s == length).map(pick).collect();
            format!("{:.2}", same.iter().sum::<f64>() / same.len() as f64)
        });
        means.collect::<Vec<_>>().join(" / ")
    };
    let (middle, worst) = (over(|f| f.middle), over(|f| f.worst));
    if middle.is_empty() {
        return "–".to_owned();
    }
    format!("{middle}<small>{worst}</small>")
}

/// Mean over the runs that have the value.
fn mean(entry: &Entry, of: fn(&Scores) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = entry
        .runs
        .iter()
        .filter_map(|run| of(&run.scores))
        .collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
