//! Handshakes of a receiver.

use core::time::Duration;

use tidegate_core::units::Time;

use super::Session;
use crate::handshake::{self, MESSAGE, Secret};
use crate::random::Generator;
use crate::secret::SharedSecret;

/// Answers hellos. A session begins when the first packet with its keys is received: a source that
/// replays a recorded hello has no keys.
#[derive(Debug)]
pub(super) struct Responder {
    secret: Secret,
    generator: Generator,
    /// Time stamp of the newest authentic hello. Earlier ones are recordings.
    newest: u64,
    /// Whether that hello was answered.
    is_answered: bool,
    /// The answered handshake without packets.
    pending: Option<Pending>,
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
            secret: Secret::new(secret),
            generator,
            newest: 0,
            is_answered: true,
            pending: None,
            answer: None,
            budget: BURST,
            budget_at: Time::ZERO,
        }
    }

    /// Processes a datagram with the first byte of a hello.
    pub(super) fn on_hello(&mut self, now: Time, datagram: &[u8]) {
        self.answer = None;
        self.expire(now);
        let Ok(hello) = <[u8; MESSAGE]>::try_from(datagram) else {
            return;
        };
        // The hello is sent until its answer arrives, which may be lost. The same answer keeps the
        // keys that the initiator may already use.
        if let Some(known) = self.pending.as_ref().filter(|p| p.hello == hello) {
            self.answer = Some(known.answer);
            return;
        }
        let Some(stamp) = self.secret.verify(&hello) else {
            return;
        };
        if stamp < self.newest || stamp == self.newest && self.is_answered {
            return;
        }
        // Also without budget: recordings, which are older than the hello of a sender that begins
        // now, cannot use up the budget any more when that hello is repeated.
        self.newest = stamp;
        self.is_answered = false;
        self.refill(now);
        if self.budget == 0 {
            return;
        }
        self.budget -= 1;
        self.is_answered = true;
        let made = handshake::answer(&self.secret, &mut self.generator, &hello, stamp);
        let Some((answer, keys)) = made else {
            return;
        };
        self.pending = Some(Pending {
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

    /// Session of the pending handshake, if its keys protect the datagram, which is decrypted.
    pub(super) fn confirm(&mut self, now: Time, datagram: &mut Vec<u8>) -> Option<Session> {
        self.expire(now);
        self.pending.as_mut()?.session.open(datagram)?;
        self.pending.take().map(|confirmed| confirmed.session)
    }

    fn expire(&mut self, now: Time) {
        let is_over = |pending: &mut Pending| now.since(pending.since) >= PENDING_TIME;
        self.pending.take_if(is_over);
    }

    fn refill(&mut self, now: Time) {
        let earned = now.since(self.budget_at).as_nanos() / REFILL.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(BURST).min(BURST);
        if earned > 0 {
            self.budget = (self.budget + earned).min(BURST);
            self.budget_at = now;
        }
    }
}

/// Handshakes answered without a pause. A sender begins one in several seconds; recordings of many
/// hellos, each later than the one before, exhaust it once after the start of a receiver.
const BURST: u32 = 8;
/// Time for the first packet after the answer: several intervals of the hello.
const PENDING_TIME: Duration = Duration::from_secs(5);
/// An answer costs about 100 µs: recorded hellos in any number cost at most 0.1 % of a processor.
/// Below the first interval of a hello, so that its first repetition finds a budget.
const REFILL: Duration = Duration::from_millis(200);
