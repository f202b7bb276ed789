//! H.264 encoder (libx264) with a rate that is set before every frame.
//!
//! The VBV buffer of x264 holds one frame, so a frame is hardly larger than its share, and a new
//! rate applies from the next frame on. x264 leaves about a fifth of such a buffer unused, so its
//! target is [`HEADROOM`] times the wanted size. Later frames compensate the remaining difference
//! to the share ([`Budget`]).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use tidegate_core::media::{EncodeError, FrameRate, Quality};
use tidegate_core::units::Rate;
use x264_sys as sys;

use crate::budget::{self, Budget};
use crate::colour::Colour;
use crate::picture::{Picture, Size};
use crate::session::{EncodedPicture, PictureEncoder};

/// Speed preset of x264. Slower presets have better quality at the same rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// About 1 ms per frame of 640×360.
    Ultrafast,
    /// Between `Ultrafast` and `Veryfast`.
    Superfast,
    /// Common choice for live video.
    #[default]
    Veryfast,
    /// Slower than `Veryfast`.
    Faster,
    /// Slower than `Faster`.
    Fast,
    /// Slowest supported preset.
    Medium,
}

impl Preset {
    /// All presets, fastest first.
    pub const ALL: [Self; 6] = [
        Self::Ultrafast,
        Self::Superfast,
        Self::Veryfast,
        Self::Faster,
        Self::Fast,
        Self::Medium,
    ];

    /// Name in x264.
    pub fn name(self) -> &'static str {
        self.c_name().to_str().unwrap_or_default()
    }

    /// This preset and the faster ones, with the processor time of a picture relative to the fastest,
    /// from 1080p pictures with one thread.
    pub fn faster(self) -> impl Iterator<Item = (&'static str, f64)> {
        let costs = Self::ALL.into_iter().zip([1.0, 1.7, 1.9, 2.8, 3.3, 3.6]);
        costs
            .rev()
            .skip_while(move |(preset, _)| *preset != self)
            .map(|(preset, cost)| (preset.name(), cost))
    }

    const fn c_name(self) -> &'static CStr {
        match self {
            Self::Ultrafast => c"ultrafast",
            Self::Superfast => c"superfast",
            Self::Veryfast => c"veryfast",
            Self::Faster => c"faster",
            Self::Fast => c"fast",
            Self::Medium => c"medium",
        }
    }
}

/// Configuration of an [`X264Encoder`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct X264Config {
    /// Picture size.
    pub size: Size,
    /// Frame rate of the source.
    pub rate: FrameRate,
    /// Colour description of the pictures, written into the sequence parameter set.
    pub colour: Colour,
    /// Speed preset.
    pub preset: Preset,
    /// Maximum size of a key frame, in shares of the rate; within `1.0..=20.0`. A larger key frame
    /// has better quality and a longer transmission time: about 117 ms for 3.5 shares at 30 frames
    /// per second.
    pub key_shares: f64,
}

impl X264Config {
    /// Default configuration: [`Preset::Veryfast`], key frames of 3.5 shares.
    pub const fn new(size: Size, rate: FrameRate) -> Self {
        Self {
            size,
            rate,
            colour: Colour::UNSPECIFIED,
            preset: Preset::Veryfast,
            key_shares: 3.5,
        }
    }
}

/// H.264 encoder with one thread and without delay. Only the first frame and requested ones are key
/// frames.
pub struct X264Encoder {
    handle: NonNull<sys::x264_t>,
    param: Box<sys::x264_param_t>,
    config: X264Config,
    budget: Budget,
    frames: i64,
    /// Whether the VBV buffer has room for a key frame: at the start, and after a key frame.
    roomy: bool,
}

// SAFETY: the encoder has one thread and is not bound to the thread that created it. libx264
// requires only that calls on one handle do not overlap, which `&mut self` guarantees.
unsafe impl Send for X264Encoder {}

impl X264Encoder {
    /// Opens an encoder.
    ///
    /// # Errors
    /// If `config` is out of range or libx264 rejects it.
    pub fn open(config: X264Config) -> Result<Self, EncodeError> {
        budget::check(config.key_shares, config.rate)?;
        let mut param = defaults(config.preset)?;
        settings(&mut param, &config);
        // SAFETY: `param` was filled by x264_param_default_preset and is only read.
        let handle = unsafe { sys::x264_encoder_open(&raw mut *param) };
        let handle = NonNull::new(handle).ok_or_else(|| {
            EncodeError::Codec(format!(
                "cannot open libx264 for {} at {}/{} frames per second",
                config.size, config.rate.num, config.rate.den
            ))
        })?;
        Ok(Self {
            handle,
            param,
            config,
            budget: Budget::default(),
            frames: 0,
            roomy: true,
        })
    }

