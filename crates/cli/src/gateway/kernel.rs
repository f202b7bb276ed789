//! `tidegate gateway --kernel`: programs in the kernel, and the rounds of their control.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tidegate_console::context::{LiveContext, secret_seed};
use tidegate_console::exit::EnvironmentError;
use tidegate_console::progress::say;
use tidegate_core::aggregate::Counters;
use tidegate_core::aggregate::bridge::{BridgeCounters, Medium, notification};
use tidegate_core::control::Context;
use tidegate_core::units::Time;
use tidegate_kernel::aggregate::{KernelConfig, KernelPoint, KernelPointError};
use tidegate_kernel::monotonic;
use tidegate_live::gateway::{GatewayConfig, GatewayError, GatewayState, Port, PortCounters, Sent};

use super::{GatewayArgs, show};

/// Runs the rounds until the end or Ctrl-C.
pub(super) fn run(
    args: &GatewayArgs,
    config: &GatewayConfig,
    live: &LiveContext,
) -> Result<ExitCode> {
    let interface = &config.site_interface;
    let port = Port::open_sender(interface).map_err(|cause| GatewayError::Port {
        interface: interface.clone(),
        cause,
    })?;
    let mut point = KernelPoint::load(&KernelConfig {
        aggregation: config.aggregation.clone(),
        remote: config.remote.clone(),
        link_header: match port.medium() {
            Medium::Ethernet => ETHERNET_HEADER,
            Medium::Ip => 0,
        },
        manual_clock: false,
    })
    .map_err(classified)?;
    point.attach(interface).map_err(classified)?;
    if !args.output.is_json() {
        say(format_args!("programs at {interface} (site)"));
    }
    let mut rng = secret_seed().stream("gateway");
    let end = args.span.map_or(Time::FAR, |span| live.clock.now() + span);
    let limits = live.conditions();
    let (mut second, mut ports) = (live.clock.now() + SECOND, PortCounters::default());
    while live.interrupts.count() == 0 {
        let mut cx = Context {
            now: time(),
            rng: &mut rng,
            trace: &mut (),
        };
        let next = point.run(&mut cx).context("the programs of the gateway")?;
        for notice in point.take_notices() {
            let frame = notification(port.medium(), &notice.head, &notice.report);
            let Some(frame) = frame else { continue };
            let sent = port.send_plain(&frame);
            let sent = sent.with_context(|| format!("the interface {interface}"))?;
            ports.notifications += u64::from(sent == Sent::Yes);
        }
        let now = live.clock.now();
        if now >= end {
            break;
        }
        if now >= second {
            second = now + SECOND;
            let state = state(&point, live, ports)?;
            show::each_second(&state, config, args.output)?;
        }
        let wait = next.since(time());
        limits.sleep_until((now + wait).min(second).min(end));
    }
    show::end(&state(&point, live, ports)?, config, args.output)?;
    Ok(ExitCode::SUCCESS)
}

fn state(point: &KernelPoint, live: &LiveContext, ports: PortCounters) -> Result<GatewayState> {
    let of = point.counters().context("the counters of the gateway")?;
    let datagrams = of.rewritten + of.invalid + of.refused + of.unknown + of.forbidden + of.failed;
    Ok(GatewayState {
        at: live.clock.now(),
        applications: point.applications(time()),
        packets: Counters {
            rewritten: of.rewritten,
            invalid: of.invalid,
            refused: of.refused,
            unknown: of.unknown,
            late: of.late,
            jumps: of.jumps,
            invalid_echoes: of.invalid_echoes,
            stopped: of.dropped,
            notified: ports.notifications,
            expired: of.expired,
        },
        frames: BridgeCounters {
            frames: datagrams,
            datagrams,
            forbidden: of.forbidden,
            fragments: of.fragments,
            truncated: 0,
            dropped: of.dropped,
        },
        ports: PortCounters {
            batches: of.batches,
            failed: of.failed,
            missed: of.missed,
            ..ports
        },
    })
}

/// A refusal of the kernel is an error of the environment, other errors are those of the
/// configuration.
fn classified(error: KernelPointError) -> anyhow::Error {
    match error {
        KernelPointError::Load(_) => EnvironmentError::new(error).into(),
        _ => error.into(),
    }
}

/// Time of the programs.
fn time() -> Time {
    Time::ZERO + monotonic()
}

const SECOND: Duration = Duration::from_secs(1);
const ETHERNET_HEADER: u32 = 14;
