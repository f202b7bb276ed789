//! Synthetic paths with the statistics of recordings.
//!
//! The capacity of a path is a mean times a lognormal process of first order times fades. Fades begin
//! as a Poisson process, last an exponential time, and have a factor that is uniform in its logarithm.
//! The round trip is a minimum plus half of a normal distribution plus stalls: after a stall everything
//! arrives at once, so the delay decays as fast as time passes. Loss is that of a channel with two
//! states. The paths of a kind go from calm to troubled: each parameter is interpolated
//! geometrically. `docs/bench.md` compares the result with recordings.

use core::f64::consts::TAU;
use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::random::{Seed, unit};
use tidegate_core::units::Rate;
use tidegate_sim::scenario::recorded_path::{RecordedPath, Row};

use super::recorded::NamedPath;

/// All paths, by kind.
pub(super) fn paths() -> Vec<NamedPath> {
    let of_kind = |kind: &'static Kind| (0..EACH).filter_map(move |number| kind.path(number));
    KINDS.iter().flat_map(of_kind).collect()
}

/// Parameters of a kind of path. A range is from the calm to the troubled end.
struct Kind {
    name: &'static str,
    /// Interval between changes of the capacity in seconds.
    step: f64,
    /// Correlation time of the capacity in seconds.
    memory: f64,
    /// Mean capacity without fades in Mb/s.
    rate: Range,
    /// Exponent of the place of a path in the range of its rate: most paths of a high one are calm.
    bend: f64,
    /// Standard deviation of the logarithm of the capacity.
    spread: Range,
    fades: Fades,
    delay: Option<Delay>,
}

/// Periods of low capacity.
struct Fades {
    per_minute: Range,
    /// Mean length in seconds.
    length: f64,
    /// Remaining share of the capacity, from the deepest fade to the slightest.
    factor: Range,
}

/// Round trip and loss.
struct Delay {
    /// Minimum in ms.
    least: Range,
    /// Standard deviation of the normal distribution in ms.
    spread: Range,
    stalls_per_minute: Range,
    /// Mean length of a stall in ms.
    stall: f64,
    /// Share of the time with losses.
    lossy: Range,
    /// Loss ratio in that time.
    loss: f64,
}

#[derive(Clone, Copy)]
struct Range(f64, f64);

impl Range {
    /// Value at `place`, in 0..=1, on a logarithmic scale.
    fn at(self, place: f64) -> f64 {
        self.0 * libm::pow(self.1 / self.0, place)
    }
}

impl Kind {
    fn path(&self, number: u32) -> Option<NamedPath> {
        let name = format!("{}-{}", self.name, number + 1);
        let stream = |part: &str| Seed(1).stream(&format!("bench/{name}/{part}"));
        let place = (f64::from(number) + 0.5) / f64::from(EACH);
        let step = self.delay.as_ref().map_or(self.step, |_| DELAY_STEP);
        let mut capacity = Process::new(self, place, stream("rate"));
        let mut delay = self
            .delay
            .as_ref()
            .map(|delay| DelayProcess::new(delay, place, stream("delay")));
        let mut rows = Vec::new();
        let (mut next, mut rate) = (0.0, 0.0);
        for n in 0..=(LENGTH / step) as u32 {
            let at = f64::from(n) * step;
            if at >= next {
                rate = capacity.next(at);
                next += self.step;
            }
            let (rtt, loss) = delay.as_mut().map_or((0.0, 0.0), DelayProcess::next);
            rows.push(Row {
                at: Duration::from_secs_f64(at),
                rate: Rate::bps((rate * 1e6) as u64),
                rtt: Duration::from_secs_f64(rtt / 1e3),
                loss,
            });
        }
        let has_delay = self.delay.is_some();
        let path = RecordedPath::new(rows, has_delay, has_delay).ok()?;
        Some(NamedPath {
            name,
            kind: self.name.to_owned(),
            path,
        })
    }
}

