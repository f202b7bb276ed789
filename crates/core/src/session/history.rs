//! History of sent packets and their outcome: converts per-stream feedback to
//! [`PacketOutcome`]s.

use core::time::Duration;
use std::collections::VecDeque;

use self::index::{Found, Index};
pub use self::overlap::Overlap;
use super::reordering::Reordering;
use crate::control::{Ecn, FlowId, Kind, Outcome, PacketOutcome, Sent};
use crate::trace::FeedbackFault;
use crate::units::{Bytes, RemoteTime, Time, nanos};

mod index;
mod overlap;

/// Sequence number space: that of one of the RTP streams of a session (SSRC multiplexing), or of the
/// whole transport.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stream {
    /// First transmissions.
    Media,
    /// Retransmissions.
    Repair,
    /// Parity packets.
    Parity,
    /// Packets of all, by their transport-wide sequence number.
    Transport,
}

/// Content of a packet, for its retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Frame number.
    pub frame: u64,
    /// Fragment index within the frame.
    pub fragment: u32,
    /// Sequence number of the first transmission.
    pub media_seq: u64,
}

/// Packets in flight, and recently resolved ones.
///
/// Feedback identifies packets by stream and 16-bit sequence number. Controllers need them in
/// sending order, each with at most one outcome. Memory is bounded by `MAX_PACKETS`.
#[derive(Debug, Default)]
pub struct History {
    /// In sending order; the first has path sequence number `base`.
    packets: VecDeque<Entry>,
    base: u64,
    media: Index,
    repair: Index,
    parity: Index,
    /// Transport-wide sequence numbers, if the packets have them.
    transport: Index,
    next_transport: Option<u64>,
    /// Newest path sequence number reported as received, its departure time, and whether its arrival
    /// time is known.
    newest: Option<(u64, Time, bool)>,
    /// All packets before this one are resolved.
    settled: u64,
    in_flight: Bytes,
    reordering: Reordering,
    /// Among the packets with a known arrival, the departure time of the newest, and its arrival.
    front: Option<(Time, RemoteTime)>,
    /// Arrivals of the present feedback packet: arrival and departure time.
    arrivals: Vec<(RemoteTime, Time)>,
    /// Packets of the present feedback packet that were declared lost before.
    spurious: Vec<u64>,
    log: Option<Vec<PacketRow>>,
}

/// Row of the packet table of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRow {
    /// Path sequence number.
    pub seq: u64,
    /// Kind of content.
    pub kind: Kind,
    /// Size on the wire.
    pub size: Bytes,
    /// Departure time.
    pub sent: Time,
    /// `None` if no report covered the packet.
    pub outcome: Option<Outcome>,
}

/// Result of one feedback packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackResult {
    /// Newly resolved packets, in sending order.
    pub outcomes: Vec<PacketOutcome>,
    /// Media in the lost ones, in the same order.
    pub lost: Vec<Content>,
    /// Packets that were declared lost before and have arrived, in sending order.
    pub spurious: Vec<PacketOutcome>,
    /// Media in these, in the same order.
    pub restored: Vec<Content>,
    /// Round-trip time of the newest packet, excluding the receiver's holding time.
    pub rtt: Option<Duration>,
}

/// One entry of a feedback packet: sequence number and, if the packet arrived, time from its
/// arrival to the report timestamp and its ECN field. A packet whose arrival time is unknown arrived
/// by the report, and has no round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Sequence number on the wire.
    pub seq: u16,
    /// `None` if the packet has not been received so far.
    pub received: Option<(Option<Duration>, Ecn)>,
}

impl History {
    /// An empty history. With `log`, packets are kept as rows for [`drain_log`](Self::drain_log).
    pub fn new(log: bool) -> Self {
        Self {
            log: log.then(Vec::new),
            ..Self::default()
        }
    }

    /// Numbers all packets with a transport-wide sequence number, from `first` on.
    pub fn number_transport(&mut self, first: u16) {
        self.next_transport = Some(u64::from(first));
    }

    /// Transport-wide sequence number of the next packet, modulo 2¹⁶; `None` if packets have none.
    pub fn next_transport(&self) -> Option<u16> {
        self.next_transport.map(|next| next as u16)
    }

