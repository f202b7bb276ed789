//! Values of a chart at a time, for the pointer, the keyboard and a table.

use core::fmt::Write as _;

use serde::Serialize;

use super::{Chart, Panel};
use crate::scale::Ticks;
use crate::series::thin;
use crate::svg::escape;

/// Values of one line, set of dots or strip of a panel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    name: String,
    /// Colour class, which may be empty.
    colour: &'static str,
    #[serde(flatten)]
    values: Values,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Values {
    /// Lines, with no value between them.
    Lines(Vec<Vec<(f64, f64)>>),
    Dots(Dots),
    /// Begin, end and name of states. Of overlapping ones the last counts.
    Spans(Vec<(f64, f64, &'static str)>),
}

/// Values at discrete times.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Dots {
    /// Maximum distance in seconds at which a value is that of the nearest dot.
    reach: f64,
    /// Texts that the dots refer to.
    states: Vec<&'static str>,
    /// Time, value and index of the text, in order of time.
    points: Vec<(f64, Option<f64>, usize)>,
}

impl Reading {
    /// A line in pieces, in seconds and in the values of the panel.
    pub fn lines(name: &str, colour: &'static str, pieces: &[Vec<(f64, f64)>]) -> Self {
        Self {
            name: name.to_owned(),
            colour,
            values: Values::Lines(pieces.to_vec()),
        }
    }

    /// Values that are constant over `reach` seconds before and after their times.
    pub fn bars(
        name: &str,
        colour: &'static str,
        reach: f64,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let points = points.into_iter();
        let points = points.map(|(at, value)| (at, Some(value), ""));
        Self::dots(name, colour, reach, points)
    }

    /// Dots, each with a text that may be empty. `reach` as in [`bars`](Self::bars).
    pub fn dots(
        name: &str,
        colour: &'static str,
        reach: f64,
        points: impl IntoIterator<Item = (f64, Option<f64>, &'static str)>,
    ) -> Self {
        let mut states: Vec<&'static str> = Vec::new();
        let mut index = |state| {
            let known = states.iter().position(|other| *other == state);
            known.unwrap_or_else(|| {
                states.push(state);
                states.len() - 1
            })
        };
        let points = points.into_iter();
        let points = points.map(|(at, value, state)| (at, value, index(state)));
        let points = points.collect();
        Self {
            name: name.to_owned(),
            colour,
            values: Values::Dots(Dots {
                reach,
                states,
                points,
            }),
        }
    }

    /// States with their intervals in seconds; the last has priority.
    pub fn spans(name: &str, spans: impl IntoIterator<Item = (f64, f64, &'static str)>) -> Self {
        Self {
            name: name.to_owned(),
            colour: "",
            values: Values::Spans(spans.into_iter().collect()),
        }
    }

    /// In the unit of the panel and with the precision of a reader. Points that the drawing cannot
    /// show are left out.
    fn prepared(mut self, unit: &Unit, resolution: f64) -> Self {
        let time = |at: f64| (at * 1e3).round() / 1e3;
        let places = 10_f64.powi(unit.digits as i32);
        let value = |value: f64| (value / unit.size * places).round() / places;
        match &mut self.values {
            Values::Lines(pieces) => {
                for piece in pieces {
                    let thinned = thin(piece, 2.0 * resolution);
                    let points = thinned.iter().map(|(at, v)| (time(*at), value(*v)));
                    *piece = points.collect();
                }
            }
            Values::Dots(dots) => {
                for (at, v, _) in &mut dots.points {
                    (*at, *v) = (time(*at), v.map(value));
                }
            }
            Values::Spans(spans) => {
                for (from, to, _) in spans {
                    (*from, *to) = (time(*from), time(*to));
                }
            }
        }
        self
    }

    /// Text for the value at `at` seconds; `None` without a value.
    fn at(&self, at: f64, digits: usize) -> Option<String> {
        let text = |value: f64| format!("{value:.digits$}");
        match &self.values {
            Values::Lines(pieces) => {
                let mut all = pieces.iter();
                let piece = all.find(|piece| piece.last().is_some_and(|last| at <= last.0))?;
                let next = piece.partition_point(|point| point.0 < at);
                let right = piece.get(next)?;
                if right.0 <= at {
                    return Some(text(right.1));
                }
                let left = piece.get(next.checked_sub(1)?)?;
                let share = (at - left.0) / (right.0 - left.0);
                Some(text(left.1 + share * (right.1 - left.1)))
            }
            Values::Dots(dots) => {
                let away = |point: &&(f64, Option<f64>, usize)| (point.0 - at).abs();
                let nearest = dots.points.iter();
                let nearest = nearest.min_by(|a, b| away(a).total_cmp(&away(b)))?;
                if away(&nearest) > dots.reach {
                    return None;
                }
                let parts = [
                    nearest.1.map(text).unwrap_or_default(),
                    dots.states[nearest.2].to_owned(),
                ];
                let parts = parts.into_iter().filter(|part| !part.is_empty());
                Some(parts.collect::<Vec<_>>().join(" "))
            }
            Values::Spans(spans) => {
                let mut spans = spans.iter().rev();
                let span = spans.find(|(from, to, _)| (*from..*to).contains(&at));
                span.map(|(.., name)| (*name).to_owned())
            }
        }
    }
}

/// Unit of the values of a panel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// Divisor of values before they are printed.
    pub size: f64,
    /// Name of the unit; may be empty.
    pub name: &'static str,
    /// Number of decimals.
    pub digits: usize,
}

impl Unit {
    /// Unit of a panel up to `top`, with a resolution of about a thousandth of it.
    pub(super) fn of(size: f64, name: &'static str, top: f64) -> Self {
        let digits = match top / size {
            most if most >= 500.0 => 0,
            most if most >= 50.0 => 1,
            _ => 2,
        };
        Self { size, name, digits }
    }

    pub(super) const NONE: Self = Self {
        size: 1.0,
        name: "",
        digits: 0,
    };
}

/// Values of the panels of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Readout {
    /// Time at the left and the right end, in seconds.
    span: (f64, f64),
    panels: Vec<PanelReadout>,
}

/// Values of a panel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PanelReadout {
    /// Title of the panel; may be empty.
    name: String,
    unit: &'static str,
    digits: usize,
    /// Value at the bottom and at the top, in the unit.
    range: (f64, f64),
    series: Vec<Reading>,
    #[serde(skip)]
    panel: Panel,
}

