//! Errors of a run of a world.

use core::fmt;

use tidegate_core::control::Why;
use tidegate_core::units::Time;

use super::{MOST_DELIVERIES, MOST_PACKETS, MOST_WAKES, NodeId};

/// Error that ends a run of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorldError {
    /// A node sends packets without bound in one call.
    Flood {
        /// Name of the node.
        party: String,
        /// Time of the call.
        at: Time,
    },
    /// The peer of a node does not exist.
    NoPeer {
        /// Name of the node.
        party: String,
        /// Its peer.
        peer: NodeId,
    },
    /// Nodes answer each other without bound at one instant, over a path without delay.
    Storm {
        /// Name of one of the nodes.
        party: String,
        /// The instant.
        at: Time,
    },
    /// The timer of a node expires at the same instant without bound.
    Stuck {
        /// Name of the node.
        party: String,
        /// The instant.
        at: Time,
        /// Reason for the timer, if the agent states one.
        why: Option<Why>,
    },
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flood { party, at } => write!(
                f,
                "{party} sent more than {MOST_PACKETS} packets at {at:?} and did not stop: \
                 what it sends at one moment must come to an end"
            ),
            Self::NoPeer { party, peer } => write!(
                f,
                "{party} sends to party {}, which does not exist: add it or name another",
                peer.0
            ),
            Self::Storm { party, at } => write!(
                f,
                "more than {MOST_DELIVERIES} packets arrived at {at:?}, the last one at {party}: \
                 give the path a delay or let one side stay silent"
            ),
            Self::Stuck { party, at, why } => {
                write!(
                    f,
                    "{party} was woken more than {MOST_WAKES} times at {at:?} and asks again"
                )?;
                if let Some(why) = why {
                    write!(f, " ({why:?})")?;
                }
                f.write_str(": its on_timer must move next_timer on")
            }
        }
    }
}

impl core::error::Error for WorldError {}
