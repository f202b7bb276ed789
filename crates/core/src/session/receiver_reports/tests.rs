use super::*;
use crate::control::{Ecn, Outcome};
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
        history.on_sent(
            now,
            Stream::Media,
            first + i,
            Bytes(1_000),
            Ecn::NotEct,
            Some(CONTENT),
        );
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
    let outcomes = reported.feedback.outcomes.iter();
    let lost = outcomes.filter(|f| f.outcome == Outcome::Lost);
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
    assert_eq!(first.feedback.outcomes.len(), 500);
    let positions = lost(&first);
    assert_eq!(positions.len(), 50);
    assert!(
        positions
            .windows(2)
            .all(|w| (9..=10).contains(&(w[1] - w[0])))
    );
    assert!(positions[49] < 499);
    assert!((first.loss - 0.1).abs() < 1e-9);
    // 500 kB were sent in 4.99 s, and 450 kB arrived.
    let bounds = reports.bounds();
    let near = |rate: Rate, kbps: u64| rate > Rate::kbps(kbps - 5) && rate < Rate::kbps(kbps + 5);
    // 801.6 kb/s times 1 - √0.1.
    assert!(near(bounds.least, 548), "{bounds:?}");
    assert!(near(bounds.most, 721), "{bounds:?}");

    send(&mut history, 5..10, 65_500);
    let at = Time::from_secs(10);
    let second = block(65_536 + 963, 55, 0);
    let second = reports.on_block(at, 7, &second, (Time::ZERO, RTT * 2), &mut history);
    assert_eq!(lost(&second).len(), 5);
    assert_eq!(reports.interval(), Duration::from_secs(5));
    // The delay grows with the round-trip time, so that the receive rate is below the send rate.
    let delays = second
        .feedback
        .outcomes
        .iter()
        .filter_map(|f| match f.outcome {
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
        (
            read.feedback.outcomes.len(),
            lost(&read).len(),
            reports.bounds(),
        )
    };
    let (outcomes, _, bounds) = read(150, 0, 600);
    assert_eq!(outcomes, 51);
    assert_eq!(read(150, 0, 610), (0, 0, bounds));
    // Duplicates lower the cumulative number of losses (RFC 3550 section 6.4.1).
    assert_eq!(read(160, -5, 700).1, 0);
    // All lost would contradict the arrival of the highest packet.
    assert_eq!(read(170, 1_000_000, 800).1, 9);
    assert_eq!(history.check_highest(200), Err(FeedbackFault::NeverSent));
    assert_eq!(history.check_highest(199), Ok(Some(Time::from_millis(990))));
}

/// A forger that repeats reports cannot raise the rate faster than once per [`SPAN`].
#[test]
fn the_rate_is_measured_over_several_frames() {
    let (mut history, mut reports) = (History::new(false), ReceiverReports::new());
    send(&mut history, 0..2, 0);
    let mut limits = Vec::new();
    for highest in 1..200 {
        let block = block(highest, 0, 0);
        let now = Time::from_millis(u64::from(highest) * 10);
        reports.on_block(now, 7, &block, (Time::ZERO, RTT), &mut history);
        limits.push(reports.bounds().most);
    }
    limits.dedup();
    // 800 kb/s arrived.
    assert!(limits.iter().all(|l| *l <= Rate::kbps(1_700)), "{limits:?}");
}

/// A player reports every 5 s and pauses for 10 minutes, 3 s after a report. The receiver may report
/// the last packets before the pause in it, after it, or together with the next ones.
#[test]
fn a_pause_is_no_part_of_an_interval() {
    for reported in [Some(10), Some(608), None] {
        let (mut history, mut reports) = (History::new(false), ReceiverReports::new());
        let report = |reports: &mut ReceiverReports, history: &mut History, second, highest| {
            let (now, block) = (Time::from_secs(second), block(highest, 0, 0));
            reports.on_block(now, 7, &block, (Time::ZERO, RTT), history);
        };
        send(&mut history, 0..5, 0);
        report(&mut reports, &mut history, 5, 499);
        send(&mut history, 5..8, 0);
        let resume = |reports: &mut ReceiverReports| {
            let last = Time::from_millis(7_990);
            reports.on_pause(Time::from_secs(608), last, (Time::ZERO, RTT));
        };
        if reported == Some(10) {
            report(&mut reports, &mut history, 10, 799);
        }
        resume(&mut reports);
        if reported == Some(608) {
            report(&mut reports, &mut history, 608, 799);
        }
        // The numbers continue although the times do not.
        for i in 0..500 {
            let now = Time::from_millis(608_000 + i * 10);
            let (size, content) = (Bytes(1_000), Some(CONTENT));
            history.on_sent(now, Stream::Media, 800 + i, size, Ecn::NotEct, content);
        }
        report(&mut reports, &mut history, 613, 1_299);
        // 800 kb/s arrived, and the bounds are twice as high.
        let most = reports.bounds().most;
        let near = most > Rate::kbps(1_580) && most < Rate::kbps(1_620);
        assert!(near, "{reported:?}: {most:?}");
        let interval = reports.interval();
        assert!(
            interval <= Duration::from_secs(8),
            "{reported:?}: {interval:?}"
        );
    }
}

/// Reports every second about a stream that is sent at the lower bound: the rates in kb/s, and the
/// rate that arrives through a path of `capacity`.
fn grow(reports: &mut ReceiverReports, history: &mut History, capacity: &[u64]) -> Vec<u64> {
    let (mut seq, mut lost, mut rates) = (0_u32, 0_i32, Vec::new());
    for (second, capacity) in (0_u64..).zip(capacity) {
        let rate = reports.bounds().least.as_bps() / 1_000;
        // Packets of 1 kbit.
        for i in 0..rate {
            let at = Time::from_nanos(second * 1_000_000_000 + i * 1_000_000_000 / rate);
            history.on_sent(
                at,
                Stream::Media,
                u64::from(seq),
                Bytes(125),
                Ecn::NotEct,
                Some(CONTENT),
            );
            seq += 1;
        }
        lost += rate.saturating_sub(*capacity) as i32;
        let now = Time::from_secs(second + 1);
        reports.on_block(now, 7, &block(seq - 1, lost, 0), (Time::ZERO, RTT), history);
        rates.push(rate);
    }
    rates
}

#[test]
fn the_rate_doubles_until_a_loss_and_returns_to_what_arrived() {
    let (mut history, mut reports) = (History::new(false), ReceiverReports::new());
    let rates = grow(&mut reports, &mut history, &[3_000; 8]);
    assert!(rates.starts_with(&[1_000]), "{rates:?}");
    assert!((1_990..2_020).contains(&rates[1]) && (3_990..4_040).contains(&rates[2]));
    // A quarter is lost: half of the rate, which arrives; then half of the way to 3 Mb/s each time.
    assert!((1_980..2_040).contains(&rates[3]), "{rates:?}");
    assert!(
        rates[3..].is_sorted() && (2_400..2_600).contains(&rates[4]),
        "{rates:?}"
    );
    assert!(
        rates
            .last()
            .is_some_and(|last| (2_900..3_010).contains(last)),
        "{rates:?}"
    );
}

#[test]
fn the_rate_is_cut_to_a_tenth() {
    let (mut history, mut reports) = (History::new(false), ReceiverReports::new());
    grow(&mut reports, &mut history, &[8_000; 4]);
    reports.cut();
    let bounds = reports.bounds();
    assert_eq!(bounds.least, bounds.most);
    assert!(
        (790..820).contains(&(bounds.most.as_bps() / 1_000)),
        "{bounds:?}"
    );
}
