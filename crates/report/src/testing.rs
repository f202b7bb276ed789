//! A synthetic run with realistic values: three flows, each alone on a link with capacity steps and
//! an outage.

use core::time::Duration;
use std::path::Path;

use tidegate_core::control::Kind;
use tidegate_core::media::{FrameRate, Quality};
use tidegate_core::random::{Seed, unit};
use tidegate_core::trace::{DropCause, Event, KeyCause};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_record::{
    Bin, BinRow, CapacityStep, Count, EventRow, FlowInfo, FlowPath, FlowRun, FrameKind, LinkInfo,
    LinkSample, Manifest, PacketOutcome, PacketRow, ReceivedFrame, Run, SavableRow, SentFrame,
    ShownFrame, Side, Span, World, summarise,
};

/// Sixty seconds at thirty frames per second.
pub(super) fn run() -> Run {
    let seconds = Time::from_secs;
    let step = |at, kbps| CapacityStep {
        from: seconds(at),
        rate: Some(Rate::kbps(kbps)),
    };
    let link = LinkInfo {
        name: "bottleneck".to_owned(),
        capacity: vec![step(0, 2_000), step(18, 900), step(38, 2_400)],
        queue: "droptail 120 kB".to_owned(),
        delay: Duration::from_millis(25),
        loss: 0.002,
        outages: vec![Span {
            from: Time::from_millis(28_000),
            to: Time::from_millis(29_600),
        }],
    };
    let mut manifest = Manifest::new(World::Sim, "a train <through> a tunnel", LENGTH);
    manifest.seed = Some(7);
    manifest.scenario_text = Some("[link]\nname = \"bottleneck\" # <&>\n".to_owned());
    manifest.links.push(link.clone());
    for (name, control, baseline) in [
        ("tidegate", "tide", false),
        ("tfrc", "tfrc", true),
        ("fixed", "constant 1.5 Mb/s", true),
    ] {
        manifest.flows.push(FlowInfo {
            name: name.to_owned(),
            class: name.to_owned(),
            control: control.to_owned(),
            baseline,
            delay_bound: Some(BOUND),
            floor: Rate::kbps(150),
            frame_rate: Some(FRAMES),
            one_clock: true,
            way: FlowPath::default(),
            active: None,
        });
    }
    let mut run = Run::new(Path::new("fake"), manifest);
    for (i, habit) in [Habit::Tide, Habit::Slow, Habit::Fixed]
        .into_iter()
        .enumerate()
    {
        let mut world = Fake::new(&link, &run.flows[i].info.name, habit);
        world.play(&mut run.flows[i]);
        run.events.append(&mut world.events);
        run.links.extend(world.samples);
    }
    let expect = [
        "tidegate.on_time_of_savable >= 0.99",
        "tidegate.delay_ms.p99 <= 400",
        "link.bottleneck.utilisation >= 0.5",
        "tidegate.psnr_y_db > tfrc.psnr_y_db",
        "tidegate.freezes <= 0",
    ];
    let expect = expect.map(|text| text.parse().expect(text));
    run.summary = Some(summarise(&run, &expect));
    run
}

/// A run of groups of flows, of which only counters are kept.
pub(super) fn crowd(members: usize) -> Run {
    let mut run = run();
    for number in 1..=members {
        let info = FlowInfo {
            name: format!("web-{number}"),
            class: "web".to_owned(),
            control: "web".to_owned(),
            baseline: false,
            delay_bound: None,
            frame_rate: None,
            ..run.manifest.flows[0].clone()
        };
        for bin in 0..300 {
            run.bins.push(BinRow {
                at: Time::from_millis(200 * bin),
                flow: info.name.clone(),
                bin: Bin {
                    received: Count {
                        packets: 2,
                        bytes: Bytes(25 * number as u64),
                    },
                    delay_sum: Duration::from_millis(60 + bin),
                    ..Bin::default()
                },
            });
        }
        run.manifest.flows.push(info.clone());
        run.flows.push(FlowRun::new(info));
    }
    run.summary = Some(summarise(&run, &[]));
    let summary = run.summary.as_mut().expect("just made");
    for (number, flow) in summary.flows.iter_mut().skip(3).enumerate() {
        flow.rate_bps = Some(1e3 * (number + 1) as f64);
    }
    run
}

