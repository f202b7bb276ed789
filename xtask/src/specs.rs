//! Citations: `//= ID` beside the code of a requirement, `//= ID (test)` beside its test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::Report;
use crate::sources::{self, Source};

/// Compares `specs/*.toml` with the citations in the sources under `root`.
pub(crate) fn check(root: &Path) -> anyhow::Result<Report> {
    let mut specs = Vec::new();
    for path in sources::with_extension(&root.join("specs"), "toml")? {
        let name = path.display().to_string();
        let text = fs::read_to_string(&path).with_context(|| name.clone())?;
        specs.push(parse(&text).with_context(|| name)?);
    }
    Ok(compare(&specs, &citations(&sources::rust(root)?)))
}

/// One document of `specs/`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    title: String,
    #[serde(default)]
    requirement: Vec<Requirement>,
    #[serde(default)]
    exception: Vec<Exception>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    id: String,
    section: String,
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    id: String,
    section: String,
    text: String,
    reason: String,
}

/// Locations of the citations of an id, as `path:line`.
#[derive(Debug, Default)]
struct Cited {
    code: Vec<String>,
    tests: Vec<String>,
}

fn parse(text: &str) -> anyhow::Result<Spec> {
    Ok(toml::from_str(text)?)
}

fn citations(sources: &[Source]) -> BTreeMap<String, Cited> {
    let mut found: BTreeMap<String, Cited> = BTreeMap::new();
    for source in sources {
        for (line, text) in source.text.lines().enumerate() {
            let Some(cited) = text.trim_start().strip_prefix("//= ") else {
                continue;
            };
            let place = format!("{}:{}", source.path, line + 1);
            match cited.trim().strip_suffix(" (test)") {
                Some(id) => found.entry(id.into()).or_default().tests.push(place),
                None => found
                    .entry(cited.trim().into())
                    .or_default()
                    .code
                    .push(place),
            }
        }
    }
    found
}

fn compare(specs: &[Spec], cited: &BTreeMap<String, Cited>) -> Report {
    let mut text = String::new();
    let mut faults = Vec::new();
    let mut known = BTreeMap::new();
    for spec in specs {
        let (mut coded, mut tested) = (0, 0);
        let _ = writeln!(text, "{}", spec.title);
        for r in &spec.requirement {
            let (code, tests) = cited
                .get(&r.id)
                .map_or((0, 0), |c| (c.code.len(), c.tests.len()));
            coded += usize::from(code > 0);
            tested += usize::from(tests > 0);
            if code == 0 {
                faults.push(format!("{}: no code cites it", r.id));
            }
            let mark = |n: usize, word: &'static str| if n > 0 { word } else { "-" };
            let _ = writeln!(
                text,
                "  {:7} {:4} {:4}  {:34} {}",
                r.section,
                mark(code, "code"),
                mark(tests, "test"),
                r.id,
                r.text
            );
        }
        for e in &spec.exception {
            if e.reason.trim().is_empty() {
                faults.push(format!("{}: the exception gives no reason", e.id));
            }
            let _ = writeln!(
                text,
                "  {:7} left out   {:34} {} Reason: {}",
                e.section, e.id, e.text, e.reason
            );
        }
        let all = spec.requirement.len();
        let _ = writeln!(
            text,
            "  {all} requirements: {coded} with code, {tested} with a test; {} left out\n",
            spec.exception.len()
        );
        let ids = spec.requirement.iter().map(|r| (&r.id, true));
        for (id, wanted) in ids.chain(spec.exception.iter().map(|e| (&e.id, false))) {
            if known.insert(id.as_str(), wanted).is_some() {
                faults.push(format!("{id}: listed twice"));
            }
        }
    }
    faults.extend(strays(cited, &known));
    for fault in &faults {
        let _ = writeln!(text, "{fault}");
    }
    Report {
        text,
        failed: !faults.is_empty(),
    }
}

/// Citations of ids that must not be cited. `known` maps each id to whether it may be cited.
fn strays<'a>(
    cited: &'a BTreeMap<String, Cited>,
    known: &'a BTreeMap<&str, bool>,
) -> impl Iterator<Item = String> + 'a {
    cited.iter().filter_map(|(id, places)| {
        let why = match known.get(id.as_str()) {
            Some(true) => return None,
            Some(false) => "left out, yet",
            None => "in no file of specs/,",
        };
        let places = places.code.iter().chain(&places.tests);
        let places: Vec<&str> = places.map(String::as_str).collect();
        Some(format!("{id}: {why} cited at {}", places.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(spec: &str, code: &str) -> Report {
        let source = Source {
            path: "a.rs".into(),
            text: code.into(),
        };
        compare(&[parse(spec).unwrap()], &citations(&[source]))
    }

    const SPEC: &str = "
        title = 'RFC 1'
        requirement = [{ id = 'rfc1-2', section = '2', text = 'Go.' }]
        exception = [{ id = 'rfc1-3', section = '3', text = 'Stop.', reason = 'No brakes.' }]
    ";

    #[test]
    fn citations_of_code_and_tests_are_distinguished() {
        let report = judge(
            SPEC,
            "    //= rfc1-2\nfn go() {}\n//= rfc1-2 (test)\n#[test]",
        );
        assert!(!report.failed, "{}", report.text);
        assert!(
            report
                .text
                .contains("1 requirements: 1 with code, 1 with a test; 1 left out")
        );
        let report = judge(SPEC, "//= rfc1-2\n");
        assert!(!report.failed);
        assert!(report.text.contains("1 with code, 0 with a test"));
    }

    #[test]
    fn missing_unknown_and_unjustified_ids_are_reported() {
        let fails = |spec: &str, code: &str, with: &str| {
            let report = judge(spec, code);
            assert!(report.failed);
            assert!(report.text.contains(with), "{}", report.text);
        };
        fails(SPEC, "//= rfc1-2 (test)", "rfc1-2: no code cites it");
        fails(
            SPEC,
            "//= rfc1-2\n//= rfc1-9",
            "rfc1-9: in no file of specs/, cited at a.rs:2",
        );
        fails(
            SPEC,
            "//= rfc1-2\n//= rfc1-3",
            "rfc1-3: left out, yet cited",
        );
        let reasonless = SPEC.replace("No brakes.", " ");
        fails(
            &reasonless,
            "//= rfc1-2",
            "rfc1-3: the exception gives no reason",
        );
        let twice = SPEC.replace("rfc1-3", "rfc1-2");
        fails(&twice, "//= rfc1-2", "rfc1-2: listed twice");
        assert!(parse("title = 'x'\nrequirements = []").is_err());
    }

    #[test]
    fn a_citation_is_a_separate_line() {
        let text = "let x = 1; //= rfc1-2\n// = rfc1-2\nlet s = \"//= rfc1-9\";";
        assert!(judge(SPEC, text).failed, "none of these cites");
        let source = Source {
            path: "a.rs".into(),
            text: text.into(),
        };
        assert!(citations(&[source]).is_empty());
    }
}
