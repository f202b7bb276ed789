//! What earlier sessions learnt about the paths to their clients: the data management of a
//! reflective media server (Schmitt, Zink, Theiss and Steinmetz, "Improving the Start-Up Behaviour
//! of TCP-friendly Media Transmissions", section 3.2).
//!
//! Sessions gather [`Observation`]s; a [`Store`] keeps them.
//! Types outside of [`store`], [`gather`] and [`exchange`] do no I/O.

pub mod client;
pub mod cloud;
pub mod cluster;
pub mod evaluate;
pub mod exchange;
pub mod gather;
pub mod group_series;
pub mod hierarchy;
mod mixture;
pub mod predict;
pub mod recluster;
mod robust;
pub mod sample;
pub mod sampler;
pub mod start_table;
pub mod store;
pub mod synthetic;
pub mod trajectory;
pub mod visit;
pub mod wall_time;

pub use client::{AddressPolicy, Client, HashKey};
pub use cloud::{AddressError, Cloud};
pub use sample::{Measurement, Observation, Sample, Scale};
pub use store::{Ingested, Retention, Store, StoreError};
pub use trajectory::Trajectory;
pub use wall_time::WallTime;
