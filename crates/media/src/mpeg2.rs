//! MPEG-2 encoder (libavcodec) with a separate rate control that follows the target per frame.
//!
//! The rate control is derived from Test Model 5 (ISO/IEC JTC1/SC29/WG11/N0400, chapter 10): the
//! complexity of a picture type is its bits times its quantiser, and the quantiser of the next
//! picture is that complexity divided by its bit budget. There are two differences. The budget of a
//! picture follows from the present rate and not from a plan for a group of pictures ([`Budget`]).
//! The budget is an upper bound: a larger picture is encoded again with the next coarser quantiser
//! until it fits. libavcodec does this when its model of the decoder buffer (VBV) would underflow,
//! so the fill of that buffer is set for each picture. The rate control of libavcodec is disabled,
//! because it does not follow a variable rate.

use core::fmt;

use ffmpeg_the_third as ffmpeg;
use ffmpeg_the_third::ffi::{AVColorPrimaries, AVColorSpace, AVColorTransferCharacteristic};
use libc::c_int;
use tidegate_core::media::{Codec, EncodeError, FrameRate};
use tidegate_core::units::Rate;

use crate::budget::{self, Budget};
use crate::colour::Colour;
use crate::decoder::{Decoder, DecoderConfig};
use crate::native::quiet;
use crate::picture::{Picture, Size};
use crate::quality::quality;
use crate::session::{EncodedPicture, PictureEncoder};

/// Configuration of an [`Mpeg2Encoder`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mpeg2Config {
    /// Picture size.
    pub size: Size,
    /// Frame rate of the source, used by the rate control. MPEG-2 supports only certain frame
    /// rates, and the nearest one is written into the stream.
    pub rate: FrameRate,
    /// Colour description of the pictures, written into the sequence display extension.
    pub colour: Colour,
    /// Maximum size of a key frame, in shares of the rate; within `1.0..=20.0`.
    pub key_shares: f64,
}

impl Mpeg2Config {
    /// Default configuration: key frames of 3 shares.
    pub const fn new(size: Size, rate: FrameRate) -> Self {
        Self {
            size,
            rate,
            colour: Colour::UNSPECIFIED,
            key_shares: 3.0,
        }
    }
}

/// MPEG-2 encoder (main profile, no B pictures) with one thread and without delay. Only the first
/// frame and requested ones are key frames.
pub struct Mpeg2Encoder {
    inner: ffmpeg::encoder::video::Encoder,
    frame: ffmpeg::frame::Video,
    /// Decodes the result, because libavcodec does not return the reconstruction.
    decoder: Decoder,
    config: Mpeg2Config,
    budget: Budget,
    keys: Complexity,
    deltas: Complexity,
    frames: i64,
}

impl Mpeg2Encoder {
    /// Opens an encoder.
    ///
    /// # Errors
    /// If `config` is out of range, or the installed FFmpeg lacks the encoder or rejects the
    /// configuration.
    pub fn open(config: Mpeg2Config) -> Result<Self, EncodeError> {
        quiet();
        budget::check(config.key_shares, config.rate)?;
        let pels = config.size.luma() as f64;
        let decoder = DecoderConfig {
            max_picture: config.size,
            ..Codec::Mpeg2.into()
        };
        Ok(Self {
            inner: open(&config)?,
            frame: ffmpeg::frame::Video::new(
                ffmpeg::format::Pixel::YUV420P,
                config.size.width(),
                config.size.height(),
            ),
            decoder: Decoder::open(decoder).map_err(|e| EncodeError::Codec(e.to_string()))?,
            config,
            budget: Budget::default(),
            keys: Complexity::first(pels * KEY_COMPLEXITY),
            deltas: Complexity::first(pels * DELTA_COMPLEXITY),
            frames: 0,
        })
    }

    /// Configuration of the encoder.
    pub const fn config(&self) -> &Mpeg2Config {
        &self.config
    }

    /// Maximum savings that a picture may spend, in shares.
    fn most_saved(&self) -> f64 {
        let half_second = self.config.rate.as_f64() / 2.0;
        (half_second * SAVED_OF_HALF_SECOND).clamp(MIN_SAVED, MAX_SAVED)
    }

