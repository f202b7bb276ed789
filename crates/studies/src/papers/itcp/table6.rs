//! Table 6: reduced rate and its duration, at the first timeout of each outage.

use core::time::Duration;

use tidegate_core::delay_bound::TcpPath;
use tidegate_core::tcp_rate::Law;
use tidegate_core::units::Bytes;

use super::super::deviations::Deviation;
use super::super::outcome::{Outcome, mean};
use super::super::runs::{PapersError, Tcp};
use super::super::{
    Cell, Claim, Distance, Entry, Figure, Options, PUBLISHED_SERIES, Pair, Point, Progress, Series,
    Table, Tolerance,
};
use super::published::NODES;
use super::{BOUNDS, EXACT, Grid, Group, MODES, PAPER, find, notes, runs, stacks};

const COLUMNS: [&str; 10] = [
    "tcp",
    "node",
    "d s",
    "law",
    "event",
    "h_best b/s",
    "±",
    "paper",
    "T_recovery s",
    "paper",
];

pub(super) fn play(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let modes = [EXACT, PAPER, PAPER + 1];
    let groups = Grid::of_table(entry, &modes).play(options, progress)?;
    let mut figure = entry.figure();
    let mut rows = Vec::new();
    for group in &groups {
        let events: Vec<Event> = (0..group.bursts.lengths().len())
            .filter_map(|outage| Event::of(group, outage))
            .collect();
        rows.extend(events.iter().map(|event| event.row(group)));
        series(&mut figure, group, &events);
    }
    figure.table = Some(Table {
        columns: COLUMNS.map(str::to_owned).to_vec(),
        rows,
    });
    figure.runs = Some(runs(&groups));
    figure.distances = distances(&groups);
    figure.claims = claims(&groups);
    let pairs = published_slopes();
    let always = [MEASURES, SLOPES, &pairs];
    figure.notes = notes(options, &always, &DIFFERS);
    Ok(figure)
}

/// Response to the first timeout of an outage, over the runs.
struct Event {
    /// From zero.
    outage: usize,
    rate: Point,
    lasts: Option<f64>,
    published: Option<(f64, f64)>,
}

impl Event {
    /// None if no run had a timeout.
    fn of(group: &Group, outage: usize) -> Option<Self> {
        let bound = BOUNDS.iter().position(|b| *b == group.bound)?;
        let published = group.node.table6;
        let (rates, lasts) = answers(group, outage);
        Some(Self {
            outage,
            rate: Point::over(outage as f64 + 1.0, &rates)?,
            lasts: Point::over(0.0, &lasts).map(|point| point.y),
            published: published.and_then(|table| table[bound].get(outage).copied()),
        })
    }

    fn row(&self, group: &Group) -> Vec<Cell> {
        vec![
            group.tcp.name().into(),
            group.node.name.into(),
            (group.bound as f64).into(),
            MODES[group.mode].name.into(),
            format!("e{}", self.outage + 1).as_str().into(),
            self.rate.y.into(),
            ((self.rate.hi - self.rate.lo) / 2.0).into(),
            self.published.map(|p| p.0).into(),
            self.lasts.into(),
            self.published.map(|p| p.1).into(),
        ]
    }
}

/// A panel per place, with the rates of each law and the published ones.
fn series(figure: &mut Figure, group: &Group, events: &[Event]) {
    let panel = format!(
        "{} {} d = {} s",
        group.tcp.name(),
        group.node.name,
        group.bound
    );
    let units = ("event", "b/s");
    if !events.is_empty() {
        let rates = events.iter().map(|event| event.rate).collect();
        let name = format!("{panel}: {}", MODES[group.mode].name);
        figure.series.push(Series::new(name, units, rates));
    }
    if group.mode != PAPER {
        return;
    }
    let published = events.iter().filter_map(|event| {
        let (rate, _) = event.published?;
        Some(Point::single(event.outage as f64 + 1.0, rate))
    });
    let published: Vec<Point> = published.collect();
    if !published.is_empty() {
        let name = format!("{panel}: iOPT{PUBLISHED_SERIES}");
        figure.series.push(Series::new(name, units, published));
    }
}

/// Definitions of the columns.
const MEASURES: &str = "The rate and its duration are those of the first timeout of each outage. The \
     exact law plans again for each frame, so that its duration is a forecast. The tolerance of 9 % is \
     the repeatability of the paper: the median over its places of (largest - smallest) / mean of the \
     three events. Distances are those of the printed law.";

const SLOPES: &str = "T_recovery is 2h/m by (9), as Q is small, in both.";

/// The slope m that the published pairs of rate and duration imply by (9), over that of (11).
fn published_slopes() -> String {
    let mut least = f64::INFINITY;
    let mut most = f64::NEG_INFINITY;
    for node in &NODES {
        let path = TcpPath {
            mss: Bytes(1_460),
            rtt: Duration::from_millis(node.rtt_ms),
            limit: None,
        };
        for (rate, lasts) in node.table6.iter().flatten().flatten() {
            let ratio = 2.0 * rate / lasts / Law::Paper.slope(path);
            (least, most) = (least.min(ratio), most.max(ratio));
        }
    }
    format!(
        "The published pairs imply an m of {least:.2} to {most:.2} times the 2I/RTT of (11), with \
         which (6b) gives higher rates than printed; the published h_best falls as d rises, while (6b) \
         grows with d."
    )
}

