//! Still background picture of a scene.
//!
//! It follows the "dead leaves" model: discs, ellipses and boxes whose radii have a power-law
//! distribution occlude each other, each with its own colour and amount of 1/f texture. Such
//! pictures have the statistics of natural ones (edges, flat areas and spectrum; Lee, Mumford and
//! Huang, "Occlusion models for natural images", 2001), to which the rate control of an encoder
//! responds.

use rand_core::Rng;
use tidegate_core::random::unit;

/// A square picture, periodic in both directions; Y at full and U, V at half resolution.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) y: Plane,
    pub(crate) u: Plane,
    pub(crate) v: Plane,
}

impl World {
    /// Paints a world with a side of `1 << bits` luma texels.
    pub(crate) fn paint(bits: u32, rng: &mut dyn Rng) -> Self {
        let (cover, leaves) = scatter(bits, rng);
        let texture = texture(bits, rng);
        let mask = texture.len() - 1;
        // Each leaf has its own texture offset, so that the texture is discontinuous at edges.
        let texel = |i: usize| {
            let leaf = &leaves[cover[i] as usize];
            let grain = i32::from(texture[(i + leaf.offset) & mask]) * leaf.contrast;
            (leaf, grain)
        };
        let y = (0..cover.len()).map(|i| {
            let (leaf, grain) = texel(i);
            video_range(leaf.colour[0] + grain / TEXTURE_ONE)
        });
        let chroma = |k: usize| {
            let half = 1_usize << (bits - 1);
            let texels = (0..half * half).map(|i| {
                let at = ((i / half) << (bits + 1)) | ((i % half) << 1);
                let corners = [at, at + 1, at + 2 * half, at + 2 * half + 1];
                let sum: i32 = corners
                    .map(|c| {
                        let (leaf, grain) = texel(c);
                        // Texture is mostly luma: chroma has a quarter of it.
                        leaf.colour[k] + grain / (4 * TEXTURE_ONE)
                    })
                    .iter()
                    .sum();
                video_range((sum + 2) / 4)
            });
            Plane {
                bits: bits - 1,
                texels: texels.collect(),
            }
        };
        let y = Plane {
            bits,
            texels: y.collect(),
        };
        Self {
            y,
            u: chroma(1),
            v: chroma(2),
        }
    }
}

/// One component of a world.
#[derive(Debug)]
pub(crate) struct Plane {
    bits: u32,
    texels: Vec<u8>,
}

impl Plane {
    /// Fills `row` with bilinear samples at `x`, `x + step`, … of the line `y`. Positions are in
    /// 1/65536 texel and periodic. The side is a power of two, so wrapping at 2^32 is correct.
    pub(crate) fn sample(&self, mut x: u32, y: u32, step: u32, row: &mut [u8]) {
        let side = 1_usize << self.bits;
        let mask = side - 1;
        let top = (y >> 16) as usize & mask;
        let bottom = (top + 1) & mask;
        let upper = &self.texels[top << self.bits..][..side];
        let lower = &self.texels[bottom << self.bits..][..side];
        let down = y >> 8 & 0xff;
        for sample in row {
            let left = (x >> 16) as usize & mask;
            let right = (left + 1) & mask;
            let along = x >> 8 & 0xff;
            let across = |line: &[u8]| {
                u32::from(line[left]) * (256 - along) + u32::from(line[right]) * along
            };
            let sum = across(upper) * (256 - down) + across(lower) * down;
            *sample = ((sum + 0x8000) >> 16) as u8;
            x = x.wrapping_add(step);
        }
    }
}

struct Leaf {
    /// Y, U, V.
    colour: [i32; 3],
    /// Amplitude of the texture, in 1/16.
    contrast: i32,
    offset: usize,
}

