//! Packages of the workspace and their dependencies, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// Output of `cargo metadata`.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) resolve: Resolve,
    pub(crate) workspace_members: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// SPDX expression.
    pub(crate) license: Option<String>,
    /// Native library that the package links to.
    pub(crate) links: Option<String>,
    /// `None` for packages of the repository.
    pub(crate) source: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    /// `None` for a normal dependency; otherwise `build` or `dev`.
    kind: Option<String>,
}

impl Metadata {
    /// Reads the metadata of the workspace at `root`, with all features, for `target`.
    pub(crate) fn read(root: &Path, target: &str) -> anyhow::Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version=1", "--locked"])
            .args(["--all-features", "--filter-platform", target])
            .current_dir(root)
            .output()
            .context("cannot start cargo")?;
        if !output.status.success() {
            bail!(
                "cargo metadata failed: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Packages by id.
    pub(crate) fn by_id(&self) -> BTreeMap<&str, &Package> {
        self.packages.iter().map(|p| (p.id.as_str(), p)).collect()
    }

    /// Ids of the direct dependencies of the package `id`; with `dev`, dev-dependencies included.
    pub(crate) fn needs<'a>(&'a self, id: &str, dev: bool) -> BTreeSet<&'a str> {
        let node = self.resolve.nodes.iter().find(|node| node.id == id);
        let counts = |d: &&Dependency| {
            d.dep_kinds
                .iter()
                .any(|k| dev || k.kind.as_deref() != Some("dev"))
        };
        let all = node.into_iter().flat_map(|node| &node.deps).filter(counts);
        all.map(|d| d.pkg.as_str()).collect()
    }

    /// Ids of the packages linked into a program that uses the package `id`, itself included;
    /// build-dependencies are not linked.
    pub(crate) fn linked<'a>(&'a self, id: &'a str) -> BTreeSet<&'a str> {
        let mut found = BTreeSet::from([id]);
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            for node in self.resolve.nodes.iter().filter(|node| node.id == id) {
                for d in &node.deps {
                    let runs = d.dep_kinds.iter().any(|k| k.kind.is_none());
                    if runs && found.insert(&d.pkg) {
                        open.push(&d.pkg);
                    }
                }
            }
        }
        found
    }
}
