//! Import and export of samples: CSV and Parquet with the same columns.
//!
//! | column | type | meaning |
//! |---|---|---|
//! | `at_ms` | integer | end of the averaging interval, milliseconds since 1970 UTC |
//! | `cloud` | text | prefix of the client; may be missing if `client` is an address |
//! | `client` | text | address, or the name that the store has for it |
//! | `scale` | text | `round-trip` or `minute` |
//! | `rate_bps` | integer | rate on the wire with all headers |
//! | `rtt_us` | integer | mean round-trip time; may be missing |
//! | `loss` | real | share of lost packets; may be missing |
//! | `tag` | text | label of the session; may be missing |
//! | `limited` | 0 or 1 | the application had no more to send, and the rate is a lower bound; may be missing |
//!
//! Files of other programs may have `at_s`, `rate_kbps`, `rate_mbps`, `rtt_ms` and `rtt_s` instead, and in `at`
//! dates and times of ISO 8601. Fractions are rounded.

mod csv_file;
mod parquet_file;

pub use self::csv_file::{CsvWriter, read_csv};
pub use self::parquet_file::{ParquetWriter, read_parquet};

use std::fmt::{self, Display};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tidegate_core::units::Rate;

use crate::client::{AddressPolicy, Client};
use crate::cloud::Cloud;
use crate::sample::{LONGEST_TAG, Measurement, Sample, Scale};
use crate::wall_time::WallTime;

/// Names of the columns, in order.
pub const COLUMNS: [&str; 9] = [
    "at_ms", "cloud", "client", "scale", "rate_bps", "rtt_us", "loss", "tag", "limited",
];

/// Columns that may be missing.
const OPTIONAL: [&str; 5] = ["cloud", "rtt_us", "loss", "tag", "limited"];

/// Other names of columns, and how many of the column's units make one of theirs; `None` for text only.
const OTHER_NAMES: [(&str, &str, Option<f64>); 6] = [
    ("at_ms", "at", None),
    ("at_ms", "at_s", Some(1e3)),
    ("rate_bps", "rate_kbps", Some(1e3)),
    ("rate_bps", "rate_mbps", Some(1e6)),
    ("rtt_us", "rtt_ms", Some(1e3)),
    ("rtt_us", "rtt_s", Some(1e6)),
];

/// A column as a file has it.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// Index in [`COLUMNS`].
    column: usize,
    name: &'static str,
    unit: Option<f64>,
}

impl Source {
    /// The column that a title stands for.
    fn of(title: &str) -> Option<Self> {
        let index = |wanted: &str| COLUMNS.iter().position(|name| *name == wanted);
        if let Some(column) = index(title) {
            let (name, unit) = (COLUMNS[column], Some(1.0));
            return Some(Self { column, name, unit });
        }
        let (column, name, unit) = *OTHER_NAMES.iter().find(|(_, name, _)| *name == title)?;
        let column = index(column)?;
        Some(Self { column, name, unit })
    }

    /// The columns that these titles stand for, and the places of the titles.
    fn all<'a>(
        titles: impl Iterator<Item = &'a str>,
    ) -> Result<[Option<(usize, Self)>; COLUMNS.len()], ExchangeError> {
        let mut found: [Option<(usize, Self)>; COLUMNS.len()] = [None; COLUMNS.len()];
        for (place, title) in titles.enumerate() {
            let Some(source) = Self::of(title.trim()) else {
                continue;
            };
            if let Some((_, other)) = found[source.column].replace((place, source)) {
                return Err(ExchangeError::TwoColumns(other.name, source.name));
            }
        }
        for (name, found) in COLUMNS.iter().zip(&found) {
            if found.is_none() && !OPTIONAL.contains(name) {
                return Err(ExchangeError::NoColumn(name));
            }
        }
        Ok(found)
    }

    /// A number in the unit of the column.
    fn number(self, number: f64) -> Result<u64, RowFault> {
        let value = (number * self.unit.ok_or(RowFault::Column(self.name))?).round();
        if !(0.0..MAX_EXACT).contains(&value) {
            return Err(RowFault::Column(self.name));
        }
        self.checked(value as u64)
    }

    /// A number of seconds in a column of milliseconds would be a time in January 1970.
    fn checked(self, value: u64) -> Result<u64, RowFault> {
        if self.name == "at_ms" && SECONDS.contains(&value) {
            return Err(RowFault::Seconds(value));
        }
        Ok(value)
    }

    /// A time as text: ISO 8601.
    fn time(self, text: &str) -> Result<u64, RowFault> {
        let time = WallTime::of_iso(text);
        let time = time.ok_or_else(|| RowFault::of(self.name, text))?;
        Ok(time.as_millis())
    }
}

/// Integers below are exact in a float of 64 bits.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
/// Seconds since 1970 from 2001 to 2286.
const SECONDS: std::ops::Range<u64> = 1_000_000_000..10_000_000_000;

/// A row of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Prefix; may be empty if `client` is an address.
    pub cloud: String,
    /// Address or name.
    pub client: String,
    /// `round-trip` or `minute`.
    pub scale: String,
    /// Bits per second.
    pub rate_bps: u64,
    /// Microseconds.
    pub rtt_us: Option<u64>,
    /// 0..=1.
    pub loss: Option<f64>,
    /// Label.
    pub tag: Option<String>,
    /// The rate is a lower bound.
    pub is_limited: bool,
}

