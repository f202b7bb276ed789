//! The front of the library: events of sockets, from the kernel or without privilege.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, fmt};

use rustix::event::epoll::{self, EventFlags};
use rustix::net::{SendFlags, send};

use crate::bpf::events::{EventCounts, EventRequest};
use crate::error::EventsError;
use crate::event::{Event, EventKind, EventSet, SubscriptionId};
use crate::session::{DEFAULT_PATH, Session};
use crate::system::{self, input, is_ready, trouble};
use crate::tcp;
use crate::unprivileged::{self, Unprivileged};
use crate::variables::{Snapshot, VariableSet};

/// Events of TCP sockets of this process.
///
/// All methods take `&self`, so one thread may subscribe while another waits. Each event goes to
/// the first thread that takes it.
///
/// ```no_run
/// use std::net::TcpStream;
/// use std::time::Duration;
/// use tidegate_kernel::{Events, EventDetails};
///
/// let stream = TcpStream::connect("192.0.2.1:80")?;
/// let events = Events::open()?;
/// // Everything that the policy allows.
/// events.subscribe(&stream, events.allowed())?;
/// while let Some(event) = events.next(Some(Duration::from_secs(1)))? {
///     if let EventDetails::Timeout { in_a_row, .. } = event.what {
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
    /// Reason why the daemon is not used, if it is not.
    because: Option<String>,
    /// Duration of polling before a sleep, in ns.
    busy: AtomicU64,
}

#[derive(Debug)]
enum Source {
    Kernel(Session),
    Unprivileged(Unprivileged),
}

/// Calls either source.
macro_rules! source {
    ($events:ident, $source:ident => $call:expr) => {
        match &$events.source {
            Source::Kernel($source) => $call,
            Source::Unprivileged($source) => $call,
        }
    };
}

impl Events {
    /// Uses the daemon if one at [`default_path`] answers, is trusted (see [`Self::connect`]), and
    /// has a policy that allows this user anything. Otherwise events come without privilege.
    ///
    /// # Errors
    ///
    /// A daemon answers and refuses, or the system fails.
    pub fn open() -> Result<Self, EventsError> {
        match Self::connect(&default_path()) {
            Err(
                e @ (EventsError::NoDaemon { .. }
                | EventsError::NotPermitted
                | EventsError::Untrusted { .. }),
            ) => {
                let mut events = Self::unprivileged()?;
                events.because = Some(e.to_string());
                Ok(events)
            }
            other => other,
        }
    }

    /// Uses the daemon at this path, with a ring of 1 MiB. Sockets are sent to root and to the user
    /// of this process only, and at `/run/tidegate/events.sock` also to the owner of that
    /// directory: at a path where any user may write, any user may serve.
    ///
    /// # Errors
    ///
    /// No daemon answers, the daemon is of another user ([`EventsError::Untrusted`]), or it
    /// refuses.
    pub fn connect(path: &Path) -> Result<Self, EventsError> {
        Self::connect_with(path, RING)
    }

    /// Uses the daemon at this path, with a ring of this size in bytes: a power of two, from 4 KiB
    /// on, and at most what the policy allows. An event takes 344 bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::connect`].
    pub fn connect_with(path: &Path, ring: u32) -> Result<Self, EventsError> {
        Self::kernel(Session::connect(path, ring)?)
    }

    /// Loads the programs in this process, without a daemon. Needs `CAP_BPF` and `CAP_PERFMON`.
    ///
    /// # Errors
    ///
    /// The kernel cannot load the programs, or this process may not.
    pub fn in_process() -> Result<Self, EventsError> {
        Self::kernel(Session::local(RING)?)
    }

    /// Uses neither privilege nor daemon, but time stamps on the error queues of the sockets and
    /// `TCP_INFO`. Some events are weaker then ([`Self::limited_events`]), the application must not read
    /// the error queue, and should write through [`Self::write`].
    ///
    /// # Errors
    ///
    /// The system fails.
    pub fn unprivileged() -> Result<Self, EventsError> {
        let source = Unprivileged::start()?;
        let readable = join(&[(source.readable(), EventFlags::IN)]);
        Ok(Self {
            readable: readable?,
            source: Source::Unprivileged(source),
            because: None,
            busy: AtomicU64::new(0),
        })
    }

