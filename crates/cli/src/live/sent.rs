//! Output of a sender: its frames, the speed of its encoder, and its end after Ctrl-C.

use std::time::Duration;

use serde_json::Value;
use tidegate_core::session::history::PacketRow;
use tidegate_core::session::sender::SentFrame;
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Time};
use tidegate_record::{packet_row, sent_row};

use super::json::JsonArgs;
use super::reporter::{Interval, Reporter};
use super::run_folder::Folder;
use super::{FLOW, Tally};
use crate::encoder_speed::EncoderSpeed;

/// Output of a sender.
pub(crate) struct SentReport<E = ()> {
    /// The delay of a frame is the time from its capture until its last byte left.
    pub(crate) report: Reporter<E>,
    pace: EncoderSpeed,
    /// Rows that wait for the run folder.
    rows: SentRows,
    /// Number of encoded and skipped frames.
    made: u64,
    /// Sent frames, from the capture of the first.
    left: Tally,
    /// Size of these with headers.
    wire: Bytes,
    leaving_since: Option<Time>,
}

/// Rows and events of a sender.
#[derive(Debug, Default)]
pub(crate) struct SentRows {
    pub(crate) frames: Vec<SentFrame>,
    pub(crate) packets: Vec<PacketRow>,
    pub(crate) events: Vec<(Time, Event)>,
}

impl<E: Default> SentReport<E> {
    pub(crate) fn new(folder: Folder, json: JsonArgs, pace: EncoderSpeed) -> Self {
        Self {
            report: Reporter::new(folder, json),
            pace,
            rows: SentRows::default(),
            made: 0,
            left: Tally::default(),
            wire: Bytes::ZERO,
            leaving_since: None,
        }
    }

    /// Sent frames so far.
    pub(crate) fn left(&self) -> &Tally {
        &self.left
    }

    /// Size of the sent frames with headers.
    pub(crate) fn wire(&self) -> Bytes {
        self.wire
    }

    /// Number and rate of the sent frames, for the final message.
    pub(crate) fn sent_in_all(&self) -> String {
        self.left.sent_of(self.made)
    }

    /// Counts new rows, and writes them to the run folder once it is created.
    pub(crate) fn add(&mut self, now: Time, mut new: SentRows) {
        self.made += new.frames.len() as u64;
        for frame in &new.frames {
            let Some(left) = frame.left else { continue };
            self.left.add(frame.bits, frame.captured, left);
            self.wire += frame.wire;
            self.report.count(|interval| {
                interval.frame(frame.bits);
                interval.delay(left.since(frame.captured));
            });
        }
        self.rows.frames.append(&mut new.frames);
        self.rows.packets.append(&mut new.packets);
        self.rows.events.append(&mut new.events);
        if self.report.is_folder_due() {
            return;
        }
        let SentRows {
            frames,
            packets,
            events,
        } = &self.rows;
        self.report.record(now, events, |writer| {
            frames
                .iter()
                .try_for_each(|row| writer.sent_frame(FLOW, &sent_row(row)))?;
            packets
                .iter()
                .try_for_each(|row| writer.packet(FLOW, &packet_row(row)))
        });
        self.rows = SentRows::default();
    }

    /// Prints what is due: a message about the encoder, the progress line with `text`, and the JSON
    /// object with `keys`.
    pub(crate) fn print_if_due(
        &mut self,
        now: Time,
        text: impl FnOnce(&Interval<E>) -> String,
        keys: impl FnOnce(&Interval<E>) -> Value,
    ) {
        if let Some(slow) = self.pace.check(now) {
            self.report.say(&slow);
        }
        self.report.show_if_due(now, text);
        self.report.print_if_due(now, keys);
    }

    /// Whether interrupts end the stream at once. The first one calls `stop_capture`, and queued data
    /// may leave for [`DRAIN_TIME`] or until the second one.
    pub(crate) fn is_over(
        &mut self,
        now: Time,
        interrupts: u32,
        stop_capture: impl FnOnce(),
    ) -> bool {
        if interrupts == 0 {
            return false;
        }
        let since = *self.leaving_since.get_or_insert_with(|| {
            stop_capture();
            now
        });
        interrupts > 1 || now.since(since) >= DRAIN_TIME
    }
}

/// Time for queued data to leave after Ctrl-C.
const DRAIN_TIME: Duration = Duration::from_secs(1);
