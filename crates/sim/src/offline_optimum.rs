//! Offline optimum: the frames that a sender with knowledge of the future could have saved.
//!
//! For each captured frame, the optimum decides from the recorded path whether a sender at the
//! encoder's lowest rate could have delivered it completely within the delay bound. That sender
//! knows every change of capacity and every outage, may delay or repeat packets, and has the path
//! alone. Random loss does not affect it, because it knows which packets to send twice. Frames are
//! sent in order of capture, which is the order of their deadlines. A frame that would be late is
//! not sent. For frames of equal size, no other order saves more.
//!
//! The code is independent of the link models and of the sender under evaluation.

mod connection;

use core::time::Duration;

use tidegate_core::media::FrameRate;
use tidegate_core::units::{Bytes, Rate, Time};

pub use connection::Connection;

/// One recorded link of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Capacity over time.
    pub service: Service,
    /// One-way propagation delay; its minimum if it varies.
    pub delay: Duration,
    /// Delay above that, each with the time from which it applies. The first time is zero, and the
    /// last delay applies to the end. Empty if the delay is constant.
    pub variation: Vec<(Time, Duration)>,
    /// Half-open outage periods, in order and disjoint. A packet whose transmission ends in one is
    /// lost.
    pub outages: Vec<(Time, Time)>,
    /// Queue size, if it is limited in bytes. A larger packet never passes. Further room has no
    /// effect, because the sender knows when to send.
    pub queue: Option<Bytes>,
}

/// Capacity of a link over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// Times at which up to 1500 bytes could leave, in milliseconds and in order. The last one,
    /// above zero, is the period after which they repeat.
    Opportunities(Vec<u32>),
    /// Rates, each with the time from which it applies. The first time is zero; the last rate
    /// applies to the end.
    Steps(Vec<(Time, Rate)>),
    /// Unlimited.
    Unlimited,
}

/// Sender of the offline optimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloorSender {
    /// The lowest rate of the encoder, without headers.
    pub floor: Rate,
    /// Frames per second; each frame has an equal share of the floor.
    pub frame_rate: FrameRate,
    /// Maximum payload of a packet. Zero counts as one byte.
    pub payload: Bytes,
    /// Headers per packet.
    pub overhead: Bytes,
    /// Maximum time from capture until arrival of the last byte.
    pub bound: Duration,
}

impl FloorSender {
    /// Returns for each frame, captured at these times in order, whether it could have been saved.
    pub fn savable(&self, path: &[Hop], captured: &[Time]) -> Vec<bool> {
        let packets = self.packets();
        let fits = |hop: &Hop| {
            let mut sizes = packets.iter();
            hop.queue
                .is_none_or(|queue| sizes.all(|size| *size <= queue))
        };
        if !path.iter().all(fits) {
            return vec![false; captured.len()];
        }
        let mut road: Vec<Server<'_>> = path.iter().map(Server::new).collect();
        let mut save = |captured: &Time| {
            let mut attempt = road.clone();
            let arrival = packets
                .iter()
                .try_fold(*captured, |_, size| pass(&mut attempt, *captured, *size));
            let saved = arrival.is_some_and(|arrival| arrival <= *captured + self.bound);
            if saved {
                road = attempt;
            }
            saved
        };
        captured.iter().map(&mut save).collect()
    }

    /// Sizes of the packets of one frame, including headers.
    fn packets(&self) -> Vec<Bytes> {
        let FrameRate { num, den } = self.frame_rate;
        // Bits per second times seconds per frame: at most 2^64 * 2^32.
        let bits = u128::from(self.floor.as_bps()) * u128::from(den);
        let bytes = bits.div_ceil(8 * u128::from(num.max(1))).max(1);
        let full = u128::from(self.payload.0.max(1));
        let (whole, rest) = (bytes / full, bytes % full);
        let last = (rest > 0).then_some(Bytes(rest as u64) + self.overhead);
        core::iter::repeat_n(Bytes(full as u64) + self.overhead, whole as usize)
            .chain(last)
            .collect()
    }
}

/// Sends a packet over the path. Returns its arrival.
fn pass(road: &mut [Server<'_>], sent: Time, size: Bytes) -> Option<Time> {
    road.iter_mut().try_fold(sent, |at, server| {
        let finished = server.serve(at, size)?;
        Some(server.hop.arrival(finished))
    })
}

impl Hop {
    /// Arrival of a packet whose transmission ends at `finished`. The sender lets it end later if
    /// the delay falls by more than the wait.
    fn arrival(&self, finished: Time) -> Time {
        let next = self
            .variation
            .partition_point(|(from, _)| *from <= finished);
        let now = next
            .checked_sub(1)
            .map_or(Duration::ZERO, |now| self.variation[now].1);
        let later = self.variation[next..].iter();
        let best = later
            .take_while(|(from, _)| *from < finished + now)
            .map(|(from, extra)| *from + *extra)
            .min();
        best.unwrap_or(Time::FAR).min(finished + now) + self.delay
    }
}

/// State of a link after the packets sent so far.
#[derive(Clone, Debug)]
struct Server<'a> {
    hop: &'a Hop,
    /// End of the last transmission.
    free: Time,
    /// The delivery opportunity of the last packet, and its used bytes.
    moment: u64,
    used: u64,
}

