//! Sizes of files, functions and structures, the places of `impl` blocks, and circles of modules.
//!
//! A line of code is neither blank nor a comment, nor part of a `#[cfg(test)]` item. The limits are
//! those of `CONTRIBUTING.md`. Files that only tests use have wider limits of lines and no others.
//! `exceptions.toml` lists what exceeds a limit, with the reason; an entry that is no longer needed
//! fails the check.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::Report;
use crate::circles;
use crate::items::{Impl, Items, items};
use crate::sources;
use crate::tokens::{lines, tokens, without_tests};

/// Measures every Rust file under `root`.
pub(crate) fn check(root: &Path) -> anyhow::Result<Report> {
    let name = root.join(EXCEPTIONS);
    let text = fs::read_to_string(&name).with_context(|| name.display().to_string())?;
    let exceptions: Exceptions =
        toml::from_str(&text).with_context(|| name.display().to_string())?;
    let files = sources::rust(root)?;
    let files = files.iter().map(|file| File::new(&file.path, &file.text));
    Ok(compare(&excesses(&files.collect::<Vec<_>>()), &exceptions))
}

/// A measured file.
struct File<'a> {
    path: &'a str,
    lines: usize,
    items: Items,
    /// Paths to modules of its crate.
    paths: Vec<Vec<String>>,
}

impl<'a> File<'a> {
    fn new(path: &'a str, text: &str) -> Self {
        let tokens = without_tests(&tokens(text));
        Self {
            path,
            lines: lines(&tokens),
            items: items(&tokens),
            paths: circles::paths(&tokens),
        }
    }

    fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next();
        let in_tests = ["tests", "fuzz", "peers"].map(|folder| format!("{folder}/"));
        let within = ["/tests/", "/benches/", "/examples/"];
        name.is_some_and(|name| ["tests.rs", "testing.rs"].contains(&name))
            || in_tests.iter().any(|folder| self.path.starts_with(folder))
            || within.iter().any(|folder| self.path.contains(folder))
    }

    /// Directory of the crate.
    fn room(&self) -> &'a str {
        let depth = if self.path.starts_with("crates/") {
            2
        } else {
            1
        };
        let end = self.path.match_indices('/').nth(depth - 1);
        end.map_or(self.path, |(end, _)| &self.path[..end])
    }

    /// Segments of its module.
    fn module(&self) -> Vec<&'a str> {
        let path = self.path[self.room().len()..].trim_start_matches("/src/");
        let path = path.strip_suffix(".rs").unwrap_or(path);
        let mut segments: Vec<_> = path.split('/').collect();
        segments.pop_if(|last| ["mod", "lib", "main"].contains(last));
        segments
    }

    /// Whether `other` is this file or in its folder: `a.rs` and `a/mod.rs` have the folder `a`.
    fn is_home_of(&self, other: &str) -> bool {
        let folder = ["/mod.rs", "/lib.rs", "/main.rs", ".rs"]
            .iter()
            .find_map(|end| self.path.strip_suffix(end))
            .unwrap_or(self.path);
        let inside = other.strip_prefix(folder);
        other == self.path || inside.is_some_and(|rest| rest.starts_with('/'))
    }
}

/// Something beyond a limit: its kind, its place, and its size where that is a number.
type Excess = (Kind, String, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    File,
    Function,
    Struct,
    Impl,
    Flag,
    Circle,
}

impl Kind {
    /// The rule that is broken.
    const fn rule(self) -> &'static str {
        match self {
            Self::File => "files have at most 500 lines of code, those of tests 700",
            Self::Function => "functions have at most 60 lines of code, those of tests 150",
            Self::Struct => "structures have at most 20 fields",
            Self::Impl => {
                "an impl block is in the file of its type, of its trait or of an argument of the trait, or in its folder"
            }
            Self::Flag => "no parameter is a tuple with a bool: use a structure or an enumeration",
            Self::Circle => "modules beside each other do not use each other",
        }
    }

    /// The table of `exceptions.toml`.
    const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Function => "function",
            Self::Struct => "struct",
            Self::Impl => "impl",
            Self::Flag => "flag",
            Self::Circle => "circle",
        }
    }
}

