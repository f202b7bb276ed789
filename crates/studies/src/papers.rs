//! Reproduced figures and tables of papers, with measured values beside the published ones.
//!
//! Each entry of [`ENTRIES`] produces a [`Figure`]. All figures have the same structure.

mod abone;
mod bottleneck;
mod cp;
mod deviations;
mod itcp;
mod lab;
mod law;
mod outages;
mod outcome;
mod rcs;
mod runs;
mod start;
mod sweep;
pub mod verb;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::sync::Arc;

use runs::Stack;
use tidegate_report::claims::{Claim, Distance, Pair, Tolerance};
use tidegate_report::plot::{Cell, Figure, PUBLISHED as PUBLISHED_SERIES, Point, Series, Table};

pub use bottleneck::{Bottleneck, BottleneckError};
pub use itcp::VIDEO as ITCP_VIDEO;
pub use outages::{OutageSchedule, OutageScheduleError};
pub use runs::{
    Encoder, Job, NoPictures, PapersError, PictureSource, RunCache, Simulator, Tcp, Testbed,
};

/// Conditions of the runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Simulator or lab.
    pub world: Arc<dyn Testbed>,
    /// Number of runs of each kind; the seeds are 1 to this number.
    pub seeds: u64,
    /// Transports; if empty, those of the entry.
    pub tcps: Vec<Tcp>,
    /// Beginnings of the names of the nodes; if empty, all nodes.
    pub nodes: Vec<String>,
    /// Encoder of the video; if `None`, that of the entry.
    pub encoder: Option<Encoder>,
    /// Maximum retransmission timeout of the video's TCP, 1 s to 120 s; if `None`, that of the TCP.
    pub rto_max: Option<Duration>,
    /// Whether consecutive timeouts of the video's TCP are linear, in every mode. If `None` they
    /// double, and entries that compare both growths play both in the simulator.
    pub linear: Option<bool>,
    /// Bottleneck of the paths of both papers.
    pub bottleneck: Bottleneck,
    /// Outages of the first paper's paths; if `None`, the published ones.
    pub bursts: Option<OutageSchedule>,
    /// Number of concurrent runs.
    pub threads: usize,
    /// Results of earlier entries.
    pub memory: Arc<RunCache>,
}

impl Options {
    /// Keys of a scenario's `transport`, each followed by a comma.
    fn rto_keys(&self, stack: Stack) -> String {
        let longest = self.rto_max.map_or(String::new(), |longest| {
            format!("rto_max = \"{}ms\", ", longest.as_millis())
        });
        let growth = if stack.is_linear {
            "rto_backoff = \"linear\", "
        } else {
            ""
        };
        longest + growth
    }

    /// Transports with the growth of their timeouts. `compare` requests both growths, unless the
    /// user has chosen one. In the lab, where runs take real time, the default growth is played.
    fn stacks(&self, compare: bool) -> Vec<Stack> {
        let growths: &[bool] = match self.linear {
            Some(true) => &[true],
            None if compare && !self.is_lab() => &[false, true],
            Some(false) | None => &[false],
        };
        let mut stacks: Vec<Stack> = Vec::new();
        for &tcp in &self.tcps {
            for &linear in growths {
                let is_linear = linear && tcp != Tcp::Bsd;
                let stack = Stack { tcp, is_linear };
                if !stacks.contains(&stack) {
                    stacks.push(stack);
                }
            }
        }
        stacks
    }

    fn is_lab(&self) -> bool {
        self.world.name().is_some()
    }

    /// Whether path and timeouts are the defaults.
    fn is_usual(&self) -> bool {
        self.bottleneck.is_usual() && self.linear.is_none() && self.rto_max.is_none()
    }

    /// Whether results are kept in memory. The runs are expensive: they take real time, or encode
    /// pictures.
    fn remembers(&self) -> bool {
        self.is_lab() || self.encoder() != Encoder::Model
    }

    /// Encoder of the video, once an entry is played.
    fn encoder(&self) -> Encoder {
        self.encoder.unwrap_or_default()
    }

    /// Outages of the path.
    fn bursts(&self) -> OutageSchedule {
        self.bursts
            .clone()
            .unwrap_or_else(OutageSchedule::published)
    }

    /// The chosen transports without repetitions, or `usual`.
    fn tcps_or(&self, usual: &[Tcp]) -> Vec<Tcp> {
        let chosen = if self.tcps.is_empty() {
            usual
        } else {
            &self.tcps
        };
        let mut each = Vec::with_capacity(chosen.len());
        for tcp in chosen {
            if !each.contains(tcp) {
                each.push(*tcp);
            }
        }
        each
    }

    fn wants(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|prefix| has_prefix(prefix, node))
    }
}

/// Callback that receives the completed fraction, 0 to 1.
type Progress<'a> = &'a (dyn Fn(f64) + Sync);

