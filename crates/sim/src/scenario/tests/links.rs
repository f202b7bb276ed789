//! Queues, loss and jitter of links.

use tidegate_core::link::{
    CoDelConfig, DelayLaw, DualPi2Config, DualScheduler, FqCoDelConfig, GilbertElliott, Limit,
    Network, PriorityConfig, RedAdaptation, RedConfig, RedUnit, Spread,
};

use super::super::*;
use super::{GOOD, parse};
use crate::world::SimPacket;

/// Each row: a queue in the file, its configuration, and its text in the topology.
#[test]
fn queues_are_parsed_and_displayed() {
    let law = |target, ecn| DelayLaw {
        target: Duration::from_millis(target),
        ecn,
        ..DelayLaw::default()
    };
    let red = RedConfig {
        limit: 300,
        min_threshold: 9.375,
        max_threshold: 30.0,
        unit: RedUnit::Bytes,
        adaptation: Some(RedAdaptation::default()),
        ..RedConfig::default()
    };
    let auto = RedConfig {
        limit: 100,
        ..RedConfig::automatic(
            Rate::kbps(4_000),
            Duration::from_millis(40),
            Duration::from_millis(50),
            Bytes(500),
        )
    };
    for (text, meant, words) in [
        (
            r#"red = { min = "9.375 packets", max = "30 packets", limit = "300 packets", bytes = true, adaptive = true }"#,
            QueueConfig::Red(red),
            "red 9.375 to 30 of 300 packets, by bytes, adaptive",
        ),
        (
            r#"red = { auto = "50ms", limit = "100 packets", mean_packet = "500B" }"#,
            QueueConfig::Red(auto),
            "red 25 to 75 of 100 packets, by bytes",
        ),
        (
            r#"codel = { limit = "60kB", target = "10ms", ecn = true }"#,
            QueueConfig::CoDel(CoDelConfig {
                limit: Limit::Bytes(Bytes(60_000)),
                law: law(10, true),
            }),
            "codel 10ms in 100ms of 60 kB with ECN",
        ),
        (
            r#"fq_codel = { queues = 16, quantum = "300B", memory = "1MB", ecn = false }"#,
            QueueConfig::FqCoDel(FqCoDelConfig {
                queues: 16,
                quantum: Bytes(300),
                memory: Bytes(1_000_000),
                law: law(5, false),
                ..FqCoDelConfig::default()
            }),
            "fq_codel 5ms in 100ms of 10240 packets in 16 queues",
        ),
        (
            r#"dualpi2 = { target = "20ms", step = "800us", shift = "40ms", coupling = 1.5 }"#,
            QueueConfig::DualPi2(DualPi2Config {
                target: Duration::from_millis(20),
                step: Duration::from_micros(800),
                scheduler: DualScheduler::TimeShifted(Duration::from_millis(40)),
                coupling: 1.5,
                ..DualPi2Config::default()
            }),
            "dualpi2 20ms, 800µs of 10000 packets",
        ),
        (
            r#"priority = "1 packet""#,
            QueueConfig::Priority(PriorityConfig {
                limit: Limit::Packets(1),
            }),
            "priorities, droptail 1 packet",
        ),
    ] {
        let plan = parse(&GOOD.replace(r#"droptail = "60kB""#, text)).unwrap();
        assert_eq!(plan.links[0].queue, Some(meant));
        assert!(plan.topology().contains(words), "{}", plan.topology());
        let network =
            crate::topology::network(&plan, &crate::topology::flow_instances(&plan, plan.seed))
                .unwrap();
        assert!(Network::<SimPacket>::new(&network, plan.seed).is_ok());
    }
}

#[test]
fn properties_over_time_are_parsed_and_displayed() {
    let ms = Time::from_millis;
    let span = Duration::from_millis;
    let text = GOOD
        .replace(
            r#"[["0s", "4Mb/s"], ["20s", "1Mb/s"]]"#,
            r#"{ trace = "good.csv" }"#,
        )
        .replacen(r#"delay = "40ms""#, r#"delay = { trace = "good.csv" }"#, 1)
        .replace("loss = 0.001", r#"loss = { trace = "good.csv" }"#);
    let plan = parse(&text).unwrap();
    let link = &plan.links[0];
    let config = link.config().unwrap();
    let rate = |at| config.capacity.rate_at(ms(at)).unwrap();
    // The second repetition ends at 2 s.
    let (high, low) = (Rate::kbps(4_000), Rate::kbps(2_000));
    assert_eq!([0, 600, 1_200, 1_500].map(rate), [high, low, high, low]);
    assert_eq!(config.delay, span(20));
    let variation = config.delay_variation.unwrap();
    assert_eq!(
        [200, 1_700].map(|at| variation.at(ms(at))),
        [span(0), span(10)]
    );
    let LossConfig::Steps(losses) = &config.loss else {
        panic!("{:?}", config.loss);
    };
    assert!(losses.at(ms(400)) <= 0.0 && (losses.at(ms(1_600)) - 0.1).abs() < 1e-12);
    let info = &plan.link_infos()[0];
    // Half-seconds of a minute; the mean loss is that until the last step.
    assert_eq!(info.capacity.len(), 120);
    assert!((info.loss - 0.05).abs() < 0.001, "{}", info.loss);
    let shown = plan.topology();
    let words =
        "120 rates (mean 3.01 Mb/s); droptail 60 kB; delay 20ms to 30ms; loss 4.957983% over time";
    assert!(shown.contains(words), "{shown}");
    let hop = &plan.path_hops(&plan.flows[0])[0];
    assert_eq!(hop.variation[1], (ms(500), span(10)));

    let listed = GOOD
        .replacen(
            r#"delay = "40ms""#,
            r#"delay = [["0s", "90ms"], ["5s", "40ms"]]"#,
            1,
        )
        .replace(
            "loss = 0.001",
            r#"loss = [["0s", "1%"], ["10s", 1], ["12s", 0.0]]"#,
        );
    let plan = parse(&listed).unwrap();
    let config = plan.links[0].config().unwrap();
    assert_eq!(config.delay, span(40));
    assert_eq!(config.delay_variation.unwrap().at(ms(4_000)), span(50));
    // A total loss is an outage for the offline optimum.
    let hop = &plan.path_hops(&plan.flows[0])[0];
    assert_eq!(
        hop.outages,
        [(ms(10_000), ms(12_000)), (ms(50_000), ms(52_000))]
    );
    let same = parse(&GOOD.replacen(r#""40ms""#, r#"[["0s", "40ms"], ["1s", "40ms"]]"#, 1));
    assert_eq!(same.unwrap().links[0].delay_variation, None);
}

#[test]
fn loss_and_jitter_models_are_parsed_and_displayed() {
    let link = |text: &str| {
        let plan = parse(&GOOD.replace("loss = 0.001", text)).unwrap();
        let network =
            crate::topology::network(&plan, &crate::topology::flow_instances(&plan, plan.seed))
                .unwrap();
        assert!(Network::<SimPacket>::new(&network, plan.seed).is_ok());
        let shown = plan.topology();
        (plan.links[0].clone(), plan.link_infos()[0].loss, shown)
    };
    let (bursty, mean, shown) = link(r#"loss = { mean = "20%", burst = 5 }"#);
    let model = GilbertElliott::bursts(0.2, 5.0).unwrap();
    assert_eq!(bursty.loss, LossConfig::GilbertElliott(model));
    assert!((mean - 0.2).abs() < 1e-12, "{mean}");
    assert!(shown.contains("loss 20% in bursts of 5"), "{shown}");
    let (full, _, shown) =
        link(r#"loss = { to_bad = "1%", to_good = "25%", loss_bad = 0.5, loss_good = "0.1%" }"#);
    let model = GilbertElliott {
        to_bad: 0.01,
        to_good: 0.25,
        loss_good: 0.001,
        loss_bad: 0.5,
    };
    assert_eq!(full.loss, LossConfig::GilbertElliott(model));
    assert!(
        shown.contains("loss 0.1% or 50%, turns bad 1%, good 25%"),
        "{shown}"
    );
    let (uniform, _, shown) = link(r#"jitter = { max = "5ms" }"#);
    let spread = Spread::Uniform {
        max: Duration::from_millis(5),
    };
    let reorder = false;
    assert_eq!(uniform.jitter, Some(JitterConfig { spread, reorder }));
    assert!(
        shown.contains("jitter up to 5ms; ") || shown.contains("jitter up to 5ms\n"),
        "{shown}"
    );
    let (normal, _, shown) =
        link(r#"jitter = { mean = "4ms", deviation = "2ms", max = "9ms", reorder = true }"#);
    let spread = Spread::Normal {
        mean: Duration::from_millis(4),
        deviation: Duration::from_millis(2),
        max: Duration::from_millis(9),
    };
    let reorder = true;
    assert_eq!(normal.jitter, Some(JitterConfig { spread, reorder }));
    assert!(
        shown.contains("jitter 4ms +- 2ms up to 9ms, out of order"),
        "{shown}"
    );
}

/// Rows as in the table for whole files.
pub(super) const FAULTS: &[(&str, &str, &str)] = &[
    (
        r#"rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]"#,
        r#"rate = { trace = "bad.csv" }"#,
        r#"demo.toml:8: link "uplink": rate: trace: bad.csv: line 3: t_s 0 comes after 0: sort the rows and give each time once"#,
    ),
    (
        "loss = 0.001",
        r#"loss = { trace = "good.mahi" }"#,
        r#"demo.toml:10: link "uplink": loss: trace: good.mahi: line 1, `1`, is not the header: begin the file with t_s,mbps, t_s,mbps,rtt_ms or t_s,mbps,rtt_ms,loss"#,
    ),
    (
        "loss = 0.001",
        r#"loss = { trace = "good.csv", every = 5 }"#,
        r#"demo.toml:10: link "uplink": loss: every: a recording defines the loss completely; remove it, or trace"#,
    ),
    (
        "loss = 0.001",
        r#"loss = [["0s", "1%"], ["70s", "2%"]]"#,
        r#"demo.toml:10: link "uplink": loss: the step at 70s is not within the run of 60s; move it forward or lengthen the duration"#,
    ),
    (
        r#"delay = "40ms""#,
        r#"delay = [["1s", "40ms"]]"#,
        r#"demo.toml:9: link "uplink": delay: the first step is at 1s, so there is no delay before it; start the first step at "0s""#,
    ),
    (
        r#"delay = "40ms""#,
        r"delay = []",
        r#"demo.toml:9: link "uplink": delay: there is no step; write a delay from "0s" on"#,
    ),
    (
        r#"delay = "40ms""#,
        r#"delay = { trace = "none.csv" }"#,
        r#"demo.toml:9: link "uplink": delay: trace: cannot read none.csv: no such file; check the path"#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ mark_above = "60kB", priority = "60kB" }"#,
        r#"demo.toml:11: link "uplink": queue: mark_above: only a droptail queue has a marking threshold; remove it"#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ red = { auto = "5ms", min = "5 packets", limit = "120 packets" } }"#,
        r#"demo.toml:11: link "uplink": queue: red: min: auto computes min, max and weight; remove min or auto"#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ codel = { interval = "0s" } }"#,
        r#"demo.toml:11: link "uplink": queue: codel: interval: the interval is zero; write a time span above zero, as "400ms""#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ codel = { quantum = "1500B" } }"#,
        r#"demo.toml:11: link "uplink": queue: codel: quantum: no such key; "quantum" belongs in the fq_codel queue of a link; the keys here are limit, target, interval, max_packet, ecn"#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ fq_codel = { quantum = "100B" } }"#,
        r#"demo.toml:11: link "uplink": queue: fq_codel: quantum: 100 B is less than 256 B; write a size as "1514B""#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        "{ fq_codel = { queues = 0 } }",
        r#"demo.toml:11: link "uplink": queue: fq_codel: queues: 0 is out of range; write a whole number from 1 to 65536"#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ dualpi2 = { update = "1us" } }"#,
        r#"demo.toml:11: link "uplink": queue: dualpi2: update: an update interval of 1µs is below 100us; write a longer interval, as "16ms""#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        r#"{ dualpi2 = { shift = "30ms", classic_share = 0.1 } }"#,
        r#"demo.toml:11: link "uplink": queue: dualpi2: shift: a weighted scheduler has no time shift; write either classic_share = "10%" or shift = "30ms""#,
    ),
    (
        r#"{ droptail = "60kB" }"#,
        "{ dualpi2 = { coupling = -2 } }",
        r#"demo.toml:11: link "uplink": queue: dualpi2: coupling: -2 is out of range; write a number from 0 to 1000000, as 2"#,
    ),
    (
        "loss = 0.001",
        r#"loss = { mean = "90%", burst = 2 }"#,
        r#"demo.toml:10: link "uplink": loss: burst: bursts of 2 packets cannot lose a share of 0.9; write 9.001 or more"#,
    ),
    (
        "loss = 0.001",
        r#"loss = { mean = "100%", burst = 2 }"#,
        r#"demo.toml:10: link "uplink": loss: mean: the share of losses is 1; write a share below 1, as "1%""#,
    ),
    (
        "loss = 0.001",
        r#"loss = { mean = "1%" }"#,
        r#"demo.toml:10: link "uplink": loss: burst: is missing; add, for example, burst = 4"#,
    ),
    (
        "loss = 0.001",
        r#"loss = { mean = "1%", burst = 0.5 }"#,
        r#"demo.toml:10: link "uplink": loss: burst: 0.5 is out of range; write a number from 1 to 1000000000, as 4"#,
    ),
    (
        "loss = 0.001",
        r#"loss = { mean = "1%", burst = 2, to_bad = "1%" }"#,
        r#"demo.toml:10: link "uplink": loss: to_bad: mean and burst define the model completely; write either mean and burst, or to_bad, to_good, loss_bad and loss_good"#,
    ),
    (
        "loss = 0.001",
        r#"loss = { to_bad = "1%" }"#,
        r#"demo.toml:10: link "uplink": loss: to_good: is missing; add, for example, to_good = "25%""#,
    ),
    (
        "loss = 0.001",
        r#"jitter = { max = "5ms", mean = "6ms", deviation = "1ms" }"#,
        r#"demo.toml:10: link "uplink": jitter: mean: the mean, 6ms, is above the longest delay, 5ms; lower it or raise max"#,
    ),
    (
        "loss = 0.001",
        r#"jitter = { max = "5ms", mean = "4ms" }"#,
        r#"demo.toml:10: link "uplink": jitter: deviation: is missing; add, for example, deviation = "2ms""#,
    ),
    (
        "loss = 0.001",
        r#"jitter = "5ms""#,
        r#"demo.toml:10: link "uplink": jitter: is a text; write { max = "5ms" } or { mean = "5ms", deviation = "2ms", max = "20ms" }"#,
    ),
];

/// `links` with a flow over "a" and back over "b".
fn with_links(links: &str) -> String {
    format!(
        "name = \"demo\"\nduration = \"5s\"\n{links}[[flow]]\nname = \"f\"\npath = [\"a\"]\n\
         back = [\"b\"]\ntcp = {{ kind = \"cubic\" }}\n"
    )
}

#[test]
fn duplex_link_may_be_used_in_one_direction() {
    let plan = parse(&with_links(
        "[[link]]\nname = \"a\"\nduplex = true\n[[link]]\nname = \"b\"\n",
    ));
    assert_eq!(plan.unwrap().links.len(), 3);
}

#[test]
fn unused_link_is_named_after_duplex_links() {
    let idle = "[[link]]\nname = \"idle\"\nduplex = true\n";
    let text = with_links(&format!(
        "[[link]]\nname = \"a\"\nduplex = true\n[[link]]\nname = \"b\"\n{idle}"
    ));
    assert_eq!(
        parse(&text).unwrap_err().to_string(),
        "demo.toml:8: link: no flow uses the link \"idle\"; name it in the path or back of a \
         flow, or remove it"
    );
}

/// Each row: a queue that is too small for a media packet of 1200 bytes, and the error.
#[test]
fn queue_smaller_than_a_packet_is_rejected() {
    let small = |limit, kind| {
        let holds = if limit == 1 { "holds" } else { "hold" };
        format!(
            "demo.toml:11: link \"uplink\": queue: {kind}: {limit} B {holds} no packet of 1200 B, \
             which the flow \"tidegate\" sends; increase the queue size, as \"60kB\""
        )
    };
    for (queue, message) in [
        ("droptail = \"1B\"", small(1, "droptail")),
        ("droptail = \"1199B\"", small(1_199, "droptail")),
        ("priority = \"999B\"", small(999, "priority")),
        ("codel = { limit = \"999B\" }", small(999, "codel: limit")),
        ("dualpi2 = { limit = \"999B\" }", small(999, "dualpi2: limit")),
        (
            "red = { min = \"5 packets\", max = \"20 packets\", limit = \"4 packets\" }",
            "demo.toml:11: link \"uplink\": queue: red: limit: a queue of 4 packets never reaches min \
             (5); set limit above max"
                .to_owned(),
        ),
        (
            "red = { min = \"5 packets\", max = \"20 packets\", limit = \"1 packets\" }",
            "demo.toml:11: link \"uplink\": queue: red: limit: a queue of 1 packet never reaches min \
             (5); set limit above max"
                .to_owned(),
        ),
    ] {
        let error = parse(&GOOD.replace("droptail = \"60kB\"", queue)).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let fits = "droptail = \"1200B\"";
    assert!(parse(&GOOD.replace("droptail = \"60kB\"", fits)).is_ok());
}

#[test]
fn queues_of_all_routes_are_checked() {
    let links = |back: &str| {
        format!(
            "[[link]]\nname = \"a\"\n[[link]]\nname = \"b\"\nrate = \"1Mb/s\"\n\
             queue = {{ droptail = \"{back}\" }}\n"
        )
    };
    assert_eq!(
        parse(&with_links(&links("39B"))).unwrap_err().to_string(),
        "demo.toml:8: link \"b\": queue: droptail: 39 B hold no packet of 40 B, which the flow \"f\" \
         sends; increase the queue size, as \"60kB\""
    );
    let text = with_links(&links("40B"));
    assert!(parse(&text).is_ok());
    let own = "access = { rate = \"1Mb/s\", queue = { droptail = \"1499B\" } }";
    assert_eq!(
        parse(&format!("{text}{own}\n")).unwrap_err().to_string(),
        "demo.toml:14: flow \"f\": access: queue: droptail: 1499 B hold no packet of 1500 B, which \
         the flow \"f\" sends; increase the queue size, as \"60kB\""
    );
}
