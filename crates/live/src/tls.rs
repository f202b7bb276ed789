//! TLS 1.3 (RFC 8446) for streams over TCP: certificates, keys and their verification.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig};

mod pinned;
mod session;

use pinned::Pinned;
pub(crate) use session::TlsSession;

/// TLS of a listening end.
#[derive(Clone, Debug)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    verifies_clients: bool,
}

/// TLS of a connecting end.
#[derive(Clone, Debug)]
pub struct TlsClient(Arc<ClientConfig>);

/// Certificate chain and private key of one end.
#[derive(Debug)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// Certificates that the other end may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Those with one of these fingerprints, whatever their names, dates and authority.
    Pinned(Vec<Fingerprint>),
    /// Those that one of these authorities has issued; for a listening end also for its name.
    IssuedBy(Authorities),
}

/// SHA-256 of a certificate (DER).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// Authorities that issue certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorities {
    /// Those of a PEM file.
    File(PathBuf),
    /// Those of the system.
    System,
}

impl Identity {
    /// Reads a certificate chain and its private key from PEM files.
    ///
    /// # Errors
    /// A file cannot be read or has no such object, or other users can read the key.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = certificates(certificate)?;
        let (text, mode) = read(key)?;
        if mode & 0o077 != 0 {
            return Err(TlsError::KeyIsPublic { path: key.into() });
        }
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(TlsError::no_pem(key))?;
        Ok(Self { chain, key })
    }

    /// Fingerprint of the certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.chain[0])
    }

    fn chain_and_key(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain.clone(), self.key.clone_key())
    }
}

impl TlsServer {
    /// Accepts connecting ends with these certificates only; with `None` all, with or without a
    /// certificate.
    ///
    /// # Errors
    /// The key is not that of the certificate, or there are no authorities.
    pub fn new(identity: &Identity, clients: Option<&Accepted>) -> Result<Self, TlsError> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(TlsError::Rejected)?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(Accepted::Pinned(fingerprints)) => {
                let verifier = Pinned::new(fingerprints.clone(), provider);
                builder.with_client_cert_verifier(Arc::new(verifier))
            }
            Some(Accepted::IssuedBy(authorities)) => {
                let roots = Arc::new(authorities.read()?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = verifier.build().map_err(|_| TlsError::NoAuthorities)?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let (chain, key) = identity.chain_and_key();
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(TlsError::Rejected)?;
        // A stream has one connection, so no session is resumed.
        config.send_tls13_tickets = 0;
        Ok(Self {
            config: Arc::new(config),
            verifies_clients: clients.is_some(),
        })
    }

    /// Whether connecting ends must prove their identity.
    pub const fn verifies_clients(&self) -> bool {
        self.verifies_clients
    }

    /// # Errors
    /// The configuration is unusable.
    pub(crate) fn session(&self) -> Result<TlsSession, rustls::Error> {
        let connection = rustls::ServerConnection::new(Arc::clone(&self.config))?;
        Ok(TlsSession::new(connection.into()))
    }
}

impl TlsClient {
    /// Accepts listening ends with these certificates only, and shows them `identity` if they ask
    /// for a certificate.
    ///
    /// # Errors
    /// The key is not that of the certificate, or there are no authorities.
    pub fn new(servers: &Accepted, identity: Option<&Identity>) -> Result<Self, TlsError> {
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(TlsError::Rejected)?;
        let builder = match servers {
            Accepted::Pinned(fingerprints) => {
                let verifier = Pinned::new(fingerprints.clone(), provider);
                let builder = builder.dangerous();
                builder.with_custom_certificate_verifier(Arc::new(verifier))
            }
            Accepted::IssuedBy(authorities) => builder.with_root_certificates(authorities.read()?),
        };
        let config = match identity.map(Identity::chain_and_key) {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder
                .with_client_auth_cert(chain, key)
                .map_err(TlsError::Rejected)?,
        };
        Ok(Self(Arc::new(config)))
    }

