//! Figures 6 to 10.

use std::collections::BTreeMap;

use tidegate_core::units::Time;

use super::super::deviations::Deviation;
use super::super::outcome::{Frame, Outcome, mean};
use super::super::runs::PapersError;
use super::super::{Claim, Entry, Figure, Options, PUBLISHED_SERIES, Point, Progress, Series};
use super::{ARMS, Group, METRICS, NODES, groups, jitters, notes, runs};

pub(super) fn fig6(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let mut figure = bars(entry, options, &groups(options, progress)?);
    // They are those of Table 5.
    let claims = core::mem::take(&mut figure.claims);
    figure.claims = claims.into_iter().map(Claim::repeated).collect();
    Ok(figure)
}

/// Each parameter of Table 5 over the nodes, with its claim, for each TCP.
pub(super) fn bars(entry: &Entry, options: &Options, groups: &[Group]) -> Figure {
    let mut figure = entry.figure();
    // Groups of a TCP are adjacent.
    for groups in groups.chunk_by(|one, next| one.tcp == next.tcp) {
        for metric in 0..METRICS.len() {
            figure.series.extend(lines(groups, metric));
            figure.claims.push(sides(groups, metric));
        }
    }
    figure.runs = Some(runs(groups));
    let always = [
        "The report averages five runs per node and arm, with 1 to 2.2 events each; its fokus has 2 \
         events with symbiosis and 1 without.",
        "Flight is not defined in the report; here it is from the capture of a frame, or the arrival of \
         the previous one if that is later, to its arrival.",
        "A claim of order compares the sides of 1; it holds if the 95 % confidence interval of our mean \
         ratio, over nodes and runs, lies on the published side. Inter-arrival time, time and frames per \
         second are one measurement. Distances to the values themselves are those of abone/table5.",
    ];
    let differs = Deviation::everywhere(
        "The published jitter grows to tens of seconds without symbiosis, as its sender never caught up \
         after an event. Here 10 Mb/s for 0.5 Mb/s of video drain a backlog in seconds. Over 4.5 Mb/s \
         (--bottleneck) the ratios are closer to the published ones, with many more events.",
    );
    figure.notes = notes(options, &always, &[differs]);
    figure
}

/// A parameter in both arms, measured and published, of the groups of one TCP.
fn lines(groups: &[Group], metric: usize) -> Vec<Series> {
    let (name, of) = METRICS[metric];
    let mut series = Vec::new();
    for (arm, (arm_name, _)) in ARMS.iter().enumerate() {
        for published in [false, true] {
            let point = |(node, n): (usize, &super::Node)| {
                let mut groups = groups.iter();
                let group = groups.find(|g| g.arm == arm && g.node.name == n.name)?;
                if published {
                    return Some(Point::single(node as f64, n.table5[arm][metric]));
                }
                group.point(node as f64, of)
            };
            let points = NODES.iter().enumerate().filter_map(point).collect();
            let whose = if published { PUBLISHED_SERIES } else { "" };
            series.push(Series::new(
                format!("{} {name}: {arm_name}{whose}", groups[0].tcp.name()),
                (NODE_UNIT, name),
                points,
            ));
        }
    }
    series
}

/// Whether symbiosis changes a parameter in the published direction, in the groups of one transport.
/// Published means are over the same nodes.
fn sides(groups: &[Group], metric: usize) -> Claim {
    let (name, of) = METRICS[metric];
    let arm = |arm: usize| groups.iter().filter(move |g| g.arm == arm);
    let theirs = |a: usize| mean(arm(a).map(|g| g.node.table5[a][metric]));
    let theirs = theirs(0) / theirs(1);
    let ours = |a: usize| mean(arm(a).map(|g| g.mean(of)));
    let ratio = ours(0) / ours(1);
    let text = format!(
        "{} {name}: symbiosis changes it in the published direction (with over without, mean over the \
         nodes; holds if its 95 % interval lies on the published side of 1, and the change is a tenth of \
         the published one at least)",
        groups[0].tcp.name()
    );
    let holds = if (theirs - 1.0).abs() < 1e-9 {
        (ratio - 1.0).abs() < 0.1
    } else {
        let margin = interval(groups, of) / ours(1);
        let change = (ratio - 1.0) * (theirs - 1.0).signum();
        change > margin && change >= 0.1 * (theirs - 1.0).abs()
    };
    let claim = Claim::new(text, Some(theirs), ratio, holds);
    match name {
        "time s" | "frames per s" => claim.repeated(),
        _ => claim,
    }
}

