//! Opening of inputs by FFmpeg: names, formats and options.

use std::cmp::Reverse;
use std::ffi::{CStr, CString};
use std::path::Path;
use std::{fs, ptr};

use ffmpeg_the_third as ffmpeg;
use ffmpeg_the_third::ffi::AVInputFormat;
use libc::{ECONNREFUSED, EINVAL};

use crate::source::SourceError;

/// How FFmpeg opens an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputOptions {
    /// Name of the format or device, such as `x11grab`; `None` if FFmpeg finds it.
    pub format: Option<String>,
    /// Options of the format and the protocol.
    pub options: Vec<(String, String)>,
}

/// Opens an input with the given options and those of this module.
pub(crate) fn open_input(
    name: &str,
    asked: &InputOptions,
    is_live: bool,
) -> Result<ffmpeg::format::context::Input, SourceError> {
    let mut options = ffmpeg::Dictionary::new();
    if is_live {
        // FFmpeg reads up to 5 s by default to determine a frame rate.
        options.set("analyzeduration", "1000000");
    }
    if name.starts_with("rtsp") {
        // A camera without power closes no connection.
        options.set("timeout", "5000000");
    }
    // A format that was asked for may have references.
    let is_limited = is_local(name) && asked.format.is_none();
    if is_limited {
        options.set("format_whitelist", formats_without_references());
    }
    for (key, value) in &asked.options {
        options.set(key, value);
    }
    let format = asked.format.as_deref().map(format_of).transpose()?;
    let opened = open_raw(&url(name), format, &mut options);
    let unknown = asked.options.iter().find(|(key, _)| has(&options, key));
    match (opened, unknown) {
        (Ok(_), Some((key, _))) => Err(SourceError::UnknownOption {
            name: name.to_owned(),
            key: key.clone(),
        }),
        (Ok(input), None) => Ok(input),
        (Err(ffmpeg::Error::Other { errno: EINVAL }), _)
            if is_limited && asked.options.is_empty() =>
        {
            Err(SourceError::Referring {
                name: name.to_owned(),
            })
        }
        (
            Err(ffmpeg::Error::Other {
                errno: ECONNREFUSED,
            }),
            _,
        ) => Err(SourceError::Refused {
            name: name.to_owned(),
        }),
        (Err(e), _) => Err(SourceError::Unreadable {
            name: name.to_owned(),
            why: e.to_string(),
        }),
    }
}

/// FFmpeg's demultiplexer or device of this name.
fn format_of(format: &str) -> Result<*const AVInputFormat, SourceError> {
    let unknown = || SourceError::UnknownFormat {
        format: format.to_owned(),
    };
    let name = CString::new(format).map_err(|_| unknown())?;
    // SAFETY: the name is a string that ends with zero. Formats are constants.
    let found = unsafe { ffmpeg::ffi::av_find_input_format(name.as_ptr()) };
    if found.is_null() {
        return Err(unknown());
    }
    Ok(found)
}

/// Opens an input. `options` keeps those that neither the format nor the protocol knows.
fn open_raw(
    url: &str,
    format: Option<*const AVInputFormat>,
    options: &mut ffmpeg::Dictionary,
) -> Result<ffmpeg::format::context::Input, ffmpeg::Error> {
    let url = CString::new(url).map_err(|_| ffmpeg::Error::InvalidData)?;
    let mut context = ptr::null_mut();
    // SAFETY: the URL is a string that ends with zero, the format is a constant or null, and the
    // dictionary is borrowed. If the input cannot be opened, there is no context; otherwise it is
    // owned by the returned value, or closed.
    unsafe {
        let format = format.unwrap_or(ptr::null());
        let opened = ffmpeg::ffi::avformat_open_input(
            &raw mut context,
            url.as_ptr(),
            format,
            options.as_mut_ptr(),
        );
        if opened != 0 {
            return Err(ffmpeg::Error::from(opened));
        }
        let found = ffmpeg::ffi::avformat_find_stream_info(context, ptr::null_mut());
        if found < 0 {
            ffmpeg::ffi::avformat_close_input(&raw mut context);
            return Err(ffmpeg::Error::from(found));
        }
        Ok(ffmpeg::format::context::Input::wrap(context))
    }
}

