//! Emulated web clients: think, fetch a page of heavy-tailed size, repeat.
//!
//! A browser is a pair of nodes: a [`Client`], which sends requests and receives pages, and a
//! [`Server`], which answers over a TCP model. During think times there are no events and only the
//! state of a sender, so thousands of browsers are cheap.

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

/// The client and the server of a browser, which are peers. Requests and acknowledgements take the
/// route of the client, pages that of the server.
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
