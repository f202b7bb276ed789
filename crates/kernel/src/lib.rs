//! Interactive TCP: events and state of the kernel's own TCP, for the applications that own the
//! sockets.
//!
//! [`Events`] is the entry point of an application, and [`Server`] is the daemon. `docs/itcp.md`
//! describes the events and the measurements.
#![cfg(target_os = "linux")]

// Programs, records and the kernel's structures are accessed by offsets and sizes of these
// machines.
#[cfg(target_endian = "big")]
compile_error!(
    "tidegate-kernel supports little-endian machines only: build for x86-64, AArch64 or RISC-V"
);
#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "tidegate-kernel supports 64-bit machines only: build for x86-64, AArch64 or RISC-V"
);

pub mod aggregate;
mod bpf;
mod capability;
mod child_supervisor;
mod connection;
mod error;
mod event;
mod events;
mod exec_handler;
mod ffi;
#[cfg(feature = "fuzzing")]
#[path = "../../../fuzz/private/events.rs"]
pub mod fuzzing;
mod handlers;
mod memory_map;
mod peer_cred;
mod policy;
mod protocol;
mod ring;
mod scm_rights;
mod server;
mod session;
mod set;
mod stream;
mod system;
mod tcp;
mod trusted_path;
mod unprivileged;
mod variables;

pub use bpf::events::{EventCounts, EventRequest};
pub use bpf::loader::LoadError;
pub use connection::Connection;
pub use error::EventsError;
pub use event::{
    CaState, Event, EventDetails, EventKind, EventSet, Phase, SubscriptionId, TcpState, UnknownName,
};
pub use events::{Events, default_path};
pub use exec_handler::{Executable, Fault, Report};
pub use handlers::{Handler, Handlers, Signals};
pub use policy::{Limits, Policy, PolicyError};
pub use server::{ServeError, Server, hangups, interruptions};
pub use stream::EventStream;
pub use system::monotonic;
pub use tcp::{NotTcp, probe, set_congestion_control};
pub use variables::{Snapshot, Variable, VariableSet};
