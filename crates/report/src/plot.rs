//! Figures of papers: a panel for each group of series, as lines, bars, bands or points.

use core::fmt::Write as _;

use serde::Serialize;

use crate::claims::{Claim, Distance};
use crate::scale::{Scale, Ticks, round_top};
use crate::svg::{Anchor, Area, Svg, number, polyline, text_width, wrapped};
use crate::{png, theme};

/// A figure or a table, as numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// Name on the command line.
    pub name: String,
    /// Publication and figure number.
    pub source: String,
    /// Conditions of the runs: delay bound, seeds, TCP, encoder. May be empty.
    pub caption: String,
    /// Series of the drawing.
    pub series: Vec<Series>,
    /// Printed table.
    pub table: Option<Table>,
    /// Values of each run, with one row per run.
    pub runs: Option<Table>,
    /// Statements of the paper, and whether the reproduction confirms them.
    pub claims: Vec<Claim>,
    /// Distances of the table to the published values.
    pub distances: Vec<Distance>,
    /// Assumptions, and explanations of differences.
    pub notes: Vec<String>,
}

/// A line or a set of points of a figure. In a name "panel: line" the part before the colon selects
/// the panel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Name, unique in its figure.
    pub name: String,
    /// Unit of `x`.
    pub x_unit: String,
    /// Unit of `y`.
    pub y_unit: String,
    /// Points; of a line in order of `x`.
    pub points: Vec<Point>,
}

/// One value, of one run or the mean over several.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Abscissa.
    pub x: f64,
    /// Mean.
    pub y: f64,
    /// Minimum.
    pub lo: f64,
    /// Maximum.
    pub hi: f64,
    /// Number of runs.
    pub n: usize,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// Column names.
    pub columns: Vec<String>,
    /// Rows with one cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// Text.
    Text(String),
    /// Number.
    Number(f64),
    /// No value.
    Empty,
}

impl Figure {
    /// Adds a claim about a measured number, see [`Claim::new`].
    pub fn claim(
        &mut self,
        text: impl Into<String>,
        published: Option<f64>,
        ours: f64,
        holds: bool,
    ) {
        self.claims
            .push(Claim::new(text.into(), published, ours, holds));
    }

    /// Renders the figure as SVG and as PNG.
    ///
    /// # Errors
    /// If the drawing is too large for memory.
    pub fn draw(&self) -> Result<(String, Vec<u8>), String> {
        let mut panels: Vec<(&str, Vec<&Series>)> = Vec::new();
        for series in &self.series {
            let name = split(&series.name).0;
            match panels.iter_mut().find(|(known, _)| *known == name) {
                Some((_, list)) => list.push(series),
                None => panels.push((name, vec![series])),
            }
        }
        let mut svg = Svg::new(WIDTH);
        svg.text("ink bold", (MARGIN, 22.0), Anchor::Start, &self.name);
        let mut y: f64 = 22.0;
        for text in [&self.source, &self.caption] {
            for line in wrapped(text, 11.0, WIDTH - 2.0 * MARGIN) {
                y += 16.0;
                svg.text("soft small", (MARGIN, y), Anchor::Start, &line);
            }
        }
        let columns: u32 = if panels.len() > 1 { 2 } else { 1 };
        let width = (WIDTH - MARGIN) / f64::from(columns);
        y += 12.0;
        for pair in panels.chunks(columns as usize) {
            let mut lowest = y;
            for (column, (name, series)) in pair.iter().enumerate() {
                let x = MARGIN / 2.0 + width * column as f64;
                // Panels of one quantity side by side have one scale.
                let alike = pair.iter().filter(|(_, other)| unit(other) == unit(series));
                let range = range(alike.flat_map(|(_, other)| other));
                lowest = lowest.max(panel(&mut svg, (name, series), range, (x, y), width));
            }
            y = lowest;
        }
        let svg = svg.into_file(y + 8.0, &theme::file_style(), &self.name);
        let pixels = png::render(&svg).map_err(|why| format!("{}: {why}", self.name))?;
        Ok((svg, pixels))
    }
}

impl Point {
    /// Mean, minimum and maximum of `values` at `x`; `None` without values.
    pub fn over(x: f64, values: &[f64]) -> Option<Self> {
        let n = values.len();
        let lo = values.iter().copied().reduce(f64::min)?;
        let hi = values.iter().copied().reduce(f64::max)?;
        // Rounding must not move the mean of equal values beyond them.
        let y = (values.iter().sum::<f64>() / n as f64).clamp(lo, hi);
        Some(Self { x, y, lo, hi, n })
    }

