//! `tidegate papers traffic`: source and sink of cross traffic over UDP. `papers hosts --cross`
//! starts both on other hosts.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use tidegate_core::quantity;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_live::driver::{RunLimits, drive};
use tidegate_live::udp::{Recognition, Socket, SourceFilter};
use tidegate_sim::flow_endpoints::{Actor, Framed, Passage};
use tidegate_sim::traffic::udp::{Source, SourceConfig, Spacing};

use tidegate_console::arguments;
use tidegate_console::context::{self, LiveContext};
use tidegate_console::progress::say;

/// Options of `papers traffic`.
#[derive(Debug, clap::Args)]
pub(super) struct TrafficArgs {
    /// Destination of the traffic
    #[arg(long, value_name = "HOST:PORT", requires = "rate")]
    to: Option<String>,
    /// Count packets that arrive at this port; 0 selects a free one
    #[arg(long, value_name = "PORT", conflicts_with_all = ["to", "rate", "on", "off"], required_unless_present = "to")]
    listen: Option<u16>,
    /// Rate during bursts, with the headers of IP and UDP
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    rate: Option<Rate>,
    /// Mean length of a burst [default: constant rate]
    #[arg(long, value_name = "TIME", value_parser = arguments::lasting, requires = "off")]
    on: Option<Duration>,
    /// Mean time between bursts
    #[arg(long, value_name = "TIME", value_parser = arguments::lasting, requires = "on")]
    off: Option<Duration>,
    /// Maximum duration
    #[arg(long, value_name = "TIME", value_parser = arguments::lasting)]
    duration: Duration,
}

/// Sends or counts until the end of the duration or Ctrl-C, then prints the totals.
pub(super) fn run(args: &TrafficArgs) -> Result<ExitCode> {
    let around = LiveContext::enter()?;
    let count = match (&args.to, args.listen) {
        (Some(to), _) => send(args, to, &around)?,
        (None, port) => count(args, port.unwrap_or(0), &around)?,
    };
    let seconds = count.lasted().as_secs_f64().max(1e-3);
    say(format_args!(
        "{} {} packets, {} on the wire in {seconds:.1} s",
        if args.to.is_some() { SENT } else { CAME },
        count.packets,
        Bytes(count.bytes) / Duration::from_secs_f64(seconds)
    ));
    Ok(ExitCode::SUCCESS)
}

/// Totals of the traffic.
#[derive(Debug, Default)]
struct Count {
    packets: u64,
    bytes: u64,
    span: Option<(Time, Time)>,
}

impl Count {
    fn add(&mut self, passage: &Passage) {
        self.packets += 1;
        self.bytes += u64::from(passage.size);
        let (first, _) = self.span.unwrap_or((passage.at, passage.at));
        self.span = Some((first, passage.at));
    }

    fn lasted(&self) -> Duration {
        self.span
            .map_or(Duration::ZERO, |(first, last)| last.since(first))
    }
}

fn send(args: &TrafficArgs, to: &str, around: &LiveContext) -> Result<Count> {
    let peer = to.to_socket_addrs().ok().and_then(|mut all| all.next());
    let peer = peer.with_context(|| {
        format!("\"{to}\" is not an address: use HOST:PORT, such as 192.0.2.7:5006")
    })?;
    let any: SocketAddr = if peer.is_ipv6() {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any).context("cannot open a UDP socket for cross traffic")?;
    let socket = Socket::connected(socket, peer)
        .with_context(|| format!("cannot send to {peer}: check the routes"))?;
    let spacing = match (args.on, args.off) {
        (Some(on), Some(off)) => Spacing::OnOff {
            on,
            off,
            shape: None,
        },
        _ => Spacing::Constant { jitter: 0.0 },
    };
    let config = SourceConfig {
        rate: args.rate.unwrap_or(Rate::ZERO).into(),
        packet: PACKET,
        spacing,
        ..SourceConfig::default()
    };
    let source = Source::new(config).map_err(|fault| anyhow!("invalid cross traffic: {fault}"))?;
    let source = source.until(Time::ZERO + args.duration);
    say(format_args!("{SENDS}{peer}"));
    pass(Actor::Udp(Box::new(source)), socket, args, around)
}

fn count(args: &TrafficArgs, port: u16, around: &LiveContext) -> Result<Count> {
    // IPv6 and IPv4 if the system has both.
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)));
    let socket =
        socket.with_context(|| format!("cannot open UDP port {port}: choose another one"))?;
    let port = socket
        .local_addr()
        .context("cannot read the port of the socket")?
        .port();
    let socket = Socket::listening(socket, Recognition::any(), SourceFilter::default())
        .context("cannot use the UDP socket")?;
    say(format_args!("{COUNTS}{port}"));
    pass(Actor::UdpSink(Box::default()), socket, args, around)
}

fn pass(actor: Actor, socket: Socket, args: &TrafficArgs, around: &LiveContext) -> Result<Count> {
    let seed = context::secret_seed();
    let mut party = Framed::new(actor, seed.stream("cross traffic"));
    let conditions = RunLimits {
        clock: around.clock,
        until: Some(Time::ZERO + args.duration),
        stop: around.stop.clone(),
    };
    let (mut count, mut passages) = (Count::default(), Vec::new());
    let mut rng = seed.stream("driver");
    let turn = |party: &mut Framed, _| {
        party.drain(&mut passages);
        passages.drain(..).for_each(|passage| count.add(&passage));
        if around.interrupts.count() > 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    drive(
        &mut party,
        &mut vec![socket],
        &conditions,
        &mut rng,
        &mut (),
        turn,
    )?;
    Ok(count)
}

/// Full Ethernet payload.
const PACKET: Bytes = Bytes(1_500);
/// Message of a source at its start, before the address.
pub(super) const SENDS: &str = "cross traffic goes to ";
/// Message of a sink that is ready, before the port.
pub(super) const COUNTS: &str = "counting cross traffic at port ";
/// Last message of a source, before the number of packets.
pub(super) const SENT: &str = "sent";
/// Last message of a sink, before the number of packets.
pub(super) const CAME: &str = "received";
