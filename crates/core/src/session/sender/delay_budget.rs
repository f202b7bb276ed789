//! Division of the delay bound among propagation, encoder, repairs and queues.

use core::time::Duration;

use super::MediaSender;
use crate::control::Context;
use crate::units::Bytes;

/// Delays of a frame that do not depend on its size.
#[derive(Clone, Copy, Debug)]
struct FixedDelays {
    one_way: Duration,
    /// Delay in queues that this sender cannot drain.
    standing: Duration,
    encoder: Duration,
    /// Detection of a loss, its request, and the retransmission.
    retransmission: Duration,
}

/// How lost packets are repaired within the delay bound.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Repair {
    /// Retransmissions are in time.
    Retransmission,
    /// Parity packets follow each block of media packets of this duration, if it is not too short.
    Parity(Option<Duration>),
    /// Nothing is in time.
    None,
}

impl MediaSender {
    /// Updates the plan of the delay bound before a frame is ordered. `backlog` is queued here.
    pub(super) fn replan(&mut self, cx: &mut Context<'_>, backlog: Bytes) {
        let parity = self.wants_parity();
        let (Some(limit), Some(bound)) = (self.control.bound_mut(), self.config.delay_bound) else {
            return;
        };
        let delays = FixedDelays {
            one_way: self.path.one_way(),
            standing: limit.standing(cx.now),
            encoder: self.capture.lag(),
            retransmission: self.path.srtt() + REPAIR,
        };
        let is_long = self.path.has_rtt() && delays.is_long(bound);
        let repair = delays.repair(bound, parity && is_long);
        let (reserve, block) = match repair {
            Repair::Retransmission => (delays.retransmission.min(bound / 3), None),
            // The parity packets of a block take part of its duration again.
            Repair::Parity(block) => (block.map_or(Duration::ZERO, |span| span * 5 / 4), block),
            Repair::None => (Duration::ZERO, None),
        };
        let spent = delays.one_way + delays.encoder + reserve;
        limit.set_backlog(backlog);
        limit.set_budget(bound.saturating_sub(spent), reserve);
        self.protection.set_block(block);
        self.control.replan(cx);
    }
}

impl FixedDelays {
    /// Whether a retransmission may be late even with an empty queue.
    fn is_long(&self, bound: Duration) -> bool {
        // A third of the delay more for a queue and for a report that is lost.
        self.one_way * 10 / 3 + REPAIR > bound
    }

    /// Loss detection, request and retransmission must complete within the bound. If that is impossible
    /// or uncertain even with an empty queue, parity packets repair, if `parity` permits. If a queue is
    /// the cause, the plan reserves no time for repairs.
    fn repair(&self, bound: Duration, parity: bool) -> Repair {
        let arrival = self.one_way + self.standing;
        if parity {
            let rest = bound.saturating_sub(arrival + self.encoder);
            Repair::Parity(Some(rest * 2 / 5).filter(|span| *span >= SHORTEST_BLOCK))
        } else if arrival + self.retransmission <= bound {
            Repair::Retransmission
        } else {
            Repair::None
        }
    }
}

/// Duration of a repair in addition to the round-trip time: one feedback interval, the gap to the
/// packets that prove the loss, and the timers of both endpoints.
const REPAIR: Duration = Duration::from_millis(50);
/// Shorter blocks than a frame interval at 60 frames per second need a parity packet per frame.
const SHORTEST_BLOCK: Duration = Duration::from_millis(15);
