//! CSV.

use std::io::{Read, Write};

use csv::{ErrorKind, Reader, StringRecord, Writer};

use super::{COLUMNS, ExchangeError, Row, RowFault, Source};

/// Reads a CSV file with a header. Columns may have any order; others are ignored. `take` is called
/// with the number of each row, from 1, and the row.
///
/// # Errors
/// A column is missing, a row has another form, `take` fails or the file cannot be read.
pub fn read_csv(
    source: impl Read,
    mut take: impl FnMut(u64, Row) -> Result<(), ExchangeError>,
) -> Result<(), ExchangeError> {
    let mut reader = Reader::from_reader(source);
    let places = Source::all(reader.headers().map_err(csv_error)?.iter())?;
    let mut record = StringRecord::new();
    let mut number = 0;
    while reader.read_record(&mut record).map_err(csv_error)? {
        number += 1;
        let row = row(&record, &places);
        take(
            number,
            row.map_err(|fault| ExchangeError::Row { number, fault })?,
        )?;
    }
    Ok(())
}

fn row(
    record: &StringRecord,
    places: &[Option<(usize, Source)>; COLUMNS.len()],
) -> Result<Row, RowFault> {
    let text = |column: usize| {
        let cell = places[column].and_then(|(place, _)| record.get(place));
        cell.map(str::trim).filter(|text| !text.is_empty())
    };
    let number = |column: usize| match (text(column), places[column]) {
        (Some(text), Some((_, source))) => number(text, source).map(Some),
        _ => Ok(None),
    };
    let wanted = |column: usize| number(column)?.ok_or(RowFault::Column(COLUMNS[column]));
    let owned = |column: usize| text(column).unwrap_or_default().to_owned();
    let loss = match text(6) {
        Some(text) => Some(text.parse().map_err(|_| RowFault::Column("loss"))?),
        None => None,
    };
    Ok(Row {
        at_ms: wanted(0)?,
        cloud: owned(1),
        client: owned(2),
        scale: owned(3),
        rate_bps: wanted(4)?,
        rtt_us: number(5)?,
        loss,
        tag: text(7).map(str::to_owned),
        is_limited: match text(8) {
            None | Some("0" | "false") => false,
            Some("1" | "true") => true,
            Some(_) => return Err(RowFault::Column("limited")),
        },
    })
}

/// A number or a time in the unit of the column.
fn number(text: &str, source: Source) -> Result<u64, RowFault> {
    if source.unit == Some(1.0)
        && let Ok(value) = text.parse()
    {
        return source.checked(value);
    }
    match text.parse() {
        Ok(value) => source.number(value),
        Err(_) if COLUMNS[source.column] == "at_ms" => source.time(text),
        Err(_) => Err(RowFault::Column(source.name)),
    }
}

/// Writes rows as CSV.
#[derive(Debug)]
pub struct CsvWriter<W: Write>(Writer<W>);

impl<W: Write> CsvWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// The destination fails.
    pub fn new(destination: W) -> Result<Self, ExchangeError> {
        let mut writer = Writer::from_writer(destination);
        writer.write_record(COLUMNS).map_err(csv_error)?;
        Ok(Self(writer))
    }

    /// Writes a row.
    ///
    /// # Errors
    /// The destination fails.
    pub fn write(&mut self, row: &Row) -> Result<(), ExchangeError> {
        let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
        let cells = [
            row.at_ms.to_string(),
            row.cloud.clone(),
            row.client.clone(),
            row.scale.clone(),
            row.rate_bps.to_string(),
            number(row.rtt_us),
            row.loss.map(|loss| loss.to_string()).unwrap_or_default(),
            row.tag.clone().unwrap_or_default(),
            u8::from(row.is_limited).to_string(),
        ];
        self.0.write_record(&cells).map_err(csv_error)
    }

    /// Completes the file.
    ///
    /// # Errors
    /// The destination fails.
    pub fn finish(mut self) -> Result<(), ExchangeError> {
        Ok(self.0.flush()?)
    }
}

fn csv_error(error: csv::Error) -> ExchangeError {
    if !error.is_io_error() {
        return ExchangeError::Csv(error);
    }
    match error.into_kind() {
        ErrorKind::Io(error) => ExchangeError::System(error),
        _ => unreachable!("it is an error of I/O"),
    }
}
