//! Flows with ECT(1): Prague and CUBIC in the two queues of `DualPI2` (RFC 9332), Prague on a path
//! without marks, and a flow without rate control.

use core::time::Duration;
use std::path::Path;

use tidegate_core::control::Ecn;
use tidegate_core::media::EncodeError;
use tidegate_core::random::Seed;
use tidegate_sim::runner::{self, Keep, RunResult};
use tidegate_sim::scenario::{MediaPlan, Scenario};

fn play(scenario: &Scenario, seed: u64) -> RunResult {
    let no_video = |_: &str, _: &_, _| Err(EncodeError::Source("no video here".to_owned()));
    runner::flows(scenario, Seed(seed), Keep::default(), &no_video).unwrap()
}

/// The scenario `l4s.toml`, with text replacements.
fn l4s(changes: &[(&str, &str)]) -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/l4s.toml");
    let mut text = std::fs::read_to_string(file).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    Scenario::parse("l4s", &text, &|_| Err(String::new())).unwrap_or_else(|e| panic!("{e}"))
}

/// Queueing delay: beyond the propagation of 10 ms and the transmission time of 0.3 ms, as mean and
/// 99th percentile.
fn queueing(take: &RunResult, flow: usize) -> (f64, f64) {
    let totals = take.meter.totals(flow);
    let ms = |delay: Duration| delay.as_secs_f64() * 1e3 - 10.3;
    (ms(totals.delay_mean), ms(totals.delay_p99))
}

fn mbps(take: &RunResult, flow: usize) -> f64 {
    take.meter.totals(flow).receive_rate().as_f64() / 1e6
}

/// With the base probability p', Prague receives marks with 2p' and CUBIC with p'². CUBIC then has
/// 1.22 / p' segments per round trip of 35 ms. Prague grows by a segment per 25 ms and decreases by
/// p' of its rate in 25 ms and half the interval to the next mark: about 1.4 times as much. So a
/// share between a third and two thirds is expected from both control laws. The low-latency queue
/// marks from 1 ms on; the delay of the other queue is held at 15 ms.
#[test]
fn prague_and_cubic_share_the_rate_with_separate_delays() {
    let scenario = l4s(&[]);
    for seed in 1..=10 {
        let take = play(&scenario, seed);
        let (prague, cubic) = (mbps(&take, 0), mbps(&take, 1));
        let share = prague / (prague + cubic);
        assert!((0.35..0.67).contains(&share), "{seed}: {prague} {cubic}");
        assert!(prague + cubic > 0.98 * 40.0, "{seed}: {prague} {cubic}");
        let (mean, most) = queueing(&take, 0);
        assert!(mean < 0.5 && most < 1.0, "{seed}: {mean} {most}");
        let (mean, most) = queueing(&take, 1);
        assert!((12.0..17.0).contains(&mean), "{seed}: {mean}");
        assert!(most < 30.0, "{seed}: {most}");
        assert_eq!(take.meter.totals(0).dropped, 0, "{seed}");
        assert!(take.meter.totals(1).dropped > 0, "{seed}");
    }
}

/// Without ECT(1) all packets are in one queue with one delay.
#[test]
fn prague_without_ect1_shares_the_classic_queue() {
    let take = play(
        &l4s(&[("\"prague\" }\n", "\"prague\" }\necn = false\n")]),
        1,
    );
    let ((prague, _), (cubic, _)) = (queueing(&take, 0), queueing(&take, 1));
    assert!((prague - cubic).abs() < 1.0, "{prague} {cubic}");
    assert!(
        prague > 10.0 && take.meter.totals(0).dropped > 0,
        "{prague}"
    );
}

/// Without marks Prague has losses, and halves its window as Reno, which fills a link with a queue
/// of one bandwidth-delay product.
#[test]
fn prague_without_marks_behaves_as_reno() {
    let queue = ("dualpi2 = {}", "droptail = \"67 packets\"");
    let scenario = l4s(&[
        queue,
        ("\"cubic\" }", "\"linux-reno\" }\nstop = \"1500ms\""),
    ]);
    let take = play(&scenario, 1);
    let prague = mbps(&take, 0);
    assert!(prague > 0.95 * 40.0, "{prague}");
    assert!((1..200).contains(&take.meter.totals(0).dropped));
}

/// Acknowledgements of every second segment report all marks, so the results hardly change.
#[test]
fn delayed_acknowledgements_change_little() {
    let delayed = ("\"prague\" }", "\"prague\", delayed_ack = \"40ms\" }");
    let (every, other) = (play(&l4s(&[]), 1), play(&l4s(&[delayed]), 1));
    let (every, other) = (mbps(&every, 0), mbps(&other, 0));
    assert!((every / other - 1.0).abs() < 0.15, "{every} {other}");
}

