//! Links of Markdown files to other files of the repository, and to headings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::Context as _;

use crate::Report;

/// Follows the relative links of every Markdown file under `root`.
pub(crate) fn check(root: &Path) -> anyhow::Result<Report> {
    let mut files = BTreeMap::new();
    collect(root, Path::new(""), &mut files)?;
    Ok(follow(&files, &|path| root.join(path).exists()))
}

/// Texts by path.
type Files = BTreeMap<PathBuf, String>;

fn collect(root: &Path, directory: &Path, files: &mut Files) -> anyhow::Result<()> {
    let place = root.join(directory);
    let listing = fs::read_dir(&place).with_context(|| place.display().to_string())?;
    for entry in listing {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let path = directory.join(name.as_ref());
        if entry.file_type()?.is_dir() {
            // Hidden directories, what is built, and what runs left behind.
            if !name.starts_with('.') && !["target", "runs"].contains(&name.as_ref()) {
                collect(root, &path, files)?;
            }
        } else if path.extension().is_some_and(|e| e == "md") {
            let text = fs::read_to_string(entry.path())
                .with_context(|| entry.path().display().to_string())?;
            files.insert(path, text);
        }
    }
    Ok(())
}

fn follow(files: &Files, exists: &dyn Fn(&Path) -> bool) -> Report {
    let mut report = Report::default();
    let mut followed = 0;
    for (path, text) in files {
        for link in links(text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            followed += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let Some(target) = resolve(path, file) else {
                report.fault(format_args!("{}: {link} leads out of here", path.display()));
                continue;
            };
            if !exists(&target) {
                report.fault(format_args!("{}: {link} does not exist", path.display()));
            } else if !heading.is_empty()
                && files
                    .get(&target)
                    .is_some_and(|t| !anchors(t).contains(heading))
            {
                report.fault(format_args!(
                    "{}: {link} names a heading that is not there",
                    path.display()
                ));
            }
        }
    }
    report.line(format_args!(
        "{followed} links in {} files followed",
        files.len()
    ));
    report
}

/// The path of `link` as written in the file `from`.
fn resolve(from: &Path, link: &str) -> Option<PathBuf> {
    if link.is_empty() {
        return Some(from.to_owned());
    }
    let mut path = from.parent()?.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// Targets of links and sources of pictures, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        // Every second piece stands between backticks.
        let line: String = line.split('`').step_by(2).collect();
        for (begins, ends) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
            for rest in line.split(begins).skip(1) {
                if let Some((target, _)) = rest.split_once(ends) {
                    // A title may follow.
                    found.extend(target.split_whitespace().next().map(str::to_owned));
                }
            }
        }
        if let Some((name, target)) = line.split_once("]: ")
            && name.starts_with('[')
        {
            found.extend(target.split_whitespace().next().map(str::to_owned));
        }
    }
    found
}

/// The lines outside of fences.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// What links to headings may say, in the way of web pages that show repositories.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|line| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.trim())
    });
    let mut found = BTreeSet::new();
    for heading in headings {
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        found.insert(kept.collect::<String>().to_lowercase().replace(' ', "-"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(text: &str) -> Report {
        let files = Files::from([
            ("docs/a.md".into(), text.to_owned()),
            ("README.md".into(), "# What it is, and why\n".to_owned()),
        ]);
        let exists = |path: &Path| {
            ["docs/a.md", "README.md", "docs/b.png"]
                .iter()
                .any(|there| path == Path::new(there))
        };
        follow(&files, &exists)
    }

    #[test]
    fn what_leads_somewhere_passes() {
        for text in [
            "[a](a.md) and [b](./b.png \"title\"), [c](../README.md)",
            "[a](../README.md#what-it-is-and-why)",
            "## One\n[a](#one)",
            "<img src=\"b.png\">\n[a]: b.png",
            "[a](https://example.org/x) [b](mailto:a@example.org)",
            "`[a](none.md)`\n```\n[a](none.md)\n```\n",
        ] {
            let report = followed(text);
            assert!(!report.failed, "{}", report.text);
        }
        assert!(
            followed("[a](a.md) [b](b.png)")
                .text
                .contains("2 links in 2 files")
        );
    }

    #[test]
    fn what_leads_nowhere_fails() {
        for (text, with) in [
            ("[a](none.md)", "docs/a.md: none.md does not exist"),
            ("![a](none.png)", "none.png does not exist"),
            ("<img src=\"none.png\">", "none.png does not exist"),
            ("[a]: none.md", "none.md does not exist"),
            ("[a](../README.md#why)", "names a heading that is not there"),
            (
                "```\n# one\n```\n[a](#one)",
                "names a heading that is not there",
            ),
            ("[a](../../b.md)", "leads out of here"),
            ("[a](/b.md)", "leads out of here"),
        ] {
            let report = followed(text);
            assert!(report.failed, "{text}");
            assert!(report.text.contains(with), "{}", report.text);
        }
    }
}
