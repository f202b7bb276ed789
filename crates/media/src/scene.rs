//! Generated moving scene: the default source, which needs no video file.

use rand_core::Rng as _;
use tidegate_core::random::Seed;

use crate::picture::{Picture, PlanesMut, Size};
use crate::world::{Plane, World};

/// Camera motion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Motion {
    /// All other motions in turn, with a cut every [`Scene::SHOT`] frames.
    #[default]
    Mix,
    /// Static camera with two moving objects; the easiest to encode.
    Static,
    /// Horizontal pan with a slow vertical component.
    Pan,
    /// Zoom between 1/2 and 3/2 of the size.
    Zoom,
    /// Fast pan with twelve objects and twice the grain; the hardest to encode.
    Busy,
}

impl Motion {
    /// All motions.
    pub const ALL: [Self; 5] = [Self::Mix, Self::Static, Self::Pan, Self::Zoom, Self::Busy];

    /// Name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mix => "mix",
            Self::Static => "static",
            Self::Pan => "pan",
            Self::Zoom => "zoom",
            Self::Busy => "busy",
        }
    }
}

/// A moving scene. The same seed, size and frame number produce the same bytes on every machine,
/// because all computations use integers and `sqrt`.
///
/// Frames can be rendered in any order. Speeds are per frame, independent of the frame rate.
#[derive(Debug)]
pub struct Scene {
    size: Size,
    motion: Motion,
    seed: u64,
    worlds: [World; 2],
    grain: Vec<i8>,
}

impl Scene {
    /// Frames between two cuts of [`Motion::Mix`]: 5 s at 30 frames per second.
    pub const SHOT: u64 = 150;

    /// A scene with [`Motion::Mix`]. Painting its worlds takes about 0.1 s at 640×360, in
    /// proportion to the picture size.
    pub fn new(seed: u64, size: Size) -> Self {
        Self::with_motion(seed, size, Motion::default())
    }

    /// A scene with this motion.
    pub fn with_motion(seed: u64, size: Size, motion: Motion) -> Self {
        // About one texel per pixel, and more texels than pixels before the world repeats.
        let side = size.width().max(size.height()).next_power_of_two();
        let bits = side.max(MIN_SIDE).ilog2();
        let world = |name| World::paint(bits, &mut Seed(seed).stream(name));
        let mut rng = Seed(seed).stream("scene/grain");
        // The sum of three bytes approximates a normal distribution; deviation 1.3.
        let mut byte = || (rng.next_u64() >> 56) as i32;
        let grain = (0..GRAIN)
            .map(|_| ((byte() + byte() + byte()) / 96 - 4) as i8)
            .collect();
        Self {
            size,
            motion,
            seed,
            worlds: [world("scene/world/0"), world("scene/world/1")],
            grain,
        }
    }

    /// Size of the pictures.
    pub const fn size(&self) -> Size {
        self.size
    }

    /// Renders frame number `frame`. The picture is resized to the size of the scene.
    pub fn render(&self, frame: u64, picture: &mut Picture) {
        picture.resize(self.size);
        let view = self.view(frame);
        let back = &self.worlds[view.world];
        let PlanesMut { y, u, v } = picture.planes_mut();
        self.draw(&view, 0, |w| &w.y, back, y);
        self.draw(&view, 1, |w| &w.u, back, u);
        self.draw(&view, 1, |w| &w.v, back, v);
        self.sprinkle(frame, view.grain, y);
    }

    /// Camera position and moving objects.
    fn view(&self, frame: u64) -> View {
        let (motion, shot) = match self.motion {
            Motion::Mix => {
                let shot = frame / Self::SHOT;
                (SHOTS[(shot % SHOTS.len() as u64) as usize], shot)
            }
            steady => (steady, 0),
        };
        let world = (shot % 2) as usize;
        // Below 2^40, so that all products fit 64 bits. All later values repeat or wrap.
        let t = (frame & 0xff_ffff_ffff) as i64;
        let place = Seed(self.seed.wrapping_add(shot))
            .stream("scene/shot")
            .next_u64();
        let width = i64::from(self.size.width());
        // One pixel of a picture of width 640, in 1/65536 texel.
        let unit = ONE * width / 640;
        let (x, y, scale) = match motion {
            Motion::Pan => (t * unit * 3 / 2, wave(t * 2) * unit / ONE * 60, ONE),
            Motion::Zoom => (0, 0, ONE + wave(t * 3) / 2),
            Motion::Busy => (
                t * unit * 5 + wave(t * 9) * unit / ONE * 20,
                wave(t * 7) * unit / ONE * 90,
                ONE,
            ),
            Motion::Static | Motion::Mix => (0, 0, ONE),
        };
        let (count, grain) = match motion {
            Motion::Static => (2, 1),
            Motion::Busy => (12, 2),
            _ => (4, 1),
        };
        let height = i64::from(self.size.height());
        let objects = (0..count).map(|k: i64| Object {
            x: width / 2 + wave(t * (3 + k % 5) + k * 311) * (width * 2 / 5) / ONE,
            y: height / 2 + wave(t * (2 + k % 3) + k * 177 + 256) * (height * 2 / 5) / ONE,
            radius: width / (10 + 2 * (k % 4)),
            world: (1 + world + k as usize) % 2,
            texel: (k * 197) << 16,
        });
        View {
            x: x + (place & 0xffff_ffff) as i64,
            y: y + (place >> 32) as i64,
            scale,
            world,
            grain,
            objects: objects.collect(),
        }
    }

