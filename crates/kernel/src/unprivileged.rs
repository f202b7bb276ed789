//! Events without privilege: the error queue as the interrupt, `TCP_INFO` as the status register.
//!
//! Each segment asks for time stamps when it is handed to the device and when it is acknowledged
//! (`SO_TIMESTAMPING`). They come through the socket's error queue and wake a thread, which reads
//! `TCP_INFO` and compares. A retransmission is stamped too, which is why the entry into recovery
//! and time-outs are seen at once. Waking up takes longer than all else, so the thread is awake when
//! a retransmission timer runs out.

mod stamps;
#[cfg(test)]
mod tests;
mod timer;
mod view;
mod watch;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::bpf::monitor::{Tally, Wanted};
use crate::error::EventsError;
use crate::event::{Event, EventKind, Happening, SubscriptionId, TcpState};
use crate::system::{Bell, check, cookie, is_short, monotonic, option, owned};
use crate::tcp;
use crate::variables::{Variable, VariableSet};
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
        "seen when a segment is sent again, which is up to 2 ms later now and then; the number of duplicates is that of segments acknowledged selectively",
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

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Readable while the queue has events.
    bell: Bell,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Event>,
    /// By their cookies: a descriptor may be closed or another socket's by now.
    sockets: BTreeMap<u64, Watched>,
    /// Which of them a subscription is to.
    places: BTreeMap<u64, u64>,
    /// Sockets without subscriptions that still get stamps, of what was written before, by their
    /// cookies with a descriptor of each. An application that polls them must not find those.
    fading: BTreeMap<u64, RawFd>,
    last: u64,
}

/// A socket, how it was seen last, and who wants to hear of it.
#[derive(Debug)]
struct Watched {
    /// One of its descriptors, unless that was closed since.
    fd: RawFd,
    seen: View,
    /// By their numbers.
    subscriptions: BTreeMap<u64, Subscription>,
}

#[derive(Clone, Copy, Debug)]
struct Subscription {
    wanted: Wanted,
    tally: Tally,
}

/// What is asked of a socket that may come to a time-out.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    fd: RawFd,
    acknowledged: u64,
    rto: Duration,
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
                state.let_go(&self.epoll, fd, cookie);
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
        for (cookie, watched) in std::mem::take(&mut state.sockets) {
            state.let_go(&self.epoll, watched.fd, cookie);
        }
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A descriptor of a socket that is watched or still gets stamps.
    fn place(&self, cookie: u64) -> Option<RawFd> {
        let fd = self.lock().place(cookie)?;
        if stamps::still(fd, cookie).is_some() {
            return Some(fd);
        }
        self.follow();
        self.lock().place(cookie)
    }

    /// Finds sockets whose descriptors were closed at others of this process, where they go on.
    /// Those that have none are gone.
    fn follow(&self) {
        let missing = self.lock().missing();
        if missing.is_empty() {
            return;
        }
        let found = match stamps::find(&missing) {
            Ok(found) => found,
            // It takes a descriptor: another time.
            Err(e) if is_short(&e) => return,
            Err(_) => BTreeMap::new(),
        };
        let now = monotonic();
        let mut state = self.lock();
        // Some may have come or gone meanwhile.
        for cookie in state.missing().intersection(&missing) {
            match found.get(cookie) {
                Some(&fd) => state.move_to(*cookie, fd),
                None => state.end(*cookie, now),
            }
        }
        self.tell_of(&state);
    }

    /// Nobody is to look for events where there are none.
    fn tell_of(&self, state: &State) {
        if !state.queue.is_empty() {
            self.bell.ring();
        }
    }

    fn sockets(&self) -> Vec<u64> {
        self.lock().sockets.keys().copied().collect()
    }

    /// Sockets that may come to a time-out, of which somebody wants to hear.
    fn await_timeouts(&self) -> BTreeMap<u64, Waiting> {
        let state = self.lock();
        let waiting = state
            .sockets
            .iter()
            .filter_map(|(&cookie, watched)| Some((cookie, watched.waiting()?)));
        waiting.collect()
    }

    /// The same of one socket.
    fn awaits_timeout(&self, cookie: u64) -> Option<Waiting> {
        self.lock().sockets.get(&cookie)?.waiting()
    }

    /// Looks at a socket and tells its subscribers what has changed. The answer is when a time-out
    /// was seen, if one was.
    fn look(&self, cookie: u64) -> Option<Duration> {
        let mut state = self.lock();
        let watched = state.sockets.get_mut(&cookie)?;
        let now = monotonic();
        let before = watched.seen;
        let socket = stamps::still(watched.fd, cookie)?;
        let mut view = View::of(socket, before.phase).ok()?;
        let happened = view.since(&before);
        watched.seen = view;
        if !happened.is_empty() {
            state.tell(cookie, now, &happened);
            self.tell_of(&state);
        }
        let timeout = |what: &Happening| what.kind() == EventKind::Timeout;
        happened.iter().any(timeout).then_some(now)
    }

    /// Lets go of sockets whose last stamps have come. Whether any are left.
    fn fade(&self, epoll: &OwnedFd) -> bool {
        let mut state = self.lock();
        state.fading.retain(|&cookie, &mut fd| {
            let Some(socket) = stamps::still(fd, cookie) else {
                // Until it is found elsewhere, or nowhere.
                return true;
            };
            let pending = stamps::is_pending(socket);
            stamps::drain(fd);
            if !pending {
                // A socket that has just been closed is not in there any more.
                let _ = remove(epoll, fd);
            }
            pending
        });
        !state.fading.is_empty()
    }
}

