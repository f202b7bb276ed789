use proptest::prelude::*;

use super::*;
use crate::control::Ecn;
use crate::link::packet_log::{DropReason, LinkEvent};
use crate::link::testing::{PacketHandle, link_config, queue};
use crate::link::{
    CoDelConfig, DelayLaw, DropTailConfig, JitterConfig, LossConfig, Outage, QueueConfig, Spread,
};
use crate::units::{Bytes, Rate};

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// 1000 bytes take 1 ms.
fn config() -> LinkConfig {
    LinkConfig {
        capacity: Capacity::Fixed(Rate::kbps(8_000)),
        queue: QueueConfig::DropTail(DropTailConfig::packets(2)),
        delay: Duration::from_millis(10),
        ..LinkConfig::default()
    }
}

fn link(config: &LinkConfig) -> Link<PacketHandle> {
    Link::new(config, Seed(1), "l").unwrap()
}

fn kilobyte(id: u64) -> PacketHandle {
    PacketHandle::new(id, 1_000, Ecn::Ect0)
}

fn drain(link: &mut Link<PacketHandle>, now: Time) -> Vec<(Time, u64)> {
    core::iter::from_fn(|| link.pop(now))
        .map(|(at, p)| (at, p.id))
        .collect()
}

#[test]
fn queue_then_transmission_then_delay() {
    let mut link = link(&config());
    link.observe(100);
    for id in 0..4 {
        link.push(ms(0), kilobyte(id));
    }
    // One in transmission, two queued, one dropped.
    assert_eq!(link.next_departure(), Some(ms(11)));
    assert_eq!(
        link.queued(),
        Queued {
            packets: 2,
            bytes: Bytes(2_000)
        }
    );
    assert_eq!(drain(&mut link, ms(12)), [(ms(11), 0), (ms(12), 1)]);
    assert_eq!(drain(&mut link, Time::FAR), [(ms(13), 2)]);
    let expected = LinkStats {
        arrivals: 4,
        arrived_bytes: Bytes(4_000),
        delivered: 3,
        delivered_bytes: Bytes(3_000),
        queue_drops: 1,
        busy: Duration::from_millis(3),
        ..LinkStats::default()
    };
    assert_eq!(link.stats(), expected);
    let departed = |waited, at| LinkLogEntry {
        at: ms(at),
        packet: waited,
        flow: waited as u32,
        size: Bytes(1_000),
        dscp: u8::from(waited == 0),
        happening: LinkEvent::Departed {
            waited: Duration::from_millis(waited),
            served: Duration::from_millis(1),
        },
    };
    let notes: Vec<_> = core::iter::from_fn(|| link.pop_note()).collect();
    assert_eq!(notes[3].happening, LinkEvent::Dropped(DropReason::Queue));
    assert_eq!(notes[4..], [departed(0, 1), departed(1, 2), departed(2, 3)]);
}

#[test]
fn an_outage_drops_packets_without_shifting_random_losses() {
    let outages = vec![Outage {
        from: ms(2),
        to: ms(4),
    }];
    let lossy = LinkConfig {
        loss: LossConfig::Bernoulli(0.5),
        queue: QueueConfig::DropTail(DropTailConfig::packets(50)),
        ..config()
    };
    let survivors = |config: &LinkConfig| {
        let mut link = link(config);
        (0..40).for_each(|id| link.push(ms(0), kilobyte(id)));
        drain(&mut link, Time::FAR)
    };
    let undisturbed = survivors(&lossy);
    let mut expected = undisturbed.clone();
    // Transmissions of packets 1 and 2 end at 2 and 3 ms.
    expected.retain(|(_, id)| *id != 1 && *id != 2);
    assert_ne!(expected, undisturbed);
    assert_eq!(survivors(&LinkConfig { outages, ..lossy }), expected);
}

#[test]
fn the_packet_log_is_bounded() {
    let mut link = link(&config());
    link.push(ms(0), kilobyte(0));
    assert_eq!(link.pop_note(), None);
    link.observe(1);
    link.push(ms(0), kilobyte(1));
    link.push(ms(0), kilobyte(2));
    assert_eq!(link.missed_notes(), 1);
    assert!(link.pop_note().is_some_and(|n| n.packet == 1));
    assert_eq!(link.pop_note(), None);
}

#[test]
fn an_unlimited_link_is_a_wire() {
    let mut link = link(&LinkConfig {
        delay: Duration::from_millis(5),
        ..LinkConfig::default()
    });
    (0..5_000).for_each(|id| link.push(ms(1), kilobyte(id)));
    assert_eq!(link.queued(), Queued::default());
    let out = drain(&mut link, ms(6));
    assert!(out.len() == 5_000 && out.iter().all(|(at, _)| *at == ms(6)));
}

