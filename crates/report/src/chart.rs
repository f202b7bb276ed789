//! A column of panels over one time axis.

mod legend;
mod readout;

use core::fmt::Write as _;

pub use legend::{MAX_COLOURS, Mark, Sample};
pub use readout::{Reading, Readout, Unit};

use readout::PanelReadout;

use super::scale::{Scale, Ticks};
use super::series::Bins;
use super::svg::{Anchor, Area, Svg, number, polyline, shortened, text_width, wrapped};

/// Target screen of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Paper and desktop screens.
    Wide,
    /// Phones.
    Narrow,
}

impl Form {
    /// Width of the drawing, in pixels.
    pub fn width(self) -> f64 {
        match self {
            Self::Wide => 960.0,
            // Width of a phone less the page margins.
            Self::Narrow => 360.0,
        }
    }

    /// Left end of the time axis, in pixels.
    pub fn left(self) -> f64 {
        match self {
            Self::Wide => 52.0,
            Self::Narrow => 46.0,
        }
    }

    /// `wide`, reduced in the narrow form.
    pub fn height(self, wide: f64) -> f64 {
        match self {
            Self::Wide => wide,
            Self::Narrow => (wide * 0.8).round(),
        }
    }

    /// Suffix that keeps identifiers unique on a page.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Wide => "w",
            Self::Narrow => "n",
        }
    }
}

/// A chart under construction.
#[derive(Debug)]
pub struct Chart {
    id: String,
    form: Form,
    svg: Svg,
    time: Scale,
    outages: Vec<(f64, f64)>,
    /// Vertical position of the next element.
    y: f64,
    clips: usize,
    readouts: Vec<PanelReadout>,
}

/// The vertical axis of a panel.
#[derive(Clone, Debug)]
pub struct Vertical {
    /// Value at the bottom.
    pub from: f64,
    /// Value at the top.
    pub to: f64,
    /// Divisor of values before they are printed.
    pub unit: f64,
    /// Label of the axis.
    pub name: &'static str,
    /// Approximate number of ticks.
    pub ticks: usize,
}

/// Plotting area of a chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Panel {
    /// Position and size.
    pub area: Area,
    /// Scale from seconds to pixels.
    pub x: Scale,
    /// Scale from values to pixels.
    pub y: Scale,
    /// Unit of the values.
    pub unit: Unit,
}

impl Panel {
    /// Pixel position of a pair of time and value.
    pub fn at(&self, (seconds, value): (f64, f64)) -> (f64, f64) {
        (self.x.at(seconds), self.y.at(value))
    }

    /// Outline of the ranges of `bins`, as path commands.
    pub fn band(&self, bins: &Bins) -> String {
        let (lower, upper) = (bins.pieces(|bin| bin.min), bins.pieces(|bin| bin.max));
        let mut d = String::new();
        for (lower, upper) in lower.iter().zip(&upper) {
            let around = upper.iter().chain(lower.iter().rev());
            polyline(&mut d, around.map(|p| self.at(*p)));
            d.push('z');
        }
        d
    }
}

impl Chart {
    /// A chart over `from..=to` seconds. `id` is unique on the page.
    pub fn new(id: &str, form: Form, (from, to): (f64, f64), outages: &[(f64, f64)]) -> Self {
        Self {
            id: format!("{id}-{}", form.suffix()),
            form,
            svg: Svg::new(form.width()),
            time: Scale {
                from,
                to,
                start: form.left(),
                end: form.width() - RIGHT,
            },
            outages: outages.to_vec(),
            y: 4.0,
            clips: 0,
            readouts: Vec::new(),
        }
    }

    /// Sets the outages that the following panels and strips shade.
    pub fn set_outages(&mut self, outages: &[(f64, f64)]) {
        outages.clone_into(&mut self.outages);
    }

    /// The underlying drawing, for elements that this type has no method for.
    pub fn svg(&mut self) -> &mut Svg {
        &mut self.svg
    }

    /// Seconds per pixel.
    pub fn resolution(&self) -> f64 {
        (self.time.to - self.time.from) / (self.time.end - self.time.start)
    }

