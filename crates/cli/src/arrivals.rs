//! Live streams, and live sources without timestamps: the time of arrival of a picture is its time of capture.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tidegate_core::media::FrameRate;
use tidegate_live::thread_time::ThreadTime;
use tidegate_media::{Colour, Picture, Size, SourceError, VideoSource};

use crate::source_speed::{SourceWatch, WAITING};

/// Opens a live source.
pub(crate) type OpenSource = Box<dyn FnMut() -> Result<Box<dyn VideoSource>, SourceError> + Send>;

/// Answers each request with the newest picture that has arrived, or with the previous one again. A
/// thread reads the source.
///
/// A pipe that is written faster than its pictures are requested is read picture by picture. Once
/// the thread has waited for several pictures in succession, the source is the one that sets the pace, and
/// a new picture replaces one that was not requested in time.
#[derive(Debug)]
pub(crate) struct ArrivalSource {
    shared: Arc<Shared>,
    size: Size,
    rate: FrameRate,
    colour: Colour,
    position: u64,
    /// Number of the picture that was returned last.
    shown: u64,
}

#[derive(Debug)]
struct Shared {
    newest: Mutex<Newest>,
    changed: Condvar,
}

#[derive(Debug)]
struct Newest {
    picture: Picture,
    /// Number of the picture, from 1.
    number: u64,
    taken: bool,
    /// The source has ended.
    end: Option<Result<(), SourceError>>,
    /// Nothing is requested any more.
    closed: bool,
}

impl ArrivalSource {
    /// Starts to read `source`, whose pictures are requested at `rate`. If it ends or fails, it is
    /// opened `again`, until that succeeds.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(crate) fn start(
        source: Box<dyn VideoSource>,
        again: Option<OpenSource>,
        rate: FrameRate,
        watch: SourceWatch,
    ) -> io::Result<Self> {
        let (size, colour) = (source.size(), source.colour());
        let shared = Arc::new(Shared {
            newest: Mutex::new(Newest {
                picture: Picture::black(size),
                number: 0,
                taken: true,
                end: None,
                closed: false,
            }),
            changed: Condvar::new(),
        });
        let arrivals = Arc::clone(&shared);
        thread::Builder::new()
            .name("source".into())
            .spawn(move || arrivals.read(source, again, rate, &watch))?;
        Ok(Self {
            shared,
            size,
            rate,
            colour,
            position: 0,
            shown: 0,
        })
    }
}

impl Shared {
    fn read(
        &self,
        mut source: Box<dyn VideoSource>,
        mut again: Option<OpenSource>,
        rate: FrameRate,
        watch: &SourceWatch,
    ) {
        let mut picture = Picture::black(source.size());
        let mut waits = 0;
        loop {
            let began = ThreadTime::now();
            watch.begin();
            let mut read = source.next(&mut picture);
            if let Some(again) = &mut again {
                let mut pause = FIRST_PAUSE;
                while read != Ok(true) && self.pause(pause) {
                    pause = (pause * 2).min(MAX_PAUSE);
                    let opened = again();
                    read = opened.and_then(|opened| {
                        source = opened;
                        source.next(&mut picture)
                    });
                }
            }
            let busy = ThreadTime::now().since(began).total();
            // The encoder's thread does not decode.
            let asleep = watch.end(Duration::ZERO, 1).saturating_sub(busy);
            if asleep > rate.interval() / WAITING {
                waits += 1;
            } else if waits < LIVE {
                waits = 0;
            }
            let mut newest = self.newest();
            while waits < LIVE && !newest.taken && !newest.closed {
                newest = self.wait(newest);
            }
            if newest.closed {
                return;
            }
            if read == Ok(true) {
                std::mem::swap(&mut newest.picture, &mut picture);
                newest.number += 1;
                newest.taken = false;
            } else {
                newest.end = Some(read.map(|_| ()));
            }
            let is_over = newest.end.is_some();
            drop(newest);
            self.changed.notify_all();
            if is_over {
                return;
            }
        }
    }

