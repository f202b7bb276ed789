//! Converts RTCP receiver reports (RFC 3550 section 6.4) to packet outcomes, for peers without
//! per-packet feedback.

use core::time::Duration;

use super::history::{History, Learnt};
use crate::units::{Bytes, Rate, RemoteTime, Time, nanos};
use crate::wire::rtcp::ReportBlock;

/// Reads the report blocks of one receiver.
///
/// A block counts the losses up to the highest sequence number that arrived, and answers a sender
/// report. The delay of the packets between two blocks is interpolated between their two round-trip
/// times, so that a controller sees a queue grow, and a receive rate that is the mean of the
/// interval.
///
/// Reports are up to 6 s apart (RFC 3550 section 6.2, 5 s times 1.5 / 1.218), which is many round
/// trips. A controller that assumes one report per round trip may send any rate meanwhile, so
/// [`limit`](Self::limit) bounds the rate until the next report.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverReports {
    reporter: Option<u32>,
    cumulative_lost: i32,
    /// Departure time of the newest packet that was reported, and the delay assumed for it.
    newest: Option<(Time, Duration)>,
    last: Option<Time>,
    interval: Duration,
    limit: Rate,
    /// Bytes that arrived, and span of their departure, since the limit was last set.
    measured: (Bytes, Duration),
}

/// What one block shows.
#[derive(Debug)]
pub struct ReportedInterval {
    /// Outcomes of the packets since the last block.
    pub learnt: Learnt,
    /// Share of them that was lost, in 0..=1.
    pub loss: f64,
}

impl ReceiverReports {
    /// Rate on the wire from the first to the second report, and the lowest limit: half a megabit
    /// per second, which any access link of video carries. RFC 5348 section 4.2 allows a window of
    /// four packets per round trip, as if a report came after it.
    pub const FIRST_LIMIT: Rate = Rate::kbps(500);

    /// Before the first report.
    pub fn new() -> Self {
        Self {
            reporter: None,
            cumulative_lost: 0,
            newest: None,
            last: None,
            interval: Duration::ZERO,
            limit: Self::FIRST_LIMIT,
            measured: (Bytes::ZERO, Duration::ZERO),
        }
    }

    /// Maximum rate on the wire until the next report: twice the rate that has arrived in the
    /// last interval (RFC 5348 section 4.3).
    pub fn limit(&self) -> Rate {
        self.limit
    }

    /// Maximum interval of the last reports; zero before the first.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Processes a block of receiver `from` whose highest sequence number has passed
    /// [`History::check_highest`]. `started` is the departure time of the first packet, `rtt` the
    /// round-trip time to the receiver.
    pub fn on_block(
        &mut self,
        now: Time,
        from: u32,
        block: &ReportBlock,
        (started, rtt): (Time, Duration),
        history: &mut History,
    ) -> ReportedInterval {
        let highest = block.highest_sequence as u16;
        let known = self.reporter.replace(from) == Some(from);
        let lost = if known {
            let lost = block.cumulative_lost.saturating_sub(self.cumulative_lost);
            u64::try_from(lost).unwrap_or(0)
        } else {
            history.unresolved(highest) * u64::from(block.fraction_lost) / 256
        };
        self.cumulative_lost = block.cumulative_lost;
        let (began, delay) = self.newest.unwrap_or((started, rtt));
        let newest = history.check_highest(highest).ok().flatten();
        let end = newest.unwrap_or(began).max(began);
        let span = nanos(end.since(began)).max(1);
        let arrival = |sent: Time| {
            let part = nanos(sent.since(began)).min(span);
            let (from, to) = (i128::from(nanos(delay)), i128::from(nanos(rtt)));
            let delay = from + (to - from) * i128::from(part) / i128::from(span);
            RemoteTime(sent.as_nanos().saturating_add(delay as u64))
        };
        let learnt = history.settle_evenly(now, highest, lost, arrival);
        if learnt.fates.is_empty() {
            return ReportedInterval { learnt, loss: 0.0 };
        }
        self.newest = Some((end, rtt));
        let gap = now.since(self.last.replace(now).unwrap_or(started));
        // The largest of about eight intervals.
        self.interval = gap.max(self.interval * 7 / 8);
        let received = learnt.fates.iter().filter(|f| f.outcome.is_received());
        let (mut packets, mut bytes) = (0_usize, Bytes::ZERO);
        for fate in received {
            packets += 1;
            bytes += fate.size;
        }
        self.measure(bytes, Duration::from_nanos(span));
        let loss = 1.0 - packets as f64 / learnt.fates.len() as f64;
        ReportedInterval { learnt, loss }
    }

    /// Starts again at the first limit: the path is unknown.
    pub fn restart(&mut self) {
        self.limit = Self::FIRST_LIMIT;
        self.measured = (Bytes::ZERO, Duration::ZERO);
        (self.newest, self.last) = (None, None);
    }

    /// Sets the limit from the bytes that arrived, once they span [`SPAN`].
    fn measure(&mut self, bytes: Bytes, span: Duration) {
        self.measured.0 += bytes;
        self.measured.1 += span;
        let (bytes, span) = self.measured;
        if span >= SPAN {
            self.limit = (bytes / span).scale(2, 1).max(Self::FIRST_LIMIT);
            self.measured = (Bytes::ZERO, Duration::ZERO);
        }
    }
}

/// Several frames at any usual rate. A shorter span measures single frames, and would let many
/// reports raise the limit quickly.
const SPAN: Duration = Duration::from_millis(200);

impl Default for ReceiverReports {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