    /// Whether programs in the kernel send the events, instead of an unprivileged observation.
    pub fn from_kernel(&self) -> bool {
        matches!(self.source, Source::Kernel(_))
    }

    /// Reason why [`Self::open`] does not use a daemon, if it does not.
    pub fn why_unprivileged(&self) -> Option<&str> {
        self.because.as_deref()
    }

    /// The events and variables that the policy allows and this kernel has.
    pub fn allowed(&self) -> EventRequest {
        match &self.source {
            Source::Kernel(session) => session.allowed(),
            Source::Unprivileged(_) => EventRequest {
                events: EventSet::ALL,
                variables: unprivileged::variables(),
            },
        }
    }

    /// The events that are weaker than [`EventKind`] says, and how. Those from the kernel are not.
    pub fn limited_events(&self) -> &'static [(EventKind, &'static str)] {
        match self.source {
            Source::Kernel(_) => &[],
            Source::Unprivileged(_) => unprivileged::WEAKER,
        }
    }

    /// Subscribes to events of a socket, until it is closed. A socket may have several
    /// subscriptions, up to eight with the daemon.
    ///
    /// # Errors
    ///
    /// The socket is not a TCP socket, or the policy does not allow the events.
    pub fn subscribe(
        &self,
        socket: impl AsFd,
        wanted: EventRequest,
    ) -> Result<SubscriptionId, EventsError> {
        source!(self, source => source.subscribe(socket.as_fd(), wanted))
    }

    /// Changes the events of a subscription from now on.
    ///
    /// # Errors
    ///
    /// The subscription does not exist, or the policy does not allow the events.
    pub fn change(&self, id: SubscriptionId, wanted: EventRequest) -> Result<(), EventsError> {
        source!(self, source => source.change(id, wanted))
    }

    /// Cancels a subscription. Events that are in the queue still come.
    ///
    /// # Errors
    ///
    /// The subscription does not exist.
    pub fn cancel(&self, id: SubscriptionId) -> Result<(), EventsError> {
        source!(self, source => source.cancel(id))
    }

    /// The number of events of a subscription, and of those that were dropped for lack of room.
    ///
    /// # Errors
    ///
    /// The subscription does not exist.
    pub fn tally(&self, id: SubscriptionId) -> Result<EventCounts, EventsError> {
        source!(self, source => source.tally(id))
    }

    /// The present state of a connection, as far as the policy allows. With the daemon it includes
    /// the counters, if the socket has subscriptions.
    ///
    /// The kernel does not report sequence numbers on request. Those of the result count from zero,
    /// also with the daemon, while those of the daemon's events are the kernel's. Only differences
    /// of the two can be compared.
    ///
    /// # Errors
    ///
    /// The socket is not a TCP socket.
    pub fn probe(&self, socket: impl AsFd) -> Result<Snapshot, EventsError> {
        let state = tcp::probe(&socket)?;
        let allowed = self.allowed().variables;
        let mut state = state.only(allowed);
        let counted = !allowed.and(counters()).is_empty();
        if let Source::Kernel(session) = &self.source
            && counted
        {
            // A socket without subscriptions has no counters.
            if let Ok(counters) = session.counters(socket.as_fd()) {
                for variable in counters.known().iter() {
                    state.set(variable, counters.get(variable).unwrap_or_default());
                }
            }
        }
        Ok(state)
    }

    /// The oldest event, without waiting.
    pub fn try_next(&self) -> Option<Event> {
        source!(self, source => source.try_next())
    }

    /// The oldest event, without waiting, as [`Self::try_next`]. For event loops, which have to see
    /// the end of events.
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

    /// The oldest event. Waits for one up to the limit, or without end.
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
            // Also with no time left: it fails if the daemon is gone.
            self.wait(left, None)?;
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(self.try_next());
            }
        }
    }

    /// Sets how long a thread that waits for an event polls before it sleeps, up to 10 ms, as
    /// `SO_BUSY_POLL` does for sockets. An event in this time needs no wake-up, which takes some 30
    /// µs on a virtual machine. The thread occupies a processor meanwhile. The default is zero: it
    /// sleeps at once.
    ///
    /// This applies to events from the kernel, in [`Self::next`], callbacks, programs and signals.
    /// It has no effect without privilege, and on event loops that poll the descriptor.
    pub fn busy_poll(&self, span: Duration) {
        let span = span.min(MAX_BUSY).as_nanos() as u64;
        self.busy.store(span, Ordering::Relaxed);
    }

    /// Polls before a sleep. Whether there is an event.
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

    /// Waits until there are events, the limit is over, or `also` is readable.
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
                polled.push(input(session.ring_fd()));
                polled.push(trouble(session.daemon_fd()));
            }
            Source::Unprivileged(watch) => polled.push(input(watch.readable())),
        }
        let own = polled.len();
        polled.extend(also.map(input));
        system::poll(&mut polled, limit)?;
        let gone = own == 2 && is_ready(&polled[1]) && !is_ready(&polled[0]);
        if gone && self.is_empty() {
            return Err(EventsError::DaemonGone);
        }
        Ok(())
    }

    /// Whether events can still come. They cannot once the daemon is gone; earlier ones can still
    /// be taken then.
    pub fn is_serving(&self) -> bool {
        match &self.source {
            Source::Kernel(session) => {
                let mut daemon = [trouble(session.daemon_fd())];
                system::poll(&mut daemon, Some(Duration::ZERO)).is_ok() && !is_ready(&daemon[0])
            }
            Source::Unprivileged(watch) => watch.is_serving(),
        }
    }

    /// Whether there is no event.
    pub(crate) fn is_empty(&self) -> bool {
        source!(self, source => source.is_empty())
    }

    /// Writes to a socket as this source of events needs it. With the daemon that is a plain write.
    /// Without privilege it writes pieces of at most one segment, which the kernel does not join,
    /// so that each segment has time stamps of its own. That changes the segments of the stream.
    ///
    /// # Errors
    ///
    /// As [`io::Write::write`]. It may write a part.
    pub fn write(&self, socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
        match &self.source {
            Source::Kernel(_) => Ok(send(socket, bytes, SendFlags::NOSIGNAL)?),
            Source::Unprivileged(_) => unprivileged::write(socket.as_fd(), bytes),
        }
    }

    /// Writes everything in the way of [`Self::write`].
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
        // Of the daemon's socket only hang-ups matter, which epoll always reports.
        let readable = join(&[
            (session.ring_fd(), EventFlags::IN),
            (session.daemon_fd(), EventFlags::empty()),
        ]);
        Ok(Self {
            readable: readable?,
            source: Source::Kernel(session),
            because: None,
            busy: AtomicU64::new(0),
        })
    }
}

