//! MPEG-2 by libavcodec, with a rate control of our own that follows the target frame by frame.
//!
//! It is made after Test Model 5 (ISO/IEC JTC1/SC29/WG11/N0400, chapter 10): the complexity of a
//! kind of picture is its bits times its quantiser, and the quantiser of the next picture is that
//! complexity over the bits it may take. What differs: the bits of a picture follow from the rate
//! of that moment and not from a plan for a group of pictures ([`Budget`]), and they are a bound: a
//! picture that comes out larger is encoded again with the next coarser quantiser, until it fits.
//! libavcodec does that when its model of the decoder's buffer (VBV) would run empty, so it is told
//! for each picture what is in there. Its own rate control is switched off: it does not follow a
//! rate that changes.

use core::fmt;

use ffmpeg_the_third as ffmpeg;
use libc::c_int;
use tidegate_core::media::{Codec, EncodeError, FrameRate};
use tidegate_core::units::Rate;

use crate::budget::{self, Budget};
use crate::decoder::{Decoder, quiet};
use crate::picture::{Picture, Size};
use crate::quality::quality;
use crate::session::{Coded, PictureEncoder};

/// What an encoder needs to know before the first frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mpeg2Config {
    /// Of the pictures.
    pub size: Size,
    /// Of the source. MPEG-2 knows some rates only; the nearest is written into the stream, while
    /// the rate control goes by this one.
    pub rate: FrameRate,
    /// What a key frame may take, in shares of the rate; within `1.0..=20.0`.
    pub key_shares: f64,
}

impl Mpeg2Config {
    /// The usual: key frames of 3 shares.
    pub const fn new(size: Size, rate: FrameRate) -> Self {
        Self {
            size,
            rate,
            key_shares: 3.0,
        }
    }
}

/// An MPEG-2 encoder (main profile, no B pictures). One thread, no delay: a picture in, its bits
/// out. Key frames come first and when ordered, never by themselves.
pub struct Mpeg2Encoder {
    inner: ffmpeg::encoder::video::Encoder,
    frame: ffmpeg::frame::Video,
    /// Looks at what was encoded, since libavcodec gives no picture back.
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
    /// When `config` is out of range, or the installed FFmpeg has no such encoder or refuses it.
    pub fn open(config: Mpeg2Config) -> Result<Self, EncodeError> {
        quiet();
        budget::check(config.key_shares, config.rate)?;
        let pels = config.size.luma() as f64;
        Ok(Self {
            inner: open(&config)?,
            frame: ffmpeg::frame::Video::new(
                ffmpeg::format::Pixel::YUV420P,
                config.size.width(),
                config.size.height(),
            ),
            decoder: Decoder::open(Codec::Mpeg2).map_err(|e| EncodeError::Codec(e.to_string()))?,
            config,
            budget: Budget::default(),
            keys: Complexity::first(pels * KEY_COMPLEXITY),
            deltas: Complexity::first(pels * DELTA_COMPLEXITY),
            frames: 0,
        })
    }

    /// As it was opened.
    pub const fn config(&self) -> &Mpeg2Config {
        &self.config
    }

    /// Savings that a picture may spend, in shares.
    fn most_saved(&self) -> f64 {
        let half_second = self.config.rate.as_f64() / 2.0;
        (half_second * SAVED_OF_HALF_SECOND).clamp(LEAST_SAVED, MOST_SAVED)
    }

    /// Encodes what is in `self.frame` with this step of the quantiser, or the next one whose
    /// picture takes no more than `most` bits. The bytes, and the step that was used.
    fn run(&mut self, step: usize, most: f64) -> Result<(Vec<u8>, usize), EncodeError> {
        let failed = |e: ffmpeg::Error| {
            EncodeError::Codec(format!("libavcodec's mpeg2video encoder failed: {e}"))
        };
        // SAFETY: both pointers are valid for as long as what they belong to, which is borrowed
        // here; libavcodec reads these numbers when the frame is sent. It takes a picture that is
        // no larger than the buffer's content times this.
        unsafe {
            let context = self.inner.as_mut_ptr();
            (*context).rc_max_available_vbv_use = (most.min(MOST_BITS) / f64::from(FILL)) as f32;
            let frame = self.frame.as_mut_ptr();
            (*frame).quality = step as c_int * LAMBDA_PER_STEP;
        }
        self.inner.send_frame(&self.frame).map_err(failed)?;
        let mut packet = ffmpeg::Packet::empty();
        self.inner.receive_packet(&mut packet).map_err(failed)?;
        let mut data = packet.data().unwrap_or_default().to_vec();
        mend_header(&mut data);
        let used = used_step(&packet).unwrap_or(step);
        Ok((data, used))
    }
}

