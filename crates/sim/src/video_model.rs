//! Frame sizes and quality of a live encoder, without pictures.
//!
//! A model of an H.264 encoder that receives a rate before every frame. Sizes vary around the
//! target of an outer rate loop, key frames take the share of several frames, and scene cuts and
//! motion increase the size or lower the quality of a frame. The output is a well-formed H.264 byte
//! stream of exactly the modelled size: packetisers and receivers handle it as real video, but a
//! decoder cannot decode it.

use core::fmt::Debug;

use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;
use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate, Quality};
use tidegate_core::random::unit;
use tidegate_core::units::Rate;

/// Model of an encoder's frames without their bytes, for uses that need only sizes.
pub trait FrameModel: Debug + Send {
    /// The next frame, as requested. Never fails: a modelled scene has no end.
    fn shape(&mut self, order: &FrameOrder) -> FrameShape;

    /// Frames per second of the source, as a fraction.
    fn frame_rate(&self) -> FrameRate;
}

/// Size and quality of a modelled frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrameShape {
    /// Size of the access unit, in bytes.
    pub size: usize,
    /// Whether the frame can be decoded alone.
    pub key: bool,
    /// Quality relative to the source picture.
    pub quality: Option<Quality>,
}

/// Parameters of a [`VideoModel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoModelConfig {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// Frames per second.
    pub frame_rate: FrameRate,
}

/// An encoder that generates frame sizes instead of pictures.
#[derive(Debug)]
pub struct VideoModel {
    config: VideoModelConfig,
    rng: Pcg64Mcg,
    /// The last requested frame. Frames between it and the next one are skipped.
    last: Option<u64>,
    /// Current rate of the encoder. It follows a request with a delay of at most one frame.
    working: Rate,
    /// Bits saved so far; negative if overdrawn.
    saved: f64,
    /// Complexity of the scene: bits for the same quality, 1 on average.
    complexity: f64,
    /// Smoothed bits per frame that contribute to the current picture: a delta frame inherits the
    /// quality of its reference.
    invested: f64,
}

impl VideoModel {
    /// An encoder with random draws from `rng`.
    pub fn new(config: VideoModelConfig, rng: Pcg64Mcg) -> Self {
        Self {
            config,
            rng,
            last: None,
            working: Rate::ZERO,
            saved: 0.0,
            complexity: 1.0,
            invested: 0.0,
        }
    }

    /// Advances the scene by `frames`. Returns whether there was a cut.
    fn advance_scene(&mut self, frames: u64) -> bool {
        let mut cut = false;
        // After a few seconds the scene is independent of its past.
        for _ in 0..frames.min(200) {
            // Reversion to the mean keeps log-complexity within about ±0.4.
            let step = SCENE_STEP * (2.0 * unit(&mut self.rng) - 1.0);
            let log = libm::log2(self.complexity) * SCENE_MEMORY + step;
            self.complexity = libm::exp2(log);
            if unit(&mut self.rng) * self.config.frame_rate.as_f64() < CUTS_PER_SECOND {
                self.complexity = libm::exp2(1.2 * unit(&mut self.rng) - 0.4);
                cut = true;
            }
        }
        cut
    }

    /// The rate of this frame: the requested one, or the midpoint with the previous one in half of
    /// the cases.
    fn follow(&mut self, order: Rate) -> f64 {
        let previous = self.working;
        self.working = order;
        let lags = unit(&mut self.rng) < 0.5;
        if lags && previous > Rate::ZERO {
            // A lower request applies immediately, because the buffer of the encoder has the size
            // of one frame.
            return previous.min(order).as_f64().midpoint(order.as_f64());
        }
        order.as_f64()
    }

