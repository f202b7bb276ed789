//! What a run of ours gives, by the names of the references.

use core::time::Duration;

use tidegate_core::control::Outcome;
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Time};

use super::reference::{Mark, Mean};
use crate::meter::{Count, Totals};
use crate::play::{Keep, Take};
use crate::scenario::{RatePlan, Scenario};

/// None where there is nothing to measure.
pub(super) type Measured = Option<f64>;

/// What a run has to keep for these.
pub(super) fn keep(means: &[Mean], marks: &[Mark]) -> Keep {
    let any = |ends: &[&str]| {
        let mut means = means.iter();
        means.any(|mean| ends.iter().any(|end| mean.what.ends_with(end)))
    };
    Keep {
        packets: !marks.is_empty(),
        events: any(&["reported_p", "_s"]),
        links: any(&["queue.packets"]),
    }
}

/// Whether there is such a number, and such flows.
#[cfg(test)]
pub(super) fn is_known(what: &str, scenario: &Scenario) -> bool {
    match what.split_once('.') {
        None => matches!(what, "hops" | "sent"),
        Some(("all", metric)) => {
            matches!(metric, "half_back_s" | "pps_50s_after" | "sent_pps_during")
        }
        Some(("queue", metric)) => metric == "packets",
        Some((class, metric)) => {
            let of_flow = [
                "loss",
                "loss_events",
                "pps",
                "reported_p",
                "sent_pps",
                "settled30_s",
                "settled50_s",
                "slow_start_s",
            ];
            scenario.flow(class).is_some() && of_flow.contains(&metric)
        }
    }
}

/// One number of a run.
pub(super) fn number(what: &str, scenario: &Scenario, take: &Take) -> Measured {
    let Some((class, metric)) = what.split_once('.') else {
        return Some(match what {
            "hops" => take.hops as f64,
            _ => sum(&totals(take, None), |totals| totals.sent.packets as f64),
        });
    };
    match class {
        "all" => Some(outage(metric, scenario, take)),
        "queue" => queue(scenario, take),
        _ => of_class(class, metric, scenario, take),
    }
}

fn of_class(class: &str, metric: &str, scenario: &Scenario, take: &Take) -> Measured {
    let totals = totals(take, Some(class));
    let span = sum(&totals, |totals| totals.span.as_secs_f64());
    let sent = sum(&totals, |totals| totals.sent.packets as f64);
    match metric {
        "pps" => Some(sum(&totals, |totals| totals.received.packets as f64) / span),
        "sent_pps" => Some(sent / span),
        "loss" => Some(sum(&totals, |totals| totals.dropped as f64) / sent),
        "loss_events" => Some(sum(&totals, |totals| totals.loss_events as f64) / sent),
        "reported_p" => reported(scenario, take),
        _ => start(class, metric, scenario, take),
    }
}

/// The mean of the loss event rate that the sender knows, over reports.
fn reported(scenario: &Scenario, take: &Take) -> Measured {
    let (from, to) = scenario.window();
    let (mut sum, mut count) = (0.0, 0.0);
    for row in take
        .events
        .iter()
        .filter(|row| from <= row.at && row.at < to)
    {
        if let Event::Sample {
            loss_event_rate, ..
        } = row.event
        {
            sum += loss_event_rate;
            count += 1.0;
        }
    }
    (count > 0.0).then(|| sum / count)
}

/// Seconds from a flow's start to the end of slow start, or until its rate settles: from then on its mean
/// over half a second stays for three seconds within so many percent of its mean while measured.
fn start(class: &str, metric: &str, scenario: &Scenario, take: &Take) -> Measured {
    let (role, _) = take.flows.iter().find(|(role, _)| role.class == class)?;
    let began = role.plan.start.as_secs_f64();
    let events = || take.events.iter().filter(|row| row.flow == role.name);
    let ended = events().find(|row| matches!(row.event, Event::SlowStartEnded { .. }));
    let never = Some(NEVER);
    let Some(ended) = ended.map(|row| row.at.as_secs_f64()) else {
        return never;
    };
    if metric == "slow_start_s" {
        return Some(ended - began);
    }
    // The rate at the end of each tenth of a second.
    let end = (scenario.duration.as_secs_f64() * 10.0) as usize;
    let mut rates = vec![0.0; end];
    let mut events = events().peekable();
    let mut rate = 0.0;
    for (tenth, slot) in rates.iter_mut().enumerate() {
        let over = Time::from_millis(100 * (tenth as u64 + 1));
        while let Some(row) = events.next_if(|row| row.at <= over) {
            if let Event::Sample { send, .. } = row.event {
                rate = send.as_f64();
            }
        }
        *slot = rate;
    }
    let mean = |tenths: &[f64]| tenths.iter().sum::<f64>() / tenths.len() as f64;
    let usual = mean(&rates[140..]);
    let within = if metric == "settled50_s" { 0.5 } else { 0.3 };
    let halves: Vec<bool> = rates
        .windows(5)
        .map(|tenths| (mean(tenths) / usual - 1.0).abs() <= within)
        .collect();
    let first = (ended * 10.0) as usize + 1;
    let settled = (first..halves.len().saturating_sub(30))
        .find(|at| halves[*at..*at + 30].iter().all(|x| *x));
    settled.map_or(never, |tenth| Some(tenth as f64 / 10.0 - began))
}