/// Half of the 95 % confidence interval of the mean difference between the arms, over the seeds. Both
/// arms of a seed have the same cross traffic, and so have its nodes: their mean is one sample.
fn interval(groups: &[Group], of: impl Fn(&Outcome) -> f64) -> f64 {
    let mut of_seed: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for on in groups.iter().filter(|g| g.arm == 0) {
        let off = on.without(groups).map_or(&[][..], |off| &off.runs);
        for run in &on.runs {
            if let Some(same) = off.iter().find(|other| other.seed == run.seed) {
                of_seed
                    .entry(run.seed)
                    .or_default()
                    .push(of(run) - of(same));
            }
        }
    }
    let differences: Vec<f64> = of_seed.into_values().map(mean).collect();
    let centre = mean(differences.iter().copied());
    let squares = differences.iter().map(|d| (d - centre) * (d - centre));
    let freedom = differences.len().saturating_sub(1);
    let variance = squares.sum::<f64>() / freedom as f64;
    student(freedom) * libm::sqrt(variance / differences.len() as f64)
}

/// 97.5th percentile of Student's t distribution. Infinite without a degree of freedom.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    match freedom {
        0 => f64::INFINITY,
        known => TABLE.get(known - 1).copied().unwrap_or(1.96),
    }
}

/// Frame sizes at the full rate, targets and actual sizes, of the first run with symbiosis that has
/// an event.
pub(super) fn fig7(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let groups = groups(options, progress)?;
    let mut figure = entry.figure();
    for group in groups.iter().filter(|g| g.arm == 0) {
        let panel = format!("{} {}", group.tcp.name(), group.node.name);
        let eventful = group.runs.iter().find(|run| first_fall(run).is_some());
        let Some(run) = eventful.or(group.runs.first()) else {
            continue;
        };
        let off = group.without(&groups).map_or(&[][..], |off| &off.runs);
        let Some(full) = off.iter().find(|other| other.seed == run.seed) else {
            continue;
        };
        let line = |run: &Outcome, of: &dyn Fn(&Frame) -> f64| {
            let frames = run.frames.iter().enumerate();
            frames
                .map(|(n, f)| Point::single(n as f64, of(f)))
                .collect()
        };
        for (name, points) in [
            ("incoming", line(full, &|f| f.bits as f64)),
            ("output", line(run, &|f| f.bits as f64)),
            ("target", line(run, &|f| f.target_bits as f64)),
        ] {
            let name = format!("{panel}: {name}");
            figure
                .series
                .push(Series::new(name, ("frame", "bit"), points));
        }
        let falls: Vec<f64> = group
            .runs
            .iter()
            .filter_map(|run| first_fall(run))
            .collect();
        let text = format!(
            "{panel}: an event reduces the rate to 0.55 of its value (mean of the runs with an event)"
        );
        let ratio = falls.iter().sum::<f64>() / falls.len() as f64;
        // The factor is that of the law; the claim verifies that events arrive.
        let claim = Claim::new(text, Some(0.55), ratio, (ratio - 0.55).abs() < 0.01);
        figure.claims.push(claim.by_construction());
    }
    figure.runs = Some(runs(&groups));
    let always = "The published figure has five runs per node and no numbers at its lines; here the first run with \
         an event is drawn. Sizes vary widely from frame to frame in both.";
    figure.notes = notes(options, &[always], &[]);
    Ok(figure)
}

/// Factor by which the first event of a run reduces the target. None without an event. Frames that
/// are not encoded have no target. There may be several events between two frames.
fn first_fall(run: &Outcome) -> Option<f64> {
    let encoded: Vec<&Frame> = run.frames.iter().filter(|f| f.target_bits > 0).collect();
    let left = |two: &[&Frame]| two[1].target_bits as f64 / two[0].target_bits as f64;
    let two = encoded.windows(2).find(|two| left(two) < FALLS)?;
    let between = |at: Time| two[0].captured < at && at <= two[1].captured;
    let steps = run.record.targets.windows(2);
    let fell = steps.filter(|s| between(s[1].0) && s[1].1.as_f64() < FALLS * s[0].1.as_f64());
    Some(libm::pow(left(two), 1.0 / fell.count().max(1) as f64))
}

/// Threshold of the target's ratio that separates events from other changes.
const FALLS: f64 = 0.9;

