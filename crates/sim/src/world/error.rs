//! Errors of a run of a world.

use core::fmt;

use tidegate_core::control::TimerReason;
use tidegate_core::units::Time;

use super::{MAX_DELIVERIES, MAX_PACKETS, MAX_WAKES, NodeId};

/// Error that ends a run of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorldError {
    /// A node sends packets without bound in one call.
    Flood {
        /// Name of the node.
        node: String,
        /// Time of the call.
        at: Time,
    },
    /// The peer of a node does not exist.
    NoPeer {
        /// Name of the node.
        node: String,
        /// Its peer.
        peer: NodeId,
    },
    /// Nodes answer each other without bound at one instant, over a path without delay.
    Storm {
        /// Name of one of the nodes.
        node: String,
        /// The instant.
        at: Time,
    },
    /// The timer of a node expires at the same instant without bound.
    Stuck {
        /// Name of the node.
        node: String,
        /// The instant.
        at: Time,
        /// Reason for the timer, if the agent states one.
        why: Option<TimerReason>,
    },
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flood { node, at } => write!(
                f,
                "node {node} sent more than {MAX_PACKETS} packets in one call at {at:?}: \
                 limit the packets per call"
            ),
            Self::NoPeer { node, peer } => write!(
                f,
                "node {node} sends to node {}, which does not exist: add it or change the peer",
                peer.0
            ),
            Self::Storm { node, at } => write!(
                f,
                "more than {MAX_DELIVERIES} packets arrived at {at:?}, the last one at node {node}: \
                 add a delay to the path or stop one side from answering"
            ),
            Self::Stuck { node, at, why } => {
                write!(
                    f,
                    "the timer of node {node} expired more than {MAX_WAKES} times at {at:?}"
                )?;
                if let Some(why) = why {
                    write!(f, " ({why:?})")?;
                }
                f.write_str(": on_timer must advance next_timer")
            }
        }
    }
}

impl core::error::Error for WorldError {}
