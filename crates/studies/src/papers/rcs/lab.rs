//! Figures in the lab: smaller networks and shorter runs in real time, beside the simulator.

use std::sync::Arc;

use tidegate_report::plot::{Cell, Figure, Table};

use super::path::{Control, Path};
use super::sweep::{Curve, Run, Sweep, mean};
use crate::papers::{NoPictures, Options, PapersError, Progress, Simulator};

/// Values of the parameter: in the lab a few.
pub(super) fn values<'a>(options: &Options, all: &'a [f64], few: &'a [f64]) -> &'a [f64] {
    if options.is_lab() { few } else { all }
}

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

/// The options for simulated runs of the same scenarios.
pub(super) fn simulator(options: &Options) -> Options {
    Options {
        world: Arc::new(Simulator::new(Arc::new(NoPictures))),
        seeds: SEEDS,
        ..options.clone()
    }
}

/// A quantity of some curves that is compared with the simulator's.
pub(super) struct Measure<'a> {
    name: &'static str,
    units: (&'static str, &'static str),
    of: fn(&Run) -> f64,
    curves: &'a [usize],
}

impl<'a> Measure<'a> {
    pub(super) fn new(
        name: &'static str,
        units: (&'static str, &'static str),
        of: fn(&Run) -> f64,
        curves: &'a [usize],
    ) -> Self {
        Self {
            name,
            units,
            of,
            curves,
        }
    }

    /// Share of dummy packets.
    pub(super) fn overhead(
        parameter: &'static str,
        of: fn(&Run) -> f64,
        curves: &'a [usize],
    ) -> Self {
        Self::new(OVERHEAD, (parameter, "share of packets"), of, curves)
    }
}

/// In the lab, adds the simulator's values of the same scenarios, and a claim for each quantity of
/// each curve.
pub(super) fn compare(
    figure: &mut Figure,
    lab: &Sweep,
    curves: &[Curve<'_>],
    options: &Options,
    progress: Progress<'_>,
    measures: &[Measure<'_>],
) -> Result<(), PapersError> {
    if !options.is_lab() {
        return Ok(());
    }
    let simulated = Sweep::play(&lab.values, curves, &simulator(options), progress)?;
    for measure in measures {
        let (name, curves) = (measure.name, || measure.curves.iter().copied());
        if name == OVERHEAD {
            lab.draw(figure, name, measure.units, measure.of, curves());
        }
        let panel = format!("simulated {name}");
        simulated.draw(figure, &panel, measure.units, measure.of, curves());
        for curve in curves() {
            let points = lab.values.len();
            let is_within = |n: &usize| {
                let range = simulated.each(curve, *n, measure.of);
                is_within(&lab.each(curve, *n, measure.of), &range, 0.0)
            };
            let within = (0..points).filter(is_within).count();
            let of = &lab.names[curve];
            figure.claim(
                format!(
                    "{name} of {of}: the lab's mean is within the simulator's spread of {SEEDS} seeds \
                     (number of points, of {points})"
                ),
                None,
                within as f64,
                within == points,
            );
        }
    }
    figure.notes.push(
        "In the lab: two fifths of the flows, of the capacity (520 packets/s) and of the buffer, 50 s, \
         measured from 20 s on unless noted; TCP is Reno of Linux with SACK. The simulator has the \
         same scenarios."
            .to_owned(),
    );
    Ok(())
}

/// Whether the mean of the lab's runs is within the range of the simulated ones, extended by `slack`
/// at both ends.
fn is_within(lab: &[f64], simulated: &[f64], slack: f64) -> bool {
    let low = simulated.iter().copied().fold(f64::INFINITY, f64::min);
    let high = simulated.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low - slack..=high + slack).contains(&mean(lab))
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

/// Simulated runs of each kind.
const SEEDS: u64 = 10;
const OVERHEAD: &str = "overhead";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_outside_the_range_is_a_deviation() {
        let simulated = [10.0, 12.0];
        assert!(is_within(&[9.0, 12.0], &simulated, 0.0));
        assert!(!is_within(&[9.0, 9.5], &simulated, 0.5));
        assert!(is_within(&[9.0, 10.0], &simulated, 0.5));
        assert!(!is_within(&[13.0], &simulated, 0.5));
        // No run of the lab succeeded.
        assert!(!is_within(&[], &simulated, 0.5));
    }
}
