//! HTML tables of metrics.

use core::fmt::Write as _;

use tidegate_record::Summary;
use tidegate_record::metrics::{FlowSummary, LinkSummary};

use super::class::{Class, Spread, classes};
use super::summary_text::{count, on_time, percent, rate};
use super::svg::escape;
use super::view::View;

/// Table of the flows of one run: a column each, baselines beside the others. The flows of a group
/// share a column with their mean and spread. Empty without metrics.
pub(super) fn flows(view: &View<'_>, summary: &Summary) -> String {
    let classes = classes(summary);
    let told = |row: &Row| summary.flows.iter().any(|flow| (row.value)(flow).is_some());
    if !ROWS.iter().any(told) {
        return String::new();
    }
    let mut html = String::from(
        "<h3>The flows side by side</h3><div class=\"scroll\"><table><thead><tr><th></th>",
    );
    for class in &classes {
        html.push_str(&head(view, class));
    }
    html.push_str("</tr></thead><tbody>");
    // Web traffic that loses nothing is not better than a call.
    let is_video = |class: &Class<'_>| class.sum(|flow| flow.frames.made).is_some();
    let any_video = classes.iter().any(is_video);
    for row in ROWS.iter().filter(|row| told(row)) {
        let values: Vec<Option<Spread>> = classes
            .iter()
            .map(|class| class.spread(row.value))
            .collect();
        let compared = classes.iter().zip(&values);
        let compared = compared.filter(|(class, _)| !any_video || is_video(class));
        let means: Vec<Option<f64>> = compared
            .map(|(_, value)| value.map(|spread| spread.mean))
            .collect();
        let best = best(&means, row.better);
        let _ = write!(html, "<tr><th>{}</th>", row.name);
        for (class, value) in classes.iter().zip(values) {
            let mean = value.map(|spread| spread.mean);
            let eligible = !any_video || is_video(class);
            let mark = if eligible && mean.is_some() && mean == best {
                " class=\"best\""
            } else {
                ""
            };
            let _ = write!(html, "<td{mark}>{}</td>", spread(value, row));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    if classes.iter().any(|class| class.members.len() > 1) {
        html.push_str(
            "<p class=\"under\">Of several flows of a kind: the mean of one, and below it the least and \
             the most. Not every flow has every number.</p>",
        );
    }
    if let Some(span) = view.run.manifest.measure {
        let (from, to) = (span.from.as_secs_f64(), span.to.as_secs_f64());
        let _ = write!(
            html,
            "<p class=\"under\">Measured from {from} s to {to} s; drawings show the whole run.</p>"
        );
    }
    html
}

/// Header of a column.
fn head(view: &View<'_>, class: &Class<'_>) -> String {
    let seen = view.flows.iter().find(|flow| flow.name == class.class());
    let colour = seen.map_or("gone", |flow| flow.colour);
    let baseline = seen.is_some_and(|flow| flow.info().baseline);
    let members = class.members.len();
    let control = Some(class.control().to_owned()).filter(|control| control != class.class());
    let several = (members > 1).then(|| format!("{} flows", count(members as u64)));
    let baseline = baseline.then(|| "baseline".to_owned());
    let parts: Vec<String> = [control, several, baseline].into_iter().flatten().collect();
    format!(
        "<th><i class=\"{colour}\"></i>{}<small>{}</small></th>",
        escape(class.class()),
        escape(&parts.join(", "))
    )
}

/// Table of the links of one run; empty without links.
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
            text(dropped(link)),
            text(link.marks.map(count)),
            text(link.queue_p95_ms.map(millis)),
        );
    }
    html.push_str("</tbody></table></div>");
    html
}

/// Number of packets that a link dropped, with the causes unless all are queue drops.
fn dropped(link: &LinkSummary) -> Option<String> {
    let mut cell = count(link.drops?);
    let causes = [
        (link.drops_queue, "queue"),
        (link.drops_random, "random"),
        (link.drops_outage, "outage"),
    ];
    if causes[1..].iter().any(|(drops, _)| drops.unwrap_or(0) > 0) {
        let known = causes
            .iter()
            .filter_map(|(drops, why)| Some(((*drops)?, why)));
        let parts = known.filter(|(drops, _)| *drops > 0);
        let parts: Vec<String> = parts
            .map(|(drops, why)| format!("{why} {}", count(drops)))
            .collect();
        let _ = write!(cell, "<small>{}</small>", parts.join(", "));
    }
    Some(cell)
}

