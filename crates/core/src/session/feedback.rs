//! From RFC 8888 reports on the wire to fates.

use core::time::Duration;

use super::config::Streams;
use super::history::{History, Learnt, Line, Stream};
use crate::control::Cx;
use crate::trace::{Event, FeedbackFault};
use crate::wire::ccfb::{Arrival, Ccfb};
use crate::wire::ntp::RemoteClock;

/// Follows the receiver's clock and checks what its reports claim.
#[derive(Debug, Default)]
pub struct FeedbackReader {
    remote: RemoteClock,
    /// Kept to be used again.
    lines: Vec<Line>,
}

impl FeedbackReader {
    /// Takes one report into `history`; `None` when none of it was believed. What was not is
    /// recorded as [`Event::FeedbackRejected`].
    pub fn read(
        &mut self,
        cx: &mut Cx<'_>,
        report: &Ccfb<'_>,
        streams: Streams,
        history: &mut History,
        reordering: Duration,
    ) -> Option<Learnt> {
        let at = self.remote.at(report.timestamp());
        let mut believed = false;
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
                    // It came, so long ago that its time is of no use.
                    Arrival::Received { ecn, offset } => {
                        Some((offset.as_span().unwrap_or(UNKNOWN_OFFSET), ecn))
                    }
                },
            }));
            match history.on_feedback(stream, at, &self.lines) {
                Ok(()) => believed = true,
                Err(fault) => reject(cx, fault),
            }
        }
        believed.then(|| history.settle(cx.now, at, reordering))
    }
}

/// Records that feedback was not believed.
pub(super) fn reject(cx: &mut Cx<'_>, cause: FeedbackFault) {
    cx.trace.record(cx.now, Event::FeedbackRejected { cause });
}

/// Longer than the field of RFC 8888 can tell.
const UNKNOWN_OFFSET: Duration = Duration::from_secs(8);
