//! Outcomes of video frames.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::units::Time;

use super::super::manifest::Manifest;
use super::super::reader::FlowRun;
use super::super::rows::{FrameKind, PacketOutcome, PacketRow, ReceivedFrame};
use super::{difference, round};

/// Outcome of each frame of `flow`, in order of capture. Empty if packets arrived and no received
/// frames are recorded: then the outcomes are unknown.
pub fn frame_outcomes(flow: &FlowRun) -> Vec<FrameOutcome> {
    if flow.received.is_empty() && flow.packets.iter().any(|row| row.arrived.is_some()) {
        return Vec::new();
    }
    let decodable = decodable_at(&flow.received);
    let mut outcomes: Vec<FrameOutcome> = if flow.sent.is_empty() {
        captured_by_timestamps(flow, &decodable)
    } else {
        let sent = flow.sent.iter();
        sent.map(|row| FrameOutcome {
            frame: row.frame,
            captured: row.captured,
            delay: decodable
                .get(&row.frame)
                .map(|at| difference(*at, row.captured)),
            fate: if row.dropped.is_some() || row.kind == FrameKind::Skipped {
                FrameState::Dropped
            } else {
                FrameState::Lost
            },
        })
        .collect()
    };
    let smallest = outcomes.iter().filter_map(|s| s.delay).min().unwrap_or(0);
    // With a common clock, no frame arrives before its capture.
    let base = if has_one_clock(flow) { 0 } else { smallest };
    let bound = bound_nanos(flow);
    for outcome in &mut outcomes {
        outcome.delay = outcome.delay.map(|delay| (delay - base).max(0));
        if let Some(delay) = outcome.delay {
            let late = bound.is_some_and(|bound| delay > bound);
            outcome.fate = if late {
                FrameState::Late
            } else {
                FrameState::Delivered
            };
        }
    }
    // A sender over TCP records frames as they end: dropped frames come before those that still
    // wait.
    outcomes.sort_by_key(|outcome| outcome.frame);
    outcomes
}

/// Outcome of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameOutcome {
    /// Number of the frame.
    pub frame: u64,
    /// Time of capture; arrival of its first packet if the sender's rows are missing.
    pub captured: Time,
    /// Delay from capture to decodable, in ns; `None` if it was never decodable. Without a common
    /// clock: above the minimum of the flow.
    pub delay: Option<i64>,
    /// Final state of the frame.
    pub fate: FrameState,
}

/// Final state of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameState {
    /// Decodable within the delay bound. Without a bound, or with records of both ends and no common
    /// clock, any decodable frame.
    Delivered,
    /// Dropped by the sender, or never encoded.
    Dropped,
    /// Decodable after the delay bound.
    Late,
    /// Sent but never decodable.
    Lost,
}

/// Stories of the frames of `flow` that were captured in the measured interval of `manifest`, and
/// the range of their numbers; the full range if there are no outcomes at all.
pub(super) fn measured(
    manifest: &Manifest,
    flow: &FlowRun,
) -> (Vec<FrameOutcome>, RangeInclusive<u64>) {
    let mut outcomes = frame_outcomes(flow);
    let any = !outcomes.is_empty();
    outcomes.retain(|outcome| manifest.measures(outcome.captured));
    let nothing = any && outcomes.is_empty();
    let frames = if nothing { NOTHING } else { range(&outcomes) };
    (outcomes, frames)
}

/// Range of the frame numbers in `outcomes`; the full range if it is empty.
fn range(outcomes: &[FrameOutcome]) -> RangeInclusive<u64> {
    let ends = outcomes.first().zip(outcomes.last());
    ends.map_or(0..=u64::MAX, |(first, last)| first.frame..=last.frame)
}

/// Share of the savable frames in the measured interval of `manifest` that were on time, in 0..=1.
/// `None` if the run does not record it.
pub fn on_time_of_savable(manifest: &Manifest, flow: &FlowRun) -> Option<f64> {
    bound_nanos(flow)?;
    let (outcomes, frames) = measured(manifest, flow);
    if outcomes.is_empty() {
        return None;
    }
    let savable = flow.savable.iter().filter(|row| row.savable);
    let savable = savable.map(|row| row.frame);
    let savable: BTreeSet<u64> = savable.filter(|frame| frames.contains(frame)).collect();
    if savable.is_empty() {
        return None;
    }
    let saved = outcomes
        .iter()
        .filter(|s| s.fate == FrameState::Delivered && savable.contains(&s.frame))
        .count();
    Some(round(saved as f64 / savable.len() as f64, 6))
}

