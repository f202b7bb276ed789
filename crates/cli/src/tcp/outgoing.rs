//! Sends a stream over TCP with rates from and for other programs, the progress line and the run
//! folder.

use std::ops::ControlFlow;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tidegate_core::session::sender::SentFrame;
use tidegate_core::session::stream::EncodePipe;
use tidegate_core::session::tcp::{TcpSender, TcpStreamer};
use tidegate_core::tcp_rate::{RateReduction, TcpEvent};
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Time};
use tidegate_live::driver::RunLimits;
use tidegate_live::tcp::{SenderEnd, TcpError, TcpSocket, send};
use tidegate_record::{Count, Summary, sent_row};

use super::TcpArgs;
use super::rates::{Channel, Incoming, Outgoing};
use crate::encoder_speed::EncoderSpeed;
use crate::live::{FLOW, Folder, Intervals, JsonLines, Tally, rounded, totals};
use tidegate_console::context::LiveContext;
use tidegate_console::progress::{Progress, counted, millis};

/// Output of a stream over TCP.
pub(crate) struct Reporter {
    pub(crate) progress: Progress,
    folder: Folder,
    incoming: Option<Incoming>,
    outgoing: Option<Outgoing>,
    /// Messages about the event source.
    source_messages: Option<Receiver<String>>,
    pace: EncoderSpeed,
    rows: Vec<SentFrame>,
    events: Vec<(Time, Event)>,
    /// The delay of a frame is the time from its capture until its last byte was written to the
    /// socket.
    intervals: Intervals<Vec<RateReduction>>,
    total: Total,
    leaving_since: Option<Time>,
    /// The player has acknowledged data.
    took: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    frames: u64,
    /// Sent frames, from the capture of the first.
    left: Tally,
    /// Size of these with headers.
    wire: Bytes,
    /// Number of events by kind, in the order of Table 1.
    delivered: [u64; TcpEvent::ALL.len()],
    answers: usize,
    /// Longest time from an event to the first frame at the new rate.
    reaction: Option<Duration>,
}

impl Reporter {
    /// # Errors
    /// A channel for rates cannot be opened.
    pub(crate) fn new(
        args: &TcpArgs,
        folder: Folder,
        json: Option<JsonLines>,
        source_messages: Option<Receiver<String>>,
        pace: EncoderSpeed,
    ) -> Result<Self> {
        let mut progress = Progress::default();
        if let Some(path) = args.rate_from.as_ref().and_then(Channel::missing) {
            progress.say(&format!(
                "{} does not exist yet: the rate is {} until another program writes one there",
                path.display(),
                args.rate()
            ));
        }
        Ok(Self {
            progress,
            folder,
            incoming: args.rate_from.as_ref().map(Incoming::open).transpose()?,
            outgoing: args.rate_to.as_ref().map(Outgoing::open).transpose()?,
            source_messages,
            pace,
            rows: Vec::new(),
            events: Vec::new(),
            intervals: Intervals::new(json),
            total: Total::default(),
            leaving_since: None,
            took: false,
        })
    }

    /// Sends to one player until the stream or its time ends, or the user interrupts.
    ///
    /// # Errors
    /// The connection breaks. The folder has the results up to then.
    pub(crate) fn play<P: EncodePipe>(
        &mut self,
        stream: &mut TcpStreamer<P>,
        socket: &mut TcpSocket,
        conditions: &RunLimits,
        context: &LiveContext,
        mut on_turn: impl FnMut(&mut TcpStreamer<P>, &mut Progress, Time),
    ) -> Result<SenderEnd, TcpError> {
        let played = send(stream, socket, conditions, |stream, now| {
            // New rates are read before pictures, so that they apply to them.
            self.turn(stream, now);
            on_turn(stream, &mut self.progress, now);
            self.leave(stream, now, context.interrupts.count())
        });
        let now = conditions.clock.now();
        if !matches!(played, Ok(SenderEnd::Everything)) {
            stream.sender.on_closed(now);
        }
        if let Ok(SenderEnd::PlayerLeft) = played {
            self.progress.say("the player has left");
        }
        self.keep(stream, now);
        self.took |= match played {
            // It may have left while it waited for its turn.
            Ok(SenderEnd::PlayerLeft) => socket
                .backlog()
                .is_ok_and(|(unsent, unacknowledged)| self.is_taken(unsent + unacknowledged)),
            Ok(_) => true,
            // A player that resets the connection may have accepted no data.
            Err(_) => false,
        };
        self.keep(stream, now);
        played
    }

    /// Whether some of the sent data is acknowledged, if this much is not.
    fn is_taken(&self, open: Bytes) -> bool {
        self.total.left.size() > open
    }

    /// Whether the player accepted data. A deferred folder is created only then.
    pub(crate) fn took(&self) -> bool {
        self.took
    }

    /// Prints the final message and completes the run folder.
    ///
    /// # Errors
    /// The run folder cannot be completed.
    pub(crate) fn finish(mut self, sender: &TcpSender, now: Time) -> Result<Option<Summary>> {
        let Total {
            frames,
            left,
            wire,
            delivered,
            answers,
            reaction,
        } = self.total;
        self.progress.say(&left.sent_of(frames));
        let delivered = TcpEvent::ALL
            .iter()
            .zip(delivered)
            .filter(|(_, count)| *count > 0);
        let delivered: Vec<String> = delivered
            .map(|(e, n)| format!("{n} {}", e.name()))
            .collect();
        if self.source_messages.is_some() {
            let times = match answers {
                1 => "once".to_owned(),
                many => format!("{many} times"),
            };
            let delivered = if delivered.is_empty() {
                "nothing".into()
            } else {
                delivered.join(", ")
            };
            let within = reaction.map_or(String::new(), |slowest| {
                format!(", within {:.1} ms", slowest.as_secs_f64() * 1e3)
            });
            self.progress.say(&format!(
                "TCP events: {delivered}; rate changed {times}{within}"
            ));
        }
        let backlog = sender.backlog();
        let of = |bytes| Count {
            packets: sender.packets(),
            bytes,
        };
        // TCP loses nothing; the player has what it acknowledged.
        let acknowledged = wire.saturating_sub(backlog.unsent + backlog.unacknowledged);
        let totals = totals(left.period(), of(acknowledged), of(wire));
        if let Some(trouble) = self.folder.record_totals(now, totals) {
            self.progress.say(&trouble);
        }
        self.folder.finish(now)
    }

