//! When to set the user timeout, and to what.

use std::time::Duration;

use tidegate_core::symbiosis::linear_timeout;

/// How a connection stands at one moment. Times are since any beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Glance {
    pub(super) at: Duration,
    /// Nothing that was sent again is out, nor is a loss being repaired.
    pub(super) clean: bool,
    /// Time-outs since something was acknowledged, modulo 256.
    pub(super) in_a_row: u8,
    /// The retransmission time-out, doubled as often.
    pub(super) rto: Duration,
    /// When something was sent last: by a time-out, while there are some in a row.
    pub(super) sent: Duration,
}

/// What to do with the user timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Set it, so long after the first retransmission.
    Limit(Duration),
    /// Make it what it was.
    TakeBack,
}

/// The state machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Schedule {
    /// The time-out without back-off.
    base: Duration,
    /// When the connection was clean last: no later than the first retransmission, from which the
    /// kernel counts. None before it has ever been.
    clean: Option<Duration>,
    in_a_row: u8,
    count: u32,
    next: Option<Duration>,
    /// Since `clean`, while it is set.
    limit: Option<Duration>,
}

impl Schedule {
    /// Whether there was a time-out, and no acknowledgement since.
    pub(super) fn is_on(&self) -> bool {
        self.count > 0
    }

    /// The time-out without back-off.
    pub(super) fn base(&self) -> Duration {
        self.base
    }

    /// When the timer runs out next, after it has at least once.
    pub(super) fn next(&self) -> Option<Duration> {
        self.next
    }

    /// From the next time-out to the one behind it.
    pub(super) fn gap(&self) -> Duration {
        linear_timeout(self.base, self.count + 1)
    }

    /// Takes a look.
    pub(super) fn on_glance(&mut self, glance: &Glance) -> Option<Order> {
        if glance.in_a_row == 0 {
            if glance.clean {
                self.clean = Some(glance.at);
                self.base = glance.rto;
            }
            (self.in_a_row, self.count, self.next) = (0, 0, None);
            return self.limit.take().map(|_| Order::TakeBack);
        }
        let clean = self.clean?;
        if glance.in_a_row != self.in_a_row {
            let more = glance.in_a_row.wrapping_sub(self.in_a_row);
            self.in_a_row = glance.in_a_row;
            self.count += u32::from(more);
            let limit = self.limit.take();
            let limited = limit.map(|limit| (clean + limit).saturating_sub(glance.sent));
            self.next = Some(glance.sent + limited.unwrap_or(glance.rto).min(glance.rto));
            return limit.map(|_| Order::TakeBack);
        }
        let next = self.next?;
        if glance.at > next + LATE {
            // It was set to something else, then: as the kernel has it, or nobody knows.
            self.next = Some(glance.sent + glance.rto).filter(|next| *next > glance.at);
            return self.limit.take().map(|_| Order::TakeBack);
        }
        if self.limit.is_none() && glance.at + LEAD >= next {
            let limit = next.saturating_sub(clean) + self.gap();
            self.limit = Some(limit);
            return Some(Order::Limit(limit));
        }
        None
    }

    /// When to look next, at `now`.
    pub(super) fn wake(&self, now: Duration) -> Duration {
        match self.next {
            Some(next) if now + LEAD < next => next.saturating_sub(LEAD).min(now + IDLE),
            Some(_) => now + TIGHT,
            None => now + IDLE,
        }
    }
}

/// From setting the user timeout to when the timer runs out.
const LEAD: Duration = Duration::from_millis(40);
/// The timer may run out so much later than it was set to: an eighth of a quarter of a second and more
/// by the kernel's wheel, and [`IDLE`] by when the connection was clean.
const LATE: Duration = Duration::from_millis(150);
/// Between looks while nothing is near.
const IDLE: Duration = Duration::from_millis(50);
/// Between looks while the timer is about to run out.
const TIGHT: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests;
