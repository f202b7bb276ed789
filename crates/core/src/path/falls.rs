//! Sudden falls of the rate of a path.

use std::collections::VecDeque;

use super::Neighbour;

/// Rate at which the newest packets left the queue, if each waited longer than the one before,
/// and if that is well below the delivered rate before them: the path has become slower. Jitter and
/// batches do not delay packet after packet. A small packet may wait a little less. `delivered` is the
/// present rate and `size` that of a packet.
///
/// The delivered rate may have fallen as deep: three packets of a path that carries 0.2 Mb/s take as long
/// as its window. The largest of the last seconds would take the gradual arrival of a TCP flow for a fall.
pub(super) fn newest(
    received: &VecDeque<Neighbour>,
    jitter: f64,
    delivered: f64,
    size: f64,
) -> Option<f64> {
    let newest = received.back()?;
    let least = RISE + 3.0 * jitter.min(MAX_JITTER);
    let (mut bytes, mut first) = (0.0, newest);
    for earlier in received.iter().rev().skip(1).take(PACKETS) {
        let gap = first.sent - earlier.sent;
        let is_busy = earlier.queue > gap && first.at > earlier.at;
        if earlier.queue > first.queue + DIP || !is_busy {
            return None;
        }
        bytes += first.size;
        first = earlier;
        if newest.queue - first.queue > least && bytes > 2.5 * size {
            // Earlier packets may be those before the fall.
            let rate = bytes / (newest.at - first.at);
            return (rate < FALL * delivered.max(first.rate)).then_some(rate);
        }
    }
    None
}

/// A path that has become slower delays packet after packet, in sum by this many seconds, and serves
/// them at this part of the delivered rate: a TCP flow that starts, or a key frame of another stream,
/// takes longer for it.
const RISE: f64 = 0.015;
const FALL: f64 = 0.6;
/// How much less a small packet may wait, in seconds.
const DIP: f64 = 0.002;
/// Packets in which this is seen.
pub(super) const PACKETS: usize = 16;
/// The jitter estimate includes the queue that a fall causes.
const MAX_JITTER: f64 = 0.01;
