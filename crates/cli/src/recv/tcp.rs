//! `tidegate recv --transport tcp`: a player with a discard threshold, which records the arrival
//! time of each frame.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::json;
use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::session::jitter_buffer::ReceivedFrame;
use tidegate_core::session::receiver_stats::ReceivedTotal;
use tidegate_core::session::tcp::{Punctuality, TcpReceiver};
use tidegate_core::units::Time;
use tidegate_live::driver::{RunLimits, StopFlag};
use tidegate_live::tcp::{Admitted, ReceiverEnd, receive};
use tidegate_record::{Count, ShownFrame, received_row};

use super::keep::{ByteStream, Finished, Keeper};
use super::numbering::{Numbering, Turns};
use super::viewer::{self, Viewer, Watch};
use super::window::Window;
use super::{RecvArgs, folder};
use crate::live::{self, Intervals, rounded, totals};
use crate::tcp::endpoints::End;
use tidegate_console::context::LiveContext;
use tidegate_console::exit::EnvironmentError;
use tidegate_console::progress::{Progress, millis};

/// Plays one stream. The exit code is 1 if the sender closes without BYE.
pub(super) fn run(args: &RecvArgs) -> Result<ExitCode> {
    ensure!(
        args.sdp.is_none() && args.feedback.is_none() && args.codec.is_none(),
        "--sdp, --feedback and --codec require --transport rtp: leave them out"
    );
    let fps = args.fps.unwrap_or(FrameRate::fps(30));
    let context = LiveContext::enter()?;
    // Check before a sender connects, because an error now would break its stream.
    live::claim(args.run.as_deref())?;
    args.reference
        .as_deref()
        .map_or(Ok(()), viewer::check_reference)?;
    let byte_stream = ByteStream::create(args.out.as_deref())?;
    let mut progress = Progress::default();
    let conditions = RunLimits {
        until: args.duration.map(|span| Time::ZERO + span),
        ..context.conditions()
    };
    let Some(incoming) = connect(args, &context, &conditions, &mut progress)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let Admitted {
        mut socket,
        opening: mut receiver,
        since,
    } = incoming;
    let name = format!("receive from {} over TCP", socket.peer());
    let folder = folder(args, &name, fps)?;
    let keeper = Keeper::new(byte_stream, progress, folder);
    let stop = context.stop.clone();
    let mut player = Player::new(args, fps, keeper, stop, since)?;
    let mut idle = false;
    let ended = receive(&mut receiver, &mut socket, &conditions, |receiver, now| {
        player.turn(receiver, now);
        idle = player.is_idle(now, args.idle_timeout);
        let over = player.failed.is_some() || player.keeper.is_unread();
        if idle || over || context.interrupts.count() > 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    receiver.finish();
    player.turn(&mut receiver, context.clock.now());
    let failed = player.failed.take();
    let finished = player.finish(receiver.received(), &context)?;
    // A failure of the stream is more important than one of the output.
    let printed = args.json.print(finished.summary.as_ref());
    finished.recording?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    let asked = ended? == ReceiverEnd::Callback;
    if asked && receiver.packets() == 0 && context.interrupts.count() == 0 {
        bail!(no_data(socket.peer(), idle));
    }
    if idle {
        bail!(silence(args.idle_timeout));
    }
    printed.map(|()| ExitCode::SUCCESS)
}

/// The sender sent nothing until the end of the idle timeout, or of the duration.
fn no_data(peer: SocketAddr, idle: bool) -> EnvironmentError {
    EnvironmentError::new(format_args!(
        "no data arrived from {peer} in time: it has no data yet, or serves another player; wait \
        until that player has left, or give a longer {}",
        if idle { "--idle-timeout" } else { "--duration" }
    ))
}

/// The sender stopped sending for `timeout`.
fn silence(timeout: Duration) -> EnvironmentError {
    EnvironmentError::new(format_args!(
        "no complete frame has arrived for {} s and the sender sent no BYE: the sender hangs, or \
        the path is interrupted",
        timeout.as_secs_f64()
    ))
}

/// Connection to the sender. `None` if the user interrupts the wait.
fn connect(
    args: &RecvArgs,
    context: &LiveContext,
    conditions: &RunLimits,
    progress: &mut Progress,
) -> Result<Option<Admitted<TcpReceiver>>> {
    let (from, listen) = (args.from.as_deref(), args.listen.as_deref());
    let (listens, connects) = (listen.is_some(), from.is_some());
    let encryption = args.tls.load(listens, connects, args.security.insecure)?;
    let end = End::new(from, listen, encryption)?;
    if let Some(port) = end.port() {
        progress.say(&format!("waiting for a stream at port {port}"));
    }
    let over = || {
        let late = conditions.until.is_some_and(|at| context.clock.now() >= at);
        context.interrupts.count() > 0 || late
    };
    let incoming = end.open_stream(conditions, args.idle_timeout, over)?;
    if incoming.is_none() {
        let end = conditions.until.unwrap_or(context.clock.now());
        let after = end.as_secs_f64();
        match &args.from {
            _ if context.interrupts.count() > 0 => return Ok(None),
            Some(from) => bail!(EnvironmentError::new(format_args!(
                "{from} did not answer in {after:.1} s: check address and routes, or give a \
                longer --duration"
            ))),
            None => bail!(EnvironmentError::new(format_args!(
                "no sender connected in {after:.1} s: check that the sender runs, and give it \
                this address"
            ))),
        }
    }
    Ok(incoming)
}

struct Player<'a> {
    args: &'a RecvArgs,
    fps: FrameRate,
    keeper: Keeper,
    stop: StopFlag,
    window: Option<Window>,
    viewer: Option<Viewer>,
    numbering: Numbering,
    punctuality: Punctuality,
    turns: Turns,
    on_screen: Option<u64>,
    packets: u64,
    /// Time of the connection or of the last complete frame. Packets alone do not count: a peer
    /// that sends a few bytes at a time would hold the session.
    last_frame: Time,
    /// With the number of discarded frames.
    intervals: Intervals<u64>,
    discarded: u64,
    failed: Option<anyhow::Error>,
}

impl<'a> Player<'a> {
    /// Player of a sender that connected at `now`.
    fn new(
        args: &'a RecvArgs,
        fps: FrameRate,
        keeper: Keeper,
        stop: StopFlag,
        now: Time,
    ) -> Result<Self> {
        Ok(Self {
            args,
            fps,
            keeper,
            stop,
            window: args.window.then(|| Window::open(fps)).transpose()?,
            viewer: None,
            numbering: Numbering::of_connection(fps),
            punctuality: Punctuality::new(args.delay_bound),
            turns: Turns::new(fps),
            on_screen: None,
            packets: 0,
            last_frame: now,
            intervals: Intervals::new(args.json.lines()),
            discarded: 0,
            failed: None,
        })
    }

    fn turn(&mut self, receiver: &mut TcpReceiver, now: Time) {
        if self.packets == 0
            && let Some(codec) = receiver.codec()
        {
            self.failed = self.begin(codec).err();
        }
        self.packets = receiver.packets();
        while let Some(frame) = receiver.poll_frame() {
            if frame.complete.is_some() {
                self.last_frame = now;
            }
            self.take(frame);
        }
        while let Some(judged) = self.viewer.as_ref().and_then(Viewer::poll) {
            self.keeper.judged(judged);
        }
        self.keeper.keep(now);
        if self.packets > 0 && self.keeper.progress.is_due(now) {
            let line = self.line(now);
            self.keeper.progress.show(&line);
        }
        self.intervals.print_if_due(now, |interval| {
            json!({
                "discarded": interval.extra,
                "lateness_ms": rounded(interval.longest.as_secs_f64() * 1e3),
            })
        });
    }

    /// The first packet names the codec.
    fn begin(&mut self, codec: Codec) -> Result<()> {
        self.keeper
            .progress
            .say(&format!("the stream has started: {}", codec.name()));
        let reference = self.args.reference.as_deref();
        if reference.is_none() && self.window.is_none() {
            return Ok(());
        }
        let watch = Watch {
            reference,
            window: self.window.take(),
            decoder: self.args.decoding.config(codec),
            rate: self.fps,
        };
        self.viewer = Some(Viewer::start(watch, self.stop.clone())?);
        Ok(())
    }

    fn is_idle(&self, now: Time, patience: Duration) -> bool {
        now.since(self.last_frame) >= patience
    }

    fn take(&mut self, frame: ReceivedFrame) {
        let numbered = self.numbering.number(frame.timestamp, frame.first);
        self.keeper.check(&self.numbering);
        let mut accepted = false;
        if let Some(complete) = frame.complete {
            let lateness = self.punctuality.lateness(frame.timestamp, complete);
            accepted = self.punctuality.accepts(lateness);
            self.count(&frame, complete, lateness, accepted);
        }
        self.keeper.write(&frame.data);
        let row = received_row(&frame, numbered.frame);
        let Some(viewer) = &mut self.viewer else {
            self.show(numbered.frame, frame.first, accepted);
            self.keeper.received(row);
            return;
        };
        let kept_up = viewer.keeps_up();
        if let Err(row) = viewer.show(row, frame.data, accepted) {
            self.keeper.received(row);
            if kept_up {
                self.keeper
                    .progress
                    .say("pictures stopped: the machine decodes too slowly");
            }
        }
    }

    /// Records the frame on the screen without a decoder.
    fn show(&mut self, frame: u64, at: Time, accepted: bool) {
        for slot in self.turns.until(frame, at) {
            let on_time = accepted && slot == frame;
            if on_time {
                self.on_screen = Some(frame);
            }
            self.keeper.shown(ShownFrame {
                frame: slot,
                shown_frame: self.on_screen,
                on_time,
                quality: None,
            });
        }
    }

    fn count(&mut self, frame: &ReceivedFrame, at: Time, lateness: Duration, accepted: bool) {
        let bits = frame.bytes * 8;
        let discarded = u64::from(!accepted);
        self.intervals.count(|interval| {
            interval.frame(bits);
            interval.delay(lateness);
            interval.extra += discarded;
        });
        self.keeper.whole.add(bits, at, at);
        self.discarded += discarded;
    }

    fn line(&mut self, now: Time) -> String {
        let interval = self.intervals.line(now);
        format!(
            "{:6.1} s  {}  {:.0} frames/s  discarded {}  late by {} of {}",
            now.as_secs_f64(),
            interval.rate(now),
            interval.frame_rate(now),
            interval.extra,
            millis(interval.longest),
            millis(self.args.delay_bound),
        )
    }

    /// Writes the last rows and prints the final message.
    fn finish(mut self, received: ReceivedTotal, context: &LiveContext) -> Result<Finished> {
        let now = context.clock.now();
        if let Some(viewer) = self.viewer.take() {
            for judged in viewer.finish() {
                self.keeper.judged(judged);
            }
        }
        let mut keeper = self.keeper;
        keeper.keep(now);
        let last_words = if self.packets == 0 {
            format!("no stream arrived in {:.1} s", now.as_secs_f64())
        } else {
            format!(
                "{}; {} discarded, later than {}{}",
                keeper.received_in_all(),
                self.discarded,
                millis(self.args.delay_bound),
                keeper.psnr_text(),
            )
        };
        keeper.progress.say(&last_words);
        let count = Count {
            packets: self.packets,
            bytes: received.bytes,
        };
        // TCP loses nothing.
        keeper.finish(totals(received.span, count, count), context)
    }
}
