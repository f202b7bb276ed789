//! Khan and Zaghal, "Performance Analysis of TCP Interactive based World Wide Video Streaming over
//! ABONE": video over TCP to five nodes, with cross traffic of ten hosts.

mod figures;

use core::time::Duration;
use std::sync::Arc;

use super::differs::Differs;
use super::outcome::{Frame, Outcome, mean};
use super::runs::{Encoder, Job, PapersError, Tcp, play_seeds};
use super::{Cell, Claim, Entry, Figure, Make, Nodes, Options, Point, Progress, Series, Table};

const SOURCE: &str = "Khan, Zaghal: Performance Analysis of TCP Interactive based World Wide Video Streaming over ABONE";

const fn entry(name: &'static str, about: &'static str, make: Make) -> Entry {
    Entry {
        name,
        about,
        source: SOURCE,
        nodes: Nodes::Abone,
        encoder: Encoder::Mpeg2,
        tcps: &[Tcp::Bsd],
        make,
    }
}

pub(super) const TABLE5: Entry = entry(
    "abone/table5",
    "network and video parameters with and without symbiosis",
    table5,
);
pub(super) const TABLE6: Entry = entry("abone/table6", "quality of Y, U and V, run by run", table6);
pub(super) const FIG6: Entry = entry("abone/fig6", "Table 5 as bars", figures::fig6);
pub(super) const FIG7: Entry = entry(
    "abone/fig7",
    "frame sizes, target ratio and output",
    figures::fig7,
);
pub(super) const FIG8: Entry = entry("abone/fig8", "delay of each frame", figures::fig8);
pub(super) const FIG9: Entry = entry("abone/fig9", "jitter of each frame", figures::fig9);
pub(super) const FIG10: Entry = entry(
    "abone/fig10",
    "quality of frames against their delay",
    figures::fig10,
);

/// A node of the report. Round-trip times are assumed, except for two from the first paper.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) name: &'static str,
    rtt_ms: u64,
    /// Table 5, with and without symbiosis, in the order of [`METRICS`].
    table5: [[f64; 8]; 2],
    /// Table 6, mean of Y, U, V.
    table6: [f64; 3],
}

pub(super) const NODES: [Node; 5] = [
    Node {
        name: "fokus",
        rtt_ms: 130,
        table5: [
            [2.0, 7.149, 0.1156, 21.94, 49_737.0, 0.3411, 115.6, 8.706],
            [1.0, 18.284, 0.1417, 23.56, 54_673.0, 0.3344, 141.8, 7.903],
        ],
        table6: [21.94, 10.56, 10.98],
    },
    Node {
        name: "galileo",
        rtt_ms: 160,
        table5: [
            [1.2, 7.465, 0.1076, 18.42, 36_672.0, 0.2781, 107.6, 9.347],
            [2.0, 36.890, 0.1572, 23.56, 54_673.0, 0.3575, 157.3, 6.555],
        ],
        table6: [18.42, 8.42, 8.68],
    },
    Node {
        name: "columbia",
        rtt_ms: 25,
        table5: [
            [1.6, 1.014, 0.1014, 22.51, 50_174.0, 0.1972, 101.4, 9.906],
            [1.6, 7.020, 0.1123, 23.56, 54_673.0, 0.1730, 112.3, 8.964],
        ],
        table6: [21.78, 10.46, 10.87],
    },
    Node {
        name: "princeton",
        rtt_ms: 40,
        table5: [
            [1.2, 3.512, 0.1101, 22.46, 50_332.0, 0.2286, 110.2, 9.225],
            [1.4, 6.617, 0.1124, 23.56, 54_673.0, 0.2308, 112.4, 8.979],
        ],
        table6: [22.46, 10.80, 11.25],
    },
    Node {
        name: "isi",
        rtt_ms: 66,
        table5: [
            [1.0, 5.604, 0.1074, 20.71, 47_695.0, 0.2152, 107.4, 9.374],
            [2.2, 10.950, 0.1227, 23.56, 54_673.0, 0.3001, 122.7, 8.238],
        ],
        table6: [20.71, 9.80, 10.14],
    },
];

