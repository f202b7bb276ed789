//! Configuration of TFRC.

use core::time::Duration;

use super::{Rfc3448, StartRule};
use crate::controller::{Configuration, Feedback, Properties, Rescheduling};

/// Configuration of TFRC. The defaults are those of RFC 5348, except for `damping`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "keys::Keys"))]
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
            ..Self::default()
        }
    }
}

impl Configuration for TfrcConfig {
    const NAME: &'static str = "tfrc";
    const ABOUT: &'static str = "TCP-friendly rate control (RFC 5348)";

    fn properties(&self) -> Properties {
        let own = Properties {
            joins_shares: self.flavour == Flavour::Multfrc,
            ..Properties::default()
        };
        match self.flavour {
            Flavour::Rfc3448 => Properties {
                resumes: self.rfc3448.start != StartRule::InformedPaper,
                feedback: Feedback::OnArrival,
                rescheduling: Rescheduling::Prompt,
                ..own
            },
            Flavour::Rfc5348 | Flavour::Multfrc => own,
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
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
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

#[cfg(feature = "serde")]
mod keys {
    //! The options in files: those of both specifications in one table.

    use serde::Deserialize;

    use super::{Duration, Flavour, PacketSize, Rfc3448, StartRule, TfrcConfig};
    use crate::controller::settings::{positive_duration, positive_rate, share, whole};
    use crate::units::Rate;

    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields, expecting = "{ damping = true }")]
    pub(super) struct Keys {
        flavour: Flavour,
        damping: Option<bool>,
        discounting: Option<bool>,
        packet_size: PacketSize,
        #[serde(deserialize_with = "positive_duration")]
        tick: Option<Duration>,
        slow_increase: Option<bool>,
        #[serde(deserialize_with = "whole::<_, _, 1, 100>")]
        initial_window: Option<u8>,
        #[serde(deserialize_with = "positive_rate")]
        first_rate: Option<Rate>,
        #[serde(deserialize_with = "whole::<_, _, 2, 32>")]
        intervals: Option<u8>,
        #[serde(deserialize_with = "share")]
        discount_floor: Option<f64>,
        start: Option<StartRule>,
    }

    impl Keys {
        /// The first key that only RFC 3448 has.
        fn older(&self) -> Option<&'static str> {
            let given = [
                ("tick", self.tick.is_some()),
                ("slow_increase", self.slow_increase.is_some()),
                ("initial_window", self.initial_window.is_some()),
                ("first_rate", self.first_rate.is_some()),
                ("intervals", self.intervals.is_some()),
                ("discount_floor", self.discount_floor.is_some()),
                ("start", self.start.is_some()),
            ];
            let mut given = given.into_iter();
            given.find_map(|(key, is_given)| is_given.then_some(key))
        }
    }

    impl TryFrom<Keys> for TfrcConfig {
        type Error = String;

        fn try_from(keys: Keys) -> Result<Self, String> {
            let is_older = keys.flavour == Flavour::Rfc3448;
            if let Some(key) = keys.older().filter(|_| !is_older) {
                return Err(format!(
                    "{key}: RFC 5348 has no such option; remove it, or add flavour = \"rfc3448\""
                ));
            }
            let (config, older) = (Self::default(), Rfc3448::default());
            Ok(Self {
                flavour: keys.flavour,
                // On by default in this flavour, as in ns-2, and off in RFC 5348.
                damping: keys.damping.unwrap_or(is_older),
                discounting: keys.discounting.unwrap_or(config.discounting),
                packet_size: keys.packet_size,
                rfc3448: Rfc3448 {
                    tick: keys.tick.unwrap_or(older.tick),
                    slow_increase: keys.slow_increase.unwrap_or(older.slow_increase),
                    initial_window: keys.initial_window.map(f64::from),
                    first_rate: keys.first_rate.unwrap_or(older.first_rate),
                    intervals: keys.intervals.unwrap_or(older.intervals),
                    discount_floor: keys.discount_floor.unwrap_or(older.discount_floor),
                    start: keys.start.unwrap_or(older.start),
                    ..older
                },
                ..config
            })
        }
    }
}
