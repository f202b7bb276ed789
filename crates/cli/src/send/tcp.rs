//! `tidegate send --transport tcp`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use tidegate_core::session::tcp::{Capture, TcpStreamer};
use tidegate_live::driver::Conditions;
use tidegate_live::pipe::Threaded;
use tidegate_live::tcp::{Sent, TcpError, TcpSocket};
use tidegate_sim::run::{FlowInfo, Side, Summary};

use super::source::Picked;
use super::{SendArgs, frames_in, pick};
use crate::live::{self, FLOW, Folder, Surroundings};
use crate::tcp::Making;
use crate::tcp::ends::End;
use crate::tcp::outgoing::{Reporter, check_encoder};
use crate::tcp::watch::watch;

/// Sends to one player, or to one after the other. The exit code is 1 when the only one leaves in
/// mid-stream.
pub(super) fn run(args: &SendArgs) -> Result<ExitCode> {
    check(args)?;
    let mut picked = Some(pick(args)?);
    let around = Surroundings::enter()?;
    let conditions = Conditions {
        clock: around.clock,
        until: None,
        stop: around.stop.clone(),
    };
    let end = End::new(args.to.as_deref(), args.tcp.serve.as_deref())?;
    if let Some(port) = end.port() {
        eprintln!("waiting for players at port {port}");
    }
    for player in 1_u32.. {
        let interrupted = || around.interrupts.count() > 0;
        let Some(stream) = end.open(&conditions, interrupted)? else {
            break;
        };
        let mut socket = TcpSocket::new(stream, &args.tcp.options())?;
        // Every player gets the video from its beginning.
        let picked = picked.take().map_or_else(|| pick(args), Ok)?;
        let played = play(args, &around, &conditions, &mut socket, picked, player)?;
        live::print_json(played.summary.as_ref().filter(|_| args.json))?;
        match (played.ended, &end) {
            (Err(error), End::To(_)) => return Err(error.into()),
            (Err(error), End::At(_)) => eprintln!("{error}; waiting for the next player"),
            (Ok(_), End::To(_)) => break,
            (Ok(_), End::At(_)) => {}
        }
        if around.interrupts.count() > 0 {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What makes no sense with TCP is refused.
pub(super) fn check(args: &SendArgs) -> Result<()> {
    args.tcp.check(args.limits)?;
    ensure!(
        args.control.is_none(),
        "--control is for --transport rtp: leave it out; over TCP --mode decides the rate"
    );
    ensure!(
        args.sdp.is_none() && !args.one_way,
        "--sdp and --one-way are for --transport rtp: leave them out"
    );
    Ok(())
}

/// What became of a stream.
pub(crate) struct Played {
    summary: Option<Summary>,
    /// How often the rate was changed because of an event.
    pub(crate) answers: usize,
    /// How it ended.
    pub(crate) ended: Result<Sent, TcpError>,
}

/// Sends to the player at the other end of `socket`.
pub(super) fn play(
    args: &SendArgs,
    around: &Surroundings,
    conditions: &Conditions,
    socket: &mut TcpSocket,
    picked: Picked,
    player: u32,
) -> Result<Played> {
    let peer = socket.peer();
    let frames = args.duration.map(|span| frames_in(span, picked.frame_rate));
    let flow = FlowInfo {
        name: FLOW.to_owned(),
        class: FLOW.to_owned(),
        control: args.tcp.choice().name().to_owned(),
        baseline: false,
        delay_bound: Some(args.delay_bound),
        floor: args.limits.both().0,
        frame_rate: Some(picked.frame_rate),
        one_clock: false,
    };
    let manifest = live::manifest(&format!("send to {peer} over TCP"), args.duration, flow);
    let dir = args.run.as_ref().map(|dir| numbered(dir, player));
    let folder = Folder::create(dir.as_deref(), args.json, Side::Sender, manifest)?;
    let sayings = watch(&args.tcp, socket)?;
    let mut reporter = Reporter::new(&args.tcp, folder, sayings)?;
    let mode = args.tcp.choice().name();
    reporter
        .progress
        .say(&format!("sending {} to {peer}, {mode}", picked.what));
    let making = Making {
        codec: args.codec,
        frame_rate: picked.frame_rate,
        capture: Capture::Clock { frames },
        packet_size: args.packet_size,
        limits: args.limits.both(),
        delay_bound: args.delay_bound,
    };
    let sender = making.sender(&args.tcp, around, conditions.clock.now());
    let pipe = Threaded::start(picked.session, around.stop.clone())
        .context("no thread for the encoder")?;
    let mut stream = TcpStreamer::new(sender, pipe);
    let ended = reporter.play(&mut stream, socket, conditions, around, |_, _| {});
    let answers = reporter.answers();
    let summary = reporter.finish(conditions.clock.now())?;
    check_encoder(&stream)?;
    Ok(Played {
        summary,
        answers,
        ended,
    })
}

/// The folder of the first player is as it is named, that of the second has a 2 behind it.
pub(crate) fn numbered(dir: &std::path::Path, player: u32) -> PathBuf {
    if player == 1 {
        return dir.to_owned();
    }
    let mut name = dir.as_os_str().to_owned();
    name.push(format!("-{player}"));
    PathBuf::from(name)
}
