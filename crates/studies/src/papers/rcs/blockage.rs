//! Losses of the signal (section V-E, Figure 22).

use tidegate_report::plot::Figure;

use super::lab;
use super::path::{Control, Path};
use super::sweep::{Curve, Run, Sweep};
use crate::papers::{Entry, Options, PapersError, Progress};

type Played = Result<Figure, PapersError>;

/// Ten flows, measured for some seconds from the return of the signal: during its loss nothing
/// arrives, whatever the rate control.
fn path(control: Control, lasts: f64, measured: f64) -> Path {
    Path {
        blockage: lasts,
        ..Path::of(control)
    }
    .measured_after(measured)
}

/// The path of Figure 22(a), smaller and shorter in the lab.
fn reduced(control: Control, lasts: f64, options: &Options) -> Path {
    let mut path = path(control, lasts, MEASURED);
    lab::reduce(&mut path, options);
    if options.is_lab() {
        path.blockage_at = LOST_IN_LAB;
        path = path.measured_after(MEASURED_IN_LAB);
    }
    path
}

fn total(run: &Run) -> f64 {
    run.total("flow")
}

pub(super) fn throughput(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let controls = [
        Control::Rcs,
        Control::RcsWithoutBackoff,
        Control::Rap,
        Control::Tcp,
    ];
    let curves = controls.map(|control| {
        Curve::new(control.name(), move |lasts| {
            reduced(control, lasts, options)
        })
    });
    let all = lab::values(options, &LASTS, &[0.0, 5.0, 30.0]);
    let sweep = Sweep::play(all, &curves, options, progress)?;
    let mut figure = entry.figure();
    let units = ("s", "data packets/s");
    sweep.draw(&mut figure, "", units, total, 0..controls.len());
    claims(&mut figure, &sweep, all.len());
    if options.is_lab() {
        figure.notes.push(format!(
            "Throughput over {MEASURED_IN_LAB} s from the return of the signal, which is lost after \
             {LOST_IN_LAB} s."
        ));
        let measures = [
            lab::Measure::new("throughput", units, total, &[0, 1, 2, 3]),
            lab::Measure::overhead(units.0, |run| run.overhead("flow"), &[0]),
        ];
        lab::compare(&mut figure, &sweep, &curves, options, progress, &measures)?;
        return Ok(figure);
    }
    let gains = gains_by_interval(options, progress)?;
    figure.notes.push(format!(
        "Throughput over {MEASURED} s from the return of the signal. The paper does not state its \
         interval, which decides the result, because RAP grows by a packet per round trip from nearly \
         nothing. At a signal loss of 30 s the improvement over RAP is {}.",
        gains.join(", ")
    ));
    Ok(figure)
}

/// Claims about RCS, RCS without Backoff and RAP, the first three curves, at `count` lengths of the
/// loss.
fn claims(figure: &mut Figure, sweep: &Sweep, count: usize) {
    let at = sweep.at(30.0);
    let gain = sweep.mean(0, at, total) / sweep.mean(2, at, total) - 1.0;
    figure.claim(
        "RCS has more than 260 % throughput improvement over RAP at a signal loss of 30 s",
        Some(260.0),
        100.0 * gain,
        gain > 2.6,
    );
    let kept = |curve| {
        let all = (0..count).map(|n| sweep.mean(curve, n, total));
        all.fold(f64::INFINITY, f64::min) / sweep.mean(curve, 0, total)
    };
    figure.claim(
        "the degradation of RCS is negligible: at least 90 % of its throughput is left (the smallest \
         share)",
        Some(1.0),
        kept(0),
        kept(0) >= 0.9,
    );
    figure.claim(
        "the throughput of RAP decreases dramatically: at most half is left (the smallest share)",
        None,
        kept(2),
        kept(2) <= 0.5,
    );
    let better = (sweep.at(5.0)..count)
        .map(|n| sweep.mean(0, n, total) / sweep.mean(1, n, total) - 1.0)
        .fold(f64::INFINITY, f64::min);
    figure.claim(
        "Backoff increases the throughput from 5 s on; shorter losses end in Detected (the smallest gain, \
         %)",
        None,
        100.0 * better,
        better > 0.0,
    );
}

/// Improvement over RAP at a signal loss of 30 s, for the length of the measurement.
fn gains_by_interval(
    options: &Options,
    progress: Progress<'_>,
) -> Result<Vec<String>, PapersError> {
    let curve = |control: Control| {
        Curve::new(control.name(), move |measured| {
            path(control, 30.0, measured)
        })
    };
    let curves = [Control::Rcs, Control::Rap].map(curve);
    let sweep = Sweep::play(&INTERVALS, &curves, options, progress)?;
    let gain = |n: usize| {
        let gain = sweep.mean(0, n, total) / sweep.mean(1, n, total) - 1.0;
        format!("{:.0} % over {} s", 100.0 * gain, INTERVALS[n])
    };
    Ok((0..INTERVALS.len()).map(gain).collect())
}

pub(super) fn overhead(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let curve = Curve::new("RCS", |lasts| Path {
        measure_from: Path::of(Control::Rcs).blockage_at,
        ..path(Control::Rcs, lasts, MEASURED)
    });
    let sweep = Sweep::play(&LASTS, &[curve], options, progress)?;
    let mut figure = entry.figure();
    let dummies = |run: &Run| run.overhead("flow");
    sweep.draw(&mut figure, "", ("s", "share of packets"), dummies, [0]);
    let (first, last) = (
        sweep.mean(0, 0, dummies),
        sweep.mean(0, LASTS.len() - 1, dummies),
    );
    figure.claim(
        "the overhead slightly increases with the duration of the signal loss (from 0 to 60 s, in \
         percentage points)",
        None,
        100.0 * (last - first),
        last > first,
    );
    figure.notes.push(
        "Packets sent from the begin of the signal loss until 100 s after its end.".to_owned(),
    );
    Ok(figure)
}

const LASTS: [f64; 7] = [0.0, 1.0, 5.0, 10.0, 20.0, 30.0, 60.0];
/// Seconds of the measurement.
const MEASURED: f64 = 100.0;
/// The same in the lab, and the begin of the signal loss there.
const MEASURED_IN_LAB: f64 = 20.0;
const LOST_IN_LAB: f64 = 15.0;
const INTERVALS: [f64; 4] = [10.0, 20.0, 30.0, 50.0];
