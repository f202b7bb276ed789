//! From a run to its numbers.
//!
//! A percentile is by nearest rank: the smallest value such that at least p % of all values are
//! no larger (rank ceil(p n / 100) of n). Numbers are rounded to what can be told apart (a
//! microsecond, a thousandth of a dB), so that the same run gives the same text.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_core::control::Kind;
use tidegate_core::units::{Bytes, Time};

use super::expect::Expectation;
use super::manifest::{LinkInfo, Span};
use super::reader::{FlowRun, Run};
use super::rows::{FrameKind, LinkSample, PacketOutcome, PacketRow};
use crate::meter::Totals;

mod frames;

pub use frames::{FrameFate, FrameStory, freezes, has_one_clock, on_time_of_savable, stories};
use frames::{bound_nanos, measured};

/// The numbers of `run`, and whether it did what was expected of it.
pub fn summarise(run: &Run, expect: &[Expectation]) -> Summary {
    let end = run.end();
    let flows = run.flows.iter().map(|flow| of_flow(run, flow, end));
    let mut summary = Summary {
        scenario: run.manifest.scenario.clone(),
        seed: run.manifest.seed,
        flows: flows.collect(),
        links: of_links(run),
        expect: Vec::new(),
        kept_up: run.manifest.kept_up(),
    };
    summary.expect = expect.iter().map(|e| e.judge(run, &summary)).collect();
    summary
}

/// The numbers of a run: `summary.json`. What does not apply is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name of the scenario.
    pub scenario: String,
    /// Of the run.
    pub seed: Option<u64>,
    /// One entry per flow, in the order of the manifest.
    pub flows: Vec<FlowSummary>,
    /// One entry per link, in the order of the manifest.
    pub links: Vec<LinkSummary>,
    /// What had to hold, and whether it does.
    pub expect: Vec<Verdict>,
    /// Whether the emulator kept time; none where there was none. If it did not, what does not hold is
    /// no verdict on what was played.
    #[serde(default)]
    pub kept_up: Option<bool>,
}

/// The numbers of one flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Its name.
    pub name: String,
    /// The flows that it is averaged with.
    pub class: String,
    /// Its rate control.
    pub control: String,
    /// What it put on the wire with all headers, in b/s, from its first packet to the end of
    /// the run.
    pub rate_bps: Option<f64>,
    /// What reached the receiver while it was measured, in b/s.
    pub receive_bps: Option<f64>,
    /// Share of its packets that were lost, of those whose fate is known; dummies left aside.
    pub loss: Option<f64>,
    /// Loss events over packets sent, while it was measured (RFC 5348 section 5.2).
    pub loss_event_rate: Option<f64>,
    /// Mean round-trip time of packets, while it was measured.
    pub rtt_ms: Option<f64>,
    /// How long it took to send all that there was, measured or not; none if that had no end, or if it
    /// did not come to it.
    pub completion_s: Option<f64>,
    /// One-way delay of packets, while it was measured.
    pub packet_delay_ms: PacketDelaySummary,
    /// From capture to decodable, over the frames that became so. Without a common clock: above
    /// the smallest.
    pub delay_ms: DelaySummary,
    /// One-way delay of packets above the smallest of the flow.
    pub queue_ms: QueueSummary,
    /// What became of the frames.
    pub frames: FrameSummary,
    /// Mean PSNR of Y of what was shown, in dB.
    pub psnr_y_db: Option<f64>,
    /// Mean SSIM of what was shown, in 0..=1.
    pub ssim: Option<f64>,
    /// How often the picture stood still for more than max(3 frame intervals, 150 ms).
    pub freezes: Option<u64>,
}

/// Delay of frames in ms; percentiles by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelaySummary {
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
}

/// One-way delay of packets in ms; percentiles of packets that were only counted within 3 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketDelaySummary {
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
}

/// Queueing delay of packets in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueSummary {
    /// Mean.
    pub mean: Option<f64>,
    /// 95th percentile, by nearest rank.
    pub p95: Option<f64>,
}

/// Numbers of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameSummary {
    /// Captured, also those that were never encoded.
    pub made: Option<u64>,
    /// Left the sender whole.
    pub sent: Option<u64>,
    /// Decodable within the bound.
    pub on_time: Option<u64>,
    /// Could have been on time, says the oracle.
    pub savable: Option<u64>,
    /// Decodable, but too late.
    pub late: Option<u64>,
    /// Given up by the sender, also those that were never encoded.
    pub dropped: Option<u64>,
}

