//! Numbers side by side.

use core::fmt::Write as _;

use tidegate_sim::run::Summary;
use tidegate_sim::run::metrics::FlowSummary;

use super::figures::View;
use super::svg::escape;
use super::words::{count, on_time, percent, rate};

/// The flows of one run: a column each, baselines beside the others. Nothing without numbers.
pub(super) fn flows(view: &View<'_>, summary: &Summary) -> String {
    let told = |row: &Row| summary.flows.iter().any(|flow| (row.value)(flow).is_some());
    if !ROWS.iter().any(told) {
        return String::new();
    }
    let mut html = String::from(
        "<h3>The flows side by side</h3><div class=\"scroll\"><table><thead><tr><th></th>",
    );
    for flow in &summary.flows {
        let seen = view.flows.iter().find(|f| f.name() == flow.name);
        let colour = seen.map_or("gone", |f| f.colour);
        let baseline = seen.is_some_and(|f| f.flow.info.baseline);
        let _ = write!(
            html,
            "<th><i class=\"{colour}\"></i>{}<small>{}{}</small></th>",
            escape(&flow.name),
            escape(&flow.control),
            if baseline { ", baseline" } else { "" }
        );
    }
    html.push_str("</tr></thead><tbody>");
    for row in ROWS.iter().filter(|row| told(row)) {
        let values: Vec<Option<f64>> = summary.flows.iter().map(row.value).collect();
        let best = best(&values, row.better);
        let _ = write!(html, "<tr><th>{}</th>", row.name);
        for value in values {
            match value {
                Some(v) if Some(v) == best => {
                    let _ = write!(html, "<td class=\"best\">{}</td>", (row.text)(v));
                }
                Some(v) => {
                    let _ = write!(html, "<td>{}</td>", (row.text)(v));
                }
                None => html.push_str("<td>–</td>"),
            }
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

/// The links of one run; nothing if there are none.
pub(super) fn links(summary: &Summary) -> String {
    if summary.links.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<h3>Links</h3><div class=\"scroll\"><table><thead><tr><th></th><th>used</th>\
         <th>dropped</th><th>marked</th><th>queue p95</th></tr></thead><tbody>",
    );
    let text = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    for link in &summary.links {
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&link.name),
            text(link.utilisation.map(|u| percent(100.0 * u))),
            text(link.drops.map(count)),
            text(link.marks.map(count)),
            text(link.queue_p95_ms.map(millis)),
        );
    }
    html.push_str("</tbody></table></div>");
    html
}

