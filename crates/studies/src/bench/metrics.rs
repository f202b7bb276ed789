//! Quantities of a run.

use core::time::Duration;

use tidegate_core::link::Spread;
use tidegate_core::trace::Event;
use tidegate_core::units::{Rate, Time};
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};
use tidegate_sim::runner::RunResult;
use tidegate_sim::scenario::{LinkPlan, RatePlan, Scenario};

use crate::rmcat::view::fairness;

/// A run and what was under test.
pub(super) struct Played<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) result: &'a RunResult,
    /// Beginning of the names of the flows under test.
    pub(super) own: &'a str,
}

impl Played<'_> {
    /// The flows under test, or the others, with their numbers.
    fn flows(
        &self,
        is_own: bool,
    ) -> impl Iterator<Item = (usize, &FlowInstance, &FlowResult)> + Clone {
        let flows = self.result.flows.iter().enumerate();
        flows
            .filter(move |(_, (flow, _))| flow.class.starts_with(self.own) == is_own)
            .map(|(number, (flow, result))| (number, flow, result))
    }

    fn rates(&self, is_own: bool) -> Vec<f64> {
        let rate = |n: usize| self.result.meter.totals(n).receive_rate().as_f64();
        self.flows(is_own).map(|(n, ..)| rate(n)).collect()
    }

    /// Mean rate of all flows in b/s.
    pub(super) fn mean_rate_of_all(&self) -> f64 {
        let rates = [self.rates(true), self.rates(false)].concat();
        rates.iter().sum::<f64>() / rates.len() as f64
    }

    fn links(&self) -> impl Iterator<Item = &LinkPlan> {
        let own = self.flows(true).next();
        let path = own.map_or(&[][..], |(_, flow, _)| &flow.plan.path);
        path.iter().map(|link| &self.scenario.links[*link])
    }

    /// Mean of the smallest capacity over a span in b/s.
    fn capacity(&self, (from, to): (f64, f64)) -> f64 {
        let of = |rate: &RatePlan| match rate {
            RatePlan::Fixed(rate) => rate.as_f64(),
            RatePlan::Steps(steps) => {
                let rates = steps.iter().map(|(at, rate)| (*at, rate.as_f64()));
                mean_of_steps(rates, (from, to))
            }
            RatePlan::Trace(_) => f64::NAN,
        };
        let rates = self.links().filter_map(|link| link.rate.as_ref());
        rates.map(of).fold(f64::INFINITY, f64::min)
    }

    /// Share of the packets that links do not lose.
    fn kept(&self) -> f64 {
        self.links().map(|link| 1.0 - link.loss.mean()).product()
    }

    fn window(&self) -> (f64, f64) {
        let (from, to) = self.result.meter.window();
        (from.as_secs_f64(), to.as_secs_f64())
    }

    /// Mean rate of a flow in b/s between two times in seconds, from bins of received packets.
    fn rate_between(&self, flow: usize, (from, to): (f64, f64)) -> f64 {
        let bin = self.result.meter.bin_length().as_secs_f64();
        let bins = self.result.meter.bins(flow).enumerate();
        let inside = bins.filter(|(n, _)| {
            let middle = (*n as f64 + 0.5) * bin;
            from <= middle && middle < to
        });
        let bits: u64 = inside.map(|(_, bin)| bin.received.bytes.bits()).sum();
        bits as f64 / (to - from)
    }
}

fn mean_of_steps(
    steps: impl Iterator<Item = (Duration, f64)> + Clone,
    (from, to): (f64, f64),
) -> f64 {
    let ends = steps.clone().skip(1).map(|(at, _)| at.as_secs_f64());
    let ends = ends.chain([f64::INFINITY]);
    let bits = steps.zip(ends).map(|((at, rate), end)| {
        let span = end.min(to) - at.as_secs_f64().max(from);
        rate * span.max(0.0)
    });
    bits.sum::<f64>() / (to - from)
}

/// Rate of the flows under test as a share of what link errors leave of the capacity.
pub(super) fn used(run: &Played<'_>) -> f64 {
    let rate: f64 = run.rates(true).iter().sum();
    rate / (run.capacity(run.window()) * run.kept())
}

/// Rate of the flow under test as a share of what the path and its encoder allow.
pub(super) fn used_of_demand(run: &Played<'_>) -> f64 {
    let window = run.window();
    let Some((number, flow, _)) = run.flows(true).next() else {
        return f64::NAN;
    };
    let ceiling = flow.plan.media.video().map(|video| video.ceiling.as_f64());
    let most = HEADERS * ceiling.unwrap_or(f64::INFINITY);
    let of = |rate: &RatePlan| match rate {
        RatePlan::Fixed(rate) => rate.as_f64().min(most),
        RatePlan::Steps(steps) => {
            let lower = |(at, rate): &(Duration, Rate)| (*at, rate.as_f64().min(most));
            mean_of_steps(steps.iter().map(lower), window)
        }
        RatePlan::Trace(_) => f64::NAN,
    };
    let rates = run.links().filter_map(|link| link.rate.as_ref());
    let allowed = rates.map(of).fold(f64::INFINITY, f64::min);
    run.result.meter.totals(number).receive_rate().as_f64() / allowed
}

