//! Start of a sending session: its rate control, and the sender around it.

use rand_core::Rng;

use super::config::SenderConfig;
use super::sender::MediaSender;
use crate::control::{Algorithm, Demand, Prior, Start};
use crate::delay_bound::PlannerConfig;
use crate::units::Time;

/// Rate control of a sending session. Its rates, its packet size and its delay bound are those of the
/// [`SenderConfig`].
#[derive(Clone, Copy, Debug)]
pub struct RateSetup<'a> {
    /// The rate controller.
    pub control: &'a dyn Algorithm,
    /// Start of the session.
    pub now: Time,
    /// What earlier sessions measured of the path.
    pub prior: Option<Prior>,
    /// As [`PlannerConfig::yields`].
    pub yields: bool,
}

impl<'a> RateSetup<'a> {
    /// Rate control by `control` from `now` on, without a prior, that takes a share beside TCP.
    pub fn new(control: &'a dyn Algorithm, now: Time) -> Self {
        Self {
            control,
            now,
            prior: None,
            yields: false,
        }
    }

    /// The sender of the session.
    pub fn sender(&self, config: SenderConfig, rng: &mut dyn Rng) -> MediaSender {
        let (floor, ceiling) = config.rates;
        let demand = Demand {
            floor,
            ceiling,
            shares: 1,
        };
        let mut start = Start::new(self.now, config.packet_size, demand);
        start.prior = self.prior;
        let planner = PlannerConfig {
            yields: self.yields,
            ..PlannerConfig::new(floor, ceiling)
        };
        MediaSender::new(config, self.control.start(&start), Some(planner), rng)
    }
}
