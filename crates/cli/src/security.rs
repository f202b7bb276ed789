//! Keys of streams over UDP, and addresses that need none.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use tidegate_console::context::since_1970;
use tidegate_core::endpoint::Endpoint;
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::sdp::{Crypto, CryptoSuite};
use tidegate_live::clock::Clock;
use tidegate_live::entropy;
use tidegate_secure::random::Generator;
use tidegate_secure::{MasterKey, SecureEndpoint, SharedSecret, handshake, keys, srtp};

/// Options for the security of a stream.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SecurityArgs {
    /// Encrypt with keys from this secret, which the other end needs, too (see `tidegate key`)
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) key_file: Option<PathBuf>,
    /// Permit streams to and from other hosts without encryption and authentication
    #[arg(long)]
    pub(crate) insecure: bool,
}

impl SecurityArgs {
    /// Checks that a stream over TCP has no key for SRTP.
    ///
    /// # Errors
    /// A key file is given: it would protect nothing.
    pub(crate) fn check_tcp(&self) -> Result<()> {
        ensure!(
            self.key_file.is_none(),
            "--key-file is for streams over UDP: leave it out, and give --tls-cert and --tls-key \
            at the listening end and --tls-fingerprint at the other"
        );
        Ok(())
    }
}

/// Protection of a stream.
#[derive(Clone, Debug)]
pub(crate) enum Protection {
    /// None.
    Plain,
    /// A key of a session description.
    Described(Crypto),
    /// A handshake with a secret of both ends.
    Shared(SharedSecret),
}

impl Protection {
    /// Reads the key file, if given.
    ///
    /// # Errors
    /// The file is unreadable, has no key, or can be read by others.
    pub(crate) fn of_file(file: Option<&Path>) -> Result<Self> {
        file.map_or(Ok(Self::Plain), |file| read_secret(file).map(Self::Shared))
    }

    /// Whether datagrams are authenticated.
    pub(crate) fn is_secure(&self) -> bool {
        !matches!(self, Self::Plain)
    }

    /// Key for a session description, if there is one.
    pub(crate) fn description(&self) -> Vec<Crypto> {
        match self {
            Self::Described(crypto) => vec![crypto.clone()],
            Self::Plain | Self::Shared(_) => Vec::new(),
        }
    }

    /// Largest packet that has at most `size` bytes with its protection.
    pub(crate) fn inner_size(&self, size: Bytes) -> Bytes {
        let overhead = match self {
            Self::Plain => 0,
            Self::Described(crypto) => srtp::rtp_overhead(crypto.suite()),
            Self::Shared(_) => srtp::rtp_overhead(handshake::SUITE),
        };
        size.saturating_sub(Bytes(overhead as u64))
    }

    /// Endpoint of a sender, whose times are those of `clock`.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub(crate) fn sender<E: Endpoint>(&self, inner: E, clock: Clock) -> Result<SecureEndpoint<E>> {
        Ok(match self {
            Self::Plain => SecureEndpoint::plain(inner),
            Self::Described(crypto) => {
                let key = MasterKey::from_description(crypto);
                SecureEndpoint::with_key(inner, &key, Vec::new())
            }
            Self::Shared(secret) => {
                let epoch = since_1970().saturating_sub(clock.now().since(Time::ZERO));
                SecureEndpoint::initiator(inner, secret.clone(), seed()?, epoch)
            }
        })
    }

    /// Endpoint of a receiver. If `expected` contains SSRCs, packets of others are rejected.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub(crate) fn receiver<E: Endpoint>(
        &self,
        inner: E,
        expected: Vec<u32>,
    ) -> Result<SecureEndpoint<E>> {
        Ok(match self {
            Self::Plain => SecureEndpoint::plain(inner),
            Self::Described(crypto) => {
                let key = MasterKey::from_description(crypto);
                SecureEndpoint::with_key(inner, &key, expected)
            }
            Self::Shared(secret) => SecureEndpoint::responder(inner, secret.clone(), seed()?),
        })
    }
}

/// A fresh key for a session description.
///
/// # Errors
/// The system provides no random bytes.
pub(crate) fn fresh_key(suite: CryptoSuite) -> Result<Crypto> {
    Ok(keys::fresh(suite, &mut Generator::new(seed()?)))
}

