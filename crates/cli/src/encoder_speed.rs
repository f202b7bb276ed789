//! Detects an encoder or a source that is slower than the frame rate, and adapts the encoder.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};
use tidegate_core::units::Time;
use tidegate_live::clock::Clock;
use tidegate_live::thread_time::ThreadTime;
use tidegate_media::{Adjustment, Bottleneck, EncoderSession, FrameTime};

use crate::source_speed::SourceWatch;
use tidegate_console::progress::{counted, millis};

/// An encoder whose frames are measured, and which is adapted to the processor.
#[derive(Debug)]
pub(crate) struct Timed {
    encoder: EncoderSession,
    clock: Clock,
    source: SourceWatch,
    work: Arc<Mutex<Work>>,
}

/// Messages about the speed of the encoder and of its source.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Work {
    frames: u64,
    /// Total time to read, decode if necessary, and encode these frames.
    busy: Duration,
    /// Part of this time in which the source was read.
    reading: Duration,
    /// Frames of the source that were read, with those that were passed over.
    read: u64,
    /// Latest adjustment, with the new settings.
    adjustment: Option<(Adjustment, String)>,
}

impl Timed {
    /// Starts the measurement of `encoder`, which reads the watched source. The warning of a slow
    /// encoder ends with `advice`.
    pub(crate) fn new(
        encoder: EncoderSession,
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

impl FrameEncoder for Timed {
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        let (began, before) = (self.clock.now(), ThreadTime::now());
        let made = self.encoder.encode(order);
        let (now, spent) = (self.clock.now(), ThreadTime::now().since(before));
        let reading = self.source.take_reading();
        let time = FrameTime {
            reading: reading.busy,
            encoding: spent.total().saturating_sub(reading.busy),
            waited: spent.waiting,
        };
        let adjustment = made.is_ok().then(|| self.adjust(now, time)).flatten();
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.frames += 1;
        work.busy += now.since(began);
        work.reading += reading.took;
        work.read += reading.frames;
        work.adjustment = adjustment.or(work.adjustment.take());
        made
    }

    fn frame_rate(&self) -> FrameRate {
        self.encoder.frame_rate()
    }
}

impl Timed {
    /// Passes the time of a picture to the adaptation.
    fn adjust(&mut self, now: Time, time: FrameTime) -> Option<(Adjustment, String)> {
        let before = self.encoder.point()?;
        let adjustment = self.encoder.on_time(now, time)?;
        let after = self.encoder.point()?;
        let mut changes = Vec::new();
        if after.preset != before.preset {
            changes.push(format!("preset {}", after.preset));
        }
        if after.step.every != before.step.every {
            let rate = self.frame_rate().as_f64() / f64::from(after.step.every);
            changes.push(format!("{rate:.0} frames/s"));
        }
        if after.shrink != before.shrink {
            changes.push(after.size(self.encoder.picture().size()).to_string());
        }
        Some((adjustment, changes.join(", ")))
    }
}

impl EncoderSpeed {
    /// Message of a stall of the source or of its end, of an adjustment of the encoder, or warning
    /// at the first check that finds the source too slow.
    pub(crate) fn check(&mut self, now: Time) -> Option<String> {
        self.check_stall()
            .or_else(|| self.check_adjustment())
            .or_else(|| self.check_source(now))
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

    fn check_adjustment(&self) -> Option<String> {
        let (adjustment, settings) = self.work().adjustment.take()?;
        let cause = cause(&adjustment);
        Some(if adjustment.to == adjustment.from {
            let advice = match adjustment.bottleneck() {
                Bottleneck::Encoder => self.advice,
                Bottleneck::Source => SLOW_SOURCE_ADVICE,
                Bottleneck::Machine => "end other programs, or give this one more priority",
            };
            format!("{cause}; {advice}")
        } else {
            format!("{cause}: {settings}")
        })
    }

    fn check_source(&mut self, now: Time) -> Option<String> {
        let span = now.since(self.since);
        if self.warned || span < SPAN {
            return None;
        }
        let work = {
            let mut work = self.work();
            if work.frames == 0 {
                // The frame in progress counts when it is complete.
                return None;
            }
            let adjustment = work.adjustment.take();
            std::mem::replace(
                &mut *work,
                Work {
                    adjustment,
                    ..Work::default()
                },
            )
        };
        self.since = now;
        if std::mem::replace(&mut self.stalled, self.stall.is_some())
            || !work.waits_for_source(span, self.interval)
        {
            return None;
        }
        self.warned = true;
        Some(format!(
            "{}; {SLOW_SOURCE_ADVICE}",
            work.text(span, self.interval)
        ))
    }

    /// A poisoned lock is usable: no critical section leaves a partial state.
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the settings of the encoder change, or should.
fn cause(adjustment: &Adjustment) -> String {
    let (time, interval) = (adjustment.time, millis(adjustment.interval));
    let total = millis(time.total());
    if adjustment.is_rise() {
        return format!("the encoder has time again, {total} for a frame of {interval}");
    }
    match adjustment.bottleneck() {
        Bottleneck::Encoder => format!("the encoder needs {total} for a frame of {interval}"),
        Bottleneck::Source => format!(
            "reading the source takes {} for a frame of {interval}",
            millis(time.reading)
        ),
        Bottleneck::Machine => format!(
            "the machine is busy: the encoder waits for a processor for {} of the {total} that it \
            needs for a frame of {interval}",
            millis(time.waited)
        ),
    }
}

impl Work {
    /// The encoder was busy nearly all of the time and each frame took longer than the interval,
    /// most of it to read the source. If the network limits the frame rate, the encoder is idle in
    /// between. If the encoder waits for a camera, a frame takes no longer than the interval.
    fn waits_for_source(&self, span: Duration, interval: Duration) -> bool {
        let least = interval.mul_f64(MAX_INTERVALS);
        self.busy >= span.mul_f64(MIN_BUSY_SHARE)
            && each(self.busy, self.frames).is_some_and(|each| each >= least)
            && self.reading > self.busy / 2
            // A camera in the dark has gaps between its pictures, and no fewer frames.
            && each(span, self.read).is_none_or(|each| each >= least)
    }

    fn text(&self, span: Duration, interval: Duration) -> String {
        let captured = span.as_nanos() / interval.as_nanos().max(1);
        let captured = counted(u64::try_from(captured).unwrap_or(u64::MAX), "frame");
        format!(
            "the source is too slow: it delivered {} of {captured} in {:.1} s; the frame interval \
            is {}",
            self.read,
            span.as_secs_f64(),
            millis(interval)
        )
    }
}

fn each(total: Duration, frames: u64) -> Option<Duration> {
    total.checked_div(u32::try_from(frames).ok()?)
}

/// Longer than a typical burst of other load on the machine.
const SPAN: Duration = Duration::from_secs(3);
/// Minimum busy share of an encoder that waits for its source.
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
    use tidegate_media::{Scene, SceneSource, Size, VideoSource};

    use super::*;
    use crate::send::source::{Encoding, Switch};
    use crate::source_speed::tests::TestClock;

    /// 25 frames per second, 75 in a period of 3 s.
    fn warning(frames: u64, each_ms: u64, reading_ms: u64, read: u64) -> Option<String> {
        let total = |ms| Duration::from_millis(ms) * u32::try_from(frames).unwrap();
        let work = Work {
            frames,
            busy: total(each_ms),
            reading: total(reading_ms),
            read,
            adjustment: None,
        };
        let interval = Duration::from_millis(40);
        let is_slow = work.waits_for_source(SPAN, interval);
        is_slow.then(|| work.text(SPAN, interval))
    }

    #[test]
    fn a_source_that_takes_most_of_the_time_is_too_slow() {
        assert_eq!(
            warning(60, 50, 45, 60).as_deref(),
            Some(
                "the source is too slow: it delivered 60 of 75 frames in 3.0 s; the frame interval \
                is 40 ms"
            )
        );
        // A picture per three frame intervals, by the timestamps of the camera.
        assert_eq!(warning(25, 120, 115, 75), None);
        // As fast as the camera, or waiting for the camera; a slow encoder.
        assert_eq!(warning(75, 5, 2, 75), None);
        assert_eq!(warning(75, 40, 35, 75), None);
        assert_eq!(warning(30, 100, 20, 75), None);
        assert_eq!(warning(0, 0, 0, 0), None);
    }

    /// An encoder of pictures of a scene without end, or with none.
    fn timed(frames: u64, watch: SourceWatch) -> (Timed, EncoderSpeed) {
        let scene = Scene::new(1, Size::new(64, 64).unwrap());
        let source: Box<dyn VideoSource> =
            Box::new(SceneSource::with_end(scene, FrameRate::fps(25), frames));
        let encoding = Encoding {
            codec: tidegate_core::media::Codec::H264,
            preset: tidegate_media::Preset::Veryfast,
            adapt: Switch::Yes,
        };
        let session = encoding.session(source).unwrap();
        Timed::new(session, Clock::start(), watch, "buy another")
    }

    fn order(frame: u64, key: bool) -> FrameOrder {
        FrameOrder {
            frame,
            captured: Time::ZERO,
            rate: Rate::kbps(500),
            key,
        }
    }

    #[test]
    fn an_overload_restarts_the_encoder_and_is_named() {
        let (mut timed, mut speed) = timed(u64::MAX, TestClock::default().watch());
        assert!(timed.encode(&order(0, true)).unwrap().key);
        // As if each picture had taken two frame intervals.
        let time = FrameTime {
            encoding: Duration::from_millis(80),
            ..FrameTime::default()
        };
        let adjusted = (1..30).find_map(|n| timed.adjust(Time::from_millis(80 * n), time));
        timed.work.lock().unwrap().adjustment = adjusted;
        let said = speed.check(Time::ZERO).unwrap();
        // The first picture took less.
        let rest = said.strip_prefix("the encoder needs ").unwrap();
        let (_, rest) = rest.split_once(" ms for").unwrap();
        assert_eq!(rest, " a frame of 40 ms: preset ultrafast, 12 frames/s");
        assert_eq!(speed.check(Time::ZERO), None);
        assert_eq!(timed.encode(&order(1, false)), Err(EncodeError::Restarted));
        assert!(timed.encode(&order(1, true)).unwrap().key);
        assert_eq!(timed.encode(&order(2, false)), Err(EncodeError::Unchanged));
        assert_eq!(
            timed.encode(&order(3, false)).map(|made| made.key),
            Ok(false)
        );
    }

    #[test]
    fn frames_in_progress_do_not_count_and_the_end_is_no_overload() {
        let (mut timed, mut speed) = timed(0, TestClock::default().watch());
        assert_eq!(speed.check(Time::from_secs(4)), None);
        assert_eq!(timed.encode(&order(0, true)), Err(EncodeError::EndOfSource));
        assert_eq!(speed.work.lock().unwrap().frames, 1);
        assert_eq!(speed.check(Time::from_secs(8)), None);
    }

    #[test]
    fn a_stall_is_reported_when_it_begins_and_ends() {
        let clock = TestClock::default();
        let watch = clock.watch();
        let (_, mut speed) = timed(1, watch.clone());
        let start = speed.since;
        watch.begin();
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
        let took = watch.end(Duration::ZERO, 1);
        *speed.work.lock().unwrap() = Work {
            frames: 25,
            busy: took + SPAN,
            reading: took,
            read: 25,
            adjustment: None,
        };
        let said = speed.check(start).unwrap();
        assert_eq!(said, "the source continues after 2.5 s");
        // A period with a stall says nothing about the speed.
        assert_eq!(speed.check(start + SPAN * 2), None);
    }
}
