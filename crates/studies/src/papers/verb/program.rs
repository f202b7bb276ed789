//! Interface to the program: encoders, runs on the kernel's TCP, senders.

use std::any::Any;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tidegate_console::context::LiveContext;
use tidegate_core::units::Time;
use tidegate_live::driver::Interrupts;
use tidegate_live::tcp::SenderEnd;

use crate::papers::{PictureSource, Testbed};

/// The parts of the program that this crate does not link to.
pub trait Program {
    /// Encoders of a generated scene.
    fn pictures(&self) -> Arc<dyn PictureSource>;

    /// Runs over the kernel's TCP in network namespaces; run folders go to `out`. To be called
    /// before the process has threads.
    ///
    /// # Errors
    /// The system has no namespaces for this process, or no events of kernel TCP.
    fn lab(
        &self,
        out: PathBuf,
        injector: Injector,
        interrupts: Arc<Interrupts>,
    ) -> Result<Arc<dyn Lab>>;

    /// # Errors
    /// The kernel cannot limit retransmission time-outs.
    fn check_rto_max(&self, longest: Duration) -> Result<()>;

    /// Parses arguments of `tidegate send --transport tcp`.
    ///
    /// # Errors
    /// Names the argument that is wrong.
    fn sender(&self, arguments: Vec<OsString>) -> Result<Box<dyn Sender>>;
}

/// Runs in real time.
pub trait Lab: Testbed {
    /// Whether a figure can be made of the runs so far.
    ///
    /// # Errors
    /// All of them failed.
    fn has_runs(&self) -> Result<bool>;

    /// Remarks for a figure made of the runs so far.
    fn notes(&self) -> Vec<String>;
}

/// One stream over TCP to one player.
pub trait Sender {
    /// Checks that this system supports the options. The result must be kept until the end of the
    /// last stream.
    ///
    /// # Errors
    /// Names the option that is not supported, and the alternatives.
    fn ready(&self) -> Result<Box<dyn Any>>;

    /// Frames per second as an argument, if they were given.
    fn fps(&self) -> Option<String>;

    /// Connects and sends until the end of the video, Ctrl-C, or `until`.
    ///
    /// # Errors
    /// The player does not listen, or the video source cannot be read.
    fn play(&self, context: &LiveContext, until: Time) -> Result<Streamed>;
}

/// Result of a stream.
#[derive(Debug)]
pub struct Streamed {
    /// Number of rate changes in response to an event.
    pub answers: usize,
    /// End of the stream.
    pub ended: Result<SenderEnd>,
}

/// Method of cutting the path of a video over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Injector {
    /// The link loses all packets, as in the simulator
    #[default]
    Link,
    /// The sender's host has a route to a blackhole device
    Route,
}
