//! What is sent next: captured frames in order, their rate, key frames, and frames that are dropped.

use core::time::Duration;
use std::sync::Arc;

use super::capture::Capture;
use super::chain::ReferenceChain;
use super::frames::{HEADERS, OutFrame, SentFrame};
use super::wire::Outlook;
use crate::media::{Encoded, FrameOrder};
use crate::session::config::SenderConfig;
use crate::session::jitter_buffer::LATE_REPAIR;
use crate::trace::{DropCause, KeyCause};
use crate::units::{Bytes, Rate, Time};

/// Schedule of the frames.
#[derive(Debug)]
pub(super) struct Schedule {
    pub(super) capture: Capture,
    pub(super) chain: ReferenceChain,
    /// Departure time of the last packet of the newest key frame; `None` until it has left.
    key_left: Option<Time>,
    /// Frame that is sent as a probe, even if late, and number of consecutive ones.
    probe: Option<u64>,
    pub(super) probes: u32,
    config: Arc<SenderConfig>,
}

/// A frame to encode next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) frame: u64,
    pub(super) captured: Time,
    /// Reason for which it has to be a key frame.
    pub(super) key: Option<KeyCause>,
    /// The path needs a probe, and nothing is queued.
    pub(super) is_probe_due: bool,
    /// Bytes of encoded frames that are sent before it.
    pub(super) ahead: Bytes,
}

impl Schedule {
    pub(super) fn new(config: &Arc<SenderConfig>) -> Self {
        Self {
            capture: Capture::new(config.frame_rate, config.frames, &config.pauses),
            chain: ReferenceChain::default(),
            key_left: None,
            probe: None,
            probes: 0,
            config: Arc::clone(config),
        }
    }

