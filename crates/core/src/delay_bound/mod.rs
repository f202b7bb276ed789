//! Computes the highest media rate that meets a delay bound.
//!
//! [`ServiceCurve`] forecasts the capacity of the transport. [`plan`] computes a rate, or the
//! frames to skip if there is none. [`Planner`] repeats this while the forecast changes.
//! [`DelayBound`] adds a planner to a rate control.

mod blind;
mod bound;
mod curve;
mod exact;
mod frame_time;
mod planner;
mod tcp;

pub use bound::DelayBound;
pub use curve::{CurveError, Segment, ServiceCurve};
pub use exact::{
    Binding, Burst, FrameSet, Frames, Plan, PlanProblem, Skip, is_return_feasible, plan, recovery,
    smallest_budget,
};
pub use frame_time::{SlowPicture, check_frame_time};
pub use planner::{Decision, PlanInput, Planner, PlannerConfig, QueueOwner};
pub use tcp::{BbrCycle, CubicEpoch, TcpPath};
