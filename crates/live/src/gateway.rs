//! Aggregation point of the Coordination Protocol in user space: a bridge between two interfaces.
//!
//! A [`Gateway`] forwards each frame of one interface to the other one. CP headers of the configured
//! sites pass through the state machine of [`tidegate_core::aggregate`]; all other frames remain
//! unchanged. The interfaces need no addresses, and the endpoints no other route.

mod port;

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use rand_core::Rng;
use tidegate_core::aggregate::bridge::{Bridge, BridgeCounters, Frame, Passage};
use tidegate_core::aggregate::sites::{SiteRule, SiteTable};
use tidegate_core::aggregate::{
    AggregateConfig, ApplicationKey, ApplicationState, Counters, Direction,
};
use tidegate_core::control::Context;
use tidegate_core::units::Time;
use tidegate_core::wire::cp::MAX_SHARES;

use crate::clock::Clock;
use crate::driver::StopFlag;
use crate::events::{Events, Ready};
use crate::realtime;

pub use port::{Port, PortError, PortFrame, Received, Sent};

/// Configuration of a [`Gateway`].
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayConfig {
    /// Interface to the endpoints of this site.
    pub site_interface: String,
    /// Interface to the other sites; empty if the kernel forwards.
    pub path_interface: String,
    /// State machine.
    pub aggregation: AggregateConfig,
    /// Other sites, in the order in which they are compared with a packet.
    pub remote: Vec<SiteRule>,
}

impl GatewayConfig {
    /// Checks all values.
    ///
    /// # Errors
    ///
    /// The first value that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let aggregation = &self.aggregation;
        let checks = [
            (
                self.site_interface != self.path_interface,
                ConfigError::SameInterface,
            ),
            (!self.remote.is_empty(), ConfigError::NoSite),
            (
                (1..=MAX_SHARES).contains(&aggregation.max_shares),
                ConfigError::Range("max_shares", 1, MAX_SHARES.into()),
            ),
            (
                (1..=64).contains(&aggregation.reordering),
                ConfigError::Range("reordering", 1, 64),
            ),
            (
                (1..=MAX_APPLICATIONS).contains(&aggregation.max_applications),
                ConfigError::Range("max_applications", 1, MAX_APPLICATIONS as u64),
            ),
            (
                (SHORTEST_IDLE..=LONGEST_IDLE).contains(&aggregation.idle),
                ConfigError::Range("idle_ms", 1_000, 3_600_000),
            ),
        ];
        if let Some((_, error)) = checks.into_iter().find(|(is_valid, _)| !is_valid) {
            return Err(error);
        }
        let is_empty = |rule: &SiteRule| rule.hosts.is_empty() || rule.ports.is_empty();
        match self.remote.iter().position(is_empty) {
            Some(number) => Err(ConfigError::EmptySite(number + 1)),
            None => Ok(()),
        }
    }
}

/// An invalid [`GatewayConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A site has no hosts or no ports. Contains its place, from one on.
    #[error("site {0} has no `hosts` or no `ports`: give at least one of each")]
    EmptySite(usize),
    /// There is no other site.
    #[error("there is no other site: add a table [[remote]]")]
    NoSite,
    /// A number is out of its range. Contains the key, and the smallest and largest value.
    #[error("`{0}` is out of range: give a number from {1} to {2}")]
    Range(&'static str, u64, u64),
    /// Both interfaces are the same.
    #[error("both interfaces are the same: a gateway is between two")]
    SameInterface,
}

/// An aggregation point between two interfaces.
#[derive(Debug)]
pub struct Gateway {
    bridge: Bridge,
    /// To the site, and to the path.
    ports: [Port; 2],
    clock: Clock,
    counters: PortCounters,
    frame: PortFrame,
}

/// Irregularities at the interfaces since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames larger than the MTU of the other interface.
    pub too_large: u64,
    /// Frames that a full queue or an inactive interface has not taken.
    pub not_sent: u64,
    /// Notifications to endpoints that were sent.
    pub notifications: u64,
    /// Of an aggregation point in the kernel: batches of several datagrams, which pass unchanged.
    pub batches: u64,
    /// Frames with an offload that the kernel cannot describe to a packet socket, which are lost.
    /// Of one in the kernel: packets that could not be changed.
    pub failed: u64,
    /// Of one in the kernel: samples that found no space.
    pub missed: u64,
}

