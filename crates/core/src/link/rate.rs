//! Capacity of a transmitter over time.

use core::num::ParseIntError;
use core::time::Duration;
use std::sync::Arc;

use super::steps::Steps;
use crate::units::{Bytes, Rate, Time};

/// The capacity of a link over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// Transmission takes zero time.
    Unlimited,
    /// Constant rate.
    Fixed(Rate),
    /// Piecewise constant rate. Zero is a stall: the packet in transmission waits.
    Steps(Steps<Rate>),
    /// Recorded transmission opportunities.
    Trace(Trace),
}

impl Capacity {
    /// Rate at `at`; `None` is unlimited. For a trace, the mean over the 500 ms around `at`.
    pub fn rate_at(&self, at: Time) -> Option<Rate> {
        match self {
            Self::Unlimited => None,
            Self::Fixed(rate) => Some(*rate),
            Self::Steps(steps) => Some(steps.at(at)),
            Self::Trace(trace) => {
                let (from, to) = (at.before(TRACE_WINDOW / 2), at + TRACE_WINDOW / 2);
                Some(trace.offered(from, to) / to.since(from))
            }
        }
    }

    /// Capacity from `from` to before `to`, rounded down to bytes; `None` is unlimited.
    pub fn offered(&self, from: Time, to: Time) -> Option<Bytes> {
        match self {
            Self::Unlimited => None,
            Self::Fixed(rate) => Some(*rate * to.since(from)),
            Self::Steps(steps) => Some(offered_in_steps(steps, from, to)),
            Self::Trace(trace) => Some(trace.offered(from, to)),
        }
    }

    /// Representative rate: the fixed rate, the first non-zero step, or the mean of a trace. `None`
    /// is unlimited.
    pub fn nominal(&self) -> Option<Rate> {
        match self {
            Self::Unlimited => None,
            Self::Fixed(rate) => Some(*rate),
            Self::Steps(steps) => {
                let moving = steps.as_slice().iter().find(|(_, rate)| *rate > Rate::ZERO);
                Some(moving.map_or(Rate::ZERO, |(_, rate)| *rate))
            }
            Self::Trace(trace) => {
                Some(Bytes(trace.len().saturating_mul(OPPORTUNITY)) / trace.period())
            }
        }
    }
}

/// Integrates over the steps. Work is in bits times 10⁹, so that rate times nanoseconds is an
/// integer: 2^64 bytes are below 2^97, rate times time below 2^128.
fn serve_in_steps(steps: &Steps<Rate>, start: Time, size: Bytes) -> Option<Time> {
    let list = steps.as_slice();
    let mut left = work(size);
    let mut from = start;
    for i in steps.index(start).. {
        let rate = u128::from(list[i].1.as_bps());
        let until = list.get(i + 1).map(|(at, _)| *at);
        let fits = until.map(|until| rate * until.since(from).as_nanos());
        if fits.is_none_or(|fits| left <= fits) {
            let end = u128::from(from.as_nanos()) + left.checked_div_ceil(rate)?;
            return within_reach(end);
        }
        left -= fits?;
        from = until?;
    }
    None
}

/// Capacity from `from` to before `to`.
fn offered_in_steps(steps: &Steps<Rate>, from: Time, to: Time) -> Bytes {
    let list = steps.as_slice();
    let mut sum = 0_u128;
    let mut at = from;
    for i in steps.index(from).. {
        let next = list.get(i + 1).map_or(Time::FAR, |(at, _)| *at);
        let end = next.min(to);
        let piece = u128::from(list[i].1.as_bps()) * end.since(at).as_nanos();
        sum = sum.saturating_add(piece);
        if next >= to {
            break;
        }
        at = next;
    }
    Bytes(u64::try_from(sum / work(Bytes(1))).unwrap_or(u64::MAX))
}