    /// Renders one plane; `shift` is 1 for the chroma planes.
    fn draw(
        &self,
        view: &View,
        shift: u32,
        plane: impl Fn(&World) -> &Plane,
        back: &World,
        out: &mut [u8],
    ) {
        let width = i64::from(self.size.width() >> shift);
        let height = i64::from(self.size.height() >> shift);
        let step = view.scale;
        let left = (view.x >> shift) - width / 2 * step;
        for (line, row) in (0_i64..).zip(out.chunks_exact_mut(width as usize)) {
            let y = (view.y >> shift) + (line - height / 2) * step;
            plane(back).sample(left as u32, y as u32, step as u32, row);
            for object in &view.objects {
                let dy = (line << shift) - object.y;
                let square = object.radius * object.radius - dy * dy;
                if square <= 0 {
                    continue;
                }
                let half = (square as u64).isqrt() as i64 >> shift;
                let centre = object.x >> shift;
                let from = (centre - half).clamp(0, width);
                let to = (centre + half).clamp(0, width);
                // The texture is fixed to the object and moves with it.
                let x = (from - centre) * step + object.texel;
                let y = (dy >> shift) * step + object.texel;
                plane(&self.worlds[object.world]).sample(
                    x as u32,
                    y as u32,
                    step as u32,
                    &mut row[from as usize..to as usize],
                );
            }
        }
    }

    /// Adds sensor noise to the luma, different in each frame.
    fn sprinkle(&self, frame: u64, strength: i16, luma: &mut [u8]) {
        let mut rng = Seed(self.seed.wrapping_add(frame)).stream("scene/grain/frame");
        for row in luma.chunks_exact_mut(self.size.width() as usize) {
            let start = (rng.next_u64() >> 32) as usize % (GRAIN - row.len());
            for (sample, grain) in row.iter_mut().zip(&self.grain[start..]) {
                let noisy = i16::from(*sample) + i16::from(*grain) * strength / 2;
                *sample = noisy.clamp(0, 255) as u8;
            }
        }
    }
}

struct View {
    /// Texel at the centre of the picture, in 1/65536.
    x: i64,
    /// Like `x`.
    y: i64,
    /// Texels per pixel, in 1/65536.
    scale: i64,
    world: usize,
    /// Amplitude of the grain, in halves.
    grain: i16,
    objects: Vec<Object>,
}

/// A disc, in pixels.
struct Object {
    x: i64,
    y: i64,
    radius: i64,
    world: usize,
    /// Texel at its centre, in 1/65536.
    texel: i64,
}

/// Approximation of a sine by two parabolas: period 1024, within ±[`ONE`].
fn wave(phase: i64) -> i64 {
    let phase = phase.rem_euclid(1024);
    let half = phase % 512;
    let height = half * (512 - half); // at most 2^16
    if phase < 512 { height } else { -height }
}

/// One in fixed point with 16 fractional bits.
const ONE: i64 = 1 << 16;
/// Number of grain values: eight rows of the widest picture.
const GRAIN: usize = 1 << 16;
/// Side of the smallest world in texels: one period of the slowest octave of its texture.
const MIN_SIDE: u32 = 256;
/// Order within [`Motion::Mix`]: easy and hard motions alternate, so that every cut changes the
/// bits.
const SHOTS: [Motion; 6] = [
    Motion::Pan,
    Motion::Static,
    Motion::Zoom,
    Motion::Busy,
    Motion::Static,
    Motion::Pan,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::quality;

    /// Measurements on a scene remain valid only if the scene is unchanged and the same on every
    /// machine.
    #[test]
    fn pictures_match_their_fingerprints() {
        let size = Size::new(96, 64).unwrap();
        let mut picture = Picture::black(size);
        let scene = Scene::new(1, size);
        let seen = [0, 1, 200, 310, 500, 1_000_000].map(|frame| {
            scene.render(frame, &mut picture);
            fingerprint(&picture)
        });
        assert_eq!(seen, PINNED);
        scene.render(200, &mut picture);
        assert_eq!(fingerprint(&picture), PINNED[2]);
        Scene::new(2, size).render(200, &mut picture);
        assert_ne!(fingerprint(&picture), PINNED[2]);
    }

    #[test]
    fn pictures_change_smoothly_except_at_cuts() {
        let size = Size::new(192, 108).unwrap();
        let scene = Scene::new(4, size);
        let (mut before, mut after) = (Picture::black(size), Picture::black(size));
        let mut step = |frame| {
            scene.render(frame - 1, &mut before);
            scene.render(frame, &mut after);
            quality(&before, &after).unwrap().ssim
        };
        assert!(step(Scene::SHOT) < 0.35);
        assert!(step(Scene::SHOT + 1) > 0.8);
        assert!(step(Scene::SHOT * 2 - 1) > 0.8);
        assert!(step(Scene::SHOT * 2) < 0.35);
    }

    #[test]
    fn every_motion_moves_and_every_plane_has_detail() {
        let size = Size::new(128, 96).unwrap();
        let (mut first, mut later) = (Picture::black(size), Picture::black(size));
        for motion in SHOTS {
            let scene = Scene::with_motion(9, size, motion);
            scene.render(3, &mut first);
            scene.render(30, &mut later);
            assert_ne!(first, later, "{motion:?}");
            let planes = later.planes();
            for plane in [planes.y, planes.u, planes.v] {
                let mut levels = plane.to_vec();
                levels.sort_unstable();
                levels.dedup();
                assert!(levels.len() > 40, "{motion:?}: {} levels", levels.len());
            }
        }
    }

    /// FNV-1a.
    fn fingerprint(picture: &Picture) -> u64 {
        picture
            .as_i420()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |h, b| {
                (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3)
            })
    }

    const PINNED: [u64; 6] = [
        72_661_518_641_690_927,
        10_370_615_151_593_191_430,
        3_161_291_712_713_538_287,
        18_131_735_451_697_547_627,
        14_110_374_652_782_818_002,
        2_650_885_857_511_207_517,
    ];
}
