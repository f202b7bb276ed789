//! Flowshares beside flows of the same protocol (sections IV and V, Figures 5, 6, 7 and 10).

use tidegate_report::claims::Claim;
use tidegate_report::plot::Figure;

use super::network::{CLUSTER, COMPETING, Cluster, Control, Network};
use crate::papers::sweep::{Curve, Run, Sweep};
use crate::papers::{Entry, Options, PapersError, Progress};

type Played = Result<Figure, PapersError>;

/// Normalized throughput of a run with a number of flowshares.
type Part = fn(&Run, u32) -> f64;

/// Table I. Not stated there: the thresholds of RED, which are ns-2's.
fn network(control: Control, competing: u32, cluster: Cluster) -> Network {
    Network {
        cluster,
        competing: (control, competing),
        bandwidth: 15.0,
        delay: 50.0,
        loss: 0.0,
        queue: "{ red = { auto = \"5ms\", limit = \"300 packets\" } }",
        packet: 1_000,
        browsers: 0,
        measure: (20, 180),
    }
}

/// An application with this number of flows and flowshares.
fn cluster(control: Control, sampling: &'static str, flows: u32, shares: u32) -> Cluster {
    Cluster {
        flows,
        shares,
        control,
        sampling,
    }
}

pub(super) fn competing_flows(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let curve = |control: Control| {
        Curve::new(control.name(), move |n: f64| {
            network(control, n as u32, cluster(control, "bfld", 24, 1))
        })
    };
    let curves = [curve(Control::Tfrc), curve(Control::Rap)];
    let sweep = Sweep::play(
        &[4.0, 8.0, 16.0, 24.0, 32.0, 48.0],
        &curves,
        options,
        progress,
    )?;
    let mut figure = draw_single(&sweep, entry, "competing flows");
    for (curve, text) in [
        "24 flows in one flowshare get 0.9 to 1.1 of a fair share beside any number of TFRC flows (the \
         largest deviation)",
        "the same with RAP",
    ]
    .into_iter()
    .enumerate()
    {
        let worst = sweep.deviant(curve, |run| normalized(run, 1).0);
        let published = (curve == 0).then_some(1.0);
        figure.claims.push(fair(text, published, worst));
    }
    Ok(figure)
}

pub(super) fn own_flows(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let curve = |control: Control| {
        Curve::new(control.name(), move |n: f64| {
            network(control, 24, cluster(control, "bfld", n as u32, 1))
        })
    };
    let curves = [curve(Control::Tfrc), curve(Control::Rap)];
    let values = [1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0];
    let sweep = Sweep::play(&values, &curves, options, progress)?;
    let mut figure = draw_single(&sweep, entry, "flows in the flowshare");
    let share = |run: &Run| normalized(run, 1).0;
    let least = (0..values.len()).map(|n| sweep.mean(0, n, share));
    let least = least.fold(f64::INFINITY, f64::min);
    figure.claim(
        "flows in one flowshare get more than 0.8 of a fair share beside 24 TFRC flows, whatever their \
         number (the smallest share)",
        Some(0.8),
        least,
        least > 0.8,
    );
    figure.claims.push(fair(
        "they get 0.9 to 1.1 of it (the largest deviation)",
        None,
        sweep.deviant(0, share),
    ));
    Ok(figure)
}

pub(super) fn naive(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let curves = [(Control::Tfrc, "all"), (Control::Rap, "all")];
    let (sweep, mut figure) = several(entry, &curves, options, progress)?;
    let at = sweep.at(16.0);
    let left = sweep.mean(0, at, |run| normalized(run, 16).1);
    figure.claim(
        "at 16 flowshares competing TFRC flows get virtually no bandwidth (at most 0.1 of a fair share)",
        Some(0.0),
        left,
        left <= 0.1,
    );
    let rap = sweep.mean(1, at, |run| normalized(run, 16).1);
    figure.claim(
        "results with RAP are unacceptable as well: competing RAP flows get less than half of a fair share at \
         16 flowshares",
        None,
        rap,
        rap < 0.5,
    );
    Ok(figure)
}

