//! Converts RTCP receiver reports (RFC 3550 section 6.4) to packet outcomes, for peers without
//! per-packet feedback.

use core::time::Duration;

use super::history::{FeedbackResult, History};
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
/// trips, and a controller assumes one report per round trip. [`Bounds`] limit the changes of its
/// rate from one report to the next.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverReports {
    reporter: Option<u32>,
    cumulative_lost: i32,
    /// Departure time of the newest packet that was reported, and the delay assumed for it.
    newest: Option<(Time, Duration)>,
    last: Option<Time>,
    interval: Duration,
    bounds: Bounds,
    /// Rate that arrived at the last loss; `None` in slow start.
    full: Option<Rate>,
    /// The last report has lowered the rate.
    is_lowered: bool,
    /// Number of reports until the circuit breaker may trip again without stopping the stream.
    cautious: u8,
    /// Size of the next probe above that rate, in percent.
    probe: u64,
    /// Rate sent before the last report.
    sent: Rate,
    open: Traffic,
    raise: Option<Raise>,
}

/// Bounds of the rate on the wire until the next report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// A rate that the reports do not contradict.
    pub least: Rate,
    /// Increase over the rate that has arrived.
    pub most: Rate,
}

/// Rate above the one that the reports prove.
#[derive(Clone, Copy, Debug)]
struct Raise {
    from: Time,
    until: Time,
    /// Rate that the reports prove.
    proven: Rate,
    /// The bounds are those of the proven rate again.
    is_over: bool,
    /// Traffic of this time in the next report.
    traffic: Traffic,
}

/// Traffic since the bounds were last set.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    span: Duration,
    sent: Bytes,
    received: Bytes,
}

/// What one block shows.
#[derive(Debug)]
pub struct ReportedInterval {
    /// Outcomes of the packets since the last block.
    pub feedback: FeedbackResult,
    /// Share of them that was lost, in 0..=1.
    pub loss: f64,
}

impl ReceiverReports {
    /// Before the first report.
    pub fn new() -> Self {
        Self {
            reporter: None,
            cumulative_lost: 0,
            newest: None,
            last: None,
            interval: Duration::ZERO,
            bounds: FIRST,
            full: None,
            is_lowered: false,
            cautious: 0,
            probe: FIRST_PROBE,
            sent: Rate::ZERO,
            open: Traffic::default(),
            raise: None,
        }
    }

    /// The same with a rate that is known to be safe.
    pub fn starting_at(rate: Rate) -> Self {
        let (least, most) = (rate, rate);
        Self {
            bounds: Bounds { least, most },
            ..Self::new()
        }
    }

    /// Bounds until the next report.
    ///
    /// Before a loss of 1 %, both bounds are twice the rate that has arrived in the last
    /// interval, as in slow start (RFC 5348 section 4.3), and at least 1 Mb/s. The initial window
    /// of RFC 5348 section 4.2, four packets per round trip, is meant for reports once per round
    /// trip. It would be any rate on a short path, and too low a start on a long one.
    ///
    /// A loss fraction `l` lowers the rate by at most the factor `1 - √l` per report (Sisalem and
    /// Wolisz, "LDA+: A TCP-Friendly Adaptation Scheme for Multimedia Communication", 2000): most
    /// losses follow from the sender's own last increase, to which it could not react before the
    /// report. If reports are seldom, the rate is therefore again the one that has arrived after a fifth
    /// of their interval. After a loss, the rate grows at most half of the way to the rate that arrived at the
    /// loss, and then by a probe that doubles per report (Xu, Harfoush and Rhee, "Binary Increase
    /// Congestion Control for Fast Long-Distance Networks", 2004), so that the next losses are few.
    pub fn bounds(&self) -> Bounds {
        self.bounds
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
        let feedback = history.settle_evenly(now, highest, lost, arrival);
        if feedback.outcomes.is_empty() {
            return ReportedInterval {
                feedback,
                loss: 0.0,
            };
        }
        self.newest = Some((end, rtt));
        let gap = now.since(self.last.replace(now).unwrap_or(started));
        // The largest of about eight intervals.
        self.interval = gap.max(self.interval * 7 / 8);
        let mut packets = 0_usize;
        for packet in &feedback.outcomes {
            let is_received = packet.outcome.is_received();
            packets += usize::from(is_received);
            self.open.add(packet.size, is_received);
            if let Some(raise) = self.raise.as_mut().filter(|raise| raise.has(packet.sent)) {
                raise.traffic.add(packet.size, is_received);
                raise.traffic.span = packet.sent.since(raise.from);
            }
        }
        self.open.span += Duration::from_nanos(span);
        if self.open.span >= SPAN {
            self.set_bounds(now);
        }
        let loss = 1.0 - packets as f64 / feedback.outcomes.len() as f64;
        ReportedInterval { feedback, loss }
    }

