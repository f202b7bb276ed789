//! Events as text and as JSON.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_kernel::{Event, Snapshot};

/// Text line of an event. Its time counts from `start`.
pub(super) fn line(event: &Event, start: Duration, seen: Duration) -> String {
    let at = event.time.saturating_sub(start).as_secs_f64();
    let late = seen.saturating_sub(event.time).as_micros();
    format!(
        "{at:11.6}  {:42} {}  ({late} µs)",
        event.what.to_string(),
        state(&event.state)
    )
}

/// Text of a state: the known variables of most use to a rate planner.
pub(super) fn state(state: &Snapshot) -> String {
    let mut parts = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        parts.extend(value.map(|value| format!("{name} {value}")));
    };
    let ms = |d: Duration| format!("{:.1} ms", d.as_secs_f64() * 1e3);
    let number = |n: u64| n.to_string();
    add("cwnd", state.cwnd().map(|b| number(b.get())));
    add("ssthresh", state.ssthresh().map(|b| number(b.get())));
    add("unacked", state.unacknowledged().map(|b| number(b.get())));
    add("unsent", state.unsent().map(|b| number(b.get())));
    add("srtt", state.srtt().map(ms));
    add("min", state.min_rtt().map(ms));
    add("rto", state.rto().map(ms));
    let mbps = |r: tidegate_core::units::Rate| format!("{:.2} Mb/s", r.as_f64() / 1e6);
    add("delivery", state.delivery_rate().map(mbps));
    add("state", state.ca_state().map(|s| s.to_string()));
    parts.join(", ")
}

/// JSON object with all of an event.
pub(super) fn object(event: &Event, seen: Duration) -> Value {
    let (first, second) = event.what.details();
    let variables: serde_json::Map<String, Value> = event
        .state
        .known()
        .iter()
        .filter_map(|v| Some((v.name().to_owned(), event.state.get(v)?.into())))
        .collect();
    json!({
        "event": event.what.kind().name(),
        "time_ns": event.time.as_nanos() as u64,
        "seen_ns": seen.as_nanos() as u64,
        "subscription": event.subscription.0,
        "number": event.number,
        "details": [first, second],
        "variables": variables,
    })
}
