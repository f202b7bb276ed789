//! Frame numbers from RTP time stamps, and which of them are due on the screen.

use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate_core::media::{FrameRate, MEDIA_CLOCK};
use tidegate_core::units::Time;

/// Numbers frames from zero at the first one seen.
#[derive(Debug)]
pub(crate) struct Numbering {
    rate: FrameRate,
    /// Whether another stream may follow.
    restarts: bool,
    origin: Option<Origin>,
    last: Option<u64>,
    /// Time stamps that are not near a frame's, or near that of the frame before, in a row.
    misfits: u32,
}

#[derive(Clone, Copy, Debug)]
struct Origin {
    timestamp: u64,
    arrived: Time,
    number: u64,
}

/// What a time stamp says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) frame: u64,
    /// Its distance from the capture of the first frame.
    pub(crate) captured: Duration,
    /// Time stamps began anew: another sender, or the same one again.
    pub(crate) restarted: bool,
}

impl Numbering {
    /// Of datagrams: time stamps that do not go with the clock are those of another stream.
    pub(crate) fn of_datagrams(rate: FrameRate) -> Self {
        Self {
            rate,
            restarts: true,
            origin: None,
            last: None,
            misfits: 0,
        }
    }

    /// Of a connection, which has one stream, in order: one that comes late is late.
    pub(crate) fn of_connection(rate: FrameRate) -> Self {
        Self {
            restarts: false,
            ..Self::of_datagrams(rate)
        }
    }

    /// The number of the frame with this unwrapped time stamp, whose first packet came at
    /// `arrived`.
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

    /// Whether the frame rate is not the stream's. One frame of a source that stumbled is no
    /// proof.
    pub(crate) fn misfits(&self) -> bool {
        self.misfits >= 2
    }
}

/// Whose turn it is on the screen.
#[derive(Debug)]
pub(super) struct Turns {
    rate: FrameRate,
    /// When the first frame came.
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

    /// The frames whose turn it was since the last time, up to `frame`, which came at `at`. Of a jump
    /// ahead of the clock, which no camera makes, the last are enough: nobody is to fill the disk with
    /// a few time stamps.
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

/// Said once of time stamps that misfit.
pub(crate) const MISFIT: &str = "the time stamps do not fit the frame rate, so frame numbers are \
                                 wrong: give --fps as the sender has it";

/// No jitter buffer holds a frame for as long, and no clock drifts by it in a week.
const JUMP: Duration = Duration::from_secs(20);
/// In frames.
const LONGEST_JUMP: u64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_time_stamps_and_not_arrivals() {
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
    fn a_pause_goes_on_and_a_restart_begins_anew() {
        let mut numbering = Numbering::of_datagrams(FrameRate::fps(30));
        assert_eq!(numbering.number(90_000, Time::ZERO).frame, 0);
        let late = numbering.number(90_000 * 61, Time::from_secs(60));
        assert_eq!((late.frame, late.restarted), (1_800, false));
        let other = numbering.number(7, Time::from_secs(61));
        assert_eq!((other.frame, other.restarted), (1_801, true));
        let next = numbering.number(3_007, Time::from_secs(61));
        assert_eq!((next.frame, next.restarted), (1_802, false));
    }

    /// As behind a connection that stood still.
    #[test]
    fn what_a_connection_brings_late_keeps_its_number() {
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
    fn another_frame_rate_is_noticed() {
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
    fn all_frames_have_a_turn_but_those_of_a_lie() {
        let mut turns = Turns::new(FrameRate::fps(30));
        assert_eq!(turns.until(0, Time::from_secs(7)), 0..=0);
        assert_eq!(turns.until(385, Time::from_secs(7)), 1..=385);
        assert!(turns.until(385, Time::from_secs(8)).is_empty());
        assert_eq!(turns.until(2_000, Time::from_secs(60)), 386..=2_000);
        let lie = 1 << 40;
        assert_eq!(turns.until(lie, Time::from_secs(61)), lie - 300..=lie);
    }
}
