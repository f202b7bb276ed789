//! A video under RCS where networks treat lower effort in different ways: what the test in band finds,
//! the throughput, and the harm to TCP. Not in the paper, which assumes that all routers honour it.

use core::time::Duration;

use tidegate_core::control::LowerEffort;
use tidegate_core::random::Seed;
use tidegate_core::trace::Event;
use tidegate_report::claims::Claim;
use tidegate_report::plot::{Cell, Figure, Table};
use tidegate_sim::runner::{self, Keep, RunResult};

use super::sweep::mean;
use crate::papers::runs::scenario;
use crate::papers::{Entry, Options, PapersError, Progress};
use crate::parallel::in_parallel;
use crate::rmcat;

type Played = Result<Figure, PapersError>;

/// Keys and names of the treatments at the bottleneck.
const TREATMENTS: [(&str, &str); 4] = [
    ("honour", "honoured"),
    ("ignore", "ignored"),
    ("remark", "remarked"),
    ("drop", "dropped"),
];
const QUEUES: [(&str, &str); 3] = [
    ("{ droptail = \"50 packets\" }", "FIFO"),
    ("{ priority = \"50 packets\" }", "priority"),
    ("{ fq_codel = {} }", "FQ-CoDel"),
];

/// Flows over the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flows {
    Rcs,
    RcsAndTcp,
    RapAndTcp,
}

/// The scenario: a satellite link with errors behind a bottleneck of 10 Mb/s. TCP does not use the
/// satellite link.
fn text_of(flows: Flows, queue: &str, treatment: &str) -> String {
    let control = match flows {
        Flows::RapAndTcp => "rap",
        Flows::Rcs | Flows::RcsAndTcp => "rcs",
    };
    let mut text = format!(
        r#"name = "lower-effort"
about = "A video over a satellite link"
duration = "{LASTS}s"
measure = ["{FROM}s", "{LASTS}s"]

[[link]]
name = "there"
from = "a"
to = "b"
rate = "10Mb/s"
queue = {queue}
lower_effort = "{treatment}"

[[link]]
name = "back"
from = "b"
to = "a"

[[link]]
name = "up"
from = "b"
to = "c"
delay = "150ms"
loss = 0.005

[[link]]
name = "down"
from = "c"
to = "b"
delay = "150ms"

[[flow]]
name = "video"
path = ["there", "up"]
back = ["down", "back"]
control = "{control}"
video = {{ size = "1280x720", fps = 30, encoder = "model", floor = "150kb/s", ceiling = "8Mb/s" }}
delay_bound = "1s"
"#
    );
    if flows != Flows::Rcs {
        text += r#"
[[flow]]
name = "tcp"
path = ["there"]
back = ["back"]
access = { rate = "100Mb/s", delay = "25ms" }
exit = { rate = "100Mb/s", delay = "25ms" }
tcp = { kind = "cubic" }
"#;
    }
    text
}

/// Result of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// Received rates in kb/s, dummy packets excluded.
    video: f64,
    tcp: f64,
    /// Share of dummy packets in the packets of the video.
    overhead: f64,
    found: Option<LowerEffort>,
}

fn measure(run: &RunResult) -> Measured {
    let mut measured = Measured::default();
    for (n, (flow, _)) in run.flows.iter().enumerate() {
        let totals = run.meter.totals(n);
        let rate = totals.received.bytes.bits() as f64 / totals.span.as_secs_f64() / 1e3;
        if flow.name == "video" {
            measured.video = rate;
            let (dummies, data) = (totals.dummies.sent, totals.sent.packets);
            measured.overhead = dummies as f64 / (dummies + data).max(1) as f64;
        } else {
            measured.tcp = rate;
        }
    }
    measured.found = run.events.iter().rev().find_map(|row| match row.event {
        Event::LowerEffortTested { treatment, .. } => Some(treatment),
        _ => None,
    });
    measured
}

/// Scenarios of all queues and treatments with their seeds, in the order of the table.
fn jobs(options: &Options) -> Vec<(String, u64)> {
    let mut jobs = Vec::new();
    let mut add = |flows, queue: &str, treatment: &str| {
        let text = text_of(flows, queue, treatment);
        jobs.extend((1..=options.seeds).map(|seed| (text.clone(), seed)));
    };
    for (queue, _) in QUEUES {
        add(Flows::RapAndTcp, queue, "honour");
        for (treatment, _) in TREATMENTS {
            add(Flows::Rcs, queue, treatment);
            add(Flows::RcsAndTcp, queue, treatment);
        }
    }
    jobs
}

/// Mean of a quantity over the seeds.
fn mean_of(runs: &[Measured], of: fn(&Measured) -> f64) -> f64 {
    mean(&runs.iter().map(of).collect::<Vec<_>>())
}

