//! One client of the daemon.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;
use super::closing::Handed;
use crate::bpf::events::{self, BindError, Tally, Wanted};
use crate::bpf::raw;
use crate::capability::{self, Capability};
use crate::event::{EventKind, EventSet};
use crate::passing;
use crate::peer::Peer;
use crate::policy::Limits;
use crate::protocol::{LONGEST, Reply, Request, VERSION};
use crate::system;
use crate::tcp;
use crate::variables::VariableSet;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    socket: Arc<OwnedFd>,
    peer: Peer,
    allowed: Wanted,
    came: Instant,
    /// Its ring's number, if it has its ring.
    ring: Option<u32>,
    /// Places of its subscriptions by token.
    places: BTreeMap<u64, u32>,
    /// What became of those that have ended, by token, until it was asked for; the oldest first.
    ended: VecDeque<(u64, Tally)>,
    /// Whoever closes descriptors has to take its next message.
    unread: bool,
    limits: Limits,
    budget: Budget,
}

/// What became of a look at a client.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It asked and was answered.
    Served,
    /// It asks nothing.
    Idle,
    /// It is gone, or has to go.
    Gone(&'static str),
}

impl Client {
    pub(super) fn new(
        socket: OwnedFd,
        peer: Peer,
        allowed: Wanted,
        limits: Limits,
        now: Instant,
    ) -> Self {
        Self {
            socket: Arc::new(socket),
            peer,
            allowed,
            came: now,
            ring: None,
            places: BTreeMap::new(),
            ended: VecDeque::new(),
            unread: false,
            limits,
            budget: Budget::new(limits.requests_per_second),
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether it has its ring.
    pub(super) fn is_open(&self) -> bool {
        self.ring.is_some()
    }

    /// Whether it should have its ring by now.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        !self.is_open() && now.duration_since(self.came) >= OPEN_WITHIN
    }

    /// How long it may ask nothing, because it has asked a lot.
    pub(super) fn must_wait(&mut self, now: Instant) -> Duration {
        self.budget.wait(now)
    }

    /// Whether its next message is still to be taken by whoever closes descriptors: until then nobody
    /// else looks at it.
    pub(super) fn is_unread(&mut self) -> bool {
        self.unread = self.unread && Arc::strong_count(&self.socket) > 1;
        self.unread
    }

    /// Whether it hands over what there may be no room for. The system would close that at once, and
    /// have the thread that serves wait for it.
    pub(super) fn brings_too_much(&self) -> bool {
        let brings = passing::brings_descriptors(self.socket()).unwrap_or(false);
        brings && system::descriptors_left() < passing::MOST_ALONG.into()
    }

    /// Refuses its next message without taking it.
    pub(super) fn put_off(&mut self, shared: &mut Shared) -> Outcome {
        self.budget.spend();
        self.unread = true;
        let line = format!("refused: {FULL}");
        shared.lines.tell(&self.peer, &line, Instant::now());
        let why = FULL.to_owned();
        let refusal = Reply::Refused { why }.message();
        shared
            .closing
            .discard(self.peer.user, &self.socket, refusal);
        Outcome::Idle
    }

    /// Takes a request and answers it.
    pub(super) fn serve(&mut self, shared: &mut Shared) -> Outcome {
        // Asked first: what is taken has to be kept until it is closed.
        if shared.closing.is_too_much(self.peer.user) {
            return Outcome::Gone("its user hands over more than can be closed");
        }
        let mut buffer = [0; LONGEST];
        let received = match passing::receive(self.socket(), &mut buffer) {
            Ok(received) => received,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Outcome::Idle,
            Err(_) => return Outcome::Gone("its socket failed"),
        };
        // Whatever came along is closed without waiting for it.
        let hand = |fd| Handed::new(fd, self.peer.user, &shared.closing);
        let mut along = received.along.into_iter().map(hand);
        let none = if received.bereft { FULL } else { NO_SOCKET };
        let first = along.next().ok_or(none);
        along.for_each(drop);
        if received.length == 0 {
            return Outcome::Gone("it closed its socket");
        }
        if received.cut {
            return Outcome::Gone("it sent a message that is too long");
        }
        self.budget.spend();
        let Ok(request) = serde_json::from_slice(&buffer[..received.length]) else {
            return Outcome::Gone("it sent what is no request");
        };
        let mut ring = None;
        let result = self.answer(
            shared,
            request,
            first.as_ref().map_err(|why| *why),
            &mut ring,
        );
        let reply = result.unwrap_or_else(|why| {
            let line = format!("refused: {why}");
            shared.lines.tell(&self.peer, &line, Instant::now());
            Reply::Refused { why }
        });
        // Whoever waits for his answer hands over no more than is closed. Where that hangs, it would
        // come too late.
        let hangs = shared.closing.trouble(self.peer.user, Instant::now());
        if let (Ok(handed), None, None) = (first, &ring, hangs) {
            handed.close_and_answer(&self.socket, reply.message());
            return Outcome::Served;
        }
        let along = ring.as_ref().map(OwnedFd::as_fd);
        match passing::send(self.socket(), &reply.message(), along) {
            Ok(()) => Outcome::Served,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                Outcome::Gone("it asks and takes no answers")
            }
            Err(_) => Outcome::Gone("it is gone"),
        }
    }