fn has(options: &ffmpeg::Dictionary, key: &str) -> bool {
    let Ok(key) = CString::new(key) else {
        return false;
    };
    // SAFETY: the dictionary is valid, and the key is a string that ends with zero.
    let entry = unsafe { ffmpeg::ffi::av_dict_get(options.as_ptr(), key.as_ptr(), ptr::null(), 0) };
    !entry.is_null()
}

/// The video stream with the largest pictures, and the first one among equals. Covers of music are
/// pictures too, but no video.
pub(crate) fn largest_video(input: &ffmpeg::format::context::Input) -> Option<ffmpeg::Stream<'_>> {
    let is_video = |stream: &ffmpeg::Stream<'_>| {
        let is_cover = ffmpeg::format::stream::Disposition::ATTACHED_PIC;
        stream.parameters().medium() == ffmpeg::media::Type::Video
            && !stream.disposition().contains(is_cover)
    };
    let area = |stream: &ffmpeg::Stream<'_>| {
        let parameters = stream.parameters();
        Reverse(u64::from(parameters.width()) * u64::from(parameters.height()))
    };
    let largest = input.streams().filter(is_video).min_by_key(area);
    largest.or_else(|| input.streams().best(ffmpeg::media::Type::Video))
}

/// Whether pictures arrive while they are captured: a pipe, a device or a connection.
pub(crate) fn is_live(name: &str) -> bool {
    let is_file = |path: &Path| fs::metadata(path).is_ok_and(|found| found.is_file());
    match name {
        "-" => !is_file(Path::new("/dev/stdin")),
        file if Path::new(file).exists() => !is_file(Path::new(file)),
        url => url.contains("://") && !url.starts_with("file:"),
    }
}

/// Whether the name is that of a file, a device or standard input, and not an address.
fn is_local(name: &str) -> bool {
    name == "-" || name.starts_with("file:") || Path::new(name).exists()
}

/// Names of FFmpeg's formats, without those whose files name other files or addresses, which FFmpeg
/// would open: the file may be from a stranger, and the stream goes to others.
fn formats_without_references() -> String {
    let mut names = Vec::new();
    let mut state = ptr::null_mut();
    loop {
        // SAFETY: the state is only used by this function. The formats are constants, and their names
        // strings that end with zero.
        let name = unsafe {
            let format = ffmpeg::ffi::av_demuxer_iterate(&raw mut state);
            if format.is_null() {
                return names.join(",");
            }
            CStr::from_ptr((*format).name)
        };
        let name = name.to_string_lossy();
        if !name.split(',').any(|name| REFERRING.contains(&name)) {
            names.push(name);
        }
    }
}

/// Whether the protocol carries live streams.
pub(crate) fn is_stream(name: &str) -> bool {
    let protocol = name.split_once("://").map_or("", |(protocol, _)| protocol);
    STREAMS.contains(&protocol)
}

/// URL for FFmpeg. A file name with a colon needs the prefix `file:`, or it would be a protocol.
fn url(name: &str) -> String {
    match name {
        "-" => "pipe:0".to_owned(),
        file if file.contains(':') && Path::new(file).exists() => format!("file:{file}"),
        other => other.to_owned(),
    }
}

/// Formats with references: playlists, scripts, session descriptions, and subtitles with their index.
const REFERRING: [&str; 12] = [
    "applehttp",
    "avisynth",
    "concat",
    "dash",
    "hls",
    "imf",
    "rtsp",
    "sap",
    "sdp",
    "vapoursynth",
    "vobsub",
    "webm_dash_manifest",
];
/// Protocols of live streams.
const STREAMS: [&str; 8] = ["rtsp", "rtsps", "rtmp", "rtmps", "srt", "rtp", "udp", "tcp"];
