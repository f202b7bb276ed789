//! Sends a stream over TCP with rates from and for other programs.

use std::ops::ControlFlow;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tidegate_core::session::stream::EncodePipe;
use tidegate_core::session::tcp::{TcpSender, TcpStreamer};
use tidegate_core::tcp_rate::{RateReduction, TcpEvent};
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Time};
use tidegate_live::driver::{EndReason, RunLimits};
use tidegate_live::tcp::{TcpError, TcpSocket, drive};
use tidegate_record::Count;

use super::TcpArgs;
use super::rates::{Channel, Incoming, Outgoing};
use crate::live::{Interval, Reporter, SentReport, SentRows, rounded, totals};
use tidegate_console::context::LiveContext;
use tidegate_console::progress::{counted, millis};

/// Output of a sender over TCP, with the changes of the rate since the last line.
pub(crate) type Sent = SentReport<Vec<RateReduction>>;

/// Output of a stream over TCP, and its channels for rates.
pub(crate) struct Report {
    sent: Sent,
    incoming: Option<Incoming>,
    outgoing: Option<Outgoing>,
    /// Messages about the event source.
    source_messages: Option<Receiver<String>>,
    /// Number of events by kind, in the order of Table 1.
    delivered: [u64; TcpEvent::ALL.len()],
    answers: usize,
    /// Longest time from an event to the first frame at the new rate.
    reaction: Option<Duration>,
    /// The player has acknowledged data.
    took: bool,
}

