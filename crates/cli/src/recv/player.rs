//! What each receiver does with its frames: numbers, records and counts them, and has the pictures
//! decoded.

use std::time::Duration;

use anyhow::Result;
use tidegate_console::context::LiveContext;
use tidegate_console::progress::counted;
use tidegate_core::media::FrameRate;
use tidegate_core::session::jitter_buffer::ReceivedFrame;
use tidegate_core::session::tcp::Punctuality;
use tidegate_core::units::Time;
use tidegate_record::{self as record, ShownFrame, Totals, received_row};

use super::RecvArgs;
use super::gaps::Gaps;
use super::numbering::{MISFIT, Numbering, Turns};
use super::recording::Recording;
use super::viewer::{DecodedFrame, Viewer};
use crate::live::{FLOW, Folder, Reporter, Tally};

/// Frames of a stream at its receiver.
pub(super) struct Player {
    /// With the number of discarded frames.
    pub(super) report: Reporter<u64>,
    pub(super) recording: Recording,
    pub(super) viewer: Option<Viewer>,
    /// Complete frames.
    pub(super) whole: Tally,
    gaps: Gaps,
    pub(super) discarded: u64,
    /// Frames without their references that were written or shown.
    concealed: u64,
    numbering: Numbering,
    punctuality: Punctuality,
    /// Lateness from which on a frame is discarded.
    pub(super) bound: Duration,
    /// With a screen, the player discards late frames by itself.
    pub(super) screen: Option<Screen>,
    rows: Vec<record::ReceivedFrame>,
    shown: Vec<ShownFrame>,
    judged: u64,
    /// Sum of the PSNR of the compared frames in dB.
    psnr: f64,
}

/// What is shown at the turn of each frame.
pub(super) struct Screen {
    turns: Turns,
    /// Frame on the screen without a decoder.
    frame: Option<u64>,
}

impl Screen {
    pub(super) fn new(rate: FrameRate) -> Self {
        Self {
            turns: Turns::new(rate),
            frame: None,
        }
    }
}

impl Player {
    /// Player of a stream, without decoder and screen.
    pub(super) fn new(
        args: &RecvArgs,
        numbering: Numbering,
        folder: Folder,
        recording: Recording,
    ) -> Self {
        Self {
            report: Reporter::new(folder, args.json),
            recording,
            viewer: None,
            whole: Tally::default(),
            gaps: Gaps::new(numbering.interval()),
            discarded: 0,
            concealed: 0,
            numbering,
            punctuality: Punctuality::new(args.delay_bound),
            bound: args.delay_bound,
            screen: None,
            rows: Vec::new(),
            shown: Vec::new(),
            judged: 0,
            psnr: 0.0,
        }
    }

    /// Takes the frames that `next` returns, and those that the decoder has finished. Returns whether
    /// it needs a key frame.
    pub(super) fn turn(&mut self, now: Time, next: impl FnMut() -> Option<ReceivedFrame>) -> bool {
        std::iter::from_fn(next).for_each(|frame| self.take(frame));
        let mut trouble = false;
        while let Some(judged) = self.viewer.as_ref().and_then(Viewer::poll) {
            trouble |= judged.trouble;
            self.judge(judged);
        }
        self.write_rows(now);
        trouble
    }

    fn take(&mut self, frame: ReceivedFrame) {
        let numbered = self.numbering.number(frame.timestamp, frame.first);
        if numbered.restarted {
            self.report.say("the timestamps restarted: another stream");
            self.punctuality = Punctuality::new(self.bound);
        }
        if self.numbering.misfits() {
            self.report.say_once("frame rate", MISFIT);
        }
        let accepted = self.count(&frame);
        if let Some(end) = self.recording.write(&frame.data) {
            self.report.say(&end);
        }
        let row = received_row(&frame, numbered.frame);
        let Some(viewer) = &mut self.viewer else {
            self.show(numbered.frame, frame.first, accepted);
            self.rows.push(row);
            return;
        };
        if let Err(row) = viewer.show(row, frame.data, accepted) {
            self.rows.push(row);
            self.report.say_once("decoder", TOO_SLOW);
        }
    }