/// Each freeze of `flow`: a picture displayed for more than max(3 frame intervals, 150 ms). Gives
/// the frame that was due at its start and the one that was due at its end. The wait for the first
/// picture and a freeze at the end count. Only frames in the range of `outcomes` count, or all
/// frames if it is empty. `None` if the received frames are unknown.
pub fn freezes(flow: &FlowRun, outcomes: &[FrameOutcome]) -> Option<Vec<(u64, u64)>> {
    let interval = flow.info.frame_rate?.interval();
    let limit = (interval * 3).max(SHORTEST_FREEZE);
    if is_unseen(flow) {
        return None;
    }
    let shown: Vec<(u64, Option<u64>)> = if flow.shown.is_empty() {
        let on_time = |s: &FrameOutcome| (s.fate == FrameState::Delivered).then_some(s.frame);
        outcomes.iter().map(|s| (s.frame, on_time(s))).collect()
    } else {
        let frames = range(outcomes);
        let rows = flow.shown.iter();
        let rows = rows.filter(|row| frames.contains(&row.frame));
        rows.map(|row| (row.frame, row.shown_frame)).collect()
    };
    let (first, last) = (shown.first()?.0, shown.last()?.0);
    let mut freezes = Vec::new();
    let (mut since, mut picture) = (first, None);
    let mut gap = |from: u64, to: u64| {
        let slots = u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX);
        if interval.saturating_mul(slots) > limit {
            freezes.push((from, to));
        }
    };
    for (slot, on_screen) in shown {
        if on_screen.is_some() && on_screen != picture {
            gap(since, slot);
            (since, picture) = (slot, on_screen);
        }
    }
    gap(since, last + 1);
    Some(freezes)
}

/// Whether only the sender recorded the run, without feedback on arrivals.
fn is_unseen(flow: &FlowRun) -> bool {
    let is_unknown = |row: &PacketRow| row.outcome == PacketOutcome::Unknown;
    let nothing = flow.shown.is_empty() && flow.received.is_empty();
    !flow.info.one_clock && nothing && flow.packets.iter().all(is_unknown)
}

/// Time at which each decodable frame became decodable. A frame waits for its references, which are
/// all frames since the last key frame.
fn decodable_at(received: &[ReceivedFrame]) -> BTreeMap<u64, Time> {
    let mut rows: Vec<&ReceivedFrame> = received.iter().collect();
    rows.sort_by_key(|row| row.frame);
    let mut reference = Time::ZERO;
    let mut times = BTreeMap::new();
    for row in rows {
        if row.decodable
            && let Some(complete) = row.complete
        {
            if row.kind == FrameKind::Key {
                reference = Time::ZERO;
            }
            reference = reference.max(complete);
            times.insert(row.frame, reference);
        }
    }
    times
}

/// Stories from the receiver's records only: RTP timestamps give the capture times, but for a
/// constant.
fn captured_by_timestamps(flow: &FlowRun, decodable: &BTreeMap<u64, Time>) -> Vec<FrameOutcome> {
    let Some(origin) = flow.received.first().map(|row| row.rtp_timestamp) else {
        return Vec::new();
    };
    let received = flow.received.iter();
    received
        .map(|row| {
            // A signed difference is right across the wrap and for reordered rows.
            let ticks = row.rtp_timestamp.wrapping_sub(origin).cast_signed();
            let captured = i64::from(ticks) * 1_000_000_000 / VIDEO_CLOCK;
            let delay = decodable
                .get(&row.frame)
                .map(|at| at.as_nanos() as i64 - captured);
            FrameOutcome {
                frame: row.frame,
                captured: row.first,
                delay,
                fate: FrameState::Lost,
            }
        })
        .collect()
}

/// Whether sender and receiver share a clock, so that absolute delays are meaningful.
pub fn has_one_clock(flow: &FlowRun) -> bool {
    flow.info.one_clock && !flow.sent.is_empty()
}

/// Delay bound in ns. `None` without a bound, or if sender and receiver have recorded the flow with
/// clocks of their own. A receiver alone compares delays above the smallest with the bound, as its
/// jitter buffer does.
pub(super) fn bound_nanos(flow: &FlowRun) -> Option<i64> {
    let is_receiver = flow.sent.is_empty() && !flow.received.is_empty();
    let is_comparable = has_one_clock(flow) || is_receiver;
    let bound = flow.info.delay_bound.filter(|_| is_comparable)?;
    i64::try_from(bound.as_nanos()).ok()
}

#[expect(clippy::reversed_empty_ranges, reason = "it is to be empty")]
const NOTHING: RangeInclusive<u64> = 1..=0;

/// Shorter interruptions do not count as a freeze.
const SHORTEST_FREEZE: Duration = Duration::from_millis(150);

/// RTP clock rate of video, in Hz (RFC 6184 section 8.2.1).
const VIDEO_CLOCK: i64 = 90_000;