    /// A single value at `x`.
    pub fn single(x: f64, y: f64) -> Self {
        Self {
            x,
            y,
            lo: y,
            hi: y,
            n: 1,
        }
    }
}

impl Series {
    /// Creates a series of `points`, with the units of both axes.
    pub fn new(name: String, (x_unit, y_unit): (&str, &str), points: Vec<Point>) -> Self {
        Self {
            name,
            x_unit: x_unit.to_owned(),
            y_unit: y_unit.to_owned(),
            points,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<f64> for Cell {
    /// Rounds to a meaningful resolution.
    fn from(number: f64) -> Self {
        Self::Number((number * 1e4).round() / 1e4)
    }
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::Empty, Self::from)
    }
}

/// Panel and line of the name of a series.
fn split(name: &str) -> (&str, &str) {
    name.split_once(": ").unwrap_or(("", name))
}

/// Unit of the vertical axis of a panel.
fn unit<'a>(series: &[&'a Series]) -> Option<&'a str> {
    series.first().map(|first| first.y_unit.as_str())
}

/// Smallest and largest value of these series.
fn range<'a>(series: impl Iterator<Item = &'a &'a Series>) -> (f64, f64) {
    bounds(series.flat_map(|s| &s.points).map(|p| (p.lo, p.hi)))
}

/// Smallest of the first, and largest of the second numbers.
fn bounds(pairs: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let (from, to) = pairs.fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(from, to), (lo, hi)| (from.min(lo), to.max(hi)),
    );
    if from > to { (0.0, 1.0) } else { (from, to) }
}

/// Draws a panel, of which the values are in a range, and returns its lower edge.
fn panel(
    svg: &mut Svg,
    (name, series): (&str, &[&Series]),
    (y_from, y_to): (f64, f64),
    (x, y): (f64, f64),
    width: f64,
) -> f64 {
    let left = x + 58.0;
    svg.text("ink bold", (left, y + 14.0), Anchor::Start, name);
    let top = legend(svg, series, (left, y + 32.0), x + width - 12.0);
    let area = Area {
        x: left,
        y: top,
        width: x + width - 12.0 - left,
        height: 190.0,
    };
    let points = series.iter().flat_map(|s| &s.points);
    let (x_from, x_to) = bounds(points.map(|p| (p.x, p.x)));
    let counted = series.iter().any(|s| is_counted(&s.x_unit));
    let x_scale = if counted {
        across_categories(area, x_from, x_to)
    } else {
        across_values(area, x_from, x_to)
    };
    let floor = if counted { 0.0 } else { floor_of(y_from, y_to) };
    let moments = series.iter().filter(|s| is_moments(s)).count();
    // The rows of event strokes are above the lines.
    let room = 1.0 / (1.0 - (moments as f64 * ROW + 4.0) / area.height);
    let y_scale = Scale {
        from: floor,
        to: if y_to > floor {
            floor + round_top((y_to - floor) * if moments > 0 { room } else { 1.0 }, 4)
        } else {
            floor + 1.0
        },
        start: area.bottom(),
        end: area.y,
    };
    axes(svg, area, (x_scale, y_scale), name, series);
    let count = series.len() as f64;
    let each = (x_scale.at(x_from + 1.0) - x_scale.at(x_from)) / (count + 1.0);
    let width = each.min(BAR);
    let mut row = y_scale.end + 2.0;
    for (index, each) in series.iter().enumerate() {
        let (class, series) = (colour(series, index), each);
        if is_moments(series) {
            strokes(svg, series, class, x_scale, row);
            row += ROW;
        } else if is_counted(&series.x_unit) {
            let aside = Aside {
                // Bars of different series stand side by side.
                shift: (index as f64 - (count - 1.0) / 2.0) * width,
                width,
            };
            bars(svg, series, class, (x_scale, y_scale), aside);
        } else {
            draw(svg, series, class, (x_scale, y_scale));
        }
    }
    area.bottom() + 40.0
}

/// Scale of categories, with space for the bars of the first and the last one.
fn across_categories(area: Area, from: f64, to: f64) -> Scale {
    Scale {
        from: from - 0.5,
        to: to + 0.5,
        start: area.x,
        end: area.right(),
    }
}

fn across_values(area: Area, from: f64, to: f64) -> Scale {
    Scale {
        from,
        to: if to > from { to } else { from + 1.0 },
        start: area.x + 24.0,
        end: area.right() - 24.0,
    }
}

/// Lower end of an axis of values: zero, unless they are negative or far from it.
fn floor_of(from: f64, to: f64) -> f64 {
    if from < 0.0 {
        -round_top(-from, 4)
    } else if from > 0.6 * to {
        (from - (0.25 * (to - from)).max(0.02 * to)).max(0.0)
    } else {
        0.0
    }
}

