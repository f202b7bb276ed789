use core::time::Duration;

use tidegate_core::random::Seed;
use tidegate_core::tcp_rate::TcpEvent;
use tidegate_core::trace::DropCause;
use tidegate_core::units::Time;

use crate::flow_endpoints::FlowResult;
use crate::runner::{self, Keep};
use crate::scenario::Scenario;

/// 10 Mb/s and 100 ms, with an outage of 3 s at 5 s; 15 s of video.
fn play(transport: &str, seed: u64) -> FlowResult {
    let path = r#"rate = "10Mb/s"
queue = { droptail = "125kB" }
outage = [{ at = "5s", lasts = "3s" }]"#;
    play_over(path, transport, seed)
}

/// 15 s of video over the given path of 100 ms.
fn play_over(path: &str, transport: &str, seed: u64) -> FlowResult {
    let text = format!(
        r#"name = "t"
duration = "40s"
[[link]]
name = "path"
delay = "50ms"
{path}
[[link]]
name = "back"
delay = "50ms"
[[flow]]
name = "video"
path = ["path"]
back = ["back"]
start = ["0s", "500ms"]
delay_bound = "2s"
video = {{ size = "176x120", fps = 10, ceiling = "2Mb/s" }}
transport = {{ frames = 150, {transport} }}
"#
    );
    play_scenario(&text, "video", seed)
}

/// Result of the flow.
fn play_scenario(text: &str, flow: &str, seed: u64) -> FlowResult {
    let none = |_: &str| Err(String::new());
    let scenario = Scenario::parse("t", text, &none).unwrap_or_else(|e| panic!("{e}"));
    let encoder = |flow: &str, plan: &crate::scenario::VideoPlan, seed| {
        Ok(plan.modelled(flow, seed).expect("the model"))
    };
    let take = runner::flows(&scenario, Seed(seed), Keep::default(), &encoder).unwrap();
    let mut flows = take.flows.into_iter();
    flows
        .find(|(role, _)| role.name == flow)
        .expect("the flow")
        .1
}

/// Capture number and arrival time of every received frame.
fn arrivals(result: &FlowResult) -> Vec<(u64, Duration)> {
    let arrived = |f: &tidegate_core::session::jitter_buffer::ReceivedFrame| {
        let mut sent = result.sent.iter();
        let sent = sent.find(|s| s.timestamp == f.timestamp as u32)?;
        Some((sent.frame, f.complete?.since(sent.captured)))
    };
    result.received.iter().filter_map(arrived).collect()
}

const BOUND: Duration = Duration::from_secs(2);
const FRAME: Duration = Duration::from_millis(100);

#[test]
fn transport_errors_are_reported() {
    let fault = |flow: &str| {
        let text = format!(
            "name = \"t\"\nduration = \"9s\"\n[[link]]\nname = \"a\"\ndelay = \"1ms\"\n[[link]]\nname = \"b\"\n\
             delay = \"1ms\"\n[[flow]]\nname = \"v\"\npath = [\"a\"]\nback = [\"b\"]\n{flow}\n"
        );
        let none = |_: &str| Err(String::new());
        Scenario::parse("t", &text, &none).unwrap_err().to_string()
    };
    let video = "video = {}\ndelay_bound = \"1s\"\n";
    for (transport, part) in [
        ("transport = { tcp = \"cubic\" }", "mode = \"iopt\""),
        (
            "transport = { tcp = \"tahoe\", mode = \"iopt\" }",
            "linux-reno",
        ),
        (
            "transport = { tcp = \"cubic\", mode = \"iexp\", law = \"paper\" }",
            "only iopt has this option",
        ),
        (
            "transport = { tcp = \"cubic\", mode = \"iexp\", step = 0.1 }",
            "recovery = \"additive\"",
        ),
        (
            "transport = { tcp = \"cubic\", mode = \"ioff\", flags = { itcp = true } }",
            "one of the two",
        ),
        (
            "control = \"tfrc\"\ntransport = { tcp = \"cubic\", mode = \"ioff\" }",
            "has its own rate control",
        ),
    ] {
        let error = fault(&format!("{video}{transport}"));
        assert!(error.contains(part), "{error}");
    }
    let error =
        fault("tcp = { kind = \"cubic\" }\ntransport = { tcp = \"cubic\", mode = \"ioff\" }");
    assert!(error.contains("tcp"), "{error}");
}

