//! Shares of RCS beside TCP on one path, for losses, round-trip time, buffer and queue.
//!
//! The paper has one such figure (Figure 20). The rates of all cells are printed as they are.

use tidegate_report::plot::{Cell, Figure, Point, Series, Table};

use super::path::{Control, Group, Path};
use super::sweep::{Curve, Run, Sweep};
use crate::papers::{Entry, Options, PapersError, Progress};

/// Conditions of a pair of groups.
#[derive(Clone, Copy, Debug)]
struct Case {
    loss: f64,
    rtt: f64,
    buffer: f64,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for loss in LOSSES {
        for rtt in RTTS {
            cases.extend(BUFFERS.map(|buffer| Case { loss, rtt, buffer }));
        }
    }
    cases
}

/// Five TCP flows and five of `other`.
fn path(case: Case, other: Control, has_priority: bool) -> Path {
    let group = |name, control| Group {
        name,
        control,
        count: 5,
        is_satellite: true,
    };
    Path {
        loss: case.loss,
        rtt: case.rtt,
        buffer: case.buffer as u32,
        has_priority,
        duration: 150.0,
        measure_from: 50.0,
        ..Path::with(vec![group("tcp", Control::Tcp), group("other", other)])
    }
}

/// Share of RCS in the throughput of all, in percent. A fair one is 50.
fn share(run: &Run) -> f64 {
    100.0 * run.total("other") / all(run)
}

fn all(run: &Run) -> f64 {
    run.total("other") + run.total("tcp")
}

pub(super) fn shares(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let cases = cases();
    let numbers: Vec<f64> = (0..cases.len()).map(|n| n as f64).collect();
    let curve = |name: &str, other: Control, has_priority: bool| {
        let cases = &cases;
        Curve::new(name, move |n| path(cases[n as usize], other, has_priority))
    };
    let curves = [
        curve("plain", Control::Rcs, false),
        curve("priority", Control::Rcs, true),
        curve("TCP", Control::Tcp, true),
    ];
    let sweep = Sweep::play(&numbers, &curves, options, progress)?;
    // Beside its own kind a group of TCP has half of what both have.
    let alone = |n| sweep.mean(2, n, all) / 2.0;
    let kept = |queue, n| sweep.mean(queue, n, |run| run.total("tcp")) / alone(n);
    let mut figure = entry.figure();
    draw(&mut figure, &sweep, &cases, &kept);
    let least = |queue| {
        let kept = (0..cases.len()).map(|n| kept(queue, n));
        kept.fold(f64::INFINITY, f64::min)
    };
    figure.claim(
        "the throughput of TCP is not penalised: on a priority queue it keeps at least 0.8 of what it has \
         beside TCP (the smallest ratio)",
        None,
        least(PRIORITY),
        least(PRIORITY) >= 0.8,
    );
    figure.claim(
        "dummy packets affect others if a router has no priority: on a plain queue TCP keeps less (the \
         smallest ratio)",
        None,
        least(PLAIN),
        least(PLAIN) < least(PRIORITY),
    );
    figure.notes.push(
        "Five RCS and five SACK TCP flows with the same round-trip time share 1,300 packets/s, from 50 to \
         150 s. A fair share is 50 %. \"TCP kept\" is their throughput over that of five TCP flows beside \
         five others of TCP."
            .to_owned(),
    );
    Ok(figure)
}

/// The table and the lines of all cells. `kept` is what TCP keeps of its throughput on a queue.
fn draw(figure: &mut Figure, sweep: &Sweep, cases: &[Case], kept: &dyn Fn(usize, usize) -> f64) {
    let mut rows = Vec::new();
    for queue in [PLAIN, PRIORITY] {
        for (n, case) in cases.iter().enumerate() {
            let Some(point) = Point::over(case.buffer, &sweep.each(queue, n, share)) else {
                continue;
            };
            rows.push(vec![
                Cell::from(sweep.names[queue].as_str()),
                Cell::Text(format!("{}", case.loss)),
                Cell::Text(format!("{}", case.rtt)),
                Cell::Text(format!("{}", case.buffer)),
                Cell::from(point.y),
                Cell::from(point.lo),
                Cell::from(point.hi),
                Cell::from(kept(queue, n)),
                Cell::from(sweep.mean(queue, n, all)),
            ]);
            add(figure, &sweep.names[queue], *case, point);
        }
    }
    figure.table = Some(Table {
        columns: COLUMNS.map(str::to_owned).to_vec(),
        rows,
    });
}

/// Adds a point to the line of its round-trip time.
fn add(figure: &mut Figure, queue: &str, case: Case, point: Point) {
    let name = format!("{queue} queue, P = {}: {} ms", case.loss, case.rtt);
    let known = figure.series.iter_mut().find(|series| series.name == name);
    if let Some(series) = known {
        series.points.push(point);
        return;
    }
    let units = ("packets", "share of RCS, %");
    figure.series.push(Series::new(name, units, vec![point]));
}

const COLUMNS: [&str; 9] = [
    "queue",
    "P",
    "RTT ms",
    "K packets",
    "RCS %",
    "from",
    "to",
    "TCP kept",
    "packets/s",
];
const PLAIN: usize = 0;
const PRIORITY: usize = 1;
const LOSSES: [f64; 2] = [0.0, 1e-3];
const RTTS: [f64; 4] = [20.0, 100.0, 250.0, 550.0];
const BUFFERS: [f64; 4] = [20.0, 50.0, 200.0, 500.0];
