//! The numbers of a run as a table for a terminal.

use core::fmt::Write as _;
use std::collections::BTreeSet;

use tidegate_core::units::Bytes;
use tidegate_sim::run::metrics::FlowSummary;
use tidegate_sim::run::{Run, Summary};

/// Flows one below the other, then what was expected.
pub(crate) fn render(run: &Run, summary: &Summary) -> String {
    let mut out = String::new();
    let names = summary.flows.iter().map(|flow| &flow.class);
    let width = names.map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0).max(4);
    let _ = writeln!(
        out,
        "{:width$}  {:>13}  {:>8}  {:>17}  {:>7}  {:>6}  {:>7}  {:>9}  {:>10}  {:>6}",
        "flow",
        "on time",
        "savable",
        "delay 50/95/99 ms",
        "PSNR dB",
        "SSIM",
        "freezes",
        "rate",
        "bits used",
        "loss",
    );
    let mut classes = BTreeSet::new();
    for flow in &summary.flows {
        if flow.class != flow.name {
            if classes.insert(&flow.class) {
                out.push_str(&class(summary, &flow.class, width));
            }
            continue;
        }
        let frames = &flow.frames;
        let share = |part: Option<u64>, whole: Option<u64>| match (part, whole) {
            (Some(part), Some(whole)) if whole > 0 => 100.0 * part as f64 / whole as f64,
            _ => f64::NAN,
        };
        let on_time = match frames.on_time {
            Some(n) => format!("{n} ({:.1} %)", share(Some(n), frames.made)),
            None => "-".to_owned(),
        };
        let delays = [flow.delay_ms.p50, flow.delay_ms.p95, flow.delay_ms.p99];
        let delays = delays.map(|d| d.map_or_else(|| "-".to_owned(), |d| format!("{d:.0}")));
        let _ = writeln!(
            out,
            "{:width$}  {:>13}  {:>8}  {:>17}  {:>7}  {:>6}  {:>7}  {:>9}  {:>10}  {:>6}",
            flow.name,
            on_time,
            number(frames.savable.map(|n| n as f64), 0),
            delays.join(" / "),
            number(flow.psnr_y_db, 2),
            number(flow.ssim, 3),
            number(flow.freezes.map(|n| n as f64), 0),
            flow.rate_bps.map_or_else(|| "-".to_owned(), rate),
            bits_used(run, &flow.name),
            flow.loss
                .map_or_else(|| "-".to_owned(), |l| format!("{:.1} %", l * 100.0)),
        );
    }
    if !summary.expect.is_empty() {
        out.push('\n');
    }
    for verdict in &summary.expect {
        let mark = if verdict.holds { "holds" } else { "FAILS" };
        let measured = number(verdict.measured, 4);
        let _ = writeln!(out, "{mark}  {}  (measured {measured})", verdict.text);
    }
    out
}

/// Flows that are several, in one line: their means.
fn class(summary: &Summary, name: &str, width: usize) -> String {
    let members = || summary.flows.iter().filter(|flow| flow.class == name);
    let mean = |of: fn(&FlowSummary) -> Option<f64>| {
        let known: Vec<f64> = members().filter_map(of).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let received = || members().filter_map(|flow| flow.receive_bps);
    let least = received().fold(f64::INFINITY, f64::min);
    let most = received().fold(0.0, f64::max);
    let mut line = format!(
        "{name:width$}  {} flows, each: sent {}, received {}",
        members().count(),
        mean(|flow| flow.rate_bps).map_or_else(|| "-".to_owned(), rate),
        mean(|flow| flow.receive_bps).map_or_else(|| "-".to_owned(), rate),
    );
    if least <= most {
        let _ = write!(line, " ({} to {})", rate(least), rate(most));
    }
    if let Some(loss) = mean(|flow| flow.loss) {
        let _ = write!(line, ", loss {:.1} %", loss * 100.0);
    }
    if let Some(rtt) = mean(|flow| flow.rtt_ms) {
        let _ = write!(line, ", round trip {rtt:.0} ms");
    }
    line.push('\n');
    line
}

/// What a flow put on the wire, with all headers.
fn bits_used(run: &Run, flow: &str) -> String {
    let packets = run.flow(flow).map(|flow| &flow.packets);
    match packets.filter(|packets| !packets.is_empty()) {
        Some(packets) => {
            let bytes: Bytes = packets.iter().map(|packet| packet.size).sum();
            format!("{:.1} Mbit", bytes.bits() as f64 / 1e6)
        }
        None => "-".to_owned(),
    }
}

fn rate(bps: f64) -> String {
    tidegate_core::units::Rate::from_f64(bps).to_string()
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"))
}
