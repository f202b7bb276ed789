//! The drivers of the aggregation point on the same packets: each header that the simulator's point
//! writes is that of the gateway's bridge, packet by packet.

use std::collections::BTreeMap;
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::aggregate::bridge::{Bridge, Frame, Medium, Passage};
use tidegate_core::aggregate::sites::{Numbers, SiteRule, SiteTable};
use tidegate_core::aggregate::{AggregateConfig, AggregationPoint, Direction, Packet, SiteId};
use tidegate_core::control::{Context, Ecn};
use tidegate_core::random::{Seed, unit};
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::cp::{ApplicationId, Cp, LEN, Role, Shares};
use tidegate_core::wire::udp::{Checksum, Datagram};
use tidegate_sim::coordination::SharedPoint;
use tidegate_sim::packet_agent::{Agent as _, AgentCx, Arrival, Body, Outbox};

/// A packet at a point.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    at: Time,
    /// Left point, or right one.
    point: usize,
    direction: Direction,
    size: u32,
    header: [u8; LEN],
}

const DELAY: Duration = Duration::from_millis(30);
const PACKETS: usize = 40_000;
const SIZES: [u32; 3] = [548, 1_048, 48];

/// Two points of the simulator in a closed loop, with losses, reordering, replays and forged packets.
/// Returns the packets before and the headers after each passage.
fn record() -> (Vec<Recorded>, Vec<Option<[u8; LEN]>>) {
    let points = [0, 1].map(|_| SharedPoint::new(AggregateConfig::default()));
    let mut ports = points
        .each_ref()
        .map(|point| [Direction::Outbound, Direction::Inbound].map(|d| point.port(d)));
    let mut rngs = rngs();
    let mut chance = Seed(9).stream("packets");
    let (mut recorded, mut results) = (Vec::new(), Vec::new());
    let mut transit: BTreeMap<(Time, usize), (usize, u32, [u8; LEN])> = BTreeMap::new();
    let (mut now, mut number) = (Time::ZERO, 0);
    while recorded.len() < PACKETS {
        number += 1;
        let arrives = transit
            .first_key_value()
            .is_some_and(|((at, _), _)| *at <= now);
        let packet = if arrives {
            let ((at, _), (from, size, header)) = transit.pop_first().unwrap();
            Recorded {
                at,
                point: 1 - from,
                direction: Direction::Inbound,
                size,
                header,
            }
        } else {
            now += Duration::from_micros((1_000.0 * unit(&mut chance)) as u64);
            Recorded {
                at: now,
                point: number % 2,
                direction: Direction::Outbound,
                size: SIZES[number % 3],
                header: origin(number, &mut chance),
            }
        };
        let port = &mut ports[packet.point][usize::from(packet.direction == Direction::Inbound)];
        let (mut out, mut trace) = (Outbox::default(), ());
        let mut cx = AgentCx::new(packet.at, &mut rngs[packet.point], &mut trace, &mut out);
        port.on_timer(&mut cx);
        let arrival = Arrival {
            size: packet.size,
            ecn: Ecn::NotEct,
            dscp: 0,
        };
        let mut body = Body::Coordinated {
            header: packet.header,
            sent: packet.at,
        };
        port.on_packet(&mut cx, &arrival, &mut body);
        let result = out.drain().next().map(|sent| match sent.body {
            Body::Coordinated { header, .. } => header,
            other => panic!("{other:?}"),
        });
        recorded.push(packet);
        results.push(result);
        if let (Some(header), Direction::Outbound) = (result, packet.direction) {
            // 2 % lost, 1 % late, 0.5 % twice.
            let fate = unit(&mut chance);
            let late = Duration::from_millis(if fate < 0.03 { 8 } else { 0 });
            if fate >= 0.02 {
                let sent = (packet.point, packet.size, header);
                transit.insert((packet.at + DELAY + late, number), sent);
                if fate < 0.035 {
                    transit.insert((packet.at + 2 * DELAY, number), sent);
                }
            }
        }
    }
    (recorded, results)
}