impl Chart {
    /// Adds values of `panel`, whose title is `name`, to the readout.
    pub fn read(&mut self, panel: &Panel, name: &str, reading: Reading) {
        let reading = reading.prepared(&panel.unit, self.resolution());
        if let Some(last) = self.readouts.last_mut()
            && last.panel.area == panel.area
        {
            last.series.push(reading);
            return;
        }
        let Panel { unit, y, .. } = *panel;
        self.readouts.push(PanelReadout {
            name: name.to_owned(),
            unit: unit.name,
            digits: unit.digits,
            range: (y.from / unit.size, y.to / unit.size),
            series: vec![reading],
            panel: *panel,
        });
    }

    /// Draws the areas that react to the pointer, and returns the values of the panels; `None`
    /// without any.
    pub fn readout(&mut self) -> Option<Readout> {
        let panels = core::mem::take(&mut self.readouts);
        for readout in &panels {
            self.svg.rect("hit", readout.panel.area);
        }
        let span = (self.time.from, self.time.to);
        (!panels.is_empty()).then_some(Readout { span, panels })
    }
}

impl Readout {
    /// Data element for the script of the page.
    pub fn data(&self) -> String {
        let json = serde_json::to_string(self).expect("numbers and texts are valid JSON");
        // The text of a script element ends at the first end tag.
        let json = json.replace('<', "\\u003c");
        format!("<script type=\"application/json\" class=\"readout-data\">{json}</script>")
    }

    /// Table of the values at round times: the readout without a pointer or without scripts.
    pub fn table(&self) -> String {
        let mut html = String::from(
            "<details class=\"values\"><summary>Values as a table</summary><div class=\"scroll\">\
             <table><thead><tr><th>s</th>",
        );
        for panel in &self.panels {
            for series in &panel.series {
                let unit = Some(panel.unit).filter(|unit| !unit.is_empty());
                let unit = unit.map_or(String::new(), |unit| format!(", {unit}"));
                let _ = write!(
                    html,
                    "<th>{}<small>{}{unit}</small></th>",
                    escape(&panel.name),
                    escape(&series.name)
                );
            }
        }
        html.push_str("</tr></thead><tbody>");
        for (at, label) in Ticks::seconds(self.span.0, self.span.1, ROWS).labelled() {
            let _ = write!(html, "<tr><th>{label}</th>");
            for panel in &self.panels {
                for series in &panel.series {
                    let value = series.at(at, panel.digits);
                    let value = value.map_or("–".to_owned(), |value| escape(&value));
                    let _ = write!(html, "<td>{value}</td>");
                }
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table></div></details>");
        html
    }
}

/// Approximate number of rows of a table.
const ROWS: usize = 20;

#[cfg(test)]
mod tests {
    use super::super::Form;
    use super::*;

    #[test]
    fn values_are_those_at_the_time() {
        let text = |reading: &Reading, at| reading.at(at, 1);
        let pieces = [vec![(1.0, 10.0), (2.0, 20.0), (2.0, 5.0)], vec![(4.0, 7.0)]];
        let line = Reading::lines("line", "f0", &pieces);
        for (at, wanted) in [
            (0.5, None),
            (1.0, Some("10.0")),
            (1.5, Some("15.0")),
            (3.0, None),
            (4.0, Some("7.0")),
            (4.5, None),
        ] {
            assert_eq!(text(&line, at).as_deref(), wanted, "line at {at}");
        }
        let frames = [
            (1.0, Some(80.0), ""),
            (1.1, None, "lost"),
            (1.2, Some(900.0), "late"),
        ];
        let dots = Reading::dots("frame", "f0", 0.2, frames);
        for (at, wanted) in [
            (0.7, None),
            (0.9, Some("80.0")),
            (1.12, Some("lost")),
            (1.3, Some("900.0 late")),
        ] {
            assert_eq!(text(&dots, at).as_deref(), wanted, "dot at {at}");
        }
        let spans = Reading::spans("state", [(0.0, 9.0, "steady"), (2.0, 3.0, "blackout")]);
        for (at, wanted) in [(1.0, Some("steady")), (2.5, Some("blackout")), (9.0, None)] {
            assert_eq!(text(&spans, at).as_deref(), wanted, "state at {at}");
        }
    }

    #[test]
    fn a_name_cannot_end_the_data() {
        let mut chart = Chart::new("c", Form::Wide, (0.0, 1.0), &[]);
        let panel = chart.lane(0.0, 9.0);
        let reading = Reading::lines("</script><b>", "f0", &[]);
        chart.read(&panel, "<!--", reading);
        let readout = chart.readout().expect("a panel");
        let data = readout.data();
        assert_eq!(data.matches("</script>").count(), 1, "{data}");
        assert!(!data.contains("<!--") && !readout.table().contains("<b>"));
    }
}
