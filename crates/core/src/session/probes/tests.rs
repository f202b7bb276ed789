use super::*;
use crate::control::Ecn;
use crate::random::Seed;
use crate::trace::Event;
use crate::wire::ccfb::{CcfbBuilder, Received};
use crate::wire::ntp::Ntp;
use crate::wire::rtcp::{self, Rtcp};

const SSRC: u32 = 9;
const SIZE: Bytes = Bytes(1_250);
const RATE: Rate = Rate::kbps(1_000);

fn stream(first: u16) -> ProbeStream {
    ProbeStream::new(SSRC, first, true)
}

/// A report at `now` that these probes have arrived, from `begin` on.
fn report(
    probes: &mut ProbeStream,
    now: Time,
    blocks: &[(u32, u16, &[bool])],
) -> (Vec<u64>, Vec<Event>) {
    let (mut out, mut events) = (Vec::new(), Vec::new());
    let mut builder = CcfbBuilder::new(7, now, &mut out);
    for (ssrc, begin, arrived) in blocks {
        let line = Received {
            ecn: Ecn::NotEct,
            at: now,
        };
        let lines = arrived.iter().map(|arrived| arrived.then_some(line));
        builder.block(*ssrc, *begin, lines).unwrap();
    }
    builder.finish(Ntp(0));
    let Some(Ok(Rtcp::Ccfb(ccfb))) = rtcp::packets(&out).next() else {
        panic!("no report");
    };
    let mut cx = Context {
        now,
        rng: &mut Seed(1).stream("probes"),
        trace: &mut events,
    };
    let arrived = probes.read(&mut cx, &ccfb);
    let events = events.into_iter().map(|(_, event)| event).collect();
    (arrived.iter().map(|packet| packet.seq).collect(), events)
}

/// A probe that arrives after the timestamp of its report has arrived now, and not 8 s ago.
#[test]
fn a_probe_after_the_timestamp_is_recent() {
    let mut probes = stream(5);
    let mut arrivals = Vec::new();
    for (begin, late) in [(5, 0), (6, 1)] {
        let now = Time::from_secs(20) + Duration::from_millis(100) * u32::from(begin);
        probes.on_sent(now, SIZE, RATE);
        let (mut out, mut events) = (Vec::new(), Vec::new());
        let mut builder = CcfbBuilder::new(7, now, &mut out);
        let line = Received {
            ecn: Ecn::NotEct,
            at: now + Duration::from_millis(late),
        };
        builder.block(SSRC, begin, [Some(line)]).unwrap();
        builder.finish(Ntp(0));
        let Some(Ok(Rtcp::Ccfb(ccfb))) = rtcp::packets(&out).next() else {
            panic!("no report");
        };
        let mut cx = Context {
            now,
            rng: &mut Seed(1).stream("probes"),
            trace: &mut events,
        };
        for packet in probes.read(&mut cx, &ccfb) {
            let Outcome::Received { at, .. } = packet.outcome else {
                panic!("no arrival");
            };
            arrivals.push(at.0);
        }
    }
    let gap = arrivals[1].saturating_sub(arrivals[0]);
    assert!((99_000_000..101_000_000).contains(&gap), "{gap} ns");
}

fn rejected(cause: FeedbackFault) -> Vec<Event> {
    vec![Event::FeedbackRejected { cause }]
}

/// Sends all probes that are due until `end`. Returns their number.
fn send(probes: &mut ProbeStream, from: Time, end: Time, rate: Rate) -> usize {
    let (mut now, mut count) = (from, 0);
    while now < end {
        while probes.due(now, SIZE, rate).is_some() {
            probes.on_sent(now, SIZE, rate);
            count += 1;
        }
        now += Duration::from_millis(1);
        probes.on_timeout(now, Duration::from_millis(100));
    }
    count
}

#[test]
fn probes_are_paced() {
    let mut probes = stream(0);
    assert_eq!(probes.due(Time::from_secs(1), SIZE, Rate::ZERO), None);
    // One in 10 ms.
    let sent = send(&mut probes, Time::from_secs(1), Time::from_secs(2), RATE);
    assert!((100..=101).contains(&sent), "{sent}");
    // A pause earns no credit.
    let sent = send(&mut probes, Time::from_secs(9), Time::from_secs(10), RATE);
    assert!((100..=101).contains(&sent), "{sent}");
    // A target far above any path does not raise the rate beyond the limit of 100 Mb/s.
    let sent = send(
        &mut probes,
        Time::from_secs(30),
        Time::from_secs(31),
        Rate::MAX,
    );
    assert!((9_990..=10_030).contains(&sent), "{sent}");
}

#[test]
fn a_receiver_that_reports_nothing_bounds_memory_and_rate() {
    let mut probes = stream(0);
    let sent = send(&mut probes, Time::ZERO, Time::from_secs(20), Rate::MAX);
    assert!(probes.len() <= MAX_PROBES);
    assert!(sent <= 2 * MAX_PROBES, "{sent}");
    let (now, rtt) = (Time::from_secs(20), Duration::from_millis(100));
    assert!(
        probes.next_timeout(SIZE, Rate::MAX, rtt) > now,
        "a driver would spin"
    );
    let mut rows = Vec::new();
    probes.finish_log(&mut rows);
    assert_eq!(rows.len(), sent);
    assert!(rows.iter().all(|row| row.outcome == Some(Outcome::Lost)));
}

#[test]
fn arrivals_are_reported_once_and_in_order() {
    // The numbers wrap.
    let mut probes = stream(65_530);
    send(
        &mut probes,
        Time::from_secs(1),
        Time::from_millis(1_200),
        RATE,
    );
    let now = Time::from_millis(1_300);
    let (arrived, events) = report(&mut probes, now, &[(SSRC, 65_534, &[true, false, true])]);
    assert_eq!((arrived, events), (vec![65_534, 65_536], vec![]));
    // Twice in one report, in the wrong order, and again.
    let blocks: [(u32, u16, &[bool]); 2] = [(SSRC, 2, &[true]), (SSRC, 65_534, &[true; 5])];
    let (arrived, events) = report(&mut probes, now, &blocks);
    assert_eq!((arrived, events), (vec![65_535, 65_537, 65_538], vec![]));
    // Blocks about other streams are no business of this one.
    assert_eq!(
        report(&mut probes, now, &[(1, 3, &[true])]),
        (vec![], vec![])
    );
}

#[test]
fn reports_about_probes_that_were_never_sent_are_rejected() {
    let mut probes = stream(0);
    let now = Time::from_millis(1_300);
    let before = report(&mut probes, now, &[(SSRC, 0, &[true])]);
    assert_eq!(before, (vec![], rejected(FeedbackFault::NeverSent)));
    send(
        &mut probes,
        Time::from_secs(1),
        Time::from_millis(1_200),
        RATE,
    );
    let next = probes.next as u16;
    let (arrived, events) = report(&mut probes, now, &[(SSRC, next - 1, &[true, true])]);
    assert_eq!(
        (arrived, events),
        (vec![], rejected(FeedbackFault::NeverSent))
    );
    let (arrived, events) = report(&mut probes, now, &[(SSRC, next - 1, &[true])]);
    assert_eq!((arrived, events), (vec![u64::from(next) - 1], vec![]));
    // Probes that were forgotten are no fault.
    probes.on_timeout(now + KEPT, Duration::ZERO);
    let (arrived, events) = report(&mut probes, now + KEPT, &[(SSRC, 3, &[true; 4])]);
    assert_eq!((arrived, events), (vec![], vec![]));
}