    /// Records a departing packet; returns the description for the controller.
    pub fn on_sent(
        &mut self,
        now: Time,
        stream: Stream,
        wire_seq: u64,
        size: Bytes,
        ecn: Ecn,
        content: Option<Content>,
    ) -> Sent {
        let kind = match stream {
            Stream::Media | Stream::Transport => Kind::Media,
            Stream::Repair => Kind::Repair,
            Stream::Parity => Kind::Parity,
        };
        //= rfc5348-5.1-retransmission
        let seq = self.base + self.packets.len() as u64;
        self.packets.push_back(Entry {
            sent: now,
            size,
            kind,
            ecn,
            content,
            outcome: None,
            is_assumed: false,
            is_timed: false,
            missing: None,
        });
        self.index_mut(stream).push(wire_seq, seq);
        if let Some(next) = &mut self.next_transport {
            self.transport.push(*next, seq);
            *next += 1;
        }
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

    /// Whether the entries about one stream prove that the reporter receives it: one is an arrival
    /// of a packet that is still known.
    ///
    /// # Errors
    /// [`FeedbackFault::NeverSent`] if one is an arrival of a packet that was never sent, unless its number
    /// follows soon: the receiver may have got a forged one.
    pub fn check(&self, stream: Stream, lines: &[Line]) -> Result<bool, FeedbackFault> {
        let index = self.index(stream);
        let mut proven = false;
        for line in lines.iter().filter(|line| line.received.is_some()) {
            match index.find(line.seq) {
                Found::At(_) => proven = true,
                Found::Forgotten => {}
                Found::NeverSent { ahead } if ahead <= MAX_AHEAD => {}
                Found::NeverSent { .. } => return Err(FeedbackFault::NeverSent),
            }
        }
        Ok(proven)
    }

    /// Applies entries about one stream that have passed [`check`](Self::check). `at` is the time of the report on
    /// the receiver's clock, `now` that of its arrival. Returns whether a packet that was sent as Not-ECT arrived with a CE
    /// mark: no conforming router sets it, so it is no sign of congestion (RFC 3168 section 5).
    pub fn on_feedback(
        &mut self,
        now: Time,
        stream: Stream,
        at: RemoteTime,
        lines: &[Line],
    ) -> bool {
        let mut mangled = false;
        for line in lines {
            let Found::At(seq) = self.index(stream).find(line.seq) else {
                continue;
            };
            let Some(entry) = self.entry_mut(seq) else {
                continue;
            };
            let Some((ago, mut ecn)) = line.received else {
                entry.missing = entry.missing.max(Some(at));
                continue;
            };
            // An arrival before the departure is that of another packet with this number.
            let elapsed = now.since(entry.sent) + CLOCK_UNIT;
            let ago = ago.filter(|ago| *ago <= elapsed);
            let arrived = RemoteTime(at.0.saturating_sub(nanos(ago.unwrap_or_default())));
            if ecn == Ecn::Ce && entry.ecn == Ecn::NotEct {
                ecn = Ecn::NotEct;
                mangled = true;
            }
            entry.is_assumed = false;
            let (size, sent, before) = (entry.size, entry.sent, entry.outcome);
            let spurious = match before {
                None => false,
                Some((Outcome::Lost, _)) => true,
                Some((Outcome::Received { .. }, _)) => continue,
            };
            entry.is_timed = ago.is_some_and(|ago| ago < OVER_RANGE);
            // The controller receives a spurious loss apart from the outcomes.
            entry.outcome = Some((Outcome::Received { at: arrived, ecn }, spurious));
            self.arrivals.push((arrived, sent));
            if spurious {
                self.spurious.push(seq);
            } else {
                self.in_flight -= size;
            }
            if self.newest.is_none_or(|(s, ..)| seq >= s) {
                self.newest = Some((seq, sent, ago.is_some()));
            }
        }
        mangled
    }

    /// Whether packets were reordered on this path recently.
    pub fn is_reordered(&self) -> bool {
        self.reordering.is_observed()
    }

    /// Measures the displacement of the packets of a feedback packet. Their arrival times have the
    /// same error, so their order is known. An earlier feedback packet has earlier arrivals, unless
    /// it is of another receiver.
    fn measure_reordering(&mut self, now: Time) {
        self.arrivals.sort_unstable();
        for (arrived, sent) in self.arrivals.drain(..) {
            let (newest, at) = *self.front.get_or_insert((sent, arrived));
            let overtaken = arrived >= at && sent < newest;
            let displacement = if overtaken {
                newest.since(sent)
            } else {
                Duration::ZERO
            };
            self.reordering.on_arrival(now, displacement);
            if sent >= newest {
                self.front = Some((sent, arrived));
            }
        }
    }

    /// Moves the spurious losses of a feedback packet to `learnt`.
    fn take_spurious(&mut self, feedback: &mut FeedbackResult) {
        let mut spurious = core::mem::take(&mut self.spurious);
        spurious.sort_unstable();
        for seq in spurious.drain(..) {
            feedback.spurious.extend(self.resolved(seq));
            let content = self.entry(seq).and_then(|entry| entry.content);
            feedback.restored.extend(content);
        }
        self.spurious = spurious;
    }

    fn resolved(&self, seq: u64) -> Option<PacketOutcome> {
        let entry = self.entry(seq)?;
        let (outcome, _) = entry.outcome?;
        Some(entry.resolved(seq, outcome))
    }

    /// Declares losses after all blocks of a feedback packet were applied, and returns the new
    /// outcomes.
    ///
    /// A packet is lost when three packets sent after it have arrived (RFC 5348 section 5.1), or
    /// one that was sent a reordering window later (RFC 8985 section 6.2: at a few packets per
    /// frame, three arrivals take too long). While there is reordering, only the time criterion
    /// applies (RFC 8985 section 3.1). The window is at least `least`. A loss is taken back if the
    /// packet arrives after all.
    pub fn settle(&mut self, now: Time, at: RemoteTime, least: Duration) -> FeedbackResult {
        self.measure_reordering(now);
        let mut feedback = FeedbackResult::default();
        self.take_spurious(&mut feedback);
        let window = self.reordering.window(least);
        let Some((newest, newest_sent, is_timed)) = self.newest else {
            return feedback;
        };
        let from = (self.settled.max(self.base) - self.base) as usize;
        let upto = ((newest + 1).saturating_sub(self.base) as usize).min(self.packets.len());
        // Written-off packets are resolved although no newer packet has arrived.
        let from = from.min(upto);
        let duplicates = if self.is_reordered() {
            u32::MAX
        } else {
            DUPLICATES
        };
        let mut later = 0;
        // From the newest backwards, counting later arrivals.
        for entry in self.packets.range_mut(from..upto).rev() {
            match entry.outcome {
                Some((Outcome::Received { .. }, _)) => later += 1,
                //= rfc5348-5.1-three-later
                None if later >= duplicates
                    || later > 0 && newest_sent.since(entry.sent) >= window =>
                {
                    entry.outcome = Some((Outcome::Lost, false));
                    self.in_flight -= entry.size;
                }
                _ => {}
            }
        }
        for (i, entry) in self.packets.range_mut(from..upto).enumerate() {
            let Some((outcome, notified @ false)) = &mut entry.outcome else {
                continue;
            };
            *notified = true;
            let seq = self.base + (from + i) as u64;
            if let (Outcome::Received { at: arrived, .. }, true) = (*outcome, seq == newest) {
                let (held, elapsed) = (at.since(arrived), now.since(entry.sent));
                // A holding time above the elapsed time is unknown or false.
                let is_possible = is_timed && held <= elapsed + CLOCK_UNIT;
                let rtt = is_possible.then(|| elapsed.saturating_sub(held));
                feedback.rtt = rtt.filter(|rtt| *rtt <= MAX_RTT);
            }
            let outcome = *outcome;
            feedback.outcomes.push(entry.resolved(seq, outcome));
            if outcome == Outcome::Lost {
                feedback.lost.extend(entry.content);
            }
        }
        self.advance(now);
        feedback
    }

    /// Whether a receiver report is about this session: the 16 low bits of its highest sequence
    /// number belong to a packet of the media stream that was sent. Returns the departure time of
    /// that packet, `None` if it was forgotten.
    ///
    /// # Errors
    /// [`FeedbackFault::NeverSent`] for a packet that was never sent.
    pub fn check_highest(&self, highest: u16) -> Result<Option<Time>, FeedbackFault> {
        match self.media.find(highest) {
            Found::At(seq) => Ok(self.entry(seq).map(|entry| entry.sent)),
            Found::Forgotten => Ok(None),
            Found::NeverSent { .. } => Err(FeedbackFault::NeverSent),
        }
    }

    /// Number of unresolved packets up to the media packet `highest`.
    pub fn unresolved(&self, highest: u16) -> u64 {
        let Found::At(newest) = self.media.find(highest) else {
            return 0;
        };
        let from = (self.settled.max(self.base) - self.base) as usize;
        let upto = ((newest + 1).saturating_sub(self.base) as usize).min(self.packets.len());
        let open = self.packets.range(from.min(upto)..upto);
        open.filter(|entry| entry.outcome.is_none()).count() as u64
    }

    /// Resolves all packets up to the media packet `highest`, for a receiver report, of which
    /// `lost` were lost. `arrival` gives the arrival time of a packet by its departure time.
    ///
    /// The report has the number of losses, and not their positions. They are spread evenly: of all
    /// distributions this has the most loss events (RFC 5348 section 5.2). The newest packet has
    /// arrived. The result does not name lost contents.
    ///
    /// For a NACK, only the arrival of the newest packet is known. The next report is seconds away, so
    /// later packets do not count as being in flight until then.
    pub fn settle_evenly(
        &mut self,
        now: Time,
        highest: u16,
        lost: u64,
        arrival: impl Fn(Time) -> RemoteTime,
    ) -> FeedbackResult {
        let mut feedback = FeedbackResult::default();
        let Found::At(newest) = self.media.find(highest) else {
            return feedback;
        };
        let from = (self.settled.max(self.base) - self.base) as usize;
        let upto = ((newest + 1).saturating_sub(self.base) as usize).min(self.packets.len());
        let total = self.unresolved(highest);
        let lost = lost.min(total.saturating_sub(1));
        let mut count = 0;
        for (i, entry) in self.packets.range_mut(from.min(upto)..upto).enumerate() {
            if entry.outcome.is_some() {
                continue;
            }
            let is_lost = ((count + 1) * lost).div_ceil(total) > (count * lost).div_ceil(total);
            count += 1;
            let ecn = Ecn::NotEct;
            let at = arrival(entry.sent);
            let outcome = if is_lost {
                Outcome::Lost
            } else {
                Outcome::Received { at, ecn }
            };
            entry.outcome = Some((outcome, true));
            entry.is_assumed = true;
            self.in_flight -= entry.size;
            let seq = self.base + (from + i) as u64;
            feedback.outcomes.push(entry.resolved(seq, outcome));
        }
        if let Some(entry) = self.entry_mut(newest) {
            entry.is_assumed = false;
        }
        self.advance(now);
        feedback
    }

    /// Declares all packets in flight lost, after an outage.
    pub fn write_off(&mut self, now: Time) -> FeedbackResult {
        let mut feedback = FeedbackResult::default();
        let from = ((self.settled.max(self.base) - self.base) as usize).min(self.packets.len());
        for (i, entry) in self.packets.range_mut(from..).enumerate() {
            if entry.outcome.is_some() {
                continue;
            }
            entry.outcome = Some((Outcome::Lost, true));
            self.in_flight -= entry.size;
            let seq = self.base + (from + i) as u64;
            feedback.outcomes.push(entry.resolved(seq, Outcome::Lost));
            feedback.lost.extend(entry.content);
        }
        self.advance(now);
        feedback
    }

    /// Forgets which arrivals were reported last: other feedback may follow.
    pub fn forget_reporters(&mut self) {
        (self.newest, self.front) = (None, None);
    }

    /// Sizes of the unresolved packets that left after `from`, and at `to` at the latest.
    pub(super) fn unresolved_between(&self, from: Time, to: Time) -> impl Iterator<Item = Bytes> {
        let is_open = move |e: &&Entry| e.outcome.is_none() && from < e.sent && e.sent <= to;
        self.packets.iter().filter(is_open).map(|e| e.size)
    }

    /// Number of stored packets.
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Bytes sent whose outcome is unknown.
    pub fn in_flight(&self) -> Bytes {
        self.in_flight
    }

    /// Departure time of the oldest unresolved packet.
    pub fn oldest_unresolved(&self) -> Option<Time> {
        let from = (self.settled.max(self.base) - self.base) as usize;
        let mut rest = self.packets.range(from.min(self.packets.len())..);
        rest.find(|e| e.outcome.is_none()).map(|e| e.sent)
    }

    /// Whether a packet of the media stream is known to have arrived.
    pub fn has_arrived(&self, wire_seq: u16) -> bool {
        let Found::At(seq) = self.media.find(wire_seq) else {
            return false;
        };
        self.entry(seq).is_some_and(|entry| {
            !entry.is_assumed && matches!(entry.outcome, Some((Outcome::Received { .. }, _)))
        })
    }

    /// Content of a packet of the media stream that may be lost, for a NACK: no feedback has
    /// reported its arrival and, if there is feedback per packet, a later packet has arrived.
    pub fn missing_content(&self, wire_seq: u16) -> Option<Content> {
        let Found::At(seq) = self.media.find(wire_seq) else {
            return None;
        };
        let entry = self.entry(seq)?;
        let in_flight = self.newest.is_some_and(|(newest, ..)| seq > newest);
        entry
            .content
            .filter(|_| !self.has_arrived(wire_seq) && !in_flight)
    }

    /// Moves rows of packets that no longer change to `rows`.
    pub fn drain_log(&mut self, rows: &mut Vec<PacketRow>) {
        if let Some(log) = &mut self.log {
            rows.append(log);
        }
    }

    /// Moves rows of all packets to `rows`; those in flight have no outcome.
    pub fn finish_log(&mut self, rows: &mut Vec<PacketRow>) {
        while !self.packets.is_empty() {
            self.forget_first();
        }
        self.drain_log(rows);
    }

    /// Advances `settled` and removes old resolved packets.
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
        self.parity.forget_before(self.base);
        self.transport.forget_before(self.base);
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
            Stream::Parity => &self.parity,
            Stream::Transport => &self.transport,
        }
    }

    fn index_mut(&mut self, stream: Stream) -> &mut Index {
        match stream {
            Stream::Media => &mut self.media,
            Stream::Repair => &mut self.repair,
            Stream::Parity => &mut self.parity,
            Stream::Transport => &mut self.transport,
        }
    }
}

