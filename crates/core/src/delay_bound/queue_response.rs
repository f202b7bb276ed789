//! Whether a queue answers to what we send.

use core::time::Duration;
use std::collections::VecDeque;

use crate::control::{Fate, Outcome, Report};
use crate::units::{Bytes, Rate, Time, nanos};

/// Compares how a queue shrinks with how it should if it were ours.
///
/// A queue of ours is served at what is delivered while it lasts, whatever we send meanwhile. So
/// when less is sent than was delivered of late, by a seventh or more, it shrinks by what is
/// missing. That is added up; once enough of it is due the queue has answered, or has not.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueResponse {
    /// When the newest packet that a report spoke of was sent.
    sent: Option<Time>,
    /// What is delivered, and since when, by the clock of the receiver.
    served: Option<(Bytes, u64)>,
    /// What was delivered of late while there was a queue, oldest first.
    rates: VecDeque<(Time, Rate)>,
    trial: Option<Trial>,
}

/// Whose queue it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It shrank by a third or more of what was due.
    Ours,
    /// It did not.
    Others,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    begun: Time,
    /// The queue then, ns.
    level: i64,
    /// By how much it should have shrunk since, ns.
    due: i64,
}

impl QueueResponse {
    /// When the newest packet that a report spoke of was sent.
    pub(super) fn sent(&self) -> Option<Time> {
        self.sent
    }

