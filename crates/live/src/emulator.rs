//! Link emulator: the real network stack on all sides of the core's link models.
//!
//! Two or more network namespaces have a TUN device each. What one host sends comes out of its
//! device, enters the [`Network`] at the time of reading, and is written to the device of the host
//! it is for when the network says that it arrives. The emulator says how late it was with that.

mod blackhole;
mod engine;
mod frame;
mod report;
mod timing;

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use tidegate_core::link::{
    LinkConfig, LinkId, NamedLink, Network, NetworkConfig, NetworkError, RouteId,
};
use tidegate_core::random::Seed;

use crate::clock::Clock;
use crate::events;
use crate::netns::{Interface, Namespace, NetnsError};
use crate::tun::{Tun, TunError};
use engine::{Conditions, Engine, Finished, Port};
use frame::Frame;

pub use blackhole::Blackhole;
pub use report::{Arrival, Departure, EmulatorLog, EmulatorReport, Segment};

/// What an emulator is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatorConfig {
    /// Links and routes, the same as a simulator takes.
    pub network: NetworkConfig,
    /// Who can send to whom, and along which route. There are as many hosts as this has numbers
    /// for, at most [`MOST_HOSTS`]. A packet without a way is lost and counted.
    pub ways: Vec<Way>,
    /// Of all luck.
    pub seed: Seed,
    /// Its zero is the zero of capacity steps and outages.
    pub clock: Clock,
    /// It stops by itself after this.
    pub limit: Duration,
    /// While packets come or go, it looks at the devices and the network once in this time, so
    /// that dense traffic costs a wake-up per look and not per packet. A packet is late by up to
    /// this at each end, and a single one is not. Zero: it looks whenever there is something.
    pub granularity: Duration,
    /// It has kept up if it read and wrote 99 of 100 packets within this.
    pub tolerance: Duration,
    /// How many arrivals and departures it logs; zero for none. An entry takes 48 bytes.
    pub log: usize,
}

impl EmulatorConfig {
    /// Two hosts, route 0 from [`Host::A`] to [`Host::B`] and route 1 back, seed 1, a clock that
    /// starts now, at most an hour, a granularity of 50 µs, a tolerance of 1 ms, no log.
    pub fn new(network: NetworkConfig) -> Self {
        Self {
            network,
            ways: Way::both(Host::A, Host::B, RouteId(0), RouteId(1)).to_vec(),
            seed: Seed(1),
            clock: Clock::start(),
            limit: Duration::from_hours(1),
            granularity: Duration::from_micros(50),
            tolerance: Duration::from_millis(1),
            log: 0,
        }
    }

    /// One link from [`Host::A`] to [`Host::B`], called `there`, and one `back`; the rest as in
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

/// A host, by its number from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host(pub u16);

impl Host {
    /// The first.
    pub const A: Self = Self(0);
    /// The second.
    pub const B: Self = Self(1);

    /// Its address, which only the hosts know. Numbers end at [`MOST_HOSTS`].
    pub const fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST.to_bits() + self.0 as u32)
    }

    /// Which host has this address, if it is one of the hosts' at all.
    fn at(address: Ipv4Addr) -> Option<Self> {
        let number = address.to_bits().checked_sub(FIRST.to_bits())?;
        let number = u16::try_from(number).ok()?;
        (number < MOST_HOSTS).then_some(Self(number))
    }
}

/// That one host can send to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Who sends.
    pub from: Host,
    /// Who receives, not the same.
    pub to: Host,
    /// Along which route of the network. Ways may share a route.
    pub route: RouteId,
}

impl Way {
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

/// Namespaces with a device each, which nobody joins yet: what a host sends until then is lost,
/// as the kernel's search for IPv6 routers, which begins at once.
#[derive(Debug)]
pub struct Hosts {
    furnished: Vec<(Namespace, Tun)>,
}

impl Hosts {
    /// Makes so many. It takes milliseconds each, and far longer while the kernel clears away
    /// those of an earlier run: time that no clock should count.
    ///
    /// # Errors
    ///
    /// They are more than [`MOST_HOSTS`], or the system does not provide
    /// ([`availability`](crate::netns::availability) says why).
    pub fn new(count: u16) -> Result<Self, EmulatorError> {
        if count > MOST_HOSTS {
            return Err(EmulatorError::NoHost(Host(count - 1)));
        }
        let furnished = (0..count).map(|number| furnish(Host(number)));
        Ok(Self {
            furnished: furnished.collect::<Result<_, _>>()?,
        })
    }