    /// The stream continues after a pause in which nothing was sent. The pause is no part of an
    /// interval: the times of the last report move, so that what was sent between it and
    /// `last_media`, the departure of the last packet before the pause, still counts with its span.
    /// `timing` is that of [`on_block`](Self::on_block).
    pub fn on_pause(&mut self, now: Time, last_media: Time, timing: (Time, Duration)) {
        let (newest, delay) = self.newest.unwrap_or(timing);
        self.newest = Some((now.before(last_media.since(newest)), delay));
        let last = self.last.unwrap_or(timing.0);
        self.last = Some(now.before(last_media.since(last)));
    }

    /// Starts again: the path is unknown.
    pub fn restart(&mut self) {
        *self = Self {
            reporter: self.reporter,
            cumulative_lost: self.cumulative_lost,
            ..Self::new()
        };
    }

    /// Cuts the rate to a tenth of the rate before the last report.
    pub fn cut(&mut self) {
        let rate = self.sent.scale(1, 10);
        let (least, most) = (rate, rate);
        self.bounds = Bounds { least, most };
        self.is_lowered = true;
        self.cautious = CAUTIOUS_REPORTS;
    }

    /// A rate above the proven one has lasted for long enough.
    pub fn on_timeout(&mut self, now: Time) {
        if let Some(raise) = &mut self.raise
            && !raise.is_over
            && now >= raise.until
        {
            raise.is_over = true;
            let (least, most) = (raise.proven, raise.proven);
            self.bounds = Bounds { least, most };
        }
    }

    fn set_bounds(&mut self, now: Time) {
        let open = core::mem::take(&mut self.open);
        let (sent, mut arrived) = (open.sent / open.span, open.received / open.span);
        let loss = 1.0 - open.received.get() as f64 / open.sent.get().max(1) as f64;
        self.sent = sent;
        match self.raise.take().and_then(|raise| raise.result(&open)) {
            // The losses are those of the raised rate: the proven one stays.
            Some(Raised { proven, peak }) if loss >= SIGNIFICANT => {
                (self.full, self.probe) = (Some(peak), FIRST_PROBE);
                (self.is_lowered, arrived) = (false, proven);
                let (least, most) = (proven, proven);
                self.bounds = Bounds { least, most };
            }
            raised => {
                arrived = raised.map_or(arrived, |raised| raised.peak.max(arrived));
                self.set_bounds_of(loss, sent, arrived);
            }
        }
        let slow_start = if self.full.is_none() {
            FIRST.least
        } else {
            Rate::ZERO
        };
        let proven = arrived.max(slow_start);
        self.raise = (self.bounds.least > proven).then_some(Raise {
            from: now,
            until: if self.interval > SHORT {
                now + self.interval / RAISED_PART
            } else {
                Time::FAR
            },
            proven,
            is_over: false,
            traffic: Traffic::default(),
        });
    }

