//! Reads the parts of `ARCHITECTURE.md` that the checks use.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// The text of the file.
pub(crate) fn read(root: &Path) -> anyhow::Result<String> {
    let path = root.join("ARCHITECTURE.md");
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Section of `text` under the heading `title`, up to the next heading of the same or a higher
/// level.
pub(crate) fn section<'a>(text: &'a str, title: &str) -> Option<&'a str> {
    let mut start = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let marks = line.bytes().take_while(|b| *b == b'#').count();
        if marks > 0 {
            match start {
                Some((from, level)) if marks <= level => return Some(&text[from..at]),
                None if line[marks..].trim() == title => start = Some((at + line.len(), marks)),
                _ => {}
            }
        }
        at += line.len();
    }
    start.map(|(from, _)| &text[from..])
}

/// Edges of the diagram under `Arrows`: the allowed dependencies of each crate.
pub(crate) fn arrows(text: &str) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let section = section(text, "Arrows").context("ARCHITECTURE.md has no heading `Arrows`")?;
    let drawing = section
        .split_once("```mermaid\n")
        .and_then(|(_, rest)| rest.split_once("```"))
        .context("ARCHITECTURE.md has no diagram (```mermaid) under `Arrows`")?
        .0;
    let mut arrows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in drawing.lines() {
        if let Some((from, to)) = line.trim().split_once(" --> ") {
            for from in from.split(" & ") {
                let targets = to.split(" & ").map(str::to_owned);
                arrows.entry(from.to_owned()).or_default().extend(targets);
            }
        }
    }
    Ok(arrows)
}

/// Modules of `cli` that may use the simulator: the names in the line that lists them.
pub(crate) fn simulating_modules(text: &str) -> anyhow::Result<BTreeSet<&str>> {
    let list = section(text, "Arrows")
        .and_then(|arrows| {
            arrows
                .lines()
                .find_map(|line| line.strip_prefix(SIMULATING))
        })
        .with_context(|| format!("ARCHITECTURE.md has no line `{SIMULATING}` under `Arrows`"))?;
    // Every second part is within backticks; the list ends with the sentence.
    let list = list.split_once('.').map_or(list, |(list, _)| list);
    Ok(list.split('`').skip(1).step_by(2).collect())
}

const SIMULATING: &str = "Modules of `cli` that use `sim`:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_where_the_next_of_its_level_begins() {
        let text = "# A\na\n## B\nb\n### C\nc\n## D\nd\n";
        assert_eq!(section(text, "B"), Some("b\n### C\nc\n"));
        assert_eq!(section(text, "C"), Some("c\n"));
        assert_eq!(section(text, "D"), Some("d\n"));
        assert_eq!(section(text, "E"), None);
    }

    #[test]
    fn modules_that_use_the_simulator_are_a_list() {
        let text = "## Arrows\nModules of `cli` that use `sim`: `lab`, `sim`. Not `send`.\n";
        assert_eq!(simulating_modules(text).unwrap(), ["lab", "sim"].into());
        assert!(simulating_modules("## Arrows\nnone\n").is_err());
    }

    #[test]
    fn arrows_may_share_a_line() {
        let text =
            "## Arrows\n```mermaid\ngraph TD\n  sim & live --> core\n  cli --> sim & live\n```\n";
        let arrows = arrows(text).unwrap();
        assert_eq!(arrows["sim"], ["core"]);
        assert_eq!(arrows["live"], ["core"]);
        assert_eq!(arrows["cli"], ["sim", "live"]);
        assert!(super::arrows("## Arrows\nnone\n").is_err());
    }
}
