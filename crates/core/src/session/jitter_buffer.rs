//! Jitter buffer: reassembles frames from packets and discards late ones.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use self::markers::Markers;
use self::sets::Sets;
use self::unit::{Head, Unit};
use super::config::{FeedbackMode, ReceiverConfig};
use crate::media::{Codec, MEDIA_CLOCK};
use crate::units::Time;
use crate::wire::h264::{self, AccessPoint};
use crate::wire::payload::{self, Role};

mod markers;
mod sets;
mod unit;

/// Reassembles frames and releases them in decoding order, which is that of their sequence numbers:
/// timestamps are those of presentation.
///
/// A frame waits for missing packets until its discard deadline: `hold` after the earliest possible
/// arrival of its timestamp, estimated from the fastest packet of the last 30 to 60 s. An overdue
/// frame waits for another [`LATE_REPAIR`], because a late retransmission still saves its
/// dependents, unless a complete access point follows. After that the frame is discarded, with its
/// dependents up to the next access point.
///
/// Decoding starts at an access point: a key frame or a recovery point. Behind a recovery point,
/// pictures that are displayed before it are discarded, as they refer to pictures before it. Pictures
/// of a gradual refresh are released without a time of completion until the recovery.
///
/// With [`conceal`](ReceiverConfig::conceal), whole frames are released although their references
/// are lost, without a time of completion, and an overdue frame does not wait.
///
/// A frame ends with a marker, or where the next one begins. Where senders set the marker on each
/// NAL unit or on none, the second rule is used alone, and each frame waits for the next one.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties")]
pub struct JitterBuffer {
    codec: Codec,
    hold: Duration,
    /// Extra waiting time of an overdue frame: [`LATE_REPAIR`], or none without retransmissions.
    patience: Duration,
    /// Access units and filler between them, by their first sequence number.
    units: BTreeMap<u64, Unit>,
    /// Sequence number after the newest released or discarded frame.
    next: Option<u64>,
    /// Timestamp of the newest frame if it was discarded. Late packets of it are useless.
    discarded: Option<u64>,
    markers: Markers,
    sets: Sets,
    /// Whether the decoder has the references of the next delta frame.
    intact: bool,
    /// A reference was lost since the last timeout.
    is_broken: bool,
    /// Where decoding started, if at a recovery point.
    recovery: Option<Recovery>,
    /// Frames without their references are released.
    conceal: bool,
    /// An access point was released.
    has_begun: bool,
    /// Time at which all released frames were complete.
    decodable_at: Time,
    fastest: Fastest,
    /// First sequence number of the oldest frame if it is past its deadline and still waiting.
    overdue: Option<u64>,
    out: VecDeque<ReceivedFrame>,
    stored: usize,
    /// Payload bytes of the stored packets.
    waiting: usize,
    /// Bytes of access units not yet fetched.
    ready: usize,
}

/// A recovery point at which decoding started.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    /// Timestamp of its picture.
    from: u64,
    /// Reference pictures that are left until pictures are correct.
    frames: u16,
    /// Pictures that are displayed before it are released, with blemishes.
    keeps_leading: bool,
}

/// A received frame, complete or partial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// Unwrapped RTP timestamp.
    pub timestamp: u64,
    /// The frame is decodable without references.
    pub key: bool,
    /// Arrival time of its first packet.
    pub first: Time,
    /// Time at which the frame and its references were complete; `None` if that never happened, or if
    /// the frame precedes the recovery after an access point.
    pub complete: Option<Time>,
    /// Access unit in byte-stream format; empty if it is not decodable. If `complete` is `None`, it
    /// has blemishes.
    pub data: Vec<u8>,
    /// Received payload bytes.
    pub bytes: u64,
}

impl JitterBuffer {
    /// A jitter buffer that discards a frame `hold` after its earliest possible arrival.
    pub fn new(codec: Codec, hold: Duration) -> Self {
        Self {
            codec,
            hold,
            patience: LATE_REPAIR,
            units: BTreeMap::new(),
            next: None,
            discarded: None,
            markers: Markers::default(),
            sets: Sets::default(),
            intact: false,
            is_broken: false,
            recovery: None,
            conceal: false,
            has_begun: false,
            decodable_at: Time::ZERO,
            fastest: Fastest::default(),
            overdue: None,
            out: VecDeque::new(),
            stored: 0,
            waiting: 0,
            ready: 0,
        }
    }

