//! The run folder: the common output format of simulated, emulated and live runs.
//!
//! A live run appends to its folder while it lasts, so the folder of a killed run is readable: a
//! truncated last line is ignored, a missing file counts as empty, and [`Run::notes`] reports both.
//! Emulated runs have the rows of their endpoints while they last, and are completed at their end.
//! Simulated runs are written at their end, under another name until they are complete.
//! Reports, plots and metrics read only this folder.
//!
//! `docs/run-folder.md` describes the files.

mod cells;
mod counts;
mod create_error;
pub mod expect;
mod links;
mod lock;
mod manifest;
pub mod metrics;
mod pictures;
mod reader;
mod rows;
mod session_rows;
mod staged;
mod writer;

pub use counts::{BIN, Bin, Count, Dummies, Totals};
pub use create_error::CreateError;
pub use expect::{ExpectError, Expectation};
pub use links::{Iter as LinkSamples, LinkLog};
pub use lock::FolderLock;
pub use manifest::moments::Moment;
pub use manifest::{
    CapacityStep, EndpointTiming, FORMAT, FlowInfo, FlowPath, LinkInfo, Manifest, Span, TOOL,
    Timing, World,
};
pub use metrics::conclusion::ExpectationResult;
pub use metrics::{Summary, summarise};
pub use pictures::{PictureKind, StoredPicture};
pub use reader::files::RunFile;
pub use reader::{FlowRun, LoadError, Run, RunReader};
pub use rows::{
    BinRow, DropCauses, EventRow, FrameKind, LinkSample, PacketOutcome, PacketRow, ReceivedFrame,
    SavableRow, SentFrame, ShownFrame, Side, TotalsRow,
};
pub use session_rows::{packet_row, received_row, sent_row};
pub use staged::StagedRun;
pub use writer::{CAPTURE, CONNECTION, RunWriter, WriteError};

#[cfg(test)]
mod tests;
