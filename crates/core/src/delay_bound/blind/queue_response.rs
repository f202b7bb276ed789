//! Test whether a queue responds to the sending rate.

use core::time::Duration;
use std::collections::VecDeque;

use crate::control::{Outcome, PacketOutcome, Report};
use crate::units::{Bytes, Rate, Time, nanos};

/// Compares the actual change of a queue with the change expected if this sender owned the queue.
///
/// A queue of one sender is served at the delivery rate for as long as it exists, whatever is sent
/// meanwhile. If the sending rate is below the recent delivery rate by a seventh or more, the queue
/// shrinks by the difference. The expected decrease is summed up. Once the sum is large enough, the
/// actual decrease gives the verdict.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueResponse {
    /// Sending time of the newest reported packet.
    sent: Option<Time>,
    /// Bytes delivered since a receiver time.
    delivered_since: Option<(Bytes, u64)>,
    /// Recent delivery rates while there was a queue, oldest first.
    rates: VecDeque<(Time, Rate)>,
    test: Option<Test>,
}

/// Owner of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The queue shrank by a third or more of the expected decrease.
    Own,
    /// The queue shrank less.
    Competing,
}

#[derive(Clone, Copy, Debug)]
struct Test {
    start: Time,
    /// Queueing delay at the beginning, ns.
    level: i64,
    /// Expected decrease since then, ns.
    due: i64,
}

impl QueueResponse {
    /// Sending time of the newest reported packet.
    pub(super) fn sent(&self) -> Option<Time> {
        self.sent
    }

    /// Processes a report. `level` is the total queueing delay in ns and `deviation` its standard
    /// deviation in ns. If the queue `grew`, the measurement starts again, since the service rate
    /// may have changed.
    pub(super) fn on_report(
        &mut self,
        now: Time,
        report: &Report<'_>,
        grew: bool,
        level: i64,
        deviation: i64,
    ) -> Option<Verdict> {
        let (size, span) = self.sent_since(report);
        let arrived = last_arrival(report)?;
        if grew || level < least(deviation) / 2 {
            self.rates.clear();
            self.test = None;
            self.delivered_since = None;
            return None;
        }
        let capacity = self.served_at(now, delivered(report), arrived)?;
        let start = Test {
            start: now,
            level,
            due: 0,
        };
        let test = self.test.get_or_insert(start);
        let needs = nanos(size / capacity.max(Rate::bps(1))).min(i64::MAX as u64) as i64;
        test.due = test.due.saturating_add(span - span / SLACK - needs);
        let Test {
            start,
            level: first,
            due,
        } = *test;
        let enough = due >= ENOUGH + ENOUGH_DEVIATIONS * deviation;
        let short = first < least(deviation);
        if enough || short || due < 0 || now.since(start) > MEMORY {
            self.test = None;
        }
        if !enough || short {
            return None;
        }
        let yielded = first - level >= due.min(first) / YIELD_DIVISOR;
        Some(if yielded {
            Verdict::Own
        } else {
            Verdict::Competing
        })
    }

    /// Service rate of a queue of this sender: the highest recent delivery rate.
    fn served_at(&mut self, now: Time, size: Bytes, arrived: u64) -> Option<Rate> {
        let (sum, since) = self.delivered_since.get_or_insert((Bytes::ZERO, arrived));
        if arrived > *since {
            *sum += size;
            let over = Duration::from_nanos(arrived - *since);
            if over >= RATE_SPAN {
                self.rates.push_back((now, *sum / over));
                self.delivered_since = Some((Bytes::ZERO, arrived));
            }
        }
        while self
            .rates
            .front()
            .is_some_and(|(at, _)| now.since(*at) > MEMORY)
        {
            self.rates.pop_front();
        }
        self.rates.iter().map(|(_, rate)| *rate).max()
    }

    /// Bytes sent between the newest packets of the last report and this one, and the time between
    /// them, ns.
    fn sent_since(&mut self, report: &Report<'_>) -> (Bytes, i64) {
        let new = |fate: &&PacketOutcome| self.sent.is_none_or(|sent| fate.sent > sent);
        let size = report.packets.iter().filter(new).map(|f| f.size).sum();
        let newest = report.packets.iter().map(|f| f.sent).max().max(self.sent);
        let before = core::mem::replace(&mut self.sent, newest);
        let span = before.zip(newest).map(|(from, to)| nanos(to.since(from)));
        (size, span.map_or(0, |ns| ns.min(i64::MAX as u64) as i64))
    }
}

/// Below this level, in ns, a queue may be due to packet granularity and jitter.
pub(super) fn least(deviation: i64) -> i64 {
    MIN_QUEUE + 3 * deviation
}

fn delivered(report: &Report<'_>) -> Bytes {
    let arrived = |fate: &&PacketOutcome| matches!(fate.outcome, Outcome::Received { .. });
    report.packets.iter().filter(arrived).map(|f| f.size).sum()
}

