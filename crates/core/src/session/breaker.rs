//! Media circuit breaker (RFC 8083): stops the stream when rate control fails or receives no
//! feedback.

use core::time::Duration;

use crate::endpoint::OVERHEAD;
use crate::trace::BreakerCause;
use crate::units::{Bytes, Rate, Time};

/// Monitors RTCP and stops a stream that is not received or that causes persistent congestion.
///
/// RFC 8083 section 4.5 leaves the restart of a stream open. In this implementation only RTCP is
/// sent after a trip, as probes whose interval grows from [`PROBE_FIRST`] to [`PROBE_LAST`]. A
/// receiver report that answers a probe proves connectivity in both directions, which clears an
/// RTCP timeout. After a congestion trip the stream also pauses for [`COOLING`]. After a media
/// timeout it pauses for as long as the timeout took, because the reports never stopped. The stream
/// then restarts without state about the path.
#[derive(Clone, Copy, Debug)]
pub struct Breaker {
    /// Deterministic reporting interval of the receiver, `Tdr`.
    interval: Duration,
    started: Option<Time>,
    last_rtcp: Time,
    last_report: Option<Time>,
    /// Bytes of packets sent since the last report, and the most before any report.
    unreported: Bytes,
    most_unreported: Bytes,
    highest: Option<u32>,
    open: Interval,
    /// Evaluated intervals, newest first; the first `known` are valid.
    recent: [Interval; MAX_REPORTS],
    known: usize,
    /// Consecutive intervals in which media was sent and the highest sequence number did not
    /// advance.
    stalled_intervals: u32,
    /// `MEDIA_TIMEOUT`: value of `stalled_intervals` that trips the breaker.
    stall_limit: u32,
    tripped: Option<(Time, BreakerCause)>,
    /// The rate was cut to a tenth, and the reports since do not suffice for another decision.
    is_cut: bool,
}

/// Fields of a receiver report that the breaker evaluates.
#[derive(Clone, Copy, Debug)]
pub struct ReportView {
    /// Extended highest sequence number received.
    pub highest: u32,
    /// Loss fraction since the last report, in 0..=1.
    pub loss: f64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
}

