//! A stream that comes over TCP, decoded on a thread of its own.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use tidegate_core::media::FrameRate;
use tidegate_core::session::jitter_buffer::ReceivedFrame;
use tidegate_core::session::tcp::TcpReceiver;
use tidegate_core::units::Time;
use tidegate_live::clock::Clock;
use tidegate_live::driver::{Conditions, StopFlag};
use tidegate_live::tcp::{TcpSocket, receive};
use tidegate_media::{Decoder, Picture, Size, SourceError, VideoSource};

use crate::recv::numbering::{MISFIT, Numbering};

/// The thread, from outside.
#[derive(Debug)]
pub(super) struct Relay {
    shared: Arc<Shared>,
    name: String,
    rate: FrameRate,
    clock: Clock,
    /// Ends the thread.
    stop: StopFlag,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is a first picture, or there will be none.
    begun: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pictures: VecDeque<(u64, Picture)>,
    /// Numbers of pictures that nobody has asked for, and when they came.
    arrivals: Vec<(u64, Time)>,
    /// Of the first picture.
    size: Option<Size>,
    /// Time stamps are not at the rate of the frames.
    misfits: bool,
    /// Somebody has been told.
    told_misfit: bool,
    over: bool,
    error: Option<anyhow::Error>,
}

impl Shared {
    /// Nothing that holds the lock can fail half-way.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relay {
    /// Starts to read. `driver` is woken for every picture and at the end. So many pictures are kept
    /// until somebody asks for them.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub(super) fn start(
        mut socket: TcpSocket,
        rate: FrameRate,
        kept: usize,
        clock: Clock,
        driver: StopFlag,
    ) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let stop = StopFlag::new().context("no event to wake the decoder by")?;
        let conditions = Conditions {
            clock,
            until: None,
            stop: stop.clone(),
        };
        let name = socket.peer().to_string();
        let mut desk = Desk {
            shared: Arc::clone(&shared),
            driver,
            kept,
            decoder: None,
            numbering: Numbering::of_connection(rate),
            next: 0,
        };
        let work = move || {
            let ended = desk.read(&mut socket, &conditions);
            desk.close(ended.err());
        };
        let thread = thread::Builder::new().name("decoder".into());
        let thread = thread.spawn(work).context("no thread for the decoder")?;
        Ok(Self {
            shared,
            name,
            rate,
            clock,
            stop,
            thread,
        })
    }

    /// The sender's address.
    pub(super) fn name(&self) -> String {
        self.name.clone()
    }

    /// Waits for the first picture. `false` if there is none, or `asked` says so.
    pub(super) fn wait_for_picture(&self, asked: impl Fn() -> bool) -> bool {
        let mut state = self.shared.state();
        while state.size.is_none() && !state.over && !asked() {
            let waited = self.shared.begun.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.size.is_some()
    }

    /// Pictures that came since the last time, and when by `clock`.
    pub(super) fn arrivals(&self, clock: Clock) -> Vec<(u64, Time)> {
        let came = std::mem::take(&mut self.shared.state().arrivals);
        let by_clock = |at| clock.from_monotonic(self.clock.to_monotonic(at));
        came.into_iter().map(|(n, at)| (n, by_clock(at))).collect()
    }

    /// What the user should know of the stream, once.
    pub(super) fn note(&self) -> Option<&'static str> {
        let mut state = self.shared.state();
        let is_news = state.misfits && !std::mem::replace(&mut state.told_misfit, true);
        is_news.then_some(MISFIT)
    }

    /// Nobody wants what has come so far.
    pub(super) fn pass_over(&self) {
        let mut state = self.shared.state();
        state.arrivals.clear();
        state.pictures.clear();
    }

    /// Whether no more will come, and all that came has been asked for.
    pub(super) fn is_over(&self) -> bool {
        let state = self.shared.state();
        state.over && state.arrivals.is_empty()
    }

    /// The pictures, for an encoder.
    ///
    /// # Errors
    /// Before the first one.
    pub(super) fn source(&self) -> Result<RelaySource> {
        let size = self.shared.state().size;
        Ok(RelaySource {
            shared: Arc::clone(&self.shared),
            name: self.name.clone(),
            size: size.context("no picture has come")?,
            rate: self.rate,
            next: 0,
        })
    }

    /// Ends it.
    ///
    /// # Errors
    /// What ended the stream, if not a goodbye or we.
    pub(super) fn finish(self) -> Result<()> {
        self.stop.set();
        if self.thread.join().is_err() {
            return Err(anyhow!("the decoder panicked; see the message above"));
        }
        self.shared.state().error.take().map_or(Ok(()), Err)
    }
}

