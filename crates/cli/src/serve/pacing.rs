//! Error of the pacing of a stream: how late its packets leave.

use std::time::Duration;

use tidegate_core::control::{Context, TimerReason};
use tidegate_core::endpoint::{Check, Endpoint, Input, Output};
use tidegate_core::session::sender::MediaSender;
use tidegate_core::session::stream::{EncodePipe, Streamer};
use tidegate_core::units::Time;

/// A sender with a histogram of the times from the due departure of a packet to its departure.
#[derive(Debug)]
pub(super) struct Paced<P> {
    stream: Streamer<P>,
    lateness: Lateness,
    last_received: Option<Time>,
    /// The timer of the stream.
    timer: Option<(Time, TimerReason)>,
}

impl<P: EncodePipe> Paced<P> {
    pub(super) fn new(stream: Streamer<P>) -> Self {
        Self {
            stream,
            lateness: Lateness::default(),
            last_received: None,
            timer: None,
        }
    }

    /// Time of the last report of the client.
    pub(super) fn last_received(&self) -> Option<Time> {
        self.last_received
    }

    pub(super) fn sender(&self) -> &MediaSender {
        self.stream.sender()
    }

    pub(super) fn stream_mut(&mut self) -> &mut Streamer<P> {
        &mut self.stream
    }

    pub(super) fn stream(&self) -> &Streamer<P> {
        &self.stream
    }

    pub(super) fn lateness(&self) -> &Lateness {
        &self.lateness
    }
}

impl<P: EncodePipe> Endpoint for Paced<P> {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        if let (Input::Timeout, Some((due, TimerReason::Pacing))) = (input, self.timer)
            && due <= cx.now
        {
            self.lateness.add(cx.now.since(due));
        }
        let check = self.stream.handle(cx, input);
        if check.is_believed {
            self.last_received = Some(cx.now);
        }
        check
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        let output = self.stream.poll(cx, buffer);
        self.timer = output.timer();
        output
    }
}

/// Histogram of durations, with a resolution of a quarter of an octave from 1 µs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lateness {
    counts: [u64; BINS],
}

impl Default for Lateness {
    fn default() -> Self {
        Self { counts: [0; BINS] }
    }
}

impl Lateness {
    pub(super) fn add(&mut self, late: Duration) {
        let micros = late.as_secs_f64() * 1e6;
        let bin = (micros.max(1.0).log2() * PER_OCTAVE).ceil() as usize;
        self.counts[bin.min(BINS - 1)] += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let counts = self.counts.iter_mut().zip(&other.counts);
        counts.for_each(|(sum, count)| *sum += count);
    }

    /// Number of durations.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Upper bound of this quantile; `None` without packets.
    pub(super) fn quantile(&self, share: f64) -> Option<Duration> {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut sum = 0;
        let bin = self.counts.iter().position(|count| {
            sum += count;
            sum >= rank
        })?;
        let micros = (bin as f64 / PER_OCTAVE).exp2();
        Some(Duration::from_secs_f64(micros / 1e6))
    }
}

const PER_OCTAVE: f64 = 4.0;
/// Up to 17 s.
const BINS: usize = 97;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds_within_a_quarter_of_an_octave() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile(0.99), None);
        for micros in 1..=1_000 {
            lateness.add(Duration::from_micros(micros));
        }
        for share in [0.1, 0.5, 0.99] {
            let bound = lateness.quantile(share).unwrap().as_secs_f64() * 1e6;
            let exact = 1_000.0 * share;
            assert!((exact..exact * 1.2).contains(&bound), "{share}: {bound}");
        }
        let mut sum = Lateness::default();
        sum.add(Duration::from_hours(1));
        sum.merge(&lateness);
        assert_eq!(sum.count(), 1_001);
        assert!(sum.quantile(1.0).unwrap() > Duration::from_secs(10));
    }
}