    /// The jitter buffer of a receiver.
    pub fn of_receiver(config: &ReceiverConfig) -> Self {
        let is_repaired = config.feedback == FeedbackMode::PerPacket;
        Self {
            patience: if is_repaired {
                LATE_REPAIR
            } else {
                Duration::ZERO
            },
            sets: Sets::new(config.parameter_sets.as_ref()),
            conceal: config.conceal,
            ..Self::new(payload::codec(config.payload_types.0), config.hold)
        }
    }

    /// A media packet arrived, directly or by retransmission. Returns false if it precedes the
    /// newest released or discarded frame.
    pub fn on_packet(&mut self, now: Time, packet: &MediaPacket<'_>) -> bool {
        if !packet.repaired {
            self.fastest.on_arrival(now, packet.timestamp);
        }
        while self.stored >= MAX_PACKETS || self.waiting >= MAX_BYTES {
            self.discard_oldest();
        }
        let role = Role::of(self.codec, packet.payload);
        let is_discarded = self.discarded == Some(packet.timestamp) && role.is_continuation();
        if self.next.is_some_and(|next| packet.seq < next) || is_discarded {
            return false;
        }
        let first = self.store(now, packet, role);
        let first = self.join(first);
        self.mark_complete(now, first);
        self.release();
        if self.overdue.is_some() {
            self.is_broken = self.on_timeout(now);
        }
        true
    }

    /// Adds a packet to its unit, or to a new one. Returns the key of the unit.
    fn store(&mut self, now: Time, packet: &MediaPacket<'_>, role: Role) -> u64 {
        let MediaPacket { seq, timestamp, .. } = *packet;
        let head = Head {
            seq,
            timestamp,
            role,
        };
        let before = self.units.range_mut(..=seq).next_back();
        let own = before.filter(|(_, unit)| seq <= unit.last() || unit.goes_on_with(head));
        let (first, unit) = if let Some((&first, unit)) = own {
            (first, unit)
        } else {
            let unit = Unit::new(now, packet, role);
            (seq, self.units.entry(seq).or_insert(unit))
        };
        if let Some(len) = unit.add(now, packet, role, &mut self.markers) {
            self.stored += 1;
            self.waiting += len;
        }
        first
    }

    /// Joins a unit to its predecessor and its successor if they are parts of one, and closes units
    /// directly before another one. Returns the key of the unit.
    fn join(&mut self, first: u64) -> u64 {
        let before = self.units.range(..first).next_back().map(|(&key, _)| key);
        let first = before.filter(|&key| self.join_next(key)).unwrap_or(first);
        while self.join_next(first) {}
        first
    }

    /// Joins the unit of this key and its successor, or closes it. Returns whether they were joined.
    fn join_next(&mut self, key: u64) -> bool {
        let mut two = self.units.range_mut(key..);
        let (Some((_, unit)), Some((&next, after))) = (two.next(), two.next()) else {
            return false;
        };
        if unit.goes_on_with(after.head()) {
            let Some(after) = self.units.remove(&next) else {
                return false;
            };
            if let Some(unit) = self.units.get_mut(&key) {
                unit.append(after, &mut self.markers);
            }
            return true;
        }
        if next == unit.last() + 1 {
            unit.close(&mut self.markers);
        }
        false
    }

    /// Deadline of the oldest frame, for [`on_timeout`](Self::on_timeout).
    pub fn next_timeout(&self) -> Option<Time> {
        let (&first, unit) = self.units.first_key_value()?;
        let late = self.overdue == Some(first);
        let extra = if late { self.patience } else { Duration::ZERO };
        Some(self.deadline(unit) + extra)
    }

