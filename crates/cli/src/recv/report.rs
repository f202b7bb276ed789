//! Output of an RTP receiver: the progress line, the run folder, the byte stream.

use std::mem::replace;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tidegate_core::media::FrameRate;
use tidegate_core::session::jitter_buffer::ReceivedFrame;
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::units::{Bytes, Time};
use tidegate_record::{Count, received_row};

use super::RecvArgs;
use super::keep::{ByteStream, Finished, Keeper};
use super::numbering::Numbering;
use super::unexpected::{Adviser, H265_ADVICE};
use super::viewer::Viewer;
use crate::live::{Folder, Intervals, rounded, totals};
use tidegate_console::context::LiveContext;
use tidegate_console::progress::{Progress, counted, millis};

pub(super) struct Reporter {
    keeper: Keeper,
    bound: Duration,
    numbering: Numbering,
    viewer: Option<Viewer>,
    /// Smallest difference of completion time and capture time, both relative to the first frame.
    /// Signed, because a later frame may have a shorter delay than the first.
    smallest: Option<i128>,
    intervals: Intervals,
    /// Frames without their references that were written or shown.
    concealed: u64,
    told_first: bool,
    /// The user knows that parameter sets are missing.
    told_sets: bool,
    /// The user knows that the stream is H.265.
    told_h265: bool,
    adviser: Adviser,
}

/// Message for key frames without parameter sets.
const NO_SETS: &str = "the stream has no parameter sets (SPS and PPS), so its pictures cannot be \
decoded and are not counted: give the description of the sender as --sdp, or have the sender repeat \
them in the stream";

/// Share of the packets of the stream so far that are missing, in 0..=1.
fn missing_share(receiver: &MediaReceiver) -> f64 {
    let (received, lost) = receiver.counts();
    let lost = lost.max(0) as f64;
    lost / (received as f64 + lost).max(1.0)
}

impl Reporter {
    pub(super) fn new(
        args: &RecvArgs,
        port: u16,
        local_only: bool,
        fps: FrameRate,
        folder: Folder,
        viewer: Option<Viewer>,
        adviser: Adviser,
    ) -> Result<Self> {
        let mut keeper = Keeper::new(
            ByteStream::create(args.out.as_deref())?,
            Progress::default(),
            folder,
        );
        let from = if local_only {
            " of this host; --key-file or --insecure admits other hosts"
        } else {
            ""
        };
        keeper
            .progress
            .say(&format!("waiting for a stream at port {port}{from}"));
        Ok(Self {
            keeper,
            bound: args.delay_bound,
            numbering: Numbering::of_datagrams(fps),
            viewer,
            smallest: None,
            intervals: Intervals::new(args.json.lines()),
            concealed: 0,
            told_first: false,
            told_sets: false,
            told_h265: false,
            adviser,
        })
    }

    /// Processes received frames and prints due messages.
    pub(super) fn turn(&mut self, receiver: &mut MediaReceiver, now: Time) {
        while let Some(frame) = receiver.poll_frame() {
            self.take(frame);
        }
        while let Some(judged) = self.viewer.as_ref().and_then(Viewer::poll) {
            if judged.trouble {
                receiver.on_decoder_trouble(now);
            }
            self.keeper.judged(judged);
        }
        self.keeper.keep(now);
        if receiver.without_parameter_sets() > 0 && !replace(&mut self.told_sets, true) {
            self.keeper.progress.say(NO_SETS);
        }
        if receiver.is_h265() && !replace(&mut self.told_h265, true) {
            self.keeper.progress.say(H265_ADVICE);
        }
        if receiver.last_arrival().is_none()
            && let Some(advice) = self.adviser.due(now)
        {
            self.keeper.progress.say(&advice);
        }
        if !self.told_first && receiver.last_arrival().is_some() {
            self.told_first = true;
            self.keeper.progress.say("the stream has started");
        }
        if self.told_first && self.keeper.progress.is_due(now) {
            let line = self.line(receiver, now);
            self.keeper.progress.show(&line);
        }
        self.intervals.print_if_due(now, |interval| {
            json!({
                "missing": rounded(missing_share(receiver)),
                "delay_variation_ms": rounded(interval.longest.as_secs_f64() * 1e3),
            })
        });
    }

