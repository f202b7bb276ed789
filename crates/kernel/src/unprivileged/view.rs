//! The state of a socket, and the events between two states.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::event::{CaState, EventDetails, Phase, TcpState};
use crate::tcp;
use crate::variables::{Snapshot, Variable};

/// The state that is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) state: Snapshot,
    /// Time of the state.
    pub(super) at: Duration,
    timeouts: Option<u64>,
    waits: Option<[u64; 3]>,
    pub(super) phase: Option<Phase>,
}

impl View {
    pub(super) fn of(socket: BorrowedFd<'_>, phase: Option<Phase>) -> io::Result<Self> {
        let (info, state) = tcp::read(socket)?;
        Ok(Self {
            state,
            at: info.at,
            timeouts: info.timeouts(),
            waits: info.waits(),
            phase,
        })
    }

    /// The events since `before`, in their order.
    pub(super) fn since(&mut self, before: &Self) -> Vec<EventDetails> {
        let mut happened = Vec::new();
        let this = self;
        let get = |view: &Self, variable| view.state.get(variable).unwrap_or_default();
        let (old, new) = (before.state.ca_state(), this.state.ca_state());
        let (old, new) = (old.unwrap_or(CaState::Open), new.unwrap_or(CaState::Open));
        let repairs = |s| matches!(s, CaState::Recovery | CaState::Loss);
        if repairs(old) && !repairs(new) {
            happened.push(EventDetails::Recovered { from: old });
        }
        if new == CaState::Reducing && old != new {
            happened.push(EventDetails::Reduced);
        }
        if new == CaState::Recovery && old != new {
            let duplicates = get(this, Variable::SackedOut) as u32;
            happened.push(EventDetails::Recovery { duplicates });
        }
        // Linux before 6.7 does not count time-outs.
        let timed_out = match (before.timeouts, this.timeouts) {
            (Some(old), Some(new)) => new > old,
            _ => get(this, Variable::Retransmits) > get(before, Variable::Retransmits),
        };
        if timed_out {
            let doubled = u32::from(get(this, Variable::Backoff) > 0);
            happened.push(EventDetails::Timeout {
                // An acknowledgement may have reset it since.
                in_a_row: get(this, Variable::Retransmits).max(1) as u32,
                after: this.state.rto().unwrap_or_default() / (1 << doubled),
            });
        }
        let below = |v: &Self| get(v, Variable::Cwnd) < get(v, Variable::Ssthresh);
        // A window that shrinks to the threshold has not grown to it.
        let shrinks = |s| matches!(s, CaState::Recovery | CaState::Reducing);
        if below(before) && !below(this) && !shrinks(old) && !shrinks(new) {
            happened.push(EventDetails::Threshold);
        }
        let states = (before.state.tcp_state(), this.state.tcp_state());
        if let (Some(from), Some(to)) = states
            && from != to
        {
            happened.push(EventDetails::State { from, to });
        }
        let phase = this.limited_by(before);
        if let Some(to) = phase.filter(|_| phase != before.phase) {
            let from = before.phase;
            happened.push(EventDetails::Phase { from, to });
        }
        this.phase = phase.or(before.phase);
        happened
    }

    /// The limit of the sender since `before`: the cause of its waits, or else the flag of the
    /// latest sample of the delivery rate.
    fn limited_by(&self, before: &Self) -> Option<Phase> {
        if self.state.tcp_state() != Some(TcpState::Established) {
            return None;
        }
        let ([_, receiver, buffer], [_, was_receiver, was_buffer]) = (self.waits?, before.waits?);
        Some(if receiver > was_receiver {
            Phase::Receiver
        } else if buffer > was_buffer {
            Phase::SendBuffer
        } else if self.state.get(Variable::RateAppLimited) == Some(1) {
            Phase::Application
        } else {
            Phase::Network
        })
    }
}
