//! Picture quality: PSNR of each plane and SSIM of the luma.

use tidegate_core::media::Quality;

use crate::picture::{Picture, Size};

/// Compares a picture with its reference.
///
/// PSNR is the ratio of 255² to the mean square error of the plane. SSIM (Wang et al., "Image
/// quality assessment: from error visibility to structural similarity", 2004) is the mean over
/// windows of 8×8 luma samples, 4 apart, without a Gaussian, as in FFmpeg. A rest of less than four
/// samples at the right or bottom edge is ignored. x264 starts its windows two samples further in,
/// which makes a difference of a few 1e-4.
///
/// # Errors
/// If the pictures differ in size.
pub fn quality(reference: &Picture, seen: &Picture) -> Result<Quality, SizesDiffer> {
    if reference.size() != seen.size() {
        return Err(SizesDiffer {
            reference: reference.size(),
            seen: seen.size(),
        });
    }
    let (a, b) = (reference.planes(), seen.planes());
    Ok(Quality {
        psnr_y: psnr(a.y, b.y),
        psnr_u: psnr(a.u, b.u),
        psnr_v: psnr(a.v, b.v),
        ssim: ssim(a.y, b.y, reference.size().width() as usize),
    })
}

/// Variance of the samples of Y, U and V: the signal power of a signal-to-noise ratio without a
/// peak, as printed by MPEG's Test Model 5. Such a ratio is the PSNR minus
/// 10 log10(255² / variance), in dB. The minimum is 1/12, the variance of rounding, for planes of
/// one colour.
pub fn variance(picture: &Picture) -> [f64; 3] {
    let planes = picture.planes();
    [planes.y, planes.u, planes.v].map(|plane| {
        let count = plane.len() as f64;
        let sum: u64 = plane.iter().map(|p| u64::from(*p)).sum();
        let squares: u64 = plane.iter().map(|p| u64::from(*p) * u64::from(*p)).sum();
        let mean = sum as f64 / count;
        (squares as f64 / count - mean * mean).max(MIN_VARIANCE)
    })
}

/// Variance of rounding to integer samples.
const MIN_VARIANCE: f64 = 1.0 / 12.0;

/// The two pictures have different sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot compare a picture of {seen} with one of {reference}: scale the source to one size")]
pub struct SizesDiffer {
    /// Size of the reference.
    pub reference: Size,
    /// Size of the other picture.
    pub seen: Size,
}

fn psnr(a: &[u8], b: &[u8]) -> f64 {
    let square = |(p, q): (&u8, &u8)| {
        let d = u32::from(p.abs_diff(*q));
        d * d
    };
    // 4096 · 255² < 2^28: the sum of a chunk fits 32 bits, which the compiler vectorises.
    let chunks = a.chunks(4096).zip(b.chunks(4096));
    let sum: u64 = chunks
        .map(|(p, q)| u64::from(p.iter().zip(q).map(square).sum::<u32>()))
        .sum();
    if sum == 0 {
        return EQUAL;
    }
    let ratio = 255.0 * 255.0 * a.len() as f64 / sum as f64;
    (10.0 * libm::log10(ratio)).min(EQUAL)
}

fn ssim(a: &[u8], b: &[u8], width: usize) -> f64 {
    let blocks = width / 4;
    let mut upper = vec![Sums::default(); blocks];
    let mut lower = upper.clone();
    let mut total = 0.0;
    let mut windows = 0;
    let bands = a
        .chunks_exact(4 * width)
        .zip(b.chunks_exact(4 * width))
        .enumerate();
    for (band, (a, b)) in bands {
        core::mem::swap(&mut upper, &mut lower);
        sum_blocks(a, b, width, &mut lower);
        if band == 0 {
            continue;
        }
        for (up, low) in upper.windows(2).zip(lower.windows(2)) {
            total += f64::from(likeness(&[up[0], up[1], low[0], low[1]]));
        }
        windows += blocks - 1;
    }
    total / f64::from(windows as u32)
}

/// Sums over a block of 4×4 samples of two pictures.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    a: u32,
    b: u32,
    /// Sum of the squares of both.
    squares: u32,
    products: u32,
}

/// Computes the sums of all blocks of a band of four lines.
fn sum_blocks(a: &[u8], b: &[u8], width: usize, out: &mut [Sums]) {
    out.fill(Sums::default());
    for (a, b) in a.chunks_exact(width).zip(b.chunks_exact(width)) {
        let quads = a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0);
        for (sums, (p, q)) in out.iter_mut().zip(quads) {
            for (&p, &q) in p.iter().zip(q) {
                let (p, q) = (u32::from(p), u32::from(q));
                sums.a += p;
                sums.b += q;
                sums.squares += p * p + q * q;
                sums.products += p * q;
            }
        }
    }
}

