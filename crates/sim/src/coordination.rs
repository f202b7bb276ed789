//! Cluster-to-cluster applications under the Coordination Protocol: their endpoints, and the
//! aggregation points between them.
//!
//! Packets carry the real header, which the state machines of [`tidegate_core::aggregate`] write and
//! read. The route of a flow has four parts: from the endpoint over its access link to the
//! aggregation point, over the shared links to the other point, over the exit link to the other
//! endpoint, and back in the same way. At each end of the shared links a [`Port`] passes the packets
//! of one flow through the point.

mod endpoint;
mod port;

use core::time::Duration;

use tidegate_core::aggregate::AggregateConfig;
use tidegate_core::units::Bytes;
use tidegate_core::wire::cp::{ApplicationId, Shares};

pub use endpoint::{CpEndpoint, ends};
pub use port::{Port, SharedPoint};

/// A pair of aggregation points, one at each end of the shared links.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregationPlan {
    /// Unique among links, flows, baselines and aggregations.
    pub name: String,
    /// Configuration of both points.
    pub config: AggregateConfig,
}

/// A flow of a cluster-to-cluster application.
#[derive(Clone, Debug, PartialEq)]
pub struct CpPlan {
    /// Aggregation points, as an index of the scenario's list.
    pub points: usize,
    /// Application of the flow.
    pub application: ApplicationId,
    /// Flowshares of the application.
    pub shares: Shares,
    /// Part of each flow in flowshares, above zero.
    pub part: f64,
    /// Packet size, including headers.
    pub packet: Bytes,
    /// What the receiver sends.
    pub answers: Answers,
    /// Maximum of the random processing delay of each packet.
    pub overhead: Duration,
}

/// Packets from the receiver of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Data, at the same part of the available bandwidth.
    Data,
    /// A packet of this size for each one received.
    Each(Bytes),
}
