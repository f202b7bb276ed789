//! Index of a file, by FFmpeg's demultiplexer.

use core::time::Duration;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use ffmpeg_the_third as ffmpeg;
use libc::EINVAL;
use tidegate_core::media::FrameRate;
use tidegate_core::units::{Bytes, Rate};
use tidegate_core::wire::h264::{self, AccessPoint};
use tidegate_core::wire::sdp::ParameterSets;

use super::access_unit::Layout;
use super::{Key, Sample, StoredError, StoredVideo};
use crate::conversion::grid;
use crate::native::quiet;
use crate::reader::{fine_grid, nanos, plausible, stated_orientation};

/// An access unit with its times in the file.
#[derive(Clone, Copy, Debug)]
struct Unit {
    position: u64,
    length: u32,
    /// Decoding and display time in ns, if known.
    times: Option<(i64, i64)>,
    access: Option<AccessPoint>,
    is_reference: bool,
    is_bidirectional: bool,
}

pub(super) fn open(path: &Path) -> Result<StoredVideo, StoredError> {
    quiet();
    let path = path.to_owned();
    let file = File::open(&path).map_err(|cause| StoredError::Open {
        path: path.clone(),
        cause,
    })?;
    let mut input = demuxer(&path)?;
    let best = input.streams().best(ffmpeg::media::Type::Video);
    let stream = best.ok_or_else(|| StoredError::NoVideo { path: path.clone() })?;
    if stream.parameters().id() != ffmpeg::codec::Id::H264 {
        return Err(StoredError::Codec { path });
    }
    let size = (stream.parameters().width(), stream.parameters().height());
    let layout = Layout::of(configuration(&stream)).map_err(|damage| unreadable(&path, &damage))?;
    let (number, unit, stated) = (stream.index(), stream.time_base(), stream.frames());
    let rate = rate_of(&stream);
    let orientation = stated_orientation(&stream).unwrap_or_default();
    let mut reader = Reading {
        path: &path,
        file: &file,
        layout: &layout,
        units: Vec::new(),
        sets: None,
    };
    reader.read_stream(&mut input, number, unit)?;
    let Reading { units, sets, .. } = reader;
    if stated > 0 && (units.len() as i64) < stated {
        let pictures = units.len();
        return Err(StoredError::Truncated {
            path,
            pictures,
            stated,
        });
    }
    let (samples, duration) = schedule(&units, rate);
    let keys = keys(&samples, rate);
    if keys.is_empty() {
        return Err(StoredError::NoKeyFrame { path });
    }
    Ok(StoredVideo {
        file,
        layout,
        frame_rate: rate,
        size,
        orientation,
        parameter_sets: sets,
        duration,
        samples,
        keys,
        path,
    })
}

