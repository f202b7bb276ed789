//! Decodes what comes and compares it with the originals, on a thread of its own.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, bail};
use tidegate_core::media::{Codec, FrameRate, Quality};
use tidegate_live::driver::StopFlag;
use tidegate_media::{
    Decoder, FileOptions, FileSource, Picture, Scene, SceneSource, Size, VideoSource, quality,
};
use tidegate_sim::run::{ReceivedFrame, ShownFrame};

use super::numbering::Turns;
use super::window::Window;
use crate::live::SCENE_SEED;

/// The thread, from outside.
#[derive(Debug)]
pub(super) struct Viewer {
    /// None when it has fallen too far behind.
    frames: Option<SyncSender<Unit>>,
    judged: Receiver<Judged>,
    thread: JoinHandle<()>,
}

/// A frame as it came.
#[derive(Debug)]
struct Unit {
    row: ReceivedFrame,
    data: Vec<u8>,
    /// It came in time to be shown; others are decoded for those that refer to them.
    accepted: bool,
}

/// What to do with pictures.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    /// Compare with these originals.
    pub(super) reference: Option<&'a str>,
    /// Show them here.
    pub(super) window: Option<Window>,
    pub(super) codec: Codec,
    pub(super) rate: FrameRate,
}

/// A frame that was looked at.
#[derive(Debug)]
pub(super) struct Judged {
    /// With the likeness of the picture, if there is one.
    pub(super) row: ReceivedFrame,
    /// What was on the screen for this frame, and for those before it of which nothing came.
    pub(super) shown: Vec<ShownFrame>,
    /// The decoder needs a key frame.
    pub(super) trouble: bool,
    /// What the user should know.
    pub(super) note: Option<String>,
}

impl Viewer {
    /// Starts it. `driver` is woken when a frame has been judged.
    ///
    /// # Errors
    /// When there is no decoder, or the reference cannot be read.
    pub(super) fn start(watch: Watch<'_>, driver: StopFlag) -> Result<Self> {
        let (frames, inbox) = sync_channel::<Unit>(BACKLOG);
        let (outbox, judged) = sync_channel(BACKLOG);
        let mut eye = Eye::open(watch)?;
        let work = move || {
            for unit in inbox {
                if outbox.send(eye.judge(unit)).is_err() {
                    break;
                }
                driver.wake();
            }
        };
        let thread = thread::Builder::new()
            .name("viewer".into())
            .spawn(work)
            .context("no thread for the decoder")?;
        Ok(Self {
            frames: Some(frames),
            judged,
            thread,
        })
    }

    /// Gives it a frame; hands the row back if the thread has fallen too far behind, now or
    /// before.
    pub(super) fn show(
        &mut self,
        row: ReceivedFrame,
        data: Vec<u8>,
        accepted: bool,
    ) -> Result<(), ReceivedFrame> {
        let Some(frames) = &self.frames else {
            return Err(row);
        };
        let unit = Unit {
            row,
            data,
            accepted,
        };
        frames.try_send(unit).map_err(|e| {
            self.frames = None;
            let (TrySendError::Full(unit) | TrySendError::Disconnected(unit)) = e;
            unit.row
        })
    }

    /// Whether it takes frames.
    pub(super) fn keeps_up(&self) -> bool {
        self.frames.is_some()
    }

    /// The next frame that has been judged, if one has.
    pub(super) fn poll(&self) -> Option<Judged> {
        self.judged.try_recv().ok()
    }

    /// All that are left, once they have been judged and the window is closed.
    pub(super) fn finish(self) -> Vec<Judged> {
        drop(self.frames);
        let judged = self.judged.into_iter().collect();
        // If it panicked, it said so.
        let _ = self.thread.join();
        judged
    }
}

/// Decoder and originals.
struct Eye {
    /// Empty if there is none.
    reference: String,
    window: Option<Window>,
    rate: FrameRate,
    decoder: Decoder,
    original: Option<Original>,
    screen: Option<(u64, Picture)>,
    turns: Turns,
    /// The first comparison has been made.
    warned: bool,
}

struct Original {
    source: Box<dyn VideoSource>,
    picture: Picture,
}

impl Eye {
    fn open(watch: Watch<'_>) -> Result<Self> {
        let Watch {
            reference,
            window,
            codec,
            rate,
        } = watch;
        reference.map_or(Ok(()), look)?;
        Ok(Self {
            reference: reference.unwrap_or_default().to_owned(),
            window,
            rate,
            decoder: Decoder::open(codec).context("pictures cannot be looked at")?,
            original: None,
            screen: None,
            turns: Turns::new(rate),
            warned: false,
        })
    }

