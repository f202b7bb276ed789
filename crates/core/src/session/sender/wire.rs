//! The packets of a stream on the path: history, rate control, pacing and circuit breaker.

use core::time::Duration;
use std::sync::Arc;

use super::delay_budget::{DelayBudget, FixedDelays, REPAIR};
use super::frames::HEADERS;
use crate::control::{Change, Context, Ecn, Prior, RateControl, Report, Spacing, Target};
use crate::delay_bound::PlannerConfig;
use crate::random::unit;
use crate::session::breaker::{Breaker, ReportView};
use crate::session::config::SenderConfig;
use crate::session::history::{Content, FeedbackResult, History, Stream};
use crate::session::pacer::Pacer;
use crate::session::packet_size::PacketSize;
use crate::session::receiver_reports::ReceiverReports;
use crate::trace::{BreakerCause, Event};
use crate::units::{Bytes, Rate, Time};

/// State of a stream on its path.
#[derive(Debug)]
pub(super) struct Wire {
    config: Arc<SenderConfig>,
    pub(super) peer: Peer,
    pub(super) history: History,
    pub(super) packet_size: PacketSize,
    pub(super) control: RateControl,
    pub(super) breaker: Breaker,
    /// Media rate above which the breaker would trip, headers included.
    ceiling: Option<Rate>,
    /// Outcomes since the breaker was last updated from per-packet feedback: lost and received
    /// packets.
    outcomes: [u32; 2],
    /// Path sequence number of the newest arrival.
    newest_arrival: u64,
    /// Time of that update.
    breaker_updated: Time,
    /// Outcomes of a peer without per-packet feedback, and bounds of the rate to it.
    pub(super) reports: ReceiverReports,
    /// Share of parity packets among media and parity packets, in 0..1.
    parity: f64,
    pub(super) pacer: Pacer,
    /// Departure time of the first data packet since the begin or the restart of the stream.
    pub(super) first_media: Option<Time>,
    pub(super) last_media: Time,
    last_sample: Time,
}

/// Kind of feedback that the peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Unknown,
    /// No feedback about media in the time in which a peer with per-packet feedback answers.
    Silent,
    PerPacket {
        /// With ECN fields (RFC 8888).
        ecn: bool,
    },
    ReceiverReports,
}

/// A data packet that leaves.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) stream: Stream,
    /// Sequence number in its stream.
    pub(super) seq: u64,
    pub(super) content: Option<Content>,
}

/// When data that is queued now arrives, and what the path permits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    pub(super) now: Time,
    /// Permitted media rate.
    pub(super) media: Rate,
    /// Rate at which packets leave.
    pub(super) pace: Rate,
    /// Expected time from the departure of a packet to its arrival.
    pub(super) travel: Duration,
    /// Whether the delay of the path is known.
    pub(super) is_measured: bool,
    pacer: Pacer,
}

impl Outlook {
    /// Arrival of the last of `ahead` bytes that leave from now on.
    pub(super) fn arrival(&self, ahead: Bytes) -> Time {
        let leave = self
            .pacer
            .time_to_send(self.now, Bytes::ZERO, ahead, self.pace);
        self.now + leave + self.travel
    }

    /// Bytes that arrive by `deadline` if they are queued at `from`, behind `ahead`.
    pub(super) fn room(&self, from: Time, ahead: Bytes, deadline: Time) -> Bytes {
        let start = self.pacer.time_to_send(from, ahead, Bytes::ZERO, self.pace);
        self.pace * deadline.since(from + start + self.travel)
    }
}

impl Peer {
    pub(super) fn is_per_packet(self) -> bool {
        matches!(self, Self::PerPacket { .. })
    }
}