/// Capacity over time.
struct Process<'a> {
    kind: &'a Kind,
    mean: f64,
    spread: f64,
    fades_per_second: f64,
    /// Correlation between two steps, and the current value in standard deviations.
    correlation: f64,
    value: f64,
    /// Factor of the current fade, and its end in seconds.
    fade: (f64, f64),
    rng: Pcg64Mcg,
}

impl<'a> Process<'a> {
    fn new(kind: &'a Kind, place: f64, mut rng: Pcg64Mcg) -> Self {
        Self {
            kind,
            mean: kind.rate.at(libm::pow(place, kind.bend)),
            spread: kind.spread.at(place),
            fades_per_second: kind.fades.per_minute.at(place) / 60.0,
            correlation: libm::exp(-kind.step / kind.memory),
            value: normal(&mut rng),
            fade: (1.0, 0.0),
            rng,
        }
    }

    /// Capacity in Mb/s of the step at `at` seconds.
    fn next(&mut self, at: f64) -> f64 {
        let fresh = (1.0 - self.correlation * self.correlation).sqrt() * normal(&mut self.rng);
        self.value = self.correlation * self.value + fresh;
        if at >= self.fade.1 {
            self.fade = (1.0, at);
            if unit(&mut self.rng) < self.fades_per_second * self.kind.step {
                let factor = self.kind.fades.factor.at(unit(&mut self.rng));
                let length = exponential(self.kind.fades.length, &mut self.rng);
                self.fade = (factor, at + length);
            }
        }
        let log = self.spread * self.value - self.spread * self.spread / 2.0;
        self.mean * libm::exp(log) * self.fade.0
    }
}

/// Round trip and loss over time.
struct DelayProcess<'a> {
    delay: &'a Delay,
    least: f64,
    spread: f64,
    stalls_per_step: f64,
    lossy: f64,
    /// Remaining delay of the last stall in ms.
    stalled: f64,
    is_lossy: bool,
    rng: Pcg64Mcg,
}

impl<'a> DelayProcess<'a> {
    fn new(delay: &'a Delay, place: f64, rng: Pcg64Mcg) -> Self {
        Self {
            delay,
            least: delay.least.at(place),
            spread: delay.spread.at(place),
            stalls_per_step: delay.stalls_per_minute.at(place) / 60.0 * DELAY_STEP,
            lossy: delay.lossy.at(place),
            stalled: 0.0,
            is_lossy: false,
            rng,
        }
    }

    /// Round trip in ms and loss ratio of the next step.
    fn next(&mut self) -> (f64, f64) {
        self.stalled = (self.stalled - 1e3 * DELAY_STEP).max(0.0);
        if unit(&mut self.rng) < self.stalls_per_step {
            let stall = exponential(self.delay.stall, &mut self.rng);
            self.stalled = self.stalled.max(stall);
        }
        let (turn, leave) = (unit(&mut self.rng), DELAY_STEP / LOSSY_LENGTH);
        self.is_lossy = if self.is_lossy {
            turn >= leave
        } else {
            turn < leave * self.lossy / (1.0 - self.lossy)
        };
        let loss = if self.is_lossy { self.delay.loss } else { 0.0 };
        let spread = self.spread * normal(&mut self.rng).abs();
        (self.least + spread + self.stalled, loss)
    }
}

/// Sample of the standard normal distribution (Box and Muller, 1958).
fn normal(rng: &mut Pcg64Mcg) -> f64 {
    let (a, b) = (unit(rng), unit(rng));
    (-2.0 * libm::log(1.0 - a)).sqrt() * libm::cos(TAU * b)
}

fn exponential(mean: f64, rng: &mut Pcg64Mcg) -> f64 {
    -mean * libm::log(1.0 - unit(rng))
}

