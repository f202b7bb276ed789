//! Data rate of one source over time (Figures 12, 14 and 16): 22 packets per second, 550 ms.

use tidegate_core::trace::{ControllerState, Event};
use tidegate_core::units::{Rate, Time};
use tidegate_record::EventRow;
use tidegate_report::plot::{Figure, Point, Series};
use tidegate_sim::runner::{Keep, LinkRecords};

use super::lab;
use super::sweep::{Run, counters, mean};
use crate::papers::runs::Job;
use crate::papers::{Entry, Options, PapersError, Progress};
use crate::parallel::in_parallel;

type Played = Result<Figure, PapersError>;

/// One source. The link loses what it sends within `outage`, in ms from its begin.
struct Source {
    /// Target rate of the source, and capacity of the link, in packets per second.
    target: u32,
    capacity: Option<u32>,
    outage: Option<(u32, u32)>,
}

impl Source {
    /// Duration of the outage in ms.
    fn lost(&self) -> u32 {
        self.outage.map_or(0, |(_, lasts)| lasts)
    }

    fn text(&self) -> String {
        let link = |name: &str, from: &str, to: &str| {
            let rate = self.capacity.filter(|_| name == "there");
            let rate = rate.map_or(String::new(), |rate| {
                let bits = rate * PACKET_BITS;
                format!("rate = \"{bits}b/s\"\nqueue = {{ priority = \"2 packets\" }}\n")
            });
            let outage = self.outage.map_or(String::new(), |(at, lasts)| {
                format!("{{ at = \"{at}ms\", lasts = \"{lasts}ms\" }}")
            });
            format!(
                "[[link]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\n{rate}delay = \
                 \"275ms\"\noutage = [{outage}]\n"
            )
        };
        let target = self.target * PACKET_BITS;
        format!(
            "name = \"rcs\"\nabout = \"One source\"\nduration = \"{DURATION}s\"\n{}{}[[flow]]\nname = \
             \"source\"\nfrom = \"a\"\nto = \"b\"\ncontrol = {{ rcs = {{ target = \"{target}b/s\", rtt \
             = \"550ms\" }} }}\nbulk = {{ packet = \"1000B\", overhead = \"1ms\" }}\n",
            link("there", "a", "b"),
            link("back", "b", "a"),
        )
    }
}

/// Data rate from this time on, in packets per second, and the state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) at: f64,
    pub(super) rate: f64,
    pub(super) state: ControllerState,
}

/// Data rates of one run.
pub(super) fn steps(rows: &[EventRow]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for row in rows {
        let at = seconds(row.at);
        match row.event {
            Event::StateChanged { state, rate, .. } => steps.push(Step {
                at,
                rate: packets(rate),
                state,
            }),
            // In Steady all packets are data.
            Event::RateChanged { to, .. } => {
                let last = steps.last().copied();
                if let Some(last) = last.filter(|last| last.state == ControllerState::Steady) {
                    steps.push(Step {
                        at,
                        rate: packets(to),
                        ..last
                    });
                }
            }
            _ => {}
        }
    }
    steps
}

fn seconds(at: Time) -> f64 {
    at.as_nanos() as f64 / 1e9
}

fn packets(rate: Rate) -> f64 {
    rate.as_f64() / f64::from(PACKET_BITS)
}