fn last_arrival(report: &Report<'_>) -> Option<u64> {
    let at = |fate: &PacketOutcome| match fate.outcome {
        Outcome::Received { at, .. } => Some(at.0),
        Outcome::Lost => None,
    };
    report.packets.iter().filter_map(at).max()
}

/// One frame interval at 30 frames per second.
const MIN_QUEUE: i64 = 30_000_000;
/// Seven or eight frames, so that one frame more or less changes the rate by a seventh at most.
const RATE_SPAN: Duration = Duration::from_millis(250);
/// Maximum of twelve such rates exceeds their mean by about a seventh as well.
const SLACK: i64 = 7;
/// Older deliveries may have used another path.
const MEMORY: Duration = Duration::from_secs(3);
/// With 40 ms, a group of calls that all yield, one after the other, is taken for unresponsive (RFC
/// 8867 section 5.4). With 120 ms this happens for no seed.
const ENOUGH: i64 = 120_000_000;
/// The median of five delays has half of the deviation of one delay, and two medians are compared.
const ENOUGH_DEVIATIONS: i64 = 3;
/// A TCP transfer yields by less than a third of the expected decrease: its part of the queue is
/// larger, the smaller that of this sender is.
const YIELD_DIVISOR: i64 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Ecn, FlowId};
    use crate::units::RemoteTime;

    const MS: i64 = 1_000_000;

    /// Sends groups of ten packets of 1250 bytes; `gap` and `arrivals` are in ms.
    struct Path {
        response: QueueResponse,
        seq: u64,
        sent_ms: u64,
        arrived_ms: u64,
    }

    impl Path {
        fn new() -> Self {
            Self {
                response: QueueResponse::default(),
                seq: 0,
                sent_ms: 1_000,
                arrived_ms: 1_200,
            }
        }

        fn report(&mut self, gap: u64, arrivals: u64, grew: bool, level: i64) -> Option<Verdict> {
            let mut outcomes = vec![];
            for _ in 0..10 {
                self.seq += 1;
                self.sent_ms += gap;
                self.arrived_ms += arrivals;
                outcomes.push(PacketOutcome {
                    flow: FlowId(0),
                    seq: self.seq,
                    size: Bytes(1_250),
                    sent: Time::from_millis(self.sent_ms),
                    outcome: Outcome::Received {
                        at: RemoteTime(self.arrived_ms * 1_000_000),
                        ecn: Ecn::NotEct,
                    },
                });
            }
            let now = Time::from_millis(self.arrived_ms + 20);
            self.response
                .on_report(now, &Report::new(&outcomes), grew, level * MS, MS)
        }
    }

    #[test]
    fn a_queue_that_persists_at_a_lower_rate_belongs_to_others() {
        let mut path = Path::new();
        // 1 Mb/s through 100 ms of queue, then 0.5 Mb/s: the delivery rate follows the sending
        // rate.
        for _ in 0..6 {
            assert_eq!(path.report(10, 10, false, 100), None);
        }
        let verdicts: Vec<_> = (0..4).map(|_| path.report(20, 20, false, 98)).collect();
        // At 1 Mb/s the expected decrease is half of the time, less a seventh: 0.36 of 200 ms per
        // report.
        assert_eq!(verdicts[..2], [None, Some(Verdict::Competing)]);
    }

    #[test]
    fn a_queue_that_shrinks_as_expected_belongs_to_the_sender() {
        let mut path = Path::new();
        for _ in 0..6 {
            path.report(10, 10, false, 150);
        }
        // Half of the rate is sent; delivery continues at 1 Mb/s while the queue lasts.
        assert_eq!(path.report(20, 10, false, 100), None);
        assert_eq!(path.report(20, 10, false, 50), Some(Verdict::Own));
    }

    #[test]
    fn sending_at_the_delivery_rate_gives_no_verdict() {
        let mut path = Path::new();
        for n in 0..60 {
            assert_eq!(path.report(10, 10, false, 100 + n % 3), None, "{n}");
        }
    }

    #[test]
    fn growth_of_the_queue_restarts_the_measurement() {
        let mut path = Path::new();
        for _ in 0..6 {
            path.report(10, 10, false, 100);
        }
        // The capacity halves, and so does the sending rate: no decrease is expected.
        assert_eq!(path.report(20, 20, true, 110), None);
        for n in 0..20 {
            assert_eq!(path.report(20, 20, false, 110), None, "{n}");
        }
    }

    #[test]
    fn a_short_queue_is_not_tested() {
        let mut path = Path::new();
        for _ in 0..6 {
            path.report(10, 10, false, 25);
        }
        for n in 0..20 {
            assert_eq!(path.report(20, 20, false, 25), None, "{n}");
        }
    }
}
