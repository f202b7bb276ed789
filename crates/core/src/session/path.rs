//! What the sender knows of the path, beside what its controller makes of it.

use core::time::Duration;
use std::collections::VecDeque;

use crate::control::{Fate, Outcome};
use crate::units::{Bytes, Rate, RemoteTime};

/// Round-trip time, loss and delivery rate from the reports.
#[derive(Debug, Default)]
pub(super) struct PathView {
    srtt: Option<Duration>,
    rttvar: Duration,
    min_rtt: Option<Duration>,
    loss: f64,
    arrivals: VecDeque<(RemoteTime, Bytes)>,
    arrived: Bytes,
}

impl PathView {
    /// A round-trip sample (smoothing of RFC 6298 section 2).
    pub(super) fn on_rtt(&mut self, sample: Duration) {
        self.min_rtt = Some(self.min_rtt.map_or(sample, |m| m.min(sample)));
        let Some(srtt) = self.srtt else {
            (self.srtt, self.rttvar) = (Some(sample), sample / 2);
            return;
        };
        self.rttvar = (self.rttvar * 3 + srtt.abs_diff(sample)) / 4;
        self.srtt = Some((srtt * 7 + sample) / 8);
    }

    pub(super) fn on_fates(&mut self, fates: &[Fate]) {
        for fate in fates {
            let lost = fate.outcome == Outcome::Lost;
            self.loss += LOSS_GAIN * (f64::from(u8::from(lost)) - self.loss);
            if let Outcome::Received { at, .. } = fate.outcome {
                self.arrivals.push_back((at, fate.size));
                self.arrived += fate.size;
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

    /// A blackout is over: its losses and its silence say nothing about the path from now on.
    pub(super) fn forget_rates(&mut self) {
        self.arrivals.clear();
        self.arrived = Bytes::ZERO;
        self.loss = 0.0;
    }

    /// Smoothed round-trip time; before the first sample a cautious guess.
    pub(super) fn srtt(&self) -> Duration {
        self.srtt.unwrap_or(GUESS)
    }

    pub(super) fn has_rtt(&self) -> bool {
        self.srtt.is_some()
    }

    /// Propagation one way, taken as half of the smallest round trip.
    pub(super) fn one_way(&self) -> Duration {
        self.min_rtt.unwrap_or(GUESS) / 2
    }

    /// By how much packets may overtake each other: a quarter of a round trip (RFC 8985
    /// section 6.2), within reason.
    pub(super) fn reordering(&self) -> Duration {
        (self.min_rtt.unwrap_or(GUESS) / 4)
            .clamp(Duration::from_millis(8), Duration::from_millis(25))
    }

    /// Share of packets lost lately.
    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// What arrived in the last half second before the newest arrival.
    pub(super) fn receive_rate(&self) -> Rate {
        self.arrived / WINDOW
    }
}

/// Before the first sample.
const GUESS: Duration = Duration::from_millis(100);
/// About the last 100 packets.
const LOSS_GAIN: f64 = 0.01;
const WINDOW: Duration = Duration::from_millis(500);
/// 500 ms at 100 Mb/s.
const MAX_ARRIVALS: usize = 8_192;
