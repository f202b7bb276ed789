//! Throughput of ten flows of one kind, and the overhead of dummy packets (Figures 17 to 19).

use tidegate_report::claims::Claim;
use tidegate_report::plot::Figure;

use super::lab;
use super::path::{Background, Control, Path};
use super::sweep::{Curve, Run, Sweep};
use crate::papers::{Entry, Options, PapersError, Progress};

type Played = Result<Figure, PapersError>;

/// Curves of [`Control::Rcs`], [`Control::Rap`] and [`Control::Tcp`] in this order.
fn curves<'a>(change: impl Fn(&mut Path, f64) + Copy + 'a) -> Vec<Curve<'a>> {
    let curve = |control: Control| {
        Curve::new(control.name(), move |value| {
            let mut path = Path::of(control);
            change(&mut path, value);
            path
        })
    };
    [Control::Rcs, Control::Rap, Control::Tcp].map(curve).into()
}

const RCS: usize = 0;
const RAP: usize = 1;
const TCP: usize = 2;

/// Data packets per second of all flows.
fn total(run: &Run) -> f64 {
    run.total("flow")
}

fn overhead(run: &Run) -> f64 {
    run.overhead("flow")
}

/// Gain of RCS over RAP, A / B − 1, from the means over the seeds.
fn gain(sweep: &Sweep, value: usize) -> f64 {
    sweep.mean(RCS, value, total) / sweep.mean(RAP, value, total) - 1.0
}

/// Claim that RCS gains over RAP at every value; the number is the smallest gain.
fn outperforms(sweep: &Sweep, text: &str) -> Claim {
    let gains = (0..sweep.values.len()).map(|n| gain(sweep, n));
    let least = gains.fold(f64::INFINITY, f64::min);
    percent(text, 0.0, least, least > 0.0)
}

fn percent(text: &str, published: f64, ours: f64, holds: bool) -> Claim {
    Claim::new(text.to_owned(), Some(published), 100.0 * ours, holds)
}

pub(super) fn by_loss(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let losses = lab::values(options, &LOSSES, &[1e-4, 1e-3, 5e-3]);
    let curves = curves(|path, p| {
        path.loss = p;
        lab::reduce(path, options);
    });
    let sweep = Sweep::play(losses, &curves, options, progress)?;
    let mut figure = entry.figure();
    let units = ("loss probability", "data packets/s");
    sweep.draw(&mut figure, "", units, total, [RCS, RAP, TCP]);
    let at = sweep.at(5e-3);
    let improved = gain(&sweep, at);
    figure.claims.push(percent(
        "more than 150 % throughput improvement over RAP at a loss probability of 0.005",
        150.0,
        improved,
        improved > 1.5,
    ));
    figure.claims.push(outperforms(
        &sweep,
        "RCS improves the throughput over RAP at every loss probability (the smallest gain, %)",
    ));
    let values = |n: usize| sweep.mean(RCS, n, total);
    let best = (0..losses.len()).max_by(|a, b| values(*a).total_cmp(&values(*b)));
    let is_expected = best == Some(sweep.at(1e-3));
    let best = best.map_or(f64::NAN, |n| losses[n]);
    figure.claim(
        "the throughput of RCS is largest at this loss probability",
        Some(1e-3),
        best,
        is_expected,
    );
    let measures = [
        lab::Measure::new("throughput", units, total, &[RCS, RAP, TCP]),
        lab::Measure::overhead(units.0, overhead, &[RCS]),
    ];
    lab::compare(&mut figure, &sweep, &curves, options, progress, &measures)?;
    Ok(figure)
}

pub(super) fn by_rtt(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let sweep = Sweep::play(
        &RTTS,
        &curves(|path, rtt| path.rtt = rtt),
        options,
        progress,
    )?;
    let mut figure = entry.figure();
    sweep.draw(
        &mut figure,
        "",
        ("ms", "data packets/s"),
        total,
        [RCS, RAP, TCP],
    );
    let all: Vec<f64> = (0..RTTS.len()).map(|n| sweep.mean(RCS, n, total)).collect();
    let (low, high) = range(&all);
    figure.claims.push(percent(
        "RCS is not significantly affected by the round-trip time: its smallest throughput is at least \
         80 % of its largest",
        100.0,
        low / high,
        low / high >= 0.8,
    ));
    let raps: Vec<f64> = (0..RTTS.len()).map(|n| sweep.mean(RAP, n, total)).collect();
    let kept = raps[RTTS.len() - 1] / raps[0];
    figure.claim(
        "RAP severely degrades: its throughput at 750 ms is at most half of that at 100 ms",
        None,
        kept,
        kept <= 0.5,
    );
    let moderate = gain(&sweep, sweep.at(150.0));
    figure.claims.push(percent(
        "RCS outperforms RAP for moderate round-trip times such as 150 ms (the gain, %)",
        0.0,
        moderate,
        moderate > 0.0,
    ));
    Ok(figure)
}

