//! Figure 3 of the paper on informed start: TFRC begins beside twenty TCP flows at t = 4 s.
//!
//! The paper's plots give no numbers; its text does. Each statement of the text is a claim, and so is
//! each that holds for a careful resume with the same predictions.

mod lab;

use core::fmt::Write as _;
use core::time::Duration;

use tidegate_core::trace::Event;
use tidegate_report::plot::{Cell, Figure, Point, Series, Table};
use tidegate_sim::runner::{Keep, RunResult};

use super::runs::Job;
use super::{Encoder, Entry, Nodes, Options, PapersError, Progress};
use crate::parallel::in_parallel;

pub(super) const FIG3: Entry = Entry {
    name: "start/fig3",
    about: "start of TFRC beside twenty TCP flows: slow, and informed with four predictions",
    source: "Schmitt, Zink, Theiss, Steinmetz: Improving the Start-Up Behaviour of TCP-friendly Media \
             Transmissions",
    nodes: Nodes::LabFlows,
    encoder: Encoder::Model,
    tcps: &[],
    bounds: "",
    compares_growth: false,
    make: fig3,
};

/// A start: its name in the figure, whether it is the paper's or a careful resume, and the prediction
/// over the fair share.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Case {
    name: &'static str,
    is_paper: bool,
    prediction: Option<f64>,
}

const fn case(name: &'static str, is_paper: bool, prediction: f64) -> Case {
    Case {
        name,
        is_paper,
        prediction: Some(prediction),
    }
}

const CASES: [Case; 7] = [
    Case {
        name: "slow start",
        is_paper: true,
        prediction: None,
    },
    case("informed, correct", true, 1.0),
    case("informed, 3 times too high", true, 3.0),
    case("informed, 3 times too low", true, 1.0 / 3.0),
    case("careful resume, correct", false, 1.0),
    case("careful resume, 3 times too high", false, 3.0),
    case("careful resume, 3 times too low", false, 1.0 / 3.0),
];

impl Case {
    /// The scenario with ns-2's parameters: all links have 10 Mb/s and 10 ms, the queue 50 packets.
    fn text(self, variant: Variant) -> String {
        let Variant { tcp, links } = variant;
        let mut text = format!(
            "name = \"start\"\nabout = \"TFRC beside TCP\"\nduration = \"{END}s\"\nmeasure = [\"{START}s\", \
             \"{LOSSES_UNTIL}s\"]\n"
        );
        // The limit of ns-2 includes the packet in transmission.
        let link = format!(
            "rate = \"10Mb/s\"\ndelay = \"10ms\"\nqueue = {{ droptail = \"49 packets\" }}{links}"
        );
        for (name, from, to) in [("there", "a", "b"), ("back", "b", "a")] {
            let _ = write!(
                text,
                "[[link]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\n{link}\n"
            );
        }
        let access =
            "{ rate = \"10Mb/s\", delay = \"10ms\", queue = { droptail = \"999 packets\" } }";
        let route =
            format!("path = [\"there\"]\nback = [\"back\"]\naccess = {access}\nexit = {access}\n");
        let _ = write!(
            text,
            "[[flow]]\nname = \"tcp\"\ncount = {TCPS}\n{route}start = [\"0s\", \"100ms\"]\ntcp = {{ {tcp}, \
             packet = \"1000B\", window = \"1000 packets\" }}\n\
             [[flow]]\nname = \"tfrc\"\n{route}start = [\"{START}s\", \"{START}.1s\"]\nbulk = {{ packet = \
             \"1000B\" }}\ncontrol = {{ tfrc = {{ flavour = \"rfc3448\", initial_window = 1, \
             slow_increase = false, first_rate = \"8kb/s\"{} }} }}\n",
            if self.is_paper {
                ", start = \"informed-paper\""
            } else {
                ""
            }
        );
        if let Some(prediction) = self.prediction {
            let rate = (prediction * FAIR_SHARE) as u64;
            let _ = writeln!(text, "prior = {{ rate = \"{rate}b/s\", rtt = \"62ms\" }}");
        }
        text
    }
}

/// What differs between simulator and lab. Random delays of up to 0.8 ms prevent that packets of a flow
/// meet a full queue again and again.
#[derive(Clone, Copy, Debug)]
struct Variant {
    /// Keys of the twenty TCP flows.
    tcp: &'static str,
    /// Keys of both links.
    links: &'static str,
}

/// One run.
#[derive(Clone, Debug)]
struct Run {
    /// Allowed rate of TFRC from its start on, in b/s, each [`STEP`].
    rates: Vec<f64>,
    /// Packets of TCP that were dropped in the first five seconds.
    tcp_drops: f64,
    /// Mean round-trip time of TFRC in the first five seconds, with queueing.
    rtt: f64,
}