/// Table over several runs: for each flow of each scenario the mean over its runs, and the spread.
pub(super) fn overview(summaries: &[&Summary]) -> String {
    let mut html = String::from("<div class=\"scroll\"><table><thead><tr><th></th><th>runs</th>");
    for row in ROWS.iter().filter(|row| row.overview) {
        let _ = write!(html, "<th>{}</th>", row.name);
    }
    html.push_str("</tr></thead><tbody>");
    let mut groups: Vec<((&str, &str), Vec<Class<'_>>)> = Vec::new();
    for summary in summaries {
        for class in classes(summary) {
            let key = (summary.scenario.as_str(), class.class());
            match groups.iter_mut().find(|group| group.0 == key) {
                Some(group) => group.1.push(class),
                None => groups.push((key, vec![class])),
            }
        }
    }
    for ((scenario, name), runs) in groups {
        let most = runs.iter().map(|class| class.members.len()).max();
        let members = match most.unwrap_or(1) {
            1 => String::new(),
            n => format!(", mean of {} flows", count(n as u64)),
        };
        let _ = write!(
            html,
            "<tr><th>{}<small>{}{members}</small></th><td>{}</td>",
            escape(name),
            escape(scenario),
            runs.len()
        );
        for row in ROWS.iter().filter(|row| row.overview) {
            let values: Vec<f64> = runs.iter().filter_map(|run| run.mean(row.value)).collect();
            let _ = write!(html, "<td>{}</td>", spread(Spread::of(&values), row));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

fn spread(spread: Option<Spread>, row: &Row) -> String {
    let Some(Spread {
        mean,
        least,
        most,
        count,
    }) = spread
    else {
        return "–".to_owned();
    };
    let text = row.text;
    if count == 1 {
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
    /// Whether the overview of several runs has a column for it.
    overview: bool,
}

#[derive(Clone, Copy)]
enum Better {
    High,
    Low,
    /// Neither direction is better in general.
    Open,
}

/// Best value, for highlighting; `None` if all are equal.
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

/// Formats a count, or a mean of counts, which is seldom an integer.
fn whole(n: f64) -> String {
    if n.fract() > 0.0 && n < 100.0 {
        format!("{n:.1}")
    } else {
        count(n.round() as u64)
    }
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

const ROWS: [Row; 25] = [
    overview_row("frames on time", Better::High, percent, on_time),
    overview_row("frame delay p95", Better::Low, millis, |f| f.delay_ms.p95),
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
    row("rate received", Better::Open, rate, |f| f.receive_bps),
    row(
        "packets lost",
        Better::Low,
        |v| format!("{v:.2} %"),
        |f| f.loss.map(|l| 100.0 * l),
    ),
    row(
        "loss events, of packets",
        Better::Low,
        |v| format!("{v:.3} %"),
        |f| f.loss_event_rate.map(|p| 100.0 * p),
    ),
    row("round trip, mean", Better::Low, millis, |f| f.rtt_ms),
    row(
        "completed in",
        Better::Low,
        |v| format!("{v:.2} s"),
        |f| f.completion_s,
    ),
    row("packet delay p50", Better::Low, millis, |f| {
        f.packet_delay_ms.p50
    }),
    row("packet delay p95", Better::Low, millis, |f| {
        f.packet_delay_ms.p95
    }),
    row("packet delay p99", Better::Low, millis, |f| {
        f.packet_delay_ms.p99
    }),
    row("frame delay p50", Better::Low, millis, |f| f.delay_ms.p50),
    row("frame delay p99", Better::Low, millis, |f| f.delay_ms.p99),
    row("frame delay, worst", Better::Low, millis, |f| {
        f.delay_ms.max
    }),
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
    fn unique_best_value_is_highlighted() {
        assert_eq!(best(&[Some(1.0), None, Some(2.0)], Better::High), Some(2.0));
        assert_eq!(best(&[Some(1.0), None, Some(2.0)], Better::Low), Some(1.0));
        assert_eq!(best(&[Some(1.0), Some(1.0)], Better::Low), None);
        assert_eq!(best(&[Some(1.0)], Better::High), None);
        assert_eq!(best(&[Some(1.0), Some(2.0)], Better::Open), None);
    }

    #[test]
    fn small_means_keep_decimals() {
        let texts = [0.0, 3.0, 3.75, 1234.5].map(whole);
        assert_eq!(texts, ["0", "3", "3.8", "1,235"]);
    }
}
