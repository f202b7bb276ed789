//! Control of one application from its counters and from the packets in its virtual stream. Another
//! part stamps, counts and samples the packets: `Application`, or a program in
//! the kernel.

use core::time::Duration;

use super::arrivals::{LossMeter, RateMeter};
use super::bfld::fraction;
use super::gaps::PacketEvent;
use super::round_trip::RoundTrip;
use super::virtual_stream::{PathView, VirtualStream};
use super::{AggregateConfig, Sampling};
use crate::control::Context;
use crate::controller::ControllerConfig;
use crate::session::breaker::{Breaker, ReportView};
use crate::trace::Event;
use crate::units::{Bytes, Rate, Time};
use crate::wire::cp::Shares;

/// Control of one application.
#[derive(Debug)]
pub struct SampledApplication {
    sampling: Sampling,
    control: ControllerConfig,
    round_trip: RoundTrip,
    /// The virtual stream, once a data packet has arrived.
    stream: Option<VirtualStream>,
    arriving: RateMeter,
    departing: RateMeter,
    /// Bandwidth from the other site at the latest counters.
    rate: Rate,
    loss: LossMeter,
    breaker: Option<Stop>,
    shares: Shares,
    before: Counts,
    sent: Bytes,
}

/// Counters of the packets from the other site since the creation of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets received in the stream.
    pub received: u64,
    /// Packets lost from it.
    pub lost: u64,
    /// Bytes received, all headers included; lost packets count with the mean size.
    pub received_bytes: Bytes,
    /// Sum of all samples of the round-trip time, in units of [`TICK`](crate::wire::cp::TICK).
    pub rtt_ticks: u64,
    /// Number of samples.
    pub rtt_samples: u64,
    /// Latest probe of the other point.
    pub last_probe: Option<Time>,
}

/// State of the path and of the control.
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
    /// Bandwidth from the other site, lost packets included.
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

