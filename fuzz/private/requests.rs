//! Fuzz target of the daemon's requests.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Server;
use crate::event::{EventKind, EventSet};
use crate::peer_cred::PeerCred;
use crate::policy::Policy;
use crate::protocol::{LONGEST, Reply, Request, VERSION};
use crate::scm_rights;
use crate::system;
use crate::variables::VariableSet;

/// Requests of a hostile client. Each request that is parsed survives a round trip. A daemon (if
/// this process may load its programs) sends one reply to each request or disconnects the client,
/// grants nothing beyond the policy, frees everything after the client, and answers another client,
/// whose subscription is unchanged.
///
/// The input is a sequence of operations; see `operation`.
pub fn requests(data: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(data) {
        let again = serde_json::from_slice::<Request>(&request.message());
        assert_eq!(again.expect("an emitted request is parsed"), request);
    }
    let mut daemon = DAEMON.lock().unwrap_or_else(PoisonError::into_inner);
    // A daemon that has failed is not used again.
    if let Some(mut running) = daemon.take() {
        running.attack(data);
        *daemon = Some(running);
    }
}

/// One daemon for all inputs, because loading the programs takes a tenth of a second. `None` if this
/// process may not.
static DAEMON: LazyLock<Mutex<Option<Daemon>>> = LazyLock::new(|| Mutex::new(Daemon::start()));

/// A daemon that serves on this thread, and its honest client.
struct Daemon {
    server: Server,
    honest: Client,
    token: u64,
    sockets: Sockets,
    policies: [Policy; 2],
}

/// A client, and its number.
struct Client {
    socket: OwnedFd,
    number: u64,
}

/// What the client passes.
struct Sockets {
    /// The subscription of the honest client.
    subscribed: TcpStream,
    open: TcpStream,
    listener: TcpListener,
    udp: UdpSocket,
}

impl Sockets {
    fn pick(&self, number: u8) -> Option<BorrowedFd<'_>> {
        match number % 8 {
            0 => None,
            1 => Some(self.listener.as_fd()),
            2 => Some(self.udp.as_fd()),
            _ => Some(self.open.as_fd()),
        }
    }
}

impl Daemon {
    /// `None` if this process may not load the programs.
    fn start() -> Option<Self> {
        let [policy, narrow] = POLICIES.map(|text| Policy::parse(text).expect("a valid policy"));
        let policies = [policy.clone(), narrow];
        let mut server = Server::load(policy, Box::new(|_| ())).ok()?;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let connect = || TcpStream::connect(address).expect("the listener accepts");
        let sockets = Sockets {
            subscribed: connect(),
            open: connect(),
            udp: UdpSocket::bind("127.0.0.1:0").expect("a port"),
            listener,
        };
        let honest = admit(&mut server, 0);
        let mut daemon = Self {
            server,
            honest,
            token: 0,
            sockets,
            policies,
        };
        let ring = 4_096;
        let version = VERSION;
        let opened = daemon.honest_request(Request::Open { version, ring }, None);
        assert!(matches!(opened, Reply::Opened { .. }), "{opened:?}");
        let socket = daemon.sockets.subscribed.try_clone().expect("a descriptor");
        let subscribe = Request::Subscribe {
            events: EventSet::ALL.bits(),
            variables: VariableSet::ALL.bits(),
        };
        let reply = daemon.honest_request(subscribe, Some(socket.as_fd()));
        let Reply::Subscribed { id } = reply else {
            panic!("{reply:?}");
        };
        daemon.token = id;
        Some(daemon)
    }

