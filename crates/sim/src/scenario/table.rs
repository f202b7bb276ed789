//! A TOML tree whose values have their position in the file.
//!
//! Deserialising into structs would lose the position inside values that have several forms (a rate
//! is a string, a list of steps or a table), and with it the line of the error.

use core::ops::Range;
use core::time::Duration;

use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use tidegate_core::controller::settings::{Setting, SettingError, SettingFault};
use tidegate_core::link::Limit;
use tidegate_core::quantity::{self, QuantityError};
use tidegate_core::units::{Bytes, Rate};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Fault, ScenarioError};

/// The file that is being parsed.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Document<'_> {
    pub(super) fn line(&self, offset: usize) -> usize {
        let end = offset.min(self.text.len());
        1 + self.text.as_bytes()[..end]
            .split(|byte| *byte == b'\n')
            .skip(1)
            .count()
    }
}

/// A table of the file with its allowed keys.
#[derive(Clone, Debug)]
pub(super) struct Table<'a> {
    document: &'a Document<'a>,
    place: String,
    line: usize,
    entries: &'a DeTable<'a>,
    keys: &'static [&'static str],
}

impl<'a> Table<'a> {
    /// Rejects keys other than `keys`; reports the first one in the file.
    pub(super) fn new(
        document: &'a Document<'a>,
        place: String,
        span: &Range<usize>,
        entries: &'a DeTable<'a>,
        keys: &'static [&'static str],
    ) -> Result<Self, ScenarioError> {
        let table = Self {
            document,
            place,
            line: document.line(span.start),
            entries,
            keys,
        };
        match entries
            .keys()
            .filter(|key| !keys.contains(&key.get_ref().as_ref()))
            .min_by_key(|key| key.span().start)
        {
            None => Ok(table),
            Some(key) => {
                let name = key.get_ref().as_ref();
                let fault = Fault::UnknownKey {
                    allowed: keys,
                    hint: hint(name, keys),
                };
                Err(table.error(document.line(key.span().start), name, fault))
            }
        }
    }

    pub(super) fn place(&mut self, place: String) {
        self.place = place;
    }

    /// The value of `key`, which must be an allowed key of this table.
    pub(super) fn get(&self, key: &'static str) -> Option<Value<'a>> {
        debug_assert!(
            self.keys.contains(&key),
            "{key} is read but not in the list of keys"
        );
        let tree = self.entries.get(key)?;
        Some(Value::new(self.document, &self.place, key, tree))
    }

    /// The value of a required key; `example` is an example line.
    pub(super) fn need(
        &self,
        key: &'static str,
        example: &'static str,
    ) -> Result<Value<'a>, ScenarioError> {
        self.get(key)
            .ok_or_else(|| self.error(self.line, key, Fault::Missing { example }))
    }

    /// An error about the whole table.
    pub(super) fn fault(&self, fault: Fault) -> ScenarioError {
        self.error(self.line, "", fault)
    }

    fn error(&self, line: usize, key: &str, fault: Fault) -> ScenarioError {
        ScenarioError {
            file: self.document.file.to_owned(),
            line: Some(line),
            table: self.place.clone(),
            key: key.to_owned(),
            fault: Box::new(fault),
        }
    }
}

/// A value of the file.
#[derive(Clone, Debug)]
pub(super) struct Value<'a> {
    document: &'a Document<'a>,
    place: String,
    key: String,
    tree: &'a Spanned<DeValue<'a>>,
}

impl<'a> Value<'a> {
    pub(super) fn new(
        document: &'a Document<'a>,
        place: &str,
        key: &str,
        tree: &'a Spanned<DeValue<'a>>,
    ) -> Self {
        Self {
            document,
            place: place.to_owned(),
            key: key.to_owned(),
            tree,
        }
    }

    pub(super) fn line(&self) -> usize {
        self.document.line(self.tree.span().start)
    }

    pub(super) fn kind(&self) -> Form {
        match self.tree.get_ref() {
            DeValue::String(_) => Form::Text,
            DeValue::Array(_) => Form::List,
            DeValue::Table(_) => Form::Table,
            _ => Form::Other,
        }
    }

