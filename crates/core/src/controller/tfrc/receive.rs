//! What arrives: reports at any spacing become the one "feedback packet" per round trip that
//! RFC 5348 reckons with, and the receive rates of recent round trips limit the sending rate.

use core::time::Duration;

use crate::control::Measured;
use crate::units::{Bytes, RemoteTime, Time, nanos};

/// Gathers the fates between two feedback packets.
#[derive(Clone, Debug)]
pub(super) struct Round {
    began: Time,
    here: Arrivals,
    before: Arrivals,
    last_arrival: Option<RemoteTime>,
    rtt_sum: f64,
    rtt_samples: u32,
    unlimited: bool,
    new_event: bool,
    measured: Option<Measured>,
}

impl Round {
    /// An empty round.
    pub(super) fn new(began: Time) -> Self {
        Self {
            began,
            here: Arrivals::default(),
            before: Arrivals::default(),
            last_arrival: None,
            rtt_sum: 0.0,
            rtt_samples: 0,
            unlimited: false,
            new_event: false,
            measured: None,
        }
    }

    /// A round-trip sample in seconds.
    pub(super) fn on_rtt(&mut self, sample: f64) {
        self.rtt_sum += sample;
        self.rtt_samples = self.rtt_samples.saturating_add(1);
    }

    /// A packet arrived. A gap without arrivals counts as one round trip at most.
    pub(super) fn on_arrival(&mut self, at: RemoteTime, size: Bytes, rtt: Duration) {
        //= rfc5348-6.2-receive-rate
        // An idle gap says nothing about the path, and X_recv looks back over one round trip.
        let last = self.last_arrival.unwrap_or(at);
        self.here.span = self.here.span.saturating_add(at.since(last).min(rtt));
        self.here.bytes += size;
        self.last_arrival = Some(last.max(at));
    }

    /// A packet that left while more was waiting behind it is accounted for.
    pub(super) fn on_unlimited(&mut self) {
        self.unlimited = true;
    }

    /// A loss event began.
    pub(super) fn on_event(&mut self) {
        self.new_event = true;
    }

    /// Somebody else measured.
    pub(super) fn on_measured(&mut self, measured: Measured) {
        self.measured = Some(measured);
    }

    /// Whether it is time to act on what was gathered.
    pub(super) fn is_due(&self, now: Time, rtt: Duration) -> bool {
        //= rfc5348-6.2-no-data
        let arrived = self.here.bytes > Bytes::ZERO || self.measured.is_some();
        //= rfc5348-6.1-feedback
        //= rfc5348-6.1-expedite
        arrived && (self.new_event || now.since(self.began) >= rtt)
    }

    /// The feedback packet, and a new round that begins at `now`.
    pub(super) fn close(&mut self, now: Time, rtt: Duration) -> Feedback {
        let rtt_sample = (self.rtt_samples > 0).then(|| self.rtt_sum / f64::from(self.rtt_samples));
        let feedback = Feedback {
            receive_rate: self.receive_rate(rtt),
            rtt_sample,
            data_limited: !self.unlimited,
            new_event: self.new_event,
        };
        let last_arrival = self.last_arrival;
        let before = self.here;
        *self = Self::new(now);
        self.before = before;
        self.last_arrival = last_arrival;
        feedback
    }

    /// In bytes per second; zero before any arrival. A round cut short by a loss event is too
    /// small a sample, so it borrows from the one before.
    pub(super) fn receive_rate(&self, rtt: Duration) -> f64 {
        if let Some(measured) = self.measured
            && self.here.bytes == Bytes::ZERO
        {
            return measured.receive_rate.as_f64() / 8.0;
        }
        let Arrivals {
            mut bytes,
            mut span,
        } = self.here;
        if span < rtt / 2 {
            bytes += self.before.bytes;
            span = span.saturating_add(self.before.span).max(rtt / 2);
        }
        bytes.get() as f64 * 1e9 / (nanos(span).max(1) as f64)
    }
}

/// What one round showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feedback {
    /// `X_recv`, in bytes per second.
    pub(super) receive_rate: f64,
    /// Mean of the round's samples, in seconds. The RFC's filter expects one sample a round
    /// trip; more would shorten its memory.
    pub(super) rtt_sample: Option<f64>,
    /// The sender had nothing more to send all the while.
    pub(super) data_limited: bool,
    /// A loss event began.
    pub(super) new_event: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    bytes: Bytes,
    span: Duration,
}

/// `X_recv_set`: receive rates of the last two round trips, in bytes per second.
#[derive(Clone, Debug)]
pub(super) struct ReceiveRates {
    entries: [Option<(Time, f64)>; ENTRIES],
}

impl ReceiveRates {
    //= rfc5348-4.3-set-start
    /// Nothing was received, and nothing limits yet.
    pub(super) fn new(now: Time) -> Self {
        Self::only(now, f64::INFINITY)
    }

