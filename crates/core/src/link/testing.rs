//! Packets and link configurations for the tests of this module.

use core::fmt::Debug;
use core::time::Duration;

use proptest::prelude::*;

use super::queue::QueuedPacket;
use super::{
    Capacity, CoDelConfig, DelayLaw, DropTailConfig, DualPi2Config, DualScheduler, FqCoDelConfig,
    GilbertElliott, JitterConfig, Limit, LinkConfig, LossConfig, Outage, Packet, PriorityConfig,
    QueueConfig, RedAdaptation, RedConfig, RedUnit, Spread, Steps, Trace,
};
use crate::control::Ecn;
use crate::units::{Bytes, Rate, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PacketHandle {
    pub(super) id: u64,
    size: u64,
    pub(super) ecn: Ecn,
}

impl PacketHandle {
    pub(super) fn new(id: u64, size: u64, ecn: Ecn) -> Self {
        Self { id, size, ecn }
    }
}

impl Packet for PacketHandle {
    fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn set_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }

    /// Consecutive packets are of different flows.
    fn flow(&self) -> u32 {
        (self.id % 5) as u32
    }

    /// A third of the packets are LE.
    fn dscp(&self) -> u8 {
        u8::from(self.id.is_multiple_of(3))
    }
}

/// A queued packet that arrived at time zero.
pub(super) fn held(size: u64, ecn: Ecn) -> QueuedPacket {
    QueuedPacket {
        arrived: Time::ZERO,
        size: Bytes(size),
        number: 0,
        flow: 0,
        slot: 0,
        hop: 0,
        ecn,
        dscp: 0,
        marked: false,
    }
}

/// Links that can be fast links, around 1 Mb/s.
pub(super) fn even_link_config() -> impl Strategy<Value = LinkConfig> {
    let queue = prop_oneof![droptail(), red().prop_map(QueueConfig::Red)];
    let capacity = prop_oneof![
        Just(Capacity::Unlimited),
        (100..20_000_u64).prop_map(|kbps| Capacity::Fixed(Rate::kbps(kbps))),
        Just(Capacity::Fixed(Rate::kbps(8_000))),
    ];
    let delay = prop_oneof![Just(0), Just(1_000_000), 1..60_000_000_u64];
    let delay = delay.prop_map(Duration::from_nanos);
    (capacity, queue, delay).prop_map(|(capacity, queue, delay)| LinkConfig {
        capacity,
        queue,
        delay,
        ..LinkConfig::default()
    })
}

/// Links of all kinds, around 1 Mb/s.
pub(super) fn link_config() -> impl Strategy<Value = LinkConfig> {
    let ms = Time::from_millis;
    let outages = prop::collection::vec((1..100_u64, 1..50_u64), 0..3).prop_map(move |spans| {
        let mut at = 0;
        let list = spans.into_iter().map(|(gap, lasts)| {
            let from = at + gap;
            at = from + lasts;
            Outage {
                from: ms(from),
                to: ms(at),
            }
        });
        list.collect()
    });
    let delay = prop_oneof![Just(0), 1..60_000_000_u64].prop_map(Duration::from_nanos);
    let variation = prop::option::of(steps(0..30_000_000_u64)).prop_map(|steps| {
        let steps = steps?
            .into_iter()
            .map(|(at, extra)| (at, Duration::from_nanos(extra)));
        Steps::new(&steps.collect::<Vec<_>>()).ok()
    });
    (
        capacity(),
        queue(),
        outages,
        loss(),
        delay,
        variation,
        jitter(),
    )
        .prop_map(
            |(capacity, queue, outages, loss, delay, delay_variation, jitter)| LinkConfig {
                capacity,
                queue,
                outages,
                loss,
                delay,
                delay_variation,
                jitter,
                ..LinkConfig::default()
            },
        )
}

fn capacity() -> impl Strategy<Value = Capacity> {
    let ms = Time::from_millis;
    prop_oneof![
        Just(Capacity::Unlimited),
        (100..20_000_u64).prop_map(|kbps| Capacity::Fixed(Rate::kbps(kbps))),
        (1..200_u64, 1..200_u64, 0..5_000_u64).prop_map(move |(stall, back, kbps)| {
            let steps = [
                (Time::ZERO, Rate::kbps(3_000)),
                (ms(stall), Rate::ZERO),
                (ms(stall + back), Rate::kbps(kbps)),
            ];
            Capacity::Steps(Steps::new(&steps).unwrap())
        }),
        prop::collection::vec(1..40_u32, 1..10).prop_map(|mut millis| {
            millis.sort_unstable();
            let lines: Vec<_> = millis.iter().map(u32::to_string).collect();
            Capacity::Trace(Trace::parse(&lines.join("\n")).unwrap())
        }),
    ]
}

