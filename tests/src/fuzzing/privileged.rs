//! Fuzz targets of the event daemon and of the emulator. Their bodies use private
//! interfaces: they are in `fuzz/private`, compiled as modules of these crates.

pub use tidegate_kernel::fuzzing::{
    policy as events_policy, requests as events_requests, ring as events_ring,
};
pub use tidegate_live::emulator::fuzzing::packet as emulator_packet;

use super::Target;

/// All targets.
pub const TARGETS: [Target; 4] = [
    target("emulator_packet", emulator_packet),
    target("events_policy", events_policy),
    target("events_requests", events_requests),
    target("events_ring", events_ring),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}
