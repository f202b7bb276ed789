//! `tidegate knowledge evaluate`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use tidegate_console::output::{output, print_json};
use tidegate_console::progress::{counted, say};
use tidegate_knowledge::WallTime;
use tidegate_knowledge::evaluate::evaluate;
use tidegate_knowledge::visit::visits;

use super::access::{StoreArgs, store_error};

/// Arguments of `tidegate knowledge evaluate`.
#[derive(Debug, clap::Args)]
pub(crate) struct EvaluateArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Share of the visits, the newest, that are predicted from those before them
    #[arg(long, value_name = "SHARE", default_value = "0.3", value_parser = share)]
    predict: f64,
    /// Print the table as JSON
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok();
    let share = share.filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| format!("\"{text}\" is no share: write a number between 0 and 1"))
}

/// Predicts each start of the newest part of a store from what was before it, and prints how good the
/// predictions are, beside simpler ones.
pub(crate) fn run(args: &EvaluateArgs) -> Result<ExitCode> {
    let store = args.store.read()?;
    let history = store.history(WallTime::default(), WallTime::LATEST);
    let visits = visits(history.map_err(store_error)?);
    let first = ((1.0 - args.predict) * visits.len() as f64) as usize;
    let Some(from) = visits.get(first).filter(|_| first > 0) else {
        bail!(
            "{} has {}: at least two are needed, one of them before the others",
            args.store.store.display(),
            counted(visits.len() as u64, "visit")
        );
    };
    say(format_args!(
        "{} of five minutes, those from {} on are predicted",
        counted(visits.len() as u64, "visit"),
        from.at
    ));
    let scores = evaluate(&visits, from.at);
    if scores.is_empty() {
        bail!(
            "no session starts after a pause from {} on: there is nothing to predict",
            from.at
        );
    }
    if args.json {
        print_json(&scores)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output();
    let mut line = |line: String| writeln!(out, "{line}").context("cannot print the table");
    line(format!(
        "{:8} {:23} {:>6} {:>7} {:>6} {:>6} {:>6} {:>6} {:>6}",
        "known", "prediction", "starts", "loss", "50 %", "80 %", "90 %", "over", "under"
    ))?;
    for score in scores {
        let [half, most, nearly] = score.within.map(|share| 100.0 * share);
        line(format!(
            "{:8} {:23} {:6} {:7.4} {half:6.1} {most:6.1} {nearly:6.1} {:6.1} {:6.1}",
            score.known.name(),
            score.rule.name(),
            score.starts,
            score.loss,
            100.0 * score.overestimated,
            100.0 * score.underestimated,
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
