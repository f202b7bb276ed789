//! Every packet that left and what became of it: from per-stream feedback to [`Fate`]s.

use core::time::Duration;
use std::collections::VecDeque;

use crate::control::{Ecn, Fate, FlowId, Kind, Outcome, Sent};
use crate::trace::FeedbackFault;
use crate::units::{Bytes, RemoteTime, Time};

/// The two RTP streams of a session (RFC 4588, SSRC multiplexing).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stream {
    /// First transmissions.
    Media,
    /// Retransmissions.
    Repair,
}

/// What was sent in a packet, to send it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The frame that it belongs to.
    pub frame: u64,
    /// Which of the frame's fragments.
    pub fragment: u32,
    /// The sequence number of its first transmission.
    pub media_seq: u64,
}

/// Packets in flight and those lately resolved.
///
/// Feedback names packets by stream and 16-bit sequence number; a controller wants them in the
/// order of sending, each with one fate at most. Memory is bounded by `MAX_PACKETS`.
#[derive(Debug, Default)]
pub struct History {
    /// In order of sending; the first has path sequence number `base`.
    packets: VecDeque<Entry>,
    base: u64,
    media: Index,
    repair: Index,
    /// Path sequence number after the newest that was reported received.
    newest: Option<(u64, Time)>,
    /// All before this are resolved.
    settled: u64,
    in_flight: Bytes,
    last_report: Option<RemoteTime>,
    /// The packet that arrived last, and when.
    latest: Option<(u64, RemoteTime)>,
    /// Packets have overtaken each other.
    reordered: bool,
    log: Option<Vec<PacketRow>>,
}

/// One packet as a row of the run's packet table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRow {
    /// Number in order of sending.
    pub seq: u64,
    /// What it carried.
    pub kind: Kind,
    /// On the wire.
    pub size: Bytes,
    /// When it left.
    pub sent: Time,
    /// `None` when no report ever spoke of it.
    pub outcome: Option<Outcome>,
}

/// What one feedback packet taught.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learnt {
    /// Packets whose fate is now known, in order of sending.
    pub fates: Vec<Fate>,
    /// Contents of those that were lost, same order.
    pub lost: Vec<Content>,
    /// Round-trip time of the newest packet, without the receiver's holding time.
    pub rtt: Option<Duration>,
}

/// One line of a feedback packet: a sequence number and, if it arrived, how long before the
/// report's time stamp and with which ECN field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// As on the wire.
    pub seq: u16,
    /// `None`: not received so far.
    pub received: Option<(Duration, Ecn)>,
}

impl History {
    /// An empty history; with `log`, packets are kept as rows for [`drain_log`](Self::drain_log).
    pub fn new(log: bool) -> Self {
        Self {
            log: log.then(Vec::new),
            ..Self::default()
        }
    }

    /// A packet leaves; returns what the controller is to be told.
    pub fn on_sent(
        &mut self,
        now: Time,
        stream: Stream,
        wire_seq: u64,
        size: Bytes,
        kind: Kind,
        content: Content,
    ) -> Sent {
        //= rfc5348-5.1-retransmission
        let seq = self.base + self.packets.len() as u64;
        self.packets.push_back(Entry {
            sent: now,
            size,
            kind,
            content,
            outcome: None,
        });
        self.index_mut(stream).push(wire_seq, seq);
        self.in_flight += size;
        while self.packets.len() > MAX_PACKETS {
            self.forget_first();
        }
        Sent {
            flow: FlowId::default(),
            seq,
            size,
            kind,
            app_limited: false,
        }
    }

    /// Takes the lines about one stream. `at` is the report's time stamp on the receiver's clock.
    ///
    /// # Errors
    /// When the report cannot be true; nothing is taken from it then.
    pub fn on_feedback(
        &mut self,
        stream: Stream,
        at: RemoteTime,
        lines: &[Line],
    ) -> Result<(), FeedbackFault> {
        if self.last_report.is_some_and(|last| at < last) {
            return Err(FeedbackFault::Stale);
        }
        let index = self.index(stream);
        let mut found = Vec::with_capacity(lines.len());
        for line in lines {
            // A sequence number beyond the newest one can only be a claim about the future.
            match index.find(line.seq) {
                Found::At(seq) => found.push((seq, line.received)),
                Found::Forgotten => {}
                Found::NeverSent if line.received.is_none() => {}
                Found::NeverSent => return Err(FeedbackFault::NeverSent),
            }
        }
        if lines
            .iter()
            .any(|l| l.received.is_some_and(|(ago, _)| at.0 < nanos(ago)))
        {
            return Err(FeedbackFault::TimeTravel);
        }
        self.last_report = Some(at);
        for (seq, received) in found {
            let Some((ago, ecn)) = received else { continue };
            let arrived = RemoteTime(at.0 - nanos(ago));
            let Some(entry) = self.entry_mut(seq) else {
                continue;
            };
            if entry.outcome.is_none() {
                entry.outcome = Some((Outcome::Received { at: arrived, ecn }, false));
                let (size, sent) = (entry.size, entry.sent);
                self.in_flight -= size;
                self.compare_order(seq, arrived);
                if self.newest.is_none_or(|(s, _)| seq >= s) {
                    self.newest = Some((seq, sent));
                }
            }
        }
        Ok(())
    }

