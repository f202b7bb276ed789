//! Dependencies between crates: the diagram under `Arrows` in `ARCHITECTURE.md` against the
//! manifests, and the modules of `cli` that use the simulator.
//!
//! Dev-dependencies count too, except for those of the test crate, which may use all crates. No
//! crate may depend on the binary, the test crate or `xtask`. The core's external dependencies are
//! listed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::metadata::Metadata;
use crate::sources::{self, Source};
use crate::{Report, architecture};

/// Compares the diagram with the workspace at `root`.
pub(crate) fn check(root: &Path) -> anyhow::Result<Report> {
    let text = architecture::read(root)?;
    let drawn = architecture::arrows(&text)?;
    let metadata = Metadata::read(root, "x86_64-unknown-linux-gnu")?;
    let mut report = compare(&drawn, &metadata);
    let allowed = architecture::simulating_modules(&text)?;
    compare_modules(&allowed, &sources::rust(root)?, &mut report);
    Ok(report)
}

fn compare(drawn: &BTreeMap<String, Vec<String>>, metadata: &Metadata) -> Report {
    let by_id = metadata.by_id();
    let mut report = Report::default();
    let mut real = BTreeSet::new();
    for id in &metadata.workspace_members {
        let from = room(&by_id[id.as_str()].name);
        for to in metadata.needs(id, true) {
            if metadata.workspace_members.contains(to) {
                real.insert((from, room(&by_id[to].name)));
            }
        }
        if from == "core" {
            for to in metadata.needs(id, false) {
                let name = &by_id[to].name;
                if !CORE_NEEDS.contains(&name.as_str()) {
                    report.fault(format_args!(
                        "core depends on {name}; it may need no more than {}",
                        CORE_NEEDS.join(", ")
                    ));
                }
            }
        }
    }
    let drawn: BTreeSet<(&str, &str)> = drawn
        .iter()
        .flat_map(|(from, targets)| targets.iter().map(|to| (from.as_str(), to.as_str())))
        .collect();
    for (from, to) in &real {
        if ENDS.contains(to) {
            report.fault(format_args!(
                "{from} depends on {to}, which must have no dependents"
            ));
        } else if *from != "tests" && !drawn.contains(&(from, to)) {
            report.fault(format_args!(
                "{from} depends on {to}, but ARCHITECTURE.md has no such arrow"
            ));
        }
    }
    for (from, to) in drawn.difference(&real) {
        report.fault(format_args!(
            "ARCHITECTURE.md has an arrow from {from} to {to}, but there is no such dependency"
        ));
    }
    report.line(format_args!("{} arrows between crates", real.len()));
    report
}

/// Compares the modules of `cli` that use the simulator, by themselves or through another one of
/// them, with the list of those that may. The crate root uses all verbs.
fn compare_modules(allowed: &BTreeSet<&str>, sources: &[Source], report: &mut Report) {
    let mut using = BTreeSet::new();
    for source in sources {
        let Some(module) = cli_module(&source.path) else {
            continue;
        };
        let named = named_modules(&source.text);
        let through = allowed
            .iter()
            .find(|name| **name != module && named.contains(*name));
        if source.text.contains("tidegate_sim") || through.is_some() {
            using.insert(module);
        }
        if allowed.contains(module) {
            continue;
        }
        if source.text.contains("tidegate_sim") {
            report.fault(format_args!(
                "{} uses the simulator, but ARCHITECTURE.md does not name `{module}` among the modules that may",
                source.path
            ));
        } else if let Some(through) = through {
            report.fault(format_args!(
                "{} uses `{through}`, which uses the simulator, but ARCHITECTURE.md does not name `{module}` among the modules that may",
                source.path
            ));
        }
    }
    for idle in allowed.iter().filter(|name| !using.contains(**name)) {
        report.fault(format_args!(
            "ARCHITECTURE.md names `{idle}` among the modules that use the simulator, but it does not"
        ));
    }
}

/// Modules of its own crate that a file names after `crate::`, alone or in braces.
fn named_modules(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut named = BTreeSet::new();
    for rest in text.split("crate::").skip(1) {
        if rest.starts_with('{') {
            let group = rest.split_once(';').map_or(rest, |(group, _)| group);
            named.extend(group.split(|c| !is_name(c)));
        } else {
            named.extend(rest.split(|c| !is_name(c)).next());
        }
    }
    named
}

/// Top-level module of `cli` that contains the file at `path`; none for the crate root.
fn cli_module(path: &str) -> Option<&str> {
    let path = path.strip_prefix("crates/cli/src/")?;
    let first = path.split('/').next()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    (!["lib", "main"].contains(&module)).then_some(module)
}

