//! State of a node.

use rand_pcg::Pcg64Mcg;
use tidegate_core::units::Time;

use crate::packet_agent::Agent;

/// A node and its state. It fits into one cache line if the agent is at most two words; with many
/// nodes, cache misses here dominate the cost.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct NodeState<A> {
    pub(super) agent: A,
    pub(super) start: Time,
    pub(super) stop: Time,
    pub(super) peer: u32,
    pub(super) flow: u32,
    pub(super) route: u32,
    /// Instant of the last timer call, and the number of calls in it.
    pub(super) moment: u32,
    pub(super) wakes: u16,
    pub(super) dscp: u8,
    pub(super) done: bool,
    /// Whether the timer is later than its entry in the queue.
    pub(super) late: bool,
    pub(super) aside: Box<Aside>,
}

/// Rarely used state.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) rng: Pcg64Mcg,
    pub(super) name: String,
    /// Time of the last change of `done`.
    pub(super) done_at: Time,
}

/// Next timer of a node within its active period, and whether its agent is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    pub(super) due: Time,
    pub(super) done: bool,
}

impl<A: Agent> NodeState<A> {
    #[inline]
    pub(super) fn takes_part(&self, now: Time) -> bool {
        self.start <= now && now < self.stop
    }

    /// Next timer, clamped to the active period.
    #[inline]
    pub(super) fn deadline(&self) -> Time {
        self.within(self.agent.next_timer())
    }

    /// Next timer and end of the agent.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once after each input of a node")]
    pub(super) fn outlook(&self) -> Outlook {
        let (timer, done) = self.agent.outlook();
        Outlook {
            due: self.within(timer),
            done,
        }
    }

    #[inline]
    pub(super) fn within(&self, timer: Time) -> Time {
        let at = timer.max(self.start);
        if at < self.stop { at } else { Time::FAR }
    }
}