fn legend(svg: &mut Svg, series: &[&Series], (left, top): (f64, f64), right: f64) -> f64 {
    let (mut x, mut y) = (left, top);
    for (index, each) in series.iter().enumerate() {
        let name = match run(split(&each.name).1) {
            Some((_, number)) if number > 1 => continue,
            Some((kind, _)) => kind,
            None => split(&each.name).1,
        };
        let width = 24.0 + text_width(name, 11.0);
        if x > left && x + width > right {
            (x, y) = (left, y + 16.0);
        }
        let class = format!("{} {}", colour(series, index), stroke(each));
        svg.line(&class, (x, y - 4.0), (x + 16.0, y - 4.0));
        svg.text("soft small", (x + 20.0, y), Anchor::Start, name);
        x += width + 12.0;
    }
    y + 28.0
}

/// The label of the vertical axis is omitted if the panel's title is the same.
fn axes(svg: &mut Svg, area: Area, (x, y): (Scale, Scale), panel: &str, series: &[&Series]) {
    let mut lines = String::new();
    let unit = if y.to >= 1e5 { 1e6 } else { 1.0 };
    for (value, label) in Ticks::round(y.from / unit, y.to / unit, 4).labelled() {
        let at = y.at(value * unit);
        polyline(&mut lines, [(area.x, at), (area.right(), at)].into_iter());
        svg.text("soft small", (area.x - 5.0, at + 4.0), Anchor::End, &label);
    }
    let across = series.first().map_or("", |first| &first.x_unit);
    // Categories may have names, as in "node: isi, columbia".
    let (across, names) = across.split_once(": ").unwrap_or((across, ""));
    let names: Vec<&str> = names.split(", ").filter(|name| !name.is_empty()).collect();
    let counted = is_counted(across);
    for (value, label) in Ticks::round(x.from, x.to, 6).labelled() {
        let number = format!("{value}");
        let label = match names.get(value as usize) {
            _ if !counted => &label,
            _ if value.fract() != 0.0 => continue,
            Some(name) => *name,
            None => &number,
        };
        let at = (x.at(value), area.bottom() + 14.0);
        svg.text("soft small", at, Anchor::Middle, label);
    }
    svg.path("grid", &lines);
    let foot = [(area.x, area.bottom()), (area.right(), area.bottom())];
    svg.line("axis", foot[0], foot[1]);
    let at = (area.right(), area.bottom() + 28.0);
    svg.text("soft small", at, Anchor::End, across);
    if let Some(first) = series.first().filter(|first| first.y_unit != panel) {
        let prefix = if unit > 1.0 { "M" } else { "" };
        let at = (area.x - 50.0, area.y - 12.0);
        let upright = format!("{prefix}{}", first.y_unit);
        svg.text("soft small", at, Anchor::Start, &upright);
    }
}

/// Horizontal offset of the bars of a series from their category.
#[derive(Clone, Copy)]
struct Aside {
    shift: f64,
    width: f64,
}

/// Draws a bar for each point, with its spread.
fn bars(svg: &mut Svg, series: &Series, class: &str, (x, y): (Scale, Scale), aside: Aside) {
    let mut spread = String::new();
    for p in &series.points {
        let (middle, top) = (x.at(p.x) + aside.shift, y.at(p.y));
        let bar = Area {
            x: middle - aside.width / 2.0,
            y: top,
            width: 0.875 * aside.width,
            height: y.start - top,
        };
        svg.rect(&format!("{class} solid"), bar);
        let ends = [(middle, y.at(p.lo)), (middle, y.at(p.hi))];
        polyline(&mut spread, ends.into_iter());
    }
    svg.path("axis", &spread);
}

/// Draws a vertical stroke at the time of each event.
fn strokes(svg: &mut Svg, series: &Series, class: &str, x: Scale, top: f64) {
    let mut path = String::new();
    for p in &series.points {
        let at = x.at(p.x);
        polyline(&mut path, [(at, top), (at, top + ROW - 2.0)].into_iter());
    }
    svg.path(&format!("{class} line"), &path);
}

