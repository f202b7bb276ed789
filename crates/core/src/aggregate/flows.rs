//! Flows of an application that have sent recently.

use core::time::Duration;

use crate::units::Time;

/// Counts flows, up to [`MAX`].
#[derive(Clone, Debug, Default)]
pub(super) struct Flows {
    /// Latest packet of each flow, in the order of the flows.
    seen: Vec<(u16, Time)>,
}

impl Flows {
    /// A flow has sent a packet.
    pub(super) fn add(&mut self, now: Time, flow: u16) {
        match self.seen.binary_search_by_key(&flow, |(flow, _)| *flow) {
            Ok(place) => self.seen[place].1 = now,
            Err(place) if self.seen.len() < MAX => self.seen.insert(place, (flow, now)),
            Err(_) => {}
        }
    }

    /// Forgets flows that have sent nothing for `ACTIVE`.
    pub(super) fn review(&mut self, now: Time) {
        self.seen.retain(|(_, at)| now.since(*at) < ACTIVE);
    }

    /// Number of flows.
    pub(super) fn count(&self) -> u8 {
        self.seen.len() as u8
    }
}

/// As many as a header can state.
const MAX: usize = 255;
/// Endpoints send at least a packet per second.
const ACTIVE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_counted_until_they_stop() {
        let mut flows = Flows::default();
        for second in 0..10_u64 {
            flows.add(Time::from_secs(second), 7);
            if second < 3 {
                flows.add(Time::from_secs(second), 3);
            }
            flows.review(Time::from_secs(second));
            assert_eq!(flows.count(), 1 + u8::from(second < 7), "{second}");
        }
        for flow in 0..u16::MAX {
            flows.add(Time::from_secs(10), flow);
        }
        assert_eq!(flows.count(), 255);
    }
}
