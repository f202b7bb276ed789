//! Estimator of a path: round-trip time, queue, jitter, delivered rate, own share of the bottleneck, and
//! losses with their causes.
//!
//! The input is the outcome of each packet. Every estimate comes from the flow's own packets: no
//! other packets, priorities or marks are needed. `docs/tide.md` describes the estimates.
//!
//! Internally times are seconds and rates are bytes per second.

mod base;
mod clock;
mod delay;
mod delivery;
mod falls;
mod flight;
mod losses;
mod round_trip;
mod share;
mod statistics;
pub(crate) mod window;

use core::time::Duration;
use std::collections::VecDeque;

use rand_core::Rng;

use crate::control::{Ecn, Outcome, PacketOutcome, Report, Sent};
use crate::units::{Bytes, Rate, RemoteTime, Time};
use clock::{Clock, Transit};
use delay::Delays;
pub(crate) use delay::Queue;
use delivery::Delivery;
use flight::{Departure, Flight, MAX_IN_FLIGHT};
use losses::Losses;
use round_trip::RoundTrip;
use share::Share;
use statistics::Statistics;
pub(crate) use window::WindowMax;

/// Estimates of one path.
///
/// The statistics of the reports (round-trip time, loss, receive rate) exist where a session reads them.
/// The estimates of the bottleneck exist where the controller reads them
/// ([`RateController::reads_path`](crate::control::RateController::reads_path)); it passes the packets on.
#[derive(Clone, Debug)]
pub struct Path {
    statistics: Option<Statistics>,
    is_measured: bool,
    bottleneck: Bottleneck,
    flight: Flight,
    /// Mean size of a packet, in bytes.
    size: f64,
    /// Time at which the path came into use.
    began: Time,
    clock: Clock,
    round_trip: RoundTrip,
    /// Time of the last sample.
    sampled: Time,
    delays: Delays,
    /// Largest capacity of the bottleneck in the time of the base delay.
    fastest: WindowMax,
    /// Newest capacity, of which the delays leave out the longer transmission.
    capacity: f64,
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
}

/// A received packet.
#[derive(Clone, Copy, Debug)]
struct Neighbour {
    seq: u64,
    sent: f64,
    at: f64,
    queue: f64,
    size: f64,
    /// Delivered rate before the report of this packet.
    rate: f64,
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
            flight: Flight::with_capacity(MAX_IN_FLIGHT),
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
            statistics: None,
            is_measured: false,
            bottleneck: Bottleneck::default(),
            flight: Flight::with_capacity(0),
            size: size.get().max(1) as f64,
            began: now,
            clock: Clock::default(),
            round_trip: RoundTrip::new(),
            sampled: now,
            delays: Delays::new(),
            fastest: WindowMax::new(base::BASE_WINDOW),
            capacity: f64::INFINITY,
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

    /// Forgets the estimates of the bottleneck. They exist from now on if `is_measured`.
    pub(crate) fn restart(&mut self, now: Time, size: Bytes, is_measured: bool) {
        let statistics = self.statistics.take();
        *self = if is_measured {
            Self::new(now, size)
        } else {
            Self::unmeasured()
        };
        self.statistics = statistics;
    }

    /// Collects the statistics of the reports from now on.
    pub(crate) fn collect_statistics(&mut self) {
        self.statistics = Some(Statistics::default());
    }

    /// Forgets the statistics of the reports.
    pub(crate) fn forget_statistics(&mut self) {
        self.statistics = self.statistics.take().map(|_| Statistics::default());
    }

    /// The statistics of the reports, if a session reads them.
    pub(crate) fn statistics_mut(&mut self) -> Option<&mut Statistics> {
        self.statistics.as_mut()
    }

    /// A packet was sent at `rate` bytes per second.
    pub(crate) fn on_sent(&mut self, now: Time, packet: &Sent, rate: f64) {
        // Sums of sizes that no packet has would hide later packets.
        let size = packet.size.get().min(LARGEST_PACKET) as f64;
        self.size += (size - self.size) * SIZE_GAIN;
        let departure = Departure {
            seq: packet.seq,
            step: self.flight.step(packet.seq),
            sent: self.seconds(now),
            size,
            rate,
            is_last: packet.app_limited,
            is_open: true,
        };
        self.flight.send(departure);
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
        self.delays.close();
        self.delivery.close();
        self.follow_capacity();
        self.delays.set_shared(self.share.is_shared());
        // A queue of this flow has left in that time, and that of others varies.
        let constant = self.delays.constant(f64::max(CONSTANT, 10.0 * self.rtt()));
        if constant.is_some_and(|delay| delay > 2.0 * target + MIN_ROUTE) {
            self.delays.rebase();
            self.share.restart();
        }
        news.fall = falls::newest(
            &self.received,
            self.delays.jitter(),
            self.delivery.rate(),
            self.size,
        );
        news
    }

