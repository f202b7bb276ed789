//! What is made of a frame that waits: at which rate, as a key frame or not, and whether it is too late.

use core::time::Duration;

use super::frames::HEADERS;
use super::{MediaSender, Peer, Phase};
use crate::control::Target;
use crate::trace::KeyCause;
use crate::units::{Bytes, Rate, Time};

impl MediaSender {
    /// Less media rather than none: losses of an outage that is over count for the breaker in
    /// three reports, and the longer the round trip, the less may leave meanwhile.
    pub(super) fn under_ceiling(&self, target: Target) -> Target {
        let Some(ceiling) = self.ceiling.filter(|_| self.config.circuit_breaker) else {
            return target;
        };
        let packet = self.config.packet_size.get();
        let most = ceiling.scale(packet - HEADERS, packet);
        target.media(target.media.min(most))
    }

    pub(super) fn pace(&self) -> Rate {
        Rate::from_f64(self.target().send.as_f64() * self.config.pace)
    }

    /// The media rate for a frame captured at `captured`: frames that had to wait, as for the
    /// end of a blackout, are made as small as can be, so that the stream catches up.
    pub(super) fn frame_rate(&self, now: Time, captured: Time) -> Rate {
        let (floor, ceiling) = self.config.rates;
        if self.has_waited(now, captured) && self.config.delay_bound.is_some() {
            return floor;
        }
        self.target().media.max(floor).min(ceiling)
    }

    /// Whether a frame that had to wait stays uncoded, since the key frame before it is still
    /// leaving: if that is given up, this one can be the key frame, and is not lost with it.
    pub(super) fn is_held(&self, now: Time, captured: Time) -> bool {
        let key_waits = self.last_key_left.is_none() && !self.frames.is_empty();
        key_waits && self.config.delay_bound.is_some() && self.has_waited(now, captured)
    }

    /// Whether a frame is ordered later than the encoder's own time explains.
    pub(super) fn has_waited(&self, now: Time, captured: Time) -> bool {
        now.since(captured) > self.config.frame_rate.interval() * 2
    }

    /// What the frames that wait behind the next one will take at least.
    pub(super) fn waiting_raw(&self) -> Bytes {
        let floor = self.config.rates.0 * self.config.frame_rate.interval();
        floor.scale((self.capture.waiting() as u64).saturating_sub(1), 1)
    }

    pub(super) fn key_cause(&self, frame: u64) -> Option<KeyCause> {
        let every = match (self.config.key_interval, self.peer) {
            (Some(every), _) => Some(every),
            // Plain receivers cannot ask: let them in every two seconds.
            (None, Peer::Unknown | Peer::RrFallback) => {
                Some((self.config.frame_rate.as_f64() * 2.0) as u64)
            }
            (None, Peer::PerPacket) => None,
        };
        let since = self.chain.since_key(frame);
        let periodic = every.is_some_and(|n| since.is_some_and(|s| s >= n.max(1)));
        let broken = self.chain.broken();
        broken.or(periodic.then_some(KeyCause::Periodic))
    }

    /// Whether `ahead` bytes that leave from now on end too late for a frame.
    pub(super) fn is_late(&self, now: Time, captured: Time, ahead: Bytes) -> bool {
        let Some(bound) = self.config.delay_bound else {
            return false;
        };
        let leave = self
            .pacer
            .time_to_send(now, Bytes::ZERO, ahead, self.pace());
        // While nothing leaves, nothing is known of what the path does to it either.
        let queueing = if self.phase == Phase::Open {
            self.queueing().min(self.control.wait(now))
        } else {
            self.queueing()
        };
        now + leave + queueing + self.path.one_way() > captured + bound
    }

    /// What waits in front of a packet that leaves now. Nothing does if all that left has
    /// arrived, however long the last one had to wait: else a sender that pauses because of a
    /// long queue would never hear that it is gone.
    pub(super) fn queueing(&self) -> Duration {
        if self.history.in_flight() == Bytes::ZERO {
            Duration::ZERO
        } else {
            self.control.queueing()
        }
    }

    /// Whether nothing has left for so long that the next frame has to go, in time or not: only
    /// packets that arrive can show that the path is better than it is believed to be.
    pub(super) fn is_scout_due(&self, now: Time) -> bool {
        self.frames.is_empty() && now.since(self.last_media) >= SCOUT_PAUSE
    }
}

/// Longest pause of a stream that has nothing in time to send: a smallest key frame of two
/// packets each second is 20 kb/s.
const SCOUT_PAUSE: Duration = Duration::from_secs(1);