#[derive(Clone, Copy, PartialEq)]
enum Habit {
    Tide,
    Slow,
    Fixed,
}

struct Fake<'a> {
    link: &'a LinkInfo,
    name: String,
    habit: Habit,
    rng: Box<dyn rand_core::Rng>,
    /// Time at which the link will have sent its whole queue.
    busy: Time,
    rate: f64,
    seq: u64,
    drops: u64,
    delivered: Bytes,
    broken: bool,
    dark: bool,
    events: Vec<EventRow>,
    samples: Vec<LinkSample>,
}

impl<'a> Fake<'a> {
    fn new(link: &'a LinkInfo, name: &str, habit: Habit) -> Self {
        Self {
            link,
            name: name.to_owned(),
            habit,
            rng: Box::new(Seed(7).stream(name)),
            busy: Time::ZERO,
            rate: 300e3,
            seq: 0,
            drops: 0,
            delivered: Bytes::ZERO,
            broken: true,
            dark: false,
            events: Vec::new(),
            samples: Vec::new(),
        }
    }

    fn play(&mut self, flow: &mut FlowRun) {
        let mut screen: Option<u64> = None;
        let mut arrived: Vec<(Time, u64, f64)> = Vec::new();
        for frame in 0..(LENGTH.as_secs() * 30) {
            let now = Time::ZERO + FRAMES.at(frame);
            self.adapt(now, frame);
            let (sent, received) = self.frame(now, frame, flow);
            let encoded = 30.0 + 6.0 * (sent.bits.max(1_000) as f64 * 30.0 / 400e3).log2() / 1.6;
            let encoded = encoded + unit(&mut *self.rng) - 0.5;
            if let Some(row) = &received
                && row.decodable
                && let Some(complete) = row.complete
            {
                arrived.push((complete, frame, encoded));
            }
            let due = now + BOUND;
            let known = arrived.iter().filter(|(at, ..)| *at <= due);
            let shown = known.max_by_key(|(_, frame, _)| *frame).copied();
            screen = shown.map(|(_, frame, _)| frame).or(screen);
            let age = screen.map_or(0, |shown| frame - shown);
            flow.shown.push(ShownFrame {
                frame,
                shown_frame: screen,
                on_time: screen == Some(frame),
                quality: shown.map(|(_, _, db)| quality(db - 4.0 * (age as f64).sqrt().min(4.0))),
            });
            let dead = self.link.outages[0];
            flow.savable.push(SavableRow {
                frame,
                savable: !(dead.from <= due && due < dead.to),
            });
            flow.sent.push(sent);
            flow.received.extend(received);
        }
    }

    /// Simplified controllers, realistic enough for figures.
    fn adapt(&mut self, now: Time, frame: u64) {
        let capacity = self.link.capacity_at(now).map_or(0.0, Rate::as_f64);
        let queue = self.busy.since(now).as_secs_f64();
        self.rate = match self.habit {
            Habit::Fixed => 1.5e6,
            _ if capacity == 0.0 => self.rate * 0.93,
            Habit::Tide if queue > 0.08 => self.rate * 0.9,
            Habit::Tide => self.rate + (0.9 * capacity - self.rate) * 0.05,
            Habit::Slow if queue > 0.35 => self.rate * 0.97,
            Habit::Slow => self.rate + 9e3,
        }
        .max(150e3);
        let dark = capacity == 0.0;
        if dark != self.dark && self.habit == Habit::Tide {
            self.dark = dark;
            let lasted = Duration::from_millis(1_600);
            self.note(
                now,
                if dark {
                    Event::BlackoutBegan
                } else {
                    Event::BlackoutEnded { lasted }
                },
            );
        }
        if frame == 70 && self.habit != Habit::Fixed {
            let rate = Rate::from_f64(self.rate);
            self.note(now, Event::SlowStartEnded { rate });
        }
        if frame.is_multiple_of(3) {
            let media = Rate::from_f64(self.rate * 0.94);
            let noise = 1.04 + 0.03 * unit(&mut *self.rng);
            let send = Rate::from_f64(self.rate * noise);
            self.note(
                now,
                Event::Sample {
                    rtt: Duration::from_millis(50) + Duration::from_secs_f64(queue),
                    queue: Duration::from_secs_f64(queue),
                    loss: 0.0,
                    loss_event_rate: 0.001,
                    send,
                    media,
                    receive: media,
                },
            );
            self.note(
                now,
                Event::Plan {
                    media,
                    capacity: send,
                    backlog: Bytes::ZERO,
                    budget: BOUND,
                    feasible: !dark && queue < 0.3,
                },
            );
            self.samples.push(LinkSample {
                at: now,
                run: self.name.as_str().into(),
                link: self.link.name.as_str().into(),
                queue: Rate::from_f64(capacity) * self.busy.since(now),
                drops: self.drops,
                marks: 0,
                delivered: self.delivered,
                causes: None,
            });
        }
    }

