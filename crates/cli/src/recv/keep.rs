//! Output of each receiver: the run folder, the byte stream, and counts.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use tidegate_core::units::Time;
use tidegate_record::{ReceivedFrame, ShownFrame, Summary, Totals};

use super::numbering::{MISFIT, Numbering};
use super::pipe::PipeWriter;
use super::viewer::DecodedFrame;
use crate::live::{FLOW, Folder, Tally};
use tidegate_console::context::LiveContext;
use tidegate_console::output::is_unread;
use tidegate_console::progress::{Progress, counted};

/// Output of the byte stream.
pub(super) struct ByteStream {
    name: String,
    to: Target,
}

enum Target {
    File(BufWriter<File>),
    /// Each frame is passed on at once.
    Pipe(PipeWriter),
}

impl ByteStream {
    /// Creates the file of `--out`, if given; `-` is standard output.
    ///
    /// # Errors
    /// The file or the thread cannot be created.
    pub(super) fn create(out: Option<&Path>) -> Result<Option<Self>> {
        let Some(path) = out else { return Ok(None) };
        if path.as_os_str() == "-" {
            return Ok(Some(Self {
                name: "standard output".to_owned(),
                to: Target::Pipe(PipeWriter::start()?),
            }));
        }
        let name = path.display().to_string();
        let file = File::create(path)
            .with_context(|| format!("cannot write {name}: choose another file for --out"))?;
        Ok(Some(Self {
            name,
            to: Target::File(BufWriter::new(file)),
        }))
    }

    fn write(&mut self, unit: &[u8]) -> io::Result<()> {
        match &mut self.to {
            Target::File(file) => file.write_all(unit),
            Target::Pipe(pipe) => pipe.write(unit),
        }
    }
}

/// End of the output of a receiver.
pub(super) struct Finished {
    /// Metrics, if the receiver has a run folder.
    pub(super) summary: Option<Summary>,
    /// Whether the recording is complete.
    pub(super) recording: Result<()>,
}

pub(super) struct Keeper {
    pub(super) progress: Progress,
    /// Complete frames.
    pub(super) whole: Tally,
    folder: Folder,
    byte_stream: Option<ByteStream>,
    /// The first write error of the byte stream.
    cut_short: Option<anyhow::Error>,
    rows: Vec<ReceivedFrame>,
    shown: Vec<ShownFrame>,
    judged: u64,
    /// Sum of the PSNR of the compared frames in dB.
    psnr: f64,
    told_misfit: bool,
}

impl Keeper {
    /// Output of a receiver; `byte_stream` is the byte stream file, if any.
    pub(super) fn new(byte_stream: Option<ByteStream>, progress: Progress, folder: Folder) -> Self {
        Self {
            progress,
            whole: Tally::default(),
            folder,
            byte_stream,
            cut_short: None,
            rows: Vec::new(),
            shown: Vec::new(),
            judged: 0,
            psnr: 0.0,
            told_misfit: false,
        }
    }

    /// Prints once that the timestamps do not fit the frame rate.
    pub(super) fn check(&mut self, numbering: &Numbering) {
        if numbering.misfits() && !std::mem::replace(&mut self.told_misfit, true) {
            self.progress.say(MISFIT);
        }
    }

    /// Records a frame that is not compared.
    pub(super) fn received(&mut self, row: ReceivedFrame) {
        self.rows.push(row);
    }

    /// Records the picture on the screen for a frame slot.
    pub(super) fn shown(&mut self, row: ShownFrame) {
        self.shown.push(row);
    }

    /// Records a compared frame.
    pub(super) fn judged(&mut self, judged: DecodedFrame) {
        // B pictures are compared when they are shown, with a later row.
        let on_time = judged.shown.iter().filter(|slot| slot.on_time);
        for quality in on_time.filter_map(|slot| slot.quality) {
            self.judged += 1;
            self.psnr += quality.psnr_y;
        }
        self.rows.extend(judged.row);
        self.shown.extend(judged.shown);
        if let Some(note) = judged.note {
            self.progress.say(&note);
        }
    }

    /// Appends bytes to the byte stream.
    pub(super) fn write(&mut self, unit: &[u8]) {
        let Some(byte_stream) = &mut self.byte_stream else {
            return;
        };
        if let Err(e) = byte_stream.write(unit)
            && let Some(ByteStream { name, to }) = self.byte_stream.take()
        {
            if let Target::File(file) = to {
                // What is left in the buffer has no space either, and a destructor would write it.
                let _ = file.into_parts();
            }
            self.cut(&name, e);
        }
    }

    /// The byte stream ends after a write error.
    fn cut(&mut self, name: &str, error: io::Error) {
        let cut =
            anyhow::Error::new(error).context(format!("the recording in {name} is cut short"));
        if !is_unread(&cut) {
            self.progress.say(&format!(
                "{name} is incomplete from here on: {:#}",
                cut.root_cause()
            ));
        }
        self.cut_short = Some(cut);
    }

    /// Whether the reader of the recording has closed the pipe.
    pub(super) fn is_unread(&self) -> bool {
        self.cut_short.as_ref().is_some_and(is_unread)
    }

    /// Writes new rows and events to the run folder.
    pub(super) fn keep(&mut self, now: Time) {
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

    /// Received frames, for the final message.
    pub(super) fn received_in_all(&self) -> String {
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

    /// Mean PSNR against the reference, for the final message. Empty without a comparison.
    pub(super) fn psnr_text(&self) -> String {
        if self.judged == 0 {
            return String::new();
        }
        let (judged, psnr) = (self.judged, self.psnr / self.judged as f64);
        format!("; PSNR {psnr:.1} dB over {}", counted(judged, "frame"))
    }

    /// Completes the byte stream and the run folder, to which `totals` are added. After Ctrl-C, standard
    /// output has a second to accept the rest.
    ///
    /// # Errors
    /// The run folder cannot be completed.
    pub(super) fn finish(
        mut self,
        totals: Option<Totals>,
        context: &LiveContext,
    ) -> Result<Finished> {
        if let Some(ByteStream { name, to }) = self.byte_stream.take() {
            let written = match to {
                Target::File(mut file) => file.flush().inspect_err(|_| {
                    let _ = file.into_parts();
                }),
                Target::Pipe(pipe) => pipe.finish(|| context.interrupts.count() > 0),
            };
            if let Err(e) = written {
                self.cut(&name, e);
            }
        }
        let now = context.clock.now();
        if let Some(trouble) = self.folder.record_totals(now, totals) {
            self.progress.say(&trouble);
        }
        Ok(Finished {
            summary: self.folder.finish(now)?,
            recording: self.cut_short.map_or(Ok(()), Err),
        })
    }
}