/// Runs of each kind in the report: five with symbiosis and five without.
pub(super) const RUNS: u64 = 5;

/// A value of a run.
type Metric = fn(&Outcome) -> f64;

/// The parameters of Table 5.
pub(super) const METRICS: [(&str, Metric); 8] = [
    ("events", |o| o.record.told as f64),
    ("ref. jitter s", |o| {
        mean(jitters(o).map(|(_, jitter)| jitter.abs()))
    }),
    ("inter-arrival s", |o| {
        lasted(o) / o.frames.len().max(1) as f64
    }),
    ("SNR Y dB", |o| mean_snr(o)[0]),
    ("bits per frame", |o| {
        let bits: u64 = o.frames.iter().map(|f| f.bits).sum();
        bits as f64 / o.frames.len().max(1) as f64
    }),
    ("flight s", flight),
    ("time s", lasted),
    ("frames per s", |o| {
        o.frames.len() as f64 / lasted(o).max(1e-3)
    }),
];

/// The two arms: the report's law, and without symbiosis.
pub(super) const ARMS: [(&str, &str); 2] = [
    (
        "sym = on",
        "mode = \"iexp\", recovery = \"additive\", subscribe = [\"timed-out\", \"third-duplicate\"], reaction = \"20ms\"",
    ),
    (
        "sym = off",
        "mode = \"ioff\", subscribe = [\"timed-out\", \"third-duplicate\"]",
    ),
];

/// Signed difference of each frame's arrival time from the ideal one; negative is early.
///
/// The ideal arrival times have the pace of a run in local mode, where frames arrive when they are
/// captured. Their origin is the median frame of the second and third second, because the first
/// second has connection setup and slow start. A single frame is no suitable origin: if cross
/// traffic delays it, all other frames appear early.
pub(super) fn jitters(o: &Outcome) -> impl Iterator<Item = (usize, f64)> + '_ {
    let frames = o.frames.iter().skip(10).take(20);
    let mut first: Vec<f64> = frames.filter_map(Frame::delay).collect();
    first.sort_by(f64::total_cmp);
    let ideal = first.get(first.len() / 2).copied().unwrap_or(0.0);
    let frames = o.frames.iter().enumerate();
    frames.filter_map(move |(n, f)| Some((n, f.delay()? - ideal)))
}

/// Time from the first arrival to the last.
fn lasted(o: &Outcome) -> f64 {
    let first = o.frames.iter().find_map(Frame::delay);
    o.lasted() - first.unwrap_or(0.0)
}

/// Mean time in the network without the time in the sender: from the capture of a frame, or the
/// arrival of the previous frame if that is later, to its arrival.
fn flight(o: &Outcome) -> f64 {
    let mut before = tidegate_core::units::Time::ZERO;
    let mut flights = Vec::new();
    for frame in &o.frames {
        if let Some(at) = frame.complete {
            flights.push(at.since(before.max(frame.captured)).as_secs_f64());
            before = at;
        }
    }
    flights.iter().sum::<f64>() / flights.len().max(1) as f64
}

/// Mean SNR of Y, U and V over the encoded frames, in dB.
pub(super) fn mean_snr(o: &Outcome) -> [f64; 3] {
    [0, 1, 2].map(|plane| mean(o.frames.iter().filter_map(|f| Some(f.snr?[plane]))))
}

