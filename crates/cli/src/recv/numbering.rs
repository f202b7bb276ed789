//! Frame numbers from RTP time stamps.

use std::time::Duration;

use tidegate_core::media::{FrameRate, MEDIA_CLOCK};
use tidegate_core::units::Time;

/// Numbers frames from zero at the first one seen.
#[derive(Debug)]
pub(crate) struct Numbering {
    rate: FrameRate,
    origin: Option<Origin>,
    last: u64,
    /// Time stamps that are not near a frame's, in a row.
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
    pub(crate) fn new(rate: FrameRate) -> Self {
        Self {
            rate,
            origin: None,
            last: 0,
            misfits: 0,
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
        let restarted = (media - real).unsigned_abs() > JUMP.as_nanos();
        let origin = if restarted {
            here(self.last + 1)
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
        self.misfits = if off > unit / 4 { self.misfits + 1 } else { 0 };
        self.last = origin.number + nearest as u64;
        Numbered {
            frame: self.last,
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

/// No jitter buffer holds a frame for as long, and no clock drifts by it in a week.
const JUMP: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_time_stamps_and_not_arrivals() {
        let mut numbering = Numbering::new(FrameRate::fps(30));
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
        let mut numbering = Numbering::new(FrameRate::fps(30));
        assert_eq!(numbering.number(90_000, Time::ZERO).frame, 0);
        let late = numbering.number(90_000 * 61, Time::from_secs(60));
        assert_eq!((late.frame, late.restarted), (1_800, false));
        let other = numbering.number(7, Time::from_secs(61));
        assert_eq!((other.frame, other.restarted), (1_801, true));
        let next = numbering.number(3_007, Time::from_secs(61));
        assert_eq!((next.frame, next.restarted), (1_802, false));
    }

    #[test]
    fn another_frame_rate_is_noticed() {
        let mut numbering = Numbering::new(FrameRate::fps(30));
        let wrong = (0..10).any(|n| {
            numbering.number(n * 3_600, Time::from_millis(40 * n));
            numbering.misfits()
        });
        assert!(wrong, "25 frames per second do not fit 30");
    }
}
