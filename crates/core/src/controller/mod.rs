//! Rate controllers, one file per algorithm.
//!
//! A configuration names its controller, builds it and states its [`Properties`] (see
//! [`Configuration`]). Sessions, scenarios and commands hold it as a [`ControllerConfig`], whatever the
//! algorithm, and find it by its name in a table, [`table::Controllers`], to which applications add their own.

pub(crate) mod careful_resume;
pub mod fixed;
pub mod rap;
pub mod rcs;
pub mod replay;
#[cfg(feature = "serde")]
pub mod settings;
#[cfg(feature = "serde")]
pub mod table;
pub mod tfrc;
pub mod tide;

use core::any::Any;
use core::fmt::{self, Debug};
use std::sync::Arc;

use crate::control::{Algorithm, RateControl, Start};
use crate::units::Rate;
#[cfg(feature = "serde")]
pub use table::{CONTROLLERS, Controllers, Entry};
use tide::TideConfig;

/// Configuration of a controller with its name.
pub trait Configuration: Algorithm + PartialEq + 'static {
    /// Name in files, on command lines and in results.
    const NAME: &'static str;

    /// Description in one line.
    const ABOUT: &'static str;

    /// An example of its value in files, if there is no default.
    const EXAMPLE: Option<&'static str> = None;

    /// What others need to know about the controller.
    fn properties(&self) -> Properties {
        Properties::default()
    }
}

/// Properties of a controller that sessions, models of flows and commands depend on. The default is a
/// controller with the feedback of RFC 5348.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Constant rate of a controller without rate control: such a stream has neither a delay bound nor
    /// a response to ECN marks.
    pub fixed_rate: Option<Rate>,
    /// Whether it sends dummy packets of lower effort, on paths that honour it.
    pub uses_dummies: bool,
    /// Whether a prior is probed by a careful resume (RFC 9959) before the controller may use it.
    pub resumes: bool,
    /// Whether it controls as many flows together as [`Demand::shares`](crate::control::Demand) says.
    pub joins_shares: bool,
    /// Feedback in its specification. Receivers of modelled flows report so; those of sessions report
    /// as RTP has it.
    pub feedback: Feedback,
    /// Effect of a rate change on the packet that is already scheduled, in its specification.
    pub rescheduling: Rescheduling,
}

impl Default for Properties {
    fn default() -> Self {
        Self {
            fixed_rate: None,
            uses_dummies: false,
            resumes: true,
            joins_shares: false,
            feedback: Feedback::EachRoundTrip,
            rescheduling: Rescheduling::Reactive,
        }
    }
}

/// Feedback for which an algorithm is specified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// A report of each packet.
    EachPacket,
    /// A report per round trip, and one at each loss event (RFC 5348 section 6).
    EachRoundTrip,
    /// As in ns-2's TFRC: on the first arrival a round trip after the last report, and at each loss
    /// event. A single packet out of order is a loss.
    OnArrival,
    /// The arrival time of each packet, every 50 ms (RFC 8888).
    Times,
}

/// Effect of a rate change on the packet that is already scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rescheduling {
    /// It leaves one interval of the new rate after the previous packet, or immediately if that
    /// time has passed. An increase from a very low rate takes effect immediately.
    #[default]
    Reactive,
    /// None: the current interval keeps its length. Before each packet the controller checks for
    /// overdue packets (its timeout is called early). If it lowers the rate for that, the packet is
    /// skipped and the next interval begins. As in ns-2's RAP.
    Steady,
    /// None, with exceptions as in ns-2's TFRC: the first report, every report before the first
    /// loss, and every timeout of the controller send a packet immediately. The next one follows an
    /// interval later.
    Prompt,
}

/// Selection and configuration of a controller.
#[derive(Clone)]
pub struct ControllerConfig {
    name: &'static str,
    held: Arc<dyn Held>,
}

/// A [`Configuration`] of any type.
trait Held: Algorithm {
    fn properties(&self) -> Properties;
    fn is_equal(&self, other: &dyn Any) -> bool;
    fn as_any(&self) -> &dyn Any;
}

impl<C: Configuration> Held for C {
    fn properties(&self) -> Properties {
        Configuration::properties(self)
    }

    fn is_equal(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<C: Configuration> From<C> for ControllerConfig {
    fn from(configuration: C) -> Self {
        Self {
            name: C::NAME,
            held: Arc::new(configuration),
        }
    }
}

impl Default for ControllerConfig {
    fn default() -> Self {
        TideConfig::default().into()
    }
}

impl ControllerConfig {
    /// Name in files and reports.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Properties of the controller.
    pub fn properties(&self) -> Properties {
        self.held.properties()
    }
}

/// A prior is probed by a careful resume (RFC 9959) if the controller [resumes](Properties::resumes).
impl Algorithm for ControllerConfig {
    fn start(&self, start: &Start) -> RateControl {
        let control = self.held.start(start);
        if self.properties().resumes {
            control.with_resume(start)
        } else {
            control
        }
    }
}

impl PartialEq for ControllerConfig {
    fn eq(&self, other: &Self) -> bool {
        self.held.is_equal(other.held.as_any())
    }
}

impl Debug for ControllerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::fixed::FixedConfig;
    use super::rap::RapConfig;
    use super::rcs::RcsConfig;
    use super::tfrc::TfrcConfig;
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
        let configs: [(ControllerConfig, &str, Rate); 4] = [
            (FixedConfig { rate }.into(), "fixed", rate),
            (RapConfig::default().into(), "rap", Rate::bps(4_800)),
            (TfrcConfig::default().into(), "tfrc", Rate::bps(9_600)),
            // Four packets per second measure the round-trip time.
            (RcsConfig::default().into(), "rcs", Rate::bps(38_400)),
        ];
        for (config, name, first) in configs {
            assert_eq!(config.name(), name);
            assert_eq!(config.start(&start).target().send, first, "{name}");
        }
    }

    #[test]
    fn configurations_are_equal_if_their_types_and_options_are() {
        let fine = RapConfig {
            fine_grain: true,
            ..RapConfig::default()
        };
        let rap = ControllerConfig::from(RapConfig::default());
        assert_eq!(rap, RapConfig::default().into());
        assert_ne!(rap, fine.into());
        assert_ne!(rap, TfrcConfig::default().into());
    }

    #[test]
    fn the_interval_of_a_start_replaces_the_configured_one() {
        let demand = Demand {
            floor: Rate::ZERO,
            ceiling: Rate::MAX,
            shares: 1,
        };
        let mut start = Start::new(Time::ZERO, Bytes(1_000), demand);
        let per_packet = RapConfig::per_packet().start(&start);
        start.report_interval = Some(Duration::ZERO);
        let native = RapConfig::default().start(&start);
        assert_eq!(format!("{native:?}"), format!("{per_packet:?}"));
    }
}
