//! Control of an application whose packets another program stamps, counts and samples, such as one
//! in the kernel: the part of an aggregation point that runs once per round trip.

use core::time::Duration;

use super::application::{Stop, UNKNOWN_RTT, window};
use super::arrivals::{LossMeter, RateMeter};
use super::bfld::fraction;
use super::gaps::{Arrival, PacketEvent};
use super::round_trip::RoundTrip;
use super::virtual_stream::{PathView, VirtualStream};
use super::{AggregateConfig, Sampling};
use crate::control::{Context, Ecn};
use crate::controller::ControllerConfig;
use crate::units::{Bytes, Rate, Time};
use crate::wire::cp::{Shares, TICK};

/// Control of one application.
#[derive(Debug)]
pub struct SampledApplication {
    sampling: Sampling,
    control: ControllerConfig,
    round_trip: RoundTrip,
    stream: Option<VirtualStream>,
    arriving: RateMeter,
    departing: RateMeter,
    /// Bandwidth from and to the other site at the begin of the round.
    rates: (Rate, Rate),
    loss: LossMeter,
    breaker: Option<Stop>,
    size: Option<Bytes>,
    shares: Shares,
    before: Counts,
}

/// Counters of an application since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes sent to the other site, all headers included.
    pub sent_bytes: Bytes,
    /// Packets received in the stream from the other site.
    pub received: u64,
    /// Packets lost from it.
    pub lost: u64,
    /// Bytes received; lost packets count with the mean size.
    pub received_bytes: Bytes,
    /// Sum of all samples of the round-trip time, in units of [`TICK`].
    pub rtt_ticks: u64,
    /// Number of samples.
    pub rtt_samples: u64,
    /// Latest probe of the other point.
    pub heard: Option<Time>,
}

/// An event of the virtual packet stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledEvent {
    /// A packet was lost. It would have arrived at about this time.
    Lost(Time),
    /// A packet arrived.
    Received {
        /// When.
        at: Time,
        /// Size on the wire, all headers included.
        size: Bytes,
        /// ECN field.
        ecn: Ecn,
    },
}

/// Result of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Fraction of packets and losses that belong to the virtual packet stream, in 0..=1.
    pub fraction: f64,
    /// Smoothed round-trip time; `None` before the first sample.
    pub rtt: Option<Duration>,
    /// Its mean deviation.
    pub deviation: Duration,
    /// Loss rate from the other site, in 0..=1.
    pub loss: f64,
    /// Available bandwidth of a flowshare from the other site.
    pub available: Rate,
    /// Bandwidth from the other site.
    pub arriving: Rate,
    /// Bandwidth to the other site.
    pub used: Rate,
    /// Whether the circuit breaker is open.
    pub stop: bool,
    /// Time without an answer after which the other point is lost, for a dense application.
    pub lost_after: Duration,
    /// Longer samples of the round-trip time are outliers.
    pub outlier: Option<Duration>,
}

impl SampledApplication {
    /// An application before its first packet.
    pub fn new(config: &AggregateConfig, now: Time) -> Self {
        Self {
            sampling: config.sampling,
            control: config.control.clone(),
            round_trip: RoundTrip::default(),
            stream: None,
            arriving: RateMeter::new(now),
            departing: RateMeter::new(now),
            rates: (Rate::ZERO, Rate::ZERO),
            loss: LossMeter::new(now),
            breaker: config.circuit_breaker.then(|| Stop::new(now)),
            size: None,
            shares: Shares::ONE,
            before: Counts::default(),
        }
    }

