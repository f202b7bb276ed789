//! What a receiver tells while it receives: the progress line, the run folder, the byte stream.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tidegate_core::media::FrameRate;
use tidegate_core::session::assembler::ReceivedFrame;
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::units::{Bytes, Time};
use tidegate_sim::cast::received_row;
use tidegate_sim::run::{ReceivedFrame as Row, ShownFrame, Summary};

use super::RecvArgs;
use super::numbering::Numbering;
use super::viewer::{Judged, Viewer};
use crate::live::{FLOW, Folder};
use crate::progress::{Progress, millis};

pub(super) struct Reporter {
    progress: Progress,
    folder: Folder,
    bound: Duration,
    numbering: Numbering,
    stream: Option<(String, BufWriter<File>)>,
    viewer: Option<Viewer>,
    rows: Vec<Row>,
    shown: Vec<ShownFrame>,
    /// The smallest distance between capture, counted from the first frame's, and completion.
    /// Signed, since a later frame may come with less delay than the first.
    smallest: Option<i128>,
    recent: Recent,
    total: Total,
    told_first: bool,
    told_misfit: bool,
}

/// Since the last progress line.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    since: Time,
    frames: u64,
    bits: u64,
    /// The largest delay above the smallest.
    slowest: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    whole: u64,
    bits: u64,
    judged: u64,
    psnr: f64,
    /// The first and the last completed frame.
    span: Option<(Time, Time)>,
}

impl Reporter {
    pub(super) fn new(
        args: &RecvArgs,
        port: u16,
        fps: FrameRate,
        folder: Folder,
        viewer: Option<Viewer>,
    ) -> Result<Self> {
        let stream = args.out.as_ref().map(|path| {
            let name = path.display().to_string();
            let file = File::create(path).with_context(|| format!("cannot write {name}"))?;
            anyhow::Ok((name, BufWriter::new(file)))
        });
        let mut progress = Progress::new();
        progress.say(&format!("waiting for a stream at port {port}"));
        Ok(Self {
            progress,
            folder,
            bound: args.delay_bound,
            numbering: Numbering::new(fps),
            stream: stream.transpose()?,
            viewer,
            rows: Vec::new(),
            shown: Vec::new(),
            smallest: None,
            recent: Recent::default(),
            total: Total::default(),
            told_first: false,
            told_misfit: false,
        })
    }

    /// Takes what there is to take, and tells what there is to tell.
    pub(super) fn turn(&mut self, receiver: &mut MediaReceiver, now: Time) {
        while let Some(frame) = receiver.poll_frame() {
            self.take(frame);
        }
        while let Some(judged) = self.viewer.as_ref().and_then(Viewer::poll) {
            if judged.trouble {
                receiver.on_decoder_trouble(now);
            }
            self.judged(judged);
        }
        self.keep(now);
        if !self.told_first && receiver.last_arrival().is_some() {
            self.told_first = true;
            self.progress.say("the stream is there");
        }
        if self.told_first && self.progress.is_due(now) {
            let line = self.line(receiver, now);
            self.progress.show(&line);
        }
    }

    /// The last rows and the last words.
    ///
    /// # Errors
    /// When the run folder or the byte stream cannot be finished.
    pub(super) fn finish(
        mut self,
        receiver: &mut MediaReceiver,
        now: Time,
    ) -> Result<Option<Summary>> {
        receiver.finish();
        while let Some(frame) = receiver.poll_frame() {
            self.take(frame);
        }
        if let Some(viewer) = self.viewer.take() {
            for judged in viewer.finish() {
                self.judged(judged);
            }
        }
        self.keep(now);
        let Total {
            whole,
            bits,
            judged,
            psnr,
            span,
        } = self.total;
        let (received, lost) = receiver.counts();
        let span = span.map_or(Duration::ZERO, |(first, last)| last.since(first));
        let rate = Bytes(bits / 8) / span.max(Duration::from_millis(1));
        let likeness = if judged > 0 {
            format!("; PSNR {:.1} dB over {judged} frames", psnr / judged as f64)
        } else {
            String::new()
        };
        let missing = lost.max(0);
        self.progress.say(&format!(
            "received {whole} whole frames in {:.1} s, {rate} of video; {missing} of {} packets \
             missing{likeness}",
            span.as_secs_f64(),
            received.saturating_add_signed(missing),
        ));
        let rejected = receiver.rejected();
        if rejected > 0 {
            self.progress
                .say(&format!("{rejected} datagrams were not of this stream"));
        }
        if let Some((name, mut stream)) = self.stream.take() {
            stream
                .flush()
                .with_context(|| format!("cannot write {name}"))?;
        }
        self.folder.finish(now)
    }

