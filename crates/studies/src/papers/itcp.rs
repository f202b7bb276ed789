//! Khan and Zaghal, "Symbiotic Rate Adaptation for Time Sensitive Elastic Traffic with Interactive
//! Transport": video over TCP to four nodes, with three path outages of 3 s.

mod claims4;
mod cuts;
mod figures;
mod published;
mod tables;

use core::time::Duration;
use std::sync::Arc;

use super::bursts::PUBLISHED_GAP;
use super::differs::Differs;
use super::outcome::{Outcome, mean};
use super::runs::{Encoder, Job, PapersError, Tcp, play_seeds};
use super::{Bursts, Entry, Make, Nodes, Options, Progress};
use published::{NODES, Node};

const SOURCE: &str = "Khan, Zaghal: Symbiotic Rate Adaptation for Time Sensitive Elastic Traffic with Interactive Transport";

const fn entry(name: &'static str, about: &'static str, make: Make) -> Entry {
    Entry {
        name,
        about,
        source: SOURCE,
        nodes: Nodes::Itcp,
        encoder: Encoder::Model,
        tcps: &[Tcp::Bsd],
        make,
    }
}

pub(super) const FIG3: Entry = Entry {
    nodes: Nodes::None,
    ..entry(
        "itcp/fig3",
        "effect of TCP's events on the bandwidth",
        figures::fig3,
    )
};
pub(super) const FIG9: Entry = entry(
    "itcp/fig9",
    "arrival times of frames in every mode",
    figures::fig9,
);
pub(super) const FIG10: Entry = Entry {
    encoder: Encoder::Mpeg2,
    ..entry(
        "itcp/fig10",
        "target and actual rate of iOPT, d = 4 s",
        figures::fig10,
    )
};
pub(super) const FIG11: Entry = Entry {
    encoder: Encoder::Mpeg2,
    ..entry(
        "itcp/fig11",
        "quality of frames against their delay",
        figures::fig11,
    )
};
pub(super) const FIG12: Entry = entry(
    "itcp/fig12",
    "duration of the transfer of the whole video",
    figures::fig12,
);
pub(super) const TABLE4: Entry = Entry {
    tcps: &Tcp::ALL,
    ..entry(
        "itcp/table4",
        "mean delay and share of frames in time",
        tables::table4,
    )
};
pub(super) const TABLE5: Entry = Entry {
    tcps: &Tcp::ALL,
    ..entry("itcp/table5", "bits kept", tables::table5)
};
pub(super) const TABLE6: Entry = entry(
    "itcp/table6",
    "reduced rate and its duration",
    tables::table6,
);

pub(super) const CUTS: Entry = Entry {
    name: "itcp/cuts",
    about: "frames in time by the length of the cuts, which the papers did not vary",
    source: "Tidegate, on the path of the first paper",
    nodes: Nodes::Itcp,
    encoder: Encoder::Model,
    tcps: &[Tcp::Cubic],
    make: cuts::play,
};

/// A mode: its name, and its keys in a scenario's `transport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ModeRow {
    name: &'static str,
    toml: &'static str,
}

/// iOPT with Tidegate's law and with the two printed laws, and the other modes of the paper. The
/// printed laws respond after 20 ms: a signal, a fork and a file.
const MODES: [ModeRow; 6] = [
    ModeRow {
        name: "iOPT exact",
        toml: "mode = \"iopt\"",
    },
    ModeRow {
        name: "iOPT paper",
        toml: "mode = \"iopt\", law = \"paper\", reaction = \"20ms\"",
    },
    ModeRow {
        name: "iOPT paper-m",
        toml: "mode = \"iopt\", law = \"paper-m\", reaction = \"20ms\"",
    },
    ModeRow {
        name: "iEXP",
        toml: "mode = \"iexp\", reaction = \"20ms\"",
    },
    ModeRow {
        name: "iOFF",
        toml: "mode = \"ioff\"",
    },
    ModeRow {
        name: "Classic",
        toml: "mode = \"classic\"",
    },
];

