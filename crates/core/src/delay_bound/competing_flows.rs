//! Whether others hold the queue.

use core::time::Duration;

use super::queue_response::{QueueResponse, Verdict, least};
use crate::control::Report;
use crate::units::Time;

/// Knows whether the queue is held by somebody who does not give way to delay, as a TCP transfer.
///
/// To send less does not shorten such a queue, and somebody who does so all the same is left with
/// nothing. It is found out by [`QueueResponse`] where the rate varies; where it is at the floor and cannot
/// go lower, a queue that stays is given up as well, and what is sent then shows whether that was
/// right. After a while less is sent for a moment, to see whether it is still so.
#[derive(Clone, Debug, Default)]
pub(super) struct CompetingFlows {
    trials: QueueResponse,
    /// Others hold the queue, and will be tried again at this time.
    retry: Option<Time>,
    floored: Option<Floored>,
}

/// What a report says of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// All of it, ours or not, ns.
    pub(super) level: i64,
    /// By how much that wobbles, ns.
    pub(super) deviation: i64,
    /// It grew by more than noise does.
    pub(super) grew: bool,
    /// We send as little as we can.
    pub(super) at_floor: bool,
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Others hold the queue: it did not answer when less was sent.
    Lost,
    /// It stays although less cannot be sent: perhaps others hold it.
    GivenUp,
    /// It answers again, or is gone.
    Settled,
}

/// As little is sent as can be, and there is a queue.
#[derive(Clone, Copy, Debug)]
struct Floored {
    /// Packets that were sent later count.
    since: Time,
    /// The queue then, ns.
    level: i64,
}

impl CompetingFlows {
    /// Others hold the queue.
    pub(super) fn is_on(&self) -> bool {
        self.retry.is_some()
    }

    /// And less is to be sent for a moment to see whether that is so.
    pub(super) fn is_tried(&self, now: Time) -> bool {
        self.retry.is_some_and(|at| now >= at)
    }

    /// A report came.
    pub(super) fn hear(&mut self, now: Time, report: &Report<'_>, heard: Heard) -> Option<Turn> {
        let Heard {
            level, deviation, ..
        } = heard;
        let verdict = self.trials.hear(now, report, heard.grew, level, deviation);
        let Some(retry) = self.retry else {
            let turn = if verdict == Some(Verdict::Others) {
                Turn::Lost
            } else if self.stays(now, heard) {
                Turn::GivenUp
            } else {
                return None;
            };
            self.retry = Some(now + HOLD);
            self.floored = None;
            return Some(turn);
        };
        if verdict == Some(Verdict::Others) || now > retry + TRIED {
            self.retry = Some(now + HOLD);
            return None;
        }
        let over = verdict == Some(Verdict::Ours) || level < least(deviation) / 2;
        if now < retry || !over {
            return None;
        }
        self.retry = None;
        Some(Turn::Settled)
    }

    /// Whether a queue stays while as little is sent as can be.
    fn stays(&mut self, now: Time, heard: Heard) -> bool {
        let level = heard.level;
        let least = least(heard.deviation);
        if !heard.at_floor || level < least {
            self.floored = None;
            return false;
        }
        let floored = self.floored.get_or_insert(Floored { since: now, level });
        let sent = self.trials.sent().unwrap_or(Time::ZERO);
        if sent < floored.since {
            floored.level = level;
        } else if level < floored.level - least {
            *floored = Floored { since: sent, level };
        }
        sent.since(floored.since) >= STAYS
    }
}

/// A TCP transfer lasts longer, and the trial costs three tenths of a second's worth in it.
const HOLD: Duration = Duration::from_secs(8);
/// A trial that has no result by then is left for the next time.
const TRIED: Duration = Duration::from_millis(1_500);
/// A queue of ours that loses nothing in that time at the floor would be there for ever.
const STAYS: Duration = Duration::from_millis(1_500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Ecn, Fate, FlowId, Outcome};
    use crate::units::{Bytes, RemoteTime};

    /// Packets of 1250 bytes that others' queue of 100 ms delays, and what changed at which ms.
    fn play(
        contest: &mut CompetingFlows,
        from: u64,
        to: u64,
        gap: u64,
        at_floor: bool,
    ) -> Vec<(u64, Turn)> {
        let mut turns = vec![];
        for start in (from..to).step_by(100) {
            let fates: Vec<Fate> = (start..start + 100)
                .step_by(gap as usize)
                .map(|ms| Fate {
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
            let heard = Heard {
                level: 100_000_000,
                deviation: 1_000_000,
                grew: false,
                at_floor,
            };
            let turn = contest.hear(Time::from_millis(now), &Report::new(&fates), heard);
            turns.extend(turn.map(|t| (now, t)));
        }
        turns
    }

    #[test]
    fn a_queue_that_does_not_answer_is_lost_and_tried_again() {
        let mut contest = CompetingFlows::default();
        assert_eq!(play(&mut contest, 0, 1_000, 10, false), []);
        let turns = play(&mut contest, 1_000, 2_000, 20, false);
        assert!(
            matches!(turns[..], [(1_000..1_900, Turn::Lost)]),
            "{turns:?}"
        );
        let at = Time::from_millis(turns[0].0);
        assert!(contest.is_on() && !contest.is_tried(at));
        assert!(contest.is_tried(Time::from_millis(2_240) + HOLD));
        // As much as before: no verdict, and in the end another eight seconds.
        assert_eq!(play(&mut contest, 2_000, 15_000, 20, false), []);
        assert!(contest.is_on() && !contest.is_tried(Time::from_millis(15_240)));
    }

    #[test]
    fn a_queue_that_stays_at_the_floor_is_given_up() {
        let mut contest = CompetingFlows::default();
        let turns = play(&mut contest, 0, 3_000, 20, true);
        // From the first report on, and of what was sent later.
        assert_eq!(turns, [(1_940, Turn::GivenUp)]);
    }

    #[test]
    fn a_queue_that_is_gone_settles_it_when_it_is_tried() {
        let mut contest = CompetingFlows::default();
        play(&mut contest, 0, 3_000, 20, true);
        assert!(contest.is_on());
        let gone = Heard {
            level: 0,
            deviation: 1_000_000,
            grew: false,
            at_floor: false,
        };
        let mut hear = |ms| contest.hear(Time::from_millis(ms), &Report::new(&[]), gone);
        assert_eq!((hear(9_000), hear(10_000)), (None, Some(Turn::Settled)));
        assert!(!contest.is_on());
    }
}
