//! The groups, with their criteria.

use tidegate_sim::runner::{Keep, LinkRecords};

use super::metrics as of;
use super::{ALL, Criterion, Gate, Group, Over, Points, Unit};
use crate::rmcat::Bound::{AtLeast, AtMost};

macro_rules! group {
    ($name:literal, $file:literal, $own:literal, $points:expr, $criteria:expr) => {
        Group {
            name: $name,
            file: concat!($file, ".toml"),
            text: include_str!(concat!("../../../../scenarios/", $file, ".toml")),
            own: $own,
            points: $points,
            keep: Keep::COUNTERS,
            criteria: $criteria,
        }
    };
}

/// All groups, in the order of the table.
pub(super) const GROUPS: [Group; 15] = [
    group!("steps", "bench/steps", "own", Points::Single, &STEPS),
    group!("video", "bench/video", "own", Points::Swept(1), &VIDEO),
    group!("alone", "bench/alone", "own", Points::Swept(0), &ALONE),
    group!(
        "alone-video",
        "bench/alone-video",
        "own",
        Points::Swept(0),
        &ALONE_VIDEO
    ),
    group!(
        "drawn",
        "bench/drawn",
        "own",
        Points::Drawn(DRAWN as u64),
        &PATHS
    ),
    Group {
        keep: Keep {
            links: LinkRecords::Waits,
            ..Keep::COUNTERS
        },
        ..group!(
            "recorded",
            "bench/recorded",
            "own",
            Points::Recorded,
            &RECORDED
        )
    },
    group!("jitter", "bench/jitter", "own", Points::Swept(1), &JITTER),
    group!("tcp", "bench/tcp", "own", Points::Swept(2), &TCP),
    group!("aqm", "bench/aqm", "own", Points::Swept(2), &AQM),
    group!("ten", "bench/ten", "own", Points::Swept(0), &TEN),
    group!(
        "ten-mixed",
        "bench/ten-mixed",
        "own",
        Points::Swept(0),
        &TEN_MIXED
    ),
    group!("calls", "bench/calls", "own", Points::Swept(1), &CALLS),
    Group {
        keep: Keep {
            events: true,
            ..Keep::COUNTERS
        },
        ..group!(
            "blackouts",
            "bench/blackouts",
            "own",
            Points::Swept(1),
            &BLACKOUTS
        )
    },
    group!("geo", "field/geo", "tide", Points::Single, &GEO),
    group!("demo-losses", "demo-losses", "tide", Points::Single, &DEMO),
];

/// Peers reach 1,012 to 1,239 kb/s with a queue p95 of 50 to 309 ms here.
const STEPS: [Criterion; 4] = [
    RATE.required(AtLeast(1_150.0)).wanted(AtLeast(1_210.0)),
    QUEUE.required(AtMost(40.0)).wanted(AtMost(30.0)),
    LOSS.required(AtMost(0.003)).wanted(AtMost(0.001)),
    ON_TIME,
];

const VIDEO: [Criterion; 3] = [
    RATE.required(AtLeast(9_400.0)).wanted(AtLeast(9_900.0)),
    QUEUE.required(AtMost(25.0)).wanted(AtMost(12.0)),
    ON_TIME,
];

const ALONE: [Criterion; 4] = [
    USED.count("cells with 96 % used", AtLeast(0.96))
        .required(GRID),
    QUEUE
        .count("cells with a queue p95 up to 20 ms", AtMost(20.0))
        .required(GRID),
    USED.over("used in the worst cell", Over::Least),
    QUEUE.over("queue p95 in the worst cell", Over::Most),
];

const ALONE_VIDEO: [Criterion; 4] = [
    USED.count("cells with 92 % used", AtLeast(0.92))
        .required(GRID),
    USED.over("used in the worst cell", Over::Least),
    QUEUE.over("queue p95 in the worst cell", Over::Most),
    ON_TIME.over("frames in time in the worst cell", Over::Least),
];

