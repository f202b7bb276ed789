//! Parties that are ahead of each other.
//!
//! What a party does follows from what it gets, and when. Where nobody shares the first and the last
//! links of its routes, it may get a packet, or wake up, long before it is its turn by the clock: as
//! soon as nothing can come before that (compare [`get_ahead`](tidegate_core::link::Network::get_ahead)).
//! So a packet is taken by its receiver in the same breath in which its way through the network is
//! found, the answer enters the receiver's first link, and neither waits in an agenda for its time to
//! come. Only the links that are shared see packets in the order of time, as they must.
//!
//! None of this changes what anybody does, and the tests hold it against the plain order. An observer
//! that wants all in order, or parties that share something else than links, keep to that order.

use core::mem;

use prefetch_index::prefetch_index;
use tidegate_core::link::{LinkId, RouteId, Step};
use tidegate_core::units::Time;

use super::batch_wakeup::BatchWakeup;
use super::{MOST_WAKES, NodeId, Observer, World, WorldError};
use crate::packet_agent::Agent;

/// What a world needs to know for that.
#[derive(Debug, Default)]
pub(super) struct Lookahead {
    on: bool,
    /// The network's lead in ns: how long after a moment nothing comes that is not known then.
    lead: u64,
    /// Who gets what comes out of each link.
    parties: Vec<u32>,
    /// Nobody wakes up later than that, since of what comes then there may be no news yet.
    limit: Time,
    /// When the last thing happened to anybody.
    latest: Time,
    /// When each party wants to be woken.
    rounds: BatchWakeup,
}

impl Lookahead {
    pub(super) fn is_on(&self) -> bool {
        self.on
    }
}

impl<A: Agent> World<A> {
    /// Whether parties may be ahead of each other; finds out before anything has happened.
    pub(super) fn may_be_ahead(&mut self, wants_order: bool) -> bool {
        if self.now == Time::ZERO && !self.ahead.on && !wants_order {
            self.ahead = self.find_ahead().unwrap_or_default();
        }
        // Who wants order now did not then, or links were asked for.
        if self.ahead.on && (wants_order || !self.network.is_ahead()) {
            self.fall_in();
        }
        self.ahead.on
    }

    fn find_ahead(&mut self) -> Option<Lookahead> {
        let sampled = self.sampler.as_ref().map_or(0, |sampler| sampler.links);
        let mut firsts = vec![false; self.network.len()];
        let mut reached = vec![false; self.seats.len()];
        let mut parties = vec![NONE; self.network.len()];
        for seat in &self.seats {
            let (first, last) = self.network.ends(RouteId(seat.route as usize))?;
            let sampled = first.0 < sampled || last.0 < sampled;
            let shared = mem::replace(&mut firsts[first.0], true)
                || parties[last.0] != NONE
                || mem::replace(&mut reached[seat.peer as usize], true);
            if sampled || shared || !seat.agent.is_alone() {
                return None;
            }
            parties[last.0] = seat.peer;
        }
        let lead = self.network.get_ahead(LEAST_LEAD)?;
        let mut rounds = BatchWakeup::new(self.seats.len(), lead / 4);
        for (id, seat) in self.seats.iter().enumerate() {
            rounds.plan(id, seat.deadline());
        }
        Some(Lookahead {
            on: true,
            lead,
            parties,
            rounds,
            ..Lookahead::default()
        })
    }

    /// As [`run`](World::run), as long as nobody asks for the plain order, in which what is left goes
    /// on.
    pub(super) fn run_ahead<O: Observer + ?Sized>(
        &mut self,
        until: Time,
        observer: &mut O,
    ) -> Result<Option<Time>, WorldError> {
        // The network has seen all that happens by then.
        let until = until.max(self.now);
        let mut reached = self.now;
        self.ahead.latest = reached;
        self.network.tell_until(until);
        loop {
            let limit = later(reached, self.ahead.lead - 1).min(until);
            self.ahead.limit = limit;
            while let Some(link) = self.network.link_with_news() {
                self.hear(link, observer)?;
            }
            if !self.network.is_ahead() {
                // Some are ahead of that, and have nothing to do by then.
                self.now = reached;
                self.fall_in();
                return Ok(None);
            }
            let sample = self.sampler.as_ref().map_or(Time::FAR, |s| s.next);
            let mut rest = self.is_at_rest();
            if !rest {
                self.visit_by(limit, limit == until, observer)?;
                rest = self.is_at_rest();
            }
            if rest && sample >= self.ahead.latest {
                // It is over, or only samples are left.
                self.now = self.ahead.latest;
                self.write_agenda();
                return Ok(None);
            }
            if reached >= until && sample > until {
                self.now = until;
                return Ok(Some(until));
            }
            reached = if rest {
                sample
            } else {
                self.idle_until(limit, until).min(sample).max(reached)
            };
            self.network.advance(reached);
            if sample <= reached {
                self.now = sample;
                self.ahead.latest = self.ahead.latest.max(sample);
                self.sample(observer);
            }
        }
    }

    /// Until when nobody does anything, nor does anything come out of the network.
    #[inline]
    fn idle_until(&mut self, limit: Time, until: Time) -> Time {
        let rounds = &mut self.ahead.rounds;
        if limit == until {
            return until;
        }
        let visited = rounds.start().as_nanos().saturating_sub(1);
        let departure = self.network.next_departure().unwrap_or(Time::FAR);
        let sample = self.sampler.as_ref().map_or(Time::FAR, |s| s.next);
        let idle = rounds.skip_to(departure.min(sample).min(until));
        Time::from_nanos(visited).max(idle).min(until)
    }

