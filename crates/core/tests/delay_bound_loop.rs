//! The planner in a closed loop: frames, a pacer, a bottleneck, reports every 50 ms.

use std::collections::VecDeque;
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{
    Change, Context, Demand, Ecn, FlowId, Kind, Outcome, PacketOutcome, RateControl,
    RateController, Report, Sent, Start, Summary, Target,
};
use tidegate_core::delay_bound::PlannerConfig;
use tidegate_core::path::Path;
use tidegate_core::random::{Seed, unit};
use tidegate_core::units::{Bytes, Rate, RemoteTime, Time};

/// A controller with a constant rate: only the delay bound limits the media rate.
#[derive(Debug)]
struct Open(Rate);

impl RateController for Open {
    fn on_report(&mut self, _: &mut Context<'_>, _: &Report<'_>, _: &mut Path) {}
    fn on_change(&mut self, _: &mut Context<'_>, _: &Change, _: &mut Path) {}
    fn target(&self) -> Target {
        Target::of(self.0)
    }
    fn summary(&self, _: &Path) -> Summary {
        Summary::new(self.0)
    }
}

struct World {
    /// Rate of the bottleneck in b/s at a time in ms.
    rate: fn(u64) -> u64,
    /// One-way delay of the forward path in µs at a time in ms.
    way: fn(u64) -> u64,
    /// Maximum of the uniform jitter of arrivals, in µs.
    jitter: u64,
    /// Drift of the receiver's clock in ppm.
    drift: u64,
    /// Time in ms at which the receiver's clock is set ahead by 80 ms.
    clock_set_at: u64,
    send: Rate,
    ceiling: Rate,
    bound: Duration,
    seconds: u64,
    headroom: f64,
}

impl World {
    fn new(rate: fn(u64) -> u64) -> Self {
        Self {
            rate,
            way: |_| 25_000,
            jitter: 0,
            drift: 0,
            clock_set_at: u64::MAX,
            send: Rate::kbps(8_000),
            ceiling: Rate::kbps(6_000),
            bound: Duration::from_millis(300),
            seconds: 30,
            headroom: 0.25,
        }
    }

    /// Time of the receiver's clock at a simulation time in µs.
    fn clock(&self, at: u64) -> RemoteTime {
        let set = if at / 1_000 >= self.clock_set_at {
            80_000_000
        } else {
            0
        };
        RemoteTime(at * 1_000 + at * self.drift / 1_000 + set + 7_000_000_000_000)
    }
}

struct Outcomes {
    /// Per frame: time (ms), media rate (b/s), delay (ms; infinite if the frame was skipped).
    frames: Vec<(u64, f64, f64)>,
    bound: f64,
}

impl Outcomes {
    fn late(&self) -> usize {
        let late = |f: &&(u64, f64, f64)| f.2.is_finite() && f.2 > self.bound;
        self.frames.iter().filter(late).count()
    }

    fn skipped(&self) -> usize {
        self.frames.iter().filter(|f| f.2.is_infinite()).count()
    }

    fn rates(&self, from: u64, to: u64) -> Vec<f64> {
        let inside = |f: &&(u64, f64, f64)| (from..to).contains(&f.0);
        self.frames.iter().filter(inside).map(|f| f.1).collect()
    }

    fn mean(&self, from: u64, to: u64) -> f64 {
        let rates = self.rates(from, to);
        rates.iter().sum::<f64>() / rates.len() as f64
    }

    fn lowest(&self, from: u64, to: u64) -> f64 {
        self.rates(from, to)
            .into_iter()
            .fold(f64::INFINITY, f64::min)
    }