#[test]
fn classic_sender_delivers_all_frames_many_of_them_late() {
    for tcp in ["\"reno\"", "\"linux-reno\"", "\"cubic\"", "\"bbr\""] {
        let result = play(&format!("tcp = {tcp}, mode = \"classic\""), 1);
        let arrived = arrivals(&result);
        assert_eq!(arrived.len(), 150, "{tcp}");
        assert!(result.sent.iter().all(|f| f.dropped.is_none()));
        let worst = arrived.iter().map(|(_, delay)| *delay).max().unwrap();
        // Frames of 5.1 s cannot arrive before 8 s.
        assert!(worst > Duration::from_millis(2_800), "{tcp}: {worst:?}");
        // On an idle path a frame takes the path delay and the serialization of 25 kB.
        assert!(
            arrived[30].1 < Duration::from_millis(250),
            "{:?}",
            arrived[30]
        );
    }
}

/// A path at three tenths of the normal rate, then at half of that, with queues of 1.3 and 2.7 s. A
/// sender that trusts the window is late by the queueing delay.
#[test]
fn exact_law_adapts_to_a_narrow_path() {
    let path = r#"rate = [["0s", "600kb/s"], ["7s", "300kb/s"], ["12s", "600kb/s"]]
queue = { droptail = "100kB" }"#;
    for tcp in ["linux-reno", "cubic", "bbr"] {
        for seed in 1..=3 {
            let result = play_over(path, &format!("tcp = \"{tcp}\", mode = \"iopt\""), seed);
            let arrived = arrivals(&result);
            let on_time = arrived.iter().filter(|(_, delay)| *delay <= BOUND).count();
            assert!(on_time >= 120, "{tcp} {seed}: {on_time} of 150");
            // Two thirds of the path's capacity in 15 s.
            let bits: u64 = result.sent.iter().map(|frame| frame.bits).sum();
            assert!(bits > 5_000_000, "{tcp} {seed}: {bits}");
        }
        let result = play_over(path, &format!("tcp = \"{tcp}\", mode = \"classic\""), 1);
        let late = arrivals(&result)
            .into_iter()
            .filter(|a| a.1 > BOUND)
            .count();
        assert!(late > 100, "{tcp}: {late}");
    }
}

#[test]
fn exact_law_keeps_its_bound_over_all_tcp_variants() {
    for tcp in ["\"reno\"", "\"linux-reno\"", "\"cubic\"", "\"bbr\""] {
        for seed in 1..=3 {
            let result = play(&format!("tcp = {tcp}, mode = \"iopt\""), seed);
            let record = result.stream.as_ref().unwrap();
            let died = Time::from_secs(5);
            // Frames sent before the sender could know of the outage are late. The check covers the
            // end of the last of the earlier frames. A frame sent at the floor that failed by less
            // than the following one has more time.
            let arrived = arrivals(&result);
            let late = |fits: &dyn Fn(Time) -> bool| {
                let late = arrived.iter().filter(|(frame, delay)| {
                    let left = result.sent[*frame as usize].left;
                    *delay > BOUND && left.is_some_and(fits)
                });
                late.map(|(_, delay)| delay.saturating_sub(BOUND))
                    .collect::<Vec<_>>()
            };
            assert!(
                late(&|at| at < died).len() <= 1,
                "{tcp} {seed}: {arrived:?}"
            );
            let tried = late(&|at| at > died + Duration::from_millis(250));
            let by = tried.iter().max().copied().unwrap_or_default();
            assert!(tried.len() <= 1 && by < FRAME, "{tcp} {seed}: {tried:?}");
            let dropped: Vec<u64> = result
                .sent
                .iter()
                .filter(|f| f.dropped.is_some())
                .map(|f| f.frame)
                .collect();
            assert!(
                !dropped.is_empty() && dropped.len() < 50,
                "{tcp} {dropped:?}"
            );
            assert!(
                result
                    .sent
                    .iter()
                    .all(|f| f.dropped.is_none() == (f.bits > 0))
            );
            // After the outage the rate returns to the ceiling.
            let last = record.targets.last().unwrap().1;
            assert_eq!(last.as_bps(), 2_000_000, "{tcp} {seed}");
        }
    }
}

