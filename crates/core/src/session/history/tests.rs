use super::*;

const CONTENT: Content = Content {
    frame: 0,
    fragment: 0,
    media_seq: 0,
};
/// Arrival of a report about packets sent long ago.
const LATER: Time = Time::FAR;
const REORDERING: Duration = Duration::from_millis(20);

fn send(h: &mut History, ms: u64, seq: u64) {
    h.on_sent(
        Time::from_millis(ms),
        Stream::Media,
        seq,
        Bytes(1_200),
        Ecn::NotEct,
        Some(CONTENT),
    );
}

fn got(seq: u16, ago_ms: u64) -> Line {
    Line {
        seq,
        received: Some((Some(Duration::from_millis(ago_ms)), Ecn::NotEct)),
    }
}

fn remote(ms: u64) -> RemoteTime {
    RemoteTime(ms * 1_000_000)
}

//= rfc5348-5.1-retransmission (test)
#[test]
fn a_retransmission_has_its_own_sequence_number() {
    let mut h = History::new(false);
    let mut send = |stream, wire_seq| {
        let (now, size) = (Time::ZERO, Bytes(1_200));
        let sent = h.on_sent(now, stream, wire_seq, size, Ecn::NotEct, Some(CONTENT));
        (sent.seq, sent.kind)
    };
    assert_eq!(send(Stream::Media, 900), (0, Kind::Media));
    assert_eq!(send(Stream::Repair, 20), (1, Kind::Repair));
    assert_eq!(send(Stream::Media, 901), (2, Kind::Media));
}

//= rfc5348-5.1-three-later (test)
#[test]
fn three_later_arrivals_declare_a_loss_and_one_does_not() {
    let mut h = History::new(false);
    (0..5).for_each(|i| send(&mut h, i, 65_533 + i));
    let lines = [got(65_534, 5), got(65_535, 4)];
    h.on_feedback(LATER, Stream::Media, remote(100), &lines);
    let feedback = h.settle(Time::from_millis(60), remote(100), REORDERING);
    assert_eq!(feedback.outcomes.len(), 2);
    assert!(feedback.lost.is_empty());
    assert_eq!(feedback.rtt, Some(Duration::from_millis(60 - 2 - 4)));

    h.on_feedback(LATER, Stream::Media, remote(110), &[got(0, 1)]);
    let feedback = h.settle(Time::from_millis(70), remote(110), REORDERING);
    let outcomes: Vec<_> = feedback
        .outcomes
        .iter()
        .map(|f| (f.seq, f.outcome))
        .collect();
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
    h.on_feedback(LATER, Stream::Media, remote(100), &lines);
    h.settle(Time::from_millis(60), remote(100), REORDERING);
    assert!(h.is_reordered());
    let lines = [got(3, 4), got(4, 3), got(5, 2), got(6, 1)];
    h.on_feedback(LATER, Stream::Media, remote(110), &lines);
    let at = Time::from_millis(70);
    assert!(h.settle(at, remote(110), REORDERING).lost.is_empty());
    send(&mut h, 30, 9);
    h.on_feedback(LATER, Stream::Media, remote(140), &[got(9, 1)]);
    let feedback = h.settle(Time::from_millis(90), remote(140), REORDERING);
    assert_eq!(feedback.lost.len(), 3);
}

#[test]
fn one_much_later_arrival_declares_a_loss() {
    let mut h = History::new(false);
    send(&mut h, 0, 7);
    send(&mut h, 25, 8);
    h.on_feedback(LATER, Stream::Media, remote(100), &[got(8, 1)]);
    let feedback = h.settle(Time::from_millis(90), remote(100), REORDERING);
    assert_eq!(feedback.lost, [CONTENT]);
}

#[test]
fn a_written_off_packet_that_arrives_is_a_spurious_loss() {
    let mut h = History::new(false);
    (0..9).for_each(|i| send(&mut h, i, i));
    h.on_feedback(LATER, Stream::Media, remote(100), &[got(0, 1)]);
    h.settle(Time::from_millis(50), remote(100), REORDERING);
    assert_eq!(h.write_off(Time::from_secs(1)).outcomes.len(), 8);
    h.on_feedback(LATER, Stream::Media, remote(1_100), &[got(3, 1)]);
    let feedback = h.settle(Time::from_secs(1), remote(1_100), REORDERING);
    let arrived: Vec<u64> = feedback.spurious.iter().map(|f| f.seq).collect();
    assert_eq!((feedback.outcomes.len(), arrived), (0, vec![3]));
    assert_eq!(h.in_flight(), Bytes::ZERO);
    h.on_feedback(LATER, Stream::Media, remote(1_200), &[got(3, 101)]);
    let again = h.settle(Time::from_secs(2), remote(1_200), REORDERING);
    assert_eq!(again, FeedbackResult::default());
}

