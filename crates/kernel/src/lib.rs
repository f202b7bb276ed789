//! Interactive TCP: events and state of the kernel's own TCP, for the applications that own the
//! sockets.
//!
//! [`Events`] is where an application begins. [`Server`] is the daemon. What is seen and when, and what was measured,
//! is in `docs/itcp.md`.
#![cfg(target_os = "linux")]

mod bpf;
mod capability;
mod error;
mod event;
mod events;
mod memory_map;
mod passing;
mod peer;
mod policy;
mod protocol;
mod ring;
mod server;
mod session;
mod system;
mod tcp;
mod unprivileged;
mod variables;

pub use bpf::monitor::{LoadError, Tally, Wanted};
pub use error::EventsError;
pub use event::{
    CaState, Event, EventKind, EventSet, Happening, Phase, SubscriptionId, TcpState, UnknownName,
};
pub use events::{Events, default_path};
pub use policy::{Limits, Policy, PolicyError};
pub use server::{ServeError, Server, interruptions};
pub use tcp::{NotTcp, probe};
pub use variables::{Snapshot, Variable, VariableSet};
