//! Interactive TCP: events and state of the kernel's own TCP, for the applications that own the
//! sockets.
//!
//! [`Events`] is where an application begins. [`Server`] is the daemon. What is seen and when, and
//! what was measured, is in `docs/itcp.md`.
#![cfg(target_os = "linux")]

// Programs, records and the kernel's structures are read and written by places and sizes that hold
// on such machines only.
#[cfg(target_endian = "big")]
compile_error!(
    "tidegate-kernel is for machines that keep the lowest byte first, as x86-64, AArch64 and RISC-V do: build for one of these"
);
#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "tidegate-kernel is for 64-bit machines, as x86-64, AArch64 and RISC-V are: build for one of these"
);

mod bpf;
mod capability;
mod connection;
mod error;
mod event;
mod events;
mod ffi;
mod handlers;
mod keeper;
mod memory_map;
mod passing;
mod peer;
mod policy;
mod protocol;
mod ring;
mod server;
mod session;
mod set;
mod stream;
mod system;
mod tcp;
mod tware;
mod unprivileged;
mod variables;

pub use bpf::events::{Tally, Wanted};
pub use bpf::loader::LoadError;
pub use connection::Connection;
pub use error::EventsError;
pub use event::{
    CaState, Event, EventKind, EventSet, Happening, Phase, SubscriptionId, TcpState, UnknownName,
};
pub use events::{Events, default_path};
pub use handlers::{Handler, Handlers, Signals};
pub use policy::{Limits, Policy, PolicyError};
pub use server::{ServeError, Server, interruptions};
pub use stream::EventStream;
pub use system::monotonic;
pub use tcp::{NotTcp, probe, set_congestion_control};
pub use tware::{Executable, Fault, Report};
pub use variables::{Snapshot, Variable, VariableSet};
