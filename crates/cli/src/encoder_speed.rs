//! Detects an encoder or a source that is slower than the frame rate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};
use tidegate_core::units::Time;
use tidegate_live::clock::Clock;

use crate::source_speed::SourceWatch;
use tidegate_console::progress::{counted, millis};

/// Encoder wrapper that measures the time of each frame.
#[derive(Debug)]
pub(crate) struct Timed<E> {
    encoder: E,
    clock: Clock,
    source: SourceWatch,
    work: Arc<Mutex<Work>>,
}

/// Detector that warns once if the encoder or its source is too slow, and of each stall of the
/// source.
#[derive(Debug)]
pub(crate) struct EncoderSpeed {
    work: Arc<Mutex<Work>>,
    source: SourceWatch,
    interval: Duration,
    advice: &'static str,
    since: Time,
    warned: bool,
    /// Begin of a stall of the source that was reported.
    stall: Option<Time>,
    /// The source stalled since the last check of the speed.
    stalled: bool,
}

/// Frames encoded since the last check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    frames: u64,
    /// Total time to read, decode if necessary, and encode these frames.
    busy: Duration,
    /// Part of this time in which the source was read.
    reading: Duration,
    /// Frames of the source that were read, with those that were passed over.
    read: u64,
}

impl<E: FrameEncoder> Timed<E> {
    /// Starts the measurement of `encoder`, which reads the watched source. The warning of a slow
    /// encoder ends with `advice`.
    pub(crate) fn new(
        encoder: E,
        clock: Clock,
        source: SourceWatch,
        advice: &'static str,
    ) -> (Self, EncoderSpeed) {
        let work = Arc::new(Mutex::new(Work::default()));
        let speed = EncoderSpeed {
            work: Arc::clone(&work),
            source: source.clone(),
            interval: encoder.frame_rate().interval(),
            advice,
            since: clock.now(),
            warned: false,
            stall: None,
            stalled: false,
        };
        let timed = Self {
            encoder,
            clock,
            source,
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
        let (reading, read) = self.source.take_reading();
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.frames += 1;
        work.busy += took;
        work.reading += reading;
        work.read += read;
        made
    }

    fn frame_rate(&self) -> FrameRate {
        self.encoder.frame_rate()
    }
}

impl EncoderSpeed {
    /// Message of a stall of the source or of its end, or warning at the first check that finds
    /// encoder or source too slow.
    pub(crate) fn check(&mut self, now: Time) -> Option<String> {
        self.check_stall().or_else(|| self.check_speed(now))
    }

    fn check_stall(&mut self) -> Option<String> {
        let (since, now) = self.source.waits_since();
        let waited = now.since(since.unwrap_or(now));
        if let Some(began) = self.stall {
            if since == Some(began) {
                return None;
            }
            self.stall = None;
            let lasted = now.since(began).as_secs_f64();
            return Some(format!("the source continues after {lasted:.1} s"));
        }
        if waited < STALL.max(self.interval * STALL_INTERVALS) {
            return None;
        }
        self.stall = since;
        self.stalled = true;
        Some(format!(
            "the source stalls: no picture for {:.1} s; check the camera, the disk or the \
             connection that delivers it",
            waited.as_secs_f64()
        ))
    }

    fn check_speed(&mut self, now: Time) -> Option<String> {
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
        if std::mem::replace(&mut self.stalled, self.stall.is_some()) {
            return None;
        }
        let slow = work.slow(span, self.interval)?;
        let advice = match slow {
            Slow::Encoder => self.advice,
            Slow::Source => SLOW_SOURCE_ADVICE,
        };
        self.warned = true;
        Some(format!(
            "{}; {advice}",
            work.text(slow, span, self.interval)
        ))
    }
}

/// The slower one of encoder and source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slow {
    Encoder,
    Source,
}

impl Work {
    /// The encoder is too slow if it was busy nearly all of the time and each frame took longer
    /// than the interval. If the network limits the frame rate, the encoder is idle in between. If
    /// the encoder waits for a camera, a frame takes no longer than the interval. The source is
    /// meant if reading took most of the time.
    fn slow(self, span: Duration, interval: Duration) -> Option<Slow> {
        let least = interval.mul_f64(MAX_INTERVALS);
        if self.busy < span.mul_f64(MIN_BUSY_SHARE) || each(self.busy, self.frames)? < least {
            return None;
        }
        if self.reading <= self.busy / 2 {
            return Some(Slow::Encoder);
        }
        // A camera in the dark has gaps between its pictures, and no fewer frames.
        each(span, self.read)
            .is_none_or(|each| each >= least)
            .then_some(Slow::Source)
    }

    fn text(self, slow: Slow, span: Duration, interval: Duration) -> String {
        let captured = span.as_nanos() / interval.as_nanos().max(1);
        let (seconds, interval) = (span.as_secs_f64(), millis(interval));
        let captured = counted(u64::try_from(captured).unwrap_or(u64::MAX), "frame");
        match slow {
            Slow::Encoder => format!(
                "the encoder is too slow: it made {} of {captured} in {seconds:.1} s, and \
                takes {} to read and encode a frame; the frame interval is {interval}",
                self.frames,
                millis(each(self.busy, self.frames).unwrap_or_default()),
            ),
            Slow::Source => format!(
                "the source is too slow: it delivered {} of {captured} in {seconds:.1} s; the frame \
                interval is {interval}",
                self.read,
            ),
        }
    }
}

