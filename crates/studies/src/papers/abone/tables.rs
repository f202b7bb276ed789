//! Tables 5 and 6.

use super::super::outcome::mean;
use super::super::runs::PapersError;
use super::super::{
    Cell, Claim, Distance, Entry, Figure, Options, PUBLISHED_SERIES, Pair, Point, Progress, Series,
    Table, Tolerance,
};
use super::figures::bars;
use super::{ARMS, Group, METRICS, groups, notes, runs};

pub(super) fn table5(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let groups = groups(options, progress)?;
    let mut figure = bars(entry, options, &groups);
    let mut columns: Vec<String> = ["tcp", "node", "sym", "row"].map(str::to_owned).to_vec();
    columns.extend(METRICS.iter().map(|(name, _)| (*name).to_owned()));
    let rows = groups.iter().flat_map(rows5).collect();
    figure.table = Some(Table { columns, rows });
    figure.distances = distances5(&groups);
    Ok(figure)
}

/// Ours, its spread over the runs, and the published values.
fn rows5(group: &Group) -> [Vec<Cell>; 3] {
    let head = |row: &str| -> Vec<Cell> {
        vec![
            group.tcp.name().into(),
            group.node.name.into(),
            ARMS[group.arm].0.into(),
            row.into(),
        ]
    };
    let points = METRICS.iter().map(|(_, of)| group.point(0.0, of));
    let points: Vec<Option<Point>> = points.collect();
    let line = |name: &str, of: &dyn Fn(&Point) -> f64| {
        let mut row = head(name);
        row.extend(points.iter().map(|p| p.as_ref().map(of).into()));
        row
    };
    let mut paper = head("paper");
    paper.extend(group.node.table5[group.arm].map(Cell::from));
    [
        line("ours", &|p| p.y),
        line("±", &|p| (p.hi - p.lo) / 2.0),
        paper,
    ]
}

/// Tolerances of Table 5: one event, a decibel, a tenth of everything else.
fn tolerance(metric: usize) -> Tolerance {
    match METRICS[metric].0 {
        "events" | "SNR Y dB" => Tolerance::Absolute(1.0),
        _ => Tolerance::Relative(0.1),
    }
}

fn distances5(groups: &[Group]) -> Vec<Distance> {
    let mut distances = Vec::new();
    for groups in groups.chunk_by(|one, next| one.tcp == next.tcp) {
        for (metric, (name, of)) in METRICS.iter().enumerate() {
            let pairs = groups.iter().map(|group| Pair {
                at: format!("{} {}", group.node.name, ARMS[group.arm].0),
                published: group.node.table5[group.arm][metric],
                ours: group.mean(of),
            });
            let quantity = format!("{} {name}", groups[0].tcp.name());
            distances.extend(Distance::of(quantity, tolerance(metric), pairs));
        }
    }
    distances
}

/// Names of the planes in Table 6.
const PLANES: [&str; 3] = ["Y", "U", "V"];

pub(super) fn table6(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let groups = groups(options, progress)?;
    let mut figure = entry.figure();
    let mut rows = Vec::new();
    for group in groups.iter().filter(|g| g.arm == 0) {
        rows.extend(rows6(group));
        figure.series.extend(series6(group));
        if let Some(off) = group.without(&groups) {
            figure.claims.push(costs_quality(group, off));
        }
    }
    let columns = ["tcp", "node", "run", "Y dB", "U dB", "V dB"];
    figure.table = Some(Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    });
    figure.distances = distances6(&groups);
    figure.runs = Some(runs(&groups));
    let always = "The report contradicts itself for Columbia: its Table 5 has 22.51 dB of Y, its Table 6 21.78; \
         the cost of symbiosis is taken from its Table 5. A run without an event has the quality of the \
         full rate. R1 to R5 of the paper are other runs than R1 to R5 of ours; the means are compared, \
         with a tolerance of 1 dB. The published runs of a node differ by 2.3 to 8.7 dB of Y.";
    figure.notes = notes(options, &[always], &[]);
    Ok(figure)
}

/// Each run and the mean, ours and published.
fn rows6(group: &Group) -> Vec<Vec<Cell>> {
    let row = |run: &str, snr: [f64; 3]| -> Vec<Cell> {
        let mut row: Vec<Cell> = vec![group.tcp.name().into(), group.node.name.into(), run.into()];
        row.extend(snr.map(Cell::from));
        row
    };
    let mut rows = Vec::new();
    for (number, run) in group.runs.iter().enumerate() {
        rows.push(row(&format!("R{}", number + 1), run.mean_snr()));
    }
    rows.push(row("mean", mean_snr(group)));
    for (number, snr) in group.node.runs6.iter().enumerate() {
        rows.push(row(&format!("paper R{}", number + 1), *snr));
    }
    rows.push(row("paper", group.node.table6));
    rows
}

fn mean_snr(group: &Group) -> [f64; 3] {
    [0, 1, 2].map(|plane| group.mean(|o| o.mean_snr()[plane]))
}

/// Mean and spread of the runs of a node, ours and published.
fn series6(group: &Group) -> [Series; 2] {
    let units = ("plane: Y, U, V", "dB");
    let ours = [0, 1, 2].map(|plane| group.point(plane as f64, |o| o.mean_snr()[plane]));
    let published = [0, 1, 2].map(|plane| {
        let runs = group.node.runs6.map(|run| run[plane]);
        Point::over(plane as f64, &runs)
    });
    [
        Series::new(group.name(), units, ours.into_iter().flatten().collect()),
        Series::new(
            format!("{}{PUBLISHED_SERIES}", group.name()),
            units,
            published.into_iter().flatten().collect(),
        ),
    ]
}

fn costs_quality(on: &Group, off: &Group) -> Claim {
    let lost = mean_snr(off)[0] - mean_snr(on)[0];
    let published = on.node.table5[1][3] - on.node.table5[0][3];
    let text = format!(
        "{} {}: symbiosis trades quality for delay (its cost in dB of Y)",
        on.tcp.name(),
        on.node.name
    );
    if mean(on.runs.iter().map(|run| run.record.delivered as f64)) == 0.0 {
        return Claim::no_event(text, Some(published));
    }
    Claim::new(text, Some(published), lost, lost > 0.0)
}

fn distances6(groups: &[Group]) -> Vec<Distance> {
    let mut distances = Vec::new();
    for groups in groups.chunk_by(|one, next| one.tcp == next.tcp) {
        for (plane, name) in PLANES.iter().enumerate() {
            let with = groups.iter().filter(|group| group.arm == 0);
            let pairs = with.map(|group| Pair {
                at: group.node.name.to_owned(),
                published: group.node.table6[plane],
                ours: mean_snr(group)[plane],
            });
            let quantity = format!(
                "{} SNR of {name} in dB, mean of the runs",
                groups[0].tcp.name()
            );
            distances.extend(Distance::of(quantity, Tolerance::Absolute(1.0), pairs));
        }
    }
    distances
}

#[cfg(test)]
mod tests {
    use super::super::NODES;
    use super::*;

    /// The means are printed beneath the runs.
    #[test]
    fn published_means_are_those_of_the_published_runs() {
        for node in &NODES {
            for plane in 0..3 {
                let runs = mean(node.runs6.map(|run| run[plane]));
                let off = (runs - node.table6[plane]).abs();
                assert!(off < 0.006, "{} {}: {runs}", node.name, PLANES[plane]);
            }
        }
    }
}
