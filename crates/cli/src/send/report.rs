//! Output of a sender: the progress line, messages on changes, and the run folder.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tidegate_core::control::{Ecn, LowerEffort, Outcome};
use tidegate_core::endpoint::OVERHEAD;
use tidegate_core::session::history::PacketRow;
use tidegate_core::session::sender::{SentFrame, Status};
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_record::{Summary, packet_row, sent_row};

use super::addresses::Route;
use super::{SendArgs, Stream};
use crate::encoder_speed::EncoderSpeed;
use crate::live::{FLOW, Folder, Interval, Intervals, Tally, rounded};
use tidegate_console::progress::{Progress, counted, millis};

pub(super) struct Reporter {
    progress: Progress,
    folder: Folder,
    peer: String,
    bound: Option<Duration>,
    one_way: bool,
    /// Bytes that the protection adds to each packet.
    pub(super) protection: Bytes,
    reported: Reported,
    frames: Vec<SentFrame>,
    packets: Vec<PacketRow>,
    /// The delay of a frame is the time from its capture until its last packet left.
    intervals: Intervals,
    frames_made: u64,
    pace: EncoderSpeed,
    /// Packets that arrived with an ECN mark, if ECN is on.
    marked: Option<u64>,
    /// Sent frames, from the capture of the first.
    left: Tally,
}

/// Last reported state.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    silence: bool,
    reports_only: bool,
    too_far: bool,
    path: PathState,
    lower_effort: Option<LowerEffort>,
    packet_size: Option<Bytes>,
}

/// State of the path as the sender sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PathState {
    #[default]
    Open,
    Blackout,
    Stopped,
    Left,
}

