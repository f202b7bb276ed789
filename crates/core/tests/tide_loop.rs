//! Tide in a closed loop: a pacer, a bottleneck, and reports every 25 ms, of which some are wrong.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{
    Algorithm as _, Context, Demand, Ecn, FlowId, Kind, Outcome, PacketOutcome, RateControl,
    Report, Sent, Start,
};
use tidegate_core::controller::tide::TideConfig;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, RemoteTime, Time};

/// A flow on a path of its own, 20 ms each way.
struct Flow {
    control: RateControl,
    rng: Pcg64Mcg,
    now: Time,
    capacity: Rate,
    /// Whether the application has data.
    is_active: bool,
    next_seq: u64,
    /// After so many packets a number is left out.
    skips: u64,
    next_packet: Time,
    next_report: Time,
    /// Time at which the bottleneck is free.
    free: Time,
    /// Sent packets in order, with their arrivals.
    in_flight: VecDeque<(Sent, Time, Time)>,
    /// Smallest target, and bytes delivered since [`mark`](Self::mark).
    least: Rate,
    delivered: Bytes,
}

/// How much earlier than they did the packets of a report claim to have arrived.
#[derive(Clone, Copy, Debug)]
enum Early {
    None,
    /// The newest packet.
    Newest(Duration),
    /// All of them.
    All(Duration),
}

impl Flow {
    fn new(capacity: Rate, floor: Rate, ceiling: Rate) -> Self {
        let demand = Demand {
            floor,
            ceiling,
            shares: 1,
        };
        let start = Start::new(Time::ZERO, SIZE, demand);
        Self {
            control: TideConfig::default().start(&start),
            rng: Seed(1).stream("loop"),
            now: Time::ZERO,
            capacity,
            is_active: true,
            next_seq: 0,
            skips: u64::MAX,
            next_packet: Time::ZERO,
            next_report: Time::ZERO + REPORTS,
            free: Time::ZERO,
            in_flight: VecDeque::new(),
            least: Rate::MAX,
            delivered: Bytes::ZERO,
        }
    }

    /// Goes on until `ms`.
    fn run_to(&mut self, ms: u64) {
        let end = Time::from_millis(ms);
        loop {
            let packet = if self.is_active {
                self.next_packet
            } else {
                Time::FAR
            };
            let timer = self.control.next_timeout().map_or(Time::FAR, |(at, _)| at);
            let next = packet.min(self.next_report).min(timer).max(self.now);
            if next >= end {
                self.now = end;
                return;
            }
            self.now = next;
            if timer <= next {
                let (rng, trace) = (&mut self.rng, &mut ());
                self.control.on_timeout(&mut Context {
                    now: next,
                    rng,
                    trace,
                });
            } else if packet <= next {
                self.send();
            } else {
                self.report(Early::None);
            }
            self.least = self.least.min(self.target());
        }
    }

    fn send(&mut self) {
        let packet = Sent {
            flow: FlowId(0),
            seq: self.next_seq,
            size: SIZE,
            kind: Kind::Media,
            app_limited: !self.is_active || self.target() < self.control.target().send,
        };
        self.next_seq += 1 + u64::from(self.next_seq % self.skips == self.skips - 1);
        self.free = self.free.max(self.now) + SIZE / self.capacity;
        self.in_flight
            .push_back((packet, self.now, self.free + ONE_WAY));
        let (rng, trace) = (&mut self.rng, &mut ());
        let mut cx = Context {
            now: self.now,
            rng,
            trace,
        };
        self.control.on_sent(&mut cx, &packet);
        self.next_packet = self.now + SIZE / self.target().max(Rate::kbps(1));
    }

    /// The next report is `early`.
    fn report_early(&mut self, early: Early) {
        self.run_to(self.next_report.as_nanos() / 1_000_000);
        self.report(early);
    }

    fn report(&mut self, early: Early) {
        self.now = self.now.max(self.next_report);
        self.next_report = self.now + REPORTS;
        let left = Time::ZERO + self.now.since(Time::ZERO + ONE_WAY);
        let mut packets = Vec::new();
        while let Some(&(packet, sent, at)) = self.in_flight.front()
            && at <= left
        {
            self.in_flight.pop_front();
            self.delivered += packet.size;
            let at = RemoteTime((at + EPOCH).as_nanos());
            packets.push(PacketOutcome {
                flow: packet.flow,
                seq: packet.seq,
                size: packet.size,
                sent,
                outcome: Outcome::Received {
                    at,
                    ecn: Ecn::NotEct,
                },
            });
        }
        let (skip, by) = match early {
            Early::None => (packets.len(), Duration::ZERO),
            Early::Newest(by) => (packets.len().saturating_sub(1), by),
            Early::All(by) => (0, by),
        };
        for packet in packets.iter_mut().skip(skip) {
            if let Outcome::Received { at, .. } = &mut packet.outcome {
                at.0 -= by.as_nanos() as u64;
            }
        }
        let Some(newest) = packets.last() else {
            return;
        };
        // RFC 8888 has the time from the arrival of the newest packet to the report.
        let Outcome::Received { at, .. } = newest.outcome else {
            return;
        };
        let held = Duration::from_nanos((left + EPOCH).as_nanos() - at.0);
        let rtt = self.now.since(newest.sent).saturating_sub(held);
        let (rng, trace) = (&mut self.rng, &mut ());
        let mut cx = Context {
            now: self.now,
            rng,
            trace,
        };
        self.control
            .on_report(&mut cx, &Report::new(&packets).rtt(rtt));
    }

