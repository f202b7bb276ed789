//! Why a world cannot go on.

use core::fmt;

use tidegate_core::control::Why;
use tidegate_core::units::Time;

use super::{MOST_DELIVERIES, MOST_PACKETS, MOST_WAKES, NodeId};

/// Why a world cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorldError {
    /// A party sends without end at one moment.
    Flood {
        /// Its name.
        party: String,
        /// The moment.
        at: Time,
    },
    /// A party is given a peer that does not exist.
    NoPeer {
        /// Its name.
        party: String,
        /// The peer.
        peer: NodeId,
    },
    /// Parties answer each other without end at one moment, over a path without delay.
    Storm {
        /// The name of one of them.
        party: String,
        /// The moment.
        at: Time,
    },
    /// A party asks over and over to be woken at the same moment.
    Stuck {
        /// Its name.
        party: String,
        /// The moment.
        at: Time,
        /// What it gives as its reason, if it has one.
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