    /// A report, at which the queue was `level`, ours or not, in ns, which wobbles by
    /// `deviation`. If it `grew` all begins anew, since it may be served at another rate than before.
    pub(super) fn hear(
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
            self.trial = None;
            self.served = None;
            return None;
        }
        let capacity = self.served_at(now, delivered(report), arrived)?;
        let begun = Trial {
            begun: now,
            level,
            due: 0,
        };
        let trial = self.trial.get_or_insert(begun);
        let needs = nanos(size / capacity.max(Rate::bps(1))).min(i64::MAX as u64) as i64;
        trial.due = trial.due.saturating_add(span - span / SLACK - needs);
        let Trial {
            begun,
            level: first,
            due,
        } = *trial;
        let enough = due >= ENOUGH + ENOUGH_DEVIATIONS * deviation;
        let short = first < least(deviation);
        if enough || short || due < 0 || now.since(begun) > MEMORY {
            self.trial = None;
        }
        if !enough || short {
            return None;
        }
        let answered = first - level >= due.min(first) / ANSWER;
        Some(if answered {
            Verdict::Ours
        } else {
            Verdict::Others
        })
    }

    /// How fast a queue is served that is ours: the most that was delivered of it lately.
    fn served_at(&mut self, now: Time, size: Bytes, arrived: u64) -> Option<Rate> {
        let (sum, since) = self.served.get_or_insert((Bytes::ZERO, arrived));
        if arrived > *since {
            *sum += size;
            let over = Duration::from_nanos(arrived - *since);
            if over >= KNOWN {
                self.rates.push_back((now, *sum / over));
                self.served = Some((Bytes::ZERO, arrived));
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

    /// How much was sent of what the report speaks of, and in which time, ns.
    fn sent_since(&mut self, report: &Report<'_>) -> (Bytes, i64) {
        let new = |fate: &&Fate| self.sent.is_none_or(|sent| fate.sent > sent);
        let size = report.fates.iter().filter(new).map(|f| f.size).sum();
        let newest = report.fates.iter().map(|f| f.sent).max().max(self.sent);
        let before = core::mem::replace(&mut self.sent, newest);
        let span = before.zip(newest).map(|(from, to)| nanos(to.since(from)));
        (size, span.map_or(0, |ns| ns.min(i64::MAX as u64) as i64))
    }
}

/// A queue that is shorter may be the grain of packets and jitter, ns.
pub(super) fn least(deviation: i64) -> i64 {
    LARGE + 3 * deviation
}

fn delivered(report: &Report<'_>) -> Bytes {
    let arrived = |fate: &&Fate| matches!(fate.outcome, Outcome::Received { .. });
    report.fates.iter().filter(arrived).map(|f| f.size).sum()
}

fn last_arrival(report: &Report<'_>) -> Option<u64> {
    let at = |fate: &Fate| match fate.outcome {
        Outcome::Received { at, .. } => Some(at.0),
        Outcome::Lost => None,
    };
    report.fates.iter().filter_map(at).max()
}

/// A frame at 30 a second.
const LARGE: i64 = 30_000_000;
/// Seven frames or eight, so that one more or less makes no more than a seventh.
const KNOWN: Duration = Duration::from_millis(250);
/// The largest of twelve such rates is above what is usual by about that much, too.
const SLACK: i64 = 7;
/// What was delivered longer ago was perhaps delivered by another path.
const MEMORY: Duration = Duration::from_secs(3);
/// With 40 ms a group of calls that all give way, one after the other, is taken for one that does
/// not (RFC 8867 section 5.4); with 120 ms it is not in any seed.
const ENOUGH: i64 = 120_000_000;
/// The median of five delays wobbles by half of what one does, and two are compared.
const ENOUGH_DEVIATIONS: i64 = 3;
/// Less than a third of what is due is what a TCP transfer gives way by, which has the more of
/// the queue the less we have.
const ANSWER: i64 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Ecn, FlowId};
    use crate::units::RemoteTime;

    const MS: i64 = 1_000_000;

    /// Ten packets of 1250 bytes that leave `gap` ms apart and arrive at `arrivals` ms apart.
    struct Path {
        trials: QueueResponse,
        seq: u64,
        sent_ms: u64,
        arrived_ms: u64,
    }

    impl Path {
        fn new() -> Self {
            Self {
                trials: QueueResponse::default(),
                seq: 0,
                sent_ms: 1_000,
                arrived_ms: 1_200,
            }
        }

        fn report(&mut self, gap: u64, arrivals: u64, grew: bool, level: i64) -> Option<Verdict> {
            let mut fates = vec![];
            for _ in 0..10 {
                self.seq += 1;
                self.sent_ms += gap;
                self.arrived_ms += arrivals;
                fates.push(Fate {
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
            self.trials
                .hear(now, &Report::new(&fates), grew, level * MS, MS)
        }
    }

    #[test]
    fn a_queue_that_stays_while_less_is_sent_is_held_by_others() {
        let mut path = Path::new();
        // 1 Mb/s through 100 ms of queue, then 0.5 Mb/s: what arrives follows what is sent.
        for _ in 0..6 {
            assert_eq!(path.report(10, 10, false, 100), None);
        }
        let verdicts: Vec<_> = (0..4).map(|_| path.report(20, 20, false, 98)).collect();
        // At 1 Mb/s half of the time is due, less a seventh: 0.36 of 200 ms in each report.
        assert_eq!(verdicts[..2], [None, Some(Verdict::Others)]);
    }

    #[test]
    fn a_queue_that_shrinks_by_what_is_missing_is_ours() {
        let mut path = Path::new();
        for _ in 0..6 {
            path.report(10, 10, false, 150);
        }
        // Half of it is sent, and arrives at 1 Mb/s as long as there is a queue.
        assert_eq!(path.report(20, 10, false, 100), None);
        assert_eq!(path.report(20, 10, false, 50), Some(Verdict::Ours));
    }

    #[test]
    fn as_much_as_is_carried_tells_nothing() {
        let mut path = Path::new();
        for n in 0..60 {
            assert_eq!(path.report(10, 10, false, 100 + n % 3), None, "{n}");
        }
    }

    #[test]
    fn a_queue_that_grows_begins_anew() {
        let mut path = Path::new();
        for _ in 0..6 {
            path.report(10, 10, false, 100);
        }
        // The path fell to a half, and so did what is sent: nothing is due.
        assert_eq!(path.report(20, 20, true, 110), None);
        for n in 0..20 {
            assert_eq!(path.report(20, 20, false, 110), None, "{n}");
        }
    }

    #[test]
    fn a_short_queue_is_not_tried() {
        let mut path = Path::new();
        for _ in 0..6 {
            path.report(10, 10, false, 25);
        }
        for n in 0..20 {
            assert_eq!(path.report(20, 20, false, 25), None, "{n}");
        }
    }
}
