//! A running stream between two endpoints, and an observer who sees the packets of both directions
//! and injects others. Time is simulated, so a run of 30 s takes less than one.

use core::time::Duration;
use std::collections::VecDeque;

use rand_pcg::Pcg64Mcg;

use super::{EPOCH, MAX_WAKES, MEDIA, PEER, REPAIR, Story, cx, name};
use observer::{Observer, Phase};
use tidegate_core::control::Ecn;
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::rap::RapConfig;
use tidegate_core::controller::rcs::RcsConfig;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::controller::tide::TideConfig;
use tidegate_core::endpoint::{Datagram, Endpoint, Input};
use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};
use tidegate_core::random::Seed;
use tidegate_core::session::config::{ReceiverConfig, SenderConfig, Streams};
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::session::setup::RateSetup;
use tidegate_core::session::stream::{Direct, Streamer};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_secure::{SecureEndpoint, SharedSecret};

mod observer;

/// Attacks a running stream as the data says. Asserts that the stream goes on, and that 90 % of its rate
/// is back 3 s after the last hostile packet or, with a controller that is slow on a long path,
/// after a second more than the stream took at its start. An attack does not affect a stream with a key.
pub fn live(data: &[u8]) {
    let result = attack(data);
    assert!(!result.has_ended, "the stream has ended: {result:?}");
    assert!(
        result.recovery.is_some(),
        "the rate is not back: {result:?}"
    );
    if result.has_key {
        let least = result.before.scale(95, 100);
        assert!(result.during >= least, "an attack on a key: {result:?}");
    }
}

/// What an attack did to a stream. Rates are those of decodable frames.
#[derive(Clone, Debug)]
pub struct Attacked {
    /// Name of the controller.
    pub control: String,
    /// Whether the packets are protected.
    pub has_key: bool,
    /// Duration of the attack.
    pub lasted: Duration,
    /// Number of hostile packets.
    pub packets: u64,
    /// Rate before and during the attack.
    pub before: Rate,
    /// See [`before`](Self::before).
    pub during: Rate,
    /// End of the first half second at 90 % of the rate before, from the start of the stream on.
    pub start: Duration,
    /// The same from the end of the attack on; `None` if it takes too long.
    pub recovery: Option<Duration>,
    /// Whether one end has ended the stream.
    pub has_ended: bool,
}

/// Runs an attack: three bytes select the controller, the path, the protection and the duration; the
/// others are phases of the observer.
pub fn attack(data: &[u8]) -> Attacked {
    let mut story = Story::new(data);
    let choice = story.byte();
    let has_key = choice & 4 == 4;
    let lasted = Duration::from_millis(4_000 + 63 * u64::from(story.byte()));
    let mut session = Session::new(choice, u64::from(story.byte()));
    let rates: Vec<_> = (0..WARM_UP).map(|_| session.slice()).collect();
    let before = session.rate(SLICE * 4);
    let least = before.scale(9, 10);
    let slices = rates.iter().take_while(|rate| **rate < least).count();
    let start = SLICE * (slices as u32 + 1);
    let end = session.now + lasted;
    while session.now < end {
        let phase = Phase::new(&mut story);
        let span = phase.span.min(end.since(session.now));
        session.run(span, Some(&phase));
    }
    let during = session.rate(lasted);
    let limit = RECOVERY.max(start + SLICE * 2);
    let slices = (1..).map(|n| SLICE * n).take_while(|at| *at <= limit);
    let recovery = slices.into_iter().find(|_| session.slice() >= least);
    let sender = session.sender.inner().sender();
    Attacked {
        control: session.control.name().to_owned(),
        has_key,
        lasted,
        packets: session.observer.injected,
        before,
        during,
        start,
        recovery,
        has_ended: sender.is_done()
            || session.receiver.inner().has_ended()
            || session.sender.has_failed(),
    }
}

