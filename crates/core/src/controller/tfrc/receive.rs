//! Receive rate and feedback rounds.
//!
//! Combines reports at arbitrary intervals into the feedback packet per round trip of RFC 5348. The
//! receive rates of recent round trips limit the sending rate.

use core::time::Duration;

use crate::units::{Bytes, Rate, RemoteTime, Time, nanos};

/// Collects the reports between two feedback packets.
#[derive(Clone, Debug)]
pub(super) struct Round {
    began: Time,
    arrived: bool,
    rtt_sum: f64,
    rtt_samples: u32,
    unlimited: bool,
    new_event: bool,
    measured: Option<Rate>,
}

impl Round {
    /// An empty round.
    pub(super) fn new(began: Time) -> Self {
        Self {
            began,
            arrived: false,
            rtt_sum: 0.0,
            rtt_samples: 0,
            unlimited: false,
            new_event: false,
            measured: None,
        }
    }

    /// The sender had paused: the round begins with the first packet after the pause.
    pub(super) fn restart(&mut self, now: Time) {
        self.began = now;
    }

    /// Adds a round-trip sample in seconds.
    pub(super) fn on_rtt(&mut self, sample: f64) {
        self.rtt_sum += sample;
        self.rtt_samples = self.rtt_samples.saturating_add(1);
    }

    /// Records an arrival; `unlimited` if more data was waiting when the packet was sent.
    pub(super) fn on_arrival(&mut self, unlimited: bool) {
        self.arrived = true;
        self.unlimited |= unlimited;
    }

    /// Discards the arrivals up to now, which no longer represent the path.
    pub(super) fn forget_arrivals(&mut self) {
        self.arrived = false;
        self.unlimited = false;
        self.measured = None;
    }

    /// Records the start of a loss event.
    pub(super) fn on_event(&mut self) {
        self.new_event = true;
    }

    /// Records an external measurement of the receive rate.
    pub(super) fn on_measured(&mut self, rate: Rate, unlimited: bool) {
        self.measured = Some(rate);
        self.on_arrival(unlimited);
    }

    /// Whether the round is complete: it has an arrival, and lasted for `length` or has a loss
    /// event.
    pub(super) fn is_due(&self, now: Time, length: Duration) -> bool {
        //= rfc5348-6.2-no-data
        //= rfc5348-6.1-feedback
        //= rfc5348-6.1-expedite
        self.arrived && (self.new_event || has_passed(length, self.began, now))
    }

    /// Returns the feedback of the round and starts a new round at `now`.
    pub(super) fn close(
        &mut self,
        now: Time,
        arrivals: &mut Arrivals,
        period: Duration,
    ) -> Feedback {
        let rtt_sample = (self.rtt_samples > 0).then(|| self.rtt_sum / f64::from(self.rtt_samples));
        let counted = arrivals.rate(period);
        arrivals.end_round(period);
        let receive_rate = self.measured.map_or(counted, |rate| rate.as_f64() / 8.0);
        let feedback = Feedback {
            receive_rate,
            rtt_sample,
            //= rfc5348-4.3-nothing-received
            data_limited: !self.unlimited && receive_rate > 0.0,
            new_event: self.new_event,
        };
        *self = Self::new(now);
        feedback
    }
}

/// Feedback of one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feedback {
    /// `X_recv`, in bytes per second.
    pub(super) receive_rate: f64,
    /// Mean of the round's samples, in seconds. The filter of the RFC expects one sample per round
    /// trip. More samples would shorten its memory.
    pub(super) rtt_sample: Option<f64>,
    /// The sender was data-limited during the whole round.
    pub(super) data_limited: bool,
    /// A loss event began.
    pub(super) new_event: bool,
}

/// Arrivals of about the last period, for the receive rate.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    here: ReceivedBytes,
    before: ReceivedBytes,
    /// The newest packet, with the latest arrival time of any packet.
    last: Option<Arrival>,
}

/// A packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) seq: u64,
    pub(super) sent: Time,
    pub(super) at: RemoteTime,
    pub(super) size: Bytes,
    /// More data was waiting when the packet was sent.
    pub(super) unlimited: bool,
}

impl Arrivals {
    /// Whether the sender had nothing to send for a period or longer before packet `seq`, sent at
    /// `sent`.
    pub(super) fn is_after_pause(&self, seq: u64, sent: Time, period: Duration) -> bool {
        self.last.is_some_and(|last| {
            let next = last.seq.checked_add(1) == Some(seq);
            next && !last.unlimited && sent.since(last.sent) >= period
        })
    }

