//! How TFRC is set.

use core::time::Duration;

use super::Rfc3448;

/// How TFRC is set. The defaults are those of RFC 5348.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct TfrcConfig {
    /// Lower the rate at once when a round-trip sample is above the average (section 4.5).
    /// Helps where few flows share a queue of many packets. Off by default, although the RFC
    /// recommends it: it makes the rate follow every jitter of the path.
    pub damping: bool,
    /// Let the past count for less during a long time without loss (section 5.5).
    pub discounting: bool,
    /// What the equation takes for the size of a packet.
    pub packet_size: PacketSize,
    /// The longest time between two reports in normal operation. Where round trips are shorter
    /// than this, it takes their place in two rules of the RFC, which has a report every round
    /// trip: the no-feedback timer waits for at least four of these, and the receive rate is
    /// that of the last one. Zero for receivers that report as the RFC wants, once per round trip
    /// and on each loss event: each report is a feedback packet then.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "report_interval_ms", with = "crate::trace::ms")
    )]
    pub report_interval: Duration,
    /// Which text is followed.
    pub flavour: Flavour,
    /// More of the older flavour.
    pub rfc3448: Rfc3448,
}

impl TfrcConfig {
    /// As ns-2 does it, over receivers that report once per round trip by themselves: the older
    /// flavour with oscillation damping.
    pub fn ns2() -> Self {
        Self {
            damping: true,
            report_interval: Duration::ZERO,
            flavour: Flavour::Rfc3448,
            rfc3448: Rfc3448 {
                each_report: true,
                ..Rfc3448::default()
            },
            ..Self::default()
        }
    }
}

impl Default for TfrcConfig {
    fn default() -> Self {
        Self {
            damping: false,
            discounting: true,
            packet_size: PacketSize::Mean,
            report_interval: Duration::from_millis(50),
            flavour: Flavour::default(),
            rfc3448: Rfc3448::default(),
        }
    }
}

/// Which text is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Flavour {
    /// RFC 3448 as ns-2 does it, for comparison with simulations of that time.
    Rfc3448,
    /// RFC 5348.
    #[default]
    Rfc5348,
}

/// The `s` of the RFC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PacketSize {
    /// The running mean of what is sent.
    #[default]
    Mean,
    /// The size of a full packet, whatever is sent: fair to TCP in packets rather than in bytes
    /// where the bottleneck counts packets, too fast where it counts bytes.
    Nominal,
}