    /// Counts a frame. Returns whether it arrived in time to be shown.
    fn count(&mut self, frame: &ReceivedFrame) -> bool {
        let bits = frame.bytes * 8;
        let mut accepted = self.screen.is_none();
        if let Some(complete) = frame.complete {
            let lateness = self.punctuality.lateness(frame.timestamp, complete);
            accepted |= self.punctuality.accepts(lateness);
            let discarded = u64::from(!accepted);
            self.discarded += discarded;
            self.whole.add(bits, complete, complete);
            self.gaps.on_frame(complete);
            self.report.count(|interval| {
                interval.delay(lateness);
                interval.extra += discarded;
            });
        }
        if !frame.data.is_empty() {
            self.report.count(|interval| interval.frame(bits));
            self.concealed += u64::from(frame.complete.is_none());
        }
        accepted
    }

    /// Records the frame on the screen without a decoder.
    fn show(&mut self, frame: u64, at: Time, accepted: bool) {
        let Some(screen) = &mut self.screen else {
            return;
        };
        for slot in screen.turns.until(frame, at) {
            let on_time = accepted && slot == frame;
            if on_time {
                screen.frame = Some(frame);
            }
            self.shown.push(ShownFrame {
                frame: slot,
                shown_frame: screen.frame,
                on_time,
                quality: None,
            });
        }
    }

    /// Records a decoded frame.
    fn judge(&mut self, judged: DecodedFrame) {
        // B pictures are compared when they are shown, with a later row.
        let on_time = judged.shown.iter().filter(|slot| slot.on_time);
        for quality in on_time.filter_map(|slot| slot.quality) {
            self.judged += 1;
            self.psnr += quality.psnr_y;
        }
        self.rows.extend(judged.row);
        self.shown.extend(judged.shown);
        if let Some(note) = judged.note {
            self.report.say(&note);
        }
    }

    fn write_rows(&mut self, now: Time) {
        let (rows, shown) = (&self.rows, &self.shown);
        self.report.record(now, &[], |writer| {
            rows.iter()
                .try_for_each(|row| writer.received_frame(FLOW, row))?;
            shown
                .iter()
                .try_for_each(|row| writer.shown_frame(FLOW, row))
        });
        self.rows.clear();
        self.shown.clear();
    }

    /// Waits for the decoder, prints the final messages, and completes the byte stream and the run
    /// folder, to which `totals` are added. `rest` ends the first message, `None` if no stream
    /// arrived. After Ctrl-C, standard output has a second to accept the rest of the byte stream. The
    /// inner result is as in [`Reporter::finish`].
    ///
    /// # Errors
    /// The run folder or the byte stream is incomplete.
    pub(super) fn finish(
        mut self,
        rest: Option<String>,
        notes: &[String],
        totals: Option<Totals>,
        context: &LiveContext,
    ) -> Result<Result<()>> {
        let now = context.clock.now();
        for judged in self.viewer.take().map_or_else(Vec::new, Viewer::finish) {
            self.judge(judged);
        }
        self.write_rows(now);
        let last_words = match rest {
            Some(rest) => format!(
                "{}{}{}; {rest}{}",
                self.received_in_all(),
                self.gaps.text(),
                self.concealed_text(),
                self.psnr_text()
            ),
            None => format!("no stream arrived in {:.1} s", now.as_secs_f64()),
        };
        self.report.say(&last_words);
        for note in notes {
            self.report.say(note);
        }
        let (end, recording) = self.recording.finish(|| context.interrupts.count() > 0);
        if let Some(end) = end {
            self.report.say(&end);
        }
        let printed = self.report.finish(context.clock.now(), totals)?;
        recording.map(|()| printed)
    }

    /// Received frames, for the final message.
    fn received_in_all(&self) -> String {
        if self.whole.frames() == 0 {
            return "received no complete frame".to_owned();
        }
        format!(
            "received {} in {:.1} s, {} of video",
            counted(self.whole.frames(), "whole frame"),
            self.whole.span().as_secs_f64(),
            self.whole.rate(),
        )
    }

    /// Number of concealed frames, for the final message. Empty without them.
    fn concealed_text(&self) -> String {
        match self.concealed {
            0 => String::new(),
            many => format!(", {} with blemishes", counted(many, "frame")),
        }
    }

    /// Mean PSNR against the reference, for the final message. Empty without a comparison.
    fn psnr_text(&self) -> String {
        if self.judged == 0 {
            return String::new();
        }
        let (judged, psnr) = (self.judged, self.psnr / self.judged as f64);
        format!("; PSNR {psnr:.1} dB over {}", counted(judged, "frame"))
    }
}

const TOO_SLOW: &str = "the machine decodes too slowly: no more pictures are compared or shown";
