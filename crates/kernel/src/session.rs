//! A client's connection to the daemon, or to a server in this process.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::{fs, io};

use crate::bpf::events::{Tally, Wanted};
use crate::error::EventsError;
use crate::event::{Event, EventKind, EventSet, SubscriptionId};
use crate::events::DEFAULT_PATH;
use crate::passing;
use crate::peer;
use crate::protocol::{LONGEST, Reply, Request, VERSION};
use crate::ring::Ring;
use crate::server::{self, Server};
use crate::system::{self, Bell};
use crate::tcp;
use crate::variables::{Snapshot, Variable, VariableSet};

/// The connection and the ring.
#[derive(Debug)]
pub(crate) struct Session {
    /// Locked for a request with its reply.
    socket: Mutex<OwnedFd>,
    /// Locked for reading: a ring has one reader at a time.
    ring: Mutex<Ring>,
    /// The same descriptors, to wait on without a lock.
    watch: [OwnedFd; 2],
    allowed: Wanted,
    /// Ends last, when the socket is closed.
    _local: Option<Local>,
}

impl Session {
    /// With the daemon at a path.
    pub(crate) fn connect(path: &Path, ring: u32) -> Result<Self, EventsError> {
        let socket = server::connect(path).map_err(|cause| match cause.kind() {
            io::ErrorKind::WouldBlock => EventsError::Silent,
            // It was not even looked for.
            _ if system::is_short(&cause) => EventsError::System(cause),
            _ => EventsError::NoDaemon {
                path: path.into(),
                cause,
            },
        })?;
        trust(socket.as_fd(), path)?;
        Self::open(socket, ring, None)
    }

    /// With a server of our own, which nobody else can reach.
    pub(crate) fn local(ring: u32) -> Result<Self, EventsError> {
        let [ours, its] = system::local_pair().map_err(EventsError::System)?;
        set_nonblocking(its.as_fd()).map_err(EventsError::System)?;
        let stop = Arc::new(Bell::new().map_err(EventsError::System)?);
        let (bell, number) = (Arc::clone(&stop), its.as_raw_fd());
        let (say, hear) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("tcp-events".into())
            .spawn(move || match local_server(number, &bell) {
                Ok(mut server) => {
                    // Nobody hears it if the caller has gone, and then it ends at once.
                    let _ = say.send(Ok(()));
                    // It ends with its only client, whom a failure reaches as the end of the service.
                    let _ = server.run(bell.as_fd());
                }
                Err(why) => drop(say.send(Err(why))),
            })
            .map_err(EventsError::System)?;
        let local = Local {
            stop,
            thread: Some(thread),
        };
        // It panicked, and has said so.
        let ready = hear.recv().unwrap_or(Err(EventsError::Gone));
        // The thread has a copy by now.
        drop(its);
        ready?;
        Self::open(ours, ring, Some(local))
    }

    pub(crate) fn allowed(&self) -> Wanted {
        self.allowed
    }

    pub(crate) fn subscribe(
        &self,
        socket: BorrowedFd<'_>,
        wanted: Wanted,
    ) -> Result<SubscriptionId, EventsError> {
        tcp::check(socket).map_err(EventsError::NotTcp)?;
        let request = Request::Subscribe {
            events: wanted.events.bits(),
            variables: wanted.variables.bits(),
        };
        match self.ask(request, Some(socket))? {
            Reply::Subscribed { id } => Ok(SubscriptionId(id)),
            other => Err(strange(&other)),
        }
    }

    pub(crate) fn change(&self, id: SubscriptionId, wanted: Wanted) -> Result<(), EventsError> {
        self.order(Request::Change {
            id: id.0,
            events: wanted.events.bits(),
            variables: wanted.variables.bits(),
        })
    }

    pub(crate) fn cancel(&self, id: SubscriptionId) -> Result<(), EventsError> {
        self.order(Request::Cancel { id: id.0 })
    }

    pub(crate) fn tally(&self, id: SubscriptionId) -> Result<Tally, EventsError> {
        match self.ask(Request::Tally { id: id.0 }, None)? {
            Reply::Tally { events, lost } => Ok(Tally { events, lost }),
            other => Err(strange(&other)),
        }
    }

    pub(crate) fn counters(&self, socket: BorrowedFd<'_>) -> Result<Snapshot, EventsError> {
        let Reply::Counters { values } = self.ask(Request::Counters {}, Some(socket))? else {
            return Err(EventsError::Strange("no counters".into()));
        };
        let mut counters = Snapshot::new();
        for (number, value) in values {
            if let Some(&variable) = Variable::ALL.get(usize::from(number)) {
                counters.set(variable, value);
            }
        }
        Ok(counters)
    }

