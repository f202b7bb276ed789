//! A client's connection to the daemon, or to a server in this process.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError, mpsc};
use std::{fs, io};

use rustix::io::ioctl_fionbio;
use rustix::net::{Shutdown, shutdown};

use crate::bpf::events::{EventCounts, EventRequest};
use crate::error::EventsError;
use crate::event::{Event, EventKind, EventSet, SubscriptionId};
use crate::peer_cred;
use crate::protocol::{LONGEST, Reply, Request, VERSION};
use crate::ring::Ring;
use crate::scm_rights;
use crate::server::{self, Server};
use crate::system::{self, Bell, Worker};
use crate::tcp;
use crate::variables::{Snapshot, Variable, VariableSet};

/// The connection and its ring.
#[derive(Debug)]
pub(crate) struct Session {
    /// Locked for a request with its reply.
    socket: Mutex<OwnedFd>,
    /// Locked for reading: a ring has one reader at a time.
    ring: Mutex<Ring>,
    /// Duplicates of the two descriptors, to poll them without a lock.
    polled: [OwnedFd; 2],
    allowed: EventRequest,
    /// The server in this process. Dropped last, when the socket is closed.
    _local: Option<Worker>,
}

impl Session {
    /// Connects to the daemon at a path.
    pub(crate) fn connect(path: &Path, ring: u32) -> Result<Self, EventsError> {
        let socket = server::connect(path).map_err(|cause| match cause.kind() {
            io::ErrorKind::WouldBlock => EventsError::Silent,
            // The error is of this process.
            _ if system::is_short(&cause) => EventsError::System(cause),
            _ => EventsError::NoDaemon {
                path: path.into(),
                cause,
            },
        })?;
        check_trust(socket.as_fd(), path)?;
        Self::open(socket, ring, None)
    }

    /// Starts a server on a thread of this process, for this session only.
    pub(crate) fn local(ring: u32) -> Result<Self, EventsError> {
        let [ours, its] = system::local_pair()?;
        ioctl_fionbio(&its, true).map_err(io::Error::from)?;
        let number = its.as_raw_fd();
        let (sender, ready) = mpsc::channel();
        let serve = move |stop: &Bell| match local_server(number, stop) {
            Ok(mut server) => {
                // It fails if the caller has gone, and the server ends at once then.
                let _ = sender.send(Ok(()));
                // The client sees a failure as the end of the connection.
                let _ = server.run(stop.as_fd());
            }
            Err(why) => drop(sender.send(Err(why))),
        };
        let local = Worker::start("tcp-events", serve)?;
        // No message means that the thread has panicked, which has printed its message.
        let ready = ready.recv().unwrap_or(Err(EventsError::DaemonGone));
        // The thread has its copy by now.
        drop(its);
        ready?;
        Self::open(ours, ring, Some(local))
    }

    pub(crate) fn allowed(&self) -> EventRequest {
        self.allowed
    }