    /// The namespace of a host, to run its programs in. Panics if there is no such host.
    pub fn namespace(&self, host: Host) -> &Namespace {
        &self.furnished[usize::from(host.0)].0
    }
}

/// An emulator at work. Dropping it stops it, too.
#[derive(Debug)]
pub struct Emulator {
    namespaces: Vec<Namespace>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<Finished>>>,
}

impl Emulator {
    /// Makes the namespaces and devices and starts the thread.
    ///
    /// # Errors
    ///
    /// The network has a fault, or the system does not provide
    /// ([`availability`](crate::netns::availability) says why).
    pub fn start(config: &EmulatorConfig) -> Result<Self, EmulatorError> {
        let hosts = hosts(config)?;
        // Before the hosts, which take time: a fault should be told at once.
        let network = Network::new(&config.network, config.seed).map_err(EmulatorError::Network)?;
        Self::run(Hosts::new(hosts)?, network, config)
    }

    /// Starts the thread between hosts that are there already.
    ///
    /// # Errors
    ///
    /// The network has a fault, or a way leads to a host that is not there.
    pub fn join(hosts: Hosts, config: &EmulatorConfig) -> Result<Self, EmulatorError> {
        let (there, wanted) = (hosts.furnished.len(), self::hosts(config)?);
        if usize::from(wanted) > there {
            return Err(EmulatorError::NotMade(Host(wanted - 1)));
        }
        let network = Network::new(&config.network, config.seed).map_err(EmulatorError::Network)?;
        Self::run(hosts, network, config)
    }

    fn run(
        hosts: Hosts,
        network: Network<Frame>,
        config: &EmulatorConfig,
    ) -> Result<Self, EmulatorError> {
        let count = hosts.furnished.len();
        let mut namespaces = Vec::with_capacity(count);
        let mut ports = Vec::with_capacity(count);
        for (number, (namespace, tun)) in hosts.furnished.into_iter().enumerate() {
            let mut routes = vec![None; count];
            let ways = config.ways.iter();
            for way in ways.filter(|way| usize::from(way.from.0) == number) {
                routes[usize::from(way.to.0)] = Some(way.route);
            }
            // What waits is older than the clock, and would count as unread since it began.
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
        let conditions = Conditions {
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

    /// The namespace of a host, to run its programs in. Panics if there is no such host.
    pub fn namespace(&self, host: Host) -> &Namespace {
        &self.namespaces[usize::from(host.0)]
    }

    /// Stops it and asks what it did. What is still under way is not delivered.
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

    /// Whether it has stopped by itself.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn halt(&mut self) -> Option<thread::Result<io::Result<Finished>>> {
        events::ring(self.stop.as_raw_fd());
        self.thread.take().map(JoinHandle::join)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Nobody is left to whom a failure could be told.
        let _ = self.halt();
    }
}

/// Why there is no emulator, or no report.
#[derive(Debug)]
pub enum EmulatorError {
    /// A namespace or its interface.
    Namespace(NetnsError),
    /// The network cannot be built.
    Network(NetworkError),
    /// The number of a host is too large.
    NoHost(Host),
    /// There is no such route in the network.
    NoRoute(RouteId),
    /// No host can send to any other.
    NoWay,
    /// There is no such host among those that are to be joined.
    NotMade(Host),
    /// Its thread panicked.
    Panicked,
    /// A timer, the event queue, or a device that is gone.
    System(io::Error),
    /// A way leads from a host to itself, where the kernel takes no other.
    ToItself(Host),
    /// A TUN device.
    Tun(TunError),
    /// There are two ways from one host to another.
    TwoWays(Host, Host),
}

impl fmt::Display for EmulatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(e) => e.fmt(f),
            Self::Network(e) => e.fmt(f),
            Self::NoHost(host) => write!(
                f,
                "there is no host {}: hosts have numbers below {MOST_HOSTS}",
                host.0
            ),
            Self::NotMade(host) => write!(
                f,
                "a way leads from or to host {}, which was not made: ask for more hosts",
                host.0
            ),
            Self::NoRoute(route) => write!(f, "the network has no route {}", route.0),
            Self::NoWay => f.write_str("no host can send to any other: give the emulator ways"),
            Self::Panicked => f.write_str("the emulator's thread panicked; see its message"),
            Self::System(e) => write!(f, "the emulator cannot go on: {e}"),
            Self::ToItself(host) => write!(
                f,
                "a way leads from host {} to itself: the kernel keeps such packets, leave it out",
                host.0
            ),
            Self::Tun(e) => e.fmt(f),
            Self::TwoWays(from, to) => write!(
                f,
                "two ways lead from host {} to host {}: give the second flow hosts of its own",
                from.0, to.0
            ),
        }
    }
}