    /// Starts a panel with a title: a colour class, which may be empty, and two texts, the first in
    /// bold.
    pub fn panel(
        &mut self,
        title: Option<(&str, &str, &str)>,
        height: f64,
        vertical: &Vertical,
    ) -> Panel {
        let left = self.time.start;
        self.y += 22.0;
        let unit = (left - 7.0, self.y - 3.0);
        self.svg
            .text("soft small", unit, Anchor::End, vertical.name);
        if let Some((class, name, more)) = title {
            self.title(class, name, more);
        }
        let area = Area {
            x: left,
            y: self.y + 9.0,
            width: self.time.end - left,
            height: self.form.height(height),
        };
        let y = Scale {
            from: vertical.from,
            to: vertical.to,
            start: area.bottom(),
            end: area.y,
        };
        let panel = Panel {
            area,
            x: self.time,
            y,
            unit: Unit::of(vertical.unit, vertical.name, vertical.to),
        };
        self.shade_outages(&panel);
        let (from, to) = (vertical.from / vertical.unit, vertical.to / vertical.unit);
        let mut lines = String::new();
        for (value, label) in Ticks::round(from, to, vertical.ticks).labelled() {
            let at = y.at(value * vertical.unit);
            polyline(&mut lines, [(area.x, at), (area.right(), at)].into_iter());
            let place = (left - 7.0, at + 4.0);
            self.svg.text("soft small", place, Anchor::End, &label);
        }
        for value in self.time_ticks().values {
            let x = self.time.at(value);
            polyline(&mut lines, [(x, area.y), (x, area.bottom())].into_iter());
        }
        self.svg.path("grid", &lines);
        self.y = area.bottom();
        panel
    }

    /// Writes a title on the current line, after a square in the colour `class` unless that is
    /// empty.
    fn title(&mut self, class: &str, name: &str, more: &str) {
        let (mut left, y) = (self.time.start, self.y);
        if !class.is_empty() {
            let square = Area {
                x: left,
                y: y - 9.0,
                width: 10.0,
                height: 10.0,
            };
            self.svg.rect(&format!("{class} solid"), square);
            left += SQUARE;
        }
        self.svg.text("ink bold", (left, y), Anchor::Start, name);
        let left = left + title_width(name, "") - SQUARE;
        if !more.is_empty() {
            let more = shortened(more, 12.0, self.time.end - left);
            self.svg.text("soft", (left, y), Anchor::Start, &more);
        }
    }

    /// Adds a strip as wide as a panel, with a title above it and without an axis.
    pub fn strip(&mut self, title: (&str, &str, &str), height: f64) -> Panel {
        self.y += 18.0;
        self.title(title.0, title.1, title.2);
        self.lane(7.0, height)
    }

    /// Adds a strip without a title, `gap` below the last element.
    pub fn lane(&mut self, gap: f64, height: f64) -> Panel {
        let area = Area {
            x: self.time.start,
            y: self.y + gap,
            width: self.time.end - self.time.start,
            height,
        };
        self.y = area.bottom();
        let y = Scale {
            from: 0.0,
            to: 1.0,
            start: area.bottom(),
            end: area.y,
        };
        let panel = Panel {
            area,
            x: self.time,
            y,
            unit: Unit::NONE,
        };
        self.shade_outages(&panel);
        panel
    }

    fn shade_outages(&mut self, panel: &Panel) {
        let outages = core::mem::take(&mut self.outages);
        self.shade(panel, "outage", &outages);
        self.outages = outages;
    }

    /// Writes to the left of `panel`, in the place of an axis.
    pub fn label(&mut self, panel: &Panel, text: &str) {
        let middle = panel.area.y + panel.area.height / 2.0;
        let at = (panel.area.x - 7.0, middle + 4.0);
        self.svg.text("soft small", at, Anchor::End, text);
    }

    /// Draws vertical strokes over the whole height of `panel`.
    pub fn strokes(&mut self, panel: &Panel, class: &str, moments: impl Iterator<Item = f64>) {
        let mut d = String::new();
        let mut last = f64::MIN;
        for at in moments {
            let x = panel.x.at(at);
            // Closer strokes would overlap.
            if x >= last + 0.5 {
                let _ = write!(
                    d,
                    "M{} {}v{}",
                    number(x),
                    number(panel.area.y),
                    number(panel.area.height)
                );
                last = x;
            }
        }
        self.svg.path(&format!("{class} tick"), &d);
    }

    /// Fills the whole height of `panel` in these intervals, in seconds. Intervals shorter than a
    /// pixel are widened to a pixel.
    pub fn shade(&mut self, panel: &Panel, class: &str, spans: &[(f64, f64)]) {
        for (from, to) in spans {
            let from = panel.x.at(*from).max(panel.area.x);
            let to = panel.x.at(*to).min(panel.area.right());
            if to < panel.area.x || from > panel.area.right() {
                continue;
            }
            let area = Area {
                x: from,
                width: (to - from).max(1.0),
                ..panel.area
            };
            self.svg.rect(class, area);
        }
    }

    /// Clips the following elements to `panel`, until [`end_clip`](Svg::end_clip).
    pub fn begin_clip(&mut self, panel: &Panel) {
        self.clips += 1;
        let id = format!("{}-{}", self.id, self.clips);
        self.svg.begin_clip(&id, panel.area);
    }

    /// Draws a line through points of `panel`, interrupted at gaps.
    pub fn line(&mut self, panel: &Panel, class: &str, pieces: &[Vec<(f64, f64)>]) {
        let mut d = String::new();
        for piece in pieces {
            polyline(&mut d, piece.iter().map(|p| panel.at(*p)));
            if let [only] = piece[..] {
                let _ = write!(d, "h{}", number(panel.at(only).0.min(1.5)));
            }
        }
        self.svg.path(class, &d);
    }

