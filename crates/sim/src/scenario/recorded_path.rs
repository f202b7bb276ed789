//! Recorded path: capacity over time, and optionally round-trip time and loss.
//!
//! The file is CSV with the header `t_s,mbps`, which may be followed by `rtt_ms` and `loss`. A row is
//! valid until the next one. A negative loss ratio, of an interval in which more packets arrived than were
//! sent, counts as zero. The last row is the end of the recording, which repeats from there.

use core::fmt;
use core::time::Duration;

use tidegate_core::link::Steps;
use tidegate_core::units::{Bytes, Rate, Time};

/// A recorded path.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedPath {
    /// At least two rows, in order of time; the first one is at zero.
    rows: Vec<Row>,
    has_rtt: bool,
    has_loss: bool,
}

/// Properties of a path from a time on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Time since the start of the recording.
    pub at: Duration,
    /// Capacity.
    pub rate: Rate,
    /// Round-trip time; zero if there is no such column.
    pub rtt: Duration,
    /// Loss ratio, in 0..=1; zero if there is no such column.
    pub loss: f64,
}

impl RecordedPath {
    /// Parses the text of a file. Empty lines are skipped. Times are relative to the first row.
    ///
    /// # Errors
    /// [`RecordedError`] with the line.
    pub fn parse(text: &str) -> Result<Self, RecordedError> {
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(n, line)| (n + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty());
        let (number, header) = lines.next().ok_or(RecordedError::Empty)?;
        let columns = columns(header).ok_or_else(|| RecordedError::Header {
            line: number,
            found: excerpt(header),
        })?;
        let mut rows: Vec<Row> = Vec::new();
        let mut start = 0.0;
        let mut before = f64::NEG_INFINITY;
        for (line, text) in lines {
            let values = values(line, text, &columns)?;
            let value = |column: Column| {
                let place = columns.iter().position(|one| *one == column);
                place.map_or(0.0, |place| values[place])
            };
            let at = value(Column::Time);
            if rows.is_empty() {
                start = at;
            } else if at <= before {
                return Err(RecordedError::NotAscending {
                    line,
                    at: at.to_string(),
                    before: before.to_string(),
                });
            }
            before = at;
            rows.push(Row {
                at: Duration::from_secs_f64(at - start),
                rate: Rate::bps((value(Column::Rate) * 1e6 + 0.5) as u64),
                rtt: Duration::from_secs_f64(value(Column::Rtt) / 1e3),
                loss: value(Column::Loss).max(0.0),
            });
        }
        Self::new(
            rows,
            columns.contains(&Column::Rtt),
            columns.contains(&Column::Loss),
        )
    }

    /// A path of these rows.
    ///
    /// # Errors
    /// There are fewer than two rows of different times, or no capacity at all.
    pub fn new(rows: Vec<Row>, has_rtt: bool, has_loss: bool) -> Result<Self, RecordedError> {
        if rows.last().is_none_or(|last| last.at.is_zero()) {
            return Err(RecordedError::NoLength);
        }
        let valid = &rows[..rows.len() - 1];
        if valid.iter().all(|row| row.rate == Rate::ZERO) {
            return Err(RecordedError::NoCapacity);
        }
        Ok(Self {
            rows,
            has_rtt,
            has_loss,
        })
    }

    /// Whether `text` is such a file rather than a trace of delivery opportunities, whose lines are
    /// single numbers.
    pub fn is_format_of(text: &str) -> bool {
        let first = text.lines().map(str::trim).find(|line| !line.is_empty());
        first.is_some_and(|line| {
            line.contains(',') || line.starts_with(|c: char| c.is_ascii_alphabetic())
        })
    }

    /// Length of the recording.
    pub fn length(&self) -> Duration {
        self.rows[self.rows.len() - 1].at
    }

    /// The rows. The last one is the end of the recording.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Capacity until `end`.
    pub fn rates(&self, end: Duration) -> Vec<(Duration, Rate)> {
        self.until(end, |row| row.rate)
    }

