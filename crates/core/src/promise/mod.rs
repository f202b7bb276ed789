//! The delay promise: the highest media rate that keeps a delay bound.
//!
//! [`ServiceCurve`] says what the transport will carry, [`plan`] answers with a rate or with the
//! frames to skip.

mod curve;
mod decorator;
mod exact;
mod meter;
mod planner;
mod tcp;

pub use curve::{CurveError, Segment, ServiceCurve};
pub use decorator::DelayPromise;
pub use exact::{Binding, Burst, Case, FrameSet, Frames, Plan, Skip, may_return, plan};
pub use meter::{PathMeter, Reading};
pub use planner::{Decision, Planner, PlannerConfig, Situation};
pub use tcp::{CubicEpoch, TcpPath};
