//! Decodes received frames and compares them with the originals, on a thread of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, bail};
use tidegate_core::media::{FrameRate, Quality};
use tidegate_core::units::{Bytes, Time};
use tidegate_live::driver::StopFlag;
use tidegate_media::{
    Decoded, Decoder, DecoderConfig, FileOptions, FileSource, Picture, Scene, SceneSource, Size,
    VideoSource, quality,
};
use tidegate_record::{ReceivedFrame, ShownFrame};

use super::numbering::{MAX_UNITS, Turns};
use super::window::{Window, WindowHandle};
use crate::decoding::DecoderNotes;
use crate::live::SCENE_SEED;

/// Handle of the decoder thread.
#[derive(Debug)]
pub(super) struct Viewer {
    /// `None` once the thread has fallen too far behind.
    frames: Option<Inlet>,
    decoded_frames: Receiver<DecodedFrame>,
    window: Option<WindowHandle>,
    thread: JoinHandle<()>,
}

/// Received frame.
#[derive(Debug)]
struct Unit {
    row: ReceivedFrame,
    data: Vec<u8>,
    /// Arrived in time to be shown. A late frame is decoded as a reference of others only.
    accepted: bool,
}

impl Unit {
    fn size(&self) -> Bytes {
        Bytes(self.data.len() as u64)
    }
}

/// Queue of frames, limited by [`BACKLOG`] and [`BACKLOG_SIZE`].
fn unit_queue() -> (Inlet, Outlet) {
    let (units, queued) = sync_channel(BACKLOG);
    let size = Arc::new(AtomicU64::new(0));
    let inlet = Inlet {
        units,
        size: Arc::clone(&size),
    };
    (
        inlet,
        Outlet {
            units: queued,
            size,
        },
    )
}

#[derive(Debug)]
struct Inlet {
    units: SyncSender<Unit>,
    /// Of the queued frames, in bytes.
    size: Arc<AtomicU64>,
}

impl Inlet {
    /// Returns the row if there is no place, or the other end is closed.
    fn try_send(&self, unit: Unit) -> Result<(), ReceivedFrame> {
        let size = unit.size();
        // Relaxed: the channel orders the frames, and only this end adds to their size.
        if Bytes(self.size.load(Ordering::Relaxed)) + size > BACKLOG_SIZE {
            return Err(unit.row);
        }
        // Before the frame is queued, because the other end then subtracts it.
        self.size.fetch_add(size.get(), Ordering::Relaxed);
        self.units.try_send(unit).map_err(|e| {
            self.size.fetch_sub(size.get(), Ordering::Relaxed);
            let (TrySendError::Full(unit) | TrySendError::Disconnected(unit)) = e;
            unit.row
        })
    }
}

struct Outlet {
    units: Receiver<Unit>,
    size: Arc<AtomicU64>,
}

impl Iterator for Outlet {
    type Item = Unit;

    /// The oldest frame, once there is one. `None` after the last one.
    fn next(&mut self) -> Option<Unit> {
        let unit = self.units.recv().ok()?;
        self.size.fetch_sub(unit.size().get(), Ordering::Relaxed);
        Some(unit)
    }
}

/// Parameters of a viewer.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    /// Source of the originals, if the pictures are compared.
    pub(super) reference: Option<&'a str>,
    /// Window that shows the pictures.
    pub(super) window: Option<Window>,
    pub(super) decoder: DecoderConfig,
    pub(super) rate: FrameRate,
}

/// Decoded frame.
#[derive(Debug)]
pub(super) struct DecodedFrame {
    /// With the quality of the picture, if it was compared. `None` for a picture whose turn comes
    /// after the last frame.
    pub(super) row: Option<ReceivedFrame>,
    /// Picture on the screen for this frame, and for the missing frames before it.
    pub(super) shown: Vec<ShownFrame>,
    /// The decoder needs a key frame.
    pub(super) trouble: bool,
    /// Message for the user.
    pub(super) note: Option<String>,
}