/// Circuit breaker of an aggregate. It judges one of so many packets as the application has
/// flowshares, so that its limit is that of so many flows.
#[derive(Debug)]
struct Stop {
    breaker: Breaker,
    packets: u64,
    /// Current interval: its begin, its lost packets, and all.
    began: Time,
    lost: u64,
    total: u64,
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
            rate: Rate::ZERO,
            loss: LossMeter::new(now),
            breaker: config.circuit_breaker.then(|| Stop::new(now)),
            shares: Shares::ONE,
            before: Counts::default(),
            sent: Bytes::ZERO,
        }
    }

    /// Bytes sent to the other site since the creation, all headers included.
    pub fn on_sent(&mut self, now: Time, sent: Bytes) {
        let before = core::mem::replace(&mut self.sent, sent);
        let more = Bytes(sent.get().saturating_sub(before.get()));
        self.departing.add(now, more, self.window());
    }

    /// Counters of this time, and the flowshares of the latest packet: after each packet, or once per
    /// round. An open circuit breaker closes with a probe after its pause.
    pub fn on_counts(&mut self, cx: &mut Context<'_>, counts: Counts, shares: Shares) {
        let before = core::mem::replace(&mut self.before, counts);
        self.shares = shares;
        let samples = counts.rtt_samples.saturating_sub(before.rtt_samples);
        if samples > 0 {
            let ticks = counts.rtt_ticks.saturating_sub(before.rtt_ticks);
            self.round_trip.on_samples(ticks, samples as u32);
        }
        let (window, rtt) = (self.window(), self.round_trip.mean());
        let lost = counts.lost.saturating_sub(before.lost);
        let packets = lost + counts.received.saturating_sub(before.received);
        if packets > 0 {
            let bytes = counts.received_bytes.get();
            let bytes = bytes.saturating_sub(before.received_bytes.get());
            self.arriving.add(cx.now, Bytes(bytes), window);
            self.loss.add(cx.now, lost, packets);
            if let Some(stop) = self.breaker.as_mut().filter(|stop| !stop.is_open()) {
                let size = Bytes(bytes / packets);
                stop.on_packets(cx, (packets, lost), size, shares, rtt);
            }
        }
        self.rate = self.arriving.rate(cx.now);
        if let Some(stop) = &mut self.breaker
            && counts.last_probe > before.last_probe
        {
            stop.breaker.on_answer(cx.now);
        }
    }

    /// An event of the virtual stream, in order. `mean_size` is that of the arriving data packets.
    /// The time of the context is that of the event.
    pub fn on_event(&mut self, cx: &mut Context<'_>, event: PacketEvent, mean_size: Bytes) {
        let stream = begin(&mut self.stream, &self.control, cx.now, mean_size);
        let (rate, shares) = match self.sampling {
            Sampling::All => (self.rate, self.shares),
            Sampling::Bfld | Sampling::BfldIndependent => {
                (self.rate.min(stream.available()), Shares::ONE)
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

    /// Fraction of packets and losses that belong to the virtual stream, which begins with the first
    /// data packet. `mean_size` is that of the data packets.
    pub(super) fn sample(&mut self, now: Time, mean_size: Bytes) -> f64 {
        begin(&mut self.stream, &self.control, now, mean_size);
        self.fraction(self.rate)
    }

    /// Ends a round: reports outcomes that have waited for a round trip, and runs the timers of the
    /// controller.
    pub fn end_round(&mut self, cx: &mut Context<'_>) {
        let Some(stream) = &mut self.stream else {
            self.round_trip.end_round();
            return;
        };
        if stream.is_overdue(cx.now, self.round_trip.mean()) {
            let sample = self.round_trip.end_round();
            stream.report(cx, sample);
        }
        stream.on_timeout(cx);
    }

    /// Time at which a round has to end.
    pub(super) fn deadline(&self) -> Time {
        let rtt = self.round_trip.mean();
        let stream = self.stream.as_ref();
        stream.map_or(Time::FAR, |stream| stream.deadline(rtt))
    }

    /// The estimates of this time, which is that of the latest counters or the next packet.
    pub fn estimate(&self, now: Time) -> Estimate {
        let (available, arriving) = (self.available(), self.arriving.rate(now));
        Estimate {
            fraction: self.fraction(arriving),
            rtt: self.round_trip.mean(),
            deviation: self.round_trip.deviation(),
            loss: self.loss(),
            available,
            arriving,
            used: self.used(now),
            stop: self.is_stopped(),
            lost_after: self.lost_after(),
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

    pub(super) fn round_trip(&self) -> &RoundTrip {
        &self.round_trip
    }

    /// Loss rate from the other site, in 0..=1.
    pub(super) fn loss(&self) -> f64 {
        self.loss.rate()
    }

    /// Available bandwidth of a flowshare; zero before the first data packet.
    pub(super) fn available(&self) -> Rate {
        let stream = self.stream.as_ref();
        stream.map_or(Rate::ZERO, VirtualStream::available)
    }

    /// Bandwidth to the other site.
    pub(super) fn used(&self, now: Time) -> Rate {
        self.departing.rate(now)
    }

    /// Whether the circuit breaker is open.
    pub(super) fn is_stopped(&self) -> bool {
        self.breaker.as_ref().is_some_and(Stop::is_open)
    }

    /// See [`Estimate::lost_after`].
    pub(super) fn lost_after(&self) -> Duration {
        let mean = self.round_trip.mean().unwrap_or_default();
        2 * mean + (4 * self.round_trip.deviation()).min(mean / 2)
    }

    fn fraction(&self, arriving: Rate) -> f64 {
        if self.sampling == Sampling::All || self.stream.is_none() {
            1.0
        } else {
            fraction(self.available(), arriving)
        }
    }

    /// Window of the bandwidth: short enough for slow start, long enough for several packets.
    fn window(&self) -> Duration {
        (2 * self.round_trip.mean().unwrap_or(UNKNOWN_RTT)).max(MIN_WINDOW)
    }
}

/// The virtual stream, which begins with the first data packet.
fn begin<'a>(
    stream: &'a mut Option<VirtualStream>,
    control: &ControllerConfig,
    now: Time,
    mean_size: Bytes,
) -> &'a mut VirtualStream {
    stream.get_or_insert_with(|| VirtualStream::new(control, now, mean_size))
}

impl Stop {
    fn new(now: Time) -> Self {
        Self {
            breaker: Breaker::new(BREAKER_INTERVAL),
            packets: 0,
            began: now,
            lost: 0,
            total: 0,
        }
    }

    fn is_open(&self) -> bool {
        self.breaker.tripped().is_some()
    }

    /// Packets arrived or were lost: their number, and that of the lost ones.
    fn on_packets(
        &mut self,
        cx: &mut Context<'_>,
        (packets, lost): (u64, u64),
        size: Bytes,
        shares: Shares,
        rtt: Option<Duration>,
    ) {
        let shares = u64::from(shares.get());
        let judged = (self.packets + packets) / shares - self.packets / shares;
        for _ in 0..judged {
            self.breaker.on_sent(cx.now, size);
        }
        self.packets += packets;
        self.lost += lost;
        self.total += packets;
        let Some(rtt) = rtt.filter(|_| cx.now.since(self.began) >= BREAKER_INTERVAL) else {
            return;
        };
        let report = ReportView {
            highest: self.packets as u32,
            loss: self.lost as f64 / self.total as f64,
            rtt,
        };
        (self.began, self.lost, self.total) = (cx.now, 0, 0);
        if let Some(cause) = self.breaker.on_report(cx.now, report) {
            cx.trace.record(cx.now, Event::BreakerTripped { cause });
        }
    }
}

/// Interval in which the circuit breaker compares bandwidth and losses.
const BREAKER_INTERVAL: Duration = Duration::from_secs(1);
/// Round-trip time before the first sample.
const UNKNOWN_RTT: Duration = Duration::from_millis(100);
const MIN_WINDOW: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::super::Arrival;
    use super::*;
    use crate::control::Ecn;
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
            counts.last_probe = Some(now);
            if n % 50 == 0 {
                // 6,250 ticks are 100 ms.
                (counts.rtt_ticks, counts.rtt_samples) =
                    (counts.rtt_ticks + 6_250, counts.rtt_samples + 1);
                app.on_counts(&mut cx, counts, shares);
                app.end_round(&mut cx);
            }
            if n % distance == distance - 1 {
                let event = if is_lost && n % (100 * distance) == 100 * distance - 1 {
                    PacketEvent::Lost(now)
                } else {
                    PacketEvent::Received(Arrival {
                        at: now,
                        size,
                        ecn: Ecn::NotEct,
                    })
                };
                app.on_event(&mut cx, event, size);
            }
        }
        // The time of the latest counters.
        app.estimate(Time::from_millis(119_900))
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
            control: ControllerConfig::from(TfrcConfig {
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
            counts.last_probe = Some(now);
            app.on_counts(&mut cx, counts, Shares::ONE);
            app.end_round(&mut cx);
            if app.is_stopped() {
                opened.get_or_insert(now);
            }
        }
        assert!(
            opened.is_some_and(|at| at < Time::from_secs(20)),
            "{opened:?}"
        );
    }
}
