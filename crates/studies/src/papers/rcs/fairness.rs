//! Shares of RCS and TCP flows at one bottleneck (section V-D, Figures 20 and 21).

use tidegate_report::plot::Figure;

use super::lab;
use super::path::{Background, Control, Group, Path};
use super::sweep::{Curve, Run, Sweep};
use crate::papers::{Entry, Options, PapersError, Progress};

type Played = Result<Figure, PapersError>;

fn group(name: &'static str, control: Control, is_satellite: bool) -> Group {
    Group {
        name,
        control,
        count: 5,
        is_satellite,
    }
}

pub(super) fn homogeneous(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let curve = Curve::new("RCS", |loss| {
        let mut path = Path::of(Control::Rcs);
        path.loss = loss;
        path
    });
    let sweep = Sweep::play(&[0.0, 1e-3], &[curve], options, progress)?;
    let mut figure = entry.figure();
    let units = ("loss probability", "packets/s, or index");
    let least = |run: &Run| ends(run).0;
    let most = |run: &Run| ends(run).1;
    sweep.draw(&mut figure, "smallest share", units, least, [0]);
    sweep.draw(&mut figure, "largest share", units, most, [0]);
    sweep.draw(&mut figure, "Jain's index", units, jain_of_flows, [0]);
    let jain = sweep.mean(0, 0, jain_of_flows);
    figure.claim(
        "without link errors all RCS flows get about the same (Jain's index at least 0.95)",
        Some(1.0),
        jain,
        jain >= 0.95,
    );
    Ok(figure)
}

fn jain_of_flows(run: &Run) -> f64 {
    run.jain(&["flow"])
}

fn ends(run: &Run) -> (f64, f64) {
    let shares = run.shares("flow");
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let most = shares.iter().copied().fold(0.0, f64::max);
    (least, most)
}

pub(super) fn one_path(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let mixed = |y: Control| {
        move |loss: f64| {
            let mut path = Path::with(vec![group("x", Control::Tcp, true), group("y", y, true)]);
            path.loss = loss;
            lab::reduce(&mut path, options);
            path
        }
    };
    let losses = lab::values(options, &LOSSES, &[1e-4, 1e-3, 1e-2]);
    let curves = [
        Curve::new("TCP beside RCS (r_X)", mixed(Control::Rcs)),
        Curve::new("RCS beside TCP (r_Y)", mixed(Control::Rcs)),
        Curve::new("TCP alone (r_TCP)", mixed(Control::Tcp)),
    ];
    let sweep = Sweep::play(losses, &curves, options, progress)?;
    let mut figure = entry.figure();
    let units = ("loss probability", "data packets/s per flow");
    let (x, y) = (|run: &Run| run.mean("x"), |run: &Run| run.mean("y"));
    let all = |run: &Run| f64::midpoint(run.mean("x"), run.mean("y"));
    sweep.draw(&mut figure, "", units, x, [0]);
    sweep.draw(&mut figure, "", units, y, [1]);
    sweep.draw(&mut figure, "", units, all, [2]);
    let ratios = (0..losses.len()).map(|n| sweep.mean(0, n, x) / sweep.mean(2, n, all));
    let ratios: Vec<f64> = ratios.collect();
    let worst = ratios
        .iter()
        .copied()
        .max_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs()));
    let worst = worst.unwrap_or(f64::NAN);
    figure.claim(
        "TCP beside RCS gets what it gets among its own, r_X / r_TCP from 0.8 to 1.25 at every loss \
         probability (the largest deviation)",
        Some(1.0),
        worst,
        (0.8..=1.25).contains(&worst),
    );
    let above = (0..losses.len()).filter(|n| sweep.mean(1, *n, y) > sweep.mean(0, *n, x));
    let above = above.count() as f64;
    figure.claim(
        "r_Y is higher than r_X (number of loss probabilities)",
        Some(losses.len() as f64),
        above,
        above as usize == losses.len(),
    );
    for (loss, ratio) in losses.iter().zip(&ratios) {
        figure
            .notes
            .push(format!("r_X / r_TCP at {loss}: {ratio:.2}"));
    }
    let measures = [
        lab::Measure::new("throughput", units, x, &[0]),
        lab::Measure::new("throughput", units, y, &[1]),
        lab::Measure::new("throughput", units, all, &[2]),
        lab::Measure::overhead(units.0, |run| run.overhead("y"), &[1]),
    ];
    lab::compare(&mut figure, &sweep, &curves, options, progress, &measures)?;
    Ok(figure)
}

