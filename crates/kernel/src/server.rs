//! The daemon: loads the programs into the kernel, hands out rings, and enforces the policy.
//!
//! One thread answers requests. Events go from the kernel to the rings of the clients without it.
//! The server frees the resources of a client that crashes, delays one that floods, and a client
//! that does not read loses its own events only.

mod activation;
mod client;
mod deferred_close;
mod error;
#[cfg(feature = "fuzzing")]
#[path = "../../../fuzz/private/requests.rs"]
pub(crate) mod fuzzing;
mod listener;
mod reload;
mod seccomp;
mod slot_allocator;
mod user;

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io, mem, ptr};

use rustix::event::PollFd;

use crate::bpf::events::{EventPrograms, EventRequest};
use crate::bpf::loader::LoadError;
use crate::capability;
use crate::peer_cred::PeerCred;
use crate::policy::{Limits, Policy};
use crate::protocol::Reply;
use crate::scm_rights;
use crate::system::{self, check, input, is_ready};
use client::{Client, Outcome};
use deferred_close::DeferredClose;
use listener::Listener;
use reload::PolicySource;
use slot_allocator::SlotAllocator;

pub use error::ServeError;

/// The daemon of the event service.
pub struct Server {
    shared: Shared,
    /// In the order in which they connected.
    clients: BTreeMap<u64, Client>,
    /// Number of the next client.
    next: u64,
    listener: Option<Listener>,
    /// Where the policy is read again.
    policy: Option<PolicySource>,
    /// No connection is accepted until then, since the process has no descriptor left.
    full_until: Option<Instant>,
}

impl Server {
    /// Loads the programs, which takes `CAP_BPF` and `CAP_PERFMON`. `log` receives a line for each
    /// refusal and each client that connects or leaves. It delays all clients while it blocks. The
    /// limit of open files of this process is raised as far as the system allows.
    ///
    /// The programs stay attached as long as any process has their descriptors. If the process
    /// forks while this serves, the server should be made on a thread with a descriptor table of
    /// its own (`close_range` with `CLOSE_RANGE_UNSHARE`), as
    /// [`Events::in_process`](crate::Events::in_process) does.
    ///
    /// # Errors
    ///
    /// The kernel cannot load the programs, or this process may not. The message names the fix.
    pub fn new(policy: Policy, log: impl FnMut(&str) + Send + 'static) -> Result<Self, LoadError> {
        // With a lower limit the server accepts fewer clients.
        let _ = system::allow_descriptors(descriptors(policy.limits()));
        Self::load(policy, Box::new(log))
    }

    /// For clients of this process, without limits.
    pub(crate) fn within() -> Result<Self, LoadError> {
        Self::load(Policy::everybody(), Box::new(|_| ()))
    }

    fn load(policy: Policy, log: Box<dyn FnMut(&str) + Send>) -> Result<Self, LoadError> {
        let limits = policy.limits();
        let monitor = EventPrograms::load(limits.subscriptions, limits.clients)?;
        Ok(Self {
            shared: Shared {
                slots: SlotAllocator::new(monitor.capacity()),
                rings: SlotAllocator::new(limits.clients),
                monitor,
                policy,
                log,
                quiet: false,
                closes: DeferredClose::default(),
                now: Instant::now(),
            },
            clients: BTreeMap::new(),
            next: 0,
            listener: None,
            policy: None,
            full_until: None,
        })
    }

    /// Logs no lines about clients from now on.
    pub fn hush(&mut self) {
        self.shared.quiet = true;
    }

    /// Adds a line to the log.
    pub fn announce(&mut self, line: &str) {
        (self.shared.log)(line);
    }

    /// Listens on a local socket at this path. Missing directories are made, and removed with the
    /// socket when the server is dropped, as far as this process may remove them then. Any user may
    /// connect, since the policy decides about rights.
    ///
    /// # Errors
    ///
    /// Another daemon listens there, the path has another file, another user can write to a folder
    /// of the path (unless it is sticky) or owns one, or the path cannot be used.
    pub fn listen(&mut self, path: &Path) -> Result<(), ServeError> {
        self.listener = Some(Listener::open(path)?);
        Ok(())
    }