fn unreadable(path: &Path, why: &dyn ToString) -> StoredError {
    StoredError::Unreadable {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

/// Opens a file for reading by FFmpeg.
fn demuxer(path: &Path) -> Result<ffmpeg::format::context::Input, StoredError> {
    // The prefix prevents FFmpeg from taking a name with a colon for a URL.
    let name = path.to_str().map(|name| format!("file:{name}"));
    let name = name.ok_or_else(|| unreadable(path, &"the name is not UTF-8"))?;
    // A playlist with the name of a video would open other files.
    let mut options = ffmpeg::Dictionary::new();
    options.set("format_whitelist", "mov,h264");
    ffmpeg::format::input_with_dictionary(name, options).map_err(|e| match e {
        ffmpeg::Error::Other { errno: EINVAL } => {
            unreadable(path, &"it is neither MP4 or MOV nor a byte stream of H.264")
        }
        e => unreadable(path, &e),
    })
}

/// The units that were read so far.
struct Reading<'a> {
    path: &'a Path,
    file: &'a File,
    layout: &'a Layout,
    units: Vec<Unit>,
    /// Parameter sets of the first key frame.
    sets: Option<ParameterSets>,
}

impl Reading<'_> {
    /// Adds all packets of a stream.
    fn read_stream(
        &mut self,
        input: &mut ffmpeg::format::context::Input,
        stream: usize,
        unit: ffmpeg::Rational,
    ) -> Result<(), StoredError> {
        let mut packet = ffmpeg::Packet::empty();
        loop {
            match packet.read(input) {
                Ok(()) if packet.stream() != stream => {}
                Ok(()) => self.add(&packet, unit)?,
                Err(ffmpeg::Error::Eof) => return Ok(()),
                Err(e) => {
                    return Err(StoredError::Unreadable {
                        path: self.path.to_owned(),
                        why: e.to_string(),
                    });
                }
            }
        }
    }

    fn add(&mut self, packet: &ffmpeg::Packet, unit: ffmpeg::Rational) -> Result<(), StoredError> {
        let data = packet.data().unwrap_or_default();
        let container = || StoredError::Container {
            path: self.path.to_owned(),
        };
        let position = u64::try_from(packet.position()).map_err(|_| container())?;
        let length = u32::try_from(data.len()).map_err(|_| container())?;
        let mut stored = vec![0; data.len()];
        let read = self.file.read_exact_at(&mut stored, position);
        if read.is_err() || stored != data {
            return Err(container());
        }
        let damaged = |why| StoredError::Damaged {
            path: self.path.to_owned(),
            picture: self.units.len(),
            why,
        };
        let byte_stream = |is_access| self.layout.byte_stream(data, is_access);
        let plain = byte_stream(false).map_err(|damage| damaged(damage.0))?;
        let mut access = AccessPoint::of_unit(&plain);
        if access.is_some() {
            let with_sets = byte_stream(true).map_err(|damage| damaged(damage.0))?;
            if let Some((sps, pps)) = h264::parameter_sets(&with_sets) {
                let sets = || ParameterSets::new(sps, pps);
                self.sets = self.sets.take().or_else(sets);
            } else {
                access = None;
            }
        }
        let times = packet.dts().or(packet.pts()).map(|dts| {
            let pts = packet.pts().unwrap_or(dts);
            (nanos(dts, unit), nanos(pts, unit))
        });
        self.units.push(Unit {
            position,
            length,
            times,
            access,
            is_reference: h264::is_reference(&plain),
            is_bidirectional: h264::is_bidirectional(&plain),
        });
        Ok(())
    }
}

/// Frame rate of the grid.
fn rate_of(stream: &ffmpeg::Stream<'_>) -> FrameRate {
    let mean = plausible(stream.avg_frame_rate());
    let base = plausible(stream.rate()).or_else(|| fine_grid(stream.rate(), mean?));
    let mean = mean.or(base).unwrap_or(FrameRate::fps(25));
    grid(mean, base).0
}

/// Decoder configuration of a stream, which is empty for a byte stream.
fn configuration<'a>(stream: &'a ffmpeg::Stream<'_>) -> &'a [u8] {
    // SAFETY: the parameters are those of an open input, which is borrowed; FFmpeg states the length
    // of the data.
    unsafe {
        let parameters = stream.parameters().as_ptr();
        let (data, length) = ((*parameters).extradata, (*parameters).extradata_size);
        if data.is_null() || length <= 0 {
            return &[];
        }
        core::slice::from_raw_parts(data, length as usize)
    }
}