/// Both ends and the path between them: 4 Mb/s, with a queue of 150 ms to the receiver.
struct Session {
    control: ControllerConfig,
    sender: SecureEndpoint<Streamer<Direct<Camera>>>,
    receiver: SecureEndpoint<MediaReceiver>,
    observer: Observer,
    rng: Pcg64Mcg,
    now: Time,
    /// Packets on the way to the receiver, and to the sender, with their arrival times.
    path: [VecDeque<(Time, Vec<u8>)>; 2],
    /// Time until which the bottleneck is busy.
    busy: Time,
    delay: Duration,
    /// Next timeouts of the sender and of the receiver.
    timers: [Option<Time>; 2],
    /// Arrivals of decodable frames, and their sizes.
    frames: VecDeque<(Time, usize)>,
}

impl Session {
    fn new(choice: u8, seed: u64) -> Self {
        let control = match choice & 3 {
            0 => ControllerConfig::from(TideConfig::default()),
            1 => ControllerConfig::from(TfrcConfig::default()),
            2 => ControllerConfig::from(RapConfig::default()),
            _ => ControllerConfig::from(RcsConfig::default()),
        };
        let mut rng = Seed(seed).stream("live");
        let mut config = SenderConfig::new(Streams::with_ssrcs(MEDIA, REPAIR), name());
        config.epoch = EPOCH;
        config.rates = (Rate::kbps(150), Rate::kbps(2_500));
        config.delay_bound = Some(BOUND);
        let sender = RateSetup::new(&control, Time::ZERO).sender(config, &mut rng);
        let streamer = Streamer::new(sender, Direct::new(Camera));
        let mut config = ReceiverConfig::new(PEER, name(), BOUND);
        config.epoch = EPOCH;
        let ear = MediaReceiver::new(config);
        let (sender, receiver) = if choice & 4 == 4 {
            let secret = SharedSecret::new([7; 32]);
            let receiver = SecureEndpoint::responder(ear, secret.clone(), [2; 32]);
            (
                SecureEndpoint::initiator(streamer, secret, [1; 32], Duration::ZERO),
                receiver,
            )
        } else {
            (SecureEndpoint::plain(streamer), SecureEndpoint::plain(ear))
        };
        Self {
            control,
            sender,
            receiver,
            observer: Observer::new(Seed(seed).stream("observer")),
            rng,
            now: Time::ZERO,
            path: Default::default(),
            busy: Time::ZERO,
            delay: DELAYS[usize::from(choice >> 3) % DELAYS.len()],
            timers: [Some(Time::ZERO); 2],
            frames: VecDeque::new(),
        }
    }

    /// Passes `span`, with hostile packets in a phase of the observer.
    fn run(&mut self, span: Duration, phase: Option<&Phase>) {
        let end = self.now + span;
        let mut hostile = phase.map(|_| self.now);
        let mut wakes = 0;
        loop {
            let arrivals = self.path.each_ref().map(|path| path.front().map(|p| p.0));
            let own = self.timers.into_iter().chain(arrivals).flatten();
            let next = own.chain(hostile).min().unwrap_or(end);
            if next >= end {
                break;
            }
            wakes = if next > self.now { 0 } else { wakes + 1 };
            assert!(wakes < MAX_WAKES * 64, "endless wake-ups");
            self.now = self.now.max(next);
            self.deliver();
            if let Some(phase) = phase.filter(|_| hostile <= Some(self.now)) {
                hostile = Some(self.now + phase.gap);
                if let Some((is_to_sender, packet)) = self.observer.forge(self.now, phase) {
                    self.arrive(usize::from(is_to_sender), &packet);
                }
            }
            for end in [0, 1] {
                if self.timers[end].is_some_and(|at| at <= self.now) {
                    self.input(end, Input::Timeout);
                }
            }
        }
        self.now = end;
    }

    /// Delivers the packets that arrive now.
    fn deliver(&mut self) {
        for way in [0, 1] {
            let due = |packet: &(Time, Vec<u8>)| packet.0 <= self.now;
            if self.path[way].front().is_some_and(due)
                && let Some((_, packet)) = self.path[way].pop_front()
            {
                self.observer.see(way == 1, &packet);
                self.arrive(way, &packet);
            }
        }
    }