pub(super) fn table(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let jobs = jobs(options);
    let played = in_parallel(jobs.len(), options.threads, progress, |n| {
        let (text, seed) = &jobs[n];
        let scenario = scenario("lower-effort", text)?;
        let run = runner::flows(&scenario, Seed(*seed), KEEP, &rmcat::encoder);
        run.map(|run| measure(&run)).map_err(PapersError::Play)
    })?;
    let mut seeds = played.chunks(options.seeds.max(1) as usize);
    let mut figure = entry.figure();
    let mut rows = Vec::new();
    let (mut wrong, mut missed) = (0, 0);
    let (mut harms, mut gains) = (Vec::new(), Vec::new());
    for (queue, queue_name) in QUEUES {
        let rap = seeds.next().unwrap_or_default();
        for (treatment, name) in TREATMENTS {
            let alone = seeds.next().unwrap_or_default();
            let beside = seeds.next().unwrap_or_default();
            let is_honoured = queue.contains("priority") && treatment == "honour";
            let (tcp, usual) = (mean_of(beside, |m| m.tcp), mean_of(rap, |m| m.tcp));
            let harm = 1.0 - tcp / usual;
            let is_trusted = |m: &&Measured| m.found == Some(LowerEffort::Honoured);
            if is_honoured {
                missed += alone.iter().filter(|m| !is_trusted(m)).count();
            } else {
                wrong += alone.iter().chain(beside).filter(is_trusted).count();
            }
            harms.push(harm);
            gains.push(Gain {
                rate: mean_of(alone, |m| m.video),
                is_honoured,
            });
            rows.push(vec![
                Cell::Text(format!("{name}, {queue_name}")),
                Cell::Text(found(alone)),
                Cell::Text(found(beside)),
                Cell::from(mean_of(alone, |m| m.video)),
                Cell::from(100.0 * mean_of(alone, |m| m.overhead)),
                Cell::from(mean_of(beside, |m| m.video)),
                Cell::from(tcp),
                Cell::from(usual),
                Cell::from(100.0 * harm),
            ]);
        }
    }
    figure.table = Some(Table {
        columns: COLUMNS.map(str::to_owned).to_vec(),
        rows,
    });
    claims(&mut figure, [wrong, missed], &harms, &gains);
    figure.notes.push(
        "A video of up to 8 Mb/s over a bottleneck of 10 Mb/s with a queue of 50 packets, and a satellite \
         link of 300 ms with a loss probability of 0.005; CUBIC over the bottleneck and 100 ms without \
         losses. Harm is the loss of TCP's rate beside RCS, compared with RAP in its place. CUBIC \
         keeps the priority queue full, so no low probe arrives, and the result is the same as where they \
         are dropped. Means over the seeds; results of the test with their number of runs."
            .to_owned(),
    );
    Ok(figure)
}

const COLUMNS: [&str; 9] = [
    "treatment, queue",
    "found alone",
    "found beside TCP",
    "RCS alone kb/s",
    "overhead %",
    "RCS beside TCP kb/s",
    "TCP beside RCS kb/s",
    "TCP beside RAP kb/s",
    "harm to TCP %",
];

/// Rate of a video alone on a path, and whether the path honours lower effort.
struct Gain {
    rate: f64,
    is_honoured: bool,
}

fn claims(figure: &mut Figure, errors: [usize; 2], harms: &[f64], gains: &[Gain]) {
    let texts = [
        "the test trusts no path but the priority queue that honours lower effort (runs that do)",
        "alone on that path, RCS trusts it (runs that do not)",
    ];
    for (text, errors) in texts.into_iter().zip(errors) {
        let claim = Claim::new(text.to_owned(), None, errors as f64, errors == 0);
        figure.claims.push(claim);
    }
    let worst = harms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    figure.claim(
        "TCP beside RCS has at most 10 % less than beside RAP (the largest harm, %)",
        None,
        100.0 * worst,
        worst <= 0.1,
    );
    let with = |honoured: bool| {
        let of = gains
            .iter()
            .filter(move |gain| gain.is_honoured == honoured);
        of.map(|gain| gain.rate).collect::<Vec<_>>()
    };
    let gain = mean(&with(true)) / mean(&with(false)) - 1.0;
    figure.claim(
        "where lower effort is honoured, RCS has more than elsewhere, where it is RAP (the gain, %)",
        None,
        100.0 * gain,
        gain > 0.0,
    );
}

/// The results of the test, with the number of runs of each.
fn found(runs: &[Measured]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for run in runs {
        let name = match run.found {
            None | Some(LowerEffort::Untested) => "untested",
            Some(LowerEffort::Honoured) => "honoured",
            Some(LowerEffort::Ignored) => "ignored",
            Some(LowerEffort::Remarked) => "remarked",
            Some(LowerEffort::Dropped) => "dropped",
            Some(LowerEffort::Unanswered) => "unanswered",
        };
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let text = counts.iter().map(|(name, count)| format!("{name} {count}"));
    text.collect::<Vec<_>>().join(", ")
}

const LASTS: u32 = 120;
const FROM: u32 = 20;
const KEEP: Keep = Keep {
    events: true,
    bin: Duration::from_secs(10),
    ..Keep::COUNTERS
};
