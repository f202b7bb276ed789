//! Handshakes of a receiver.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use tidegate_core::units::Time;

use super::Session;
use crate::handshake::{self, MESSAGE};
use crate::random::Generator;
use crate::secret::SharedSecret;

/// Answers hellos. A session begins when the first packet with its keys is received: who replays a
/// recorded hello has no keys.
#[derive(Debug)]
pub(super) struct Responder {
    secret: SharedSecret,
    generator: Generator,
    /// Answered handshakes without packets, the oldest first.
    pending: VecDeque<Pending>,
    /// Hellos that were answered and are no longer pending: later copies are replays.
    spent: SpentHellos,
    answer: Option<[u8; MESSAGE]>,
    /// Handshakes that may be answered now, and the time of the last change.
    budget: u32,
    budget_at: Time,
}

#[derive(Debug)]
struct Pending {
    hello: [u8; MESSAGE],
    answer: [u8; MESSAGE],
    session: Session,
    since: Time,
}

impl Responder {
    pub(super) fn new(secret: SharedSecret, generator: Generator) -> Self {
        Self {
            secret,
            generator,
            pending: VecDeque::new(),
            spent: SpentHellos::default(),
            answer: None,
            budget: MAX_PENDING as u32,
            budget_at: Time::ZERO,
        }
    }

    /// Processes a datagram with the first byte of a hello.
    pub(super) fn on_hello(&mut self, now: Time, datagram: &[u8]) {
        self.answer = None;
        self.expire(now);
        let Ok(hello) = datagram.try_into() else {
            return;
        };
        // The hello is sent until its answer arrives, which may be lost. The same answer keeps the
        // keys that the initiator may already use.
        if let Some(known) = self.pending.iter().find(|p| p.hello == hello) {
            self.answer = Some(known.answer);
            return;
        }
        self.refill(now);
        if self.budget == 0 || self.spent.contains(&hello) {
            return;
        }
        let made = handshake::answer(&self.secret, &mut self.generator, &hello);
        let Some((answer, keys)) = made else {
            return;
        };
        self.budget -= 1;
        self.spent.insert(&hello);
        if self.pending.len() == MAX_PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back(Pending {
            hello,
            answer,
            session: Session::of_responder(&keys),
            since: now,
        });
        self.answer = Some(answer);
    }

    /// Answer to the last hello, if it was authentic.
    pub(super) fn take_answer(&mut self) -> Option<[u8; MESSAGE]> {
        self.answer.take()
    }

    /// Whether an answer waits to be sent.
    pub(super) fn has_answer(&self) -> bool {
        self.answer.is_some()
    }

    /// Session of a pending handshake whose keys protect the datagram, which is decrypted. Other
    /// pending handshakes are dropped.
    pub(super) fn confirm(&mut self, now: Time, datagram: &mut Vec<u8>) -> Option<Session> {
        self.expire(now);
        // The newest first: an initiator uses the keys of its last hello.
        let mut pending = self.pending.iter_mut().rev();
        let hello = pending.find_map(|p| p.session.open(datagram).map(|_| p.hello))?;
        let index = self.pending.iter().position(|p| p.hello == hello)?;
        let confirmed = self.pending.remove(index)?;
        self.pending.clear();
        Some(confirmed.session)
    }

    fn expire(&mut self, now: Time) {
        self.pending.retain(|p| now.since(p.since) < PENDING_TIME);
    }

    fn refill(&mut self, now: Time) {
        let full = MAX_PENDING as u32;
        let earned = now.since(self.budget_at).as_nanos() / REFILL.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(full).min(full);
        if earned > 0 {
            self.budget = (self.budget + earned).min(full);
            self.budget_at = now;
        }
    }
}

/// The last hellos that were answered.
#[derive(Debug, Default)]
struct SpentHellos {
    known: BTreeSet<Tag>,
    /// In the order of their arrival.
    order: VecDeque<Tag>,
}

/// Authentication tag of a hello, which identifies it.
type Tag = [u8; 16];

impl SpentHellos {
    fn contains(&self, hello: &[u8; MESSAGE]) -> bool {
        self.known.contains(&tag(hello))
    }

    fn insert(&mut self, hello: &[u8; MESSAGE]) {
        if self.order.len() == MAX_SPENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        let tag = tag(hello);
        self.known.insert(tag);
        self.order.push_back(tag);
    }
}

fn tag(hello: &[u8; MESSAGE]) -> Tag {
    *hello.last_chunk().expect("a hello is longer than its tag")
}

/// A recorded hello takes a place among the pending ones at most once: at the rate of [`REFILL`],
/// more than 13 minutes pass before one can be used again.
const MAX_SPENT: usize = 4_096;
/// Each rejected packet is tested with the keys of all pending handshakes.
const MAX_PENDING: usize = 8;
/// Time for the first packet after the answer: several intervals of the hello.
const PENDING_TIME: Duration = Duration::from_secs(5);
/// An answer costs about 100 µs. Recorded hellos in any number cost at most 0.1 % of a processor at
/// this interval, and leave each pending handshake more than a second before its replacement.
const REFILL: Duration = Duration::from_millis(200);
