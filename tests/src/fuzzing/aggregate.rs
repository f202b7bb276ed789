//! Fuzz target of the aggregation point: a hostile site and hostile endpoints.

use core::time::Duration;

use super::Target;
use tidegate_core::aggregate::bridge::{Bridge, Frame, Medium, Passage};
use tidegate_core::aggregate::sites::{Numbers, SiteRule, SiteTable};
use tidegate_core::aggregate::{
    AggregateConfig, AggregationPoint, Direction, Packet, Policy, Sampling, SiteId, Verdict,
};
use tidegate_core::control::{Context, Ecn};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::rap::RapConfig;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::cp::{ApplicationId, Cp, LEN, Role, Shares};
use tidegate_core::wire::udp::{Checksum, Datagram};

/// All targets.
pub const TARGETS: [Target; 2] = [
    Target {
        name: "aggregate",
        run: aggregate,
    },
    Target {
        name: "bridge",
        run: bridge,
    },
];

/// The first byte selects the configuration. Each further packet is a byte that selects direction
/// and time, and 20 bytes of its payload, as far as there are any. Afterwards an honest application
/// is served.
pub fn aggregate(data: &[u8]) {
    let (first, story) = data.split_first().unwrap_or((&0, &[]));
    let mut point = AggregationPoint::new(AggregateConfig {
        control: match first & 1 {
            0 => ControllerConfig::from(TfrcConfig::default()),
            _ => ControllerConfig::from(RapConfig::default()),
        },
        sampling: if first & 2 == 0 {
            Sampling::Bfld
        } else {
            Sampling::All
        },
        strangers: if first & 4 == 0 {
            Policy::Forward
        } else {
            Policy::Drop
        },
        max_applications: MAX,
        ..AggregateConfig::default()
    });
    let mut rng = Seed(1).stream("aggregate");
    let mut now = Time::ZERO;
    for chunk in story.chunks(1 + LEN) {
        let (control, header) = chunk.split_first().unwrap_or((&0, &[]));
        now += Duration::from_micros(1) * (1 << (control >> 1).min(25));
        let mut trace = ();
        let mut cx = Context {
            now,
            rng: &mut rng,
            trace: &mut trace,
        };
        let mut payload = [header, b"media"].concat();
        let direction = if control & 1 == 0 {
            Direction::Inbound
        } else {
            Direction::Outbound
        };
        pass(&mut point, &mut cx, direction, &mut payload);
        if header.len() == LEN {
            assert_eq!(payload.len(), LEN + 5);
            assert_eq!(&payload[LEN..], b"media");
        }
        assert!(point.applications(now).count() <= MAX);
        if point.next_timeout().is_some_and(|(at, _)| at <= now) {
            point.on_timeout(&mut cx);
            assert!(point.next_timeout().is_none_or(|(at, _)| at > now));
        }
    }
    serve(&mut point, now + Duration::from_mins(1));
}

/// An application is admitted, once the others have expired.
/// A frame through a bridge in both directions. The first byte selects the link layer, the state of
/// the checksum and the segment size. Only the CP headers and the checksum change, and a wrong
/// checksum remains wrong.
pub fn bridge(data: &[u8]) {
    let (first, bytes) = data.split_first().unwrap_or((&0, &[]));
    let all = |text: &str| text.parse().expect("a prefix");
    let rule = SiteRule {
        hosts: vec![all("0.0.0.0/0"), all("::/0")],
        ports: vec![Numbers::new(0, u16::MAX)],
        applications: vec![Numbers::new(0, 1_000)],
        ..SiteRule::default()
    };
    let mut bridge = Bridge::new(AggregateConfig::default(), SiteTable(vec![rule]));
    let mut rng = Seed(1).stream("bridge");
    let medium = if first & 1 == 0 {
        Medium::Ethernet
    } else {
        Medium::Ip
    };
    let checksum = if first & 2 == 0 {
        Checksum::Complete
    } else {
        Checksum::Partial
    };
    let segment = (first & 4 != 0).then_some(u16::from(first >> 3));
    for direction in [Direction::Outbound, Direction::Inbound] {
        let mut passed = bytes.to_vec();
        let mut trace = ();
        let mut cx = Context {
            now: Time::from_secs(1),
            rng: &mut rng,
            trace: &mut trace,
        };
        let frame = Frame {
            bytes: &mut passed,
            medium,
            checksum,
            segment,
        };
        let passage = bridge.pass(&mut cx, direction, frame);
        if let Passage::Notify(notice) = &passage {
            assert!(notice.len() <= bytes.len());
        }
        let start = if medium == Medium::Ip { 0 } else { 14 };
        let Some(Ok(datagram)) = bytes.get(start..).map(Datagram::locate) else {
            // Tagged frames change as well.
            continue;
        };
        let (before, after) = (&bytes[start..], &passed[start..]);
        assert_eq!(before[..datagram.header + 6], after[..datagram.header + 6]);
        if segment.is_none() && passage != Passage::Drop {
            let data = (datagram.payload.start + LEN).min(before.len());
            assert_eq!(before[data..], after[data..]);
            if checksum == Checksum::Complete {
                assert_eq!(datagram.is_intact(before), datagram.is_intact(after));
            }
        }
    }
}

fn serve(point: &mut AggregationPoint, now: Time) {
    let (mut rng, mut trace) = (Seed(2).stream("aggregate"), ());
    let mut cx = Context {
        now,
        rng: &mut rng,
        trace: &mut trace,
    };
    point.on_timeout(&mut cx);
    let header = Cp {
        application: ApplicationId(77),
        flow: 1,
        shares: Shares::ONE,
        role: Role::Origin,
    };
    let mut payload = header.to_bytes().to_vec();
    let verdict = pass(point, &mut cx, Direction::Outbound, &mut payload);
    assert_eq!(verdict, Verdict::Forward);
    let (header, _) = Cp::parse(&payload).expect("a rewritten header is valid");
    assert!(matches!(header.role, Role::Probe(_)));
}

fn pass(
    point: &mut AggregationPoint,
    cx: &mut Context<'_>,
    direction: Direction,
    payload: &mut [u8],
) -> Verdict {
    let packet = Packet {
        site: SiteId(0),
        direction,
        size: Bytes(payload.len() as u64 + 28),
        ecn: Ecn::NotEct,
        payload,
    };
    point.forward(cx, packet)
}

/// Size of the table of applications.
const MAX: usize = 8;

#[cfg(test)]
mod tests {
    use tidegate_core::random::unit;

    use super::*;

    #[test]
    fn random_packets() {
        let mut rng = Seed(3).stream("packets");
        let mut byte = || (unit(&mut rng) * 256.0) as u8;
        for _ in 0..200 {
            let mut data = vec![byte()];
            for _ in 0..200 {
                let mut chunk = [0; 1 + LEN].map(|_: u8| byte());
                // Half of the headers are valid.
                if byte() & 1 == 0 {
                    chunk[1] = 0x10 | (chunk[1] & 0x0f).min(0x0b);
                    chunk[2] = 1 + chunk[2] % 64;
                    (chunk[3], chunk[4]) = (0, chunk[4] % 4);
                }
                data.extend_from_slice(&chunk);
            }
            aggregate(&data);
        }
    }
}
