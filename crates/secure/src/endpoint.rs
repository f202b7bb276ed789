//! An endpoint whose datagrams are protected.

use core::time::Duration;
use std::collections::VecDeque;

use tidegate_core::control::{Context, TimerReason, sooner};
use tidegate_core::endpoint::{Check, Datagram, Endpoint, Input, Output, SourceCheck, Transmit};
use tidegate_core::units::{Time, nanos};
use tidegate_core::wire::rtcp::is_rtcp;

use crate::handshake::{self, Initiator, MESSAGE, Secret, SessionKeys};
use crate::keys::MasterKey;
use crate::random::Generator;
use crate::secret::SharedSecret;
use crate::srtp::{PacketOrder, Protector, Unprotector};

mod responder;

use responder::Responder;

/// Protects an endpoint's datagrams as SRTP and SRTCP.
///
/// Nothing of the inner endpoint leaves before there are keys, and nothing that is not authentic
/// reaches it. An initiator does not start the inner endpoint before that, so that its timers do
/// not expire meanwhile.
///
/// A datagram grows by [`rtp_overhead`](crate::srtp::rtp_overhead), which the caller subtracts from
/// the packet size of the inner endpoint.
#[derive(Debug)]
pub struct SecureEndpoint<E> {
    inner: E,
    keying: Keying,
    session: Option<Session>,
    /// Keys before the present ones, and the time until which packets with them may arrive.
    former: Option<(Unprotector, Time)>,
    counts: SecurityCounts,
    /// Copy of a received datagram, which is decrypted in place.
    scratch: Vec<u8>,
}

/// Source of the keys.
#[derive(Debug)]
enum Keying {
    /// No protection.
    Plain,
    /// A session description; the keys never change.
    Described,
    /// The handshake of a sender.
    Initiator(Box<Greeting>),
    /// The handshake of a receiver.
    Responder(Box<Responder>),
}

/// Contexts of both directions.
#[derive(Debug)]
struct Session {
    protector: Protector,
    unprotector: Unprotector,
}

/// Handshakes of an initiator.
#[derive(Debug)]
struct Greeting {
    secret: Secret,
    /// Time since 1970 at [`Time::ZERO`].
    epoch: Duration,
    generator: Generator,
    /// The handshakes whose answers may be on their way, at most [`MAX_OPEN`], the newest last.
    open: VecDeque<Initiator>,
    /// Time of the next hello.
    next: Time,
    /// Interval after the next hello.
    interval: Duration,
    /// Begin of the newest handshake, and of the first one without answer.
    opened: Time,
    since: Option<Time>,
    is_due: bool,
    /// Time of the last authentic datagram.
    last: Time,
    /// Time at which the keys of the session are renewed.
    renewal: Time,
    has_failed: bool,
}

/// Counters of a [`SecureEndpoint`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecurityCounts {
    /// Datagrams that were not authentic, or were received before.
    pub rejected: u64,
    /// Rejected hellos in the format of version 1. They are not authenticated.
    pub outdated: u64,
    /// Sessions whose keys were confirmed by an authentic datagram.
    pub sessions: u64,
    /// Packets of the inner endpoint that were discarded for lack of keys.
    pub unsent: u64,
}

impl<E: Endpoint> SecureEndpoint<E> {
    /// Without protection: all datagrams pass unchanged.
    pub fn plain(inner: E) -> Self {
        Self::with_keying(inner, Keying::Plain)
    }

    /// With the key of a session description, which both directions share. If `expected` contains
    /// SSRCs, datagrams of others are rejected. The SSRCs of both ends must differ.
    pub fn with_key(inner: E, key: &MasterKey, expected: Vec<u32>) -> Self {
        let session = Session {
            protector: Protector::new(key),
            unprotector: Unprotector::joining(key, expected),
        };
        Self {
            session: Some(session),
            ..Self::with_keying(inner, Keying::Described)
        }
    }

    /// Begins a handshake, and another one when the keys are older than [`KEY_LIFETIME`] or the peer
    /// is silent for [`PEER_SILENCE`], as after its restart. `seed` is 32 bytes of the system's randomness. `epoch` is the time since 1970
    /// at [`Time::ZERO`]: a responder takes a hello only if no later one has arrived.
    pub fn initiator(inner: E, secret: SharedSecret, seed: [u8; 32], epoch: Duration) -> Self {
        let greeting = Greeting {
            secret: Secret::new(secret),
            epoch,
            generator: Generator::new(seed),
            open: VecDeque::new(),
            next: Time::ZERO,
            interval: FIRST_INTERVAL,
            opened: Time::ZERO,
            since: None,
            is_due: false,
            last: Time::ZERO,
            renewal: Time::FAR,
            has_failed: false,
        };
        Self::with_keying(inner, Keying::Initiator(Box::new(greeting)))
    }

