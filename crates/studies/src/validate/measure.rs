//! Metrics of a run, by the names of the reference data.

use core::time::Duration;

use tidegate_core::control::Outcome;
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Time};
use tidegate_record::{Count, Totals};

use super::mean_and_spread;
use super::reference::{Mean, PacketArrival};
use tidegate_sim::runner::{Keep, LinkRecords, RunResult};
use tidegate_sim::scenario::{RatePlan, Scenario};

/// A measured value. None if the metric cannot be measured.
pub(super) type Measured = Option<f64>;

/// Records that a run has to keep for these metrics.
pub(super) fn keep(means: &[Mean], marks: &[PacketArrival]) -> Keep {
    let any = |ends: &[&str]| {
        let mut means = means.iter();
        means.any(|mean| ends.iter().any(|end| mean.what.ends_with(end)))
    };
    let usual = Keep::default();
    Keep {
        packets: !marks.is_empty(),
        events: any(&["reported_p", "_s", "peak_pps", "rate_pps"]),
        links: if any(&["queue.packets"]) {
            LinkRecords::Series
        } else {
            LinkRecords::None
        },
        bin: if any(&["cov_100ms"]) {
            Duration::from_millis(100)
        } else {
            usual.bin
        },
    }
}

/// Whether the metric and its flows exist.
#[cfg(test)]
pub(super) fn is_known(what: &str, scenario: &Scenario) -> bool {
    match what.split_once('.') {
        None => matches!(what, "dropped" | "hops" | "passed" | "sent"),
        Some(("all", metric)) => {
            let of_outage = [
                "first_back_s",
                "half_back_s",
                "most_back_s",
                "pps_100s",
                "pps_50s_after",
                "pps_before",
                "sent_pps_during",
            ];
            of_outage.contains(&metric)
        }
        Some(("queue", metric)) => metric == "packets",
        Some((class, metric)) => {
            let of_flow = [
                "cov_100ms",
                "cov_1s",
                "loss",
                "loss_events",
                "max_pps",
                "min_pps",
                "one_sent_pps",
                "peak_pps",
                "peak_s",
                "pps",
                "queue_loss",
                "rate_pps",
                "reported_1_p",
                "reported_p",
                "reports",
                "sd_pps",
                "sent_pps",
                "settled30_s",
                "settled50_s",
                "slow_start_s",
                "unfair",
            ];
            scenario.flow(class).is_some() && of_flow.contains(&metric)
        }
    }
}

/// Value of a metric of a run.
pub(super) fn number(what: &str, scenario: &Scenario, take: &RunResult) -> Measured {
    let Some((class, metric)) = what.split_once('.') else {
        let totals = totals(take, None);
        let (sent, dropped) = (
            sum(&totals, |totals| totals.sent.packets as f64),
            sum(&totals, |totals| totals.dropped as f64),
        );
        return Some(match what {
            "dropped" => dropped,
            "hops" => take.hops as f64,
            "passed" => sum(&totals, |totals| totals.received.packets as f64),
            _ => sent,
        });
    };
    match class {
        "all" => Some(outage(metric, scenario, take)),
        "queue" => queue(scenario, take),
        _ => of_class(class, metric, scenario, take),
    }
}

