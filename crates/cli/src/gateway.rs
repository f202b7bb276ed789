//! `tidegate gateway`: an aggregation point of the Coordination Protocol between two interfaces.

mod config;
mod kernel;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use tidegate_console::arguments;
use tidegate_console::context::{LiveContext, secret_seed};
use tidegate_console::progress::say;
use tidegate_core::aggregate::sites::{Numbers, Prefix};
use tidegate_live::gateway::Gateway;

use show::OutputArgs;

/// Arguments of `tidegate gateway`.
#[derive(Debug, clap::Args)]
pub(crate) struct GatewayArgs {
    /// Configuration file (TOML), instead of the following options
    #[arg(long, value_name = "FILE", conflicts_with_all = ["site", "path", "hosts", "port", "application", "max_shares"])]
    config: Option<PathBuf>,
    /// Interface to the endpoints of this site
    #[arg(long, value_name = "INTERFACE", required_unless_present = "config")]
    site: Option<String>,
    /// Stamp and measure packets by programs in the kernel, which forwards them as a router or
    /// bridge
    #[arg(long)]
    kernel: bool,
    /// Interface to the other site, without --kernel
    #[arg(long, value_name = "INTERFACE", required_unless_present_any = ["config", "kernel"], conflicts_with = "kernel")]
    path: Option<String>,
    /// Hosts of the other site; repeatable
    #[arg(long, value_name = "PREFIX", required_unless_present = "config")]
    hosts: Vec<Prefix>,
    /// UDP ports of the applications, as 5008 or 6000-6100; repeatable
    #[arg(long, value_name = "PORTS", required_unless_present = "config")]
    port: Vec<Numbers>,
    /// Allowed applications, as 1 or 1-10; repeatable [default: all]
    #[arg(long, value_name = "NUMBERS")]
    application: Vec<Numbers>,
    /// Largest number of flowshares of an application, 1 to 64
    #[arg(long, value_name = "NUMBER", default_value_t = 64)]
    max_shares: u8,
    /// Duration [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = arguments::lasting)]
    span: Option<Duration>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the gateway until its end or Ctrl-C.
pub(crate) fn run(args: &GatewayArgs) -> Result<ExitCode> {
    let config = config::read(args)?;
    let live = LiveContext::enter()?;
    if args.kernel {
        return kernel::run(args, &config, &live);
    }
    let mut gateway = Gateway::open(&config, live.clock)?;
    if !args.output.is_json() {
        say(format_args!(
            "gateway between {} (site) and {} (path)",
            config.site_interface, config.path_interface
        ));
    }
    let end = args.span.map(|span| live.clock.now() + span);
    let mut rng = secret_seed().stream("gateway");
    let (sender, states) = mpsc::sync_channel(WAITING);
    let (stop, interrupts) = (&live.stop, &live.interrupts);
    let (last, shown) = thread::scope(|scope| {
        let forward = || {
            // Forwarding has precedence over reports that are not read.
            let report = |state| drop(sender.try_send(state));
            let is_interrupted = || interrupts.count() > 0;
            let ended = gateway.run(stop, end, &mut rng, is_interrupted, report);
            // The other thread ends with the last report.
            drop(sender);
            ended.map(|()| gateway.state(live.clock.now()))
        };
        let forwarding = thread::Builder::new().name("gateway".into());
        let forwarding = forwarding.spawn_scoped(scope, forward);
        let forwarding = forwarding.context("cannot create the thread that forwards")?;
        let shown = states
            .iter()
            .try_for_each(|state| show::each_second(&state, &config, args.output));
        if shown.is_err() {
            stop.set();
        }
        let last = forwarding.join();
        let last = last.map_err(|_| anyhow!("the thread that forwards panicked; see its message"));
        anyhow::Ok((last?, shown))
    })?;
    let last = last?;
    shown?;
    show::end(&last, &config, args.output)?;
    Ok(ExitCode::SUCCESS)
}

/// Reports that wait for a slow terminal.
const WAITING: usize = 4;
