//! Configuration of TFRC.

use core::time::Duration;

use super::Rfc3448;

/// Configuration of TFRC. The defaults are those of RFC 5348, except for `damping`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
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
    #[cfg_attr(
        feature = "serde",
        serde(rename = "report_interval_ms", with = "crate::trace::ms")
    )]
    pub report_interval: Duration,
    /// Specification to follow.
    pub flavour: Flavour,
    /// Parameters of [`Flavour::Rfc3448`].
    pub rfc3448: Rfc3448,
}

impl TfrcConfig {
    /// TFRC of ns-2, for receivers that report once per round trip: [`Flavour::Rfc3448`] with
    /// oscillation reduction.
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

/// Specification that the controller follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Flavour {
    /// RFC 3448 as in ns-2, for comparison with older simulations.
    Rfc3448,
    /// RFC 5348.
    #[default]
    Rfc5348,
    /// MulTFRC (draft-irtf-iccrg-multfrc-01): RFC 5348 with an equation for as many flows as
    /// [`Demand::shares`](crate::control::Demand).
    Multfrc,
}

/// Packet size `s` of the RFC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PacketSize {
    /// Running mean of the packets sent.
    #[default]
    Mean,
    /// Size of a full packet, independent of the packets sent. This is fair to TCP in packets per
    /// second if the bottleneck is limited in packets, and too fast if it is limited in bytes.
    Nominal,
}
