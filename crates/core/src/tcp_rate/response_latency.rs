//! Measures the response latency of the encoder: τ of the paper's equation (13a).

use core::time::Duration;
use std::collections::VecDeque;

use super::event::EventNotification;
use super::reaction_delay;
use crate::units::Time;

/// Latency from an event in the transport to the first frame at the new rate.
///
/// The wait for the next picture is excluded: without a picture the source produces no bytes, and
/// no backlog builds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLatency {
    /// The event and its time in the transport.
    pub notification: EventNotification,
    /// Time of the notification of the application (`EventTime`).
    pub notified_at: Time,
    /// Time from which the new rate is available to the encoder (`ResponseTime`).
    pub rate_available_at: Time,
    /// Encoding time from then until the first frame at the new rate is complete (`u_rate`),
    /// including a frame in progress at `answered`.
    pub encoder: Duration,
}

impl ResponseLatency {
    /// Time from the event to the notification of the application (`u_TCP`).
    pub fn signal(&self) -> Duration {
        self.notified_at.since(self.notification.happened)
    }

    /// Time from the notification until the new rate is available to the encoder.
    pub fn answer(&self) -> Duration {
        self.rate_available_at.since(self.notified_at)
    }

    /// τ.
    pub fn total(&self) -> Duration {
        //= itcp-5.1.1-reaction
        reaction_delay(
            self.notified_at,
            self.rate_available_at,
            self.encoder,
            self.signal(),
        )
    }
}

/// Measures the response latency of each event.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseLatencyEstimator {
    /// The last response, until the first frame at its rate. A newer event replaces it, because
    /// there may be no frame at its rate.
    open: Option<Open>,
    /// τ of the last events, oldest first.
    recent: VecDeque<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    notification: EventNotification,
    notified_at: Time,
    answered: Option<Time>,
    encoder: Duration,
}

impl ResponseLatencyEstimator {
    /// Begins a measurement for an event with its notification at `notified_at`.
    pub(super) fn begin(&mut self, notified_at: Time, notification: EventNotification) {
        self.open = Some(Open {
            notification,
            notified_at,
            answered: None,
            encoder: Duration::ZERO,
        });
    }

    /// Records that the new rate is available to the encoder.
    pub(super) fn rate_available(&mut self, now: Time) {
        if let Some(open) = &mut self.open {
            open.answered.get_or_insert(now);
        }
    }

    /// Records that a frame ordered at `ordered` is encoded; returns the latency if it is complete.
    pub(super) fn encoded(&mut self, now: Time, ordered: Time) -> Option<ResponseLatency> {
        let open = self.open.as_mut()?;
        let answered = open.answered?;
        open.encoder += now.since(ordered.max(answered));
        if ordered < answered {
            return None;
        }
        let reaction = ResponseLatency {
            notification: open.notification,
            notified_at: open.notified_at,
            rate_available_at: answered,
            encoder: open.encoder,
        };
        self.open = None;
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(reaction.total());
        Some(reaction)
    }

    /// Expected latency: the largest recent one, because too small a value would violate the bound.
    /// `None` before the first measurement.
    pub(super) fn expected(&self) -> Option<Duration> {
        self.recent.iter().max().copied()
    }
}

/// Limits the effect of one measurement that is too large because the process was not scheduled.
const REMEMBERED: usize = 8;
