//! Delay statistics of reads and writes.

use std::time::Duration;

use tidegate_core::units::{Time, nanos};

/// Histogram of durations with a relative bucket width of at most 1/32.
#[derive(Debug)]
pub(super) struct DurationHistogram {
    counts: Vec<u64>,
    total: u64,
    worst: Duration,
}

impl DurationHistogram {
    pub(super) fn new() -> Self {
        Self {
            counts: vec![0; bucket(u64::MAX) + 1],
            total: 0,
            worst: Duration::ZERO,
        }
    }

    pub(super) fn add(&mut self, late: Duration) {
        self.counts[bucket(nanos(late))] += 1;
        self.total += 1;
        self.worst = self.worst.max(late);
    }

    pub(super) fn worst(&self) -> Duration {
        self.worst
    }

    /// Percentile, rounded up to the end of its bucket; zero without samples.
    pub(super) fn percentile(&self, percent: u64) -> Duration {
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        let end = found.map_or(0, bucket_end);
        Duration::from_nanos(end).min(self.worst)
    }
}

/// Values below 64 have one bucket each. Above, each power of two has 32 buckets.
fn bucket(value: u64) -> usize {
    let shift = value.max(32).ilog2() - 5;
    (u64::from(shift) * 32 + (value >> shift)) as usize
}

/// Largest value of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    let shift = (bucket / 32).saturating_sub(1) as u32;
    let first = bucket as u64 - u64::from(shift) * 32;
    ((first + 1) << shift).wrapping_sub(1)
}

/// Time at which each port was last known to be empty. A poll costs no time for ports that stay
/// empty.
#[derive(Debug)]
pub(super) struct EmptySince {
    /// Time of the last poll. All ports that it did not report were empty then.
    looked: Time,
    looks: u64,
    /// Per port: number of the last poll that reported it, and the time at which it was empty
    /// before.
    ports: Vec<(u64, Time)>,
}

impl EmptySince {
    /// All ports are empty at `now`.
    pub(super) fn new(ports: usize, now: Time) -> Self {
        Self {
            looked: now,
            looks: 1,
            ports: vec![(0, now); ports],
        }
    }

    /// Records a poll at `at` that reported exactly the ports `ready`.
    pub(super) fn look(&mut self, at: Time, ready: &[usize]) {
        for &port in ready {
            let (named, silent) = &mut self.ports[port];
            if *named != self.looks {
                *silent = self.looked;
            }
            *named = self.looks + 1;
        }
        self.looks += 1;
        self.looked = at;
    }

    /// Records the end of a sleep: all ports were empty until `at`, and `ready` are not any more.
    pub(super) fn end(&mut self, at: Time, ready: &[usize]) {
        self.looks += 1;
        self.looked = at;
        for &port in ready {
            self.ports[port] = (self.looks, at);
        }
    }

    /// Time at which a port reported by the last poll was last empty.
    pub(super) fn since(&self, port: usize) -> Time {
        self.ports[port].1
    }

    /// Records that a port reported by the last poll is empty from `at` on.
    pub(super) fn drained(&mut self, port: usize, at: Time) {
        self.ports[port].1 = at;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn buckets_are_narrow_and_in_order(value: u64) {
            let end = bucket_end(bucket(value));
            prop_assert!(end >= value && end - value <= value / 32);
            prop_assert!(end == u64::MAX || bucket(end + 1) == bucket(value) + 1);
        }
    }

    /// Events between two polls; `ready` are the ports that the second poll reports.
    #[derive(Clone, Debug)]
    enum LinkEvent {
        Look { ready: Vec<bool> },
        End { ready: Vec<bool> },
        Drained { port: usize },
    }

    fn happenings() -> impl Strategy<Value = Vec<LinkEvent>> {
        let ready = || proptest::collection::vec(any::<bool>(), PORTS);
        let one = prop_oneof![
            ready().prop_map(|ready| LinkEvent::Look { ready }),
            ready().prop_map(|ready| LinkEvent::End { ready }),
            (0..PORTS).prop_map(|port| LinkEvent::Drained { port }),
        ];
        proptest::collection::vec(one, 1..40)
    }

    proptest! {
        /// The model stores the time of every port.
        #[test]
        fn times_match_a_plain_table(happenings in happenings()) {
            let named = |ready: &[bool]| -> Vec<usize> {
                (0..PORTS).filter(|port| ready[*port]).collect()
            };
            let mut silence = EmptySince::new(PORTS, Time::ZERO);
            let mut table = [Time::ZERO; PORTS];
            let mut last = vec![];
            for (i, happening) in (1..).zip(happenings) {
                let at = Time::from_millis(i);
                match happening {
                    LinkEvent::Look { ready } => {
                        last = named(&ready);
                        silence.look(at, &last);
                        let silent = (0..PORTS).filter(|port| !ready[*port]);
                        silent.for_each(|port| table[port] = at);
                    }
                    LinkEvent::End { ready } => {
                        last = named(&ready);
                        silence.end(at, &last);
                        table.fill(at);
                    }
                    LinkEvent::Drained { port } if last.contains(&port) => {
                        silence.drained(port, at);
                        table[port] = at;
                    }
                    LinkEvent::Drained { .. } => {}
                }
                for port in &last {
                    prop_assert_eq!(silence.since(*port), table[*port]);
                }
            }
        }
    }

    const PORTS: usize = 4;

    #[test]
    fn percentiles() {
        let mut lateness = DurationHistogram::new();
        assert_eq!(lateness.percentile(99), Duration::ZERO);
        (1..=1_000).for_each(|us| lateness.add(Duration::from_micros(us)));
        let within = |percent, us: u64| {
            let got = lateness.percentile(percent);
            let exact = Duration::from_micros(us);
            got >= exact && got <= exact + exact / 32
        };
        assert!(within(50, 500) && within(99, 990));
        assert_eq!(lateness.percentile(100), Duration::from_millis(1));
        assert_eq!(lateness.worst(), Duration::from_millis(1));
    }
}
