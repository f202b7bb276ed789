//! A client of the daemon: its requests, rights and rate limit.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;
use super::deferred_close::ReceivedFd;
use crate::bpf::events::{self, BindError, EventCounts, EventPrograms, EventRequest};
use crate::bpf::raw;
use crate::capability;
use crate::event::{EventKind, EventSet};
use crate::peer_cred::PeerCred;
use crate::policy::{Limits, Policy};
use crate::protocol::{LONGEST, Reply, Request, VERSION};
use crate::scm_rights;
use crate::system;
use crate::tcp;
use crate::variables::VariableSet;

/// A connected client.
#[derive(Debug)]
pub(super) struct Client {
    socket: Arc<OwnedFd>,
    peer: PeerCred,
    allowed: EventRequest,
    connected: Instant,
    /// Slot of its ring, once it has one.
    ring: Option<u32>,
    /// Slots of its subscriptions by token.
    slots: BTreeMap<u64, u32>,
    /// Tallies of subscriptions that have ended, by token, until a request fetches them; oldest
    /// first.
    ended: VecDeque<(u64, EventCounts)>,
    /// Whether another thread still has to discard the next message.
    discarding: bool,
    limits: Limits,
    rate: RateLimit,
}

/// The result of serving a client once.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A request was answered.
    Served,
    /// There is no request.
    Idle,
    /// The client is gone, or has to be disconnected for this reason.
    Gone(&'static str),
}

impl Client {
    pub(super) fn new(
        socket: OwnedFd,
        peer: PeerCred,
        allowed: EventRequest,
        limits: Limits,
        now: Instant,
    ) -> Self {
        Self {
            socket: Arc::new(socket),
            peer,
            allowed,
            connected: now,
            ring: None,
            slots: BTreeMap::new(),
            ended: VecDeque::new(),
            discarding: false,
            limits,
            rate: RateLimit::new(limits.requests_per_second),
        }
    }

    /// Applies a new policy; `false` if it allows this client nothing. Subscriptions lose what it
    /// does not allow.
    pub(super) fn apply(&mut self, policy: &Policy, monitor: &EventPrograms) -> bool {
        self.allowed = policy.allows(&self.peer);
        self.limits = policy.limits();
        self.rate.set_limit(self.limits.requests_per_second);
        for &slot in self.slots.values() {
            monitor.restrict(slot, self.allowed);
        }
        self.allowed != EventRequest::default()
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn peer(&self) -> &PeerCred {
        &self.peer
    }

    /// Whether it has a ring.
    pub(super) fn is_open(&self) -> bool {
        self.ring.is_some()
    }

    /// Whether it has no ring after [`OPEN_WITHIN`].
    pub(super) fn is_late(&self, now: Instant) -> bool {
        !self.is_open() && now.duration_since(self.connected) >= OPEN_WITHIN
    }

    /// The time until the rate limit allows the next request.
    pub(super) fn throttle(&mut self, now: Instant) -> Duration {
        self.rate.wait(now)
    }

    /// Whether another thread still has to discard the next message. The server ignores the socket
    /// until then.
    pub(super) fn is_discarding(&mut self) -> bool {
        self.discarding = self.discarding && Arc::strong_count(&self.socket) > 1;
        self.discarding
    }

    /// Whether the next message has descriptors for which the process may lack numbers. The kernel
    /// would close those in `recvmsg`, which may block.
    pub(super) fn exceeds_descriptors(&self) -> bool {
        let has_some = scm_rights::next_has_descriptors(self.socket()).unwrap_or(false);
        has_some && system::descriptors_left() < scm_rights::MAX_DESCRIPTORS.into()
    }

    /// Refuses the next message without receiving it.
    pub(super) fn refuse_next(&mut self, shared: &mut Shared) -> Outcome {
        self.rate.spend();
        self.discarding = true;
        let refusal = self.refuse(shared, FULL.to_owned()).message();
        shared.closes.discard(self.peer.user, &self.socket, refusal);
        Outcome::Idle
    }

    /// Receives a request and answers it.
    pub(super) fn serve(&mut self, shared: &mut Shared) -> Outcome {
        let user = self.peer.user;
        // Before the message is received: its descriptors need room in the queue.
        if shared.closes.is_full(user) {
            return Outcome::Gone("its user sends more descriptors than can be closed");
        }
        let mut buffer = [0; LONGEST];
        let received = match scm_rights::receive(self.socket(), &mut buffer) {
            Ok(received) => received,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Outcome::Idle,
            Err(_) => return Outcome::Gone("its socket failed"),
        };
        let missing = if received.lost_descriptors {
            FULL
        } else {
            NO_SOCKET
        };
        let received_fd = |fd| ReceivedFd::new(fd, user, &shared.closes);
        let mut descriptors = received.descriptors.into_iter().map(received_fd);
        let socket = descriptors.next().ok_or(missing);
        descriptors.for_each(drop);
        if received.length == 0 {
            return Outcome::Gone("it closed its socket");
        }
        if received.truncated {
            return Outcome::Gone("its message is too long");
        }
        self.rate.spend();
        let Ok(request) = serde_json::from_slice(&buffer[..received.length]) else {
            return Outcome::Gone("its message is not a valid request");
        };
        let result = self.answer(shared, request, socket.as_ref().map_err(|why| *why));
        let (reply, ring) = result.unwrap_or_else(|why| (self.refuse(shared, why), None));
        // The reply follows the close, so a client that waits for it has at most one descriptor in
        // the queue. It would come too late behind a close that hangs.
        if let (Ok(socket), None) = (socket, &ring)
            && shared.closes.refusal(user, shared.now).is_none()
        {
            socket.close_and_answer(&self.socket, reply.message());
            return Outcome::Served;
        }
        let ring = ring.as_ref().map(OwnedFd::as_fd);
        match scm_rights::send(self.socket(), &reply.message(), ring) {
            Ok(()) => Outcome::Served,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                Outcome::Gone("it sends requests and receives no replies")
            }
            Err(_) => Outcome::Gone("it is gone"),
        }
    }

