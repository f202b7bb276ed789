//! The program as a command that is run to its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `tidegate` with these arguments, in a folder.
pub(crate) fn tidegate(args: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap()
}

/// An empty folder of a test's own.
pub(crate) fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// What it printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