/// Runs an entry.
type Make = fn(&Entry, &Options, Progress<'_>) -> Result<Figure, PapersError>;

/// A figure or table that can be reproduced.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name, such as "itcp/fig9".
    pub name: &'static str,
    /// Subject of the figure or table.
    pub about: &'static str,
    /// Reference to the publication.
    pub source: &'static str,
    /// Receiving nodes.
    nodes: Nodes,
    /// Default encoder.
    encoder: Encoder,
    /// Transports, unless the user chooses others.
    tcps: &'static [Tcp],
    /// Delay bounds, for the caption; empty without video.
    bounds: &'static str,
    /// Whether both growths of timeouts are compared.
    compares_growth: bool,
    make: Make,
}

/// Receiving nodes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nodes {
    /// The nodes of the second paper.
    Abone,
    /// The nodes of the first paper.
    Itcp,
    /// None: a single run over the entry's own path, with default time-outs.
    None,
    /// None: many flows over the entry's own path, with every seed.
    Flows,
    /// The same, in the simulator or in the lab.
    LabFlows,
}

/// Whether the name of a node begins with the requested prefix, ignoring ASCII case.
pub fn has_prefix(prefix: &str, node: &str) -> bool {
    let begins = node.get(..prefix.len());
    begins.is_some_and(|begins| begins.eq_ignore_ascii_case(prefix))
}

impl Nodes {
    fn names(self) -> Vec<&'static str> {
        match self {
            Self::Abone => abone::NODES.map(|node| node.name).to_vec(),
            Self::Itcp => itcp::node_names().to_vec(),
            Self::None | Self::Flows | Self::LabFlows => Vec::new(),
        }
    }
}

impl Entry {
    /// Whether the entry has several runs to nodes. Otherwise `seeds`, `nodes`, `rto_max` and
    /// `bottleneck` of [`Options`] have no effect.
    pub fn has_nodes(&self) -> bool {
        !matches!(self.nodes, Nodes::None | Nodes::Flows | Nodes::LabFlows)
    }

    /// Whether the entry is played with several seeds.
    pub fn has_seeds(&self) -> bool {
        self.nodes != Nodes::None
    }

    /// Whether the entry can be played in the lab.
    pub fn has_lab(&self) -> bool {
        self.nodes != Nodes::Flows
    }

    /// Whether the runs have many flows instead of one video.
    fn has_flows(&self) -> bool {
        matches!(self.nodes, Nodes::Flows | Nodes::LabFlows)
    }

    /// Concurrent lab runs of many flows per core: those of RCS have up to 2,000 packets per second,
    /// those beside aggregation points up to 8,000.
    fn labs_per_core(&self) -> usize {
        if self.name.starts_with("cp/") { 1 } else { 3 }
    }

    /// Whether the injector cuts the entry's path.
    pub fn has_outages(&self) -> bool {
        self.nodes != Nodes::Abone && !self.tcps.is_empty()
    }

    /// Whether `bursts` of [`Options`] changes the entry's outages. If the entry [varies their
    /// lengths](Self::longest_cut), only the gap applies.
    pub fn accepts_bursts(&self) -> bool {
        self.nodes == Nodes::Itcp
    }

    /// The longest outage of an entry that varies the lengths itself.
    pub fn longest_cut(&self) -> Option<Duration> {
        (self.name == itcp::CUTS.name).then(itcp::longest_cut)
    }

