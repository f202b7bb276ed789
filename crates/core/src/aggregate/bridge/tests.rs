use rand_pcg::Pcg64Mcg;

use super::*;
use crate::aggregate::Policy;
use crate::aggregate::sites::{Numbers, SiteRule};
use crate::control::Ecn;
use crate::random::Seed;
use crate::units::Time;
use crate::wire::cp::{ApplicationId, Role, Shares};

const LEFT: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const RIGHT: [&str; 2] = ["198.51.100.1", "2001:db8:8000::1"];
const PORT: u16 = 5_008;

struct Site {
    bridge: Bridge,
    rng: Pcg64Mcg,
}

impl Site {
    /// The point of the site whose hosts are not `hosts`.
    fn new(hosts: [&str; 2], config: AggregateConfig) -> Self {
        let rule = SiteRule {
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            ports: vec![Numbers::new(PORT, PORT)],
            applications: vec![Numbers::new(1, 1_000)],
            ..SiteRule::default()
        };
        Self {
            bridge: Bridge::new(config, SiteTable(vec![rule])),
            rng: Seed(1).stream("bridge"),
        }
    }

    fn pass(&mut self, ms: u64, direction: Direction, frame: Frame<'_>) -> Passage {
        let mut trace = ();
        let mut cx = Context {
            now: Time::from_millis(ms),
            rng: &mut self.rng,
            trace: &mut trace,
        };
        self.bridge.on_timeout(&mut cx);
        self.bridge.pass(&mut cx, direction, frame)
    }

    fn out(&mut self, ms: u64, bytes: &mut [u8]) -> Passage {
        self.pass(ms, Direction::Outbound, ethernet(bytes))
    }
}

fn ethernet(bytes: &mut [u8]) -> Frame<'_> {
    Frame {
        bytes,
        medium: Medium::Ethernet,
        checksum: Checksum::Complete,
        segment: None,
    }
}

fn left() -> Site {
    Site::new(RIGHT, AggregateConfig::default())
}

fn origin(application: u16) -> Vec<u8> {
    let header = Cp {
        application: ApplicationId(application),
        flow: 7,
        shares: Shares::ONE,
        role: Role::Origin,
    };
    let data = (0..=255_u8).cycle().take(500);
    header.to_bytes().into_iter().chain(data).collect()
}

/// A frame from one host to another, with these VLAN tags.
fn frame(from: &str, to: &str, tags: &[[u8; 4]], payload: &[u8]) -> Vec<u8> {
    let datagram = Datagram {
        source: to.parse().unwrap(),
        destination: from.parse().unwrap(),
        source_port: PORT,
        destination_port: 40_000,
        ecn: Ecn::NotEct,
        header: 0,
        payload: 0..0,
    };
    let mut frame = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]].concat();
    frame.extend(tags.concat());
    frame.extend(if from.contains(':') { IPV6 } else { IPV4 });
    frame.extend(datagram.answer(payload));
    frame
}

/// Header of a frame whose checksum is right.
fn header(frame: &[u8]) -> Cp {
    let packet = &frame[network_header(Medium::Ethernet, frame).unwrap()..];
    let datagram = Datagram::locate(packet).unwrap();
    assert!(datagram.is_intact(packet));
    Cp::parse(&packet[datagram.payload]).unwrap().0
}

#[test]
fn headers_are_rewritten_and_data_remains() {
    let tags: [&[[u8; 4]]; 3] = [
        &[],
        &[[0x81, 0, 0x20, 5]],
        &[[0x88, 0xa8, 0, 9], [0x81, 0, 0, 5]],
    ];
    for (from, to) in LEFT.into_iter().zip(RIGHT) {
        for tags in tags {
            let (mut left, mut right) = (left(), Site::new(LEFT, AggregateConfig::default()));
            // The right point learns of the application from its own endpoint.
            right.out(0, &mut frame(to, from, tags, &origin(1)));
            let sent = frame(from, to, tags, &origin(1));
            let mut passed = sent.clone();
            assert_eq!(left.out(5, &mut passed), Passage::Forward);
            assert!(matches!(header(&passed).role, Role::Probe(_)));
            let passage = right.pass(55, Direction::Inbound, ethernet(&mut passed));
            assert_eq!(passage, Passage::Forward);
            assert!(matches!(header(&passed).role, Role::Report(_)));
            let start = sent.len() - 500;
            assert_eq!(passed[start..], sent[start..]);
            assert_eq!(passed.len(), sent.len());
        }
    }
}

