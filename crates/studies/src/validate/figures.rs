//! Charts that compare ns-2 with the simulator.

use super::Row;
use tidegate_report::plot::{Figure, Point, Series};

/// Chart of the rows of a set.
struct Plan {
    name: &'static str,
    about: &'static str,
    set: &'static str,
    /// Metrics and the labels of their lines.
    numbers: &'static [(&'static str, &'static str)],
    y_unit: &'static str,
    place: fn(&[&str]) -> Option<Place>,
}

/// Panel and abscissa of a point.
struct Place {
    panel: String,
    x: f64,
    x_unit: &'static str,
    /// Factor of the values.
    times: f64,
}

/// The charts that have rows. Bars and bands are one standard deviation over seeds.
pub(super) fn figures(rows: &[Row]) -> Vec<Figure> {
    let figures = PLANS.iter().map(|plan| plan.figure(rows));
    figures.filter(|figure| !figure.series.is_empty()).collect()
}

impl Plan {
    fn figure(&self, rows: &[Row]) -> Figure {
        let mut series: Vec<Series> = Vec::new();
        for row in rows {
            let Some((point, number)) = row.what.split_once(": ") else {
                continue;
            };
            let mut words = point.split(' ');
            let label = self.numbers.iter().find(|(known, _)| *known == number);
            let (Some(set), Some((_, label)), Some(ours)) = (words.next(), label, row.ours) else {
                continue;
            };
            let words: Vec<&str> = words.collect();
            let Some(place) = (self.place)(&words).filter(|_| set == self.set) else {
                continue;
            };
            for (source, mean, spread, n) in [
                ("ns-2", row.theirs, row.spread, row.n),
                ("ours", ours, row.our_spread, row.our_n),
            ] {
                let name = format!("{}: {label}{source}", place.panel);
                let [y, spread] = [mean, spread].map(|value| value * place.times);
                let point = Point {
                    x: place.x,
                    y,
                    lo: y - spread,
                    hi: y + spread,
                    n: n as usize,
                };
                match series.iter_mut().find(|series| series.name == name) {
                    Some(series) => series.points.push(point),
                    None => series.push(Series {
                        name,
                        x_unit: place.x_unit.to_owned(),
                        y_unit: self.y_unit.to_owned(),
                        points: vec![point],
                    }),
                }
            }
        }
        for series in &mut series {
            series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        Figure {
            name: self.name.to_owned(),
            source: self.about.to_owned(),
            series,
            ..Figure::default()
        }
    }
}

/// Loss rates have a logarithmic axis.
const LOSS: &str = "log10 of the loss rate p";

const PLANS: [Plan; 4] = [
    Plan {
        name: "response",
        about: "One flow that loses packets at random: packets per round trip times the square root of the loss rate p, which is constant in the simplest TCP throughput equation. Bars and bands: one standard deviation over seeds.",
        set: "response",
        numbers: &[("flow.pps", "")],
        y_unit: "packets per round trip × √p",
        place: |words| {
            let [label, control, p, rtt, ..] = words else {
                return None;
            };
            let (p, seconds): (f64, f64) = (p.parse().ok()?, rtt.parse().ok()?);
            let label = if label == control {
                String::new()
            } else {
                format!(" {label}")
            };
            Some(Place {
                panel: format!("{control}{label}, {:.0} ms", 1e3 * seconds),
                x: libm::log10(p),
                x_unit: LOSS,
                times: seconds * p.sqrt(),
            })
        },
    },
    Plan {
        name: "shared",
        about: "Two groups of flows at one RED queue of 1875 packets per second: rate of a flow of each group, relative to the fair share. Bars and bands: one standard deviation over seeds.",
        set: "shared",
        numbers: &[("a.pps", "first group, "), ("b.pps", "second group, ")],
        y_unit: "of the fair share",
        place: |words| {
            let [label, queue, flows] = words else {
                return None;
            };
            let x: f64 = flows.parse().ok()?;
            // `one_vs_n` has one flow in the first group.
            let all = if *label == "one_vs_n" {
                x + 1.0
            } else {
                2.0 * x
            };
            Some(Place {
                panel: format!("{}, {queue}", label.replace('_', " ")),
                x,
                x_unit: "flows in a group",
                times: all / 1875.0,
            })
        },
    },
    Plan {
        name: "satellite",
        about: "Ten flows over a link of 1300 packets per second with random loss: receiving rate of a flow, in packets per second. Bars and bands: one standard deviation over seeds; ns-2 ran some points once.",
        set: "satellite",
        numbers: &[("flow.pps", "")],
        y_unit: "packets/s of a flow",
        place: |words| {
            let [label, control, p, rtt, queue, outage] = words else {
                return None;
            };
            let kind = label.split_once("_D").map_or(*label, |(kind, _)| kind);
            let (x, x_unit, over) = match kind {
                "K" => (queue, "packets of queue", "queues"),
                "RTT" => (rtt, "round trip, s", "round trips"),
                "blackout" => (outage, "outage, s", "outages"),
                "P" => (p, LOSS, "loss rates"),
                "P_ackloss" => (p, LOSS, "loss rates, acknowledgements too"),
                "P_fine" => (p, LOSS, "loss rates, with fine grain"),
                _ => return None,
            };
            let x: f64 = x.parse().ok()?;
            Some(Place {
                panel: format!("{control} over {over}"),
                x: if x_unit == LOSS { libm::log10(x) } else { x },
                x_unit,
                times: 1.0,
            })
        },
    },
    Plan {
        name: "red",
        about: "A constant-rate flow into RED: share of dropped packets, over the load.",
        set: "red",
        numbers: &[("stream.loss", "")],
        y_unit: "dropped",
        place: |words| {
            let [thresholds, load] = words else {
                return None;
            };
            Some(Place {
                panel: (*thresholds).to_owned(),
                x: load.parse().ok()?,
                x_unit: "load",
                times: 1.0,
            })
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_have_reference_and_simulator() {
        let row = |what: &str| Row {
            what: what.to_owned(),
            theirs: 100.0,
            ours: Some(110.0),
            spread: 5.0,
            our_spread: 2.0,
            n: 1,
            our_n: 3,
            allowed: 10.0,
            holds: true,
            excuse: None,
        };
        let rows = [
            row("satellite P rap 0.01 0.55 50 0: flow.pps"),
            row("satellite P rap 0.001 0.55 50 0: flow.pps"),
            row("satellite P rap 0.001 0.55 50 0: flow.unfair"),
            row("shared one_vs_n auto 24: a.pps"),
        ];
        let [shared, satellite] = &figures(&rows)[..] else {
            panic!("two of four sets");
        };
        let names = satellite.series.iter().map(|series| series.name.as_str());
        assert!(names.eq(["rap over loss rates: ns-2", "rap over loss rates: ours"]));
        let points: Vec<_> = satellite.series[1]
            .points
            .iter()
            .map(|p| (p.x, p.lo, p.y, p.hi))
            .collect();
        assert_eq!(
            points,
            [(-3.0, 108.0, 110.0, 112.0), (-2.0, 108.0, 110.0, 112.0)]
        );
        let share = shared.series[0].points[0];
        assert!((share.y - 100.0 * 25.0 / 1875.0).abs() < 1e-9, "{share:?}");
    }
}
