//! What browsers do, and what may be wrong with it.

use core::fmt;
use core::time::Duration;

use tidegate_core::units::{Bytes, Rate};

use crate::tcp::{SinkConfig, classic};
use crate::traffic::{Distribution, DistributionFault};

/// Parameters of a browser and the server that it talks to.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// From the end of a page to the beginning of the next, in seconds.
    pub think: Distribution,
    /// Objects of a page. Rounded at random so that the mean stays, and at least one.
    pub objects: Distribution,
    /// Payload of an object, in bytes.
    pub size: Distribution,
    /// A request on the wire, every header included.
    pub request: Bytes,
    /// What is fetched over one connection.
    pub connections: Connections,
    /// With what it begins.
    pub begin: Begin,
    /// A request is repeated when nothing was heard for so long, then for twice as long, and so on.
    pub retry: Duration,
    /// The sender of the server.
    pub tcp: classic::Config,
    /// The receiver of the client.
    pub sink: SinkConfig,
}

/// What is fetched over one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// One object, and all objects of a page at once.
    AtOnce,
    /// One object (HTTP/1.0), one after the other.
    PerObject,
    /// One page (HTTP/1.1), its objects one after the other.
    PerPage,
}

/// With what a browser begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// A page, at once.
    Page,
    /// The middle of a think time, so that many who start together do not ask together, and ask as
    /// often as later on.
    Thinking,
}

impl Default for Config {
    /// Users as measured by Barford and Crovella (Generating Representative Web Workloads, 1998):
    /// think times are Pareto of index 1.5 and mean 3 s, objects per page Pareto of index 2.43
    /// and mean 1.7, sizes log-normal with a Pareto tail of index 1.1 from 133 kB on. Our own are
    /// the cut of sizes at 10 MB, without which no run is long enough to show the mean, of
    /// requests of 350 bytes, and a connection per page.
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
    /// Looks at the parameters.
    ///
    /// # Errors
    /// The first that does not stand.
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

    /// Payload of a page on average.
    pub fn page_bytes(&self) -> f64 {
        self.objects.mean() * self.size.mean()
    }

    /// Payload per second of one browser, if a page takes `page` on average. What browsers do
    /// depends on how long they wait: on a path that is busy they offer less.
    pub fn rate(&self, page: Duration) -> Rate {
        let cycle = self.think.mean() + page.as_secs_f64();
        Rate::from_f64(8.0 * self.page_bytes() / cycle)
    }

    /// The same with think times stretched or shrunk so that `browsers` offer a payload of `load`
    /// if a page takes `page` on average; with hardly any think time where pages alone take too
    /// long for that.
    pub fn with_load(mut self, browsers: u32, load: Rate, page: Duration) -> Self {
        let cycle = 8.0 * self.page_bytes() * f64::from(browsers) / load.as_f64().max(1.0);
        let think = (cycle - page.as_secs_f64()).max(LEAST_THINK);
        self.think = self.think.scaled(think / self.think.mean());
        self
    }

    /// Segments of a transfer, the SYN not counted.
    pub(super) fn segments(&self, bytes: u64) -> u32 {
        bytes.div_ceil(self.payload()) as u32
    }

    /// An object that fits the numbers of segments.
    pub(super) fn object(&self, drawn: f64) -> u64 {
        ((drawn + 0.5) as u64).clamp(1, MOST_SEGMENTS * self.payload())
    }

    fn payload(&self) -> u64 {
        u64::from(self.tcp.packet_size - self.tcp.header_size)
    }
}

/// Why browsers cannot be built.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConfigFault {
    /// Something cannot be drawn.
    Distribution {
        /// Which.
        what: &'static str,
        /// Why.
        fault: DistributionFault,
    },
    /// Requests of this size are not possible.
    Request(Bytes),
    /// Requests are repeated without a pause.
    Retry,
    /// Packets have no room for payload.
    Segment {
        /// Size on the wire.
        packet: u32,
        /// Of it, headers.
        header: u32,
    },
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Distribution { what, fault } => write!(f, "{what}: {fault}"),
            Self::Request(size) => write!(
                f,
                "a request of {} B is not possible: write a size from 1 to 65535",
                size.0
            ),
            Self::Retry => f.write_str(
                "a request that is repeated at once never ends: write a time above 0, as 3 s",
            ),
            Self::Segment { packet, header } => write!(
                f,
                "packets of {packet} B with headers of {header} B carry nothing: make them larger"
            ),
        }
    }
}

impl core::error::Error for ConfigFault {}

/// About a gigabyte in one object; a thousand of these have numbers.
const MOST_SEGMENTS: u64 = 1 << 20;
/// Seconds.
const LEAST_THINK: f64 = 1e-3;