impl Viewer {
    /// Starts the thread. `driver` is woken after each decoded frame.
    ///
    /// # Errors
    /// There is no decoder, or the reference cannot be read.
    pub(super) fn start(watch: Watch<'_>, driver: StopFlag) -> Result<Self> {
        let (frames, inbox) = unit_queue();
        let (outbox, decoded_frames) = sync_channel(BACKLOG);
        let window = watch.window.as_ref().map(Window::handle);
        let mut screen = Screen::open(watch)?;
        let work = move || {
            for unit in inbox {
                if outbox.send(screen.decode(unit)).is_err() {
                    break;
                }
                driver.wake();
            }
            while let Some(last) = screen.drain() {
                if outbox.send(last).is_err() {
                    break;
                }
            }
        };
        let thread = thread::Builder::new()
            .name("viewer".into())
            .spawn(work)
            .context("cannot start the decoder thread")?;
        Ok(Self {
            frames: Some(frames),
            decoded_frames,
            window,
            thread,
        })
    }

    /// Queues a frame. Returns the row if the thread has fallen too far behind, now or earlier.
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
        frames.try_send(unit).inspect_err(|_| self.frames = None)
    }

    /// Next decoded frame, if any.
    pub(super) fn poll(&self) -> Option<DecodedFrame> {
        self.decoded_frames.try_recv().ok()
    }

    /// Closes the window. Returns all remaining frames, after the thread has decoded them.
    pub(super) fn finish(self) -> Vec<DecodedFrame> {
        drop(self.frames);
        // The thread waits for a player that is paused.
        if let Some(window) = self.window {
            window.close();
        }
        let decoded_frames = self.decoded_frames.into_iter().collect();
        // A panic of the thread has been printed.
        let _ = self.thread.join();
        decoded_frames
    }
}

/// A decoded access unit.
#[derive(Clone, Copy)]
struct DecodedUnit {
    frame: u64,
    /// Whether it arrived in time.
    accepted: bool,
}

/// Decoder, originals and screen.
struct Screen {
    /// Empty without a reference.
    reference: String,
    window: Option<Window>,
    rate: FrameRate,
    decoder: Decoder,
    notes: DecoderNotes,
    /// The last decoded access units, newest first.
    units: VecDeque<DecodedUnit>,
    original: Option<Original>,
    shown: Option<(u64, Picture)>,
    /// Size of the shown pictures, and the frame at which it changed last.
    size: Option<(Size, u64)>,
    turns: Turns,
    /// Arrival of the newest frame.
    newest: Time,
    /// The first comparison has been made.
    warned: bool,
}

/// Result of decoding an access unit.
enum Output {
    /// Next frame in display order, and its picture if it arrived in time.
    Picture(u64, Option<Picture>),
    /// The picture is displayed after a later one.
    Delayed,
    Nothing,
}

struct Original {
    source: Box<dyn VideoSource>,
    picture: Picture,
}

impl Screen {
    fn open(watch: Watch<'_>) -> Result<Self> {
        let Watch {
            reference,
            window,
            decoder,
            rate,
        } = watch;
        check_reference(reference)?;
        let decoder = Decoder::open(decoder).context("cannot decode the pictures")?;
        Ok(Self {
            reference: reference.unwrap_or_default().to_owned(),
            window,
            rate,
            notes: DecoderNotes::new(&decoder),
            decoder,
            units: VecDeque::new(),
            original: None,
            shown: None,
            size: None,
            turns: Turns::new(rate),
            newest: Time::ZERO,
            warned: false,
        })
    }

    fn decode(&mut self, unit: Unit) -> DecodedFrame {
        let Unit {
            mut row,
            data,
            accepted,
        } = unit;
        let mut note = None;
        let mut trouble = false;
        // Frame whose turn it is on the screen, and its picture.
        let (mut due, mut picture) = (Some(row.frame), None);
        if !data.is_empty() {
            let unit = DecodedUnit {
                frame: row.frame,
                accepted,
            };
            match self.decode_unit(unit, &data, &mut note) {
                Output::Picture(frame, decoded) => (due, picture) = (Some(frame), decoded),
                Output::Delayed => due = None,
                Output::Nothing => trouble = true,
            }
        }
        self.newest = row.first;
        let shown = due.map_or_else(Vec::new, |due| self.present(due, picture, &mut note));
        let own = shown
            .last()
            .filter(|slot| slot.on_time && slot.frame == row.frame);
        row.quality = own.and_then(|slot| slot.quality);
        DecodedFrame {
            row: Some(row),
            shown,
            trouble,
            note,
        }
    }

