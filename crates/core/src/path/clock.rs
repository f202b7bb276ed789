//! One-way delays, from the times of two clocks.

use crate::units::{RemoteTime, Time};

/// Difference of the sender's and the receiver's clock. Times are in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// Time of the first arrival, and of the departure of that packet: the origins.
    origin: Option<(RemoteTime, Time)>,
    /// Steps of the receiver's clock since.
    steps: f64,
    /// Newest one-way delay without them.
    delay: f64,
}

/// A packet on both clocks. The origin of the delay is arbitrary.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transit {
    pub(super) sent: f64,
    pub(super) at: f64,
    pub(super) delay: f64,
}

impl Clock {
    /// A packet that left at `sent` arrived `at`.
    pub(super) fn on_arrival(&mut self, sent: Time, at: RemoteTime) -> Transit {
        let (origin, began) = *self.origin.get_or_insert((at, sent));
        let mut at = seconds_between(origin.0, at.0) - self.steps;
        let sent = seconds_between(began.as_nanos(), sent.as_nanos());
        if (at - sent - self.delay).abs() > STEP {
            let step = at - sent - self.delay;
            self.steps += step;
            at -= step;
        }
        self.delay = at - sent;
        Transit {
            sent,
            at,
            delay: self.delay,
        }
    }
}

/// Seconds from one time in nanoseconds to another, on one clock.
fn seconds_between(from: u64, to: u64) -> f64 {
    (i128::from(to) - i128::from(from)) as f64 / 1e9
}

/// A larger change of the one-way delay is a step of the receiver's clock, in seconds.
const STEP: f64 = 5.0;
