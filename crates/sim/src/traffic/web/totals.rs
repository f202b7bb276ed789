//! Aggregate of many browsers.

use super::{Client, ClientCounters, Server, ServerCounters};
use crate::traffic::Spans;

/// Sums over browsers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of browsers.
    pub browsers: u64,
    /// Sum of the client counters.
    pub client: ClientCounters,
    /// Sum of the server counters.
    pub server: ServerCounters,
    /// Page load times: from the first request of a page to its last byte.
    pub page_times: Spans,
}

impl Totals {
    /// Adds a browser.
    pub fn add(&mut self, client: &Client, server: &Server) {
        self.browsers += 1;
        let counters = client.counters();
        self.client.pages += counters.pages;
        self.client.objects += counters.objects;
        self.client.bytes += counters.bytes;
        self.client.repeated += counters.repeated;
        self.client.segments += counters.segments;
        let counters = server.counters();
        self.server.connections += counters.connections;
        self.server.sent += counters.sent;
        self.server.repeated += counters.repeated;
        self.server.timeouts += counters.timeouts;
        self.page_times.merge(client.page_times());
    }

    /// Share of the sent segments that have not arrived.
    pub fn loss(&self) -> f64 {
        let lost = self.server.sent.saturating_sub(self.client.segments);
        lost as f64 / self.server.sent.max(1) as f64
    }
}
