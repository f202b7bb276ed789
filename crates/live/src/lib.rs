//! Linux drivers: clock, UDP, TCP, TUN link emulator in network namespaces.
#![cfg(target_os = "linux")]

pub mod clock;
pub mod cp;
pub mod driver;
pub mod emulator;
pub mod encoder_thread;
pub mod entropy;
mod events;
pub mod gateway;
pub mod limits;
pub mod netns;
pub mod realtime;
mod route_watch;
mod sockaddr;
pub mod tcp;
pub mod tcp_sysctls;
pub mod terminal;
pub mod thread_time;
pub mod tls;
pub mod transport;
pub mod tun;
pub mod udp;
