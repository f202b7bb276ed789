//! What a sender tells while it sends: the progress line, changes worth a line, the run folder.

use std::time::Duration;

use anyhow::Result;
use tidegate_core::control::{Ecn, Outcome};
use tidegate_core::endpoint::Endpoint as _;
use tidegate_core::session::history::PacketRow;
use tidegate_core::session::sender::{SentFrame, Status};
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_sim::flow_endpoints::{packet_row, sent_row};
use tidegate_sim::run::Summary;

use super::addresses::Route;
use super::{SendArgs, Stream};
use crate::encoder_speed::EncoderSpeed;
use crate::live::{FLOW, Folder, Tally};
use tidegate_console::progress::{Progress, counted, millis};

pub(super) struct Reporter {
    progress: Progress,
    folder: Folder,
    peer: String,
    bound: Option<Duration>,
    one_way: bool,
    told: Told,
    frames: Vec<SentFrame>,
    packets: Vec<PacketRow>,
    recent: Recent,
    frames_made: u64,
    pace: EncoderSpeed,
    /// Packets that arrived with a mark, if any may be marked.
    marked: Option<u64>,
    /// From the capture of the first frame that left on.
    left: Tally,
}

/// What has been told.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    silence: bool,
    reports_only: bool,
    path: PathState,
}

/// What the sender makes of the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PathState {
    #[default]
    Open,
    Blackout,
    Stopped,
    Left,
}

/// Since the last progress line.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    since: Time,
    bits: u64,
    /// From capture until the last packet left.
    slowest: Duration,
}

impl Reporter {
    pub(super) fn new(
        args: &SendArgs,
        what: &str,
        route: &Route,
        folder: Folder,
        pace: EncoderSpeed,
    ) -> Self {
        let mut progress = Progress::default();
        let port = route.sockets[0].local_addr().map_or(0, |a| a.port());
        let control = args.control().name();
        progress.say(&format!(
            "sending {what} to {} from port {port}, {control}",
            route.peer
        ));
        let promised = control != "fixed";
        Self {
            progress,
            folder,
            peer: route.peer.to_string(),
            bound: promised.then_some(args.delay_bound),
            one_way: args.one_way,
            told: Told::default(),
            frames: Vec::new(),
            packets: Vec::new(),
            recent: Recent::default(),
            frames_made: 0,
            pace,
            marked: args.ecn.then_some(0),
            left: Tally::default(),
        }
    }

    /// Takes what there is to take, and tells what there is to tell.
    pub(super) fn turn(&mut self, stream: &mut Stream, now: Time, events: &[(Time, Event)]) {
        let sender = stream.sender_mut();
        sender.drain_rows(&mut self.frames, &mut self.packets);
        let status = sender.status();
        self.keep(now, events);
        // A session that is over is in no state.
        if !stream.is_done() {
            self.tell_changes(now, &status);
        }
        if let Some(slow) = self.pace.look(now) {
            self.progress.say(&slow);
        }
        if self.progress.is_due(now) {
            let line = self.line(now, &status);
            self.progress.show(&line);
        }
    }

    /// The last rows and the last words.
    ///
    /// # Errors
    /// When the run folder cannot be finished.
    pub(super) fn finish(
        mut self,
        stream: &mut Stream,
        now: Time,
        events: &[(Time, Event)],
    ) -> Result<Option<Summary>> {
        let sender = stream.sender_mut();
        sender.drain_rows(&mut self.frames, &mut self.packets);
        sender.finish_rows(&mut self.frames, &mut self.packets);
        let summary = sender.summary();
        self.keep(now, events);
        self.progress.say(&format!(
            "{}; {} lost{}",
            self.left.sent_of(self.frames_made),
            counted(summary.lost, "packet"),
            self.marked
                .map_or_else(String::new, |marked| format!(", {marked} marked"))
        ));
        self.folder.finish(now)
    }

    fn keep(&mut self, now: Time, events: &[(Time, Event)]) {
        for frame in &self.frames {
            self.frames_made += 1;
            let Some(left) = frame.left else { continue };
            self.left.add(frame.bits, frame.captured, left);
            self.recent.bits += frame.bits;
            self.recent.slowest = self.recent.slowest.max(left.since(frame.captured));
        }
        if let Some(marked) = &mut self.marked {
            let is_marked = |row: &&PacketRow| {
                matches!(row.outcome, Some(Outcome::Received { ecn: Ecn::Ce, .. }))
            };
            *marked += self.packets.iter().filter(is_marked).count() as u64;
        }
        let (frames, packets) = (&mut self.frames, &mut self.packets);
        let trouble = self.folder.record(now, events, |writer| {
            frames
                .iter()
                .try_for_each(|row| writer.sent_frame(FLOW, &sent_row(row)))?;
            packets
                .iter()
                .try_for_each(|row| writer.packet(FLOW, &packet_row(row)))
        });
        frames.clear();
        packets.clear();
        if let Some(trouble) = trouble {
            self.progress.say(&trouble);
        }
    }

    fn tell_changes(&mut self, now: Time, status: &Status) {
        let peer = &self.peer;
        let told = &mut self.told;
        let silent = !status.heard && !self.one_way && now >= Time::ZERO + FIRST_WORD;
        if silent && !std::mem::replace(&mut told.silence, true) {
            self.progress.say(&format!(
                "{peer} has not answered yet: sending at the lowest rate meanwhile"
            ));
        }
        if status.reports_only && !std::mem::replace(&mut told.reports_only, true) {
            self.progress.say(&format!(
                "{peer} sends receiver reports only, no news of single packets: the rate stays \
                 low, and a key frame comes every two seconds"
            ));
        }
        let path = match () {
            () if status.left => PathState::Left,
            () if status.stopped => PathState::Stopped,
            () if status.blackout => PathState::Blackout,
            () => PathState::Open,
        };
        if std::mem::replace(&mut told.path, path) != path {
            self.progress.say(&match path {
                PathState::Open => format!("{peer} is back: the stream goes on"),
                PathState::Blackout => format!("{peer} has fallen silent: waiting for the path"),
                PathState::Left => {
                    format!("{peer} has left: waiting for another receiver there")
                }
                PathState::Stopped => {
                    format!("the circuit breaker stopped the stream to {peer}; asking on")
                }
            });
        }
    }

    /// How long a frame takes is what it took to leave, and half a round trip.
    fn line(&mut self, now: Time, status: &Status) -> String {
        let Recent {
            since,
            bits,
            slowest,
        } = std::mem::replace(
            &mut self.recent,
            Recent {
                since: now,
                ..Recent::default()
            },
        );
        let rate = Bytes(bits / 8) / now.since(since).max(Duration::from_millis(1));
        let allowed: Rate = status.target.media;
        let rtt = status.rtt.map_or_else(|| "-".to_owned(), millis);
        let delay = millis(slowest + status.rtt.unwrap_or_default() / 2);
        let bound = self
            .bound
            .map_or_else(String::new, |bound| format!(" of {}", millis(bound)));
        format!(
            "{:6.1} s  {rate} of {allowed}  loss {:.1} %  RTT {rtt}  delay {delay}{bound}",
            now.as_secs_f64(),
            status.loss * 100.0,
        )
    }
}

/// The greeting takes 0.6 s; a receiver on another continent has answered by now.
const FIRST_WORD: Duration = Duration::from_millis(1_500);