    /// Frees its ring and subscriptions, and disconnects it.
    pub(super) fn end(self, shared: &mut Shared) {
        for slot in self.slots.into_values() {
            shared.free_slot(slot);
        }
        if let Some(ring) = self.ring {
            // It fails only if the slot has no ring.
            let _ = shared.monitor.remove_ring(ring);
            shared.rings.release(ring, shared.now);
        }
        shared.closes.disconnect(self.peer.user, self.socket);
    }

    /// Frees the slots of subscriptions whose sockets are closed. The event of the end may have
    /// found no room in the ring, so the tally stays for a later request.
    pub(super) fn sweep(&mut self, shared: &mut Shared) {
        for (token, slot) in self
            .slots
            .extract_if(.., |_, &mut slot| shared.monitor.has_ended(slot))
            .collect::<Vec<_>>()
        {
            if self.ended.len() >= self.limits.subscriptions_per_client as usize {
                self.ended.pop_front();
            }
            self.ended.push_back((token, shared.monitor.tally(slot)));
            shared.free_slot(slot);
        }
    }

    fn refuse(&self, shared: &mut Shared, why: String) -> Reply {
        shared.log_client(&self.peer, &format!("refused: {why}"));
        Reply::Refused { why }
    }

    /// The reply, with a ring for the request that opens one.
    fn answer(
        &mut self,
        shared: &mut Shared,
        request: Request,
        socket: Result<&ReceivedFd, &str>,
    ) -> Result<(Reply, Option<OwnedFd>), String> {
        if !self.is_open() && !matches!(request, Request::Open { .. }) {
            return Err("the first request has to be `open`".into());
        }
        let reply = match request {
            Request::Open { version, ring } => {
                let (reply, ring) = self.open(shared, version, ring)?;
                return Ok((reply, Some(ring)));
            }
            Request::Subscribe { events, variables } => {
                let wanted = self.grant(events, variables)?;
                let socket = self.accept(shared, socket)?;
                self.subscribe(shared, wanted, socket)?
            }
            Request::Change {
                id,
                events,
                variables,
            } => {
                let wanted = self.grant(events, variables)?;
                shared.monitor.change(self.slot(id)?, wanted);
                Reply::Done {}
            }
            Request::Cancel { id } => {
                let slot = self.slot(id)?;
                self.slots.remove(&id);
                shared.free_slot(slot);
                Reply::Done {}
            }
            Request::Tally { id } => {
                let EventCounts { events, lost } = self.tally(shared, id)?;
                Reply::Tally { events, lost }
            }
            Request::Counters {} => {
                let socket = self.accept(shared, socket)?;
                let counters = shared.monitor.counters(socket.fd()).map_err(|e| {
                    format!("the kernel has no counters of this socket ({e}): send another socket")
                })?;
                let counters = counters.only(self.allowed.variables);
                let value = |v| counters.get(v).map(|value| (v as u8, value));
                let values = counters.known().iter().filter_map(value).collect();
                Reply::Counters { values }
            }
        };
        Ok((reply, None))
    }

