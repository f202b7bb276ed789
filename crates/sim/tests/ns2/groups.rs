//! Two groups of flows over a RED queue, against ns-2.

use core::time::Duration;

use tidegate_core::link::{LinkConfig, LinkId, QueueConfig, RedConfig};
use tidegate_core::random::{Seed, unit};
use tidegate_core::units::{Rate, Time};
use tidegate_sim::flow_endpoints::Actor;
use tidegate_sim::ns2::tfrc::Ns2TfrcConfig;
use tidegate_sim::tcp::classic::{self, Flavour};
use tidegate_sim::world::{NodeId, World};

use crate::dumbbell::{Flow, Kind, world};
use crate::lab::link;
use crate::table::Table;

/// n TFRC flows and n other flows, TFRC or TCP SACK, share 15 Mb/s over 50 ms and RED. Shares are
/// relative to the mean over all flows, from 20 s to 180 s.
#[test]
fn groups_share_a_red_queue_as_in_ns2() {
    let table = Table::read(include_str!("../data/ns2/tfrc_groups.csv"));
    println!("others   n   tfrc: ns-2    sd   ours   loss: ns-2   ours   use: ns-2  ours");
    for row in table.rows(&[]) {
        let (others, n) = (table.text(row, "others"), table.number(row, "n") as usize);
        let sack = others == "sack";
        // With many flows, random variations average out.
        let seeds = if n < 20 { 2 } else { 1 };
        let runs: Vec<Shares> = (1..=seeds).map(|seed| play(sack, n, seed)).collect();
        let mean = |f: fn(&Shares) -> f64| runs.iter().map(f).sum::<f64>() / seeds as f64;
        let columns = ["tfrc_share", "share_sd", "loss", "use"];
        let [ns2, sd, loss, used] = columns.map(|column| table.number(row, column));
        let (share, lost, carried) = (mean(|s| s.tfrc), mean(|s| s.loss), mean(|s| s.used));
        println!(
            "{others:6} {n:3} {ns2:12.3} {sd:5.3} {share:6.3} {loss:12.4} {lost:.4} {used:11.3} {carried:.3}"
        );
        assert!((share - ns2).abs() < 0.06);
        assert!((lost / loss - 1.0).abs() < 0.1);
        assert!((carried - used).abs() < 0.01);
    }
}

struct Shares {
    tfrc: f64,
    loss: f64,
    used: f64,
}

fn play(sack: bool, n: usize, seed: u64) -> Shares {
    let mut rng = Seed(seed).stream("flows");
    let rate = Rate::kbps(15_000);
    let bottleneck = LinkConfig {
        queue: QueueConfig::Red(RedConfig::default()),
        ..link(rate, Duration::from_millis(50), 300)
    };
    let fast = Rate::kbps(100_000);
    let flows = (0..2 * n).map(|k| {
        let way_out = Duration::from_nanos(1_000_000 + (unit(&mut rng) * 19e6) as u64);
        let begin = Duration::from_nanos((unit(&mut rng) * 5e9) as u64);
        Flow {
            kind: if sack && k < n {
                Kind::Tcp(classic::Config {
                    flavour: Flavour::Sack,
                    ..classic::Config::default()
                })
            } else {
                Kind::Tfrc(Ns2TfrcConfig::native())
            },
            start: Time::ZERO + begin,
            access: [
                link(fast, Duration::from_millis(1), 2_000),
                link(fast, way_out, 2_000),
            ],
        }
    });
    let mut world = world(&bottleneck, flows.collect(), seed);
    let mut count = |second| {
        world
            .run(Time::from_secs(second), &mut ())
            .expect("the run continues");
        let stats = world.network().stats(LinkId(0), Time::from_secs(second));
        let received: Vec<f64> = (0..2 * n).map(|k| received(&world, k)).collect();
        (stats, received)
    };
    let (first, before) = count(20);
    let (last, after) = count(180);
    let rates: Vec<f64> = after
        .iter()
        .zip(&before)
        .map(|(b, a)| (b - a) / 160.0)
        .collect();
    let each = 1_875.0 / (2 * n) as f64;
    let arrived = (last.arrivals - first.arrivals) as f64;
    Shares {
        tfrc: rates[n..].iter().sum::<f64>() / n as f64 / each,
        loss: (last.queue_drops - first.queue_drops) as f64 / arrived,
        used: rates.iter().sum::<f64>() / 1_875.0,
    }
}

/// Packets of a flow.
fn received(world: &World<Actor>, flow: usize) -> f64 {
    match world.agent(NodeId(2 * flow + 1)) {
        Actor::PacedReceiver(receiver) => receiver.packets() as f64,
        Actor::TcpSink(sink) => sink.counters().segments as f64,
        other => panic!("{other:?} receives nothing"),
    }
}