    /// `name` is the DNS name or the address of the peer.
    ///
    /// # Errors
    /// `name` is neither.
    pub(crate) fn session(&self, name: &str) -> Result<TlsSession, rustls::Error> {
        let name = ServerName::try_from(name.to_owned());
        let name = name.map_err(|_| rustls::Error::General("no DNS name".to_owned()))?;
        let connection = rustls::ClientConnection::new(Arc::clone(&self.0), name)?;
        Ok(TlsSession::new(connection.into()))
    }
}

impl Authorities {
    fn read(&self) -> Result<RootCertStore, TlsError> {
        let issuers = match self {
            Self::File(path) => certificates(path)?,
            Self::System => rustls_native_certs::load_native_certs().certs,
        };
        let mut roots = RootCertStore::empty();
        match roots.add_parsable_certificates(issuers) {
            (0, _) => Err(TlsError::NoAuthorities),
            _ => Ok(roots),
        }
    }
}

impl Fingerprint {
    /// Fingerprint of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        let hash = digest(&SHA256, certificate);
        // SHA-256 has this length.
        Self(hash.as_ref().try_into().unwrap_or([0; 32]))
    }
}

/// `sha256:` and 64 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Also with colons between the bytes and in upper case, as `openssl x509 -fingerprint` prints it.
impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not a fingerprint: write it as sha256: and 64 hexadecimal digits, as \
                 the listening end prints it"
            )
        };
        let digits = text.strip_prefix("sha256:").ok_or_else(wrong)?;
        let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
        let value = |digit: u8| char::from(digit).to_digit(16);
        let bytes = digits.chunks_exact(2);
        let bytes = bytes.map(|pair| Some((value(pair[0])? << 4 | value(pair[1])?) as u8));
        let bytes: Option<Vec<u8>> = bytes.collect();
        let bytes = bytes.filter(|_| digits.len() == 64).ok_or_else(wrong)?;
        bytes.try_into().map(Self).map_err(|_| wrong())
    }
}

/// Error of a TLS configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Other users can read the private key.
    #[error("other users can read the private key {path}: run `chmod 600 {path}`")]
    KeyIsPublic {
        /// The file.
        path: PathBuf,
    },
    /// No authority is usable.
    #[error(
        "no certificate authority is usable: give a PEM file of certificates, or install those \
         of the system (package ca-certificates)"
    )]
    NoAuthorities,
    /// The file has no certificate or no key in PEM.
    #[error(
        "{path} has no certificate or key in PEM ({why}): give files as `tidegate certificate` \
         or an authority makes them"
    )]
    NoPem {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Certificate and key are unusable.
    #[error(
        "the certificate or its key is unusable ({0}): give a key that belongs to the certificate"
    )]
    Rejected(rustls::Error),
    /// The file cannot be read.
    #[error("cannot read {path}: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
}

impl TlsError {
    fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Unreadable {
            path: path.into(),
            cause,
        }
    }

    fn no_pem(path: &Path) -> impl FnOnce(rustls::pki_types::pem::Error) -> Self {
        move |why| Self::NoPem {
            path: path.into(),
            why: why.to_string(),
        }
    }
}

/// Reason of a failed session, in words. `rustls` prints reasons of other verifiers as Rust values.
pub(crate) fn reason(failed: &io::Error) -> String {
    let cause = failed.get_ref().and_then(|cause| cause.downcast_ref());
    match cause {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other))) => {
            format!("another certificate than expected: {}", other.0)
        }
        _ => failed.to_string(),
    }
}

/// Whether the other end has rejected the certificate of this one, or requires one.
pub(crate) fn is_certificate_refused(failed: &io::Error) -> bool {
    use AlertDescription::{
        BadCertificate, CertificateRequired, CertificateUnknown, DecryptError, UnknownCA,
    };
    let cause = failed.get_ref().and_then(|cause| cause.downcast_ref());
    matches!(
        cause,
        Some(rustls::Error::AlertReceived(
            BadCertificate | CertificateRequired | CertificateUnknown | DecryptError | UnknownCA
        ))
    )
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Content and mode of a file.
fn read(path: &Path) -> Result<(Vec<u8>, u32), TlsError> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(TlsError::unreadable(path))?;
    let mode = file.metadata().map_err(TlsError::unreadable(path))?.mode();
    // A chain of certificates has a few kilobytes.
    let all = file.take(MAX_FILE).read_to_end(&mut text);
    all.map_err(TlsError::unreadable(path))?;
    Ok((text, mode))
}

/// At least one certificate.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let (text, _) = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(TlsError::no_pem(path))?;
    if all.is_empty() {
        let why = "no certificate".to_owned();
        return Err(TlsError::NoPem {
            path: path.into(),
            why,
        });
    }
    Ok(all)
}

/// Bundles of all public authorities have about 250 kB.
const MAX_FILE: u64 = 4 << 20;

#[cfg(test)]
pub(crate) mod tests;
