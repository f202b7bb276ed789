//! Packets and link configurations for the tests of this module.

use core::time::Duration;

use proptest::prelude::*;

use super::{
    Capacity, DropTailConfig, Limit, LinkConfig, Outage, Packet, QueueConfig, RedConfig, Steps,
    Trace,
};
use crate::control::Ecn;
use crate::units::{Bytes, Rate, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parcel {
    pub(super) id: u64,
    size: u64,
    pub(super) ecn: Ecn,
}

impl Parcel {
    pub(super) fn new(id: u64, size: u64, ecn: Ecn) -> Self {
        Self { id, size, ecn }
    }
}

impl Packet for Parcel {
    fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn set_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }
}

/// Links of all kinds, around 1 Mb/s.
pub(super) fn link_config() -> impl Strategy<Value = LinkConfig> {
    let ms = Time::from_millis;
    let capacity = prop_oneof![
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
    ];
    let queue = prop_oneof![
        (1..30_u32, prop::option::of(0..20_000_u64)).prop_map(|(packets, above)| {
            QueueConfig::DropTail(DropTailConfig {
                limit: Limit::Packets(packets),
                mark_above: above.map(Bytes),
            })
        }),
        (1_500..30_000_u64)
            .prop_map(|bytes| QueueConfig::DropTail(DropTailConfig::bytes(Bytes(bytes)))),
        (any::<bool>(), any::<bool>(), any::<bool>(), 0.001..1.0).prop_map(
            |(gentle, wait, ecn, weight)| QueueConfig::Red(RedConfig {
                limit: 30,
                min_threshold: 3.0,
                max_threshold: 10.0,
                weight,
                gentle,
                wait,
                ecn,
                ..RedConfig::default()
            })
        ),
    ];
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
    (capacity, queue, outages, 0.0..0.3, delay).prop_map(
        |(capacity, queue, outages, loss, delay)| LinkConfig {
            capacity,
            queue,
            outages,
            loss,
            delay,
        },
    )
}