    /// Discards frames past their deadline. Returns true if a reference was lost, so that a key
    /// frame must be requested.
    pub fn on_timeout(&mut self, now: Time) -> bool {
        let before = core::mem::take(&mut self.is_broken) || self.intact;
        while let Some((&first, unit)) = self.units.first_key_value() {
            let deadline = self.deadline(unit);
            if deadline > now {
                self.overdue = None;
                break;
            }
            self.overdue = Some(first);
            if self.close_last(first) {
                self.release();
                continue;
            }
            let unit = &self.units[&first];
            if unit.complete.is_some() && unit.access().is_some() {
                self.emit(first);
            } else if self.conceals()
                || self.is_leading(unit)
                || now >= deadline + self.patience
                || (!self.intact && unit.access().is_none())
                || self.has_later_key()
            {
                self.pass_oldest();
            } else {
                break;
            }
            self.release();
        }
        before && !self.intact
    }

    /// Closes the only unit of a stream whose markers are unreliable: nothing has followed it until
    /// its deadline, so it is the last one. Returns whether it is now complete.
    fn close_last(&mut self, first: u64) -> bool {
        let is_only = self.units.len() == 1 && !self.markers.are_trusted();
        let (before, apart) = (self.next, self.sets.are_apart());
        let Some(unit) = self.units.get_mut(&first).filter(|_| is_only) else {
            return false;
        };
        if unit.complete.is_some() || !unit.has_picture() {
            return false;
        }
        unit.end.get_or_insert(unit.last());
        if unit.is_whole(before, apart) {
            unit.complete = Some(unit.arrivals.1);
        }
        unit.complete.is_some()
    }

    /// Whether frames without their references are of use.
    fn conceals(&self) -> bool {
        self.conceal && self.has_begun
    }

    /// Whether a complete access point follows the oldest frame.
    fn has_later_key(&self) -> bool {
        let mut later = self.units.values().skip(1);
        later.any(|unit| unit.access().is_some() && unit.complete.is_some())
    }

    /// The next frame in decoding order. Discarded frames are included, without data.
    pub fn poll(&mut self) -> Option<ReceivedFrame> {
        let frame = self.out.pop_front()?;
        self.ready -= frame.data.len();
        Some(frame)
    }

    /// Whether the next delta frame is decodable.
    pub fn is_intact(&self) -> bool {
        self.intact
    }

    /// The decoder lost its references.
    pub fn break_chain(&mut self) {
        self.intact = false;
    }

    /// Number of access points that no decoder can decode, since neither the stream nor its description
    /// has parameter sets.
    pub fn without_sets(&self) -> u64 {
        self.sets.missing
    }

    /// Releases or discards all remaining frames at the end of a stream.
    pub fn finish(&mut self) {
        while let Some((&first, _)) = self.units.first_key_value() {
            self.release();
            if !self.close_last(first) {
                self.pass_oldest();
            }
        }
    }

    /// Resets the state for another stream, whose sequence numbers and timestamps are unrelated.
    pub fn start_over(&mut self) {
        self.finish();
        (self.next, self.discarded, self.overdue) = (None, None, None);
        (self.intact, self.has_begun) = (false, false);
        self.recovery = None;
        (self.decodable_at, self.fastest) = (Time::ZERO, Fastest::default());
        self.markers = Markers::default();
    }

    /// Another source may have other parameter sets.
    pub(super) fn forget_sets(&mut self) {
        self.sets.forget();
    }

