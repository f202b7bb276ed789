//! Scenarios with extreme rates and times: from one bit to a terabit per second, from a microsecond
//! to an hour. No run divides by zero, overflows, panics or fails to terminate. Where a rate
//! determines the number of packets, that number is sent.

use proptest::prelude::*;
use tidegate_core::media::FrameEncoder;
use tidegate_core::random::Seed;
use tidegate_sim::runner::{self, Keep, RunResult};
use tidegate_sim::scenario::{Scenario, VideoPlan};

/// Runs one kind of flow over links of this rate and delay for `lasts`, and then packets in flight
/// for the maximum duration of a scenario.
fn play(flow: &str, rate: &str, delay: &str, lasts: &str, seed: u64) -> RunResult {
    let queue = "queue = { droptail = \"60kB\" }";
    let link = format!("rate = \"{rate}\"\ndelay = \"{delay}\"\n{queue}");
    play_over(&link, flow, lasts, seed)
}

/// The same over links of any kind in both directions.
fn play_over(link: &str, flow: &str, lasts: &str, seed: u64) -> RunResult {
    let text = format!(
        r#"name = "t"
duration = "24h"
[[link]]
name = "there"
{link}
[[link]]
name = "back"
{link}
[[flow]]
name = "flow"
path = ["there"]
back = ["back"]
stop = "{lasts}"
{flow}
"#
    );
    let none = |_: &str| Err("no files here".to_owned());
    let scenario = Scenario::parse("t", &text, &none).unwrap_or_else(|e| panic!("{text}{e}"));
    let encoder = |flow: &str, plan: &VideoPlan, seed| -> Result<Box<dyn FrameEncoder>, _> {
        Ok(plan.modelled(flow, seed).expect("the model"))
    };
    let take = runner::flows(&scenario, Seed(seed), Keep::default(), &encoder);
    let take = take.unwrap_or_else(|error| panic!("{text}{error}"));
    for flow in 0..take.flows.len() {
        let totals = take.meter.totals(flow);
        let (sent, ends) = (totals.sent, totals.received.packets + totals.dropped);
        assert!(ends <= sent.packets, "{text}{totals:?}");
        assert!(totals.delay_min <= totals.delay_max, "{text}{totals:?}");
        let rate = totals.receive_rate().as_f64();
        assert!(rate.is_finite(), "{text}{totals:?}");
    }
    take
}

const RATES: [&str; 4] = ["1b/s", "1kb/s", "1Gb/s", "1000Gb/s"];
const DELAYS: [&str; 3] = ["1us", "1s", "1h"];

fn one_of(list: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(list)
}

/// A rate, and a time in which it sends some thousands of packets, or a day.
fn pace() -> impl Strategy<Value = (&'static str, &'static str)> {
    let paces: &[(&str, &str)] = &[
        ("1b/s", "24h"),
        ("1kb/s", "3h"),
        ("1Gb/s", "20ms"),
        ("1000Gb/s", "20us"),
    ];
    prop::sample::select(paces)
}