    /// The path carries only `rate` from now on.
    pub(crate) fn on_fall(&mut self, rate: f64) {
        self.delivery.fall_to(rate);
        // A further fall is one from this rate.
        for packet in self.received.iter_mut().rev().take(falls::PACKETS + 1) {
            packet.rate = packet.rate.min(rate);
        }
        self.share.restart();
        if self.is_alone() {
            self.on_capacity(rate);
        }
    }

    /// Follows the capacity that the newest packets show.
    fn follow_capacity(&mut self) {
        if self.is_alone()
            && let Some((rate, age)) = self.capacity()
            && age <= RECENT
        {
            self.on_capacity(rate);
        }
        // A path that has recovered: the longer transmission of the fall would hide a queue.
        if self.delivery.rate() > RECOVERED * self.capacity {
            self.on_capacity(self.delivery.rate());
        }
    }

    /// The bottleneck carries `rate`.
    fn on_capacity(&mut self, rate: f64) {
        let rate = rate.max(1.0);
        self.capacity = rate;
        self.fastest.add(self.newest_sent, rate);
        let fastest = self.fastest.get().unwrap_or(rate);
        self.delays.set_slowness(1.0 / rate - 1.0 / fastest);
    }

    fn on_rtt(&mut self, now: Time, sample: Duration) {
        self.sampled = now;
        let (now, sample) = (self.seconds(now), sample.as_secs_f64());
        let excess = self.round_trip.on_sample(now, sample);
        self.delays.set_limit(excess);
    }

