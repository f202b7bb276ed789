//! The drivers of the aggregation point on the same packets: each header that the simulator's point
//! writes is that of the gateway's bridge, packet by packet.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::aggregate::bridge::{Bridge, Frame, Medium, Passage};
use tidegate_core::aggregate::sites::{Numbers, SiteRule, SiteTable};
use tidegate_core::aggregate::{
    AggregateConfig, AggregationPoint, Direction, Packet, Sampling, SiteId,
};
use tidegate_core::control::{Context, Ecn};
use tidegate_core::random::{Seed, unit};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_core::wire::cp::{ApplicationId, Cp, LEN, PathReport, Probe, RateCode, Role, Shares};
use tidegate_core::wire::udp::{Checksum, Datagram};
use tidegate_kernel::LoadError;
use tidegate_kernel::aggregate::{KernelConfig, KernelPoint, KernelPointError};
use tidegate_sim::coordination::SharedPoint;
use tidegate_sim::packet_agent::{Agent as _, AgentCx, Arrival, Body, Outbox};
use tidegate_sim::world::NodeId;

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
fn record(sampling: Sampling) -> (Vec<Recorded>, Vec<Option<[u8; LEN]>>) {
    let points = [0, 1].map(|_| SharedPoint::new(config(sampling)));
    let mut ports = points
        .each_ref()
        .map(|point| [Direction::Outbound, Direction::Inbound].map(|d| point.port(d, NodeId(0))));
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

fn config(sampling: Sampling) -> AggregateConfig {
    AggregateConfig {
        sampling,
        ..AggregateConfig::default()
    }
}

fn rule(other: &str) -> SiteRule {
    SiteRule {
        hosts: vec![other.parse().unwrap()],
        ports: vec![Numbers::new(5_008, 5_008)],
        ..SiteRule::default()
    }
}

fn bridge(other: &str) -> Bridge {
    Bridge::new(AggregateConfig::default(), SiteTable(vec![rule(other)]))
}

/// Differences between the headers of the kernel and of the simulator.
#[derive(Debug, Default)]
struct Differences {
    probes: u64,
    reports: u64,
    /// Sums of found and of expected values, and their number.
    rtt: (f64, f64, u64),
    available: (f64, f64, u64),
    used: (f64, f64, u64),
    loss: (f64, f64, u64),
    /// Reports whose flag of a lost peer differs.
    peer_lost: u64,
}

impl Differences {
    fn compare(&mut self, number: usize, found: &[u8], expected: &[u8; LEN]) {
        let parse = |bytes| Cp::parse(bytes).unwrap().0;
        let ((found, expected), bytes) = match (Cp::parse(found), Cp::parse(expected)) {
            (Ok(_), Ok(_)) => ((parse(found), parse(expected)), found),
            // Damaged headers pass unchanged.
            _ => return assert_eq!(found, expected, "{number}"),
        };
        let shown = format!("packet {number}: {found:?} {expected:?} {bytes:?}");
        assert_eq!(
            (found.application, found.flow),
            (expected.application, expected.flow)
        );
        assert_eq!(found.shares, expected.shares, "{shown}");
        match (found.role, expected.role) {
            (Role::Probe(found), Role::Probe(expected)) => {
                self.probes += 1;
                let exact = |probe: Probe| (probe.seq, probe.stamp, probe.echo, probe.stop);
                assert_eq!(exact(found), exact(expected), "{shown}");
                // After slow start.
                if number > PACKETS / 4 && expected.available.to_rate() > Rate::ZERO {
                    let rate = |code: RateCode| code.to_rate().as_f64();
                    add(
                        &mut self.available,
                        rate(found.available),
                        rate(expected.available),
                    );
                }
                if expected.loss.to_rate() > 0.005 {
                    add(
                        &mut self.loss,
                        found.loss.to_rate(),
                        expected.loss.to_rate(),
                    );
                }
            }
            (Role::Report(found), Role::Report(expected)) => {
                self.reports += 1;
                let size = found.packet_size.abs_diff(expected.packet_size);
                assert!(size <= 1 && found.stop == expected.stop, "{shown}");
                self.peer_lost += u64::from(found.peer_lost != expected.peer_lost);
                let seconds = |report: PathReport| report.rtt.to_duration().as_secs_f64();
                if seconds(expected) > 0.0 && seconds(found) > 0.0 {
                    add(&mut self.rtt, seconds(found), seconds(expected));
                }
                let rate = |code: RateCode| code.to_rate().as_f64();
                if rate(expected.used) > 0.0 && rate(found.used) > 0.0 {
                    add(&mut self.used, rate(found.used), rate(expected.used));
                }
            }
            (found, expected) => assert_eq!(found, expected, "{shown}"),
        }
    }

    /// Means within 2 %, since values of a round are up to a round old; the available bandwidth within
    /// a tolerance.
    fn judge(&self, tolerance: f64) {
        for (name, (found, expected, count), most) in [
            ("rtt", self.rtt, 0.02),
            ("available", self.available, tolerance),
            ("used", self.used, 0.02),
            ("loss", self.loss, 0.02),
        ] {
            assert!(count > 5_000, "{name}: {self:?}");
            assert!((found / expected - 1.0).abs() < most, "{name}: {self:?}");
        }
        assert!(self.peer_lost * 100 < self.reports, "{self:?}");
    }
}

fn add(to: &mut (f64, f64, u64), found: f64, expected: f64) {
    *to = (to.0 + found, to.1 + expected, to.2 + 1);
}

/// Reports that the programs are not available. Fails instead as root, where they should be.
fn skip(test: &str, error: &KernelPointError) {
    // Written to standard error directly: the test harness captures the output of passing tests.
    let mut terminal = std::io::stderr();
    writeln!(terminal, "skipped {test}: {error}").unwrap();
    // SAFETY: takes nothing and accesses no memory.
    let is_root = unsafe { libc::geteuid() } == 0;
    assert!(
        !is_root || !matches!(error, KernelPointError::Load(LoadError::Verifier { .. })),
        "{error}"
    );
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
    let (recorded, results) = record(Sampling::Bfld);
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

/// The programs of the kernel, by test runs at the recorded times. Packets that the fast path handles
/// alone are identical; values that user space computes once per round are close.
#[test]
fn kernel_writes_the_headers_of_the_simulator() {
    // With all packets in the virtual stream, both controllers see the same events. With a sample
    // each draws its own.
    for (sampling, tolerance) in [(Sampling::All, 0.02), (Sampling::Bfld, 0.2)] {
        let Some(differences) = replay_in_kernel(sampling) else {
            return;
        };
        differences.judge(tolerance);
    }
}

/// `None` where the programs are not available.
fn replay_in_kernel(sampling: Sampling) -> Option<Differences> {
    let (recorded, results) = record(sampling);
    let config = |other: &str| KernelConfig {
        aggregation: config(sampling),
        remote: vec![rule(other)],
        link_header: 14,
        manual_clock: true,
    };
    let mut points = Vec::new();
    for other in [HOSTS[1], HOSTS[0]] {
        match KernelPoint::load(&config(other)) {
            Ok(point) => points.push(point),
            Err(error) => {
                skip("kernel_writes_the_headers_of_the_simulator", &error);
                return None;
            }
        }
    }
    let (mut rngs, mut next) = (rngs(), [Time::ZERO; 2]);
    let mut differences = Differences::default();
    for (number, (packet, result)) in recorded.iter().zip(&results).enumerate() {
        let point = &mut points[packet.point];
        if packet.at >= next[packet.point] {
            let mut cx = Context {
                now: packet.at,
                rng: &mut rngs[packet.point],
                trace: &mut (),
            };
            next[packet.point] = point.run(&mut cx).unwrap();
        }
        point.set_clock(packet.at);
        let mut ethernet = [0; 14];
        ethernet[12] = 8;
        let bytes = [&ethernet, &frame(packet)[..]].concat();
        let outbound = packet.direction == Direction::Outbound;
        let (passed, _) = point.test_run(outbound, &bytes, 1).unwrap();
        assert_eq!(passed.is_none(), result.is_none(), "{number}");
        let (Some(passed), Some(expected)) = (passed, result) else {
            continue;
        };
        assert!(
            Datagram::locate(&passed[14..])
                .unwrap()
                .is_intact(&passed[14..])
        );
        assert!(passed[62..].iter().all(|byte| *byte == 7));
        differences.compare(number, &passed[42..62], expected);
    }
    let counters = points.iter().map(|point| point.counters().unwrap());
    for of in counters {
        assert!(
            of.rewritten > 10_000 && of.invalid >= 5 && of.late > 100,
            "{of:?}"
        );
        assert_eq!((of.failed, of.missed), (0, 0), "{of:?}");
    }
    let states = points[1].applications(recorded.last().unwrap().at);
    assert!(states.iter().filter(|(_, state)| state.lost > 100).count() == 2);
    println!("{sampling:?} {differences:?}");
    Some(differences)
}

/// Spoofed applications have a quarter of the table, and strangers pass unchanged.
#[test]
fn kernel_bounds_spoofed_applications() {
    let config = KernelConfig {
        aggregation: AggregateConfig::default(),
        remote: vec![SiteRule {
            applications: vec![Numbers::new(0, 60_000)],
            ..rule(HOSTS[1])
        }],
        link_header: 14,
        manual_clock: true,
    };
    let mut point = match KernelPoint::load(&config) {
        Ok(point) => point,
        Err(error) => return skip("kernel_bounds_spoofed_applications", &error),
    };
    let mut rng = Seed(1).stream("spoofed");
    let good = ethernet(HOSTS, 1);
    for n in 0..100_000_u32 {
        let at = Time::from_micros(u64::from(n) * 10);
        point.set_clock(at);
        if n % 1_000 == 0 {
            let mut cx = Context {
                now: at,
                rng: &mut rng,
                trace: &mut (),
            };
            point.run(&mut cx).unwrap();
            assert!(point.applications(at).len() <= 64);
        }
        let sent = ethernet(HOSTS, n as u16);
        let (passed, _) = point.test_run(true, &sent, 1).unwrap();
        let passed = passed.unwrap();
        assert!(
            Datagram::locate(&passed[14..])
                .unwrap()
                .is_intact(&passed[14..])
        );
        assert_eq!(passed[62..], sent[62..]);
    }
    let counters = point.counters().unwrap();
    assert!(
        counters.refused > 80_000 && counters.forbidden > 5_000,
        "{counters:?}"
    );

    let change = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let strangers = [
        // ARP, TCP, fragments, impossible lengths.
        change(13, 6),
        change(23, 6),
        change(20, 0x20),
        change(21, 1),
        change(16, 0xff),
        change(14, 0x4f),
        change(38, 0xff),
        change(39, 9),
        // Another version and role, no flowshares, and a packet that ends in the header.
        change(42, 0x20),
        change(42, 0x1c),
        change(43, 0),
        good[..50].to_vec(),
        good[..35].to_vec(),
        // Another host.
        change(33, 9),
    ];
    for stranger in strangers {
        let (passed, _) = point.test_run(true, &stranger, 1).unwrap();
        assert_eq!(passed.as_ref(), Some(&stranger));
    }
}

/// A frame of an endpoint.
fn ethernet(hosts: [&str; 2], application: u16) -> Vec<u8> {
    let reply = Datagram {
        source: hosts[1].parse().unwrap(),
        destination: hosts[0].parse().unwrap(),
        source_port: 5_008,
        destination_port: 5_008,
        ecn: Ecn::NotEct,
        header: 0,
        payload: 0..0,
    };
    let mut payload = Cp {
        application: ApplicationId(application),
        flow: 7,
        shares: Shares::ONE,
        role: Role::Origin,
    }
    .to_bytes()
    .to_vec();
    payload.extend(0..200_u8);
    let mut frame = vec![2; 12];
    let is_ipv6 = hosts[0].contains(':');
    frame.extend(if is_ipv6 { [0x86, 0xdd] } else { [8, 0] });
    frame.extend(reply.answer(&payload));
    frame
}

/// IPv6 packets are rewritten as well.
#[test]
fn kernel_rewrites_ipv6() {
    let hosts = ["2001:db8::1", "2001:db8:1::2"];
    let config = KernelConfig {
        aggregation: AggregateConfig::default(),
        remote: vec![rule("2001:db8:1::/48")],
        link_header: 14,
        manual_clock: false,
    };
    let mut point = match KernelPoint::load(&config) {
        Ok(point) => point,
        Err(error) => return skip("kernel_rewrites_ipv6", &error),
    };
    for seq in 0..3 {
        let sent = ethernet(hosts, 1);
        let (passed, _) = point.test_run(true, &sent, 1).unwrap();
        let passed = passed.unwrap();
        let datagram = Datagram::locate(&passed[14..]).unwrap();
        assert!(datagram.is_intact(&passed[14..]));
        let (header, data) = Cp::parse(&passed[62..]).unwrap();
        assert!(matches!(header.role, Role::Probe(probe) if probe.seq == seq));
        assert_eq!(data, &sent[82..]);
    }
}

/// The bare state machine is a third driver of the same sequence.
#[test]
fn drivers_add_nothing_to_the_state_machine() {
    let (recorded, results) = record(Sampling::Bfld);
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