/// Runs of a source with every seed; without runs of the lab that failed.
fn play_all(
    source: &Source,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Vec<(Vec<Step>, Run)>, PapersError> {
    let keep = Keep {
        events: true,
        links: LinkRecords::None,
        ..Keep::ALL
    };
    let label = format!("source-{}-{}", source.target, source.lost());
    let job = Job::new(&label, source.text())?;
    let jobs: Vec<Job> = (1..=options.seeds)
        .map(|seed| job.with_seed(seed))
        .collect();
    options.world.begin(&jobs, options.threads);
    let runs = in_parallel(jobs.len(), options.threads, progress, |n| {
        let run = options.world.flows(&jobs[n], keep)?;
        Ok(run.map(|run| (steps(&run.events), counters(&run))))
    });
    Ok(runs?.into_iter().flatten().collect())
}

/// Data rates of the runs of a source. In the lab, the simulator's values are added to the figure.
fn play_source(
    source: &Source,
    figure: &mut Figure,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Vec<Vec<Step>>, PapersError> {
    let runs = play_all(source, options, progress)?;
    let (steps, counters): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    if options.is_lab() {
        let simulated = play_all(source, &lab::simulator(options), progress)?;
        let simulated: Vec<Run> = simulated.into_iter().map(|(_, run)| run).collect();
        lab::compare_source(figure, &counters, &simulated, 1.0);
    }
    Ok(steps)
}

/// First loss, and the time from it until the rate is back at `rate`.
fn recovery(steps: &[Step], rate: f64, from: impl Fn(&Step) -> bool) -> Option<f64> {
    let lost = steps
        .iter()
        .position(|step| step.state == ControllerState::Detected)?;
    let begin = steps[lost..].iter().position(from)? + lost;
    let back = steps[begin..].iter().find(|step| step.rate >= rate)?;
    Some(back.at - steps[begin].at)
}

/// Draws the run of seed 1 and converts times to round trips.
fn draw(figure: &mut Figure, runs: &[Vec<Step>]) {
    let Some(first) = runs.first() else {
        return;
    };
    let mut points: Vec<Point> = Vec::new();
    for step in first {
        // A line in steps. Its points are in strict order of time.
        if let Some(last) = points.last().copied() {
            if step.at - last.x <= 2.0 * INSTANT {
                points.pop();
            } else {
                points.push(Point::single(step.at - INSTANT, last.y));
            }
        }
        points.push(Point::single(step.at, step.rate));
    }
    if let Some(last) = points.last().copied() {
        points.push(Point::single(DURATION, last.y));
    }
    let name = "S(t), seed 1".to_owned();
    figure
        .series
        .push(Series::new(name, ("s", "data packets/s"), points));
}

fn in_round_trips(values: &[f64]) -> f64 {
    mean(values) / RTT
}

pub(super) fn link_error(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let source = Source {
        target: S0,
        capacity: None,
        // One packet: the interval is 45.45 ms.
        outage: Some((3_000, 45)),
    };
    let mut figure = entry.figure();
    let runs = play_source(&source, &mut figure, options, progress)?;
    draw(&mut figure, &runs);
    let is_detected = |step: &Step| step.state == ControllerState::Detected;
    let times = runs
        .iter()
        .filter_map(|run| recovery(run, f64::from(S0) * 0.99, is_detected));
    let times: Vec<f64> = times.collect();
    let ours = in_round_trips(&times);
    figure.claim(
        "the rate is back at its old value within about 2 round trips (1.5 to 2.5)",
        Some(2.0),
        ours,
        (1.5..=2.5).contains(&ours) && times.len() == runs.len(),
    );
    figure.notes.push(recovered(times.len(), runs.len()));
    Ok(figure)
}

pub(super) fn congestion(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let source = Source {
        target: 2 * S0,
        capacity: Some(S0),
        outage: None,
    };
    let mut figure = entry.figure();
    let runs = play_source(&source, &mut figure, options, progress)?;
    draw(&mut figure, &runs);
    let mut jumps = Vec::new();
    let mut growth = Vec::new();
    for run in &runs {
        let Some(lost) = run
            .iter()
            .position(|s| s.state == ControllerState::Detected)
        else {
            continue;
        };
        let halved = run[lost];
        let rest = &run[lost + 1..];
        let end = rest
            .iter()
            .position(|s| s.state == ControllerState::Detected)
            .unwrap_or(rest.len());
        let within = |span: f64| {
            let all = rest[..end].iter().take_while(|s| s.at <= halved.at + span);
            all.last().map_or(halved.rate, |s| s.rate)
        };
        // Two round trips: the reports of all dummy packets have arrived by then.
        jumps.push(within(2.0 * RTT) / halved.rate);
        growth.push((within(6.0 * RTT) - within(3.0 * RTT)) * RTT / 3.0);
    }
    let jump = mean(&jumps);
    figure.claim(
        "the halving is as that of TCP: two round trips later the rate has grown by two packets per \
         round trip at most (as a multiple of the halved rate, at most 1.4)",
        Some(1.0),
        jump,
        jump <= 1.4,
    );
    let slope = mean(&growth);
    figure.claim(
        "the rate then grows by a packet per round trip in each round trip (0.8 to 1.2)",
        Some(1.0),
        slope,
        (0.8..=1.2).contains(&slope),
    );
    figure.notes.push(
        "The link has a capacity of 22 packets/s and a buffer of 2 packets, which the source exceeds."
            .to_owned(),
    );
    Ok(figure)
}

pub(super) fn signal_loss(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let source = Source {
        target: S0,
        capacity: None,
        outage: Some((3_000, 1_100)),
    };
    let mut figure = entry.figure();
    let runs = play_source(&source, &mut figure, options, progress)?;
    draw(&mut figure, &runs);
    let after_backoff = |steps: &[Step]| {
        let backoff = steps
            .iter()
            .position(|s| s.state == ControllerState::Backoff)?;
        recovery(&steps[backoff - 1..], f64::from(S0) * 0.99, |step| {
            step.state == ControllerState::Steady
        })
    };
    let times: Vec<f64> = runs.iter().filter_map(|run| after_backoff(run)).collect();
    let ours = in_round_trips(&times);
    figure.claim(
        "the rate is back at its old value within about one round trip after the first report (at most \
         1.5)",
        Some(1.0),
        ours,
        ours <= 1.5 && times.len() == runs.len(),
    );
    let halvings = |run: &Vec<Step>| {
        let detected = run.iter().filter(|s| s.state == ControllerState::Detected);
        detected.count()
    };
    let most = runs.iter().map(halvings).max().unwrap_or(0);
    figure.claim(
        "no further halving during the signal loss (the most halvings of a run)",
        Some(1.0),
        most as f64,
        most == 1,
    );
    figure.notes.push(recovered(times.len(), runs.len()));
    Ok(figure)
}

fn recovered(some: usize, all: usize) -> String {
    format!("{some} of {all} runs are back at the old rate.")
}

const S0: u32 = 22;
const RTT: f64 = 0.55;
const PACKET_BITS: u32 = 8_000;
/// Duration of a step in the drawing, in seconds.
const INSTANT: f64 = 1e-6;
/// Duration of a run in seconds.
const DURATION: f64 = 10.0;
