//! Compares the BPF objects in the repository with their sources.
//!
//! Objects are part of the repository, so that a build needs no clang. The generated code depends
//! on the version of clang, so a fixed version is used. Without that version the comparison is
//! skipped with a message. Objects contain no paths, and no debug information except BTF, so that a
//! source yields the same bytes in any folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

use anyhow::{Context as _, bail};

use crate::Report;
use crate::sources;

/// Compares the objects with their compiled sources.
pub(crate) fn check(root: &Path) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let built = root.join(SOURCES).join(BUILT);
    let Some(compiled) = compile_all(root)? else {
        report.line(format_args!(
            "left out: clang {CLANG} and its llvm-strip are not installed (Debian 12: clang-{CLANG} llvm-{CLANG})"
        ));
        return Ok(report);
    };
    for object in sources::with_extension(&built, "o")? {
        if !compiled.iter().any(|(name, _)| object.ends_with(name)) {
            report.fault(format_args!("{} has no source", object.display()));
        }
    }
    for (name, bytes) in &compiled {
        let is_same = fs::read(built.join(name)).is_ok_and(|there| there == *bytes);
        compare(name, is_same, &mut report);
    }
    Ok(report)
}

/// Compiles the sources and writes the objects.
pub(crate) fn write(root: &Path) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let Some(compiled) = compile_all(root)? else {
        bail!(
            "clang {CLANG} and its llvm-strip are not installed (Debian 12: apt-get install clang-{CLANG} llvm-{CLANG})"
        );
    };
    for (name, bytes) in compiled {
        fs::write(root.join(SOURCES).join(BUILT).join(&name), &bytes).context(name.clone())?;
        report.line(format_args!(
            "{SOURCES}/{BUILT}/{name}: {} bytes",
            bytes.len()
        ));
    }
    Ok(report)
}

fn compare(name: &str, is_same: bool, report: &mut Report) {
    if is_same {
        report.line(format_args!("{BUILT}/{name} matches its source"));
    } else {
        report.fault(format_args!(
            "{SOURCES}/{BUILT}/{name} differs from its compiled source: cargo run -p xtask -- bpf --write"
        ));
    }
}

/// Every object; `None` without the compiler.
fn compile_all(root: &Path) -> anyhow::Result<Option<Vec<Object>>> {
    let Some(tools) = Tools::find() else {
        return Ok(None);
    };
    let folder = root.join(SOURCES);
    let scratch = env::temp_dir().join(format!("tidegate-bpf-{}", process::id()));
    fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    let compiled = sources::with_extension(&folder, "c").and_then(|sources| {
        let compile = |source: &PathBuf| tools.compile(source, &scratch);
        sources.iter().map(compile).collect()
    });
    // A leftover temporary file does no harm.
    let _ = fs::remove_dir_all(&scratch);
    compiled.map(Some)
}

/// Name and bytes.
type Object = (String, Vec<u8>);

struct Tools {
    clang: String,
    strip: String,
}

impl Tools {
    /// Finds the programs by the names of Debian's packages, or by their own.
    fn find() -> Option<Self> {
        let names = [format!("-{CLANG}"), String::new()];
        let tools = names.map(|suffix| Self {
            clang: format!("clang{suffix}"),
            strip: format!("llvm-strip{suffix}"),
        });
        let version = format!("version {CLANG}.");
        let is_that = |program: &String| {
            let answer = Command::new(program).arg("--version").output();
            answer.is_ok_and(|a| String::from_utf8_lossy(&a.stdout).contains(&version))
        };
        let mut tools = tools.into_iter();
        tools.find(|t| is_that(&t.clang) && is_that(&t.strip))
    }

    fn compile(&self, source: &Path, scratch: &Path) -> anyhow::Result<Object> {
        let folder = source.parent().context("a file is in a folder")?;
        let file = source.file_name().context("a file has a name")?;
        let name = Path::new(file).with_extension("o");
        let object = scratch.join(&name);
        let mut clang = Command::new(&self.clang);
        // Run in the folder of the source, so that the object contains the file name only.
        clang.current_dir(folder).args(FLAGS).arg(file);
        run(clang.arg("-o").arg(&object))?;
        run(Command::new(&self.strip).args(STRIP).arg(&object))?;
        let bytes = fs::read(&object).with_context(|| object.display().to_string())?;
        Ok((name.to_string_lossy().into_owned(), bytes))
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!(
            "{program} failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

const SOURCES: &str = "crates/kernel/bpf";
const BUILT: &str = "built";

/// Version of clang; `scripts/setup --bpf` reads it here.
const CLANG: &str = "14";

/// Atomic operations with a result need the third version of the instruction set (Linux 5.12).
const FLAGS: [&str; 11] = [
    "--target=bpfel",
    "-mcpu=v3",
    "-O2",
    "-g",
    "-nostdinc",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Werror",
    "-ffile-compilation-dir=.",
    "-c",
];
/// Removes DWARF, which the kernel does not read, and the name of clang's packager.
const STRIP: [&str; 3] = [
    "-g",
    "--remove-section=.comment",
    "--remove-section=.llvm_addrsig",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_object_is_a_fault() {
        let mut report = Report::default();
        compare("a.bpf.o", true, &mut report);
        assert!(!report.failed, "{}", report.text);
        compare("a.bpf.o", false, &mut report);
        assert!(
            report.failed && report.text.contains("bpf --write"),
            "{}",
            report.text
        );
    }

    /// Folders with different names must yield identical objects.
    #[test]
    fn objects_are_independent_of_the_folder() {
        let Some(tools) = Tools::find() else {
            println!("skipped: no clang {CLANG} here");
            return;
        };
        let scratch = env::temp_dir().join(format!("tidegate-bpf-folder-{}", process::id()));
        let objects = ["a", "another"].map(|name| {
            let folder = scratch.join(name);
            fs::create_dir_all(&folder).unwrap();
            let source = folder.join("a.bpf.c");
            let text = "struct s { int a; }; int f(struct s *s) { return s->a + __LINE__; }";
            fs::write(&source, text).unwrap();
            let (_, bytes) = tools.compile(&source, &folder).unwrap();
            bytes
        });
        let _ = fs::remove_dir_all(&scratch);
        assert_eq!(objects[0], objects[1]);
    }
}
