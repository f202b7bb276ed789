//! Frame numbers from RTP timestamps, and the frame slots that are due on the screen.

use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate_core::media::{FrameRate, MEDIA_CLOCK};
use tidegate_core::units::Time;

/// Numbers frames from zero, starting with the first received frame.
#[derive(Debug)]
pub(crate) struct Numbering {
    rate: FrameRate,
    /// Whether another stream may follow.
    restarts: bool,
    origin: Option<Origin>,
    last: Option<u64>,
    /// Number of consecutive timestamps that are not near a frame's time, or near that of the
    /// previous frame.
    misfits: u32,
}

#[derive(Clone, Copy, Debug)]
struct Origin {
    timestamp: u64,
    arrived: Time,
    number: u64,
}

/// Result for a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) frame: u64,
    /// Capture time relative to the first frame.
    pub(crate) captured: Duration,
    /// The timestamps restarted: another sender, or a restarted one.
    pub(crate) restarted: bool,
}

impl Numbering {
    /// For datagrams: timestamps that deviate from the clock belong to another stream.
    pub(crate) fn of_datagrams(rate: FrameRate) -> Self {
        Self {
            rate,
            restarts: true,
            origin: None,
            last: None,
            misfits: 0,
        }
    }

    /// For a connection, which carries one stream in order: a late frame is late, not of another
    /// stream.
    pub(crate) fn of_connection(rate: FrameRate) -> Self {
        Self {
            restarts: false,
            ..Self::of_datagrams(rate)
        }
    }

    /// Time between two frames.
    pub(crate) fn interval(&self) -> Duration {
        self.rate.interval()
    }

    /// Number of the frame with this unwrapped timestamp, whose first packet arrived at `arrived`.
    pub(crate) fn number(&mut self, timestamp: u64, arrived: Time) -> Numbered {
        let here = |number| Origin {
            timestamp,
            arrived,
            number,
        };
        let first = *self.origin.get_or_insert(here(0));
        let ticks = i128::from(timestamp) - i128::from(first.timestamp);
        let media = ticks * 1_000_000_000 / i128::from(MEDIA_CLOCK);
        let real = arrived.since(first.arrived).as_nanos() as i128;
        let restarted = self.restarts && (media - real).unsigned_abs() > JUMP.as_nanos();
        let origin = if restarted {
            here(self.last.map_or(0, |last| last + 1))
        } else {
            first
        };
        self.origin = Some(origin);
        let ticks = timestamp.saturating_sub(origin.timestamp);
        let (num, den) = (u128::from(self.rate.num), u128::from(self.rate.den.max(1)));
        let unit = u128::from(MEDIA_CLOCK) * den;
        let frames = u128::from(ticks) * num;
        let nearest = (frames + unit / 2) / unit;
        let off = (nearest * unit).abs_diff(frames);
        let frame = origin.number + nearest as u64;
        let is_again = self.last.replace(frame) == Some(frame);
        let is_misfit = is_again || off >= unit / 4;
        self.misfits = if is_misfit { self.misfits + 1 } else { 0 };
        Numbered {
            frame,
            captured: Duration::from_nanos(ticks * 1_000_000_000 / u64::from(MEDIA_CLOCK)),
            restarted,
        }
    }

    /// Whether the given frame rate differs from the stream's. A single irregular frame does not
    /// count.
    pub(crate) fn misfits(&self) -> bool {
        self.misfits >= 2
    }
}

/// Frame slots that are due on the screen.
#[derive(Debug)]
pub(super) struct Turns {
    rate: FrameRate,
    /// Arrival of the first frame.
    began: Option<Time>,
    next: u64,
}

impl Turns {
    pub(super) fn new(rate: FrameRate) -> Self {
        Self {
            rate,
            began: None,
            next: 0,
        }
    }