    /// Lets all parties that want to be woken by `limit`, or in a round that begins by then if it is the
    /// `last` one, do what they can.
    #[inline]
    fn visit_by<O: Observer + ?Sized>(
        &mut self,
        limit: Time,
        last: bool,
        observer: &mut O,
    ) -> Result<(), WorldError> {
        let round = self.ahead.rounds.round_of(later(limit, 1));
        let end = round + u64::from(last);
        while self.network.is_ahead()
            && let Some(id) = self.ahead.rounds.take(end)
        {
            self.visit(id, observer)?;
        }
        if last {
            self.ahead.rounds.reopen(round);
        }
        Ok(())
    }

    /// Whether nothing is under way, and all are done or nobody wants to be woken any more.
    fn is_at_rest(&mut self) -> bool {
        self.network.inside() == 0
            && (self.busy == 0 || self.seats.iter().all(|seat| seat.deadline() == Time::FAR))
    }

    /// Brings to the cache what the news after the next ones will touch, step by step: as
    /// [`look_ahead`](World::look_ahead).
    #[inline]
    fn look_at_news<O: Observer + ?Sized>(&mut self, observer: &mut O) {
        let party = |link: LinkId| self.ahead.parties[link.0] as usize;
        if let Some(id) = self.network.news_behind(9, Step::Link).map(party) {
            prefetch_index(&self.seats, id);
            observer.soon(NodeId(id));
        }
        if let Some(id) = self.network.news_behind(6, Step::Place).map(party) {
            let seat = &self.seats[id];
            seat.agent.soon();
            self.network.soon(RouteId(seat.route as usize), Step::Link);
        }
        if let Some(id) = self.network.news_behind(3, Step::Place).map(party) {
            let seat = &self.seats[id];
            self.network.soon(RouteId(seat.route as usize), Step::Place);
            observer.very_soon(NodeId(id));
        }
    }

    /// Packets will be out of a link: they are given to its party, which wakes up in between if it wants
    /// to. Nothing else can come by then, whatever the limit is.
    fn hear<O: Observer + ?Sized>(
        &mut self,
        link: LinkId,
        observer: &mut O,
    ) -> Result<(), WorldError> {
        let id = self.ahead.parties[link.0] as usize;
        let mut outlook = self.seats[id].outlook();
        while let Some(exit) = self.network.news_of(link) {
            if self.seats.len() > CACHED {
                self.look_at_news(observer);
            }
            let at = exit.at();
            while outlook.0 < at {
                outlook = self.wake_at(id, outlook.0, observer)?;
            }
            self.ahead.latest = self.ahead.latest.max(at);
            if let Some((_, (due, done))) = self.hand_over(exit, observer) {
                self.send::<true, O>(id, at, observer)?;
                self.seats[id].start = at;
                outlook = (due.max(at), done);
                self.count(id, done, at);
            }
        }
        self.plan(id, outlook);
        Ok(())
    }

    /// Wakes a party up, until it wants to be woken at a later moment: its outlook then.
    ///
    /// From then on it takes part from that moment on, so that a timer of the past is one of that moment.
    #[inline]
    fn wake_at<O: Observer + ?Sized>(
        &mut self,
        id: usize,
        at: Time,
        observer: &mut O,
    ) -> Result<(Time, bool), WorldError> {
        self.ahead.latest = self.ahead.latest.max(at);
        for _ in 0..MOST_WAKES {
            let outlook = self.ring(id, at, observer);
            self.send::<true, O>(id, at, observer)?;
            self.count(id, outlook.1, at);
            if outlook.0 > at {
                self.seats[id].start = at;
                return Ok(outlook);
            }
        }
        Err(self.stuck(id, at))
    }

    /// Wakes a party up as often as it wants to be by the limit.
    fn visit<O: Observer + ?Sized>(
        &mut self,
        id: usize,
        observer: &mut O,
    ) -> Result<(), WorldError> {
        let mut outlook = self.seats[id].outlook();
        while outlook.0 <= self.ahead.limit {
            outlook = self.wake_at(id, outlook.0, observer)?;
        }
        self.plan(id, outlook);
        Ok(())
    }

    /// Writes down when a party wants to be woken next, and whether it is done.
    #[inline]
    fn plan(&mut self, id: usize, (due, done): (Time, bool)) {
        self.ahead.rounds.plan(id, due);
        self.count(id, done, self.now);
    }

    /// From now on all do what they do in the order of time.
    #[cold]
    pub(super) fn fall_in(&mut self) {
        self.ahead = Lookahead::default();
        self.write_agenda();
    }

    #[cold]
    fn write_agenda(&mut self) {
        for id in 0..self.seats.len() {
            self.agenda.set(id, self.seats[id].deadline());
            self.seats[id].late = false;
        }
    }
}

fn later(at: Time, nanos: u64) -> Time {
    Time::from_nanos(at.as_nanos().saturating_add(nanos))
}

/// So many parties are in the cache anyhow.
const CACHED: usize = 500;

/// No link, or nobody.
const NONE: u32 = u32::MAX;

/// With a smaller lead, in ns, there would be hardly a packet in it, and nothing to gain.
const LEAST_LEAD: u64 = 1_000_000;