#[test]
fn encoded_frames_are_dropped_with_dependent_frames() {
    let result = play(
        "tcp = \"cubic\", mode = \"classic\", backlog = \"frames\"",
        1,
    );
    let dropped: Vec<_> = result.sent.iter().filter(|f| f.dropped.is_some()).collect();
    let late = dropped
        .iter()
        .filter(|f| f.dropped == Some(DropCause::Late));
    assert!(late.count() > 0);
    assert!(dropped.iter().all(|f| f.left.is_none() && f.bits > 0));
    // The first frame after a gap is a key frame.
    for pair in result.sent.windows(2) {
        if pair[0].dropped.is_some() && pair[1].dropped.is_none() {
            assert!(pair[1].key, "frame {}", pair[1].frame);
        }
    }
}

#[test]
fn modes_without_retraction_are_identical_on_the_wire() {
    let [classic, ioff] = ["classic", "ioff"].map(|mode| {
        let result = play(&format!("tcp = \"reno\", mode = \"{mode}\""), 4);
        let notified = result.stream.as_ref().unwrap().delivered;
        (arrivals(&result), notified)
    });
    assert_eq!(classic.0, ioff.0);
    assert_eq!(classic.1, 0);
    assert!(ioff.1 > 0);
}

#[test]
fn iexp_reduces_the_rate_for_its_hold_time() {
    let result = play(
        "tcp = \"cubic\", mode = \"iexp\", ratio = 0.5, hold = \"3s\"",
        1,
    );
    let record = result.stream.as_ref().unwrap();
    assert_eq!(record.rate_reductions[0].event, TcpEvent::TimedOut);
    let first = record.rate_reductions[0];
    assert_eq!(first.rate.as_bps(), 1_000_000);
    let after = |f: &&tidegate_core::session::sender::SentFrame| f.captured > first.at;
    assert_eq!(result.sent.iter().find(after).unwrap().target_bits, 100_000);
    let (back, rate) = record.targets.last().unwrap();
    assert_eq!(rate.as_bps(), 2_000_000);
    assert_eq!(
        back.since(record.rate_reductions.last().unwrap().at),
        Duration::from_secs(3)
    );
}

#[test]
fn tcp_events_occur_in_the_order_of_the_table() {
    //= itcp-2.2-events (test)
    let result = play("tcp = \"reno\", mode = \"ioff\"", 1);
    let record = result.stream.unwrap();
    let first = |event: TcpEvent| {
        let found = record
            .events
            .iter()
            .find(|(at, e)| *e == event && *at >= Time::from_secs(5));
        found.map(|(at, _)| *at)
    };
    let timeout = first(TcpEvent::TimedOut).unwrap();
    let threshold = record
        .events
        .iter()
        .find(|(at, e)| *e == TcpEvent::ThresholdReached && *at > timeout);
    assert!(threshold.is_some());
    // The segments of the stream add up to the frames.
    let carried: u64 = record.slots.iter().map(|s| u64::from(s.payload)).sum();
    let made: u64 = result.sent.iter().map(|f| f.wire.get()).sum();
    // A final report, its source description and a BYE.
    assert_eq!(carried - made, GOODBYE);
    // A length and an RTP header minus the start code, and one report per second.
    let plain = record.framing.iter().filter(|f| f.get() == 10).count();
    let reports = record.framing.iter().filter(|f| f.get() > 40).count();
    assert_eq!((plain, reports), (135, 15), "{:?}", record.framing);
}

