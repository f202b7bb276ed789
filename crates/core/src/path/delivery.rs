//! Rate at which packets arrive.

use std::collections::VecDeque;

use super::WindowMax;

/// Delivered rates, in bytes per second, from arrival times.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// Bytes delivered so far.
    total: f64,
    marks: VecDeque<Mark>,
    rate: f64,
    /// Length of the window in seconds.
    span: f64,
    /// Newest arrival at the last call of [`recent`](Self::recent).
    last: Option<Mark>,
    largest: WindowMax,
    /// Newest rate of an application without limits; since then the largest of a limited one.
    validated: f64,
    /// Newest arrival after which the application had nothing to send.
    idle: f64,
}

/// An arrival within the window.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: f64,
    /// Latest departure so far.
    sent: f64,
    /// Bytes delivered until then.
    total: f64,
}

impl Mark {
    /// Seconds between two arrivals. Packets arrive at most [`FASTEST`] times as fast as they were
    /// sent, whatever the receiver tells.
    fn since(&self, earlier: &Self) -> f64 {
        (self.at - earlier.at).max((self.sent - earlier.sent) / FASTEST)
    }
}

impl Delivery {
    pub(super) fn new() -> Self {
        Self {
            total: 0.0,
            marks: VecDeque::with_capacity(MARKS),
            rate: 0.0,
            span: MIN_SPAN,
            last: None,
            largest: WindowMax::new(1.0),
            validated: 0.0,
            idle: f64::NEG_INFINITY,
        }
    }

    /// A packet of `size` that was sent at `sent` has arrived at `at`.
    pub(super) fn on_received(&mut self, (sent, at): (f64, f64), size: f64, is_last: bool) {
        self.total += size;
        if is_last {
            self.idle = self.idle.max(at);
        }
        let last = self.marks.back().copied();
        if self.marks.len() == MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark {
            at: last.map_or(at, |last| last.at.max(at)),
            sent: last.map_or(sent, |last| last.sent.max(sent)),
            total: self.total,
        });
    }

    /// The next packet, sent at `sent`, has arrived at `at` through an empty queue. After a pause of the
    /// application, arrivals before it do not count, and the rate is that before it until there are
    /// enough.
    pub(super) fn end_pause(&mut self, sent: f64, at: f64) {
        let last = self.marks.back();
        if last.is_some_and(|last| sent - last.sent > self.span) {
            self.restart();
            self.idle = self.idle.max(at);
        }
    }

    /// A packet was lost, but not by congestion: the path had capacity for it.
    pub(super) fn on_link_error(&mut self, size: f64) {
        self.total += size;
        if let Some(mark) = self.marks.back_mut() {
            mark.total = self.total;
        }
    }

    /// All packets of a report are known.
    pub(super) fn close(&mut self) {
        let Some(&newest) = self.marks.back() else {
            return;
        };
        while self.marks.len() > 5 && newest.at - self.marks[1].at > self.span {
            self.marks.pop_front();
        }
        let oldest = self.marks[0];
        let time = newest.since(&oldest);
        if self.marks.len() >= 4 && time > MIN_TIME {
            self.rate = (newest.total - oldest.total) / time;
            self.largest.add(newest.at, self.rate);
            self.validated = if self.is_limited() {
                self.validated.max(self.rate)
            } else {
                self.rate
            };
        }
    }

    /// Arrivals before now do not count: the path was silent.
    pub(super) fn restart(&mut self) {
        self.marks.clear();
        self.last = None;
    }

    /// The path carries only `rate` from now on.
    pub(super) fn fall_to(&mut self, rate: f64) {
        self.restart();
        self.rate = rate;
        self.largest = WindowMax::new(1.0);
        self.validated = rate;
    }

    /// Rate over the window.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// Replaces the rate until there are enough arrivals.
    pub(crate) fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }

    /// Sets the window: `rtt` seconds, within limits, or eight packets.
    pub(crate) fn set_span(&mut self, rtt: f64, size: f64) {
        let packets = MIN_PACKETS * size / self.rate.max(4.0 * size);
        self.span = rtt.clamp(MIN_SPAN, MAX_SPAN).max(packets);
    }

    /// Length of the window in seconds.
    pub(crate) fn span(&self) -> f64 {
        self.span
    }

    /// Rate since the last call; `None` if that is too short.
    pub(crate) fn recent(&mut self) -> Option<f64> {
        let newest = *self.marks.back()?;
        let before = self.last.replace(newest)?;
        let time = newest.since(&before);
        (time > MIN_TIME).then(|| (newest.total - before.total) / time)
    }

    /// Largest rate that may be allowed: what the path carried last, and half more than it does now.
    pub(crate) fn ceiling(&self) -> f64 {
        self.validated.max(1.5 * self.largest())
    }

    /// Largest rate of the last seconds.
    pub(crate) fn largest(&self) -> f64 {
        self.largest.get().unwrap_or(0.0).max(self.rate)
    }

    /// Whether the application had nothing to send within the window.
    pub(crate) fn is_limited(&self) -> bool {
        let newest = self.marks.back().map_or(0.0, |mark| mark.at);
        newest - self.idle <= self.span
    }
}

/// Limits of the window, in seconds. Longer windows react late; shorter ones have too much noise.
const MIN_SPAN: f64 = 0.1;
const MAX_SPAN: f64 = 0.5;
const MIN_PACKETS: f64 = 8.0;
/// Shortest time of which a rate is computed, in seconds.
const MIN_TIME: f64 = 0.02;
/// Largest ratio of the rates of arrival and departure: a queue that empties, or forged arrival times.
const FASTEST: f64 = 2.0;
/// Arrivals that are kept: half a second at 8,000 packets per second.
const MARKS: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_errors_do_not_lower_the_rate() {
        let rate = |counts| {
            let mut delivery = Delivery::new();
            for i in 0..100 {
                if i % 10 == 9 {
                    if counts {
                        delivery.on_link_error(1_000.0);
                    }
                } else {
                    let at = f64::from(i) * 0.01;
                    delivery.on_received((at, at), 1_000.0, false);
                }
                delivery.close();
            }
            delivery.rate()
        };
        assert!((rate(true) - 1e5).abs() < 1e4, "{}", rate(true));
        assert!((rate(false) - 0.9e5).abs() < 1e4, "{}", rate(false));
    }

    #[test]
    fn arrival_times_do_not_exceed_twice_the_sending_rate() {
        let mut delivery = Delivery::new();
        for i in 0..100 {
            let sent = f64::from(i) * 0.01;
            delivery.on_received((sent, sent / 1e3), 1_000.0, false);
            delivery.close();
        }
        assert!(delivery.rate() <= 2e5 && delivery.largest() <= 2e5);
    }
}
