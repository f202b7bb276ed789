//! What is on the wire, with a subscription and without.

use super::*;
use tidegate_core::link::RouteId;
use tidegate_live::tcp_sysctls::Stack;

/// A segment as it went into the path: where its first byte is behind the first of the stream, and
/// how many bytes it has.
type Sent = (u32, u16);

/// The same losses lead to the same segments in the same order, whether somebody hears of them or
/// not.
///
/// What is lost is told by counting, so the transfers are made such that no clock has a say in what
/// goes when: a burst fits into the window, the next one waits until all has arrived, tails are not
/// probed, and a time-out takes seconds.
#[test]
fn a_subscription_changes_no_segment() {
    judged_in_lab("a_subscription_changes_no_segment", || {
        let Some((events, _alone)) = in_kernel() else {
            return;
        };
        // With each sixth the last segment of a burst is lost, which may take a time-out to repair.
        for every in [5, 7, 8, 9] {
            let plain = segments(&events, every, None);
            assert_eq!(segments(&events, every, None), plain, "each {every}th lost");
            let watched = segments(&events, every, Some(Wanted::ALL));
            assert_eq!(watched, plain, "each {every}th lost");
            let repairs = (1..plain.len()).filter(|&n| plain[..n].contains(&plain[n]));
            assert!(repairs.count() > 0, "nothing was sent again: {plain:?}");
        }
    });
}

/// Two bursts over a path that loses the last of `every` so many packets.
fn segments(events: &Events, every: u32, wanted: Option<Wanted>) -> Vec<Sent> {
    let loss = LossConfig::Every(NonZeroU32::new(every).unwrap());
    let config = EmulatorConfig {
        log: 1_000,
        ..path(loss, Vec::new())
    };
    let emulator = Emulator::start(&config).unwrap();
    let tails = Stack {
        no_tail_probes: true,
        ..Stack::default()
    };
    tails.apply(emulator.namespace(Host::A)).unwrap();
    let patient = Stack {
        min_rto: Some(Duration::from_secs(5)),
        ..Stack::default()
    };
    // Before Linux 6.11 it is 0.2 s, which leaves a machine that is late less room.
    let _ = patient.apply(emulator.namespace(Host::A));
    let listen = || TcpListener::bind((Host::B.address(), PORT)).unwrap();
    let listener = emulator.namespace(Host::B).within(listen).unwrap();
    let connect = || TcpStream::connect((Host::B.address(), PORT)).unwrap();
    let stream = emulator.namespace(Host::A).within(connect).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    set_congestion_control(&stream, "reno").unwrap();
    // The last segment of a burst is a short one, and does not wait for those before it.
    stream.set_nodelay(true).unwrap();
    let id = wanted.map(|wanted| events.subscribe(&stream, wanted).unwrap());
    for bytes in [FIRST, SECOND] {
        events.write_all(&stream, &vec![0; bytes]).unwrap();
        peer.read_exact(&mut vec![0; bytes]).unwrap();
        acknowledged(events, &stream);
    }
    if let Some(id) = id {
        // Else nothing would have been compared.
        let seen: Vec<Event> = std::iter::from_fn(|| events.try_next()).collect();
        assert!(kinds(&seen).contains(EventKind::Recovery), "{seen:?}");
        assert_eq!(events.tally(id).unwrap().lost, 0);
        events.cancel(id).unwrap();
    }
    // Before the connection is closed, which is not compared.
    let (_, log) = emulator.stop().unwrap();
    assert_eq!(log.missed, 0);
    let there = log.arrivals.iter().filter(|a| a.route == RouteId(0));
    let all: Vec<_> = there.filter_map(|a| a.segment).collect();
    let first = all.iter().find(|s| s.syn).unwrap().sequence;
    let place = |sequence: u32| sequence.wrapping_sub(first).wrapping_sub(1);
    let data = all.iter().filter(|s| s.payload > 0);
    data.map(|s| (place(s.sequence), s.payload)).collect()
}

/// Waits until the other end has said that it has everything.
fn acknowledged(events: &Events, stream: &TcpStream) {
    let guard = Instant::now() + GUARD;
    loop {
        let state = events.probe(stream).unwrap();
        if state.unacknowledged() == Some(tidegate_core::units::Bytes(0)) {
            return;
        }
        assert!(Instant::now() < guard, "{state:?}");
        thread::yield_now();
    }
}

/// Ten segments, as many as a connection begins with, the last one shorter.
const FIRST: usize = 14_000;
/// What a window has room for that was halved twice and has grown by less than that: two segments.
const SECOND: usize = 2_000;