/// Places leaves from front to back until almost all texels are covered. Returns the visible leaf
/// of each texel.
fn scatter(bits: u32, rng: &mut dyn Rng) -> (Vec<u32>, Vec<Leaf>) {
    let side = 1_i64 << bits;
    let mut cover = vec![GROUND; (side * side) as usize];
    let mut leaves = vec![Leaf {
        colour: [90, 128, 128],
        contrast: 200,
        offset: 0,
    }];
    let mut free = cover.len();
    while free > cover.len() / 400 && leaves.len() < MAX_LEAVES {
        let radius = radius(unit(rng), side as f64 / 6.0);
        let (cx, cy) = (below(rng, side), below(rng, side));
        let tall = (radius * (50 + below(rng, 100)) / 100).max(1);
        let boxed = below(rng, 10) < 3;
        let leaf = leaves.len() as u32;
        leaves.push(colours(rng));
        for dy in -tall..=tall {
            let half = if boxed {
                radius
            } else {
                ((radius * radius * (tall * tall - dy * dy) / (tall * tall)) as u64).isqrt() as i64
            };
            let line = ((cy + dy) & (side - 1)) << bits;
            for dx in -half..=half {
                let at = &mut cover[(line | (cx + dx) & (side - 1)) as usize];
                if *at == GROUND {
                    *at = leaf;
                    free -= 1;
                }
            }
        }
    }
    (cover, leaves)
}

fn colours(rng: &mut dyn Rng) -> Leaf {
    // With the product of two random numbers most leaves are smooth and a few are rough.
    let rough = (below(rng, 256) * below(rng, 256) * 560) >> 16;
    Leaf {
        colour: [
            40 + below(rng, 176) as i32,
            106 + below(rng, 45) as i32,
            106 + below(rng, 45) as i32,
        ],
        contrast: rough as i32,
        offset: below(rng, 1 << 16) as usize * 7919,
    }
}

/// Random radius with the density r^-3 between [`MIN_RADIUS`] and `most`, by inversion.
fn radius(u: f64, most: f64) -> i64 {
    let least = (1.0 - u) / (MIN_RADIUS * MIN_RADIUS);
    (1.0 / (least + u / (most * most))).sqrt() as i64
}

/// Octaves of value noise whose amplitude grows with the square root of the period.
fn texture(bits: u32, rng: &mut dyn Rng) -> Vec<i16> {
    let side = 1_usize << bits;
    let mut sum = vec![0_i16; side * side];
    for (octave, amplitude) in (1..).zip(AMPLITUDES) {
        let (period, cells) = (1_usize << octave, side >> octave);
        let lattice: Vec<i32> = (0..cells * cells)
            .map(|_| below(rng, 128) as i32 - 64)
            .collect();
        for (y, line) in sum.chunks_exact_mut(side).enumerate() {
            let (row, down) = (y >> octave, (y & (period - 1)) as i32);
            let upper = &lattice[row * cells..][..cells];
            let lower = &lattice[(row + 1) % cells * cells..][..cells];
            let down_the_line =
                |cell: usize| upper[cell] * (period as i32 - down) + lower[cell] * down;
            for (cell, span) in line.chunks_exact_mut(period).enumerate() {
                let left = down_the_line(cell) * amplitude;
                let right = down_the_line((cell + 1) % cells) * amplitude;
                for (along, value) in (0_i32..).zip(span) {
                    let mix = left * (period as i32 - along) + right * along;
                    *value += (mix >> (2 * octave)) as i16;
                }
            }
        }
    }
    sum
}

/// Random number in `0..limit`. The limits are far below 2^32, so the bias is negligible.
fn below(rng: &mut dyn Rng, limit: i64) -> i64 {
    (((rng.next_u64() >> 32) * limit as u64) >> 32) as i64
}

/// Clamps to the video range of ITU-R BT.601: 16 is black and 235 is white.
fn video_range(value: i32) -> u8 {
    value.clamp(16, 235) as u8
}

/// Index of the background leaf.
const GROUND: u32 = 0;
/// Maximum number of leaves; a world of 1024² needs about 20,000.
const MAX_LEAVES: usize = 120_000;
/// Minimum radius in texels. Smaller leaves would be noise.
const MIN_RADIUS: f64 = 6.0;
/// √period for the periods 2, 4, … 128, in 1/8. The sum is 281, and 64 times the sum fits 16 bits.
const AMPLITUDES: [i32; 7] = [11, 16, 23, 32, 45, 64, 90];
/// Product of texture and contrast that corresponds to one step of Y. Noise of 1 is 128,
/// [`AMPLITUDES`] and contrast are in 1/8 and 1/16, and the last factor of 8 limits the roughest
/// leaf to a deviation of about 10.
const TEXTURE_ONE: i32 = 128 * 8 * 16 * 8;