    /// Serves at the socket that a service manager has passed to this process (socket activation,
    /// `LISTEN_PID` and `LISTEN_FDS`). Returns its path; `None` if there is no such socket. The
    /// socket stays when the server is dropped.
    ///
    /// # Errors
    ///
    /// The manager passes several sockets, or one that is not a listening local socket of type
    /// `SOCK_SEQPACKET`.
    pub fn listen_inherited(&mut self) -> Result<Option<PathBuf>, ServeError> {
        let Some(socket) = activation::inherited()? else {
            return Ok(None);
        };
        let listener = Listener::inherited(socket);
        let path = listener.path().to_owned();
        self.listener = Some(listener);
        Ok(Some(path))
    }

    /// Restricts the system calls of all threads of this process to those of a daemon that serves.
    /// Others fail with `EPERM`; executing a program or controlling a process ends this one. It
    /// cannot be undone. To be called after [`Self::drop_privileges`].
    ///
    /// # Errors
    ///
    /// The kernel has no seccomp filters.
    pub fn restrict_system_calls(&self) -> Result<(), ServeError> {
        seccomp::restrict().map_err(ServeError::Seccomp)
    }

    /// Drops all privileges of this thread, and of those that it starts later, but the one to
    /// create rings, and becomes another user if one is given: `USER` or `USER:GROUP`, each by name
    /// or number. A number needs no entry on this system if its group is given. Another user may
    /// not remove the socket, which stays at the end; the next daemon replaces it.
    ///
    /// # Errors
    ///
    /// The user or the group does not exist, the group of the user is not known, or the kernel
    /// refuses the change.
    pub fn drop_privileges(&self, user: Option<&str>) -> Result<(), ServeError> {
        let ids = user.map(user::ids).transpose()?;
        capability::keep_bpf_only(ids).map_err(ServeError::Privileges)
    }

    /// Admits a client that is connected already.
    pub(crate) fn adopt(&mut self, socket: OwnedFd) -> io::Result<()> {
        let peer = PeerCred::of(socket.as_fd())?;
        self.shared.now = Instant::now();
        self.admit(socket, peer);
        Ok(())
    }

