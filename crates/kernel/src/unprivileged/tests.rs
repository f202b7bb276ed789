//! Unprivileged events of sockets on the loopback interface.

#[path = "../../../cli/tests/calm/mod.rs"]
mod calm;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

pub(super) use calm::judged;

use super::timer::Timers;
use super::*;
use crate::event::{EventDetails, EventSet};
use crate::system::{input, is_ready, monotonic, poll, set_option, trouble};

/// A connection whose data is never acknowledged. That takes no privilege: the listener defers the
/// connection until its data (`TCP_DEFER_ACCEPT`), and its backlog is full by then.
pub(super) fn into_the_void(address: &str) -> (TcpStream, Void) {
    let listener = TcpListener::bind(address).unwrap();
    let to = listener.local_addr().unwrap();
    rustix::net::listen(&listener, BACKLOG).unwrap();
    let name = libc::TCP_DEFER_ACCEPT;
    set_option(listener.as_fd(), libc::IPPROTO_TCP, name, &LONG).unwrap();
    let connect = || TcpStream::connect(to).unwrap();
    let stream = connect();
    // The queue has room for one more than the backlog.
    let others = (0..=BACKLOG).map(|_| {
        let mut other = connect();
        other.write_all(&[0]).unwrap();
        other
    });
    (
        stream,
        Void {
            _listener: listener,
            _others: others.collect(),
        },
    )
}

/// Keeps the backlog full.
pub(super) struct Void {
    _listener: TcpListener,
    _others: Vec<TcpStream>,
}

fn all() -> EventRequest {
    EventRequest {
        events: EventSet::ALL,
        variables: variables(),
    }
}

/// The next event of this kind.
fn next(events: &Unprivileged, kind: EventKind) -> Event {
    loop {
        match events.try_next() {
            Some(event) if event.what.kind() == kind => return event,
            Some(_) => {}
            None => {
                let mut polled = [input(events.readable())];
                poll(&mut polled, Some(GUARD)).unwrap();
                assert!(is_ready(&polled[0]), "no event of this kind: {kind}");
            }
        }
    }
}

/// The timers are the kernel's. If the machine stalls for a whole RTO, two time-outs are one event,
/// which the witness of the test detects.
#[test]
fn each_timeout_is_an_event() {
    judged("each_timeout_is_an_event", || {
        let (mut stream, _peer) = into_the_void("127.0.0.1:0");
        let events = Unprivileged::start().unwrap();
        events.subscribe(stream.as_fd(), all()).unwrap();
        let sent = monotonic();
        stream.write_all(&[0]).unwrap();
        let mut least = Duration::ZERO;
        for number in 1..=3 {
            let event = next(&events, EventKind::Timeout);
            let EventDetails::Timeout { in_a_row, after } = event.what else {
                panic!("{event:?}");
            };
            assert_eq!(in_a_row, number);
            // A late reading cannot make this shorter than the sum of the timers.
            least += after;
            let took = event.time.saturating_sub(sent);
            assert!(took + TICKS >= least, "{took:?} for {least:?}");
        }
    });
}

#[test]
fn the_thread_is_awake_while_a_timer_is_due_and_no_longer() {
    judged(
        "the_thread_is_awake_while_a_timer_is_due_and_no_longer",
        awake_while_a_timer_is_due,
    );
}

fn awake_while_a_timer_is_due() {
    let (mut stream, _peer) = into_the_void("127.0.0.1:0");
    let events = Unprivileged::start().unwrap();
    let id = events.subscribe(stream.as_fd(), all()).unwrap();
    stream.write_all(&[0]).unwrap();
    // The next time-out is then more than a second away.
    let timeouts: Vec<_> = (0..3).map(|_| next(&events, EventKind::Timeout)).collect();
    let (shared, its) = (&events.shared, cookie(stream.as_fd()).unwrap());
    let mut alarms = watch::Alarms::with(Timers::open().ok());
    alarms.compare(shared);
    let now = timeouts[2].time;
    assert_eq!(alarms.next(now), Duration::MAX, "it may make progress");
    alarms.compare(shared);
    let start = now + alarms.next(now);
    let rto = timeouts[2].state.rto().unwrap();
    assert!(start > now + rto / 2, "{timeouts:?}");
    assert!(!alarms.awake(its));
    alarms.ask_again(shared, start);
    assert!(alarms.awake(its));
    assert_eq!(alarms.next(start), Duration::ZERO);
    alarms.ask_again(shared, start + rto / 2);
    assert!(!alarms.awake(its), "the timer did not expire");
    alarms.compare(shared);
    assert!(alarms.next(start) < rto);
    events.cancel(id).unwrap();
    alarms.compare(shared);
    assert_eq!(
        alarms.next(start),
        Duration::MAX,
        "there is no subscription"
    );
}

