//! Timers: retransmission timeouts, tail loss probes, reordering.

use core::time::Duration;

use tidegate_core::units::Time;

use super::congestion::{Congestion as _, Phase, Signal};
use super::{Detection, Life, Sender};
use crate::packet_agent::AgentCx;

/// Deadlines; [`Time::FAR`] is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    /// Retransmission timeout.
    pub(super) timeout: Time,
    /// Tail loss probe.
    pub(super) probe: Time,
    /// Time at which reordered segments become lost.
    pub(super) late: Time,
}

/// An outstanding tail loss probe (RFC 8985 section 7).
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// The probe is evaluated when all segments before this one are acknowledged.
    pub(super) end: u32,
    /// Time of the retransmission; `None` if the probe was a new segment.
    pub(super) again: Option<Time>,
}

impl Timers {
    pub(super) fn new() -> Self {
        Self {
            timeout: Time::FAR,
            probe: Time::FAR,
            late: Time::FAR,
        }
    }

    pub(super) fn next(&self) -> Time {
        self.late.min(self.next_try())
    }

    /// A pending probe replaces the timeout, because Linux uses one timer for both.
    fn next_try(&self) -> Time {
        if self.probe < Time::FAR {
            self.probe
        } else {
            self.timeout
        }
    }
}

impl Sender {
    pub(super) fn on_deadlines(&mut self, cx: &mut AgentCx<'_>) {
        if cx.now >= self.timers.late {
            self.on_late(cx.now);
        }
        if cx.now >= self.timers.probe {
            self.on_probe(cx);
        } else if cx.now >= self.timers.next_try() {
            self.on_timeout(cx);
        }
        self.transmit(cx);
    }

    /// The reordering window has elapsed without an acknowledgement that would have detected the
    /// loss.
    fn on_late(&mut self, now: Time) {
        let out = self.board.outstanding() - self.board.sacked();
        if self.detect(now) == 0 || !matches!(self.recovery.phase, Phase::Open | Phase::Reduced) {
            return;
        }
        self.enter_recovery(now, out);
        if !self.algorithm.owns_window() {
            let (in_flight, ssthresh) = (self.board.in_flight(), self.window.ssthresh);
            let window = self
                .recovery
                .reduction
                .window(1, in_flight, ssthresh, false);
            self.window.set(window);
        }
    }

    /// Data was acknowledged: restarts the retransmission timer, and the probe timer if it applies.
    pub(super) fn arm(&mut self, now: Time) {
        self.timers.timeout = if self.board.outstanding() == 0 {
            Time::FAR
        } else {
            now + self.rtt.timeout()
        };
        self.arm_probe(now, self.timers.timeout);
    }

    /// New data was sent. As in Linux, and unlike RFC 6298 section 5, the timeout then counts from
    /// the transmission of the oldest segment if a probe was pending. Continued transmission
    /// postpones the probe, also the one that follows another probe.
    pub(super) fn arm_for_new(&mut self, now: Time) {
        let expires = self.expiry(now);
        if self.timers.probe < Time::FAR {
            self.timers.timeout = expires.max(now + TICK);
        }
        let limit = if expires > now { expires } else { Time::FAR };
        self.arm_probe(now, limit);
    }

    /// Time at which the oldest segment has been outstanding for the retransmission timeout.
    fn expiry(&self, now: Time) -> Time {
        let head = self.board.flying(self.board.una());
        head.map_or(now, |head| head.stamp.sent) + self.rtt.timeout()
    }

    /// Schedules a tail loss probe after two round trips without an acknowledgement, plus the
    /// maximum acknowledgement delay if a single segment is outstanding; at most `limit`.
    fn arm_probe(&mut self, now: Time, limit: Time) {
        let srtt = self.rtt.smoothed();
        let wanted = self.config.detection == Detection::RackTlp
            && self.config.tail_probes
            && matches!(self.recovery.phase, Phase::Open | Phase::Reduced)
            && self.board.in_flight() > 0
            && self.board.sacked() == 0
            && !srtt.is_zero();
        self.timers.probe = if wanted {
            let slack = if self.board.outstanding() == 1 {
                LONGEST_DELAY
            } else {
                SLACK
            };
            (now + srtt.saturating_mul(2) + slack).min(limit)
        } else {
            Time::FAR
        };
    }

    fn on_probe(&mut self, cx: &mut AgentCx<'_>) {
        if self.probe.is_some() {
            // A probe is already outstanding, and the oldest segment has timed out or is about to.
            self.timers.probe = Time::FAR;
            self.timers.timeout = self.expiry(cx.now).max(cx.now + TICK);
            return;
        }
        let last = self.board.next().wrapping_sub(1);
        let again = if self.has_new() {
            self.send_new(cx);
            None
        } else if self.board.flying(last).is_some() {
            self.send_again(cx, last);
            Some(cx.now)
        } else {
            self.timers.probe = Time::FAR;
            return;
        };
        self.counts.recovery.probes += 1;
        self.probe = Some(Probe {
            end: self.board.next(),
            again,
        });
        self.timers.probe = Time::FAR;
        self.timers.timeout = cx.now + self.rtt.timeout();
    }

    /// The retransmission timer expired (RFC 6298 section 5, RFC 5681 section 3.1).
    fn on_timeout(&mut self, cx: &mut AgentCx<'_>) {
        self.timers.timeout = Time::FAR;
        if self.board.outstanding() == 0 {
            return;
        }
        self.counts.common.timeouts += 1;
        let una = self.board.una();
        let known = match self.recovery.phase {
            Phase::Open => false,
            Phase::Loss => self.rtt.backoff() > 0 && una < self.recovery.end,
            Phase::Reduced | Phase::Recovery => una < self.recovery.end,
        };
        if !known && self.life == Life::Open {
            self.remember(una);
            self.window.ssthresh =
                self.algorithm
                    .on_congestion(cx.now, Signal::Timeout, &self.window);
        }
        let lost = self.board.lost();
        let rack = &self.rack;
        // Recently sent segments cannot have been acknowledged yet.
        let recent = self.config.detection == Detection::RackTlp;
        let reo_wnd = rack.reo_wnd(&self.board, &self.rtt, true);
        self.board.lose_all(|seq, record| {
            recent && seq != una && !rack.overdue(cx.now, record.stamp.sent, reo_wnd)
        });
        self.counts.recovery.lost += u64::from(self.board.lost() - lost);
        self.recovery.phase = Phase::Loss;
        self.recovery.end = self.board.next();
        self.probe = None;
        self.timers.probe = Time::FAR;
        self.timers.late = Time::FAR;
        self.window.set(self.board.in_flight().saturating_add(1));
        self.usage.on_window(cx.now);
        self.rtt.back_off();
        self.timers.timeout = cx.now + self.rtt.timeout();
        if let Some(seq) = self.board.first_lost() {
            self.send_again(cx, seq);
        }
    }
}

/// Tick of a 1 kHz clock.
const TICK: Duration = Duration::from_millis(1);
/// Two ticks, as in Linux, so that a probe does not race an acknowledgement.
const SLACK: Duration = Duration::from_millis(2);
/// Maximum delay of an acknowledgement for a single segment, as assumed by Linux.
const LONGEST_DELAY: Duration = Duration::from_millis(200);
