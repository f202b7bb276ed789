//! The library's front: events of sockets, whoever sees them.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, fmt};

use crate::bpf::events::{Tally, Wanted};
use crate::error::EventsError;
use crate::event::{Event, EventKind, EventSet, SubscriptionId};
use crate::session::Session;
use crate::system::{self, Polled, check, owned};
use crate::tcp;
use crate::unprivileged::{self, Unprivileged};
use crate::variables::{Snapshot, VariableSet};

/// Events of TCP sockets of this process.
///
/// All methods take `&self`, so one thread may subscribe while another waits. An event goes to
/// whoever takes it first.
///
/// ```no_run
/// use std::net::TcpStream;
/// use std::time::Duration;
/// use tidegate_kernel::{Events, Happening};
///
/// let stream = TcpStream::connect("192.0.2.1:80")?;
/// let events = Events::open()?;
/// // All that the policy allows.
/// events.subscribe(&stream, events.allowed())?;
/// while let Some(event) = events.next(Some(Duration::from_secs(1)))? {
///     if let Happening::Timeout { in_a_row, .. } = event.what {
///         println!("time-out {in_a_row}, unsent {:?}", event.state.unsent());
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Events {
    source: Source,
    /// Readable when there are events, or the daemon is gone.
    readable: OwnedFd,
    /// Why there is no daemon, if there is none.
    because: Option<String>,
    /// For how long to look for events before sleeping, in ns.
    busy: AtomicU64,
}

#[derive(Debug)]
enum Source {
    Kernel(Session),
    Unprivileged(Unprivileged),
}

impl Events {
    /// From the daemon where one answers at [`default_path`] that may be trusted (see
    /// [`Self::connect`]) and whose policy allows this user anything, else without privilege.
    ///
    /// # Errors
    ///
    /// A daemon is there and refuses, or the system fails.
    pub fn open() -> Result<Self, EventsError> {
        match Self::connect(&default_path()) {
            Err(
                e @ (EventsError::NoDaemon { .. }
                | EventsError::Barred
                | EventsError::Untrusted { .. }),
            ) => {
                let mut events = Self::unprivileged()?;
                events.because = Some(e.to_string());
                Ok(events)
            }
            other => other,
        }
    }

    /// From the daemon at this path, with a ring of 1 MiB. Sockets are handed over to root and to
    /// this process's own user only, and at `/run/tidegate/events.sock` also to the owner of that
    /// folder: anybody may serve at a path where anybody may write.
    ///
    /// # Errors
    ///
    /// No daemon answers, one of another user does ([`EventsError::Untrusted`]), or it refuses.
    pub fn connect(path: &Path) -> Result<Self, EventsError> {
        Self::connect_with(path, RING)
    }

    /// From the daemon at this path, with a ring of so many bytes: a power of two, from 4 KiB on. It
    /// has no more than the policy gives. An event takes 344.
    ///
    /// # Errors
    ///
    /// As [`Self::connect`].
    pub fn connect_with(path: &Path, ring: u32) -> Result<Self, EventsError> {
        Self::kernel(Session::connect(path, ring)?)
    }

    /// From the kernel, without a daemon: this process loads the programs for itself. Needs
    /// `CAP_BPF` and `CAP_PERFMON`.
    ///
    /// # Errors
    ///
    /// The kernel cannot or does not let us.
    pub fn in_process() -> Result<Self, EventsError> {
        Self::kernel(Session::local(RING)?)
    }

    /// Without privilege and daemon: from time stamps on the error queues of the sockets and
    /// `TCP_INFO`. Some events are then weaker ([`Self::weaker`]), the error queue is read here
    /// and nowhere else, and what is written should go through [`Self::write`].
    ///
    /// # Errors
    ///
    /// The system fails.
    pub fn unprivileged() -> Result<Self, EventsError> {
        let source = Unprivileged::start().map_err(EventsError::System)?;
        let readable = join(&[(source.readable(), libc::EPOLLIN as u32)]);
        Ok(Self {
            readable: readable.map_err(EventsError::System)?,
            source: Source::Unprivileged(source),
            because: None,
            busy: AtomicU64::new(0),
        })
    }

