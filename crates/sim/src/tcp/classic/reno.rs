//! Reno: fast retransmit and fast recovery.

use super::{Ack, AgentCx, Cut, Flavour, Push, Sender};

impl Sender {
    pub(super) fn on_ack_reno(&mut self, cx: &mut AgentCx<'_>, ack: &Ack) {
        if ack.next > self.seq.last {
            if self.last_cut == Cut::DupAcks {
                self.last_cut = Cut::Exited;
            }
            self.dup_window = 0;
            self.on_new_ack(cx, ack);
        } else if self.is_duplicate(ack) {
            self.on_dup_ack(cx);
        }
        if self.dup_acks == 0 || self.dup_acks >= self.config.dup_acks {
            self.send_much(cx, Push::Held, self.config.max_burst);
        }
    }

    /// Whether `ack` is a duplicate. ns-2 also counts duplicates without data left to send, and
    /// then retransmits a segment that does not exist.
    pub(super) fn is_duplicate(&self, ack: &Ack) -> bool {
        ack.next == self.seq.last && self.seq.una < self.source.end()
    }

    /// Counts a duplicate. The third one triggers a retransmission, later ones inflate the window.
    pub(super) fn on_dup_ack(&mut self, cx: &mut AgentCx<'_>) {
        self.dup_acks += 1;
        let enough = self.config.dup_acks;
        if self.dup_acks == enough {
            self.fast_retransmit(cx);
        } else if self.dup_acks > enough && self.last_cut == Cut::DupAcks {
            self.dup_window += 1;
        } else if self.dup_acks < enough && self.config.limited_transmit {
            self.send_one(cx);
        }
    }

    fn fast_retransmit(&mut self, cx: &mut AgentCx<'_>) {
        match self.verdict() {
            Verdict::Ignore => return,
            Verdict::Repeat => {}
            Verdict::Reduce => {
                self.seq.recover = self.seq.sent_end;
                self.halve();
                self.counters.fast_retransmits += 1;
            }
        }
        self.last_cut = Cut::DupAcks;
        self.restart_timer(cx.now);
        self.output(cx, self.seq.una);
        self.dup_window = self.config.dup_acks;
    }

    /// Response to a loss that duplicate acknowledgements indicate.
    pub(super) fn verdict(&self) -> Verdict {
        let fresh = self.seq.una > self.seq.recover;
        // Reno may respond to another loss in the same window. For the first data segment there is
        // no earlier reduction.
        let repeated = self.config.flavour == Flavour::Reno && self.last_cut == Cut::DupAcks;
        if fresh || repeated || self.seq.una == 1 || !(self.config.bug_fix || self.config.ecn) {
            Verdict::Reduce
        } else if self.config.ecn && self.last_cut == Cut::Ecn {
            Verdict::Repeat
        } else if self.config.bug_fix {
            Verdict::Ignore
        } else {
            Verdict::Reduce
        }
    }
}

/// See [`Sender::verdict`].
pub(super) enum Verdict {
    /// The loss belongs to a window that was already reduced.
    Ignore,
    /// Retransmit only; the window was just reduced for a mark.
    Repeat,
    /// Retransmit and reduce the window.
    Reduce,
}
