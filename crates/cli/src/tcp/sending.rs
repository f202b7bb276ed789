//! One stream to one player, whichever pictures it has.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use tidegate_core::session::tcp::TcpStreamer;
use tidegate_core::units::Time;
use tidegate_live::driver::Conditions;
use tidegate_live::encoder_thread::Threaded;
use tidegate_live::tcp::{Sent, TcpSocket};
use tidegate_media::EncoderSession;
use tidegate_sim::run::{FlowInfo, Side, Summary, Way};

use super::outgoing::Reporter;
use super::watch::watch;
use super::{Making, TcpArgs};
use crate::encoder_speed::Timed;
use crate::live::{self, FLOW, Folder};
use tidegate_console::context::LiveContext;
use tidegate_console::describe;
use tidegate_console::progress::Progress;

/// What is sent, and what is kept of it.
pub(crate) struct Sending<'a> {
    pub(crate) tcp: &'a TcpArgs,
    pub(crate) making: Making,
    pub(crate) encoder: EncoderSession,
    /// What to do if the encoder is too slow.
    pub(crate) mend: &'static str,
    /// Said at the beginning; the mode stands behind it.
    pub(crate) greeting: String,
    /// Of the run, in its folder.
    pub(crate) name: String,
    /// How long the video is, if that is known.
    pub(crate) duration: Option<Duration>,
    /// The run folder; none if nobody wants one.
    pub(crate) dir: Option<PathBuf>,
    /// Whether numbers are wanted at the end.
    pub(crate) json: bool,
}

/// What became of a stream.
pub(crate) struct Played {
    pub(crate) summary: Option<Summary>,
    /// How often the rate was changed because of an event.
    pub(crate) answers: usize,
    /// Whether anything has come to the player.
    pub(crate) took: bool,
    /// How it ended. What failed concerns this player alone: its connection, or its run folder.
    pub(crate) ended: Result<Sent>,
}

impl Sending<'_> {
    /// Sends to the player at the other end of `socket`. `on_turn` is called whenever something may
    /// have happened, with what can be said in between.
    ///
    /// # Errors
    /// When the encoder or its pictures fail.
    pub(crate) fn play(
        self,
        around: &LiveContext,
        conditions: &Conditions,
        socket: &mut TcpSocket,
        on_turn: impl FnMut(&mut TcpStreamer<Threaded>, &mut Progress, Time),
    ) -> Result<Played> {
        let sayings = match watch(self.tcp, socket) {
            Ok(sayings) => sayings,
            Err(error) => {
                // Nothing can be watched of a connection that was reset meanwhile.
                let error = socket.broken().map_or(error, Into::into);
                return Ok(Played {
                    summary: None,
                    answers: 0,
                    took: false,
                    ended: Err(error),
                });
            }
        };
        let manifest = live::manifest(&self.name, self.duration, self.flow_info());
        let mut folder = Folder::later(self.dir.as_deref(), self.json, Side::Sender, manifest);
        // Of many who come some take nothing, as scans of ports: they have none.
        let at_once = self.tcp.serve.is_none();
        let trouble = at_once.then(|| folder.begin()).flatten();
        let (encoder, pace) = Timed::new(self.encoder, conditions.clock, self.mend);
        let mut reporter = Reporter::new(self.tcp, folder, sayings, pace)?;
        if let Some(trouble) = trouble {
            reporter.progress.say(&trouble);
        }
        let mode = self.tcp.choice().name();
        reporter.progress.say(&format!("{}, {mode}", self.greeting));
        let sender = self.making.sender(self.tcp, around, conditions.clock.now());
        let pipe =
            Threaded::start(encoder, around.stop.clone()).context("no thread for the encoder")?;
        let mut stream = TcpStreamer::new(sender, pipe);
        let ended = reporter.play(&mut stream, socket, conditions, around, on_turn);
        let (answers, took) = (reporter.answers(), reporter.took());
        let finished = reporter.finish(conditions.clock.now());
        if let Some(error) = stream.error() {
            bail!("{error}");
        }
        let (summary, ended) = match (finished, ended) {
            (Ok(summary), ended) => (summary, ended.map_err(Into::into)),
            (Err(error), Ok(_)) => (None, Err(error)),
            (Err(error), Err(ended)) => (None, Err(anyhow!("{ended}; {}", describe(&error)))),
        };
        Ok(Played {
            summary,
            answers,
            took,
            ended,
        })
    }

    fn flow_info(&self) -> FlowInfo {
        FlowInfo {
            name: FLOW.to_owned(),
            class: FLOW.to_owned(),
            control: self.tcp.choice().name().to_owned(),
            baseline: false,
            delay_bound: Some(self.making.delay_bound),
            floor: self.making.limits.0,
            frame_rate: Some(self.making.frame_rate),
            one_clock: false,
            way: Way::default(),
            active: None,
        }
    }
}

/// The folder of the first player is as it is named, that of the second has a 2 behind it.
pub(crate) fn numbered(dir: &Path, player: u32) -> PathBuf {
    if player == 1 {
        return dir.to_owned();
    }
    let mut name = dir.as_os_str().to_owned();
    name.push(format!("-{player}"));
    PathBuf::from(name)
}
