//! `tidegate certificate`: a self-signed certificate for streams over TLS.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use tidegate_console::output::output;
use tidegate_live::tls::Fingerprint;

/// Arguments of `tidegate certificate`.
#[derive(Debug, clap::Args)]
pub(crate) struct CertificateArgs {
    /// File for the certificate, in PEM
    #[arg(long, value_name = "FILE", default_value = "cert.pem")]
    tls_cert: PathBuf,
    /// File for its private key, in PEM, readable by its owner only
    #[arg(long, value_name = "FILE", default_value = "key.pem")]
    tls_key: PathBuf,
    /// DNS name or address of the host, for --tls-ca; repeatable. A fingerprint needs none
    #[arg(long, value_name = "NAME", default_value = "localhost")]
    name: Vec<String>,
}

/// Writes a key and a certificate that it signs, and prints the fingerprint for the connecting end.
pub(crate) fn run(args: &CertificateArgs) -> Result<ExitCode> {
    let made = rcgen::generate_simple_self_signed(args.name.clone());
    let made = made.context("no certificate can have these names: give --name as a DNS name")?;
    write(&args.tls_key, &made.signing_key.serialize_pem(), 0o600)?;
    write(&args.tls_cert, &made.cert.pem(), 0o644)?;
    let fingerprint = Fingerprint::of(made.cert.der());
    writeln!(output(), "{fingerprint}").context("cannot print the fingerprint")?;
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let mut options = OpenOptions::new();
    // Other hosts may know the fingerprint of an existing pair.
    let created = options.write(true).create_new(true).mode(mode).open(path);
    let mut file = created.with_context(|| {
        let path = path.display();
        format!("cannot create {path}: choose other files, or remove it if no host needs it")
    })?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}
