//! The run folder: the common output format of simulated, emulated and live runs.
//!
//! A live run appends to its folder while it lasts, so the folder of a killed run is readable: a
//! truncated last line is ignored, a missing file counts as empty, and [`Run::notes`] reports both.
//! Simulated and emulated runs are written at their end.
//! Reports, plots and metrics read only this folder.
//!
//! `docs/run-folder.md` describes the files.

mod cells;
mod conclusion;
pub mod expect;
mod files;
mod links;
mod manifest;
pub mod metrics;
mod moments;
mod pictures;
mod reader;
mod rows;
mod writer;

pub use conclusion::ExpectationResult;
pub use expect::{ExpectError, Expectation};
pub use files::RunFile;
pub use links::{Iter as LinkSamples, LinkLog};
pub use manifest::{
    CapacityStep, FORMAT, FlowInfo, FlowPath, LinkInfo, Manifest, Span, TOOL, Timing, World,
};
pub use metrics::{Summary, summarise};
pub use moments::Moment;
pub use pictures::{PictureKind, StoredPicture};
pub use reader::{FlowRun, LoadError, Run, RunReader};
pub use rows::{
    BinRow, DropCauses, EventRow, FrameKind, LinkSample, PacketOutcome, PacketRow, ReceivedFrame,
    SavableRow, SentFrame, ShownFrame, Side, TotalsRow,
};
pub use writer::{CAPTURE, CONNECTION, CreateError, RunWriter, WriteError};

#[cfg(test)]
mod tests;
