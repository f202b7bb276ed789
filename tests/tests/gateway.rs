//! The gateway on real interfaces: endpoints, two aggregation points, and an emulated bottleneck
//! between them, in five network namespaces.

mod gateway_path;
#[path = "lab/namespaces.rs"]
mod namespaces;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gateway_path::{Endpoint, EndpointReport, Middle, MiddleReport, switch_off_checksums};
use namespaces::in_lab;
use tidegate_core::aggregate::sites::{Numbers, SiteRule};
use tidegate_core::aggregate::{AggregateConfig, ApplicationState};
use tidegate_core::link::{Capacity, LinkConfig, LossConfig};
use tidegate_core::random::Seed;
use tidegate_core::units::{Rate, Time};
use tidegate_live::clock::Clock;
use tidegate_live::driver::StopFlag;
use tidegate_live::gateway::{Gateway, GatewayConfig, GatewayState};
use tidegate_live::netns::{Interface, Namespace, Worker};

const PORT: u16 = 5_008;
const LEFT: &str = "10.9.0.1";
const RIGHT: &str = "10.9.0.2";
const SPAN: Duration = Duration::from_secs(12);

/// A running gateway. Its latest state is at hand while it runs.
struct Running {
    stop: StopFlag,
    thread: Worker<GatewayState>,
}

impl Running {
    fn start(namespace: &Namespace, other: &str, clock: Clock) -> Self {
        let config = GatewayConfig {
            site_interface: "site".into(),
            path_interface: "path".into(),
            aggregation: AggregateConfig::default(),
            remote: vec![SiteRule {
                hosts: vec![other.parse().unwrap()],
                ports: vec![Numbers::new(PORT, PORT)],
                ..SiteRule::default()
            }],
        };
        let stop = StopFlag::new().unwrap();
        let flag = stop.clone();
        let states = Arc::new(Mutex::new(0));
        let thread = namespace.run(move || {
            let mut gateway = Gateway::open(&config, clock).unwrap();
            let mut rng = Seed(1).stream("gateway");
            let count = |_| *states.lock().unwrap() += 1;
            gateway.run(&flag, None, &mut rng, count).unwrap();
            assert!(*states.lock().unwrap() as u64 >= SPAN.as_secs() - 1);
            gateway.state(clock.now())
        });
        Self {
            stop,
            thread: thread.unwrap(),
        }
    }

    fn end(self) -> GatewayState {
        self.stop.set();
        self.thread.join().unwrap()
    }
}

/// The namespaces from left to right: endpoint, point, path, point, endpoint.
fn chain() -> [Namespace; 5] {
    let spaces: [Namespace; 5] = std::array::from_fn(|_| Namespace::new().unwrap());
    let [left, near, middle, far, right] = &spaces;
    left.connect("eth", near, "site").unwrap();
    near.connect("path", middle, "left").unwrap();
    far.connect("path", middle, "right").unwrap();
    right.connect("eth", far, "site").unwrap();
    for (space, name) in [
        (near, "site"),
        (near, "path"),
        (middle, "left"),
        (middle, "right"),
        (far, "site"),
        (far, "path"),
    ] {
        space.switch_on(name).unwrap();
    }
    for (space, address) in [(left, LEFT), (right, RIGHT)] {
        let interface = Interface {
            address: address.parse().unwrap(),
            prefix: 24,
            mtu: 1_500,
            queue: 1_000,
        };
        space.configure("eth", interface).unwrap();
    }
    // Checksums of the left endpoint are complete, those of the right one partial.
    left.within(|| switch_off_checksums("eth")).unwrap();
    spaces
}

struct Outcome {
    near: ApplicationState,
    far: ApplicationState,
    states: [GatewayState; 2],
    middle: MiddleReport,
    left: EndpointReport,
    right: EndpointReport,
    /// When the far point ended.
    lost: Time,
}

