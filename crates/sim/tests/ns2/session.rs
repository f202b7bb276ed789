//! Controllers over RTP, where reports on many packets come each 25 ms, against the same ones with
//! modelled receivers, which report as the algorithms were made for.

use tidegate_core::control::Algorithm as _;
use tidegate_core::link::LinkConfig;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_sim::paced::ends;
use tidegate_sim::play;
use tidegate_sim::run::PacketOutcome;
use tidegate_sim::scenario::{BulkPlan, MediaPlan, Scenario};

use crate::lab::{Lab, link, start};

#[test]
fn sparse_reports_cost_little() {
    for (control, tolerance) in [
        ("\"rap\"", 0.05),
        ("\"tfrc\"", 0.05),
        ("{ tfrc = { flavour = \"rfc3448\" } }", 0.12),
    ] {
        println!("{control}\nrtt_ms  loss   RTP   modelled  ratio  (packets per second)");
        for (delay, loss) in [(10, 0.01), (50, 0.001), (50, 0.01), (50, 0.0), (150, 0.003)] {
            let scenario = scenario(control, delay, loss);
            let mean = |rate: &dyn Fn(u64) -> f64| (1..=3).map(rate).sum::<f64>() / 3.0;
            let rtp = mean(&|seed| over_rtp(&scenario, seed));
            let modelled = mean(&|seed| modelled(&scenario, seed));
            let ratio = rtp / modelled;
            println!(
                "{:6} {loss:5} {rtp:6.1} {modelled:9.1} {ratio:6.3}",
                2 * delay
            );
            assert!((ratio - 1.0).abs() < tolerance, "{ratio}");
        }
    }
}

fn scenario(control: &str, delay: u64, loss: f64) -> Scenario {
    let text = format!(
        r#"
        name = "alone"
        about = "One stream"
        duration = "70s"
        seed = 1
        [[link]]
        name = "there"
        rate = "8Mb/s"
        delay = "{delay}ms"
        loss = {loss:?}
        queue = {{ droptail = "50 packets" }}
        [[link]]
        name = "back"
        delay = "{delay}ms"
        [[flow]]
        name = "stream"
        path = ["there"]
        back = ["back"]
        control = {control}
        bulk = {{ packet = "1200B" }}
        "#
    );
    let scenario = Scenario::parse("alone.toml", &text, &|_| Err("no traces".to_owned()));
    scenario.unwrap_or_else(|error| panic!("{error}"))
}

fn over_rtp(scenario: &Scenario, seed: u64) -> f64 {
    let takes = play::scenario(scenario, Seed(seed), &|_, _, _| unreachable!(), &mut |_| {});
    let (_, _, packets) = takes.expect("it plays").remove(0).flows[0].1.rows();
    let counted = packets.iter().filter(|packet| {
        packet.outcome == PacketOutcome::Received && packet.sent >= Time::from_secs(10)
    });
    counted.count() as f64 / 60.0
}

fn modelled(scenario: &Scenario, seed: u64) -> f64 {
    let (there, flow) = (&scenario.links[0], &scenario.flows[0]);
    assert!(matches!(
        flow.media,
        MediaPlan::Bulk(BulkPlan { packet: SIZE, .. })
    ));
    let (delay, loss) = (there.delay, there.loss);
    let there = LinkConfig {
        loss,
        ..link(Rate::kbps(8_000), delay, 51)
    };
    let back = LinkConfig {
        delay,
        ..LinkConfig::default()
    };
    let mut lab = Lab::new(vec![("there", there), ("back", back)], &[&[0], &[1]], seed);
    let control = flow.control.clone().expect("a controller").modelled();
    let (sender, receiver) = ends(&control, SIZE);
    let controller = control.start(&start(&sender));
    lab.add(sender, controller, receiver, [0, 1]);
    lab.run(Time::from_secs(10));
    let before = lab.flows[0].receiver.packets();
    lab.run(Time::from_secs(70));
    (lab.flows[0].receiver.packets() - before) as f64 / 60.0
}

const SIZE: Bytes = Bytes(1_200);
