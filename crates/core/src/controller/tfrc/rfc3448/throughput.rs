//! The receive rate, as ns-2's receivers count it.

use core::time::Duration;
use std::collections::VecDeque;

use crate::units::{RemoteTime, nanos};

/// Arrivals of about the last round trip.
#[derive(Clone, Debug, Default)]
pub(super) struct Throughput {
    /// Times of arrival, and how many packets had come by then; ascending in both.
    points: VecDeque<(RemoteTime, u64)>,
    count: u64,
    /// When the last feedback left, and how many had come.
    reported: Option<(RemoteTime, u64)>,
}

impl Throughput {
    /// A packet arrived. Those that a report lumps together count as arrived at equal distances.
    pub(super) fn add(&mut self, at: RemoteTime) {
        self.count += 1;
        match self.points.back_mut() {
            Some(last) if at <= last.0 => last.1 = self.count,
            _ => self.points.push_back((at, self.count)),
        }
        if self.points.len() > MOST {
            self.points.pop_front();
        }
    }

    /// When the latest packet came by the receiver's clock, if any did.
    pub(super) fn newest(&self) -> Option<RemoteTime> {
        self.points.back().map(|point| point.0)
    }

    /// What a receiver reports at `now`, in packets per second: the rate since its last report if
    /// that is a round trip of `rtt` seconds or more ago, else that of the last round trip. One a
    /// second before anything is known.
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

    /// The same, and from now on counts anew.
    pub(super) fn feedback(&mut self, now: RemoteTime, rtt: f64) -> f64 {
        let rate = self.rate(now, rtt);
        self.reported = Some((now, self.count));
        // One point before the last round trip is needed, and the latest in any case.
        let old = |point: &(RemoteTime, u64)| seconds(now.since(point.0)) > rtt;
        while self.points.get(1).is_some_and(old) {
            self.points.pop_front();
        }
        rate
    }

    /// Packets that came less than `span` seconds before the newest.
    fn within(&self, span: f64) -> f64 {
        let Some(newest) = self.newest() else {
            return 0.0;
        };
        let mut before: Option<(f64, u64)> = None;
        for &(at, count) in &self.points {
            let age = seconds(newest.since(at));
            if age < span {
                let Some((earlier, counted)) = before else {
                    // All that is known is younger.
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

/// Feedback that is early by this many seconds counts as a round trip after the last.
const HAIR: f64 = 1e-6;

/// More arrivals within a round trip lie so close that the oldest can go.
const MOST: usize = 4_096;

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
    fn after_a_round_trip_it_is_the_rate_since_the_last_report() {
        let mut throughput = Throughput::default();
        assert!(is(throughput.rate(ms(0), 0.1), 1.0), "nothing is known");
        throughput.add(ms(0));
        assert!(
            is(throughput.feedback(ms(0), 0.0), 1.0),
            "no round-trip time"
        );
        (1..=12).for_each(|n| throughput.add(ms(10 * n)));
        assert!(is(throughput.rate(ms(120), 0.1), 100.0));
        // A report that waits counts the time that it waited.
        assert!(is(throughput.feedback(ms(150), 0.1), 80.0));
        assert!(is(throughput.rate(ms(250), 0.1), 1.0), "nothing came");
    }

    #[test]
    fn within_a_round_trip_it_is_that_of_the_last_one() {
        let mut throughput = Throughput::default();
        (0..=20).for_each(|n| throughput.add(ms(5 * n)));
        throughput.feedback(ms(100), 0.1);
        // Ten packets that were reported as one run: one each 4 ms.
        (0..10).for_each(|_| throughput.add(ms(140)));
        // 10 of the last 40 ms, and those of 45 to 100 ms.
        assert!(
            is(throughput.rate(ms(140), 0.1), 220.0),
            "{}",
            throughput.rate(ms(140), 0.1)
        );
    }
}
