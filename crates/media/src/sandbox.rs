//! Decoder in a process of its own, for untrusted streams.
//!
//! FFmpeg's decoders are large, and parse bytes of untrusted senders. `Decoder`
//! can run them in a child process that has no files and no network: it may read and write one
//! socket, write one file in memory, and allocate a bounded amount of memory. Other system calls
//! end it. When it ends, or answers late or invalidly, one picture is lost, and another process
//! starts.
//!
//! The process is a program that calls `run_child` first in `main`, usually the same one. It is
//! executed again rather than forked, because a fork of a process with threads may use no locks, and
//! so that it has no copy of the memory of its parent.

#[cfg(feature = "ffmpeg")]
mod child;
#[cfg(feature = "ffmpeg")]
mod filter;
#[cfg(feature = "ffmpeg")]
mod process;
pub mod protocol;

#[cfg(feature = "ffmpeg")]
pub use child::run_child;
#[cfg(feature = "ffmpeg")]
pub(crate) use process::DecoderProcess;
#[cfg(feature = "ffmpeg")]
pub use process::{Isolation, ProcessFailure, this_program};