/// What the thread works with.
struct Desk {
    shared: Arc<Shared>,
    driver: StopFlag,
    kept: usize,
    decoder: Option<Decoder>,
    numbering: Numbering,
    /// The least number that the next picture may have.
    next: u64,
}

impl Desk {
    fn read(&mut self, socket: &mut TcpSocket, conditions: &Conditions) -> Result<()> {
        let mut receiver = TcpReceiver::new();
        let mut failed = None;
        let ended = receive(&mut receiver, socket, conditions, |receiver, _| {
            while let Some(frame) = receiver.poll_frame() {
                if let Err(e) = self.decode(receiver, &frame) {
                    failed = Some(e);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        failed.map_or(Ok(()), Err)?;
        ended.context("the input ended too early")?;
        Ok(())
    }

    fn decode(&mut self, receiver: &TcpReceiver, frame: &ReceivedFrame) -> Result<()> {
        let Some(codec) = receiver.codec() else {
            return Ok(());
        };
        let number = self.numbering.number(frame.timestamp, frame.first).frame;
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            none => none.insert(Decoder::open(codec)?),
        };
        let Some(picture) = decoder.decode(&frame.data).picture() else {
            // What cannot be decoded is passed over; the next key frame mends it.
            return Ok(());
        };
        let mut state = self.shared.state();
        state.misfits |= self.numbering.misfits();
        let size = *state.size.get_or_insert(picture.size());
        if size != picture.size() {
            return Err(anyhow!(
                "the input changes its pictures from {size} to {}: start a transcoder for each",
                picture.size()
            ));
        }
        // At another frame rate pictures share a number, and an encoder takes each once.
        if number < self.next {
            return Ok(());
        }
        self.next = number + 1;
        // Those that the encoder is at and those that wait for room; it is never further behind.
        if state.pictures.len() >= self.kept {
            state.pictures.pop_front();
        }
        let at = frame.complete.unwrap_or(frame.first);
        state.pictures.push_back((number, picture.clone()));
        state.arrivals.push((number, at));
        drop(state);
        self.shared.begun.notify_all();
        self.driver.wake();
        Ok(())
    }

    fn close(&mut self, error: Option<anyhow::Error>) {
        let mut state = self.shared.state();
        state.over = true;
        state.error = error;
        drop(state);
        self.shared.begun.notify_all();
        self.driver.wake();
    }
}

/// The pictures of a [`Relay`], by number.
#[derive(Debug)]
pub(super) struct RelaySource {
    shared: Arc<Shared>,
    name: String,
    size: Size,
    rate: FrameRate,
    next: u64,
}

impl VideoSource for RelaySource {
    fn size(&self) -> Size {
        self.size
    }

    fn frame_rate(&self) -> FrameRate {
        self.rate
    }

    fn position(&self) -> u64 {
        self.next
    }

    fn next(&mut self, picture: &mut Picture) -> Result<bool, SourceError> {
        self.advance_to(self.next, picture)
    }

    fn advance_to(&mut self, frame: u64, picture: &mut Picture) -> Result<bool, SourceError> {
        let position = self.next;
        if frame < position {
            return Err(SourceError::Passed { frame, position });
        }
        self.next = frame + 1;
        let mut state = self.shared.state();
        while let Some((number, next)) = state.pictures.pop_front() {
            if number == frame {
                *picture = next;
                return Ok(true);
            }
            if number > frame {
                state.pictures.push_front((number, next));
                break;
            }
        }
        Err(SourceError::Broken {
            name: self.name.clone(),
            pictures: frame,
            why: "a picture was asked for that is no longer kept".to_owned(),
        })
    }
}

/// Between two looks at what may end a wait.
const LOOK: Duration = Duration::from_millis(100);