impl<'a> Server<'a> {
    fn new(hop: &'a Hop) -> Self {
        Self {
            hop,
            free: Time::ZERO,
            moment: 0,
            used: 0,
        }
    }

    /// End of transmission of a packet that is available at `ready`, without loss in an outage;
    /// none if it never leaves.
    fn serve(&mut self, ready: Time, size: Bytes) -> Option<Time> {
        let mut start = ready.max(self.free);
        let mut out = self.transmit(start, size)?;
        while let Some((_, end)) = self.outage(out) {
            // The sender lets the last bit leave at the end of the outage, if the link transmits
            // then.
            out = if self.moves_into(end) {
                end
            } else {
                start = end;
                self.transmit(start, size)?
            };
        }
        self.free = out;
        Some(out)
    }

    fn outage(&self, at: Time) -> Option<(Time, Time)> {
        let mut outages = self.hop.outages.iter();
        outages.find(|(from, to)| *from <= at && at < *to).copied()
    }

    /// Whether a transmission that began earlier can be timed to end at `end`.
    fn moves_into(&self, end: Time) -> bool {
        match &self.hop.service {
            Service::Opportunities(_) => false,
            Service::Steps(steps) => {
                let before = steps.iter().rev().find(|(from, _)| *from < end);
                before.is_some_and(|(_, rate)| *rate > Rate::ZERO)
            }
            Service::Unlimited => true,
        }
    }

    /// End of a transmission that begins at `start`.
    fn transmit(&mut self, start: Time, size: Bytes) -> Option<Time> {
        match &self.hop.service {
            Service::Opportunities(millis) => {
                let first = first_moment(millis, start)?;
                if first > self.moment {
                    (self.moment, self.used) = (first, 0);
                }
                let end = self.used + size.0;
                // A packet that ends with the last byte of an opportunity still leaves with it.
                let further = end.saturating_sub(1) / MOMENT;
                self.moment += further;
                self.used = end - further * MOMENT;
                Some(moment(millis, self.moment))
            }
            Service::Steps(steps) => transmit_in_steps(steps, start, size),
            Service::Unlimited => Some(start),
        }
    }
}

/// Integrates the rate from `start` until `size` is transmitted. `None`: the remaining rates are
/// zero.
fn transmit_in_steps(steps: &[(Time, Rate)], start: Time, size: Bytes) -> Option<Time> {
    // Bits times nanoseconds per second, so that no rounding occurs: 2^67 * 2^30.
    let mut left = u128::from(size.0) * 8 * NANOS;
    let mut at = start;
    for (index, (_, rate)) in steps.iter().enumerate() {
        let end = steps.get(index + 1).map_or(Time::FAR, |(next, _)| *next);
        if end <= at {
            continue;
        }
        let rate = u128::from(rate.as_bps());
        let carried = rate * end.since(at).as_nanos();
        if carried >= left && rate > 0 {
            return Some(at + Duration::from_nanos(left.div_ceil(rate) as u64));
        }
        left -= carried.min(left);
        at = end;
    }
    None
}

/// Time of the delivery opportunity with this number, counted over all periods.
fn moment(millis: &[u32], number: u64) -> Time {
    let (cycle, index) = (number / millis.len() as u64, number % millis.len() as u64);
    let period = millis.last().copied().map_or(0, u64::from);
    Time::from_millis(cycle * period + u64::from(millis[index as usize]))
}

/// Number of the first delivery opportunity at or after `at`; none if there is no period.
fn first_moment(millis: &[u32], at: Time) -> Option<u64> {
    let period = millis.last().copied().filter(|period| *period > 0)?;
    let count = millis.len() as u64;
    let cycle = at.as_nanos() / (u64::from(period) * 1_000_000);
    // The last opportunities of a period coincide with the first ones of the next, so the result
    // may belong to the previous period.
    let (mut low, mut high) = (cycle.saturating_sub(1) * count, (cycle + 1) * count);
    while low < high {
        let middle = low.midpoint(high);
        if moment(millis, middle) < at {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(low)
}

const NANOS: u128 = 1_000_000_000;
/// Bytes per delivery opportunity: the MTU of mahimahi.
const MOMENT: u64 = 1_500;

#[cfg(test)]
mod tests;
