//! TFRC of RFC 3448 with twenty TCP Reno flows on a dumbbell, all of whose links have 10 Mb/s and
//! 10 ms, compared with ns-2.

use core::time::Duration;

use tidegate_core::link::{JitterConfig, LinkConfig, Spread};
use tidegate_core::random::{Seed, unit};
use tidegate_core::units::{Rate, Time};
use tidegate_sim::flow_endpoints::Actor;
use tidegate_sim::ns2::tfrc::Ns2TfrcConfig;
use tidegate_sim::tcp::classic::{self, Flavour};
use tidegate_sim::world::{NodeId, World};

use crate::dumbbell::{Flow, Kind, world};
use crate::lab::link;
use crate::table::Table;

/// The shares depend on the random delay of packets in TCP senders: the transmission time of a
/// packet on the link, or ten times as long.
#[test]
fn shares_with_tcp_equal_those_of_ns2() {
    let table = Table::read(include_str!("../data/ns2/tfrc_shared.csv"));
    println!(
        "start   queue overhead_us   tcp: ns-2  ours   tfrc: ns-2   sd  ours   loss: ns-2  ours   settled: ns-2 ours   cov of 1 s: ns-2 ours"
    );
    for row in table.rows(&[]) {
        let wait = table.number(row, "overhead_us") as u64;
        let (queue, begin) = (table.number(row, "queue") as u32, table.text(row, "start"));
        if wait == 0 || queue < 50 {
            continue;
        }
        let runs: Vec<Share> = (1..=SEEDS)
            .map(|seed| share(&tfrc(begin), queue, Duration::from_micros(wait), seed))
            .collect();
        let mean = |f: fn(&Share) -> f64| runs.iter().map(f).sum::<f64>() / SEEDS as f64;
        let columns = [
            "tcp_pps",
            "tfrc_pps",
            "tfrc_sd",
            "tfrc_loss",
            "settled_s",
            "cov_1s",
        ];
        let [tcp, ns2, sd, loss, settled, cov] = columns.map(|column| table.number(row, column));
        println!(
            "{begin:8} {queue:4} {wait:11} {tcp:11.2} {:5.2} {ns2:12.2} {sd:4.2} {:5.2} {loss:12.4} {:.4} {settled:14.2} {:4.2} {cov:17.3} {:.3}",
            mean(|s| s.tcp),
            mean(|s| s.tfrc),
            mean(|s| s.loss),
            mean(|s| s.settled),
            mean(|s| s.cov),
        );
        let near = |ours: f64, ns2: f64, tolerance: f64| (ours / ns2 - 1.0).abs() < tolerance;
        assert!(near(mean(|s| s.tcp), tcp, 0.02));
        assert!(near(mean(|s| s.tfrc), ns2, 0.15));
        assert!(near(mean(|s| s.loss), loss, 0.15));
        assert!(near(mean(|s| s.cov), cov, 0.25));
    }
}

/// As in ns-2, or with the start of 2001: one packet per round trip, immediately.
fn tfrc(begin: &str) -> Ns2TfrcConfig {
    let mut config = Ns2TfrcConfig::native();
    if begin == "one" {
        config.initial_window = Some(1.0);
        config.slow_increase = false;
        config.first_rate = Rate::bps(8_000);
    }
    config
}

/// Results from 14 s to 74 s, in packets per second.
struct Share {
    /// Mean of the TCP flows.
    tcp: f64,
    tfrc: f64,
    /// Share of TFRC's packets that are lost.
    loss: f64,
    /// Seconds from TFRC's start until its rate, averaged over half a second, stays within half of
    /// its mean for three seconds.
    settled: f64,
    /// Coefficient of variation of TFRC's packets per second.
    cov: f64,
}