    /// Whether a frame that waited stays unencoded because the previous key frame is still being
    /// sent. If that one is dropped, this frame can become the key frame instead of being lost with
    /// it. `is_queued`: packets of frames wait.
    pub(super) fn is_held(&self, now: Time, captured: Time, is_queued: bool) -> bool {
        let key_waits = self.key_left.is_none() && is_queued;
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

    /// Orders the oldest captured frame; `None` if it cannot be in time.
    pub(super) fn order(&mut self, next: Candidate, outlook: &Outlook) -> Option<FrameOrder> {
        let rate = self.rate_of(&next, outlook);
        let interval = self.config.frame_rate.interval();
        // If more frames wait, a later one may be in time and serve as the probe.
        let probe = self.capture.waiting() == 1 && next.is_probe_due;
        let least = next.ahead + self.config.rates.0 * interval;
        let late = self.is_late(next.captured, least, outlook);
        if next.ahead >= MAX_BACKLOG || late && !probe {
            return None;
        }
        self.probes = if probe { self.probes + 1 } else { 0 };
        if probe {
            self.probe = Some(next.frame);
        }
        let order = FrameOrder {
            frame: next.frame,
            captured: next.captured,
            rate,
            key: next.key.is_some(),
        };
        self.capture.order(outlook.now, order, rate * interval);
        Some(order)
    }

    /// A frame was encoded.
    pub(super) fn on_encoded(&mut self, frame: u64, encoded: &Encoded) {
        if encoded.key {
            self.chain.on_key(frame);
            self.key_left = None;
        } else if encoded.leading {
            self.chain.on_leading(frame);
        }
    }

    /// The encoder starts again: the frame of the open order is the next key frame.
    pub(super) fn restart(&mut self, now: Time) {
        if let Some(frame) = self.capture.requeue(now) {
            self.chain.break_at(frame, KeyCause::Restarted);
        }
    }

    /// A packet of a frame leaves, perhaps its last one.
    pub(super) fn on_left(&mut self, row: &SentFrame) {
        if row.key && row.left.is_some() {
            self.key_left = row.left;
        }
    }

    /// The receiver requests a key frame. A request that was sent less than `news` after the newest
    /// one left is already answered.
    pub(super) fn on_key_request(&mut self, now: Time, news: Duration) {
        if let (Some(key), Some(left)) = (self.chain.last_key(), self.key_left)
            && now >= left + news
        {
            self.chain.break_at(key, KeyCause::Requested);
        }
    }

    /// Media rate of a frame. Frames that waited, for example for the end of a blackout, are encoded
    /// at the minimum rate, so that the stream catches up. A key frame takes several budgets and is
    /// as small as the delay bound requires, down to one budget of the minimum rate.
    fn rate_of(&self, next: &Candidate, outlook: &Outlook) -> Rate {
        let (floor, ceiling) = self.config.rates;
        let (now, captured) = (outlook.now, next.captured);
        let waited = self.config.delay_bound.is_some()
            && self.has_waited(now, captured)
            && !self.capture.waits_for_encoder(now, captured);
        let rate = if waited {
            floor
        } else {
            outlook.media.max(floor).min(ceiling)
        };
        let (Some(bound), Some(_)) = (self.config.delay_bound, next.key) else {
            return rate;
        };
        // The frame that is just in time if it is encoded now.
        let ahead = next.ahead + self.config.packet_size;
        let wire = outlook.room(now + self.capture.lag(), ahead, captured + bound);
        let packet = self.config.packet_size.get();
        let room = wire.scale(packet - HEADERS, packet);
        let largest = self.config.frame_rate.interval() * KEY_BUDGETS;
        let least = floor.scale(1, u64::from(KEY_BUDGETS));
        rate.min(room.scale(1, KEY_MARGIN) / largest).max(least)
    }

    /// Whether the frame was ordered later than the encoding time explains.
    fn has_waited(&self, now: Time, captured: Time) -> bool {
        now.since(captured) > self.config.frame_rate.interval() * 2
    }

    /// Minimum size of the frames that wait behind the next one.
    pub(super) fn backlog(&self) -> Bytes {
        let floor = self.config.rates.0 * self.config.frame_rate.interval();
        floor.scale((self.capture.waiting() as u64).saturating_sub(1), 1)
    }

    /// Reason for which a frame has to be a key frame. Plain receivers cannot request key frames:
    /// they get one every two seconds.
    pub(super) fn key_cause(&self, frame: u64, can_request: bool) -> Option<KeyCause> {
        let default = (!can_request).then(|| (self.config.frame_rate.as_f64() * 2.0) as u64);
        let every = self.config.key_interval.or(default);
        let since = self.chain.since_key(frame);
        let periodic = every.is_some_and(|n| since.is_some_and(|s| s >= n.max(1)));
        let broken = self.chain.broken();
        broken.or(periodic.then_some(KeyCause::Periodic))
    }

    /// Whether `ahead` bytes that leave from now on arrive too late for the frame.
    pub(super) fn is_late(&self, captured: Time, ahead: Bytes, outlook: &Outlook) -> bool {
        self.is_late_after(captured, ahead, Duration::ZERO, outlook)
    }

    /// The same for bytes that leave `later`.
    pub(super) fn is_late_after(
        &self,
        captured: Time,
        ahead: Bytes,
        later: Duration,
        outlook: &Outlook,
    ) -> bool {
        let Some(mut bound) = self.config.delay_bound else {
            return false;
        };
        if !outlook.is_measured {
            // The delay of the path is unknown. A key frame at the minimum rate must not be late at
            // any frame rate.
            bound = bound.max(self.config.frame_rate.interval() * KEY_BUDGETS);
        }
        outlook.arrival(ahead) + later > captured + bound
    }

    /// Whether to retransmit a packet that is too late for its own frame, for the sake of its
    /// dependents: they can still be displayed in time, and a few packets arrive sooner than a key
    /// frame. `lost` packets need it.
    pub(super) fn is_worth_repairing(&self, captured: Time, lost: u64, outlook: &Outlook) -> bool {
        let bound = self.config.delay_bound.unwrap_or(LATE_REPAIR);
        let rate = outlook.media.max(self.config.rates.0);
        let key_frame = rate * (self.config.frame_rate.interval() * KEY_SHARES);
        outlook.now < captured + bound + LATE_REPAIR
            && self.config.packet_size.scale(lost, 1) <= key_frame
    }

    /// Reason for which a waiting frame is not sent: it cannot be in time, or it depends on one that
    /// is not there.
    pub(super) fn drop_cause(&self, front: &OutFrame, outlook: &Outlook) -> Option<DropCause> {
        let row = &front.row;
        let bound = self.probe != Some(row.frame);
        if bound && self.is_late(row.captured, front.left(), outlook) {
            Some(DropCause::Late)
        } else if !row.key && self.chain.is_orphan(row.frame) {
            Some(DropCause::Reference)
        } else {
            None
        }
    }

    /// Time from which on the oldest captured frame is late, if nothing can be sent and data takes
    /// `travel` to arrive. The stream begins with its newest frame, even if late.
    pub(super) fn oldest_deadline(&self, has_begun: bool, travel: Duration) -> Option<Time> {
        let (_, captured) = self.capture.front()?;
        if !has_begun && self.capture.waiting() == 1 {
            return None;
        }
        let bound = self.config.delay_bound?.saturating_sub(travel);
        Some(captured + bound + Duration::from_nanos(1))
    }
}

/// Maximum size of a key frame, in frame budgets.
const KEY_BUDGETS: u32 = 4;
/// Part of the room that a key frame takes, as a divisor: the rate falls by half when a queue
/// overflows or the no-feedback timer expires while it is sent. With the whole room, such a stream
/// of 3 to 4 frames per second lost a sixth of its frames.
const KEY_MARGIN: u64 = 2;
/// Minimum size of a key frame, in frame budgets.
const KEY_SHARES: u32 = 3;
/// Backlog limit without a delay bound: 15 minutes at the minimum rate.
const MAX_BACKLOG: Bytes = Bytes(16 << 20);