/// Both endpoints send for [`SPAN`]. Then the far point ends, and the left endpoint continues for a
/// second.
fn run() -> Outcome {
    let clock = Clock::start();
    let [left, near, middle, far, right] = chain();
    let link = LinkConfig {
        capacity: Capacity::Fixed(Rate::kbps(8_000)),
        delay: Duration::from_millis(20),
        loss: LossConfig::Bernoulli(0.02),
        ..LinkConfig::default()
    };
    let middle = Middle::start(&middle, &link, clock);
    let near = Running::start(&near, RIGHT, clock);
    let far = Running::start(&far, LEFT, clock);
    let end = clock.now() + SPAN;
    let last = end + Duration::from_secs(1);
    let left = Endpoint::start(&left, LEFT, RIGHT, clock, last);
    let right = Endpoint::start(&right, RIGHT, LEFT, clock, end);
    let right = right.join().unwrap();
    let far = far.end();
    let lost = clock.now();
    let left = left.join().unwrap();
    let near = near.end();
    let middle = middle.end();
    let [of_near, of_far] = [&near, &far].map(|state| state.applications[0].1);
    Outcome {
        near: of_near,
        far: of_far,
        states: [near, far],
        middle,
        left,
        right,
        lost,
    }
}

/// One test, since a run takes 13 seconds.
#[test]
fn points_measure_the_path_and_leave_payloads_intact() {
    in_lab("points_measure_the_path_and_leave_payloads_intact", || {
        let outcome = run();
        let Outcome {
            near,
            far,
            states,
            middle,
            left,
            right,
            lost,
        } = &outcome;
        let summary = format!("{near:?}\n{far:?}\n{states:?}\n{middle:?}\n{left:?}\n{right:?}");

        // Payloads: each one received is one that was sent, and no checksum was wrong.
        assert!(right.received > 1_000 && left.received > 1_000, "{summary}");
        assert_eq!((left.damaged, right.damaged), (0, 0), "{summary}");
        assert_eq!((left.checksum_errors, right.checksum_errors), (0, 0));
        assert_eq!(middle.checksum_errors, 0, "{summary}");
        // A point forwards the packets before the first one of its own endpoint unchanged.
        let unknown: u64 = states.iter().map(|state| state.packets.unknown).sum();
        assert!(
            left.not_reports + right.not_reports <= unknown && unknown < 10,
            "{summary}"
        );

        // Round-trip time within 1 ms. Both points measure it.
        let truth = middle.transit[0] + middle.transit[1];
        for state in [near, far] {
            let error = 1e3 * (state.rtt.as_secs_f64() - truth);
            assert!(error.abs() < 1.0, "{error} ms of {truth} s\n{summary}");
        }
        // The endpoint is notified of the same.
        let error = 1e3 * (left.rtt - truth);
        assert!(error.abs() < 1.0, "{error} ms\n{summary}");

        // Loss rate within 5 %: the point counts each packet that the path lost. The right endpoint
        // sends only while both points run.
        let share = |lost: u64, passed: u64| lost as f64 / (lost + passed) as f64;
        let truth = share(middle.lost[1], middle.passed[1]);
        let seen = share(near.lost, near.received);
        assert!(
            (seen / truth - 1.0).abs() < 0.05,
            "{seen} {truth}\n{summary}"
        );

        // The sender follows the available bandwidth, and the points send no more than they forward.
        assert!(left.rate > 100e3, "{summary}");
        for state in states {
            assert!(state.ports.notifications <= state.packets.rewritten);
            assert_eq!(
                (state.ports.too_large, state.packets.invalid),
                (0, 0),
                "{summary}"
            );
        }

        // The loss of the far point reaches the left endpoint within three round trips.
        let notified = left.peer_lost.expect("a notification").since(*lost);
        assert!(notified < 3 * near.rtt, "{notified:?}\n{summary}");
        assert!(states[0].ports.notifications > 0);
    });
}
