//! Figures and tables as plain text.

use core::fmt::Write as _;

use tidegate_report::claims::Tally;

use crate::papers::{Cell, Figure, Table};

/// Text of a figure.
pub(super) fn text(figure: &Figure) -> String {
    let mut text = format!("{} - {}\n", figure.name, figure.source);
    if !figure.caption.is_empty() {
        let _ = writeln!(text, "{}", figure.caption);
    }
    text.push('\n');
    if let Some(table) = &figure.table {
        text += &columns(table);
        text.push('\n');
    }
    for claim in &figure.claims {
        let numbers = [claim.published, claim.ours];
        let short = style(numbers.into_iter().flatten());
        let number = |n: Option<f64>| n.map_or("-".to_owned(), short);
        let _ = writeln!(
            text,
            "{:15} {}: published {}, ours {}",
            claim.verdict(),
            claim.text,
            number(claim.published),
            number(claim.ours)
        );
    }
    for distance in &figure.distances {
        let _ = writeln!(text, "distance        {}", distance.text());
    }
    let tally = Tally::of(&figure.claims, &figure.distances);
    let _ = writeln!(text, "claims: {}", counts(&tally));
    if !figure.notes.is_empty() {
        text.push('\n');
    }
    for note in &figure.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// Verdicts and distances in one line.
fn counts(tally: &Tally) -> String {
    let parts = [
        (tally.hold, "hold"),
        (tally.fail, "fail"),
        (tally.no_event, "without an event"),
        (tally.by_construction, "hold by construction"),
        (tally.repeated, "repeat another"),
    ];
    let shown = parts.into_iter().filter(|(count, _)| *count > 0);
    let shown: Vec<String> = shown
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let mut text = if shown.is_empty() {
        "none".to_owned()
    } else {
        shown.join(", ")
    };
    if tally.values > 0 {
        let _ = write!(
            text,
            "; {} of {} published values within tolerance",
            tally.within, tally.values
        );
    }
    text
}

/// Verdicts of several figures, and their sum.
pub(super) fn summary(figures: &[Figure]) -> String {
    let tallies: Vec<Tally> = figures
        .iter()
        .map(|figure| Tally::of(&figure.claims, &figure.distances))
        .collect();
    let row = |name: &str, tally: &Tally| -> Vec<Cell> {
        let numbers = [
            tally.hold,
            tally.fail,
            tally.no_event,
            tally.by_construction,
            tally.repeated,
            tally.values,
            tally.within,
        ];
        let mut row = vec![Cell::from(name)];
        row.extend(numbers.map(|number| Cell::from(number as f64)));
        row
    };
    let mut rows: Vec<Vec<Cell>> = figures
        .iter()
        .zip(&tallies)
        .map(|(figure, tally)| row(&figure.name, tally))
        .collect();
    rows.push(row("all", &tallies.into_iter().sum()));
    let names = [
        "entry",
        "hold",
        "FAIL",
        "no event",
        "by construction",
        "repeated",
        "published values",
        "within tolerance",
    ];
    let mut text = "claims, and published values within their tolerance:\n".to_owned();
    text += &columns(&Table {
        columns: names.map(str::to_owned).to_vec(),
        rows,
    });
    for distance in figures.iter().flat_map(|figure| &figure.distances) {
        let _ = writeln!(text, "{}", distance.text());
    }
    text
}

/// A table with straight columns.
pub(super) fn columns(table: &Table) -> String {
    let number = |cell: &Cell| match cell {
        Cell::Number(number) => Some(*number),
        Cell::Text(_) | Cell::Empty => None,
    };
    let column = |at| table.rows.iter().filter_map(move |row| row.get(at));
    let styles = (0..table.columns.len()).map(|at| style(column(at).filter_map(number)));
    let styles: Vec<_> = styles.collect();
    let cell = |(cell, style): (&Cell, &fn(f64) -> String)| match cell {
        Cell::Text(text) => text.clone(),
        Cell::Number(number) => style(*number),
        Cell::Empty => "-".to_owned(),
    };
    let mut rows = vec![table.columns.clone()];
    let texts = |row: &Vec<Cell>| row.iter().zip(&styles).map(cell).collect();
    rows.extend(table.rows.iter().map(texts));
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row: &Vec<String>| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            let numeric = cell.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.');
            let pad = " ".repeat(width - cell.chars().count());
            if numeric {
                let _ = write!(text, "{pad}{cell}  ");
            } else {
                let _ = write!(text, "{cell}{pad}  ");
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Format of the numbers of a column: as integers if all of them are whole, such as counts.
fn style(mut numbers: impl Iterator<Item = f64>) -> fn(f64) -> String {
    if numbers.all(|number| number.fract() == 0.0) {
        |number| format!("{number:.0}")
    } else {
        short
    }
}

/// About four significant digits.
fn short(number: f64) -> String {
    match number.abs() {
        large if large >= 1_000.0 => format!("{number:.0}"),
        middle if middle >= 10.0 => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let table = Table {
            columns: ["node", "delay s", "count"].map(str::to_owned).to_vec(),
            rows: vec![
                vec!["isi".into(), 0.5.into(), 8_420.0.into()],
                vec!["princeton".into(), Cell::Empty, 1.0.into()],
            ],
        };
        assert_eq!(
            columns(&table),
            "node       delay s  count\nisi         0.5000   8420\nprinceton        -      1\n"
        );
    }
}