    /// Names of the receiving nodes.
    pub fn node_names(&self) -> Vec<&'static str> {
        self.nodes.names()
    }

    /// Default TCPs.
    pub fn tcps(&self) -> &'static [Tcp] {
        self.tcps
    }

    /// Number of published runs of each kind, if the paper states it.
    pub fn published_runs(&self) -> Option<u64> {
        if self.nodes == Nodes::Abone {
            return Some(abone::RUNS);
        }
        cp::published_runs(self.name)
    }

    /// Runs the entry and measures. `progress` receives the completed fraction, 0 to 1.
    ///
    /// # Errors
    /// A run fails; the message names it.
    pub fn play(
        &self,
        options: &Options,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<Figure, PapersError> {
        let nodes = self.nodes.names();
        if self.has_nodes() && !nodes.iter().any(|node| options.wants(node)) {
            return Err(PapersError::NoNode(options.nodes.clone()));
        }
        let own = Options {
            encoder: Some(options.encoder.unwrap_or(self.encoder)),
            tcps: options.tcps_or(self.tcps),
            ..options.clone()
        };
        let mut figure = (self.make)(self, &own, progress)?;
        figure.caption = self.caption(&own);
        if let Some(encoder) = options.encoder.filter(|_| self.has_nodes()) {
            figure.source = format!("{}; video by {}", figure.source, encoder.name());
        }
        if let Some(world) = options.world.name().filter(|_| self.has_lab()) {
            figure.source = format!("{}; played on {world}", figure.source);
        }
        if let Some(longest) = options.rto_max.filter(|_| self.has_nodes()) {
            let seconds = longest.as_secs_f64();
            figure.source = format!("{}; no timeout longer than {seconds} s", figure.source);
        }
        let backoff = match options.linear.filter(|_| self.has_nodes()) {
            Some(true) => "; linear timeouts in all modes, except over bsd",
            Some(false) => "; timeouts double in all modes",
            None => "",
        };
        figure.source += backoff;
        let bottleneck = options.bottleneck;
        if self.has_nodes() && !bottleneck.is_usual() {
            figure.source = format!("{}; over {bottleneck}", figure.source);
        }
        let bursts = options.bursts.as_ref().filter(|_| self.accepts_bursts());
        let others = bursts.filter(|bursts| **bursts != OutageSchedule::published());
        if let Some(bursts) = others.filter(|_| self.longest_cut().is_none()) {
            figure.source = format!("{}; cut for {bursts}", figure.source);
            withhold(&mut figure);
        }
        let claims = figure.distances.iter().map(Distance::claim);
        figure.claims.extend(claims);
        Ok(figure)
    }

    /// Delay bound, number of runs, transports and encoder.
    fn caption(&self, options: &Options) -> String {
        let names = options.stacks(self.compares_growth);
        let names: Vec<&str> = names.into_iter().map(Stack::name).collect();
        let over = format!("over {}", names.join(", "));
        if self.has_flows() {
            return match options.seeds {
                1 => "seed 1".to_owned(),
                seeds => format!("seeds 1 to {seeds}"),
            };
        }
        if self.tcps.is_empty() {
            return self.bounds.to_owned();
        }
        if !self.has_nodes() {
            return over;
        }
        let runs = match (options.seeds, options.is_lab()) {
            (1, false) => "seed 1".to_owned(),
            (seeds, false) => format!("seeds 1 to {seeds}"),
            (1, true) => "1 run".to_owned(),
            (runs, true) => format!("{runs} runs"),
        };
        let video = format!("encoder {}", options.encoder().name());
        let parts = [self.bounds, &runs, &over, &video];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("; ")
    }

    fn figure(&self) -> Figure {
        Figure {
            name: self.name.to_owned(),
            source: self.source.to_owned(),
            ..Figure::default()
        }
    }
}

/// Removes published values from the figure of an experiment that was not published.
fn withhold(figure: &mut Figure) {
    figure.distances.clear();
    figure
        .series
        .retain(|series| !series.name.ends_with(PUBLISHED_SERIES));
    for claim in &mut figure.claims {
        claim.published = None;
    }
    if let Some(table) = &mut figure.table {
        let kept: Vec<bool> = table.columns.iter().map(|c| c != PUBLISHED).collect();
        for row in &mut table.rows {
            let mut kept = kept.iter();
            row.retain(|_| kept.next().copied().unwrap_or(true));
        }
        table.columns.retain(|column| column != PUBLISHED);
    }
}

/// Heading of columns with published values.
const PUBLISHED: &str = "paper";

/// All entries.
pub const ENTRIES: &[Entry] = &[
    itcp::TABLE1,
    itcp::TABLE2,
    itcp::TABLE3,
    itcp::FIG3,
    itcp::FIG5,
    itcp::FIG9,
    itcp::FIG10,
    itcp::FIG11,
    itcp::FIG12,
    itcp::TABLE4,
    itcp::TABLE5,
    itcp::TABLE6,
    itcp::CUTS,
    abone::TABLE5,
    abone::TABLE6,
    abone::FIG6,
    abone::FIG7,
    abone::FIG8,
    abone::FIG9,
    abone::FIG10,
    rcs::FIG7,
    rcs::FIG8,
    rcs::FIG9,
    rcs::FIG12,
    rcs::FIG14,
    rcs::FIG16,
    rcs::FIG17A,
    rcs::FIG17B,
    rcs::FIG17C,
    rcs::FIG17D,
    rcs::FIG18,
    rcs::FIG19,
    rcs::SHARES,
    rcs::FIG20,
    rcs::BESIDE_TCP,
    rcs::FIG21A,
    rcs::FIG21B,
    rcs::FIG21C,
    rcs::FIG22A,
    rcs::FIG22B,
    rcs::LOWER_EFFORT,
    start::FIG3,
    cp::FIG5,
    cp::FIG6,
    cp::FIG7,
    cp::FIG10,
    cp::FIG12,
    cp::FIG13,
    cp::FIG14,
    cp::FIG15,
    cp::FIG16,
    cp::FIG17,
    cp::FIG18,
    cp::FIG19,
    cp::FIG20,
];