    fn worst(&self, from: u64, to: u64) -> f64 {
        let inside = |f: &&(u64, f64, f64)| (from..to).contains(&f.0) && f.2.is_finite();
        self.frames
            .iter()
            .filter(inside)
            .map(|f| f.2)
            .fold(0.0, f64::max)
    }
}

/// A packet in flight.
#[derive(Clone, Copy)]
struct Moving {
    frame: usize,
    seq: u64,
    size: u64,
    /// Sending time in ms.
    sent: u64,
}

/// One run in steps of 1 ms.
struct Run<'a> {
    world: &'a World,
    control: RateControl,
    jitter: Pcg64Mcg,
    out: Outcomes,
    /// Packets in the sender.
    waiting: VecDeque<Moving>,
    /// Packets in the bottleneck, whose buffer is unlimited.
    queue: VecDeque<Moving>,
    /// Bytes that the pacer may send.
    tokens: f64,
    /// Bytes that the bottleneck may serve.
    served: f64,
    /// Arrivals and their times in µs.
    arrived: VecDeque<(u64, PacketOutcome)>,
    /// Reports and the times in ms at which they reach the sender.
    reports: VecDeque<(u64, Vec<PacketOutcome>)>,
    seq: u64,
}

impl Run<'_> {
    fn step(&mut self, now: u64, cx: &mut Context<'_>) {
        if now * 30 >= self.out.frames.len() as u64 * 1_000 {
            self.make_frame(now, cx);
        }
        self.pace(now, cx);
        self.serve(now);
        if now.is_multiple_of(50) {
            let came = self
                .arrived
                .iter()
                .take_while(|(at, _)| *at <= now * 1_000)
                .count();
            let outcomes = self.arrived.drain(..came).map(|(_, fate)| fate).collect();
            self.reports.push_back((now + 25, outcomes));
        }
        while self.reports.front().is_some_and(|r| r.0 <= now) {
            let Some((_, outcomes)) = self.reports.pop_front() else {
                break;
            };
            self.pass_backlog();
            let rtt = Duration::from_micros((self.world.way)(now) + 25_000)
                + self.control.queueing_delay();
            self.control.on_report(cx, &Report::new(&outcomes).rtt(rtt));
        }
    }

    fn pass_backlog(&mut self) {
        let backlog = Bytes(self.waiting.iter().map(|p| p.size).sum());
        if let Some(bound) = self.control.bound_mut() {
            bound.set_backlog(backlog);
        }
    }

    /// Queues a frame of the planned size, unless the plan skips it.
    fn make_frame(&mut self, now: u64, cx: &mut Context<'_>) {
        self.pass_backlog();
        let plan = self.control.replan(cx).expect("a delay bound");
        let skip = plan.skip().is_some_and(|s| s.skip.contains(0));
        let media = self.control.target().media;
        let frame = self.out.frames.len();
        self.out
            .frames
            .push((now, media.as_f64(), if skip { f64::INFINITY } else { 0.0 }));
        let mut left = if skip { 0 } else { media.as_bps() / 30 / 8 };
        while left > 0 {
            let payload = left.min(1_160);
            left -= payload;
            self.waiting.push_back(Moving {
                frame,
                seq: 0,
                size: payload + 40,
                sent: 0,
            });
        }
    }

    fn pace(&mut self, now: u64, cx: &mut Context<'_>) {
        let grain = self.world.send.as_f64() / 8e3;
        self.tokens = (self.tokens + grain).min(grain + 1_500.0);
        while self
            .waiting
            .front()
            .is_some_and(|p| p.size as f64 <= self.tokens)
        {
            let Some(p) = self.waiting.pop_front() else {
                break;
            };
            self.tokens -= p.size as f64;
            let p = Moving {
                seq: self.seq,
                sent: now,
                ..p
            };
            self.seq += 1;
            let sent = Sent {
                flow: FlowId(0),
                seq: p.seq,
                size: Bytes(p.size),
                kind: Kind::Media,
                app_limited: self.waiting.is_empty(),
            };
            self.control.on_sent(cx, &sent);
            self.queue.push_back(p);
        }
    }

    fn serve(&mut self, now: u64) {
        let grain = (self.world.rate)(now) as f64 / 8e3;
        self.served = if self.queue.is_empty() {
            0.0
        } else {
            self.served + grain
        };
        while self
            .queue
            .front()
            .is_some_and(|p| p.size as f64 <= self.served)
        {
            let Some(p) = self.queue.pop_front() else {
                break;
            };
            self.served -= p.size as f64;
            let wobble = (unit(&mut self.jitter) * self.world.jitter as f64) as u64;
            let last = self.arrived.back().map_or(0, |(at, _)| *at);
            let at = (now * 1_000 + (self.world.way)(now) + wobble).max(last);
            let frame = &mut self.out.frames[p.frame];
            frame.2 = frame.2.max(at as f64 / 1e3 - frame.0 as f64);
            let fate = PacketOutcome {
                flow: FlowId(0),
                seq: p.seq,
                size: Bytes(p.size),
                sent: Time::from_millis(p.sent),
                outcome: Outcome::Received {
                    at: self.world.clock(at),
                    ecn: Ecn::NotEct,
                },
            };
            self.arrived.push_back((at, fate));
        }
    }
}