    /// The first interrupt stops the capture, and queued data may leave for `DRAIN_TIME`. A second
    /// interrupt ends this at once.
    fn leave<P: EncodePipe>(
        &mut self,
        stream: &mut TcpStreamer<P>,
        now: Time,
        interrupts: u32,
    ) -> ControlFlow<()> {
        if interrupts == 0 {
            return ControlFlow::Continue(());
        }
        let since = *self.leaving_since.get_or_insert(now);
        stream.sender.stop_capture();
        if interrupts > 1 || now.since(since) >= DRAIN_TIME {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn turn<P: EncodePipe>(&mut self, stream: &mut TcpStreamer<P>, now: Time) {
        for saying in self.source_messages.iter().flat_map(Receiver::try_iter) {
            self.progress.say(&saying);
        }
        let said = self.incoming.as_mut().map(Incoming::poll);
        for advice in said.into_iter().flatten() {
            match advice {
                Ok(advice) => stream.sender.advise(now, advice),
                Err(trouble) => self.progress.say(&trouble),
            }
        }
        if let Some(outgoing) = &mut self.outgoing
            && let Err(e) = outgoing.write(stream.sender.target())
        {
            self.progress
                .say(&format!("the rate is no longer written: {e}"));
            self.outgoing = None;
        }
        // Data written by the last call, and how much is acknowledged by now.
        let backlog = stream.sender.backlog();
        self.took |= self.is_taken(backlog.unsent + backlog.unacknowledged);
        self.keep(stream, now);
        if let Some(slow) = self.pace.check(now) {
            self.progress.say(&slow);
        }
        if self.progress.is_due(now) {
            let line = self.line(stream, now);
            self.progress.show(&line);
        }
        self.intervals.print_if_due(now, |interval| {
            let backlog = stream.sender.backlog();
            json!({
                "target_bps": stream.sender.target().as_f64(),
                "queued_bytes": backlog.queued.get(),
                "in_tcp_bytes": (backlog.unsent + backlog.unacknowledged).get(),
                "delay_ms": rounded(interval.longest.as_secs_f64() * 1e3),
                "rate_changes": interval.extra.len(),
            })
        });
    }

    fn keep<P: EncodePipe>(&mut self, stream: &mut TcpStreamer<P>, now: Time) {
        let (rows, events) = (self.rows.len(), self.events.len());
        stream.sender.drain(&mut self.rows, &mut self.events);
        for (_, event) in &self.events[events..] {
            match event {
                Event::Transport { event } => self.total.delivered[*event as usize] += 1,
                Event::Reacted { reaction, .. } => {
                    self.total.reaction = self.total.reaction.max(Some(*reaction));
                }
                _ => {}
            }
        }
        let answers = stream.sender.take_rate_reductions();
        self.total.answers += answers.len();
        self.intervals
            .count(|interval| interval.extra.extend(&answers));
        for frame in &self.rows[rows..] {
            self.total.frames += 1;
            let Some(left) = frame.left else { continue };
            self.total.left.add(frame.bits, frame.captured, left);
            self.total.wire += frame.wire;
            self.intervals.count(|interval| {
                interval.frame(frame.bits);
                interval.delay(left.since(frame.captured));
            });
        }
        if self.took
            && let Some(trouble) = self.folder.begin()
        {
            self.progress.say(&trouble);
        }
        if self.folder.is_due() {
            return;
        }
        let rows = &self.rows;
        let trouble = self.folder.record(now, &self.events, |writer| {
            rows.iter()
                .try_for_each(|row| writer.sent_frame(FLOW, &sent_row(row)))
        });
        self.rows.clear();
        self.events.clear();
        if let Some(trouble) = trouble {
            self.progress.say(&trouble);
        }
    }

    fn line<P: EncodePipe>(&mut self, stream: &TcpStreamer<P>, now: Time) -> String {
        let interval = self.intervals.line(now);
        let rate = interval.rate(now);
        let answers = &interval.extra;
        let backlog = stream.sender.backlog();
        let answered = answers.last().map_or(String::new(), |last| {
            let (event, count) = (last.event.name(), answers.len());
            let lasts = last.lasts.map_or(String::new(), |span| {
                format!(" for {:.1} s", span.as_secs_f64())
            });
            format!(
                "  {}, last: {} after {event}{lasts}",
                counted(count as u64, "answer"),
                last.rate
            )
        });
        format!(
            "{:6.1} s  {rate} of {}  waiting {} here, {} in TCP  delay {}{answered}",
            now.as_secs_f64(),
            stream.sender.target(),
            kilobytes(backlog.queued),
            kilobytes(backlog.unsent + backlog.unacknowledged),
            millis(interval.longest),
        )
    }
}

fn kilobytes(size: Bytes) -> String {
    format!("{:.0} kB", size.get() as f64 / 1e3)
}

/// Time for queued data to leave after Ctrl-C.
const DRAIN_TIME: Duration = Duration::from_secs(1);
