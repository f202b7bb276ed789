//! Files of a figure.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use tidegate_report::plot::{Cell, Figure, Series, Table};

use super::text::text;

/// Writes numbers (JSON, CSV), text and drawing (SVG, PNG) to `dir`; returns the path of the drawing.
///
/// The table is in `NAME.csv`, the lines of the drawing in `NAME-series.csv`, the values of each run
/// in `NAME-runs.csv`.
///
/// # Errors
/// A file cannot be written, or the figure cannot be drawn.
pub(super) fn write(figure: &Figure, dir: &Path) -> Result<PathBuf> {
    let stem = figure.name.replace('/', "-");
    let put = |end: &str, bytes: &[u8]| {
        let path = dir.join(format!("{stem}{end}"));
        fs::write(&path, bytes)
            .with_context(|| format!("cannot write {}: choose another --out", path.display()))?;
        Ok::<PathBuf, anyhow::Error>(path)
    };
    put(".json", serde_json::to_string_pretty(figure)?.as_bytes())?;
    put(".txt", text(figure).as_bytes())?;
    put("-series.csv", series(&figure.series).as_bytes())?;
    for (end, table) in [(".csv", &figure.table), ("-runs.csv", &figure.runs)] {
        if let Some(table) = table {
            put(end, csv(table).as_bytes())?;
        }
    }
    let (svg, png) = figure.draw().map_err(|why| anyhow!(why))?;
    put(".svg", svg.as_bytes())?;
    put(".png", &png)
}

/// RFC 4180. Columns named alike are those of the values to their left: "accepted", "accepted paper".
fn csv(table: &Table) -> String {
    let mut names: Vec<String> = Vec::with_capacity(table.columns.len());
    let mut value = "";
    for column in &table.columns {
        if column == "paper" || column == "±" {
            names.push(format!("{value} {column}"));
        } else {
            value = column;
            names.push(column.clone());
        }
    }
    let mut text = line(names.iter().map(String::as_str));
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(cell).collect();
        text += &line(cells.iter().map(String::as_str));
    }
    text
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Number(number) => number.to_string(),
        Cell::Empty => String::new(),
    }
}

/// A row per point.
fn series(series: &[Series]) -> String {
    let mut text = line(["series", "x", "x unit", "y", "min", "max", "runs", "y unit"].into_iter());
    for each in series {
        for point in &each.points {
            let numbers = [point.x, point.y, point.lo, point.hi].map(|number| number.to_string());
            let [x, y, lo, hi] = &numbers;
            let runs = point.n.to_string();
            let cells = [&each.name, x, &each.x_unit, y, lo, hi, &runs, &each.y_unit];
            text += &line(cells.into_iter().map(String::as_str));
        }
    }
    text
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let quoted = cells.map(|cell| {
        if cell.contains([',', '"', '\n']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell.to_owned()
        }
    });
    let mut line = quoted.collect::<Vec<_>>().join(",");
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_report::plot::Point;

    #[test]
    fn tables_and_series_are_quoted_and_their_columns_named_apart() {
        let table = Table {
            columns: ["node", "delay s", "±", "paper", "accepted", "paper"]
                .map(str::to_owned)
                .to_vec(),
            rows: vec![vec![
                "a \"b\", c".into(),
                0.5.into(),
                0.1.into(),
                Cell::Empty,
                1.0.into(),
                0.25.into(),
            ]],
        };
        assert_eq!(
            csv(&table),
            "node,delay s,delay s ±,delay s paper,accepted,accepted paper\n\
             \"a \"\"b\"\", c\",0.5,0.1,,1,0.25\n"
        );
        let line = Series::new(
            "bsd: iOPT".to_owned(),
            ("s", "share"),
            vec![Point::over(2.0, &[0.5, 1.0]).unwrap()],
        );
        assert_eq!(
            series(&[line]),
            "series,x,x unit,y,min,max,runs,y unit\nbsd: iOPT,2,s,0.75,0.5,1,2,share\n"
        );
    }
}
