//! What limits the paths of both papers, which print nothing of it.

use core::fmt;
use core::time::Duration;

use tidegate_core::units::{Bytes, Rate};

/// The rate of a path, and how much waits in front of it before packets are lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bottleneck {
    rate: Rate,
    /// In bandwidth-delay products.
    queue: f64,
}

impl Bottleneck {
    /// A path of `rate` with a queue of so many bandwidth-delay products, of a packet of 1500 bytes
    /// at least.
    ///
    /// # Errors
    /// The rate is not within [`Bottleneck::SLOWEST`] and [`Bottleneck::FASTEST`], or the queue not
    /// within 0.01 and 100.
    pub fn new(rate: Rate, queue: f64) -> Result<Self, BottleneckFault> {
        if !(Self::SLOWEST..=Self::FASTEST).contains(&rate) {
            return Err(BottleneckFault::Rate(rate));
        }
        if !QUEUES.contains(&queue) {
            return Err(BottleneckFault::Queue(queue));
        }
        Ok(Self { rate, queue })
    }

    /// Of the path.
    pub const fn rate(self) -> Rate {
        self.rate
    }

    /// Of the queue, in bandwidth-delay products.
    pub const fn products(self) -> f64 {
        self.queue
    }

    /// Whether it is what every figure assumes unless told.
    pub(super) fn is_usual(self) -> bool {
        self == Self::default()
    }

    /// Size of the queue on a path with this round trip.
    pub(super) fn queue(self, rtt: Duration) -> Bytes {
        (self.rate * rtt.mul_f64(self.queue)).max(PACKET)
    }

    /// Behind a label, so that runs over two have two.
    pub(super) fn label(self) -> String {
        if self.is_usual() {
            return String::new();
        }
        format!(" {}bps {}bdp", self.rate.as_bps(), self.queue)
    }

    /// No video gets through less.
    pub const SLOWEST: Rate = Rate::kbps(100);
    /// Far more than the papers' video can tell from any more.
    pub const FASTEST: Rate = Rate::kbps(1_000_000);
}

impl Default for Bottleneck {
    /// What is assumed: 10 Mb/s with one bandwidth-delay product.
    fn default() -> Self {
        Self {
            rate: Rate::kbps(10_000),
            queue: 1.0,
        }
    }
}

impl fmt::Display for Bottleneck {
    /// As "10 Mb/s with one bandwidth-delay product of queue".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.rate.as_f64() / 1e6;
        if (self.queue - 1.0).abs() < f64::EPSILON {
            return write!(f, "{rate} Mb/s with one bandwidth-delay product of queue");
        }
        let queue = self.queue;
        write!(
            f,
            "{rate} Mb/s with {queue} bandwidth-delay products of queue"
        )
    }
}

/// Why there can be no such path.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum BottleneckFault {
    /// Too slow or too fast.
    Rate(Rate),
    /// Too short or too long, in bandwidth-delay products.
    Queue(f64),
}

impl fmt::Display for BottleneckFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => write!(
                f,
                "a bottleneck of {rate}: give {} to {}",
                Bottleneck::SLOWEST,
                Bottleneck::FASTEST
            ),
            Self::Queue(queue) => write!(
                f,
                "a queue of {queue} bandwidth-delay products: give {} to {}",
                QUEUES.start(),
                QUEUES.end()
            ),
        }
    }
}

impl core::error::Error for BottleneckFault {}

const QUEUES: core::ops::RangeInclusive<f64> = 0.01..=100.0;
const PACKET: Bytes = Bytes(1500);
