//! `NewReno`: fast recovery that continues after partial acknowledgements.

use tidegate_core::units::{Time, nanos};

use super::{Ack, AgentCx, Cut, Push, Sender};

impl Sender {
    pub(super) fn on_ack_newreno(&mut self, cx: &mut AgentCx<'_>, ack: &Ack) {
        if ack.next > self.seq.last {
            if ack.next >= self.seq.recover || self.last_cut != Cut::DupAcks {
                self.end_recovery(ack);
                self.first_partial = false;
                self.on_new_ack(cx, ack);
            } else {
                self.on_partial_ack(cx, ack);
            }
        } else if self.is_duplicate(ack) {
            self.on_dup_ack(cx);
            let inflating = self.dup_acks > self.config.dup_acks && self.last_cut == Cut::DupAcks;
            if self.config.newreno.changes
                && inflating
                && self.dup_acks % 2 == 1
                && self.seq.next < self.source.end()
            {
                self.output(cx, self.seq.next);
                self.seq.next += 1;
            }
        }
        if self.dup_acks == 0 {
            self.send_much(cx, Push::Held, self.config.max_burst);
        } else if self.dup_acks >= self.config.dup_acks && !self.config.newreno.changes {
            self.send_much(cx, Push::Held, RECOVERY_BURST);
        }
    }

    fn end_recovery(&mut self, ack: &Ack) {
        if self.dup_window == 0 {
            return;
        }
        self.dup_window = 0;
        if self.last_cut == Cut::DupAcks {
            self.last_cut = Cut::Exited;
        }
        if self.config.newreno.exit_fix {
            let out = self.seq.sent_end - ack.next + 1;
            self.cwnd = f64::from(out.min(self.ssthresh));
        }
    }

    /// Handles a partial acknowledgement: another segment of the same window is lost, and is
    /// retransmitted immediately.
    fn on_partial_ack(&mut self, cx: &mut AgentCx<'_>, ack: &Ack) {
        if !self.config.newreno.impatient || !self.first_partial {
            self.first_partial = true;
            self.set_timer(cx.now);
        }
        if self.config.newreno.deflate {
            self.deflate(ack.next - self.seq.last);
        } else {
            self.dup_window = 0;
        }
        self.seq.last = ack.next;
        self.seq.una = ack.next;
        self.seq.next = self.seq.next.max(ack.next);
        self.source.on_acked(self.seq.una);
        if let Some((seq, _)) = self.timed
            && seq < ack.next
        {
            self.timed = None;
            self.rto.end_back_off();
        }
        self.output(cx, self.seq.una);
    }

    /// Deflates the window by `acked` segments, minus one.
    fn deflate(&mut self, acked: u32) {
        if self.dup_window > acked {
            self.dup_window -= acked - 1;
        } else {
            self.cwnd = (self.cwnd - f64::from(acked - self.dup_window)).max(1.0);
            // A value above zero indicates recovery.
            self.dup_window = 1;
        }
        self.cwnd = self.cwnd.max(1.0);
    }

    /// Measures the spacing of the first three acknowledgements. It yields the rate of the
    /// bottleneck and so a threshold (`newreno_changes_`) of at least two segments.
    pub(super) fn observe_spacing(&mut self, now: Time) {
        self.hoe.acks = self.hoe.acks.saturating_add(1);
        match self.hoe.acks {
            1 => self.hoe.base_rtt = nanos(now.since(self.hoe.first_sent)),
            2 => self.hoe.second_ack = now,
            3 if self.config.newreno.changes => {
                let gap = nanos(now.since(self.hoe.second_ack)).max(1);
                let estimate = (self.hoe.base_rtt / gap).max(2);
                self.ssthresh = estimate.min(u64::from(self.ssthresh)) as u32;
            }
            _ => {}
        }
    }
}

/// State of Hoe's changes (`newreno_changes_`).
#[derive(Clone, Debug, Default)]
pub(super) struct Hoe {
    pub(super) first_sent: Time,
    acks: u32,
    base_rtt: u64,
    second_ack: Time,
}

/// Maximum number of segments per acknowledgement during recovery.
const RECOVERY_BURST: u32 = 2;
