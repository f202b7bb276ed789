//! `tidegate send`

mod addresses;
pub(crate) mod once;
mod report;
pub(crate) mod source;
pub(crate) mod tcp;

use std::io::Write as _;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::ArgGroup;
use tidegate_core::control::{Algorithm as _, Demand, Start};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::rap::RapConfig;
use tidegate_core::delay_bound::PlannerConfig;
use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::session::config::{SenderConfig, Streams};
use tidegate_core::session::sender::{MediaSender, SenderFailure};
use tidegate_core::session::stream::Streamer;
use tidegate_core::trace::BreakerCause;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_core::wire::payload;
use tidegate_core::wire::sdp::{Feedback, Sdp, Source};
use tidegate_live::driver::{Conditions, DriveError, drive};
use tidegate_live::encoder_thread::Threaded;
use tidegate_media::{Preset, Size};
use tidegate_sim::flow_endpoints::FIXED_PACE;
use tidegate_sim::run::{FlowInfo, Side, Way};
use tidegate_sim::scenario::quantity;

use crate::encoder_speed::Timed;
use crate::live::{self, FLOW, Folder, Limits, Notebook, Transport};
use crate::tcp::TcpArgs;
use addresses::Route;
use report::Reporter;
use source::{Encoding, Picked};
use tidegate_console::arguments;
use tidegate_console::context::{self, LiveContext};
use tidegate_console::output::{output, print_json};

/// What to send, and how.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("player").required(true).args(["to", "serve"])))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(crate) struct SendArgs {
    /// The receiver. RTP and RTCP share its port
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,
    /// Video: `scene` (generated), a file, a device, a URL, or `-` for standard input
    #[arg(long, value_name = "SOURCE", default_value = "scene")]
    input: String,
    /// Picture size; 640x360 for the scene and as it is for all else unless told
    #[arg(long, value_name = "WxH", value_parser = live::picture_size)]
    size: Option<Size>,
    /// Frames per second; 30 for the scene and as it is for all else unless told
    #[arg(long, value_name = "RATE", value_parser = live::frame_rate)]
    fps: Option<FrameRate>,
    /// Start a file again at its end
    #[arg(long = "loop")]
    looped: bool,
    /// Rate control with RTP: `tfrc`, `rap`, or `fixed:RATE` for none, as `fixed:2Mb/s`; `tfrc` unless
    /// told
    #[arg(long, value_name = "CONTROL", value_parser = control)]
    control: Option<ControllerConfig>,
    /// A frame is worth nothing this long after its capture
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
    /// How pictures are coded: `h264` or `mpeg2`
    #[arg(long, default_value = "h264", value_parser = source::codec)]
    codec: Codec,
    /// How hard x264 tries
    #[arg(long, default_value = "superfast", value_parser = source::preset)]
    preset: Preset,
    /// Write a description of the stream for players and receivers; `-` is standard output
    #[arg(long, value_name = "FILE")]
    sdp: Option<PathBuf>,
    /// Keep a run folder here; none unless told
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// The receiver cannot answer: go on at the floor without ever hearing from it
    #[arg(long)]
    one_way: bool,
    /// Beside TCP transfers that fill the queue stay thin, rather than take a share and lose a few
    /// frames in a hundred
    #[arg(long)]
    yielding: bool,
    /// Ask routers to mark packets rather than drop them (ECN, RFC 3168)
    #[arg(long)]
    ecn: bool,
    /// Print the numbers of the run as one JSON object at its end
    #[arg(long)]
    json: bool,
    /// What carries the stream
    #[arg(long, default_value = "rtp", value_parser = live::transport)]
    transport: Transport,
    #[command(flatten)]
    tcp: TcpArgs,
}

impl SendArgs {
    fn control(&self) -> ControllerConfig {
        self.control.clone().unwrap_or_default()
    }
}

type Stream = Streamer<Threaded>;