/// Fitted by hand to the means over the recordings of `docs/bench.md`, kind by kind.
const KINDS: [Kind; 7] = [
    Kind {
        name: "office-wifi",
        step: 0.2,
        memory: 0.6,
        rate: Range(33.0, 3.0),
        bend: 6.0,
        spread: Range(0.08, 0.3),
        fades: Fades {
            per_minute: Range(4.0, 40.0),
            length: 0.8,
            factor: Range(0.02, 0.5),
        },
        delay: None,
    },
    Kind {
        name: "restaurant-wifi",
        step: 0.2,
        memory: 1.0,
        rate: Range(30.0, 3.0),
        bend: 5.0,
        spread: Range(0.25, 0.6),
        fades: Fades {
            per_minute: Range(10.0, 45.0),
            length: 1.0,
            factor: Range(0.02, 0.5),
        },
        delay: None,
    },
    Kind {
        name: "gaming-wifi",
        step: 0.2,
        memory: 0.6,
        rate: Range(14.0, 3.5),
        bend: 1.0,
        spread: Range(0.17, 0.3),
        fades: Fades {
            per_minute: Range(3.0, 14.0),
            length: 0.3,
            factor: Range(0.3, 0.6),
        },
        delay: Some(Delay {
            least: Range(7.0, 17.0),
            spread: Range(4.0, 16.0),
            stalls_per_minute: Range(40.0, 240.0),
            stall: 30.0,
            lossy: Range(0.005, 0.2),
            loss: 0.22,
        }),
    },
    Kind {
        name: "cellular",
        step: 0.2,
        memory: 0.2,
        rate: Range(6.5, 5.0),
        bend: 1.0,
        spread: Range(0.23, 0.3),
        fades: Fades {
            per_minute: Range(3.0, 5.0),
            length: 1.5,
            factor: Range(0.2, 0.5),
        },
        delay: Some(Delay {
            least: Range(23.0, 27.0),
            spread: Range(7.0, 15.0),
            stalls_per_minute: Range(10.0, 200.0),
            stall: 30.0,
            lossy: Range(0.003, 0.15),
            loss: 0.3,
        }),
    },
    Kind {
        name: "wire",
        step: 0.2,
        memory: 0.2,
        rate: Range(12.8, 11.8),
        bend: 1.0,
        spread: Range(0.14, 0.18),
        fades: Fades {
            per_minute: Range(1.5, 5.0),
            length: 0.2,
            factor: Range(0.4, 0.55),
        },
        delay: Some(Delay {
            least: Range(3.0, 10.0),
            spread: Range(2.0, 10.0),
            stalls_per_minute: Range(5.0, 100.0),
            stall: 15.0,
            lossy: Range(0.001, 0.008),
            loss: 0.25,
        }),
    },
    Kind {
        name: "rail",
        step: 1.0,
        memory: 3.0,
        rate: Range(22.0, 6.5),
        bend: 1.0,
        spread: Range(0.5, 1.1),
        fades: Fades {
            per_minute: Range(1.5, 4.0),
            length: 3.0,
            factor: Range(0.01, 0.3),
        },
        delay: None,
    },
    Kind {
        name: "4g",
        step: 0.2,
        memory: 0.5,
        rate: Range(46.0, 3.0),
        bend: 2.0,
        spread: Range(0.27, 0.6),
        fades: Fades {
            per_minute: Range(12.0, 35.0),
            length: 0.3,
            factor: Range(0.1, 0.6),
        },
        delay: None,
    },
];

/// Number of paths of a kind.
const EACH: u32 = 4;
/// Length of a path in seconds.
const LENGTH: f64 = 90.0;
/// Interval between changes of round trip and loss in seconds.
const DELAY_STEP: f64 = 0.015;
/// Mean time in the lossy state in seconds.
const LOSSY_LENGTH: f64 = 0.03;

#[cfg(test)]
mod tests {
    use super::*;

    /// Statistics of a path, or their means over several.
    #[derive(Clone, Copy, Debug, Default)]
    struct Statistics {
        /// Mean capacity in Mb/s.
        mean: f64,
        /// Standard deviation of the capacity over its mean.
        variation: f64,
        /// Falls below half of a capacity of the last 0.5 s, per minute.
        falls: f64,
        /// Median and 95th percentile of the round trip in ms.
        rtt: (f64, f64),
        loss: f64,
    }