pub(super) fn bfld(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let curves = [
        (Control::Tfrc, "bfld"),
        (Control::Rap, "bfld"),
        (Control::Multfrc, "all"),
    ];
    let (sweep, mut figure) = several(entry, &curves, options, progress)?;
    figure.notes.push(MULTFRC.to_owned());
    let own: Part = |run, shares| normalized(run, shares).0;
    let other: Part = |run, shares| normalized(run, shares).1;
    let claims = [
        (
            "a flowshare of CP gets 0.9 to 1.1 of a fair share beside 24 TFRC flows for any number of \
             flowshares (the largest deviation)",
            Some(0.9),
            0,
            own,
        ),
        (
            "competing TFRC flows get 0.9 to 1.1 of a fair share (the largest deviation)",
            Some(1.0),
            0,
            other,
        ),
        (
            "a flowshare of CP with RAP gets 0.9 to 1.1 of a fair share beside 24 RAP flows",
            None,
            1,
            own,
        ),
        (
            "a flowshare of CP with MulTFRC gets 0.9 to 1.1 of a fair share beside 24 TFRC flows (the largest \
             deviation)",
            None,
            2,
            own,
        ),
        (
            "TFRC flows beside it get 0.9 to 1.1 of a fair share (the largest deviation)",
            None,
            2,
            other,
        ),
    ];
    for (text, published, curve, part) in claims {
        let means = (0..sweep.values.len()).map(|n| {
            let shares = sweep.values[n] as u32;
            sweep.mean(curve, n, |run| part(run, shares))
        });
        let worst = means.max_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs()));
        let worst = worst.unwrap_or(f64::NAN);
        figure.claims.push(fair(text, published, worst));
    }
    Ok(figure)
}

fn fair(text: &str, published: Option<f64>, worst: f64) -> Claim {
    let holds = (0.9..=1.1).contains(&worst);
    Claim::new(text.to_owned(), published, worst, holds)
}

/// 24 flows with 1 to 24 flowshares beside 24 flows, for several controllers and kinds of sampling.
fn several(
    entry: &Entry,
    kinds: &[(Control, &'static str)],
    options: &Options,
    progress: Progress<'_>,
) -> Result<(Sweep, Figure), PapersError> {
    let curve = |&(control, sampling): &(Control, &'static str)| {
        Curve::new(control.name(), move |shares: f64| {
            let competing = match control {
                Control::Rap => Control::Rap,
                _ => Control::Tfrc,
            };
            network(competing, 24, cluster(control, sampling, 24, shares as u32))
        })
    };
    let curves: Vec<Curve<'_>> = kinds.iter().map(curve).collect();
    let sweep = Sweep::play(&SHARES, &curves, options, progress)?;
    let mut figure = entry.figure();
    figure.notes.push(NOTE.to_owned());
    let units = ("flowshares", "normalized throughput");
    sweep.draw_each(
        &mut figure,
        "a flowshare of CP",
        units,
        0..kinds.len(),
        |run, shares| normalized(run, shares as u32).0,
    );
    sweep.draw_each(
        &mut figure,
        "a competing flow",
        units,
        0..kinds.len(),
        |run, shares| normalized(run, shares as u32).1,
    );
    Ok((sweep, figure))
}

/// Figures 5 and 6.
fn draw_single(sweep: &Sweep, entry: &Entry, unit: &str) -> Figure {
    let mut figure = entry.figure();
    figure.notes.push(NOTE.to_owned());
    let units = (unit, "normalized throughput");
    sweep.draw(
        &mut figure,
        "CP, all flows together",
        units,
        |run| normalized(run, 1).0,
        [0, 1],
    );
    sweep.draw(
        &mut figure,
        "a competing flow",
        units,
        |run| normalized(run, 1).1,
        [0, 1],
    );
    let lowest = |run: &Run| run.extreme(COMPETING, f64::min) / fair_rate(run, 1);
    let highest = |run: &Run| run.extreme(COMPETING, f64::max) / fair_rate(run, 1);
    sweep.draw(
        &mut figure,
        "the slowest competing flow",
        units,
        lowest,
        [0],
    );
    sweep.draw(
        &mut figure,
        "the fastest competing flow",
        units,
        highest,
        [0],
    );
    figure
}

/// Throughput of a flowshare and of a competing flow over the fair one.
fn normalized(run: &Run, shares: u32) -> (f64, f64) {
    let fair = fair_rate(run, shares);
    let share = run.rate(CLUSTER) / f64::from(shares);
    (
        share / fair,
        run.rate(COMPETING) / run.count(COMPETING) / fair,
    )
}

/// An equal part of the throughput of all, for each flowshare and each competing flow.
fn fair_rate(run: &Run, shares: u32) -> f64 {
    let all = run.rate(CLUSTER) + run.rate(COMPETING);
    all / (f64::from(shares) + run.count(COMPETING))
}

const SHARES: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0];

const MULTFRC: &str = "MulTFRC: one controller for all packets and flowshares of the application instead of BFLD, \
                       beside flows of TFRC.";
const NOTE: &str = "15 Mb/s, 50 ms, RED with ns-2's thresholds and 300 packets, packets of 1,000 bytes, 180 s \
                    without the first 20. TFRC is that of RFC 5348, alone and at the aggregation points. Competing \
                    hosts are at the routers of the aggregation points, so that all round-trip times are \
                    equal. Throughput is normalized by an equal part of the throughput of all.";