    fn take(&mut self, frame: ReceivedFrame) {
        let numbered = self.numbering.number(frame.timestamp, frame.first);
        if numbered.restarted {
            self.progress.say("time stamps begin anew: another stream");
            self.smallest = None;
        }
        if self.numbering.misfits() && !std::mem::replace(&mut self.told_misfit, true) {
            self.progress.say(
                "the time stamps do not fit the frame rate, so frame numbers are wrong: give \
                 --fps as the sender has it",
            );
        }
        if let Some(complete) = frame.complete {
            let captured = numbered.captured.as_nanos() as i128;
            let delay = i128::from(complete.as_nanos()) - captured;
            let smallest = *self
                .smallest
                .insert(self.smallest.unwrap_or(delay).min(delay));
            let above = Duration::from_nanos(u64::try_from(delay - smallest).unwrap_or(0));
            self.recent.slowest = self.recent.slowest.max(above);
            self.recent.frames += 1;
            self.recent.bits += frame.bytes * 8;
            self.total.whole += 1;
            self.total.bits += frame.bytes * 8;
            let (first, _) = self.total.span.unwrap_or((complete, complete));
            self.total.span = Some((first, complete));
        }
        self.write(&frame.data);
        let row = received_row(&frame, numbered.frame);
        let Some(viewer) = &mut self.viewer else {
            self.rows.push(row);
            return;
        };
        let kept_up = viewer.keeps_up();
        if let Err(row) = viewer.show(row, frame.data, true) {
            self.rows.push(row);
            if kept_up {
                self.progress
                    .say("no more comparisons: this machine decodes too slowly");
            }
        }
    }

    fn judged(&mut self, judged: Judged) {
        if let Some(quality) = judged.row.quality {
            self.total.judged += 1;
            self.total.psnr += quality.psnr_y;
        }
        self.rows.push(judged.row);
        self.shown.extend(judged.shown);
        if let Some(note) = judged.note {
            self.progress.say(&note);
        }
    }

    fn write(&mut self, unit: &[u8]) {
        let Some((name, stream)) = &mut self.stream else {
            return;
        };
        if let Err(e) = stream.write_all(unit) {
            self.progress.say(&format!("{name} ends here: {e}"));
            self.stream = None;
        }
    }

    fn keep(&mut self, now: Time) {
        let (rows, shown) = (&self.rows, &self.shown);
        let trouble = self.folder.record(now, &[], |writer| {
            rows.iter()
                .try_for_each(|row| writer.received_frame(FLOW, row))?;
            shown
                .iter()
                .try_for_each(|row| writer.shown_frame(FLOW, row))
        });
        self.rows.clear();
        self.shown.clear();
        if let Some(trouble) = trouble {
            self.progress.say(&trouble);
        }
    }

    fn line(&mut self, receiver: &MediaReceiver, now: Time) -> String {
        let fresh = Recent {
            since: now,
            ..Recent::default()
        };
        let Recent {
            since,
            frames,
            bits,
            slowest,
        } = std::mem::replace(&mut self.recent, fresh);
        let span = now.since(since).max(Duration::from_millis(1));
        let rate = Bytes(bits / 8) / span;
        let fps = frames as f64 / span.as_secs_f64();
        let (received, lost) = receiver.counts();
        let lost = lost.max(0) as f64;
        let loss = 100.0 * lost / (received as f64 + lost).max(1.0);
        format!(
            "{:6.1} s  {rate}  {fps:.0} frames/s  missing {loss:.1} %  delay variation {} of {}",
            now.as_secs_f64(),
            millis(slowest),
            millis(self.bound),
        )
    }
}
