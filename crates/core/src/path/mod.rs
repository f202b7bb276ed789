//! Estimator of a path: delay, delivered rate, own share of the bottleneck, and causes of losses.
//!
//! The input is the outcome of each packet. Every estimate comes from the flow's own packets: no
//! other packets, priorities or marks are needed. `docs/tide.md` describes the estimates.
//!
//! Internally times are seconds and rates are bytes per second.

mod delay;
mod delivery;
mod falls;
mod losses;
mod share;

use core::time::Duration;
use std::collections::VecDeque;

use rand_core::Rng;

use crate::control::{Ecn, Outcome, PacketOutcome, Report, Sent};
use crate::units::{Bytes, Rate, RemoteTime, Time};
use delay::Delays;
pub(crate) use delay::{Queue, WindowMax};
use delivery::Delivery;
pub(crate) use falls::Falls;
use losses::Losses;
use share::Share;

/// Estimates of one path. They exist for a controller that reads them, which passes the packets on.
#[derive(Clone, Debug)]
pub struct Path {
    is_measured: bool,
    bottleneck: Bottleneck,
    /// Packets in flight, by number.
    flight: VecDeque<Departure>,
    /// Number of the first packet of `flight`.
    first: u64,
    in_flight: f64,
    /// Mean size of a packet, in bytes.
    size: f64,
    /// Time at which the path came into use, and the receiver's time at the first arrival.
    began: Time,
    remote: Option<(RemoteTime, Time)>,
    /// Steps of the receiver's clock since, in seconds, and the newest one-way delay without them.
    steps: f64,
    delay: f64,
    rtt: f64,
    /// Time of the last sample.
    sampled: Time,
    min_rtt: WindowMax,
    base_rtt: WindowMax,
    delays: Delays,
    /// Largest capacity of the bottleneck in the time of the base delay.
    fastest: WindowMax,
    delivery: Delivery,
    share: Share,
    losses: Losses,
    /// Newest packets received, for the neighbours of a lost packet.
    received: VecDeque<Neighbour>,
    /// Lost packets of the report that is being processed.
    lost: Vec<PacketOutcome>,
    /// Time of sending of the newest packet received, and the rate that was allowed then.
    newest_sent: f64,
    newest_rate: f64,
    /// Arrival of the newest packet that others have overtaken.
    overtaken: f64,
}

/// What a controller has found about the bottleneck.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bottleneck {
    /// Rate that the path carries for this flow; `None` before the first report.
    pub(crate) available: Option<Rate>,
    /// Whether other flows fill the queue.
    pub(crate) is_contested: bool,
    /// Part of the rate that remained after the deeper one of two sudden falls within a minute, in
    /// 0..=1.
    pub(crate) repeated_falls: Option<f64>,
}

/// A packet in flight.
#[derive(Clone, Copy, Debug)]
struct Departure {
    size: f64,
    /// Rate at which it was sent.
    rate: f64,
    is_open: bool,
    /// Whether the application had nothing more to send.
    is_last: bool,
}

/// A received packet.
#[derive(Clone, Copy, Debug)]
struct Neighbour {
    seq: u64,
    sent: f64,
    at: f64,
    queue: f64,
    size: f64,
}

/// The content of a report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News {
    /// Number of packets received.
    pub(crate) received: u32,
    /// Newest loss by congestion.
    pub(crate) congestion: Option<Congestion>,
    /// Rate to which the path fell, as far as can be seen without regard to other flows.
    pub(crate) fall: Option<f64>,
}

/// A loss by congestion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    /// Time of sending of the packet.
    pub(crate) sent: f64,
    /// Delay in the queue of its neighbours.
    pub(crate) queue: f64,
    /// Whether there is little doubt.
    pub(crate) is_strong: bool,
    /// Whether the packet has arrived, with a mark (ECN-CE).
    pub(crate) is_mark: bool,
}

impl Path {
    /// A path that comes into use at `now`, for packets of `size`.
    pub(crate) fn new(now: Time, size: Bytes) -> Self {
        Self {
            is_measured: true,
            flight: VecDeque::with_capacity(MOST_IN_FLIGHT),
            received: VecDeque::with_capacity(NEIGHBOURS),
            ..Self::begin(now, size)
        }
    }

