//! Khan and Zaghal, "Symbiotic Rate Adaptation for Time Sensitive Elastic Traffic with Interactive
//! Transport": video over TCP to four nodes, with three path outages of 3 s.

mod claims4;
mod cuts;
mod figures;
mod published;
mod setup;
mod table4;
mod table5;
mod table6;
mod throttling;

use core::time::Duration;
use std::sync::Arc;

use super::deviations::Deviation;
use super::outages::PUBLISHED_GAP;
use super::outcome::{Outcome, mean};
use super::runs::{Encoder, Job, PapersError, Stack, Tcp, play_seeds};
use super::{Cell, Entry, Make, Nodes, Options, OutageSchedule, Progress, Table};
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
        bounds: "d = 4 s",
        compares_growth: false,
        make,
    }
}

/// A table over all delay bounds and transports.
const fn table(name: &'static str, about: &'static str, make: Make) -> Entry {
    Entry {
        tcps: &Tcp::ALL,
        bounds: "d = 2, 4 and 6 s",
        compares_growth: true,
        ..entry(name, about, make)
    }
}

pub(super) const TABLE1: Entry = Entry {
    nodes: Nodes::None,
    bounds: "",
    ..entry(
        "itcp/table1",
        "events of TCP's congestion control, and how often each occurs",
        setup::table1,
    )
};
pub(super) const TABLE2: Entry = entry(
    "itcp/table2",
    "round-trip times to the nodes",
    setup::table2,
);
pub(super) const TABLE3: Entry = entry(
    "itcp/table3",
    "control flags and modes, and what each mode does",
    setup::table3,
);
pub(super) const FIG3: Entry = Entry {
    nodes: Nodes::None,
    bounds: "",
    ..entry(
        "itcp/fig3",
        "bandwidth at the events of TCP's congestion control",
        figures::fig3,
    )
};
pub(super) const FIG5: Entry = Entry {
    nodes: Nodes::None,
    tcps: &[],
    bounds: "d = 4 s",
    ..entry(
        "itcp/fig5",
        "throttling model: backlog and delay at the rate of each law",
        throttling::fig5,
    )
};
pub(super) const FIG9: Entry = entry(
    "itcp/fig9",
    "arrival of frames, in every mode",
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
    "transmission time of the whole video",
    figures::fig12,
);
pub(super) const TABLE4: Entry = table(
    "itcp/table4",
    "mean delay and share of frames in time",
    table4::play,
);
pub(super) const TABLE5: Entry = table("itcp/table5", "share of all bits", table5::play);
pub(super) const TABLE6: Entry = Entry {
    bounds: "d = 2, 4 and 6 s",
    ..entry("itcp/table6", "reduced rate and its duration", table6::play)
};

