//! Replays the corpora of the fuzz targets with a stable compiler: inputs that once failed or that
//! reach rare code run with every test.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_tests::fuzzing::targets;

#[test]
fn every_target_accepts_its_corpus() {
    for target in targets() {
        let files = files(&corpora().join(target.name));
        assert!(
            !files.is_empty(),
            "the corpus of {} has no files",
            target.name
        );
        for file in files {
            let data = fs::read(&file).expect("a corpus file can be read");
            let replay = std::panic::catch_unwind(|| (target.run)(&data));
            assert!(
                replay.is_ok(),
                "{} fails for {}",
                target.name,
                file.display()
            );
        }
    }
}

#[test]
fn every_corpus_has_a_target_and_every_target_a_program() {
    let known: Vec<_> = targets().iter().map(|target| target.name).collect();
    for path in files(&corpora()) {
        let name = path.file_name().and_then(|name| name.to_str());
        let has_target = name.is_some_and(|name| known.contains(&name));
        assert!(has_target, "{} has no target", path.display());
    }
    let programs = files(&corpora().with_file_name("fuzz_targets"));
    let programs: Vec<_> = programs
        .iter()
        .filter_map(|path| path.file_stem()?.to_str())
        .collect();
    assert_eq!(programs, known);
    let table = fs::read_to_string(corpora().with_file_name("README.md"));
    let table = table.expect("the table of what targets assert can be read");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: Vec<_> = rows.filter_map(|row| row.split('`').next()).collect();
    assert_eq!(rows, known, "fuzz/README.md");
}

/// Files and folders of a directory in alphabetical order.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    let mut paths: Vec<_> = paths.collect();
    paths.sort();
    paths
}

fn corpora() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("fuzz")
        .join("corpus")
}
