//! Clients that try to exhaust the daemon.

use std::io::Read as _;
use std::os::fd::AsRawFd;
use std::slice;

use super::*;

/// A user without rights takes no slot, and any other user no more than its share, also with
/// clients that connect and leave as fast as possible.
#[test]
fn clients_that_reconnect_do_not_lock_others_out() {
    let few = "[limits]\nclients = 4\nclients-per-user = 2\n";
    for (name, rules) in [
        ("barred", "[[allow]]\nusers = [0]\nevents = ['state']\n"),
        ("hasty", ANYTHING),
    ] {
        let Some(daemon) = Daemon::start(name, &format!("{few}{rules}")) else {
            return;
        };
        as_nobody(|| {
            for _ in 0..200 {
                drop(raw_client(&daemon.path));
                drop(Events::connect(&daemon.path));
            }
        });
        let root = Events::connect(&daemon.path);
        assert!(root.is_ok(), "{root:?}");
    }
}

#[test]
fn a_client_without_a_ring_is_disconnected() {
    let Some(daemon) = Daemon::start("mute", ANYTHING) else {
        return;
    };
    let mute = raw_client(&daemon.path);
    assert_eq!(answer(&mute, GUARD), Some(0));
    assert!(daemon.logged("it did not request a ring in time"));
}

/// The length of the next message to a client, if one comes within `limit`.
pub(super) fn answer(client: &OwnedFd, limit: Duration) -> Option<usize> {
    reply(client, limit).map(|text| text.len())
}

/// The next message to a client, if one comes within `limit`.
pub(super) fn reply(client: &OwnedFd, limit: Duration) -> Option<String> {
    let limit = libc::timeval {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_usec: limit.subsec_micros().into(),
    };
    let mut room = [0_u8; 4_096];
    let fd = client.as_raw_fd();
    // SAFETY: the time and the room are whole and passed with their sizes.
    let got = unsafe {
        let (value, size) = ((&raw const limit).cast(), mem::size_of_val(&limit) as u32);
        let set = libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, value, size);
        assert_eq!(set, 0);
        libc::recv(fd, room.as_mut_ptr().cast(), room.len(), 0)
    };
    let got = usize::try_from(got).ok()?;
    Some(String::from_utf8_lossy(&room[..got]).into_owned())
}

/// With descriptors in a valid message, in an invalid one, and in one that is never read.
#[test]
fn the_daemon_does_not_wait_for_a_close() {
    let policy = format!("[limits]\nrequests-per-second = 1\n{ANYTHING}");
    let Some(daemon) = Daemon::start_alone("linger", &policy) else {
        return;
    };
    let tally: &[u8] = br#"{"request":"tally","id":1}"#;
    for (message, many) in [(tally, 1), (tally, 40), (b"xyz", 1), (b"", 2)] {
        let bad = raw_client(&daemon.path);
        let (ends, peers): (Vec<_>, Vec<_>) = (0..many).map(|_| lingering()).unzip();
        let (more, more_peer) = lingering();
        // The rate limit delays the next message by a second. Our copies are closed meanwhile.
        assert!(hand_over(&bad, tally, &[]));
        assert!(answer(&bad, GUARD).is_some_and(|length| length > 0));
        assert!(hand_over(&bad, message, &numbers(&ends)));
        assert!(hand_over(&bad, tally, &numbers(slice::from_ref(&more))));
        drop((ends, more));
        let reply = answer(&bad, GUARD);
        assert_eq!(reply.map(|l| l > 0), Some(message == tally), "{message:?}");
        drop(bad);
        Events::connect(&daemon.path).unwrap();
        drop((peers, more_peer));
    }
}

/// A socket whose close takes `LINGER`, and its peer, which does not read.
pub(super) fn lingering() -> (TcpStream, TcpStream) {
    let (ours, peer) = connection();
    ours.set_nonblocking(true).unwrap();
    while (&ours).write(&[0; 1 << 13]).is_ok() {}
    set_linger(&ours, LINGER);
    // The close of a non-blocking socket does not wait.
    ours.set_nonblocking(false).unwrap();
    (ours, peer)
}

/// Sets how long a close waits for data. Zero resets the connection.
fn set_linger(socket: &TcpStream, long: Duration) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: long.as_secs() as libc::c_int,
    };
    // SAFETY: the value is initialised and passed with its size.
    let set = unsafe {
        let (value, size) = ((&raw const linger).cast(), mem::size_of_val(&linger) as u32);
        let fd = socket.as_raw_fd();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, size)
    };
    assert_eq!(set, 0);
}

