//! The daemon: it owns the programs in the kernel, hands out rings, and checks who may have what.
//!
//! One thread, which only answers requests: events go from the kernel to the clients' rings without
//! it. A client that crashes is cleaned up after, one that floods has to wait, and one that does
//! not read loses its own events and nobody else's.

mod client;
mod closing;
mod door;
mod lines;
mod places;
mod porter;
mod scribe;
mod user;

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use crate::bpf::events::{Monitor, Wanted};
use crate::bpf::loader::LoadError;
use crate::capability::{self, Capability};
use crate::passing;
use crate::peer::Peer;
use crate::policy::{Limits, Policy};
use crate::protocol::Reply;
use crate::system::{self, Polled, check, owned};
use client::{Client, Outcome};
use closing::Closing;
use door::Door;
use lines::Lines;
use places::Places;
use scribe::Sink;

/// The daemon of the event service.
pub struct Server {
    shared: Shared,
    /// By the order in which they came.
    clients: BTreeMap<u64, Client>,
    /// How many came.
    came: u64,
    door: Option<Door>,
    /// Until then nobody is let in, since there were no descriptors left.
    full_until: Option<Instant>,
}

impl Server {
    /// Loads the programs. Needs `CAP_BPF` and `CAP_PERFMON`. `log` hears of refusals and of
    /// clients that come and go, a line each, on a thread of its own: where it takes its time, clients
    /// do not wait, and lines that find no room are counted. The limit of open files of this process is
    /// raised as far as it may be, for what clients hand over.
    ///
    /// Programs stay attached as long as any process has their descriptors. Where children are forked
    /// while this serves, it should be made on a thread with descriptors of its own (`close_range` with
    /// `CLOSE_RANGE_UNSHARE`), as [`Events::in_process`](crate::Events::in_process) does.
    ///
    /// # Errors
    ///
    /// The kernel cannot or does not let us; the message says what to do.
    pub fn new(policy: Policy, log: impl FnMut(&str) + Send + 'static) -> Result<Self, LoadError> {
        // If there are fewer the daemon serves as many as there are.
        let _ = system::allow_descriptors(descriptors(policy.limits()));
        Self::load(policy, Box::new(log))
    }

    /// For clients of this process only, whose limits are its own affair.
    pub(crate) fn within() -> Result<Self, LoadError> {
        Self::load(Policy::everybody(), Box::new(|_| ()))
    }

    fn load(policy: Policy, log: Sink) -> Result<Self, LoadError> {
        let limits = policy.limits();
        let monitor = Monitor::load(limits.subscriptions, limits.clients)?;
        Ok(Self {
            shared: Shared {
                places: Places::new(monitor.capacity()),
                rings: Places::new(limits.clients),
                monitor,
                policy,
                lines: Lines::new(log),
                closing: Closing::default(),
            },
            clients: BTreeMap::new(),
            came: 0,
            door: None,
            full_until: None,
        })
    }

    /// Logs nothing of clients from now on.
    pub fn hush(&mut self) {
        self.shared.lines.hush();
    }

    /// Adds a line to the log.
    pub fn announce(&mut self, line: &str) {
        self.shared.lines.announce(line);
    }

    /// Lets clients in through a local socket at this path. Folders that are missing are made, and
    /// removed with the socket when the server is dropped.
    ///
    /// # Errors
    ///
    /// Another daemon listens there, something else is there, or the path cannot be used.
    pub fn listen(&mut self, path: &Path) -> Result<(), ServeError> {
        self.door = Some(Door::open(path)?);
        Ok(())
    }

    /// Gives up every privilege but the one to make rings, and becomes another user if one is
    /// given: `USER` or `USER:GROUP`, each by name or number. A number needs no entry on this system
    /// if its group is given, too. What was made for clients to come in is then removed by a process
    /// that stays who this was, also if this is killed.
    ///
    /// # Errors
    ///
    /// There is no such user or group, the user's group is not known, or the kernel does not allow
    /// it.
    pub fn drop_privileges(&mut self, user: Option<&str>) -> Result<(), ServeError> {
        let ids = user.map(user::ids).transpose()?;
        if let Some(door) = &mut self.door {
            door.leave_to_porter().map_err(ServeError::Privileges)?;
        }
        capability::keep_only(Capability::Bpf, ids).map_err(ServeError::Privileges)
    }

    /// Takes a client that is connected already.
    pub(crate) fn adopt(&mut self, socket: OwnedFd) -> io::Result<()> {
        let peer = Peer::of(socket.as_fd())?;
        self.admit(socket, peer);
        Ok(())
    }

