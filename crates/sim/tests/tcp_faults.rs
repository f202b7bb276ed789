//! TCP models over networks that lose, delay, reorder, repeat and mark packets at random.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use tidegate_core::control::Ecn;
use tidegate_core::random::{Seed, unit};
use tidegate_core::units::Time;
use tidegate_sim::packet_agent::{Ack, Agent, AgentCx, Arrival, Body, Outbox, Outgoing};
use tidegate_sim::tcp::classic::{Config, Flavour, NewReno, Sender};
use tidegate_sim::tcp::{InitialWindow, Sink, SinkConfig, SourceConfig, SourceKind, Stream};

/// Faults of the network until [`FAULTS_END`].
#[derive(Clone, Copy, Debug)]
struct Faults {
    loss: f64,
    ack_loss: f64,
    copies: f64,
    marks: f64,
    /// Packets take 20 ms times a random factor between one and this.
    jitter: f64,
}

impl Faults {
    const NONE: Self = Self {
        loss: 0.0,
        ack_loss: 0.0,
        copies: 0.0,
        marks: 0.0,
        jitter: 1.0,
    };
}

/// Time from which the network works without faults.
const FAULTS_END: Time = Time::from_secs(20);

struct World {
    sender: Sender,
    sink: Sink,
    now: Time,
    faults: Faults,
    luck: Pcg64Mcg,
    rng: Pcg64Mcg,
    out: Outbox,
    flying: BinaryHeap<Reverse<(Time, usize)>>,
    packets: Vec<(bool, Outgoing)>,
    /// Bytes on the wire of segments that were sent for the first time.
    first_bytes: u64,
    data_seen: u64,
}

impl World {
    fn new(sender: Sender, sink: Sink, faults: Faults, seed: u64) -> Self {
        Self {
            sender,
            sink,
            now: Time::ZERO,
            faults,
            luck: Seed(seed).stream("luck"),
            rng: Seed(seed).stream("agents"),
            out: Outbox::default(),
            flying: BinaryHeap::new(),
            packets: Vec::new(),
            first_bytes: 0,
            data_seen: 0,
        }
    }

    fn chance(&mut self, p: f64) -> bool {
        unit(&mut self.luck) < p
    }

    /// Processes the next event; false if there is none up to `end`.
    fn step(&mut self, end: Time) -> bool {
        let packet = self.flying.peek().map_or(Time::FAR, |next| next.0.0);
        let timers = [self.sender.next_timer(), self.sink.next_timer()];
        let at = packet.min(timers[0]).min(timers[1]);
        if at > end || at == Time::FAR {
            return false;
        }
        assert!(at >= self.now, "a timer in the past");
        self.now = at;
        if at == timers[0] {
            self.call(false, |agent, cx| agent.on_timer(cx));
        } else if at == timers[1] {
            self.call(true, |agent, cx| agent.on_timer(cx));
        } else if let Some(Reverse((_, number))) = self.flying.pop() {
            let (to_sink, mut packet) = self.packets[number].clone();
            let arrival = Arrival {
                size: packet.size,
                ecn: packet.ecn,
                dscp: 0,
            };
            self.call(to_sink, |agent, cx| {
                agent.on_packet(cx, &arrival, &mut packet.body);
            });
        }
        true
    }

