//! Sizes of files and functions in lines of code.
//!
//! A line of code is neither blank nor a comment, nor part of a `#[cfg(test)]` module at the end of
//! a file. A function spans from its `fn` to the closing brace at the same indentation, which
//! rustfmt guarantees.

use std::fmt::Write as _;
use std::path::Path;

use crate::Report;
use crate::sources;

/// Measures every Rust file under `root`.
pub(crate) fn check(root: &Path) -> anyhow::Result<Report> {
    let mut report = Report {
        text: String::new(),
        failed: false,
    };
    let files = sources::rust(root)?;
    for file in &files {
        judge(&file.path, &file.text, &mut report);
    }
    writeln!(report.text, "{} files measured", files.len())?;
    Ok(report)
}

fn judge(path: &str, text: &str, report: &mut Report) {
    let lines = product(text);
    let mut note = |what: &str, length: usize, [remark, limit]: [usize; 2]| {
        if length > remark {
            let verdict = if length > limit { "too long" } else { "long" };
            report.failed |= length > limit;
            writeln!(report.text, "{verdict:8} {length:5} {what}")
                .expect("writing to a string succeeds");
        }
    };
    note(path, lines.iter().filter(|l| is_code(l)).count(), FILE);
    for (name, length) in functions(&lines) {
        note(&format!("{path} fn {name}"), length, FUNCTION);
    }
}

/// Lines before the tests at the end of the file.
fn product(text: &str) -> Vec<&str> {
    text.lines()
        .take_while(|line| *line != "#[cfg(test)]")
        .collect()
}

fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

/// Name and length of each function, from its `fn` to its closing brace.
fn functions(lines: &[&str]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indent = &line[..line.len() - line.trim_start().len()];
        let closes = |l: &&str| {
            l.strip_prefix(indent)
                .is_some_and(|l| l == "}" || l.ends_with(';') && !l.starts_with(' '))
        };
        let body = &lines[first..];
        let last = body.iter().skip(1).position(closes).map_or(0, |n| n + 1);
        // A function on one line and a declaration without a body end on their first line.
        let ends_at_once = line.ends_with('}') || line.ends_with(';');
        let length = if ends_at_once {
            1
        } else {
            body[..=last].iter().filter(|l| is_code(l)).count()
        };
        found.push((name.to_owned(), length));
    }
    found
}

/// Name of the function that starts on this line.
fn function_name(line: &str) -> Option<&str> {
    let mut words = line.trim_start();
    loop {
        if let Some(rest) = words.strip_prefix("fn ") {
            return rest.split(['(', '<']).next();
        }
        let (word, rest) = words.split_once(' ')?;
        let qualifies = matches!(
            word,
            "pub" | "const" | "async" | "unsafe" | "extern" | "\"C\""
        ) || word.starts_with("pub(");
        if !qualifies {
            return None;
        }
        words = rest;
    }
}

/// Limits: a warning above the first, an error above the second.
const FILE: [usize; 2] = [500, 700];
const FUNCTION: [usize; 2] = [100, 150];

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Report {
        let mut report = Report {
            text: String::new(),
            failed: false,
        };
        judge("a.rs", text, &mut report);
        report
    }

    #[test]
    fn functions_are_measured_to_their_brace() {
        let text = "impl A {\n    pub(crate) const fn b<T>(\n        t: T,\n    ) -> u8 {\n        // why\n\n        if c {\n            d();\n        }\n    }\n    fn e(&self) {}\n    fn f(&self);\n}\nlet g = \"fn h\";\n";
        let lines: Vec<&str> = text.lines().collect();
        let expected = [("b", 7), ("e", 1), ("f", 1)];
        let found = functions(&lines);
        let found: Vec<(&str, usize)> = found.iter().map(|(n, l)| (n.as_str(), *l)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn long_code_is_a_warning_and_longer_code_an_error() {
        let file = |lines: usize| "a();\n".repeat(lines);
        assert_eq!(report(&file(500)).text, "");
        let long = report(&file(501));
        assert_eq!(
            (long.text.as_str(), long.failed),
            ("long       501 a.rs\n", false)
        );
        assert!(report(&file(701)).failed);
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "    a();\n".repeat(lines));
        assert_eq!(report(&function(98)).text, "");
        assert_eq!(report(&function(99)).text, "long       101 a.rs fn f\n");
        assert!(report(&function(149)).failed);
    }

    #[test]
    fn comments_blanks_and_tests_do_not_count() {
        let text = format!(
            "{}#[cfg(test)]\n{}",
            "// a\n\n".repeat(900),
            "a();\n".repeat(900)
        );
        assert_eq!(report(&text).text, "");
    }
}
