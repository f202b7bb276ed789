//! Detects an encoder that is slower than the frame rate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};
use tidegate_core::units::Time;
use tidegate_live::clock::Clock;

use tidegate_console::progress::{counted, millis};

/// Encoder wrapper that measures the time of each frame.
#[derive(Debug)]
pub(crate) struct Timed<E> {
    encoder: E,
    clock: Clock,
    work: Arc<Mutex<Work>>,
}

/// Detector that warns once if the encoder is too slow.
#[derive(Debug)]
pub(crate) struct EncoderSpeed {
    work: Arc<Mutex<Work>>,
    interval: Duration,
    advice: &'static str,
    since: Time,
    warned: bool,
}

/// Frames encoded since the last check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    frames: u64,
    /// Total time to read, decode if necessary, and encode these frames.
    busy: Duration,
}

impl<E: FrameEncoder> Timed<E> {
    /// Starts the measurement of `encoder`. The warning ends with `advice`.
    pub(crate) fn new(encoder: E, clock: Clock, advice: &'static str) -> (Self, EncoderSpeed) {
        let work = Arc::new(Mutex::new(Work::default()));
        let speed = EncoderSpeed {
            work: Arc::clone(&work),
            interval: encoder.frame_rate().interval(),
            advice,
            since: clock.now(),
            warned: false,
        };
        let timed = Self {
            encoder,
            clock,
            work,
        };
        (timed, speed)
    }
}

impl<E: FrameEncoder> FrameEncoder for Timed<E> {
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        let began = self.clock.now();
        let made = self.encoder.encode(order);
        let took = self.clock.now().since(began);
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.frames += 1;
        work.busy += took;
        made
    }

    fn frame_rate(&self) -> FrameRate {
        self.encoder.frame_rate()
    }
}

impl EncoderSpeed {
    /// Warning at the first check that finds the encoder too slow.
    pub(crate) fn check(&mut self, now: Time) -> Option<String> {
        let span = now.since(self.since);
        if self.warned || span < SPAN {
            return None;
        }
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if work.frames == 0 {
            // The frame in progress counts when it is complete.
            return None;
        }
        let work = std::mem::take(&mut *work);
        self.since = now;
        let verdict = work.verdict(span, self.interval)?;
        self.warned = true;
        Some(format!("{verdict}; {}", self.advice))
    }
}

impl Work {
    /// The encoder is too slow if it was busy nearly all of the time and each frame took longer
    /// than the interval. If the network limits the frame rate, the encoder is idle in between. If
    /// the encoder waits for a camera, a frame takes no longer than the interval.
    fn verdict(self, span: Duration, interval: Duration) -> Option<String> {
        let each = self.busy.checked_div(u32::try_from(self.frames).ok()?)?;
        if self.busy < span.mul_f64(MIN_BUSY_SHARE) || each < interval.mul_f64(MAX_INTERVALS) {
            return None;
        }
        let captured = span.as_nanos() / interval.as_nanos().max(1);
        Some(format!(
            "the encoder is too slow: it made {} of {} in {:.1} s, and takes {} to read and \
            encode a frame; the frame interval is {}",
            self.frames,
            counted(u64::try_from(captured).ok()?, "frame"),
            span.as_secs_f64(),
            millis(each),
            millis(interval),
        ))
    }
}

/// Longer than a typical burst of other load on the machine.
const SPAN: Duration = Duration::from_secs(3);
/// Minimum busy share of an encoder that is too slow.
const MIN_BUSY_SHARE: f64 = 0.9;
/// In frame intervals: a camera with a different clock stays below.
const MAX_INTERVALS: f64 = 1.1;

#[cfg(test)]
mod tests {
    use tidegate_core::units::Rate;

    use super::*;

    /// 25 frames per second, 75 in a period of 3 s.
    fn warning(frames: u64, each_ms: u64) -> Option<String> {
        let work = Work {
            frames,
            busy: Duration::from_millis(each_ms) * u32::try_from(frames).unwrap(),
        };
        work.verdict(SPAN, Duration::from_millis(40))
    }

    #[test]
    fn an_encoder_is_too_slow_if_it_is_always_busy_and_late() {
        assert_eq!(
            warning(30, 100).as_deref(),
            Some(
                "the encoder is too slow: it made 30 of 75 frames in 3.0 s, and takes 100 ms to \
                read and encode a frame; the frame interval is 40 ms"
            )
        );
        // As fast as the camera, or waiting for the camera.
        assert_eq!(warning(75, 5), None);
        assert_eq!(warning(75, 40), None);
        // Slow, but the network limits the stream to ten frames per second.
        assert_eq!(warning(30, 60), None);
        assert_eq!(warning(0, 0), None);
    }

    #[derive(Debug)]
    struct Slow;

    impl FrameEncoder for Slow {
        fn encode(&mut self, _: &FrameOrder) -> Result<Encoded, EncodeError> {
            Err(EncodeError::EndOfSource)
        }

        fn frame_rate(&self) -> FrameRate {
            FrameRate::fps(25)
        }
    }

    #[test]
    fn the_warning_is_printed_once_after_the_first_period() {
        let (mut timed, mut speed) = Timed::new(Slow, Clock::start(), "buy another");
        let order = FrameOrder {
            frame: 0,
            captured: Time::ZERO,
            rate: Rate::kbps(500),
            key: true,
        };
        assert_eq!(timed.encode(&order), Err(EncodeError::EndOfSource));
        assert_eq!(speed.work.lock().unwrap().frames, 1);
        let start = speed.since;
        let mut check = |busy: u64, at: u64| {
            *speed.work.lock().unwrap() = Work {
                frames: u64::from(busy > 0),
                busy: Duration::from_secs(busy),
            };
            speed.check(start + Duration::from_secs(at)).is_some()
        };
        assert!(!check(2, 2), "less than one measurement period");
        assert!(!check(0, 4), "no frame is complete");
        assert!(check(5, 5));
        assert!(!check(5, 10), "the warning is printed once");
    }
}
