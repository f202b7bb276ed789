//! A scenario as text for display.

use core::fmt::Write as _;
use core::time::Duration;

use tidegate_core::link::{
    Capacity, CoDelConfig, DualPi2Config, GilbertElliott, JitterConfig, Limit, LossConfig,
    QueueConfig, RedUnit, Spread, Steps,
};
use tidegate_core::units::{Bytes, Time};

use super::{FlowPlan, LinkPlan, RatePlan, Scenario};

impl Scenario {
    /// The path of each flow and the properties of its links, in plain ASCII, one line each.
    pub fn topology(&self) -> String {
        let mut out = String::new();
        for flow in &self.flows {
            out.push_str(&self.ways(flow));
        }
        let width = self.links.iter().map(|link| link.name.len()).max();
        for link in &self.links {
            let width = width.unwrap_or(0);
            let _ = writeln!(out, "{:width$}  {}", link.name, description(link));
        }
        out
    }

    fn ways(&self, flow: &FlowPlan) -> String {
        let hops = |links: &[usize]| -> Vec<String> {
            links
                .iter()
                .filter_map(|link| self.links.get(*link))
                .map(|link| format!("[{}]", link.name))
                .collect()
        };
        let mut back = hops(&flow.back);
        back.reverse();
        let there = format!("--- {} ---", hops(&flow.path).join(" ---> "));
        let back = format!("<--- {} ---", back.join(" <--- "));
        let width = there.len().max(back.len().saturating_sub(1));
        let margin = flow.name.len();
        format!(
            "{} {there:-<width$}> receiver\n{:margin$} {back:-<long$}\n",
            flow.name,
            "",
            long = width + 1,
        )
    }
}

fn description(link: &LinkPlan) -> String {
    let mut parts = vec![match &link.rate {
        None => "no limit".to_owned(),
        Some(RatePlan::Fixed(rate)) => rate.to_string(),
        Some(RatePlan::Steps(steps)) if steps.len() > LISTED => {
            let last = steps.last().map_or(Duration::ZERO, |(at, _)| *at);
            let capacity = link.capacity().unwrap_or(Capacity::Unlimited);
            let bytes = capacity.offered(Time::ZERO, Time::ZERO + last);
            let mean = bytes.map_or(String::new(), |bytes| format!(" (mean {})", bytes / last));
            format!("{} rates{mean}", steps.len())
        }
        Some(RatePlan::Steps(steps)) => steps
            .iter()
            .map(|(at, rate)| match at {
                &Duration::ZERO => rate.to_string(),
                at => format!("{rate} from {at:?}"),
            })
            .collect::<Vec<_>>()
            .join(", "),
        Some(RatePlan::Trace(trace)) => {
            let mean = Capacity::Trace(trace.trace.clone()).nominal();
            let mean = mean.map_or(String::new(), |mean| format!(" (mean {mean})"));
            format!("{}{mean}", trace.file)
        }
    }];
    parts.extend(link.queue.as_ref().map(queue));
    let variation = link.delay_variation.iter();
    let extra = variation.flat_map(Steps::as_slice).map(|(_, extra)| *extra);
    let longest = extra
        .max()
        .map(|extra| format!(" to {:?}", link.delay + extra));
    parts.push(format!(
        "delay {:?}{}",
        link.delay,
        longest.unwrap_or_default()
    ));
    parts.extend(link.jitter.as_ref().map(jitter));
    if link.loss.mean() > 0.0 {
        parts.push(loss(&link.loss));
    }
    for outage in &link.outages {
        let moment = |time: Time| time.since(Time::ZERO);
        let (from, to) = (moment(outage.from), moment(outage.to));
        parts.push(format!("dark {from:?} to {to:?}"));
    }
    parts.join("; ")
}

fn jitter(config: &JitterConfig) -> String {
    let spread = match config.spread {
        Spread::Uniform { max } => format!("jitter up to {max:?}"),
        Spread::Normal {
            mean,
            deviation,
            max,
        } => format!("jitter {mean:?} +- {deviation:?} up to {max:?}"),
    };
    let order = if config.reorder { ", out of order" } else { "" };
    format!("{spread}{order}")
}

fn loss(config: &LossConfig) -> String {
    let millionths = |x: f64| (x * 1e6 + 0.5) as u64 as f64 / 1e6;
    let percent = |share: f64| format!("{}%", millionths(100.0 * share));
    match config {
        LossConfig::Bernoulli(share) => format!("loss {share}"),
        LossConfig::Every(packets) => format!("every {packets}th packet lost"),
        LossConfig::Steps(_) => format!("loss {} over time", percent(config.mean())),
        LossConfig::GilbertElliott(GilbertElliott {
            to_good,
            loss_good,
            loss_bad,
            ..
        }) if *loss_good <= 0.0 && *loss_bad >= 1.0 => format!(
            "loss {} in bursts of {}",
            percent(config.mean()),
            millionths(1.0 / to_good)
        ),
        LossConfig::GilbertElliott(GilbertElliott {
            to_bad,
            to_good,
            loss_good,
            loss_bad,
        }) => format!(
            "loss {} or {}, turns bad {}, good {}",
            percent(*loss_good),
            percent(*loss_bad),
            percent(*to_bad),
            percent(*to_good)
        ),
    }
}

/// A queue as text, as `droptail 60 kB`.
pub(super) fn queue(config: &QueueConfig) -> String {
    let ecn = |ecn| if ecn { " with ECN" } else { "" };
    match config {
        QueueConfig::DropTail(config) => {
            let marks = match config.mark_above {
                Some(above) => format!(", marks above {}", bytes(above)),
                None => String::new(),
            };
            format!("droptail {}{marks}", limit(config.limit))
        }
        QueueConfig::CoDel(CoDelConfig { limit: most, law }) => format!(
            "codel {:?} in {:?} of {}{}",
            law.target,
            law.interval,
            limit(*most),
            ecn(law.ecn)
        ),
        QueueConfig::DualPi2(DualPi2Config {
            limit: most,
            target,
            step,
            ..
        }) => format!("dualpi2 {target:?}, {step:?} of {}", limit(*most)),
        QueueConfig::Priority(config) => {
            format!("priorities, droptail {}", limit(config.limit))
        }
        QueueConfig::FqCoDel(config) => format!(
            "fq_codel {:?} in {:?} of {} in {} queues{}",
            config.law.target,
            config.law.interval,
            limit(Limit::Packets(config.limit)),
            config.queues,
            ecn(config.law.ecn)
        ),
        QueueConfig::Red(red) => {
            let (min, max) = (red.min_threshold, red.max_threshold);
            let counts = match red.unit {
                RedUnit::Packets => "",
                RedUnit::Bytes => ", by bytes",
            };
            let adaptive = if red.adaptation.is_some() {
                ", adaptive"
            } else {
                ""
            };
            format!(
                "red {min} to {max} of {}{counts}{adaptive}{}",
                limit(Limit::Packets(red.limit)),
                ecn(red.ecn)
            )
        }
    }
}

/// A queue limit as text, as "60 kB" or "50 packets".
pub(super) fn limit(limit: Limit) -> String {
    match limit {
        Limit::Bytes(limit) => bytes(limit),
        Limit::Packets(1) => "1 packet".to_owned(),
        Limit::Packets(limit) => format!("{limit} packets"),
    }
}

fn bytes(bytes: Bytes) -> String {
    match bytes.0 {
        kilos if kilos.is_multiple_of(1_000) => format!("{} kB", kilos / 1_000),
        bytes => format!("{bytes} B"),
    }
}

/// Longest list of rates that is displayed.
const LISTED: usize = 12;
