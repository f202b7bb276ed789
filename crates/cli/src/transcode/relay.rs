//! Stream that arrives over TCP, decoded on a thread of its own.

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
use tidegate_live::driver::{RunLimits, StopFlag};
use tidegate_live::tcp::{Admitted, receive};
use tidegate_media::{Colour, Decoded, Decoder, Picture, Size, SourceError, VideoSource};

use crate::decoding::DecoderArgs;
use crate::recv::numbering::{MAX_UNITS, MISFIT, Numbering};
use crate::recv::tcp::silence;
use tidegate_console::context::LiveContext;

/// Handle of the decoder thread.
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
    /// The first picture has arrived, or the stream has ended without one.
    begun: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pictures: VecDeque<(u64, Picture)>,
    /// Numbers and arrival times of new pictures.
    arrivals: Vec<(u64, Time)>,
    /// Size and colour description of the first picture.
    format: Option<(Size, Colour)>,
    /// The timestamps do not fit the frame rate.
    misfits: bool,
    /// The user has been notified.
    misfit_reported: bool,
    over: bool,
    error: Option<anyhow::Error>,
}

impl Shared {
    /// A poisoned lock is usable: no critical section leaves a partial state.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relay {
    /// Starts to read. The driver of `context` is woken for each picture and at the end. At most `kept` pictures
    /// wait for the encoder. A sender of which no frame is complete for `idle` is an error.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(
        incoming: Admitted<TcpReceiver>,
        decoding: DecoderArgs,
        rate: FrameRate,
        kept: usize,
        idle: Duration,
        context: &LiveContext,
    ) -> Result<Self> {
        let clock = context.clock;
        let shared = Arc::new(Shared::default());
        let stop = StopFlag::new().context("cannot create the event that stops the decoder")?;
        let conditions = RunLimits {
            clock,
            until: None,
            stop: stop.clone(),
        };
        let name = incoming.socket.peer().to_string();
        let mut decoder = DecoderThread {
            shared: Arc::clone(&shared),
            driver: context.stop.clone(),
            kept,
            idle,
            decoding,
            decoder: None,
            numbering: Numbering::of_connection(rate),
            units: VecDeque::new(),
            next: 0,
        };
        let work = move || {
            let ended = decoder.read(incoming, &conditions);
            decoder.close(ended.err());
        };
        let thread = thread::Builder::new().name("decoder".into());
        let thread = thread
            .spawn(work)
            .context("cannot start the decoder thread")?;
        Ok(Self {
            shared,
            name,
            rate,
            clock,
            stop,
            thread,
        })
    }

    /// Address of the sender.
    pub(super) fn name(&self) -> String {
        self.name.clone()
    }

    /// Waits for the first picture. `false` if the stream ends without one or `interrupted` returns
    /// true.
    pub(super) fn wait_for_picture(&self, interrupted: impl Fn() -> bool) -> bool {
        let mut state = self.shared.state();
        while state.format.is_none() && !state.over && !interrupted() {
            let waited = self.shared.begun.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.format.is_some()
    }

    /// Pictures since the last call, with their arrival time by `clock`.
    pub(super) fn arrivals(&self, clock: Clock) -> Vec<(u64, Time)> {
        let came = std::mem::take(&mut self.shared.state().arrivals);
        let by_clock = |at| clock.from_monotonic(self.clock.to_monotonic(at));
        came.into_iter().map(|(n, at)| (n, by_clock(at))).collect()
    }

    /// Message about the stream for the user, once.
    pub(super) fn note(&self) -> Option<&'static str> {
        let mut state = self.shared.state();
        let is_news = state.misfits && !std::mem::replace(&mut state.misfit_reported, true);
        is_news.then_some(MISFIT)
    }

    /// Discards the pictures so far.
    pub(super) fn discard(&self) {
        let mut state = self.shared.state();
        state.arrivals.clear();
        state.pictures.clear();
    }

    /// Whether the stream has ended and the arrivals have been read.
    pub(super) fn is_over(&self) -> bool {
        let state = self.shared.state();
        state.over && state.arrivals.is_empty()
    }

    /// Source of pictures for an encoder.
    ///
    /// # Errors
    /// No picture has arrived.
    pub(super) fn source(&self) -> Result<RelaySource> {
        let format = self.shared.state().format;
        let (size, colour) = format.context("no picture has arrived")?;
        Ok(RelaySource {
            shared: Arc::clone(&self.shared),
            name: self.name.clone(),
            size,
            colour,
            rate: self.rate,
            next: 0,
        })
    }

    /// Ends the thread.
    ///
    /// # Errors
    /// The error that ended the stream, if any. BYE and a stop by the caller are not errors.
    pub(super) fn finish(self) -> Result<()> {
        self.stop.set();
        if self.thread.join().is_err() {
            return Err(anyhow!("the decoder panicked; see the message above"));
        }
        self.shared.state().error.take().map_or(Ok(()), Err)
    }
}