impl Wire {
    pub(super) fn new(
        config: &Arc<SenderConfig>,
        control: RateControl,
        planner: Option<PlannerConfig>,
    ) -> Self {
        Self {
            config: Arc::clone(config),
            peer: Peer::Unknown,
            history: History::new(config.log),
            packet_size: PacketSize::new(config.packet_size),
            control: bounded(control, planner, config).with_statistics(),
            breaker: Breaker::new(SLOW_REPORTS),
            ceiling: None,
            outcomes: [0; 2],
            newest_arrival: 0,
            breaker_updated: Time::ZERO,
            reports: ReceiverReports::new(),
            parity: 0.0,
            pacer: Pacer::default(),
            first_media: None,
            last_media: Time::ZERO,
            last_sample: Time::ZERO,
        }
    }

    /// Whether there is a round-trip sample.
    pub(super) fn has_rtt(&self) -> bool {
        self.control.path().srtt().is_some()
    }

    /// Smoothed round-trip time; [`GUESSED_RTT`] before the first sample.
    pub(super) fn srtt(&self) -> Duration {
        self.control.path().srtt().unwrap_or(GUESSED_RTT)
    }

    /// One-way propagation delay, estimated as half of the minimum round-trip time.
    pub(super) fn one_way(&self) -> Duration {
        self.control.path().min_rtt().unwrap_or(GUESSED_RTT) / 2
    }

    /// Detection of a loss, its request, and the retransmission.
    pub(super) fn repair_time(&self) -> Duration {
        self.srtt() + REPAIR
    }

    /// Smallest reordering window: a quarter of the minimum round-trip time (RFC 8985 section 6.2),
    /// between 8 and 25 ms.
    pub(super) fn least_reordering(&self) -> Duration {
        (self.one_way() / 2).clamp(Duration::from_millis(8), Duration::from_millis(25))
    }

    /// Target rates of the controller. Without per-packet feedback they are limited until the next
    /// receiver report, and at least the minimum rate.
    pub(super) fn target(&self) -> Target {
        let target = *self.control.target();
        let target = match self.peer {
            Peer::PerPacket { .. } => {
                let target = self.under_ceiling(target);
                let media = Rate::from_f64(target.media.as_f64() * (1.0 - self.parity));
                return target.media(media.max(self.floor(&target)));
            }
            Peer::Unknown => target,
            Peer::Silent => self.within_bounds(target),
            Peer::ReceiverReports => self.under_ceiling(self.within_bounds(target)),
        };
        // Until the kind of feedback is known, silence of the peer is not evidence about the path.
        let floor = self.config.rates.0;
        if self.has_rtt() && target.media > floor {
            target
        } else {
            Target::of(floor.scale(2, 1)).media(floor)
        }
    }

    /// Media rate that a path with estimates carries, if its target is not below the floor of the encoder.
    fn floor(&self, target: &Target) -> Rate {
        let floor = self.config.rates.0;
        if self.control.path().is_measured() && target.send >= floor {
            floor
        } else {
            Rate::ZERO
        }
    }

    /// Limits the media rate so that the breaker does not trip: the losses of a past outage count
    /// for three reports, and a longer round-trip time lowers the permitted rate.
    fn under_ceiling(&self, target: Target) -> Target {
        let Some(ceiling) = self.ceiling.filter(|_| self.config.circuit_breaker) else {
            return target;
        };
        target.media(target.media.min(self.media_of(ceiling)))
    }

    /// Moves a target into the bounds of the rate on the wire.
    fn within_bounds(&self, target: Target) -> Target {
        let bounds = self.reports.bounds();
        let wire = target.send.max(bounds.least).min(bounds.most);
        Target::of(wire).media(self.media_of(wire))
    }

    /// Media rate without headers at a rate on the wire.
    fn media_of(&self, wire: Rate) -> Rate {
        let packet = self.packet_size.current().get();
        wire.scale(packet - HEADERS, packet)
    }

    fn pace(&self, target: &Target) -> Rate {
        Rate::from_f64(target.data().as_f64() * target.burst * self.config.pace)
    }

