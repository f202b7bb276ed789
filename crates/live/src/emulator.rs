//! Link emulator: the real network stack on both sides of the core's link models.
//!
//! Two network namespaces have a TUN device each. What one host sends comes out of its device,
//! enters the [`Network`] at the time of reading, and is written to the other device when the
//! network says that it arrives. The emulator says how late it was with that.

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

use tidegate_core::link::{Network, NetworkConfig, NetworkError, RouteId};
use tidegate_core::random::Seed;

use crate::clock::Clock;
use crate::events;
use crate::netns::{Interface, Namespace, NetnsError};
use crate::tun::{Tun, TunError};
use engine::{Conditions, Engine, Finished, Port};

pub use report::{Arrival, Departure, EmulatorLog, EmulatorReport};

/// What an emulator is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatorConfig {
    /// Links and routes, the same as a simulator takes.
    pub network: NetworkConfig,
    /// The route of packets from side A to side B.
    pub forth: RouteId,
    /// The route of packets from side B to side A; another one than `forth`.
    pub back: RouteId,
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
    /// How many arrivals and departures it logs; zero for none. An entry takes 40 bytes.
    pub log: usize,
}

impl EmulatorConfig {
    /// Route 0 forth and route 1 back, seed 1, a clock that starts now, at most an hour, a
    /// granularity of 50 µs, a tolerance of 1 ms, no log.
    pub fn new(network: NetworkConfig) -> Self {
        Self {
            network,
            forth: RouteId(0),
            back: RouteId(1),
            seed: Seed(1),
            clock: Clock::start(),
            limit: Duration::from_hours(1),
            granularity: Duration::from_micros(50),
            tolerance: Duration::from_millis(1),
            log: 0,
        }
    }
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where packets go forth from.
    A,
    /// Where packets go back from.
    B,
}

impl Side {
    /// Its address, which only the two namespaces know.
    pub const fn address(self) -> Ipv4Addr {
        match self {
            Self::A => Ipv4Addr::new(10, 77, 0, 1),
            Self::B => Ipv4Addr::new(10, 77, 0, 2),
        }
    }
}

/// An emulator at work. Dropping it stops it, too.
#[derive(Debug)]
pub struct Emulator {
    namespaces: [Namespace; 2],
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
        for route in [config.forth, config.back] {
            if route.0 >= config.network.routes.len() {
                return Err(EmulatorError::NoRoute(route));
            }
        }
        if config.forth == config.back {
            return Err(EmulatorError::SameRoute(config.forth));
        }
        let network = Network::new(&config.network, config.seed).map_err(EmulatorError::Network)?;
        let (a, near) = side(Side::A, config.forth)?;
        let (b, far) = side(Side::B, config.back)?;
        let stop = Arc::new(events::eventfd().map_err(EmulatorError::System)?);
        let conditions = Conditions {
            clock: config.clock,
            end: config.clock.now() + config.limit,
            granularity: config.granularity,
            tolerance: config.tolerance,
            log: config.log,
        };
        let engine =
            Engine::new([near, far], network, &stop, conditions).map_err(EmulatorError::System)?;
        let thread = thread::Builder::new()
            .name("emulator".into())
            .spawn(move || engine.run())
            .map_err(EmulatorError::System)?;
        Ok(Self {
            namespaces: [a, b],
            stop,
            thread: Some(thread),
        })
    }

    /// The namespace of a side, to run its host in.
    pub fn namespace(&self, side: Side) -> &Namespace {
        &self.namespaces[side as usize]
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
    /// There is no such route in the network.
    NoRoute(RouteId),
    /// Its thread panicked.
    Panicked,
    /// Both ways are the same route.
    SameRoute(RouteId),
    /// A timer, the event queue, or a device that is gone.
    System(io::Error),
    /// A TUN device.
    Tun(TunError),
}

impl fmt::Display for EmulatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(e) => e.fmt(f),
            Self::Network(e) => e.fmt(f),
            Self::NoRoute(route) => write!(f, "the network has no route {}", route.0),
            Self::Panicked => f.write_str("the emulator's thread panicked; see its message"),
            Self::SameRoute(route) => write!(
                f,
                "route {} is to lead both forth and back: give each way its own",
                route.0
            ),
            Self::System(e) => write!(f, "the emulator cannot go on: {e}"),
            Self::Tun(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for EmulatorError {}

fn side(side: Side, route: RouteId) -> Result<(Namespace, Port), EmulatorError> {
    let namespace = Namespace::new().map_err(EmulatorError::Namespace)?;
    let tun = Tun::open(&namespace, DEVICE).map_err(EmulatorError::Tun)?;
    let interface = Interface {
        address: side.address(),
        prefix: 30,
        mtu: MTU as u16,
        queue: KERNEL_QUEUE,
    };
    namespace
        .configure(DEVICE, interface)
        .map_err(EmulatorError::Namespace)?;
    Ok((namespace, Port { tun, route }))
}

/// The name of the device, in both namespaces.
const DEVICE: &str = "tide0";
/// Of Ethernet, as on most paths.
const MTU: usize = 1_500;
/// Packets between the kernel and the emulator: 20 ms of 250,000 packets per second.
const KERNEL_QUEUE: u16 = 5_000;
