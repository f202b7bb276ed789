//! `tidegate knowledge show`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::json;
use tidegate_console::output::{output, print_json};
use tidegate_knowledge::WallTime;

use super::access::{self, StoreArgs, store_error};

/// Arguments of `tidegate knowledge show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Print the numbers as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the contents and the settings of a store.
pub(crate) fn run(args: &ShowArgs) -> Result<ExitCode> {
    let store = args.store.read()?;
    let counts = store.counts().map_err(store_error)?;
    let newest = store.newest(access::now()).map_err(store_error)?;
    let keep = store.retention().map_err(store_error)?;
    let addresses = store.address_policy().map_err(store_error)?;
    if args.json {
        print_json(&json!({
            "counts": counts,
            "newest_ms": newest.map(WallTime::as_millis),
            "addresses": addresses,
            "keep_round_trip_s": keep.round_trip.as_secs(),
            "keep_minute_s": keep.minute.as_secs(),
            "keep_trajectories_s": keep.trajectories.as_secs(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let newest = newest.map_or_else(|| "-".to_owned(), |time| time.to_string());
    let hours = |span: std::time::Duration| format!("{} h", span.as_secs() / 3_600);
    let lines = [
        ("clouds", counts.clouds.to_string()),
        ("clients", counts.clients.to_string()),
        (
            "samples of a round trip",
            counts.round_trip_samples.to_string(),
        ),
        ("samples of a minute", counts.minute_samples.to_string()),
        ("days with trajectories", counts.days.to_string()),
        ("clusters", counts.clusters.to_string()),
        ("newest sample", newest),
        ("addresses", addresses.unwrap_or_else(|| "-".to_owned())),
        ("samples of a round trip kept for", hours(keep.round_trip)),
        ("samples of a minute kept for", hours(keep.minute)),
        ("trajectories kept for", hours(keep.trajectories)),
    ];
    let mut out = output();
    for (name, value) in lines {
        writeln!(out, "{name:33} {value}").context("cannot print the store")?;
    }
    Ok(ExitCode::SUCCESS)
}