    /// A path without estimates, for a controller that reads none.
    pub fn unmeasured() -> Self {
        Self::begin(Time::ZERO, Bytes::ZERO)
    }

    fn begin(now: Time, size: Bytes) -> Self {
        Self {
            is_measured: false,
            bottleneck: Bottleneck::default(),
            flight: VecDeque::new(),
            first: 0,
            in_flight: 0.0,
            size: size.get().max(1) as f64,
            began: now,
            remote: None,
            steps: 0.0,
            delay: 0.0,
            rtt: 0.0,
            sampled: now,
            min_rtt: WindowMax::new(MIN_RTT_WINDOW),
            base_rtt: WindowMax::new(delay::BASE_WINDOW),
            delays: Delays::new(),
            fastest: WindowMax::new(delay::BASE_WINDOW),
            delivery: Delivery::new(),
            share: Share::default(),
            losses: Losses::default(),
            received: VecDeque::new(),
            lost: Vec::new(),
            newest_sent: 0.0,
            newest_rate: 0.0,
            overtaken: f64::NEG_INFINITY,
        }
    }

    /// Seconds since the path came into use.
    pub(crate) fn seconds(&self, at: Time) -> f64 {
        at.since(self.began).as_secs_f64()
    }

    /// A packet was sent at `rate` bytes per second.
    pub(crate) fn on_sent(&mut self, packet: &Sent, rate: f64) {
        if self.flight.is_empty() {
            self.first = packet.seq;
        }
        if self.flight.len() == MOST_IN_FLIGHT
            && let Some(oldest) = self.flight.pop_front()
        {
            self.first += 1;
            self.in_flight -= if oldest.is_open { oldest.size } else { 0.0 };
        }
        // Sums of sizes that no packet has would hide later packets.
        let size = packet.size.get().min(LARGEST_PACKET) as f64;
        self.size += (size - self.size) * SIZE_GAIN;
        self.in_flight += size;
        self.flight.push_back(Departure {
            size,
            rate,
            is_open: true,
            is_last: packet.app_limited,
        });
    }

    /// Takes a packet out of flight.
    fn settle(&mut self, seq: u64) -> Option<Departure> {
        let index = usize::try_from(seq.checked_sub(self.first)?).ok()?;
        let packet = self.flight.get_mut(index).filter(|p| p.is_open)?;
        packet.is_open = false;
        let packet = *packet;
        self.in_flight = (self.in_flight - packet.size).max(0.0);
        while self.flight.front().is_some_and(|p| !p.is_open) {
            self.flight.pop_front();
            self.first += 1;
        }
        Some(packet)
    }

    /// Feedback at `now`. `is_restored`: it ends a silence of the path. `target` is the delay in the
    /// queue that the sender aims at.
    pub(crate) fn on_report(
        &mut self,
        now: Time,
        rng: &mut dyn Rng,
        report: &Report<'_>,
        is_restored: bool,
        target: f64,
    ) -> News {
        let mut news = News::default();
        match report.rtt {
            Some(sample) => self.on_rtt(now, sample),
            None if now.since(self.sampled) > LIMITED => self.delays.set_limit(f64::INFINITY),
            None => {}
        }
        if is_restored {
            self.delivery.restart();
        }
        self.lost.clear();
        for packet in report.packets {
            match packet.outcome {
                Outcome::Lost => self.lost.push(*packet),
                Outcome::Received { at, ecn } => {
                    if !self.on_received(packet, at) {
                        continue;
                    }
                    news.received += 1;
                    if ecn == Ecn::Ce {
                        news.congestion = Some(self.on_mark(packet));
                    }
                }
            }
        }
        let mut lost = core::mem::take(&mut self.lost);
        for packet in &lost {
            let cause = self.on_lost(packet, rng, is_restored, target);
            news.congestion = cause.or(news.congestion);
        }
        lost.clear();
        self.lost = lost;
        self.delivery.close();
        if self.is_alone()
            && let Some((rate, age)) = self.capacity()
            && age <= RECENT
        {
            self.on_capacity(rate);
        }
        self.delays.set_shared(self.share.is_shared());
        // A queue of this flow has left in that time, and that of others varies.
        let constant = self.delays.constant(f64::max(CONSTANT, 10.0 * self.rtt));
        if constant.is_some_and(|delay| delay > 2.0 * target + LEAST_ROUTE) {
            self.delays.rebase();
            self.share.restart();
        }
        news.fall = self.fall();
        news
    }