/// The numbers of one link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Its name.
    pub name: String,
    /// What it delivered over what it could have, outages left aside, in 0..=1.
    pub utilisation: Option<f64>,
    /// Packets dropped.
    pub drops: Option<u64>,
    /// Of these, those that the queue did not take, or dropped later.
    pub drops_queue: Option<u64>,
    /// Those that were lost at random.
    pub drops_random: Option<u64>,
    /// Those that were lost in outages.
    pub drops_outage: Option<u64>,
    /// Packets marked.
    pub marks: Option<u64>,
    /// 95th percentile over the samples of the time that the queue takes to drain, in ms.
    pub queue_p95_ms: Option<f64>,
}

/// What became of an expectation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// As in the scenario.
    pub text: String,
    /// The left-hand side; null if the run does not tell.
    pub measured: Option<f64>,
    /// Whether it holds; it does not if the run does not tell.
    pub holds: bool,
}

fn of_flow(run: &Run, flow: &FlowRun, end: Time) -> FlowSummary {
    let totals = run.totals_of(&flow.info.name);
    let (stories, measured) = measured(&run.manifest, flow);
    let mut delays: Vec<i64> = stories.iter().filter_map(|s| s.delay).collect();
    delays.sort_unstable();
    let delay = |percent| nearest_rank(&delays, percent).map(millis);
    let shown = flow.shown.iter();
    let shown = shown.filter(|row| measured.contains(&row.frame));
    let shown: Vec<_> = shown.filter_map(|row| row.quality).collect();
    let (rate_bps, receive_bps) = rates(run, flow, end);
    FlowSummary {
        name: flow.info.name.clone(),
        class: flow.info.class.clone(),
        control: flow.info.control.clone(),
        rate_bps,
        receive_bps,
        loss: loss(run, flow),
        loss_event_rate: totals
            .and_then(Totals::loss_event_rate)
            .map(|p| round(p, 8)),
        rtt_ms: totals.and_then(|t| t.rtt).map(in_millis),
        completion_s: totals.and_then(|t| completion(flow, t)),
        packet_delay_ms: packet_delay(run, flow),
        delay_ms: DelaySummary {
            p50: delay(50),
            p95: delay(95),
            p99: delay(99),
            max: delay(100),
        },
        queue_ms: queueing(run, flow),
        frames: frames(flow, &stories, &measured),
        psnr_y_db: mean(shown.iter().map(|q| q.psnr_y)).map(|m| round(m, 3)),
        ssim: mean(shown.iter().map(|q| q.ssim)).map(|m| round(m, 5)),
        freezes: freezes(flow, &stories)
            .filter(|_| !measured.is_empty())
            .map(|f| f.len() as u64),
    }
}

/// From the moment from which it was to send.
fn completion(flow: &FlowRun, totals: &Totals) -> Option<f64> {
    let start = flow.info.active?.from;
    Some(round(totals.done?.since(start).as_secs_f64(), 6))
}

/// The packets of `flow` that were sent while it was measured.
fn sent_inside<'a>(run: &'a Run, flow: &'a FlowRun) -> impl Iterator<Item = &'a PacketRow> + Clone {
    let packets = flow.packets.iter();
    packets.filter(|row| run.manifest.measures(row.sent))
}

/// What was sent and what arrived, in b/s, over that part of the measured time in which the flow was
/// to send; of one of which nobody planned that, from its first packet on. What arrives later is under
/// way until then.
fn rates(run: &Run, flow: &FlowRun, end: Time) -> (Option<f64>, Option<f64>) {
    let over = |span: Duration, bytes: Bytes| {
        let rate = || round(bytes.bits() as f64 / span.as_secs_f64(), 1);
        (!span.is_zero()).then(rate)
    };
    if let Some(totals) = run.totals_of(&flow.info.name) {
        let arriving = flow.info.active.map_or(totals.span, |active| {
            let over = totals.done.unwrap_or(active.to).min(active.to);
            let to = over + totals.delay_max;
            Span { to, ..active }
                .overlap(run.manifest.measured())
                .length()
        });
        let sent = over(totals.span, totals.sent.bytes);
        return (sent, over(arriving, totals.received.bytes));
    }
    let Some(from) = flow.packets.iter().map(|row| row.sent).min() else {
        return (None, None);
    };
    let active = flow.info.active.unwrap_or(Span { from, to: end });
    let measured = run.manifest.measured();
    // A run may have been cut short, and its last packet is sent at its end.
    let until = measured.to.min(end);
    let within = |at: Time| measured.from <= at && at <= until;
    let span = active.overlap(Span {
        to: until,
        ..measured
    });
    let sent = flow.packets.iter().filter(|row| within(row.sent));
    let arrived = flow.packets.iter();
    let arrived = arrived.filter(|row| row.arrived.is_some_and(within));
    let size = |row: &PacketRow| row.size;
    let over = |bytes| over(span.length(), bytes);
    (over(sent.map(size).sum()), over(arrived.map(size).sum()))
}

