//! Tables 1, 2 and 3: events, nodes and modes of the experiment.

use tidegate_core::tcp_rate::TcpEvent;

use super::super::outcome::Outcome;
use super::super::runs::{PapersError, play_all};
use super::super::{
    Cell, Claim, Distance, Entry, Figure, Options, PUBLISHED_SERIES, Pair, Point, Progress, Series,
    Table, Tolerance,
};
use super::figures::{IMPAIRMENTS, jobs3};
use super::{CLASSIC, Grid, Group, IEXP, IOFF, MODES, PAPER, notes, runs, stacks};

/// Table 1: meaning, algorithms in which the event occurs, and whether it can be subscribed.
const EVENTS: [(&str, [bool; 2], bool); 6] = [
    ("retransmission timer timed out", [true, false], true),
    ("new ACK", [true, false], false),
    ("snd_cwnd reached ssthresh", [true, false], false),
    ("third duplicate ACK", [false, true], true),
    ("fourth or later duplicate ACK", [false, true], false),
    ("new ACK after a retransmission", [false, true], true),
];

/// Events of the runs of Figure 3, which harm the path for each of the two algorithms.
pub(super) fn table1(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let mut figure = entry.figure();
    let outcomes = play_all(&jobs3(&options.tcps)?, options, progress)?;
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for (tcp, outcomes) in options.tcps.iter().zip(outcomes.chunks(IMPAIRMENTS.len())) {
        let counts: Vec<[usize; 6]> = outcomes
            .iter()
            .map(|outcome| outcome.as_deref().map_or([0; 6], counts))
            .collect();
        for (at, (meaning, marks, subscribable)) in EVENTS.iter().enumerate() {
            let mark = |marked: bool| if marked { "X" } else { "" };
            let mut row: Vec<Cell> = vec![
                tcp.name().into(),
                (at as f64 + 1.0).into(),
                (*meaning).into(),
            ];
            for (marked, counts) in marks.iter().zip(&counts) {
                row.push(mark(*marked).into());
                row.push((counts[at] as f64).into());
            }
            row.push(mark(*subscribable).into());
            rows.push(row);
        }
        for ((name, _), counts) in IMPAIRMENTS.iter().zip(&counts) {
            let points = counts.iter().enumerate();
            let points = points.map(|(n, count)| Point::single(n as f64 + 1.0, *count as f64));
            figure.series.push(Series::new(
                format!("{} {name}: occurrences", tcp.name()),
                ("event", "count"),
                points.collect(),
            ));
        }
        figure.claims.extend(claims1(tcp.name(), &counts, outcomes));
    }
    let columns = [
        "tcp",
        "event",
        "meaning",
        "SSCA, paper",
        "in SSCA",
        "FRFR, paper",
        "in FRFR",
        "subscribable, paper",
    ];
    figure.table = Some(Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    });
    figure.notes.push(
        "SSCA and FRFR are the runs of itcp/fig3: an outage of half a second, and the loss of every \
         thousandth packet. Events 2 and 3 occur in both, as every connection acknowledges data and \
         leaves slow start."
            .to_owned(),
    );
    Ok(figure)
}

/// Occurrences of events 1 to 6.
fn counts(outcome: &Outcome) -> [usize; 6] {
    let count = |number: u8| {
        let events = outcome.record.events.iter();
        events.filter(|(_, e)| e.number() == number).count()
    };
    [1, 2, 3, 4, 5, 6].map(count)
}