    /// Records an arrival. A pause of the sender does not measure the path and counts as `spacing`,
    /// the time between two packets at the sending rate. Any other gap, as after lost packets,
    /// counts as one period at most.
    pub(super) fn add(&mut self, packet: Arrival, spacing: Duration, period: Duration) {
        let paused = self.is_after_pause(packet.seq, packet.sent, period);
        let period = nanos(period);
        if self.here.span >= period {
            self.roll();
        }
        let last = self.last.unwrap_or(packet);
        let mut gap = packet.at.0.saturating_sub(last.at.0);
        if paused {
            let pause = nanos(packet.sent.since(last.sent));
            gap = gap.saturating_sub(pause).saturating_add(nanos(spacing));
        }
        self.here.span = self.here.span.saturating_add(gap.min(period));
        self.here.bytes += packet.size;
        let newest = if packet.seq >= last.seq { packet } else { last };
        let at = last.at.max(packet.at);
        self.last = Some(Arrival { at, ..newest });
    }

    /// Discards the arrivals up to now. The gap to the next arrival still counts: the first packet
    /// after it counts over a whole period, not over half a period as at the start of a flow.
    pub(super) fn forget(&mut self) {
        (self.here, self.before) = (ReceivedBytes::default(), ReceivedBytes::default());
    }

    //= rfc5348-6.2-receive-rate
    /// Receive rate in bytes per second over 0.5 to 1.5 periods; zero before the first arrival.
    pub(super) fn rate(&self, period: Duration) -> f64 {
        let ReceivedBytes {
            mut bytes,
            mut span,
        } = self.here;
        let half = nanos(period / 2);
        if span < half {
            bytes += self.before.bytes;
            span = span.saturating_add(self.before.span).max(half);
        }
        bytes.get() as f64 * 1e9 / (span.max(1) as f64)
    }

    /// Starts a new interval for the next round, if the present one is long enough.
    fn end_round(&mut self, period: Duration) {
        if self.here.span >= nanos(period / 2) {
            self.roll();
        }
    }

    fn roll(&mut self) {
        self.before = core::mem::take(&mut self.here);
    }
}

/// Bytes that arrived in an interval of `span` ns. The interval is at most two periods, so it does
/// not overflow.
#[derive(Clone, Copy, Debug, Default)]
struct ReceivedBytes {
    bytes: Bytes,
    span: u64,
}

/// `X_recv_set`: receive rates of the last two round trips, in bytes per second.
#[derive(Clone, Debug)]
pub(super) struct ReceiveRates {
    entries: [Option<(Time, f64)>; ENTRIES],
}

impl ReceiveRates {
    //= rfc5348-4.3-set-start
    /// The initial set, which does not limit the rate.
    pub(super) fn new(now: Time) -> Self {
        Self::only(now, f64::INFINITY)
    }

    /// A set of one entry.
    pub(super) fn only(now: Time, rate: f64) -> Self {
        let mut entries = [None; ENTRIES];
        entries[0] = Some((now, rate));
        Self { entries }
    }

    //= rfc5348-4.3-update-set
    /// Adds a rate and removes those older than two round trips.
    pub(super) fn update(&mut self, now: Time, rate: f64, rtt: Duration) {
        let horizon = now.before(rtt.saturating_mul(2));
        for entry in &mut self.entries {
            *entry = entry.filter(|(at, _)| *at >= horizon);
        }
        // Only the largest rate is used, so a full set drops its smallest.
        let least = (0..ENTRIES).min_by(|a, b| self.rate_at(*a).total_cmp(&self.rate_at(*b)));
        if let Some(slot) = least {
            self.entries[slot] = Some((now, rate));
        }
    }

    //= rfc5348-4.3-maximize-set
    /// Replaces the set by its largest finite rate or `rate`, whichever is larger, as of `now`.
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

    /// Largest rate; infinite before the first feedback.
    pub(super) fn largest(&self) -> f64 {
        let known = self.entries.iter().flatten().map(|(_, rate)| *rate);
        known.fold(0.0, f64::max)
    }

    fn rate_at(&self, slot: usize) -> f64 {
        self.entries[slot].map_or(-1.0, |(_, rate)| rate)
    }
}

