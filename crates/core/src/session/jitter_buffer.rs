//! Jitter buffer: reassembles frames from packets and discards late ones.

use core::time::Duration;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use crate::media::{Codec, MEDIA_CLOCK};
use crate::units::Time;
use crate::wire::payload::{self, begins_frame, is_key};

/// Reassembles frames and releases them in decoding order.
///
/// A frame waits for missing packets until its discard deadline: `hold` after the earliest possible
/// arrival of its timestamp, estimated from the fastest packet of the last 30 to 60 s. An overdue
/// frame waits for another [`LATE_REPAIR`], because a late retransmission still saves its
/// dependents, unless a complete key frame follows. After that the frame is discarded, with its
/// dependents up to the next key frame.
#[derive(Debug)]
pub struct JitterBuffer {
    codec: Codec,
    hold: Duration,
    frames: BTreeMap<u64, Partial>,
    /// Timestamp of the newest released or discarded frame, and the sequence number after it.
    done: Option<(u64, u64)>,
    /// Whether the decoder has the references of the next delta frame.
    intact: bool,
    /// Time at which all released frames were complete.
    decodable_at: Time,
    fastest: Fastest,
    /// Timestamp of the oldest frame if it is past its deadline and still waiting.
    overdue: Option<u64>,
    out: VecDeque<ReceivedFrame>,
    stored: usize,
    /// Payload bytes of the stored packets.
    waiting: usize,
    /// Bytes of access units not yet fetched.
    ready: usize,
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
    /// Time at which the frame and its references were complete; `None` if that never happened.
    pub complete: Option<Time>,
    /// Access unit in byte-stream format; empty if it is not decodable.
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
            frames: BTreeMap::new(),
            done: None,
            intact: false,
            decodable_at: Time::ZERO,
            fastest: Fastest::default(),
            overdue: None,
            out: VecDeque::new(),
            stored: 0,
            waiting: 0,
            ready: 0,
        }
    }

    /// A media packet arrived, directly or by retransmission. Returns false if it precedes the
    /// newest released or discarded frame.
    pub fn on_packet(&mut self, now: Time, packet: &MediaPacket<'_>) -> bool {
        let MediaPacket { seq, timestamp, .. } = *packet;
        if !packet.repaired {
            self.fastest.on_arrival(now, timestamp);
        }
        if self
            .done
            .is_some_and(|(ts, next)| timestamp <= ts || seq < next)
        {
            return false;
        }
        while self.stored >= MAX_PACKETS || self.waiting >= MAX_BYTES {
            self.discard_oldest();
        }
        let frame = self.frames.entry(timestamp).or_insert_with(|| Partial {
            first: now,
            packets: BTreeMap::new(),
            bytes: 0,
            end: None,
            complete: None,
            key: false,
        });
        frame.key |= is_key(self.codec, packet.payload);
        if packet.marker {
            frame.end = Some(seq);
        }
        if let Entry::Vacant(place) = frame.packets.entry(seq) {
            place.insert(packet.payload.to_vec());
            frame.bytes += packet.payload.len() as u64;
            self.stored += 1;
            self.waiting += packet.payload.len();
        }
        self.mark_complete(now, timestamp);
        self.release();
        if self.overdue.is_some() {
            self.on_timeout(now);
        }
        true
    }

    /// Deadline of the oldest frame, for [`on_timeout`](Self::on_timeout).
    pub fn next_timeout(&self) -> Option<Time> {
        let (&timestamp, _) = self.frames.first_key_value()?;
        let late = self.overdue == Some(timestamp);
        let extra = if late { LATE_REPAIR } else { Duration::ZERO };
        Some(self.deadline(timestamp) + extra)
    }

    /// Discards frames past their deadline. Returns true if a reference was lost, so that a key
    /// frame must be requested.
    pub fn on_timeout(&mut self, now: Time) -> bool {
        let before = self.intact;
        while let Some((&timestamp, frame)) = self.frames.first_key_value() {
            let deadline = self.deadline(timestamp);
            if deadline > now {
                self.overdue = None;
                break;
            }
            self.overdue = Some(timestamp);
            if frame.complete.is_some() && frame.key {
                self.emit(timestamp);
            } else if now >= deadline + LATE_REPAIR || !self.intact || self.has_later_key() {
                self.discard_oldest();
            } else {
                break;
            }
            self.release();
        }
        before && !self.intact
    }

    /// Whether a complete key frame follows the oldest frame.
    fn has_later_key(&self) -> bool {
        let mut later = self.frames.values().skip(1);
        later.any(|frame| frame.key && frame.complete.is_some())
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

    /// Releases or discards all remaining frames at the end of a stream.
    pub fn finish(&mut self) {
        while !self.frames.is_empty() {
            self.release();
            self.discard_oldest();
        }
    }

    /// Resets the state for another stream, whose sequence numbers and timestamps are unrelated.
    pub fn start_over(&mut self) {
        self.finish();
        (self.done, self.overdue, self.intact) = (None, None, false);
        (self.decodable_at, self.fastest) = (Time::ZERO, Fastest::default());
    }

    /// Packets of incomplete frames; and bytes of these packets and of frames not yet fetched.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.stored, self.waiting + self.ready)
    }

    fn deadline(&self, timestamp: u64) -> Time {
        self.fastest.earliest(timestamp) + self.hold
    }

    /// Marks the frame of `timestamp` and its successor if they have become complete.
    fn mark_complete(&mut self, now: Time, timestamp: u64) {
        let mut before = self
            .frames
            .range(..timestamp)
            .next_back()
            .and_then(|(_, f)| f.end.map(|e| e + 1))
            .or_else(|| self.done.map(|(_, next)| next));
        for (_, frame) in self.frames.range_mut(timestamp..).take(2) {
            if frame.complete.is_none() && frame.is_whole(self.codec, before) {
                frame.complete = Some(now);
            }
            before = frame.end.map(|e| e + 1);
        }
    }

    /// Releases the frames that are decodable now.
    fn release(&mut self) {
        self.skip_to_key();
        while let Some((&timestamp, frame)) = self.frames.first_key_value() {
            let first = frame.packets.keys().next().copied();
            let follows = match self.done {
                Some((_, next)) => first == Some(next),
                // At the start of a stream only a key frame is decodable.
                None => frame.key,
            };
            if frame.complete.is_none() || !follows {
                return;
            }
            if frame.key || self.intact {
                self.emit(timestamp);
            } else {
                self.discard_oldest();
            }
        }
    }

    /// With a broken reference chain, discards all frames before a complete key frame.
    fn skip_to_key(&mut self) {
        if self.intact {
            return;
        }
        let key = |(_, f): &(&u64, &Partial)| f.key && f.complete.is_some();
        let Some(key) = self
            .frames
            .iter()
            .find(key)
            .map(|(&timestamp, _)| timestamp)
        else {
            return;
        };
        while self.frames.first_key_value().is_some_and(|(&t, _)| t < key) {
            self.discard_oldest();
        }
        self.emit(key);
    }

    fn emit(&mut self, timestamp: u64) {
        let Some(frame) = self.frames.remove(&timestamp) else {
            return;
        };
        self.stored -= frame.packets.len();
        self.waiting -= frame.bytes as usize;
        let end = frame.end.unwrap_or_default();
        let mut unit = payload::Depacketiser::new(self.codec, payload::MAX_ACCESS_UNIT);
        // `take` fails if a payload was rejected.
        let _ = frame.packets.values().try_for_each(|p| unit.push(p));
        let data = unit.take().map(|(data, _)| data);
        let good = data.is_ok();
        let own = frame.complete.unwrap_or(frame.first);
        self.decodable_at = if frame.key {
            own
        } else {
            own.max(self.decodable_at)
        };
        self.intact = good && (frame.key || self.intact);
        self.done = Some((timestamp, end + 1));
        self.enqueue(ReceivedFrame {
            timestamp,
            key: frame.key,
            first: frame.first,
            complete: good.then_some(self.decodable_at),
            data: data.unwrap_or_default(),
            bytes: frame.bytes,
        });
    }

    fn discard_oldest(&mut self) {
        let Some((timestamp, frame)) = self.frames.pop_first() else {
            return;
        };
        self.stored -= frame.packets.len();
        self.waiting -= frame.bytes as usize;
        let last = frame
            .packets
            .keys()
            .next_back()
            .copied()
            .unwrap_or_default();
        let next = frame.end.unwrap_or(last) + 1;
        self.done = Some((timestamp, next.max(self.done.map_or(0, |(_, n)| n))));
        self.intact = false;
        self.enqueue(ReceivedFrame {
            timestamp,
            key: frame.key,
            first: frame.first,
            complete: None,
            data: Vec::new(),
            bytes: frame.bytes,
        });
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
    /// RTP marker: the last packet of the frame.
    pub marker: bool,
    /// The packet is a retransmission, so its arrival time does not measure the path delay.
    pub repaired: bool,
    /// Payload in the format of RFC 6184 or RFC 2250.
    pub payload: &'a [u8],
}

#[derive(Debug)]
struct Partial {
    first: Time,
    packets: BTreeMap<u64, Vec<u8>>,
    bytes: u64,
    end: Option<u64>,
    complete: Option<Time>,
    key: bool,
}

impl Partial {
    /// `before` is the first sequence number of the frame, if its predecessor is known.
    fn is_whole(&self, codec: Codec, before: Option<u64>) -> bool {
        let (Some((&first, payload)), Some(end)) = (self.packets.first_key_value(), self.end)
        else {
            return false;
        };
        let begins = before == Some(first) || begins_frame(codec, payload);
        begins && end + 1 - first == self.packets.len() as u64
    }
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
