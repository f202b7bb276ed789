//! Several hosts on one emulator: each pair has its own route, and links are shared where routes
//! meet.

mod lab;

use std::io;
use std::net::UdpSocket;
use std::sync::mpsc;
use std::time::Duration;

use lab::namespaces::in_lab;
use lab::{Capture, set_ecn};
use tidegate_core::control::Ecn;
use tidegate_core::link::{LinkConfig, LinkId, NamedLink, NetworkConfig, RouteId};
use tidegate_core::units::Time;
use tidegate_live::emulator::{
    Blackhole, Departure, Emulator, EmulatorConfig, EmulatorLog, Host, HostRoute,
};
use tidegate_live::netns::Namespace;

const C: Host = Host(2);
const PORT: u16 = 5_000;
const PACKETS: u64 = 50;

/// A and B send to C over separate links and a shared one. C replies over one link. A and B have no
/// route to each other.
fn config() -> EmulatorConfig {
    let line = |name: &str, ms| NamedLink {
        name: name.into(),
        config: LinkConfig {
            delay: Duration::from_millis(ms),
            ..LinkConfig::default()
        },
    };
    let network = NetworkConfig {
        links: vec![
            line("a", 3),
            line("b", 7),
            line("shared", 11),
            line("back", 5),
        ],
        routes: vec![
            vec![LinkId(0), LinkId(2)],
            vec![LinkId(1), LinkId(2)],
            vec![LinkId(3)],
        ],
    };
    let both = |host, forth| HostRoute::both(host, C, RouteId(forth), RouteId(2));
    EmulatorConfig {
        routes: [both(Host::A, 0), both(Host::B, 1)].concat(),
        log: 1_000,
        limit: GUARD,
        ..EmulatorConfig::new(network)
    }
}

/// Sends numbered packets to C, waiting for the reply of each.
fn ask(namespace: &Namespace, host: Host) -> io::Result<()> {
    let ask = move || {
        let socket = UdpSocket::bind((host.address(), PORT))?;
        socket.set_read_timeout(Some(GUARD))?;
        set_ecn(&socket, Ecn::Ect1);
        for number in 0..PACKETS {
            socket.send_to(&number.to_be_bytes(), (C.address(), PORT))?;
            let mut answer = [0; 16];
            let (length, from) = socket.recv_from(&mut answer)?;
            assert_eq!(from.ip(), C.address());
            assert_eq!(
                answer[..length],
                [&number.to_be_bytes()[..], &host.0.to_be_bytes()].concat()
            );
        }
        Ok(())
    };
    namespace.within(ask).unwrap()
}

/// Replies with the number of the sending host.
fn answer(ready: &mpsc::Sender<()>) -> io::Result<()> {
    let socket = UdpSocket::bind((C.address(), PORT))?;
    socket.set_read_timeout(Some(GUARD))?;
    ready.send(()).unwrap();
    let mut question = [0; 16];
    for _ in 0..2 * PACKETS {
        let (length, from) = socket.recv_from(&mut question)?;
        let host = [Host::A, Host::B]
            .into_iter()
            .find(|host| host.address() == from.ip());
        let host = host.expect("only A and B have a route to C");
        let answer = [&question[..length], &host.0.to_be_bytes()].concat();
        socket.send_to(&answer, from)?;
    }
    Ok(())
}

#[test]
fn each_pair_of_hosts_has_its_own_route() {
    in_lab("each_pair_of_hosts_has_its_own_route", || {
        let emulator = Emulator::start(&config()).unwrap();
        let (ready, bound) = mpsc::channel();
        let answerer = emulator.namespace(C).run(move || answer(&ready)).unwrap();
        bound.recv().unwrap();
        // There is no route from A to B; the packet is counted in the report only.
        let to_b = || {
            let socket = UdpSocket::bind((Host::A.address(), PORT)).unwrap();
            socket
                .send_to(&[1; 100], (Host::B.address(), PORT))
                .unwrap();
        };
        emulator.namespace(Host::A).within(to_b).unwrap();
        let [a, b] = [Host::A, Host::B].map(|host| emulator.namespace(host));
        std::thread::scope(|scope| {
            let asking =
                [(a, Host::A), (b, Host::B)].map(|(n, host)| scope.spawn(move || ask(n, host)));
            for thread in asking {
                thread.join().unwrap().unwrap();
            }
        });
        answerer.join().unwrap().unwrap();
        let (report, log) = emulator.stop().unwrap();
        assert_eq!(
            (report.packets, report.delivered),
            (4 * PACKETS, 4 * PACKETS)
        );
        assert_eq!(report.unrouted, 1);
        let arrivals: Vec<_> = report.links.iter().map(|link| link.arrivals).collect();
        assert_eq!(arrivals, [PACKETS, PACKETS, 2 * PACKETS, 2 * PACKETS]);
        assert_exact_delays(&log);
    });
}