fn run(world: &World) -> Outcomes {
    let budget = world
        .bound
        .saturating_sub(Duration::from_micros((world.way)(0)));
    let config = PlannerConfig {
        headroom: world.headroom,
        ..PlannerConfig::new(FLOOR, world.ceiling)
    };
    let demand = Demand {
        floor: FLOOR,
        ceiling: world.ceiling,
        shares: 1,
    };
    let start = Start::new(Time::ZERO, config.packet_size, demand);
    let mut run = Run {
        world,
        control: RateControl::new(Open(world.send), &start).with_bound(config, budget),
        jitter: Seed(1).stream("jitter"),
        out: Outcomes {
            frames: Vec::new(),
            bound: world.bound.as_secs_f64() * 1e3,
        },
        waiting: VecDeque::new(),
        queue: VecDeque::new(),
        tokens: 0.0,
        served: 0.0,
        arrived: VecDeque::new(),
        reports: VecDeque::new(),
        seq: 0,
    };
    let mut rng = Seed(1).stream("promise");
    for now in 0..world.seconds * 1_000 {
        let time = Time::from_millis(now);
        run.step(
            now,
            &mut Context {
                now: time,
                rng: &mut rng,
                trace: &mut (),
            },
        );
    }
    run.out
}

const FLOOR: Rate = Rate::kbps(150);

#[test]
fn constant_capacity_is_used_without_delay_or_oscillation() {
    // 4 Mb/s in packets with a thirtieth of headers: at most 3.87 Mb/s of payload.
    let cases = [(0.0, 3.5..3.87), (0.25, 2.6..2.9)];
    for (headroom, expected) in cases {
        let out = run(&World {
            headroom,
            ..World::new(|_| 4_000_000)
        });
        assert_eq!((out.late(), out.skipped()), (0, 0));
        let mean = out.mean(3_000, 30_000) / 1e6;
        assert!(expected.contains(&mean), "{headroom}: {mean} Mb/s");
        // Probing for more capacity costs less than a quarter of the rate at any time, and causes
        // only a short queue.
        let low = out.lowest(3_000, 30_000) / 1e6;
        assert!(low > 0.75 * mean, "{headroom}: {low} of {mean} Mb/s");
        assert!(
            out.worst(3_000, 30_000) < 120.0,
            "{}",
            out.worst(3_000, 30_000)
        );
    }
}

#[test]
fn no_frame_is_late_at_a_drop_within_the_headroom() {
    let quarter = |t| if t < 10_000 { 4_000_000 } else { 1_000_000 };
    let out = run(&World::new(quarter));
    assert_eq!(
        (out.late(), out.skipped()),
        (0, 0),
        "worst {}",
        out.worst(10_000, 30_000)
    );
    let mean = out.mean(13_000, 30_000) / 1e6;
    assert!((0.6..0.92).contains(&mean), "{mean} Mb/s");
    // Without headroom the frames of the reaction time are late.
    let bare = run(&World {
        headroom: 0.0,
        ..World::new(quarter)
    });
    assert!((1..=4).contains(&bare.late()), "{}", bare.late());
    // A budget well above three reaction times needs no headroom.
    let bound = Duration::from_millis(450);
    let patient = run(&World {
        headroom: 0.0,
        bound,
        ..World::new(quarter)
    });
    assert_eq!((patient.late(), patient.skipped()), (0, 0));
}

