//! Linux drivers: clock, UDP, TCP, TUN link emulator in network namespaces.
#![cfg(target_os = "linux")]

pub mod clock;
pub mod driver;
pub mod emulator;
mod events;
pub mod limits;
mod name;
pub mod netns;
pub mod pipe;
mod realtime;
pub mod stack;
pub mod tcp;
pub mod terminal;
pub mod tun;
pub mod udp;
