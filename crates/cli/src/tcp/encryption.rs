//! TLS of streams over TCP, and addresses that need none.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use tidegate_live::tls::{Accepted, Authorities, Fingerprint, Identity, TlsClient, TlsServer};

use crate::lookup::lookup;
use crate::security::is_local;

/// Options for TLS.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "TLS, with TCP")]
pub(crate) struct TlsArgs {
    /// Certificate of this end, in PEM (see `tidegate certificate`). A listening end needs one, a
    /// connecting one if the other end asks for it
    #[arg(
        id = "tls_cert",
        long = "tls-cert",
        value_name = "FILE",
        requires = "tls_key"
    )]
    certificate: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(
        id = "tls_key",
        long = "tls-key",
        value_name = "FILE",
        requires = "tls_cert"
    )]
    key: Option<PathBuf>,
    /// Connect with TLS to an end whose certificate has this fingerprint; repeatable
    #[arg(
        id = "tls_fingerprint",
        long = "tls-fingerprint",
        value_name = "sha256:HEX"
    )]
    fingerprints: Vec<Fingerprint>,
    /// Connect with TLS to an end whose certificate was issued by an authority of this PEM file, or
    /// by one of the `system`
    #[arg(id = "tls_ca", long = "tls-ca", value_name = "FILE", value_parser = authorities, conflicts_with = "tls_fingerprint")]
    authorities: Option<Authorities>,
    /// Name in that certificate [default: the host of the address]
    #[arg(
        id = "tls_name",
        long = "tls-name",
        value_name = "NAME",
        requires = "tls_ca"
    )]
    name: Option<String>,
    /// Accept connections only from ends whose certificate has this fingerprint; repeatable
    #[arg(
        id = "tls_client_fingerprint",
        long = "tls-client-fingerprint",
        value_name = "sha256:HEX",
        requires = "tls_cert"
    )]
    client_fingerprints: Vec<Fingerprint>,
    /// Accept connections only from ends whose certificate was issued by an authority of this PEM
    /// file
    #[arg(
        id = "tls_client_ca",
        long = "tls-client-ca",
        value_name = "FILE",
        requires = "tls_cert",
        conflicts_with = "tls_client_fingerprint"
    )]
    client_authorities: Option<PathBuf>,
}

/// TLS of the ends of this process.
#[derive(Clone, Debug)]
pub(crate) struct Encryption {
    server: Option<(TlsServer, Fingerprint)>,
    client: Option<TlsClient>,
    name: Option<String>,
    insecure: bool,
}

impl TlsArgs {
    /// Reads the files. The process `listens`, `connects`, or both.
    ///
    /// # Errors
    /// An option is without effect, or a file is unusable.
    pub(crate) fn load(&self, listens: bool, connects: bool, insecure: bool) -> Result<Encryption> {
        let servers = accepted(&self.fingerprints, self.authorities.clone());
        let clients = self.client_authorities.clone().map(Authorities::File);
        let clients = accepted(&self.client_fingerprints, clients);
        ensure!(
            connects || servers.is_none(),
            "--tls-fingerprint and --tls-ca are for the connecting end: leave them out, give \
            --tls-cert and --tls-key, and verify connecting ends by --tls-client-fingerprint or \
            --tls-client-ca"
        );
        ensure!(
            listens || clients.is_none(),
            "--tls-client-fingerprint and --tls-client-ca are for the listening end: leave them \
            out, and verify the other end by --tls-fingerprint or --tls-ca"
        );
        ensure!(
            listens || servers.is_some() || self.certificate.is_none(),
            "--tls-cert and --tls-key have no effect without TLS: verify the other end by \
            --tls-fingerprint or --tls-ca"
        );
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some(Identity::read(certificate, key)?),
            _ => None,
        };
        let client = servers.map(|servers| TlsClient::new(&servers, identity.as_ref()));
        let server = identity.filter(|_| listens).map(|identity| {
            let server = TlsServer::new(&identity, clients.as_ref())?;
            Ok::<_, anyhow::Error>((server, identity.fingerprint()))
        });
        Ok(Encryption {
            server: server.transpose()?,
            client: client.transpose()?,
            name: self.name.clone(),
            insecure,
        })
    }

    /// First of these options that was given, for error messages of other transports.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--tls-cert", self.certificate.is_some()),
            ("--tls-fingerprint", !self.fingerprints.is_empty()),
            ("--tls-ca", self.authorities.is_some()),
        ];
        given
            .into_iter()
            .find(|(_, is_given)| *is_given)
            .map(|(name, _)| name)
    }
}

impl Encryption {
    /// TLS of a connecting end, and the name of the other end at `to`.
    pub(crate) fn client<'a>(&'a self, to: &'a str) -> Option<(&'a TlsClient, &'a str)> {
        let host = to.rsplit_once(':').map_or(to, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let client = self.client.as_ref()?;
        Some((client, self.name.as_deref().unwrap_or(host)))
    }

    /// TLS of a listening end.
    pub(crate) fn server(&self) -> Option<TlsServer> {
        self.server.as_ref().map(|(server, _)| server.clone())
    }

    /// Fingerprint of the listening end.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        self.server.as_ref().map(|(_, fingerprint)| *fingerprint)
    }

    /// Whether other hosts can connect to `listener`, and none is verified.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn accepts_all(&self, listener: &TcpListener) -> Result<bool> {
        let verifies = |(server, _): &(TlsServer, _)| server.verifies_clients();
        let verifies = self.server.as_ref().is_some_and(verifies);
        Ok(!verifies && !is_local(listener.local_addr()?.ip()))
    }

    /// # Errors
    /// A connection to `peer` would leave this host without TLS.
    pub(crate) fn check_peer(&self, peer: SocketAddr) -> Result<()> {
        if self.client.is_none() && !self.insecure && !is_local(peer.ip()) {
            bail!(
                "{peer} is another host, and the stream would be neither encrypted nor \
                authenticated: give --tls-fingerprint or --tls-ca (and --tls-cert at the other \
                end), or --insecure"
            );
        }
        Ok(())
    }

    /// Checks an address before other preparations. One that cannot be resolved is reported by the
    /// connection attempt.
    ///
    /// # Errors
    /// As [`check_peer`](Self::check_peer).
    pub(crate) fn check_address(&self, to: &str) -> Result<()> {
        let mut addresses = lookup(to).into_iter().flatten();
        addresses.try_for_each(|peer| self.check_peer(peer))
    }

    /// # Errors
    /// Other hosts could connect to `listener` without TLS.
    pub(crate) fn check_listener(&self, listener: &TcpListener) -> Result<()> {
        let at = listener.local_addr()?;
        if self.server.is_none() && !self.insecure && !is_local(at.ip()) {
            bail!(
                "other hosts can connect to {at}, and the stream would be neither encrypted nor \
                authenticated: give --tls-cert and --tls-key (`tidegate certificate` makes them), \
                listen at 127.0.0.1:{}, or give --insecure",
                at.port()
            );
        }
        Ok(())
    }
}

fn accepted(fingerprints: &[Fingerprint], authorities: Option<Authorities>) -> Option<Accepted> {
    match authorities {
        Some(authorities) => Some(Accepted::IssuedBy(authorities)),
        None if fingerprints.is_empty() => None,
        None => Some(Accepted::Pinned(fingerprints.to_vec())),
    }
}

fn authorities(text: &str) -> Result<Authorities, String> {
    match text {
        "" => Err("give a PEM file, or `system`".to_owned()),
        "system" => Ok(Authorities::System),
        file => Ok(Authorities::File(file.into())),
    }
}
