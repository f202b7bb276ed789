//! Figures and tables as plain text.

use core::fmt::Write as _;

use crate::papers::{Cell, Figure, Table};

/// A figure as text for the terminal.
pub(super) fn text(figure: &Figure) -> String {
    let mut text = format!("{} - {}\n\n", figure.name, figure.source);
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
            "{} {}: published {}, ours {}",
            if claim.holds { "holds " } else { "FAILS " },
            claim.text,
            number(claim.published),
            number(claim.ours)
        );
    }
    if !figure.notes.is_empty() {
        text.push('\n');
    }
    for note in &figure.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// A table with aligned columns.
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