    /// Begins a measurement.
    fn mark(&mut self) {
        (self.least, self.delivered) = (Rate::MAX, Bytes::ZERO);
    }

    /// The rate of the application, which is at most the ceiling.
    fn target(&self) -> Rate {
        self.control.target().media
    }

    /// Delay of a packet in the queue now.
    fn queue(&self) -> Duration {
        self.free.since(self.now)
    }
}

/// One packet, or one report, that claims to have arrived 15 ms too early: the sender was preempted
/// after it had taken the time, or the report is forged. Such a base delay would last for two minutes.
#[test]
fn one_early_report_is_no_shorter_path() {
    let by = Duration::from_millis(15);
    for early in [Early::Newest(by), Early::All(by)] {
        let mut flow = Flow::new(Rate::kbps(20_000), Rate::ZERO, Rate::kbps(8_000));
        flow.run_to(20_000);
        assert_eq!(flow.target(), Rate::kbps(8_000));
        flow.report_early(early);
        flow.mark();
        flow.run_to(40_000);
        assert!(
            flow.least >= Rate::kbps(7_600),
            "{early:?}: {:?}",
            flow.least
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Wherever single reports are wrong, if there are others in between.
    #[test]
    fn single_reports_set_no_base_delay(
        wrong in proptest::collection::vec((100..2_000_u64, 3..40_u64, any::<bool>()), 1..6),
    ) {
        let mut flow = Flow::new(Rate::kbps(20_000), Rate::ZERO, Rate::kbps(8_000));
        let mut at = 10_000;
        flow.run_to(at);
        flow.mark();
        for (after, ms, all) in wrong {
            at += after;
            flow.run_to(at);
            let by = Duration::from_millis(ms);
            flow.report_early(if all { Early::All(by) } else { Early::Newest(by) });
        }
        flow.run_to(at + 5_000);
        prop_assert!(flow.least >= Rate::kbps(7_600), "{:?}", flow.least);
    }

    /// A QUIC stack leaves numbers out, so that a peer cannot acknowledge packets that it has not received.
    #[test]
    fn numbers_that_are_left_out_are_no_packets(skips in 1..50_u64) {
        let mut flow = Flow::new(Rate::kbps(20_000), Rate::ZERO, Rate::kbps(8_000));
        flow.skips = skips;
        flow.run_to(5_000);
        flow.mark();
        flow.run_to(10_000);
        prop_assert!(flow.least >= Rate::kbps(7_600), "{:?}", flow.least);
    }

    /// The target is at least the floor, unless a queue of 0.3 s shows that the path carries less.
    #[test]
    fn the_target_is_at_least_the_floor(
        floor in 300..7_000_u64,
        early in proptest::collection::vec((25..500_u64, 0..100_u64), 0..20),
    ) {
        let floor = Rate::kbps(floor);
        let mut flow = Flow::new(Rate::kbps(8_000), floor, Rate::kbps(20_000));
        prop_assert!(flow.target() >= floor);
        let mut at = 0;
        for (after, ms) in early {
            at += after;
            flow.run_to(at);
            flow.report_early(Early::All(Duration::from_millis(ms)));
        }
        flow.run_to(at + 3_000);
        prop_assert!(flow.least >= floor, "{:?} < {floor:?}", flow.least);
    }
}

/// A queue that a floor above the capacity has filled drains, and the target returns to the floor when
/// the path carries it again. In flight at the fall are 24 s of the capacity.
#[test]
fn a_path_below_the_floor_drains() {
    let mut flow = Flow::new(Rate::kbps(2_000), Rate::kbps(150), Rate::kbps(1_500));
    flow.run_to(10_000);
    flow.capacity = Rate::kbps(32);
    flow.run_to(75_000);
    for second in 76..100 {
        flow.run_to(second * 1_000);
        assert!(flow.queue() < Duration::from_secs(1), "{:?}", flow.queue());
    }
    flow.capacity = Rate::kbps(2_000);
    flow.run_to(105_000);
    flow.mark();
    flow.run_to(110_000);
    assert!(flow.least >= Rate::kbps(150), "{:?}", flow.least);
}

/// A camera that stalls: the rate of before is back after a round trip.
#[test]
fn a_pause_of_the_application_is_no_slower_path() {
    let mut flow = Flow::new(Rate::kbps(10_000), Rate::ZERO, Rate::kbps(8_000));
    flow.run_to(10_000);
    let before = flow.target();
    flow.is_active = false;
    flow.run_to(13_500);
    flow.is_active = true;
    flow.next_packet = flow.now;
    flow.mark();
    flow.run_to(20_000);
    assert!(
        flow.least.as_f64() >= 0.9 * before.as_f64(),
        "{:?}",
        flow.least
    );
}

const SIZE: Bytes = Bytes(1_200);
const ONE_WAY: Duration = Duration::from_millis(20);
/// The receiver's clock at the start.
const EPOCH: Duration = Duration::from_secs(1_000);
const REPORTS: Duration = Duration::from_millis(25);