    pub(super) fn text(&self, wanted: &'static str) -> Result<&'a str, ScenarioError> {
        match self.tree.get_ref() {
            DeValue::String(text) => Ok(text.as_ref()),
            _ => Err(self.wrong(wanted)),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, ScenarioError> {
        match self.tree.get_ref() {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.wrong("true or false")),
        }
    }

    /// An integer within `range`.
    pub(super) fn whole(
        &self,
        range: core::ops::RangeInclusive<u64>,
    ) -> Result<u64, ScenarioError> {
        let DeValue::Integer(integer) = self.tree.get_ref() else {
            return Err(self.wrong("a whole number"));
        };
        u64::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .filter(|value| range.contains(value))
            .ok_or_else(|| {
                self.fault(Fault::Range {
                    why: format!("{integer} is out of range"),
                    fix: format!(
                        "write a whole number from {} to {}",
                        range.start(),
                        range.end()
                    ),
                })
            })
    }

    /// A share within 0..=1, as a number or as a string with a percent sign.
    pub(super) fn share(&self) -> Result<f64, ScenarioError> {
        let value = match self.tree.get_ref() {
            DeValue::String(text) => quantity::share(text).map_err(|error| self.quantity(error))?,
            DeValue::Float(float) => float.as_str().parse().unwrap_or(f64::NAN),
            DeValue::Integer(integer) => integer.as_str().parse().unwrap_or(f64::NAN),
            _ => return Err(self.wrong("a share as 0.001 or \"0.1%\"")),
        };
        if (0.0..=1.0).contains(&value) {
            Ok(value)
        } else {
            Err(self.fault(Fault::Range {
                why: format!("{value} is not between 0 and 1"),
                fix: "write a number from 0 to 1, as 0.001 or \"0.1%\"".to_owned(),
            }))
        }
    }

    /// A number within `range`; `example` is an example.
    pub(super) fn number(
        &self,
        range: core::ops::RangeInclusive<f64>,
        example: &str,
    ) -> Result<f64, ScenarioError> {
        let value: f64 = match self.tree.get_ref() {
            DeValue::Float(float) => float.as_str().parse().unwrap_or(f64::NAN),
            DeValue::Integer(integer) => integer.as_str().parse().unwrap_or(f64::NAN),
            _ => return Err(self.wrong("a number without quotes")),
        };
        if range.contains(&value) {
            return Ok(value);
        }
        let fix = format!(
            "write a number from {} to {}, as {example}",
            range.start(),
            range.end()
        );
        Err(self.range(&format!("{value} is out of range"), &fix))
    }

    pub(super) fn rate(&self) -> Result<Rate, ScenarioError> {
        self.quantity_of(quantity::rate, "a rate in quotes, as \"4Mb/s\"")
    }

    /// A rate above zero; `why` is the error for zero.
    pub(super) fn positive_rate(&self, why: &str) -> Result<Rate, ScenarioError> {
        let rate = self.rate()?;
        if rate > Rate::ZERO {
            return Ok(rate);
        }
        Err(self.range(why, "write a rate above zero, as \"2Mb/s\""))
    }

    pub(super) fn duration(&self) -> Result<Duration, ScenarioError> {
        self.quantity_of(quantity::duration, "a time span in quotes, as \"400ms\"")
    }

    /// A time span above zero; `why` is the error for zero.
    pub(super) fn positive_duration(&self, why: &str) -> Result<Duration, ScenarioError> {
        let duration = self.duration()?;
        if duration > Duration::ZERO {
            return Ok(duration);
        }
        Err(self.range(why, "write a time span above zero, as \"400ms\""))
    }

    pub(super) fn size(&self) -> Result<Bytes, ScenarioError> {
        self.quantity_of(quantity::size, "a size in quotes, as \"1200B\"")
    }

    /// The size of a queue, above zero.
    pub(super) fn limit(&self) -> Result<Limit, ScenarioError> {
        let limit = self.quantity_of(
            quantity::limit,
            "a queue size in quotes, as \"60kB\" or \"50 packets\"",
        )?;
        match limit {
            Limit::Bytes(Bytes(0)) | Limit::Packets(0) => Err(self.range(
                "a queue of zero holds no packet",
                "write at least one packet, as \"60kB\" or \"50 packets\"",
            )),
            limit => Ok(limit),
        }
    }

    /// A number of packets above zero.
    pub(super) fn packets(&self) -> Result<u32, ScenarioError> {
        match self.quantity_of(
            quantity::packets,
            "a number of packets in quotes, as \"50 packets\"",
        )? {
            0 => Err(self.range("the number is zero", "write at least \"1 packet\"")),
            packets => Ok(packets),
        }
    }

    /// A mean number of packets, above zero.
    pub(super) fn mean_packets(&self) -> Result<f64, ScenarioError> {
        let packets = self.quantity_of(
            quantity::mean_packets,
            "a number of packets in quotes, as \"50 packets\"",
        )?;
        if packets > 0.0 {
            return Ok(packets);
        }
        Err(self.range("the number is zero", "write at least \"1 packet\""))
    }

    pub(super) fn choice<T: Copy>(
        &self,
        names: &'static [&'static str],
        values: &[T],
    ) -> Result<T, ScenarioError> {
        let text = self.text("one of the allowed words in quotes")?;
        names
            .iter()
            .position(|name| *name == text)
            .and_then(|found| values.get(found).copied())
            .ok_or_else(|| {
                self.fault(Fault::Choice {
                    value: text.to_owned(),
                    allowed: names,
                })
            })
    }

    pub(super) fn list(&self, wanted: &'static str) -> Result<Vec<Self>, ScenarioError> {
        let DeValue::Array(items) = self.tree.get_ref() else {
            return Err(self.wrong(wanted));
        };
        let item = |tree| Value::new(self.document, &self.place, &self.key, tree);
        Ok(items.iter().map(item).collect())
    }

    pub(super) fn table(
        &self,
        keys: &'static [&'static str],
        wanted: &'static str,
    ) -> Result<Table<'a>, ScenarioError> {
        let DeValue::Table(entries) = self.tree.get_ref() else {
            return Err(self.wrong(wanted));
        };
        Table::new(
            self.document,
            self.inner_place(),
            &self.tree.span(),
            entries,
            keys,
        )
    }

    /// The place of the keys of this table.
    fn inner_place(&self) -> String {
        match (self.place.is_empty(), self.key.is_empty()) {
            (false, false) => format!("{}: {}", self.place, self.key),
            _ => format!("{}{}", self.place, self.key),
        }
    }

    /// The value for a conversion by serde.
    pub(super) fn setting(&self) -> Result<Setting, ScenarioError> {
        let tree = self.tree.clone().into_deserializer();
        Setting::deserialize(tree)
            .map_err(|_| self.wrong("a text or a table, without lists and dates"))
    }

    /// An error of such a conversion, at the key where it occurred.
    pub(super) fn setting_error(&self, error: SettingError) -> ScenarioError {
        let (value, fault) = (self.at(&error.path), error.fault);
        value.fault(match fault {
            SettingFault::Invalid(text) => Fault::Setting(text),
            SettingFault::UnknownKey { allowed } => Fault::UnknownKey {
                allowed,
                hint: hint(&value.key, allowed),
            },
            SettingFault::UnknownWord { word, allowed } => Fault::Choice {
                value: word,
                allowed,
            },
        })
    }

    /// The value behind these keys of nested tables.
    fn at(&self, keys: &[String]) -> Self {
        let (Some((key, rest)), DeValue::Table(entries)) =
            (keys.split_first(), self.tree.get_ref())
        else {
            return self.clone();
        };
        match entries.get(key.as_str()) {
            Some(tree) => Self::new(self.document, &self.inner_place(), key, tree).at(rest),
            None => self.clone(),
        }
    }

    pub(super) fn fault(&self, fault: Fault) -> ScenarioError {
        ScenarioError {
            file: self.document.file.to_owned(),
            line: Some(self.line()),
            table: self.place.clone(),
            key: self.key.clone(),
            fault: Box::new(fault),
        }
    }

    pub(super) fn range(&self, why: &str, fix: &str) -> ScenarioError {
        self.fault(Fault::Range {
            why: why.to_owned(),
            fix: fix.to_owned(),
        })
    }

    pub(super) fn wrong(&self, wanted: &'static str) -> ScenarioError {
        let found = match self.tree.get_ref() {
            DeValue::Array(_) => "a list",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Float(_) | DeValue::Integer(_) => "a bare number",
            DeValue::String(_) => "a text",
            DeValue::Table(_) => "a table",
        };
        self.fault(Fault::Type { found, wanted })
    }

    fn quantity(&self, error: QuantityError) -> ScenarioError {
        self.fault(Fault::Quantity(error))
    }

    fn quantity_of<T>(
        &self,
        read: fn(&str) -> Result<T, QuantityError>,
        wanted: &'static str,
    ) -> Result<T, ScenarioError> {
        read(self.text(wanted)?).map_err(|error| self.quantity(error))
    }
}

