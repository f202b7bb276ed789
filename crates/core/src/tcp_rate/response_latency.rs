//! How long it takes until the encoder obeys: τ of the paper's equation (13a), measured.

use core::time::Duration;
use std::collections::VecDeque;

use super::event::Told;
use crate::delay_bound::reaction_delay;
use crate::units::Time;

/// From an event in the transport to the first frame that was made at the rate of the answer.
///
/// What the source does not make needs no time: while it has no picture nothing piles up, so the
/// wait for the next one is no part of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLatency {
    /// Which event, and when it happened in the transport.
    pub told: Told,
    /// When the application was told (`EventTime`).
    pub heard: Time,
    /// When the encoder could know the rate (`ResponseTime`).
    pub answered: Time,
    /// How long the encoder was at work from then on, until a frame at that rate was there
    /// (`u_rate`). One that it had begun before is counted as well.
    pub encoder: Duration,
}

impl ResponseLatency {
    /// From the event until the application was told (`u_TCP`).
    pub fn signal(&self) -> Duration {
        self.heard.since(self.told.happened)
    }

    /// From being told until the encoder could know the rate.
    pub fn answer(&self) -> Duration {
        self.answered.since(self.heard)
    }

    /// τ.
    pub fn total(&self) -> Duration {
        //= itcp-5.1.1-reaction
        reaction_delay(self.heard, self.answered, self.encoder, self.signal())
    }
}

/// Measures it, event by event.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseLatencies {
    /// The last answer, until a frame obeys it. One that another event overtook is forgotten: no
    /// frame may ever have been made at its rate.
    open: Option<Open>,
    /// τ of the last events, the oldest first.
    recent: VecDeque<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    told: Told,
    heard: Time,
    answered: Option<Time>,
    encoder: Duration,
}

impl ResponseLatencies {
    /// An event is being answered, of which the application was told at `heard`.
    pub(super) fn begin(&mut self, heard: Time, told: Told) {
        self.open = Some(Open {
            told,
            heard,
            answered: None,
            encoder: Duration::ZERO,
        });
    }

    /// The encoder can know the rate of the answer.
    pub(super) fn answered(&mut self, now: Time) {
        if let Some(open) = &mut self.open {
            open.answered.get_or_insert(now);
        }
    }

    /// A frame that was ordered at `ordered` is there.
    pub(super) fn encoded(&mut self, now: Time, ordered: Time) -> Option<ResponseLatency> {
        let open = self.open.as_mut()?;
        let answered = open.answered?;
        open.encoder += now.since(ordered.max(answered));
        if ordered < answered {
            return None;
        }
        let reaction = ResponseLatency {
            told: open.told,
            heard: open.heard,
            answered,
            encoder: open.encoder,
        };
        self.open = None;
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(reaction.total());
        Some(reaction)
    }

    /// What to reckon with: the largest of late, as too little would break the bound. None before
    /// one has been measured.
    pub(super) fn expected(&self) -> Option<Duration> {
        self.recent.iter().max().copied()
    }
}

/// A process that once got no processor for a while must not have the law throttle for ever.
const REMEMBERED: usize = 8;
