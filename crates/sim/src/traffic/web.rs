//! Emulated browsers: people who think, then fetch a page of heavy-tailed size, then think again.
//!
//! A browser is a pair of parties: a [`Client`], which asks and receives, and a [`Server`], which
//! answers over a TCP model. While somebody thinks, nothing happens and nothing is kept but the
//! state of a sender, so that thousands of browsers are cheap.

mod client;
mod config;
mod download;
mod server;
mod totals;

pub use client::{Client, ClientCounters};
pub use config::{Begin, Config, ConfigFault, Connections};
pub use server::{Server, ServerCounters};
pub use totals::Totals;

use std::sync::Arc;

/// The two parties of a browser. Each is the peer of the other; requests and acknowledgements take
/// the route of the client, pages that of the server.
///
/// # Errors
/// As [`Config::check`].
pub fn browser(config: &Arc<Config>) -> Result<(Client, Server), ConfigFault> {
    config.check()?;
    Ok((
        Client::new(Arc::clone(config)),
        Server::new(Arc::clone(config)),
    ))
}

#[cfg(test)]
mod tests;