/// Notes on the assumptions, for every figure.
fn assumptions(options: &Options) -> Vec<String> {
    let video = format!(
        "{} at 176x120 and 10 frames per second, 1000 frames of up to 54,673 bits, the report's \
         mean. Delay is relative to a run in local mode, where a frame arrives when it is captured: \
         encoding takes no time in the simulator, and less than a millisecond on the kernel. Jitter \
         is relative to the pace of that run from the median frame of the second and third second. \
         It is signed; means are of its absolute value.",
        options.encoder().describe()
    );
    let path = format!(
        "Assumed: round trips (130 ms to Berlin, 160 ms to Palermo, 25 ms to New York; 40 and 66 ms \
         as in Table 2 of the first paper), a bottleneck of {}, and the cross traffic, of which the \
         report states only the number of ten hosts: each sends 1.8 Mb/s for one second and then \
         nothing for four seconds, on average.",
        options.bottleneck
    );
    [
        &path,
        &video,
        "The step of the additive recovery is not published; a hundredth of the normal rate per \
         second is derived from Table 5.",
        options.encoder().remark(),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Notes of a figure: the assumptions, the notes `always`, and with the default path the
/// differences from the report.
fn notes(options: &Options, always: &[&str], differs: &[Differs]) -> Vec<String> {
    let mut notes = assumptions(options);
    notes.extend(always.iter().map(|&text| text.to_owned()));
    if options.is_usual() {
        notes.extend(Differs::of(differs, &*options.world));
    }
    notes
}

/// The runs of one TCP, node and arm.
pub(super) struct Group {
    pub(super) tcp: Tcp,
    pub(super) node: &'static Node,
    pub(super) arm: usize,
    pub(super) runs: Vec<Arc<Outcome>>,
}

impl Group {
    pub(super) fn point(&self, x: f64, of: impl Fn(&Outcome) -> f64) -> Option<Point> {
        let values: Vec<f64> = self.runs.iter().map(|run| of(run)).collect();
        Point::over(x, &values)
    }

    pub(super) fn mean(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        mean(self.runs.iter().map(|run| of(run)))
    }

    /// The runs over the same path without symbiosis, for a group with it.
    pub(super) fn without<'a>(&self, groups: &'a [Self]) -> Option<&'a Self> {
        let mut others = groups.iter().filter(|other| other.arm == 1);
        others.find(|other| other.tcp == self.tcp && other.node.name == self.node.name)
    }

    pub(super) fn name(&self) -> String {
        format!(
            "{} {}: {}",
            self.tcp.name(),
            self.node.name,
            ARMS[self.arm].0
        )
    }
}

pub(super) fn groups(options: &Options, progress: Progress<'_>) -> Result<Vec<Group>, PapersError> {
    let (mut groups, mut jobs) = (Vec::new(), Vec::new());
    for &tcp in &options.tcps {
        for node in NODES.iter().filter(|node| options.wants(node.name)) {
            for arm in 0..ARMS.len() {
                let job = experiment(node, tcp, arm, options)?;
                groups.push(Group {
                    tcp,
                    node,
                    arm,
                    runs: Vec::new(),
                });
                jobs.push(job);
            }
        }
    }
    for (group, runs) in groups.iter_mut().zip(play_seeds(&jobs, options, progress)?) {
        group.runs = runs;
    }
    groups.retain(|group| !group.runs.is_empty());
    Ok(groups)
}

fn experiment(node: &Node, tcp: Tcp, arm: usize, options: &Options) -> Result<Job, PapersError> {
    let (mode, rto) = (ARMS[arm].1, options.rto_keys(tcp));
    let bottleneck = options.bottleneck;
    let queue = bottleneck.queue(Duration::from_millis(node.rtt_ms));
    let half = node.rtt_ms * 500;
    let text = format!(
        r#"name = "abone"
duration = "200s"
[[link]]
name = "path"
rate = "{rate}b/s"
delay = "{half}us"
queue = {{ droptail = "{queue}B" }}
[[link]]
name = "back"
delay = "{half}us"
[[flow]]
name = "video"
path = ["path"]
back = ["back"]
start = ["0s", "1s"]
delay_bound = "4s"
video = {{ size = "176x120", fps = 10, floor = "50kb/s", ceiling = "546730b/s", encoder = "{encoder}" }}
transport = {{ tcp = {tcp}, {mode}, {rto}frames = 1000 }}
[[flow]]
name = "mk"
count = 10
path = ["path"]
back = ["back"]
udp = {{ rate = "1800kb/s", packet = "1500B", spacing = {{ on = "1s", off = "4s" }} }}
"#,
        rate = bottleneck.rate().as_bps(),
        queue = queue.get(),
        encoder = options.encoder().name(),
        tcp = tcp.toml(),
    );
    let arm = ["on", "off"][arm];
    let encoder = options.encoder().label();
    let path = bottleneck.label();
    let label = format!("{} {} sym {arm}{encoder}{path}", tcp.name(), node.name);
    Job::new(&label, text)
}

