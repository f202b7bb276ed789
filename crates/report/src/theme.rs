//! Colours and strokes of figures, for light and dark mode.
//!
//! The colours of the first four flows are distinguishable with any kind of colour vision, in light
//! and in dark mode, and have a contrast of 3 to the ground (WCAG 2.2, section 1.4.11). Further
//! flows use other hues and lightnesses. Red is reserved for faults, and everything marked in red
//! also has a shape, a sign or a position of its own.

/// The style sheet of a page, without [`page_style`].
pub const PAGE: &str = include_str!("page.css");

/// Colour classes of flows, in the order of the manifest; the colours repeat for further flows.
pub fn flow(index: usize) -> &'static str {
    FLOWS[index % FLOWS.len()].0
}

/// Style of standalone figures, in light mode only.
pub fn file_style() -> String {
    let mut style = STROKES.to_owned();
    for (class, property, light, _) in colours() {
        style.push_str(&rule(class, property, light));
    }
    style
}

/// Style of figures in a page.
pub fn page_style() -> String {
    let mut style = file_style();
    style.push_str("@media (prefers-color-scheme:dark){");
    for (class, property, _, dark) in colours() {
        style.push_str(&rule(class, property, dark));
    }
    style.push('}');
    style
}

fn rule(class: &str, property: &str, colour: &str) -> String {
    format!(".{class}{{{property}:{colour}}}")
}

fn colours() -> impl Iterator<Item = (&'static str, &'static str, &'static str, &'static str)> {
    let flows = FLOWS.iter().map(|(class, l, d)| (*class, "color", *l, *d));
    flows.chain(PAINTS)
}

const FLOWS: [(&str, &str, &str); 10] = [
    ("f0", "#0072b2", "#38c0ff"),
    ("f1", "#00a651", "#43a85a"),
    ("f2", "#b180b3", "#ff85b3"),
    ("f3", "#a15200", "#ffd21f"),
    ("f4", "#5b7083", "#a9bccb"),
    ("f5", "#7b5ea7", "#b79ae0"),
    ("f6", "#1797b5", "#6fdcf0"),
    ("f7", "#7d8a00", "#c9d653"),
    ("f8", "#8a5a3c", "#cfa07d"),
    ("f9", "#a8238f", "#ee82da"),
];

/// Class, property, light, dark.
const PAINTS: [(&str, &str, &str, &str); 24] = [
    ("ground", "fill", "#ffffff", "#14181d"),
    ("ink", "fill", "#1b2128", "#e8edf2"),
    ("soft", "fill", "#5d6873", "#9aa7b4"),
    ("grid", "stroke", "#dde2e7", "#2f3842"),
    ("axis", "stroke", "#b9c2cb", "#4a5663"),
    ("cap", "fill", "#e6ebf0", "#242c35"),
    ("capline", "stroke", "#9aa6b2", "#6b7885"),
    ("outage", "fill", "#f7d9c8", "#4a2c1d"),
    ("target", "stroke", "#1b2128", "#e8edf2"),
    ("allowed", "stroke", "#6b7681", "#8c99a6"),
    ("bound", "stroke", "#1b2128", "#e8edf2"),
    ("bad", "color", "#d62728", "#ff6b6b"),
    ("note", "color", "#1b2128", "#e8edf2"),
    ("queue", "color", "#34566f", "#8fb4d0"),
    ("marked", "color", "#a06a00", "#f0b429"),
    ("limit", "color", "#9aa6b2", "#6b7885"),
    ("gone", "color", "#6b7681", "#8c99a6"),
    ("steady", "fill", "#e6eaee", "#2a323b"),
    ("start", "fill", "#8cc9ec", "#2f7fb0"),
    ("others", "fill", "#c9b6e4", "#6f5a94"),
    ("tight", "fill", "#e8b04a", "#a8780f"),
    ("dead", "fill", "#3c4650", "#b4c0cb"),
    ("stopped", "fill", "#d62728", "#ff6b6b"),
    ("halo", "stroke", "#ffffff", "#14181d"),
];