impl State {
    fn subscription(&mut self, id: SubscriptionId) -> Result<&mut Subscription, EventsError> {
        let place = self.places.get(&id.0);
        let watched = place.and_then(|cookie| self.sockets.get_mut(cookie));
        let found = watched.and_then(|watched| watched.subscriptions.get_mut(&id.0));
        found.ok_or(EventsError::NoSubscription)
    }

    /// Tells those who want to hear it what happened to a socket.
    fn tell(&mut self, cookie: u64, time: Duration, happened: &[Happening]) {
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

    /// Nobody wants to hear of a socket any more: it is as it was before.
    fn let_go(&mut self, epoll: &OwnedFd, fd: RawFd, cookie: u64) {
        let fd = if stamps::still(fd, cookie).is_some() {
            fd
        } else {
            let found = stamps::find(&BTreeSet::from([cookie]));
            found.unwrap_or_default().remove(&cookie).unwrap_or(fd)
        };
        if stamps::give_back(fd, cookie) {
            self.fading.insert(cookie, fd);
        } else if stamps::still(fd, cookie).is_some() {
            // By a descriptor that is closed it cannot be removed, and nobody is told of it.
            let _ = remove(epoll, fd);
        }
    }

    fn place(&self, cookie: u64) -> Option<RawFd> {
        let watched = self.sockets.get(&cookie).map(|watched| watched.fd);
        watched.or_else(|| self.fading.get(&cookie).copied())
    }

    /// Sockets that are not at their descriptors any more.
    fn missing(&self) -> BTreeSet<u64> {
        let watched = self.sockets.iter().map(|(&cookie, w)| (cookie, w.fd));
        let fading = self.fading.iter().map(|(&cookie, &fd)| (cookie, fd));
        let missing = |&(cookie, fd): &(u64, RawFd)| stamps::still(fd, cookie).is_none();
        let all = watched.chain(fading).filter(missing);
        all.map(|(cookie, _)| cookie).collect()
    }

    fn move_to(&mut self, cookie: u64, to: RawFd) {
        if let Some(watched) = self.sockets.get_mut(&cookie) {
            watched.fd = to;
        }
        if let Some(fd) = self.fading.get_mut(&cookie) {
            *fd = to;
        }
    }

    /// A socket is gone.
    fn end(&mut self, cookie: u64, time: Duration) {
        self.tell(cookie, time, &[Happening::Ended]);
        self.fading.remove(&cookie);
        if let Some(watched) = self.sockets.remove(&cookie) {
            stamps::give_back(watched.fd, cookie);
            for id in watched.subscriptions.keys() {
                self.places.remove(id);
            }
        }
    }
}

impl Watched {
    /// Whether it may come to a time-out that somebody wants to hear of.
    fn waiting(&self) -> Option<Waiting> {
        let timeouts = |s: &Subscription| s.wanted.events.contains(EventKind::Timeout);
        let seen = &self.seen.state;
        let on_the_way = seen.get(Variable::PacketsOut).is_some_and(|n| n > 0);
        let expected = on_the_way && self.subscriptions.values().any(timeouts);
        expected.then(|| Waiting {
            fd: self.fd,
            acknowledged: seen.get(Variable::BytesAcked).unwrap_or_default(),
            rto: seen.rto().unwrap_or_default(),
        })
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

/// Events that nobody takes, before they are dropped.
const LONGEST_QUEUE: usize = 3_000;