    /// Waits for handshakes. `seed` is 32 bytes of the system's randomness.
    pub fn responder(inner: E, secret: SharedSecret, seed: [u8; 32]) -> Self {
        let responder = Responder::new(secret, Generator::new(seed));
        Self::with_keying(inner, Keying::Responder(Box::new(responder)))
    }

    fn with_keying(inner: E, keying: Keying) -> Self {
        Self {
            inner,
            keying,
            session: None,
            former: None,
            counts: SecurityCounts::default(),
            scratch: Vec::new(),
        }
    }

    /// The inner endpoint.
    pub fn inner(&self) -> &E {
        &self.inner
    }

    /// The inner endpoint.
    pub fn inner_mut(&mut self) -> &mut E {
        &mut self.inner
    }

    /// Counters.
    pub fn counts(&self) -> SecurityCounts {
        self.counts
    }

    /// Whether datagrams are authenticated.
    pub fn is_secure(&self) -> bool {
        !matches!(self.keying, Keying::Plain)
    }

    /// Whether the inner endpoint can send: there are keys, or it needs none.
    pub fn is_ready(&self) -> bool {
        self.session.is_some() || !self.is_secure()
    }

    /// Whether no answer to the first handshake arrived within [`PATIENCE`].
    pub fn has_failed(&self) -> bool {
        matches!(&self.keying, Keying::Initiator(greeting) if greeting.has_failed)
    }

    /// Whether the inner endpoint is started.
    fn is_started(&self) -> bool {
        self.session.is_some() || !matches!(self.keying, Keying::Initiator(_))
    }

