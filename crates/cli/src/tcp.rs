//! Streams over kernel TCP: common parts of sending and transcoding.

pub(crate) mod encryption;
pub(crate) mod endpoints;
mod modes;
pub(crate) mod outgoing;
pub(crate) mod rates;
pub(crate) mod ready;
pub(crate) mod sending;
pub(crate) mod watch;

use std::time::Duration;

use anyhow::{Result, ensure};
use rand_core::Rng as _;
use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::quantity;
use tidegate_core::session::tcp::{
    Capture, Classic, Follow, Interactive, RatePolicy, TcpSender, TcpSenderConfig,
};
use tidegate_core::tcp_rate::TcpRateConfig;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_live::tcp::TcpOptions;

use crate::live::{self, Limits};
use encryption::TlsArgs;
use modes::{Choice, ModeArgs};
use rates::Channel;
use tidegate_console::arguments;
use tidegate_console::context::{self, LiveContext};

/// Options of a stream over TCP.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "With TCP")]
pub(crate) struct TcpArgs {
    /// Listen on a port for players rather than connect to one; players are served one after
    /// another
    #[arg(long, value_name = "[ADDR:]PORT", conflicts_with = "to")]
    pub(crate) serve: Option<String>,
    #[command(flatten)]
    pub(crate) modes: ModeArgs,
    /// Rate of the encoder [default: 2Mb/s]; the initial rate in mode `follow`, the highest in
    /// `iexp` and `iopt`
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    pub(crate) rate: Option<Rate>,
    /// Read the rate from a file or a Unix socket: `file:PATH`, `unix:PATH`
    #[arg(long, value_name = "CHANNEL", value_parser = rates::channel)]
    pub(crate) rate_from: Option<Channel>,
    /// Write the rate for other encoders to such a channel
    #[arg(long, value_name = "CHANNEL", value_parser = rates::channel)]
    pub(crate) rate_to: Option<Channel>,
    /// Congestion control of the connection, such as `cubic` [default: the system's]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// Limit of unsent data in the kernel [default: 16kB]; frames beyond it can still be dropped
    /// here
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    pub(crate) notsent_lowat: Option<Bytes>,
    /// Longest retransmission timeout, from 1s to 120s (Linux 6.15 or later) [default: the
    /// kernel's]
    #[arg(long, value_name = "TIME", value_parser = arguments::rto_max)]
    pub(crate) rto_max: Option<Duration>,
    /// Time limit of a peer that listens or sends too slowly [default: 30s]: with --serve for a
    /// player to introduce itself, and to acknowledge the data in the socket; for the input of a
    /// transcoder from one frame to the next
    #[arg(long, value_name = "TIME", value_parser = arguments::lasting)]
    idle_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

impl TcpArgs {
    /// Mode given by the user, or implied by other options.
    pub(crate) fn choice(&self) -> Choice {
        self.modes.choice(self.rate_from.is_some())
    }

    /// Time limit of slow peers.
    pub(crate) fn idle_timeout(&self) -> Duration {
        self.idle_timeout.unwrap_or(IDLE_TIMEOUT)
    }

    /// Rate of the encoder.
    pub(crate) fn rate(&self) -> Rate {
        self.rate.unwrap_or(RATE)
    }

    /// # Errors
    /// An option is invalid. The message names the option and the fix.
    pub(crate) fn check(&self, limits: Limits) -> Result<()> {
        let choice = self.choice();
        ensure!(
            choice != Choice::Follow || self.rate_from.is_some(),
            "--mode follow requires --rate-from"
        );
        ensure!(
            choice == Choice::Follow || self.rate_from.is_none(),
            "--rate-from requires --mode follow, not --mode {}: leave out one of them",
            choice.name()
        );
        ensure!(
            self.rate() > Rate::ZERO,
            "a --rate of zero sends nothing: give a higher one"
        );
        self.check_rate(choice, limits)?;
        self.modes.check(choice)
    }

    /// Checks that `--serve` can read the input from its beginning for each player.
    ///
    /// # Errors
    /// The input can be read only once.
    pub(crate) fn check_input(&self, input: &str) -> Result<()> {
        ensure!(
            self.serve.is_none() || input != "-",
            "standard input serves one player only, and --serve may have several: give a file as \
            --input, or --to instead of --serve"
        );
        Ok(())
    }

    /// Checks the rate against the limits that were given. The default floor counts too in modes
    /// that can lower the rate to it. In mode `follow` the default rate is clamped instead.
    fn check_rate(&self, choice: Choice, limits: Limits) -> Result<()> {
        if choice == Choice::Follow && self.rate.is_none() {
            return Ok(());
        }
        let rate = self.rate();
        let usual = choice.symbiosis().map(|_| limits.both().0);
        if let Some(floor) = limits.floor.or(usual) {
            ensure!(
                floor <= rate,
                "the floor of {floor} is above the rate of {rate}: lower --floor or raise --rate"
            );
        }
        if let Some(ceiling) = limits.ceiling {
            ensure!(
                rate <= ceiling,
                "the rate of {rate} is above the ceiling of {ceiling}: lower --rate or raise \
                --ceiling"
            );
        }
        Ok(())
    }

