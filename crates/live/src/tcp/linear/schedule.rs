//! When to set the user timeout, and to what.

use std::time::Duration;

use tidegate_core::tcp_rate::linear_timeout;

/// How a connection stands at one moment. Times are since any beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Glance {
    pub(super) at: Duration,
    /// By how much later than was asked for.
    pub(super) late: Duration,
    /// Nothing is missing, and nothing that was sent again is out.
    pub(super) clean: bool,
    /// Time-outs since something was acknowledged, modulo 256.
    pub(super) in_a_row: u8,
    /// Segments that were ever sent again.
    pub(super) sent_again: u32,
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
    /// Make it so long that no time-out is shorter by it.
    TakeBack,
    /// Make it what it was before the first time-out.
    Restore,
}

/// The state machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Schedule {
    /// The time-out without back-off.
    base: Duration,
    /// When the connection was clean last: no later than the first retransmission, from which the
    /// kernel counts. None before it has ever been.
    clean: Option<Duration>,
    /// By the last look.
    sent_again: u32,
    in_a_row: u8,
    count: u32,
    next: Option<Duration>,
    /// For how long the timer was set that runs out then.
    armed: Duration,
    /// Since `clean`, while it is set.
    limit: Option<Duration>,
    /// Until then this machine is not trusted to have us run in time.
    unsteady: Duration,
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

    /// By how much the timer may run out later than at [`next`](Self::next): by an eighth of its length,
    /// as the kernel's wheel has it, and by a look, as when the connection was clean is no better known.
    /// No later than a moment before the limit passes: who is not sure by then takes it back.
    fn late(&self) -> Duration {
        let late = self.armed / 8 + IDLE + IDLE;
        late.max(LATE).min(self.gap().saturating_sub(LAST))
    }

    /// Takes a look.
    pub(super) fn on_glance(&mut self, glance: &Glance) -> Option<Order> {
        if glance.late > STEADY {
            self.unsteady = glance.at + WARY;
        }
        let sent = glance.sent_again != self.sent_again;
        self.sent_again = glance.sent_again;
        // The kernel has eight bits for it, and zero may be one of the row.
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
            // It was set to something else, then: as the kernel has it, or nobody knows.
            self.armed = glance.rto;
            self.next = Some(glance.sent + glance.rto).filter(|next| *next > glance.at);
            return self.limit.take().map(|_| Order::TakeBack);
        }
        let steady = glance.at >= self.unsteady;
        if steady && self.limit.is_none() && glance.at + LEAD >= next {
            let limit = next.saturating_sub(clean) + self.gap();
            self.limit = Some(limit);
            return Some(Order::Limit(limit));
        }
        None
    }

    fn acknowledged(&mut self, glance: &Glance) -> Option<Order> {
        if glance.clean {
            self.clean = Some(glance.at);
            self.base = glance.rto;
        }
        let was_on = self.is_on();
        (self.in_a_row, self.count) = (0, 0);
        (self.next, self.limit) = (None, None);
        was_on.then_some(Order::Restore)
    }

    /// `sent`: something was sent again since the last look.
    fn timed_out(&mut self, glance: &Glance, sent: bool, wrapped: bool) -> Option<Order> {
        let before = if glance.in_a_row < self.in_a_row && !wrapped {
            // An acknowledgement was missed, and this is another row.
            self.count = 0;
            0
        } else {
            self.in_a_row
        };
        self.count += u32::from(glance.in_a_row.wrapping_sub(before));
        self.in_a_row = glance.in_a_row;
        let limit = self.limit.take();
        if !sent {
            // What could not be sent, for want of a route or a place in the queue of the device, is
            // tried again after another time; and if it is the first, the kernel counts from when it
            // was sent for the first time.
            self.next = None;
            self.clean = self.clean.filter(|_| before > 0);
        } else if let Some(clean) = self.clean {
            let limited = limit.map(|limit| (clean + limit).saturating_sub(glance.sent));
            self.armed = limited.unwrap_or(glance.rto).min(glance.rto);
            self.next = Some(glance.sent + self.armed);
        }
        let ours = self.clean.is_some() && (before == 0 || limit.is_some());
        ours.then_some(Order::TakeBack)
    }

    /// When to look next, at `now`.
    pub(super) fn wake(&self, now: Duration) -> Duration {
        match self.next {
            Some(next) if now + LEAD < next => next.saturating_sub(LEAD).min(now + IDLE),
            Some(next) if self.limit.is_some() => next.saturating_sub(COARSE).max(now + TIGHT),
            Some(_) => now + TIGHT,
            None => now + IDLE,
        }
    }
}

/// From setting the user timeout to when the timer runs out: for so long the thread may be kept from
/// running without a time-out that doubles.
const LEAD: Duration = Duration::from_millis(120);
/// Short timers may be so late.
pub(super) const LATE: Duration = Duration::from_millis(150);
/// What is left of a limit when it is taken back without a time-out.
const LAST: Duration = Duration::from_millis(60);
/// Of the kernel's own times, of which some are in ticks of 10 ms.
const COARSE: Duration = Duration::from_millis(12);
/// Who was not run for so long, a quarter of what costs the connection, may be kept longer next time:
/// then time-outs double for a while, which costs but time.
const STEADY: Duration = Duration::from_millis(40);
/// For so long.
const WARY: Duration = Duration::from_secs(10);
/// Between looks while nothing is near.
const IDLE: Duration = Duration::from_millis(50);
/// Between looks while the timer is about to run out.
const TIGHT: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests;
