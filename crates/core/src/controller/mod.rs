//! Rate controllers, one file per algorithm.

pub(crate) mod careful_resume;
pub mod fixed;
pub mod rap;
pub mod rcs;
pub mod replay;
pub mod tfrc;
pub mod tide;

use core::time::Duration;

use crate::control::{Algorithm, RateControl, Start};
use crate::units::Rate;
use fixed::Fixed;
use rap::RapConfig;
use rcs::RcsConfig;
use tfrc::{Flavour, StartRule, TfrcConfig};
use tide::TideConfig;

/// Selection and configuration of a controller. In files: a table with the key `algorithm`, e.g.
/// `{ algorithm = "tfrc", damping = true }` or `{ algorithm = "fixed", rate_bps = 4000000 }`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(tag = "algorithm", rename_all = "kebab-case", deny_unknown_fields)
)]
pub enum ControllerConfig {
    /// Constant rate without control, as a baseline.
    Fixed {
        /// Rate on the wire, all headers included.
        #[cfg_attr(feature = "serde", serde(rename = "rate_bps"))]
        rate: Rate,
    },
    /// The rate adaptation protocol: additive increase, multiplicative decrease.
    Rap(RapConfig),
    /// RCS: dummy packets of low priority find out whether a loss was caused by congestion.
    Rcs(RcsConfig),
    /// TCP-friendly rate control (RFC 5348).
    Tfrc(TfrcConfig),
    /// Tide: delay-based, with a TCP-friendly share beside flows that fill the queue.
    Tide(TideConfig),
}

impl ControllerConfig {
    /// Name in files and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fixed { .. } => "fixed",
            Self::Rap(_) => "rap",
            Self::Rcs(_) => "rcs",
            Self::Tfrc(_) => "tfrc",
            Self::Tide(_) => "tide",
        }
    }
}

impl ControllerConfig {
    /// The same controller for receivers that send the reports of the original algorithm: one per
    /// packet for RAP, one per round trip for TFRC. Modelled receivers do so.
    pub fn with_native_feedback(mut self) -> Self {
        match &mut self {
            Self::Fixed { .. } | Self::Rcs(_) | Self::Tide(_) => {}
            Self::Rap(config) => config.report_interval = Duration::ZERO,
            Self::Tfrc(config) => {
                config.report_interval = Duration::ZERO;
                config.rfc3448.each_report = true;
            }
        }
        self
    }
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self::Tide(TideConfig::default())
    }
}

/// A prior is probed by a careful resume (RFC 9959), except for a fixed rate and the start of
/// [`StartRule::InformedPaper`].
impl Algorithm for ControllerConfig {
    fn start(&self, start: &Start) -> RateControl {
        let control = self.bare(start);
        if self.resumes() {
            control.with_resume(start)
        } else {
            control
        }
    }
}

impl ControllerConfig {
    /// Whether a prior is probed before the controller may use it.
    fn resumes(&self) -> bool {
        match self {
            Self::Fixed { .. } => false,
            Self::Tfrc(config) => {
                let older = config.flavour == Flavour::Rfc3448;
                !(older && config.rfc3448.start == StartRule::InformedPaper)
            }
            Self::Rap(config) => config.start != StartRule::InformedPaper,
            Self::Rcs(_) | Self::Tide(_) => true,
        }
    }

    fn bare(&self, start: &Start) -> RateControl {
        match self {
            Self::Fixed { rate } => Fixed::new(*rate).into(),
            Self::Rap(config) => config.start(start),
            Self::Rcs(config) => config.start(start),
            Self::Tfrc(config) => config.start(start),
            Self::Tide(config) => config.start(start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Demand;
    use crate::units::{Bytes, Time};

    #[test]
    fn configuration_builds_the_named_controller() {
        let demand = Demand {
            floor: Rate::kbps(150),
            ceiling: Rate::kbps(4_000),
            shares: 1,
        };
        let start = Start::new(Time::ZERO, Bytes(1_200), demand);
        let rate = Rate::kbps(700);
        let fixed = ControllerConfig::Fixed { rate };
        assert_eq!(fixed.start(&start).target().send, rate);
        let rap = ControllerConfig::Rap(RapConfig::default());
        assert_eq!(rap.start(&start).target().send, Rate::bps(4_800));
        let tfrc = ControllerConfig::Tfrc(TfrcConfig::default());
        assert_eq!(tfrc.start(&start).target().send, Rate::bps(9_600));
        let rcs = ControllerConfig::Rcs(RcsConfig::default());
        // Four packets per second measure the round-trip time.
        assert_eq!(rcs.start(&start).target().send, Rate::bps(38_400));
        let names = [fixed, rap, rcs, tfrc].map(|config| config.name());
        assert_eq!(names, ["fixed", "rap", "rcs", "tfrc"]);
    }

    #[test]
    fn modelled_receivers_send_the_original_reports() {
        let rap = ControllerConfig::Rap(RapConfig::default());
        let per_packet = ControllerConfig::Rap(RapConfig::per_packet());
        assert_eq!(rap.with_native_feedback(), per_packet);
        let ns2 = ControllerConfig::Tfrc(TfrcConfig::ns2());
        assert_eq!(ns2.clone().with_native_feedback(), ns2);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn configuration_files_select_the_algorithm() {
        let parse = toml::from_str::<ControllerConfig>;
        assert_eq!(
            parse("algorithm = 'tide'").unwrap(),
            ControllerConfig::default()
        );
        let rate = Rate::kbps(4_000);
        assert_eq!(
            parse("algorithm = 'fixed'\nrate_bps = 4000000").unwrap(),
            ControllerConfig::Fixed { rate }
        );
        let fine = RapConfig {
            fine_grain: true,
            ..RapConfig::per_packet()
        };
        let text = toml::to_string(&ControllerConfig::Rap(fine.clone())).unwrap();
        assert_eq!(parse(&text).unwrap(), ControllerConfig::Rap(fine));
        let probing = RcsConfig {
            target: Some(rate),
            rtt: Some(Duration::from_millis(550)),
            ..RcsConfig::default()
        };
        let text = toml::to_string(&ControllerConfig::Rcs(probing.clone())).unwrap();
        assert_eq!(parse(&text).unwrap(), ControllerConfig::Rcs(probing));
        let damped = TfrcConfig {
            damping: true,
            ..TfrcConfig::default()
        };
        let text = toml::to_string(&ControllerConfig::Tfrc(damped.clone())).unwrap();
        assert_eq!(parse(&text).unwrap(), ControllerConfig::Tfrc(damped));
        let older = "algorithm = 'tfrc'\nflavour = 'rfc3448'\n[rfc3448]\ntick_ms = 10.0";
        let ControllerConfig::Tfrc(older) = parse(older).unwrap() else {
            panic!("not TFRC")
        };
        assert_eq!(older.flavour, tfrc::Flavour::Rfc3448);
        assert_eq!(older.rfc3448.tick, Duration::from_millis(10));
        assert!(parse("algorithm = 'tfrc'\ndampening = true").is_err());
        assert!(parse("algorithm = 'fixed'\nrate_bps = 1\nburst = 2").is_err());
        assert!(parse("algorithm = 'magic'").is_err());
    }
}
