//! Keeps a stream going if its source delivers fewer pictures than its frame rate.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::media::FrameRate;
use tidegate_core::units::Time;
use tidegate_live::clock::Clock;
use tidegate_live::thread_time::ThreadTime;
use tidegate_media::{Colour, Picture, Size, SourceError, VideoSource};

/// Source that answers each request with the requested picture or, if that is not available yet,
/// with the newest one.
///
/// A pipe or a camera that delivers fewer pictures than its frame rate falls behind the capture
/// clock without limit. Its next picture is then the newest one, so it is used at once. A file that
/// stalled has later pictures ready, which are read until the requested one.
#[derive(Debug)]
pub(crate) struct PacedSource {
    source: Box<dyn VideoSource>,
    watch: SourceWatch,
    interval: Duration,
    position: u64,
    /// The last reading waited for the picture.
    waited: bool,
}

/// Times of the readings of a source.
#[derive(Clone)]
pub(crate) struct SourceWatch {
    clock: Arc<dyn Fn() -> Time + Send + Sync>,
    state: Arc<Mutex<Readings>>,
}

#[derive(Debug, Default)]
struct Readings {
    /// Begin of the reading in progress.
    since: Option<Time>,
    /// Since the last call of [`SourceWatch::take_reading`].
    total: Reading,
}

/// Readings of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Total time.
    pub(crate) took: Duration,
    /// Part of it in which the thread was not asleep.
    pub(crate) busy: Duration,
    /// Frames that were read.
    pub(crate) frames: u64,
}

impl PacedSource {
    pub(crate) fn new(source: Box<dyn VideoSource>, watch: SourceWatch) -> Self {
        Self {
            interval: source.frame_rate().interval(),
            position: source.position(),
            source,
            watch,
            waited: false,
        }
    }
}

impl VideoSource for PacedSource {
    fn size(&self) -> Size {
        self.source.size()
    }

    fn frame_rate(&self) -> FrameRate {
        self.source.frame_rate()
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn colour(&self) -> Colour {
        self.source.colour()
    }

    fn picture(&self) -> Option<u64> {
        self.source.picture()
    }

    fn skips_freely(&self) -> bool {
        self.source.skips_freely()
    }

    fn next(&mut self, picture: &mut Picture) -> Result<bool, SourceError> {
        self.advance_to(self.position, picture)
    }

    fn advance_to(&mut self, frame: u64, picture: &mut Picture) -> Result<bool, SourceError> {
        self.check_unread(frame)?;
        self.position = frame + 1;
        loop {
            let (began, before) = (ThreadTime::now(), self.source.position());
            self.watch.begin();
            let read = if self.source.skips_freely() {
                self.source.advance_to(frame, picture)
            } else {
                self.source.next(picture)
            };
            let busy = ThreadTime::now().since(began).total();
            let frames = self.source.position() - before;
            let took = self.watch.end(busy, frames);
            let waited = took.saturating_sub(busy) > self.interval / WAITING;
            // After one long reading, which may have been a stall, later pictures may be ready.
            let is_newest = waited && std::mem::replace(&mut self.waited, waited);
            if !read? {
                return Ok(false);
            }
            if is_newest || self.source.position() > frame {
                return Ok(true);
            }
        }
    }
}

impl SourceWatch {
    /// Watches a source by the clock of this host.
    pub(crate) fn new() -> Self {
        let clock = Clock::start();
        Self::with_clock(move || clock.now())
    }

    fn with_clock(clock: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self {
            clock: Arc::new(clock),
            state: Arc::default(),
        }
    }

    /// Begin of the reading in progress, and the present time, by the clock of the watch.
    pub(crate) fn waits_since(&self) -> (Option<Time>, Time) {
        (self.state().since, (self.clock)())
    }

    /// The readings since the last call.
    pub(crate) fn take_reading(&self) -> Reading {
        std::mem::take(&mut self.state().total)
    }

    /// A reading begins.
    pub(crate) fn begin(&self) {
        self.state().since = Some((self.clock)());
    }

    /// The reading of `frames` has ended; returns its time. The thread was not asleep for `busy`.
    pub(crate) fn end(&self, busy: Duration, frames: u64) -> Duration {
        let now = (self.clock)();
        let mut state = self.state();
        let took = now.since(state.since.take().unwrap_or(now));
        state.total.took += took;
        state.total.busy += busy;
        state.total.frames += frames;
        took
    }

