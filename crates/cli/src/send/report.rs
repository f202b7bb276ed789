//! Output of an RTP sender.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tidegate_core::control::{Ecn, LowerEffort, Outcome};
use tidegate_core::endpoint::OVERHEAD;
use tidegate_core::session::history::PacketRow;
use tidegate_core::session::sender::Status;
use tidegate_core::units::{Bytes, Time};
use tidegate_secure::SecureEndpoint;

use super::addresses::Route;
use super::{SendArgs, Stream};
use crate::encoder_speed::EncoderSpeed;
use crate::learning::Knowledge;
use crate::live::{Folder, Interval, SentReport, SentRows, TraceBuffer, rounded};
use tidegate_console::progress::{counted, millis};

pub(super) struct Report<'a> {
    sent: SentReport,
    /// Events of the stream.
    events: &'a TraceBuffer,
    /// What the session learns about the path.
    pub(super) knowledge: Option<Knowledge>,
    peer: String,
    bound: Option<Duration>,
    one_way: bool,
    /// Bytes that the protection adds to each packet.
    pub(super) protection: Bytes,
    packet_size: Option<Bytes>,
    path_changes: u32,
    /// Last reported state.
    path: PathState,
    lower_effort: Option<LowerEffort>,
    /// Packets that arrived with an ECN mark, if ECN is on.
    marked: Option<u64>,
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

impl<'a> Report<'a> {
    pub(super) fn new(
        args: &SendArgs,
        what: &str,
        route: &Route,
        folder: Folder,
        pace: EncoderSpeed,
        events: &'a TraceBuffer,
    ) -> Self {
        let mut sent = SentReport::new(folder, args.json, pace);
        let port = route.sockets[0].local_addr().map_or(0, |a| a.port());
        let control = args.control();
        sent.report.say(&format!(
            "sending {what} to {} from port {port}, {}",
            route.peer,
            control.name()
        ));
        let promised = control.properties().fixed_rate.is_none();
        Self {
            sent,
            events,
            knowledge: None,
            peer: route.peer.to_string(),
            bound: promised.then_some(args.delay_bound),
            one_way: args.receiver.one_way,
            protection: Bytes::ZERO,
            packet_size: None,
            path_changes: 0,
            path: PathState::default(),
            lower_effort: None,
            marked: args.ecn.then_some(0),
        }
    }

