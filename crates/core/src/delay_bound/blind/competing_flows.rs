//! Detection of competing flows that hold the queue.

use core::time::Duration;

use super::queue_response::{QueueResponse, Verdict, least};
use crate::control::Report;
use crate::units::Time;

/// Detects whether the queue is held by a competing flow that does not yield to delay, such as TCP.
///
/// Sending less does not shorten such a queue, and a sender that yields to it ends without any
/// rate. [`QueueResponse`] detects it where the rate varies. At the floor the rate cannot be
/// lowered; a queue that persists there is treated as held by others, and the response to the
/// higher rate confirms or refutes this. After [`HOLD`] the sender lowers its rate for a moment to
/// test again.
#[derive(Clone, Debug, Default)]
pub(super) struct CompetingFlows {
    response: QueueResponse,
    /// Time of the next test while competing flows are detected.
    next_test: Option<Time>,
    at_floor_since: Option<FloorQueue>,
}

/// State of the queue at a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueState {
    /// Total queueing delay, ns.
    pub(super) level: i64,
    /// Standard deviation of that delay, ns.
    pub(super) deviation: i64,
    /// The queue grew by more than noise.
    pub(super) grew: bool,
    /// The sender is at its lowest rate.
    pub(super) at_floor: bool,
}

/// Change of the detector's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// Competing flows hold the queue: it did not shrink when less was sent.
    Unresponsive,
    /// The queue persists at the floor, so competing flows are assumed.
    Persistent,
    /// The queue responds again, or is empty.
    Settled,
}

/// A queue that exists while the sender is at its lowest rate.
#[derive(Clone, Copy, Debug)]
struct FloorQueue {
    /// Only packets sent after this time count.
    since: Time,
    /// Queueing delay at that time, ns.
    level: i64,
}

impl CompetingFlows {
    /// Whether competing flows are detected.
    pub(super) fn is_detected(&self) -> bool {
        self.next_test.is_some()
    }

    /// Whether the sender is to lower its rate for a test.
    pub(super) fn is_testing(&self, now: Time) -> bool {
        self.next_test.is_some_and(|at| now >= at)
    }

    /// Processes a report.
    pub(super) fn on_report(
        &mut self,
        now: Time,
        report: &Report<'_>,
        state: QueueState,
    ) -> Option<Transition> {
        let QueueState {
            level, deviation, ..
        } = state;
        let verdict = self
            .response
            .on_report(now, report, state.grew, level, deviation);
        let Some(next_test) = self.next_test else {
            let transition = if verdict == Some(Verdict::Competing) {
                Transition::Unresponsive
            } else if self.persists_at_floor(now, state) {
                Transition::Persistent
            } else {
                return None;
            };
            self.next_test = Some(now + HOLD);
            self.at_floor_since = None;
            return Some(transition);
        };
        if verdict == Some(Verdict::Competing) || now > next_test + TEST_TIMEOUT {
            self.next_test = Some(now + HOLD);
            return None;
        }
        let over = verdict == Some(Verdict::Own) || level < least(deviation) / 2;
        if now < next_test || !over {
            return None;
        }
        self.next_test = None;
        Some(Transition::Settled)
    }

    /// Whether the queue persists while the sender is at its lowest rate.
    fn persists_at_floor(&mut self, now: Time, state: QueueState) -> bool {
        let level = state.level;
        let least = least(state.deviation);
        if !state.at_floor || level < least {
            self.at_floor_since = None;
            return false;
        }
        let at_floor_since = self
            .at_floor_since
            .get_or_insert(FloorQueue { since: now, level });
        let sent = self.response.sent().unwrap_or(Time::ZERO);
        if sent < at_floor_since.since {
            at_floor_since.level = level;
        } else if level < at_floor_since.level - least {
            *at_floor_since = FloorQueue { since: sent, level };
        }
        sent.since(at_floor_since.since) >= PERSISTENT_AFTER
    }
}

/// A TCP transfer usually lasts longer; a test costs the data of 0.3 s.
const HOLD: Duration = Duration::from_secs(8);
/// A test without a result after this time is repeated after [`HOLD`].
const TEST_TIMEOUT: Duration = Duration::from_millis(1_500);
/// A queue of this sender that does not shrink in that time at the floor would never drain.
const PERSISTENT_AFTER: Duration = Duration::from_millis(1_500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Ecn, FlowId, Outcome, PacketOutcome};
    use crate::units::{Bytes, RemoteTime};

    /// Packets of 1250 bytes delayed by 100 ms in a queue of other flows; returns the transitions
    /// with their times in ms.
    fn feed(
        detector: &mut CompetingFlows,
        from: u64,
        to: u64,
        gap: u64,
        at_floor: bool,
    ) -> Vec<(u64, Transition)> {
        let mut transitions = vec![];
        for start in (from..to).step_by(100) {
            let outcomes: Vec<PacketOutcome> = (start..start + 100)
                .step_by(gap as usize)
                .map(|ms| PacketOutcome {
                    flow: FlowId(0),
                    seq: ms,
                    size: Bytes(1_250),
                    sent: Time::from_millis(ms),
                    outcome: Outcome::Received {
                        at: RemoteTime((ms + 120) * 1_000_000),
                        ecn: Ecn::NotEct,
                    },
                })
                .collect();
            let now = start + 240;
            let state = QueueState {
                level: 100_000_000,
                deviation: 1_000_000,
                grew: false,
                at_floor,
            };
            let transition =
                detector.on_report(Time::from_millis(now), &Report::new(&outcomes), state);
            transitions.extend(transition.map(|t| (now, t)));
        }
        transitions
    }

    #[test]
    fn an_unresponsive_queue_is_detected_and_tested_again() {
        let mut detector = CompetingFlows::default();
        assert_eq!(feed(&mut detector, 0, 1_000, 10, false), []);
        let transitions = feed(&mut detector, 1_000, 2_000, 20, false);
        assert!(
            matches!(transitions[..], [(1_000..1_900, Transition::Unresponsive)]),
            "{transitions:?}"
        );
        let at = Time::from_millis(transitions[0].0);
        assert!(detector.is_detected() && !detector.is_testing(at));
        assert!(detector.is_testing(Time::from_millis(2_240) + HOLD));
        // The rate stays the same: no verdict, and HOLD starts again after the timeout.
        assert_eq!(feed(&mut detector, 2_000, 15_000, 20, false), []);
        assert!(detector.is_detected() && !detector.is_testing(Time::from_millis(15_240)));
    }

    #[test]
    fn a_queue_that_persists_at_the_floor_is_detected() {
        let mut detector = CompetingFlows::default();
        let transitions = feed(&mut detector, 0, 3_000, 20, true);
        // Counted from the first report, for packets sent after it.
        assert_eq!(transitions, [(1_940, Transition::Persistent)]);
    }

    #[test]
    fn an_empty_queue_ends_the_detection_at_the_next_test() {
        let mut detector = CompetingFlows::default();
        feed(&mut detector, 0, 3_000, 20, true);
        assert!(detector.is_detected());
        let gone = QueueState {
            level: 0,
            deviation: 1_000_000,
            grew: false,
            at_floor: false,
        };
        let mut on_report = |ms| detector.on_report(Time::from_millis(ms), &Report::new(&[]), gone);
        assert_eq!(
            (on_report(9_000), on_report(10_000)),
            (None, Some(Transition::Settled))
        );
        assert!(!detector.is_detected());
    }
}
