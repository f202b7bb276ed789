//! TCP senders that model those of ns-2.35: `Agent/TCP/Reno`, `/Newreno` and `/Sack1`.
//!
//! Names in parentheses are the variables of ns-2. `docs/tcp.md` describes the differences from
//! ns-2 and the validation.

use core::time::Duration;

use tidegate_core::control::Ecn;
use tidegate_core::random::unit;
use tidegate_core::units::{Bytes, Time, nanos};

use super::source::Sizes;
use super::{Counters, InitialWindow, Rto, Source, SourceConfig, State, Written};
use crate::packet_agent::{Ack, Agent, AgentCx, Arrival, Body, Segment, fetch};

mod config;
mod newreno;
mod reno;
mod sack;
mod scoreboard;

#[cfg(test)]
mod tests;

pub use config::{Config, Flavour, NewReno};
use sack::Repair;

/// A TCP sender as in ns-2.35.
#[derive(Clone, Debug)]
pub struct Sender {
    config: Config,
    source: Source,
    phase: Phase,
    rto: Rto,
    initial_window: InitialWindow,
    cwnd: f64,
    ssthresh: u32,
    /// Window inflation by duplicate acknowledgements.
    dup_window: u32,
    dup_acks: u32,
    seq: Sequence,
    last_cut: Cut,
    /// The segment whose round trip is measured, and its send time.
    timed: Option<(u32, Time)>,
    retransmit_at: Time,
    /// End of the random delay.
    send_at: Time,
    /// The earliest of all timers.
    due: Time,
    ecn: EcnState,
    hoe: newreno::Hoe,
    first_partial: bool,
    repair: Repair,
    counters: Counters,
}

/// Segment numbers, with their names in ns-2.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    /// First unacknowledged segment (`highest_ack_` plus one).
    una: u32,
    /// Same as `una`, but constant during recovery with SACK (`last_ack_` plus one).
    last: u32,
    /// `una` before the latest change.
    before: u32,
    /// Next segment to send; falls back after a timeout (`t_seqno_`).
    next: u32,
    /// One after the highest segment sent (`maxseq_` plus one).
    sent_end: u32,
    /// One after the highest segment sent at the last window reduction (`recover_` plus one).
    recover: u32,
}

/// State of ECN.
#[derive(Clone, Copy, Debug, Default)]
struct EcnState {
    /// The network and the peer support ECN.
    agreed: bool,
    /// Marks continue at a window of one segment, so the retransmission timer limits the rate.
    backoff: bool,
    /// The next segment carries CWR.
    cwr: bool,
}

impl Sender {
    /// A sender that opens its connection at the start time of the source.
    pub fn new(config: &Config, source: &SourceConfig) -> Self {
        let sizes = Sizes {
            packet: config.packet_size,
            header: config.header_size,
            syn: config.syn.then_some(config.header_size),
        };
        Self {
            config: *config,
            source: Source::new(source, sizes),
            phase: Phase::Waiting,
            rto: Rto::new(&config.rto, Duration::ZERO),
            initial_window: config.initial_window,
            cwnd: 1.0,
            ssthresh: config.initial_ssthresh.unwrap_or(config.window),
            dup_window: 0,
            dup_acks: 0,
            seq: Sequence {
                una: 0,
                last: 0,
                before: 0,
                next: 0,
                sent_end: 0,
                recover: 1,
            },
            last_cut: Cut::None,
            timed: None,
            retransmit_at: Time::FAR,
            send_at: Time::FAR,
            due: source.start,
            ecn: EcnState::default(),
            hoe: newreno::Hoe::default(),
            first_partial: false,
            repair: Repair::default(),
            counters: Counters::default(),
        }
    }

    /// Current state.
    pub fn state(&self) -> State {
        State {
            cwnd: self.cwnd,
            ssthresh: f64::from(self.ssthresh),
            rto: self.rto.timeout(),
            srtt: self.rto.srtt(),
            in_flight: match self.repair.pipe() {
                Some(pipe) => pipe,
                None => self.seq.sent_end - self.seq.una,
            },
            recovering: self.dup_window > 0 || self.repair.pipe().is_some(),
        }
    }