const STROKES: &str = ".bold{font-weight:700}\
.small{font-size:11px}\
.grid,.axis{fill:none;stroke-width:1}\
.capline{fill:none;stroke-width:1.2}\
.line{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round}\
.dashed{fill:none;stroke:currentColor;stroke-width:1.3;stroke-dasharray:4 3;stroke-linejoin:round}\
.target{fill:none;stroke-width:1.1;stroke-linejoin:round}\
.allowed{fill:none;stroke-width:1.2;stroke-dasharray:4 3;stroke-linejoin:round}\
.alone{stroke-width:1;stroke-dasharray:none}\
.bound{fill:none;stroke-width:1.2;stroke-dasharray:6 4}\
.dots{fill:none;stroke:currentColor;stroke-width:2.4;stroke-linecap:round;stroke-opacity:.75}\
.cross{fill:none;stroke:currentColor;stroke-width:1.3}\
.tick{fill:none;stroke:currentColor;stroke-width:1.3}\
.solid{fill:currentColor}\
.hit{fill:none;pointer-events:all}\
.band{fill:currentColor;fill-opacity:.16}\
.halo{stroke-width:3;stroke-linejoin:round;paint-order:stroke}";

#[cfg(test)]
mod tests {
    use super::*;

    type Rgb = [f64; 3];

    /// Matrices of Machado, Oliveira and Fernandes (2009) at full severity, for linear RGB.
    const VISIONS: [(&str, [Rgb; 3]); 4] = [
        (
            "normal",
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        ),
        (
            "protanopia",
            [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
        ),
        (
            "deuteranopia",
            [
                [0.367_322, 0.860_646, -0.227_968],
                [0.280_085, 0.672_501, 0.047_413],
                [-0.011_820, 0.042_940, 0.968_881],
            ],
        ),
        (
            "tritanopia",
            [
                [1.255_528, -0.076_749, -0.178_779],
                [-0.078_411, 0.930_809, 0.147_602],
                [0.004_733, 0.691_367, 0.303_900],
            ],
        ),
    ];

    /// To the cone responses and from their cube roots to `OKLab` (Ottosson, 2020).
    const CONES: [Rgb; 3] = [
        [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
        [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
        [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
    ];
    const LAB: [Rgb; 3] = [
        [0.210_454_255_3, 0.793_617_785_0, -0.004_072_046_8],
        [1.977_998_495_1, -2.428_592_205_0, 0.450_593_709_9],
        [0.025_904_037_1, 0.782_771_766_2, -0.808_675_766_0],
    ];

    fn times(matrix: &[Rgb; 3], vector: Rgb) -> Rgb {
        matrix.map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum())
    }

    fn linear(colour: &str) -> Rgb {
        [1, 3, 5].map(|at| {
            let channel = u8::from_str_radix(&colour[at..at + 2], 16).expect("a colour");
            let c = f64::from(channel) / 255.0;
            if c <= 0.04045 {
                c / 12.92
            } else {
                ((c + 0.055) / 1.055).powf(2.4)
            }
        })
    }

    fn seen(vision: &[Rgb; 3], colour: &str) -> Rgb {
        let light = times(vision, linear(colour)).map(|c| c.clamp(0.0, 1.0));
        times(&LAB, times(&CONES, light).map(f64::cbrt))
    }

    fn difference(one: Rgb, other: Rgb) -> f64 {
        let squares = one.iter().zip(other).map(|(a, b)| (a - b).powi(2));
        squares.sum::<f64>().sqrt()
    }

    #[test]
    fn first_colours_differ_with_any_colour_vision() {
        for dark in [false, true] {
            let colour =
                |flow: &(_, &'static str, &'static str)| if dark { flow.2 } else { flow.1 };
            for (vision, matrix) in &VISIONS {
                let flows: Vec<Rgb> = FLOWS[..4].iter().map(|f| seen(matrix, colour(f))).collect();
                for (i, one) in flows.iter().enumerate() {
                    for (j, other) in flows[..i].iter().enumerate() {
                        let apart = difference(*one, *other);
                        // Four times a just noticeable difference of about 0.02.
                        assert!(apart > 0.08, "{vision}: {i} and {j}, {apart}");
                    }
                }
            }
        }
    }

    #[test]
    fn first_colours_stand_out_from_the_ground() {
        let light = |colour: &str| times(&[[0.2126, 0.7152, 0.0722]; 3], linear(colour))[0];
        let ground = PAINTS[0];
        assert_eq!(ground.0, "ground");
        for (class, day, night) in &FLOWS[..4] {
            for (colour, ground) in [(day, ground.2), (night, ground.3)] {
                let (a, b) = (light(colour), light(ground));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast >= 3.0, "{class}: {colour} on {ground}, {contrast}");
            }
        }
    }
}
