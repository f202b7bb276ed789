//! Clock, signals and randomness of a live session.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use tidegate_core::random::Seed;
use tidegate_core::wire::ntp::Ntp;
use tidegate_live::clock::Clock;
use tidegate_live::driver::{Interrupts, RunLimits, StopFlag};

/// Clock and signals of a live session.
#[derive(Debug)]
pub struct LiveContext {
    /// Clock of the session.
    pub clock: Clock,
    /// Wall-clock time at the clock's zero.
    pub epoch: Ntp,
    /// Wakes and stops the driver.
    pub stop: StopFlag,
    /// Counts Ctrl-C.
    pub interrupts: Interrupts,
}

impl LiveContext {
    /// Starts the clock and installs the handler of Ctrl-C.
    ///
    /// # Errors
    /// The system provides no descriptor or rejects the signal handler.
    pub fn enter() -> Result<Self> {
        let stop = StopFlag::new().context("cannot create the event that wakes the driver")?;
        let interrupts =
            Interrupts::install(&stop).context("cannot install the handler of Ctrl-C")?;
        Ok(Self {
            clock: Clock::start(),
            epoch: Ntp::from_unix(since_1970()),
            stop,
            interrupts,
        })
    }

    /// Restarts the clock, for another session of this process.
    pub fn renew(&mut self) {
        self.clock = Clock::start();
        self.epoch = Ntp::from_unix(since_1970());
    }

    /// Conditions of a connection that runs until it ends or is interrupted.
    pub fn conditions(&self) -> RunLimits {
        RunLimits {
            clock: self.clock,
            until: None,
            stop: self.stop.clone(),
        }
    }
}

/// Unpredictable seed, for SSRCs and initial sequence numbers (RFC 3550 section 5.1).
pub fn secret_seed() -> Seed {
    // The keys of each `RandomState` come from the system's randomness.
    Seed(RandomState::new().build_hasher().finish())
}

/// Time since 1970-01-01 00:00 UTC by the system's clock.
pub fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
