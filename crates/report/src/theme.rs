//! Colours and strokes of figures, for light and dark mode.
//!
//! The first flows use the palette of Okabe and Ito, which is readable with any kind of colour
//! vision; further flows use darker and lighter variants. Red is reserved for faults, and
//! everything marked in red also has a shape, a sign or a position of its own.

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
    ("f0", "#0072b2", "#56b4e9"),
    ("f1", "#009e73", "#2fc59a"),
    ("f2", "#cc79a7", "#e79ac4"),
    ("f3", "#b27a00", "#f0b429"),
    ("f4", "#5b7083", "#a9bccb"),
    ("f5", "#7b5ea7", "#b79ae0"),
    ("f6", "#1797b5", "#6fdcf0"),
    ("f7", "#7d8a00", "#c9d653"),
    ("f8", "#8a5a3c", "#cfa07d"),
    ("f9", "#a8238f", "#ee82da"),
];

/// Class, property, light, dark.
const PAINTS: [(&str, &str, &str, &str); 23] = [
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
.band{fill:currentColor;fill-opacity:.16}\
.halo{stroke-width:3;stroke-linejoin:round;paint-order:stroke}";
