//! Output of an RTP receiver: the progress line, the run folder, the byte stream.

use std::mem::replace;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tidegate_core::media::FrameRate;
use tidegate_core::session::jitter_buffer::ReceivedFrame;
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_sim::flow_endpoints::received_row;
use tidegate_sim::meter::Count;

use super::RecvArgs;
use super::keep::{ByteStreamFile, Finished, Keeper};
use super::numbering::Numbering;
use super::unexpected::{Adviser, H265_ADVICE};
use super::viewer::Viewer;
use crate::live::{Folder, JsonLines, rounded, totals};
use tidegate_console::progress::{Progress, counted, millis};

pub(super) struct Reporter {
    keeper: Keeper,
    bound: Duration,
    numbering: Numbering,
    viewer: Option<Viewer>,
    /// Smallest difference of completion time and capture time, both relative to the first frame.
    /// Signed, because a later frame may have a shorter delay than the first.
    smallest: Option<i128>,
    recent: Recent,
    /// Frames without their references that were written or shown.
    concealed: u64,
    json: Option<JsonLines>,
    /// Counts since the last JSON object.
    second: Recent,
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

/// Counts since the last progress line.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    since: Time,
    frames: u64,
    bits: u64,
    /// Largest delay above the smallest.
    slowest: Duration,
}

impl Recent {
    /// The counts until `now`, from which on they start again.
    fn restart(&mut self, now: Time) -> Self {
        let fresh = Self {
            since: now,
            ..Self::default()
        };
        std::mem::replace(self, fresh)
    }

    fn span(&self, now: Time) -> Duration {
        now.since(self.since).max(Duration::from_millis(1))
    }

    fn rate(&self, now: Time) -> Rate {
        Bytes(self.bits / 8) / self.span(now)
    }

    fn json(&self, receiver: &MediaReceiver, now: Time) -> serde_json::Value {
        json!({
            "time_s": rounded(now.as_secs_f64()),
            "frames": self.frames,
            "rate_bps": self.rate(now).as_f64(),
            "missing": rounded(missing_share(receiver)),
            "delay_variation_ms": rounded(self.slowest.as_secs_f64() * 1e3),
        })
    }
}

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
            ByteStreamFile::create(args.out.as_deref())?,
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
            recent: Recent::default(),
            concealed: 0,
            json: args.json.lines(),
            second: Recent::default(),
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
        if let Some(json) = &mut self.json {
            json.print_if_due(now, || self.second.restart(now).json(receiver, now));
        }
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
        now: Time,
    ) -> Result<Finished> {
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
        keeper.finish(totals(total.span, arrived, expected), now)
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
            for recent in [&mut self.recent, &mut self.second] {
                recent.slowest = recent.slowest.max(above);
            }
            self.keeper.whole.add(frame.bytes * 8, complete, complete);
        }
        if !frame.data.is_empty() {
            for recent in [&mut self.recent, &mut self.second] {
                recent.frames += 1;
                recent.bits += frame.bytes * 8;
            }
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
        let recent = self.recent.restart(now);
        let rate = recent.rate(now);
        let fps = recent.frames as f64 / recent.span(now).as_secs_f64();
        let loss = 100.0 * missing_share(receiver);
        format!(
            "{:6.1} s  {rate}  {fps:.0} frames/s  missing {loss:.1} %  delay variation {} of {}",
            now.as_secs_f64(),
            millis(recent.slowest),
            millis(self.bound),
        )
    }
}
