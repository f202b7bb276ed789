//! Records of a running endpoint, which another thread reads meanwhile.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::trace::{Event, Trace};
use tidegate_core::units::Time;
use tidegate_sim::flow_endpoints::FlowResult;

use super::netns_pair::TimedEvents;

/// Records of one endpoint. The thread of the endpoint holds the lock while it adds records, and the
/// reader while it copies those of a second.
#[derive(Clone, Debug, Default)]
pub(super) struct Records(Arc<Mutex<(FlowResult, TimedEvents)>>);

impl Records {
    /// Passes the records to `work`.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut FlowResult, &mut TimedEvents) -> T) -> T {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (result, events) = &mut *records;
        work(result, events)
    }

    /// Takes all records, at the end.
    pub(super) fn take(&self) -> (FlowResult, TimedEvents) {
        self.with(|result, events| (std::mem::take(result), std::mem::take(events)))
    }
}

impl Trace for &Records {
    fn record(&mut self, at: Time, event: Event) {
        self.with(|_, events| events.push((at, event)));
    }
}
