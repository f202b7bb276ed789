//! Fuzz target of files with samples of sessions.

use std::cell::Cell;
use std::fs::File;
use std::io::Cursor;
use std::panic;
use std::sync::Once;

use tidegate_knowledge::exchange::{
    CsvWriter, ExchangeError, ParquetWriter, Row, RowFault, read_csv, read_parquet,
};
use tidegate_knowledge::{AddressPolicy, Sample};

use super::Target;
use super::files::Folder;

/// All targets.
pub const TARGETS: [Target; 1] = [Target {
    name: "samples",
    run: samples,
}];

/// A CSV or Parquet file for the import: rows or an error, whatever the file has; no more rows than a
/// CSV file has lines; values of samples are in their range, and samples survive an export and another
/// import in both formats.
///
/// A panic of the Parquet library is an error of the file. A panic of this project's code is a failure.
pub fn samples(data: &[u8]) {
    let lines = data.split(|byte| *byte == b'\n' || *byte == b'\r').count();
    let rows = from_csv(data);
    assert!(rows.len() <= lines, "{} rows of {lines} lines", rows.len());
    check(rows);
    let folder = Folder::new("samples");
    let file = folder.path().join("in.parquet");
    std::fs::write(&file, data).expect("room");
    check(from_parquet(File::open(file).expect("written")));
}

/// Rows up to the first that is none, at most [`MAX_ROWS`].
fn from_csv(data: &[u8]) -> Vec<Row> {
    let mut rows = Vec::new();
    let read = read_csv(Cursor::new(data), |number, row| {
        collect(&mut rows, number, row)
    });
    assert_error(read);
    rows
}

fn from_parquet(file: File) -> Vec<Row> {
    let mut rows = Vec::new();
    hide_panics_of_libraries();
    READING.set(true);
    let read = read_parquet(file, |number, row| collect(&mut rows, number, row));
    READING.set(false);
    assert!(!OWN_PANIC.get(), "a panic of our code was caught");
    assert_error(read);
    rows
}

/// A small Parquet file can have any number of equal rows.
fn collect(rows: &mut Vec<Row>, number: u64, row: Row) -> Result<(), ExchangeError> {
    if rows.len() == MAX_ROWS {
        let fault = RowFault::Range;
        return Err(ExchangeError::Row { number, fault });
    }
    rows.push(row);
    assert_eq!(number, rows.len() as u64);
    Ok(())
}

fn assert_error(read: Result<(), ExchangeError>) {
    if let Err(error) = read {
        assert!(!error.to_string().is_empty());
    }
}

fn check(rows: Vec<Row>) {
    let sample = |row: Row| row.sample(&AddressPolicy::Plain).ok();
    let samples: Vec<Sample> = rows.into_iter().filter_map(sample).collect();
    if samples.is_empty() {
        return;
    }
    assert!(samples.iter().all(|sample| sample.measurement.is_valid()));
    let mut text = Vec::new();
    let mut csv = CsvWriter::new(&mut text).expect("memory");
    let folder = Folder::new("exported");
    let path = folder.path().join("out.parquet");
    let mut parquet = ParquetWriter::new(File::create(&path).expect("room")).expect("room");
    for sample in &samples {
        csv.write(&Row::from(sample)).expect("memory");
        parquet.write(Row::from(sample)).expect("room");
    }
    csv.finish().expect("memory");
    parquet.finish().expect("room");
    let again = |rows: Vec<Row>| rows.into_iter().filter_map(sample).collect::<Vec<_>>();
    assert_eq!(again(from_csv(&text)), samples);
    let file = File::open(path).expect("written");
    assert_eq!(again(from_parquet(file)), samples);
}

/// The fuzzer's hook ends the process at each panic, and the replay's would print those that are
/// expected.
fn hide_panics_of_libraries() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_own = |file: &str| file.contains("crates/") || file.contains("fuzzing/");
            let is_own = info.location().is_none_or(|at| is_own(at.file()));
            if READING.get() && !is_own {
                return;
            }
            OWN_PANIC.set(true);
            hook(info);
        }));
    });
}

thread_local! {
    /// Whether this thread reads a Parquet file.
    static READING: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread had a panic that is a failure.
    static OWN_PANIC: Cell<bool> = const { Cell::new(false) };
}

const MAX_ROWS: usize = 200;
