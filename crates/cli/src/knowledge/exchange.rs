//! `tidegate knowledge import` and `export`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::json;
use tidegate_console::arguments;
use tidegate_console::exit::EnvironmentError;
use tidegate_console::output::{output, print_json};
use tidegate_console::progress::{counted, say};
use tidegate_knowledge::exchange::{
    CsvWriter, ExchangeError, ParquetWriter, Row, read_csv, read_parquet,
};
use tidegate_knowledge::{AddressPolicy, Ingested, Sample, Store};

use super::access::{self, AddressArg, StoreArgs, Writable, store_error};

/// Arguments of `tidegate knowledge import`.
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// File to read: Parquet if its name ends in `.parquet`, otherwise CSV
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    /// What a new store keeps of addresses [default: hashed]
    #[arg(long, value_enum)]
    addresses: Option<AddressArg>,
    /// Keep samples of a round trip for this time [default: the store's, initially 48h]
    #[arg(long, value_name = "TIME", value_parser = arguments::lasting)]
    keep_round_trips: Option<Duration>,
    /// Keep samples of a minute and trajectories for this time [default: the store's, initially 720h]
    #[arg(long, value_name = "TIME", value_parser = arguments::lasting)]
    keep_minutes: Option<Duration>,
    /// Print the numbers of rows as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `tidegate knowledge export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// File to write, which must not exist: Parquet if its name ends in `.parquet`, otherwise CSV;
    /// `-` is standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    /// Print the number of rows as JSON
    #[arg(long)]
    json: bool,
}

/// Adds the samples of a file that the store does not have: all, or after an error in the file none. So
/// an import that was killed is completed by another one.
pub(crate) fn import(args: &ImportArgs) -> Result<ExitCode> {
    let name = args.file.display();
    let in_file = |error: ExchangeError| match error {
        ExchangeError::System(error) => anyhow!(error).context(format!("cannot read {name}")),
        error => anyhow!("{name}: {error}"),
    };
    let is_pipe = fs::metadata(&args.file).is_ok_and(|file| !file.is_file());
    ensure!(
        !is_pipe,
        "{name} is no file, and its rows are read twice: write them to a file first"
    );
    // The first reading finds all errors before the store is changed.
    each_row(&args.file, |number, row| {
        let sample = row.sample(&AddressPolicy::Truncated);
        sample
            .map(drop)
            .map_err(|fault| ExchangeError::Row { number, fault })
    })
    .map_err(in_file)?;
    let Writable {
        mut store,
        addresses,
    } = access::open(&args.store.store, args.addresses)?;
    keep(&store, args)?;
    let mut batch = Vec::new();
    let mut written = Ingested::default();
    let mut failed = None;
    let read = each_row(&args.file, |number, row| {
        let sample = row.sample(&addresses);
        batch.push(sample.map_err(|fault| ExchangeError::Row { number, fault })?);
        if batch.len() < BATCH {
            return Ok(());
        }
        write(&mut store, &mut batch, &mut written).map_err(|error| {
            failed = Some(error);
            ExchangeError::System(io::Error::other("the store failed"))
        })
    });
    if let Some(error) = failed {
        return Err(error);
    }
    read.map_err(in_file)?;
    write(&mut store, &mut batch, &mut written)?;
    let deleted = match store.newest(access::now()).map_err(store_error)? {
        Some(newest) => {
            let keep = store.retention().map_err(store_error)?;
            store.prune(newest, keep).map_err(store_error)?
        }
        None => 0,
    };
    report_import(args, written, deleted)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what an import changed.
fn report_import(args: &ImportArgs, written: Ingested, deleted: usize) -> Result<()> {
    if args.json {
        print_json(&json!({
            "imported": written.written,
            "known": written.known,
            "deleted": deleted,
        }))?;
    } else {
        let all = counted(written.written, "sample");
        say(format_args!(
            "{all} added to {}, which had {} already; {deleted} older than their retention deleted",
            args.store.store.display(),
            written.known
        ));
    }
    Ok(())
}

fn keep(store: &Store, args: &ImportArgs) -> Result<()> {
    let mut keep = store.retention().map_err(store_error)?;
    let kept = keep;
    keep.round_trip = args.keep_round_trips.unwrap_or(keep.round_trip);
    if let Some(span) = args.keep_minutes {
        (keep.minute, keep.trajectories) = (span, span);
    }
    if keep != kept {
        store.set_retention(keep).map_err(store_error)?;
    }
    Ok(())
}

fn write(store: &mut Store, batch: &mut Vec<Sample>, written: &mut Ingested) -> Result<()> {
    let added = store.import(batch).map_err(store_error)?;
    written.written += added.written;
    written.known += added.known;
    batch.clear();
    Ok(())
}

fn each_row(
    path: &Path,
    take: impl FnMut(u64, Row) -> Result<(), ExchangeError>,
) -> Result<(), ExchangeError> {
    let file = File::open(path)?;
    if is_parquet(path) {
        read_parquet(file, take)
    } else {
        read_csv(BufReader::new(file), take)
    }
}

/// Writes all samples to a file.
pub(crate) fn export(args: &ExportArgs) -> Result<ExitCode> {
    let store = args.store.read()?;
    let name = args.file.display();
    if args.file.as_os_str() == "-" {
        if args.json {
            bail!("--json and the samples cannot both be on standard output: give a file");
        }
        export_csv(&store, output())?;
        return Ok(ExitCode::SUCCESS);
    }
    let file = File::create_new(&args.file).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => anyhow!("{name} exists: choose another name"),
        _ => anyhow!(error).context(format!("cannot create {name}")),
    })?;
    let file = BufWriter::new(file);
    let exported = if is_parquet(&args.file) {
        export_parquet(&store, file)
    } else {
        export_csv(&store, file)
    };
    let count = exported.with_context(|| format!("cannot write {name}"))?;
    if args.json {
        print_json(&json!({ "exported": count }))?;
    } else {
        say(format_args!("{} in {name}", counted(count, "sample")));
    }
    Ok(ExitCode::SUCCESS)
}

fn export_csv(store: &Store, destination: impl Write) -> Result<u64> {
    let mut writer = CsvWriter::new(destination).map_err(exchange_error)?;
    let count = each_exported(store, |row| writer.write(&row))?;
    writer.finish().map_err(exchange_error)?;
    Ok(count)
}

fn export_parquet(store: &Store, destination: impl Write + Send) -> Result<u64> {
    let mut writer = ParquetWriter::new(destination).map_err(exchange_error)?;
    let count = each_exported(store, |row| writer.write(row))?;
    writer.finish().map_err(exchange_error)?;
    Ok(count)
}

fn each_exported(
    store: &Store,
    mut write: impl FnMut(Row) -> Result<(), ExchangeError>,
) -> Result<u64> {
    let mut count = 0;
    let mut failed = Ok(());
    let read = store.each_sample(|sample| {
        count += 1;
        failed = write(Row::from(&sample));
        match failed {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    failed.map_err(exchange_error)?;
    read.map_err(store_error)?;
    Ok(count)
}

/// Keeps errors of I/O, whose kind decides the exit code.
fn exchange_error(error: ExchangeError) -> anyhow::Error {
    match error {
        ExchangeError::System(error) => error.into(),
        error => EnvironmentError::of(error).into(),
    }
}

fn is_parquet(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("parquet"))
}

/// Rows of a transaction.
const BATCH: usize = 50_000;