/// Of those of its packets whose fate is known. Dummies are there to be lost, and left aside. What was
/// counted says the same of one flow as of many; but of a video it counts what is no packet of it, as
/// its sender's reports.
fn loss(run: &Run, flow: &FlowRun) -> Option<f64> {
    let totals = run.totals_of(&flow.info.name);
    let mixed = flow.info.has_video() || flow.packets.iter().any(|row| row.kind == Kind::Dummy);
    if let Some(totals) = totals.filter(|_| !mixed || flow.packets.is_empty()) {
        return totals.loss().map(|share| round(share, 6));
    }
    let of = |outcome| {
        let packets = sent_inside(run, flow);
        let packets = packets.filter(|p| p.outcome == outcome && p.kind != Kind::Dummy);
        packets.count() as f64
    };
    let (lost, received) = (of(PacketOutcome::Lost), of(PacketOutcome::Received));
    (lost + received > 0.0).then(|| round(lost / (lost + received), 6))
}

/// One-way delays of packets, if any arrived: exactly if they were written down.
fn packet_delay(run: &Run, flow: &FlowRun) -> PacketDelaySummary {
    let totals = run.totals_of(&flow.info.name);
    let Some(totals) = totals.filter(|_| flow.packets.is_empty()) else {
        return logged_delay(run, flow);
    };
    let of = |delay: Duration| (totals.received.packets > 0).then(|| in_millis(delay));
    PacketDelaySummary {
        mean: of(totals.delay_mean),
        p50: of(totals.delay_p50),
        p95: of(totals.delay_p95),
        p99: of(totals.delay_p99),
        max: of(totals.delay_max),
    }
}

/// The same of packets that were written down, if one clock tells.
fn logged_delay(run: &Run, flow: &FlowRun) -> PacketDelaySummary {
    let packets = sent_inside(run, flow).filter(|_| flow.info.one_clock);
    let delays = packets.filter_map(|row| Some(difference(row.arrived?, row.sent)));
    let mut delays: Vec<i64> = delays.collect();
    delays.sort_unstable();
    let at = |percent| nearest_rank(&delays, percent).map(millis);
    PacketDelaySummary {
        mean: mean(delays.iter().map(|d| *d as f64 / 1e6)).map(|m| round(m, 3)),
        p50: at(50),
        p95: at(95),
        p99: at(99),
        max: at(100),
    }
}

fn in_millis(span: Duration) -> f64 {
    round(span.as_nanos() as f64 / 1e6, 3)
}

/// From the packets, or where they were not written down from their counts.
fn queueing(run: &Run, flow: &FlowRun) -> QueueSummary {
    if flow.packets.is_empty() {
        let totals = run.totals_of(&flow.info.name);
        let some = totals.filter(|t| t.received.packets > 0);
        let above = |delay: fn(&Totals) -> Duration| {
            some.map(|t| in_millis(delay(t).saturating_sub(t.delay_min)))
        };
        return QueueSummary {
            mean: above(|t| t.delay_mean),
            p95: above(|t| t.delay_p95),
        };
    }
    let delays = queueing_delays(flow).filter(|(sent, _)| run.manifest.measures(*sent));
    let mut delays: Vec<i64> = delays.map(|(_, delay)| delay).collect();
    delays.sort_unstable();
    QueueSummary {
        mean: mean(delays.iter().map(|d| *d as f64 / 1e6)).map(|m| round(m, 3)),
        p95: nearest_rank(&delays, 95).map(millis),
    }
}

/// When each packet that arrived was sent, and its one-way delay above the smallest of the flow
/// in ns; dummies left aside, since routers may treat them unlike media.
pub fn queueing_delays(flow: &FlowRun) -> impl Iterator<Item = (Time, i64)> + '_ {
    let delays = || {
        let packets = flow.packets.iter().filter(|p| p.kind != Kind::Dummy);
        packets.filter_map(|p| Some((p.sent, difference(p.arrived?, p.sent))))
    };
    let smallest = delays().map(|(_, delay)| delay).min().unwrap_or(0);
    delays().map(move |(sent, delay)| (sent, delay - smallest))
}

fn frames(flow: &FlowRun, stories: &[FrameStory], measured: &RangeInclusive<u64>) -> FrameSummary {
    let ended = |fate| {
        let stories = stories.iter().filter(|s| s.fate == fate);
        stories.count() as u64
    };
    let judged = !stories.is_empty() && bound_nanos(flow).is_some();
    let known = !flow.sent.is_empty();
    let sent = || flow.sent.iter().filter(|row| measured.contains(&row.frame));
    let left = sent().filter(|row| row.left.is_some());
    let savable = flow.savable.iter().filter(|row| row.savable);
    let savable = savable.filter(|row| measured.contains(&row.frame));
    let given_up =
        |row: &&super::SentFrame| row.dropped.is_some() || row.kind == FrameKind::Skipped;
    FrameSummary {
        made: known.then(|| sent().count() as u64),
        sent: known.then(|| left.count() as u64),
        on_time: judged.then(|| ended(FrameFate::Delivered)),
        savable: (!flow.savable.is_empty()).then(|| savable.count() as u64),
        late: judged.then(|| ended(FrameFate::Late)),
        dropped: known.then(|| sent().filter(given_up).count() as u64),
    }
}

