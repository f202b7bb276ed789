//! Kernel TCP events over an emulated path, with and without privilege.

#[path = "../../crates/cli/tests/calm/mod.rs"]
mod calm;
#[expect(dead_code, reason = "these tests capture no packets")]
mod lab;
#[path = "tcp_events/limits.rs"]
mod limits;
#[path = "tcp_events/neutral.rs"]
mod neutral;
#[path = "tcp_events/recovery.rs"]
mod recovery;
#[path = "tcp_events/tware.rs"]
mod tware;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use calm::judged;
use lab::namespaces::{self, in_lab};
use tidegate_core::link::{Capacity, DropTailConfig, LinkConfig, LossConfig, Outage, QueueConfig};
use tidegate_core::units::{Rate, Time};
use tidegate_kernel::{
    CaState, Event, EventDetails, EventKind, EventRequest, EventSet, Events, EventsError, TcpState,
    Variable, set_congestion_control,
};
use tidegate_live::emulator::{Emulator, EmulatorConfig, Host};

const PORT: u16 = 5_001;

/// A path of 8 Mb/s with an RTT of 40 ms.
fn path(loss: LossConfig, outages: Vec<Outage>) -> EmulatorConfig {
    let there = LinkConfig {
        capacity: Capacity::Fixed(Rate::kbps(8_000)),
        queue: QueueConfig::DropTail(DropTailConfig::packets(60)),
        outages,
        loss,
        delay: Duration::from_millis(20),
        jitter: None,
        ..LinkConfig::default()
    };
    let back = LinkConfig {
        delay: Duration::from_millis(20),
        ..LinkConfig::default()
    };
    EmulatorConfig {
        limit: Duration::from_mins(1),
        ..EmulatorConfig::path(there, back)
    }
}

/// Sends `bytes` bytes over the path and returns the events.
fn transfer(
    emulator: &Emulator,
    events: &Events,
    bytes: usize,
    wanted: EventRequest,
) -> Vec<Event> {
    let listen = || TcpListener::bind((Host::B.address(), PORT)).unwrap();
    let listener = emulator.namespace(Host::B).within(listen).unwrap();
    let sink = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 16];
        let mut total = 0;
        loop {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return total,
                Ok(many) => total += many,
            }
        }
    });
    let connect = || TcpStream::connect((Host::B.address(), PORT)).unwrap();
    let stream = emulator.namespace(Host::A).within(connect).unwrap();
    set_congestion_control(&stream, "reno").unwrap();
    let id = events.subscribe(&stream, wanted).unwrap();
    let mut seen = Vec::new();
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            events.write_all(&stream, &vec![0; bytes]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        });
        while !writing.is_finished() {
            seen.extend(events.next(Some(Duration::from_millis(20))).unwrap());
        }
    });
    assert_eq!(sink.join().unwrap(), bytes);
    let tally = events.tally(id).unwrap();
    assert_eq!(tally.lost, 0);
    drop(stream);
    // The event of the end follows the last segments, when the kernel destroys the socket.
    while seen.last().is_none_or(|e| e.what != EventDetails::Ended) {
        let next = events.next(Some(GUARD)).unwrap();
        seen.push(next.expect("an event is available"));
    }
    seen
}

/// Runs `body` in the lab, and repeats it after a failure with a stall of the machine. Kernel
/// timers and the emulated path continue during a stall.
fn judged_in_lab(test: &str, body: impl Fn()) {
    in_lab(test, || judged(test, body));
}

/// Ends a test that hangs. No result depends on it.
const GUARD: Duration = Duration::from_mins(5);

/// Kernel events if the programs can be loaded. Otherwise the test is skipped, or fails if
/// namespaces are required and the user is root: root of a user namespace cannot load programs.
fn in_kernel() -> Option<(Events, MutexGuard<'static, ()>)> {
    // One at a time: attaching and detaching programs may hide events from others, see
    // docs/itcp.md.
    static ONE: Mutex<()> = Mutex::new(());
    let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Events::in_process() {
        Ok(events) => Some((events, alone)),
        Err(EventsError::Load(why)) => {
            let root = std::env::var_os(namespaces::INSIDE).is_none();
            namespaces::skip("the kernel's events", &why.to_string(), root);
            None
        }
        Err(other) => panic!("{other}"),
    }
}