#[test]
fn subscriptions_end_by_themselves() {
    let (stream, peer) = into_the_void("127.0.0.1:0");
    let events = Unprivileged::start().unwrap();
    let [one, two] = [(); 2].map(|()| events.subscribe(stream.as_fd(), all()).unwrap());
    let nothing = EventRequest {
        events: EventSet::NONE,
        ..all()
    };
    events.change(two, nothing).unwrap();
    events.cancel(one).unwrap();
    assert!(events.cancel(one).is_err());
    assert!(events.tally(one).is_err());
    drop((stream, peer));
    // Every subscription has the event of the end.
    assert_eq!(next(&events, EventKind::Ended).subscription, two);
    assert!(events.change(two, all()).is_err());
    assert!(events.state().sockets.is_empty());
}

#[test]
fn a_reused_descriptor_has_no_events_of_the_last_socket() {
    let (stream, _peer) = into_the_void("127.0.0.1:0");
    let (other, _its_peer) = into_the_void("127.0.0.1:0");
    let events = Unprivileged::start().unwrap();
    let old = events.subscribe(stream.as_fd(), all()).unwrap();
    // SAFETY: both are open, and stay so.
    let moved = unsafe { libc::dup2(other.as_raw_fd(), stream.as_raw_fd()) };
    assert_eq!(moved, stream.as_raw_fd());
    let new = events.subscribe(stream.as_fd(), all()).unwrap();
    assert_eq!(next(&events, EventKind::Ended).subscription, old);
    assert!(events.tally(old).is_err());
    (&other).write_all(&[0]).unwrap();
    assert_eq!(next(&events, EventKind::Timeout).subscription, new);
}

/// The time stamp options of a socket.
fn options(stream: &TcpStream) -> u32 {
    option(stream.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING).unwrap()
}

/// Whether the event loop of the application would see an error.
fn has_error(stream: &TcpStream) -> bool {
    let mut polled = [trouble(stream.as_fd())];
    poll(&mut polled, Some(Duration::ZERO)).unwrap();
    is_ready(&polled[0])
}

/// Waits until all data is acknowledged, and all stamps are on the queue.
fn settle(stream: &TcpStream) {
    until(
        || !stamps::is_pending(stream.as_fd()),
        "data is not acknowledged",
    );
}

pub(super) fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// The socket has the options of the application again after its last subscription.
#[test]
fn the_options_of_a_socket_are_restored() {
    let all_ways: [fn(Unprivileged, SubscriptionId) -> Option<Unprivileged>; 2] = [
        |events, id| {
            events.cancel(id).unwrap();
            Some(events)
        },
        |events, _| {
            drop(events);
            None
        },
    ];
    for end in all_ways {
        for its in [0, libc::SOF_TIMESTAMPING_RX_SOFTWARE] {
            let (mut stream, _peer) = pair();
            set_option(
                stream.as_fd(),
                libc::SOL_SOCKET,
                libc::SO_TIMESTAMPING,
                &its,
            )
            .unwrap();
            // With two observers one is the last.
            let [first, last] = [(); 2].map(|()| Unprivileged::start().unwrap());
            let [one, two] = [&first, &last].map(|e| e.subscribe(stream.as_fd(), all()).unwrap());
            assert_eq!(options(&stream), its | stamps::STAMPS);
            let first = end(first, one);
            assert_eq!(
                options(&stream),
                its | stamps::STAMPS,
                "one observer is left"
            );
            stream.write_all(&[0]).unwrap();
            settle(&stream);
            let last = end(last, two);
            assert_eq!(options(&stream), its);
            assert!(!has_error(&stream), "stamps were left");
            stream.write_all(&[0]).unwrap();
            settle(&stream);
            assert!(!has_error(&stream), "there are stamps again");
            drop((first, last));
        }
    }
}

