//! Events without privilege: the error queue as the interrupt, `TCP_INFO` as the status register.
//!
//! Each segment asks for time stamps when it is handed to the device and when it is acknowledged
//! (`SO_TIMESTAMPING`). They come through the socket's error queue and wake a thread, which reads
//! `TCP_INFO` and compares. A retransmission is stamped too, which is why the entry into recovery
//! and time-outs are seen at once.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};

use crate::bpf::monitor::{Tally, Wanted};
use crate::error::EventsError;
use crate::event::{CaState, Event, EventKind, Happening, Phase, SubscriptionId, TcpState};
use crate::system::{Bell, be_brisk, check, cookie, monotonic, option, owned, set_option};
use crate::tcp::{self, Info};
use crate::variables::{Snapshot, Variable, VariableSet};

/// Which events are weaker here, and how.
pub(crate) const WEAKER: &[(EventKind, &str)] = &[
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
        "the number of duplicates is that of segments acknowledged selectively",
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
    /// By their numbers.
    subscriptions: BTreeMap<u64, Subscription>,
    /// By descriptor.
    sockets: BTreeMap<RawFd, Watched>,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
struct Subscription {
    socket: RawFd,
    wanted: Wanted,
    tally: Tally,
}

/// A socket, and how it was seen last.
#[derive(Clone, Debug)]
struct Watched {
    /// Of the socket, which tells it from another one with the same descriptor.
    cookie: u64,
    seen: View,
}

/// What is compared.
#[derive(Clone, Copy, Debug)]
struct View {
    state: Snapshot,
    timeouts: Option<u64>,
    waits: Option<[u64; 3]>,
    phase: Option<Phase>,
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
        add(&epoll, stop.as_fd().as_raw_fd(), libc::EPOLLIN as u32)?;
        let watcher = (Arc::clone(&shared), Arc::clone(&epoll), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name("tcp-events".into())
            .spawn(move || watch(&watcher.0, &watcher.1, watcher.2.as_fd().as_raw_fd()))?;
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
        if state.sockets.get(&fd).is_none_or(|s| s.cookie != cookie) {
            set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &STAMPS)
                .map_err(EventsError::System)?;
            // Errors and hang-ups are told without being asked for; each once.
            add(&self.epoll, fd, libc::EPOLLET as u32).map_err(EventsError::System)?;
            state.sockets.insert(fd, Watched { cookie, seen });
        }
        state.last += 1;
        let id = state.last;
        let subscription = Subscription {
            socket: fd,
            wanted,
            tally: Tally::default(),
        };
        state.subscriptions.insert(id, subscription);
        Ok(SubscriptionId(id))
    }

    pub(crate) fn change(&self, id: SubscriptionId, wanted: Wanted) -> Result<(), EventsError> {
        let mut state = self.state();
        let found = state.subscriptions.get_mut(&id.0);
        found.ok_or(EventsError::NoSubscription)?.wanted = wanted;
        Ok(())
    }

    pub(crate) fn cancel(&self, id: SubscriptionId) -> Result<(), EventsError> {
        let mut state = self.state();
        let gone = state.subscriptions.remove(&id.0);
        let fd = gone.ok_or(EventsError::NoSubscription)?.socket;
        if state.subscriptions.values().all(|s| s.socket != fd) {
            state.sockets.remove(&fd);
            // A socket that is closed already is not in there any more.
            let _ = remove(&self.epoll, fd);
        }
        Ok(())
    }

    pub(crate) fn tally(&self, id: SubscriptionId) -> Result<Tally, EventsError> {
        let state = self.state();
        let found = state.subscriptions.get(&id.0);
        Ok(found.ok_or(EventsError::NoSubscription)?.tally)
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

    pub(crate) fn readable(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}

impl Drop for Unprivileged {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            // If it panicked it has said so.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a socket and tells its subscribers what has changed.
    fn look(&self, fd: RawFd) {
        let mut state = self.lock();
        let Some(watched) = state.sockets.get(&fd) else {
            return;
        };
        // SAFETY: the descriptor may be closed or another socket by now, which the cookie tells.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let now = monotonic();
        let before = watched.seen;
        let view = match cookie(socket) {
            Ok(cookie) if cookie == watched.cookie => View::of(socket, before.phase).ok(),
            _ => None,
        };
        let Some(mut view) = view else {
            state.tell(fd, now, &[Happening::Ended], &before.state);
            state.sockets.remove(&fd);
            state.subscriptions.retain(|_, s| s.socket != fd);
            self.bell.ring();
            return;
        };
        let happened = view.since(&before);
        if let Some(watched) = state.sockets.get_mut(&fd) {
            watched.seen = view;
        }
        if !happened.is_empty() {
            state.tell(fd, now, &happened, &view.state);
            self.bell.ring();
        }
    }
}

impl State {
    fn tell(&mut self, socket: RawFd, time: Duration, happened: &[Happening], seen: &Snapshot) {
        let of_socket = |(_, s): &(&u64, &mut Subscription)| s.socket == socket;
        for (&id, subscription) in self.subscriptions.iter_mut().filter(of_socket) {
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
                    state: seen.only(subscription.wanted.variables),
                });
            }
        }
    }
}

impl View {
    fn of(socket: BorrowedFd<'_>, phase: Option<Phase>) -> io::Result<Self> {
        let info = Info::read(socket)?;
        Ok(Self {
            state: tcp::with_sequence(socket, &info),
            timeouts: info.timeouts(),
            waits: info.waits(),
            phase,
        })
    }