/// What becomes of all flows together after the outage: seconds until five of them bring half of what
/// 50 s before it brought, packets a second in the 50 s after it, and packets a second sent during it, from
/// its second second on.
fn outage(metric: &str, scenario: &Scenario, take: &Take) -> f64 {
    let outage = scenario.links[0].outages.first();
    let begins = Time::from_secs(200);
    // As the far end sees it.
    let ends = outage.map_or(begins, |outage| outage.to + scenario.links[0].delay);
    let second = |at: Time| at.as_nanos() / 1_000_000_000;
    let (begins, ends) = (second(begins), second(ends));
    let last = scenario.duration.as_secs();
    let received = |from, to| per_second(take, from, to, |bin| bin.received);
    match metric {
        "half_back_s" => {
            let before = received(150, 200);
            let back = (ends..last - 5).find(|at| received(*at, at + 5) >= before / 2.0);
            back.map_or(NEVER, |at| (at - ends) as f64)
        }
        "pps_50s_after" => received(ends, ends + 50),
        _ => per_second(take, begins + 1, ends, |bin| bin.sent),
    }
}

/// Packets a second of all flows between two seconds.
fn per_second(take: &Take, from: u64, to: u64, count: fn(&crate::meter::Bin) -> Count) -> f64 {
    let bins = (1_000 / take.meter.bin_length().as_millis().max(1)) as u64;
    let range = (from * bins) as usize..(to * bins) as usize;
    let packets: u64 = (0..take.flows.len())
        .flat_map(|flow| {
            let bins = take.meter.bins(flow);
            bins.skip(range.start).take(range.len())
        })
        .map(|bin| count(&bin).packets)
        .sum();
    packets as f64 / (to - from) as f64
}

/// Mean number of packets that wait for the first link.
fn queue(scenario: &Scenario, take: &Take) -> Measured {
    let (from, to) = scenario.window();
    let name = &scenario.links[0].name;
    let samples = take
        .links
        .iter()
        .filter(|sample| *sample.link == **name && from <= sample.at && sample.at < to);
    let (mut bytes, mut count) = (Bytes::ZERO, 0);
    for sample in samples {
        bytes += sample.queue;
        count += 1;
    }
    (count > 0).then(|| bytes.get() as f64 / 1_000.0 / f64::from(count))
}

/// How many packets came, and how far the marked ones are from where they should be, at most, in
/// microseconds.
pub(super) fn packets(marks: &[Mark], scenario: &Scenario, take: &Take) -> [Measured; 2] {
    let links = &scenario.links;
    // ns-2 looks at packets where the link ends that loses some; here they went over one more.
    let behind = scenario.flows[0].path.get(2).map(|link| &links[*link]);
    let rest = |size: Bytes| match behind.map(|link| (&link.rate, link.delay)) {
        Some((Some(RatePlan::Fixed(rate)), delay)) => size / *rate + delay,
        _ => Duration::ZERO,
    };
    let rows = take.flows[0].1.packets.iter();
    let mut came: Vec<f64> = rows
        .filter_map(|row| match row.outcome {
            Some(Outcome::Received { at, .. }) => {
                let at = Time::from_nanos(at.0).since(Time::ZERO + rest(row.size));
                Some(at.as_nanos() as f64 / 1e3)
            }
            _ => None,
        })
        .filter(|at| *at <= scenario.duration.as_nanos() as f64 / 1e3)
        .collect();
    came.sort_by(f64::total_cmp);
    let apart = |mark: &Mark| Some((came.get(mark.packet)? - mark.micros).abs());
    let furthest: Option<Vec<f64>> = marks.iter().map(apart).collect();
    let furthest = furthest.map(|all| all.into_iter().fold(0.0, f64::max));
    [Some(came.len() as f64), furthest]
}

fn totals(take: &Take, class: Option<&str>) -> Vec<Totals> {
    let flows = take.flows.iter().enumerate();
    flows
        .filter(|(_, (role, _))| class.is_none_or(|class| role.class == class))
        .map(|(flow, _)| take.meter.totals(flow))
        .collect()
}

fn sum(totals: &[Totals], number: impl Fn(&Totals) -> f64) -> f64 {
    totals.iter().map(number).sum()
}

/// What stands for never in the references, in seconds.
const NEVER: f64 = 70.0;