    /// Frames that became due since the last call, up to `frame`, which arrived at `at`. A jump
    /// ahead of the clock is limited to the last frames, so that a few forged timestamps cannot
    /// fill the disk.
    pub(super) fn until(&mut self, frame: u64, at: Time) -> RangeInclusive<u64> {
        let began = *self.began.get_or_insert(at);
        let most = (at.since(began) + JUMP).as_secs_f64() * self.rate.as_f64();
        let from = if frame as f64 > most {
            self.next.max(frame.saturating_sub(LONGEST_JUMP))
        } else {
            self.next
        };
        self.next = self.next.max(frame + 1);
        from..=frame
    }
}

/// Most access units by which the order of pictures may differ from that of access units (ITU-T
/// H.264 section A.3.1: at most 16 frames are buffered), and the newest.
pub(crate) const MAX_UNITS: usize = 17;
/// Message for timestamps that do not fit the frame rate.
pub(crate) const MISFIT: &str = "the timestamps do not fit the frame rate, so frame numbers are \
wrong: give the --fps of the sender";

/// Longer than any jitter buffer holds a frame, and than the drift of clocks in a week.
const JUMP: Duration = Duration::from_secs(20);
/// In frames.
const LONGEST_JUMP: u64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_numbers_follow_timestamps_rather_than_arrivals() {
        let mut numbering = Numbering::of_datagrams(FrameRate::fps(30));
        let first = 1 << 33;
        let mut number = |ticks: u64, ms| numbering.number(first + ticks, Time::from_millis(ms));
        assert_eq!(number(0, 1_000).frame, 0);
        assert_eq!(number(3_000, 1_400).frame, 1);
        let fourth = number(12_001, 1_401);
        assert_eq!((fourth.frame, fourth.restarted), (4, false));
        assert!(fourth.captured >= Duration::from_millis(133));
        assert!(!numbering.misfits());
    }

    #[test]
    fn a_pause_continues_the_numbering_and_a_restart_restarts_it() {
        let mut numbering = Numbering::of_datagrams(FrameRate::fps(30));
        assert_eq!(numbering.number(90_000, Time::ZERO).frame, 0);
        let late = numbering.number(90_000 * 61, Time::from_secs(60));
        assert_eq!((late.frame, late.restarted), (1_800, false));
        let other = numbering.number(7, Time::from_secs(61));
        assert_eq!((other.frame, other.restarted), (1_801, true));
        let next = numbering.number(3_007, Time::from_secs(61));
        assert_eq!((next.frame, next.restarted), (1_802, false));
    }

    /// As after a stall of the connection.
    #[test]
    fn a_late_frame_of_a_connection_keeps_its_number() {
        let mut numbering = Numbering::of_connection(FrameRate::fps(30));
        let mut number = |n: u64, seconds| {
            let numbered = numbering.number(n * 3_000, Time::from_secs(seconds));
            (numbered.frame, numbered.restarted)
        };
        assert_eq!(number(0, 0), (0, false));
        assert_eq!(number(1, 25), (1, false));
        assert_eq!(number(2, 25), (2, false));
        assert_eq!(number(760, 26), (760, false));
        assert_eq!(number(3_000, 27), (3_000, false));
    }

    #[test]
    fn a_wrong_frame_rate_is_detected() {
        for fps in [24, 25, 50, 60] {
            let mut numbering = Numbering::of_connection(FrameRate::fps(30));
            let wrong = (0..10).any(|n| {
                numbering.number(n * 90_000 / fps, Time::from_millis(1_000 * n / fps));
                numbering.misfits()
            });
            assert!(wrong, "{fps} frames per second do not fit 30");
        }
    }

    #[test]
    fn all_frames_are_due_except_those_of_a_forged_jump() {
        let mut turns = Turns::new(FrameRate::fps(30));
        assert_eq!(turns.until(0, Time::from_secs(7)), 0..=0);
        assert_eq!(turns.until(385, Time::from_secs(7)), 1..=385);
        assert!(turns.until(385, Time::from_secs(8)).is_empty());
        assert_eq!(turns.until(2_000, Time::from_secs(60)), 386..=2_000);
        let lie = 1 << 40;
        assert_eq!(turns.until(lie, Time::from_secs(61)), lie - 300..=lie);
    }
}