/// Time in the queue and the transmitter in ms, 95th percentile of the packets of the worst flow under
/// test. It does not count delays that vary without the queue.
pub(super) fn wait_ms(run: &Played<'_>) -> f64 {
    let waits = run.flows(true).map(|(n, ..)| run.result.meter.wait(n, 95));
    1e3 * waits.max().unwrap_or_default().as_secs_f64()
}

/// Rate of a flow under test in b/s, mean.
pub(super) fn own_rate(run: &Played<'_>) -> f64 {
    mean(&run.rates(true))
}

/// Rate of a flow under test in kb/s, mean.
pub(super) fn own_kbps(run: &Played<'_>) -> f64 {
    own_rate(run) / 1e3
}

/// Rate of a flow beside those under test in b/s, mean.
pub(super) fn other_rate(run: &Played<'_>) -> f64 {
    mean(&run.rates(false))
}

/// Delay above propagation in ms, 95th percentile of the packets of the worst flow under test.
pub(super) fn queue_ms(run: &Played<'_>) -> f64 {
    let links: Duration = run.links().map(|link| link.delay).sum();
    let above = run.flows(true).map(|(n, flow, _)| {
        let host = [&flow.access, &flow.exit].into_iter().flatten();
        let propagation = links + host.map(|link| link.delay).sum::<Duration>();
        let p95 = run.result.meter.totals(n).delay_p95;
        p95.as_secs_f64() - propagation.as_secs_f64()
    });
    1e3 * above.fold(0.0, f64::max)
}

/// Delay above propagation without the longest jitter of the path.
pub(super) fn queue_less_jitter_ms(run: &Played<'_>) -> f64 {
    let jitter = run.links().filter_map(|link| link.jitter.as_ref());
    let longest = jitter.map(|jitter| longest(jitter.spread).as_secs_f64());
    queue_ms(run) - 1e3 * longest.sum::<f64>()
}

fn longest(spread: Spread) -> Duration {
    match spread {
        Spread::Normal { max, .. } | Spread::Uniform { max } => max,
    }
}

/// Share of the packets of the flows under test that were lost.
pub(super) fn loss(run: &Played<'_>) -> f64 {
    let totals = run.flows(true).map(|(n, ..)| run.result.meter.totals(n));
    let (lost, sent) = totals.fold((0, 0), |(lost, sent), one| {
        (lost + one.dropped, sent + one.sent.packets)
    });
    lost as f64 / sent as f64
}

/// Jain's index of the rates of the flows under test.
pub(super) fn jain(run: &Played<'_>) -> f64 {
    fairness::jain(&run.rates(true))
}

/// Rates of the flows under test from half a minute to a minute after the last start.
fn settled(run: &Played<'_>) -> (Vec<f64>, (f64, f64)) {
    let starts = run
        .flows(true)
        .map(|(_, flow, _)| flow.plan.start.as_secs_f64());
    let last = starts.fold(0.0, f64::max);
    let span = (last + SETTLE.0, last + SETTLE.1);
    let rates = run.flows(true).map(|(n, ..)| run.rate_between(n, span));
    (rates.collect(), span)
}

/// Jain's index of these rates.
pub(super) fn settled_jain(run: &Played<'_>) -> f64 {
    fairness::jain(&settled(run).0)
}

/// Their share of the capacity.
pub(super) fn settled_used(run: &Played<'_>) -> f64 {
    let (rates, span) = settled(run);
    rates.iter().sum::<f64>() / run.capacity(span)
}

/// Frames of the flows under test: captured, savable, and on time.
fn frames(run: &Played<'_>) -> [f64; 3] {
    let mut sum = [0.0; 3];
    for (_, flow, result) in run.flows(true) {
        let Some(video) = flow.plan.media.video() else {
            continue;
        };
        let (sent, received, _) = result.rows();
        let captured: Vec<Time> = sent.iter().map(|frame| frame.captured).collect();
        let optimum = video.floor_sender();
        let savable = optimum.savable(&run.scenario.path_hops(&flow.plan), &captured);
        let on_time = received.iter().filter(|frame| {
            let captured = captured[frame.frame as usize];
            let whole = frame.complete;
            whole.is_some_and(|at| at.since(captured) <= video.delay_bound)
        });
        sum[0] += captured.len() as f64;
        sum[1] += savable.iter().filter(|savable| **savable).count() as f64;
        sum[2] += on_time.count() as f64;
    }
    sum
}

