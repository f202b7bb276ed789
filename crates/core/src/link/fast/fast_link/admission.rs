//! Queue admission of a fast link.

use rand_pcg::Pcg64Mcg;

use crate::link::config::LinkConfig;
use crate::link::queue::{DropTailConfig, Limit, QueueConfig, RedLaw, Verdict};
use crate::link::stats::Queued;
use crate::units::{Bytes, Time};

/// Admission rule.
#[derive(Debug)]
pub(super) enum Admission {
    DropTail(DropTailConfig),
    Red(Box<Idler>),
}

/// RED, which needs the start of idle periods.
#[derive(Debug)]
pub(super) struct Idler {
    pub(super) law: RedLaw,
    /// End of the transmitter's work.
    free_at: Time,
    /// Whether RED has been notified of the idle period.
    reported: bool,
}

impl Admission {
    /// `None` if the queue discipline is not supported.
    pub(super) fn new(config: &LinkConfig, stream: impl Fn(&str) -> Pcg64Mcg) -> Option<Self> {
        match config.queue {
            QueueConfig::DropTail(config) => Some(Self::DropTail(config)),
            QueueConfig::Red(red) => Some(Self::Red(Box::new(Idler {
                law: RedLaw::new(red, &config.capacity, stream("red")),
                free_at: Time::ZERO,
                reported: true,
            }))),
            _ => None,
        }
    }

    /// Queue limit in packets if that alone decides, else zero.
    pub(super) fn plain_limit(&self) -> u32 {
        match self {
            Self::DropTail(DropTailConfig {
                limit: Limit::Packets(limit),
                mark_above: None,
            }) => *limit,
            _ => 0,
        }
    }

    /// Verdict for a packet of `size` that arrives at `at` and finds the backlog `waiting`. With
    /// this packet the transmitter is busy until `free_at`.
    #[inline]
    pub(super) fn verdict(
        &mut self,
        at: Time,
        free_at: Time,
        size: Bytes,
        waiting: Queued,
        capable: impl Fn() -> bool,
    ) -> Verdict {
        match self {
            Self::DropTail(config) => config.verdict(waiting, size, capable),
            Self::Red(idler) => {
                idler.notify_idle(at);
                let verdict = idler.law.verdict(at, size, waiting, capable);
                if verdict != Verdict::Dropped {
                    (idler.free_at, idler.reported) = (free_at, false);
                }
                verdict
            }
        }
    }
}

impl Idler {
    /// Notifies RED of an idle period that started before `now`.
    #[inline]
    pub(super) fn notify_idle(&mut self, now: Time) {
        if self.free_at < now && !self.reported {
            self.law.idle(self.free_at);
            self.reported = true;
        }
    }
}
