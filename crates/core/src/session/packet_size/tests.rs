use super::*;
use crate::random::{Seed, unit};

/// Frames of `large` full packets and a smaller one, of which `arrives` selects those that arrive.
/// Returns the frame at which a hole is found, and the size then.
fn found(
    large: usize,
    frames: u64,
    mut arrives: impl FnMut(Bytes) -> bool,
) -> Option<(u64, Bytes)> {
    let mut size = PacketSize::new(Bytes(1_200));
    (0..frames).find_map(|frame| {
        let last = Bytes(100 + 37 * frame % 900);
        let frame_sizes = std::iter::repeat_n(Bytes(1_200), large).chain([last]);
        for packet in frame_sizes {
            size.on_outcome(packet, arrives(packet));
        }
        size.detect().then(|| (frame, size.current()))
    })
}

#[test]
fn hole_is_found_within_a_few_frames() {
    for limit in [1_150, 1_000, 628] {
        for (large, within) in [(1, 10), (2, 6), (8, 5)] {
            let (frame, size) = found(large, 30, |size| size <= Bytes(limit)).unwrap();
            assert!(frame <= within, "{limit} {large}: after {frame} frames");
            assert!(size <= Bytes(limit) && size >= FLOOR, "{limit}: {size:?}");
        }
    }
}

#[test]
fn losses_are_no_hole() {
    for loss in [0.01, 0.1, 0.4] {
        let mut rng = Seed(7).stream("loss");
        for large in [1, 3, 10] {
            let hole = found(large, 20_000, |_| unit(&mut rng) >= loss);
            assert_eq!(hole, None, "{loss} {large}");
        }
    }
}

/// Two outages in short succession, with small packets only around them.
#[test]
fn outages_are_no_hole() {
    let mut count = 0;
    let hole = found(3, 90, |size| {
        count += 1;
        let is_dark = matches!(count, 100..=200 | 210..=300);
        !is_dark && (size < Bytes(1_200) || count < 100)
    });
    let (frame, _) = hole.expect("only small packets arrive afterwards");
    assert!(frame > 300 / 4, "{frame}");
}

#[test]
fn reports_cannot_push_the_size_below_the_floor() {
    let mut size = PacketSize::new(Bytes(1_200));
    for _ in 0..100 {
        size.on_outcome(Bytes(577), false);
        size.on_outcome(Bytes(60), true);
        if size.detect() {
            size.restart();
        }
    }
    assert_eq!(size.current(), FLOOR);
    let mut small = PacketSize::new(Bytes(300));
    for _ in 0..100 {
        small.on_outcome(Bytes(300), false);
        small.on_outcome(Bytes(60), true);
    }
    assert!(!small.detect());
}

/// A search on a path that carries `limit`. Returns the probes.
fn search(size: &mut PacketSize, limit: Bytes, from: Time) -> u32 {
    let mut now = from;
    let mut probes = 0;
    size.restart();
    while size.search.is_some() {
        let probe = size.poll_probe(now).expect("a probe is due");
        probes += 1;
        now += Duration::from_millis(50);
        if probe.size <= limit {
            assert!(size.on_arrival(now, probe.sequence));
            assert!(!size.on_arrival(now, probe.sequence), "counted twice");
        } else {
            assert_eq!(size.poll_probe(now), None, "two probes in flight");
            size.on_progress(now, now);
            now += OVERTAKEN;
            size.on_progress(now, now);
        }
    }
    probes
}

#[test]
fn search_finds_the_limit_of_the_path() {
    for limit in [576, 577, 628, 1_028, 1_178, 1_199] {
        let mut size = PacketSize::new(Bytes(1_200));
        size.current = FLOOR;
        let probes = search(&mut size, Bytes(limit), Time::ZERO);
        assert_eq!(size.found(true), Some(Bytes(limit)));
        assert!(probes <= 33, "{limit}: {probes} probes");
    }
}

#[test]
fn false_alarm_ends_with_one_probe() {
    let mut size = PacketSize::new(Bytes(1_200));
    size.current = FLOOR;
    assert_eq!(search(&mut size, Bytes(1_500), Time::ZERO), 1);
    assert_eq!((size.current(), size.found(true)), (Bytes(1_200), None));
    assert_eq!(size.next_timeout(), None);
}

#[test]
fn size_is_raised_once_the_hole_has_gone() {
    let mut size = PacketSize::new(Bytes(1_200));
    size.current = FLOOR;
    search(&mut size, Bytes(900), Time::ZERO);
    let raise = size.next_timeout().expect("another search");
    assert!(raise >= Time::ZERO + RAISE_TIMER);
    assert_eq!(size.poll_probe(raise.before(Duration::from_nanos(1))), None);
    let probe = size.poll_probe(raise).unwrap();
    assert_eq!(probe.size, Bytes(1_200));
    assert!(size.on_arrival(raise, probe.sequence));
    assert_eq!(size.current(), Bytes(1_200));
}

/// Without other reports, a probe is lost after its timer.
#[test]
fn silent_path_costs_few_probes() {
    let mut size = PacketSize::new(Bytes(1_200));
    size.current = FLOOR;
    size.restart();
    let mut sent = 0;
    for ms in 0..10_000 {
        sent += u32::from(size.poll_probe(Time::from_millis(ms)).is_some());
    }
    assert_eq!(sent, 10);
}