    fn judge(&mut self, unit: Unit) -> Judged {
        let Unit {
            mut row,
            data,
            accepted,
        } = unit;
        let mut note = None;
        let mut shown = Vec::new();
        let turns = self.turns.until(row.frame, row.first);
        for frame in *turns.start()..row.frame {
            shown.push(if row.frame - frame > LONGEST_GAP {
                self.still(frame)
            } else {
                self.slot(frame, &mut note)
            });
        }
        let mut trouble = false;
        if row.decodable && !data.is_empty() {
            let decoded = self.decoder.decode(&data);
            match decoded.picture() {
                Some(picture) if accepted => self.screen = Some((row.frame, picture.clone())),
                Some(_) => {}
                None => trouble = true,
            }
        }
        if !turns.is_empty() {
            let slot = self.slot(row.frame, &mut note);
            if slot.on_time {
                row.quality = slot.quality;
                note = note.or(self.first_look(slot.quality));
            }
            shown.push(slot);
        }
        Judged {
            row,
            shown,
            trouble,
            note,
        }
    }

    /// What is on the screen for `frame`, which nobody looks at.
    fn still(&self, frame: u64) -> ShownFrame {
        let shown_frame = self.screen.as_ref().map(|(shown, _)| *shown);
        ShownFrame {
            frame,
            shown_frame,
            on_time: shown_frame == Some(frame),
            quality: None,
        }
    }

    fn slot(&mut self, frame: u64, note: &mut Option<String>) -> ShownFrame {
        let quality = self.likeness(frame).unwrap_or_else(|e| {
            *note = Some(format!("no more comparisons: {e:#}"));
            self.reference.clear();
            None
        });
        if let Some((_, picture)) = &self.screen
            && let Some(window) = &mut self.window
            && let Err(e) = window.show(picture)
        {
            *note = Some(format!("the window is closed ({e}); the stream goes on"));
            self.window = None;
        }
        ShownFrame {
            quality,
            ..self.still(frame)
        }
    }

    /// What is on the screen against the original of `frame`; nothing before the first picture
    /// and after the end of the reference.
    fn likeness(&mut self, frame: u64) -> Result<Option<Quality>> {
        if self.reference.is_empty() {
            return Ok(None);
        }
        let Some((_, screen)) = &self.screen else {
            return Ok(None);
        };
        let original = match &mut self.original {
            Some(original) => original,
            none => none.insert(Original {
                source: source(&self.reference, screen.size(), self.rate)?,
                picture: Picture::black(screen.size()),
            }),
        };
        if frame < original.source.position()
            || !original.source.advance_to(frame, &mut original.picture)?
        {
            return Ok(None);
        }
        Ok(Some(quality(&original.picture, screen)?))
    }

    fn first_look(&mut self, quality: Option<Quality>) -> Option<String> {
        let quality = quality.filter(|_| !std::mem::replace(&mut self.warned, true))?;
        (quality.psnr_y < UNLIKE).then(|| {
            format!(
                "the first picture is unlike the reference (PSNR {:.1} dB): start the receiver \
                 before the sender, and give the same source and --fps",
                quality.psnr_y
            )
        })
    }
}

/// Sees that it can be compared with. The size is not known before the first picture; whether it can be
/// read is.
///
/// # Errors
/// Names the reference.
pub(super) fn look(reference: &str) -> Result<()> {
    match reference {
        "-" => bail!("standard input cannot be compared with: give the --reference as a file"),
        "scene" => {}
        file => drop(FileSource::open(file, FileOptions::default())?),
    }
    Ok(())
}

fn source(reference: &str, size: Size, rate: FrameRate) -> Result<Box<dyn VideoSource>> {
    if reference == "scene" {
        return Ok(Box::new(SceneSource::new(
            Scene::new(SCENE_SEED, size),
            rate,
        )));
    }
    let options = FileOptions {
        size: Some(size),
        rate: Some(rate),
        looped: true,
    };
    Ok(Box::new(FileSource::open(reference, options)?))
}

/// Two minutes of frames: who is further behind does not catch up.
const BACKLOG: usize = 3_600;
/// So many frames of a gap are compared with the last picture, and have it in the window: those before
/// would hold up what comes.
const LONGEST_GAP: u64 = 300;
/// Two pictures of one scene that are frames apart rarely have more, the same picture at the
/// lowest rate rarely has less.
const UNLIKE: f64 = 18.0;

#[cfg(test)]
mod tests {
    use tidegate_core::media::{FrameEncoder as _, FrameOrder};
    use tidegate_core::units::{Rate, Time};
    use tidegate_media::EncoderSession;
    use tidegate_sim::run::FrameKind;

    use super::*;

    const FPS: FrameRate = FrameRate::fps(30);

