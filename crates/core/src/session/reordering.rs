//! Reordering of packets on a path, and the time after which a missing packet is lost.

use core::time::Duration;

use crate::path::window::WindowMin;
use crate::units::{Time, nanos};

/// The reordering window of RFC 8985 section 6.2, with a measured extent instead of steps of a
/// quarter of the round-trip time.
///
/// The *displacement* of a packet is the time by which it fell behind packets that overtook it:
/// zero for a packet in order. As long as a packet is missing for less than the largest recent
/// displacement, it may be reordered.
#[derive(Clone, Debug)]
pub struct Reordering {
    /// Negated displacements, ns, of the last 15 to 18 seconds, as in the estimate of jitter.
    displacements: WindowMin,
}

impl Reordering {
    /// A path without reordering.
    pub fn new() -> Self {
        Self {
            displacements: WindowMin::new(MEMORY),
        }
    }

    /// Adds the displacement of a packet that arrived. Larger ones than [`MAX_DISPLACEMENT`] count
    /// as that.
    pub fn on_arrival(&mut self, now: Time, displacement: Duration) {
        let displacement = nanos(displacement.min(MAX_DISPLACEMENT));
        self.displacements.insert(now, -(displacement as i64));
    }

    /// Largest recent displacement.
    pub fn extent(&self) -> Duration {
        let largest = self.displacements.min().unwrap_or(0);
        Duration::from_nanos(largest.unsigned_abs())
    }

    /// Whether a packet was overtaken recently.
    pub fn is_observed(&self) -> bool {
        !self.extent().is_zero()
    }

    /// Time after which a missing packet is lost: at least `least`.
    pub fn window(&self, least: Duration) -> Duration {
        let extent = self.extent();
        least.max(extent + extent / HEADROOM)
    }
}

impl Default for Reordering {
    fn default() -> Self {
        Self::new()
    }
}

/// A sixth of the time for which a displacement counts.
const MEMORY: Duration = Duration::from_secs(3);
/// A quarter more than the largest displacement: of ten thousand normally distributed delays, the
/// largest is a quarter above the largest of two hundred.
const HEADROOM: u32 = 4;
/// A larger displacement is a change of the route. Waiting longer for a packet than this serves no
/// interactive stream.
pub const MAX_DISPLACEMENT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_millis(20);

    #[test]
    fn the_window_follows_the_largest_recent_displacement() {
        let (ms, mut path) = (Duration::from_millis, Reordering::new());
        assert_eq!((path.is_observed(), path.window(MIN)), (false, MIN));
        path.on_arrival(Time::from_secs(1), Duration::ZERO);
        assert!(!path.is_observed());
        path.on_arrival(Time::from_secs(2), ms(8));
        assert_eq!((path.is_observed(), path.window(MIN)), (true, MIN));
        path.on_arrival(Time::from_secs(3), ms(80));
        path.on_arrival(Time::from_secs(4), ms(4));
        assert_eq!(path.window(MIN), ms(100));
        path.on_arrival(Time::from_secs(15), Duration::ZERO);
        assert_eq!(path.window(MIN), ms(100));
        path.on_arrival(Time::from_secs(22), Duration::ZERO);
        assert_eq!((path.is_observed(), path.window(MIN)), (false, MIN));
    }

    #[test]
    fn a_change_of_the_route_does_not_stop_the_detection_of_losses() {
        let mut path = Reordering::new();
        path.on_arrival(Time::ZERO, Duration::from_secs(3));
        assert!(path.window(MIN) < Duration::from_secs(1));
    }
}