pub(super) fn by_background(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let constant = |path: &mut Path, rate| path.background = Some(Background::Constant(rate));
    let mut all = curves(constant);
    all.push(Curve::new("RCS, friendly background", |rate| {
        let mut path = Path::of(Control::Rcs);
        path.background = Some(Background::Friendly(rate));
        path
    }));
    let friendly = all.len() - 1;
    let sweep = Sweep::play(&BACKGROUNDS, &all, options, progress)?;
    let mut figure = entry.figure();
    let units = ("low-priority packets/s", "data packets/s");
    sweep.draw(&mut figure, "", units, total, [RCS, friendly, RAP, TCP]);
    let share = |curve, value| sweep.mean(curve, value, total) / sweep.mean(curve, 0, total);
    let at_400 = (0..=sweep.at(400.0)).map(|n| share(RCS, n));
    let at_400 = at_400.fold(f64::INFINITY, f64::min);
    figure.claims.push(percent(
        "RCS is insensitive to background without rate control up to 400 packets/s: at least 90 % of \
         its throughput is left",
        100.0,
        at_400,
        at_400 >= 0.9,
    ));
    let left = share(RCS, sweep.at(600.0));
    figure.claims.push(percent(
        "its degradation is very slight even at 600 packets/s: at least 80 % is left",
        100.0,
        left,
        left >= 0.8,
    ));
    figure.claims.push(outperforms(
        &sweep,
        "RCS outperforms RAP at every rate of the background (the smallest gain, %)",
    ));
    let kept = (0..BACKGROUNDS.len()).map(|n| share(friendly, n));
    let kept = kept.fold(f64::INFINITY, f64::min);
    figure.claims.push(percent(
        "RCS is not affected by TCP-friendly background (the smallest share that is left, %)",
        100.0,
        kept,
        kept >= 0.95,
    ));
    figure.notes.push(
        "Background without rate control takes the capacity that dummy packets should find unused. It \
         has the priority of dummy packets and shares their queue, so the throughput falls as soon as \
         background and data together exceed the capacity."
            .to_owned(),
    );
    Ok(figure)
}

pub(super) fn by_buffer(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let change = |path: &mut Path, packets: f64| path.buffer = packets as u32;
    let sweep = Sweep::play(&BUFFERS, &curves(change), options, progress)?;
    let mut figure = entry.figure();
    let units = ("packets", "data packets/s");
    sweep.draw(&mut figure, "", units, total, [RCS, RAP, TCP]);
    let upto: Vec<f64> = (0..=sweep.at(300.0))
        .map(|n| sweep.mean(RCS, n, total))
        .collect();
    let (low, high) = range(&upto);
    figure.claims.push(percent(
        "RCS does not change significantly up to 300 packets: its smallest throughput is at least 90 % \
         of its largest",
        100.0,
        low / high,
        low / high >= 0.9,
    ));
    let last = sweep.mean(RCS, BUFFERS.len() - 1, total);
    let more = last / upto[upto.len() - 1] - 1.0;
    figure.claims.push(percent(
        "for larger buffers the throughput of RCS slightly increases (from 300 to 500 packets, %)",
        0.0,
        more,
        more > 0.0,
    ));
    figure.claims.push(outperforms(
        &sweep,
        "RCS outperforms RAP for all buffers (the smallest gain, %)",
    ));
    Ok(figure)
}

pub(super) fn overhead_by_loss(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let curves = &curves(|path, p| path.loss = p)[..2];
    let sweep = Sweep::play(&LOSSES, curves, options, progress)?;
    let mut figure = entry.figure();
    let units = ("loss probability", "share of packets");
    sweep.draw(&mut figure, "overhead", units, overhead, [RCS]);
    let units = ("loss probability", "data packets/s");
    sweep.draw(&mut figure, "throughput", units, total, [RCS, RAP]);
    let at = sweep.at(1e-2);
    let dummies = sweep.mean(RCS, at, overhead);
    figure.claims.push(percent(
        "the overhead is 21.5 % at a loss probability of 0.01 (within 5 percentage points)",
        21.5,
        dummies,
        (dummies - 0.215).abs() <= 0.05,
    ));
    let ours = gain(&sweep, at) + 1.0;
    figure.claims.push(percent(
        "the throughput gain, which the paper defines here as the ratio, is higher than 200 % at a loss \
         probability of 0.01",
        200.0,
        ours,
        ours > 2.0,
    ));
    let rises = (1..LOSSES.len())
        .all(|n| sweep.mean(RCS, n, overhead) > sweep.mean(RCS, n - 1, overhead) - 0.005);
    let most = sweep.mean(RCS, LOSSES.len() - 1, overhead);
    figure.claims.push(percent(
        "the overhead increases with the loss probability (its largest value, %)",
        21.5,
        most,
        rises,
    ));
    figure.notes.push(format!(
        "As in Figure 17(a), where an improvement is the excess of the ratio over 1, the gain at a loss \
         probability of 0.01 is {:.0} %.",
        100.0 * (ours - 1.0)
    ));
    Ok(figure)
}

pub(super) fn overhead_by_rtt(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let curves = &curves(|path, rtt| path.rtt = rtt)[..1];
    let sweep = Sweep::play(&RTTS, curves, options, progress)?;
    let mut figure = entry.figure();
    sweep.draw(&mut figure, "", ("ms", "share of packets"), overhead, [RCS]);
    let long: Vec<f64> = (sweep.at(400.0)..RTTS.len())
        .map(|n| sweep.mean(RCS, n, overhead))
        .collect();
    let (low, high) = range(&long);
    figure.claims.push(percent(
        "the overhead is about 10 % for round-trip times of 400 ms and more (its largest value, 7 to 13 \
         %)",
        10.0,
        high,
        low >= 0.07 && high <= 0.13,
    ));
    let short = sweep.mean(RCS, 0, overhead);
    figure.claims.push(percent(
        "the overhead is higher for round-trip times of about 100 ms than for 400 ms and more",
        10.0,
        short,
        short > high,
    ));
    Ok(figure)
}

fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low, high)
}

const LOSSES: [f64; 7] = [1e-4, 3e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2];
const RTTS: [f64; 7] = [100.0, 150.0, 250.0, 400.0, 550.0, 650.0, 750.0];
const BACKGROUNDS: [f64; 7] = [0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0];
const BUFFERS: [f64; 7] = [20.0, 50.0, 100.0, 200.0, 300.0, 400.0, 500.0];