#[test]
fn marks_at_dequeue_are_applied_and_logged() {
    let law = DelayLaw {
        target: Duration::ZERO,
        interval: Duration::from_nanos(1),
        ecn: true,
        ..DelayLaw::default()
    };
    let codel = CoDelConfig {
        law,
        ..CoDelConfig::default()
    };
    let mut link = link(&LinkConfig {
        queue: QueueConfig::CoDel(codel),
        ..config()
    });
    link.observe(100);
    link.count_flows(2);
    (0..6).for_each(|id| link.push(ms(0), kilobyte(id)));
    let out = core::iter::from_fn(|| link.pop(Time::FAR));
    let marked: Vec<_> = out
        .filter(|(_, p)| p.ecn == Ecn::Ce)
        .map(|(_, p)| p.id)
        .collect();
    // Packets 1 and 2 start and end the interval; then 1500 bytes are left.
    assert_eq!(marked, [2, 3]);
    assert_eq!((link.stats().marks, link.stats().queue_drops), (2, 0));
    // Packets 0 and 5 are of flow 0, packet 1 of flow 1; the other flows are not counted.
    let counts = FlowCounts {
        arrivals: 2,
        arrived_bytes: Bytes(2_000),
        delivered: 2,
        delivered_bytes: Bytes(2_000),
        ..FlowCounts::default()
    };
    let one = FlowCounts {
        arrivals: 1,
        arrived_bytes: Bytes(1_000),
        delivered: 1,
        delivered_bytes: Bytes(1_000),
        ..FlowCounts::default()
    };
    assert_eq!(link.flow_counts(), [counts, one]);
    let notes: Vec<_> = core::iter::from_fn(|| link.pop_note()).collect();
    let of_two = notes.iter().filter(|note| note.packet == 2);
    let times: Vec<_> = of_two.map(|note| (note.at, note.happening)).collect();
    assert_eq!(
        times[..2],
        [(ms(0), LinkEvent::Enqueued), (ms(2), LinkEvent::Marked)]
    );
}

#[test]
fn the_log_can_be_limited_to_drops() {
    let mut link = link(&config());
    link.observe_drops(10);
    (0..5).for_each(|id| link.push(ms(0), kilobyte(id)));
    let _ = drain(&mut link, Time::FAR);
    let notes = core::iter::from_fn(|| link.pop_note());
    let drops: Vec<_> = notes.map(|note| (note.packet, note.flow)).collect();
    assert_eq!((drops, link.missed_notes()), (vec![(3, 3), (4, 4)], 0));
}

#[test]
fn jitter_does_not_change_with_losses() {
    let jitter = JitterConfig {
        spread: Spread::Uniform {
            max: Duration::from_millis(5),
        },
        reorder: true,
    };
    let config = LinkConfig {
        jitter: Some(jitter),
        queue: QueueConfig::DropTail(DropTailConfig::packets(50)),
        ..config()
    };
    let arrivals = |config: &LinkConfig| {
        let mut link = link(config);
        (0..40).for_each(|id| link.push(ms(0), kilobyte(id)));
        drain(&mut link, Time::FAR)
    };
    let all = arrivals(&config);
    assert!(!all.is_sorted_by_key(|(_, id)| *id));
    let some = arrivals(&LinkConfig {
        loss: LossConfig::Bernoulli(0.3),
        ..config
    });
    assert!(some.len() < all.len() && some.iter().all(|arrival| all.contains(arrival)));
}

/// Pushes packets with the given gaps and sizes, pops them at the times of `polls`, and checks the
/// invariants.
fn run(
    config: &LinkConfig,
    arrivals: &[(u64, u64, bool)],
    polls: &[u64],
) -> (Vec<(Time, PacketHandle)>, LinkStats, Vec<LinkLogEntry>) {
    let mut link = link(config);
    link.observe(10_000);
    link.count_flows(5);
    let (mut out, mut now, mut poll, mut i) = (vec![], 0, 0, 0);
    for (id, (gap, size, capable)) in arrivals.iter().enumerate() {
        now += gap;
        while poll <= now {
            while let Some((at, p)) = link.pop(Time::from_nanos(poll)) {
                assert!(at <= Time::from_nanos(poll));
                out.push((at, p));
            }
            assert!(link.next_departure().is_none_or(|at| at.as_nanos() > poll));
            poll += polls[i % polls.len()];
            i += 1;
        }
        let ecn = if *capable { Ecn::Ect1 } else { Ecn::NotEct };
        link.push(
            Time::from_nanos(now),
            PacketHandle::new(id as u64, *size, ecn),
        );
        let stats = link.stats();
        let dropped = stats.queue_drops + stats.loss_drops + stats.outage_drops;
        let inside = link.inside() as u64;
        assert_eq!(stats.arrivals, stats.delivered + dropped + inside);
        assert!(link.queued().packets <= link.inside());
    }
    while let Some(at) = link.next_departure() {
        out.extend(core::iter::from_fn(|| link.pop(at)));
    }
    let flows = link.flow_counts();
    let stats = link.stats();
    let sum = |of: fn(&FlowCounts) -> u64| flows.iter().map(of).sum::<u64>();
    assert_eq!(sum(|c| c.arrivals), stats.arrivals);
    assert_eq!(sum(|c| c.delivered), stats.delivered);
    assert_eq!(sum(|c| c.queue_drops), stats.queue_drops);
    assert_eq!(
        sum(|c| c.other_drops),
        stats.loss_drops + stats.outage_drops
    );
    assert_eq!(sum(|c| c.marks), stats.marks);
    let notes: Vec<_> = core::iter::from_fn(|| link.pop_note()).collect();
    (out, stats, notes)
}

