//! Fuzz targets of the controllers, used by the fuzzer (`fuzz/`) and by the replay of its corpora
//! (`tests/tests/corpora.rs`).
//!
//! The data is decoded as a sequence of inputs, as in [`tidegate_core::controller::replay`]: in and
//! out of order, valid and invalid, with boundary values.

use core::time::Duration;

use super::Target;
use super::session::Story;
use tidegate_core::control::{
    Algorithm, Change, Context, Demand, Ecn, FlowId, Kind, Outcome, PacketOutcome, RateControl,
    Report, Sent, Start,
};
use tidegate_core::controller::rap::RapConfig;
use tidegate_core::controller::rcs::RcsConfig;
use tidegate_core::controller::replay::Input;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::controller::tide::{Friend, TideConfig};
use tidegate_core::delay_bound::PlannerConfig;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, RemoteTime, Time};
use tidegate_sim::ns2::tfrc::Ns2TfrcConfig;

/// All targets.
pub const TARGETS: [Target; 5] = [
    Target {
        name: "delay_bound",
        run: delay_bound,
    },
    Target {
        name: "rap",
        run: rap,
    },
    Target {
        name: "rcs",
        run: rcs,
    },
    Target {
        name: "tfrc",
        run: tfrc,
    },
    Target {
        name: "tide",
        run: tide,
    },
];

/// RAP. The first byte selects the configuration.
pub fn rap(data: &[u8]) {
    let (first, story) = data.split_first().unwrap_or((&0, &[]));
    let config = RapConfig {
        fine_grain: first & 1 != 0,
        report_interval: Duration::from_millis(u64::from(first & 2) * 25),
        ..RapConfig::default()
    };
    let mut controller = config.start(&start());
    apply(story, &mut controller, &mut |_, _, _| {});
}

/// RCS. The first byte selects the target rate and the configuration. The rate never exceeds three
/// times the target, with two dummy packets for each data packet.
pub fn rcs(data: &[u8]) {
    let (first, story) = data.split_first().unwrap_or((&0, &[]));
    let target =
        [Rate::ZERO, Rate::kbps(500), Rate::kbps(10_000), Rate::MAX][usize::from(first & 3)];
    let config = RcsConfig {
        target: Some(target),
        rtt: (first & 4 != 0).then_some(Duration::from_millis(550)),
        backoff: first & 8 == 0,
        ..RcsConfig::default()
    };
    let mut controller = config.start(&start());
    apply(story, &mut controller, &mut |_, _, _| {});
    let sent = controller.target();
    assert_eq!(sent.send, sent.media + sent.filler);
    assert!(sent.send <= Rate::kbps(30_000_000), "{sent:?}");
}

/// TFRC, and that of ns-2.
pub fn tfrc(data: &[u8]) {
    let configs: [&dyn Algorithm; 2] = [&TfrcConfig::default(), &Ns2TfrcConfig::native()];
    for config in configs {
        let mut controller = config.start(&start());
        apply(data, &mut controller, &mut |_, _, _| {});
    }
}

/// Tide, alone and under a delay bound. Honest feedback brings the rate back.
pub fn tide(data: &[u8]) {
    let (first, story) = data.split_first().unwrap_or((&0, &[]));
    let mut config = TideConfig::default();
    if first & 1 != 0 {
        config.friend = Friend::Cubic;
    }
    let mut controller = config.start(&start());
    let (now, seq) = apply(story, &mut controller, &mut |_, _, _| {});
    recover(&mut controller, now, seq);
    let planner = PlannerConfig::new(Rate::kbps(150), Rate::kbps(8_000));
    let mut bounded = config
        .start(&start())
        .with_bound(planner, Duration::from_millis(300));
    apply(story, &mut bounded, &mut |_, _, _| {});
}

/// A free path with a round trip of [`ROUND_TRIP`] for [`RECOVERY`]: every packet arrives.
fn recover(controller: &mut RateControl, from: Time, mut seq: u64) {
    if from.as_nanos() > Time::FAR.as_nanos() / 2 {
        return;
    }
    let mut rng = Seed(2).stream("fuzz");
    let (mut now, mut next, mut in_flight) = (from, from, Vec::new());
    while now < from + RECOVERY {
        now += Duration::from_millis(50);
        let mut cx = Context {
            now,
            rng: &mut rng,
            trace: &mut (),
        };
        while next <= now {
            in_flight.push(honest(seq, next));
            let sent = Sent {
                flow: FlowId(0),
                seq,
                size: SIZE,
                kind: Kind::Media,
                app_limited: false,
            };
            controller.on_sent(&mut cx, &sent);
            seq += 1;
            let rate = controller.target().send.max(Rate::kbps(8));
            next += SIZE / rate.min(Rate::kbps(4_000));
        }
        let arrived = in_flight.partition_point(|packet| packet.sent + ROUND_TRIP <= now);
        let packets: Vec<_> = in_flight.drain(..arrived).collect();
        if !packets.is_empty() {
            controller.on_report(&mut cx, &Report::new(&packets).rtt(ROUND_TRIP));
        }
        if controller.next_timeout().is_some_and(|(at, _)| at <= now) {
            controller.on_timeout(&mut cx);
        }
    }
    let rate = controller.target().send;
    assert!(rate >= Rate::kbps(1_000), "honest feedback leaves {rate:?}");
}