    /// Marks values above the upper edge of `panel`: a triangle at each peak in the colour of its
    /// line, and the values of the highest peaks beside them where there is space.
    pub fn beyond<'a>(
        &mut self,
        panel: &Panel,
        lines: impl IntoIterator<Item = (&'a str, &'a [(f64, f64)])>,
        show: impl Fn(f64) -> String,
    ) {
        let mut peaks: Vec<(&str, f64, f64)> = Vec::new();
        for (class, points) in lines {
            let own = peaks.len();
            for (at, value) in points.iter().filter(|(_, value)| *value > panel.y.to) {
                let x = panel.x.at(*at);
                match peaks[own..].last_mut() {
                    Some(last) if x - last.1 < APART => {
                        if *value > last.2 {
                            (last.1, last.2) = (x, *value);
                        }
                    }
                    _ => peaks.push((class, x, *value)),
                }
            }
        }
        let (left, right) = (panel.area.x, panel.area.right());
        peaks.retain(|(_, x, _)| (left..=right).contains(x));
        peaks.sort_by(|a, b| b.2.total_cmp(&a.2));
        let y = panel.area.y + 1.0;
        for (class, x, _) in &peaks {
            let x = x.clamp(left + 4.0, right - 4.0);
            let d = format!("M{} {}l4 7h-8z", number(x), number(y));
            self.svg.path(&format!("{class} solid"), &d);
        }
        let mut taken: Vec<(f64, f64)> = Vec::new();
        for (_, x, value) in &peaks {
            let text = show(*value);
            let width = text_width(&text, 11.0);
            let place = if x + 8.0 + width < right {
                x + 7.0
            } else {
                x - 7.0 - width
            };
            let ends = (place - 6.0, place + width + 6.0);
            let free = |other: &(f64, f64)| other.1 < ends.0 || other.0 > ends.1;
            // A value beside the triangle of another line could be mistaken for the value of that
            // line.
            let alone = |other: &(&str, f64, f64)| {
                other.1 < ends.0 - 2.0 || other.1 > ends.1 || (other.1 - x).abs() < 3.0
            };
            if taken.iter().all(free) && (taken.is_empty() || peaks.iter().all(alone)) {
                let at = (place, y + 9.0);
                self.svg.text("ink small halo", at, Anchor::Start, &text);
                taken.push(ends);
            }
        }
    }

    /// Adds small text below all elements so far.
    pub fn note(&mut self, text: &str) {
        let left = self.time.start;
        self.y += 3.0;
        for line in wrapped(text, 11.0, self.time.end - left) {
            self.y += 15.0;
            let at = (left, self.y);
            self.svg.text("soft small", at, Anchor::Start, &line);
        }
    }

    /// Draws the bottom line of a panel and the time labels below it.
    pub fn time_axis(&mut self) {
        let (left, right) = (self.time.start, self.time.end);
        self.svg.line("axis", (left, self.y), (right, self.y));
        let y = self.y + 16.0;
        let ticks = self.time_ticks();
        let edge = right + RIGHT - 1.0;
        let mut unit = "s".to_owned();
        for (value, label) in ticks.labelled() {
            let x = self.time.at(value);
            if x < right - 24.0 {
                self.svg.text("soft small", (x, y), Anchor::Middle, &label);
            } else if x > right - 6.0 {
                // The last label includes the unit.
                unit = format!("{label} s");
            }
        }
        self.svg.text("soft small", (edge, y), Anchor::End, &unit);
        self.y = y + 4.0;
    }

    fn time_ticks(&self) -> Ticks {
        let count = match self.form {
            Form::Wide => 12,
            Form::Narrow => 6,
        };
        Ticks::seconds(self.time.from, self.time.to, count)
    }

    /// The drawing and its height.
    pub fn finish(self) -> (Svg, f64) {
        (self.svg, self.y + 6.0)
    }
}

/// Width of a title, with the space behind it.
pub fn title_width(name: &str, more: &str) -> f64 {
    // Bold letters are about a tenth wider.
    SQUARE + text_width(name, 13.2) + 8.0 + text_width(more, 12.0)
}

/// Appends a small cross around a point.
pub fn cross(d: &mut String, (x, y): (f64, f64)) {
    let _ = write!(d, "M{} {}l5 5m0-5l-5 5", number(x - 2.5), number(y - 2.5));
}

/// Right margin, so that the label of the last tick is not cut.
const RIGHT: f64 = 14.0;

/// Distance from a title's square to its text.
const SQUARE: f64 = 16.0;

/// Peaks closer than this share one triangle.
const APART: f64 = 12.0;

#[cfg(test)]
mod tests;
