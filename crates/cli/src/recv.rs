//! `tidegate recv`: receives a stream over RTP or TCP.

pub(crate) mod address;
mod gaps;
pub(crate) mod numbering;
mod pipe;
mod player;
mod recording;
mod report;
pub(crate) mod tcp;
mod unexpected;
mod viewer;
mod window;

use std::ffi::OsStr;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ArgGroup;
use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::quantity;
use tidegate_core::session::config::{FeedbackMode, MEDIA_TYPE, REPAIR_TYPE, ReceiverConfig};
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::units::Time;
use tidegate_core::wire::payload;
use tidegate_core::wire::rtp::PayloadType;
use tidegate_core::wire::sdp::Sdp;
use tidegate_live::driver::{StopFlag, drive};
use tidegate_record::{FlowInfo, Side};
use tidegate_secure::SecureEndpoint;

use crate::decoding::DecoderArgs;
use crate::live::{self, Folder, JsonArgs, Transport};
use crate::security::{self, Protection, SecurityArgs};
use crate::send::source;
use crate::tcp::encryption::TlsArgs;
use numbering::Numbering;
use player::Player;
use recording::Recording;
use report::Report;
use tidegate_console::arguments;
use tidegate_console::context::{self, LiveContext};
use tidegate_console::exit::EnvironmentError;
use tidegate_console::progress::say;
use unexpected::{Adviser, Expected, Unexpected};
use viewer::{Viewer, Watch};
use window::Window;

/// Arguments of `tidegate recv`.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("source").required(true).multiple(true).args(["listen", "from", "sdp"])))]
pub(crate) struct RecvArgs {
    /// Port to listen on, on one address or all
    #[arg(long, value_name = "[ADDR:]PORT")]
    listen: Option<String>,
    /// Accept packets of this host only, from any port or from PORT [default: the description's
    /// source filter, or any host]. With TCP: connect to a sender that waits for players
    #[arg(long, value_name = "HOST[:PORT]")]
    from: Option<String>,
    /// Description of the stream, as written by `tidegate send --sdp`
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    sdp: Option<PathBuf>,
    /// Discard a frame this long after its earliest possible arrival
    #[arg(long, visible_alias = "discard-threshold", value_name = "TIME", default_value = "400ms", value_parser = quantity::duration)]
    delay_bound: Duration,
    /// Frames per second of the stream [default: the description's, or 30]
    #[arg(long, value_name = "RATE", value_parser = live::frame_rate)]
    fps: Option<FrameRate>,
    /// Codec of the stream [default: h264]. Only for RTP without a description: descriptions and
    /// RTP packets over TCP name the codec
    #[arg(long, conflicts_with = "sdp", value_parser = source::codec)]
    codec: Option<Codec>,
    /// RTP payload type of an H.264 stream without a description [default: 96]
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["sdp", "codec"], value_parser = payload_type)]
    payload_type: Option<PayloadType>,
    /// Write the decodable frames to a byte stream (FILE.h264) or elementary stream (FILE.m2v), without
    /// a container as MP4; `-` is standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Decode the stream and compare it with the original: `scene` or the file that is sent
    #[arg(long, value_name = "SOURCE")]
    reference: Option<String>,
    /// Show the pictures that arrive in time with `ffplay` (TCP only)
    #[arg(long)]
    window: bool,
    #[command(flatten)]
    decoding: DecoderArgs,
    /// Go on after a loss with a picture that has blemishes until the next key frame [default: yes
    /// if no key frame can be requested]
    #[arg(long, value_enum, value_name = "YES|NO", num_args = 0..=1, default_missing_value = "yes")]
    conceal: Option<YesNo>,
    /// Feedback to the sender [default: what its description offers, or per-packet]
    #[arg(long, value_enum)]
    feedback: Option<Feedback>,
    /// Write a run folder here [default: none]
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = arguments::lasting)]
    duration: Option<Duration>,
    /// Give up if neither media nor a sender report arrives for this long after the first media;
    /// with TCP also if no stream starts on a connection
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = arguments::lasting)]
    idle_timeout: Duration,
    #[command(flatten)]
    json: JsonArgs,
    #[command(flatten)]
    security: SecurityArgs,
    #[command(flatten)]
    tls: TlsArgs,
    /// Transport of the stream: `rtp` or `tcp`
    #[arg(long, default_value = "rtp", value_parser = live::transport)]
    transport: Transport,
}

/// Value of an option whose default depends on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum YesNo {
    Yes,
    No,
}

impl RecvArgs {
    /// Whether standard output has the recording.
    fn records_on_stdout(&self) -> bool {
        self.out
            .as_deref()
            .is_some_and(|out| out.as_os_str() == "-")
    }
}

