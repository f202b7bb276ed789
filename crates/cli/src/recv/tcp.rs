//! `tidegate recv --transport tcp`: a player with a discard threshold, which records the arrival
//! time of each frame.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::json;
use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::session::receiver_stats::ReceivedTotal;
use tidegate_core::session::tcp::TcpReceiver;
use tidegate_core::units::Time;
use tidegate_live::driver::{EndReason, RunLimits};
use tidegate_live::tcp::{Admitted, receive};
use tidegate_record::Count;

use super::numbering::Numbering;
use super::player::{Player, Screen};
use super::recording::Recording;
use super::viewer::check_reference;
use super::window::Window;
use super::{RecvArgs, folder, viewer_of};
use crate::live::{self, rounded, totals};
use crate::tcp::endpoints::End;
use tidegate_console::context::LiveContext;
use tidegate_console::exit::EnvironmentError;
use tidegate_console::progress::millis;

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
    check_reference(args.reference.as_deref())?;
    let recording = Recording::create(args.out.as_deref())?;
    let conditions = RunLimits {
        until: args.duration.map(|span| Time::ZERO + span),
        ..context.conditions()
    };
    let Some(Admitted {
        mut socket,
        opening: mut receiver,
        since,
    }) = connect(args, &context, &conditions)?
    else {
        return Ok(ExitCode::SUCCESS);
    };
    let peer = socket.peer();
    let folder = folder(args, &format!("receive from {peer} over TCP"), fps)?;
    let mut player = Player::new(args, Numbering::of_connection(fps), folder, recording);
    player.screen = Some(Screen::new(fps));
    let mut stream = Stream {
        args,
        fps,
        player,
        context: &context,
        window: args.window.then(|| Window::open(fps)).transpose()?,
        packets: 0,
        since,
        idle: false,
        failed: None,
    };
    let ended = receive(&mut receiver, &mut socket, &conditions, |receiver, now| {
        stream.turn(receiver, now);
        if stream.is_over(now) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    receiver.finish();
    stream.turn(&mut receiver, context.clock.now());
    let (idle, failed) = (stream.idle, stream.failed.take());
    let printed = stream.finish(receiver.received())?;
    failed.map_or(Ok(()), Err)?;
    let asked = ended? != EndReason::Done;
    if asked && receiver.packets() == 0 && context.interrupts.count() == 0 {
        bail!(no_data(peer, idle));
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
pub(crate) fn silence(timeout: Duration) -> EnvironmentError {
    EnvironmentError::new(format_args!(
        "no complete frame has arrived for {} s and the sender sent no BYE: the sender hangs, or \
        the path is interrupted; a longer --idle-timeout waits longer",
        timeout.as_secs_f64()
    ))
}

/// Connection to the sender. `None` if the user interrupts the wait.
fn connect(
    args: &RecvArgs,
    context: &LiveContext,
    conditions: &RunLimits,
) -> Result<Option<Admitted<TcpReceiver>>> {
    let (from, listen) = (args.from.as_deref(), args.listen.as_deref());
    let (listens, connects) = (listen.is_some(), from.is_some());
    let encryption = args.tls.load(listens, connects, args.security.insecure)?;
    let end = End::new(from, listen, encryption, "a stream")?;
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

/// Stream of the sender that connected.
struct Stream<'a> {
    args: &'a RecvArgs,
    fps: FrameRate,
    player: Player,
    context: &'a LiveContext,
    window: Option<Window>,
    packets: u64,
    /// Time of the connection.
    since: Time,
    /// No frame was complete for too long.
    idle: bool,
    failed: Option<anyhow::Error>,
}

impl Stream<'_> {
    fn turn(&mut self, receiver: &mut TcpReceiver, now: Time) {
        if self.packets == 0
            && let Some(codec) = receiver.codec()
        {
            self.failed = self.begin(codec).err();
        }
        self.packets = receiver.packets();
        self.player.turn(now, || receiver.poll_frame());
        let bound = self.player.bound;
        let report = &mut self.player.report;
        if self.packets > 0 {
            report.show_if_due(now, |interval| {
                format!(
                    "  {:.0} frames/s  discarded {}  late by {} of {}",
                    interval.frame_rate(now),
                    interval.extra,
                    millis(interval.longest),
                    millis(bound),
                )
            });
        }
        report.print_if_due(now, |interval| {
            json!({
                "discarded": interval.extra,
                "lateness_ms": rounded(interval.longest.as_secs_f64() * 1e3),
            })
        });
    }

    /// The first packet names the codec.
    fn begin(&mut self, codec: Codec) -> Result<()> {
        let started = format!("the stream has started: {}", codec.name());
        self.player.report.say(&started);
        let window = self.window.take();
        self.player.viewer = viewer_of(self.args, codec, self.fps, window, &self.context.stop)?;
        Ok(())
    }

    /// Whether the receiver ends the stream. Packets without complete frames do not prevent it: a
    /// peer that sends a few bytes at a time would hold the session.
    fn is_over(&mut self, now: Time) -> bool {
        let last = self.player.whole.period();
        let last = last.map_or(self.since, |(_, last)| last);
        self.idle = now.since(last) >= self.args.idle_timeout;
        self.idle
            || self.failed.is_some()
            || self.player.recording.is_unread()
            || self.context.interrupts.count() > 0
    }

    fn finish(self, received: ReceivedTotal) -> Result<Result<()>> {
        let (discarded, bound) = (self.player.discarded, millis(self.player.bound));
        let rest = format!("{discarded} discarded, later than {bound}");
        let rest = (self.packets > 0).then_some(rest);
        // TCP loses nothing.
        let count = Count {
            packets: self.packets,
            bytes: received.bytes,
        };
        let totals = totals(received.span, count, count);
        self.player.finish(rest, &[], totals, self.context)
    }
}