    /// Configuration of the encoder.
    pub const fn config(&self) -> &X264Config {
        &self.config
    }

    /// Sets rate and buffer so that the next frame has at most `bits`.
    fn set_frame_bits(&mut self, bits: f64) -> Result<(), EncodeError> {
        let kilobits = bits / 1000.0;
        // x264 uses integer kb/s and kbit. Rounding the buffer down would cost up to a fifth at
        // 150 kb/s. The rate limits its fill to the wanted size.
        let rate = (kilobits * self.config.rate.as_f64()).clamp(1.0, MAX_KBPS);
        let rc = &mut self.param.rc;
        rc.i_bitrate = rate as i32;
        rc.i_vbv_max_bitrate = rate as i32;
        rc.i_vbv_buffer_size = kilobits.clamp(1.0, MAX_KBPS).ceil() as i32;
        // SAFETY: the handle is open; libx264 reads the parameters and keeps no pointer to them.
        let done =
            unsafe { sys::x264_encoder_reconfig(self.handle.as_ptr(), &raw mut *self.param) };
        if done < 0 {
            return Err(EncodeError::Codec(format!(
                "libx264 rejects {rate:.0} kb/s with a buffer of {kilobits:.1} kbit"
            )));
        }
        Ok(())
    }

    fn run(&mut self, picture: &Picture, key: bool) -> Result<EncodedPicture, EncodeError> {
        let mut input = self.input(picture, key);
        let mut nals = ptr::null_mut();
        let mut count = 0;
        let mut output = MaybeUninit::<sys::x264_picture_t>::zeroed();
        // SAFETY: the handle is open; `input` points to planes of the size of the encoder, which
        // libx264 only reads; `output` is written if there is a frame, and zero is valid for this
        // struct of integers and pointers.
        let (size, output) = unsafe {
            let size = sys::x264_encoder_encode(
                self.handle.as_ptr(),
                &raw mut nals,
                &raw mut count,
                &raw mut input,
                output.as_mut_ptr(),
            );
            (size, output.assume_init())
        };
        if size <= 0 || nals.is_null() {
            return Err(EncodeError::Codec(format!(
                "libx264 returned no frame for picture {} (code {size})",
                self.frames
            )));
        }
        self.frames += 1;
        // SAFETY: libx264 returned `count` NAL units, valid until the next call on this handle.
        let nals = unsafe { core::slice::from_raw_parts(nals, count.max(0) as usize) };
        Ok(EncodedPicture {
            data: access_unit(nals, size as usize),
            key: output.b_keyframe != 0,
            quality: Quality {
                psnr_y: output.prop.f_psnr[0].min(EQUAL),
                psnr_u: output.prop.f_psnr[1].min(EQUAL),
                psnr_v: output.prop.f_psnr[2].min(EQUAL),
                ssim: output.prop.f_ssim,
            },
        })
    }

    /// Describes `picture` for libx264; `picture` must outlive the result.
    fn input(&self, picture: &Picture, key: bool) -> sys::x264_picture_t {
        let mut input = MaybeUninit::<sys::x264_picture_t>::uninit();
        // SAFETY: x264_picture_init fills the whole struct.
        let mut input = unsafe {
            sys::x264_picture_init(input.as_mut_ptr());
            input.assume_init()
        };
        let planes = picture.planes();
        let width = self.config.size.width() as i32;
        input.i_pts = self.frames;
        input.i_type = if key {
            sys::X264_TYPE_IDR
        } else {
            sys::X264_TYPE_AUTO
        } as i32;
        input.img.i_csp = sys::X264_CSP_I420 as i32;
        input.img.i_plane = 3;
        let rows = [
            (planes.y, width),
            (planes.u, width / 2),
            (planes.v, width / 2),
        ];
        for (k, (plane, stride)) in rows.into_iter().enumerate() {
            input.img.plane[k] = plane.as_ptr().cast_mut();
            input.img.i_stride[k] = stride;
        }
        input
    }
}

impl PictureEncoder for X264Encoder {
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
        let share = rate.as_f64() / self.config.rate.as_f64();
        let asked = self.budget.target_bits(share);
        let coded = if key || self.frames == 0 {
            // A key frame stays within its bound without headroom.
            self.set_frame_bits(share * self.config.key_shares)?;
            if !self.roomy {
                // The buffer is refilled at the end of a frame, at the rate of that frame, so it
                // only has room for an ordinary frame. The picture is therefore encoded twice, and
                // the first result is discarded. A key frame has no references, so a decoder does
                // not need the first result.
                self.run(picture, true)?;
            }
            self.roomy = true;
            self.run(picture, true)?
        } else {
            self.set_frame_bits(asked * HEADROOM)?;
            self.roomy = false;
            self.run(picture, false)?
        };
        self.budget.spend(share, coded.data.len() as f64 * 8.0);
        Ok(coded)
    }
}

