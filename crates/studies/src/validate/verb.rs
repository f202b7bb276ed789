//! `tidegate sim validate`

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use crate::parallel::{self, in_parallel};
use crate::validate::{self, Case, Row, SeedMetrics};
use anyhow::{Context as _, Result, anyhow, bail};
use tidegate_core::random::Seed;
use tidegate_live::terminal;

use tidegate_console::arguments;
use tidegate_console::exit::EXPECTATION_FAILS;
use tidegate_console::output::{output, print_json};
use tidegate_console::progress::{counted, say};
use tidegate_console::signals::{self, CreatedFolders};

/// Options of the validation.
#[derive(Debug, clap::Args)]
pub struct ValidateArgs {
    /// Only cases with a word that begins with PATTERN, such as "shared" or "rap 0.001"
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Seeds per case [default: the number of ns-2]
    #[arg(long, value_name = "N", value_parser = arguments::seeds)]
    seeds: Option<u64>,
    /// Only one or two cases of each kind
    #[arg(long)]
    quick: bool,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = arguments::jobs)]
    jobs: Option<NonZeroUsize>,
    /// Print the rows as one JSON array
    #[arg(long)]
    json: bool,
    /// Draw charts of ns-2 and the simulator as SVG and PNG into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the validation. The exit code is 1 if a row fails without a known reason, and 130 after
/// Ctrl-C.
///
/// # Errors
/// An option is invalid, a run fails, or a chart cannot be written.
pub fn run(args: &ValidateArgs) -> Result<ExitCode> {
    let cases = selected(args)?;
    let seeds = |case: &Case| match args.seeds {
        _ if !case.is_random() => 1,
        Some(seeds) => seeds,
        None => u64::from(case.seeds()),
    };
    let interrupts = signals::catch()?;
    let made = args.out.as_deref().map(CreatedFolders::by);
    if let Some(dir) = &args.out {
        fs::create_dir_all(dir).with_context(|| {
            let dir = dir.display();
            format!("cannot make the folder {dir}: choose another --out")
        })?;
    }
    let jobs: Vec<(usize, Seed)> = (0..cases.len())
        .flat_map(|case| (1..=seeds(&cases[case])).map(move |seed| (case, Seed(seed))))
        .collect();
    let (cases, jobs, threads) = (
        Arc::new(cases),
        Arc::new(jobs),
        parallel::threads(args.jobs),
    );
    let played = signals::run_interruptible(Some(&interrupts), "validating", {
        let (cases, jobs) = (Arc::clone(&cases), Arc::clone(&jobs));
        move |done| {
            in_parallel(jobs.len(), threads, &|share| done.set(share), |job| {
                let (case, seed) = jobs[job];
                cases[case].play(seed)
            })
        }
    });
    let Some(played) = played else {
        made.iter().for_each(CreatedFolders::undo);
        say("interrupted in the validation: no results are kept");
        return Ok(signals::exit_code());
    };
    let played = played?;
    let mut rows = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let of_case = jobs.iter().zip(&played).filter(|((n, _), _)| *n == number);
        let of_case: Vec<SeedMetrics> = of_case.map(|(_, played)| played.clone()).collect();
        rows.extend(case.judge(&of_case));
    }
    show(args, &rows)?;
    let sound = rows.iter().all(|row| row.holds || row.excuse.is_some());
    Ok(if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXPECTATION_FAILS)
    })
}

/// Cases that the options select.
fn selected(args: &ValidateArgs) -> Result<Vec<Case>> {
    let mut cases = Case::all(args.quick);
    if let Some(pattern) = &args.only {
        cases.retain(|case| case.matches(pattern));
        if cases.is_empty() {
            bail!(
                "no case matches --only \"{pattern}\"; use the name of a set (every, queue, red, response, satellite, shared, speed, start) or of a controller (reno, newreno, sack, rap, tfrc)"
            );
        }
    }
    Ok(cases)
}

/// Draws and prints the results.
fn show(args: &ValidateArgs, rows: &[Row]) -> Result<()> {
    let drawings = match &args.out {
        Some(dir) => draw(rows, dir)?,
        None => Vec::new(),
    };
    if args.json {
        return print_json(&rows);
    }
    let mut out = output();
    write!(out, "{}", table(rows, terminal::columns(out.as_fd())))?;
    for drawing in drawings {
        writeln!(out, "drawing: {}", drawing.display())?;
    }
    Ok(())
}

/// Draws the charts into `dir`. Returns the paths of the PNG files.
fn draw(rows: &[Row], dir: &Path) -> Result<Vec<PathBuf>> {
    let mut drawings = Vec::new();
    for figure in validate::figures(rows) {
        let (svg, png) = figure.draw().map_err(|why| anyhow!(why))?;
        let path = dir.join(&figure.name).with_extension("png");
        for (path, bytes) in [
            (path.with_extension("svg"), svg.as_bytes()),
            (path.clone(), &png),
        ] {
            fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        }
        drawings.push(path);
    }
    Ok(drawings)
}

