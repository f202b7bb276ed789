//! `[sweep]`: one scenario, run with several values and seeds.
//!
//! For each point, the swept values replace the values in the tree of the file, and the ordinary
//! reader converts the tree. A value keeps its position, so errors refer to its line in `[sweep]`.

mod paths;

use core::cell::RefCell;
use core::ops::Range;
use std::collections::BTreeMap;
use std::path::Path;

use tidegate_core::controller::Controllers;
use tidegate_core::random::Seed;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Fault, ScenarioError};
use super::read::{self, Sources};
use super::table::{Document, Form, Value};
use super::{Scenario, beside, read_file};

/// The contents of a file with a `[sweep]`, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// The scenario without the sweep.
    pub base: Scenario,
    /// The text of the file.
    pub text: String,
    /// Files that it refers to, each with name and checksum (FNV-1a, 64 bits).
    pub files: Vec<(String, u64)>,
    /// Swept keys in the order of the file.
    pub axes: Vec<Axis>,
    /// Seeds of each point; at least one, without repetition.
    pub seeds: Vec<Seed>,
    /// Product of the axes, the last axis fastest; at least one.
    pub points: Vec<Point>,
}

/// A swept key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The path or paths in the text of the file.
    pub key: String,
    /// Its values in the text of the file, without quotes; at least one, without repetition.
    pub values: Vec<String>,
}

/// A combination of values, one per axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// One per axis.
    pub values: Vec<String>,
    /// The scenario with these values.
    pub scenario: Scenario,
}

impl Sweep {
    /// Reads the file at `path`. Trace files are opened relative to its folder.
    ///
    /// # Errors
    /// [`ScenarioError`] with the first error of the file or of a point, its line and the fix.
    pub fn load(path: &Path, controllers: &Controllers) -> Result<Self, ScenarioError> {
        let (file, text) = read_file(path)?;
        Self::parse_with(&file, &text, &|name| beside(path, name), controllers)
    }

    /// Parses `text`; `file` is its name in errors. `open` returns the text of a trace file, or the
    /// reason why it cannot be read. The controllers are those of [`crate::controllers`].
    ///
    /// # Errors
    /// [`ScenarioError`] with the first error of the text or of a point, its line and the fix.
    pub fn parse(
        file: &str,
        text: &str,
        open: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, ScenarioError> {
        Self::parse_with(file, text, open, &crate::controllers())
    }

    /// [`parse`](Self::parse) with these controllers.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_with(
        file: &str,
        text: &str,
        open: &dyn Fn(&str) -> Result<String, String>,
        controllers: &Controllers,
    ) -> Result<Self, ScenarioError> {
        let document = Document { file, text };
        let mut tree = read::parse(&document)?;
        let opened = RefCell::new(BTreeMap::new());
        let open = |name: &str| {
            let mut opened = opened.borrow_mut();
            let text = opened.entry(name.to_owned()).or_insert_with(|| open(name));
            text.clone()
        };
        let sources = Sources {
            open: &open,
            controllers,
        };
        let base = read::tree(&document, &tree, sources)?;
        let Some((_, table)) = tree.remove_entry("sweep") else {
            return Err(missing(file, None));
        };
        let line = document.line(table.span().start);
        let (seeds, swept) = read_table(&document, &table, line)?;
        let points = Grid {
            document: &document,
            tree: &tree,
            swept: &swept,
        };
        let points = points.read(sources)?;
        let opened = opened.borrow();
        let read = |(name, text): (&String, &Result<String, String>)| {
            Some((name.clone(), fnv(text.as_ref().ok()?)))
        };
        Ok(Self {
            seeds: seeds.unwrap_or_else(|| vec![base.seed]),
            base,
            text: text.to_owned(),
            files: opened.iter().filter_map(read).collect(),
            axes: swept.iter().map(|swept| swept.axis(text)).collect(),
            points,
        })
    }

    /// Number of runs: points times seeds.
    pub fn runs(&self) -> usize {
        self.points.len() * self.seeds.len()
    }
}

