//! A sender in symbiosis with its transport: iTCP.

use core::mem;
use std::collections::VecDeque;

use super::steering::{Steering, Verdict, Waiting};
use crate::symbiosis::{Admit, Retraction, Subscription, Symbiosis, SymbiosisConfig};
use crate::symbiosis::{TcpEvent, TcpView};
use crate::trace::Event;
use crate::units::{Bytes, Rate, Time};

/// Decides by what the connection does and how it stands (Khan and Zaghal, section 5), in all
/// modes: a [`Symbiosis`] that a [`TcpSender`](super::TcpSender) feeds.
///
/// Before the first view nothing is known of the connection, and pictures wait.
#[derive(Clone, Debug)]
pub struct Interactive {
    symbiosis: Symbiosis,
    view: Option<TcpView>,
    sent: Sent,
    answers: Vec<Retraction>,
}

impl Interactive {
    /// For a connection that was opened at `start`.
    pub fn new(config: SymbiosisConfig, start: Time) -> Self {
        Self {
            symbiosis: Symbiosis::new(config, start),
            view: None,
            sent: Sent::default(),
            answers: Vec::new(),
        }
    }
}

impl Steering for Interactive {
    fn order(&mut self, _now: Time, _frame: u64) -> Verdict {
        Verdict::Encode(self.symbiosis.target())
    }

    fn admit(&mut self, now: Time, _frame: u64, captured: Time) -> Admit {
        match &self.view {
            Some(view) => self.symbiosis.admit(now, captured, view),
            None => Admit::Wait,
        }
    }

    fn keeps(&mut self, now: Time, waiting: &Waiting) -> bool {
        !self.is_late(now, waiting.captured)
    }

    fn is_late(&self, now: Time, captured: Time) -> bool {
        let view = self.view.as_ref();
        view.is_some_and(|view| self.symbiosis.is_hopeless(now, captured, view))
    }

    fn has_room(&self, now: Time) -> bool {
        self.view.as_ref().is_some_and(|view| view.has_room(now))
    }

    fn subscribed(&self) -> Subscription {
        self.symbiosis.subscribed()
    }

    fn on_view(&mut self, now: Time, view: &TcpView) {
        let view = self.sent.complete(now, view);
        self.symbiosis.on_view(now, &view);
        self.view = Some(view);
    }

    fn on_event(
        &mut self,
        now: Time,
        event: TcpEvent,
        view: &TcpView,
        trace: &mut Vec<(Time, Event)>,
    ) {
        let view = &self.sent.complete(now, view);
        self.view = Some(*view);
        if self.subscribed().contains(event) {
            trace.push((now, Event::Transport { event }));
        }
        self.symbiosis.on_event(now, event, view);
        for answer in self.symbiosis.take_answers() {
            let plan = Event::Plan {
                media: answer.rate,
                capacity: view.cwnd / view.path().rtt,
                backlog: answer.backlog,
                budget: self.symbiosis.config().bound,
                feasible: answer.feasible,
            };
            trace.push((now, plan));
            self.answers.push(answer);
        }
    }

    fn take_answers(&mut self) -> Vec<Retraction> {
        mem::take(&mut self.answers)
    }

    fn on_timeout(&mut self, now: Time) {
        self.symbiosis.on_timer(now);
    }

    fn next_timeout(&self) -> Time {
        self.symbiosis.next_timer()
    }

    fn target(&self) -> Rate {
        self.symbiosis.target()
    }
}

/// When what is out was sent, by the views that first told of it: a driver gives one after each write.
#[derive(Clone, Debug, Default)]
struct Sent {
    /// How far the stream had been sent, and when.
    out: VecDeque<(Bytes, Time)>,
    all: Bytes,
}

impl Sent {
    /// `view`, with when the oldest was sent.
    fn complete(&mut self, now: Time, view: &TcpView) -> TcpView {
        if view.sent > self.all {
            self.all = view.sent;
            self.out.push_back((view.sent, now));
        }
        // That of an event may be older than the last one.
        let acknowledged = view.sent.saturating_sub(view.unacked);
        while self
            .out
            .front()
            .is_some_and(|(end, _)| *end <= acknowledged)
        {
            self.out.pop_front();
        }
        TcpView {
            oldest_sent: self.out.front().map(|(_, at)| *at),
            ..*view
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::symbiosis::CongestionControl;

    #[test]
    fn the_oldest_is_what_no_view_calls_acknowledged() {
        let at = Time::from_millis;
        let mut sent = Sent::default();
        let mut oldest = |now, sent_bytes, unacked| {
            let view = TcpView {
                control: CongestionControl::Reno,
                mss: Bytes(1_448),
                srtt: Duration::from_millis(100),
                cwnd: Bytes(100_000),
                ssthresh: Bytes(50_000),
                unacked: Bytes(unacked),
                unsent: Bytes(0),
                sent: Bytes(sent_bytes),
                next_timeout: None,
                silent_since: None,
                stalled: false,
                oldest_sent: None,
            };
            sent.complete(at(now), &view).oldest_sent
        };
        assert_eq!(oldest(5, 0, 0), None);
        assert_eq!(oldest(10, 3_000, 3_000), Some(at(10)));
        assert_eq!(oldest(40, 5_000, 5_000), Some(at(10)));
        // A part of the first is.
        assert_eq!(oldest(110, 5_000, 3_000), Some(at(10)));
        assert_eq!(oldest(115, 5_000, 2_000), Some(at(40)));
        assert_eq!(oldest(120, 6_000, 3_000), Some(at(40)));
        // An older one.
        assert_eq!(oldest(121, 5_000, 3_000), Some(at(40)));
        assert_eq!(oldest(150, 6_000, 0), None);
    }
}
