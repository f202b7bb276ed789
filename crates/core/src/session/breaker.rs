//! Media circuit breaker (RFC 8083): the last defence when rate control fails or cannot work.

use core::time::Duration;

use crate::trace::BreakerCause;
use crate::units::{Bytes, Rate, Time};

/// Watches RTCP and stops a stream that does no good or does harm.
///
/// RFC 8083 section 4.5 leaves open how a stream comes back. Here: after a trip only RTCP
/// leaves, at [`PROBE_FIRST`] and then ever more rarely up to [`PROBE_LAST`]. A receiver report
/// that answers one of these proves both directions, which is all that an RTCP timeout doubted.
/// After a trip for congestion [`COOLING`] must have passed as well, and after a media timeout as
/// long as it took to trip: there the answers never stopped. The stream then starts like a new
/// one, with nothing believed of what was known of the path.
#[derive(Clone, Copy, Debug)]
pub struct Breaker {
    /// Deterministic reporting interval of the receiver, `Tdr`.
    interval: Duration,
    started: Option<Time>,
    last_rtcp: Time,
    last_report: Option<Time>,
    highest: Option<u32>,
    open: Interval,
    /// Intervals that were judged, the youngest first; `known` of them.
    recent: [Interval; MOST_REPORTS],
    known: usize,
    /// Consecutive intervals without progress although media left in them.
    stuck: u32,
    /// `MEDIA_TIMEOUT`: how many of these trip.
    patience: u32,
    tripped: Option<(Time, BreakerCause)>,
}

/// What a receiver report says that matters here.
#[derive(Clone, Copy, Debug)]
pub struct ReportView {
    /// Extended highest sequence number received.
    pub highest: u32,
    /// Loss fraction since the last report, in 0..=1.
    pub loss: f64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
}

/// From one report to the next.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    span: Duration,
    /// Seconds times the loss fraction of each.
    lost: f64,
    sent: Bytes,
    packets: u32,
    progress: bool,
}