/// Traffic between two consecutive reports.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    span: Duration,
    /// Sum of span in seconds times loss fraction, over the reports of the interval.
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
            unreported: Bytes::ZERO,
            most_unreported: Bytes::ZERO,
            highest: None,
            open: Interval::default(),
            recent: [Interval::default(); MAX_REPORTS],
            known: 0,
            stalled_intervals: 0,
            stall_limit: 0,
            tripped: None,
            is_cut: false,
        }
    }

    /// Changes the reporting interval of the receiver.
    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    /// A media packet of `size` was sent.
    pub fn on_sent(&mut self, now: Time, size: Bytes) {
        self.started.get_or_insert(now);
        // Receivers count RTP packets, without the headers below.
        self.unreported += size - OVERHEAD;
        self.open.sent += size;
        self.open.packets = self.open.packets.saturating_add(1);
    }

    /// Any RTCP about one of the sender's streams was received.
    //= rfc8083-5-reduced
    pub fn on_rtcp(&mut self, now: Time) {
        self.last_rtcp = self.last_rtcp.max(now);
    }

    /// A receiver report about the media stream was received. The first one starts the first
    /// interval. Returns the cause if it trips the breaker.
    pub fn on_report(&mut self, now: Time, report: ReportView) -> Option<BreakerCause> {
        self.on_rtcp(now);
        let unreported = core::mem::take(&mut self.unreported);
        self.most_unreported = self.most_unreported.max(unreported);
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

    /// Continues after a trip for congestion, if the sender now cuts its rate to the result: a tenth
    /// of the highest rate in the intervals of the decision. The reports so far no longer count.
    /// Returns `None`, and remains tripped, if the last cut did not end the congestion, if the rate
    /// cannot be cut below `floor`, or after any other trip.
    //= rfc8083-4.3-tenth
    pub fn reduce(&mut self, floor: Rate) -> Option<Rate> {
        let is_congestion = matches!(self.tripped, Some((_, BreakerCause::Congestion)));
        let rates = self.recent[..self.known].iter().map(|i| i.sent / i.span);
        let tenth = rates.max().unwrap_or_default().scale(1, 10);
        let may = is_congestion && !self.is_cut && tenth >= floor;
        may.then(|| {
            (self.tripped, self.known, self.is_cut) = (None, 0, true);
            tenth
        })
    }

    /// Maximum send rate, headers included, at which the losses reported so far do not trip the
    /// breaker at the next report. `None` without such losses.
    pub fn ceiling(&self, rtt: Duration) -> Option<Rate> {
        let count = (reports(self.interval, rtt) - 1).min(self.known);
        let window = self.recent.get(..count)?;
        let last = window.first()?;
        let lost: f64 = window.iter().map(|i| i.lost).sum();
        let span: Duration = window.iter().map(|i| i.span).sum();
        let size = last.sent.scale(1, u64::from(last.packets).max(1));
        let mean = lost / (span + self.interval).as_secs_f64();
        let tcp = tcp_rate(mean, rtt, size).as_f64();
        (lost > 0.0).then(|| Rate::from_f64(CEILING_MARGIN * TCP_FACTOR * tcp))
    }

    /// When [`on_timeout`](Self::on_timeout) would trip.
    pub fn next_timeout(&self) -> Option<Time> {
        let started = self.started?;
        self.tripped
            .is_none()
            .then(|| self.last_rtcp.max(started) + self.interval * 3)
    }

    /// Whether a receiver that reports per number of bytes, as some players do, has missed three
    /// reports: its interval has no limit in a quiet passage. A receiver that has disappeared gets
    /// 840 kB at most beyond the time of [`next_timeout`](Self::next_timeout).
    pub fn has_missed_reports(&self) -> bool {
        self.unreported >= self.most_unreported.min(MAX_PER_REPORT).scale(3, 1)
    }

    /// Trips when no RTCP was received for three reporting intervals.
    //= rfc8083-4.1-rtcp-timeout
    pub fn on_timeout(&mut self, now: Time) -> Option<BreakerCause> {
        self.next_timeout()
            .filter(|&at| at <= now)
            .map(|_| self.trip(now, BreakerCause::RtcpTimeout))
    }

    /// Trips because the receiver sent a BYE.
    pub fn on_goodbye(&mut self, now: Time) -> BreakerCause {
        self.trip(now, BreakerCause::Goodbye)
    }

    /// Time and cause of the current trip, if any.
    pub fn tripped(&self) -> Option<(Time, BreakerCause)> {
        self.tripped
    }

    /// A report proved that a packet sent after the trip was received. Closes the breaker and
    /// returns true unless the pause is still running.
    pub fn on_answer(&mut self, now: Time) -> bool {
        let may = self.rests_until().is_some_and(|end| now >= end);
        if may {
            self.restart(now);
        }
        may
    }

    /// Forgets all reports: the stream begins again.
    pub fn restart(&mut self, now: Time) {
        *self = Self::new(self.interval);
        self.last_rtcp = now;
    }

    /// End of the pause after a trip; answers before it do not restart the stream.
    pub fn rests_until(&self) -> Option<Time> {
        let (at, cause) = self.tripped?;
        let rest = match cause {
            BreakerCause::Goodbye | BreakerCause::RtcpTimeout => Duration::ZERO,
            //= rfc8083-4.5-pause
            BreakerCause::MediaTimeout => self.interval * self.stall_limit,
            BreakerCause::Congestion => COOLING,
        };
        Some(at + rest)
    }

    /// Interval between probes while tripped.
    pub fn probe_interval(&self, now: Time) -> Duration {
        let since = self.tripped.map_or(Duration::ZERO, |(at, _)| now.since(at));
        (since / 4).clamp(PROBE_FIRST, PROBE_LAST)
    }

    //= rfc8083-4.2-media-timeout
    fn is_media_lost(&mut self, interval: &Interval, rtt: Duration) -> bool {
        let stall_limit = media_timeout(self.interval, rtt);
        if interval.progress || interval.packets == 0 {
            (self.stalled_intervals, self.stall_limit) = (0, stall_limit);
            return false;
        }
        //= rfc8083-4.2-reconsider
        self.stall_limit = self.stall_limit.max(stall_limit);
        self.stalled_intervals += 1;
        self.stalled_intervals >= self.stall_limit
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
        self.known = (self.known + 1).min(MAX_REPORTS);
        let count = reports(self.interval, rtt);
        let window = &self.recent[..self.known];
        let Some(window) = window.get(..count) else {
            return false;
        };
        //= rfc8083-4.3-average
        let lost: f64 = window.iter().map(|i| i.lost).sum();
        let span: f64 = window.iter().map(|i| i.span.as_secs_f64()).sum();
        let size = interval.sent.scale(1, u64::from(interval.packets));
        let tcp = tcp_rate(lost / span, rtt, size);
        let congested =
            lost > 0.0 && (interval.sent / interval.span).as_f64() > TCP_FACTOR * tcp.as_f64();
        self.is_cut &= congested;
        congested
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

/// `MEDIA_TIMEOUT` of RFC 8083 section 4.2. The frame interval of its formula never exceeds the
/// reporting interval for the streams of this sender.
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
    (ratio(span, tdr) as usize).min(MAX_REPORTS)
}

/// Quotient, rounded up.
fn ratio(span: Duration, interval: Duration) -> u32 {
    (span.as_secs_f64() / interval.as_secs_f64().max(1e-3)).ceil() as u32
}

/// The most that a player is known to receive between two reports: ffmpeg sends one once a fiftieth
/// of 5 per mille of the stream is 28 bytes (`ff_rtp_check_and_send_back_rr`).
const MAX_PER_REPORT: Bytes = Bytes(280_000);
/// RFC 8083 section 4.3: an order of magnitude.
const TCP_FACTOR: f64 = 10.0;
/// Margin below the threshold: retransmissions and oversized frames add to the rate, and the
/// round-trip time may grow before the next report.
const CEILING_MARGIN: f64 = 0.7;
/// `k` of RFC 8083 section 4.2.
const SILENT_REPORTS: u32 = 5;
/// RFC 8083 section 4.3 evaluates at most 15 s of reports; here one per second.
const MAX_REPORTS: usize = 15;
/// Initial interval between probes after a trip.
pub const PROBE_FIRST: Duration = Duration::from_millis(250);
/// Maximum interval between probes: 50 bytes every 5 s are a negligible load.
pub const PROBE_LAST: Duration = Duration::from_secs(5);
/// Minimum pause after a congestion trip.
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

    /// One report per second; `packets` packets of 1200 bytes are sent in each interval. Returns
    /// the breaker, the index of the tripping report and the cause.
    fn run(packets: u64, reports: &[ReportView]) -> (Breaker, Option<(usize, BreakerCause)>) {
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

    #[test]
    fn a_receiver_per_bytes_misses_reports_by_bytes() {
        let mut b = Breaker::new(TD);
        let send = |b: &mut Breaker, packets| {
            (0..packets).for_each(|_| b.on_sent(Time::from_secs(1), Bytes(1_000) + OVERHEAD));
        };
        for second in 1..4 {
            send(&mut b, 100);
            b.on_report(Time::from_secs(second), view(second as u32, 0.0));
        }
        send(&mut b, 299);
        assert!(!b.has_missed_reports());
        send(&mut b, 1);
        assert!(b.has_missed_reports());
        // However fast the stream was, 840 kB are the limit.
        send(&mut b, 10_000);
        b.on_report(Time::from_secs(4), view(4, 0.0));
        send(&mut b, 839);
        assert!(!b.has_missed_reports());
        send(&mut b, 1);
        assert!(b.has_missed_reports());
    }

    //= rfc8083-4.2-media-timeout (test)
    //= rfc8083-4.5-pause (test)
    #[test]
    fn reports_without_progress_trip_only_while_media_leaves() {
        assert_eq!(run(0, &[view(9, 0.0); 20]).1, None);
        // The first report starts the first of five intervals.
        let (mut b, tripped) = run(1, &[view(9, 0.0); 20]);
        assert_eq!(tripped, Some((5, BreakerCause::MediaTimeout)));
        // Reports never stopped, so an answer does not count until the pause has ended.
        assert!(!b.on_answer(Time::from_millis(10_999)));
        assert!(b.on_answer(Time::from_secs(11)));
        // Progress resets the count.
        let mut reports = [view(9, 0.0); 9];
        reports[4..].fill(view(10, 0.0));
        assert_eq!(run(1, &reports).1, None);
    }

    //= rfc8083-4.2-reconsider (test)
    #[test]
    fn the_media_timeout_grows_with_the_rtt_and_never_shrinks() {
        let far = |ms| ReportView {
            rtt: Duration::from_millis(ms),
            ..view(9, 0.0)
        };
        // Two seconds are two intervals: ten reports, whatever the later round-trip time is.
        let mut reports = [far(100); 20];
        reports[3] = far(2_000);
        let (_, tripped) = run(1, &reports);
        assert_eq!(tripped, Some((10, BreakerCause::MediaTimeout)));
    }

    //= rfc8083-4.2-interval (test)
    //= rfc8083-4.3-interval (test)
    #[test]
    fn a_long_rtt_requires_more_reports() {
        let both = |td, rtt| {
            let (td, rtt) = (Duration::from_secs(td), Duration::from_millis(rtt));
            (media_timeout(td, rtt), reports(td, rtt))
        };
        assert_eq!((both(1, 100), both(5, 100)), ((5, 3), (5, 3)));
        // Ten round trips, limited to 15 s; five round trips.
        assert_eq!((both(1, 600), both(1, 9_000)), ((5, 6), (45, 15)));
    }

    //= rfc8083-5-early (test)
    #[test]
    fn early_reports_are_merged_with_the_next_one() {
        let mut b = Breaker::new(TD);
        for ms in 0..2_400 {
            b.on_sent(Time::from_millis(ms), Bytes(1_200));
            assert_eq!(b.on_report(Time::from_millis(ms), view(9, 0.0)), None);
        }
        // Every other report is early and has all of the loss: 10 % over a tenth of the time.
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
    fn only_a_rate_above_ten_times_tcp_trips() {
        // 1,200 bytes, 100 ms, 5 % loss: TCP gets 54.8 packets a second.
        let reports = [1, 2, 3, 4, 5, 6].map(|highest| view(highest, 0.05));
        assert_eq!(run(540, &reports).1, None);
        let (mut b, tripped) = run(555, &reports);
        assert_eq!(tripped, Some((3, BreakerCause::Congestion)));
        assert!(!b.on_answer(Time::from_secs(20)));
        assert!(b.on_answer(Time::from_secs(40)));
    }

    //= rfc8083-4.3-tenth (test)
    #[test]
    fn a_cut_to_a_tenth_continues_once() {
        let reports = [1, 2, 3, 4, 5, 6].map(|highest| view(highest, 0.05));
        let (mut b, tripped) = run(555, &reports);
        assert_eq!(tripped, Some((3, BreakerCause::Congestion)));
        // 555 packets of 1,200 bytes per second.
        assert_eq!(b.reduce(Rate::kbps(600)), None);
        assert_eq!(b.reduce(Rate::kbps(500)), Some(Rate::bps(532_800)));
        assert!(b.tripped().is_none());
        let mut go_on = |seconds: core::ops::Range<u64>, packets| {
            seconds.into_iter().find_map(|s| {
                (0..packets).for_each(|_| b.on_sent(Time::from_secs(s), Bytes(1_200)));
                b.on_report(Time::from_secs(s), view(s as u32, 0.05))
            })
        };
        // Three reports at a tenth of the rate show no congestion, so that another cut is allowed.
        assert_eq!(go_on(5..9, 55), None);
        assert_eq!(go_on(9..20, 555), Some(BreakerCause::Congestion));
        assert!(b.reduce(Rate::ZERO).is_some());
        // Without effect of the cut, the stream stops.
        let mut again = |s| {
            (0..555).for_each(|_| b.on_sent(Time::from_secs(s), Bytes(1_200)));
            b.on_report(Time::from_secs(s), view(s as u32, 0.05))
        };
        assert_eq!(
            (20..30).find_map(&mut again),
            Some(BreakerCause::Congestion)
        );
        assert_eq!(b.reduce(Rate::ZERO), None);
        assert_eq!(b.on_goodbye(Time::from_secs(40)), BreakerCause::Goodbye);
        assert_eq!(b.reduce(Rate::ZERO), None);
    }

    //= rfc8083-4.3-average (test)
    #[test]
    fn loss_is_averaged_over_three_intervals() {
        // 15 % in every third interval average 5 %.
        let reports = [1, 2, 3, 4, 5, 6].map(|n| view(n, if n % 3 == 0 { 0.15 } else { 0.0 }));
        assert_eq!(run(540, &reports).1, None);
        let (_, tripped) = run(555, &reports);
        assert_eq!(tripped, Some((3, BreakerCause::Congestion)));
    }

    //= rfc8083-4.3-few-packets (test)
    #[test]
    fn idle_intervals_do_not_dilute_the_loss() {
        // Nothing is sent or lost in every other second: the loss is 5 %, not 2.5 %.
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
    fn a_rate_below_the_ceiling_does_not_trip_after_a_past_outage() {
        // One interval loses 75 %; 100 ms, 1,200 bytes.
        let lossy = [view(1, 0.0), view(2, 0.0), view(3, 0.75)];
        let (mut b, tripped) = run(50, &lossy);
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
        // The average loss is 25 %: 960 kb/s · √(3 / 2 / 0.25), times 0.7.
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(
            seen.iter()
                .all(|r| *r > Rate::kbps(1_640) && *r < Rate::kbps(1_650)),
            "{seen:?}"
        );
        let (mut b, _) = run(50, &lossy);
        (0..300).for_each(|_| b.on_sent(Time::from_secs(3), Bytes(1_200)));
        let cause = b.on_report(Time::from_secs(4), view(4, 0.0));
        assert_eq!(cause, Some(BreakerCause::Congestion));
    }
}
