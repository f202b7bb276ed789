//! The receiver of a TCP model: acknowledges segments.

use core::time::Duration;

use tidegate_core::control::Ecn;
use tidegate_core::units::{Bytes, Time};

use super::Ranges;
use crate::packet_agent::{Ack, Agent, AgentCx, Arrival, Body, Segment, fetch};

/// Parameters of a [`Sink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkConfig {
    /// Of an acknowledgement without options, on the wire, in bytes.
    pub ack_size: u32,
    /// Selective acknowledgements per packet, 0 to 3. Each adds 8 bytes (RFC 2018).
    pub sack_blocks: u8,
    /// Delayed acknowledgements: one for every second segment, or after this time. `None`: one
    /// per segment.
    pub delay: Option<Duration>,
    /// Whether to keep the [`progress`](Sink::progress).
    pub keep_progress: bool,
    /// Whether acknowledgements tell how many marks came (RFC 9768), rather than that some did
    /// (RFC 3168).
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

/// Receives segments in any order, answers with cumulative and selective acknowledgements, and
/// echoes ECN marks until it is told that the window was reduced. As ns-2's `TCPSink`, with
/// `Sack1` and `DelAck` as options.
#[derive(Clone, Debug)]
pub struct Sink {
    config: SinkConfig,
    /// Everything before this has come.
    next: u32,
    /// One after the highest that came.
    top: u32,
    /// What came beyond `next`.
    beyond: Ranges,
    recent: Recent,
    /// Congestion was experienced and the sender has not said that it knows.
    congested: bool,
    /// Marks that came, modulo 2^16, if they are counted, and whether the last segment was marked.
    marks: u16,
    marked: bool,
    /// Time stamp to echo.
    echo: Time,
    /// What the last acknowledgement said is missing.
    told: u32,
    /// The segment whose acknowledgement waits.
    held: Option<Held>,
    timer: Time,
    counters: SinkCounters,
    progress: Vec<(Time, u32)>,
}

impl Sink {
    /// Waits for segment 0.
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
            told: 0,
            held: None,
            timer: Time::FAR,
            counters: SinkCounters::default(),
            progress: Vec::new(),
        }
    }

    /// The first segment that is missing: everything before it was delivered in order.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// What it counted.
    pub fn counters(&self) -> SinkCounters {
        self.counters
    }

    /// When [`next`](Self::next) moved, and to what, if the configuration says to keep this.
    pub fn progress(&self) -> &[(Time, u32)] {
        &self.progress
    }

    /// When everything before `segment` had come, from the [`progress`](Self::progress).
    pub fn delivered(&self, segment: u32) -> Option<Time> {
        let i = self.progress.partition_point(|(_, next)| *next < segment);
        self.progress.get(i).map(|(at, _)| *at)
    }

    fn on_segment(&mut self, cx: &mut AgentCx<'_>, arrival: Arrival, segment: &Segment) {
        self.counters.segments += 1;
        let seq = segment.seq;
        if seq <= self.told && segment.sent >= self.echo {
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
        // Only a segment that continues the sequence may wait: not the SYN, and not one that
        // fills a gap (RFC 5681 section 4.2).
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

    /// Counts the mark of a segment, if it has one. Whether the sender is to know at once: after
    /// segments without (RFC 9768 section 3.2.2.5.1).
    fn count(&mut self, ecn: Ecn) -> bool {
        let before = core::mem::replace(&mut self.marked, ecn == Ecn::Ce);
        self.marks = self.marks.wrapping_add(u16::from(self.marked));
        self.marked && !before
    }

    /// Whether it is new.
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
        self.told = self.next;
        self.counters.acks += 1;
        let size = self.config.ack_size + SACK_BLOCK * blocks as u32;
        cx.send(Bytes(u64::from(size)), Ecn::NotEct, Body::Ack(ack));
    }

    /// Fills in the blocks, and says how many.
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
        // A segment that moved the sequence on makes blocks obsolete that lie before `next` now.
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

/// What a sink counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounters {
    /// Segments that came.
    pub segments: u64,
    /// Of these, such as had come before.
    pub duplicates: u64,
    /// Size on the wire of those that had not.
    pub bytes: Bytes,
    /// Acknowledgements sent.
    pub acks: u64,
}

/// A segment, as its acknowledgement will need it.
#[derive(Clone, Copy, Debug)]
struct Held {
    seq: u32,
    ecn: Ecn,
    cwr: bool,
    again: bool,
}

/// Blocks reported lately, the newest first.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    blocks: [(u32, u32); 3],
    count: usize,
}

impl Recent {
    fn clear(&mut self) {
        self.count = 0;
    }

    /// Fills `room` with blocks, and says with how many. Forgets those on the way that lie within
    /// `known`.
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

/// Of the SACK option, per block, as ns-2 counts it.
const SACK_BLOCK: u32 = 8;

#[cfg(test)]
mod tests;
