//! Results of runs over real paths, from the run folders of both sides.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::papers::{Cell, Figure, Point, Series, Table};
use serde_json::{Value, json};
use tidegate_core::trace::{DropCause, Event};
use tidegate_record::Run;

use super::background_jobs::PathConditions;
use tidegate_console::progress::counted;

/// Result of one run.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) host: String,
    pub(super) mode: String,
    /// Number of the run, from one.
    pub(super) run: u32,
    pub(super) dir: PathBuf,
    pub(super) measured: FrameStatistics,
    /// Number of rate changes in response to an event.
    pub(super) answers: usize,
    /// Interrupted by Ctrl-C, and excluded from the means.
    pub(super) cut_short: bool,
    /// Remark on the end of the run.
    pub(super) note: Option<String>,
    /// Known conditions of the path.
    pub(super) met: PathConditions,
}

/// Frame statistics of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FrameStatistics {
    /// Captured frames, including skipped ones.
    pub(super) made: u64,
    /// Frames that were not encoded, because the rate plan or the encoder had no capacity.
    pub(super) skipped: u64,
    /// Complete frames.
    pub(super) came: u64,
    /// Complete frames with a delay within the bound.
    pub(super) in_time: u64,
    /// Mean delay above the minimum, over the complete frames.
    pub(super) mean_delay: Option<Duration>,
    /// Maximum delay above the minimum.
    pub(super) max_delay: Option<Duration>,
    /// TCP events at the sender.
    pub(super) events: u64,
}

impl FrameStatistics {
    /// Computes the statistics from the runs of sender and player. Their clocks are not
    /// synchronized, so delays are relative to the minimum of the run.
    pub(super) fn new(sent: &Run, seen: &Run, bound: Duration) -> Self {
        let came: BTreeMap<u32, i128> = (seen.flows.iter())
            .flat_map(|flow| &flow.received)
            .filter_map(|row| Some((row.rtp_timestamp, i128::from(row.complete?.as_nanos()))))
            .collect();
        let rows = || sent.flows.iter().flat_map(|flow| &flow.sent);
        let transits: Vec<i128> = rows()
            // The time stamp of a skipped frame matches no received frame.
            .filter(|row| row.left.is_some())
            .filter_map(|row| {
                let captured = i128::from(row.captured.as_nanos());
                Some(came.get(&row.rtp_timestamp)? - captured)
            })
            .collect();
        let least = transits.iter().min().copied().unwrap_or_default();
        let above = |transit: i128| {
            Duration::from_nanos(u64::try_from(transit - least).unwrap_or(u64::MAX))
        };
        let delays: Vec<Duration> = transits.into_iter().map(above).collect();
        let count = u32::try_from(delays.len()).unwrap_or(u32::MAX);
        let is_tcp = |event: &Event| matches!(event, Event::Transport { .. });
        Self {
            made: rows().count() as u64,
            skipped: rows()
                .filter(|row| row.dropped == Some(DropCause::Skipped))
                .count() as u64,
            came: delays.len() as u64,
            in_time: delays.iter().filter(|delay| **delay <= bound).count() as u64,
            mean_delay: delays.iter().sum::<Duration>().checked_div(count),
            max_delay: delays.iter().max().copied(),
            events: sent.events.iter().filter(|row| is_tcp(&row.event)).count() as u64,
        }
    }

    /// Share of the captured frames in time.
    pub(super) fn share(&self) -> Option<f64> {
        (self.made > 0).then(|| self.in_time as f64 / self.made as f64)
    }
}

impl Outcome {
    /// Remarks on the run.
    pub(super) fn remarks(&self) -> String {
        let skipped = (self.measured.skipped > 0).then(|| {
            let frames = counted(self.measured.skipped, "frame");
            format!("not encoded: {frames}, for lack of path capacity or CPU time")
        });
        let remarks: Vec<String> = self.note.iter().cloned().chain(skipped).collect();
        remarks.join("; ")
    }

    /// The run as JSON.
    pub(super) fn json(&self) -> Value {
        let ms = |span: Option<Duration>| span.map(|span| span.as_secs_f64() * 1e3);
        let mut run = json!({
            "host": self.host,
            "mode": self.mode,
            "run": self.run,
            "dir": self.dir,
            "frames": {
                "made": self.measured.made,
                "skipped": self.measured.skipped,
                "came": self.measured.came,
                "in_time": self.measured.in_time,
            },
            "delay_ms": {
                "mean": ms(self.measured.mean_delay),
                "max": ms(self.measured.max_delay),
            },
            "events": self.measured.events,
            "retractions": self.answers,
            "cut_short": self.cut_short,
            "note": self.note,
        });
        self.met.add_to(&mut run);
        run
    }
}

/// Complete runs of a mode to a host. Values are means.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModeSummary {
    host: String,
    mode: String,
    runs: usize,
    /// Share of captured frames in time, in percent: mean, minimum and maximum.
    in_time: Option<[f64; 3]>,
    /// Mean of the mean delays, in seconds.
    delay: Option<f64>,
    events: Option<f64>,
    retractions: Option<f64>,
}

