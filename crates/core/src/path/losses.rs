//! Causes of losses: congestion or errors of a link.
//!
//! A queue that overflows is full: losses by congestion are those of packets whose neighbours waited
//! as long as any packet of the last seconds. Errors of a link are as frequent at every length of
//! the queue. So the excess of the loss rate at a long queue over that at a short one is congestion.

use rand_core::Rng;

use super::WindowMax;
use crate::control::PacketOutcome;
use crate::controller::tfrc::equation::loss_event_rate;
use crate::controller::tfrc::loss::{LossClass, LossHistory};
use crate::random::unit;
use core::time::Duration;

/// Numbers of packets and of losses.
#[derive(Clone, Copy, Debug, Default)]
struct LossCounts {
    /// Packets received.
    received: f64,
    /// Packets lost.
    lost: f64,
}

/// Classifier of losses, and their event rates.
#[derive(Clone, Debug)]
pub(crate) struct Losses {
    /// Longest delay in the queue of the last seconds.
    longest: WindowMax,
    long: LossCounts,
    short: LossCounts,
    at: f64,
    fraction: f64,
    /// Newest arrival when the last loss became known.
    lost: f64,
    /// Numbers of recent losses: by congestion without doubt, and all.
    recent: (f64, f64),
    all: LossHistory,
    congestion: LossHistory,
}

impl Default for Losses {
    fn default() -> Self {
        Self {
            longest: WindowMax::new(LONGEST_WINDOW),
            long: LossCounts::default(),
            short: LossCounts::default(),
            at: 0.0,
            fraction: 0.0,
            lost: f64::NEG_INFINITY,
            recent: (0.0, 0.0),
            all: LossHistory::new(true),
            congestion: LossHistory::new(true),
        }
    }
}

/// State of the path at a loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Delay in the queue of the neighbours of the lost packet, and the one aimed at.
    pub(super) queue: f64,
    pub(super) target: f64,
    pub(super) rate: f64,
    pub(super) rtt: f64,
    pub(super) size: f64,
    pub(super) is_alone: bool,
}

impl Losses {
    fn is_long(&self, queue: f64) -> bool {
        queue >= LONG * self.longest.get().unwrap_or(0.0).max(MIN_QUEUE)
    }

    /// Longest delay in the queue of the last seconds.
    pub(crate) fn longest_queue(&self) -> f64 {
        self.longest.get().unwrap_or(0.0)
    }

    pub(super) fn on_received(&mut self, at: f64, queue: f64) {
        self.longest.add(at, queue);
        let keep = libm::exp(-(at - self.at).max(0.0) / MEMORY);
        self.at = self.at.max(at);
        for count in [
            &mut self.recent.0,
            &mut self.recent.1,
            &mut self.long.received,
            &mut self.long.lost,
            &mut self.short.received,
            &mut self.short.lost,
        ] {
            *count *= keep;
        }
        if self.is_long(queue) {
            self.long.received += 1.0;
        } else {
            self.short.received += 1.0;
        }
        self.fraction -= self.fraction * FRACTION_GAIN;
    }

    /// Counts a loss. Returns `Some` if it is congestion, and whether there is little doubt.
    pub(super) fn on_lost(
        &mut self,
        packet: &PacketOutcome,
        view: View,
        rng: &mut dyn Rng,
    ) -> Option<bool> {
        let first = 1.0 / loss_event_rate(view.size, view.rtt, view.rate);
        on_loss(&mut self.all, packet, view.rtt, first);
        self.fraction += (1.0 - self.fraction) * FRACTION_GAIN;
        self.lost = self.at;
        self.recent.1 += 1.0;
        if !self.is_long(view.queue) {
            self.short.lost += 1.0;
            return None;
        }
        self.long.lost += 1.0;
        let (probability, is_strong) = self.congestion(view);
        if unit(rng) >= probability {
            return None;
        }
        self.recent.0 += f64::from(u8::from(is_strong));
        on_loss(&mut self.congestion, packet, view.rtt, first);
        Some(is_strong)
    }

    /// Counts a packet with a mark of congestion (ECN-CE) as a loss by congestion, of which there is no
    /// doubt (RFC 3168 section 5).
    pub(super) fn on_mark(&mut self, packet: &PacketOutcome, (size, rtt, rate): (f64, f64, f64)) {
        let first = 1.0 / loss_event_rate(size, rtt, rate);
        on_loss(&mut self.all, packet, rtt, first);
        on_loss(&mut self.congestion, packet, rtt, first);
    }

    /// Probability that a loss at a long queue is congestion, and whether there is little doubt.
    fn congestion(&self, view: View) -> (f64, bool) {
        let short = self.short.lost / (self.short.received + 50.0);
        let long = (self.long.lost + 0.5) / (self.long.received + 1.0);
        let error = (self.long.lost + 1.0).sqrt() / (self.long.received + 1.0);
        // Alone, a wrong suspicion costs rate, and no other flow gains.
        let margin = if view.is_alone { 2.0 * error } else { 0.0 };
        let too_few = view.is_alone && self.short.received < 50.0;
        let excess = if too_few || long - margin <= short {
            0.0
        } else {
            1.0 - short / long
        };
        let is_strong = view.queue > view.target + STRONG || long - 3.0 * error > short;
        (excess, is_strong)
    }

    /// Whether a packet was lost within the last `span` seconds of arrivals.
    pub(crate) fn go_on(&self, span: f64) -> bool {
        self.at - self.lost < span
    }

    /// Part of the recent losses that congestion caused, in 0..=1. If there are too many for link
    /// errors, all of them.
    pub(crate) fn congestion_share(&self) -> f64 {
        let (congestion, all) = self.recent;
        if congestion >= all || self.fraction > MAX_ERRORS {
            1.0
        } else {
            congestion / all
        }
    }

    /// Recent fraction of lost packets.
    pub(crate) fn fraction(&self) -> f64 {
        self.fraction
    }

    /// Event rate of all losses, and whether at least four events are known.
    pub(crate) fn all(&self) -> &LossHistory {
        &self.all
    }

    /// Event rate of the losses by congestion.
    pub(crate) fn by_congestion(&self) -> &LossHistory {
        &self.congestion
    }

    /// The packet counts as one of each history.
    pub(super) fn on_outcome(&mut self, seq: u64) {
        self.all.on_outcome(seq);
        self.congestion.on_outcome(seq);
    }
}

/// Adds a loss to `history`. `first` is the interval before the first event.
fn on_loss(history: &mut LossHistory, packet: &PacketOutcome, rtt: f64, first: f64) {
    let rtt = Duration::from_secs_f64(rtt);
    if history.on_congestion(packet.seq, packet.sent, rtt) == LossClass::First {
        history.seed(first);
    }
}

/// Half of the window of the longest delay, in seconds: more than one sawtooth of most TCP flows.
const LONGEST_WINDOW: f64 = 6.0;
/// A queue is long from this part of the longest delay on.
const LONG: f64 = 0.7;
/// Shorter delays tell nothing, in seconds.
const MIN_QUEUE: f64 = 0.004;
/// Time constant of the loss rates, in seconds.
const MEMORY: f64 = 40.0;
/// Weight of a packet in the recent fraction of losses.
const FRACTION_GAIN: f64 = 1.0 / 64.0;
/// Largest fraction of losses by errors of a link.
const MAX_ERRORS: f64 = 0.15;
/// Delay above the target at which a loss is surely congestion, in seconds.
const STRONG: f64 = 0.01;
