//! Probes of a sender: packets of lower effort (DSCP LE, RFC 8622) as large as data packets, in an
//! RTP stream of their own.
//!
//! A controller requests them as the filler of its target. They carry no media, are reported apart
//! (RFC 8888), and are not part of the statistics of the stream. The sender tests first whether the
//! path honours lower effort, see [`path_test`].

use core::time::Duration;
use std::collections::VecDeque;

use super::feedback::{reject, time_since_arrival};
use super::history::Overlap;
use super::history::PacketRow;
use super::report_clock::ReportClock;
use crate::control::{Context, FlowId, Kind, LowerEffort, Outcome, PacketOutcome, Sent};
use crate::trace::FeedbackFault;
use crate::units::{Bytes, Rate, RemoteTime, Time};
use crate::wire::ccfb::{Arrival, Ccfb};
use path_test::PathTest;

mod path_test;

/// The probes of a session: their pacing, their outcomes, and the test of the path.
///
/// The controller learns of arrivals only: a router drops probes first, so a loss is no news.
/// Memory is bounded by `MAX_PROBES`, and so is the rate to a receiver that reports none.
#[derive(Debug)]
pub(super) struct ProbeStream {
    ssrc: u32,
    /// Probes sent recently, in sending order; the last has the number before `next`.
    window: VecDeque<Probe>,
    /// Number of the next probe. The low 16 bits are its RTP sequence number.
    next: u64,
    /// Time from which the next paced probe is due one interval later.
    paced: Time,
    /// Feedback on probes is of lower effort, and arrives later than other feedback.
    clock: ReportClock,
    test: PathTest,
    log: Option<Vec<PacketRow>>,
}

/// A probe in the window.
#[derive(Clone, Copy, Debug)]
struct Probe {
    sent: Time,
    size: Bytes,
    /// Its arrival, and the ECN field.
    outcome: Option<Outcome>,
}

/// A probe to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextProbe {
    /// RTP sequence number.
    pub(super) sequence: u16,
    /// Lower effort; otherwise a probe of the test with the priority of data.
    pub(super) is_low: bool,
}

impl ProbeStream {
    /// A stream with this SSRC, from the number `first` on. With `log`, probes are kept as rows.
    pub(super) fn new(ssrc: u32, first: u16, log: bool) -> Self {
        Self {
            ssrc,
            window: VecDeque::new(),
            next: u64::from(first),
            paced: Time::ZERO,
            clock: ReportClock::default(),
            test: PathTest::default(),
            log: log.then(Vec::new),
        }
    }

    /// Result of the tests so far.
    pub(super) fn treatment(&self) -> LowerEffort {
        self.test.treatment()
    }

    /// The probe that is due now, at this rate of paced probes; those of the test are sent at once.
    pub(super) fn due(&self, now: Time, size: Bytes, rate: Rate) -> Option<NextProbe> {
        if self.window.len() >= MAX_PROBES {
            return None;
        }
        let sequence = self.next as u16;
        if let Some(is_low) = self.test.wants(now) {
            return Some(NextProbe { sequence, is_low });
        }
        let is_due = self.paced_at(size, rate).is_some_and(|at| at <= now);
        is_due.then_some(NextProbe {
            sequence,
            is_low: true,
        })
    }

    /// Time of the next paced probe.
    fn paced_at(&self, size: Bytes, rate: Rate) -> Option<Time> {
        let rate = rate.min(MAX_RATE);
        (rate > Rate::ZERO).then(|| self.paced + size / rate)
    }

    /// Time of the next probe, or of the end of a test.
    pub(super) fn next_timeout(&self, size: Bytes, rate: Rate, rtt: Duration) -> Time {
        match self.window.front() {
            // The oldest has to be forgotten before another one can be sent.
            Some(oldest) if self.window.len() >= MAX_PROBES => oldest.sent + KEPT,
            _ => {
                let paced = self.paced_at(size, rate).unwrap_or(Time::FAR);
                paced.min(self.test.next_timeout(rtt))
            }
        }
    }

    /// A probe leaves. Returns its description for the controller.
    pub(super) fn on_sent(&mut self, now: Time, size: Bytes, rate: Rate) -> Sent {
        let seq = self.next;
        if !self.test.on_sent(now, seq) {
            // A late timer earns credit, as in the pacer of data.
            let due = self.paced_at(size, rate).unwrap_or(now);
            self.paced = due.max(now.before(SLACK));
        }
        self.next += 1;
        self.window.push_back(Probe {
            sent: now,
            size,
            outcome: None,
        });
        Sent {
            flow: FlowId::default(),
            seq,
            size,
            kind: Kind::Dummy,
            app_limited: false,
        }
    }

    /// Whether a feedback packet is about other streams than that of probes.
    pub(super) fn is_of_others(&self, report: &Ccfb<'_>) -> bool {
        let mut ssrcs = report.blocks().map(|block| block.ssrc).peekable();
        ssrcs.peek().is_none() || ssrcs.any(|ssrc| ssrc != self.ssrc)
    }

