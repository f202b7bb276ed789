//! Configuration of browsers and its validation.

use core::time::Duration;

use rand_core::Rng;
use tidegate_core::random::unit;
use tidegate_core::units::{Bytes, Rate};

use crate::tcp::{SinkConfig, classic};
use crate::traffic::{Distribution, DistributionFault};

/// Parameters of a browser and its server.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time from the end of a page to the next request, in seconds.
    pub think: Distribution,
    /// Objects per page, at least one. Rounded randomly, so that the mean is preserved.
    pub objects: Distribution,
    /// Payload of an object, in bytes.
    pub size: Distribution,
    /// Size of a request on the wire, all headers included.
    pub request: Bytes,
    /// Use of connections.
    pub connections: Connections,
    /// Initial state.
    pub begin: Begin,
    /// Initial timeout for the retransmission of a request. It doubles each time.
    pub retry: Duration,
    /// TCP sender of the server.
    pub tcp: classic::Config,
    /// TCP receiver of the client.
    pub sink: SinkConfig,
}

/// Use of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// One object per connection, all objects of a page in parallel.
    AtOnce,
    /// One object per connection (HTTP/1.0), sequentially.
    PerObject,
    /// One page per connection (HTTP/1.1), objects sequentially.
    PerPage,
}

/// Initial state of a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Requests a page at once.
    Page,
    /// In the middle of a think time (steady state), so that browsers that start together are not
    /// synchronised.
    Thinking,
}

impl Default for Config {
    /// User behaviour of Barford and Crovella (Generating Representative Web Workloads, 1998):
    /// think times are Pareto with index 1.5 and mean 3 s, objects per page Pareto with index 2.43
    /// and mean 1.7, sizes log-normal with a Pareto tail of index 1.1 from 133 kB on. Three values
    /// are choices of this implementation: the limit of 10 MB for sizes, without which the mean
    /// does not converge in a run, requests of 350 bytes, and one connection per page.
    fn default() -> Self {
        Self {
            think: Distribution::Pareto {
                shape: 1.5,
                least: 1.0,
                most: f64::INFINITY,
            },
            objects: Distribution::Pareto {
                shape: 2.43,
                least: 1.0,
                most: f64::INFINITY,
            },
            size: Distribution::BodyAndTail {
                // e^9.357.
                median: 11_580.0,
                sigma: 1.318,
                cut: 133_000.0,
                tail: 0.07,
                shape: 1.1,
                most: 1e7,
            },
            request: Bytes(350),
            connections: Connections::PerPage,
            begin: Begin::Thinking,
            retry: Duration::from_secs(3),
            tcp: classic::Config {
                flavour: classic::Flavour::NewReno,
                ..classic::Config::default()
            },
            sink: SinkConfig {
                sack_blocks: 0,
                ..SinkConfig::default()
            },
        }
    }
}

impl Config {
    /// Validates the parameters.
    ///
    /// # Errors
    /// The first invalid parameter.
    pub fn check(&self) -> Result<(), ConfigFault> {
        let fault = |what| move |fault| ConfigFault::Distribution { what, fault };
        self.think.check().map_err(fault("think time"))?;
        self.objects.check().map_err(fault("objects per page"))?;
        self.size.check().map_err(fault("object size"))?;
        if !(Bytes(1)..=Bytes(65_535)).contains(&self.request) {
            return Err(ConfigFault::Request(self.request));
        }
        if self.retry.is_zero() {
            return Err(ConfigFault::Retry);
        }
        if self.tcp.packet_size <= self.tcp.header_size {
            return Err(ConfigFault::Segment {
                packet: self.tcp.packet_size,
                header: self.tcp.header_size,
            });
        }
        Ok(())
    }

    /// Mean payload per page, in bytes.
    pub fn page_bytes(&self) -> f64 {
        self.objects.mean() * self.size.mean()
    }

    /// Mean payload rate of one browser if a page takes `page` on average. The load of a browser
    /// depends on its waiting times: it is lower on a congested path.
    pub fn rate(&self, page: Duration) -> Rate {
        let cycle = self.think.mean() + page.as_secs_f64();
        Rate::from_f64(8.0 * self.page_bytes() / cycle)
    }

    /// Scales the think times so that `browsers` together offer a payload rate of `load` if a page
    /// takes `page` on average. Think times are near zero if page load times alone exceed the
    /// budget.
    pub fn with_load(mut self, browsers: u32, load: Rate, page: Duration) -> Self {
        let cycle = 8.0 * self.page_bytes() * f64::from(browsers) / load.as_f64().max(1.0);
        let think = (cycle - page.as_secs_f64()).max(MIN_THINK);
        self.think = self.think.scaled(think / self.think.mean());
        self
    }

    /// Segments of a transfer, without the SYN.
    pub(super) fn segments(&self, bytes: u64) -> u32 {
        bytes.div_ceil(self.payload()) as u32
    }

    /// Draws the payload of an object in bytes, limited to the range of segment numbers.
    pub fn draw_size(&self, rng: &mut dyn Rng) -> u64 {
        let drawn = self.size.draw(rng);
        ((drawn + 0.5) as u64).clamp(1, MAX_SEGMENTS * self.payload())
    }

    /// Draws the number of objects of a page, from 1 to 1,000.
    pub fn draw_objects(&self, rng: &mut dyn Rng) -> u32 {
        let objects = self.objects.draw(rng) + unit(rng);
        (objects as u32).clamp(1, MAX_OBJECTS)
    }

    fn payload(&self) -> u64 {
        u64::from(self.tcp.packet_size - self.tcp.header_size)
    }
}

/// Invalid configuration of a browser.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFault {
    /// Invalid distribution.
    #[error("{what}: {fault}")]
    Distribution {
        /// Name of the parameter.
        what: &'static str,
        /// Its fault.
        fault: DistributionFault,
    },
    /// Invalid request size.
    #[error("a request of {} B is not possible: write a size from 1 to 65535", .0.0)]
    Request(Bytes),
    /// The retransmission timeout of requests is zero.
    #[error("the retransmission time-out of requests is zero: write a time above 0, as 3 s")]
    Retry,
    /// Packets have no room for payload.
    #[error(
        "packets of {packet} B with headers of {header} B have no room for payload: increase \
         the packet size"
    )]
    Segment {
        /// Packet size on the wire.
        packet: u32,
        /// Header size.
        header: u32,
    },
}

/// About a gigabyte per object. The segment numbers suffice for a thousand objects.
const MAX_SEGMENTS: u64 = 1 << 20;
/// Keeps the segment numbers of a page in range.
const MAX_OBJECTS: u32 = 1_000;
/// Seconds.
const MIN_THINK: f64 = 1e-3;