    /// Packets of incomplete frames; and bytes of these packets and of frames not yet fetched.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.stored, self.waiting + self.ready)
    }

    fn deadline(&self, unit: &Unit) -> Time {
        self.fastest.earliest(unit.timestamp) + self.hold
    }

    /// Marks the unit of this key and its neighbours if they have become complete.
    fn mark_complete(&mut self, now: Time, first: u64) {
        let mut before = self.next;
        let apart = self.sets.are_apart();
        let from = self.units.range(..first).next_back();
        let from = from.map_or(first, |(&key, _)| key);
        if let Some((_, earlier)) = self.units.range(..from).next_back() {
            before = earlier.end.map(|end| end + 1);
        }
        for (_, unit) in self.units.range_mut(from..).take(3) {
            if unit.complete.is_none() && unit.is_whole(before, apart) {
                unit.complete = Some(now);
                if unit.has_picture() {
                    self.markers.on_use();
                }
            }
            before = unit.end.map(|end| end + 1);
        }
    }

    /// Releases the frames that are decodable now.
    fn release(&mut self) {
        self.skip_to_key();
        while let Some((&first, unit)) = self.units.first_key_value() {
            let follows = match self.next {
                Some(next) => first == next,
                // At the start of a stream only an access point is decodable.
                None => unit.access().is_some() || unit.is_filler(),
            };
            if unit.complete.is_none() || !follows {
                return;
            }
            if unit.is_filler() {
                self.drop_filler();
            } else if self.is_leading(unit) {
                self.discard_oldest();
            } else if unit.access().is_some() || self.intact || self.conceals() {
                self.emit(first);
            } else {
                self.discard_oldest();
            }
        }
    }

    /// With a broken reference chain, discards all frames before a complete access point.
    fn skip_to_key(&mut self) {
        if self.intact {
            return;
        }
        let access = |(_, unit): &(&u64, &Unit)| unit.access().is_some() && unit.complete.is_some();
        let Some(access) = self.units.iter().find(access).map(|(&first, _)| first) else {
            return;
        };
        while self
            .units
            .first_key_value()
            .is_some_and(|(&k, _)| k < access)
        {
            self.pass_oldest();
        }
        self.emit(access);
    }

    /// Whether a picture refers to pictures before the recovery point at which decoding started.
    fn is_leading(&self, unit: &Unit) -> bool {
        let is_before = |at: Recovery| unit.timestamp < at.from && !at.keeps_leading;
        unit.access().is_none() && unit.has_picture() && self.recovery.is_some_and(is_before)
    }

    fn emit(&mut self, first: u64) {
        let Some(unit) = self.take(first) else {
            return;
        };
        let access = unit.access();
        let continues = self.intact && self.next == Some(first);
        let start = access.filter(|access| *access == AccessPoint::Key || !continues);
        let data = self.access_unit(&unit);
        let own = unit.complete.unwrap_or(unit.arrivals.0);
        self.decodable_at = if start.is_some() || unit.is_key() {
            own
        } else {
            own.max(self.decodable_at)
        };
        self.intact = !data.is_empty() && (start.is_some() || self.intact);
        match start {
            Some(AccessPoint::Recovery { frames }) => {
                self.recovery = Some(Recovery {
                    from: unit.timestamp,
                    frames,
                    keeps_leading: self.conceals(),
                });
            }
            Some(AccessPoint::Key) => self.recovery = None,
            None => {}
        }
        self.has_begun |= self.intact;
        (self.next, self.discarded) = (Some(unit.next()), None);
        let is_correct = self.recover(unit.timestamp, access, &data);
        self.enqueue(ReceivedFrame {
            timestamp: unit.timestamp,
            key: unit.is_key(),
            first: unit.arrivals.0,
            complete: (self.intact && is_correct).then_some(self.decodable_at),
            data,
            bytes: unit.bytes,
        });
    }

    /// Joins the packets of a unit; empty if it is not decodable.
    fn access_unit(&mut self, unit: &Unit) -> Vec<u8> {
        let mut joined = payload::Depacketiser::new(self.codec, payload::MAX_ACCESS_UNIT);
        let payloads = unit.packets.values().filter(|p| !p.is_empty());
        // `take` fails if a payload was rejected.
        let _ = payloads.into_iter().try_for_each(|p| joined.push(p));
        let mut data = joined.take().map(|(data, _)| data).unwrap_or_default();
        if !data.is_empty()
            && unit.access().is_some()
            && self.codec == Codec::H264
            && !self.sets.complete(&mut data)
        {
            self.sets.missing += 1;
            data.clear();
        }
        data
    }

    /// A picture is released. Returns whether it is correct after the start at a recovery point.
    fn recover(&mut self, timestamp: u64, access: Option<AccessPoint>, data: &[u8]) -> bool {
        let Some(at) = &mut self.recovery else {
            return true;
        };
        let is_correct = at.frames == 0 && timestamp >= at.from;
        if at.frames > 0 && h264::is_reference(data) {
            at.frames -= 1;
        } else if is_correct && access.is_some() && timestamp > at.from {
            // The leading pictures of this access point have their references.
            self.recovery = None;
        }
        is_correct
    }

    /// What precedes the oldest frame is lost: releases it if it is of use without, or discards it.
    fn pass_oldest(&mut self) {
        match self.units.first_key_value() {
            Some((&first, unit))
                if self.conceals() && unit.complete.is_some() && !unit.is_filler() =>
            {
                self.intact &= unit.access().is_some();
                self.emit(first);
            }
            _ => self.discard_oldest(),
        }
    }

    fn discard_oldest(&mut self) {
        let Some((&first, _)) = self.units.first_key_value() else {
            return;
        };
        let Some(unit) = self.take(first) else { return };
        self.next = self.next.max(Some(unit.next()));
        self.intact &= self.is_leading(&unit);
        let lacks_sets =
            unit.access().is_some() && unit.is_whole(None, true) && !self.sets.are_known();
        self.sets.missing += u64::from(lacks_sets && self.codec == Codec::H264);
        if unit.is_filler() {
            return;
        }
        self.discarded = Some(unit.timestamp);
        self.enqueue(ReceivedFrame {
            timestamp: unit.timestamp,
            key: unit.is_key(),
            first: unit.arrivals.0,
            complete: None,
            data: Vec::new(),
            bytes: unit.bytes,
        });
    }

    /// Removes filler that directly follows the newest frame.
    fn drop_filler(&mut self) {
        let oldest = self.units.first_key_value().map(|(&first, _)| first);
        if let Some(filler) = oldest.and_then(|first| self.take(first)) {
            self.next = self.next.map(|_| filler.next());
        }
    }

    fn take(&mut self, first: u64) -> Option<Unit> {
        let unit = self.units.remove(&first)?;
        self.stored -= unit.packets.len();
        self.waiting -= unit.bytes as usize;
        Some(unit)
    }

    fn enqueue(&mut self, frame: ReceivedFrame) {
        self.ready += frame.data.len();
        self.out.push_back(frame);
        while self.out.len() > MAX_FRAMES || self.ready > MAX_BYTES {
            self.poll();
        }
    }
}