    /// Serves until `stop` can be read, or, if nobody can come in, the last client is gone.
    ///
    /// # Errors
    ///
    /// The system fails in a way that leaves nothing to serve.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        let mut swept = Instant::now();
        while self.door.is_some() || !self.clients.is_empty() {
            let now = Instant::now();
            let mut polled = vec![Polled::input(stop)];
            let mut limit = self.has_to_sweep().then_some(SWEEP);
            let full = self.full_until.map(|t| t.saturating_duration_since(now));
            if let Some(wait) = full.filter(|wait| !wait.is_zero()) {
                limit = Some(limit.map_or(wait, |l| l.min(wait)));
            } else if let Some(door) = &self.door {
                polled.push(Polled::input(door.socket()));
            }
            let first = polled.len();
            let mut numbers = Vec::new();
            for (&number, client) in &mut self.clients {
                let wait = if client.is_unread() {
                    UNREAD
                } else {
                    client.must_wait(now)
                };
                if wait.is_zero() {
                    numbers.push(number);
                    polled.push(Polled::input(client.socket()));
                } else {
                    limit = Some(limit.map_or(wait, |l| l.min(wait)));
                }
            }
            system::poll(&mut polled, limit)?;
            if polled[0].is_ready() {
                break;
            }
            if first > 1 && polled[1].is_ready() {
                self.let_in();
            }
            for (number, polled) in numbers.into_iter().zip(&polled[first..]) {
                if polled.is_ready() {
                    self.serve(number);
                }
            }
            let now = Instant::now();
            if now.duration_since(swept) >= SWEEP {
                swept = now;
                self.sweep(now);
            }
            if !self.shared.places.any_taken() {
                self.shared.monitor.rest();
            }
        }
        Ok(())
    }

    fn let_in(&mut self) {
        let Some(door) = &self.door else { return };
        // Those who are in need the others.
        if system::descriptors_left() <= passing::MOST_ALONG.into() {
            return self.wait_for_descriptors(&io::Error::from_raw_os_error(libc::EMFILE));
        }
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no address is asked for.
        let socket = owned(unsafe {
            libc::accept4(
                door.socket().as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                flags,
            )
        });
        let socket = match socket {
            Ok(socket) => socket,
            Err(e) if is_full(&e) => return self.wait_for_descriptors(&e),
            // A client that is gone already is none.
            Err(_) => return,
        };
        self.full_until = None;
        match Peer::of(socket.as_fd()) {
            Ok(peer) => self.admit(socket, peer),
            Err(e) => {
                let line = format!("a client without a name: {e}");
                self.shared.lines.say(line);
            }
        }
    }

    /// Leaves the door alone for a while, and says so once until somebody was let in.
    fn wait_for_descriptors(&mut self, why: &io::Error) {
        if self.full_until.is_none() {
            let line = format!(
                "nobody can be let in for now ({why}): raise the limit of open files (ulimit -n, LimitNOFILE=)"
            );
            self.shared.lines.say(line);
        }
        self.full_until = Some(Instant::now() + FULL);
    }

    /// Takes a client, or tells it why not. It has no ring yet: whoever only comes and goes takes
    /// nothing from others.
    fn admit(&mut self, socket: OwnedFd, peer: Peer) {
        let now = Instant::now();
        let allowed = self.shared.policy.allows(&peer);
        let (why, reply) = if allowed == Wanted::default() {
            let why = "the policy allows this user nothing".to_owned();
            (why, Reply::Barred {})
        } else if let Some(why) = self.no_room(peer.user, now) {
            (why.clone(), Reply::Refused { why })
        } else {
            if let Some(door) = &self.door {
                door.allow_descriptors(socket.as_fd());
            }
            self.shared.lines.tell(&peer, "connects", now);
            let limits = self.shared.policy.limits();
            let client = Client::new(socket, peer, allowed, limits, now);
            self.clients.insert(self.came, client);
            self.came += 1;
            return;
        };
        let line = format!("refused: {why}");
        self.shared.lines.tell(&peer, &line, now);
        // If it does not even take the refusal, so be it.
        let _ = passing::send(socket.as_fd(), &reply.message(), None);
        match &self.door {
            Some(door) if door.bars_descriptors() => Closing::hang_up_now(socket),
            _ => self.shared.closing.hang_up(peer.user, Arc::new(socket)),
        }
    }

    /// Why there is no room for another client of a user. Rings that rest are not free either.
    fn no_room(&mut self, user: u32, now: Instant) -> Option<String> {
        if self.shared.closing.is_too_much(user)
            && let Some(trouble) = self.shared.closing.trouble(user, now)
        {
            return Some(trouble);
        }
        let limits = self.shared.policy.limits();
        let waiting = self.clients.values().filter(|c| !c.is_open());
        let his = waiting.clone().filter(|c| c.peer().user == user).count();
        let his = his + self.shared.rings.of(user, now) as usize;
        if user != 0 && his >= limits.clients_per_user as usize {
            return Some(format!(
                "user {user} has as many clients as one may have, {his}, with those that left within a second: end one, or raise limits.clients-per-user"
            ));
        }
        let full = waiting.count() >= self.shared.rings.free(now);
        full.then(|| {
            format!(
                "the daemon serves as many clients as it may, {}, with those that left within a second: try again later, or raise limits.clients",
                limits.clients
            )
        })
    }

    fn serve(&mut self, number: u64) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        for _ in 0..AT_ONCE {
            if !client.must_wait(Instant::now()).is_zero() {
                return;
            }
            // Those of a server that nobody can reach are all its own.
            let outcome = if self.door.is_some() && client.brings_too_much() {
                client.put_off(&mut self.shared)
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
        let Some(client) = self.clients.remove(&number) else {
            return;
        };
        let now = Instant::now();
        let line = format!("leaves: {why}");
        self.shared.lines.tell(client.peer(), &line, now);
        client.end(&mut self.shared, now);
    }

    /// Whether `sweep` has to look again soon.
    fn has_to_sweep(&self) -> bool {
        self.shared.places.any_taken()
            || self.shared.closing.is_busy()
            || self.shared.lines.any_left_out()
            || self.clients.values().any(|c| !c.is_open())
    }

    /// Frees the places of subscriptions whose sockets are gone, and those of clients that never
    /// ask.
    fn sweep(&mut self, now: Instant) {
        for client in self.clients.values_mut() {
            client.sweep(&mut self.shared, now);
        }
        let late = |(&number, c): (&u64, &Client)| c.is_late(now).then_some(number);
        let late: Vec<u64> = self.clients.iter().filter_map(late).collect();
        for number in late {
            self.dismiss(number, "it did not open in time");
        }
        self.shared.lines.sweep(now);
        self.shared.closing.answer_late(now);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for client in std::mem::take(&mut self.clients).into_values() {
            client.end(&mut self.shared, Instant::now());
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("clients", &self.clients.len())
            .field("door", &self.door)
            .finish_non_exhaustive()
    }
}

/// What the server shares with the code for one client.
struct Shared {
    monitor: Monitor,
    policy: Policy,
    /// Of subscriptions.
    places: Places,
    /// Of rings.
    rings: Places,
    lines: Lines,
    closing: Closing,
}

/// How many descriptors a daemon needs: for its clients, for what they may hand over until it is
/// closed, room for one more message, and its own.
fn descriptors(limits: Limits) -> u32 {
    let handed_over = Closing::most_kept(limits.clients_per_user);
    limits.clients + handed_over + passing::MOST_ALONG + OWN
}

/// Whether the system has no descriptors or no memory left.
fn is_full(error: &io::Error) -> bool {
    let full = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|e| full.contains(&e))
}

