//! Competition with flows that fill the queue: a share as TCP would have, by the losses.

use std::collections::VecDeque;

use super::config::Friend;
use crate::path::{Congestion, Path, Queue};

/// Detector of competition, and the limits of the rate in it.
#[derive(Clone, Debug)]
pub(super) struct Competition {
    friend: Friend,
    /// Whether other flows compete.
    pub(super) is_on: bool,
    /// Smallest delays of the last reports.
    standing: VecDeque<(f64, f64)>,
    /// Mean delay, and how much of its time constant has passed.
    mean: f64,
    known: f64,
    /// Time of sending of the last packets lost by congestion: the last one, and the last one
    /// without doubt.
    congested: f64,
    surely: f64,
    /// Time of sending of the last marked packet.
    marked: f64,
    overflow: f64,
    /// Until when the queue is, or may be, this flow's own.
    own_until: f64,
    reported: f64,
    /// Slow mean of the rate.
    pub(super) slow_rate: f64,
    /// Lower limit of the rate.
    floor: f64,
    test: Test,
}

/// Test whether the queue empties without this flow.
#[derive(Clone, Copy, Debug)]
struct Test {
    until: f64,
    began: f64,
    /// Factor of the interval of the tests.
    interval: f64,
    /// Lower limit of the rate before.
    floor: f64,
}

/// Limits of the rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) least: f64,
    pub(super) most: f64,
}

/// Input of an update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) now: f64,
    pub(super) span: f64,
    pub(super) queue: Queue,
    /// Targets of the delay law.
    pub(super) target: f64,
    pub(super) full_target: f64,
    pub(super) is_start: bool,
    pub(super) least_rate: f64,
}

/// A packet that a queue without other flows lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overflow {
    pub(super) queue: f64,
    pub(super) is_strong: bool,
}

impl Competition {
    pub(super) fn new(friend: Friend) -> Self {
        Self {
            friend,
            is_on: false,
            standing: VecDeque::new(),
            mean: 0.0,
            known: 0.0,
            congested: f64::NEG_INFINITY,
            surely: f64::NEG_INFINITY,
            marked: f64::NEG_INFINITY,
            overflow: 0.0,
            own_until: f64::NEG_INFINITY,
            reported: f64::NEG_INFINITY,
            slow_rate: 0.0,
            floor: 0.0,
            test: Test {
                until: f64::NEG_INFINITY,
                began: f64::NEG_INFINITY,
                interval: 1.0,
                floor: 0.0,
            },
        }
    }

    pub(super) fn on_congestion(&mut self, loss: Congestion) {
        self.congested = loss.sent;
        self.overflow = loss.queue;
        if loss.is_mark {
            self.marked = loss.sent;
        }
        if loss.is_strong && loss.sent > self.own_until {
            self.surely = loss.sent;
        }
    }

    /// The path fell to `rate`, so the queue is this flow's own until `until` at the latest.
    pub(super) fn on_fall(&mut self, rate: f64, until: f64) {
        self.own_until = until;
        self.slow_rate = self.slow_rate.min(rate);
        self.mean = 0.0;
    }

    /// Whether a packet sent within `span` seconds before `now` was lost by congestion, without
    /// doubt.
    pub(super) fn is_congested(&self, now: f64, span: f64) -> bool {
        now - self.surely < span
    }

    /// Follows the rate in the mean of some round trips.
    pub(super) fn on_rate(&mut self, rate: f64, rtt: f64, span: f64) {
        if self.slow_rate > 0.0 {
            let time = f64::max(2.0, 4.0 * rtt);
            self.slow_rate += (rate - self.slow_rate) * (span / time).min(1.0);
        } else {
            self.slow_rate = rate;
        }
    }

    /// Decides whether other flows compete. Returns the limits of the rate in that case, or else a
    /// new overflow of the own queue.
    pub(super) fn update(
        &mut self,
        path: &Path,
        input: Input,
    ) -> (Option<Limits>, Option<Overflow>) {
        let (now, rtt) = (input.now, path.rtt());
        let is_standing = self.is_standing(path, input);
        let is_recent = now - self.surely < f64::max(10.0, 100.0 * rtt);
        let alone = path.is_alone();
        let mut is_on = !alone && (is_standing || is_recent);
        is_on &= !self.is_test(path, input);
        if is_on && !self.is_on {
            self.floor = self.slow_rate;
            if now - self.test.began < f64::max(10.0, 60.0 * rtt) {
                self.floor = self.floor.max(self.test.floor);
                self.test.interval = MAX_INTERVAL;
            }
        }
        self.is_on = is_on;
        if is_on {
            return (Some(self.limits(path, input)), None);
        }
        let is_new = is_recent && alone && self.congested > self.reported;
        let overflow = is_new.then_some(Overflow {
            queue: self.overflow,
            is_strong: self.surely >= self.congested,
        });
        if is_new {
            self.reported = self.congested;
        }
        // A mark asks for the rate of TCP, whoever fills the queue (RFC 3168 section 5).
        let is_marked = now - self.marked < f64::max(10.0, 100.0 * rtt);
        let marked = is_marked.then(|| Limits {
            least: 0.0,
            most: self.most(path),
        });
        (marked, overflow)
    }