/// Differences from the paper.
const DIFFERS: [Deviation; 3] = [
    Deviation::everywhere("No rates are published for ISI, where the paper saw no event.").at(&["isi.edu"]),
    Deviation::simulated(
        "Over bsd the exact law counts on nothing until the timer expires again. Where that leaves no \
         rate within d, the target is the floor until the connection carries data.",
    )
    .over(&[Tcp::Bsd]),
    Deviation::everywhere(
        "Rates are limited to the 2 Mb/s of the encoder; (6b) as printed exceeds them at short \
         round-trip times and large d.",
    ),
];

/// Rates of the first responses to an outage, counted from zero, and their durations, over the runs.
fn answers(group: &Group, outage: usize) -> (Vec<f64>, Vec<f64>) {
    let outages = group.bursts.cuts().nth(outage);
    let (at, lasts) = outages.unwrap_or_default();
    let from = at.as_secs_f64();
    let to = (at + lasts + group.bursts.gap()).as_secs_f64();
    let first = |o: &Outcome| {
        let mut answers = o.record.rate_reductions.iter();
        answers
            .find(|a| (from..to).contains(&a.at.as_secs_f64()))
            .copied()
    };
    let answers: Vec<_> = group.runs.iter().filter_map(|run| first(run)).collect();
    let lasts = answers.iter().filter_map(|a| a.lasts);
    let lasts = lasts.map(|span| span.as_secs_f64()).collect();
    (answers.iter().map(|a| a.rate.as_f64()).collect(), lasts)
}

fn distances(groups: &[Group]) -> Vec<Distance> {
    let mut distances = Vec::new();
    for tcp in stacks(groups) {
        let played = groups.iter().filter(|g| g.tcp == tcp && g.mode == PAPER);
        let events = played.flat_map(|group| {
            let outages = 0..group.bursts.lengths().len();
            outages.filter_map(move |outage| Some((group, Event::of(group, outage)?)))
        });
        let (mut rates, mut spans) = (Vec::new(), Vec::new());
        for (group, event) in events {
            let Some((rate, lasts)) = event.published else {
                continue;
            };
            let at = format!(
                "{} d = {} s e{}",
                group.node.name,
                group.bound,
                event.outage + 1
            );
            rates.push(Pair {
                at: at.clone(),
                published: rate,
                ours: event.rate.y,
            });
            spans.extend(event.lasts.map(|ours| Pair {
                at,
                published: lasts,
                ours,
            }));
        }
        let name = tcp.name();
        let tolerance = Tolerance::Relative(0.09);
        distances.extend(Distance::of(format!("{name}: h_best"), tolerance, rates));
        distances.extend(Distance::of(
            format!("{name}: T_recovery"),
            tolerance,
            spans,
        ));
    }
    distances
}

/// The printed law over d, as in the paper; where the paper saw no event, the reproduction should
/// not either.
fn claims(groups: &[Group]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for small in groups.iter().filter(|g| g.mode == PAPER && g.bound == 2) {
        let mut others = groups.iter().filter(|g| g.mode == PAPER && g.bound == 6);
        let large = others.find(|g| g.tcp == small.tcp && g.node.name == small.node.name);
        let Some(large) = large else { continue };
        let place = format!("{} {}", small.tcp.name(), small.node.name);
        let text = format!(
            "{place}: h_best of the printed law falls as d rises from 2 to 6 s (its ratio, mean of the \
             events)"
        );
        let Some(theirs) = small.node.table6 else {
            let timeouts = mean(small.values(|o| o.record.rate_reductions.len() as f64));
            claims.push(Claim::new(
                format!("{place}: no event occurs, as published (responses per run, d = 2 s)"),
                Some(0.0),
                timeouts,
                timeouts == 0.0,
            ));
            continue;
        };
        let rate = |group: &Group| {
            let outages = 0..group.bursts.lengths().len();
            mean(outages.flat_map(|outage| answers(group, outage).0))
        };
        let published = |bound: usize| mean(theirs[bound].map(|(rate, _)| rate));
        let ratio = rate(large) / rate(small);
        let published = published(2) / published(0);
        claims.push(Claim::new(text, Some(published), ratio, ratio < 1.0));
    }
    claims.extend(exact_grows(groups));
    claims
}

/// The exact law allows a higher rate for a larger bound.
fn exact_grows(groups: &[Group]) -> Vec<Claim> {
    let small = groups.iter().filter(|g| g.mode == EXACT && g.bound == 2);
    let claim = |small: &Group| {
        let six = groups
            .iter()
            .find(|g| g.bound == 6 && g.tcp == small.tcp && g.node.name == small.node.name)?;
        let large = find(groups, six, EXACT)?;
        let rate = |group: &Group| {
            let outages = 0..group.bursts.lengths().len();
            mean(outages.flat_map(|outage| answers(group, outage).0))
        };
        let ratio = rate(large) / rate(small);
        Some(Claim::new(
            format!(
                "{} {}: the rate of the exact law does not fall as d rises from 2 to 6 s (its ratio, mean \
                 of the events)",
                small.tcp.name(),
                small.node.name
            ),
            None,
            ratio,
            ratio >= 1.0,
        ))
    };
    small.filter_map(claim).collect()
}
