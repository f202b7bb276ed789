//! Queue disciplines.

mod droptail;
mod red;

use core::fmt::Debug;

use super::Packet;
use crate::units::{Bytes, Time};

pub use droptail::{DropTail, DropTailConfig, Limit};
pub use red::{Red, RedConfig};

/// What waits for a transmitter, and who may.
///
/// The discipline acts at the times that it is given, which are logical: the transmitter asks
/// at the moment at which its last packet is out, not when somebody polls it.
pub trait Queue<P: Packet>: Debug + Send {
    /// `packet` arrives.
    fn enqueue(&mut self, at: Time, packet: P) -> Verdict;

    /// The transmitter is free at `at` and asks for a packet. `None` means that it idles until
    /// the next one arrives.
    fn dequeue(&mut self, at: Time) -> Option<P>;

    /// How many packets wait. The one in transmission does not.
    fn len(&self) -> usize;

    /// How much waits.
    fn bytes(&self) -> Bytes;

    /// Whether nothing waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a queue did with a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It waits.
    Accepted,
    /// It is gone.
    Dropped,
    /// It waits, and says that there is congestion.
    Marked,
}

/// Which discipline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueConfig {
    /// First in, first out, up to a limit.
    DropTail(DropTailConfig),
    /// Random early detection.
    Red(RedConfig),
}