    /// The path carries only `rate` from now on.
    pub(crate) fn on_fall(&mut self, rate: f64) {
        self.delivery.fall_to(rate);
        self.share.restart();
        if self.is_alone() {
            self.on_capacity(rate);
        }
    }

    /// The bottleneck carries `rate`.
    fn on_capacity(&mut self, rate: f64) {
        let rate = rate.max(1.0);
        self.fastest.add(self.newest_sent, rate);
        let fastest = self.fastest.get().unwrap_or(rate);
        self.delays.set_slowness(1.0 / rate - 1.0 / fastest);
    }

    /// Rate at which the newest packets left the queue, if each waited longer than the one before,
    /// and if that is well below the delivered rate: the path has become slower. Jitter and
    /// batches do not delay packet after packet. A small packet may wait a little less.
    fn fall(&self) -> Option<f64> {
        let newest = self.received.back()?;
        let least = FALL_RISE + 3.0 * self.delays.jitter().min(MOST_JITTER);
        let (mut bytes, mut first) = (0.0, newest);
        for earlier in self.received.iter().rev().skip(1).take(FALL_PACKETS) {
            let gap = first.sent - earlier.sent;
            let is_busy = earlier.queue > gap && first.at > earlier.at;
            if earlier.queue > first.queue + FALL_DIP || !is_busy {
                return None;
            }
            bytes += first.size;
            first = earlier;
            if newest.queue - first.queue > least && bytes > 2.5 * self.size {
                // Earlier packets may be those before the fall.
                let rate = bytes / (newest.at - first.at);
                return (rate < FALL * self.delivery.rate()).then_some(rate);
            }
        }
        None
    }

    fn on_rtt(&mut self, now: Time, sample: Duration) {
        self.sampled = now;
        let sample = sample.as_secs_f64();
        if self.rtt > 0.0 {
            self.rtt += (sample - self.rtt) * RTT_GAIN;
        } else {
            self.rtt = sample;
        }
        self.min_rtt.add(self.seconds(now), -sample);
        self.base_rtt.add(self.seconds(now), -sample);
        let least = -self.base_rtt.get().unwrap_or(-sample);
        self.delays.set_limit(sample - least);
    }

    /// Returns whether the packet was in flight.
    fn on_received(&mut self, packet: &PacketOutcome, at: RemoteTime) -> bool {
        let Some(departure) = self.settle(packet.seq) else {
            return false;
        };
        let (origin, began) = *self.remote.get_or_insert((at, packet.sent));
        // The origin of the receiver's time is arbitrary.
        let mut at = seconds_between(origin.0, at.0) - self.steps;
        let sent = seconds_between(began.as_nanos(), packet.sent.as_nanos());
        if (at - sent - self.delay).abs() > STEP {
            let step = at - sent - self.delay;
            self.steps += step;
            at -= step;
        }
        self.delay = at - sent;
        let steady = self.delays.steady();
        let queue = self.delays.on_packet(at, self.delay, departure.size);
        let last = self.received.back().copied();
        self.losses.on_outcome(packet.seq);
        // As for a lost packet, that of the neighbours: of a packet, the one before and after it.
        let earlier = self.received.iter().rev().nth(1);
        let around = earlier.map_or(queue, |earlier| earlier.queue.max(queue));
        self.losses.on_received(at, around);
        self.delivery
            .on_received((sent, at), departure.size, departure.is_last);
        let sent_at = self.seconds(packet.sent);
        if sent_at >= self.newest_sent {
            (self.newest_sent, self.newest_rate) = (sent_at, departure.rate);
        }
        if let Some(last) = last.filter(|last| last.seq + 1 == packet.seq) {
            let (gap, spread) = (sent - last.sent, at - last.at);
            // Below, the packet before had left the queue when this one arrived at it.
            let is_busy = last.queue.min(steady) > (1.5 * gap).max(1e-3) && gap < 0.1;
            // A queue keeps the order.
            let is_queue = at - self.overtaken > IN_ORDER;
            if is_busy && is_queue && spread >= 0.0 {
                let memory = f64::max(2.0, 60.0 * self.size / self.rate().max(1.0));
                let scale = departure.rate / self.size;
                self.share
                    .on_pair(at, (departure.size, gap, spread), scale, memory);
            }
        }
        if last.is_some_and(|last| last.at > at + ROUNDING || last.seq > packet.seq) {
            self.overtaken = self.overtaken.max(at);
        }
        if last.is_none_or(|last| last.seq < packet.seq) {
            if self.received.len() == NEIGHBOURS {
                self.received.pop_front();
            }
            self.received.push_back(Neighbour {
                seq: packet.seq,
                sent,
                at,
                queue,
                size: departure.size,
            });
        }
        true
    }

