use proptest::prelude::*;
use tidegate_core::control::Ecn;
use tidegate_core::link::{
    Capacity, DropTailConfig, Hop as _, Link, LinkConfig, Packet, QueueConfig, Steps, Trace,
};
use tidegate_core::random::Seed;

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// A link of this capacity with 40 ms of delay.
fn hop(service: Service) -> Hop {
    Hop {
        service,
        delay: ms(40),
        variation: Vec::new(),
        outages: Vec::new(),
        queue: None,
    }
}

fn steady(bps: u64) -> Service {
    Service::Steps(vec![(Time::ZERO, Rate::bps(bps))])
}

/// 150 kb/s at 30 frames per second: 625 bytes and 40 of headers, 5320 bits on the wire.
fn sender(bound: u64) -> FloorSender {
    FloorSender {
        floor: Rate::kbps(150),
        frame_rate: FrameRate::fps(30),
        payload: Bytes(1_200),
        overhead: Bytes(40),
        bound: ms(bound),
    }
}

fn captures(frames: u64) -> Vec<Time> {
    (0..frames)
        .map(|n| Time::ZERO + FrameRate::fps(30).at(n))
        .collect()
}

fn lost(saved: &[bool]) -> Vec<usize> {
    (0..saved.len()).filter(|n| !saved[*n]).collect()
}

#[test]
fn frame_is_split_into_packets() {
    let large = FloorSender {
        floor: Rate::kbps(1_000),
        ..sender(400)
    };
    // 4167 bytes.
    assert_eq!(
        large.packets(),
        [1_240, 1_240, 1_240, 607].map(Bytes),
        "expected three full packets and the rest"
    );
    assert_eq!(sender(400).packets(), [Bytes(665)]);
}

#[test]
fn all_frames_are_savable_without_outages() {
    let path = [hop(steady(1_000_000))];
    assert_eq!(
        lost(&sender(400).savable(&path, &captures(600))),
        [0_usize; 0]
    );
}

/// 5320 bits take 5.32 ms at 1 Mb/s, and 40 ms to arrive.
#[test]
fn the_bound_is_met_to_the_microsecond() {
    let path = [hop(steady(1_000_000))];
    let tight = |micros| FloorSender {
        bound: Duration::from_micros(micros),
        ..sender(0)
    };
    let none = tight(45_319).savable(&path, &captures(30));
    let all = tight(45_320).savable(&path, &captures(30));
    assert_eq!((lost(&none).len(), lost(&all).len()), (30, 0));
}

/// Outage from 10 s to 12 s. Frame 299, captured at 9.967 s, leaves before. The last bit of a later
/// frame leaves at 12 s at the earliest and arrives at 12.04 s, which is in time for frames
/// captured from 11.64 s on: 349 is captured at 11.633 s, 350 at 11.667 s.
#[test]
fn outage_loses_exactly_the_unsavable_frames() {
    let path = [Hop {
        outages: vec![(at(10_000), at(12_000))],
        ..hop(steady(4_000_000))
    }];
    let saved = sender(400).savable(&path, &captures(600));
    assert_eq!(lost(&saved), (300..350).collect::<Vec<_>>());
}

/// The same with a link at rate zero. A packet takes 1.33 ms longer after the stall, which has no
/// effect; at 100 kb/s after it, each of the waiting frames takes 53.2 ms.
#[test]
fn stall_loses_exactly_the_expired_frames() {
    let stall = |after| {
        hop(Service::Steps(vec![
            (at(0), Rate::kbps(4_000)),
            (at(10_000), Rate::ZERO),
            (at(12_000), Rate::kbps(after)),
        ]))
    };
    let saved = sender(400).savable(&[stall(4_000)], &captures(600));
    assert_eq!(lost(&saved), (300..350).collect::<Vec<_>>());
    // Frame 351, captured at 11.7 s, leaves at 12.0532 s. 352, captured at 11.733 s, would leave at
    // 12.1064 s, after its limit of 12.0933 s. 353, captured at 11.767 s, leaves then, before its
    // limit of 12.1267 s. 354, captured at 11.8 s, leaves at 12.1596 s, just before its limit of
    // 12.16 s.
    let saved = sender(400).savable(&[stall(100)], &captures(355));
    let late: Vec<_> = lost(&saved).into_iter().filter(|n| *n >= 350).collect();
    assert_eq!(late, [350, 352]);
}

/// At 53.2 kb/s a frame takes 100 ms, in which three are captured. The first four fill the 360 ms;
/// then every third one fits.
#[test]
fn some_frames_are_savable_below_the_floor() {
    let saved = sender(400).savable(&[hop(steady(53_200))], &captures(30));
    let kept: Vec<_> = (0..30).filter(|n| saved[*n]).collect();
    assert_eq!(kept, [0, 1, 2, 3, 5, 8, 11, 14, 17, 20, 23, 26, 29]);
}

/// 1500 bytes every 100 ms carry two and a quarter frames, and each frame has 100 ms. Frames 0 and
/// 1 leave at 100 ms. Frame 2, captured at 66.7 ms, would leave at 200 ms, too late. Frame 3,
/// captured at 100 ms, finds 170 bytes and leaves at 200 ms, as does frame 4.
#[test]
fn frames_share_a_delivery_opportunity() {
    let path = [hop(Service::Opportunities(vec![100]))];
    let saved = sender(140).savable(&path, &captures(9));
    let kept: Vec<_> = (0..9).filter(|n| saved[*n]).collect();
    assert_eq!(kept, [0, 1, 3, 4, 6, 7]);
}