/// Sends a message with descriptors. It fails for a client that is disconnected.
pub(super) fn hand_over(client: &OwnedFd, message: &[u8], along: &[i32]) -> bool {
    let bytes = mem::size_of_val(along);
    let mut control = [0_u64; 129];
    // SAFETY: a message header is integers and pointers, for which zero is a value; all that it
    // points to outlives the call and is passed with its size.
    unsafe {
        let mut part = libc::iovec {
            iov_base: message.as_ptr().cast_mut().cast(),
            iov_len: message.len(),
        };
        let mut header: libc::msghdr = mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(bytes as u32) as _;
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = libc::CMSG_LEN(bytes as u32) as _;
        std::ptr::copy_nonoverlapping(along.as_ptr().cast(), libc::CMSG_DATA(first), bytes);
        libc::sendmsg(client.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) >= 0
    }
}

pub(super) fn numbers(descriptors: &[impl AsRawFd]) -> Vec<i32> {
    descriptors.iter().map(AsRawFd::as_raw_fd).collect()
}

/// Longer than [`GUARD`], so that a reply within that has not waited for such a socket.
const LINGER: Duration = Duration::from_mins(10);

#[test]
fn one_user_does_not_take_all_subscriptions() {
    let policy = format!("[limits]\nsubscriptions = 4\n{ANYTHING}");
    let Some(daemon) = Daemon::start("share", &policy) else {
        return;
    };
    let (socket, _peer) = connection();
    as_nobody(|| {
        let events = Events::connect(&daemon.path).unwrap();
        for _ in 0..2 {
            events.subscribe(&socket, states()).unwrap();
        }
        let third = events.subscribe(&socket, states()).unwrap_err().to_string();
        assert!(third.contains("limits.subscriptions-per-user"), "{third}");
    });
    let root = Events::connect(&daemon.path).unwrap();
    root.subscribe(&socket, states()).unwrap();
}

/// Other users are served meanwhile, and the user itself afterwards.
#[test]
fn a_user_whose_close_hangs_is_refused_until_it_ends() {
    let policy = format!("[limits]\nrequests-per-second = 1\n{ANYTHING}");
    let Some(daemon) = Daemon::start_alone("hangs", &policy) else {
        return;
    };
    let subscribes = |socket: &TcpStream| {
        let events = Events::connect(&daemon.path).unwrap();
        events.subscribe(socket, EventRequest::default()).map(drop)
    };
    let (ours, _peer) = connection();
    let tally: &[u8] = br#"{"request":"tally","id":1}"#;
    let (bad, its_peer, refusal) = as_nobody(|| {
        let bad = raw_client(&daemon.path);
        // The rate limit delays the next message by a second. Our copy is closed meanwhile.
        assert!(hand_over(&bad, tally, &[]));
        assert!(answer(&bad, GUARD).is_some_and(|length| length > 0));
        let (hangs, peer) = lingering();
        assert!(hand_over(&bad, tally, &numbers(slice::from_ref(&hangs))));
        drop(hangs);
        let guard = Instant::now() + GUARD;
        let refusal = loop {
            if let Err(refusal) = subscribes(&ours) {
                break refusal.to_string();
            }
            assert!(Instant::now() < guard, "no subscription was refused");
        };
        (bad, peer, refusal)
    });
    assert!(
        refusal.contains("closing descriptors of user 65534 hangs")
            && refusal.contains("SO_LINGER"),
        "{refusal}"
    );
    // Descriptors of root are closed meanwhile: a socket ends with the daemon's copy only.
    let events = Events::connect(&daemon.path).unwrap();
    let (short, peer) = connection();
    events.subscribe(&short, EventRequest::default()).unwrap();
    drop((short, peer));
    let end = next(&events);
    assert_eq!(end.what, EventDetails::Ended);
    // A peer that is gone ends the wait.
    drop(its_peer);
    let guard = Instant::now() + GUARD;
    while let Err(error) = as_nobody(|| subscribes(&ours)) {
        assert!(Instant::now() < guard, "{error}");
    }
    drop(bad);
}