/// Sends until the video ends, somebody ends it, or the path is given up. The exit code is 1
/// in the last case.
pub(crate) fn run(args: &SendArgs) -> Result<ExitCode> {
    check(args)?;
    if args.transport == Transport::Tcp {
        return tcp::run(args);
    }
    let to = receiver(args)?;
    let picked = pick(args)?;
    let route = addresses::resolve(to)?;
    let mut rng = context::secret_seed().stream("session");
    let around = LiveContext::enter()?;
    let config = sender_config(args, &picked, &around, &mut rng);
    if let Some(file) = &args.sdp {
        write_sdp(file, &route, &config, &picked)?;
    }
    let flow = flow_info(args, &config);
    let manifest = live::manifest(&format!("send to {to}"), args.duration, flow);
    let folder = Folder::create(args.run.as_deref(), args.json, Side::Sender, manifest)?;
    let sender = make_sender(args, config, &mut rng);
    let (encoder, pace) = Timed::new(picked.session, around.clock, slow_encoder(args.codec));
    let pipe =
        Threaded::start(encoder, around.stop.clone()).context("no thread for the encoder")?;
    let mut stream = Streamer::new(sender, pipe);
    let mut reporter = Reporter::new(args, &picked.what, &route, folder, pace);
    let notebook = Notebook::default();
    let mut leaving = Leaving::default();
    let Route { mut sockets, peer } = route;
    let conditions = Conditions {
        clock: around.clock,
        until: None,
        stop: around.stop.clone(),
    };
    let ended = drive(
        &mut stream,
        &mut sockets,
        &conditions,
        &mut rng,
        &mut &notebook,
        |stream, now| {
            leaving.turn(stream, now, around.interrupts.count());
            reporter.turn(stream, now, &notebook.take());
            ControlFlow::Continue(())
        },
    );
    let summary = reporter.finish(&mut stream, around.clock.now(), &notebook.take())?;
    summary
        .as_ref()
        .filter(|_| args.json)
        .map_or(Ok(()), print_json)?;
    if ended?.refused && around.interrupts.count() == 0 {
        // The stream was shorter than the driver's patience.
        bail!(DriveError::NobodyListens { peer });
    }
    verdict(&stream, peer)
}

