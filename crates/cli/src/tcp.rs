//! Streams over kernel TCP: what sending and transcoding have in common.

pub(crate) mod ends;
pub(crate) mod outgoing;
pub(crate) mod rates;

use std::time::Duration;

use anyhow::{Result, ensure};
use rand_core::Rng as _;
use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::session::tcp::{
    Capture, Classic, Follow, Place, Steering, TcpSender, TcpSenderConfig,
};
use tidegate_core::units::{Bytes, Rate};
use tidegate_live::tcp::TcpOptions;
use tidegate_sim::scenario::quantity;

use crate::live::{self, Surroundings};
use rates::Channel;

/// How to send over TCP.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "With TCP")]
pub(crate) struct TcpArgs {
    /// Wait for players at a port instead of connecting to one; when one leaves, the next is served
    #[arg(long, value_name = "[ADDR:]PORT", conflicts_with = "to")]
    pub(crate) serve: Option<String>,
    /// `classic`: one rate, and everything is sent, however late; `follow`: as `--rate-from` says
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Rate of the encoder; in mode `follow` until another one is told
    #[arg(long, value_name = "RATE", default_value = "2Mb/s", value_parser = quantity::rate)]
    pub(crate) rate: Rate,
    /// Take the rate from a file, a named pipe or a Unix socket: `file:PATH`, `pipe:PATH`, `unix:PATH`
    #[arg(long, value_name = "CHANNEL", value_parser = rates::channel)]
    pub(crate) rate_from: Option<Channel>,
    /// Tell the rate to encoders of others, in the same way
    #[arg(long, value_name = "CHANNEL", value_parser = rates::channel)]
    pub(crate) rate_to: Option<Channel>,
    /// Congestion control of the connection, as `cubic`; the system's choice unless told
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// The kernel takes no more while this much waits unsent: what waits here can still be dropped
    #[arg(long, value_name = "SIZE", default_value = "16kB", value_parser = quantity::size)]
    pub(crate) notsent_lowat: Bytes,
    /// Longest retransmission timeout, from 1s to 120s (Linux 6.15 or later)
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    pub(crate) rto_max: Option<Duration>,
}

/// Who decides the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Nobody: it is constant
    Classic,
    /// Somebody outside
    Follow,
}

impl Mode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Follow => "follow",
        }
    }
}

impl TcpArgs {
    /// Told, or implied by the other options.
    pub(crate) fn mode(&self) -> Mode {
        self.mode.unwrap_or(if self.rate_from.is_some() {
            Mode::Follow
        } else {
            Mode::Classic
        })
    }

    /// # Errors
    /// Names the option that makes no sense, and the mend.
    pub(crate) fn check(&self) -> Result<()> {
        let mode = self.mode();
        ensure!(
            mode == Mode::Classic || self.rate_from.is_some(),
            "nobody tells the rate to --mode follow: give --rate-from"
        );
        ensure!(
            mode == Mode::Follow || self.rate_from.is_none(),
            "--mode classic follows nobody: leave out --rate-from, or --mode"
        );
        ensure!(
            self.rate > Rate::ZERO,
            "a --rate of zero sends nothing: give it more"
        );
        let spans = Duration::from_secs(1)..=Duration::from_mins(2);
        ensure!(
            self.rto_max.is_none_or(|span| spans.contains(&span)),
            "the kernel takes an --rto-max from 1s to 120s"
        );
        Ok(())
    }

    pub(crate) fn options(&self) -> TcpOptions {
        TcpOptions {
            congestion: self.congestion.clone(),
            notsent_lowat: Some(self.notsent_lowat),
            rto_max: self.rto_max,
        }
    }

    /// Who decides. `limits` are the lowest and the highest rate of the encoder.
    pub(crate) fn steering(&self, limits: (Rate, Rate)) -> Box<dyn Steering> {
        match self.mode() {
            Mode::Classic => Box::new(Classic::new(self.rate)),
            Mode::Follow => Box::new(Follow::new(self.rate, limits)),
        }
    }
}

/// What a stream is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Making {
    pub(crate) codec: Codec,
    pub(crate) frame_rate: FrameRate,
    pub(crate) capture: Capture,
    pub(crate) packet_size: Bytes,
    /// Lowest and highest rate of the encoder.
    pub(crate) limits: (Rate, Rate),
}

impl Making {
    /// A sender of such a stream, with numbers that nobody can guess.
    pub(crate) fn sender(&self, args: &TcpArgs, around: &Surroundings) -> TcpSender {
        let mut rng = live::secret_seed().stream("session");
        let config = TcpSenderConfig {
            codec: self.codec,
            ssrc: rng.next_u32(),
            timestamp_base: rng.next_u32(),
            cname: live::random_name(&mut rng),
            epoch: around.epoch,
            frame_rate: self.frame_rate,
            capture: self.capture,
            packet_size: self.packet_size,
            most_queued: MOST_QUEUED,
            place: Place::Frames,
            most_pictures: MOST_PICTURES,
        };
        TcpSender::new(config, args.steering(self.limits))
    }
}

/// A minute at 8 Mb/s.
const MOST_QUEUED: Bytes = Bytes(60_000_000);
/// Two seconds at 30 frames per second: what a source that is live keeps.
pub(crate) const MOST_PICTURES: usize = 60;
