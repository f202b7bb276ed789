//! Sites: hosts of an emulator behind a router, with a namespace between them for a gateway.

use std::ffi::CStr;
use std::fs;
use std::net::Ipv4Addr;

use super::{DEVICE, EmulatorError, Host, Interface, KERNEL_QUEUE, MTU, PREFIX, UnconnectedHosts};
use crate::netns::{Namespace, NetnsError};
use crate::tcp_sysctls::{self, TcpConfigError};

/// Namespaces of a site. A gateway connects [`SITE_INTERFACE`] and [`PATH_INTERFACE`] of the one in
/// the middle; without one no packet passes.
#[derive(Clone, Debug)]
pub struct Site {
    /// Endpoints with the address of the host.
    pub endpoints: Namespace,
    /// Between the endpoints and the router.
    pub gateway: Namespace,
}

impl UnconnectedHosts {
    /// Moves the address of a host to a namespace behind it. The host becomes its router.
    ///
    /// # Errors
    ///
    /// A namespace, an interface or a route cannot be created.
    pub fn add_site(&self, host: Host) -> Result<Site, EmulatorError> {
        let router = self.namespace(host);
        site(host, router).map_err(EmulatorError::Site)
    }
}

/// Creates the namespaces of the site of `host`, whose namespace is `router`.
fn site(host: Host, router: &Namespace) -> Result<Site, TcpConfigError> {
    let site = || -> Result<Site, NetnsError> {
        let [endpoints, gateway] = [Namespace::new()?, Namespace::new()?];
        gateway.connect(SITE_INTERFACE, &endpoints, ENDPOINTS)?;
        gateway.connect(PATH_INTERFACE, router, ROUTER)?;
        let interface = |address| Interface {
            address,
            prefix: PREFIX,
            mtu: MTU as u16,
            queue: KERNEL_QUEUE,
        };
        endpoints.configure(ENDPOINTS, interface(host.address()))?;
        gateway.switch_on(SITE_INTERFACE)?;
        gateway.switch_on(PATH_INTERFACE)?;
        router.switch_on(ROUTER)?;
        router.configure(DEVICE, interface(ROUTER_ADDRESS))?;
        Ok(Site { endpoints, gateway })
    };
    let site = site().map_err(TcpConfigError::Namespace)?;
    let network = (host.address(), Ipv4Addr::BROADCAST);
    tcp_sysctls::set_route(router, network, ROUTER_NAME, true)?;
    let forward = || {
        forward().map_err(|cause| TcpConfigError::Setting {
            name: "ip_forward",
            cause,
        })
    };
    router
        .within(forward)
        .map_err(TcpConfigError::Namespace)??;
    Ok(site)
}

/// Makes this namespace a router that answers address resolution for the other hosts.
fn forward() -> std::io::Result<()> {
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    fs::write("/proc/sys/net/ipv4/conf/router/proxy_arp", "1")
}

/// Interface of the gateway's namespace to the endpoints.
pub const SITE_INTERFACE: &str = "site";
/// Interface of the gateway's namespace to the router.
pub const PATH_INTERFACE: &str = "path";
const ENDPOINTS: &str = "endpoints";
const ROUTER: &str = "router";
const ROUTER_NAME: &CStr = c"router";
/// In the network of all hosts, but beyond them.
const ROUTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 255, 1);