impl ModeSummary {
    /// All kinds, in the order of the runs.
    pub(super) fn all(outcomes: &[Outcome]) -> Vec<Self> {
        let whole = || outcomes.iter().filter(|outcome| !outcome.cut_short);
        let mut names: Vec<(&str, &str)> = Vec::new();
        for outcome in whole() {
            let name = (outcome.host.as_str(), outcome.mode.as_str());
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let of = |(host, mode): &(&str, &str)| {
            let same = whole().filter(|o| o.host == *host && o.mode == *mode);
            Self::of(&same.collect::<Vec<_>>(), host, mode)
        };
        names.iter().map(of).collect()
    }

    fn of(runs: &[&Outcome], host: &str, mode: &str) -> Self {
        let shares = runs.iter().filter_map(|o| o.measured.share());
        let shares: Vec<f64> = shares.map(|share| share * 100.0).collect();
        let least = shares.iter().copied().reduce(f64::min);
        let most = shares.iter().copied().reduce(f64::max);
        let in_time = || Some([mean(shares.iter().copied())?, least?, most?]);
        let delay = |o: &&Outcome| Some(o.measured.mean_delay?.as_secs_f64());
        Self {
            host: host.to_owned(),
            mode: mode.to_owned(),
            runs: runs.len(),
            in_time: in_time(),
            delay: mean(runs.iter().filter_map(delay)),
            events: mean(runs.iter().map(|o| o.measured.events as f64)),
            retractions: mean(runs.iter().map(|o| o.answers as f64)),
        }
    }

    /// Point at the abscissa of the host.
    fn point(&self, place: usize) -> Option<Point> {
        let [y, lo, hi] = self.in_time?;
        Some(Point {
            x: place as f64,
            y,
            lo,
            hi,
            n: self.runs,
        })
    }

    fn row(&self) -> Vec<Cell> {
        let share = |n: usize| Cell::from(self.in_time.map(|shares| shares[n]));
        vec![
            self.host.as_str().into(),
            self.mode.as_str().into(),
            (self.runs as f64).into(),
            share(0),
            share(1),
            share(2),
            self.delay.into(),
            self.events.into(),
            self.retractions.into(),
        ]
    }
}

/// Figure in the common format of `papers`: a line per mode over the hosts, and the table.
pub(super) fn figure(kinds: &[ModeSummary], bound: Duration) -> Figure {
    Figure {
        name: "hosts".to_owned(),
        source: format!(
            "Tidegate, over real paths; in time is within {} s",
            bound.as_secs_f64()
        ),
        series: series(kinds),
        table: Some(table(kinds)),
        notes: vec!["delays are above the smallest of each run: the clocks are two".to_owned()],
        ..Figure::default()
    }
}

fn series(kinds: &[ModeSummary]) -> Vec<Series> {
    let names = |of: fn(&ModeSummary) -> &str| {
        let mut names: Vec<&str> = Vec::new();
        for name in kinds.iter().map(of) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    };
    let (hosts, modes) = (names(|kind| &kind.host), names(|kind| &kind.mode));
    let line = |mode: &&str| {
        let point = |(place, host): (usize, &&str)| {
            let mut kinds = kinds.iter();
            let kind = kinds.find(|kind| kind.host == *host && kind.mode == *mode)?;
            kind.point(place)
        };
        Series {
            name: (*mode).to_owned(),
            x_unit: format!("host: {}", hosts.join(", ")),
            y_unit: "% in time".to_owned(),
            points: hosts.iter().enumerate().filter_map(point).collect(),
        }
    };
    modes.iter().map(line).collect()
}

/// Table with a row per host and mode.
fn table(kinds: &[ModeSummary]) -> Table {
    let columns = [
        "host",
        "mode",
        "runs",
        "in time %",
        "least",
        "most",
        "delay s",
        "events",
        "retractions",
    ];
    Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: kinds.iter().map(ModeSummary::row).collect(),
    }
}

