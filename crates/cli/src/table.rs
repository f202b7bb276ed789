//! The numbers of a run as a table for a terminal.

use core::fmt::Write as _;
use std::collections::BTreeSet;

use tidegate_core::units::Bytes;
use tidegate_sim::run::metrics::FlowSummary;
use tidegate_sim::run::{Run, Summary};

/// Flows one below the other, then what was expected. Columns for which there is no `room` are
/// left out by their rank, down to one.
pub(crate) fn render(run: &Run, summary: &Summary, room: Option<usize>) -> String {
    let mut out = String::new();
    let names = summary.flows.iter().map(|flow| &flow.class);
    let width = names.map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0).max(4);
    let columns = fitting(width, room);
    let titles = COLUMNS.map(|(_, _, title)| title);
    out.push_str(&line("flow", width, &columns, &titles));
    let mut classes = BTreeSet::new();
    for flow in &summary.flows {
        if flow.class != flow.name {
            if classes.insert(&flow.class) {
                out.push_str(&class(summary, &flow.class, width));
            }
            continue;
        }
        out.push_str(&line(&flow.name, width, &columns, &cells(run, flow)));
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

/// Which columns there is room for, beside names of that width.
fn fitting(width: usize, room: Option<usize>) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..COLUMNS.len()).collect();
    let wide = |columns: &[usize]| columns.iter().map(|i| COLUMNS[*i].1 + 2).sum::<usize>();
    while columns.len() > 1 && room.is_some_and(|room| width + wide(&columns) > room) {
        let last = (0..columns.len()).max_by_key(|i| COLUMNS[columns[*i]].0);
        last.map(|i| columns.remove(i));
    }
    columns
}

fn line(name: &str, width: usize, columns: &[usize], cells: &[impl AsRef<str>]) -> String {
    let mut line = format!("{name:width$}");
    for i in columns {
        let (width, cell) = (COLUMNS[*i].1, cells[*i].as_ref());
        let _ = write!(line, "  {cell:>width$}");
    }
    line + "\n"
}

/// In the order of [`COLUMNS`].
fn cells(run: &Run, flow: &FlowSummary) -> [String; COLUMNS.len()] {
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
    let loss = flow.loss.map(|loss| format!("{:.1} %", loss * 100.0));
    [
        on_time,
        number(frames.savable.map(|n| n as f64), 0),
        delays.join(" / "),
        number(flow.psnr_y_db, 2),
        number(flow.ssim, 3),
        number(flow.freezes.map(|n| n as f64), 0),
        flow.rate_bps.map_or_else(|| "-".to_owned(), rate),
        bits_used(run, &flow.name),
        loss.unwrap_or_else(|| "-".to_owned()),
    ]
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
        "{name:width$}  {} flows, each: received {}",
        members().count(),
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

/// Rank (the highest is left out first where there is no room), width and title; from left to
/// right. Names of flows are ASCII, and so is all else.
const COLUMNS: [(u8, usize, &str); 9] = [
    (0, 13, "on time"),
    (6, 8, "savable"),
    (1, 17, "delay 50/95/99 ms"),
    (2, 7, "PSNR dB"),
    (7, 6, "SSIM"),
    (5, 7, "freezes"),
    (3, 9, "rate"),
    (8, 10, "bits used"),
    (4, 6, "loss"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_without_room_are_left_out_by_their_rank() {
        let titles = |room| fitting(8, room).into_iter().map(|i| COLUMNS[i].2);
        assert_eq!(titles(None).count(), COLUMNS.len());
        assert_eq!(titles(Some(109)).count(), COLUMNS.len());
        let few: Vec<&str> = titles(Some(80)).collect();
        let known = [
            "on time",
            "delay 50/95/99 ms",
            "PSNR dB",
            "freezes",
            "rate",
            "loss",
        ];
        assert_eq!(few, known);
        assert_eq!(titles(Some(1)).collect::<Vec<_>>(), ["on time"]);
    }
}