    /// The packet that has just been received carries a mark of congestion.
    fn on_mark(&mut self, packet: &PacketOutcome) -> Congestion {
        let rtt = self.rtt.max(1e-3);
        let rate = self.delivery.rate().max(self.size / rtt);
        self.losses.on_mark(packet, (self.size, rtt, rate));
        Congestion {
            sent: self.seconds(packet.sent),
            queue: self.received.back().map_or(0.0, |newest| newest.queue),
            is_strong: true,
            is_mark: true,
        }
    }

    /// Decides about the cause of a loss.
    fn on_lost(
        &mut self,
        packet: &PacketOutcome,
        rng: &mut dyn Rng,
        is_restored: bool,
        target: f64,
    ) -> Option<Congestion> {
        let departure = self.settle(packet.seq)?;
        let place = self.received.partition_point(|n| n.seq < packet.seq);
        let before = place.checked_sub(1).map(|i| self.received[i]);
        let after = self.received.get(place).copied();
        let is_outage = match (before, after) {
            (Some(before), Some(after)) => {
                let (pause, lost) = (after.at - before.at, after.seq - before.seq);
                let is_long = |(least, losses): (f64, u64)| pause > least && lost > losses;
                OUTAGES.into_iter().any(is_long)
            }
            _ => false,
        };
        if is_restored || is_outage {
            self.delivery.restart();
            return None;
        }
        let queue = [before, after].into_iter().flatten();
        let queue = queue.map(|n| n.queue).fold(0.0, f64::max);
        let view = losses::View {
            queue,
            target,
            rate: self.delivery.rate().max(self.size / self.rtt.max(1e-3)),
            rtt: self.rtt.max(1e-3),
            size: self.size,
            is_alone: self.is_alone(),
        };
        let sent = self.seconds(packet.sent);
        let cause = self.losses.on_lost(packet, view, rng);
        if cause.is_none() && queue < target && self.losses.fraction() < HEAVY {
            self.delivery.on_link_error(departure.size);
        }
        cause.map(|is_strong| Congestion {
            sent,
            queue,
            is_strong,
            is_mark: false,
        })
    }

    /// Whether there are estimates.
    pub fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// Rate that the path carries for this flow, all headers included. Above the allowed rate while a
    /// queue is drained. `None` without estimates or before the first report.
    pub fn available_rate(&self) -> Option<Rate> {
        self.bottleneck.available
    }

    /// Whether other flows fill the queue, so that its delay does not depend on this flow.
    pub fn is_contested(&self) -> bool {
        self.bottleneck.is_contested
    }

    /// Part of the rate that remained after the deeper one of two sudden falls within a minute, in
    /// 0..=1; `None` without two of them.
    pub fn repeated_falls(&self) -> Option<f64> {
        self.bottleneck.repeated_falls
    }

    /// Part of the recent losses that congestion caused, in 0..=1; all of them without estimates. The
    /// others are errors of links.
    pub fn congestion_share(&self) -> f64 {
        if self.is_measured {
            self.losses.congestion_share()
        } else {
            1.0
        }
    }

    /// Publishes what the controller has found.
    pub(crate) fn set_bottleneck(&mut self, bottleneck: Bottleneck) {
        self.bottleneck = bottleneck;
    }

    /// Mean packet size in bytes.
    pub(crate) fn size(&self) -> f64 {
        self.size
    }

    /// Bytes without outcome.
    pub(crate) fn in_flight(&self) -> f64 {
        self.in_flight
    }

    /// Round-trip time in seconds; zero before the first sample.
    pub(crate) fn rtt(&self) -> f64 {
        self.rtt
    }

