//! Checks of the repository that cargo does not do.
//!
//! - `cargo run -p xtask -- specs`: every requirement in `specs/` has code, and every citation in
//!   the code names a requirement.
//! - `cargo run -p xtask -- sizes`: files and functions that have grown too long.

mod sizes;
mod sources;
mod specs;

use std::path::Path;
use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    // The manifest is one directory below the root of the workspace.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let report = match std::env::args().nth(1).as_deref() {
        Some("sizes") => sizes::check(&root)?,
        Some("specs") => specs::check(&root)?,
        other => {
            let given = other.unwrap_or("nothing");
            eprintln!("xtask: `specs` or `sizes` was expected, and {given} was given");
            return Ok(ExitCode::from(2));
        }
    };
    print!("{}", report.text);
    Ok(if report.failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// What a check found.
#[derive(Debug)]
struct Report {
    text: String,
    failed: bool,
}
