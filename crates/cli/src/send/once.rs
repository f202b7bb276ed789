//! A stream over TCP to one player, for callers that serve many.

use std::ffi::OsString;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Parser;
use tidegate_core::units::Time;
use tidegate_live::driver::RunLimits;

use super::tcp;
use super::{SendArgs, check, open_input};
use crate::live::Transport;
use crate::tcp::endpoints::dial;
use crate::tcp::ready::{Ready, ready};
use crate::tcp::sending::StreamResult;
use tidegate_console::context::LiveContext;

/// Parsed arguments of `tidegate send`.
#[derive(Debug, Parser)]
#[command(name = "tidegate send", no_binary_name = true)]
pub(crate) struct Once {
    #[command(flatten)]
    args: SendArgs,
}

impl Once {
    /// Parses arguments of `tidegate send`.
    ///
    /// # Errors
    /// An argument is invalid; the message names it.
    pub(crate) fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let once = Self::try_parse_from(arguments).map_err(|e| {
            // The first paragraph is the message; the rest is the usage of a command line that the
            // user did not type.
            let text = e.to_string();
            let first = text.lines().take_while(|line| !line.is_empty());
            let first: Vec<&str> = first.map(str::trim).collect();
            anyhow!("{}", first.join(" ").trim_start_matches("error: "))
        })?;
        if once.args.transport != Transport::Tcp {
            bail!("players on other hosts require --transport tcp");
        }
        check(&once.args)?;
        tcp::check(&once.args)?;
        Ok(once)
    }

    /// Checks that the system supports the options.
    ///
    /// # Errors
    /// An option is unsupported. The message names it and the alternative.
    pub(crate) fn ready(&self) -> Result<Ready> {
        ready(&self.args.tcp)
    }

    /// Argument of `--fps`, if given.
    pub(crate) fn fps(&self) -> Option<String> {
        let fps = self.args.fps?;
        Some(format!("{}/{}", fps.num, fps.den))
    }

    /// Connects and sends until the video ends, the user interrupts, or `until`.
    ///
    /// # Errors
    /// The connection is refused, or the source cannot be read.
    pub(crate) fn play(&self, around: &LiveContext, until: Time) -> Result<StreamResult> {
        let _ready = self.ready()?;
        let encryption = tcp::encryption(&self.args)?;
        let picked = open_input(&self.args)?;
        let conditions = RunLimits {
            until: Some(until),
            ..around.conditions()
        };
        let to = self.args.to.as_deref().context("players need --to")?;
        let socket = dial(to, &encryption, &conditions, || {
            around.interrupts.count() > 0
        })?;
        let mut socket = socket.context("no connection to the player")?;
        socket.configure(&self.args.tcp.options())?;
        tcp::play(&self.args, around, &conditions, &mut socket, picked, 1)
    }
}
