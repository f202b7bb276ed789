//! Round-trip time, loss and receive rate of the path, independent of the controller.

use core::time::Duration;
use std::collections::VecDeque;

use crate::control::{Outcome, PacketOutcome};
use crate::delay_bound::window::WindowMin;
use crate::units::{Bytes, Rate, RemoteTime, Time, nanos};

/// Path statistics from the feedback.
#[derive(Debug)]
pub(super) struct PathView {
    srtt: Option<Duration>,
    rttvar: Duration,
    /// Minimum over one minute. Routes change; the delay bound uses the same span to adopt a longer
    /// route.
    least_rtt: WindowMin,
    loss: f64,
    arrivals: VecDeque<(RemoteTime, Bytes)>,
    arrived: Bytes,
    /// Packets whose arrival was reported, since the start.
    reported: u64,
}

impl PathView {
    /// Adds a round-trip sample (smoothing of RFC 6298 section 2).
    pub(super) fn on_rtt(&mut self, now: Time, sample: Duration) {
        let ns = i64::try_from(nanos(sample)).unwrap_or(i64::MAX - 1);
        self.least_rtt.insert(now, ns);
        let Some(srtt) = self.srtt else {
            (self.srtt, self.rttvar) = (Some(sample), sample / 2);
            return;
        };
        self.rttvar = (self.rttvar * 3 + srtt.abs_diff(sample)) / 4;
        self.srtt = Some((srtt * 7 + sample) / 8);
    }

    pub(super) fn on_fates(&mut self, fates: &[PacketOutcome]) {
        for fate in fates {
            let lost = fate.outcome == Outcome::Lost;
            self.loss += LOSS_GAIN * (f64::from(u8::from(lost)) - self.loss);
            if let Outcome::Received { at, .. } = fate.outcome {
                self.arrivals.push_back((at, fate.size));
                self.arrived += fate.size;
                self.reported += 1;
            }
        }
        let newest = self.arrivals.back().map_or(RemoteTime(0), |(at, _)| *at);
        while let Some(&(at, size)) = self.arrivals.front()
            && (newest.since(at) > WINDOW || self.arrivals.len() > MAX_ARRIVALS)
        {
            self.arrivals.pop_front();
            self.arrived -= size;
        }
    }

    /// Takes back losses of packets that have arrived after all.
    pub(super) fn on_spurious(&mut self, losses: usize) {
        self.loss = (self.loss - LOSS_GAIN * losses as f64).max(0.0);
    }

    /// Resets rate and loss after a blackout: its losses do not describe the restored path.
    pub(super) fn forget_rates(&mut self) {
        self.arrivals.clear();
        self.arrived = Bytes::ZERO;
        self.loss = 0.0;
    }

    /// Smoothed round-trip time; 100 ms before the first sample.
    pub(super) fn srtt(&self) -> Duration {
        self.srtt.unwrap_or(GUESS)
    }

    pub(super) fn has_rtt(&self) -> bool {
        self.srtt.is_some()
    }

    /// One-way propagation delay, estimated as half of the minimum round-trip time.
    pub(super) fn one_way(&self) -> Duration {
        self.least_rtt() / 2
    }

    /// Smallest reordering window: a quarter of the minimum round-trip time (RFC 8985 section 6.2),
    /// between 8 and 25 ms.
    pub(super) fn least_reordering(&self) -> Duration {
        (self.least_rtt() / 4).clamp(Duration::from_millis(8), Duration::from_millis(25))
    }

    fn least_rtt(&self) -> Duration {
        let least = self.least_rtt.min();
        least.map_or(GUESS, |ns| Duration::from_nanos(ns.unsigned_abs()))
    }

    /// Smoothed loss fraction in 0..=1.
    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// Receive rate over the 500 ms before the newest arrival, or over the time of the newest
    /// [`MAX_ARRIVALS`] packets.
    pub(super) fn receive_rate(&self) -> Rate {
        if self.arrivals.len() < MAX_ARRIVALS {
            return self.arrived / WINDOW;
        }
        let (Some((oldest, size)), Some((newest, _))) =
            (self.arrivals.front(), self.arrivals.back())
        else {
            return Rate::ZERO;
        };
        // The oldest packet arrived before the time between the two.
        let span = newest.since(*oldest).clamp(RESOLUTION, WINDOW);
        (self.arrived - *size) / span
    }

    /// Packets whose arrival was reported, since the start.
    pub(super) fn reported(&self) -> u64 {
        self.reported
    }
}

impl Default for PathView {
    fn default() -> Self {
        Self {
            srtt: None,
            rttvar: Duration::ZERO,
            least_rtt: WindowMin::new(Duration::from_secs(10)),
            loss: 0.0,
            arrivals: VecDeque::new(),
            arrived: Bytes::ZERO,
            reported: 0,
        }
    }
}

/// Longest round-trip time. Feedback that implies more was held by the path, or is a replay: it says
/// nothing about the delay of packets that leave now.
pub(super) const MAX_RTT: Duration = Duration::from_secs(10);
/// Round-trip time assumed before the first sample.
const GUESS: Duration = Duration::from_millis(100);
/// Averages over about the last 100 packets.
const LOSS_GAIN: f64 = 0.01;
const WINDOW: Duration = Duration::from_millis(500);
/// 500 ms at 157 Mb/s in packets of 1,200 bytes.
const MAX_ARRIVALS: usize = 8_192;
/// Arrival times in feedback are multiples of 1/1024 s (RFC 8888 section 3.1).
const RESOLUTION: Duration = Duration::from_nanos(976_562);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Ecn, FlowId};

    /// Packets of 1,200 bytes that arrive at `rate` for a second, in reports of 25 ms.
    fn receive_rate(rate: Rate) -> Rate {
        let mut path = PathView::default();
        let size = Bytes(1_200);
        let packets = rate.as_f64() / 9_600.0;
        let fates: Vec<_> = (0..packets as u64)
            .map(|seq| PacketOutcome {
                flow: FlowId(0),
                seq,
                size,
                sent: Time::ZERO,
                outcome: Outcome::Received {
                    at: RemoteTime((seq as f64 / packets * 1e9) as u64),
                    ecn: Ecn::NotEct,
                },
            })
            .collect();
        let most = fates.len() / 40;
        fates.chunks(most).for_each(|part| path.on_fates(part));
        assert_eq!(path.reported(), fates.len() as u64);
        assert!(path.arrivals.len() <= MAX_ARRIVALS);
        path.receive_rate()
    }

    #[test]
    fn the_receive_rate_has_no_upper_limit() {
        for mbps in [1_u64, 100, 150, 160, 1_000, 8_000] {
            let rate = Rate::kbps(mbps * 1_000);
            let error = receive_rate(rate).as_f64() / rate.as_f64();
            assert!((0.97..1.03).contains(&error), "{mbps} Mb/s: {error}");
        }
    }

    #[test]
    fn the_minimum_rtt_expires_after_one_minute() {
        let mut path = PathView::default();
        assert_eq!(path.one_way(), GUESS / 2);
        let ms = Duration::from_millis;
        path.on_rtt(Time::from_secs(1), ms(40));
        for second in 2..59 {
            path.on_rtt(Time::from_secs(second), ms(100));
            assert_eq!(path.one_way(), ms(20));
        }
        path.on_rtt(Time::from_secs(61), ms(100));
        assert_eq!(path.one_way(), ms(50));
        path.on_rtt(Time::from_secs(62), ms(60));
        assert_eq!(path.one_way(), ms(30));
    }
}
