//! Decisions on a waiting frame: rate, key frame or delta frame, and lateness.

use core::time::Duration;

use super::frames::HEADERS;
use super::{MediaSender, Peer, Phase, SentFrame};
use crate::control::Target;
use crate::session::receiver_reports::Bounds;
use crate::trace::{DropCause, KeyCause};
use crate::units::{Bytes, Rate, Time};

impl MediaSender {
    /// Limits the media rate so that the breaker does not trip: the losses of a past outage count
    /// for three reports, and a longer round-trip time lowers the permitted rate.
    pub(super) fn under_ceiling(&self, target: Target) -> Target {
        let Some(ceiling) = self.ceiling.filter(|_| self.config.circuit_breaker) else {
            return target;
        };
        let packet = self.config.packet_size.get();
        let most = ceiling.scale(packet - HEADERS, packet);
        target.media(target.media.min(most))
    }

    /// Moves a target into the bounds of the rate on the wire.
    pub(super) fn within(&self, target: Target, bounds: Bounds) -> Target {
        let packet = self.config.packet_size.get();
        let wire = target.send.max(bounds.least).min(bounds.most);
        Target::of(wire).media(wire.scale(packet - HEADERS, packet))
    }

    pub(super) fn pace(&self) -> Rate {
        let target = self.target();
        Rate::from_f64(target.data().as_f64() * target.burst * self.config.pace)
    }

    /// Whether the buffer behind the encoder has no room for another frame.
    pub(super) fn is_buffer_full(&self) -> bool {
        let limit = self.config.buffer;
        limit.is_some_and(|limit| self.frames.backlog() > limit)
    }

    /// Drops an encoded frame for which the buffer has no room.
    pub(super) fn overflow(&mut self, row: SentFrame) {
        self.log(SentFrame {
            dropped: Some(DropCause::Overflow),
            ..row
        });
        self.chain.break_at(row.frame, KeyCause::Repair);
    }

    /// Media rate of a frame captured at `captured`. Frames that waited, for example for the end of
    /// a blackout, are encoded at the minimum rate, so that the stream catches up. A key frame takes
    /// several budgets and is as small as the delay bound requires, down to one budget of the
    /// minimum rate.
    pub(super) fn frame_rate(&self, now: Time, captured: Time, key: bool) -> Rate {
        let (floor, ceiling) = self.config.rates;
        let waited = self.config.delay_bound.is_some()
            && self.has_waited(now, captured)
            && !self.capture.waits_for_encoder(now, captured);
        let rate = if waited {
            floor
        } else {
            self.target().media.max(floor).min(ceiling)
        };
        match self.room(now, captured).filter(|_| key) {
            Some(room) => {
                let largest = self.config.frame_rate.interval() * KEY_BUDGETS;
                let least = floor.scale(1, u64::from(KEY_BUDGETS));
                rate.min(room.scale(1, KEY_MARGIN) / largest).max(least)
            }
            None => rate,
        }
    }

    /// Size of the frame that is just in time if it is encoded now, without headers; `None` without
    /// a bound.
    fn room(&self, now: Time, captured: Time) -> Option<Bytes> {
        let deadline = captured + self.config.delay_bound?;
        let encoded = now + self.capture.lag();
        let pace = self.pace();
        let ahead = self.frames.backlog() + self.config.packet_size;
        let start = self.pacer.time_to_send(encoded, ahead, Bytes::ZERO, pace);
        let wire = pace * deadline.since(encoded + start + self.travel(now));
        let packet = self.config.packet_size.get();
        Some(wire.scale(packet - HEADERS, packet))
    }

    /// Whether a frame that waited stays unencoded because the previous key frame is still being
    /// sent. If that one is dropped, this frame can become the key frame instead of being lost with
    /// it.
    pub(super) fn is_held(&self, now: Time, captured: Time) -> bool {
        let key_waits = self.last_key_left.is_none() && !self.frames.is_empty();
        key_waits && self.config.delay_bound.is_some() && self.has_waited(now, captured)
    }