    fn open(
        &mut self,
        shared: &mut Shared,
        version: u32,
        size: u32,
    ) -> Result<(Reply, OwnedFd), String> {
        if version != VERSION {
            return Err(format!(
                "the daemon has protocol version {VERSION} and this library version {version}: install both from one release"
            ));
        }
        if self.is_open() {
            return Err("this client has a ring already".into());
        }
        if !size.is_power_of_two() || size < SMALLEST {
            return Err(format!(
                "a ring of {size} bytes is not possible: request a power of two from {SMALLEST} on"
            ));
        }
        // The reply has the size, so that a client sees a limit of the policy.
        let size = size.min(self.limits.ring_kib << 10);
        let slot = shared.rings.allocate(self.peer.user, shared.now);
        let (slot, _) = slot.ok_or("all rings are in use: try again later")?;
        let ring = capability::with_bpf(|| {
            let ring = raw::create_ring(size)?;
            shared.monitor.add_ring(slot, ring.as_fd())?;
            io::Result::Ok(ring)
        });
        let ring = ring.map_err(|e| {
            shared.rings.release(slot, shared.now);
            if system::is_short(&e) {
                let fix = system::more_descriptors(&e);
                return format!("the daemon has no descriptor left for a ring ({e}): {fix}");
            }
            format!("the kernel cannot create a ring: {e}")
        })?;
        self.ring = Some(slot);
        let variables = self.allowed.variables.and(shared.monitor.available());
        let reply = Reply::Opened {
            ring: size,
            events: self.allowed.events.bits(),
            variables: variables.bits(),
        };
        Ok((reply, ring))
    }