fn share(tfrc: &Ns2TfrcConfig, queue: u32, wait: Duration, seed: u64) -> Share {
    let mut rng = Seed(seed).stream("starts");
    let mut starts: Vec<Time> = (0..=TCPS)
        .map(|_| Time::ZERO + Duration::from_nanos((unit(&mut rng) * 1e8) as u64))
        .collect();
    starts[TCPS] += Duration::from_secs(4);
    let reno = classic::Config {
        flavour: Flavour::Reno,
        window: 1_000,
        overhead: wait,
        ..classic::Config::default()
    };
    let (rate, way) = (Rate::kbps(10_000), Duration::from_millis(10));
    let access = link(rate, way, 1_000);
    let flows = starts.iter().enumerate().map(|(n, start)| Flow {
        kind: if n < TCPS {
            Kind::Tcp(reno)
        } else {
            Kind::Tfrc(tfrc.clone())
        },
        start: *start,
        access: [way_in(&access), access.clone()],
    });
    let mut world = world(&link(rate, way, queue), flows.collect(), seed);
    // 10 ms apart, from TFRC's start on.
    let mut rates = Vec::new();
    let mut seconds = Vec::new();
    let mut lost_first = None;
    let mut warm = Counts::default();
    for step in 400..=7_400_u64 {
        world
            .run(Time::from_millis(10 * step), &mut ())
            .expect("the run continues");
        let now = Counts::of(&world);
        rates.push(now.rate);
        lost_first = lost_first.or((now.lost > 0.0).then_some(rates.len()));
        if step == 1_400 {
            warm = now;
        }
        if step >= 1_400 && step % 100 == 0 {
            seconds.push(now.sent);
        }
    }
    let end = Counts::of(&world);
    let each: Vec<f64> = seconds.windows(2).map(|two| two[1] - two[0]).collect();
    let mean = each.iter().sum::<f64>() / 60.0;
    let squares: f64 = each.iter().map(|x| (x - mean) * (x - mean)).sum();
    Share {
        tcp: (end.tcp - warm.tcp) / 60.0 / TCPS as f64,
        tfrc: (end.received - warm.received) / 60.0,
        loss: (end.lost - warm.lost) / (end.sent - warm.sent),
        settled: settled(&rates, lost_first.unwrap_or(0)) - (starts[TCPS].as_secs_f64() - 4.0),
        cov: (squares / 60.0).sqrt() / mean,
    }
}

/// All links have the same rate. A flow with a backlog on its access link therefore delivers its
/// packets to the bottleneck exactly when a packet leaves there. It would never lose a packet, and
/// the other flows would find the queue full. In ns-2, rounding of times decides the order; here a
/// jitter of one microsecond does. Packets are 800 microseconds apart, so none is reordered. With
/// enforced order, packets would keep that distance, and with it the phase.
fn way_in(access: &LinkConfig) -> LinkConfig {
    LinkConfig {
        delay: access.delay.saturating_sub(Duration::from_micros(1)),
        jitter: Some(JitterConfig {
            spread: Spread::Uniform {
                max: Duration::from_micros(2),
            },
            reorder: true,
        }),
        ..access.clone()
    }
}

/// Seconds since the first of these rates, but not before index `from`.
fn settled(rates: &[f64], from: usize) -> f64 {
    let usual = rates[1_000..].iter().sum::<f64>() / (rates.len() - 1_000) as f64;
    let means: Vec<f64> = rates
        .windows(50)
        .map(|half| half.iter().sum::<f64>() / 50.0)
        .collect();
    let calm = |at: &usize| {
        let next = &means[*at..(*at + 250).min(means.len())];
        next.iter().all(|mean| (mean / usual - 1.0).abs() <= 0.5)
    };
    let at = (from..means.len()).find(calm);
    at.map_or(f64::INFINITY, |at| at as f64 / 100.0)
}

/// Counters up to a time, in packets.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// All TCP flows together.
    tcp: f64,
    sent: f64,
    received: f64,
    lost: f64,
    rate: f64,
}

impl Counts {
    fn of(world: &World<Actor>) -> Self {
        let agents = (0..2 * (TCPS + 1)).map(|n| world.agent(NodeId(n)));
        agents.fold(Self::default(), |mut counts, agent| {
            match agent {
                Actor::Paced(sender) => {
                    counts.sent = sender.packets() as f64;
                    counts.lost = sender.summary().lost as f64;
                    counts.rate = sender.rate().as_f64();
                }
                Actor::PacedReceiver(receiver) => counts.received = receiver.packets() as f64,
                Actor::TcpSink(sink) => counts.tcp += sink.counters().segments as f64,
                _ => {}
            }
            counts
        })
    }
}

const TCPS: usize = 20;
const SEEDS: u64 = 4;