/// All excesses. Of equally named items of a file the largest counts.
fn excesses(files: &[File<'_>]) -> BTreeMap<(Kind, String), usize> {
    let mut found: Vec<Excess> = Vec::new();
    for file in files {
        let (most_lines, most_in_function) = if file.is_test() {
            (TEST_FILE, TEST_FUNCTION)
        } else {
            (FILE, FUNCTION)
        };
        let place = |name: &str| format!("{} {name}", file.path);
        if file.lines > most_lines {
            found.push((Kind::File, file.path.to_owned(), file.lines));
        }
        let functions = file.items.functions.iter();
        let functions = functions.filter(|(_, lines)| *lines > most_in_function);
        found.extend(functions.map(|(name, lines)| (Kind::Function, place(name), *lines)));
        if file.is_test() {
            continue;
        }
        let structs = file
            .items
            .structs
            .iter()
            .filter(|(_, fields)| *fields > FIELDS);
        found.extend(structs.map(|(name, fields)| (Kind::Struct, place(name), *fields)));
        let flags = file.items.flags.iter();
        found.extend(flags.map(|(name, _)| (Kind::Flag, place(name), 0)));
    }
    found.extend(strays(files));
    found.extend(rounds(files));
    let mut largest = BTreeMap::new();
    for (kind, place, size) in found {
        let known = largest.entry((kind, place)).or_insert(size);
        *known = size.max(*known);
    }
    largest
}

/// Blocks away from the type and the trait, of types of the same crate.
fn strays(files: &[File<'_>]) -> Vec<Excess> {
    let mut types: BTreeMap<(&str, &str), Vec<&File<'_>>> = BTreeMap::new();
    let mut traits = types.clone();
    let product = || files.iter().filter(|file| !file.is_test());
    for file in product() {
        for name in &file.items.types {
            types.entry((file.room(), name)).or_default().push(file);
        }
        for name in &file.items.traits {
            traits.entry((file.room(), name)).or_default().push(file);
        }
    }
    let mut found = Vec::new();
    for file in product() {
        let is_home = |homes: &Vec<&File<'_>>| homes.iter().any(|home| home.is_home_of(file.path));
        for Impl { of, what } in &file.items.impls {
            let of_type = types.get(&(file.room(), of.as_str()));
            // As `From<A> for B` beside A.
            let mut others = what.iter().flat_map(|name| {
                let name = (file.room(), name.as_str());
                [traits.get(&name), types.get(&name)]
            });
            if of_type.is_some_and(|homes| !is_home(homes))
                && !others.any(|homes| homes.is_some_and(is_home))
            {
                found.push((Kind::Impl, format!("{} {of}", file.path), 0));
            }
        }
    }
    found
}

/// Circles of modules, by crate. Their size is the number of modules.
fn rounds(files: &[File<'_>]) -> Vec<Excess> {
    let mut rooms: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.is_test()) {
        let room = rooms.entry(file.room()).or_default();
        room.push((file.module(), file.paths.as_slice()));
    }
    let mut found = Vec::new();
    for (room, files) in &rooms {
        for (parent, members) in circles::circles(files) {
            let parent = format!("{room}/src/{parent}");
            let place = format!("{} {}", parent.trim_end_matches('/'), members.join(" "));
            found.push((Kind::Circle, place, members.len()));
        }
    }
    found
}

/// Tables of `exceptions.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    #[serde(default)]
    file: Vec<Exception>,
    #[serde(default)]
    function: Vec<Exception>,
    #[serde(default, rename = "struct")]
    structure: Vec<Exception>,
    #[serde(default, rename = "impl")]
    block: Vec<Exception>,
    #[serde(default)]
    flag: Vec<Exception>,
    #[serde(default)]
    circle: Vec<Exception>,
}

/// An item that may exceed a limit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    /// Path, and the name of the item in it.
    at: String,
    /// Size that it may have.
    #[serde(default)]
    size: usize,
    reason: String,
}

impl Exceptions {
    fn of(&self, kind: Kind) -> &[Exception] {
        match kind {
            Kind::File => &self.file,
            Kind::Function => &self.function,
            Kind::Struct => &self.structure,
            Kind::Impl => &self.block,
            Kind::Flag => &self.flag,
            Kind::Circle => &self.circle,
        }
    }
}

fn compare(found: &BTreeMap<(Kind, String), usize>, exceptions: &Exceptions) -> Report {
    let mut report = Report::default();
    let mut broken = BTreeSet::new();
    for ((kind, place), size) in found {
        let exception = exceptions.of(*kind).iter().find(|e| e.at == *place);
        if exception.is_none_or(|exception| *size > exception.size) {
            broken.insert(*kind);
            let most =
                exception.map_or(String::new(), |e| format!(", and {} are excepted", e.size));
            let size = if *size > 0 {
                format!(": {size}{most}")
            } else {
                String::new()
            };
            report.fault(format_args!("{} {place}{size}", kind.name()));
        }
    }
    for kind in &broken {
        report.line(format_args!("rule: {}", kind.rule()));
    }
    let mut excepted = 0;
    for kind in KINDS {
        for exception in exceptions.of(kind) {
            excepted += 1;
            if exception.reason.trim().is_empty() {
                report.fault(format_args!("{EXCEPTIONS}: {} has no reason", exception.at));
            }
            if !found.contains_key(&(kind, exception.at.clone())) {
                report.fault(format_args!(
                    "{EXCEPTIONS}: {} {} is within the limit: remove the exception",
                    kind.name(),
                    exception.at
                ));
            }
        }
    }
    report.line(format_args!("{excepted} exceptions"));
    report
}