/// Length (2), sender report (28), source description with the name "lab" (16), BYE (8).
const GOODBYE: u64 = 2 + 28 + 16 + 8;

/// Times of retransmission timeouts.
fn timeouts(result: &FlowResult) -> Vec<Time> {
    let events = result.stream.as_ref().unwrap().events.iter();
    let timeouts = events.filter(|(_, e)| *e == TcpEvent::TimedOut);
    timeouts.map(|(at, _)| *at).collect()
}

fn gaps(at: &[Time]) -> Vec<Duration> {
    at.windows(2).map(|two| two[1].since(two[0])).collect()
}

/// The kernel's timeout doubles up to two minutes. A linear one doubles once and is then shorter
/// than the first one, so that recovery begins soon after an outage. It must be requested.
#[test]
fn linear_timeouts_are_requested_and_the_same_in_all_modes() {
    let linear = play(
        "tcp = \"cubic\", mode = \"iopt\", rto_backoff = \"linear\"",
        1,
    );
    let at = gaps(&timeouts(&linear));
    let (first, later) = at.split_first().unwrap();
    assert!(later.len() >= 5, "{at:?}");
    let base = first.as_secs_f64() / 2.0;
    let after = (base - 0.1).max(0.25);
    for gap in later {
        assert!((gap.as_secs_f64() - after).abs() < 0.01, "{at:?}");
    }
    for others in [
        "tcp = \"cubic\", mode = \"iopt\"",
        "tcp = \"cubic\", mode = \"iopt\", rto_backoff = \"exponential\"",
        "tcp = \"cubic\", mode = \"iopt\", rto_max = \"2min\"",
        "tcp = \"cubic\", mode = \"iopt\", law = \"paper\"",
        "tcp = \"cubic\", mode = \"iexp\"",
    ] {
        let result = play(others, 1);
        let at = gaps(&timeouts(&result));
        assert!(at[1] > at[0].mul_f64(1.9), "{others}: {at:?}");
    }
    let asked = play(
        "tcp = \"cubic\", mode = \"classic\", rto_backoff = \"linear\"",
        1,
    );
    assert!(timeouts(&asked).len() > 5);
}

/// With a shorter interval of retransmissions more frames are in time.
#[test]
fn linear_back_off_saves_frames() {
    let in_time = |backoff: &str, seed| {
        let transport = format!("tcp = \"cubic\", mode = \"iopt\", rto_backoff = \"{backoff}\"");
        let result = play(&transport, seed);
        let arrivals = arrivals(&result);
        arrivals.iter().filter(|(_, delay)| *delay <= BOUND).count()
    };
    for seed in 1..=3 {
        assert!(in_time("linear", seed) > in_time("exponential", seed));
    }
}

/// Outages repeat every 12 s. The third and later ones are predicted. Frames are small at their
/// start, so that the frames in flight and in the queue are in time.
#[test]
fn predicted_outage_loses_few_frames() {
    let text = include_str!("../../../../scenarios/video-tcp-recurring.toml");
    let bound = Duration::from_millis(2_400);
    for seed in 1..=3 {
        let result = play_scenario(text, "iopt", seed);
        let arrived = arrivals(&result);
        let in_time = arrived.iter().filter(|(_, delay)| *delay <= bound);
        let in_time: std::collections::BTreeSet<u64> = in_time.map(|(frame, _)| *frame).collect();
        let missing = |outage: u64| {
            let from = Time::from_secs(6 + 12 * outage);
            let captured = from..from + Duration::from_secs(12);
            let frames = result.sent.iter();
            let frames = frames.filter(|frame| captured.contains(&frame.captured));
            frames
                .filter(|frame| !in_time.contains(&frame.frame))
                .count()
        };
        let missing: Vec<usize> = (0..13).map(missing).collect();
        let (unexpected, expected) = missing.split_at(2);
        assert!(unexpected.iter().all(|n| *n >= 15), "{seed}: {missing:?}");
        assert!(expected.iter().all(|n| *n <= 10), "{seed}: {missing:?}");
    }
}
