//! Processing of acknowledgements.

use core::time::Duration;

use tidegate_core::units::Time;

use super::congestion::{Acked, Congestion as _, Phase, Signal};
use super::prr::Reduction;
use super::{Detection, Life, Sender, Undo};
use crate::packet_agent::{Ack, AgentCx};

/// Effects of an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    acked: u32,
    delivered: u32,
    /// Send times of the acknowledged segments that were sent only once: the earliest and the
    /// latest.
    oldest: Option<Time>,
    newest: Option<Time>,
}

impl Sender {
    pub(super) fn on_ack(&mut self, cx: &mut AgentCx<'_>, ack: &Ack) {
        // Such segments were never sent, so the acknowledgement is invalid.
        if ack.next > self.board.next() {
            return;
        }
        self.counts.common.acks += 1;
        let prior_in_flight = self.board.in_flight();
        // Segments outstanding before the losses that this acknowledgement indicates first (RFC
        // 9937, RecoverFS).
        let out = self.board.outstanding() - self.board.sacked();
        let news = self.take(cx.now, ack);
        if self.life == Life::Opening {
            self.established(news);
        }
        let rtt = self.sample_rtt(cx.now, ack, &news);
        if news.acked > 0 {
            self.source.on_acked(self.board.una());
            self.rtt.forget_backoff();
        }
        let rate = self.sampler.sample(cx.now, self.rtt.min());
        if rate.per_second().is_some() {
            self.last_rate = rate;
        }
        self.check_undo(cx.now, ack);
        self.check_probe(cx.now, ack);
        let lost = self.detect(cx.now);
        let marked = self.count_marks(ack);
        self.change_phase(cx.now, ack, out);
        let acked = Acked {
            now: cx.now,
            phase: self.recovery.phase,
            una: self.board.una(),
            next: self.board.next(),
            acked: news.acked,
            delivered: news.delivered,
            marked,
            lost,
            prior_in_flight,
            in_flight: self.board.in_flight(),
            rtt,
            delayed: prior_in_flight == 1,
            srtt: self.rtt.smoothed(),
            total: self.sampler.delivered(),
            rate,
            window_limited: self.window_limited(),
        };
        self.adjust_window(cx, &acked);
        if news.acked > 0 {
            self.arm(cx.now);
        }
        self.transmit(cx);
    }

    /// Whether the response to marks is proportional, which requires counts from the receiver.
    pub(super) fn is_scalable(&self) -> bool {
        self.config.ecn && self.algorithm.is_scalable()
    }

    /// Number of new marks that the receiver has counted. Counts of reordered acknowledgements are
    /// older than the known value and are ignored (RFC 9768 section 3.2.2.5.2).
    fn count_marks(&mut self, ack: &Ack) -> u32 {
        let more = ack.marks.wrapping_sub(self.ecn.marks);
        if !self.is_scalable() || more > u16::MAX / 2 {
            return 0;
        }
        self.ecn.marks = ack.marks;
        self.counts.recovery.marked += u64::from(more);
        u32::from(more)
    }

    /// Marks the delivered segments.
    fn take(&mut self, now: Time, ack: &Ack) -> News {
        let mut news = News::default();
        let (rack, duplicates, sampler, undo) = (
            &mut self.rack,
            &mut self.duplicates,
            &mut self.sampler,
            &mut self.recovery.undo,
        );
        let min_rtt = self.rtt.min();
        news.acked = self.board.acknowledge(ack, |delivery| {
            news.delivered += 1;
            let sent = delivery.record.stamp.sent;
            if !delivery.record.again {
                news.oldest = Some(news.oldest.map_or(sent, |oldest| oldest.min(sent)));
                news.newest = Some(news.newest.map_or(sent, |newest| newest.max(sent)));
            }
            sampler.deliver(&delivery.record.stamp);
            rack.deliver(now, &delivery, min_rtt, ack.echo);
            if delivery.out_of_order {
                duplicates.deliver(delivery.seq);
                // The echoed time stamp will belong to another segment.
                undo.take_if(|undo| undo.head == delivery.seq);
            }
        });
        news
    }

    fn established(&mut self, news: News) {
        if news.acked > 0 {
            self.life = Life::Open;
            self.recovery.phase = Phase::Open;
            // RFC 5681 section 3.1: after a lost SYN the initial window is one segment. Linux
            // tolerates one loss.
            let initial = match self.counts.common.repeated {
                0 | 1 => self.initial_window(),
                _ => 1,
            };
            self.window.set(initial);
        }
    }

    /// Adds a sample. Returns the round-trip time of the newest segment, if it is known.
    fn sample_rtt(&mut self, now: Time, ack: &Ack, news: &News) -> Option<Duration> {
        let (longest, newest) = match (news.oldest, news.newest) {
            (Some(oldest), Some(newest)) => (now.since(oldest), Some(now.since(newest))),
            // For a retransmitted segment, the echo identifies the copy that arrived.
            _ if news.acked > 0 => (now.since(ack.echo), None),
            _ => return None,
        };
        let reach = (self.board.una(), self.board.next());
        let shortest = newest.unwrap_or(longest);
        self.rtt.sample(now, longest, shortest, reach);
        newest
    }