/// Whether the stream came to a good end.
fn verdict(stream: &Stream, peer: SocketAddr) -> Result<ExitCode> {
    if let Some(error) = stream.error() {
        bail!("{error}");
    }
    let failure = stream.sender().failure();
    match failure.and_then(|failure| because(failure, peer)) {
        Some(why) => bail!(why),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// To whom RTP goes; what makes no sense with RTP is refused.
fn receiver(args: &SendArgs) -> Result<&str> {
    if let Some(name) = args.tcp.first_given() {
        bail!(
            "{name} is for --transport tcp: leave it out, or add that; over RTP --control decides \
             the rate"
        );
    }
    args.to
        .as_deref()
        .context("--serve waits for connections, which only --transport tcp has: give --to instead")
}

fn pick(args: &SendArgs) -> Result<Picked> {
    let encoding = Encoding {
        codec: args.codec,
        preset: args.preset,
    };
    Picked::open(&args.input, args.size, args.fps, args.looped, encoding)
}

/// What to do about it.
fn slow_encoder(codec: Codec) -> &'static str {
    match codec {
        Codec::H264 => "give a smaller --size, a faster --preset or a lower --fps",
        Codec::Mpeg2 => "give a smaller --size or a lower --fps",
    }
}

fn flow_info(args: &SendArgs, config: &SenderConfig) -> FlowInfo {
    FlowInfo {
        name: FLOW.to_owned(),
        class: FLOW.to_owned(),
        control: args.control().name().to_owned(),
        baseline: false,
        delay_bound: config.delay_bound,
        floor: config.rates.0,
        frame_rate: Some(config.frame_rate),
        one_clock: false,
        way: Way::default(),
        active: None,
    }
}

/// The polite end, and the quick one.
#[derive(Debug, Default)]
struct Leaving {
    since: Option<Time>,
}

impl Leaving {
    /// At the first interrupt no more is captured; what waits may leave for a moment. At the
    /// second one, or after that moment, only a goodbye is said.
    fn turn(&mut self, stream: &mut Stream, now: Time, interrupts: u32) {
        if interrupts == 0 {
            return;
        }
        let since = *self.since.get_or_insert_with(|| {
            stream.sender_mut().stop_capture();
            now
        });
        if interrupts > 1 || now.since(since) >= LAST_WORDS {
            stream.sender_mut().close();
        }
    }
}

fn check(args: &SendArgs) -> Result<()> {
    args.limits.check()?;
    ensure!(
        PACKET_SIZES.contains(&args.packet_size.get()),
        "packets of {} bytes are out of range: choose a --packet-size from {} to {} B",
        args.packet_size.get(),
        PACKET_SIZES.start(),
        PACKET_SIZES.end()
    );
    ensure!(
        !args.delay_bound.is_zero(),
        "nothing arrives within a --delay-bound of zero: give it more"
    );
    if args.ecn {
        ensure!(
            args.transport == Transport::Rtp,
            "--ecn is for --transport rtp: leave it out; over TCP the kernel asks for ECN if the \
             sysctl net.ipv4.tcp_ecn is 1"
        );
        ensure!(
            !args.one_way && !matches!(args.control(), ControllerConfig::Fixed { .. }),
            "--ecn obliges to slow down when packets are marked (RFC 3168), which neither \
             --one-way nor --control fixed does: leave one of them out"
        );
    }
    if args.yielding {
        ensure!(
            args.transport == Transport::Rtp
                && !args.one_way
                && !matches!(args.control(), ControllerConfig::Fixed { .. }),
            "--yielding is for a delay promise with rate control, which --transport tcp, --one-way and \
             --control fixed do without: leave out one or the other"
        );
    }
    Ok(())
}

fn sender_config(
    args: &SendArgs,
    picked: &Picked,
    around: &LiveContext,
    rng: &mut dyn rand_core::Rng,
) -> SenderConfig {
    let mut streams = Streams::with_ssrcs(rng.next_u32(), rng.next_u32());
    streams.media_type = payload::payload_type(args.codec);
    let mut config = SenderConfig::new(streams, live::random_name(rng));
    config.epoch = around.epoch;
    config.frame_rate = picked.frame_rate;
    config.rates = args.limits.both();
    config.packet_size = args.packet_size;
    config.one_way = args.one_way;
    config.ecn = args.ecn;
    config.log = true;
    config.frames = args.duration.map(|span| frames_in(span, picked.frame_rate));
    if let ControllerConfig::Fixed { rate } = args.control() {
        config.rates = (rate, rate);
        // A stream without rate control sends each frame as it comes, and promises nothing.
        config.pace = FIXED_PACE;
    } else {
        config.delay_bound = Some(args.delay_bound);
    }
    config
}

fn make_sender(args: &SendArgs, config: SenderConfig, rng: &mut dyn rand_core::Rng) -> MediaSender {
    let (floor, ceiling) = config.rates;
    let demand = Demand {
        floor,
        ceiling,
        shares: 1,
    };
    let start = Start::new(Time::ZERO, config.packet_size, demand);
    let planner = PlannerConfig {
        yields: args.yielding,
        ..PlannerConfig::new(floor, ceiling)
    };
    MediaSender::new(config, args.control().start(&start), Some(planner), rng)
}

fn write_sdp(
    file: &std::path::Path,
    route: &Route,
    config: &SenderConfig,
    picked: &Picked,
) -> Result<()> {
    let sdp = Sdp {
        session: u64::from(config.streams.media_ssrc),
        address: route.peer.ip(),
        port: route.peer.port(),
        payload_type: config.streams.media_type,
        rtx: Some(config.streams.repair_type),
        parameter_sets: picked.parameter_sets.clone(),
        frame_rate: Some(config.frame_rate),
        source: Some(Source {
            ssrc: config.streams.media_ssrc,
            rtx_ssrc: Some(config.streams.repair_ssrc),
            cname: config.cname.clone(),
        }),
        feedback: Feedback {
            nack: true,
            pli: true,
            ccfb: true,
        },
        rtcp_mux: true,
        rtcp_reduced_size: true,
    };
    if file.as_os_str() == "-" {
        // Nothing is sent then, so this is no success even where the reader only went away.
        return write!(output(), "{sdp}").map_err(|e| anyhow!("--sdp: {e}"));
    }
    std::fs::write(file, sdp.to_string())
        .with_context(|| format!("cannot write {}", file.display()))
}

/// What went wrong, if anything did: a receiver may leave when it likes.
fn because(failure: SenderFailure, peer: SocketAddr) -> Option<String> {
    let SenderFailure::NobodyThere(cause) = failure else {
        return Some(format!("the stream to {peer} was given up"));
    };
    Some(match cause {
        BreakerCause::Goodbye => return None,
        BreakerCause::RtcpTimeout => format!(
            "no report came from {peer} for too long, so the stream was stopped: look whether the \
             receiver runs, and give --one-way if it never answers"
        ),
        BreakerCause::MediaTimeout => format!(
            "{peer} reports that nothing arrives, so the stream was stopped: look for a firewall \
             on the way"
        ),
        BreakerCause::Congestion => format!(
            "the path to {peer} loses too much for even the lowest rate, so the stream was \
             stopped: lower --floor or find a better path"
        ),
    })
}

fn control(text: &str) -> Result<ControllerConfig, String> {
    match text.split_once(':') {
        None if text == "rap" => Ok(ControllerConfig::Rap(RapConfig::default())),
        None if text == "tfrc" => Ok(ControllerConfig::default()),
        Some(("fixed", rate)) => match quantity::rate(rate) {
            Ok(rate) if rate > Rate::ZERO => Ok(ControllerConfig::Fixed { rate }),
            Ok(_) => Err("a fixed rate of zero sends nothing: give it more".to_owned()),
            Err(e) => Err(e.to_string()),
        },
        _ => Err(format!(
            "\"{text}\" is no rate control: choose tfrc, rap, or fixed:RATE as in fixed:2Mb/s"
        )),
    }
}

/// Whole frames in a span, at least one: who asks for less than a frame lasts wants to see one.
fn frames_in(span: Duration, rate: FrameRate) -> u64 {
    let frames =
        span.as_nanos() * u128::from(rate.num) / (1_000_000_000 * u128::from(rate.den.max(1)));
    u64::try_from(frames).unwrap_or(u64::MAX).max(1)
}

/// What waits at Ctrl-C may take this long to leave.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// From the least that every IPv4 host has to take (RFC 791) to a jumbo frame.
const PACKET_SIZES: std::ops::RangeInclusive<u64> = 576..=9_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_named() {
        assert_eq!(control("tfrc"), Ok(ControllerConfig::default()));
        let rap = ControllerConfig::Rap(RapConfig::default());
        assert_eq!(control("rap"), Ok(rap));
        let rate = Rate::kbps(2_000);
        assert_eq!(control("fixed:2Mb/s"), Ok(ControllerConfig::Fixed { rate }));
        for wrong in [
            "",
            "cubic",
            "fixed",
            "fixed:",
            "fixed:2",
            "fixed:0b/s",
            "tfrc:1",
        ] {
            assert!(control(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_are_whole_frames() {
        assert_eq!(frames_in(Duration::from_secs(4), FrameRate::fps(30)), 120);
        let ntsc = FrameRate {
            num: 30_000,
            den: 1_001,
        };
        assert_eq!(frames_in(Duration::from_secs(1), ntsc), 29);
        assert_eq!(frames_in(Duration::from_millis(1), ntsc), 1);
    }
}
