//! Hosts, sockets and threads of one take in the lab.

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use tidegate_core::random::Seed;
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Time};
use tidegate_live::clock::Clock;
use tidegate_live::driver::{Conditions, Interrupts, StopFlag, drive};
use tidegate_live::emulator::{Emulator, EmulatorConfig, EmulatorReport, Host, Way};
use tidegate_live::netns::Worker;
use tidegate_live::pipe::Threaded;
use tidegate_live::udp::Socket;
use tidegate_sim::cast::{Player, Role, Takings, packet_row};
use tidegate_sim::meter::Meter;
use tidegate_sim::play::{BIN, Take};
use tidegate_sim::run;
use tidegate_sim::staging::{self, back_of, path_of};

use super::replay;
use crate::folder::Script;

type LabPlayer = Player<Threaded>;
type Said = Vec<(Time, Event)>;

/// Plays `cast` through the emulator in real time.
pub(super) fn play(
    script: &Script,
    cast: Vec<Role>,
    seed: Seed,
    interrupts: &Interrupts,
    progress: &mut dyn FnMut(f64),
) -> Result<(Take, EmulatorReport)> {
    let scenario = &script.scenario;
    let network = staging::network(scenario, &cast)?;
    let mut config = EmulatorConfig::new(network.clone());
    let ways = (0..cast.len()).flat_map(|flow| {
        let [sender, receiver] = hosts(flow);
        Way::both(sender, receiver, path_of(flow), back_of(flow))
    });
    config.ways = ways.collect();
    config.seed = seed;
    config.limit = scenario.duration + TAIL * 2;
    config.log = LOG;
    // The worlds of the scenes are painted before the clock starts.
    let stop = StopFlag::new()?;
    let mut senders = Vec::with_capacity(cast.len());
    for role in &cast {
        let flag = StopFlag::new()?;
        let sender: Result<LabPlayer> = role.sender(seed, |video| {
            let encoder = script.studio.encoder(&role.name, video, seed)?;
            Ok(Threaded::start(encoder, flag.clone())?)
        });
        senders.push((sender?, flag));
    }
    config.clock = Clock::start();
    let clock = config.clock;
    let emulator = Emulator::start(&config).context("cannot start the emulator")?;
    let flags: Vec<StopFlag> = senders.iter().map(|(_, flag)| flag.clone()).collect();
    let mut workers = Vec::with_capacity(cast.len());
    for (i, (role, (sender, flag))) in cast.iter().zip(senders).enumerate() {
        let [a, b] = hosts(i);
        let at = |stop| Conditions {
            clock,
            until: Some(Time::ZERO + scenario.duration + TAIL),
            stop,
        };
        let receiver = perform(
            &emulator,
            [b, a],
            role,
            role.receiver(seed),
            at(stop.clone()),
            seed,
        )?;
        let sender = perform(&emulator, [a, b], role, sender, at(flag), seed)?;
        workers.push((sender, receiver));
    }
    let whole = scenario.duration.as_secs_f64();
    while workers.iter().any(|(sender, _)| !sender.is_finished()) {
        std::thread::sleep(GLANCE);
        if interrupts.count() > 0 {
            flags.iter().for_each(StopFlag::set);
        }
        progress(clock.now().as_secs_f64() / whole);
    }
    // What is on its way may still arrive.
    let grace = Instant::now();
    while grace.elapsed() < GRACE {
        std::thread::sleep(GLANCE);
    }
    stop.set();
    let mut take = Take {
        hops: 0,
        meter: Meter::new(cast.len(), scenario.window(), BIN),
        flows: Vec::new(),
        events: Vec::new(),
        links: Vec::new(),
    };
    for (i, (role, (sender, receiver))) in cast.into_iter().zip(workers).enumerate() {
        let mut takings = join(sender, &role.name, run::Side::Sender, &mut take.events)?;
        let other = join(receiver, &role.name, run::Side::Receiver, &mut take.events)?;
        meter(&mut take.meter, i, &takings, &other);
        takings.received = other.received;
        take.flows.push((role, takings));
    }
    take.events.sort_by_key(|row| row.at);
    let (report, log) = emulator.stop()?;
    let name = &take.flows[0].0.name;
    take.links = replay::link_samples(scenario, &network, seed, &log, name)?;
    Ok((take, report))
}