    fn size(&mut self, share: f64, kind: Kind) -> f64 {
        self.saved = self.saved.clamp(-MAX_DEBT * share, MAX_SAVED * share);
        let asked = (share + self.saved / REPAID_IN).clamp(MIN * share, MAX * share);
        let scatter = 1.0 + SCATTER * (2.0 * unit(&mut self.rng) - 1.0);
        let bits = match kind {
            Kind::Key => share * (KEY_MIN + (KEY_MAX - KEY_MIN) * unit(&mut self.rng)),
            Kind::Cut => share * LARGEST,
            Kind::Delta => (asked * scatter).min(share * LARGEST),
        };
        let bytes = (bits / 8.0).max(SMALLEST_FRAME);
        self.saved += share - 8.0 * bytes;
        bytes
    }

    fn quality(&mut self, bits: f64, kind: Kind) -> Quality {
        // A key frame spends most of its bits on quality that delta frames inherit; after a cut no
        // quality is inherited.
        let (worth, inherit) = match kind {
            Kind::Cut | Kind::Key => (bits / KEY_MIN, 0.0),
            Kind::Delta => (bits, INHERIT),
        };
        self.invested = inherit * self.invested + (1.0 - inherit) * worth;
        let pixels = f64::from(self.config.width) * f64::from(self.config.height);
        let density = (self.invested / pixels / self.complexity).max(1e-6);
        let psnr_y =
            (PSNR_AT_TENTH + PSNR_PER_DOUBLING * libm::log2(density / 0.1)).clamp(15.0, 55.0);
        Quality {
            psnr_y,
            // In natural pictures chroma is smoother than luma.
            psnr_u: psnr_y + 3.0,
            psnr_v: psnr_y + 3.5,
            // 0.88 at 30 dB and 0.985 at 40 dB, approximately as in H.264.
            ssim: (1.0 - 0.12 * libm::exp2((30.0 - psnr_y) / 3.3)).max(0.0),
        }
    }
}

impl FrameModel for VideoModel {
    fn shape(&mut self, order: &FrameOrder) -> FrameShape {
        let passed = match self.last.replace(order.frame) {
            Some(last) => order.frame.saturating_sub(last).max(1),
            None => 1,
        };
        let cut = self.advance_scene(passed);
        let kind = match (order.key, cut) {
            (true, _) => Kind::Key,
            (false, true) => Kind::Cut,
            (false, false) => Kind::Delta,
        };
        let share = self.follow(order.rate) / self.config.frame_rate.as_f64();
        let size = unit_size(order.key, self.size(share, kind) as usize);
        FrameShape {
            size,
            key: order.key,
            quality: Some(self.quality(size as f64 * 8.0, kind)),
        }
    }

    fn frame_rate(&self) -> FrameRate {
        self.config.frame_rate
    }
}

impl FrameEncoder for VideoModel {
    /// Never fails: the scene has no end.
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        let shape = self.shape(order);
        Ok(dress(order, &shape, &mut self.rng))
    }

    fn frame_rate(&self) -> FrameRate {
        self.config.frame_rate
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No part of the last picture can be reused, but the size of the frame is limited.
    Cut,
    Delta,
    Key,
}

/// The frame with generated bytes.
pub(crate) fn dress(order: &FrameOrder, shape: &FrameShape, rng: &mut Pcg64Mcg) -> Encoded {
    Encoded {
        frame: order.frame,
        captured: order.captured,
        key: shape.key,
        leading: false,
        quality: shape.quality,
        data: access_unit(shape.key, shape.size, rng),
    }
}

/// `size`, or the minimum size of an access unit if that is larger.
pub(crate) fn unit_size(key: bool, size: usize) -> usize {
    let least = nal_units(key)
        .iter()
        .map(|header| START.len() + header.len())
        .sum();
    size.max(least)
}

/// An H.264 access unit of `size` bytes, or of the minimum that holds its NAL units.
fn access_unit(key: bool, size: usize, rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut data = Vec::with_capacity(size.max(64));
    for header in nal_units(key) {
        data.extend_from_slice(START);
        data.extend_from_slice(header);
    }
    // No byte is zero, so neither start codes nor emulation prevention bytes occur.
    let mut noise = || (rng.next_u64() | 0x0101_0101_0101_0101).to_le_bytes();
    let headers = data.len();
    data.resize(size.max(headers), 0);
    // Whole words are stored at once, because this loop dominates the cost of a run.
    let (words, rest) = data[headers..].as_chunks_mut();
    for word in words {
        *word = noise();
    }
    if !rest.is_empty() {
        rest.copy_from_slice(&noise()[..rest.len()]);
    }
    data
}