    /// The next picture that has waited for its turn until the end of the stream.
    fn drain(&mut self) -> Option<DecodedFrame> {
        let picture = self.decoder.drain().picture().cloned()?;
        let unit = *self.units.get(usize::from(self.decoder.behind()))?;
        let mut note = None;
        let shown = self.present(unit.frame, unit.accepted.then_some(picture), &mut note);
        Some(DecodedFrame {
            row: None,
            shown,
            trouble: false,
            note,
        })
    }

    /// The screen at the turn of a frame, and of the missing frames before it.
    fn present(
        &mut self,
        due: u64,
        picture: Option<Picture>,
        note: &mut Option<String>,
    ) -> Vec<ShownFrame> {
        let mut shown = Vec::new();
        let turns = self.turns.until(due, self.newest);
        for frame in *turns.start()..due {
            shown.push(if due - frame > LONGEST_GAP {
                self.unchanged(frame)
            } else {
                self.slot(frame, note)
            });
        }
        if let Some(picture) = picture
            && self.admits(picture.size(), due, note)
        {
            self.shown = Some((due, picture));
        }
        if !turns.is_empty() {
            let slot = self.slot(due, note);
            if slot.on_time {
                *note = note.take().or(self.check_first(slot.quality));
            }
            shown.push(slot);
        }
        shown
    }

    /// Decodes the access unit of a frame.
    fn decode_unit(&mut self, unit: DecodedUnit, data: &[u8], note: &mut Option<String>) -> Output {
        self.units.push_front(unit);
        self.units.truncate(MAX_UNITS);
        let decoded = self.decoder.decode(data);
        *note = self.notes.note(&decoded);
        let picture = match decoded {
            Decoded::Delayed => return Output::Delayed,
            decoded => decoded.picture().cloned(),
        };
        let Some(picture) = picture else {
            return Output::Nothing;
        };
        let behind = self.decoder.behind();
        *note = note.take().or_else(|| self.notes.order(behind));
        let unit = self.units.get(usize::from(behind)).copied().unwrap_or(unit);
        Output::Picture(unit.frame, unit.accepted.then_some(picture))
    }

    /// Whether a picture of this size is shown. The size may change once a second, because a window
    /// and the originals of another size take time to open.
    fn admits(&mut self, size: Size, frame: u64, note: &mut Option<String>) -> bool {
        let second = self.rate.as_f64() as u64;
        match self.size {
            Some((known, _)) if known == size => return true,
            Some((_, since)) if frame < since.saturating_add(second) => return false,
            Some((known, _)) => {
                note.get_or_insert_with(|| {
                    format!("the picture size changes from {known} to {size}")
                });
                self.original = None;
            }
            None => {}
        }
        self.size = Some((size, frame));
        true
    }

    /// Picture on the screen for `frame`, without a comparison.
    fn unchanged(&self, frame: u64) -> ShownFrame {
        let shown_frame = self.shown.as_ref().map(|(shown, _)| *shown);
        ShownFrame {
            frame,
            shown_frame,
            on_time: shown_frame == Some(frame),
            quality: None,
        }
    }

    fn slot(&mut self, frame: u64, note: &mut Option<String>) -> ShownFrame {
        let quality = self.quality_of(frame).unwrap_or_else(|e| {
            *note = Some(format!("comparison stopped: {e:#}"));
            self.reference.clear();
            None
        });
        if let Some((_, picture)) = &self.shown
            && let Some(window) = &mut self.window
            && let Err(e) = window.show(picture)
        {
            // At the end of the stream, there is no more to say.
            if !window.is_closed() {
                *note = Some(format!("the window is closed ({e}); the stream continues"));
            }
            self.window = None;
        }
        ShownFrame {
            quality,
            ..self.unchanged(frame)
        }
    }