impl PathState {
    fn of(status: &Status) -> Self {
        match () {
            () if status.left => Self::Left,
            () if status.stopped => Self::Stopped,
            () if status.blackout => Self::Blackout,
            () => Self::Open,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Blackout => "blackout",
            Self::Stopped => "stopped",
            Self::Left => "left",
        }
    }
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
        let promised = args.control().properties().fixed_rate.is_none();
        Self {
            progress,
            folder,
            peer: route.peer.to_string(),
            bound: promised.then_some(args.delay_bound),
            one_way: args.receiver.one_way,
            protection: Bytes::ZERO,
            reported: Reported::default(),
            frames: Vec::new(),
            packets: Vec::new(),
            intervals: Intervals::new(args.json.lines()),
            frames_made: 0,
            pace,
            marked: args.ecn.then_some(0),
            left: Tally::default(),
        }
    }

    /// Writes new rows and events, and prints due messages.
    pub(super) fn turn(&mut self, stream: &mut Stream, now: Time, events: &[(Time, Event)]) {
        let sender = stream.sender_mut();
        sender.drain_rows(&mut self.frames, &mut self.packets);
        let status = sender.status();
        self.keep(now, events);
        // A session that has ended has no state.
        if !stream.sender().is_done() {
            self.tell_changes(now, &status);
        }
        if let Some(slow) = self.pace.check(now) {
            self.progress.say(&slow);
        }
        if self.progress.is_due(now) {
            let line = self.line(now, &status);
            self.progress.show(&line);
        }
        self.intervals.print_if_due(now, |interval| {
            let millis = |span: Duration| rounded(span.as_secs_f64() * 1e3);
            json!({
                "target_bps": status.target.media.as_f64(),
                "loss": rounded(status.loss),
                "rtt_ms": status.rtt.map(millis),
                "delay_ms": millis(delay(interval, &status)),
                "path": PathState::of(&status).name(),
            })
        });
    }

    /// Writes the last rows and prints the last message.
    ///
    /// # Errors
    /// The run folder cannot be completed.
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
            self.intervals.count(|interval| {
                interval.frame(frame.bits);
                interval.delay(left.since(frame.captured));
            });
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
        self.tell_packet_size(status);
        let peer = &self.peer;
        let reported = &mut self.reported;
        let silent = !status.has_answered && !self.one_way && now >= Time::ZERO + FIRST_WORD;
        if silent && !std::mem::replace(&mut reported.silence, true) {
            self.progress.say(&format!(
                "{peer} has not answered yet: sending at the lowest rate (--floor), with a key \
                 frame every two seconds"
            ));
        }
        if status.reports_only && !std::mem::replace(&mut reported.reports_only, true) {
            self.progress.say(&format!(
                "{peer} sends receiver reports only, without per-packet feedback: the rate changes \
                with each report, with a key frame every two seconds"
            ));
        }
        if let (Some(bound), Some(rtt)) = (self.bound, status.rtt)
            && rtt / 2 >= bound
            && !std::mem::replace(&mut reported.too_far, true)
        {
            self.progress.say(&format!(
                "warning: half of the round-trip time to {peer} is {}, not less than the delay \
                bound: every picture is late, and one per second is sent; give a --delay-bound \
                above {}",
                millis(rtt / 2),
                millis(rtt / 2)
            ));
        }
        if let Some(treatment) = status.lower_effort
            && reported.lower_effort != status.lower_effort
        {
            reported.lower_effort = status.lower_effort;
            self.progress.say(&format!(
                "the path to {peer} {}",
                lower_effort_text(treatment)
            ));
        }
        let path = PathState::of(status);
        if std::mem::replace(&mut reported.path, path) != path {
            self.progress.say(&match path {
                PathState::Open => format!("{peer} answers again: the stream continues"),
                PathState::Blackout => format!("no feedback from {peer}: waiting for the path"),
                PathState::Left => {
                    format!("{peer} has left: waiting for another receiver at this address")
                }
                PathState::Stopped => {
                    format!("the circuit breaker stopped the stream to {peer}; probing the path")
                }
            });
        }
    }

    fn tell_packet_size(&mut self, status: &Status) {
        let before = std::mem::replace(&mut self.reported.packet_size, status.packet_size);
        let Some(size) = status.packet_size.filter(|_| before != status.packet_size) else {
            return;
        };
        let size = size + self.protection;
        self.progress.say(&format!(
            "the path to {} loses large packets without a message, as a tunnel with a small MTU \
            may: continuing with IP packets of {} bytes, the largest that pass ({} bytes of UDP \
            payload)",
            self.peer,
            size.get(),
            (size - OVERHEAD).get()
        ));
    }

    fn line(&mut self, now: Time, status: &Status) -> String {
        let interval = self.intervals.line(now);
        let rate = interval.rate(now);
        let allowed: Rate = status.target.media;
        let rtt = status.rtt.map_or_else(|| "-".to_owned(), millis);
        let delay = millis(delay(&interval, status));
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

/// The time until the slowest frame left plus half the round-trip time.
fn delay(interval: &Interval, status: &Status) -> Duration {
    interval.longest + status.rtt.unwrap_or_default() / 2
}

/// Treatment of packets of lower effort, as predicate of a path.
fn lower_effort_text(treatment: LowerEffort) -> &'static str {
    match treatment {
        LowerEffort::Untested => {
            "is tested with low-priority probes (DSCP LE); until then RAP controls the rate"
        }
        LowerEffort::Honoured => "serves low-priority probes after data: RCS controls the rate",
        LowerEffort::Ignored => {
            "serves low-priority probes as data, so they would harm others: RAP controls the rate"
        }
        LowerEffort::Remarked => {
            "changes the DSCP of low-priority probes, so they would harm others: RAP controls the \
            rate"
        }
        LowerEffort::Dropped => {
            "delivers no low-priority probes, which RCS needs: RAP controls the rate"
        }
        LowerEffort::Unanswered => {
            "returns no reports on low-priority probes, which RCS needs: RAP controls the rate"
        }
    }
}

/// A start takes up to 0.6 s. By then a receiver on another continent has answered.
const FIRST_WORD: Duration = Duration::from_millis(1_500);
