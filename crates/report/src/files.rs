//! Links from the page to the files of run folders.

use core::fmt::Write as _;
use std::fs;
use std::path::Path;

use tidegate_record::{Run, RunFile};

use super::svg::escape;

/// List of the files of a run, linked from a page in the folder `out`. Empty if the folder has no
/// files, as of a run in memory.
pub(super) fn list(run: &Run, out: &Path, id: &str) -> String {
    let files = run.files();
    let (Ok(page), Ok(folder)) = (fs::canonicalize(out), fs::canonicalize(&run.dir)) else {
        return String::new();
    };
    if files.is_empty() {
        return String::new();
    }
    let folder = relative(&page, &folder);
    let mut html = format!(
        "<h3 id=\"{id}\">Files</h3><p class=\"under\">All numbers of this page are in these files, \
         with a line per:</p><ul class=\"files\">"
    );
    let anchor = |file: &RunFile| {
        let href = format!("{folder}{}", encoded(&file.path));
        let (href, name) = (escape(&href), escape(file.name));
        format!(
            "<a href=\"{href}\">{name}</a> <span>{}</span>",
            file.subject
        )
    };
    let of_run = files.iter().filter(|file| file.flow.is_none());
    for file in of_run {
        let _ = write!(html, "<li>{}</li>", anchor(file));
    }
    html.push_str("</ul>");
    let mut flows: Vec<(&str, Vec<&RunFile>)> = Vec::new();
    for file in &files {
        let Some(flow) = file.flow.as_deref() else {
            continue;
        };
        match flows.last_mut() {
            Some((name, files)) if *name == flow => files.push(file),
            _ => flows.push((flow, vec![file])),
        }
    }
    for (flow, files) in flows.iter().take(MAX_FLOWS) {
        let _ = write!(html, "<h4>{}</h4><ul class=\"files\">", escape(flow));
        for file in files {
            let _ = write!(html, "<li>{}</li>", anchor(file));
        }
        html.push_str("</ul>");
    }
    if flows.len() > MAX_FLOWS {
        let _ = write!(
            html,
            "<p class=\"under\">The tables of {} more flows are in <a href=\"{}\">flows</a>.</p>",
            flows.len() - MAX_FLOWS,
            escape(&format!("{folder}flows/"))
        );
    }
    html
}

/// Prefix of links from the folder `from` to files of the folder `to`: relative, so that both can
/// be moved together. Empty for the same folder. Both paths are canonical.
fn relative(from: &Path, to: &Path) -> String {
    let (mut from, mut to) = (from.components().peekable(), to.components().peekable());
    while from.peek().is_some() && from.peek() == to.peek() {
        from.next();
        to.next();
    }
    let mut path = "../".repeat(from.count());
    for part in to {
        path.push_str(&encoded(&part.as_os_str().to_string_lossy()));
        path.push('/');
    }
    path
}

/// Percent-encodes all bytes that are not unreserved in a URI (RFC 3986 section 2.3), except `/`.
fn encoded(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Maximum number of flows with links of their own.
const MAX_FLOWS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_to_the_page() {
        let of = |from, to| relative(Path::new(from), Path::new(to));
        assert_eq!(of("/a/runs/one", "/a/runs/one"), "");
        assert_eq!(of("/a/compared", "/a/runs/one"), "../runs/one/");
        assert_eq!(
            of("/a", "/a/with space & more"),
            "with%20space%20%26%20more/"
        );
    }
}