    /// Frees what it had.
    pub(super) fn end(self, shared: &mut Shared, now: Instant) {
        for place in self.places.into_values() {
            shared.monitor.close(place);
            shared.places.give(place, now);
        }
        if let Some(ring) = self.ring {
            // It fails only if nothing is there.
            let _ = shared.monitor.unplug(ring);
            shared.rings.give(ring, now);
        }
        shared.closing.hang_up(self.peer.user, self.socket);
    }

    /// Frees the places of subscriptions whose sockets are gone. The end may have found no room in
    /// the ring, so what became of them can still be asked.
    pub(super) fn sweep(&mut self, shared: &mut Shared, now: Instant) {
        self.places.retain(|&token, &mut place| {
            let ended = shared.monitor.has_ended(place);
            if ended {
                if self.ended.len() >= self.limits.subscriptions_per_client as usize {
                    self.ended.pop_front();
                }
                let tally = shared.monitor.tally(place);
                self.ended.push_back((token, tally));
                shared.monitor.close(place);
                shared.places.give(place, now);
            }
            !ended
        });
    }

    fn answer(
        &mut self,
        shared: &mut Shared,
        request: Request,
        along: Result<&Handed, &str>,
        ring: &mut Option<OwnedFd>,
    ) -> Result<Reply, String> {
        if !self.is_open() && !matches!(request, Request::Open { .. }) {
            return Err("the first request has to be `open`".into());
        }
        match request {
            Request::Open {
                version,
                ring: size,
            } => {
                let (made, reply) = self.open(shared, version, size)?;
                *ring = Some(made);
                Ok(reply)
            }
            Request::Subscribe { events, variables } => {
                let wanted = self.grant(events, variables)?;
                let socket = self.accept(shared, along)?;
                self.subscribe(shared, wanted, socket)
            }
            Request::Change {
                id,
                events,
                variables,
            } => {
                let wanted = self.grant(events, variables)?;
                shared.monitor.change(self.place(id)?, wanted);
                Ok(Reply::Done {})
            }
            Request::Cancel { id } => {
                let place = self.place(id)?;
                self.places.remove(&id);
                shared.monitor.close(place);
                shared.places.give(place, Instant::now());
                Ok(Reply::Done {})
            }
            Request::Tally { id } => {
                let tally = self.tally(shared, id)?;
                Ok(Reply::Tally {
                    events: tally.events,
                    lost: tally.lost,
                })
            }
            Request::Counters {} => {
                let socket = self.accept(shared, along)?;
                let counters = shared.monitor.counters(socket.fd()).map_err(|e| {
                    format!("the kernel tells nothing of this socket ({e}): hand over another")
                })?;
                let counters = counters.only(self.allowed.variables);
                let value = |v| counters.get(v).map(|value| (v as u8, value));
                let values = counters.known().iter().filter_map(value).collect();
                Ok(Reply::Counters { values })
            }
        }
    }

    fn open(
        &mut self,
        shared: &mut Shared,
        version: u32,
        size: u32,
    ) -> Result<(OwnedFd, Reply), String> {
        if version != VERSION {
            return Err(format!(
                "the daemon speaks version {VERSION} and this library version {version}: install both from one release"
            ));
        }
        if self.is_open() {
            return Err("the ring has been given already".into());
        }
        if !size.is_power_of_two() || size < SMALLEST {
            return Err(format!(
                "a ring of {size} bytes: ask for a power of two from {SMALLEST} on"
            ));
        }
        // Who asks for more than the policy gives gets what it gives, and is told how much that is.
        let size = size.min(self.limits.ring_kib << 10);
        let now = Instant::now();
        let number = shared.rings.take(self.peer.user, now);
        let (number, _) = number.ok_or("all rings are taken: try again later")?;
        let ring = capability::with(Capability::Bpf, || {
            let ring = raw::create_ring(size)?;
            shared.monitor.plug(number, ring.as_fd())?;
            io::Result::Ok(ring)
        });
        let ring = ring.map_err(|e| {
            shared.rings.give(number, now);
            if system::is_short(&e) {
                let mend = system::more_descriptors(&e);
                return format!("the daemon has no descriptor left for a ring ({e}): {mend}");
            }
            format!("the kernel gives no ring: {e}")
        })?;
        self.ring = Some(number);
        let variables = self.allowed.variables.and(shared.monitor.available());
        let reply = Reply::Opened {
            ring: size,
            events: self.allowed.events.bits(),
            variables: variables.bits(),
        };
        Ok((ring, reply))
    }