/// State of the decoder thread.
struct DecoderThread {
    shared: Arc<Shared>,
    driver: StopFlag,
    kept: usize,
    /// Longest time between frames.
    idle: Duration,
    decoding: DecoderArgs,
    decoder: Option<Decoder>,
    numbering: Numbering,
    /// Numbers and arrivals of the last access units, newest first.
    units: VecDeque<(u64, Time)>,
    /// Lowest valid number of the next picture.
    next: u64,
}

impl DecoderThread {
    fn read(&mut self, incoming: Admitted<TcpReceiver>, conditions: &RunLimits) -> Result<()> {
        let Admitted {
            mut socket,
            opening: mut receiver,
            since,
        } = incoming;
        let mut last_frame = since;
        let mut failed = None;
        let ended = receive(&mut receiver, &mut socket, conditions, |receiver, now| {
            while let Some(frame) = receiver.poll_frame() {
                if frame.complete.is_some() {
                    last_frame = now;
                }
                if let Err(e) = self.decode(receiver, &frame) {
                    failed = Some(e);
                    return ControlFlow::Break(());
                }
            }
            if now.since(last_frame) >= self.idle {
                failed = Some(silence(self.idle).into());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        failed.map_or(Ok(()), Err)?;
        ended.context("the input ended without BYE")?;
        Ok(())
    }

    fn decode(&mut self, receiver: &TcpReceiver, frame: &ReceivedFrame) -> Result<()> {
        let Some(codec) = receiver.codec() else {
            return Ok(());
        };
        let number = self.numbering.number(frame.timestamp, frame.first).frame;
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            none => none.insert(Decoder::open(self.decoding.config(codec))?),
        };
        self.units
            .push_front((number, frame.complete.unwrap_or(frame.first)));
        self.units.truncate(MAX_UNITS);
        let decoded = decoder.decode(&frame.data);
        if let Decoded::Refused(refusal) = decoded {
            return Err(anyhow!(
                "cannot decode the input: {refusal} (--max-picture)"
            ));
        }
        let Some(picture) = decoded.picture().cloned() else {
            // Skip undecodable frames; the next key frame recovers.
            return Ok(());
        };
        // A stream with B pictures has another order of access units.
        let unit = self.units.get(usize::from(decoder.behind()));
        let Some(&(number, at)) = unit else {
            return Ok(());
        };
        let mut state = self.shared.state();
        state.misfits |= self.numbering.misfits();
        let format = (picture.size(), decoder.colour());
        let (size, _) = *state.format.get_or_insert(format);
        if size != picture.size() {
            return Err(anyhow!(
                "the picture size of the input changes from {size} to {}: start a transcoder for \
                each size",
                picture.size()
            ));
        }
        // If the frame rate is wrong, pictures can share a number, and an encoder accepts each
        // number once.
        if number < self.next {
            return Ok(());
        }
        self.next = number + 1;
        // Pictures in the encoder and in the queue; the encoder is never further behind.
        if state.pictures.len() >= self.kept {
            state.pictures.pop_front();
        }
        state.pictures.push_back((number, picture));
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

/// Pictures of a [`Relay`], by number.
#[derive(Debug)]
pub(super) struct RelaySource {
    shared: Arc<Shared>,
    name: String,
    size: Size,
    colour: Colour,
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

    fn colour(&self) -> Colour {
        self.colour
    }

    fn next(&mut self, picture: &mut Picture) -> Result<bool, SourceError> {
        self.advance_to(self.next, picture)
    }

    fn advance_to(&mut self, frame: u64, picture: &mut Picture) -> Result<bool, SourceError> {
        self.check_unread(frame)?;
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
        Err(SourceError::ReadFailed {
            name: self.name.clone(),
            pictures: frame,
            why: "the requested picture has been discarded".to_owned(),
        })
    }
}

/// Interval between checks for the end of a wait.
const LOOK: Duration = Duration::from_millis(100);