    /// Capacity until `end`; the mean of consecutive rows that together last up to `step`.
    pub fn mean_rates(&self, step: Duration, end: Duration) -> Vec<(Duration, Rate)> {
        let mut means: Vec<(Duration, Rate)> = Vec::new();
        let mut from = 0;
        while from + 1 < self.rows.len() {
            let start = self.rows[from].at;
            let within = |row: &&Row| row.at <= start + step;
            let count = self.rows[from + 1..].iter().take_while(within).count();
            let rows = &self.rows[from..=from + count.max(1)];
            let bits = rows
                .windows(2)
                .map(|pair| pair[0].rate * pair[1].at.saturating_sub(pair[0].at));
            let length = rows[rows.len() - 1].at.saturating_sub(start);
            means.push((start, bits.sum::<Bytes>() / length));
            from += rows.len() - 1;
        }
        self.repeated(end, &means)
    }

    /// One-way propagation delay until `end`, half of the round-trip time; `None` without that
    /// column.
    pub fn delays(&self, end: Duration) -> Option<Vec<(Duration, Duration)>> {
        self.has_rtt.then(|| self.until(end, |row| row.rtt / 2))
    }

    /// Loss ratio until `end`; `None` without that column.
    pub fn losses(&self, end: Duration) -> Option<Vec<(Duration, f64)>> {
        self.has_loss.then(|| self.until(end, |row| row.loss))
    }

    /// The changes of a property until `end`.
    fn until<T: Copy + PartialEq>(
        &self,
        end: Duration,
        of: impl Fn(&Row) -> T,
    ) -> Vec<(Duration, T)> {
        let rows = self.rows[..self.rows.len() - 1].iter();
        let values: Vec<_> = rows.map(|row| (row.at, of(row))).collect();
        self.repeated(end, &values)
    }

    /// The changes of `values` until `end`. The recording repeats.
    fn repeated<T: Copy + PartialEq>(
        &self,
        end: Duration,
        values: &[(Duration, T)],
    ) -> Vec<(Duration, T)> {
        let mut steps: Vec<(Duration, T)> = Vec::new();
        let mut start = Duration::ZERO;
        while start < end {
            for (at, value) in values {
                let at = start + *at;
                if at < end && steps.last().is_none_or(|(_, last)| *last != *value) {
                    steps.push((at, *value));
                }
            }
            start += self.length();
        }
        steps
    }
}

/// Splits a delay over time into its minimum and the delay above that; `None` for the latter if it
/// is constant.
pub fn variation(delays: &[(Duration, Duration)]) -> (Duration, Option<Steps<Duration>>) {
    let least = delays.iter().map(|(_, delay)| *delay).min();
    let least = least.unwrap_or_default();
    let above: Vec<_> = delays
        .iter()
        .map(|(at, delay)| (Time::ZERO + *at, delay.saturating_sub(least)))
        .collect();
    let varies = above.iter().any(|(_, extra)| !extra.is_zero());
    (least, Steps::new(&above).ok().filter(|_| varies))
}

/// A column of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Time,
    Rate,
    Rtt,
    Loss,
}

impl Column {
    /// Name in the header.
    fn name(self) -> &'static str {
        match self {
            Self::Time => "t_s",
            Self::Rate => "mbps",
            Self::Rtt => "rtt_ms",
            Self::Loss => "loss",
        }
    }

    /// Smallest value.
    fn least(self) -> i32 {
        match self {
            Self::Time | Self::Rate | Self::Rtt => 0,
            Self::Loss => -1,
        }
    }

    /// Largest value: beyond those of any network, and within the range of all units.
    fn most(self) -> u32 {
        match self {
            Self::Time => 100_000_000,
            Self::Rate | Self::Rtt => 1_000_000,
            Self::Loss => 1,
        }
    }
}