/// RCS or RAP on a satellite path, TCP on a short one without errors.
fn curves<'a>(change: impl Fn(&mut Path, f64) + Copy + 'a) -> [Curve<'a>; 3] {
    let curve = |name: &str, x: Control, y: Control| {
        Curve::new(name, move |value| {
            let mut path = Path::with(vec![group("x", x, true), group("y", y, false)]);
            change(&mut path, value);
            path
        })
    };
    [
        curve("RCS", Control::Rcs, Control::Tcp),
        curve("RAP", Control::Rap, Control::Tcp),
        curve("RCS, window 20", Control::Rcs, Control::TcpOfSmallWindow),
    ]
}

fn jain(run: &Run) -> f64 {
    run.jain(&["x", "y"])
}

/// φ: mean throughput of RCS over that of TCP.
fn ratio(run: &Run) -> f64 {
    run.mean("x") / run.mean("y")
}

fn draw(sweep: &Sweep, entry: &Entry, unit: &str) -> Figure {
    let mut figure = entry.figure();
    sweep.draw(&mut figure, "index", (unit, "Jain's index"), jain, 0..3);
    sweep.draw(
        &mut figure,
        "ratio to TCP",
        (unit, "r_X / r_Y"),
        ratio,
        0..3,
    );
    let limited = sweep.mean(2, 0, jain);
    figure.notes.push(format!(
        "TCP has a round-trip time of 110 ms and RCS one of 550 ms, so TCP grows 25 times faster and \
         takes nearly all. The paper's indices need TCP flows that cannot: with ns-2's default window \
         of 20 packets, 182 packets/s in 110 ms, the index in the first row is {limited:.2}."
    ));
    figure
}

pub(super) fn by_loss(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let sweep = Sweep::play(&LOSSES, &curves(|path, p| path.loss = p), options, progress)?;
    let mut figure = draw(&sweep, entry, "loss probability");
    let low = (0..sweep.at(1e-3)).map(|n| sweep.mean(0, n, jain));
    let low = low.fold(f64::INFINITY, f64::min);
    figure.claim(
        "RCS shares fairly with TCP below a loss probability of 0.001: an index of about 1 (at least \
         0.95)",
        Some(1.0),
        low,
        low >= 0.95,
    );
    let beyond = sweep.at(1e-3)..LOSSES.len();
    let above = beyond.map(|n| sweep.mean(0, n, jain) - sweep.mean(1, n, jain));
    let above = above.fold(f64::INFINITY, f64::min);
    figure.claim(
        "from 0.001 on the index with RAP is lower than with RCS (the smallest difference)",
        None,
        above,
        above > 0.0,
    );
    Ok(figure)
}

pub(super) fn by_buffer(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let change = |path: &mut Path, packets: f64| path.buffer = packets as u32;
    let sweep = Sweep::play(&BUFFERS, &curves(change), options, progress)?;
    let mut figure = draw(&sweep, entry, "packets");
    let least = (0..BUFFERS.len()).map(|n| sweep.mean(0, n, jain));
    let least = least.fold(f64::INFINITY, f64::min);
    figure.claim(
        "all flows get about the same for all buffers up to 600 packets: an index of about 1 (at least \
         0.95)",
        Some(1.0),
        least,
        least >= 0.95,
    );
    let above = (0..BUFFERS.len()).map(|n| sweep.mean(0, n, jain) - sweep.mean(1, n, jain));
    let above = above.fold(f64::INFINITY, f64::min);
    figure.claim(
        "the index with RAP is lower than with RCS (the smallest difference)",
        None,
        above,
        above > 0.0,
    );
    Ok(figure)
}

pub(super) fn by_background(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let change = |path: &mut Path, rate| path.background = Some(Background::Constant(rate));
    let sweep = Sweep::play(&BACKGROUNDS, &curves(change), options, progress)?;
    let mut figure = draw(&sweep, entry, "low-priority packets/s");
    let most = (1..BACKGROUNDS.len()).map(|n| sweep.mean(0, n, ratio));
    let most = most.fold(0.0, f64::max);
    figure.claim(
        "the share of RCS does not exceed that of TCP with background traffic (the largest r_X / r_Y)",
        Some(1.0),
        most,
        most <= 1.0,
    );
    let (first, last) = (
        sweep.mean(0, 0, ratio),
        sweep.mean(0, BACKGROUNDS.len() - 1, ratio),
    );
    figure.claim(
        "the share of RCS decreases with the background (r_X / r_Y at 600 packets/s over that without)",
        None,
        last / first,
        last < first,
    );
    Ok(figure)
}

const LOSSES: [f64; 6] = [1e-4, 3e-4, 1e-3, 2e-3, 5e-3, 1e-2];
const BUFFERS: [f64; 6] = [20.0, 50.0, 100.0, 200.0, 400.0, 600.0];
const BACKGROUNDS: [f64; 7] = [0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0];
