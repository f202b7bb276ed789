//! Estimates of the path at an endpoint (C-UDP), and whether they are current.

use core::time::Duration;

use crate::units::{Bytes, Rate, Time};
use crate::wire::cp::{Cp, Role, Shares, Stamp};

/// State of the path in the sending direction, from the newest report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimates {
    /// Smoothed round-trip time between the aggregation points; `None` before their first sample.
    pub rtt: Option<Duration>,
    /// Its mean deviation.
    pub deviation: Duration,
    /// Smoothed loss rate of all packets of the application, in 0..=1; `None` without a round-trip
    /// time, since the other point has not answered.
    pub loss: Option<f64>,
    /// Available bandwidth of one flowshare; `None` without a round-trip time, or if it is unknown.
    pub available: Option<Rate>,
    /// Flowshares that the application may use.
    pub shares: Shares,
    /// Bandwidth that the application sends.
    pub sending: Rate,
    /// Mean size of its packets, all headers included.
    pub packet_size: Bytes,
    /// Its active flows at this site; 255 if there are more.
    pub flows: u8,
}

/// Whether an endpoint may follow the estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathState {
    /// No report was received. The endpoint controls its rate by itself.
    #[default]
    Unknown,
    /// The estimates are current.
    Current,
    /// The aggregation point has lost the one of the other site. The endpoint controls its rate by
    /// itself.
    PeerLost,
    /// No report was received for three round-trip times. The endpoint controls its rate by itself.
    Silent,
    /// The circuit breaker of the application is open. The endpoint sends no data.
    Stopped,
}

/// Reads reports, and notices their absence.
#[derive(Clone, Copy, Debug, Default)]
pub struct EstimateMonitor {
    estimates: Option<Estimates>,
    /// State at the newest report.
    state: PathState,
    newest: Time,
    /// Smoothed interval between reports.
    interval: Duration,
}

impl EstimateMonitor {
    /// A header was received at `now`. Those other than reports have no effect.
    pub fn on_header(&mut self, now: Time, header: &Cp) {
        let Role::Report(report) = header.role else {
            return;
        };
        if self.estimates.is_some() {
            let interval = now.since(self.newest).min(LONGEST_INTERVAL);
            self.interval = (3 * self.interval + interval) / 4;
        }
        self.newest = self.newest.max(now);
        self.state = match (report.stop, report.peer_lost) {
            (true, _) => PathState::Stopped,
            (false, true) => PathState::PeerLost,
            (false, false) => PathState::Current,
        };
        let rtt = (report.rtt != Stamp::default()).then(|| report.rtt.to_duration());
        let available = report.available.to_rate();
        self.estimates = Some(Estimates {
            rtt,
            deviation: report.deviation.to_duration(),
            loss: rtt.map(|_| report.loss.to_rate()),
            available: rtt.and((available > Rate::ZERO).then_some(available)),
            shares: header.shares,
            sending: report.used.to_rate(),
            packet_size: Bytes(report.packet_size.into()),
            flows: report.flows,
        });
    }

    /// Values of the newest report, whether current or not; `None` before the first one.
    pub fn estimates(&self) -> Option<Estimates> {
        self.estimates
    }

    /// State now.
    pub fn state(&self, now: Time) -> PathState {
        match self.expiry() {
            Some(at) if at <= now => PathState::Silent,
            _ => self.state,
        }
    }

    /// Time at which the state becomes [`PathState::Silent`] without another report.
    pub fn next_timeout(&self, now: Time) -> Option<Time> {
        self.expiry().filter(|at| *at > now)
    }

    /// An application whose packets in the opposite direction are far apart has reports as far
    /// apart, so the limit is two of their intervals if those are longer.
    fn expiry(&self) -> Option<Time> {
        let rtt = self.estimates?.rtt.unwrap_or(UNKNOWN_RTT);
        let span = (3 * rtt).max(2 * self.interval).max(SHORTEST);
        (self.state == PathState::Current).then_some(self.newest + span)
    }
}

impl PathState {
    /// Whether the endpoint must control its rate by itself.
    pub fn is_alone(self) -> bool {
        matches!(self, Self::Unknown | Self::PeerLost | Self::Silent)
    }
}

