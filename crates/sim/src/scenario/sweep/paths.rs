//! Paths of a swept key, and their positions in the tree of a file.

use core::ops::Range;
use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::scenario::error::Fault;

/// The paths of a key, which share its values.
pub(super) fn of_key(key: &str) -> Result<Vec<Vec<&str>>, Fault> {
    let range = |why: String, fix: &str| Fault::Range {
        why,
        fix: fix.to_owned(),
    };
    let path = |path: &str| -> Result<(), Fault> {
        let mut parts = path.split('.');
        let (first, length) = (parts.next().unwrap_or_default(), path.split('.').count());
        if path
            .split('.')
            .any(|part| part.trim() != part || part.is_empty())
        {
            return Err(range(
                format!("\"{path}\" is not a valid path"),
                "write names joined by dots, as \"link.uplink.delay\"",
            ));
        }
        match first {
            list if LISTS.contains(&list) && length < 3 => Err(range(
                format!("\"{path}\" names no key of a {list}"),
                &format!("write \"{list}.NAME.KEY\""),
            )),
            "seed" | "sweep" => Err(range(
                format!("\"{path}\" cannot be swept"),
                "write seeds = 20, or the list of seeds",
            )),
            "name" => Err(range(
                "the name of the scenario cannot be swept".to_owned(),
                "remove the line",
            )),
            _ => Ok(()),
        }
    };
    let all: Vec<&str> = key.split(',').map(str::trim).collect();
    for (i, one) in all.iter().enumerate() {
        path(one)?;
        if all[..i].contains(one) {
            return Err(range(format!("\"{one}\" occurs twice"), "list it once"));
        }
    }
    Ok(all.iter().map(|path| path.split('.').collect()).collect())
}

/// Sets `value` at `path`; `at` is the position of its key in the file. Missing tables are created,
/// and the reader checks whether they are allowed.
pub(super) fn put<'a>(
    tree: &mut DeTable<'a>,
    path: &[&'a str],
    at: &Range<usize>,
    value: &Spanned<DeValue<'a>>,
) -> Result<(), Fault> {
    let listed = LISTS.into_iter().find(|list| path[0] == *list);
    let (mut node, rest) = match (listed, path) {
        (Some(list), [_, name, rest @ ..]) => (named(tree, list, name)?, rest),
        (_, [key, rest @ ..]) if !rest.is_empty() => (entry(tree, key, at), rest),
        _ => {
            set(tree, path[0], at, value.clone());
            return Ok(());
        }
    };
    let mut above = path[path.len() - rest.len() - 1];
    for (i, key) in rest.iter().enumerate() {
        let is_last = i + 1 == rest.len();
        let form = match node {
            DeValue::Table(table) if is_last => {
                set(table, key, at, value.clone());
                return Ok(());
            }
            DeValue::Table(table) => {
                node = entry(table, key, at);
                above = key;
                continue;
            }
            DeValue::Array(list) => {
                let length = list.len();
                let found = key
                    .parse()
                    .ok()
                    .and_then(|place: usize| list.get_mut(place));
                let Some(item) = found else {
                    return Err(Fault::Range {
                        why: format!("\"{above}\" is a list of {length}, and has no \"{key}\""),
                        fix: format!(
                            "write an index of the list, from 0, or sweep all of \"{above}\""
                        ),
                    });
                };
                if is_last {
                    *item = value.clone();
                    return Ok(());
                }
                node = item.get_mut();
                above = key;
                continue;
            }
            DeValue::String(_) => "a text",
            _ => "a single value",
        };
        return Err(Fault::Conflict {
            why: format!("\"{above}\" is {form}, and has no key \"{key}\""),
            fix: format!("write it as a table where it is now, or sweep all of \"{above}\""),
        });
    }
    Ok(())
}

/// The entry of the list `what` with this name.
fn named<'t, 'a>(
    tree: &'t mut DeTable<'a>,
    what: &'static str,
    name: &str,
) -> Result<&'t mut DeValue<'a>, Fault> {
    let name_of = |item: &Spanned<DeValue<'_>>| {
        let value = item.get_ref().get("name")?;
        value.get_ref().as_str().map(str::to_owned)
    };
    let Some(DeValue::Array(list)) = tree.get_mut(what).map(Spanned::get_mut) else {
        return Err(Fault::Name {
            what,
            value: name.to_owned(),
            known: Vec::new(),
        });
    };
    let names: Vec<Option<String>> = list.iter().map(name_of).collect();
    let place = names
        .iter()
        .position(|known| known.as_deref() == Some(name));
    match place.and_then(|place| list.get_mut(place)) {
        Some(item) => Ok(item.get_mut()),
        None => Err(Fault::Name {
            what,
            value: name.to_owned(),
            known: names.into_iter().flatten().collect(),
        }),
    }
}

/// The value of `key`; a missing value is created as an empty table.
fn entry<'t, 'a>(
    table: &'t mut DeTable<'a>,
    key: &'a str,
    at: &Range<usize>,
) -> &'t mut DeValue<'a> {
    if !table.contains_key(key) {
        let empty = Spanned::new(at.clone(), DeValue::Table(DeTable::new()));
        set(table, key, at, empty);
    }
    let value = table
        .get_mut(key)
        .expect("the key exists or has just been inserted");
    value.get_mut()
}

/// Replaces key and value. Removal is necessary because a map keeps the existing key with its
/// position.
fn set<'a>(table: &mut DeTable<'a>, key: &'a str, at: &Range<usize>, value: Spanned<DeValue<'a>>) {
    table.remove(key);
    table.insert(Spanned::new(at.clone(), Cow::Borrowed(key)), value);
}

/// Lists whose entries are addressed by name.
const LISTS: [&str; 4] = ["link", "flow", "baseline", "aggregation"];
