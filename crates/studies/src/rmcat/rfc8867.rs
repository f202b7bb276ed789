//! Tests that the scenarios have the parameters of RFC 8867.

use core::time::Duration;

use tidegate_core::control::Ecn;
use tidegate_core::link::{Limit, QueueConfig};

use super::fair::{capacity, is_on};
use super::*;
use tidegate_sim::scenario::{MediaPlan, TcpSender};
use tidegate_sim::tcp::classic::Flavour;
use tidegate_sim::traffic::Distribution;
use tidegate_sim::traffic::web::{Begin, Connections};

fn scenario(id: &str) -> Scenario {
    Case::named(id).unwrap().scenario().unwrap()
}

fn secs(secs: f64) -> Duration {
    Duration::from_secs_f64(secs)
}

/// Capacity in Mb/s at the middle of a second.
fn mbps(scenario: &Scenario, link: &str, second: u64) -> f64 {
    let infos = scenario.link_infos();
    let info = infos.iter().find(|info| info.name == link).unwrap();
    capacity(info, Duration::from_millis(1_000 * second + 500)) / 1e6
}

fn one_way(scenario: &Scenario, flow: &str) -> u128 {
    let flow = scenario.flow(flow).unwrap();
    let links = flow.path.iter().map(|link| scenario.links[*link].delay);
    let own = flow
        .access
        .as_ref()
        .map_or(Duration::ZERO, |link| link.delay);
    (links.sum::<Duration>() + own).as_millis()
}

fn media(scenario: &Scenario) -> Vec<&FlowPlan> {
    let flows = scenario.flows.iter();
    flows.filter(|flow| is_media(&flow.name)).collect()
}

fn starts(scenario: &Scenario) -> Vec<u64> {
    let media = media(scenario);
    media.iter().map(|flow| flow.start.as_secs()).collect()
}

fn ids() -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(|case| case.id.starts_with(['5', '6']))
}

//= rfc8867-4.3-media-range (test)
//= rfc8867-4.3-audio (test)
//= rfc8867-5-end (test)
#[test]
fn sources_are_video_with_audio_and_end_one_second_early() {
    for case in ids() {
        let scenario = case.scenario().unwrap();
        for flow in media(&scenario) {
            let MediaPlan::Video(video) = &flow.media else {
                panic!("{case}: {}", flow.name);
            };
            assert_eq!(
                (video.floor, video.ceiling),
                (Rate::kbps(150), Rate::kbps(1_500))
            );
            let name = flow.name.replace("media", "audio");
            let audio = scenario.flow(&name).unwrap();
            let MediaPlan::Udp(config) = &audio.media else {
                panic!("{case}: {name}");
            };
            assert_eq!(
                (config.rate.most(), config.packet),
                (Rate::kbps(36), Bytes(90))
            );
            assert_eq!(
                (
                    &audio.path,
                    &audio.back,
                    audio.start,
                    audio.stop,
                    &audio.access
                ),
                (&flow.path, &flow.back, flow.start, flow.stop, &flow.access),
                "{case}: {name}"
            );
            assert_eq!(
                flow.stop + secs(1.0),
                scenario.duration,
                "{case}: {}",
                flow.name
            );
        }
    }
}

//= rfc8867-4.2-jitter (test)
//= rfc8867-4.2-queue (test)
#[test]
fn paths_have_one_jitter_and_queues_hold_300_ms() {
    for case in ids() {
        let scenario = case.scenario().unwrap();
        for flow in &scenario.flows {
            for way in [&flow.path, &flow.back] {
                let links = way.iter().map(|link| &scenario.links[*link]);
                let jittery = links.filter(|link| link.jitter.is_some()).count();
                assert_eq!(jittery, 1, "{case}: {}", flow.name);
            }
        }
        let name = case.bottlenecks[0];
        let reference = match case.id {
            "5.1" | "5.1-far" | "5.3" | "5.3-free" => 1.0,
            "5.2" => 2.0,
            _ => mbps(&scenario, name, 0),
        };
        let link = scenario.links.iter().find(|link| link.name == name);
        let Some(QueueConfig::DropTail(queue)) = &link.unwrap().queue else {
            assert!(case.id.starts_with("6.2"), "{case}");
            continue;
        };
        let wanted = if case.id == "5.6-deep" { 1.0 } else { 0.3 };
        let bytes = Bytes((reference * wanted * 125_000.0).round() as u64);
        assert_eq!(queue.limit, Limit::Bytes(bytes), "{case}");
    }
}