    /// Whether the reader of the recording has closed the pipe.
    pub(super) fn is_unread(&self) -> bool {
        self.keeper.is_unread()
    }

    /// Writes the last rows and prints the final message. `not_authentic` is the number of
    /// datagrams that were not protected with the key of the stream.
    ///
    /// # Errors
    /// The run folder or the byte stream cannot be completed.
    pub(super) fn finish(
        mut self,
        receiver: &mut MediaReceiver,
        not_authentic: u64,
        context: &LiveContext,
    ) -> Result<Finished> {
        let now = context.clock.now();
        receiver.finish();
        while let Some(frame) = receiver.poll_frame() {
            self.take(frame);
        }
        if let Some(viewer) = self.viewer.take() {
            for judged in viewer.finish() {
                self.keeper.judged(judged);
            }
        }
        let concealed = match self.concealed {
            0 => String::new(),
            many => format!(", {} with blemishes", counted(many, "frame")),
        };
        let mut keeper = self.keeper;
        keeper.keep(now);
        let (received, lost) = receiver.counts();
        let missing = lost.max(0);
        let last_words = if receiver.last_arrival().is_none() {
            format!("no stream arrived in {:.1} s", now.as_secs_f64())
        } else {
            let packets = received.saturating_add_signed(missing);
            format!(
                "{}{concealed}; {missing} of {} missing{}",
                keeper.received_in_all(),
                counted(packets, "packet"),
                keeper.psnr_text(),
            )
        };
        keeper.progress.say(&last_words);
        for (rejected, why) in [
            (receiver.rejected(), "part of this stream"),
            (not_authentic, "protected with its key, or arrived twice"),
        ] {
            let verb = if rejected == 1 { "was" } else { "were" };
            let many = counted(rejected, "datagram");
            if rejected > 0 {
                keeper.progress.say(&format!("{many} {verb} not {why}"));
            }
        }
        let total = receiver.received();
        let count = |packets: u64, bytes: u64| Count {
            packets,
            bytes: Bytes(bytes),
        };
        let bytes = total.bytes.get();
        let missing = missing.unsigned_abs();
        // Missing packets have the mean size of the others.
        let absent = bytes.saturating_mul(missing) / received.max(1);
        let arrived = count(received, bytes);
        let expected = count(received + missing, bytes.saturating_add(absent));
        keeper.finish(totals(total.span, arrived, expected), context)
    }

    fn take(&mut self, frame: ReceivedFrame) {
        let numbered = self.numbering.number(frame.timestamp, frame.first);
        if numbered.restarted {
            self.keeper
                .progress
                .say("the timestamps restarted: another stream");
            self.smallest = None;
        }
        if let Some(complete) = frame.complete {
            self.keeper.check(&self.numbering);
            let captured = numbered.captured.as_nanos() as i128;
            let delay = i128::from(complete.as_nanos()) - captured;
            let smallest = *self
                .smallest
                .insert(self.smallest.unwrap_or(delay).min(delay));
            let above = Duration::from_nanos(u64::try_from(delay - smallest).unwrap_or(0));
            self.intervals.count(|interval| interval.delay(above));
            self.keeper.whole.add(frame.bytes * 8, complete, complete);
        }
        if !frame.data.is_empty() {
            self.intervals
                .count(|interval| interval.frame(frame.bytes * 8));
            self.concealed += u64::from(frame.complete.is_none());
        }
        self.keeper.write(&frame.data);
        let row = received_row(&frame, numbered.frame);
        let Some(viewer) = &mut self.viewer else {
            self.keeper.received(row);
            return;
        };
        let kept_up = viewer.keeps_up();
        if let Err(row) = viewer.show(row, frame.data, true) {
            self.keeper.received(row);
            if kept_up {
                self.keeper
                    .progress
                    .say("comparison stopped: the machine decodes too slowly");
            }
        }
    }

    fn line(&mut self, receiver: &MediaReceiver, now: Time) -> String {
        let interval = self.intervals.line(now);
        let rate = interval.rate(now);
        let fps = interval.frame_rate(now);
        let loss = 100.0 * missing_share(receiver);
        format!(
            "{:6.1} s  {rate}  {fps:.0} frames/s  missing {loss:.1} %  delay variation {} of {}",
            now.as_secs_f64(),
            millis(interval.longest),
            millis(self.bound),
        )
    }
}
