//! Converts per-packet feedback (RFC 8888, transport-wide) to packet outcomes.

use core::time::Duration;

use super::config::Streams;
use super::contradictions::Contradictions;
use super::history::{FeedbackResult, History, Line, OVER_RANGE, Overlap, Stream};
use super::report_clock::ReportClock;
use crate::control::{Context, Ecn};
use crate::trace::{Event, FeedbackFault};
use crate::units::RemoteTime;
use crate::wire::ccfb::{Arrival, Ccfb, Offset};
use crate::wire::ntp::NtpShort;
use crate::wire::twcc::{Ticks, Twcc};

/// Validates reports. Nothing of a report is used, its timestamp included, unless a block is the first
/// to report the arrival of a packet that was sent.
#[derive(Debug, Default)]
pub struct FeedbackReader {
    clock: ReportClock,
    /// Reports that contradict each other.
    pub(super) contradictions: Contradictions,
    /// Buffer that is reused between reports.
    lines: Vec<Line>,
    /// Believed blocks: stream, and end of its entries in `lines`.
    blocks: Vec<(Stream, usize)>,
}

impl FeedbackReader {
    /// Applies one report to `history`. Rejected blocks are recorded as
    /// [`Event::FeedbackRejected`]; `None` if the whole report is rejected.
    pub fn read(
        &mut self,
        cx: &mut Context<'_>,
        report: &Ccfb<'_>,
        streams: Streams,
        history: &mut History,
        reordering: Duration,
    ) -> Option<FeedbackResult> {
        if !self.read_blocks(cx, report, streams, history) {
            reject(cx, FeedbackFault::NoArrival);
            return None;
        }
        let (from, timestamp) = (report.sender(), report.timestamp());
        let at = self.time(cx, (from, timestamp), history)?;
        let mut start = 0;
        for &(stream, end) in &self.blocks {
            if history.on_feedback(cx.now, stream, at, &self.lines[start..end]) {
                reject(cx, FeedbackFault::EcnMangled);
            }
            start = end;
        }
        Some(history.settle(cx.now, at, reordering))
    }

    /// Compares the valid blocks with earlier reports. Returns the time of the report, or records why it
    /// is rejected.
    fn time(
        &mut self,
        cx: &mut Context<'_>,
        (from, timestamp): (u32, NtpShort),
        history: &History,
    ) -> Option<RemoteTime> {
        let expected = self.clock.expected(cx.now, from, timestamp);
        let (mut overlap, mut start) = (Overlap::default(), 0);
        for &(stream, end) in &self.blocks {
            let lines = &self.lines[start..end];
            history.compare(stream, expected, lines, &mut overlap);
            start = end;
        }
        if overlap.news == 0 {
            // A copy, or overtaken by a later one.
            reject(cx, FeedbackFault::Stale);
            return None;
        }
        if overlap.is_contradiction() {
            self.contradictions.add(cx.now);
        }
        let at = self.clock.at(cx.now, from, timestamp, &overlap);
        at.map_err(|fault| reject(cx, fault)).ok()
    }

    /// Reads the valid blocks. Returns whether one of them reports the arrival of a packet that was
    /// sent.
    fn read_blocks(
        &mut self,
        cx: &mut Context<'_>,
        report: &Ccfb<'_>,
        streams: Streams,
        history: &History,
    ) -> bool {
        self.lines.clear();
        self.blocks.clear();
        let mut proven = false;
        for block in report.blocks() {
            let stream = match block.ssrc {
                ssrc if ssrc == streams.media_ssrc => Stream::Media,
                ssrc if ssrc == streams.repair_ssrc => Stream::Repair,
                ssrc if ssrc == streams.parity_ssrc => Stream::Parity,
                // Its clock is another one.
                ssrc if ssrc == streams.probe_ssrc => continue,
                _ => {
                    reject(cx, FeedbackFault::UnknownSource);
                    continue;
                }
            };
            let start = self.lines.len();
            self.lines.extend(block.packets().map(|packet| Line {
                seq: packet.sequence,
                received: match packet.arrival {
                    Arrival::NotReceived => None,
                    Arrival::Received { ecn, offset } => Some((time_since_arrival(offset), ecn)),
                },
            }));
            match history.check(stream, &self.lines[start..]) {
                Ok(known) => {
                    proven |= known;
                    self.blocks.push((stream, self.lines.len()));
                }
                Err(fault) => {
                    self.lines.truncate(start);
                    reject(cx, fault);
                }
            }
        }
        proven
    }

    /// Applies a transport-wide report to `history`. It has no timestamp: the time of the report is
    /// that of its newest arrival, so the round-trip time includes the receiver's holding time.
    /// `None` if the report is rejected, which is recorded as [`Event::FeedbackRejected`].
    pub fn read_transport(
        &mut self,
        cx: &mut Context<'_>,
        report: &Twcc<'_>,
        streams: Streams,
        history: &mut History,
        reordering: Duration,
    ) -> Option<FeedbackResult> {
        if !streams.ssrcs().contains(&report.media()) {
            reject(cx, FeedbackFault::UnknownSource);
            return None;
        }
        let latest = report.packets().filter_map(|packet| packet.arrival).max();
        let latest = latest.unwrap_or(Ticks(0));
        self.lines.clear();
        self.lines.extend(report.packets().map(|packet| Line {
            seq: packet.sequence,
            received: packet.arrival.map(|at| {
                let ago = latest.0.saturating_sub(at.0).max(0).unsigned_abs();
                let ago = Duration::from_nanos(ago * Ticks::NANOS);
                (Some(ago), Ecn::NotEct)
            }),
        }));
        let proven = history.check(Stream::Transport, &self.lines);
        let proven = proven.and_then(|proven| proven.then_some(()).ok_or(FeedbackFault::NoArrival));
        proven.map_err(|fault| reject(cx, fault)).ok()?;
        self.blocks.clear();
        self.blocks.push((Stream::Transport, self.lines.len()));
        let at = self.time(cx, (report.sender(), timestamp(latest)), history)?;
        history.on_feedback(cx.now, Stream::Transport, at, &self.lines);
        Some(history.settle(cx.now, at, reordering))
    }

    /// Forgets all reporters, e.g. after a BYE.
    pub fn forget_reporters(&mut self) {
        self.clock = ReportClock::default();
        self.contradictions = Contradictions::default();
    }
}

/// The 16 low bits of the seconds, and 16 bits of their fraction.
fn timestamp(at: Ticks) -> NtpShort {
    // 4,000 units per second; the numbers of 33 bits and 16 bits fit into 64 bits.
    NtpShort((at.0.saturating_mul(1 << 16).div_euclid(4_000)) as u32)
}

/// Records rejected feedback.
pub(super) fn reject(cx: &mut Context<'_>, cause: FeedbackFault) {
    cx.trace.record(cx.now, Event::FeedbackRejected { cause });
}

/// Time from an arrival to the report timestamp; `None` if it is unknown. That is mostly an arrival
/// just after the timestamp.
pub(super) fn time_since_arrival(offset: Offset) -> Option<Duration> {
    let is_known = offset != Offset::UNAVAILABLE;
    // Otherwise the packet arrived too long ago for its arrival time to matter.
    is_known.then(|| offset.as_span().unwrap_or(OVER_RANGE))
}

#[cfg(test)]
mod tests;
