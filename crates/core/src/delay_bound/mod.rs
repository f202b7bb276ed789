//! The delay promise: the highest media rate that keeps a delay bound.
//!
//! [`ServiceCurve`] says what the transport will carry, [`plan`] answers with a rate or with the
//! frames to skip, [`Planner`] does so again and again while the forecast changes, and
//! [`DelayBound`] puts a planner around any controller. [`Law`] selects the published law
//! instead, for comparison.

mod competing_flows;
mod curve;
mod decorator;
mod delays;
mod exact;
mod jitter;
mod meter;
mod paper;
mod planner;
mod queue_response;
mod tcp;
pub(crate) mod window;

pub use curve::{CurveError, Segment, ServiceCurve};
pub use decorator::DelayBound;
pub use exact::{
    Binding, Burst, Case, FrameSet, Frames, Plan, Skip, may_return, plan, recovery, smallest_budget,
};
pub use meter::{PathMeter, Reading, Sample};
pub use paper::{Congested, Law, Response, backlog_of_reaction, reaction_delay, satisfied_rate};
pub use planner::{Decision, Planner, PlannerConfig, QueueOwner, Situation};
pub use tcp::{BbrCycle, CubicEpoch, TcpPath};
