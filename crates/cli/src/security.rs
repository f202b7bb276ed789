//! Streams to other hosts without encryption.

use std::net::IpAddr;

/// Options for the security of a stream.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SecurityArgs {
    /// Permit streams to and from other hosts without encryption and authentication
    #[arg(long)]
    pub(crate) insecure: bool,
}

/// Whether packets to and from this address stay on this host.
pub(crate) fn is_local(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