/// Checks the `[sweep]` of an otherwise valid tree: all its keys, and each of their values together
/// with the first values of the other keys.
pub(super) fn check<'a>(
    document: &'a Document<'a>,
    mut tree: DeTable<'a>,
    sources: Sources<'_>,
) -> Result<(), ScenarioError> {
    let Some((_, table)) = tree.remove_entry("sweep") else {
        return Ok(());
    };
    let line = document.line(table.span().start);
    let (_, swept) = read_table(document, &table, line)?;
    let grid = Grid {
        document,
        tree: &tree,
        swept: &swept,
    };
    grid.point_at(&vec![0; swept.len()], sources)?;
    for (axis, swept) in swept.iter().enumerate() {
        for value in 1..swept.list.len() {
            let mut at = vec![0; grid.swept.len()];
            at[axis] = value;
            grid.point_at(&at, sources)?;
        }
    }
    Ok(())
}

/// A key of the table with its values.
struct Swept<'a> {
    key: &'a str,
    key_span: Range<usize>,
    paths: Vec<Vec<&'a str>>,
    value: Value<'a>,
    list: &'a [Spanned<DeValue<'a>>],
    span: Range<usize>,
}

impl Swept<'_> {
    fn axis(&self, text: &str) -> Axis {
        Axis {
            key: self.key.to_owned(),
            values: self.list.iter().map(|v| written(v, text)).collect(),
        }
    }
}

type Seeds = Option<Vec<Seed>>;

fn read_table<'a>(
    document: &'a Document<'a>,
    table: &'a Spanned<DeValue<'a>>,
    line: usize,
) -> Result<(Seeds, Vec<Swept<'a>>), ScenarioError> {
    let DeValue::Table(entries) = table.get_ref() else {
        unreachable!("the reader has checked that [sweep] is a table");
    };
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let (mut seeds, mut swept) = (None, Vec::<Swept<'_>>::new());
    for (key, tree) in entries {
        let value = Value::new(document, PLACE, key.get_ref(), tree);
        if key.get_ref() == "seeds" {
            seeds = Some(read_seeds(&value)?);
            continue;
        }
        let paths = paths::of_key(key.get_ref()).map_err(|fault| value.fault(fault))?;
        for earlier in &swept {
            let covered = |path: &Vec<&str>| earlier.paths.iter().any(|e| e.starts_with(path));
            if let Some(path) = paths.iter().find(|path| covered(path)) {
                return Err(value.fault(Fault::Conflict {
                    why: format!(
                        "\"{}\" is swept in line {} already",
                        path.join("."),
                        document.line(earlier.key_span.start)
                    ),
                    fix: "sweep it once".to_owned(),
                }));
            }
        }
        swept.push(Swept {
            key: key.get_ref(),
            key_span: key.span(),
            paths,
            list: read_list(&value, tree, document.text)?,
            value,
            span: tree.span(),
        });
    }
    if seeds.is_none() && swept.is_empty() {
        return Err(missing(document.file, Some(line)));
    }
    let points = swept.iter().try_fold(1_usize, |points, swept| {
        let points = points.checked_mul(swept.list.len());
        points.filter(|points| *points <= MAX_POINTS).ok_or(swept)
    });
    if let Err(swept) = points {
        return Err(swept.value.range(
            &format!("the sweep has more than {MAX_POINTS} points"),
            "sweep fewer keys at once, or fewer values of each",
        ));
    }
    Ok((seeds, swept))
}

fn read_seeds(value: &Value<'_>) -> Result<Vec<Seed>, ScenarioError> {
    if value.kind() != Form::List {
        return Ok((1..=value.whole(1..=MAX_SEEDS)?).map(Seed).collect());
    }
    let mut seeds = Vec::new();
    for item in value.list("a number of seeds, as 20, or a list of them")? {
        // TOML integers are signed.
        let seed = Seed(item.whole(0..=i64::MAX as u64)?);
        if seeds.contains(&seed) {
            return Err(item.range(
                &format!("the seed {} occurs twice", seed.0),
                "remove one of them",
            ));
        }
        seeds.push(seed);
    }
    if seeds.is_empty() {
        return Err(value.range("the list of seeds is empty", "write seeds = 20"));
    }
    Ok(seeds)
}

fn read_list<'a>(
    value: &Value<'a>,
    tree: &'a Spanned<DeValue<'a>>,
    text: &str,
) -> Result<&'a [Spanned<DeValue<'a>>], ScenarioError> {
    const WANTED: &str = "a path in quotes and a list of values, as \"link.uplink.delay\" = \
                          [\"10ms\", \"50ms\"]";
    let DeValue::Array(list) = tree.get_ref() else {
        return Err(value.wrong(WANTED));
    };
    let mut seen: Vec<String> = Vec::new();
    for (item, tree) in value.list(WANTED)?.iter().zip(list.iter()) {
        let text = written(tree, text);
        if seen.contains(&text) {
            let why = format!("the value {text} occurs twice");
            return Err(item.range(&why, "remove one of them"));
        }
        seen.push(text);
    }
    if list.is_empty() {
        return Err(value.range("it has no values", "write at least one, or remove the line"));
    }
    Ok(&list[..])
}