impl Run {
    fn of(case: Case, run: &RunResult) -> Self {
        let changes = run.events.iter().filter_map(|row| match row.event {
            Event::RateChanged { to, .. } => Some((row.at.as_secs_f64(), to.as_f64())),
            _ => None,
        });
        let changes: Vec<(f64, f64)> = changes.collect();
        let begin = f64::from(START);
        let steps = ((f64::from(END) - begin) / STEP) as usize;
        let mut rates = Vec::with_capacity(steps);
        let mut next = 0;
        let mut rate = case.prediction.filter(|_| case.is_paper).unwrap_or(0.0) * FAIR_SHARE;
        for step in 0..steps {
            let until = begin + STEP * (step + 1) as f64;
            while let Some((_, to)) = changes.get(next).filter(|(at, _)| *at <= until) {
                (rate, next) = (*to, next + 1);
            }
            rates.push(rate);
        }
        let flows = run.flows.iter().enumerate();
        let tcp = flows.filter(|(_, (flow, _))| flow.class == "tcp");
        let drops: u64 = tcp.map(|(n, _)| run.meter.totals(n).dropped).sum();
        let tfrc = run.flows.iter().position(|(flow, _)| flow.class == "tfrc");
        let rtt = tfrc.and_then(|n| run.meter.totals(n).rtt);
        Self {
            rates,
            tcp_drops: drops as f64,
            rtt: rtt.map_or(f64::NAN, |rtt| rtt.as_secs_f64()),
        }
    }

    /// Mean over half a second from a step on.
    fn smooth(&self, step: usize) -> f64 {
        let end = (step + HALF_SECOND).min(self.rates.len());
        average(&self.rates[step..end])
    }

    /// Seconds from the start until the rate, averaged over half a second, stays for three seconds
    /// within half of its mean over the second half of the run.
    fn settled(&self) -> f64 {
        let mean = average(&self.rates[self.rates.len() / 2..]);
        let is_near = |step: usize| (self.smooth(step) / mean - 1.0).abs() <= 0.5;
        let last = self.rates.len() - 6 * HALF_SECOND;
        let is_stable = |step: &usize| (*step..step + 6 * HALF_SECOND).all(is_near);
        (0..last).find(is_stable).unwrap_or(last) as f64 * STEP
    }

    /// Seconds from the start until the rate first reaches a share of the fair share.
    fn reached(&self, share: f64) -> f64 {
        let is_there = |rate: &f64| *rate >= share * FAIR_SHARE;
        let step = self.rates.iter().position(is_there);
        step.unwrap_or(self.rates.len()) as f64 * STEP
    }
}

fn fig3(entry: &Entry, options: &Options, progress: Progress<'_>) -> Result<Figure, PapersError> {
    let mut figure = entry.figure();
    if options.is_lab() {
        lab::fig3(&mut figure, options, progress)?;
    } else {
        let runs = play(NS2, options, progress)?;
        draw(&mut figure, &runs);
        claim(&mut figure, &runs);
    }
    figure.notes.push(
        "All links have 10 Mb/s and 10 ms, the queue 50 packets, as in ns-2; TFRC is that of RFC 3448 with \
         a slow start from one packet per round trip, as in 2001. Settled: the rate, averaged over half a \
         second, stays for 3 s within half of its mean over the last 10 s. ns-2.35 with these parameters \
         needs 0.6 to 7.7 s for a slow start, 1.6 s in the median."
            .to_owned(),
    );
    Ok(figure)
}

