//! The table of a benchmark: a column per controller.

use std::fmt::Write as _;

use super::{Row, Unit};
use crate::rmcat::Bound;

/// Table of all rows, by group and point, with a column per controller. `abouts` has the description
/// of each group by its name.
pub(super) fn table(rows: &[Row], controls: &[String], abouts: &[(&str, String)]) -> String {
    let mut text = String::new();
    let mut at = ("", "");
    let width = rows.iter().map(|row| row.what.chars().count());
    let width = INDENT + width.max().unwrap_or(0);
    for row in rows.iter().filter(|row| row.control == controls[0]) {
        if row.group != at.0 {
            let about = abouts.iter().find(|(name, _)| *name == row.group);
            let about = about.map_or("", |(_, about)| about);
            let _ = writeln!(text, "\n{}: {about}", row.group);
            text.push_str(&headings(width, controls));
        }
        if row.group != at.0 || row.point != at.1 {
            at = (row.group, &row.point);
            if !row.point.is_empty() {
                let _ = writeln!(text, " {}", row.point);
            }
        }
        text.push_str(&line(row, width, rows, controls));
    }
    text + &verdict(rows, controls)
}

fn headings(width: usize, controls: &[String]) -> String {
    let mut line = format!("{:width$}  {:>11} {:>11}", "", "gate", "aim");
    for control in controls {
        let _ = write!(line, "  {control:<CELL$}");
    }
    line.trim_end().to_owned() + "\n"
}

fn line(row: &Row, width: usize, rows: &[Row], controls: &[String]) -> String {
    let bound = |bound: Option<Bound>| bound.map_or(String::new(), |bound| show(bound, row.unit));
    let what = format!("{:INDENT$}{}", "", row.what);
    let mut line = format!(
        "{what:width$}  {:>11} {:>11}",
        bound(row.gate),
        bound(row.aim)
    );
    for control in controls {
        let same = |other: &&Row| {
            (other.group, &other.point, other.what, &other.control)
                == (row.group, &row.point, row.what, control)
        };
        let cell = rows.iter().find(same).map_or(String::new(), cell);
        let _ = write!(line, "  {cell:<CELL$}");
    }
    line.trim_end().to_owned() + "\n"
}

/// Measured value, its range over the seeds, and a mark if it is outside of the required range.
fn cell(row: &Row) -> String {
    let mut cell = row.unit.show(row.measured);
    let [least, most] = [row.least, row.most].map(|value| row.unit.show(value));
    if least != most {
        // The unit stands behind the measured value.
        let number = least.split_once(' ').map_or(&*least, |(number, _)| number);
        let most = most.split_once(' ').map_or(&*most, |(number, _)| number);
        let _ = write!(cell, " ({number} to {most})");
    }
    if let Some(path) = &row.path {
        let _ = write!(cell, " {path}");
    }
    match row.holds {
        Some(false) => cell + " FAILS",
        _ => cell,
    }
}

fn show(bound: Bound, unit: Unit) -> String {
    match bound {
        Bound::AtLeast(least) => format!("≥ {}", unit.show(least)),
        Bound::AtMost(most) => format!("≤ {}", unit.show(most)),
        Bound::Between(least, most) => format!("{} to {}", unit.show(least), unit.show(most)),
    }
}

/// Number of gates that hold and of aims that are reached, by controller.
fn verdict(rows: &[Row], controls: &[String]) -> String {
    let mut text = "\n".to_owned();
    for control in controls {
        let own = || rows.iter().filter(|row| row.control == *control);
        let count = |of: fn(&Row) -> Option<bool>| {
            let all = own().filter_map(of);
            (all.clone().filter(|holds| *holds).count(), all.count())
        };
        let ((holds, gates), (reached, aims)) = (count(|row| row.holds), count(|row| row.reached));
        let _ = writeln!(
            text,
            "{control}: {holds} of {gates} gates hold, {reached} of {aims} aims are reached"
        );
    }
    text
}

const INDENT: usize = 2;
/// Width of a controller's column.
const CELL: usize = 34;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(control: &str, measured: f64) -> Row {
        let gate = Bound::AtLeast(0.9);
        Row {
            group: "alone",
            point: "20ms".to_owned(),
            what: "used",
            control: control.to_owned(),
            path: None,
            unit: Unit::Share,
            measured,
            least: measured - 0.1,
            most: measured,
            cells: 1,
            seeds: 2,
            gate: Some(gate),
            holds: Some(gate.holds(measured)),
            aim: None,
            reached: None,
        }
    }

    #[test]
    fn controllers_stand_side_by_side() {
        let rows = [row("tide", 0.95), row("tfrc", 0.5)];
        let controls = ["tide", "tfrc"].map(str::to_owned);
        let text = table(&rows, &controls, &[("alone", "One flow".to_owned())]);
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines[0], "alone: One flow");
        let cells: Vec<&str> = lines[3].split_whitespace().collect();
        let want = "used ≥ 90.0 % 95.0 % (85.0 to 95.0) 50.0 % (40.0 to 50.0) FAILS";
        assert_eq!(cells.join(" "), want, "{text}");
        assert_eq!(lines[4], "tide: 1 of 1 gates hold, 0 of 0 aims are reached");
        assert_eq!(lines[5], "tfrc: 0 of 1 gates hold, 0 of 0 aims are reached");
    }
}