/// The links as the first flow that is no baseline saw them: flows that are compared run one by
/// one, and a mean over their runs would describe none.
fn of_links(run: &Run) -> Vec<LinkSummary> {
    let subject = subject(run);
    // Behind the end only what is under way still arrives.
    let measured = run.manifest.measured();
    let is_measured = |at: Time| measured.from <= at && at <= measured.to;
    let links = run.manifest.links.iter();
    links
        .map(|link| {
            let of_link = |row: &LinkSample| {
                let of_link = *row.link == *link.name && subject.as_deref() == Some(&*row.run);
                of_link && is_measured(row.at)
            };
            let (mut first, mut last) = (None, None);
            let mut waits: Vec<i64> = Vec::new();
            for row in run.links.iter().filter(of_link) {
                let wait = link.drain_time(row.at, row.queue);
                waits.extend(wait.map(|wait| wait.as_nanos() as i64));
                first.get_or_insert_with(|| row.clone());
                last = Some(row);
            }
            waits.sort_unstable();
            let last = last.as_ref();
            // Counts are from the start of the run on, of which the first sample may miss some.
            let before = first.as_ref().filter(|_| measured.from > Time::ZERO);
            let more = |count: fn(&LinkSample) -> u64| {
                last.map(|row| count(row) - before.map_or(0, count))
            };
            let cause = |count: fn(&LinkSample) -> Option<u64>| {
                let before = before.and_then(count).unwrap_or(0);
                Some(count(last?)? - before)
            };
            LinkSummary {
                name: link.name.clone(),
                utilisation: utilisation(link, first.as_ref(), last),
                drops: more(|row| row.drops),
                drops_queue: cause(LinkSample::queue_drops),
                drops_random: cause(|row| Some(row.causes?.random)),
                drops_outage: cause(|row| Some(row.causes?.outage)),
                marks: more(|row| row.marks),
                queue_p95_ms: nearest_rank(&waits, 95).map(millis),
            }
        })
        .collect()
}

/// The run, by the name of its flow, that the numbers of links are taken from.
pub fn subject(run: &Run) -> Option<Arc<str>> {
    let runs = run.links.runs();
    let sampled = |name: &str| runs.iter().find(|run| &***run == name).cloned();
    let mut flows = run.flows.iter().map(|flow| &flow.info);
    let own = flows.find_map(|info| sampled(&info.name).filter(|_| !info.baseline));
    own.or_else(|| runs.first().cloned())
}

fn utilisation(
    link: &LinkInfo,
    first: Option<&LinkSample>,
    last: Option<&LinkSample>,
) -> Option<f64> {
    let (first, last) = (first?, last?);
    let mut edges: Vec<Time> = link.capacity.iter().map(|step| step.from).collect();
    edges.extend(link.outages.iter().flat_map(|o| [o.from, o.to]));
    edges.retain(|edge| first.at < *edge && *edge < last.at);
    edges.extend([first.at, last.at]);
    edges.sort_unstable();
    let mut offered = 0.0;
    for pair in edges.windows(2) {
        offered += link.capacity_at(pair[0])?.as_f64() * pair[1].since(pair[0]).as_secs_f64();
    }
    let carried = (last.delivered - first.delivered).bits() as f64;
    (offered > 0.0).then(|| round(carried / offered, 4))
}

/// In ns, negative where clocks differ.
fn difference(later: Time, earlier: Time) -> i64 {
    // Wrapping makes the difference of two numbers of 64 bits right if it fits 63 bits: 292 years.
    later
        .as_nanos()
        .wrapping_sub(earlier.as_nanos())
        .cast_signed()
}

/// `sorted` from the smallest; `percent` in 1..=100.
fn nearest_rank(sorted: &[i64], percent: usize) -> Option<i64> {
    let rank = (percent * sorted.len()).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0_u64);
    for value in values {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / count as f64)
}

fn millis(nanos: i64) -> f64 {
    round(nanos as f64 / 1e6, 3)
}

fn round(value: f64, decimals: u32) -> f64 {
    let unit = f64::from(10_u32.pow(decimals));
    (value * unit).round() / unit
}

#[cfg(test)]
mod tests;
