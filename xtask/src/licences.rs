//! Licences of all dependencies. `deny.toml` lists the allowed ones, so that this check and `cargo
//! deny check` use the same list.
//!
//! The licence of a package is the one declared in its manifest; no licence file is read.
//! Advisories need a database that is downloaded: `cargo deny check advisories` does that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::Report;
use crate::metadata::{Metadata, Package};

/// Checks all packages in the build of the workspace at `root`.
pub(crate) fn check(root: &Path) -> anyhow::Result<Report> {
    let name = root.join("deny.toml");
    let text = fs::read_to_string(&name).with_context(|| name.display().to_string())?;
    let deny: Deny = toml::from_str(&text).with_context(|| name.display().to_string())?;
    let mut report = Report::default();
    for target in &deny.graph.targets {
        let metadata = Metadata::read(root, target)?;
        judge(&deny, &metadata, &mut report);
    }
    Ok(report)
}

/// Keys of `deny.toml` that are read here.
#[derive(Debug, Deserialize)]
struct Deny {
    graph: Graph,
    licenses: Licenses,
}

#[derive(Debug, Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
}

#[derive(Debug, Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: BTreeSet<String>,
}

fn judge(deny: &Deny, metadata: &Metadata, report: &mut Report) {
    let mut used = BTreeSet::new();
    for package in &metadata.packages {
        let name = format!("{} {}", package.name, package.version);
        let mut allowed = deny.licenses.allow.clone();
        for exception in &deny.licenses.exceptions {
            if exception.name == package.name {
                allowed.extend(exception.allow.iter().cloned());
            }
        }
        match package.license.as_deref() {
            None => report.fault(format_args!("{name}: its manifest has no licence")),
            Some(text) => match verdict(text, &allowed) {
                Some(with) => used.extend(with),
                None => report.fault(format_args!(
                    "{name}: {text:?} is not allowed; see [licenses] of deny.toml"
                )),
            },
        }
        let binds = package.links.is_some() || package.name.ends_with("-sys");
        if binds && native(package).is_none() {
            report.fault(format_args!(
                "{name}: binds a native library; name it and its licence in xtask/src/licences.rs"
            ));
        }
    }
    let asked = deny.licenses.exceptions.iter();
    let asked = deny
        .licenses
        .allow
        .iter()
        .chain(asked.flat_map(|e| &e.allow));
    for licence in asked.filter(|l| !used.contains(l.as_str())) {
        report.fault(format_args!(
            "deny.toml allows {licence:?}, which no dependency uses"
        ));
    }
    permissive_stays_so(metadata, report);
    duplicates(metadata, report);
    say_native(metadata, report);
}

/// Reports copyleft libraries in programs other than those of [`COPYLEFT_ROOMS`].
fn permissive_stays_so(metadata: &Metadata, report: &mut Report) {
    let by_id = metadata.by_id();
    for id in &metadata.workspace_members {
        let member = &by_id[id.as_str()].name;
        if COPYLEFT_ROOMS.contains(&member.as_str()) {
            continue;
        }
        for package in metadata.linked(id).iter().filter_map(|id| by_id.get(id)) {
            if let Some(native) = native(package).filter(|n| n.copyleft) {
                report.fault(format_args!(
                    "{member} links to {}, which is under {}; only {} may",
                    native.name,
                    native.licence,
                    COPYLEFT_ROOMS.join(", ")
                ));
            }
        }
    }
}

fn duplicates(metadata: &Metadata, report: &mut Report) {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in &metadata.packages {
        versions
            .entry(&package.name)
            .or_default()
            .push(&package.version);
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        report.line(format_args!("twice: {name} {}", versions.join(", ")));
    }
    let ours = metadata.workspace_members.len();
    let foreign = metadata.packages.len() - ours;
    report.line(format_args!(
        "{foreign} external packages, {ours} of the workspace"
    ));
    for package in &metadata.packages {
        if package
            .source
            .as_ref()
            .is_some_and(|s| s.starts_with("git+"))
        {
            report.fault(format_args!(
                "{} {} comes from a repository and not from the registry",
                package.name, package.version
            ));
        }
    }
}

fn say_native(metadata: &Metadata, report: &mut Report) {
    for package in &metadata.packages {
        if let Some(native) = native(package).filter(|n| n.copyleft) {
            report.line(format_args!(
                "{} links to {}, which is under {}",
                package.name, native.name, native.licence
            ));
        }
    }
}

