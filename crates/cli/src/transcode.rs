//! `tidegate transcode`: re-encodes a stream between a server and a player, as in Figure 7 of the
//! first paper.

mod relay;

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ArgGroup;
use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::quantity;
use tidegate_core::session::tcp::Capture;
use tidegate_core::units::Bytes;
use tidegate_live::tcp::TcpSocket;
use tidegate_media::{FileOptions, FileSource, Preset, VideoSource};

use crate::decoding::DecoderArgs;
use crate::live::{self, JsonArgs, Limits};
use crate::send::addresses::check_target;
use crate::send::source::{self, Encoding};
use crate::source_speed::SourceWatch;
use crate::tcp::encryption::Encryption;
use crate::tcp::endpoints::End;
use crate::tcp::ready::{ready, remarks};
use crate::tcp::sending::{Sending, StreamResult, numbered};
use crate::tcp::{StreamConfig, TcpArgs, max_pictures};
use relay::Relay;
use tidegate_console::context::LiveContext;
use tidegate_console::progress::say;

/// Arguments of `tidegate transcode`.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("source").required(true).args(["listen", "from", "input"])))]
#[command(group(ArgGroup::new("player").required(true).args(["to", "serve"])))]
pub(crate) struct TranscodeArgs {
    /// Listen for the sender (`tidegate send --transport tcp`)
    #[arg(long, value_name = "[ADDR:]PORT")]
    listen: Option<String>,
    /// Connect to a sender that waits for players
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "listen")]
    from: Option<String>,
    /// Transcode a stored stream instead, in any format of FFmpeg
    #[arg(long, value_name = "SOURCE", conflicts_with_all = ["listen", "from"])]
    input: Option<String>,
    /// Address of the player (`tidegate recv --transport tcp`)
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,
    /// Frames per second of a stream that arrives over TCP [default: 30]. A stored stream has its
    /// own rate
    #[arg(long, value_name = "RATE", value_parser = live::frame_rate)]
    fps: Option<FrameRate>,
    /// Video codec of the output: `h264` or `mpeg2`
    #[arg(long, default_value = "mpeg2", value_parser = source::codec)]
    codec: Codec,
    /// Preset of x264
    #[arg(long, default_value = "superfast", value_parser = source::preset)]
    preset: Preset,
    #[command(flatten)]
    decoding: DecoderArgs,
    #[command(flatten)]
    limits: Limits,
    /// Maximum delay of a frame from its arrival, for the report and for `--mode iopt`
    #[arg(long, value_name = "TIME", default_value = "400ms", value_parser = quantity::duration)]
    delay_bound: Duration,
    /// Length of a full IP packet
    #[arg(long, value_name = "SIZE", default_value = "1200B", value_parser = quantity::size)]
    packet_size: Bytes,
    /// Write a run folder here [default: none]
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArgs,
    /// Permit streams to and from other hosts without encryption and authentication
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    tcp: TcpArgs,
}

/// Source of the pictures.
enum Input {
    /// Stream that arrives in real time.
    Live(Relay),
    /// File, paced by the local clock and restarted for each player. The first player uses the file
    /// that is already open.
    Stored(String, RefCell<Option<Box<FileSource>>>),
}

