//! `tidegate send --transport tcp`

use std::process::ExitCode;

use anyhow::{Result, ensure};
use tidegate_core::session::tcp::Capture;
use tidegate_live::driver::RunLimits;
use tidegate_live::tcp::TcpSocket;

use super::source::OpenedSource;
use super::{SendArgs, frames_in, slow_encoder_advice};
use crate::live;
use crate::tcp::StreamConfig;
use crate::tcp::encryption::Encryption;
use crate::tcp::endpoints::End;
use crate::tcp::ready::{ready, remarks};
use crate::tcp::sending::{Sending, StreamResult, numbered};
use tidegate_console::context::LiveContext;
use tidegate_console::progress::say;

/// Sends to one player, or to several in succession. The exit code is 1 if the only player leaves
/// before the end.
pub(super) fn run(args: &SendArgs) -> Result<ExitCode> {
    check(args)?;
    // Check before a player connects, because an error now would break its stream.
    live::claim(args.run.as_deref())?;
    ready(&args.tcp)?;
    let encryption = encryption(args)?;
    let mut opened = Some(OpenedSource::open(&args.input, args.encoding)?);
    let mut context = LiveContext::enter()?;
    for remark in remarks(&args.tcp) {
        say(&remark);
    }
    let serve = args.tcp.serve.as_deref();
    let end = End::new(args.to.as_deref(), serve, encryption, "players")?;
    let each = |context: &LiveContext, socket: &mut TcpSocket, player| {
        // Each player receives the video from its beginning.
        let opened = opened
            .take()
            .map_or_else(|| OpenedSource::open(&args.input, args.encoding), Ok)?;
        play(args, context, &context.conditions(), socket, opened, player)
    };
    end.each(&mut context, &args.tcp, || false, each)?;
    Ok(ExitCode::SUCCESS)
}

/// TLS of the connection.
///
/// # Errors
/// An option is without effect, or a file is unusable.
pub(super) fn encryption(args: &SendArgs) -> Result<Encryption> {
    let (listens, connects) = (args.tcp.serve.is_some(), args.to.is_some());
    args.tcp.tls.load(listens, connects, args.security.insecure)
}

/// Rejects options that do not apply to TCP.
pub(super) fn check(args: &SendArgs) -> Result<()> {
    args.tcp.check(args.limits)?;
    args.tcp.check_input(&args.input.input)?;
    ensure!(
        args.control.is_none(),
        "--control requires --transport rtp: leave it out; over TCP --mode sets the rate"
    );
    ensure!(
        args.sdp.is_none() && !args.receiver.one_way,
        "--sdp and --one-way require --transport rtp: leave them out"
    );
    Ok(())
}

/// Sends to the player at the other end of `socket`.
pub(super) fn play(
    args: &SendArgs,
    context: &LiveContext,
    conditions: &RunLimits,
    socket: &mut TcpSocket,
    opened: OpenedSource,
    player: u32,
) -> Result<StreamResult> {
    let peer = socket.peer();
    let frames = args.duration.map(|span| frames_in(span, opened.frame_rate));
    let sending = Sending {
        tcp: &args.tcp,
        config: StreamConfig {
            codec: args.encoding.codec,
            frame_rate: opened.frame_rate,
            capture: Capture::Clock { frames },
            packet_size: args.packet_size,
            limits: args.limits.both(),
            delay_bound: args.delay_bound,
        },
        greeting: format!("sending {} to {peer}", opened.what),
        encoder: opened.session,
        source: opened.watch,
        slow_encoder_advice: slow_encoder_advice(args.encoding.codec),
        name: format!("send to {peer} over TCP"),
        duration: args.duration,
        dir: args.run.as_ref().map(|dir| numbered(dir, player)),
        json: args.json,
    };
    sending.play(context, conditions, socket, |_, _, _| {})
}