    /// A packet arrives at the receiver (way 0) or the sender (way 1).
    fn arrive(&mut self, way: usize, payload: &[u8]) {
        let datagram = Datagram {
            ecn: Ecn::NotEct,
            dscp: 0,
            payload,
        };
        self.input(1 - way, Input::Datagram(datagram));
    }

    /// Passes an input to the sender (end 0) or the receiver, and takes the output.
    fn input(&mut self, end: usize, input: Input<'_>) {
        let (sender, receiver) = (&mut self.sender, &mut self.receiver);
        let endpoint: &mut dyn Endpoint = [sender as &mut dyn Endpoint, receiver][end];
        let mut cx = cx(self.now, &mut self.rng);
        endpoint.handle(&mut cx, input);
        let mut buffer = Vec::new();
        for count in 0.. {
            assert!(count < MAX_PACKETS, "endless packets");
            let output = endpoint.poll(&mut cx, &mut buffer);
            if output.transmit().is_none() {
                self.timers[end] = output.timer().map(|(at, _)| at);
                break;
            }
            let at = if end == 1 {
                self.now + self.delay
            } else {
                let start = self.busy.max(self.now);
                if start.since(self.now) > QUEUE {
                    buffer.clear();
                    continue;
                }
                self.busy = start + Bytes(buffer.len() as u64 + 28) / CAPACITY;
                self.busy + self.delay
            };
            self.path[end].push_back((at, core::mem::take(&mut buffer)));
        }
        if end == 1 {
            let fetched = core::iter::from_fn(|| self.receiver.inner_mut().poll_frame());
            let whole = fetched.filter(|frame| frame.complete.is_some());
            let now = self.now;
            self.frames.extend(whole.map(|f| (now, f.data.len())));
        }
    }

    /// Passes [`SLICE`] without an attack. Returns the rate in it.
    fn slice(&mut self) -> Rate {
        self.run(SLICE, None);
        self.rate(SLICE)
    }

    /// Rate of the decodable frames of the last `span`.
    fn rate(&self, span: Duration) -> Rate {
        let from = self.now.before(span);
        let recent = self.frames.iter().rev().take_while(|(at, _)| *at >= from);
        let bytes: usize = recent.map(|(_, size)| size).sum();
        Bytes(bytes as u64) / span
    }
}

/// An encoder whose frames have the ordered size.
#[derive(Debug)]
struct Camera;

impl FrameEncoder for Camera {
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        let size = (order.rate * self.frame_rate().interval()).get() as usize;
        let mut data = Vec::with_capacity(size.max(64));
        if order.key {
            data.extend_from_slice(&[0, 0, 0, 1, 0x67, 0x42, 0, 0, 0, 1, 0x68, 0xce]);
        }
        data.extend_from_slice(&[0, 0, 0, 1, if order.key { 0x65 } else { 0x61 }, 0x88]);
        data.resize(size.max(64), 0xff);
        Ok(Encoded {
            frame: order.frame,
            captured: order.captured,
            key: order.key,
            leading: false,
            data,
            quality: None,
        })
    }

    fn frame_rate(&self) -> FrameRate {
        FrameRate::fps(30)
    }
}

const BOUND: Duration = Duration::from_millis(400);
const CAPACITY: Rate = Rate::kbps(4_000);
const QUEUE: Duration = Duration::from_millis(150);
/// One-way delays of the paths.
const DELAYS: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(1),
    Duration::from_millis(50),
    Duration::from_millis(5),
];
/// Slices in which each controller reaches the ceiling of the encoder.
const WARM_UP: u32 = 20;
const SLICE: Duration = Duration::from_millis(500);
/// Time after the last hostile packet in which the rate is back.
const RECOVERY: Duration = Duration::from_secs(3);
/// Packets of one end at one time.
const MAX_PACKETS: u32 = 4_096;