/// Longest interval between reports that counts: a sparse application sends a packet per second.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
/// Round-trip time before the first sample.
const UNKNOWN_RTT: Duration = Duration::from_millis(500);
/// Shortest silence that counts: a process can wait for a processor so long.
const SHORTEST: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::cp::{ApplicationId, Delay, LossCode, PathReport, RateCode};

    fn report(change: impl FnOnce(&mut PathReport)) -> Cp {
        let mut report = PathReport {
            rtt: Stamp::span(Duration::from_millis(40)),
            deviation: Delay::of(Duration::from_millis(4)),
            loss: LossCode::of(0.01),
            available: RateCode::of(Rate::kbps(512)),
            used: RateCode::of(Rate::kbps(1_024)),
            packet_size: 1_000,
            flows: 3,
            peer_lost: false,
            stop: false,
        };
        change(&mut report);
        Cp {
            application: ApplicationId(1),
            flow: 2,
            shares: Shares::ONE,
            role: Role::Report(report),
        }
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn values_are_unknown_until_the_points_have_measured_them() {
        let mut monitor = EstimateMonitor::default();
        let origin = Cp {
            role: Role::Origin,
            ..report(|_| {})
        };
        monitor.on_header(at(0), &origin);
        assert_eq!(monitor.estimates(), None);
        assert_eq!(monitor.state(at(9_000)), PathState::Unknown);
        let early = report(|report| {
            report.rtt = Stamp::default();
            report.loss = LossCode::default();
        });
        monitor.on_header(at(0), &early);
        let values = monitor.estimates().unwrap();
        assert_eq!(
            (values.rtt, values.loss, values.available),
            (None, None, None)
        );
        monitor.on_header(at(10), &report(|_| {}));
        let values = monitor.estimates().unwrap();
        assert_eq!(values.rtt, Some(Duration::from_millis(40)));
        assert_eq!(values.available, Some(Rate::kbps(512)));
        assert!((values.loss.unwrap() / 0.01 - 1.0).abs() < 0.03);
    }

    #[test]
    fn silence_of_three_round_trips_ends_the_estimates() {
        let mut monitor = EstimateMonitor::default();
        for ms in [0, 10, 20] {
            monitor.on_header(at(ms), &report(|_| {}));
        }
        assert_eq!(monitor.next_timeout(at(20)), Some(at(140)));
        assert_eq!(monitor.state(at(139)), PathState::Current);
        assert_eq!(monitor.state(at(140)), PathState::Silent);
        assert_eq!(monitor.next_timeout(at(140)), None);
        // The values remain, for the start of another controller.
        assert!(monitor.estimates().is_some());
        monitor.on_header(at(200), &report(|_| {}));
        assert_eq!(monitor.state(at(200)), PathState::Current);
    }

    #[test]
    fn sparse_reports_are_no_silence() {
        let mut monitor = EstimateMonitor::default();
        for second in 0..20 {
            monitor.on_header(at(1_000 * second), &report(|_| {}));
        }
        assert_eq!(monitor.state(at(20_000)), PathState::Current);
        let silent = monitor.next_timeout(at(20_000)).unwrap();
        assert!(silent > at(20_900) && silent <= at(21_000), "{silent:?}");
    }

    #[test]
    fn flags_of_the_points_are_states() {
        let mut monitor = EstimateMonitor::default();
        monitor.on_header(at(0), &report(|report| report.peer_lost = true));
        assert_eq!(monitor.state(at(0)), PathState::PeerLost);
        assert!(monitor.state(at(9_000)).is_alone());
        assert_eq!(monitor.next_timeout(at(0)), None);
        monitor.on_header(at(1), &report(|report| report.stop = true));
        // Silence does not end the order to stop.
        assert_eq!(monitor.state(at(9_000)), PathState::Stopped);
        assert!(!monitor.state(at(9_000)).is_alone());
        monitor.on_header(at(2), &report(|_| {}));
        assert_eq!(monitor.state(at(3)), PathState::Current);
    }
}
