//! `tidegate knowledge cluster`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use tidegate_console::output::{output, print_json};
use tidegate_console::progress::{counted, say};
use tidegate_knowledge::Store;
use tidegate_knowledge::cluster::ClusterConfig;
use tidegate_knowledge::recluster::recluster;
use tidegate_knowledge::trajectory::exp2;

use super::access::{self, StoreArgs, store_error};

/// Arguments of `tidegate knowledge cluster`.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Number of clusters [default: the one of highest Calinski-Harabasz index]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    clusters: Option<u16>,
    /// Print the clusters as JSON
    #[arg(long)]
    json: bool,
}

/// Computes trajectories and clusters, and prints the clusters.
pub(crate) fn run(args: &ClusterArgs) -> Result<ExitCode> {
    // A store that does not exist is an error, not an empty store.
    drop(args.store.read()?);
    let mut store = access::open(&args.store.store, None)?.store;
    let config = ClusterConfig {
        clusters: args.clusters.map(usize::from),
        ..ClusterConfig::default()
    };
    let done = recluster(&mut store, config, access::now()).map_err(store_error)?;
    if done.clouds == 0 {
        bail!(
            "{} has no trajectory yet: clusters need samples of the scale \"minute\", which a stream \
             adds once per minute; see `tidegate knowledge show`",
            args.store.store.display()
        );
    }
    let rows = rows(&store)?;
    if args.json {
        print_json(&json!({ "result": done, "clusters": rows }))?;
        return Ok(ExitCode::SUCCESS);
    }
    say(format_args!(
        "{} of {}, which explain {:.1} % of the variance",
        counted(done.clusters as u64, "cluster"),
        counted(done.clouds as u64, "cloud"),
        100.0 * done.explained
    ));
    let mut out = output();
    let mut line = |line: String| writeln!(out, "{line}").context("cannot print the clusters");
    line(format!(
        "{:>7} {:>7} {:>11} {:>11} {:>11}",
        "cluster", "clouds", "mean", "lowest", "highest"
    ))?;
    for row in rows {
        let rate = |name: &str| exp2(row[name].as_f64().unwrap_or(0.0)).to_string();
        line(format!(
            "{:>7} {:>7} {:>11} {:>11} {:>11}",
            row["id"],
            row["clouds"],
            rate("mean_log2_bps"),
            rate("lowest_log2_bps"),
            rate("highest_log2_bps")
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn rows(store: &Store) -> Result<Vec<serde_json::Value>> {
    let clusters = store.clusters().map_err(store_error)?;
    let row = |cluster: &tidegate_knowledge::store::ClusterRow| {
        let bins = cluster
            .centroid
            .bins()
            .iter()
            .filter(|value| !value.is_nan());
        let lowest = bins.clone().copied().fold(f32::MAX, f32::min);
        let highest = bins.copied().fold(f32::MIN, f32::max);
        json!({
            "id": cluster.id,
            "clouds": cluster.clouds,
            "mean_log2_bps": cluster.centroid.mean(),
            "lowest_log2_bps": lowest,
            "highest_log2_bps": highest,
        })
    };
    Ok(clusters.iter().map(row).collect())
}
