//! From a run to its numbers.
//!
//! A percentile is by nearest rank: the smallest value such that at least p % of all values are
//! no larger (rank ceil(p n / 100) of n). Numbers are rounded to what can be told apart (a
//! microsecond, a thousandth of a dB), so that the same run gives the same text.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_core::control::Kind;
use tidegate_core::units::{Rate, Time};

use super::expect::Expectation;
use super::manifest::LinkInfo;
use super::reader::{FlowRun, Run};
use super::rows::{FrameKind, LinkSample, PacketOutcome, ReceivedFrame};
use crate::meter::Totals;

/// The numbers of `run`, and whether it did what was expected of it.
pub fn summarise(run: &Run, expect: &[Expectation]) -> Summary {
    let counted = counted(run);
    let flows = run.flows.iter().map(|flow| of_flow(run, flow, &counted));
    let mut summary = Summary {
        scenario: run.manifest.scenario.clone(),
        seed: run.manifest.seed,
        flows: flows.collect(),
        links: of_links(run),
        expect: Vec::new(),
    };
    summary.expect = expect.iter().map(|e| e.judge(run, &summary)).collect();
    summary
}

/// What became of each frame of `flow`, in order of capture. Nothing if packets arrived and no
/// frames are recorded: then nobody wrote down what became of them.
pub fn stories(flow: &FlowRun) -> Vec<FrameStory> {
    if flow.received.is_empty() && flow.packets.iter().any(|row| row.arrived.is_some()) {
        return Vec::new();
    }
    let decodable = decodable_at(&flow.received);
    let mut stories: Vec<FrameStory> = if flow.sent.is_empty() {
        captured_by_timestamps(flow, &decodable)
    } else {
        let sent = flow.sent.iter();
        sent.map(|row| FrameStory {
            frame: row.frame,
            captured: row.captured,
            delay: decodable
                .get(&row.frame)
                .map(|at| difference(*at, row.captured)),
            fate: if row.dropped.is_some() || row.kind == FrameKind::Skipped {
                FrameFate::Dropped
            } else {
                FrameFate::Lost
            },
        })
        .collect()
    };
    let smallest = stories.iter().filter_map(|s| s.delay).min().unwrap_or(0);
    // On one clock nothing arrives before it was captured.
    let base = if has_one_clock(flow) { 0 } else { smallest };
    let bound = bound_nanos(flow);
    for story in &mut stories {
        story.delay = story.delay.map(|delay| (delay - base).max(0));
        if let Some(delay) = story.delay {
            let late = bound.is_some_and(|bound| delay > bound);
            story.fate = if late {
                FrameFate::Late
            } else {
                FrameFate::Delivered
            };
        }
    }
    stories
}

/// What became of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameStory {
    /// Its number.
    pub frame: u64,
    /// When it was captured; when its first packet arrived where the sender's rows are missing.
    pub captured: Time,
    /// From capture until it could be decoded, in ns; none if it never could. Without a common
    /// clock: above the smallest of the flow.
    pub delay: Option<i64>,
    /// How it ended.
    pub fate: FrameFate,
}

/// The end of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameFate {
    /// Decodable, within the bound if there is one and if clocks allow to tell.
    Delivered,
    /// The sender gave it up, or never encoded it.
    Dropped,
    /// Decodable too late.
    Late,
    /// Sent, and never decodable.
    Lost,
}

