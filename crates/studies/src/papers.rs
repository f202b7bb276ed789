//! Reproduced figures and tables of papers, with measured values beside the published ones.
//!
//! Each entry of [`ENTRIES`] produces a [`Figure`]. All figures have the same structure.

mod abone;
mod bottleneck;
mod bursts;
mod differs;
mod itcp;
mod outcome;
mod runs;
pub mod verb;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::sync::Arc;

use tidegate_report::plot::{Cell, Claim, Figure, Point, Series, Table};

pub use bottleneck::{Bottleneck, BottleneckFault};
pub use bursts::{Bursts, BurstsFault};
pub use itcp::VIDEO as ITCP_VIDEO;
pub use runs::{Encoder, Job, Memory, NoPictures, PapersError, Pictures, Simulator, Tcp, World};

/// Options of a reproduction.
#[derive(Clone, Debug)]
pub struct Options {
    /// Testbed: the simulator, or the kernel's TCP in real time.
    pub world: Arc<dyn World>,
    /// Number of seeds; the first seed is 1.
    pub seeds: u64,
    /// TCP implementations, without duplicates. If empty, those of the entry.
    pub tcps: Vec<Tcp>,
    /// Prefixes of the names of receiving nodes. If empty, all nodes.
    pub nodes: Vec<String>,
    /// Video encoder [default: the entry's].
    pub encoder: Option<Encoder>,
    /// Maximum RTO of the video's TCP, from 1 s to 120 s [default: the TCP's].
    pub rto_max: Option<Duration>,
    /// Whether consecutive time-outs back off linearly instead of exponentially. True has no effect
    /// on [`Tcp::Bsd`] [default: the mode's].
    pub linear: Option<bool>,
    /// Bottleneck of the paths of both papers.
    pub bottleneck: Bottleneck,
    /// Lengths and gaps of the injector's outages on the paths of the first paper [default: as
    /// published].
    pub bursts: Option<Bursts>,
    /// Number of concurrent runs.
    pub threads: usize,
    /// Cached results of earlier runs, shared between entries.
    pub memory: Arc<Memory>,
}

impl Options {
    /// RTO keys of a scenario's `transport` table for `tcp`, each followed by a comma.
    fn rto_keys(&self, tcp: Tcp) -> String {
        let longest = self.rto_max.map_or(String::new(), |longest| {
            format!("rto_max = \"{}ms\", ", longest.as_millis())
        });
        let backoff = match self.linear {
            Some(true) if tcp != Tcp::Bsd => "rto_backoff = \"linear\", ",
            Some(false) => "rto_backoff = \"exponential\", ",
            _ => "",
        };
        longest + backoff
    }

    /// Whether bottleneck and time-outs are the defaults.
    fn is_usual(&self) -> bool {
        self.bottleneck.is_usual() && self.linear.is_none() && self.rto_max.is_none()
    }

    /// Whether results are cached. Runs in real time take as long as their video, and real
    /// encoders are slow.
    fn remembers(&self) -> bool {
        self.world.name().is_some() || self.encoder() != Encoder::Model
    }

    /// The encoder of a run.
    fn encoder(&self) -> Encoder {
        self.encoder.unwrap_or_default()
    }

    /// The outages of the injector.
    fn bursts(&self) -> Bursts {
        self.bursts.clone().unwrap_or_else(Bursts::published)
    }

    /// The requested TCPs without duplicates, or `usual` if none is requested.
    fn tcps_or(&self, usual: &[Tcp]) -> Vec<Tcp> {
        let tcps = if self.tcps.is_empty() {
            usual
        } else {
            &self.tcps
        };
        let mut each = Vec::with_capacity(tcps.len());
        for tcp in tcps {
            if !each.contains(tcp) {
                each.push(*tcp);
            }
        }
        each
    }

    fn wants(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|prefix| means(prefix, node))
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
    /// Default TCPs.
    tcps: &'static [Tcp],
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
}

/// Whether the name of a node begins with the requested prefix, ignoring ASCII case.
pub fn means(prefix: &str, node: &str) -> bool {
    let begins = node.get(..prefix.len());
    begins.is_some_and(|begins| begins.eq_ignore_ascii_case(prefix))
}

impl Nodes {
    fn names(self) -> Vec<&'static str> {
        match self {
            Self::Abone => abone::NODES.map(|node| node.name).to_vec(),
            Self::Itcp => itcp::node_names().to_vec(),
            Self::None => Vec::new(),
        }
    }
}

impl Entry {
    /// Whether the entry has several runs to nodes. Otherwise `seeds`, `nodes`, `rto_max` and
    /// `bottleneck` of [`Options`] have no effect.
    pub fn has_nodes(&self) -> bool {
        self.nodes != Nodes::None
    }

    /// Whether the injector cuts the entry's path.
    pub fn has_cuts(&self) -> bool {
        self.nodes != Nodes::Abone
    }

    /// Whether `bursts` of [`Options`] changes the entry's outages. If the entry [varies their
    /// lengths](Self::longest_cut), only the gap applies.
    pub fn takes_bursts(&self) -> bool {
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
        (self.nodes == Nodes::Abone).then_some(abone::RUNS)
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
        set_aside(&mut figure);
        if let Some(encoder) = options.encoder.filter(|_| self.has_nodes()) {
            figure.source = format!("{}; video by {}", figure.source, encoder.name());
        }
        if let Some(world) = options.world.name() {
            figure.source = format!("{}; played on {world}", figure.source);
        }
        if let Some(longest) = options.rto_max.filter(|_| self.has_nodes()) {
            let seconds = longest.as_secs_f64();
            figure.source = format!("{}; no time-out longer than {seconds} s", figure.source);
        }
        let backoff = match options.linear.filter(|_| self.has_nodes()) {
            Some(true) => "; linear time-outs in all modes, but for bsd",
            Some(false) => "; time-outs double in all modes",
            None => "",
        };
        figure.source += backoff;
        let bottleneck = options.bottleneck;
        if self.has_nodes() && !bottleneck.is_usual() {
            figure.source = format!("{}; over {bottleneck}", figure.source);
        }
        let bursts = options.bursts.as_ref().filter(|_| self.takes_bursts());
        let others = bursts.filter(|bursts| **bursts != Bursts::published());
        if let Some(bursts) = others.filter(|_| self.longest_cut().is_none()) {
            figure.source = format!("{}; cut for {bursts}", figure.source);
            withhold(&mut figure);
        }
        Ok(figure)
    }

    fn figure(&self) -> Figure {
        Figure {
            name: self.name.to_owned(),
            source: self.source.to_owned(),
            series: Vec::new(),
            table: None,
            claims: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Moves claims that divide by zero, such as those of runs without an event, to the notes.
fn set_aside(figure: &mut Figure) {
    let claims = core::mem::take(&mut figure.claims);
    let (finite, idle): (Vec<_>, Vec<_>) = claims
        .into_iter()
        .partition(|c| c.ours.is_none_or(f64::is_finite));
    figure.claims = finite;
    let notes = idle.iter().map(|claim| {
        format!(
            "Not evaluated, because the reference value is zero: {}.",
            claim.text
        )
    });
    figure.notes.extend(notes);
}

/// Removes the published values if the experiment differs from the published one.
fn withhold(figure: &mut Figure) {
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
    itcp::FIG3,
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
];
