use rand_pcg::Pcg64Mcg;

use super::*;
use crate::packet_agent::{Outbox, Outgoing};

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

    /// Delivers segment `seq`, a millisecond after the previous one.
    fn give(&mut self, seq: u32, ecn: Ecn, cwr: bool) -> Option<Ack> {
        self.now += Duration::from_millis(1);
        let segment = Segment {
            seq,
            sent: self.now,
            again: false,
            cwr,
        };
        let arrival = Arrival {
            size: 1_000,
            ecn,
            dscp: 0,
        };
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
            _ => panic!("a sink only sends acknowledgements"),
        })
    }

    fn seq(&mut self, seq: u32) -> Ack {
        self.give(seq, Ecn::NotEct, false).unwrap()
    }
}

/// RFC 9768: all marks are counted, the first one after an unmarked segment is reported
/// immediately, and no CWR is needed to end the reports.
#[test]
fn marks_are_counted_with_accurate_ecn() {
    let config = SinkConfig {
        accurate_ecn: true,
        delay: Some(Duration::from_millis(40)),
        ..SinkConfig::default()
    };
    let mut bench = Bench::new(config);
    bench.seq(0);
    assert!(bench.give(1, Ecn::Ect1, false).is_none());
    let reported = |ack: Option<Ack>| ack.map(|ack| (ack.next, ack.marks, ack.ece));
    assert_eq!(reported(bench.give(2, Ecn::Ce, false)), Some((3, 1, false)));
    // The next mark is not reported immediately; the one after it makes two.
    assert_eq!(reported(bench.give(3, Ecn::Ce, false)), None);
    assert_eq!(
        reported(bench.give(4, Ecn::Ect1, false)),
        Some((5, 2, false))
    );
    assert_eq!(reported(bench.give(5, Ecn::Ce, false)), Some((6, 3, false)));
    bench.sink.marks = u16::MAX;
    bench.give(6, Ecn::Ect1, false);
    assert_eq!(reported(bench.give(7, Ecn::Ce, false)), Some((8, 0, false)));
    // Without accurate ECN, the flag is echoed.
    let mut bench = Bench::new(SinkConfig::default());
    assert_eq!(reported(bench.give(0, Ecn::Ce, false)), Some((1, 0, true)));
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
fn delayed_ack_every_second_segment_or_by_timer() {
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
    // Holes, and segments that fill them, are acknowledged immediately.
    assert_eq!(late(&mut bench, 5), Some(4));
    assert_eq!(late(&mut bench, 7), Some(4));
    assert_eq!(late(&mut bench, 4), Some(6));
    assert_eq!(late(&mut bench, 6), Some(8));
    assert_eq!(bench.sink.delivered(4), Some(Time::from_millis(4)));
    assert_eq!(bench.sink.delivered(5), bench.sink.delivered(6));
    assert_eq!(bench.sink.delivered(9), None);
}

#[test]
fn marks_are_echoed_until_cwr() {
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
        dscp: 0,
    };
    bench
        .sink
        .on_packet(&mut cx, &arrival, &mut Body::Segment(segment));
    let (size, ack) = bench.taken().unwrap();
    assert_eq!((size, ack.again), (56, true));
}
