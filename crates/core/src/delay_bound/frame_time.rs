//! Time to send one picture, compared with a delay bound.

use core::fmt;
use core::time::Duration;

use crate::media::FrameRate;
use crate::units::Rate;

/// A picture of the lowest rate does not meet the delay bound on every path that carries this rate:
/// it takes up to a frame interval to send.
///
/// On faster paths the stream works, at a rate of at most bound / interval of the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowPicture {
    /// Delay bound.
    pub bound: Duration,
    /// Frame rate of the source.
    pub frame_rate: FrameRate,
    /// Lowest rate of the encoder.
    pub floor: Rate,
}

/// Compares the frame interval with the delay bound, before the path is known.
///
/// # Errors
/// If the bound is not longer than a frame interval.
pub fn check_frame_time(
    bound: Duration,
    frame_rate: FrameRate,
    floor: Rate,
) -> Result<(), SlowPicture> {
    if bound > frame_rate.interval() {
        return Ok(());
    }
    Err(SlowPicture {
        bound,
        frame_rate,
        floor,
    })
}

impl SlowPicture {
    /// Capacity below which every picture is late, whatever the propagation delay.
    pub fn least_capacity(&self) -> Rate {
        (self.floor * self.frame_rate.interval()) / self.bound
    }
}

impl fmt::Display for SlowPicture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interval = self.frame_rate.interval();
        write!(
            f,
            "the delay bound of {:?} is not longer than the frame interval of {interval:?}, so on a \
             path slower than {} every picture is late: choose a bound above {interval:?} or more \
             frames per second",
            self.bound,
            self.least_capacity()
        )
    }
}

impl core::error::Error for SlowPicture {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_must_exceed_the_frame_interval() {
        let check = |ms, fps| {
            check_frame_time(
                Duration::from_millis(ms),
                FrameRate::fps(fps),
                Rate::kbps(150),
            )
        };
        for (ms, fps) in [(400, 5), (200, 10), (150, 15), (80, 30), (1_001, 1)] {
            assert_eq!(check(ms, fps), Ok(()), "{fps} fps, {ms} ms");
        }
        let slow = check(400, 2).unwrap_err();
        assert_eq!(slow.least_capacity(), Rate::bps(187_500));
        assert_eq!(
            slow.to_string(),
            "the delay bound of 400ms is not longer than the frame interval of 500ms, so on a path \
             slower than 188 kb/s every picture is late: choose a bound above 500ms or more frames \
             per second"
        );
    }
}