    /// What must have happened since, in the order in which it must have.
    fn since(&mut self, before: &Self) -> Vec<Happening> {
        let mut happened = Vec::new();
        let this = self;
        let get = |view: &Self, variable| view.state.get(variable).unwrap_or_default();
        let (old, new) = (before.state.ca_state(), this.state.ca_state());
        let (old, new) = (old.unwrap_or(CaState::Open), new.unwrap_or(CaState::Open));
        let repairs = |s| matches!(s, CaState::Recovery | CaState::Loss);
        if repairs(old) && !repairs(new) {
            happened.push(Happening::Recovered { from: old });
        }
        if new == CaState::Reducing && old != new {
            happened.push(Happening::Reduced);
        }
        if new == CaState::Recovery && old != new {
            let duplicates = get(this, Variable::SackedOut) as u32;
            happened.push(Happening::Recovery { duplicates });
        }
        // Kernels before 6.7 do not count time-outs.
        let timed_out = match (before.timeouts, this.timeouts) {
            (Some(old), Some(new)) => new > old,
            _ => get(this, Variable::Retransmits) > get(before, Variable::Retransmits),
        };
        if timed_out {
            let doubled = u32::from(get(this, Variable::Backoff) > 0);
            happened.push(Happening::Timeout {
                // An acknowledgement may have reset it since.
                in_a_row: get(this, Variable::Retransmits).max(1) as u32,
                after: this.state.rto().unwrap_or_default() / (1 << doubled),
            });
        }
        let below = |v: &Self| get(v, Variable::Cwnd) < get(v, Variable::Ssthresh);
        // A window that shrinks to the threshold does not count.
        let shrinks = |s| matches!(s, CaState::Recovery | CaState::Reducing);
        if below(before) && !below(this) && !shrinks(old) && !shrinks(new) {
            happened.push(Happening::Threshold);
        }
        let states = (before.state.tcp_state(), this.state.tcp_state());
        if let (Some(from), Some(to)) = states
            && from != to
        {
            happened.push(Happening::State { from, to });
        }
        let phase = this.limited_by(before);
        if let Some(to) = phase.filter(|_| phase != before.phase) {
            let from = before.phase;
            happened.push(Happening::Phase { from, to });
        }
        this.phase = phase.or(before.phase);
        happened
    }

    /// What limited the sender since then: whatever made it wait, else what the latest sample of
    /// the delivery rate says.
    fn limited_by(&self, before: &Self) -> Option<Phase> {
        if self.state.tcp_state() != Some(TcpState::Established) {
            return None;
        }
        let ([_, receiver, buffer], [_, was_receiver, was_buffer]) = (self.waits?, before.waits?);
        Some(if receiver > was_receiver {
            Phase::Receiver
        } else if buffer > was_buffer {
            Phase::SendBuffer
        } else if self.state.get(Variable::RateAppLimited) == Some(1) {
            Phase::Application
        } else {
            Phase::Network
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

fn watch(shared: &Shared, epoll: &OwnedFd, stop: RawFd) {
    be_brisk();
    // SAFETY: an event is integers, for which zero is a value.
    let mut ready: [libc::epoll_event; 64] = unsafe { mem::zeroed() };
    let mut looked = Instant::now();
    loop {
        // SAFETY: `ready` is passed with its length.
        let many = unsafe {
            libc::epoll_wait(
                epoll.as_raw_fd(),
                ready.as_mut_ptr(),
                ready.len() as i32,
                IDLE.as_millis() as i32,
            )
        };
        let ready = &ready[..usize::try_from(many).unwrap_or(0)];
        if ready.iter().any(|r| { r.u64 } == stop as u64) {
            return;
        }
        for event in ready {
            let fd = event.u64 as RawFd;
            drain(fd);
            shared.look(fd);
        }
        if looked.elapsed() >= IDLE {
            looked = Instant::now();
            let all: Vec<RawFd> = shared.lock().sockets.keys().copied().collect();
            for fd in all {
                shared.look(fd);
            }
        }
    }
}

/// Empties an error queue: that there is something is all that matters.
fn drain(fd: RawFd) {
    let mut control = [0_u64; 64];
    let mut payload = [0_u8; 1];
    loop {
        let mut part = libc::iovec {
            iov_base: payload.as_mut_ptr().cast(),
            iov_len: payload.len(),
        };
        // SAFETY: a msghdr is integers and pointers, for which zero is a value; it points to
        // buffers that outlive the call, each with its size.
        let result = unsafe {
            let mut header: libc::msghdr = mem::zeroed();
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = mem::size_of_val(&control) as _;
            libc::recvmsg(fd, &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
        };
        if result < 0 {
            return;
        }
    }
}

fn add(epoll: &OwnedFd, fd: RawFd, events: u32) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events,
        u64: fd as u64,
    };
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

/// Stamps when a segment goes to the device and when it is acknowledged, by the kernel, without a
/// copy of the payload, each with its place in the stream.
const STAMPS: u32 = libc::SOF_TIMESTAMPING_TX_SCHED
    | libc::SOF_TIMESTAMPING_TX_ACK
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID
    | libc::SOF_TIMESTAMPING_OPT_TSONLY;
/// How often sockets are looked at that leave no stamps.
const IDLE: Duration = Duration::from_millis(50);
/// Events that nobody takes, before they are dropped.
const LONGEST_QUEUE: usize = 3_000;