//= rfc5348-5.1-late-arrival (test)
#[test]
fn a_spurious_loss_is_taken_back_and_extends_the_window() {
    let mut h = History::new(false);
    (0..10).for_each(|i| send(&mut h, i * 10, i));
    h.on_feedback(LATER, Stream::Media, remote(200), &[got(0, 60), got(4, 1)]);
    let feedback = h.settle(Time::from_millis(150), remote(200), REORDERING);
    assert_eq!(feedback.lost.len(), 2);
    assert!(!h.has_arrived(1));
    // Packet 1 arrives 30 ms behind packet 4, so 3 and 5 may be as late; and 2 is lost.
    h.on_feedback(LATER, Stream::Media, remote(210), &[got(1, 1), got(7, 0)]);
    let feedback = h.settle(Time::from_millis(160), remote(210), REORDERING);
    let arrived: Vec<u64> = feedback.spurious.iter().map(|f| f.seq).collect();
    assert_eq!((arrived, feedback.lost.len()), (vec![1], 1));
    assert!(h.has_arrived(1));
    h.on_feedback(LATER, Stream::Media, remote(220), &[got(8, 1)]);
    let feedback = h.settle(Time::from_millis(170), remote(220), REORDERING);
    assert!(feedback.lost.is_empty(), "{feedback:?}");
}

#[test]
fn an_arrival_without_a_time_yields_no_rtt() {
    let mut h = History::new(false);
    send(&mut h, 0, 7);
    h.on_feedback(LATER, Stream::Media, remote(9_000), &[got(7, 8_000)]);
    let feedback = h.settle(Time::from_millis(60), remote(9_000), REORDERING);
    assert_eq!((feedback.outcomes.len(), feedback.rtt), (1, None));
}

#[test]
fn an_arrival_at_an_unknown_time_is_one_at_the_report() {
    let mut h = History::new(false);
    send(&mut h, 0, 7);
    let line = Line {
        seq: 7,
        received: Some((None, Ecn::NotEct)),
    };
    h.on_feedback(LATER, Stream::Media, remote(9_000), &[line]);
    let feedback = h.settle(Time::from_millis(60), remote(9_000), REORDERING);
    let (at, ecn) = (remote(9_000), Ecn::NotEct);
    assert_eq!(feedback.outcomes[0].outcome, Outcome::Received { at, ecn });
    assert_eq!(feedback.rtt, None);
}

#[test]
fn reports_prove_the_arrival_of_a_known_packet() {
    let mut h = History::new(false);
    send(&mut h, 0, 7);
    let missing = Line {
        seq: 7,
        received: None,
    };
    let check = |stream, lines: &[Line]| h.check(stream, lines);
    assert_eq!(check(Stream::Media, &[got(7, 5)]), Ok(true));
    assert_eq!(check(Stream::Media, &[]), Ok(false));
    assert_eq!(check(Stream::Media, &[missing, got(6, 5)]), Ok(false));
    // The receiver may have got a forged packet.
    assert_eq!(check(Stream::Media, &[got(7, 5), got(263, 0)]), Ok(true));
    assert_eq!(check(Stream::Media, &[got(8, 0)]), Ok(false));
    let refused = Err(FeedbackFault::NeverSent);
    assert_eq!(check(Stream::Media, &[got(7, 5), got(264, 0)]), refused);
    assert_eq!(check(Stream::Repair, &[got(7, 1)]), refused);
}

