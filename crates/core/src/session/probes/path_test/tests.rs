use super::*;

/// Sends a train at `now` and reports it: packet number `i` of `arrivals` arrives at that
/// millisecond after it left.
fn train(test: &mut PathTest, now: Time, arrival: impl Fn(usize, bool) -> Option<u64>) {
    assert_eq!(test.wants(now), Some(true));
    let mut place = 0;
    while let Some(is_low) = test.wants(now) {
        assert!(test.on_sent(now, 100 + place as u64));
        if let Some(ms) = arrival(place, is_low) {
            test.on_arrival(100 + place as u64, RemoteTime(ms * 1_000_000));
        }
        place += 1;
    }
    assert!(!test.on_sent(now, 999), "the train has left");
}

const RTT: Duration = Duration::from_millis(100);

/// The results of trains with these arrivals, at the times at which the test sends them.
fn results(trains: usize, arrival: impl Fn(usize, bool) -> Option<u64>) -> Vec<LowerEffort> {
    let mut test = PathTest::default();
    test.begin(Time::from_secs(1));
    let mut news = Vec::new();
    for _ in 0..trains {
        let now = test.next_timeout(RTT);
        train(&mut test, now, &arrival);
        let end = test.next_timeout(RTT);
        assert!(end > now);
        news.extend(test.on_timeout(end, RTT));
        assert!(test.next_timeout(RTT) > end, "a driver would spin");
    }
    news
}

#[test]
fn overtaking_shows_that_a_queue_honours_lower_effort() {
    // The first low packet is in transmission when the others arrive at the queue.
    let queue =
        |place: usize, is_low| Some(if is_low && place > 0 { 20 } else { 3 } + place as u64);
    assert_eq!(results(1, queue), [], "one train may be an accident");
    assert_eq!(results(9, queue), [LowerEffort::Honoured]);
    // A queue that serves others drops all low packets but one.
    let busy = |place: usize, is_low: bool| (!is_low || place == 0).then_some(3 + place as u64);
    assert_eq!(results(2, busy), [LowerEffort::Honoured]);
}

#[test]
fn order_is_a_result_if_packets_wait_for_each_other() {
    assert_eq!(
        results(2, |place, _| Some(place as u64)),
        [LowerEffort::Ignored]
    );
    // All arrive at once: there is no queue, however often the test is repeated.
    assert_eq!(results(20, |_, _| Some(7)), []);
    // The end of the train overflows a short queue.
    let short = |place: usize, _| (place < 5).then_some(place as u64);
    assert_eq!(results(2, short), [LowerEffort::Ignored]);
}

#[test]
fn a_fast_path_needs_longer_trains() {
    let mut test = PathTest::default();
    test.begin(Time::ZERO);
    let mut lengths = Vec::new();
    for _ in 0..7 {
        let now = test.next_timeout(RTT);
        // 20 packets per millisecond.
        train(&mut test, now, |place, _| Some(place as u64 / 20));
        lengths.push(test.train.as_ref().unwrap().arrivals.len());
        let end = test.next_timeout(RTT);
        test.on_timeout(end, RTT);
    }
    assert_eq!(lengths, [12, 20, 40, 80, 160, 160, 160]);
    assert_eq!(test.treatment(), LowerEffort::Ignored);
}

#[test]
fn missing_reports_are_results() {
    assert_eq!(results(2, |_, _| None), [LowerEffort::Unanswered]);
    let dropped = |place: usize, is_low: bool| (!is_low).then_some(place as u64);
    assert_eq!(results(2, dropped), [LowerEffort::Dropped]);
}

#[test]
fn a_known_path_is_tested_again_later() {
    let mut test = PathTest::default();
    test.begin(Time::ZERO);
    for _ in 0..2 {
        let now = test.next_timeout(RTT);
        train(&mut test, now, |place, _| Some(place as u64));
        // All are reported, so the train ends before its time.
        test.on_timeout(now + RTT, RTT);
    }
    let again = test.next_timeout(RTT);
    assert_eq!(again, Time::ZERO + RTT + PAUSE + RTT + PERIOD);
    // The route has changed.
    train(&mut test, again, |_, _| None);
    let end = test.next_timeout(RTT);
    assert_eq!(test.on_timeout(end, RTT), None);
    let next = test.next_timeout(RTT);
    assert_eq!(next, end + PAUSE);
    train(&mut test, next, |_, _| None);
    let end = test.next_timeout(RTT);
    assert_eq!(test.on_timeout(end, RTT), Some(LowerEffort::Unanswered));
}

#[test]
fn an_interrupted_train_has_no_result() {
    let mut test = PathTest::default();
    test.begin(Time::ZERO);
    train(&mut test, Time::ZERO, |_, _| None);
    test.interrupt(Time::from_secs(1));
    assert_eq!(test.on_timeout(Time::from_secs(9), RTT), None);
    assert_eq!(test.next_timeout(RTT), Time::from_secs(1) + PAUSE);
    // Reports of the interrupted train are those of no train.
    test.on_arrival(100, RemoteTime(5));
    assert_eq!(test.treatment(), LowerEffort::Untested);
}

#[test]
fn another_dscp_on_arrival_outweighs_the_order() {
    let mut test = PathTest::default();
    test.begin(Time::ZERO);
    test.on_dscp(0);
    let mut news = Vec::new();
    for _ in 0..2 {
        let now = test.next_timeout(RTT);
        // The queue is before the router that changes the DSCP.
        train(&mut test, now, |place, is_low| {
            Some(if is_low { 20 } else { 3 } + place as u64)
        });
        news.extend(test.on_timeout(now + RTT, RTT));
    }
    assert_eq!((news, test.dscp()), (vec![LowerEffort::Remarked], Some(0)));
    test.on_dscp(LOWER_EFFORT);
    for _ in 0..2 {
        let now = test.next_timeout(RTT);
        train(&mut test, now, |place, is_low| {
            Some(if is_low { 20 } else { 3 } + place as u64)
        });
        test.on_timeout(now + RTT, RTT);
    }
    assert_eq!(test.treatment(), LowerEffort::Honoured);
}
