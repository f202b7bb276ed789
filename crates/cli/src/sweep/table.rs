//! Table of a sweep for a terminal.

use std::fmt::Write as _;

use tidegate_sim::scenario::Sweep;
use unicode_width::UnicodeWidthStr as _;

use super::results_file::Job;
use super::rows::{self, Figure, Kind, Row};

/// A line per point and flow or link, with the most important metrics. Columns without any number
/// are dropped. A table wider than `room` gets headings of several lines, and then loses columns by
/// rank, down to one.
pub(super) fn render(sweep: &Sweep, figures: &[Figure], room: Option<usize>) -> String {
    let there = |column: &&Column| figures.iter().any(|f| f.metric == column.metric);
    let mut columns: Vec<&Column> = COLUMNS.iter().filter(there).collect();
    let left = sweep.axes.len() + 1;
    let lines = lines(sweep, figures, &columns);
    let Some(room) = room.filter(|room| total(&widths(&lines)) > *room) else {
        return align(&lines, left);
    };
    let mut missing = Vec::new();
    loop {
        let lines = fold_headings(self::lines(sweep, figures, &columns));
        if total(&widths(&lines)) > room && columns.len() > 1 {
            let last = (0..columns.len()).max_by_key(|i| columns[*i].rank);
            missing.extend(last.map(|i| columns.remove(i).title));
            continue;
        }
        let mut text = align(&lines, left);
        if !missing.is_empty() {
            let missing = missing.join(", ");
            let _ = writeln!(text, "\nno room for {missing}: see summary.csv");
        }
        return text;
    }
}

/// Heading and lines with at least one number.
fn lines(sweep: &Sweep, figures: &[Figure], columns: &[&Column]) -> Vec<Vec<String>> {
    let mut head: Vec<String> = sweep.axes.iter().map(|axis| axis.key.clone()).collect();
    head.push("of".to_owned());
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
    lines
}

/// The table with a heading of several lines, so that no heading is wider than its column or its
/// longest word.
fn fold_headings(mut lines: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let head = lines.remove(0);
    let mut below = widths(&lines);
    below.resize(head.len(), 0);
    let heads: Vec<Vec<String>> = head.iter().zip(&below).map(|(h, w)| fold(h, *w)).collect();
    let high = heads.iter().map(Vec::len).max().unwrap_or(0);
    let head = (0..high).map(|row| {
        // Short headings are aligned to the bottom.
        let part = |head: &Vec<String>| match (row + head.len()).checked_sub(high) {
            Some(at) => head[at].clone(),
            None => String::new(),
        };
        heads.iter().map(part).collect()
    });
    head.chain(lines).collect()
}

/// Breaks a heading into lines of that width, after spaces, dots and commas.
fn fold(head: &str, width: usize) -> Vec<String> {
    let pieces: Vec<&str> = head.split_inclusive([' ', '.', ',']).collect();
    let longest = pieces.iter().map(|piece| piece.trim_end().width()).max();
    let width = width.max(longest.unwrap_or(0));
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(line) if line.width() + piece.trim_end().width() <= width => line.push_str(piece),
            _ => lines.push(piece.to_owned()),
        }
    }
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// List of failed expectations, if any.
pub(super) fn failures(sweep: &Sweep, failures: &[(Job, &Row)]) -> String {
    let mut out = String::new();
    let measured = rows::place("measured");
    for ((point, seed), row) in failures.iter().take(MAX_FAILURES) {
        let keys = sweep.axes.iter().map(|axis| &axis.key);
        let values = keys.zip(&sweep.points[*point].values);
        let mut with: Vec<String> = values.map(|(k, v)| format!("{k} = {v}")).collect();
        with.push(format!("seed {}", sweep.seeds[*seed].0));
        let found = row.values[measured].map_or_else(|| NONE.to_owned(), |m| format!("{m:.4}"));
        let (text, with) = (&row.name, with.join(", "));
        let _ = writeln!(out, "FAILS  {text}  (measured {found})  with {with}");
    }
    if failures.len() > MAX_FAILURES {
        let more = failures.len() - MAX_FAILURES;
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
    /// If there is no room, the column with the highest rank is dropped first.
    rank: u8,
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

/// Aligns the first `left` columns to the left, the others to the right.
fn align(lines: &[Vec<String>], left: usize) -> String {
    let widths = widths(lines);
    let mut out = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate();
        let cells: Vec<String> = cells
            .map(|(i, (cell, width))| {
                // `format!` pads by characters, some of which have a width of zero or two columns.
                let pad = " ".repeat(width.saturating_sub(cell.width()));
                if i < left {
                    format!("{cell}{pad}")
                } else {
                    format!("{pad}{cell}")
                }
            })
            .collect();
        let _ = writeln!(out, "{}", cells.join(SEPARATOR).trim_end());
    }
    out
}

/// Width of each column.
fn widths(lines: &[Vec<String>]) -> Vec<usize> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| {
        let cells = lines.iter().filter_map(|line| line.get(i));
        cells.map(|cell| cell.width()).max().unwrap_or(0)
    };
    (0..columns).map(width).collect()
}

/// Width of the table.
fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + SEPARATOR.len() * widths.len().saturating_sub(1)
}

/// Column separator.
const SEPARATOR: &str = "  ";

const NONE: &str = "-";

/// More would scroll the table off the screen.
const MAX_FAILURES: usize = 10;

/// From left to right. The rank orders by importance: frames of calls on time first.
const COLUMNS: [Column; 9] = [
    column(0, "receive_bps", "received Mb/s", 1e-6, 3),
    column(3, "loss", "loss %", 100.0, 2),
    column(4, "packet_delay_ms.p95", "delay p95 ms", 1.0, 1),
    column(2, "completion_s", "done in s", 1.0, 2),
    column(2, "delay_ms.p95", "frame delay p95 ms", 1.0, 1),
    column(1, "on_time_of_savable", "on time of savable %", 100.0, 2),
    column(5, "psnr_y_db", "PSNR dB", 1.0, 2),
    column(7, "jain", "Jain", 1.0, 3),
    column(6, "utilisation", "used %", 100.0, 1),
];

const fn column(
    rank: u8,
    metric: &'static str,
    title: &'static str,
    factor: f64,
    digits: usize,
) -> Column {
    Column {
        rank,
        metric,
        title,
        factor,
        digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
        texts.map(str::to_owned).to_vec()
    }

    #[test]
    fn headings_are_folded_and_aligned_to_the_bottom() {
        let lines = vec![
            texts(["link.up.queue.droptail", "of", "frame delay p95 ms"]),
            texts(["10 packets", "tfrc", "121.4 ± 12.3"]),
        ];
        assert_eq!(
            align(&fold_headings(lines), 2),
            "link.up.\n\
             queue.             frame delay\n\
             droptail    of          p95 ms\n\
             10 packets  tfrc  121.4 ± 12.3\n"
        );
    }

    #[test]
    fn cells_are_padded_by_display_width() {
        // Two characters of two columns each, and a character with a combining accent of width
        // zero.
        let lines = vec![texts(["映像", "1"]), texts(["e\u{301}", "2"])];
        assert_eq!(widths(&lines), [4, 1]);
        assert_eq!(align(&lines, 1), "映像  1\ne\u{301}     2\n");
    }
}