    /// One entry.
    pub(super) fn only(now: Time, rate: f64) -> Self {
        let mut entries = [None; ENTRIES];
        entries[0] = Some((now, rate));
        Self { entries }
    }

    //= rfc5348-4.3-update-set
    /// Adds a rate and forgets those older than two round trips.
    pub(super) fn update(&mut self, now: Time, rate: f64, rtt: Duration) {
        let horizon = now.before(rtt.saturating_mul(2));
        for entry in &mut self.entries {
            *entry = entry.filter(|(at, _)| *at >= horizon);
        }
        // Only the largest matters, so a full set gives up its smallest.
        let least = (0..ENTRIES).min_by(|a, b| self.rate_at(*a).total_cmp(&self.rate_at(*b)));
        if let Some(slot) = least {
            self.entries[slot] = Some((now, rate));
        }
    }

    //= rfc5348-4.3-maximize-set
    /// Keeps the largest of the set and `rate`, as of now, without the infinity of the start.
    pub(super) fn maximize(&mut self, now: Time, rate: f64) {
        let known = self.entries.iter().flatten().map(|(_, rate)| *rate);
        let largest = known.filter(|rate| rate.is_finite()).fold(rate, f64::max);
        *self = Self::only(now, largest);
    }

    /// Halves every entry.
    pub(super) fn halve(&mut self) {
        for (_, rate) in self.entries.iter_mut().flatten() {
            *rate /= 2.0;
        }
    }

    /// The largest; infinite before the first feedback.
    pub(super) fn largest(&self) -> f64 {
        let known = self.entries.iter().flatten().map(|(_, rate)| *rate);
        known.fold(0.0, f64::max)
    }

    fn rate_at(&self, slot: usize) -> f64 {
        self.entries[slot].map_or(-1.0, |(_, rate)| rate)
    }
}

/// Two round trips hold two rounds and what loss events cut short.
const ENTRIES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn far(ms: u64) -> RemoteTime {
        RemoteTime(ms * 1_000_000)
    }

    //= rfc5348-6.2-receive-rate (test)
    #[test]
    fn the_receive_rate_is_that_of_the_busy_time() {
        let mut round = Round::new(at(0));
        for ms in (0..=100).step_by(10) {
            round.on_arrival(far(ms), Bytes(1_000), RTT);
        }
        round.close(at(100), RTT);
        // Five seconds of silence, then 10 packets in 90 ms: the gap counts as 100 ms.
        for ms in (5_100..=5_190).step_by(10) {
            round.on_arrival(far(ms), Bytes(1_000), RTT);
        }
        let rate = round.close(at(5_300), RTT).receive_rate;
        assert!((rate - 10_000.0 / 0.19).abs() < 1.0, "{rate}");
        // One packet 10 ms later borrows from the round before: 11000 bytes in 200 ms.
        round.on_arrival(far(5_200), Bytes(1_000), RTT);
        let rate = round.close(at(5_310), RTT).receive_rate;
        assert!((rate - 11_000.0 / 0.2).abs() < 1.0, "{rate}");
    }

    //= rfc5348-6.1-feedback (test)
    //= rfc5348-6.1-expedite (test)
    //= rfc5348-6.2-no-data (test)
    #[test]
    fn a_round_ends_after_a_round_trip_or_at_a_loss_event_but_never_empty() {
        let mut round = Round::new(at(0));
        assert!(!round.is_due(at(500), RTT), "nothing arrived");
        round.on_arrival(far(3), Bytes(1_000), RTT);
        assert!(!round.is_due(at(99), RTT));
        assert!(round.is_due(at(100), RTT));
        round.on_event();
        assert!(round.is_due(at(5), RTT));
    }

    //= rfc5348-4.3-set-start (test)
    //= rfc5348-4.3-update-set (test)
    #[test]
    fn rates_older_than_two_round_trips_are_forgotten() {
        let mut set = ReceiveRates::new(at(0));
        assert!(set.largest().is_infinite());
        set.update(at(100), 5.0, RTT);
        assert!(set.largest().is_infinite());
        set.update(at(201), 4.0, RTT);
        assert!((set.largest() - 5.0).abs() < f64::EPSILON);
        for n in 0..10 {
            set.update(at(202 + n), 1.0, RTT);
        }
        assert!(
            (set.largest() - 5.0).abs() < f64::EPSILON,
            "a full set keeps its largest"
        );
    }

    //= rfc5348-4.3-maximize-set (test)
    #[test]
    fn the_largest_stays_while_the_sender_is_data_limited() {
        let mut set = ReceiveRates::new(at(0));
        set.maximize(at(100), 5.0);
        set.maximize(at(900), 3.0);
        assert!((set.largest() - 5.0).abs() < f64::EPSILON);
        set.halve();
        assert!((set.largest() - 2.5).abs() < f64::EPSILON);
    }
}
