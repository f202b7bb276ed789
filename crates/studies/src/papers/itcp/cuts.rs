//! The first paper's path with outages of other lengths than 3 s.
//!
//! For a single length, it is accidental whether a retransmission is just before or just after the
//! end of the outage. Several lengths average this out.

use core::time::Duration;

use super::super::outcome::{Outcome, mean};
use super::super::runs::PapersError;
use super::super::{Cell, Claim, Entry, Figure, Options, Point, Progress, Series, Table};
use super::published::NODES;
use super::{CLASSIC, EXACT, FRAMES, Grid, Group, IEXP, MODES, assumptions, runs, stacks};

/// Length of a group's outages, which are equal.
fn length(group: &Group) -> f64 {
    group.bursts.lengths()[0].as_secs_f64()
}

/// Compared modes.
const PLAYED: [usize; 3] = [EXACT, IEXP, CLASSIC];
/// Delay bounds in seconds.
const BOUNDS: [u64; 2] = [2, 4];
/// Lengths of the outages. Shorter outages delay hardly any frame; after longer ones no frame is
/// savable within 2 s. The step is not a multiple of
/// 250 ms, the shortest linear time-out, so that time-outs of that length expire before the end of
/// some outages and after the end of others.
pub(super) const CUTS_MS: [u64; 9] = [
    1_900, 2_175, 2_450, 2_725, 3_000, 3_275, 3_550, 3_825, 4_100,
];

pub(super) fn play(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let grid = Grid {
        bounds: &BOUNDS,
        cuts_ms: &CUTS_MS,
        ..Grid::of_figure(entry, &PLAYED)
    };
    let groups = grid.play(options, progress)?;
    let mut figure = entry.figure();
    let mut rows = Vec::new();
    for lines in lines(&groups) {
        rows.extend(lines.iter().map(Line::row));
        figure.series.extend(lines.iter().map(Line::series));
        figure.claims.extend(claims(&lines));
    }
    let lengths = CUTS_MS.map(|cut| format!("{} s", cut as f64 / 1e3));
    let columns = ["tcp", "node", "d s", "mode"].map(str::to_owned);
    let means = ["mean", "of savable", "delay s"].map(str::to_owned);
    figure.table = Some(Table {
        columns: columns.into_iter().chain(lengths).chain(means).collect(),
        rows,
    });
    figure.runs = Some(runs(&groups));
    figure.notes = assumptions(options);
    figure.notes.push(format!(
        "The three cuts are {} s apart and of equal length. Columns of lengths have the share of all \
         frames in time; the last three columns are means over the lengths.",
        options.bursts().gap().as_secs_f64()
    ));
    Ok(figure)
}

/// A mode and node, by the length of the outages.
struct Line<'a> {
    cuts: Vec<&'a Group>,
}

/// Lines, grouped by TCP, node and delay bound.
fn lines(groups: &[Group]) -> Vec<Vec<Line<'_>>> {
    let tcps = stacks(groups).into_iter();
    let places = tcps.flat_map(|tcp| NODES.iter().map(move |node| (tcp, node.name)));
    let places = places.flat_map(|place| BOUNDS.map(|bound| (place, bound)));
    let lines = places.map(|((tcp, node), bound)| -> Vec<Line<'_>> {
        let here: Vec<&Group> = groups
            .iter()
            .filter(|g| (g.tcp, g.node.name, g.bound) == (tcp, node, bound))
            .collect();
        let of_mode = |mode| here.iter().copied().filter(move |g| g.mode == mode);
        let lines = PLAYED.map(|mode| Line {
            cuts: of_mode(mode).collect(),
        });
        lines
            .into_iter()
            .filter(|line| !line.cuts.is_empty())
            .collect()
    });
    lines.filter(|lines| !lines.is_empty()).collect()
}

impl Line<'_> {
    fn mean(&self, of: impl Fn(&Outcome) -> f64 + Copy) -> f64 {
        mean(self.cuts.iter().map(|group| group.mean(of)))
    }

    fn mode(&self) -> usize {
        self.cuts[0].mode
    }

    fn place(&self) -> String {
        let group = self.cuts[0];
        format!(
            "{} {} d = {} s",
            group.tcp.name(),
            group.node.name,
            group.bound
        )
    }

    fn series(&self) -> Series {
        let points = self
            .cuts
            .iter()
            .filter_map(|group| Point::over(length(group), &group.values(Outcome::accepted)));
        Series::new(
            format!("{}: {}", self.place(), MODES[self.mode()].name),
            ("s of each cut", "share in time"),
            points.collect(),
        )
    }

    fn row(&self) -> Vec<Cell> {
        let first = self.cuts[0];
        let mut row: Vec<Cell> = vec![
            first.tcp.name().into(),
            first.node.name.into(),
            (first.bound as f64).into(),
            MODES[first.mode].name.into(),
        ];
        row.extend(CUTS_MS.map(|cut| -> Cell {
            let cut = Duration::from_millis(cut);
            let mut cuts = self.cuts.iter();
            let group = cuts.find(|group| group.bursts.lengths()[0] == cut);
            group.map(|group| group.mean(Outcome::accepted)).into()
        }));
        row.push(self.mean(Outcome::accepted).into());
        row.push(self.mean(Outcome::of_savable).into());
        row.push(self.mean(Outcome::mean_delay).into());
        row
    }
}

fn claims(lines: &[Line<'_>]) -> Vec<Claim> {
    let mode = |mode| lines.iter().find(|line| line.mode() == mode);
    let Some(exact) = mode(EXACT) else {
        return Vec::new();
    };
    let place = exact.place();
    let saved = exact.mean(Outcome::of_savable);
    let mut claims = vec![Claim::new(
        format!(
            "{place}: iOPT exact has at least 99.5 % of the frames in time that its own connection could \
             have saved"
        ),
        None,
        saved,
        saved >= 0.995,
    )];
    let behind = exact.cuts.iter().map(|group| {
        let others = lines.iter().flat_map(|line| &line.cuts);
        let same = others.filter(|other| other.bursts == group.bursts);
        let best = same
            .map(|other| other.mean(Outcome::accepted))
            .fold(0.0, f64::max);
        group.mean(Outcome::accepted) - best
    });
    let behind = behind.fold(f64::INFINITY, f64::min);
    claims.push(Claim::new(
        format!(
            "{place}: at every length iOPT exact accepts as many frames as the best mode, but for less \
             than one per run (the smallest difference)"
        ),
        None,
        behind,
        behind > -1.0 / FRAMES,
    ));
    for (other, name) in [(IEXP, "iEXP"), (CLASSIC, "Classic")] {
        let Some(other) = mode(other) else { continue };
        let gain = exact.mean(Outcome::accepted) - other.mean(Outcome::accepted);
        claims.push(Claim::new(
            format!(
                "{place}: over all lengths iOPT exact has more frames in time than {name} (difference)"
            ),
            None,
            gain,
            gain > 0.0,
        ));
    }
    if let Some(classic) = mode(CLASSIC) {
        let faster = exact.mean(Outcome::mean_delay) - classic.mean(Outcome::mean_delay);
        claims.push(Claim::new(
            format!("{place}: its mean delay is below Classic's (difference, s)"),
            None,
            faster,
            faster < 0.0,
        ));
    }
    claims
}
