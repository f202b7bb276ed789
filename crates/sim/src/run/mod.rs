//! The run folder: what a simulated, an emulated and a live run leave behind, all alike.
//!
//! The folder of a live run only grows while the run lasts, so a run that was killed leaves one
//! that can still be read: a last line that was cut off is left out, a file that is missing is
//! empty, and [`Run::notes`] says so. Simulated and emulated runs are written when they are over.
//! Reports, plots and metrics read nothing but this folder.
//!
//! `docs/run-folder.md` describes the files for those who read them with other tools.

mod cells;
mod conclusion;
pub mod expect;
mod links;
mod manifest;
pub mod metrics;
mod reader;
mod rows;
mod writer;

pub use conclusion::Held;
pub use expect::{ExpectError, Expectation};
pub use links::{Iter as LinkSamples, LinkLog};
pub use manifest::{
    CapacityStep, FORMAT, FlowInfo, LinkInfo, Manifest, Span, TOOL, Timing, Way, World,
};
pub use metrics::{Summary, summarise};
pub use reader::{FlowRun, LoadError, Run, RunReader};
pub use rows::{
    BinRow, DropCauses, EventRow, FrameKind, LinkSample, PacketOutcome, PacketRow, ReceivedFrame,
    SavableRow, SentFrame, ShownFrame, Side, TotalsRow,
};
pub use writer::{CAPTURE, CONNECTION, CreateError, RunWriter, WriteError};

#[cfg(test)]
mod tests;