impl std::error::Error for EmulatorError {}

/// How many hosts there are, once all ways stand.
fn hosts(config: &EmulatorConfig) -> Result<u16, EmulatorError> {
    let mut most = None;
    for (i, way) in config.ways.iter().enumerate() {
        let number = way.from.max(way.to);
        if number.0 >= MOST_HOSTS {
            return Err(EmulatorError::NoHost(number));
        }
        if way.from == way.to {
            return Err(EmulatorError::ToItself(way.from));
        }
        if way.route.0 >= config.network.routes.len() {
            return Err(EmulatorError::NoRoute(way.route));
        }
        let ends = |way: &Way| (way.from, way.to);
        if config.ways[..i]
            .iter()
            .any(|other| ends(other) == ends(way))
        {
            return Err(EmulatorError::TwoWays(way.from, way.to));
        }
        most = most.max(Some(number));
    }
    most.map(|host| host.0 + 1).ok_or(EmulatorError::NoWay)
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

/// How many hosts an emulator can join. The table of ways has a place for each pair: 16 MiB with
/// so many. What the system grants may end before: each host takes [two](FILES_PER_HOST) files.
pub const MOST_HOSTS: u16 = 1_024;
/// The files that an emulator has open for each host: its namespace and its device.
pub const FILES_PER_HOST: u64 = 2;
/// The address of the first host. All of them are in one network.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const PREFIX: u8 = 16;
/// The name of the device, in each namespace.
const DEVICE: &str = "tide0";
/// Of Ethernet, as on most paths.
const MTU: usize = 1_500;
/// Packets between the kernel and the emulator: 20 ms of 250,000 packets per second.
const KERNEL_QUEUE: u16 = 5_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_hosts() {
        for number in 0..MOST_HOSTS {
            let host = Host(number);
            assert_eq!(Host::at(host.address()), Some(host));
        }
        let last = Host(MOST_HOSTS - 1).address();
        assert_eq!(last, Ipv4Addr::new(10, 77, 4, 0));
        // None of them is the address of the network or that of everybody in it.
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
    fn ways_that_lead_nowhere_are_named() {
        let way = |from, to, route| Way {
            from: Host(from),
            to: Host(to),
            route: RouteId(route),
        };
        let network = NetworkConfig {
            links: vec![],
            routes: vec![vec![], vec![]],
        };
        let message = |ways: &[Way]| {
            let config = EmulatorConfig {
                ways: ways.to_vec(),
                ..EmulatorConfig::new(network.clone())
            };
            hosts(&config).map_err(|e| e.to_string())
        };
        assert_eq!(message(&[way(0, 4, 0), way(4, 0, 0)]), Ok(5));
        let starts = |ways: &[Way], text: &str| {
            let message = message(ways).unwrap_err();
            assert!(message.starts_with(text), "{message}");
        };
        let config = EmulatorConfig::new(network.clone());
        let none = Hosts { furnished: vec![] };
        let refusal = Emulator::join(none, &config).unwrap_err().to_string();
        assert!(
            refusal.starts_with("a way leads from or to host 1, which"),
            "{refusal}"
        );
        let refusal = Hosts::new(MOST_HOSTS + 1).unwrap_err().to_string();
        assert!(refusal.starts_with("there is no host 1024"), "{refusal}");
        starts(&[], "no host can send");
        starts(&[way(0, 1_024, 0)], "there is no host 1024");
        starts(&[way(0, 1, 2)], "the network has no route 2");
        starts(&[way(3, 3, 0)], "a way leads from host 3 to itself");
        starts(
            &[way(0, 1, 0), way(0, 1, 1)],
            "two ways lead from host 0 to host 1",
        );
    }
}
