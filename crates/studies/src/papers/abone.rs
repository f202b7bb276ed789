//! Khan and Zaghal, "Performance Analysis of TCP Interactive based World Wide Video Streaming over
//! ABONE": video over TCP to five nodes, with cross traffic of ten hosts.

mod figures;
mod published;
mod tables;

use core::time::Duration;
use std::sync::Arc;

use super::deviations::Deviation;
use super::outcome::{Frame, Outcome, mean};
use super::runs::{Encoder, Job, PapersError, Stack, Tcp, play_seeds};
use super::{Cell, Entry, Make, Nodes, Options, Point, Progress, Table};
pub(super) use published::{NODES, Node};

const SOURCE: &str = "Khan, Zaghal: Performance Analysis of TCP Interactive based World Wide Video Streaming over ABONE";

const fn entry(name: &'static str, about: &'static str, make: Make) -> Entry {
    Entry {
        name,
        about,
        source: SOURCE,
        nodes: Nodes::Abone,
        encoder: Encoder::Mpeg2,
        tcps: &[Tcp::Bsd],
        bounds: "1000 frames",
        compares_growth: false,
        make,
    }
}

pub(super) const TABLE5: Entry = entry(
    "abone/table5",
    "network and video parameters with and without symbiosis",
    tables::table5,
);
pub(super) const TABLE6: Entry = entry(
    "abone/table6",
    "quality of Y, U and V, run by run",
    tables::table6,
);
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

/// Runs of each kind in the report: five with symbiosis and five without.
pub(super) const RUNS: u64 = 5;

/// A value of a run.
type Metric = fn(&Outcome) -> f64;

/// The parameters of Table 5.
pub(super) const METRICS: [(&str, Metric); 8] = [
    ("events", |o| o.record.delivered as f64),
    ("ref. jitter s", |o| {
        mean(jitters(o).map(|(_, jitter)| jitter.abs()))
    }),
    ("inter-arrival s", |o| {
        lasted(o) / o.frames.len().max(1) as f64
    }),
    ("SNR Y dB", |o| o.mean_snr()[0]),
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

/// Assumptions of every figure.
fn assumptions(options: &Options) -> Vec<String> {
    let video = format!(
        "{} at 176x120, 1000 frames of up to 54,673 bits, the report's own mean (the first paper has 2 \
         Mb/s of the same video). Assumed: 10 frames per second, at which 1000 frames take the 100 s \
         that the fastest runs of Table 5 took. Delay is relative to a run in local mode, in which a \
         frame arrives when it is captured: coding takes no time in the simulator, and less than a \
         millisecond on the kernel. Jitter is relative to the pace of that run, from the median frame \
         of the second and third second; means are of its absolute value.",
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
        "The step of the additive recovery is not printed; a hundredth of the normal rate per second \
         follows from Table 5. The law responds 20 ms after an event, as assumed for the first paper.",
        options.encoder().remark(),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Notes of a figure: assumptions, notes that are `always` valid, and over the default path the
/// differences from the report.
fn notes(options: &Options, always: &[&str], differs: &[Deviation]) -> Vec<String> {
    let mut notes = assumptions(options);
    notes.extend(always.iter().map(|&text| text.to_owned()));
    if options.is_usual() {
        notes.extend(Deviation::of(differs, options));
    }
    notes
}

/// The runs of one TCP, node and arm.
pub(super) struct Group {
    pub(super) tcp: Stack,
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
    for tcp in options.stacks(false) {
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

fn experiment(node: &Node, tcp: Stack, arm: usize, options: &Options) -> Result<Job, PapersError> {
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
        tcp = tcp.tcp.toml(),
    );
    let arm = ["on", "off"][arm];
    let encoder = options.encoder().label();
    let path = bottleneck.label();
    let label = format!("{} {} sym {arm}{encoder}{path}", tcp.name(), node.name);
    Job::new(&label, text)
}

/// Values of each run.
fn runs(groups: &[Group]) -> Table {
    let columns = METRICS.iter().map(|(name, _)| *name);
    let columns = ["tcp", "node", "sym", "seed"].into_iter().chain(columns);
    let rows = groups.iter().flat_map(|group| {
        group.runs.iter().map(|run| {
            let mut row: Vec<Cell> = vec![
                group.tcp.name().into(),
                group.node.name.into(),
                ARMS[group.arm].0.into(),
                (run.seed as f64).into(),
            ];
            row.extend(METRICS.iter().map(|(_, of)| Cell::from(of(run))));
            let [_, u, v] = run.mean_snr();
            row.extend([u, v].map(Cell::from));
            row
        })
    });
    Table {
        columns: columns
            .chain(["SNR U dB", "SNR V dB"])
            .map(str::to_owned)
            .collect(),
        rows: rows.collect(),
    }
}