    pub(crate) fn subscribe(
        &self,
        socket: BorrowedFd<'_>,
        wanted: EventRequest,
    ) -> Result<SubscriptionId, EventsError> {
        tcp::check(socket)?;
        let request = Request::Subscribe {
            events: wanted.events.bits(),
            variables: wanted.variables.bits(),
        };
        match self.request(request, Some(socket))? {
            Reply::Subscribed { id } => Ok(SubscriptionId(id)),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn change(
        &self,
        id: SubscriptionId,
        wanted: EventRequest,
    ) -> Result<(), EventsError> {
        self.command(Request::Change {
            id: id.0,
            events: wanted.events.bits(),
            variables: wanted.variables.bits(),
        })
    }

    pub(crate) fn cancel(&self, id: SubscriptionId) -> Result<(), EventsError> {
        self.command(Request::Cancel { id: id.0 })
    }

    pub(crate) fn tally(&self, id: SubscriptionId) -> Result<EventCounts, EventsError> {
        match self.request(Request::Tally { id: id.0 }, None)? {
            Reply::Tally { events, lost } => Ok(EventCounts { events, lost }),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn counters(&self, socket: BorrowedFd<'_>) -> Result<Snapshot, EventsError> {
        let Reply::Counters { values } = self.request(Request::Counters {}, Some(socket))? else {
            return Err(EventsError::Strange("no counters in the reply".into()));
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

    /// Readable when there are events.
    pub(crate) fn ring_fd(&self) -> BorrowedFd<'_> {
        self.polled[0].as_fd()
    }

    /// Hangs up when the daemon is gone.
    pub(crate) fn daemon_fd(&self) -> BorrowedFd<'_> {
        self.polled[1].as_fd()
    }

    fn open(socket: OwnedFd, size: u32, local: Option<Worker>) -> Result<Self, EventsError> {
        let request = Request::Open {
            version: VERSION,
            ring: size,
        };
        let (reply, descriptor) = exchange(&socket, request, None)?;
        let Reply::Opened {
            ring,
            events,
            variables,
        } = reply
        else {
            return Err(unexpected(&reply));
        };
        let descriptor = descriptor?;
        let descriptor = descriptor.ok_or_else(|| EventsError::Strange("no ring".into()))?;
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(EventsError::System);
        Ok(Self {
            polled: [copy(&descriptor)?, copy(&socket)?],
            ring: Mutex::new(Ring::map(descriptor, ring)?),
            socket: Mutex::new(socket),
            allowed: EventRequest {
                events: EventSet::from_bits(events).with(EventKind::Ended),
                variables: VariableSet::from_bits(variables),
            },
            _local: local,
        })
    }

    fn command(&self, request: Request) -> Result<(), EventsError> {
        match self.request(request, None)? {
            Reply::Done {} => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn request(
        &self,
        request: Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Reply, EventsError> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        exchange(&socket, request, descriptor).map(|(reply, _)| reply)
    }
}

/// The server for the client at the other end of this socket, on the thread that is to serve. Its
/// descriptors are in a table of their own: a child of an application that forks would have copies
/// of the links to the programs, and these keep the programs in the kernel.
fn local_server(client: RawFd, stop: &Bell) -> Result<Server, EventsError> {
    // SAFETY: this thread uses these two descriptors only. The copy of the client's is owned here,
    // that of the bell is closed with the table.
    let client = unsafe {
        system::unshare_descriptors(&[client, stop.as_fd().as_raw_fd()])?;
        OwnedFd::from_raw_fd(client)
    };
    let mut server = Server::within().map_err(EventsError::Load)?;
    server.adopt(client)?;
    Ok(server)
}

/// Checks that the user of the server may receive sockets of this process.
fn check_trust(socket: BorrowedFd<'_>, path: &Path) -> Result<(), EventsError> {
    use std::os::unix::fs::MetadataExt as _;
    let user = peer_cred::server_user(socket)?;
    // Only root can make directories in `/run`, so root has chosen the owner.
    let directory = path.parent().filter(|_| path == Path::new(DEFAULT_PATH));
    let owner = directory.and_then(|directory| Some(fs::metadata(directory).ok()?.uid()));
    let own = peer_cred::effective_user();
    if peer_cred::is_trusted(user, own, owner) {
        return Ok(());
    }
    Err(EventsError::Untrusted {
        path: path.into(),
        user,
        own,
    })
}

/// The descriptor of a reply, if it has one.
type Descriptor = Result<Option<OwnedFd>, EventsError>;

fn exchange(
    socket: &OwnedFd,
    request: Request,
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(Reply, Descriptor), EventsError> {
    let mut buffer = [0; LONGEST];
    let error = |e: io::Error| match e.kind() {
        io::ErrorKind::WouldBlock => {
            // A late reply must not be taken for the reply to the next request.
            shut_down(socket);
            EventsError::Silent
        }
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => EventsError::DaemonGone,
        _ => EventsError::System(e),
    };
    // A daemon that refuses a new client sends the reason and closes the connection, perhaps before
    // this request. So the result of sending counts only if there is no reply.
    let sent = scm_rights::send(socket.as_fd(), &request.message(), descriptor);
    let received = match scm_rights::receive(socket.as_fd(), &mut buffer) {
        // The kernel first reports, once, that the peer has closed without reading the request.
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
            scm_rights::receive(socket.as_fd(), &mut buffer)
        }
        received => received,
    };
    let received = received.map_err(error)?;
    if received.length == 0 {
        sent.map_err(error)?;
        return Err(EventsError::DaemonGone);
    }
    let reply = serde_json::from_slice(&buffer[..received.length]);
    match reply.map_err(|e| EventsError::Strange(e.to_string()))? {
        Reply::Barred {} => Err(EventsError::NotPermitted),
        Reply::Refused { why } => Err(EventsError::Refused(why)),
        reply if received.lost_descriptors => {
            let full = io::Error::from_raw_os_error(libc::EMFILE);
            Ok((reply, Err(EventsError::System(full))))
        }
        reply => Ok((reply, Ok(received.descriptors.into_iter().next()))),
    }
}

/// Shuts the connection down, which wakes threads that wait for the end of the daemon, and discards
/// messages that have arrived.
fn shut_down(socket: &OwnedFd) {
    // It fails if the daemon has closed its end.
    let _ = shutdown(socket, Shutdown::Both);
    while scm_rights::receive(socket.as_fd(), &mut [0]).is_ok_and(|r| r.length > 0) {}
}

fn unexpected(reply: &Reply) -> EventsError {
    EventsError::Strange(format!("{reply:?}"))
}

/// Default path of the socket.
pub(crate) const DEFAULT_PATH: &str = "/run/tidegate/events.sock";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_session_whose_daemon_does_not_answer_is_shut_down() {
        let [ours, its] = system::local_pair().unwrap();
        system::limit(ours.as_fd(), Duration::from_millis(20)).unwrap();
        let request = || exchange(&ours, Request::Counters {}, None).map(|(reply, _)| reply);
        let silent = request().unwrap_err();
        assert!(matches!(silent, EventsError::Silent), "{silent}");
        // A late reply is not taken for the reply to the next request.
        let late = Reply::Done {}.message();
        assert!(scm_rights::send(its.as_fd(), &late, None).is_err());
        let gone = request().unwrap_err();
        assert!(matches!(gone, EventsError::DaemonGone), "{gone}");
    }
}