const EXACT: usize = 0;
const PAPER: usize = 1;
const IEXP: usize = 3;
const IOFF: usize = 4;
const CLASSIC: usize = 5;

/// Receiving nodes of the paper.
pub(super) fn node_names() -> [&'static str; 4] {
    NODES.map(|node| node.name)
}

/// Longest outage of [`CUTS`].
pub(super) fn longest_cut() -> Duration {
    Duration::from_millis(cuts::CUTS_MS.into_iter().max().unwrap_or_default())
}

/// The delay bounds of the paper, in seconds.
const BOUNDS: [u64; 3] = [2, 4, 6];
/// Frames of a run.
const FRAMES: f64 = 750.0;

/// Notes on the assumptions, for every figure.
fn assumptions(options: &Options) -> Vec<String> {
    let video = format!(
        "{} at 176x120 and 10 frames per second, 750 frames at up to 2 Mb/s and never below 150 kb/s. \
         It starts up to a second later from run to run.",
        options.encoder().describe()
    );
    let path = format!(
        "Round-trip times are those of Table 2. The bottleneck of {} is assumed; the paper does not \
         state it. Only the injector congests the path.",
        options.bottleneck
    );
    [
        &path,
        &video,
        options.encoder().remark(),
        "A frame is in time if it is complete within d of its capture.",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Notes of a figure: the assumptions, the notes `always`, and with the paper's outages and default
/// path, the differences from the paper.
fn notes(options: &Options, always: &[&str], differs: &[Differs]) -> Vec<String> {
    let mut notes = assumptions(options);
    notes.extend(always.iter().map(|&text| text.to_owned()));
    if is_published(options) && options.is_usual() {
        notes.extend(Differs::of(differs, &*options.world));
    }
    if !is_published(options) {
        notes.push(format!(
            "The injector cuts the path for {}. The paper has three cuts of 3 s with 10 s before \
             each, so published values are omitted.",
            options.bursts()
        ));
    }
    notes
}

/// Whether the outages are those of the paper.
fn is_published(options: &Options) -> bool {
    options.bursts() == Bursts::published()
}

/// Job of the experiment: the injector's outages, 750 frames.
fn experiment(group: &Group, options: &Options) -> Result<Job, PapersError> {
    let (node, tcp, bound) = (group.node, group.tcp, group.bound);
    let (mode, rto) = (MODES[group.mode], options.rto_keys(tcp));
    let bottleneck = options.bottleneck;
    let queue = bottleneck.queue(Duration::from_millis(node.rtt_ms));
    let half = node.rtt_ms * 500;
    let cuts = group.bursts.cuts().map(|(at, lasts)| {
        let (at, lasts) = (at.as_millis(), lasts.as_millis());
        format!("{{ at = \"{at}ms\", lasts = \"{lasts}ms\" }}")
    });
    let outage = cuts.collect::<Vec<_>>().join(", ");
    let longest = group.bursts.lengths().iter().max();
    let over = group.bursts.end() + longest.copied().unwrap_or_default() + BEHIND;
    let duration = over.max(LASTS).as_millis();
    let text = format!(
        r#"name = "itcp"
duration = "{duration}ms"
[[link]]
name = "path"
rate = "{rate}b/s"
delay = "{half}us"
queue = {{ droptail = "{queue}B" }}
outage = [{outage}]
[[link]]
name = "back"
delay = "{half}us"
[[flow]]
name = "video"
path = ["path"]
back = ["back"]
start = ["0s", "1s"]
delay_bound = "{bound}s"
video = {{ size = "176x120", fps = 10, floor = "150kb/s", ceiling = "2Mb/s", encoder = "{encoder}" }}
transport = {{ tcp = {tcp}, {mode}, {rto}frames = {FRAMES} }}
"#,
        rate = bottleneck.rate().as_bps(),
        queue = queue.get(),
        encoder = options.encoder().name(),
        tcp = tcp.toml(),
        mode = mode.toml,
    );
    let label = format!(
        "{} {} {bound}s {}{}{}{}",
        tcp.name(),
        node.name,
        mode.name,
        words(&group.bursts),
        options.encoder().label(),
        bottleneck.label(),
    );
    Job::new(&label, text)
}

/// Suffix of the label of runs with other outages than the paper's.
fn words(bursts: &Bursts) -> String {
    let ms = |span: &Duration| format!("{}ms", span.as_millis());
    let lengths = bursts.lengths();
    let (first, gap) = (lengths[0], bursts.gap());
    if *bursts == Bursts::published() {
        String::new()
    } else if *bursts == Bursts::alike(first, PUBLISHED_GAP) {
        format!(" {}", ms(&first))
    } else {
        let lengths: Vec<String> = lengths.iter().map(ms).collect();
        format!(" {} every {}", lengths.join(" "), ms(&gap))
    }
}

/// Group of runs that are averaged: same TCP, node, delay bound, outages and mode.
struct Group {
    tcp: Tcp,
    node: &'static Node,
    bound: u64,
    bursts: Bursts,
    mode: usize,
    runs: Vec<Arc<Outcome>>,
}

impl Group {
    /// A value of each run.
    fn values(&self, of: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        self.runs.iter().map(|run| of(run)).collect()
    }

    /// Mean of a value over the runs.
    fn mean(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        mean(self.values(of))
    }

    /// Half of the range of a value over the runs.
    fn spread(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        let values = self.values(of);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (most - least) / 2.0
    }
}

/// Parameter grid of an entry, for all requested nodes.
struct Grid<'a> {
    bounds: &'a [u64],
    /// Lengths of outages to vary. If empty, the injector's.
    cuts_ms: &'a [u64],
    modes: &'a [usize],
}

impl Grid<'_> {
    /// Grid with a delay bound of 4 s.
    fn of_figure(modes: &[usize]) -> Grid<'_> {
        Grid {
            bounds: &[4],
            cuts_ms: &[],
            modes,
        }
    }

    /// Runs the grid. Groups without runs are omitted.
    fn play(&self, options: &Options, progress: Progress<'_>) -> Result<Vec<Group>, PapersError> {
        let mut groups = self.groups(options);
        let jobs: Result<Vec<Job>, PapersError> = groups
            .iter()
            .map(|group| experiment(group, options))
            .collect();
        for (group, runs) in groups
            .iter_mut()
            .zip(play_seeds(&jobs?, options, progress)?)
        {
            group.runs = runs;
        }
        groups.retain(|group| !group.runs.is_empty());
        Ok(groups)
    }

    fn groups(&self, options: &Options) -> Vec<Group> {
        let alike = |ms: &u64| Bursts::alike(Duration::from_millis(*ms), options.bursts().gap());
        let bursts = if self.cuts_ms.is_empty() {
            vec![options.bursts()]
        } else {
            self.cuts_ms.iter().map(alike).collect()
        };
        let mut groups = Vec::new();
        for tcp in &options.tcps {
            for node in NODES.iter().filter(|node| options.wants(node.name)) {
                for bound in self.bounds {
                    for bursts in &bursts {
                        groups.extend(self.modes.iter().map(|mode| Group {
                            tcp: *tcp,
                            node,
                            bound: *bound,
                            bursts: bursts.clone(),
                            mode: *mode,
                            runs: Vec::new(),
                        }));
                    }
                }
            }
        }
        groups
    }
}

/// Minimum duration of a run.
const LASTS: Duration = Duration::from_secs(130);
/// Time after the last outage and its longest back-off (the longest outage again) in which the
/// backlog drains.
const BEHIND: Duration = Duration::from_secs(80);
/// Duration of the paper's 750 frames. A later outage affects no frame.
pub const VIDEO: Duration = Duration::from_secs(75);