    /// Serves until `stop` is readable. A server without a listener also ends with its last client.
    ///
    /// # Errors
    ///
    /// `poll` fails.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        let mut swept = Instant::now();
        while self.listener.is_some() || !self.clients.is_empty() {
            self.shared.now = Instant::now();
            let (sources, limit) = self.sources(stop);
            let (sources, mut polled): (Vec<_>, Vec<_>) = sources.into_iter().unzip();
            system::poll(&mut polled, limit)?;
            let ready: Vec<bool> = polled.iter().map(is_ready).collect();
            self.shared.now = Instant::now();
            for (source, _) in sources.into_iter().zip(ready).filter(|(_, ready)| *ready) {
                match source {
                    Source::Stop => return Ok(()),
                    Source::Listener => self.accept(),
                    Source::Reload => self.reload(),
                    Source::Client(number) => self.serve(number),
                }
            }
            if self.shared.now.duration_since(swept) >= SWEEP {
                swept = self.shared.now;
                self.sweep();
            }
            if !self.shared.slots.any_allocated() {
                self.shared.monitor.detach();
            }
        }
        Ok(())
    }

    /// The descriptors to poll, and the limit of the wait.
    fn sources<'a>(
        &'a mut self,
        stop: BorrowedFd<'a>,
    ) -> (Vec<(Source, PollFd<'a>)>, Option<Duration>) {
        let now = self.shared.now;
        let mut sources = vec![(Source::Stop, input(stop))];
        let mut limits: Vec<Duration> = self.has_to_sweep().then_some(SWEEP).into_iter().collect();
        let full = self.full_until.map(|t| t.saturating_duration_since(now));
        if let Some(wait) = full.filter(|wait| !wait.is_zero()) {
            limits.push(wait);
        } else if let Some(listener) = &self.listener {
            sources.push((Source::Listener, input(listener.socket())));
        }
        if let Some(policy) = &self.policy {
            sources.push((Source::Reload, input(policy.signals())));
        }
        for (&number, client) in &mut self.clients {
            let wait = if client.is_discarding() {
                DISCARDED
            } else {
                client.throttle(now)
            };
            if wait.is_zero() {
                sources.push((Source::Client(number), input(client.socket())));
            } else {
                limits.push(wait);
            }
        }
        (sources, limits.into_iter().min())
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        // The connected clients need the others.
        if system::descriptors_left() <= scm_rights::MAX_DESCRIPTORS.into() {
            return self.pause_accept(&io::Error::from_raw_os_error(libc::EMFILE));
        }
        let socket = match listener.accept() {
            Ok(socket) => socket,
            Err(e) if is_full(&e) => return self.pause_accept(&e),
            // The client has gone meanwhile.
            Err(_) => return,
        };
        self.full_until = None;
        match PeerCred::of(socket.as_fd()) {
            Ok(peer) => self.admit(socket, peer),
            Err(e) => {
                let line = format!("a client without credentials is refused: {e}");
                self.shared.note(&line);
            }
        }
    }

    /// Accepts no connection for [`FULL`]. Logged once until the next connection.
    fn pause_accept(&mut self, why: &io::Error) {
        if self.full_until.is_none() {
            let line = format!(
                "no client can be accepted for now ({why}): raise the limit of open files (ulimit -n, LimitNOFILE=)"
            );
            self.shared.note(&line);
        }
        self.full_until = Some(self.shared.now + FULL);
    }

    /// Admits a client, or sends it the reason of the refusal. An admitted client has no ring yet,
    /// so connecting alone takes no resources from others.
    fn admit(&mut self, socket: OwnedFd, peer: PeerCred) {
        let now = self.shared.now;
        let allowed = self.shared.policy.allows(&peer);
        let (why, reply) = if allowed == EventRequest::default() {
            let why = "the policy allows this user nothing".to_owned();
            (why, Reply::Barred {})
        } else if let Some(why) = self.no_room(peer.user) {
            (why.clone(), Reply::Refused { why })
        } else {
            if let Some(listener) = &self.listener {
                listener.allow_descriptors(socket.as_fd());
            }
            self.shared.log_client(&peer, "connects");
            let limits = self.shared.policy.limits();
            let client = Client::new(socket, peer, allowed, limits, now);
            self.clients.insert(self.next, client);
            self.next += 1;
            return;
        };
        self.shared.log_client(&peer, &format!("refused: {why}"));
        // It fails if the client is gone.
        let _ = scm_rights::send(socket.as_fd(), &reply.message(), None);
        match &self.listener {
            Some(listener) if listener.blocks_descriptors() => {
                DeferredClose::disconnect_now(&socket);
            }
            _ => self.shared.closes.disconnect(peer.user, Arc::new(socket)),
        }
    }

    /// Reason why no other client of a user can be admitted. Rings in their cooldown are not free.
    fn no_room(&mut self, user: u32) -> Option<String> {
        let now = self.shared.now;
        if self.shared.closes.is_full(user)
            && let Some(refusal) = self.shared.closes.refusal(user, now)
        {
            return Some(refusal);
        }
        let limits = self.shared.policy.limits();
        let waiting = self.clients.values().filter(|c| !c.is_open());
        let own = waiting.clone().filter(|c| c.peer().user == user).count();
        let own = own + self.shared.rings.held_by(user, now) as usize;
        if user != 0 && own >= limits.clients_per_user as usize {
            return Some(format!(
                "user {user} has {own} clients, the limit for one user, including those that left within a second: end one, or raise limits.clients-per-user"
            ));
        }
        let full = waiting.count() >= self.shared.rings.free(now);
        full.then(|| {
            format!(
                "the daemon has {} clients, its limit, including those that left within a second: try again later, or raise limits.clients",
                limits.clients
            )
        })
    }

    fn serve(&mut self, number: u64) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        for _ in 0..AT_ONCE {
            if !client.throttle(self.shared.now).is_zero() {
                return;
            }
            // A server without a listener shares its descriptors with its only client.
            let outcome = if self.listener.is_some() && client.exceeds_descriptors() {
                client.refuse_next(&mut self.shared)
            } else {
                client.serve(&mut self.shared)
            };
            match outcome {
                Outcome::Served => {}
                Outcome::Idle => return,
                Outcome::Gone(why) => return self.dismiss(number, why),
            }
        }
    }

    fn dismiss(&mut self, number: u64, why: &str) {
        if let Some(client) = self.clients.remove(&number) {
            let line = format!("leaves: {why}");
            self.shared.log_client(client.peer(), &line);
            client.end(&mut self.shared);
        }
    }

    /// Whether `sweep` has work within [`SWEEP`].
    fn has_to_sweep(&self) -> bool {
        self.shared.slots.any_allocated()
            || self.shared.closes.is_busy()
            || self.clients.values().any(|c| !c.is_open())
    }

    /// Frees the slots of subscriptions whose sockets are closed, and disconnects clients that do
    /// not request a ring.
    fn sweep(&mut self) {
        for client in self.clients.values_mut() {
            client.sweep(&mut self.shared);
        }
        let now = self.shared.now;
        let late = |(&number, c): (&u64, &Client)| c.is_late(now).then_some(number);
        let late: Vec<u64> = self.clients.iter().filter_map(late).collect();
        for number in late {
            self.dismiss(number, "it did not request a ring in time");
        }
        self.shared.closes.answer_overdue(now);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.now = Instant::now();
        for client in mem::take(&mut self.clients).into_values() {
            client.end(&mut self.shared);
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("clients", &self.clients.len())
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

/// What the server shares with the code of a client.
struct Shared {
    monitor: EventPrograms,
    policy: Policy,
    /// The slots of subscriptions.
    slots: SlotAllocator,
    /// The slots of rings.
    rings: SlotAllocator,
    log: Box<dyn FnMut(&str) + Send>,
    /// Whether lines about clients are suppressed.
    quiet: bool,
    closes: DeferredClose,
    /// The time of the present round of [`Server::run`]. The code below the server reads no clock.
    now: Instant,
}

impl Shared {
    fn log_client(&mut self, peer: &PeerCred, what: &str) {
        self.note(&format!("{peer} {what}"));
    }

    /// Logs a line about clients.
    fn note(&mut self, line: &str) {
        if !self.quiet {
            (self.log)(line);
        }
    }

    fn free_slot(&mut self, slot: u32) {
        self.monitor.close(slot);
        self.slots.release(slot, self.now);
    }
}

/// A descriptor that the server polls.
enum Source {
    Stop,
    Listener,
    Reload,
    Client(u64),
}

/// Descriptors that a daemon needs: for its clients, for received descriptors until they are
/// closed, for one more message, and its own.
fn descriptors(limits: Limits) -> u32 {
    let received = DeferredClose::max_pending(limits.clients_per_user);
    limits.clients + received + scm_rights::MAX_DESCRIPTORS + OWN
}

/// Whether the system has no descriptors or no memory left.
fn is_full(error: &io::Error) -> bool {
    let full = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|e| full.contains(&e))
}

/// Connects to the daemon at a path. Calls on the socket time out after [`ANSWER_WITHIN`].
pub(crate) fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = system::local_socket()?;
    system::limit(socket.as_fd(), ANSWER_WITHIN)?;
    rustix::net::connect(&socket, &system::local_address(path)?)?;
    Ok(socket)
}