    /// `is_open`: packets are sent at present.
    pub(super) fn outlook(&self, now: Time, is_open: bool) -> Outlook {
        let target = self.target();
        // While nothing is sent, the predicted queueing delay is unknown.
        let queueing = if is_open {
            self.queueing().min(self.control.queueing_delay_at(now))
        } else {
            self.queueing()
        };
        Outlook {
            now,
            media: target.media,
            pace: self.pace(&target),
            travel: queueing + self.one_way(),
            is_measured: self.has_rtt(),
            pacer: self.pacer,
        }
    }

    /// Self-induced queueing delay of a packet that leaves now. Zero if all sent packets have
    /// arrived, whatever their delay was: otherwise a sender that pauses because of a long queue
    /// would never learn that it has drained.
    pub(super) fn queueing(&self) -> Duration {
        if self.history.in_flight() == Bytes::ZERO {
            Duration::ZERO
        } else {
            self.control.queueing_delay()
        }
    }

    /// Updates the plan of the delay bound before a frame is ordered; `None` without a bound.
    /// `backlog` is queued here, `encoder` is its delay, and `parity` permits parity packets.
    pub(super) fn replan(
        &mut self,
        cx: &mut Context<'_>,
        backlog: Bytes,
        encoder: Duration,
        parity: bool,
    ) -> Option<DelayBudget> {
        let bound = self.config.delay_bound?;
        let delays = FixedDelays {
            one_way: self.one_way(),
            standing: self.control.standing_delay(cx.now),
            encoder,
            retransmission: self.repair_time(),
        };
        let budget = delays.divide(bound, parity && self.has_rtt());
        let limit = self.control.bound_mut()?;
        limit.set_backlog(backlog);
        limit.set_budget(budget.queues, budget.repairs);
        self.control.replan(cx);
        Some(budget)
    }

    /// Whether a stream without a frame in time needs a probe: it has not begun, or nothing was
    /// sent for [`PROBE_PAUSE`] and a round trip, and only arrivals can show that the path has improved.
    pub(super) fn is_idle(&self, now: Time) -> bool {
        self.first_media.is_none() || now >= self.last_media + self.longest_pause()
    }

    fn longest_pause(&self) -> Duration {
        PROBE_PAUSE + self.one_way() * 2
    }

    /// Departure of the next packet. Whatever the rate is, a sender that waits for no report sends one after
    /// the longest pause.
    pub(super) fn departs(&self) -> Time {
        let paced = self.pacer.next();
        if self.peer.is_per_packet() && self.history.in_flight() == Bytes::ZERO {
            paced.min(self.last_media + self.longest_pause())
        } else {
            paced
        }
    }

    /// ECN field of the next data packet.
    pub(super) fn ecn(&self) -> Ecn {
        // A peer that does not report CE marks prevents a reaction to them (RFC 6679 section
        // 7.2.1).
        let reports_ecn = matches!(self.peer, Peer::Unknown | Peer::PerPacket { ecn: true });
        if self.config.ecn && reports_ecn {
            Ecn::Ect0
        } else {
            Ecn::NotEct
        }
    }

    /// A data packet of `size` leaves. `app_limited`: nothing more is queued. Returns its number on
    /// the path.
    pub(super) fn on_sent(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Departure,
        size: Bytes,
        app_limited: bool,
    ) -> u64 {
        let (stream, seq, content) = (packet.stream, packet.seq, packet.content);
        let (ecn, history) = (self.ecn(), &mut self.history);
        let mut sent = history.on_sent(cx.now, stream, seq, size, ecn, content);
        sent.app_limited = app_limited;
        self.control.on_sent(cx, &sent);
        let target = self.target();
        let mut pace = self.pace(&target);
        if target.spacing == Spacing::Dithered {
            pace = Rate::from_f64(pace.as_f64() / (0.5 + unit(cx.rng)));
        }
        self.pacer.on_sent(cx.now, size, pace);
        self.breaker.on_sent(cx.now, size);
        self.first_media.get_or_insert(cx.now);
        self.last_media = cx.now;
        sent.seq
    }

