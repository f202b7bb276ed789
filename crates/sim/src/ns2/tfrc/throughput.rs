//! Receive rate, as computed by the receivers of ns-2.

use core::time::Duration;
use std::collections::VecDeque;

use tidegate_core::units::{RemoteTime, nanos};

/// Arrivals of about the last round trip.
#[derive(Clone, Debug, Default)]
pub(super) struct Throughput {
    /// Arrival times and the number of packets up to then; both ascending.
    points: VecDeque<(RemoteTime, u64)>,
    count: u64,
    /// Time of the last feedback, and the number of packets up to then.
    reported: Option<(RemoteTime, u64)>,
}

impl Throughput {
    /// Records an arrival. Packets with one arrival time in a report count as evenly spaced.
    pub(super) fn add(&mut self, at: RemoteTime) {
        self.count += 1;
        match self.points.back_mut() {
            Some(last) if at <= last.0 => last.1 = self.count,
            _ => self.points.push_back((at, self.count)),
        }
        if self.points.len() > MAX {
            self.points.pop_front();
        }
    }

    /// Arrival time of the newest packet on the clock of the receiver, if any.
    pub(super) fn newest(&self) -> Option<RemoteTime> {
        self.points.back().map(|point| point.0)
    }

    /// Receive rate at `now` in packets per second: the rate since the last report if that is at
    /// least a round trip of `rtt` seconds ago, else the rate of the last round trip. One packet
    /// per second before the first report.
    pub(super) fn rate(&self, now: RemoteTime, rtt: f64) -> f64 {
        let Some((at, before)) = self.reported.filter(|_| rtt > 0.0) else {
            return 1.0;
        };
        let passed = seconds(now.since(at));
        if passed + HAIR < rtt {
            return self.within(rtt).max(1.0) / rtt;
        }
        match self.count - before {
            0 => 1.0,
            came => came as f64 / passed,
        }
    }

    /// Returns [`rate`](Self::rate) and starts a new interval.
    pub(super) fn feedback(&mut self, now: RemoteTime, rtt: f64) -> f64 {
        let rate = self.rate(now, rtt);
        self.reported = Some((now, self.count));
        // Keeps one point before the last round trip, and at least the newest point.
        let old = |point: &(RemoteTime, u64)| seconds(now.since(point.0)) > rtt;
        while self.points.get(1).is_some_and(old) {
            self.points.pop_front();
        }
        rate
    }

    /// Number of packets that arrived less than `span` seconds before the newest.
    fn within(&self, span: f64) -> f64 {
        let Some(newest) = self.newest() else {
            return 0.0;
        };
        let mut before: Option<(f64, u64)> = None;
        for &(at, count) in &self.points {
            let age = seconds(newest.since(at));
            if age < span {
                let Some((earlier, counted)) = before else {
                    // All stored points are within `span`.
                    break;
                };
                let share = (earlier - span) / (earlier - age);
                let old = (share * (count - counted) as f64 + HAIR) as u64;
                return (self.count - counted - old) as f64;
            }
            before = Some((age, count));
        }
        self.count as f64
    }
}

fn seconds(d: Duration) -> f64 {
    nanos(d) as f64 / 1e9
}

/// Tolerance in seconds for feedback slightly less than a round trip after the last.
const HAIR: f64 = 1e-6;

/// Maximum number of points. With more arrivals in a round trip the oldest may be dropped.
const MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> RemoteTime {
        RemoteTime(ms * 1_000_000)
    }

    fn is(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn rate_since_the_last_report_after_a_round_trip() {
        let mut throughput = Throughput::default();
        assert!(is(throughput.rate(ms(0), 0.1), 1.0), "no data");
        throughput.add(ms(0));
        assert!(
            is(throughput.feedback(ms(0), 0.0), 1.0),
            "no round-trip time"
        );
        (1..=12).for_each(|n| throughput.add(ms(10 * n)));
        assert!(is(throughput.rate(ms(120), 0.1), 100.0));
        // The delay of a report is part of its interval.
        assert!(is(throughput.feedback(ms(150), 0.1), 80.0));
        assert!(is(throughput.rate(ms(250), 0.1), 1.0), "no arrival");
    }

    #[test]
    fn rate_of_the_last_round_trip_within_a_round_trip() {
        let mut throughput = Throughput::default();
        (0..=20).for_each(|n| throughput.add(ms(5 * n)));
        throughput.feedback(ms(100), 0.1);
        // Ten packets reported as one run: one per 4 ms.
        (0..10).for_each(|_| throughput.add(ms(140)));
        // 10 of the last 40 ms, and those of 45 to 100 ms.
        assert!(
            is(throughput.rate(ms(140), 0.1), 220.0),
            "{}",
            throughput.rate(ms(140), 0.1)
        );
    }
}