fn mean(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let numbers: Vec<f64> = numbers.collect();
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_core::media::FrameRate;
    use tidegate_core::units::{Rate, Time};
    use tidegate_record::{
        FlowInfo, FlowPath, FrameKind, Manifest, ReceivedFrame, SentFrame, World,
    };

    use super::*;

    /// Time stamps of 100 ms at 90 kHz.
    const TICKS: u32 = 9_000;

    fn run() -> Run {
        let info = FlowInfo {
            name: "stream".to_owned(),
            class: "stream".to_owned(),
            control: "classic".to_owned(),
            baseline: false,
            delay_bound: None,
            floor: Rate::ZERO,
            frame_rate: Some(FrameRate::fps(10)),
            one_clock: false,
            way: FlowPath::default(),
            active: None,
        };
        let mut manifest = Manifest::new(World::Live, "x", Duration::from_mins(1));
        manifest.flows = vec![info];
        Run::new(Path::new("x"), manifest)
    }

    fn sent(frame: u64, left: bool) -> SentFrame {
        let captured = Time::from_millis(1_000 + 100 * frame);
        SentFrame {
            frame,
            rtp_timestamp: u32::MAX.wrapping_add(frame as u32 * TICKS),
            captured,
            kind: FrameKind::Key,
            target_bits: 0,
            bits: 0,
            left: left.then_some(captured),
            dropped: (!left).then_some(DropCause::Skipped),
            quality: None,
        }
    }

    /// `number` counts from the first received frame, as in a player.
    fn received(frame: u64, number: u64, complete: Option<u64>) -> ReceivedFrame {
        ReceivedFrame {
            frame: number,
            rtp_timestamp: u32::MAX.wrapping_add(frame as u32 * TICKS),
            first: Time::ZERO,
            complete: complete.map(Time::from_millis),
            kind: FrameKind::Key,
            bits: 0,
            decodable: complete.is_some(),
            quality: None,
        }
    }

    #[test]
    fn delays_are_relative_to_the_minimum() {
        let (mut ours, mut theirs) = (run(), run());
        // The first frame is skipped, and the last one is incomplete.
        ours.flows[0].sent = (0..5).map(|n| sent(n, n > 0)).collect();
        // The player's clock started 900 ms after the sender's, and the path delay is 30 ms plus
        // 100 ms, 0 and 400 ms.
        let rows = [(1, Some(330)), (2, Some(330)), (3, Some(830)), (4, None)];
        let rows = rows.iter().map(|(n, at)| received(*n, n - 1, *at));
        theirs.flows[0].received = rows.collect();
        let measured = FrameStatistics::new(&ours, &theirs, Duration::from_millis(100));
        assert_eq!((measured.made, measured.came, measured.in_time), (5, 3, 2));
        assert_eq!(measured.skipped, 1);
        let ms = |span: Option<Duration>| span.unwrap().as_micros();
        assert_eq!(ms(measured.mean_delay), 166_666);
        assert_eq!(ms(measured.max_delay), 400_000);
        assert_eq!(measured.share(), Some(0.4));

        let nothing = FrameStatistics::new(&run(), &run(), Duration::ZERO);
        assert_eq!(
            (nothing, nothing.share()),
            (FrameStatistics::default(), None)
        );
    }

    #[test]
    fn table_has_means_and_ranges_of_complete_runs() {
        let outcome = |run, in_time, cut_short| Outcome {
            host: "h".to_owned(),
            mode: "iopt".to_owned(),
            run,
            dir: PathBuf::new(),
            measured: FrameStatistics {
                made: 10,
                came: 10,
                in_time,
                mean_delay: Some(Duration::from_millis(100 * u64::from(run))),
                ..FrameStatistics::default()
            },
            answers: 2,
            cut_short,
            note: None,
            met: PathConditions::default(),
        };
        let outcomes = [
            outcome(1, 8, false),
            outcome(2, 10, false),
            outcome(3, 0, true),
        ];
        let kinds = ModeSummary::all(&outcomes);
        assert_eq!(kinds.len(), 1);
        assert_eq!((kinds[0].runs, kinds[0].retractions), (2, Some(2.0)));
        let figure = figure(&kinds, Duration::from_secs(2));
        let row = &figure.table.as_ref().unwrap().rows[0];
        let numbers = [2.0, 90.0, 80.0, 100.0, 0.15, 0.0, 2.0].map(Cell::from);
        assert_eq!(row[..2], ["h", "iopt"].map(Cell::from));
        assert_eq!(row[2..], numbers);
        let figure = serde_json::to_value(figure).unwrap();
        assert_eq!(figure["name"], "hosts");
        assert_eq!(figure["claims"], json!([]));
        assert_eq!(figure["series"][0]["name"], "iopt");
        assert_eq!(figure["series"][0]["x_unit"], "host: h");
        let point = json!({ "x": 0.0, "y": 90.0, "lo": 80.0, "hi": 100.0, "n": 2 });
        assert_eq!(figure["series"][0]["points"], json!([point]));
    }

    #[test]
    fn missing_mode_of_a_host_is_a_gap_in_its_line() {
        let kind = |host: &str, mode: &str| ModeSummary {
            host: host.to_owned(),
            mode: mode.to_owned(),
            runs: 1,
            in_time: Some([50.0; 3]),
            delay: None,
            events: None,
            retractions: None,
        };
        let kinds = [kind("a", "ioff"), kind("b", "ioff"), kind("b", "iopt")];
        let series = series(&kinds);
        let places = |n: usize| series[n].points.iter().map(|p| p.x).collect::<Vec<_>>();
        assert_eq!(
            (series.len(), places(0), places(1)),
            (2, vec![0.0, 1.0], vec![1.0])
        );
    }
}
