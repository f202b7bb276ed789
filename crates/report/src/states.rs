//! States of a sender, as intervals of time.

use tidegate_core::trace::Event;
use tidegate_record::metrics::{self, FrameOutcome};
use tidegate_record::{EventRow, FlowRun, Run};

/// Intervals, in seconds, in which a flow was in a state of interest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct States {
    /// Slow start.
    pub(super) slow_start: Vec<(f64, f64)>,
    /// Competing traffic held the queue of the path.
    pub(super) contested: Vec<(f64, f64)>,
    /// No rate met the delay bound.
    pub(super) infeasible: Vec<(f64, f64)>,
    /// No feedback: the path was considered dead.
    pub(super) blackout: Vec<(f64, f64)>,
    /// The circuit breaker stopped the stream.
    pub(super) stopped: Vec<(f64, f64)>,
}

/// States of `flow` until `end`, the end of the run.
pub(super) fn states(run: &Run, flow: &FlowRun, end: f64) -> States {
    let rows: Vec<&EventRow> = run.events_of(&flow.info.name).collect();
    let began = flow.packets.first().map(|row| row.sent.as_secs_f64());
    let began = began.or_else(|| rows.first().map(|row| row.at.as_secs_f64()));
    let mut states = States::default();
    let (mut tight, mut dead, mut held) = (Open::default(), Open::default(), Open::default());
    let mut others = Open::default();
    let mut starting = began;
    for row in rows {
        let at = row.at.as_secs_f64();
        match row.event {
            Event::SlowStartEnded { .. } => {
                states
                    .slow_start
                    .extend(starting.take().map(|from| (from, at)));
            }
            Event::Plan { feasible, .. } => tight.set(!feasible, at, &mut states.infeasible),
            Event::QueueContested => others.set(true, at, &mut states.contested),
            Event::QueueSettled => others.set(false, at, &mut states.contested),
            Event::BlackoutBegan => dead.set(true, at, &mut states.blackout),
            Event::BlackoutEnded { .. } => dead.set(false, at, &mut states.blackout),
            Event::BreakerTripped { .. } => held.set(true, at, &mut states.stopped),
            Event::BreakerResumed => held.set(false, at, &mut states.stopped),
            _ => {}
        }
    }
    others.set(false, end, &mut states.contested);
    tight.set(false, end, &mut states.infeasible);
    dead.set(false, end, &mut states.blackout);
    held.set(false, end, &mut states.stopped);
    states
}

/// Start of a state that may be open.
#[derive(Default)]
struct Open(Option<f64>);

impl Open {
    fn set(&mut self, on: bool, at: f64, spans: &mut Vec<(f64, f64)>) {
        if on {
            self.0.get_or_insert(at);
        } else {
            spans.extend(self.0.take().map(|from| (from, at)));
        }
    }
}

/// Intervals, in seconds, in which the picture was frozen, on the time axis of capture like all
/// data about frames.
pub(super) fn frozen(flow: &FlowRun, stories: &[FrameOutcome]) -> Vec<(f64, f64)> {
    let (Some(rate), Some(first)) = (flow.info.frame_rate, stories.first()) else {
        return Vec::new();
    };
    let origin = first.captured.as_secs_f64() - rate.at(first.frame).as_secs_f64();
    let at = |frame: u64| origin + rate.at(frame).as_secs_f64();
    let freezes = metrics::freezes(flow, stories).unwrap_or_default();
    let spans = freezes.into_iter().map(|(from, to)| (at(from), at(to)));
    spans.collect()
}

/// Merges overlapping and adjacent intervals; the result is in order of time.
pub(super) fn joined(mut spans: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for (from, to) in spans {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// Times of those events of a flow that `pick` selects, in seconds.
pub(super) fn moments(run: &Run, flow: &str, pick: impl Fn(&Event) -> bool) -> Vec<f64> {
    let rows = run.events_of(flow).filter(|row| pick(&row.event));
    rows.map(|row| row.at.as_secs_f64()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_touch_are_one() {
        let spans = vec![(4.0, 5.0), (0.0, 1.0), (1.0, 2.0), (0.5, 0.7)];
        assert_eq!(joined(spans), [(0.0, 2.0), (4.0, 5.0)]);
    }
}
