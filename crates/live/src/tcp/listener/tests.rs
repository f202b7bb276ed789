//! Strangers at a listening socket, over loopback.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{FromRawFd as _, OwnedFd};

use tidegate_core::session::tcp::first_report;

use super::*;
use crate::netns::check;
use crate::sockaddr::SockAddr;
use crate::tcp::TcpOptions;
use crate::tcp::tests::{conditions, reset};

/// Far beyond the duration of a test.
const LONG: Duration = Duration::from_mins(10);

fn listen<O: Opening>(limit: Duration, conditions: &RunLimits) -> (Listener<O>, SocketAddr) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    (
        Listener::start(socket, limit, None, conditions).unwrap(),
        at,
    )
}

/// The next connection and the messages before it.
fn next<O: Opening>(listener: &Listener<O>, limits: &RunLimits) -> (Admitted<O>, Vec<String>) {
    let mut said = Vec::new();
    let refused = |refusal: &Refusal, omitted| said.push(format!("{refusal} ({omitted} omitted)"));
    let next = listener.next(limits, || false, refused).unwrap();
    (next.unwrap(), said)
}

/// Waits for a refusal whose message contains `words`.
fn refusal<O: Opening>(listener: &Listener<O>, limits: &RunLimits, words: &str) -> String {
    let found = std::cell::RefCell::new(None);
    let refused = |refusal: &Refusal, _| {
        let said = refusal.to_string();
        if said.contains(words) {
            found.replace(Some(said));
        }
    };
    let none = listener.next(limits, || found.borrow().is_some(), refused);
    assert!(none.unwrap().is_none());
    found.into_inner().unwrap()
}

/// Waits until the listener closes the connection.
fn is_closed(stream: &mut TcpStream) {
    match stream.read(&mut [0]) {
        Ok(0) => {}
        Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("{other:?}"),
    }
}

/// A key frame of MPEG-2 in one packet with this sequence number.
fn frame(sequence: u16) -> Vec<u8> {
    use tidegate_core::media::Codec;
    use tidegate_core::wire::rtp::RtpHeader;
    use tidegate_core::wire::{framing, payload};

    let data = [0, 0, 1, 0xb3, 1, 0, 0, 1, 0, 0, 8, 9, 9, 9, 0, 0, 1, 1];
    let mut out = Vec::new();
    let cut = payload::packetise(Codec::Mpeg2, &data, 1_000, |payload, marker| {
        let header = RtpHeader {
            payload_type: payload::payload_type(Codec::Mpeg2),
            sequence,
            timestamp: 3_000 * u32::from(sequence),
            ssrc: 1,
            marker,
        };
        let emitted = framing::emit(&mut out, |out| {
            header.emit(out);
            payload.emit(out);
        });
        emitted.unwrap();
    });
    cut.unwrap();
    out
}

/// The opening of an unknown sender.
fn stream() -> Vec<u8> {
    (0..PROBATION as u16).flat_map(frame).collect()
}

/// An RTP packet of 14 bytes on the wire, without a frame.
fn packet(sequence: u8) -> [u8; 14] {
    [0, 12, 0x80, 96, 0, sequence, 0, 0, 0, 0, 0, 0, 0, 1]
}

#[test]
fn silent_connections_do_not_hold_the_place() {
    let conditions = conditions();
    let (listener, at) = listen::<TcpReceiver>(LONG, &conditions);
    let _silent: Vec<_> = (0..10).map(|_| TcpStream::connect(at)).collect();
    let mut sender = TcpStream::connect(at).unwrap();
    sender.write_all(&stream()).unwrap();
    let (mut admitted, _) = next(&listener, &conditions);
    assert_eq!(admitted.socket.peer(), sender.local_addr().unwrap());
    let frame = admitted.opening.poll_frame().unwrap();
    assert!(frame.complete.is_some_and(|at| at >= admitted.since));
}

#[test]
fn a_slow_drip_is_no_sign_of_life() {
    let conditions = conditions();
    let limit = Duration::from_millis(200);
    let (listener, at) = listen::<TcpReceiver>(limit, &conditions);
    // Before the listener can accept.
    let began = conditions.clock.now();
    let mut drip = TcpStream::connect(at).unwrap();
    // Packets without a frame, and a BYE, until the connection is closed.
    drip.write_all(&[0, 8, 0x81, 203, 0, 1, 0, 0, 0, 1])
        .unwrap();
    let mut sequence = 0_u8;
    while drip.write_all(&packet(sequence)).is_ok() {
        sequence = sequence.wrapping_add(1);
        assert!(conditions.clock.now().since(began) < LONG);
        thread::yield_now();
    }
    assert!(conditions.clock.now().since(began) >= limit);
    let said = refusal(&listener, &conditions, "within 0.2 s");
    assert!(said.contains("sent no stream of RTP packets"), "{said}");
}