const PATHS: [Criterion; 4] = [
    USED.count("paths with 96 % used", AtLeast(0.96))
        .required(AtLeast(DRAWN)),
    QUEUE_LESS_JITTER
        .count(
            "paths with a queue p95 up to 20 ms and their jitter",
            AtMost(20.0),
        )
        .required(AtLeast(DRAWN)),
    USED.over("used on the worst path", Over::Least),
    QUEUE_LESS_JITTER.over("queue p95 less jitter on the worst path", Over::Most),
];

const RECORDED: [Criterion; 6] = [
    USED_OF_DEMAND.gate(Gate::RequiredAt(&[(ALL, AtLeast(0.89))])),
    WAIT.gate(Gate::RequiredAt(&[(ALL, AtMost(55.0))])),
    ON_TIME_OF_SAVABLE.gate(Gate::RequiredAt(&[(ALL, AtLeast(0.986))])),
    USED_OF_DEMAND.over("used on the worst path", Over::Least),
    WAIT.over("queue p95 of the worst path", Over::Most),
    ON_TIME_OF_SAVABLE
        .over("savable frames in time on the worst path", Over::Least)
        .gate(Gate::RequiredAt(&[(ALL, AtLeast(0.85))])),
];

const JITTER: [Criterion; 3] = [
    OWN_RATE
        .over(
            "rate with reordering, of that in order",
            Over::LastOverFirst,
        )
        .required(AtLeast(0.95)),
    USED.over("used in the worse case", Over::Least)
        .wanted(AtLeast(0.95)),
    QUEUE_LESS_JITTER.over("queue p95 less jitter in the worse case", Over::Most),
];

/// The counts of the prototype of tide. Of one flow beside one, it had only those beside SACK.
const TCP: [Criterion; 5] = [
    KEPT.count("cells in which TCP keeps 90 %", AtLeast(0.9))
        .gate(Gate::RequiredAt(&[
            ("kind sack, count 5", AtLeast(76.0)),
            ("kind cubic, count 5", AtLeast(79.0)),
            ("kind sack, count 1", AtLeast(72.0)),
        ])),
    OWN.count("cells with 80 % of TCP's share", AtLeast(0.8))
        .gate(Gate::RequiredAt(&[
            ("kind sack, count 5", AtLeast(73.0)),
            ("kind cubic, count 5", AtLeast(58.0)),
            ("kind sack, count 1", AtLeast(68.0)),
        ])),
    KEPT.over("kept by TCP in the worst cell", Over::Least)
        .gate(Gate::AtLeastTfrc),
    KEPT.over("kept by TCP, mean", Over::Mean),
    OWN.over("share of TCP's, mean", Over::Mean),
];

const AQM: [Criterion; 4] = [
    KEPT.count("cells in which TCP keeps 90 %", AtLeast(0.9))
        .wanted(AtLeast(20.0)),
    OWN.count("cells with 80 % of TCP's share", AtLeast(0.8))
        .wanted(AtLeast(20.0)),
    KEPT.over("kept by TCP in the worst cell", Over::Least),
    OWN.over("share of TCP's, mean", Over::Mean),
];

const TEN: [Criterion; 5] = [
    JAIN.count("cells with Jain's index of 0.95", AtLeast(0.95))
        .required(GRID),
    QUEUE
        .count("cells with a queue p95 up to 45 ms", AtMost(45.0))
        .required(AtLeast(75.0)),
    JAIN.over("Jain's index of the worst cell", Over::Least),
    QUEUE.over("queue p95 of the worst cell", Over::Most),
    USED.over("used in the worst cell", Over::Least),
];

const TEN_MIXED: [Criterion; 5] = [
    JAIN.count("cells with Jain's index of 0.95", AtLeast(0.95))
        .required(AtLeast(16.0)),
    QUEUE
        .count("cells with a queue p95 up to 45 ms", AtMost(45.0))
        .required(AtLeast(15.0)),
    JAIN.over("Jain's index of the worst cell", Over::Least),
    QUEUE.over("queue p95 of the worst cell", Over::Most),
    USED.over("used in the worst cell", Over::Least),
];