/// One to five steps, up to 50 ms apart.
fn steps<T: Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<(Time, T)>> {
    prop::collection::vec((1..50_u64, value), 1..6).prop_map(|list| {
        let mut at = 0;
        let step = |(n, (gap, value))| {
            at += if n == 0 { 0 } else { gap };
            (Time::from_millis(at), value)
        };
        list.into_iter().enumerate().map(step).collect()
    })
}

fn loss() -> impl Strategy<Value = LossConfig> {
    prop_oneof![
        Just(LossConfig::NONE),
        (0.0..0.3).prop_map(LossConfig::Bernoulli),
        (1_u32..50).prop_map(|n| LossConfig::Every(n.try_into().unwrap())),
        (0.0..0.3, 1.0..5.0).prop_map(|(mean, burst)| {
            LossConfig::GilbertElliott(GilbertElliott::bursts(mean, burst).unwrap())
        }),
        steps(0.0..1.0).prop_map(|list| LossConfig::Steps(Steps::new(&list).unwrap())),
    ]
}

fn jitter() -> impl Strategy<Value = Option<JitterConfig>> {
    let ms = Duration::from_millis;
    let spread = prop_oneof![
        (0..30_u64).prop_map(move |max| Spread::Uniform { max: ms(max) }),
        (0..30_u64, 1..30_u64).prop_map(move |(mean, deviation)| Spread::Normal {
            mean: ms(mean),
            deviation: ms(deviation),
            max: ms(30),
        }),
    ];
    let jitter = (spread, any::<bool>());
    prop::option::of(jitter.prop_map(|(spread, reorder)| JitterConfig { spread, reorder }))
}

/// Queues of all kinds, with room for about 30 packets.
pub(super) fn queue() -> impl Strategy<Value = QueueConfig> {
    prop_oneof![
        droptail(),
        red().prop_map(QueueConfig::Red),
        dualpi2().prop_map(QueueConfig::DualPi2),
        limit().prop_map(|limit| QueueConfig::Priority(PriorityConfig { limit })),
        (limit(), law()).prop_map(|(limit, law)| QueueConfig::CoDel(CoDelConfig { limit, law })),
        (1..30_u32, 100..30_000_u64, 1..8_u32, 256..3_000_u64, law()).prop_map(
            |(limit, memory, queues, quantum, law)| QueueConfig::FqCoDel(FqCoDelConfig {
                limit,
                memory: Bytes(memory),
                queues,
                quantum: Bytes(quantum),
                law,
            })
        ),
    ]
}

fn droptail() -> impl Strategy<Value = QueueConfig> {
    prop_oneof![
        (1..30_u32, prop::option::of(0..20_000_u64)).prop_map(|(packets, above)| {
            QueueConfig::DropTail(DropTailConfig {
                limit: Limit::Packets(packets),
                mark_above: above.map(Bytes),
            })
        }),
        (1_500..30_000_u64)
            .prop_map(|bytes| QueueConfig::DropTail(DropTailConfig::bytes(Bytes(bytes)))),
    ]
}

fn dualpi2() -> impl Strategy<Value = DualPi2Config> {
    let scheduler = prop_oneof![
        (0..50_u64).prop_map(|ms| DualScheduler::TimeShifted(Duration::from_millis(ms))),
        (0.0..=1.0).prop_map(|classic| DualScheduler::Weighted { classic }),
    ];
    let gains = (0.0..5.0, 0.0..50.0, 0.0..4.0);
    (
        limit(),
        0..30_u64,
        100..50_000_u64,
        gains,
        scheduler,
        0.0..=1.0,
    )
        .prop_map(
            |(limit, target, update, (integral, proportional, coupling), scheduler, overload)| {
                DualPi2Config {
                    limit,
                    target: Duration::from_millis(target),
                    update: Duration::from_micros(update),
                    integral,
                    proportional,
                    coupling,
                    overload,
                    scheduler,
                    ..DualPi2Config::default()
                }
            },
        )
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        (1..30_u32).prop_map(Limit::Packets),
        (100..30_000_u64).prop_map(|bytes| Limit::Bytes(Bytes(bytes))),
    ]
}

fn law() -> impl Strategy<Value = DelayLaw> {
    (0..20_u64, 1..100_u64, 0..3_000_u64, any::<bool>()).prop_map(
        |(target, interval, max_packet, ecn)| DelayLaw {
            target: Duration::from_millis(target),
            interval: Duration::from_millis(interval),
            max_packet: Bytes(max_packet),
            ecn,
        },
    )
}

fn red() -> impl Strategy<Value = RedConfig> {
    let flags = (any::<[bool; 5]>(), 0.001..1.0);
    flags.prop_map(|([gentle, wait, ecn, bytes, adaptive], weight)| RedConfig {
        limit: 30,
        min_threshold: 3.0,
        max_threshold: 10.0,
        weight,
        gentle,
        wait,
        ecn,
        unit: if bytes {
            RedUnit::Bytes
        } else {
            RedUnit::Packets
        },
        adaptation: adaptive.then(RedAdaptation::default),
        ..RedConfig::default()
    })
}