    /// Begins a round with the counters of this time and the flowshares of the latest packet.
    pub fn on_counts(&mut self, cx: &mut Context<'_>, counts: Counts, shares: Shares) {
        let before = core::mem::replace(&mut self.before, counts);
        self.shares = shares;
        let samples = counts.rtt_samples.saturating_sub(before.rtt_samples);
        if samples > 0 {
            let ticks = counts.rtt_ticks.saturating_sub(before.rtt_ticks);
            let sum = ticks as f64 * TICK.as_secs_f64();
            self.round_trip.on_samples(sum, samples as u32);
        }
        let window = window(self.round_trip.mean());
        let more = |now: Bytes, before: Bytes| Bytes(now.get().saturating_sub(before.get()));
        let received = more(counts.received_bytes, before.received_bytes);
        self.arriving.add(cx.now, received, window);
        let sent = more(counts.sent_bytes, before.sent_bytes);
        self.departing.add(cx.now, sent, window);
        self.rates = (self.arriving.rate(cx.now), self.departing.rate(cx.now));
        let lost = counts.lost.saturating_sub(before.lost);
        let packets = lost + counts.received.saturating_sub(before.received);
        self.loss.add_all(cx.now, lost, packets);
        let Some(stop) = &mut self.breaker else {
            return;
        };
        if stop.is_open() {
            if counts.heard > before.heard {
                stop.on_answer(cx.now);
            }
        } else if let Some(size) = received.get().checked_div(packets) {
            let size = Bytes(size);
            let rtt = self.round_trip.mean();
            stop.on_packets(cx, (packets, lost), size, shares, rtt);
        }
    }

    /// An event of the virtual stream, in order. `mean_size` is that of the arriving data packets.
    /// The time of the context is that of the event.
    pub fn on_event(&mut self, cx: &mut Context<'_>, event: SampledEvent, mean_size: Bytes) {
        let event = match event {
            SampledEvent::Lost(at) => PacketEvent::Lost(at),
            SampledEvent::Received { at, size, ecn } => {
                PacketEvent::Received(Arrival { at, size, ecn })
            }
        };
        self.size = Some(mean_size);
        let control = &self.control;
        let stream = self
            .stream
            .get_or_insert_with(|| VirtualStream::new(control, cx.now, mean_size));
        let used = self.rates.0;
        let (rate, shares) = match self.sampling {
            Sampling::All => (used, self.shares),
            Sampling::Bfld | Sampling::BfldIndependent => {
                (used.min(stream.available()), Shares::ONE)
            }
        };
        let path = PathView {
            rtt: self.round_trip.mean(),
            rate,
            size: mean_size,
            shares,
        };
        if stream.on_event(cx, event, path) {
            let sample = self.round_trip.end_round();
            stream.report(cx, sample);
        }
    }

    /// Ends a round: runs the timers of the controller and returns the new estimates.
    pub fn end_round(&mut self, cx: &mut Context<'_>) -> Estimate {
        if let Some(stream) = &mut self.stream {
            if stream.is_overdue(cx.now, self.round_trip.mean()) {
                let sample = self.round_trip.end_round();
                stream.report(cx, sample);
            }
            stream.on_timeout(cx);
        } else {
            self.round_trip.end_round();
        }
        self.estimate()
    }

    /// The estimates of the latest round.
    pub fn estimate(&self) -> Estimate {
        let available = self
            .stream
            .as_ref()
            .map_or(Rate::ZERO, VirtualStream::available);
        let (arriving, used) = self.rates;
        let is_sampled = self.sampling != Sampling::All && self.stream.is_some();
        let rtt = self.round_trip.mean();
        let deviation = self.round_trip.deviation();
        let mean = rtt.unwrap_or_default();
        Estimate {
            fraction: if is_sampled {
                fraction(available, arriving)
            } else {
                1.0
            },
            rtt,
            deviation,
            loss: self.loss.rate(),
            available,
            arriving,
            used,
            stop: self.breaker.as_ref().is_some_and(Stop::is_open),
            lost_after: 2 * mean + (4 * deviation).min(mean / 2),
            outlier: self.round_trip.outlier(),
        }
    }