/// Links without a capacity limit add exactly their configured delay.
fn assert_exact_delays(log: &EmulatorLog) {
    let mut count = [0; 3];
    let mut flows = [None; 3];
    for departure in &log.departures {
        let arrival = log.arrivals[departure.id as usize];
        let RouteId(route) = arrival.route;
        let ms = [14, 18, 5][route];
        assert_eq!(departure.at, arrival.at + Duration::from_millis(ms));
        count[route] += 1;
        // Both hosts receive replies by one route.
        if route < 2 {
            assert_eq!((arrival.ecn, arrival.dscp), (Ecn::Ect1, 0));
            assert_eq!(*flows[route].get_or_insert(arrival.flow), arrival.flow);
        }
    }
    assert_eq!(count, [PACKETS, PACKETS, 2 * PACKETS]);
    assert_ne!(flows[0], flows[1]);
}

/// A host with a blackhole route still receives packets, even with reverse-path filtering. It can
/// send again after the route is removed.
#[test]
fn a_blackhole_drops_sent_packets_only() {
    in_lab("a_blackhole_drops_sent_packets_only", || {
        let config = EmulatorConfig::path(LinkConfig::default(), LinkConfig::default());
        let emulator = Emulator::start(&config).unwrap();
        let [a, b] = [Host::A, Host::B].map(|host| {
            let bind = || {
                let strict = "/proc/sys/net/ipv4/conf/all/rp_filter";
                std::fs::write(strict, "1").unwrap();
                UdpSocket::bind((host.address(), PORT)).unwrap()
            };
            let socket = emulator.namespace(host).within(bind).unwrap();
            socket.set_read_timeout(Some(GUARD)).unwrap();
            socket
        });
        let to = |host: Host| (host.address(), PORT);
        let receive = |socket: &UdpSocket| {
            let mut byte = [0];
            socket.recv_from(&mut byte).map(|_| byte[0]).unwrap()
        };
        let blackhole = Blackhole::new(emulator.namespace(Host::A)).unwrap();
        for round in 0..2 {
            blackhole.set_blackhole(true).unwrap();
            // More packets than fit into the queue of a device.
            for _ in 0..700 {
                a.send_to(&[100], to(Host::B)).unwrap();
            }
            b.send_to(&[round], to(Host::A)).unwrap();
            assert_eq!(receive(&a), round);
            blackhole.set_blackhole(false).unwrap();
            a.send_to(&[round], to(Host::B)).unwrap();
            assert_eq!(receive(&b), round);
        }
        blackhole.set_blackhole(true).unwrap();
        drop(blackhole);
        a.send_to(&[2], to(Host::B)).unwrap();
        assert_eq!(receive(&b), 2);
        let (report, _) = emulator.stop().unwrap();
        assert_eq!(report.packets, 5);
    });
}

/// With a coarse granularity, packets are written at or after their time, and the reported times
/// are exact.
#[test]
fn granularity_is_in_the_reported_times() {
    in_lab("granularity_is_in_the_reported_times", || {
        let granularity = Duration::from_millis(4);
        let config = EmulatorConfig {
            granularity,
            ..config()
        };
        let clock = config.clock;
        let emulator = Emulator::start(&config).unwrap();
        let (ready, listening) = mpsc::channel();
        let listen = move || {
            let capture = Capture::start("tide0", clock);
            ready.send(()).unwrap();
            // 50 ms of silence occur before the first packet, or on a busy machine.
            let reads = (0..GUARD.as_millis() / 50).map(|_| capture.next());
            let captured: Vec<Time> = reads.flatten().map(|(at, _)| at).take(BURST).collect();
            (captured, capture.drift())
        };
        let listener = emulator.namespace(C).run(listen).unwrap();
        listening.recv().unwrap();
        // More packets than fit between two wake-ups, so that the emulator sleeps in between.
        let burst = || {
            let socket = UdpSocket::bind((Host::A.address(), PORT)).unwrap();
            for _ in 0..BURST {
                socket.send_to(&[1; 100], (C.address(), PORT)).unwrap();
                let start = clock.now();
                while clock.now().since(start) < granularity / 8 {
                    std::hint::spin_loop();
                }
            }
        };
        emulator.namespace(Host::A).within(burst).unwrap();
        let (captured, drift) = listener.join().unwrap();
        let (report, log) = emulator.stop().unwrap();
        assert_eq!((captured.len(), report.granularity), (BURST, granularity));
        let clocks = Duration::from_micros(20) + drift;
        // C's kernel replies with port unreachable.
        let forth = |d: &&Departure| log.arrivals[d.id as usize].route == RouteId(0);
        for (departure, at) in log.departures.iter().filter(forth).zip(captured) {
            assert!(at + clocks >= departure.at && at <= departure.written + clocks);
        }
        // The emulator sleeps after two checks at the same time, so packets wait on both sides.
        assert!(report.unread_worst >= granularity / 2, "{report:?}");
        assert!(report.timing_worst >= granularity / 4, "{report:?}");
    });
}

const BURST: usize = 100;
/// Ends a test that hangs. No result depends on it.
const GUARD: Duration = Duration::from_mins(5);
