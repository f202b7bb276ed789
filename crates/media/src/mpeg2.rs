//! MPEG-2 by libavcodec, with a rate control of our own that follows the target frame by frame.
//!
//! It is made after Test Model 5 (ISO/IEC JTC1/SC29/WG11/N0400, chapter 10): the complexity of a
//! kind of picture is its bits times its quantiser, and the quantiser of the next picture is that
//! complexity over the bits it may take. What differs: the bits of a picture follow from the rate
//! of that moment and not from a plan for a group of pictures ([`Budget`]), and a picture that
//! comes out far too large is encoded again with a coarser quantiser, as libavcodec does when its
//! model of the decoder's buffer (VBV) runs empty. That model is led along here ([`Buffer`]), since
//! libavcodec's own rate control is switched off: it does not follow a rate that changes.

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
    /// What a key frame aims at, in shares of the rate; within `1.0..=20.0`.
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
    buffer: Buffer,
    keys: Complexity,
    deltas: Complexity,
    /// Of the picture before.
    last_share: f64,
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
            inner: open(&config, 1.0)?,
            frame: ffmpeg::frame::Video::new(
                ffmpeg::format::Pixel::YUV420P,
                config.size.width(),
                config.size.height(),
            ),
            decoder: Decoder::open(Codec::Mpeg2).map_err(|e| EncodeError::Codec(e.to_string()))?,
            config,
            budget: Budget::default(),
            buffer: Buffer::of(1.0),
            keys: Complexity::first(pels * KEY_COMPLEXITY),
            deltas: Complexity::first(pels * DELTA_COMPLEXITY),
            last_share: 0.0,
            frames: 0,
        })
    }

    /// As it was opened.
    pub const fn config(&self) -> &Mpeg2Config {
        &self.config
    }

    /// Encodes what is in `self.frame`. The bytes, and the step of the quantiser that was used.
    fn run(&mut self, step: usize) -> Result<(Vec<u8>, usize), EncodeError> {
        let failed = |e: ffmpeg::Error| {
            EncodeError::Codec(format!("libavcodec's mpeg2video encoder failed: {e}"))
        };
        let lambda = step as c_int * LAMBDA_PER_STEP;
        let fps = self.config.rate.as_f64();
        // SAFETY: both pointers are valid for as long as what they belong to, which is borrowed
        // here; libavcodec reads these numbers when the frame is sent.
        unsafe {
            let context = self.inner.as_mut_ptr();
            (*context).rc_buffer_size = self.buffer.size as c_int;
            (*context).rc_max_rate = ((self.buffer.refill * fps) as i64).max(1);
            let frame = self.frame.as_mut_ptr();
            (*frame).quality = lambda;
        }
        self.inner.send_frame(&self.frame).map_err(failed)?;
        let mut packet = ffmpeg::Packet::empty();
        self.inner.receive_packet(&mut packet).map_err(failed)?;
        let data = packet.data().unwrap_or_default().to_vec();
        let used = used_step(&packet).unwrap_or(step);
        self.buffer.spend(data.len() as f64 * 8.0);
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
        let falls = !key && share < self.last_share * FALL;
        let wanted = if key {
            share * self.config.key_shares
        } else if falls {
            // Nothing holds this picture back but what is foreseen of it: the buffer was filled at
            // the old rate.
            self.budget.forget_savings();
            self.budget.ask(share) * CAUTION
        } else {
            self.budget.ask(share)
        };
        self.last_share = share;
        if falls {
            self.deltas.fall();
        }
        let complexity = if key { &self.keys } else { &self.deltas };
        let step = complexity.step_for(wanted);
        fill(&mut self.frame, picture);
        self.frame.set_pts(Some(self.frames));
        self.frame.set_kind(if key {
            ffmpeg::picture::Type::I
        } else {
            ffmpeg::picture::Type::P
        });
        if key {
            // A key frame refers to nothing, so another encoder can make it, whose buffer holds
            // what a key frame may take. That of this one holds what an ordinary picture may.
            let most = (wanted * KEY_SLACK).clamp(1.0, MOST_BITS);
            self.inner = open(&self.config, most)?;
            self.buffer = Buffer::of(most.ceil());
        }
        self.buffer.plan(
            share * MOST + self.budget.savings().min(share * MOST_EXTRA),
            wanted,
        );
        let (data, used) = self.run(step)?;
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
            .field("buffer", &self.buffer)
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
    fn weight(&self, step: usize) -> f64 {
        let quantiser = QUANTISERS[step.min(QUANTISERS.len() - 1)];
        quantiser * self.reference.map_or(1.0, |before| quantiser / before)
    }

    /// The next picture will be far coarser. Where the one before is as fine as can be, that saves
    /// little more per bit than the quantiser says: its own bits were noise, and are not left out twice.
    fn fall(&mut self) {
        self.reference = self.reference.filter(|before| *before >= FINE);
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

/// libavcodec's model of the decoder's buffer. A picture must not take more than what is in it.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    /// What a picture may take.
    fill: f64,
    /// What the buffer can hold.
    size: f64,
    /// What flows in after a picture, at the most.
    refill: f64,
}

impl Buffer {
    /// A full one that holds `bits`.
    const fn of(bits: f64) -> Self {
        Self {
            fill: bits,
            size: bits,
            refill: 0.0,
        }
    }

    /// Sets it up so that after a picture of about `bits` it holds about `wanted` bits. It is
    /// never smaller than what it holds, or libavcodec would fill the stream with zeros.
    fn plan(&mut self, wanted: f64, bits: f64) {
        self.size = wanted.min(MOST_BITS).max(self.fill + 16.0).ceil();
        self.refill = (wanted - (self.fill - bits)).max(0.0);
    }

    /// As `ff_vbv_update` does.
    fn spend(&mut self, bits: f64) {
        self.fill = (self.fill - bits).max(0.0);
        let room = (self.size - self.fill - 1.0).max(0.0);
        self.fill += self.refill.min(room);
    }
}

/// Opens an encoder whose buffer holds `bits`.
fn open(config: &Mpeg2Config, bits: f64) -> Result<ffmpeg::encoder::video::Encoder, EncodeError> {
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
        (*context).rc_buffer_size = bits.ceil() as c_int;
        (*context).rc_initial_buffer_occupancy = bits.ceil() as c_int;
        (*context).rc_max_available_vbv_use = 1.0;
        (*context).bit_rate = 0;
        (*context).rc_max_rate = i64::from(i32::MAX);
        // Frame rates that MPEG-2 does not know become the nearest one.
        (*context).strict_std_compliance = ffmpeg::ffi::FF_COMPLIANCE_EXPERIMENTAL;
    }
    let mut options = ffmpeg::Dictionary::new();
    // Steps of the quantiser that are finer at high rates and reach further at low ones.
    options.set("non_linear_quant", "1");
    video.open_as_with(codec, options).map_err(refused)
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
/// A share that falls below this part of the one before makes the next picture a careful one.
const FALL: f64 = 0.7;
/// A quantiser below this is the finest.
const FINE: f64 = 2.0;
/// The part of its share that such a picture aims at.
const CAUTION: f64 = 0.8;
/// As a ratio of complexities.
const OTHER: f64 = 2.0;
/// The largest picture that is no key frame, in shares, before it is encoded again.
const MOST: f64 = 1.5;
/// That may be more by what was saved before, in shares. In a scene that stands still a finer
/// quantiser costs once and little from then on.
const MOST_EXTRA: f64 = 0.7;
/// Of what a key frame aims at: above this it is encoded again.
const KEY_SLACK: f64 = 1.15;
/// What libavcodec's fields hold.
const MOST_BITS: f64 = 1e9;
