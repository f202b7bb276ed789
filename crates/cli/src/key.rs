//! `tidegate key`: makes a secret that both ends of a stream share.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use tidegate_console::output::output;
use tidegate_live::entropy;
use tidegate_secure::SharedSecret;

/// Arguments of `tidegate key`.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyArgs {
    /// File to write, which must not exist; only its owner can read it [default: standard output]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Writes a random key of 256 bits in hexadecimal.
pub(crate) fn run(args: &KeyArgs) -> Result<ExitCode> {
    let seed = entropy::seed().context("the system provides no random bytes")?;
    let line = format!("{}\n", SharedSecret::new(seed).to_hex());
    let Some(file) = &args.file else {
        let written = output().write_all(line.as_bytes());
        written.map_err(|e| anyhow!("cannot write the key to standard output: {e}"))?;
        return Ok(ExitCode::SUCCESS);
    };
    let name = file.display();
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(file);
    let mut created = created.map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            anyhow!("{name} exists: choose another name, or remove it if no stream uses its key")
        }
        _ => anyhow!("cannot create {name}: {e}"),
    })?;
    let written = created.write_all(line.as_bytes());
    written.with_context(|| format!("cannot write {name}"))?;
    Ok(ExitCode::SUCCESS)
}
