//! Golden digests: the run folder of every scenario file, at its default seed, is byte-identical.
//!
//! `digests.txt` has a line per file of each run folder: its CRC-32 (ISO 3309), its length and its
//! name. A change of behaviour changes lines of that file. With `TIDEGATE_WRITE_DIGESTS=1`, the
//! test writes the file instead of comparing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use command::{folder, text, tidegate};

mod command;

#[test]
fn run_folders_of_all_scenarios_are_byte_identical() {
    let dir = folder("digests");
    let files = scenarios(&root().join("scenarios"));
    let (front, back) = files.split_at(files.len() / 2);
    let play = |files: &[PathBuf]| -> String { files.iter().map(|f| digests(f, &dir)).collect() };
    let found = std::thread::scope(|scope| {
        let second = scope.spawn(|| play(back));
        play(front) + &second.join().expect("the thread panicked")
    });
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/digests.txt");
    if std::env::var_os("TIDEGATE_WRITE_DIGESTS").is_some() {
        fs::write(golden, found).unwrap();
        return;
    }
    let golden = fs::read_to_string(golden).unwrap();
    let (golden, found) = (by_name(&golden), by_name(&found));
    let names: BTreeSet<_> = golden.keys().chain(found.keys()).collect();
    let differing: Vec<_> = names
        .iter()
        .filter(|name| golden.get(**name) != found.get(**name))
        .collect();
    assert!(
        differing.is_empty(),
        "these files of run folders differ from tests/digests.txt: {differing:#?}"
    );
}

/// Runs a scenario and lists the files of its run folder. Its expectations must hold.
fn digests(scenario: &Path, dir: &Path) -> String {
    let name = scenario.strip_prefix(root().join("scenarios")).unwrap();
    let mut file = scenario.to_owned();
    let text_of_file = fs::read_to_string(scenario).unwrap();
    // Output of libx264 depends on its version; the encoder model is part of this project.
    let modelled = text_of_file.replace("encoder = \"x264\"", "encoder = \"model\"");
    if modelled != text_of_file {
        file = dir.join(name);
        fs::write(&file, modelled).unwrap();
    }
    let out = dir.join(name.with_extension(""));
    let args = [
        "sim",
        "run",
        path(&file),
        "--no-report",
        "--out",
        path(&out),
    ];
    let played = tidegate(&args, dir);
    let output = text(&played.stdout) + &text(&played.stderr);
    assert!(played.status.success(), "{args:?}:\n{output}");
    let mut lines = String::new();
    for file in all_files(&out) {
        let mut bytes = fs::read(&file).unwrap();
        if file.ends_with("manifest.json") {
            bytes = without_version(&bytes);
        }
        let name = file.strip_prefix(dir).unwrap().display();
        let sum = crc32fast::hash(&bytes);
        writeln!(lines, "{sum:08x} {:>9} {name}", bytes.len()).unwrap();
    }
    fs::remove_dir_all(&out).unwrap();
    lines
}

/// A manifest without the line that names the version of the program.
fn without_version(manifest: &[u8]) -> Vec<u8> {
    let lines = manifest.split_inclusive(|byte| *byte == b'\n');
    let kept = lines.filter(|line| !line.trim_ascii_start().starts_with(b"\"tool\":"));
    kept.flatten().copied().collect()
}

/// Digest of each file, by its name.
fn by_name(lines: &str) -> BTreeMap<&str, &str> {
    let mut files = BTreeMap::new();
    for line in lines.lines() {
        let (digest, name) = line
            .rsplit_once(' ')
            .expect("a line has a digest and a name");
        files.insert(name, digest);
    }
    files
}

/// All scenario files below `dir`, sorted by name, without those of the benchmark: a sweep plays them
/// many times, and a single run takes seconds.
fn scenarios(dir: &Path) -> Vec<PathBuf> {
    let bench = dir.join("bench");
    let is_scenario = |file: &PathBuf| {
        file.extension().is_some_and(|end| end == "toml") && !file.starts_with(&bench)
    };
    let mut files = all_files(dir);
    files.retain(is_scenario);
    files
}

fn all_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let expand = |path: PathBuf| {
        if path.is_dir() {
            all_files(&path)
        } else {
            vec![path]
        }
    };
    paths.into_iter().flat_map(expand).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("paths of this test are UTF-8")
}
