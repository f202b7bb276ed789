//! A way out of a host on which all is lost, as behind a router that has lost its own way.

use std::ffi::CStr;
use std::fs;
use std::net::Ipv4Addr;

use super::{DEVICE, FIRST, PREFIX};
use crate::netns::Namespace;
use crate::tcp_sysctls::{self, StackError};
use crate::tun::Tun;

/// A second device of a host, from which nobody takes what it is given. Dropping it gives the host
/// its way back.
///
/// A host that has no route at all would not do: its kernel tells TCP that a segment cannot leave,
/// which then counts as not sent, and no time-out follows.
#[derive(Debug)]
pub struct Blackhole {
    namespace: Namespace,
    device: Tun,
}

impl Blackhole {
    /// Makes it on the host of a namespace of the emulator. Nothing leads there yet.
    ///
    /// # Errors
    ///
    /// The kernel makes no second device, or does not let us switch off that senders are checked
    /// against routes (`rp_filter`), by which what arrives while nothing leaves would be lost as well.
    pub fn new(namespace: &Namespace) -> Result<Self, StackError> {
        let device = Tun::open(namespace, NAME).map_err(StackError::Device)?;
        namespace.switch_on(NAME).map_err(StackError::Namespace)?;
        let accept = || ["all", DEVICE].into_iter().try_for_each(accept_from_all);
        namespace.within(accept).map_err(StackError::Namespace)??;
        Ok(Self {
            namespace: namespace.clone(),
            device,
        })
    }

    /// Has all that leaves the host for others lead there, or go its old way again.
    ///
    /// # Errors
    ///
    /// It is so already.
    pub fn lead(&self, there: bool) -> Result<(), StackError> {
        // Halves of the network of all hosts, which is closer than the whole.
        let bits = u32::from(PREFIX) + 1;
        let mask = Ipv4Addr::from_bits(u32::MAX << (32 - bits));
        let first = FIRST.to_bits() & mask.to_bits();
        for half in [first, first | 1 << (32 - bits)] {
            let network = (Ipv4Addr::from_bits(half), mask);
            tcp_sysctls::set_route(&self.namespace, network, DEVICE_NAME, there)?;
        }
        if !there {
            // A queue that is full would lose no less; but the memory is for others.
            while let Ok(Some(_)) = self.device.read(&mut [0; 1]) {}
        }
        Ok(())
    }
}

/// Takes packets in through a device also where answers would leave through another. In the namespace
/// that the thread is in.
fn accept_from_all(device: &str) -> Result<(), StackError> {
    let path = format!("/proc/sys/net/ipv4/conf/{device}/rp_filter");
    let strict = fs::read_to_string(&path).is_ok_and(|set| set.trim() == "1");
    if !strict {
        return Ok(());
    }
    fs::write(&path, "0").map_err(|cause| StackError::Setting {
        name: "rp_filter",
        cause,
    })
}

const NAME: &str = "tide-lost";
const DEVICE_NAME: &CStr = c"tide-lost";
