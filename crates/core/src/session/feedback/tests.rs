use super::*;
use crate::control::Outcome;
use crate::random::Seed;
use crate::units::{Bytes, Time};
use crate::wire::ccfb::{CcfbBuilder, Received};
use crate::wire::ntp::Ntp;
use crate::wire::rtcp::{self, Rtcp};

const SSRC: u32 = 1;

/// Round-trip time in ms, and time in ms from the arrival of the last packet to that of the next
/// one, which has arrived `after` ms after the timestamp of its report.
fn read(after: i64) -> (Option<u128>, i64) {
    let mut history = History::new(false);
    let mut reader = FeedbackReader::default();
    let mut arrivals = Vec::new();
    let mut rtt = None;
    for (seq, after) in [(0, 0), (1, after)] {
        let sent = Time::from_millis(20_000 + seq * 100);
        history.on_sent(sent, Stream::Media, seq, Bytes(1_200), Ecn::NotEct, None);
        let report = sent + Duration::from_millis(20);
        let at = Time::from_nanos(report.as_nanos().saturating_add_signed(after * 1_000_000));
        let mut out = Vec::new();
        let mut builder = CcfbBuilder::new(7, report, &mut out);
        let ecn = Ecn::NotEct;
        builder
            .block(SSRC, seq as u16, [Some(Received { ecn, at })])
            .unwrap();
        builder.finish(Ntp(0));
        let Some(Ok(Rtcp::Ccfb(ccfb))) = rtcp::packets(&out).next() else {
            panic!("no report");
        };
        let mut cx = Context {
            now: report + Duration::from_millis(20),
            rng: &mut Seed(1).stream("feedback"),
            trace: &mut (),
        };
        let streams = Streams::with_ssrcs(SSRC, 2);
        let feedback = reader
            .read(&mut cx, &ccfb, streams, &mut history, Duration::ZERO)
            .unwrap();
        rtt = feedback.rtt.map(|rtt| rtt.as_millis());
        arrivals.extend(feedback.outcomes.iter().map(|packet| match packet.outcome {
            Outcome::Received { at, .. } => (at.0 / 1_000_000).cast_signed(),
            Outcome::Lost => panic!("no arrival"),
        }));
    }
    (rtt, arrivals[1] - arrivals[0])
}

/// An arrival after the timestamp has the time of the report, and not one of 8 s ago, from which the
/// shortest delay of the path would follow.
//= rfc8888-3.1-unavailable (test)
//= rfc8888-3.1-over-range (test)
#[test]
fn an_arrival_after_the_timestamp_is_recent() {
    let near = |value: i64, wanted: i64| (value - wanted).abs() <= 2;
    let (rtt, gap) = read(-5);
    assert!(near(gap, 95) && rtt == Some(35), "{rtt:?} {gap}");
    let (rtt, gap) = read(1);
    assert!(near(gap, 100) && rtt.is_none(), "{rtt:?} {gap}");
    // Before its departure.
    let (rtt, gap) = read(-10_000);
    assert!(near(gap, 100) && rtt.is_none(), "{rtt:?} {gap}");
}