/// Columns by the header; `None` if it is none.
fn columns(header: &str) -> Option<Vec<Column>> {
    let all = [Column::Time, Column::Rate, Column::Rtt, Column::Loss];
    let mut columns = Vec::new();
    for name in header.split(',').map(str::trim) {
        let column = *all.iter().find(|column| column.name() == name)?;
        if columns.contains(&column) {
            return None;
        }
        columns.push(column);
    }
    columns.starts_with(&all[..2]).then_some(columns)
}

/// Numbers of a line.
fn values(line: usize, text: &str, columns: &[Column]) -> Result<Vec<f64>, RecordedError> {
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    if fields.len() != columns.len() {
        return Err(RecordedError::Fields {
            line,
            found: fields.len(),
            wanted: columns.len(),
        });
    }
    let value = |(column, field): (&Column, &&str)| {
        let value: f64 = field.parse().unwrap_or(f64::NAN);
        if (f64::from(column.least())..=f64::from(column.most())).contains(&value) {
            return Ok(value);
        }
        Err(RecordedError::Value {
            line,
            column: column.name(),
            found: excerpt(field),
            range: (column.least(), column.most()),
        })
    };
    columns.iter().zip(&fields).map(value).collect()
}

fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Invalid recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedError {
    /// There is no line.
    Empty,
    /// A row has a wrong number of fields.
    Fields {
        /// Line number, from one.
        line: usize,
        /// Number of fields.
        found: usize,
        /// Number of columns.
        wanted: usize,
    },
    /// The first line is not the header.
    Header {
        /// Line number, from one.
        line: usize,
        /// Beginning of the line.
        found: String,
    },
    /// All rates are zero.
    NoCapacity,
    /// There is no second row.
    NoLength,
    /// A time is not after the previous one.
    NotAscending {
        /// Line number, from one.
        line: usize,
        /// The time in seconds.
        at: String,
        /// The previous time in seconds.
        before: String,
    },
    /// A field is not a number, or out of range.
    Value {
        /// Line number, from one.
        line: usize,
        /// Name of the column.
        column: &'static str,
        /// Beginning of the field.
        found: String,
        /// Smallest and largest permitted value.
        range: (i32, u32),
    },
}

impl fmt::Display for RecordedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str(
                "the file is empty: give the header t_s,mbps[,rtt_ms,loss] and a row per change",
            ),
            Self::Fields {
                line,
                found,
                wanted,
            } => write!(
                f,
                "line {line} has {found} fields: give {wanted}, as in the header"
            ),
            Self::Header { line, found } => write!(
                f,
                "line {line}, `{found}`, is not the header: begin the file with t_s,mbps, \
                 t_s,mbps,rtt_ms or t_s,mbps,rtt_ms,loss"
            ),
            Self::NoCapacity => {
                f.write_str("mbps is 0 in all rows but the last: give at least one rate above 0")
            }
            Self::NoLength => f.write_str(
                "the recording has no length: give at least two rows, of which the last is the end",
            ),
            Self::NotAscending { line, at, before } => write!(
                f,
                "line {line}: t_s {at} comes after {before}: sort the rows and give each time once"
            ),
            Self::Value {
                line,
                column,
                found,
                range: (least, most),
            } => write!(
                f,
                "line {line}: {column} is `{found}`: give a number from {least} to {most}"
            ),
        }
    }
}

