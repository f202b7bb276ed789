//! Bottleneck of the paths of both papers, which do not state it.

use core::fmt;
use core::time::Duration;

use tidegate_core::units::{Bytes, Rate};

/// Rate and queue limit of a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bottleneck {
    rate: Rate,
    /// Queue limit in bandwidth-delay products.
    queue: f64,
}

impl Bottleneck {
    /// A bottleneck of `rate` with a queue of `queue` bandwidth-delay products, but at least one
    /// packet of 1500 bytes.
    ///
    /// # Errors
    /// The rate is not within [`Bottleneck::SLOWEST`] and [`Bottleneck::FASTEST`], or the queue not
    /// within 0.01 and 100.
    pub fn new(rate: Rate, queue: f64) -> Result<Self, BottleneckError> {
        if !(Self::SLOWEST..=Self::FASTEST).contains(&rate) {
            return Err(BottleneckError::Rate(rate));
        }
        if !QUEUES.contains(&queue) {
            return Err(BottleneckError::Queue(queue));
        }
        Ok(Self { rate, queue })
    }

    /// Rate of the bottleneck.
    pub const fn rate(self) -> Rate {
        self.rate
    }

    /// Queue limit in bandwidth-delay products.
    pub const fn queue_bdp(self) -> f64 {
        self.queue
    }

    /// Whether the bottleneck is the default.
    pub(super) fn is_usual(self) -> bool {
        self == Self::default()
    }

    /// Queue limit in bytes on a path with this round-trip time.
    pub(super) fn queue(self, rtt: Duration) -> Bytes {
        (self.rate * rtt.mul_f64(self.queue)).max(PACKET)
    }

    /// Suffix of a run's label; empty for the default.
    pub(super) fn label(self) -> String {
        if self.is_usual() {
            return String::new();
        }
        format!(" {}bps {}bdp", self.rate.as_bps(), self.queue)
    }

    /// Lower limit of the rate: less is not enough for the video.
    pub const SLOWEST: Rate = Rate::kbps(100);
    /// Upper limit of the rate: a higher rate makes no difference to the papers' video.
    pub const FASTEST: Rate = Rate::kbps(1_000_000);
}

impl Default for Bottleneck {
    /// The assumption for all figures: 10 Mb/s with one bandwidth-delay product.
    fn default() -> Self {
        Self {
            rate: Rate::kbps(10_000),
            queue: 1.0,
        }
    }
}

impl fmt::Display for Bottleneck {
    /// Text such as "10 Mb/s with one bandwidth-delay product of queue".
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

/// Error in the parameters of a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BottleneckError {
    /// The rate is out of range.
    #[error(
        "bottleneck of {} out of range: use {} to {}",
        .0, Bottleneck::SLOWEST, Bottleneck::FASTEST
    )]
    Rate(Rate),
    /// The queue is out of range, in bandwidth-delay products.
    #[error(
        "queue of {} bandwidth-delay products out of range: use {} to {}",
        .0, QUEUES.start(), QUEUES.end()
    )]
    Queue(f64),
}

const QUEUES: core::ops::RangeInclusive<f64> = 0.01..=100.0;
const PACKET: Bytes = Bytes(1500);