/// Table with one line per row; rows that fail have a mark in front. If the table is wider than
/// `room`, the name of a case has a separate line above its rows. If it is still too wide, the
/// columns behind the first [`FIXED`] are omitted, the last first.
fn table(rows: &[Row], room: Option<usize>) -> String {
    let fits = |wide: usize| room.is_none_or(|room| wide <= room);
    let longest = |of: fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let mut columns = &COLUMNS[..];
    let wide = |width: usize, columns: &[(&str, usize)]| {
        let numbers = columns.iter().map(|(_, width)| width + 1);
        MARK + width + numbers.sum::<usize>()
    };
    let mut width = longest(|row| row.what.len());
    let apart = !fits(wide(width, columns));
    if apart {
        width = INDENT.len() + longest(|row| split(row).1.len());
        while columns.len() > FIXED && !fits(wide(width, columns)) {
            columns = &columns[..columns.len() - 1];
        }
    }
    let mut text = line("", "what", width, columns, &COLUMNS.map(|(title, _)| title));
    let mut case = "";
    for row in rows {
        let what = if apart {
            let (of, number) = split(row);
            if of != case {
                let _ = writeln!(text, "{of}");
                case = of;
            }
            &format!("{INDENT}{number}")
        } else {
            &row.what
        };
        let mark = match (row.holds, row.excuse) {
            (true, _) => "",
            (false, Some(_)) => "known",
            (false, None) => "FAILS",
        };
        text.push_str(&line(mark, what, width, columns, &cells(row)));
    }
    text + &verdict(rows)
}

/// Case and metric of a row.
fn split(row: &Row) -> (&str, &str) {
    row.what.split_once(": ").unwrap_or(("", &row.what))
}

/// Line of the table, with the first cells as far as there are columns.
fn line(
    mark: &str,
    what: &str,
    width: usize,
    columns: &[(&str, usize)],
    cells: &[impl AsRef<str>],
) -> String {
    let mut line = format!("{mark:MARK$}{what:width$}");
    for ((_, width), cell) in columns.iter().zip(cells) {
        let _ = write!(line, " {:>width$}", cell.as_ref());
    }
    line + "\n"
}

/// Cells in the order of [`COLUMNS`].
fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let ours = row.ours.unwrap_or(f64::NAN);
    let share = |part: f64| match row.theirs {
        0.0 => number(part),
        theirs => format!("{:.1} %", 100.0 * part / theirs),
    };
    [
        number(row.theirs),
        number(ours),
        share(ours - row.theirs),
        share(row.allowed),
        share(row.spread),
    ]
}

/// Number of rows that fail, and of those with a known reason, by reason.
fn verdict(rows: &[Row]) -> String {
    let failing = || rows.iter().filter(|row| !row.holds);
    let fails = failing().filter(|row| row.excuse.is_none()).count();
    let mut text = format!(
        "\n{}, {fails} {} not hold",
        counted(rows.len() as u64, "row"),
        if fails == 1 { "does" } else { "do" }
    );
    let mut excuses: Vec<(&str, usize)> = Vec::new();
    for excuse in failing().filter_map(|row| row.excuse) {
        match excuses.iter_mut().find(|(known, _)| *known == excuse) {
            Some((_, count)) => *count += 1,
            None => excuses.push((excuse, 1)),
        }
    }
    for (excuse, count) in excuses {
        let _ = write!(text, "\nknown: {count}, as {excuse}");
    }
    text + "\n"
}

/// Number with about five significant digits.
fn number(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_owned(),
        large if large >= 1_000.0 => format!("{x:.0}"),
        middle if middle >= 1.0 => format!("{x:.2}"),
        _ => format!("{x:.6}"),
    }
}

/// Columns with their widths.
const COLUMNS: [(&str, usize); 5] = [
    ("ns-2", 11),
    ("ours", 11),
    ("off", 8),
    ("allowed", 8),
    ("spread", 8),
];

/// Number of columns that are always present.
const FIXED: usize = 3;

/// Width of the marks.
const MARK: usize = 7;

/// Indent of the metrics of a case.
const INDENT: &str = "  ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_table_has_case_lines_and_fewer_columns() {
        let row = |what: &str, ours| Row {
            what: what.to_owned(),
            theirs: 100.0,
            ours: Some(ours),
            spread: 1.0,
            our_spread: 1.0,
            n: 10,
            our_n: 10,
            allowed: 10.0,
            holds: ours < 110.0,
            excuse: None,
        };
        let case = "shared sack_vs_tfrc exp_25_125 8";
        let rows = ["a.pps", "b.loss_events"].map(|number| format!("{case}: {number}"));
        let rows = [row(&rows[0], 101.0), row(&rows[1], 120.0)];
        let widest = |text: &str| text.lines().map(str::len).max();
        let full = table(&rows, None);
        assert_eq!(widest(&full), Some(7 + 47 + 51));
        assert_eq!(table(&rows, widest(&full)), full);
        // The metric is 15 wide with its indent.
        let all = table(&rows, Some(80));
        assert_eq!(widest(&all), Some(7 + 15 + 51));
        assert!(all.contains(&format!("\n{case}\n         a.pps ")), "{all}");
        assert!(all.contains("\nFAILS    b.loss_events "), "{all}");
        let few = table(&rows, Some(60));
        assert_eq!(widest(&few), Some(7 + 15 + 33));
        assert!(few.contains("20.0 %") && !few.contains("spread"), "{few}");
    }
}
