//! Runs the program to completion.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs `tidegate` with `args` in the folder `dir`.
pub(crate) fn tidegate(args: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap()
}

/// Creates an empty folder for a test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Output as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