/// State of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayState {
    /// Time of the state.
    pub at: Time,
    /// Applications in the order of their sites.
    pub applications: Vec<(ApplicationKey, ApplicationState)>,
    /// Packets of applications.
    pub packets: Counters,
    /// All frames.
    pub frames: BridgeCounters,
    /// Frames that were not forwarded.
    pub ports: PortCounters,
}

impl Gateway {
    /// Opens both interfaces in the namespace of this thread.
    ///
    /// # Errors
    ///
    /// See [`GatewayError`]. Requires `CAP_NET_RAW`.
    pub fn open(config: &GatewayConfig, clock: Clock) -> Result<Self, GatewayError> {
        config.validate().map_err(GatewayError::Config)?;
        let open = |name: &String| {
            Port::open(name).map_err(|cause| GatewayError::Port {
                interface: name.clone(),
                cause,
            })
        };
        let ports = [open(&config.site_interface)?, open(&config.path_interface)?];
        if ports[0].medium() != ports[1].medium() {
            return Err(GatewayError::DifferentMedia);
        }
        let sites = SiteTable(config.remote.clone());
        Ok(Self {
            bridge: Bridge::new(config.aggregation.clone(), sites),
            ports,
            clock,
            counters: PortCounters::default(),
            frame: PortFrame::new(),
        })
    }

    /// Forwards frames until the flag is set, until `end`, or until `is_over` when the flag wakes it, and
    /// reports the state every second.
    ///
    /// # Errors
    ///
    /// An interface was removed, or the system failed.
    pub fn run(
        &mut self,
        stop: &StopFlag,
        end: Option<Time>,
        rng: &mut dyn Rng,
        is_over: impl Fn() -> bool,
        mut each_second: impl FnMut(GatewayState),
    ) -> Result<(), GatewayError> {
        // Without it, other threads delay the packets.
        realtime::ask(PRIORITY);
        let sources = self.ports.iter().map(|port| port.as_fd());
        let events = Events::new(sources, stop.event(), self.clock);
        let mut events = events.map_err(GatewayError::System)?;
        let mut ready = Ready::default();
        let end = end.unwrap_or(Time::FAR);
        let mut report = self.clock.now() + SECOND;
        while !stop.is_set() {
            let timer = self.bridge.point().next_timeout();
            let timer = timer.map_or(Time::FAR, |(at, _)| at);
            let next = timer.min(report).min(end);
            events
                .wait(next, &mut ready)
                .map_err(GatewayError::System)?;
            if ready.woken() {
                stop.clear_wake();
                if is_over() {
                    break;
                }
            }
            for &source in ready.sources() {
                self.take(source, rng)?;
            }
            let now = self.clock.now();
            self.on_timeout(now, rng);
            if now >= report {
                each_second(self.state(now));
                // Seconds that passed while the process was suspended have no report.
                while report <= now {
                    report += SECOND;
                }
            }
            if now >= end {
                break;
            }
        }
        Ok(())
    }

    /// State now.
    pub fn state(&self, now: Time) -> GatewayState {
        GatewayState {
            at: now,
            applications: self.bridge.point().applications(now).collect(),
            packets: self.bridge.point().counters(),
            frames: self.bridge.counters(),
            ports: self.counters,
        }
    }

    fn on_timeout(&mut self, now: Time, rng: &mut dyn Rng) {
        let mut cx = Context {
            now,
            rng,
            trace: &mut (),
        };
        self.bridge.on_timeout(&mut cx);
    }

