//! Video source of a stream and its encoder.

use std::io;

use anyhow::{Context as _, Result, ensure};
use tidegate_core::media::{Codec, EncodeError, FrameRate};
use tidegate_core::units::Rate;
use tidegate_core::wire::h264;
use tidegate_core::wire::sdp::ParameterSets;
use tidegate_media::{
    EncoderSession, FileOptions, FileSource, InputOptions, Mpeg2Config, Mpeg2Encoder,
    OperatingPoint, Picture, PictureEncoder, Preset, Scene, SceneSource, Size, VideoSource,
    X264Config, X264Encoder,
};

use crate::arrivals::{ArrivalSource, OpenSource};
use crate::live::{self, SCENE_SEED};
use crate::source_speed::{PacedSource, SourceWatch};

/// Settings of an encoder.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Encoding {
    /// Video codec: `h264` or `mpeg2`
    #[arg(long, default_value = "h264", value_parser = codec)]
    pub(crate) codec: Codec,
    /// Preset of x264
    #[arg(long, default_value = "superfast", value_parser = preset)]
    pub(crate) preset: Preset,
    /// Adapt the encoder to the processor: a faster preset, then fewer frames per second, then smaller
    /// pictures, and back
    #[arg(
        long,
        value_name = "yes|no",
        default_value = "yes",
        hide_possible_values = true
    )]
    pub(crate) adapt: Switch,
}

/// Value of an option that is on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    Yes,
    No,
}

/// Source of the pictures.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InputArgs {
    /// Video: `scene` (generated), a file, a device, a URL, or `-` for standard input
    #[arg(long, value_name = "SOURCE", default_value = "scene")]
    pub(crate) input: String,
    /// Format or device of FFmpeg, as `v4l2` or `x11grab` [default: found by FFmpeg]
    #[arg(long, value_name = "NAME")]
    pub(crate) input_format: Option<String>,
    /// Option of FFmpeg's demultiplexer or protocol, such as `video_size=1280x720`; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) input_option: Vec<(String, String)>,
    /// Picture size [default: 640x360 for the scene, otherwise the source's]
    #[arg(long, value_name = "WxH", value_parser = live::picture_size)]
    pub(crate) size: Option<Size>,
    /// Frames per second [default: 30 for the scene, otherwise the source's]
    #[arg(long, value_name = "RATE", value_parser = live::frame_rate)]
    pub(crate) fps: Option<FrameRate>,
    /// Open a live URL again when it ends or fails
    #[arg(
        long,
        value_name = "yes|no",
        default_value = "yes",
        hide_possible_values = true
    )]
    pub(crate) reconnect: Switch,
    /// Repeat a file from its beginning
    #[arg(long = "loop")]
    pub(crate) looped: bool,
}

impl InputArgs {
    fn input_options(&self) -> InputOptions {
        InputOptions {
            format: self.input_format.clone(),
            options: self.input_option.clone(),
        }
    }

    /// Checks the combination of options.
    fn check(&self) -> Result<()> {
        let has_options = self.input_format.is_some() || !self.input_option.is_empty();
        ensure!(
            self.input != "scene" || !has_options,
            "--input-format and --input-option require an input of FFmpeg: give it as --input"
        );
        for (key, option, is_given) in [
            ("video_size", "--size", self.size.is_some()),
            ("framerate", "--fps", self.fps.is_some()),
        ] {
            let is_twice = is_given && self.input_option.iter().any(|(other, _)| other == key);
            ensure!(
                !is_twice,
                "{option} and --input-option {key}=... contradict each other: leave one of them out \
                 ({key} selects what the source delivers, {option} converts it)"
            );
        }
        Ok(())
    }
}

impl Encoding {
    /// An encoder that is not adapted.
    pub(crate) const fn constant(codec: Codec, preset: Preset) -> Self {
        Self {
            codec,
            preset,
            adapt: Switch::No,
        }
    }

