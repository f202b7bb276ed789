//! Samples of the path at a modelled sender, for plots.

use core::time::Duration;

use tidegate_core::control::{Outcome, PacketOutcome, RateControl};
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Time};

/// Aggregates reports between two samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    since: Time,
    received: Bytes,
    lost: u64,
    known: u64,
    least: Option<Duration>,
}

impl Samples {
    /// Adds a report. Returns a sample if the last one is old enough.
    pub(super) fn add(
        &mut self,
        now: Time,
        outcomes: &[PacketOutcome],
        rtt: Duration,
        controller: &RateControl,
    ) -> Option<Event> {
        for fate in outcomes {
            self.known += 1;
            match fate.outcome {
                Outcome::Received { .. } => self.received += fate.size,
                Outcome::Lost => self.lost += 1,
            }
        }
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        let span = now.since(self.since);
        if span < INTERVAL {
            return None;
        }
        let target = controller.target();
        let sample = Event::Sample {
            rtt,
            queue: rtt.saturating_sub(least),
            loss: self.lost as f64 / self.known.max(1) as f64,
            loss_event_rate: controller.summary().loss_event_rate,
            send: target.send,
            media: target.media,
            receive: self.received / span,
        };
        *self = Self {
            since: now,
            least: self.least,
            ..Self::default()
        };
        Some(sample)
    }
}

/// Interval of reports of media receivers.
const INTERVAL: Duration = Duration::from_millis(25);
