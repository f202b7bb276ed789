//! Parquet, for pandas, Spark and database engines.

use std::fs::File;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::{Field, Row as Record};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;

use super::{COLUMNS, ExchangeError, Row, RowFault, Source};

/// Reads a Parquet file, uncompressed or compressed by Snappy. Columns may have any order; others
/// are ignored. `take` is called with the number of each row, from 1, and the row.
///
/// # Errors
/// A column is missing, a row has another form, `take` fails or the file cannot be read.
pub fn read_parquet(
    file: File,
    take: impl FnMut(u64, Row) -> Result<(), ExchangeError>,
) -> Result<(), ExchangeError> {
    // The library panics on some damaged files, such as one with a negative length of a column. The
    // state that it leaves behind is dropped.
    let read = panic::catch_unwind(AssertUnwindSafe(|| read_rows(file, take)));
    read.unwrap_or_else(|_| Err(ExchangeError::Parquet("it is damaged".to_owned())))
}

fn read_rows(
    file: File,
    mut take: impl FnMut(u64, Row) -> Result<(), ExchangeError>,
) -> Result<(), ExchangeError> {
    let reader = SerializedFileReader::new(file)?;
    let columns = reader.metadata().file_metadata().schema_descr_ptr();
    let is_flat = columns
        .columns()
        .iter()
        .all(|c| c.path().parts().len() == 1);
    if !is_flat {
        return Err(ExchangeError::Parquet("it has nested columns".to_owned()));
    }
    Source::all(columns.columns().iter().map(|column| column.name()))?;
    let rows = reader.get_row_iter(None)?;
    for (number, record) in (1..).zip(rows) {
        let row = row(record?).map_err(|fault| ExchangeError::Row { number, fault });
        take(number, row?)?;
    }
    Ok(())
}

fn row(record: Record) -> Result<Row, RowFault> {
    let mut row = Row::default();
    for (name, field) in record.into_columns() {
        let Some(source) = Source::of(name.trim()) else {
            continue;
        };
        let wanted = |number: Option<u64>| number.ok_or(RowFault::Column(source.name));
        match COLUMNS[source.column] {
            "at_ms" => row.at_ms = wanted(number(&field, source)?)?,
            "cloud" => row.cloud = text(field, "cloud")?.unwrap_or_default(),
            "client" => row.client = text(field, "client")?.unwrap_or_default(),
            "scale" => row.scale = text(field, "scale")?.unwrap_or_default(),
            "rate_bps" => row.rate_bps = wanted(number(&field, source)?)?,
            "rtt_us" => row.rtt_us = number(&field, source)?,
            "loss" => row.loss = real(&field)?,
            "tag" => row.tag = text(field, "tag")?,
            _ => row.is_limited = flag(&field, source)?,
        }
    }
    Ok(row)
}

/// A number in the unit of the column, or a time, whose unit is that of its type.
fn number(field: &Field, source: Source) -> Result<Option<u64>, RowFault> {
    let is_time = COLUMNS[source.column] == "at_ms";
    let fault = || RowFault::Column(source.name);
    let signed = |n: i64| u64::try_from(n).map_err(|_| fault());
    let whole = match *field {
        Field::Null => return Ok(None),
        Field::TimestampMillis(n) if is_time => return signed(n).map(Some),
        Field::TimestampMicros(n) if is_time => return signed(n).map(|n| Some(n / 1_000)),
        Field::Str(ref text) if is_time => return source.time(text).map(Some),
        Field::Double(n) => return source.number(n).map(Some),
        Field::Float(n) => return source.number(n.into()).map(Some),
        Field::Int(n) => signed(n.into())?,
        Field::Long(n) => signed(n)?,
        Field::UInt(n) => n.into(),
        Field::ULong(n) => n,
        _ => return Err(fault()),
    };
    match source.unit {
        Some(1.0) => source.checked(whole),
        _ => source.number(whole as f64),
    }
    .map(Some)
}

fn real(field: &Field) -> Result<Option<f64>, RowFault> {
    match *field {
        Field::Null => Ok(None),
        Field::Double(n) => Ok(Some(n)),
        Field::Float(n) => Ok(Some(n.into())),
        _ => Err(RowFault::Column("loss")),
    }
}

fn flag(field: &Field, source: Source) -> Result<bool, RowFault> {
    match *field {
        Field::Null => Ok(false),
        Field::Bool(is_set) => Ok(is_set),
        _ => match number(field, source)? {
            Some(number @ 0..=1) => Ok(number == 1),
            _ => Err(RowFault::Column("limited")),
        },
    }
}