#[test]
fn sizes_are_those_of_ip_packets() {
    let mut site = left();
    for ms in 0..100 {
        site.out(
            ms,
            &mut frame(LEFT[0], RIGHT[0], &[[0x81, 0, 0, 5]], &origin(1)),
        );
    }
    let (_, state) = site
        .bridge
        .point()
        .applications(Time::from_millis(99))
        .next()
        .unwrap();
    // 548 bytes per millisecond.
    let rate = state.sending.as_f64() / 548_000.0 / 8.0;
    assert!((rate - 1.0).abs() < 0.02, "{rate}");
    assert_eq!((state.sent, state.flows), (100, 1));
}

#[test]
fn other_frames_pass_unchanged() {
    let mut site = left();
    let good = frame(LEFT[0], RIGHT[0], &[], &origin(1));
    let change = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let arp = [&good[..12], &[8, 6], &good[14..]].concat();
    let many_tags = frame(LEFT[0], RIGHT[0], &[[0x81, 0, 0, 5]; 3], &origin(1));
    let strangers = [
        arp,
        many_tags,
        good[..13].to_vec(),
        good[..30].to_vec(),
        vec![],
        // TCP, a first fragment, a later one, a length beyond the frame.
        change(23, 6),
        change(20, 0x20),
        change(21, 1),
        change(16, 0xff),
        // Another host, other ports, no CP header, a short one.
        frame(LEFT[0], "203.0.113.1", &[], &origin(1)),
        [&good[..34], &[0, 9, 0, 9], &good[38..]].concat(),
        frame(LEFT[0], RIGHT[0], &[], &[0; 100]),
        frame(LEFT[0], RIGHT[0], &[], &origin(1)[..19]),
        // An application that is not allowed.
        frame(LEFT[0], RIGHT[0], &[], &origin(1_001)),
    ];
    let count = strangers.len() as u64;
    for stranger in strangers {
        let mut bytes = stranger.clone();
        assert_eq!(site.out(0, &mut bytes), Passage::Forward);
        assert_eq!(bytes, stranger);
    }
    let expected = BridgeCounters {
        frames: count,
        datagrams: 3,
        forbidden: 1,
        fragments: 2,
        truncated: 2,
        dropped: 0,
    };
    assert_eq!(site.bridge.counters(), expected);
    assert_eq!(site.bridge.point().counters().invalid, 2);
}

#[test]
fn policy_drops_strangers_of_a_site_only() {
    let mut site = Site::new(
        RIGHT,
        AggregateConfig {
            strangers: Policy::Drop,
            ..AggregateConfig::default()
        },
    );
    let mut pass = |to: &str, payload: &[u8]| site.out(0, &mut frame(LEFT[0], to, &[], payload));
    assert_eq!(pass(RIGHT[0], &[0; 100]), Passage::Drop);
    assert_eq!(pass(RIGHT[0], &origin(1_001)), Passage::Drop);
    assert_eq!(pass(RIGHT[0], &origin(1)), Passage::Forward);
    assert_eq!(pass("203.0.113.1", &[0; 100]), Passage::Forward);
}

#[test]
fn spoofed_applications_are_bounded_and_forwarded_intact() {
    let mut site = left();
    let mut payload = origin(1);
    for n in 0..100_000_u32 {
        payload[2..4].copy_from_slice(&(n as u16).to_be_bytes());
        let sent = frame(LEFT[0], RIGHT[0], &[], &payload);
        let mut passed = sent.clone();
        assert_eq!(site.out(u64::from(n) / 100, &mut passed), Passage::Forward);
        header(&passed);
        assert_eq!(passed[62..], sent[62..]);
    }
    assert!(site.bridge.point().applications(Time::ZERO).count() <= 256);
    assert!(site.bridge.counters().forbidden > 90_000);
}

