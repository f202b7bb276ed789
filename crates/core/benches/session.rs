//! Cost of a session per packet on both sides: packetise a frame, receive it, write the feedback
//! and read it. Rounds run in virtual time; only the step named by the benchmark is timed.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark reads the clock"
)]

use core::hint::black_box;
use core::time::Duration;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{Context, Ecn};
use tidegate_core::controller::fixed::Fixed;
use tidegate_core::delay_bound::PlannerConfig;
use tidegate_core::endpoint::{Datagram, Endpoint as _, Input, OVERHEAD};
use tidegate_core::media::{Encoded, FrameRate};
use tidegate_core::random::Seed;
use tidegate_core::session::config::{ReceiverConfig, SenderConfig, Streams};
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::session::sender::MediaSender;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_core::wire::ntp::Ntp;
use tidegate_core::wire::rtcp::Cname;

fn session(c: &mut Criterion) {
    let mut group = c.benchmark_group("session");
    for (name, bound) in [("", None), (", delay promise", Some(BOUND))] {
        for step in STEPS {
            let mut rounds = BatchWakeup::new(bound);
            (0..WARM_UP).for_each(|_| {
                rounds.round(step);
            });
            group.throughput(Throughput::Elements(PACKETS as u64));
            group.bench_function(format!("{step:?}{name}"), |b| {
                b.iter_custom(|n| (0..n).map(|_| rounds.round(step)).sum());
            });
        }
    }
    group.finish();
}

/// Timed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Frame request, access unit, packets.
    SendFrame,
    /// Packets of a frame, up to its delivery.
    ReceivePackets,
    /// Feedback on the packets.
    WriteFeedback,
    /// Processing of the feedback by the sender and its controller.
    ReadFeedback,
}

/// A sender and a receiver 20 ms apart, with one frame per 100 ms.
struct BatchWakeup {
    sender: MediaSender,
    receiver: MediaReceiver,
    rng: Pcg64Mcg,
    now: Time,
    unit: Vec<u8>,
    packets: Vec<Vec<u8>>,
}

impl BatchWakeup {
    fn new(bound: Option<Duration>) -> Self {
        let mut rng = Seed(1).stream("session");
        let name = |s| Cname::new(s).expect("valid CNAME");
        let mut config = SenderConfig::new(Streams::with_ssrcs(1, 2), name("sender@bench"));
        config.epoch = Ntp::from_unix(Duration::from_secs(1_700_000_000));
        config.frame_rate = FrameRate::fps(10);
        config.delay_bound = bound;
        config.rates = (Rate::kbps(150), FAST);
        let planner = PlannerConfig::new(config.rates.0, config.rates.1);
        let fixed = Fixed::new(FAST).into();
        let mut rounds = Self {
            sender: MediaSender::new(config, fixed, Some(planner), &mut rng),
            receiver: MediaReceiver::new(ReceiverConfig::new(3, name("receiver@bench"), BOUND)),
            rng,
            now: Time::from_secs(1),
            unit: unit(),
            packets: vec![Vec::new(); PACKETS + 8],
        };
        // First exchange of reports, after which the sender leaves its initial state.
        rounds.sender_wakes();
        rounds.now += HOP;
        let greeting = rounds.packets[0].clone();
        rounds.deliver(&greeting);
        let answer = rounds.write();
        rounds.now += HOP;
        rounds.read(&answer);
        rounds
    }

    /// Sends one frame and its feedback. Returns the duration of step `timed`.
    fn round(&mut self, timed: Step) -> Duration {
        let clock = |step, start: Instant| {
            if step == timed {
                start.elapsed()
            } else {
                Duration::ZERO
            }
        };
        self.now = Time::ZERO + FRAME * (self.now.since(Time::ZERO).as_millis() as u32 / 100 + 1);
        let (unit, start) = (self.unit.clone(), Instant::now());
        let sent = self.send(unit);
        let mut took = clock(Step::SendFrame, start);
        assert!(sent >= PACKETS, "{sent}");
        self.now += HOP;
        let start = Instant::now();
        for i in 0..sent {
            let packet = core::mem::take(&mut self.packets[i]);
            self.deliver(&packet);
            self.packets[i] = packet;
        }
        let frame = self.receiver.poll_frame();
        took += clock(Step::ReceivePackets, start);
        assert!(frame.is_some_and(|f| f.complete.is_some()));
        self.now += Duration::from_millis(25);
        let start = Instant::now();
        let feedback = self.write();
        took += clock(Step::WriteFeedback, start);
        assert!(!feedback.is_empty());
        self.now += HOP;
        let start = Instant::now();
        self.read(&feedback);
        took + clock(Step::ReadFeedback, start)
    }

