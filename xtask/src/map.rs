//! The map in `ARCHITECTURE.md` against the files.
//!
//! Under `Map` each crate has a heading with the name of its directory. Each item of the list below
//! starts with a module in backticks: `link/queue` is `link/queue.rs` or `link/queue/mod.rs`. Every
//! top-level module of a crate must be named. Deeper modules may be. Every named module must exist.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{Report, architecture, sources};

/// Compares the map with the files under `root`.
pub(crate) fn check(root: &Path) -> anyhow::Result<Report> {
    let text = architecture::read(root)?;
    let paths: Vec<String> = sources::rust(root)?.into_iter().map(|s| s.path).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    Ok(compare(&text, &paths))
}

fn compare(text: &str, paths: &[&str]) -> Report {
    let mut report = Report::default();
    let map = architecture::section(text, "Map").unwrap_or_default();
    let mut named_in_all = 0;
    for room in rooms(paths) {
        let title = room.rsplit_once('/').map_or(room, |(_, name)| name);
        let Some(section) = architecture::section(map, title) else {
            report.fault(format_args!("the map has no heading `{title}` for {room}"));
            continue;
        };
        let named: BTreeSet<&str> = section.lines().filter_map(item).collect();
        let real: BTreeSet<&str> = paths.iter().filter_map(|path| module(room, path)).collect();
        for missing in real
            .iter()
            .filter(|m| !m.contains('/') && !named.contains(*m))
        {
            report.fault(format_args!("{room}: the map does not name `{missing}`"));
        }
        for gone in named.difference(&real) {
            report.fault(format_args!(
                "{room}: the map names `{gone}`, which does not exist"
            ));
        }
        named_in_all += named.len();
    }
    report.line(format_args!("{named_in_all} modules on the map"));
    report
}

/// Directories of the crates.
fn rooms<'a>(paths: &[&'a str]) -> BTreeSet<&'a str> {
    let crates = paths.iter().filter_map(|path| {
        let name = path.strip_prefix("crates/")?.split('/').next()?;
        Some(&path[.."crates/".len() + name.len()])
    });
    let others = paths.iter().filter_map(|path| {
        let name = path.split('/').next()?;
        ["tests", "xtask"].contains(&name).then_some(name)
    });
    crates.chain(others).collect()
}

/// Module named at the start of a list item.
fn item(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("- `")?.split('`').next()
}

/// Module of the crate `room` at `path`; `None` for crate roots and for modules with tests only.
fn module<'a>(room: &str, path: &'a str) -> Option<&'a str> {
    // The test crate has no `src`.
    let source = if room == "tests" { "tests/" } else { "src/" };
    let path = path
        .strip_prefix(room)?
        .strip_prefix('/')?
        .strip_prefix(source)?;
    let name = path.strip_suffix(".rs")?;
    let name = name.strip_suffix("/mod").unwrap_or(name);
    let last = name.rsplit('/').next()?;
    (!["lib", "main", "testing"].contains(&last) && (last != "tests")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [&str; 6] = [
        "crates/core/src/lib.rs",
        "crates/core/src/link/mod.rs",
        "crates/core/src/link/queue.rs",
        "crates/core/src/link/tests.rs",
        "crates/core/tests/all.rs",
        "tests/tests/parity.rs",
    ];

    fn compared(core: &str, tests: &str) -> Report {
        compare(
            &format!("# Map\n## core\n{core}\n## tests\n{tests}\n# End\n"),
            &PATHS,
        )
    }

    #[test]
    fn a_correct_map_passes() {
        let report = compared(
            "- `link`: hops\n  - `link/queue`: waiting",
            "- `parity`: both",
        );
        assert_eq!(
            (report.text.as_str(), report.failed),
            ("3 modules on the map\n", false)
        );
        assert!(!compared("- `link`: hops", "- `parity`: both").failed);
    }

    #[test]
    fn missing_and_removed_modules_are_named() {
        let fails = |core: &str, tests: &str, with: &str| {
            let report = compared(core, tests);
            assert!(report.failed);
            assert!(report.text.contains(with), "{}", report.text);
        };
        fails(
            "",
            "- `parity`",
            "crates/core: the map does not name `link`",
        );
        fails("- `link`", "", "tests: the map does not name `parity`");
        fails(
            "- `link`\n- `wire`",
            "- `parity`",
            "names `wire`, which does not exist",
        );
        fails("- `link/tests`", "- `parity`", "names `link/tests`");
        let report = compare("# Map\n## core\n- `link`\n", &PATHS);
        assert!(
            report.text.contains("no heading `tests` for tests"),
            "{}",
            report.text
        );
    }
}