impl Drop for X264Encoder {
    fn drop(&mut self) {
        // SAFETY: the handle was opened by x264_encoder_open and is closed only here.
        unsafe { sys::x264_encoder_close(self.handle.as_ptr()) }
    }
}

impl fmt::Debug for X264Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("X264Encoder")
            .field("config", &self.config)
            .field("budget", &self.budget)
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

fn defaults(preset: Preset) -> Result<Box<sys::x264_param_t>, EncodeError> {
    let mut param = Box::<sys::x264_param_t>::new_uninit();
    // SAFETY: both names are C strings; the call fills the struct or fails.
    let filled = unsafe {
        let failed = sys::x264_param_default_preset(
            param.as_mut_ptr(),
            preset.c_name().as_ptr(),
            c"zerolatency".as_ptr(),
        );
        (failed == 0).then(|| param.assume_init())
    };
    filled.ok_or_else(|| {
        EncodeError::Codec(format!(
            "this libx264 has no preset {} with the tuning zerolatency",
            preset.name()
        ))
    })
}

fn settings(param: &mut sys::x264_param_t, config: &X264Config) {
    param.i_width = config.size.width() as i32;
    param.i_height = config.size.height() as i32;
    param.i_csp = sys::X264_CSP_I420 as i32;
    param.i_fps_num = config.rate.num;
    param.i_fps_den = config.rate.den;
    // Skipped frames do not change the share, which follows from the nominal frame rate.
    param.b_vfr_input = 0;
    param.vui.i_colorprim = config.colour.primaries.into();
    param.vui.i_transfer = config.colour.transfer.into();
    param.vui.i_colmatrix = config.colour.matrix.into();
    param.i_level_idc = level(config);
    param.i_threads = 1;
    param.b_sliced_threads = 0;
    param.i_keyint_max = sys::X264_KEYINT_MAX_INFINITE as i32;
    param.i_scenecut_threshold = 0;
    param.b_repeat_headers = 1;
    param.b_annexb = 1;
    // At a lower level x264 does not compute the quality. Its messages are discarded.
    param.i_log_level = sys::X264_LOG_INFO as i32;
    param.pf_log = Some(mute);
    param.analyse.b_psnr = 1;
    param.analyse.b_ssim = 1;
    // Placeholders that enable rate control with a buffer; every frame sets its own values.
    param.rc.i_rc_method = sys::X264_RC_ABR as i32;
    param.rc.i_bitrate = 1000;
    param.rc.i_vbv_max_bitrate = 1000;
    param.rc.i_vbv_buffer_size = 1000;
}

/// Discards a message of x264. The type of the argument list depends on the platform.
unsafe extern "C" fn mute<List>(_: *mut c_void, _: c_int, _: *const c_char, _: List) {}

/// Smallest of a few levels (ITU-T H.264, table A-1, times 10) for the picture size and rate. It is
/// set here because x264 would derive it from a bit rate that is set only later.
fn level(config: &X264Config) -> i32 {
    let blocks = config.size.width().div_ceil(16) * config.size.height().div_ceil(16);
    let speed = f64::from(blocks) * config.rate.as_f64();
    let levels = [
        (8_192, 245_760.0, 40),
        (36_864, 983_040.0, 51),
        (36_864, 2_073_600.0, 52),
    ];
    levels
        .iter()
        .find(|(most_blocks, most_speed, _)| blocks <= *most_blocks && speed <= *most_speed)
        .map_or(62, |(_, _, level)| *level)
}

/// Concatenates the NAL units without SEI: the version message of x264 before its first frame has
/// about 600 bytes, a third of the share of a frame at 500 kb/s.
fn access_unit(nals: &[sys::x264_nal_t], size: usize) -> Vec<u8> {
    let mut data = Vec::with_capacity(size);
    for nal in nals
        .iter()
        .filter(|nal| nal.i_type != sys::nal_unit_type_e_NAL_SEI as i32)
    {
        // SAFETY: a NAL unit of libx264 has `i_payload` bytes at `p_payload`.
        data.extend_from_slice(unsafe {
            core::slice::from_raw_parts(nal.p_payload, nal.i_payload.max(0) as usize)
        });
    }
    data
}

/// Inverse of the fraction of a one-frame buffer that x264 uses, about four fifths.
const HEADROOM: f64 = 1.25;
/// Above this rate the bit counters of x264 overflow 32 bits.
const MAX_KBPS: f64 = 1_000_000.0;
/// PSNR of equal pictures in dB; x264 reports 100.
const EQUAL: f64 = 99.0;