fn claims1(
    tcp: &str,
    counts: &[[usize; 6]],
    outcomes: &[Option<std::sync::Arc<Outcome>>],
) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (algorithm, (name, _)) in IMPAIRMENTS.iter().enumerate() {
        let marked = (0..EVENTS.len()).filter(|at| EVENTS[*at].1[algorithm]);
        let seen = marked.clone().filter(|at| counts[algorithm][*at] > 0);
        let (marked, seen) = (marked.count(), seen.count());
        claims.push(Claim::new(
            format!("{tcp}: each event marked for {name} occurs (number of events)"),
            Some(marked as f64),
            seen as f64,
            seen == marked,
        ));
    }
    let subscribed = |outcome: &Outcome| {
        let events = outcome.record.events.iter();
        let subscribed = [
            TcpEvent::TimedOut,
            TcpEvent::ThirdDuplicate,
            TcpEvent::Repaired,
        ];
        events.filter(|(_, e)| subscribed.contains(e)).count() as u64
    };
    let outcomes = outcomes.iter().flatten();
    let occurred: u64 = outcomes.clone().map(|o| subscribed(o)).sum();
    let delivered: u64 = outcomes.map(|o| o.record.delivered).sum();
    claims.push(Claim::new(
        format!("{tcp}: events 1, 4 and 6 are delivered to a subscriber (delivered over occurred)"),
        Some(1.0),
        delivered as f64 / occurred as f64,
        delivered == occurred,
    ));
    claims
}

/// Round-trip times of the connection before the first outage.
pub(super) fn table2(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let groups = Grid::of_figure(entry, &[CLASSIC]).play(options, progress)?;
    let mut figure = entry.figure();
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut nodes: Vec<&str> = groups.iter().map(|group| group.node.name).collect();
    nodes.dedup();
    let unit = format!("node: {}", nodes.join(", "));
    for tcp in stacks(&groups) {
        let mut pairs = Vec::new();
        let (mut ours, mut published) = (Vec::new(), Vec::new());
        for (place, group) in groups.iter().filter(|g| g.tcp == tcp).enumerate() {
            let Some(rtt) = round_trips(group) else {
                continue;
            };
            let x = place as f64;
            let [lo, y, hi] = group.node.table2;
            let theirs = Point { x, y, lo, hi, n: 1 };
            rows.push(row2(group, &rtt, &theirs));
            pairs.extend(pairs2(group.node.name, &rtt, &theirs));
            ours.push(Point { x, ..rtt });
            published.push(theirs);
        }
        let name = tcp.name();
        let units = (unit.as_str(), "s");
        figure
            .series
            .push(Series::new(format!("{name} RTT: ours"), units, ours));
        let line = format!("{name} RTT: ping{PUBLISHED_SERIES}");
        figure.series.push(Series::new(line, units, published));
        figure.distances.extend(Distance::of(
            format!("{name}: round-trip time"),
            Tolerance::Relative(0.05),
            pairs,
        ));
    }
    figure.table = Some(Table {
        columns: COLUMNS2.map(str::to_owned).to_vec(),
        rows,
    });
    figure.runs = Some(runs(&groups));
    let always = "Ours is TCP's smoothed round-trip time with the video on the path, from 2 s after its start \
         to the first outage; the published ones are of a measurement without it. The delay of the path \
         is the published average, rounded to milliseconds, so that the minimum is near it by \
         construction. Hops are not modelled.";
    figure.notes = notes(options, &[always], &[]);
    Ok(figure)
}

const COLUMNS2: [&str; 10] = [
    "tcp",
    "node",
    "country",
    "min s",
    "paper",
    "average s",
    "paper",
    "max s",
    "paper",
    "hops",
];

/// The row of a node: least, mean and largest value, each beside the published one.
fn row2(group: &Group, ours: &Point, theirs: &Point) -> Vec<Cell> {
    vec![
        group.tcp.name().into(),
        group.node.name.into(),
        group.node.country.into(),
        ours.lo.into(),
        theirs.lo.into(),
        ours.y.into(),
        theirs.y.into(),
        ours.hi.into(),
        theirs.hi.into(),
        f64::from(group.node.hops).into(),
    ]
}

fn pairs2(node: &str, ours: &Point, theirs: &Point) -> [Pair; 3] {
    [
        ("min", theirs.lo, ours.lo),
        ("average", theirs.y, ours.y),
        ("max", theirs.hi, ours.hi),
    ]
    .map(|(which, published, ours)| Pair {
        at: format!("{node} {which}"),
        published,
        ours,
    })
}