/// Directory name of a crate.
fn room(package: &str) -> &str {
    match package {
        "tidegate" => "cli",
        other => other.strip_prefix("tidegate-").unwrap_or(other),
    }
}

/// Crates on which no crate may depend.
const ENDS: [&str; 3] = ["cli", "tests", "xtask"];

/// External dependencies allowed for the core, dev-dependencies aside.
const CORE_NEEDS: [&str; 8] = [
    "indexmap",
    "libm",
    "prefetch-index",
    "rand_core",
    "rand_pcg",
    "reed-solomon-simd",
    "serde",
    "thiserror",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Workspace members, with ids equal to their names, and their dependencies.
    fn world(needs: &[(&str, &str)]) -> Metadata {
        let ours = [
            "tidegate",
            "tidegate-core",
            "tidegate-sim",
            "tidegate-tests",
        ];
        let package =
            |name: &str| serde_json::json!({ "id": name, "name": name, "version": "1.0.0" });
        let node = |name: &&str| {
            let deps: Vec<_> = needs
                .iter()
                .filter(|(from, _)| from == name)
                .map(|(_, to)| serde_json::json!({ "pkg": to, "dep_kinds": [{ "kind": null }] }))
                .collect();
            serde_json::json!({ "id": name, "deps": deps })
        };
        let foreign = ["libm", "tokio"];
        serde_json::from_value(serde_json::json!({
            "packages": ours.iter().chain(&foreign).map(|name| package(name)).collect::<Vec<_>>(),
            "workspace_members": ours,
            "resolve": { "nodes": ours.iter().map(node).collect::<Vec<_>>() },
        }))
        .unwrap()
    }

    fn compared(needs: &[(&str, &str)]) -> Report {
        let drawn = [("sim", vec!["core"]), ("cli", vec!["sim"])];
        let drawn =
            drawn.map(|(from, to)| (from.to_owned(), to.into_iter().map(str::to_owned).collect()));
        compare(&drawn.into(), &world(needs))
    }

    const AS_DRAWN: [(&str, &str); 4] = [
        ("tidegate", "tidegate-sim"),
        ("tidegate-sim", "tidegate-core"),
        ("tidegate-core", "libm"),
        ("tidegate-tests", "tidegate-core"),
    ];

    #[test]
    fn a_matching_diagram_passes() {
        let report = compared(&AS_DRAWN);
        assert_eq!(
            (report.text.as_str(), report.failed),
            ("3 arrows between crates\n", false)
        );
    }

    #[test]
    fn modules_that_use_the_simulator_are_listed() {
        let faults = |send: &str, sweep: &str| {
            let source = |path: &str, text: &str| Source {
                path: path.to_owned(),
                text: text.to_owned(),
            };
            let sources = [
                source("crates/cli/src/lib.rs", "use crate::sim::run;"),
                source("crates/cli/src/sim.rs", "use tidegate_sim::runner;"),
                source("crates/cli/src/send/report.rs", send),
                source("crates/cli/src/sweep.rs", sweep),
                source("crates/studies/src/bench.rs", "use tidegate_sim::runner;"),
            ];
            let mut report = Report::default();
            compare_modules(&["sim", "sweep"].into(), &sources, &mut report);
            assert_eq!(report.failed, !report.text.is_empty());
            report.text
        };
        let through = "use crate::sim;";
        assert_eq!(faults("use crate::simple::x;", through), "");
        assert!(faults("tidegate_sim::run", through).contains("send/report.rs uses the simulator"));
        assert!(faults("crate::sim::run()", through).contains("send/report.rs uses `sim`"));
        assert!(faults("use crate::{live, sim};", through).contains("send/report.rs uses `sim`"));
        assert!(faults("", "").contains("names `sweep`"));
    }

    #[test]
    fn each_difference_is_named() {
        for (extra, with) in [
            (("tidegate", "tidegate-core"), "cli depends on core, but"),
            (
                ("tidegate-core", "tidegate-sim"),
                "core depends on sim, but",
            ),
            (("tidegate-core", "tokio"), "core depends on tokio; it may"),
            (
                ("tidegate-tests", "tidegate"),
                "tests depends on cli, which must have no dependents",
            ),
        ] {
            let mut needs = AS_DRAWN.to_vec();
            needs.push(extra);
            let report = compared(&needs);
            assert!(report.failed);
            assert!(report.text.contains(with), "{}", report.text);
        }
        let report = compared(&AS_DRAWN[1..]);
        assert!(report.failed);
        assert!(
            report
                .text
                .contains("from cli to sim, but there is no such dependency")
        );
    }
}
