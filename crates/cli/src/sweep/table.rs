//! A sweep on a terminal.

use std::fmt::Write as _;

use tidegate_sim::scenario::Sweep;

use super::book::Job;
use super::rows::{self, Figure, Kind, Row};

/// A line per point and flow or link, with the metrics that most people look for; columns without
/// any number are left out.
pub(super) fn render(sweep: &Sweep, figures: &[Figure]) -> String {
    let mut head: Vec<String> = sweep.axes.iter().map(|axis| axis.key.clone()).collect();
    head.push("of".to_owned());
    let there = |column: &&Column| figures.iter().any(|f| f.metric == column.metric);
    let columns: Vec<&Column> = COLUMNS.iter().filter(there).collect();
    head.extend(columns.iter().map(|column| column.title.to_owned()));
    let mut lines = vec![head];
    let of_one = |a: &Figure, b: &Figure| (a.point, a.kind, &a.name) == (b.point, b.kind, &b.name);
    for group in figures.chunk_by(of_one) {
        let first = &group[0];
        let cells: Vec<String> = columns.iter().map(|column| column.cell(group)).collect();
        if first.kind == Kind::Expect || cells.iter().all(|cell| cell == NONE) {
            continue;
        }
        let mut line = sweep.points[first.point].values.clone();
        line.push(match first.kind {
            Kind::Link => format!("link {}", first.name),
            _ if first.members > 1 => format!("{} x{}", first.name, first.members),
            _ => first.name.clone(),
        });
        line.extend(cells);
        lines.push(line);
    }
    align(&lines, sweep.axes.len() + 1)
}

/// What did not hold, if anything.
pub(super) fn failures(sweep: &Sweep, failures: &[(Job, &Row)]) -> String {
    let mut out = String::new();
    let measured = rows::place("measured");
    for ((point, seed), row) in failures.iter().take(MOST_FAILURES) {
        let keys = sweep.axes.iter().map(|axis| &axis.key);
        let values = keys.zip(&sweep.points[*point].values);
        let mut with: Vec<String> = values.map(|(k, v)| format!("{k} = {v}")).collect();
        with.push(format!("seed {}", sweep.seeds[*seed].0));
        let found = row.values[measured].map_or_else(|| NONE.to_owned(), |m| format!("{m:.4}"));
        let (text, with) = (&row.name, with.join(", "));
        let _ = writeln!(out, "FAILS  {text}  (measured {found})  with {with}");
    }
    if failures.len() > MOST_FAILURES {
        let more = failures.len() - MOST_FAILURES;
        let _ = writeln!(
            out,
            "and {more} more, which results.csv lists with holds = 0"
        );
    }
    if !out.is_empty() {
        out.insert(0, '\n');
    }
    out
}

struct Column {
    metric: &'static str,
    title: &'static str,
    factor: f64,
    digits: usize,
}

impl Column {
    fn cell(&self, figures: &[Figure]) -> String {
        let Some(figure) = figures.iter().find(|f| f.metric == self.metric) else {
            return NONE.to_owned();
        };
        let digits = self.digits;
        let mean = figure.mean * self.factor;
        match figure.deviation {
            Some(deviation) => format!("{mean:.digits$} ± {:.digits$}", deviation * self.factor),
            None => format!("{mean:.digits$}"),
        }
    }
}

/// The first `left` columns to the left, the others to the right.
fn align(lines: &[Vec<String>], left: usize) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| {
        let cells = lines.iter().filter_map(|line| line.get(i));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate();
        let cells: Vec<String> = cells
            .map(|(i, (cell, width))| {
                if i < left {
                    format!("{cell:width$}")
                } else {
                    format!("{cell:>width$}")
                }
            })
            .collect();
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
    out
}

const NONE: &str = "-";

/// More would push the table off the screen.
const MOST_FAILURES: usize = 10;

const COLUMNS: [Column; 8] = [
    column("receive_bps", "received Mb/s", 1e-6, 3),
    column("loss", "loss %", 100.0, 2),
    column("packet_delay_ms.p95", "delay p95 ms", 1.0, 1),
    column("delay_ms.p95", "frame delay p95 ms", 1.0, 1),
    column("on_time_of_savable", "on time of savable %", 100.0, 2),
    column("psnr_y_db", "PSNR dB", 1.0, 2),
    column("jain", "Jain", 1.0, 3),
    column("utilisation", "used %", 100.0, 1),
];

const fn column(metric: &'static str, title: &'static str, factor: f64, digits: usize) -> Column {
    Column {
        metric,
        title,
        factor,
        digits,
    }
}
