//! Whether the encoder keeps up with the camera.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};
use tidegate_core::units::Time;
use tidegate_live::clock::Clock;

use tidegate_console::progress::{counted, millis};

/// An encoder whose work is measured.
#[derive(Debug)]
pub(crate) struct Timed<E> {
    encoder: E,
    clock: Clock,
    work: Arc<Mutex<Work>>,
}

/// Says once that the encoder is too slow.
#[derive(Debug)]
pub(crate) struct EncoderSpeed {
    work: Arc<Mutex<Work>>,
    interval: Duration,
    mend: &'static str,
    since: Time,
    told: bool,
}

/// What was made since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    frames: u64,
    /// How long they took: reading, perhaps decoding, and encoding.
    busy: Duration,
}

impl<E: FrameEncoder> Timed<E> {
    /// Measures `encoder` from now on. `mend` is what to do about one that is too slow.
    pub(crate) fn new(encoder: E, clock: Clock, mend: &'static str) -> (Self, EncoderSpeed) {
        let work = Arc::new(Mutex::new(Work::default()));
        let pace = EncoderSpeed {
            work: Arc::clone(&work),
            interval: encoder.frame_rate().interval(),
            mend,
            since: clock.now(),
            told: false,
        };
        let timed = Self {
            encoder,
            clock,
            work,
        };
        (timed, pace)
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
    /// What is to be said, if anything.
    pub(crate) fn look(&mut self, now: Time) -> Option<String> {
        let span = now.since(self.since);
        if self.told || span < SPAN {
            return None;
        }
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if work.frames == 0 {
            // The one that is at work counts when it is there.
            return None;
        }
        let work = std::mem::take(&mut *work);
        self.since = now;
        let verdict = work.verdict(span, self.interval)?;
        self.told = true;
        Some(format!("{verdict}; {}", self.mend))
    }
}

impl Work {
    /// An encoder is too slow if it has hardly rested and yet made fewer frames than came. Where the
    /// network holds frames back it rests, and where it waits for a camera a frame takes no longer
    /// than the interval.
    fn verdict(self, span: Duration, interval: Duration) -> Option<String> {
        let each = self.busy.checked_div(u32::try_from(self.frames).ok()?)?;
        if self.busy < span.mul_f64(RESTLESS) || each < interval.mul_f64(TOO_LONG) {
            return None;
        }
        let captured = span.as_nanos() / interval.as_nanos().max(1);
        Some(format!(
            "the encoder is too slow: it made {} of {} in {:.1} s, and takes {} to read and encode \
             each where there are {}",
            self.frames,
            counted(u64::try_from(captured).ok()?, "frame"),
            span.as_secs_f64(),
            millis(each),
            millis(interval),
        ))
    }
}

/// Long enough for a burst of other work on this machine to pass.
const SPAN: Duration = Duration::from_secs(3);
/// Of the time an encoder works that hardly rests.
const RESTLESS: f64 = 0.9;
/// Of the interval between frames: a camera whose clock is not ours stays below.
const TOO_LONG: f64 = 1.1;

#[cfg(test)]
mod tests {
    use tidegate_core::units::Rate;

    use super::*;

    /// At 25 frames per second, of which 75 come in a look of 3 s.
    fn said(frames: u64, each_ms: u64) -> Option<String> {
        let work = Work {
            frames,
            busy: Duration::from_millis(each_ms) * u32::try_from(frames).unwrap(),
        };
        work.verdict(SPAN, Duration::from_millis(40))
    }

    #[test]
    fn an_encoder_that_never_rests_and_makes_too_few_is_too_slow() {
        assert_eq!(
            said(30, 100).as_deref(),
            Some(
                "the encoder is too slow: it made 30 of 75 frames in 3.0 s, and takes 100 ms to \
                 read and encode each where there are 40 ms"
            )
        );
        // As fast as the camera, or waiting for it.
        assert_eq!(said(75, 5), None);
        assert_eq!(said(75, 40), None);
        // Slow, but the network wants ten frames per second at most.
        assert_eq!(said(30, 60), None);
        assert_eq!(said(0, 0), None);
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
    fn it_is_said_once_and_after_some_seconds() {
        let (mut timed, mut pace) = Timed::new(Slow, Clock::start(), "buy another");
        let order = FrameOrder {
            frame: 0,
            captured: Time::ZERO,
            rate: Rate::kbps(500),
            key: true,
        };
        assert_eq!(timed.encode(&order), Err(EncodeError::EndOfSource));
        assert_eq!(pace.work.lock().unwrap().frames, 1);
        let start = pace.since;
        let mut look = |busy: u64, at: u64| {
            *pace.work.lock().unwrap() = Work {
                frames: u64::from(busy > 0),
                busy: Duration::from_secs(busy),
            };
            pace.look(start + Duration::from_secs(at)).is_some()
        };
        assert!(!look(2, 2), "too early to say");
        assert!(!look(0, 4), "the frame is not there yet");
        assert!(look(5, 5));
        assert!(!look(5, 10), "it was said");
    }
}