/// Traffic without rate control may also have ECT(1): 5 Mb/s of it wait for at most a millisecond.
#[test]
fn uncontrolled_flow_with_ect1_uses_the_low_latency_queue() {
    let prague = "tcp = { kind = \"prague\" }";
    for (ecn, range) in [
        ("off", 10.0..20.0),
        ("ect0", 10.0..20.0),
        ("ect1", 0.0..1.0),
    ] {
        let udp = format!("udp = {{ rate = \"5Mb/s\" }}\necn = \"{ecn}\"");
        let (mean, _) = queueing(&play(&l4s(&[(prague, &udp)]), 1), 0);
        // The transmission of a packet of 1000 bytes takes 0.1 ms less.
        assert!(range.contains(&(mean + 0.1)), "{ecn}: {mean}");
    }
}

#[test]
fn ecn_codepoint_must_match_the_sender() {
    let codepoint = |sender: &str| {
        let text = format!(
            "name = \"t\"\nduration = \"5s\"\n[[link]]\nname = \"l\"\n[[link]]\nname = \"m\"\n[[flow]]\n\
             name = \"f\"\npath = [\"l\"]\nback = [\"m\"]\n{sender}\n"
        );
        let scenario = Scenario::parse("t", &text, &|_| Err(String::new()));
        scenario
            .map(|mut s| s.flows.remove(0))
            .map_err(|e| e.to_string())
    };
    let prague = "tcp = { kind = \"prague\" }";
    let bulk = "control = \"tfrc\"\nbulk = { packet = \"1200B\" }";
    let video = "video = { fps = 30 }\ndelay_bound = \"1s\"\ntransport = { tcp = \"prague\", mode = \"iopt\" }";
    for (sender, want) in [
        (prague.to_owned(), Ecn::Ect1),
        (format!("{prague}\necn = true"), Ecn::Ect1),
        (format!("{prague}\necn = \"ect1\""), Ecn::Ect1),
        (format!("{prague}\necn = false"), Ecn::NotEct),
        (video.to_owned(), Ecn::Ect1),
        ("tcp = { kind = \"cubic\" }".to_owned(), Ecn::NotEct),
        (
            "tcp = { kind = \"cubic\" }\necn = true".to_owned(),
            Ecn::Ect0,
        ),
        (format!("{bulk}\necn = \"ect0\""), Ecn::Ect0),
        (format!("{bulk}\necn = \"off\""), Ecn::NotEct),
        ("udp = { rate = \"1Mb/s\" }".to_owned(), Ecn::NotEct),
        (
            "udp = { rate = \"1Mb/s\" }\necn = \"ect1\"".to_owned(),
            Ecn::Ect1,
        ),
        ("web = {}\necn = true".to_owned(), Ecn::Ect0),
    ] {
        let flow = codepoint(&sender).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(flow.ecn, want, "{sender}");
        if let MediaPlan::Web(config) = &flow.media {
            assert!(config.tcp.ecn);
        }
    }
    for (sender, says) in [
        (
            format!("{bulk}\necn = \"ect1\""),
            "ecn: tfrc responds to a mark as to a loss, and ECT(1) requires a response \
             to each mark by a fraction (RFC 9331 section 4.3); write ecn = \"ect0\", or send tcp = { kind = \"prague\" } or \
             udp = { … }",
        ),
        (
            "tcp = { kind = \"cubic\" }\necn = \"ect1\"".to_owned(),
            "ecn: cubic responds to a mark as to a loss, and",
        ),
        (
            "control = { fixed = \"1Mb/s\" }\nbulk = { packet = \"1200B\" }\necn = \"ect1\""
                .to_owned(),
            "ecn: fixed does not respond to marks, and",
        ),
        (
            format!("{prague}\necn = \"ect0\""),
            "ecn: prague responds to a mark in proportion, and marks of ECT(0) require the same \
             response as a loss (RFC 3168); leave ecn out, or choose kind = \"cubic\"",
        ),
        (
            format!("{prague}\necn = \"ECT(1)\""),
            "ecn: \"ECT(1)\" is not known here; use \"off\" or \"ect0\" or \"ect1\"",
        ),
        (
            format!("{prague}\necn = 1"),
            "ecn: is a bare number; write true, false, \"off\", \"ect0\" or \"ect1\"",
        ),
    ] {
        let error = codepoint(&sender).expect_err(&sender);
        assert!(error.contains(says), "{error}\n{says}");
    }
}