    /// New packet outcomes, for the controller and the path statistics.
    pub(super) fn on_outcomes(&mut self, cx: &mut Context<'_>, feedback: &FeedbackResult) {
        // A full queue with a limit in bytes has room for small packets only.
        let rtt = feedback.rtt.unwrap_or_default().max(self.srtt());
        let is_congested = rtt.saturating_sub(self.one_way() * 2) >= CONGESTED;
        for packet in &feedback.outcomes {
            let received = packet.outcome.is_received();
            self.outcomes[usize::from(received)] += 1;
            if received {
                self.newest_arrival = self.newest_arrival.max(packet.seq);
            }
            // Receiver reports count losses, and do not tell which packets are lost.
            if self.peer.is_per_packet() && (received || !is_congested) {
                self.packet_size.on_outcome(packet.size, received);
            }
        }
        for packet in &feedback.spurious {
            self.packet_size.on_outcome(packet.size, true);
        }
        let mut report = Report::new(&feedback.outcomes).spurious(&feedback.spurious);
        report.rtt = feedback.rtt;
        //= rfc8083-7-ecn
        self.control.on_report(cx, &report);
        let target = self.target();
        self.pacer.on_rate(cx.now, self.pace(&target));
        if cx.now.since(self.last_sample) >= SAMPLE_INTERVAL {
            self.last_sample = cx.now;
            let sample = Event::Sample {
                rtt: self.srtt(),
                queue: self.control.queueing_delay(),
                loss: self.control.path().loss(),
                loss_event_rate: self.control.summary().loss_event_rate,
                send: target.send,
                media: target.media,
                receive: self.control.path().receive_rate(),
            };
            cx.trace.record(cx.now, sample);
        }
    }

    /// Runs the timer of the controller if it is due.
    pub(super) fn on_timeout(&mut self, cx: &mut Context<'_>) {
        let due = self.control.next_timeout();
        if due.is_some_and(|(at, _)| at <= cx.now) {
            self.control.on_timeout(cx);
        }
        self.reports.on_timeout(cx.now);
    }

    /// The target may have changed: a long wait of the pacer ends.
    pub(super) fn on_rate(&mut self, now: Time) {
        let pace = self.pace(&self.target());
        self.pacer.on_rate(now, pace);
    }

    /// One report per [`FAST_REPORTS`] from the per-packet feedback. Loss counts of receiver reports
    /// need no proof of an arrival.
    //= rfc8083-5-early
    pub(super) fn take_report(&mut self, now: Time) -> Option<ReportView> {
        if now.since(self.breaker_updated) < FAST_REPORTS {
            return None;
        }
        self.breaker_updated = now;
        let [lost, received] = core::mem::take(&mut self.outcomes).map(f64::from);
        Some(ReportView {
            highest: self.newest_arrival as u32,
            // Errors of links are no reason to stop: the rate of TCP would be that of the errors.
            loss: self.control.path().congestion_share() * lost / (lost + received).max(1.0),
            rtt: self.srtt(),
        })
    }

    /// A report for the circuit breaker. Returns the cause if the stream must stop.
    pub(super) fn update_breaker(&mut self, now: Time, view: ReportView) -> Option<BreakerCause> {
        let cause = self.breaker.on_report(now, view);
        self.ceiling = self.breaker.ceiling(view.rtt);
        let cause = cause.filter(|_| self.config.circuit_breaker)?;
        // Reports, and a path that fell to a fraction of its rate, come too late to avoid losses of
        // a round trip at the rate before.
        let is_slow = self.peer == Peer::ReceiverReports;
        let floor = if is_slow {
            Rate::ZERO
        } else {
            self.config.rates.0
        };
        match self.breaker.reduce(floor) {
            Some(_) if is_slow => self.reports.cut(),
            Some(tenth) => self.ceiling = Some(tenth),
            None => return Some(cause),
        }
        None
    }

