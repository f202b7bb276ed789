//! Table 4: mean delay and share of frames in time.

use super::super::deviations::Deviation;
use super::super::outcome::Outcome;
use super::super::runs::{PapersError, Tcp};
use super::super::{
    Cell, Distance, Entry, Figure, Options, PUBLISHED_SERIES, Pair, Point, Progress, Series, Table,
    Tolerance,
};
use super::{EXACT, Grid, Group, MODES, PAPER, claims4, notes, runs, stacks};

const COLUMNS: [&str; 12] = [
    "tcp",
    "node",
    "d s",
    "mode",
    "delay s",
    "±",
    "paper",
    "accepted",
    "±",
    "paper",
    "of savable",
    "of path's",
];

pub(super) fn play(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let modes: Vec<usize> = (0..MODES.len()).collect();
    let groups = Grid::of_table(entry, &modes).play(options, progress)?;
    let mut figure = entry.figure();
    figure.table = Some(Table {
        columns: COLUMNS.map(str::to_owned).to_vec(),
        rows: groups.iter().map(row).collect(),
    });
    figure.series = by_bound(&groups, Outcome::accepted, |group| group.published().1);
    figure.runs = Some(runs(&groups));
    figure.distances = distances(&groups);
    figure.claims = claims4::of(&groups, options);
    figure.notes = notes(options, &MEASURES, &DIFFERS);
    Ok(figure)
}

fn row(group: &Group) -> Vec<Cell> {
    let (delay, accepted) = group.published();
    vec![
        group.tcp.name().into(),
        group.node.name.into(),
        (group.bound as f64).into(),
        MODES[group.mode].name.into(),
        group.mean(Outcome::mean_delay).into(),
        group.spread(Outcome::mean_delay).into(),
        delay.into(),
        group.mean(Outcome::accepted).into(),
        group.spread(Outcome::accepted).into(),
        accepted.into(),
        group.mean(Outcome::of_savable).into(),
        group.mean(Outcome::of_savable_by_path).into(),
    ]
}

/// Distances of the modes that the paper has. iOPT is its law as printed, with the slope of (11).
fn distances(groups: &[Group]) -> Vec<Distance> {
    let mut distances = Vec::new();
    for tcp in stacks(groups) {
        let played = groups
            .iter()
            .filter(|group| group.tcp == tcp && ![EXACT, PAPER + 1].contains(&group.mode));
        let pairs = |published: fn(&Group) -> f64, ours: fn(&Outcome) -> f64| {
            let pair = move |group: &Group| Pair {
                at: format!(
                    "{} d = {} s {}",
                    group.node.name, group.bound, MODES[group.mode].name
                ),
                published: published(group),
                ours: group.mean(ours),
            };
            played.clone().map(pair)
        };
        let name = tcp.name();
        distances.extend(Distance::of(
            format!("{name}: share of accepted frames"),
            SHARE,
            pairs(|group| group.published().1, Outcome::accepted),
        ));
        distances.extend(Distance::of(
            format!("{name}: mean delay in s"),
            DELAY,
            pairs(|group| group.published().0, Outcome::mean_delay),
        ));
    }
    distances
}

/// Repeatability of the paper itself: median difference of Classic and iOFF, which send the same
/// frames, over the 12 places of its Table 4.
const SHARE: Tolerance = Tolerance::Absolute(0.09);
/// The same of the mean delay, in seconds, over the four nodes.
const DELAY: Tolerance = Tolerance::Absolute(1.14);

/// A share over d: ours, and the published ones in panels of their own lines.
pub(super) fn by_bound(
    groups: &[Group],
    share: impl Fn(&Outcome) -> f64,
    published: impl Fn(&Group) -> f64,
) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    let mut add = |name: String, point: Option<Point>| {
        if let Some(known) = series.iter_mut().find(|s| s.name == name) {
            known.points.extend(point);
        } else {
            let points = point.into_iter().collect();
            series.push(Series::new(name, ("d in s", "share"), points));
        }
    };
    for group in groups {
        let panel = format!("{} {}", group.tcp.name(), group.node.name);
        let bound = group.bound as f64;
        let name = format!("{panel}: {}", MODES[group.mode].name);
        add(name, Point::over(bound, &group.values(&share)));
        // The published iOPT stands beside the printed law; it is one line for three laws.
        if ![EXACT, PAPER + 1].contains(&group.mode) {
            let mode = MODES[group.mode].name.replace(" paper", "");
            let name = format!("{panel}: {mode}{PUBLISHED_SERIES}");
            add(name, Some(Point::single(bound, published(group))));
        }
    }
    series
}

/// Definitions of the columns.
const MEASURES: [&str; 3] = [
    "of savable: share of the frames that a sender with foresight at 150 kb/s would have had in time \
     over this very connection, which first carries the data in flight at the start of an outage. \
     of path's: share of the frames that would have been in time if the connection had carried \
     everything at once as soon as a timeout found the path working; no sender over TCP reaches that. \
     Both are relative to the connection of the mode itself, so the claims also compare with the best \
     of all modes over the same outages, and with the published shares.",
    "Delays are from capture to arrival, over the frames that arrived. Frames that iOPT exact drops \
     have none; Classic delivers all frames, some of them seconds late.",
    "Tolerances are the repeatability of the paper: its Classic and iOFF send the same frames, and \
     their shares differ by 0.09 in the median of the 12 places, their delays by 1.14 s in the median \
     of the nodes. Distances are those of iOPT with the printed law, iEXP, iOFF and Classic.",
];

/// Differences from the paper.
const DIFFERS: [Deviation; 7] = [
    Deviation::everywhere(
        "The paper's delays are relative to an expected line, which makes some of them negative.",
    ),
    Deviation::everywhere(
        "The paper's Classic and iOFF differ by up to 3.2 s at one node and are equal at another. \
         Some of its shares of Classic and iOFF are equal for several d; a larger d can only accept \
         more.",
    ),
    Deviation::kernel(
        "Classic and iOFF differ as two runs of the same mode do: an event costs microseconds, and no \
         frame waits for it.",
    ),
    Deviation::everywhere(
        "Over a current TCP all modes are better than published in the mean over nodes and d: its \
         threshold does not fall with every timeout, so the window recovers within a few round trips. \
         The printed laws take Q as the backlog of the reaction time, while seconds of video are \
         queued when the path works again.",
    )
    .over(&[Tcp::LinuxReno, Tcp::Cubic, Tcp::Bbr]),
    Deviation::simulated(
        "bsd at 148 and 166 ms, d = 4 s: one or two frames of full size are in flight at the start of \
         an outage, and are late by their size.",
    )
    .over(&[Tcp::Bsd])
    .at(&["supermedia.pl", "willab.fi"]),
    Deviation::kernel(
        "bsd is the kernel's Reno with a window of 64 kB and a minimum timeout of 1 s. Its threshold \
         falls only at the first of several timeouts, so that it recovers sooner than the TCP of the \
         papers' time.",
    )
    .over(&[Tcp::Bsd]),
    Deviation::everywhere(
        "Doubled timeouts retransmit at 148 and 166 ms 3.0 to 3.2 s after the start of an outage, \
         just before or after the end of an outage of exactly 3 s. itcp/cuts plays other lengths.",
    )
    .at(&["supermedia.pl", "willab.fi"]),
];
