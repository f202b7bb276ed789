//! `tidegate report`: draws the report of run folders.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use tidegate_record::RunReader;

use tidegate_console::output::output;
use tidegate_console::progress::say;
use tidegate_report as report;

/// Arguments of `tidegate report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Run folders, as written by `sim run`, `lab run`, `send` and `recv`
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Folder of the page and the figures [default: the folder of the first run]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Draws the report.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let runs = args.runs.iter().map(RunReader::load);
    let runs = runs.collect::<Result<Vec<_>, _>>()?;
    for note in runs.iter().flat_map(|run| &run.notes) {
        say(format_args!("note: {note}"));
    }
    let out = args.out.as_ref().unwrap_or(&args.runs[0]);
    let written = report::write(&runs, out)?;
    writeln!(output(), "{}", written.page.display())?;
    Ok(ExitCode::SUCCESS)
}
