//! Figure 3 in the lab: TFRC over real sockets beside kernel TCP, and the same scenarios in the simulator.

use std::sync::Arc;

use tidegate_report::plot::{Cell, Figure, Table};

use super::{CASES, Case, Run, Variant, claim, draw, median, play};
use crate::papers::{NoPictures, Options, PapersError, Progress, Simulator};

/// Reno of Linux, whose senders do not delay packets; the links do.
pub(super) const LINUX: Variant = Variant {
    tcp: "kind = \"linux-reno\"",
    links: "\njitter = { max = \"800us\" }",
};

pub(super) fn fig3(
    figure: &mut Figure,
    options: &Options,
    progress: Progress<'_>,
) -> Result<(), PapersError> {
    let lab = play(LINUX, options, progress)?;
    let simulator = Options {
        world: Arc::new(Simulator::new(Arc::new(NoPictures))),
        seeds: SEEDS,
        ..options.clone()
    };
    let simulated = play(LINUX, &simulator, &|_| {})?;
    draw(figure, &lab);
    claim(figure, &lab);
    compare(figure, &lab, &simulated);
    figure.notes.push(format!(
        "In the lab, the network is the paper's in real time, not reduced; TCP is Reno of Linux with SACK, \
         and both links delay packets by up to 0.8 ms at random, as the senders of ns-2 do. The simulator \
         has its model of that TCP on the same links, and {SEEDS} seeds."
    ));
    Ok(())
}

/// A quantity of a run.
type Of = fn(&Run) -> f64;

const QUANTITIES: [(&str, Of); 3] = [
    ("settled after s", Run::settled),
    ("90 % of the fair share after s", |run| run.reached(0.9)),
    ("TCP packets dropped in 5 s", |run| run.tcp_drops),
];

/// The table: each quantity, the median and the range of the lab beside those of the simulator. A claim for each
/// quantity.
fn compare(figure: &mut Figure, lab: &[Vec<Run>], simulated: &[Vec<Run>]) {
    let mut columns = vec!["start".to_owned()];
    for (name, _) in QUANTITIES {
        columns.extend([format!("{name}: lab"), "simulator".to_owned()]);
    }
    let row = |(case, (lab, simulated)): (&Case, (&Vec<Run>, &Vec<Run>))| {
        let mut row = vec![Cell::Text(case.name.to_owned())];
        for (_, of) in QUANTITIES {
            row.extend([lab, simulated].map(|runs| Cell::Text(spread(runs, of))));
        }
        row
    };
    let pairs = lab.iter().zip(simulated);
    figure.table = Some(Table {
        columns,
        rows: CASES.iter().zip(pairs.clone()).map(row).collect(),
    });
    for (name, of) in QUANTITIES {
        let is_within = |(lab, simulated): &(&Vec<Run>, &Vec<Run>)| is_within(lab, simulated, of);
        let within = pairs.clone().filter(is_within).count();
        figure.claim(
            format!(
                "{name}: the lab's median is within the simulator's spread of {SEEDS} seeds (number of \
                 starts, of {})",
                CASES.len()
            ),
            None,
            within as f64,
            within == CASES.len(),
        );
    }
}

fn range(runs: &[Run], of: Of) -> (f64, f64) {
    let ends = (f64::INFINITY, f64::NEG_INFINITY);
    let widen = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
    runs.iter().map(of).fold(ends, widen)
}

/// `false` without a run of the lab.
fn is_within(lab: &[Run], simulated: &[Run], of: Of) -> bool {
    let (low, high) = range(simulated, of);
    (low..=high).contains(&median(lab, of))
}

fn spread(runs: &[Run], of: Of) -> String {
    let (low, high) = range(runs, of);
    format!("{:.1} ({low:.1} to {high:.1})", median(runs, of))
}

/// Simulated runs of each start.
const SEEDS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tcp_drops: f64) -> Run {
        Run {
            rates: Vec::new(),
            tcp_drops,
            rtt: f64::NAN,
        }
    }

    #[test]
    fn a_median_outside_the_range_is_a_deviation() {
        let of: Of = |run| run.tcp_drops;
        let simulated = [100.0, 140.0].map(run);
        assert!(is_within(&[90.0, 120.0, 300.0].map(run), &simulated, of));
        assert!(!is_within(&[90.0, 95.0, 120.0].map(run), &simulated, of));
        assert!(!is_within(&[], &simulated, of));
        assert_eq!(spread(&simulated, of), "120.0 (100.0 to 140.0)");
    }
}
