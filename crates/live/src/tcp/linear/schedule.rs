//! Schedule of the user timeout: times and values.

use std::time::Duration;

use tidegate_core::tcp_rate::linear_timeout;

/// Sample of the state of a connection. Times are relative to an arbitrary epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateSample {
    pub(super) at: Duration,
    /// Delay of the sample after its scheduled time.
    pub(super) late: Duration,
    /// No loss recovery, and no retransmission in flight.
    pub(super) clean: bool,
    /// Timeouts since the last acknowledgement, modulo 256.
    pub(super) in_a_row: u8,
    /// Total number of retransmitted segments.
    pub(super) sent_again: u32,
    /// Retransmission timeout, back-off included.
    pub(super) rto: Duration,
    /// Time of the last transmission; after a timeout, that of the retransmission.
    pub(super) sent: Duration,
}

/// Change of the user timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserTimeoutChange {
    /// Set it to this time after the first retransmission.
    Limit(Duration),
    /// Set it so long that it does not shorten any timeout.
    Lift,
    /// Restore the value from before the first timeout.
    Restore,
}

/// State machine of the user timeout.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Schedule {
    /// Timeout without back-off.
    base: Duration,
    /// Time of the last clean sample, which is not after the first retransmission, the reference of
    /// the kernel. `None` before the first clean sample.
    clean: Option<Duration>,
    /// Retransmitted segments in the last sample.
    sent_again: u32,
    /// `in_a_row` of the last sample.
    in_a_row: u8,
    /// Timeouts since the last acknowledgement.
    count: u32,
    /// Next expiry of the retransmission timer.
    next: Option<Duration>,
    /// Duration of the timer that expires then.
    armed: Duration,
    /// User timeout relative to `clean`, while it is set.
    limit: Option<Duration>,
    /// Until this time the thread may be scheduled too late, so no user timeout is set.
    unsteady: Duration,
}

impl Schedule {
    /// Whether there was a timeout, and no acknowledgement since.
    pub(super) fn is_on(&self) -> bool {
        self.count > 0
    }

    /// Timeout without back-off.
    pub(super) fn base(&self) -> Duration {
        self.base
    }

    /// Next expiry of the timer, after the first timeout.
    pub(super) fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Time from the next timeout to the following one.
    pub(super) fn gap(&self) -> Duration {
        linear_timeout(self.base, self.count + 1)
    }

    /// Maximum delay of the expiry after [`next`](Self::next): an eighth of the timer's duration,
    /// the granularity of the kernel's timer wheel, plus the sampling interval of `clean`. It ends
    /// [`LAST`] before the limit passes, so that the limit can be reset in time.
    fn late(&self) -> Duration {
        let late = self.armed / 8 + IDLE + IDLE;
        late.max(LATE).min(self.gap().saturating_sub(LAST))
    }

    /// Processes a sample.
    pub(super) fn on_glance(&mut self, glance: &StateSample) -> Option<UserTimeoutChange> {
        if glance.late > STEADY {
            self.unsteady = glance.at + WARY;
        }
        let sent = glance.sent_again != self.sent_again;
        self.sent_again = glance.sent_again;
        // The counter of the kernel has eight bits, so zero may be a valid count.
        let wrapped = glance.in_a_row < self.in_a_row && self.in_a_row > 200 && !glance.clean;
        let on = wrapped || (self.in_a_row == 0 && self.is_on() && !glance.clean);
        if glance.in_a_row == 0 && !on {
            return self.acknowledged(glance);
        }
        if glance.in_a_row != self.in_a_row {
            return self.timed_out(glance, sent, wrapped);
        }
        let (next, clean) = (self.next?, self.clean?);
        if glance.at > next + self.late() {
            // The timer was set to another value: that of the kernel, or an unknown one.
            self.armed = glance.rto;
            self.next = Some(glance.sent + glance.rto).filter(|next| *next > glance.at);
            return self.limit.take().map(|_| UserTimeoutChange::Lift);
        }
        let steady = glance.at >= self.unsteady;
        if steady && self.limit.is_none() && glance.at + LEAD >= next {
            let limit = next.saturating_sub(clean) + self.gap();
            self.limit = Some(limit);
            return Some(UserTimeoutChange::Limit(limit));
        }
        None
    }

    fn acknowledged(&mut self, glance: &StateSample) -> Option<UserTimeoutChange> {
        if glance.clean {
            self.clean = Some(glance.at);
            self.base = glance.rto;
        }
        let was_on = self.is_on();
        (self.in_a_row, self.count) = (0, 0);
        (self.next, self.limit) = (None, None);
        was_on.then_some(UserTimeoutChange::Restore)
    }

    /// Processes a timeout; `sent` if a segment was retransmitted since the last sample.
    fn timed_out(
        &mut self,
        glance: &StateSample,
        sent: bool,
        wrapped: bool,
    ) -> Option<UserTimeoutChange> {
        let before = if glance.in_a_row < self.in_a_row && !wrapped {
            // An acknowledgement was missed, and a new series of timeouts has begun.
            self.count = 0;
            0
        } else {
            self.in_a_row
        };
        self.count += u32::from(glance.in_a_row.wrapping_sub(before));
        self.in_a_row = glance.in_a_row;
        let limit = self.limit.take();
        if !sent {
            // If a segment cannot be sent, because of a missing route or a full device queue, the
            // kernel retries after a different time. At the first timeout, the kernel then counts
            // from the original transmission of the segment.
            self.next = None;
            self.clean = self.clean.filter(|_| before > 0);
        } else if let Some(clean) = self.clean {
            let limited = limit.map(|limit| (clean + limit).saturating_sub(glance.sent));
            self.armed = limited.unwrap_or(glance.rto).min(glance.rto);
            self.next = Some(glance.sent + self.armed);
        }
        let ours = self.clean.is_some() && (before == 0 || limit.is_some());
        ours.then_some(UserTimeoutChange::Lift)
    }

    /// Time of the next sample, as of `now`.
    pub(super) fn wake(&self, now: Duration) -> Duration {
        match self.next {
            Some(next) if now + LEAD < next => next.saturating_sub(LEAD).min(now + IDLE),
            Some(next) if self.limit.is_some() => next.saturating_sub(COARSE).max(now + TIGHT),
            Some(_) => now + TIGHT,
            None => now + IDLE,
        }
    }
}

/// Time from setting the user timeout to the expiry of the timer. A scheduling delay of the thread
/// up to this time does not cause a doubled timeout.
const LEAD: Duration = Duration::from_millis(120);
/// Maximum delay of short timers.
pub(super) const LATE: Duration = Duration::from_millis(150);
/// Rest of a limit at which it is reset without a timeout.
const LAST: Duration = Duration::from_millis(60);
/// Granularity of the kernel's times, some of which are in ticks of 10 ms.
const COARSE: Duration = Duration::from_millis(12);
/// Maximum scheduling delay, a quarter of the one that loses the connection. After a longer delay
/// the next one may be longer still, so timeouts double for [`WARY`], which only costs time.
const STEADY: Duration = Duration::from_millis(40);
/// See [`STEADY`].
const WARY: Duration = Duration::from_secs(10);
/// Sampling interval while no expiry is near.
const IDLE: Duration = Duration::from_millis(50);
/// Sampling interval while an expiry is near.
const TIGHT: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests;