    fn send(&mut self, unit: Vec<u8>) -> usize {
        let mut cx = cx(self.now, &mut self.rng);
        self.sender.handle(&mut cx, Input::Timeout);
        if let Some(order) = self.sender.poll_order(&mut cx) {
            let encoded = Encoded {
                frame: order.frame,
                captured: order.captured,
                key: order.key,
                leading: false,
                data: unit,
                quality: None,
            };
            self.sender.on_encoded(self.now, Ok(encoded));
        }
        self.drain_sender()
    }

    fn sender_wakes(&mut self) {
        self.sender
            .handle(&mut cx(self.now, &mut self.rng), Input::Timeout);
        self.drain_sender();
    }

    fn drain_sender(&mut self) -> usize {
        let mut cx = cx(self.now, &mut self.rng);
        for (i, buffer) in self.packets.iter_mut().enumerate() {
            buffer.clear();
            if self.sender.poll(&mut cx, buffer).transmit().is_none() {
                return i;
            }
        }
        panic!("too many packets for a frame");
    }

    fn deliver(&mut self, packet: &[u8]) {
        let mut cx = cx(self.now, &mut self.rng);
        self.receiver
            .handle(&mut cx, Input::Datagram(datagram(packet)));
    }

    fn write(&mut self) -> Vec<u8> {
        let mut cx = cx(self.now, &mut self.rng);
        let mut out = Vec::with_capacity(1_500);
        self.receiver.handle(&mut cx, Input::Timeout);
        self.receiver.poll(&mut cx, &mut out).transmit();
        out
    }

    fn read(&mut self, feedback: &[u8]) {
        let mut cx = cx(self.now, &mut self.rng);
        self.sender
            .handle(&mut cx, Input::Datagram(datagram(feedback)));
        black_box(self.sender.poll(&mut cx, &mut Vec::new()));
    }
}

fn cx(now: Time, rng: &mut Pcg64Mcg) -> Context<'_> {
    // A unit value has no state, so leaking it costs nothing.
    Context {
        now,
        rng,
        trace: Box::leak(Box::new(())),
    }
}

fn datagram(payload: &[u8]) -> Datagram<'_> {
    Datagram {
        ecn: Ecn::NotEct,
        dscp: 0,
        payload: black_box(payload),
    }
}

/// Access unit that fills [`PACKETS`] packets: parameter sets and a slice without zero bytes.
fn unit() -> Vec<u8> {
    let mut unit = vec![0, 0, 0, 1, 0x67, 0x42, 0xc0, 0x1f, 0, 0, 0, 1, 0x68, 0xce];
    unit.extend_from_slice(&[0, 0, 0, 1, 0x65, 0x88]);
    let room = (SIZE - OVERHEAD).get() as usize - 20;
    unit.resize(unit.len() + (PACKETS - 1) * room, 0x5a);
    unit
}

const STEPS: [Step; 4] = [
    Step::SendFrame,
    Step::ReceivePackets,
    Step::WriteFeedback,
    Step::ReadFeedback,
];
/// Packets per frame: 40 kB, a frame at 10 Mb/s and 30 frames per second.
const PACKETS: usize = 34;
const SIZE: Bytes = Bytes(1_200);
/// Rate above any limit of the benchmark.
const FAST: Rate = Rate::kbps(100_000_000);
const BOUND: Duration = Duration::from_millis(400);
const FRAME: Duration = Duration::from_millis(100);
const HOP: Duration = Duration::from_millis(20);
/// Rounds until all queues have their usual size.
const WARM_UP: u32 = 200;

criterion_group!(benches, session);
criterion_main!(benches);