#[derive(Debug)]
struct Entry {
    sent: Time,
    size: Bytes,
    kind: Kind,
    ecn: Ecn,
    content: Option<Content>,
    /// The flag is set once the controller has received the outcome.
    outcome: Option<(Outcome, bool)>,
    /// The outcome follows from a number of losses, and may be that of another packet.
    is_assumed: bool,
    /// The time of its arrival is known.
    is_timed: bool,
    /// Time of the latest report that it has not arrived.
    missing: Option<RemoteTime>,
}

impl Entry {
    fn resolved(&self, seq: u64, outcome: Outcome) -> PacketOutcome {
        PacketOutcome {
            flow: FlowId::default(),
            seq,
            size: self.size,
            sent: self.sent,
            outcome,
        }
    }
}

/// Two units of 1/1024 s, the resolution of arrival times (RFC 8888 section 3.1).
const CLOCK_UNIT: Duration = Duration::from_millis(2);
/// Exceeds the range of the RFC 8888 offset field (7.997 s): the arrival was too long ago for its time
/// to matter.
pub(super) const OVER_RANGE: Duration = Duration::from_secs(8);
/// Forged packets that a receiver takes for those of the stream.
const MAX_AHEAD: u16 = 256;
/// RFC 5348 section 5.1, as in TCP.
const DUPLICATES: u32 = 3;
/// Resolved packets are kept this long for NACKs; a later NACK concerns an expired frame.
const KEEP: Duration = Duration::from_secs(2);
/// 32 Ki packets of 1,200 bytes are 8 s at 40 Mb/s. The limit is half of the sequence number space,
/// so 16-bit numbers remain unambiguous.
const MAX_PACKETS: usize = 32_768;
/// Longest round-trip time. Feedback that implies more was held by the path, or is a replay: it says
/// nothing about the delay of packets that leave now.
pub(super) const MAX_RTT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
