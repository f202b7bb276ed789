//! Configuration of TFRC as in ns-2, and its keys in scenarios.

use core::time::Duration;

use serde::Deserialize;
use serde::de::Error as _;
use tidegate_core::control::{Algorithm, RateControl, Start};
use tidegate_core::controller::rap::StartRule;
use tidegate_core::controller::settings::{
    Setting, SettingError, positive_duration, positive_rate, share, whole,
};
use tidegate_core::controller::tfrc::{self, PacketSize, TfrcConfig};
use tidegate_core::controller::{
    Configuration, ControllerConfig, Entry, Feedback, Properties, Rescheduling,
};
use tidegate_core::units::Rate;

use super::Tfrc;

/// The controller `tfrc` of scenarios: that of the product, with `flavour = "rfc3448"` that of ns-2.
pub const TFRC: Entry = Entry {
    parse,
    ..Entry::of::<TfrcConfig>()
};

/// Configuration of TFRC as in ns-2. The defaults are those of ns-2, except for `report_interval`.
#[derive(Clone, Debug, PartialEq)]
pub struct Ns2TfrcConfig {
    /// Oscillation reduction (RFC 3448 section 4.5, `ca_`): lower the rate while a round-trip sample
    /// is above the average.
    pub damping: bool,
    /// History discounting (section 5.5): lower weights of old intervals during a long time without
    /// loss.
    pub discounting: bool,
    /// Packet size in the equation.
    pub packet_size: PacketSize,
    /// Maximum interval between two reports in normal operation. Zero for receivers that report as
    /// in the RFC, once per round trip and at each loss event: then each report is a feedback packet.
    /// Otherwise reports are combined into rounds, as in the product's TFRC.
    pub report_interval: Duration,
    /// Clock tick of the retransmission timeout in the equation (`tcp_tick_`).
    pub tick: Duration,
    /// In slow start, raise the rate gradually over a round trip, packet by packet, rather than at
    /// once (`slow_increase_`).
    pub slow_increase: bool,
    /// Rate at the first report, in packets per round trip (`rate_init_`). `None`: the initial
    /// window of RFC 3390: four packets of up to 1095 bytes, three of up to 2190, else two
    /// (`rate_init_option_` 2).
    pub initial_window: Option<f64>,
    /// Rate before the first report (`InitRate_`).
    pub first_rate: Rate,
    /// Rate increase in slow start per round trip, as a factor (`ssmult_`), at least 1.
    pub slow_start_factor: f64,
    /// Weight of the past in the averages of the round-trip time (`df_`), in 0..=1.
    pub rtt_memory: f64,
    /// Number of loss intervals in the average (`NumSamples_`), from 2 to 32.
    pub intervals: u8,
    /// Lower bound of the history discount (`minDiscountRatio_`), in 0..=1.
    pub discount_floor: f64,
    /// Start of the flow.
    pub start: StartRule,
}

impl Default for Ns2TfrcConfig {
    fn default() -> Self {
        Self {
            damping: true,
            discounting: true,
            packet_size: PacketSize::Mean,
            report_interval: Duration::from_millis(50),
            tick: Duration::from_millis(100),
            slow_increase: true,
            initial_window: None,
            first_rate: Rate::bps(2_400),
            slow_start_factor: 2.0,
            rtt_memory: 0.95,
            intervals: 8,
            discount_floor: 0.5,
            start: StartRule::SlowStart,
        }
    }
}

impl Ns2TfrcConfig {
    /// The same for receivers that report once per round trip, as those of ns-2.
    pub fn native() -> Self {
        Self {
            report_interval: Duration::ZERO,
            ..Self::default()
        }
    }
}

impl Algorithm for Ns2TfrcConfig {
    fn start(&self, start: &Start) -> RateControl {
        let config = Self {
            report_interval: start.report_interval.unwrap_or(self.report_interval),
            ..self.clone()
        };
        let tfrc = Tfrc::new(&config, start.now, start.packet_size, start.prior);
        RateControl::new(tfrc, start)
    }
}

impl Configuration for Ns2TfrcConfig {
    const NAME: &'static str = TfrcConfig::NAME;
    const ABOUT: &'static str = "TFRC as in ns-2 (RFC 3448)";

    fn properties(&self) -> Properties {
        Properties {
            resumes: self.start != StartRule::InformedPaper,
            feedback: Feedback::OnArrival,
            rescheduling: Rescheduling::Prompt,
            ..Properties::default()
        }
    }
}

/// The options of both.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "{ damping = true }")]
struct Keys {
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

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Flavour {
    Rfc3448,
    #[default]
    Rfc5348,
    Multfrc,
}

fn parse(value: Setting) -> Result<ControllerConfig, SettingError> {
    let keys = Keys::deserialize(value)?;
    let flavour = match keys.flavour {
        Flavour::Rfc3448 => return Ok(keys.ns2().into()),
        Flavour::Rfc5348 => tfrc::Flavour::Rfc5348,
        Flavour::Multfrc => tfrc::Flavour::Multfrc,
    };
    if let Some(key) = keys.of_ns2() {
        return Err(SettingError::custom(format_args!(
            "{key}: RFC 5348 has no such option; remove it, or add flavour = \"rfc3448\""
        )));
    }
    let config = TfrcConfig::default();
    let config = TfrcConfig {
        flavour,
        damping: keys.damping.unwrap_or(config.damping),
        discounting: keys.discounting.unwrap_or(config.discounting),
        packet_size: keys.packet_size,
        ..config
    };
    Ok(config.into())
}

impl Keys {
    fn ns2(&self) -> Ns2TfrcConfig {
        let config = Ns2TfrcConfig::default();
        Ns2TfrcConfig {
            damping: self.damping.unwrap_or(config.damping),
            discounting: self.discounting.unwrap_or(config.discounting),
            packet_size: self.packet_size,
            tick: self.tick.unwrap_or(config.tick),
            slow_increase: self.slow_increase.unwrap_or(config.slow_increase),
            initial_window: self.initial_window.map(f64::from),
            first_rate: self.first_rate.unwrap_or(config.first_rate),
            intervals: self.intervals.unwrap_or(config.intervals),
            discount_floor: self.discount_floor.unwrap_or(config.discount_floor),
            start: self.start.unwrap_or(config.start),
            ..config
        }
    }

    /// The first key that only ns-2's TFRC has.
    fn of_ns2(&self) -> Option<&'static str> {
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