fn native(package: &Package) -> Option<&'static Native> {
    NATIVE.iter().find(|native| native.package == package.name)
}

/// Licences of `allowed` that satisfy `expression`; `None` if they do not.
fn verdict(expression: &str, allowed: &BTreeSet<String>) -> Option<BTreeSet<String>> {
    // Old manifests use `MIT/Apache-2.0` instead of OR.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser {
        words: &words,
        allowed,
    };
    let verdict = parser.either();
    // Trailing words mean that the expression is malformed.
    verdict.filter(|_| parser.words.is_empty())
}

/// Parser of SPDX expressions: OR binds less tightly than AND, and AND less tightly than WITH.
struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a BTreeSet<String>,
}

impl<'a> Parser<'a> {
    fn either(&mut self) -> Option<BTreeSet<String>> {
        let mut met = self.both();
        while self.accept("OR") {
            let other = self.both();
            met = match (met, other) {
                (Some(mut a), Some(b)) => {
                    a.extend(b);
                    Some(a)
                }
                (a, b) => a.or(b),
            };
        }
        met
    }

    fn both(&mut self) -> Option<BTreeSet<String>> {
        let mut met = self.one();
        while self.accept("AND") {
            let other = self.one();
            met = met.zip(other).map(|(mut a, b)| {
                a.extend(b);
                a
            });
        }
        met
    }

    fn one(&mut self) -> Option<BTreeSet<String>> {
        if self.accept("(") {
            let met = self.either();
            return if self.accept(")") { met } else { None };
        }
        let mut name = self.next()?.to_owned();
        if self.accept("WITH") {
            name = format!("{name} WITH {}", self.next()?);
        }
        self.allowed.contains(&name).then(|| BTreeSet::from([name]))
    }

    fn accept(&mut self, word: &str) -> bool {
        let there = self.words.first() == Some(&word);
        if there {
            self.words = &self.words[1..];
        }
        there
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }
}

/// A native library, which cargo does not list.
struct Native {
    /// Package that links to it.
    package: &'static str,
    name: &'static str,
    licence: &'static str,
    /// Whether a program that links to it may be distributed only under its licence.
    copyleft: bool,
}

/// Native libraries whose licence the linking package's manifest does not declare.
const NATIVE: [Native; 8] = [
    Native {
        // Used while bindings are generated; not part of any program.
        package: "clang-sys",
        name: "libclang",
        licence: "Apache-2.0 WITH LLVM-exception",
        copyleft: false,
    },
    Native {
        package: "ffmpeg-sys-the-third",
        name: "FFmpeg",
        licence: "LGPL-2.1-or-later, or GPL-2.0-or-later as Debian and Ubuntu build it",
        copyleft: true,
    },
    Native {
        // Not a library: the `links` key only prevents two versions in one program.
        package: "prettyplease",
        name: "nothing",
        licence: "MIT OR Apache-2.0",
        copyleft: false,
    },
    Native {
        // Likewise.
        package: "rayon-core",
        name: "nothing",
        licence: "MIT OR Apache-2.0",
        copyleft: false,
    },
    Native {
        // Types and constants of system calls; links to no library.
        package: "linux-raw-sys",
        name: "nothing",
        licence: "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        copyleft: false,
    },
    Native {
        package: "libsqlite3-sys",
        name: "SQLite",
        licence: "public domain",
        copyleft: false,
    },
    Native {
        package: "ring",
        name: "its own C and assembly",
        licence: "Apache-2.0 AND ISC",
        copyleft: false,
    },
    Native {
        package: "x264-sys",
        name: "libx264",
        licence: "GPL-2.0-or-later",
        copyleft: true,
    },
];

/// Crates that may link to codec libraries. All other crates stay permissive.
const COPYLEFT_ROOMS: [&str; 3] = ["tidegate", "tidegate-media", "tidegate-tests"];

#[cfg(test)]
mod tests {
    use super::*;

