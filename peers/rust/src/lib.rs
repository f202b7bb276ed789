//! Other projects' congestion controllers on Tidegate's scenario files, in simulated time.
//!
//! Each peer is a pair of [`Endpoint`](tidegate_core::endpoint::Endpoint)s in
//! [`World`](tidegate_sim::world::World), so that link models, clock and order of events are those
//! of our own controllers. `docs/peers.md` states the rules and what was measured.

pub mod call;
pub mod clock;
pub mod meter;
pub mod peer;
pub mod pion;
pub mod play;
pub mod quic;
pub mod result;
pub mod rtc;
pub mod source;