    /// Rate of TCP at the losses by congestion.
    fn most(&self, path: &Path) -> f64 {
        let (size, rtt) = (path.size(), path.rtt().max(1e-3));
        let rate = path.losses().by_congestion().event_rate();
        self.friend.throughput(size, rtt, rate).max(size / rtt)
    }

    /// Whether the queue stays long although this flow keeps it short.
    fn is_standing(&mut self, path: &Path, input: Input) -> bool {
        let Input {
            now,
            queue,
            full_target,
            ..
        } = input;
        let rtt = path.rtt();
        let window = f64::max(1.0, 6.0 * rtt);
        if now < self.own_until {
            self.standing.clear();
            self.standing.push_back((now, queue.least));
            if queue.now <= full_target {
                self.own_until = now;
            }
            return false;
        }
        self.standing.push_back((now, queue.least));
        while self.standing.len() > 2 && now - self.standing[0].0 > window {
            self.standing.pop_front();
        }
        let weight = input.span / f64::max(4.0, 20.0 * rtt);
        self.known = (self.known + weight).min(1.0);
        if !input.is_start {
            self.mean += weight * (queue.now - self.mean);
        }
        let share = path.share().unwrap_or(0.0).clamp(0.05, 1.0);
        let packets = 4.0 * share * path.size() / path.rate().max(path.size());
        let least = self
            .standing
            .iter()
            .map(|(_, q)| *q)
            .fold(f64::INFINITY, f64::min);
        let is_whole = now - self.standing[0].0 > 0.8 * window;
        let is_long = !input.is_start && self.mean > full_target + full_target.max(0.015);
        is_long || (is_whole && least > 0.025 + packets)
    }

    /// From time to time the delay law alone decides: if the queue empties, no other flow held it.
    fn is_test(&mut self, path: &Path, input: Input) -> bool {
        let (now, rtt, queue) = (input.now, path.rtt(), input.queue);
        let between = f64::max(5.0, 10.0 * rtt);
        let test = &mut self.test;
        let is_due = now - test.began > test.interval * between
            && queue.now >= 0.85 * path.losses().longest_queue();
        if self.is_on && now > test.until && is_due {
            let lasts = 3.0 * (rtt + rtt.clamp(0.1, 0.5) / 2.0 + 0.05) + 3.0 * queue.now;
            *test = Test {
                until: now + lasts.min(3.0),
                began: now,
                interval: (2.0 * test.interval).min(MAX_INTERVAL),
                floor: self.floor,
            };
        }
        if now < test.until {
            if queue.least < f64::max(0.5 * input.target, 0.002) {
                test.until = now;
                (self.congested, self.surely) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
                self.standing.clear();
                self.standing.push_back((now, queue.least));
            }
            return true;
        }
        if !self.is_on && now - test.began > 4.0 * test.interval * between {
            test.interval = 1.0;
        }
        false
    }

    fn limits(&mut self, path: &Path, input: Input) -> Limits {
        let (size, rtt) = (path.size(), path.rtt().max(1e-3));
        let losses = path.losses();
        let all = self.friend.throughput(size, rtt, losses.all().event_rate());
        let mut step = size * input.span / (rtt * rtt);
        if losses.all().intervals_known() >= 4 && all > self.floor {
            step = step.max((all - self.floor) * input.span / f64::max(4.0 * rtt, 0.2));
        }
        let most = 2.0 * path.rate().max(input.least_rate);
        self.floor = (self.floor + step).min(all).min(most);
        Limits {
            least: FLOOR_FACTOR * self.floor,
            most: self.most(path),
        }
    }
}

/// Longest interval of the tests, in units of the shortest.
const MAX_INTERVAL: f64 = 16.0;
/// The floor is this much above the rate of the equation: loss events of an even flow are more
/// frequent per packet than those of a bursty one.
const FLOOR_FACTOR: f64 = 1.15;