    /// Encodes `self.frame` with this quantiser step, or with the next step at which the picture
    /// has at most `most` bits. Returns the bytes and the step.
    fn run(&mut self, step: usize, most: f64) -> Result<(Vec<u8>, usize), EncodeError> {
        let failed = |e: ffmpeg::Error| {
            EncodeError::Codec(format!("libavcodec's mpeg2video encoder failed: {e}"))
        };
        // SAFETY: both pointers are valid as long as their owners, which are borrowed here.
        // libavcodec reads these fields when the frame is sent. It accepts a picture of at most the
        // buffer fill times `rc_max_available_vbv_use`.
        unsafe {
            let context = self.inner.as_mut_ptr();
            (*context).rc_max_available_vbv_use = (most.min(MAX_BITS) / f64::from(FILL)) as f32;
            let frame = self.frame.as_mut_ptr();
            (*frame).quality = step as c_int * LAMBDA_PER_STEP;
        }
        self.inner.send_frame(&self.frame).map_err(failed)?;
        let mut packet = ffmpeg::Packet::empty();
        self.inner.receive_packet(&mut packet).map_err(failed)?;
        let mut data = packet.data().unwrap_or_default().to_vec();
        fix_header(&mut data);
        let used = used_step(&packet).unwrap_or(step);
        Ok((data, used))
    }
}

impl PictureEncoder for Mpeg2Encoder {
    fn encode(
        &mut self,
        picture: &Picture,
        rate: Rate,
        key: bool,
    ) -> Result<EncodedPicture, EncodeError> {
        if picture.size() != self.config.size {
            return Err(EncodeError::Codec(format!(
                "a picture of {} does not fit the encoder, which was opened for {}",
                picture.size(),
                self.config.size
            )));
        }
        let key = key || self.frames == 0;
        let share = rate.as_f64() / self.config.rate.as_f64();
        let most = if key {
            share * self.config.key_shares
        } else {
            self.budget.max_bits(share, self.most_saved())
        };
        let complexity = if key { &self.keys } else { &self.deltas };
        let step = complexity.step_for(most * FINER);
        fill(&mut self.frame, picture);
        self.frame.set_pts(Some(self.frames));
        self.frame.set_kind(if key {
            ffmpeg::picture::Type::I
        } else {
            ffmpeg::picture::Type::P
        });
        let (data, used) = self.run(step, most)?;
        self.frames += 1;
        let bits = data.len() as f64 * 8.0;
        let complexity = if key {
            &mut self.keys
        } else {
            &mut self.deltas
        };
        complexity.learn(bits, used);
        self.deltas.reference = Some(QUANTISERS[used]);
        self.budget.spend(share, bits);
        let seen = self.decoder.decode(&data).picture();
        let quality = seen.and_then(|seen| quality(picture, seen).ok());
        Ok(EncodedPicture {
            data,
            key,
            quality: quality.ok_or_else(|| {
                EncodeError::Codec(format!(
                    "libavcodec cannot decode picture {}, which it encoded",
                    self.frames - 1
                ))
            })?,
        })
    }
}

impl fmt::Debug for Mpeg2Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mpeg2Encoder")
            .field("config", &self.config)
            .field("budget", &self.budget)
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

/// Coding complexity of one picture type.
#[derive(Clone, Copy, Debug)]
struct Complexity {
    /// Bits times quantiser.
    value: f64,
    learnt: bool,
    /// Quantiser of the reference picture of the next one; `None` for key frames.
    reference: Option<f64>,
}

impl Complexity {
    const fn first(value: f64) -> Self {
        Self {
            value,
            learnt: false,
            reference: None,
        }
    }

    /// Quantiser step with the picture size nearest to `bits`.
    fn step_for(&self, bits: f64) -> usize {
        let wanted = self.value / bits.max(1.0);
        let off = |step: &usize| {
            let weight = self.weight(*step);
            (weight / wanted).max(wanted / weight)
        };
        (1..=COARSEST)
            .min_by(|a, b| off(a).total_cmp(&off(b)))
            .unwrap_or(COARSEST)
    }

