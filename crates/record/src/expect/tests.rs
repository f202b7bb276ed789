use super::super::manifest::{Manifest, World};
use super::super::metrics::PacketDelaySummary;
use super::*;

fn empty_run() -> Run {
    Run::new(
        std::path::Path::new("none"),
        Manifest::new(World::Sim, "s", core::time::Duration::ZERO),
    )
}

fn judge(text: &str, flows: Vec<FlowSummary>) -> Verdict {
    let run = empty_run();
    let summary = Summary {
        flows,
        ..Summary::default()
    };
    let expectation: Expectation = text.parse().expect(text);
    expectation.judge(&run, &summary)
}

fn flow(name: &str, rate: f64) -> FlowSummary {
    FlowSummary {
        name: name.to_owned(),
        rate_bps: Some(rate),
        ..FlowSummary::default()
    }
}

#[test]
fn comparison_operators() {
    let cases = [
        ("a.rate_bps >= 100", true),
        ("a.rate_bps > 100", false),
        ("a.rate_bps<=100", true),
        ("a.rate_bps < 1e3", true),
        ("a.rate_bps == 100.0", true),
        ("a.rate_bps == 101", false),
        ("a.rate_bps > b.rate_bps", true),
        ("a.rate_bps >= 3 * b.rate_bps", false),
        ("a.rate_bps >= 2 * b.rate_bps", true),
    ];
    for (text, holds) in cases {
        let verdict = judge(text, vec![flow("a", 100.0), flow("b", 50.0)]);
        assert_eq!(
            (verdict.holds, verdict.measured),
            (holds, Some(100.0)),
            "{text}"
        );
        assert_eq!(verdict.text, text);
    }
}

#[test]
fn expectations_on_unrecorded_metrics_fail() {
    for text in ["a.psnr_y_db > 0", "b.rate_bps > 0", "link.x.drops == 0"] {
        let verdict = judge(text, vec![flow("a", 1.0)]);
        assert_eq!((verdict.measured, verdict.holds), (None, false), "{text}");
    }
}

#[test]
fn every_metric_is_known_to_the_evaluation() {
    use super::super::metrics::{DelaySummary, FrameSummary, QueueSummary};
    let flow = FlowSummary {
        class: "a".to_owned(),
        name: "a".to_owned(),
        control: String::new(),
        rate_bps: Some(1.0),
        receive_bps: Some(1.0),
        loss: Some(1.0),
        loss_event_rate: Some(1.0),
        rtt_ms: Some(1.0),
        completion_s: Some(1.0),
        packet_delay_ms: PacketDelaySummary {
            mean: Some(1.0),
            p50: Some(1.0),
            p95: Some(1.0),
            p99: Some(1.0),
            max: Some(1.0),
        },
        delay_ms: DelaySummary {
            p50: Some(1.0),
            p95: Some(1.0),
            p99: Some(1.0),
            max: Some(1.0),
        },
        queue_ms: QueueSummary {
            mean: Some(1.0),
            p95: Some(1.0),
        },
        frames: FrameSummary {
            made: Some(1),
            sent: Some(1),
            on_time: Some(1),
            savable: Some(1),
            late: Some(1),
            dropped: Some(1),
        },
        psnr_y_db: Some(1.0),
        ssim: Some(1.0),
        freezes: Some(1),
    };
    for metric in FLOW_METRICS.iter().filter(|m| **m != "on_time_of_savable") {
        let value = flow_metric(&empty_run(), &flow, metric);
        assert_eq!(value, Some(1.0), "{metric}");
    }
    let link = LinkSummary {
        name: String::new(),
        utilisation: Some(1.0),
        drops: Some(1),
        drops_queue: Some(1),
        drops_random: Some(1),
        drops_outage: Some(1),
        marks: Some(1),
        queue_p95_ms: Some(1.0),
    };
    for metric in LINK_METRICS {
        assert_eq!(link_metric(&link, metric), Some(1.0), "{metric}");
    }
}

#[test]
fn errors_name_the_fault_and_the_fix() {
    for text in [
        "a.rate_bps => 3",
        "",
        "a.loss",
        "a.loss = 3",
        "loss < 3",
        "a.loss < b * 3",
        "1 < a.loss",
    ] {
        let error = text.parse::<Expectation>().expect_err(text).to_string();
        assert!(
            error.starts_with(&format!("{text:?} is not a valid expectation")),
            "{error}"
        );
    }
    let error = "a.lost < 3".parse::<Expectation>().expect_err("no metric");
    let error = error.to_string();
    assert!(
        error.contains("\"lost\"") && error.contains("on_time_of_savable"),
        "{error}"
    );
    let error = "link.l.loss < 3"
        .parse::<Expectation>()
        .expect_err("no metric");
    assert!(error.to_string().contains("queue_p95_ms"), "{error}");
}

#[test]
fn number_with_unit_is_rejected_with_its_plain_value() {
    for (text, fix) in [
        (
            "a.rate_bps >= 5Mb/s",
            "\"5Mb/s\" is not a plain number, and rate_bps is in bits per second; write 5000000",
        ),
        (
            "a.delay_ms.p99 <= 0.4s",
            "\"0.4s\" is not a plain number, and delay_ms.p99 is in milliseconds; write 400",
        ),
        (
            "a.loss <= 5%",
            "\"5%\" is not a plain number, and loss is a share from 0 to 1; write 0.05",
        ),
        (
            "link.l.drops < 10 packets",
            "\"10 packets\" is not a plain number, and drops is a count; write 10",
        ),
        (
            "a.rate_bps >= 5Mbps",
            "\"5Mbps\" is not a plain number, and rate_bps is in bits per second; write 5000000",
        ),
        (
            "a.rate_bps >= 5,000,000",
            "\"5,000,000\" is not a plain number, and rate_bps is in bits per second; write one, \
                 as 2000000",
        ),
    ] {
        let error = text.parse::<Expectation>().expect_err(text).to_string();
        assert_eq!(error, format!("{text:?}: {fix}"));
    }
}

#[test]
fn names_are_checked_against_the_scenario() {
    let text = "a.loss <= link.l.utilisation";
    let expectation: Expectation = text.parse().expect(text);
    assert_eq!(expectation.check(&["a"], &["l"]), Ok(()));
    let error = expectation.check(&["a"], &["m"]).expect_err("no such link");
    assert!(error.to_string().contains("\"l\"; use one of m"), "{error}");
}