/// Transmission opportunities of up to 1500 bytes each, in the format of mahimahi. A line is the
/// time of an opportunity in milliseconds, ascending. The last line is also the period of
/// repetition.
///
/// As in mahimahi, a packet departs with the opportunity that carries its last byte. The remainder
/// of an opportunity serves the next packet in the queue. A packet larger than the remainder waits
/// for further opportunities. An opportunity without a waiting packet is lost. A packet whose
/// service starts at the exact time of an opportunity may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    millis: Arc<[u32]>,
}

impl Trace {
    /// Parses the file format. Empty lines are skipped.
    ///
    /// # Errors
    ///
    /// A line is not a number or goes back in time, or the trace has no period. The error names the
    /// line.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut millis: Vec<u32> = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let (number, line) = (i + 1, line.trim());
            if line.is_empty() {
                continue;
            }
            let at = line.parse().map_err(|cause| TraceError::NotANumber {
                line: number,
                text: line.chars().take(40).collect(),
                cause,
            })?;
            if let Some(&before) = millis.last()
                && before > at
            {
                return Err(TraceError::GoesBack {
                    line: number,
                    at,
                    before,
                });
            }
            millis.push(at);
        }
        match millis.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::NoPeriod),
            Some(_) => Ok(Self {
                millis: millis.into(),
            }),
        }
    }

    /// Period of repetition.
    pub fn period(&self) -> Duration {
        Duration::from_millis(u64::from(self.millis[self.millis.len() - 1]))
    }

    fn len(&self) -> u64 {
        self.millis.len() as u64
    }

    /// Number of opportunities before `at`, which is the index of the first one at or after it.
    fn before(&self, at: Time) -> u128 {
        let (at, period) = (u128::from(at.as_nanos()), self.period().as_nanos());
        let (cycle, rest) = (at / period, at % period);
        let all = self.millis.len() as u128;
        if rest == 0 && cycle > 0 {
            // The last opportunities of the previous cycle coincide with this time.
            let last = self.millis[self.millis.len() - 1];
            let earlier = self.millis.partition_point(|ms| *ms < last);
            return (cycle - 1) * all + earlier as u128;
        }
        let earlier = self
            .millis
            .partition_point(|ms| u128::from(*ms) * NANOS_PER_MILLI < rest);
        cycle * all + earlier as u128
    }

    fn time(&self, number: u128) -> Option<Time> {
        let all = self.millis.len() as u128;
        let millis = self.millis[(number % all) as usize];
        let start = (number / all).checked_mul(self.period().as_nanos())?;
        within_reach(start + u128::from(millis) * NANOS_PER_MILLI)
    }

    fn offered(&self, from: Time, to: Time) -> Bytes {
        let count = self.before(to).saturating_sub(self.before(from));
        let bytes = count.saturating_mul(u128::from(OPPORTUNITY));
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// Invalid trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The trace has no opportunity.
    #[error("the trace is empty: give a line with a time in ms per opportunity")]
    Empty,
    /// The time of a line is before the previous line.
    #[error("line {line} of the trace: {at} ms comes after {before} ms; sort the lines")]
    GoesBack {
        /// Line number, from one.
        line: usize,
        /// Time of the line, in ms.
        at: u32,
        /// Time of the previous line, in ms.
        before: u32,
    },
    /// All times are zero, so the period is zero.
    #[error("all times of the trace are 0 ms: its last line is the period and must be above 0")]
    NoPeriod,
    /// The line is not an integer number of milliseconds below 2³².
    #[error(
        "line {line} of the trace: `{text}` is not an integer number of milliseconds ({cause})"
    )]
    NotANumber {
        /// Line number, from one.
        line: usize,
        /// Beginning of the line.
        text: String,
        /// Error of the parser.
        cause: ParseIntError,
    },
}

/// Transmitter: a capacity with the used share of the current opportunity.
#[derive(Clone, Debug)]
pub struct Transmitter {
    capacity: Capacity,
    /// Index of the last used opportunity of a trace, or of the next one if that is used up.
    opportunity: u128,
    used: u64,
    /// Fixed rate only: the last size and its transmission time in ns. Consecutive packets mostly
    /// have the same size.
    known: Option<(Bytes, u64)>,
}