    /// A round-trip time without outcomes, for the controller.
    pub(super) fn report_rtt(&mut self, cx: &mut Context<'_>, rtt: Duration) {
        self.control.on_report(cx, &Report::default().rtt(rtt));
    }

    /// A block of media packets was closed, with this share of parity packets.
    pub(super) fn on_block(&mut self, share: f64) {
        self.parity += SHARE_GAIN * (share - self.parity);
    }

    /// Whether the peer reports each packet, with ECN fields (RFC 8888).
    pub(super) fn reports_packets(&self) -> bool {
        self.peer == Peer::PerPacket { ecn: true }
    }

    /// The maximum interval between two reports has changed; zero for per-packet feedback.
    pub(super) fn set_interval(&mut self, cx: &mut Context<'_>, interval: Duration) {
        self.control.on_change(cx, &Change::Reports { interval });
    }

    /// The stream continues after a pause, in which the peer may have sent no reports.
    pub(super) fn on_pause(&mut self, now: Time) {
        self.breaker.on_rtcp(now);
        if let Some(first) = self.first_media {
            let timing = (first, self.srtt());
            self.reports.on_pause(now, self.last_media, timing);
        }
    }

    /// Resets all path estimates except a new round-trip sample, without which the first packets
    /// would leave at one per second. `carried` is a rate that the same path has carried.
    pub(super) fn forget_path(
        &mut self,
        cx: &mut Context<'_>,
        rtt: Duration,
        carried: Option<Rate>,
    ) {
        let confidence = 1.0;
        let prior = carried.map(|rate| Prior {
            rate: rate.min(self.config.rates.1),
            rtt,
            confidence,
        });
        let route = Change::Path {
            packet_size: self.config.packet_size,
            prior,
        };
        self.control.on_change(cx, &route);
        self.report_rtt(cx, rtt);
        self.packet_size.restart();
        (self.outcomes, self.ceiling) = ([0; 2], None);
    }

    /// As [`forget_path`](Self::forget_path). The receiver may be another one, with another kind of
    /// feedback.
    pub(super) fn restart(&mut self, cx: &mut Context<'_>, rtt: Duration, carried: Option<Rate>) {
        self.forget_path(cx, rtt, carried);
        self.history.forget_reporters();
        self.reports.restart();
        self.breaker.set_interval(SLOW_REPORTS);
        (self.peer, self.first_media) = (Peer::Unknown, None);
        self.on_rate(cx.now);
    }
}

/// Adds the delay bound if the configuration has both a bound and a planner.
fn bounded(
    control: RateControl,
    planner: Option<PlannerConfig>,
    config: &SenderConfig,
) -> RateControl {
    let (Some(planner), Some(bound)) = (planner, config.delay_bound) else {
        return control;
    };
    let planner = PlannerConfig {
        floor: config.rates.0,
        ceiling: config.rates.1,
        frame_interval: config.frame_rate.interval(),
        packet_size: config.packet_size,
        ..planner
    };
    control.with_bound(planner, bound)
}

/// Maximum pause of a stream that has no frame in time, beyond a round trip: a minimal key frame of two
/// packets is 40 kb/s.
const PROBE_PAUSE: Duration = Duration::from_millis(500);
/// Round-trip time assumed before the first sample.
const GUESSED_RTT: Duration = Duration::from_millis(100);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Report interval of a Tidegate receiver.
pub(super) const FAST_REPORTS: Duration = Duration::from_secs(1);
/// RFC 3550 section 6.2: reporting interval of a peer that is not known to report faster.
const SLOW_REPORTS: Duration = Duration::from_secs(5);
/// Weight of a block in the mean share of parity packets.
const SHARE_GAIN: f64 = 0.125;
/// Round-trip time above the smallest one from which on a loss is congestion: more than most jitter,
/// and less than the queue that a TCP transfer fills on a long path.
pub(super) const CONGESTED: Duration = Duration::from_millis(50);
