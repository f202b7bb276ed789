//! Transmission of segments: selection, number, pacing.

use core::time::Duration;

use tidegate_core::control::Ecn;
use tidegate_core::units::{Bytes, Rate, Time};

use super::congestion::{Congestion as _, Phase};
use super::{Life, Sender};
use crate::packet_agent::{AgentCx, Body, Segment};

/// Paces segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    /// Earliest departure of the next segment.
    at: Time,
    /// Whether a segment waits for that time.
    waits: bool,
}

impl Pacer {
    pub(super) fn new() -> Self {
        Self {
            at: Time::ZERO,
            waits: false,
        }
    }

    pub(super) fn wake(&self) -> Time {
        if self.waits { self.at } else { Time::FAR }
    }
}

/// Whether the window is fully used, evaluated once per window (RFC 7661, as in Linux).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    limited: bool,
    /// Maximum number of outstanding segments.
    peak: u32,
    /// Valid until this segment is acknowledged.
    until: u32,
    /// Maximum number of outstanding segments since `since`: `W_used` of RFC 2861.
    used: u32,
    /// Time at which the window was last fully used, set, or validated.
    since: Time,
}

impl Usage {
    fn update(&mut self, limited: bool, outstanding: u32, una: u32, next: u32) {
        if limited || una >= self.until || (!self.limited && outstanding > self.peak) {
            self.limited = limited;
            self.peak = outstanding;
            self.until = next;
        }
    }

    /// The window was set or validated at `now`.
    pub(super) fn on_window(&mut self, now: Time) {
        self.since = now;
    }

    /// Restarts the measurement of the used window at `now`.
    fn begin(&mut self, now: Time) {
        self.used = 0;
        self.since = now;
    }
}

impl Sender {
    /// Sends what window, pacing and source allow.
    pub(super) fn transmit(&mut self, cx: &mut AgentCx<'_>) {
        self.pacer.waits = false;
        let rate = self.pacing_rate();
        let mut burst = 0;
        let next = self.board.next();
        let limited = loop {
            let again = self.board.first_lost();
            if again.is_none() && !self.has_new() {
                break false;
            }
            if self.board.in_flight() >= self.window.cwnd() {
                break true;
            }
            if burst == 0 {
                if let Some(rate) = rate {
                    if cx.now < self.pacer.at {
                        self.pacer.waits = true;
                        break false;
                    }
                    burst = if self.is_scalable() {
                        smooth_burst_of(rate, self.config.packet_size)
                    } else {
                        burst_of(rate, self.config.packet_size)
                    };
                } else {
                    burst = u32::MAX;
                }
            }
            burst -= 1;
            match again {
                Some(seq) => self.send_again(cx, seq),
                None => self.send_new(cx),
            }
        };
        let limited = limited || self.board.in_flight() >= self.window.cwnd();
        if limited || self.board.next() > next {
            self.validate(cx.now, limited);
        }
        let idle = self.life == Life::Open
            && self.board.next() >= self.source.end()
            && self.board.lost() == 0
            && self.board.in_flight() < self.window.cwnd();
        if idle || self.algorithm.holds_back() {
            self.sampler.limit(self.board.in_flight());
        }
    }

    /// Congestion window validation (RFC 2861 section 3.1) as in Linux: if the window was not fully
    /// used for a time-out while data was outstanding, it falls halfway to the used part.
    fn validate(&mut self, now: Time, limited: bool) {
        let (board, usage) = (&self.board, &mut self.usage);
        usage.update(limited, board.outstanding(), board.una(), board.next());
        if self.window_limited() {
            self.usage.begin(now);
            return;
        }
        let usage = &mut self.usage;
        usage.used = usage.used.max(self.board.outstanding());
        let keeps = !self.config.slow_start_restart || self.algorithm.owns_window();
        if keeps || now.since(usage.since) < self.rtt.timeout() {
            return;
        }
        let used = usage.used.max(self.initial_window());
        let cwnd = self.window.cwnd();
        if self.recovery.phase == Phase::Open && used < cwnd {
            self.window.ssthresh = self.window.ssthresh.max(cwnd / 4 * 3);
            self.window.set(u32::midpoint(cwnd, used));
        }
        self.usage.begin(now);
    }

    /// Whether window and source allow a new segment.
    pub(super) fn has_new(&self) -> bool {
        self.board.next() < self.source.end()
            && self.board.outstanding() < self.config.window
            && (self.life == Life::Open || self.board.next() == 0)
    }

    pub(super) fn send_new(&mut self, cx: &mut AgentCx<'_>) {
        let idle = self.board.outstanding() == 0;
        if idle {
            self.restart(cx.now);
        }
        let stamp = self.sampler.stamp(cx.now, idle);
        let seq = self.board.send(stamp);
        self.source.on_sent(seq);
        let cwr = core::mem::take(&mut self.ecn.cwr);
        // A SYN negotiates ECN by header flags instead of its codepoint.
        let ecn = match (
            self.config.ecn && self.life == Life::Open,
            self.is_scalable(),
        ) {
            (false, _) => Ecn::NotEct,
            (true, false) => Ecn::Ect0,
            (true, true) => Ecn::Ect1,
        };
        self.emit(cx, seq, false, cwr, ecn);
        if idle {
            self.timers.timeout = cx.now + self.rtt.timeout();
        }
        self.arm_for_new(cx.now);
    }