impl Report {
    /// # Errors
    /// A channel for rates cannot be opened.
    pub(crate) fn new(
        args: &TcpArgs,
        mut sent: Sent,
        source_messages: Option<Receiver<String>>,
        greeting: &str,
    ) -> Result<Self> {
        if let Some(path) = args.rate_from.as_ref().and_then(Channel::missing) {
            sent.report.say(&format!(
                "{} does not exist yet: the rate is {} until another program writes one there",
                path.display(),
                args.rate()
            ));
        }
        let incoming = args.rate_from.as_ref().map(Incoming::open).transpose()?;
        let outgoing = args.rate_to.as_ref().map(Outgoing::open).transpose()?;
        // With many players, create the folder late: port scans accept no data and get none.
        if args.serve.is_none() {
            sent.report.begin_folder();
        }
        sent.report.say(greeting);
        Ok(Self {
            sent,
            incoming,
            outgoing,
            source_messages,
            delivered: Default::default(),
            answers: 0,
            reaction: None,
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
        mut on_turn: impl FnMut(&mut TcpStreamer<P>, &mut Reporter<Vec<RateReduction>>, Time),
    ) -> Result<EndReason, TcpError> {
        let played = drive(stream, socket, conditions, |stream, now| {
            // New rates are read before pictures, so that they apply to them.
            self.turn(&mut stream.sender, now);
            on_turn(stream, &mut self.sent.report, now);
            let interrupts = context.interrupts.count();
            let stop = || stream.sender.stop_capture();
            if self.sent.is_over(now, interrupts, stop) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let now = conditions.clock.now();
        let has_left = stream.has_player_left();
        let sender = &mut stream.sender;
        if has_left || !matches!(played, Ok(EndReason::Done)) {
            sender.on_closed(now);
        }
        if has_left {
            self.sent.report.say("the player has left");
        }
        self.keep(sender, now);
        self.took |= match played {
            // It may have left while it waited for its turn.
            Ok(_) if has_left => socket
                .backlog()
                .is_ok_and(|(unsent, unacknowledged)| self.is_taken(unsent + unacknowledged)),
            Ok(_) => true,
            // A player that resets the connection may have accepted no data.
            Err(_) => false,
        };
        self.keep(sender, now);
        played
    }

    /// Whether some of the sent data is acknowledged, if this much is not.
    fn is_taken(&self, open: Bytes) -> bool {
        self.sent.left().size() > open
    }

    /// Whether the player accepted data. A deferred folder is created only then.
    pub(crate) fn took(&self) -> bool {
        self.took
    }

    /// Prints the final messages. The inner result is as in [`Reporter::finish`].
    ///
    /// # Errors
    /// The run folder cannot be completed.
    pub(crate) fn finish(mut self, sender: &TcpSender, now: Time) -> Result<Result<()>> {
        let last_words = self.sent.sent_in_all();
        self.sent.report.say(&last_words);
        if self.source_messages.is_some() {
            let events = self.events_text();
            self.sent.report.say(&events);
        }
        let of = |bytes| Count {
            packets: sender.packets(),
            bytes,
        };
        // TCP loses nothing; the player has what it acknowledged.
        let wire = self.sent.wire();
        let acknowledged = wire.saturating_sub(in_tcp(sender));
        let totals = totals(self.sent.left().period(), of(acknowledged), of(wire));
        self.sent.report.finish(now, totals)
    }

    /// The events and the responses to them, for the final message.
    fn events_text(&self) -> String {
        let counts = TcpEvent::ALL.iter().zip(self.delivered);
        let delivered = counts.filter(|(_, count)| *count > 0);
        let delivered: Vec<String> = delivered
            .map(|(e, n)| format!("{n} {}", e.name()))
            .collect();
        let delivered = if delivered.is_empty() {
            "nothing".into()
        } else {
            delivered.join(", ")
        };
        let times = match self.answers {
            1 => "once".to_owned(),
            many => format!("{many} times"),
        };
        let within = self.reaction.map_or(String::new(), |slowest| {
            format!(", within {:.1} ms", slowest.as_secs_f64() * 1e3)
        });
        format!("TCP events: {delivered}; rate changed {times}{within}")
    }

    fn turn(&mut self, sender: &mut TcpSender, now: Time) {
        let report = &mut self.sent.report;
        for saying in self.source_messages.iter().flat_map(Receiver::try_iter) {
            report.say(&saying);
        }
        let said = self.incoming.as_mut().map(Incoming::poll);
        for advice in said.into_iter().flatten() {
            match advice {
                Ok(advice) => sender.advise(now, advice),
                Err(trouble) => report.say(&trouble),
            }
        }
        if let Some(outgoing) = &mut self.outgoing
            && let Err(e) = outgoing.write(sender.target())
        {
            report.say(&format!("the rate is no longer written: {e}"));
            self.outgoing = None;
        }
        // Data written by the last call, and how much is acknowledged by now.
        self.took |= self.is_taken(in_tcp(sender));
        self.keep(sender, now);
        let (target, queued) = (sender.target(), sender.backlog().queued);
        let in_tcp = in_tcp(sender);
        let text = |interval: &Interval<Vec<RateReduction>>| {
            format!(
                " of {target}  waiting {} here, {} in TCP  delay {}{}",
                kilobytes(queued),
                kilobytes(in_tcp),
                millis(interval.longest),
                answered(&interval.extra),
            )
        };
        self.sent.print_if_due(now, text, |interval| {
            json!({
                "target_bps": target.as_f64(),
                "queued_bytes": queued.get(),
                "in_tcp_bytes": in_tcp.get(),
                "delay_ms": rounded(interval.longest.as_secs_f64() * 1e3),
                "rate_changes": interval.extra.len(),
            })
        });
    }

    fn keep(&mut self, sender: &mut TcpSender, now: Time) {
        let mut rows = SentRows::default();
        sender.drain(&mut rows.frames, &mut rows.events);
        for (_, event) in &rows.events {
            match event {
                Event::Transport { event } => self.delivered[*event as usize] += 1,
                Event::Reacted { reaction, .. } => {
                    self.reaction = self.reaction.max(Some(*reaction));
                }
                _ => {}
            }
        }
        let answers = sender.take_rate_reductions();
        self.answers += answers.len();
        let report = &mut self.sent.report;
        report.count(|interval| interval.extra.extend(&answers));
        if self.took {
            report.begin_folder();
        }
        self.sent.add(now, rows);
    }
}

/// Bytes that the player has not acknowledged.
fn in_tcp(sender: &TcpSender) -> Bytes {
    let backlog = sender.backlog();
    backlog.unsent + backlog.unacknowledged
}

/// Changes of the rate, and the last of them, for the progress line.
fn answered(answers: &[RateReduction]) -> String {
    answers.last().map_or(String::new(), |last| {
        let (event, count) = (last.event.name(), answers.len());
        let lasts = last.lasts.map_or(String::new(), |span| {
            format!(" for {:.1} s", span.as_secs_f64())
        });
        format!(
            "  {}, last: {} after {event}{lasts}",
            counted(count as u64, "answer"),
            last.rate
        )
    })
}

fn kilobytes(size: Bytes) -> String {
    format!("{:.0} kB", size.get() as f64 / 1e3)
}
