//! Events without privilege: the error queue as the interrupt, `TCP_INFO` as the status register.
//!
//! Each segment asks for time stamps when it is handed to the device and when it is acknowledged
//! (`SO_TIMESTAMPING`). They come through the socket's error queue and wake a thread, which reads
//! `TCP_INFO` and compares. A retransmission is stamped too, which is why the entry into recovery
//! and time-outs are seen at once. Waking up takes longer than all else, so the thread is awake when
//! a retransmission timer runs out.

mod disorder;
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
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use crate::bpf::events::{Tally, Wanted};
use crate::error::EventsError;
use crate::event::{Event, EventKind, SubscriptionId, TcpState};
use crate::system::{Bell, check, cookie, option, owned};
use crate::tcp;
use crate::variables::VariableSet;
use shared::{Shared, State, Subscription, Waiting, Watched};
use view::View;

/// Which events are weaker here, and how.
pub(crate) const WEAKER: &[(EventKind, &str)] = &[
    (
        EventKind::Timeout,
        "time and state are those of the look, soon after; several between two looks are told as one",
    ),
    (
        EventKind::Threshold,
        "seen when the next time stamp comes in, and only if the window is still above then",
    ),
    (
        EventKind::ThirdDuplicate,
        "never seen: duplicate ACKs leave no time stamp",
    ),
    (
        EventKind::Recovery,
        "seen at once behind duplicate ACKs for which something new was sent, else when a segment is sent again, up to 2 ms later; the number of duplicates is that of segments acknowledged selectively",
    ),
    (
        EventKind::Recovered,
        "seen with the next time stamp; one that begins and ends between two is missed",
    ),
    (
        EventKind::Reduced,
        "seen with the next time stamp, and missed if it is over by then",
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

/// What `TCP_INFO` tells.
pub(crate) fn variables() -> VariableSet {
    let mut set = VariableSet::NONE;
    for group in ["paper", "time", "flight", "rate", "state", "sequence"] {
        set = set.or(group.parse().expect("these groups are there"));
    }
    set
}

/// A thread that watches sockets.
#[derive(Debug)]
pub(crate) struct Unprivileged {
    shared: Arc<Shared>,
    epoll: Arc<OwnedFd>,
    stop: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Unprivileged {
    pub(crate) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            bell: Bell::new()?,
        });
        // SAFETY: takes a number and touches no memory.
        let epoll = Arc::new(owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?);
        let stop = Arc::new(Bell::new()?);
        let events = libc::EPOLLIN as u32;
        add(&epoll, stop.as_fd().as_raw_fd(), events, watch::STOP)?;
        let watcher = (Arc::clone(&shared), Arc::clone(&epoll), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name("tcp-events".into())
            .spawn(move || watch::watch(&watcher.0, &watcher.1, watcher.2.as_fd().as_raw_fd()))?;
        Ok(Self {
            shared,
            epoll,
            stop,
            thread: Some(thread),
        })
    }

    pub(crate) fn subscribe(
        &self,
        socket: BorrowedFd<'_>,
        wanted: Wanted,
    ) -> Result<SubscriptionId, EventsError> {
        tcp::check(socket).map_err(EventsError::NotTcp)?;
        let cookie = cookie(socket).map_err(EventsError::System)?;
        let seen = View::of(socket, None).map_err(EventsError::System)?;
        let fd = socket.as_raw_fd();
        let mut state = self.state();
        if !state.sockets.contains_key(&cookie) {
            stamps::ask(socket, cookie).map_err(|e| match e.raw_os_error() {
                // Places in a stream that there is not yet, or no more, cannot be stamped.
                Some(libc::EINVAL) if seen.state.tcp_state() == Some(TcpState::Closed) => {
                    EventsError::Unconnected
                }
                _ => EventsError::System(e),
            })?;
            // Errors and hang-ups are told without being asked for; each once.
            match add(&self.epoll, fd, libc::EPOLLET as u32, cookie) {
                // It is in there as long as any of its descriptors is open.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    stamps::give_back(fd, cookie);
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
        let tally = Tally::default();
        watched
            .subscriptions
            .insert(id, Subscription { wanted, tally });
        Ok(SubscriptionId(id))
    }

    pub(crate) fn change(&self, id: SubscriptionId, wanted: Wanted) -> Result<(), EventsError> {
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
                state.let_go(&self.epoll, &[(cookie, fd)]);
            }
        }
        Ok(())
    }

    pub(crate) fn tally(&self, id: SubscriptionId) -> Result<Tally, EventsError> {
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
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
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
        state.let_go(&self.epoll, &sockets);
        let lasts = !state.fading.is_empty();
        drop(state);
        self.stop.ring();
        // The thread takes the last stamps, and may have to wait for them.
        if let Some(thread) = self.thread.take().filter(|_| !lasts) {
            // If it panicked it has said so.
            let _ = thread.join();
        }
    }
}

/// Writes pieces of at most one segment that the kernel does not join (`MSG_EOR`).
pub(crate) fn write(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let mss: i32 = option(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG)?;
    let mut written = 0;
    for piece in bytes.chunks(mss.max(1) as usize) {
        // SAFETY: reads `piece.len()` bytes from `piece`.
        let sent = unsafe {
            libc::send(
                socket.as_raw_fd(),
                piece.as_ptr().cast(),
                piece.len(),
                libc::MSG_EOR | libc::MSG_NOSIGNAL,
            )
        };
        let Ok(sent) = usize::try_from(sent) else {
            let error = io::Error::last_os_error();
            return if written > 0 { Ok(written) } else { Err(error) };
        };
        written += sent;
        if sent < piece.len() {
            break;
        }
    }
    Ok(written)
}

fn add(epoll: &OwnedFd, fd: RawFd, events: u32, name: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: name };
    // SAFETY: `event` is whole.
    let added =
        unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    check(added).map(drop)
}

fn remove(epoll: &OwnedFd, fd: RawFd) -> io::Result<()> {
    // SAFETY: removal takes no event.
    let removed = unsafe {
        libc::epoll_ctl(
            epoll.as_raw_fd(),
            libc::EPOLL_CTL_DEL,
            fd,
            std::ptr::null_mut(),
        )
    };
    check(removed).map(drop)
}
