//! Rate control for live media, without I/O.
//!
//! No module in this crate reads a clock, opens a socket, starts a thread or draws from a global
//! source of randomness; `clippy.toml` beside the manifest enforces this. The caller passes the
//! time as [`units::Time`] and randomness as a named stream of [`random::Seed`]. State machines
//! report through [`trace::Event`]. The simulator, the emulator and the live drivers run the same
//! state machines.
#![deny(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::iter_over_hash_type
)]
#![forbid(unsafe_code)]

pub mod aggregate;
pub mod control;
pub mod controller;
pub mod delay_bound;
pub mod endpoint;
pub mod link;
pub mod media;
pub mod path;
pub mod quantity;
pub mod random;
pub mod session;
pub mod tcp_rate;
pub mod timer_queue;
pub mod trace;
pub mod units;
pub mod wire;