    /// Whether packets have overtaken each other on this path, by more than the clock of the
    /// reports is coarse.
    pub fn is_reordered(&self) -> bool {
        self.reordered
    }

    fn compare_order(&mut self, seq: u64, arrived: RemoteTime) {
        let Some((last, at)) = self.latest else {
            self.latest = Some((seq, arrived));
            return;
        };
        let (ahead, behind) = (arrived.since(at), at.since(arrived));
        self.reordered |= seq < last && ahead > CLOCK_UNIT || seq > last && behind > CLOCK_UNIT;
        if arrived >= at {
            self.latest = Some((seq, arrived));
        }
    }

    /// After all streams of a feedback packet were taken: who is lost, and the new fates.
    ///
    /// A packet is lost when three packets sent after it arrived (RFC 5348 section 5.1), or
    /// one that was sent `reordering` or more after it (as RFC 8985 section 6.2 argues: a
    /// count of three takes too long at a few packets per frame). Where packets were seen to
    /// overtake each other, the count proves nothing (RFC 8985 section 3.1) and time alone decides.
    pub fn settle(&mut self, now: Time, at: RemoteTime, reordering: Duration) -> Learnt {
        let mut learnt = Learnt::default();
        let Some((newest, newest_sent)) = self.newest else {
            return learnt;
        };
        let from = (self.settled.max(self.base) - self.base) as usize;
        let upto = ((newest + 1).saturating_sub(self.base) as usize).min(self.packets.len());
        // What was written off is settled, although nothing newer has arrived.
        let from = from.min(upto);
        let duplicates = if self.reordered { u32::MAX } else { DUPLICATES };
        let mut later = 0;
        // From the newest back: how many later ones arrived.
        for entry in self.packets.range_mut(from..upto).rev() {
            match entry.outcome {
                Some((Outcome::Received { .. }, _)) => later += 1,
                //= rfc5348-5.1-three-later
                None if later >= duplicates
                    || later > 0 && newest_sent.since(entry.sent) >= reordering =>
                {
                    entry.outcome = Some((Outcome::Lost, false));
                    self.in_flight -= entry.size;
                }
                _ => {}
            }
        }
        for (i, entry) in self.packets.range_mut(from..upto).enumerate() {
            let Some((outcome, told @ false)) = &mut entry.outcome else {
                continue;
            };
            *told = true;
            let seq = self.base + (from + i) as u64;
            if let (Outcome::Received { at: arrived, .. }, true) = (*outcome, seq == newest) {
                let (held, elapsed) = (at.since(arrived), now.since(entry.sent));
                // Longer than it was away: the report does not know when it came, or lies.
                learnt.rtt = (held <= elapsed + CLOCK_UNIT).then(|| elapsed.saturating_sub(held));
            }
            learnt.fates.push(Fate {
                flow: FlowId::default(),
                seq,
                size: entry.size,
                sent: entry.sent,
                outcome: *outcome,
            });
            if *outcome == Outcome::Lost {
                learnt.lost.push(entry.content);
            }
        }
        self.advance(now);
        learnt
    }

    /// Gives up everything in flight, after an outage that nothing survived.
    pub fn write_off(&mut self, now: Time) -> Learnt {
        let mut learnt = Learnt::default();
        let from = (self.settled.max(self.base) - self.base) as usize;
        let from = from.min(self.packets.len());
        for (i, entry) in self.packets.range_mut(from..).enumerate() {
            if entry.outcome.is_some() {
                continue;
            }
            entry.outcome = Some((Outcome::Lost, true));
            self.in_flight -= entry.size;
            learnt.fates.push(Fate {
                flow: FlowId::default(),
                seq: self.base + (from + i) as u64,
                size: entry.size,
                sent: entry.sent,
                outcome: Outcome::Lost,
            });
            learnt.lost.push(entry.content);
        }
        self.advance(now);
        learnt
    }

    /// Packets that are kept.
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Bytes that left and of which nothing is known yet.
    pub fn in_flight(&self) -> Bytes {
        self.in_flight
    }

    /// When the oldest unresolved packet left.
    pub fn oldest_unresolved(&self) -> Option<Time> {
        let from = (self.settled.max(self.base) - self.base) as usize;
        let mut rest = self.packets.range(from.min(self.packets.len())..);
        rest.find(|e| e.outcome.is_none()).map(|e| e.sent)
    }