#[test]
fn ce_mark_counts_only_on_ect_packets() {
    for (sent, seen) in [(Ecn::NotEct, Ecn::NotEct), (Ecn::Ect0, Ecn::Ce)] {
        let mut h = History::new(false);
        let size = Bytes(1_200);
        h.on_sent(Time::ZERO, Stream::Media, 7, size, sent, Some(CONTENT));
        let line = Line {
            seq: 7,
            received: Some((Some(Duration::ZERO), Ecn::Ce)),
        };
        let mangled = h.on_feedback(LATER, Stream::Media, remote(50), &[line]);
        assert_eq!(mangled, sent == Ecn::NotEct);
        let feedback = h.settle(Time::from_millis(60), remote(50), REORDERING);
        let at = remote(50);
        assert_eq!(
            feedback.outcomes[0].outcome,
            Outcome::Received { at, ecn: seen }
        );
    }
}

#[test]
fn received_packets_and_packets_in_flight_are_not_missing() {
    let mut h = History::new(false);
    (0..4).for_each(|i| send(&mut h, i, i));
    // Without feedback per packet, each request may be true.
    assert!((0..4).all(|seq| h.missing_content(seq).is_some()));
    h.on_feedback(LATER, Stream::Media, remote(100), &[got(0, 3), got(2, 1)]);
    let missing = [0, 1, 2, 3].map(|seq| h.missing_content(seq).is_some());
    assert_eq!(missing, [false, true, false, false]);
}

/// A receiver report has a number of losses: any of its packets but the newest may be one of them,
/// and later packets may be lost as well.
#[test]
fn packets_of_a_receiver_report_may_be_missing() {
    let mut h = History::new(false);
    (0..6).for_each(|i| send(&mut h, i, i));
    let arrival = |sent: Time| RemoteTime(sent.as_nanos());
    let feedback = h.settle_evenly(Time::from_millis(50), 3, 1, arrival);
    assert_eq!(feedback.outcomes.len(), 4);
    let missing = [0, 1, 2, 3, 4, 5].map(|seq| h.missing_content(seq).is_some());
    assert_eq!(missing, [true, true, true, false, true, true]);
    // Feedback per packet is certain.
    h.on_feedback(LATER, Stream::Media, remote(60), &[got(1, 1), got(2, 1)]);
    assert!(h.has_arrived(1) && h.has_arrived(2) && !h.has_arrived(0));
}

#[test]
fn memory_is_bounded_without_feedback() {
    let mut h = History::new(true);
    (0..70_000).for_each(|i| send(&mut h, i, i));
    assert_eq!(h.packets.len(), MAX_PACKETS);
    assert_eq!(h.media.len(), MAX_PACKETS);
    assert_eq!(h.in_flight(), Bytes(1_200 * MAX_PACKETS as u64));
    let mut rows = vec![];
    h.finish_log(&mut rows);
    assert_eq!(rows.len(), 70_000);
}

#[test]
fn reports_are_compared_with_the_arrivals_that_they_repeat() {
    let mut h = History::new(false);
    (0..6).for_each(|i| send(&mut h, i * 10, i));
    let missing = |seq| Line {
        seq,
        received: None,
    };
    let first = [got(0, 60), got(1, 50), got(2, 40), missing(3), got(4, 20)];
    h.on_feedback(LATER, Stream::Media, remote(100), &first);
    h.settle(Time::from_millis(120), remote(100), REORDERING);
    let compare = |at, lines: &[Line]| {
        let mut overlap = Overlap::default();
        h.compare(Stream::Media, remote(at), lines, &mut overlap);
        overlap
    };
    // The next report of the receiver.
    let honest = compare(125, &[got(2, 65), missing(3), got(4, 45), got(5, 15)]);
    assert_eq!((honest.news, honest.agreeing), (1, 2));
    assert!(honest.is_confirmed() && !honest.is_contradiction());
    // The same, half a second ahead.
    let ahead = compare(625, &[got(2, 65), missing(3), got(4, 45), got(5, 15)]);
    assert!(ahead.is_shifted() && ahead.is_contradiction());
    assert_eq!(ahead.gap, -500_000_000);
    // Denies an arrival, or states one that the first report should have.
    let denies = compare(125, &[missing(2), got(4, 45), got(5, 15)]);
    assert!(denies.is_confirmed() && denies.is_contradiction());
    let late = compare(125, &[got(3, 55), got(4, 45)]);
    assert!(late.is_confirmed() && late.is_contradiction());
    // A packet that was overtaken.
    let reordered = compare(125, &[got(3, 15), got(4, 45)]);
    assert!(reordered.is_confirmed() && !reordered.is_contradiction());
}