fn honest(seq: u64, sent: Time) -> PacketOutcome {
    PacketOutcome {
        flow: FlowId(0),
        seq,
        size: SIZE,
        sent,
        outcome: Outcome::Received {
            at: RemoteTime((sent + ROUND_TRIP / 2).as_nanos()),
            ecn: Ecn::NotEct,
        },
    }
}

const SIZE: Bytes = Bytes(1_000);
const ROUND_TRIP: Duration = Duration::from_millis(40);
/// A wrong base delay is forgotten after two windows of a minute.
const RECOVERY: Duration = Duration::from_secs(150);

/// The delay bound around TFRC, with the driver's inputs: backlogs, budgets, stalls.
pub fn delay_bound(data: &[u8]) {
    let (floor, ceiling) = (Rate::kbps(150), Rate::kbps(8_000));
    let config = PlannerConfig::new(floor, ceiling);
    let mut controller = TfrcConfig::default()
        .start(&start())
        .with_bound(config, Duration::from_millis(300));
    apply(data, &mut controller, &mut |controller, story, cx| {
        let bound = controller.bound_mut().expect("a delay bound");
        match story.byte() % 4 {
            0 => bound.set_backlog(Bytes(number(story))),
            1 => bound.set_budget(story.span(), story.span()),
            2 => bound.set_stall(story.byte().is_multiple_of(2).then(|| story.span())),
            _ => bound.set_next_frame(Some(cx.now + story.span())),
        }
        let decision = controller.replan(cx).expect("a delay bound");
        assert!((floor..=ceiling).contains(&decision.media), "{decision:?}");
    });
}

/// Applies the inputs. `other` handles inputs that are specific to the controller.
fn apply(
    data: &[u8],
    controller: &mut RateControl,
    other: &mut dyn FnMut(&mut RateControl, &mut Story<'_>, &mut Context<'_>),
) -> (Time, u64) {
    let mut story = Story::new(data);
    let mut rng = Seed(1).stream("fuzz");
    let (mut now, mut seq) = (Time::ZERO, 0);
    while !story.is_over() {
        now += story.span();
        let mut cx = Context {
            now,
            rng: &mut rng,
            trace: &mut (),
        };
        let input = match story.byte() % 8 {
            0..=2 => sent(&mut story, &mut seq),
            3..=5 => report(&mut story, seq, now),
            6 => Input::Timeout,
            _ => {
                other(controller, &mut story, &mut cx);
                continue;
            }
        };
        input.apply(controller, &mut cx);
        check(controller, now, &input);
    }
    (now, seq)
}

fn check(controller: &RateControl, now: Time, input: &Input) {
    let target = controller.target();
    assert!(target.media <= target.send, "{target:?}");
    let rate = controller.summary().loss_event_rate;
    assert!((0.0..=1.0).contains(&rate), "{rate}");
    // A timeout that has been handled leaves no deadline in the past, or a driver would spin.
    if *input == Input::Timeout && now < Time::FAR {
        assert!(controller.next_timeout().is_none_or(|(at, _)| at > now));
    }
}

fn sent(story: &mut Story<'_>, seq: &mut u64) -> Input {
    let sent = Sent {
        flow: FlowId(0),
        seq: *seq,
        size: Bytes(number(story)),
        kind: [Kind::Media, Kind::Dummy][usize::from(story.byte() > 200)],
        app_limited: story.byte().is_multiple_of(2),
    };
    *seq += 1;
    Input::Sent(sent)
}

/// Reports of recent packets or of any packets; a tenth of the inputs has a new path.
fn report(story: &mut Story<'_>, newest: u64, now: Time) -> Input {
    let count = story.byte();
    if count > 230 {
        return Input::Change(Change::Path {
            packet_size: Bytes(number(story)),
            prior: None,
        });
    }
    let outcomes = (0..count % 24).map(|_| {
        let back = u64::from(story.byte());
        let sent = now.before(story.span());
        let outcome = match story.byte() {
            0..=60 => Outcome::Lost,
            ecn => Outcome::Received {
                at: RemoteTime(now.as_nanos().wrapping_sub(number(story))),
                ecn: Ecn::from_bits(ecn),
            },
        };
        PacketOutcome {
            flow: FlowId(0),
            seq: newest.wrapping_sub(back),
            size: Bytes(1_200),
            sent,
            outcome,
        }
    });
    let packets: Vec<PacketOutcome> = outcomes.collect();
    let spurious = packets.iter().filter(|_| story.byte() > 250).copied();
    let spurious = spurious.collect();
    // Some, of any number, are of dummy packets.
    let (dummies, packets) = packets.into_iter().partition(|_| story.byte() > 170);
    Input::Report {
        spurious,
        dummies,
        packets,
        rtt: count.is_multiple_of(3).then(|| story.span()),
        measured: None,
    }
}

/// A small number, a packet size, a large number, or the maximum.
fn number(story: &mut Story<'_>) -> u64 {
    match story.byte() {
        n @ 0..=99 => u64::from(n),
        n @ 100..=199 => u64::from(n) * 12,
        n @ 200..=250 => 1 << (n - 195),
        _ => u64::MAX,
    }
}

fn start() -> Start {
    let demand = Demand {
        floor: Rate::ZERO,
        ceiling: Rate::MAX,
        shares: 1,
    };
    Start::new(Time::ZERO, Bytes(1_200), demand)
}
