//! Metrics of a run.
//!
//! Percentiles use the nearest rank: the smallest value such that at least p % of all values are no
//! larger (rank ceil(p n
//! 100) of n). Numbers are rounded to a meaningful resolution (a microsecond, a thousandth of a
//! dB), so that the same run gives the same text.

pub(crate) mod conclusion;

use core::ops::RangeInclusive;
use core::time::Duration;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_core::control::Kind;
use tidegate_core::units::{Bytes, Time};

use crate::counts::Totals;
use crate::expect::Expectation;
use crate::manifest::{LinkInfo, Span};
use crate::reader::{FlowRun, Run};
use crate::rows::{FrameKind, LinkSample, PacketOutcome, PacketRow};

mod frames;

pub use frames::{
    FrameOutcome, FrameState, frame_outcomes, freezes, has_one_clock, on_time_of_savable,
};
use frames::{bound_nanos, measured};

/// Computes the metrics of `run` and evaluates its expectations.
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

/// Metrics of a run: `summary.json`. Metrics that do not apply are null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name of the scenario.
    pub scenario: String,
    /// Random seed of the run.
    pub seed: Option<u64>,
    /// One entry per flow, in the order of the manifest.
    pub flows: Vec<FlowSummary>,
    /// One entry per link, in the order of the manifest.
    pub links: Vec<LinkSummary>,
    /// Results of the expectations.
    pub expect: Vec<Verdict>,
    /// Whether the emulator met its deadlines; `None` outside of the lab. If not, a failed
    /// expectation says nothing about the tested endpoints.
    #[serde(default)]
    pub kept_up: Option<bool>,
}

/// Metrics of one flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Name of the flow.
    pub name: String,
    /// Class of flows that share one mean.
    pub class: String,
    /// Rate control.
    pub control: String,
    /// Sending rate with all headers, in b/s, from the first packet to the end of the run.
    pub rate_bps: Option<f64>,
    /// Rate received in the measured interval, in b/s.
    pub receive_bps: Option<f64>,
    /// Share of the packets with a known outcome that were lost; dummy packets excluded.
    pub loss: Option<f64>,
    /// Loss events per packet sent, in the measured interval (RFC 5348 section 5.2).
    pub loss_event_rate: Option<f64>,
    /// Mean round-trip time of packets in the measured interval.
    pub rtt_ms: Option<f64>,
    /// Time to send all data of a limited flow, measured or not; `None` without a limit, or if the
    /// run ends first.
    pub completion_s: Option<f64>,
    /// One-way delay of packets in the measured interval.
    pub packet_delay_ms: PacketDelaySummary,
    /// Delay from capture to decodable, over the decodable frames. Without a common clock: above
    /// the minimum.
    pub delay_ms: DelaySummary,
    /// One-way delay of packets above the minimum of the flow.
    pub queue_ms: QueueSummary,
    /// Numbers of frames by outcome.
    pub frames: FrameSummary,
    /// Mean PSNR of Y of the displayed pictures, in dB.
    pub psnr_y_db: Option<f64>,
    /// Mean SSIM of the displayed pictures, in 0..=1.
    pub ssim: Option<f64>,
    /// Number of freezes: a picture displayed for more than max(3 frame intervals, 150 ms).
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
    /// Maximum.
    pub max: Option<f64>,
}

/// One-way delay of packets in ms. Percentiles of packets that are only counted have an error of up
/// to 3 %.
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
    /// Maximum.
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

/// Numbers of frames by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameSummary {
    /// Captured frames, including those that were never encoded.
    pub made: Option<u64>,
    /// Frames of which the sender sent every packet.
    pub sent: Option<u64>,
    /// Frames decodable within the delay bound.
    pub on_time: Option<u64>,
    /// Frames that an offline optimum delivers on time.
    pub savable: Option<u64>,
    /// Frames decodable after the delay bound.
    pub late: Option<u64>,
    /// Frames that the sender dropped, including those that were never encoded.
    pub dropped: Option<u64>,
}

/// Metrics of one link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Name of the link.
    pub name: String,
    /// Delivered bytes over capacity, ignoring outages, in 0..=1.
    pub utilisation: Option<f64>,
    /// Packets dropped.
    pub drops: Option<u64>,
    /// Packets dropped by the queue, at arrival or later.
    pub drops_queue: Option<u64>,
    /// Packets lost at random.
    pub drops_random: Option<u64>,
    /// Packets lost in outages.
    pub drops_outage: Option<u64>,
    /// Packets marked.
    pub marks: Option<u64>,
    /// 95th percentile over the samples of the drain time of the queue, in ms.
    pub queue_p95_ms: Option<f64>,
}

/// Result of an expectation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Text of the expectation, as in the scenario.
    pub text: String,
    /// Value of the left-hand side; null if the run does not record it.
    pub measured: Option<f64>,
    /// Whether the expectation holds; false if the run does not record its metrics.
    pub holds: bool,
}

fn of_flow(run: &Run, flow: &FlowRun, end: Time) -> FlowSummary {
    let totals = run.totals_of(&flow.info.name);
    let (outcomes, measured) = measured(&run.manifest, flow);
    let mut delays: Vec<i64> = outcomes.iter().filter_map(|s| s.delay).collect();
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
            .filter(|_| flow.info.one_clock)
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
        frames: frames(flow, &outcomes, &measured),
        psnr_y_db: mean(shown.iter().map(|q| q.psnr_y)).map(|m| round(m, 3)),
        ssim: mean(shown.iter().map(|q| q.ssim)).map(|m| round(m, 5)),
        freezes: freezes(flow, &outcomes)
            .filter(|_| !measured.is_empty())
            .map(|f| f.len() as u64),
    }
}

