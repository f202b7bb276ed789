//! The observed sockets, their subscriptions and events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::view::View;
use super::{remove, stamps};
use crate::bpf::events::{EventCounts, EventRequest};
use crate::error::EventsError;
use crate::event::{Event, EventDetails, EventKind, SubscriptionId};
use crate::system::{Bell, is_short};
use crate::variables::Variable;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// Readable while the queue has events.
    pub(super) bell: Bell,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) queue: VecDeque<Event>,
    /// By cookie: a descriptor may be closed or reused by now.
    pub(super) sockets: BTreeMap<u64, Watched>,
    /// The cookie of the socket of each subscription.
    pub(super) places: BTreeMap<u64, u64>,
    /// Sockets without subscriptions that still expect stamps, by cookie with a descriptor of each.
    /// The stamps are removed, so that an application that polls the socket does not see them.
    pub(super) fading: BTreeMap<u64, RawFd>,
    pub(super) last: u64,
}

/// A socket, its last state, and its subscriptions.
#[derive(Debug)]
pub(super) struct Watched {
    /// A descriptor of the socket, unless it was closed since.
    pub(super) fd: RawFd,
    pub(super) seen: View,
    /// By number.
    pub(super) subscriptions: BTreeMap<u64, Subscription>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Subscription {
    pub(super) wanted: EventRequest,
    pub(super) tally: EventCounts,
}

/// The data for the alarm of a socket that may time out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) fd: RawFd,
    pub(super) acknowledged: u64,
    pub(super) rto: Duration,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A descriptor of an observed socket, or of one that expects stamps.
    pub(super) fn place(&self, cookie: u64, now: Duration) -> Option<BorrowedFd<'_>> {
        let fd = self.lock().place(cookie)?;
        if let Some(socket) = stamps::still(fd, cookie) {
            return Some(socket);
        }
        self.follow(now);
        let fd = self.lock().place(cookie)?;
        // It is not found if the process has no descriptor left for the search.
        stamps::still(fd, cookie)
    }

    /// Finds other descriptors of sockets whose descriptors were closed. Sockets without any are
    /// closed.
    pub(super) fn follow(&self, now: Duration) {
        let missing = self.lock().missing();
        if missing.is_empty() {
            return;
        }
        let found = match stamps::find(&missing) {
            Ok(found) => found,
            // The search takes a descriptor, and is repeated later.
            Err(e) if is_short(&e) => return,
            Err(_) => BTreeMap::new(),
        };
        let mut state = self.lock();
        // Subscriptions may have changed meanwhile.
        for cookie in state.missing().intersection(&missing) {
            match found.get(cookie) {
                Some(&fd) => state.move_to(*cookie, fd),
                None => state.end(*cookie, now),
            }
        }
        self.notify(&state);
    }

    /// Rings the bell if there are events.
    pub(super) fn notify(&self, state: &State) {
        if !state.queue.is_empty() {
            self.bell.ring();
        }
    }

    pub(super) fn sockets(&self) -> Vec<u64> {
        self.lock().sockets.keys().copied().collect()
    }

    /// Sockets that may time out and have a subscription to time-outs.
    pub(super) fn await_timeouts(&self) -> BTreeMap<u64, Waiting> {
        let state = self.lock();
        let waiting = state
            .sockets
            .iter()
            .filter_map(|(&cookie, watched)| Some((cookie, watched.waiting()?)));
        waiting.collect()
    }

    /// The same for one socket.
    pub(super) fn awaits_timeout(&self, cookie: u64) -> Option<Waiting> {
        self.lock().sockets.get(&cookie)?.waiting()
    }

    /// Reads the state of a socket and queues the events of its changes. Returns the time of the
    /// look if there was a time-out.
    pub(super) fn look(&self, cookie: u64) -> Option<Duration> {
        let mut state = self.lock();
        let watched = state.sockets.get_mut(&cookie)?;
        let before = watched.seen;
        let socket = stamps::still(watched.fd, cookie)?;
        let mut view = View::of(socket, before.phase).ok()?;
        let happened = view.since(&before);
        watched.seen = view;
        if !happened.is_empty() {
            state.queue_events(cookie, view.at, &happened);
            self.notify(&state);
        }
        let timeout = |what: &EventDetails| what.kind() == EventKind::Timeout;
        happened.iter().any(timeout).then_some(view.at)
    }

    /// Releases sockets whose last stamps have arrived. Whether any are left.
    pub(super) fn fade(&self, epoll: &OwnedFd) -> bool {
        let mut state = self.lock();
        state.fading.retain(|&cookie, &mut fd| {
            let Some(socket) = stamps::still(fd, cookie) else {
                // Until `follow` finds it or not.
                return true;
            };
            let pending = stamps::is_pending(socket);
            stamps::drain(socket);
            if !pending {
                // It fails if the socket has just been closed.
                let _ = remove(epoll, socket);
            }
            pending
        });
        !state.fading.is_empty()
    }
}

