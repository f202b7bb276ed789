//! One stream: its sender, and its state for the server.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::control::Context;
use tidegate_core::endpoint::{Check, Endpoint, Input, Output};
use tidegate_core::media::MEDIA_CLOCK;
use tidegate_core::session::sender::{MediaSender, SenderFailure, Status};
use tidegate_core::session::stream::Streamer;
use tidegate_core::trace::{BreakerCause, DropCause};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_live::driver::StopFlag;

use super::pacing::{Lateness, Paced};
use super::source::Source;
use crate::learning::Learner;

/// A running stream.
#[derive(Debug)]
pub(super) struct RunningStream {
    commands: Sender<Command>,
    stop: StopFlag,
    shared: Arc<Mutex<Snapshot>>,
}

/// Change of a running stream.
#[derive(Clone, Copy, Debug)]
enum Command {
    /// Continue, at another position if there is one.
    Play(Option<Duration>),
    Pause,
    Close,
}

/// State of a stream, for reports.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) status: Status,
    /// Rate of the last interval, without headers.
    pub(super) rate: Rate,
    pub(super) rendition: usize,
    pub(super) position: Duration,
    /// RTP sequence number of the next packet.
    pub(super) next_sequence: u16,
    /// RTP timestamp of a frame captured at the zero of the clock.
    pub(super) timestamp_base: u32,
    /// Time from the capture of the next frame to its display.
    pub(super) delay: Duration,
    pub(super) is_paused: bool,
    pub(super) lateness: Lateness,
    /// Frames that were sent, and that were dropped because they were late.
    pub(super) frames: (u64, u64),
    pub(super) bytes: Bytes,
    /// Time of the last report of the client.
    pub(super) last_received: Option<Time>,
    /// Why the stream ended before its end; empty if it did not. `None` while it runs.
    pub(super) ended: Option<String>,
}

impl RunningStream {
    pub(super) fn play(&self, from: Option<Duration>) {
        self.command(Command::Play(from));
    }

    pub(super) fn pause(&self) {
        self.command(Command::Pause);
    }

    /// Ends the stream with a BYE.
    pub(super) fn close(&self) {
        self.command(Command::Close);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        lock(&self.shared).clone()
    }

    /// Time of the last report of the client.
    pub(super) fn last_received(&self) -> Option<Time> {
        lock(&self.shared).last_received
    }

    /// Whether the stream has ended. Its thread then has no other reference to the state, also after
    /// a panic.
    pub(super) fn is_finished(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    fn command(&self, command: Command) {
        // A stream that has ended ignores commands.
        let _ = self.commands.send(command);
        self.stop.wake();
    }
}

impl Snapshot {
    /// RTP sequence number and timestamp of the first packet of a stream that continues at `now`;
    /// `None` while it plays.
    pub(super) fn first(&self, now: Time) -> Option<(u16, u32)> {
        let ticks =
            |time: Time| u128::from(time.as_nanos()) * u128::from(MEDIA_CLOCK) / 1_000_000_000;
        let timestamp = self
            .timestamp_base
            .wrapping_add(ticks(now + self.delay) as u32);
        self.is_paused.then_some((self.next_sequence, timestamp))
    }

    fn of(sender: &MediaSender, source: &Source) -> Self {
        Self {
            status: sender.status(),
            rate: Rate::ZERO,
            rendition: source.rendition(),
            position: source.position(),
            next_sequence: sender.next_sequence(),
            timestamp_base: sender.timestamp(Time::ZERO),
            delay: source.delay(),
            is_paused: false,
            lateness: Lateness::default(),
            frames: (0, 0),
            bytes: Bytes::ZERO,
            last_received: None,
            ended: None,
        }
    }
}

/// A stream at its driver.
#[derive(Debug)]
pub(super) struct Stream {
    paced: Paced<Source>,
    inbox: Receiver<Command>,
    shared: Arc<Mutex<Snapshot>>,
    /// Begin of the interval of the rate.
    since: Time,
    /// Time at which the stream was to end.
    closing: Option<Time>,
    learner: Option<Learner>,
    /// Time of the last report that was learnt from.
    reported: Option<Time>,
}

impl Endpoint for Stream {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        self.paced.handle(cx, input)
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        self.paced.poll(cx, buffer)
    }
}

impl Stream {
    /// A stream that begins at `now`, with an input for what it learns, if there is a store. `stop`
    /// wakes it.
    pub(super) fn new(
        sender: MediaSender,
        (source, learner): (Source, Option<Learner>),
        (now, stop): (Time, StopFlag),
    ) -> (Self, RunningStream) {
        let (commands, inbox) = channel();
        let shared = Arc::new(Mutex::new(Snapshot::of(&sender, &source)));
        let stream = Self {
            paced: Paced::new(Streamer::new(sender, source)),
            inbox,
            shared: Arc::clone(&shared),
            since: now,
            closing: None,
            learner,
            reported: None,
        };
        let running = RunningStream {
            commands,
            stop,
            shared,
        };
        (stream, running)
    }

