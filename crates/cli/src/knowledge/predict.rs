//! `tidegate knowledge predict`.

use std::io::Write as _;
use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use tidegate_console::output::{output, print_json};
use tidegate_console::progress::counted;
use tidegate_knowledge::predict::{LEVELS, MEDIAN, SMALL_ERROR};
use tidegate_knowledge::start_table::{Basis, METHOD, Prediction, SPAN, StartTable};
use tidegate_knowledge::{AddressError, Cloud, WallTime};

use super::access::{self, StoreArgs, store_error};

/// Arguments of `tidegate knowledge predict`.
#[derive(Debug, clap::Args)]
pub(crate) struct PredictArgs {
    /// Address of the client
    #[arg(value_name = "ADDRESS", value_parser = host)]
    address: IpAddr,
    #[command(flatten)]
    store: StoreArgs,
    /// Time of the session's start, in milliseconds since 1970 UTC [default: now]
    #[arg(long, value_name = "MILLISECONDS", value_parser = time)]
    at: Option<WallTime>,
    /// Print the prediction as JSON
    #[arg(long)]
    json: bool,
}

fn host(text: &str) -> Result<IpAddr, AddressError> {
    text.parse::<Cloud>()?;
    // A prefix stands for its clients.
    let address = text.split('/').next().unwrap_or(text);
    Ok(address.parse().expect("it is that of a cloud"))
}

fn time(text: &str) -> Result<WallTime, String> {
    let millis = text.parse().ok().and_then(WallTime::from_millis);
    millis.ok_or_else(|| "write milliseconds since 1970, before the year 2200".to_owned())
}

/// Prints what is expected of the path to a client, and why.
pub(crate) fn run(args: &PredictArgs) -> Result<ExitCode> {
    let store = args.store.read()?;
    let now = args.at.unwrap_or_else(access::now);
    let table = StartTable::build(&store, now).map_err(store_error)?;
    let Some(found) = table.predict(args.address) else {
        bail!(
            "nothing is known about {} at {now}: its network has neither samples of the last {} \
             minutes nor a cluster; `tidegate knowledge cluster` computes clusters",
            args.address,
            SPAN.as_secs() / 60
        );
    };
    if args.json {
        print_json(&as_json(&found))?;
    } else {
        let mut out = output();
        for (name, value) in lines(&found) {
            writeln!(out, "{name:11} {value}").context("cannot print the prediction")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(found: &Prediction) -> serde_json::Value {
    let quantiles = LEVELS.iter().zip(found.rates());
    let quantiles = quantiles.map(|(level, rate)| json!({ "level": level, "bps": rate.as_bps() }));
    json!({
        "cloud": found.cloud.to_string(),
        "cluster": found.cluster,
        "basis": basis(found.basis),
        "samples": found.samples,
        "clients": found.clients,
        "slots": found.forecast.samples,
        "offset_octaves": found.offset,
        "method": METHOD.name(),
        "order": found.forecast.order,
        "stationary": found.forecast.is_stationary,
        "confidence": found.forecast.confidence,
        "quantiles": quantiles.collect::<Vec<_>>(),
        "rtt_ms": found.rtt.map(|rtt| 1e3 * rtt.as_secs_f64()),
    })
}

const fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Cluster => "recent samples of its cluster",
        Basis::Cloud => "recent samples of its network",
        Basis::Trajectory => "the trajectory of its cluster at this time of the day",
    }
}

fn lines(found: &Prediction) -> Vec<(&'static str, String)> {
    let rates = found.rates();
    let forecast = &found.forecast;
    let cluster = match found.cluster {
        Some(id) => format!(
            "{id}, from which the network differs by {:+.2} octaves",
            found.offset
        ),
        None => "none yet".to_owned(),
    };
    let samples = format!(
        "{} of {} in {} of 10 s",
        counted(found.samples as u64, "sample"),
        counted(found.clients as u64, "client"),
        counted(forecast.samples as u64, "slot"),
    );
    let stationary = if forecast.is_stationary {
        "stationary"
    } else {
        "not stationary"
    };
    let method = format!(
        "{}, linear predictor of order {}, series {stationary}",
        METHOD.name(),
        forecast.order
    );
    let confidence = format!(
        "{:.2}: share of past errors below a factor of {:.2}",
        forecast.confidence,
        2_f64.powf(SMALL_ERROR)
    );
    let rtt = found.rtt.map_or_else(
        || "unknown, so no session starts informed".to_owned(),
        |rtt| format!("{:.1} ms", 1e3 * rtt.as_secs_f64()),
    );
    vec![
        ("network", found.cloud.to_string()),
        ("cluster", cluster),
        ("basis", basis(found.basis).to_owned()),
        ("samples", samples),
        ("method", method),
        ("rate", rates[MEDIAN].to_string()),
        ("50 %", format!("{} to {}", rates[2], rates[4])),
        ("90 %", format!("{} to {}", rates[0], rates[6])),
        ("confidence", confidence),
        ("round trip", rtt),
    ]
}