    fn units(frames: u64) -> Vec<Unit> {
        let scene = Scene::new(SCENE_SEED, Size::new(160, 96).unwrap());
        let source = SceneSource::new(scene, FPS);
        let mut session = EncoderSession::open(Box::new(source), |_| {}).unwrap();
        let unit = |frame| {
            let order = FrameOrder {
                frame,
                captured: Time::ZERO,
                rate: Rate::kbps(400),
                key: frame == 0,
            };
            let data = session.encode(&order).unwrap().data;
            let row = ReceivedFrame {
                frame,
                rtp_timestamp: 3_000 * frame as u32,
                first: Time::ZERO,
                complete: Some(Time::ZERO),
                kind: FrameKind::Delta,
                bits: 8 * data.len() as u64,
                decodable: true,
                quality: None,
            };
            Unit {
                row,
                data,
                accepted: true,
            }
        };
        (0..frames).map(unit).collect()
    }

    fn watch(reference: &str) -> Watch<'_> {
        Watch {
            reference: Some(reference),
            window: None,
            codec: Codec::H264,
            rate: FPS,
        }
    }

    #[test]
    fn what_comes_too_late_is_decoded_and_not_shown() {
        let mut eye = Eye::open(watch("scene")).unwrap();
        for unit in units(6) {
            let frame = unit.row.frame;
            let accepted = frame != 3;
            let judged = eye.judge(Unit { accepted, ..unit });
            let shown = &judged.shown[0];
            assert_eq!(shown.shown_frame, Some(if accepted { frame } else { 2 }));
            assert_eq!(shown.on_time, accepted);
            // Frame 4 refers to the one that was not shown.
            assert!(judged.row.quality.is_none_or(|q| q.psnr_y > 25.0));
        }
    }

    #[test]
    fn pictures_are_compared_and_gaps_are_seen() {
        let mut viewer = Viewer::start(watch("scene"), StopFlag::new().unwrap()).unwrap();
        for unit in units(12) {
            // Three frames of which nothing came, then one that came in part.
            match unit.row.frame {
                6..9 => {}
                9 => {
                    let row = ReceivedFrame {
                        decodable: false,
                        complete: None,
                        ..unit.row
                    };
                    viewer.show(row, Vec::new(), true).unwrap();
                }
                _ => viewer.show(unit.row, unit.data, true).unwrap(),
            }
        }
        let judged = viewer.finish();
        assert!(judged.iter().all(|j| j.note.is_none() && !j.trouble));
        let shown: Vec<_> = judged.iter().flat_map(|j| &j.shown).collect();
        let frames: Vec<u64> = shown.iter().map(|s| s.frame).collect();
        assert!(frames.into_iter().eq(0..12));
        for slot in &shown {
            let frozen = (6..10).contains(&slot.frame);
            assert_eq!(slot.on_time, !frozen, "{slot:?}");
            assert_eq!(slot.shown_frame, Some(if frozen { 5 } else { slot.frame }));
        }
        let psnr = |i: usize| shown[i].quality.unwrap().psnr_y;
        assert!(
            psnr(5) > 25.0 && psnr(9) < psnr(5),
            "{} {}",
            psnr(5),
            psnr(9)
        );
        assert_eq!(judged[5].row.quality, shown[5].quality);
        assert_eq!(
            judged[6].row.quality, None,
            "nothing of frame 9 was decoded"
        );
    }

    #[test]
    fn no_frame_of_a_long_gap_is_left_out() {
        let mut eye = Eye::open(watch("scene")).unwrap();
        let mut units = units(2);
        units[1].row.frame = 400;
        let shown = units.into_iter().flat_map(|unit| eye.judge(unit).shown);
        let shown: Vec<_> = shown.collect();
        assert!(shown.iter().map(|s| s.frame).eq(0..=400));
        let gap = &shown[1..400];
        assert!(gap.iter().all(|s| s.shown_frame == Some(0) && !s.on_time));
        let compared = gap.iter().filter(|s| s.quality.is_some()).count();
        assert_eq!(compared as u64, LONGEST_GAP);
    }

    #[test]
    fn a_reference_of_another_start_is_noticed() {
        let mut eye = Eye::open(watch("scene")).unwrap();
        let mut unit = units(1).remove(0);
        unit.row.frame = 290;
        let note = eye.judge(unit).note.unwrap();
        assert!(note.contains("unlike the reference"), "{note}");
    }

    #[test]
    fn what_cannot_be_compared_with_is_named() {
        for wrong in ["-", "/nowhere/film.mp4"] {
            assert!(Viewer::start(watch(wrong), StopFlag::new().unwrap()).is_err());
        }
    }
}