/// Whether packets to and from this address stay on this host.
pub(crate) fn is_local(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Parses the name of a crypto-suite.
pub(crate) fn suite(text: &str) -> Result<CryptoSuite, String> {
    let found = CryptoSuite::ALL.into_iter().find(|s| s.name() == text);
    found.ok_or_else(|| {
        let names = CryptoSuite::ALL.map(CryptoSuite::name).join(", ");
        format!("\"{text}\" is not a supported crypto-suite: choose one of {names}")
    })
}

/// Writes a text that may contain a key: only its owner can read the file.
///
/// # Errors
/// The error of the system.
pub(crate) fn write_private(file: &Path, text: &str) -> Result<()> {
    let write = || {
        // A device or a pipe.
        if file.exists() && !file.is_file() {
            return std::fs::write(file, text);
        }
        // Readers see the former content or the new one. A process that has opened the former file
        // does not see the new key.
        let target = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let mut partial = target.clone().into_os_string();
        partial.push(format!(".{}.partial", std::process::id()));
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let written = options.open(&partial).and_then(|mut opened| {
            opened.write_all(text.as_bytes())?;
            std::fs::rename(&partial, &target)
        });
        if written.is_err() {
            let _ = std::fs::remove_file(&partial);
        }
        written
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

/// Whether other users can read or write a file.
///
/// # Errors
/// The error of the system.
pub(crate) fn is_public(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.mode() & OTHERS != 0)
}

fn read_secret(file: &Path) -> Result<SharedSecret> {
    let name = file.display();
    let opened = File::open(file).with_context(|| {
        format!("cannot read the key file {name}: `tidegate key {name}` makes one")
    })?;
    let is_public = is_public(&opened);
    ensure!(
        !is_public.with_context(|| format!("cannot read the key file {name}"))?,
        "other users can read or write the key file {name}: run `chmod 600 {name}`, and make a \
        new key if they may have read it"
    );
    let mut text = String::new();
    let read = opened.take(LONGEST).read_to_string(&mut text);
    if read.is_err() {
        bail!("the key file {name} is no text: `tidegate key` makes a valid one");
    }
    SharedSecret::parse(&text)
        .with_context(|| format!("{name} has no key: `tidegate key` makes a valid file"))
}

fn seed() -> Result<[u8; 32]> {
    entropy::seed().context("the system provides no random bytes")
}

/// Access of group and others.
const OTHERS: u32 = 0o077;
/// A key has 65 bytes with its line end.
const LONGEST: u64 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_host_are_local() {
        for (address, local) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("192.0.2.1", false),
            ("::", false),
        ] {
            assert_eq!(is_local(address.parse().unwrap()), local, "{address}");
        }
    }

    #[test]
    fn private_files_replace_public_ones_and_keep_links() {
        let folder = std::env::temp_dir().join(format!("tidegate-private-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [file, link] = ["stream.sdp", "link.sdp"].map(|name| folder.join(name));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut former = File::open(&file).unwrap();
        assert!(is_public(&former).unwrap());
        write_private(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert!(!is_public(&File::open(&file).unwrap()).unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        let mut seen = String::new();
        former.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "old");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        assert!(write_private(&folder.join("none/x.sdp"), "").is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn suites_are_named() {
        assert_eq!(suite("AEAD_AES_128_GCM"), Ok(CryptoSuite::AeadAes128Gcm));
        assert!(
            suite("NULL")
                .unwrap_err()
                .contains("AES_CM_128_HMAC_SHA1_80")
        );
    }

    #[test]
    fn protection_counts_in_the_packet_size() {
        let size = Bytes(1_200);
        assert_eq!(Protection::Plain.inner_size(size), size);
        let key = fresh_key(CryptoSuite::AesCm128HmacSha1_80).unwrap();
        assert_eq!(Protection::Described(key).inner_size(size), Bytes(1_190));
        let secret = SharedSecret::new([1; 32]);
        assert_eq!(Protection::Shared(secret).inner_size(size), Bytes(1_184));
    }
}