impl core::error::Error for RecordedError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_recording_repeats_and_skips_equal_rows() {
        let text = "t_s,mbps,rtt_ms,loss\n5,2,30,-0.1\n\n5.5,2,50,0.5\n6,0,50,1\n7,9,9,0\n";
        let path = RecordedPath::parse(text).unwrap();
        assert_eq!(path.length(), s(2.0));
        let rates = path.rates(s(3.2));
        let kbps = Rate::kbps;
        assert_eq!(
            rates,
            [
                (s(0.0), kbps(2_000)),
                (s(1.0), Rate::ZERO),
                (s(2.0), kbps(2_000)),
                (s(3.0), Rate::ZERO)
            ]
        );
        let delays = path.delays(s(2.0)).unwrap();
        assert_eq!(delays, [(s(0.0), s(0.015)), (s(0.5), s(0.025))]);
        let (least, above) = variation(&delays);
        assert_eq!(least, s(0.015));
        assert_eq!(above.unwrap().at(Time::from_millis(700)), s(0.01));
        assert_eq!(variation(&delays[..1]), (s(0.015), None));
        let losses = path.losses(s(1.5)).unwrap();
        assert_eq!(losses, [(s(0.0), 0.0), (s(0.5), 0.5), (s(1.0), 1.0)]);
        let plain = RecordedPath::parse("t_s,mbps\n0,1\n1,1\n").unwrap();
        assert_eq!((plain.delays(s(1.0)), plain.losses(s(1.0))), (None, None));
    }

    #[test]
    fn short_rows_are_averaged() {
        let text = "t_s,mbps\n0,1\n0.1,3\n0.2,2\n0.25,4\n0.5,6\n0.9,8\n";
        let path = RecordedPath::parse(text).unwrap();
        let kbps = Rate::kbps;
        let means = path.mean_rates(s(0.2), s(1.0));
        let expected = [(0.0, 2_000), (0.25, 4_000), (0.5, 6_000), (0.9, 2_000)];
        assert_eq!(means, expected.map(|(at, rate)| (s(at), kbps(rate))));
    }

    #[test]
    fn the_two_formats_are_told_apart() {
        for text in ["t_s,mbps\n", "\n0.0,1\n", "t_s\n"] {
            assert!(RecordedPath::is_format_of(text), "{text}");
        }
        for text in ["", "0\n1\n", " 12\n"] {
            assert!(!RecordedPath::is_format_of(text), "{text}");
        }
    }

    #[test]
    fn errors_name_the_line_and_the_fix() {
        for (text, message) in [
            (
                "",
                "the file is empty: give the header t_s,mbps[,rtt_ms,loss] and a row per change",
            ),
            (
                "0,5\n1,5\n",
                "line 1, `0,5`, is not the header: begin the file with t_s,mbps, t_s,mbps,rtt_ms or t_s,mbps,rtt_ms,loss",
            ),
            (
                "t_s,mbps,mbps\n",
                "line 1, `t_s,mbps,mbps`, is not the header: begin the file with t_s,mbps, t_s,mbps,rtt_ms or t_s,mbps,rtt_ms,loss",
            ),
            (
                "t_s,mbps\n0,5\n",
                "the recording has no length: give at least two rows, of which the last is the end",
            ),
            (
                "t_s,mbps\n0,0\n1,5\n",
                "mbps is 0 in all rows but the last: give at least one rate above 0",
            ),
            (
                "t_s,mbps\n0,5,1\n",
                "line 2 has 3 fields: give 2, as in the header",
            ),
            (
                "t_s,mbps\n1,5\n0.5,5\n",
                "line 3: t_s 0.5 comes after 1: sort the rows and give each time once",
            ),
            (
                "t_s,mbps\n0,-5\n",
                "line 2: mbps is `-5`: give a number from 0 to 1000000",
            ),
            (
                "t_s,mbps\n0,NaN\n",
                "line 2: mbps is `NaN`: give a number from 0 to 1000000",
            ),
            (
                "t_s,mbps\n0,inf\n",
                "line 2: mbps is `inf`: give a number from 0 to 1000000",
            ),
            (
                "t_s,mbps\n0,fast\n",
                "line 2: mbps is `fast`: give a number from 0 to 1000000",
            ),
            (
                "t_s,mbps,loss\n0,5,1.5\n",
                "line 2: loss is `1.5`: give a number from -1 to 1",
            ),
        ] {
            let error = RecordedPath::parse(text).unwrap_err();
            assert_eq!(error.to_string(), message, "{text}");
        }
    }
}