//= rfc8867-5.1-one-flow (test)
//= rfc8867-5.1-delays (test)
//= rfc8867-5.2-two-flows (test)
//= rfc8867-5.3-feedback (test)
//= rfc8867-5.3-reference (test)
//= rfc8867-5.4-competing (test)
//= rfc8867-5.5-round-trips (test)
#[test]
fn capacities_delays_and_starts_are_those_of_the_rfc() {
    let steps = |id: &str, link: &str, seconds: &[u64], wanted: &[f64]| {
        let scenario = scenario(id);
        let found: Vec<f64> = seconds.iter().map(|s| mbps(&scenario, link, *s)).collect();
        assert_eq!(found, wanted, "{id}");
    };
    for id in ["5.1", "5.1-far", "6.2-5.1"] {
        let seconds = [0, 39, 40, 59, 60, 79, 80, 99];
        steps(
            id,
            "there",
            &seconds,
            &[1.0, 1.0, 2.5, 2.5, 0.6, 0.6, 1.0, 1.0],
        );
    }
    let seconds = [0, 24, 25, 49, 50, 74, 75, 99, 100, 124];
    let wanted = [4.0, 4.0, 2.0, 2.0, 3.5, 3.5, 1.0, 1.0, 2.0, 2.0];
    steps("5.2", "there", &seconds, &wanted);
    for id in ["5.3", "5.3-free"] {
        let seconds = [0, 19, 20, 39, 40, 59, 60, 99];
        steps(
            id,
            "there",
            &seconds,
            &[2.0, 2.0, 1.0, 1.0, 0.5, 0.5, 2.0, 2.0],
        );
    }
    let seconds = [0, 34, 35, 69, 70, 99];
    steps("5.3", "back", &seconds, &[2.0, 2.0, 0.8, 0.8, 2.0, 2.0]);
    steps("5.3-free", "back", &[0, 35, 99], &[2.0; 3]);
    steps("5.4", "there", &[0, 119], &[3.5, 3.5]);
    steps("5.5", "there", &[0, 299], &[4.0, 4.0]);
    assert_eq!(one_way(&scenario("5.1"), "media"), 50);
    assert_eq!(one_way(&scenario("5.1-far"), "media"), 100);
    let five = scenario("5.5");
    let ways = (1..=5).map(|n| one_way(&five, &format!("media-{n}")));
    assert_eq!(ways.collect::<Vec<_>>(), [10, 25, 50, 100, 150]);
    assert_eq!(starts(&five), [0, 10, 20, 30, 40]);
    assert_eq!(starts(&scenario("5.4")), [0, 20, 40]);
    for (id, seconds) in [
        ("5.1", 100),
        ("5.2", 125),
        ("5.3", 100),
        ("5.4", 120),
        ("5.5", 300),
    ] {
        assert_eq!(scenario(id).duration, Duration::from_secs(seconds), "{id}");
    }
}

//= rfc8867-5.6-long-tcp (test)
//= rfc8867-5.6-queues (test)
//= rfc8867-5.6-other-tcp (test)
#[test]
fn call_starts_5_s_after_tcp() {
    for id in ["5.6", "5.6-deep", "5.6-cubic", "6.2-5.6"] {
        let scenario = scenario(id);
        assert_eq!(
            (starts(&scenario), mbps(&scenario, "there", 0)),
            (vec![5], 2.0)
        );
        let tcp = scenario.flow("tcp").unwrap();
        assert_eq!(
            (tcp.start, tcp.stop),
            (Duration::ZERO, Duration::from_secs(119))
        );
        let MediaPlan::Tcp(plan) = &tcp.media else {
            panic!("{id}");
        };
        match &plan.sender {
            TcpSender::Classic(reno) => assert_eq!(reno.flavour, Flavour::Reno, "{id}"),
            TcpSender::Modern(_) => assert_eq!(id, "5.6-cubic"),
        }
    }
}

//= rfc8867-5.7-short-tcp (test)
#[test]
fn ten_web_sources_of_thirty_objects_two_of_them_start_active() {
    let scenario = scenario("5.7");
    assert_eq!(
        (starts(&scenario), scenario.duration.as_secs()),
        (vec![5, 5], 300)
    );
    let of = |name: &str| {
        let flow = scenario.flow(name).unwrap();
        let MediaPlan::Web(web) = &flow.media else {
            panic!("{name}");
        };
        assert_eq!(web.objects, Distribution::Constant(30.0));
        let sizes = Distribution::Uniform {
            least: 30_000.0,
            most: 50_000.0,
        };
        assert_eq!((&web.size, web.connections), (&sizes, Connections::AtOnce));
        assert_eq!(web.think, Distribution::Exponential { mean: 10.0 });
        (flow.count, web.begin)
    };
    assert_eq!(of("short-on"), (2, Begin::Page));
    assert_eq!(of("short-off"), (8, Begin::Thinking));
}

//= rfc8867-5.8-pause (test)
#[test]
fn second_of_three_flows_pauses() {
    let scenario = scenario("5.8");
    let off = |second: f64| -> Vec<bool> {
        let media = media(&scenario);
        media
            .iter()
            .map(|flow| !is_on(flow, secs(second)))
            .collect()
    };
    assert_eq!(off(39.9), [false, false, false]);
    assert_eq!(off(40.0), [false, true, false]);
    assert_eq!(off(59.9), [false, true, false]);
    assert_eq!(off(60.0), [false, false, false]);
    assert_eq!(
        (mbps(&scenario, "there", 0), scenario.duration.as_secs()),
        (3.5, 120)
    );
}

/// With ECN, only the queue and the flows' ECN setting differ.
//= rfc8867-6.2-ecn (test)
#[test]
fn ecn_cases_differ_in_queue_and_ecn_only() {
    for id in ["5.1", "5.4", "5.6"] {
        let (plain, mut marked) = (scenario(id), scenario(&format!("6.2-{id}")));
        let Some(QueueConfig::Red(red)) = &marked.links[0].queue else {
            panic!("{id}");
        };
        assert!(red.ecn);
        marked.links[0].queue = plain.links[0].queue;
        for flow in &mut marked.flows {
            assert_eq!(
                flow.ecn.is_capable(),
                flow.name != "tcp",
                "{id}: {}",
                flow.name
            );
            flow.ecn = Ecn::NotEct;
        }
        assert_eq!(
            (&marked.links, &marked.flows),
            (&plain.links, &plain.flows),
            "{id}"
        );
    }
}

//= rfc8867-6.3-bottlenecks (test)
#[test]
fn two_bottlenecks_have_a_fast_link_between() {
    let scenario = scenario("6.3");
    let found = ["first", "between", "second"].map(|link| mbps(&scenario, link, 0));
    assert_eq!((found, scenario.duration.as_secs()), ([2.0, 8.0, 1.5], 300));
    let ways = ["media-long", "media-first", "media-second"].map(|flow| one_way(&scenario, flow));
    assert_eq!(ways, [100, 40, 40]);
}