/// Feedback mode of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Feedback {
    /// RFC 8888 feedback, NACK, PLI and receiver reports
    PerPacket,
    /// PLI (RFC 4585) after a loss, and receiver reports
    KeyRequests,
    /// Receiver reports only
    Reports,
}

/// Reason for which the receiver ends the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Interrupted,
    Idle,
    TimeOver,
    /// The reader of `--out -` has closed the pipe.
    Unread,
}

/// Receives until the sender sends BYE, the user interrupts, or no more packets arrive. In the last
/// case the exit code is 3.
pub(crate) fn run(args: &RecvArgs) -> Result<ExitCode> {
    check_options(args)?;
    if args.transport == Transport::Tcp {
        return tcp::run(args);
    }
    let sdp = args.sdp.as_deref().map(read_sdp).transpose()?;
    let types = payload_types(sdp.as_ref(), undescribed_type(args));
    let protection = protection(args, sdp.as_ref())?;
    let unexpected = Unexpected::default();
    let listen = listen(args, sdp.as_ref(), types, protection.is_secure());
    let local_only = listen.local_only;
    let mut sockets = listen.open(&unexpected)?;
    let port = sockets[0].local_addr()?.port();
    let described = sdp.as_ref().and_then(|sdp| sdp.frame_rate);
    let fps = args.fps.or(described).unwrap_or(FrameRate::fps(30));
    let context = LiveContext::enter()?;
    let folder = folder(args, &format!("receive at port {port}"), fps)?;
    let expected = if sdp.is_some() {
        Expected::Described(types.0)
    } else {
        Expected::Default(types.0)
    };
    let adviser = Adviser::new(unexpected.clone(), expected);
    let recording = Recording::create(args.out.as_deref())?;
    let numbering = Numbering::of_datagrams(fps);
    let mut player = Player::new(args, numbering, folder, recording);
    player.viewer = viewer_of(args, payload::codec(types.0), fps, None, &context.stop)?;
    let mut report = Report::new(player, port, local_only, adviser);
    let mut rng = context::secret_seed().stream("session");
    let config = receiver_config(args, sdp.as_ref(), &context, &mut rng);
    let mut receiver = protection.receiver(MediaReceiver::new(config), ssrcs(sdp.as_ref()))?;
    let mut left = None;
    // The session ends after the receiver's BYE.
    let ended = drive(
        &mut receiver,
        &mut sockets,
        &context.conditions(),
        &mut rng,
        &mut (),
        |receiver, now| {
            report.on_hellos(receiver.counts().outdated);
            let receiver = receiver.inner_mut();
            report.turn(receiver, now);
            let unread = report.is_unread().then_some(Left::Unread);
            let interrupts = context.interrupts.count();
            left = left
                .or(unread)
                .or_else(|| reason_to_leave(args, receiver, now, interrupts));
            if left.is_some() {
                receiver.close();
            }
            ControlFlow::Continue(())
        },
    );
    let rejected = receiver.counts().rejected;
    let printed = report.finish(receiver.inner_mut(), rejected, &context)?;
    ended?;
    let advice = unexpected.advice(expected);
    let code = verdict(args, left, &receiver, port, advice.as_deref())?;
    printed.map(|()| code)
}

/// Extensions of files that have times and an index besides the pictures.
const CONTAINERS: [&str; 14] = [
    "3gp", "avi", "flv", "m2ts", "m4v", "mkv", "mov", "mp4", "mpegts", "mpg", "mts", "mxf", "ts",
    "webm",
];

/// Where to listen, and to whom.
fn listen<'a>(
    args: &'a RecvArgs,
    sdp: Option<&'a Sdp>,
    types: (PayloadType, PayloadType),
    is_authenticated: bool,
) -> address::Listen<'a> {
    address::Listen {
        at: args.listen.as_deref(),
        sdp,
        from: args.from.as_deref(),
        types,
        is_authenticated,
        local_only: !is_authenticated && !args.security.insecure,
    }
}

/// Checks the combination of options.
fn check_options(args: &RecvArgs) -> Result<()> {
    ensure!(
        !args.delay_bound.is_zero(),
        "a --delay-bound (--discard-threshold) of zero discards nearly all frames: give a longer \
        one"
    );
    ensure!(
        !args.json.summary() || !args.records_on_stdout(),
        "--out - and --json both write standard output: leave one of them out, or give --out a file"
    );
    if let Some(out) = &args.out {
        let extension = out.extension().and_then(OsStr::to_str).unwrap_or_default();
        ensure!(
            !CONTAINERS
                .iter()
                .any(|one| one.eq_ignore_ascii_case(extension)),
            "--out writes a byte stream, and no .{extension} file: give it the extension .h264 \
            (.m2v for MPEG-2), and convert it later with `ffmpeg -i FILE.h264 -c copy {}`",
            out.display()
        );
    }
    if args.transport == Transport::Tcp {
        ensure!(
            args.from.is_none() || args.listen.is_none(),
            "over TCP, --from connects to a sender and --listen waits for one: leave one of them \
            out"
        );
        ensure!(
            args.payload_type.is_none(),
            "RTP packets over TCP name the codec: leave --payload-type out"
        );
        return args.security.check_tcp();
    }
    ensure!(
        !args.window,
        "--window requires --transport tcp: add it, or leave --window out"
    );
    if let Some(name) = args.tls.first_given() {
        bail!("{name} requires --transport tcp: add it, or leave {name} out");
    }
    Ok(())
}