    /// Whether events come from the kernel itself, and not from what an unprivileged process can
    /// see.
    pub fn from_kernel(&self) -> bool {
        matches!(self.source, Source::Kernel(_))
    }

    /// Why [`Self::open`] found no daemon that serves this user, if it found none.
    pub fn why_unprivileged(&self) -> Option<&str> {
        self.because.as_deref()
    }

    /// What the policy lets this process have, and this kernel can.
    pub fn allowed(&self) -> Wanted {
        match &self.source {
            Source::Kernel(session) => session.allowed(),
            Source::Unprivileged(_) => Wanted {
                events: EventSet::ALL,
                variables: unprivileged::variables(),
            },
        }
    }

    /// Which events are weaker than [`EventKind`] says, and how. None are where they come from the
    /// kernel itself.
    pub fn weaker(&self) -> &'static [(EventKind, &'static str)] {
        match self.source {
            Source::Kernel(_) => &[],
            Source::Unprivileged(_) => unprivileged::WEAKER,
        }
    }

    /// Hears of these events of a socket, from now on and until it is closed. There may be several
    /// subscriptions to a socket, up to eight with the daemon.
    ///
    /// # Errors
    ///
    /// It is no TCP socket, or the policy does not allow it.
    pub fn subscribe(
        &self,
        socket: impl AsFd,
        wanted: Wanted,
    ) -> Result<SubscriptionId, EventsError> {
        match &self.source {
            Source::Kernel(session) => session.subscribe(socket.as_fd(), wanted),
            Source::Unprivileged(watch) => watch.subscribe(socket.as_fd(), wanted),
        }
    }

    /// Hears of other events from now on.
    ///
    /// # Errors
    ///
    /// There is no such subscription, or the policy does not allow it.
    pub fn change(&self, id: SubscriptionId, wanted: Wanted) -> Result<(), EventsError> {
        match &self.source {
            Source::Kernel(session) => session.change(id, wanted),
            Source::Unprivileged(watch) => watch.change(id, wanted),
        }
    }

    /// Hears no more. Events that are on their way still come.
    ///
    /// # Errors
    ///
    /// There is no such subscription.
    pub fn cancel(&self, id: SubscriptionId) -> Result<(), EventsError> {
        match &self.source {
            Source::Kernel(session) => session.cancel(id),
            Source::Unprivileged(watch) => watch.cancel(id),
        }
    }

    /// How many events a subscription had, and how many of them were dropped because nobody read.
    ///
    /// # Errors
    ///
    /// There is no such subscription.
    pub fn tally(&self, id: SubscriptionId) -> Result<Tally, EventsError> {
        match &self.source {
            Source::Kernel(session) => session.tally(id),
            Source::Unprivileged(watch) => watch.tally(id),
        }
    }

    /// The state of a connection at this moment, as far as the policy allows, with what is counted
    /// of it where the daemon counts: while it has subscriptions.
    ///
    /// The kernel tells no sequence numbers on request. Those in here count from zero, with the
    /// daemon too, while those of the daemon's events are the kernel's: only their differences can
    /// be compared.
    ///
    /// # Errors
    ///
    /// It is no TCP socket.
    pub fn probe(&self, socket: impl AsFd) -> Result<Snapshot, EventsError> {
        let state = tcp::probe(&socket).map_err(EventsError::NotTcp)?;
        let allowed = self.allowed().variables;
        let mut state = state.only(allowed);
        let counted = !allowed.and(counters()).is_empty();
        if let Source::Kernel(session) = &self.source
            && counted
        {
            // Of a socket without subscriptions nothing is counted.
            if let Ok(counters) = session.counters(socket.as_fd()) {
                for variable in counters.known().iter() {
                    state.set(variable, counters.get(variable).unwrap_or_default());
                }
            }
        }
        Ok(state)
    }

    /// The oldest event that nobody took, without waiting.
    pub fn try_next(&self) -> Option<Event> {
        match &self.source {
            Source::Kernel(session) => session.try_next(),
            Source::Unprivileged(watch) => watch.try_next(),
        }
    }

    /// The oldest event that nobody took, without waiting, as [`Self::try_next`]; for event loops
    /// that have to know when there will be no more.
    ///
    /// # Errors
    ///
    /// The daemon is gone, or the system fails.
    pub fn poll(&self) -> Result<Option<Event>, EventsError> {
        if let Some(event) = self.try_next() {
            return Ok(Some(event));
        }
        self.wait(Some(Duration::ZERO), None)?;
        Ok(self.try_next())
    }

    /// The oldest event that nobody took; waits for one as long as given, or for ever.
    ///
    /// # Errors
    ///
    /// The daemon is gone, or the system fails.
    pub fn next(&self, limit: Option<Duration>) -> Result<Option<Event>, EventsError> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            if let Some(event) = self.try_next() {
                return Ok(Some(event));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            // Also without time to wait it says whether the daemon is gone.
            self.wait(left, None)?;
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(self.try_next());
            }
        }
    }

    /// For so long, at most 10 ms, whoever waits for an event looks for it before going to sleep, as
    /// `SO_BUSY_POLL` of sockets does. An event that comes meanwhile wakes nobody up, which takes some
    /// 30 µs on a virtual machine; a processor is busy all the while. Zero, which it is at first,
    /// sleeps at once.
    ///
    /// This is for events from the kernel, whoever waits: [`Self::next`], callbacks, programs and
    /// signals. Without privilege it changes nothing, and neither do event loops that wait for
    /// themselves.
    pub fn busy_poll(&self, span: Duration) {
        let span = span.min(MOST_BUSY).as_nanos() as u64;
        self.busy.store(span, Ordering::Relaxed);
    }

    /// Whether an event came within the time to look for it.
    fn comes_soon(&self, limit: Option<Duration>) -> bool {
        let busy = Duration::from_nanos(self.busy.load(Ordering::Relaxed));
        let busy = busy.min(limit.unwrap_or(busy));
        if busy.is_zero() || !self.from_kernel() {
            return false;
        }
        let start = Instant::now();
        while start.elapsed() < busy {
            for _ in 0..LOOKS {
                if !self.is_empty() {
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        false
    }

    /// Waits until there are events, the time is over, or `also` can be read.
    pub(crate) fn wait(
        &self,
        limit: Option<Duration>,
        also: Option<BorrowedFd<'_>>,
    ) -> Result<(), EventsError> {
        let start = Instant::now();
        if self.comes_soon(limit) {
            return Ok(());
        }
        let limit = limit.map(|limit| limit.saturating_sub(start.elapsed()));
        let mut polled = Vec::with_capacity(3);
        match &self.source {
            Source::Kernel(session) => {
                polled.push(Polled::input(session.ring_fd()));
                polled.push(Polled::trouble(session.daemon_fd()));
            }
            Source::Unprivileged(watch) => polled.push(Polled::input(watch.readable())),
        }
        let own = polled.len();
        polled.extend(also.map(Polled::input));
        system::poll(&mut polled, limit).map_err(EventsError::System)?;
        let gone = own == 2 && polled[1].is_ready() && !polled[0].is_ready();
        if gone && self.is_empty() {
            return Err(EventsError::Gone);
        }
        Ok(())
    }

    /// Whether events can still come: not after the daemon is gone. Those that came before may
    /// still wait to be taken.
    pub fn is_serving(&self) -> bool {
        match &self.source {
            Source::Kernel(session) => {
                let mut daemon = [Polled::trouble(session.daemon_fd())];
                system::poll(&mut daemon, Some(Duration::ZERO)).is_ok() && !daemon[0].is_ready()
            }
            Source::Unprivileged(watch) => watch.is_serving(),
        }
    }

    /// Whether no event waits to be taken.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.source {
            Source::Kernel(session) => session.is_empty(),
            Source::Unprivileged(watch) => watch.is_empty(),
        }
    }

    /// Writes to a socket as this source of events needs it: with the daemon as it is; without, in
    /// pieces of at most one segment that the kernel does not join, so that each segment's time
    /// stamps tell of it. That changes how the stream is cut into segments.
    ///
    /// # Errors
    ///
    /// As [`io::Write::write`], also that it wrote less than everything.
    pub fn write(&self, socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
        match &self.source {
            Source::Kernel(_) => {
                let copy = socket.as_fd().as_raw_fd();
                // SAFETY: reads `bytes.len()` bytes from `bytes`.
                let sent = unsafe {
                    libc::send(copy, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
                };
                usize::try_from(sent).map_err(|_| io::Error::last_os_error())
            }
            Source::Unprivileged(_) => unprivileged::write(socket.as_fd(), bytes),
        }
    }

    /// Writes everything, as [`Self::write`] does.
    ///
    /// # Errors
    ///
    /// As [`io::Write::write_all`].
    pub fn write_all(&self, socket: impl AsFd, bytes: &[u8]) -> io::Result<()> {
        struct Through<'a>(&'a Events, BorrowedFd<'a>);
        impl io::Write for Through<'_> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.write(self.1, bytes)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        Through(self, socket.as_fd()).write_all(bytes)
    }

    fn kernel(session: Session) -> Result<Self, EventsError> {
        let input = libc::EPOLLIN as u32;
        // Of the daemon's end only that it hangs up matters, which needs no asking for.
        let readable = join(&[(session.ring_fd(), input), (session.daemon_fd(), 0)]);
        Ok(Self {
            readable: readable.map_err(EventsError::System)?,
            source: Source::Kernel(session),
            because: None,
            busy: AtomicU64::new(0),
        })
    }
}

/// For event loops: it can be read when [`Events::try_next`] has something, or when the daemon is
/// gone, which [`Events::poll`] and [`Events::next`] then say.
impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

/// Who waits may also have to hear that it is over.
const MOST_BUSY: Duration = Duration::from_millis(10);
/// Between two looks at the clock: some µs.
const LOOKS: usize = 64;

/// Where the daemon is looked for: `TIDEGATE_EVENTS_SOCKET` if that is not empty, or
/// `/run/tidegate/events.sock`.
pub fn default_path() -> PathBuf {
    let named = env::var_os("TIDEGATE_EVENTS_SOCKET").filter(|path| !path.is_empty());
    named.map_or_else(|| DEFAULT_PATH.into(), PathBuf::from)
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "events: {}; variables: {}", self.events, self.variables)
    }
}

impl Wanted {
    /// Everything.
    pub const ALL: Self = Self {
        events: EventSet::ALL,
        variables: VariableSet::ALL,
    };

    /// Whether it has any event but the end of a connection, which is told to everybody.
    pub fn has_events(self) -> bool {
        let end = EventSet::NONE.with(EventKind::Ended);
        !self.events.without(end).is_empty()
    }
}

/// What only the daemon can tell.
fn counters() -> VariableSet {
    "counters".parse().expect("this group is there")
}

/// One descriptor for several.
fn join(parts: &[(BorrowedFd<'_>, u32)]) -> io::Result<OwnedFd> {
    // SAFETY: takes a number and touches no memory.
    let joined = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    for &(part, events) in parts {
        let mut event = libc::epoll_event { events, u64: 0 };
        // SAFETY: `event` is whole.
        check(unsafe {
            libc::epoll_ctl(
                joined.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                part.as_raw_fd(),
                &raw mut event,
            )
        })?;
    }
    Ok(joined)
}

/// Bytes of a ring unless another size is asked for: 3,000 events.
const RING: u32 = 1 << 20;
pub(crate) const DEFAULT_PATH: &str = "/run/tidegate/events.sock";
