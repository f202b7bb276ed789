//! The receiver of a TCP model: acknowledges segments.

use core::time::Duration;

use tidegate_core::control::Ecn;
use tidegate_core::units::{Bytes, Time};

use super::Ranges;
use crate::agent::{Ack, Agent, AgentCx, Arrival, Body, Segment, fetch};

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
mod tests {
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::agent::{Outbox, Outgoing};

    struct Bench {
        sink: Sink,
        trace: (),
        rng: Pcg64Mcg,
        out: Outbox,
        now: Time,
    }

    impl Bench {
        fn new(config: SinkConfig) -> Self {
            Self {
                sink: Sink::new(&config),
                trace: (),
                rng: Pcg64Mcg::new(1),
                out: Outbox::default(),
                now: Time::ZERO,
            }
        }

        /// Gives it segment `seq`, a millisecond after what was before.
        fn give(&mut self, seq: u32, ecn: Ecn, cwr: bool) -> Option<Ack> {
            self.now += Duration::from_millis(1);
            let segment = Segment {
                seq,
                sent: self.now,
                again: false,
                cwr,
            };
            let arrival = Arrival { size: 1_000, ecn };
            let mut cx = AgentCx::new(self.now, &mut self.rng, &mut self.trace, &mut self.out);
            self.sink
                .on_packet(&mut cx, &arrival, &mut Body::Segment(segment));
            self.taken().map(|(_, ack)| ack)
        }

        fn tick(&mut self, now: Time) -> Option<Ack> {
            self.now = now;
            let mut cx = AgentCx::new(now, &mut self.rng, &mut self.trace, &mut self.out);
            self.sink.on_timer(&mut cx);
            self.taken().map(|(_, ack)| ack)
        }

        fn taken(&mut self) -> Option<(u32, Ack)> {
            let sent: Vec<Outgoing> = self.out.drain().collect();
            assert!(sent.len() <= 1);
            sent.into_iter().next().map(|out| match out.body {
                Body::Ack(ack) => (out.size, ack),
                _ => panic!("a sink sends acknowledgements only"),
            })
        }

        fn seq(&mut self, seq: u32) -> Ack {
            self.give(seq, Ecn::NotEct, false).unwrap()
        }
    }

    /// RFC 9768: each mark counts, the first after none is told at once, and nothing has to be answered
    /// for it to end.
    #[test]
    fn marks_are_counted_if_the_sender_wants_that() {
        let config = SinkConfig {
            accurate_ecn: true,
            delay: Some(Duration::from_millis(40)),
            ..SinkConfig::default()
        };
        let mut bench = Bench::new(config);
        bench.seq(0);
        assert!(bench.give(1, Ecn::Ect1, false).is_none());
        let told = |ack: Option<Ack>| ack.map(|ack| (ack.next, ack.marks, ack.ece));
        assert_eq!(told(bench.give(2, Ecn::Ce, false)), Some((3, 1, false)));
        // The next one is no news, and the one after it makes two.
        assert_eq!(told(bench.give(3, Ecn::Ce, false)), None);
        assert_eq!(told(bench.give(4, Ecn::Ect1, false)), Some((5, 2, false)));
        assert_eq!(told(bench.give(5, Ecn::Ce, false)), Some((6, 3, false)));
        bench.sink.marks = u16::MAX;
        bench.give(6, Ecn::Ect1, false);
        assert_eq!(told(bench.give(7, Ecn::Ce, false)), Some((8, 0, false)));
        // Without, none of this.
        let mut bench = Bench::new(SinkConfig::default());
        assert_eq!(told(bench.give(0, Ecn::Ce, false)), Some((1, 0, true)));
    }