/// Whether a round trip has passed, with a tolerance of 1/64: a report that is slightly early must
/// not extend the round to the next report.
pub(super) fn has_passed(rtt: Duration, since: Time, now: Time) -> bool {
    now.since(since) >= rtt.saturating_sub(rtt / 64)
}

/// Two round trips have two rounds, and more if loss events shorten them.
const ENTRIES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    const SPACING: Duration = Duration::from_millis(10);

    /// Arrives at its departure time, by another clock.
    fn packet(seq: u64, ms: u64, size: u64) -> Arrival {
        Arrival {
            seq,
            sent: at(ms),
            at: RemoteTime(ms * 1_000_000),
            size: Bytes(size),
            unlimited: false,
        }
    }

    //= rfc5348-6.2-receive-rate (test)
    #[test]
    fn receive_rate_excludes_idle_time() {
        let mut arrivals = Arrivals::default();
        let mut next = 0..;
        let mut arrive = |range: core::ops::RangeInclusive<u64>, size| {
            for (ms, seq) in range.step_by(10).zip(&mut next) {
                arrivals.add(packet(seq, ms, size), SPACING, RTT);
            }
            let rate = arrivals.rate(RTT);
            arrivals.end_round(RTT);
            rate
        };
        arrive(0..=100, 1_000);
        // A pause of five seconds counts as one packet. The rest is 9 packets in 90 ms.
        let rate = arrive(5_100..=5_190, 1_000);
        assert!((rate - 100_000.0).abs() < 1.0, "{rate}");
        // One packet 10 ms later is combined with the interval before: 11 in 110 ms.
        let rate = arrive(5_200..=5_200, 1_000);
        assert!((rate - 100_000.0).abs() < 1.0, "{rate}");
        // A report on two seconds gives the rate of their last 100 ms to 150 ms.
        arrive(5_210..=7_000, 1_000);
        let rate = arrive(7_010..=7_210, 10);
        assert!((rate - 1_000.0).abs() < 1.0, "{rate}");
    }

    //= rfc5348-6.2-receive-rate (test)
    #[test]
    fn first_packet_after_an_outage_counts_over_a_round_trip() {
        let mut arrivals = Arrivals::default();
        for ms in (0..=500).step_by(10) {
            arrivals.add(packet(ms, ms, 1_000), SPACING, RTT);
        }
        arrivals.forget();
        // The packets in between are lost.
        for (ms, rate) in [
            (5_500, 10_000.0),
            (5_525, 16_000.0),
            (5_575, 80_000.0 / 3.0),
        ] {
            arrivals.add(packet(ms, ms, 1_000), SPACING, RTT);
            let counted = arrivals.rate(RTT);
            assert!((counted - rate).abs() < 1.0, "{counted} at {ms} ms");
        }
    }

    //= rfc5348-6.1-feedback (test)
    //= rfc5348-6.1-expedite (test)
    //= rfc5348-6.2-no-data (test)
    #[test]
    fn round_ends_after_a_round_trip_or_at_a_loss_event_but_not_empty() {
        let mut round = Round::new(at(0));
        assert!(!round.is_due(at(500), RTT), "no arrival");
        round.on_arrival(true);
        assert!(!round.is_due(at(98), RTT));
        assert!(round.is_due(at(99), RTT), "within 1/64");
        round.on_event();
        assert!(round.is_due(at(5), RTT));
        let feedback = round.close(at(5), &mut Arrivals::default(), RTT);
        assert!(feedback.new_event && !feedback.data_limited);
        assert!(!round.is_due(at(500), RTT), "a new round is empty");
    }

    //= rfc5348-4.3-nothing-received (test)
    #[test]
    fn receive_rate_of_zero_is_not_data_limited() {
        for (rate, limited) in [(Rate::ZERO, false), (Rate::kbps(8), true)] {
            let mut round = Round::new(at(0));
            round.on_measured(rate, false);
            let feedback = round.close(at(100), &mut Arrivals::default(), RTT);
            assert_eq!(feedback.data_limited, limited);
        }
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
    fn largest_rate_is_kept_while_the_sender_is_data_limited() {
        let mut set = ReceiveRates::new(at(0));
        set.maximize(at(100), 5.0);
        set.maximize(at(900), 3.0);
        assert!((set.largest() - 5.0).abs() < f64::EPSILON);
        set.halve();
        assert!((set.largest() - 2.5).abs() < f64::EPSILON);
    }
}
