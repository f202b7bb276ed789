//! Tests of a sender and a receiver with a link in each direction.

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{Algorithm as _, Change, Demand, RateController, Start};
use tidegate_core::controller::Configuration as _;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::link::{
    Capacity, DropTailConfig, Hop as _, Link, LinkConfig, Outage, Packet, QueueConfig,
};
use tidegate_core::path::Path;
use tidegate_core::random::Seed;

use super::*;
use crate::packet_agent::{Outbox, Outgoing};

/// A packet on a link of the tests.
#[derive(Debug)]
struct PacketHandle(Outgoing);

impl Packet for PacketHandle {
    fn size(&self) -> Bytes {
        Bytes(u64::from(self.0.size))
    }
    fn ecn(&self) -> Ecn {
        self.0.ecn
    }
    fn set_ce(&mut self) {
        self.0.ecn = Ecn::Ce;
    }
}

/// Sender, receiver, and a link each way.
struct Pair {
    sender: Sender,
    receiver: Receiver,
    links: [Link<PacketHandle>; 2],
    rng: Pcg64Mcg,
    out: Outbox,
    now: Time,
    /// Send times of packets, and the reports.
    sent: Vec<Time>,
    reports: Vec<(Time, Vec<ReceivedRun>)>,
}

impl Pair {
    fn new(sender: Sender, receiver: Receiver, links: &[LinkConfig; 2]) -> Self {
        let link = |config, name| Link::new(config, Seed(1), name).expect("valid link");
        Self {
            sender,
            receiver,
            links: [link(&links[0], "forward"), link(&links[1], "back")],
            rng: Seed(1).stream("pair"),
            out: Outbox::default(),
            now: Time::ZERO,
            sent: Vec::new(),
            reports: Vec::new(),
        }
    }

    fn run(&mut self, until: Time) {
        loop {
            let links = self.links.iter().filter_map(Link::next_departure);
            let timers = [self.sender.next_timer(), self.receiver.next_timer()];
            let next = links.chain(timers).min().unwrap_or(Time::FAR);
            if next > until {
                break;
            }
            self.now = next;
            for end in [1, 0] {
                while let Some((_, PacketHandle(packet))) = self.links[1 - end].pop(next) {
                    self.give(end, Some(packet));
                }
                if timers[end] <= next {
                    self.give(end, None);
                }
            }
        }
    }

    fn give(&mut self, end: usize, packet: Option<Outgoing>) {
        let mut silence = ();
        let mut cx = AgentCx::new(self.now, &mut self.rng, &mut silence, &mut self.out);
        let agent: &mut dyn Agent = match end {
            0 => &mut self.sender,
            _ => &mut self.receiver,
        };
        match packet {
            Some(Outgoing {
                size,
                ecn,
                mut body,
                ..
            }) => {
                agent.on_packet(&mut cx, &Arrival { size, ecn, dscp: 0 }, &mut body);
            }
            None => agent.on_timer(&mut cx),
        }
        for packet in self.out.drain() {
            match &packet.body {
                Body::Data { .. } => self.sent.push(self.now),
                Body::Report { seen, .. } => self.reports.push((self.now, seen.clone())),
                _ => {}
            }
            self.links[end].push(self.now, PacketHandle(packet));
        }
    }
}

/// A controller that follows a script and records its inputs.
#[derive(Debug, Default)]
struct LoadedScenario {
    /// Rates with the times from which they apply.
    rates: Vec<(Time, Rate)>,
    rate: Rate,
    log: std::sync::Arc<std::sync::Mutex<ControllerLog>>,
}

#[derive(Debug, Default)]
struct ControllerLog {
    app_limited: Vec<bool>,
    outcomes: Vec<PacketOutcome>,
    rtts: Vec<Duration>,
}