    /// Waits before an attempt to open the source again; returns whether it is still needed.
    fn pause(&self, pause: Duration) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.newest(), pause, |newest| !newest.closed);
        let (newest, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !newest.closed
    }

    /// A poisoned lock is usable: no critical section leaves a partial state.
    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, newest: MutexGuard<'a, Newest>) -> MutexGuard<'a, Newest> {
        let waited = self.changed.wait(newest);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

impl VideoSource for ArrivalSource {
    fn size(&self) -> Size {
        self.size
    }

    fn frame_rate(&self) -> FrameRate {
        self.rate
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn colour(&self) -> Colour {
        self.colour
    }

    fn picture(&self) -> Option<u64> {
        Some(self.shown)
    }

    fn next(&mut self, picture: &mut Picture) -> Result<bool, SourceError> {
        self.advance_to(self.position, picture)
    }

    fn advance_to(&mut self, frame: u64, picture: &mut Picture) -> Result<bool, SourceError> {
        self.check_unread(frame)?;
        self.position = frame + 1;
        let mut newest = self.shared.newest();
        while newest.number == 0 && newest.end.is_none() {
            newest = self.shared.wait(newest);
        }
        if let Some(end) = newest.end.clone().filter(|_| newest.taken) {
            return end.map(|()| false);
        }
        picture.clone_from(&newest.picture);
        self.shown = newest.number;
        newest.taken = true;
        drop(newest);
        self.shared.changed.notify_all();
        Ok(true)
    }
}

impl Drop for ArrivalSource {
    fn drop(&mut self) {
        self.shared.newest().closed = true;
        self.shared.changed.notify_all();
    }
}

/// Time before the first attempt to open a source again; a camera takes at least a second to restart.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Maximum of this time, which doubles with each attempt.
const MAX_PAUSE: Duration = Duration::from_secs(8);
/// Pictures in succession that were waited for, after which the source sets the pace.
const LIVE: u32 = 3;

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::source_speed::tests::TestClock;

    /// Its pictures arrive when the test sends their numbers, which are their first samples, with the
    /// time that the source waited for them.
    struct Scripted(Receiver<(u8, u64)>, TestClock, u64);

    impl VideoSource for Scripted {
        fn size(&self) -> Size {
            Size::new(16, 16).unwrap()
        }

        fn frame_rate(&self) -> FrameRate {
            FrameRate::fps(25)
        }

        fn position(&self) -> u64 {
            self.2
        }

        fn next(&mut self, picture: &mut Picture) -> Result<bool, SourceError> {
            let Ok((number, wait_ms)) = self.0.recv() else {
                return Ok(false);
            };
            self.1.set(self.1.now().as_nanos() / 1_000_000 + wait_ms);
            picture.planes_mut().y[0] = number;
            self.2 += 1;
            Ok(true)
        }
    }

    impl fmt::Debug for Scripted {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Scripted")
        }
    }

    fn source() -> (ArrivalSource, Sender<(u8, u64)>) {
        let (pictures, inbox) = channel();
        let clock = TestClock::default();
        let watch = clock.watch();
        let scripted = Box::new(Scripted(inbox, clock, 0));
        let source = ArrivalSource::start(scripted, None, FrameRate::fps(60), watch).unwrap();
        (source, pictures)
    }

    /// The next picture that differs from the last one; `None` at the end.
    fn next(source: &mut ArrivalSource) -> Option<u8> {
        let (mut picture, before) = (Picture::black(source.size()), source.shown);
        while source.shown == before {
            if !source.next(&mut picture).unwrap() {
                return None;
            }
            thread::yield_now();
        }
        Some(picture.planes().y[0])
    }

    #[test]
    fn a_picture_is_repeated_until_the_next_one_arrives() {
        let (mut source, pictures) = source();
        let mut picture = Picture::black(source.size());
        for number in 1..5 {
            pictures.send((number, 33)).unwrap();
            assert_eq!(next(&mut source), Some(number));
            for _ in 0..3 {
                assert_eq!(source.next(&mut picture), Ok(true));
                assert_eq!(source.picture(), Some(u64::from(number)));
            }
        }
        drop(pictures);
        assert_eq!(next(&mut source), None);
    }

    #[test]
    fn pictures_that_do_not_wait_are_read_one_by_one() {
        let (mut source, pictures) = source();
        for number in 1..50 {
            pictures.send((number, 0)).unwrap();
        }
        drop(pictures);
        let seen: Vec<u8> = std::iter::from_fn(|| next(&mut source)).collect();
        assert_eq!(seen, (1..50).collect::<Vec<u8>>());
    }

    #[test]
    fn a_source_that_ends_is_opened_again() {
        let (pictures, inbox) = channel();
        let clock = TestClock::default();
        let watch = clock.watch();
        let (camera, reboots) = channel();
        let first = Box::new(Scripted(inbox, clock.clone(), 0));
        let again: OpenSource = Box::new(move || {
            let inbox = reboots.recv().map_err(|_| SourceError::NoVideo {
                name: "camera".to_owned(),
            })?;
            Ok(Box::new(Scripted(inbox, clock.clone(), 0)))
        });
        let mut source =
            ArrivalSource::start(first, Some(again), FrameRate::fps(60), watch).unwrap();
        pictures.send((1, 33)).unwrap();
        assert_eq!(next(&mut source), Some(1));
        let (later, inbox) = channel();
        camera.send(inbox).unwrap();
        later.send((2, 33)).unwrap();
        drop(pictures);
        assert_eq!(next(&mut source), Some(2));
    }

    #[test]
    fn a_live_source_is_never_behind() {
        let (mut source, pictures) = source();
        for number in 1..=3 {
            pictures.send((number, 20)).unwrap();
            assert_eq!(next(&mut source), Some(number));
        }
        for number in 4..50 {
            pictures.send((number, 20)).unwrap();
        }
        drop(pictures);
        while source.shared.newest().end.is_none() {
            thread::yield_now();
        }
        assert_eq!(next(&mut source), Some(49));
        assert_eq!(next(&mut source), None);
    }
}
