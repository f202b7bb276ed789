//! Scorecard of the RMCAT cases as an HTML page: limits, metrics and charts of each controller.

mod drawing;
mod tables;

use core::fmt::Write as _;

use super::Metric;

use super::comparison::{Entry, passes};
use drawing::{Curve, Stage};
use tidegate_report::chart::Form;
use tidegate_report::svg::escape;
use tidegate_report::theme;

/// The page. Entries of one case must be adjacent.
pub(super) fn page(entries: &[Entry]) -> String {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>RMCAT scorecard · Tidegate</title><style>{}{}{}</style></head><body><main>",
        theme::PAGE,
        include_str!("scorecard.css"),
        theme::page_style()
    );
    html.push_str(
        "<h1>RMCAT scorecard</h1><p class=\"facts\">Test cases of RFC 8867, and of RFC 8869 as far as \
         the link models allow; metrics of RFC 8868 in bins of 200 ms. Values in red, marked with a \
         cross, exceed a limit of the case. The limits are listed in each section. RFC 8868 defines \
         the limit of the rate ratio (least over most); Tidegate defines all others.</p>",
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

/// Table of verdicts: a row per case, a column per controller.
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
        let (class, sign) = verdict(entry, limit.metric);
        let _ = write!(
            html,
            "<small{class}>{sign}{} {value}</small>",
            short(limit.metric)
        );
    }
    html.push_str("</td>");
}

/// CSS class and mark of a value. The mark is for readers who cannot distinguish red.
fn verdict(entry: &Entry, metric: Metric) -> (&'static str, &'static str) {
    if entry.keeps(metric) {
        ("", "")
    } else {
        (" class=\"bad\"", "✗ ")
    }
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
    let stage = Stage::new(case, &scenario);
    let drawn = entries.iter().map(|entry| &entry.runs[0].outcome);
    let curves: Vec<Vec<Curve>> = drawn.map(|outcome| stage.curves(outcome)).collect();
    // Charts of one case have common scales, so that they can be compared.
    let scales = stage.scales(&curves);
    for (place, (entry, curves)) in entries.iter().zip(&curves).enumerate() {
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
            let chart = stage.draw(&format!("c{number}-{place}"), form, curves, &scales);
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