    /// The socket of a request, if it is a TCP socket and its user may send descriptors.
    fn accept<'a>(
        &self,
        shared: &Shared,
        socket: Result<&'a ReceivedFd, &str>,
    ) -> Result<&'a ReceivedFd, String> {
        let socket = socket?;
        if let Some(why) = shared.closes.refusal(self.peer.user, shared.now) {
            return Err(why);
        }
        tcp::check(socket.fd()).map_err(|e| e.to_string())?;
        Ok(socket)
    }

    fn subscribe(
        &mut self,
        shared: &mut Shared,
        wanted: EventRequest,
        socket: &ReceivedFd,
    ) -> Result<Reply, String> {
        let ring = self.ring.ok_or("this client has no ring")?;
        let (slot, uses) = self.new_slot(shared)?;
        if let Err(error) = capability::with_bpf(|| shared.monitor.attach()) {
            shared.slots.release(slot, shared.now);
            return Err(error.to_string());
        }
        let token = events::token(slot, uses);
        shared.monitor.open(slot, token, ring, wanted);
        let bound = capability::with_bpf(|| shared.monitor.bind(socket.fd(), token));
        if let Err(error) = bound {
            shared.free_slot(slot);
            return Err(match error {
                BindError::Full => "this socket has eight subscribers already: cancel one".into(),
                BindError::System(e) if e.raw_os_error() == Some(libc::ENOMEM) => format!(
                    "the option memory of the socket is used up ({e}): raise the sysctl net.core.optmem_max"
                ),
                BindError::System(e) => format!("the kernel rejects this socket: {e}"),
            });
        }
        self.slots.insert(token, slot);
        Ok(Reply::Subscribed { id: token })
    }

    /// A slot for another subscription, and its number of uses.
    fn new_slot(&self, shared: &mut Shared) -> Result<(u32, u32), String> {
        let most = self.limits.subscriptions_per_client as usize;
        if self.slots.len() >= most {
            return Err(format!(
                "this client has {most} subscriptions already: cancel some, or raise limits.subscriptions-per-client"
            ));
        }
        let (user, now) = (self.peer.user, shared.now);
        let most = self.limits.subscriptions_per_user;
        if user != 0 && shared.slots.held_by(user, now) >= most {
            return Err(format!(
                "user {user} has {most} subscriptions already, including those that ended within a second: cancel some, or raise limits.subscriptions-per-user"
            ));
        }
        let slot = shared.slots.allocate(user, now);
        slot.ok_or_else(|| {
            "all subscriptions are in use: try again in a second, or raise limits.subscriptions"
                .into()
        })
    }

    /// The requested events and variables, if the policy allows all of them. The end of a
    /// connection is always included.
    fn grant(&self, events: u32, variables: u64) -> Result<EventRequest, String> {
        let events = EventSet::from_bits(events);
        let variables = VariableSet::from_bits(variables);
        let end = EventSet::NONE.with(EventKind::Ended);
        let excess = events.without(self.allowed.events.or(end));
        if !excess.is_empty() {
            return Err(format!(
                "the policy does not allow this user the events {excess}: ask the administrator"
            ));
        }
        let excess = variables.without(self.allowed.variables);
        if !excess.is_empty() {
            return Err(format!(
                "the policy does not allow this user the variables {excess}: ask the administrator"
            ));
        }
        Ok(EventRequest {
            events: events.or(end),
            variables,
        })
    }

    /// The tally of a subscription; once, if it has ended.
    fn tally(&mut self, shared: &Shared, id: u64) -> Result<EventCounts, String> {
        let ended = self.ended.iter().position(|&(token, _)| token == id);
        if let Some((_, tally)) = ended.and_then(|at| self.ended.remove(at)) {
            return Ok(tally);
        }
        Ok(shared.monitor.tally(self.slot(id)?))
    }

    fn slot(&self, id: u64) -> Result<u32, String> {
        let slot = self.slots.get(&id).copied();
        slot.ok_or_else(|| {
            "this client has no such subscription: it was cancelled, or its socket is closed".into()
        })
    }
}

/// Rate limit of requests: a token bucket that holds the requests of a second.
#[derive(Debug)]
struct RateLimit {
    per_second: f64,
    left: f64,
    since: Option<Instant>,
}

impl RateLimit {
    fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self {
            per_second,
            left: per_second,
            since: None,
        }
    }

    fn set_limit(&mut self, per_second: u32) {
        self.per_second = f64::from(per_second);
        self.left = self.left.min(self.per_second);
    }

    fn wait(&mut self, now: Instant) -> Duration {
        let since = self.since.replace(now).unwrap_or(now);
        let earned = now.duration_since(since).as_secs_f64() * self.per_second;
        self.left = (self.left + earned).min(self.per_second);
        if self.left >= 1.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64((1.0 - self.left) / self.per_second)
        }
    }

    fn spend(&mut self) {
        self.left -= 1.0;
    }
}

const NO_SOCKET: &str = "the request has no socket: send one along (SCM_RIGHTS)";
const FULL: &str = "the daemon has no descriptor left for this socket: try again later, or raise its limit of open files (ulimit -n, LimitNOFILE=)";
/// Bytes of the smallest ring: a page.
const SMALLEST: u32 = 4_096;
/// Time limit for the request that opens a ring.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_requests_is_limited_to_the_rate() {
        let start = Instant::now();
        let mut rate = RateLimit::new(100);
        let (mut now, mut served) = (start, 0);
        while now < start + Duration::from_secs(3) {
            let wait = rate.wait(now);
            if wait.is_zero() {
                rate.spend();
                served += 1;
                now += Duration::from_micros(10);
            } else {
                now += wait;
            }
        }
        // The requests of one second at once, and those of three seconds after that.
        assert!((399..=401).contains(&served), "{served}");
    }
}
