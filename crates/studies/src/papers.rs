//! Figures and tables of papers, played again: ours beside the published.
//!
//! Each entry of [`ENTRIES`] makes a [`Figure`], which has the same shape whatever it shows.

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

/// How to play.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where.
    pub world: Arc<dyn World>,
    /// Seeds from one on.
    pub seeds: u64,
    /// Over which TCP, each once; over the entry's own if there is none.
    pub tcps: Vec<Tcp>,
    /// To the nodes whose names begin so; to all if there is none.
    pub nodes: Vec<String>,
    /// What makes the video; each entry's own unless told.
    pub encoder: Option<Encoder>,
    /// Longest time-out of the video's TCP, within 1 s and 120 s; the TCP's own unless told.
    pub rto_max: Option<Duration>,
    /// Whether its time-outs in a row are linear, over the TCPs of today; as each mode has it unless
    /// told.
    pub linear: Option<bool>,
    /// What limits the paths of both papers.
    pub bottleneck: Bottleneck,
    /// How the injector cuts the paths of the first paper; as published unless told.
    pub bursts: Option<Bursts>,
    /// Runs at the same time.
    pub threads: usize,
    /// What was played already by these entries.
    pub memory: Arc<Memory>,
}

impl Options {
    /// Keys of a scenario's `transport` over `tcp`, with a comma behind each.
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

    /// Whether paths and time-outs are as they are unless told.
    fn is_usual(&self) -> bool {
        self.bottleneck.is_usual() && self.linear.is_none() && self.rto_max.is_none()
    }

    /// Runs are worth their memory: they take as long as their video, or pictures.
    fn remembers(&self) -> bool {
        self.world.name().is_some() || self.encoder() != Encoder::Model
    }

    /// What makes the video, once an entry is played.
    fn encoder(&self) -> Encoder {
        self.encoder.unwrap_or_default()
    }

    /// The injector's.
    fn bursts(&self) -> Bursts {
        self.bursts.clone().unwrap_or_else(Bursts::published)
    }

    /// What was asked for, each once, or else `usual`.
    fn tcps_or(&self, usual: &[Tcp]) -> Vec<Tcp> {
        let asked = if self.tcps.is_empty() {
            usual
        } else {
            &self.tcps
        };
        let mut each = Vec::with_capacity(asked.len());
        for tcp in asked {
            if !each.contains(tcp) {
                each.push(*tcp);
            }
        }
        each
    }

    fn wants(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|asked| means(asked, node))
    }
}

/// Is told how much is done, in 0..=1.
type Progress<'a> = &'a (dyn Fn(f64) + Sync);

/// Plays an entry.
type Make = fn(&Entry, &Options, Progress<'_>) -> Result<Figure, PapersError>;

/// Something that can be played.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// As "itcp/fig9".
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// To whom it plays.
    nodes: Nodes,
    /// What makes its video unless told.
    encoder: Encoder,
    /// Over which TCP it plays unless told.
    tcps: &'static [Tcp],
    make: Make,
}

/// To whom an entry plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nodes {
    /// To those of the other paper.
    Abone,
    /// To those of the first paper.
    Itcp,
    /// To nobody: once, over a path of its own, with time-outs as they are.
    None,
}

/// Whether a node is meant by what was asked for, which is how its name begins.
pub fn means(asked: &str, node: &str) -> bool {
    let begins = node.get(..asked.len());
    begins.is_some_and(|begins| begins.eq_ignore_ascii_case(asked))
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
    /// Whether it plays to nodes, several times: of one that does not, `seeds`, `nodes`, `rto_max` and
    /// `bottleneck` of [`Options`] change nothing.
    pub fn has_nodes(&self) -> bool {
        self.nodes != Nodes::None
    }

    /// Whether its path is cut: an injector matters to it.
    pub fn has_cuts(&self) -> bool {
        self.nodes != Nodes::Abone
    }

    /// Whether its cuts may be others than published: `bursts` of [`Options`] counts. Only the gap
    /// does where the [lengths are its own](Self::longest_cut).
    pub fn takes_bursts(&self) -> bool {
        self.nodes == Nodes::Itcp
    }

    /// The longest cut of one that varies their lengths itself.
    pub fn longest_cut(&self) -> Option<Duration> {
        (self.name == itcp::CUTS.name).then(itcp::longest_cut)
    }

    /// The nodes that it plays to.
    pub fn node_names(&self) -> Vec<&'static str> {
        self.nodes.names()
    }

    /// Over which TCP it plays unless told.
    pub fn tcps(&self) -> &'static [Tcp] {
        self.tcps
    }

    /// How many runs of each kind were published, if that was told.
    pub fn published_runs(&self) -> Option<u64> {
        (self.nodes == Nodes::Abone).then_some(abone::RUNS)
    }

    /// Plays and measures. `progress` is told how much is done, in 0..=1.
    ///
    /// # Errors
    /// When a run fails; the message says which.
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

/// Removes claims that divide by zero, as of runs without an event, and notes that.
fn set_aside(figure: &mut Figure) {
    let claims = core::mem::take(&mut figure.claims);
    let (finite, idle): (Vec<_>, Vec<_>) = claims
        .into_iter()
        .partition(|c| c.ours.is_none_or(f64::is_finite));
    figure.claims = finite;
    let notes = idle.iter().map(|claim| {
        format!(
            "Nothing can be said of this, as what it is compared with is zero: {}.",
            claim.text
        )
    });
    figure.notes.extend(notes);
}

/// Removes published values from the figure of an experiment that was not published.
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

/// The heading of columns with published values.
const PUBLISHED: &str = "paper";

/// All that can be played.
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