impl Breaker {
    /// A closed breaker; `interval` is the receiver's deterministic reporting interval.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            started: None,
            last_rtcp: Time::ZERO,
            last_report: None,
            highest: None,
            open: Interval::default(),
            recent: [Interval::default(); MOST_REPORTS],
            known: 0,
            stuck: 0,
            patience: 0,
            tripped: None,
        }
    }

    /// The receiver is known to report at another interval.
    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    /// Media left.
    pub fn on_sent(&mut self, now: Time, size: Bytes) {
        self.started.get_or_insert(now);
        self.open.sent += size;
        self.open.packets = self.open.packets.saturating_add(1);
    }

    /// Any RTCP about our streams came.
    //= rfc8083-5-reduced
    pub fn on_rtcp(&mut self, now: Time) {
        self.last_rtcp = self.last_rtcp.max(now);
    }

    /// A receiver report about the media stream came. The first one begins the first interval.
    pub fn on_report(&mut self, now: Time, report: ReportView) -> Option<BreakerCause> {
        self.on_rtcp(now);
        let progress = self.highest.replace(report.highest) != Some(report.highest);
        let last = self.last_report.replace(now);
        if self.tripped.is_some() {
            return None;
        }
        let Some(last) = last else {
            self.open = Interval::default();
            return None;
        };
        //= rfc8083-5-early
        let span = now.since(last);
        self.open.span += span;
        self.open.lost += report.loss * span.as_secs_f64();
        self.open.progress |= progress;
        if self.open.span < self.interval / 2 {
            return None;
        }
        let interval = core::mem::take(&mut self.open);
        let cause = if self.is_media_lost(&interval, report.rtt) {
            BreakerCause::MediaTimeout
        } else if self.is_congested(interval, report.rtt) {
            BreakerCause::Congestion
        } else {
            return None;
        };
        Some(self.trip(now, cause))
    }

    /// The most that may leave until the next report, headers included, lest losses that are
    /// reported already make it trip when no more are. `None` without such losses.
    pub fn ceiling(&self, rtt: Duration) -> Option<Rate> {
        let count = (reports(self.interval, rtt) - 1).min(self.known);
        let judged = self.recent.get(..count)?;
        let last = judged.first()?;
        let lost: f64 = judged.iter().map(|i| i.lost).sum();
        let span: Duration = judged.iter().map(|i| i.span).sum();
        let size = last.sent.scale(1, u64::from(last.packets).max(1));
        let mean = lost / (span + self.interval).as_secs_f64();
        let tcp = tcp_rate(mean, rtt, size).as_f64();
        (lost > 0.0).then(|| Rate::from_f64(CAREFUL * TCP_FACTOR * tcp))
    }

    /// When [`on_timeout`](Self::on_timeout) would trip.
    pub fn next_timeout(&self) -> Option<Time> {
        let started = self.started?;
        self.tripped
            .is_none()
            .then(|| self.last_rtcp.max(started) + self.interval * 3)
    }

    /// Trips when no RTCP came for three reporting intervals.
    //= rfc8083-4.1-rtcp-timeout
    pub fn on_timeout(&mut self, now: Time) -> Option<BreakerCause> {
        self.next_timeout()
            .filter(|&at| at <= now)
            .map(|_| self.trip(now, BreakerCause::RtcpTimeout))
    }

    /// The receiver said goodbye: media would go to nobody.
    pub fn on_goodbye(&mut self, now: Time) -> BreakerCause {
        self.trip(now, BreakerCause::Goodbye)
    }

    /// The trip that holds, if any.
    pub fn tripped(&self) -> Option<(Time, BreakerCause)> {
        self.tripped
    }

    /// A report proved that a packet sent after the trip arrived. Closes the breaker if it may.
    pub fn on_answer(&mut self, now: Time) -> bool {
        let may = self.rests_until().is_some_and(|end| now >= end);
        if may {
            *self = Self::new(self.interval);
            self.last_rtcp = now;
        }
        may
    }

    /// Until when no answer brings the stream back, if it is tripped.
    pub fn rests_until(&self) -> Option<Time> {
        let (at, cause) = self.tripped?;
        let rest = match cause {
            BreakerCause::Goodbye | BreakerCause::RtcpTimeout => Duration::ZERO,
            //= rfc8083-4.5-pause
            BreakerCause::MediaTimeout => self.interval * self.patience,
            BreakerCause::Congestion => COOLING,
        };
        Some(at + rest)
    }

    /// How long to wait between probes while tripped.
    pub fn probe_interval(&self, now: Time) -> Duration {
        let since = self.tripped.map_or(Duration::ZERO, |(at, _)| now.since(at));
        (since / 4).clamp(PROBE_FIRST, PROBE_LAST)
    }

    //= rfc8083-4.2-media-timeout
    fn is_media_lost(&mut self, interval: &Interval, rtt: Duration) -> bool {
        let patience = media_timeout(self.interval, rtt);
        if interval.progress || interval.packets == 0 {
            (self.stuck, self.patience) = (0, patience);
            return false;
        }
        //= rfc8083-4.2-reconsider
        self.patience = self.patience.max(patience);
        self.stuck += 1;
        self.stuck >= self.patience
    }

    //= rfc8083-4.3-congestion
    fn is_congested(&mut self, interval: Interval, rtt: Duration) -> bool {
        let slowest = self.interval.max(rtt);
        //= rfc8083-4.3-few-packets
        if slowest * interval.packets < interval.span {
            return false;
        }
        self.recent.rotate_right(1);
        self.recent[0] = interval;
        self.known = (self.known + 1).min(MOST_REPORTS);
        let count = reports(self.interval, rtt);
        let judged = &self.recent[..self.known];
        let Some(judged) = judged.get(..count) else {
            return false;
        };
        //= rfc8083-4.3-average
        let lost: f64 = judged.iter().map(|i| i.lost).sum();
        let span: f64 = judged.iter().map(|i| i.span.as_secs_f64()).sum();
        let size = interval.sent.scale(1, u64::from(interval.packets));
        let tcp = tcp_rate(lost / span, rtt, size);
        lost > 0.0 && (interval.sent / interval.span).as_f64() > TCP_FACTOR * tcp.as_f64()
    }

    fn trip(&mut self, now: Time, cause: BreakerCause) -> BreakerCause {
        self.tripped = Some((now, cause));
        cause
    }
}

/// Simplified TCP throughput (RFC 8083 section 4.3, from RFC 5348 without its time-out term).
fn tcp_rate(loss: f64, rtt: Duration, size: Bytes) -> Rate {
    let loss = loss.max(1e-6);
    let rtt = rtt.max(Duration::from_millis(1)).as_secs_f64();
    Rate::from_f64(size.bits() as f64 / (rtt * (2.0 * loss / 3.0).sqrt()))
}

/// `MEDIA_TIMEOUT` of RFC 8083 section 4.2. The frame interval of its formula is never above
/// the reporting interval in what we send.
//= rfc8083-4.2-interval
fn media_timeout(tdr: Duration, rtt: Duration) -> u32 {
    ratio(rtt.max(tdr) * SILENT_REPORTS, tdr)
}