    /// Quality of the screen against the original of `frame`. `None` before the first picture and
    /// after the end of the reference.
    fn quality_of(&mut self, frame: u64) -> Result<Option<Quality>> {
        if self.reference.is_empty() {
            return Ok(None);
        }
        let Some((_, shown)) = &self.shown else {
            return Ok(None);
        };
        let original = match &mut self.original {
            Some(original) => original,
            none => none.insert(Original {
                source: source(&self.reference, shown.size(), self.rate)?,
                picture: Picture::black(shown.size()),
            }),
        };
        if frame < original.source.position()
            || !original.source.advance_to(frame, &mut original.picture)?
        {
            return Ok(None);
        }
        Ok(Some(quality(&original.picture, shown)?))
    }

    fn check_first(&mut self, quality: Option<Quality>) -> Option<String> {
        let quality = quality.filter(|_| !std::mem::replace(&mut self.warned, true))?;
        (quality.psnr_y < DIFFERENT_PSNR).then(|| {
            format!(
                "the first picture differs from the reference (PSNR {:.1} dB): start the receiver \
                 before the sender, and give the same source and --fps",
                quality.psnr_y
            )
        })
    }
}

/// Checks that the reference is readable. Its size is checked at the first picture.
///
/// # Errors
/// The reference cannot be read; the message names it.
pub(super) fn check_reference(reference: Option<&str>) -> Result<()> {
    match reference {
        Some("-") => bail!("standard input cannot be a reference: give a file as --reference"),
        None | Some("scene") => {}
        Some(file) => drop(FileSource::open(file, FileOptions::default())?),
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

/// Two minutes of frames: a thread this far behind does not catch up.
const BACKLOG: usize = 3_600;
/// Size of these frames, since a frame may have 4 MiB: two minutes at 4 Mb/s.
const BACKLOG_SIZE: Bytes = Bytes(64_000_000);
/// Number of frames of a gap that are compared with the last picture and shown in the window. More
/// would delay the frames after the gap.
const LONGEST_GAP: u64 = 300;
/// PSNR in dB. Two pictures of a scene that are frames apart rarely have more. The same picture at
/// the lowest rate rarely has less.
const DIFFERENT_PSNR: f64 = 18.0;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;
    use std::time::Duration;

    use tidegate_core::media::{Codec, FrameEncoder as _, FrameOrder};
    use tidegate_core::units::Rate;
    use tidegate_media::{EncoderSession, PictureEncoder as _, X264Config, X264Encoder};
    use tidegate_record::FrameKind;

    use super::*;

    const FPS: FrameRate = FrameRate::fps(30);
    /// Far beyond the duration of a test.
    const GUARD: Duration = Duration::from_mins(1);

    fn units(frames: u64) -> Vec<Unit> {
        let scene = Scene::new(SCENE_SEED, Size::new(160, 96).unwrap());
        let source = SceneSource::new(scene, FPS);
        let mut session = EncoderSession::open(Box::new(source), |_| {}).unwrap();
        let encoded = |frame| {
            let order = FrameOrder {
                frame,
                captured: Time::ZERO,
                rate: Rate::kbps(400),
                key: frame == 0,
            };
            unit(frame, session.encode(&order).unwrap().data)
        };
        (0..frames).map(encoded).collect()
    }

    fn unit(frame: u64, data: Vec<u8>) -> Unit {
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
    }

    fn watch(reference: &str) -> Watch<'_> {
        Watch {
            reference: Some(reference),
            window: None,
            decoder: Codec::H264.into(),
            rate: FPS,
        }
    }

    /// A stream of `ffmpeg` with two B pictures after each P picture in decoding order.
    #[test]
    fn frames_are_shown_in_display_order() {
        let mut program = Command::new("ffmpeg");
        program.args([
            "-nostdin",
            "-loglevel",
            "error",
            "-f",
            "lavfi",
            "-t",
            "1",
            "-i",
        ]);
        program.args([
            "testsrc2=size=160x96:rate=30",
            "-c:v",
            "libx264",
            "-bf",
            "2",
        ]);
        program.args([
            "-x264-params",
            "aud=1:b-adapt=0:scenecut=0",
            "-f",
            "h264",
            "-",
        ]);
        let Ok(made) = program.output() else {
            return;
        };
        let is_start = |at: &usize| made.stdout[*at..].starts_with(&[0, 0, 0, 1, 9]);
        let mut starts: Vec<usize> = (0..made.stdout.len()).filter(is_start).collect();
        starts.push(made.stdout.len());
        let units = starts
            .windows(2)
            .map(|pair| made.stdout[pair[0]..pair[1]].to_vec());
        let mut screen = Screen::open(Watch {
            reference: None,
            ..watch("")
        })
        .unwrap();
        let (mut shown, mut notes) = (Vec::new(), Vec::new());
        for (n, data) in (0..).zip(units).take(25) {
            // Frames 0 3 1 2 6 4 5 and so on.
            let frame = match n % 3 {
                _ if n == 0 => 0,
                1 => n + 2,
                _ => n - 1,
            };
            let decoded = screen.decode(unit(frame, data));
            assert!(!decoded.trouble, "unit {n}");
            shown.extend(decoded.shown);
            notes.extend(decoded.note);
        }
        assert!(shown.iter().map(|slot| slot.frame).eq(0..23), "{shown:?}");
        // The end of the stream.
        shown.extend(std::iter::from_fn(|| screen.drain()).flat_map(|last| last.shown));
        assert!(shown.iter().map(|slot| slot.frame).eq(0..25), "{shown:?}");
        assert!(shown.iter().all(|slot| slot.on_time), "{shown:?}");
        assert!(
            matches!(&notes[..], [note] if note.contains("B pictures")),
            "{notes:?}"
        );
    }

    #[test]
    fn another_size_is_followed_once_a_second() {
        let mut screen = Screen::open(watch("scene")).unwrap();
        let [small, large] = [(160, 96), (192, 112)].map(|(w, h)| Size::new(w, h).unwrap());
        let sizes = [
            (0, small),
            (1, small),
            (2, large),
            (35, large),
            (36, small),
            (70, small),
        ];
        let mut seen = Vec::new();
        for (frame, size) in sizes {
            let scene = Scene::new(SCENE_SEED, size);
            let mut picture = Picture::black(size);
            scene.render(frame, &mut picture);
            let mut encoder = X264Encoder::open(X264Config::new(size, FPS)).unwrap();
            let coded = encoder.encode(&picture, Rate::kbps(2_000), true).unwrap();
            let decoded = screen.decode(unit(frame, coded.data));
            let shown = decoded.shown.last().unwrap();
            assert!(
                shown.quality.is_none_or(|quality| quality.psnr_y > 15.0),
                "{shown:?}"
            );
            seen.push((
                shown.on_time,
                shown.quality.is_some(),
                decoded.note.is_some(),
            ));
        }
        let (same, change, refused) = ((true, true, false), (true, true, true), false);
        assert_eq!(seen[..2], [same, same]);
        assert_eq!(seen[2].0, refused, "a second has not passed");
        assert_eq!(seen[3], change);
        assert_eq!(seen[4].0, refused);
        assert_eq!(seen[5], change);
    }

    #[test]
    fn a_late_frame_is_decoded_and_not_shown() {
        let mut screen = Screen::open(watch("scene")).unwrap();
        for unit in units(6) {
            let frame = unit.row.frame;
            let accepted = frame != 3;
            let decoded_frames = screen.decode(Unit { accepted, ..unit });
            let shown = &decoded_frames.shown[0];
            assert_eq!(shown.shown_frame, Some(if accepted { frame } else { 2 }));
            assert_eq!(shown.on_time, accepted);
            // Frame 4 refers to the frame that was not shown.
            assert!(
                decoded_frames
                    .row
                    .unwrap()
                    .quality
                    .is_none_or(|q| q.psnr_y > 25.0)
            );
        }
    }

    #[test]
    fn pictures_are_compared_and_gaps_are_frozen() {
        let mut viewer = Viewer::start(watch("scene"), StopFlag::new().unwrap()).unwrap();
        for unit in units(12) {
            // Three missing frames, then an incomplete one.
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
        let decoded_frames = viewer.finish();
        assert!(
            decoded_frames
                .iter()
                .all(|j| j.note.is_none() && !j.trouble)
        );
        let shown: Vec<_> = decoded_frames.iter().flat_map(|j| &j.shown).collect();
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
        assert_eq!(
            decoded_frames[5].row.as_ref().unwrap().quality,
            shown[5].quality
        );
        assert_eq!(
            decoded_frames[6].row.as_ref().unwrap().quality,
            None,
            "nothing of frame 9 was decoded"
        );
    }

    /// A window that is paused does not hold the end of the program.
    #[test]
    fn a_player_that_does_not_read_ends_with_the_stream() {
        let folder = std::env::temp_dir().join(format!("tidegate-paused-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("deaf");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile_decoder.sh");
        symlink(script, &program).unwrap();
        let window = Window::with(program.to_str().unwrap(), FPS).unwrap();
        let handle = window.handle();
        let watch = Watch {
            window: Some(window),
            ..watch("scene")
        };
        let mut viewer = Viewer::start(watch, StopFlag::new().unwrap()).unwrap();
        // More than a pipe holds.
        for unit in units(12) {
            viewer.show(unit.row, unit.data, true).unwrap();
        }
        let (outbox, ended) = sync_channel(1);
        thread::spawn(move || outbox.send(viewer.finish()));
        let decoded = ended.recv_timeout(GUARD);
        // No process outlives a test that fails.
        handle.close();
        let decoded = decoded.expect("the thread ends");
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(decoded.len(), 12);
        assert!(decoded.iter().all(|frame| frame.note.is_none()));
    }

    #[test]
    fn each_frame_of_a_long_gap_is_recorded() {
        let mut screen = Screen::open(watch("scene")).unwrap();
        let mut units = units(2);
        units[1].row.frame = 400;
        let shown = units.into_iter().flat_map(|unit| screen.decode(unit).shown);
        let shown: Vec<_> = shown.collect();
        assert!(shown.iter().map(|s| s.frame).eq(0..=400));
        let gap = &shown[1..400];
        assert!(gap.iter().all(|s| s.shown_frame == Some(0) && !s.on_time));
        let compared = gap.iter().filter(|s| s.quality.is_some()).count();
        assert_eq!(compared as u64, LONGEST_GAP);
    }

    #[test]
    fn waiting_frames_are_bounded_in_number_and_in_size() {
        let most = |size: usize| {
            let (inlet, mut outlet) = unit_queue();
            let put = |frame| inlet.try_send(unit(frame, vec![0; size]));
            let count = (0..2 * BACKLOG as u64)
                .take_while(|n| put(*n).is_ok())
                .count();
            assert!(put(0).is_err());
            let oldest = outlet.next().unwrap();
            assert_eq!(oldest.row.frame, 0);
            count
        };
        assert_eq!(most(1), BACKLOG);
        assert_eq!(most(4_000_000), 16);

        let (inlet, mut outlet) = unit_queue();
        // More than fits at once, one after the other.
        for frame in 0..40 {
            inlet.try_send(unit(frame, vec![0; 4_000_000])).unwrap();
            assert_eq!(outlet.next().unwrap().row.frame, frame);
        }
        drop(inlet);
        assert!(outlet.next().is_none());
    }

    #[test]
    fn a_reference_with_an_offset_is_detected() {
        let mut screen = Screen::open(watch("scene")).unwrap();
        let mut unit = units(1).remove(0);
        unit.row.frame = 290;
        let note = screen.decode(unit).note.unwrap();
        assert!(note.contains("differs from the reference"), "{note}");
    }

    #[test]
    fn an_unreadable_reference_is_rejected() {
        for wrong in ["-", "/nowhere/film.mp4"] {
            assert!(Viewer::start(watch(wrong), StopFlag::new().unwrap()).is_err());
        }
    }
}
