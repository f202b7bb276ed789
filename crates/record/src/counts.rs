//! Counters of a flow: over the measured interval and per bin.

use core::ops::AddAssign;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_core::units::{Bytes, Rate, Time};

use crate::cells::{maybe_seconds, or_zero, seconds};

/// Counters of one flow within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Length of the window.
    #[serde(with = "seconds")]
    pub span: Duration,
    /// Packets sent into the network.
    pub sent: Count,
    /// Packets received.
    pub received: Count,
    /// Packets dropped by links, in the forward direction.
    pub dropped: u64,
    /// Loss events: drops more than a round trip after the drop that began the last event (RFC 5348
    /// section 5.2). Without packets in the reverse direction, the round trip is taken as twice the
    /// one-way delay.
    pub loss_events: u64,
    /// Sum of the mean one-way delays of both directions; none without packets in the reverse
    /// direction.
    #[serde(with = "maybe_seconds")]
    pub rtt: Option<Duration>,
    /// Minimum one-way delay of received packets, within the window or not. Queueing delay is the
    /// excess over this value.
    #[serde(with = "seconds")]
    pub delay_min: Duration,
    /// Mean one-way delay of received packets.
    #[serde(with = "seconds")]
    pub delay_mean: Duration,
    /// Median delay, within 3 %.
    #[serde(with = "seconds")]
    pub delay_p50: Duration,
    /// 95th percentile of the delay, within 3 %.
    #[serde(with = "seconds")]
    pub delay_p95: Duration,
    /// 99th percentile of the delay, within 3 %.
    #[serde(with = "seconds")]
    pub delay_p99: Duration,
    /// Maximum delay, exact.
    #[serde(with = "seconds")]
    pub delay_max: Duration,
    /// First transmission of the sender, within the window or not; none if no packet was sent or
    /// the time was not recorded.
    #[serde(with = "maybe_seconds")]
    pub first_sent: Option<Time>,
    /// Completion of a finite transfer; none if the flow is unlimited or did not complete. A meter
    /// leaves it empty.
    #[serde(with = "maybe_seconds")]
    pub done: Option<Time>,
    /// Dummy packets, which no other field counts.
    pub dummies: Dummies,
}

impl Totals {
    /// Mean rate of received packets.
    pub fn receive_rate(&self) -> Rate {
        self.received.bytes / self.span.max(Duration::from_nanos(1))
    }

    /// Share of sent packets that were dropped; none if no packet was sent.
    pub fn loss(&self) -> Option<f64> {
        share(self.dropped, self.sent.packets)
    }

    /// Share of dummy packets in all packets sent (the paper of RCS, section V-C); none if no packet
    /// was sent.
    pub fn overhead(&self) -> Option<f64> {
        share(self.dummies.sent, self.sent.packets + self.dummies.sent)
    }

    /// Loss events per sent packet; none if no packet was sent.
    pub fn loss_event_rate(&self) -> Option<f64> {
        share(self.loss_events, self.sent.packets)
    }
}

/// Number of packets and of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Number of packets.
    pub packets: u64,
    /// Total size, including all headers.
    pub bytes: Bytes,
}

impl AddAssign for Count {
    fn add_assign(&mut self, more: Self) {
        self.packets += more.packets;
        self.bytes += more.bytes;
    }
}

/// Dummy packets of a flow, which test the path at low priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dummies {
    /// Sent by the sender.
    #[serde(deserialize_with = "or_zero")]
    pub sent: u64,
    /// Received.
    #[serde(deserialize_with = "or_zero")]
    pub received: u64,
}

/// Counters of a flow in a bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// Packets sent.
    pub sent: Count,
    /// Packets received.
    pub received: Count,
    /// Sum of the one-way delays of received packets.
    #[serde(with = "seconds")]
    pub delay_sum: Duration,
    /// Maximum of these delays.
    #[serde(with = "seconds")]
    pub delay_max: Duration,
    /// Packets that links dropped in the forward direction; none if not counted.
    pub dropped: Option<u64>,
}

impl Bin {
    /// Mean one-way delay of received packets; none if there are none.
    pub fn delay_mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.received.packets).unwrap_or(u32::MAX);
        self.delay_sum.checked_div(count)
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Bin length of the flow counters (RFC 8868 section 4).
pub const BIN: Duration = Duration::from_millis(200);
