//! The delay promise: the highest media rate that keeps a delay bound.
//!
//! [`ServiceCurve`] says what the transport will carry, [`plan`] answers with a rate or with the
//! frames to skip.

mod curve;
mod exact;
mod tcp;

pub use curve::{CurveError, Segment, ServiceCurve};
pub use exact::{Binding, Burst, Case, FrameSet, Frames, Plan, Skip, may_return, plan};
pub use tcp::{CubicEpoch, TcpPath};