    /// Applies the blocks about probes. Returns the new arrivals, in sending order. A report about
    /// probes that were never sent is rejected.
    pub(super) fn read(&mut self, cx: &mut Context<'_>, report: &Ccfb<'_>) -> Vec<PacketOutcome> {
        let mut arrived = Vec::new();
        for block in report.blocks().filter(|block| block.ssrc == self.ssrc) {
            for packet in block.packets() {
                let Arrival::Received { ecn, offset } = packet.arrival else {
                    continue;
                };
                match self.find(packet.sequence) {
                    Ok(Some(place)) => {
                        let ago = time_since_arrival(offset).unwrap_or(Duration::ZERO);
                        arrived.push((place, ago, ecn));
                    }
                    Ok(None) => {}
                    Err(fault) => {
                        reject(cx, fault);
                        return Vec::new();
                    }
                }
            }
        }
        if arrived.is_empty() {
            return Vec::new();
        }
        let (from, timestamp) = (report.sender(), report.timestamp());
        let at = match self.clock.at(cx.now, from, timestamp, &Overlap::default()) {
            Ok(at) => at,
            Err(fault) => {
                reject(cx, fault);
                return Vec::new();
            }
        };
        arrived.sort_unstable_by_key(|(place, ..)| *place);
        let first = self.next - self.window.len() as u64;
        let mut outcomes = Vec::new();
        for (place, ago, ecn) in arrived {
            let Some(probe) = self.window.get_mut(place) else {
                continue;
            };
            if probe.outcome.is_some() {
                continue;
            }
            let at = RemoteTime(at.0.saturating_sub(crate::units::nanos(ago)));
            let outcome = Outcome::Received { at, ecn };
            probe.outcome = Some(outcome);
            let seq = first + place as u64;
            self.test.on_arrival(seq, at);
            outcomes.push(PacketOutcome {
                flow: FlowId::default(),
                seq,
                size: probe.size,
                sent: probe.sent,
                outcome,
            });
        }
        outcomes
    }

    /// Place of a probe in the window; `None` if it was forgotten.
    fn find(&self, sequence: u16) -> Result<Option<usize>, FeedbackFault> {
        let back = (self.next as u16).wrapping_sub(sequence);
        // Zero is the next one.
        if back == 0 || back >= 0x8000 {
            return Err(FeedbackFault::NeverSent);
        }
        Ok(self.window.len().checked_sub(usize::from(back)))
    }

    /// DSCP with which low probes arrive, if the receiver has reported it.
    pub(super) fn dscp(&self) -> Option<u8> {
        self.test.dscp()
    }

    /// The receiver reports the DSCP with which low probes arrive.
    pub(super) fn on_dscp(&mut self, dscp: u8) {
        self.test.on_dscp(dscp);
    }

    /// Begins the tests; from then on they repeat.
    pub(super) fn begin_tests(&mut self, now: Time) {
        self.test.begin(now);
    }

    /// Ends a test that is complete or overdue, and forgets old probes. `rtt` is the round-trip time
    /// of data. Returns another result.
    pub(super) fn on_timeout(&mut self, now: Time, rtt: Duration) -> Option<LowerEffort> {
        while self
            .window
            .front()
            .is_some_and(|p| now.since(p.sent) >= KEPT)
        {
            self.forget_first();
        }
        self.test.on_timeout(now, rtt)
    }

    fn forget_first(&mut self) {
        let first = self.next - self.window.len() as u64;
        if let (Some(probe), Some(log)) = (self.window.pop_front(), &mut self.log) {
            log.push(PacketRow {
                seq: first,
                kind: Kind::Dummy,
                size: probe.size,
                sent: probe.sent,
                outcome: probe.outcome.or(Some(Outcome::Lost)),
            });
        }
    }

    /// The session is interrupted: a test has no result.
    pub(super) fn interrupt(&mut self, now: Time) {
        self.test.interrupt(now);
    }

    /// Number of probes in the window, for tests of memory bounds.
    pub(super) fn len(&self) -> usize {
        self.window.len()
    }

    /// Moves rows of forgotten probes to `rows`.
    pub(super) fn drain_log(&mut self, rows: &mut Vec<PacketRow>) {
        if let Some(log) = &mut self.log {
            rows.append(log);
        }
    }

    /// Moves rows of all probes to `rows`, at the end.
    pub(super) fn finish_log(&mut self, rows: &mut Vec<PacketRow>) {
        while !self.window.is_empty() {
            self.forget_first();
        }
        self.drain_log(rows);
    }
}

/// Probes that are remembered: half of the sequence number space, so that 16-bit numbers remain
/// unambiguous.
const MAX_PROBES: usize = 32_767;
/// Time for which a probe is remembered: the longest round-trip time that a session measures.
const KEPT: Duration = super::history::MAX_RTT;
/// Highest rate of probes: that of a stream of the best quality.
const MAX_RATE: Rate = Rate::kbps(100_000);
/// Two ticks of a 1 kHz timer.
const SLACK: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests;
