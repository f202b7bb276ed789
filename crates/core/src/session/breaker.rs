//! Media circuit breaker (RFC 8083): the last defence when rate control fails or cannot work.

use core::time::Duration;

use crate::trace::BreakerCause;
use crate::units::{Bytes, Rate, Time};

/// Watches RTCP and stops a stream that does no good or does harm.
///
/// RFC 8083 section 4.5 leaves open how a stream comes back. Here: after a trip only RTCP
/// leaves, at [`PROBE_FIRST`] and then ever more rarely up to [`PROBE_LAST`]. A receiver report that answers one of these proves
/// both directions; after a trip for congestion at least [`COOLING`] must have passed as well.
/// The stream then starts like a new one, with nothing believed of what was known of the path.
#[derive(Clone, Copy, Debug)]
pub struct Breaker {
    /// Deterministic reporting interval Td of the receiver.
    interval: Duration,
    started: Option<Time>,
    last_rtcp: Time,
    highest: Option<u32>,
    /// Consecutive reports without progress although media left in between.
    stuck: u32,
    /// Consecutive reports at a rate far above TCP's.
    congested: u32,
    sent_since_report: Bytes,
    last_report: Time,
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
    /// Mean packet size on the wire.
    pub packet: Bytes,
}

impl Breaker {
    /// A closed breaker; `interval` is the receiver's deterministic reporting interval.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            started: None,
            last_rtcp: Time::ZERO,
            highest: None,
            stuck: 0,
            congested: 0,
            sent_since_report: Bytes::ZERO,
            last_report: Time::ZERO,
            tripped: None,
        }
    }

    /// The receiver is known to report at another interval.
    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    /// Media left.
    pub fn on_sent(&mut self, now: Time, size: Bytes) {
        if self.started.is_none() {
            (self.started, self.last_report) = (Some(now), now);
        }
        self.sent_since_report += size;
    }

    /// Any RTCP about our streams came.
    pub fn on_rtcp(&mut self, now: Time) {
        self.last_rtcp = self.last_rtcp.max(now);
    }

    /// A receiver report about the media stream came.
    pub fn on_report(&mut self, now: Time, report: ReportView) -> Option<BreakerCause> {
        self.on_rtcp(now);
        let span = now.since(self.last_report);
        // Early and duplicate reports say nothing about an interval (RFC 8083 section 6).
        if span < self.interval / 2 || self.tripped.is_some() {
            return None;
        }
        let sent = core::mem::take(&mut self.sent_since_report);
        self.last_report = now;
        let progress = self.highest.replace(report.highest) != Some(report.highest);
        //= rfc8083-4.2-media-timeout
        self.stuck = if progress || sent == Bytes::ZERO {
            0
        } else {
            self.stuck + 1
        };
        //= rfc8083-4.3-congestion
        let unfair = (sent / span).as_f64() > TCP_FACTOR * tcp_rate(&report).as_f64();
        self.congested = if progress && report.loss > 0.0 && unfair {
            self.congested + 1
        } else {
            0
        };
        let limit = intervals(self.interval, report.rtt);
        let cause = match () {
            () if self.stuck >= limit => BreakerCause::MediaTimeout,
            () if self.congested >= limit => BreakerCause::Congestion,
            () => return None,
        };
        Some(self.trip(now, cause))
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

    /// The trip that holds, if any.
    pub fn tripped(&self) -> Option<(Time, BreakerCause)> {
        self.tripped
    }

    /// A report proved that a packet sent after the trip arrived. Closes the breaker if it may.
    pub fn on_answer(&mut self, now: Time) -> bool {
        match self.tripped {
            Some((at, cause)) if cause != BreakerCause::Congestion || now.since(at) >= COOLING => {
                *self = Self::new(self.interval);
                self.last_rtcp = now;
                true
            }
            _ => false,
        }
    }

    /// How long to wait between probes while tripped.
    pub fn probe_interval(&self, now: Time) -> Duration {
        let since = self.tripped.map_or(Duration::ZERO, |(at, _)| now.since(at));
        (since / 4).clamp(PROBE_FIRST, PROBE_LAST)
    }

    fn trip(&mut self, now: Time, cause: BreakerCause) -> BreakerCause {
        self.tripped = Some((now, cause));
        cause
    }
}

/// Simplified TCP throughput (RFC 8083 section 4.3, from RFC 5348 without its time-out term).
fn tcp_rate(report: &ReportView) -> Rate {
    let loss = report.loss.max(1e-6);
    let rtt = report.rtt.max(Duration::from_millis(1)).as_secs_f64();
    Rate::from_f64(report.packet.bits() as f64 / (rtt * (2.0 * loss / 3.0).sqrt()))
}

/// RFC 8083 section 4.2: how many reports in a row it takes. The frame interval of its formula
/// is below a round trip in all that we send.
fn intervals(td: Duration, rtt: Duration) -> u32 {
    let three = td * 3;
    let span = (rtt * 10)
        .max(three)
        .min(three.max(Duration::from_secs(15)));
    ((span.as_secs_f64() / td.as_secs_f64().max(1e-3)).ceil() as u32).max(3)
}

/// RFC 8083 section 4.3: an order of magnitude.
const TCP_FACTOR: f64 = 10.0;
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
            packet: Bytes(1_200),
        }
    }

    //= rfc8083-4.1-rtcp-timeout (test)
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
    #[test]
    fn reports_without_progress_trip_only_while_media_leaves() {
        let mut b = Breaker::new(TD);
        for s in 1..20 {
            assert_eq!(b.on_report(Time::from_secs(s), view(9, 0.0)), None);
        }
        let mut tripped = None;
        for s in 20..24 {
            b.on_sent(Time::from_millis(s * 1_000 - 500), Bytes(1_200));
            tripped = tripped.or(b.on_report(Time::from_secs(s), view(9, 0.0)));
        }
        assert_eq!(tripped, Some(BreakerCause::MediaTimeout));
    }

    //= rfc8083-4.3-congestion (test)
    #[test]
    fn ten_times_tcp_trips_and_twice_does_not() {
        // 1,200 bytes, 100 ms, 5 % loss: TCP gets about 526 kb/s.
        for (rate, expected) in [(1_052, None), (5_800, Some(BreakerCause::Congestion))] {
            let mut b = Breaker::new(TD);
            let mut tripped = None;
            for s in 1..6_u32 {
                b.on_sent(
                    Time::from_millis(u64::from(s) * 1_000 - 999),
                    Rate::kbps(rate) * TD,
                );
                tripped = tripped.or(b.on_report(Time::from_secs(u64::from(s)), view(s, 0.05)));
            }
            assert_eq!(tripped, expected);
            if expected.is_some() {
                assert!(!b.on_answer(Time::from_secs(20)));
                assert!(b.on_answer(Time::from_secs(40)));
            }
        }
    }
}
