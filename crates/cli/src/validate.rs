//! `tidegate sim validate`

use std::fmt::Write as _;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, bail};
use tidegate_core::random::Seed;
use tidegate_sim::validate::{Case, CaseError, Played, Row};

use crate::sim::Bar;

/// What to compare with ns-2, and how thoroughly.
#[derive(Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    /// Only cases of which a word begins with this, as "shared" or "rap 0.001"
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Seeds per case; as many as ns-2 had unless told
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    seeds: Option<u32>,
    /// Only one or two cases of each kind
    #[arg(long)]
    quick: bool,
    /// Cases played at the same time; one per core unless told
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Print the rows as one JSON array
    #[arg(long)]
    json: bool,
}

/// Compares. The exit code is 1 when a row does not hold and there is no excuse.
pub(crate) fn run(args: &ValidateArgs) -> Result<ExitCode> {
    let mut cases = Case::all(args.quick);
    if let Some(pattern) = &args.only {
        cases.retain(|case| case.matches(pattern));
        if cases.is_empty() {
            bail!(
                "no case has a word that begins with \"{pattern}\"; use the name of a set (every, queue, red, response, satellite, shared, speed, start) or of a control (reno, newreno, sack, rap, tfrc)"
            );
        }
    }
    let seeds = |case: &Case| match args.seeds {
        _ if !case.is_random() => 1,
        Some(seeds) => seeds,
        None => case.seeds(),
    };
    let jobs: Vec<(usize, Seed)> = (0..cases.len())
        .flat_map(|case| (1..=u64::from(seeds(&cases[case]))).map(move |seed| (case, Seed(seed))))
        .collect();
    let played = play_all(&cases, &jobs, args.jobs)?;
    let mut rows = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let of_case = jobs.iter().zip(&played).filter(|((n, _), _)| *n == number);
        let of_case: Vec<Played> = of_case.map(|(_, played)| played.clone()).collect();
        rows.extend(case.judge(&of_case));
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &rows)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", table(&rows))?;
    }
    let sound = rows.iter().all(|row| row.holds || row.excuse.is_some());
    Ok(if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Plays all jobs, as many at a time as there are threads, and returns what they gave in their order.
fn play_all(
    cases: &[Case],
    jobs: &[(usize, Seed)],
    threads: Option<NonZeroUsize>,
) -> Result<Vec<Played>, CaseError> {
    let threads = threads.or_else(|| std::thread::available_parallelism().ok());
    let threads = threads.map_or(1, NonZeroUsize::get);
    let next = AtomicUsize::new(0);
    let bar = Mutex::new((0, Bar::new("validating")));
    let work = || {
        let mut mine = Vec::new();
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let Some((case, seed)) = jobs.get(job) else {
                return mine;
            };
            mine.push((job, cases[*case].play(*seed)));
            if let Ok(mut bar) = bar.lock() {
                bar.0 += 1;
                let share = f64::from(bar.0) / jobs.len() as f64;
                bar.1.show(share);
            }
        }
    };
    let mut all: Vec<(usize, Result<Played, CaseError>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let workers = workers.into_iter();
        workers
            .flat_map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    if let Ok(mut bar) = bar.lock() {
        bar.1.done();
    }
    all.sort_by_key(|(job, _)| *job);
    all.into_iter().map(|(_, played)| played).collect()
}

/// One line per row; those that do not hold say so in front.
fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.what.len()).max().unwrap_or(0);
    let mut text = format!(
        "       {:width$} {:>11} {:>11} {:>8} {:>8} {:>8}\n",
        "what", "ns-2", "ours", "off", "allowed", "spread"
    );
    let share = |part: f64, row: &Row| match row.theirs {
        0.0 => number(part),
        theirs => format!("{:.1} %", 100.0 * part / theirs),
    };
    for row in rows {
        let ours = row.ours.unwrap_or(f64::NAN);
        let _ = writeln!(
            text,
            "{} {:width$} {:>11} {:>11} {:>8} {:>8} {:>8}",
            match (row.holds, row.excuse) {
                (true, _) => "      ",
                (false, Some(_)) => "ties  ",
                (false, None) => "FAILS ",
            },
            row.what,
            number(row.theirs),
            number(ours),
            share(ours - row.theirs, row),
            share(row.allowed, row),
            share(row.spread, row),
        );
    }
    let count = |excused: bool| {
        let rows = rows.iter().filter(|row| !row.holds);
        rows.filter(|row| row.excuse.is_some() == excused).count()
    };
    let (fails, ties) = (count(false), count(true));
    let _ = write!(text, "\n{} rows, {fails} do not hold", rows.len());
    if ties > 0 {
        let excuse = rows
            .iter()
            .find_map(|row| row.excuse.filter(|_| !row.holds));
        let _ = write!(text, ", and {ties} where {}", excuse.unwrap_or_default());
    }
    text + "\n"
}

/// With about five digits that count.
fn number(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_owned(),
        large if large >= 1_000.0 => format!("{x:.0}"),
        middle if middle >= 1.0 => format!("{x:.2}"),
        _ => format!("{x:.6}"),
    }
}