/// Smoothed round-trip times before the first outage, over all runs.
fn round_trips(group: &Group) -> Option<Point> {
    let first = group.bursts.cuts().next().map(|(at, _)| at)?;
    let samples = group.runs.iter().flat_map(|run| {
        let since = move |at: tidegate_core::units::Time| at.since(run.start);
        let window = core::time::Duration::from_secs(2)..first;
        let samples = run.record.samples.iter();
        samples.filter(move |s| window.contains(&since(s.at)) && !s.srtt.is_zero())
    });
    let samples: Vec<f64> = samples.map(|s| s.srtt.as_secs_f64()).collect();
    Point::over(0.0, &samples)
}

/// Table 3: control flags of each mode (iTCP, EVENT, SYMB, OPT).
const FLAGS: [(usize, [&str; 4]); 4] = [
    (PAPER, ["ON", "ON", "ON", "ON"]),
    (IEXP, ["ON", "ON", "ON", "OFF"]),
    (IOFF, ["ON", "ON", "OFF", "X"]),
    (CLASSIC, ["OFF", "X", "X", "X"]),
];

/// What each mode does with the same outages.
pub(super) fn table3(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let modes = FLAGS.map(|(mode, _)| mode);
    let groups = Grid::of_figure(entry, &modes).play(options, progress)?;
    let mut figure = entry.figure();
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for group in &groups {
        let Some((_, flags)) = FLAGS.iter().find(|(mode, _)| *mode == group.mode) else {
            continue;
        };
        let (delivered, reduced) = (group.mean(delivered), group.mean(reductions));
        let mut row: Vec<Cell> = vec![
            group.tcp.name().into(),
            group.node.name.into(),
            MODES[group.mode].name.into(),
        ];
        row.extend(flags.map(Cell::from));
        row.extend([delivered, reduced].map(Cell::from));
        rows.push(row);
        let place = format!("{} {}", group.tcp.name(), group.node.name);
        let points = [delivered, reduced].into_iter().enumerate();
        figure.series.push(Series::new(
            format!("{place}: {}", MODES[group.mode].name),
            ("per run: events delivered, reductions", "count"),
            points.map(|(n, y)| Point::single(n as f64, y)).collect(),
        ));
        figure.claims.extend(claims3(&place, group));
    }
    let columns = [
        "tcp",
        "node",
        "mode",
        "iTCP",
        "EVENT",
        "SYMB",
        "OPT",
        "events",
        "reductions",
    ];
    figure.table = Some(Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    });
    figure.runs = Some(runs(&groups));
    let always = "Flags are those of the paper, and are accepted as the option --flags and the scenario key \
         flags. Events are those delivered to the application, reductions those of its target rate, both \
         per run.";
    figure.notes = notes(options, &[always], &[]);
    Ok(figure)
}

fn delivered(outcome: &Outcome) -> f64 {
    outcome.record.delivered as f64
}

fn reductions(outcome: &Outcome) -> f64 {
    let steps = outcome.record.targets.windows(2);
    steps.filter(|step| step[1].1 < step[0].1).count() as f64
}

fn claims3(place: &str, group: &Group) -> [Claim; 2] {
    let mode = MODES[group.mode].name;
    let (has_events, reduces) = (group.mode != CLASSIC, group.mode < IOFF);
    let (delivered, reduced) = (group.mean(delivered), group.mean(reductions));
    let claim = |what: &str, wanted: bool, ours: f64| {
        let verb = if wanted { "has" } else { "has no" };
        let text = format!("{place}: {mode} {verb} {what} (per run)");
        if wanted && ours == 0.0 && what != "events" {
            // Without an event there is nothing to respond to.
            return Claim::no_event(text, None);
        }
        Claim::new(text, None, ours, (ours > 0.0) == wanted)
    };
    let events = claim("events", has_events, delivered);
    let rates = claim("reductions of the rate", reduces, reduced);
    if has_events {
        [events, rates]
    } else {
        // Nothing is subscribed in Classic.
        [events.by_construction(), rates.by_construction()]
    }
}