/// Slots and display times of the units, and the duration. Units without times follow each other at
/// the frame rate.
fn schedule(units: &[Unit], rate: FrameRate) -> (Vec<Sample>, Duration) {
    let interval = rate.interval().as_nanos() as i64;
    let first = units
        .iter()
        .find_map(|unit| unit.times)
        .map_or(0, |(dts, _)| dts);
    let mut slot: i64 = -1;
    let mut times = Vec::with_capacity(units.len());
    for unit in units {
        let (decoded, shown) = unit.times.map_or_else(
            || (None, (slot + 1).saturating_mul(interval)),
            |(dts, pts)| (Some(dts.saturating_sub(first)), pts.saturating_sub(first)),
        );
        let nearest = decoded.map_or(slot + 1, |at| nearest(at, rate));
        // Damaged times must not make a gap of hours.
        slot = nearest.clamp(slot + 1, slot + LARGEST_GAP);
        times.push((slot, shown));
    }
    let begin = times.iter().map(|(_, shown)| *shown).min().unwrap_or(0);
    let lag = |slot: i64, shown: i64| shown.saturating_sub(rate.at(slot as u64).as_nanos() as i64);
    let least = times.iter().map(|(slot, shown)| lag(*slot, *shown)).min();
    let least = least.unwrap_or(0);
    let span = |nanos: i64| Duration::from_nanos(nanos.clamp(0, LONGEST) as u64);
    let samples = units
        .iter()
        .zip(&times)
        .map(|(unit, &(slot, shown))| Sample {
            position: unit.position,
            length: unit.length,
            slot: u32::try_from(slot).unwrap_or(u32::MAX),
            shown: span(shown.saturating_sub(begin)),
            delay: span(lag(slot, shown).saturating_sub(least)).min(LONGEST_DELAY),
            access: unit.access,
            is_leading: false,
            is_reference: unit.is_reference,
        });
    let mut samples: Vec<Sample> = samples.collect();
    mark_leading(&mut samples, units);
    let last = samples.iter().map(|sample| sample.shown).max();
    let duration = last.map_or(Duration::ZERO, |last| last + rate.interval());
    (samples, duration)
}

/// Frame number of the nearest slot.
fn nearest(at: i64, rate: FrameRate) -> i64 {
    let (num, den) = (i128::from(rate.num), i128::from(rate.den.max(1)));
    let second = 1_000_000_000 * den;
    (i128::from(at) * num + second / 2).div_euclid(second) as i64
}

/// Finds the pictures behind a recovery point that are displayed before it. Without times, these are
/// the B pictures directly behind it.
fn mark_leading(samples: &mut [Sample], units: &[Unit]) {
    let mut point = None;
    let mut is_first_run = false;
    for (sample, unit) in samples.iter_mut().zip(units) {
        match sample.access {
            Some(AccessPoint::Key) => point = None,
            Some(AccessPoint::Recovery { .. }) => {
                (point, is_first_run) = (Some(sample.shown), true);
            }
            None => {
                is_first_run &= unit.is_bidirectional;
                let is_before = |at| match unit.times {
                    Some(_) => sample.shown < at,
                    None => is_first_run,
                };
                sample.is_leading = point.is_some_and(is_before);
            }
        }
    }
}

fn keys(samples: &[Sample], rate: FrameRate) -> Vec<Key> {
    let accesses = samples.iter().enumerate();
    let starts = accesses.filter_map(|(i, sample)| Some((i, sample.access?)));
    let starts: Vec<(usize, AccessPoint)> = starts.collect();
    let ends = starts.iter().skip(1).map(|(start, _)| *start);
    let ends = ends.chain([samples.len()]);
    let group = |(&(start, access), end): (&(usize, AccessPoint), usize)| {
        let first = samples[start].slot;
        let after = samples
            .get(end)
            .map_or(samples[end - 1].slot + 1, |next| next.slot);
        let bytes = samples[start..end]
            .iter()
            .map(|sample| u64::from(sample.length));
        let rate: Rate = Bytes(bytes.sum()) / rate.at(u64::from(after - first));
        Key {
            sample: start,
            slot: first,
            recovered: recovered(&samples[start..], access),
            rate,
        }
    };
    starts.iter().zip(ends).map(group).collect()
}

/// Display time of the first correct picture, if decoding starts with the first of these.
fn recovered(samples: &[Sample], access: AccessPoint) -> Duration {
    let AccessPoint::Recovery { frames } = access else {
        return samples[0].shown;
    };
    let mut left = frames;
    let mut recovery = samples.iter().skip_while(|sample| {
        let is_left = left > 0;
        left -= u16::from(is_left && sample.is_reference);
        is_left
    });
    recovery.next().map_or(Duration::MAX, |sample| sample.shown)
}

/// Frames: 40 s at 25 frames per second.
const LARGEST_GAP: i64 = 1_000;
/// Ten years in ns.
const LONGEST: i64 = 315_360_000_000_000_000;
/// Reordering of pictures is limited to 16 frames (ITU-T H.264 annex A).
const LONGEST_DELAY: Duration = Duration::from_secs(10);
