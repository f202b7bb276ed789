//! Figures and tables of papers, played again: ours beside the published.
//!
//! Each entry of [`ENTRIES`] makes a [`Figure`], which has the same shape whatever it shows.

mod abone;
mod bottleneck;
mod bursts;
mod differs;
mod itcp;
mod outcome;
mod stage;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::sync::Arc;

use serde::Serialize;

pub use bottleneck::{Bottleneck, BottleneckFault};
pub use bursts::{Bursts, BurstsFault};
pub use itcp::VIDEO as ITCP_VIDEO;
pub use stage::{Encoder, Job, Memory, NoPictures, PapersError, Pictures, Simulator, Tcp, World};

/// A figure or a table, as numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// As on the command line.
    pub name: String,
    /// Where it was published.
    pub source: String,
    /// What is drawn.
    pub series: Vec<Series>,
    /// What is printed.
    pub table: Option<Table>,
    /// What the paper says, and whether it is so here.
    pub claims: Vec<Claim>,
    /// What was assumed, and why ours differs where it does.
    pub notes: Vec<String>,
}

/// A line or a cloud of a figure. Of a name "panel: line" the part before the colon says where it
/// is drawn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Unique in its figure.
    pub name: String,
    /// Of `x`.
    pub x_unit: String,
    /// Of `y`.
    pub y_unit: String,
    /// In order of `x` for a line.
    pub points: Vec<Point>,
}

/// One value, of one run or over several.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// The mean.
    pub y: f64,
    /// The least and the largest.
    pub lo: f64,
    /// See `lo`.
    pub hi: f64,
    /// Over how many runs.
    pub n: usize,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// One cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A word.
    Text(String),
    /// A number.
    Number(f64),
    /// There is none.
    Empty,
}

/// A statement of the paper, or one of ours about the same thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// In words.
    pub text: String,
    /// The published number, if there is one.
    pub published: Option<f64>,
    /// Ours.
    pub ours: Option<f64>,
    /// Whether it is so here.
    pub holds: bool,
}

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
        figure.set_aside();
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
            figure.withhold();
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

impl Figure {
    /// Takes out the claims that divide by nothing, as of runs without an event, and says so.
    fn set_aside(&mut self) {
        let claims = core::mem::take(&mut self.claims);
        let (told, idle): (Vec<_>, Vec<_>) = claims
            .into_iter()
            .partition(|c| c.ours.is_none_or(f64::is_finite));
        self.claims = told;
        let notes = idle.iter().map(|claim| {
            format!(
                "Nothing can be said of this, as what it is compared with is zero: {}.",
                claim.text
            )
        });
        self.notes.extend(notes);
    }

    /// Takes out what was published, of an experiment that nobody has published.
    fn withhold(&mut self) {
        for claim in &mut self.claims {
            claim.published = None;
        }
        if let Some(table) = &mut self.table {
            let kept: Vec<bool> = table.columns.iter().map(|c| c != PUBLISHED).collect();
            for row in &mut table.rows {
                let mut kept = kept.iter();
                row.retain(|_| kept.next().copied().unwrap_or(true));
            }
            table.columns.retain(|column| column != PUBLISHED);
        }
    }
}

impl Point {
    /// Mean, least and largest of `values` at `x`; none if there are none.
    fn over(x: f64, values: &[f64]) -> Option<Self> {
        let n = values.len();
        let lo = values.iter().copied().reduce(f64::min)?;
        let hi = values.iter().copied().reduce(f64::max)?;
        let y = values.iter().sum::<f64>() / n as f64;
        Some(Self { x, y, lo, hi, n })
    }

    /// One value at `x`.
    fn single(x: f64, y: f64) -> Self {
        Self {
            x,
            y,
            lo: y,
            hi: y,
            n: 1,
        }
    }
}

impl Series {
    fn new(name: String, (x_unit, y_unit): (&str, &str), points: Vec<Point>) -> Self {
        Self {
            name,
            x_unit: x_unit.to_owned(),
            y_unit: y_unit.to_owned(),
            points,
        }
    }
}

impl Claim {
    fn new(text: String, published: Option<f64>, ours: f64, holds: bool) -> Self {
        Self {
            text,
            published,
            ours: Some(ours),
            holds,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<f64> for Cell {
    /// Rounded to what can be told apart.
    fn from(number: f64) -> Self {
        Self::Number((number * 1e4).round() / 1e4)
    }
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::Empty, Self::from)
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