    /// Forwards the waiting frames of a port, up to [`READS`].
    fn take(&mut self, source: usize, rng: &mut dyn Rng) -> Result<(), GatewayError> {
        let (direction, other) = if source == SITE {
            (Direction::Outbound, PATH)
        } else {
            (Direction::Inbound, SITE)
        };
        for _ in 0..READS {
            match self.ports[source].receive(&mut self.frame) {
                Ok(Received::Frame) => {}
                Ok(Received::Nothing) => return Ok(()),
                Ok(Received::TooLong) => {
                    self.counters.too_large += 1;
                    continue;
                }
                Ok(Received::Undescribed) => {
                    self.counters.failed += 1;
                    continue;
                }
                Err(cause) => return Err(self.lost(source, cause)),
            }
            let mut cx = Context {
                now: self.clock.now(),
                rng: &mut *rng,
                trace: &mut (),
            };
            let (checksum, segment) = (self.frame.checksum(), self.frame.segment());
            let frame = Frame {
                medium: self.ports[source].medium(),
                checksum,
                segment,
                bytes: self.frame.bytes_mut(),
            };
            let notice = match self.bridge.pass(&mut cx, direction, frame) {
                Passage::Drop => continue,
                Passage::Forward => None,
                Passage::Notify(notice) => Some(notice),
            };
            let sent = self.ports[other].send(&self.frame);
            let sent = sent.map_err(|cause| self.lost(other, cause))?;
            self.count(sent);
            // The point sends nothing of its own unless it has forwarded a packet.
            if let Some(notice) = notice.filter(|_| sent == Sent::Yes) {
                let sent = self.ports[source].send_plain(&notice);
                let sent = sent.map_err(|cause| self.lost(source, cause))?;
                self.counters.notifications += u64::from(sent == Sent::Yes);
            }
        }
        Ok(())
    }

    fn count(&mut self, sent: Sent) {
        match sent {
            Sent::Yes => {}
            Sent::TooLarge => self.counters.too_large += 1,
            Sent::No => self.counters.not_sent += 1,
        }
    }

    fn lost(&self, port: usize, cause: io::Error) -> GatewayError {
        GatewayError::Lost {
            interface: self.ports[port].name().to_owned(),
            cause,
        }
    }
}

/// Error of a gateway.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The configuration is invalid.
    #[error("{0}")]
    Config(ConfigError),
    /// One interface has Ethernet headers, the other none.
    #[error("one interface has Ethernet frames, the other one IP packets: use two of one kind")]
    DifferentMedia,
    /// An interface was removed, or failed.
    #[error("the interface `{interface}` failed: {cause}")]
    Lost {
        /// Name of the interface.
        interface: String,
        /// Error of the system.
        cause: io::Error,
    },
    /// An interface could not be opened.
    #[error("cannot open the interface `{interface}`: {cause}")]
    Port {
        /// Name of the interface.
        interface: String,
        /// Reason.
        cause: PortError,
    },
    /// A timer or the event queue failed.
    #[error("a timer or event queue failed: {0}")]
    System(io::Error),
}

/// Places of the ports.
const SITE: usize = 0;
const PATH: usize = 1;
const SECOND: Duration = Duration::from_secs(1);
/// Frames of a port after which the other one is looked at.
const READS: usize = 64;
/// That of the emulator's thread.
const PRIORITY: libc::c_int = 40;
/// A new application is compared with all others, up to 100,000 times a second if they are spoofed.
const MAX_APPLICATIONS: usize = 1_024;
const SHORTEST_IDLE: Duration = Duration::from_secs(1);
const LONGEST_IDLE: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::aggregate::sites::Numbers;

    fn config() -> GatewayConfig {
        GatewayConfig {
            site_interface: "eth0".into(),
            path_interface: "eth1".into(),
            aggregation: AggregateConfig::default(),
            remote: vec![SiteRule {
                hosts: vec!["192.0.2.0/24".parse().unwrap()],
                ports: vec![Numbers::new(5_008, 5_008)],
                ..SiteRule::default()
            }],
        }
    }

    #[test]
    fn invalid_configurations_name_the_key() {
        assert_eq!(config().validate(), Ok(()));
        let message = |change: fn(&mut GatewayConfig)| {
            let mut config = config();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        let messages = [
            message(|c| c.path_interface = "eth0".into()),
            message(|c| c.remote.clear()),
            message(|c| c.remote[0].ports.clear()),
            message(|c| c.remote[0].hosts.clear()),
            message(|c| c.aggregation.max_shares = 65),
            message(|c| c.aggregation.max_shares = 0),
            message(|c| c.aggregation.reordering = 0),
            message(|c| c.aggregation.max_applications = 0),
            message(|c| c.aggregation.idle = Duration::ZERO),
        ];
        let words = [
            "both interfaces",
            "[[remote]]",
            "site 1",
            "site 1",
            "`max_shares`",
            "`max_shares`",
            "`reordering`",
            "`max_applications`",
            "`idle_ms`",
        ];
        for (message, word) in messages.iter().zip(words) {
            assert!(message.contains(word), "{message}");
        }
    }
}