pub(super) const CUTS: Entry = Entry {
    source: "our own, on the path of the first paper",
    tcps: &[Tcp::Cubic],
    bounds: "d = 2 and 4 s",
    ..table(
        "itcp/cuts",
        "frames in time by the length of the outages, which the papers did not vary",
        cuts::play,
    )
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

/// Nodes of Table 2.
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

/// Assumptions of every figure.
fn assumptions(options: &Options) -> Vec<String> {
    let video = format!(
        "{} at 176x120, 750 frames at up to 2 Mb/s, as printed. Assumed: 10 frames per second (the \
         paper has 750 frames and 75 s of time axis), and a floor of 150 kb/s. The report has \
         54,673 bits per frame, 0.55 Mb/s, of the same video. The start varies by up to a second \
         between runs.",
        options.encoder().describe()
    );
    let path = format!(
        "Round-trip times are those of Table 2. The bottleneck of {} is assumed, as the paper prints \
         none. Only the injector congests the path.",
        options.bottleneck
    );
    let mut assumptions = vec![path, video];
    let bsd = "bsd is assumed to have a window of 64 kB (44 segments), a minimum timeout of 1 s and a \
               threshold that falls with every timeout.";
    if options.tcps.contains(&Tcp::Bsd) {
        assumptions.push(bsd.to_owned());
    }
    let always = [
        options.encoder().remark(),
        "iEXP and the printed laws respond 20 ms after an event, an assumption for the signal, the \
         fork and the file of Figure 6; iOPT exact responds with the next frame.",
        "A frame is in time if all of it has arrived within d of its capture.",
    ];
    assumptions.extend(always.map(str::to_owned));
    assumptions
}

/// Notes of a figure: assumptions, notes that are `always` valid, and for the paper's outages the
/// differences from it.
fn notes(options: &Options, always: &[&str], differs: &[Deviation]) -> Vec<String> {
    let mut notes = assumptions(options);
    notes.extend(always.iter().map(|&text| text.to_owned()));
    if is_published(options) && options.is_usual() {
        notes.extend(Deviation::of(differs, options));
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
    options.bursts() == OutageSchedule::published()
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
        tcp = tcp.tcp.toml(),
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
fn words(bursts: &OutageSchedule) -> String {
    let ms = |span: &Duration| format!("{}ms", span.as_millis());
    let lengths = bursts.lengths();
    let (first, gap) = (lengths[0], bursts.gap());
    if *bursts == OutageSchedule::published() {
        String::new()
    } else if *bursts == OutageSchedule::alike(first, PUBLISHED_GAP) {
        format!(" {}", ms(&first))
    } else {
        let lengths: Vec<String> = lengths.iter().map(ms).collect();
        format!(" {} every {}", lengths.join(" "), ms(&gap))
    }
}

/// All runs of a transport, a node, a bound, a kind of outages and a mode.
struct Group {
    tcp: Stack,
    node: &'static Node,
    bound: u64,
    bursts: OutageSchedule,
    mode: usize,
    runs: Vec<Arc<Outcome>>,
}

impl Group {
    /// A value of each run.
    fn values(&self, of: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        self.runs.iter().map(|run| of(run)).collect()
    }

    /// Published mean delay in seconds, and share of accepted frames.
    fn published(&self) -> (f64, f64) {
        let bound = BOUNDS.iter().position(|b| *b == self.bound).unwrap_or(0);
        self.node.table4[bound][published::column(self.mode)]
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

/// Runs of an entry at each chosen node.
struct Grid<'a> {
    entry: &'a Entry,
    bounds: &'a [u64],
    /// Lengths of outages to vary. If empty, the injector's.
    cuts_ms: &'a [u64],
    modes: &'a [usize],
}

impl Grid<'_> {
    /// With a bound of 4 s.
    fn of_figure<'a>(entry: &'a Entry, modes: &'a [usize]) -> Grid<'a> {
        Grid {
            entry,
            bounds: &[4],
            cuts_ms: &[],
            modes,
        }
    }

    /// With all bounds of the paper.
    fn of_table<'a>(entry: &'a Entry, modes: &'a [usize]) -> Grid<'a> {
        Grid {
            bounds: &BOUNDS,
            ..Grid::of_figure(entry, modes)
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
        let alike =
            |ms: &u64| OutageSchedule::alike(Duration::from_millis(*ms), options.bursts().gap());
        let bursts = if self.cuts_ms.is_empty() {
            vec![options.bursts()]
        } else {
            self.cuts_ms.iter().map(alike).collect()
        };
        let mut groups = Vec::new();
        for tcp in options.stacks(self.entry.compares_growth) {
            for node in NODES.iter().filter(|node| options.wants(node.name)) {
                for bound in self.bounds {
                    for bursts in &bursts {
                        groups.extend(self.modes.iter().map(|mode| Group {
                            tcp,
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

/// The group with the same conditions in another mode.
fn find<'a>(groups: &'a [Group], like: &Group, mode: usize) -> Option<&'a Group> {
    let same = |g: &&Group| {
        (g.tcp, g.node.name, g.bound, g.mode) == (like.tcp, like.node.name, like.bound, mode)
            && g.bursts == like.bursts
    };
    groups.iter().find(same)
}

/// Transports of `groups`, in order.
fn stacks(groups: &[Group]) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = groups.iter().map(|group| group.tcp).collect();
    stacks.dedup();
    stacks
}

/// Values of each run.
fn runs(groups: &[Group]) -> Table {
    let columns = RUN_VALUES.iter().map(|(name, _)| *name);
    let columns = ["tcp", "node", "d s", "outages", "mode", "seed"]
        .into_iter()
        .chain(columns);
    let rows = groups.iter().flat_map(|group| {
        group.runs.iter().map(|run| {
            let mut row: Vec<Cell> = vec![
                group.tcp.name().into(),
                group.node.name.into(),
                (group.bound as f64).into(),
                group.bursts.to_string().as_str().into(),
                MODES[group.mode].name.into(),
                (run.seed as f64).into(),
            ];
            row.extend(RUN_VALUES.iter().map(|(_, of)| Cell::from(of(run))));
            row
        })
    });
    Table {
        columns: columns.map(str::to_owned).collect(),
        rows: rows.collect(),
    }
}

/// A number of a run.
type Metric = fn(&Outcome) -> f64;

const RUN_VALUES: [(&str, Metric); 13] = [
    ("accepted", Outcome::accepted),
    ("of savable", Outcome::of_savable),
    ("of path's", Outcome::of_savable_by_path),
    ("mean delay s", Outcome::mean_delay),
    ("worst delay s", Outcome::worst_delay),
    ("frames not in time", Outcome::broken),
    ("frames missing", Outcome::missing),
    ("target bits", |o| o.bits_of_full().0),
    ("actual bits", |o| o.bits_of_full().1),
    ("bits kept of savable", Outcome::bits_kept),
    ("time s", Outcome::lasted),
    ("events", |o| o.record.delivered as f64),
    ("SNR Y dB", |o| o.mean_snr()[0]),
];

/// Duration of a run, unless longer outages extend it.
const LASTS: Duration = Duration::from_secs(130);
/// Time after the last outage and its longest back-off (the longest outage again) in which the
/// backlog drains.
const BEHIND: Duration = Duration::from_secs(80);
/// Duration of the paper's 750 frames. A later outage affects no frame.
pub const VIDEO: Duration = Duration::from_secs(75);
