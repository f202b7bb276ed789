//! The controller, with or without a delay promise around it.

use core::time::Duration;

use crate::control::{Cx, RateController, Report, Sent, Summary, Target, Why};
use crate::units::{Bytes, Time};

#[derive(Debug)]
pub(super) enum Control {
    Plain(Box<dyn RateController>),
}

impl Control {
    pub(super) fn set_backlog(&mut self, _cx: &mut Cx<'_>, _backlog: Bytes) {}
    pub(super) fn set_stall(&mut self, _cx: &mut Cx<'_>, _stalled: bool) {}
    pub(super) fn queueing(&self) -> Duration {
        Duration::ZERO
    }
    pub(super) fn restart(&mut self, _cx: &mut Cx<'_>) {}
    fn inner(&self) -> &dyn RateController {
        match self {
            Self::Plain(c) => &**c,
        }
    }
    fn inner_mut(&mut self) -> &mut dyn RateController {
        match self {
            Self::Plain(c) => &mut **c,
        }
    }
    pub(super) fn target(&self) -> Target {
        self.inner().target()
    }
    pub(super) fn summary(&self) -> Summary {
        self.inner().summary()
    }
    pub(super) fn next_timeout(&self) -> Option<(Time, Why)> {
        self.inner().next_timeout()
    }
    pub(super) fn on_sent(&mut self, cx: &mut Cx<'_>, sent: &Sent) {
        self.inner_mut().on_sent(cx, sent)
    }
    pub(super) fn on_report(&mut self, cx: &mut Cx<'_>, report: &Report<'_>) {
        self.inner_mut().on_report(cx, report)
    }
    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        self.inner_mut().on_timeout(cx)
    }
}