/// `CB_INTERVAL` of RFC 8083 section 4.3, without its frame interval.
//= rfc8083-4.3-interval
fn reports(tdr: Duration, rtt: Duration) -> usize {
    let three = tdr * 3;
    let span = (rtt * 10)
        .max(three)
        .min(three.max(Duration::from_secs(15)));
    (ratio(span, tdr) as usize).min(MOST_REPORTS)
}

/// Rounded up.
fn ratio(span: Duration, interval: Duration) -> u32 {
    (span.as_secs_f64() / interval.as_secs_f64().max(1e-3)).ceil() as u32
}

/// RFC 8083 section 4.3: an order of magnitude.
const TCP_FACTOR: f64 = 10.0;
/// Share of what trips that is used: repairs and frames that are larger than ordered come on top,
/// and the round trip may get longer until the next report.
const CAREFUL: f64 = 0.7;
/// `k` of RFC 8083 section 4.2.
const SILENT_REPORTS: u32 = 5;
/// Fifteen seconds of reports a second are the most that RFC 8083 section 4.3 looks at.
const MOST_REPORTS: usize = 15;
/// First distance between probes after a trip.
pub const PROBE_FIRST: Duration = Duration::from_millis(250);
/// Last distance between probes: 50 bytes every 5 s hurt nobody.
pub const PROBE_LAST: Duration = Duration::from_secs(5);
/// Shortest pause after a trip for congestion.
pub const COOLING: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    const TD: Duration = Duration::from_secs(1);

    fn view(highest: u32, loss: f64) -> ReportView {
        ReportView {
            highest,
            loss,
            rtt: Duration::from_millis(100),
        }
    }

    /// Reports each second; in each interval `packets` of 1200 bytes leave. What trips, and
    /// with which report.
    fn play(packets: u64, reports: &[ReportView]) -> (Breaker, Option<(usize, BreakerCause)>) {
        let mut b = Breaker::new(TD);
        for (i, report) in reports.iter().enumerate() {
            let now = Time::from_secs(i as u64 + 1);
            if let Some(cause) = b.on_report(now, *report) {
                return (b, Some((i, cause)));
            }
            (0..packets).for_each(|_| b.on_sent(now, Bytes(1_200)));
        }
        (b, None)
    }

    #[test]
    fn silence_trips_after_three_intervals() {
        let mut b = Breaker::new(TD);
        assert_eq!(b.next_timeout(), None);
        b.on_sent(Time::from_secs(1), Bytes(1_200));
        b.on_rtcp(Time::from_secs(2));
        assert_eq!(b.on_timeout(Time::from_millis(4_999)), None);
        assert_eq!(
            b.on_timeout(Time::from_secs(5)),
            Some(BreakerCause::RtcpTimeout)
        );
        assert_eq!(b.next_timeout(), None);
        assert!(b.on_answer(Time::from_secs(7)));
        assert!(b.tripped().is_none());
    }

    //= rfc8083-4.2-media-timeout (test)
    //= rfc8083-4.5-pause (test)
    #[test]
    fn reports_without_progress_trip_only_while_media_leaves() {
        assert_eq!(play(0, &[view(9, 0.0); 20]).1, None);
        // The first report begins the first of five intervals.
        let (mut b, tripped) = play(1, &[view(9, 0.0); 20]);
        assert_eq!(tripped, Some((5, BreakerCause::MediaTimeout)));
        // Reports never stopped, so one more proves nothing for as long as it took.
        assert!(!b.on_answer(Time::from_millis(10_999)));
        assert!(b.on_answer(Time::from_secs(11)));
        // One that shows progress begins the count anew.
        let mut reports = [view(9, 0.0); 9];
        reports[4..].fill(view(10, 0.0));
        assert_eq!(play(1, &reports).1, None);
    }

    //= rfc8083-4.2-reconsider (test)
    #[test]
    fn a_media_timeout_grows_with_the_round_trip_and_does_not_shrink() {
        let far = |ms| ReportView {
            rtt: Duration::from_millis(ms),
            ..view(9, 0.0)
        };
        // Two seconds are two intervals: ten reports, whatever the round trip is later.
        let mut reports = [far(100); 20];
        reports[3] = far(2_000);
        let (_, tripped) = play(1, &reports);
        assert_eq!(tripped, Some((10, BreakerCause::MediaTimeout)));
    }

    //= rfc8083-4.2-interval (test)
    //= rfc8083-4.3-interval (test)
    #[test]
    fn a_long_round_trip_takes_more_reports() {
        let both = |td, rtt| {
            let (td, rtt) = (Duration::from_secs(td), Duration::from_millis(rtt));
            (media_timeout(td, rtt), reports(td, rtt))
        };
        assert_eq!((both(1, 100), both(5, 100)), ((5, 3), (5, 3)));
        // Ten round trips, but no more than fifteen seconds; five round trips.
        assert_eq!((both(1, 600), both(1, 9_000)), ((5, 6), (45, 15)));
    }

    //= rfc8083-5-early (test)
    #[test]
    fn early_reports_are_one_with_the_next() {
        let mut b = Breaker::new(TD);
        for ms in 0..2_400 {
            b.on_sent(Time::from_millis(ms), Bytes(1_200));
            assert_eq!(b.on_report(Time::from_millis(ms), view(9, 0.0)), None);
        }
        // Every other report is early and has all of the loss: 10 % of a tenth of the time.
        let mut b = Breaker::new(TD);
        let mut tripped = None;
        for s in 0..5 {
            for (ms, loss) in [(100, 0.1), (1_000, 0.0)] {
                (0..1_000).for_each(|_| b.on_sent(Time::from_secs(s), Bytes(1_200)));
                let at = Time::from_millis(s * 1_000 + ms);
                tripped = tripped.or(b.on_report(at, view(at.as_nanos() as u32, loss)));
            }
        }
        // 19 Mb/s; at a mean of 1 % TCP gets 1.18 Mb/s.
        assert_eq!(tripped, Some(BreakerCause::Congestion));
    }

    //= rfc8083-4.3-congestion (test)
    #[test]
    fn ten_times_tcp_trips_and_a_little_less_does_not() {
        // 1,200 bytes, 100 ms, 5 % loss: TCP gets 54.8 packets a second.
        let reports = [1, 2, 3, 4, 5, 6].map(|highest| view(highest, 0.05));
        assert_eq!(play(540, &reports).1, None);
        let (mut b, tripped) = play(555, &reports);
        assert_eq!(tripped, Some((3, BreakerCause::Congestion)));
        assert!(!b.on_answer(Time::from_secs(20)));
        assert!(b.on_answer(Time::from_secs(40)));
    }

    //= rfc8083-4.3-average (test)
    #[test]
    fn loss_counts_in_the_mean_of_three_intervals() {
        // 15 % in each third interval are 5 % on average.
        let reports = [1, 2, 3, 4, 5, 6].map(|n| view(n, if n % 3 == 0 { 0.15 } else { 0.0 }));
        assert_eq!(play(540, &reports).1, None);
        let (_, tripped) = play(555, &reports);
        assert_eq!(tripped, Some((3, BreakerCause::Congestion)));
    }

    //= rfc8083-4.3-few-packets (test)
    #[test]
    fn a_pause_does_not_thin_the_loss() {
        // Every other second nothing is sent, and nothing lost: 5 % are no 2.5 %.
        let mut b = Breaker::new(TD);
        let mut tripped = None;
        for s in 1..=7_u64 {
            let (now, busy) = (Time::from_secs(s), s % 2 == 0);
            let loss = if busy { 0.05 } else { 0.0 };
            let cause = b.on_report(now, view(s as u32, loss));
            tripped = tripped.or(cause.map(|_| s));
            (0..555 * u64::from(!busy)).for_each(|_| b.on_sent(now, Bytes(1_200)));
        }
        assert_eq!(tripped, Some(6));
    }

    //= rfc8083-4.3-congestion (test)
    #[test]
    fn who_stays_below_the_ceiling_is_not_tripped_by_an_outage_that_is_over() {
        // One interval loses three quarters; 100 ms, 1,200 bytes.
        let lossy = [view(1, 0.0), view(2, 0.0), view(3, 0.75)];
        let (mut b, tripped) = play(50, &lossy);
        assert_eq!(tripped, None);
        assert_eq!(Breaker::new(TD).ceiling(Duration::from_millis(100)), None);
        let mut seen = Vec::new();
        for second in 4..9 {
            let now = Time::from_secs(second);
            let most = b.ceiling(Duration::from_millis(100));
            seen.extend(most);
            let packets = most.map_or(1_000, |rate| rate.as_bps() / (8 * 1_200));
            (0..packets).for_each(|_| b.on_sent(now.before(TD / 2), Bytes(1_200)));
            assert_eq!(b.on_report(now, view(second as u32, 0.0)), None, "{second}");
        }
        // A quarter of a share lost on average: 960 kb/s · √(3 / 2 / 0.25), of which 0.7.
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(
            seen.iter()
                .all(|r| *r > Rate::kbps(1_640) && *r < Rate::kbps(1_650)),
            "{seen:?}"
        );
        let (mut b, _) = play(50, &lossy);
        (0..300).for_each(|_| b.on_sent(Time::from_secs(3), Bytes(1_200)));
        let cause = b.on_report(Time::from_secs(4), view(4, 0.0));
        assert_eq!(cause, Some(BreakerCause::Congestion));
    }
}
