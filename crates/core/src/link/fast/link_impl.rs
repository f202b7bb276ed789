//! The two implementations of a link.

use core::time::Duration;

use super::LinkForm;
use super::fast_link::{Entry, FastLink};
use crate::link::Packet;
use crate::link::config::{LinkConfig, LinkFault};
use crate::link::general_link::GeneralLink;
use crate::link::packet_log::{LinkLogEntry, PacketLog};
use crate::link::packet_pool::{PacketHandle, PacketPool};
use crate::link::rate::Capacity;
use crate::link::stats::{FlowCounts, LinkStats, Queued};
use crate::random::Seed;
use crate::units::Time;

/// A link whose packets are in a [`PacketPool`]. Its methods are those of [`Link`](crate::link::Link).
#[derive(Debug)]
pub(in crate::link) enum LinkImpl {
    FastLink(FastLink),
    GeneralLink(Box<GeneralLink>),
}

impl LinkImpl {
    pub(in crate::link) fn new(
        config: &LinkConfig,
        seed: Seed,
        name: &str,
        form: LinkForm,
    ) -> Result<Self, LinkFault> {
        config.check()?;
        let stream = |part: &str| seed.stream(&format!("link/{name}/{part}"));
        if form == LinkForm::Fast
            && let Some(fast) = FastLink::new(config, stream)
        {
            return Ok(Self::FastLink(fast));
        }
        let chain = GeneralLink::new(config, stream)?;
        Ok(Self::GeneralLink(Box::new(chain)))
    }