    fn frame(
        &mut self,
        now: Time,
        frame: u64,
        flow: &mut FlowRun,
    ) -> (SentFrame, Option<ReceivedFrame>) {
        let key = self.broken && frame.is_multiple_of(6);
        let budget = (self.rate * 0.94 / 30.0) as u64;
        let noise = 0.75 + 0.5 * unit(&mut *self.rng);
        let bits = (budget as f64 * noise * if key { 2.2 } else { 1.0 }) as u64;
        let skip = self.habit == Habit::Tide && (self.dark || self.busy.since(now) > BOUND);
        let mut sent = SentFrame {
            frame,
            rtp_timestamp: frame as u32 * 3_000,
            captured: now,
            kind: if key {
                FrameKind::Key
            } else {
                FrameKind::Delta
            },
            target_bits: budget,
            bits,
            left: Some(now + Duration::from_millis(6)),
            dropped: None,
            quality: None,
        };
        if skip {
            let cause = DropCause::Late;
            sent.left = None;
            sent.dropped = Some(cause);
            self.note(now, Event::FrameDropped { frame, cause });
            self.broken = true;
            return (sent, None);
        }
        if key {
            let cause = if frame == 0 {
                KeyCause::First
            } else {
                KeyCause::Repair
            };
            self.note(now, Event::KeyFrameOrdered { frame, cause });
        }
        let mut whole = true;
        let mut times = Vec::new();
        for i in 0..bits.div_ceil(9_600) {
            let at = now + Duration::from_micros(900 * i);
            let arrived = self.packet(at, flow);
            whole &= arrived.is_some();
            times.extend(arrived);
        }
        if key && whole {
            self.broken = false;
        }
        let decodable = whole && !self.broken;
        self.broken |= !whole;
        let received = times.first().map(|first| ReceivedFrame {
            frame,
            rtp_timestamp: sent.rtp_timestamp,
            first: *first,
            complete: times.last().copied().filter(|_| whole),
            kind: sent.kind,
            bits,
            decodable,
            quality: None,
        });
        (sent, received)
    }

    /// Sends one packet through the queue.
    fn packet(&mut self, now: Time, flow: &mut FlowRun) -> Option<Time> {
        let size = Bytes(1_240);
        self.seq += 1;
        let dead = self.link.outages[0];
        let start = self.busy.max(now);
        let start = if dead.from <= start && start < dead.to {
            dead.to
        } else {
            start
        };
        let rate = self.link.nominal_capacity_at(start)?;
        let full = start.since(now) > Bytes(120_000) / rate;
        let lost = full || unit(&mut *self.rng) < self.link.loss;
        let arrived = (!lost).then(|| {
            self.busy = start + size / rate;
            self.delivered += size;
            let jitter = Duration::from_micros((3_000.0 * unit(&mut *self.rng)) as u64);
            self.busy + self.link.delay + jitter
        });
        self.drops += u64::from(lost);
        flow.packets.push(PacketRow {
            seq: self.seq,
            kind: Kind::Media,
            size,
            sent: now,
            arrived,
            outcome: arrived.map_or(PacketOutcome::Lost, |_| PacketOutcome::Received),
        });
        arrived
    }

    fn note(&mut self, at: Time, event: Event) {
        let flow = self.name.clone();
        let side = Side::Sender;
        self.events.push(EventRow {
            at,
            flow,
            side,
            event,
        });
    }
}

fn quality(db: f64) -> Quality {
    Quality {
        psnr_y: db,
        psnr_u: db + 3.0,
        psnr_v: db + 3.0,
        ssim: (db / 42.0).min(0.99),
    }
}

const LENGTH: Duration = Duration::from_mins(1);
const BOUND: Duration = Duration::from_millis(400);
const FRAMES: FrameRate = FrameRate::fps(30);