/// Without reordering, the last byte of a packet arrives after that of its predecessor in the flow
/// by at least its own transmission time. The extra delay is at most the maximum jitter and variation.
fn assert_spaced(config: &LinkConfig, out: &[(Time, PacketHandle)], notes: &[LinkLogEntry]) {
    let longest = config.jitter.map_or(Duration::ZERO, |jitter| {
        let (Spread::Uniform { max } | Spread::Normal { max, .. }) = jitter.spread;
        max
    });
    let variation = config.delay_variation.iter();
    let variation = variation
        .flat_map(crate::link::Steps::as_slice)
        .map(|(_, extra)| *extra);
    let longest = longest + variation.max().unwrap_or_default();
    let mut before = [Time::ZERO; 5];
    for (at, packet) in out {
        let before = &mut before[packet.flow() as usize];
        let departed = notes.iter().find_map(|note| match note.happening {
            LinkEvent::Departed { served, .. } if note.packet == packet.id => {
                Some((note.at, served))
            }
            _ => None,
        });
        let (end, served) = departed.unwrap();
        assert!(
            *at >= *before + served,
            "{at:?} after {before:?} in {served:?}"
        );
        assert!(
            *at <= end + config.delay + longest,
            "{at:?}, sent at {end:?}"
        );
        *before = *at;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// For all models: order is kept where required, every packet is accounted for, and neither
    /// late nor extra polls change departure times.
    #[test]
    fn departures_do_not_depend_on_wakeups(
        config in link_config(),
        arrivals in prop::collection::vec((0..3_000_000_u64, 1..2_000_u64, any::<bool>()), 1..150),
        polls in prop::collection::vec(1..40_000_000_u64, 1..20),
    ) {
        let punctual = run(&config, &arrivals, &[1_000_000]);
        prop_assert!(punctual.0.is_sorted_by_key(|(at, _)| *at));
        prop_assert!(punctual.2.is_sorted_by_key(|note| note.at));
        if !config.jitter.is_some_and(|jitter| jitter.reorder) {
            assert_spaced(&config, &punctual.0, &punctual.2);
            for flow in 0..5 {
                // Packets of different priority or queue may overtake each other.
                for (dscp, capable) in [(0, false), (0, true), (1, false), (1, true)] {
                    let out = punctual.0.iter().map(|(_, p)| p);
                    let alike = out.filter(|p| p.flow() == flow && p.dscp() == dscp);
                    let alike = alike.filter(|p| p.ecn().is_capable() == capable);
                    prop_assert!(alike.is_sorted_by_key(|p| p.id));
                }
            }
        }
        prop_assert_eq!(punctual, run(&config, &arrivals, &polls));
    }

    /// 1 b/s to 2^64 b/s, a microsecond to 500,000 years, up to [`Time::FAR`].
    #[test]
    fn extreme_values_do_not_overflow(
        queue in queue(),
        bps in prop_oneof![Just(1_u64), Just(1_000_000_000_000), Just(u64::MAX)],
        micros in prop_oneof![Just(1_u64), Just(3_600_000_000), Just(u64::MAX)],
        deviation in prop_oneof![Just(1_u64), Just(3_600_000_000), Just(u64::MAX)],
        reorder: bool,
        start in prop_oneof![Just(0_u64), Just(u64::MAX - 1_000), Just(u64::MAX)],
        gap in prop_oneof![Just(0_u64), Just(1), Just(3_600_000_000_000), Just(u64::MAX / 10)],
        sizes in prop::collection::vec(prop_oneof![Just(0_u64), Just(1), Just(1_500), Just(u64::MAX)], 1..20),
    ) {
        let spread = Spread::Normal {
            mean: Duration::from_micros(micros / 2),
            deviation: Duration::from_micros(deviation),
            max: Duration::from_micros(micros),
        };
        let config = LinkConfig {
            capacity: Capacity::Fixed(Rate::bps(bps)),
            delay: Duration::from_micros(micros),
            jitter: Some(JitterConfig { spread, reorder }),
            queue,
            ..config()
        };
        let mut link = link(&config);
        let mut now = Time::from_nanos(start);
        for (id, size) in sizes.iter().enumerate() {
            link.push(now, PacketHandle::new(id as u64, *size, Ecn::Ect0));
            let _ = (link.pop(now), link.next_departure());
            now += Duration::from_nanos(gap);
        }
        let out = drain(&mut link, Time::FAR);
        prop_assert!(out.is_sorted_by_key(|(at, _)| *at));
    }
}