    /// Returns whether the packet was in flight.
    fn on_received(&mut self, packet: &PacketOutcome, at: RemoteTime) -> bool {
        let Some(departure) = self.flight.settle(packet.seq) else {
            return false;
        };
        let Transit { sent, at, delay } = self.clock.on_arrival(packet.sent, at);
        let steady = self.delays.steady();
        let queue = self.delays.on_packet(at, delay, departure.size);
        let last = self.received.back().copied();
        self.losses.on_outcome(packet.seq);
        // As for a lost packet, that of the neighbours: of a packet, the one before and after it.
        let earlier = self.received.iter().rev().nth(1);
        let around = earlier.map_or(queue, |earlier| earlier.queue.max(queue));
        self.losses.on_received(at, around);
        if queue < PAUSED {
            self.delivery.end_pause(sent, at);
        }
        self.delivery
            .on_received((sent, at), departure.size, departure.is_last);
        let sent_at = self.seconds(packet.sent);
        if sent_at >= self.newest_sent {
            (self.newest_sent, self.newest_rate) = (sent_at, departure.rate);
        }
        if let Some(last) =
            last.filter(|last| packet.seq.checked_sub(last.seq) == Some(departure.step.into()))
        {
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
                rate: self.delivery.rate(),
            });
        }
        true
    }

    /// The packet that has just been received carries a mark of congestion.
    fn on_mark(&mut self, packet: &PacketOutcome) -> Congestion {
        let rtt = self.rtt().max(1e-3);
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
        let departure = self.flight.settle(packet.seq)?;
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
            rate: self.delivery.rate().max(self.size / self.rtt().max(1e-3)),
            rtt: self.rtt().max(1e-3),
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

    /// Smoothed round-trip time (RFC 6298 section 2); `None` before the first sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.statistics.as_ref()?.srtt()
    }

    /// Smallest round-trip time of the last minute; `None` before the first sample.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.statistics.as_ref()?.min_rtt()
    }

    /// Fraction of lost packets, in 0..=1, over about the last 100.
    pub fn loss(&self) -> f64 {
        self.statistics.as_ref().map_or(0.0, Statistics::loss)
    }

    /// Rate at which packets arrived in the 500 ms before the newest arrival, all headers included.
    pub fn receive_rate(&self) -> Rate {
        let statistics = self.statistics.as_ref();
        statistics.map_or(Rate::ZERO, Statistics::receive_rate)
    }

    /// Number of packets that were reported as received.
    pub fn received(&self) -> u64 {
        self.statistics.as_ref().map_or(0, Statistics::reported)
    }

    /// Delay of the newest packet received in this flow's own queue, without jitter.
    pub fn queueing_delay(&self) -> Duration {
        duration(self.own_queue())
    }

    /// Delay in the queue of a packet that is sent at `now`, if the path carries `rate`; at most that of
    /// the newest arrival. If the report of the oldest packet since is overdue, the path carries less, and
    /// the result is the delay of the newest arrival.
    pub fn queueing_delay_at(&self, now: Time, rate: Rate) -> Duration {
        let seen = self.own_queue();
        let newest = self.received.back().map(|newest| newest.seq);
        let (Some(_), Some(oldest)) = (newest, self.flight.after(newest).next()) else {
            return duration(seen);
        };
        let rate = (rate.as_f64() / 8.0).max(1.0);
        let ahead = (seen - (oldest.sent - self.newest_sent)).max(0.0);
        let due = oldest.sent + self.recent_min_rtt() + ahead + oldest.size / rate;
        let queue = if self.seconds(now) > due + REPORTED {
            seen
        } else {
            seen.min(self.queued(now, rate) / rate)
        };
        duration(queue)
    }

    /// Bytes of this flow in the queue at `now`, if the path carries `rate`: those of the newest arrival,
    /// and everything sent since, served at that rate.
    pub fn bytes_queued(&self, now: Time, rate: Rate) -> Bytes {
        Bytes(self.queued(now, rate.as_f64() / 8.0) as u64)
    }

    /// Delay above the smallest of the last minutes that lower rates have not reduced for seconds, because
    /// it is in the queue of others. Zero without recent arrivals.
    pub fn standing_delay(&self, now: Time) -> Duration {
        if self.age(now) > STANDING {
            return Duration::ZERO;
        }
        duration(self.delays.standing())
    }

    /// Largest delay in the queue of the last quarter to half second, others' included.
    pub fn max_queueing_delay(&self) -> Duration {
        duration(self.delays.largest())
    }

    /// Bound on the jitter above the smallest delay, up to 125 ms; hardly any packet exceeds it.
    pub fn jitter_bound(&self) -> Duration {
        duration(self.delays.jitter_bound())
    }

    /// Whether there are estimates of the bottleneck.
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

    /// Delay of the newest packet received in the own queue, in seconds.
    fn own_queue(&self) -> f64 {
        let newest = self.received.back().map_or(0.0, |newest| newest.queue);
        self.delays.own(newest)
    }

    /// Bytes in the own queue at a `rate` of the path in bytes per second.
    fn queued(&self, now: Time, rate: f64) -> f64 {
        let Some(newest) = self.received.back() else {
            return self.flight.bytes();
        };
        let (mut queue, mut at) = (rate * self.own_queue(), self.newest_sent);
        for packet in self.flight.after(Some(newest.seq)) {
            queue = (queue - rate * (packet.sent - at)).max(0.0) + packet.size;
            at = packet.sent;
        }
        (queue - rate * (self.seconds(now) - at)).max(0.0)
    }

    /// Mean packet size in bytes.
    pub(crate) fn size(&self) -> f64 {
        self.size
    }

    /// Bytes without outcome.
    pub(crate) fn in_flight(&self) -> f64 {
        self.flight.bytes()
    }

    /// Round-trip time in seconds; zero before the first sample.
    pub(crate) fn rtt(&self) -> f64 {
        self.round_trip.smoothed()
    }

    /// Smallest round-trip time of the last 15 to 30 s.
    pub(crate) fn recent_min_rtt(&self) -> f64 {
        self.round_trip.smallest()
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

/// Converts seconds of a delay. Longer ones are steps of a clock.
fn duration(seconds: f64) -> Duration {
    // NaN is no delay either.
    if seconds > 0.0 {
        Duration::from_secs_f64(seconds.min(MAX_DELAY))
    } else {
        Duration::ZERO
    }
}

/// Time from an arrival to its report, in seconds: two intervals of 25 ms, and 25 ms for timers and
/// jitter.
const REPORTED: f64 = 0.075;
/// Arrivals that are older show no standing delay, in seconds. An outdated value could stop the stream,
/// and a stopped stream would never measure a new one.
const STANDING: f64 = 3.0;
/// A packet after a pause that waited for less than this, in seconds, shows no slower path.
const PAUSED: f64 = 0.05;
/// Longest delay of a packet, in seconds.
const MAX_DELAY: f64 = 60.0;
/// Largest IP packet.
const LARGEST_PACKET: u64 = 65_535;
/// Received packets to find the neighbours of a lost one: reports of a loss come after three later
/// packets or a reordering window.
const NEIGHBOURS: usize = 512;
/// A pause of arrivals of so many seconds, in which more than so many packets in a row were lost, is an
/// outage and not congestion: a full queue drops some packets and still delivers others. Handovers of
/// satellites take 0.1 to 0.2 s.
const OUTAGES: [(f64, u64); 2] = [(0.25, 3), (0.06, 12)];
/// A delivered rate above the newest capacity by this factor shows a larger one. Without a margin the noise of
/// both shortens the queue of a call among others of its kind: 3 instead of 6 of 6 seeds pass case 5.8 of RFC
/// 8867.
const RECOVERED: f64 = 1.25;
/// Age of a capacity that is the present one, in seconds.
const RECENT: f64 = 0.25;
/// Time after a packet out of order in which delays may be jitter of single packets, in seconds.
const IN_ORDER: f64 = 1.0;
/// Differences of arrival times of reports (RFC 8888 has units of 1/1,024 s), in seconds.
const ROUNDING: f64 = 0.002;
/// Age of a sample of the round-trip time that says nothing about the present queue. With
/// transport-wide feedback, samples are those of sender reports.
const LIMITED: Duration = Duration::from_millis(300);
/// Time for which the delay of a longer route is constant, and least difference of routes, in seconds.
const CONSTANT: f64 = 3.0;
const MIN_ROUTE: f64 = 0.01;
/// Above this fraction of losses, none counts as delivered.
const HEAVY: f64 = 0.12;
/// Weight of a packet in the mean size.
const SIZE_GAIN: f64 = 1.0 / 32.0;

#[cfg(test)]
mod tests;