    /// The socket that came along, if one can be taken from this user and it is one of TCP.
    fn accept<'a>(
        &self,
        shared: &Shared,
        along: Result<&'a Handed, &str>,
    ) -> Result<&'a Handed, String> {
        let socket = along?;
        if let Some(why) = shared.closing.trouble(self.peer.user, Instant::now()) {
            return Err(why);
        }
        tcp::check(socket.fd()).map_err(|e| e.to_string())?;
        Ok(socket)
    }

    fn subscribe(
        &mut self,
        shared: &mut Shared,
        wanted: Wanted,
        socket: &Handed,
    ) -> Result<Reply, String> {
        let ring = self.ring.ok_or("the ring has not been given")?;
        let (place, uses) = self.new_place(shared)?;
        if let Err(error) = capability::with(Capability::Bpf, || shared.monitor.wake()) {
            shared.places.give(place, Instant::now());
            return Err(error.to_string());
        }
        let token = events::token(place, uses);
        shared.monitor.open(place, token, ring, wanted);
        let bound = capability::with(Capability::Bpf, || shared.monitor.bind(socket.fd(), token));
        if let Err(error) = bound {
            shared.monitor.close(place);
            shared.places.give(place, Instant::now());
            return Err(match error {
                BindError::Full => "this socket has eight subscribers already: cancel one".into(),
                BindError::System(e) if e.raw_os_error() == Some(libc::ENOMEM) => format!(
                    "the socket's memory for options is used up ({e}): raise the sysctl net.core.optmem_max"
                ),
                BindError::System(e) => format!("the kernel does not take this socket: {e}"),
            });
        }
        self.places.insert(token, place);
        Ok(Reply::Subscribed { id: token })
    }

    /// A place for another subscription, and how often it was taken.
    fn new_place(&self, shared: &mut Shared) -> Result<(u32, u32), String> {
        let most = self.limits.subscriptions_per_client as usize;
        if self.places.len() >= most {
            return Err(format!(
                "this client has {most} subscriptions already: cancel some, or raise limits.subscriptions-per-client"
            ));
        }
        let (user, now) = (self.peer.user, Instant::now());
        let most = self.limits.subscriptions_per_user;
        if user != 0 && shared.places.of(user, now) >= most {
            return Err(format!(
                "user {user} has {most} subscriptions already, with those that ended within a second: cancel some, or raise limits.subscriptions-per-user"
            ));
        }
        let place = shared.places.take(user, now);
        place.ok_or_else(|| {
            "all subscriptions are taken: try again in a second, or raise limits.subscriptions"
                .into()
        })
    }

    /// What is wanted, if all of it is allowed. The end is told to everybody.
    fn grant(&self, events: u32, variables: u64) -> Result<Wanted, String> {
        let events = EventSet::from_bits(events);
        let variables = VariableSet::from_bits(variables);
        let end = EventSet::NONE.with(EventKind::Ended);
        let too_much = events.without(self.allowed.events.or(end));
        if !too_much.is_empty() {
            return Err(format!(
                "the policy does not let this user subscribe to: {too_much}; ask the administrator"
            ));
        }
        let too_much = variables.without(self.allowed.variables);
        if !too_much.is_empty() {
            return Err(format!(
                "the policy does not let this user read: {too_much}; ask the administrator"
            ));
        }
        Ok(Wanted {
            events: events.or(end),
            variables,
        })
    }

    /// What became of a subscription: once, if it has ended.
    fn tally(&mut self, shared: &Shared, id: u64) -> Result<Tally, String> {
        if let Some(at) = self.ended.iter().position(|&(token, _)| token == id)
            && let Some((_, tally)) = self.ended.remove(at)
        {
            return Ok(tally);
        }
        Ok(shared.monitor.tally(self.place(id)?))
    }

    fn place(&self, id: u64) -> Result<u32, String> {
        let place = self.places.get(&id).copied();
        place.ok_or_else(|| {
            "there is no such subscription of this client: it was cancelled, or its socket is closed".into()
        })
    }
}

/// What a client may ask, at a steady rate with a second's worth at once.
#[derive(Debug)]
struct Budget {
    per_second: f64,
    left: f64,
    since: Option<Instant>,
}

impl Budget {
    fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self {
            per_second,
            left: per_second,
            since: None,
        }
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

const NO_SOCKET: &str = "no socket came with the request: hand it over (SCM_RIGHTS)";
const FULL: &str = "the daemon has no descriptor left for this socket: try again later, or raise its limit of open files (ulimit -n, LimitNOFILE=)";
/// Bytes of the least ring.
const SMALLEST: u32 = 4_096;
/// How long a client may take to ask for its ring.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_slowed_to_its_rate() {
        let start = Instant::now();
        let mut budget = Budget::new(100);
        let (mut now, mut served) = (start, 0);
        while now < start + Duration::from_secs(3) {
            let wait = budget.wait(now);
            if wait.is_zero() {
                budget.spend();
                served += 1;
                now += Duration::from_micros(10);
            } else {
                now += wait;
            }
        }
        // A second's worth at once, and three seconds' worth after that.
        assert!((399..=401).contains(&served), "{served}");
    }
}