    pub(crate) fn try_next(&self) -> Option<Event> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.next()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.is_empty()
    }

    /// What can be read when there are events.
    pub(crate) fn ring_fd(&self) -> BorrowedFd<'_> {
        self.watch[0].as_fd()
    }

    /// What hangs up when the daemon is gone.
    pub(crate) fn daemon_fd(&self) -> BorrowedFd<'_> {
        self.watch[1].as_fd()
    }

    fn open(socket: OwnedFd, size: u32, local: Option<Local>) -> Result<Self, EventsError> {
        let request = Request::Open {
            version: VERSION,
            ring: size,
        };
        let (reply, along) = exchange(&socket, request, None)?;
        let Reply::Opened {
            ring,
            events,
            variables,
        } = reply
        else {
            return Err(strange(&reply));
        };
        let along = along?.ok_or_else(|| EventsError::Strange("no ring came along".into()))?;
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(EventsError::System);
        Ok(Self {
            watch: [copy(&along)?, copy(&socket)?],
            ring: Mutex::new(Ring::map(along, ring).map_err(EventsError::System)?),
            socket: Mutex::new(socket),
            allowed: Wanted {
                events: EventSet::from_bits(events).with(EventKind::Ended),
                variables: VariableSet::from_bits(variables),
            },
            _local: local,
        })
    }

    fn order(&self, request: Request) -> Result<(), EventsError> {
        match self.ask(request, None)? {
            Reply::Done {} => Ok(()),
            other => Err(strange(&other)),
        }
    }

    fn ask(&self, request: Request, along: Option<BorrowedFd<'_>>) -> Result<Reply, EventsError> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        exchange(&socket, request, along).map(|(reply, _)| reply)
    }
}

/// A server in this process.
#[derive(Debug)]
struct Local {
    stop: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

/// The server for the client at the other end of this socket, on the thread that is to serve. The
/// application may fork: links to programs that a child has copies of keep them in the kernel, so
/// they are in a table of descriptors of their own.
fn local_server(client: RawFd, bell: &Bell) -> Result<Server, EventsError> {
    // SAFETY: this thread has nothing of before but these two, of which it gets copies. That of the
    // bell is closed with the table.
    let client = unsafe {
        system::own_descriptors(&[client, bell.as_fd().as_raw_fd()])
            .map_err(EventsError::System)?;
        OwnedFd::from_raw_fd(client)
    };
    let mut server = Server::within().map_err(EventsError::Load)?;
    server.adopt(client).map_err(EventsError::System)?;
    Ok(server)
}

impl Drop for Local {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            // If it panicked it has said so.
            let _ = thread.join();
        }
    }
}

/// Sees that who serves there may have this process's sockets.
fn trust(socket: BorrowedFd<'_>, path: &Path) -> Result<(), EventsError> {
    use std::os::unix::fs::MetadataExt as _;
    let user = peer::serving_user(socket).map_err(EventsError::System)?;
    // In `/run` only root makes folders, and whose they are root has said.
    let keeper = path.parent().filter(|_| path == Path::new(DEFAULT_PATH));
    let keeper = keeper.and_then(|folder| Some(fs::metadata(folder).ok()?.uid()));
    let own = peer::own_user();
    if peer::may_serve(user, own, keeper) {
        return Ok(());
    }
    Err(EventsError::Untrusted {
        path: path.into(),
        user,
        own,
    })
}

/// A descriptor that came with a reply, if one did.
type Along = Result<Option<OwnedFd>, EventsError>;

fn exchange(
    socket: &OwnedFd,
    request: Request,
    along: Option<BorrowedFd<'_>>,
) -> Result<(Reply, Along), EventsError> {
    let mut buffer = [0; LONGEST];
    let gone = |e: io::Error| match e.kind() {
        io::ErrorKind::WouldBlock => {
            // What it says later is no answer to what is asked next.
            hang_up(socket);
            EventsError::Silent
        }
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => EventsError::Gone,
        _ => EventsError::System(e),
    };
    // A daemon that refuses a newcomer says why and hangs up, perhaps before it is asked.
    let sent = passing::send(socket.as_fd(), &request.message(), along);
    let received = match passing::receive(socket.as_fd(), &mut buffer) {
        // What we said was not read: the system tells of that first, once.
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
            passing::receive(socket.as_fd(), &mut buffer)
        }
        received => received,
    };
    let received = received.map_err(gone)?;
    if received.length == 0 {
        sent.map_err(gone)?;
        return Err(EventsError::Gone);
    }
    let reply = serde_json::from_slice(&buffer[..received.length]);
    match reply.map_err(|e| EventsError::Strange(e.to_string()))? {
        Reply::Barred {} => Err(EventsError::Barred),
        Reply::Refused { why } => Err(EventsError::Refused(why)),
        reply if received.bereft => {
            let full = io::Error::from_raw_os_error(libc::EMFILE);
            Ok((reply, Err(EventsError::System(full))))
        }
        reply => Ok((reply, Ok(received.along.into_iter().next()))),
    }
}

/// Nothing more comes or goes, and whoever waits for the daemon's end is woken.
fn hang_up(socket: &OwnedFd) {
    // SAFETY: takes numbers and touches no memory.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
    // What came meanwhile is read no more.
    while passing::receive(socket.as_fd(), &mut [0]).is_ok_and(|r| r.length > 0) {}
}

fn strange(reply: &Reply) -> EventsError {
    EventsError::Strange(format!("{reply:?}"))
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes numbers and touches no memory.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    let flags = system::check(flags)? | libc::O_NONBLOCK;
    // SAFETY: as above.
    system::check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_daemon_that_does_not_answer_is_given_up() {
        let [ours, its] = system::local_pair().unwrap();
        system::limit(ours.as_fd(), Duration::from_millis(20)).unwrap();
        let ask = || exchange(&ours, Request::Counters {}, None).map(|(reply, _)| reply);
        let silent = ask().unwrap_err();
        assert!(matches!(silent, EventsError::Silent), "{silent}");
        // Too late: it is not taken for the answer to what comes next.
        let late = Reply::Done {}.message();
        assert!(passing::send(its.as_fd(), &late, None).is_err());
        let gone = ask().unwrap_err();
        assert!(matches!(gone, EventsError::Gone), "{gone}");
    }
}
