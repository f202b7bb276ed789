//! The receiver of a TCP model.

use core::time::Duration;

use tidegate_core::control::Ecn;
use tidegate_core::units::{Bytes, Time};

use super::Ranges;
use crate::packet_agent::{Ack, Agent, AgentCx, Arrival, Body, Segment, fetch};

/// Parameters of a [`Sink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkConfig {
    /// Size of an acknowledgement without options, in bytes.
    pub ack_size: u32,
    /// Maximum number of SACK blocks per packet, 0 to 3. Each adds 8 bytes (RFC 2018).
    pub sack_blocks: u8,
    /// Delayed acknowledgements: one for every second segment, or after this time. `None`: one per
    /// segment.
    pub delay: Option<Duration>,
    /// Whether to record the [`progress`](Sink::progress).
    pub keep_progress: bool,
    /// Whether acknowledgements carry the number of marks (RFC 9768) instead of the ECE flag (RFC
    /// 3168).
    pub accurate_ecn: bool,
}

impl Default for SinkConfig {
    /// One acknowledgement of 40 bytes per segment, with up to three SACK blocks.
    fn default() -> Self {
        Self {
            ack_size: super::HEADER,
            sack_blocks: 3,
            delay: None,
            keep_progress: false,
            accurate_ecn: false,
        }
    }
}

/// Receives segments in any order, sends cumulative and selective acknowledgements, and echoes ECN
/// marks until the sender signals CWR. As ns-2's `TCPSink`, with `Sack1` and `DelAck` as options.
#[derive(Clone, Debug)]
pub struct Sink {
    config: SinkConfig,
    /// All segments before this one have arrived.
    next: u32,
    /// One after the highest segment received.
    top: u32,
    /// Segments received beyond `next`.
    beyond: Ranges,
    recent: Recent,
    /// A mark arrived and the sender has not signalled CWR.
    congested: bool,
    /// Marks received, modulo 2^16, if they are counted, and whether the last segment was marked.
    marks: u16,
    marked: bool,
    /// Time stamp to echo.
    echo: Time,
    /// Cumulative acknowledgement number of the last acknowledgement.
    last_ack: u32,
    /// The segment whose acknowledgement is delayed.
    held: Option<Held>,
    timer: Time,
    counters: SinkCounters,
    progress: Vec<(Time, u32)>,
}

impl Sink {
    /// A sink that expects segment 0.
    pub fn new(config: &SinkConfig) -> Self {
        Self {
            config: *config,
            next: 0,
            top: 0,
            beyond: Ranges::default(),
            recent: Recent::default(),
            congested: false,
            marks: 0,
            marked: false,
            echo: Time::ZERO,
            last_ack: 0,
            held: None,
            timer: Time::FAR,
            counters: SinkCounters::default(),
            progress: Vec::new(),
        }
    }

    /// The first missing segment; all segments before it were delivered in order.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Counters.
    pub fn counters(&self) -> SinkCounters {
        self.counters
    }

    /// Times and values of changes of [`next`](Self::next), if the configuration enables recording.
    pub fn progress(&self) -> &[(Time, u32)] {
        &self.progress
    }

    /// Time at which all segments before `segment` had arrived, from the
    /// [`progress`](Self::progress).
    pub fn delivered(&self, segment: u32) -> Option<Time> {
        let i = self.progress.partition_point(|(_, next)| *next < segment);
        self.progress.get(i).map(|(at, _)| *at)
    }

    fn on_segment(&mut self, cx: &mut AgentCx<'_>, arrival: Arrival, segment: &Segment) {
        self.counters.segments += 1;
        let seq = segment.seq;
        if seq <= self.last_ack && segment.sent >= self.echo {
            self.echo = segment.sent;
        }
        let before = self.next;
        let duplicate = !self.take(seq);
        if duplicate {
            self.counters.duplicates += 1;
        } else {
            self.counters.bytes += Bytes(u64::from(arrival.size));
        }
        if self.next > before && self.config.keep_progress {
            self.progress.push((cx.now, self.next));
        }
        let news = self.config.accurate_ecn && self.count(arrival.ecn);
        let held = Held {
            seq,
            ecn: arrival.ecn,
            cwr: segment.cwr,
            again: segment.again,
        };
        // Only the acknowledgement of a segment in sequence may be delayed: not that of the SYN,
        // and not that of a segment that fills a hole (RFC 5681 section 4.2).
        let continues = seq + 1 == self.next && self.next >= self.top && seq > 0;
        if let Some(delay) = self.config.delay
            && self.timer == Time::FAR
            && continues
            && !news
        {
            self.held = Some(held);
            self.timer = cx.now + delay;
            return;
        }
        self.timer = Time::FAR;
        self.acknowledge(cx, held);
    }