/// A limit for greedy flows in `stop`, independent of the capacity: at most 10,000 packets.
fn greedy() -> impl Strategy<Value = (&'static str, &'static str)> {
    let loads: &[(&str, &str)] = &[
        ("limit = \"2MB\"", "24h"),
        ("demand = \"1b/s\"", "24h"),
        ("demand = \"1000Gb/s\"", "50us"),
        (
            "demand = [[\"0s\", \"1000Gb/s\"], [\"40us\", \"1b/s\"]]",
            "24h",
        ),
        ("overhead = \"1h\", limit = \"10kB\"", "2h"),
    ];
    prop::sample::select(loads)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn streams_without_control(
        link in (one_of(&RATES), one_of(&DELAYS)),
        (rate, lasts) in pace(),
        packet in one_of(&["128B", "1500B"]),
        spacing in one_of(&[
            "spacing = \"constant\"",
            "jitter = 1.0",
            "spacing = \"poisson\"",
            "spacing = { on = \"1us\", off = \"1us\" }",
            "spacing = { on = \"1h\", off = \"1us\", shape = 1.01 }",
            "spacing = { on = \"10us\", off = \"1h\", shape = 100 }",
        ]),
        ecn in one_of(&["", "ecn = \"ect0\"\n", "ecn = \"ect1\"\n"]),
        seed in 0_u64..1_000,
    ) {
        // Bursts of a microsecond for hours would be billions of bursts.
        prop_assume!(!(spacing.contains("1us\", off = \"1us") && lasts.ends_with('h')));
        let udp = format!("{ecn}udp = {{ rate = \"{rate}\", packet = \"{packet}\", {spacing} }}");
        let take = play(&udp, link.0, link.1, lasts, seed);
        let sent = take.meter.totals(0).sent.packets as f64;
        let bits = match (rate, lasts) {
            ("1b/s", _) => 86_400.0,
            ("1kb/s", _) => 10_800e3,
            _ => 20e6,
        };
        let even = bits / if packet == "128B" { 1_024.0 } else { 12_000.0 };
        if spacing.contains("constant") {
            // The first packet leaves immediately, and the last one before the flow stops.
            prop_assert!((sent - even - 0.5).abs() <= 0.5, "{} {} {}", udp, sent, even);
        } else if !spacing.contains("on") {
            let off = 6.0 * even.sqrt() + 1.0;
            prop_assert!((sent - even).abs() <= off, "{} {} {}", udp, sent, even);
        }
    }

    #[test]
    fn flows_that_a_controller_paces(
        link in (one_of(&RATES), one_of(&DELAYS)),
        control in one_of(&[
            "\"tfrc\"",
            "{ tfrc = { damping = true } }",
            "{ tfrc = { flavour = \"rfc3448\" } }",
            "\"rap\"",
            "{ rap = { fine_grain = true } }",
        ]),
        (load, lasts) in greedy(),
        packet in one_of(&["100B", "1500B"]),
        seed in 0_u64..1_000,
    ) {
        let flow = format!("control = {control}\nbulk = {{ packet = \"{packet}\", {load} }}");
        let take = play(&flow, link.0, link.1, lasts, seed);
        if load.contains("1b/s") && !load.contains("Gb/s") {
            let bits = if packet == "100B" { 800.0 } else { 12_000.0 };
            prop_assert!(take.meter.totals(0).sent.packets as f64 <= 86_400.0 / bits + 1.0);
        } else {
            prop_assert!(take.meter.totals(0).sent.packets > 0);
        }
    }

    /// TCP models with all recovery algorithms, and a writing application.
    #[test]
    fn tcp(
        link in (one_of(&RATES), one_of(&DELAYS)),
        (load, lasts) in prop::sample::select(&[
            ("limit = \"300kB\"", "24h"),
            ("limit = \"300kB\", buffer = \"1500B\"", "24h"),
            ("demand = \"1b/s\"", "24h"),
            ("demand = \"1000Gb/s\"", "50us"),
            ("demand = \"1000Gb/s\", buffer = \"1500B\"", "20ms"),
            ("demand = [[\"0s\", \"1Gb/s\"], [\"1ms\", \"0b/s\"], [\"10ms\", \"1b/s\"]], buffer = \"64kB\"", "1h"),
            ("buffer = \"4MB\"", "20us"),
        ][..]),
        kind in one_of(&[
            "kind = \"reno\"",
            "kind = \"sack\", packet = \"100B\"",
            "kind = \"cubic\"",
            "kind = \"cubic\", recovery = \"duplicates\", hystart = false",
            "kind = \"cubic\", tail_probes = false, pacing = true",
            "kind = \"linux-reno\", recovery = \"duplicates\", pacing = true",
            "kind = \"bbr\", recovery = \"duplicates\"",
        ]),
        seed in 0_u64..1_000,
    ) {
        let flow = format!("tcp = {{ {kind}, {load}, window = \"100 packets\" }}");
        let take = play(&flow, link.0, link.1, lasts, seed);
        let totals = take.meter.totals(0);
        prop_assert!(totals.sent.packets > 0);
        // A transfer with sufficient time completes: from once per day, a path takes years.
        let ends = link.0 != "1b/s" && link.1 != "1h" && load.contains("limit");
        if ends && link.0 != "1kb/s" {
            prop_assert!(totals.received.bytes.get() >= 300_000, "{} {:?}", flow, totals);
        }
    }

    #[test]
    fn fixed_rates(
        link in (one_of(&RATES), one_of(&DELAYS)),
        (rate, lasts) in pace(),
        packet in one_of(&["100B", "1500B"]),
        seed in 0_u64..1_000,
    ) {
        let flow = format!("control = {{ fixed = \"{rate}\" }}\nbulk = {{ packet = \"{packet}\" }}");
        let take = play(&flow, link.0, link.1, lasts, seed);
        prop_assert!(take.meter.totals(0).sent.packets > 0);
    }

    #[test]
    fn browsers(
        link in (one_of(&RATES), one_of(&DELAYS)),
        (think, lasts) in prop::sample::select(&[
            ("think = \"1us\"", "2ms"),
            ("think = \"1h\"", "2h"),
            ("load = \"1b/s\"", "24h"),
            ("load = \"1000Gb/s\"", "50ms"),
        ][..]),
        size in one_of(&["page = \"1B\"", "page = \"1MB\"", "objects = 1000, object = \"1B\"", "objects = 3"]),
        connections in one_of(&["page", "object", "at-once"]),
        begin in one_of(&["page", "thinking"]),
        tcp in one_of(&["packet = \"100B\"", "packet = \"1500B\", min_rto = \"10ms\", tick = \"1us\""]),
        seed in 0_u64..1_000,
    ) {
        // The retransmission timer of the ns-2 models runs while idle: nine million times per day
        // and connection.
        prop_assume!(!(tcp.contains("10ms") && lasts.ends_with('h')));
        let flow = format!(
            "count = 2\nweb = {{ {think}, {size}, connections = \"{connections}\", begin = \"{begin}\", \
             tcp = {{ kind = \"sack\", {tcp} }} }}"
        );
        play(&flow, link.0, link.1, lasts, seed);
    }

    #[test]
    fn video(
        link in (one_of(&RATES), one_of(&DELAYS)),
        (control, ceiling, lasts) in prop::sample::select(&[
            ("control = \"tfrc\"", "1Gb/s", "300ms"),
            ("control = \"rap\"", "1Gb/s", "300ms"),
            ("control = { fixed = \"1b/s\" }", "1Gb/s", "10s"),
            ("control = { fixed = \"1000Gb/s\" }", "1000Gb/s", "1ms"),
            ("control = \"tfrc\"", "1b/s", "10s"),
            ("transport = { tcp = \"sack\", mode = \"iopt\" }", "1Gb/s", "300ms"),
            ("transport = { tcp = \"cubic\", mode = \"iexp\" }", "1b/s", "10s"),
            ("transport = { tcp = \"prague\", mode = \"iopt\" }", "1Gb/s", "300ms"),
        ][..]),
        (bound, fps) in (one_of(&["1us", "1h"]), one_of(&["1", "240"])),
        seed in 0_u64..1_000,
    ) {
        let video = format!(
            "{control}\ndelay_bound = \"{bound}\"\n\
             video = {{ size = \"16x16\", fps = {fps}, floor = \"1b/s\", ceiling = \"{ceiling}\" }}"
        );
        play(&video, link.0, link.1, lasts, seed);
    }

    /// Queues controlled by time, rate or share, with extreme parameters.
    #[test]
    fn queues(
        (rate, delay) in (one_of(&RATES), one_of(&DELAYS)),
        queue in one_of(&[
            "droptail = \"1 packets\"",
            "droptail = \"60kB\", mark_above = \"1B\"",
            "priority = \"60kB\"",
            "red = { min = \"0.001 packets\", max = \"0.002 packets\", limit = \"1 packets\", max_p = 1.0, weight = 1.0 }",
            "red = { min = \"1 packets\", max = \"1000000 packets\", limit = \"1000000 packets\", weight = 0.000001, gentle = false }",
            "red = { min = \"5 packets\", max = \"20 packets\", limit = \"60 packets\", mean_packet = \"100B\", bytes = true, adaptive = true }",
            "red = { auto = \"1us\", limit = \"100 packets\" }",
            "codel = { target = \"1us\", interval = \"1us\" }",
            "codel = { target = \"1h\", interval = \"1h\", max_packet = \"1B\", ecn = true }",
            "fq_codel = { target = \"1us\", interval = \"1h\", quantum = \"256B\", queues = 1 }",
            "fq_codel = { limit = \"1 packets\", memory = \"3kB\", queues = 65536 }",
            "dualpi2 = { target = \"1us\", update = \"100us\", step = \"1us\" }",
            "dualpi2 = { target = \"1h\", update = \"1h\", step = \"1h\", shift = \"1h\" }",
            "dualpi2 = { integral = 1000000, proportional = 1000000, coupling = 1000, overload = 1.0 }",
        ]),
        more in one_of(&[
            "",
            "jitter = { mean = \"1us\", deviation = \"1us\", max = \"2us\" }",
            "jitter = { mean = \"1h\", deviation = \"1h\", max = \"2h\", reorder = true }",
            "loss = { to_bad = 0.000001, to_good = 0.000001, loss_bad = 1.0, loss_good = 0.0 }",
        ]),
        flow in one_of(&[
            "control = \"tfrc\"\nbulk = { packet = \"1500B\", limit = \"300kB\" }",
            "control = \"rap\"\nbulk = { packet = \"100B\", limit = \"30kB\" }",
            "ecn = true\ntcp = { kind = \"cubic\", packet = \"1500B\", limit = \"300kB\" }",
            "tcp = { kind = \"bbr\", packet = \"1500B\", limit = \"300kB\" }",
            "tcp = { kind = \"prague\", packet = \"1500B\", limit = \"300kB\" }",
            "ecn = false\ntcp = { kind = \"prague\", packet = \"100B\", delayed_ack = \"1h\", limit = \"20kB\" }",
            "ecn = \"ect1\"\nudp = { rate = [[\"0s\", \"1b/s\"], [\"1ms\", \"1Gb/s\"], [\"2ms\", \"1b/s\"]] }",
        ]),
        seed in 0_u64..1_000,
    ) {
        let link = format!("rate = \"{rate}\"\ndelay = \"{delay}\"\nqueue = {{ {queue} }}\n{more}");
        let take = play_over(&link, flow, "24h", seed);
        prop_assert!(take.meter.totals(0).sent.packets > 0);
    }
}