/// SSIM of the window of four blocks. The sums are over 64 samples, so products of two are scaled
/// by 64². The variances are sample variances (63 degrees of freedom). The constant of the means
/// should be scaled by 64² as well. x264 and FFmpeg scale it by 64, and so does this function, to
/// be comparable. The difference is significant only in nearly black pictures.
fn likeness(blocks: &[Sums; 4]) -> f32 {
    const C1: f32 = 0.01 * 0.01 * 255.0 * 255.0 * 64.0;
    const C2: f32 = 0.03 * 0.03 * 255.0 * 255.0 * 64.0 * 63.0;
    let sum = |part: fn(&Sums) -> u32| blocks.iter().map(part).sum::<u32>() as i32;
    let (a, b) = (sum(|s| s.a), sum(|s| s.b));
    // 64 · 64 · 2 · 255² < 2^30: the integers are exact, and the differences are small.
    let spread = sum(|s| s.squares) * 64 - a * a - b * b;
    let shared = sum(|s| s.products) * 64 - a * b;
    let means = 2 * a * b;
    let squares = a * a + b * b;
    (means as f32 + C1) * (2.0 * shared as f32 + C2)
        / ((squares as f32 + C1) * (spread as f32 + C2))
}

/// PSNR of equal pictures, in dB.
const EQUAL: f64 = 99.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{Motion, Scene};

    fn scene() -> Picture {
        let size = Size::new(192, 108).unwrap();
        let mut picture = Picture::black(size);
        Scene::with_motion(5, size, Motion::Static).render(0, &mut picture);
        picture
    }

    #[test]
    fn equal_pictures_have_the_maximum_quality() {
        let picture = scene();
        let same = quality(&picture, &picture).unwrap();
        assert_eq!((same.psnr_y, same.psnr_u, same.psnr_v), (99.0, 99.0, 99.0));
        assert!((same.ssim - 1.0).abs() < 1e-6, "{same:?}");
    }

    #[test]
    fn known_distortions_match_the_formulas() {
        let size = Size::new(64, 32).unwrap();
        let black = Picture::black(size);
        let mut other = black.clone();
        for sample in other.planes_mut().y {
            *sample += 5;
        }
        other.planes_mut().u[3] += 10;
        let seen = quality(&black, &other).unwrap();
        // Error 5 everywhere: 20 log10(255/5). One of 512 samples off by 10: mse 100/512.
        assert!((seen.psnr_y - 34.151_403).abs() < 1e-4, "{seen:?}");
        assert!((seen.psnr_u - 55.223_503).abs() < 1e-4, "{seen:?}");
        assert!(seen.psnr_v >= 99.0);
        // Flat pictures have no variance: only the term of the means, 16 against 21, is left.
        let c1 = (0.01_f64 * 255.0) * (0.01 * 255.0) / 64.0;
        let means = (2.0 * 16.0 * 21.0 + c1) / (16.0 * 16.0 + 21.0 * 21.0 + c1);
        assert!((seen.ssim - means).abs() < 1e-4, "{seen:?} {means}");
    }

    #[test]
    fn variance_matches_the_samples() {
        let mut picture = Picture::black(Size::new(16, 16).unwrap());
        let flat = variance(&picture);
        assert!(flat.iter().all(|v| v - MIN_VARIANCE <= 0.0), "{flat:?}");
        let planes = picture.planes_mut();
        // Half of Y 20 above the rest: 10 from the mean everywhere. A quarter of U 8 above: 12.
        planes.y.chunks_mut(2).for_each(|two| two[0] += 20);
        planes.u.chunks_mut(4).for_each(|four| four[0] += 8);
        let [y, u, v] = variance(&picture);
        assert!(
            (y - 100.0).abs() < 1e-9 && (u - 12.0).abs() < 1e-9,
            "{y} {u}"
        );
        assert!((v - MIN_VARIANCE).abs() < 1e-9);
    }

    #[test]
    fn noise_and_loss_of_detail_lower_the_ssim() {
        let picture = scene();
        let mut inverse = picture.clone();
        for sample in inverse.planes_mut().y {
            *sample = 251 - *sample;
        }
        let mut rough = picture.clone();
        for (i, sample) in rough.planes_mut().y.iter_mut().enumerate() {
            *sample = sample.saturating_add((i * 7919 % 9) as u8);
        }
        let rough = quality(&picture, &rough).unwrap();
        let inverse = quality(&picture, &inverse).unwrap();
        assert!(rough.ssim < 0.99 && rough.ssim > 0.5, "{rough:?}");
        assert!(inverse.ssim < 0.2, "{inverse:?}");
        assert!(rough.psnr_u >= 99.0);
    }

    #[test]
    fn different_sizes_are_an_error() {
        let small = Picture::black(Size::new(16, 16).unwrap());
        let large = Picture::black(Size::new(16, 32).unwrap());
        let refused = quality(&small, &large).unwrap_err().to_string();
        assert!(
            refused.contains("16x32") && refused.contains("16x16"),
            "{refused}"
        );
    }
}