fn of_class(class: &str, metric: &str, scenario: &Scenario, take: &RunResult) -> Measured {
    let totals = totals(take, Some(class));
    let span = sum(&totals, |totals| totals.span.as_secs_f64());
    let sent = sum(&totals, |totals| totals.sent.packets as f64);
    let each = || {
        let of_flow = |t: &Totals| t.received.packets as f64 / t.span.as_secs_f64();
        totals.iter().map(of_flow).collect::<Vec<f64>>()
    };
    match metric {
        "pps" => Some(sum(&totals, |totals| totals.received.packets as f64) / span),
        "sent_pps" => Some(sent / span),
        "min_pps" => each().into_iter().min_by(f64::total_cmp),
        "max_pps" => each().into_iter().max_by(f64::total_cmp),
        "sd_pps" => Some(mean_and_spread(&each()).1),
        "unfair" => Some(unfairness(&each())),
        "loss" => Some(sum(&totals, |totals| totals.dropped as f64) / sent),
        "loss_events" => Some(sum(&totals, |totals| totals.loss_events as f64) / sent),
        "queue_loss" => {
            let flows = flows(take, Some(class));
            let dropped: u64 = flows.map(|flow| take.meter.queue_drops(flow)).sum();
            Some(dropped as f64 / sent)
        }
        "cov_100ms" => variation(&first_sent(class, scenario, take)?),
        "cov_1s" => {
            let tenths = first_sent(class, scenario, take)?;
            let seconds = tenths.chunks(10).map(|tenths| mean_and_spread(tenths).0);
            variation(&seconds.collect::<Vec<f64>>())
        }
        "one_sent_pps" => Some(totals.first()?.sent.packets as f64 / totals[0].span.as_secs_f64()),
        "reports" => {
            let reports: u64 = flows(take, Some(class))
                .map(|flow| take.meter.returned_packets(flow))
                .sum();
            Some(reports as f64)
        }
        "rate_pps" | "reported_1_p" | "reported_p" => samples(metric, scenario, take),
        _ => start(class, metric, scenario, take),
    }
}

/// One minus Jain's fairness index: zero if all rates are equal.
fn unfairness(each: &[f64]) -> f64 {
    let squares: f64 = each.iter().map(|x| x * x).sum();
    let all: f64 = each.iter().sum();
    if squares > 0.0 {
        1.0 - all * all / (each.len() as f64 * squares)
    } else {
        0.0
    }
}

/// Packets sent by the first flow of a class in each bin of the window.
fn first_sent(class: &str, scenario: &Scenario, take: &RunResult) -> Option<Vec<f64>> {
    let flow = flows(take, Some(class)).next()?;
    let bin = take.meter.bin_length().as_nanos().max(1);
    let of = |at: Time| (u128::from(at.as_nanos()) / bin) as usize;
    let (from, to) = scenario.window();
    let sent = take.meter.bins(flow).map(|bin| bin.sent.packets as f64);
    let sent = sent.chain(core::iter::repeat(0.0));
    Some(sent.skip(of(from)).take(of(to) - of(from)).collect())
}

/// Coefficient of variation: standard deviation over mean.
fn variation(values: &[f64]) -> Measured {
    let (mean, spread) = mean_and_spread(values);
    (mean > 0.0).then(|| spread / mean)
}

/// Metrics of the sender's samples, which exist for each report or for some of them: the mean loss
/// event rate, its harmonic mean, and the mean over time of the rate in packets per second.
fn samples(metric: &str, scenario: &Scenario, take: &RunResult) -> Measured {
    let (from, to) = scenario.window();
    let (mut count, mut sum, mut inverse) = (0.0, 0.0, 0.0);
    let (mut rate, mut since, mut sent) = (0.0, from, 0.0);
    for row in take.events.iter().filter(|row| row.at < to) {
        if let Event::Sample {
            loss_event_rate: p,
            send,
            ..
        } = row.event
        {
            sent += rate * row.at.since(since).as_secs_f64();
            (rate, since) = (send.as_f64() / PACKET_BITS, row.at.max(from));
            if from <= row.at {
                count += 1.0;
                sum += p;
                inverse += 1.0 / p;
            }
        }
    }
    sent += rate * to.since(since).as_secs_f64();
    (count > 0.0).then(|| match metric {
        "rate_pps" => sent / to.since(from).as_secs_f64(),
        "reported_1_p" => count / inverse,
        _ => sum / count,
    })
}

/// Seconds from a flow's start to the end of slow start, or until its rate settles. A rate is
/// settled if its mean over 0.5 s stays within 30 % or 50 % of its mean from 14 s on, for three
/// seconds.
fn start(class: &str, metric: &str, scenario: &Scenario, take: &RunResult) -> Measured {
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
    if metric.starts_with("peak") {
        let (at, rate) = peak(
            events().map(|row| (row.at.as_secs_f64(), &row.event)),
            ended,
        );
        return Some(if metric == "peak_s" { at - began } else { rate });
    }
    // Rate at the end of each interval of 0.1 s.
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

/// Time and value of the maximum rate in slow start, in packets per second.
fn peak<'a>(events: impl Iterator<Item = (f64, &'a Event)>, ended: f64) -> (f64, f64) {
    let mut highest = (0.0, 0.0);
    for (at, event) in events.take_while(|(at, _)| *at < ended) {
        if let Event::Sample { send, .. } = event
            && send.as_f64() / PACKET_BITS > highest.1
        {
            highest = (at, send.as_f64() / PACKET_BITS);
        }
    }
    highest
}