    /// Counters.
    pub fn counters(&self) -> Counters {
        Counters {
            acked: self.seq.una,
            ..self.counters
        }
    }

    /// Expiry of the retransmission timer; none while no data is outstanding.
    pub fn next_timeout(&self) -> Option<Time> {
        let runs = self.seq.una < self.seq.sent_end && self.retransmit_at < Time::FAR;
        runs.then_some(self.retransmit_at)
    }

    /// Data source.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Accepts up to `bytes` from an application, and sends what the window allows. Accepts none
    /// unless the source is a stream that has started and not stopped.
    pub fn write(&mut self, cx: &mut AgentCx<'_>, bytes: u64) -> Written {
        let written = self.source.write(bytes);
        if written.accepted > 0 {
            self.send_much(cx, Push::Held, self.config.max_burst);
            self.note_due();
        }
        written
    }

    fn open(&mut self, cx: &mut AgentCx<'_>) {
        self.phase = Phase::Open;
        self.source.open();
        let phase = self.config.rto.phase.unwrap_or_else(|| {
            let tick = nanos(self.config.rto.tick) as f64;
            Duration::from_nanos((unit(cx.rng) * tick) as u64)
        });
        self.rto = Rto::new(&self.config.rto, phase);
        if !self.config.syn {
            self.cwnd = self.first_window();
        }
        self.send_much(cx, Push::Held, self.config.max_burst);
    }

    fn on_ack(&mut self, cx: &mut AgentCx<'_>, ack: &Ack) {
        // Segments that were never sent cannot have arrived.
        let beyond = |block: &(u32, u32)| block.0 < block.1 && block.1 > self.seq.sent_end;
        if self.seq.sent_end == 0 || ack.next > self.seq.sent_end || ack.sack.iter().any(beyond) {
            return;
        }
        self.counters.acks += 1;
        if self.config.flavour == Flavour::NewReno {
            self.observe_spacing(cx.now);
        }
        // The first acknowledgement always carries ECE, because it negotiates ECN.
        let agrees = !self.ecn.agreed && self.seq.una == 0 && ack.next > 0;
        let ack = &Ack {
            ece: self.config.ecn && (ack.ece || agrees),
            ..*ack
        };
        if ack.ece {
            self.on_mark(ack.next);
        }
        match self.config.flavour {
            Flavour::Reno => self.on_ack_reno(cx, ack),
            Flavour::NewReno => self.on_ack_newreno(cx, ack),
            Flavour::Sack => self.on_ack_sack(cx, ack),
        }
    }

    /// Reduces the window in response to ECE, at most once per round trip (`ecn`).
    fn on_mark(&mut self, next: u32) {
        if next <= self.seq.recover && self.last_cut != Cut::Timeout {
            return;
        }
        self.seq.recover = self.seq.sent_end;
        self.last_cut = Cut::Ecn;
        if self.cwnd > 1.0 {
            self.ecn.backoff = false;
        } else if self.ecn.backoff {
            self.rto.back_off();
        } else {
            self.ecn.backoff = true;
        }
        self.halve();
        self.counters.ecn_responses += 1;
    }

    /// Processes an acknowledgement of new data outside of recovery (`recv_newack_helper`).
    fn on_new_ack(&mut self, cx: &mut AgentCx<'_>, ack: &Ack) {
        self.advance(cx.now, ack);
        let used_up = self.seq.next >= self.seq.before + self.window();
        if !(self.ecn.agreed && ack.ece) && (used_up || !self.config.control_increase) {
            let threshold = f64::from(self.ssthresh);
            let at_it = self.config.slow_start_at_threshold && self.cwnd <= threshold;
            self.cwnd += if self.cwnd < threshold || at_it {
                1.0
            } else {
                1.0 / self.cwnd
            };
        }
        if ack.ece {
            self.ecn.agreed = true;
        } else if self.ecn.agreed {
            self.ecn.backoff = false;
        }
        if self.seq.una == 1 {
            self.cwnd = self.first_window();
        }
    }

