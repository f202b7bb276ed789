//! Many browsers in a few numbers.

use super::{Client, ClientCounters, Server, ServerCounters};
use crate::traffic::Spans;

/// Sums over browsers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many there are.
    pub browsers: u64,
    /// What their clients counted.
    pub client: ClientCounters,
    /// What their servers counted.
    pub server: ServerCounters,
    /// From the first request of a page to its last byte.
    pub page_times: Spans,
}

impl Totals {
    /// Takes in a browser.
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

    /// Share of the segments sent that did not arrive, or have not arrived yet.
    pub fn loss(&self) -> f64 {
        let lost = self.server.sent.saturating_sub(self.client.segments);
        lost as f64 / self.server.sent.max(1) as f64
    }
}
