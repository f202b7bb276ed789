//! Black hole: a default path of a host that drops all packets, as behind a router without a route.

use std::ffi::CStr;
use std::fs;
use std::net::Ipv4Addr;

use super::{DEVICE, FIRST, PREFIX};
use crate::netns::Namespace;
use crate::tcp_sysctls::{self, TcpConfigError};
use crate::tun::Tun;

/// A second device of a host, whose packets are never read. Dropping it restores the original path.
///
/// Removing the route would not do: the kernel then reports a send error to TCP, the segment does
/// not count as sent, and no retransmission timeout follows.
#[derive(Debug)]
pub struct Blackhole {
    namespace: Namespace,
    device: Tun,
}

impl Blackhole {
    /// Creates the device on a host of the emulator, without routes to it.
    ///
    /// # Errors
    ///
    /// The kernel does not create the device, or reverse path filtering (`rp_filter`) cannot be
    /// disabled. With filtering, packets received during the black hole would be dropped as well.
    pub fn new(namespace: &Namespace) -> Result<Self, TcpConfigError> {
        let device = Tun::open(namespace, NAME).map_err(TcpConfigError::Device)?;
        namespace
            .switch_on(NAME)
            .map_err(TcpConfigError::Namespace)?;
        let accept = || ["all", DEVICE].into_iter().try_for_each(accept_from_all);
        namespace
            .within(accept)
            .map_err(TcpConfigError::Namespace)??;
        Ok(Self {
            namespace: namespace.clone(),
            device,
        })
    }

    /// Routes all traffic from the host to other hosts into the black hole (`there`), or back to
    /// the original path.
    ///
    /// # Errors
    ///
    /// The routes are already in the requested state.
    pub fn set_blackhole(&self, there: bool) -> Result<(), TcpConfigError> {
        // The two halves of the network of all hosts are more specific than its route.
        let bits = u32::from(PREFIX) + 1;
        let mask = Ipv4Addr::from_bits(u32::MAX << (32 - bits));
        let first = FIRST.to_bits() & mask.to_bits();
        for half in [first, first | 1 << (32 - bits)] {
            let network = (Ipv4Addr::from_bits(half), mask);
            tcp_sysctls::set_route(&self.namespace, network, DEVICE_NAME, there)?;
        }
        if !there {
            // Frees the memory of the queued packets.
            while let Ok(Some(_)) = self.device.read(&mut [0; 1]) {}
        }
        Ok(())
    }
}

/// Disables reverse path filtering of a device, in the namespace of the thread.
fn accept_from_all(device: &str) -> Result<(), TcpConfigError> {
    let path = format!("/proc/sys/net/ipv4/conf/{device}/rp_filter");
    let strict = fs::read_to_string(&path).is_ok_and(|set| set.trim() == "1");
    if !strict {
        return Ok(());
    }
    fs::write(&path, "0").map_err(|cause| TcpConfigError::Setting {
        name: "rp_filter",
        cause,
    })
}

const NAME: &str = "tide-lost";
const DEVICE_NAME: &CStr = c"tide-lost";