fn text(field: Field, name: &'static str) -> Result<Option<String>, RowFault> {
    match field {
        Field::Null => Ok(None),
        Field::Str(text) => Ok(Some(text)),
        Field::Bytes(bytes) => match bytes.as_utf8() {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(RowFault::Column(name)),
        },
        _ => Err(RowFault::Column(name)),
    }
}

/// Writes rows as a Parquet file, compressed by Snappy.
pub struct ParquetWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: Vec<Row>,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// The destination fails.
    pub fn new(destination: W) -> Result<Self, ExchangeError> {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let writer =
            SerializedFileWriter::new(destination, schema(), Arc::new(properties.build()))?;
        Ok(Self {
            writer,
            rows: Vec::new(),
        })
    }

    /// Writes a row.
    ///
    /// # Errors
    /// The destination fails.
    pub fn write(&mut self, row: Row) -> Result<(), ExchangeError> {
        self.rows.push(row);
        if self.rows.len() < ROWS_PER_GROUP {
            return Ok(());
        }
        self.flush()
    }

    /// Completes the file.
    ///
    /// # Errors
    /// The destination fails.
    pub fn finish(mut self) -> Result<(), ExchangeError> {
        if !self.rows.is_empty() {
            self.flush()?;
        }
        self.writer.close()?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ExchangeError> {
        let rows = std::mem::take(&mut self.rows);
        let mut group = self.writer.next_row_group()?;
        let mut names = COLUMNS.into_iter();
        while let Some(mut column) = group.next_column()? {
            let name = names.next().unwrap_or_default();
            write_column(column.untyped(), name, &rows)?;
            column.close()?;
        }
        group.close()?;
        Ok(())
    }
}

impl<W: Write + Send> std::fmt::Debug for ParquetWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetWriter").finish_non_exhaustive()
    }
}

fn write_column(
    column: &mut ColumnWriter<'_>,
    name: &str,
    rows: &[Row],
) -> Result<(), ParquetError> {
    match column {
        ColumnWriter::Int64ColumnWriter(writer) => {
            let value = |row: &Row| match name {
                "at_ms" => Some(row.at_ms),
                "rate_bps" => Some(row.rate_bps),
                _ => row.rtt_us,
            };
            let values: Vec<i64> = rows.iter().filter_map(value).map(|n| n as i64).collect();
            let levels = levels(rows.iter().map(|row| value(row).is_some()));
            let levels = (name == "rtt_us").then_some(levels);
            writer.write_batch(&values, levels.as_deref(), None)?;
        }
        ColumnWriter::DoubleColumnWriter(writer) => {
            let values: Vec<f64> = rows.iter().filter_map(|row| row.loss).collect();
            let levels = levels(rows.iter().map(|row| row.loss.is_some()));
            writer.write_batch(&values, Some(&levels), None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let value = |row: &Row| match name {
                "cloud" => Some(row.cloud.clone()),
                "client" => Some(row.client.clone()),
                "scale" => Some(row.scale.clone()),
                _ => row.tag.clone(),
            };
            let texts: Vec<Option<String>> = rows.iter().map(value).collect();
            let levels = levels(texts.iter().map(Option::is_some));
            let levels = (name == "tag").then_some(levels);
            let values = texts.into_iter().flatten();
            let values: Vec<ByteArray> = values.map(|t| t.into_bytes().into()).collect();
            writer.write_batch(&values, levels.as_deref(), None)?;
        }
        ColumnWriter::BoolColumnWriter(writer) => {
            let values: Vec<bool> = rows.iter().map(|row| row.is_limited).collect();
            writer.write_batch(&values, None, None)?;
        }
        _ => unreachable!("the schema has no other types"),
    }
    Ok(())
}

/// Definition levels of an optional column.
fn levels(present: impl Iterator<Item = bool>) -> Vec<i16> {
    present.map(i16::from).collect()
}

fn schema() -> Arc<Type> {
    let parsed = parse_message_type(
        "message samples {
            REQUIRED INT64 at_ms;
            REQUIRED BYTE_ARRAY cloud (UTF8);
            REQUIRED BYTE_ARRAY client (UTF8);
            REQUIRED BYTE_ARRAY scale (UTF8);
            REQUIRED INT64 rate_bps;
            OPTIONAL INT64 rtt_us;
            OPTIONAL DOUBLE loss;
            OPTIONAL BYTE_ARRAY tag (UTF8);
            REQUIRED BOOLEAN limited;
        }",
    );
    Arc::new(parsed.expect("the schema is a constant"))
}

impl From<ParquetError> for ExchangeError {
    fn from(error: ParquetError) -> Self {
        Self::Parquet(error.to_string())
    }
}

/// Rows of a group, which are in memory at once: about 20 MB.
const ROWS_PER_GROUP: usize = 131_072;