impl PictureEncoder for Mpeg2Encoder {
    fn encode(&mut self, picture: &Picture, rate: Rate, key: bool) -> Result<Coded, EncodeError> {
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
            self.budget.may(share, self.most_saved())
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
        Ok(Coded {
            data,
            key,
            quality: quality.ok_or_else(|| {
                EncodeError::Codec(format!(
                    "libavcodec does not decode picture {} that it encoded",
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

/// How hard pictures of one kind are to code.
#[derive(Clone, Copy, Debug)]
struct Complexity {
    /// Bits times quantiser.
    value: f64,
    learnt: bool,
    /// The quantiser of the picture that the next one refers to; none for key frames.
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

    /// The step whose picture comes nearest to `bits`.
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

    /// What the bits of a picture are inversely proportional to: its quantiser, and for one that
    /// refers to another also how much coarser it is than that one. A finer picture has to code
    /// what the one before it left out; without this the control swings between fine and coarse.
    /// Far coarser ones save no more for it: what they leave out of the other's noise, it had in vain.
    fn weight(&self, step: usize) -> f64 {
        let quantiser = QUANTISERS[step.min(QUANTISERS.len() - 1)];
        let coarser = |before: f64| (quantiser / before).min(MOST_COARSER);
        quantiser * self.reference.map_or(1.0, coarser)
    }

    fn learn(&mut self, bits: f64, step: usize) {
        let seen = bits * self.weight(step);
        let off = seen / self.value;
        // What is so different is another scene.
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
            "libavcodec's mpeg2video encoder does not open for {} at {}/{} frames a second: {e}",
            config.size, config.rate.num, config.rate.den
        ))
    };
    let codec = ffmpeg::encoder::find(ffmpeg::codec::Id::MPEG2VIDEO).ok_or_else(|| {
        EncodeError::Codec(
            "the installed FFmpeg has no MPEG-2 encoder; install one that has, as Debian's \
             libavcodec does"
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
    // SAFETY: the context is valid and not yet open; numbers are written.
    unsafe {
        let context = video.as_mut_ptr();
        (*context).rc_buffer_size = BUFFER;
        (*context).rc_initial_buffer_occupancy = FILL;
        (*context).bit_rate = 0;
        (*context).rc_max_rate = (f64::from(FILL) * config.rate.as_f64()).ceil() as i64;
        // Frame rates that MPEG-2 does not know become the nearest one.
        (*context).strict_std_compliance = ffmpeg::ffi::FF_COMPLIANCE_EXPERIMENTAL;
    }
    let mut options = ffmpeg::Dictionary::new();
    // Steps of the quantiser that are finer at high rates and reach further at low ones.
    options.set("non_linear_quant", "1");
    video.open_as_with(codec, options).map_err(refused)
}

/// Writes into a sequence header (ITU-T H.262, 6.2.2.1), if `data` begins with one, the highest
/// bit rate that its first 18 bits can tell, as libavcodec does where it knows of no bound. What it
/// has written there is [`FILL`] in every frame.
fn mend_header(data: &mut [u8]) {
    if let [0, 0, 1, 0xb3, _, _, _, _, high, middle, low, ..] = data {
        (*high, *middle) = (0xff, 0xff);
        *low |= 0b1100_0000;
    }
}

/// The step that the encoder says it used: after a picture was encoded again, a coarser one.
fn used_step(packet: &ffmpeg::Packet) -> Option<usize> {
    let stats = packet
        .side_data()
        .find(|data| data.kind() == ffmpeg::codec::packet::side_data::Type::QualityStats)?;
    let lambda = u32::from_le_bytes(*stats.data().first_chunk()?);
    let step = (f64::from(lambda) / f64::from(LAMBDA_PER_STEP) + 0.5) as usize;
    (1..QUANTISERS.len()).contains(&step).then_some(step)
}

/// Copies a picture into a frame of the same size.
fn fill(frame: &mut ffmpeg::frame::Video, picture: &Picture) {
    // SAFETY: the pointer is valid for as long as the frame. libavcodec may still hold its
    // buffers; this makes others then, and fails only without memory.
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

/// The quantiser of each step where `q_scale_type` is 1 (ITU-T H.262, table 7-6).
const QUANTISERS: [f64; 32] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 24.0,
    28.0, 32.0, 36.0, 40.0, 44.0, 48.0, 52.0, 56.0, 64.0, 72.0, 80.0, 88.0, 96.0, 104.0, 112.0,
];
/// libavcodec takes no coarser step with this table, except when it encodes again.
const COARSEST: usize = 28;
/// `FF_QP2LAMBDA`.
const LAMBDA_PER_STEP: c_int = 118;
/// Bits times quantiser per sample of luma before anything is known. TM5 begins with 160/115 and
/// 60/115 of the rate; these are of the generated scene at 640x360.
const KEY_COMPLEXITY: f64 = 6.0;
const DELTA_COMPLEXITY: f64 = 1.5;
/// How much of one picture's complexity is believed.
const LEARNT_OF_ONE: f64 = 0.5;
/// As a ratio of complexities.
const OTHER: f64 = 2.0;
/// Than the reference.
const MOST_COARSER: f64 = 3.0;
/// The first step that is tried aims at this much more than a picture may take. One that is coarser
/// than it need be is not tried again, so this costs an encoding or two and saves bits from being
/// left over.
const FINER: f64 = 1.2;
/// Of the frames of half a second. Any half second then keeps to its rate within a tenth.
const SAVED_OF_HALF_SECOND: f64 = 0.1;
/// Shares. In a scene that stands still a finer quantiser costs once and little from then on.
const LEAST_SAVED: f64 = 0.3;
/// Shares.
const MOST_SAVED: f64 = 1.2;
/// Size in bits of the decoder's buffer, as written into the stream: the largest of main profile at
/// main level.
const BUFFER: c_int = 112 << 14;
/// Bits in libavcodec's model of it before each picture. Whatever a picture takes is more, and after
/// it this much flows in again.
const FILL: c_int = 100;
/// What libavcodec's fields hold.
const MOST_BITS: f64 = 1e9;