fn draw(svg: &mut Svg, series: &Series, class: &str, (x, y): (Scale, Scale)) {
    let at = |p: &Point, value: f64| (x.at(p.x), y.at(value));
    let points = &series.points;
    let ordered = points.windows(2).all(|pair| pair[0].x < pair[1].x);
    if !ordered || points.len() == 1 {
        let mut dots = String::new();
        for p in points {
            let (x, y) = at(p, p.y);
            let _ = write!(dots, "M{} {}h0", number(x), number(y));
        }
        svg.path(&format!("{class} dots"), &dots);
    } else {
        let spread = points.iter().any(|p| p.hi - p.lo > 1e-9);
        if spread {
            let mut band = String::new();
            let above = points.iter().map(|p| at(p, p.hi));
            let below = points.iter().rev().map(|p| at(p, p.lo));
            polyline(&mut band, above.chain(below));
            band.push('Z');
            svg.path(&format!("{class} band"), &band);
        }
        let mut line = String::new();
        polyline(&mut line, points.iter().map(|p| at(p, p.y)));
        svg.path(&format!("{class} {}", stroke(series)), &line);
    }
    // With few points, the spread of each is drawn.
    if points.len() <= 8 {
        let mut bars = String::new();
        for p in points {
            polyline(&mut bars, [at(p, p.lo), at(p, p.hi)].into_iter());
        }
        svg.path(&format!("{class} tick"), &bars);
    }
}

/// Published values have the colour of the series that reproduces them, which has the same name, or
/// that of the printed law. Runs of one kind, such as "sym = on, R2", have the colour of the first.
fn colour(series: &[&Series], index: usize) -> &'static str {
    if is_counted(&series[index].x_unit) {
        // Bars stand side by side.
        return theme::flow(index);
    }
    let line = |series: &Series| split(&series.name).1.to_owned();
    let own = line(series[index]);
    let wanted: Vec<String> = if let Some(base) = own.strip_suffix(PUBLISHED) {
        vec![base.to_owned(), format!("{base} paper")]
    } else if let Some((kind, _)) = run(&own) {
        vec![format!("{kind}{RUN}1")]
    } else {
        Vec::new()
    };
    // Colours are counted by kind.
    let first = |at: usize| run(&line(series[at])).is_none_or(|(_, number)| number == 1);
    let place = series
        .iter()
        .position(|other| wanted.contains(&line(other)));
    let place = place.unwrap_or(index);
    theme::flow((0..place).filter(|at| first(*at)).count())
}

/// Kind and number of a run: "sym = on" and 2 of "sym = on, R2".
fn run(line: &str) -> Option<(&str, u32)> {
    let (kind, number) = line.rsplit_once(RUN)?;
    Some((kind, number.parse().ok()?))
}

/// Separates kind and number of a run in the name of a series.
const RUN: &str = ", R";

/// Class of a line: dashed for published values.
fn stroke(series: &Series) -> &'static str {
    if series.name.ends_with(PUBLISHED) && !is_counted(&series.x_unit) {
        "dashed"
    } else {
        "line"
    }
}

/// End of the names of series with published values.
pub const PUBLISHED: &str = ", published";

/// Whether the series has the times of events rather than values.
fn is_moments(series: &Series) -> bool {
    split(&series.name).1.starts_with("event ")
}

fn is_counted(unit: &str) -> bool {
    COUNTED.iter().any(|counted| unit.starts_with(counted))
}

/// Units of categorical axes: lines between categories are meaningless.
const COUNTED: [&str; 4] = ["event", "mode", "node", "plane"];
/// Maximum width of a bar.
const BAR: f64 = 8.0;
/// Height of a row of event strokes.
const ROW: f64 = 9.0;
const WIDTH: f64 = 960.0;
const MARGIN: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_a_panel_for_each_group_of_series() {
        let point = |x: f64| Point {
            x,
            y: x * 2.0,
            lo: x,
            hi: x * 3.0,
            n: 3,
        };
        let series = |name: &str, points: Vec<Point>| Series {
            name: name.to_owned(),
            x_unit: "s".to_owned(),
            y_unit: "dB".to_owned(),
            points,
        };
        let it = Figure {
            name: "itcp/fig11".to_owned(),
            source: "a paper with a long name ".repeat(12),
            series: vec![
                series("isi: iOPT", vec![point(0.0), point(1.0), point(2.0)]),
                series("isi: Classic", vec![point(2.0), point(1.0)]),
                series("willab: iOPT", Vec::new()),
            ],
            caption: "d = 4 s, seeds 1 to 10".to_owned(),
            ..Figure::default()
        };
        let (svg, png) = it.draw().unwrap();
        for text in [
            ">d = 4 s, seeds 1 to 10<",
            ">isi<",
            ">willab<",
            ">Classic<",
            ">dB<",
            ">s<",
            " band\"",
            " dots\"",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(png.starts_with(b"\x89PNG"));
        let lines = wrapped(&it.source, 11.0, WIDTH - 2.0 * MARGIN);
        assert!(lines.len() > 1 && lines.iter().all(|line| text_width(line, 11.0) < WIDTH));
        assert_eq!(lines.join(" "), it.source.trim_end());
    }
}