/// Share of the savable frames that were on time, in 0..=1. None if the run does not tell.
pub fn on_time_of_savable(flow: &FlowRun) -> Option<f64> {
    bound_nanos(flow)?;
    let savable = flow.savable.iter().filter(|row| row.savable);
    let savable: BTreeSet<u64> = savable.map(|row| row.frame).collect();
    if savable.is_empty() {
        return None;
    }
    let stories = stories(flow);
    if stories.is_empty() {
        return None;
    }
    let saved = stories
        .iter()
        .filter(|s| s.fate == FrameFate::Delivered && savable.contains(&s.frame))
        .count();
    Some(round(saved as f64 / savable.len() as f64, 6))
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

/// One-way delay of packets in ms; percentiles within 3 % above.
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

fn of_flow(run: &Run, flow: &FlowRun, counted: &Counted<'_>) -> FlowSummary {
    let totals = run.totals_of(&flow.info.name);
    let stories = stories(flow);
    let mut delays: Vec<i64> = stories.iter().filter_map(|s| s.delay).collect();
    delays.sort_unstable();
    let delay = |percent| nearest_rank(&delays, percent).map(millis);
    let shown = flow.shown.iter().filter_map(|row| row.quality);
    let shown: Vec<_> = shown.collect();
    FlowSummary {
        name: flow.info.name.clone(),
        class: flow.info.class.clone(),
        control: flow.info.control.clone(),
        rate_bps: rate(run, flow).or(totals.and_then(|t| counted_rate(run, flow, t, counted))),
        receive_bps: totals.map(|t| bps(t.receive_rate())),
        loss: loss(flow).or(totals.and_then(Totals::loss).map(|p| round(p, 6))),
        loss_event_rate: totals
            .and_then(Totals::loss_event_rate)
            .map(|p| round(p, 8)),
        rtt_ms: totals.and_then(|t| t.rtt).map(in_millis),
        packet_delay_ms: packet_delay(totals),
        delay_ms: DelaySummary {
            p50: delay(50),
            p95: delay(95),
            p99: delay(99),
            max: delay(100),
        },
        queue_ms: queueing(flow, totals),
        frames: frames(flow, &stories),
        psnr_y_db: mean(shown.iter().map(|q| q.psnr_y)).map(|m| round(m, 3)),
        ssim: mean(shown.iter().map(|q| q.ssim)).map(|m| round(m, 5)),
        freezes: freezes(flow, &stories).map(|f| f.len() as u64),
    }
}

fn rate(run: &Run, flow: &FlowRun) -> Option<f64> {
    let start = flow.packets.iter().map(|p| p.sent).min()?;
    let end = run.end();
    let sent = flow.packets.iter().filter(|p| p.sent <= end);
    over(sent.map(|p| p.size.bits()).sum(), end.since(start))
}

/// When the first bin with a packet of a flow began, and how many bits the flow sent in all.
type Counted<'a> = BTreeMap<&'a str, (Time, u64)>;

fn counted(run: &Run) -> Counted<'_> {
    let mut counted = Counted::new();
    // Until the end of the run, behind which packets are still on their way, and counted too.
    let end = run.end();
    let in_run = run.bins.iter().filter(|row| row.at < end);
    for row in in_run.filter(|row| row.bin.sent.packets > 0) {
        let (_, bits) = counted.entry(&row.flow).or_insert((row.at, 0));
        *bits += row.bin.sent.bytes.bits();
    }
    counted
}

/// As [`rate`], of a flow whose packets were only counted. Totals do not tell it, since they may
/// cover less than the run.
fn counted_rate(run: &Run, flow: &FlowRun, totals: &Totals, counted: &Counted<'_>) -> Option<f64> {
    let Some((bin, bits)) = counted.get(flow.info.name.as_str()) else {
        return (totals.sent.packets == 0).then_some(0.0);
    };
    // Folders of earlier versions tell only the bin.
    over(*bits, run.end().since(totals.first_sent.unwrap_or(*bin)))
}

fn over(bits: u64, span: Duration) -> Option<f64> {
    (!span.is_zero()).then(|| round(bits as f64 / span.as_secs_f64(), 1))
}

fn loss(flow: &FlowRun) -> Option<f64> {
    let of = |outcome| {
        let packets = flow.packets.iter();
        let packets = packets.filter(|p| p.outcome == outcome && p.kind != Kind::Dummy);
        packets.count() as f64
    };
    let (lost, received) = (of(PacketOutcome::Lost), of(PacketOutcome::Received));
    (lost + received > 0.0).then(|| round(lost / (lost + received), 6))
}