/// The daemon has no copy when it replies, so the owner's close is the last one.
#[test]
fn a_close_after_a_subscription_is_the_last_one() {
    let Some(daemon) = Daemon::start("last", ANYTHING) else {
        return;
    };
    let events = Events::connect(&daemon.path).unwrap();
    for round in 0..200 {
        let (socket, _peer) = connection();
        let id = events.subscribe(&socket, states()).unwrap();
        events.probe(&socket).unwrap();
        // The close resets the connection, so it is complete when it returns.
        set_linger(&socket, Duration::ZERO);
        drop(socket);
        let last = std::iter::from_fn(|| events.try_next()).last();
        let last = last.map(|event| (event.subscription, event.what));
        assert_eq!(last, Some((id, EventDetails::Ended)), "round {round}");
    }
}

/// The kernel closes unread descriptors with the daemon, which does not wait for them.
#[test]
fn the_end_of_the_daemon_does_not_wait_for_a_close() {
    let policy = format!("[limits]\nrequests-per-second = 1\n{ANYTHING}");
    let Some(daemon) = Daemon::start_alone("farewell", &policy) else {
        return;
    };
    let bad = raw_client(&daemon.path);
    let (ours, _peer) = lingering();
    let tally: &[u8] = br#"{"request":"tally","id":1}"#;
    assert!(hand_over(&bad, tally, &[]));
    assert!(answer(&bad, GUARD).is_some_and(|length| length > 0));
    // The rate limit delays this message by a second.
    assert!(hand_over(&bad, tally, &numbers(slice::from_ref(&ours))));
    drop(ours);
    // The socket lingers for ten minutes; half of that is a margin for any machine.
    let start = Instant::now();
    drop(daemon);
    assert!(start.elapsed() < LINGER / 2, "{:?}", start.elapsed());
}

/// The policy allows less than the default of the library.
#[test]
fn a_ring_beyond_the_policy_is_reduced() {
    let policy = format!("[limits]\nring-kib = 8\n{ANYTHING}");
    let Some(daemon) = Daemon::start("ring", &policy) else {
        return;
    };
    let client = raw_client(&daemon.path);
    let open = br#"{"request":"open","version":1,"ring":1048576}"#;
    assert!(hand_over(&client, open, &[]));
    let opened = reply(&client, GUARD).unwrap();
    assert!(opened.contains(r#""ring":8192"#), "{opened}");
    // The reader and the kernel agree on the size.
    let events = Events::connect(&daemon.path).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let first = listener.accept().unwrap();
    let id = events.subscribe(&socket, states()).unwrap();
    let second = flap(&socket, &listener, 100);
    let tally = events.tally(id).unwrap();
    let read = std::iter::from_fn(|| events.try_next()).count() as u64;
    assert!((12..=24).contains(&read), "{read}");
    assert_eq!(read + tally.lost, tally.events);
    for size in [2_048, 5_000] {
        let refusal = Events::connect_with(&daemon.path, size).unwrap_err();
        let refusal = refusal.to_string();
        assert!(refusal.contains("a power of two from 4096"), "{refusal}");
    }
    drop((first, second));
}

#[test]
fn other_descriptors_are_refused_and_closed() {
    let Some(daemon) = Daemon::start("pipe", ANYTHING) else {
        return;
    };
    let client = raw_client(&daemon.path);
    let open = br#"{"request":"open","version":1,"ring":4096}"#;
    assert!(hand_over(&client, open, &[]));
    let opened = reply(&client, GUARD).unwrap();
    assert!(opened.contains("opened"), "{opened}");
    let subscribe = br#"{"request":"subscribe","events":1,"variables":0}"#;
    for request in [&subscribe[..], br#"{"request":"counters"}"#] {
        let (mut reader, writer) = io::pipe().unwrap();
        assert!(hand_over(&client, request, &[writer.as_raw_fd()]));
        drop(writer);
        let refusal = reply(&client, GUARD).unwrap();
        assert!(refusal.contains("give a connected TCP socket"), "{refusal}");
        // The reader sees the end when the last copy of the writer is closed.
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }
}

/// A socket without subscriptions has no counters, which is not a refusal.
#[test]
fn a_probe_of_an_unsubscribed_socket_is_not_refused() {
    let Some(daemon) = Daemon::start("look", ANYTHING) else {
        return;
    };
    let events = Events::connect(&daemon.path).unwrap();
    let (socket, _peer) = connection();
    let state = events.probe(&socket).unwrap();
    assert_eq!(state.get(Variable::AcksSlowStart), None);
    assert!(state.get(Variable::Cwnd).is_some());
    events.subscribe(&socket, EventRequest::default()).unwrap();
    let state = events.probe(&socket).unwrap();
    assert!(state.get(Variable::AcksSlowStart).is_some());
    let log = daemon.wait();
    assert!(!log.iter().any(|l| l.contains("refused")), "{log:?}");
}
