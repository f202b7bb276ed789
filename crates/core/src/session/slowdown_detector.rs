//! Notices at the receiver that the path has become slower, before the next report is due.

use core::time::Duration;

use crate::units::Time;

/// Watches the gaps between packets that follow each other within a frame: a sender spaces those
/// evenly, so two in a row that are much longer than usual are a path that carries less than it
/// did. What a report says is up to its reader; this decides only when one is worth sending.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowdownDetector {
    last: Option<Packet>,
    /// Smoothed; `None` before the first gap.
    usual: Option<Duration>,
    /// Mean distance of the gaps from that, smoothed: jitter makes long gaps too.
    spread: Duration,
    /// Long gaps in a row.
    long: u32,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    seq: u64,
    timestamp: u64,
    at: Time,
}

impl SlowdownDetector {
    /// A packet came. Whether it is the second in a row that came much later than usual.
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
        let long = usual * 2 + self.spread * 4 + GRAIN;
        // The second long gap is held against what was usual before the first.
        let counted = gap.min(long);
        self.usual = Some((usual * (MEMORY - 1) + counted) / MEMORY);
        self.spread = (self.spread * (MEMORY - 1) + counted.abs_diff(usual)) / MEMORY;
        self.long = if gap > long { self.long + 1 } else { 0 };
        self.long == ENOUGH
    }
}

/// Timers and the grain of links make gaps that differ by this much.
const GRAIN: Duration = Duration::from_millis(2);
/// Gaps after which a new distance is usual: two or three frames.
const MEMORY: u32 = 16;
/// One long gap is another flow's packet, or a pause of the sender's.
const ENOUGH: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets at these gaps in milliseconds, all of one frame; after which of them it speaks up.
    fn heard(gaps: impl Iterator<Item = u64>) -> Vec<usize> {
        let (mut slowing, mut at) = (SlowdownDetector::default(), Time::from_secs(1));
        let mut told = Vec::new();
        for (index, gap) in gaps.enumerate() {
            at += Duration::from_millis(gap);
            if slowing.on_packet(at, index as u64, 9) {
                told.push(index);
            }
        }
        told
    }

    #[test]
    fn a_slower_path_is_told_once_after_two_long_gaps() {
        let fall = [3; 40].into_iter().chain([12; 40]);
        assert_eq!(heard(fall), [41]);
    }

    #[test]
    fn single_gaps_and_a_faster_path_are_not_news() {
        assert!(heard((0..90).map(|i| if i % 3 == 0 { 20 } else { 3 })).is_empty());
        assert!(heard([12; 40].into_iter().chain([3; 40])).is_empty());
    }

    #[test]
    fn pauses_between_frames_and_losses_are_no_gaps() {
        let mut slowing = SlowdownDetector::default();
        let mut at = Time::from_secs(1);
        for frame in 0..50_u64 {
            for index in 0..4 {
                at += Duration::from_millis(2);
                assert!(!slowing.on_packet(at, frame * 5 + index, frame));
            }
            at += Duration::from_millis(300);
            assert!(!slowing.on_packet(at, frame * 5 + 4, frame + 1));
        }
    }
}