    /// Detects losses. Returns the number of new ones.
    pub(super) fn detect(&mut self, now: Time) -> u32 {
        let before = self.board.lost();
        match self.config.detection {
            Detection::RackTlp => {
                let repairing = matches!(self.recovery.phase, Phase::Recovery | Phase::Loss);
                let again = self.rack.detect(now, &mut self.board, &self.rtt, repairing);
                self.timers.late = again.unwrap_or(Time::FAR);
            }
            Detection::Duplicates => self.duplicates.detect(&mut self.board),
        }
        let lost = self.board.lost() - before;
        self.counts.recovery.lost += u64::from(lost);
        lost
    }

    /// The first segment marked as lost has arrived. Undoes the reduction if the copy left before
    /// the retransmission.
    fn check_undo(&mut self, now: Time, ack: &Ack) {
        let una = self.board.una();
        let Some(undo) = self.recovery.undo.take_if(|undo| undo.head < una) else {
            return;
        };
        if !self.config.undo || undo.again.is_some_and(|at| ack.echo >= at) {
            return;
        }
        self.counts.recovery.undone += 1;
        self.board.undo_losses();
        self.rack.on_spurious_loss(una, self.board.next());
        self.window.set(self.window.cwnd().max(undo.cwnd));
        self.window.ssthresh = self.window.ssthresh.max(undo.ssthresh);
        self.algorithm.on_undo(&mut self.window);
        self.recovery.phase = Phase::Open;
        self.arm(now);
    }

    /// A tail loss probe is acknowledged. If the probe filled the hole, a segment had been lost,
    /// which no other signal indicates (RFC 8985 section 7.4).
    fn check_probe(&mut self, now: Time, ack: &Ack) {
        let una = self.board.una();
        let Some(probe) = self.probe.take_if(|probe| probe.end <= una) else {
            return;
        };
        let repaired = probe.again.is_some_and(|at| ack.echo >= at);
        if repaired && self.recovery.phase == Phase::Open {
            let ssthresh = self
                .algorithm
                .on_congestion(now, Signal::Loss, &self.window);
            self.counts.common.fast_retransmits += 1;
            if !self.algorithm.owns_window() {
                self.window.ssthresh = ssthresh;
                self.window.set(ssthresh.min(self.window.cwnd()));
                self.usage.on_window(now);
            }
        }
    }

    fn change_phase(&mut self, now: Time, ack: &Ack, out: u32) {
        if self.recovery.phase != Phase::Open && self.board.una() >= self.recovery.end {
            self.end_phase(now);
        }
        if self.board.lost() > 0 && matches!(self.recovery.phase, Phase::Open | Phase::Reduced) {
            self.enter_recovery(now, out);
        } else if ack.ece
            && self.config.ecn
            && self.recovery.phase == Phase::Open
            && !self.is_scalable()
        {
            self.counts.common.ecn_responses += 1;
            self.ecn.cwr = true;
            self.reduce(now, Signal::Mark, out);
            self.recovery.phase = Phase::Reduced;
        }
    }

    fn end_phase(&mut self, now: Time) {
        if matches!(self.recovery.phase, Phase::Reduced | Phase::Recovery)
            && !self.algorithm.owns_window()
        {
            self.window.set(self.window.ssthresh);
            self.usage.on_window(now);
        }
        if self.recovery.phase == Phase::Recovery {
            self.rack.on_recovered();
        }
        self.recovery.phase = Phase::Open;
    }

    pub(super) fn enter_recovery(&mut self, now: Time, out: u32) {
        self.counts.common.fast_retransmits += 1;
        if self.recovery.phase == Phase::Open {
            let head = self.board.first_lost().unwrap_or(self.board.una());
            self.remember(head);
            self.reduce(now, Signal::Loss, out);
        }
        self.recovery.phase = Phase::Recovery;
        self.recovery.end = self.board.next();
        self.probe = None;
        self.timers.probe = Time::FAR;
        self.timers.timeout = now + self.rtt.timeout();
    }

    fn reduce(&mut self, now: Time, signal: Signal, out: u32) {
        self.window.ssthresh = self.algorithm.on_congestion(now, signal, &self.window);
        self.recovery.reduction = Reduction::begin(out);
        self.recovery.end = self.board.next();
    }

    /// Saves the state that is needed to undo the next reduction.
    pub(super) fn remember(&mut self, head: u32) {
        self.recovery.undo = Some(Undo {
            cwnd: self.window.cwnd(),
            ssthresh: self.window.ssthresh,
            head,
            again: None,
        });
    }

    fn adjust_window(&mut self, cx: &mut AgentCx<'_>, acked: &Acked) {
        if self.is_scalable() && self.algorithm.on_marks(acked, &mut self.window) {
            self.counts.common.ecn_responses += 1;
            self.usage.on_window(acked.now);
        }
        if self.algorithm.owns_window() {
            self.algorithm.on_ack(acked, &mut self.window, cx.rng);
            return;
        }
        match self.recovery.phase {
            Phase::Reduced | Phase::Recovery if acked.delivered > 0 => {
                let safe = acked.acked > 0 && acked.lost == 0;
                let ssthresh = self.window.ssthresh;
                let window = self.recovery.reduction.window(
                    acked.delivered,
                    acked.in_flight,
                    ssthresh,
                    safe,
                );
                self.window.set(window);
            }
            Phase::Open | Phase::Loss if acked.acked > 0 => {
                self.algorithm.on_ack(acked, &mut self.window, cx.rng);
                self.usage.on_window(acked.now);
            }
            _ => {}
        }
    }
}