/// One-way delays of packets, if any arrived.
fn packet_delay(totals: Option<&Totals>) -> PacketDelaySummary {
    let some = totals.filter(|t| t.received.packets > 0);
    let of = |delay: fn(&Totals) -> Duration| some.map(|t| in_millis(delay(t)));
    PacketDelaySummary {
        mean: of(|t| t.delay_mean),
        p50: of(|t| t.delay_p50),
        p95: of(|t| t.delay_p95),
        p99: of(|t| t.delay_p99),
        max: of(|t| t.delay_max),
    }
}

fn in_millis(span: Duration) -> f64 {
    round(span.as_nanos() as f64 / 1e6, 3)
}

fn bps(rate: Rate) -> f64 {
    rate.as_bps() as f64
}

/// From the packets, or where they were not written down from their counts.
fn queueing(flow: &FlowRun, totals: Option<&Totals>) -> QueueSummary {
    if flow.packets.is_empty() {
        let some = totals.filter(|t| t.received.packets > 0);
        let above = |delay: fn(&Totals) -> Duration| {
            some.map(|t| in_millis(delay(t).saturating_sub(t.delay_min)))
        };
        return QueueSummary {
            mean: above(|t| t.delay_mean),
            p95: above(|t| t.delay_p95),
        };
    }
    let mut delays: Vec<i64> = queueing_delays(flow).map(|(_, delay)| delay).collect();
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

fn frames(flow: &FlowRun, stories: &[FrameStory]) -> FrameSummary {
    let ended = |fate| {
        let stories = stories.iter().filter(|s| s.fate == fate);
        stories.count() as u64
    };
    let judged = !stories.is_empty() && bound_nanos(flow).is_some();
    let known = !flow.sent.is_empty();
    let left = flow.sent.iter().filter(|row| row.left.is_some());
    let savable = flow.savable.iter().filter(|row| row.savable);
    let given_up =
        |row: &&super::SentFrame| row.dropped.is_some() || row.kind == FrameKind::Skipped;
    FrameSummary {
        made: known.then_some(flow.sent.len() as u64),
        sent: known.then(|| left.count() as u64),
        on_time: judged.then(|| ended(FrameFate::Delivered)),
        savable: (!flow.savable.is_empty()).then(|| savable.count() as u64),
        late: judged.then(|| ended(FrameFate::Late)),
        dropped: known.then(|| flow.sent.iter().filter(given_up).count() as u64),
    }
}

/// Each time the picture of `flow` stood still for more than max(3 frame intervals, 150 ms): the
/// frame that was due when it stopped and the one that was due when it moved on. The wait for
/// the first picture and a stop at the end count. `None` where no picture is recorded.
pub fn freezes(flow: &FlowRun, stories: &[FrameStory]) -> Option<Vec<(u64, u64)>> {
    let interval = flow.info.frame_rate?.interval();
    let limit = (interval * 3).max(SHORTEST_FREEZE);
    let shown: Vec<(u64, Option<u64>)> = if flow.shown.is_empty() {
        let on_time = |s: &FrameStory| (s.fate == FrameFate::Delivered).then_some(s.frame);
        stories.iter().map(|s| (s.frame, on_time(s))).collect()
    } else {
        let rows = flow.shown.iter();
        rows.map(|row| (row.frame, row.shown_frame)).collect()
    };
    let (first, last) = (shown.first()?.0, shown.last()?.0);
    let mut freezes = Vec::new();
    let (mut since, mut picture) = (first, None);
    let mut gap = |from: u64, to: u64| {
        let slots = u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX);
        if interval.saturating_mul(slots) > limit {
            freezes.push((from, to));
        }
    };
    for (slot, on_screen) in shown {
        if on_screen.is_some() && on_screen != picture {
            gap(since, slot);
            (since, picture) = (slot, on_screen);
        }
    }
    gap(since, last + 1);
    Some(freezes)
}