impl RateController for LoadedScenario {
    fn on_sent(&mut self, _: &mut Context<'_>, packet: &Sent, _: &mut Path) {
        let mut log = self.log.lock().expect("lock is poisoned");
        log.app_limited.push(packet.app_limited);
    }
    fn on_report(&mut self, _: &mut Context<'_>, report: &Report<'_>, _: &mut Path) {
        let mut log = self.log.lock().expect("lock is poisoned");
        log.outcomes.extend_from_slice(report.packets);
        log.rtts.extend(report.rtt);
    }
    fn on_timeout(&mut self, cx: &mut Context<'_>, _: &mut Path) {
        while let Some((_, rate)) = self.rates.pop_if(|(at, _)| *at <= cx.now) {
            self.rate = rate;
        }
    }
    fn on_change(&mut self, _: &mut Context<'_>, _: &Change, _: &mut Path) {}
    fn target(&self) -> tidegate_core::control::Target {
        tidegate_core::control::Target::of(self.rate)
    }
    fn next_timeout(&self, _: &Path) -> Option<(Time, tidegate_core::control::TimerReason)> {
        let next = self.rates.last()?;
        Some((next.0, tidegate_core::control::TimerReason::Schedule))
    }
    fn summary(&self, _: &Path) -> Summary {
        Summary::new(self.rate)
    }
}

fn control(controller: LoadedScenario) -> RateControl {
    let demand = Demand {
        floor: Rate::ZERO,
        ceiling: Rate::MAX,
        shares: 1,
    };
    RateControl::new(controller, &Start::new(Time::ZERO, Bytes(1_000), demand))
}

type Notes = std::sync::Arc<std::sync::Mutex<ControllerLog>>;

/// Rates in ascending order of time.
fn script(config: SenderConfig, rates: &[(u64, u64)]) -> (Sender, Notes) {
    let rates = rates.iter().rev();
    let controller = LoadedScenario {
        rates: rates
            .map(|(at, kbps)| (ms(*at), Rate::kbps(*kbps)))
            .collect(),
        ..LoadedScenario::default()
    };
    let log = controller.log.clone();
    (Sender::new(config, control(controller)), log)
}

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// A link with 10 ms of delay and no transmission time.
fn wire() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(10),
        ..LinkConfig::default()
    }
}

fn outage(mut link: LinkConfig, from: u64, to: u64) -> LinkConfig {
    link.outages = vec![Outage {
        from: ms(from),
        to: ms(to),
    }];
    link
}

fn rap() -> Receiver {
    Receiver::new(ReceiverConfig::rap())
}

/// Packets of 1000 bytes: one every 8 ms at 1 Mb/s.
fn kilobytes() -> SenderConfig {
    SenderConfig::new(Bytes(1_000))
}

#[test]
fn new_rate_reschedules_the_next_packet() {
    for (spacing, expected) in [
        (Rescheduling::Reactive, [0, 8, 13, 18, 23]),
        (Rescheduling::Steady, [0, 8, 16, 21, 26]),
    ] {
        let config = SenderConfig {
            spacing,
            workload: Workload::Packets(5),
            ..kilobytes()
        };
        let (sender, _) = script(config, &[(0, 1_000), (9, 1_600)]);
        let mut pair = Pair::new(sender, rap(), &[wire(), wire()]);
        pair.run(ms(100));
        let sent: Vec<u64> = pair
            .sent
            .iter()
            .map(|at| at.as_nanos() / 1_000_000)
            .collect();
        assert_eq!(sent, expected, "{spacing:?}");
        assert!(pair.sender.is_done());
    }
}

#[test]
fn increase_from_rate_zero_sends_immediately() {
    let (sender, _) = script(kilobytes(), &[(0, 1), (500, 1_000)]);
    let mut pair = Pair::new(sender, rap(), &[wire(), wire()]);
    pair.run(ms(510));
    assert_eq!(pair.sent, [ms(0), ms(500), ms(508)]);
}

#[test]
fn prompt_spacing_sends_on_each_report_before_the_first_loss() {
    let config = SenderConfig {
        spacing: Rescheduling::Prompt,
        ..kilobytes()
    };
    let (sender, _) = script(config, &[(0, 100)]);
    let mut pair = Pair::new(sender, rap(), &[wire(), wire()]);
    pair.run(ms(75));
    assert_eq!(pair.sent, [ms(0), ms(20), ms(40), ms(60)]);
}