    /// The size of a picture is inversely proportional to this weight: its quantiser, for a
    /// predicted picture multiplied by the ratio to the quantiser of its reference. A finer picture
    /// has to code the details missing in its reference. Without this factor the control oscillates
    /// between fine and coarse. The ratio is limited, because a much coarser picture saves no more:
    /// it omits only noise of its reference.
    fn weight(&self, step: usize) -> f64 {
        let quantiser = QUANTISERS[step.min(QUANTISERS.len() - 1)];
        let coarser = |before: f64| (quantiser / before).min(MAX_COARSER);
        quantiser * self.reference.map_or(1.0, coarser)
    }

    fn learn(&mut self, bits: f64, step: usize) {
        let seen = bits * self.weight(step);
        let off = seen / self.value;
        // A large difference indicates a scene cut.
        self.value = if self.learnt && off < OTHER && off > 1.0 / OTHER {
            self.value * libm::pow(off, LEARNT_OF_ONE)
        } else {
            seen
        };
        self.learnt = true;
    }
}

/// Opens an encoder.
fn open(config: &Mpeg2Config) -> Result<ffmpeg::encoder::video::Encoder, EncodeError> {
    let refused = |e: ffmpeg::Error| {
        EncodeError::Codec(format!(
            "cannot open libavcodec's mpeg2video encoder for {} at {}/{} frames per second: {e}",
            config.size, config.rate.num, config.rate.den
        ))
    };
    let codec = ffmpeg::encoder::find(ffmpeg::codec::Id::MPEG2VIDEO).ok_or_else(|| {
        EncodeError::Codec(
            "the installed FFmpeg has no MPEG-2 encoder; install a build with it, such as Debian's \
             libavcodec"
                .to_owned(),
        )
    })?;
    let context = ffmpeg::codec::Context::new_with_codec(codec);
    let mut video = context.encoder().video().map_err(refused)?;
    let (num, den) = (config.rate.num as i32, config.rate.den as i32);
    video.set_width(config.size.width());
    video.set_height(config.size.height());
    video.set_format(ffmpeg::format::Pixel::YUV420P);
    video.set_time_base(ffmpeg::Rational(den, num));
    video.set_frame_rate(Some(ffmpeg::Rational(num, den)));
    video.set_gop(u32::MAX >> 1);
    video.set_max_b_frames(0);
    video.set_qmin(1);
    video.set_qmax(COARSEST as i32);
    video.set_flags(ffmpeg::codec::Flags::LOW_DELAY | ffmpeg::codec::Flags::QSCALE);
    video.set_threading(ffmpeg::threading::Config {
        kind: ffmpeg::threading::Type::None,
        count: 1,
        ..ffmpeg::threading::Config::default()
    });
    // SAFETY: the context is valid and not yet open; integers are written.
    unsafe {
        let context = video.as_mut_ptr();
        (*context).color_primaries = AVColorPrimaries(config.colour.primaries.into());
        (*context).color_trc = AVColorTransferCharacteristic(config.colour.transfer.into());
        (*context).colorspace = AVColorSpace(config.colour.matrix.into());
        (*context).rc_buffer_size = BUFFER;
        (*context).rc_initial_buffer_occupancy = FILL;
        (*context).bit_rate = 0;
        (*context).rc_max_rate = (f64::from(FILL) * config.rate.as_f64()).ceil() as i64;
        // Unsupported frame rates are replaced by the nearest one.
        (*context).strict_std_compliance = ffmpeg::ffi::FF_COMPLIANCE_EXPERIMENTAL;
    }
    let mut options = ffmpeg::Dictionary::new();
    // Quantiser steps that are finer at high rates and have a larger maximum.
    options.set("non_linear_quant", "1");
    video.open_as_with(codec, options).map_err(refused)
}

