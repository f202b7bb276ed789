//! Link emulator: the core's link models between real network stacks.
//!
//! Each of two or more network namespaces has a TUN device. A packet sent by a host is read from
//! its device, enters the [`Network`] at the time of reading, and is written to the device of its
//! destination at its logical departure time. The report states the delay of reads and writes.

mod blackhole;
mod engine;
mod frame;
#[cfg(feature = "fuzzing")]
#[path = "../../../fuzz/private/packet.rs"]
pub mod fuzzing;
mod report;
mod site;
mod timing;

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_core::link::{
    LinkConfig, LinkId, NamedLink, Network, NetworkConfig, NetworkError, RouteId,
};
use tidegate_core::random::Seed;

use crate::clock::Clock;
use crate::events;
use crate::netns::{Interface, Namespace, NetnsError};
use crate::tcp_sysctls::TcpConfigError;
use crate::tun::{Tun, TunError};
use engine::{Engine, EngineConfig, Finished, Port};
use frame::Frame;

pub use blackhole::Blackhole;
pub use report::{Arrival, Departure, EmulatorLog, EmulatorReport, Segment};
pub use site::{PATH_INTERFACE, SITE_INTERFACE, Site};

/// Configuration of an emulator.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatorConfig {
    /// Links and routes, as for the simulator.
    pub network: NetworkConfig,
    /// Connectivity: the route per ordered pair of hosts. The number of hosts is the highest number
    /// in this list plus one, at most [`MAX_HOSTS`]. A packet for an unlisted pair is dropped and
    /// counted.
    pub routes: Vec<HostRoute>,
    /// Seed of all random streams.
    pub seed: Seed,
    /// Clock whose zero is the zero of capacity steps and outages.
    pub clock: Clock,
    /// Time after which the emulator stops.
    pub limit: Duration,
    /// Polling interval of devices and network under load, so that dense traffic costs a wake-up
    /// per interval instead of per packet. It adds up to one interval of delay at each end, except
    /// for isolated packets. Zero: no intentional delay.
    pub granularity: Duration,
    /// Tolerance of the 99th percentile of read and write delays, for `kept_up`.
    pub tolerance: Duration,
    /// Maximum number of logged arrivals, and of logged departures; zero disables the log. An entry
    /// has 48 bytes.
    pub log: usize,
}

impl EmulatorConfig {
    /// Two hosts, route 0 from [`Host::A`] to [`Host::B`] and route 1 back, seed 1, a clock that
    /// starts now, a limit of one hour, a granularity of 50 µs, a tolerance of 1 ms, no log.
    pub fn new(network: NetworkConfig) -> Self {
        Self {
            network,
            routes: HostRoute::both(Host::A, Host::B, RouteId(0), RouteId(1)).to_vec(),
            seed: Seed(1),
            clock: Clock::start(),
            limit: Duration::from_hours(1),
            granularity: Duration::from_micros(50),
            tolerance: Duration::from_millis(1),
            log: 0,
        }
    }

    /// A link `there` from [`Host::A`] to [`Host::B`] and a link `back`; otherwise as
    /// [`new`](Self::new).
    pub fn path(there: LinkConfig, back: LinkConfig) -> Self {
        let named = |name: &str, config| NamedLink {
            name: name.into(),
            config,
        };
        Self::new(NetworkConfig {
            links: vec![named("there", there), named("back", back)],
            routes: vec![vec![LinkId(0)], vec![LinkId(1)]],
        })
    }
}

/// Host number, from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host(pub u16);

impl Host {
    /// The first host.
    pub const A: Self = Self(0);
    /// The second host.
    pub const B: Self = Self(1);

    /// Address of the host inside the emulation. Numbers are below [`MAX_HOSTS`].
    pub const fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST.to_bits() + self.0 as u32)
    }

    /// Host with this address, if any.
    fn at(address: Ipv4Addr) -> Option<Self> {
        let number = address.to_bits().checked_sub(FIRST.to_bits())?;
        let number = u16::try_from(number).ok()?;
        (number < MAX_HOSTS).then_some(Self(number))
    }
}