/// The NAL units at the start of a frame.
fn nal_units(key: bool) -> &'static [&'static [u8]] {
    if key { &[SPS, PPS, IDR] } else { &[SLICE] }
}

/// Start code before every NAL unit of a byte stream (ITU-T H.264 annex B).
const START: &[u8] = &[0, 0, 0, 1];
/// NAL units by their first bytes (ITU-T H.264, 7.3.1): sequence parameters of the baseline
/// profile at level 3.1, picture parameters, and slices whose first macroblock is number zero
/// (the leading one bit), IDR and not.
const SPS: &[u8] = &[0x67, 0x42, 0xc0, 0x1f, 0x8c, 0x8d, 0x40];
const PPS: &[u8] = &[0x68, 0xce, 0x3c, 0x80];
const IDR: &[u8] = &[0x65, 0x88];
const SLICE: &[u8] = &[0x41, 0x9a];

/// Relative deviation of a delta frame from its target; measured on x264 with a buffer of one
/// frame.
const SCATTER: f64 = 0.2;
/// Frame shares of a key frame.
const KEY_MIN: f64 = 3.0;
const KEY_MAX: f64 = 3.8;
/// Maximum frame share of frames other than key frames.
const LARGEST: f64 = 1.45;
/// The outer loop: time constant in frames, limits in shares.
const REPAID_IN: f64 = 4.0;
const MAX_DEBT: f64 = 3.0;
const MAX_SAVED: f64 = 2.0;
const MIN: f64 = 0.3;
const MAX: f64 = 1.2;
/// Bytes: headers and a few macroblocks.
const SMALLEST_FRAME: f64 = 24.0;
/// One cut in six seconds, as in talk and sports.
const CUTS_PER_SECOND: f64 = 1.0 / 6.0;
/// Log2 of complexity: maximum step per frame, and remaining share of a deviation after a frame.
const SCENE_STEP: f64 = 0.08;
const SCENE_MEMORY: f64 = 0.99;
/// Share of the quality that a delta frame inherits from the previous frame.
const INHERIT: f64 = 0.8;
/// dB at a tenth of a bit per pixel, and per doubling of that: a typical rate-distortion curve of
/// H.264 at 640x360.
const PSNR_AT_TENTH: f64 = 36.0;
const PSNR_PER_DOUBLING: f64 = 3.2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_core::random::Seed;
    use tidegate_core::units::Time;

    use super::*;

    fn model(seed: u64) -> VideoModel {
        let config = VideoModelConfig {
            width: 640,
            height: 360,
            frame_rate: FrameRate::fps(30),
        };
        VideoModel::new(config, Seed(seed).stream("video"))
    }

    fn order(frame: u64, kbps: u64, key: bool) -> FrameOrder {
        FrameOrder {
            frame,
            captured: Time::ZERO + FrameRate::fps(30).at(frame),
            rate: Rate::kbps(kbps),
            key,
        }
    }

    fn encode(model: &mut VideoModel, frame: u64, kbps: u64, key: bool) -> Encoded {
        model.encode(&order(frame, kbps, key)).unwrap()
    }

    fn mean_psnr(kbps: u64) -> f64 {
        let mut model = model(1);
        let psnr = |n| encode(&mut model, n, kbps, n == 0).quality.unwrap().psnr_y;
        (0..300).map(psnr).sum::<f64>() / 300.0
    }

    #[test]
    fn same_seed_yields_same_frames() {
        let frames = |seed| {
            let mut model = model(seed);
            let frame = |n| encode(&mut model, n, 1_000, n % 90 == 0);
            (0..200).map(frame).collect::<Vec<_>>()
        };
        assert_eq!(frames(3), frames(3));
        assert_ne!(frames(3), frames(4));
    }

    #[test]
    fn quality_grows_with_the_rate_and_stays_plausible() {
        let psnr = [150, 500, 1_000, 2_000, 4_000].map(mean_psnr);
        assert!(psnr.is_sorted(), "{psnr:?}");
        assert!((26.0..31.0).contains(&psnr[0]), "{psnr:?}");
        assert!((36.0..40.0).contains(&psnr[2]), "{psnr:?}");
        assert!((42.0..46.0).contains(&psnr[4]), "{psnr:?}");
    }

    #[test]
    fn rate_step_is_followed_within_a_frame() {
        let mut model = model(5);
        for n in 0..60 {
            encode(&mut model, n, 2_000, n == 0);
        }
        let lower = 500_000.0 / 30.0;
        let first = encode(&mut model, 60, 500, false).data.len() as f64 * 8.0;
        assert!(first <= 1.5 * lower, "{first}");
        for n in 61..120 {
            encode(&mut model, n, 500, false);
        }
        let higher = 2_000_000.0 / 30.0;
        encode(&mut model, 120, 2_000, false);
        let second = encode(&mut model, 121, 2_000, false).data.len() as f64 * 8.0;
        assert!((0.7 * higher..1.5 * higher).contains(&second), "{second}");
    }

    /// NAL unit types of an access unit, which is a byte stream without other start codes.
    fn nal_types(data: &[u8]) -> Vec<u8> {
        let starts = data.windows(4).enumerate();
        let starts = starts.filter(|(_, window)| window[..3] == [0, 0, 1]);
        starts.map(|(_, window)| window[3] & 0x1f).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn sizes_follow_the_requested_rate(seed: u64, rates in prop::collection::vec((100_u64..6_000, 1_usize..40, prop::bool::weighted(0.1)), 1..12)) {
            let mut model = model(seed);
            let mut frame = 0;
            for (kbps, frames, key) in rates {
                let share = kbps as f64 * 1_000.0 / 30.0;
                for n in 0..frames {
                    let key = key && n == 0;
                    let encoded = encode(&mut model, frame, kbps, key);
                    let bits = encoded.data.len() as f64 * 8.0;
                    let most = if key { 4.0 } else { 1.5 };
                    prop_assert!(bits <= most * share, "{bits} of {share}");
                    prop_assert!(!key || bits >= 2.9 * share.midpoint(0.0) , "{bits} of {share}");
                    let types: &[u8] = if key { &[7, 8, 5] } else { &[1] };
                    prop_assert_eq!(nal_types(&encoded.data), types);
                    frame += 1;
                }
            }
        }

        /// Half-second windows, including the one that begins with the key frame.
        #[test]
        fn rate_over_half_a_second_is_within_a_tenth(seed: u64, kbps in 150_u64..6_000) {
            let mut model = model(seed);
            for window in 0..12 {
                let size = |n: u64| encode(&mut model, window * 15 + n, kbps, window == 0 && n == 0).data.len();
                let bits = (0..15).map(size).sum::<usize>() as f64 * 8.0;
                let wanted = kbps as f64 * 500.0;
                prop_assert!((bits / wanted - 1.0).abs() <= 0.1, "{bits} of {wanted} in window {window}");
            }
        }

        #[test]
        fn any_request_yields_a_frame(seed: u64, frames in prop::collection::vec((0_u64..u64::MAX, 0_u64..100_000_000, any::<bool>()), 1..20)) {
            let mut model = model(seed);
            for (frame, bps, key) in frames {
                let order = FrameOrder { frame, captured: Time::ZERO, rate: Rate::bps(bps), key };
                let encoded = model.encode(&order).unwrap();
                let quality = encoded.quality.unwrap();
                prop_assert!(encoded.data.len() >= 6 && quality.psnr_y.is_finite());
                prop_assert!((0.0..=1.0).contains(&quality.ssim), "{quality:?}");
            }
        }
    }
}