fn table5(entry: &Entry, options: &Options, progress: Progress<'_>) -> Result<Figure, PapersError> {
    let groups = groups(options, progress)?;
    let mut figure = figures::bars(entry, options, &groups);
    let mut columns: Vec<String> = ["tcp", "node", "sym", "what"].map(str::to_owned).to_vec();
    columns.extend(METRICS.iter().map(|(name, _)| (*name).to_owned()));
    let mut rows = Vec::new();
    for group in &groups {
        let head = |what: &str| -> Vec<Cell> {
            vec![
                group.tcp.name().into(),
                group.node.name.into(),
                ARMS[group.arm].0.into(),
                what.into(),
            ]
        };
        let points = METRICS.iter().map(|(_, of)| group.point(0.0, of));
        let points: Vec<Option<Point>> = points.collect();
        let line = |what: &str, of: &dyn Fn(&Point) -> f64| {
            let mut row = head(what);
            row.extend(points.iter().map(|p| p.as_ref().map(of).into()));
            row
        };
        rows.push(line("ours", &|p| p.y));
        rows.push(line("±", &|p| (p.hi - p.lo) / 2.0));
        let mut row = head("paper");
        row.extend(group.node.table5[group.arm].iter().map(|v| Cell::from(*v)));
        rows.push(row);
    }
    figure.table = Some(Table { columns, rows });
    Ok(figure)
}

fn table6(entry: &Entry, options: &Options, progress: Progress<'_>) -> Result<Figure, PapersError> {
    let groups = groups(options, progress)?;
    let mut figure = entry.figure();
    let columns = ["tcp", "node", "run", "Y dB", "U dB", "V dB"];
    let mut rows = Vec::new();
    for group in groups.iter().filter(|g| g.arm == 0) {
        let row = |run: &str, [y, u, v]: [f64; 3]| -> Vec<Cell> {
            vec![
                group.tcp.name().into(),
                group.node.name.into(),
                run.into(),
                y.into(),
                u.into(),
                v.into(),
            ]
        };
        for (number, run) in group.runs.iter().enumerate() {
            rows.push(row(&format!("R{}", number + 1), mean_snr(run)));
        }
        let mean = |i: usize| group.mean(|o| mean_snr(o)[i]);
        rows.push(row("mean", [mean(0), mean(1), mean(2)]));
        rows.push(row("paper", group.node.table6));
        let points = [0, 1, 2].map(|i| group.point(i as f64, |o| mean_snr(o)[i]));
        let units = ("plane: Y, U, V", "dB");
        let points = points.into_iter().flatten().collect();
        figure.series.push(Series::new(group.name(), units, points));
        let paper = group.node.table6.iter().enumerate();
        let paper = paper.map(|(plane, snr)| Point::single(plane as f64, *snr));
        figure.series.push(Series::new(
            format!("{}, paper", group.name()),
            units,
            paper.collect(),
        ));
        if let Some(off) = group.without(&groups) {
            let lost = off.mean(|o| mean_snr(o)[0]) - mean(0);
            let theirs = group.node.table5[1][3] - group.node.table5[0][3];
            figure.claims.push(Claim::new(
                format!(
                    "{} {}: symbiosis trades quality for delay (its cost, dB of Y)",
                    group.tcp.name(),
                    group.node.name
                ),
                Some(theirs),
                lost,
                lost > 0.0,
            ));
        }
    }
    figure.table = Some(Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    });
    let always = "The report contradicts itself for Columbia: its Table 5 has 22.51 dB of Y, its Table 6 \
         21.78. The cost of symbiosis is that of its Table 5. A run without an event has the quality \
         of the full rate, so the cost of symbiosis at a node is random.";
    figure.notes = notes(options, &[always], &[]);
    Ok(figure)
}