    /// Opens an encoder for the source.
    ///
    /// # Errors
    /// The codec's library rejects the size or the rate.
    pub(crate) fn session(
        self,
        source: Box<dyn VideoSource>,
    ) -> Result<EncoderSession, EncodeError> {
        let presets: Vec<(&str, f64)> = match self.codec {
            Codec::H264 => self.preset.faster().collect(),
            Codec::Mpeg2 => vec![("", 1.0)],
        };
        let mut points = OperatingPoint::ladder(&*source, &presets);
        if self.adapt == Switch::No {
            points.truncate(1);
        }
        let (codec, rate, colour) = (self.codec, source.frame_rate(), source.colour());
        let open = move |size, name: &str| -> Result<Box<dyn PictureEncoder>, EncodeError> {
            Ok(match codec {
                Codec::H264 => Box::new(X264Encoder::open(X264Config {
                    colour,
                    preset: preset(name).map_err(EncodeError::Codec)?,
                    ..X264Config::new(size, rate)
                })?),
                Codec::Mpeg2 => Box::new(Mpeg2Encoder::open(Mpeg2Config {
                    colour,
                    ..Mpeg2Config::new(size, rate)
                })?),
            })
        };
        EncoderSession::adaptive(source, points, Box::new(open))
    }
}

/// An option as `KEY=VALUE`.
fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("give KEY=VALUE, such as video_size=1280x720".to_owned()),
    }
}

/// An open source with its encoder.
pub(crate) struct OpenedSource {
    /// Description for the user.
    pub(crate) what: String,
    pub(crate) frame_rate: FrameRate,
    pub(crate) parameter_sets: Option<ParameterSets>,
    pub(crate) session: EncoderSession,
    /// Times of the readings of the source.
    pub(crate) watch: SourceWatch,
}

impl OpenedSource {
    /// # Errors
    /// The source cannot be read, or libx264 rejects the size; the message names it.
    pub(crate) fn open(args: &InputArgs, encoding: Encoding) -> Result<Self> {
        let (name, size, rate) = (args.input.as_str(), args.size, args.fps);
        let mut changes = Vec::new();
        let watch = SourceWatch::new();
        args.check()?;
        let source: Box<dyn VideoSource> = if name == "scene" {
            let size = size.map_or_else(|| Size::new(640, 360), Ok)?;
            let rate = rate.unwrap_or(FrameRate::fps(30));
            let scene = SceneSource::new(Scene::new(SCENE_SEED, size), rate);
            Box::new(PacedSource::new(Box::new(scene), watch.clone()))
        } else {
            let looped = args.looped;
            let options = FileOptions { size, rate, looped };
            let file = FileSource::open_with(name, options, args.input_options())?;
            changes = file.changes().to_vec();
            let is_url = args.reconnect == Switch::Yes && name.contains("://");
            let again = is_url.then(|| reopen(name.to_owned(), file.size(), args.input_options()));
            timed(file, rate, again, watch.clone())?
        };
        let frame_rate = source.frame_rate();
        Ok(Self {
            what: what(name, &*source, &changes),
            frame_rate,
            parameter_sets: match encoding.codec {
                Codec::H264 => parameter_sets(&*source, encoding.preset)?,
                Codec::Mpeg2 => None,
            },
            session: encoding.session(source)?,
            watch,
        })
    }
}

/// A file whose pictures are those of the time of a request. Those of a live source without times are
/// requested at `rate`, and it is opened `again` when it ends.
///
/// # Errors
/// The thread of a live source cannot be created.
pub(crate) fn timed(
    file: FileSource,
    rate: Option<FrameRate>,
    again: Option<OpenSource>,
    watch: SourceWatch,
) -> io::Result<Box<dyn VideoSource>> {
    let (is_live, file) = (file.has_arrival_times(), Box::new(file));
    Ok(if is_live {
        let rate = rate.unwrap_or(ARRIVALS);
        Box::new(ArrivalSource::start(file, again, rate, watch)?)
    } else {
        Box::new(PacedSource::new(file, watch))
    })
}

/// Opens a live source again, with pictures of the same size.
fn reopen(name: String, size: Size, input: InputOptions) -> OpenSource {
    let options = FileOptions {
        size: Some(size),
        ..FileOptions::default()
    };
    Box::new(move || {
        let file = FileSource::open_with(&name, options, input.clone())?;
        Ok(Box::new(file))
    })
}