    fn set_bounds_of(&mut self, loss: f64, sent: Rate, arrived: Rate) {
        // Losses of the last round trip before a decrease say nothing of the present rate.
        let earlier = core::mem::take(&mut self.is_lowered);
        let tolerated = if earlier { EARLIER_LOSS } else { 0.0 };
        if loss >= SIGNIFICANT.max(tolerated) || loss > tolerated && self.full.is_some() {
            if !earlier {
                self.full = Some(arrived);
                self.is_lowered = true;
            }
            self.probe = FIRST_PROBE;
            let least = Rate::from_f64(sent.as_f64() * (1.0 - loss.sqrt()));
            self.bounds = Bounds {
                least,
                most: least.max(arrived),
            };
            return;
        }
        let half_again = self.cautious > 0;
        self.cautious = self.cautious.saturating_sub(1);
        self.bounds = match self.full {
            None => {
                let rate = arrived.scale(2, 1).max(FIRST.most);
                let (least, most) = (rate, rate);
                Bounds { least, most }
            }
            Some(full) if arrived < full.scale(100 - FIRST_PROBE, 100) => {
                let most = arrived.scale(if half_again { 3 } else { 4 }, 2);
                let half = (arrived + full).scale(1, 2).min(most);
                let (least, most) = (half, half);
                Bounds { least, most }
            }
            Some(_) => {
                let most = arrived.scale(100 + self.probe, 100);
                self.probe = (2 * self.probe).min(LAST_PROBE);
                let least = arrived;
                Bounds { least, most }
            }
        };
    }
}

/// What the report after a [`Raise`] shows.
#[derive(Clone, Copy, Debug)]
struct Raised {
    /// Rate that had arrived before.
    proven: Rate,
    /// Rate that has arrived at the raised rate.
    peak: Rate,
}

impl Raise {
    /// What arrived at the raised rate, if that lasted for a part of the interval `open` only. The path
    /// carried the rest before, so that the losses are of this part; `None` if there are more.
    fn result(&self, open: &Traffic) -> Option<Raised> {
        let (part, lost) = (self.traffic, open.sent - open.received);
        let kept = Bytes(part.sent.get().saturating_sub(lost.get()));
        let is_part = self.is_over && part.span >= SPAN;
        let peak = kept / part.span.max(SPAN);
        let proven = self.proven;
        (is_part && peak >= proven).then_some(Raised { proven, peak })
    }

    /// Whether a packet was sent at the raised rate.
    fn has(&self, sent: Time) -> bool {
        self.from <= sent && sent < self.until
    }
}

impl Traffic {
    fn add(&mut self, size: Bytes, is_received: bool) {
        self.sent += size;
        if is_received {
            self.received += size;
        }
    }
}

/// Bounds from the first to the second report: a rate that any access link of video carries, from
/// which three reports lead to 8 Mb/s.
const FIRST: Bounds = Bounds {
    least: Rate::kbps(1_000),
    most: Rate::kbps(1_000),
};
/// One packet in 100.
const SIGNIFICANT: f64 = 0.01;
/// A tenth of a second at ten times the present rate, half of it lost, in an interval of 5 s.
const EARLIER_LOSS: f64 = 0.1;
/// Reports in `CB_INTERVAL` of RFC 8083 section 4.3.
const CAUTIOUS_REPORTS: u8 = 3;
/// Percent. Loses 2 % at most, far from the limit of the circuit breaker.
const FIRST_PROBE: u64 = 2;
/// Percent.
const LAST_PROBE: u64 = 50;
/// Interval of reports that show losses soon.
const SHORT: Duration = Duration::from_millis(1_500);
/// Divides a longer interval: for this part of it, a rate may exceed the one that has arrived. At twice that
/// rate, a path that is full loses a sixth of the packets of the interval, less than what lets the circuit
/// breaker act. Most players report after 2.5 to 6 s.
const RAISED_PART: u32 = 5;
/// Several frames at any usual rate. A shorter span measures single frames, and would let many
/// reports raise the rate quickly.
const SPAN: Duration = Duration::from_millis(200);

impl Default for ReceiverReports {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