impl Transmitter {
    /// Idle transmitter.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            opportunity: 0,
            used: 0,
            known: None,
        }
    }

    /// Capacity of the transmitter.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Whether transmission takes zero time.
    #[inline]
    pub fn is_instant(&self) -> bool {
        matches!(self.capacity, Capacity::Unlimited)
    }

    /// Transmission time of a packet of `size` in ns, if independent of the start and below 2⁶⁴.
    pub(super) fn time(&self, size: Bytes) -> Option<u64> {
        match &self.capacity {
            Capacity::Unlimited => Some(0),
            Capacity::Fixed(rate) => {
                let nanos = work(size).checked_div_ceil(u128::from(rate.as_bps()))?;
                u64::try_from(nanos).ok()
            }
            Capacity::Steps(_) | Capacity::Trace(_) => None,
        }
    }

    /// End of the transmission of a packet of `size` that starts at `start`, rounded up to 1 ns;
    /// `None` if it never ends. `start` is non-decreasing.
    #[inline]
    pub fn serve(&mut self, start: Time, size: Bytes) -> Option<Time> {
        let nanos = match (&self.capacity, self.known) {
            (Capacity::Unlimited, _) => return Some(start),
            (Capacity::Fixed(_), Some((known, nanos))) if known == size => nanos,
            _ => return self.serve_uncached(start, size),
        };
        let end = Time::from_nanos(start.as_nanos().checked_add(nanos)?);
        (end < Time::FAR).then_some(end)
    }

    /// [`serve`](Self::serve) for a size without a cached transmission time.
    fn serve_uncached(&mut self, start: Time, size: Bytes) -> Option<Time> {
        match &self.capacity {
            Capacity::Unlimited => Some(start),
            Capacity::Fixed(rate) => {
                let nanos = work(size).checked_div_ceil(u128::from(rate.as_bps()))?;
                self.known = u64::try_from(nanos).ok().map(|nanos| (size, nanos));
                within_reach(u128::from(start.as_nanos()) + nanos)
            }
            Capacity::Steps(steps) => serve_in_steps(steps, start, size),
            Capacity::Trace(trace) => {
                let first = trace.before(start);
                if first > self.opportunity {
                    (self.opportunity, self.used) = (first, 0);
                }
                // A packet of zero bytes uses an opportunity as well.
                let total = self.used.saturating_add(size.get().max(1));
                let last = self.opportunity + u128::from((total - 1) / OPPORTUNITY);
                self.used = (total - 1) % OPPORTUNITY + 1;
                self.opportunity = last;
                let end = trace.time(last);
                if self.used == OPPORTUNITY {
                    (self.opportunity, self.used) = (last + 1, 0);
                }
                end
            }
        }
    }
}

/// Division that rounds up; `None` for a divisor of zero.
trait CheckedDivCeil: Sized {
    fn checked_div_ceil(self, by: Self) -> Option<Self>;
}

impl CheckedDivCeil for u128 {
    fn checked_div_ceil(self, by: Self) -> Option<Self> {
        (by > 0).then(|| self.div_ceil(by))
    }
}

/// Work in bits times 10⁹. 2^64 bytes are below 2^97.
fn work(size: Bytes) -> u128 {
    u128::from(size.get()) * 8 * 1_000_000_000
}

fn within_reach(nanos: u128) -> Option<Time> {
    let at = u64::try_from(nanos).ok().map(Time::from_nanos)?;
    (at < Time::FAR).then_some(at)
}

/// Bytes per opportunity: mahimahi's MTU without the header of its TUN device.
const OPPORTUNITY: u64 = 1_500;
/// Long enough to hold several opportunities of a slow cellular link, short enough to show fades.
const TRACE_WINDOW: Duration = Duration::from_millis(500);
const NANOS_PER_MILLI: u128 = 1_000_000;

#[cfg(test)]
mod tests;