/// A descriptor that becomes readable with SIGINT or SIGTERM. It has to be created before any
/// thread starts. The two signals have no other effect from then on.
///
/// # Errors
///
/// The system refuses the descriptor.
pub fn interruptions() -> Result<OwnedFd, ServeError> {
    signals(&[libc::SIGINT, libc::SIGTERM]).map_err(ServeError::Signals)
}

/// A descriptor that becomes readable with SIGHUP, as [`interruptions`].
///
/// # Errors
///
/// The system refuses the descriptor.
pub fn hangups() -> Result<OwnedFd, ServeError> {
    signals(&[libc::SIGHUP]).map_err(ServeError::Signals)
}

fn signals(which: &[libc::c_int]) -> io::Result<OwnedFd> {
    // SAFETY: the set is whole, and is filled before its use. The descriptor is new, so it has no
    // other owner.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in which {
            libc::sigaddset(&raw mut set, signal);
        }
        check(libc::sigprocmask(
            libc::SIG_BLOCK,
            &raw const set,
            ptr::null_mut(),
        ))?;
        let signals = check(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC))?;
        Ok(OwnedFd::from_raw_fd(signals))
    }
}

/// Pause of accepting connections once no descriptor is left.
const FULL: Duration = Duration::from_secs(1);
/// Interval of the checks whether a message was discarded.
const DISCARDED: Duration = Duration::from_millis(20);
/// Descriptors for the programs and the listener.
const OWN: u32 = 64;
/// Time limit of a client for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Interval of the search for subscriptions that have ended.
const SWEEP: Duration = Duration::from_secs(1);
/// Requests of one client before the next client's turn.
const AT_ONCE: usize = 64;