/// Connectivity from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRoute {
    /// Sender.
    pub from: Host,
    /// Receiver, different from the sender.
    pub to: Host,
    /// Route in the network. Several pairs may share a route.
    pub route: RouteId,
}

impl HostRoute {
    /// From `a` to `b` along `forth`, and from `b` to `a` along `back`.
    pub const fn both(a: Host, b: Host, forth: RouteId, back: RouteId) -> [Self; 2] {
        let there = Self {
            from: a,
            to: b,
            route: forth,
        };
        let here = Self {
            from: b,
            to: a,
            route: back,
        };
        [there, here]
    }
}

/// Namespaces with a device each, not yet connected. Packets sent before are lost, such as the IPv6
/// router solicitations that the kernel sends immediately.
#[derive(Debug)]
pub struct UnconnectedHosts {
    hosts: Vec<(Namespace, Tun)>,
}

impl UnconnectedHosts {
    /// Creates `count` namespaces. This takes milliseconds each, and longer while the kernel
    /// removes those of an earlier run, so it should precede the start of the clock.
    ///
    /// # Errors
    ///
    /// `count` exceeds [`MAX_HOSTS`], or a system feature is missing (see
    /// [`availability`](crate::netns::availability)).
    pub fn new(count: u16) -> Result<Self, EmulatorError> {
        if count > MAX_HOSTS {
            return Err(EmulatorError::NoHost(Host(count - 1)));
        }
        let furnished = (0..count).map(|number| furnish(Host(number)));
        Ok(Self {
            hosts: furnished.collect::<Result<_, _>>()?,
        })
    }

    /// Namespace of a host, to run programs in. Panics if the host does not exist.
    pub fn namespace(&self, host: Host) -> &Namespace {
        &self.hosts[usize::from(host.0)].0
    }
}

/// A running emulator. Dropping it stops it.
#[derive(Debug)]
pub struct Emulator {
    namespaces: Vec<Namespace>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<Finished>>>,
}

impl Emulator {
    /// Creates namespaces and devices, and starts the thread.
    ///
    /// # Errors
    ///
    /// The network is invalid, or a system feature is missing (see
    /// [`availability`](crate::netns::availability)).
    pub fn start(config: &EmulatorConfig) -> Result<Self, EmulatorError> {
        let hosts = hosts(config)?;
        // Before the creation of hosts, which is slow, so that errors are reported early.
        let network = Network::new(&config.network, config.seed).map_err(EmulatorError::Network)?;
        Self::run(UnconnectedHosts::new(hosts)?, network, config)
    }

    /// Starts the thread for existing hosts.
    ///
    /// # Errors
    ///
    /// The network is invalid, or a pair contains an unknown host.
    pub fn join(hosts: UnconnectedHosts, config: &EmulatorConfig) -> Result<Self, EmulatorError> {
        let (there, wanted) = (hosts.hosts.len(), self::hosts(config)?);
        if usize::from(wanted) > there {
            return Err(EmulatorError::UnknownHost(Host(wanted - 1)));
        }
        let network = Network::new(&config.network, config.seed).map_err(EmulatorError::Network)?;
        Self::run(hosts, network, config)
    }

    fn run(
        hosts: UnconnectedHosts,
        network: Network<Frame>,
        config: &EmulatorConfig,
    ) -> Result<Self, EmulatorError> {
        let count = hosts.hosts.len();
        let mut namespaces = Vec::with_capacity(count);
        let mut ports = Vec::with_capacity(count);
        for (number, (namespace, tun)) in hosts.hosts.into_iter().enumerate() {
            let mut routes = vec![None; count];
            let ways = config.routes.iter();
            for way in ways.filter(|way| usize::from(way.from.0) == number) {
                routes[usize::from(way.to.0)] = Some(way.route);
            }
            // Earlier packets predate the clock, and would distort the unread times.
            let mut forgotten = [0; MTU];
            while tun
                .read(&mut forgotten)
                .map_err(EmulatorError::System)?
                .is_some()
            {}
            namespaces.push(namespace);
            ports.push(Port { tun, routes });
        }
        let stop = Arc::new(events::eventfd().map_err(EmulatorError::System)?);
        let conditions = EngineConfig {
            clock: config.clock,
            end: config.clock.now() + config.limit,
            granularity: config.granularity,
            tolerance: config.tolerance,
            log: config.log,
        };
        let engine =
            Engine::new(ports, network, &stop, conditions).map_err(EmulatorError::System)?;
        let thread = thread::Builder::new()
            .name("emulator".into())
            .spawn(move || engine.run())
            .map_err(EmulatorError::System)?;
        Ok(Self {
            namespaces,
            stop,
            thread: Some(thread),
        })
    }

