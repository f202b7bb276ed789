//! Rate policies: the rate of each frame, and which frames are still worth sending.

use core::fmt::Debug;
use core::time::Duration;

use crate::tcp_rate::{EventNotification, FrameDecision, RateReduction, Subscription, TcpView};
use crate::trace::Event;
use crate::units::{Bytes, Rate, Time};

/// Decides for a [`TcpSender`](super::TcpSender). Its inputs are [`on_backlog`](Self::on_backlog),
/// [`on_view`](Self::on_view), [`on_event`](Self::on_event) and [`advise`](Self::advise).
pub trait RatePolicy: Debug + Send {
    /// A picture is ready: whether to encode it, and at which rate.
    fn order(&mut self, now: Time, frame: u64) -> Verdict;

    /// Decides on the oldest waiting picture, captured at `captured`. Called in
    /// [`Place::Pictures`], while the encoder is free and no encoded frame waits.
    fn admit(&mut self, now: Time, frame: u64, _captured: Time) -> FrameDecision {
        match self.order(now, frame) {
            Verdict::Encode(rate) => FrameDecision::Encode(rate),
            Verdict::Skip => FrameDecision::Skip,
        }
    }

    /// Whether to send the next frame, of which TCP has accepted no byte. `false` drops it and its
    /// dependents. Not called in [`Place::Socket`].
    fn keeps(&mut self, _now: Time, _waiting: &Waiting) -> bool {
        true
    }

    /// Whether a frame captured at `captured` is too late in any case, which is the reason recorded
    /// for a dropped frame.
    fn is_late(&self, _now: Time, _captured: Time) -> bool {
        false
    }

    /// Whether an encoded frame may be written now. Not called in [`Place::Socket`].
    fn has_room(&self, _now: Time) -> bool {
        true
    }

    /// Updates the backlog. Called before every order.
    fn on_backlog(&mut self, _now: Time, _backlog: Backlog) {}

    /// Events of the connection that the policy needs.
    fn subscribed(&self) -> Subscription {
        Subscription::NONE
    }

    /// Updates the state of the connection.
    fn on_view(&mut self, _now: Time, _view: &TcpView) {}

    /// An event occurred on the connection; `view` is its state after the event. The response is
    /// recorded in `trace`.
    fn on_event(
        &mut self,
        _now: Time,
        _told: EventNotification,
        _view: &TcpView,
        _trace: &mut Vec<(Time, Event)>,
    ) {
    }

    /// A frame was encoded. Completed responses are recorded in `trace`.
    fn on_encoded(&mut self, _now: Time, _work: Work, _trace: &mut Vec<(Time, Event)>) {}

    /// Responses to events since the last call.
    fn take_rate_reductions(&mut self) -> Vec<RateReduction> {
        Vec::new()
    }

    /// The time of [`next_timeout`](Self::next_timeout) has come. Early calls are harmless.
    fn on_timeout(&mut self, _now: Time) {}

    /// Time of the next [`on_timeout`](Self::on_timeout); [`Time::FAR`] without a pending timer.
    fn next_timeout(&self) -> Time {
        Time::FAR
    }

    /// Receives external advice.
    fn advise(&mut self, _now: Time, _advice: Advice) {}

    /// Rate at which a picture would be encoded now. External encoders follow it.
    fn target(&self) -> Rate;
}

/// Encoding of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Time of the order.
    pub ordered: Time,
    /// Encoding time reported by the encoder; zero if it reports none.
    pub took: Duration,
}

impl Work {
    /// Completion time of the frame, observed by the driver at `now`. On a loaded machine the
    /// driver's iteration may take longer than the encoder.
    pub fn done(self, now: Time) -> Time {
        now.max(self.ordered + self.took)
    }
}

/// Stage at which frames wait for room in the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the socket and in front of it: nothing is dropped. An ordinary sender.
    Socket,
    /// Encoded, before the socket. A dropped frame takes its dependents with it.
    Frames,
    /// As pictures, before the encoder. A frame is encoded when the connection has room, at the
    /// rate of that moment; skipping a late picture costs no dependents.
    Pictures,
}

/// Decision on a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Encode at this rate.
    Encode(Rate),
    /// Never encode. No other frame refers to the picture.
    Skip,
}

/// An encoded frame that waits for TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Frame number.
    pub frame: u64,
    /// Capture time.
    pub captured: Time,
    /// The frame is decodable without references.
    pub key: bool,
    /// Size of the access unit.
    pub size: Bytes,
    /// Bytes that wait behind it.
    pub behind: Bytes,
}

/// Bytes that wait, by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// In the application; can still be dropped.
    pub queued: Bytes,
    /// In the kernel, unsent.
    pub unsent: Bytes,
    /// Sent and not acknowledged: in the network, or lost.
    pub unacknowledged: Bytes,
}

impl Backlog {
    /// Sum of the three.
    pub fn total(self) -> Bytes {
        self.queued + self.unsent + self.unacknowledged
    }
}

/// External advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Encode at this rate from the next picture on.
    Rate(Rate),
    /// Drop everything that waits in the application.
    Drop,
}

/// An ordinary sender: constant rate, every frame is sent, however late.
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

/// Follows external advice.
#[derive(Clone, Copy, Debug)]
pub struct Follow {
    rate: Rate,
    limits: (Rate, Rate),
    /// Frames captured until then are dropped.
    dropped_until: Option<Time>,
}

impl Follow {
    /// Starts at `rate`, clamped to `limits` (minimum and maximum).
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
