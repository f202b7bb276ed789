//! Figures in the lab, beside the simulator.

use std::sync::Arc;

use tidegate_report::plot::Figure;

use super::sweep::{Curve, Run, Sweep, mean};
use super::{NoPictures, Options, PapersError, Progress, Simulator};

/// Values of the parameter, or curves: in the lab a few.
pub(super) fn values<'a, T>(options: &Options, all: &'a [T], few: &'a [T]) -> &'a [T] {
    if options.is_lab() { few } else { all }
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
    Ok(())
}

/// Whether the mean of the lab's runs is within the range of the simulated ones, extended by `slack`
/// at both ends.
pub(super) fn is_within(lab: &[f64], simulated: &[f64], slack: f64) -> bool {
    let low = simulated.iter().copied().fold(f64::INFINITY, f64::min);
    let high = simulated.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low - slack..=high + slack).contains(&mean(lab))
}

/// Simulated runs of each kind.
pub(super) const SEEDS: u64 = 10;
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