    /// Advances the sequence, samples the round trip and restarts the timer (`newack`).
    fn advance(&mut self, now: Time, ack: &Ack) {
        self.dup_acks = 0;
        self.seq.before = self.seq.una;
        self.seq.last = ack.next;
        self.seq.una = ack.next;
        self.seq.next = self.seq.next.max(ack.next);
        if self.config.timestamps {
            self.rto.sample_echo(ack.echo, now);
        }
        if let Some((seq, sent)) = self.timed
            && seq < ack.next
        {
            if !(self.ecn.agreed && self.ecn.backoff && ack.ece) {
                self.rto.end_back_off();
                self.ecn.backoff = false;
            }
            self.timed = None;
            if !self.config.timestamps {
                self.rto.sample(sent, now);
            }
        }
        self.source.on_acked(self.seq.una);
        self.set_timer(now);
    }

    /// Sends a new segment on a first or second duplicate acknowledgement (`send_one`).
    fn send_one(&mut self, cx: &mut AgentCx<'_>) {
        let allowed = f64::from(self.seq.una) + self.cwnd + f64::from(self.dup_acks);
        if self.seq.next < self.source.end()
            && self.seq.next < self.seq.una + self.config.window
            && f64::from(self.seq.next) + 1.0 <= allowed
        {
            self.output(cx, self.seq.next);
            self.seq.next += 1;
        }
    }

    /// Sends what the window allows (`send_much`).
    fn send_much(&mut self, cx: &mut AgentCx<'_>, push: Push, burst: u32) {
        if push == Push::Held && self.send_at < Time::FAR {
            return;
        }
        if self.config.flavour == Flavour::Sack {
            self.send_much_sack(cx, push, burst);
            return;
        }
        if self.seq.next == 0 {
            self.hoe.first_sent = cx.now;
        }
        let mut sent = 0;
        while self.seq.next < self.seq.una + self.window() && self.seq.next < self.source.end() {
            if self.wait(cx, push) {
                return;
            }
            self.output(cx, self.seq.next);
            self.seq.next += 1;
            sent += 1;
            if sent == burst {
                return;
            }
        }
    }

    /// Whether packets have to wait for a random delay. Starts the delay if none is pending.
    fn wait(&mut self, cx: &mut AgentCx<'_>, push: Push) -> bool {
        if push == Push::Now || self.config.overhead.is_zero() {
            return false;
        }
        let wait = unit(cx.rng) * nanos(self.config.overhead) as f64;
        self.send_at = cx.now + Duration::from_nanos(wait as u64);
        true
    }

    /// Sends segment `seq` (`output`).
    fn output(&mut self, cx: &mut AgentCx<'_>, seq: u32) {
        let again = seq < self.seq.sent_end;
        let idle = self.seq.una == self.seq.sent_end;
        let cwr = self.config.ecn && core::mem::take(&mut self.ecn.cwr);
        if again {
            self.counters.repeated += 1;
        } else {
            self.seq.sent_end = seq + 1;
            self.source.on_sent(seq);
            if self.timed.is_none() {
                self.timed = Some((seq, cx.now));
            }
        }
        self.counters.sent += 1;
        // Segment 0 negotiates ECN and must not be ECN-capable (RFC 3168 section 6.1.1).
        let ecn = if self.config.ecn && seq > 0 {
            Ecn::Ect0
        } else {
            Ecn::NotEct
        };
        let segment = Segment {
            seq,
            sent: cx.now,
            again,
            cwr,
        };
        let size = Bytes(u64::from(self.source.wire_size(seq)));
        cx.send(size, ecn, Body::Segment(segment));
        if self.retransmit_at == Time::FAR || idle {
            self.set_timer(cx.now);
        }
    }