    /// Namespace of a host, to run programs in. Panics if the host does not exist.
    pub fn namespace(&self, host: Host) -> &Namespace {
        &self.namespaces[usize::from(host.0)]
    }

    /// Stops the emulator and returns its report. Packets in flight are not delivered.
    ///
    /// # Errors
    ///
    /// A device failed, or the thread panicked.
    pub fn stop(mut self) -> Result<(EmulatorReport, EmulatorLog), EmulatorError> {
        let mut finished = match self.halt() {
            Some(Ok(result)) => result.map_err(EmulatorError::System)?,
            _ => return Err(EmulatorError::Panicked),
        };
        for namespace in &self.namespaces {
            let drops = namespace.transmit_drops(DEVICE);
            finished.report.overruns += drops.map_err(EmulatorError::Namespace)?;
        }
        finished.report.kept_up &= finished.report.overruns == 0;
        Ok((finished.report, finished.log))
    }

    /// Whether the emulator has stopped by itself.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn halt(&mut self) -> Option<thread::Result<io::Result<Finished>>> {
        events::ring(self.stop.as_fd());
        self.thread.take().map(JoinHandle::join)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // A destructor cannot report an error.
        let _ = self.halt();
    }
}

/// Error of an emulator.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// A namespace or its interface.
    #[error("{0}")]
    Namespace(NetnsError),
    /// The network is invalid.
    #[error("{0}")]
    Network(NetworkError),
    /// The host number is too large.
    #[error("there is no host {}: hosts have numbers below {MAX_HOSTS}", .0.0)]
    NoHost(Host),
    /// The route does not exist in the network.
    #[error("the network has no route {}", .0.0)]
    NoRoute(RouteId),
    /// No pair of hosts is connected.
    #[error("no pair of hosts is connected: add routes between hosts")]
    NoRoutes,
    /// The host is not among the existing ones.
    #[error("a pair contains host {}, which does not exist: create more hosts", .0.0)]
    UnknownHost(Host),
    /// The thread panicked.
    #[error("the emulator thread panicked; see its message")]
    Panicked,
    /// The router of a site.
    #[error("a site of the lab: {0}")]
    Site(TcpConfigError),
    /// A timer, the event queue, or a device failed.
    #[error("a device, timer or event queue failed: {0}")]
    System(io::Error),
    /// A pair has the same host twice. The kernel delivers such packets locally.
    #[error("a route from host {} to itself: the kernel delivers such packets locally, omit it", .0.0)]
    ToItself(Host),
    /// A TUN device.
    #[error("{0}")]
    Tun(TunError),
    /// A pair of hosts has two routes.
    #[error("two routes from host {} to host {}: use other hosts for the second flow", .0.0, .1.0)]
    DuplicateRoute(Host, Host),
}

/// Number of hosts, after validation of all pairs.
fn hosts(config: &EmulatorConfig) -> Result<u16, EmulatorError> {
    let mut most = None;
    for (i, way) in config.routes.iter().enumerate() {
        let number = way.from.max(way.to);
        if number.0 >= MAX_HOSTS {
            return Err(EmulatorError::NoHost(number));
        }
        if way.from == way.to {
            return Err(EmulatorError::ToItself(way.from));
        }
        if way.route.0 >= config.network.routes.len() {
            return Err(EmulatorError::NoRoute(way.route));
        }
        let ends = |way: &HostRoute| (way.from, way.to);
        if config.routes[..i]
            .iter()
            .any(|other| ends(other) == ends(way))
        {
            return Err(EmulatorError::DuplicateRoute(way.from, way.to));
        }
        most = most.max(Some(number));
    }
    most.map(|host| host.0 + 1).ok_or(EmulatorError::NoRoutes)
}

