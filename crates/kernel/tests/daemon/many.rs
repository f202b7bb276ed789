//! Many events and many sockets: no event is lost or goes to another subscription.

use std::collections::BTreeMap;

use super::*;

/// Ten thousand events without a pause, which are read after the last one. A ring with room for all
/// has all of them, and a smaller one has the number of the others.
#[test]
fn ten_thousand_events_arrive_or_are_counted() {
    let Some(daemon) = Daemon::start("thousands", ANYTHING) else {
        return;
    };
    let roomy = Events::connect_with(&daemon.path, ROOM).unwrap();
    let narrow = Events::connect_with(&daemon.path, 64 << 10).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let first = listener.accept().unwrap();
    let of_roomy = roomy.subscribe(&socket, states()).unwrap();
    let of_narrow = narrow.subscribe(&socket, states()).unwrap();
    let last = flap(&socket, &listener, TIMES);
    let made = 3 * TIMES as u64;

    let tally = roomy.tally(of_roomy).unwrap();
    assert_eq!((tally.events, tally.lost), (made, 0));
    let numbers: Vec<u64> = std::iter::from_fn(|| roomy.try_next())
        .map(|event| event.number)
        .collect();
    assert!(
        numbers.iter().copied().eq(1..=made),
        "{} numbers",
        numbers.len()
    );

    let tally = narrow.tally(of_narrow).unwrap();
    assert_eq!(tally.events, made);
    let numbers: Vec<u64> = std::iter::from_fn(|| narrow.try_next())
        .map(|event| event.number)
        .collect();
    // The first events fill the ring, and the others are counted.
    let kept = numbers.len() as u64;
    assert!(kept > 0 && tally.lost > 0, "{kept} numbers, {tally:?}");
    assert!(numbers.iter().copied().eq(1..=kept), "{numbers:?}");
    assert_eq!(kept + tally.lost, made);
    drop((first, last));
}

/// For more than eleven thousand events.
const ROOM: u32 = 4 << 20;
/// Rounds of three changes of state: slightly more than ten thousand events.
const TIMES: usize = 3_334;

/// Each subscription has the events of its own socket only.
#[test]
fn a_thousand_sockets_have_their_own_events() {
    // In a separate process, since it needs many descriptors.
    if descriptors::is_parent("many::a_thousand_sockets_have_their_own_events") {
        return;
    }
    let Some(daemon) = Daemon::start("crowd", ANYTHING) else {
        return;
    };
    descriptors::allow_descriptors(4_096);
    // All sockets are closed before the first end is read, with five events each.
    let events = Events::connect_with(&daemon.path, ROOM).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut pairs: Vec<(TcpStream, TcpStream)> = (0..SOCKETS)
        .map(|_| {
            let ours = TcpStream::connect(address).unwrap();
            (ours, listener.accept().unwrap().0)
        })
        .collect();
    let ids: Vec<_> = pairs
        .iter()
        .map(|(socket, _)| events.subscribe(socket, states()).unwrap())
        .collect();
    assert_eq!(events.try_next(), None);
    for ((socket, peer), &id) in pairs.iter_mut().zip(&ids) {
        *peer = flap(socket, &listener, 1);
        let seen: Vec<_> = std::iter::from_fn(|| events.try_next())
            .map(|event| (event.subscription, event.number, event.what.kind()))
            .collect();
        assert_eq!(seen, [1, 2, 3].map(|n| (id, n, EventKind::State)));
    }
    drop(pairs);
    let mut ends = BTreeMap::new();
    while ends.len() < SOCKETS {
        let event = next(&events);
        if event.what == EventDetails::Ended {
            *ends.entry(event.subscription).or_insert(0) += 1;
        }
    }
    assert!(ids.iter().all(|id| ends.get(id) == Some(&1)), "{ends:?}");
}

const SOCKETS: usize = 1_000;