    /// Handles expiry of the retransmission timer (`timeout`).
    fn on_timeout(&mut self, cx: &mut AgentCx<'_>) {
        self.dup_acks = 0;
        if self.config.flavour == Flavour::Sack {
            self.seq.last = self.seq.last.max(self.seq.una);
            self.seq.recover = self.seq.sent_end;
            self.repair.on_timeout();
        } else {
            self.dup_window = 0;
            if self.config.bug_fix {
                self.seq.recover = self.seq.sent_end;
            }
        }
        self.cwnd = self.cwnd.max(1.0);
        let idle = self.seq.una == self.seq.sent_end;
        if idle {
            if self.config.slow_start_restart {
                self.seq.recover = self.seq.sent_end;
                self.cwnd = 1.0;
                self.ecn.cwr = true;
            }
        } else {
            self.counters.timeouts += 1;
            self.seq.recover = self.seq.sent_end;
            if self.seq.una == 0 {
                self.initial_window = match self.initial_window {
                    InitialWindow::Rfc3390 => InitialWindow::Segments(2),
                    InitialWindow::Segments(_) | InitialWindow::Rfc6928 => {
                        InitialWindow::Segments(1)
                    }
                };
            }
            if self.last_cut == Cut::Ecn {
                // The ECN response has already lowered the threshold.
                self.ecn.cwr = true;
            } else {
                self.halve();
            }
            self.cwnd = 1.0;
            self.rto.back_off();
        }
        // The timer also runs without outstanding data: a late mark may close the window, which
        // then only the timer reopens.
        self.set_timer(cx.now);
        self.seq.next = self.seq.una;
        self.timed = None;
        self.last_cut = Cut::Timeout;
        self.send_much(cx, Push::Held, self.config.max_burst);
    }

    /// Halves window and threshold (`slowdown`).
    fn halve(&mut self) {
        let limit = f64::from(self.config.window);
        let half = (self.cwnd + f64::from(self.dup_window)).min(limit) / 2.0;
        self.ssthresh = (half as u32).max(2);
        self.cwnd = half;
        self.ecn.cwr = true;
    }

    /// Restarts the timer for a retransmission without go-back (`reset_rtx_timer(1, 0)`).
    fn restart_timer(&mut self, now: Time) {
        self.set_timer(now);
        self.timed = None;
    }

    fn set_timer(&mut self, now: Time) {
        self.retransmit_at = if self.source.is_finished(self.seq.una) {
            Time::FAR
        } else {
            now + self.rto.timeout()
        };
    }

    fn note_due(&mut self) {
        let own = self.retransmit_at.min(self.send_at);
        self.due = match self.phase {
            Phase::Waiting => self.source.start(),
            Phase::Open => own.min(self.source.stop()),
            Phase::Stopped => own,
        };
    }

    /// Window in whole segments (`window`).
    fn window(&self) -> u32 {
        (self.cwnd as u32)
            .saturating_add(self.dup_window)
            .min(self.config.window)
    }

    fn first_window(&self) -> f64 {
        f64::from(self.initial_window.segments(self.config.packet_size))
    }
}

impl Agent for Sender {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, _: &Arrival, body: &mut Body) {
        if let Body::Ack(ack) = body {
            self.on_ack(cx, ack);
            self.note_due();
        }
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        if self.phase == Phase::Waiting && self.source.start() <= cx.now {
            self.open(cx);
        }
        if self.phase == Phase::Open && self.source.stop() <= cx.now {
            self.phase = Phase::Stopped;
            self.source.close(self.seq.sent_end);
            if self.is_done() {
                self.retransmit_at = Time::FAR;
            }
        }
        if self.retransmit_at <= cx.now {
            self.on_timeout(cx);
        }
        if self.send_at <= cx.now {
            self.send_at = Time::FAR;
            self.send_much(cx, Push::Now, self.config.max_burst);
        }
        self.note_due();
    }

    fn next_timer(&self) -> Time {
        self.due
    }

    fn soon(&self) {
        fetch(&self.config);
        fetch(&self.config.window);
        fetch(&self.source);
        fetch(&self.rto);
        fetch(&self.seq.una);
        fetch(&self.due);
        fetch(&self.timed);
        fetch(&self.repair);
        fetch(&self.counters);
        fetch(&self.hoe);
    }

    fn is_done(&self) -> bool {
        self.source.is_finished(self.seq.una)
    }
}

/// State of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Open,
    /// The source has stopped.
    Stopped,
}

/// Cause of the last window change (`last_cwnd_action_`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    None,
    DupAcks,
    Ecn,
    /// Fast recovery has ended.
    Exited,
    Timeout,
}

/// Whether packets are subject to the random delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Push {
    Held,
    /// The random delay is over.
    Now,
}
