//! Configuration of tide.

use crate::controller::{Configuration, Feedback, Properties};

/// Configuration of tide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, expecting = "{ friend = \"cubic\" }")
)]
#[non_exhaustive]
pub struct TideConfig {
    /// TCP that takes a fair share beside this flow.
    pub friend: Friend,
}

impl Configuration for TideConfig {
    const NAME: &'static str = "tide";
    const ABOUT: &'static str =
        "short queues, and a TCP-friendly share beside flows that fill the queue";

    fn properties(&self) -> Properties {
        Properties {
            feedback: Feedback::Times,
            ..Properties::default()
        }
    }
}

/// Congestion control of the TCP flows that a flow is fair to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Friend {
    /// The larger of the rates of Reno and CUBIC (RFC 9438, with its parameters).
    Cubic,
    /// The throughput equation of RFC 5348 section 3.1.
    #[default]
    Reno,
}

impl Friend {
    /// Rate in bytes per second at the loss event rate `p`, in 0..=1, for packets of `size` bytes
    /// and a round trip of `rtt` seconds. Infinite without losses.
    pub(super) fn throughput(self, size: f64, rtt: f64, p: f64) -> f64 {
        if p <= 0.0 {
            return f64::INFINITY;
        }
        let reno = crate::controller::tfrc::equation::throughput(size, rtt, p);
        match self {
            Self::Reno => reno,
            // RFC 9438 section 5.1: average window 1.054 * (RTT / p)^(3/4) for C = 0.4.
            Self::Cubic => reno.max(1.054 * size * libm::pow(rtt, -0.25) * libm::pow(p, -0.75)),
        }
    }
}
