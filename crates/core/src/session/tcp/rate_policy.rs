//! Who decides how much is made, and what is still worth sending.

use core::fmt::Debug;
use core::time::Duration;

use crate::tcp_rate::{Admit, Retraction, Subscription, TcpView, Told};
use crate::trace::Event;
use crate::units::{Bytes, Rate, Time};

/// Decides for a [`TcpSender`](super::TcpSender). What it knows of the path comes to it by
/// [`on_backlog`](Self::on_backlog), by [`on_view`](Self::on_view) and
/// [`on_event`](Self::on_event), by [`advise`](Self::advise), or by ways of its own.
pub trait RatePolicy: Debug + Send {
    /// A picture is there. Whether to encode it, and at which rate.
    fn order(&mut self, now: Time, frame: u64) -> Verdict;

    /// Where frames wait as pictures ([`Place::Pictures`]): what to do with the oldest, which was
    /// captured at `captured`. Asked while the encoder is free and nothing encoded waits.
    fn admit(&mut self, now: Time, frame: u64, _captured: Time) -> Admit {
        match self.order(now, frame) {
            Verdict::Encode(rate) => Admit::Make(rate),
            Verdict::Skip => Admit::Skip,
        }
    }

    /// A frame is next, and TCP has none of its bytes yet. `false` gives it up, and with it all
    /// that refer to it. Not asked in [`Place::Socket`].
    fn keeps(&mut self, _now: Time, _waiting: &Waiting) -> bool {
        true
    }

    /// Whether a frame that was captured at `captured` is too late, whatever is done with it: why
    /// one that is left out was.
    fn is_late(&self, _now: Time, _captured: Time) -> bool {
        false
    }

    /// Whether an encoded frame may be written now. Not asked in [`Place::Socket`].
    fn has_room(&self, _now: Time) -> bool {
        true
    }

    /// How much waits, asked before every order.
    fn on_backlog(&mut self, _now: Time, _backlog: Backlog) {}

    /// Which events of the connection it wants to be told.
    fn subscribed(&self) -> Subscription {
        Subscription::NONE
    }

    /// The connection stands so.
    fn on_view(&mut self, _now: Time, _view: &TcpView) {}

    /// The connection did this, and stands so. What the answer is goes into `trace`.
    fn on_event(
        &mut self,
        _now: Time,
        _told: Told,
        _view: &TcpView,
        _trace: &mut Vec<(Time, Event)>,
    ) {
    }

    /// A frame is encoded. What follows from that goes into `trace`.
    fn on_encoded(&mut self, _now: Time, _work: Work, _trace: &mut Vec<(Time, Event)>) {}

    /// The answers to events since the last call of this.
    fn take_answers(&mut self) -> Vec<Retraction> {
        Vec::new()
    }

    /// The moment of [`next_timeout`](Self::next_timeout) has come. Earlier is harmless.
    fn on_timeout(&mut self, _now: Time) {}

    /// When to call [`on_timeout`](Self::on_timeout); [`Time::FAR`] while nothing is pending.
    fn next_timeout(&self) -> Time {
        Time::FAR
    }

    /// Somebody outside has an opinion.
    fn advise(&mut self, _now: Time, _advice: Advice) {}

    /// What the encoder is to be told if a picture came now. Encoders that are not ours follow it.
    fn target(&self) -> Rate;
}

/// What the encoder did for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// When it was told to.
    pub ordered: Time,
    /// How long it was at it, by its own account; zero where it has none.
    pub took: Duration,
}

impl Work {
    /// When the frame was there, for a driver that saw it at `now`: on a busy machine its turn may
    /// last longer than the encoder needs.
    pub fn done(self, now: Time) -> Time {
        now.max(self.ordered + self.took)
    }
}

/// Where frames wait that the connection has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the socket, as far as it takes them, and behind it: nothing is ever dropped. An ordinary
    /// sender.
    Socket,
    /// Encoded, before the socket. One that is given up takes those with it that refer to it.
    Frames,
    /// As pictures, before the encoder: a frame is encoded when the connection has room, at the
    /// rate that is right then, and one that is too late costs nothing.
    Pictures,
}

/// What becomes of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is encoded at this rate.
    Encode(Rate),
    /// It is never encoded. Nothing refers to it, so nothing else is lost.
    Skip,
}

/// A frame that is encoded and waits for TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its number.
    pub frame: u64,
    /// When it was captured.
    pub captured: Time,
    /// It can be decoded alone.
    pub key: bool,
    /// Of the access unit.
    pub size: Bytes,
    /// What waits behind it.
    pub behind: Bytes,
}

/// What waits, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// In the application: it can still be dropped.
    pub queued: Bytes,
    /// In the kernel, not yet sent.
    pub unsent: Bytes,
    /// In the network, or lost: sent and not yet acknowledged.
    pub unacknowledged: Bytes,
}

impl Backlog {
    /// All of it.
    pub fn total(self) -> Bytes {
        self.queued + self.unsent + self.unacknowledged
    }
}

/// What somebody outside wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Encode at this rate from the next picture on.
    Rate(Rate),
    /// Give up what waits in the application.
    Drop,
}

/// An ordinary sender: one rate, and everything is sent, however late.
#[derive(Clone, Copy, Debug)]
pub struct Classic {
    rate: Rate,
}

impl Classic {
    /// Encodes at `rate`.
    pub const fn new(rate: Rate) -> Self {
        Self { rate }
    }
}

impl RatePolicy for Classic {
    fn order(&mut self, _now: Time, _frame: u64) -> Verdict {
        Verdict::Encode(self.rate)
    }

    fn target(&self) -> Rate {
        self.rate
    }
}

/// Does as it is told from outside.
#[derive(Clone, Copy, Debug)]
pub struct Follow {
    rate: Rate,
    limits: (Rate, Rate),
    /// What was captured before is given up.
    dropped_until: Option<Time>,
}

impl Follow {
    /// Begins at `rate`, and never leaves `limits`, the lowest and the highest rate.
    pub fn new(rate: Rate, limits: (Rate, Rate)) -> Self {
        let rate = rate.clamp(limits.0, limits.1);
        Self {
            rate,
            limits,
            dropped_until: None,
        }
    }
}

impl RatePolicy for Follow {
    fn order(&mut self, _now: Time, _frame: u64) -> Verdict {
        Verdict::Encode(self.rate)
    }

    fn keeps(&mut self, _now: Time, waiting: &Waiting) -> bool {
        self.dropped_until
            .is_none_or(|until| waiting.captured > until)
    }

    fn advise(&mut self, now: Time, advice: Advice) {
        match advice {
            Advice::Rate(rate) => self.rate = rate.clamp(self.limits.0, self.limits.1),
            Advice::Drop => self.dropped_until = Some(now),
        }
    }

    fn target(&self) -> Rate {
        self.rate
    }
}