    /// Applies commands and publishes the state.
    pub(super) fn turn(&mut self, now: Time) -> ControlFlow<()> {
        loop {
            match self.inbox.try_recv() {
                Ok(command) => self.apply(now, command),
                Err(TryRecvError::Empty) => break,
                // The server has forgotten the stream.
                Err(TryRecvError::Disconnected) => {
                    self.apply(now, Command::Close);
                    break;
                }
            }
        }
        if let Some(learner) = &mut self.learner {
            let status = self.paced.sender().status();
            learner.turn(&status, now);
            if self.reported != self.paced.last_received() {
                self.reported = self.paced.last_received();
                learner.on_receiver_report(&status, now);
            }
        }
        if now.since(self.since) >= UPDATE_INTERVAL {
            self.update(now);
        }
        if self.closing.is_some_and(|at| now.since(at) >= CLOSE_TIME) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// The stream has ended, because of an error if there is one.
    pub(super) fn finish(mut self, now: Time, error: Option<String>) {
        self.update(now);
        if let Some(learner) = self.learner.take() {
            learner.finish(now);
        }
        let why = error.unwrap_or_else(|| reason(self.paced.stream()));
        lock(&self.shared).ended = Some(why);
    }

    fn apply(&mut self, now: Time, command: Command) {
        let streamer = self.paced.stream_mut();
        match command {
            Command::Play(from) => {
                if let Some(from) = from {
                    streamer.sender_mut().pause_capture();
                    streamer.pipe_mut().seek(from);
                }
                streamer.sender_mut().resume_capture(now);
            }
            Command::Pause => {
                streamer.sender_mut().pause_capture();
                // The next key frame may be far, and the last one was displayed.
                let source = streamer.pipe_mut();
                source.seek(source.position());
            }
            Command::Close => {
                streamer.sender_mut().close();
                self.closing.get_or_insert(now);
            }
        }
        let is_paused = matches!(command, Command::Pause);
        let mut shared = lock(&self.shared);
        shared.is_paused = is_paused;
        let source = self.paced.stream_mut().pipe_mut();
        (shared.position, shared.delay) = (source.position(), source.delay());
        shared.next_sequence = self.paced.sender().next_sequence();
    }

    /// Publishes the state.
    fn update(&mut self, now: Time) {
        let (mut frames, mut packets) = (Vec::new(), Vec::new());
        let sender = self.paced.stream_mut().sender_mut();
        sender.drain_rows(&mut frames, &mut packets);
        let sent = frames.iter().filter(|frame| frame.left.is_some());
        let (count, bits) = sent.fold((0, 0), |(n, bits), frame| (n + 1, bits + frame.bits));
        let is_lost = |cause| !matches!(cause, DropCause::Ended);
        let dropped = frames
            .iter()
            .filter(|frame| frame.dropped.is_some_and(is_lost));
        let mut shared = lock(&self.shared);
        shared.frames.0 += count;
        shared.frames.1 += dropped.count() as u64;
        shared.bytes += Bytes(bits / 8);
        shared.rate = Bytes(bits / 8) / now.since(self.since).max(Duration::from_millis(1));
        shared.status = self.paced.sender().status();
        shared.next_sequence = self.paced.sender().next_sequence();
        shared.lateness.clone_from(self.paced.lateness());
        shared.last_received = self.paced.last_received();
        let source = self.paced.stream_mut().pipe_mut();
        (shared.rendition, shared.position) = (source.rendition(), source.position());
        self.since = now;
    }
}

/// Why a stream ended before its end; empty if it did not.
fn reason(stream: &Streamer<Source>) -> String {
    if let Some(error) = stream.error() {
        return error.to_string();
    }
    match stream.sender().failure() {
        None | Some(SenderFailure::ReceiverGone(BreakerCause::Goodbye)) => String::new(),
        Some(SenderFailure::ReceiverGone(BreakerCause::RtcpTimeout)) => {
            "no RTCP report arrived for too long".to_owned()
        }
        Some(SenderFailure::ReceiverGone(BreakerCause::MediaTimeout)) => {
            "the client reports that no packets arrive".to_owned()
        }
        Some(SenderFailure::ReceiverGone(BreakerCause::Congestion)) => {
            "the path loses too many packets even at the lowest rate".to_owned()
        }
        Some(_) => "the stream was given up".to_owned(),
    }
}

/// A poisoned lock is usable: no critical section leaves a partial state.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

const UPDATE_INTERVAL: Duration = Duration::from_secs(1);
/// Time for the BYE to leave.
const CLOSE_TIME: Duration = Duration::from_millis(500);