    fn receive(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) -> Check {
        if let Keying::Initiator(greeting) = &mut self.keying
            && handshake::is_answer(datagram.payload)
        {
            return match greeting.on_answer(cx.now, datagram.payload) {
                Some(keys) => {
                    let old = self.session.replace(Session::of_initiator(&keys));
                    self.keep(cx.now, old);
                    self.counts.sessions += 1;
                    source(SourceCheck::NewSession)
                }
                None => source(SourceCheck::Rejected),
            };
        }
        if let Keying::Responder(responder) = &mut self.keying
            && handshake::is_hello(datagram.payload)
        {
            self.counts.outdated += u64::from(handshake::is_outdated(datagram.payload));
            responder.on_hello(cx.now, datagram.payload);
            return source(SourceCheck::Rejected);
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(datagram.payload);
        let session = self.session.as_mut();
        let order = session.and_then(|session| session.open(&mut self.scratch));
        let source = match order {
            Some(PacketOrder::Newest) => SourceCheck::Newest,
            Some(PacketOrder::Late) => SourceCheck::Authenticated,
            None if self.open_former(cx.now) => SourceCheck::Authenticated,
            None if self.confirm(cx) => SourceCheck::NewSession,
            None => return source(SourceCheck::Rejected),
        };
        if let Keying::Initiator(greeting) = &mut self.keying {
            greeting.on_authentic(cx.now);
        }
        let payload = &self.scratch;
        let Datagram { ecn, dscp, .. } = datagram;
        let input = Input::Datagram(Datagram { ecn, dscp, payload });
        Check {
            source,
            ..self.inner.handle(cx, input)
        }
    }

    /// Whether the datagram in `scratch` is the first with the keys of an answered handshake. If it
    /// is, these are the keys of the session from now on.
    fn confirm(&mut self, cx: &mut Context<'_>) -> bool {
        let Keying::Responder(responder) = &mut self.keying else {
            return false;
        };
        let Some(session) = responder.confirm(cx.now, &mut self.scratch) else {
            return false;
        };
        self.counts.sessions += 1;
        let old = self.session.replace(session);
        // A sender that continues its stream after an interruption keeps its SSRC.
        let is_other = old.as_ref().is_some_and(|old| {
            sender(&self.scratch).is_none_or(|ssrc| !old.unprotector.knows(ssrc))
        });
        if is_other {
            self.former = None;
            self.inner.handle(cx, Input::PeerChanged);
        } else {
            self.keep(cx.now, old);
        }
        true
    }

    /// Accepts packets with the keys of `old` that are still on their way.
    fn keep(&mut self, now: Time, old: Option<Session>) {
        self.former = old.map(|old| (old.unprotector, now + FORMER_TIME));
    }

    /// Whether the datagram in `scratch`, which is decrypted, has the keys before the present ones.
    fn open_former(&mut self, now: Time) -> bool {
        self.former.take_if(|(_, until)| *until <= now);
        let former = self.former.as_mut();
        former.is_some_and(|(keys, _)| keys.unprotect(&mut self.scratch).is_ok())
    }

    /// Processes a datagram of an endpoint with protection.
    fn on_datagram(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) -> Check {
        let check = self.receive(cx, datagram);
        let is_answered =
            matches!(&self.keying, Keying::Responder(responder) if responder.has_answer());
        if check.source == SourceCheck::Rejected && !is_answered {
            self.counts.rejected += 1;
        }
        check
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        let has_session = self.session.is_some();
        if let Keying::Initiator(greeting) = &mut self.keying {
            greeting.on_timeout(cx.now, has_session);
        }
        if self.is_started() {
            self.inner.handle(cx, Input::Timeout);
        }
    }

    /// The next hello of an initiator is due.
    fn greet_again(&mut self) {
        if let Keying::Initiator(greeting) = &mut self.keying {
            greeting.next = Time::ZERO;
        }
    }

    /// A message of the handshake that is due.
    fn handshake(&mut self, buffer: &mut Vec<u8>) -> Option<Output> {
        let (message, output) = match &mut self.keying {
            Keying::Plain | Keying::Described => return None,
            Keying::Initiator(greeting) => {
                (greeting.take_hello()?, Output::Send(Transmit::default()))
            }
            Keying::Responder(responder) => (responder.take_answer()?, Output::Answer),
        };
        buffer.extend_from_slice(&message);
        Some(output)
    }

    /// Time of the next message of the handshake, or of its end.
    fn handshake_timer(&self) -> Option<(Time, TimerReason)> {
        let Keying::Initiator(greeting) = &self.keying else {
            return None;
        };
        let at = greeting.next_timeout(self.session.is_some())?;
        Some((at, TimerReason::Handshake))
    }
}

impl<E: Endpoint> Endpoint for SecureEndpoint<E> {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Datagram(datagram) if self.is_secure() => self.on_datagram(cx, datagram),
            Input::PathChanged if !self.is_started() => {
                self.greet_again();
                Check::default()
            }
            Input::Datagram(_) | Input::PeerChanged | Input::PathChanged | Input::Stream(_) => {
                self.inner.handle(cx, input)
            }
            Input::Timeout => {
                self.on_timeout(cx);
                Check::default()
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        if !self.is_secure() {
            return self.inner.poll(cx, buffer);
        }
        if let Some(output) = self.handshake(buffer) {
            return output;
        }
        if self.has_failed() {
            return Output::Done(None);
        }
        if !self.is_started() {
            return Output::Wait(self.handshake_timer());
        }
        loop {
            let output = self.inner.poll(cx, buffer);
            match output {
                Output::Done(timer) => return Output::Done(sooner(timer, self.handshake_timer())),
                Output::Wait(timer) => return Output::Wait(sooner(timer, self.handshake_timer())),
                // Byte streams are protected by TLS, not by SRTP.
                Output::Write | Output::WaitForRoom(_) => {
                    buffer.clear();
                    return Output::Wait(self.handshake_timer());
                }
                Output::Answer | Output::Send(_) => {}
            }
            let session = self.session.as_mut();
            if session.is_some_and(|session| session.protector.protect(buffer).is_ok()) {
                return output;
            }
            buffer.clear();
            self.counts.unsent += 1;
        }
    }
}

impl Session {
    fn of_initiator(keys: &SessionKeys) -> Self {
        Self {
            protector: Protector::new(&keys.initiator),
            unprotector: Unprotector::new(&keys.responder),
        }
    }

    fn of_responder(keys: &SessionKeys) -> Self {
        Self {
            protector: Protector::new(&keys.responder),
            unprotector: Unprotector::new(&keys.initiator),
        }
    }