/// Several runs: of each flow of each scenario the mean over its runs, and the spread.
pub(super) fn overview(summaries: &[&Summary]) -> String {
    let mut html = String::from("<div class=\"scroll\"><table><thead><tr><th></th><th>runs</th>");
    for row in ROWS.iter().filter(|row| row.overview) {
        let _ = write!(html, "<th>{}</th>", row.name);
    }
    html.push_str("</tr></thead><tbody>");
    let mut groups: Vec<((&str, &str), Vec<&FlowSummary>)> = Vec::new();
    for summary in summaries {
        for flow in &summary.flows {
            let key = (summary.scenario.as_str(), flow.name.as_str());
            match groups.iter_mut().find(|group| group.0 == key) {
                Some(group) => group.1.push(flow),
                None => groups.push((key, vec![flow])),
            }
        }
    }
    for ((scenario, name), flows) in groups {
        let _ = write!(
            html,
            "<tr><th>{}<small>{}</small></th><td>{}</td>",
            escape(name),
            escape(scenario),
            flows.len()
        );
        for row in ROWS.iter().filter(|row| row.overview) {
            let values: Vec<f64> = flows.iter().filter_map(|flow| (row.value)(flow)).collect();
            let _ = write!(html, "<td>{}</td>", spread(&values, row));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

fn spread(values: &[f64], row: &Row) -> String {
    if values.is_empty() {
        return "–".to_owned();
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let least = values.iter().copied().fold(f64::MAX, f64::min);
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    let text = row.text;
    if values.len() == 1 {
        return text(mean);
    }
    format!(
        "{}<small>{} to {}</small>",
        text(mean),
        text(least),
        text(most)
    )
}

/// One line of the table of flows.
struct Row {
    name: &'static str,
    value: fn(&FlowSummary) -> Option<f64>,
    text: fn(f64) -> String,
    better: Better,
    /// Whether it is also a column of the overview of several runs.
    overview: bool,
}

#[derive(Clone, Copy)]
enum Better {
    High,
    Low,
    /// It depends.
    Open,
}

/// The value to point out: none where all are alike.
fn best(values: &[Option<f64>], better: Better) -> Option<f64> {
    let known = || values.iter().flatten().copied();
    let (least, most) = (known().reduce(f64::min)?, known().reduce(f64::max)?);
    match better {
        _ if least >= most => None,
        Better::High => Some(most),
        Better::Low => Some(least),
        Better::Open => None,
    }
}

fn millis(ms: f64) -> String {
    if ms < 99.95 {
        format!("{ms:.1} ms")
    } else {
        format!("{} ms", count(ms.round() as u64))
    }
}

fn whole(n: f64) -> String {
    count(n as u64)
}

const fn row(
    name: &'static str,
    better: Better,
    text: fn(f64) -> String,
    value: fn(&FlowSummary) -> Option<f64>,
) -> Row {
    Row {
        name,
        value,
        text,
        better,
        overview: false,
    }
}

const fn overview_row(
    name: &'static str,
    better: Better,
    text: fn(f64) -> String,
    value: fn(&FlowSummary) -> Option<f64>,
) -> Row {
    Row {
        overview: true,
        ..row(name, better, text, value)
    }
}

const ROWS: [Row; 18] = [
    overview_row("frames on time", Better::High, percent, on_time),
    overview_row("delay p95", Better::Low, millis, |f| f.delay_ms.p95),
    overview_row(
        "PSNR Y, shown",
        Better::High,
        |v| format!("{v:.2} dB"),
        |f| f.psnr_y_db,
    ),
    overview_row("freezes", Better::Low, whole, |f| {
        f.freezes.map(|n| n as f64)
    }),
    overview_row("rate on the wire", Better::Open, rate, |f| f.rate_bps),
    row(
        "packets lost",
        Better::Low,
        |v| format!("{v:.2} %"),
        |f| f.loss.map(|l| 100.0 * l),
    ),
    row("delay p50", Better::Low, millis, |f| f.delay_ms.p50),
    row("delay p99", Better::Low, millis, |f| f.delay_ms.p99),
    row("delay, worst", Better::Low, millis, |f| f.delay_ms.max),
    row("queueing, mean", Better::Low, millis, |f| f.queue_ms.mean),
    row("queueing p95", Better::Low, millis, |f| f.queue_ms.p95),
    row(
        "SSIM, shown",
        Better::High,
        |v| format!("{v:.4}"),
        |f| f.ssim,
    ),
    row("frames captured", Better::Open, whole, |f| {
        f.frames.made.map(|n| n as f64)
    }),
    row("frames sent", Better::Open, whole, |f| {
        f.frames.sent.map(|n| n as f64)
    }),
    row("frames on time, number", Better::Open, whole, |f| {
        f.frames.on_time.map(|n| n as f64)
    }),
    row("frames savable", Better::Open, whole, |f| {
        f.frames.savable.map(|n| n as f64)
    }),
    row("frames late", Better::Open, whole, |f| {
        f.frames.late.map(|n| n as f64)
    }),
    row("frames given up", Better::Open, whole, |f| {
        f.frames.dropped.map(|n| n as f64)
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_pointed_out_only_if_there_is_one() {
        assert_eq!(best(&[Some(1.0), None, Some(2.0)], Better::High), Some(2.0));
        assert_eq!(best(&[Some(1.0), None, Some(2.0)], Better::Low), Some(1.0));
        assert_eq!(best(&[Some(1.0), Some(1.0)], Better::Low), None);
        assert_eq!(best(&[Some(1.0)], Better::High), None);
        assert_eq!(best(&[Some(1.0), Some(2.0)], Better::Open), None);
    }
}