/// Share of all captured frames that were in time.
pub(super) fn on_time(run: &Played<'_>) -> f64 {
    let [captured, _, on_time] = frames(run);
    on_time / captured
}

/// Frames in time as a share of those that a sender with knowledge of the future could have saved.
pub(super) fn on_time_of_savable(run: &Played<'_>) -> f64 {
    let [_, savable, on_time] = frames(run);
    on_time / savable
}

/// The first outage of the path, in seconds.
fn outage(run: &Played<'_>) -> Option<(f64, f64)> {
    let outage = run.links().find_map(|link| link.outages.first().copied())?;
    Some((outage.from.as_secs_f64(), outage.to.as_secs_f64()))
}

/// Round trip of the path without queues in seconds.
fn round_trip(run: &Played<'_>) -> f64 {
    let Some((_, flow, _)) = run.flows(true).next() else {
        return f64::NAN;
    };
    let links = flow.plan.path.iter().chain(&flow.plan.back);
    let links: Duration = links.map(|link| run.scenario.links[*link].delay).sum();
    let host = [&flow.access, &flow.exit].into_iter().flatten();
    (links + 2 * host.map(|link| link.delay).sum::<Duration>()).as_secs_f64()
}

/// Round trips, less 20 ms, from the end of the outage until the permitted rate is 90 % of the mean
/// of the ten seconds before it. Infinite if it never is.
pub(super) fn back_after_rtts(run: &Played<'_>) -> f64 {
    let Some((from, to)) = outage(run) else {
        return f64::NAN;
    };
    let before = run.rate_between(0, (from - 10.0, from));
    let back = run.result.events.iter().find(|row| {
        let is_back =
            matches!(row.event, Event::Sample { send, .. } if send.as_f64() >= 0.9 * before);
        is_back && row.at.as_secs_f64() >= to
    });
    back.map_or(f64::INFINITY, |row| {
        (row.at.as_secs_f64() - to - 0.02).max(0.0) / round_trip(run)
    })
}

/// Packets into the dead link as a multiple of those permitted: one per quarter of a round trip and
/// per 20 ms. From three round trips and 0.4 s after the begin of the outage on; zero if it is shorter, as
/// no packet is counted then.
pub(super) fn probes(run: &Played<'_>) -> f64 {
    let Some((from, to)) = outage(run) else {
        return f64::NAN;
    };
    let rtt = round_trip(run);
    let (from, to) = (from + 0.4 + 3.0 * rtt, to);
    let bin = run.result.meter.bin_length().as_secs_f64();
    let bins = run.result.meter.bins(0).enumerate();
    let dead = bins.filter(|(n, _)| from <= *n as f64 * bin && (*n as f64 + 1.0) * bin <= to);
    let (bins, sent) = dead.fold((0.0, 0), |(bins, sent), (_, bin)| {
        (bins + 1.0, sent + bin.sent.packets)
    });
    if sent == 0 {
        return 0.0;
    }
    sent as f64 / (bins * bin / (rtt / 4.0).max(0.02))
}

/// Rate of the flow under test outside of the outage as a share of the capacity, from the first
/// second on, and without the first second after the outage.
pub(super) fn used_outside(run: &Played<'_>) -> f64 {
    let end = run.scenario.duration.as_secs_f64();
    let (from, to) = outage(run).unwrap_or((end, end));
    let spans = [(1.0, from), (to + 1.0, end)].map(|(from, to)| (from, to.max(from)));
    let bits = |of: &dyn Fn((f64, f64)) -> f64| -> f64 {
        let spans = spans.iter().filter(|(from, to)| to > from);
        spans.map(|span| of(*span) * (span.1 - span.0)).sum()
    };
    bits(&|span| run.rate_between(0, span) / run.kept()) / bits(&|span| run.capacity(span))
}

/// Rate in the third second after the largest step up of the capacity as a share of the new capacity.
pub(super) fn after_step_up(run: &Played<'_>) -> f64 {
    let mut steps = run.links().filter_map(|link| match &link.rate {
        Some(RatePlan::Steps(steps)) => Some(steps),
        _ => None,
    });
    let up = steps.next().and_then(|steps| {
        let ups = steps
            .windows(2)
            .map(|pair| (pair[1].0, pair[1].1.as_f64() - pair[0].1.as_f64()));
        ups.max_by(|a, b| a.1.total_cmp(&b.1))
    });
    let Some((at, _)) = up else {
        return f64::NAN;
    };
    let at = at.as_secs_f64();
    let span = (at + 2.0, at + 3.0);
    run.rate_between(0, span) / (run.capacity(span) * run.kept())
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Rate of whole IP packets over that of an encoder.
const HEADERS: f64 = 1.04;
/// Seconds after the last start of a call.
const SETTLE: (f64, f64) = (30.0, 60.0);