fn furnish(host: Host) -> Result<(Namespace, Tun), EmulatorError> {
    let namespace = Namespace::new().map_err(EmulatorError::Namespace)?;
    let tun = Tun::open(&namespace, DEVICE).map_err(EmulatorError::Tun)?;
    let interface = Interface {
        address: host.address(),
        prefix: PREFIX,
        mtu: MTU as u16,
        queue: KERNEL_QUEUE,
    };
    namespace
        .configure(DEVICE, interface)
        .map_err(EmulatorError::Namespace)?;
    Ok((namespace, tun))
}

/// Maximum number of hosts. The table of pairs then has 16 MiB. The limit of open files may be
/// lower: each host needs [`FILES_PER_HOST`].
pub const MAX_HOSTS: u16 = 1_024;
/// Open files per host: its namespace and its device.
pub const FILES_PER_HOST: u64 = 2;
/// Address of the first host. All hosts are in one network.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const PREFIX: u8 = 16;
/// Name of the device in each namespace.
const DEVICE: &str = "tide0";
/// Ethernet MTU.
const MTU: usize = 1_500;
/// Queue length of the device in packets: 20 ms at 250,000 packets per second.
const KERNEL_QUEUE: u16 = 5_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_hosts() {
        for number in 0..MAX_HOSTS {
            let host = Host(number);
            assert_eq!(Host::at(host.address()), Some(host));
        }
        let last = Host(MAX_HOSTS - 1).address();
        assert_eq!(last, Ipv4Addr::new(10, 77, 4, 0));
        // Includes the network address and the broadcast address.
        let strangers = [
            [10, 77, 0, 0],
            [10, 77, 4, 1],
            [10, 77, 255, 255],
            [10, 78, 0, 1],
            [224, 0, 0, 1],
        ];
        assert_eq!(strangers.map(|octets| Host::at(octets.into())), [None; 5]);
    }

    #[test]
    fn invalid_pairs_are_errors() {
        let way = |from, to, route| HostRoute {
            from: Host(from),
            to: Host(to),
            route: RouteId(route),
        };
        let network = NetworkConfig {
            links: vec![],
            routes: vec![vec![], vec![]],
        };
        let message = |ways: &[HostRoute]| {
            let config = EmulatorConfig {
                routes: ways.to_vec(),
                ..EmulatorConfig::new(network.clone())
            };
            hosts(&config).map_err(|e| e.to_string())
        };
        assert_eq!(message(&[way(0, 4, 0), way(4, 0, 0)]), Ok(5));
        let starts = |ways: &[HostRoute], text: &str| {
            let message = message(ways).unwrap_err();
            assert!(message.starts_with(text), "{message}");
        };
        let config = EmulatorConfig::new(network.clone());
        let none = UnconnectedHosts { hosts: vec![] };
        let refusal = Emulator::join(none, &config).unwrap_err().to_string();
        assert!(
            refusal.starts_with("a pair contains host 1, which"),
            "{refusal}"
        );
        let refusal = UnconnectedHosts::new(MAX_HOSTS + 1)
            .unwrap_err()
            .to_string();
        assert!(refusal.starts_with("there is no host 1024"), "{refusal}");
        starts(&[], "no pair of hosts is connected");
        starts(&[way(0, 1_024, 0)], "there is no host 1024");
        starts(&[way(0, 1, 2)], "the network has no route 2");
        starts(&[way(3, 3, 0)], "a route from host 3 to itself");
        starts(
            &[way(0, 1, 0), way(0, 1, 1)],
            "two routes from host 0 to host 1",
        );
    }
}
