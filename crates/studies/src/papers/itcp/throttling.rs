//! Figure 5: the throttling model, with the backlog and the delay at the rate of each law.

use core::time::Duration;

use tidegate_core::tcp_rate::Law;

use super::super::law::{Answer, Throttle};
use super::super::runs::PapersError;
use super::super::{Cell, Claim, Entry, Figure, Options, Point, Progress, Series, Table};

/// Slope m in b/s per second: 2I/RTT of a segment of 1460 B and the 148 ms to Poland.
const SLOPE: f64 = 157_838.0;
/// Q in bits: 20 ms at 2 Mb/s, the reaction time that is assumed for Figure 6.
const BACKLOG: f64 = 40_000.0;
const BOUND: Duration = Duration::from_secs(4);
/// Points of each line.
const POINTS: u32 = 240;

#[expect(clippy::unnecessary_wraps, reason = "the signature of an entry")]
pub(super) fn fig5(
    entry: &Entry,
    _options: &Options,
    progress: Progress<'_>,
) -> Result<Figure, PapersError> {
    let mut figure = entry.figure();
    let throttle = Throttle {
        slope: SLOPE,
        backlog: BACKLOG,
        bound: BOUND,
    };
    let mut rows = Vec::new();
    for law in [Law::Exact, Law::Paper] {
        let Some(answer) = throttle.answer(law) else {
            continue;
        };
        let name = law.name();
        rows.push(row(name, &answer));
        lines(&mut figure, name, &throttle, &answer);
        figure.claims.extend(claims(name, &answer));
    }
    let columns = [
        "law",
        "h_best b/s",
        "even point T s",
        "T_recovery s",
        "largest delay s",
    ];
    figure.table = Some(Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    });
    figure.notes.push(format!(
        "The published figure is a drawing without numbers. Here m = {SLOPE:.0} b/s per second (2I/RTT \
         of 1460 B and 148 ms), Q = {BACKLOG:.0} bits and d = {} s. w grows from zero at the timeout \
         (t = 0), g is the reduced rate until T_recovery. The largest delay is h/(2m) + Q/h.",
        BOUND.as_secs()
    ));
    progress(1.0);
    Ok(figure)
}

fn row(name: &str, answer: &Answer) -> Vec<Cell> {
    vec![
        name.into(),
        answer.rate.into(),
        answer.even.as_secs_f64().into(),
        answer.recovery.as_secs_f64().into(),
        answer.largest_delay.as_secs_f64().into(),
    ]
}

/// Rates, and the delay of data over the time at which it is made.
fn lines(figure: &mut Figure, name: &str, throttle: &Throttle, answer: &Answer) {
    let end = answer.recovery.as_secs_f64() * 1.1;
    let times = (0..=POINTS).map(|n| end * f64::from(n) / f64::from(POINTS));
    let recovery = answer.recovery.as_secs_f64();
    let line = |of: &dyn Fn(f64) -> f64| {
        let points = times.clone().map(|t| Point::single(t, of(t)));
        points.collect::<Vec<_>>()
    };
    let generated = |t: f64| if t < recovery { answer.rate } else { f64::NAN };
    let rates = [
        ("w(t)", line(&|t| throttle.slope * t)),
        ("g(t)", line(&generated)),
    ];
    for (what, points) in rates {
        let points = points.into_iter().filter(|p| p.y.is_finite()).collect();
        figure.series.push(Series::new(
            format!("{name}, rates: {what}"),
            ("s after the timeout", "b/s"),
            points,
        ));
    }
    // Data made at t leaves when w has carried Q and all that was made before.
    let delay = |t: f64| {
        let carried = throttle.backlog + answer.rate * t;
        libm::sqrt(2.0 * carried / throttle.slope) - t
    };
    let bound = throttle.bound.as_secs_f64();
    for (what, points) in [("delay", line(&delay)), ("bound d", line(&|_| bound))] {
        let points = points.into_iter().filter(|p| p.x < recovery && p.y >= 0.0);
        figure.series.push(Series::new(
            format!("{name}, delay: {what}"),
            ("s after the timeout", "s"),
            points.collect(),
        ));
    }
}

fn claims(name: &str, answer: &Answer) -> [Claim; 1] {
    let delay = answer.largest_delay.as_secs_f64();
    let bound = BOUND.as_secs_f64();
    [Claim::new(
        format!("{name}: at the rate of the law no data is later than d (largest delay, s)"),
        Some(bound),
        delay,
        delay <= bound * (1.0 + 1e-9),
    )
    .by_construction()]
}