    fn call(&mut self, sink: bool, what: impl FnOnce(&mut dyn Agent, &mut AgentCx<'_>)) {
        let mut trace = ();
        let mut cx = AgentCx::new(self.now, &mut self.rng, &mut trace, &mut self.out);
        if sink {
            what(&mut self.sink, &mut cx);
        } else {
            what(&mut self.sender, &mut cx);
        }
        self.take_sent(!sink);
    }

    fn write(&mut self, bytes: u64) -> u64 {
        let mut trace = ();
        let mut cx = AgentCx::new(self.now, &mut self.rng, &mut trace, &mut self.out);
        let written = self.sender.write(&mut cx, bytes);
        self.take_sent(true);
        written.accepted
    }

    fn take_sent(&mut self, data: bool) {
        if self.now >= FAULTS_END {
            self.faults = Faults::NONE;
        }
        let sent: Vec<_> = self.out.drain().collect();
        for mut packet in sent {
            if let Body::Segment(segment) = &packet.body {
                self.data_seen += 1;
                if !segment.again {
                    self.first_bytes += u64::from(packet.size);
                }
            }
            if packet.ecn.is_capable() && self.chance(self.faults.marks) {
                packet.ecn = Ecn::Ce;
            }
            let loss = if data {
                self.faults.loss
            } else {
                self.faults.ack_loss
            };
            if !self.chance(loss) {
                self.fly(data, packet.clone());
                if self.chance(self.faults.copies) {
                    self.fly(data, packet);
                }
            }
        }
        self.check();
    }

    fn fly(&mut self, data: bool, packet: Outgoing) {
        let factor = 1.0 + unit(&mut self.luck) * (self.faults.jitter - 1.0);
        let at = self.now + Duration::from_nanos((factor * 20e6) as u64);
        self.packets.push((data, packet));
        self.flying.push(Reverse((at, self.packets.len() - 1)));
    }

    fn check(&self) {
        let state = self.sender.state();
        assert!(state.cwnd.is_finite() && state.cwnd > 0.0);
        let counters = self.sender.counters();
        assert_eq!(counters.sent, self.data_seen);

        assert!(counters.repeated < counters.sent.max(1));
        assert!(self.sink.counters().bytes.get() <= self.first_bytes);
    }
}

fn faults() -> impl Strategy<Value = Faults> {
    let share = || prop_oneof![Just(0.0), 0.0..0.05, 0.0..0.5];
    (
        share(),
        share(),
        share(),
        share(),
        prop_oneof![Just(1.0), 1.0..10.0],
    )
        .prop_map(|(loss, ack_loss, copies, marks, jitter)| Faults {
            loss,
            ack_loss,
            copies,
            marks,
            jitter,
        })
}

fn flavour() -> impl Strategy<Value = Flavour> {
    prop_oneof![
        Just(Flavour::Reno),
        Just(Flavour::NewReno),
        Just(Flavour::Sack)
    ]
}

fn config() -> impl Strategy<Value = Config> {
    let window = prop_oneof![
        Just(InitialWindow::Rfc3390),
        Just(InitialWindow::Rfc6928),
        (1..5_u32).prop_map(InitialWindow::Segments)
    ];
    let switches = any::<(bool, bool, bool, bool, bool, bool, bool, bool)>();
    let newreno = any::<(bool, bool, bool, bool)>();
    let sizes = (1..60_u32, 0..6_u32, prop_oneof![Just(0), 1..50_u64]);
    (flavour(), window, switches, newreno, sizes).prop_map(
        |(flavour, initial_window, on, newreno, (window, max_burst, overhead))| Config {
            flavour,
            initial_window,
            window,
            max_burst,
            overhead: Duration::from_millis(overhead),
            syn: on.0,
            timestamps: on.1,
            limited_transmit: on.2,
            slow_start_restart: on.3,
            bug_fix: on.4,
            control_increase: on.5,
            ecn: on.6,
            slow_start_at_threshold: on.7,
            newreno: NewReno {
                impatient: newreno.0,
                deflate: newreno.1,
                exit_fix: newreno.2,
                changes: newreno.3,
            },
            ..Config::default()
        },
    )
}

fn sink(config: &Config, delayed: bool) -> Sink {
    Sink::new(&SinkConfig {
        sack_blocks: if config.flavour == Flavour::Sack {
            3
        } else {
            0
        },
        delay: delayed.then_some(Duration::from_millis(100)),
        keep_progress: true,
        ..SinkConfig::default()
    })
}

/// A timeout of maximum length, one more for a segment that is lost again in the meantime, and time
/// for the rest at one segment per round trip, each after a delayed acknowledgement.
fn patience(segments: u64) -> Time {
    FAULTS_END + Duration::from_secs(130) + Duration::from_millis(150) * segments as u32
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn a_transfer_ends(config in config(), faults in faults(), seed: u64, delayed: bool, bytes in 1..300_000_u64) {
        let source = SourceConfig {
            kind: SourceKind::Bytes(bytes),
            ..SourceConfig::default()
        };
        let sender = Sender::new(&config, &source);
        let mut world = World::new(sender, sink(&config, delayed), faults, seed);
        let end = patience(bytes.div_ceil(960));
        while world.step(end) {}
        prop_assert!(world.sender.is_done(), "{:?} {:?}", world.sender.state(), world.sender.counters());
        prop_assert_eq!(world.sender.next_timer(), Time::FAR);
        let segments = bytes.div_ceil(960);
        let all = segments + u64::from(config.syn);
        prop_assert_eq!(u64::from(world.sink.next()), all);
        prop_assert_eq!(world.first_bytes, bytes + 40 * all);
        prop_assert_eq!(world.sink.counters().bytes.get(), world.first_bytes);
        let counters = world.sender.counters();
        prop_assert_eq!(counters.sent - counters.repeated, all);
        prop_assert_eq!(world.sender.state().in_flight, 0);
        prop_assert!(world.sink.delivered(all as u32).is_some());
    }

    #[test]
    fn stream_delivers_written_data(
        config in config(),
        faults in faults(),
        seed: u64,
        delayed: bool,
        writes in prop::collection::vec((0..400_u64, 1..8_000_u64), 1..40),
    ) {
        let source = SourceConfig {
            kind: SourceKind::Stream { buffer: 30_000 },
            stop: FAULTS_END,
            ..SourceConfig::default()
        };
        let sender = Sender::new(&config, &source);
        let mut world = World::new(sender, sink(&config, delayed), faults, seed);
        let (mut at, mut written, mut last) = (Time::ZERO, 0, 0);
        for (pause, bytes) in writes {
            at += Duration::from_millis(pause);
            while world.step(at) {}
            world.now = at;
            let free = world.sender.source().stream().map_or(0, Stream::free);
            let accepted = world.write(bytes);
            if at < FAULTS_END {
                prop_assert_eq!(accepted, free.min(bytes));
            }
            written += accepted;
            last = last.max(world.sender.source().end());
        }
        while world.step(patience(written / 960 + 40)) {}
        prop_assert!(world.sender.is_done(), "{:?} {:?}", world.sender.state(), world.sender.counters());
        let stream = world.sender.source().stream().unwrap();
        prop_assert_eq!((stream.written(), stream.acked(), stream.unsent()), (written, written, 0));
        prop_assert_eq!(world.sink.next(), last);
        prop_assert_eq!(world.first_bytes, written + 40 * u64::from(last));
    }

    /// No acknowledgement makes a sender panic or wait without a timer.
    #[test]
    fn forged_acknowledgements_are_harmless(
        config in config(),
        seed: u64,
        acks in prop::collection::vec((0..40_u32, any::<bool>(), prop::array::uniform3((0..60_u32, 0..60_u32))), 1..200),
    ) {
        let sender = Sender::new(&config, &SourceConfig::default());
        let mut world = World::new(sender, sink(&config, false), Faults::NONE, seed);
        for (i, (next, ece, sack)) in acks.into_iter().enumerate() {
            let at = Time::from_millis(10 * i as u64);
            while world.step(at) {}
            world.now = at;
            let ack = Ack {
                next,
                echo: Time::ZERO,
                sack,
                ece,
                again: false,
                marks: 0,
            };
            let arrival = Arrival { size: 40, ecn: Ecn::NotEct, dscp: 0 };
            let mut trace = ();
            let mut cx = AgentCx::new(at, &mut world.rng, &mut trace, &mut world.out);
            world.sender.on_packet(&mut cx, &arrival, &mut Body::Ack(ack));
            world.take_sent(true);
            prop_assert!(world.flying.len() <= 4_000);
        }
        prop_assert!(world.sender.next_timer() < Time::FAR);
    }
}