impl State {
    pub(super) fn subscription(
        &mut self,
        id: SubscriptionId,
    ) -> Result<&mut Subscription, EventsError> {
        let place = self.places.get(&id.0);
        let watched = place.and_then(|cookie| self.sockets.get_mut(cookie));
        let found = watched.and_then(|watched| watched.subscriptions.get_mut(&id.0));
        found.ok_or(EventsError::NoSubscription)
    }

    /// Queues the events of a socket for its subscriptions.
    pub(super) fn queue_events(&mut self, cookie: u64, time: Duration, happened: &[EventDetails]) {
        let Some(watched) = self.sockets.get_mut(&cookie) else {
            return;
        };
        for (&id, subscription) in &mut watched.subscriptions {
            for &what in happened {
                let kind = what.kind();
                if kind != EventKind::Ended && !subscription.wanted.events.contains(kind) {
                    continue;
                }
                subscription.tally.events += 1;
                if self.queue.len() >= LONGEST_QUEUE {
                    subscription.tally.lost += 1;
                    continue;
                }
                self.queue.push_back(Event {
                    time,
                    subscription: SubscriptionId(id),
                    number: subscription.tally.events,
                    what,
                    state: watched.seen.state.only(subscription.wanted.variables),
                });
            }
        }
    }

    /// Restores sockets that have no subscription any more.
    pub(super) fn release(&mut self, epoll: &OwnedFd, sockets: &[(u64, RawFd)]) {
        let is_closed = |&&(cookie, fd): &&(u64, RawFd)| stamps::still(fd, cookie).is_none();
        let closed: BTreeSet<u64> = sockets.iter().filter(is_closed).map(|s| s.0).collect();
        let found = if closed.is_empty() {
            BTreeMap::new()
        } else {
            stamps::find(&closed).unwrap_or_default()
        };
        for &(cookie, fd) in sockets {
            self.give_back(epoll, found.get(&cookie).copied().unwrap_or(fd), cookie);
        }
    }

    fn give_back(&mut self, epoll: &OwnedFd, fd: RawFd, cookie: u64) {
        if stamps::restore(fd, cookie) {
            self.fading.insert(cookie, fd);
        } else if let Some(socket) = stamps::still(fd, cookie) {
            // A closed descriptor cannot be removed, and has no events either.
            let _ = remove(epoll, socket);
        }
    }

    pub(super) fn place(&self, cookie: u64) -> Option<RawFd> {
        let watched = self.sockets.get(&cookie).map(|watched| watched.fd);
        watched.or_else(|| self.fading.get(&cookie).copied())
    }

    /// Sockets whose descriptors are closed or reused.
    pub(super) fn missing(&self) -> BTreeSet<u64> {
        let watched = self.sockets.iter().map(|(&cookie, w)| (cookie, w.fd));
        let fading = self.fading.iter().map(|(&cookie, &fd)| (cookie, fd));
        let missing = |&(cookie, fd): &(u64, RawFd)| stamps::still(fd, cookie).is_none();
        let all = watched.chain(fading).filter(missing);
        all.map(|(cookie, _)| cookie).collect()
    }

    pub(super) fn move_to(&mut self, cookie: u64, to: RawFd) {
        if let Some(watched) = self.sockets.get_mut(&cookie) {
            watched.fd = to;
        }
        if let Some(fd) = self.fading.get_mut(&cookie) {
            *fd = to;
        }
    }

    /// A socket is closed.
    pub(super) fn end(&mut self, cookie: u64, time: Duration) {
        self.queue_events(cookie, time, &[EventDetails::Ended]);
        self.fading.remove(&cookie);
        if let Some(watched) = self.sockets.remove(&cookie) {
            stamps::restore(watched.fd, cookie);
            for id in watched.subscriptions.keys() {
                self.places.remove(id);
            }
        }
    }
}

impl Watched {
    /// The data for an alarm if the socket may time out and has a subscription to time-outs.
    pub(super) fn waiting(&self) -> Option<Waiting> {
        let seen = &self.seen.state;
        let on_the_way = seen.get(Variable::PacketsOut).is_some_and(|n| n > 0);
        let expected = on_the_way && self.wants(EventKind::Timeout);
        expected.then(|| Waiting {
            fd: self.fd,
            acknowledged: seen.get(Variable::BytesAcked).unwrap_or_default(),
            rto: seen.rto().unwrap_or_default(),
        })
    }

    pub(super) fn wants(&self, kind: EventKind) -> bool {
        let mut all = self.subscriptions.values();
        all.any(|s| s.wanted.events.contains(kind))
    }
}

/// Length of the queue at which events are dropped.
const LONGEST_QUEUE: usize = 3_000;