    fn met(expression: &str) -> Option<String> {
        let allowed = [
            "MIT",
            "Apache-2.0",
            "Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ];
        let allowed = allowed.map(str::to_owned).into();
        verdict(expression, &allowed).map(|met| met.into_iter().collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn an_expression_is_met_or_not() {
        for (expression, with) in [
            ("MIT", Some("MIT")),
            ("MIT OR Apache-2.0", Some("Apache-2.0, MIT")),
            ("MIT/Apache-2.0", Some("Apache-2.0, MIT")),
            ("Unlicense OR MIT", Some("MIT")),
            ("(MIT OR Zlib) AND Unicode-3.0", Some("MIT, Unicode-3.0")),
            ("Zlib OR MIT AND Unicode-3.0", Some("MIT, Unicode-3.0")),
            (
                "Apache-2.0 WITH LLVM-exception",
                Some("Apache-2.0 WITH LLVM-exception"),
            ),
            ("MIT WITH LLVM-exception", None),
            ("GPL-2.0-or-later", None),
            ("MIT AND GPL-3.0-only", None),
            ("MIT OR", Some("MIT")),
            ("MIT Apache-2.0", None),
            ("(MIT", None),
            ("", None),
        ] {
            assert_eq!(met(expression).as_deref(), with, "{expression}");
        }
    }

    /// Metadata of three workspace crates, and of packages with the given names and licences.
    /// `tidegate-core` depends on the first of these.
    fn world(foreign: &[(&str, Option<&str>)]) -> Metadata {
        let ours = ["tidegate-core", "tidegate-media", "tidegate"];
        let mut packages = Vec::new();
        for name in ours {
            packages.push(serde_json::json!({
                "id": name, "name": name, "version": "1.0.0", "license": "MIT", "source": null,
            }));
        }
        for (name, licence) in foreign {
            packages.push(serde_json::json!({
                "id": name, "name": name, "version": "1.0.0", "license": licence,
                "source": "registry+somewhere",
            }));
        }
        let deps: Vec<_> = foreign
            .iter()
            .take(1)
            .map(|(name, _)| serde_json::json!({ "pkg": name, "dep_kinds": [{ "kind": null }] }))
            .collect();
        serde_json::from_value(serde_json::json!({
            "packages": packages,
            "workspace_members": ours,
            "resolve": { "nodes": [{ "id": "tidegate-core", "deps": deps }] },
        }))
        .unwrap()
    }

    fn judged(foreign: &[(&str, Option<&str>)]) -> Report {
        let deny = "
            graph.targets = ['here']
            licenses.allow = ['MIT']
            licenses.exceptions = [{ crate = 'odd', allow = ['WTFPL'] }]
        ";
        let mut report = Report::default();
        judge(&toml::from_str(deny).unwrap(), &world(foreign), &mut report);
        report
    }

    const ODD: (&str, Option<&str>) = ("odd", Some("WTFPL"));

    #[test]
    fn allowed_licences_pass() {
        let report = judged(&[("a", Some("MIT OR GPL-2.0-only")), ODD]);
        assert_eq!(
            (report.text.as_str(), report.failed),
            ("2 external packages, 3 of the workspace\n", false)
        );
    }

    #[test]
    fn other_licences_are_named() {
        for (foreign, with) in [
            (("b", Some("Zlib")), "b 1.0.0: \"Zlib\" is not allowed"),
            (("b", Some("WTFPL")), "b 1.0.0: \"WTFPL\" is not allowed"),
            (("b", None), "b 1.0.0: its manifest has no licence"),
            (
                ("b-sys", Some("MIT")),
                "b-sys 1.0.0: binds a native library",
            ),
        ] {
            let report = judged(&[("a", Some("MIT")), ODD, foreign]);
            assert!(report.failed);
            assert!(report.text.contains(with), "{}", report.text);
        }
        let report = judged(&[("a", Some("MIT"))]);
        assert!(
            report
                .text
                .contains("deny.toml allows \"WTFPL\", which no dependency uses")
        );
    }

    #[test]
    fn copyleft_is_limited_to_media() {
        let report = judged(&[("x264-sys", Some("MIT")), ODD]);
        assert!(report.failed);
        assert!(
            report
                .text
                .contains("tidegate-core links to libx264, which is under GPL-2.0-or-later"),
            "{}",
            report.text
        );
        let report = judged(&[("a", Some("MIT")), ODD, ("x264-sys", Some("MIT"))]);
        assert!(!report.failed, "{}", report.text);
        assert!(report.text.contains("x264-sys links to libx264"));
    }
}
