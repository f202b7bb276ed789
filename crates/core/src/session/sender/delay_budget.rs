//! Division of the delay bound among propagation, encoder, repairs and queues.

use core::time::Duration;

/// Delays of a frame that do not depend on its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedDelays {
    pub(super) one_way: Duration,
    /// Delay in queues that this sender cannot drain.
    pub(super) standing: Duration,
    pub(super) encoder: Duration,
    /// Detection of a loss, its request, and the retransmission.
    pub(super) retransmission: Duration,
}

/// Parts of the delay bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayBudget {
    /// For queues and the transmission of a frame.
    pub(super) queues: Duration,
    /// For repairs.
    pub(super) repairs: Duration,
    /// Duration of a block of media packets that parity packets follow; `None` if a retransmission is
    /// in time, or nothing is.
    pub(super) block: Option<Duration>,
}

impl FixedDelays {
    /// Loss detection, request and retransmission must complete within the bound. If that is impossible
    /// or uncertain even with an empty queue, parity packets repair, if `parity` permits. If a queue is
    /// the cause, the plan reserves no time for repairs.
    pub(super) fn divide(&self, bound: Duration, parity: bool) -> DelayBudget {
        let arrival = self.one_way + self.standing;
        // A third of the delay more for a queue and for a report that is lost.
        let is_long = self.one_way * 10 / 3 + REPAIR > bound;
        let (repairs, block) = if parity && is_long {
            let rest = bound.saturating_sub(arrival + self.encoder);
            let block = Some(rest * 2 / 5).filter(|span| *span >= SHORTEST_BLOCK);
            // The parity packets of a block take part of its duration again.
            (block.map_or(Duration::ZERO, |span| span * 5 / 4), block)
        } else if arrival + self.retransmission <= bound {
            (self.retransmission.min(bound / 3), None)
        } else {
            (Duration::ZERO, None)
        };
        DelayBudget {
            queues: bound.saturating_sub(self.one_way + self.encoder + repairs),
            repairs,
            block,
        }
    }
}

/// Duration of a repair in addition to the round-trip time: one feedback interval, the gap to the
/// packets that prove the loss, and the timers of both endpoints.
pub(super) const REPAIR: Duration = Duration::from_millis(50);
/// Shorter blocks than a frame interval at 60 frames per second need a parity packet per frame.
const SHORTEST_BLOCK: Duration = Duration::from_millis(15);