/// Counts what passed. Drops are told from what did not arrive by the end.
fn meter(meter: &mut Meter, flow: usize, sender: &Takings, receiver: &Takings) {
    for row in sender.packets.iter().map(packet_row) {
        meter.sent(flow, row.sent, row.size);
        match row.arrived {
            Some(at) => meter.arrived(flow, at, row.size, row.sent),
            None if row.outcome == run::PacketOutcome::Lost => meter.dropped(flow, row.sent),
            None => {}
        }
    }
    let mut under_way = BTreeSet::new();
    for passage in &sender.passages {
        let size = Bytes(u64::from(passage.size));
        if passage.arrived {
            meter.answered(flow, passage.at, passage.sent);
        } else {
            meter.sent(flow, passage.at, size);
            under_way.insert(passage.sent);
        }
    }
    for passage in receiver.passages.iter().filter(|passage| passage.arrived) {
        let size = Bytes(u64::from(passage.size));
        meter.arrived(flow, passage.at, size, passage.sent);
        under_way.remove(&passage.sent);
    }
    for sent in under_way {
        meter.dropped(flow, sent);
    }
}

/// How well the emulator kept time, for the notes of a run.
pub(super) fn describe(flow: &str, report: &EmulatorReport) -> String {
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let (p50, p99) = (ms(report.timing_p50), ms(report.timing_p99));
    let worst = ms(report.timing_worst);
    let mut text = format!(
        "emulator, run of {flow}: {} packets, written p50 {p50:.3} ms, p99 {p99:.3} ms, worst \
         {worst:.2} ms after their time",
        report.packets
    );
    if !report.realtime_priority {
        text.push_str("; it had no real-time priority");
    }
    if !report.kept_up {
        text.push_str("; IT COULD NOT KEEP UP: this machine was too busy, believe the delays less");
    }
    text
}

/// Starts the thread of one endpoint inside its host.
fn perform(
    emulator: &Emulator,
    [host, other]: [Host; 2],
    role: &Role,
    mut player: LabPlayer,
    conditions: Conditions,
    seed: Seed,
) -> Result<Worker<Result<(Takings, Said)>>> {
    let (own, peer) = ((host.address(), PORT), (other.address(), PORT).into());
    let side = if host < other { "A" } else { "B" };
    let mut rng = seed.stream(&format!("party/{}/{side}", role.name));
    let start = Time::ZERO + role.plan.start;
    let job = move || {
        let socket = UdpSocket::bind(own)?;
        let mut sockets = [Socket::connected(socket, peer)?];
        let (mut takings, mut said) = (Takings::default(), Said::new());
        std::thread::sleep(conditions.clock.until(start));
        drive(
            &mut player,
            &mut sockets,
            &conditions,
            &mut rng,
            &mut said,
            |player, _| {
                player.drain(&mut takings);
                ControlFlow::Continue(())
            },
        )?;
        player.finish(&mut takings);
        if let Player::Video(streamer) = &player
            && let Some(error) = streamer.error()
        {
            return Err(error.clone().into());
        }
        Ok((takings, said))
    };
    let namespace = emulator.namespace(host);
    namespace.run(job).context("cannot enter a host of the lab")
}

/// Each flow has two hosts of its own, sender and receiver, so that each can take its own way.
fn hosts(flow: usize) -> [Host; 2] {
    [2 * flow, 2 * flow + 1].map(|number| Host(number as u8))
}

fn join(
    worker: Worker<Result<(Takings, Said)>>,
    flow: &str,
    side: run::Side,
    events: &mut Vec<run::EventRow>,
) -> Result<Takings> {
    let result = worker
        .join()
        .map_err(|_| anyhow!("flow {flow:?}: the {side:?} panicked"))?;
    let (takings, said) = result.with_context(|| format!("flow {flow:?}"))?;
    events.extend(said.into_iter().map(|(at, event)| run::EventRow {
        at,
        flow: flow.to_owned(),
        side,
        event,
    }));
    Ok(takings)
}

/// Of the lab's hosts, which nobody else can see.
const PORT: u16 = 5004;
/// After the last capture, what is under way may still arrive.
const TAIL: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_millis(500);
const GLANCE: Duration = Duration::from_millis(50);
/// Packets that the emulator logs: four minutes at 8,000 a second, 80 MB.
const LOG: usize = 2_000_000;
