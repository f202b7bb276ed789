//! Data source of a paced sender.

use tidegate_core::units::{Bytes, Rate, Time, nanos};

use crate::traffic::Schedule;

/// Data to send.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// Unlimited.
    Greedy,
    /// This many packets, all available from the start.
    Packets(u64),
    /// Data of an application: rates in wire bytes, each with the time from which it applies, in
    /// ascending order. No data before the first one. If the controller allows less, packets beyond
    /// a backlog of 16 are discarded, as live media does.
    Application(Vec<(Time, Rate)>),
}

/// Whether the backlog has a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Supply {
    /// The backlog is empty.
    Empty,
    /// The backlog has at least one packet.
    More,
}

/// Packets that wait for transmission.
#[derive(Debug)]
pub(super) enum Backlog {
    Greedy,
    Packets(u64),
    Application(Application),
}

impl Backlog {
    pub(super) fn new(workload: &Workload, start: Time, size: Bytes) -> Self {
        match workload {
            Workload::Greedy => Self::Greedy,
            Workload::Packets(n) => Self::Packets(*n),
            Workload::Application(steps) => {
                Self::Application(Application::new(steps.clone(), start, size))
            }
        }
    }

    /// Time at which the next packet is available, which may be in the past; `None` if there are no
    /// further packets.
    #[inline]
    pub(super) fn ready(&mut self, now: Time) -> Option<Time> {
        match self {
            Self::Packets(0) => None,
            Self::Greedy | Self::Packets(_) => Some(Time::ZERO),
            Self::Application(application) => application.ready(now),
        }
    }

    /// Removes an available packet. Returns whether another one is available.
    #[inline]
    pub(super) fn take(&mut self, now: Time) -> Supply {
        let more = match self {
            Self::Greedy => true,
            Self::Packets(n) => {
                *n = n.saturating_sub(1);
                *n > 0
            }
            Self::Application(application) => application.take(now),
        };
        if more { Supply::More } else { Supply::Empty }
    }

    /// Whether there are no further packets.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Greedy => false,
            Self::Packets(n) => *n == 0,
            Self::Application(application) => application.is_over(),
        }
    }
}

/// An application with a variable bit rate, in packets of one size. At most 16 packets wait.
#[derive(Debug)]
pub struct Application {
    steps: Vec<(Time, Rate)>,
    /// Index of the next step.
    next: usize,
    rate: Rate,
    /// Time up to which data has been generated.
    now: Time,
    /// Backlog in 1e-9 bit: a rate times a nanosecond.
    waiting: u64,
    packet: u64,
}

impl Application {
    /// An application that generates packets of `size` at `rate` from `start` on.
    pub fn of(rate: &Schedule, start: Time, size: Bytes) -> Self {
        let first = (Time::ZERO, rate.first);
        let steps = core::iter::once(first).chain(rate.steps.iter().copied());
        Self::new(steps.collect(), start, size)
    }

    fn new(steps: Vec<(Time, Rate)>, start: Time, size: Bytes) -> Self {
        Self {
            steps,
            next: 0,
            rate: Rate::ZERO,
            now: start,
            waiting: 0,
            packet: size.bits().saturating_mul(1_000_000_000).max(1),
        }
    }

    fn advance(&mut self, now: Time) {
        while let Some((at, rate)) = self.steps.get(self.next).copied().filter(|s| s.0 <= now) {
            self.make(at);
            self.rate = rate;
            self.next += 1;
        }
        self.make(now);
    }

    fn make(&mut self, until: Time) {
        let made = self
            .rate
            .as_bps()
            .saturating_mul(nanos(until.since(self.now)));
        let most = self.packet.saturating_mul(MAX_WAITING);
        self.waiting = self.waiting.saturating_add(made).min(most);
        self.now = self.now.max(until);
    }

    /// Time at which the next packet is available, [`Time::ZERO`] if one is available now; `None`
    /// if there are no further packets.
    #[inline(never)]
    pub fn ready(&mut self, now: Time) -> Option<Time> {
        self.advance(now);
        if self.waiting >= self.packet {
            return Some(Time::ZERO);
        }
        let (mut at, mut waiting, mut rate) = (self.now, self.waiting, self.rate.as_bps());
        let mut steps = self.steps[self.next..].iter();
        loop {
            let missing = self.packet.saturating_sub(waiting);
            let full = (rate > 0).then(|| at + nanoseconds(missing.div_ceil(rate)));
            match (full, steps.next()) {
                (Some(full), Some((step, _))) if full <= *step => return Some(full),
                (full, None) => return full,
                (_, Some((step, next))) => {
                    waiting += rate.saturating_mul(nanos(step.since(at))).min(missing);
                    (at, rate) = (*step, next.as_bps());
                }
            }
        }
    }

    /// Whether there are no further packets.
    pub fn is_over(&self) -> bool {
        let rates = self.steps[self.next..].iter().map(|step| step.1);
        let silent = self.rate == Rate::ZERO && rates.max().is_none_or(|max| max == Rate::ZERO);
        silent && self.waiting < self.packet
    }

    /// Removes an available packet. Returns whether another one is available.
    pub fn take(&mut self, now: Time) -> bool {
        self.advance(now);
        self.waiting = self.waiting.saturating_sub(self.packet);
        self.waiting >= self.packet
    }
}

fn nanoseconds(n: u64) -> core::time::Duration {
    core::time::Duration::from_nanos(n)
}

/// Maximum backlog of an application: a few frames of video.
const MAX_WAITING: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn application_generates_packets_at_its_rate() {
        // 1000 bytes take 8 ms at 1 Mb/s, and the rate is zero from 20 ms to 100 ms.
        let ms = Time::from_millis;
        let steps = vec![
            (ms(4), Rate::kbps(1_000)),
            (ms(20), Rate::ZERO),
            (ms(100), Rate::kbps(2_000)),
        ];
        let workload = Workload::Application(steps);
        let mut backlog = Backlog::new(&workload, Time::ZERO, Bytes(1_000));
        assert_eq!(backlog.ready(ms(0)), Some(ms(12)));
        assert_eq!(backlog.ready(ms(14)), Some(Time::ZERO));
        assert_eq!(backlog.take(ms(14)), Supply::Empty);
        assert_eq!(
            backlog.ready(ms(14)),
            Some(ms(20)),
            "2 ms of data are in the backlog"
        );
        assert_eq!(backlog.take(ms(20)), Supply::Empty);
        assert_eq!(backlog.ready(ms(20)), Some(ms(104)));
        assert_eq!(backlog.take(ms(112)), Supply::More);
        assert_eq!(backlog.ready(ms(2_000)), Some(Time::ZERO));
        let left = (0..).take_while(|_| backlog.take(ms(2_000)) == Supply::More);
        assert_eq!(left.count(), 15, "the backlog is limited to 16 packets");
    }

    #[test]
    fn ended_application_has_no_packets() {
        let ms = Time::from_millis;
        let steps = vec![(ms(0), Rate::kbps(1_000)), (ms(9), Rate::ZERO)];
        let mut backlog = Backlog::new(&Workload::Application(steps), ms(0), Bytes(1_000));
        assert_eq!(backlog.ready(ms(0)), Some(ms(8)));
        assert_eq!(backlog.take(ms(8)), Supply::Empty);
        assert!(!backlog.is_over());
        assert_eq!(backlog.ready(ms(9)), None);
        assert!(backlog.is_over());
    }
}
