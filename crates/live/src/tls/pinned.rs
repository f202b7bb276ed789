//! Verification of certificates by their fingerprint.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, SignatureScheme,
};

use super::Fingerprint;

/// Accepts certificates by their fingerprint.
#[derive(Debug)]
pub(super) struct Pinned {
    fingerprints: Vec<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    pub(super) fn new(fingerprints: Vec<Fingerprint>, provider: Arc<CryptoProvider>) -> Self {
        Self {
            fingerprints,
            provider,
        }
    }

    fn verify(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let found = Fingerprint::of(certificate);
        if self.fingerprints.contains(&found) {
            return Ok(());
        }
        let other = OtherError(Arc::new(OtherCertificate { found }));
        Err(CertificateError::Other(other).into())
    }
}

/// Both roles of TLS verify signatures alike.
macro_rules! verifies_signatures {
    () => {
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
    };
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
        self.verify(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    verifies_signatures!();
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verify(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    verifies_signatures!();
}

/// The certificate of the peer is not the pinned one.
#[derive(Debug, thiserror::Error)]
#[error("its fingerprint is {found}")]
struct OtherCertificate {
    found: Fingerprint,
}