    #[test]
    fn blocks_come_with_the_newest_first() {
        let mut bench = Bench::new(SinkConfig::default());
        assert_eq!(bench.seq(0).next, 1);
        assert_eq!(bench.seq(2).sack, [(2, 3), (0, 0), (0, 0)]);
        assert_eq!(bench.seq(4).sack, [(4, 5), (2, 3), (0, 0)]);
        assert_eq!(bench.seq(6).sack, [(6, 7), (4, 5), (2, 3)]);
        assert_eq!(bench.seq(8).sack, [(8, 9), (6, 7), (4, 5)]);
        // 5 joins two blocks.
        assert_eq!(bench.seq(5).sack, [(4, 7), (8, 9), (0, 0)]);
        let ack = bench.seq(1);
        assert_eq!((ack.next, ack.sack[0]), (3, (4, 7)));
        let ack = bench.seq(3);
        assert_eq!((ack.next, ack.sack), (7, [(8, 9), (0, 0), (0, 0)]));
        let ack = bench.seq(7);
        assert_eq!((ack.next, ack.sack), (9, [(0, 0); 3]));
        assert_eq!(bench.sink.counters().duplicates, 0);
        assert_eq!(bench.sink.counters().bytes, Bytes(9_000));
    }

    #[test]
    fn duplicates_are_counted_and_acknowledged() {
        let mut bench = Bench::new(SinkConfig::default());
        bench.seq(0);
        bench.seq(2);
        assert_eq!(bench.seq(2).sack[0], (2, 3));
        assert_eq!(bench.seq(0).next, 1);
        assert_eq!(bench.sink.counters().duplicates, 2);
        assert_eq!(bench.sink.counters().bytes, Bytes(2_000));
    }

    #[test]
    fn every_second_segment_or_a_timer() {
        let mut bench = Bench::new(SinkConfig {
            delay: Some(Duration::from_millis(100)),
            keep_progress: true,
            ..SinkConfig::default()
        });
        let late = |bench: &mut Bench, seq| bench.give(seq, Ecn::NotEct, false).map(|a| a.next);
        assert_eq!(late(&mut bench, 0), Some(1));
        assert_eq!(late(&mut bench, 1), None);
        assert_eq!(late(&mut bench, 2), Some(3));
        assert_eq!(late(&mut bench, 3), None);
        let due = bench.sink.next_timer();
        assert_eq!(due, Time::from_millis(104));
        assert_eq!(bench.tick(Time::from_millis(50)), None);
        assert_eq!(bench.tick(due).map(|a| a.next), Some(4));
        assert_eq!(bench.sink.next_timer(), Time::FAR);
        // Gaps, and what fills them, are told at once.
        assert_eq!(late(&mut bench, 5), Some(4));
        assert_eq!(late(&mut bench, 7), Some(4));
        assert_eq!(late(&mut bench, 4), Some(6));
        assert_eq!(late(&mut bench, 6), Some(8));
        assert_eq!(bench.sink.delivered(4), Some(Time::from_millis(4)));
        assert_eq!(bench.sink.delivered(5), bench.sink.delivered(6));
        assert_eq!(bench.sink.delivered(9), None);
    }

    #[test]
    fn marks_are_echoed_until_the_window_was_reduced() {
        let mut bench = Bench::new(SinkConfig::default());
        let mut ece = |seq, ecn, cwr| bench.give(seq, ecn, cwr).unwrap().ece;
        assert!(!ece(0, Ecn::NotEct, false));
        assert!(ece(1, Ecn::Ce, false));
        assert!(ece(2, Ecn::Ect0, false));
        assert!(!ece(3, Ecn::Ect0, true));
        assert!(ece(4, Ecn::Ce, true));
    }

    #[test]
    fn sizes_count_blocks() {
        let mut bench = Bench::new(SinkConfig::default());
        bench.seq(1);
        let mut cx = AgentCx::new(bench.now, &mut bench.rng, &mut bench.trace, &mut bench.out);
        let segment = Segment {
            seq: 3,
            sent: Time::ZERO,
            again: true,
            cwr: false,
        };
        let arrival = Arrival {
            size: 1_000,
            ecn: Ecn::NotEct,
        };
        bench
            .sink
            .on_packet(&mut cx, &arrival, &mut Body::Segment(segment));
        let (size, ack) = bench.taken().unwrap();
        assert_eq!((size, ack.again), (56, true));
    }
}
