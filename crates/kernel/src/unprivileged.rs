//! Events without privilege, from the error queues of the sockets and `TCP_INFO`.
//!
//! The kernel stamps each segment when it passes it to the device and when it is acknowledged
//! (`SO_TIMESTAMPING`). The stamps arrive on the socket's error queue and wake a thread, which
//! reads `TCP_INFO` and compares it with the previous one. Retransmissions are stamped too, so the
//! entry into recovery and time-outs are seen at once. The wake-up is the longest part of the
//! delay, so the thread is awake when a retransmission timer expires.

mod shared;
mod stamps;
#[cfg(test)]
mod tests;
mod timer;
mod view;
mod watch;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::epoll;
use rustix::net::{SendFlags, send};

use crate::bpf::events::{EventCounts, EventRequest};
use crate::error::EventsError;
use crate::event::{Event, EventKind, SubscriptionId, TcpState};
use crate::system::{self, Bell, Worker, cookie, option};
use crate::tcp;
use crate::variables::VariableSet;
use shared::{Shared, State, Subscription, Waiting, Watched};
use view::View;

/// The events that are weaker here, and how.
pub(crate) const WEAKER: &[(EventKind, &str)] = &[
    (
        EventKind::Timeout,
        "time and state are those of the next reading; several between two readings are one event",
    ),
    (
        EventKind::Threshold,
        "detected with the next time stamp, and only if the window is still above the threshold",
    ),
    (
        EventKind::ThirdDuplicate,
        "not detected: duplicate ACKs cause no time stamp",
    ),
    (
        EventKind::Recovery,
        "detected with the first retransmission, up to 2 ms after the entry; the number of duplicates is that of selectively acknowledged segments",
    ),
    (
        EventKind::Recovered,
        "detected with the next time stamp; a recovery between two stamps is missed",
    ),
    (
        EventKind::Reduced,
        "detected with the next time stamp, and missed if it has ended by then",
    ),
    (
        EventKind::State,
        "seen with the next time stamp or within 50 ms; states in between are missed",
    ),
    (
        EventKind::Phase,
        "seen with the next time stamp or within 50 ms",
    ),
    (EventKind::Ended, "seen within 50 ms"),
];

/// The variables of `TCP_INFO`.
pub(crate) fn variables() -> VariableSet {
    let mut set = VariableSet::NONE;
    for group in ["paper", "time", "flight", "rate", "state", "sequence"] {
        set = set.or(group.parse().expect("these groups exist"));
    }
    set
}

/// A thread that observes sockets.
#[derive(Debug)]
pub(crate) struct Unprivileged {
    shared: Arc<Shared>,
    epoll: Arc<OwnedFd>,
    thread: Worker,
}

impl Unprivileged {
    pub(crate) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            bell: Bell::new()?,
        });
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let its = (Arc::clone(&shared), Arc::clone(&epoll));
        let watch = move |stop: &Bell| watch::watch(&its.0, &its.1, stop);
        Ok(Self {
            thread: Worker::start("tcp-events", watch)?,
            shared,
            epoll,
        })
    }

    pub(crate) fn subscribe(
        &self,
        socket: BorrowedFd<'_>,
        wanted: EventRequest,
    ) -> Result<SubscriptionId, EventsError> {
        tcp::check(socket)?;
        let cookie = cookie(socket)?;
        let seen = View::of(socket, None)?;
        let fd = socket.as_raw_fd();
        let mut state = self.state();
        if !state.sockets.contains_key(&cookie) {
            stamps::request(socket, cookie).map_err(|e| match e.raw_os_error() {
                // The stamps have positions in the stream, which a closed socket does not have.
                Some(libc::EINVAL) if seen.state.tcp_state() == Some(TcpState::Closed) => {
                    EventsError::Unconnected
                }
                _ => EventsError::System(e),
            })?;
            // epoll always reports errors and hang-ups; edge-triggered, each once.
            match system::epoll_add(&self.epoll, socket, epoll::EventFlags::ET, cookie) {
                // A socket stays registered as long as any of its descriptors is open.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    stamps::restore(fd, cookie);
                    return Err(EventsError::System(error));
                }
                Ok(()) => {}
            }
            state.fading.remove(&cookie);
        }
        state.last += 1;
        let id = state.last;
        state.places.insert(id, cookie);
        let watched = state.sockets.entry(cookie).or_insert_with(|| Watched {
            fd,
            seen,
            subscriptions: BTreeMap::new(),
        });
        if stamps::still(watched.fd, cookie).is_none() {
            watched.fd = fd;
        }
        let tally = EventCounts::default();
        watched
            .subscriptions
            .insert(id, Subscription { wanted, tally });
        Ok(SubscriptionId(id))
    }

    pub(crate) fn change(
        &self,
        id: SubscriptionId,
        wanted: EventRequest,
    ) -> Result<(), EventsError> {
        self.state().subscription(id)?.wanted = wanted;
        Ok(())
    }

    pub(crate) fn cancel(&self, id: SubscriptionId) -> Result<(), EventsError> {
        let mut state = self.state();
        let place = state.places.remove(&id.0);
        let cookie = place.ok_or(EventsError::NoSubscription)?;
        if let Entry::Occupied(mut watched) = state.sockets.entry(cookie) {
            watched.get_mut().subscriptions.remove(&id.0);
            if watched.get().subscriptions.is_empty() {
                let fd = watched.remove().fd;
                state.release(&self.epoll, &[(cookie, fd)]);
            }
        }
        Ok(())
    }

    pub(crate) fn tally(&self, id: SubscriptionId) -> Result<EventCounts, EventsError> {
        Ok(self.state().subscription(id)?.tally)
    }

    pub(crate) fn try_next(&self) -> Option<Event> {
        let mut state = self.state();
        let event = state.queue.pop_front();
        if state.queue.is_empty() {
            self.shared.bell.quiet();
        }
        event
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state().queue.is_empty()
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.thread.is_running()
    }

    pub(crate) fn readable(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}

impl Drop for Unprivileged {
    fn drop(&mut self) {
        let mut state = self.state();
        let sockets = std::mem::take(&mut state.sockets).into_iter();
        let sockets: Vec<_> = sockets
            .map(|(cookie, watched)| (cookie, watched.fd))
            .collect();
        state.release(&self.epoll, &sockets);
        let is_fading = !state.fading.is_empty();
        drop(state);
        // The thread receives the last stamps first, and may have to wait for them.
        if is_fading {
            self.thread.detach();
        }
    }
}

/// Writes pieces of at most one segment, which the kernel does not join (`MSG_EOR`).
pub(crate) fn write(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let mss: i32 = option(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG)?;
    let mut written = 0;
    for piece in bytes.chunks(mss.max(1) as usize) {
        let sent = match send(socket, piece, SendFlags::EOR | SendFlags::NOSIGNAL) {
            Ok(sent) => sent,
            Err(_) if written > 0 => break,
            Err(e) => return Err(e.into()),
        };
        written += sent;
        if sent < piece.len() {
            break;
        }
    }
    Ok(written)
}

/// Removes a socket from an epoll instance.
fn remove(epoll: &OwnedFd, socket: impl AsFd) -> io::Result<()> {
    Ok(epoll::delete(epoll, socket)?)
}