/// A media packet, as input to the jitter buffer.
#[derive(Clone, Copy, Debug)]
pub struct MediaPacket<'a> {
    /// Extended sequence number of the first transmission.
    pub seq: u64,
    /// Unwrapped RTP timestamp.
    pub timestamp: u64,
    /// RTP marker: perhaps the last packet of the frame.
    pub marker: bool,
    /// The packet is a retransmission, so its arrival time does not measure the path delay.
    pub repaired: bool,
    /// Payload in the format of RFC 6184 or RFC 2250.
    pub payload: &'a [u8],
}

/// Minimum of arrival time minus timestamp over one to two [`MEMORY`] spans, which adapts to longer
/// routes and clock drift.
#[derive(Clone, Copy, Debug, Default)]
struct Fastest {
    old: Option<i128>,
    new: Option<i128>,
    since: Time,
}

impl Fastest {
    fn on_arrival(&mut self, now: Time, timestamp: u64) {
        let transit = i128::from(now.as_nanos()) - media_nanos(timestamp);
        if now.since(self.since) > MEMORY {
            (self.old, self.new, self.since) = (self.new, None, now);
        }
        self.new = Some(self.new.map_or(transit, |n| n.min(transit)));
    }

    fn earliest(&self, timestamp: u64) -> Time {
        let best = [self.old, self.new].into_iter().flatten().min();
        let nanos = media_nanos(timestamp) + best.unwrap_or(0);
        Time::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

fn media_nanos(timestamp: u64) -> i128 {
    i128::from(timestamp) * 1_000_000_000 / i128::from(MEDIA_CLOCK)
}

/// Extra waiting time of an overdue frame for the sake of its dependents.
pub const LATE_REPAIR: Duration = Duration::from_millis(300);
const MEMORY: Duration = Duration::from_secs(30);
/// Packets of incomplete frames: 400 ms at 100 Mb/s.
const MAX_PACKETS: usize = 4_096;
/// Bytes of stored packets, and of frames not yet fetched: 640 ms at 100 Mb/s.
const MAX_BYTES: usize = 8 << 20;
/// Frames not yet fetched.
const MAX_FRAMES: usize = 1_024;

#[cfg(test)]
mod tests;