    fn attack(&mut self, mut data: &[u8]) {
        self.server.apply(self.policies[0].clone());
        let mut client = admit(&mut self.server, HOSTILE);
        let mut ids = Vec::new();
        for _ in 0..MAX_OPERATIONS {
            let Some(operation) = operation(&mut data, &ids, self.token) else {
                break;
            };
            match operation {
                Operation::Policy(number) => {
                    let policy = self.policies[number].clone();
                    self.server.apply(policy);
                }
                Operation::Message(bytes, descriptor) => {
                    let descriptor = self.sockets.pick(descriptor);
                    // It fails if the message is too long for the socket.
                    if scm_rights::send(client.socket.as_fd(), &bytes, descriptor).is_ok() {
                        let reply = serve(&mut self.server, &client);
                        self.check(&bytes, reply.as_ref());
                        if let Some(Reply::Subscribed { id }) = reply {
                            ids.push(id);
                        }
                    }
                }
            }
            if !self.server.clients.contains_key(&client.number) {
                client = admit(&mut self.server, HOSTILE);
                ids.clear();
            }
        }
        drop(client.socket);
        self.server.serve(client.number);
        assert!(!self.server.clients.contains_key(&client.number));
        self.settle();
        let tally = self.honest_request(Request::Tally { id: self.token }, None);
        assert_eq!(tally, Reply::Tally { events: 0, lost: 0 });
    }

    /// Checks a reply to a message of the hostile client.
    fn check(&self, message: &[u8], reply: Option<&Reply>) {
        let request = serde_json::from_slice::<Request>(message).ok();
        let allowed = self.server.shared.policy.allows(&peer(HOSTILE));
        let granted = |events, variables| {
            let end = EventSet::NONE.with(EventKind::Ended);
            let events = EventSet::from_bits(events).without(allowed.events.or(end));
            let variables = VariableSet::from_bits(variables).without(allowed.variables);
            assert!(events.is_empty() && variables.is_empty(), "{request:?}");
        };
        match (&request, reply) {
            (None, Some(reply)) => panic!("an answer to no request: {reply:?}"),
            (Some(Request::Subscribe { events, variables }), Some(Reply::Subscribed { .. }))
            | (
                Some(Request::Change {
                    events, variables, ..
                }),
                Some(Reply::Done {}),
            ) => {
                granted(*events, *variables);
            }
            (
                Some(Request::Change { id, .. } | Request::Cancel { id } | Request::Tally { id }),
                reply,
            ) if *id == self.token => {
                let refused = matches!(reply, None | Some(Reply::Refused { .. }));
                assert!(
                    refused,
                    "access to the subscription of another client: {reply:?}"
                );
            }
            _ => {}
        }
    }

    /// Waits until received descriptors are closed, and lets a second pass: nothing of the hostile
    /// user is left then.
    fn settle(&mut self) {
        let shared = &mut self.server.shared;
        let guard = Instant::now() + GUARD;
        while shared.closes.is_busy() {
            assert!(Instant::now() < guard, "descriptors are not closed");
            thread::yield_now();
        }
        shared.now += Duration::from_secs(2);
        for slots in [&mut shared.slots, &mut shared.rings] {
            assert_eq!(slots.held_by(HOSTILE, shared.now), 0);
            assert_eq!(slots.held_by(0, shared.now), 1);
        }
        assert_eq!(self.server.clients.len(), 1);
    }

    fn honest_request(&mut self, request: Request, descriptor: Option<BorrowedFd<'_>>) -> Reply {
        let sent = scm_rights::send(self.honest.socket.as_fd(), &request.message(), descriptor);
        sent.expect("the honest client is connected");
        serve(&mut self.server, &self.honest).expect("the honest client is answered")
    }
}

/// Connects a client of a user.
fn admit(server: &mut Server, user: u32) -> Client {
    let [ours, its] = system::local_pair().expect("two sockets");
    rustix::io::ioctl_fionbio(&its, true).expect("a socket");
    system::limit(ours.as_fd(), GUARD).expect("a socket");
    let number = server.next;
    server.admit(its, peer(user));
    let is_admitted = server.clients.contains_key(&number);
    assert!(is_admitted, "user {user} is not admitted");
    Client {
        socket: ours,
        number,
    }
}

fn peer(user: u32) -> PeerCred {
    PeerCred {
        process: 1,
        user,
        groups: Vec::new(),
    }
}

