//! Segments on the wire, with and without a subscription.

use super::*;
use tidegate_core::link::RouteId;
use tidegate_live::tcp_sysctls::TcpSysctls;

/// A segment that entered the path: offset of its first byte in the stream, and its length.
/// how many bytes it has.
type Sent = (u32, u16);

/// The same losses cause the same segments in the same order, with and without a subscription.
///
/// Packets are lost by their count, so that segments must not depend on the time: a burst fits into
/// the window, the next burst starts after the last ACK, tail loss probes are off, and the RTO is
/// seconds long.
#[test]
fn a_subscription_changes_no_segment() {
    judged_in_lab("neutral::a_subscription_changes_no_segment", || {
        let Some((events, _alone)) = in_kernel() else {
            return;
        };
        // With every sixth packet the last segment of a burst is lost, which may need a time-out.
        for every in [5, 7, 8, 9] {
            let plain = segments(&events, every, None);
            assert_eq!(segments(&events, every, None), plain, "each {every}th lost");
            let watched = segments(&events, every, Some(EventRequest::ALL));
            assert_eq!(watched, plain, "each {every}th lost");
            let repairs = (1..plain.len()).filter(|&n| plain[..n].contains(&plain[n]));
            assert!(repairs.count() > 0, "no retransmission: {plain:?}");
        }
    });
}

/// Two bursts over a path that loses every `every`th packet.
fn segments(events: &Events, every: u32, wanted: Option<EventRequest>) -> Vec<Sent> {
    let loss = LossConfig::Every(NonZeroU32::new(every).unwrap());
    let config = EmulatorConfig {
        log: 1_000,
        ..path(loss, Vec::new())
    };
    let emulator = Emulator::start(&config).unwrap();
    let tails = TcpSysctls {
        no_tail_probes: true,
        ..TcpSysctls::default()
    };
    tails.apply(emulator.namespace(Host::A)).unwrap();
    let patient = TcpSysctls {
        min_rto: Some(Duration::from_secs(5)),
        ..TcpSysctls::default()
    };
    // Before Linux 6.11 it stays 0.2 s, which leaves less margin on a slow machine.
    let _ = patient.apply(emulator.namespace(Host::A));
    let listen = || TcpListener::bind((Host::B.address(), PORT)).unwrap();
    let listener = emulator.namespace(Host::B).within(listen).unwrap();
    let connect = || TcpStream::connect((Host::B.address(), PORT)).unwrap();
    let stream = emulator.namespace(Host::A).within(connect).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    set_congestion_control(&stream, "reno").unwrap();
    // The last segment of a burst is short, and must not wait for earlier ones (Nagle).
    stream.set_nodelay(true).unwrap();
    let id = wanted.map(|wanted| events.subscribe(&stream, wanted).unwrap());
    for bytes in [FIRST, SECOND] {
        events.write_all(&stream, &vec![0; bytes]).unwrap();
        peer.read_exact(&mut vec![0; bytes]).unwrap();
        acknowledged(events, &stream);
    }
    if let Some(id) = id {
        // Without a recovery the comparison would be void.
        let seen: Vec<Event> = std::iter::from_fn(|| events.try_next()).collect();
        assert!(kinds(&seen).contains(EventKind::Recovery), "{seen:?}");
        assert_eq!(events.tally(id).unwrap().lost, 0);
        events.cancel(id).unwrap();
    }
    // Stops before the connection is closed, which is not compared.
    let (_, log) = emulator.stop().unwrap();
    assert_eq!(log.missed, 0);
    let there = log.arrivals.iter().filter(|a| a.route == RouteId(0));
    let all: Vec<_> = there.filter_map(|a| a.segment).collect();
    let first = all.iter().find(|s| s.syn).unwrap().sequence;
    let place = |sequence: u32| sequence.wrapping_sub(first).wrapping_sub(1);
    let data = all.iter().filter(|s| s.payload > 0);
    data.map(|s| (place(s.sequence), s.payload)).collect()
}

/// Waits until all data is acknowledged.
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

/// Ten segments, the initial window, the last one shorter.
const FIRST: usize = 14_000;
/// Fits into a window that was halved twice and has grown by less than that: two segments.
const SECOND: usize = 2_000;
