//! Samples of the bandwidth of sessions in equilibrium.

use std::net::IpAddr;
use std::time::Duration;

use tidegate_core::units::Rate;

use crate::client::Client;
use crate::cloud::Cloud;
use crate::wall_time::WallTime;

/// Time scale of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scale {
    /// Mean over about a round trip, for predictions.
    RoundTrip,
    /// Mean over about a minute, for trajectories of clouds.
    Minute,
}

impl Scale {
    /// Name in files: `round-trip` or `minute`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "round-trip",
            Self::Minute => "minute",
        }
    }

    /// The scale of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::RoundTrip, Self::Minute]
            .into_iter()
            .find(|scale| scale.name() == name)
    }
}

/// Bandwidth that a session got in equilibrium.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Time of the end of the averaging interval.
    pub at: WallTime,
    /// Length of the averaging interval.
    pub scale: Scale,
    /// Rate on the wire with all headers, [`MIN_RATE`] to [`HIGHEST_RATE`].
    pub rate: Rate,
    /// Mean round-trip time; `None` if unknown. At most [`LONGEST_RTT`].
    pub rtt: Option<Duration>,
    /// Share of lost packets, 0..=1; `None` if unknown.
    pub loss: Option<f64>,
    /// The application had no more to send (RFC 7661), so that the path carries this rate at least.
    pub is_limited: bool,
}

impl Measurement {
    /// Whether each value is in its range.
    pub fn is_valid(&self) -> bool {
        let loss = self.loss.is_none_or(|loss| (0.0..=1.0).contains(&loss));
        let rtt = self.rtt.is_none_or(|rtt| rtt <= LONGEST_RTT);
        loss && rtt && (MIN_RATE..=HIGHEST_RATE).contains(&self.rate)
    }
}

/// A measurement with the address of the session's client.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Address of the client.
    pub address: IpAddr,
    /// What was measured.
    pub measurement: Measurement,
    /// Label of the session, for queries; at most [`LONGEST_TAG`] bytes.
    pub tag: Option<String>,
}

/// A measurement as the store keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Cloud of the client.
    pub cloud: Cloud,
    /// Client, as the store knows it.
    pub client: Client,
    /// What was measured.
    pub measurement: Measurement,
    /// Label of the session.
    pub tag: Option<String>,
}

/// Lowest rate of a sample: below it a session carries nothing.
pub const MIN_RATE: Rate = Rate::kbps(1);
/// Highest rate of a sample. The base-two logarithms of all rates lie in 9.9..=40.
pub const HIGHEST_RATE: Rate = Rate::bps(1_000_000_000_000);
/// Longest round-trip time of a sample.
pub const LONGEST_RTT: Duration = Duration::from_mins(1);
/// Longest label of a session in bytes.
pub const LONGEST_TAG: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_found() {
        let valid = Measurement {
            at: WallTime::default(),
            scale: Scale::Minute,
            rate: Rate::kbps(500),
            rtt: Some(Duration::from_millis(20)),
            loss: Some(0.01),
            is_limited: false,
        };
        assert!(valid.is_valid());
        let wrong: [fn(&mut Measurement); 5] = [
            |m| m.rate = Rate::ZERO,
            |m| m.rate = Rate::MAX,
            |m| m.rtt = Some(Duration::MAX),
            |m| m.loss = Some(f64::NAN),
            |m| m.loss = Some(-0.1),
        ];
        for change in wrong {
            let mut measurement = valid;
            change(&mut measurement);
            assert!(!measurement.is_valid(), "{measurement:?}");
        }
    }
}
