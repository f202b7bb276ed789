//! Interface to the program: encoders, runs on the kernel's TCP.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tidegate_live::driver::Interrupts;

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

/// Method of cutting the path of a video over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Injector {
    /// The link loses all packets, as in the simulator
    #[default]
    Link,
    /// The sender's host has a route to a blackhole device
    Route,
}