#[test]
fn recording_continues_after_an_outage() {
    let path = [Hop {
        outages: vec![(at(95), at(205))],
        ..hop(Service::Opportunities(vec![100]))
    }];
    let saved = sender(360).savable(&path, &captures(3));
    // The first opportunity after the outage is at 300 ms and has room for two frames. The third
    // would leave at 400 ms, after its limit of 386.7 ms.
    assert_eq!(saved, [true, true, false]);
}

#[test]
fn every_hop_counts() {
    let path = [hop(steady(1_000_000)), hop(steady(2_000_000))];
    let tight = |micros| FloorSender {
        bound: Duration::from_micros(micros),
        ..sender(0)
    };
    // 5.32 ms and 2.66 ms of transmission, 80 ms of propagation.
    assert_eq!(tight(87_979).savable(&path, &captures(1)), [false]);
    assert_eq!(tight(87_980).savable(&path, &captures(1)), [true]);
}

/// The delay rises from 40 to 540 ms between 10 and 11 s. A packet sent after 11 s arrives before one
/// sent until then, so the frames from 10.64 s on wait.
#[test]
fn a_rise_of_the_delay_costs_the_frames_before_its_end() {
    let path = [Hop {
        variation: vec![(at(0), ms(0)), (at(10_000), ms(500)), (at(11_000), ms(0))],
        ..hop(steady(4_000_000))
    }];
    let saved = sender(400).savable(&path, &captures(600));
    assert_eq!(lost(&saved), (300..320).collect::<Vec<_>>());
}

#[test]
fn queue_smaller_than_a_packet_saves_no_frame() {
    let holds = |bytes| Hop {
        queue: Some(Bytes(bytes)),
        ..hop(steady(4_000_000))
    };
    assert_eq!(sender(400).savable(&[holds(664)], &captures(1)), [false]);
    assert_eq!(sender(400).savable(&[holds(665)], &captures(1)), [true]);
}

#[derive(Debug)]
struct PacketHandle(usize);

impl Packet for PacketHandle {
    fn size(&self) -> Bytes {
        Bytes(665)
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }
    fn set_ce(&mut self) {}
}

/// Arrivals in the link model of the frames that the optimum would send, each sent at its capture.
fn arrivals(capacity: Capacity, captured: &[Time], saved: &[bool]) -> Vec<Option<Time>> {
    let config = LinkConfig {
        capacity,
        queue: QueueConfig::DropTail(DropTailConfig::packets(10_000)),
        delay: ms(40),
        ..LinkConfig::default()
    };
    let mut link = Link::new(&config, Seed(1), "up").unwrap();
    for n in (0..saved.len()).filter(|n| saved[*n]) {
        link.push(captured[n], PacketHandle(n));
    }
    let mut arrived = vec![None; saved.len()];
    while let Some((at, PacketHandle(n))) = link.pop(Time::FAR) {
        arrived[n] = Some(at);
    }
    arrived
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Two models without common code agree: frames that the optimum saves arrive in time in the
    /// link model.
    #[test]
    fn link_model_agrees_with_the_optimum(
        rates in prop::collection::vec(0_u64..600, 1..12),
        gaps in prop::collection::vec(0_u32..200, 1..40),
        bound in 41_u64..600,
        recorded: bool,
    ) {
        let captured = captures(150);
        let (service, capacity) = if recorded {
            let millis: Vec<u32> = gaps.iter().scan(1, |at, gap| { *at += gap; Some(*at) }).collect();
            let text: Vec<String> = millis.iter().map(u32::to_string).collect();
            let trace = Trace::parse(&text.join("\n")).unwrap();
            (Service::Opportunities(millis), Capacity::Trace(trace))
        } else {
            let step = |(n, kbps): (usize, &u64)| (at(n as u64 * 400), Rate::kbps(*kbps));
            let steps: Vec<_> = rates.iter().enumerate().map(step).collect();
            let capacity = Capacity::Steps(Steps::new(&steps).unwrap());
            (Service::Steps(steps), capacity)
        };
        let sender = sender(bound);
        let saved = sender.savable(&[hop(service)], &captured);
        let arrived = arrivals(capacity, &captured, &saved);
        for n in 0..saved.len() {
            let in_time = arrived[n].is_some_and(|at| at <= captured[n] + sender.bound);
            prop_assert_eq!(in_time, saved[n], "frame {} arrived at {:?}", n, arrived[n]);
        }
    }

    /// A longer bound saves no fewer frames if capacity is sufficient.
    #[test]
    fn longer_bound_saves_no_fewer_frames(from in 0_u64..4_000, lasts in 1_u64..3_000, bound in 41_u64..800) {
        let path = [Hop {
            outages: vec![(at(from), at(from + lasts))],
            ..hop(steady(2_000_000))
        }];
        let count = |bound| sender(bound).savable(&path, &captures(240)).iter().filter(|saved| **saved).count();
        prop_assert!(count(bound + 100) >= count(bound));
    }
}