#[test]
fn a_player_is_served_after_its_whole_report() {
    let conditions = conditions();
    let (listener, at) = listen::<PlayerRtcp>(LONG, &conditions);
    let mut first = TcpStream::connect(at).unwrap();
    let mut second = TcpStream::connect(at).unwrap();
    let report = first_report(1);
    let (last, before) = report.split_last().unwrap();
    first.write_all(before).unwrap();
    second.write_all(&report).unwrap();
    let served = |player: &TcpStream| {
        let (admitted, _) = next(&listener, &conditions);
        assert_eq!(admitted.socket.peer(), player.local_addr().unwrap());
    };
    served(&second);
    first.write_all(&[*last]).unwrap();
    served(&first);
}

#[test]
fn other_protocols_and_closed_connections_are_reported() {
    let conditions = conditions();
    let (listener, at) = listen::<PlayerRtcp>(LONG, &conditions);
    let mut scan = TcpStream::connect(at).unwrap();
    scan.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    refusal(
        &listener,
        &conditions,
        "sent no receiver report (RFC 4571): ",
    );
    let closed = TcpStream::connect(at).unwrap();
    let name = closed.local_addr().unwrap();
    drop(closed);
    refusal(
        &listener,
        &conditions,
        &format!("{name} connected and sent nothing"),
    );
    let mut begun = TcpStream::connect(at).unwrap();
    begun.write_all(&[0]).unwrap();
    begun.shutdown(Shutdown::Write).unwrap();
    refusal(&listener, &conditions, "in 1 bytes");
    reset(TcpStream::connect(at).unwrap());
    refusal(&listener, &conditions, "reset");
}

/// The oldest silent connections make room; the number of messages is bounded.
#[test]
fn a_thousand_connections_leave_room_for_a_sender() {
    let conditions = conditions();
    let (listener, at) = listen::<TcpReceiver>(LONG, &conditions);
    let mut oldest = TcpStream::connect(at).unwrap();
    let mut held = Vec::new();
    for _ in 0..1_000 {
        held.push(TcpStream::connect(at).unwrap());
        // The test itself has a limit of descriptors.
        if held.len() > 200 {
            held.remove(0);
        }
    }
    is_closed(&mut oldest);
    let mut sender = TcpStream::connect(at).unwrap();
    sender.write_all(&stream()).unwrap();
    let (admitted, said) = next(&listener, &conditions);
    assert_eq!(admitted.socket.peer(), sender.local_addr().unwrap());
    assert!(said.len() <= MAX_REFUSALS, "{said:?}");
    assert!(said[0].contains("too many others"), "{said:?}");
    is_closed(&mut held.remove(0));
}

/// Connects from another address of the loopback interface.
fn connect_from(source: &str, to: SocketAddr) -> TcpStream {
    // SAFETY: a system call with integer arguments.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    let fd = check(fd).unwrap();
    // SAFETY: the descriptor is new and has no other owner.
    let stream = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let source: SocketAddr = source.parse().unwrap();
    for (call, name) in [
        (libc::bind as unsafe extern "C" fn(_, _, _) -> _, source),
        (libc::connect, to),
    ] {
        let name = SockAddr::from(name);
        // SAFETY: the address has this length and outlives the call.
        check(unsafe { call(fd, (&raw const name.storage).cast(), name.length) }).unwrap();
    }
    stream
}

/// A flood of one host does not close the older connection of another.
#[test]
fn room_is_made_by_the_host_with_the_most_connections() {
    let conditions = conditions();
    let (listener, at) = listen::<TcpReceiver>(LONG, &conditions);
    let mut sender = connect_from("127.0.0.2:0", at);
    let mut oldest = TcpStream::connect(at).unwrap();
    let _held: Vec<_> = (0..2 * MAX_PENDING)
        .map(|_| TcpStream::connect(at).unwrap())
        .collect();
    is_closed(&mut oldest);
    sender.write_all(&stream()).unwrap();
    let (admitted, _) = next(&listener, &conditions);
    assert_eq!(admitted.socket.peer(), sender.local_addr().unwrap());
}