    /// Counts the mark of a segment. Returns whether the sender must be notified immediately: for a
    /// mark after unmarked segments (RFC 9768 section 3.2.2.5.1).
    fn count(&mut self, ecn: Ecn) -> bool {
        let before = core::mem::replace(&mut self.marked, ecn == Ecn::Ce);
        self.marks = self.marks.wrapping_add(u16::from(self.marked));
        self.marked && !before
    }

    /// Records a segment. Returns whether it is new.
    fn take(&mut self, seq: u32) -> bool {
        if seq < self.next {
            return false;
        }
        self.top = self.top.max(seq + 1);
        if seq > self.next {
            let before = self.beyond.total();
            self.beyond.insert(seq, seq + 1);
            return self.beyond.total() > before;
        }
        self.next += 1;
        if let Some((from, to)) = self.beyond.first()
            && from == self.next
        {
            self.next = to;
            self.beyond.clear_below(to);
        }
        true
    }

    fn acknowledge(&mut self, cx: &mut AgentCx<'_>, last: Held) {
        let held = self.held.take();
        let covers = |test: fn(&Held) -> bool| held.as_ref().is_some_and(test) || test(&last);
        if covers(|h| h.cwr) {
            self.congested = false;
        }
        if covers(|h| h.ecn == Ecn::Ce) {
            self.congested = true;
        }
        let mut ack = Ack {
            next: self.next,
            echo: self.echo,
            sack: [(0, 0); 3],
            ece: self.congested && !self.config.accurate_ecn && covers(|h| h.ecn.is_capable()),
            again: last.again,
            marks: self.marks,
        };
        let blocks = self.select(last, &mut ack.sack);
        self.last_ack = self.next;
        self.counters.acks += 1;
        let size = self.config.ack_size + SACK_BLOCK * blocks as u32;
        cx.send(Bytes(u64::from(size)), Ecn::NotEct, Body::Ack(ack));
    }

    /// Fills in the SACK blocks, and returns their number.
    fn select(&mut self, last: Held, sack: &mut [(u32, u32); 3]) -> usize {
        let limit = usize::from(self.config.sack_blocks.min(3));
        if self.next >= self.top {
            self.recent.clear();
            return 0;
        }
        if limit == 0 {
            return 0;
        }
        let newest = self.beyond.covering(last.seq);
        let mut blocks = 0;
        if let Some(block) = newest {
            sack[0] = block;
            blocks = 1;
        }
        // A segment that advanced the sequence makes blocks before `next` obsolete.
        let known = newest.unwrap_or((0, self.next));
        blocks += self.recent.repeat(known, &mut sack[blocks..limit]);
        if let Some(block) = newest {
            self.recent.push(block, limit);
        }
        blocks
    }
}

impl Agent for Sink {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        if let Body::Segment(segment) = body {
            self.on_segment(cx, *arrival, segment);
        }
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        if cx.now < self.timer {
            return;
        }
        self.timer = Time::FAR;
        if let Some(held) = self.held.take() {
            self.acknowledge(cx, held);
        }
    }

    fn next_timer(&self) -> Time {
        self.timer
    }

    fn soon(&self) {
        fetch(&self.config);
        fetch(&self.next);
        fetch(&self.recent);
        fetch(&self.counters);
        fetch(&self.beyond);
        fetch(&self.timer);
    }
}

/// Counters of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounters {
    /// Received segments.
    pub segments: u64,
    /// Received duplicates.
    pub duplicates: u64,
    /// Size on the wire of segments that are not duplicates.
    pub bytes: Bytes,
    /// Acknowledgements sent.
    pub acks: u64,
}

/// Data of a segment for its acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Held {
    seq: u32,
    ecn: Ecn,
    cwr: bool,
    again: bool,
}

/// Recently reported blocks, newest first.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    blocks: [(u32, u32); 3],
    count: usize,
}

impl Recent {
    fn clear(&mut self) {
        self.count = 0;
    }

    /// Fills `room` with blocks, and returns their number. Removes blocks that lie within `known`.
    fn repeat(&mut self, known: (u32, u32), room: &mut [(u32, u32)]) -> usize {
        let (mut filled, mut at) = (0, 0);
        while filled < room.len() && at < self.count {
            let block = self.blocks[at];
            if known.0 <= block.0 && block.1 <= known.1 {
                self.blocks.copy_within(at + 1..self.count, at);
                self.count -= 1;
            } else {
                room[filled] = block;
                filled += 1;
                at += 1;
            }
        }
        filled
    }

    fn push(&mut self, block: (u32, u32), limit: usize) {
        self.count = self.count.min(limit - 1);
        self.blocks.copy_within(0..self.count, 1);
        self.blocks[0] = block;
        self.count += 1;
    }
}

/// Size of a SACK block in the option, as in ns-2.
const SACK_BLOCK: u32 = 8;

#[cfg(test)]
mod tests;