/// Counted from the scheduled start of the flow.
fn completion(flow: &FlowRun, totals: &Totals) -> Option<f64> {
    let start = flow.info.active?.from;
    Some(round(totals.done?.since(start).as_secs_f64(), 6))
}

/// Packets of `flow` that were sent in the measured interval.
fn sent_inside<'a>(run: &'a Run, flow: &'a FlowRun) -> impl Iterator<Item = &'a PacketRow> + Clone {
    let packets = flow.packets.iter();
    packets.filter(|row| run.manifest.measures(row.sent))
}

/// Sending and receiving rate in b/s, over the intersection of the measured interval and the flow's
/// schedule; a flow without a schedule starts with its first packet. Packets that arrive after the
/// end of the interval count as in flight. Without a common clock, packets that the feedback reports
/// as received count at the time of sending.
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
    let received = |row: &&PacketRow| {
        if flow.info.one_clock {
            row.arrived.is_some_and(within)
        } else {
            row.outcome == PacketOutcome::Received && within(row.sent)
        }
    };
    let is_known = |row: &PacketRow| row.outcome != PacketOutcome::Unknown;
    let known = flow.info.one_clock || flow.packets.iter().any(is_known);
    let arrived = flow.packets.iter().filter(received);
    let size = |row: &PacketRow| row.size;
    let over = |bytes| over(span.length(), bytes);
    let receive = known.then(|| over(arrived.map(size).sum())).flatten();
    (over(sent.map(size).sum()), receive)
}

/// Loss ratio of the packets with a known outcome. Dummies are excluded: their loss does no
/// harm. For flows without video, counters give the same as packets. For video, counters include
/// packets that are not media, such as sender reports, so recorded packets are used instead.
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

/// One-way delays of packets, if any arrived; exact if packets are recorded.
fn packet_delay(run: &Run, flow: &FlowRun) -> PacketDelaySummary {
    let totals = run.totals_of(&flow.info.name);
    let counted = totals.filter(|_| flow.packets.is_empty() && flow.info.one_clock);
    let Some(totals) = counted else {
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

/// One-way delays of recorded packets, if both ends share a clock.
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

/// Computed from the packets, or from their counters if packets are not recorded.
fn queueing(run: &Run, flow: &FlowRun) -> QueueSummary {
    if flow.packets.is_empty() {
        let totals = run.totals_of(&flow.info.name);
        let some = totals.filter(|t| t.received.packets > 0 && flow.info.one_clock);
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

/// Send time of each packet that arrived, and its one-way delay above the minimum of the flow in
/// ns. Dummies are excluded, since routers may treat them unlike media.
pub fn queueing_delays(flow: &FlowRun) -> impl Iterator<Item = (Time, i64)> + '_ {
    let delays = || {
        let packets = flow.packets.iter().filter(|p| p.kind != Kind::Dummy);
        packets.filter_map(|p| Some((p.sent, difference(p.arrived?, p.sent))))
    };
    let smallest = delays().map(|(_, delay)| delay).min().unwrap_or(0);
    delays().map(move |(sent, delay)| (sent, delay - smallest))
}

fn frames(
    flow: &FlowRun,
    outcomes: &[FrameOutcome],
    measured: &RangeInclusive<u64>,
) -> FrameSummary {
    let ended = |fate| {
        let outcomes = outcomes.iter().filter(|s| s.fate == fate);
        outcomes.count() as u64
    };
    let judged = !outcomes.is_empty() && bound_nanos(flow).is_some();
    let known = !flow.sent.is_empty();
    // The timestamps of a receiver count the frames between those that arrived.
    let arrived = outcomes.first().zip(outcomes.last());
    let arrived = arrived.map(|(first, last)| last.frame - first.frame + 1);
    let sent = || flow.sent.iter().filter(|row| measured.contains(&row.frame));
    let left = sent().filter(|row| row.left.is_some());
    let savable = flow.savable.iter().filter(|row| row.savable);
    let savable = savable.filter(|row| measured.contains(&row.frame));
    let given_up =
        |row: &&super::SentFrame| row.dropped.is_some() || row.kind == FrameKind::Skipped;
    FrameSummary {
        made: if known {
            Some(sent().count() as u64)
        } else {
            arrived.filter(|_| !flow.received.is_empty())
        },
        sent: known.then(|| left.count() as u64),
        on_time: judged.then(|| ended(FrameState::Delivered)),
        savable: (!flow.savable.is_empty()).then(|| savable.count() as u64),
        late: judged.then(|| ended(FrameState::Late)),
        dropped: known.then(|| sent().filter(given_up).count() as u64),
    }
}

/// Link metrics are those of the run of the first flow that is not a baseline. Compared flows run
/// one by one, and a mean over their runs would describe none of them.
fn of_links(run: &Run) -> Vec<LinkSummary> {
    let subject = subject(run);
    // After the end, only packets in flight still arrive.
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
            // Counters start with the run, and the first sample may come later.
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

/// Run, by the name of its flow, that the metrics of links are computed from.
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

/// Difference in ns, negative if the clocks differ.
fn difference(later: Time, earlier: Time) -> i64 {
    // A wrapping difference of two 64-bit numbers is right if it fits 63 bits: 292 years.
    later
        .as_nanos()
        .wrapping_sub(earlier.as_nanos())
        .cast_signed()
}

/// Element of `sorted` (ascending) at `percent`, in 1..=100.
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