/// Serves the message of a client: the reply, or `None` if the client is disconnected.
fn serve(server: &mut Server, client: &Client) -> Option<Reply> {
    server.serve(client.number);
    let mut buffer = [0; LONGEST];
    let received = scm_rights::receive(client.socket.as_fd(), &mut buffer);
    if !server.clients.contains_key(&client.number) {
        assert!(
            !received.is_ok_and(|r| r.length > 0),
            "an answer to a violation"
        );
        return None;
    }
    let received = received.expect("each request has an answer");
    assert!(received.length > 0 && !received.truncated);
    let reply = serde_json::from_slice(&buffer[..received.length]).expect("a valid reply");
    let has_ring = matches!(reply, Reply::Opened { .. });
    assert_eq!(received.descriptors.len(), usize::from(has_ring));
    Some(reply)
}

/// A step of the hostile client.
enum Operation {
    /// A message, with a descriptor by its number.
    Message(Vec<u8>, u8),
    /// Another policy applies.
    Policy(usize),
}

/// The next operation: a byte for its kind, a byte for the descriptor, and its fields.
fn operation(data: &mut &[u8], ids: &[u64], honest: u64) -> Option<Operation> {
    let mut byte = || {
        let (first, rest) = data.split_first()?;
        *data = rest;
        Some(*first)
    };
    let (kind, descriptor) = (byte()?, byte()?);
    let mut wide = || {
        let low = byte().unwrap_or(0);
        let high = byte().unwrap_or(0);
        // Few bits, or nearly all.
        u64::from(low) | u64::from(high) << 8 | if high >= 0xf0 { !0xffff } else { 0 }
    };
    let mut id = || {
        let number = wide() as usize;
        match number % 8 {
            0 => honest,
            1 => number as u64,
            _ => *ids
                .get(number / 8 % ids.len().max(1))
                .unwrap_or(&(number as u64)),
        }
    };
    let request = match kind % 9 {
        0 => Request::Open {
            version: if descriptor & 0x80 == 0 {
                VERSION
            } else {
                wide() as u32
            },
            ring: 1_u32.wrapping_shl(descriptor.into()),
        },
        1 | 2 => Request::Subscribe {
            events: wide() as u32,
            variables: wide(),
        },
        3 => Request::Change {
            id: id(),
            events: 1 << (descriptor % 32),
            variables: 1 << (descriptor % 64),
        },
        4 => Request::Cancel { id: id() },
        5 => Request::Tally { id: id() },
        6 => Request::Counters {},
        7 => return Some(Operation::Policy(usize::from(descriptor % 2))),
        _ => {
            let length = usize::from(byte().unwrap_or(0)) * if kind >= 0xf0 { 32 } else { 1 };
            let (message, rest) = data.split_at(length.min(data.len()));
            *data = rest;
            let mut message = message.to_vec();
            message.resize(message.len().max(1), b'{');
            return Some(Operation::Message(message, descriptor));
        }
    };
    Some(Operation::Message(request.message(), descriptor))
}

/// What all may have and what the hostile user may have, and narrower ones.
const POLICIES: [&str; 2] = [
    "[limits]
     clients = 8
     subscriptions = 12
     subscriptions-per-user = 8
     subscriptions-per-client = 6
     ring-kib = 16
     [[allow]]
     users = [0]
     events = ['all']
     variables = ['all']
     [[allow]]
     users = [1000]
     events = ['state', 'timeout', 'recovery']
     variables = ['window', 'srtt']",
    "[limits]
     subscriptions-per-client = 2
     ring-kib = 4
     [[allow]]
     users = [0]
     events = ['all']
     variables = ['all']
     [[allow]]
     users = [1000]
     events = ['timeout']
     variables = ['srtt']",
];
const HOSTILE: u32 = 1_000;
const MAX_OPERATIONS: usize = 48;
/// Ends an input that hangs. No result depends on it.
const GUARD: Duration = Duration::from_secs(10);
