//! SACK recovery with a scoreboard and an estimate of the data in flight (pipe).

use super::reno::Verdict;
use super::scoreboard::Scoreboard;
use super::{Ack, AgentCx, Cut, Push, Sender};

impl Sender {
    pub(super) fn on_ack_sack(&mut self, cx: &mut AgentCx<'_>, ack: &Ack) {
        if self.repair.recovering {
            self.on_ack_recovering(cx, ack);
            self.send_much(cx, Push::Held, self.config.max_burst);
            return;
        }
        if ack.next > self.seq.last {
            self.on_new_ack(cx, ack);
            self.repair.after_timeout = false;
            self.repair.scoreboard.clear();
        } else if self.is_duplicate(ack)
            && !self.repair.after_timeout
            && self.repair.scoreboard.update(self.seq.una, ack)
        {
            self.on_dup_ack_sack(cx);
        }
        if self.dup_acks == 0 {
            self.send_much(cx, Push::Held, self.config.max_burst);
        }
    }

    fn on_dup_ack_sack(&mut self, cx: &mut AgentCx<'_>) {
        self.dup_acks += 1;
        if self.dup_acks == self.config.dup_acks {
            self.begin_recovery(cx);
        } else if self.dup_acks < self.config.dup_acks && self.config.limited_transmit {
            self.send_one(cx);
        }
    }

    fn begin_recovery(&mut self, cx: &mut AgentCx<'_>) {
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
        // Each duplicate indicates that a packet has left the pipe.
        let out = self.seq.sent_end - self.seq.una;
        self.repair.pipe = i64::from(out) - i64::from(self.config.dup_acks);
        self.repair.recovering = true;
        self.repair.scoreboard.repeated(self.seq.una);
        self.restart_timer(cx.now);
        self.output(cx, self.seq.last);
    }

    fn on_ack_recovering(&mut self, cx: &mut AgentCx<'_>, ack: &Ack) {
        self.repair.pipe -= 1;
        if ack.next >= self.seq.recover {
            self.seq.recover = 1;
            self.repair.recovering = false;
            self.repair.after_timeout = false;
            self.advance(cx.now, ack);
            self.repair.scoreboard.clear();
        } else if ack.next > self.seq.una {
            // Both the original and its retransmission have left the pipe.
            self.repair.pipe -= 1;
            self.seq.una = ack.next;
            self.source.on_acked(self.seq.una);
            self.repair.scoreboard.update(self.seq.una, ack);
            self.set_timer(cx.now);
            self.rto.end_back_off();
        } else if self.repair.scoreboard.update(self.seq.una, ack) && self.dup_acks > 0 {
            self.dup_acks += 1;
        }
    }

    /// In recovery, sends while the pipe has room: holes first, then new data.
    pub(super) fn send_much_sack(&mut self, cx: &mut AgentCx<'_>, push: Push, burst: u32) {
        let mut window = self.window();
        let mut sent = 0;
        while self.has_room(window) && self.seq.last < self.source.end() {
            if self.wait(cx, push) {
                return;
            }
            let allowed = self.seq.una + self.config.window;
            let seq = match self.repair.scoreboard.next_gap() {
                Some(gap) if self.seq.recover > 1 && gap < allowed => {
                    self.repair.scoreboard.repeated(gap);
                    window = self.window();
                    gap
                }
                Some(_) => return,
                None => {
                    let limit = if self.repair.recovering {
                        allowed
                    } else {
                        self.seq.una + window
                    };
                    if self.seq.next >= limit.min(self.source.end()) {
                        return;
                    }
                    self.seq.next
                }
            };
            self.output(cx, seq);
            self.seq.next = self.seq.next.max(seq + 1);
            self.repair.pipe += 1;
            sent += 1;
            if sent == burst {
                return;
            }
        }
    }

    fn has_room(&self, window: u32) -> bool {
        if self.repair.recovering {
            self.repair.pipe < i64::from(self.cwnd as u32)
        } else {
            self.seq.next < self.seq.last + window
        }
    }
}

/// State of SACK recovery.
#[derive(Clone, Debug, Default)]
pub(super) struct Repair {
    recovering: bool,
    /// No new data has been acknowledged since the timeout, so duplicates are ignored.
    after_timeout: bool,
    /// Estimate of the segments in flight (`pipe_`). Negative if acknowledgements of segments from
    /// before a timeout arrive late.
    pipe: i64,
    scoreboard: Scoreboard,
}

impl Repair {
    pub(super) fn on_timeout(&mut self) {
        self.recovering = false;
        self.after_timeout = true;
        self.scoreboard.clear();
    }

    /// Segments in flight, during recovery.
    pub(super) fn pipe(&self) -> Option<u32> {
        self.recovering.then(|| self.pipe.max(0) as u32)
    }
}