fn each(total: Duration, frames: u64) -> Option<Duration> {
    total.checked_div(u32::try_from(frames).ok()?)
}

/// Longer than a typical burst of other load on the machine.
const SPAN: Duration = Duration::from_secs(3);
/// Minimum busy share of an encoder that is too slow.
const MIN_BUSY_SHARE: f64 = 0.9;
/// In frame intervals: a camera with a different clock stays below.
const MAX_INTERVALS: f64 = 1.1;
/// A source without a picture for so long stalls.
const STALL: Duration = Duration::from_secs(1);
/// In frame intervals, for sources with few pictures per second.
const STALL_INTERVALS: u32 = 3;
const SLOW_SOURCE_ADVICE: &str = "set the camera to this frame rate, or give a source with smaller \
    or fewer pictures";

#[cfg(test)]
mod tests {
    use tidegate_core::units::Rate;

    use super::*;
    use crate::source_speed::tests::TestClock;

    /// 25 frames per second, 75 in a period of 3 s.
    fn warning(frames: u64, each_ms: u64, reading_ms: u64) -> Option<String> {
        of_source(frames, each_ms, reading_ms, frames)
    }

    fn of_source(frames: u64, each_ms: u64, reading_ms: u64, read: u64) -> Option<String> {
        let total = |ms| Duration::from_millis(ms) * u32::try_from(frames).unwrap();
        let work = Work {
            frames,
            busy: total(each_ms),
            reading: total(reading_ms),
            read,
        };
        let interval = Duration::from_millis(40);
        let slow = work.slow(SPAN, interval)?;
        Some(work.text(slow, SPAN, interval))
    }

    #[test]
    fn an_encoder_is_too_slow_if_it_is_always_busy_and_late() {
        assert_eq!(
            warning(30, 100, 20).as_deref(),
            Some(
                "the encoder is too slow: it made 30 of 75 frames in 3.0 s, and takes 100 ms to \
                read and encode a frame; the frame interval is 40 ms"
            )
        );
        // As fast as the camera, or waiting for the camera.
        assert_eq!(warning(75, 5, 2), None);
        assert_eq!(warning(75, 40, 35), None);
        // Slow, but the network limits the stream to ten frames per second.
        assert_eq!(warning(30, 60, 0), None);
        assert_eq!(warning(0, 0, 0), None);
    }

    #[test]
    fn a_source_that_takes_most_of_the_time_is_too_slow() {
        assert_eq!(
            warning(60, 50, 45).as_deref(),
            Some(
                "the source is too slow: it delivered 60 of 75 frames in 3.0 s; the frame interval \
                is 40 ms"
            )
        );
        // A picture per three frame intervals, by the timestamps of the camera.
        assert_eq!(of_source(25, 120, 115, 75), None);
    }

    #[derive(Debug)]
    struct Ended;

    impl FrameEncoder for Ended {
        fn encode(&mut self, _: &FrameOrder) -> Result<Encoded, EncodeError> {
            Err(EncodeError::EndOfSource)
        }

        fn frame_rate(&self) -> FrameRate {
            FrameRate::fps(25)
        }
    }

    #[test]
    fn the_warning_is_printed_once_after_the_first_period() {
        let watch = TestClock::default().watch();
        let (mut timed, mut speed) = Timed::new(Ended, Clock::start(), watch, "buy another");
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
                reading: Duration::ZERO,
                read: 0,
            };
            speed.check(start + Duration::from_secs(at)).is_some()
        };
        assert!(!check(2, 2), "less than one measurement period");
        assert!(!check(0, 4), "no frame is complete");
        assert!(check(5, 5));
        assert!(!check(5, 10), "the warning is printed once");
    }

    #[test]
    fn a_stall_is_reported_when_it_begins_and_ends() {
        let clock = TestClock::default();
        let watch = clock.watch();
        let (_, mut speed) = Timed::new(Ended, Clock::start(), watch.clone(), "buy another");
        let start = speed.since;
        let reading = watch.begin();
        clock.set(900);
        assert_eq!(speed.check(start), None);
        clock.set(1_000);
        let said = speed.check(start).unwrap();
        assert!(
            said.starts_with("the source stalls: no picture for 1.0 s"),
            "{said}"
        );
        clock.set(2_500);
        assert_eq!(speed.check(start), None);
        let took = watch.end(reading, 1);
        *speed.work.lock().unwrap() = Work {
            frames: 25,
            busy: took + SPAN,
            reading: took,
            read: 25,
        };
        let said = speed.check(start).unwrap();
        assert_eq!(said, "the source continues after 2.5 s");
        // A period with a stall says nothing about the speed.
        assert_eq!(speed.check(start + SPAN * 2), None);
    }
}