/// Transcodes until the input ends, the user interrupts, or the only player leaves before the end.
/// In the last case, and if the input fails, the exit code is 1.
pub(crate) fn run(args: &TranscodeArgs) -> Result<ExitCode> {
    check(args)?;
    // Check before a sender or player connects, because an error now would break its stream.
    live::claim(args.run.as_deref())?;
    ready(&args.tcp)?;
    let listens = args.listen.is_some() || args.tcp.serve.is_some();
    let connects = args.from.is_some() || args.to.is_some();
    let encryption = args.tcp.tls.load(listens, connects, args.insecure)?;
    let open = |name: &String| FileSource::open(name, FileOptions::default());
    let stored = args.input.as_ref().map(open).transpose()?;
    for remark in remarks(&args.tcp) {
        say(&remark);
    }
    let mut around = LiveContext::enter()?;
    let serve = args.tcp.serve.as_deref();
    let end = End::new(args.to.as_deref(), serve, encryption.clone(), "players")?;
    let Some(input) = open_input(args, stored, encryption, &around)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let over = || match &input {
        Input::Live(relay) => {
            relay.discard();
            relay.is_over()
        }
        Input::Stored(..) => false,
    };
    let each = |around: &LiveContext, socket: &mut TcpSocket, player| {
        play(args, &input, around, socket, player)
    };
    end.each(&mut around, &args.tcp, over, each)?;
    match input {
        Input::Live(relay) => relay.finish(),
        Input::Stored(..) => Ok(()),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn check(args: &TranscodeArgs) -> Result<()> {
    args.limits.check()?;
    live::check_stream(args.packet_size, args.delay_bound)?;
    args.to.as_deref().map_or(Ok(()), check_target)?;
    args.tcp.check(args.limits)?;
    args.tcp
        .check_input(args.input.as_deref().unwrap_or_default())?;
    ensure!(
        args.fps.is_none() || args.input.is_none(),
        "--fps requires a stream over TCP, because a stored stream has its own rate: leave it out"
    );
    Ok(())
}

/// `None` if the user interrupts the wait.
fn open_input(
    args: &TranscodeArgs,
    stored: Option<FileSource>,
    encryption: Encryption,
    around: &LiveContext,
) -> Result<Option<Input>> {
    if let Some(name) = &args.input {
        return Ok(Some(Input::Stored(
            name.clone(),
            RefCell::new(stored.map(Box::new)),
        )));
    }
    let (from, listen) = (args.from.as_deref(), args.listen.as_deref());
    let server = End::new(from, listen, encryption, "a stream")?;
    let interrupted = || around.interrupts.count() > 0;
    let idle = args.tcp.idle_timeout();
    let Some(incoming) = server.open_stream(&around.conditions(), idle, interrupted)? else {
        return Ok(None);
    };
    // Twice the queue limit: pictures also arrive between the sender's count and the encoder's
    // request.
    let fps = args.fps.unwrap_or(FrameRate::fps(30));
    let kept = 2 * max_pictures(args.delay_bound, fps) + 60;
    let relay = Relay::start(incoming, args.decoding, fps, kept, idle, around)?;
    if !relay.wait_for_picture(interrupted) {
        relay.finish()?;
        return Ok(None);
    }
    Ok(Some(Input::Live(relay)))
}

fn play(
    args: &TranscodeArgs,
    input: &Input,
    around: &LiveContext,
    socket: &mut TcpSocket,
    player: u32,
) -> Result<StreamResult> {
    let watch = SourceWatch::new();
    let mut changes = Vec::new();
    let (name, pictures, capture): (_, Box<dyn VideoSource>, _) = match input {
        Input::Live(relay) => (relay.name(), Box::new(relay.source()?), Capture::Source),
        Input::Stored(name, first) => {
            let again = || FileSource::open(name, FileOptions::default()).map(Box::new);
            let file = first.take().map_or_else(again, Ok)?;
            changes = file.changes().to_vec();
            let file = source::timed(*file, None, None, watch.clone())?;
            (name.clone(), file, Capture::Clock { frames: None })
        }
    };
    let (peer, codec) = (socket.peer(), args.codec.name());
    let frame_rate = pictures.frame_rate();
    let what = source::what(&name, &*pictures, &changes);
    let encoding = Encoding::constant(args.codec, args.preset);
    let sending = Sending {
        tcp: &args.tcp,
        config: StreamConfig {
            codec: args.codec,
            frame_rate,
            capture,
            packet_size: args.packet_size,
            limits: args.limits.both(),
            delay_bound: args.delay_bound,
        },
        encoder: encoding.session(pictures)?,
        source: watch,
        slow_encoder_advice: "send smaller or fewer pictures to this transcoder, or give a faster \
        --preset",
        greeting: format!("transcoding {what} to {codec} for {peer}"),
        name: format!("transcode {name} for {peer}"),
        duration: None,
        dir: args.run.as_ref().map(|dir| numbered(dir, player)),
        json: args.json,
    };
    let conditions = around.conditions();
    sending.play(around, &conditions, socket, |stream, report, now| {
        let Input::Live(relay) = input else { return };
        if let Some(note) = relay.note() {
            report.say(note);
        }
        for (frame, at) in relay.arrivals(around.clock) {
            stream.sender.on_picture(now, frame, at);
        }
        if relay.is_over() {
            stream.sender.stop_capture();
        }
    })
}
