//! Receiver-side detection of a capacity drop, before the next report is due.

use core::time::Duration;

use crate::units::Time;

/// Measures the gaps between consecutive packets of a frame. The sender paces them evenly, so two
/// consecutive gaps far above the average indicate a lower path capacity. The detector only
/// triggers an early report; the sender interprets it.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowdownDetector {
    last: Option<Packet>,
    /// Smoothed gap; `None` before the first one.
    usual: Option<Duration>,
    /// Smoothed mean deviation of the gaps: jitter also causes long gaps.
    spread: Duration,
    /// Number of consecutive long gaps.
    long: u32,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    seq: u64,
    timestamp: u64,
    at: Time,
}

impl SlowdownDetector {
    /// A packet arrived. Returns true at the second consecutive long gap.
    pub(super) fn on_packet(&mut self, at: Time, seq: u64, timestamp: u64) -> bool {
        let packet = Packet { seq, timestamp, at };
        let Some(last) = self.last.replace(packet) else {
            return false;
        };
        if seq != last.seq + 1 || timestamp != last.timestamp {
            return false;
        }
        let gap = at.since(last.at);
        let usual = *self.usual.get_or_insert(gap);
        let long = usual * 2 + self.spread * 4 + TOLERANCE;
        // The second long gap is compared with the average before the first.
        let counted = gap.min(long);
        self.usual = Some((usual * (MEMORY - 1) + counted) / MEMORY);
        self.spread = (self.spread * (MEMORY - 1) + counted.abs_diff(usual)) / MEMORY;
        self.long = if gap > long { self.long + 1 } else { 0 };
        self.long == LONG_GAPS
    }
}

/// Tolerance for timer resolution and link granularity.
const TOLERANCE: Duration = Duration::from_millis(2);
/// Time constant of the averages in gaps: two or three frames.
const MEMORY: u32 = 16;
/// A single long gap can be a packet of another flow or a pause of the sender.
const LONG_GAPS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds packets of one frame with these gaps in milliseconds; returns the indices of the
    /// triggers.
    fn triggers(gaps: impl Iterator<Item = u64>) -> Vec<usize> {
        let (mut detector, mut at) = (SlowdownDetector::default(), Time::from_secs(1));
        let mut triggered = Vec::new();
        for (index, gap) in gaps.enumerate() {
            at += Duration::from_millis(gap);
            if detector.on_packet(at, index as u64, 9) {
                triggered.push(index);
            }
        }
        triggered
    }

    #[test]
    fn a_capacity_drop_triggers_once_after_two_long_gaps() {
        let fall = [3; 40].into_iter().chain([12; 40]);
        assert_eq!(triggers(fall), [41]);
    }

    #[test]
    fn single_gaps_and_a_faster_path_do_not_trigger() {
        assert!(triggers((0..90).map(|i| if i % 3 == 0 { 20 } else { 3 })).is_empty());
        assert!(triggers([12; 40].into_iter().chain([3; 40])).is_empty());
    }

    #[test]
    fn pauses_between_frames_and_losses_do_not_trigger() {
        let mut detector = SlowdownDetector::default();
        let mut at = Time::from_secs(1);
        for frame in 0..50_u64 {
            for index in 0..4 {
                at += Duration::from_millis(2);
                assert!(!detector.on_packet(at, frame * 5 + index, frame));
            }
            at += Duration::from_millis(300);
            assert!(!detector.on_packet(at, frame * 5 + 4, frame + 1));
        }
    }
}