fn kinds(seen: &[Event]) -> EventSet {
    seen.iter().map(|e| e.what.kind()).collect()
}

#[test]
fn losses_cause_recovery_and_its_end() {
    judged_in_lab("losses_cause_recovery_and_its_end", || {
        let Some((events, _alone)) = in_kernel() else {
            return;
        };
        let loss = LossConfig::Every(NonZeroU32::new(250).unwrap());
        let emulator = Emulator::start(&path(loss, Vec::new())).unwrap();
        let seen = transfer(&emulator, &events, 3_000_000, EventRequest::ALL);
        let kinds = kinds(&seen);
        for kind in [
            EventKind::ThirdDuplicate,
            EventKind::Recovery,
            EventKind::Recovered,
            EventKind::State,
            EventKind::Ended,
        ] {
            assert!(kinds.contains(kind), "{kind} is missing in {kinds}");
        }
        consistent(&seen);
    });
}

/// Number of voluntary context switches of this thread.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn busy_polling_yields_the_same_events() {
    judged_in_lab("busy_polling_yields_the_same_events", || {
        let Some((events, _alone)) = in_kernel() else {
            return;
        };
        let limit = Duration::from_millis(5);
        for (busy, asleep) in [(Duration::ZERO, true), (Duration::from_secs(1), false)] {
            events.busy_poll(busy);
            let (before, start) = (sleeps(), Instant::now());
            assert_eq!(events.next(Some(limit)).unwrap(), None);
            assert!(start.elapsed() >= limit);
            assert_eq!(sleeps() > before, asleep, "{busy:?}");

            let emulator = Emulator::start(&path(LossConfig::NONE, Vec::new())).unwrap();
            let seen = transfer(&emulator, &events, 100_000, EventRequest::ALL);
            assert_eq!(seen.last().unwrap().what, EventDetails::Ended);
            consistent(&seen);
        }
    });
}

/// Checks that numbers have no gaps, times ascend, starts and ends of recovery alternate, and the
/// state matches the event.
fn consistent(seen: &[Event]) {
    let mut repairing = false;
    for (number, event) in (1..).zip(seen) {
        assert_eq!(event.number, number);
        let state = &event.state;
        match event.what {
            EventDetails::Recovery { .. } => {
                assert!(!repairing);
                repairing = true;
                // The kernel reports the event before it changes the state, and after it has halved
                // the threshold.
                assert_ne!(state.ca_state(), Some(CaState::Recovery));
                assert!(state.ssthresh() <= state.cwnd());
                assert!(state.unacknowledged() > Some(tidegate_core::units::Bytes(0)));
            }
            EventDetails::Timeout { .. } => repairing = true,
            EventDetails::Recovered { from } => {
                assert!(repairing, "{event:?}");
                repairing = false;
                assert_eq!(state.ca_state(), Some(from));
            }
            EventDetails::Threshold => {
                assert!(state.cwnd() >= state.ssthresh());
            }
            _ => {}
        }
        if let Some(rtt) = state.srtt() {
            assert!(rtt >= Duration::from_millis(40), "{rtt:?}");
            assert!(state.min_rtt() <= Some(rtt + rtt));
        }
    }
    assert!(seen.windows(2).all(|w| w[0].time <= w[1].time));
}

