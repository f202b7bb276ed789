//! Figures in the lab: smaller networks and shorter runs in real time, beside the simulator.

use tidegate_report::plot::{Cell, Figure, Table};

use super::path::{Control, Path};
use super::sweep::{Curve, Run, Sweep, mean};
use crate::papers::lab::{self, SEEDS, is_within};
use crate::papers::{Options, PapersError, Progress};

pub(super) use crate::papers::lab::{Measure, simulator, values};

/// In the lab, reduces flows, capacity and buffer to two fifths, shortens the run, and replaces the
/// TCP of ns-2 by that of Linux.
pub(super) fn reduce(path: &mut Path, options: &Options) {
    if !options.is_lab() {
        return;
    }
    let reduced = |count: u32| count * 2 / 5;
    for group in &mut path.groups {
        group.count = reduced(group.count);
        if group.control == Control::Tcp {
            group.control = Control::LinuxTcp;
        }
    }
    path.capacity = reduced(path.capacity);
    path.buffer = reduced(path.buffer);
    path.measure_from = 20.0;
    path.duration = 50.0;
}

/// In the lab, adds the simulator's values of the same scenarios, and a claim for each quantity of
/// each curve.
pub(super) fn compare(
    figure: &mut Figure,
    sweep: &Sweep,
    curves: &[Curve<'_>],
    options: &Options,
    progress: Progress<'_>,
    measures: &[Measure<'_>],
) -> Result<(), PapersError> {
    if !options.is_lab() {
        return Ok(());
    }
    lab::compare(figure, sweep, curves, options, progress, measures)?;
    figure.notes.push(
        "In the lab: two fifths of the flows, of the capacity (520 packets/s) and of the buffer, 50 s, \
         measured from 20 s on unless noted; TCP is Reno of Linux with SACK. The simulator has the \
         same scenarios."
            .to_owned(),
    );
    Ok(())
}

/// Throughput and overhead of single sources, beside those of the simulator, with a claim for each.
/// Simulated runs of one source are alike: as many packets as make a difference of `packets` per
/// second are no deviation.
pub(super) fn compare_source(figure: &mut Figure, lab: &[Run], simulated: &[Run], packets: f64) {
    let both = |of: fn(&Run) -> f64| {
        let values = |runs: &[Run]| runs.iter().map(of).collect::<Vec<f64>>();
        (values(lab), values(simulated))
    };
    let rates = both(|run| run.total("source"));
    let share = packets / mean(&rates.1);
    let overheads = both(|run| run.overhead("source"));
    let measures = [
        ("throughput, data packets/s", rates, packets),
        ("overhead, share of packets", overheads, share),
    ];
    let mut rows = Vec::new();
    for (name, (ours, theirs), slack) in measures {
        rows.push(vec![
            Cell::from(name),
            Cell::from(mean(&ours)),
            Cell::from(mean(&theirs)),
        ]);
        figure.claim(
            format!(
                "{name}: the lab's mean is within the simulator's spread and {slack:.3} ({SEEDS} seeds)"
            ),
            None,
            mean(&ours),
            is_within(&ours, &theirs, slack),
        );
    }
    figure.table = Some(Table {
        columns: ["", "lab", "simulator"].map(str::to_owned).to_vec(),
        rows,
    });
}
