//! Legend of a chart.

use core::fmt::Write as _;

use super::{Area, Chart, cross};
use crate::svg::{Anchor, number, text_width};

/// Shape of a legend symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Thick line segment in the colour of a flow.
    Flow,
    /// Line segment; the class has its stroke.
    Line,
    /// Filled square; the class has its fill.
    Square,
    /// Square in the faint colour of a range.
    Band,
    /// Dot.
    Dot,
    /// Cross.
    Cross,
    /// Vertical stroke.
    Tick,
}

/// Symbol of a legend entry: a mark in each of its colours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    mark: Mark,
    classes: Vec<&'static str>,
}

impl Sample {
    /// A mark of the class `class`.
    pub fn of(mark: Mark, class: &'static str) -> Self {
        let classes = vec![class];
        Self { mark, classes }
    }

    /// A mark side by side in each of these colours, for an entry that describes several flows. At
    /// most [`MAX_COLOURS`] are drawn, and equal ones once.
    pub fn each(mark: Mark, colours: impl IntoIterator<Item = &'static str>) -> Self {
        let mut classes: Vec<&'static str> = Vec::new();
        for colour in colours {
            if classes.len() < MAX_COLOURS && !classes.contains(&colour) {
                classes.push(colour);
            }
        }
        Self { mark, classes }
    }

    /// Width of one mark, in pixels.
    fn step(&self) -> f64 {
        if self.classes.len() > 1 { SMALL } else { WIDTH }
    }

    /// Width of all marks, in pixels.
    fn width(&self) -> f64 {
        self.step() * self.classes.len() as f64
    }
}

impl Chart {
    /// Draws a legend, wrapped to as many lines as necessary.
    pub fn legend(&mut self, entries: &[(Sample, &str)]) {
        let (left, right) = (self.time.start, self.time.end);
        let mut x = left;
        let mut y = self.y + 14.0;
        for (sample, text) in entries {
            let key = sample.width() + GAP;
            let width = key + text_width(text, 12.0);
            if x > left && x + width > right {
                x = left;
                y += 19.0;
            }
            let step = sample.step();
            for (i, class) in sample.classes.iter().enumerate() {
                let from = x + step * i as f64;
                self.mark(sample.mark, class, (from, y - 4.0), step);
            }
            self.svg.text("soft", (x + key, y), Anchor::Start, text);
            x += width + 18.0;
        }
        self.y = y + 6.0;
    }

    /// Draws a mark of `width` pixels to the right of a point, centred vertically.
    fn mark(&mut self, mark: Mark, class: &str, (x, y): (f64, f64), width: f64) {
        let middle = x + width / 2.0;
        let side = width.min(12.0);
        let square = Area {
            x: middle - side / 2.0,
            y: y - 6.0,
            width: side,
            height: 12.0,
        };
        match mark {
            Mark::Flow => {
                let class = format!("{class} line");
                self.svg.line(&class, (x, y), (x + width, y));
            }
            Mark::Line => self.svg.line(class, (x, y), (x + width, y)),
            Mark::Square => self.svg.rect(class, square),
            Mark::Band => self.svg.rect(&format!("{class} band"), square),
            Mark::Dot => {
                let mut d = String::new();
                let _ = write!(d, "M{} {}h0", number(middle), number(y));
                self.svg.path(&format!("{class} dots"), &d);
            }
            Mark::Cross => {
                let mut d = String::new();
                cross(&mut d, (middle, y));
                self.svg.path(&format!("{class} cross"), &d);
            }
            Mark::Tick => {
                let class = format!("{class} tick");
                self.svg.line(&class, (middle, y - 5.0), (middle, y + 5.0));
            }
        }
    }
}

/// Maximum number of colours of a symbol.
pub const MAX_COLOURS: usize = 5;

/// Width of a mark in one colour, in pixels.
const WIDTH: f64 = 18.0;

/// Width of a mark beside others, in pixels.
const SMALL: f64 = 10.0;

/// Distance from a symbol to its text, in pixels.
const GAP: f64 = 6.0;