    /// Writes new rows and events, and prints due messages. After an interrupt, ends the stream.
    pub(super) fn turn(
        &mut self,
        stream: &mut SecureEndpoint<Stream>,
        now: Time,
        interrupts: u32,
    ) -> ControlFlow<()> {
        if !stream.is_ready() {
            // Nothing was sent that could be shut down.
            return if interrupts > 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            };
        }
        let sender = stream.inner_mut().sender_mut();
        if self.sent.is_over(now, interrupts, || sender.stop_capture()) {
            sender.close();
        }
        let mut rows = SentRows::default();
        sender.drain_rows(&mut rows.frames, &mut rows.packets);
        self.add(now, rows);
        let status = sender.status();
        // A session that has ended has no state.
        if !sender.is_done() {
            self.tell_changes(now, &status);
        }
        if let Some(knowledge) = &mut self.knowledge {
            knowledge.turn(&status, now);
        }
        let bound = self.bound.map(|bound| format!(" of {}", millis(bound)));
        let text = |interval: &Interval| {
            format!(
                " of {}  loss {:.1} %  RTT {}  delay {}{}",
                status.target.media,
                status.loss * 100.0,
                status.rtt.map_or_else(|| "-".to_owned(), millis),
                millis(delay(interval, &status)),
                bound.unwrap_or_default(),
            )
        };
        self.sent.print_if_due(now, text, |interval| {
            let millis = |span: Duration| rounded(span.as_secs_f64() * 1e3);
            json!({
                "target_bps": status.target.media.as_f64(),
                "loss": rounded(status.loss),
                "rtt_ms": status.rtt.map(millis),
                "delay_ms": millis(delay(interval, &status)),
                "path": PathState::of(&status).name(),
            })
        });
        ControlFlow::Continue(())
    }

    /// Writes the last rows and prints the last message. The inner result is as in
    /// [`Reporter::finish`](crate::live::Reporter::finish).
    ///
    /// # Errors
    /// The run folder cannot be completed.
    pub(super) fn finish(mut self, stream: &mut Stream, now: Time) -> Result<Result<()>> {
        if let Some(knowledge) = self.knowledge.take() {
            knowledge.finish(now);
        }
        let sender = stream.sender_mut();
        let mut rows = SentRows::default();
        sender.drain_rows(&mut rows.frames, &mut rows.packets);
        sender.finish_rows(&mut rows.frames, &mut rows.packets);
        self.add(now, rows);
        let marked = self.marked.map(|marked| format!(", {marked} marked"));
        self.sent.report.say(&format!(
            "{}; {} lost{}",
            self.sent.sent_in_all(),
            counted(sender.summary().lost, "packet"),
            marked.unwrap_or_default()
        ));
        self.sent.report.finish(now, None)
    }

    fn add(&mut self, now: Time, mut rows: SentRows) {
        if let Some(marked) = &mut self.marked {
            let is_marked = |row: &&PacketRow| {
                matches!(row.outcome, Some(Outcome::Received { ecn: Ecn::Ce, .. }))
            };
            *marked += rows.packets.iter().filter(is_marked).count() as u64;
        }
        rows.events = self.events.take();
        self.sent.add(now, rows);
    }

    fn tell_changes(&mut self, now: Time, status: &Status) {
        self.tell_packet_size(status);
        let (peer, report) = (&self.peer, &mut self.sent.report);
        if !status.has_answered && !self.one_way && now >= Time::ZERO + FIRST_WORD {
            let line = format_args!(
                "{peer} has not answered yet: sending at the lowest rate (--floor), with a key \
                 frame every two seconds"
            );
            report.say_once("silence", line);
        }
        if status.reports_only {
            let line = format_args!(
                "{peer} sends receiver reports only, without per-packet feedback: the rate changes \
                with each report, with a key frame every two seconds"
            );
            report.say_once("feedback", line);
        }
        if let (Some(bound), Some(rtt)) = (self.bound, status.rtt)
            && rtt / 2 >= bound
        {
            let way = millis(rtt / 2);
            let line = format_args!(
                "warning: half of the round-trip time to {peer} is {way}, not less than the delay \
                bound: every picture is late, and one per second is sent; give a --delay-bound \
                above {way}"
            );
            report.say_once("distance", line);
        }
        if let Some(treatment) = status.lower_effort
            && self.lower_effort.replace(treatment) != Some(treatment)
        {
            let text = lower_effort_text(treatment);
            report.say(&format!("the path to {peer} {text}"));
        }
        let changes = std::mem::replace(&mut self.path_changes, status.path_changes);
        let has_moved = changes != status.path_changes;
        if has_moved {
            report.say(&format!(
                "the route to {peer} has changed: probing it from the new address of this host"
            ));
        }
        let path = PathState::of(status);
        let before = std::mem::replace(&mut self.path, path);
        if before != path && !(has_moved && path == PathState::Blackout) {
            report.say(&match path {
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
        let before = std::mem::replace(&mut self.packet_size, status.packet_size);
        let Some(size) = status.packet_size.filter(|_| before != status.packet_size) else {
            return;
        };
        let size = size + self.protection;
        self.sent.report.say(&format!(
            "the path to {} loses large packets without a message, as a tunnel with a small MTU \
            may: continuing with IP packets of {} bytes, the largest that pass ({} bytes of UDP \
            payload)",
            self.peer,
            size.get(),
            (size - OVERHEAD).get()
        ));
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
