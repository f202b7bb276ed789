//! `tidegate send`: sends a stream over RTP or TCP.

pub(crate) mod addresses;
mod report;
pub(crate) mod source;
pub(crate) mod tcp;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::ArgGroup;
use tidegate_core::controller::settings::SettingError;
use tidegate_core::controller::{ControllerConfig, Controllers};
use tidegate_core::delay_bound::check_frame_time;
use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::quantity;
use tidegate_core::session::config::{FIXED_PACE, SenderConfig, Streams};
use tidegate_core::session::sender::SenderFailure;
use tidegate_core::session::setup::RateSetup;
use tidegate_core::session::stream::Streamer;
use tidegate_core::trace::BreakerCause;
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::payload;
use tidegate_core::wire::sdp::{Crypto, CryptoSuite, Feedback, Sdp, Source};
use tidegate_live::driver::{DriveError, drive_over};
use tidegate_live::encoder_thread::EncoderThread;
use tidegate_live::transport::UdpTransport;
use tidegate_record::{FlowInfo, Side};
use tidegate_secure::SecureEndpoint;

use crate::encoder_speed::Timed;
use crate::learning::Knowledge;
use crate::live::{self, Folder, JsonArgs, Limits, TraceBuffer, Transport};
use crate::security::{self, Protection, SecurityArgs};
use crate::tcp::TcpArgs;
use addresses::{Route, check_target};
use report::Report;
use source::{Encoding, InputArgs, OpenedSource};
use tidegate_console::arguments;
use tidegate_console::context::{self, LiveContext};
use tidegate_console::exit::EnvironmentError;
use tidegate_console::output::output;
use tidegate_console::progress::say;

/// Arguments of `tidegate send`.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("player").required(true).args(["to", "serve"])))]
pub(crate) struct SendArgs {
    /// Address of the receiver; RTP and RTCP share the port
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,
    /// Source port of the media; RTCP is also received at the next port [default: a free even port]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..65_535))]
    local_port: Option<u16>,
    #[command(flatten)]
    input: InputArgs,
    // The program sets the help and the parser for its table of controllers.
    #[arg(long, value_name = "CONTROL", value_parser = control)]
    control: Option<ControllerConfig>,
    /// Maximum delay of a frame from its capture; a later frame is useless
    #[arg(long, value_name = "TIME", default_value = "400ms", value_parser = quantity::duration)]
    delay_bound: Duration,
    #[command(flatten)]
    limits: Limits,
    /// Stop after this much video
    #[arg(long, value_name = "TIME", value_parser = arguments::lasting)]
    duration: Option<Duration>,
    /// Length of a full IP packet
    #[arg(long, value_name = "SIZE", default_value = "1200B", value_parser = quantity::size)]
    packet_size: Bytes,
    #[command(flatten)]
    encoding: Encoding,
    /// Write a description of the stream (SDP) for players and receivers, with a fresh key unless
    /// --insecure is given; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "key_file")]
    sdp: Option<PathBuf>,
    /// Crypto-suite of the description [default: `AES_CM_128_HMAC_SHA1_80`]
    #[arg(long, value_name = "NAME", requires = "sdp", conflicts_with = "insecure", value_parser = security::suite)]
    crypto_suite: Option<CryptoSuite>,
    #[command(flatten)]
    security: SecurityArgs,
    /// Start from what this store knows about the path, and add what the session learns; the file is
    /// created if it does not exist [default: none]
    #[arg(long, value_name = "FILE", conflicts_with = "one_way")]
    knowledge: Option<PathBuf>,
    /// Write a run folder here [default: none]
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    #[command(flatten)]
    receiver: ReceiverArgs,
    /// Yield to TCP flows that fill the queue: send at a low rate rather than take a share and lose
    /// a few percent of the frames
    #[arg(long)]
    yielding: bool,
    /// Send no parity packets. They replace retransmissions, to receivers that report on each packet,
    /// while the round-trip time is too long for the delay bound
    #[arg(long)]
    no_parity: bool,
    /// Enable ECN: routers mark packets rather than drop them (RFC 3168)
    #[arg(long)]
    ecn: bool,
    #[command(flatten)]
    json: JsonArgs,
    /// Transport of the stream: `rtp` or `tcp`
    #[arg(long, default_value = "rtp", value_parser = live::transport)]
    transport: Transport,
    #[command(flatten)]
    tcp: TcpArgs,
}

