//! `tidegate serve`: stored titles to many clients, over RTSP and RTP.

mod admission;
mod catalogue;
mod contained;
mod interleaved;
mod pacing;
mod report;
mod service;
mod source;
mod stream;
mod streams;
mod threads;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tidegate_console::arguments;
use tidegate_console::context::LiveContext;
use tidegate_console::progress::{counted, say};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::quantity;
use tidegate_core::units::{Bytes, Time};
use tidegate_live::driver::TICK;
use tidegate_live::tcp::{Connections, ServiceLimits};

use crate::learning::KnownPaths;
use crate::live::{self, JsonArgs};
use crate::security;
use crate::send::control;
use catalogue::Catalogue;
use report::Report;
use service::RtspService;
use streams::{StreamSettings, Streams};

/// Arguments of `tidegate serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Folder of the titles: a file is a title, a folder with files is a title in several renditions
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Address for RTSP
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8554")]
    listen: SocketAddr,
    // As in `send`.
    #[arg(long, value_name = "CONTROL", value_parser = control)]
    control: Option<ControllerConfig>,
    /// Maximum delay of a frame; a later frame is useless. Players buffer one to two seconds
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = quantity::duration)]
    delay_bound: Duration,
    /// Length of a full IP packet
    #[arg(long, value_name = "SIZE", default_value = "1200B", value_parser = quantity::size)]
    packet_size: Bytes,
    /// Decode the highest rendition and encode it for each client, at the rate that its controller
    /// allows. An encoder takes about a tenth of a processor at 640x360
    #[arg(long)]
    encode: bool,
    /// Start streams from what this store knows about their paths, and add what they learn; the file is
    /// created if it does not exist [default: none]
    #[arg(long, value_name = "FILE")]
    knowledge: Option<PathBuf>,
    /// Refuse a title (453) whose lowest rendition needs more than this quantile of the predicted rate,
    /// from 0.05 to 0.95 [default: refuse none]
    #[arg(long, value_name = "QUANTILE", requires = "knowledge", value_parser = admission::quantile)]
    admission: Option<f64>,
    /// Stop after this time [default: never]
    #[arg(long, value_name = "TIME", value_parser = arguments::lasting)]
    duration: Option<Duration>,
    /// Streams at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    max_streams: usize,
    /// Streams at the same time to one client: an IPv4 address, or an IPv6 /64
    #[arg(long, value_name = "NUMBER", default_value_t = 8)]
    max_streams_per_client: usize,
    /// Permit an address that other hosts reach: streams are neither encrypted nor authenticated
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    json: JsonArgs,
}

/// Serves for the given time, or until the user interrupts.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    check(args)?;
    let catalogue = Catalogue::open(&args.dir, args.encode)?;
    let context = LiveContext::enter()?;
    let listener = TcpListener::bind(args.listen);
    let listener = listener.with_context(|| {
        format!(
            "cannot listen at {}: choose another address with --listen",
            args.listen
        )
    })?;
    let address = listener.local_addr().context("the socket has no address")?;
    let limits = ServiceLimits {
        connections: args.max_streams.saturating_add(SPARE_CONNECTIONS),
        of_network: args.max_streams_per_client.saturating_add(SPARE_OF_CLIENT),
    };
    let connections = Connections::new(listener, limits);
    let mut connections = connections.context("cannot configure the listening socket")?;
    let known = args.knowledge.as_deref();
    let known = known.map(|file| KnownPaths::open(file, context.clock.now()));
    let mut known = known.transpose()?;
    known.as_mut().map(KnownPaths::refresh).transpose()?;
    let streams = Streams::new(settings(args), &context, known);
    let mut service = RtspService::new(catalogue, streams);
    let titles = counted(service.catalogue().len() as u64, "title");
    say(format_args!("serving {titles} at rtsp://{address}/"));
    let mut report = Report::new(args.json);
    let end = args.duration.map_or(Time::FAR, |span| Time::ZERO + span);
    loop {
        let now = context.clock.now();
        if context.interrupts.count() > 0 || now >= end {
            break;
        }
        connections
            .turn(&mut service, &context.conditions(), now + TICK)
            .context("the event queue of the connections failed")?;
        let now = context.clock.now();
        service.streams_mut().turn();
        report.turn(now, service.streams());
    }
    let now = context.clock.now();
    connections.close(&mut service, now);
    service.streams_mut().finish();
    report.finish(service.streams())?;
    Ok(ExitCode::SUCCESS)
}

fn settings(args: &ServeArgs) -> StreamSettings {
    StreamSettings {
        control: args.control.clone().unwrap_or_default(),
        delay_bound: args.delay_bound,
        packet_size: args.packet_size,
        streams: args.max_streams,
        of_client: args.max_streams_per_client,
        admission: args.admission,
        encode: args.encode,
    }
}

fn check(args: &ServeArgs) -> Result<()> {
    let control = args.control.clone().unwrap_or_default();
    let properties = control.properties();
    ensure!(
        security::is_local(args.listen.ip()) || args.insecure,
        "other hosts reach {}, and streams are neither encrypted nor authenticated: give \
        --insecure, or --listen 127.0.0.1:{}",
        args.listen,
        args.listen.port()
    );
    live::check_stream(args.packet_size, args.delay_bound)?;
    ensure!(
        args.knowledge.is_none() || properties.fixed_rate.is_none(),
        "--knowledge requires rate control, which --control fixed does not have: leave one of them out"
    );
    ensure!(
        !properties.uses_dummies,
        "--control {} needs reports on its probes, which players do not send: choose another one",
        control.name()
    );
    Ok(())
}

/// A client may have connections without a stream.
const SPARE_CONNECTIONS: usize = 64;
const SPARE_OF_CLIENT: usize = 8;

/// Time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