/// Form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    List,
    Table,
    Other,
}

/// The key that was probably meant, or the table that has this key.
fn hint(name: &str, keys: &[&str]) -> Option<String> {
    let alias = |(word, key, _): &&(&str, &str, &str)| *word == name && keys.contains(key);
    if let Some((_, _, example)) = ALIASES.iter().find(alias) {
        return Some(format!("that is {example} here"));
    }
    let nearest = keys.iter().filter(|key| is_near(name, key));
    if let Some(near) = nearest.min_by_key(|key| distance(name, key)) {
        return Some(format!("did you mean \"{near}\"?"));
    }
    let home = super::read::HOMES
        .iter()
        .find(|(_, keys)| keys.contains(&name));
    if let Some((home, _)) = home {
        return Some(format!("\"{name}\" belongs {home}"));
    }
    let controllers = crate::controllers();
    let mut entries = controllers.iter();
    let of_controller = entries.find(|entry| entry.keys().contains(&name));
    of_controller.map(|entry| format!("\"{name}\" belongs in the {} of a control", entry.name))
}

/// Whether one word is probably a misspelling of the other. Words of up to five letters may differ
/// by one edit. In words of up to four letters the first letter must match, because a different
/// first letter often gives another valid word.
fn is_near(name: &str, key: &str) -> bool {
    match name.chars().count().max(key.chars().count()) {
        0..=4 => distance(name, key) <= 1 && name.chars().next() == key.chars().next(),
        5 => distance(name, key) <= 1,
        _ => distance(name, key) <= 2,
    }
}

