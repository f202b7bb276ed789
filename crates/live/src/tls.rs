//! TLS 1.3 (RFC 8446) for streams over TCP: certificates, keys and their verification.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, ServerConfig,
    SignatureScheme,
};

mod session;

pub(crate) use session::TlsSession;

/// Certificate and key of the listening end.
#[derive(Clone, Debug)]
pub struct TlsServer(Arc<ServerConfig>);

/// Verification of the listening end by the connecting one.
#[derive(Clone, Debug)]
pub struct TlsClient(Arc<ClientConfig>);

/// SHA-256 of a certificate (DER).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// Authorities that a connecting end trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorities {
    /// Those of a PEM file.
    File(PathBuf),
    /// Those of the system.
    System,
}

impl TlsServer {
    /// Reads a certificate chain and its private key from PEM files.
    ///
    /// # Errors
    /// A file cannot be read, has no such object, is readable by all users, or the key is not that
    /// of the certificate.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = certificates(certificate)?;
        let text = read(key)?;
        let mode = File::open(key).and_then(|file| file.metadata());
        let mode = mode
            .map_err(TlsError::unreadable(key))?
            .permissions()
            .mode();
        if mode & 0o007 != 0 {
            return Err(TlsError::KeyIsPublic { path: key.into() });
        }
        let private = PrivateKeyDer::from_pem_slice(&text).map_err(TlsError::no_pem(key))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(chain, private)
            })
            .map_err(TlsError::Rejected)?;
        // A stream has one connection, so no session is resumed.
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// # Errors
    /// The configuration is unusable.
    pub(crate) fn session(&self) -> Result<TlsSession, rustls::Error> {
        let connection = rustls::ServerConnection::new(Arc::clone(&self.0))?;
        Ok(TlsSession::new(connection.into()))
    }
}

impl TlsClient {
    /// Accepts a certificate with one of these fingerprints, whatever its names, dates and
    /// authority.
    ///
    /// # Errors
    /// The cryptography is unusable.
    pub fn pinned(fingerprints: Vec<Fingerprint>) -> Result<Self, TlsError> {
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(TlsError::Rejected)?;
        let verifier = Pinned {
            fingerprints,
            provider,
        };
        let builder = builder.dangerous();
        let config = builder
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }

    /// Accepts a certificate that one of these authorities issued for the name of the peer.
    ///
    /// # Errors
    /// There are no authorities, or their file cannot be read.
    pub fn issued_by(authorities: &Authorities) -> Result<Self, TlsError> {
        let issuers = match authorities {
            Authorities::File(path) => certificates(path)?,
            Authorities::System => rustls_native_certs::load_native_certs().certs,
        };
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(issuers);
        if usable == 0 {
            return Err(TlsError::NoAuthorities);
        }
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(TlsError::Rejected)?
            .with_root_certificates(roots)
            .with_no_client_auth();
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

impl Fingerprint {
    /// Fingerprint of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        let hash = digest(&SHA256, certificate);
        // SHA-256 has this length.
        Self(hash.as_ref().try_into().unwrap_or([0; 32]))
    }

    /// Fingerprint of the first certificate in a PEM file.
    ///
    /// # Errors
    /// The file cannot be read, or has no certificate.
    pub fn read(path: &Path) -> Result<Self, TlsError> {
        let chain = certificates(path)?;
        Ok(Self::of(&chain[0]))
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

/// Accepts certificates by their fingerprint.
#[derive(Debug)]
struct Pinned {
    fingerprints: Vec<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Fingerprint::of(end_entity);
        if self.fingerprints.contains(&found) {
            return Ok(ServerCertVerified::assertion());
        }
        let other = OtherError(Arc::new(OtherCertificate { found }));
        Err(CertificateError::Other(other).into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is disabled".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// The certificate of the peer is not the pinned one.
#[derive(Debug)]
struct OtherCertificate {
    found: Fingerprint,
}

impl fmt::Display for OtherCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its fingerprint is {}", self.found)
    }
}

impl std::error::Error for OtherCertificate {}

/// Error of a TLS configuration.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// All users can read the private key.
    KeyIsPublic {
        /// The file.
        path: PathBuf,
    },
    /// No authority is usable.
    NoAuthorities,
    /// The file has no certificate or no key in PEM.
    NoPem {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Certificate and key are unusable.
    Rejected(rustls::Error),
    /// The file cannot be read.
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

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyIsPublic { path } => {
                let path = path.display();
                write!(
                    f,
                    "all users can read the private key {path}: run `chmod 600 {path}`"
                )
            }
            Self::NoAuthorities => f.write_str(
                "no certificate authority is usable: give a PEM file of certificates, or install \
                 those of the system (package ca-certificates)",
            ),
            Self::NoPem { path, why } => write!(
                f,
                "{} has no certificate or key in PEM ({why}): give files as `tidegate certificate` \
                 or an authority makes them",
                path.display()
            ),
            Self::Rejected(why) => write!(
                f,
                "the certificate or its key is unusable ({why}): give a key that belongs to the \
                 certificate"
            ),
            Self::Unreadable { path, cause } => {
                write!(f, "cannot read {}: {cause}", path.display())
            }
        }
    }
}

impl std::error::Error for TlsError {}

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

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(TlsError::unreadable(path))?;
    // A chain of certificates has a few kilobytes.
    let all = file.take(MAX_FILE).read_to_end(&mut text);
    all.map_err(TlsError::unreadable(path))?;
    Ok(text)
}

/// At least one certificate.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
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
