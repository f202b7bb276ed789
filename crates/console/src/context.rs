//! Clock, signals and randomness of a live session.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use tidegate_core::random::Seed;
use tidegate_core::wire::ntp::Ntp;
use tidegate_live::clock::Clock;
use tidegate_live::driver::{Conditions, Interrupts, StopFlag};

/// The world around a live session.
#[derive(Debug)]
pub struct LiveContext {
    /// Time of the session.
    pub clock: Clock,
    /// Wall-clock time at the clock's zero.
    pub epoch: Ntp,
    /// Wakes and stops the driver.
    pub stop: StopFlag,
    /// Counts Ctrl-C.
    pub interrupts: Interrupts,
}

impl LiveContext {
    /// Starts the clock and takes Ctrl-C.
    ///
    /// # Errors
    /// The system has no descriptor or no signal handler for us.
    pub fn enter() -> Result<Self> {
        let stop = StopFlag::new().context("no event to wake the driver by")?;
        let interrupts = Interrupts::catch(&stop).context("Ctrl-C cannot be caught")?;
        Ok(Self {
            clock: Clock::start(),
            epoch: Ntp::from_unix(since_1970()),
            stop,
            interrupts,
        })
    }

    /// Starts the clock again, for another session of this process.
    pub fn renew(&mut self) {
        self.clock = Clock::start();
        self.epoch = Ntp::from_unix(since_1970());
    }

    /// Under which a connection is driven until it ends or is interrupted.
    pub fn conditions(&self) -> Conditions {
        Conditions {
            clock: self.clock,
            until: None,
            stop: self.stop.clone(),
        }
    }
}

/// A seed that nobody can guess: SSRCs and first sequence numbers come from it (RFC 3550
/// section 5.1).
pub fn secret_seed() -> Seed {
    // Every `RandomState` has keys that come from the system's randomness.
    Seed(RandomState::new().build_hasher().finish())
}

/// Time since 1970-01-01 00:00 UTC by the system's clock.
pub fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