/// The product of the swept values.
struct Grid<'a> {
    document: &'a Document<'a>,
    tree: &'a DeTable<'a>,
    swept: &'a [Swept<'a>],
}

impl<'a> Grid<'a> {
    fn read(&self, sources: Sources<'_>) -> Result<Vec<Point>, ScenarioError> {
        let mut points = Vec::new();
        let mut at = vec![0; self.swept.len()];
        loop {
            points.push(self.point_at(&at, sources)?);
            // Odometer order: the last axis is the fastest.
            let Some(turn) = (0..at.len()).rfind(|i| at[*i] + 1 < self.swept[*i].list.len()) else {
                return Ok(points);
            };
            at[turn] += 1;
            at[turn + 1..].fill(0);
        }
    }

    fn point_at(&self, at: &[usize], sources: Sources<'_>) -> Result<Point, ScenarioError> {
        let values: Vec<String> = self
            .chosen(at)
            .map(|(_, value)| written(value, self.document.text))
            .collect();
        let scenario = self.point(at, &values, sources)?;
        Ok(Point { values, scenario })
    }

    fn chosen(&self, at: &[usize]) -> impl Iterator<Item = (&Swept<'a>, &Spanned<DeValue<'a>>)> {
        let swept = self.swept.iter().zip(at);
        swept.map(|(swept, at)| (swept, &swept.list[*at]))
    }

    fn point(
        &self,
        at: &[usize],
        values: &[String],
        sources: Sources<'_>,
    ) -> Result<Scenario, ScenarioError> {
        let mut tree = self.tree.clone();
        for (swept, value) in self.chosen(at) {
            for path in &swept.paths {
                paths::put(&mut tree, path, &swept.key_span, value)
                    .map_err(|fault| swept.value.fault(fault))?;
            }
        }
        read::tree(self.document, &tree, sources).map_err(|error| self.blame(error, values))
    }

    /// Adds the sweep to the location of an error, and the values of the point if other points may
    /// be valid.
    fn blame(&self, mut error: ScenarioError, values: &[String]) -> ScenarioError {
        let line = |offset| self.document.line(offset);
        let is_here = |swept: &Swept<'_>| {
            let lines = line(swept.key_span.start)..=line(swept.span.end.saturating_sub(1));
            error.line.is_some_and(|line| lines.contains(&line))
        };
        let keys = self.swept.iter().map(|swept| swept.key).zip(values);
        let with: Vec<String> = keys
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        let is_clear = self.swept.len() == 1 || is_of_one_value(&error.fault);
        let mut place = if is_clear && self.swept.iter().any(is_here) {
            PLACE.to_owned()
        } else {
            format!("{PLACE}, with {}", with.join(", "))
        };
        if !error.table.is_empty() {
            place = format!("{place}: {}", error.table);
        }
        error.table = place;
        error
    }
}

/// Whether the error depends on one key or value only.
fn is_of_one_value(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Choice { .. }
            | Fault::Expect(_)
            | Fault::Quantity(_)
            | Fault::Type { .. }
            | Fault::UnknownKey { .. }
    )
}

/// A value on one line, without quotes if it is a string.
fn written(value: &Spanned<DeValue<'_>>, text: &str) -> String {
    if let DeValue::String(content) = value.get_ref() {
        return content.as_ref().to_owned();
    }
    let words = text.get(value.span()).unwrap_or_default();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn missing(file: &str, line: Option<usize>) -> ScenarioError {
    ScenarioError {
        file: file.to_owned(),
        line,
        table: String::new(),
        key: PLACE.to_owned(),
        fault: Box::new(Fault::Missing { example: EXAMPLE }),
    }
}

/// FNV-1a with 64 bits (RFC 9923), to detect that a file has changed.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

const PLACE: &str = "sweep";

const EXAMPLE: &str = "[sweep] with seeds = 20 and \"link.uplink.delay\" = [\"10ms\", \"50ms\"]";

/// All points are parsed before the first run, and a mistake multiplies.
const MAX_POINTS: usize = 10_000;

/// Far above the need of any sweep.
const MAX_SEEDS: u64 = 10_000;

#[cfg(test)]
mod tests;