    /// Whether the frame is not encoded because the encoder or the source is slower than the frame
    /// rate. Without this, all frames would wait for as long as the delay bound permits, and be
    /// encoded at the minimum rate.
    pub(super) fn is_passed_over(&self, now: Time, captured: Time) -> bool {
        self.capture.waiting() > 1
            && self.has_waited(now, captured)
            && self.capture.waits_for_encoder(now, captured)
    }

    /// Whether the frame was ordered later than the encoding time explains.
    pub(super) fn has_waited(&self, now: Time, captured: Time) -> bool {
        now.since(captured) > self.config.frame_rate.interval() * 2
    }

    /// Minimum size of the frames that wait behind the next one.
    pub(super) fn waiting_raw(&self) -> Bytes {
        let floor = self.config.rates.0 * self.config.frame_rate.interval();
        floor.scale((self.capture.waiting() as u64).saturating_sub(1), 1)
    }

    pub(super) fn key_cause(&self, frame: u64) -> Option<KeyCause> {
        let every = match (self.config.key_interval, self.peer) {
            (Some(every), _) => Some(every),
            // Plain receivers cannot request key frames: send one every two seconds.
            (None, Peer::Unknown | Peer::Silent | Peer::ReceiverReports) => {
                Some((self.config.frame_rate.as_f64() * 2.0) as u64)
            }
            (None, Peer::PerPacket { .. }) => None,
        };
        let since = self.chain.since_key(frame);
        let periodic = every.is_some_and(|n| since.is_some_and(|s| s >= n.max(1)));
        let broken = self.chain.broken();
        broken.or(periodic.then_some(KeyCause::Periodic))
    }

    /// Whether `ahead` bytes that leave from now on arrive too late for the frame.
    pub(super) fn is_late(&self, now: Time, captured: Time, ahead: Bytes) -> bool {
        let Some(mut bound) = self.config.delay_bound else {
            return false;
        };
        if !self.path.has_rtt() {
            // The delay of the path is unknown. A key frame at the minimum rate must not be late at
            // any frame rate.
            bound = bound.max(self.config.frame_rate.interval() * KEY_BUDGETS);
        }
        let leave = self
            .pacer
            .time_to_send(now, Bytes::ZERO, ahead, self.pace());
        now + leave + self.travel(now) > captured + bound
    }

    /// Expected time from the departure of a packet to its arrival.
    fn travel(&self, now: Time) -> Duration {
        // While nothing is sent, the predicted queueing delay is unknown.
        let queueing = if self.phase == Phase::Open {
            self.queueing().min(self.control.queueing_at(now))
        } else {
            self.queueing()
        };
        queueing + self.path.one_way()
    }

    /// Self-induced queueing delay of a packet that leaves now. Zero if all sent packets have
    /// arrived, whatever their delay was: otherwise a sender that pauses because of a long queue
    /// would never learn that it has drained.
    pub(super) fn queueing(&self) -> Duration {
        if self.history.in_flight() == Bytes::ZERO {
            Duration::ZERO
        } else {
            self.control.queueing()
        }
    }

    /// Whether the next frame must be sent as a probe, even if late: it is the first, or nothing was
    /// sent for [`PROBE_PAUSE`], and only arrivals can show that the path has improved.
    pub(super) fn is_probe_due(&self, now: Time) -> bool {
        let idle = self.first_media.is_none() || now.since(self.last_media) >= PROBE_PAUSE;
        self.frames.is_empty() && idle
    }
}

/// Maximum size of a key frame, in frame budgets.
const KEY_BUDGETS: u32 = 4;
/// Part of the room that a key frame takes, as a divisor: the rate falls by half when a queue
/// overflows or the no-feedback timer expires while it is sent. With the whole room, such a stream
/// of 3 to 4 frames per second lost a sixth of its frames.
const KEY_MARGIN: u64 = 2;
/// Maximum pause of a stream that has no frame in time: a minimal key frame of two packets per
/// second is 20 kb/s.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
