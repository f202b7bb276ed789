//! Converts RFC 8888 reports to packet fates.

use core::time::Duration;

use super::config::Streams;
use super::history::{History, Learnt, Line, Stream};
use crate::control::Context;
use crate::trace::{Event, FeedbackFault};
use crate::wire::ccfb::{Arrival, Ccfb};
use crate::wire::ntp::RemoteClock;

/// Unwraps the receiver's clock and validates its reports.
#[derive(Debug, Default)]
pub struct FeedbackReader {
    remote: RemoteClock,
    /// Buffer that is reused between reports.
    lines: Vec<Line>,
}

impl FeedbackReader {
    /// Applies one report to `history`. Rejected blocks are recorded as
    /// [`Event::FeedbackRejected`]; `None` if all are rejected.
    pub fn read(
        &mut self,
        cx: &mut Context<'_>,
        report: &Ccfb<'_>,
        streams: Streams,
        history: &mut History,
        reordering: Duration,
    ) -> Option<Learnt> {
        let at = self.remote.at(report.timestamp());
        let mut accepted = false;
        for block in report.blocks() {
            let stream = match block.ssrc {
                ssrc if ssrc == streams.media_ssrc => Stream::Media,
                ssrc if ssrc == streams.repair_ssrc => Stream::Repair,
                _ => {
                    reject(cx, FeedbackFault::UnknownSource);
                    continue;
                }
            };
            self.lines.clear();
            self.lines.extend(block.packets().map(|packet| Line {
                seq: packet.sequence,
                received: match packet.arrival {
                    Arrival::NotReceived => None,
                    // The packet arrived too long ago for its arrival time to matter.
                    Arrival::Received { ecn, offset } => {
                        Some((offset.as_span().unwrap_or(UNKNOWN_OFFSET), ecn))
                    }
                },
            }));
            match history.on_feedback(stream, at, &self.lines) {
                Ok(()) => accepted = true,
                Err(fault) => reject(cx, fault),
            }
        }
        accepted.then(|| history.settle(cx.now, at, reordering))
    }
}

/// Records rejected feedback.
pub(super) fn reject(cx: &mut Context<'_>, cause: FeedbackFault) {
    cx.trace.record(cx.now, Event::FeedbackRejected { cause });
}

/// Exceeds the range of the RFC 8888 offset field (7.997 s).
const UNKNOWN_OFFSET: Duration = Duration::from_secs(8);
