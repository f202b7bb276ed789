//! Opening of a store with its settings and the key of its addresses.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use tidegate_console::context::since_1970;
use tidegate_console::exit::EnvironmentError;
use tidegate_console::progress::say;
use tidegate_knowledge::gather::Notice;
use tidegate_knowledge::{AddressPolicy, HashKey, Store, StoreError, WallTime};
use tidegate_live::entropy;
use tidegate_secure::SharedSecret;

/// The store of a subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// File of the store
    #[arg(long, value_name = "FILE", default_value = "knowledge.db")]
    pub(crate) store: PathBuf,
}

impl StoreArgs {
    /// Opens the store for reading.
    pub(crate) fn read(&self) -> Result<Store> {
        Store::read(&self.store).map_err(store_error)
    }
}

/// What a store keeps of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AddressArg {
    /// A keyed hash of the address, and the /24 or /48
    Hashed,
    /// The /24 or /48 only
    Truncated,
    /// The address
    Plain,
}

impl AddressArg {
    const fn name(self) -> &'static str {
        match self {
            Self::Hashed => "hashed",
            Self::Truncated => "truncated",
            Self::Plain => "plain",
        }
    }
}

/// A store for writing, and what it keeps of addresses.
#[derive(Debug)]
pub(crate) struct Writable {
    pub(crate) store: Store,
    pub(crate) addresses: AddressPolicy,
}

/// Opens a store for writing, creates it if it does not exist, and replaces a damaged one.
pub(crate) fn open(path: &Path, asked: Option<AddressArg>) -> Result<Writable> {
    let opened = Store::open(path, now()).map_err(store_error)?;
    if let Some(aside) = opened.set_aside {
        let store = path.to_owned();
        say(format_args!("{}", Notice::SetAside { store, aside }));
    }
    let store = opened.store;
    let kept = store.address_policy().map_err(store_error)?;
    let name = match (&kept, asked) {
        (None, asked) => asked.unwrap_or(AddressArg::Hashed).name(),
        (Some(kept), None) => kept,
        (Some(kept), Some(asked)) if kept == asked.name() => kept,
        (Some(kept), Some(asked)) => bail!(
            "{} keeps addresses {kept}, not {}: omit --addresses, or give another store",
            path.display(),
            asked.name()
        ),
    };
    let addresses = match name {
        "hashed" => AddressPolicy::Hashed(key(path)?),
        "truncated" => AddressPolicy::Truncated,
        "plain" => AddressPolicy::Plain,
        other => bail!(
            "{} has an unknown setting of addresses, {other:?}: write hashed, truncated or plain \
             into its table meta",
            path.display()
        ),
    };
    if kept.is_none() {
        let set = store.set_address_policy(addresses.name());
        set.map_err(store_error)?;
    }
    Ok(Writable { store, addresses })
}

/// What a store that is read keeps of addresses. Without the key of its addresses clients are unknown,
/// and their networks are not.
pub(crate) fn policy(store: &Store) -> Result<AddressPolicy> {
    let kept = store.address_policy().map_err(store_error)?;
    Ok(match kept.as_deref() {
        Some("plain") => AddressPolicy::Plain,
        Some("hashed") if key_path(store.path()).exists() => {
            AddressPolicy::Hashed(key(store.path())?)
        }
        _ => AddressPolicy::Truncated,
    })
}

fn key_path(store: &Path) -> PathBuf {
    let mut path = OsString::from(store);
    path.push(".key");
    path.into()
}

/// The key beside the store, which is made if it does not exist.
fn key(store: &Path) -> Result<HashKey> {
    let path = key_path(store);
    let name = path.display();
    match fs::read_to_string(&path) {
        Ok(text) => {
            let secret = SharedSecret::parse(&text);
            let secret = secret.map_err(|e| anyhow!("{name} has no key of addresses: {e}"))?;
            Ok(HashKey::new(secret.to_hex().as_bytes()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let seed = entropy::seed().context("the system provides no random bytes")?;
            let hex = SharedSecret::new(seed).to_hex();
            let mut options = OpenOptions::new();
            let created = options.write(true).create_new(true).mode(0o600).open(&path);
            let written = created.and_then(|mut file| writeln!(file, "{hex}"));
            written.with_context(|| format!("cannot create {name}, the key of addresses"))?;
            Ok(HashKey::new(hex.as_bytes()))
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {name}")),
    }
}

/// Classifies an error of the store for the exit code.
pub(crate) fn store_error(error: StoreError) -> anyhow::Error {
    if error.is_environment() {
        EnvironmentError::of(error).into()
    } else {
        error.into()
    }
}

/// The system's wall clock.
pub(crate) fn now() -> WallTime {
    WallTime::since_1970(since_1970())
}
