//! Several hosts on one emulator: each pair takes its own way, and links are shared where routes
//! meet.

mod lab;

use std::io;
use std::net::UdpSocket;
use std::sync::mpsc;
use std::time::Duration;

use lab::{Capture, in_lab, set_ecn};
use tidegate_core::control::Ecn;
use tidegate_core::link::{LinkConfig, LinkId, NamedLink, NetworkConfig, RouteId};
use tidegate_core::units::Time;
use tidegate_live::emulator::{
    Blackhole, Departure, Emulator, EmulatorConfig, EmulatorLog, Host, Way,
};
use tidegate_live::netns::Namespace;

const C: Host = Host(2);
const PORT: u16 = 5_000;
const PACKETS: u64 = 50;

/// A and B send to C over lines of their own and one that they share; C answers over one line.
/// Between A and B there is no way.
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
    let both = |host, forth| Way::both(host, C, RouteId(forth), RouteId(2));
    EmulatorConfig {
        ways: [both(Host::A, 0), both(Host::B, 1)].concat(),
        log: 1_000,
        limit: GUARD,
        ..EmulatorConfig::new(network)
    }
}

/// Sends one packet after another to C and waits for each answer.
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

/// C says to whom it answers.
fn answer(ready: &mpsc::Sender<()>) -> io::Result<()> {
    let socket = UdpSocket::bind((C.address(), PORT))?;
    socket.set_read_timeout(Some(GUARD))?;
    ready.send(()).unwrap();
    let mut question = [0; 16];
    for _ in 0..2 * PACKETS {
        let (length, from) = socket.recv_from(&mut question)?;
        let who = [Host::A, Host::B]
            .into_iter()
            .find(|host| host.address() == from.ip());
        let who = who.expect("nobody else has a way to C");
        let answer = [&question[..length], &who.0.to_be_bytes()].concat();
        socket.send_to(&answer, from)?;
    }
    Ok(())
}

#[test]
fn each_pair_of_hosts_takes_its_own_way() {
    in_lab("each_pair_of_hosts_takes_its_own_way", || {
        let emulator = Emulator::start(&config()).unwrap();
        let (ready, bound) = mpsc::channel();
        let answerer = emulator.namespace(C).run(move || answer(&ready)).unwrap();
        bound.recv().unwrap();
        // A to B: there is no way, and nobody is told but the report.
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
        the_log_has_each_delay(&log);
    });
}

/// Lines without a limit delay by what they are told, to the nanosecond.
fn the_log_has_each_delay(log: &EmulatorLog) {
    let mut count = [0; 3];
    let mut flows = [None; 3];
    for departure in &log.departures {
        let arrival = log.arrivals[departure.id as usize];
        let RouteId(route) = arrival.route;
        let ms = [14, 18, 5][route];
        assert_eq!(departure.at, arrival.at + Duration::from_millis(ms));
        count[route] += 1;
        // Both answers come by one route.
        if route < 2 {
            assert_eq!((arrival.ecn, arrival.dscp), (Ecn::Ect1, 0));
            assert_eq!(*flows[route].get_or_insert(arrival.flow), arrival.flow);
        }
    }
    assert_eq!(count, [PACKETS, PACKETS, 2 * PACKETS]);
    assert_ne!(flows[0], flows[1]);
}

/// A host whose route leads nowhere hears what it is sent, also where senders are checked against
/// routes, and is heard again when it has its route back.
#[test]
fn what_leaves_for_nowhere_is_lost_and_what_comes_is_not() {
    in_lab(
        "what_leaves_for_nowhere_is_lost_and_what_comes_is_not",
        || {
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
            let hear = |socket: &UdpSocket| {
                let mut word = [0];
                socket.recv_from(&mut word).map(|_| word[0]).unwrap()
            };
            let nowhere = Blackhole::new(emulator.namespace(Host::A)).unwrap();
            for round in 0..2 {
                nowhere.lead(true).unwrap();
                // As many as wait in a device, and more.
                for _ in 0..700 {
                    a.send_to(&[100], to(Host::B)).unwrap();
                }
                b.send_to(&[round], to(Host::A)).unwrap();
                assert_eq!(hear(&a), round);
                nowhere.lead(false).unwrap();
                a.send_to(&[round], to(Host::B)).unwrap();
                assert_eq!(hear(&b), round);
            }
            nowhere.lead(true).unwrap();
            drop(nowhere);
            a.send_to(&[2], to(Host::B)).unwrap();
            assert_eq!(hear(&b), 2);
            let (report, _) = emulator.stop().unwrap();
            assert_eq!(report.packets, 5);
        },
    );
}

/// However seldom it looks, a packet is written at its time or after it, and says so.
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
            // 50 ms of silence may be those before the first packet, or a busy machine.
            let looks = (0..GUARD.as_millis() / 50).map(|_| capture.next());
            let heard: Vec<Time> = looks.flatten().map(|(at, _)| at).take(BURST).collect();
            (heard, capture.drift())
        };
        let listener = emulator.namespace(C).run(listen).unwrap();
        listening.recv().unwrap();
        // More than fit between two looks: the emulator has to nap.
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
        let (heard, drift) = listener.join().unwrap();
        let (report, log) = emulator.stop().unwrap();
        assert_eq!((heard.len(), report.granularity), (BURST, granularity));
        let clocks = Duration::from_micros(20) + drift;
        // C's kernel answers that nobody listens.
        let forth = |d: &&Departure| log.arrivals[d.id as usize].route == RouteId(0);
        for (departure, at) in log.departures.iter().filter(forth).zip(heard) {
            assert!(at + clocks >= departure.at && at <= departure.written + clocks);
        }
        // It naps after two looks in one moment; so packets wait for it, on both sides.
        assert!(report.unread_worst >= granularity / 2, "{report:?}");
        assert!(report.timing_worst >= granularity / 4, "{report:?}");
    });
}

const BURST: usize = 100;
/// Ends a test that hangs. No verdict depends on it.
const GUARD: Duration = Duration::from_mins(5);
