//! Sends one stream to one player, from any source of pictures.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use tidegate_core::session::tcp::TcpStreamer;
use tidegate_core::tcp_rate::RateReduction;
use tidegate_core::units::Time;
use tidegate_live::driver::RunLimits;
use tidegate_live::encoder_thread::EncoderThread;
use tidegate_live::tcp::TcpSocket;
use tidegate_media::EncoderSession;
use tidegate_record::{FlowInfo, Side};

use super::outgoing::Report;
use super::watch::watch;
use super::{StreamConfig, TcpArgs};
use crate::encoder_speed::Timed;
use crate::live::{self, Folder, JsonArgs, Reporter, SentReport};
use crate::source_speed::SourceWatch;
use tidegate_console::context::LiveContext;
use tidegate_console::describe;

/// Stream to send and its output.
pub(crate) struct Sending<'a> {
    pub(crate) tcp: &'a TcpArgs,
    pub(crate) config: StreamConfig,
    pub(crate) encoder: EncoderSession,
    /// Times of the readings of the encoder's source.
    pub(crate) source: SourceWatch,
    /// Advice for a slow encoder.
    pub(crate) slow_encoder_advice: &'static str,
    /// First message; the mode is appended.
    pub(crate) greeting: String,
    /// Name of the run in its folder.
    pub(crate) name: String,
    /// Duration of the video, if known.
    pub(crate) duration: Option<Duration>,
    /// Run folder, if requested.
    pub(crate) dir: Option<PathBuf>,
    /// JSON output.
    pub(crate) json: JsonArgs,
}

/// Result of a stream.
pub(crate) struct StreamResult {
    /// Whether the player accepted data.
    pub(crate) took: bool,
    /// An error concerns this player only: its connection or its run folder.
    pub(crate) ended: Result<()>,
}

impl Sending<'_> {
    /// Sends to the player at the other end of `socket`. `on_turn` is called at each turn of the
    /// driver and may print messages.
    ///
    /// # Errors
    /// The encoder or its source fails, or the summary of a stream without an error cannot be printed.
    pub(crate) fn play(
        self,
        context: &LiveContext,
        conditions: &RunLimits,
        socket: &mut TcpSocket,
        on_turn: impl FnMut(&mut TcpStreamer<EncoderThread>, &mut Reporter<Vec<RateReduction>>, Time),
    ) -> Result<StreamResult> {
        let sayings = match watch(self.tcp, socket) {
            Ok(sayings) => sayings,
            Err(error) => {
                // A connection that was reset in the meantime cannot be watched.
                let error = socket.connection_error().map_or(error, Into::into);
                return Ok(StreamResult {
                    took: false,
                    ended: Err(error),
                });
            }
        };
        let manifest = live::manifest(&self.name, self.duration, self.flow_info());
        let (dir, summary) = (self.dir.as_deref(), self.json.summary());
        let folder = Folder::later(dir, summary, Side::Sender, manifest);
        let (clock, advice) = (conditions.clock, self.slow_encoder_advice);
        let (encoder, pace) = Timed::new(self.encoder, clock, self.source, advice);
        let greeting = format!("{}, {}", self.greeting, self.tcp.choice().name());
        let sent = SentReport::new(folder, self.json, pace);
        let mut report = Report::new(self.tcp, sent, sayings, &greeting)?;
        let now = conditions.clock.now();
        let sender = self.config.sender(self.tcp, context, now);
        let pipe = EncoderThread::start(encoder, context.stop.clone());
        let pipe = pipe.context("cannot start the encoder thread")?;
        let mut stream = TcpStreamer::new(sender, pipe);
        let ended = report.play(&mut stream, socket, conditions, context, on_turn);
        let took = report.took();
        let finished = report.finish(&stream.sender, conditions.clock.now());
        if let Some(error) = stream.error() {
            bail!("{error}");
        }
        let ended = match (finished, ended) {
            (Ok(printed), Ok(_)) => Ok(printed?),
            (Ok(_), Err(ended)) => Err(ended.into()),
            (Err(error), Ok(_)) => Err(error),
            (Err(error), Err(ended)) => Err(anyhow!("{ended}; {}", describe(&error))),
        };
        Ok(StreamResult { took, ended })
    }

    fn flow_info(&self) -> FlowInfo {
        FlowInfo {
            delay_bound: Some(self.config.delay_bound),
            floor: self.config.limits.0,
            frame_rate: Some(self.config.frame_rate),
            ..live::flow_info(self.tcp.choice().name())
        }
    }
}

/// Folder of a player: the name itself for the first, with the suffix 2 for the second.
pub(crate) fn numbered(dir: &Path, player: u32) -> PathBuf {
    if player == 1 {
        return dir.to_owned();
    }
    let mut name = dir.as_os_str().to_owned();
    name.push(format!("-{player}"));
    PathBuf::from(name)
}
