//! Events of sockets on loopback, as any process can have them.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use super::*;
use crate::event::EventSet;
use crate::system::{Polled, poll};

/// A connection and its other end, which nothing gets to.
pub(super) fn into_the_void(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    // Returns 0 bytes of every packet.
    let mut nothing = [libc::sock_filter {
        code: 6,
        jt: 0,
        jf: 0,
        k: 0,
    }];
    let filter = libc::sock_fprog {
        len: 1,
        filter: nothing.as_mut_ptr(),
    };
    set_option(
        peer.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_ATTACH_FILTER,
        &filter,
    )
    .unwrap();
    (stream, peer)
}

fn all() -> Wanted {
    Wanted {
        events: EventSet::ALL,
        variables: variables(),
    }
}

/// The next event of this kind.
fn next(events: &Unprivileged, kind: EventKind) -> Event {
    let end = monotonic() + PATIENCE;
    loop {
        match events.try_next() {
            Some(event) if event.what.kind() == kind => return event,
            Some(_) => {}
            None => {
                let left = end.saturating_sub(monotonic());
                assert!(!left.is_zero(), "no event of this kind: {kind}");
                let mut polled = [Polled::input(events.readable())];
                poll(&mut polled, Some(left)).unwrap();
            }
        }
    }
}

#[test]
fn timeouts_are_told_one_by_one() {
    let (mut stream, _peer) = into_the_void("127.0.0.1:0");
    let events = Unprivileged::start().unwrap();
    events.subscribe(stream.as_fd(), all()).unwrap();
    stream.write_all(&[0]).unwrap();
    let mut last = Duration::ZERO;
    for number in 1..=3 {
        let event = next(&events, EventKind::Timeout);
        let Happening::Timeout { in_a_row, after } = event.what else {
            panic!("{event:?}");
        };
        assert_eq!(in_a_row, number);
        if number > 1 {
            let took = event.time.saturating_sub(last);
            // The wheel is up to an eighth late.
            assert!(took >= after, "{took:?} for {after:?}");
            assert!(took < after * 5 / 4 + SLACK, "{took:?} for {after:?}");
        }
        last = event.time;
    }
}

#[test]
fn subscriptions_end_by_themselves() {
    let (stream, peer) = into_the_void("127.0.0.1:0");
    let events = Unprivileged::start().unwrap();
    let [one, two] = [(); 2].map(|()| events.subscribe(stream.as_fd(), all()).unwrap());
    let nothing = Wanted {
        events: EventSet::NONE,
        ..all()
    };
    events.change(two, nothing).unwrap();
    events.cancel(one).unwrap();
    assert!(events.cancel(one).is_err());
    assert!(events.tally(one).is_err());
    drop((stream, peer));
    // Whoever wants nothing hears of the end.
    assert_eq!(next(&events, EventKind::Ended).subscription, two);
    assert!(events.change(two, all()).is_err());
    assert!(events.state().sockets.is_empty());
}

#[test]
fn the_next_socket_with_a_descriptor_has_no_events_of_the_last_one() {
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

/// For what takes half a second.
const PATIENCE: Duration = Duration::from_secs(20);
/// For a machine with other work.
const SLACK: Duration = Duration::from_millis(200);