    /// Smallest round-trip time of the last 15 to 30 s.
    pub(crate) fn min_rtt(&self) -> f64 {
        -self.min_rtt.get().unwrap_or(-self.rtt)
    }

    /// Delivered rate. Losses by link errors count as delivered.
    pub(crate) fn rate(&self) -> f64 {
        self.delivery.rate()
    }

    /// Time since the newest packet received was sent.
    pub(crate) fn age(&self, now: Time) -> f64 {
        (self.seconds(now) - self.newest_sent).max(0.0)
    }

    /// Rate that was allowed when the newest packet received was sent.
    pub(crate) fn allowed_then(&self) -> f64 {
        self.newest_rate
    }

    /// Delays in the queue.
    pub(crate) fn delays(&mut self) -> &mut Delays {
        &mut self.delays
    }

    /// Delivered rates.
    pub(crate) fn delivery(&mut self) -> &mut Delivery {
        &mut self.delivery
    }

    /// Own share of the bottleneck, in 0..=1, once it is known.
    pub(crate) fn share(&self) -> Option<f64> {
        self.share.share()
    }

    /// Whether there is no other traffic at the bottleneck.
    pub(crate) fn is_alone(&self) -> bool {
        self.share.is_alone()
    }

    /// Rate at which the bottleneck served consecutive packets, and its age in seconds.
    pub(crate) fn capacity(&self) -> Option<(f64, f64)> {
        let (capacity, at) = self.share.capacity()?;
        let newest = self.received.back()?.at;
        Some((capacity, newest - at))
    }

    /// Losses.
    pub(crate) fn losses(&self) -> &Losses {
        &self.losses
    }
}

/// Seconds from one time in nanoseconds to another, on one clock.
fn seconds_between(from: u64, to: u64) -> f64 {
    (i128::from(to) - i128::from(from)) as f64 / 1e9
}

/// More packets in flight have no outcome here: 25 s at 1,300 packets per second.
const MOST_IN_FLIGHT: usize = 32_768;
/// Largest IP packet.
const LARGEST_PACKET: u64 = 65_535;
/// Received packets to find the neighbours of a lost one: reports of a loss come after three later
/// packets or a reordering window.
const NEIGHBOURS: usize = 512;
/// A pause of arrivals of so many seconds, in which more than so many packets in a row were lost, is an
/// outage and not congestion: a full queue drops some packets and still delivers others. Handovers of
/// satellites take 0.1 to 0.2 s.
const OUTAGES: [(f64, u64); 2] = [(0.25, 3), (0.06, 12)];
/// A larger change of the one-way delay is a step of the receiver's clock, in seconds.
const STEP: f64 = 5.0;
/// A path that has become slower delays packet after packet, in sum by this many seconds, and serves
/// them at this part of the delivered rate: a TCP flow that starts, or a key frame of another stream,
/// takes longer for it.
const FALL_RISE: f64 = 0.015;
const FALL: f64 = 0.6;
/// Age of a capacity that is the present one, in seconds.
const RECENT: f64 = 0.25;
/// Time after a packet out of order in which delays may be jitter of single packets, in seconds.
const IN_ORDER: f64 = 1.0;
/// Differences of arrival times of reports (RFC 8888 has units of 1/1,024 s), in seconds.
const ROUNDING: f64 = 0.002;
const FALL_DIP: f64 = 0.002;
/// Packets in which this is seen.
const FALL_PACKETS: usize = 16;
/// The jitter estimate includes the queue that a fall causes.
const MOST_JITTER: f64 = 0.01;
/// Age of a sample of the round-trip time that says nothing about the present queue. With
/// transport-wide feedback, samples are those of sender reports.
const LIMITED: Duration = Duration::from_millis(300);
/// Time for which the delay of a longer route is constant, and least difference of routes, in seconds.
const CONSTANT: f64 = 3.0;
const LEAST_ROUTE: f64 = 0.01;
/// Above this fraction of losses, none counts as delivered.
const HEAVY: f64 = 0.12;
/// Weight of a packet in the mean size.
const SIZE_GAIN: f64 = 1.0 / 32.0;
/// Weight of a sample in the round-trip time: there is one per report.
const RTT_GAIN: f64 = 0.5;
/// Half of the window of the smallest round-trip time, in seconds.
const MIN_RTT_WINDOW: f64 = 15.0;

#[cfg(test)]
mod tests;