/// Receivers that answer late or never.
#[derive(Debug, clap::Args)]
struct ReceiverArgs {
    /// For a receiver without feedback: begin two seconds after the start, at the lowest rate, or with
    /// an answer. Neither a BYE nor the circuit breaker stops the stream
    #[arg(long)]
    one_way: bool,
    /// Give up a receiver that does not answer for so long after the circuit breaker has stopped the
    /// stream; one that sleeps for less gets the stream again
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = quantity::duration)]
    patience: Duration,
}

impl SendArgs {
    fn control(&self) -> ControllerConfig {
        self.control.clone().unwrap_or_default()
    }
}

type Stream = Streamer<EncoderThread>;

/// Sends until the video ends, the user interrupts, or the sender gives up the path. In the last
/// case the exit code is 1.
pub(crate) fn run(args: &SendArgs) -> Result<ExitCode> {
    check(args)?;
    if args.transport == Transport::Tcp {
        args.security.check_tcp()?;
        return tcp::run(args);
    }
    let to = receiver(args)?;
    let opened = OpenedSource::open(&args.input, args.encoding)?;
    let route = addresses::resolve(to, args.local_port)?;
    let protection = protection(args, route.peer)?;
    let mut rng = context::secret_seed().stream("session");
    let around = LiveContext::enter()?;
    let mut config = sender_config(args, &opened, &around, &mut rng);
    let inner_size = protection.inner_size(config.packet_size);
    config.packet_size = inner_size;
    warn_of_long_frames(&config);
    if let Some(file) = &args.sdp {
        let sdp = describe(&route, &config, &opened, protection.description());
        write_sdp(file, &sdp)?;
    }
    let folder = folder(args, to, &config)?;
    let known = |file: &PathBuf| Knowledge::open(file, route.peer.ip(), around.clock.now());
    let knowledge = args.knowledge.as_ref().map(known).transpose()?;
    let control = args.control();
    let setup = RateSetup {
        prior: knowledge.as_ref().and_then(|known| known.prior),
        yields: args.yielding,
        ..RateSetup::new(&control, Time::ZERO)
    };
    let sender = setup.sender(config, &mut rng);
    let advice = slow_encoder_advice(args.encoding.codec);
    let (encoder, pace) = Timed::new(opened.session, around.clock, opened.watch, advice);
    let pipe = EncoderThread::start(encoder, around.stop.clone())
        .context("cannot start the encoder thread")?;
    let mut stream = protection.sender(Streamer::new(sender, pipe), around.clock)?;
    let events = TraceBuffer::default();
    let mut report = Report::new(args, &opened.what, &route, folder, pace, &events);
    report.knowledge = knowledge;
    report.protection = args.packet_size - inner_size;
    let Route { sockets, peer } = route;
    let driven = drive_over(
        UdpTransport::new(sockets).following_route(),
        &mut stream,
        &around.conditions(),
        (&mut rng, &mut &events),
        |stream, now| report.turn(stream, now, around.interrupts.count()),
    );
    let ended = driven
        .map_err(DriveError::System)
        .and_then(|(_, result)| result);
    let printed = report.finish(stream.inner_mut(), around.clock.now())?;
    if ended?.refused && around.interrupts.count() == 0 {
        // The stream ended before the driver gave up.
        bail!(DriveError::ConnectionRefused { peer });
    }
    let code = verdict(&stream, peer)?;
    printed.map(|()| code)
}

/// Protection of the stream to `peer`.
fn protection(args: &SendArgs, peer: SocketAddr) -> Result<Protection> {
    let protection = Protection::of_file(args.security.key_file.as_deref())?;
    if args.sdp.is_some() && !args.security.insecure {
        let suite = args.crypto_suite;
        let suite = suite.unwrap_or(CryptoSuite::AesCm128HmacSha1_80);
        return security::fresh_key(suite).map(Protection::Described);
    }
    ensure!(
        protection.is_secure() || args.security.insecure || security::is_local(peer.ip()),
        "{peer} is another host, and the stream has no key: give --key-file FILE at both ends \
        (`tidegate key FILE` makes one), --sdp FILE for other players, or --insecure"
    );
    Ok(protection)
}