/// Protection of the stream.
fn protection(args: &RecvArgs, sdp: Option<&Sdp>) -> Result<Protection> {
    let Some(crypto) = sdp.and_then(|sdp| sdp.crypto.first()) else {
        return Protection::of_file(args.security.key_file.as_deref());
    };
    ensure!(
        args.security.key_file.is_none(),
        "the description has a key: leave --key-file out"
    );
    Ok(Protection::Described(crypto.clone()))
}

/// SSRCs of the sender, if the description names them.
fn ssrcs(sdp: Option<&Sdp>) -> Vec<u32> {
    let source = sdp.and_then(|sdp| sdp.source.as_ref());
    source.map_or_else(Vec::new, |source| {
        let others = source.rtx_ssrc.into_iter().chain(source.parity_ssrc);
        let others = others.chain(source.probe_ssrc);
        [source.ssrc].into_iter().chain(others).collect()
    })
}

/// Result of the session. `advice` concerns packets of other streams.
fn verdict(
    args: &RecvArgs,
    left: Option<Left>,
    receiver: &SecureEndpoint<MediaReceiver>,
    port: u16,
    advice: Option<&str>,
) -> Result<ExitCode> {
    let never = receiver.inner().last_arrival().is_none();
    match left {
        Some(Left::Idle) => bail!(EnvironmentError::new(format_args!(
            "no packet has arrived for {} s and the sender sent no BYE: the sender has stopped, \
            or the path is interrupted",
            args.idle_timeout.as_secs_f64()
        ))),
        Some(Left::TimeOver) if never && receiver.counts().rejected > 0 => {
            bail!(EnvironmentError::new(format_args!(
                "no packet at port {port} was protected with the key of this receiver: check that the \
            sender uses the same key"
            )))
        }
        Some(Left::TimeOver) if never => bail!(EnvironmentError::new(format_args!(
            "no packet of this stream arrived at port {port}: {}",
            advice.unwrap_or("check that the sender runs and sends to this port")
        ))),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Thread that decodes the pictures, if they are compared or shown.
fn viewer_of(
    args: &RecvArgs,
    codec: Codec,
    rate: FrameRate,
    window: Option<Window>,
    stop: &StopFlag,
) -> Result<Option<Viewer>> {
    let reference = args.reference.as_deref();
    if reference.is_none() && window.is_none() {
        return Ok(None);
    }
    let watch = Watch {
        reference,
        window,
        decoder: args.decoding.config(codec),
        rate,
    };
    Viewer::start(watch, stop.clone()).map(Some)
}

/// Run folder of a run called `name`.
fn folder(args: &RecvArgs, name: &str, fps: FrameRate) -> Result<Folder> {
    let manifest = live::manifest(name, args.duration, flow_info(args, fps));
    let (dir, summary) = (args.run.as_deref(), args.json.summary());
    Folder::create(dir, summary, Side::Receiver, manifest)
}

fn flow_info(args: &RecvArgs, fps: FrameRate) -> FlowInfo {
    FlowInfo {
        delay_bound: Some(args.delay_bound),
        frame_rate: Some(fps),
        ..live::flow_info("remote")
    }
}

fn receiver_config(
    args: &RecvArgs,
    sdp: Option<&Sdp>,
    context: &LiveContext,
    rng: &mut dyn rand_core::Rng,
) -> ReceiverConfig {
    let name = live::random_name(rng);
    // With one key for both directions, equal SSRCs would use the same key stream.
    let taken = ssrcs(sdp);
    let mut ssrc = rng.next_u32();
    while taken.contains(&ssrc) {
        ssrc = rng.next_u32();
    }
    let mut config = ReceiverConfig::new(ssrc, name, args.delay_bound);
    config.epoch = context.epoch;
    config.payload_types = payload_types(sdp, undescribed_type(args));
    if let Some(sdp) = sdp {
        config.parity_type = sdp.parity;
        config.probe_type = sdp.probe;
    }
    config.feedback = feedback(args.feedback, sdp);
    config.conceal = args.conceal.map_or(
        config.feedback == FeedbackMode::ReceiverReports,
        |conceal| conceal == YesNo::Yes,
    );
    config.parameter_sets = sdp.and_then(|sdp| sdp.parameter_sets.clone());
    config
}

fn reason_to_leave(
    args: &RecvArgs,
    receiver: &MediaReceiver,
    now: Time,
    interrupts: u32,
) -> Option<Left> {
    let silent = receiver
        .last_life()
        .is_some_and(|at| now.since(at) >= args.idle_timeout);
    let over = args.duration.is_some_and(|span| now >= Time::ZERO + span);
    match () {
        () if interrupts > 0 => Some(Left::Interrupted),
        () if silent => Some(Left::Idle),
        () if over => Some(Left::TimeOver),
        () => None,
    }
}

fn read_sdp(file: &std::path::Path) -> Result<Sdp> {
    let name = file.display();
    let unreadable = || format!("cannot read the description {name}");
    let mut opened = File::open(file).with_context(unreadable)?;
    let is_public = security::is_public(&opened).with_context(unreadable)?;
    let text = std::io::read_to_string(&mut opened).with_context(unreadable)?;
    let sdp = Sdp::parse(&text).with_context(|| format!("{name} describes no supported stream"))?;
    if is_public && !sdp.crypto.is_empty() {
        say(format_args!(
            "other users can read the key in {name}: run `chmod 600 {name}`"
        ));
    }
    Ok(sdp)
}

/// Payload type of a stream without description.
fn undescribed_type(args: &RecvArgs) -> PayloadType {
    let codec = args.codec.unwrap_or(Codec::H264);
    args.payload_type
        .unwrap_or_else(|| payload::payload_type(codec))
}

/// Payload types of media and retransmissions.
fn payload_types(sdp: Option<&Sdp>, undescribed: PayloadType) -> (PayloadType, PayloadType) {
    let media = sdp.map_or(undescribed, |sdp| sdp.payload_type);
    // A stream without retransmissions: any type other than that of the media.
    let spare = [REPAIR_TYPE, MEDIA_TYPE];
    let spare = spare.into_iter().find(|spare| *spare != media);
    let repair = sdp.and_then(|sdp| sdp.rtx).or(spare);
    (media, repair.unwrap_or(REPAIR_TYPE))
}

/// A payload type for `--payload-type`.
fn payload_type(text: &str) -> Result<PayloadType> {
    let number = text.parse().ok().and_then(PayloadType::new);
    number
        .filter(|number| !matches!(number.get(), MPEG_VIDEO | 64..=95))
        .with_context(|| {
            format!(
                "\"{text}\" is no payload type of H.264 in RTP: give a number from 96 to 127, or one \
                 below 64 other than {MPEG_VIDEO}"
            )
        })
}

/// Static payload type of MPEG video (RFC 3551).
const MPEG_VIDEO: u8 = 32;

/// Requested mode, or else the best one that the sender supports.
fn feedback(wanted: Option<Feedback>, sdp: Option<&Sdp>) -> FeedbackMode {
    let offers = |offer: fn(&Sdp) -> bool| sdp.is_none_or(offer);
    match wanted {
        Some(Feedback::PerPacket) => FeedbackMode::PerPacket,
        Some(Feedback::KeyRequests) => FeedbackMode::KeyRequests,
        None if offers(|sdp| sdp.feedback.ccfb) => FeedbackMode::PerPacket,
        None if offers(|sdp| sdp.feedback.pli) => FeedbackMode::KeyRequests,
        Some(Feedback::Reports) | None => FeedbackMode::ReceiverReports,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDP: &str = "v=0\r\no=- 1 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
        m=video 5004 RTP/AVP 97\r\na=rtpmap:97 H264/90000\r\na=fmtp:97 packetization-mode=1\r\n";

    #[test]
    fn a_description_without_feedback_selects_receiver_reports() {
        let sdp = Sdp::parse(SDP).unwrap();
        assert_eq!(feedback(None, Some(&sdp)), FeedbackMode::ReceiverReports);
        assert_eq!(feedback(None, None), FeedbackMode::PerPacket);
        let offer = format!("{SDP}a=rtcp-fb:* nack pli\r\n");
        let offer = Sdp::parse(&offer).unwrap();
        assert_eq!(feedback(None, Some(&offer)), FeedbackMode::KeyRequests);
        let requested = Some(Feedback::PerPacket);
        assert_eq!(feedback(requested, Some(&sdp)), FeedbackMode::PerPacket);
        let (media, repair) = payload_types(Some(&sdp), MEDIA_TYPE);
        assert_eq!((media.get(), repair.get()), (97, 96));
    }
}