    fn statistics(path: &RecordedPath) -> Statistics {
        let steps = path.mean_rates(Duration::from_millis(200), path.length());
        let end = path.length().as_secs_f64();
        let from = |n: usize| steps.get(n).map_or(end, |(at, _)| at.as_secs_f64());
        let rate = |n: usize| steps[n].1.as_f64() / 1e6;
        let all = 0..steps.len();
        let over_time = |of: &dyn Fn(f64) -> f64| -> f64 {
            let parts = all.clone().map(|n| of(rate(n)) * (from(n + 1) - from(n)));
            parts.sum::<f64>() / end
        };
        let mean = over_time(&|rate| rate);
        let variance = over_time(&|rate| (rate - mean) * (rate - mean));
        let is_low = |n: usize| {
            let recent = (0..n)
                .rev()
                .take_while(|before| from(before + 1) >= from(n) - 0.5);
            recent.map(rate).fold(0.0, f64::max) > 2.0 * rate(n)
        };
        let falls = (1..steps.len())
            .filter(|n| is_low(*n) && !is_low(n - 1))
            .count();
        let rows = &path.rows()[..path.rows().len() - 1];
        let mut rtts: Vec<f64> = rows.iter().map(|row| 1e3 * row.rtt.as_secs_f64()).collect();
        rtts.sort_by(f64::total_cmp);
        let loss: f64 = rows.iter().map(|row| row.loss).sum();
        Statistics {
            mean,
            variation: variance.sqrt() / mean,
            falls: falls as f64 * 60.0 / end,
            rtt: (rtts[rtts.len() / 2], rtts[rtts.len() * 95 / 100]),
            loss: loss / rows.len() as f64,
        }
    }

    fn mean_of(kind: &str) -> Statistics {
        let paths = paths();
        let all: Vec<_> = paths
            .iter()
            .filter(|path| path.kind == kind)
            .map(|path| statistics(&path.path))
            .collect();
        let mean = |of: fn(&Statistics) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        Statistics {
            mean: mean(|one| one.mean),
            variation: mean(|one| one.variation),
            falls: mean(|one| one.falls),
            rtt: (mean(|one| one.rtt.0), mean(|one| one.rtt.1)),
            loss: mean(|one| one.loss),
        }
    }

    /// Means over the recordings of each kind; see `docs/bench.md`.
    #[test]
    fn paths_have_the_statistics_of_recordings() {
        let near = |ours: f64, recorded: f64| (0.7..1.4).contains(&(ours / recorded));
        let mut off = Vec::new();
        for (kind, mean, variation, falls, delay) in RECORDED {
            let ours = mean_of(kind);
            let mut pairs = vec![(ours.mean, mean), (ours.variation, variation)];
            // One fall a minute is within the randomness of six minutes.
            if (ours.falls - falls).abs() > 1.0 {
                pairs.push((ours.falls, falls));
            }
            if let Some((median, p95, loss)) = delay {
                pairs.extend([(ours.rtt.0, median), (ours.rtt.1, p95), (ours.loss, loss)]);
            }
            println!("{kind}: {ours:?}");
            if pairs.iter().any(|(ours, recorded)| !near(*ours, *recorded)) {
                off.push((kind, pairs));
            }
        }
        assert!(off.is_empty(), "{off:?}");
    }

    /// Kind, mean in Mb/s, coefficient of variation, falls per minute; median and 95th percentile of
    /// the round trip in ms, loss.
    type Recorded = (&'static str, f64, f64, f64, Option<(f64, f64, f64)>);

    const RECORDED: [Recorded; 7] = [
        ("office-wifi", 26.3, 0.35, 11.7, None),
        ("restaurant-wifi", 18.5, 0.70, 22.2, None),
        ("gaming-wifi", 8.2, 0.28, 7.2, Some((18.5, 43.1, 0.014))),
        ("cellular", 5.2, 0.36, 7.9, Some((32.5, 51.5, 0.014))),
        ("wire", 12.2, 0.17, 1.8, Some((10.6, 19.1, 0.0007))),
        ("rail", 10.2, 0.91, 7.9, None),
        ("4g", 23.4, 0.64, 27.4, None),
    ];
}