#[test]
fn recovery_is_fast_after_a_drop_beyond_the_headroom() {
    let out = run(&World::new(
        |t| if t < 10_000 { 4_000_000 } else { 400_000 },
    ));
    assert!(out.late() <= 8, "{}", out.late());
    // The queue of the reaction time alone is 4 Mb/s × 0.1 s, a second at 400 kb/s.
    assert!(out.skipped() <= 45, "{}", out.skipped());
    assert!(
        out.worst(13_000, 30_000) < 150.0,
        "{}",
        out.worst(13_000, 30_000)
    );
    assert!(out.mean(13_000, 30_000) > 0.2e6);
}

#[test]
fn capacity_increase_is_detected() {
    let out = run(&World::new(
        |t| if t < 10_000 { 1_000_000 } else { 4_000_000 },
    ));
    assert!(out.mean(10_000, 11_000) < 1e6);
    assert!(
        out.mean(16_000, 30_000) > 2.5e6,
        "{}",
        out.mean(16_000, 30_000)
    );
    assert!(out.worst(10_000, 30_000) < 150.0);
}

#[test]
fn a_short_outage_fits_into_the_bound() {
    let out = run(&World::new(|t| {
        if (10_000..10_200).contains(&t) {
            0
        } else {
            4_000_000
        }
    }));
    assert_eq!((out.late(), out.skipped()), (0, 0));
    assert!(
        out.mean(11_000, 20_000) > 2.5e6,
        "{}",
        out.mean(11_000, 20_000)
    );
}

#[test]
fn jitter_does_not_count_as_queue() {
    let free = World {
        jitter: 8_000,
        ceiling: Rate::kbps(2_000),
        ..World::new(|_| 4_000_000)
    };
    let out = run(&free);
    assert_eq!((out.late(), out.skipped()), (0, 0));
    assert!(
        out.mean(3_000, 30_000) > 1.9e6,
        "{}",
        out.mean(3_000, 30_000)
    );
    let full = run(&World {
        jitter: 8_000,
        ..World::new(|_| 4_000_000)
    });
    assert_eq!((full.late(), full.skipped()), (0, 0));
    assert!(
        full.mean(3_000, 30_000) > 2.4e6,
        "{}",
        full.mean(3_000, 30_000)
    );
}

#[test]
fn clock_steps_and_route_changes_are_tolerated() {
    let drift = run(&World {
        drift: 100,
        ..World::new(|_| 4_000_000)
    });
    let clock = run(&World {
        clock_set_at: 10_000,
        ..World::new(|_| 4_000_000)
    });
    let longer = |t| if t < 10_000 { 25_000 } else { 75_000 };
    let route = run(&World {
        way: longer,
        ..World::new(|_| 4_000_000)
    });
    for (name, out) in [("drift", drift), ("clock", clock), ("route", route)] {
        assert_eq!((out.late(), out.skipped()), (0, 0), "{name}");
        // The change looks like a queue until it counts as standing delay. Later it is tested every
        // eight seconds.
        assert!(
            out.lowest(10_000, 30_000) > 1.4e6,
            "{name}: {}",
            out.lowest(10_000, 30_000)
        );
        assert!(
            out.mean(17_000, 30_000) > 2.4e6,
            "{name}: {}",
            out.mean(17_000, 30_000)
        );
    }
}

#[test]
fn start_far_above_the_capacity_is_survived() {
    // The queue is five seconds long before the first report. Then the floor is below the capacity.
    let out = run(&World::new(|_| 300_000));
    assert!(out.late() <= 12, "{}", out.late());
    let shown = out
        .frames
        .iter()
        .filter(|f| f.0 > 12_000 && f.2 <= 300.0)
        .count();
    assert_eq!(shown, out.frames.iter().filter(|f| f.0 > 12_000).count());
}