impl Row {
    /// The row as a sample. An address is stored under the policy; a name that is no address is kept.
    ///
    /// # Errors
    /// A value has another form or is out of its range.
    pub fn sample(self, addresses: &AddressPolicy) -> Result<Sample, RowFault> {
        let address = self.client.parse::<IpAddr>().ok();
        let (cloud, client) = match address {
            Some(address) => {
                let cloud = Cloud::of(address).map_err(|_| RowFault::of("client", &self.client))?;
                (cloud, addresses.client(address))
            }
            // Without a cloud, the client must be an address.
            None if self.cloud.is_empty() => return Err(RowFault::of("client", &self.client)),
            None => {
                let cloud = self.cloud.parse();
                (
                    cloud.map_err(|_| RowFault::of("cloud", &self.cloud))?,
                    Client::new(&self.client)
                        .ok_or_else(|| RowFault::of("client", &self.client))?,
                )
            }
        };
        let measurement = Measurement {
            at: WallTime::from_millis(self.at_ms).ok_or(RowFault::Column("at_ms"))?,
            scale: Scale::of_name(&self.scale).ok_or_else(|| RowFault::of("scale", &self.scale))?,
            rate: Rate::bps(self.rate_bps),
            rtt: self.rtt_us.map(Duration::from_micros),
            loss: self.loss,
            is_limited: self.is_limited,
        };
        if !measurement.is_valid() {
            return Err(RowFault::Range);
        }
        // As in a CSV file, where spaces around a value do not count.
        let tag = self.tag.map(|tag| tag.trim().to_owned());
        let tag = tag.filter(|tag| !tag.is_empty());
        if tag.as_ref().is_some_and(|tag| tag.len() > LONGEST_TAG) {
            return Err(RowFault::Column("tag"));
        }
        Ok(Sample {
            cloud,
            client,
            measurement,
            tag,
        })
    }
}

impl From<&Sample> for Row {
    fn from(sample: &Sample) -> Self {
        let measured = &sample.measurement;
        Self {
            at_ms: measured.at.as_millis(),
            cloud: sample.cloud.to_string(),
            client: sample.client.to_string(),
            scale: measured.scale.name().to_owned(),
            rate_bps: measured.rate.as_bps(),
            rtt_us: measured.rtt.map(|rtt| rtt.as_micros() as u64),
            loss: measured.loss,
            tag: sample.tag.clone(),
            is_limited: measured.is_limited,
        }
    }
}

/// Why a row is no sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowFault {
    /// This text is no value of this column.
    Text(&'static str, String),
    /// The value of this column has another form.
    Column(&'static str),
    /// A time in milliseconds that looks like one in seconds.
    Seconds(u64),
    /// A rate, round-trip time or share of losses is out of its range.
    Range,
}

impl RowFault {
    fn of(column: &'static str, text: &str) -> Self {
        Self::Text(column, text.chars().take(LONGEST_QUOTED).collect())
    }
}

/// Characters of a wrong value that a message quotes.
const LONGEST_QUOTED: usize = 60;

/// A file cannot be imported or exported.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExchangeError {
    /// A column is missing.
    NoColumn(&'static str),
    /// Two columns have the same meaning.
    TwoColumns(&'static str, &'static str),
    /// A row is no sample.
    Row {
        /// Number of the row, from 1, without the header.
        number: u64,
        /// What is wrong.
        fault: RowFault,
    },
    /// The file is no CSV file of this form.
    Csv(csv::Error),
    /// The file is no Parquet file of this form.
    Parquet(String),
    /// The file cannot be read or written.
    System(io::Error),
}

impl Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoColumn(name) => write!(
                f,
                "the column {name} is missing; the columns are {}",
                COLUMNS.join(", ")
            ),
            Self::TwoColumns(one, other) => write!(
                f,
                "the columns {one} and {other} have the same meaning: remove one of them"
            ),
            Self::Row { number, fault } => match fault {
                RowFault::Seconds(value) => write!(
                    f,
                    "row {number}: {value} in at_ms would be in January 1970: if the times are in \
                     seconds, rename the column to at_s"
                ),
                RowFault::Text(name, text) => write!(
                    f,
                    "row {number}: {text:?} is no {}",
                    match *name {
                        "client" => "IP address; with a prefix as cloud, client may be a name",
                        "cloud" => "prefix such as 192.0.2.0/24 or 2001:db8::/48 (column cloud)",
                        "scale" => "scale: write round-trip or minute",
                        "at" | "at_s" | "at_ms" =>
                            "time: write ISO 8601 such as 2021-10-17T06:02:11Z, or numbers in at_ms or at_s",
                        other => other,
                    }
                ),
                RowFault::Column(name) => write!(f, "row {number}: invalid value of {name}"),
                RowFault::Range => write!(
                    f,
                    "row {number}: out of range: rates are 1 kb/s to 1 Tb/s, round-trip times at \
                     most 60 s, losses 0 to 1"
                ),
            },
            Self::Csv(error) => write!(f, "no CSV file of samples: {error}"),
            Self::Parquet(error) => write!(f, "no Parquet file of samples: {error}"),
            Self::System(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ExchangeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Csv(error) => Some(error),
            Self::System(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

#[cfg(test)]
mod tests;