    pub(super) fn send_again(&mut self, cx: &mut AgentCx<'_>, seq: u32) {
        let stamp = self.sampler.stamp(cx.now, false);
        self.board.send_again(seq, stamp);
        if let Some(undo) = &mut self.recovery.undo
            && undo.head == seq
            && undo.again.is_none()
        {
            undo.again = Some(cx.now);
        }
        self.counts.common.repeated += 1;
        // RFC 3168 section 6.1.5: a retransmission is not ECN-capable. In a scalable flow it is, as
        // RFC 8311 section 4.3 allows, because otherwise it would wait in another queue than other
        // segments.
        let ecn = if self.is_scalable() && self.life == Life::Open {
            Ecn::Ect1
        } else {
            Ecn::NotEct
        };
        self.emit(cx, seq, true, false, ecn);
    }

    fn emit(&mut self, cx: &mut AgentCx<'_>, seq: u32, again: bool, cwr: bool, ecn: Ecn) {
        let size = self.source.wire_size(seq);
        if let Some(rate) = self.pacing_rate() {
            // Floating point, because the exact 128-bit division would dominate the cost of this
            // function.
            let gap = f64::from(size) * 8e9 / rate.as_f64();
            let gap = Duration::from_nanos(gap as u64);
            // A host wakes up late each time, and without slack in the rate the loss would be
            // permanent. As in Linux, up to half a gap is made up for.
            let late = if self.is_scalable() {
                cx.now.since(self.pacer.at).min(gap / 2)
            } else {
                Duration::ZERO
            };
            self.pacer.at = self.pacer.at.max(cx.now) + gap.saturating_sub(late);
        }
        self.recovery.reduction.on_sent();
        self.counts.common.sent += 1;
        self.last_sent = cx.now;
        let segment = Segment {
            seq,
            sent: cx.now,
            again,
            cwr,
        };
        cx.send(Bytes(u64::from(size)), ecn, Body::Segment(segment));
    }

    /// Sending resumes after an idle time.
    fn restart(&mut self, now: Time) {
        if self.board.next() == 0 || self.life != Life::Open {
            return;
        }
        let idle = now.since(self.last_sent);
        self.algorithm
            .on_restart(now, idle, self.sampler.app_limited());
        let timeout = self.rtt.timeout();
        if !self.config.slow_start_restart || self.algorithm.owns_window() || idle <= timeout {
            return;
        }
        let cwnd = self.window.cwnd();
        let floor = self.initial_window().min(cwnd);
        let halvings = idle.as_nanos() / timeout.as_nanos().max(1);
        let halved = cwnd.checked_shr(halvings.min(32) as u32).unwrap_or(0);
        // RFC 2861: three quarters of the window were in use, and slow start may reach them again.
        let used = self.window.ssthresh.max(cwnd / 4 * 3);
        self.window.ssthresh = used;
        self.window.set(halved.max(floor));
        self.usage.begin(now);
    }

    pub(super) fn initial_window(&self) -> u32 {
        let payload = self.config.packet_size - self.config.header_size;
        self.config.initial_window.segments(payload)
    }

    /// Whether the window, rather than the application, has recently limited the sender.
    pub(super) fn window_limited(&self) -> bool {
        self.usage.limited
            || (self.window.in_slow_start()
                && self.window.cwnd() < self.usage.peak.saturating_mul(2))
    }

    pub(super) fn pacing_rate(&self) -> Option<Rate> {
        if let Some(rate) = self.algorithm.pacing() {
            return Some(rate.max(SLOWEST));
        }
        let srtt = self.rtt.smoothed();
        let scalable = self.is_scalable();
        let paced = self.config.pacing || scalable;
        if !paced || srtt.is_zero() || self.recovery.phase == Phase::Loss {
            return None;
        }
        let cwnd = self.window.cwnd();
        // As in Linux: allows the window to double in slow start, and to grow afterwards.
        let percent = if cwnd < self.window.ssthresh / 2 {
            200
        } else if scalable {
            // A higher rate would only build a queue; the window still grows.
            100
        } else {
            120
        };
        let window =
            u64::from(cwnd.max(self.board.in_flight())) * u64::from(self.config.packet_size);
        Some((Bytes(window).scale(percent, 100) / srtt).max(SLOWEST))
    }
}

/// Segments per burst: the data of a millisecond, at least two as in Linux, at most 64 KiB.
fn burst_of(rate: Rate, packet: u32) -> u32 {
    let carried = (rate * BURST).get() / u64::from(packet.max(1));
    let least = if rate < SLOW { 1 } else { 2 };
    carried.clamp(least, MAX_BURST) as u32
}

/// Segments per burst of a scalable flow: the data of a quarter of a millisecond, which is a
/// quarter of the queueing delay target of a low-latency queue
/// (draft-briscoe-iccrg-prague-congestion-control-04 section 2.4.5), at least one.
fn smooth_burst_of(rate: Rate, packet: u32) -> u32 {
    let carried = (rate * (BURST / 4)).get() / u64::from(packet.max(1));
    carried.clamp(1, MAX_BURST) as u32
}

const BURST: Duration = Duration::from_millis(1);
const MAX_BURST: u64 = 44;
/// Below this rate BBR in Linux sends one segment at a time.
const SLOW: Rate = Rate::bps(1_200_000);
/// Keeps pacing delays finite.
const SLOWEST: Rate = Rate::bps(1);