#[test]
fn an_outage_causes_timeouts_with_backoff() {
    judged_in_lab("an_outage_causes_timeouts_with_backoff", || {
        let Some((events, _alone)) = in_kernel() else {
            return;
        };
        let config = path(LossConfig::NONE, Vec::new());
        let config = with_outage(config);
        let emulator = Emulator::start(&config).unwrap();
        let seen = transfer(&emulator, &events, 2_500_000, EventRequest::ALL);
        let timeouts: Vec<_> = seen
            .iter()
            .filter_map(|e| match e.what {
                EventDetails::Timeout { in_a_row, after } => Some((in_a_row, after, e)),
                _ => None,
            })
            .collect();
        assert!(timeouts.len() >= 2, "{seen:?}");
        // A timeout whose program the kernel does not run is reported just before the next one, so times
        // are those since the first of a series.
        let (mut first, mut set) = (timeouts[0].2.time, Duration::ZERO);
        for pair in timeouts.windows(2) {
            let (in_a_row, after, event) = pair[1];
            if in_a_row == 1 {
                (first, set) = (event.time, Duration::ZERO);
                continue;
            }
            assert_eq!(in_a_row, pair[0].0 + 1);
            // The timer ran for its set time, twice the previous time.
            assert!(after + Duration::from_millis(8) >= pair[0].1 * 2);
            set += after;
            let waited = event.time.abs_diff(first);
            assert!(waited >= set.mul_f64(0.9), "{waited:?} {set:?}");
        }
        let (_, _, event) = timeouts[0];
        assert_eq!(event.state.get(Variable::Cwnd), Some(1), "{event:?}");
        // Slow start follows the time-out, up to half of the previous window.
        let after = seen.iter().filter(|e| e.time > event.time);
        let reached = after.filter(|e| e.what == EventDetails::Threshold).count();
        assert_eq!(reached, 1, "{seen:?}");
        consistent(&seen);
    });
}

/// Adds an outage from 1 s to 2.5 s.
fn with_outage(config: EmulatorConfig) -> EmulatorConfig {
    let mut config = config;
    config.network.links[0].config.outages = vec![Outage {
        from: Time::ZERO + Duration::from_secs(1),
        to: Time::ZERO + Duration::from_millis(2_500),
    }];
    config
}

#[test]
fn unprivileged_events_include_recovery_and_timeouts() {
    judged_in_lab("unprivileged_events_include_recovery_and_timeouts", || {
        let events = Events::unprivileged().unwrap();
        let loss = LossConfig::Every(NonZeroU32::new(250).unwrap());
        let emulator = Emulator::start(&with_outage(path(loss, Vec::new()))).unwrap();
        let wanted = EventRequest {
            events: EventSet::ALL,
            ..events.allowed()
        };
        let seen = transfer(&emulator, &events, 2_500_000, wanted);
        let kinds = kinds(&seen);
        for kind in [
            EventKind::Timeout,
            EventKind::Recovery,
            EventKind::Recovered,
            EventKind::Ended,
        ] {
            assert!(kinds.contains(kind), "{kind} is missing in {kinds}");
        }
    });
}

#[test]
fn state_changes_are_reported_until_the_end() {
    in_lab("state_changes_are_reported_until_the_end", || {
        let Some((events, _alone)) = in_kernel() else {
            return;
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        events.subscribe(&stream, EventRequest::ALL).unwrap();
        let (peer, _) = listener.accept().unwrap();
        stream.write_all(b"once").unwrap();
        drop(stream);
        drop(peer);
        let mut states = Vec::new();
        loop {
            let event = events.next(Some(GUARD)).unwrap().unwrap();
            match event.what {
                EventDetails::State { from, to } => {
                    assert_eq!(event.state.tcp_state(), Some(from));
                    states.push(to);
                }
                EventDetails::Ended => break,
                _ => {}
            }
        }
        assert_eq!(states[0], TcpState::FinWait1);
        assert_eq!(states.last(), Some(&TcpState::Closed));
    });
}

#[test]
fn other_descriptors_are_rejected() {
    in_lab("other_descriptors_are_rejected", || {
        let events = Events::unprivileged().unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for (socket, word) in [
            (udp.as_fd(), "not a TCP socket"),
            (file.as_fd(), "no open socket"),
            (listener.as_fd(), "waits for connections"),
        ] {
            let error = events.subscribe(socket, EventRequest::ALL).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    });
}