/// Packets of two applications, and a few with random bytes.
fn origin(number: usize, chance: &mut Pcg64Mcg) -> [u8; LEN] {
    let mut header = Cp {
        application: ApplicationId(1 + (number / 2 % 2) as u16),
        flow: (number % 40) as u16,
        shares: Shares::new(1 + (number / 10_000) as u8).unwrap_or(Shares::ONE),
        role: Role::Origin,
    }
    .to_bytes();
    if unit(chance) < 0.01 {
        let place = (unit(chance) * LEN as f64) as usize % LEN;
        header[place] ^= 1 << (number % 8);
    }
    header
}

fn rngs() -> [Pcg64Mcg; 2] {
    ["left", "right"].map(|name| Seed(4).stream(name))
}

fn bridge(other: &str) -> Bridge {
    let rule = SiteRule {
        hosts: vec![other.parse().unwrap()],
        ports: vec![Numbers::new(5_008, 5_008)],
        ..SiteRule::default()
    };
    Bridge::new(AggregateConfig::default(), SiteTable(vec![rule]))
}

const HOSTS: [&str; 2] = ["192.0.2.1", "198.51.100.1"];

/// The packet as an IP packet.
fn frame(packet: &Recorded) -> Vec<u8> {
    let from = if packet.direction == Direction::Outbound {
        packet.point
    } else {
        1 - packet.point
    };
    let reply = Datagram {
        source: HOSTS[1 - from].parse().unwrap(),
        destination: HOSTS[from].parse().unwrap(),
        source_port: 5_008,
        destination_port: 5_008,
        ecn: Ecn::NotEct,
        header: 0,
        payload: 0..0,
    };
    let mut payload = packet.header.to_vec();
    payload.resize(packet.size as usize - 28, 7);
    reply.answer(&payload)
}

#[test]
fn bridge_writes_the_headers_of_the_simulator() {
    let (recorded, results) = record();
    let mut bridges = [bridge(HOSTS[1]), bridge(HOSTS[0])];
    let mut rngs = rngs();
    for (number, (packet, result)) in recorded.iter().zip(&results).enumerate() {
        let mut bytes = frame(packet);
        let bridge = &mut bridges[packet.point];
        let mut cx = Context {
            now: packet.at,
            rng: &mut rngs[packet.point],
            trace: &mut (),
        };
        bridge.on_timeout(&mut cx);
        let frame = Frame {
            bytes: &mut bytes,
            medium: Medium::Ip,
            checksum: Checksum::Complete,
            segment: None,
        };
        let passage = bridge.pass(&mut cx, packet.direction, frame);
        assert_eq!(passage == Passage::Drop, result.is_none(), "{number}");
        if let Some(header) = result {
            assert_eq!(bytes[28..48], header[..], "packet {number}: {packet:?}");
        }
        assert!(Datagram::locate(&bytes).unwrap().is_intact(&bytes));
        assert!(bytes[48..].iter().all(|byte| *byte == 7));
    }
    // The recording has what it should test.
    let counters = bridges.each_ref().map(|bridge| bridge.point().counters());
    for of in counters {
        assert!(
            of.rewritten > 10_000 && of.invalid >= 10 && of.late > 100,
            "{of:?}"
        );
    }
    let end = recorded.last().unwrap().at;
    let states = bridges[1].point().applications(end);
    let states: Vec<_> = states.filter(|(_, state)| state.received > 1_000).collect();
    assert_eq!(states.len(), 2);
    for (_, state) in states {
        assert!(state.fraction < 0.5 && state.lost > 100, "{state:?}");
    }
}

/// The bare state machine is a third driver of the same sequence.
#[test]
fn drivers_add_nothing_to_the_state_machine() {
    let (recorded, results) = record();
    let mut points = [0, 1].map(|_| AggregationPoint::new(AggregateConfig::default()));
    let mut rngs = rngs();
    for (packet, result) in recorded.iter().zip(&results) {
        let mut cx = Context {
            now: packet.at,
            rng: &mut rngs[packet.point],
            trace: &mut (),
        };
        let point = &mut points[packet.point];
        point.on_timeout(&mut cx);
        let mut payload = packet.header;
        point.forward(
            &mut cx,
            Packet {
                site: SiteId(0),
                direction: packet.direction,
                size: Bytes(packet.size.into()),
                ecn: Ecn::NotEct,
                payload: &mut payload,
            },
        );
        assert_eq!(result.unwrap_or(payload), payload);
    }
}
