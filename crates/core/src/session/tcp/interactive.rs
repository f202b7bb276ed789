//! Rate policy that follows the state of the TCP connection: iTCP.

use core::mem;

use super::flight::Flight;
use super::rate_policy::{RatePolicy, Verdict, Waiting, Work};
use crate::tcp_rate::{EventNotification, TcpView};
use crate::tcp_rate::{FrameDecision, RateReduction, Subscription, TcpRateAdapter, TcpRateConfig};
use crate::trace::Event;
use crate::units::{Rate, Time};

/// Decides by the events and the state of the connection (Khan and Zaghal, section 5), in all
/// modes: a [`TcpRateAdapter`] fed by a [`TcpSender`](super::TcpSender).
///
/// Pictures wait until the first view of the connection.
#[derive(Clone, Debug)]
pub struct Interactive {
    adapter: TcpRateAdapter,
    view: Option<TcpView>,
    flight: Flight,
    answers: Vec<RateReduction>,
}

impl Interactive {
    /// For a connection opened at `start`.
    pub fn new(config: TcpRateConfig, start: Time) -> Self {
        Self {
            adapter: TcpRateAdapter::new(config, start),
            view: None,
            flight: Flight::default(),
            answers: Vec::new(),
        }
    }

    /// Fills in the values that the system does not report. The modes that follow the paper exactly
    /// keep TCP's own round-trip time.
    fn complete(&mut self, now: Time, view: &TcpView) -> TcpView {
        let complete = self.flight.complete(now, view);
        let is_exact = self.adapter.config().mode.is_exact();
        TcpView {
            srtt: if is_exact { complete.srtt } else { view.srtt },
            ..complete
        }
    }
}

impl RatePolicy for Interactive {
    fn order(&mut self, _now: Time, _frame: u64) -> Verdict {
        Verdict::Encode(self.adapter.target())
    }

    fn admit(&mut self, now: Time, _frame: u64, captured: Time) -> FrameDecision {
        match &self.view {
            Some(view) => self.adapter.admit(now, captured, view),
            None => FrameDecision::Wait,
        }
    }

    fn keeps(&mut self, now: Time, waiting: &Waiting) -> bool {
        !self.is_late(now, waiting.captured)
    }

    fn is_late(&self, now: Time, captured: Time) -> bool {
        let view = self.view.as_ref();
        view.is_some_and(|view| self.adapter.is_hopeless(now, captured, view))
    }

    fn has_room(&self, now: Time) -> bool {
        self.view.as_ref().is_some_and(|view| view.has_room(now))
    }

    fn subscribed(&self) -> Subscription {
        self.adapter.subscribed()
    }

    fn on_view(&mut self, now: Time, view: &TcpView) {
        let view = self.complete(now, view);
        self.adapter.on_view(now, &view);
        self.view = Some(view);
    }

    fn on_event(
        &mut self,
        now: Time,
        notification: EventNotification,
        view: &TcpView,
        trace: &mut Vec<(Time, Event)>,
    ) {
        let view = &self.complete(now, view);
        self.view = Some(*view);
        let event = notification.event;
        if self.subscribed().contains(event) {
            trace.push((now, Event::Transport { event }));
        }
        self.adapter.on_event(now, notification, view);
        for answer in self.adapter.take_rate_reductions() {
            let plan = Event::Plan {
                media: answer.rate,
                capacity: view.cwnd / view.path().rtt,
                backlog: answer.backlog,
                budget: self.adapter.config().bound,
                feasible: answer.feasible,
            };
            trace.push((now, plan));
            self.answers.push(answer);
        }
    }

    fn on_encoded(&mut self, now: Time, work: Work, trace: &mut Vec<(Time, Event)>) {
        if let Some(reaction) = self.adapter.on_encoded(work.done(now), work.ordered) {
            let reacted = Event::Reacted {
                event: reaction.notification.event,
                signal: reaction.signal(),
                answer: reaction.answer(),
                encoder: reaction.encoder,
                reaction: reaction.total(),
            };
            trace.push((now, reacted));
        }
    }

    fn take_rate_reductions(&mut self) -> Vec<RateReduction> {
        mem::take(&mut self.answers)
    }

    fn on_timeout(&mut self, now: Time) {
        self.adapter.on_timer(now);
    }

    fn next_timeout(&self) -> Time {
        self.adapter.next_timer()
    }

    fn target(&self) -> Rate {
        self.adapter.target()
    }
}