const EXCEPTIONS: &str = "xtask/exceptions.toml";
const KINDS: [Kind; 6] = [
    Kind::File,
    Kind::Function,
    Kind::Struct,
    Kind::Impl,
    Kind::Flag,
    Kind::Circle,
];
/// Most lines of code of a file and of a function, and most fields of a structure.
const FILE: usize = 500;
const FUNCTION: usize = 60;
const FIELDS: usize = 20;
/// The same for tests.
const TEST_FILE: usize = 700;
const TEST_FUNCTION: usize = 150;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(Kind, String, usize)> {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| File::new(path, text))
            .collect();
        let found = excesses(&files).into_iter();
        found
            .map(|((kind, place), size)| (kind, place, size))
            .collect()
    }

    fn repeated(line: &str, times: usize) -> String {
        line.repeat(times)
    }

    #[test]
    fn files_and_functions_have_limits() {
        let file = |lines: usize| repeated("a();\n", lines);
        assert_eq!(found(&[("crates/a/src/b.rs", &file(500))]), []);
        let long = found(&[("crates/a/src/b.rs", &file(501))]);
        assert_eq!(long, [(Kind::File, "crates/a/src/b.rs".to_owned(), 501)]);
        assert_eq!(found(&[("crates/a/tests/b.rs", &file(700))]), []);
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", file(lines - 2));
        assert_eq!(found(&[("crates/a/src/b.rs", &function(60))]), []);
        let long = found(&[("crates/a/src/b.rs", &function(61))]);
        assert_eq!(
            long,
            [(Kind::Function, "crates/a/src/b.rs f".to_owned(), 61)]
        );
        assert_eq!(found(&[("crates/a/src/tests.rs", &function(150))]), []);
    }

    #[test]
    fn comments_blanks_and_tests_do_not_count() {
        let tests = format!(
            "#[cfg(test)]\nmod tests {{\n{}}}\n",
            repeated("a();\n", 900)
        );
        let text = repeated("// a\n\n", 900) + &tests;
        assert_eq!(found(&[("crates/a/src/b.rs", &text)]), []);
        // A module of tests in another file ends nothing.
        let text = "#[cfg(test)]\nmod tests;\n".to_owned() + &repeated("a();\n", 501);
        assert_eq!(found(&[("crates/a/src/b.rs", &text)]).len(), 1);
    }

    #[test]
    fn structures_and_flags_have_limits() {
        let text = |fields: usize| format!("struct A {{ {} }}", repeated("b: u8,", fields));
        assert_eq!(found(&[("crates/a/src/b.rs", &text(20))]), []);
        let large = found(&[("crates/a/src/b.rs", &text(21))]);
        assert_eq!(
            large,
            [(Kind::Struct, "crates/a/src/b.rs A".to_owned(), 21)]
        );
        let flag = found(&[("crates/a/src/b.rs", "fn c(d: (u8, bool)) {}")]);
        assert_eq!(flag, [(Kind::Flag, "crates/a/src/b.rs c".to_owned(), 0)]);
    }

    #[test]
    fn blocks_stay_with_their_types() {
        let of = |at: &str, text: &str| {
            let defined = ("crates/a/src/b.rs", "struct A; trait B {}");
            found(&[defined, ("crates/a/src/c.rs", "trait C {}"), (at, text)]).len()
        };
        assert_eq!(of("crates/a/src/b/d.rs", "impl A {}"), 0);
        assert_eq!(of("crates/a/src/d.rs", "impl A {}"), 1);
        assert_eq!(of("crates/a/src/d.rs", "impl C for A {}"), 1);
        assert_eq!(of("crates/a/src/c/d.rs", "impl C for A {}"), 0);
        assert_eq!(of("crates/a/src/d.rs", "impl C for u8 {}"), 0);
        assert_eq!(
            of("crates/a/src/d.rs", "struct D; impl From<D> for A {}"),
            0
        );
        assert_eq!(of("crates/e/src/d.rs", "impl A {}"), 0);
    }

    #[test]
    fn exceptions_only_shrink() {
        let compared = |size: usize| {
            let text = format!("[[file]]\nat = \"a.rs\"\nsize = {size}\nreason = \"a table\"\n");
            let mut excess = BTreeMap::new();
            excess.insert((Kind::File, "a.rs".to_owned()), 510);
            (compare(&excess, &toml::from_str(&text).unwrap()), text)
        };
        assert!(!compared(510).0.failed);
        let (report, text) = compared(509);
        assert!(report.failed && report.text.contains("a.rs: 510, and 509 are excepted"));
        let report = compare(&BTreeMap::new(), &toml::from_str(&text).unwrap());
        assert!(
            report.failed && report.text.contains("remove the exception"),
            "{}",
            report.text
        );
    }
}
