use super::*;

const CONTENT: Content = Content {
    frame: 0,
    fragment: 0,
    media_seq: 0,
};
const REORDERING: Duration = Duration::from_millis(20);

fn send(h: &mut History, ms: u64, seq: u64) {
    h.on_sent(
        Time::from_millis(ms),
        Stream::Media,
        seq,
        Bytes(1_200),
        Kind::Media,
        CONTENT,
    );
}

fn got(seq: u16, ago_ms: u64) -> Line {
    Line {
        seq,
        received: Some((Duration::from_millis(ago_ms), Ecn::NotEct)),
    }
}

fn remote(ms: u64) -> RemoteTime {
    RemoteTime(ms * 1_000_000)
}

//= rfc5348-5.1-retransmission (test)
#[test]
fn a_retransmission_has_its_own_sequence_number() {
    let mut h = History::new(false);
    let mut send = |stream, wire_seq, kind| {
        let (now, size) = (Time::ZERO, Bytes(1_200));
        h.on_sent(now, stream, wire_seq, size, kind, CONTENT).seq
    };
    assert_eq!(send(Stream::Media, 900, Kind::Media), 0);
    assert_eq!(send(Stream::Repair, 20, Kind::Repair), 1);
    assert_eq!(send(Stream::Media, 901, Kind::Media), 2);
}

//= rfc5348-5.1-three-later (test)
#[test]
fn three_later_arrivals_declare_a_loss_and_one_does_not() {
    let mut h = History::new(false);
    (0..5).for_each(|i| send(&mut h, i, 65_533 + i));
    let lines = [got(65_534, 5), got(65_535, 4)];
    h.on_feedback(Stream::Media, remote(100), &lines).unwrap();
    let learnt = h.settle(Time::from_millis(60), remote(100), REORDERING);
    assert_eq!(learnt.fates.len(), 2);
    assert!(learnt.lost.is_empty());
    assert_eq!(learnt.rtt, Some(Duration::from_millis(60 - 2 - 4)));

    h.on_feedback(Stream::Media, remote(110), &[got(0, 1)])
        .unwrap();
    let learnt = h.settle(Time::from_millis(70), remote(110), REORDERING);
    let outcomes: Vec<_> = learnt.fates.iter().map(|f| (f.seq, f.outcome)).collect();
    assert_eq!(outcomes[0], (0, Outcome::Lost));
    assert_eq!(outcomes.len(), 2);
    assert_eq!(h.in_flight(), Bytes(1_200));
}

#[test]
fn on_a_reordering_path_only_time_declares_a_loss() {
    let mut h = History::new(false);
    (0..9).for_each(|i| send(&mut h, i, i));
    // Packet 0 arrived 5 ms after packet 1.
    let lines = [got(0, 1), got(1, 6)];
    h.on_feedback(Stream::Media, remote(100), &lines).unwrap();
    assert!(h.is_reordered());
    let lines = [got(3, 4), got(4, 3), got(5, 2), got(6, 1)];
    h.on_feedback(Stream::Media, remote(110), &lines).unwrap();
    let at = Time::from_millis(70);
    assert!(h.settle(at, remote(110), REORDERING).lost.is_empty());
    send(&mut h, 30, 9);
    h.on_feedback(Stream::Media, remote(140), &[got(9, 1)])
        .unwrap();
    let learnt = h.settle(Time::from_millis(90), remote(140), REORDERING);
    assert_eq!(learnt.lost.len(), 3);
}

#[test]
fn one_much_later_arrival_declares_a_loss() {
    let mut h = History::new(false);
    send(&mut h, 0, 7);
    send(&mut h, 25, 8);
    h.on_feedback(Stream::Media, remote(100), &[got(8, 1)])
        .unwrap();
    let learnt = h.settle(Time::from_millis(90), remote(100), REORDERING);
    assert_eq!(learnt.lost, [CONTENT]);
}

#[test]
fn feedback_on_written_off_packets_is_ignored() {
    let mut h = History::new(false);
    (0..9).for_each(|i| send(&mut h, i, i));
    h.on_feedback(Stream::Media, remote(100), &[got(0, 1)])
        .unwrap();
    h.settle(Time::from_millis(50), remote(100), REORDERING);
    assert_eq!(h.write_off(Time::from_secs(1)).fates.len(), 8);
    h.on_feedback(Stream::Media, remote(1_100), &[got(3, 1)])
        .unwrap();
    let learnt = h.settle(Time::from_secs(1), remote(1_100), REORDERING);
    assert_eq!(learnt, Learnt::default());
    assert_eq!(h.in_flight(), Bytes::ZERO);
}

#[test]
fn an_arrival_without_a_time_yields_no_rtt() {
    let mut h = History::new(false);
    send(&mut h, 0, 7);
    h.on_feedback(Stream::Media, remote(9_000), &[got(7, 8_000)])
        .unwrap();
    let learnt = h.settle(Time::from_millis(60), remote(9_000), REORDERING);
    assert_eq!((learnt.fates.len(), learnt.rtt), (1, None));
}

#[test]
fn impossible_reports_are_rejected_as_a_whole() {
    let mut h = History::new(false);
    send(&mut h, 0, 7);
    let refuse = |h: &mut History, at, line| h.on_feedback(Stream::Media, at, &[line]);
    assert_eq!(
        refuse(&mut h, remote(1), got(8, 0)),
        Err(FeedbackFault::NeverSent)
    );
    assert_eq!(
        refuse(&mut h, remote(1), got(7, 5)),
        Err(FeedbackFault::TimeTravel)
    );
    refuse(&mut h, remote(50), got(7, 5)).unwrap();
    assert_eq!(
        refuse(&mut h, remote(49), got(7, 5)),
        Err(FeedbackFault::Stale)
    );
    assert_eq!(
        h.on_feedback(Stream::Repair, remote(60), &[got(7, 1)]),
        Err(FeedbackFault::NeverSent)
    );
}

#[test]
fn memory_is_bounded_without_feedback() {
    let mut h = History::new(true);
    (0..70_000).for_each(|i| send(&mut h, i, i));
    assert_eq!(h.packets.len(), MAX_PACKETS);
    assert_eq!(h.media.paths.len(), MAX_PACKETS);
    assert_eq!(h.in_flight(), Bytes(1_200 * MAX_PACKETS as u64));
    let mut rows = vec![];
    h.finish_log(&mut rows);
    assert_eq!(rows.len(), 70_000);
}