    /// Pushes a packet. Returns whether the next departure may have changed.
    #[inline]
    pub(in crate::link) fn push<P: Packet>(
        &mut self,
        store: &mut PacketPool<P>,
        at: Time,
        handle: PacketHandle,
    ) -> bool {
        if let Self::FastLink(fast) = self {
            match fast.push(store, at, handle) {
                Entry::Taken(_) => return fast.len() == 1,
                Entry::Refused => return false,
                Entry::TooLate => {}
            }
        }
        self.general(store).push(store, at, handle);
        true
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "keeps the handle in registers")]
    pub(in crate::link) fn pop<P: Packet>(
        &mut self,
        store: &mut PacketPool<P>,
        now: Time,
    ) -> Option<(Time, PacketHandle)> {
        match self {
            Self::FastLink(fast) => fast.pop(now),
            Self::GeneralLink(chain) => chain.pop(store, now),
        }
    }

    #[inline]
    pub(in crate::link) fn fast(&self) -> Option<&FastLink> {
        match self {
            Self::FastLink(fast) => Some(fast),
            Self::GeneralLink(_) => None,
        }
    }

    #[inline]
    pub(in crate::link) fn fast_mut(&mut self) -> Option<&mut FastLink> {
        match self {
            Self::FastLink(fast) => Some(fast),
            Self::GeneralLink(_) => None,
        }
    }

    /// Handle of the packet that departs next, if known.
    #[inline]
    pub(in crate::link) fn peek(&self) -> Option<&PacketHandle> {
        match self {
            Self::FastLink(fast) => fast.peek(),
            Self::GeneralLink(_) => None,
        }
    }

    #[inline]
    pub(in crate::link) fn next_departure(&self) -> Option<Time> {
        match self {
            Self::FastLink(fast) => fast.next_departure(),
            Self::GeneralLink(chain) => chain.next_departure(),
        }
    }

    pub(in crate::link) fn advance<P: Packet>(&mut self, store: &mut PacketPool<P>, now: Time) {
        match self {
            Self::FastLink(fast) => fast.advance(now),
            Self::GeneralLink(chain) => chain.advance(store, now),
        }
    }

    pub(in crate::link) fn stats(&self) -> LinkStats {
        match self {
            Self::FastLink(fast) => fast.stats(),
            Self::GeneralLink(chain) => chain.stats(),
        }
    }

    pub(in crate::link) fn queued(&self) -> Queued {
        match self {
            Self::FastLink(fast) => fast.queued(),
            Self::GeneralLink(chain) => chain.queued(),
        }
    }

    pub(in crate::link) fn capacity(&self) -> &Capacity {
        match self {
            Self::FastLink(fast) => fast.capacity(),
            Self::GeneralLink(chain) => chain.capacity(),
        }
    }

    pub(in crate::link) fn delay(&self) -> Duration {
        match self {
            Self::FastLink(fast) => fast.delay(),
            Self::GeneralLink(chain) => chain.delay(),
        }
    }

    pub(in crate::link) fn observe<P: Packet>(&mut self, store: &PacketPool<P>, limit: usize) {
        self.general(store).observe(PacketLog::new(limit, false));
    }

    pub(in crate::link) fn observe_drops(&mut self, limit: usize) {
        let notes = PacketLog::new(limit, true);
        match self {
            Self::FastLink(fast) => fast.observe_drops(notes),
            Self::GeneralLink(chain) => chain.observe(notes),
        }
    }

    pub(in crate::link) fn pop_note(&mut self) -> Option<LinkLogEntry> {
        match self {
            Self::FastLink(fast) => fast.notes_mut()?.take(),
            Self::GeneralLink(chain) => chain.notes_mut()?.take(),
        }
    }

    pub(in crate::link) fn missed_notes(&self) -> u64 {
        let notes = match self {
            Self::FastLink(fast) => fast.notes(),
            Self::GeneralLink(chain) => chain.notes(),
        };
        notes.map_or(0, PacketLog::missed)
    }

    pub(in crate::link) fn count_flows<P: Packet>(&mut self, store: &PacketPool<P>, flows: usize) {
        self.general(store).count_flows(flows);
    }

    pub(in crate::link) fn flow_counts(&self) -> &[FlowCounts] {
        match self {
            Self::FastLink(_) => &[],
            Self::GeneralLink(chain) => chain.flow_counts(),
        }
    }

    /// Converts the link to a [`GeneralLink`].
    #[cold]
    fn general<P: Packet>(&mut self, store: &PacketPool<P>) -> &mut GeneralLink {
        if let Self::FastLink(fast) = self {
            *self = Self::GeneralLink(Box::new(fast.make_general(store)));
        }
        match self {
            Self::GeneralLink(chain) => chain,
            Self::FastLink(_) => unreachable!("it has just become a chain"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control::Ecn;
    use crate::link::testing::{PacketHandle as Packaged, even_link_config};
    use crate::link::{Hop, Link};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// A fast link behaves as a general link, also if it is converted at the start or midway.
        #[test]
        fn fast_and_general_links_are_equivalent(
            config in even_link_config(),
            arrivals in prop::collection::vec((0..3_000_000_u64, 1..2_000_u64, any::<bool>()), 1..150),
            polls in prop::collection::vec(1..40_000_000_u64, 1..20),
            turn in 0..150_usize,
            // Sizes and times are multiples of this, so that many events coincide.
            grid in prop_oneof![Just(1_u64), Just(250)],
        ) {
            let run = |turn: usize| {
                let mut link: Link<Packaged> = Link::new(&config, Seed(1), "l").unwrap();
                link.observe_drops(1_000);
                let (mut seen, mut now, mut poll) = (vec![], 0, 0);
                for (id, (gap, size, capable)) in arrivals.iter().enumerate() {
                    let (gap, size) = (gap.next_multiple_of(1_000 * grid), size.next_multiple_of(grid));
                    now += gap;
                    if poll <= now {
                        let at = Time::from_nanos(poll);
                        let out = core::iter::from_fn(|| link.pop(at)).collect::<Vec<_>>();
                        seen.push((out, link.next_departure(), link.stats(), link.queued()));
                        poll = now + polls[id % polls.len()].next_multiple_of(1_000 * grid);
                    }
                    if id == turn {
                        prop_assert!(matches!(link.passage, LinkImpl::FastLink(_)));
                        link.count_flows(1);
                        prop_assert!(matches!(link.passage, LinkImpl::GeneralLink(_)));
                    }
                    let ecn = if *capable { Ecn::Ect1 } else { Ecn::NotEct };
                    link.push(Time::from_nanos(now), Packaged::new(id as u64, size, ecn));
                    seen.push((vec![], link.next_departure(), link.stats(), link.queued()));
                }
                let out = core::iter::from_fn(|| link.pop(Time::FAR)).collect();
                seen.push((out, link.next_departure(), link.stats(), link.queued()));
                let notes: Vec<_> = core::iter::from_fn(|| link.pop_note()).collect();
                Ok((seen, notes))
            };
            let (fast, notes) = run(usize::MAX)?;
            for turn in [0, turn] {
                let (chain, general_notes) = run(turn)?;
                for (i, (fast, chain)) in fast.iter().zip(chain).enumerate() {
                    prop_assert_eq!(fast, &chain, "step {}, general from {}", i, turn);
                }
                prop_assert_eq!(&notes, &general_notes, "general from {}", turn);
            }
        }
    }
}