    /// The content behind a sequence number of the media stream, for a negative acknowledgement.
    pub fn media_content(&self, wire_seq: u16) -> Option<Content> {
        match self.media.find(wire_seq) {
            Found::At(seq) => self.entry(seq).map(|e| e.content),
            Found::Forgotten | Found::NeverSent => None,
        }
    }

    /// Rows of packets that will not change any more.
    pub fn drain_log(&mut self, rows: &mut Vec<PacketRow>) {
        if let Some(log) = &mut self.log {
            rows.append(log);
        }
    }

    /// Rows of all packets; nothing is known of those in flight.
    pub fn finish_log(&mut self, rows: &mut Vec<PacketRow>) {
        while !self.packets.is_empty() {
            self.forget_first();
        }
        self.drain_log(rows);
    }

    /// Moves `settled` on and forgets what is old and resolved.
    fn advance(&mut self, now: Time) {
        let mut at = (self.settled.max(self.base) - self.base) as usize;
        while self
            .packets
            .get(at)
            .is_some_and(|e| matches!(e.outcome, Some((_, true))))
        {
            at += 1;
        }
        self.settled = self.base + at as u64;
        while self.base < self.settled
            && self
                .packets
                .front()
                .is_some_and(|e| now.since(e.sent) > KEEP)
        {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some(entry) = self.packets.pop_front() else {
            return;
        };
        if entry.outcome.is_none() {
            self.in_flight -= entry.size;
        }
        if let Some(log) = &mut self.log {
            log.push(PacketRow {
                seq: self.base,
                kind: entry.kind,
                size: entry.size,
                sent: entry.sent,
                outcome: entry.outcome.map(|(o, _)| o),
            });
        }
        self.base += 1;
        self.media.forget_before(self.base);
        self.repair.forget_before(self.base);
    }

    fn entry(&self, seq: u64) -> Option<&Entry> {
        self.packets.get(seq.checked_sub(self.base)? as usize)
    }

    fn entry_mut(&mut self, seq: u64) -> Option<&mut Entry> {
        self.packets.get_mut(seq.checked_sub(self.base)? as usize)
    }

    fn index(&self, stream: Stream) -> &Index {
        match stream {
            Stream::Media => &self.media,
            Stream::Repair => &self.repair,
        }
    }

    fn index_mut(&mut self, stream: Stream) -> &mut Index {
        match stream {
            Stream::Media => &mut self.media,
            Stream::Repair => &mut self.repair,
        }
    }
}

#[derive(Debug)]
struct Entry {
    sent: Time,
    size: Bytes,
    kind: Kind,
    content: Content,
    /// With a flag: the controller was told.
    outcome: Option<(Outcome, bool)>,
}

/// From a stream's sequence numbers to path sequence numbers.
#[derive(Debug, Default)]
struct Index {
    /// Wire sequence number of the first.
    first: u64,
    paths: VecDeque<u64>,
}

enum Found {
    At(u64),
    Forgotten,
    NeverSent,
}

impl Index {
    fn push(&mut self, wire_seq: u64, path_seq: u64) {
        if self.paths.is_empty() {
            self.first = wire_seq;
        }
        debug_assert_eq!(self.first + self.paths.len() as u64, wire_seq);
        self.paths.push_back(path_seq);
    }

    fn find(&self, seq: u16) -> Found {
        let Some(last) = (self.first + self.paths.len() as u64).checked_sub(1) else {
            return Found::NeverSent;
        };
        let ahead = seq.wrapping_sub(last as u16);
        if ahead != 0 && ahead < 0x8000 {
            return Found::NeverSent;
        }
        let back = u64::from((last as u16).wrapping_sub(seq));
        match last
            .checked_sub(back)
            .and_then(|s| s.checked_sub(self.first))
        {
            Some(at) => self
                .paths
                .get(at as usize)
                .map_or(Found::Forgotten, |&p| Found::At(p)),
            None => Found::Forgotten,
        }
    }

    fn forget_before(&mut self, path_seq: u64) {
        while self.paths.front().is_some_and(|&p| p < path_seq) {
            self.paths.pop_front();
            self.first += 1;
        }
    }
}

fn nanos(d: Duration) -> u64 {
    crate::units::nanos(d)
}

/// Two units of 1/1024 s, in which arrivals are told (RFC 8888 section 3.1).
const CLOCK_UNIT: Duration = Duration::from_millis(2);
/// RFC 5348 section 5.1: as in TCP.
const DUPLICATES: u32 = 3;
/// Resolved packets are kept this long for negative acknowledgements; a frame is late by then.
const KEEP: Duration = Duration::from_secs(2);
/// 32 Ki packets of 1,200 bytes are 8 s at 40 Mb/s; below half of the sequence number space, so
/// that a 16-bit number is never ambiguous.
const MAX_PACKETS: usize = 32_768;

#[cfg(test)]
mod tests;