/// For event loops: readable when [`Events::try_next`] has an event, or when the daemon is gone,
/// which [`Events::poll`] and [`Events::next`] then report.
impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

/// A thread that polls does not see its stop flag.
const MAX_BUSY: Duration = Duration::from_millis(10);
/// Polls between two readings of the clock: some µs.
const LOOKS: usize = 64;

/// Default path of the daemon's socket: `TIDEGATE_EVENTS_SOCKET` if that is not empty, otherwise
/// `/run/tidegate/events.sock`.
pub fn default_path() -> PathBuf {
    let named = env::var_os("TIDEGATE_EVENTS_SOCKET").filter(|path| !path.is_empty());
    named.map_or_else(|| DEFAULT_PATH.into(), PathBuf::from)
}

impl fmt::Display for EventRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "events: {}; variables: {}", self.events, self.variables)
    }
}

impl EventRequest {
    /// All events and variables.
    pub const ALL: Self = Self {
        events: EventSet::ALL,
        variables: VariableSet::ALL,
    };

    /// Whether it has any event but the end of a connection, which every subscriber receives.
    pub fn has_events(self) -> bool {
        let end = EventSet::NONE.with(EventKind::Ended);
        !self.events.without(end).is_empty()
    }
}

/// The variables that only the daemon has.
fn counters() -> VariableSet {
    "counters".parse().expect("this group exists")
}

/// A descriptor that is readable when one of these is ready.
fn join(parts: &[(BorrowedFd<'_>, EventFlags)]) -> io::Result<OwnedFd> {
    let joined = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (part, events) in parts {
        epoll::add(&joined, part, epoll::EventData::new_u64(0), *events)?;
    }
    Ok(joined)
}

/// Default size of a ring in bytes: 3,000 events.
const RING: u32 = 1 << 20;
