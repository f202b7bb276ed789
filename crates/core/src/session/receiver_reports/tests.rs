use super::*;
use crate::control::{Ecn, Kind, Outcome};
use crate::session::history::{Content, Stream};
use crate::trace::FeedbackFault;
use crate::wire::ntp::NtpShort;

const CONTENT: Content = Content {
    frame: 0,
    fragment: 0,
    media_seq: 0,
};
const RTT: Duration = Duration::from_millis(100);

/// 100 packets of 1,000 bytes per second from `first` on, in `seconds`.
fn send(history: &mut History, seconds: core::ops::Range<u64>, first: u64) {
    for i in seconds.start * 100..seconds.end * 100 {
        let now = Time::from_millis(i * 10);
        let kinds = (Kind::Media, Ecn::NotEct);
        history.on_sent(now, Stream::Media, first + i, Bytes(1_000), kinds, CONTENT);
    }
}

fn block(highest: u32, cumulative_lost: i32, fraction_lost: u8) -> ReportBlock {
    ReportBlock {
        ssrc: 1,
        fraction_lost,
        cumulative_lost,
        highest_sequence: highest,
        jitter: 0,
        last_sr: NtpShort::default(),
        delay_since_last_sr: NtpShort::default(),
    }
}

fn lost(reported: &ReportedInterval) -> Vec<u64> {
    let fates = reported.learnt.fates.iter();
    let lost = fates.filter(|f| f.outcome == Outcome::Lost);
    lost.map(|f| f.seq).collect()
}

#[test]
fn losses_are_spread_over_the_interval_of_a_report() {
    let (mut history, mut reports) = (History::new(false), ReceiverReports::new());
    // The sequence number wraps within the first second.
    send(&mut history, 0..5, 65_500);
    let at = Time::from_secs(5);
    let first = block(65_536 + 463, 50, 26);
    let first = reports.on_block(at, 7, &first, (Time::ZERO, RTT), &mut history);
    // 26 / 256 of 500 packets; the newest packet has arrived.
    assert_eq!(first.learnt.fates.len(), 500);
    let positions = lost(&first);
    assert_eq!(positions.len(), 50);
    assert!(positions.windows(2).all(|w| (9..=10).contains(&(w[1] - w[0]))));
    assert!(positions[49] < 499);
    assert!((first.loss - 0.1).abs() < 1e-9);
    // 450 kB in 4.99 s; twice that rate.
    let limit = reports.limit();
    assert!(limit > Rate::kbps(1_435) && limit < Rate::kbps(1_450), "{limit}");

    send(&mut history, 5..10, 65_500);
    let at = Time::from_secs(10);
    let second = block(65_536 + 963, 55, 0);
    let second = reports.on_block(at, 7, &second, (Time::ZERO, RTT * 2), &mut history);
    assert_eq!(lost(&second).len(), 5);
    assert_eq!(reports.interval(), Duration::from_secs(5));
    // The delay grows with the round-trip time, so that the receive rate is below the send rate.
    let delays = second.learnt.fates.iter().filter_map(|f| match f.outcome {
        Outcome::Received { at, .. } => Some(at.0 - f.sent.as_nanos()),
        Outcome::Lost => None,
    });
    let delays: Vec<u64> = delays.collect();
    assert!(delays.is_sorted());
    assert_eq!(delays.last(), Some(&200_000_000));
    assert!(delays[0] < 101_000_000, "{}", delays[0]);
}

#[test]
fn repeated_and_forged_reports_have_no_outcomes() {
    let (mut history, mut reports) = (History::new(false), ReceiverReports::new());
    send(&mut history, 0..1, 100);
    let mut read = |highest, cumulative, now| {
        let block = block(highest, cumulative, 0);
        let timing = (Time::ZERO, RTT);
        let read = reports.on_block(Time::from_millis(now), 7, &block, timing, &mut history);
        (read.learnt.fates.len(), lost(&read).len(), reports.limit())
    };
    let (fates, _, limit) = read(150, 0, 600);
    assert_eq!(fates, 51);
    assert_eq!(read(150, 0, 610), (0, 0, limit));
    // Duplicates lower the cumulative number of losses (RFC 3550 section 6.4.1).
    assert_eq!(read(160, -5, 700).1, 0);
    // All lost would contradict the arrival of the highest packet.
    assert_eq!(read(170, 1_000_000, 800).1, 9);
    assert_eq!(history.check_highest(200), Err(FeedbackFault::NeverSent));
    assert_eq!(history.check_highest(199), Ok(Some(Time::from_millis(990))));
}

/// A forger that repeats reports cannot raise the limit faster than once per [`SPAN`].
#[test]
fn the_limit_is_measured_over_several_frames() {
    let (mut history, mut reports) = (History::new(false), ReceiverReports::new());
    send(&mut history, 0..2, 0);
    let mut limits = Vec::new();
    for highest in 1..200 {
        let block = block(highest, 0, 0);
        let now = Time::from_millis(u64::from(highest) * 10);
        reports.on_block(now, 7, &block, (Time::ZERO, RTT), &mut history);
        limits.push(reports.limit());
    }
    limits.dedup();
    assert!(limits.iter().all(|l| *l <= Rate::kbps(1_700)), "{limits:?}");
}
