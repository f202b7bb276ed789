//! Which packets a lane takes.

use rand_pcg::Pcg64Mcg;

use super::super::config::LinkConfig;
use super::super::queue::{DropTailConfig, Limit, QueueConfig, RedLaw, Verdict};
use super::super::stats::Queued;
use crate::units::{Bytes, Time};

/// Who may wait.
#[derive(Debug)]
pub(super) enum Admission {
    DropTail(DropTailConfig),
    Red(Box<Idler>),
}

/// RED, which has to hear of idle times.
#[derive(Debug)]
pub(super) struct Idler {
    pub(super) law: RedLaw,
    /// When the transmitter is free.
    free_at: Time,
    /// Whether RED has heard of that.
    told: bool,
}

impl Admission {
    /// `None` if the queue is of another kind.
    pub(super) fn new(config: &LinkConfig, stream: impl Fn(&str) -> Pcg64Mcg) -> Option<Self> {
        match config.queue {
            QueueConfig::DropTail(config) => Some(Self::DropTail(config)),
            QueueConfig::Red(red) => Some(Self::Red(Box::new(Idler {
                law: RedLaw::new(red, &config.capacity, stream("red")),
                free_at: Time::ZERO,
                told: true,
            }))),
            _ => None,
        }
    }

    /// How many packets may wait, if that is all there is to it, else zero.
    pub(super) fn plain_limit(&self) -> u32 {
        match self {
            Self::DropTail(DropTailConfig {
                limit: Limit::Packets(limit),
                mark_above: None,
            }) => *limit,
            _ => 0,
        }
    }

    /// What becomes of a packet of `size` that arrives at `at`, where `waiting` waits and the
    /// transmitter is free from `free_at` on if it takes this one.
    #[inline]
    pub(super) fn judge(
        &mut self,
        at: Time,
        free_at: Time,
        size: Bytes,
        waiting: Queued,
        capable: impl Fn() -> bool,
    ) -> Verdict {
        match self {
            Self::DropTail(config) => config.judge(waiting, size, capable),
            Self::Red(idler) => {
                idler.hear(at);
                let verdict = idler.law.judge(at, size, waiting, capable);
                if verdict != Verdict::Dropped {
                    (idler.free_at, idler.told) = (free_at, false);
                }
                verdict
            }
        }
    }
}

impl Idler {
    /// It is `now`.
    #[inline]
    pub(super) fn hear(&mut self, now: Time) {
        if self.free_at < now && !self.told {
            self.law.idle(self.free_at);
            self.told = true;
        }
    }
}