#[test]
fn each_packet_has_one_fate_despite_lost_reports() {
    // One packet every 8 ms. The packets of 80 and 88 ms are lost, and the reports from 200 to 400
    // ms. The first report after the outage covers all of them.
    let (sender, log) = script(kilobytes(), &[(0, 1_000)]);
    let links = [outage(wire(), 80, 90), outage(wire(), 200, 400)];
    let mut pair = Pair::new(sender, rap(), &links);
    pair.run(ms(1_000));
    let log = log.lock().expect("lock is poisoned");
    let seqs: Vec<u64> = log.outcomes.iter().map(|fate| fate.seq).collect();
    let lost = log
        .outcomes
        .iter()
        .filter(|fate| fate.outcome == Outcome::Lost);
    let lost: Vec<u64> = lost.map(|fate| fate.seq).collect();
    assert_eq!(lost, [10, 11]);
    let mut sorted = seqs.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), seqs.len(), "a packet has several outcomes");
    assert_eq!(sorted, (0..seqs.len() as u64).collect::<Vec<_>>());
    assert!(
        pair.sender.packets() - seqs.len() as u64 <= 3,
        "packets after the last report have no fate yet"
    );
    // 10 ms in each direction.
    assert!(log.rtts.iter().all(|rtt| *rtt == Duration::from_millis(20)));
    assert_eq!(pair.receiver.packets(), pair.sender.packets() - 2 - 2);
}

#[test]
fn reports_repeat_runs_for_lost_reports() {
    // As above, with a loss every 80 ms, so that each run has at most ten packets. Reports have one
    // run each, or a few after the outage of the return path from 300 to 500 ms.
    let (sender, log) = script(kilobytes(), &[(0, 1_000)]);
    let outages = (1..12).map(|i| Outage {
        from: ms(80 * i),
        to: ms(80 * i + 5),
    });
    let forth = LinkConfig {
        outages: outages.collect(),
        ..wire()
    };
    let mut pair = Pair::new(sender, rap(), &[forth, outage(wire(), 300, 500)]);
    pair.run(ms(1_000));
    let most = |from: u64, to: u64| {
        let within = |at: &Time| ms(from) <= *at && *at < ms(to);
        let reports = pair.reports.iter().filter(|(at, _)| within(at));
        reports.map(|(_, seen)| seen.len()).max()
    };
    assert_eq!(most(0, 300), Some(2));
    assert_eq!(most(300, 530), Some(4));
    assert_eq!(most(560, 1_000), Some(2));
    let log = log.lock().expect("lock is poisoned");
    let lost = |fate: &&PacketOutcome| fate.outcome == Outcome::Lost;
    let lost = log.outcomes.iter().filter(lost).map(|fate| fate.seq);
    let every_tenth: Vec<u64> = (1..12).map(|i| 10 * i).collect();
    assert_eq!(lost.collect::<Vec<_>>(), every_tenth);
}

#[test]
fn packet_interval_is_positive_at_any_rate() {
    assert_eq!(interval(Bytes(1), Rate::MAX), 1);
    assert_eq!(interval(Bytes(1_000), Rate::kbps(1_000)), 8_000_000);
    assert_eq!(interval(Bytes(1), Rate::ZERO), u64::MAX);
}

#[test]
fn tfrc_receiver_reports_per_round_trip_and_loss_event() {
    let (sender, log) = script(kilobytes(), &[(0, 1_000)]);
    let receiver = Receiver::new(ReceiverConfig::tfrc());
    let mut pair = Pair::new(sender, receiver, &[outage(wire(), 80, 90), wire()]);
    pair.run(ms(140));
    let reports: Vec<u64> = pair
        .reports
        .iter()
        .map(|r| r.0.as_nanos() / 1_000_000)
        .collect();
    // The first packet; the second, sent before the sender had a round-trip sample; the third, sent
    // after the first report, starts the timer of 20 ms, which finds new packets until the loss. 10
    // and 11 are missing; 13 reveals the loss, 114 ms after the start.
    assert_eq!(reports, [10, 18, 26, 34, 54, 74, 94, 114, 134]);
    let log = log.lock().expect("lock is poisoned");
    assert!(
        log.rtts.iter().all(|rtt| *rtt == Duration::from_millis(20)),
        "{:?}",
        log.rtts
    );
}

