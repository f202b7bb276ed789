//! `tidegate knowledge predict`.

use std::io::{self, BufRead as _, Write as _};
use std::net::IpAddr;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::json;
use tidegate_console::output::{output, print_json};
use tidegate_console::progress::counted;
use tidegate_knowledge::hierarchy::Level;
use tidegate_knowledge::predict::{LEVELS, MEDIAN, SMALL_ERROR};
use tidegate_knowledge::start_table::{Prediction, StartTable};
use tidegate_knowledge::{AddressError, Cloud, WallTime};

use super::access::{self, StoreArgs, store_error};

/// Arguments of `tidegate knowledge predict`.
#[derive(Debug, clap::Args)]
pub(crate) struct PredictArgs {
    /// Address of the client, prefix for a new client of a network, or - for addresses from standard
    /// input, one a line
    #[arg(value_name = "ADDRESS")]
    client: Wanted,
    #[command(flatten)]
    store: StoreArgs,
    /// Time of the session's start, in milliseconds since 1970 UTC [default: now]
    #[arg(long, value_name = "MILLISECONDS", value_parser = time)]
    at: Option<WallTime>,
    /// Print the prediction as JSON; with addresses from standard input, one object a line
    #[arg(long)]
    json: bool,
}

/// For whom a prediction is wanted.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Client(IpAddr),
    NewClient(Cloud),
    StandardInput,
}

impl FromStr for Wanted {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text == "-" {
            return Ok(Self::StandardInput);
        }
        let cloud = text.parse::<Cloud>()?;
        let address = text.parse().map(Self::Client);
        Ok(address.unwrap_or(Self::NewClient(cloud)))
    }
}

fn time(text: &str) -> Result<WallTime, String> {
    let millis = text.parse().ok().and_then(WallTime::from_millis);
    millis.ok_or_else(|| "write milliseconds since 1970, before the year 2200".to_owned())
}

/// Prints what is expected of the path to a client, and why.
pub(crate) fn run(args: &PredictArgs) -> Result<ExitCode> {
    let store = args.store.read()?;
    let now = args.at.unwrap_or_else(access::now);
    let addresses = access::policy(&store)?;
    let table = StartTable::build(&store, &addresses, now).map_err(store_error)?;
    let predict = |wanted: Wanted| match wanted {
        Wanted::Client(address) => table.predict(address),
        Wanted::NewClient(cloud) => table.predict_new(cloud),
        Wanted::StandardInput => None,
    };
    if matches!(args.client, Wanted::StandardInput) {
        return each_line(&predict, args.json);
    }
    let Some(found) = predict(args.client) else {
        bail!(
            "{} has no samples of the week before {now}: `tidegate send --knowledge` and \
             `tidegate knowledge import` add samples",
            args.store.store.display()
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

/// Predicts for each address of standard input.
fn each_line(predict: &dyn Fn(Wanted) -> Option<Prediction>, json: bool) -> Result<ExitCode> {
    let mut out = output();
    for (number, line) in (1..).zip(io::stdin().lock().lines()) {
        let line = line.context("cannot read standard input")?;
        let text = line.trim();
        let wanted = Wanted::from_str(text);
        let wanted = wanted.map_err(|error| anyhow!("line {number}: {text:?}: {error}"))?;
        let Some(found) = predict(wanted) else {
            bail!("the store has no samples of the last week");
        };
        let written = if json {
            let mut object = as_json(&found);
            object["address"] = text.into();
            writeln!(out, "{object}")
        } else {
            let rates = found.rates();
            writeln!(
                out,
                "{text} {} ({} to {} with 90 %), confidence {:.2}",
                rates[MEDIAN], rates[0], rates[6], found.expectation.confidence
            )
        };
        written.context("cannot print the prediction")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(found: &Prediction) -> serde_json::Value {
    let quantiles = LEVELS.iter().zip(found.rates());
    let quantiles = quantiles.map(|(level, rate)| json!({ "level": level, "bps": rate.as_bps() }));
    let evidence = found.evidence();
    let levels = Level::EACH.map(|level| {
        json!({
            "level": level.name(),
            "count": evidence.count(level),
            "share": evidence.share(&[level]),
        })
    });
    json!({
        "cloud": found.cloud.to_string(),
        "cluster": found.cluster,
        "offset_octaves": found.offset,
        "evidence": levels,
        "confidence": found.expectation.confidence,
        "quantiles": quantiles.collect::<Vec<_>>(),
        "rtt_ms": found.rtt.map(|rtt| 1e3 * rtt.as_secs_f64()),
    })
}

/// What a level has counted.
fn number(level: Level, count: f64) -> String {
    let unit = match level {
        Level::ClientRecent | Level::ClientOlder => "visit",
        Level::NetworkRecent | Level::NetworkOlder | Level::All => "client",
        Level::Cluster => "network",
    };
    counted(count as u64, unit)
}

fn lines(found: &Prediction) -> Vec<(&'static str, String)> {
    let rates = found.rates();
    let cluster = match found.cluster {
        Some(id) => format!(
            "{id}, from which the network differs by {:+.2} octaves",
            found.offset
        ),
        None => "none yet".to_owned(),
    };
    let confidence = format!(
        "{:.2}: chance of a rate within a factor of {:.2}",
        found.expectation.confidence,
        2_f64.powf(SMALL_ERROR)
    );
    let rtt = found.rtt.map_or_else(
        || "unknown, so no session starts informed".to_owned(),
        |rtt| format!("{:.1} ms", 1e3 * rtt.as_secs_f64()),
    );
    let mut lines = vec![
        ("network", found.cloud.to_string()),
        ("cluster", cluster),
        ("rate", rates[MEDIAN].to_string()),
        ("50 %", format!("{} to {}", rates[2], rates[4])),
        ("90 %", format!("{} to {}", rates[0], rates[6])),
        ("confidence", confidence),
        ("round trip", rtt),
    ];
    let evidence = found.evidence();
    for level in Level::EACH {
        let count = evidence.count(level);
        if count > 0.0 {
            let share = 100.0 * evidence.share(&[level]);
            let text = format!(
                "{share:3.0} % from {}: {}",
                level.name(),
                number(level, count)
            );
            lines.push(("evidence", text));
        }
    }
    lines
}
