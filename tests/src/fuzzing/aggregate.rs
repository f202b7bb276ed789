//! Fuzz target of the aggregation point: a hostile site and hostile endpoints.

use core::time::Duration;

use super::Target;
use tidegate_core::aggregate::{
    AggregateConfig, AggregationPoint, Direction, Packet, Policy, Sampling, SiteId, Verdict,
};
use tidegate_core::control::{Context, Ecn};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::rap::RapConfig;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::cp::{ApplicationId, Cp, LEN, Role, Shares};

/// All targets.
pub const TARGETS: [Target; 1] = [Target {
    name: "aggregate",
    run: aggregate,
}];

/// The first byte selects the configuration. Each further packet is a byte that selects direction
/// and time, and 20 bytes of its payload, as far as there are any. Afterwards an honest application
/// is served.
pub fn aggregate(data: &[u8]) {
    let (first, story) = data.split_first().unwrap_or((&0, &[]));
    let mut point = AggregationPoint::new(AggregateConfig {
        control: match first & 1 {
            0 => ControllerConfig::default(),
            _ => ControllerConfig::Rap(RapConfig::default()),
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
        max_applications: MOST,
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
        assert!(point.applications(now).count() <= MOST);
        if point.next_timeout().is_some_and(|(at, _)| at <= now) {
            point.on_timeout(&mut cx);
            assert!(point.next_timeout().is_none_or(|(at, _)| at > now));
        }
    }
    serve(&mut point, now + Duration::from_mins(1));
}

/// An application is admitted, once the others have expired.
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
const MOST: usize = 8;

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