    /// Decrypts an authentic datagram of the other end. Both directions may have the same key: a
    /// datagram with an SSRC of this end was reflected.
    fn open(&mut self, datagram: &mut Vec<u8>) -> Option<PacketOrder> {
        if sender(datagram).is_some_and(|ssrc| self.protector.knows(ssrc)) {
            return None;
        }
        self.unprotector.unprotect(datagram).ok()
    }
}

impl Greeting {
    fn on_timeout(&mut self, now: Time, has_session: bool) {
        let is_due = self.next_timeout(has_session).is_some_and(|at| at <= now);
        if !is_due {
            return;
        }
        let since = *self.since.get_or_insert(now);
        if !has_session && now.since(since) >= PATIENCE {
            self.has_failed = true;
            return;
        }
        let is_old = now.since(self.opened) >= HELLO_LIFETIME;
        if self.open.is_empty() {
            self.interval = FIRST_INTERVAL;
        }
        if self.open.is_empty() || is_old {
            if self.open.len() == MAX_OPEN {
                self.open.pop_front();
            }
            let stamp = nanos(self.epoch).saturating_add(now.as_nanos());
            let fresh = Initiator::new(&self.secret, &mut self.generator, stamp);
            self.open.push_back(fresh);
            self.opened = now;
        }
        self.is_due = true;
        self.next = now + self.interval;
        self.interval = (self.interval * 2).min(LAST_INTERVAL);
    }

    fn next_timeout(&self, has_session: bool) -> Option<Time> {
        if self.has_failed {
            return None;
        }
        let silent = self.last + PEER_SILENCE;
        Some(if has_session {
            self.next.max(silent.min(self.renewal))
        } else {
            self.next
        })
    }

    fn take_hello(&mut self) -> Option<[u8; MESSAGE]> {
        let is_due = core::mem::take(&mut self.is_due);
        self.open
            .back()
            .filter(|_| is_due)
            .map(|open| *open.hello())
    }

    fn on_answer(&mut self, now: Time, datagram: &[u8]) -> Option<SessionKeys> {
        if self.open.is_empty() {
            return None;
        }
        let stamp = self.secret.verify(datagram)?;
        let open = self.open.iter_mut().find(|open| open.is_at(stamp))?;
        let keys = open.read_answer(datagram)?;
        self.renewal = now + KEY_LIFETIME;
        self.on_authentic(now);
        Some(keys)
    }

    /// The peer has the keys of the session: no other handshake is needed before their renewal.
    fn on_authentic(&mut self, now: Time) {
        self.last = now;
        if now >= self.renewal {
            return;
        }
        self.since = None;
        self.open.clear();
        self.is_due = false;
    }
}

/// The check of a datagram that did not reach the inner endpoint.
fn source(source: SourceCheck) -> Check {
    Check {
        source,
        is_believed: false,
    }
}

/// SSRC of the sender of an RTP or RTCP packet.
fn sender(packet: &[u8]) -> Option<u32> {
    let at = if is_rtcp(packet) { 4 } else { 8 };
    let ssrc = packet.get(at..at + 4)?;
    Some(u32::from_be_bytes(ssrc.try_into().ok()?))
}

/// Time after which an initiator without any answer gives up. Equal to the patience of a session
/// without feedback.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Silence of the peer after which an initiator begins another handshake. Equal to the time after
/// which a receiver accepts another SSRC.
pub const PEER_SILENCE: Duration = Duration::from_secs(2);
/// Age at which an initiator renews the keys of a session, that of `WireGuard`. A sender of 10 Gb/s
/// sends 2^27 packets in it, far below the limits of SRTP (2^48) and SRTCP (2^31, RFC 3711 section
/// 9.2), so that no limit by volume is needed.
pub const KEY_LIFETIME: Duration = Duration::from_mins(2);
/// Packets with the former keys that arrive later than this are lost: above the round trip over
/// which a handshake completes.
const FORMER_TIME: Duration = Duration::from_secs(5);
/// Age at which a hello is replaced by another one, whose answer replaces the keys at the responder.
/// It waits 5 s for the first packet with them, and an answer after this time is of no use.
const HELLO_LIFETIME: Duration = Duration::from_millis(4_500);
/// Handshakes whose answers are accepted: the answer to the one before may be on its way.
const MAX_OPEN: usize = 2;
/// Intervals between hellos: above most round-trip times, then doubled to this maximum.
const FIRST_INTERVAL: Duration = Duration::from_millis(250);
const LAST_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
