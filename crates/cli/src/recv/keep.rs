//! What every receiver keeps of what comes: the run folder, the byte stream, and how much it was.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use tidegate_core::units::Time;
use tidegate_sim::run::{ReceivedFrame, ShownFrame, Summary};

use super::numbering::{MISFIT, Numbering};
use super::viewer::Judged;
use crate::live::{FLOW, Folder, Tally};
use tidegate_console::progress::{Progress, counted};

/// The file that takes the bytes of the stream.
pub(super) struct Film {
    name: String,
    file: BufWriter<File>,
}

impl Film {
    /// Makes the file of `--out`, if it was given.
    ///
    /// # Errors
    /// When that file cannot be made.
    pub(super) fn create(out: Option<&Path>) -> Result<Option<Self>> {
        let Some(path) = out else { return Ok(None) };
        let name = path.display().to_string();
        let file = File::create(path)
            .with_context(|| format!("cannot write {name}: choose another file for --out"))?;
        let file = BufWriter::new(file);
        Ok(Some(Self { name, file }))
    }
}

pub(super) struct Keeper {
    pub(super) progress: Progress,
    /// Of whole frames.
    pub(super) whole: Tally,
    folder: Folder,
    film: Option<Film>,
    rows: Vec<ReceivedFrame>,
    shown: Vec<ShownFrame>,
    judged: u64,
    /// Of the frames that were judged, together.
    psnr: f64,
    told_misfit: bool,
}

impl Keeper {
    /// `film` is where the byte stream goes, if anywhere.
    pub(super) fn new(film: Option<Film>, progress: Progress, folder: Folder) -> Self {
        Self {
            progress,
            whole: Tally::default(),
            folder,
            film,
            rows: Vec::new(),
            shown: Vec::new(),
            judged: 0,
            psnr: 0.0,
            told_misfit: false,
        }
    }

    /// Says once that time stamps are not at the rate of the frames.
    pub(super) fn check(&mut self, numbering: &Numbering) {
        if numbering.misfits() && !std::mem::replace(&mut self.told_misfit, true) {
            self.progress.say(MISFIT);
        }
    }

    /// A frame that nobody judges.
    pub(super) fn received(&mut self, row: ReceivedFrame) {
        self.rows.push(row);
    }

    /// What was on the screen when it was the turn of a frame.
    pub(super) fn shown(&mut self, row: ShownFrame) {
        self.shown.push(row);
    }

    /// A frame that a viewer has seen.
    pub(super) fn judged(&mut self, judged: Judged) {
        if let Some(quality) = judged.row.quality {
            self.judged += 1;
            self.psnr += quality.psnr_y;
        }
        self.rows.push(judged.row);
        self.shown.extend(judged.shown);
        if let Some(note) = judged.note {
            self.progress.say(&note);
        }
    }

    /// The next bytes of the stream.
    pub(super) fn write(&mut self, unit: &[u8]) {
        let Some(Film { name, file }) = &mut self.film else {
            return;
        };
        if let Err(e) = file.write_all(unit) {
            self.progress.say(&format!("{name} ends here: {e}"));
            self.film = None;
        }
    }

    /// Puts down what has come since.
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

    /// What came, for the last words.
    pub(super) fn received_in_all(&self) -> String {
        if self.whole.frames() == 0 {
            return "received no whole frame".to_owned();
        }
        format!(
            "received {} in {:.1} s, {} of video",
            counted(self.whole.frames(), "whole frame"),
            self.whole.span().as_secs_f64(),
            self.whole.rate(),
        )
    }

    /// How like the reference the frames were, for the last words; empty if there is none.
    pub(super) fn likeness(&self) -> String {
        if self.judged == 0 {
            return String::new();
        }
        let (judged, psnr) = (self.judged, self.psnr / self.judged as f64);
        format!("; PSNR {psnr:.1} dB over {}", counted(judged, "frame"))
    }

    /// Ends the byte stream and the run folder.
    ///
    /// # Errors
    /// When one of them cannot be finished.
    pub(super) fn finish(mut self, now: Time) -> Result<Option<Summary>> {
        if let Some(Film { name, mut file }) = self.film.take() {
            file.flush()
                .with_context(|| format!("cannot write {name}"))?;
        }
        self.folder.finish(now)
    }
}
