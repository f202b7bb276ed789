//! Cluster-to-cluster applications beside TFRC flows at one bottleneck.

use core::time::Duration;

use tidegate_core::random::Seed;
use tidegate_sim::runner::{self, Keep};
use tidegate_sim::scenario::Scenario;

/// With these keys of the points: throughput of a flowshare and of a competing flow in b/s: 24 flows with so many flowshares beside
/// 24 TFRC flows, as in Figures 7 and 10 of the paper.
fn shares(shares: u32, keys: &str) -> (f64, f64) {
    let text = format!("{HEAD}{keys}\n{FLOWS}shares = {shares} }}\n");
    let scenario = Scenario::parse("cp", &text, &|_| Err("no files".to_owned()));
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let keep = Keep {
        bin: Duration::from_secs(10),
        ..Keep::default()
    };
    let encoder = |_: &str, _: &_, _| unreachable!("no flow has video");
    let run = runner::flows(&scenario, Seed(1), keep, &encoder).unwrap();
    let total = |class: &str| -> f64 {
        let flows = run.flows.iter().enumerate();
        let flows = flows.filter(|(_, (flow, _))| flow.class == class);
        let rate = |n: usize| {
            let totals = run.meter.totals(n);
            totals.received.bytes.bits() as f64 / totals.span.as_secs_f64()
        };
        flows.map(|(n, _)| rate(n)).sum()
    };
    (total("cluster") / f64::from(shares), total("other") / 24.0)
}

#[test]
fn flowshares_by_bfld_are_fair_to_as_many_flows() {
    for number in [1, 8, 24] {
        let (own, other) = shares(number, "sampling = \"bfld\"");
        let number = f64::from(number);
        let fair = (own * number + other * 24.0) / (number + 24.0);
        for share in [own / fair, other / fair] {
            assert!((0.85..1.15).contains(&share), "{number}: {share}");
        }
    }
}

/// With more flowshares it falls short, see the results of Figure 10.
#[test]
fn two_flowshares_by_multfrc_are_fair() {
    let keys = "sampling = \"all\"\ncontrol = { tfrc = { flavour = \"multfrc\" } }";
    let (own, other) = shares(2, keys);
    let ratio = own / other;
    assert!((0.85..1.15).contains(&ratio), "{ratio}");
}

#[test]
fn naive_flowshares_starve_other_flows() {
    let (own, other) = shares(24, "sampling = \"all\"\ncircuit_breaker = false");
    assert!(other < 0.1 * own, "{other} beside {own}");
}

#[test]
fn circuit_breaker_stops_naive_flowshares() {
    let (own, other) = shares(24, "sampling = \"all\"");
    assert!(other > 5.0 * own, "{other} beside {own}");
}

const HEAD: &str = r#"name = "cp"
duration = "120s"
measure = ["20s", "120s"]
[[link]]
name = "there"
rate = "15Mb/s"
delay = "50ms"
queue = { red = { auto = "5ms", limit = "300 packets" } }
[[link]]
name = "back"
rate = "15Mb/s"
delay = "50ms"
queue = { droptail = "300 packets" }
[[aggregation]]
name = "sites"
"#;

const FLOWS: &str = r#"[[flow]]
name = "other"
count = 24
path = ["there"]
back = ["back"]
start = ["0s", "5s"]
control = "tfrc"
bulk = { packet = "1000B", overhead = "1ms" }
[[flow]]
name = "cluster"
count = 24
path = ["there"]
back = ["back"]
access = { rate = "100Mb/s", delay = "1ms" }
exit = { rate = "100Mb/s", delay = ["1ms", "10ms"] }
start = ["0s", "5s"]
cp = { points = "sites", packet = "1000B", overhead = "1ms", "#;
