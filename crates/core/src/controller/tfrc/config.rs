//! Configuration of TFRC.

use core::time::Duration;

use crate::controller::{Configuration, Properties};

/// Configuration of TFRC. The defaults are those of RFC 5348, except for `damping`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, expecting = "{ damping = true }")
)]
pub struct TfrcConfig {
    /// Oscillation reduction (section 4.5): lower the rate while a round-trip sample is above the
    /// average. Useful if few flows share a queue of many packets. Off by default, although the RFC
    /// recommends it, because the rate then follows all jitter of the path.
    pub damping: bool,
    /// History discounting (section 5.5): lower weights of old intervals during a long time without
    /// loss.
    pub discounting: bool,
    /// Packet size in the equation.
    pub packet_size: PacketSize,
    /// Maximum interval between two reports in normal operation. If the round-trip time is shorter,
    /// this interval replaces it in two rules of the RFC, which assumes a report per round trip:
    /// the no-feedback timer lasts for at least four intervals, and the receive rate is that of the
    /// last interval. Zero for receivers that report as in the RFC, once per round trip and at each
    /// loss event. Then each report is a feedback packet.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub report_interval: Duration,
    /// Specification to follow.
    pub flavour: Flavour,
}

impl Configuration for TfrcConfig {
    const NAME: &'static str = "tfrc";
    const ABOUT: &'static str = "TCP-friendly rate control (RFC 5348)";

    fn properties(&self) -> Properties {
        Properties {
            joins_shares: self.flavour == Flavour::Multfrc,
            ..Properties::default()
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
        }
    }
}

/// Specification that the controller follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Flavour {
    /// RFC 5348.
    #[default]
    Rfc5348,
    /// MulTFRC (draft-irtf-iccrg-multfrc-01): RFC 5348 with an equation for as many flows as
    /// [`Demand::shares`](crate::control::Demand).
    Multfrc,
}

/// Packet size `s` of the RFC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PacketSize {
    /// Running mean of the packets sent.
    #[default]
    Mean,
    /// Size of a full packet, independent of the packets sent. This is fair to TCP in packets per
    /// second if the bottleneck is limited in packets, and too fast if it is limited in bytes.
    Nominal,
}