/// Metrics of all flows together around the outage:
/// - received packets per second in the 50 s before it;
/// - seconds until the first second with any packet, and until five seconds with half or 90 % of
///   the rate before;
/// - received packets per second in the 100 s from its start and in the 50 s after it;
/// - sent packets per second during it, without its first second.
fn outage(metric: &str, scenario: &Scenario, take: &RunResult) -> f64 {
    let outage = scenario.links[0].outages.first();
    let begins = Time::from_secs(200);
    // End of the outage as observed by the receiver.
    let ends = outage.map_or(begins, |outage| outage.to + scenario.links[0].delay);
    let second = |at: Time| at.as_nanos() / 1_000_000_000;
    let (begins, ends) = (second(begins), second(ends));
    let last = scenario.duration.as_secs();
    let received = |from, to| per_second(take, from, to, |bin| bin.received);
    let back = |share: f64| {
        let enough = share * received(150, 200);
        let back = (ends..last - 5).find(|at| received(*at, at + 5) >= enough);
        back.map_or(NEVER, |at| (at - ends) as f64)
    };
    match metric {
        "first_back_s" => {
            let first = (ends..last).find(|at| received(*at, at + 1) > 0.0);
            first.map_or(NEVER, |at| (at - ends) as f64)
        }
        "half_back_s" => back(0.5),
        "most_back_s" => back(0.9),
        "pps_100s" => received(begins, begins + 100),
        "pps_before" => received(150, 200),
        "pps_50s_after" => received(ends, ends + 50),
        _ => per_second(take, begins + 1, ends, |bin| bin.sent),
    }
}

/// Packets per second of all flows between two seconds.
fn per_second(
    take: &RunResult,
    from: u64,
    to: u64,
    count: fn(&tidegate_record::Bin) -> Count,
) -> f64 {
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

/// Mean number of packets in the queue of the first link.
fn queue(scenario: &Scenario, take: &RunResult) -> Measured {
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

/// Number of received packets, and the maximum difference of the marked packets' arrival times from
/// the reference in µs.
pub(super) fn packets(
    marks: &[PacketArrival],
    scenario: &Scenario,
    take: &RunResult,
) -> [Measured; 2] {
    let links = &scenario.links;
    // ns-2 records packets at the end of the lossy link; here they have crossed one more link.
    let last_link = scenario.flows[0].path.get(2).map(|link| &links[*link]);
    let rest = |size: Bytes| match last_link.map(|link| (&link.rate, link.delay)) {
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
    let apart = |mark: &PacketArrival| Some((came.get(mark.packet)? - mark.micros).abs());
    let furthest: Option<Vec<f64>> = marks.iter().map(apart).collect();
    let furthest = furthest.map(|all| all.into_iter().fold(0.0, f64::max));
    [Some(came.len() as f64), furthest]
}

/// Indices of the flows of a class, or of all flows.
fn flows<'a>(take: &'a RunResult, class: Option<&'a str>) -> impl Iterator<Item = usize> + 'a {
    let flows = take.flows.iter().enumerate();
    flows
        .filter(move |(_, (role, _))| class.is_none_or(|class| role.class == class))
        .map(|(flow, _)| flow)
}

fn totals(take: &RunResult, class: Option<&str>) -> Vec<Totals> {
    let flows = flows(take, class);
    flows.map(|flow| take.meter.totals(flow)).collect()
}

fn sum(totals: &[Totals], number: impl Fn(&Totals) -> f64) -> f64 {
    totals.iter().map(number).sum()
}

/// Bits of a packet of 1000 bytes, the unit of rates.
const PACKET_BITS: f64 = 8_000.0;
/// Seconds that stand for "never" in the reference data.
const NEVER: f64 = 70.0;
