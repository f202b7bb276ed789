//! Khan and Zaghal, "Symbiotic Rate Adaptation for Time Sensitive Elastic Traffic with Interactive
//! Transport": video over TCP to four nodes, while the path is cut three times for 3 s.

mod cuts;
mod figures;
mod published;
mod tables;

use std::sync::Arc;

use tidegate_core::units::Rate;

use super::stage::{Encoder, Job, Outcome, PapersError, Tcp, mean, play_seeds, product};
use super::{Entry, Make, Nodes, Options, Progress};
use published::{NODES, Node};

const SOURCE: &str = "Khan, Zaghal: Symbiotic Rate Adaptation for Time Sensitive Elastic Traffic with Interactive Transport";

const fn entry(name: &'static str, about: &'static str, make: Make) -> Entry {
    Entry {
        name,
        about,
        source: SOURCE,
        nodes: Nodes::Itcp,
        encoder: Encoder::Model,
        make,
    }
}

pub(super) const FIG3: Entry = Entry {
    nodes: Nodes::None,
    ..entry(
        "itcp/fig3",
        "how TCP's events change the bandwidth",
        figures::fig3,
    )
};
pub(super) const FIG9: Entry = entry(
    "itcp/fig9",
    "when frames arrive, in every mode",
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
    "how long it takes to send the whole video",
    figures::fig12,
);
pub(super) const TABLE4: Entry = entry(
    "itcp/table4",
    "mean delay and share of frames in time",
    tables::table4,
);
pub(super) const TABLE5: Entry = entry("itcp/table5", "bits kept", tables::table5);
pub(super) const TABLE6: Entry = entry(
    "itcp/table6",
    "the reduced rate and how long it lasts",
    tables::table6,
);

pub(super) const CUTS: Entry = Entry {
    name: "itcp/cuts",
    about: "frames in time by the length of the cuts, which the papers did not vary",
    source: "our own, on the path of the first paper",
    nodes: Nodes::Itcp,
    encoder: Encoder::Model,
    make: cuts::play,
};

/// A mode as it is played: its name here, and its part of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ModeRow {
    name: &'static str,
    toml: &'static str,
}

/// iOPT with our law, with the two printed ones, and the rest of the paper's modes. The printed
/// ones react after 20 ms: a signal, a process that is forked, and a file.
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

/// Who the paper sends to.
pub(super) fn node_names() -> [&'static str; 4] {
    NODES.map(|node| node.name)
}

/// The delay bounds of the paper, in seconds.
const BOUNDS: [u64; 3] = [2, 4, 6];
/// How long its cuts last.
const CUT_MS: u64 = 3_000;
/// So many a run has.
const FRAMES: f64 = 750.0;

/// What was assumed, for every figure.
fn assumptions(options: &Options) -> Vec<String> {
    let video = format!(
        "{} at 176x120 and 10 frames per second, 750 frames at up to 2 Mb/s and never below 150 kb/s. \
         It starts up to a second later from run to run.",
        options.encoder().describe()
    );
    [
        "Round-trip times are those of Table 2; the bottleneck of 10 Mb/s with one bandwidth-delay \
         product of queue is assumed, the paper prints none. Only the injector congests the path.",
        &video,
        options.encoder().remark(),
        "A frame is in time if all of it is there within d of its capture.",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The experiment: three cuts, 10 s apart, 750 frames.
fn experiment(group: &Group, options: &Options) -> Result<Job, PapersError> {
    let (node, tcp, bound, cut) = (group.node, group.tcp, group.bound, group.cut_ms);
    let (mode, rto) = (MODES[group.mode], options.rto_keys(tcp));
    let queue = product(
        Rate::kbps(10_000),
        core::time::Duration::from_millis(node.rtt_ms),
    );
    let half = node.rtt_ms * 500;
    let [first, second, third] = [0, 1, 2].map(|n| 10_000 + n * (cut + 10_000));
    let text = format!(
        r#"name = "itcp"
duration = "130s"
[[link]]
name = "path"
rate = "10Mb/s"
delay = "{half}us"
queue = {{ droptail = "{queue}B" }}
outage = [{{ at = "{first}ms", lasts = "{cut}ms" }}, {{ at = "{second}ms", lasts = "{cut}ms" }}, {{ at = "{third}ms", lasts = "{cut}ms" }}]
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
        queue = queue.get(),
        encoder = options.encoder().name(),
        tcp = tcp.toml(),
        mode = mode.toml,
    );
    let of_paper = cut == CUT_MS;
    let length = if of_paper {
        String::new()
    } else {
        format!(" {cut}ms")
    };
    let label = format!(
        "{} {} {bound}s {}{length}",
        tcp.name(),
        node.name,
        mode.name
    );
    Job::new(&label, text)
}

/// What is compared: all runs of a TCP, a node, a bound, a length of the cuts and a mode.
struct Group {
    tcp: Tcp,
    node: &'static Node,
    bound: u64,
    cut_ms: u64,
    mode: usize,
    runs: Vec<Arc<Outcome>>,
}

impl Group {
    /// One number of each run.
    fn values(&self, of: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        self.runs.iter().map(|run| of(run)).collect()
    }

    /// Its mean.
    fn mean(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        mean(self.values(of))
    }

    /// Half the distance between the least and the largest.
    fn spread(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        let values = self.values(of);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (most - least) / 2.0
    }
}

/// What an entry plays, at all nodes that are asked for.
struct Grid<'a> {
    /// Unless others are asked for.
    tcps: &'a [Tcp],
    bounds: &'a [u64],
    cuts_ms: &'a [u64],
    modes: &'a [usize],
}

impl Grid<'_> {
    /// Over the TCP of the papers' time, with their cuts and a bound of 4 s.
    fn of_figure(modes: &[usize]) -> Grid<'_> {
        Grid {
            tcps: &[Tcp::Bsd],
            bounds: &[4],
            cuts_ms: &[CUT_MS],
            modes,
        }
    }

    /// All runs; groups without any are left out.
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
        let tcps = if options.tcps.is_empty() {
            self.tcps
        } else {
            &options.tcps
        };
        let mut groups = Vec::new();
        for tcp in tcps {
            for node in NODES.iter().filter(|node| options.wants(node.name)) {
                for bound in self.bounds {
                    for cut_ms in self.cuts_ms {
                        groups.extend(self.modes.iter().map(|mode| Group {
                            tcp: *tcp,
                            node,
                            bound: *bound,
                            cut_ms: *cut_ms,
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
