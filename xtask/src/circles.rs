//! Circles of modules: siblings that use each other, directly or through further siblings.
//!
//! A path that begins with `crate`, `self` or `super` leads to a module. Where the ways from the
//! root of the crate to the file and to that module part, the one sibling uses the other. A module
//! and its parent may use each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::tokens::Token;

/// Segments of each path of a file that begins with `crate`, `self` or `super`.
pub(crate) fn paths(tokens: &[Token<'_>]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let is_root = ["crate", "self", "super"].contains(&tokens[at].text);
        let is_first = at == 0 || tokens[at - 1].text != "::";
        if is_root && is_first && tokens.get(at + 1).is_some_and(|token| token.text == "::") {
            tree(tokens, at, Vec::new(), &mut found);
        }
    }
    found
}

/// Adds the paths of the `use` tree at `at`, which continue `path`. Returns the index behind it.
fn tree(
    tokens: &[Token<'_>],
    mut at: usize,
    mut path: Vec<String>,
    found: &mut Vec<Vec<String>>,
) -> usize {
    while let Some(token) = tokens.get(at) {
        if token.text == "{" {
            at += 1;
            while tokens.get(at).is_some_and(|token| token.text != "}") {
                at = tree(tokens, at, path.clone(), found).max(at + 1);
            }
            return at + 1;
        }
        if token.is_word() {
            path.push(token.text.to_owned());
        }
        at += 1;
        if tokens.get(at).is_none_or(|token| token.text != "::") {
            break;
        }
        at += 1;
    }
    found.push(path);
    // A new name, and the comma.
    while tokens.get(at).is_some_and(|t| {
        t.text == "as" || t.text == "," || t.is_word() && tokens[at - 1].text == "as"
    }) {
        at += 1;
    }
    at
}

/// Circles of one crate, whose files are given with the segments of their modules and with their
/// [`paths`]: the parent and the siblings.
pub(crate) fn circles(files: &[(Vec<&str>, &[Vec<String>])]) -> Vec<(String, Vec<String>)> {
    let modules: BTreeSet<Vec<&str>> = files.iter().map(|(module, _)| module.clone()).collect();
    let mut uses: BTreeMap<Vec<&str>, Uses<'_>> = BTreeMap::new();
    for (module, paths) in files {
        for path in *paths {
            let target = target(module, path, &modules);
            let parts = module.iter().zip(&target).take_while(|(a, b)| a == b);
            let common = parts.count();
            if let (Some(from), Some(to)) = (module.get(common), target.get(common)) {
                let siblings = uses.entry(module[..common].to_vec()).or_default();
                siblings.entry(from).or_default().insert(to);
            }
        }
    }
    let mut found = Vec::new();
    for (parent, uses) in &uses {
        let reached = uses.keys().map(|from| (*from, reached(from, uses)));
        let reached: BTreeMap<&str, BTreeSet<&str>> = reached.collect();
        for from in reached.keys() {
            let is_mutual = |to: &&&str| reached.get(**to).is_some_and(|back| back.contains(from));
            let circle: Vec<&str> = reached[from].iter().filter(is_mutual).copied().collect();
            if circle.first() == Some(from) {
                let circle = circle.into_iter().map(str::to_owned).collect();
                found.push((parent.join("/"), circle));
            }
        }
    }
    found
}

/// The siblings that a module uses.
type Uses<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Module to which a path in `module` leads.
fn target<'a>(
    module: &[&'a str],
    path: &'a [String],
    modules: &BTreeSet<Vec<&'a str>>,
) -> Vec<&'a str> {
    let mut at = match path[0].as_str() {
        "crate" => Vec::new(),
        _ => module.to_vec(),
    };
    for segment in path {
        match segment.as_str() {
            "crate" | "self" => continue,
            "super" => {
                at.pop();
                continue;
            }
            name => at.push(name),
        }
        if !modules.contains(&at) {
            at.pop();
            break;
        }
    }
    at
}

/// All siblings that `from` uses, directly or not.
fn reached<'a>(from: &'a str, uses: &Uses<'a>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        let next = uses.get(at).into_iter().flatten();
        open.extend(next.filter(|to| found.insert(**to)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::tokens;

    fn found(files: &[(&'static str, &str)]) -> Vec<(String, Vec<String>)> {
        let paths: Vec<_> = files.iter().map(|(_, text)| paths(&tokens(text))).collect();
        let modules = files.iter().map(|(module, _)| match *module {
            "" => Vec::new(),
            module => module.split('/').collect(),
        });
        let files: Vec<_> = modules
            .zip(&paths)
            .map(|(m, p)| (m, p.as_slice()))
            .collect();
        circles(&files)
    }

    fn circle(parent: &str, members: &[&str]) -> (String, Vec<String>) {
        let members = members.iter().map(|name| (*name).to_owned());
        (parent.to_owned(), members.collect())
    }

    #[test]
    fn siblings_that_use_each_other_are_a_circle() {
        let both = [("a", "use crate::b::B;"), ("b", "fn f() { super::a::g() }")];
        assert_eq!(found(&both), [circle("", &["a", "b"])]);
        let one = [("a", "use crate::b::B;"), ("b", "use crate::c;"), ("c", "")];
        assert_eq!(found(&one), []);
        let three = [
            ("x", ""),
            ("x/a", "use super::b;"),
            ("x/b", "use crate::x::{c::{self, C}, d};"),
            ("x/c", "use super::{d::D as E, a};"),
            ("x/d", ""),
        ];
        assert_eq!(found(&three), [circle("x", &["a", "b", "c"])]);
    }

    #[test]
    fn files_of_two_folders_are_a_circle_of_the_folders() {
        let files = [
            ("a", ""),
            ("a/one", "use crate::b::two::T;"),
            ("b", ""),
            ("b/two", ""),
            ("b/three", "use crate::a::one;"),
        ];
        assert_eq!(found(&files), [circle("", &["a", "b"])]);
    }

    #[test]
    fn parents_and_children_may_use_each_other() {
        let files = [
            ("", "use self::a::A;"),
            ("a", "use self::b::B; use crate::Root;"),
            ("a/b", "use super::A; use crate::a::X;"),
        ];
        assert_eq!(found(&files), []);
    }
}