/// Runs of all cases with all seeds, without runs of the lab that failed.
fn play(
    variant: Variant,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Vec<Vec<Run>>, PapersError> {
    let mut jobs = Vec::new();
    for case in CASES {
        let job = Job::new(case.name, case.text(variant))?;
        jobs.extend((1..=options.seeds).map(|seed| (case, job.with_seed(seed))));
    }
    let all: Vec<Job> = jobs.iter().map(|(_, job)| job.clone()).collect();
    options.world.begin(&all, options.threads);
    let played = in_parallel(jobs.len(), options.threads, progress, |n| {
        let (case, job) = &jobs[n];
        let run = options.world.flows(job, KEEP)?;
        Ok::<_, PapersError>(run.map(|run| Run::of(*case, &run)))
    })?;
    let mut played = played.into_iter();
    let mut seeds = || {
        let seeds = played.by_ref().take(options.seeds as usize);
        seeds.flatten().collect()
    };
    Ok(CASES.iter().map(|_| seeds()).collect())
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Mean of a number over the seeds.
fn mean(runs: &[Run], of: impl Fn(&Run) -> f64) -> f64 {
    average(&runs.iter().map(of).collect::<Vec<_>>())
}

/// Median over the seeds, of times that a loss of a single packet prolongs by seconds.
fn median(runs: &[Run], of: impl Fn(&Run) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    // All runs of the lab have failed.
    let Some(last) = values.len().checked_sub(1) else {
        return f64::NAN;
    };
    f64::midpoint(values[last / 2], values[values.len() / 2])
}

fn draw(figure: &mut Figure, runs: &[Vec<Run>]) {
    let columns = [
        "start",
        "settled after s (median)",
        "settled after s (mean)",
        "90 % of the fair share after s (median)",
        "rate in the first 1 s, kB/s",
        "TCP packets dropped in 5 s",
    ];
    let row = |(case, runs): (&Case, &Vec<Run>)| {
        let first = |run: &Run| average(&run.rates[..2 * HALF_SECOND]) / 8e3;
        vec![
            Cell::Text(case.name.to_owned()),
            Cell::from(median(runs, Run::settled)),
            Cell::from(mean(runs, Run::settled)),
            Cell::from(median(runs, |run| run.reached(0.9))),
            Cell::from(mean(runs, first)),
            Cell::from(mean(runs, |run| run.tcp_drops)),
        ]
    };
    figure.table = Some(Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: CASES.iter().zip(runs).map(row).collect(),
    });
    for (case, runs) in CASES.iter().zip(runs) {
        let Some(first) = runs.first() else { continue };
        // Ten points per second of the run with seed 1.
        let points = first.rates.iter().enumerate().step_by(10);
        let points = points
            .map(|(step, rate)| Point::single(f64::from(START) + STEP * step as f64, rate / 8e3));
        let name = format!("{}, seed 1", case.name);
        figure
            .series
            .push(Series::new(name, ("s", "kB/s"), points.collect()));
    }
}

fn claim(figure: &mut Figure, runs: &[Vec<Run>]) {
    let settled = |case: usize| median(&runs[case], Run::settled);
    let reached = |case: usize| median(&runs[case], |run| run.reached(0.9));
    let drops = |case: usize| mean(&runs[case], |run| run.tcp_drops);
    let slow = settled(SLOW);
    let text = "slow start takes about 5 s until it is stable (in s, 2 to 8)";
    figure.claim(text, Some(5.0), slow, (2.0..=8.0).contains(&slow));
    let correct = settled(CORRECT);
    let text = "with a correct prediction the rate is stable from the start (in s, at most 0.5)";
    figure.claim(text, Some(0.0), correct, correct <= 0.5);
    let high = settled(HIGH);
    let text = "with a prediction 3 times too high it is stable after about 1 s (in s, at most 2)";
    figure.claim(text, Some(1.0), high, high <= 2.0);
    let late = reached(LOW) - reached(SLOW);
    let text = "with a prediction 3 times too low the fair share takes longer than with slow start (in s \
                longer, above 0)";
    figure.claim(text, None, late, late > 0.0);
    let rtt = mean(&runs[SAFE], |run| run.rtt);
    let late = (reached(SAFE) - reached(CORRECT)) / rtt;
    let text = "careful resume with a correct prediction: 90 % of the fair share at most 4 round trips \
                later than the paper's start (in round trips)";
    figure.claim(text, None, late, late <= 4.0);
    let high = settled(SAFE_HIGH);
    let text = "careful resume, 3 times too high: stable within 1 s (in s)";
    figure.claim(text, None, high, high <= 1.0);
    let ratio = drops(SAFE_HIGH) / drops(SLOW);
    let text = "careful resume, 3 times too high: TCP loses no more packets in 5 s than beside slow start \
                (ratio, at most 1)";
    figure.claim(text, None, ratio, ratio <= 1.0);
    let late = reached(SAFE_LOW) - reached(SLOW);
    let text = "careful resume, 3 times too low: 90 % of the fair share no later than with slow start (in \
                s later, at most 0)";
    figure.claim(text, None, late, late <= 0.0);
}

const SLOW: usize = 0;
const CORRECT: usize = 1;
const HIGH: usize = 2;
const LOW: usize = 3;
const SAFE: usize = 4;
const SAFE_HIGH: usize = 5;
const SAFE_LOW: usize = 6;

/// The TCP of ns-2, whose senders delay packets.
const NS2: Variant = Variant {
    tcp: "kind = \"reno\", overhead = \"800us\"",
    links: "",
};
const TCPS: u32 = 20;
/// Capacity over 21 flows, in b/s.
const FAIR_SHARE: f64 = 10e6 / 21.0;
/// Start of TFRC, end of the count of losses and end of the run, in seconds.
const START: u32 = 4;
const LOSSES_UNTIL: u32 = 9;
const END: u32 = 24;
/// Interval of rates in seconds.
const STEP: f64 = 0.01;
const HALF_SECOND: usize = 50;

const KEEP: Keep = Keep {
    events: true,
    bin: Duration::from_secs(1),
    ..Keep::COUNTERS
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cases_are_valid_scenarios() {
        let both = |case| [(case, NS2), (case, lab::LINUX)];
        for (case, variant) in CASES.iter().flat_map(both) {
            let job = Job::new(case.name, case.text(variant));
            let job = job.unwrap_or_else(|e| panic!("{e:?}\n{}", case.text(variant)));
            let prior = job.scenario.flows[1].prior;
            assert_eq!(prior.is_some(), case.prediction.is_some());
        }
    }
}