/// Delay of each frame relative to a run in local mode, in each run.
pub(super) fn fig8(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let groups = groups(options, progress)?;
    let mut figure = entry.figure();
    frame_lines(&mut figure, &groups, |o| {
        let frames = o.frames.iter().enumerate();
        frames.filter_map(|(n, f)| Some((n, f.delay()?))).collect()
    });
    compare(&mut figure, &groups, "delay", Outcome::mean_delay);
    figure.runs = Some(runs(&groups));
    let differs = Deviation::everywhere(
        "In the published figure each event leaves a step of the delay that persists without symbiosis, \
         or a steeper line. Here no step persists: the path drains a backlog of seconds in one or two. \
         The report does not print the spare rate of its path.",
    );
    figure.notes = notes(options, &[RUNS_DRAWN], &[differs]);
    Ok(figure)
}

/// Signed jitter of each frame, in each run.
pub(super) fn fig9(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let groups = groups(options, progress)?;
    let mut figure = entry.figure();
    frame_lines(&mut figure, &groups, |o| jitters(o).collect());
    compare(&mut figure, &groups, "jitter", |o| (METRICS[1].1)(o));
    figure.runs = Some(runs(&groups));
    let differs = Deviation::everywhere(
        "Published are 1 to 7 s of mean jitter with symbiosis and 7 to 37 s without: the published sender \
         never caught up after an event, ours does in a second or two.",
    );
    figure.notes = notes(options, &[RUNS_DRAWN], &[differs]);
    Ok(figure)
}

const RUNS_DRAWN: &str = "The lines R1 to R5 are the first five runs, as many as the report draws.";

/// Quality against delay: the mean of all runs for each frame.
pub(super) fn fig10(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let groups = groups(options, progress)?;
    let mut figure = entry.figure();
    for group in &groups {
        let frames = group.runs.iter().map(|o| o.frames.len()).max().unwrap_or(0);
        let point = |n: usize| {
            let frames: Vec<&Frame> = group.runs.iter().filter_map(|o| o.frames.get(n)).collect();
            let delays: Vec<f64> = frames.iter().filter_map(|f| f.delay()).collect();
            let quality: Vec<f64> = frames.iter().filter_map(|f| Some(f.snr?[0])).collect();
            let delay = Point::over(0.0, &delays)?.y;
            Point::over(delay, &quality)
        };
        let points = (0..frames).filter_map(point).collect();
        figure
            .series
            .push(Series::new(group.name(), ("s", "dB"), points));
    }
    compare(&mut figure, &groups, "quality", |o| o.mean_snr()[0]);
    // Table 6 compares the same means.
    let claims = core::mem::take(&mut figure.claims);
    figure.claims = claims.into_iter().map(Claim::repeated).collect();
    figure.runs = Some(runs(&groups));
    let differs = Deviation::everywhere(
        "Published are 13 to 39 dB without symbiosis, with lost frames, and 10 to 38 dB with it. Here all \
         frames arrive in both arms, as the path drains the backlog.",
    );
    figure.notes = notes(options, &[], &[differs]);
    Ok(figure)
}

/// A line over the frames for each of the first five runs of each arm.
fn frame_lines(figure: &mut Figure, groups: &[Group], of: impl Fn(&Outcome) -> Vec<(usize, f64)>) {
    for group in groups {
        for (number, run) in group.runs.iter().take(5).enumerate() {
            let points = of(run).into_iter();
            let points = points.map(|(n, value)| Point::single(n as f64, value));
            figure.series.push(Series::new(
                format!("{}, R{}", group.name(), number + 1),
                ("frame", "s"),
                points.collect(),
            ));
        }
    }
}

/// Whether symbiosis lowers the mean of a number, node by node. Without an event in any run both arms
/// are the same.
fn compare(figure: &mut Figure, groups: &[Group], what: &str, of: impl Fn(&Outcome) -> f64) {
    for on in groups.iter().filter(|g| g.arm == 0) {
        let Some(off) = on.without(groups) else {
            continue;
        };
        let text = format!(
            "{} {}: symbiosis lowers the mean {what} (with over without)",
            on.tcp.name(),
            on.node.name
        );
        let ratio = on.mean(&of) / off.mean(&of);
        let has_event = on.runs.iter().any(|run| run.record.delivered > 0);
        figure.claims.push(if has_event {
            Claim::new(text, None, ratio, ratio < 1.0)
        } else {
            Claim::no_event(text, None)
        });
    }
}

/// Numbers of the nodes, from zero.
const NODE_UNIT: &str = "node: fokus, galileo, columbia, princeton, isi";