/// If `data` begins with a sequence header (ITU-T H.262 section 6.2.2.1), sets its bit rate to the
/// maximum of the 18-bit field, as libavcodec does without a limit. libavcodec has written the rate
/// of [`FILL`] per frame instead.
fn fix_header(data: &mut [u8]) {
    if let [0, 0, 1, 0xb3, _, _, _, _, high, middle, low, ..] = data {
        (*high, *middle) = (0xff, 0xff);
        *low |= 0b1100_0000;
    }
}

/// Quantiser step reported by the encoder; coarser than requested if a picture was encoded again.
fn used_step(packet: &ffmpeg::Packet) -> Option<usize> {
    let stats = packet
        .side_data()
        .find(|data| data.kind() == ffmpeg::codec::packet::side_data::Type::QualityStats)?;
    let lambda = u32::from_le_bytes(*stats.data().first_chunk()?);
    let step = (f64::from(lambda) / f64::from(LAMBDA_PER_STEP) + 0.5) as usize;
    (1..QUANTISERS.len()).contains(&step).then_some(step)
}

/// Copies a picture into a frame of the same size.
pub(crate) fn fill(frame: &mut ffmpeg::frame::Video, picture: &Picture) {
    // SAFETY: the pointer is valid as long as the frame. If libavcodec still holds the buffers,
    // this call allocates new ones. It fails only if memory is exhausted.
    unsafe {
        ffmpeg::ffi::av_frame_make_writable(frame.as_mut_ptr());
    }
    let planes = picture.planes();
    let width = picture.size().width() as usize;
    let rows = [
        (planes.y, width),
        (planes.u, width / 2),
        (planes.v, width / 2),
    ];
    for (k, (plane, width)) in rows.into_iter().enumerate() {
        let stride = frame.stride(k);
        let to = frame.data_mut(k).chunks_mut(stride);
        for (to, from) in to.zip(plane.chunks_exact(width)) {
            to[..width].copy_from_slice(from);
        }
    }
}

/// Quantiser of each step for `q_scale_type` 1 (ITU-T H.262, table 7-6).
const QUANTISERS: [f64; 32] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 24.0,
    28.0, 32.0, 36.0, 40.0, 44.0, 48.0, 52.0, 56.0, 64.0, 72.0, 80.0, 88.0, 96.0, 104.0, 112.0,
];
/// Coarsest step that libavcodec accepts with this table. It may use coarser ones when it encodes
/// again.
const COARSEST: usize = 28;
/// `FF_QP2LAMBDA`.
pub(crate) const LAMBDA_PER_STEP: c_int = 118;
/// Initial complexity of key frames, in bits times quantiser per luma sample, from the generated
/// scene at 640x360. TM5 starts with 160/115 of the rate, and 60/115 for predicted pictures.
const KEY_COMPLEXITY: f64 = 6.0;
/// Initial complexity of predicted pictures.
const DELTA_COMPLEXITY: f64 = 1.5;
/// Weight of a new sample of the complexity, on a logarithmic scale.
const LEARNT_OF_ONE: f64 = 0.5;
/// Ratio of complexities that indicates a scene cut.
const OTHER: f64 = 2.0;
/// Maximum quantiser ratio to the reference.
const MAX_COARSER: f64 = 3.0;
/// The first attempt aims at this multiple of the budget. Only pictures above the budget are
/// encoded again, so this costs one or two encodings but leaves fewer bits unused.
const FINER: f64 = 1.2;
/// Maximum savings as a fraction of half a second. Any half second is then within a tenth of its
/// rate.
const SAVED_OF_HALF_SECOND: f64 = 0.1;
/// Lower bound of the maximum savings, in shares. In a still scene a finer quantiser costs bits
/// only once.
const MIN_SAVED: f64 = 0.3;
/// Upper bound of the maximum savings, in shares.
const MAX_SAVED: f64 = 1.2;
/// Size of the decoder buffer in bits, as written into the stream: the maximum of main profile at
/// main level.
const BUFFER: c_int = 112 << 14;
/// Fill of libavcodec's model of the buffer before each picture, in bits. Every picture is larger,
/// and the same number of bits arrives after it.
const FILL: c_int = 100;
/// Limit of libavcodec's fields.
const MAX_BITS: f64 = 1e9;