/// Connects to the daemon at a path. Nothing on the socket waits longer than the daemon may take.
pub(crate) fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = system::local_socket()?;
    system::limit(socket.as_fd(), ANSWER_WITHIN)?;
    let (address, size) = system::local_address(path)?;
    // SAFETY: the address is whole and passed with its size.
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size) })?;
    Ok(socket)
}

/// A descriptor that can be read once SIGINT or SIGTERM has come. To be called before there are
/// threads; from then on the two do nothing else.
///
/// # Errors
///
/// The system says why.
pub fn interruptions() -> io::Result<OwnedFd> {
    // SAFETY: the set is whole, and is filled before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        check(libc::sigprocmask(
            libc::SIG_BLOCK,
            &raw const set,
            std::ptr::null_mut(),
        ))?;
        owned(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC))
    }
}

/// Why the daemon cannot serve.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// The user has no entry on this system, and nobody said of which group it is.
    GroupUnknown(u32),
    /// Somebody serves already.
    InUse(PathBuf),
    /// There is no such group.
    NoGroup(String),
    /// A file is there that is no socket.
    NoSocket(PathBuf),
    /// There is no such user.
    NoUser(String),
    /// Another program's socket is there.
    Others(PathBuf),
    /// Privileges cannot be given up.
    Privileges(io::Error),
    /// The local socket.
    Socket {
        /// Where.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupUnknown(user) => write!(
                f,
                "user {user} has no entry on this system, so its group is not known: give that, too, \
                 as --user {user}:GID"
            ),
            Self::InUse(path) => write!(
                f,
                "another daemon serves at {}: stop it, or choose another --socket",
                path.display()
            ),
            Self::NoGroup(name) => write!(
                f,
                "there is no group `{name}` on this system: make one, or give a number"
            ),
            Self::NoSocket(path) => write!(
                f,
                "a file that is no socket is there: {}; choose another --socket, or remove it",
                path.display()
            ),
            Self::NoUser(name) => write!(
                f,
                "there is no user `{name}` on this system: make one, give numbers as UID:GID, or leave \
                 --user out"
            ),
            Self::Others(path) => write!(
                f,
                "another program's socket is at {}: choose another --socket",
                path.display()
            ),
            Self::Privileges(e) | Self::Socket { cause: e, .. } if system::is_short(e) => write!(
                f,
                "the daemon has no descriptor left for its socket ({e}): {}",
                system::more_descriptors(e)
            ),
            Self::Privileges(e) => write!(
                f,
                "privileges cannot be given up ({e}): start the daemon as root, or leave --user out"
            ),
            Self::Socket { path, cause } => write!(
                f,
                "no socket can be made at {}: {cause}; choose another --socket",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ServeError {}

/// How long nobody is let in once there are no descriptors left.
const FULL: Duration = Duration::from_secs(1);
/// How soon it is seen that a message was taken by whoever closes.
const UNREAD: Duration = Duration::from_millis(20);
/// Descriptors for the programs and the door.
const OWN: u32 = 64;
/// How long a client waits for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How often ended subscriptions are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Requests of one client before the next client's turn.
const AT_ONCE: usize = 64;