/// Result of the session.
fn verdict(stream: &SecureEndpoint<Stream>, peer: SocketAddr) -> Result<ExitCode> {
    if stream.has_failed() {
        bail!(EnvironmentError::new(format_args!(
            "no answer from {peer} with this key: check that `tidegate recv` runs there with the \
            same --key-file and the same version of tidegate, that no sender with a later clock \
            uses this key, and that no firewall is on the path"
        )));
    }
    let stream = stream.inner();
    if let Some(error) = stream.error() {
        bail!("{error}");
    }
    let failure = stream.sender().failure();
    match failure.and_then(|failure| failure_text(failure, peer)) {
        Some(why) => bail!(EnvironmentError::new(why)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Address of the receiver. Options that do not apply to RTP are rejected.
fn receiver(args: &SendArgs) -> Result<&str> {
    if let Some(name) = args.tcp.first_given() {
        bail!(
            "{name} requires --transport tcp: add it, or leave {name} out; over RTP --control \
            sets the rate"
        );
    }
    args.to
        .as_deref()
        .context("--serve requires --transport tcp: add it, or give --to instead")
}

/// Warns of frames at the lowest rate that take as long as the delay bound.
fn warn_of_long_frames(config: &SenderConfig) {
    if let Some(bound) = config.delay_bound
        && let Err(slow) = check_frame_time(bound, config.frame_rate, config.rates.0)
    {
        say(format_args!("warning: {slow} (--delay-bound, --fps)"));
    }
}

/// Advice for a slow encoder.
fn slow_encoder_advice(codec: Codec) -> &'static str {
    match codec {
        Codec::H264 => "give a smaller --size, a faster --preset or a lower --fps",
        Codec::Mpeg2 => "give a smaller --size or a lower --fps",
    }
}

fn folder(args: &SendArgs, to: &str, config: &SenderConfig) -> Result<Folder> {
    let name = format!("send to {to}");
    let manifest = live::manifest(&name, args.duration, flow_info(args, config));
    let (dir, summary) = (args.run.as_deref(), args.json.summary());
    Folder::create(dir, summary, Side::Sender, manifest)
}

fn flow_info(args: &SendArgs, config: &SenderConfig) -> FlowInfo {
    FlowInfo {
        delay_bound: config.delay_bound,
        floor: config.rates.0,
        frame_rate: Some(config.frame_rate),
        ..live::flow_info(args.control().name())
    }
}

fn check(args: &SendArgs) -> Result<()> {
    let is_fixed = args.control().properties().fixed_rate.is_some();
    args.limits.check()?;
    args.to.as_deref().map_or(Ok(()), check_target)?;
    live::check_stream(args.packet_size, args.delay_bound)?;
    if args.ecn {
        ensure!(
            args.transport == Transport::Rtp,
            "--ecn requires --transport rtp: leave it out; over TCP the kernel negotiates ECN if \
            the sysctl net.ipv4.tcp_ecn is 1"
        );
        ensure!(
            !args.receiver.one_way && !is_fixed,
            "--ecn requires a response to marked packets (RFC 3168), and --one-way and --control \
            fixed have none: leave one of them out"
        );
    }
    if args.knowledge.is_some() {
        ensure!(
            args.transport == Transport::Rtp && !is_fixed,
            "--knowledge requires rate control, which --transport tcp and --control fixed do not \
            have: leave one of them out"
        );
    }
    if args.yielding {
        ensure!(
            args.transport == Transport::Rtp && !args.receiver.one_way && !is_fixed,
            "--yielding requires a delay bound with rate control, and --transport tcp, --one-way \
            and --control fixed have none: leave one of them out"
        );
    }
    Ok(())
}

fn sender_config(
    args: &SendArgs,
    opened: &OpenedSource,
    around: &LiveContext,
    rng: &mut dyn rand_core::Rng,
) -> SenderConfig {
    let mut streams = Streams::with_ssrcs(rng.next_u32(), rng.next_u32());
    streams.media_type = payload::payload_type(args.encoding.codec);
    let mut config = SenderConfig::new(streams, live::random_name(rng));
    config.epoch = around.epoch;
    config.frame_rate = opened.frame_rate;
    config.rates = args.limits.both();
    config.packet_size = args.packet_size;
    config.one_way = args.receiver.one_way;
    config.patience = args.receiver.patience;
    config.ecn = args.ecn;
    config.parity = !args.no_parity;
    config.transport_cc = args.sdp.is_some();
    config.log = true;
    config.frames = args.duration.map(|span| frames_in(span, opened.frame_rate));
    if let Some(rate) = args.control().properties().fixed_rate {
        config.rates = (rate, rate);
        // A stream without rate control sends each frame at once and has no delay bound.
        config.pace = FIXED_PACE;
    } else {
        config.delay_bound = Some(args.delay_bound);
    }
    config
}

/// Description of the stream.
fn describe(
    route: &Route,
    config: &SenderConfig,
    opened: &OpenedSource,
    crypto: Vec<Crypto>,
) -> Sdp {
    Sdp {
        session: u64::from(config.streams.media_ssrc),
        address: route.peer.ip(),
        port: route.peer.port(),
        payload_type: config.streams.media_type,
        rtx: Some(config.streams.repair_type),
        parity: config.parity.then_some(config.streams.parity_type),
        probe: Some(config.streams.probe_type),
        parameter_sets: opened.parameter_sets.clone(),
        frame_rate: Some(config.frame_rate),
        source: Some(Source {
            ssrc: config.streams.media_ssrc,
            rtx_ssrc: Some(config.streams.repair_ssrc),
            parity_ssrc: config.parity.then_some(config.streams.parity_ssrc),
            probe_ssrc: Some(config.streams.probe_ssrc),
            cname: config.cname.clone(),
        }),
        source_filter: Vec::new(),
        crypto,
        feedback: Feedback {
            nack: true,
            pli: true,
            ccfb: true,
            transport_cc: config.transport_cc,
        },
        rtcp_mux: true,
        rtcp_port: None,
        rtcp_reduced_size: true,
    }
}

fn write_sdp(file: &std::path::Path, sdp: &Sdp) -> Result<()> {
    if file.as_os_str() == "-" {
        // A closed pipe is an error here, although it only ends other output: no stream is sent then.
        return write!(output(), "{sdp}").map_err(|e| anyhow!("--sdp: {e}"));
    }
    security::write_private(file, &sdp.to_string())
}

/// Text for a failure. A BYE of the receiver is not a failure.
fn failure_text(failure: SenderFailure, peer: SocketAddr) -> Option<String> {
    let SenderFailure::ReceiverGone(cause) = failure else {
        return Some(format!("the stream to {peer} was given up"));
    };
    Some(match cause {
        BreakerCause::Goodbye => return None,
        BreakerCause::RtcpTimeout => format!(
            "no RTCP report arrived from {peer} for too long, so the stream was stopped: check \
            that the receiver still runs, or give a longer --patience for one that sleeps"
        ),
        BreakerCause::MediaTimeout => format!(
            "{peer} reports that no packets arrive, so the stream was stopped: check for a \
            firewall on the path"
        ),
        BreakerCause::Congestion => format!(
            "the path to {peer} loses too many packets even at the lowest rate, so the stream was \
            stopped: lower --floor or use another path"
        ),
    })
}

/// One of the controllers of Tidegate.
pub(crate) fn control(text: &str) -> Result<ControllerConfig, SettingError> {
    Controllers::default().argument(text)
}

/// Number of whole frames in a span, at least one.
fn frames_in(span: Duration, rate: FrameRate) -> u64 {
    let frames =
        span.as_nanos() * u128::from(rate.num) / (1_000_000_000 * u128::from(rate.den.max(1)));
    u64::try_from(frames).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_to_whole_frames() {
        assert_eq!(frames_in(Duration::from_secs(4), FrameRate::fps(30)), 120);
        let ntsc = FrameRate {
            num: 30_000,
            den: 1_001,
        };
        assert_eq!(frames_in(Duration::from_secs(1), ntsc), 29);
        assert_eq!(frames_in(Duration::from_millis(1), ntsc), 1);
    }
}
