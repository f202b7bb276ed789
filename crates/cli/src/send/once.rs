//! One stream over TCP to one player, for those who play many.

use std::ffi::OsString;

use anyhow::{Result, anyhow, bail};
use clap::Parser;
use tidegate_core::units::Time;
use tidegate_live::driver::Conditions;
use tidegate_live::tcp::TcpSocket;

use super::tcp;
use super::{SendArgs, check, pick};
use crate::live::Transport;
use crate::tcp::ends::End;
use crate::tcp::ready::{Ready, ready};
use crate::tcp::sending::Played;
use tidegate_console::context::LiveContext;

/// What `tidegate send` would have been asked for.
#[derive(Debug, Parser)]
#[command(name = "tidegate send", no_binary_name = true)]
pub(crate) struct Once {
    #[command(flatten)]
    args: SendArgs,
}

impl Once {
    /// Reads the arguments of `tidegate send`.
    ///
    /// # Errors
    /// Names the one that makes no sense.
    pub(crate) fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let once = Self::try_parse_from(arguments).map_err(|e| {
            // What is behind the first paragraph is of a command line that nobody wrote.
            let told = e.to_string();
            let first = told.lines().take_while(|line| !line.is_empty());
            let first: Vec<&str> = first.map(str::trim).collect();
            anyhow!("{}", first.join(" ").trim_start_matches("error: "))
        })?;
        if once.args.transport != Transport::Tcp {
            bail!("players on other hosts are for --transport tcp");
        }
        check(&once.args)?;
        tcp::check(&once.args)?;
        Ok(once)
    }

    /// Sees that its options can be had on this system.
    ///
    /// # Errors
    /// Names the one that cannot, and what there is instead.
    pub(crate) fn ready(&self) -> Result<Ready> {
        ready(&self.args.tcp)
    }

    /// Frames per second, as arguments have it, if it was told.
    pub(crate) fn fps(&self) -> Option<String> {
        let fps = self.args.fps?;
        Some(format!("{}/{}", fps.num, fps.den))
    }

    /// Connects and sends, until the video is over, or somebody ends it, or it is `until`.
    ///
    /// # Errors
    /// When nobody listens there, or the source cannot be read.
    pub(crate) fn play(&self, around: &LiveContext, until: Time) -> Result<Played> {
        let _ready = self.ready()?;
        let picked = pick(&self.args)?;
        let conditions = Conditions {
            until: Some(until),
            ..around.conditions()
        };
        let end = End::new(self.args.to.as_deref(), None)?;
        let stream = end.open(&conditions, || around.interrupts.count() > 0)?;
        let (stream, peer) = stream.ok_or_else(|| anyhow!("there is no connection"))?;
        let mut socket = TcpSocket::of_peer(stream, peer, &self.args.tcp.options())?;
        tcp::play(&self.args, around, &conditions, &mut socket, picked, 1)
    }
}