/// Description of a video for the user, with the changes of its pictures.
pub(crate) fn what(input: &str, source: &dyn VideoSource, changes: &[String]) -> String {
    let fps = format!("{:.3}", source.frame_rate().as_f64());
    let fps = fps.trim_end_matches('0').trim_end_matches('.');
    let (width, height) = (source.size().width(), source.size().height());
    let most = if source.picture().is_some() {
        "up to "
    } else {
        ""
    };
    let changes = match changes {
        [] => String::new(),
        _ => format!(" ({})", changes.join(", ")),
    };
    format!("{input}, {width}x{height} at {most}{fps} frames/s{changes}")
}

/// Parses the name of a codec.
pub(crate) fn codec(text: &str) -> Result<Codec, String> {
    let found = Codec::ALL.into_iter().find(|codec| codec.name() == text);
    found.ok_or_else(|| {
        let names = Codec::ALL.map(Codec::name).join(" or ");
        format!("\"{text}\" is not a supported codec: choose {names}")
    })
}

/// Parameter sets of an encoder with this configuration. A second encoder produces them, because
/// the stream's first picture is not available yet.
fn parameter_sets(source: &dyn VideoSource, preset: Preset) -> Result<Option<ParameterSets>> {
    let size = source.size();
    let mut config = X264Config::new(size, source.frame_rate());
    config.colour = source.colour();
    config.preset = preset;
    let mut encoder = X264Encoder::open(config)?;
    let coded = encoder
        .encode(&Picture::black(size), Rate::kbps(500), true)
        .context("cannot run the encoder for its parameter sets")?;
    let sets = h264::parameter_sets(&coded.data);
    Ok(sets.and_then(|(sps, pps)| ParameterSets::new(sps, pps)))
}

/// Parses the name of a preset of x264.
pub(crate) fn preset(text: &str) -> Result<Preset, String> {
    let all = Preset::ALL;
    all.into_iter()
        .find(|preset| preset.name() == text)
        .ok_or_else(|| {
            let names = all.map(Preset::name).join(", ");
            format!("\"{text}\" is not a preset of x264: choose one of {names}")
        })
}

/// Frames per second of sources without times: a picture waits for at most 17 ms.
const ARRIVALS: FrameRate = FrameRate::fps(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_sets_equal_those_of_the_stream() {
        use tidegate_core::media::{FrameEncoder as _, FrameOrder};
        use tidegate_core::units::Time;
        let size = Size::new(320, 180).unwrap();
        let rate = Some(FrameRate::fps(25));
        let encoding = Encoding::constant(Codec::H264, Preset::Veryfast);
        let args = InputArgs {
            input: "scene".to_owned(),
            input_format: None,
            input_option: Vec::new(),
            size: Some(size),
            fps: rate,
            looped: false,
            reconnect: Switch::No,
        };
        let mut opened = OpenedSource::open(&args, encoding).unwrap();
        let order = FrameOrder {
            frame: 0,
            captured: Time::ZERO,
            rate: Rate::kbps(1_700),
            key: true,
        };
        let first = opened.session.encode(&order).unwrap();
        let (sps, pps) = h264::parameter_sets(&first.data).unwrap();
        assert_eq!(opened.parameter_sets, ParameterSets::new(sps, pps));
        assert_eq!(opened.what, "scene, 320x180 at 25 frames/s");
        // Options of FFmpeg have no effect on the scene, and one size is enough.
        let mut args = args;
        args.input_option = vec![key_value("video_size=64x48").unwrap()];
        let refused = |args: &InputArgs| args.check().unwrap_err().to_string();
        assert!(refused(&args).contains("require an input of FFmpeg"));
        args.input = "/dev/video0".to_owned();
        assert!(refused(&args).contains("--size and --input-option video_size"));
        args.size = None;
        assert!(args.check().is_ok());
        assert!(key_value("=64").is_err() && key_value("video_size").is_err());
    }

    #[test]
    fn codecs_are_parsed() {
        assert_eq!(codec("mpeg2"), Ok(Codec::Mpeg2));
        assert!(codec("av1").unwrap_err().contains("h264 or mpeg2"));
    }

    #[test]
    fn presets_have_the_names_of_x264() {
        assert_eq!(preset("veryfast"), Ok(Preset::Veryfast));
        assert!(preset("placebo").unwrap_err().contains("ultrafast, "));
    }
}
