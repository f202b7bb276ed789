//! What a world keeps of a party.

use rand_pcg::Pcg64Mcg;
use tidegate_core::units::Time;

use crate::packet_agent::Agent;

/// A party with what the world keeps for it: in one cache line, if the agent is no larger than two
/// words, since with many parties nothing else costs as much.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct NodeState<A> {
    pub(super) agent: A,
    pub(super) start: Time,
    pub(super) stop: Time,
    pub(super) peer: u32,
    pub(super) flow: u32,
    pub(super) route: u32,
    /// The moment at which it was woken last, and how often then.
    pub(super) moment: u32,
    pub(super) wakes: u16,
    pub(super) dscp: u8,
    pub(super) done: bool,
    /// Whether it wants to be woken later than the agenda says.
    pub(super) late: bool,
    pub(super) aside: Box<Aside>,
}

/// What is seldom looked at.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) rng: Pcg64Mcg,
    pub(super) name: String,
    /// When it was last found to be done, or no longer.
    pub(super) done_at: Time,
}

impl<A: Agent> NodeState<A> {
    #[inline]
    pub(super) fn takes_part(&self, now: Time) -> bool {
        self.start <= now && now < self.stop
    }

    /// When it wants to be woken, while it takes part.
    #[inline]
    pub(super) fn deadline(&self) -> Time {
        self.within(self.agent.next_timer())
    }

    /// The same, and whether it is done.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once after each input of a party")]
    pub(super) fn outlook(&self) -> (Time, bool) {
        let (timer, done) = self.agent.outlook();
        (self.within(timer), done)
    }

    #[inline]
    pub(super) fn within(&self, timer: Time) -> Time {
        let at = timer.max(self.start);
        if at < self.stop { at } else { Time::FAR }
    }
}