    /// First of these options that was given, for error messages of other transports.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--rate", self.rate.is_some()),
            ("--rate-from", self.rate_from.is_some()),
            ("--rate-to", self.rate_to.is_some()),
            ("--congestion", self.congestion.is_some()),
            ("--notsent-lowat", self.notsent_lowat.is_some()),
            ("--rto-max", self.rto_max.is_some()),
            ("--idle-timeout", self.idle_timeout.is_some()),
        ];
        let own = given.into_iter().chain(self.modes.given());
        own.filter(|(_, is_given)| *is_given)
            .map(|(name, _)| name)
            .next()
            .or_else(|| self.tls.first_given())
    }

    pub(crate) fn options(&self) -> TcpOptions {
        TcpOptions {
            congestion: self.congestion.clone(),
            notsent_lowat: Some(self.notsent_lowat.unwrap_or(LOWAT)),
            rto_max: self.rto_max,
            paced: false,
        }
    }
}

/// Parameters of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamConfig {
    pub(crate) codec: Codec,
    pub(crate) frame_rate: FrameRate,
    pub(crate) capture: Capture,
    pub(crate) packet_size: Bytes,
    /// Lowest and highest rate of the encoder.
    pub(crate) limits: (Rate, Rate),
    /// Maximum delay from a frame's capture to its arrival.
    pub(crate) delay_bound: Duration,
}

impl StreamConfig {
    /// Sender of the stream over a connection opened at `now`, with unpredictable SSRC and initial
    /// sequence number.
    pub(crate) fn sender(&self, args: &TcpArgs, context: &LiveContext, now: Time) -> TcpSender {
        let mut rng = context::secret_seed().stream("session");
        let config = TcpSenderConfig {
            codec: self.codec,
            ssrc: rng.next_u32(),
            timestamp_base: rng.next_u32(),
            cname: live::random_name(&mut rng),
            epoch: context.epoch,
            frame_rate: self.frame_rate,
            capture: self.capture,
            packet_size: self.packet_size,
            most_queued: MAX_QUEUED,
            place: args.modes.place(args.choice()),
            most_pictures: max_pictures(self.delay_bound, self.frame_rate),
        };
        TcpSender::new(config, self.steering(args, now))
    }

    fn steering(&self, args: &TcpArgs, now: Time) -> Box<dyn RatePolicy> {
        let rate = args.rate();
        match args.choice() {
            Choice::Classic => Box::new(Classic::new(rate)),
            Choice::Follow => Box::new(Follow::new(rate, self.limits)),
            Choice::TcpRateAdapter(mode) => {
                let config = TcpRateConfig {
                    mode,
                    subscribed: args.modes.subscribed(mode),
                    floor: self.limits.0,
                    ceiling: rate,
                    bound: self.delay_bound,
                    interval: self.frame_rate.interval(),
                    encoder_delay: args.modes.reaction_delay(),
                    default_response_latency: args.modes.reaction(),
                    margin: args.modes.margin(),
                    drain: args.modes.drain(self.delay_bound),
                };
                Box::new(Interactive::new(config, now))
            }
        }
    }
}

/// Frames captured within the delay bound, plus a new one: older frames are late.
pub(crate) fn max_pictures(bound: Duration, frame_rate: FrameRate) -> usize {
    let interval = frame_rate.interval().as_nanos().max(1);
    usize::try_from(bound.as_nanos().div_ceil(interval))
        .map_or(MAX_PICTURES, |frames| (frames + 1).min(MAX_PICTURES))
}

const RATE: Rate = Rate::kbps(2_000);
const LOWAT: Bytes = Bytes(16_000);
/// As of a player.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// A minute at 8 Mb/s.
const MAX_QUEUED: Bytes = Bytes(60_000_000);
/// Ten seconds at 30 frames per second: 100 MB at 640x360.
const MAX_PICTURES: usize = 300;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        // Conflicts with `--serve`.
        #[arg(long)]
        to: Option<String>,
        #[command(flatten)]
        tcp: TcpArgs,
        #[command(flatten)]
        limits: Limits,
    }

    #[test]
    fn a_rate_outside_of_given_limits_is_rejected() {
        let check = |line: &str| {
            let words = ["send"].into_iter().chain(line.split_whitespace());
            let line = Line::try_parse_from(words).unwrap();
            assert_eq!(line.to, None);
            line.tcp.check(line.limits).map_err(|e| e.to_string())
        };
        for (line, part) in [
            ("--rate 2Mb/s --ceiling 1Mb/s", "the ceiling of 1.00 Mb/s"),
            ("--ceiling 1Mb/s --mode iopt", "lower --rate"),
            ("--rate 2Mb/s --floor 3Mb/s", "the floor of 3.00 Mb/s"),
            ("--rate 100kb/s --mode iexp", "lower --floor"),
            ("--rate-from r --rate 2Mb/s --ceiling 1Mb/s", "lower --rate"),
        ] {
            let error = check(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
        for line in [
            "--rate 100kb/s",
            "--rate 10Mb/s",
            "--rate-from r --ceiling 1Mb/s",
            "--rate 2Mb/s --ceiling 2Mb/s --floor 2Mb/s",
        ] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
    }

    #[test]
    fn the_longest_timeout_is_in_the_range_of_the_kernel() {
        assert_eq!(arguments::rto_max("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(arguments::rto_max("2min"), Ok(Duration::from_mins(2)));
        for (text, part) in [
            ("1ms", "1s to 120s"),
            ("121s", "1s to 120s"),
            ("soon", "soon"),
        ] {
            let error = arguments::rto_max(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