/// The links as the first flow that is no baseline saw them: flows that are compared run one by
/// one, and a mean over their runs would describe none.
fn of_links(run: &Run) -> Vec<LinkSummary> {
    let subject = subject(run);
    // Behind the end only what is under way still arrives.
    let end = Time::ZERO + run.manifest.duration;
    let links = run.manifest.links.iter();
    links
        .map(|link| {
            let of_link = |row: &LinkSample| {
                *row.link == *link.name && subject.as_deref() == Some(&*row.run) && row.at <= end
            };
            let (mut first, mut last) = (None, None);
            let mut waits: Vec<i64> = Vec::new();
            for row in run.links.iter().filter(of_link) {
                waits.extend(drain_time(link, &row).map(|wait| wait.as_nanos() as i64));
                first.get_or_insert_with(|| row.clone());
                last = Some(row);
            }
            waits.sort_unstable();
            let last = last.as_ref();
            let causes = last.and_then(|row| row.causes);
            LinkSummary {
                name: link.name.clone(),
                utilisation: utilisation(link, first.as_ref(), last),
                drops: last.map(|row| row.drops),
                drops_queue: last.and_then(LinkSample::queue_drops),
                drops_random: causes.map(|causes| causes.random),
                drops_outage: causes.map(|causes| causes.outage),
                marks: last.map(|row| row.marks),
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

/// How long the queue takes to drain at the nominal capacity; `None` without a limit or without
/// any capacity.
pub fn drain_time(link: &LinkInfo, sample: &LinkSample) -> Option<Duration> {
    let capacity = link.nominal_capacity_at(sample.at)?;
    (capacity.as_bps() > 0).then(|| sample.queue / capacity)
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

/// When each decodable frame could be decoded: a frame that refers to others waits for them, and
/// a frame refers to all since the last key frame.
fn decodable_at(received: &[ReceivedFrame]) -> BTreeMap<u64, Time> {
    let mut rows: Vec<&ReceivedFrame> = received.iter().collect();
    rows.sort_by_key(|row| row.frame);
    let mut reference = Time::ZERO;
    let mut times = BTreeMap::new();
    for row in rows {
        if row.decodable
            && let Some(complete) = row.complete
        {
            if row.kind == FrameKind::Key {
                reference = Time::ZERO;
            }
            reference = reference.max(complete);
            times.insert(row.frame, reference);
        }
    }
    times
}

/// Stories where only the receiver wrote: its time stamps tell when frames were captured, but
/// for a constant.
fn captured_by_timestamps(flow: &FlowRun, decodable: &BTreeMap<u64, Time>) -> Vec<FrameStory> {
    let Some(origin) = flow.received.first().map(|row| row.rtp_timestamp) else {
        return Vec::new();
    };
    let received = flow.received.iter();
    received
        .map(|row| {
            // Taken as signed, a difference is right across the wrap and for reordered rows.
            let ticks = row.rtp_timestamp.wrapping_sub(origin).cast_signed();
            let captured = i64::from(ticks) * 1_000_000_000 / VIDEO_CLOCK;
            let delay = decodable
                .get(&row.frame)
                .map(|at| at.as_nanos() as i64 - captured);
            FrameStory {
                frame: row.frame,
                captured: row.first,
                delay,
                fate: FrameFate::Lost,
            }
        })
        .collect()
}

/// Whether delays, and not only their variation, mean something.
pub fn has_one_clock(flow: &FlowRun) -> bool {
    flow.info.one_clock && !flow.sent.is_empty()
}

/// `None` where no bound is set, and where the clocks do not allow to tell.
fn bound_nanos(flow: &FlowRun) -> Option<i64> {
    let bound = flow.info.delay_bound.filter(|_| has_one_clock(flow))?;
    i64::try_from(bound.as_nanos()).ok()
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

/// A shorter stop is not seen as one.
const SHORTEST_FREEZE: Duration = Duration::from_millis(150);

/// Ticks per second of the RTP time stamps of video (RFC 6184 section 8.2.1).
const VIDEO_CLOCK: i64 = 90_000;

#[cfg(test)]
mod tests;