#[test]
fn media_receiver_reports_at_a_constant_interval() {
    let config = SenderConfig {
        workload: Workload::Packets(8),
        ..kilobytes()
    };
    let (sender, log) = script(config, &[(0, 1_000)]);
    let receiver = Receiver::new(ReceiverConfig {
        reporting: Reporting::Every(Duration::from_millis(25)),
        ..ReceiverConfig::tfrc()
    });
    let mut pair = Pair::new(sender, receiver, &[wire(), wire()]);
    pair.run(ms(500));
    let reports: Vec<u64> = pair
        .reports
        .iter()
        .map(|report| report.0.as_nanos() / 1_000_000)
        .collect();
    assert_eq!(reports, [10, 35, 60, 85], "no packet arrived after 66 ms");
    let log = log.lock().expect("lock is poisoned");
    assert_eq!(log.outcomes.len(), 8);
}

#[test]
fn random_delays_preserve_rate_and_order() {
    let config = SenderConfig {
        overhead: Duration::from_millis(20),
        ..kilobytes()
    };
    let (sender, _) = script(config, &[(0, 1_000)]);
    let mut pair = Pair::new(sender, rap(), &[wire(), wire()]);
    pair.run(ms(8_000));
    assert!(
        (995..=1_001).contains(&pair.sent.len()),
        "{}",
        pair.sent.len()
    );
    let late: Vec<u64> = (0..)
        .zip(&pair.sent)
        .map(|(n, at)| at.since(ms(8 * n)).as_millis() as u64)
        .collect();
    assert!(late.iter().all(|late| *late <= 20), "{late:?}");
    let mean = late.iter().sum::<u64>() as f64 / late.len() as f64;
    assert!((9.0..=14.0).contains(&mean), "{mean}");
}

#[test]
fn rate_is_limited_by_the_application() {
    let steps = vec![(ms(0), Rate::kbps(500)), (ms(500), Rate::kbps(2_000))];
    let config = SenderConfig {
        workload: Workload::Application(steps),
        stop: ms(1_000),
        ..kilobytes()
    };
    let (sender, log) = script(config, &[(0, 1_000)]);
    let mut pair = Pair::new(sender, rap(), &[wire(), wire()]);
    pair.run(ms(2_000));
    let log = log.lock().expect("lock is poisoned");
    let limited = log.app_limited.iter().filter(|limited| **limited).count();
    assert_eq!((limited, pair.sent.len()), (32, 31 + 62));
    assert!(pair.sender.is_done());
    assert!(
        pair.sent
            .windows(2)
            .all(|two| two[1].since(two[0]) >= Duration::from_millis(8))
    );
}

/// TFRC over 2 Mb/s with a queue of 20 packets fills the link with few losses.
#[test]
fn tfrc_fills_a_link() {
    let bottleneck = LinkConfig {
        capacity: Capacity::Fixed(Rate::kbps(2_000)),
        queue: QueueConfig::DropTail(DropTailConfig::packets(20)),
        ..wire()
    };
    let demand = Demand {
        floor: Rate::ZERO,
        ceiling: Rate::MAX,
        shares: 1,
    };
    let control = TfrcConfig::default();
    let (config, receiver) = ends(control.properties(), Bytes(1_000));
    let mut start = Start::new(config.start, config.size, demand);
    start.report_interval = Some(Duration::ZERO);
    let sender = Sender::new(config, control.start(&start));
    let mut pair = Pair::new(sender, Receiver::new(receiver), &[bottleneck, wire()]);
    pair.run(ms(5_000));
    let before = pair.receiver.packets();
    pair.run(ms(25_000));
    let share = (pair.receiver.packets() - before) as f64 / (250.0 * 20.0);
    assert!((0.9..=1.0).contains(&share), "{share} of the link");
    let lost = pair.sender.summary().lost as f64 / pair.sender.packets() as f64;
    assert!((0.0005..=0.05).contains(&lost), "{lost}");
}