    /// A poisoned lock is usable: no critical section leaves a partial state.
    fn state(&self) -> MutexGuard<'_, Readings> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SourceWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceWatch").finish_non_exhaustive()
    }
}

/// A reading that sleeps for more than this part of the frame interval, as a divisor, has waited. The
/// encoder is busy for the rest of the interval.
pub(crate) const WAITING: u32 = 4;

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Clock that only its owner advances.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct TestClock(Arc<AtomicU64>);

    impl TestClock {
        pub(crate) fn watch(&self) -> SourceWatch {
            let clock = self.clone();
            SourceWatch::with_clock(move || clock.now())
        }

        pub(crate) fn now(&self) -> Time {
            Time::from_millis(self.0.load(Ordering::Relaxed))
        }

        pub(crate) fn set(&self, ms: u64) {
            self.0.fetch_max(ms, Ordering::Relaxed);
        }
    }

    /// Source at nominally 25 pictures per second; picture `n` is available at `ready(n)` ms, and
    /// its first sample is `n`.
    struct Scripted<R> {
        clock: TestClock,
        ready: R,
        next: u64,
    }

    impl<R: Fn(u64) -> u64 + Send> VideoSource for Scripted<R> {
        fn size(&self) -> Size {
            Size::new(16, 16).unwrap()
        }

        fn frame_rate(&self) -> FrameRate {
            FrameRate::fps(25)
        }

        fn position(&self) -> u64 {
            self.next
        }

        fn next(&mut self, picture: &mut Picture) -> Result<bool, SourceError> {
            self.clock.set((self.ready)(self.next));
            // Decoding of any picture.
            self.clock.set(self.clock.now().as_nanos() / 1_000_000 + 2);
            picture.planes_mut().y[0] = self.next as u8;
            self.next += 1;
            Ok(true)
        }
    }

    impl<R> fmt::Debug for Scripted<R> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Scripted")
        }
    }

    /// Reads for `span` ms, as a sender that skips the frames it was too late for, and takes 5 ms
    /// to encode. Returns picture numbers and the age of each, in ms after it was `ready`.
    fn play(span: u64, ready: impl Fn(u64) -> u64 + Copy + Send + 'static) -> Vec<(u64, u64)> {
        let clock = TestClock::default();
        let scripted = Box::new(Scripted {
            clock: clock.clone(),
            ready,
            next: 0,
        });
        let mut source = PacedSource::new(scripted, clock.watch());
        let mut picture = Picture::black(source.size());
        let mut pictures: Vec<(u64, u64)> = Vec::new();
        let mut frame = 0;
        loop {
            clock.set(frame * 40);
            let now = clock.now().as_nanos() / 1_000_000;
            if now >= span {
                return pictures;
            }
            assert_eq!(source.advance_to(frame, &mut picture), Ok(true));
            let now = clock.now().as_nanos() / 1_000_000;
            let number = u64::from(picture.planes().y[0]);
            pictures.push((number, now - ready(number)));
            clock.set(now + 5);
            frame = (frame + 1).max((now + 5) / 40);
        }
    }

    #[test]
    fn each_picture_of_a_slow_source_is_sent_when_it_arrives() {
        // 20 instead of 25 pictures per second.
        let pictures = play(5_000, |n| n * 50);
        assert!(pictures.len() >= 95, "{}", pictures.len());
        let late = pictures.iter().filter(|(_, age)| *age > 50).count();
        assert_eq!(late, 0, "{pictures:?}");
    }

    #[test]
    fn a_file_that_stalled_is_caught_up_with() {
        // Half a second, between pictures 24 and 25.
        let pictures = play(3_000, |n| if n < 25 { 0 } else { 1_500 });
        let numbers: Vec<u64> = pictures.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers[..26], (0..26).collect::<Vec<u64>>());
        assert!(numbers[26] >= 37, "{numbers:?}");
        // The picture of the time at which it is sent.
        assert_eq!(numbers.last(), Some(&74));
    }

    #[test]
    fn a_source_in_time_is_read_picture_by_picture() {
        let pictures = play(2_000, |n| n * 40);
        let numbers: Vec<u64> = pictures.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (0..50).collect::<Vec<u64>>());
    }
}