const CALLS: [Criterion; 4] = [
    SETTLED_JAIN
        .over("Jain's index of the worst cell", Over::Least)
        .required(AtLeast(0.95)),
    SETTLED_USED
        .over("used in the worst cell", Over::Least)
        .required(AtLeast(0.9)),
    ON_TIME.over("frames in time in the worst cell", Over::Least),
    QUEUE.over("queue p95 of the worst cell", Over::Most),
];

const BLACKOUTS: [Criterion; 3] = [
    BACK.over(
        "round trips until 90 % of the rate, after 20 ms: median",
        Over::Median,
    )
    .required(AtMost(2.0))
    .wanted(AtMost(1.0)),
    BACK.over("the same: worst run", Over::Maximum)
        .required(AtMost(2.5)),
    PROBES
        .over(
            "packets in the outage, per quarter round trip or 20 ms",
            Over::Most,
        )
        .required(AtMost(1.0)),
];

const GEO: [Criterion; 3] = [
    RATE.required(AtLeast(4_000.0)),
    ON_TIME.required(AtLeast(0.98)),
    QUEUE,
];

const DEMO: [Criterion; 3] = [
    USED_OUTSIDE.required(AtLeast(0.9)),
    AFTER_STEP_UP.required(AtLeast(0.8)),
    ON_TIME_OF_SAVABLE.required(AtLeast(0.99)),
];

const RATE: Criterion = Criterion::new("rate", Unit::KbPerS, of::own_kbps);
const OWN_RATE: Criterion = Criterion::new("rate", Unit::Ratio, of::own_rate);
const QUEUE: Criterion = Criterion::new("queue p95", Unit::Ms, of::queue_ms);
const QUEUE_LESS_JITTER: Criterion =
    Criterion::new("queue p95 less jitter", Unit::Ms, of::queue_less_jitter_ms);
const LOSS: Criterion = Criterion::new("packets lost", Unit::Share, of::loss);
const ON_TIME: Criterion = Criterion::new("frames in time", Unit::Share, of::on_time);
const ON_TIME_OF_SAVABLE: Criterion = Criterion::new(
    "savable frames in time",
    Unit::Share,
    of::on_time_of_savable,
);
const USED: Criterion = Criterion::new("used", Unit::Share, of::used);
const USED_OF_DEMAND: Criterion = Criterion::new("used", Unit::Share, of::used_of_demand);
const WAIT: Criterion = Criterion::new("queue p95", Unit::Ms, of::wait_ms);
const USED_OUTSIDE: Criterion =
    Criterion::new("used outside of the outage", Unit::Share, of::used_outside);
const AFTER_STEP_UP: Criterion = Criterion::new(
    "used 2 to 3 s after a step up",
    Unit::Share,
    of::after_step_up,
);
const JAIN: Criterion = Criterion::new("Jain's index", Unit::Index, of::jain);
const SETTLED_JAIN: Criterion = Criterion::new("Jain's index", Unit::Index, of::settled_jain);
const SETTLED_USED: Criterion = Criterion::new("used", Unit::Share, of::settled_used);
const BACK: Criterion = Criterion::new("back", Unit::Ratio, of::back_after_rtts);
const PROBES: Criterion = Criterion::new("probes", Unit::Ratio, of::probes);
/// Relative to a flow of TCP among its kind.
const KEPT: Criterion = Criterion {
    of_tcp_share: true,
    ..Criterion::new("kept by TCP", Unit::Ratio, of::other_rate)
};
const OWN: Criterion = Criterion {
    of_tcp_share: true,
    ..Criterion::new("share of TCP's", Unit::Ratio, of::own_rate)
};

/// All cells of a grid of round trips, losses and queues.
const GRID: crate::rmcat::Bound = AtLeast(80.0);
/// Number of drawn paths.
const DRAWN: f64 = 40.0;