/// Peers that have sent their opening wait in turn, up to a limit.
#[test]
fn addresses_of_one_network_count_together() {
    let same = |a: &str, b: &str| network(a.parse().unwrap()) == network(b.parse().unwrap());
    assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"));
    assert!(!same("2001:db8:1:2::1", "2001:db8:1:3::1"));
    assert!(same("192.0.2.1", "::ffff:192.0.2.1"));
    assert!(!same("192.0.2.1", "192.0.2.2"));
}

#[test]
fn waiting_players_are_bounded() {
    let conditions = conditions();
    let (listener, at) = listen::<PlayerRtcp>(LONG, &conditions);
    let player = || {
        let mut player = TcpStream::connect(at).unwrap();
        player.write_all(&first_report(1)).unwrap();
        player
    };
    let players: Vec<_> = (0..MAX_READY).map(|_| player()).collect();
    // All are admitted before the next one.
    while lock(&listener.shared).ready.len() < MAX_READY {
        thread::yield_now();
    }
    is_closed(&mut player());
    for player in &players {
        let (admitted, _) = next(&listener, &conditions);
        assert_eq!(admitted.socket.peer(), player.local_addr().unwrap());
    }
}

/// Waits until the listener's end of `count` waiting connections knows that their peer has left.
fn have_left<O: Opening>(listener: &Listener<O>, count: usize) {
    let is_known = || {
        let shared = lock(&listener.shared);
        let left = shared.ready.iter().filter(|a| a.socket.has_ended());
        left.count() == count
    };
    while !is_known() {
        thread::yield_now();
    }
}

#[test]
fn players_that_leave_give_their_places_to_others() {
    let conditions = conditions();
    let (listener, at) = listen::<PlayerRtcp>(LONG, &conditions);
    let player = || {
        let mut player = TcpStream::connect(at).unwrap();
        player.write_all(&first_report(1)).unwrap();
        player
    };
    let newest_is = |player: &TcpStream| {
        let name = player.local_addr().unwrap();
        let shared = lock(&listener.shared);
        let crowded = |(refusal, _): &_| matches!(refusal, Refusal::Crowded { .. });
        assert!(!shared.refusals.iter().any(crowded));
        shared.ready.back().is_some_and(|a| a.socket.peer() == name)
    };
    let admitted = |player: TcpStream| {
        while !newest_is(&player) {
            thread::yield_now();
        }
        player
    };
    let mut players: Vec<_> = (0..MAX_READY).map(|_| admitted(player())).collect();
    let mut left: Vec<_> = players.drain(..3).collect();
    let names: Vec<_> = left.iter().map(|p| p.local_addr().unwrap()).collect();
    // It still reads, as a player that waits for the end of its connection does.
    let half = left.remove(2);
    half.shutdown(Shutdown::Write).unwrap();
    reset(left.remove(1));
    drop(left);
    have_left(&listener, 3);
    players.extend((0..3).map(|_| admitted(player())));
    // One leaves after the last one was admitted.
    let first = players.remove(0);
    let first_name = first.local_addr().unwrap();
    drop(first);
    have_left(&listener, 1);
    let mut said = Vec::new();
    for player in &players {
        let (admitted, refused) = next(&listener, &conditions);
        assert_eq!(admitted.socket.peer(), player.local_addr().unwrap());
        said.extend(refused);
    }
    for (name, said) in names.iter().chain([&first_name]).zip(&said) {
        let line = format!("{name} connected and left before its turn");
        assert!(said.starts_with(&line), "{said}");
    }
    assert_eq!(said.len(), 4);
}

/// Its stream may be complete.
#[test]
fn a_sender_that_has_closed_its_connection_is_served() {
    let conditions = conditions();
    let (listener, at) = listen::<TcpReceiver>(LONG, &conditions);
    let mut sender = TcpStream::connect(at).unwrap();
    let name = sender.local_addr().unwrap();
    sender.write_all(&stream()).unwrap();
    drop(sender);
    have_left(&listener, 1);
    let (admitted, _) = next(&listener, &conditions);
    assert_eq!(admitted.socket.peer(), name);
}

#[test]
fn options_are_set_after_the_opening() {
    let conditions = conditions();
    let (listener, at) = listen::<PlayerRtcp>(LONG, &conditions);
    let mut player = TcpStream::connect(at).unwrap();
    player.write_all(&first_report(1)).unwrap();
    let (mut admitted, _) = next(&listener, &conditions);
    let options = TcpOptions {
        congestion: Some("nosuch".into()),
        ..TcpOptions::default()
    };
    let refused = admitted.socket.configure(&options).unwrap_err();
    assert!(refused.to_string().contains("TCP_CONGESTION"), "{refused}");
}