/// The far point falls silent: endpoints get a notification with every packet, which is not larger
/// than the packet.
#[test]
fn notifications_return_to_the_source() {
    for (from, to) in LEFT.into_iter().zip(RIGHT) {
        let (mut left, mut right) = (left(), Site::new(LEFT, AggregateConfig::default()));
        let tag = [[0x81, 0, 0x20, 5]];
        let mut noticed = None;
        for ms in 0..400 {
            let sent = frame(from, to, &tag, &origin(1));
            let mut there = sent.clone();
            match left.out(ms, &mut there) {
                Passage::Notify(notice) => {
                    noticed.get_or_insert(ms);
                    assert!(notice.len() <= sent.len());
                    let payload = &notice[notice.len() - LEN..];
                    let again = notification(Medium::Ethernet, &sent[..96], payload);
                    assert_eq!(again.as_ref(), Some(&notice));
                    assert_eq!(notice[..6], sent[6..12]);
                    assert_eq!(notice[6..12], sent[..6]);
                    assert_eq!(notice[12..16], tag[0]);
                    let packet = Datagram::locate(&notice[18..]).unwrap();
                    assert_eq!(packet.destination.to_string(), from);
                    assert_eq!(packet.destination_port, 40_000);
                    let Role::Report(report) = header(&notice).role else {
                        panic!("{notice:?}")
                    };
                    assert!(report.peer_lost);
                }
                passage => assert_eq!(passage, Passage::Forward),
            }
            if ms < 200 {
                right.pass(ms, Direction::Inbound, ethernet(&mut there));
                let mut back = frame(to, from, &tag, &origin(1));
                right.out(ms, &mut back);
                left.pass(ms, Direction::Inbound, ethernet(&mut back));
            }
        }
        let noticed = noticed.unwrap();
        assert!((200..210).contains(&noticed), "{noticed}");
    }
}

#[test]
fn segments_of_a_batch_are_stamped_one_by_one() {
    let mut site = left();
    let payload = [origin(1), origin(1), origin(1)[..100].to_vec()].concat();
    let sent = frame(LEFT[0], RIGHT[0], &[], &payload);
    let mut passed = sent.clone();
    let batch = Frame {
        checksum: Checksum::Partial,
        segment: Some(520),
        ..ethernet(&mut passed)
    };
    assert_eq!(site.pass(0, Direction::Outbound, batch), Passage::Forward);
    for (number, start) in [42, 562, 1_082].into_iter().enumerate() {
        let end = passed.len().min(start + 520);
        let (header, data) = Cp::parse(&passed[start..end]).unwrap();
        assert!(matches!(header.role, Role::Probe(probe) if probe.seq == number as u32));
        assert!(data == &sent[start + 20..end]);
    }
    // The field of the partial checksum.
    assert_eq!(passed[..42], sent[..42]);
    let (_, state) = site.bridge.point().applications(Time::ZERO).next().unwrap();
    assert_eq!(state.sent, 3);
}

/// An open circuit breaker stops the aggregate, except for a packet per second.
#[test]
fn stopped_applications_are_dropped() {
    let (mut left, mut right) = (left(), Site::new(LEFT, AggregateConfig::default()));
    let (mut forwarded, mut stopped_at) = (0, None);
    let mut transit = std::collections::VecDeque::new();
    for ms in 0..40_000_u64 {
        let mut there = frame(LEFT[0], RIGHT[0], &[], &origin(1));
        let passage = left.out(ms, &mut there);
        match (passage, stopped_at) {
            (Passage::Drop, None) => (stopped_at, forwarded) = (Some(ms), 0),
            (Passage::Drop, _) => {}
            // Nine of ten packets are lost.
            (_, _) => {
                forwarded += 1;
                if ms % 10 == 0 {
                    transit.push_back((ms + 100, there));
                }
            }
        }
        if stopped_at.is_some_and(|at| ms > at + 5_000) {
            break;
        }
        while let Some((at, mut there)) = transit.pop_front_if(|(at, _)| *at <= ms) {
            right.pass(at, Direction::Inbound, ethernet(&mut there));
        }
        if ms % 20 == 0 {
            let mut back = frame(RIGHT[0], LEFT[0], &[], &origin(1));
            right.out(ms, &mut back);
            left.pass(ms, Direction::Inbound, ethernet(&mut back));
        }
    }
    assert!(stopped_at.is_some());
    assert!((4..=6).contains(&forwarded), "{forwarded}");
    assert!(left.bridge.counters().dropped > 4_000);
}