/// Edit distance (insertions, deletions, replacements, swaps of neighbours) of two short words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let above = &rows[i];
            let mut edits = (above[j] + usize::from(x != y))
                .min(above[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                edits = edits.min(rows[i - 1][j - 1] + 1);
            }
            row.push(edits);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// Common names of a key in other programs, the key, and an example.
const ALIASES: &[(&str, &str, &str)] = &[
    ("algorithm", "kind", "kind, as kind = \"cubic\","),
    ("bandwidth", "rate", "rate, as rate = \"4Mb/s\","),
    ("capacity", "rate", "rate, as rate = \"4Mb/s\","),
    ("congestion", "kind", "kind, as kind = \"cubic\","),
    (
        "cwnd",
        "initial_window",
        "initial_window, as initial_window = 10,",
    ),
    (
        "early_retransmit",
        "tail_probes",
        "tail_probes, true or false,",
    ),
    (
        "iw",
        "initial_window",
        "initial_window, as initial_window = 10,",
    ),
    ("latency", "delay", "delay, as delay = \"30ms\","),
    (
        "mss",
        "packet",
        "packet, headers included, as packet = \"1500B\",",
    ),
    (
        "mtu",
        "packet",
        "packet, headers included, as packet = \"1500B\",",
    ),
    (
        "rack",
        "recovery",
        "recovery, as recovery = \"rack\" or \"duplicates\",",
    ),
    ("rate", "demand", "demand, as demand = \"2Mb/s\","),
    ("rto_min", "min_rto", "min_rto, as min_rto = \"200ms\","),
    ("sndbuf", "buffer", "buffer, as buffer = \"64kB\","),
    ("tlp", "tail_probes", "tail_probes, true or false,"),
];

#[cfg(test)]
mod tests;