/// Stamps of unacknowledged data arrive after the last subscription.
#[test]
fn late_stamps_are_removed_too() {
    for dropped in [false, true] {
        let (mut stream, mut peer) = pair();
        let events = Unprivileged::start().unwrap();
        let id = events.subscribe(stream.as_fd(), all()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(many) = stream.write(&[0; 4096]) {
            written += many;
        }
        let shared = Arc::clone(&events.shared);
        let kept = if dropped {
            drop(events);
            None
        } else {
            events.cancel(id).unwrap();
            Some(events)
        };
        assert_eq!(options(&stream), 0);
        assert!(
            !shared.lock().fading.is_empty(),
            "all data was acknowledged"
        );
        peer.read_exact(&mut vec![0; written]).unwrap();
        until(
            || shared.lock().fading.is_empty(),
            "stamps are still expected",
        );
        assert!(!has_error(&stream), "stamps were left");
        drop(kept);
    }
}

#[test]
fn a_socket_has_to_be_connected() {
    let events = Unprivileged::start().unwrap();
    let (family, kind) = (
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
    );
    let socket = rustix::net::socket(family, kind, None).unwrap();
    let early = events.subscribe(socket.as_fd(), all()).unwrap_err();
    assert!(matches!(early, EventsError::Unconnected), "{early}");
    assert!(early.to_string().contains("connect it first"), "{early}");
    let (stream, _peer) = pair();
    events.subscribe(stream.as_fd(), all()).unwrap();
}

/// A subscription follows the socket to another descriptor of the application. Another file at the
/// subscribed descriptor stays untouched.
#[test]
fn a_socket_is_followed_to_its_other_descriptors() {
    let (mut stream, _peer) = pair();
    let events = Unprivileged::start().unwrap();
    let copy = stream.try_clone().unwrap();
    let id = events.subscribe(copy.as_fd(), all()).unwrap();
    let other = with_error();
    // SAFETY: both are open, and stay so.
    let number = unsafe { libc::dup2(other.as_raw_fd(), copy.as_raw_fd()) };
    assert_eq!(number, copy.as_raw_fd());
    for _ in 0..2 {
        stream.write_all(&[0]).unwrap();
        settle(&stream);
        until(|| !has_error(&stream), "stamps are left");
    }
    assert!(has_error(&copy), "the error of another socket was read");
    events.tally(id).unwrap();
    // With the same number as before, and with a new one.
    // SAFETY: as above.
    let number = unsafe { libc::dup2(stream.as_raw_fd(), copy.as_raw_fd()) };
    assert_eq!(number, copy.as_raw_fd());
    events.cancel(id).unwrap();
    assert_eq!(options(&stream), 0);
    let again = events.subscribe(copy.as_fd(), all()).unwrap();
    drop(copy);
    events.cancel(again).unwrap();
    assert_eq!(options(&stream), 0, "cancelling finds it, too");
    let last = events.subscribe(stream.as_fd(), all()).unwrap();
    drop(stream);
    assert_eq!(next(&events, EventKind::Ended).subscription, last);
}

/// A socket whose peer has answered with an error.
fn with_error() -> TcpStream {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(closed.local_addr().unwrap()).unwrap();
    drop(closed);
    set_option(socket.as_fd(), libc::SOL_IP, libc::IP_RECVERR, &1_i32).unwrap();
    socket.send(&[0]).unwrap();
    let socket = TcpStream::from(OwnedFd::from(socket));
    until(|| has_error(&socket), "no ICMP error was received");
    socket
}

fn until(is_so: impl Fn() -> bool, otherwise: &str) {
    let end = monotonic() + GUARD;
    while !is_so() {
        assert!(monotonic() < end, "{otherwise}");
        thread::yield_now();
    }
}

/// The last stamps are removed through another descriptor, too.
#[test]
fn late_stamps_are_removed_through_another_descriptor() {
    let (mut stream, mut peer) = pair();
    let events = Unprivileged::start().unwrap();
    let copy = stream.try_clone().unwrap();
    let id = events.subscribe(copy.as_fd(), all()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut written = 0;
    while let Ok(many) = stream.write(&[0; 4096]) {
        written += many;
    }
    events.cancel(id).unwrap();
    drop(copy);
    peer.read_exact(&mut vec![0; written]).unwrap();
    settle(&stream);
    until(|| !has_error(&stream), "stamps were left");
}

/// A readable descriptor means that there is an event.
#[test]
fn unsubscribed_events_wake_no_thread() {
    let (stream, _peer) = pair();
    let events = Unprivileged::start().unwrap();
    let id = events.subscribe(stream.as_fd(), all()).unwrap();
    let nothing = EventRequest {
        events: EventSet::NONE,
        ..all()
    };
    events.change(id, nothing).unwrap();
    // An event may be older than the change.
    while events.try_next().is_some() {}
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let its = cookie(stream.as_fd()).unwrap();
    events.shared.look(its);
    let mut polled = [input(events.readable())];
    poll(&mut polled, Some(Duration::ZERO)).unwrap();
    assert!(!is_ready(&polled[0]));
}

/// A limit beyond the range of the clock is no limit.
#[test]
fn a_wait_without_limit_returns_with_the_event() {
    let (stream, _peer) = pair();
    let events = crate::events::Events::unprivileged().unwrap();
    let id = events.subscribe(&stream, events.allowed()).unwrap();
    drop(stream);
    let last = std::iter::from_fn(|| events.next(Some(Duration::MAX)).unwrap())
        .find(|event| event.what == EventDetails::Ended);
    assert_eq!(last.unwrap().subscription, id);
}

/// Options that the application has set meanwhile are not restored.
#[test]
fn options_that_were_changed_meanwhile_stay() {
    let (stream, _peer) = pair();
    let events = Unprivileged::start().unwrap();
    let id = events.subscribe(stream.as_fd(), all()).unwrap();
    let its = libc::SOF_TIMESTAMPING_RX_SOFTWARE;
    set_option(
        stream.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_TIMESTAMPING,
        &its,
    )
    .unwrap();
    events.cancel(id).unwrap();
    assert_eq!(options(&stream), its);
}

/// Ends a test that hangs. No result depends on it.
const GUARD: Duration = Duration::from_mins(5);
/// Three timers, each of which may run out early by a tick: 10 ms with `CONFIG_HZ=100`.
const TICKS: Duration = Duration::from_millis(30);
const BACKLOG: i32 = 2;
/// Deferral of the connection until data arrives, in seconds.
const LONG: i32 = 60;