    /// Time until the next round: a round-trip time, at most that of an unknown path.
    pub fn interval(&self) -> Duration {
        self.round_trip
            .mean()
            .unwrap_or(UNKNOWN_RTT)
            .min(UNKNOWN_RTT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tfrc::{Flavour, TfrcConfig, multfrc};
    use crate::random::Seed;

    /// An application that sends 4 Mb/s with packets of 1,000 bytes over 100 ms with a loss of 1 %. One
    /// of `distance` packets is in the sample.
    fn estimate(config: &AggregateConfig, shares: u8, distance: u64) -> Estimate {
        let mut rng = Seed(1).stream("sampled");
        let mut app = SampledApplication::new(config, Time::ZERO);
        let (mut counts, mut trace) = (Counts::default(), ());
        let (size, shares) = (Bytes(1_000), Shares::new(shares).unwrap());
        for n in 0..60_000_u64 {
            let now = Time::from_millis(2 * n);
            let mut cx = Context {
                now,
                rng: &mut rng,
                trace: &mut trace,
            };
            let is_lost = n % 100 == 99;
            counts.lost += u64::from(is_lost);
            counts.received += u64::from(!is_lost);
            counts.received_bytes += size;
            counts.heard = Some(now);
            if n % 50 == 0 {
                // 6,250 ticks are 100 ms.
                (counts.rtt_ticks, counts.rtt_samples) =
                    (counts.rtt_ticks + 6_250, counts.rtt_samples + 1);
                app.on_counts(&mut cx, counts, shares);
                app.end_round(&mut cx);
            }
            if n % distance == distance - 1 {
                let event = if is_lost && n % (100 * distance) == 100 * distance - 1 {
                    SampledEvent::Lost(now)
                } else {
                    SampledEvent::Received {
                        at: now,
                        size,
                        ecn: Ecn::NotEct,
                    }
                };
                app.on_event(&mut cx, event, size);
            }
        }
        app.estimate()
    }

    /// TFRC's equation with 1,000 bytes, 100 ms and a loss of 1 % is 899 kb/s (RFC 5348).
    #[test]
    fn available_bandwidth_is_that_of_the_equation() {
        // 125 packets per second, and as many losses of each.
        let estimate = estimate(&AggregateConfig::default(), 1, 4);
        let kbps = estimate.available.as_f64() / 1e3;
        assert!((800.0..1_100.0).contains(&kbps), "{estimate:?}");
        assert!((estimate.loss - 0.01).abs() < 0.001, "{estimate:?}");
        let error = estimate.rtt.unwrap().abs_diff(Duration::from_millis(100));
        assert!(error < Duration::from_millis(1), "{estimate:?}");
        assert!(
            (estimate.arriving.as_f64() / 4e6 - 1.0).abs() < 0.05,
            "{estimate:?}"
        );
        assert!(
            (estimate.fraction - kbps / 4e3).abs() < 0.02,
            "{estimate:?}"
        );
    }

    /// One loss in 100 packets, each an event of its own: MulTFRC's equation with four flows.
    #[test]
    fn multfrc_divides_its_rate_among_the_flowshares() {
        let flavour = Flavour::Multfrc;
        let config = AggregateConfig {
            control: ControllerConfig::Tfrc(TfrcConfig {
                flavour,
                ..TfrcConfig::default()
            }),
            sampling: Sampling::All,
            ..AggregateConfig::default()
        };
        let estimate = estimate(&config, 4, 1);
        let kbps = estimate.available.as_f64() / 1e3;
        let equation = multfrc::throughput(1_000.0, 0.1, 0.01, 4.0, 1.0) * 8.0 / 4e3;
        assert!((kbps / equation - 1.0).abs() < 0.01, "{kbps} {equation}");
        assert!((1.0 - estimate.fraction).abs() < 1e-9, "{estimate:?}");
    }

    #[test]
    fn breaker_opens_at_persistent_loss() {
        let mut rng = Seed(1).stream("sampled");
        let mut app = SampledApplication::new(&AggregateConfig::default(), Time::ZERO);
        let (mut counts, mut trace, mut opened) = (Counts::default(), (), None);
        for n in 0..600_u64 {
            let now = Time::from_millis(50 * n);
            let mut cx = Context {
                now,
                rng: &mut rng,
                trace: &mut trace,
            };
            // 1,000 packets of 1,000 bytes per second, of which nine of ten are lost.
            counts.lost += 45;
            counts.received += 5;
            counts.received_bytes += Bytes(50_000);
            counts.rtt_ticks += 6_250;
            counts.rtt_samples += 1;
            counts.heard = Some(now);
            app.on_counts(&mut cx, counts, Shares::ONE);
            if app.end_round(&mut cx).stop {
                opened.get_or_insert(now);
            }
        }
        assert!(
            opened.is_some_and(|at| at < Time::from_secs(20)),
            "{opened:?}"
        );
    }
}
