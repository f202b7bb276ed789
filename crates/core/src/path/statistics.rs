//! Round-trip time, loss and receive rate of a path, from its reports.

use core::time::Duration;
use std::collections::VecDeque;

use super::window::WindowMin;
use crate::control::{Outcome, PacketOutcome, Report};
use crate::units::{Bytes, Rate, RemoteTime, Time, nanos};

/// What every session reads about its path, with any controller.
#[derive(Clone, Debug)]
pub(crate) struct Statistics {
    srtt: Option<Duration>,
    /// Minimum over one minute. Routes change; the delay bound uses the same span to adopt a longer
    /// route.
    min_rtt: WindowMin,
    loss: f64,
    arrivals: VecDeque<(RemoteTime, Bytes)>,
    arrived: Bytes,
    /// Packets whose arrival was reported, since the start.
    reported: u64,
}

impl Statistics {
    /// Adds a report.
    pub(crate) fn on_report(&mut self, now: Time, report: &Report<'_>) {
        if let Some(sample) = report.rtt {
            self.on_rtt(now, sample);
        }
        self.on_outcomes(report.packets);
        // Takes back losses of packets that have arrived after all.
        let arrived = report.spurious.len() as f64;
        self.loss = (self.loss - LOSS_GAIN * arrived).max(0.0);
    }

    /// Adds a round-trip sample (smoothing of RFC 6298 section 2).
    pub(crate) fn on_rtt(&mut self, now: Time, sample: Duration) {
        let ns = i64::try_from(nanos(sample)).unwrap_or(i64::MAX - 1);
        self.min_rtt.insert(now, ns);
        self.srtt = Some(self.srtt.map_or(sample, |srtt| (srtt * 7 + sample) / 8));
    }

    fn on_outcomes(&mut self, outcomes: &[PacketOutcome]) {
        for fate in outcomes {
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

    /// Resets rate and loss after a blackout: its losses do not describe the restored path.
    pub(crate) fn forget_rates(&mut self) {
        self.arrivals.clear();
        self.arrived = Bytes::ZERO;
        self.loss = 0.0;
    }

    pub(super) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    pub(super) fn min_rtt(&self) -> Option<Duration> {
        let least = self.min_rtt.min();
        least.map(|ns| Duration::from_nanos(ns.unsigned_abs()))
    }

    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// Over [`WINDOW`], or over the time of the newest [`MAX_ARRIVALS`] packets.
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

    pub(super) fn reported(&self) -> u64 {
        self.reported
    }
}

impl Default for Statistics {
    fn default() -> Self {
        Self {
            srtt: None,
            min_rtt: WindowMin::new(Duration::from_secs(10)),
            loss: 0.0,
            arrivals: VecDeque::new(),
            arrived: Bytes::ZERO,
            reported: 0,
        }
    }
}

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
        let mut path = Statistics::default();
        let size = Bytes(1_200);
        let packets = rate.as_f64() / 9_600.0;
        let outcomes: Vec<_> = (0..packets as u64)
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
        let most = outcomes.len() / 40;
        outcomes
            .chunks(most)
            .for_each(|part| path.on_outcomes(part));
        assert_eq!(path.reported(), outcomes.len() as u64);
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
        let mut path = Statistics::default();
        assert_eq!(path.min_rtt(), None);
        let ms = Duration::from_millis;
        path.on_rtt(Time::from_secs(1), ms(40));
        for second in 2..59 {
            path.on_rtt(Time::from_secs(second), ms(100));
            assert_eq!(path.min_rtt(), Some(ms(40)));
        }
        path.on_rtt(Time::from_secs(61), ms(100));
        assert_eq!(path.min_rtt(), Some(ms(100)));
        path.on_rtt(Time::from_secs(62), ms(60));
        assert_eq!(path.min_rtt(), Some(ms(60)));
    }
}
