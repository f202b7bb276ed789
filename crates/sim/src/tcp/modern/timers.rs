//! What happens when nothing does: timeouts, probes, late segments.

use core::time::Duration;

use tidegate_core::units::Time;

use super::congestion::{Congestion as _, Phase, Signal};
use super::{Detection, Life, Sender};
use crate::packet_agent::AgentCx;

/// Deadlines; [`Time::FAR`] is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    /// Of the retransmission timer.
    pub(super) timeout: Time,
    /// When to probe the tail.
    pub(super) probe: Time,
    /// When segments that were overtaken are lost.
    pub(super) late: Time,
}

/// A tail loss probe that is out (RFC 8985 section 7).
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// It is decided when everything before this segment is acknowledged.
    pub(super) end: u32,
    /// When a segment was sent again for it; `None`: it was a new one.
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

    /// The probe stands in for the timeout while it is to come: Linux has one timer for both.
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

    /// Segments were overtaken, and no acknowledgement came that would have shown them to be lost.
    fn on_late(&mut self, now: Time) {
        let out = self.board.outstanding() - self.board.sacked();
        if self.detect(now) == 0 || !matches!(self.phase, Phase::Open | Phase::Reduced) {
            return;
        }
        self.enter_recovery(now, out);
        if !self.algorithm.owns_window() {
            let (in_flight, ssthresh) = (self.board.in_flight(), self.window.ssthresh);
            let window = self.reduction.window(1, in_flight, ssthresh, false);
            self.window.set(window);
        }
    }

    /// Something was acknowledged: restarts the retransmission timer, and the probe's where that
    /// applies.
    pub(super) fn arm(&mut self, now: Time) {
        self.timers.timeout = if self.board.outstanding() == 0 {
            Time::FAR
        } else {
            now + self.rtt.timeout()
        };
        self.arm_probe(now, self.timers.timeout);
    }

    /// Something new was sent. As Linux has it, and not RFC 6298 section 5, the timeout then counts
    /// from when the oldest segment left, as far as a probe was to come; and data that go on put the
    /// probe off, the one that follows another, too.
    pub(super) fn arm_for_new(&mut self, now: Time) {
        let expires = self.expiry(now);
        if self.timers.probe < Time::FAR {
            self.timers.timeout = expires.max(now + TICK);
        }
        let limit = if expires > now { expires } else { Time::FAR };
        self.arm_probe(now, limit);
    }

    /// When the oldest segment has been out for the time of the retransmission timer.
    fn expiry(&self, now: Time) -> Time {
        let head = self.board.flying(self.board.una());
        head.map_or(now, |head| head.stamp.sent) + self.rtt.timeout()
    }

    /// A tail is probed after two round trips without an acknowledgement, but for what a receiver
    /// may wait for a second segment if there is only one; and not after `limit`.
    fn arm_probe(&mut self, now: Time, limit: Time) {
        let srtt = self.rtt.smoothed();
        let wanted = self.config.detection == Detection::RackTlp
            && self.config.tail_probes
            && matches!(self.phase, Phase::Open | Phase::Reduced)
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
            // One is out already, and the time of the oldest segment is up, or soon will be.
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
        self.more.probes += 1;
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
        self.counters.timeouts += 1;
        let una = self.board.una();
        let known = match self.phase {
            Phase::Open => false,
            Phase::Loss => self.rtt.backoff() > 0 && una < self.phase_end,
            Phase::Reduced | Phase::Recovery => una < self.phase_end,
        };
        if !known && self.life == Life::Open {
            self.remember(una);
            self.window.ssthresh =
                self.algorithm
                    .on_congestion(cx.now, Signal::Timeout, &self.window);
        }
        let lost = self.board.lost();
        let rack = &self.rack;
        // What was sent a moment ago cannot have been answered yet.
        let recent = self.config.detection == Detection::RackTlp;
        let patience = rack.patience(&self.board, &self.rtt, true);
        self.board.lose_all(|seq, record| {
            recent && seq != una && !rack.overdue(cx.now, record.stamp.sent, patience)
        });
        self.more.lost += u64::from(self.board.lost() - lost);
        self.phase = Phase::Loss;
        self.phase_end = self.board.next();
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

/// Of a clock of 1 kHz.
const TICK: Duration = Duration::from_millis(1);
/// Two ticks, as Linux, so that a probe does not race an acknowledgement.
const SLACK: Duration = Duration::from_millis(2);
/// The longest that receivers wait before they acknowledge a lone segment, as Linux assumes.
const LONGEST_DELAY: Duration = Duration::from_millis(200);
